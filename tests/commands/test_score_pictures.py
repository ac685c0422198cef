"""`score pictures=DIR real=DIR`: folders of generated pictures, scored in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from medimg_eval.commands.cli import start
from medimg_eval.file_scores import pictures as scoring
from medimg_eval.metrics.fidelity import kernel_distance
from medimg_eval.results import load_runs
from tests.helpers.printed import said


@pytest.fixture
def folder(folder, monkeypatch):
    monkeypatch.setattr(scoring, "ENCODERS", ())  # whatever weights this machine has
    monkeypatch.setattr(scoring, "find_spec", lambda name: None)
    return folder


def fill(name, seed, count=12, brighter=0):
    """Squares of 16 x 16 grey values, so that the extractor's features are these."""
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 200, (count, 16, 16)).astype(np.uint8) + np.uint8(brighter)
    Path(name, "deep").mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(Path(name, "deep" if number % 2 else "", f"p{number:02d}.png"))
    return pictures


def values():
    """By model: metric -> value of all pictures."""
    found = {}
    for run in load_runs([one.parent for one in Path().glob("runs/pictures/*/manifest.json")]):
        rows = run.scores[run.scores["label"] == "all"]
        found[run.model] = dict(zip(rows["metric"], rows["value"], strict=False))
    return found


def test_a_folder_is_scored_beside_real_pictures(folder, capsys):
    fill("real", 0)
    fill("made", 1)
    assert start(["score", "pictures=made", "real=real"]) == 0
    out, _ = said(capsys)
    for title in (
        "Fréchet distance (pixels)",
        "Kernel distance",
        "Precision",
        "Recall",
        "Density",
        "Coverage",
        "Vendi",
    ):
        assert title in out
    assert "real images in their place" in out
    assert "Near copies" not in out
    assert "0 of 12 cases have scores" not in out


def test_values_are_those_of_the_functions(folder, capsys):
    real, made = fill("real", 0), fill("made", 1, brighter=30)
    words = ["score", "pictures=made", "real=real", "metrics=[kernel_distance@pixels]"]
    assert start(words) == 0
    expected = kernel_distance(*(one.reshape(12, -1) / 255 for one in (made, real))).value
    assert f"{expected:.4f}" in said(capsys)[0]


def test_copies_of_training_pictures_are_looked_for_where_these_are_named(folder, capsys):
    for seed, name in enumerate(("real", "made", "train")):
        fill(name, seed)
    for number in range(6):
        shutil.copy(f"train/deep/p{2 * number + 1:02d}.png", f"made/deep/p{2 * number + 1:02d}.png")
    assert start(["score", "pictures=made", "real=real", "train=train"]) == 0
    out, _ = said(capsys)
    assert "Near copies (pixels_64)" in out
    assert "0.5000 [" in out
    assert "6 of 12 generated rows are rows of the training set" in out
    (gallery,) = Path("runs/pictures").glob("made-*/nearest-pixels_64.html")
    assert "deep/p01" in gallery.read_text()


def test_several_models_stand_in_one_table_without_a_word_on_their_own_cases(folder, capsys):
    fill("real", 0)
    fill("a", 1)
    fill("b", 2, count=9)
    metrics = "metrics=[kernel_distance@pixels]"
    assert start(["score", "pictures={one: a, other: b}", "real=real", metrics]) == 0
    out, _ = said(capsys)
    assert "│ one" in out
    assert "│ other" in out
    assert "not comparable" not in out


def test_a_table_names_patients_and_divides(folder, capsys):
    fill("real", 0)
    fill("made", 1)
    names = [f"{'deep/' if number % 2 else ''}p{number:02d}" for number in range(12)]
    rows = [f"{name},q{number // 2},{'pa' if number < 6 else 'ap'}" for number, name in enumerate(names)]
    Path("cases.csv").write_text("\n".join(["case,patient,view", *rows]))
    words = ["score", "pictures=made", "real=real", "cases=cases.csv", "by=view", "metrics=[kernel_distance@pixels]"]
    assert start(words) == 0
    out, _ = said(capsys)
    assert "│ pa" in out
    assert "12 cases of 6 patients" in out


def test_a_damaged_picture_counts_as_one_that_was_not_made(folder, capsys):
    fill("real", 0)
    fill("made", 1)
    Path("made/deep/p01.png").write_bytes(b"no picture")
    metrics = "metrics=[kernel_distance@pixels]"
    assert start(["score", "pictures=made", "real=real", metrics]) == 1
    out, err = said(capsys)
    assert "0.083" in out
    assert "made/deep/p01.png" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pictures=made"], "pictures= needs real=DIR"),
        (["pictures=made", "real=nowhere"], "nowhere: no such folder"),
        (["pictures=made", "real=empty"], "empty: holds no pictures"),
        (["pictures=made", "real=real", "resample=nearest"], "resample= is not for pictures="),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_mend(folder, capsys, words, message):
    fill("real", 0)
    fill("made", 1)
    Path("empty").mkdir()
    assert start(["score", *words]) != 0
    assert message in said(capsys)[1]

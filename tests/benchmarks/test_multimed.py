"""Patients of several modalities in one table: pictures, signals, sequences and values, of which some are missing."""

import csv

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Condition, Prompt
from medimg_eval.commands.cli import start
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.image import PART
from medimg_eval.models import SequenceCounts, SignalStatistics
from tests.helpers.benchmark_files import picture, task

PARTS = ["slide", "xray", "ecg", "dna", "note", "values"]


def write(root, size=36):
    """Patients whose ECG beats faster, and whose DNA holds more of one piece, the earlier they die."""
    rng, rows = np.random.default_rng(0), []
    for number in range(size):
        hazard, name = rng.random(), f"p{number:02d}"
        time = np.arange(256)
        beats = np.sin(2 * np.pi * time * (2 + 30 * hazard) / 256) + 0.05 * rng.normal(size=256)
        (root / "ecg").mkdir(parents=True, exist_ok=True)
        np.save(root / f"ecg/{name}.npy", np.stack([beats, -beats]).astype(np.float32))
        picture(root / f"slide/{name}.png", rng.integers(0, 255, (8, 8, 3)))
        if number % 4:
            picture(root / f"xray/{name}.png", rng.integers(0, 255, (8, 8)))
        rows.append(
            {
                "patient_id": name,
                "pathology": f"slide/{name}.png",
                "chest_xray": f"xray/{name}.png" if number % 4 else "",
                "ecg": "" if number % 9 == 8 else f"ecg/{name}.npy",
                "dna": "".join(rng.choice(list("ACGT"), 30)) + "GATTACA" * int(8 * hazard),
                "note": "cough and fever for two weeks" if hazard > 0.5 else "a routine visit without any complaint",
                "age": 50 + number,
                "haemoglobin": "" if number % 5 == 4 else f"{12 - hazard:.2f}",
                "days": int(1 + 2000 * (1 - hazard)),
                "died": int(number % 6 != 5),
                "split": ("train", "train", "valid", "test")[number % 4],
            }
        )
    with (root / "patients.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def parts(case):
    return {image.attributes[PART]: image.array for image in (one.read() for one in case.images)}


def cases_of(root):
    made = task("multimed_form", root)
    return made, {case.id: case for part in ("fit", "validate", "test") for case in made.cases(part)}


def test_a_case_has_the_parts_that_its_row_names(tmp_path):
    write(tmp_path)
    made, cases = cases_of(tmp_path)
    held = parts(cases["p01"])
    assert list(held) == PARTS
    assert held["ecg"].shape == (2, 1, 256)
    np.testing.assert_array_equal(held["ecg"][0], -held["ecg"][1])
    assert held["note"].tobytes().decode().startswith(("cough", "a routine"))
    assert held["values"][0, 0].tolist()[0] == 51
    assert list(parts(cases["p08"])) == ["slide", "dna", "note", "values"]
    target = cases["p05"].target.read()
    assert (target.event, target.unit) == (False, "days")
    assert {"noisy_ecg", "dropped_note", "dropped_dna", "blank_values", "without_slide"} <= made.conditions()
    assert not {"noisy_note", "dropped_ecg", "blank_ecg", "noisy_slide"} & made.conditions()
    np.savetxt(tmp_path / "ecg.csv", held["ecg"][:, 0].T, delimiter=",", header="I,II")
    (tmp_path / "patients.csv").write_text((tmp_path / "patients.csv").read_text().replace("ecg/p01.npy", "ecg.csv"))
    np.testing.assert_allclose(parts(cases_of(tmp_path)[1]["p01"])["ecg"], held["ecg"], atol=1e-6)
    (tmp_path / "ecg.csv").write_text("I,II\n1,x\n")
    with pytest.raises(CaseError, match="expected finite samples"):
        parts(cases_of(tmp_path)[1]["p01"])


def test_signals_are_noised_by_decibels_and_texts_lose_words(tmp_path):
    write(tmp_path)
    made, cases = cases_of(tmp_path)
    case = cases["p01"]

    def under(name, severity):
        return parts(made.under(case, Condition(name, severity), DrawKey(0, case.id)))

    clean = parts(case)
    for severity, decibels in zip(range(1, 6), (30, 20, 10, 5, 0), strict=True):
        found = under("noisy_ecg", severity)
        noise = (found["ecg"] - clean["ecg"]).std()
        assert 20 * np.log10(clean["ecg"].std() / noise) == pytest.approx(decibels, abs=0.6)
        np.testing.assert_array_equal(found["slide"], clean["slide"])
    words = clean["note"].tobytes().decode().split()
    for severity, share in zip(range(1, 6), (0.05, 0.1, 0.2, 0.35, 0.5), strict=True):
        left = under("dropped_note", severity)["note"].tobytes().decode().split()
        assert len(left) == len(words) - round(share * len(words))
        assert set(left) <= set(words)
    assert under("dropped_dna", 5)["dna"].shape[-1] == round(clean["dna"].shape[-1] / 2 + 1e-9)
    with pytest.raises(UsageError, match="severity from 1 to 5, got 6"):
        under("noisy_ecg", 6)


def test_statistics_of_signals_and_counts_of_pieces(tmp_path):
    write(tmp_path)
    case = cases_of(tmp_path)[1]["p01"]
    images = {image.attributes[PART]: image for image in (one.read() for one in case.images)}
    (vector,) = SignalStatistics(bands=4).embed([Prompt("a", (images["ecg"],))])
    assert vector.shape == (2 * (8 + 4),)
    samples = images["ecg"].array[0, 0]
    assert vector[:2] == pytest.approx([samples.mean(), samples.std()], abs=1e-6)
    assert (10 ** vector[8:12]).sum() == pytest.approx(1, abs=1e-4)  # shares of power
    (counts,) = SequenceCounts(letters=2, width=32).embed([Prompt("a", (images["dna"],))])
    assert counts[:-1].sum() == pytest.approx(1)
    assert counts[-1] == pytest.approx(np.log1p(images["dna"].array.size))
    with pytest.raises(CaseError, match="expected one signal"):
        SignalStatistics().embed([Prompt("a", (images["dna"],))])
    with pytest.raises(UsageError, match="from 1"):
        SignalStatistics(bands=0)
    with pytest.raises(UsageError, match="from 1"):
        SequenceCounts(letters=0)


@pytest.mark.slow
def test_from_files_to_the_table_with_parts_missing_and_damaged(tmp_path, monkeypatch):
    write(tmp_path / "data", 80)
    monkeypatch.chdir(tmp_path)
    words = [
        "task=multimed_form",
        "task.layout.root=data",
        "model=fusion_risk",
        "num_workers=0",
        "trainer.accelerator=cpu",
    ]
    assert start(["fit", *words, "run=FIT"]) == 0
    conditions = "conditions=[without_ecg,only_values,missing_dna-50,noisy_ecg-5,dropped_note-5,blank_values-30]"
    assert start(["test", *words, "model.checkpoint=FIT", conditions, "score_workers=0", "run=TEST"]) == 0
    assert start(["table", "runs=TEST", "by=condition"]) == 0
    run = me.load_run("TEST")
    assert run.summary.set_index("metric")["value"]["c_index"] > 0.7

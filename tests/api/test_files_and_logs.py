"""From Python as on the command line: files that hold predictions, logs, exports; and what a notebook shows of it."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.api.listing import published_systems
from medimg_eval.case import Mask
from medimg_eval.commands.check import check_task
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import write_mask
from tests.conftest import ellipsoids
from tests.helpers.printed import said


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def fill(folder, shift=0, cases="abcdef"):
    folder.mkdir()
    for case in cases:
        labels = np.zeros((12, 10, 8), np.uint8)
        labels[2 + shift : 6 + shift, 2:6, 2:6] = 1
        write_mask(folder / f"{case}.nii.gz", Mask(labels, np.eye(4)))


def test_folders_of_masks_give_the_runs_bytes_and_words_of_the_command(folder, capsys, caplog, monkeypatch):
    fill(folder / "right")
    fill(folder / "one", shift=1)
    fill(folder / "two", shift=2, cases="abcde")
    words = ["masks={one: one, two: two}", "references=right", "metrics=[dice]"]
    assert start(["score", *words, "runs=shell"]) == 1  # for the case that two lacks
    out, _ = said(capsys)
    monkeypatch.setattr(logging.getLogger("medimg_eval"), "propagate", True)  # which commands set to False
    with caplog.at_level(logging.WARNING):
        found = me.score(masks={"one": Path("one"), "two": "two"}, references="right", metrics=["dice"], runs="here")
    told = "1 cases have no masks of two and count at the worst value"
    assert told in out
    assert told in caplog.text
    assert [run.manifest["model"] for run in found] == ["one", "two"]
    for run in found:
        (shell,) = Path("shell/masks").glob(f"{run.folder.name}/scores.parquet")
        assert shell.read_bytes() == (run.folder / "scores.parquet").read_bytes()
    # Of 64 voxels 48 and 32 agree; the case that two lacks counts 0: 5 times 1/2 of 6.
    assert found.table.frame()["mean"].tolist() == pytest.approx([0.75, 5 / 12])
    assert found.sheets[0].content.caption.startswith("Significance of differences in Dice")
    page = found._repr_html_()
    assert page.count('<div class="medimg-eval">') == 2
    assert "<html" not in page


def test_what_is_not_scored_so_is_refused(folder):
    with pytest.raises(UsageError, match="score takes a run, or files by one of masks="):
        me.score()
    with pytest.raises(UsageError, match="columns= is not for masks=; leave it out"):
        me.score(masks="one", references="right", columns={"case": "id"})
    with pytest.raises(UsageError, match="got 'refrences'; did you mean 'references'"):
        me.score(masks="one", refrences="right")


@pytest.fixture
def log(folder):
    """Samples as lm-eval logs them: two right by its own rule, of which we read one otherwise."""
    samples = [
        {
            "doc_id": at,
            "doc": {"question": f"Which is {at}?", "choices": ["bile", "blood"]},
            "target": "A",
            "arguments": {"gen_args_0": {"arg_0": f"Which is {at}?", "arg_1": {}}},
            "resps": [[reply]],
            "filtered_resps": [reply],
            "filter": "none",
            "metrics": ["acc"],
            "acc": score,
        }
        for at, (reply, score) in enumerate([("A", 1.0), ("B", 1.0), ("B", 0.0)])
    ]
    place = Path("logs/mine")
    place.mkdir(parents=True)
    file = place / "samples_quiz_2026-01-01T00-00-00.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in samples), encoding="utf-8")
    return file


def test_a_log_gives_the_runs_of_the_command_and_the_differences_to_its_program(folder, log, capsys):
    assert start(["import", f"log={log}", "runs=shell"]) == 0
    out, _ = said(capsys)
    (found,) = me.import_log(log, runs="here")
    (run,) = found.runs
    (shell,) = Path("shell").rglob("scores.parquet")
    assert shell.parent.name == run.folder.name
    assert shell.read_bytes() == (run.folder / "scores.parquet").read_bytes()
    (difference,) = found.differences
    assert (difference.their_mean, difference.our_mean, difference.cases) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
        difference.cases,
    )
    assert len(difference.cases) == 1
    for line in difference.lines():
        assert " ".join(line.split()) in out
    assert "1 differ" in found._repr_html_()


def test_a_run_is_exported_by_a_line(folder):
    fill(folder / "right")
    fill(folder / "one", shift=1)
    (run,) = me.score(masks="one", references="right", metrics=["dice"])
    (file,) = me.export(run, "nnunet", "given")
    summary = json.loads(file.read_text(encoding="utf-8"))
    assert summary["foreground_mean"]["Dice"] == pytest.approx(0.75)
    with pytest.raises(UsageError, match="export has no setting 'datset'; did you mean 'dataset'"):
        me.export(run, "nnunet", datset="a/b")
    with pytest.raises(UsageError, match="got 'nnunte'"):
        me.export(run, "nnunte")


def test_figures_comparisons_and_ranks_show_themselves_in_a_notebook(folder):
    fill(folder / "right")
    for shift, name in enumerate(("one", "two")):
        fill(folder / name, shift=shift)
    found = me.score(masks={"one": "one", "two": "two"}, references="right", metrics=["dice"])
    drawn = me.figure("forest", found, "dice")
    assert drawn._repr_html_().count("<svg") == 1
    assert "<figcaption>" in drawn._repr_html_()
    assert "<table>" in me.compare(found, "dice", resamples=50)._repr_html_()
    assert "<html" not in me.table(found)._repr_html_()


def test_the_catalogue_and_published_systems_are_frames(folder):
    systems = me.list_catalogue("systems")
    assert {"text", "family", "modalities", "commands"} <= set(systems.columns)
    assert len(systems) == len(published_systems())
    ct = me.list_catalogue("tasks", modality="ct", search="liver")
    assert {"text", "family", "access"} == set(ct.columns)
    assert len(ct) < len(me.list_catalogue("tasks", modality="ct"))
    with pytest.raises(UsageError, match="got 'task'; did you mean 'tasks'"):
        me.list_catalogue("task")
    with pytest.raises(UsageError, match="passes these filters"):
        me.list_catalogue("tasks", search="nothing is called so")


def test_a_check_returns_what_the_command_prints(folder, write_dataset, capsys):
    task = ellipsoids(write_dataset(3))
    found = me.check(task, parts=["test"])
    assert not found["doubt"].any()
    with suppress(UserError):
        check_task(task, ["test"])
    out, _ = said(capsys)
    assert [" ".join(f"{row.part}: {row.text}".split()) in out for row in found.itertuples()] == [True] * len(found)
    images = me.check(path=write_dataset(3) / "images")
    assert len(images) == 3
    assert images["readable"].all()
    ready = me.check(metrics=["bleu@4", "chexbert_f1@micro-14+"])
    assert list(ready["metric"]) == ["bleu@4", "chexbert_f1@micro-14+"]
    assert ready["ready"].iloc[0]
    with pytest.raises(UsageError, match="check takes a task, path="):
        me.check()


def test_a_refusal_of_ours_reaches_python_as_it_is(folder):
    Path("reports.csv").write_text("id,reference,prediction\n1,No effusion.,Effusion.\n")
    with pytest.raises(UsageError, match="got 'blue'; did you mean 'bleu'"):
        me.score(reports="reports.csv", metrics=["blue"])

"""Which runs are read, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pytest

from medimg_eval.errors import UserError
from medimg_eval.results import build_table, load_runs


def test_manifest_and_scores_become_fields(write_run, three_cases):
    folder = write_run("r1", three_cases, notes=["phantoms"], ended=None, model="UNet")
    (run,) = load_runs([folder])
    assert (run.run, run.task, run.task_title, run.model) == ("r1", "organs", "Organs", "UNet")
    assert (run.cases, run.predicted, run.failed_cases, run.notes) == (3, 3, 0, ("phantoms",))
    assert (run.started, run.ended) == (datetime(2026, 11, 21, 10, tzinfo=UTC), None)
    assert run.finished
    assert len(run.scores) == 12
    assert run.folder == folder.resolve()


def test_search_keeps_the_newest_of_each_task_and_model(write_run, tmp_path):
    write_run("old", model="UNet", started="2026-01-01T00:00:00+00:00")
    write_run("nested/new", model="UNet", started="2026-02-01T00:00:00+05:00")
    write_run("older", model="UNet", started="2025-02-01T00:00:00")
    write_run("other", model="VISTA")
    write_run("elsewhere", model="UNet", task="lesions")
    runs = load_runs([tmp_path])
    assert [(run.run, run.older_left_out) for run in runs] == [
        ("elsewhere", 0),
        ("nested/new", 2),
        ("other", 0),
    ]


def test_runs_of_one_name_with_other_settings_are_other_models(write_run, tmp_path):
    write_run("flips", model="UNet", settings="a", started="2026-01-01T00:00:00+00:00")
    write_run("plain", model="UNet", settings="b")
    assert [(run.run, run.older_left_out) for run in load_runs([tmp_path])] == [("flips", 0), ("plain", 0)]


def test_newest_wins_even_if_unfinished(write_run, tmp_path):
    write_run("done", model="UNet")
    write_run("now", model="UNet", started="2026-12-01T00:00:00+00:00", status="running", predicted=0)
    (run,) = load_runs([tmp_path])
    assert (run.run, run.finished, len(run.scores)) == ("now", False, 0)


def test_a_named_run_is_always_kept_and_never_twice(write_run, tmp_path):
    old = write_run("old", model="UNet", started="2026-01-01T00:00:00+00:00")
    new = write_run("new", model="UNet")
    assert [run.run for run in load_runs([old, new])] == ["old", "new"]
    assert [run.run for run in load_runs([tmp_path, old])] == ["old", "new"]
    assert [run.run for run in load_runs([new, new, tmp_path])] == ["new"]


def test_search_passes_over_fit_runs_and_foreign_manifests(write_run, tmp_path):
    write_run("trained", command="fit")
    (tmp_path / "runs" / "site").mkdir()
    (tmp_path / "runs" / "site" / "manifest.json").write_text('{"name": "a web page"}')
    write_run("tested")
    assert [run.run for run in load_runs([tmp_path])] == ["tested"]


def test_an_older_run_that_cannot_be_read_does_not_matter(write_run, tmp_path):
    old = write_run("old", model="UNet", started="2026-01-01T00:00:00+00:00")
    (old / "scores.parquet").unlink()
    write_run("new", model="UNet")
    assert [run.run for run in load_runs([tmp_path])] == ["new"]


def test_no_run(tmp_path):
    with pytest.raises(UserError, match="No `test` run"):
        load_runs([tmp_path])
    with pytest.raises(UserError, match="not a folder"):
        load_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": "fit"}, "'fit' run"),
        ({"schema": 2}, "schema 2"),
        ({"cases": "3"}, "'cases'"),
        ({"notes": None}, "'notes'"),
        ({"status": "done"}, "'status'"),
        ({"resampled": "slices"}, "'resampled'"),
        ({"started": "yesterday"}, "ISO time"),
    ],
)
def test_unusable_manifest(write_run, change, message):
    folder = write_run("r1", **change)
    with pytest.raises(UserError, match=message) as error:
        load_runs([folder])
    assert str(folder / "manifest.json") in str(error.value)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_manifest_that_is_no_manifest(write_run, text):
    folder = write_run("r1")
    (folder / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        load_runs([folder])


def test_missing_field_is_named(write_run):
    folder = write_run("r1")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["signature"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="'signature'"):
        load_runs([folder])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda frame: frame.drop(columns=["patient", "label"]), "lacks the columns patient, label"),
        (lambda frame: frame.assign(value="high"), "not numbers"),
        (lambda frame: frame.assign(value=float("inf")), "infinite"),
        (lambda frame: frame.assign(patient=None), "without a patient"),
        (lambda frame: pd.concat([frame, frame]), "two rows of dice for case 'c1'"),
    ],
)
def test_unusable_scores(write_run, three_cases, spoil, message):
    folder = write_run("r1", three_cases)
    file = folder / "scores.parquet"
    spoil(pd.read_parquet(file)).to_parquet(file)
    with pytest.raises(UserError, match=message) as error:
        load_runs([folder])
    assert str(file) in str(error.value)
    assert "score the run again" in str(error.value)


def test_scores_lost_or_broken(write_run):
    folder = write_run("r1")
    (folder / "scores.parquet").write_text("not parquet")
    with pytest.raises(UserError, match=r"scores\.parquet"):
        load_runs([folder])
    (folder / "scores.parquet").unlink()
    with pytest.raises(UserError, match=r"scores\.parquet"):
        load_runs([folder])


def test_patients_are_not_needed_where_cases_are_resampled(write_run):
    folder = write_run("r1", [("c1", None, "a", "dice", 0.5, "present")], resampled="cases")
    assert len(load_runs([folder])) == 1


def layout(**settings):
    return {"layout": {"_target_": "mine.Layout", **settings}}


def test_judgements_of_two_reconstructions_are_both_kept(write_run, tmp_path):
    for name, shown, start in (("one", "/r/a", "01"), ("two", "/r/b", "02"), ("again", "/r/b", "03")):
        write_run(
            name, model="UNet", data_fingerprint=name, started=f"2026-01-{start}", task_config=layout(run=shown, echo=1)
        )
    assert [(run.run, run.older_left_out) for run in load_runs([tmp_path])] == [("one", 0), ("again", 1)]


def test_a_table_says_which_older_run_had_other_data(write_run, tmp_path):
    def notes():
        return [note for note in build_table(load_runs([tmp_path])).footnotes if "on other data" in note]

    write_run("new", model="UNet", task_config=layout(count=400, window={"low": 0}))
    write_run("same", model="UNet", started="2026-01-02", task_config=layout(count=400, window={"low": 0}))
    assert notes() == []
    trial = layout(count=5, window={"low": 1})
    write_run("trial", model="UNet", started="2026-01-01", data_fingerprint="5", task_config=trial)
    (note,) = notes()
    assert note == (
        "Organs, UNet: an older run on other data is left out, trial (1 cases, now 1; with layout.count=5, now 400 and "
        "layout.window.low=1, now 0)."
    )
    same = layout(count=400, window={"low": 0})
    write_run("broken", model="UNet", started="2025-01-01", data_fingerprint="6", task_config=same)
    assert (
        "left out, broken (1 cases, now 1; with the same settings, so that its data were changed since)" in notes()[0]
    )

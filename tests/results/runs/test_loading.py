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
    assert [(run.run, len(run.left_out)) for run in runs] == [
        ("elsewhere", 0),
        ("nested/new", 2),
        ("other", 0),
    ]


def test_runs_without_rows_share_no_frame(write_run, tmp_path):
    write_run("first", model="a")
    write_run("second", model="b")
    first, second = load_runs([tmp_path])
    first.sets["added"] = 1
    first.varied["added"] = 1
    assert "added" not in {*second.sets, *second.varied}


def test_runs_of_one_name_with_other_settings_are_other_models(write_run, tmp_path):
    write_run("flips", model="UNet", settings="a", started="2026-01-01T00:00:00+00:00")
    write_run("plain", model="UNet", settings="b")
    assert [(run.run, len(run.left_out)) for run in load_runs([tmp_path])] == [("flips", 0), ("plain", 0)]


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
        ({"schema": 3}, "schema 3"),
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
    assert [(run.run, len(run.left_out)) for run in load_runs([tmp_path])] == [("one", 0), ("again", 1)]


def test_a_table_says_in_what_older_runs_differ(write_run, tmp_path):
    def notes():
        return [note for note in build_table(load_runs([tmp_path])).footnotes if "left out, " in note]

    made = {
        "model": "UNet",
        "seed": 2,
        "task_config": {"card": {"licence": "CC0"}, **layout(count=400, window={"low": 0})},
        "model_info": {"checkpoint": "beef"},
        "config": {"trainer": {"precision": "32-true"}},
        "provenance": {"versions": {"medimg-eval": "2"}},
    }
    write_run("new", **made)
    for day, seed in ((8, 0), (9, 1)):
        write_run(f"seed{seed}", **made | {"seed": seed, "started": f"2026-01-0{day}"})
    assert notes() == [
        "Organs, UNet: an older run is left out, seed1 (with seed=1, now 2).",
        "Organs, UNet: an older run is left out, seed0 (with seed=0, now 2).",
    ]
    older = {"model_info": {"checkpoint": "f00d", "code": "1"}, "provenance": {"versions": {"medimg-eval": "1"}}}
    write_run("weights", **made | older | {"started": "2026-02-01"})
    trial = {"data_fingerprint": "5", "task_config": layout(count=5, window={"low": 0})}
    write_run("trial", **made | trial | {"started": "2026-02-02"})
    trial, weights, *_ = notes()
    assert trial.endswith("left out, trial (with other data of 1 cases, now 1; task.layout.count=5, now 400).")
    assert weights.endswith(
        "weights (with version=1, now 2; model.checkpoint=f00d, now beef; model.code=1, now unset)."
    )
    assert len(notes()) == 3


def test_nothing_is_said_of_what_an_older_manifest_does_not_hold(write_run, tmp_path):
    write_run("new", model="UNet", seed=0, model_info={"checkpoint": "beef"})
    for day in (1, 2):
        write_run(f"old{day}", model="UNet", started=f"2026-01-0{day}")
    (note,) = [note for note in build_table(load_runs([tmp_path])).footnotes if "left out, " in note]
    assert note == "Organs, UNet: 2 older runs are left out, old2 and old1 (of the same settings and data)."

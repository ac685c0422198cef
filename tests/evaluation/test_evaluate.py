"""From a task and a model to a finished run: what is asked, what is asked again, what is not."""

import hashlib
import json
import math
import re
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from answering import Mute, Thresholds

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.identity import file_digest, files_digest
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.comparison.model_comparison import compare
from tests.conftest import AFFINE, ellipsoids
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


def candidate(wrapper=Thresholds, name="Thresholds", **config):
    return ModelSpec(name, wrapper, config, load=lambda: wrapper(**config))


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)


def asked(log):
    return log.read_text().split() if log.exists() else []


def scores(folder):
    return pd.read_parquet(folder / "scores.parquet")


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_a_run_holds_everything_its_numbers_rest_on(write_dataset, settings):
    folder = evaluate(ellipsoids(write_dataset(4)), candidate(levels=[50, 150]), settings)
    check_rows("ellipsoids", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert (manifest["cases"], manifest["predicted"], manifest["failed_cases"]) == (4, 4, 0)
    assert manifest["resampled"] == "patients"
    assert {"torch", "lightning", "numpy"} <= manifest["provenance"]["versions"].keys()
    assert manifest["started"] <= manifest["ended"]
    assert sorted(path.name for path in (folder / "predictions").iterdir()) == [f"case0{i}.nii.gz" for i in range(4)]
    frame = scores(folder)
    assert list(frame["case"].unique()) == [f"case0{index}" for index in range(4)]
    assert (frame[frame["metric"] == "dice"]["value"] == 1).all()
    assert [row["metric"] for row in summary(folder)["metrics"]] == ["dice", "hd95", "nsd@1"]
    (run,) = load_runs([folder])
    assert run.finished


def test_files_of_very_many_cases_are_fanned_out_and_both_layouts_are_read(write_dataset, settings, monkeypatch):
    """A run that began with few cases goes on under the threshold that it now exceeds; scores are the same."""
    root = write_dataset(4)
    whole = evaluate(ellipsoids(root), candidate(levels=[50, 150]), replace(settings, run=settings.runs / "one"))
    monkeypatch.setattr("medimg_eval.codecs.base.MANY_FILES", 2)
    grown = replace(settings, run=settings.runs / "grown")
    evaluate(ellipsoids(root), candidate(levels=[50, 150]), replace(grown, limit=2))
    folder = evaluate(ellipsoids(root), candidate(levels=[50, 150]), grown)
    files = sorted(path.relative_to(folder / "predictions").as_posix() for path in folder.rglob("case0*.nii.gz"))
    parts = [hashlib.sha256(f"case0{index}".encode()).hexdigest()[:2] for index in (2, 3)]
    assert sorted(files) == sorted(
        ["case00.nii.gz", "case01.nii.gz", *(f"{part}/case0{2 + at}.nii.gz" for at, part in enumerate(parts))]
    )
    pd.testing.assert_frame_equal(scores(folder).drop(columns="run"), scores(whole).drop(columns="run"))
    (folder / "predictions" / parts[0] / ".123.b.nii.gz").write_text("half")
    evaluate(ellipsoids(root), candidate(levels=[50, 150]), grown)
    assert not list(folder.rglob(".123*")), "what a kill left half-written is swept away there, too"


def test_the_same_command_again_asks_nothing(write_dataset, settings, tmp_path):
    root, log = write_dataset(3), tmp_path / "log"
    for _ in range(2):
        evaluate(ellipsoids(root), candidate(log=str(log)), settings)
    assert asked(log) == ["case00", "case01", "case02"]


def test_a_failed_case_counts_at_its_worst_and_is_asked_again_next_time(write_dataset, settings, tmp_path):
    root, log = write_dataset(3), tmp_path / "log"
    model = candidate(log=str(log), fails_on=["case01"])
    folder = evaluate(ellipsoids(root), model, settings)
    frame = scores(folder)
    failed = frame[frame["case"] == "case01"]
    assert set(failed["status"]) == {"failed"}
    assert (failed[failed["metric"] == "dice"]["value"] == 0).all()
    (failure,) = summary(folder)["failures"]
    message = failure.pop("message")
    assert failure == {"case": "case01", "stage": "answer"}
    assert re.fullmatch(r"RuntimeError: no answer to case01 \(answering\.py:\d+ in segment\)", message)
    model.load = lambda: Thresholds(log=str(log))  # mended, under the same settings
    del model.__dict__["model"]
    assert evaluate(ellipsoids(root), model, settings) == folder
    assert asked(log) == ["case00", "case01", "case02", "case01"]
    assert (scores(folder)["status"] == "present").all()
    assert summary(folder)["failures"] == []


def test_in_a_batch_that_fails_only_the_culprit_fails(write_dataset, settings):
    settings.batch_size = 3
    folder = evaluate(ellipsoids(write_dataset(5)), candidate(fails_on=["case01"]), settings)
    check_rows("ellipsoids/failed", folder)
    assert [failure["case"] for failure in summary(folder)["failures"]] == ["case01"]


def test_every_kind_of_failure_is_named_and_the_rest_is_scored(write_dataset, settings):
    root = write_dataset(5)
    (root / "images" / "case00.nii.gz").write_bytes(b"")
    (root / "labels" / "case01.nii.gz").write_bytes(b"")
    folder = evaluate(ellipsoids(root), candidate(fails_on=["case02"]), settings)
    failures = {failure["case"]: failure for failure in summary(folder)["failures"]}
    assert {case: failure["stage"] for case, failure in failures.items()} == {
        "case00": "read",
        "case01": "check",
        "case02": "answer",
    }
    assert "images/case00.nii.gz" in failures["case00"]["message"]
    assert "labels/case01.nii.gz" in failures["case01"]["message"]
    frame = scores(folder)
    assert frame[frame["case"] == "case00"]["value"].notna().all()
    assert frame[frame["case"] == "case01"]["value"].isna().all()  # no truth, no judgement
    assert (frame[frame["case"].isin(["case03", "case04"])]["status"] == "present").all()


def test_a_model_that_answers_too_few_fails_its_cases(write_dataset, settings):
    class Short(Thresholds):
        def segment(self, prompts):
            return []

    folder = evaluate(ellipsoids(write_dataset(2)), candidate(Short), settings)
    assert {f["message"] for f in summary(folder)["failures"]} == {"the model gave 0 answers to 1 prompts"}


def test_predictions_an_earlier_start_left_unscored_are_scored_without_the_model(write_dataset, settings, tmp_path):
    root, log = write_dataset(3), tmp_path / "log"
    folder = evaluate(ellipsoids(root), candidate(log=str(log)), settings)
    before = scores(folder)
    shard = folder / "scores-0.jsonl"
    shard.write_text(shard.read_text().splitlines(keepends=True)[0])
    (folder / "scores.parquet").unlink()
    evaluate(ellipsoids(root), candidate(log=str(log)), settings)
    assert len(asked(log)) == 3
    pd.testing.assert_frame_equal(scores(folder), before)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda root, model: None, True),
        (lambda root, model: root.rename(root.with_name("moved")), True),
        (lambda root, model: (root / "images/case00.nii.gz").write_bytes(b"other"), False),
        (lambda root, model: (root / "labels/case00.nii.gz").unlink(), False),
        (lambda root, model: model.config.update(levels=[20, 150]), False),
    ],
)
def test_a_run_goes_on_when_nothing_that_matters_has_changed(write_dataset, settings, change, same):
    root = write_dataset(2)
    first = evaluate(ellipsoids(root), candidate(levels=[50, 150]), settings)
    again = candidate(levels=[50, 150])
    change(root, again)
    moved = root if root.exists() else root.with_name("moved")
    assert (evaluate(ellipsoids(moved), again, settings) == first) is same


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"metrics": ["iou"]}, True),
        ({"layout": {"root": "elsewhere"}}, True),
        ({"labels": {1: "core"}}, False),
        ({"layout": {"root": "x", "modality": "CT"}}, False),
    ],
)
def test_a_tasks_settings_identify_a_run_unless_they_only_judge(write_dataset, settings, change, same):
    config = {"name": "ellipsoids", "labels": {1: "core", 2: "rim"}, "layout": {"root": "x"}}
    task = ellipsoids(write_dataset(1), config=config)
    first = evaluate(task, candidate(), settings)
    assert (evaluate(replace(task, config=config | change), candidate(), settings) == first) is same


@pytest.mark.parametrize(("key", "value"), [("config", {"trainer": {"precision": "bf16-mixed"}}), ("seed", 1)])
def test_precision_and_seed_identify_a_run(write_dataset, settings, key, value):
    task = ellipsoids(write_dataset(1))
    first = evaluate(task, candidate(), settings)
    setattr(settings, key, value)
    assert evaluate(task, candidate(), settings) != first


def test_a_changed_voxel_in_the_middle_of_an_uncompressed_file_is_seen(tmp_path):
    content = bytearray(4 << 20)
    (tmp_path / "a.nii").write_bytes(content)
    before = file_digest(tmp_path / "a.nii")
    content[2 << 20] = 1
    (tmp_path / "a.nii").write_bytes(content)
    assert file_digest(tmp_path / "a.nii") != before


def test_what_a_run_was_made_with_stays_recorded_when_nothing_more_is_asked(write_dataset, settings):
    root = write_dataset(2)
    folder = evaluate(ellipsoids(root), candidate(), settings)
    before = json.loads((folder / "manifest.json").read_text())
    settings.batch_size, settings.overrides = 2, ["batch_size=2"]
    evaluate(ellipsoids(root), candidate(), settings)
    after = json.loads((folder / "manifest.json").read_text())
    for key in ("provenance", "config", "overrides", "started", "resumed"):
        assert after[key] == before[key]


def test_a_rescoring_that_is_cut_off_leaves_no_finished_run_of_other_numbers(write_dataset, settings, monkeypatch):
    root = write_dataset(2)
    folder = evaluate(ellipsoids(root), candidate(), settings)
    before = json.loads((folder / "manifest.json").read_text())
    monkeypatch.setattr("medimg_eval.evaluation.score.Scorer", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rescore(folder, ellipsoids(root, surface="voxel"))
    after = json.loads((folder / "manifest.json").read_text())
    assert after["status"] == "failed"
    assert after["signature"] == before["signature"]


def test_an_answer_that_is_no_array_fails_its_case_alone(write_dataset, settings):
    class Odd(Thresholds):
        def segment(self, prompts):
            answers = super().segment(prompts)
            return [
                object() if prompt.case_id == "case01" else answer
                for prompt, answer in zip(prompts, answers, strict=True)
            ]

    folder = evaluate(ellipsoids(write_dataset(3)), candidate(Odd), settings)
    assert [(f["case"], f["stage"]) for f in summary(folder)["failures"]] == [("case01", "check")]


def test_the_summary_is_json_even_where_an_interval_is_undefined(write_dataset, settings):
    folder = evaluate(ellipsoids(write_dataset(1)), candidate(), settings)
    text = (folder / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["metrics"][0]["low"] is None


def test_the_content_of_a_models_files_identifies_it_not_their_path(tmp_path):
    class WithWeights(Thresholds):
        file_arguments = ("log",)

    (tmp_path / "a").write_text("weights")
    (tmp_path / "b").write_text("weights")
    (tmp_path / "c").write_text("other weights")
    a, b, c = (candidate(WithWeights, log=str(tmp_path / name)).identity for name in "abc")
    assert a == b
    assert a != c


def test_a_changed_wrapper_is_another_model(tmp_path, monkeypatch):
    import importlib
    import sys

    monkeypatch.syspath_prepend(tmp_path)
    source = "class Mine:\n    def segment(self, prompts):\n        return {}\n"
    identities = []
    for answer in ("1", "2", "1"):
        (tmp_path / "mine.py").write_text(source.format(answer))
        sys.modules.pop("mine", None)
        importlib.invalidate_caches()
        identities.append(ModelSpec("Mine", importlib.import_module("mine").Mine, {}, load=object).identity)
    assert identities[0] == identities[2] != identities[1]


def test_a_class_of_no_base_of_ours_will_do(write_dataset, settings):
    class Duck:
        def segment(self, prompts):
            return Thresholds().segment(prompts)

    folder = evaluate(ellipsoids(write_dataset(1)), candidate(Duck), settings)
    assert (scores(folder)["status"] == "present").all()


def test_a_retry_that_cannot_start_takes_nothing_away(write_dataset, settings):
    root = write_dataset(3)
    model = candidate(fails_on=["case01"])
    folder = evaluate(ellipsoids(root), model, settings)
    before = (folder / "manifest.json").read_text()

    def broken():
        raise ImportError("no such library")

    model.load = broken
    del model.__dict__["model"]
    with pytest.raises(ImportError):
        evaluate(ellipsoids(root), model, settings)
    assert (folder / "manifest.json").read_text() == before


def test_files_behind_linked_folders_count(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "case").symlink_to(tmp_path / "far")
    digests = []
    for text in ("one", "two"):
        (tmp_path / "far" / "seg.nii").write_text(text)
        digests.append(files_digest([tmp_path / "root"]))
    assert digests[0] != digests[1]


def test_rescoring_takes_other_metrics_and_loads_no_model(write_dataset, settings):
    root = write_dataset(3)
    folder = evaluate(ellipsoids(root), candidate(levels=[80, 150]), settings)
    rescore(folder, ellipsoids(root, metrics=["iou", "assd"], surface="voxel"), workers=0)
    frame = scores(folder)
    assert set(frame["metric"]) == {"iou", "assd"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "surface=voxel" in manifest["signature"]
    assert manifest["status"] == "finished"


def test_rescoring_refuses_data_that_have_changed_and_runs_that_are_not_done(write_dataset, settings):
    root = write_dataset(3)
    folder = evaluate(ellipsoids(root), candidate(), settings)
    with pytest.raises(UserError, match="the data of task 'ellipsoids' have changed"):
        rescore(folder, ellipsoids(write_dataset(4)))
    write_dataset(3)
    shard = folder / "predictions-0.jsonl"
    shard.write_text(shard.read_text().splitlines(keepends=True)[0])
    with pytest.raises(UserError, match="1 of 3 cases were asked; resume it with test"):
        rescore(folder, ellipsoids(root))


def test_a_model_without_the_capability_is_refused_before_it_is_loaded(write_dataset):
    with pytest.raises(
        UsageError, match=r"task 'ellipsoids' asks models to segment, which model 'Mute' \(Mute\) cannot"
    ):
        refuse_incapable(ellipsoids(write_dataset(1)), candidate(Mute, "Mute"))


def test_a_model_that_is_not_ready_leaves_no_run(write_dataset, settings):
    class Unready(Thresholds):
        def check_ready(self):
            raise UserError("no weights")

    with pytest.raises(UserError, match="no weights"):
        evaluate(ellipsoids(write_dataset(1)), candidate(Unready), settings)
    assert not list(settings.runs.rglob("manifest.json"))


def test_without_patient_ids_cases_are_what_is_resampled(write_dataset, settings):
    root = write_dataset(2)
    (root / "cases.csv").write_text("case\ncase00\ncase01\n")
    folder = evaluate(ellipsoids(root), candidate(), settings)
    assert json.loads((folder / "manifest.json").read_text())["resampled"] == "cases"
    assert list(scores(folder)["patient"].unique()) == ["case00", "case01"]


def test_a_missed_label_is_worth_the_diagonal_and_an_absent_one_nothing(write_dataset, settings):
    folder = evaluate(ellipsoids(write_dataset(1)), candidate(levels=[50, 9999]), settings)
    frame = scores(folder).set_index(["label", "metric"])
    assert frame.loc[("rim", "hd95"), "value"] == pytest.approx(math.hypot(16, 14, 20))
    assert frame.loc[("rim", "dice"), "status"] == "missed"


def test_repairs_and_doubts_of_the_readers_are_listed_and_counted(write_dataset, settings):
    root = write_dataset(3)
    path = root / "images" / "case01.nii.gz"
    pixels = nib.load(path).get_fdata(dtype=np.float32)
    pixels[0, 0, 0] = np.nan
    nib.save(nib.Nifti1Image(pixels, AFFINE), path)
    task = ellipsoids(root)
    found = [
        replace(case, images=(replace(case.images[0], options={"nan": 0.0}),)) for case in task.layout.cases("test")
    ]
    layout = type("Fixed", (), {"cases": lambda self, split: found})()
    folder = evaluate(replace(task, layout=layout), candidate(), settings)
    assert summary(folder)["read_with"] == {"case01": ["1 NaN or infinite voxels were set to 0"]}
    (note,) = json.loads((folder / "manifest.json").read_text())["notes"]
    assert note == "1 of 3 cases were read with a repair or doubt: see summary.json"


def test_a_first_look_is_said_to_be_partial_and_goes_on_to_the_whole_task(write_dataset, settings, tmp_path):
    root, log = write_dataset(5), tmp_path / "log"
    model = candidate(log=str(log))

    def look(limit=None, only=()):
        settings.limit, settings.only = limit, only
        folder = evaluate(ellipsoids(root), model, settings)
        (run,) = load_runs([folder])
        assert run.finished
        assert run.cases == run.predicted == scores(folder)["case"].nunique()
        notes = [note for note in build_table([run]).footnotes if "partial" in note]
        assert len(notes) == bool(run.partial)
        return folder, run

    folder, run = look(limit=2)
    assert asked(log) == ["case00", "case01"]
    assert run.partial == "the first 2 of 5 cases"
    assert any("Thresholds: a partial run, the first 2 of 5 cases" in note for note in build_table([run]).footnotes)
    again = rescore(folder, ellipsoids(root, metrics=["dice"]))
    assert any("the first 2 of 5 cases" in note for note in again.footnotes)
    same, run = look(only=["case03"])
    assert same == folder
    assert run.partial == "only case00, case01, case03 of 5 cases"
    same, run = look(limit=4)
    assert run.partial == "the first 4 of 5 cases"
    same, run = look()
    assert (same, run.partial, run.cases) == (folder, "", 5)
    assert asked(log) == ["case00", "case01", "case03", "case02", "case04"]
    assert look(limit=1)[1].cases == 5  # what is there stays
    assert len(asked(log)) == 5


def test_a_partial_run_is_compared_on_the_cases_that_both_have_and_that_is_said(write_dataset, settings):
    root = write_dataset(5)
    whole = evaluate(ellipsoids(root), candidate(), settings)
    settings.limit = 3
    part = evaluate(ellipsoids(root), candidate(name="Other", levels=[40, 150]), settings)
    (sheet,) = compare(load_runs([whole, part]), "dice").sheets
    notes = sheet.content.footnotes
    assert any("Other: a partial run, the first 3 of 5 cases" in note for note in notes), notes
    assert set(sheet.numbers["n"]) == {3}


@pytest.mark.parametrize(
    ("limit", "only", "message"),
    [
        (0, (), "expected limit to be a whole number of at least 1, got 0"),
        (True, (), "expected limit to be a whole number of at least 1, got True"),
        (None, ("",), "has no case ''"),
        (None, ["case7"], "task 'ellipsoids' has no case 'case7'; the nearest of 4 are case"),
    ],
)
def test_a_first_look_at_nothing_is_refused_before_anything_is_asked(write_dataset, settings, limit, only, message):
    settings.limit, settings.only = limit, only
    with pytest.raises(UsageError, match=message):
        evaluate(ellipsoids(write_dataset(4)), candidate(), settings)
    assert not settings.runs.exists()

"""Stages of a run: what each leaves behind, what is scored again and what is not, and folders of schema 1."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
from answering import Thresholds

from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings, read_conditions
from medimg_eval.instantiate import build_task
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.comparison.model_comparison import compare
from medimg_eval.tasks import QuestionTask, SegmentationTask
from tests.conftest import ellipsoids
from tests.helpers.asking import Quiz, Says
from tests.helpers.running import evaluate, rescore

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

SCHEMA_1 = Path(__file__).parents[1] / "helpers" / "schema_1"

JUDGE = {
    "right": {
        "prompt": {"user": "{question} Said: {output}\nVerdict?"},
        "pattern": "([01])",
        "values": {"0": 0, "1": 1},
    }
}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", trainer=trainer, score_workers=0)


def spec(made, name="M", **config):
    return ModelSpec(name, type(made), config, lambda: made)


def quiz(number=3, **more):
    more = {"metrics": ["accuracy"], "template": {"user": "{question}\n{options}"}, **more}
    return QuestionTask(name="quiz", layout=Quiz(number=number), splits={"test": "test"}, **more)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def rows(folder):
    return pd.read_parquet(folder / "scores.parquet")


def test_each_stage_says_how_far_it_has_come(settings):
    folder = evaluate(quiz(), spec(Says(fails_on=["q1"])), settings)
    stages = manifest(folder)["stages"]
    assert {name: (one["status"], one["done"], one["of"], one["failed"]) for name, one in stages.items()} == {
        "predict": ("finished", 2, 3, 1),
        "evidence": ("finished", 2, 3, 0),
        "score": ("finished", 2, 2, 0),
    }
    assert all(one["started"] <= one["ended"] for one in stages.values())


def test_a_judge_that_refuses_leaves_predictions_finished_and_evidence_failed(settings):
    class Refuses(Says):
        def generate(self, prompts, decoding):
            raise UserError("the key is refused")

    folder = evaluate(quiz(judge=JUDGE), spec(Says()), settings)
    before = (folder / "scores.parquet").read_bytes()
    judged = replace(settings, judge=spec(Refuses(), "J"))
    with pytest.raises(UserError, match="the key is refused"):
        evaluate(quiz(judge=JUDGE, metrics=["accuracy", "judged@right"]), spec(Says()), judged)
    said = manifest(folder)
    assert {name: one["status"] for name, one in said["stages"].items()} == {
        "predict": "finished",
        "evidence": "failed",
        "score": "finished",
    }
    assert (folder / "scores.parquet").read_bytes() == before
    (run,) = load_runs([folder])
    assert (run.status, run.metrics) == ("finished", ("accuracy",))
    assert any("0.333" in str(line) or "33" in str(line) for line in build_table([run]).frame()["mean"])


def test_a_metric_that_is_added_is_the_only_one_computed_and_the_other_rows_stay_byte_equal(
    write_dataset, settings, monkeypatch
):
    root, asked = write_dataset(3), []
    score = SegmentationTask.score

    def counted(self, case, prediction, metrics=None):
        asked.append(metrics)
        return score(self, case, prediction, metrics)

    folder = evaluate(ellipsoids(root, metrics=["dice", "hd95"]), spec(Thresholds(levels=[80, 150])), settings)
    before = rows(folder)
    monkeypatch.setattr(SegmentationTask, "score", counted)
    table = rescore(folder, ellipsoids(root, metrics=["dice", "hd95", "iou"]), workers=0)
    assert asked == [["iou"]] * 3
    after = rows(folder)
    pd.testing.assert_frame_equal(after[after["metric"] != "iou"].reset_index(drop=True), before)
    assert manifest(folder)["metrics"] == ["dice", "hd95", "iou"]
    assert set(manifest(folder)["signatures"]) == {"dice", "hd95", "iou"}
    assert not [note for note in table.footnotes if note.startswith("Warning")]
    asked.clear()
    rescore(
        folder, ellipsoids(root, metrics=["hd95"]), workers=0
    )  # a column that is dropped takes nothing else with it
    assert asked == []
    pd.testing.assert_frame_equal(
        rows(folder), before[before["metric"] == "hd95"].reset_index(drop=True), check_exact=True
    )


def test_a_setting_that_only_some_metrics_rest_on_makes_those_stale(write_dataset, settings, monkeypatch):
    root, asked = write_dataset(2), []
    score = SegmentationTask.score
    folder = evaluate(ellipsoids(root), spec(Thresholds()), settings)
    monkeypatch.setattr(
        SegmentationTask,
        "score",
        lambda self, case, stored, *some: asked.append(some) or score(self, case, stored, *some),
    )
    rescore(folder, ellipsoids(root, surface="voxel"), workers=0)
    assert asked == [(["hd95", "nsd@1"],)] * 2


def test_a_judge_added_by_scoring_asks_once_per_answer_and_a_changed_pattern_asks_nobody(settings):
    folder = evaluate(quiz(), spec(Says(default="B")), settings)
    before = rows(folder)
    judge = Says(default="0 then 1")
    rescore(folder, quiz(metrics=["accuracy", "judged@right"], judge=JUDGE), judge=spec(judge, "J"))
    assert len(judge.prompts) == 3
    after = rows(folder)
    assert after[after["metric"] == "judged@right"]["value"].tolist() == [1, 1, 1]
    pd.testing.assert_frame_equal(after[after["metric"] == "accuracy"].reset_index(drop=True), before)
    other = {"right": {**JUDGE["right"], "pattern": "([01]) then"}}
    rescore(folder, quiz(metrics=["accuracy", "judged@right"], judge=other), judge=spec(judge, "J"))
    assert len(judge.prompts) == 3
    after = rows(folder)
    assert after[after["metric"] == "judged@right"]["value"].tolist() == [0, 0, 0]


# Folders of schema 1


@pytest.fixture
def former(tmp_path, monkeypatch):
    """A stored run of schema 1, as it was written, with its data."""
    folder = tmp_path / "former"
    shutil.copytree(SCHEMA_1, folder)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return folder / "run"


def stated(folder, **changes):
    config = manifest(folder)["task_config"]
    return build_task({**config, "layout": {**config["layout"], "root": str(folder.parent)}, **changes})


def test_a_run_of_schema_1_is_tabulated_and_compared_as_it_is(former):
    (run,) = load_runs([former])
    assert dict(zip(build_table([run]).frame()["metric"], build_table([run]).frame()["mean"], strict=True)) == {
        "accuracy": pytest.approx(1 / 3),
        "judged@right": pytest.approx(1 / 2),
    }
    assert compare([run, replace(run, model="Other")], "accuracy").sheets
    assert manifest(former)["schema"] == 1


def test_scoring_upgrades_a_run_of_schema_1_in_place_and_its_numbers_stay(former):
    before = rows(former)
    rescore(former, stated(former))
    assert manifest(former)["schema"] == 2
    after = rows(former)
    pd.testing.assert_frame_equal(after[before.columns.tolist()], before)
    assert (after["repeat"] == 0).all()
    assert (after["condition"] == "").all()
    assert manifest(former)["judge"]["id"] == "Judge-1b237b8a"  # its verdicts are not asked for again


def test_a_resumed_test_upgrades_a_run_of_schema_1_and_asks_only_what_has_no_answer(former, settings, monkeypatch):
    shard = former / "predictions-0.jsonl"
    shard.write_text("".join(shard.read_text().splitlines(keepends=True)[:2]))
    model = Says(default="A")
    made = spec(model, "Says")
    made.__dict__["identity"] = {"_target_": "Says", "code": None}
    monkeypatch.setattr("medimg_eval.evaluation.plan.digest", lambda *_: manifest(former)["run"])
    evaluate(stated(former), made, replace(settings, run=former))
    assert [prompt.case_id for prompt in model.prompts] == ["q2"]
    assert manifest(former)["schema"] == 2
    assert rows(former)["value"].tolist() == [1, 1, 0, 0, 1]


def test_scores_of_schema_1_that_hold_are_not_computed_again(write_dataset, settings, monkeypatch):
    root = write_dataset(2)
    folder = evaluate(ellipsoids(root), spec(Thresholds()), settings)
    before, said = rows(folder), manifest(folder)
    said |= {"schema": 1, "scoring": "s1", "definitions": said["signatures"]}
    (folder / "manifest.json").write_text(
        json.dumps({key: said[key] for key in said if key not in ("stages", "signatures")})
    )
    lines = [json.loads(line) for line in (folder / "scores-0.jsonl").read_text().splitlines()]
    former = [{"case": one["case"], "scoring": "s1", "scores": one["scores"]} for one in lines]
    (folder / "scores-0.jsonl").write_text("".join(json.dumps(one) + "\n" for one in former))
    asked = []
    score = SegmentationTask.score
    monkeypatch.setattr(
        SegmentationTask,
        "score",
        lambda self, case, stored, *some: asked.append(some) or score(self, case, stored, *some),
    )
    rescore(folder, ellipsoids(root, metrics=["dice", "hd95", "nsd@1", "iou"]), workers=0)
    assert asked == [(["iou"],)] * 2
    after = rows(folder)
    pd.testing.assert_frame_equal(after[after["metric"] != "iou"].reset_index(drop=True), before)


# Repeats and conditions


def drawing(number=2, **more):
    return quiz(number, decoding={"temperature": 0.7}, **more)


class Draws(Says):
    """Says A, and keeps the seed of every call."""

    def generate(self, prompts, decoding):
        self.seeds = [*getattr(self, "seeds", []), *[decoding.seed] * len(prompts)]
        return super().generate(prompts, decoding)


def test_more_repeats_ask_only_themselves_with_seeds_of_their_own_and_n_is_cases(settings):
    model = Draws()
    once = evaluate(drawing(), spec(model), settings)
    assert model.seeds == [0, 0]
    often = evaluate(drawing(), spec(model), replace(settings, repeats=5))
    assert often == once
    assert model.seeds[2:] == [1, 1, 2, 2, 3, 3, 4, 4]
    frame = rows(often)
    assert frame["repeat"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert frame["case"].tolist() == ["q0", "q1"] * 5
    said = manifest(often)
    assert (said["cases"], said["predicted"], said["repeats"]) == (2, 2, 5)
    evaluate(drawing(), spec(model), settings)  # what is there stays
    assert (len(model.seeds), len(rows(often))) == (10, 10)


def test_a_repeat_may_hold_some_cases_only(settings):
    model = Draws()
    evaluate(drawing(3), spec(model), replace(settings, repeats=2, limit=1))
    folder = evaluate(drawing(3), spec(model), settings)
    frame = rows(folder)
    assert list(zip(frame["case"], frame["repeat"], strict=True)) == [("q0", 0), ("q1", 0), ("q2", 0), ("q0", 1)]
    assert len(model.prompts) == 4
    rescore(folder, drawing(3, metrics=["accuracy", "unanswered"]))
    assert len(rows(folder)) == 8


def test_repeats_of_a_greedy_model_are_refused_and_its_wrapper_may_say_that_it_draws(settings):
    with pytest.raises(UserError, match=r"decoding is greedy; set task.decoding.temperature above 0"):
        evaluate(quiz(), spec(Says()), replace(settings, repeats=2))

    class Draws(Says):
        deterministic = False

    assert len(rows(evaluate(quiz(2), spec(Draws()), replace(settings, repeats=2)))) == 4


def test_one_more_condition_asks_only_its_own_trials_and_shows_what_it_says(settings):
    model = Says()
    folder = evaluate(quiz(2), spec(model), replace(settings, conditions=read_conditions(["no_image"])))
    assert [len(prompt.images) for prompt in model.prompts] == [1, 1, 0, 0]
    more = read_conditions(["no_image", "grey", "noise-2"])
    assert evaluate(quiz(2), spec(model), replace(settings, conditions=more)) == folder
    later = [prompt.images[0].array for prompt in model.prompts[4:]]
    assert [len(prompt.images) for prompt in model.prompts[4:]] == [1, 1, 1, 1]
    assert [np.unique(array).tolist() for array in later[:2]] == [[128], [128]]
    assert rows(folder)["condition"].tolist() == [""] * 2 + ["no_image"] * 2 + ["grey"] * 2 + ["noise-2"] * 2
    assert manifest(folder)["conditions"]["noise-2"] == {"name": "noise", "severity": 2, "settings": {}}
    said = read_conditions([{"name": "noise", "severity": 2, "settings": {"a": 1}}])
    with pytest.raises(UserError, match=r"condition 'noise-2' was asked before with other settings"):
        evaluate(quiz(2), spec(model), replace(settings, conditions=said))
    with pytest.raises(UserError, match=r"task 'quiz' has no condition 'blurr'"):
        evaluate(quiz(2), spec(model), replace(settings, conditions=read_conditions(["blurr-1"])))


def test_masks_of_conditions_are_stored_and_scored_beside_each_other(write_dataset, settings):
    root = write_dataset(2)
    conditions = read_conditions(["blur-2"])
    folder = evaluate(ellipsoids(root), spec(Thresholds()), replace(settings, conditions=conditions))
    names = sorted(path.name for path in (folder / "predictions").iterdir())
    assert names == ["case00.nii.gz", "case00~blur-2.nii.gz", "case01.nii.gz", "case01~blur-2.nii.gz"]
    dice = rows(folder).query("metric == 'dice' and label == 'rim'").groupby("condition")["value"].mean()
    assert dice[""] == 1
    assert dice["blur-2"] < 1


@pytest.mark.parametrize("named", [["blur-x"], [{"severity": 2}], ["grey", "grey"]])
def test_conditions_that_name_nothing_are_refused(named):
    with pytest.raises(UserError, match="expected a condition|names 'grey' twice"):
        read_conditions(named)

"""Fusion of unlike parts of a case, of which some may be missing."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import medimg_eval as me
from medimg_eval.case import Case, Condition, Prompt
from medimg_eval.data.layouts import Table
from medimg_eval.data.layouts.table import PartImage
from medimg_eval.data.layouts.timelines import VisitImage
from medimg_eval.data.targets import ClassName
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.fitting.embedding import CaseFeatures
from medimg_eval.image import PART
from medimg_eval.imaging import ImageFile
from medimg_eval.models import FusionProbe
from medimg_eval.models.heads import Targets, make_head
from medimg_eval.store import FeatureStore
from medimg_eval.tasks import ClassificationTask

CLASSES = ["well", "ill"]


class Corner:
    """An encoder of two numbers: the mean of each half of a picture."""

    def embed(self, prompts):
        return [np.array([p.image.array[:, :3].mean(), p.image.array[:, 3:].mean()]) for p in prompts]


@pytest.fixture
def eyes(tmp_path, monkeypatch):
    """Thirty eyes with two scans each, a fundus picture of most, age, and a value that some lack."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = []
    for at in range(30):
        ill = at % 2
        for scan in range(2):
            Pillow.fromarray(rng.integers(0, 60, (6, 6)).astype(np.uint8) + 40 * ill).save(f"{at}_{scan}.png")
        if at % 5:
            Pillow.fromarray(rng.integers(0, 90, (6, 6)).astype(np.uint8)).save(f"f{at}.png")
        split = ("train", "test", "val")[at % 3]
        said = {"age": f"{50 + at}", "bcva": "" if at % 4 == 1 else f"{rng.normal() + ill:.3f}"}
        rows += [
            {"id": f"e{at}", "oct": f"{at}_{scan}.png", "fundus": f"f{at}.png" if at % 5 else "", **said}
            | {"patient": f"p{at}", "split": split, "state": CLASSES[ill]}
            for scan in range(2)
        ]
    with Path("t.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def task_of(**layout):
    made = Table(
        root=".",
        table="t.csv",
        id="id",
        image={"oct": "oct", "fundus": "fundus"},
        values=["age", "bcva"],
        patient="patient",
        split="split",
        target=ClassName("state", CLASSES),
        **layout,
    )
    splits = {"fit": "train", "validate": "val", "test": "test"}
    return ClassificationTask(
        name="eyes", layout=made, classes=CLASSES, exclusive=True, metrics=["auroc@ill"], splits=splits
    )


def shown(case):
    return [image.read() for image in case.images]


def test_parts_of_a_case_are_told_apart_and_may_be_missing(eyes):
    cases = {case.id: case for part in ("fit", "test", "validate") for case in task_of().cases(part)}
    assert [image.attributes[PART] for image in shown(cases["e1"])] == ["oct", "fundus", "values", "oct"]
    assert [image.attributes[PART] for image in shown(cases["e5"])] == ["oct", "values", "oct"]
    (values,) = [image for image in shown(cases["e1"]) if image.attributes[PART] == "values"]
    assert values.array.shape == (1, 1, 2)
    assert values.array[0, 0, 0] == 51
    assert np.isnan(values.array[0, 0, 1])


def test_conditions_take_parts_away(eyes):
    task = task_of()
    held = {case.id: case for case in task.cases("test")}
    assert {"without_oct", "only_fundus", "missing_values", "blur"} <= task.conditions()

    def left(name, severity=0):
        condition = Condition(name, severity)
        return {
            name_of_case: [
                image.attributes[PART] for image in shown(task.under(case, condition, DrawKey(0, name_of_case)))
            ]
            for name_of_case, case in held.items()
        }

    assert left("without_oct")["e1"] == ["fundus", "values"]
    assert left("only_oct")["e10"] == ["oct", "oct"]
    some = left("missing_fundus", 50)
    assert some == left("missing_fundus", 50)
    gone = {case for case, parts in some.items() if "fundus" not in parts}
    assert {"e10", "e25"} < gone < set(held)
    assert gone <= {case for case, parts in left("missing_fundus", 90).items() if "fundus" not in parts}
    assert all("fundus" not in parts for parts in left("missing_fundus", 100).values())


def test_values_are_blanked_cell_by_cell(eyes):
    task = task_of()
    assert "blank_values" in task.conditions()
    assert "blank_oct" not in task.conditions()

    def cells(severity):
        return np.stack(
            [
                image.array[0, 0]
                for case in task.cases("fit") + task.cases("test")
                for image in shown(task.under(case, Condition("blank_values", severity), DrawKey(0, case.id)))
                if image.attributes[PART] == "values"
            ]
        )

    whole, half = cells(1e-9), cells(50)
    known = ~np.isnan(whole)
    assert 0.2 < np.isnan(half[known]).mean() < 0.8
    kept = ~np.isnan(half)
    np.testing.assert_array_equal(half[kept], whole[kept])
    assert (np.isnan(half) <= np.isnan(cells(90))).all()
    assert np.isnan(cells(100)).all()


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_a_fit_is_tested_with_parts_missing(eyes, fusion):
    settings = {"fusion": fusion, "encoder": Corner(), "head": {"name": "logistic", "C": 1}}
    fitted = me.fit(task_of(), FusionProbe(**settings), run="fit")
    run = me.test(
        task_of(),
        FusionProbe(**settings, checkpoint=str(fitted)),
        conditions=["without_fundus", "only_values", "only_fundus"],
        run="run",
    )
    assert run.scores[run.scores.condition == ""].case.nunique() == 10
    failed = run.scores[run.scores.status == "failed"].groupby("condition").case.unique()
    assert {name: sorted(cases) for name, cases in failed.items()} == {"only_fundus": ["e10", "e25"]}


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_parts_stay_apart_where_features_come_from_the_store(eyes, fusion):
    encoder = {"_target_": "medimg_eval.models.ColourStatistics"}
    config = {"_target_": "medimg_eval.models.FusionProbe", "fusion": fusion, "head": {"name": "logistic", "C": 1}}
    answers = []
    for number, of_parts in enumerate((encoder, {"oct": encoder, "fundus": encoder})):  # the second is never stored
        fitted = me.fit(task_of(), {**config, "encoder": of_parts}, run=f"fit{number}", num_workers=0)
        head = json.loads((fitted / "checkpoints/head.json").read_text())
        assert head["settings"]["blocks"] == {"fundus": 27, "oct": 27, "values": 2}
        model = {**config, "encoder": of_parts, "checkpoint": str(fitted)}
        run = me.test(task_of(), model, run=f"run{number}", num_workers=0, score_workers=0)
        answers.append([run.predictions.first(case.id)["probabilities"]["ill"] for case in task_of().cases("test")])
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
    with pytest.raises(UserError, match="has features of the lengths 2, 27; .* model=fusion_probe"):
        me.fit(task_of(), {"_target_": "medimg_eval.models.Probe", "encoder": encoder}, run="plain", num_workers=0)


def test_visits_stay_in_order_where_features_come_from_the_store(eyes):
    part = PartImage(ImageFile(Path("1_0.png")), "oct")
    images = tuple(VisitImage(part, visit, visit - 2.0) for visit in (1, 2))
    features = CaseFeatures(FeatureStore.create(eyes / "store", {}, 3), {"a": ("k", "l")})
    shown_images = features.shown(Case("a", images, None)).images
    assert [(image.part, image.visit, image.when) for image in shown_images] == [("oct", 1, -1.0), ("oct", 2, 0.0)]
    assert [image.image.image.keys for image in shown_images] == [("k",), ("l",)]


def test_one_part_alone_is_what_fusing_has_to_beat(eyes):
    settings = {"encoder": {"oct": Corner()}, "parts": ["oct"]}
    fitted = me.fit(task_of(), FusionProbe(**settings), run="fit")
    probe = FusionProbe(**settings, checkpoint=str(fitted))
    case = task_of().cases("test")[0]
    prompt = Prompt(case.id, tuple(shown(case)), {1: "well", 2: "ill"}, options={"1": "well", "2": "ill"})
    (answer,) = probe.classify([prompt])
    assert sum(answer.values()) == pytest.approx(1)
    assert probe.head.blocks == {"oct": 2}
    with pytest.raises(CaseError, match="has no image of oct"):
        probe.classify([Prompt("x", tuple(i for i in prompt.images if i.attributes[PART] != "oct"), prompt.labels)])
    with pytest.raises(UserError, match="names no encoder of 'fundus'"):
        me.fit(task_of(), FusionProbe(encoder={"oct": Corner()}), run="other")
    with pytest.raises(UsageError, match="fusion"):
        FusionProbe(fusion="middle")


def example():
    rng = np.random.default_rng(1)
    ill = rng.integers(0, 2, 60)
    features = rng.normal(size=(60, 5)) + ill[:, None] * [1, 0, 0.5, 0, 0]
    features[rng.random(60) < 0.3, :2] = np.nan
    features[3:9, 4] = np.nan
    targets = Targets("exclusive", ("well", "ill"), np.eye(2)[ill])
    return features, targets, ill


def oracle(features, ill):
    """scikit-learn's fit on filled features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=1, tol=1e-8, max_iter=1000)).fit(features, ill)


def test_early_fusion_is_one_head_on_filled_features_and_what_is_there():
    features, targets, ill = example()
    head = make_head({"name": "early_fusion", "of": {"name": "logistic", "C": 1}, "blocks": {"a": 2, "b": 3}})
    head.fit(features, targets)
    filled = np.where(np.isnan(features), np.nanmean(features, 0), features)
    whole = np.column_stack([filled, ~np.isnan(features[:, 0])])  # of `a` alone whole parts are missing
    expected = oracle(whole, ill).predict_proba(whole)
    assert head.predict(features) == pytest.approx(expected, abs=2e-4)


def test_late_fusion_averages_heads_over_the_parts_there_are(tmp_path):
    features, targets, ill = example()
    head = make_head({"name": "late_fusion", "of": {"name": "logistic", "C": 1}, "blocks": {"a": 2, "b": 3}})
    head.fit(features, targets)
    has = ~np.isnan(features[:, 0])
    filled = np.where(np.isnan(features), np.nanmean(features, 0), features)
    one = oracle(filled[has, :2], ill[has]).predict_proba(filled[:, :2])
    other = oracle(filled[:, 2:], ill).predict_proba(filled[:, 2:])
    expected = np.where(has[:, None], (one + other) / 2, other)
    assert head.predict(features) == pytest.approx(expected, abs=2e-4)
    head.save(tmp_path)
    from medimg_eval.models.heads import load_head

    assert load_head(tmp_path).predict(features) == pytest.approx(head.predict(features))
    with pytest.raises(UserError, match="1 cases have no part"):
        head.predict(np.full((1, 5), np.nan))
    with pytest.raises(UserError, match="expected 5 of parts a, b"):
        head.predict(np.zeros((1, 4)))


def test_risks_of_parts_are_put_on_one_scale():
    features, _, _ = example()
    rng = np.random.default_rng(2)
    times = np.exp(-np.nan_to_num(features[:, 0]) + 0.1 * rng.normal(size=60))
    targets = Targets("survival", ("time", "event"), np.column_stack([times, np.ones(60)]))
    head = make_head({"name": "late_fusion", "of": "cox", "blocks": {"a": 2, "b": 3}}).fit(features, targets)
    risks = head.predict(features)[:, 0]
    has = ~np.isnan(features[:, 0])
    assert np.corrcoef(risks[has], np.log(times[has]))[0, 1] < -0.6
    assert abs(risks[has].mean() - risks[~has].mean()) < 0.6


def test_a_part_that_nobody_has_is_named():
    features, targets, _ = example()
    features[:, :2] = np.nan
    for name in ("early_fusion", "late_fusion"):
        with pytest.raises(UserError, match="no case to fit on has a"):
            make_head({"name": name, "blocks": {"a": 2, "b": 3}}).fit(features, targets)
    with pytest.raises(UserError, match="learns bags"):
        make_head({"name": "early_fusion", "of": "abmil", "blocks": {"a": 5}}).fit(np.zeros((60, 5)), targets)

"""Slides with and without tumour: written once, embedded, judged by class and by where a model looked, and drawn."""

from dataclasses import replace

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Case, Findings, LocatedFindings, Mask, Outline
from medimg_eval.codecs import TilePlaces, attention_of, attention_record, places_of
from medimg_eval.commands.console import _without_value
from medimg_eval.data.records import Given
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models import Classifier
from medimg_eval.phantoms import tumour_slides
from medimg_eval.phantoms.cohort import cohort
from medimg_eval.tasks import ClassificationTask

CLASSES = list(tumour_slides.CLASSES)
METRICS = ["auroc@tumour", "pointing_game", "map_energy", "map_iou@0.5", "map_auprc"]
QUIET = {"debug": True, "num_workers": 0, "logger": {}}


def test_half_of_each_split_holds_a_tumour():
    members = [tumour_slides._Half(**vars(one)) for one in cohort("slide", 96, 0)]
    for split, count in {"fit": 48, "validate": 12, "test": 36}.items():
        healthy = [one.healthy for one in members if one.split == split]
        assert (len(healthy), sum(healthy)) == (count, count / 2)


class Answer(dict):
    """Probabilities with a map beside them."""


class Looks(Classifier):
    """Says tumour, and looks at the upper left quarter of a slide of 1,024 pixels."""

    def classify(self, prompts):
        answers = [Answer({"no tumour": 0.1, "tumour": 0.9}) for _ in prompts]
        for one in answers:
            one.attention = np.array([0.7, 0.3, 0.0], np.float32)
            one.places = TilePlaces(np.array([[256, 256], [256, 512], [512, 256]]), 256.0)
        return answers


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    layout = tumour_slides.TumourSlides(root=str(tmp_path_factory.mktemp("slides")), count=2)
    return ClassificationTask(name="slides", layout=layout, classes=CLASSES, exclusive=True, metrics=METRICS)


def test_slides_are_embedded_with_the_places_of_their_tiles(task, tmp_path):
    first, second = task.cases("test")
    assert first.patient == second.patient
    assert first.target.read().values == {"no tumour": 0, "tumour": 1}
    found = me.embed(task, "colours_encoder", parts="test", tiles={"size": 128}, out=tmp_path, limit=1, num_workers=0)
    image = found.shown(first).images[0].read()
    assert image.shape[2] == 27
    assert image.places.edge == 128
    np.testing.assert_array_equal(image.places.corners, found.coordinates(first.id))
    store = found.store.path
    assert replace(found.shown(first).images[0], files=(store / "gone.tiff",)).read().places is None


def test_a_run_keeps_where_it_looked_and_the_figure_shows_it(task, tmp_path):
    run = me.test(task, Looks(), runs=tmp_path / "runs", **QUIET)
    record = run.predictions[task.cases("test")[0].id]
    np.testing.assert_allclose(attention_of(record), [0.7, 0.3, 0.0], atol=1e-3)
    assert places_of(record).edge == 256
    scores = run.scores[run.scores.metric == "map_energy"]
    assert set(scores.label) == {"tumour"}
    assert scores.value.between(0.05, 1).all()

    drawn = me.figure("attention", [run.folder], cases=[task.cases("test")[1].id], out=tmp_path / "figures")
    ((stem, figure),) = drawn.items()
    assert stem.startswith("attention-slides-")
    assert figure.frame.weight.tolist() == pytest.approx([0.7, 0.3, 0.0], abs=1e-3)
    assert "Outlines are those of the reference" in figure.caption
    assert (tmp_path / "figures" / f"{stem}.png").stat().st_size > 10_000
    with pytest.raises(UserError, match="has no weights of tiles of case 'nobody'"):
        me.figure("attention", [run.folder], cases=["nobody"])
    with pytest.raises(UserError, match="cases= is for kind=attention"):
        me.figure("roc", [run.folder], cases=["nobody"])


class InMemory:
    files = ()

    def __init__(self, labels):
        self.labels = labels

    def read(self):
        return Mask(self.labels, np.eye(4))


def located(labels):
    outlines = {"tumour": Outline(InMemory(np.array(labels)), 1, 10)}
    return Case("c", (), Given(LocatedFindings({"no tumour": 0.0, "tumour": 1.0}, outlines), ()))


def answer(weights=(1.0, 0.0)):
    made = Answer({"no tumour": 0.3, "tumour": 0.7})
    made.attention, made.places = np.array(weights), TilePlaces(np.array([[0, 0], [0, 10]]), 10.0)
    return made


def test_maps_are_judged_beside_classes_and_failures_are_worth_nothing(task):
    judged = replace(task, metrics=["auroc@tumour", "pointing_game", "map_energy"])
    case = located([[1, 2]])

    def said(prediction):
        found = judged.score(case, prediction)
        return {one.metric: (one.label, one.value, one.status) for one in found if "map" in one.metric}

    assert said(answer()) == {"map_energy": ("tumour", 1.0, "present")}
    assert said(answer((1.0, 3.0))) == {"map_energy": ("tumour", 0.25, "present")}
    kept = judged.accept(case, answer((2.0, 2.0))).as_record()
    assert said(kept) == {"map_energy": ("tumour", 0.5, "present")}  # a run's own record
    label, value, status = said({"no tumour": 0.3, "tumour": 0.7})["map_energy"]
    assert (label, status) == ("tumour", "no map")
    assert np.isnan(value)
    worst = {one.metric: one.value for one in judged.worst(case) if one.metric != "probability"}
    assert worst["map_energy"] == worst["pointing_game"] == 0
    healthy = Case("h", (), Given(Findings({"no tumour": 1.0, "tumour": 0.0}), ()))
    assert not [one for one in judged.score(healthy, answer()) if "map" in one.metric]
    with pytest.raises(CaseError, match="'c': the map of 'tumour' cannot be judged: the outline is empty"):
        judged.score(located([[2, 2]]), answer())


def test_a_model_without_maps_may_lack_their_metrics_and_no_others():
    told = {"metrics": ["probability_error", "map_iou@0.5"], "baseline": False}
    has, lacks = {"metric": "probability_error", "mean": 0.1}, {"metric": "map_iou@0.5", "mean": None}
    assert _without_value(told, {"metrics": [has, lacks]}) == []
    assert _without_value(told, {"metrics": [has | {"mean": None}, lacks]}) == told["metrics"]
    assert _without_value(told | {"metrics": ["probability_error", "dice"]}, {"metrics": [has]}) == ["dice"]


def test_places_come_back_as_they_were_and_damaged_ones_are_refused():
    places = TilePlaces(np.array([[0, 70_000], [3, 4]]), 448.5)
    record = attention_record(np.array([0.25, 0.75]), places)
    again = places_of(record)
    assert again.corners.tolist() == places.corners.tolist()
    assert again.edge == 448.5
    assert places_of(attention_record(np.array([1.0]))) is None
    with pytest.raises(ValueError, match="cannot be inflated"):
        places_of({"places": {"edge": 1, "corners": "AAAA"}})

"""A family of somebody else's, with a target of its own, is run, checked and shown without a change in medimg_eval."""

import json
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import lightning.pytorch as pl
import numpy as np
import pytest

from medimg_eval.api import runs as api
from medimg_eval.case import Case, Image, Mask, Points, Prompt
from medimg_eval.codecs import Codec
from medimg_eval.commands.check import check_task
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.registry import Requirement
from medimg_eval.panels import Extracted, Panel
from medimg_eval.results import load_runs
from medimg_eval.tasks import Task
from medimg_eval.viewer import CaseView
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


@dataclass(frozen=True)
class Hour:
    """What a clock shows: a target that the framework does not know."""

    hour: int


@dataclass(frozen=True)
class Face:
    """An image, or the hour of it, in one file of JSON."""

    path: object
    what: str

    @property
    def files(self):
        return (self.path,)

    def geometry(self):
        return Image(np.zeros((1, 4, 6), np.uint8), np.eye(4), units="pixel").geometry

    def read(self):
        hour = json.loads(self.path.read_text())["hour"]
        if self.what == "hour":
            return Hour(hour)
        return Image(np.arange(24, dtype=np.uint8).reshape(1, 4, 6) + hour, np.eye(4), units="pixel")


@dataclass(frozen=True)
class Clocks:
    """A layout that knows its cases and nothing else."""

    root: object

    def cases(self, split):
        files = sorted(self.root.glob("*.json"))
        return [Case(file.stem, (Face(file, "image"),), Face(file, "hour")) for file in files]


class Hours(Codec):
    """An hour as a record."""

    form = "hour"
    heavy = False

    def write(self, folder, trial, value):
        return {"hour": value}

    def read(self, stored):
        return stored["hour"]


@dataclass(frozen=True, kw_only=True)
class ClockTask(Task):
    """Clocks to be read."""

    metrics: tuple = ("absolute_error",)
    capability: ClassVar[str] = "read_clock"
    codec: ClassVar[Codec] = Hours()
    noun: ClassVar[str] = "clocks"
    output: ClassVar[str] = "hours"
    judges: ClassVar[frozenset] = frozenset({"measurement"})

    def prompt(self, case, images):
        return Prompt(case.id, images)

    def accept(self, case, answer, *, what="prediction"):
        hour = answer.hour if isinstance(answer, Hour) else answer
        if not 1 <= hour <= 12:
            raise CaseError(f"the {what} is {hour}, expected an hour from 1 to 12")
        return hour

    def score(self, case, prediction, metrics=None):
        hour = prediction["hour"] if isinstance(prediction, dict) else prediction
        return [LabelScore("hour", "absolute_error", abs(hour - case.target.read().hour), "present")]

    def worst(self, case):
        return [LabelScore("hour", "absolute_error", float("nan"), "failed")]

    def signature(self):
        return "hours of the face"

    def reference_lines(self, cases):
        return {"absolute_error": 3.0}

    def baselines(self):
        return {"Noon": {"_target_": f"{__name__}.Noon"}}

    def check_case(self, case):
        found = super().check_case(case)
        hour = case.target.read().hour
        return found._replace(doubts=[*found.doubts, *(["an hour after noon"] if hour > 12 else [])])

    def panels(self, case):
        tip = Points(np.array([[1.0, 2.0]]), ("tip",))
        return [
            *(one for one in super().panels(case) if one.kind == "image"),
            Panel("overlay", "Hand", lambda: tip),
            Panel("text", "Hour", lambda: f"{case.target.read().hour} o'clock"),
        ]

    def answer_panels(self, case, prediction):
        hand = Points(np.array([[3.0, 4.0]]), ("tip",))
        return [
            Panel("extraction", "Hour", lambda: Extracted(str(prediction["hour"]), "as it was given")),
            Panel("overlay", "Hand", lambda: hand),
            Panel("alone", "Face", case.images[0].read),
        ]


class Noon:
    """Says twelve."""

    reads_images = False

    def read_clock(self, prompts):
        return [12 for _ in prompts]


@pytest.fixture
def task(tmp_path):
    for name, hour in (("a", 3), ("b", 9)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"hour": hour}))
    return ClockTask(name="clocks", layout=Clocks(tmp_path))


@pytest.fixture
def evaluated(task, tmp_path):
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False)
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    folder = evaluate(task, ModelSpec("Noon", Noon, {}, load=Noon), settings)
    (run,) = load_runs([folder])
    return run


def test_tables_and_cards_call_it_by_its_words(evaluated):
    manifest = json.loads((evaluated.folder / "manifest.json").read_text())
    assert (evaluated.noun, evaluated.output, evaluated.asks) == ("clocks", "hours", False)
    assert (manifest["chance"], manifest["split_source"]) == ({"absolute_error": 3.0}, {})
    assert sorted(evaluated.scores["value"]) == [3.0, 9.0]


def test_metrics_that_need_a_provider_are_refused_where_the_family_shows_none_anything(task):
    lacks = missing([Requirement("annotation", "reader"), Requirement("verdict", "judge", "polite")], {}, task)
    assert [lack.message for lack in lacks] == [
        "task 'clocks' shows nothing of its predictions to 'reader'",
        "task 'clocks' shows nothing of its predictions to 'judge'",
    ]
    with pytest.raises(UserError, match="shows nothing of its predictions to 'reader'"):
        refuse(lacks)


def test_its_panels_are_shown(task, evaluated, tmp_path):
    view = CaseView(task, {"Noon": evaluated})
    scene = view.scene("a", tmp_path / "shown")
    assert scene["problems"] == []
    assert [one["title"] for one in scene["pictures"]] == ["Image"]
    assert [mark["place"].tolist() for mark in scene["marks"]["truth"]] == [[1.0, 2.0]]
    assert [mark["place"].tolist() for mark in scene["marks"]["models"][0]] == [[3.0, 4.0]]
    assert [(one["title"], one["model"]) for one in scene["panels"]] == [("Face", 0)]
    texts = view.texts("a")
    assert texts["reference"] == "3 o'clock"
    assert (texts["answers"][0]["extracted"], texts["answers"][0]["rule"]) == ("12", "as it was given")
    assert view.labels == {}


def test_check_prints_what_it_finds(task, tmp_path, capsys):
    check_task(task, ["test"])
    assert capsys.readouterr().out == "test: 2 cases, no patient ids; 2 x (4, 6)\n"
    (tmp_path / "a.json").write_text(json.dumps({"hour": 13}))
    with pytest.raises(UserError, match="task 'clocks': 2 doubts, listed above"):
        check_task(task, ["test"])
    printed = capsys.readouterr().out
    assert "test: case a: the reference is 13, expected an hour from 1 to 12\n" in printed
    assert "test: case a: an hour after noon\n" in printed


def test_its_baselines_run_beside_a_model(task, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr("medimg_eval.evaluation.pipeline.test", lambda task, spec, settings: ran.append((task, spec)))
    api._run_baselines([task], None)
    assert [(made.name, spec.name, spec.baseline, spec.wrapper) for made, spec in ran] == [
        ("clocks", "Noon", True, Noon)
    ]


def test_it_is_trained_on_prompts_or_on_what_it_says(task):
    case = task.cases("test")[0]
    assert task.training_key(case)[0] == case.files
    shown, target = ClockTask.training_pair(task, case, {"image": case.images[0].read(), "target": _grid(case)})
    assert shown.array.shape == (1, 4, 6)
    assert target.labels.shape == (4, 6)


def _grid(case):
    return Mask(np.ones((4, 6), np.uint8), case.images[0].read().affine, units="pixel")

"""A task is a value: made alike it is equal, it never changes, and a run leaves it as it was."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest
from running import unchanged

from medimg_eval.case import Trial
from medimg_eval.evaluation.plan import task_identity
from medimg_eval.instantiate import build_task
from medimg_eval.tasks import QuestionTask, SegmentationTask, SynthesisTask
from tests.conftest import ellipsoids
from tests.helpers.catalogue import composed
from tests.helpers.config_files import config_names

SEGMENTATION = {"regions", "unscored", "surface", "empty", "tolerances", "ignore", "instances", "lesions", "units"}
OF_ALL = {
    "acceptance",
    "metrics",
    "facts",
    "title",
    "expected",
    "monitor",
    "card",
    "drawn_within",
    "leaks",
    "protocol",
    "published",
}


@pytest.mark.parametrize("name", config_names("task"))
def test_a_task_of_the_catalogue_is_a_value(name):
    task = build_task(composed(name))
    assert task == build_task(composed(name))
    copies = (pickle.loads(pickle.dumps(task)), replace(task))
    assert copies == (task, task)
    assert [task_identity(copy) for copy in copies] == [task_identity(task)] * 2
    for one in fields(task):
        with pytest.raises(FrozenInstanceError):
            setattr(task, one.name, getattr(task, one.name))
        with pytest.raises(AttributeError):
            delattr(task, one.name)
    assert task == copies[0]


def test_a_plain_subclass_keeps_the_fields_frozen_and_may_note_more():
    class Noted(SegmentationTask):
        metrics = ("dice",)

        def __post_init__(self):
            super().__post_init__()
            self.note = "made"

    task = Noted(name="own", layout=None, labels={1: "core"})
    assert (task.note, list(task.labels.values()), task.metrics[:2]) == ("made", ["core"], ["dice", "iou"])
    with pytest.raises(FrozenInstanceError):
        task.metrics = ["iou"]
    assert replace(task, metrics=["iou"]).note == "made"


def test_fields_say_what_they_decide_and_another_default_does_not_change_that():
    @dataclass(frozen=True, kw_only=True)
    class Own(SegmentationTask):
        surface: str = "voxel"
        shade: int = 0
        rule: str = field(default="", metadata={"decides": "scores"})

    assert SegmentationTask.scoring_fields() == OF_ALL | SEGMENTATION
    assert Own.scoring_fields() == OF_ALL | SEGMENTATION | {"rule"}
    assert QuestionTask.scoring_fields() == OF_ALL | {"extraction", "authors", "judge", "table", "language"}
    assert "splits" in SynthesisTask.scoring_fields()


class Meddling(SegmentationTask):
    """Changes what it is made of while it runs, in one of several ways."""

    def prompt(self, case, images):
        if self.title == "within":
            self.facts["seen"] = case.id
        elif self.title == "field":
            self.complete(metrics=list(self.metrics))
        else:
            self.last = Trial(case.id)
        return super().prompt(case, images)


@pytest.mark.parametrize("title", ["within", "field", "beside"])
def test_tests_see_a_task_that_a_run_changes(write_dataset, title):
    usual = ellipsoids(write_dataset(1))
    task = Meddling(name="own", layout=usual.layout, labels=usual.labels, title=title)
    (case,) = task.cases("test")
    with pytest.raises(AssertionError), unchanged(task):
        task.prompt(case, ())

"""Conditions on each kind of task: what a model is shown, what is right then, and commands on data that ship."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.case import Boxes, Case, Condition, Findings, FrameLabels, Geometry, Image, Points, Text
from medimg_eval.commands.cli import start
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import UsageError
from medimg_eval.imaging.video import Film
from medimg_eval.models import Detector, FrameLabeler, Synthesizer
from medimg_eval.question import Key, Question
from medimg_eval.tasks import (
    ClassificationTask,
    DetectionTask,
    QuestionTask,
    ReconstructionTask,
    ReportTask,
    SynthesisTask,
    WorkflowTask,
)
from tests.degradations.test_degradations import clip, picture, samples

KEY = DrawKey(0, "a")


@dataclass(frozen=True)
class Held:
    """Something that is there already, and a film's frames."""

    value: object
    files: tuple = ()

    def read(self):
        return self.value

    def geometry(self):
        return self.value.geometry if isinstance(self.value, Image) else Geometry((48, 48), np.eye(4), "pixel")

    def frames(self, places):
        yield from (self.value.array[:, place] for place in places)


def shown(task, image, target, name, severity=5, question=None):
    """The condition, the case as a model is shown it, and as it is judged."""
    case, condition = Case("a", (Held(image),), Held(target), question=question), Condition(name, severity)
    assert name in task.conditions()
    return task.under(case, condition, KEY), task.judged_under(case, condition, KEY)


def test_boxes_move_with_a_turned_radiograph():
    task = DetectionTask(name="nodules", layout=None, labels=["nodule"])
    boxes = Boxes(np.array([[10.0, 30, 14, 34]]), ("nodule",))
    case, judged = shown(task, picture(), boxes, "xray_rotation")
    assert not np.array_equal(case.images[0].read().array, picture().array)
    moved = judged.target.read().corners[0]
    # The middle of the box lies as far from that of the picture as before, 20 degrees further.
    before, after = (np.array([12.0, 32]) - 23.5), (moved[:2] + moved[2:]) / 2 - 23.5
    assert np.linalg.norm(after) == pytest.approx(np.linalg.norm(before), abs=0.5)
    cosine = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
    assert np.degrees(np.arccos(cosine)) == pytest.approx(20, abs=1)


def test_classes_and_reports_stay_as_they_are():
    for task, target in (
        (
            ClassificationTask(name="c", layout=None, classes=["edema"], metrics=["auroc@macro"]),
            Findings({"edema": 1.0}),
        ),
        (ReportTask(name="r", layout=None, metrics=["rouge_l"]), Text("No effusion.")),
    ):
        case, judged = shown(task, picture(), target, "xray_markers")
        assert not np.array_equal(case.images[0].read().array, picture().array)
        assert judged.target.read() is target


def test_a_question_is_judged_by_the_letter_that_its_text_has_now():
    task = QuestionTask(name="q", layout=None, metrics=["accuracy"])
    question = Question("Which?", "choice", {"A": "lung", "B": "liver", "C": "heart"})
    case, judged = shown(task, picture(), Key("B"), "option_order", question=question)
    letter = judged.target.read().value
    assert case.question.options == judged.question.options
    assert case.question.options[letter] == "liver"
    scores = task.score(judged, {"texts": [f"{letter}. liver"]})
    assert {score.metric: score.value for score in scores} == {"accuracy": 1}


def test_reconstructions_are_judged_beside_the_image_of_all_samples():
    task = ReconstructionTask(name="k", layout=None, metrics=["nmse"])
    case, judged = shown(task, samples(), picture(), "kspace_undersampling")
    (image,) = task.read_images(case)
    assert (image.array == 0).any(axis=-2).mean() > 0.5
    assert judged.target.read().array is not None
    assert "gaussian_noise" not in task.conditions()


def test_pictures_that_a_synthesis_is_shown_are_degraded():
    task = SynthesisTask(name="s", layout=None, shown=True)
    case, judged = shown(task, picture(), Text("after treatment"), "gaussian_blur")
    assert not np.array_equal(case.images[0].read().array, picture().array)
    assert judged.target.read().text == "after treatment"
    assert SynthesisTask(name="t", layout=None).conditions() == frozenset()


def film_task():
    return WorkflowTask(name="f", layout=SimpleNamespace(), phases=["cut", "sew"], metrics=["video_accuracy"])


def test_frames_of_films_are_degraded_as_they_are_asked_for():
    labels = FrameLabels(np.arange(24), {"phase": np.array(["cut", "sew"] * 12, object)})
    case, judged = shown(film_task(), clip(), labels, "endo_smoke")
    film = Film(case.images[0], [3, 4, 9], 1.0)
    frames = list(film)
    assert [frame.shape for frame in frames] == [(3, 48, 48)] * 3
    assert not np.array_equal(frames[0], clip().array[:, 3])
    again = list(Film(case.images[0], [9], 1.0))
    np.testing.assert_array_equal(again[0], frames[2])  # a frame's draw does not depend on which others are read
    assert judged.target.read() is labels
    case, _ = shown(film_task(), clip(), labels, "video_frame_rate", 1)
    seen = np.stack(list(Film(case.images[0], range(24), 1.0)), axis=1)
    np.testing.assert_array_equal(seen, clip().array[:, np.arange(24) // 2 * 2])


def test_films_that_are_read_as_features_have_no_pictures_to_degrade():
    features = SimpleNamespace(frames=lambda places: iter([np.zeros(4)]), files=())
    case = Case("a", (features,), Held(None))
    degraded = film_task().under(case, Condition("gaussian_noise", 1), KEY)
    with pytest.raises(UsageError, match="the film is read as features"):
        list(degraded.images[0].frames([0]))


class Still(FrameLabeler):
    """Says the first phase of each frame."""

    uses_torch = False

    def label_frames(self, prompts):
        """Yields an answer for each frame before it takes the next."""
        return [
            ({prompt.phases[0]: 1.0} | dict.fromkeys(prompt.presence, 0.0) for _ in prompt.film) for prompt in prompts
        ]


class Brightest(Detector):
    """Marks the brightest pixel."""

    uses_torch = False

    def detect(self, prompts):
        """Returns one point for each prompt."""
        places = [np.unravel_index(prompt.image.array[0].argmax(), prompt.image.array.shape[1:]) for prompt in prompts]
        return [Points(np.array([place], float), ("polyp",), scores=np.array([0.5])) for place in places]


class ShownAgain(Synthesizer):
    """Returns what it is shown."""

    uses_torch = False

    def synthesize(self, prompts, seeds):
        """Returns the first image of each prompt as its pictures."""
        return [[prompt.images[0].array for _ in own] for prompt, own in zip(prompts, seeds, strict=True)]


OWN = {
    "model/still": {"_target_": f"{__name__}.Still"},
    "model/brightest": {"_target_": f"{__name__}.Brightest"},
    "model/shown_again": {"_target_": f"{__name__}.ShownAgain"},
    "task/polyps": {
        "_target_": "medimg_eval.tasks.DetectionTask",
        "name": "polyps",
        "layout": {"_target_": "medimg_eval.phantoms.Phantom", "kind": "endoscopy"},
        "labels": ["polyp"],
        "matching": "camelyon16",
        "um_per_px": 100.0,
        "metrics": ["froc@1", "detection_recall"],
    },
    "task/follow_up": {
        "_target_": "medimg_eval.tasks.SynthesisTask",
        "name": "follow_up",
        "shown": True,
        "pictures": 1,
        "layout": {"_target_": "medimg_eval.phantoms.prompts.ChestPrompts", "count": 16},
        "splits": {"test": "test", "reference": "test"},
        "metrics": ["generation_failure_rate"],
    },
}
"""Tasks and models of one's own, as a user would write them, on data that this program draws."""


def write_own(folder):
    for name, config in OWN.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "task=phantom_ct model=gaussian_mixture degrade=[ct_low_dose,ct_thick_slices]",
        "task=phantom_findings model=class_frequency degrade=suite/xray task.metrics=[probability_error]",
        "task=phantom_reports model=normal_report degrade=[xray_rotation,xray_markers]",
        "task=phantom_multicoil model=zero_filled degrade=suite/kspace",
        "task=phantom_endoscopy model=gaussian_mixture degrade=[endo_smoke,endo_specular]",
        "task=phantom_pathology model=gaussian_mixture degrade=[he_stain,he_defocus]",
        "task=phantom_questions model=longest_option degrade=[xray_markers,typos,letter_case]",
        "task=phantom_films model=still degrade=[endo_smoke,video_freeze]",
        "task=polyps model=brightest degrade=[endo_specular,kvasir_x1_weak]",
        "task=follow_up model=shown_again degrade=[xray_rotation,gaussian_blur]",
    ],
)
def test_a_sweep_is_one_command(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    write_own(tmp_path / "conf")
    trainer = ["trainer.accelerator=cpu", "score_workers=0", "limit=1", "severities=[5]", "run=run"]
    assert start(["test", "--config-dir", "conf", *words.split(), *trainer]) == 0, capsys.readouterr().err
    assert start(["table", "runs=run", "by=condition"]) == 0
    assert "as published" in capsys.readouterr().out

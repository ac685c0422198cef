"""A vision-language model asked about frames: what it is shown and told, and how its replies are taken."""

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.imaging.video import Film, FilmPrompt
from medimg_eval.models import AskedFrames, VisionLanguageModel


class Replies(VisionLanguageModel):
    """Gives prepared replies, and keeps what it was asked."""

    uses_torch = False

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    def generate(self, prompts, decoding):
        self.asked += prompts
        return [self.replies.pop(0) for _ in prompts]


class Shades:
    """Frames that are told apart by how bright they are."""

    def frames(self, indices):
        for index in indices:
            yield np.full((3, 4, 4), index, np.uint8)


def film(frames, **classes):
    return FilmPrompt("f", (), film=Film(Shades(), tuple(range(frames)), 1.0, online=True), **classes)


def test_phases_are_chosen_by_letter_and_what_is_present_is_named():
    vlm = Replies("B", "hook,cut,liver; Grasper.", "The answer is not clear.", "none", "(A)", "clipper")
    prompt = film(3, phases=("first", "second"), presence=("grasper", "hook,cut,liver"))
    (labels,) = AskedFrames(vlm, window=2).label_frames([prompt])
    assert list(labels) == [
        {"first": 0, "second": 1, "grasper": 1, "hook,cut,liver": 1},
        {"grasper": 0, "hook,cut,liver": 0},  # of no phase
        {"first": 1, "second": 0, "grasper": 0, "hook,cut,liver": 0},
    ]
    assert "A. first\nB. second\n" in vlm.asked[0].text
    assert "grasper\nhook,cut,liver\n" in vlm.asked[1].text
    shown = [[int(image.array[0, 0, 0]) for image in asked.images] for asked in vlm.asked[::2]]
    assert shown == [[0], [0, 1], [1, 2]]
    assert vlm.asked[2].messages[0].parts[:2] == (0, 1)


def test_frames_between_have_the_answer_before_and_none_is_asked_ahead():
    vlm = Replies("A", "B")
    prompt = film(4, phases=("first", "second"))
    (labels,) = AskedFrames(vlm, every=3).label_frames([prompt])
    seen = []
    for number, answer in enumerate(labels):
        seen.append(max(answer, key=answer.get))
        assert prompt.film.given_out == number + 1
    assert seen == ["first", "first", "first", "second"]


def test_settings_and_tasks_that_cannot_be_asked():
    with pytest.raises(UsageError, match=r"model.window from 1 on, got 0"):
        AskedFrames(Replies(), window=0)
    with pytest.raises(UsageError, match=r"expected \{names\} where the classes are to stand"):
        AskedFrames(Replies(), presence="What is there?")
    many = film(1, phases=tuple(f"p{number}" for number in range(27)))
    with pytest.raises(UsageError, match="27 phases, expected at most 26"):
        next(AskedFrames(Replies("A")).label_frames([many])[0])

"""Tools that show stretches of the video of a question: which frames, how they are told, and what is kept."""

import numpy as np
import pytest
from agent_tools import Scripted

from medimg_eval.imaging import ClipBetween, FramesBetween, VideoPrompt
from medimg_eval.tools.journal import StepJournal
from tests.helpers.catalogue import task_of
from tests.helpers.samples import ALL
from tests.helpers.samples.videos import write_clip

assert ALL is not None


@pytest.fixture
def video(tmp_path):
    write_clip(tmp_path / "a.mp4")
    return VideoPrompt(np.zeros((3, 1, 2, 2), np.uint8), np.eye(4), units="pixel", path=tmp_path / "a.mp4")


def shades(images):
    """Numbers of frames, by how bright they are."""
    return [round(float(image.array.mean()) / 6) for image in images]


def test_frames_are_evenly_spaced_between_two_times(video):
    told, *images = FramesBetween()(10, 14, 3, image=video)
    assert told == "3 frames, at 10, 12, 14 s of 19.5 s"
    assert shades(images) == [20, 24, 28]
    assert [image.array.shape for image in images] == [(3, 32, 48)] * 3
    told, *images = FramesBetween(most=2, max_side=24)(0, 100, 50, image=video)
    assert told == "2 frames, at 0, 19.5 s of 19.5 s"
    assert images[0].array.shape == (3, 16, 24)
    told, *images = FramesBetween()(3, 3, 4, image=video)  # one frame is shown once
    assert shades(images) == [6]


def test_a_clip_is_shown_at_its_rate(video):
    told, *images = ClipBetween()(1, 3, 1.0, image=video)
    assert shades(images) == [2, 4, 6]
    told, *images = ClipBetween(most=4)(0, 19.5, 2.0, image=video)
    assert told.startswith("4 frames, at 0,")
    assert len(images) == 4


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 3), (30, 40)])
def test_times_that_the_video_does_not_have(video, start, end):
    with pytest.raises(ValueError, match=r"start at most 19.5 s"):
        FramesBetween()(start, end, image=video)
    with pytest.raises(ValueError, match="rate above 0"):
        ClipBetween()(0, 1, 0.0, image=video)
    with pytest.raises(LookupError, match="not about a video"):
        FramesBetween()(0, 1, image=None)


def test_a_session_looks_at_the_video_of_its_question(tmp_path):
    task = task_of("clinvideo_qa_agent", tmp_path)
    look = '<tool_call>{"name": "frames", "arguments": {"start": 10, "end": 14, "n": 3}}</tool_call>'
    late = '<tool_call>{"name": "clip", "arguments": {"start": 90, "end": 95}}</tool_call>'
    case = task.cases("test")[0]
    prompts = [task.prompt(case, task.read_images(case))]
    (reply,) = task.ask_recorded(Scripted([look, late, "Evidence: [10, 20]\nAnswer: B"]), prompts, StepJournal())
    first, second = (step for step in reply.trace if step["kind"] == "tool")
    assert first["result"] == "3 frames, at 10, 12, 14 s of 19.5 s"
    assert len(first["images"]) == 3
    assert "start at most 19.5 s" in second["result"]
    values = {row.metric: row.value for row in task.score(case, reply.as_record())}
    assert values["evidence_iou"] == values["grounded_accuracy@0.5"] == 1
    assert (values["evidence_seen"], values["frames_seen"], values["tool_calls"]) == (pytest.approx(0.4), 3, 2)

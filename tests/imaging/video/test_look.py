"""Looking again at a window of a video: which frames are shown, how many, and what is refused."""

import numpy as np
import pytest
from agent_tools import Scripted, ask
from asking import Quiz

from medimg_eval.errors import UserError
from medimg_eval.imaging.video import VideoLook, write_video
from medimg_eval.tasks import AgentQuestionTask

LOOK = '<tool_call>{"name": "look", "arguments": {"start_s": %s, "end_s": %s, "fps": %s}}</tool_call>'


@pytest.fixture
def videos(tmp_path):
    """Ten seconds at 5 frames a second, frame n of the value 5 n."""
    frames = (np.full((16, 16, 3), 5 * number, np.uint8) for number in range(50))
    write_video(tmp_path / "q0.mp4", frames, 5)
    return tmp_path


def values(images):
    return [round(float(image.array.mean()) / 5) for image in images]


def test_a_window_is_shown_at_the_rate_that_is_asked_for(videos):
    text, *images = VideoLook(str(videos))(2.0, 4.0, 2.0, case="q0")
    assert values(images) == [10, 12, 15, 17, 20]
    assert images[0].array.shape == (3, 16, 16)
    assert text == "Frames at 2.0, 2.4, 3.0, 3.4, 4.0 s of 9.8 s:"


def test_a_long_window_is_shown_coarser_and_one_beyond_the_end_is_cut(videos):
    _, *images = VideoLook(str(videos), most=3)(0.0, 100.0, 5.0, case="q0")
    assert values(images) == [0, 24, 49]
    _, *one = VideoLook(str(videos))(9.8, 9.8, case="q0")
    assert values(one) == [49]


@pytest.mark.parametrize(
    ("window", "case", "error"),
    [((4, 2, 1), "q0", ValueError), ((0, 1, 0), "q0", ValueError), ((0, float("nan"), 1), "q0", ValueError),
     ((20, 30, 1), "q0", ValueError), ((0, 1, 1), "q1", FileNotFoundError), ((0, 1, 1), "../q0", FileNotFoundError)],
)  # fmt: skip
def test_what_cannot_be_looked_at_is_refused(videos, window, case, error):
    with pytest.raises(error):
        VideoLook(str(videos))(*window, case=case)
    with pytest.raises(UserError, match="is not there"):
        VideoLook(str(videos / "none")).check_ready()


def test_a_model_looks_from_coarse_to_fine(videos):
    look = {"function": "medimg_eval.imaging.video.VideoLook", "root": str(videos), "most": 4}
    items = [{"id": "q0", "text": "When?", "kind": "open", "right": "2-4 s"}]
    task = AgentQuestionTask(name="video", layout=Quiz(items), tools={"look": look}, metrics=["evidence_coverage"])
    model = Scripted([LOOK % (0, 9.8, 1), LOOK % (2, 3, 5), LOOK % (50, 60, 1), "From 2 to 4 s."])
    (reply,) = ask(task, model)
    first, second, third = (step for step in reply.trace if step["kind"] == "tool")
    assert (len(first["images"]), len(second["images"]), third["error"]["type"]) == (4, 4, "tool")
    (case,) = task.cases("test")
    assert [row.value for row in task.score(case, reply)] == [1.0]
    assert list(task._tools["look"].parameters["properties"]) == ["start_s", "end_s", "fps"]

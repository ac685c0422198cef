"""Videos given whole to models of the Hugging Face hub."""

import json

import numpy as np
import pytest
import tiny_vlm
import torch

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError
from medimg_eval.imaging import VideoPrompt
from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
from medimg_eval.question import Decoding, Message

SHORT = Decoding(max_new_tokens=4)


def clip(seed=0, fps=2.0, frames=4):
    pixels = np.random.default_rng(seed).integers(0, 256, (3, frames, 56, 56), dtype=np.uint8)
    indices = tuple(range(0, 10 * frames, 10))
    times = tuple(number / fps for number in indices)
    return VideoPrompt(
        pixels, np.eye(4), units="pixel", indices=indices, times=times, fps=fps, frames_total=10 * frames
    )


def asked(video, name="q"):
    message = Message("user", (0, "What is seen?"))
    return Prompt(name, (video,), messages=(message,), options={"A": "liver", "B": "heart"})


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    folder = tiny_vlm.save(tmp_path_factory.mktemp("qwen"), "qwen2_5_vl")
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen2_5_vl"
    return HuggingFaceVLM(str(folder), dtype="float32")


def test_a_processor_of_videos_is_given_all_frames_with_their_times(qwen):
    qwen.check_ready()
    qwen.prepare({}, None)
    prompts = [asked(clip())]
    (_, texts), *_ = [(places, texts) for places, texts in qwen.reader.group_prompts(prompts)]
    inputs = qwen.reader.encode(texts, prompts, qwen.model)
    assert inputs["video_grid_thw"].tolist() == [[2, 4, 4]]  # four frames, two to a grid, 56 pixels in patches of 14
    # 4 of 40 frames at 2 a second are 0.2 a second: two frames span 10 s
    assert np.asarray(inputs["second_per_grid_ts"]).tolist() == pytest.approx([10.0])
    direct = qwen.reader.processor.video_processor(
        videos=[torch.from_numpy(clip().array).movedim(0, 1)], return_tensors="pt", do_sample_frames=False
    )
    assert torch.equal(inputs["pixel_values_videos"], direct["pixel_values_videos"])


@pytest.mark.slow
def test_answers_follow_what_is_shown_and_when_and_not_the_batch(qwen):
    prompts = [asked(clip(0), "a"), asked(clip(1), "b"), asked(clip(1, fps=25.0), "c")]
    alone = [qwen.choose([prompt])[0] for prompt in prompts]
    for together, single in zip(qwen.choose(prompts), alone, strict=True):
        assert together == pytest.approx(single, abs=1e-5)
    assert alone[0] != pytest.approx(alone[1], abs=1e-6)
    assert alone[1] != pytest.approx(alone[2], abs=1e-6)
    assert len(qwen.generate(prompts, SHORT)) == 3


@pytest.mark.slow
def test_who_takes_no_video_says_how_it_is_asked(tmp_path, qwen):
    llava = HuggingFaceVLM(str(tiny_vlm.save(tmp_path / "llava", "llava")), dtype="float32")
    with pytest.raises(CaseError):
        llava.generate([asked(clip())], SHORT)
    untimed = VideoPrompt(clip().array, np.eye(4), units="pixel", indices=(0, 1, 2, 3), frames_total=4)
    with pytest.raises(CaseError, match="states no times; set task.view=pictures"):
        qwen.generate([asked(untimed)], SHORT)

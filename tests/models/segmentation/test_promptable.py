"""Promptable models: one encoding a picture, one mask a guide; SAM with random weights."""

import numpy as np
import pytest
import torch

from medimg_eval.case import Guide, Image, Prompt
from medimg_eval.errors import UserError
from medimg_eval.models.segmentation.promptable import PromptableSegmenter, Sam
from medimg_eval.tasks.segmentation import Guides
from tests.conftest import AFFINE, LABELS, ellipsoid

NOWHERE = (np.zeros((0, 2)), np.zeros(0, dtype=bool))


class InTheBox(PromptableSegmenter):
    """Takes what is brighter than the middle of the window within each box; small boxes score higher."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.encoded = 0

    def encode(self, picture):
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        self.encoded += 1
        return picture[..., 0]

    def decode(self, encoded, guides):
        maps = []
        for guide in guides:
            low, high = guide.box.astype(int).reshape(2, 2)
            inside = np.zeros(encoded.shape, dtype=np.float32)
            inside[low[0] : high[0] + 1, low[1] : high[1] + 1] = 1 / np.prod(high - low + 1)
            maps.append(np.where(encoded > 127, inside, -1))
        return maps


def prompt(pixels, guides, labels=LABELS):
    return Prompt("case", (Image(pixels[None], AFFINE),), labels, guides)


def test_a_box_of_a_volume_is_used_on_each_slice_it_spans():
    mask = ellipsoid(0)
    model = InTheBox(window=[0, 1])
    (answer,) = model.segment([prompt((mask > 0).astype(np.float32), Guides().of("case", mask > 0, {1: "all"}))])
    np.testing.assert_array_equal(answer, mask > 0)
    assert model.encoded == (mask > 0).any((0, 1)).sum()


def test_boxes_of_slices_are_used_on_their_own_slice_and_the_higher_score_wins():
    mask = ellipsoid(0)
    guides = Guides(per="slice").of("case", mask, LABELS)
    (answer,) = InTheBox(window=[0, 1]).segment([prompt((mask > 0).astype(np.float32), guides)])
    assert (answer[mask == 1] == 1).all()  # the smaller box
    assert ((answer > 0) == (mask > 0)).all()


def test_a_picture_of_eight_bits_is_shown_as_it_is_and_other_values_by_percentiles():
    picture = np.zeros((10, 10), dtype=np.uint8)
    picture[2:5, 3:6] = 200
    guides = {1: (Guide(np.array([2.0, 3, 4, 5]), *NOWHERE),)}
    for pixels in (picture, picture.astype(np.float32) * 20 - 1000):
        (answer,) = InTheBox().segment([prompt(pixels, guides)])
        np.testing.assert_array_equal(answer, picture > 0)


def test_structures_that_are_not_there_are_not_found_and_a_task_without_guides_is_refused():
    (answer,) = InTheBox().segment([prompt(np.zeros((5, 5), np.uint8), {})])
    assert not answer.any()
    with pytest.raises(UserError, match="set task.guides, such as {kind: box}"):
        InTheBox().segment([prompt(np.zeros((5, 5), np.uint8), None)])


# SAM


@pytest.fixture(scope="module")
def sam(tmp_path_factory):
    """A tiny SAM with random weights, saved as the library saves one."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "output_channels": 8,
            "window_size": 2,
            "global_attn_indexes": [0],
            "mlp_dim": 8,
            "num_pos_feats": 4,
        },
        prompt_encoder_config={"hidden_size": 8, "image_size": 32, "patch_size": 8},
        mask_decoder_config={
            "hidden_size": 8,
            "mlp_dim": 8,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 8,
            "num_hidden_layers": 1,
        },
    )
    folder = tmp_path_factory.mktemp("sam")
    transformers.SamModel(config).eval().save_pretrained(folder)
    return folder


def loaded(folder, **settings):
    model = Sam(checkpoint=str(folder), **settings)
    model.prepare(LABELS, lambda: pytest.fail("no image is needed"))
    return model


def test_sam_gives_one_map_a_guide_whatever_their_kinds_and_number(sam):
    picture = np.random.default_rng(0).integers(0, 255, (20, 28, 3), dtype=np.uint8)
    points = np.array([[4.0, 5], [9, 9]]), np.array([True, False])
    guides = [
        Guide(np.array([2.0, 3, 12, 20]), *NOWHERE),
        Guide(None, *points),
        Guide(np.array([5.0, 5, 9, 9]), *NOWHERE),
        Guide(np.array([2.0, 3, 12, 20]), *points),
    ]
    together, one_by_one = loaded(sam), loaded(sam, at_once=1)
    encoded = together.encode(picture)
    maps = together.decode(encoded, guides)
    assert [one.shape for one in maps] == [(20, 28)] * 4
    for one, other in zip(maps, one_by_one.decode(encoded, guides), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert not np.allclose(maps[0], maps[2])


def test_sam_sees_and_answers_as_the_librarys_own_processor_would(sam):
    transformers = pytest.importorskip("transformers")
    picture = np.random.default_rng(0).integers(0, 255, (20, 32, 3), dtype=np.uint8)
    model = loaded(sam)
    # The long side fills the input already, so that resizing, which libraries round differently, does nothing.
    mean, deviation = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    seen = np.zeros((3, 32, 32), dtype=np.float32)
    seen[:, :20] = ((picture - mean) / deviation).transpose(2, 0, 1)
    direct = transformers.SamModel.from_pretrained(sam).eval()
    with torch.inference_mode():
        answer = direct(
            pixel_values=torch.from_numpy(seen)[None],
            input_boxes=torch.tensor([[[3.0, 2.0, 20.0, 12.0]]]),  # column, row, column, row
            multimask_output=False,
        ).pred_masks[0, :, 0]
    expected = torch.nn.functional.interpolate(answer[None], (32, 32), mode="bilinear")[0, 0, :20]
    (found,) = model.decode(model.encode(picture), [Guide(np.array([2.0, 3, 12, 20]), *NOWHERE)])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_sam_segments_a_volume_and_can_be_measured(sam):
    mask = ellipsoid(0)
    model = loaded(sam)
    (answer,) = model.segment([prompt(mask.astype(np.float32), Guides(per="slice").of("case", mask, LABELS))])
    assert answer.shape == mask.shape
    assert set(np.unique(answer)) <= {0, 1, 2}
    one = model.one_pass()
    assert one.shape == (1, 3, 32, 32)
    one.run(torch.zeros(one.shape))


def test_sam_is_loaded_late_and_says_what_it_lacks(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="expected either model.hub or model.checkpoint, got neither"):
        Sam()
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'medimg-eval\[vlm\]'"):
        loaded(tmp_path)


def test_a_folder_that_holds_no_sam_is_named(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match="cannot be loaded as a SAM model"):
        loaded(tmp_path)

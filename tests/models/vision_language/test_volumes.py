"""Volumes as 3-D vision-language models take them, beside their authors' own code."""

from functools import partial

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import VolumePrompt, orientation, read, reorient
from medimg_eval.models import M3DLaMed, VolumeModel
from medimg_eval.models.vision_language.volume_inputs import (
    INPUTS,
    RANGES,
    make_ct_chat_input,
    make_input_slices,
    make_m3d_input,
    make_merlin_input,
    make_radfm_input,
)
from medimg_eval.question import Decoding, Message
from tests.helpers.authors import load_functions, require_clone


def ct(folder, shape=(40, 36, 20), spacing=(1.1, 1.1, 4.0), code="LPS"):
    """A file of noise and a bright corner, and the prompt of it."""
    values = np.random.default_rng(3).integers(-1200, 1300, shape).astype(np.int16)
    values[:9, :7, :4] = 3000
    affine = np.diag([*spacing, 1.0])
    affine[:2, :2] *= -1 if code == "LPS" else 1
    path = folder / "valid_1_a_1.nii.gz"
    nib.save(nib.Nifti1Image(values, affine), path)
    image = read(path)
    upright = reorient(image, "RAS")
    before = orientation(image.affine)
    assert before == code
    return path, VolumePrompt(upright.array, upright.affine, "CT", orientation_before=before, intensity="HU")


def small(values):
    return VolumePrompt(
        np.asarray(values, np.float32)[None], np.diag([1.0, 1.0, 2.0, 1.0]), "CT", orientation_before="RAS"
    )


def test_radfm_copies_neighbours_in_as_many_slices_as_the_nearest_multiple_of_four(tmp_path):
    ramp = np.arange(2 * 2 * 6, dtype=float).reshape(2, 2, 6)
    array = make_radfm_input(small(ramp))
    assert array.shape == (3, 512, 512, 4)  # 6 slices lie between 4 and 8: the first is taken
    # left on the screen is the patient's right, the last of RAS+'s first axis; above is the front
    assert float(array[0, 0, 0, 0]) == pytest.approx(ramp[1, 1, 0] / 23)
    assert float(array[0, -1, -1, 0]) == pytest.approx(ramp[0, 0, 0] / 23)


def test_m3d_refuses_a_volume_of_one_value():
    with pytest.raises(CaseError, match="got one value everywhere"):
        make_m3d_input(small(np.full((6, 5, 4), 40.0)))


@pytest.mark.slow
def test_ct_chat_fills_the_outside_with_air_and_keeps_the_middle():
    array = make_ct_chat_input(small(np.full((6, 6, 6), 500.0)))
    assert array.shape == (1, 240, 480, 480)
    assert float(array.min()) == -1.0
    assert float(array[0, 120, 240, 240]) == 0.5
    assert int((array > 0).sum()) == 8 * 8 * 8  # 6 mm at 0.75 mm, 12 mm at 1.5 mm


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MONAI, about what it has not
@pytest.mark.parametrize("code", ["LPS", "RAS"])
def test_merlins_input_is_its_own_codes(tmp_path, code):
    pytest.importorskip("monai")
    clone = require_clone("StanfordMIMI/Merlin")
    import monai.transforms

    path, volume = ct(tmp_path, code=code)
    names = [
        "EnsureChannelFirstd",
        "Compose",
        "LoadImaged",
        "Orientationd",
        "ScaleIntensityRanged",
        "Spacingd",
        "SpatialPadd",
        "ToTensord",
        "CenterSpatialCropd",
    ]
    given = {name: getattr(monai.transforms, name) for name in names}
    authors = load_functions(clone / "merlin" / "data" / "monai_transforms.py", "ImageTransforms", **given)
    expected = authors["ImageTransforms"]({"image": str(path)})["image"].as_tensor()
    ours = make_merlin_input(volume)
    assert ours.shape == expected.shape
    assert float((ours - expected).abs().max()) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("code", ["LPS", "RAS"])
def test_ct_chats_input_is_its_authors(tmp_path, code):
    clone = require_clone("ibrahimethemhamamci/CT-CLIP")
    path, volume = ct(tmp_path, code=code)
    script = clone / "scripts" / "data_inference_nii.py"
    given = {
        "torch": torch,
        "np": np,
        "nib": nib,
        "F": torch.nn.functional,
        "Dataset": object,
        "pd": pd,
        "partial": partial,
    }
    authors = load_functions(script, "resize_array", "CTReportDatasetinfer", **given)
    row = {
        "VolumeName": path.name,
        "RescaleSlope": 1,
        "RescaleIntercept": 0,
        "XYSpacing": "[1.1, 1.1]",
        "ZSpacing": 4.0,
    }
    loader = authors["CTReportDatasetinfer"].nii_img_to_tensor
    expected = loader(None, str(path), pd.DataFrame([row]))
    ours = make_ct_chat_input(volume)
    assert ours.shape == expected.shape
    assert float((ours - expected).abs().max()) <= 1e-5


@pytest.mark.slow
def test_radfms_input_is_its_authors(tmp_path):
    clone = require_clone("chaoyi-wu/RadFM")
    stack = load_functions(clone / "src" / "Dataset" / "multi_dataset_test.py", "stack_images", torch=torch)[
        "stack_images"
    ]
    _, volume = ct(tmp_path)
    grey = reorient(volume, "LPS").array[0].transpose(1, 0, 2).astype(np.float32)
    grey = (grey - grey.min()) / (grey.max() - grey.min())
    expected = stack([np.stack([grey] * 3)])[0]
    ours = make_radfm_input(volume)
    assert ours.shape == expected.shape == (3, 512, 512, 20)
    assert float((ours - expected).abs().max()) <= 1e-5


@pytest.mark.slow
def test_m3ds_input_is_its_authors(tmp_path):
    pytest.importorskip("monai")
    clone = require_clone("BAAI-DCAI/M3D")
    import monai.transforms as mtf

    script = clone / "Data" / "process" / "m3d_cap_data_prepare.py"
    try:
        transform = load_functions(script, "transform", mtf=mtf)["transform"]
        _, volume = ct(tmp_path)
        grey = torch.as_tensor(reorient(volume, "LPS").array[0].transpose(2, 1, 0).astype(np.float32))[None]
        image = grey - grey.min()
        expected = transform(image / image.max())
    except (ValueError, NotImplementedError) as error:
        pytest.skip(f"this MONAI does not take the authors' mode bilinear for volumes: {error}")
    ours = make_m3d_input(volume)
    assert ours.shape == expected.shape == (1, 32, 256, 256)
    assert float((ours - torch.as_tensor(expected)).abs().max()) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("convention", sorted(INPUTS))
def test_slices_that_a_report_draws_are_the_values_of_the_array(tmp_path, convention):
    pytest.importorskip("monai")
    _, volume = ct(tmp_path)
    array, slices = INPUTS[convention](volume), make_input_slices(convention, volume)
    assert all(torch.equal(channel, array[0]) for channel in array)
    assert torch.equal(slices.flatten().sort().values, array[0].flatten().sort().values)
    low, high = RANGES[convention]
    assert low - 1e-6 <= float(slices.min()) <= float(slices.max()) <= high + 1e-6
    assert (
        slices.shape
        == {
            "m3d": (32, 256, 256),
            "radfm": (20, 512, 512),
            "ct_chat": (240, 480, 480),
            "merlin": (160, 224, 224),
        }[convention]
    )
    if convention == "merlin":  # the file's bright first voxels lie at the patient's right, front and feet
        middle = np.array(np.nonzero(slices.numpy() > 0.999)).mean(1)
        assert (middle < np.array(slices.shape) / 2).tolist() == [True, True, True]


class Mean(VolumeModel):
    convention = "radfm"

    def answer(self, volumes, prompt, decoding):
        return f"{volumes[0].shape} {prompt.text}"


def test_a_wrapper_of_volumes_is_a_few_lines_and_refuses_pictures():
    asked = Prompt("q", (small(np.arange(8).reshape(2, 2, 2)),), messages=(Message("user", (0, "Large?")),))
    assert Mean().generate([asked], Decoding()) == ["torch.Size([3, 512, 512, 4]) Large?"]
    picture = Image(np.zeros((3, 4, 4), np.uint8), np.eye(4), units="pixel")
    with pytest.raises(CaseError, match="case 'q' is invalid: expected volumes for Mean, got Image"):
        Mean().generate([Prompt("q", (picture,))], Decoding())
    assert set(INPUTS) == {"m3d", "radfm", "ct_chat", "merlin"}


class Checkpoint(torch.nn.Module):
    """Calls as the code of M3D-LaMed's checkpoint is called: image first, then ids."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def generate(self, image, ids, **options):
        assert image.shape == (1, 1, 32, 256, 256)
        assert options == {"max_new_tokens": 7, "do_sample": False}
        return ids


class Words:
    def __call__(self, text, return_tensors):
        self.text = text
        return {"input_ids": torch.ones(1, 3, dtype=torch.long)}

    def batch_decode(self, ids, skip_special_tokens):
        return [self.text.replace("<im_patch>", "*")]


@pytest.mark.slow
def test_m3d_lamed_puts_the_places_of_the_image_before_the_question():
    pytest.importorskip("monai")
    model = M3DLaMed("nowhere/there", trust_remote_code=True, image_tokens=4)
    model.model, model.tokenizer = Checkpoint(), Words()
    volume = small(np.arange(64).reshape(4, 4, 4))
    asked = Prompt("q", (volume,), messages=(Message("user", (0, "Large?")),))
    assert model.generate([asked], Decoding(max_new_tokens=7)) == ["****Large?"]
    with pytest.raises(UserError, match="trust_remote_code=true"):
        M3DLaMed("nowhere/there").prepare({}, None)

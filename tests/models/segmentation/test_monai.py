"""The wrappers: what they answer, what they load, what they refuse."""

import json

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.networks.nets import UNet
from monai.transforms import Flipd, Orientationd, ScaleIntensityRanged, Spacingd
from torch import nn

from medimg_eval.case import Image, Mask, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.baselines.gaussian_mixture import GaussianMixture
from medimg_eval.models.precomputed.masks import Precomputed
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.trust import trusting
from tests.conftest import AFFINE, LABELS, SHAPE, ellipsoid

# MONAI 1.6 on torch 2.15
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing")


def prompt(array, affine=AFFINE, labels=LABELS):
    return Prompt("case", (Image(np.asarray(array)[None], affine, "MR"),), labels)


def image_of(labels, levels=(0, 100, 200), noise=5.0):
    rng = np.random.default_rng(0)
    return np.choose(labels, levels) + np.where(labels > 0, rng.normal(0, noise, labels.shape), 0)


class Voxelwise(nn.Module):
    """Logits from grey levels alone, so that windows, flips and resampling must not change the answer."""

    def __init__(self, levels=(0.0, 100.0, 200.0)):
        super().__init__()
        self.levels = nn.Parameter(torch.tensor(levels))

    def forward(self, pixels):
        return -((pixels - self.levels.view(1, -1, 1, 1, 1)) ** 2)


class Deep(Voxelwise):
    """As networks with deep supervision answer."""

    def forward(self, pixels):
        full = super().forward(pixels)
        return [full, full[..., ::2, ::2, ::2]]


def tiny_unet():
    return UNet(spatial_dims=3, in_channels=1, out_channels=3, channels=(4, 8), strides=(2,))


# Gaussian mixture


def test_mixture_finds_tissues_by_brightness_and_gives_them_the_labels_in_order():
    labels = ellipsoid(0)
    dark = np.where(labels == 0, 20, image_of(labels)) + np.random.default_rng(1).normal(0, 2, SHAPE)
    (answer,) = GaussianMixture(threshold=-100).segment([prompt(dark)])
    np.testing.assert_array_equal(answer, labels)


def test_mixture_takes_an_empty_field_of_view_as_background():
    (answer,) = GaussianMixture().segment([prompt(np.zeros(SHAPE))])
    assert answer.shape == SHAPE
    assert not answer.any()


def test_mixture_answers_alike_twice_and_uses_the_tasks_integers():
    noisy = prompt(image_of(ellipsoid(0), (10, 60, 120)) + 1, labels={3: "a", 7: "b"})
    first, second = (GaussianMixture().segment([noisy])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert set(np.unique(first)) == {0, 3, 7}


# Precomputed


def test_precomputed_reads_the_file_of_the_case_with_its_own_affine(tmp_path):
    for name in ("case.nii.gz", "other.nii"):
        nib.save(nib.Nifti1Image(ellipsoid(0), AFFINE), tmp_path / name)
    asked = [Prompt(case, (), LABELS) for case in ("case", "other")]
    for mask in Precomputed(str(tmp_path)).segment(asked):
        np.testing.assert_array_equal(mask.labels, ellipsoid(0))
        np.testing.assert_allclose(mask.affine, AFFINE)


def test_precomputed_names_the_file_it_misses_and_the_one_that_looks_like_it(tmp_path):
    (tmp_path / "case_01_seg.nii.gz").touch()
    with pytest.raises(CaseError, match=r"case_01\.nii\.gz: no prediction for case 'case_01' \(there is 'case_01_seg"):
        Precomputed(str(tmp_path)).segment([Prompt("case_01", (), LABELS)])
    with pytest.raises(CaseError, match=r"no prediction for case 'case_02'$"):  # the file is another case's
        Precomputed(str(tmp_path), pattern="{case}_seg.nii.gz").segment([Prompt("case_02", (), LABELS)])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"root": "/no/such"}, "no such folder; there is no folder .*; set model.root"),
        ({"pattern": "x.nii"}, r"expected \{case\}"),
    ],
)
def test_precomputed_refuses_settings_that_cannot_work(tmp_path, settings, words):
    with pytest.raises(UserError, match=words):
        Precomputed(**({"root": str(tmp_path)} | settings))


# MONAI: inference


@pytest.mark.parametrize("network", [Voxelwise, Deep])
@pytest.mark.parametrize("roi_size", [(4, 4, 4), (16, 14, 10), (32, 32, 32)])
@pytest.mark.parametrize("flips", [(), (0, 2)])
def test_windows_and_flips_do_not_move_the_answer(network, roi_size, flips):
    labels = ellipsoid(0)
    model = MonaiSegmenter(network=network(), roi_size=roi_size, flips=flips)
    with torch.inference_mode():
        (answer,) = model.segment([prompt(image_of(labels))])
    np.testing.assert_array_equal(answer, labels)


def test_what_preprocessing_does_to_the_grid_is_undone():
    labels = ellipsoid(0)
    preprocess = [
        ScaleIntensityRanged("image", 0, 200, 0, 2),
        Orientationd(["image", "label"], "RAS", allow_missing_keys=True, labels=None),
        Flipd(["image", "label"], 1, allow_missing_keys=True),
    ]
    model = MonaiSegmenter(network=Voxelwise((0.0, 1.0, 2.0)), preprocess=preprocess, roi_size=(8, 8, 8))
    with torch.inference_mode():
        (answer,) = model.segment([prompt(image_of(labels))])
    np.testing.assert_array_equal(answer, labels)


def test_a_resampled_answer_comes_back_on_the_images_grid():
    labels = ellipsoid(0, (32, 28, 20))
    resample = Spacingd(["image", "label"], (2, 2, 2), mode=("bilinear", "nearest"), allow_missing_keys=True)
    model = MonaiSegmenter(network=Voxelwise(), preprocess=[resample], roi_size=(8, 8, 8))
    with torch.inference_mode():
        (answer,) = model.segment([prompt(image_of(labels, noise=0.0))])
    assert answer.shape == labels.shape
    # Resampling there and back blurs edges, so it cannot be exact; a shift by a voxel would cost far more.
    assert np.mean(answer == labels) > 0.9
    centres = [np.argwhere(found == 1).mean(0) for found in (labels, answer)]
    np.testing.assert_allclose(*centres, atol=0.25)


def test_channels_stand_for_the_classes_that_are_named():
    labels = ellipsoid(0)
    model = MonaiSegmenter(network=Voxelwise(), classes=[0, 9, 4], roi_size=SHAPE)
    (answer,) = model.segment([prompt(image_of(labels), labels={4: "rim", 9: "core"})])
    np.testing.assert_array_equal(answer, np.array([0, 9, 4])[labels])


def test_a_network_with_another_number_of_channels_is_told_apart():
    model = MonaiSegmenter(network=Voxelwise(), roi_size=SHAPE)
    with pytest.raises(UserError, match=r"has 3 output channels, the task needs 2, .* set model.network.out_channels"):
        model.segment([prompt(np.zeros(SHAPE), labels={1: "core"})])


# MONAI: weights


@pytest.mark.parametrize(
    "stored",
    [
        lambda net: net.state_dict(),
        lambda net: {"state_dict": {f"model.network.{k}": v for k, v in net.state_dict().items()}, "epoch": 3},
        lambda net: {"model": {f"module.{k}": v for k, v in net.state_dict().items()}},
    ],
)
def test_weights_are_found_under_every_usual_prefix(tmp_path, stored):
    source = tiny_unet()
    torch.save(stored(source), tmp_path / "w.pt")
    loaded = MonaiSegmenter(network=tiny_unet(), checkpoint=str(tmp_path / "w.pt")).network
    for one, other in zip(source.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "no such checkpoint; set model.checkpoint"),
        (lambda path: path.write_bytes(b"nonsense"), "cannot be loaded as weights"),
        (lambda path: torch.save(Voxelwise().state_dict(), path), "holds weights of another network: .* are missing"),
        (
            lambda path: torch.save(UNet(3, 1, 3, channels=(8, 8), strides=(2,)).state_dict(), path),
            "has shape .* the network expects",
        ),
    ],
)
def test_weights_that_do_not_fit_name_the_file(tmp_path, write, words):
    write(tmp_path / "w.pt")
    with pytest.raises(UserError, match=words) as error:
        MonaiSegmenter(network=tiny_unet(), checkpoint=str(tmp_path / "w.pt"))
    assert "w.pt" in str(error.value)


def test_a_network_without_weights_is_not_ready_to_be_tested():
    with pytest.raises(UserError, match="has no weights; set model.checkpoint"):
        MonaiSegmenter(network=tiny_unet()).check_ready()


def test_network_and_bundle_exclude_each_other():
    with pytest.raises(UserError, match="got neither"):
        MonaiSegmenter()
    with pytest.raises(UserError, match="got both"):
        MonaiSegmenter(network=tiny_unet(), bundle="x")


def test_a_bundle_is_loaded_from_its_folder(tmp_path):
    source = tiny_unet()
    (tmp_path / "configs").mkdir()
    (tmp_path / "models").mkdir()
    torch.save(source.state_dict(), tmp_path / "models" / "model.pt")
    network = {
        "_target_": "UNet",
        "spatial_dims": 3,
        "in_channels": 1,
        "out_channels": 3,
        "channels": [4, 8],
        "strides": [2],
    }
    (tmp_path / "configs" / "inference.json").write_text(json.dumps({"network_def": network}))
    with trusting():
        model = MonaiSegmenter(bundle=str(tmp_path), roi_size=(8, 8, 8))
    model.check_ready()
    assert torch.equal(next(model.network.parameters()), next(source.parameters()))
    with pytest.raises(UserError, match="is no MONAI bundle"):
        MonaiSegmenter(bundle=str(tmp_path / "models"))


# MONAI: training


def test_training_samples_are_patches_of_image_and_class_drawn_from_the_seed():
    labels = np.choose(ellipsoid(0), [0, 9, 4])
    model = MonaiSegmenter(network=tiny_unet(), roi_size=(8, 8, 16), patches_per_case=3, classes=[0, 9, 4])
    image, target = Image(image_of(ellipsoid(0))[None], AFFINE), Mask(labels, AFFINE)
    first, again, other = (model.training_samples(image, target, LABELS, seed=seed) for seed in (1, 1, 2))
    assert [tuple(s["image"].shape) for s in first] == [(1, 8, 8, 16)] * 3
    assert set(torch.cat([s["label"].unique() for s in first]).tolist()) == {0, 1, 2}  # classes, not labels
    assert all(torch.equal(a["image"], b["image"]) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a["image"], b["image"]) for a, b in zip(first, other, strict=True))
    for sample in first:  # image and label were cut out together
        assert torch.equal(sample["label"] > 0, sample["image"] > 50)


def test_labels_the_task_does_not_name_are_background_in_training_too():
    labels = np.choose(ellipsoid(0), [-1, 1, 7])
    model = MonaiSegmenter(network=tiny_unet(), roi_size=SHAPE, patches_per_case=1)
    (sample,) = model.training_samples(
        Image(image_of(ellipsoid(0))[None], AFFINE), Mask(labels, AFFINE), LABELS, seed=0
    )
    assert torch.equal(sample["label"][0], torch.from_numpy((ellipsoid(0) == 1).astype(np.float32)))


def test_the_loss_falls_when_the_network_is_right():
    labels = torch.from_numpy(ellipsoid(0))[None, None].float()
    pixels = torch.from_numpy(image_of(ellipsoid(0)))[None, None].float()
    right = MonaiSegmenter(network=Voxelwise()).training_loss({"image": pixels, "label": labels})
    wrong = MonaiSegmenter(network=Voxelwise((0.0, 200.0, 100.0))).training_loss({"image": pixels, "label": labels})
    assert right.item() < 0.01 < wrong.item()

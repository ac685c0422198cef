"""MONAI's networks by name: sized by the task, fitted and loaded again with the same config."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from monai.networks.nets import UNet
from omegaconf import OmegaConf
from torch import nn

import medimg_eval
from medimg_eval.case import Image, Mask, Prompt
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.instantiate import build
from medimg_eval.models.networks import build_network, fitting_window
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.trust import trusting
from tests.conftest import AFFINE, LABELS, SHAPE, ellipsoid, ellipsoids

CONFIGS = Path(medimg_eval.__file__).parent / "configs" / "model"
NEEDS_EINOPS = {"unetr", "swinunetr"}

TINY = {
    "attention_unet": {"channels": [4, 8], "strides": [2]},
    "basic_unet": {"features": [4, 4, 4, 8, 8, 4]},
    "basic_unet_plus_plus": {"features": [4, 4, 4, 8, 8, 4]},
    "dynunet": {"kernel_size": [3] * 3, "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "filters": [4, 8, 8]},
    "flexible_unet": {},
    "highresnet": {
        "layer_params": [
            {"name": "conv_0", "n_features": 4, "kernel_size": 3},
            {"name": "res_1", "n_features": 4, "kernels": [3, 3], "repeat": 1},
            {"name": "conv_1", "n_features": 4, "kernel_size": 1},
            {"name": "conv_2", "kernel_size": 1},
        ]
    },
    "mask_probe": {
        "encoder": "resnet10t",
        "encoder_options": {"channels": [8, 8, 8, 8], "stem_width": 8},
        "channels": 16,
    },
    "mednext": {"init_filters": 4},
    "segresnet": {"init_filters": 8},
    "segresnet_ds": {"init_filters": 8},
    "swinunetr": {"feature_size": 12, "use_checkpoint": False},
    "unet": {"channels": [4, 8], "strides": [2]},
    "unet_small": {"channels": [4, 8], "strides": [2]},
    "unetr": {"feature_size": 4, "hidden_size": 12, "mlp_dim": 12, "num_heads": 2},
    "vnet": {},
}
"""Every config with a network by name, made small enough to be asked in a test."""


def config(name):
    return {
        key: value for key, value in yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()).items() if key != "name"
    }


def described():
    found = {path.stem: config(path.stem) for path in CONFIGS.glob("*.yaml")}
    return sorted(name for name, one in found.items() if "network" in one and one["_target_"].endswith("Segmenter"))


def picture(*shape):
    return Image(np.random.default_rng(0).normal(size=shape).astype(np.float32), np.eye(4))


def small(**settings):
    network = {"name": "UNet", "channels": [4, 8], "strides": [2], "norm": "instance"}
    return MonaiSegmenter(**({"network": network, "roi_size": (8, 8, 8)} | settings))


def test_every_network_of_the_catalogue_is_tried():
    assert described() == sorted(TINY)


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_network_of_the_catalogue_fits_the_task_by_itself(name):
    if name in NEEDS_EINOPS:
        pytest.importorskip("einops")
    settings = config(name)
    settings["network"] |= TINY[name]
    # In 2-D all are quick; the 3-D ones among them are asked in the same words.
    settings["roi_size"] = [64, 64] if name == "swinunetr" else [32, 32]
    settings["flips"] = []
    model = build(OmegaConf.create(settings)).eval()
    image = picture(1 if name == "mask_probe" else 2, 20, 24)  # encoders of pictures take one channel or three
    labels = {1: "a", 5: "b", 9: "c"}
    model.prepare(labels, lambda: image)
    with torch.inference_mode():
        (answer,) = model.segment([Prompt("case", (image,), labels)])
    assert answer.shape == (20, 24)
    assert set(np.unique(answer)) <= {0, 1, 5, 9}


@pytest.mark.parametrize("name", ["SegResNet", "DynUNet", "MedNeXt"])
def test_the_same_words_make_a_network_of_volumes(name):
    words = {"SegResNet": "segresnet", "DynUNet": "dynunet", "MedNeXt": "mednext"}[name]
    wanted = {"name": name} | TINY[words]
    network = build_network(wanted, axes=3, channels=2, classes=4, window=(32, 32, 32)).eval()
    with torch.inference_mode():
        assert network(torch.zeros(1, 2, 32, 32, 32)).shape == (1, 4, 32, 32, 32)


@pytest.mark.parametrize(
    ("name", "shape", "axes", "window"),
    [
        ("UNet", (24, 24, 24), 3, (32, 32, 32)),
        ("UNet", (512, 512, 40), 3, (96, 96, 64)),
        ("UNet", (512, 300), 2, (256, 256)),
        ("UNet", (100, 300, 20), 2, (128, 256)),
        ("SwinUNETR", (24, 24, 24), 3, (64, 64, 64)),
        ("UNETR", (24, 24, 24), 3, (96, 96, 96)),
    ],
)
def test_a_window_is_no_larger_than_the_image_needs(name, shape, axes, window):
    assert fitting_window(name, shape, axes) == window


def test_a_network_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="MONAI has no network 'SegResnet'; did you mean 'SegResNet'"):
        small(network={"name": "SegResnet"}).prepare(LABELS, lambda: picture(1, *SHAPE))


@pytest.mark.parametrize(
    ("network", "error", "words"),
    [
        ({"name": "UNet", "chanels": [4]}, UsageError, "UNet: .*unexpected keyword argument 'chanels'"),
        ({"name": "VNet"}, UserError, "VNet cannot be made with .*in_channels"),
    ],
)
def test_a_network_that_cannot_be_made_says_with_what(network, error, words):
    with pytest.raises(error, match=words):
        small(network=network).prepare(LABELS, lambda: picture(3, *SHAPE))


def test_what_the_config_says_of_a_network_is_not_overruled():
    model = small(network={"name": "UNet", "channels": [4, 8], "strides": [2], "out_channels": 5})
    model.prepare(LABELS, lambda: picture(1, *SHAPE))
    with pytest.raises(UserError, match="has 5 output channels, the task needs 3"):
        model.segment([Prompt("case", (picture(1, *SHAPE),), LABELS)])


def test_another_task_gets_another_network_and_the_same_task_keeps_its_own():
    model = small()
    model.prepare(LABELS, lambda: picture(1, *SHAPE))
    first = model.network
    model.prepare(LABELS, lambda: picture(1, *SHAPE))
    assert model.network is first
    model.prepare({1: "a"}, lambda: picture(2, *SHAPE))
    assert model.network is not first
    with torch.inference_mode():
        assert model.network(torch.zeros(1, 2, 8, 8, 8)).shape[1] == 2


def test_preprocessing_decides_what_the_network_is_sized_for():
    double = [lambda data: data | {"image": torch.cat([data["image"]] * 2)}]
    model = small(preprocess=double)
    model.prepare(LABELS, lambda: picture(1, *SHAPE))
    assert model.one_pass().shape == (1, 2, 8, 8, 8)


def test_a_network_made_late_is_in_the_mode_of_its_wrapper():
    model = small().eval()
    model.prepare(LABELS, lambda: picture(1, *SHAPE))
    assert not any(module.training for module in model.modules())


def test_weights_of_a_network_by_name_load_with_the_same_config(tmp_path):
    fitted = small()
    fitted.prepare(LABELS, lambda: picture(1, *SHAPE))
    stored = {f"model.{key}": value for key, value in fitted.state_dict().items()}
    torch.save({"state_dict": stored}, tmp_path / "best.ckpt")
    loaded = small(checkpoint=str(tmp_path / "best.ckpt"))
    loaded.check_ready()
    asked = [Prompt("case", (picture(1, *SHAPE),), LABELS)]
    with torch.inference_mode():
        np.testing.assert_array_equal(loaded.eval().segment(asked), fitted.eval().segment(asked))
    with pytest.raises(UserError, match="has shape .* the network expects"):
        loaded.prepare({1: "a"}, lambda: picture(1, *SHAPE))


@pytest.mark.parametrize(
    ("status", "told"),
    [("running", "still runs, or was killed"), ("interrupted", "is not finished (interrupted)"), ("finished", "")],
)
def test_a_checkpoint_of_a_fit_that_is_not_finished_is_told(status, told, tmp_path, caplog):
    (tmp_path / "manifest.json").write_text(json.dumps({"command": "fit", "status": status}))
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=f"no such checkpoint; .*{re.escape(told) or 'set model.checkpoint'}"):
        small(checkpoint=str(tmp_path)).prepare(LABELS, lambda: picture(1, *SHAPE))
    fitted = small()
    fitted.prepare(LABELS, lambda: picture(1, *SHAPE))
    torch.save({"state_dict": fitted.state_dict()}, tmp_path / "checkpoints" / "best.ckpt")
    small(checkpoint=str(tmp_path)).prepare(LABELS, lambda: picture(1, *SHAPE))
    assert [record.message for record in caplog.records if "best checkpoint" in record.message] == (
        [f"the fit in {tmp_path} {told}; its best checkpoint so far is taken, and may be another one later"]
        * bool(told)
    )


def test_a_window_of_the_wrong_number_of_axes_is_refused():
    with pytest.raises(UserError, match="expected model.roi_size to have 2 numbers"):
        small().prepare(LABELS, lambda: picture(1, 20, 20))


def test_a_network_of_pictures_is_trained_on_slices():
    model = small(spatial_dims=2, roi_size=(8, 8), patches_per_case=3)
    image, target = Image(ellipsoid(0)[None].astype(np.float32), AFFINE), Mask(ellipsoid(0), AFFINE)
    model.prepare(LABELS, lambda: image)
    samples = model.training_samples(image, target, LABELS, seed=0)
    assert [tuple(sample["label"].shape) for sample in samples] == [(1, 8, 8)] * 3
    assert all(torch.equal(sample["image"], sample["label"]) for sample in samples)
    batch = {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}
    assert model.training_loss(batch).isfinite()


# Channels by name


def test_channels_are_translated_by_name_and_several_may_be_one_label():
    model = MonaiSegmenter(
        network=nn.Conv3d(1, 5, 1),
        translate={
            "from": ["upper lobe", "lower lobe", "Heart", "rib"],
            "to": {"upper lobe": "lung", "lower lobe": "lung"},
        },
        roi_size=SHAPE,
    )
    with torch.no_grad():
        model.network.weight.zero_()
        for channel in range(5):
            model.network.bias.zero_()[channel] = 1
            (answer,) = model.segment([Prompt("case", (picture(1, *SHAPE),), {7: "lung", 8: "heart"})])
            assert np.unique(answer).tolist() == [[0, 7, 7, 8, 0][channel]]
    with pytest.raises(UserError, match="cannot be fitted"):
        model.training_samples(picture(1, *SHAPE), Mask(ellipsoid(0), AFFINE), {7: "lung", 8: "heart"}, seed=0)


# Bundles


def write_bundle(folder, channels=None, stored=lambda weights: weights):
    (folder / "configs").mkdir(parents=True)
    (folder / "models").mkdir()
    network = {"_target_": "UNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 3, "channels": [4, 8]}
    config = {
        "network_def": network | {"strides": [2]},
        "preprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "LoadImaged", "keys": "image"},
                {"_target_": "EnsureChannelFirstd", "keys": "image"},
                {"_target_": "Orientationd", "keys": "image", "axcodes": "RAS", "labels": None},
                {"_target_": "ScaleIntensityRanged", "keys": "image", "a_min": 0, "a_max": 2, "b_min": 0, "b_max": 1},
            ],
        },
        "inferer": {"_target_": "SlidingWindowInferer", "roi_size": [8, 8, 8], "overlap": 0.25, "sw_batch_size": 2},
    }
    (folder / "configs" / "inference.json").write_text(json.dumps(config))
    if channels:
        outputs = {"pred": {"channel_def": {str(index): name for index, name in enumerate(channels)}}}
        (folder / "configs" / "metadata.json").write_text(json.dumps({"network_data_format": {"outputs": outputs}}))
    weights = UNet(3, 1, 3, channels=(4, 8), strides=(2,)).state_dict()
    torch.save(stored(weights), folder / "models" / "model.pt")
    return weights


@pytest.fixture
def trusted():
    with trusting():
        yield


def test_a_bundle_brings_its_preprocessing_and_its_window(tmp_path, trusted):
    weights = write_bundle(tmp_path / "b", stored=lambda w: {"epoch": 3, "model": {"network": w}})
    model = MonaiSegmenter(bundle=str(tmp_path / "b"))
    assert all(torch.equal(value, weights[key]) for key, value in model.network.state_dict().items())
    assert (model.roi_size, model.overlap, model.sw_batch_size) == ((8, 8, 8), 0.25, 2)
    assert [type(step).__name__ for step in model.preprocess.transforms] == ["Orientationd", "ScaleIntensityRanged"]
    other = MonaiSegmenter(bundle=str(tmp_path / "b"), roi_size=(16, 16, 16), preprocess=[])
    assert other.roi_size == (16, 16, 16)
    assert not other.preprocess.transforms
    image = Image(ellipsoid(0)[None].astype(np.int16), AFFINE)
    with torch.inference_mode():
        (answer,) = model.eval().segment([Prompt("case", (image,), LABELS)])
    assert answer.shape == SHAPE


def test_a_bundles_channel_names_are_compared_with_the_tasks(tmp_path, trusted):
    write_bundle(tmp_path / "same", ["background", "Core", "rim"])
    write_bundle(tmp_path / "turned", ["background", "rim", "core"])
    example = [lambda: picture(1, *SHAPE)]
    MonaiSegmenter(bundle=str(tmp_path / "same")).prepare(LABELS, *example)
    with pytest.raises(UserError, match=r"the bundle's channels are \['rim', 'core'\].*set model.translate"):
        MonaiSegmenter(bundle=str(tmp_path / "turned")).prepare(LABELS, *example)
    by_name = MonaiSegmenter(bundle=str(tmp_path / "turned"), translate={})
    assert by_name._classes(LABELS) == [0, 2, 1]


# What a model is told of a task


def test_the_first_image_that_can_be_read_is_the_example(write_dataset):
    root = write_dataset(3)
    (root / "images" / "case00.nii.gz").write_bytes(b"damaged")
    task = ellipsoids(root)
    model = small()
    prepare_model(task, model, task.cases("test"))
    assert model.one_pass().shape == (1, 1, 8, 8, 8)
    for path in (root / "images").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="none of 3 images can be read"):
        prepare_model(task, small(), task.cases("test"))
    prepare_model(task, object(), task.cases("test"))  # a wrapper without `prepare` is left alone

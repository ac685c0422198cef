"""Encoders of volumes and videos: what a network is shown, beside torchvision, Med3D and VLM3D's scorer."""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from medimg_eval.case import Image
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import reorient, write_image
from medimg_eval.metrics.fidelity import frechet_distance
from medimg_eval.models import MedicalNetEncoder, TorchScriptVolumeEncoder, VideoNetworkEncoder
from medimg_eval.models.extractors.volumes import as_grey, middle_of, resize_frames, shown_frames
from tests.helpers.authors import load_functions, require_clone


def volume(shape=(4, 5, 6), seed=0, affine=None):
    values = np.random.default_rng(seed).normal(size=(1, *shape)) * 300
    return Image(values.astype(np.float32), np.diag([1.0, 1, 1, 1]) if affine is None else affine, "CT")


def video(frames=7, size=(20, 24)):
    values = np.random.default_rng(1).integers(0, 255, (3, frames, *size), np.uint8)
    return Image(values, np.eye(4), units="pixel")


class Means(torch.nn.Module):
    """Mean of each channel, and that of the first frame; twice both with `doubled`."""

    def forward(self, shown: torch.Tensor, doubled: bool = False) -> torch.Tensor:
        vectors = torch.cat([shown.mean(dim=(2, 3, 4)), shown[:, :, 0].mean(dim=(2, 3))], dim=1)
        return vectors * 2 if doubled else vectors


def exported(path, network=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises others than TorchScript
        torch.jit.script(network or Means()).save(str(path))
    return str(path)


def test_a_volume_is_slices_from_the_feet_rows_from_the_front_and_columns_from_the_right():
    stored = volume()  # axes point to the right, the front and the head
    frames = shown_frames(stored)
    assert frames.shape == (1, 6, 5, 4)
    assert frames[0, 5, 0, 0] == stored.array[0, 3, 4, 5]  # at the head, in front, on the right
    assert shown_frames(video()).shape == (3, 7, 20, 24)
    for odd in (np.zeros((2, 4, 5, 6)), np.zeros((1, 5, 6)), np.zeros((1, 0, 5, 6))):
        with pytest.raises(CaseError, match="expected a volume"):
            shown_frames(Image(odd, np.eye(4)))


@given(codes=st.sampled_from(["RAS", "LPS", "SAR", "ILP", "PIR"]))
@settings(max_examples=10)
def test_how_a_volume_is_stored_does_not_matter(codes):
    np.testing.assert_array_equal(shown_frames(reorient(volume(), codes)), shown_frames(volume()))


def test_grey_is_cut_by_the_window_and_the_middle_has_black_around_it():
    held = torch.tensor([-2000.0, -1000, 0, 1000, 3000]).reshape(1, 1, 1, 5)
    assert as_grey(held, (-1000.0, 1000.0)).flatten().tolist() == [0, 0, 0.5, 1, 1]
    assert as_grey(held, None).flatten().tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 1])
    assert not as_grey(torch.full((1, 1, 2, 2), 7.0), None).any()  # of one value: black
    assert as_grey(torch.full((3, 1, 1, 1), 51.0), (-1000.0, 1000.0)).flatten().tolist() == pytest.approx([0.2] * 3)
    row = torch.arange(5.0).reshape(1, 1, 1, 5)
    assert middle_of(row, (1, 1, 3)).flatten().tolist() == [1, 2, 3]
    assert middle_of(row, (1, 1, 7)).flatten().tolist() == [0, 0, 1, 2, 3, 4, 0]
    assert resize_frames(row, (1, 1, 10))[0, 0, 0, :4].tolist() == pytest.approx([0, 0.25, 0.75, 1.25])


def test_a_program_is_given_volumes_as_its_settings_say(tmp_path):
    path = exported(tmp_path / "means.pt")
    plain = TorchScriptVolumeEncoder(path, shape=None, window=(-500, 500), values=(-1, 1), channels=1, device="cpu")
    vectors = plain.embed_images([volume(), volume(seed=1)])
    wanted = np.clip(volume().array, -500, 500) / 500
    assert vectors.shape == (2, 2)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[0], [wanted.mean(), wanted[0, :, :, 0].mean()], atol=1e-6)
    doubled = TorchScriptVolumeEncoder(path, shape=None, arguments={"doubled": True}, values=(0, 255), device="cpu")
    np.testing.assert_allclose(doubled.embed_images([video()])[0, :3], 2 * video().array.mean((1, 2, 3)), rtol=1e-5)
    assert "doubled=True" in doubled.preprocessing
    assert plain.embed_images([]).shape == (0, 0)


def test_a_volume_is_brought_to_a_spacing_and_cut(tmp_path):
    affine = np.diag([2.0, 1, 3, 1])
    ramp = Image(np.broadcast_to(np.arange(8.0)[:, None, None], (8, 6, 4))[None].astype(np.float32), affine, "CT")
    seen = []

    class Kept(TorchScriptVolumeEncoder):
        loaded = staticmethod(lambda batch: (seen.append(batch), torch.zeros(len(batch), 1))[1])

    Kept("x", shape=(12, 6, 10), spacing=(1, 1, 1), window=(0, 7), channels=1, device="cpu").embed_images([ramp])
    (batch,) = seen
    assert batch.shape == (1, 1, 12, 6, 10)
    whole = functional.interpolate(torch.arange(7.0, -1, -1)[None, None] / 7, size=16, mode="linear")[0, 0]
    torch.testing.assert_close(batch[0, 0, 3, 2], whole[3:13])  # columns run from right to left
    Kept("x", shape=(4, 6, 8), channels=1, window=(0, 7), swapped=True, device="cpu").embed_images([ramp])
    assert seen[1].shape == (1, 1, 4, 8, 6)


def test_settings_and_answers_that_cannot_be_meant_are_refused(tmp_path):
    with pytest.raises(UsageError, match="depth: expected one of 10, 18"):
        MedicalNetEncoder(depth=51)
    with pytest.raises(UsageError, match="shape: expected slices, rows and columns"):
        TorchScriptVolumeEncoder(shape=(16, 224))
    with pytest.raises(UsageError, match="spacing: expected three mm"):
        TorchScriptVolumeEncoder(shape=None, spacing=(1, 1, 1))
    with pytest.raises(UsageError, match="window: expected two values"):
        VideoNetworkEncoder(window=(1, 0))
    with pytest.raises(UsageError, match="channels 1 or 3"):
        TorchScriptVolumeEncoder(channels=2)
    with pytest.raises(UserError, match="no video network 'r3d_81'"):
        VideoNetworkEncoder("r3d_81", device="cpu").load()
    program = TorchScriptVolumeEncoder(exported(tmp_path / "id.pt", torch.nn.Identity()), device="cpu")
    with pytest.raises(UserError, match=r"gives \(1, 3, 16, 224, 224\), expected"):
        program.embed_images([video()])
    with pytest.raises(UserError, match="takes volumes whole"):
        program.encode([])


@pytest.mark.slow
def test_features_of_a_video_are_those_before_torchvisions_last_layer(tmp_path):
    from torchvision.models.video import R3D_18_Weights, r3d_18

    torch.manual_seed(0)
    network = r3d_18(weights=None).eval()
    torch.save(network.state_dict(), tmp_path / "r3d.pth")
    encoder = VideoNetworkEncoder("r3d_18", str(tmp_path / "r3d.pth"), frames=4, device="cpu")
    (vector,) = encoder.embed_images([video(frames=10)])
    clip = torch.from_numpy(video(frames=10).array[:, [0, 3, 6, 9]]).permute(1, 0, 2, 3)
    network.fc = torch.nn.Identity()
    with torch.inference_mode():
        expected = network(R3D_18_Weights.DEFAULT.transforms()(clip)[None])[0]
    np.testing.assert_allclose(vector, expected.numpy(), rtol=1e-4, atol=1e-5)


# Beside the authors' programs ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("depth", "shortcut"), [(10, "B"), (18, "A"), (50, "B")])
def test_med3ds_network_is_its_authors(depth, shortcut, tmp_path, monkeypatch):
    clone = require_clone("Tencent/MedicalNet")
    monkeypatch.syspath_prepend(str(clone / "models"))
    sys.modules.pop("resnet", None)
    import resnet

    torch.manual_seed(depth)
    sizes = {"sample_input_D": 16, "sample_input_H": 32, "sample_input_W": 32, "num_seg_classes": 2}
    network = getattr(resnet, f"resnet{depth}")(**sizes, shortcut_type=shortcut, no_cuda=True).eval()
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm3d):
            part.running_mean.normal_(0, 0.1)
    stored = {f"module.{name}": value for name, value in network.state_dict().items() if "conv_seg" not in name}
    torch.save({"state_dict": stored}, tmp_path / "weights.pth")
    encoder = MedicalNetEncoder(depth, str(tmp_path / "weights.pth"), shape=(16, 32, 32), above=-1e9, device="cpu")
    (vector,) = encoder.embed_images([volume((32, 32, 16))])
    network.conv_seg = torch.nn.Identity()
    shown = torch.from_numpy(shown_frames(volume((32, 32, 16))))
    with torch.inference_mode():
        expected = network((shown - shown.mean())[None] / shown.std()).mean(dim=(2, 3, 4))[0]
    np.testing.assert_allclose(vector, expected.numpy(), rtol=1e-3, atol=1e-4)
    sys.modules.pop("resnet", None)


@pytest.mark.slow
def test_vlm3ds_scorer_shows_the_same_volumes_and_has_the_same_distance(tmp_path):
    import pathlib
    import typing

    sitk = pytest.importorskip("SimpleITK")
    clone = require_clone("forithmus/VLM3D-Dockers") / "ctgen_evaluation"
    held = volume((30, 26, 22), affine=np.diag([0.9, 0.9, 2, 1]))  # theirs mixes up rows and columns
    write_image(tmp_path / "v.nii.gz", reorient(held, "LPS"))
    sitk.WriteImage(sitk.ReadImage(str(tmp_path / "v.nii.gz")), str(tmp_path / "v.mha"))
    given_names = {"torch": torch, "np": np, "sitk": sitk, "F": functional, "pathlib": pathlib, "typing": typing}
    clip = load_functions(
        clone / "evaluate_clip.py", "_read_mha", "_resize_array", "_centre_crop_or_pad", "_load_vol",
        TARGET_SPACING=(1.5, 0.75, 0.75), TARGET_DHW=(20, 24, 18), HU_MIN=-1000.0, HU_MAX=1000.0, PAD_VALUE=-1.0,
        **given_names,
    )  # fmt: skip
    net = load_functions(
        clone / "evaluate_fvd.py", "_read_mha", "_prep_volume", TARGET_DHW=(11, 14, 12),
        _resize_vol=load_functions(clone / "metrics3d.py", "_resize_vol", **given_names)["_resize_vol"], **given_names,
    )  # fmt: skip
    seen = []

    class Kept(TorchScriptVolumeEncoder):
        loaded = staticmethod(lambda batch: (seen.append(batch), torch.zeros(len(batch), 1))[1])

    hounsfield = {"window": (-1000, 1000), "channels": 1, "swapped": True, "device": "cpu"}
    # Theirs has columns before rows, so that rows and columns of the shape change places, too.
    Kept("x", shape=(20, 18, 24), spacing=(1.5, 0.75, 0.75), values=(-1000, 1000), **hounsfield).embed_images([held])
    Kept("x", shape=(11, 12, 14), values=(0, 1), **hounsfield).embed_images([held])
    torch.testing.assert_close(seen[0][0, 0], clip["_load_vol"](tmp_path / "v.mha"), atol=0.02, rtol=1e-4)
    prepared = net["_prep_volume"](*net["_read_mha"](tmp_path / "v.mha"))
    torch.testing.assert_close(seen[1][0], prepared, atol=1e-4, rtol=1e-4)

    import scipy.linalg

    root = SimpleNamespace(linalg=SimpleNamespace(sqrtm=lambda held, disp: (scipy.linalg.sqrtm(held), None)))
    moments = load_functions(clone / "FVD/fvd_pytorch_model.py", "compute_fvd", "compute_stats", np=np, scipy=root)
    rng = np.random.default_rng(3)
    real, made = rng.normal(size=(60, 18)), rng.normal(size=(50, 18)) * 1.3 + 0.2
    ours = frechet_distance(real, made, interval=False).value
    assert ours == pytest.approx(moments["compute_fvd"](made, real), rel=1e-6)

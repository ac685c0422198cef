"""LPIPS and DISTS: the authors' numbers with made-up weights, what is refused, and as metrics of a reconstruction."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from medimg_eval.case import Case, Geometry, Image
from medimg_eval.commands.cli import start
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics import get
from medimg_eval.metrics.reconstruction.perceptual import dists, lpips, pictures
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.base import Reconstructor
from medimg_eval.models.extractors.perceptual import DISTS, LPIPS
from medimg_eval.results import load_runs
from medimg_eval.tasks.reconstruction import ReconstructionTask
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

ALEX = {0: (3, 64, 11), 3: (64, 192, 5), 6: (192, 384, 3), 8: (384, 256, 3), 10: (256, 256, 3)}
VGG = dict(
    zip(
        (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28),
        [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512), *[(512, 512)] * 5],
        strict=True,
    )
)
WIDTHS = {"alex": (64, 192, 384, 256, 256), "vgg": (64, 128, 256, 512, 512)}


def backbone(network):
    """Weights of a network that keep its activations alive, drawn from a seed and called as torchvision calls them."""
    rng = np.random.default_rng(7)
    state = {}
    for place, (given, wider, *kernel) in (ALEX if network == "alex" else VGG).items():
        edge = kernel[0] if kernel else 3
        weights = (rng.random((wider, given, edge, edge), np.float32) - 0.5) * np.sqrt(24 / (given * edge * edge))
        state[f"features.{place}.weight"] = torch.from_numpy(weights.astype(np.float32))
        state[f"features.{place}.bias"] = torch.from_numpy(rng.random(wider, np.float32) / 10)
    return state


def heads(network):
    rng = np.random.default_rng(8)
    return {
        f"lin{number}.model.1.weight": torch.from_numpy(rng.random((1, width, 1, 1), np.float32))
        for number, width in enumerate(WIDTHS[network])
    }


def shares():
    rng = np.random.default_rng(9)
    return {
        name: torch.from_numpy(rng.random((1, 3 + sum(WIDTHS["vgg"]), 1, 1), np.float32)) for name in ["alpha", "beta"]
    }


def pairs(rows=70, columns=83):
    """Two pairs of pictures of a formula, from 0 to 1: one a little changed, one a lot."""
    r, c = np.mgrid[:rows, :columns]
    image = (2 + np.sin(r / 5) * np.cos(c / 9) + np.sin((r + 2 * c) / 31)) / 4
    other = image + 0.05 * np.sin(r * 1.7 + c * 2.3)
    return np.clip(np.array([[image, other], [image, image[::-1] ** 2]]), 0, 1).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    for network in WIDTHS:
        torch.save(backbone(network) | {"classifier.1.weight": torch.zeros(2, 2)}, folder / f"{network}.pth")
        torch.save(heads(network), folder / f"{network}-heads.pth")
    torch.save(shares(), folder / "shares.pt")
    return folder


def network_of(kind, files):
    if kind == "dists":
        return DISTS(str(files / "vgg.pth"), str(files / "shares.pt"), device="cpu")
    return LPIPS(kind, str(files / f"{kind}.pth"), str(files / f"{kind}-heads.pth"), device="cpu")


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        # lpips 0.1.4 and DISTS_pytorch 0.1 in double precision, with the weights above.
        ("alex", (0.03901828919596691, 1.0217619747305149)),
        ("vgg", (0.06607233870206727, 0.7563360735936363)),
        ("dists", (0.01179115485735327, 0.30457122059184616)),
    ],
)
def test_with_the_same_weights_numbers_are_the_authors(files, kind, theirs):
    network = network_of(kind, files)
    network.preferred_batch = 1
    # Sums of float32 over up to 4,608 products and 13 layers: their order is the processor's.
    assert network.distances(pairs()) == pytest.approx(theirs, rel=1e-4)
    same = pairs()[:, :1].repeat(2, axis=1)
    assert network.distances(same) == [0, 0]
    assert network.distances(pairs()[:0]) == []
    with pytest.raises(CaseError, match=f"needs {network.smallest} rows and columns"):
        network.distances(pairs(network.smallest - 1, 64))
    assert np.isfinite(network.distances(pairs(network.smallest, network.smallest))).all()


def test_each_way_round_the_distance_is_the_same(files):
    network = network_of("alex", files)
    assert network.distances(pairs()[:, ::-1]) == pytest.approx(network.distances(pairs()), rel=1e-4)


def test_what_a_network_is_shown_lies_between_0_and_1():
    rng = np.random.default_rng(0)
    reference = rng.random((3, 20, 24)) * np.array([1, 2, 4])[:, None, None]
    other = reference * 1.5
    shown = pictures(reference, other, "fastmri")
    assert shown.shape == (3, 2, 20, 24)
    assert shown.dtype == np.float32
    assert shown.max() == 1
    np.testing.assert_allclose(shown[:, 0], reference / reference.max(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(shown[:, 1], np.minimum(other / reference.max(), 1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(pictures(reference, other, "skmtea")[:, 0].max(axis=(1, 2)), 1)
    np.testing.assert_allclose(pictures(reference * 1j, other, "fastmri"), shown, rtol=1e-6)
    hounsfield = reference[0] * 2000 - 1000
    np.testing.assert_allclose(
        pictures(hounsfield, hounsfield, None, 2000)[0, 0], (hounsfield - hounsfield.min()) / 2000, atol=1e-6
    )
    with pytest.raises(ValueError, match="data_range"):
        pictures(reference, other, None)


def test_a_volume_is_worth_the_mean_over_its_slices():
    assert lpips([0.1, 0.2, 0.6]) == pytest.approx(0.3)
    assert dists([0.5], "fastmri") == 0.5
    assert np.isnan(lpips([]))
    assert get("lpips@fastmri").requires == (Requirement("distance", "lpips"),)
    with pytest.raises(UsageError, match="preset of image metrics is invalid"):
        get("lpips@fastmir")


def test_missing_weights_are_told_with_file_source_and_key(files, tmp_path):
    with pytest.raises(
        UserError, match=r"alexnet-owt-7be5be79.pth .*torchvision.*annotators.lpips.backbone=PATH"
    ) as told:
        made = LPIPS()
        made.name = "lpips"
        made.check_ready()
    assert "download" not in str(told.value)
    made = DISTS(str(files / "vgg.pth"), str(tmp_path / "lost.pt"))
    made.name = "dists"
    with pytest.raises(
        UserError, match=r"weights.pt, with alpha and beta .*DISTS_pytorch.*annotators.dists.heads=PATH"
    ):
        made.check_ready()
    with pytest.raises(UsageError, match=r"got 'alexnet'"):
        LPIPS("alexnet")
    with pytest.raises(UserError, match="holds weights of another network"):
        LPIPS("vgg", str(files / "alex.pth"), str(files / "vgg-heads.pth")).distances(pairs())


@dataclass(frozen=True)
class Held:
    """An image that is already there."""

    image: Image

    @property
    def files(self):
        return ()

    def read(self):
        return self.image

    def geometry(self):
        return Geometry(self.image.array.shape[1:], np.eye(4), "pixel")


class Scans:
    """Three scans, the last too small for AlexNet."""

    def cases(self, split):
        edges = {"a": 40, "b": 48, "small": 24}
        return [Case(name, (Held(shown(edge)),), Held(shown(edge))) for name, edge in edges.items()]


def shown(edge):
    return Image(pairs(edge, edge)[:, 0][None] * 300, np.eye(4), "MR", "pixel")


class Blurs(Reconstructor):
    """The first scan as it is, the others smoothed."""

    def reconstruct(self, prompts):
        images = [prompt.images[0].array[0] for prompt in prompts]
        return [
            image if prompt.case_id == "a" else (image + np.roll(image, 1, -1)) / 2
            for prompt, image in zip(prompts, images, strict=True)
        ]


def task_of(*metrics, **settings):
    return ReconstructionTask(
        name="recon", layout=Scans(), metrics=metrics, monitor="nmse", splits={"test": "test"}, **settings
    )


@pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_a_reconstruction_is_judged_by_a_network_after_it_is_stored(files, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False)
    with pytest.raises(UserError, match="lpips@fastmri: there is no annotator 'lpips'"):
        evaluate(task_of("lpips@fastmri"), ModelSpec("B", Blurs, {}, Blurs), Settings(tmp_path, None, trainer, {}))
    network = ModelSpec("lpips", LPIPS, {}, lambda: network_of("alex", files))
    settings = Settings(tmp_path / "runs", None, trainer, {}, score_workers=0, annotators={"lpips": network})
    task = task_of("psnr@fastmri", "lpips@fastmri", "lpips", data_range=300)
    folder = evaluate(task, ModelSpec("B", Blurs, {}, Blurs), settings)
    check_rows("perceptual", folder, rtol=1e-4)
    (run,) = load_runs([folder])
    assert list(run.metrics) == ["psnr@fastmri", "lpips@fastmri", "lpips"]
    values = run.scores.set_index(["metric", "case"])["value"]
    assert values["lpips@fastmri", "a"] == 0
    truth = shown(48).array[0]
    blurred = (truth + np.roll(truth, 1, -1)) / 2
    expected = network_of("alex", files).distances(pictures(truth, blurred.astype(np.float32), "fastmri"))
    assert values["lpips@fastmri", "b"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert np.isnan(values["lpips@fastmri", "small"])
    assert "lpips: alex; alex.pth, alex-heads.pth" in run.signature
    assert any("1 of 3 cases not judged (small)" in note for note in run.notes)
    assert json.loads((folder / "manifest.json").read_text())["annotators"] == {
        "lpips": "alex; alex.pth, alex-heads.pth"
    }

    # What was found before is taken from the cache: a network that cannot be used any more is not needed.
    monkeypatch.setattr(LPIPS, "between", None)
    rescore(folder, task_of("lpips@fastmri"), 0, annotators={"lpips": network})
    (again,) = load_runs([folder])
    assert again.scores.set_index("case")["value"].equals(values["lpips@fastmri"])


def test_networks_need_a_range_and_guide_no_training():
    with pytest.raises(UsageError, match="'lpips' needs a data range"):
        task_of("lpips")
    with pytest.raises(UsageError, match="judges perception"):
        ReconstructionTask(name="r", layout=None, metrics=["dists@wang"], monitor="dists@wang")
    task = task_of("nmse", "dists@fastmri")
    worst = {score.metric: score.value for score in task.worst(Scans().cases("test")[0])}
    assert worst == {"nmse": 1, "dists@fastmri": 1}


def test_check_lists_what_lpips_lacks(files, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    assert start(["check", "metrics=[lpips,dists@wang]", f"annotators.dists.backbone={files / 'vgg.pth'}"]) == 1
    said = capfd.readouterr().out
    assert "lpips: lacks annotators.lpips.backbone, annotators.lpips.heads" in said
    assert "dists@wang: lacks annotators.dists.heads" in said

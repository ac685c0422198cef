"""What one pass costs: counted by hand, timed, and noted in the manifest."""

import json
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from medimg_eval.case import Image
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.profiling import efficiency
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.baselines.gaussian_mixture import GaussianMixture
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from tests.conftest import LABELS, ellipsoids
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]
CPU = torch.device("cpu")


def doubled(width, out):
    layers = []
    for channels in (width, out):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers)


class ClassicUNet(nn.Module):
    """The U-Net of U-Bench: 64 to 1,024 channels, upsampling followed by a convolution."""

    def __init__(self):
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(map(doubled, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * n, n, 3, padding=1), nn.BatchNorm2d(n), nn.ReLU())
            for n in widths[-2::-1]
        )
        self.join = nn.ModuleList(doubled(2 * n, n) for n in widths[-2::-1])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(64, 1, 1)

    def forward(self, pixels):
        kept = []
        for depth, block in enumerate(self.down):
            pixels = block(self.pool(pixels) if depth else pixels)
            kept.append(pixels)
        for up, join, skipped in zip(self.up, self.join, kept[-2::-1], strict=True):
            pixels = join(torch.cat([skipped, up(pixels)], 1))
        return self.last(pixels)


def wrapped(network, *shape):
    model = MonaiSegmenter(network=network, roi_size=shape[1:])
    model.prepare(LABELS, lambda: Image(np.zeros(shape, np.float32), np.eye(4)))
    return model


def test_operations_are_those_that_u_bench_prints_for_a_u_net():
    with torch.device("meta"):
        network = ClassicUNet()
    pixels = torch.zeros(1, 3, 256, 256, device="meta")
    with FlopCounterMode(display=False) as counter:
        network(pixels)
    # thop also counts normalisation and upsampling: 65.522
    assert counter.get_total_flops() / 2e9 == pytest.approx(65.522, rel=0.003)
    assert sum(parameter.numel() for parameter in network.parameters()) / 1e6 == pytest.approx(34.527, abs=0.0005)


def test_one_window_is_counted_and_timed():
    model = wrapped(nn.Conv3d(2, 3, 3, padding=1), 2, 8, 6, 4)
    model.train()
    found = efficiency(model, CPU)
    assert found["parameters"] == 2 * 3 * 27 + 3
    assert found["gflops"] == found["gmacs"] == pytest.approx(8 * 6 * 4 * 2 * 3 * 27 / 1e9)
    assert found["gflops_of_both"] == 2 * found["gmacs"]
    assert found["frames_per_second"] > 0
    assert found["input_shape"] == [1, 2, 8, 6, 4]
    assert (found["device"], found["precision"]) == ("cpu", "32-true")
    assert model.training  # as it was


def test_an_ensemble_costs_as_much_as_its_networks(tmp_path):
    torch.save(nn.Conv3d(1, 3, 1).state_dict(), tmp_path / "w.pt")
    one, three = (
        MonaiSegmenter(network=nn.Conv3d(1, 3, 1), checkpoint=[str(tmp_path / "w.pt")] * count, roi_size=(4, 4, 4))
        for count in (1, 3)
    )
    for model in (one, three):
        model.prepare(LABELS, lambda: Image(np.zeros((1, 4, 4, 4)), np.eye(4)))
    alone, together = efficiency(one, CPU), efficiency(three, CPU, "bf16-mixed")
    assert together["parameters"] == pytest.approx(3 * alone["parameters"])
    assert together["gmacs"] == pytest.approx(3 * alone["gmacs"])


def test_a_model_that_is_no_module_has_nothing_to_count():
    found = efficiency(GaussianMixture(), CPU)
    assert {key for key, value in found.items() if value is not None} == {"device", "precision"}
    bare = efficiency(nn.Conv3d(1, 3, 1), CPU)  # a user's module without one_pass
    assert bare["parameters"] > 0
    assert bare["gflops"] is None


def test_a_manifest_says_what_the_model_costs_even_when_asked_afterwards(write_dataset, tmp_path):

    task = ellipsoids(write_dataset(1))
    torch.save(nn.Conv3d(1, 3, 1).state_dict(), tmp_path / "w.pt")

    def candidate():
        load = lambda: MonaiSegmenter(  # noqa: E731
            network=nn.Conv3d(1, 3, 1), checkpoint=str(tmp_path / "w.pt"), roi_size=(8, 8, 8)
        )
        return ModelSpec("conv", MonaiSegmenter, {}, load)

    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    shared = {"runs": tmp_path / "runs", "run": None, "trainer": trainer, "score_workers": 0}
    manifests = []
    for config in ({}, {"efficiency": True}):
        folder = evaluate(task, candidate(), Settings(config=config, **shared))
        manifests.append(json.loads((folder / "manifest.json").read_text()))
    assert "efficiency" not in manifests[0]
    assert manifests[1]["efficiency"]["input_shape"] == [1, 1, 8, 8, 8]
    assert manifests[1]["run"] == manifests[0]["run"]

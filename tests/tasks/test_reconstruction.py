"""Reconstruction: what is shown of k-space, what is accepted, how it is judged, and the baselines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from medimg_eval.case import Case, Geometry, Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging.kspace import inverse_fft
from medimg_eval.metrics.reconstruction.metrics import psnr, ssim
from medimg_eval.models.base import Reconstructor
from medimg_eval.models.precomputed.images import PrecomputedReconstructions
from medimg_eval.models.reconstruction.linear import (
    FunctionReconstructor,
    SenseCombine,
    ZeroFilled,
    sensitivities,
    zero_filled,
)
from medimg_eval.phantoms.multicoil import coil_maps, forward
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks.reconstruction import ReconstructionTask, Sampling
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate

ROWS, COLUMNS, COILS = 112, 96, 6


@dataclass(frozen=True)
class Held:
    """A reference that is already there."""

    value: object

    @property
    def files(self):
        return (Path("scan.h5"),)

    def read(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def geometry(self):
        return Geometry(self.value.array.shape[1:], np.eye(4), "pixel")


def head(slices=2):
    """Ellipses with stripes, (slice, row, column)."""
    r, c = np.mgrid[:ROWS, :COLUMNS]
    inside = ((r - 56) / 45) ** 2 + ((c - 48) / 35) ** 2 < 1
    core = ((r - 50) / 15) ** 2 + ((c - 45) / 12) ** 2 < 1
    return np.stack([inside * (1 + 0.2 * np.sin(r / 4 + i) * np.cos(c / 6)) - 0.5 * core for i in range(slices)])


def maps_of(coils):
    """Those of the phantoms, in pixels of 2 mm."""
    maps = coil_maps(coils, np.random.default_rng(0))[:, ::2, ::2]
    assert maps.shape[1:] == (ROWS, COLUMNS)
    return maps


def scan(slices=2, coils=COILS, noise=0.0):
    """Fully sampled k-space (coil, slice, ky, kx) of these, and the image."""
    rng = np.random.default_rng(0)
    image = head(slices)
    samples = forward(maps_of(coils)[:, None] * image)
    samples = samples + noise * (rng.standard_normal(samples.shape) + 1j * rng.standard_normal(samples.shape))
    target = np.sqrt(np.square(np.abs(inverse_fft(samples, (2, 3)))).sum(axis=0))
    said = {"axes": "slice ky kx", "centred": "true"}
    return Image(samples.astype(np.complex64), np.eye(4), "MR", "pixel", attributes=said), target


def case_of(image, target, name="scan"):
    return Case(name, (Held(image),), Held(Image(target[None], np.eye(4), "MR", "pixel")))


def task_of(layout=None, **settings):
    return ReconstructionTask(name="recon", layout=layout, **settings)


@pytest.fixture(scope="module")
def scanned():
    return scan(noise=0.002)


@pytest.mark.parametrize("lines", ["random", "equispaced"])
@pytest.mark.parametrize(("count", "acceleration", "centre"), [(320, 4, 0.08), (368, 8, 0.04), (191, 3.5, 0.1)])
def test_a_mask_has_the_lines_it_says_and_all_of_the_middle(lines, count, acceleration, centre):
    sampling = Sampling(acceleration=acceleration, centre=centre, lines=lines)
    mask = sampling.mask(count, np.random.default_rng(1))
    assert mask.sum() == round(count / acceleration)
    middle = round(count * centre)
    assert mask[count // 2 - middle // 2 : count // 2 - middle // 2 + middle].all()
    if lines == "equispaced":
        gaps = np.diff(np.flatnonzero(mask[: count // 2 - middle // 2]))
        assert gaps.max() - gaps.min() <= 1
    assert not np.array_equal(mask, sampling.mask(count, np.random.default_rng(2)))


def test_without_acceleration_all_lines_are_there():
    assert Sampling(acceleration=1).mask(64, np.random.default_rng(0)).all()
    assert Sampling(acceleration=8, centre=0.125, lines="equispaced").mask(64, np.random.default_rng(0)).sum() == 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acceleration": 0.5}, "an acceleration of at least 1"),
        ({"acceleration": 8, "centre": 0.2}, "at most 1 / acceleration, got 8 and 0.2"),
        ({"acceleration": 4, "lines": "radial"}, "got 'radial'"),
        ({"acceleration": 4, "center": 0.1}, "center"),
    ],
)
def test_sampling_that_cannot_be_meant_is_refused(settings, words):
    with pytest.raises(UsageError, match=f"task 'recon': .*{words}"):
        task_of(sampling=settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metrics": ["psnr"]}, "needs a data range"),
        ({"metrics": ["dice"]}, "judges mask, not images"),
        ({"metrics": []}, "to name at least one"),
        ({"metrics": ["ssim@wang", "ssim@wang"]}, "each metric once"),
        ({"monitor": "ssim@wong"}, "got 'wong'; did you mean 'wang'"),
        ({"data_range": 0}, "`data_range` to be above 0, got 0"),
    ],
)
def test_metrics_that_cannot_be_meant_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        task_of(**settings)


def test_a_model_is_shown_the_lines_of_the_case_and_always_the_same_ones(scanned):
    image, target = scanned
    task = task_of(sampling={"acceleration": 4, "seed": 3})
    (shown,) = task.read_images(case_of(image, target))
    lines = (shown.array != 0).any(axis=(0, 1, 2))
    assert lines.sum() == COLUMNS // 4
    np.testing.assert_array_equal(shown.array[..., lines], image.array[..., lines])
    assert shown.attributes["acceleration"] == "4"
    (again,) = task.read_images(case_of(image, target))
    (other,) = task.read_images(case_of(image, target, "another"))
    np.testing.assert_array_equal(again.array, shown.array)
    assert not np.array_equal(other.array, shown.array)
    assert task_of().read_images(case_of(image, target))[0] is image
    with pytest.raises(CaseError, match="no k-space with named axes"):
        task.read_images(case_of(Image(target[None], np.eye(4)), target))


def test_lines_of_uncentred_samples_lie_about_index_0(scanned):
    image, target = scanned
    moved = Image(np.fft.ifftshift(image.array, (2, 3)), np.eye(4), attributes={**image.attributes, "centred": "false"})
    task = task_of(sampling={"acceleration": 4})
    (shown,), (centred,) = task.read_images(case_of(moved, target)), task.read_images(case_of(image, target))
    np.testing.assert_array_equal(np.fft.fftshift(shown.array, (2, 3)), centred.array)
    for model in (ZeroFilled(), SenseCombine()):
        one, two = (model.reconstruct([Prompt("a", (each,))])[0] for each in (shown, centred))
        np.testing.assert_allclose(np.fft.fftshift(one, (1, 2)), two, atol=1e-4)


def test_an_answer_is_judged_as_it_was_stored(scanned, tmp_path):
    image, target = scanned
    case, task = case_of(image, target), task_of(metrics=["psnr@fastmri", "ssim@wang", "nrmse"])
    (answer,) = task.ask(ZeroFilled(), [task.prompt(case, task.read_images(case))])
    prediction = task.accept(case, answer)
    task.codec.save(tmp_path / "scan.npy", prediction)
    stored = task.score(case, tmp_path / "scan.npy")
    assert stored == task.score(case, answer)
    assert stored[0].value == psnr(target, answer, "fastmri")
    assert [one.metric for one in task.score(case, answer, metrics=["ssim@wang"])] == ["ssim@wang"]
    task.codec.save(tmp_path / "complex.npy", prediction.astype(np.complex64))
    assert task.score(case, tmp_path / "complex.npy")[1].value == pytest.approx(ssim(target, answer, "wang"))
    (tmp_path / "scan.npy").write_bytes(b"none")
    with pytest.raises(CaseError, match=r"scan\.npy: cannot be read as a stored image"):
        task.score(case, tmp_path / "scan.npy")


def test_the_middle_of_a_wider_answer_is_judged(scanned):
    image, target = scanned
    task, narrow = task_of(), target[:, 12:-12, 16:-16]
    case = case_of(image, narrow)
    np.testing.assert_array_equal(task.accept(case, target), narrow.astype(np.float32))
    np.testing.assert_array_equal(task.accept(case, target[None]), narrow.astype(np.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a[:, 1:], r"shape \(2, 111, 96\), expected that of the reference, \(2, 112, 96\), or a wider one"),
        (lambda a: a[:1], r"shape \(1, 112, 96\)"),
        (lambda a: np.where(a > a.max() / 2, np.nan, a), "values that are not finite"),
        (lambda a: a > 0, "holds bool"),
    ],
)
def test_answers_that_cannot_be_judged_are_refused(scanned, change, words):
    image, target = scanned
    with pytest.raises(CaseError, match=words):
        task_of().accept(case_of(image, target), change(target))


def test_a_case_without_an_answer_has_the_worst_values_and_nan_without_a_reference(scanned):
    image, target = scanned
    task = task_of(metrics=["psnr@fastmri", "nmse"])
    assert [(one.value, one.status) for one in task.worst(case_of(image, target))] == [(0, "failed"), (1, "failed")]
    unread = Case("a", (Held(image),), Held(CaseError("gone")))
    assert all(math.isnan(one.value) for one in task.worst(unread))


def test_a_blank_slice_is_said_by_case(scanned):
    image, target = scanned
    dark = target.copy()
    dark[1] = 0
    with pytest.raises(CaseError, match="case 'scan': .*got 1 of 2 without a data range above 0"):
        task_of(metrics=["psnr@skmtea"]).score(case_of(image, dark), target)


def test_the_signature_tells_presets_range_and_sampling():
    said = task_of(
        metrics=["psnr@fastmri", "ssim"], monitor="ssim", data_range=2, sampling={"acceleration": 8, "centre": 0.04}
    ).signature()
    assert "fastmri: range largest reference value of the volume" in said
    assert "data range 2 without a preset" in said
    assert "8 times fewer lines, random, 4 % of them in the middle" in said


# Baselines


def test_zero_filling_full_samples_gives_the_reference(scanned):
    image, target = scanned
    np.testing.assert_allclose(zero_filled(image), target, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coils", [4, 12])
def test_sense_is_nearer_than_zero_filling_for_any_number_of_coils(coils):
    image, target = scan(slices=1, coils=coils, noise=0.002)
    case = case_of(image, target)
    task = task_of(sampling={"acceleration": 4, "lines": "equispaced"}, metrics=["nmse"])
    prompt = task.prompt(case, task.read_images(case))
    plain, combined, solved = (
        task.score(case, task.ask(model, [prompt])[0])[0].value
        for model in (ZeroFilled(), SenseCombine(iterations=0), SenseCombine())
    )
    assert solved < 0.7 * plain
    assert combined < 1.3 * plain


def test_sensitivities_are_those_of_the_coils_where_there_is_signal():
    maps, image = maps_of(8), head(1)[0]
    samples = forward(maps * image)
    measured = np.ones((1, ROWS, COLUMNS), bool)
    found = sensitivities(samples, measured, (1, 2), 24)
    inside = image > 0.3
    agreement = np.abs((found.conj() * maps).sum(axis=0))[inside]
    assert np.median(agreement) > 0.99
    np.testing.assert_allclose(np.square(np.abs(found)).sum(axis=0)[inside], 1, atol=1e-4)
    measured[..., COLUMNS // 2] = False
    with pytest.raises(CaseError, match="the middle of k-space was not measured"):
        sensitivities(samples, measured, (1, 2), 24)


def test_settings_and_samples_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="at least 0"):
        SenseCombine(iterations=-1)
    with pytest.raises(CaseError, match="samples of k-space with named axes"):
        ZeroFilled().reconstruct([Prompt("a", (Image(np.ones((1, 4, 4)), np.eye(4)),))])


def test_any_function_is_a_reconstructor(scanned):
    image, _ = scanned
    model = FunctionReconstructor(lambda samples, axes: np.full(samples.shape[1:], len(axes)))
    assert isinstance(model, Reconstructor)
    (found,) = model.reconstruct([Prompt("a", (image,))])
    assert found.shape == (2, ROWS, COLUMNS)
    assert (found == 3).all()


def test_results_of_other_programs_are_read_from_hdf5_and_npy(tmp_path):
    image = np.arange(24.0).reshape(2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["reconstruction"] = image
    np.save(tmp_path / "b.npy", image)
    (found,) = PrecomputedReconstructions(str(tmp_path)).reconstruct([Prompt("a", ())])
    np.testing.assert_array_equal(found, image)
    (found,) = PrecomputedReconstructions(str(tmp_path), "{case}.npy").reconstruct([Prompt("b", ())])
    np.testing.assert_array_equal(found, image)
    with pytest.raises(CaseError, match=r"case 'c': .*c\.h5: no such file"):
        PrecomputedReconstructions(str(tmp_path)).reconstruct([Prompt("c", ())])
    with pytest.raises(UserError, match="no such folder"):
        PrecomputedReconstructions(str(tmp_path / "none"))
    with pytest.raises(UserError, match="in model.pattern"):
        PrecomputedReconstructions(str(tmp_path), "a.h5")


class Scale(torch.nn.Module):
    """Adds a share of what it is shown."""

    def __init__(self):
        super().__init__()
        self.share = torch.nn.Parameter(torch.zeros(()))

    def forward(self, pictures):
        return self.share * pictures


def test_a_network_adds_to_the_simple_reconstruction_and_learns(scanned):
    from medimg_eval.models.reconstruction.network import NetworkReconstructor

    image, target = scanned
    model = NetworkReconstructor(network=Scale(), slices_per_case=1)
    np.testing.assert_allclose(model.reconstruct([Prompt("a", (image,))])[0], zero_filled(image), rtol=1e-4, atol=1e-5)
    samples = model.training_samples(image, Image(2 * target[None], np.eye(4)), {}, seed=0)
    assert len(samples) == 1
    assert samples[0]["image"].shape == (1, ROWS, COLUMNS)
    assert float(samples[0]["image"].max()) == 1
    batch = {key: torch.stack([one[key] for one in samples]) for key in samples[0]}
    loss = model.training_loss(batch)
    loss.backward()
    assert float(model.network.share.grad) < 0  # twice as bright is right
    with pytest.raises(UserError, match="has no weights"):
        model.check_ready()
    with pytest.raises(UserError, match="zero_filled or sense, got 'none'"):
        NetworkReconstructor(network=Scale(), start="none")
    with pytest.raises(UserError, match="a network or its name, got int"):
        NetworkReconstructor(network=3)


def test_a_network_is_loaded_from_its_weights_and_may_start_from_sense(scanned, tmp_path):
    from medimg_eval.models.reconstruction.network import NetworkReconstructor

    image, _ = scanned
    made = Scale()
    torch.nn.init.constant_(made.share, 0.5)
    torch.save(made.state_dict(), tmp_path / "weights.pt")
    model = NetworkReconstructor(network=Scale(), checkpoint=str(tmp_path / "weights.pt"), start="sense")
    model.check_ready()
    (found,) = model.reconstruct([Prompt("a", (image,))])
    np.testing.assert_allclose(found, 1.5 * SenseCombine().combine(image), rtol=1e-4, atol=1e-4)


class Scans:
    """Seven scans of a layout, one of which a model cannot answer."""

    def cases(self, split):
        image, target = scan(slices=1, noise=0.002)
        return [case_of(image, target, name) for name in "abcdefg"]


class Fails(ZeroFilled):
    """Not on the second scan."""

    def reconstruct(self, prompts):
        if prompts[0].case_id == "b":
            raise ValueError("no")
        return super().reconstruct(prompts)


@pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_a_run_scores_every_scan_and_a_table_shows_intervals(tmp_path):
    task = task_of(
        Scans(), metrics=["psnr@fastmri", "ssim@wang"], splits={"test": "test"}, sampling={"acceleration": 4}
    )
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False)
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    folder = evaluate(task, ModelSpec("Z", Fails, {}, Fails), settings)
    check_rows("reconstruction", folder, rtol=1e-5)
    (run,) = load_runs([folder])
    found = run.scores.set_index(["case", "metric"])
    assert found.loc[("b", "psnr@fastmri"), "value"] == 0
    assert found.loc[("b", "psnr@fastmri"), "status"] == "failed"
    assert found.loc[("a", "ssim@wang"), "value"] > 0.5
    cell = build_table([run]).rows[0].cells[0]
    assert cell.low <= cell.mean <= cell.high

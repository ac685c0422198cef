"""Odd answers, odd references and odd files: what a reconstruction run makes of them from end to end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import h5py
import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from medimg_eval.case import Case, Geometry, Image, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics.reconstruction.metrics import psnr, ssim
from medimg_eval.models.base import Reconstructor
from medimg_eval.models.precomputed.images import PrecomputedReconstructions
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks.reconstruction import ReconstructionTask
from tests.helpers.running import evaluate, rescore

TRAINER = partial(
    pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False, logger=False
)
quiet = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


@dataclass(frozen=True)
class Held:
    """A reference that is already there."""

    value: Image

    @property
    def files(self):
        return ()

    def read(self):
        return self.value

    def geometry(self):
        return Geometry(self.value.array.shape[1:], np.eye(4), "pixel")


def picture(slices=2, rows=48, columns=40, seed=0):
    return np.random.default_rng(seed).random((slices, rows, columns)).astype(np.float32) + 0.1


def case_of(target, name="scan"):
    samples = Image(np.fft.fft2(target)[None].astype(np.complex64), np.eye(4), attributes={"axes": "slice ky kx"})
    return Case(name, (Held(samples),), Held(Image(target[None], np.eye(4), "MR", "pixel")))


class Scans:
    """Seven scans of several sizes."""

    def cases(self, split):
        return [case_of(picture(rows=48 + 2 * place, seed=place), f"scan{place}") for place in range(7)]


class Exact(Reconstructor):
    """The truth, plainly but for the first scan, which has noise."""

    def reconstruct(self, prompts):
        found = []
        for prompt in prompts:
            image = np.fft.ifft2(prompt.image.array[0]).real.astype(np.float32)
            right = picture(rows=image.shape[1], seed=int(prompt.case_id[-1]))
            found.append(image + 0.1 if prompt.case_id == "scan0" else right)
        return found


def task_of(layout=None, **settings):
    return ReconstructionTask(name="recon", layout=layout, **{"splits": {"test": "test"}, **settings})


def run_of(folder, task, model):
    settings = Settings(runs=folder, run=None, trainer=TRAINER, config={}, score_workers=0)
    return evaluate(task, ModelSpec(model.__name__, model, {}, model), settings)


# Answers


@pytest.mark.parametrize(
    "change",
    [
        lambda a: torch.from_numpy(a).requires_grad_(),
        lambda a: a.astype(np.float64),
        lambda a: a.astype(">f4"),
        np.asfortranarray,
        lambda a: a.astype(np.complex128),
        lambda a: a.tolist(),
        lambda a: torch.from_numpy(a)[None],
    ],
)
def test_an_answer_may_come_as_any_array(change):
    target = picture()
    task = task_of(metrics=["nmse"], monitor="nmse")
    kept = task.accept(case_of(target), change(target))
    assert kept.dtype in (np.float32, np.complex64)
    assert task.score(case_of(target), kept)[0].value == pytest.approx(0, abs=1e-12)


def test_single_bytes_and_half_precision_are_judged_as_numbers():
    target = picture()
    task = task_of(metrics=["nmse"], monitor="nmse")
    half = task.accept(case_of(target), target.astype(np.float16))
    assert half.dtype == np.float32
    assert 0 < task.score(case_of(target), half)[0].value < 1e-6
    assert task.accept(case_of(target), np.ones(target.shape, np.uint8)).dtype == np.float32


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.full((2, 48, 40), 1e300), "holds 3840 of 3840 values that are not finite"),
        (np.full((2, 48, 40), np.float16(np.inf)), "3840 of 3840 values that are not finite"),
        ([[1.0], [1.0, 2.0]], "is a list that is no array"),
        (None, "holds object"),
        ("image", "holds <U5"),
        (np.zeros((2, 0, 40)), r"has shape \(2, 0, 40\)"),
        (3.0, r"has shape \(\)"),
    ],
)
def test_an_answer_that_is_no_image_is_a_failure_of_that_case(answer, words):
    with pytest.raises(CaseError, match=rf"case 'scan': prediction .*{words}"):
        task_of().accept(case_of(picture()), answer)


# References


def test_a_reference_below_zero_has_no_range_by_its_largest_value():
    target = picture()
    for preset in ("wang", "fastmri", "skmtea"):
        with pytest.raises(ValueError, match=f"Expected magnitudes, for '{preset}' takes the largest value"):
            psnr(target - 0.5, target - 0.4, preset)
    assert psnr(target - 0.5, target - 0.4, "mcmrrec") > 0  # its range goes from the smallest value on
    assert psnr(target - 0.5, target - 0.4, data_range=1.0) == pytest.approx(20)
    assert ssim(target, target - 0.2, "wang") < 1  # a reconstruction may be below 0


def test_a_reference_in_colours_is_refused_and_not_judged_by_its_red():
    colours = Image(np.random.default_rng(0).random((3, 48, 40)), np.eye(4), "XC", "pixel")
    case = Case("photo", (Held(colours),), Held(colours))
    task = task_of(metrics=["psnr@fastmri"], monitor="psnr@fastmri")
    with pytest.raises(CaseError, match="case 'photo': the reference has 3 channels.*write it in grey"):
        task.score(case, colours.array[0].astype(np.float32))
    assert math.isnan(task.worst(case)[0].value)


def test_a_reference_that_a_metric_cannot_judge_counts_for_nobody():
    task = task_of(metrics=["psnr@wang", "ms_ssim@wang"], monitor="psnr@wang")
    case = case_of(picture())
    with pytest.raises(CaseError, match="case 'scan': Expected at least 176 rows and columns"):
        task.score(case, picture())
    assert [(one.status, math.isnan(one.value)) for one in task.worst(case)] == [("failed", True)] * 2
    fair = task_of(metrics=["psnr@wang"], monitor="psnr@wang")
    assert [one.value for one in fair.worst(case)] == [0]
    dark = case_of(np.stack([picture()[0], np.zeros((48, 40), np.float32)]))
    assert [math.isnan(one.value) for one in task_of(metrics=["ssim@skmtea"], monitor="nmse").worst(dark)] == [True]


# Runs


@pytest.fixture
def exact(tmp_path):
    return run_of(tmp_path / "runs", task_of(Scans(), metrics=["psnr@fastmri", "ssim@fastmri"]), Exact)


class TestRuns:
    """Of seven scans of several sizes, six of which are reconstructed to the last bit."""

    pytestmark = quiet

    def test_equal_images_have_no_psnr_and_are_counted(self, exact):
        (run,) = load_runs([exact])  # which refuses infinite values
        found = run.scores.set_index(["case", "metric"])["value"]
        assert found["scan0", "psnr@fastmri"] == pytest.approx(20 + 20 * math.log10(picture().max()), abs=1e-4)
        assert all(math.isnan(found[f"scan{place}", "psnr@fastmri"]) for place in range(1, 7))
        assert found["scan3", "ssim@fastmri"] == 1
        table = build_table([run])
        cell = table.rows[0].cells[0]
        assert (cell.undefined_cases, cell.mean) == (6, found["scan0", "psnr@fastmri"])
        assert "PSNR of equal images, which is infinite, left out as undefined" in run.signature

    def test_a_stored_image_that_was_cut_fails_alone_and_is_made_again_once_deleted(self, exact, tmp_path):
        task = task_of(Scans(), metrics=["psnr@fastmri", "ssim@fastmri", "nmse"])  # what is scored already is kept
        path = exact / "predictions" / "scan0.npy"
        path.write_bytes(path.read_bytes()[:-100])
        rescore(exact, task, workers=0)
        (run,) = load_runs([exact])
        rows = run.scores[run.scores["case"] == "scan0"]
        assert set(rows.loc[rows["metric"] == "nmse", "status"]) == {"failed"}
        said = (exact / "summary.json").read_text()
        assert "scan0.npy: cannot be read as a stored image" in said
        assert "delete it, and run test again" in said
        path.unlink()
        again = run_of(tmp_path / "runs", task, Exact)
        assert again == exact
        (run,) = load_runs([again])
        assert "failed" not in set(run.scores["status"])

    def test_something_else_in_the_place_of_a_stored_image_is_named(self, tmp_path):
        task, case = task_of(), case_of(picture())
        np.savez(tmp_path / "a.npz", image=picture())
        (tmp_path / "a.npz").rename(tmp_path / "a.npy")
        with pytest.raises(CaseError, match=r"a\.npy: cannot be read as a stored image"):
            task.score(case, tmp_path / "a.npy")
        np.save(tmp_path / "b.npy", np.array([None]), allow_pickle=True)
        with pytest.raises(CaseError, match=r"b\.npy: cannot be read as a stored image"):
            task.score(case, tmp_path / "b.npy")


# Results of other programs


def test_images_of_numpys_inverse_fft_are_brought_to_the_scale_of_an_orthonormal_one(tmp_path):
    image = np.arange(24.0).reshape(2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["reconstruction"] = image / np.sqrt(12)
    (found,) = PrecomputedReconstructions(str(tmp_path), fft="backward").reconstruct([Prompt("a", ())])
    np.testing.assert_allclose(found, image)
    with pytest.raises(UserError, match=r"model\.fft to be ortho or backward, got 'forward'"):
        PrecomputedReconstructions(str(tmp_path), fft="forward")

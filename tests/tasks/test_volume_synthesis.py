"""Volumes that were made: which slices are compared, whose they are, and what is refused."""

import json
import warnings
from functools import partial

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Image
from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import PictureFolder, PictureSets
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import reorient, write_image
from medimg_eval.imaging.video import write_video
from medimg_eval.instantiate import build_task
from medimg_eval.metrics.fidelity import frechet_distance
from medimg_eval.models import PrecomputedImages, TorchScriptVolumeEncoder
from medimg_eval.phantoms.prompts import HeadPrompts
from medimg_eval.results import load_runs
from medimg_eval.results.runs import set_rows
from medimg_eval.tasks.volume_synthesis import VolumeSlice, VolumeSynthesisTask, checked_volume, cut_slice
from tests.helpers.catalogue import composed
from tests.helpers.running import evaluate

RAMP = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)
"""Values by place: 12 x + 4 y + z."""


def volume(array=RAMP, affine=None):
    return Image(array[None], np.diag([1.0, 1.0, 1.0, 1.0]) if affine is None else affine, "MR")


def made_task(**changes):
    return build_task(composed("phantom_volume_synthesis") | {"expected": {}} | changes)


def test_a_slice_by_hand():
    # Of RAS axes: rows from anterior (y = 2) to posterior, columns from left; z = 1 of 4 lies at 0.25 to 0.5.
    pixels, step = cut_slice(volume(), "axial", 0.3, (0, 255))
    assert pixels.tolist() == [[9, 21], [5, 17], [1, 13]]
    assert step == 1
    # Rows from superior (z = 3), columns along y, at x = 1.
    assert cut_slice(volume(), "sagittal", 0.9, (0, 255))[0].tolist() == [
        [15, 19, 23], [14, 18, 22], [13, 17, 21], [12, 16, 20],
    ]  # fmt: skip
    assert cut_slice(volume(), "coronal", 0.5, (0, 255))[0].tolist() == [[7, 19], [6, 18], [5, 17], [4, 16]]


def test_pixels_become_square_and_the_window_is_cut():
    pixels, step = cut_slice(volume(affine=np.diag([1.0, 2.0, 1.0, 1.0])), "axial", 0.1, (4, 16))
    assert (pixels.shape, step) == ((6, 2), 1)  # 3 rows of 2 mm
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert not cut_slice(volume(), "axial", 0.1, (4, 4))[0].any()  # a constant volume is black


@given(
    codes=st.sampled_from(["RAS", "LPS", "SAR", "ILP", "PIR"]),
    plane=st.sampled_from(["axial", "coronal", "sagittal"]),
    share=st.floats(0, 1),
)
def test_how_a_volume_is_stored_does_not_matter(codes, plane, share):
    turned = reorient(volume(), codes)
    back = cut_slice(reorient(turned), plane, share, (0, 23))[0]
    np.testing.assert_array_equal(back, cut_slice(volume(), plane, share, (0, 23))[0])


def test_slices_are_those_of_nibabels_closest_canonical_image(tmp_path):
    rng = np.random.default_rng(0)
    affine = np.array([[0, -2.0, 0, 5], [0, 0, 2.0, -7], [-2.0, 0, 0, 9], [0, 0, 0, 1]])
    stored = nib.Nifti1Image(rng.integers(0, 1000, (9, 8, 7)).astype(np.int16), affine)
    nib.save(stored, tmp_path / "v.nii.gz")
    canonical = np.asarray(nib.as_closest_canonical(stored).dataobj)
    for place in range(4):
        cut = VolumeSlice("v", tmp_path / "v.nii.gz", False, "coronal", (place + 0.5) / 4, (0.0, 1000.0))
        plain = canonical[:, int((place + 0.5) / 4 * canonical.shape[1]), :]
        expected = np.rint(plain.T[::-1].astype(np.float32) / 1000 * 255).astype(np.uint8)
        np.testing.assert_array_equal(cut.read().array[0], expected)
        assert cut.read().affine[0, 0] == 2
    keys = {VolumeSlice("v", tmp_path / "v.nii.gz", False, "axial", share).key() for share in (0.1, 0.5, 0.1)}
    assert len(keys) == 2


def test_what_is_no_volume_is_refused():
    with pytest.raises(CaseError, match=r"expected an Image \(1, i, j, k\), got ndarray"):
        checked_volume(RAMP, "case 'a'")
    with pytest.raises(CaseError, match=r"got shape \(2, 3, 4\)"):
        checked_volume(Image(RAMP, np.eye(4)), "case 'a'")
    with pytest.raises(CaseError, match="expected finite numbers"):
        checked_volume(volume(np.full((2, 2, 2), np.nan)), "case 'a'")
    task = made_task(layout={"_target_": "medimg_eval.phantoms.prompts.HeadPrompts", "count": 4})
    case = task.cases("reference")[0]
    with pytest.raises(CaseError, match="holds 2 volumes, expected 1"):
        task.accept(case, [volume(), volume()])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slices": 0}, "task.slices: expected a whole number"),
        ({"planes": ["axial", "axial"]}, "each once"),
        ({"planes": ["axail"]}, "did you mean 'axial'"),
        ({"window": [400, -1000]}, "the smaller first"),
        ({"planes": ["whole", "axial"]}, "planes, or whole alone"),
        ({"metrics": ["pixel_distance", "frechet_distance@pixels"]}, "pixel_distance compare pictures"),
    ],
)
def test_invalid_settings_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        VolumeSynthesisTask(name="heads", layout=HeadPrompts(), **{"metrics": ["frechet_distance@pixels"], **changes})


def test_a_run_from_a_folder_of_volumes_judges_each_plane_and_resamples_patients(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = made_task(layout={"_target_": "medimg_eval.phantoms.prompts.HeadPrompts", "count": 8})
    assert isinstance(task, VolumeSynthesisTask)
    cases = task.cases("test")
    (tmp_path / "made").mkdir()
    for case in cases[:-1]:
        write_image(tmp_path / "made" / f"{case.id}.nii.gz", case.images[0].read())
    words = "test task=phantom_volume_synthesis task.layout.count=8 task.slices=2 model=precomputed_images "
    words += f"task.expected.test={len(cases)} task.expected.fit=4"
    metrics = "task.metrics=[generation_failure_rate,frechet_distance@pixels,coverage@pixels]"
    assert start([*words.split(), metrics, "model.root=made", 'model.pattern="{case}.nii.gz"', "run=run"]) == 1
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert [failure["case"] for failure in summary["failures"]] == [cases[-1].id]
    stored = sorted((tmp_path / "run/predictions").rglob("*.nii.gz"))
    assert len(stored) == len(cases) - 1
    rows = [row for row in set_rows(load_runs(["run"])[0]) if row.metric == "frechet_distance@pixels"]
    assert [dict(row.where) for row in rows] == [{}, {"plane": "axial"}, {"plane": "coronal"}, {"plane": "sagittal"}]
    assert [row.value.n_generated for row in rows] == [6 * len(stored), *[2 * len(stored)] * 3]
    capsys.readouterr()
    assert start(["table", "runs=[run]", "by=plane"]) == 0
    assert "coronal" in capsys.readouterr().out


def export_means(path):
    """A program that gives the mean of each channel, and that of the first frame."""

    class Means(torch.nn.Module):
        def forward(self, shown: torch.Tensor) -> torch.Tensor:
            return torch.cat([shown.mean(dim=(2, 3, 4)), shown[:, :, 0].mean(dim=(2, 3))], dim=1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises others than TorchScript
        torch.jit.script(Means()).save(str(path))


def distances(run):
    return [row for row in set_rows(load_runs([run])[0]) if row.metric.startswith("frechet_distance@")]


def test_whole_volumes_are_shown_once_to_a_network_of_three_dimensions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export_means("means.pt")
    task = made_task(layout={"_target_": "medimg_eval.phantoms.prompts.HeadPrompts", "count": 8})
    cases = task.cases("test")
    (tmp_path / "made").mkdir()
    for case in cases:
        write_image(tmp_path / "made" / f"{case.id}.nii.gz", case.images[0].read())
    words = "test task=phantom_volume_synthesis task.layout.count=8 task.planes=[whole] model=precomputed_images "
    words += f"model.root=made run=run task.expected.test={len(cases)} task.expected.fit=4 task.groups=[] "
    words += "task.metrics=[frechet_distance@i3d] extractors.i3d.weights=means.pt extractors.i3d.arguments=null"
    assert start([*words.split(), 'model.pattern="{case}.nii.gz"']) == 0, capsys.readouterr().err
    (row,) = distances("run")
    assert row.value.n_generated == len(cases)
    reference = [case.images[0].read() for case in task.cases("reference")]
    vectors = [[_shown_means(image) for image in images] for images in (reference, [c.images[0].read() for c in cases])]
    expected = frechet_distance(*vectors, interval=False).value
    assert row.value.value == pytest.approx(expected, rel=1e-3)
    assert "volumes whole" in json.loads((tmp_path / "run/manifest.json").read_text())["signature"]


def _shown_means(image):
    """What the program is given: values from 0 to 255 of three equal channels."""
    array = image.array.astype(float)
    grey = 255 * (array - array.min()) / (array.max() - array.min())
    return [grey.mean()] * 3 + [reorient(Image(grey, image.affine)).array[0, :, :, 0].mean()] * 3


def test_videos_that_were_made_are_compared_by_fvd(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export_means("means.pt")
    rng, held = np.random.default_rng(0), {}
    for name, count in (("real", 6), ("made", 4)):
        (tmp_path / name).mkdir()
        for number in range(count):
            frames = rng.integers(0, 200, (5, 16, 24, 3)).astype(np.uint8)
            write_video(tmp_path / name / f"{number}.mp4", frames, 5)
            held.setdefault(name, []).append([*frames.mean((0, 1, 2)), *frames[0].mean((0, 1))])
    task = VolumeSynthesisTask(
        name="films",
        layout=PictureSets(
            prompts=PictureFolder(root="made", videos=True, shown=False), real=PictureFolder(root="real", videos=True)
        ),
        splits={"test": "test", "reference": "reference"},
        planes=["whole"],
        metrics=["frechet_distance@i3d"],
        groups=[],
    )
    made, i3d = PrecomputedImages("made", "{case}.mp4"), {"weights": "means.pt", "shape": None, "values": (0, 255)}
    folder = evaluate(
        task,
        ModelSpec("made", PrecomputedImages, {"root": "made"}, lambda: made),
        Settings(
            *(tmp_path / "runs", None),
            trainer=partial(pl.Trainer, accelerator="cpu", enable_progress_bar=False, use_distributed_sampler=False),
            config={},
            score_workers=0,
            extractors={
                "i3d": ModelSpec("i3d", TorchScriptVolumeEncoder, i3d, lambda: TorchScriptVolumeEncoder(**i3d))
            },
        ),
    )
    (row,) = distances(folder)
    assert (row.value.n_generated, row.value.n_real) == (4, 6)
    assert row.value.value == pytest.approx(
        frechet_distance(held["real"], held["made"], interval=False).value, rel=1e-3
    )

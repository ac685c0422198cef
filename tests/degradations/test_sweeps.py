"""Sweeps: conditions of one run, of which the truth moves where the image does."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import Volumes
from medimg_eval.models import Segmenter
from medimg_eval.results import load_runs
from medimg_eval.tasks import SegmentationTask
from medimg_eval.viewer.scene import CaseView
from tests.helpers.printed import said


class Threshold(Segmenter):
    """Label 1 where values lie above 200."""

    uses_torch = False

    def segment(self, prompts):
        """Returns a label map for each prompt."""
        return [(prompt.images[0].array[0] > 200).astype(np.uint8) for prompt in prompts]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scans(folder):
    for number in range(3):
        pixels = np.full((24, 24, 24), 10, np.int16)
        pixels[9:15, 8 + number : 15 + number, 9:15] = 400
        for kind, array in (("image", pixels), ("mask", (pixels > 200).astype(np.uint8))):
            (folder / "scans" / kind).mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(array, np.eye(4)), folder / "scans" / kind / f"c{number}.nii.gz")
    return folder


@pytest.mark.slow
def test_the_truth_moves_with_the_image_and_blur_leaves_it(scans):
    layout = Volumes(root="scans", image="image/{case}.nii.gz", mask="mask/{case}.nii.gz")
    task = SegmentationTask(name="blocks", labels={1: "block"}, layout=layout, metrics=["dice"])
    run = me.test(task, Threshold(), run="run", conditions=["mri_affine-1", "mri_elastic-1", "mri_smoothing-5"])
    mean = run.scores.groupby("condition").value.mean()
    assert mean[""] == 1
    # Borders of a block of 6 voxels are interpolated; a truth that had stayed would leave a Dice below 0.5.
    assert mean["mri_affine-1"] > 0.8
    assert mean["mri_elastic-1"] > 0.8
    assert mean["mri_smoothing-5"] < 1
    again = me.test(task, Threshold(), run="run", conditions=["mri_affine-1", "mri_elastic-1", "mri_smoothing-5"])
    assert again.scores.value.tolist() == run.scores.value.tolist()


@pytest.mark.slow
def test_a_condition_that_changes_nothing_is_told(folder):
    pixels = np.full((12, 12, 6), 10, np.int16)
    pixels[4:8, 4:8, 2:4] = 400
    for kind, array in (("image", pixels), ("mask", (pixels > 200).astype(np.uint8))):
        (folder / "scans" / kind).mkdir(parents=True)
        nib.save(nib.Nifti1Image(array, np.diag([1, 1, 10, 1])), folder / "scans" / kind / "a.nii.gz")
    layout = Volumes(root="scans", image="image/{case}.nii.gz", mask="mask/{case}.nii.gz", modality="CT")
    task = SegmentationTask(name="blocks", labels={1: "block"}, layout=layout, metrics=["dice"])
    me.test(task, Threshold(), run="run", conditions=["ct_thick_slices-5", "ct_soft_kernel-5"])
    told = [note for note in load_runs([folder / "run"])[0].notes if "changes nothing" in note]
    assert told == ["condition ct_thick_slices-5 changes nothing here: answers that are about cases as published: 1"]


@pytest.mark.slow
def test_a_report_shows_the_worst_conditions_of_a_case_beside_it_as_published(scans):
    layout = Volumes(root="scans", image="image/{case}.nii.gz", mask="mask/{case}.nii.gz")
    task = SegmentationTask(name="blocks", labels={1: "block"}, layout=layout, metrics=["dice"])
    me.test(task, Threshold(), run="run", conditions=["mri_affine-1", "mri_smoothing-1", "mri_smoothing-5"])
    runs = {run.name: run for run in load_runs([scans / "run"])}
    scene = CaseView(task, runs).scene("c0", scans / "seen")
    assert scene["problems"] == []
    clean, *degraded = scene["pictures"]
    assert sorted(picture["title"].split(" ")[0] for picture in degraded) == ["mri_affine-1", "mri_smoothing-5"]
    assert [picture["beside"] for picture in degraded] == [0, 0]
    assert all("as published 1)" in picture["title"] for picture in degraded)
    moved = next(picture for picture in degraded if picture["title"].startswith("mri_affine"))
    assert moved["masks"]["truth"] != scene["masks"]["truth"]  # the truth has moved with what is shown
    assert moved["masks"]["models"][0] is not None
    assert clean["title"] == "Image"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("degrade=mri_gosting", "mri_ghosting"),
        ("degrade=suite/mrii", "got 'mrii'"),
        ("degrade=mri_affine severities=9", "expected severities from 0 to 5"),
        (
            "degrade=mri_affine severities=1 conditions=[mri_affine-1]",
            "conditions and degrade both name 'mri_affine-1'",
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_said_before_anything_is_asked(words, told, folder, capsys):
    assert start(["test", "task=brain_tissue", "model=gaussian_mixture", *words.split()]) != 0
    assert told in said(capsys)[1]

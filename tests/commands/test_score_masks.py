"""`score masks=DIR references=DIR`: folders of label maps, scored in one line."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK
from PIL import Image as Picture

from medimg_eval.case import Image, Mask
from medimg_eval.commands.cli import start
from medimg_eval.imaging.dicom.writing.images import write_segmentation, write_series
from medimg_eval.metrics import available, registry
from medimg_eval.results import load_runs
from tests.helpers.printed import said

CASES = ("a", "b", "c", "d", "e", "f")


def volume(shift=0):
    """A box of label 1, 4 x 4 x 4 voxels, and one of label 3."""
    labels = np.zeros((12, 10, 8), np.uint8)
    labels[2 + shift : 6 + shift, 2:6, 2:6] = 1
    labels[8, 7:9, 1] = 3
    return labels


def write(path, labels, spacing=1.0):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".nii.gz"):
        nib.save(nib.Nifti1Image(labels, np.diag([-spacing, -spacing, spacing, 1])), path)
    elif path.suffix == ".png":
        Picture.fromarray(labels).save(path)
    else:
        # ITK counts axes from the right to the left and from front to back, NIfTI the other way round.
        image = SimpleITK.GetImageFromArray(labels.T)
        image.SetSpacing((spacing,) * 3)
        SimpleITK.WriteImage(image, path)


def fill(folder, shift=0, ending=".nii.gz", cases=CASES):
    for case in cases:
        write(f"{folder}/{case}{ending}", volume(shift))


def scores(metric="dice", label=None):
    """By model: case -> value."""
    found = {}
    for run in load_runs([one.parent for one in Path().glob("runs/masks/*/manifest.json")]):
        rows = run.scores[run.scores["metric"] == metric]
        rows = rows if label is None else rows[rows["label"] == label]
        found[run.model] = dict(zip(rows["case"], rows["value"], strict=True))
    return found


def test_two_folders_are_scored_in_one_line(folder, capsys):
    fill("right")
    fill("mine", shift=1)
    assert start(["score", "masks=mine", "references=right", "metrics=[dice]"]) == 0
    out, _ = said(capsys)
    # Label 1: 48 of 64 voxels agree, 2 * 48 / 128; label 3 is equal; without names these are the values.
    assert "0.875" in out
    assert scores(label="label 1") == {"mine": dict.fromkeys(CASES, 0.75)}
    assert scores(label="label 3") == {"mine": dict.fromkeys(CASES, 1.0)}


@pytest.mark.parametrize("ending", [".mha", ".nrrd"])
def test_formats_may_differ(folder, ending):
    fill("right")
    fill("mine", shift=1, ending=ending)
    assert start(["score", "masks=mine/", "references=right/", "metrics=[dice]"]) == 0
    assert scores(label="label 1")["mine"] == dict.fromkeys(CASES, 0.75)


def test_pictures_are_judged_in_pixels(folder):
    picture = np.zeros((20, 20), np.uint8)
    picture[5:10, 5:10] = 255
    for case in CASES:
        write(f"right/{case}.png", picture)
        write(f"mine/{case}.png", np.roll(picture, 2, axis=0))
    assert start(["score", "masks=mine", "references=right", "metrics=[dice,hd95]"]) == 0
    assert scores(label="foreground")["mine"] == dict.fromkeys(CASES, 0.6)
    assert set(scores("hd95")["mine"].values()) == {2.0}


def test_several_models_are_compared_and_ranked(folder, capsys):
    fill("right")
    fill("a")
    fill("b", shift=2)
    assert start(["score", "masks={nnunet: a, mine: b}", "references=right", "metrics=[dice]"]) == 0
    out, _ = said(capsys)
    assert "Wilcoxon" in out
    assert "Mean rank" in out
    assert set(scores()) == {"nnunet", "mine"}


def test_folders_of_a_cross_validation_are_one_model(folder):
    fill("right")
    fill("trained/fold_0/validation", shift=1, cases=CASES[:3])
    fill("trained/fold_1/validation", cases=CASES[3:])
    assert start(["score", "masks=trained", "references=right", "metrics=[dice]"]) == 0
    assert list(scores(label="label 1")["trained"].values()) == [0.75] * 3 + [1.0] * 3


@pytest.mark.parametrize(
    "labels",
    [{"background": 0, "liver": 1, "cyst": 3}, {"0": "background", "1": "liver", "3": "cyst"}],
)
def test_names_come_from_the_dataset_of_nnunet(folder, labels):
    fill("Dataset001/labelsTs")
    fill("mine")
    Path("Dataset001/dataset.json").write_text(json.dumps({"labels": labels}))
    assert start(["score", "masks=mine", "references=Dataset001/labelsTs", "metrics=[dice]"]) == 0
    assert set(scores(label="cyst")["mine"]) == set(CASES)


def test_labels_may_be_named(folder):
    fill("right")
    fill("mine")
    assert start(["score", "masks=mine", "references=right", "labels={1: liver, 3: cyst}", "metrics=[dice]"]) == 0
    assert set(scores(label="liver")["mine"]) == set(CASES)


def test_what_has_no_partner_is_named(folder, capsys):
    fill("right", cases=(*CASES, "g"))
    fill("mine", cases=(*CASES, "stray"))
    assert start(["score", "masks=mine", "references=right", "metrics=[dice]"]) == 1
    out, err = said(capsys)
    assert "1 masks of mine belong to no case and are left out: stray" in out
    assert "1 cases have no masks of mine and count at the worst value; cases=TABLE leaves them out: g" in out
    assert "holds no label map of case 'g'" in err
    assert scores(label="label 1")["mine"]["g"] == 0


def test_a_table_chooses_cases_and_divides_them(folder, capsys):
    fill("right", cases=(*CASES, "g"))
    fill("mine", shift=1)
    rows = [f"{case},p{number // 2},{'ct' if number < 2 else 'mr'}" for number, case in enumerate(CASES)]
    Path("cases.csv").write_text("\n".join(["case,patient,scanner", *rows]))
    words = ["score", "masks=mine", "references=right", "cases=cases.csv", "by=scanner", "metrics=[dice]"]
    assert start(words) == 0
    out, _ = said(capsys)
    assert "│ ct" in out
    assert set(scores()["mine"]) == set(CASES)
    assert "3 patients" in out


def test_other_grids_are_refused_unless_resampling_is_asked_for(folder, capsys):
    fill("right")
    coarse = np.zeros((6, 5, 4), np.uint8)
    coarse[1:3, 1:3, 1:3] = 1
    for case in CASES:
        path = Path(f"mine/{case}.nii.gz")
        path.parent.mkdir(exist_ok=True)
        # Voxels of 2 mm whose outer faces are those of the reference.
        affine = np.diag([-2.0, -2, 2, 1])
        affine[:3, 3] = [-0.5, -0.5, 0.5]
        nib.save(nib.Nifti1Image(coarse, affine), path)
    words = ["score", "masks=mine", "references=right", "labels={1: liver, 3: cyst}", "metrics=[dice]"]
    assert start(words) == 1
    assert "shape" in said(capsys)[1]
    assert start([*words, "resample=nearest", "runs=other"]) == 0
    out, _ = said(capsys)
    assert "resampled" in out
    (run,) = load_runs([one.parent for one in Path().glob("other/masks/*/manifest.json")])
    liver = run.scores[run.scores["label"] == "liver"]
    assert set(liver["value"]) == {1.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["masks=mine"], "masks= needs references=, the folder of label maps"),
        (["masks=nowhere", "references=right"], "nowhere: no such folder of label maps"),
        (
            ["masks=other", "references=right"],
            "masks of other: no case is one of the references; there is 'x', among the references 'a'",
        ),
        (["masks=mine", "references=right", "resample=linear"], "resample must be nearest"),
        (["masks=mine", "references=empty"], "empty: holds no label maps; their names end in .nii.gz"),
        (["masks=[mine,deep/mine]", "references=right"], "masks=mine, deep/mine: two have the same name"),
        (["masks=mine", "reports=x.csv"], "name what to score"),
        (["masks=mine", "references=twice"], "stands for case 'a'"),
        (["masks=mine", "references=mixed"], "mixed: holds pictures, such as p.png, and volumes, such as a.nii.gz"),
        (["masks=mine", "references=right", "labels=regions.json"], "expected 'labels' to be names with integers"),
        (["masks=mine", "references=right", "cases=cases.csv"], "cases.csv: 1 cases have no label map in right: z"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_mend(folder, capsys, words, message):
    fill("right")
    for name in ("mine", "deep/mine"):
        fill(name)
    fill("other", cases=("x",))
    fill("twice")
    fill("mixed", cases="a")
    write("mixed/p.png", np.ones((12, 10), np.uint8))
    write("twice/a.mha", volume())
    Path("empty").mkdir()
    Path("regions.json").write_text(json.dumps({"labels": {"liver": "one"}}))
    Path("cases.csv").write_text("case\nz\n")
    assert start(["score", *words]) != 0
    assert message in said(capsys)[1]


def test_a_reference_that_is_all_background_needs_names(folder, capsys):
    for case in CASES:
        write(f"right/{case}.nii.gz", volume() * 0)
    fill("mine")
    assert start(["score", "masks=mine", "references=right"]) == 1
    assert "labels={1: liver}" in said(capsys)[1]


def test_masks_that_changed_are_scored_anew(folder):
    fill("right")
    fill("mine", shift=1)
    words = ["score", "masks=mine", "references=right", "labels={1: liver, 3: cyst}", "metrics=[dice]"]
    assert start(words) == 0
    fill("mine")
    assert start(words) == 0
    values = [
        set(run.scores[run.scores["label"] == "liver"]["value"]) for run in load_runs([*Path("runs/masks").iterdir()])
    ]
    assert {1.0} in values


def test_regions_of_nnunet_are_judged_as_it_judges_them(folder):
    fill("right")
    fill("mine", shift=1)
    Path("right/dataset.json").write_text(
        json.dumps({"labels": {"background": 0, "whole": [1, 3], "cyst": 3}, "regions_class_order": [1, 3]})
    )
    assert start(["score", "masks=mine", "references=right", "metrics=[dice]"]) == 0
    # Of the 66 voxels of either side 64 - 16 + 2 agree.
    assert set(scores(label="whole")["mine"].values()) == {50 / 66}
    assert set(scores(label="cyst")["mine"].values()) == {1.0}


@pytest.mark.parametrize("words", [[], ["resample=nearest"]])
def test_a_dicom_seg_lies_on_the_grid_of_its_reference(folder, words):
    pytest.importorskip("highdicom")
    grid = np.diag([-1.0, -1, 1, 1])
    for case in CASES:
        write(f"right/{case}.nii.gz", volume())
        series = write_series(Path(f"series/{case}"), Image(np.zeros((1, 12, 10, 8), np.int16), grid))
        Path(f"mine/{case}").mkdir(parents=True)
        mask = Mask(volume(shift=1), grid)
        write_segmentation(Path(f"mine/{case}/seg.dcm"), mask, series, names={1: "liver", 3: "cyst"})
    labels = "labels={1: liver, 3: cyst}"  # the file's numbers of segments are 1 and 2
    assert start(["score", "masks=mine", "references=right", labels, "metrics=[dice]", *words]) == 0
    assert scores(label="liver")["mine"] == dict.fromkeys(CASES, 0.75)
    assert scores(label="cyst")["mine"] == dict.fromkeys(CASES, 1.0)


def test_a_metric_of_the_working_folder_is_named_with_its_module(folder, monkeypatch, capsys):
    fill("right")
    fill("mine", shift=1)
    Path("size_metrics.py").write_text(
        "from medimg_eval.metrics import metric\n\n\n"
        '@metric(kind="mask", title="Size ratio", higher_is_better=True, best=1.0, worst=0.0, source="this test")\n'
        "def half_size(pair):\n"
        '    """Half the smaller of both sizes over the larger."""\n'
        "    return 0.5 * min(pair.reference_size, pair.prediction_size) / max(pair.reference_size, 1)\n"
    )
    monkeypatch.syspath_prepend(folder)  # as `python -m` has it
    monkeypatch.setattr(registry, "_METRICS", available())
    words = ["score", "masks=mine", "references=right", "metrics=[size_metrics.half_size,dice]", "score_workers=2"]
    assert start(words) == 0
    assert "Size ratio ↑" in said(capsys)[0]
    assert scores("size_metrics.half_size", "label 1")["mine"] == dict.fromkeys(CASES, 0.5)
    # A process that has not imported it shows its values, and knows which are better.
    monkeypatch.setattr(registry, "_METRICS", {name: one for name, one in available().items() if "half" not in name})
    assert start(["table", "runs=runs"]) == 0
    assert "size_metrics.half_size ↑" in said(capsys)[0]
    (run,) = Path("runs/masks").iterdir()
    assert start(["score", f"run={run}", "metrics=[iou]"]) == 1
    assert "would run size_metrics.half_size" in said(capsys)[1]

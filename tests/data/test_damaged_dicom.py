"""A tree of DICOM series of which one is damaged: its case fails by its own name, and all others are scored."""

import json
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pydicom
import pytest
from answering import Thresholds

from medimg_eval.case import Image, Mask
from medimg_eval.data.layouts import DicomTree, ReferencedMask
from medimg_eval.data.targets import MaskTarget
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import write_mask
from medimg_eval.imaging.dicom.series.index import index_tree
from medimg_eval.imaging.dicom.writing.images import write_picture, write_segmentation, write_series
from medimg_eval.tasks import SegmentationTask
from tests.conftest import LABELS, ellipsoid
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

CASES = 3
AFFINE = np.array([[-1.0, 0, 0, 10], [0, -1, 0, 20], [0, 0, 2.5, -30], [0, 0, 0, 1]])


@pytest.fixture
def tree(tmp_path):
    """A series in a folder each, the truth as NIfTI and as DICOM-SEG in other folders; the files of each series."""
    files = []
    for number in range(CASES):
        labels = ellipsoid(number)
        image = Image(np.choose(labels, [0, 100, 200])[None].astype(np.int16), AFFINE, modality="MR")
        paths = write_series(
            tmp_path / "tree" / f"case{number}", image, seed=number, patient=f"P{number}", modality="MR"
        )
        write_segmentation(
            tmp_path / "tree" / "objects" / f"seg{number}.dcm",
            Mask(labels, AFFINE),
            paths,
            names=LABELS,
            kind="LABELMAP",
        )
        (tmp_path / "labels").mkdir(exist_ok=True)
        write_mask(tmp_path / "labels" / f"case{number}.nii.gz", Mask(labels, AFFINE))
        files.append(sorted(paths))
    return tmp_path / "tree", files


def layout(root, tmp_path, target=None, **settings):
    arguments = {
        "id": "{folder}", "filters": {"modality": "MR"}, "target": target or MaskTarget("../labels/{folder}.nii.gz")
    }  # fmt: skip
    return DicomTree(root=str(root), cache=str(tmp_path / "index"), **(arguments | settings))


def scored(found, tmp_path):
    """Runs a task on a layout; returns the failures by case, and the scores of every case."""
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    task = SegmentationTask(name="tree", layout=found, labels=LABELS, metrics=["dice", "nsd@1"])
    folder = evaluate(task, ModelSpec("Thresholds", Thresholds, {}, load=Thresholds), settings)
    failures = json.loads((folder / "summary.json").read_text())["failures"]
    frame = pd.read_parquet(folder / "scores.parquet")
    return {one["case"]: one["message"] for one in failures}, frame


def edited(path, edit):
    dataset = pydicom.dcmread(path)
    edit(dataset)
    dataset.save_as(path)


BROKEN = {
    "pixels cut short": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "header cut short": lambda path: path.write_bytes(path.read_bytes()[:900]),
    "header cut before it says anything": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "header overwritten": lambda path: path.write_bytes(bytes(128) + b"DICM" + bytes(path.stat().st_size - 132)),
    "no bytes": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("<html>502 Bad Gateway</html>"),
    "link": lambda path: (path.unlink(), path.symlink_to("gone")),
    "no position": lambda path: edited(path, lambda dataset: delattr(dataset, "ImagePositionPatient")),
    "no orientation": lambda path: edited(path, lambda dataset: delattr(dataset, "ImageOrientationPatient")),
    "no spacing": lambda path: edited(path, lambda dataset: delattr(dataset, "PixelSpacing")),
    "no pixels": lambda path: edited(path, lambda dataset: delattr(dataset, "PixelData")),
    "other rows": lambda path: edited(path, lambda dataset: setattr(dataset, "Rows", dataset.Rows - 2)),
    "other columns": lambda path: edited(path, lambda dataset: setattr(dataset, "Columns", dataset.Columns + 1)),
}


@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_slice_neither_splits_its_series_nor_takes_others_along(tree, tmp_path, kind, place):
    root, files = tree
    broken = files[1][place]
    whole = layout(root, tmp_path, id="{series}", target=MaskTarget("{folder}")).cases("test")
    BROKEN[kind](broken)
    for again in range(2):  # from the tree, and from what is remembered of it
        cases = layout(root, tmp_path, id="{series}", target=MaskTarget("{folder}")).cases("test")
        assert [case.id for case in cases] == [case.id for case in whole], again
        assert [case.patient for case in cases] == [case.patient for case in whole]
        assert [case.images[0].files for case in cases] == [case.images[0].files for case in whole]
    for case in cases:
        if broken not in case.images[0].files:
            case.images[0].read()
            continue
        for call in (case.images[0].read, case.images[0].geometry):
            with pytest.raises(CaseError, match=broken.name):
                call()


@pytest.mark.parametrize("kind", ["pixels cut short", "header overwritten", "text", "no position", "other rows"])
def test_the_case_that_was_meant_counts_at_its_worst(tree, tmp_path, kind):
    root, files = tree
    BROKEN[kind](files[1][-1])
    failures, frame = scored(layout(root, tmp_path), tmp_path)
    assert list(failures) == ["case1"], failures
    assert str(files[1][-1]) in failures["case1"]
    assert sorted(frame["case"].unique()) == ["case0", "case1", "case2"]
    assert (frame[frame["case"] == "case1"]["value"] == 0).all()
    assert (frame[frame["case"] != "case1"]["value"] == 1).all()


def test_a_series_that_is_damaged_throughout_is_one_case(tree, tmp_path):
    root, files = tree
    for path in files[1]:
        path.write_bytes(path.read_bytes()[:200])
    failures, frame = scored(layout(root, tmp_path), tmp_path)
    assert list(failures) == ["case1"]
    assert sorted(frame["case"].unique()) == ["case0", "case1", "case2"]


def test_what_is_drawn_on_a_damaged_series_fails_with_it(tree, tmp_path):
    root, files = tree
    BROKEN["pixels cut short"](files[1][-1])
    failures, frame = scored(layout(root, tmp_path, ReferencedMask({1: "core", 2: "rim"})), tmp_path)
    assert list(failures) == ["case1"]
    assert str(files[1][-1]) in failures["case1"]
    assert (frame[frame["case"] != "case1"]["value"] == 1).all()


@pytest.mark.parametrize("kept", [-40, 200, 0])
@pytest.mark.parametrize("unlabelled", ["raise", "skip"])
def test_a_damaged_segmentation_costs_one_case(tree, tmp_path, kept, unlabelled):
    root, _ = tree
    broken = root / "objects" / "seg1.dcm"
    broken.write_bytes(broken.read_bytes()[:kept])
    found = layout(root, tmp_path, ReferencedMask({1: "core", 2: "rim"}), unlabelled=unlabelled)
    failures, frame = scored(found, tmp_path)
    assert len(failures) == 1
    assert str(broken) in next(iter(failures.values()))
    assert len(frame["case"].unique()) == CASES
    if unlabelled == "raise":
        assert list(failures) == ["case1"]


def test_in_a_folder_of_all_series_the_rest_of_the_header_or_its_neighbours_say_which_is_meant(tree, tmp_path):
    _, files = tree
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, paths in enumerate(files):
        for place, path in enumerate(paths):
            (flat / f"{number}_{place}.dcm").write_bytes(path.read_bytes())
    (flat / "1_0.dcm").write_bytes((flat / "1_0.dcm").read_bytes()[:-40])
    (flat / "2_3.dcm").write_text("words")
    names = [{path.name for path in one.paths} for one in index_tree(flat, cache=tmp_path / "i").entries]
    assert sorted(map(len, names)) == [len(paths) for paths in files]
    assert [one for one in names if "1_0.dcm" in one] == [{f"1_{place}.dcm" for place in range(len(files[1]))}]
    assert [one for one in names if "2_3.dcm" in one] == [{f"2_{place}.dcm" for place in range(len(files[2]))}]


def test_a_broken_picture_among_pictures_is_the_case_it_was(tmp_path):
    root = tmp_path / "xrays"
    for number, name in enumerate(("a1", "b2", "c3")):
        pixels = np.full((1, 8, 9), 50 * number + 1, np.uint16)
        write_picture(root / f"{name}.dcm", Image(pixels, np.eye(4)), modality="CR", seed=number, patient=name)
    for content in (b"", b"words", (root / "b2.dcm").read_bytes()[:200]):
        (root / "b2.dcm").write_bytes(content)
        found = layout(root, tmp_path, MaskTarget("{stem}.png"), id="{stem}", filters={"modality": "CR"})
        cases = found.cases("test")
        assert sorted(case.id for case in cases) == ["a1", "b2", "c3"]
        (broken,) = (case for case in cases if case.id == "b2")
        with pytest.raises(CaseError, match=r"b2\.dcm"):
            broken.images[0].read()


def test_a_scout_of_the_same_series_stays_an_image_by_itself(tree, tmp_path):
    root, files = tree

    def turn(dataset):
        dataset.ImageOrientationPatient = [0, 1, 0, 0, 0, -1]
        dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"

    (root / "case0" / "scout.dcm").write_bytes(files[0][0].read_bytes())
    edited(root / "case0" / "scout.dcm", turn)
    counts = [len(one.paths) for one in index_tree(root, cache=tmp_path / "i").series(modality="MR")]
    assert sorted(counts) == [1, *(len(paths) for paths in files)]

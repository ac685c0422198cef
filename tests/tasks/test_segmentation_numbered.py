"""Segmentation whose objects are numbered: what is accepted, stored, read back and judged."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.case import Case, Image, Mask, Prompt
from medimg_eval.data import targets
from medimg_eval.data.layouts import Coco
from medimg_eval.data.records import Entry, Row
from medimg_eval.data.resized import ResizedMask
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import read_mask, reorient, resample, write_mask
from medimg_eval.imaging.files import MaskFile
from medimg_eval.models import Precomputed
from medimg_eval.tasks import SegmentationTask


@dataclass(frozen=True)
class Known:
    """Something in memory, as a case refers to it."""

    value: Image | Mask
    files: tuple[Path, ...] = (Path("cells.png"),)

    def read(self):
        return self.value

    def geometry(self):
        return self.value.geometry


TOUCHING = np.array([[1, 1, 2, 2, 0, 0], [1, 1, 2, 2, 0, 3]])


def mask(numbers, labels=None):
    numbers = np.asarray(numbers)
    labels = (numbers > 0).astype(np.uint8) if labels is None else np.asarray(labels)
    return Mask(labels, np.eye(4), units="pixel", instances=numbers)


def case(truth=TOUCHING):
    image = Image(np.zeros((1, 2, 6), np.uint8), np.eye(4), units="pixel")
    return Case("a", (Known(image),), Known(truth if isinstance(truth, Mask) else mask(truth)))


def task(**settings):
    layout = type("Fixed", (), {"cases": lambda self, split: [case()]})()
    settings = {"instances": "given", "metrics": ["pq", "pooled_pq"], **settings}
    return SegmentationTask(name="cells", layout=layout, labels={1: "nucleus", 2: "other"}, **settings)


def test_a_mask_that_merges_two_objects_is_judged_by_its_numbers():
    merged = mask(np.where(TOUCHING > 0, 1, 0))
    by_source = {
        source: next(score.value for score in task(instances=source).score(case(), merged) if score.metric == "pq")
        for source in ("given", "components")
    }
    # By components both masks fall into the same two parts. By number, one object of nine pixels is predicted, and
    # its IoU with the three of four, four and one is at most 4 / 9.
    assert by_source == {"given": 0, "components": 1}


def test_what_is_stored_is_what_was_answered(tmp_path):
    answer = mask([[7, 7, 7, 9, 0, 0]] * 2, [[1, 1, 1, 2, 0, 0]] * 2)
    codec = task().codec
    stored = codec.write(tmp_path, "a", answer)
    read = codec.read(stored)
    np.testing.assert_array_equal(read.labels, answer.labels)
    np.testing.assert_array_equal(read.instances, answer.instances)
    assert [tuple(one) for one in task().score(case(), stored)] == [tuple(one) for one in task().score(case(), answer)]


def test_numbers_too_large_for_a_file_are_made_small(tmp_path):
    stored = task().codec.write(tmp_path, "a", mask(np.where(TOUCHING > 0, TOUCHING + 10**12, 0)))
    np.testing.assert_array_equal(task().codec.read(stored).instances, TOUCHING)
    with pytest.raises(CaseError, match="a mask of 3 objects cannot be stored; at most 2 can"):
        write_mask(tmp_path / "b.nii.gz", mask(TOUCHING), objects=3)


def test_answers_without_numbers_are_refused_before_they_are_stored():
    plain = replace(mask(TOUCHING), instances=None)
    for answer in (plain, plain.labels):
        with pytest.raises(CaseError, match=r"numbers no objects, which task\.instances=given judges; give Mask"):
            task().accept(case(), answer)
    partly = mask(np.where(TOUCHING == 3, 0, TOUCHING), (TOUCHING > 0).astype(np.uint8))
    with pytest.raises(CaseError, match="holds 1 voxels of labels that belong to no numbered object"):
        task().accept(case(), partly)


def test_a_reference_without_numbers_judges_nobody():
    bare = case(replace(mask(TOUCHING), instances=None))
    with pytest.raises(CaseError, match=r"the reference \(cells.png\) numbers no objects"):
        task().score(bare, mask(TOUCHING))
    assert all(np.isnan(score.value) for score in task().worst(bare))


def test_a_case_without_an_answer_misses_every_object():
    scores = {(one.label, one.metric): one.value for one in task().worst(case())}
    assert scores["nucleus", "instances_missed"] == 3
    assert scores["nucleus", "pq"] == 0


def test_probabilities_number_nothing():
    with pytest.raises(UsageError, match="judges probabilities, which number no instances"):
        task(metrics=["pq", "soft_dice"])


def test_the_signature_and_the_run_say_it():
    assert "instances: as numbered in the masks" in task().signature()
    assert task().asked == {"numbered": True}
    assert task(instances={}).asked == {}


@pytest.mark.parametrize(
    ("stored", "objects", "labels", "numbers"),
    [
        ([[0, 5, 5, 9]], "values", [[0, 1, 1, 1]], [[0, 5, 5, 9]]),
        ([[0, 1002, 1002, 2001]], 1000, [[0, 1, 1, 2]], [[0, 2, 2, 1]]),
    ],
)
def test_files_of_numbered_objects(tmp_path, stored, objects, labels, numbers):
    path = tmp_path / "c.png"
    Pillow.fromarray(np.array(stored, np.uint16)).save(path)
    read = read_mask(path, objects=objects)
    assert (read.labels.tolist(), read.instances.tolist()) == (labels, numbers)
    assert read_mask(path).instances is None
    reference = MaskFile(path, {"objects": objects})
    assert reference.geometry().shape == reference.read().labels.shape
    recoded = targets.MaskTarget("{case}.png", values={1: 2}, others="background", options={"objects": objects})
    made = recoded.reference(Entry("c", tmp_path, (Row(path, "", {}),))).read()
    assert made.labels.tolist() == np.where(np.array(labels) == 1, 2, 0).tolist()
    assert made.instances.tolist() == np.where(np.array(labels) == 1, numbers, 0).tolist()
    answered = Precomputed(str(tmp_path), "{case}.png", objects=objects).segment([Prompt("c", ())])[0]
    assert answered.instances.tolist() == numbers


@pytest.mark.parametrize("objects", ["labels", 1, True, 0, 2.5])
def test_objects_that_cannot_be_meant(tmp_path, objects):
    Pillow.fromarray(np.ones((2, 2), np.uint8)).save(tmp_path / "c.png")
    with pytest.raises(UsageError, match="expected objects to be 'values' or a whole number"):
        read_mask(tmp_path / "c.png", objects=objects)


def test_negative_values_are_no_objects(tmp_path):
    write_mask(tmp_path / "c.nii.gz", Mask(np.array([[0, -3]]), np.eye(4)))
    with pytest.raises(CaseError, match=r"c\.nii\.gz: holds -3, and numbers of objects are 0 and above"):
        read_mask(tmp_path / "c.nii.gz", objects="values")


def test_one_file_per_object_numbers_the_objects(tmp_path):
    for name, pixels in (("1", [[255, 255, 0, 0]]), ("2", [[0, 0, 255, 255]])):
        Pillow.fromarray(np.array(pixels, np.uint8)).save(tmp_path / f"{name}.png")
    read = targets.MaskParts("*.png").reference(Entry("a", tmp_path, (Row(tmp_path, "", {}),))).read()
    assert (read.labels.tolist(), read.instances.tolist()) == ([[1, 1, 1, 1]], [[1, 1, 2, 2]])


def test_annotations_of_coco_number_the_objects(tmp_path):
    (tmp_path / "images").mkdir()
    Pillow.fromarray(np.zeros((2, 4), np.uint8)).save(tmp_path / "images/a.png")
    boxes = [[0, 0, 2, 0, 2, 2, 0, 2], [2, 0, 4, 0, 4, 2, 2, 2]]
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "categories": [{"id": 3, "name": "cell"}],
        "annotations": [{"image_id": 1, "category_id": 3, "segmentation": [box]} for box in boxes],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    (one,) = Coco(root=str(tmp_path), annotations="a.json", truth_kind="masks").cases("test")
    read = one.target.read()
    assert read.labels.tolist() == [[3] * 4] * 2
    assert read.instances.tolist() == [[1, 1, 2, 2]] * 2


def test_numbers_move_as_labels_do():
    volume = Mask((TOUCHING > 0).astype(np.uint8)[..., None], np.eye(4), instances=TOUCHING[..., None])
    turned = reorient(volume, "LPS")
    np.testing.assert_array_equal(turned.instances, volume.instances[::-1, ::-1])
    finer = resample(volume, (0.5, 0.5, 1))
    np.testing.assert_array_equal(finer.instances[..., 0], TOUCHING.repeat(2, 0).repeat(2, 1))
    assert resample(volume, (0.5, 0.5, 1), labels="linear").instances is None
    smaller = ResizedMask(Known(mask(TOUCHING)), (1, 3)).read()
    assert (smaller.labels.tolist(), smaller.instances.tolist()) == ([[1, 1, 0]], [[1, 2, 0]])

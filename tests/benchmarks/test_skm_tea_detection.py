"""SKM-TEA's lesions: boxes of volumes in the authors' JSON."""

import json

import numpy as np
import pytest

from medimg_eval.case import Boxes
from medimg_eval.errors import UserError
from medimg_eval.metrics.detection import box_ious
from tests.helpers.benchmark_files import ids, task

CATEGORIES = [
    {"supercategory": "Meniscal Tear", "supercategory_id": 1, "id": 6, "name": "Meniscal Tear (Complex)"},
    {"supercategory": "Effusion", "supercategory_id": 4, "id": 16, "name": "Effusion"},
]


def image(number, subject):
    return {
        "id": number,
        "file_name": f"MTR_00{number}.h5",
        "scan_id": f"MTR_00{number}",
        "subject_id": subject,
        "voxel_spacing": [0.3125, 0.3125, 0.8],
        "matrix_shape": [512, 512, 160],
        "orientation": ["SI", "AP", "LR"],
    }


def annotation(number, image_id, category, box, confidence):
    held = {"id": number, "image_id": image_id, "category_id": category, "tissue_id": 1, "bbox": box}
    return held | {"confidence": confidence, "labeler": 1}


@pytest.fixture
def root(tmp_path):
    """Three splits of one or two scans; the test scan 5 has two findings."""
    folder = tmp_path / "annotations" / "v1.0.0"
    folder.mkdir(parents=True)
    for place, part in enumerate(("train", "val", "test")):
        images = [image(5 + 10 * place, 99 + place), image(6 + 10 * place, 199 + place)]
        found = [
            annotation(1, images[0]["id"], 6, [304.0, 297.0, 87.0, 20.0, 35.0, 20.0], 2.0),
            annotation(2, images[0]["id"], 16, [109.0, 131.0, 20.0, 167.0, 120.0, 38.0], 5.0),
        ]
        content = {"info": {}, "categories": CATEGORIES, "tissues": [], "images": images, "annotations": found}
        (folder / f"{part}.json").write_text(json.dumps(content))
    return tmp_path


def test_boxes_have_first_and_last_voxels_along_the_axes_as_stored(root):
    first, second = task("skm_tea_detection", root).cases("test")
    assert ids([first, second]) == ["MTR_0025", "MTR_0026"]
    assert (first.patient, second.patient) == ("101", "201")
    boxes = first.target.read()
    assert boxes.names == ("Meniscal Tear", "Effusion")
    assert boxes.corners.tolist() == [[304, 297, 87, 323, 331, 106], [109, 131, 20, 275, 250, 57]]
    assert first.images[0].geometry().shape == (512, 512, 160)
    assert second.target.read().names == ()


def test_boxes_that_were_drawn_backwards_are_turned_and_cut_to_the_volume(root):
    file = root / "annotations/v1.0.0/test.json"
    content = json.loads(file.read_text())
    content["annotations"][0]["bbox"] = [299.0, 210.0, 88.0, -80.0, 110.0, 28.0]
    content["annotations"][1]["bbox"] = [2478.0, 336.0, 35.0, -2212.0, 14.0, 21.0]
    file.write_text(json.dumps(content))
    boxes = task("skm_tea_detection", root).cases("test")[0].target.read()
    assert boxes.corners.tolist() == [[219, 210, 88, 298, 319, 115], [266, 336, 35, 511, 349, 55]]


def test_findings_that_the_reader_doubted_are_neither_to_be_found_nor_false(root):
    one = task("skm_tea_detection", root, layout={"least_confidence": 3})
    case = one.cases("test")[0]
    assert case.target.read().names == ("unsure", "Effusion")
    answer = Boxes(np.array([[304, 297, 87, 323, 331, 106.0]]), ("Meniscal Tear",), scores=np.array([0.9]))
    rows = [row for row in one.score(case, answer) if row.metric == "detection_score"]
    assert [(row.label, row.status) for row in rows] == [("Meniscal Tear", "ignored")]


def test_a_tenth_of_overlap_is_enough_and_classes_are_apart(root):
    one = task("skm_tea_detection", root)
    case = one.cases("test")[0]
    # Moved by 15 of 20 rows: 5 rows shared of 35, an IoU of 1/7; by 17: 3 of 37.
    places = np.array([[319, 297, 87, 338, 331, 106], [321, 297, 87, 340, 331, 106], [109, 131, 20, 275, 250, 57.0]])
    edges = places[:1] + np.repeat([0, 1], 3)
    overlap = box_ious(edges, np.array([[304, 297, 87, 324, 332, 107.0]]))
    assert overlap[0, 0] == pytest.approx(1 / 7)
    names = ("Meniscal Tear", "Meniscal Tear", "Cartilage Lesion")
    rows = one.score(case, Boxes(places, names, scores=np.array([0.9, 0.8, 0.7])))
    statuses = {(row.label, round(row.value, 1)): row.status for row in rows if row.metric == "detection_score"}
    assert statuses == {
        ("Meniscal Tear", 0.9): "hit",
        ("Meniscal Tear", 0.8): "false",
        ("Cartilage Lesion", 0.7): "false",
    }
    recalls = {row.label: row.value for row in rows if row.metric == "detection_recall"}
    assert (recalls["Meniscal Tear"], recalls["Effusion"]) == (1, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bbox": [1.0, 2.0, 3.0, 4.0]}, "'bbox' is invalid: expected x, y, z and three sizes"),
        (
            {"bbox": [1.0, 2.0, 3.0, 4.0, 0.0, 1.0]},
            r"'bbox' is invalid: expected a size within \(512, 512",
        ),
    ],
)
def test_boxes_that_are_none_are_refused_by_annotation(root, change, words):
    file = root / "annotations/v1.0.0/test.json"
    content = json.loads(file.read_text())
    content["annotations"][1] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"item 2 of 'annotations': {words}"):
        task("skm_tea_detection", root).cases("test")

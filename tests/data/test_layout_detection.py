"""COCO and YOLO: the same pixels as the authors mean, and the annotation that is wrong."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from medimg_eval.data.layouts import Coco, Yolo
from medimg_eval.data.layouts.detection import _decode_mask
from medimg_eval.data.records import Row
from medimg_eval.errors import CaseError, SplitError, UserError


def picture(path, shape=(4, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.zeros(shape, np.uint8)).save(path)


BOX = {"id": 7, "image_id": 2, "category_id": 5, "bbox": [2, 1, 2, 3]}
"""Two columns and three rows of pixels, the first at row 1, column 2."""


@pytest.fixture
def coco(tmp_path):
    def write(*annotations, **changes):
        content = {
            "images": [
                {"id": 1, "file_name": "a.png", "height": 4, "width": 6},
                {"id": 2, "file_name": "b.png", "height": 4, "width": 6},
            ],
            "annotations": list(annotations),
            "categories": [{"id": 5, "name": "nodule"}, {"id": 2, "name": "mass"}],
        }
        for name in ("a", "b"):
            picture(tmp_path / f"images/{name}.png")
        (tmp_path / "instances.json").write_text(json.dumps(content | changes))
        return {"root": str(tmp_path), "annotations": "instances.json"}

    return write


def test_cocos_boxes_are_x_y_width_height(coco):
    empty, one = Coco(**coco(BOX)).cases("test")
    assert (empty.id, empty.target.read().corners.shape) == ("a.png", (0, 4))
    boxes = one.target.read()
    np.testing.assert_array_equal(boxes.corners, [[1, 2, 3, 3]])
    assert boxes.names == ("nodule",)
    assert one.images[0].files[0].name == "b.png"


def test_cocos_outlines_and_runs_are_drawn_as_categories(coco):
    square = {**BOX, "segmentation": [[2, 1, 4, 1, 4, 4, 2, 4]]}
    # Down the columns: 5 off, 1 on is row 1 of column 1; 12 off, 2 on is rows 2 and 3 of column 4.
    runs = {"id": 8, "image_id": 2, "category_id": 2, "segmentation": {"size": [4, 6], "counts": [5, 1, 12, 2, 4]}}
    mask = Coco(**coco(square, runs), truth_kind="masks").cases("test")[1].target.read()
    expected = np.zeros((4, 6), int)
    expected[1:4, 2:4] = 5
    expected[1, 1] = 2
    expected[2:4, 4] = 2
    np.testing.assert_array_equal(mask.labels, expected)
    assert mask.names == {5: "nodule", 2: "mass"}


def test_cocos_compressed_runs_are_the_same(coco):
    # 5, 1, 12, then 2 - 1 = 1, then 4 - 12 = -8, which is X.
    text = {**BOX, "segmentation": {"size": [4, 6], "counts": "51<1H"}}
    plain = {**BOX, "segmentation": {"size": [4, 6], "counts": [5, 1, 12, 2, 4]}}
    masks = [Coco(**coco(one), truth_kind="masks").cases("test")[1].target.read().labels for one in (text, plain)]
    np.testing.assert_array_equal(*masks)
    assert masks[0].sum() == 15


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.integers(3, 8))
def test_outlines_hold_the_pixels_whose_centres_lie_inside(seed, corners):
    points = np.random.default_rng(seed).uniform(-2, 10, (corners, 2))
    expected, clear = np.zeros((8, 9), bool), np.ones((8, 9), bool)
    for row, column in np.ndindex(8, 9):
        for (x, y), (u, v) in zip(points, np.roll(points, -1, axis=0), strict=True):
            # Does a ray to the right from the centre cross this edge?
            if (y > row + 0.5) != (v > row + 0.5):
                ahead = x + (row + 0.5 - y) * (u - x) / (v - y) - (column + 0.5)
                expected[row, column] ^= ahead > 0
                clear[row, column] &= abs(ahead) > 1e-4  # a centre on the outline may be taken for either
    drawn = Row(None, "", {"segmentation": [points.ravel().tolist()]})
    np.testing.assert_array_equal(_decode_mask(drawn, (8, 9))[clear], expected[clear])


@pytest.mark.parametrize(
    ("annotation", "changes", "words"),
    [
        ({"image_id": 9}, {}, r"instances\.json, item 1 of 'annotations': names image 9, which 'images' does not hold"),
        ({"category_id": 1}, {}, r"item 1 of 'annotations': names category 1.*available: 2, 5"),
        ({"bbox": [1, 2, 3]}, {}, r"item 1 of 'annotations': 'bbox' is \[1, 2, 3\], expected x, y, width and height"),
        ({"bbox": [1, 2, 0, 3]}, {}, r"item 1 of 'annotations': 'bbox' \[1, 2, 0, 3\] has no area"),
        ({}, {"categories": None}, r"instances\.json: expected a list of objects 'categories'"),
        ({}, {"images": [{"id": 2}]}, r"instances\.json, item 1 of 'images': there is no column 'file_name'"),
    ],
)
def test_an_annotation_that_is_not_understood_is_named(coco, annotation, changes, words):
    with pytest.raises(UserError, match=words):
        Coco(**coco({**BOX, **annotation}, **changes)).cases("test")


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        ({"size": [4, 6], "counts": [5, 1]}, "runs of 6 pixels, of a mask of .* do not fill"),
        ({"size": [6, 4], "counts": [24]}, "do not fill"),
        ({"counts": [24]}, "'segmentation' is not understood"),
        ([[1, 2, 3]], "'segmentation' is not understood"),
        ("RLE", "'segmentation' is not understood"),
    ],
)
def test_a_segmentation_that_is_not_understood_is_named(coco, drawn, words):
    case = Coco(**coco({**BOX, "segmentation": drawn}), truth_kind="masks").cases("test")[1]
    with pytest.raises(CaseError, match=rf"instances\.json, item 1 of 'annotations': .*{words}|{words}"):
        case.target.read()


def test_an_image_of_another_size_than_stated_is_refused(coco):
    images = [{"id": 2, "file_name": "b.png", "height": 6, "width": 4}]
    (case,) = Coco(**coco({**BOX, "segmentation": []}, images=images), truth_kind="masks").cases("test")
    with pytest.raises(
        CaseError,
        match=r"b\.png: has \(4, 6\) rows and columns, .*instances\.json, item 1 of 'images', states \(6, 4\)",
    ):
        case.target.read()


def test_category_zero_cannot_be_drawn(coco):
    arguments = coco({**BOX, "category_id": 0, "segmentation": []}, categories=[{"id": 0, "name": "x"}])
    with pytest.raises(UserError, match="id 0, which is background"):
        Coco(**arguments, truth_kind="masks").cases("test")


def test_one_file_per_split_is_cocos_way(coco, tmp_path):
    arguments = coco(BOX)
    (tmp_path / "val.json").write_text((tmp_path / "instances.json").read_text().replace("a.png", "c.png"))
    layout = Coco(root=arguments["root"], annotations={"train": "instances.json", "val": "val.json"})
    with pytest.raises(UserError, match=r"more than one split: 'b\.png' \(train, val\)"):
        layout.cases("val")
    assert set(layout.split_source()) == {str(tmp_path / "instances.json"), str(tmp_path / "val.json")}


@pytest.fixture
def yolo(tmp_path):
    def write(lines="1 0.5 0.625 0.333333333333 0.75\n", data=None):
        for split in ("train", "val"):
            picture(tmp_path / f"images/{split}/{split}1.jpg")
            (tmp_path / f"labels/{split}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "labels/val/val1.txt").write_text(lines)
        (tmp_path / "data.yaml").write_text(
            data or "train: images/train\nval: images/val\nnames: [glioma, meningioma]\n"
        )
        return Yolo(root=str(tmp_path))

    return write


def test_yolos_boxes_are_parts_of_the_picture(yolo):
    # Centre (3, 2.5), 2 by 3 pixels: columns 2 and 3, rows 1 to 3.
    (case,) = yolo().cases("val")
    np.testing.assert_allclose(case.target.read().corners, [[1, 2, 3, 3]], atol=1e-9)
    assert case.target.read().names == ("meningioma",)
    assert (case.id, case.target.files[0].name) == ("val1", "val1.txt")


def test_a_picture_without_a_text_file_holds_no_object(yolo):
    (case,) = yolo().cases("train")
    assert case.target.read().corners.shape == (0, 4)
    assert case.target.files == case.images[0].files


def test_pictures_of_one_name_in_two_splits_are_two_pictures(yolo, tmp_path):
    layout = yolo()
    for split in ("train", "val"):
        picture(tmp_path / f"images/{split}/0001.jpg")
    assert [case.id for case in layout.cases("val")] == ["0001", "val1"]


def test_roboflows_paths_and_names_by_number(yolo):
    layout = yolo(data="train: ../images/train\nval: ../images/val\nnames: {0: a, 1: b}\n")
    assert layout.cases("val")[0].target.read().names == ("b",)
    with pytest.raises(SplitError, match=r"no case of split 'test' \(available: train, val\)"):
        layout.cases("test")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("0 0.5 0.5 0.1 0.1\n\n0 0.5 0.5\n", r"val1\.txt, line 3: expected a class and four numbers, found 3 fields"),
        ("0 0.5 0.5 0.1 x\n", r"val1\.txt, line 1: expected a class and four numbers, found '0 0\.5"),
        ("2 0.5 0.5 0.1 0.1\n", r"val1\.txt, line 1: there is no class 2; data\.yaml names 2"),
        ("0 320 240 10 10\n", r"val1\.txt, line 1: expected parts of the picture between 0 and 1"),
    ],
)
def test_a_line_that_is_no_box_is_named(yolo, lines, words):
    with pytest.raises(UserError, match=words):
        yolo(lines).cases("val")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("names: [a\nval: x: y\n", r"data\.yaml, line 2: is no YAML"),
        ("val: images/val\n", r"data\.yaml: expected 'names'"),
        ("val: images/valid\nnames: [a, b]\n", r"data\.yaml: 'val' names 'images/valid', but there is no folder"),
        ("names: [a]\n", r"data\.yaml: names no folder of images"),
    ],
)
def test_a_data_yaml_that_is_not_understood_is_named(yolo, data, words):
    with pytest.raises(UserError, match=words):
        yolo(data=data).cases("val")

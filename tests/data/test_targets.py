"""What is right about a case: every way it is written down, hand-worked, and the line that is wrong."""

import json
import math
import pickle

import nibabel as nib
import numpy as np
import pytest
from entries import entry
from scipy.io import savemat

from medimg_eval.data import targets
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import ImageFile

NAN = math.nan


CHEXPERT = {"Edema": "-1.0", "Atelectasis": "-1", "Fracture": "1.0", "Pneumonia": "0.0", "Cardiomegaly": ""}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, [NAN, NAN, 1, 0, NAN]),
        ({"uncertain": "U-Zeros"}, [0, 0, 1, 0, NAN]),
        ({"uncertain": "U-Ones", "blank": "zeros"}, [1, 1, 1, 0, 0]),
        ({"uncertain": "half"}, [0.5, 0.5, 1, 0, NAN]),
        ({"uncertain": {"Edema": "ones"}}, [1, NAN, 1, 0, NAN]),
    ],
)
def test_what_is_uncertain_becomes_what_the_policy_says(tmp_path, policies, expected):
    reference = targets.ClassColumns(list(CHEXPERT), **policies).reference(entry(tmp_path, CHEXPERT))
    np.testing.assert_array_equal(list(reference.read().values.values()), expected)
    assert list(reference.read().values) == list(CHEXPERT)
    assert reference.files == (tmp_path / "t.csv",)
    pickle.loads(pickle.dumps(reference))


def test_columns_may_speak_in_words(tmp_path):
    words = {"yes": "present", "no": "absent", "maybe": "uncertain"}
    target = targets.ClassColumns({"effusion": "Q1"}, words=words, uncertain="ones")
    assert target.reference(entry(tmp_path, {"Q1": "maybe"})).read().values == {"effusion": 1}
    with pytest.raises(UserError, match=r"t\.csv, line 2: column 'Q1' holds 'perhaps', expected one of 'yes', 'no'"):
        target.reference(entry(tmp_path, {"Q1": "perhaps"}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: targets.ClassColumns(["a"], uncertain="U-One"), "got 'U-One'; did you mean 'ones'"),
        (lambda: targets.ClassColumns(["Edema"], uncertain={"Edma": "ones"}), "class 'Edma'; did you mean 'Edema'"),
        (lambda: targets.ClassColumns("Edema"), "expected a list of classes"),
        (lambda: targets.ClassColumns(["a"], words={"1": "there"}), "got 'there'"),
        (lambda: targets.BoxColumns(["x", "y"], "sizes", name="a"), "expected four columns"),
        (lambda: targets.BoxColumns(list("xywh"), "sizes"), "either `label`"),
        (lambda: targets.BoxColumns(list("xywh"), "size", name="a"), "not as 'size'"),
        (lambda: targets.PointColumns(["x", "y"], "lps", name="a"), "not in 'lps'"),
        (lambda: targets.SurvivalColumns("months"), "which way the column counts"),
        (targets.ReportText, "either in a `column` or in a `file`"),
        (lambda: targets.StructureFiles("seg/liver.nii.gz", {1: "liver"}), r"expected \{structure\}"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused_at_once(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_names_joined_by_a_bar_are_findings_as_in_nih(tmp_path):
    target = targets.ClassName(
        "Finding Labels",
        {"Effusion": "Effusion", "Infiltrate": "Infiltration", "Infiltration": "Infiltration"},
        "|",
        "No Finding",
    )
    read = lambda text: target.reference(entry(tmp_path, {"Finding Labels": text})).read().values  # noqa: E731
    assert read("Effusion|Infiltrate") == {"Effusion": 1, "Infiltration": 1}
    assert read("No Finding") == {"Effusion": 0, "Infiltration": 0}
    with pytest.raises(UserError, match=r"t\.csv, line 2: .* no known class: 'Efusion'; did you mean 'Effusion'"):
        read("Efusion")


def test_one_name_or_number_is_one_class(tmp_path):
    target = targets.ClassName("label", {"0": "benign", "1": "malignant"})
    assert target.reference(entry(tmp_path, {"label": 1})).read().values == {"benign": 0, "malignant": 1}
    with pytest.raises(UserError, match=r"line 2: 'label' names no known class: ''"):
        target.reference(entry(tmp_path, {"label": ""}))


def test_records_of_one_case_that_disagree_are_refused(tmp_path):
    study = entry(tmp_path, {"label": "a"}, {"label": "b"})
    with pytest.raises(UserError, match=r"t\.csv, line 3: says \['b'\] of case 'case1', of which line 2 says \['a'\]"):
        targets.ClassName("label", ["a", "b"]).reference(study)


def test_boxes_of_sizes_and_of_corners_are_the_same_pixels(tmp_path, picture):
    # Two columns and three rows of pixels, the first at row 1, column 2.
    expected = [[1, 2, 3, 3]]
    sizes = targets.BoxColumns(["x", "y", "w", "h"], "sizes", name="nodule")
    corners = targets.BoxColumns(["a", "b", "c", "d"], "corners", label="class")
    inside = targets.BoxColumns(["a", "b", "c", "d"], "corners", label="class", last_inside=True)
    one = sizes.reference(entry(tmp_path, {"x": "2", "y": "1", "w": "2", "h": "3"}, images=[picture]))
    np.testing.assert_array_equal(one.read().corners, expected)
    assert one.read().names == ("nodule",)
    assert one.geometry().shape == (4, 6)
    for target, right, bottom in ((corners, 4, 4), (inside, 3, 3)):
        other = target.reference(entry(tmp_path, {"a": 2, "b": 1, "c": right, "d": bottom, "class": "mass"}))
        np.testing.assert_array_equal(other.read().corners, expected)
        assert other.read().names == ("mass",)


def test_an_image_without_a_box_has_an_empty_row_as_in_rsna(tmp_path):
    empty = {"x": "", "y": "", "width": "", "height": "", "Target": "0"}
    target = targets.BoxColumns(["x", "y", "width", "height"], "sizes", name="opacity")
    boxes = target.reference(entry(tmp_path, empty)).read()
    assert boxes.corners.shape == (0, 4)
    assert boxes.names == ()


def test_a_box_may_be_a_literal_as_in_tbx11k(tmp_path):
    target = targets.BoxColumns(["bbox"], "sizes", name="tb")
    text = "{'xmin': 2.0, 'ymin': 1.0, 'width': 2.0, 'height': 3.0}"
    np.testing.assert_array_equal(target.reference(entry(tmp_path, {"bbox": text})).read().corners, [[1, 2, 3, 3]])
    assert len(target.reference(entry(tmp_path, {"bbox": "none"})).read().names) == 0
    for wrong in ("{'xmin': 2", "[1, 2, 3]", "[1, 2, 3, 'x']"):
        with pytest.raises(UserError, match=r"t\.csv, line 2: column 'bbox' holds .*expected four numbers"):
            target.reference(entry(tmp_path, {"bbox": wrong}))


@pytest.mark.parametrize("numbers", [(5, 5, 3, 8), (5, 5, 5, 8), (0, 0, math.inf, 1)])
def test_a_box_without_area_names_its_line(tmp_path, numbers):
    record = dict(zip("abcd", numbers, strict=True))
    with pytest.raises(UserError, match=r"t\.csv, line 2: the box .* has no area as corners"):
        targets.BoxColumns(list("abcd"), "corners", name="x").reference(entry(tmp_path, record))


def test_points_of_a_picture_are_row_and_column_of_a_volume_column_row_slice(tmp_path):
    record = {"x": "5", "y": "2", "z": "7", "name": "carina", "mm": "3.5"}
    flat = targets.PointColumns(["x", "y"], "voxel", label="name", value="mm").reference(entry(tmp_path, record)).read()
    np.testing.assert_array_equal(flat.positions, [[2, 5]])
    assert flat.names == ("carina",)
    np.testing.assert_array_equal(flat.values, [3.5])
    solid = targets.PointColumns(["x", "y", "z"], "voxel", name="p").reference(entry(tmp_path, record)).read()
    np.testing.assert_array_equal(solid.positions, [[5, 2, 7]])


@pytest.fixture
def volume(tmp_path):
    """Axes P, I, R; (5, 6, 7) voxels of 1 x 2 x 3 mm; voxel 0 at (-10, 20, 30) mm RAS."""
    affine = np.array([[0, 0, 3, -10], [-1, 0, 0, 20], [0, -2, 0, 30], [0, 0, 0, 1]], float)
    nib.save(nib.Nifti1Image(np.zeros((5, 6, 7), np.int16), affine), tmp_path / "v.nii.gz")
    return ImageFile(tmp_path / "v.nii.gz")


def test_world_points_in_lps_go_through_the_images_affine_as_luna16s(tmp_path, volume):
    # Voxel (1, 2, 3) lies at RAS (-10 + 9, 20 - 1, 30 - 4) = (-1, 19, 26), hence LPS (1, -19, 26).
    nodule = {"coordX": "1", "coordY": "-19", "coordZ": "26", "diameter_mm": "8"}
    target = targets.PointColumns(["coordX", "coordY", "coordZ"], "lps", name="nodule", value="diameter_mm")
    reference = target.reference(entry(tmp_path, nodule, images=[volume]))
    np.testing.assert_allclose(reference.read().positions, [[1, 2, 3]])
    np.testing.assert_array_equal(reference.read().values, [8])
    as_ras = targets.PointColumns(["x", "y", "z"], "ras", name="p")
    moved = as_ras.reference(entry(tmp_path, {"x": "-1", "y": "19", "z": "26"}, images=[volume]))
    np.testing.assert_allclose(moved.read().positions, [[1, 2, 3]])
    with pytest.raises(UserError, match="need the image"):
        target.reference(entry(tmp_path, nodule))


def test_verse_centroids_follow_the_direction_of_their_file(tmp_path, volume):
    def read(direction, x, y, z):
        content = [{"direction": direction}, {"label": 20, "X": x, "Y": y, "Z": z}]
        (tmp_path / "case1.json").write_text(json.dumps(content))
        return targets.VertebraCentroids("{case}.json").reference(entry(tmp_path, {}, images=[volume])).read()

    np.testing.assert_array_equal(read(["P", "I", "R"], 1, 2, 3).positions, [[1, 2, 3]])
    assert read(["P", "I", "R"], 1, 2, 3).names == ("20",)
    # The same point counted along L, A, S: 7 - 1 - 3 from the right, 5 - 1 - 1 from behind, 6 - 1 - 2 from below.
    np.testing.assert_array_equal(read(["L", "A", "S"], 3, 3, 3).positions, [[1, 2, 3]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"label": 1, "X": 1, "Y": 2, "Z": 3}], "holds no 'direction'"),
        ([{"direction": ["P", "I", "R"]}, {"label": 1, "X": 1, "Y": 2}], "a centroid is not understood"),
        ([{"direction": ["P", "I", "Q"]}], "a centroid is not understood"),
    ],
)
def test_centroids_that_cannot_be_placed_name_the_file(tmp_path, volume, content, words):
    (tmp_path / "case1.json").write_text(json.dumps(content))
    with pytest.raises(CaseError, match=f"case1.json: {words}"):
        targets.VertebraCentroids("{case}.json").reference(entry(tmp_path, {}, images=[volume])).read()


def test_aasce_landmarks_are_x_and_y_of_four_corners_a_vertebra(tmp_path, picture):
    savemat(tmp_path / "x.png.mat", {"p2": np.arange(136.0).reshape(68, 2)})
    points = targets.LandmarkMat("{name}.mat").reference(entry(tmp_path, {}, images=[picture])).read()
    np.testing.assert_array_equal(points.positions[:2], [[1, 0], [3, 2]])
    assert (points.names[0], points.names[5], points.names[67]) == ("1.1", "2.2", "17.4")
    savemat(tmp_path / "x.png.mat", {"p1": np.zeros((68, 2))})
    with pytest.raises(CaseError, match=r"x\.png\.mat: expected numbers \(point, 2\) in 'p2', .* it holds p1"):
        targets.LandmarkMat("{name}.mat").reference(entry(tmp_path, {}, images=[picture])).read()


REPORT = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 FINDINGS:  The lungs are
 clear.

 IMPRESSION:  No acute process.
"""


def test_sections_of_a_report_are_found_by_their_headings(tmp_path):
    (tmp_path / "s1.txt").write_text(REPORT)
    target = targets.ReportText(file="{case}.txt", sections=["findings"])
    assert target.reference(entry(tmp_path, {}, case="s1")).read().text == "The lungs are clear."
    last = targets.ReportText(column="report", sections=["comparison", "impression"])
    assert last.reference(entry(tmp_path, {"report": REPORT})).read().text == "No acute process."


def test_a_report_without_what_is_asked_for_is_named(tmp_path):
    with pytest.raises(UserError, match=r"t\.csv, line 2: column 'report' has none of the sections \['findings'\]"):
        targets.ReportText("report", sections=["findings"]).reference(entry(tmp_path, {"report": "IMPRESSION: x"}))
    with pytest.raises(UserError, match=r"t\.csv, line 2: column 'report' is empty"):
        targets.ReportText("report").reference(entry(tmp_path, {"report": " "}))
    assert targets.ReportText("report", blank="keep").reference(entry(tmp_path, {"report": ""})).read().text == ""
    (tmp_path / "case1.txt").write_text("IMPRESSION: x")
    with pytest.raises(CaseError, match=r"case1\.txt: has none of the sections"):
        targets.ReportText(file="{case}.txt", sections=["findings"]).reference(entry(tmp_path, {})).read()
    with pytest.raises(CaseError, match=r"none\.txt: cannot be read"):
        targets.ReportText(file="none.txt").reference(entry(tmp_path, {"none.txt": "none.txt"})).read()


def test_a_censored_column_counts_the_other_way_round(tmp_path):
    record = {"survival_months": "12.5", "censorship": "1", "event": "1"}
    censored = (
        targets.SurvivalColumns("survival_months", censored="censorship").reference(entry(tmp_path, record)).read()
    )
    observed = targets.SurvivalColumns("survival_months", event="event").reference(entry(tmp_path, record)).read()
    assert (censored.time, censored.event, observed.event) == (12.5, False, True)


@pytest.mark.parametrize(("time", "flag"), [("-1", "0"), ("nan", "0"), ("1", "2"), ("", "1")])
def test_survival_that_cannot_be_names_its_line(tmp_path, time, flag):
    with pytest.raises(UserError, match=r"t\.csv, line 2: column '(t|e)' holds"):
        targets.SurvivalColumns("t", event="e").reference(entry(tmp_path, {"t": time, "e": flag}))


def test_frame_labels_are_in_order_and_of_their_kind(tmp_path):
    records = [{"s": "2", "step": "5", "x": "1.5", "tool": "drill"}, {"s": "0", "step": "-1", "x": "2", "tool": "none"}]
    labels = targets.FrameTable("s", stride=24).reference(entry(tmp_path, *records)).read()
    np.testing.assert_array_equal(labels.frames, [0, 48])
    assert labels.columns["step"].tolist() == [-1, 5]
    assert labels.columns["x"].tolist() == [2.0, 1.5]
    assert labels.columns["tool"].tolist() == ["none", "drill"]


@pytest.mark.parametrize(
    ("frames", "words"),
    [(["1", "1"], "line 3: frame 1 is labelled a second"), (["0.5", "1"], "line 2: column 's' holds '0.5'")],
)
def test_frames_that_cannot_be_name_their_line(tmp_path, frames, words):
    with pytest.raises(UserError, match=words):
        targets.FrameTable("s").reference(entry(tmp_path, *({"s": frame, "a": "1"} for frame in frames)))

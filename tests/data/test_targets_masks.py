"""Label maps however they are written down: runs of pixels, one file per structure, values that stand for labels."""

import nibabel as nib
import numpy as np
import pytest
from entries import entry
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from medimg_eval.data import targets
from medimg_eval.data.targets.masks import decode_runs
from medimg_eval.errors import CaseError, UserError
from medimg_eval.metrics.run_lengths import coco_counts


def test_relative_runs_go_down_the_columns_as_in_siim(tmp_path, picture):
    # 4 rows: 5 pixels on is row 1 of column 1; 3 long to its end; then 2 further on is row 2 of column 2.
    target = targets.RunLength("EncodedPixels", "relative")
    mask = target.reference(entry(tmp_path, {"EncodedPixels": "5 3 2 1"}, images=[picture])).read()
    expected = np.zeros((4, 6), int)
    expected[1:, 1] = 1
    expected[2, 2] = 1
    np.testing.assert_array_equal(mask.labels, expected)


def test_absolute_runs_start_at_one_as_at_kaggle(tmp_path, picture):
    target = targets.RunLength("runs", "absolute", label=3)
    mask = target.reference(entry(tmp_path, {"runs": "1 2 8 1"}, {"runs": "24 1"}, images=[picture])).read()
    expected = np.zeros((4, 6), int)
    expected[0:2, 0] = expected[3, 1] = expected[3, 5] = 3
    np.testing.assert_array_equal(mask.labels, expected)
    by_rows = targets.RunLength("runs", "absolute", order="rows")
    assert by_rows.reference(entry(tmp_path, {"runs": "8 1"}, images=[picture])).read().labels[1, 1] == 1


def test_no_run_is_an_empty_mask_on_the_images_grid(tmp_path, picture):
    reference = targets.RunLength("runs", "relative").reference(entry(tmp_path, {"runs": "-1"}, images=[picture]))
    assert reference.read().labels.shape == reference.geometry().shape == (4, 6)
    assert not reference.read().labels.any()


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("1 2 3", "absolute", "holds 3 numbers, expected pairs"),
        ("1 x", "absolute", "expected whole numbers"),
        ("9 2 3 2", "absolute", "runs go backwards; is their form 'absolute'"),
        ("0 2", "absolute", "runs go backwards"),
    ],
)
def test_runs_that_are_none_name_their_line(tmp_path, picture, text, form, words):
    with pytest.raises(UserError, match=rf"t\.csv, line 2: column 'runs'.*{words}"):
        targets.RunLength("runs", form).reference(entry(tmp_path, {"runs": text}, images=[picture]))


def test_a_run_outside_the_image_names_its_line(tmp_path, picture):
    reference = targets.RunLength("runs", "absolute").reference(entry(tmp_path, {"runs": "24 2"}, images=[picture]))
    with pytest.raises(CaseError, match=r"t\.csv, line 2: a run ends at pixel 25 of an image of 24 pixels"):
        reference.read()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.booleans(), min_size=12, max_size=12), st.sampled_from([(3, 4), (4, 3), (1, 12)]), st.booleans())
def test_runs_and_masks_are_the_same_thing(bits, shape, by_columns):
    mask = np.array(bits).reshape(shape)
    flat = np.concatenate([[0], (mask.T if by_columns else mask).ravel(), [0]]).astype(int)
    starts, ends = np.flatnonzero(np.diff(flat) == 1), np.flatnonzero(np.diff(flat) == -1)
    np.testing.assert_array_equal(decode_runs(starts, ends - starts, shape, by_columns=by_columns), mask)


def compressed(counts):
    """COCO's writing of counts, from its description: the other direction of what is tested."""
    text = ""
    for place, count in enumerate(counts):
        value = count - (counts[place - 2] if place > 2 else 0)
        while True:
            group, value = value & 31, value >> 5
            last = (value == 0 and not group & 16) or (value == -1 and group & 16)
            text += chr(48 + (group | (0 if last else 32)))
            if last:
                break
    return text


def test_compressed_counts_by_hand():
    # 6 is one group; 1 is one group; 40 is 8 then 1; 40 - 1 is 7 then 1.
    assert coco_counts("61X1") == [6, 1, 40]
    assert compressed([6, 1, 40, 3]) == "61X12"
    for broken in ("6X", "6\x7f"):
        with pytest.raises(ValueError, match="breaks off|character"):
            coco_counts(broken)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 100_000), max_size=12))
def test_compressed_counts_come_back(counts):
    assert coco_counts(compressed(counts)) == counts


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(np.asarray(array, np.uint8), np.eye(4)), path)


def test_one_file_per_structure_is_merged_as_totalsegmentators(tmp_path):
    liver, spleen = np.zeros((2, 3, 4, 4), int)
    liver[0], spleen[2] = 1, 1
    spleen[0, 0, 0] = 1
    save(tmp_path / "s0000/segmentations/liver.nii.gz", liver)
    save(tmp_path / "s0000/segmentations/spleen.nii.gz", spleen)
    target = targets.StructureFiles("{case}/segmentations/{structure}.nii.gz", {5: "liver", 1: "spleen"})
    reference = target.reference(entry(tmp_path, {}, case="s0000"))
    mask = reference.read()
    assert [path.name for path in reference.files] == ["liver.nii.gz", "spleen.nii.gz"]
    assert (mask.labels[0, 0, 0], mask.labels[0, 1, 1], mask.labels[2, 0, 0], mask.labels[1, 0, 0]) == (1, 5, 1, 0)
    assert mask.names == {5: "liver", 1: "spleen"}
    assert mask.notes == ("1 voxels belong to two structures; the later one has them",)


def test_structures_that_do_not_fit_name_the_file(tmp_path):
    target = targets.StructureFiles("{case}/{structure}.nii.gz", {1: "a", 2: "b"})
    save(tmp_path / "c/a.nii.gz", np.zeros((3, 4, 4)))
    one = entry(tmp_path, {}, case="c")
    with pytest.raises(CaseError, match=r"b\.nii\.gz: no such file"):
        target.reference(one).read()
    save(tmp_path / "c/b.nii.gz", np.zeros((3, 4, 5)))
    with pytest.raises(CaseError, match=r"b\.nii\.gz: shape \(3, 4, 5\) instead of \(3, 4, 4\)"):
        target.reference(one).read()
    save(tmp_path / "c/b.nii.gz", np.arange(48).reshape(3, 4, 4))
    with pytest.raises(CaseError, match=r"b\.nii\.gz: holds several labels"):
        target.reference(one).read()


def test_structures_that_are_absent_may_have_no_file(tmp_path):
    target = targets.StructureFiles("{case}/{structure}.nii.gz", {1: "a", 2: "b"}, absent="empty")
    with pytest.raises(UserError, match="no file of the pattern"):
        target.reference(entry(tmp_path, {}, case="c"))
    save(tmp_path / "c/b.nii.gz", np.ones((3, 4, 4)))
    assert set(np.unique(target.reference(entry(tmp_path, {}, case="c")).read().labels)) == {2}


def test_values_of_a_mask_stand_for_labels(tmp_path, picture):
    Pillow.fromarray(np.array([[0, 128, 255]], np.uint8)).save(tmp_path / "case1.png")
    mask = targets.MaskTarget("{case}.png", {255: 1, 128: 2}).reference(entry(tmp_path, {})).read()
    np.testing.assert_array_equal(mask.labels, [[0, 2, 1]])
    with pytest.raises(CaseError, match=r"case1\.png: holds the values \[128\], which stand for no label"):
        targets.MaskTarget("{case}.png", {255: 1}).reference(entry(tmp_path, {})).read()


def test_a_mask_that_jpeg_has_blurred_is_cut_at_a_threshold_as_kvasirs(tmp_path):
    Pillow.fromarray(np.repeat(np.array([[0] * 8 + [255] * 8], np.uint8), 8, axis=0)).save(
        tmp_path / "case1.jpg", quality=60
    )
    target = targets.MaskTarget("{case}.jpg", options={"threshold": 128})
    np.testing.assert_array_equal(target.reference(entry(tmp_path, {})).read().labels[0], [0] * 8 + [1] * 8)


def test_an_image_may_be_what_is_right(tmp_path, picture):
    reference = targets.ImageTarget("{name}", modality="MR").reference(entry(tmp_path, {}, images=[picture]))
    assert reference.read().array.shape == (1, 4, 6)
    assert reference.read().modality == "MR"

from pathlib import Path

import numpy as np
import pydicom
import pydicom.data
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from medimg_eval.case import Geometry, Image, Mask
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import read_mask
from medimg_eval.imaging.dicom.objects import seg as segmentation
from medimg_eval.imaging.dicom.writing.images import write_segmentation, write_series

hd = pytest.importorskip("highdicom")

SHAPE = (7, 5, 6)
NAMES = {1: "liver", 2: "spleen", 3: "left kidney"}


def affine(seed=0, shear=0.0):
    out = np.eye(4)
    turn = Rotation.random(random_state=seed).as_matrix()
    out[:3, :3] = turn * (0.7, 0.8, 2.5)
    out[:3, 2] += shear * turn[:, 1]
    out[:3, 3] = [12.5, -33.25, 7]
    return out


def labels(seed=0, shape=SHAPE, empty=(0, 2, 5)):
    out = np.random.default_rng(seed).integers(0, 4, shape).astype(np.uint8)
    out[:, :, list(empty)] = 0
    return out


def written(folder, array, where, **options):
    series = write_series(folder / "series", Image(np.zeros((1, *array.shape), np.int16), where), names="shuffled")
    return write_segmentation(folder / "seg.dcm", Mask(array, where), series[::-1], names=NAMES, **options), series


def edited(path, change):
    dataset = pydicom.dcmread(path)
    change(dataset)
    out = path.with_name("edited.dcm")
    dataset.save_as(out)
    return out


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(2, 6)),
    kind=st.sampled_from(["BINARY", "LABELMAP"]),
    data=st.data(),
)
def test_what_is_written_is_read_back(tmp_path_factory, seed, shape, kind, data):
    empty = data.draw(st.sets(st.integers(0, shape[2] - 1)))
    array, where = labels(seed, shape, empty), affine(seed, shear=0.3)
    if kind == "BINARY" and shape[0] * shape[1] < 8:
        with pytest.raises(UserError, match="frames below 8 pixels"):
            written(tmp_path_factory.mktemp("seg"), array, where, kind=kind)
        return
    path, _ = written(tmp_path_factory.mktemp("seg"), array, where, kind=kind)
    mask = segmentation.read_mask(path, grid=Geometry(shape, where))
    np.testing.assert_array_equal(mask.labels, array)
    assert mask.geometry.difference(Geometry(shape, where)) is None
    assert mask.names == NAMES


@pytest.mark.parametrize("seed", range(4))
def test_without_a_grid_the_mask_is_the_box_of_its_frames(tmp_path, seed):
    array, where = labels(seed), affine(seed)
    path, _ = written(tmp_path, array, where)
    mask = segmentation.read_mask(path)
    assert mask.notes == ("1 of 4 slices have no frame and are background",)
    assert segmentation.grid(path).difference(mask.geometry) is None
    assert mask.labels.shape == (7, 5, 4)
    # Each voxel is found through the affines.
    into = np.linalg.inv(where) @ mask.affine
    for index in np.ndindex(mask.labels.shape):
        i, j, k = np.rint(into @ [*index, 1])[:3].astype(int)
        assert mask.labels[index] == array[i, j, k]


def test_the_box_is_the_same_whichever_segments_are_wanted(tmp_path):
    array = np.zeros(SHAPE, np.uint8)
    array[1, 1, 1] = 1
    array[2, 2, 4] = 2
    path, _ = written(tmp_path, array, affine())
    mask = segmentation.read_mask(path, labels={"liver": 1})
    assert mask.geometry.difference(segmentation.grid(path)) is None
    assert (mask.labels.shape, mask.labels.sum()) == ((7, 5, 4), 1)
    assert mask.notes == ("2 of 4 slices have no frame and are background",)


def test_highdicom_reads_the_same(tmp_path):
    path, _ = written(tmp_path, labels(empty=()), affine(3))
    volume = hd.seg.segread(path).get_volume(combine_segments=True, relabel=False)
    mask = segmentation.read_mask(path)
    into = np.linalg.inv(mask.affine) @ np.diag([-1, -1, 1, 1]) @ volume.affine
    for index in np.ndindex(volume.array.shape):
        i, j, k = np.rint(into @ [*index, 1])[:3].astype(int)
        assert mask.labels[i, j, k] == volume.array[index]


def test_a_grid_with_turned_axes_is_filled_too(tmp_path):
    array, where = labels(), affine()
    path, _ = written(tmp_path, array, where)
    turned = array.transpose(2, 0, 1)[:, ::-1, :]
    swap = np.array([[0, -1, 0, 6], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1.0]])  # index there -> index here
    mask = segmentation.read_mask(path, grid=Geometry(turned.shape, where @ swap))
    np.testing.assert_array_equal(mask.labels, turned)


def test_a_larger_grid_is_filled_and_a_smaller_one_is_refused_where_labels_would_be_lost(tmp_path):
    array, where = np.zeros(SHAPE, np.uint8), affine()
    array[2:5, 1:3, 3] = 2
    path, _ = written(tmp_path, array, where)
    wide = where.copy()
    wide[:3, 3] -= where[:3, :3] @ [1, 2, 3]
    mask = segmentation.read_mask(path, grid=Geometry((9, 8, 10), wide))
    np.testing.assert_array_equal(mask.labels[1:8, 2:7, 3:9], array)
    assert mask.labels.sum() == array.sum()

    narrow = where.copy()
    narrow[:3, 3] += where[:3, :3] @ [2, 1, 3]
    mask = segmentation.read_mask(path, grid=Geometry((3, 2, 1), narrow))
    np.testing.assert_array_equal(mask.labels, np.full((3, 2, 1), 2))
    for shape in ((2, 2, 1), (3, 1, 1)):
        with pytest.raises(CaseError, match=r"seg\.dcm: labelled voxels lie outside the grid"):
            segmentation.read_mask(path, grid=Geometry(shape, narrow))
    with pytest.raises(CaseError, match=r"seg\.dcm: labelled voxels lie outside the grid"):
        segmentation.read_mask(path, grid=Geometry((7, 5, 3), where))


@pytest.mark.parametrize("change", ["shift", "spacing", "turn"])
def test_another_grid_is_refused(tmp_path, change):
    array, where = labels(), affine()
    path, _ = written(tmp_path, array, where)
    other = where.copy()
    if change == "shift":
        other[:3, 3] += 0.5 * where[:3, 0]
    elif change == "spacing":
        other[:3, 1] *= 1.02
    else:
        other = affine(1)
    with pytest.raises(CaseError, match=r"seg\.dcm: frame 1 does not lie on the grid"):
        segmentation.read_mask(path, grid=Geometry(SHAPE, other))


def test_labels_choose_and_number_the_segments(tmp_path):
    array, where = labels(), affine()
    path, _ = written(tmp_path, array, where)
    grid = Geometry(SHAPE, where)
    for kind in ("BINARY", "LABELMAP"):
        path, _ = written(tmp_path, array, where, kind=kind)
        mask = segmentation.read_mask(path, grid=grid, labels={"spleen": 7, "left kidney": 7})
        np.testing.assert_array_equal(mask.labels, np.where(array >= 2, 7, 0))
        assert mask.names == {7: "spleen + left kidney"}
    with pytest.raises(CaseError, match=r"seg\.dcm: has no segment 'splen'; did you mean 'spleen'\?"):
        segmentation.read_mask(path, labels={"splen": 1})
    with pytest.raises(CaseError, match="labels start at 1"):
        segmentation.read_mask(path, labels={"spleen": 0})


def overlapping(folder, kind="BINARY", **options):
    """Two boxes that share a voxel, and one apart."""
    where = affine()
    series = write_series(folder / "series", Image(np.zeros((1, *SHAPE), np.int16), where), PatientName="")
    array = np.zeros((*SHAPE, 3), dtype=np.uint8 if kind == "BINARY" else np.float32)
    array[1:4, 1:4, 1:3, 0] = array[3:6, 3:5, 2:4, 1] = array[0, 0, 1:5, 2] = 1
    if kind == "FRACTIONAL":
        array *= [0.5, 0.49, 1]
    described = [
        hd.seg.SegmentDescription(
            n,
            name,
            pydicom.sr.coding.Code("91723000", "SCT", "Anatomical structure"),
            pydicom.sr.coding.Code("85756007", "SCT", "Tissue"),
            "MANUAL",
        )
        for n, name in NAMES.items()
    ]
    file = hd.seg.Segmentation(
        [pydicom.dcmread(path) for path in series], array.transpose(2, 1, 0, 3), kind, described, "1.2.3", 1, "1.2.3.4",
        1, "a", "b", "c", "d", **options,
    )  # fmt: skip
    file.save_as(folder / "overlap.dcm")
    return folder / "overlap.dcm", array, Geometry(SHAPE, where)


def test_overlapping_segments_are_refused_by_name_and_can_be_read_apart(tmp_path):
    path, array, grid = overlapping(tmp_path)
    with pytest.raises(CaseError, match=r"overlap\.dcm: segments overlap.*\('liver' and 'spleen'\); choose"):
        segmentation.read_mask(path, grid=grid)
    mask = segmentation.read_mask(path, grid=grid, labels={"liver": 1, "left kidney": 2})
    np.testing.assert_array_equal(mask.labels, array[..., 0] + 2 * array[..., 2])
    together = segmentation.read_mask(path, grid=grid, labels={"liver": 1, "spleen": 1})
    np.testing.assert_array_equal(together.labels, array[..., 0] | array[..., 1])
    segments = segmentation.read_segments(path, grid=grid)
    assert segments.names == NAMES
    for number, one in segments.arrays.items():
        np.testing.assert_array_equal(one, array[..., number - 1] > 0)


@pytest.mark.parametrize("syntax", [pydicom.uid.ExplicitVRLittleEndian, pydicom.uid.RLELossless])
def test_a_fractional_segmentation_is_cut_at_half(tmp_path, syntax):
    # 0.5 of 200 is stored as 100 and is in, 0.49 as 98 and is out.
    path, array, grid = overlapping(tmp_path, "FRACTIONAL", max_fractional_value=200, transfer_syntax_uid=syntax)
    mask = segmentation.read_mask(path, grid=grid)
    np.testing.assert_array_equal(mask.labels, (array[..., 0] > 0) + 3 * (array[..., 2] > 0))
    assert any("at least half" in note for note in mask.notes)


def test_a_missing_frame_of_reference_or_series_does_not_matter(tmp_path):
    path, _ = written(tmp_path, labels(), affine())

    def strip(dataset):
        del dataset.FrameOfReferenceUID, dataset.ReferencedSeriesSequence
        dataset.SeriesInstanceUID = ""

    mask = segmentation.read_mask(edited(path, strip), grid=Geometry(SHAPE, affine()))
    np.testing.assert_array_equal(mask.labels, labels())


@pytest.mark.parametrize("name", ["liver_1frame.dcm", "liver_expb_1frame.dcm"])
def test_a_real_file_reads_in_either_byte_order(tmp_path, name):
    path = Path(pydicom.data.get_testdata_file(name, download=False))
    with pytest.raises(CaseError, match=rf"{name}: holds 1 frames but describes 3"):
        segmentation.read_mask(path)
    dataset = pydicom.dcmread(path)
    del dataset.PerFrameFunctionalGroupsSequence[1:]
    dataset.save_as(tmp_path / name)
    mask = segmentation.read_mask(tmp_path / name)
    np.testing.assert_array_equal(mask.labels[:, :, 0].T, dataset.pixel_array)
    assert mask.labels.any()


def forget_places(dataset):
    for group in dataset.PerFrameFunctionalGroupsSequence:
        del group.PlanePositionSequence


def drop_frame(dataset):
    del dataset.PerFrameFunctionalGroupsSequence[0]


def repeat_frame(dataset):
    groups = dataset.PerFrameFunctionalGroupsSequence
    groups[1] = groups[0]


def move_frame(dataset):
    place = dataset.PerFrameFunctionalGroupsSequence[-1].PlanePositionSequence[0]
    place.ImagePositionPatient = [float(x) + 0.4 for x in place.ImagePositionPatient]


def stray_frame(dataset):
    dataset.PerFrameFunctionalGroupsSequence[3].SegmentIdentificationSequence[0].ReferencedSegmentNumber = 9


def no_number(dataset):
    dataset.PerFrameFunctionalGroupsSequence[3].SegmentIdentificationSequence[0].ReferencedSegmentNumber = 0


def cut(dataset):
    dataset.PixelData = dataset.PixelData[:4]


def no_segments(dataset):
    dataset.SegmentSequence = []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (forget_places, "frame 1 does not say which segment it shows and where it lies"),
        (drop_frame, "holds 9 frames but describes 8"),
        (repeat_frame, "frames 1 and 2 show one segment at one place"),
        (move_frame, "uneven distances|no common grid"),
        (stray_frame, "frame 4 shows segment 9, which the file does not describe"),
        (no_number, "frame 4 does not say which segment"),
        (cut, "is cut short"),
        (no_segments, "describes no segment"),
    ],
)
def test_a_damaged_file_is_refused_in_words(tmp_path, change, sentence):
    path, _ = written(tmp_path, labels(), affine())
    with pytest.raises(CaseError, match=rf"edited\.dcm: .*({sentence})"):
        segmentation.read_mask(edited(path, change))


def test_another_dicom_file_is_refused(tmp_path):
    (path,) = write_series(tmp_path, Image(np.zeros((1, 3, 3, 1), np.int16), affine()))
    with pytest.raises(CaseError, match=r"0001\.dcm: is no DICOM-SEG; .* modality CT"):
        segmentation.read_mask(path)


def test_a_series_that_lacks_what_a_segmentation_repeats_can_have_one(tmp_path):
    array, where = labels(), affine()
    series = write_series(tmp_path / "series", Image(np.zeros((1, *SHAPE), np.int16), where))
    for path in series:
        dataset = pydicom.dcmread(path)
        for keyword in ("PatientSex", "PatientBirthDate", "StudyID", "AccessionNumber"):
            if keyword in dataset:
                delattr(dataset, keyword)
        dataset.save_as(path)
    path = write_segmentation(tmp_path / "seg.dcm", Mask(array, where), series, names=NAMES)
    np.testing.assert_array_equal(segmentation.read_mask(path, grid=Geometry(SHAPE, where)).labels, array)


def test_a_ct_is_no_label_map_whatever_its_values(tmp_path):
    few = Image(np.arange(-3, 13, dtype=np.int16).reshape(1, 4, 4, 1).repeat(2, -1), np.eye(4))
    write_series(tmp_path / "ct", few)
    with pytest.raises(CaseError, match="is an image, CT with a RescaleIntercept of -1024"):
        read_mask(tmp_path / "ct")

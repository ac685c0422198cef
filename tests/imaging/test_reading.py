"""One way in for every format: what a file is taken for, and what happens when it cannot be read."""

import gzip
import os
import warnings
import zipfile

import nibabel as nib
import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.case import Image, Mask, Probabilities
from medimg_eval.checking import describe
from medimg_eval.deid.folder import scan_folder
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import (
    ImageFile,
    MaskFile,
    distinct_values,
    identify,
    read,
    read_grid,
    read_mask,
    write_image,
    write_mask,
)
from medimg_eval.imaging.dicom.writing.images import write_picture, write_segmentation, write_series
from medimg_eval.imaging.slides.features import read_features
from medimg_eval.imaging.slides.reading import write_pyramid
from medimg_eval.imaging.video.reading import write_video
from medimg_eval.imaging.volumes import reading as volumes_module
from medimg_eval.imaging.volumes.reading import read_probabilities, write_probabilities


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def nifti(path, array=None):
    nib.save(
        nib.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4) if array is None else array, np.eye(4)), path
    )
    return path


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(path)
    return path


DICOM_HEAD = b"\0" * 128 + b"DICM" + b"\x02\0\0\0UL\x04\0\0\0\0\0"


@pytest.mark.parametrize(
    ("name", "content", "family"),
    [
        ("a", DICOM_HEAD, "dicom"),
        ("a.png", DICOM_HEAD, "dicom"),  # whatever it is called
        ("a", b"\x08\0\x05\0CS\x0a\0ISO_IR 100", "dicom"),  # no preamble
        ("a.dat", b"NRRD0004\n", "volume"),
        ("a.mhd", b"ObjectType = Image\n", "volume"),
        ("a.b2nd", b"\x9e\xa8b2frame\0", "volume"),
        ("a", (348).to_bytes(4, "little") + bytes(400), "volume"),
        ("a", (348).to_bytes(4, "big") + bytes(400), "volume"),
        ("a", (540).to_bytes(4, "little") + bytes(600), "volume"),
        ("a.nii.gz", gzip.compress((348).to_bytes(4, "little") + bytes(400), mtime=0), "volume"),
        ("a.nii.gz", b"\x1f\x8b damaged", "volume"),
        ("a", b"\x89PNG\r\n\x1a\n", "picture"),
        ("a", b"\xff\xd8\xff\xe0", "picture"),
        ("a", b"BM" + bytes(12) + b"\x28\0\0\0", "picture"),
        ("a", b"GIF89a", "picture"),
        ("a", b"\0\0\0\x20ftypisom", "video"),
        ("a", b"RIFF....AVI LIST", "video"),
        ("a", b"\x1aE\xdf\xa3", "video"),
        ("a.ts", (b"G" + bytes(187)) * 2, "video"),
        ("a.mgz", gzip.compress(b"\0\0\0\1", mtime=0), "volume"),
        ("a", b"\x93NUMPY\x01\0", "array"),
        ("a", b"\x89HDF\r\n\x1a\n", "array"),
        ("a.npz", b"PK\x03\x04", "array"),
        ("a.mrxs", b"\xff\xd8\xff\xe0", "slide"),
    ],
)
def test_a_file_is_what_its_content_says(tmp_path, name, content, family):
    assert identify(write(tmp_path / name, content)) == family


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"note\.txt: is empty"),
        (b"some words", r"note\.txt: is of no known image format; expected DICOM, NIfTI"),
        (b"BMI,weight,height\n21.5,70,1.80\n", r"note\.txt: is of no known image format"),
        (b"GIF8 is how these pictures start", r"note\.txt: is of no known image format"),
        (b"\x08\0\x05\0hello, this is no DICOM", r"note\.txt: is of no known image format"),
        (b"PK\x03\x04", r"note\.txt: is of no known image format"),
        (gzip.compress(DICOM_HEAD, mtime=0), r"note\.txt: is of no known image format"),
    ],
)
def test_what_is_no_image_is_named(tmp_path, content, words):
    with pytest.raises(CaseError, match=words):
        read(write(tmp_path / "note.txt", content))


def test_a_missing_file_is_named(tmp_path):
    for method in (read, read_mask, read_grid):
        with pytest.raises(CaseError, match=r"gone\.nii\.gz: no such file"):
            method(tmp_path / "gone.nii.gz")


def test_a_file_that_may_not_be_opened_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a", b"x")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(CaseError, match="cannot be opened"):
        identify(path)


def test_a_folder_is_what_its_images_are(tmp_path):
    write(tmp_path / "ct" / "deep" / "0001", DICOM_HEAD)
    write(tmp_path / "ct" / "README", b"a note")
    picture(tmp_path / "clip" / "0.png")
    write(tmp_path / "none" / "notes.txt", b"words")
    nifti(write(tmp_path / "mixed" / "a.nii", b"").parent / "a.nii")
    assert (identify(tmp_path / "ct"), identify(tmp_path / "clip")) == ("dicom", "video")
    with pytest.raises(CaseError, match=r"none: holds no image"):
        identify(tmp_path / "none")
    with pytest.raises(CaseError, match=r"mixed: is a folder; name the file, such as .*a\.nii"):
        identify(tmp_path / "mixed")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaseError, match="pipe: is neither a file nor a folder"):
        read(tmp_path / "pipe")
    picture(tmp_path / "z.png")
    assert identify(tmp_path) == "video"


def test_a_folder_is_looked_through_in_order_and_behind_links_as_its_readers_do(tmp_path):
    write(tmp_path / "there" / "1", DICOM_HEAD)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "away").symlink_to(tmp_path / "there", target_is_directory=True)
    assert identify(tmp_path / "linked") == "dicom"
    write(tmp_path / "both" / "a" / "x", DICOM_HEAD)
    picture(tmp_path / "both" / "b" / "x.png")
    assert identify(tmp_path / "both") == "dicom"


def test_an_option_of_another_format_is_refused(tmp_path):
    path = nifti(tmp_path / "a.nii")
    with pytest.raises(UsageError, match=r"a\.nii: reading a volume takes no option 'regoin'; did you mean 'region'\?"):
        read(path, regoin=((0, 1),) * 3)


def test_no_file_at_all_is_an_error():
    with pytest.raises(CaseError, match="at least one file"):
        read([])


def test_nan_voxels_are_refused_or_replaced_and_counted(tmp_path):
    array = np.ones((2, 3, 4), np.float32)
    array[0, 0, 0], array[1, 1, 1] = np.nan, np.inf
    path = nifti(tmp_path / "a.nii", array)
    with pytest.raises(CaseError, match=r"a\.nii: holds NaN or infinite voxels"):
        read(path)
    image = read(path, nan=-1.0)
    assert image.array[0, 0, 0, 0] == image.array[0, 1, 1, 1] == -1
    assert image.array.dtype == np.float32
    assert "2 NaN or infinite voxels were set to -1" in image.notes


def test_what_a_library_warns_of_becomes_a_note_without_values(tmp_path, monkeypatch):
    def reader(paths, *, region=None):
        for _ in range(2):
            warnings.warn("Invalid value for VR PN: 'Doe^Jane'", stacklevel=1)
        return Image(np.zeros((1, 2, 2)), np.eye(4))

    monkeypatch.setattr(volumes_module, "read", reader)
    assert read(nifti(tmp_path / "a.nii")).notes == ("Invalid value for VR PN: '...'",)


def test_what_a_library_raises_becomes_one_sentence_without_values(tmp_path, monkeypatch):
    def reader(paths, *, region=None):
        raise KeyError("Doe^Jane")

    monkeypatch.setattr(volumes_module, "read", reader)
    with pytest.raises(CaseError, match=r"a\.nii: cannot be read \(KeyError: '\.\.\.'\)"):
        read(nifti(tmp_path / "a.nii"))


def test_references_read_when_asked_and_know_their_files(tmp_path):
    path = nifti(tmp_path / "a.nii")
    image = ImageFile(path, modality="CT", region=((0, 1), (0, 3), (1, 3)))
    assert (image.files, image.read().array.shape, image.read().modality) == ((path,), (1, 1, 3, 2), "CT")
    assert image.geometry().difference(image.read().geometry) is None
    mask = MaskFile((path,))
    assert (mask.files, mask.read().labels.max()) == ((path,), 23)
    assert mask.geometry().difference(mask.read().geometry) is None


def test_a_zip_that_is_no_bundle_is_no_image(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "words")
    with pytest.raises(CaseError, match="no known image format"):
        identify(tmp_path / "a.zip")


def test_paths_may_be_strings_and_begin_at_home(tmp_path, monkeypatch):
    nifti(tmp_path / "a.nii")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~/a.nii").array.shape == read(os.fspath(tmp_path / "a.nii")).array.shape


def test_places_are_given_as_texts_too(tmp_path):
    volume, mask = str(tmp_path / "a.nii.gz"), str(tmp_path / "b.nii")
    shown = write_image(volume, Image(np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4), np.eye(4)))
    drawn = write_mask(mask, Mask(np.ones((2, 3, 4), np.uint8), np.eye(4)))
    assert shown is None
    assert drawn is None
    assert identify(volume) == "volume"
    assert read(volume).array.shape == (1, 2, 3, 4)
    assert read_grid(volume).shape == read_mask(mask).labels.shape == (2, 3, 4)
    assert ImageFile(volume).files == ImageFile(tmp_path / "a.nii.gz").files
    assert MaskFile(mask).files == (tmp_path / "b.nii",)
    assert [one.path.name for one in describe(volume)] == ["a.nii.gz"]


def test_places_of_what_is_written_beside_volumes_are_given_as_texts_too(tmp_path):
    halves = Probabilities(np.full((2, 2, 3, 4), 0.5, np.float32), (0, 1), np.eye(4))
    write_probabilities(str(tmp_path / "p.b2nd"), halves)
    assert read_probabilities(str(tmp_path / "p.b2nd")).array.shape == (2, 2, 3, 4)
    write_pyramid(str(tmp_path / "s.tif"), np.zeros((64, 64, 3), np.uint8), um_per_px=1.0)
    write_video(str(tmp_path / "v.mp4"), np.zeros((2, 16, 16, 3), np.uint8), 10)
    np.save(tmp_path / "f.npy", np.ones((2, 3)))
    assert read_features(str(tmp_path / "f.npy")).features.shape == (2, 3)
    files = write_series(str(tmp_path / "dicom"), Image(np.zeros((1, 4, 4, 2), np.int16), np.eye(4)))
    write_picture(str(tmp_path / "x.dcm"), Image(np.zeros((1, 4, 4), np.uint16), np.eye(4)))
    drawn = write_segmentation(
        str(tmp_path / "seg.dcm"), Mask(np.ones((4, 4, 2), np.uint8), np.eye(4)), files, names={1: "liver"}
    )
    assert drawn == tmp_path / "seg.dcm"
    assert scan_folder(str(tmp_path / "dicom")).looked["DICOM"] == 2


def blobs(numbers, shape=(64, 64, 24), edge=8):
    """A label map of cubes, numbered in turn, with a margin of background between some."""
    place = np.indices(shape) // edge
    index = np.ravel_multi_index(place, [-(-size // edge) for size in shape])
    labels = np.asarray(numbers)[index % len(numbers)]
    labels[(np.indices(shape)[0] % (3 * edge)) < 3] = 0
    return labels.astype(np.int32)


@pytest.mark.parametrize("numbers", [
    [1, 2, 3], range(1, 118), [-1, 1, 2],  # a few organs, TotalSegmentator's, "ignore"
    [*range(1, 90), *range(1000, 1036), *range(11101, 11175), *range(12101, 12176)],  # FreeSurfer's
    [*range(1, 90), 251, *range(14100, 14176)],
], ids=len)  # fmt: skip
def test_label_maps_of_many_and_large_numbers_are_label_maps(tmp_path, numbers):
    labels = blobs(list(numbers))
    assert np.array_equal(read_mask(nifti(tmp_path / "a.nii", labels)).labels, labels)


def test_thousands_of_instances_are_a_label_map(tmp_path):
    labels = blobs(range(1, 4000), (600, 600, 1), 10)[..., 0].astype(np.uint16)  # nuclei, touching
    Pillow.fromarray(labels).save(tmp_path / "a.png")
    assert np.array_equal(read_mask(tmp_path / "a.png").labels, labels)
    points = np.zeros((64, 64, 24), np.int32)  # of a voxel each, none beside another
    points[::3, ::3, ::3] = np.arange(1, points[::3, ::3, ::3].size + 1).reshape(points[::3, ::3, ::3].shape)
    assert read_mask(nifti(tmp_path / "b.nii", points)).labels.max() > 3000


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (-1024, 3071, np.int16), (0, 4095, np.uint16), (0, 255, np.uint8), (-1000, 400, np.float32),
])  # fmt: skip
def test_an_image_is_no_label_map(tmp_path, low, high, dtype):
    shape = np.array((64, 60, 20))
    across = np.indices(shape).T / shape
    body = np.hypot(*(across[..., :2].T - 0.5)) < 0.4
    grey = np.random.default_rng(0).normal(np.sin(7 * across).sum(-1).T, 0.2)  # tissue that varies, and noise
    scaled = low + (high - low) * (grey - grey.min()) / np.ptp(grey)
    path = nifti(tmp_path / "ct.nii", np.rint(np.where(body, scaled, low)).astype(dtype))
    with pytest.raises(CaseError, match=r"ct\.nii: holds \d+ values from .* as those of an image do"):
        read_mask(path)


@pytest.mark.parametrize("shape", [(0,), (1, 1), (5, 7), (4, 3, 2)])
@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_values_of_a_label_map_are_each_once_in_any_order_of_memory(shape, kind):
    labels = (np.random.default_rng(0).integers(-1, 3, shape) % 7).astype(kind)
    for view in (labels, labels.T, np.asfortranarray(labels)[::-1]):
        np.testing.assert_array_equal(distinct_values(view), np.unique(view))
        assert distinct_values(view).dtype == labels.dtype

"""What `check path=...` says of files and folders."""

import nibabel as nib
import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.case import Image
from medimg_eval.checking import describe
from medimg_eval.commands.check import check_path
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.dicom.writing.images import write_series
from medimg_eval.imaging.slides.reading import write_pyramid
from medimg_eval.imaging.video.reading import write_video

TILTED = np.array([[0.0, -2, 0, 5], [2, 0, 0, 6], [0, 0.1, 3, 7], [0, 0, 0, 1]])


def nifti(path, array, affine=TILTED):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, affine), path)
    return path


def series(folder, seed=0, **settings):
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(seed).integers(-100, 100, (1, 6, 5, 4)).astype(np.int16)
    write_series(folder, Image(pixels, np.diag([1.0, 1, 2, 1])), seed=seed, **settings)
    return folder


def test_a_volume_is_described(tmp_path):
    labels = np.zeros((2, 3, 4), np.float32)
    labels[0, 0] = 2
    (one,) = describe(nifti(tmp_path / "a.nii.gz", labels))
    assert one.kind == "NIfTI volume"
    assert one.readable
    assert one.facts == {
        "shape": "2 x 3 x 4",
        "spacing": "2 x 2.002 x 3 mm",
        "orientation": "ALS, 2.9 degrees oblique",
        "values": "float32, 0 to 2",
        "labels": "0 (83 %), 2 (17 %)",
    }
    assert "few whole numbers stored as float32: if these are labels, store integers" in one.doubts


def test_a_constant_image_is_doubted(tmp_path):
    (one,) = describe(nifti(tmp_path / "a.nii", np.full((2, 2, 2), 7, np.uint8)))
    assert "every voxel has the same value" in one.doubts


def test_a_picture_has_no_physical_size(tmp_path):
    Pillow.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)).save(tmp_path / "a.png")
    (one,) = describe(tmp_path / "a.png")
    assert (one.kind, one.facts["shape"]) == ("PNG picture", "4 x 5, 3 channels")
    assert one.facts["spacing"] == "unknown: the file states no physical size"


def test_the_files_of_a_series_are_one_thing(tmp_path):
    series(tmp_path / "study" / "ct")
    series(tmp_path / "study" / "other", seed=1)
    (tmp_path / "study" / "notes.txt").write_text("words")
    found = {one.path.relative_to(tmp_path).as_posix(): one for one in describe(tmp_path)}
    assert set(found) == {"study/ct", "study/other", "study/notes.txt"}
    assert found["study/ct"].kind == "DICOM CT series of 4 files"
    assert found["study/ct"].facts["shape"] == "6 x 5 x 4"
    assert found["study/notes.txt"].kind == "1 other files (1 x .txt)"


def test_what_cannot_be_read_is_named_and_the_rest_is_described(tmp_path):
    nifti(tmp_path / "good.nii", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    (tmp_path / "cut.nii").write_bytes((tmp_path / "good.nii").read_bytes()[:355])
    (tmp_path / "empty.dcm").touch()
    found = {one.path.name: one for one in describe(tmp_path)}
    assert {name: one.readable for name, one in found.items()} == {
        "good.nii": True,
        "cut.nii": False,
        "empty.dcm": False,
    }
    assert "cut.nii" in found["cut.nii"].doubts[-1]


def test_identifying_attributes_are_named_never_shown(tmp_path):
    import pydicom

    for path in series(tmp_path / "Doe_Jane").iterdir():
        dataset = pydicom.dcmread(path)
        dataset.PatientName, dataset.PatientID, dataset.StudyDate = "Doe^Jane", "MRN0815", "20200131"
        dataset.PatientIdentityRemoved, dataset.LongitudinalTemporalInformationModified = "NO", "UNMODIFIED"
        dataset.save_as(path)
    (one,) = describe(tmp_path)
    said = " ".join(one.doubts)
    assert "attributes that identify are filled: " in said
    assert "PatientName" in said
    assert "StudyDate" in said
    for value in ("Doe", "Jane", "MRN0815", "20200131"):
        assert value not in said


def test_nothing_to_look_at_is_an_error(tmp_path):
    with pytest.raises(CaseError, match="no such file"):
        list(describe(tmp_path / "gone"))
    (tmp_path / "none").mkdir()
    with pytest.raises(CaseError, match="holds no files"):
        list(describe(tmp_path / "none"))


def test_many_alike_are_shown_together_with_what_differs_counted(tmp_path, capsys):
    for index in range(8):
        array = np.full((2, 2, 2), 3, np.uint8) if index == 5 else np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
        nifti(tmp_path / "many" / f"{index}.nii", array, np.eye(4))
    check_path(tmp_path)
    printed = capsys.readouterr().out
    assert "many: 8 x NIfTI volume" in printed
    assert "every voxel has the same value (1 of them)" in printed
    assert "8 things looked at, 0 unreadable, " in printed


def test_an_unreadable_file_ends_in_an_error_after_all_were_looked_at(tmp_path, capsys):
    nifti(tmp_path / "b.nii", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    (tmp_path / "a.nii").write_bytes(b"\x5c\x01\0\0" + bytes(400))
    with pytest.raises(UserError, match="1 of 2 cannot be read, listed above"):
        check_path(tmp_path)
    assert "b.nii: NIfTI volume" in capsys.readouterr().out


def test_a_slide_a_video_and_arrays_are_described(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (150, 130, 3)).astype(np.uint8)
    write_pyramid(tmp_path / "s.tif", pixels, um_per_px=0.5, tile=64, levels=2)
    (slide,) = describe(tmp_path / "s.tif")
    assert slide.kind == "slide"
    assert slide.facts["shape"] == "150 x 130 (row x column)"
    assert slide.facts["levels"] == "1/1, 1/2"
    write_video(tmp_path / "c.mp4", np.stack([pixels[:20, :32]] * 5), 25)
    (video,) = describe(tmp_path / "c.mp4")
    assert video.facts == {"shape": "5 frames of 20 x 32 (row x column)", "rate": "25 frames a second"}
    write_video(tmp_path / "one.mp4", pixels[None, :20, :32], 25)
    (one,) = describe(tmp_path / "one.mp4")
    assert one.facts["rate"] == "unknown: a single frame"
    np.savez(tmp_path / "a.npz", train_images=pixels[None])
    (arrays,) = describe(tmp_path / "a.npz")
    assert arrays.facts == {"train_images": "1 x 150 x 130 x 3 uint8"}


def test_the_two_files_of_a_pair_are_one_thing(tmp_path):
    nib.save(nib.Nifti1Pair(np.arange(8, dtype=np.uint8).reshape(2, 2, 2), np.eye(4)), tmp_path / "v.hdr")
    (one,) = describe(tmp_path)
    assert (one.path.name, one.kind) == ("v.hdr", "NIfTI volume")
    (named,) = describe(tmp_path / "v.img")
    assert named.facts == one.facts


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "mp4", "npz", "nrrd", "mgz"])
def test_whatever_is_damaged_the_rest_is_described(tmp_path, suffix, capfd):
    nifti(tmp_path / "good.nii", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    start = {"png": b"\x89PNG\r\n\x1a\n", "jpg": b"\xff\xd8\xff\xe0", "tif": b"II*\0\x08\0\0\0", "npz": b"PK\3\4"}
    start |= {"mp4": b"\0\0\0\x20ftypisom", "nrrd": b"NRRD0004\n", "mgz": b"\x1f\x8b\x08"}
    (tmp_path / f"bad.{suffix}").write_bytes(start[suffix] + bytes(range(256)))
    found = {one.path.name: one for one in describe(tmp_path)}
    assert found["good.nii"].readable
    assert not found[f"bad.{suffix}"].readable
    assert f"bad.{suffix}: " in found[f"bad.{suffix}"].doubts[-1]
    assert capfd.readouterr() == ("", "")


def test_links_are_followed_and_one_to_nowhere_is_named(tmp_path):
    nifti(tmp_path / "there" / "a.nii", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "there", target_is_directory=True)
    (tmp_path / "here" / "lost.nii").symlink_to(tmp_path / "gone.nii")
    found = {one.path.name: one for one in describe(tmp_path / "here")}
    assert found["a.nii"].readable
    assert found["lost.nii"].doubts[0].endswith("lost.nii: is a link to nowhere; fetch the file it stands for")

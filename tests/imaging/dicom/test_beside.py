"""What lies beside a DICOM series: passed over and said, a rival that is named, or a slice that is broken."""

import re

import nibabel as nib
import numpy as np
import pydicom
import pytest
from dicom_fixtures import Grid, ramp, require_equal, write_series
from PIL import Image as Pillow

from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid


def picture(path):
    Pillow.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(path)


def nifti(path):
    nib.save(nib.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.eye(4)), path)


def edited(path, edit):
    dataset = pydicom.dcmread(path)
    edit(dataset)
    dataset.save_as(path)


@pytest.mark.parametrize("name", ["0_logo.png", "zz_logo.png"])
def test_a_picture_or_a_document_is_passed_over_and_said_wherever_it_sorts(tmp_path, name):
    write_series(tmp_path, ramp())
    picture(tmp_path / name)
    image = require_equal(tmp_path, ramp(), Grid())
    assert image.notes == (f"1 other files in the folder were passed over, such as {name}",)
    (tmp_path / "0_report.pdf").write_bytes(b"%PDF-1.7\n")
    assert "2 other files in the folder were passed over" in require_equal(tmp_path, ramp(), Grid()).notes[0]


@pytest.mark.parametrize("name", ["0.nii.gz", "zz.nii.gz"])
def test_two_things_that_may_be_meant_are_both_named(tmp_path, name):
    paths = write_series(tmp_path, ramp(), shuffle=None)
    nifti(tmp_path / name)
    for call in (read, read_grid):
        with pytest.raises(CaseError, match="either may be meant; name the one to read") as caught:
            call(tmp_path)
        assert f"{tmp_path / name} (volume)" in str(caught.value)
        assert f"{paths[0]} (dicom)" in str(caught.value)
    assert read(paths).array.shape == (1, 5, 7, 6)


def test_an_export_with_a_viewer_is_its_series(tmp_path):
    write_series(tmp_path / "DICOM" / "ST0", ramp())
    for name in ("AUTORUN/logo.png", "AUTORUN/back.bmp", "VIEWER/help.pdf", "INDEX.HTM", "AUTORUN.INF"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(tmp_path / name) if name.endswith(("png", "bmp")) else (tmp_path / name).write_text("words")
    image = require_equal(tmp_path, ramp(), Grid())
    assert image.notes == ("3 other files in the folder were passed over, such as back.bmp",)


def test_what_a_folder_holds_is_counted_before_anything_is_chosen(tmp_path):
    write_series(tmp_path / "a", ramp())
    for name in ("b.nii.gz", "c.nii.gz", "d.nii"):
        nifti(tmp_path / name)
    picture(tmp_path / "logo.png")
    (tmp_path / "notes.txt").write_text("words")
    census = "6 dicom (6 .dcm), 3 volume (2 .nii.gz, 1 .nii), 1 picture (1 .png), 1 other (1 .txt)"
    with pytest.raises(CaseError, match=re.escape(f"{tmp_path}: holds {census}. ")):
        read(tmp_path)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_of_several_paths_does_not_decide_what_they_are(tmp_path, first):
    write_series(tmp_path / "ct", ramp())
    nifti(tmp_path / "scan.nii.gz")
    paths = [tmp_path / "ct", tmp_path / "scan.nii.gz"]
    with pytest.raises(CaseError, match=r"\((dicom|volume)\) and .*images of several kinds, which are not read as one"):
        read(paths[first:] + paths[:first])


def test_a_picture_does_not_stand_for_the_volume_beside_it(tmp_path):
    picture(tmp_path / "0.png")
    nifti(tmp_path / "scan.nii.gz")
    with pytest.raises(CaseError, match=r"is a folder; name the file, such as .*scan\.nii\.gz"):
        read(tmp_path)


def no_text(path):
    path.write_text("<html>Please log in</html>")


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size - 20])


BROKEN = {
    "text": (no_text, "is not DICOM"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "is not DICOM"),
    "picture": (lambda path: Pillow.new("L", (4, 4)).save(path, "PNG"), "is not DICOM"),
    "cut within its pixels": (half, "is cut short within its pixels"),
    "cut within its header": (lambda path: path.write_bytes(path.read_bytes()[:700]), "cut short|damaged"),
    "magic and zeros": (lambda path: path.write_bytes(bytes(128) + b"DICM" + bytes(900)), "without its pixels|damaged"),
    "link": (lambda path: (path.unlink(), path.symlink_to("gone"))[0], "is a link to a file that is not there"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("suffix", [".dcm", ".IMA", ""])
def test_a_file_named_like_a_slice_that_cannot_be_read_is_never_passed_over(tmp_path, kind, suffix):
    (last := write_series(tmp_path, ramp(), shuffle=None, suffix=suffix)[-1]).exists()
    breaking, words = BROKEN[kind]
    breaking(last)
    for call in (read, read_grid):
        with pytest.raises(CaseError, match=f"{re.escape(str(last))}: .*({words})"):
            call(tmp_path)
    found = list(describe.describe(tmp_path))
    assert any(str(last) in doubt for one in found if not one.readable for doubt in one.doubts)


def test_a_folder_of_nothing_but_a_broken_slice_names_it(tmp_path):
    no_text(tmp_path / "0001.dcm")
    picture(tmp_path / "0.png")
    with pytest.raises(CaseError, match=r"0001\.dcm: is not DICOM"):
        read(tmp_path)


ODD = {
    "position": (lambda dataset: delattr(dataset, "ImagePositionPatient"), "has no ImagePositionPatient"),
    "orientation": (lambda dataset: delattr(dataset, "ImageOrientationPatient"), "or no ImageOrientationPatient"),
    "spacing": (lambda dataset: delattr(dataset, "PixelSpacing"), "has another PixelSpacing, or none"),
    "rows": (lambda dataset: setattr(dataset, "Rows", 6), "has 6 x 5 rows and columns instead of 7 x 5"),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_last_slice_that_does_not_fit_its_series_is_named(tmp_path, kind):
    last = write_series(tmp_path, ramp(), shuffle=None, series="1.2.3")[-1]
    edited(last, ODD[kind][0])
    for source in (tmp_path, sorted(tmp_path.iterdir())):
        with pytest.raises(CaseError, match=f"{re.escape(str(last))}: .*{ODD[kind][1]}") as caught:
            read(source)
    label = re.search(r"series=(\S+)$", str(caught.value))[1]
    assert read(tmp_path, series=label).array.shape == (1, 5, 7, 5)

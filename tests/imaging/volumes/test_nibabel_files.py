"""Every file that nibabel ships for its own tests is read as nibabel reads it, or refused in one sentence."""

import shutil
import warnings
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from damaging import require_result_or_name

from medimg_eval.errors import CaseError
from medimg_eval.imaging import identify, read, read_grid
from medimg_eval.imaging.volumes import reading as volumes

ROOT = Path(nib.__file__).parent
FILES = sorted(path for path in ROOT.rglob("data/*") if path.is_file() and path.suffix not in (".py", ".pyc"))

READ = [
    *("anatomical.nii", "functional.nii", "reoriented_anat_moved.nii", "standard.nii.gz", "example4d.nii.gz"),
    "example_nifti2.nii.gz",
]
"""What must not be refused."""


def theirs(path):
    """What nibabel makes of a file: (channel, *spatial) and affine; None where it reads no volume."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = nib.load(path)
            array = np.asanyarray(image.dataobj)
        except Exception:  # noqa: BLE001 - whatever nibabel raises, there is nothing to compare with
            return None
        affine = getattr(image, "affine", None)
        time_first = path.suffix == ".mnc" and array.ndim == 4  # as all that nibabel ships name their axes
        del image  # while warnings of files left open are ignored
    if affine is None or not 2 <= array.ndim <= 4:
        return None
    return np.moveaxis(array, 3, 0) if array.ndim == 4 and not time_first else array.reshape(
        (-1, *array.shape[-3:])
    ), affine


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_shipped_file_is_read_as_nibabel_reads_it_or_refused(path):
    try:
        image = read(path, nan=0.0) if identify(path) != "dicom" else read(path)
    except CaseError as error:
        assert path.name in str(error)  # noqa: PT017 - either way will do
        assert path.name not in READ
        return
    expected = theirs(path)
    if expected is not None:
        np.testing.assert_allclose(image.array, np.nan_to_num(expected[0], posinf=0, neginf=0), rtol=1e-6)
        np.testing.assert_allclose(image.affine, expected[1], atol=1e-6)
        assert read_grid(path).difference(image.geometry) is None


RARE = [path for path in FILES if path.suffix in (".mnc", ".HEAD", ".BRIK", ".PAR", ".REC", ".mgz")]
"""Formats read through nibabel itself, which the front may or may not tell apart."""


@pytest.mark.parametrize("path", RARE, ids=lambda path: path.name)
def test_a_rare_format_is_read_as_nibabel_reads_it_or_refused(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = volumes.read([path])
        except CaseError as error:
            assert path.stem in str(error)  # noqa: PT017 - either way will do
            return
    expected = theirs(path)
    np.testing.assert_allclose(image.array, expected[0], rtol=1e-6)
    np.testing.assert_allclose(image.affine, expected[1])


def test_the_sweep_found_the_files():
    assert len(FILES) > 80
    assert {*READ} <= {path.name for path in FILES}


@pytest.mark.parametrize(("name", "shape"), [
    ("minc1_4d.mnc", (2, 10, 20, 20)), ("minc2_4d.mnc", (2, 10, 20, 20)), ("minc2-4d-d.mnc", (5, 16, 16, 16)),
])  # fmt: skip
def test_minc_says_by_name_which_axis_is_time(name, shape):
    path = ROOT / "tests" / "data" / name
    image = read(path)
    stored = nib.load(path)
    assert image.array.shape == shape
    assert (image.channels.kind, len(image.channels.values)) == ("time", len(image.array))
    assert read_grid(path).shape == image.geometry.shape == shape[1:]
    np.testing.assert_array_equal(image.array, np.asarray(stored.dataobj))
    np.testing.assert_array_equal(image.affine, stored.affine)
    part = read(path, region=((1, 5), (2, 6), (3, 4)))
    np.testing.assert_array_equal(part.array, image.array[:, 1:5, 2:6, 3:4])


@pytest.mark.parametrize("name", ["minc1_4d.mnc", "minc2-4d-d.mnc"])
def test_damaged_minc_is_read_or_named(tmp_path, name):
    path = shutil.copy(ROOT / "tests" / "data" / name, tmp_path / name)
    require_result_or_name(path, read, 60, head=4000)

"""Real files that ship inside pydicom: what SimpleITK reads too must lie in the same place."""

from pathlib import Path

import numpy as np
import pydicom
import pytest
import SimpleITK

from medimg_eval.errors import UserError
from medimg_eval.imaging import read

FOLDER = Path(pydicom.__file__).parent / "data" / "test_files"


def by_itk(path):
    """(pixels (i, j, k), affine in RAS+ mm), or None where ITK cannot read the file."""
    SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        image = SimpleITK.ReadImage(str(path))
    except RuntimeError:
        return None
    if image.GetDimension() != 3 or image.GetNumberOfComponentsPerPixel() != 1:
        return None
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    affine[:2] *= -1
    return SimpleITK.GetArrayFromImage(image).T, affine


def test_files_of_slices_lie_where_itk_puts_them():
    compared = 0
    for path in sorted(file for file in FOLDER.rglob("*") if file.is_file()):
        try:
            image = read(path)
        except UserError:
            continue
        if image.units == "pixel" or image.array.ndim != 4 or image.array.shape[0] != 1:
            continue
        other = by_itk(path)
        if other is None:
            continue
        pixels, affine = other
        assert image.array.shape[1:] == pixels.shape, path.name
        # The third column of a lone slice is its thickness here, and 1 mm there.
        columns = [0, 1, 3] if pixels.shape[2] == 1 else [0, 1, 2, 3]
        np.testing.assert_allclose(image.affine[:3, columns], affine[:3, columns], atol=1e-3, err_msg=path.name)
        if image.modality != "RTDOSE":  # ITK leaves the scaling to gray out
            np.testing.assert_allclose(image.array[0], pixels, atol=1e-3, err_msg=path.name)
        compared += 1
    if compared == 0:
        pytest.skip("this pydicom ships no test files")
    assert compared > 30

"""Raw data as fastMRI and Calgary-Campinas store them."""

import h5py
import numpy as np
import pytest

from medimg_eval.data.layouts import KSpaceScans
from medimg_eval.errors import CaseError, UsageError, UserError


@pytest.fixture
def fastmri(tmp_path):
    """Two scans of 3 slices, 2 coils, 6 by 4; the first has an image, the second a mask and none."""
    rng = np.random.default_rng(0)
    (tmp_path / "multicoil_val").mkdir()
    samples = (rng.normal(size=(3, 2, 6, 4)) + 1j * rng.normal(size=(3, 2, 6, 4))).astype(np.complex64)
    for name, more in (("file1", "reconstruction_rss"), ("file2", "mask")):
        with h5py.File(tmp_path / f"multicoil_val/{name}.h5", "w") as file:
            file["kspace"] = samples
            file[more] = np.arange(3 * 4 * 4, dtype=np.float32).reshape(3, 4, 4) if more != "mask" else np.ones(4)
            file.attrs["acquisition"] = "CORPD_FBK"
            file.attrs["patient_id"] = "secret"
    return tmp_path, samples


def test_fastmris_scans_hold_samples_and_image(fastmri):
    root, samples = fastmri
    case, _ = KSpaceScans(root=str(root), file="multicoil_{split}/{case}.h5", keys="fastmri").cases("val")
    image = case.images[0].read()
    np.testing.assert_array_equal(image.array, samples.transpose(1, 0, 2, 3))
    assert image.attributes == {"axes": "slice ky kx", "centred": "true", "acquisition": "CORPD_FBK"}
    assert case.images[0].geometry().shape == image.array.shape[1:] == (3, 6, 4)
    assert case.target.read().array.shape == (1, 3, 4, 4)
    assert case.target.read().array.max() == 47
    assert case.target.geometry().shape == (3, 4, 4)


def test_slices_are_cut_of_samples_and_image_alike(fastmri):
    root, samples = fastmri
    case, _ = KSpaceScans(root=str(root), file="multicoil_val/{case}.h5", keys="fastmri", slices=[1, 2]).cases("val")
    np.testing.assert_array_equal(case.images[0].read().array[:, 0], samples[1])
    assert case.target.read().array.min() == 16
    assert case.images[0].geometry().shape == (1, 6, 4)


def test_an_under_sampled_scan_without_an_image_cannot_be_judged(fastmri):
    _, case = KSpaceScans(root=str(fastmri[0]), file="multicoil_val/{case}.h5", keys="fastmri").cases("val")
    with pytest.raises(CaseError, match=r"file2\.h5: is under-sampled and holds no image"):
        case.target.read()


def test_calgary_campinas_is_interleaved_and_judged_by_the_root_of_the_sum_of_squares(tmp_path):
    picture = np.zeros((2, 4, 6))
    picture[1, 2, 3] = 5
    coils = np.stack([3 / 5 * picture, 4 / 5 * picture], axis=-1)
    samples = np.fft.fft2(coils, axes=(1, 2), norm="ortho")
    with h5py.File(tmp_path / "e14089s3_P53248.7.h5", "w") as file:
        file["kspace"] = np.stack([samples.real, samples.imag], axis=-1).reshape(2, 4, 6, 4).astype(np.float32)
    (case,) = KSpaceScans(root=str(tmp_path), file="{case}.h5", keys="mc-mrrec").cases("test")
    assert case.id == "e14089s3_P53248.7"
    image = case.images[0].read()
    np.testing.assert_allclose(np.abs(image.array), np.abs(np.moveaxis(samples, -1, 0)), atol=1e-6)
    assert image.attributes["centred"] == "true"  # its signs alternate no more
    np.testing.assert_allclose(case.target.read().array[0], picture, atol=1e-6)


def test_a_key_map_may_be_spelled_out(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = np.ones((2, 3, 4), np.complex64)
    keys = {"kspace": "raw", "axes": ["slice", "ky", "kx"]}
    (case,) = KSpaceScans(root=str(tmp_path), file="{case}.h5", keys=keys).cases("test")
    assert case.images[0].read().array.shape == (1, 2, 3, 4)
    (wrong,) = KSpaceScans(root=str(tmp_path), file="{case}.h5", keys={**keys, "kspace": "row"}).cases("test")
    with pytest.raises(CaseError, match=r"a\.h5: holds no array 'row'; did you mean 'raw'"):
        wrong.images[0].read()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keys": "fastmr"}, "got 'fastmr'; did you mean 'fastmri'"),
        ({"keys": {"kspace": "k"}}, "a key map needs 'kspace' and 'axes'"),
        ({"keys": {"kspace": "k", "axes": [], "centered": True}}, "has no field 'centered'; did you mean 'centred'"),
        ({"file": "multicoil_test/{case}.h5"}, r"multicoil_test/\{case\}\.h5: there is no such file"),
    ],
)
def test_a_layout_of_scans_that_does_not_fit_says_so(fastmri, settings, words):
    arguments = {"root": str(fastmri[0]), "file": "multicoil_val/{case}.h5", "keys": "fastmri"}
    with pytest.raises((UserError, UsageError), match=words):
        KSpaceScans(**(arguments | settings)).cases("val")

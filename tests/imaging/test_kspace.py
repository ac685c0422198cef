"""k-space: the key maps of published sets, reading by slice, and the Fourier conventions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.kspace import PRESETS, KeyMap, KSpace, inverse_fft, kspace_shape, read_kspace, rss

h5py = pytest.importorskip("h5py")


def noise(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def hdf5(path, attributes=None, **arrays):
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
        file.attrs.update(attributes or {})
    return path


def by_definition(samples, centred):
    """The inverse transform of a matrix written as the sum that defines it."""
    rows, columns = samples.shape
    row = np.arange(rows) - (rows // 2 if centred else 0)
    column = np.arange(columns) - (columns // 2 if centred else 0)
    left = np.exp(2j * np.pi * np.outer(row, row) / rows) / np.sqrt(rows)
    right = np.exp(2j * np.pi * np.outer(column, column) / columns) / np.sqrt(columns)
    return left @ samples @ right.T


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), centred=st.booleans(), seed=st.integers(0, 99))
def test_the_inverse_transform_is_the_sum_that_defines_it(rows, columns, centred, seed):
    samples = noise(rows, columns, seed=seed)
    found = inverse_fft(samples, (0, 1), centred=centred)
    assert found.dtype == np.complex64
    assert np.allclose(found, by_definition(samples, centred), atol=1e-4)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(samples), rel=1e-4)  # orthonormal


@pytest.mark.parametrize("size", [4, 5])
def test_the_lowest_frequency_alone_gives_a_flat_image(size):
    samples = np.zeros((size, size), np.complex64)
    samples[size // 2, size // 2] = size
    assert np.allclose(inverse_fft(samples, (0, 1)), 1)
    samples = np.zeros((size, size), np.complex64)
    samples[0, 0] = size
    assert np.allclose(inverse_fft(samples, (0, 1), centred=False), 1)


def test_two_coils_combine_by_the_root_of_their_squares():
    # Flat coil images of 3 and 4i: the magnitude is 5 everywhere.
    samples = np.zeros((1, 2, 4, 6), np.complex64)
    samples[0, 0, 2, 3], samples[0, 1, 2, 3] = 3 * np.sqrt(24), 4j * np.sqrt(24)
    assert np.allclose(rss(KSpace(samples, ("slice", "coil", "ky", "kx"))), np.full((1, 4, 6), 5), atol=1e-5)
    assert np.allclose(rss(KSpace(samples[:, 0], ("slice", "ky", "kx"))), np.full((1, 4, 6), 3), atol=1e-5)


def test_a_fastmri_file_is_read_by_slice_without_its_patient(tmp_path):
    samples, target = noise(5, 3, 8, 6), np.random.default_rng(1).random((5, 4, 4)).astype(np.float32)
    path = hdf5(
        tmp_path / "f.h5",
        attributes={"acquisition": "CORPD_FBK", "max": 0.5, "norm": 2.0, "patient_id": "0beb8905d9b7"},
        kspace=samples,
        reconstruction_rss=target,
        ismrmrd_header=b"<xml>Doe^Jane</xml>",
        mask=np.array([1, 0, 1, 0, 1, 1], bool),
    )
    data = read_kspace(path, "fastmri", slices=3)
    assert np.array_equal(data.samples, samples[3:4])
    assert np.array_equal(data.target, target[3:4])
    assert data.mask.tolist() == [True, False, True, False, True, True]
    assert data.maps is None
    assert data.attributes == {"acquisition": "CORPD_FBK", "max": "0.5", "norm": "2.0"}
    assert "Doe" not in repr(data)
    assert "0beb" not in repr(data)
    assert read_kspace(path, "fastmri", slices=(1, 3)).samples.shape == (2, 3, 8, 6)
    assert kspace_shape(path, "fastmri") == (5, 3, 8, 6)
    expected = np.sqrt(sum(np.abs(by_definition(samples[3, coil], centred=True)) ** 2 for coil in range(3)))
    assert np.allclose(rss(data)[0], expected, atol=1e-4)


def test_a_single_coil_fastmri_file_has_its_own_target(tmp_path):
    target = np.ones((2, 4, 4), np.float32)
    path = hdf5(tmp_path / "f.h5", kspace=noise(2, 8, 6), reconstruction_esc=target, reconstruction_rss=target * 2)
    assert np.array_equal(read_kspace(path, "fastmri-singlecoil").target, target)
    with pytest.raises(CaseError, match=r"f\.h5: kspace has shape \(2, 8, 6\), but the key map names 4 axes"):
        read_kspace(path, "fastmri")


def test_an_skm_tea_file_has_maps_and_a_target_for_each_echo(tmp_path):
    samples, maps, target = noise(4, 6, 5, 2, 3), noise(4, 6, 5, 3, 1), noise(4, 6, 5, 2, 1)
    path = hdf5(tmp_path / "MTR_005.h5", kspace=samples, maps=maps, target=target)
    data = read_kspace(path, "skm-tea", slices=(1, 3))
    assert np.array_equal(data.samples, samples[1:3])
    assert np.array_equal(data.maps, maps[1:3])
    assert np.array_equal(data.target, target[1:3])
    image = rss(data)
    assert image.shape == (2, 6, 5, 2)
    # The first axis is in image space already: each slice is transformed on its own.
    expected = np.sqrt(sum(np.abs(by_definition(samples[2, :, :, 1, coil], centred=True)) ** 2 for coil in range(3)))
    assert np.allclose(image[1, :, :, 1], expected, atol=1e-4)


def test_an_mc_mrrec_file_alternates_real_and_imaginary_parts(tmp_path):
    samples = noise(3, 6, 5, 4)
    stored = np.empty((3, 6, 5, 8), np.float32)
    stored[..., ::2], stored[..., 1::2] = samples.real, samples.imag
    path = hdf5(tmp_path / "e.h5", kspace=stored)
    data = read_kspace(path, "mc-mrrec", slices=2)
    assert data.samples.dtype == np.complex64
    # Neighbouring samples alternate in sign (along an odd length by its phase): only that is taken out.
    assert np.allclose(np.abs(data.samples), np.abs(samples[2:3]), rtol=1e-5)
    assert np.allclose(data.samples[0, 1:, 2] / data.samples[0, :-1, 2], -samples[2, 1:, 2] / samples[2, :-1, 2], 1e-3)
    # Its authors take numpy's ifft2 as it is: nothing is shifted, and without the orthonormal factor.
    theirs = np.sqrt((np.abs(np.fft.ifft2(samples, axes=(1, 2))) ** 2).sum(axis=-1))
    assert np.allclose(rss(data), theirs[2:3] * np.sqrt(30), rtol=1e-4)


@settings(deadline=None, max_examples=15)
@given(dtype=st.sampled_from(["<f4", ">f4", "<f8"]), coils=st.integers(1, 4), seed=st.integers(0, 99))
def test_interleaved_parts_come_back_identical(dtype, coils, seed, tmp_path_factory):
    samples = noise(2, 3, coils, seed=seed)
    stored = np.stack([samples.real, samples.imag], axis=-1).reshape(2, 3, 2 * coils).astype(dtype)
    path = hdf5(tmp_path_factory.mktemp("k") / "k.h5", raw=stored)
    found = read_kspace(path, KeyMap(kspace="raw", axes=("slice", "kx", "coil"), interleaved=True))
    assert np.array_equal(found.samples, samples)


def test_what_is_wrong_is_named_with_its_file(tmp_path):
    path = hdf5(tmp_path / "k.h5", kspace_4=noise(2, 3, 4, 6), real=np.ones((2, 3, 4, 5), np.float32))
    with pytest.raises(
        CaseError, match=r"k\.h5: holds no array 'kspace'; did you mean 'kspace_4'\? \(available: .*real"
    ):
        read_kspace(path, "fastmri")
    with pytest.raises(CaseError, match=r"k\.h5: expected complex numbers in real, got float32; set interleaved=True"):
        read_kspace(path, KeyMap(kspace="real", axes=("slice", "coil", "ky", "kx")))
    with pytest.raises(CaseError, match=r"k\.h5: expected interleaved .* in kspace_4, got complex64"):
        read_kspace(path, KeyMap(kspace="kspace_4", axes=("x", "ky", "kz", "coil"), interleaved=True))
    with pytest.raises(CaseError, match=r"k\.h5: real has 5 values along its last axis"):
        kspace_shape(path, KeyMap(kspace="real", axes=("x", "ky", "kz", "coil"), interleaved=True))
    whole = KeyMap(kspace="kspace_4", axes=("slice", "coil", "ky", "kx"))
    for wrong in (2, -1, (1, 1), (0, 3)):
        with pytest.raises(CaseError, match=r"k\.h5: has 2 slices, counted from 0"):
            read_kspace(path, whole, slices=wrong)
    with pytest.raises(CaseError, match=r"n\.h5: no such file"):
        read_kspace(tmp_path / "n.h5", "fastmri")
    with pytest.raises(UsageError, match=r"got 'fastmr'; did you mean 'fastmri'"):
        read_kspace(path, "fastmr")
    assert set(PRESETS) == {"fastmri", "fastmri-singlecoil", "skm-tea", "mc-mrrec"}


@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_a_file_cut_short_is_an_error_that_names_it(tmp_path, part):
    whole = hdf5(tmp_path / "w.h5", kspace=noise(4, 2, 16, 16)).read_bytes()
    (tmp_path / "k.h5").write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(CaseError, match=r"k\.h5: is no HDF5 file, or cut short"):
        read_kspace(tmp_path / "k.h5", "fastmri")


def test_a_damaged_chunk_is_an_error_that_names_the_file(tmp_path):
    with h5py.File(tmp_path / "k.h5", "w") as file:
        file.create_dataset("kspace", data=noise(4, 2, 16, 16), chunks=(1, 2, 16, 16), fletcher32=True)
    data = bytearray((tmp_path / "k.h5").read_bytes())
    data[-100] ^= 0xFF
    (tmp_path / "k.h5").write_bytes(data)
    with pytest.raises(CaseError, match=r"k\.h5: is damaged"):
        read_kspace(tmp_path / "k.h5", "fastmri")

"""Bad input, kind by kind, in every format that is not DICOM: one sentence that names the file and the mend, or a note.

The kinds that only DICOM knows (gaps, duplicates, tilt, several series, ...) are in `test_dicom_*`.
"""

import gzip
import itertools
import logging
import multiprocessing
import random
import warnings

import blosc2
import h5py
import imagecodecs
import nibabel as nib
import numpy as np
import pytest
import SimpleITK
import tifffile
from PIL import Image as Pillow

from medimg_eval.case import Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging import ImageFile, read, read_grid, read_mask, write_image, write_mask
from medimg_eval.imaging.slides.reading import write_pyramid
from medimg_eval.imaging.video.reading import write_video

AFFINE = np.array([[-1.5, 0.1, 0, 10], [0.1, 2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]])
VOLUME = np.random.default_rng(0).integers(-1000, 1000, (7, 6, 5)).astype(np.int16)
PICTURE = np.random.default_rng(1).integers(0, 256, (30, 40, 3)).astype(np.uint8)


def itk(path, array, compressed=False):
    image = SimpleITK.GetImageFromArray(array.T)
    image.SetSpacing((1.5, 2.0, 3.0)[: array.ndim])
    SimpleITK.WriteImage(image, str(path), compressed)


def nifti(path, array, affine=AFFINE):
    nib.save(nib.Nifti1Image(array, affine), path)


def zipped_arrays(path, array):
    np.savez_compressed(path, a=array)


def hdf5(path, array):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=array, compression="gzip")


def clip(path):
    frames = np.stack([np.roll(np.tile(PICTURE[:16, :16], (2, 2, 1)), shift, 0) for shift in range(12)])
    write_video(path, frames, 25, keyframe_every=4)


VOLUMES = {
    "v.nii": nifti,
    "v.nii.gz": nifti,
    "v.mha": itk,
    "z.mha": lambda path, array: itk(path, array, compressed=True),
    "v.mhd": itk,
    "v.nrrd": lambda path, array: itk(path, array, compressed=True),
    "v.nhdr": itk,
    "v.hdr": lambda path, array: nib.save(nib.AnalyzeImage(array, AFFINE), path),
    "v.mgz": lambda path, array: nib.save(nib.MGHImage(array, AFFINE), path),
    "v.b2nd": lambda path, array: blosc2.asarray(np.ascontiguousarray(array)[None], urlpath=str(path), mode="w"),
    "v.npy": np.save,
    "v.npz": zipped_arrays,
    "v.h5": hdf5,
}

OTHERS = {
    "p.png": lambda path: Pillow.fromarray(PICTURE).save(path),
    "p.jpg": lambda path: Pillow.fromarray(PICTURE).save(path),
    "p.bmp": lambda path: Pillow.fromarray(PICTURE).save(path),
    "p.gif": lambda path: Pillow.fromarray(PICTURE).save(path),
    "p.tif": lambda path: tifffile.imwrite(path, PICTURE),
    "z.tif": lambda path: tifffile.imwrite(path, PICTURE, compression="zlib"),
    "s.tif": lambda path: write_pyramid(path, np.tile(PICTURE, (9, 7, 1)), um_per_px=0.5, tile=64),
    "c.mp4": clip,
}

EVERY = {name: (lambda path, write=write: write(path, VOLUME)) for name, write in VOLUMES.items()} | OTHERS


@pytest.mark.parametrize("name", EVERY)
def test_a_truncated_file_is_named(tmp_path, name):
    path = tmp_path / name
    EVERY[name](path)
    read(path)
    for file in list(tmp_path.iterdir()):
        whole = file.read_bytes()
        for part in (0.1, 0.5, 0.9):
            file.write_bytes(whole[: int(len(whole) * part)])
            with pytest.raises(CaseError, match=r"/[vpzsc]\.[a-z0-9.]+: ") as caught:
                read(path)
            assert "\n" not in str(caught.value)
        file.write_bytes(whole)


@pytest.mark.parametrize("name", [name for name in VOLUMES if name != "v.hdr"])
def test_nan_voxels_are_refused_or_replaced_as_asked(tmp_path, name):
    array = VOLUME.astype(np.float32)
    array[0, 0, 0], array[1, 1, 1] = np.nan, np.inf
    VOLUMES[name](tmp_path / name, array)
    with pytest.raises(CaseError, match=rf"{name}: holds NaN or infinite voxels; .* or read with nan=VALUE"):
        read(tmp_path / name)
    image = read(tmp_path / name, nan=-7)
    assert (image.array == -7).sum() >= 2
    assert "2 NaN or infinite voxels were set to -7" in image.notes


def patched(path, at, value):
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize("step", [0, -2, np.nan])
@pytest.mark.parametrize(("name", "at", "kind"), [("v.hdr", 84, "<f4"), ("v.mgh", 34, ">f4"), ("v.nii", 84, "<f4")])
def test_a_spacing_of_zero_or_less_is_refused(tmp_path, name, at, kind, step):
    path = tmp_path / name
    if name == "v.nii":
        nifti(path, VOLUME, None)  # neither form: the spacing of pixdim is all there is
    else:
        nib.save({"v.hdr": nib.AnalyzeImage, "v.mgh": nib.MGHImage}[name](VOLUME, AFFINE), path)
    patched(path, at, np.array([step], kind).tobytes())
    for call in (read, read_grid):
        with pytest.raises(CaseError, match=rf"{name}: has no usable affine: (the )?spacing (is )?.*mend"):
            call(path)


def test_an_axis_of_one_voxel_may_leave_its_size_out(tmp_path):
    nib.save(nib.AnalyzeImage(VOLUME[:, :, :1], AFFINE), tmp_path / "v.hdr")
    patched(tmp_path / "v.hdr", 88, np.zeros(1, "<f4").tobytes())
    assert read(tmp_path / "v.hdr").array.shape == (1, 7, 6, 1)


@pytest.mark.parametrize("name", [name for name in VOLUMES if name != "v.hdr"])
def test_labels_stored_as_float_are_taken_when_whole(tmp_path, name):
    labels = np.zeros((7, 6, 5), np.float32)
    labels[2, 3, 4] = 3
    VOLUMES[name](tmp_path / name, labels)
    mask = read_mask(tmp_path / name)
    assert mask.labels.dtype == np.uint8
    assert "labels are stored as float32, all whole numbers: taken as integers" in mask.notes
    np.testing.assert_array_equal(mask.labels, labels)
    labels[2, 3, 4] = 0.25
    (tmp_path / "probability").mkdir()
    VOLUMES[name](tmp_path / "probability" / name, labels)
    with pytest.raises(CaseError, match=rf"{name}: expected whole-number labels, got values such as 0\.25"):
        read_mask(tmp_path / "probability" / name)


def test_a_mask_on_another_grid_is_told_in_words(tmp_path):
    image = tmp_path / "v.nii.gz"
    nifti(image, VOLUME)
    moved, smaller = AFFINE.copy(), VOLUME[:-1]
    moved[0, 3] += 0.75
    for name, array, affine, said in (
        ("same", VOLUME, AFFINE, None),
        ("shifted", VOLUME, moved, "another affine: grids are up to 0.75 mm apart"),
        ("flipped", VOLUME, AFFINE @ np.diag([-1.0, 1, 1, 1]), "another affine"),
        ("smaller", smaller, AFFINE, r"shape (6, 6, 5) instead of (7, 6, 5)"),
    ):
        write_mask(tmp_path / f"{name}.nii.gz", Mask(np.abs(array), affine))
        found = read_grid(image).difference(read_mask(tmp_path / f"{name}.nii.gz").geometry)
        assert found is None if said is None else (found or "").startswith(said)


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.nii.gz"
    header = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), AFFINE).to_bytes()[:352]
    with gzip.open(path, "wb", 9) as stream:
        stream.write(header)
        for _ in range(64):
            stream.write(bytes(1 << 20))
    assert read(path).array.shape == (1, 2, 2, 2)
    assert "the file goes on long after its last voxel" in read(path).notes[0]
    claimed = bytearray(header)
    claimed[40:48] = np.array([3, 30000, 30000, 30000], "<i2").tobytes()
    path.write_bytes(gzip.compress(bytes(claimed) + bytes(1 << 20)))
    for call in (read, read_grid):
        with pytest.raises(CaseError, match=r"bomb\.nii\.gz: is cut short, or its header is wrong: the header asks"):
            call(path)


@pytest.mark.parametrize("name", [name for name in VOLUMES if name not in ("v.npy", "v.npz", "v.h5", "v.b2nd")])
def test_one_voxel_is_a_volume(tmp_path, name):
    VOLUMES[name](tmp_path / name, np.full((1, 1, 1), 7, np.int16))
    image = read(tmp_path / name)
    assert image.array.tolist() == [[[[7]]]]
    assert read_grid(tmp_path / name).difference(image.geometry) is None


def test_a_codec_that_nobody_knows_is_named(tmp_path):
    tifffile.imwrite(tmp_path / "p.tif", PICTURE, compression="zlib")
    data = bytearray((tmp_path / "p.tif").read_bytes())
    data[data.find((259).to_bytes(2, "little")) + 8] = 77
    (tmp_path / "p.tif").write_bytes(data)
    with pytest.raises(CaseError, match=r"p\.tif: is cut short or damaged \(77 is not a known COMPRESSION\)"):
        read(tmp_path / "p.tif")
    (tmp_path / "p.jp2").write_bytes(imagecodecs.jpeg2k_encode(PICTURE))
    with pytest.raises(CaseError, match=r"p\.jp2: is of no known image format"):
        read(tmp_path / "p.jp2")
    header = "NRRD0004\ntype: short\ndimension: 3\nsizes: 7 6 5\nencoding: lzma\nendian: little\nspacings: 1 1 1\n\n"
    (tmp_path / "v.nrrd").write_bytes(header.encode() + bytes(100))
    with pytest.raises(CaseError, match=r"v\.nrrd: cannot be read .*encoding"):
        read(tmp_path / "v.nrrd")


def damaged(name, number, whole):
    """The bytes of a file cut or with a few bytes changed, mostly in its header; the same for the same number."""
    chance = random.Random(f"{name} {number}")  # noqa: S311
    data = bytearray(whole)
    if number % 3 == 0:
        return bytes(data[: chance.randrange(len(data))])
    for _ in range(chance.choice([1, 1, 2, 4])):
        place = chance.randrange(min(len(data), 600 if chance.random() < 0.8 else len(data)))
        data[place] = chance.choice([0, 255, 128, 127, data[place] ^ (1 << chance.randrange(8)), ord("-"), ord("0")])
    return bytes(data)


@pytest.mark.parametrize("name", EVERY)
def test_changed_bytes_give_an_image_or_one_sentence_and_nothing_on_the_screen(tmp_path, capfd, caplog, name):
    path = tmp_path / name
    EVERY[name](path)
    wholes = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for number, (file, whole) in itertools.product(range(12), wholes.items()):
        packed = number % 2 and whole[:2] == b"\x1f\x8b"
        changed = damaged(name, number, gzip.decompress(whole) if packed else whole)
        file.write_bytes(gzip.compress(changed, 1) if packed else changed)
        try:
            image = read(path)
            grid = read_grid(path)
        except CaseError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert grid.shape == image.geometry.shape
            assert grid.units == image.units
            np.testing.assert_array_equal(grid.affine, image.affine)
            assert np.isfinite(image.affine).all()
            assert image.array.size
        file.write_bytes(whole)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def one_voxel(name):
    """An array with a single bright place, and where that is."""
    array = np.zeros((5, 8) if name.startswith("p") else (4, 5, 6), np.uint8)
    place = (1, 6) if array.ndim == 2 else (1, 3, 5)
    array[place] = 9
    return array, place


@pytest.mark.parametrize("name", ["p.png", "p.tif", "p.bmp", "p.nii.gz", "p.npy", "v.nii", "v.nrrd", "v.npy"])
def test_a_mask_keeps_the_order_of_its_axes_through_nifti(tmp_path, name):
    array, place = one_voxel(name)
    writers = {
        "png": lambda path: Pillow.fromarray(array).save(path),
        "bmp": lambda path: Pillow.fromarray(array).save(path),
        "tif": lambda path: tifffile.imwrite(path, array),
        "npy": lambda path: np.save(path, array),
        "nrrd": lambda path: itk(path, array),
    }
    writers.get(name.split(".", 1)[1], lambda path: nifti(path, array, np.eye(4)))(tmp_path / name)
    mask = read_mask(tmp_path / name)
    assert mask.labels.shape == array.shape
    assert np.argwhere(mask.labels).tolist() == [list(place)]
    for written in ("out.nii.gz", "out.nii"):
        write_mask(tmp_path / written, mask)
        back = read_mask(tmp_path / written)
        np.testing.assert_array_equal(back.labels, mask.labels)
        np.testing.assert_allclose(back.affine, mask.affine)
        assert back.units == mask.units == read_grid(tmp_path / written).units
    image = read(tmp_path / name)
    write_image(tmp_path / "image.nii.gz", image)
    assert np.argwhere(read(tmp_path / "image.nii.gz").array[0]).tolist() == [list(place)]
    assert read(tmp_path / "image.nii.gz").units == image.units


@pytest.mark.parametrize(
    ("labels", "kind"), [([-1, 2], np.int8), ([-1, 200], np.int16), ([0, 300], np.uint16), ([0, 2**40], np.uint64)]
)
def test_labels_below_zero_and_far_above_come_back(tmp_path, labels, kind):
    array = np.array(labels, np.int64).reshape(1, 1, 2)
    write_mask(tmp_path / "m.nii.gz", Mask(array, AFFINE))
    back = read_mask(tmp_path / "m.nii.gz").labels
    np.testing.assert_array_equal(back, array)
    assert back.dtype == kind


def test_what_cannot_be_a_mask_or_a_name_is_refused(tmp_path):
    with pytest.raises(CaseError, match=r"m\.nii\.gz: expected whole-number labels to write, got float64"):
        write_mask(tmp_path / "m.nii.gz", Mask(np.ones((2, 2, 2)), AFFINE))
    with pytest.raises(CaseError, match=r"m\.png: images and masks are written as NIfTI; .*\.nii\.gz or \.nii"):
        write_mask(tmp_path / "m.png", Mask(np.ones((2, 2), np.uint8), np.eye(4)))
    assert not list(tmp_path.iterdir())


def test_a_code_of_a_form_that_means_nothing_is_noted(tmp_path):
    nifti(tmp_path / "v.nii", VOLUME)
    patched(tmp_path / "v.nii", 254, (45).to_bytes(2, "little"))
    image = read(tmp_path / "v.nii")
    np.testing.assert_allclose(image.affine, AFFINE)
    assert any("sform_code is 45, which means nothing" in note for note in image.notes)


def test_what_a_library_says_of_its_own_code_is_no_note(tmp_path, monkeypatch):
    from medimg_eval.imaging.pictures import reading as pictures

    plain = pictures.read

    def warn(paths, **options):
        warnings.warn("unclosed file", ResourceWarning, stacklevel=1)
        warnings.warn("will be removed", DeprecationWarning, stacklevel=1)
        warnings.warn("a tag is odd", UserWarning, stacklevel=1)
        return plain(paths, **options)

    OTHERS["p.png"](tmp_path / "p.png")
    monkeypatch.setattr(pictures, "read", warn)
    assert read(tmp_path / "p.png").notes == ("a tag is odd",)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_references_read_alike_in_worker_processes(tmp_path, method):
    for name, write in EVERY.items():
        write(tmp_path / name)
    references = [ImageFile(tmp_path / name) for name in EVERY]
    references += [
        ImageFile(tmp_path / "v.nii", region=((1, 3), (0, 2), (2, 4))),
        ImageFile(tmp_path / "s.tif", options={"level": 1}),
        ImageFile(tmp_path / "c.mp4", options={"frames": [5, 1]}),
        ImageFile(tmp_path / "v.npz", options={"axes": "zyx"}),
        ImageFile(tmp_path / "p.png", options={"channels": "grey"}),
        ImageFile(tmp_path / "v.nii.gz", options={"nan": 0.0}),
    ]
    here = [reference.read() for reference in references]
    with multiprocessing.get_context(method).Pool(1) as pool:
        there = pool.map(ImageFile.read, references)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.array, other.array)
        assert one.notes == other.notes

"""DICOM series written with pydicom, for the tests of everything that reads DICOM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels import get_encoder
from pydicom.uid import (
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    MRImageStorage,
    PositronEmissionTomographyImageStorage,
    RLELossless,
    generate_uid,
)

from medimg_eval.case import Image
from medimg_eval.imaging.reading import read, read_grid

Edit = Callable[[Dataset, int], None]

JPEG_BASELINE = "1.2.840.10008.1.2.4.50"
JPEG_EXTENDED = "1.2.840.10008.1.2.4.51"
JPEG_LOSSLESS = "1.2.840.10008.1.2.4.57"
JPEG_LOSSLESS_SV1 = "1.2.840.10008.1.2.4.70"
JPEG_LS = "1.2.840.10008.1.2.4.80"
JPEG_2000_LOSSLESS = "1.2.840.10008.1.2.4.90"
JPEG_2000 = "1.2.840.10008.1.2.4.91"
HTJ2K_LOSSLESS = "1.2.840.10008.1.2.4.201"

NATIVE = (ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian)
LOSSLESS = (RLELossless, JPEG_LOSSLESS, JPEG_LOSSLESS_SV1, JPEG_LS, JPEG_2000_LOSSLESS, HTJ2K_LOSSLESS)

STILL = np.arange(12, dtype=np.uint16).reshape(3, 4) * 300
"""A picture of 12 bits."""

_CLASSES = {"CT": CTImageStorage, "MR": MRImageStorage, "PT": PositronEmissionTomographyImageStorage}


@dataclass(frozen=True)
class Grid:
    """Where a stack lies: LPS mm, as DICOM states it.

    Attributes:
        origin: centre of the first pixel of the first slice.
        across: direction of growing column index.
        down: direction of growing row index.
        spacing: between rows, between columns.
        step: from one slice to the next; along the normal unless the gantry is tilted.
    """

    origin: tuple[float, float, float] = (-100.0, -80.0, 40.0)
    across: tuple[float, float, float] = (1.0, 0.0, 0.0)
    down: tuple[float, float, float] = (0.0, 1.0, 0.0)
    spacing: tuple[float, float] = (0.7, 0.7)
    step: tuple[float, float, float] = (0.0, 0.0, 2.5)

    @property
    def affine(self) -> np.ndarray:
        """(column, row, slice) to RAS+ mm."""
        affine = np.eye(4)
        affine[:3, 0] = np.array(self.across) * self.spacing[1]
        affine[:3, 1] = np.array(self.down) * self.spacing[0]
        affine[:3, 2] = self.step
        affine[:3, 3] = self.origin
        affine[:2] *= -1
        return affine


def rotated(rotation: np.ndarray, step: float = 2.5, spacing: tuple[float, float] = (0.7, 0.9)) -> Grid:
    """A grid whose axes are the columns of a rotation matrix."""
    across, down, _ = (tuple(float(f"{value:.9f}") for value in axis) for axis in rotation.T)
    return Grid(
        (-31.5, 12.25, 7.0),
        across,
        down,
        spacing,
        tuple(step * value for value in np.cross(across, down)),  # type: ignore[arg-type]
    )


def ramp(shape: tuple[int, int, int] = (6, 7, 5), dtype: Any = np.int16, high: int = 2000) -> np.ndarray:
    """Stored samples, (slice, row, column), every one different from its neighbours."""
    return (np.arange(np.prod(shape)) * 37 % high).reshape(shape).astype(dtype)


def slice_dataset(
    pixels: np.ndarray,
    *,
    position: Sequence[float] = (0, 0, 0),
    grid: Grid | None = None,
    modality: str = "CT",
    series: str = "1.2.826.0.1.3680043.8.498.1",
    number: int = 1,
    bits: int | None = None,
) -> Dataset:
    """One slice in memory: (rows, columns), or (rows, columns, 3) as RGB."""
    grid = grid or Grid()
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = _CLASSES.get(modality, CTImageStorage)
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = Dataset()
    dataset.file_meta = meta
    dataset.SOPClassUID = meta.MediaStorageSOPClassUID
    dataset.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    dataset.PatientName, dataset.PatientID = "Secret^Name", "SECRET-ID"
    dataset.PatientBirthDate, dataset.PatientSex = "19700101", "O"
    dataset.StudyDate, dataset.StudyTime, dataset.StudyID = "20240102", "101112", "7"
    dataset.AccessionNumber, dataset.ReferringPhysicianName = "SECRET-ACC", "Secret^Doctor"
    dataset.Modality, dataset.Manufacturer = modality, "Acme"
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = "1.2.826.0.1.3680043.8.498.9", series
    dataset.FrameOfReferenceUID = "1.2.826.0.1.3680043.8.498.8"
    dataset.SeriesNumber, dataset.InstanceNumber, dataset.AcquisitionNumber = 1, number, 1
    dataset.ImagePositionPatient = [_ds(value) for value in position]
    dataset.ImageOrientationPatient = [_ds(value) for value in (*grid.across, *grid.down)]
    dataset.PixelSpacing = [_ds(value) for value in grid.spacing]
    dataset.SliceThickness = "3"
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    dataset.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = pixels.dtype.itemsize * 8
    dataset.BitsStored = bits or dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.RescaleSlope, dataset.RescaleIntercept = "1", "0"
    raw = pixels.tobytes()
    dataset.PixelData = raw + b"\0" * (len(raw) % 2)
    dataset["PixelData"].VR = "OW" if pixels.dtype.itemsize > 1 else "OB"
    return dataset


def save(dataset: Dataset, path: Path, syntax: str = ExplicitVRLittleEndian) -> Path:
    """Writes a dataset of uncompressed pixels in any transfer syntax."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.file_meta.TransferSyntaxUID = syntax
    if syntax not in NATIVE:
        frames = [encode(dataset, frame, syntax) for frame in _frames(dataset)]
        dataset.PixelData = encapsulate(frames)
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
        if dataset.SamplesPerPixel > 1:
            dataset.PlanarConfiguration = 0
    elif syntax == ExplicitVRBigEndian and dataset.BitsAllocated > 8:
        dataset.PixelData = np.frombuffer(dataset.PixelData, f"u{dataset.BitsAllocated // 8}").byteswap().tobytes()
    dataset.save_as(
        path,
        implicit_vr=syntax == ImplicitVRLittleEndian,
        little_endian=syntax != ExplicitVRBigEndian,
        enforce_file_format=True,
    )
    return path


def encode(dataset: Dataset, frame: np.ndarray, syntax: str) -> bytes:
    """Codes one frame; the samples are those stored, signed ones as bits."""
    bits = int(dataset.BitsStored)
    if syntax == RLELossless:
        coded: bytes = get_encoder(RLELossless).encode(
            np.ascontiguousarray(frame),
            rows=frame.shape[0],
            columns=frame.shape[1],
            samples_per_pixel=1 if frame.ndim == 2 else 3,
            bits_allocated=dataset.BitsAllocated,
            bits_stored=dataset.BitsAllocated,  # or it refuses samples in the high bits
            planar_configuration=0,
            pixel_representation=dataset.PixelRepresentation,
            photometric_interpretation=dataset.PhotometricInterpretation,
            number_of_frames=1,
        )
        return coded
    unsigned = np.dtype(f"u{frame.itemsize}")
    field = frame.view(unsigned) & unsigned.type((1 << bits) - 1)
    if syntax in (JPEG_LOSSLESS, JPEG_LOSSLESS_SV1):
        return bytes(imagecodecs.jpeg8_encode(field, lossless=True, bitspersample=bits))
    if syntax == JPEG_LS:
        return bytes(imagecodecs.jpegls_encode(field))
    if syntax == HTJ2K_LOSSLESS:
        return bytes(imagecodecs.htj2k_encode(field, reversible=True))
    if syntax in (JPEG_BASELINE, JPEG_EXTENDED):
        return bytes(imagecodecs.jpeg8_encode(field, level=95, bitspersample=bits))
    return bytes(
        imagecodecs.jpeg2k_encode(frame, level=0, reversible=True, codecformat="j2k", bitspersample=bits, mct=False)
    )


def write_series(
    folder: Path,
    pixels: np.ndarray,
    grid: Grid | None = None,
    *,
    syntax: str = ExplicitVRLittleEndian,
    numbers: str = "ascending",
    shuffle: int | None = 0,
    suffix: str = ".dcm",
    edit: Edit | None = None,
    **options: Any,
) -> list[Path]:
    """Writes (slice, row, column) samples as one file each.

    Args:
        folder: where to.
        pixels: stored samples.
        grid: where they lie.
        syntax: transfer syntax.
        numbers: InstanceNumber `ascending`, `reversed`, `same` or `none`.
        shuffle: seed for the order of file names; None keeps the order of slices.
        suffix: of the names.
        edit: called with each dataset and its slice index before it is written.
        options: of `slice_dataset`.

    Returns:
        The files, in the order of the slices.
    """
    grid = grid or Grid()
    count = len(pixels)
    names = np.arange(count) if shuffle is None else np.random.default_rng(shuffle).permutation(count)
    paths = []
    for index, plane in enumerate(pixels):
        position = np.array(grid.origin) + index * np.array(grid.step)
        number = {"ascending": index + 1, "reversed": count - index}.get(numbers, 1)
        dataset = slice_dataset(plane, position=position, grid=grid, number=number, **options)
        if numbers == "none":
            del dataset.InstanceNumber
        if edit is not None:
            edit(dataset, index)
        paths.append(save(dataset, folder / f"IM{names[index]:04d}{suffix}", syntax))
    return paths


def require_equal(folder: Path, pixels: np.ndarray, grid: Grid) -> Image:
    """Requires that what was written is found again at the same places; returns what was read."""
    image = read(folder)
    want = pixels.transpose(2, 1, 0)
    affine = grid.affine
    normal = np.cross(grid.across, grid.down)
    if normal @ np.array(grid.step) < 0:  # slices are returned along the normal
        want = want[..., ::-1]
        affine[:3, 3] += affine[:3, 2] * (len(pixels) - 1)
        affine[:3, 2] *= -1
    np.testing.assert_array_equal(image.array[0], want)
    np.testing.assert_allclose(image.affine, affine, atol=1e-6)
    assert read_grid(folder).difference(image.geometry) is None
    return image


def _frames(dataset: Dataset) -> np.ndarray:
    kind = "i" if dataset.PixelRepresentation else "u"
    shape = (int(dataset.get("NumberOfFrames", 1) or 1), dataset.Rows, dataset.Columns)
    shape += (3,) if dataset.SamplesPerPixel == 3 else ()
    samples = np.frombuffer(dataset.PixelData, f"{kind}{dataset.BitsAllocated // 8}", count=int(np.prod(shape)))
    return samples.reshape(shape)


def _ds(value: float) -> str:
    return f"{value:.10g}"[:16]


def still(path, pixels=STILL, syntax=ExplicitVRLittleEndian, encoded=None, **elements):
    """Writes a picture; `elements` are set on the dataset, None takes one out."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.PatientName, dataset.PatientID = "Secret^Person", "ID-4711"
    dataset.Modality = "DX"
    colour = pixels.ndim > 2 and pixels.shape[-1] == 3
    frames = pixels.shape[0] if pixels.ndim == (4 if colour else 3) else None
    dataset.Rows, dataset.Columns = pixels.shape[-3:-1] if colour else pixels.shape[-2:]
    if frames:
        dataset.NumberOfFrames = frames
    dataset.SamplesPerPixel = 3 if colour else 1
    dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = 8 * pixels.itemsize
    dataset.BitsStored = 12 if pixels.itemsize == 2 else 8
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.PixelData = encapsulate(encoded) if encoded else pixels.tobytes()
    dataset["PixelData"].VR = "OB" if pixels.itemsize == 1 else "OW"
    dataset.save_as(path, enforce_file_format=True)
    return path


def write_volumes(
    folder: Path,
    volumes: np.ndarray,
    grid: Grid | None = None,
    edit: Callable[..., None] | None = None,
    *,
    syntax: str = ExplicitVRLittleEndian,
    **options: Any,
) -> list[list[Path]]:
    """Writes (volume, slice, row, column) samples, one file for each slice, in names that tell nothing.

    `edit` is called with each dataset, its volume and its slice; InstanceNumber runs slice after slice of a volume.
    """
    folder.mkdir(parents=True, exist_ok=True)
    grid, (count, slices) = grid or Grid(), volumes.shape[:2]
    names = np.random.default_rng(0).permutation(count * slices)
    written: list[list[Path]] = [[] for _ in range(count)]
    for number, (t, z) in enumerate(np.ndindex(count, slices)):
        position = np.array(grid.origin) + z * np.array(grid.step)
        dataset = slice_dataset(volumes[t, z], position=position, grid=grid, number=number + 1, **options)
        if edit is not None:
            edit(dataset, t, z)
        written[t].append(save(dataset, folder / f"IM{names[number]:04d}", syntax))
    return written

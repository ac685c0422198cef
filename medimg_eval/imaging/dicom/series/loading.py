"""The pixels of a stack of slices, read into one volume by several threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import ACQUISITION, Header, facts
from medimg_eval.imaging.dicom.pixels.samples import decode_into, frame_shape, stored_dtype
from medimg_eval.imaging.dicom.series.mosaics import Mosaic
from medimg_eval.imaging.voxel_data import check_memory
from medimg_eval.system import threads


class _DoesNotFitError(Exception):
    """A slice whose values go beyond the integer type that was planned."""


@dataclass
class _Plan:
    """How stored samples become voxels.

    Slopes and intercepts are one per slice. Where it is `plain`, stored samples are the voxels; where it is `shifted`,
    voxels are stored samples plus a whole intercept.
    """

    dtype: np.dtype[Any]
    slopes: Array
    intercepts: Array
    plain: bool
    shifted: bool


def load(
    headers: Sequence[Header], factors: Array | None = None, volumes: int = 1, mosaic: Mosaic | None = None
) -> tuple[Array, Array | None, list[str]]:
    """Reads slices' pixels into one volume, or several as channels.

    Slices are in order and of one size.

    Factors (SUV), float64, (slices,), are multiplied into the rescaled values. Of mosaics, each file is a volume.
    Raises CaseError, naming the file, where a slice is cut short, damaged, or of an unreadable codec.

    Returns:
        The volume, (channel, column, row, slice), a view of memory laid out slice by slice; what is not padding,
        bool, (column, row, slice), or None where nothing is (of several volumes, what is padding in none); and notes.
    """
    plan = _plan_rescaling(headers, factors)
    loader = _Loader(headers, plan, mosaic)
    if not loader.run():
        del loader  # before there is a second volume
        loader = _Loader(headers, replace(plan, dtype=np.dtype(np.float32), shifted=False), mosaic)
        loader.run()
    volume, valid = loader.volume, loader.valid
    plane = volume.shape[-2:]
    if volumes > 1 or mosaic is not None:
        channels = volume.reshape(volumes, -1, *plane).transpose(0, 3, 2, 1)
        valid = None if valid is None else np.logical_and.reduce(valid.reshape(volumes, -1, *plane))
    else:
        channels = volume.transpose(2, 1, 0)[None] if volume.ndim == 3 else volume.transpose(3, 2, 1, 0)
    valid = None if valid is None else valid.transpose(2, 1, 0)
    notes = []
    if loader.cleared:
        notes.append(f"bits above BitsStored were set in {loader.cleared} slices (overlays, perhaps) and are ignored")
    return channels, valid, notes


def rescales(headers: Sequence[Header]) -> tuple[Array, Array]:
    """The slope and the intercept of each slice, float64, (slices,).

    Raises CaseError where one is no number or missing beside others, or a slope is 0; the message names the file.
    """
    slopes = np.array([1.0 if header.slope is None else header.slope for header in headers])
    intercepts = np.array([header.intercept or 0.0 for header in headers])
    scaled, shifted = bool((slopes != 1).any()), bool((intercepts != 0).any())
    for header, slope, intercept in zip(headers, slopes, intercepts, strict=True):
        if not (math.isfinite(slope) and math.isfinite(intercept)) or slope == 0:
            raise CaseError(
                f"{header.path}: RescaleSlope and RescaleIntercept are {slope:g} and {intercept:g}; expected numbers, "
                "and a slope other than 0, so mend the header"
            )
        # Taken for 1 and 0 beside others, they would put one slice on another scale in silence.
        if (header.slope is None and scaled) or (header.intercept is None and shifted):
            name = "RescaleSlope" if header.slope is None and scaled else "RescaleIntercept"
            raise CaseError(f"{header.path}: has no {name}, and other slices have one; mend the header")
    return slopes, intercepts


def _plan_rescaling(headers: Sequence[Header], factors: Array | None) -> _Plan:
    slopes, intercepts = rescales(headers)
    if factors is not None:
        slopes, intercepts = slopes * factors, intercepts * factors
    dtypes = {stored_dtype(header) for header in headers}
    stored = np.result_type(*dtypes)
    if stored.kind == "f" or (factors is None and (slopes == 1).all() and not intercepts.any()):
        plain = bool((slopes == 1).all() and not intercepts.any())
        return _Plan(stored, slopes, intercepts, plain, shifted=False)
    stays_integer = bool((intercepts == np.rint(intercepts)).all()) and np.abs(intercepts).max() < 2**15
    if factors is None and (slopes == 1).all() and stays_integer and stored.itemsize <= 4:
        return _Plan(np.dtype(np.int16 if stored.itemsize <= 2 else np.int32), slopes, intercepts, False, shifted=True)
    return _Plan(np.dtype(np.float32), slopes, intercepts, plain=False, shifted=False)


class _Loader:
    """Fills a volume slice by slice, from several threads."""

    def __init__(self, headers: Sequence[Header], plan: _Plan, mosaic: Mosaic | None) -> None:
        self.headers = headers
        self.plan = plan
        self.mosaic = mosaic
        slot = frame_shape(headers[0]) if mosaic is None else (mosaic.count, *mosaic.shape[::-1])
        shape = (len(headers), *slot)
        self.planes = shape if mosaic is not None else shape[:3]
        check_memory(headers[0].path, math.prod(shape) * plan.dtype.itemsize)
        self.volume = np.empty(shape, plan.dtype)
        self.valid: Array | None = None
        self.cleared = 0
        self.lock = threading.Lock()

    def run(self) -> bool:
        """Fills the volume; returns False where values go beyond its integer type."""
        try:
            self._run()
        except _DoesNotFitError:
            return False
        return True

    def _run(self) -> None:
        count = threads(len(self.headers))
        # One iterator for all: a thread that is done with a slice takes the next one.
        indices = iter(range(len(self.headers)))
        if count == 1:
            self._fill(indices)
            return
        with ThreadPoolExecutor(count) as pool:
            for done in [pool.submit(self._fill, indices) for _ in range(count)]:
                done.result()

    def _fill(self, indices: Iterator[int]) -> None:
        try:
            for index in indices:
                self._slice(index)
        except Exception:
            # What the other threads have not begun is no longer wanted.
            for _ in indices:
                pass
            raise

    def _slice(self, index: int) -> None:
        header, slot, plan = self.headers[index], self.volume[index], self.plan
        stored = stored_dtype(header)
        direct = stored.itemsize == slot.itemsize and stored.kind != "f" and slot.dtype.kind != "f"
        direct = direct or stored == slot.dtype
        samples = slot.view(stored) if direct else np.empty(slot.shape, stored)
        if self.mosaic is None:
            cleared = decode_into(header, samples)
        else:
            frame = np.empty(frame_shape(header), stored)
            cleared = decode_into(header, frame)
            self.mosaic.cut(frame, samples)
        padded = _padding_mask(header, samples)
        if plan.shifted:
            intercept = int(plan.intercepts[index])
            _require_fit(header, samples, intercept, slot.dtype)
            if direct:
                slot += slot.dtype.type(intercept)
            else:
                slot[...] = samples.astype(np.int64) + intercept
        elif not plan.plain:
            slot[...] = samples * plan.slopes[index] + plan.intercepts[index]
        elif not direct:
            slot[...] = samples
        if cleared or padded is not None:
            self._remember(index, padded, cleared=cleared)

    def _remember(self, index: int, padded: Array | None, *, cleared: bool) -> None:
        with self.lock:
            self.cleared += cleared
            if padded is not None:
                if self.valid is None:
                    self.valid = np.ones(self.planes, bool)
                self.valid[index] = ~padded


def _padding_mask(header: Header, samples: Array) -> Array | None:
    """Padding of a slice, in its samples' shape; None without."""
    if header.padding is None or header.samples != 1:
        return None
    low, high = sorted((header.padding, header.padding if header.padding_limit is None else header.padding_limit))
    # Padding is an extreme value as a rule, so the extremes tell most slices apart from those that have it.
    if int(samples.min()) > high or int(samples.max()) < low:
        return None
    padded = (samples >= low) & (samples <= high)
    return padded if padded.any() else None


def _require_fit(header: Header, samples: Array, intercept: int, dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    bits = header.bits_stored
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if header.signed else (0, (1 << bits) - 1)
    if limits.min <= low + intercept and high + intercept <= limits.max:
        return
    if int(samples.min()) + intercept < limits.min or int(samples.max()) + intercept > limits.max:
        raise _DoesNotFitError


def resample(volume: Array, valid: Array | None, weights: Array) -> tuple[Array, Array | None]:
    """Interpolates slices linearly by a `Stack`'s weights.

    The volume is (channel, column, row, slice).

    Returns:
        float32, (channel, column, row, slices of the grid), and what is valid on both sides.
    """
    source = volume.transpose(0, 3, 2, 1)
    out = np.empty((source.shape[0], len(weights), *source.shape[2:]), np.float32)
    mask = None if valid is None else np.empty((len(weights), *source.shape[2:]), bool)
    for index, (before, part) in enumerate(weights):
        low = int(before)
        out[:, index] = source[:, low] * (1 - part) + source[:, low + 1] * part
        if mask is not None and valid is not None:
            ends = valid[..., low].T, valid[..., low + 1].T
            mask[index] = ends[0] if part == 0 else ends[1] if part == 1 else ends[0] & ends[1]
    return out.transpose(0, 3, 2, 1), None if mask is None else mask.transpose(2, 1, 0)


def suv_factors(headers: Sequence[Header]) -> Array:
    """SUV factors of rescaled PET slices, body weight: float64, (slices,).

    Raises CaseError where the series is not PET, or its header lacks what SUV needs.
    """
    import pydicom

    from medimg_eval.imaging.dicom.headers.suv import factor

    if headers[0].modality != "PT":
        raise CaseError(f"{headers[0].path}: is {headers[0].modality or 'of unknown modality'}; suv is for PET")
    earliest = min(headers, key=lambda header: (header.acquisition_time or "~", header.path))
    dataset = pydicom.dcmread(earliest.path, stop_before_pixels=True, force=True)
    if str(dataset.get("DecayCorrection", "")).strip().upper() != "NONE":
        return np.full(len(headers), factor(dataset))
    # Without decay correction each slice has a moment of its own.
    return np.array([factor(pydicom.dcmread(head.path, stop_before_pixels=True, force=True)) for head in headers])


def attributes(path: Path) -> Mapping[str, str]:
    """Acquisition facts of a slice, without identifying ones."""
    import pydicom

    return facts(pydicom.dcmread(path, stop_before_pixels=True, force=True, specific_tags=list(ACQUISITION)))

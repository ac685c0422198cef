"""What the grey values or colours of a mask picture mean as labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UsageError


def distinct_values(labels: Array) -> Array:
    """Returns sorted distinct values of a label map."""
    flat = labels.ravel(order="K")
    return np.unique(np.append(flat[:-1][flat[1:] != flat[:-1]], flat[-1:]))


def unknown_values(labels: Array, known: Set[int]) -> list[int]:
    """Returns the values of a label map that are not known, ascending.

    Where all from the lowest to the highest are known, as in most, none has to be looked for.
    """
    if not labels.size or all(value in known for value in range(int(labels.min()), int(labels.max()) + 1)):
        return []
    return sorted(set(distinct_values(labels).tolist()) - known)


def from_values(
    pixels: Array, path: Path, threshold: float | None = None, *, foreground: bool = False, lossy: bool = False
) -> tuple[Array, list[str]]:
    """Takes grey values, or equal channels, as labels; returns doubts in words, too.

    Pixels are (row, column) or (row, column, channel). Values at or above the threshold become 1, all others 0; with
    `foreground` every value but 0 becomes 1. `lossy` says that the values of the file are not exact. Raises CaseError
    for channels that differ, or values that are not exact with nothing said about them.
    """
    channels = np.moveaxis(np.atleast_3d(pixels), -1, 0)
    values: Array = channels[0]
    if not all(np.array_equal(values, channel) for channel in channels[1:]):
        raise CaseError(
            f"{path}: expected a label map of one channel, got {len(channels)} that differ; "
            "if colours stand for labels, name them with colours={1: [255, 0, 0], ...}"
        )
    distinct = distinct_values(values)
    if threshold is not None:
        out_of_reach = distinct.size > 1 and distinct[-1] < threshold
        notes = [f"no value reaches the threshold {threshold:g}: the highest is {distinct[-1]}"] if out_of_reach else []
        return (values >= threshold).astype(np.uint8), notes
    if foreground:
        return (values != 0).astype(np.uint8), []
    if lossy and (distinct.size > 2 or (distinct.size == 2 and distinct[0] != 0)):
        raise CaseError(
            f"{path}: is a JPEG of {distinct.size} different values, so its labels are not exact; "
            "read it with threshold=128 if it is a 0/255 mask, or get the mask as PNG"
        )
    smooth = distinct.size > 2 and distinct[-1] == 255 and values.dtype == np.uint8
    doubt = f"has {distinct.size} different values up to 255; a smoothed 0/255 mask is read with threshold=128"
    return values, [doubt] if smooth else []


def from_colours(pixels: Array, path: Path, colours: Mapping[int, Sequence[int]], *, lossy: bool = False) -> Array:
    """Labels of 8- or 16-bit colours or greys: int64, (row, column).

    (row, column, 3), or (row, column) of grey.

    `colours` say label -> red, green, blue; black is label 0 unless either of them is taken.

    Raises:
        CaseError: a colour that stands for no label.
        UsageError: `colours` names one colour twice, or not three numbers.
    """
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.shape[2] != 3 or pixels.dtype not in (np.uint8, np.uint16):
        raise CaseError(
            f"{path}: expected 3 channels of 8 or 16 bits for colours, got {pixels.shape[2]} {pixels.dtype}"
        )
    labels = {tuple(int(part) for part in colour): int(label) for label, colour in colours.items()}
    if len(labels) < len(colours) or any(len(colour) != 3 for colour in labels):
        raise UsageError(f"{path}: expected colours of three numbers each, all different, got {dict(colours)}")
    if 0 not in labels.values():
        labels.setdefault((0, 0, 0), 0)
    red, green, blue = np.moveaxis(pixels.astype(np.int64), -1, 0)
    codes, which, counts = np.unique((red << 32) | (green << 16) | blue, return_inverse=True, return_counts=True)
    colours_seen = [(int(code) >> 32, int(code) >> 16 & 0xFFFF, int(code) & 0xFFFF) for code in codes]
    unknown = [i for i, colour in enumerate(colours_seen) if colour not in labels]
    if unknown:
        raise CaseError(
            f"{path}: {counts[unknown].sum()} pixels have colours that stand for no label, such as "
            f"{list(colours_seen[unknown[0]])}; "
            + ("a JPEG does not keep colours exactly: get the mask as PNG" if lossy else "add them to colours")
        )
    table: Array = np.array([labels[colour] for colour in colours_seen], dtype=np.int64)
    return table[which.reshape(pixels.shape[:2])]


def label_map(array: Array, path: Path) -> Array:
    """Turns channels of numbers into labels, (*spatial), of the smallest integer dtype.

    Raises CaseError, naming the path, of several channels, values that are not whole, NaN or infinity, or those of an
    image.
    """
    if array.shape[0] != 1 or array.ndim not in (3, 4):
        raise CaseError(f"{path}: expected a 2-D or 3-D label map of one channel, got {array.shape} (channel first)")
    labels: Array = array[0]
    if labels.dtype.kind not in "iubf":
        raise CaseError(f"{path}: expected whole-number labels, got {labels.dtype}")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise CaseError(f"{path}: holds NaN or infinite labels; store a label map of whole numbers")
        rounded = np.rint(labels)
        if not np.array_equal(rounded, labels):
            raise CaseError(
                f"{path}: expected whole-number labels, got values such as "
                f"{labels[rounded != labels].flat[0]:g}; store a label map, not probabilities"
            )
        labels = rounded
    _refuse_image(labels, path)
    return labels.astype(smallest_type(labels), copy=False)


def label_notes(stored: Array) -> tuple[str, ...]:
    """Notes where a label map's values were no integers.

    The array is one that `label_map` takes.
    """
    return (f"labels are stored as {stored.dtype}, all whole numbers: taken as integers",) * (stored.dtype.kind == "f")


def smallest_type(labels: Array) -> np.dtype[Any]:
    """Returns the smallest integer dtype that holds every label."""
    low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    # Below zero, half of a signed type's values are left for what lies above.
    return np.result_type(np.min_scalar_type(low), np.min_scalar_type(high if low >= 0 else -high - 1))


def split_codes(codes: Array, path: Path, objects: Literal["values"] | int) -> tuple[Array, Array]:
    """Splits object codes into labels and numbers, smallest integer dtypes.

    0 is background. `objects` is "values" where every value above 0 is an object, all of label 1; or a number that each
    label was multiplied by before the object's number was added: 1000 where 2003 is the third object of label 2. Raises
    CaseError for a value below 0, UsageError for another `objects`.
    """
    if objects != "values" and (isinstance(objects, bool) or not isinstance(objects, int) or objects < 2):
        raise UsageError(f"expected objects to be 'values' or a whole number such as 1000, got {objects!r}")
    if codes.size and int(codes.min()) < 0:
        raise CaseError(f"{path}: holds {int(codes.min())}, and numbers of objects are 0 and above")
    labels, numbers = (codes > 0, codes) if objects == "values" else np.divmod(codes.astype(np.int64), objects)
    return labels.astype(smallest_type(labels)), numbers.astype(smallest_type(numbers))


def join_codes(labels: Array, numbers: Array, factor: int) -> Array:
    """Returns `factor` times labels plus numbers, renumbered where needed.

    Raises CaseError where there are more objects than `factor` has numbers for.
    """
    if numbers.size and int(numbers.max()) >= factor:
        codes, indices = np.unique(np.append(numbers.ravel(), 0), return_inverse=True)
        if len(codes) > factor:
            raise CaseError(f"a mask of {len(codes) - 1} objects cannot be stored; at most {factor - 1} can")
        numbers = indices[:-1].reshape(numbers.shape)
    return labels.astype(np.int64) * factor + numbers


MOST_GREYS = 100
"""Distinct values up to which a label map is not asked whether it is an image."""

FEWEST_VOXELS = 4096
"""Of fewer voxels nothing is told."""

LOOKED_AT = 1 << 21
"""About how many voxels are looked at to tell."""


def _refuse_image(labels: Array, path: Path) -> None:
    """Refuses whole numbers that are grey values, by how they lie.

    Labels may be thousands, as of instances, or have numbers such as FreeSurfer's 14175, and one may stand for "ignore"
    below zero; but next to a voxel of a label mostly lies another of it. Grey values change from voxel to voxel.
    """
    if labels.size < FEWEST_VOXELS or float(labels.max()) - float(labels.min()) < MOST_GREYS:
        return  # as most label maps: nothing has to be counted
    planes = labels[..., :: max(1, labels.size // LOOKED_AT)]
    values, counts = np.unique(planes, return_counts=True)
    previous, next_to_it = planes[:-1], planes[1:]
    inside = (previous != values[counts.argmax()]) & (next_to_it != values[counts.argmax()])
    changes = np.count_nonzero(previous[inside] != next_to_it[inside])
    if len(values) > MOST_GREYS and 2 * changes > np.count_nonzero(inside):
        raise CaseError(
            f"{path}: holds {len(values)} values from {values[0]:g} to {values[-1]:g} that change from voxel to "
            "voxel, as those of an image do; name a label map"
        )

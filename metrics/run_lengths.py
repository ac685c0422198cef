"""Masks of pictures as runs of pixels: COCO's compressed counts and outlines, and how far masks overlap.

A mask is int64, (run, 2): the first pixel of each run and the one after its last, counted down the columns from 0;
runs ascend and do not touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from medimg_eval.metrics.arrays import Array, Bools, Floats, Ints
from medimg_eval.metrics.proportions import quotient

Runs = Ints

_FINER = 5
"""Outlines are followed on a grid that is so many times finer, as pycocotools does."""


def coco_counts(text: str) -> list[int]:
    """Decodes the compressed counts of a COCO mask.

    Each number is written in groups of five bits, lowest first, as characters from `0` on; the bit of value 32 says
    that another group follows, the bit of value 16 in the last group that the number is negative. From the fourth
    number on, what is written is the difference to the number two places before.

    Raises:
        ValueError: the text breaks off, or holds other characters.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64:
            raise ValueError(f"character {character!r} at place {len(counts)}")
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError("the last number breaks off")
    return counts


def coco_runs(segmentation: Any, shape: tuple[int, int]) -> Runs:
    """Returns a COCO `segmentation` as runs: outlines, counts, or compressed counts.

    Args:
        segmentation: a list of outlines (x, y, x, y, ... from the corner of the first pixel), drawn as pycocotools
            draws them and put together; or an object with `size` and `counts`.
        shape: rows and columns of the picture.

    Raises:
        ValueError: it is neither, or does not fill the picture.
    """
    if isinstance(segmentation, list):
        outlines = [np.asarray(outline, np.float64) for outline in segmentation]
        if any(outline.ndim != 1 or outline.size % 2 or not np.isfinite(outline).all() for outline in outlines):
            raise ValueError("expected lists of x, y, x, y, ...")
        return _join_runs([_enclosed_pixels(outline.reshape(-1, 2), shape) for outline in outlines if outline.size])
    if not isinstance(segmentation, dict) or not {"size", "counts"} <= segmentation.keys():
        raise ValueError("expected outlines, or an object with 'size' and 'counts'")
    counts = segmentation["counts"]
    numbers = np.array(coco_counts(counts) if isinstance(counts, str) else counts, np.int64)
    if tuple(segmentation["size"]) != shape or numbers.sum() != shape[0] * shape[1] or (numbers < 0).any():
        raise ValueError(f"runs of {numbers.sum()} pixels, of a mask of {segmentation['size']}, do not fill {shape}")
    ends = np.cumsum(numbers)
    return _join_runs([np.stack([ends[:-1:2], ends[1::2]], axis=1)])


def mask_runs(mask: Array) -> Runs:
    """Returns a mask, (row, column), as runs.

    >>> mask_runs(np.array([[0, 1], [1, 1]])).tolist()
    [[1, 4]]
    """
    return dict(zip(*objects_as_runs(mask != 0), strict=True)).get(1, np.zeros((0, 2), np.int64))


def objects_as_runs(numbers: Array) -> tuple[list[int], list[Runs]]:
    """Returns a map's positive numbers, ascending, and their runs.

    The map is (row, column).

    >>> objects_as_runs(np.array([[0, 7], [2, 7]]))[0]
    [2, 7]
    """
    flat = numbers.T.ravel().astype(np.int64)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1, [flat.size]])
    of = flat[bounds[:-1]]
    order = np.flatnonzero(of > 0)[np.argsort(of[of > 0], kind="stable")]
    numbers_, first = np.unique(of[order], return_index=True)
    runs = np.stack([bounds[:-1], bounds[1:]], axis=1)[order]
    return numbers_.tolist(), np.split(runs, first[1:]) if numbers_.size else []


def box_of_runs(runs: Runs, rows: int) -> tuple[int, int, int, int]:
    """Returns a mask's bounding box, x, y, width, height; zeros for an empty mask."""
    if not len(runs):
        return 0, 0, 0, 0
    first, last = runs[:, 0], runs[:, 1] - 1
    left, right = int(first[0]) // rows, int(last[-1]) // rows
    wraps = (first // rows != last // rows).any()
    top, bottom = (0, rows - 1) if wraps else (int((first % rows).min()), int((last % rows).max()))
    return left, top, right - left + 1, bottom - top + 1


def areas_of_runs(masks: Sequence[Runs]) -> Floats:
    """Returns how many pixels each mask holds, (mask,)."""
    return np.array([(runs[:, 1] - runs[:, 0]).sum() for runs in masks], np.float64)


def shared_pixels(masks: Sequence[Runs], others: Sequence[Runs]) -> Floats:
    """Returns how many pixels each mask shares with each other one, (mask, other)."""
    shared = np.zeros((len(masks), len(others)))
    owner = np.repeat(np.arange(len(masks)), [len(runs) for runs in masks])
    if not owner.size:
        return shared
    starts, ends = np.concatenate(masks).astype(np.float64).T
    for index, runs in enumerate(others):
        if len(runs):
            # How many pixels of the other mask lie before a pixel rises by one within its runs, and is flat elsewhere.
            before = np.concatenate([[0], np.cumsum(runs[:, 1] - runs[:, 0])])
            heights = np.stack([before[:-1], before[1:]], axis=1).ravel()
            held = np.interp(ends, runs.ravel(), heights) - np.interp(starts, runs.ravel(), heights)
            shared[:, index] = np.bincount(owner, held, len(masks))
    return np.rint(shared)


def mask_overlaps(masks: Sequence[Runs], others: Sequence[Runs], crowds: Bools) -> Floats:
    """Returns IoUs of masks, (mask, other); a crowd adds nothing to the union."""
    shared, sizes = shared_pixels(masks, others), areas_of_runs(masks)[:, None]
    union = np.where(crowds[None], sizes, sizes + areas_of_runs(others)[None] - shared)
    return quotient(shared, union, 0.0)


def _join_runs(parts: Sequence[Runs]) -> Runs:
    """Returns the union of masks; runs that touch become one."""
    runs = np.concatenate([np.zeros((0, 2), np.int64), *parts])
    runs = runs[runs[:, 1] > runs[:, 0]]
    if not len(runs):
        return runs
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(runs[:, 1])
    first = np.concatenate([[True], runs[1:, 0] > reach[:-1]])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(runs) - 1)
    return np.stack([runs[first, 0], reach[last]], axis=1)


def _enclosed_pixels(corners: Floats, shape: tuple[int, int]) -> Runs:
    """Returns an outline's pixels exactly as pycocotools draws it.

    `corners` are (corner, 2): x and y. The outline is followed in steps of a fifth of a pixel. Where it
    passes the middle of a column the inside begins or ends, at the pixel whose middle comes next.
    """
    rows, columns = shape
    ends = np.trunc(_FINER * corners + 0.5).astype(np.int64)
    start, stop = ends, np.roll(ends, -1, axis=0)
    steps = np.abs(stop - start)
    across = steps[:, 0] >= steps[:, 1]
    longest = np.where(across, 0, 1)
    edge = np.arange(len(ends))
    # An edge is computed from its lower end along the axis on which it is longer, whichever way it is walked.
    turned = start[edge, longest] > stop[edge, longest]
    low, high = np.where(turned[:, None], stop, start), np.where(turned[:, None], start, stop)
    most = steps[edge, longest]
    slope = quotient((high - low)[edge, 1 - longest].astype(np.float64), most.astype(np.float64), 0.0)
    owner = np.repeat(edge, most + 1)
    walked = np.arange(owner.size) - np.repeat(np.cumsum(most + 1) - most - 1, most + 1)
    along = np.where(turned[owner], most[owner] - walked, walked)
    aside = np.trunc(low[owner, 1 - longest[owner]] + slope[owner] * along + 0.5).astype(np.int64)
    along = along + low[owner, longest[owner]]
    x, y = np.where(across[owner], along, aside), np.where(across[owner], aside, along)
    moved = np.flatnonzero(np.diff(x)) + 1
    column = (np.minimum(x[moved], x[moved - 1]) + 0.5) / _FINER - 0.5
    row = np.ceil(np.clip((np.minimum(y[moved], y[moved - 1]) + 0.5) / _FINER - 0.5, 0, rows))
    middle = (np.floor(column) == column) & (column >= 0) & (column <= columns - 1)
    # A pixel at which the outline passes twice is entered and left again.
    positions, times = np.unique((column[middle] * rows + row[middle]).astype(np.int64), return_counts=True)
    turns = positions[(times % 2 == 1) & (positions < rows * columns)]
    return np.append(turns, [rows * columns] * (len(turns) % 2)).reshape(-1, 2).astype(np.int64)

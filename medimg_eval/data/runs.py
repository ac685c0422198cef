"""Masks written as runs of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array


def decode_runs(starts: Sequence[int], lengths: Sequence[int], shape: tuple[int, ...], *, by_columns: bool) -> Array:
    """Turns runs of pixels into a mask.

    Args:
        starts: first pixel of each run, counted from 0.
        lengths: pixels in each run; no run ends beyond the last pixel.
        shape: rows and columns.
        by_columns: True when pixels are counted down the columns one by one.

    Returns:
        bool, (row, column).
    """
    flat = np.zeros(shape[0] * shape[1], bool)
    for start, length in zip(starts, lengths, strict=True):
        flat[start : start + length] = True
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


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

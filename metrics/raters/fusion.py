"""One mask of several readers': by majority, or by STAPLE, which weighs readers by how they perform."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats

Array = npt.NDArray[np.integer]

Fusion = Literal["majority", "staple", "first"]
FUSIONS: tuple[Fusion, ...] = ("majority", "staple", "first")
EVEN = 0.5 - 1e-6
"""From this probability on STAPLE's voxels count: 0.5, whatever rounding made of it."""
_STEPS = 1000
_SMALL = 1e-7
"""Change of a reader's sensitivity or specificity that ends STAPLE."""


class Staple(NamedTuple):
    """Estimate of STAPLE from readers' masks.

    Attributes:
        probability: that a voxel belongs to the true mask, (*spatial).
        sensitivity: of each reader, (reader,).
        specificity: of each reader, (reader,).
    """

    probability: Floats
    sensitivity: Floats
    specificity: Floats


def estimate_staple(masks: Bools, start: float = 0.99999) -> Staple:
    """STAPLE: the true mask and the readers' sensitivity and specificity by expectation maximisation.

    The prior is the mean share of voxels that readers mark, so it depends on how much background there is. Voxels
    that are marked alike are one, which makes it fast. No reader at all, or none that marks a voxel, gives zeros.

    Args:
        masks: (reader, *spatial), boolean.
        start: sensitivity and specificity at first, as SimpleITK begins.

    Raises:
        ValueError: masks are not boolean, or there is no reader.

    Source: Warfield et al., IEEE Transactions on Medical Imaging 23, 2004, doi 10.1109/TMI.2004.828354.
    """
    if masks.dtype.kind != "b" or not len(masks):
        raise ValueError(f"masks is invalid: expected booleans (reader, *spatial), got {masks.dtype} {masks.shape}")
    flat = masks.reshape(len(masks), -1)
    # Of two solutions that are equally likely rounding chooses, so that readers are taken in an order of their own.
    order = np.array(sorted(range(len(flat)), key=lambda reader: flat[reader].tobytes()))
    flat = flat[order]
    patterns, pattern, counts = np.unique(flat, axis=1, return_inverse=True, return_counts=True)
    marked = patterns.T.astype(np.float64)
    prior = float(flat.mean()) if flat.size else 0.0
    sensitivity, specificity = np.full(len(masks), start), np.full(len(masks), start)
    weight = np.zeros(len(marked))
    for _ in range(_STEPS):
        inside = prior * _mark_likelihood(marked, sensitivity, 1 - sensitivity)
        outside = (1 - prior) * _mark_likelihood(marked, 1 - specificity, specificity)
        total = inside + outside
        weight = np.divide(inside, total, out=np.zeros_like(inside), where=total > 0)
        in_all, out_all = float(counts @ weight), float(counts @ (1 - weight))
        before = sensitivity, specificity
        sensitivity = (counts * weight) @ marked / in_all if in_all > 0 else sensitivity
        specificity = (counts * (1 - weight)) @ (1 - marked) / out_all if out_all > 0 else specificity
        moved = max(np.abs(sensitivity - before[0]).max(), np.abs(specificity - before[1]).max())
        if moved < _SMALL:
            break
    back = np.argsort(order)
    return Staple(weight[pattern.ravel()].reshape(masks.shape[1:]), sensitivity[back], specificity[back])


def _mark_likelihood(marked: Floats, yes: Floats, no: Floats) -> Floats:
    return np.asarray(np.prod(np.where(marked > 0, yes, no), axis=1))


def fuse_masks(masks: Bools, how: Fusion = "majority") -> Bools:
    """Fuses readers' masks: majority, STAPLE at 0.5, or first reader.

    A tie of an even number of readers is no majority.

    >>> fuse_masks(np.array([[1, 1, 0], [1, 0, 0]], bool)).tolist()
    [True, False, False]

    Raises:
        ValueError: masks are not boolean, there is no reader, or no such way.
    """
    if how not in FUSIONS:
        raise ValueError(f"fusion is invalid: expected one of {', '.join(FUSIONS)}, got {how!r}")
    if masks.dtype.kind != "b" or not len(masks):
        raise ValueError(f"masks is invalid: expected booleans (reader, *spatial), got {masks.dtype} {masks.shape}")
    if how == "staple":
        return np.asarray(estimate_staple(masks).probability >= EVEN)
    return np.asarray(masks[0] if how == "first" else 2 * masks.sum(axis=0) > len(masks))

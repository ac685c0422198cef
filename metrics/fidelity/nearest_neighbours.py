"""Exact nearest neighbours: candidates in single precision, a strip of rows at a time, settled in double precision.

Distances from products of matrices are off by far more than small distances are long, so that copies come out several
times too far away. Here products only rule out what cannot be near, with the rounding error as a margin; what is left
is measured by differences.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Ints
from medimg_eval.metrics.fidelity.feature_sets import PRODUCT, SetError, row_numbers, strips

STRIP = 512
"""Queries that are compared with the whole gallery at once."""

PAIRS = 1 << 16
"""Numbers of pairs that are subtracted at once: 512 KiB, which a processor's cache holds."""

SPREAD = 32
"""Columns of which one is looked at in order to bound the k-th distance."""

CROWDED = 64
"""Candidates of a query, on average, above which a strip is computed anew in double precision."""


class FeatureSet(NamedTuple):
    """Rows in the form that searches need.

    Attributes:
        rows: (n, d) as given.
        low: (n, d + 2) float32: the rows, centred and scaled by `scale`, then 1 and the square of the length.
        norms: (n,) float64: squares of the lengths.
        ids: (n,) int64: rows that share one are equal, also across the sets prepared together.
        repeated: whether any are equal.
        centre: (d,) float64.
        scale: a power of two.
    """

    rows: Array
    low: npt.NDArray[np.float32]
    norms: Floats
    ids: Ints
    repeated: bool
    centre: Floats
    scale: float


class Neighbours(NamedTuple):
    """Nearest neighbours: k rows per query, nearest first.

    Equal ones are in the order of the gallery.

    Attributes:
        places: (query, k) int64: rows of the gallery.
        squares: (query, k) float64: squared distances times the sets' scale squared.
    """

    places: Ints
    squares: Floats


def prepare_feature_sets(*sets: Array) -> list[FeatureSet]:
    """Returns sets of the same features, prepared for comparison."""
    centre = sets[0].mean(axis=0, dtype=np.float64)
    largest = max(float(np.abs(rows[part] - centre).max()) for rows in sets for part in strips(rows))
    scale = math.ldexp(1.0, -math.frexp(largest)[1]) if largest > 0 else 1.0
    ids = np.split(row_numbers(*sets), np.cumsum([len(rows) for rows in sets])[:-1])
    feature_sets = []
    for rows, numbers in zip(sets, ids, strict=True):
        low = np.ones((len(rows), rows.shape[1] + 2), dtype=np.float32)
        norms = np.empty(len(rows))
        for part in strips(rows):
            short = (rows[part] - centre) * scale
            norms[part] = np.einsum("ij,ij->i", short, short)
            low[part, :-2] = short
        low[:, -1] = norms
        feature_sets.append(
            FeatureSet(rows, low, norms, numbers, len(np.unique(numbers)) < len(numbers), centre, scale)
        )
    return feature_sets


def estimates(queries: FeatureSet, gallery: FeatureSet, chosen: slice, *, double: bool = False) -> tuple[Array, Floats]:
    """Returns estimated squared distances of a strip, with error bounds.

    (query, gallery), by products; a bound for each row. A sum of d products is off by at most d roundings,
    each of the product of the lengths.
    """
    d = queries.rows.shape[1]
    if double:
        query_rows = (queries.rows[chosen] - queries.centre) * queries.scale
        squares: Array = np.empty((len(query_rows), len(gallery.rows)))
        for part in strips(gallery.rows, PRODUCT):
            gallery_rows = (gallery.rows[part] - gallery.centre) * gallery.scale
            np.matmul(query_rows, -2 * gallery_rows.T, out=squares[:, part])
            squares[:, part] += np.einsum("ij,ij->i", gallery_rows, gallery_rows)
        squares += np.einsum("ij,ij->i", query_rows, query_rows)[:, None]
        rounding = float(np.finfo(np.float64).eps)
    else:
        # |x|^2 - 2 x'y + |y|^2 as one product: the lengths are two more features.
        short = queries.low[chosen].copy()
        short[:, :d] *= -2
        short[:, d], short[:, d + 1] = short[:, d + 1], 1
        squares = short @ gallery.low.T
        rounding = float(np.finfo(np.float32).eps)
    longest = math.sqrt(float(gallery.norms.max()))
    margin = rounding * (d / 4 + 8) * (np.sqrt(queries.norms[chosen]) + longest) ** 2
    return squares, margin


def exact_squares(queries: FeatureSet, gallery: FeatureSet, one: Ints, other: Ints) -> Floats:
    """Returns the squared distances of pairs (pair,), scaled, by differences in double precision."""
    squares_found = np.zeros(len(one))
    (apart,) = np.nonzero(queries.ids[one] != gallery.ids[other])
    back = None
    if gallery.repeated or queries.repeated:
        width = int(gallery.ids.max()) + 1
        _, first, back = np.unique(
            queries.ids[one[apart]] * width + gallery.ids[other[apart]], return_index=True, return_inverse=True
        )
        apart, all_pairs = apart[first], apart
    squares = np.empty(len(apart))
    step = max(1, PAIRS // queries.rows.shape[1])
    for start in range(0, len(apart), step):
        pairs = apart[start : start + step]
        gap = queries.rows[one[pairs]].astype(np.float64) - gallery.rows[other[pairs]]
        gap *= queries.scale
        squares[start : start + step] = np.einsum("ij,ij->i", gap, gap)
    if back is None:
        squares_found[apart] = squares
    else:
        squares_found[all_pairs] = squares[back]
    return squares_found


def near(
    queries: FeatureSet, gallery: FeatureSet, k: int, *, groups: tuple[Array, Array] | None = None, itself: bool = False
) -> Neighbours:
    """Returns the k nearest gallery rows of each query.

    Both were prepared together. A query is not compared with rows of its own group, of `groups` (query,) and
    (gallery,); nor with itself, where `itself` says that queries are the gallery.

    Raises:
        SetError: A query has fewer than k rows to be compared with.
    """
    n, m = len(queries.rows), len(gallery.rows)
    indices, squares = np.empty((n, k), dtype=np.int64), np.empty((n, k))
    for start in range(0, n, STRIP):
        chosen = slice(start, min(start + STRIP, n))
        banned = None if groups is None else groups[0][chosen, None] == groups[1][None, :]
        available = m - int(itself) if banned is None else m - int(banned.sum(axis=1).max())
        if available < k:
            raise SetError(f"Expected at least {k} rows to look for neighbours in, got {max(available, 0)} of {m}")
        rows, columns = _neighbour_candidates(queries, gallery, chosen, k, banned, itself=itself)
        if rows.size > CROWDED * k * (chosen.stop - chosen.start):
            rows, columns = _neighbour_candidates(queries, gallery, chosen, k, banned, itself=itself, double=True)
        exact = exact_squares(queries, gallery, rows + start, columns)
        order = np.lexsort((columns, exact, rows))
        first = np.searchsorted(rows[order], np.arange(chosen.stop - chosen.start))
        taken = order[first[:, None] + np.arange(k)]
        indices[chosen], squares[chosen] = columns[taken], exact[taken]
    return Neighbours(indices, squares)


def _neighbour_candidates(
    queries: FeatureSet,
    gallery: FeatureSet,
    chosen: slice,
    k: int,
    banned: Array | None,
    *,
    itself: bool,
    double: bool = False,
) -> tuple[Ints, Ints]:
    """Returns a strip's candidate rows and columns for k nearest."""
    squares, margin = estimates(queries, gallery, chosen, double=double)
    if banned is not None:
        squares[banned] = np.inf
    if itself:
        squares[np.arange(len(squares)), np.arange(chosen.start, chosen.stop)] = np.inf
    bound = _kth_bound(squares, k) + 2 * margin
    rows, columns = np.nonzero(squares <= bound[:, None].astype(squares.dtype) * (1 + np.finfo(squares.dtype).eps))
    return rows, columns


def _kth_bound(squares: Array, k: int) -> Floats:
    """Returns each row's upper bound of its k-th smallest value."""
    many = squares.shape[1]
    parts = many // SPREAD
    if parts < 4 * k:
        bound = np.partition(squares, k - 1, axis=1)[:, k - 1]
    else:
        least = squares[:, : SPREAD * parts].reshape(len(squares), SPREAD, parts).min(axis=1)
        bound = np.partition(least, k - 1, axis=1)[:, k - 1]
    wide: Floats = bound.astype(np.float64)
    if not np.isfinite(wide).all():
        wide = np.partition(squares, k - 1, axis=1)[:, k - 1].astype(np.float64)
    return wide

"""The Fréchet distance of two sets of feature vectors: exact in float64, without a square root of a matrix."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.fidelity.feature_sets import (
    PRODUCT,
    Options,
    SetError,
    Sets,
    SetValue,
    floor_of,
    prepare,
    shuffled,
    strips,
)
from medimg_eval.metrics.fidelity.intervals import normal_interval, variance_of_mean

SIZES = 10
"""Sizes of subsets that the extrapolation to infinite n looks at, from n / 2 to n."""

LEAST = 1.5
"""Rows per feature below which the extrapolation goes wrong."""

ROUNDING = 1e-8
"""Estimated error of the quick way, relative to the traces, above which the slower one is taken; see `_quick`.

The estimate takes eigenvalues to be as wrong as those of any matrix may be. Those of a product of triangles are 1e5
times more exact, or better, at all spectra that were tried.
"""

SINGULAR = 10 * float(np.finfo(np.float64).eps)
"""Smallest square on the diagonal of a triangle, per feature and relative to the largest, that is more than noise."""

HOW = (
    "normal, by the influence of each row; of the value expected at this n: the upward bias of small n, which the "
    "floor shows, is not in it"
)


STRIP = 2_000
"""Rows that are added to a covariance at once."""


class _Side(NamedTuple):
    """A set, its mean (d,) and its unbiased covariance S.

    Attributes:
        rows: (n, d).
        mean: (d,).
        trace: of S.
        spread: of a tall set S itself, (d, d), of which only the lower triangle is filled; of others the centred rows
            over the root of n - 1, (n, d), which are a factor F of it: F'F = S.
        tall: whether there are more rows than features.
    """

    rows: Array
    mean: Floats
    trace: float
    spread: Floats
    tall: bool


def frechet_distance(real: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[Options]) -> SetValue:
    """The squared Fréchet distance of two sets, as normal distributions with their means and unbiased covariances.

    It is |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^1/2), in squared units of the features, neither rooted nor logged. With
    Inception-2015 features of images resized as clean-fid does it is the FID (Heusel et al. 2017).

    The trace of the root is the nuclear norm of F1 F2' for any factors F'F = S: of Cholesky triangles, or, of sets with
    fewer rows than features, of the centred rows, so that the work grows with n and not with d.

    The value is biased upwards, the more the smaller n is: below n = d it says little but n. Compare values at equal n
    only, and with their floor. `details` has "mean_part", |m1 - m2|^2.
    """
    sets = prepare(real, generated, options)
    sides = _make_side(sets.real), _make_side(sets.generated)
    value, mean_part = _squared_distance(*sides)
    extras: dict[str, Any] = {"details": {"mean_part": mean_part}}
    if sets.options["interval"]:
        extras |= normal_interval(value, _distance_variance(sets, *sides), HOW)
    floor = floor_of(sets, lambda one, other: _squared_distance(_make_side(one), _make_side(other))[0])
    flags = (*_rank_flags(sets), *floor.pop("flags", ()))
    return sets.value("frechet_distance", value, depends_on_n=True, flags=flags, **extras, **floor)


def frechet_distance_inf(real: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[Options]) -> SetValue:
    """The Fréchet distance extrapolated to infinite n: the intercept of a line through its values against 1 / n.

    Ten sizes from n / 2 to n are drawn from both sets alike, whole patients at a time, where n is the size of the
    smaller set (Chong and Forsyth 2020). It is a little below 0 where the sets are alike. The standard error joins that
    of the intercept with that of the value at n. `details` has "slope" and "at_n", the value at n.

    Raises:
        SetError: There are fewer than 1.5 d rows in a set, where the bias is no line in 1 / n; see also `prepare`.
    """
    sets = prepare(real, generated, options)
    n, d = min(len(sets.real), len(sets.generated)), sets.real.shape[1]
    if n < LEAST * d:
        raise SetError(
            f"Expected at least 1.5 rows per feature, {math.ceil(LEAST * d)} for d = {d}, got {len(sets.real)} real "
            f"and {len(sets.generated)} generated rows: the extrapolation does not hold below; use kernel_distance"
        )
    intercept, slope, error, last = _extrapolate_distance(
        sets.real, sets.generated, sets.patients, sets.prompts, sets.options
    )
    extras: dict[str, Any] = {"details": {"slope": slope, "at_n": last}}
    if sets.options["interval"]:
        variance = _distance_variance(sets, _make_side(sets.real), _make_side(sets.generated)) + error**2
        extras |= normal_interval(intercept, variance, "normal, by the influence of each row and the fit of the line")

    def again(one: Array, other: Array) -> float:
        return _extrapolate_distance(one, other, None, None, sets.options)[0]

    floor = floor_of(sets, again, least=math.ceil(LEAST * d))
    return sets.value("frechet_distance_inf", intercept, **extras, **floor)


def frechet_distance_of_moments(
    mean: npt.ArrayLike, covariance: npt.ArrayLike, other_mean: npt.ArrayLike, other_covariance: npt.ArrayLike
) -> float:
    """Fréchet distance, squared, of two normal distributions of known moments.

    Their means and covariances are known. For statistics that others have published: means (d,), covariances
    (d, d), symmetric and positive semidefinite. From features, `frechet_distance` is more exact and knows n.

    Raises:
        SetError: The shapes do not fit, or numbers are not finite.
    """
    from scipy import linalg

    means = [np.asarray(vector, dtype=np.float64) for vector in (mean, other_mean)]
    covariances = [np.asarray(matrix, dtype=np.float64) for matrix in (covariance, other_covariance)]
    d = means[0].size
    if any(vector.shape != (d,) for vector in means) or any(matrix.shape != (d, d) for matrix in covariances):
        raise SetError(
            f"Expected means (d,) and covariances (d, d) of one d, got {means[0].shape}, {covariances[0].shape}, "
            f"{means[1].shape} and {covariances[1].shape}"
        )
    if not all(np.isfinite(moment).all() for moment in (*means, *covariances)):
        raise SetError("Means and covariances of a Fréchet distance must be finite")
    factors = []
    for matrix in covariances:
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        factors.append(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)
    nuclear = float(linalg.svdvals(factors[0] @ factors[1].T, overwrite_a=True).sum())
    apart = means[0] - means[1]
    return float(apart @ apart) + float(np.trace(covariances[0]) + np.trace(covariances[1])) - 2 * nuclear


def _rank_flags(sets: Sets) -> tuple[str, ...]:
    n, d = min(len(sets.real), len(sets.generated)), sets.real.shape[1]
    if n > d:
        return ()
    return (f"rank_deficient: {n} rows for {d} features, the value says more of n than of the images",)


def _make_side(rows: Array) -> _Side:
    from scipy import linalg

    n, d = rows.shape
    mean = rows.mean(axis=0, dtype=np.float64)
    if n <= d:
        factor = (rows - mean) / math.sqrt(n - 1)
        return _Side(rows, mean, float(np.vdot(factor, factor)), factor, tall=False)
    covariance = np.zeros((d, d), order="F")
    for start in range(0, n, STRIP):
        centred = rows[start : start + STRIP] - mean
        covariance = linalg.blas.dsyrk(1 / (n - 1), centred.T, beta=1.0, c=covariance, lower=1, overwrite_c=1)
    return _Side(rows, mean, float(np.trace(covariance)), covariance, tall=True)


def _cholesky_root(covariance: Floats) -> Floats | None:
    """Returns the lower Cholesky triangle L, or None where singular."""
    from scipy import linalg

    triangle, failed = linalg.lapack.dpotrf(covariance, lower=1, clean=0)
    squares = np.diag(triangle) ** 2
    if failed or squares.min() <= SINGULAR * len(squares) * squares.max():
        return None
    return np.asarray(triangle)


def _covariance_factor(side: _Side) -> Floats:
    """Returns F with F'F = S, (rank, d)."""
    from scipy import linalg

    if not side.tall:
        return side.spread
    root = _cholesky_root(side.spread)
    if root is not None:
        return np.asarray(np.tril(root).T)
    # From the rows themselves: small directions are not squared away, but it takes longer.
    (triangle,) = linalg.qr(side.rows - side.mean, mode="r", overwrite_a=True, check_finite=False)
    factor: Floats = triangle[: side.rows.shape[1]] / math.sqrt(len(side.rows) - 1)
    return factor


def _squared_distance(one: _Side, other: _Side) -> tuple[float, float]:
    """Returns the squared distance and its part from the means."""
    apart = one.mean - other.mean
    mean_part = float(apart @ apart)
    traces = one.trace + other.trace
    return mean_part + traces - 2 * _nuclear_norm(one, other, ROUNDING * traces), mean_part


def _nuclear_norm(one: _Side, other: _Side, allowed: float) -> float:
    """Returns the nuclear norm of F1 F2' by eigenvalues."""
    from scipy import linalg

    if one.tall and other.tall:
        root = _cholesky_root(one.spread)
        if root is not None:
            square, _ = linalg.lapack.dsygst(other.spread, root, itype=2, lower=1)
            norm, error = _root_sum(square)
            if error <= allowed:
                return norm
        return float(linalg.svdvals(_covariance_factor(one) @ _covariance_factor(other).T, overwrite_a=True).sum())
    first = not one.tall and (other.tall or len(one.rows) <= len(other.rows))
    short, long = (one, other) if first else (other, one)
    cross = short.spread @ _covariance_factor(long).T
    # Centred rows add up to 0, so that the square has one eigenvalue of 0, whose root would be all error. It is moved.
    lift = math.sqrt(float(np.vdot(cross, cross)) / len(cross))
    norm, error = _root_sum(cross @ cross.T + lift**2 / len(cross))
    if error <= allowed:
        return norm - lift
    return float(linalg.svdvals(cross, overwrite_a=True).sum())


def _root_sum(square: Floats) -> tuple[float, float]:
    """Returns the eigenvalues' sum of roots and error bound.

    The lower triangle is read. Eigenvalues are off by about the machine epsilon of the largest, so roots of
    small ones are off by far more.
    """
    from scipy import linalg

    values = linalg.eigh(square, lower=True, eigvals_only=True, driver="evd", overwrite_a=True, check_finite=False)
    if values[0] <= 0:
        return math.nan, math.inf
    error = np.finfo(np.float64).eps * values[-1] * math.sqrt(float((1 / values).sum())) / 2
    return float(np.sqrt(values).sum()), float(error)


def _extrapolate_distance(
    real: Array, generated: Array, patients: Array | None, prompts: Array | None, options: Options
) -> tuple[float, float, float, float]:
    """Returns intercept, slope, standard error of the intercept, and the value at n."""
    n = min(len(real), len(generated))
    rng = np.random.default_rng(options["seed"])
    sizes = np.unique(np.linspace(n / 2, n, SIZES).round().astype(int))
    values = []
    for size in sizes:
        real_part, generated_part = (
            rows[np.sort(shuffled(rng, len(rows), groups)[:size])]
            for rows, groups in ((real, patients), (generated, prompts))
        )
        values.append(_squared_distance(_make_side(real_part), _make_side(generated_part))[0])
    design = np.stack([np.ones(len(sizes)), 1 / sizes], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    intercept, slope = inverse @ design.T @ np.array(values)
    residuals = np.array(values) - design @ [intercept, slope]
    error = math.sqrt(float(residuals @ residuals) / max(1, len(sizes) - 2) * inverse[0, 0])
    return float(intercept), float(slope), error, values[-1]


def _distance_variance(sets: Sets, one: _Side, other: _Side) -> float:
    """Returns the distance's variance by the delta method.

    It follows from the influence of each row. With T the optimal map between the two normal distributions, a row x of
    the first set moves the distance by 2 (m1 - m2)'(x - m1) + |x - m1|^2 - (x - m1)' T (x - m1), and one of the second
    alike with the inverse of T.
    """
    from scipy import linalg

    factor, other_factor = _covariance_factor(one), _covariance_factor(other)
    cross = factor @ other_factor.T
    squares, vectors = np.linalg.eigh(cross @ cross.T)
    keep = squares > max(squares[-1], 0.0) * SINGULAR
    roots, vectors = np.sqrt(squares[keep]), vectors[:, keep]
    apart = 2 * (one.mean - other.mean)
    if one.tall:
        # A zero on the diagonal is a direction without spread, in which there is nothing to map.
        triangle = factor + np.diag(np.where(np.diag(factor) == 0, 1.0, 0.0))
        whiten = linalg.solve_triangular(triangle, vectors * np.sqrt(roots), check_finite=False)
        first = _row_influences(one, apart, whiten)
    else:
        first = _row_influences(one, apart, None)
        first -= (len(one.rows) - 1) * ((vectors * np.sqrt(roots)) ** 2).sum(axis=1)
    second = _row_influences(other, -apart, factor.T @ (vectors / np.sqrt(roots)))
    return variance_of_mean(first, sets.patients) + variance_of_mean(second, sets.prompts)


def _row_influences(side: _Side, apart: Floats, mapped: Floats | None) -> Floats:
    """Returns apart'x + |x|^2 - |mapped' x|^2 for each centred row x."""
    influences = np.empty(len(side.rows))
    for part in strips(side.rows, PRODUCT):
        centred = side.rows[part] - side.mean
        influences[part] = centred @ apart + np.einsum("ij,ij->i", centred, centred)
        if mapped is not None:
            moved = centred @ mapped
            influences[part] -= np.einsum("ij,ij->i", moved, moved)
    return influences

"""Kernel distances of two sets (squared maximum mean discrepancies): of all pairs, unbiased, with a standard error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.fidelity.feature_sets import (
    Options,
    SetError,
    Sets,
    SetValue,
    floor_of,
    one_set,
    prepare,
    shuffled,
)
from medimg_eval.metrics.fidelity.intervals import group_sums, normal_interval

Kernel: TypeAlias = Callable[[Floats, Floats, Floats], Floats]

BLOCK = 512
"""Rows of a block of kernel values: 2 MiB."""

WHOLE = 10_000
"""Rows up to which all pairs are looked at."""

PART = 5_000
"""Above, rows of the random parts that are compared one by one, at most."""

MEDIAN_ROWS = 1_000
"""Real rows that the median distance is taken of."""

SUBSETS, SUBSET = 100, 1_000
CMMD_BANDWIDTH, CMMD_SCALE = 10.0, 1000.0

HOW = "normal, by the variance of the statistic over all pairs"


class _Within(NamedTuple):
    """Kernel values of a set with itself, rows of one group left out.

    `sums` (n,) of each row, `counts` (n,) of what was added up, `squares` of all of them, `diagonal` of rows with
    themselves.
    """

    sums: Floats
    counts: Floats
    squares: float
    diagonal: float


class _Estimate(NamedTuple):
    value: float
    variance: float


def kernel_distance(
    real: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    degree: int = 3,
    gamma: float | None = None,
    offset: float = 1.0,
    **options: Unpack[Options],
) -> SetValue:
    """The unbiased squared maximum mean discrepancy of two sets with the kernel (x'y / d + 1)^3, over all pairs.

    With Inception features it is the KID (Binkowski et al. 2018), whose usual mean over subsets estimates the same; see
    `kernel_distance_subsets`. Its expectation does not depend on n, so that it may be compared across n: 0 where both
    sets are draws of one distribution, so that it is often a little below 0, as of sets with rows in common. Values are
    not clipped. In general the kernel is (`gamma` x'y + `offset`) to the power of `degree`.

    The standard error is that of the statistic: from the spread of the rows' means and of what is left of the kernel
    once they are taken out. Rows of one patient, or prompt, are not compared with each other and count as one draw.
    Above 10,000 rows, sets are cut at random into parts of at most 5,000 that are compared in pairs.

    Raises:
        SetError: See `prepare`; or all rows of a set belong to one group.
    """
    sets = prepare(real, generated, options)
    kernel = _polynomial_kernel(degree, 1 / sets.real.shape[1] if gamma is None else gamma, offset)
    name = "kernel_distance" if (degree, gamma, offset) == (3, None, 1.0) else f"kernel_distance, degree={degree}"
    return _kernel_value(sets, name, kernel)


def kernel_distance_subsets(
    real: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    subsets: int = SUBSETS,
    size: int | None = None,
    **options: Unpack[Options],
) -> SetValue:
    """The mean of the cubic kernel distance over 100 random subsets of min(1000, n / 2) rows, as KID is published.

    For comparison with published values only: `kernel_distance` uses all pairs once. `details` has "sd_of_subsets",
    which is no standard error, as subsets overlap. The interval is by the variance of the statistic over all pairs, and
    by that of the mean of so many subsets. Draws are those of torch-fidelity for the same `seed`, whose own is 2020.
    Subsets do not keep patients together, as what is published does not: they count for the interval alone. There is no
    floor.

    Raises:
        SetError: `size` is not in [2, min(n, m) - 1], or `subsets` is less than 1; see also `prepare`.
    """
    sets = prepare(real, generated, options)
    least = min(len(sets.real), len(sets.generated))
    rows = min(SUBSET, least // 2) if size is None else size
    if subsets < 1 or not 2 <= rows < least:
        raise SetError(
            f"Expected subsets of 2 to {least - 1} rows, of {len(sets.real)} real and {len(sets.generated)} generated "
            f"ones, got {subsets} subsets of {rows}"
        )
    kernel = _polynomial_kernel(3, 1 / sets.real.shape[1], 1.0)
    rng = np.random.RandomState(sets.options["seed"])  # the generator of the published values
    values = []
    for _ in range(subsets):
        real_part, generated_part = (
            part[rng.choice(len(part), rows, replace=False)] for part in (sets.real, sets.generated)
        )
        values.append(_estimate_statistic(real_part, generated_part, None, None, kernel).value)
    flags = ("sd_of_subsets: the standard deviation of overlapping subsets is no standard error",)
    spread = float(np.std(values))
    name = f"kernel_distance_subsets, {subsets} of {rows}"
    mean, extra = float(np.mean(values)), dict[str, Any]()
    if sets.options["interval"]:
        variance = _total_estimate(sets, kernel)[0].variance + spread**2 / subsets
        extra = normal_interval(mean, variance, f"{HOW}, and of the draws")
    return sets.value(name, mean, flags=flags, details={"sd_of_subsets": spread}, **extra)


def mmd_rbf(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, bandwidth: float | None = None, **options: Unpack[Options]
) -> SetValue:
    """The unbiased squared maximum mean discrepancy of two sets with a Gaussian kernel.

    The kernel is exp(-|x - y|^2 / (2 s^2)); s, the bandwidth, is by default the median distance between (up to 1,000)
    real rows, so that values with different real sets are on different scales. `details` has "bandwidth". Below 2; 0 in
    expectation where the sets are draws of one distribution.

    Raises:
        SetError: The bandwidth is not above 0; see also `kernel_distance`.
    """
    sets = prepare(real, generated, options)
    width = _median_distance(sets) if bandwidth is None else bandwidth
    if not (width > 0 and math.isfinite(width)):
        raise SetError(f"Expected a bandwidth above 0, got {width}; if it is a median, half of the real rows are equal")
    return _kernel_value(sets, "mmd_rbf", _gaussian_kernel(width), details={"bandwidth": float(width)})


def cmmd(real: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[Options]) -> SetValue:
    """1000 times the unbiased squared maximum mean discrepancy of rows of length 1, with a Gaussian kernel of s = 10.

    CMMD (Jayasumana et al. 2024) is defined so, with CLIP features; its published code takes the biased form, which is
    `cmmd_published`. Rows are divided by their length first.

    Raises:
        SetError: A row is zero, which has no direction; see also `kernel_distance`.
    """
    sets = _of_length_one(prepare(real, generated, options))
    return _kernel_value(sets, "cmmd", _gaussian_kernel(CMMD_BANDWIDTH), scale=CMMD_SCALE)


def cmmd_published(real: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[Options]) -> SetValue:
    """CMMD as its published code has it: each row is also compared with itself, which adds about 1 / n.

    For comparison with published values only. Rows of one patient are compared with each other; there is no interval.
    In [0, 2000), above 0 also where the sets are draws of one distribution.

    Raises:
        SetError: A row is zero; see also `prepare`.
    """
    sets = _of_length_one(prepare(real, generated, options))
    kernel = _gaussian_kernel(CMMD_BANDWIDTH)

    def biased(one: Array, other: Array) -> float:
        within = [_sums_within(rows, None, kernel) for rows in (one, other)]
        own = sum((part.sums.sum() + part.diagonal) / len(part.sums) ** 2 for part in within)
        return CMMD_SCALE * float(own - 2 * _sums_between(one, other, kernel)[0].sum() / (len(one) * len(other)))

    value = biased(sets.real, sets.generated)
    floor = floor_of(sets, biased)
    return sets.value("cmmd_published", value, depends_on_n=True, **floor)


def _kernel_value(
    sets: Sets, name: str, kernel: Kernel, *, scale: float = 1.0, details: dict[str, float] | None = None
) -> SetValue:
    total, parts = _total_estimate(sets, kernel)
    flags = () if parts == 1 else (f"parts: the mean over {parts} random parts of both sets",)
    extra: dict[str, Any] = {"details": details or {}}
    if sets.options["interval"]:
        extra |= normal_interval(scale * total.value, scale**2 * total.variance, HOW)
    floor = floor_of(sets, lambda one, other: scale * _estimate_statistic(one, other, None, None, kernel).value)
    return sets.value(name, scale * total.value, flags=(*flags, *floor.pop("flags", ())), **extra, **floor)


def _total_estimate(sets: Sets, kernel: Kernel) -> tuple[_Estimate, int]:
    """Returns the all-pairs statistic, or random parts' mean and number."""
    groups = (sets.patients, sets.prompts)
    for numbers, what in zip(groups, ("patient", "prompt"), strict=True):
        if numbers is not None and len(np.unique(numbers)) < 2:
            raise SetError(f"Expected rows of at least two {what}s, got {len(numbers)} of one")
    largest = max(len(sets.real), len(sets.generated))
    if largest <= WHOLE:
        return _estimate_statistic(sets.real, sets.generated, *groups, kernel), 1
    parts = math.ceil(largest / PART)
    return _in_parts(sets, parts, kernel), parts


def _in_parts(sets: Sets, parts: int, kernel: Kernel) -> _Estimate:
    rng = np.random.default_rng(sets.options["seed"])
    orders = [
        np.array_split(shuffled(rng, len(rows), groups), parts)
        for rows, groups in ((sets.real, sets.patients), (sets.generated, sets.prompts))
    ]
    estimates = []
    for real_rows, generated_rows in zip(*orders, strict=True):
        patients = None if sets.patients is None else sets.patients[real_rows]
        prompts = None if sets.prompts is None else sets.prompts[generated_rows]
        estimates.append(
            _estimate_statistic(sets.real[real_rows], sets.generated[generated_rows], patients, prompts, kernel)
        )
    return _Estimate(sum(part.value for part in estimates) / parts, sum(part.variance for part in estimates) / parts**2)


def _polynomial_kernel(degree: int, gamma: float, offset: float) -> Kernel:
    def kernel(products: Floats, _one: Floats, _other: Floats) -> Floats:
        products *= gamma
        products += offset
        if degree == 3:
            square = products * products
            products *= square
            return products
        return products**degree

    return kernel


def _gaussian_kernel(bandwidth: float) -> Kernel:
    def kernel(products: Floats, one: Floats, other: Floats) -> Floats:
        products *= -2
        products += one[:, None]
        products += other[None, :]
        np.maximum(products, 0, out=products)
        products *= -1 / (2 * bandwidth**2)
        return np.exp(products, out=products)

    return kernel


def _squared_norms(rows: Array) -> Floats:
    """Returns squared lengths (row,)."""
    norms: Floats = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return norms


def _as_double(rows: Array) -> Floats:
    return rows.astype(np.float64, copy=False)


def _sums_within(rows: Array, groups: Array | None, kernel: Kernel) -> _Within:
    n = len(rows)
    sums, counts = np.zeros(n), np.full(n, n - 1.0)
    if groups is not None:
        counts = n - np.bincount(groups)[groups].astype(np.float64)
    squares = diagonal = 0.0
    norms = _squared_norms(rows)
    for start in range(0, n, BLOCK):
        here = slice(start, start + BLOCK)
        block_ = _as_double(rows[here])
        for begin in range(start, n, BLOCK):
            there = slice(begin, begin + BLOCK)
            block = kernel(block_ @ _as_double(rows[there]).T, norms[here], norms[there])
            if begin == start:
                diagonal += float(np.trace(block))
                np.fill_diagonal(block, 0)
            if groups is not None:
                block[groups[here, None] == groups[None, there]] = 0
            sums[here] += block.sum(axis=1)
            weight = 1
            if begin > start:
                sums[there] += block.sum(axis=0)
                weight = 2
            squares += weight * float(np.vdot(block, block))
    return _Within(sums, counts, squares, diagonal)


def _sums_between(real: Array, generated: Array, kernel: Kernel) -> tuple[Floats, Floats, float]:
    """Returns row sums of both sets and squared kernel sum."""
    rows, columns, squares = np.zeros(len(real)), np.zeros(len(generated)), 0.0
    norms, theirs = _squared_norms(real), _squared_norms(generated)
    for start in range(0, len(real), BLOCK):
        here = slice(start, start + BLOCK)
        block_ = _as_double(real[here])
        for begin in range(0, len(generated), BLOCK):
            there = slice(begin, begin + BLOCK)
            block = kernel(block_ @ _as_double(generated[there]).T, norms[here], theirs[there])
            rows[here] += block.sum(axis=1)
            columns[there] += block.sum(axis=0)
            squares += float(np.vdot(block, block))
    return rows, columns, squares


def _estimate_statistic(
    real: Array, generated: Array, patients: Array | None, prompts: Array | None, kernel: Kernel
) -> _Estimate:
    """Returns the unbiased statistic and its variance."""
    n, m = len(real), len(generated)
    own, generated_sums = _sums_within(real, patients, kernel), _sums_within(generated, prompts, kernel)
    rows, columns, squares = _sums_between(real, generated, kernel)
    cross = float(rows.sum()) / (n * m)
    value = (
        float(own.sums.sum() / own.counts.sum() + generated_sums.sums.sum() / generated_sums.counts.sum()) - 2 * cross
    )
    residual = max(0.0, squares / (n * m) - cross**2 - rows.var() / m**2 - columns.var() / n**2)
    variance = 4 * residual / (n * m)
    for side, means, groups, opposite in ((own, rows / m, patients, m), (generated_sums, columns / n, prompts, n)):
        variance += _side_variance(side, means, groups, residual / opposite)
    return _Estimate(value, variance)


def _side_variance(side: _Within, means: Floats, groups: Array | None, noise: float) -> float:
    """Returns what draws of one set add to the variance of the statistic.

    A row's influence is the mean of its kernel values within the set less that across. Its spread also holds noise,
    since both are means of few values: that is taken off, and comes back once through the pairs.
    """
    n = len(means)
    own = side.sums / np.maximum(side.counts, 1)
    influence = own - means
    sums = group_sums(influence - influence.mean(), groups)
    many = len(sums)
    first = float((sums**2).sum()) * many / (many - 1) / n
    if groups is not None:
        return 4 * first / n
    if n < 4:
        return 4 * first / n
    spread = side.squares / side.counts.sum() - own.mean() ** 2
    residual = max(0.0, float(spread - 2 * own.var(ddof=1)) / (1 - 2 / (n - 1)))
    return 4 * max(0.0, first - residual / (n - 1) - noise) / n + 2 * residual / (n * (n - 1))


def _median_distance(sets: Sets) -> float:
    rng = np.random.default_rng(sets.options["seed"])
    chosen = sets.real[np.sort(rng.permutation(len(sets.real))[:MEDIAN_ROWS])].astype(np.float64)
    chosen -= chosen.mean(axis=0)
    norms = _squared_norms(chosen)
    squares = norms[:, None] + norms[None, :] - 2 * chosen @ chosen.T
    return math.sqrt(max(0.0, float(np.median(squares[np.triu_indices(len(chosen), 1)]))))


def _of_length_one(sets: Sets) -> Sets:
    real, generated = _unit_rows(sets.real, "real"), _unit_rows(sets.generated, "generated")
    options = sets.options
    if options["holdout"] is not None:
        spare, _ = one_set(options["holdout"], "hold-out", drop=options["nan"] == "drop")
        options = Options(**{**options, "holdout": _unit_rows(spare, "hold-out")})
    return Sets(real, generated, sets.patients, sets.prompts, sets.flags, options)


def _unit_rows(rows: Array, name: str) -> Floats:
    wide = _as_double(rows)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not lengths.all():
        raise SetError(f"Row {int(np.argmin(lengths))} of the {name} set is zero, which has no direction")
    unit: Floats = wide / lengths
    return unit

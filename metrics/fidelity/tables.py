"""Tables of a metric of sets by finding, view or model: compared only where n lets them be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Ints
from medimg_eval.metrics.fidelity.feature_sets import SetError, SetValue, shuffled

TRACKS = 0.8
"""Spearman's correlation of values with n, either way, from which a table says more of n than of its rows."""

ALIKE = 1e-9
"""What a correlation of 0.8 may come out below it."""

FEWEST = 4
"""Rows of a table from which such a correlation means something."""


class SetTable(NamedTuple):
    """One metric of several pairs of sets.

    Attributes:
        values: by name.
        spearman: the rank correlation of the values with n; NaN below four values or where n is the same.
        warning: one sentence where the values track n; "" otherwise. Print it with the table.
    """

    values: dict[str, SetValue]
    spearman: float
    warning: str


def conditional_table(
    metric: Callable[..., SetValue],
    real: npt.ArrayLike,
    generated: npt.ArrayLike,
    real_has: npt.ArrayLike,
    generated_has: npt.ArrayLike,
    names: Sequence[str],
    *,
    n: int | None = None,
    allow_unequal_n: bool = False,
    **options: Any,
) -> SetTable:
    """Returns a metric per finding, at one n or flagged.

    A finding may be a view, sex or site. Which rows have which of the `names` is bool, (row, name). With `n`,
    so many rows of each finding are drawn at random from each side, whole patients side by side, so that
    values can be compared; by default all are taken. A value is NaN, and a flag says why, where a side has
    fewer than two rows, or than `n`. `options` are of the metric: `patients` and `prompts` are cut to the
    rows, `seed` also draws them.

    Raises:
        SetError: Values of a metric that drifts with n are of different n, without `allow_unequal_n`; the shapes do not
            fit; see also the metric.
    """
    sides = []
    for rows, has, what in ((real, real_has, "real"), (generated, generated_has, "generated")):
        table, marks = np.asarray(rows), np.asarray(has)
        if marks.dtype != np.bool_ or marks.shape != (*table.shape[:1], len(names)):
            raise SetError(
                f"Expected findings of the {what} set to be bool of the shape ({len(table)}, {len(names)}), "
                f"got {marks.dtype} of {marks.shape}"
            )
        sides.append((table, marks))
    groups = [None if options.get(key) is None else np.asarray(options[key]) for key in ("patients", "prompts")]
    values = {}
    for at, name in enumerate(names):
        rng = np.random.default_rng(options.get("seed", 0))
        chosen = [_choose_rows(rng, marks[:, at], group, n) for (_, marks), group in zip(sides, groups, strict=True)]
        least = min(len(rows) for rows in chosen)
        if least < (n or 2):
            values[name] = _absent_value(name, [int(marks[:, at].sum()) for _, marks in sides], sides[0][0].shape[1], n)
            continue
        mine = dict(options)
        for key, group, rows in zip(("patients", "prompts"), groups, chosen, strict=True):
            if group is not None:
                mine[key] = group[rows]
        values[name] = metric(sides[0][0][chosen[0]], sides[1][0][chosen[1]], **mine)
    if not allow_unequal_n:
        _same_n(values, "draw as many rows of each finding with n=..., take kernel_distance")
    return SetTable(values, *tracks_n(values))


def compare(values: Mapping[str, SetValue], *, allow_unequal_n: bool = False) -> SetTable:
    """Values of several models or findings as a table, if comparable.

    Raises:
        SetError: The values are of different metrics, extractors or numbers of features; or the metric drifts with n,
            and n differs, without `allow_unequal_n`.
    """
    for what in ("metric", "extractor", "d"):
        names = sorted({str(getattr(value, what)) for value in values.values()})
        if len(names) > 1:
            raise SetError(f"Values with different {what} cannot be compared: {' and '.join(names)}")
    if not allow_unequal_n:
        _same_n(values, "compute all at one n, take kernel_distance")
    return SetTable(dict(values), *tracks_n(values))


def tracks_n(values: Mapping[str, SetValue]) -> tuple[float, str]:
    """Returns Spearman's correlation of values with n, and a warning.

    n is the smaller of each value's two sets; the warning is a sentence if the correlation is at least 0.8 in size. NaN
    and "" where fewer than four values are there, or all n are equal. Values that rise or fall with n alone do so
    whatever the images show: a published table of FID by finding has -0.92 to -0.97.
    """
    there = [value for value in values.values() if math.isfinite(value.value)]
    sizes = np.array([min(value.n_real, value.n_generated) for value in there], dtype=np.float64)
    numbers = np.array([value.value for value in there])
    if len(there) < FEWEST or np.ptp(sizes) == 0 or np.ptp(numbers) == 0:
        return math.nan, ""
    spearman = float(np.corrcoef(_average_ranks(sizes), _average_ranks(numbers))[0, 1])
    if abs(spearman) < TRACKS - ALIKE:
        return spearman, ""
    return spearman, (
        f"The {len(there)} values of {there[0].metric} track n (Spearman {spearman:+.2f}, n from {sizes.min():.0f} to "
        f"{sizes.max():.0f}): they may say more of n than of the images."
    )


def _average_ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    positions = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(positions / 2, dtype=np.float64)


def _choose_rows(rng: np.random.Generator, marked: Array, groups: Array | None, n: int | None) -> Ints:
    rows = np.flatnonzero(marked)
    if n is None or len(rows) <= n:
        return rows
    numbers = None if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    return np.sort(rows[shuffled(rng, len(rows), numbers)[:n]])


def _absent_value(name: str, found: list[int], d: int, n: int | None) -> SetValue:
    wanted = 2 if n is None else n
    flag = f"absent: {found[0]} real and {found[1]} generated rows have {name}, {wanted} of each are needed"
    return SetValue("absent", math.nan, found[0], found[1], d, flags=(flag,))


def _same_n(values: Mapping[str, SetValue], how: str) -> None:
    there = {name: value for name, value in values.items() if math.isfinite(value.value) and value.depends_on_n}
    sizes = {(value.n_real, value.n_generated) for value in there.values()}
    if len(sizes) > 1:
        first, last = min(sizes), max(sizes)
        raise SetError(
            f"{next(iter(there.values())).metric} drifts with n and cannot be compared between {first[0]} real and "
            f"{first[1]} generated rows and {last[0]} and {last[1]}; {how}, or set allow_unequal_n=True"
        )

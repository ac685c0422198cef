"""Precision, recall, density and coverage: whether rows of one set lie in the neighbourhoods of the other's."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Places
from medimg_eval.metrics.fidelity.feature_sets import Options, SetError, SetValue, floor_of, prepare, same_size
from medimg_eval.metrics.fidelity.intervals import normal_interval, share_interval, variance_of_mean, variance_of_sum
from medimg_eval.metrics.fidelity.nearest_neighbours import (
    CROWDED,
    STRIP,
    FeatureSet,
    estimates,
    exact_squares,
    near,
    prepare_feature_sets,
)

NEIGHBOURS = 5
FEW = 5
"""Generated rows in a neighbourhood below which a density has no interval."""

HOW = "by the spread of both sets; at this n"


class PRDC(NamedTuple):
    """The four values that one search gives."""

    precision: SetValue
    recall: SetValue
    density: SetValue
    coverage: SetValue


class _Radii(NamedTuple):
    """Squared neighbourhood radii: real, real widened, and generated rows."""

    real: Floats
    wider: Floats
    generated: Floats


class _Inside(NamedTuple):
    """Neighbours of each row of a set.

    Attributes:
        precise: (generated,): it lies within a neighbourhood of a real row.
        recalled: (real,): it lies within a neighbourhood of a generated row.
        dense: (generated,): in how many neighbourhoods of real rows it lies, over k.
        covered: (real,): a generated row lies within its neighbourhood.
        others: what these four sums would lose without a row of the other set, (real,), (generated,), (real,),
            (generated,): a row that lies in one neighbourhood alone would lie in none without that.
    """

    precise: Floats
    recalled: Floats
    dense: Floats
    covered: Floats
    others: tuple[Floats, ...]

    @property
    def shares(self) -> tuple[Floats, ...]:
        """The four whose means are the values, in the order of `PRDC`."""
        return self.precise, self.recalled, self.dense, self.covered


def precision_recall_density_coverage(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, cut: bool = True, **options: Unpack[Options]
) -> PRDC:
    """Returns precision, recall, density and coverage of a generated set.

    Definitions are those of Naeem et al. 2020. A row's neighbourhood is the open ball up to its k-th nearest row of the
    same set, itself not counted: what lies at exactly that distance is outside. The larger set is cut down at random to
    the size of the smaller, with a flag; with `cut=False` the values are those of the package prdc, and depend on both
    sizes. Neighbours are searched in strips, never as a matrix of all pairs, and settled in float64.

    Precision, recall and coverage are in [0, 1], density in [0, n / k], 1 in expectation for equal distributions.
    Precision and recall fall as n grows, also where nothing else changes; density and coverage hardly do. `details` of
    coverage has "expected", 1 - (n-1)...(n-k) / ((n+m-1)...(n+m-k)), its expectation where both sets are draws of one
    distribution. Intervals are of what new draws of both sets would give at this n: to the spread over rows (over
    patients or prompts where they are given) comes that over rows of the other set, by what the value would lose
    without each.

    Raises:
        SetError: k is not in [1, min(n, m) - 1]; see also `prepare`.
    """
    if k < 1:
        raise SetError(f"Expected k to be at least 1, got {k}")
    sets = prepare(real, generated, options, least=k + 1)
    sets = same_size(sets) if cut else sets
    counts = _count_inside(sets.real, sets.generated, k)
    n, m = len(sets.real), len(sets.generated)
    floors: list[float] = []

    def again(one: Array, other: Array) -> float:
        floors.extend(float(part.mean()) for part in _count_inside(one, other, k).shares)
        return floors[0]

    floor = floor_of(sets, again, least=k + 1)
    flags = floor.pop("flags", ())
    if n != m:
        flags = (*flags, f"unequal: {n} real and {m} generated rows were compared, which no other sizes compare with")
    expected = 1 - float(np.prod([(n - i) / (n + m - i) for i in range(1, k + 1)]))
    values = []
    for index, (name, part) in enumerate(zip(PRDC._fields, counts.shares, strict=True)):
        groups, across = sets.prompts, sets.patients
        if name in ("recall", "coverage"):
            groups, across = across, groups
        extra: dict[str, Any] = {"floor": floors[index], "floor_n": floor["floor_n"]} if floors else {}
        noted = flags
        if sets.options["interval"] and name == "density" and counts.precise.sum() < FEW:
            noted = (*flags, f"no_interval: {counts.precise.sum():.0f} generated rows lie in a neighbourhood")
        elif sets.options["interval"]:
            extra |= _value_interval(name, part, groups, variance_of_sum(counts.others[index] / len(part), across))
        if name == "coverage":
            extra["details"] = {"expected": expected}
        drifts = name in ("precision", "recall")
        values.append(sets.value(f"{name}, k={k}", part.mean(), depends_on_n=drifts, flags=noted, **extra))
    return PRDC(*values)


def _value_interval(name: str, part: Floats, groups: Array | None, further: float) -> dict[str, Any]:
    """Interval of one PRDC value, `further` the other set's variance."""
    if name == "density":
        return normal_interval(float(part.mean()), variance_of_mean(part, groups) + further, f"normal, {HOW}")
    return share_interval(part, groups, f"Wilson, {HOW}", further=further)


def precision(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of generated rows within the neighbourhood of a real row."""
    return precision_recall_density_coverage(real, generated, k=k, **options).precision


def recall(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of real rows within the neighbourhood of a generated row."""
    return precision_recall_density_coverage(real, generated, k=k, **options).recall


def density(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The mean number of neighbourhoods of real rows that a generated row lies in, over k."""
    return precision_recall_density_coverage(real, generated, k=k, **options).density


def coverage(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of real rows whose neighbourhood holds a generated row."""
    return precision_recall_density_coverage(real, generated, k=k, **options).coverage


def _count_inside(real: Array, generated: Array, k: int) -> _Inside:
    real_set, generated_set = prepare_feature_sets(real, generated)
    n, m = len(real), len(generated)
    nearest = near(real_set, real_set, min(k + 1, n - 1), itself=True)
    radii = _Radii(
        nearest.squares[:, k - 1],
        nearest.squares[:, -1],
        near(generated_set, generated_set, k, itself=True).squares[:, -1],
    )
    alone_counts = (np.zeros(n), np.zeros(m), np.zeros(n), np.zeros(m))
    counts_ = _Inside(np.zeros(m), np.zeros(n), np.zeros(m), np.zeros(n), alone_counts)
    last, gained = np.zeros(m, dtype=np.intp), np.zeros(n)
    for start in range(0, n, STRIP):
        _judge_strip(real_set, generated_set, slice(start, min(start + STRIP, n)), radii, counts_, (last, gained))
    alone_counts[0][:] = np.bincount(last[counts_.dense == 1], minlength=n)
    # Without a row, the neighbourhoods that it helped to end reach to the next.
    alone_counts[2][:] -= np.bincount(nearest.places[:, :k].ravel(), weights=np.repeat(gained, k), minlength=n)
    for counts in (counts_.dense, alone_counts[2]):
        counts[:] /= k
    return counts_


def _judge_strip(
    real: FeatureSet, generated: FeatureSet, chosen: slice, radii: _Radii, found: _Inside, aside: tuple[Places, Floats]
) -> None:
    """Adds the contribution of a strip of real rows.

    Pairs too close to an edge for an estimate are measured. `aside` takes, of each generated row, a real row
    that holds it, and of each real row how many more it would hold in its wider neighbourhood.
    """
    wide, wider, theirs = radii.real[chosen], radii.wider[chosen], radii.generated
    for double in (False, True):
        squares, margin = estimates(real, generated, chosen, double=double)
        margin = 2 * margin
        # Margins differ by row, radii of generated rows by column: the widest margin serves all of these.
        most = float(margin.max())
        inside = squares <= (wider + margin)[:, None].astype(squares.dtype)
        inside |= squares <= (theirs + most).astype(squares.dtype)
        rows, columns = np.nonzero(inside)
        found_squares = squares[rows, columns].astype(np.float64)
        unsure = np.abs(found_squares - theirs[columns]) <= most
        for radius in (wide, wider):
            unsure |= np.abs(found_squares - radius[rows]) <= margin[rows]
        if unsure.sum() <= CROWDED * len(squares):
            break
    found_squares[unsure] = exact_squares(real, generated, rows[unsure] + chosen.start, columns[unsure])
    within_real, within_theirs = found_squares < wide[rows], found_squares < theirs[columns]
    held, generated_counts, recalled = (
        np.bincount(rows[within], minlength=len(wide))
        for within in (within_real, found_squares < wider[rows], within_theirs)
    )
    holds = columns[within_real]
    found.precise[holds] = 1
    found.dense[:] += np.bincount(holds, minlength=len(theirs))
    found.covered[chosen], found.recalled[chosen] = held > 0, recalled > 0
    found.others[2][chosen] = held
    aside[0][holds] = rows[within_real] + chosen.start
    aside[1][chosen] = generated_counts - held
    alone = within_theirs & (recalled[rows] == 1), within_real & (held[rows] == 1)
    for position, only in zip((1, 3), alone, strict=True):
        found.others[position][:] += np.bincount(columns[only], minlength=len(theirs))

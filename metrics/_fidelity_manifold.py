"""Precision, recall, density and coverage: whether rows of one set lie in the neighbourhoods of the other's."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._fidelity_intervals import normal_interval, share_interval, variance_of_mean
from medimg_eval.metrics._fidelity_near import CROWDED, STRIP, Cloud, clouds, estimates, exact_squares, near
from medimg_eval.metrics._sets import Array, Options, SetError, SetValue, floor_of, prepare, same_size

NEIGHBOURS = 5
HELD = "the neighbourhoods of the other set are held fixed"


class PRDC(NamedTuple):
    """The four values that one search gives."""

    precision: SetValue
    recall: SetValue
    density: SetValue
    coverage: SetValue


class _Inside(NamedTuple):
    """What each row of a set finds.

    Attributes:
        precise: (generated,): it lies within a neighbourhood of a real row.
        recalled: (real,): it lies within a neighbourhood of a generated row.
        dense: (generated,): in how many neighbourhoods of real rows it lies, over k.
        covered: (real,): a generated row lies within its neighbourhood.
    """

    precise: npt.NDArray[np.float64]
    recalled: npt.NDArray[np.float64]
    dense: npt.NDArray[np.float64]
    covered: npt.NDArray[np.float64]


def precision_recall_density_coverage(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> PRDC:
    """Returns precision, recall, density and coverage of a generated set, after Naeem et al. 2020.

    A row's neighbourhood is the open ball up to its k-th nearest row of the same set, itself not counted: what lies
    at exactly that distance is outside. The larger set is cut down at random to the size of the smaller, with a flag.
    Neighbours are searched in strips, never as a matrix of all pairs, and settled in float64.

    Precision and recall fall as n grows, also where nothing else changes; density and coverage hardly do.
    `details` of coverage has "expected", 1 - (n-1)...(n-k) / ((2n-1)...(2n-k)), its expectation where both sets are
    draws of one distribution. Intervals are those of a share, or a mean, over rows (over patients or prompts where
    they are given) while the neighbourhoods of the other set are held fixed, so that they are too narrow for
    comparisons with new draws of both.

    Args:
        real: (n, d).
        generated: (m, d).
        k: which neighbour ends a neighbourhood; less than n and m.
        **options: see `Options`.

    Returns:
        Precision, recall and coverage in [0, 1]; density in [0, n / k], 1 in expectation for equal distributions.

    Raises:
        SetError: k is not in [1, min(n, m) - 1]; see also `prepare`.
    """
    if k < 1:
        raise SetError(f"Expected k to be at least 1, got {k}")
    sets = same_size(prepare(real, generated, options, least=k + 1))
    found = _inside(sets.real, sets.generated, k)
    n = len(sets.real)
    floors: list[float] = []

    def again(one: Array, other: Array) -> float:
        floors.extend(float(part.mean()) for part in _inside(one, other, k))
        return floors[0]

    floor = floor_of(sets, again, least=k + 1)
    flags = floor.pop("flags", ())
    expected = 1 - float(np.prod([(n - i) / (2 * n - i) for i in range(1, k + 1)]))
    values = []
    for place, (name, part) in enumerate(zip(PRDC._fields, found, strict=True)):
        groups = sets.patients if name in ("recall", "coverage") else sets.prompts
        extra: dict[str, Any] = {"floor": floors[place], "floor_n": floor["floor_n"]} if floors else {}
        if sets.options["interval"] and name == "density":
            how = f"normal, over generated rows; {HELD}"
            extra |= normal_interval(float(part.mean()), variance_of_mean(part, groups), how)
        elif sets.options["interval"]:
            extra |= share_interval(part, groups, f"Wilson, over rows; {HELD}")
        if name == "coverage":
            extra["details"] = {"expected": expected}
        drifts = name in ("precision", "recall")
        values.append(sets.value(f"{name}, k={k}", part.mean(), depends_on_n=drifts, flags=flags, **extra))
    return PRDC(*values)


def precision(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of generated rows within the neighbourhood of a real row.

    See `precision_recall_density_coverage`, which gives all four at the cost of one.
    """
    return precision_recall_density_coverage(real, generated, k=k, **options).precision


def recall(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of real rows within the neighbourhood of a generated row.

    See `precision_recall_density_coverage`, which gives all four at the cost of one.
    """
    return precision_recall_density_coverage(real, generated, k=k, **options).recall


def density(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The mean number of neighbourhoods of real rows that a generated row lies in, over k.

    See `precision_recall_density_coverage`, which gives all four at the cost of one.
    """
    return precision_recall_density_coverage(real, generated, k=k, **options).density


def coverage(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, k: int = NEIGHBOURS, **options: Unpack[Options]
) -> SetValue:
    """The share of real rows whose neighbourhood holds a generated row.

    See `precision_recall_density_coverage`, which gives all four at the cost of one.
    """
    return precision_recall_density_coverage(real, generated, k=k, **options).coverage


def _inside(real: Array, generated: Array, k: int) -> _Inside:
    one, other = clouds(real, generated)
    wide = near(one, one, k, itself=True).squares[:, -1]
    theirs = near(other, other, k, itself=True).squares[:, -1]
    found = _Inside(np.zeros(len(generated)), np.zeros(len(real)), np.zeros(len(generated)), np.zeros(len(real)))
    for start in range(0, len(real), STRIP):
        chosen = slice(start, min(start + STRIP, len(real)))
        _judge(one, other, chosen, (wide, theirs), found)
    found.dense[:] /= k
    return found


def _judge(
    real: Cloud,
    generated: Cloud,
    chosen: slice,
    radii: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    found: _Inside,
) -> None:
    """Adds what a strip of real rows has to say. Pairs too close to an edge for an estimate are measured."""
    wide, theirs = radii[0][chosen], radii[1]
    for double in (False, True):
        squares, margin = estimates(real, generated, chosen, double=double)
        margin = 2 * margin
        # Margins differ by row, radii of generated rows by column: the widest margin serves all of these.
        most = float(margin.max())
        inside = squares <= (wide + margin)[:, None].astype(squares.dtype)
        inside |= squares <= (theirs + most).astype(squares.dtype)
        rows, columns = np.nonzero(inside)
        found_squares = squares[rows, columns].astype(np.float64)
        unsure = np.abs(found_squares - wide[rows]) <= margin[rows]
        unsure |= np.abs(found_squares - theirs[columns]) <= most
        if unsure.sum() <= CROWDED * len(squares):
            break
    found_squares[unsure] = exact_squares(real, generated, rows[unsure] + chosen.start, columns[unsure])
    within_real, within_theirs = found_squares < wide[rows], found_squares < theirs[columns]
    found.precise[columns[within_real]] = 1
    found.dense[:] += np.bincount(columns[within_real], minlength=len(theirs))
    found.covered[rows[within_real] + chosen.start] = 1
    found.recalled[rows[within_theirs] + chosen.start] = 1

"""The three-sample test of data copying: whether generated rows are nearer to training than new ones are."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Places
from medimg_eval.metrics.fidelity import SetError, SetValue, near, normal_interval, variance_of_sum
from medimg_eval.metrics.privacy.screens import ScreenOptions, prepare_membership_sets

CELLS = 3
LEAST = 20
"""Generated and hold-out rows that a cell needs in order to count."""

ROUNDS = 50
"""Of finding centres, at most."""


def copying_test(
    train: npt.ArrayLike,
    holdout: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    cells: int = CELLS,
    **options: Unpack[ScreenOptions],
) -> SetValue:
    """The z score by which generated rows are nearer to training rows than hold-out rows are, as a mean over cells.

    C_T of Meehan et al. 2020: training rows are divided into cells by k-means; in each the distances of generated and
    of hold-out rows to their nearest training row are compared by the statistic of Mann and Whitney, scaled to a
    standard deviation of 1 where nothing is copied; cells count by their share of hold-out rows. Below -3 is copying,
    above 3 is a set that keeps away from its training, and 0 is expected where generated rows are draws of what
    training rows are drawn of. `details` has "cells", how many counted.

    The score grows with n where anything is copied at all. The interval is that of the score at this n, by the
    placement of each row, rows of one prompt or patient counted as one draw; cells and neighbours are held fixed.

    Raises:
        SetError: `cells` is not in [1, n], or no cell has 20 generated and 20 hold-out rows; see also
            `prepare_membership_sets`.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    n = len(trio.train.rows)
    if not 1 <= cells <= n:
        raise SetError(f"Expected 1 to {n} cells, got {cells}")
    centres = _kmeans_centres(trio.train.rows.astype(np.float64), cells, np.random.default_rng(trio.options["seed"]))
    generated_distances, holdout_distances = (
        near(part, trio.train, 1).squares[:, 0] for part in (trio.generated, trio.holdout)
    )
    made_in, other_in = (_nearest_centres(part.rows, centres) for part in (trio.generated, trio.holdout))
    counts = [(int((made_in == cell).sum()), int((other_in == cell).sum())) for cell in range(cells)]
    used = [cell for cell, pair in enumerate(counts) if min(pair) >= LEAST]
    if not used:
        raise SetError(
            f"Expected a cell with {LEAST} generated and {LEAST} hold-out rows, got at most "
            f"{max(map(min, counts))} of each; take more images, or fewer than {cells} cells"
        )
    weights = np.array([counts[cell][1] for cell in used], dtype=np.float64)
    weights /= weights.sum()
    value, moved = 0.0, (np.zeros(len(generated_distances)), np.zeros(len(holdout_distances)))
    for cell, weight in zip(used, weights.tolist(), strict=True):
        chosen = made_in == cell, other_in == cell
        m, h = counts[cell]
        scale = weight * math.sqrt(12 * m * h / (m + h + 1))
        above, below = (
            _share_above(generated_distances[chosen[0]], holdout_distances[chosen[1]]),
            1 - _share_above(holdout_distances[chosen[1]], generated_distances[chosen[0]]),
        )
        value += scale * (above.mean() - 0.5)
        moved[0][chosen[0]] = scale * (above - above.mean()) / m
        moved[1][chosen[1]] = scale * (below - below.mean()) / h
    extra: dict[str, Any] = {}
    if trio.options["interval"]:
        variance = variance_of_sum(moved[0], trio.prompts) + variance_of_sum(moved[1], trio.holdout_patients)
        extra = normal_interval(value, variance, "normal, by the placement of each row; of the score at this n")
    unused = cells - len(used)
    flags = (f"left_out: {unused} of {cells} cells have fewer than {LEAST} generated or hold-out rows",) * bool(unused)
    details = {"cells": float(len(used))}
    name = "copying_test" if cells == CELLS else f"copying_test, {cells} cells"
    return trio.value(
        name, value, floor=0.0, floor_n=len(holdout_distances), depends_on_n=True, flags=flags, details=details, **extra
    )


def _share_above(one: Floats, other: Floats) -> Floats:
    """Returns shares of `other` below each of `one`, ties half."""
    ordered = np.sort(other)
    return (np.searchsorted(ordered, one, "left") + np.searchsorted(ordered, one, "right")) / (2 * len(other))


def _kmeans_centres(rows: Floats, many: int, rng: np.random.Generator) -> Floats:
    """Returns k-means centres, (cell, d), from distant starting rows."""
    chosen = [int(rng.integers(len(rows)))]
    least = ((rows - rows[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < many and least.any():
        chosen.append(int(rng.choice(len(rows), p=least / least.sum())))
        least = np.minimum(least, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    centres = rows[chosen]
    for _ in range(ROUNDS):
        cells = _nearest_centres(rows, centres)
        moved = np.stack([rows[cells == cell].mean(axis=0) for cell in range(len(centres))])
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _nearest_centres(rows: Array, centres: Floats) -> Places:
    squares = np.stack([((rows - centre) ** 2).sum(axis=1) for centre in centres])
    nearest: Places = squares.argmin(axis=0)
    return nearest

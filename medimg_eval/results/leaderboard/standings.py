"""Models in one order over several columns of ranks, with what resampling patients does to their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medimg_eval.results.comparison import LEVEL
from medimg_eval.results.ranking import rank

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.ranking import RankColumn

Order = Literal["mean_rank", "wins"]
"""What places are given by: the mean rank where every model has every column, otherwise the share of wins."""


class Standing(NamedTuple):
    """One model over all columns.

    Attributes:
        model: Its name.
        place: From 1; equal ones share the smaller place.
        place_low, place_high: 95 % interval of the place over resamples of patients; NaN without resamples.
        mean_rank: Over the columns that every model has, ties with their mean; NaN if there are none.
        mean_rank_low, mean_rank_high: 95 % interval of it over resamples; NaN without.
        wins: Share of its comparisons with other models that it wins, 0 to 1, ties one half; over all its columns.
        firsts: Columns in which no model has a better value.
        tasks: Columns that it has a rank in.
        shares: By place, the share of resamples in which the model has it, 0 to 1, above 0; empty without.
    """

    model: str
    place: int
    place_low: float
    place_high: float
    mean_rank: float
    mean_rank_low: float
    mean_rank_high: float
    wins: float
    firsts: int
    tasks: int
    shares: dict[int, float]


class Standings(NamedTuple):
    """Models in one order.

    Attributes:
        order: What places are given by.
        columns: What they were compared on.
        rows: The models by their places, equal ones by name.
    """

    order: Order
    columns: tuple[RankColumn, ...]
    rows: tuple[Standing, ...]


def find_standings(columns: Sequence[RankColumn]) -> list[Standings]:
    """Orders models by columns' ranks, in connected groups.

    Models that never met, not even by way of others, cannot be ordered: each such group has places of its own.

    Values of different columns are never averaged, only ranks, and those only over columns that every model has:
    whoever skips a hard data set would gain by it otherwise. Where a column lacks a model, models are in the order of
    the share of comparisons that they win (Borda), which does not know how strong those were that a model was compared
    with.

    Args:
        columns: One of each task; those with fewer than two ranks are left out.

    Returns:
        The groups, that of the most columns first.
    """
    ranked = [column for column in columns if len(column.worth) > 1]
    return [_make_standings(group) for group in sorted(_group_columns(ranked), key=len, reverse=True)]


def _group_columns(columns: Sequence[RankColumn]) -> list[list[RankColumn]]:
    """Returns columns grouped by shared models, transitively."""
    groups: list[list[RankColumn]] = []
    for column in columns:
        met = [group for group in groups if any(column.worth.keys() & member.worth.keys() for member in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(member for group in met for member in group), column])
    return groups


def _make_standings(ranked: Sequence[RankColumn]) -> Standings:
    models = sorted({model for column in ranked for model in column.worth})
    all_ranks = [column.ranks("average") for column in ranked]
    point = np.array([[ranks.get(model, np.nan) for model in models] for ranks in all_ranks])
    complete: npt.NDArray[np.bool_] = np.logical_not(np.isnan(point).any(axis=1))
    order: Order = "mean_rank" if complete.all() else "wins"
    means, wins = _mean_ranks(point, complete), _win_shares(point)
    positions = _rank_places(means if order == "mean_rank" else -wins)
    shape = (2, len(models))
    place_bounds, mean_bounds = np.full(shape, np.nan), np.full(shape, np.nan)
    shares: list[dict[int, float]] = [{} for _ in models]
    drawn = _resample_ranks(ranked, models)
    if drawn is not None:
        drawn_means = _mean_ranks(drawn, complete)
        drawn_places = _rank_places(drawn_means if order == "mean_rank" else -_win_shares(drawn))
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        place_bounds = np.quantile(drawn_places, tails, axis=0, method="inverted_cdf")
        mean_bounds = np.quantile(drawn_means, tails, axis=0)
        for number, drawn_ranks in enumerate(drawn_places.T):
            of_place, times = np.unique(drawn_ranks, return_counts=True)
            shares[number] = {
                int(rank): float(count / len(drawn_ranks)) for rank, count in zip(of_place, times, strict=True)
            }
    rows = [
        Standing(
            model,
            int(positions[number]),
            float(place_bounds[0, number]),
            float(place_bounds[1, number]),
            float(means[number]),
            float(mean_bounds[0, number]),
            float(mean_bounds[1, number]),
            float(wins[number]),
            sum(column.ranks("min").get(model) == 1 for column in ranked),
            int((~np.isnan(point[:, number])).sum()),
            shares[number],
        )
        for number, model in enumerate(models)
    ]
    return Standings(order, tuple(ranked), tuple(sorted(rows, key=lambda row: (row.place, row.model))))


def _resample_ranks(columns: Sequence[RankColumn], models: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """Returns resampled ranks, (resample, column, model); unranked NaN."""
    all_ranks = [column.resampled_ranks("average") for column in columns]
    number = min((0 if ranks is None else len(ranks) for ranks in all_ranks), default=0)
    if not number:
        return None
    drawn = np.full((number, len(columns), len(models)), np.nan)
    for index, (column, ranks) in enumerate(zip(columns, all_ranks, strict=True)):
        if ranks is not None:
            drawn[:, index, [models.index(model) for model in column.worth]] = ranks[:number]
    return drawn


def _mean_ranks(ranks: npt.NDArray[np.float64], complete: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Returns means over complete columns: (..., column, model) to (..., model)."""
    if not complete.any():
        return np.full((*ranks.shape[:-2], ranks.shape[-1]), np.nan)
    return np.asarray(ranks[..., complete, :].mean(axis=-2), dtype=np.float64)


def _win_shares(ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns shares won: (..., column, model) to (..., model)."""
    there = ~np.isnan(ranks)
    sizes = there.sum(axis=-1, keepdims=True)
    won = np.where(there, sizes - ranks, 0.0).sum(axis=-2)
    met = np.where(there, sizes - 1, 0).sum(axis=-2)
    return np.asarray(won / met, dtype=np.float64)


def _rank_places(worth: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return rank(worth.round(9), higher_is_better=False, ties="min")

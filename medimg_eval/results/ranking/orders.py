"""Orders of models over several data sets: mean ranks with their tests, and consensus from pairwise counts."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from medimg_eval.results.statistics import LEAST_P

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

MOST_EXACT = 14
"""Models up to which Kemeny's order is found for certain: the work grows with 2 to the power of their number."""


_MOST_SHUFFLED = 50_000
"""Orders of all data sets but one up to which Friedman's test goes through all of them."""


class Friedman(NamedTuple):
    """Friedman test over data sets, with a critical difference.

    Attributes:
        p: Of Friedman's chi-square test; NaN with fewer than three models or two data sets.
        p_f: Of its correction by Iman and Davenport, which is less conservative.
        cd: Nemenyi's critical difference of mean ranks; NaN where there is no test.
        data_sets: Columns that all models have a value in, which the test rests on.
        exact: The p-value over all orders of the models on each data set; NaN where they are too many.
    """

    p: float
    p_f: float
    cd: float
    data_sets: int
    exact: float = float("nan")


class Consensus(NamedTuple):
    """An order of models, by their places.

    Attributes:
        order: The places of the models, the best first.
        disagreement: What the order goes against: of each pair the share of comparisons that the later one won, summed.
        exact: Whether no order disagrees less; otherwise no model could be moved to make it so.
    """

    order: tuple[int, ...]
    disagreement: float
    exact: bool


def rank(values: npt.ArrayLike, *, higher_is_better: bool, ties: str = "average") -> npt.NDArray[np.float64]:
    """Returns ranks along the last axis, 1 best; NaN stays.

    Args:
        values: (..., model).
        higher_is_better: Whether 1 is the largest.
        ties: "average", or "min" for the smallest rank of those that share it.

    >>> rank([0.9, 0.7, 0.9], higher_is_better=True).tolist()
    [1.5, 3.0, 1.5]
    """
    from scipy.stats import rankdata

    data = np.asarray(values, dtype=np.float64)
    ranks = rankdata(-data if higher_is_better else data, method=ties, axis=-1, nan_policy="omit")
    return np.asarray(ranks, dtype=np.float64)


def friedman(ranks: npt.ArrayLike, alpha: float = 0.05) -> Friedman:
    """Returns Friedman's test and Nemenyi's critical difference.

    With N data sets, k models and mean ranks R, chi-square is 12 N / (k (k + 1)) times the sum of R squared, less
    3 N (k + 1), divided by 1 - (sum of t ** 3 - t) / (N k (k ** 2 - 1)) for groups of t equal ranks. Iman and
    Davenport's F is (N - 1) chi-square / (N (k - 1) - chi-square). Two models differ by Nemenyi's test if their mean
    ranks do by at least q / sqrt(2) * sqrt(k (k + 1) / (6 N)), q being the quantile of the studentised range of k
    groups with infinitely many degrees of freedom.

    Both are rough on few data sets: where the models can be ordered on them in at most 50,000 ways, the exact p-value
    counts those in which the sums of ranks are spread at least as far.

    Source: Friedman 1937; Iman and Davenport 1980; Nemenyi 1963; as in Demsar, Journal of Machine Learning Research
    2006.

    Args:
        ranks: (data set, model), ties with their mean rank, no NaN.
        alpha: The level of Nemenyi's test.
    """
    from scipy.stats import chi2, f, studentized_range

    table = np.asarray(ranks, dtype=np.float64)
    number, models = table.shape
    if models < 3 or number < 2:
        return Friedman(np.nan, np.nan, np.nan, number)
    mean = table.mean(axis=0)
    exact = _exact_friedman(table)
    tied = sum(float((count**3 - count).sum()) for row in table for count in [np.unique(row, return_counts=True)[1]])
    untied = 1 - tied / (number * models * (models**2 - 1))
    quantile = float(studentized_range.ppf(1 - alpha, models, np.inf))
    cd = quantile / math.sqrt(2) * math.sqrt(models * (models + 1) / (6 * number))
    if untied <= 1e-12:
        return Friedman(1.0, 1.0, cd, number, 1.0)
    # The sum of squares about the middle rank is the same number without its cancellation.
    square = 12 * number / (models * (models + 1)) * float(((mean - (models + 1) / 2) ** 2).sum()) / untied
    residual = number * (models - 1) - square
    p_f = (
        float(f.sf((number - 1) * square / residual, models - 1, (models - 1) * (number - 1)))
        if residual > 1e-9
        else 0.0
    )
    # However many data sets agree, all of them rank alike by chance this often; where all do, F is infinite.
    least = max(math.exp(-(number - 1) * math.lgamma(models + 1)), LEAST_P)
    return Friedman(max(float(chi2.sf(square, models - 1)), LEAST_P), max(p_f, least), cd, number, exact)


def _exact_friedman(table: npt.NDArray[np.float64]) -> float:
    """Returns the exact Friedman p-value; NaN for many permutations."""
    number, models = table.shape
    if math.lgamma(models + 1) * (number - 1) > math.log(_MOST_SHUFFLED):
        return math.nan
    sums, times = table[:1], np.ones(1)
    for row in table[1:]:
        shuffled = np.array(list(permutations(row.tolist())))
        every = (sums[:, None] + shuffled).reshape(-1, models)
        sums, inverse = np.unique(every, axis=0, return_inverse=True)
        times = np.bincount(inverse.ravel(), weights=np.repeat(times, len(shuffled))).astype(np.float64)
    middle = number * (models + 1) / 2
    observed = float(((table.sum(axis=0) - middle) ** 2).sum())
    extreme = ((sums - middle) ** 2).sum(axis=1) >= observed - 1e-9
    return float(times[extreme].sum() / times.sum())


def cliques(mean_ranks: Sequence[float], cd: float) -> list[tuple[int, ...]]:
    """Returns cliques of mean ranks within the critical difference.

    A group of one model is none, nor is one that is part of a larger one.

    >>> cliques([1.0, 2.0, 2.5, 4.0], 1.6)
    [(0, 1, 2), (2, 3)]
    """
    order = [int(index) for index in np.argsort(mean_ranks, kind="stable")]
    cliques: list[tuple[int, ...]] = []
    reached = 0
    for start, first in enumerate(order):
        end = start
        while end < len(order) and mean_ranks[order[end]] - mean_ranks[first] < cd:
            end += 1
        if end - start > 1 and end > reached:
            cliques.append(tuple(order[start:end]))
            reached = end
    return cliques


def borda(wins: npt.NDArray[np.float64], compared: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns each model's share of comparisons won: (model,), else NaN.

    Where every model is compared with every other on all data sets, this orders them as Borda's count does, hence as
    mean ranks do; models that were compared less often are neither favoured nor punished for it, though what they were
    compared with may have been weaker.

    Args:
        wins: (model, model): how often the model of the row is better than that of the column, a tie one half.
        compared: (model, model): in how many data sets they could be compared.
    """
    number = compared.sum(axis=1)
    shares = np.divide(wins.sum(axis=1), number, out=np.full(len(wins), np.nan), where=number > 0)
    return np.asarray(shares, dtype=np.float64)


def kemeny(wins: npt.NDArray[np.float64], compared: npt.NDArray[np.float64]) -> Consensus:
    """Returns the Kemeny order, with fewest pairwise disagreements.

    Each pair weighs the same, with the share of its comparisons that each of the two won; a pair that was never
    compared weighs nothing. Of orders that are equally good, the one that puts the model with the larger share of wins
    (`borda`) first, place by place, is taken.

    With at most 14 models the best order is found for certain (dynamic programming over sets of models). With more,
    models are moved, one at a time, from the order of their shares of wins until no move helps; where no pair then
    stands against its majority, that is certain too.

    Source: Kemeny, Daedalus 1959; the programme: Betzler et al., Theoretical Computer Science 2009.

    Args:
        wins: As `borda` takes them.
        compared: As `borda` takes them.
    """
    share = np.divide(wins, compared, out=np.full(wins.shape, 0.5), where=compared > 0)
    np.fill_diagonal(share, 0.0)
    shares = borda(wins, compared)
    first = np.argsort(-np.nan_to_num(shares, nan=-1.0), kind="stable")
    against = share.T[np.ix_(first, first)]
    exact = len(first) <= MOST_EXACT
    order = _best_order(against) if exact else _improve_order(against)
    total = sum(float(against[first_model, two]) for first_model, two in combinations(order, 2))
    least = float(np.minimum(against, against.T).sum()) / 2
    exact = exact or total <= least + 1e-9  # no order goes against less than the smaller share of each pair
    return Consensus(tuple(int(first[index]) for index in order), total, exact)


def _best_order(against: npt.NDArray[np.float64]) -> list[int]:
    """Returns the order with the least sum of `against[earlier, later]`."""
    size = len(against)
    best = np.zeros(1 << size)
    chosen = np.zeros(1 << size, dtype=np.int64)
    # What it costs to put a model before all of a set, for every set.
    cost = np.zeros((size, 1 << size))
    for model in range(size):
        cost[:, 1 << model : 2 << model] = cost[:, : 1 << model] + against[:, model : model + 1]
    for remaining in range(1, 1 << size):
        members = [model for model in range(size) if remaining >> model & 1]
        totals = [best[remaining ^ 1 << model] + cost[model, remaining ^ 1 << model] for model in members]
        least = min(totals)
        model_ = next(number for number, total in enumerate(totals) if total <= least + 1e-9)
        best[remaining], chosen[remaining] = totals[model_], members[model_]
    order, remaining = [], (1 << size) - 1
    while remaining:
        order.append(int(chosen[remaining]))
        remaining ^= 1 << order[-1]
    return order


def _improve_order(against: npt.NDArray[np.float64]) -> list[int]:
    """Returns an order that no single move improves."""
    order = list(range(len(against)))
    better = True
    while better:
        better = False
        for model in range(len(against)):
            remaining = [model_ for model_ in order if model_ != model]
            before = np.concatenate([[0.0], np.cumsum(against[remaining, model])])
            after = np.concatenate([np.cumsum(against[model, remaining][::-1])[::-1], [0.0]])
            costs = before + after
            position = int(np.argmin(costs))
            if costs[position] < costs[order.index(model)] - 1e-9:
                order = [*remaining[:position], model, *remaining[position:]]
                better = True
    return order

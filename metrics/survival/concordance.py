"""How often who has the event earlier has the higher risk: concordance of pairs, in n log n and for many resamples.

A pair counts where one case has the event and the other was seen later, or was censored at the very time of it. Pairs
are counted bit by bit of the rank of time: at each bit, cases lie in blocks whose ranks share the higher bits, in order
of risk within a block. A pair is then found at the one bit at which its ranks part.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats, Ints
from medimg_eval.metrics.survival.product_limit import censoring_curve


class Concordance(NamedTuple):
    """Concordance index with pair weights or counts, by resample.

    Each (...), one for each resample.

    Attributes:
        value: (concordant + half of tied) / all of them, in [0, 1]; 0.5 is chance, NaN is that no pair can be compared.
        concordant: the case with the earlier event has the higher risk.
        discordant: it has the lower risk, or one of both failed.
        tied: both have the same risk, to the last bit.
    """

    value: Floats
    concordant: Floats
    discordant: Floats
    tied: Floats


class _Level(NamedTuple):
    """Cases as they lie at one bit.

    Attributes:
        order: (case,) places of the cases.
        earlier: (pair,) where in `order` the cases of the lower half of a block lie.
        block, lower, upper, end: (pair,) for each of these: where the block begins, where cases of its risk begin and
            end, and where the block ends.
        later: (case,) whether a case lies in the higher half.
    """

    order: Ints
    earlier: Ints
    block: Ints
    lower: Ints
    upper: Ints
    end: Ints
    later: Bools


class Pairs:
    """The pairs that can be compared, whatever the weights of their cases.

    Args:
        times: (case,).
        events: (case,) bool, False where the time is censored.
        risks: (case,) higher is worse; NaN of a case that failed, each of whose pairs is discordant.

    Raises:
        ValueError: the three have not the same length, or a time is not finite.
    """

    def __init__(self, times: npt.ArrayLike, events: npt.ArrayLike, risks: npt.ArrayLike) -> None:
        self.times, self.events = np.asarray(times, np.float64), np.asarray(events, bool)
        risk = np.asarray(risks, np.float64)
        if not self.times.shape == self.events.shape == risk.shape or risk.ndim != 1:
            raise ValueError(
                f"Expected as many events and risks as times, got {self.events.shape}, {risk.shape}, {self.times.shape}"
            )
        if not np.isfinite(self.times).all():
            raise ValueError("Expected finite times")
        self._failed = np.isnan(risk)
        # What is censored at the time of an event lasted longer than it.
        _, rank = np.unique(2 * np.unique(self.times, return_inverse=True)[1] + ~self.events, return_inverse=True)
        self._rank = rank.astype(np.int64)
        self._risk = risk

    @cached_property
    def _levels(self) -> list[_Level]:
        risk = self._risk
        order = np.argsort(risk, kind="stable")
        if not len(order):
            return []
        ordered = risk[order]
        # Failed cases lie at the end, as NaN does; what risk they have does not matter.
        _, value = np.unique(np.where(np.isnan(ordered), np.inf, ordered), return_inverse=True)
        rank, levels, position = self._rank[order], [], np.arange(len(order))
        for bit in range(int(self._rank.max()).bit_length() - 1, -1, -1):
            block, lower = rank >> (bit + 1), (rank >> bit & 1) == 0
            new_block = np.r_[True, block[1:] != block[:-1]]
            begins, block_of = _group_starts(new_block)
            runs, run_of = _group_starts(new_block | np.r_[True, value[1:] != value[:-1]])
            earlier = np.flatnonzero(lower & self.events[order])
            mine, run = block_of[earlier], run_of[earlier]
            bounds = (begins[mine], runs[run], runs[run + 1], begins[mine + 1])
            levels.append(_Level(order, earlier, *bounds, ~lower))
            # Next, the lower half of each block lies before its higher half, each in the order in which it lies now.
            before = np.cumsum(lower) - lower
            within, start = before - before[begins[block_of]], begins[block_of]
            size = np.add.reduceat(lower.astype(np.int64), begins[:-1])[block_of]
            target = np.where(lower, start + within, position + size - within)
            moved = np.empty((3, len(order)), np.int64)
            moved[:, target] = order, rank, value
            order, rank, value = moved
        return levels

    def count(self, weights: npt.ArrayLike, event_weights: npt.ArrayLike | None = None) -> Concordance:
        """Returns the concordance under weights.

        Args:
            weights: (..., case) how often each case counts.
            event_weights: (..., case) by which each pair counts more, of its case with the earlier event; 1 by default.
        """
        counted = np.asarray(weights, np.float64)
        if counted.size == len(self.times) and (counted == 1).all():
            return self._count_once(counted.shape[:-1], event_weights)
        leading = counted if event_weights is None else counted * np.asarray(event_weights, np.float64)
        shape = counted.shape[:-1]
        concordant, tied, every = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        sound = ~self._failed
        zero = np.zeros((*shape, 1))
        for level in self._levels:
            later = counted[..., level.order] * level.later
            total = np.concatenate([zero, np.cumsum(later, axis=-1)], axis=-1)
            able = total
            if self._failed.any():
                able = np.concatenate([zero, np.cumsum(later * sound[level.order], axis=-1)], axis=-1)
            mine = leading[..., level.order[level.earlier]]
            mine_able = mine * sound[level.order[level.earlier]]
            every += (mine * (total[..., level.end] - total[..., level.block])).sum(-1)
            concordant += (mine_able * (able[..., level.lower] - able[..., level.block])).sum(-1)
            tied += (mine_able * (able[..., level.upper] - able[..., level.lower])).sum(-1)
        value = np.divide(concordant + tied / 2, every, out=np.full(shape, math.nan), where=every > 0)
        return Concordance(value, concordant, every - concordant - tied, tied)

    def _count_once(self, shape: tuple[int, ...], event_weights: npt.ArrayLike | None) -> Concordance:
        """Concordance of unit-weight cases, by a wavelet matrix.

        For each case with an event it is counted how many of lower and of equal risk have a higher rank, bit by bit: of
        ranks that share the higher bits and have a 0 where it has one, those with a 1.
        """
        leading = self.events.astype(np.float64)
        if event_weights is not None:
            leading = leading * np.asarray(event_weights, np.float64).reshape(-1)
        order = np.argsort(self._risk)  # within equal risks in any order
        ordered, rank = self._risk[order], self._rank[order].astype(np.int32)
        new = np.r_[True, ordered[1:] != ordered[:-1]] if len(order) else np.zeros(0, bool)
        starts, run_of = _group_starts(new)
        indices = np.flatnonzero((leading[order] != 0) & ~self._failed[order])
        run, own = run_of[indices], self._rank[order[indices]]
        # Where risks are all different, only the case itself is of equal risk.
        tied_risks = len(starts) - 1 < len(order)
        ends = [starts[run], starts[run + 1]] if tied_risks else [starts[run]]
        counts = _count_higher(rank, own, ends)
        below, ties = counts[0], counts[-1] - counts[0]
        weight = leading[order[indices]]
        later = np.cumsum(np.bincount(self._rank)[::-1])[::-1] if len(order) else np.zeros(0, np.int64)
        after = np.r_[later[1:], 0][self._rank] if len(order) else later
        concordant, tied, every = float(weight @ below), float(weight @ ties), float(leading @ after)
        value = (concordant + tied / 2) / every if every > 0 else math.nan
        numbers = (value, concordant, every - concordant - tied, tied)
        return Concordance(*(np.full(shape, number) for number in numbers))


def _count_higher(rank: npt.NDArray[np.int32], own: Ints, ends: list[Ints]) -> list[Ints]:
    """Counts higher ranks among the first `ends`, for `own`.

    Of ranks that share the higher bits and have a 0 where `own` has one, those with a 1 are higher. `begin` is where
    ranks of each prefix begin, `passed` what lies before them and must not count.
    """
    counts = [np.zeros(len(own), np.int64) for _ in ends]
    begin, passed = np.zeros(1, np.int64), np.zeros(1, np.int64)
    before = np.zeros(len(rank) + 1, np.int64)
    for bit in range(int(rank.max(initial=0)).bit_length() - 1, -1, -1):
        has_bit = (rank & (1 << bit)) != 0
        np.cumsum(has_bit, out=before[1:])
        shift = len(rank) - before[-1]
        high = own >> bit & 1
        zero = 1 - high
        for index, end in enumerate(ends):
            ones_before = before.take(end)
            counts[index] += ones_before * zero
            ends[index] = zero * (end - ones_before) + high * (shift + ones_before)  # a third of the time of np.where
        ones_before = before[begin]
        begin = np.stack([begin - ones_before, shift + ones_before], 1).ravel()
        passed = np.stack([passed + ones_before, passed], 1).ravel()
        rank = np.concatenate(
            [rank.compress(~has_bit), rank.compress(has_bit)]
        )  # indexing by bools takes seven times as long
    return [count - passed[own] for count in counts]


def _group_starts(new: Bools) -> tuple[Ints, Ints]:
    """Group starts with final end, and each place's group."""
    return np.r_[np.flatnonzero(new), len(new)], np.cumsum(new) - 1


def harrell(times: npt.ArrayLike, events: npt.ArrayLike, risks: npt.ArrayLike) -> Concordance:
    """Returns Harrell's C: concordant share of comparable pairs.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored.
        risks: (case,) higher is worse; NaN of a case that failed.

    Source: Harrell et al., JAMA 247, 1982. scikit-survival's `concordance_index_censored`, which takes risks within
    1e-8 for tied, and lifelines' `concordance_index` of the negative risks.
    """
    pairs = Pairs(times, events, risks)
    return pairs.count(np.ones(len(pairs.times)))


def uno(times: npt.ArrayLike, events: npt.ArrayLike, risks: npt.ArrayLike, tau: float = math.inf) -> Concordance:
    """Returns Uno's C: Harrell's pairs weighted by 1 / G(t)^2.

    G is the share that is not censored yet, estimated in the same cases. Unlike Harrell's it does not depend on how
    long cases were followed, as far as that has nothing to do with their risk.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored.
        risks: (case,) higher is worse; NaN of a case that failed.
        tau: events at this time or later lead no pair.

    Source: Uno et al., Statistics in Medicine 30, 2011; scikit-survival's `concordance_index_ipcw`.
    """
    pairs = Pairs(times, events, risks)
    once = np.ones(len(pairs.times))
    return pairs.count(once, uno_weights(pairs, once, tau))


def uno_weights(pairs: Pairs, weights: Floats, tau: float = math.inf) -> Floats:
    """Returns 1 / G(t)^2 of events before tau, else 0, (..., case)."""
    reached = censoring_curve(pairs.times, pairs.events, weights).at(pairs.times)
    counts = pairs.events & (pairs.times < tau) & (reached > 0)
    return np.divide(1, reached**2, out=np.zeros_like(reached), where=counts)

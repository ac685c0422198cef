"""BLEU of counts: what each answer adds to a test set's, and the value of such sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics._texts_overlap import ORDERS
from medimg_eval.metrics.registry import Rows

_TINY, _SMALL = 1e-15, 1e-9
"""What pycocoevalcap adds to matches and to n-grams, so that nothing is divided by 0."""

Real = npt.NDArray[np.float64]


def order_of(name: str, n: float) -> int:
    """Returns n of a metric as a whole number; raises UsageError for any but 1, 2, 3 and 4."""
    if n not in range(1, ORDERS + 1):
        raise UsageError(f"Expected n of metric {name!r} to be 1, 2, 3 or 4, as in '{name}@4', got {n:g}")
    return int(n)


def evidence_of(name: str) -> tuple[str, ...]:
    """Returns the names of the metrics that leave the counts of a BLEU."""
    return (*(f"{name}_matches@{n}" for n in range(1, ORDERS + 1)), f"{name}_words", f"{name}_due")


def pieces_of(name: str, evidence: str = "") -> Callable[[Rows, float], Real]:
    """Returns what tells for each row of a BLEU's evidence what it adds.

    By n: the n-grams that match; by n: the n-grams that were said; last the words of the right text.

    Args:
        name: of the BLEU.
        evidence: of the one whose counts it rests on, if it is another's.
    """

    def pieces(rows: Rows, n: float) -> Real:
        order = order_of(name, n)
        made = np.zeros((rows.value.size, 2 * order + 1))
        values = np.nan_to_num(rows.value)
        for length, need in enumerate(evidence_of(evidence or name)[:order]):
            own = rows.metric == need
            made[own, length] = values[own]
        *_, words, due = evidence_of(evidence or name)
        own = rows.metric == words
        made[own, order:-1] = np.maximum(0, values[own, None] - np.arange(order))
        own = rows.metric == due
        made[own, -1] = values[own]
        return made

    return pieces


def lengths_of(evidence: str, words: str) -> Callable[[Rows, float], str]:
    """Returns what tells of a BLEU's evidence how long answers are: no score of words means much without it.

    Args:
        evidence: the BLEU.
        words: what its words are.
    """

    def remark(rows: Rows, n: float) -> str:
        said, due = (rows.of(need).value for need in evidence_of(evidence)[-2:])
        ratios = said[due > 0] / due[due > 0]
        if not ratios.size:
            return ""
        lower, median, upper = np.percentile(ratios, [25, 50, 75]).tolist()
        return f"{words} for each one of the right text: median {median:.2f}, quartiles {lower:.2f} and {upper:.2f}"

    return remark


def _apart(sums: Real, order: int) -> tuple[Real, Real, Real]:
    """Returns matches and n-grams said, (..., n), and the words of the right text, (...)."""
    return sums[..., :order], sums[..., order:-1], sums[..., -1]


def _brevity(said: Real, due: Real) -> Real:
    """Returns exp(1 - r / c) where c words were said for r that were due, 1 where more were; 0 for none."""
    words = said[..., 0]
    shorter = 1 - due / np.where(words > 0, words, np.inf)
    return np.where(words > 0, np.exp(np.minimum(0, np.where(words > 0, shorter, 0))), 0.0)


def _mean(shares: Real) -> Real:
    """Returns the geometric mean over the last axis; 0 where a share is 0."""
    with np.errstate(divide="ignore"):
        logs: Real = np.log(shares).mean(axis=-1)
    return np.exp(logs)


def _judged(values: Real, due: Real) -> Real:
    return np.where(due > 0, values, math.nan)


def bleu_coco(sums: Real, order: int) -> Real:
    """Returns BLEU of sums of counts, as pycocoevalcap: where no n-gram matches, a share is tiny instead of 0."""
    matches, said, due = _apart(sums, order)
    shares = np.where(matches > 0, matches / np.maximum(said, 1), _TINY / (said + _SMALL))
    return _judged(_mean(shares) * _brevity(said, due), due)


def bleu_plain(sums: Real, order: int) -> Real:
    """Returns BLEU of sums of counts, 0 where no n-gram of some length matches."""
    matches, said, due = _apart(sums, order)
    return _judged(_mean(matches / np.maximum(said, 1)) * _brevity(said, due), due)


def bleu_exp(sums: Real, order: int) -> Real:
    """Returns BLEU of sums of counts, as sacreBLEU smoothes: the k-th length without a match counts 1 / 2^k matches.

    0 where nothing matches, and where the texts are too short for n-grams of some length.
    """
    matches, said, due = _apart(sums, order)
    lacking = np.cumsum(matches == 0, axis=-1)
    shares = np.where(matches > 0, matches, 0.5**lacking) / np.maximum(said, 1)
    known = (matches > 0).any(axis=-1) & (said > 0).all(axis=-1)
    return _judged(np.where(known, _mean(shares) * _brevity(said, due), 0.0), due)


def bleu_of(matches: Sequence[int], said: Sequence[int], due: int) -> float:
    """Returns BLEU of what was counted, of one text or summed over many.

    The geometric mean of the shares of n-grams that match, times exp(1 - r / c) where the c words said are fewer than
    the r words of the references. No smoothing: 0 where no n-gram of some length matches.

    Args:
        matches: by n from 1: n-grams that match, clipped.
        said: by n from 1: n-grams that were said.
        due: words of the references.
    """
    if not all(matches):
        return 0.0
    mean = sum(math.log(match / total) for match, total in zip(matches, said, strict=True)) / len(said)
    return math.exp(mean + min(0.0, 1 - due / said[0]))

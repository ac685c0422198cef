"""Sampling agreement: how far several answers to one question mean the same, as semantic entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def cluster_meanings(answers: Sequence[str], alike: Callable[[str, str], bool]) -> list[int]:
    """Clusters answers by meaning: mutual entailment with a first answer.

    Each joins the first cluster whose first answer it implies and is implied by.

    Args:
        answers: of one question.
        alike: whether the first of two texts implies the second, as a judge or a network of entailment says; it is
            asked both ways, at most once for each pair, and never about equal texts.

    Returns:
        The number of the cluster of each answer, from 0 in the order in which they occur.

    >>> cluster_meanings(["left", "on the left", "right"], lambda first, second: first[-4:] == second[-4:])
    [0, 0, 1]

    Source: Farquhar et al., Nature 2024, doi 10.1038/s41586-024-07421-0.
    """
    firsts: list[str] = []
    clusters: list[int] = []
    for answer in answers:
        for number, first in enumerate(firsts):
            if answer == first or (alike(answer, first) and alike(first, answer)):
                clusters.append(number)
                break
        else:
            clusters.append(len(firsts))
            firsts.append(answer)
    return clusters


def semantic_entropy(clusters: Sequence[int], log_likelihoods: npt.ArrayLike | None = None) -> float:
    """Semantic entropy: the entropy of the probability of each meaning, in nats.

    Args:
        clusters: the meaning of each sampled answer, as `cluster_meanings` numbers them.
        log_likelihoods: of each answer; the probability of a meaning is then the sum of its answers' likelihoods over
            those of all. Without, it is the meaning's share of the answers (discrete semantic entropy).

    Raises:
        ValueError: there is no answer, or a likelihood is lacking or not finite.

    >>> round(semantic_entropy([0, 0, 1, 1]), 4)  # two meanings alike often: log 2
    0.6931
    """
    names = np.asarray(clusters, dtype=np.int64)
    logs = np.zeros(names.size) if log_likelihoods is None else np.asarray(log_likelihoods, dtype=np.float64)
    if not names.size or logs.shape != names.shape or not np.isfinite(logs).all():
        raise ValueError(
            f"log_likelihoods is invalid: expected a finite number for each of {names.size} answers, got {logs}"
        )
    weights = np.exp(logs - logs.max())
    shares = np.bincount(names, weights / weights.sum())
    shares = shares[shares > 0] / shares.sum()  # so that one meaning alone has a share of exactly 1
    return max(float(-(shares @ np.log(shares))), 0.0)


def semantic_confidence(clusters: Sequence[int], log_likelihoods: npt.ArrayLike | None = None) -> float:
    """Returns semantic confidence: 1 - semantic entropy / log n.

    There are n answers. In [0, 1]: 1 where all have the same meaning.

    >>> semantic_confidence([0, 0, 0]), round(semantic_confidence([0, 1, 2]), 6)
    (1.0, 0.0)

    Raises:
        ValueError: there are fewer than two answers, or as `semantic_entropy` does.
    """
    if len(clusters) < 2:
        raise ValueError(f"clusters is invalid: expected those of two answers or more, got {list(clusters)}")
    return float(np.clip(1 - semantic_entropy(clusters, log_likelihoods) / math.log(len(clusters)), 0, 1))

"""Retrieval between images and reports: how far down the right one comes in a ranking of the whole set.

Every image is compared with all reports, and every report with all images, by the cosine of the vectors that a model
gives them. What is found is the best placed of the right ones: a report that occurs more than once is right for all
images that have it, and those images are all right for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.registry import ScoreTable, metric, summary

Ranks = npt.NDArray[np.int64]

ALIKE = 1e-6
"""Cosines that are no further apart are equal: what float32 vectors of the same picture differ by."""

HELD = 1 << 22
"""Similarities that are held at once: 32 MiB."""

SOURCE = "Karpathy and Fei-Fei, CVPR 2015"


class Placed(NamedTuple):
    """Where the right ones of one pair come.

    Attributes:
        report: rank of its report, or one that is the same, among all reports when its image asks; from 1.
        image: rank of its image, or one of the same report, among all images when its report asks; from 1.
        gallery: pairs there are.
    """

    report: int
    image: int
    gallery: int


def same_reports(reports: Sequence[str]) -> Ranks:
    """Numbers reports, (report,), alike where equal but for case and spacing."""
    numbers: dict[str, int] = {}
    plain = (" ".join(report.split()).casefold() for report in reports)
    return np.array([numbers.setdefault(text, len(numbers)) for text in plain], dtype=np.int64)


def retrieval_ranks(queries: npt.ArrayLike, gallery: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> Ranks:
    """Returns the rank of the best right item for each query, from 1.

    It is 1 and the number of wrong items that are at least as similar, so that a model that finds all alike is worth
    no more than a wrong one. Right items do not push each other down.

    Args:
        queries: float, (item, feature): a vector for each query.
        gallery: float, (item, feature): of what is searched; the item of the same number is right.
        groups: int, (item,): items that share a number are right for each other; by default none do.

    Returns:
        int64, (item,), 1 to the number of items less those of the same group, plus 1.

    Raises:
        UsageError: The arrays are not of one shape, or hold a vector without a direction (zeros, NaN).
    """
    query_vectors, searched = _unit_vectors(queries, "queries"), _unit_vectors(gallery, "gallery")
    group_numbers = np.arange(len(query_vectors)) if groups is None else np.asarray(groups)
    if query_vectors.shape != searched.shape or group_numbers.shape != query_vectors.shape[:1]:
        raise UsageError(
            f"Expected queries and gallery of one shape (item, feature) and groups (item,), got {query_vectors.shape}, "
            f"{searched.shape} and {group_numbers.shape}"
        )
    ranks = np.ones(len(query_vectors), dtype=np.int64)
    step = max(1, HELD // max(1, len(searched)))
    for start in range(0, len(query_vectors), step):
        similarity = query_vectors[start : start + step] @ searched.T
        right = group_numbers[start : start + step, None] == group_numbers[None, :]
        best = np.where(right, similarity, -np.inf).max(axis=1, keepdims=True)
        ranks[start : start + step] += ((similarity >= best - ALIKE) & ~right).sum(axis=1)
    return ranks


def retrieval_places(images: npt.ArrayLike, reports: npt.ArrayLike, texts: Sequence[str]) -> list[Placed]:
    """Returns ranks of matches for all image-report pairs, both directions.

    `images` and `reports` are (pair, feature). Some of the texts of the reports may be equal.

    Raises:
        UsageError: As `retrieval_ranks` does.
    """
    groups = same_reports(texts)
    report_ranks, image_ranks = retrieval_ranks(images, reports, groups), retrieval_ranks(reports, images, groups)
    return [Placed(*pair, len(texts)) for pair in zip(report_ranks.tolist(), image_ranks.tolist(), strict=True)]


def _unit_vectors(vectors: npt.ArrayLike, what: str) -> npt.NDArray[np.float64]:
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2:
        raise UsageError(f"Expected {what} to be (item, feature), got an array of shape {rows.shape}")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    odd = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
    if odd.size:
        raise UsageError(f"Expected vectors with a direction, got zeros or NaN in row {odd[0]} of {what}")
    unit: npt.NDArray[np.float64] = rows / lengths
    return unit


_retrieval = partial(
    metric,
    kind="retrieval",
    scope="set",
    source=SOURCE,
    settings="cosine; equal reports are all right; a wrong one that is as similar comes first",
)


_share = partial(_retrieval, higher_is_better=True, best=1.0, worst=0.0, value_kind="proportion")


@_share(title="Image to report, R", parameter="k")
def i2t_recall(placed: Placed, k: float) -> float:
    """Whether the report of an image is among the k reports of the set that are most similar to the image."""
    return float(placed.report <= _whole_number("i2t_recall", k))


@_share(title="Report to image, R", parameter="k")
def t2i_recall(placed: Placed, k: float) -> float:
    """Whether the image of a report is among the k images of the set that are most similar to the report."""
    return float(placed.image <= _whole_number("t2i_recall", k))


@_retrieval(title="Image to report, MRR", higher_is_better=True, best=1.0, worst=0.0)
def i2t_mrr(placed: Placed) -> float:
    """One over the rank of the report of an image among all reports of the set.

    Its mean is the mean reciprocal rank. In (0, 1]; 0 for an image that could not be compared.
    """
    return 1 / placed.report


@_retrieval(title="Report to image, MRR", higher_is_better=True, best=1.0, worst=0.0)
def t2i_mrr(placed: Placed) -> float:
    """One over the rank of the image of a report among all images of the set.

    Its mean is the mean reciprocal rank. In (0, 1]; 0 for a report that could not be compared.
    """
    return 1 / placed.image


@_retrieval(title="Image to report, rank", higher_is_better=False, best=1.0, worst=float("nan"), value_kind="count")
def i2t_rank(placed: Placed) -> float:
    """The rank of the report of an image among all reports of the set.

    An image that could not be compared has the last rank.
    """
    return float(placed.report)


@_retrieval(title="Report to image, rank", higher_is_better=False, best=1.0, worst=float("nan"), value_kind="count")
def t2i_rank(placed: Placed) -> float:
    """The rank of the image of a report among all images of the set.

    A report that could not be compared has the last rank.
    """
    return float(placed.image)


@summary(needs=("i2t_rank",), title="Image to report, median rank", higher_is_better=False, best=1.0, source=SOURCE)
def i2t_median_rank(rows: ScoreTable) -> float:
    """The median of the ranks of reports, of all images of the set."""
    return _known_median(rows)


@summary(needs=("t2i_rank",), title="Report to image, median rank", higher_is_better=False, best=1.0, source=SOURCE)
def t2i_median_rank(rows: ScoreTable) -> float:
    """The median of the ranks of images, of all reports of the set."""
    return _known_median(rows)


def _known_median(rows: ScoreTable) -> float:
    defined = rows.value[~np.isnan(rows.value)]
    return float(np.median(defined)) if defined.size else float("nan")


def _whole_number(name: str, k: float) -> int:
    if k < 1 or k != int(k):
        raise UsageError(f"Expected k of metric {name!r} to be a whole number from 1, as in '{name}@5', got {k:g}")
    return int(k)

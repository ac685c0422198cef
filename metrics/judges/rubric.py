"""Rubrics: criteria with points that a judge finds met or not, as HealthBench scores answers."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import share_summary
from medimg_eval.metrics.judges.verdicts import replies_in, verdict_reader
from medimg_eval.metrics.registry import ScoreTable, judge_says, metric, summary

HEALTHBENCH = "HealthBench (Arora et al. 2025, github.com/openai/simple-evals)"

_MET = re.compile(r'"criteria_met"\s*:\s*(true|false)', re.IGNORECASE)
_share = partial(
    metric, kind="answer", higher_is_better=True, best=1.0, source=HEALTHBENCH, requires=judge_says("rubric")
)


def rubric_score(points: Sequence[float], met: Sequence[bool]) -> float:
    """Returns the rubric score: points met over positive points.

    The points met include negative ones. NaN where no criterion has positive points; below 0 where more was
    done wrong than right.

    >>> rubric_score([5, 3, -4], [True, False, True])
    0.125
    """
    best = math.fsum(point for point in points if point > 0)
    return math.fsum(point for point, yes in zip(points, met, strict=True) if yes) / best if best else math.nan


def balanced_agreement(predicted: Sequence[bool], labels: Sequence[Sequence[bool]]) -> float:
    """Returns a judge's balanced F1 against physicians' labels.

    It is that of HealthBench's meta-evaluation. Each physician's label counts: the mean of the F1 of criteria that are
    met and of those that are not. NaN where one of the two never occurs.

    >>> round(balanced_agreement([True, True, False], [[True], [False, True], [False, False]]), 3)
    0.8
    """
    pairs = [
        (predicted_class, label)
        for predicted_class, rater_labels in zip(predicted, labels, strict=True)
        for label in rater_labels
    ]
    scores = []
    for kind in (True, False):
        both = sum(predicted_class == label == kind for predicted_class, label in pairs)
        count = sum(predicted_class == kind for predicted_class, _ in pairs) + sum(label == kind for _, label in pairs)
        scores.append(2 * both / count if count else math.nan)
    return sum(scores) / 2


@verdict_reader("criterion_met")
def read_criterion_met(reply: str) -> float | None:
    """Returns 1 where a reply says that a criterion is met, 0 where it says not; None where it says neither."""
    matches = _MET.findall(reply)
    if matches:
        return float(matches[-1].lower() == "true")
    try:
        stated = json.loads(reply.strip().removeprefix("```json").strip("` \n")).get("criteria_met")
    except (ValueError, AttributeError):
        return None
    return float(stated) if isinstance(stated, bool) else None


def _met_criteria(pair: AnsweredQuestion) -> tuple[list[Mapping[str, Any]], list[bool]] | None:
    """Returns criteria and which are met; undecided are not."""
    rubric, verdict = pair.more.get("rubric"), pair.judged.get("rubric")
    if not isinstance(rubric, Sequence) or isinstance(rubric, str) or verdict is None:
        return None
    if isinstance(verdict, int | float):  # of a case that failed: nothing is met
        return None if math.isnan(verdict) else (list(rubric), [False] * len(rubric))
    return list(rubric), [value == 1.0 for value in replies_in(verdict)]


@_share(title="Rubric", worst=0.0)
def rubric_points(pair: AnsweredQuestion) -> float:
    """The points of criteria that the judge finds met, negative ones included, over all positive ones.

    Not cut off at 0; a criterion that the judge leaves undecided is not met.
    """
    criteria = _met_criteria(pair)
    return (
        math.nan if criteria is None else rubric_score([criterion["points"] for criterion in criteria[0]], criteria[1])
    )


@_share(title="Rubric, by tag", worst=math.nan, optional=True)
def rubric_tags(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The same of the criteria with each tag, such as axis:accuracy; without tags that have no positive points."""
    criteria = _met_criteria(pair)
    if criteria is None:
        return {"all": math.nan}
    by_tag: dict[str, tuple[list[float], list[bool]]] = defaultdict(lambda: ([], []))
    for criterion, met in zip(*criteria, strict=True):
        for tag in criterion.get("tags") or ():
            by_tag[str(tag)][0].append(criterion["points"])
            by_tag[str(tag)][1].append(met)
    scores = {tag: rubric_score(*parts) for tag, parts in by_tag.items()}
    return {tag: score for tag, score in scores.items() if not math.isnan(score)} or {"all": math.nan}


@metric(
    kind="answer", title="Physicians' labels, counted", higher_is_better=None, best=math.nan, worst=math.nan,
    optional=True, value_kind="count", source=HEALTHBENCH,
)  # fmt: skip
def physician_labels(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The number of physicians' labels beside what the model says of a criterion, by family of criteria.

    The key holds `labels`, one of each physician, and may hold `family`. A reply that holds no verdict counts as not
    met, as in the authors' program.
    """
    labels = pair.more.get("labels")
    if not isinstance(labels, Sequence) or isinstance(labels, str) or not labels:
        return {"all": math.nan}
    is_met, family = bool(read_criterion_met(pair.output)), str(pair.more.get("family", ""))
    counts = dict.fromkeys(_SIDES, 0.0)
    for label in labels:
        counts[
            "met, both" if is_met and label else "met, said" if is_met else "met, due" if label else "met, neither"
        ] += 1
    return {f"{family}: {name}": count for name, count in counts.items()}


_SIDES = ("met, both", "met, said", "met, due", "met, neither")


def _by_family(rows: ScoreTable) -> Floats:
    """Counts of each family side by side: (row, family x 4)."""
    families = sorted({str(label).rpartition(": ")[0] for label in rows.label if ": " in str(label)})
    names = [f"{family}: {side}" for family in families for side in _SIDES]
    if not names:
        return np.zeros((len(rows.label), 4))
    return np.stack([np.nan_to_num(rows.value) * (rows.label == name) for name in names], axis=1)


@share_summary(needs=("physician_labels",), title="Agreement with physicians", source=HEALTHBENCH, pieces=_by_family)
def physician_agreement(sums: Floats) -> Floats:
    """The balanced F1 of a model that judges beside each physician's label, as the mean over families of criteria.

    Of a family the mean of the F1 of criteria that are met and of those that are not; families in which one of the two
    never occurs are left out.
    """
    both, judge_met, due, neither = np.moveaxis(sums.reshape((*sums.shape[:-1], -1, 4)), -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        met, unmet = 2 * both / (2 * both + judge_met + due), 2 * neither / (2 * neither + judge_met + due)
        balanced = (met + unmet) / 2
        is_known = ~np.isnan(balanced)
        means: Floats = np.where(is_known, balanced, 0).sum(-1) / is_known.sum(-1)
    return means


@summary(
    needs=("rubric_points",), title="Rubric, cut at 0 and 1", higher_is_better=True, best=1.0, source=HEALTHBENCH,
    pieces=lambda rows: np.stack([np.nan_to_num(rows.value), (~np.isnan(rows.value)).astype(float)], axis=1),
)  # fmt: skip
def rubric_total(sums: Floats) -> Floats:
    """The mean of `rubric_points` over cases, cut off below 0 and above 1, as HealthBench reports it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Floats = np.clip(sums[..., 0] / sums[..., 1], 0.0, 1.0)
    return means

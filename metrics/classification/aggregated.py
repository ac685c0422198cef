"""Classes of a patient or a study, put together from those of its images; predictive values at a stated prevalence."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.classification.curves import ABSENT, CLASSES, EXCLUSIVE, PRESENT, averaged, counts, decided
from medimg_eval.metrics.declarations import share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed, parse
from medimg_eval.metrics.weighing import OfRows

RULES = ("mean", "max", "vote")
_RANKED = re.compile(r"max(\d+)")
"""Such as max3, the third largest: above 0.5 where at least three images are."""

PATIENT = "patient"
"""The attribute that every row has: what intervals resample."""


def _split_parameter(parameter: str) -> tuple[str, str, str]:
    """Rule, attribute and metric of a parameter; raises UsageError."""
    how, colon, name = parameter.partition(":")
    rule, dash, attribute = how.partition("-")
    if not (rule in RULES or _rule_rank(rule) > 0) or not dash or not attribute or not colon:
        raise UsageError(
            f"{parameter!r} needs a rule ({', '.join(RULES)}, max3), an attribute and a metric, such as "
            "'mean-patient:auroc@macro'"
        )
    definition = parse(name)[0]
    if "probability" not in definition.needs or definition.name == "aggregated":
        raise UsageError(
            f"{parameter!r}: {name!r} is not computed from probabilities of classes; name one such as auroc"
        )
    return rule, attribute, name


@share_summary(
    title="Aggregated",
    needs=("probability",),
    at_once=True,
    parameter="RULE-ATTRIBUTE:METRIC, such as mean-patient:auroc@macro",
    parameter_is_text=True,
    check=_split_parameter,
    source="mean, largest, or majority of images",
)
def aggregated(rows: ScoreTable, parameter: str) -> Weighed:
    """A summary of classes of whole patients, studies or any other group of cases, instead of single images.

    The probability of a group is by the rule the mean of its cases, the largest, the k-th largest (`max3`: three images
    must agree; 0 of fewer), or the share of cases whose answer it is (`vote`). A class is present in a group where it
    is in any of its cases. Where classes exclude each other, and the cases of a group do not agree on theirs, only
    `max` and its like are defined. No group may hold cases of several patients.

    Raises:
        ValueError: the cases of a group belong to different classes.
    """
    rule, attribute, name = _split_parameter(parameter)
    if attribute not in rows.attributes:
        return lambda times: np.full(len(times), math.nan)
    indices = np.flatnonzero(np.isin(rows.status, (PRESENT, ABSENT)) & ~np.isnan(rows.value))
    groups, group = np.unique(rows.attributes[attribute][indices], return_inverse=True)
    labels, label = np.unique(rows.label[indices], return_inverse=True)
    keys, first, owner = np.unique(group * len(labels) + label, return_index=True, return_inverse=True)
    value = (decided(rows) if rule == "vote" else rows.value)[indices]
    if rank := _rule_rank(rule):
        together = _ranked_values(value, owner, len(keys), rank)
    else:
        together = np.bincount(owner, weights=value) / np.bincount(owner)
    present = np.bincount(owner, weights=rows.status[indices] == PRESENT) > 0
    if rows.facts.get(CLASSES) == EXCLUSIVE and not rank:
        several = np.bincount(keys // len(labels), weights=present) > 1
        if several.any():
            raise ValueError(
                f"{int(several.sum())} groups by {attribute!r} hold cases of several classes, such as "
                f"{str(groups[int(np.argmax(several))])!r}; aggregate by max, or by an attribute of one class"
            )
    table = ScoreTable(
        case=(keys // len(labels)).astype(np.int64),
        metric=np.full(len(keys), "probability"),
        label=labels[keys % len(labels)],
        value=together,
        status=np.where(present, PRESENT, ABSENT),
        attributes={},
        cases=len(groups),
        facts=rows.facts,
    )
    return OfRows(indices[first], _judge_table(table, name))


def _rule_rank(rule: str) -> int:
    """Returns a rule's rank among the largest; 0 for none."""
    match = _RANKED.fullmatch(rule)
    return 1 if rule == "max" else int(match[1]) if match else 0


def _ranked_values(value: Floats, owner: Places, groups: int, rank: int) -> Floats:
    """Returns groups' values of a rank, descending; else 0."""
    order = np.lexsort((-value, owner))
    starts = np.searchsorted(owner[order], np.arange(groups))
    positions = starts + rank - 1
    there = positions < np.append(starts[1:], len(order))
    together = np.zeros(groups)
    together[there] = value[order][positions[there]]
    return together


def _judge_table(table: ScoreTable, name: str) -> Weighed:
    """Judge from row weights to a summary of a table."""
    definition, parameter = parse(name)
    arguments = () if parameter is None else (parameter,)
    if definition.weighed is not None and (judge := definition.weighed(table, *arguments)) is not None:
        return judge
    if definition.pieces is None or definition.total is None:
        raise UsageError(f"{name!r} cannot be aggregated")
    added, total = definition.pieces(table, *arguments), definition.total
    return lambda times: np.asarray(total(times @ added, *arguments), dtype=np.float64)


def _parse_prevalence(parameter: str) -> tuple[float, str]:
    """Prevalence and classes of a parameter; raises UsageError."""
    text, _, which = parameter.partition(":")
    try:
        prevalence = float(text)
    except ValueError:
        prevalence = math.nan
    if not 0 < prevalence < 1:
        raise UsageError(f"{parameter!r} needs a prevalence between 0 and 1 first, such as '0.05' or '0.05:edema'")
    return prevalence, which or "macro"


def _row_sums(rows: ScoreTable, parameter: str) -> Floats:
    return counts(rows, _parse_prevalence(parameter)[1])


_at_prevalence = partial(
    share_summary,
    needs=("probability",),
    parameter="prevalence, or PREVALENCE:WHICH",
    parameter_is_text=True,
    check=_parse_prevalence,
    pieces=_row_sums,
    source="Bayes' rule; Altman and Bland 1994",
)


@_at_prevalence(title="PPV at prevalence")
def ppv_at_prevalence(sums: Floats, parameter: str) -> Floats:
    """The positive predictive value that sensitivity and specificity give at a stated prevalence of the class.

    sens * p / (sens * p + (1 - spec) * (1 - p)). That of the test set holds for its own prevalence, which case-control
    samples choose. NaN of a class without positives or negatives, and where none is said to be present.
    """
    prevalence, which = _parse_prevalence(parameter)

    def score(cells: Floats) -> Floats:
        hits, invented, missed, absent = (cells[..., at, :] for at in range(4))
        right = quotient(hits, hits + missed) * prevalence
        return quotient(right, right + quotient(invented, invented + absent) * (1 - prevalence))

    return averaged(sums, which, score)


@_at_prevalence(title="NPV at prevalence")
def npv_at_prevalence(sums: Floats, parameter: str) -> Floats:
    """The negative predictive value that sensitivity and specificity give at a stated prevalence of the class.

    spec * (1 - p) / (spec * (1 - p) + (1 - sens) * p). As `ppv_at_prevalence`.
    """
    prevalence, which = _parse_prevalence(parameter)

    def score(cells: Floats) -> Floats:
        hits, invented, missed, absent = (cells[..., at, :] for at in range(4))
        right = quotient(absent, invented + absent) * (1 - prevalence)
        return quotient(right, right + quotient(missed, hits + missed) * prevalence)

    return averaged(sums, which, score)

"""Several right texts or answers: a model against readers, and each reader against the others, by one metric.

To be fair, a model and a reader are held against the same number of others: each reader is left out in turn, and both
the model and that reader are judged by those who are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.registry import metric, parse

if TYPE_CHECKING:
    from medimg_eval.metrics.answers import AnsweredQuestion

TEXTS = ("open", "report")
"""Kinds of questions whose metrics take several right answers at once."""


def _check_metric(name: str) -> None:
    definition, _ = parse(name)
    if definition.kind != "answer" or definition.requires or definition.name in ("against_readers", "among_readers"):
        raise UsageError(
            f"against_readers@{name} is invalid: expected a metric of answers that needs no other model, such as "
            f"against_readers@rouge_l, got one of kind {definition.kind}"
        )


_by_readers = partial(
    metric,
    kind="answer",
    source="leave one reader out, as Rajpurkar et al., EMNLP 2016, judge people",
    parameter="metric",
    parameter_is_text=True,
    check=_check_metric,
)


@_by_readers(title="Against readers", higher_is_better=True, best=1.0, worst=0.0)
def against_readers(pair: AnsweredQuestion, name: str) -> float:
    """A metric of an answer against all readers but one, the mean over readers that are left out.

    `against_readers@rouge_l`. NaN where there are fewer than two right answers.
    """
    return _mean_of_left_out(pair, name, readers=False)


@_by_readers(title="Readers among themselves", higher_is_better=None, best=math.nan, worst=math.nan)
def among_readers(pair: AnsweredQuestion, name: str) -> float:
    """A metric of each reader's answer against those of the others, the mean over readers: the band for models.

    `among_readers@rouge_l`, beside `against_readers@rouge_l`, which holds models against as many. NaN where there are
    fewer than two right answers.
    """
    return _mean_of_left_out(pair, name, readers=True)


def _mean_of_left_out(pair: AnsweredQuestion, name: str, *, readers: bool) -> float:
    truths = _reader_texts(pair)
    if len(truths) < 2:
        return math.nan
    definition, parameter = parse(name)
    values = []
    for left_out, other_truths in _left_out(truths):
        answer = replace(pair, output=left_out, outputs=(left_out,), preferences=None) if readers else pair
        # Texts are judged by all others at once, as a metric of several references has it; choices by each.
        for due in [other_truths] if pair.kind in TEXTS else other_truths:
            judged = replace(answer, value=due)
            result: Any = definition.function(judged) if parameter is None else definition.function(judged, parameter)
            values.append(float(np.mean(list(result.values()))) if isinstance(result, Mapping) else float(result))
    return float(np.mean(values))


def _reader_texts(pair: AnsweredQuestion) -> Sequence[str]:
    """Returns readers' texts: several right ones, or `readers`."""
    readers = pair.more.get("readers")
    if readers is not None:
        return [str(value) for value in readers]
    return list(pair.references) if pair.kind in TEXTS else []


def _left_out(truths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for number, left_out in enumerate(truths):
        yield left_out, [*truths[:number], *truths[number + 1 :]]

"""What a judge, another model, says of answers; the harness asks it, and keeps every word of its replies."""

from __future__ import annotations

import math
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, error_metric
from medimg_eval.metrics.judges.verdicts import replies_in
from medimg_eval.metrics.registry import ALL, judge_says

SOURCE = "the judge's prompt, as the benchmark's card names it"

_points = partial(answer_share, best=math.nan, source=SOURCE)


@_points(title="Judged", parameter="the question to the judge", parameter_is_text=True, requires=judge_says)
def judged(pair: AnsweredQuestion, question: str) -> float:
    """The judge's verdict on an answer, in the points of the benchmark's own scale.

    NaN where the judge was not asked, or where its reply says nothing that was asked for: such replies are no verdicts,
    and `judge_failures` counts them.
    """
    value = pair.judged.get(question)
    return float(value) if isinstance(value, int | float) else math.nan


@_points(title="Judged, sum", requires=judge_says(ALL))
def judged_total(pair: AnsweredQuestion) -> float:
    """The sum of the judge's verdicts on an answer over all its questions.

    NaN where one is missing.
    """
    values = list(pair.judged.values())
    if not values or not all(isinstance(value, int | float) for value in values):
        return math.nan
    return float(sum(values))


@error_metric(kind="answer", title="Judge failed", worst=1.0, source=SOURCE, requires=judge_says(ALL))
def judge_failures(pair: AnsweredQuestion) -> float:
    """The share of questions to the judge whose reply holds no verdict.

    A question that is put about each sentence or phrase counts once for each, and one that could not be put, because
    another before it holds no verdict, once. NaN where no judge was asked.
    """
    values = [value for verdict in pair.judged.values() for value in replies_in(verdict)]
    return sum(value is None for value in values) / len(values) if values else math.nan


@answer_share(
    title="Accuracy, judge as matcher",
    source="VLMEvalKit: a judge matches answers that no rule understands with an option, or with Z for none",
    requires=judge_says(ALL),
    value_kind="proportion",
)
def accuracy_matched(pair: AnsweredQuestion) -> float:
    """Whether the answer is right, where a judge has named the option of answers that no rule could take.

    1 or 0, or the expected value where a model has no preference; without a judge the same as `accuracy`. The judge's
    question is called `option`, and its verdict is a letter.
    """
    if pair.preferences is None and pair.extraction.value is None:
        return float(pair.judged.get("option") == pair.value)
    return pair.credit


@answer_share(
    title="Accuracy, open by judge",
    source="MedEvalKit: open answers are right where its judge says so, the others by rule",
    parameter="the question to the judge",
    parameter_is_text=True,
    requires=judge_says,
    value_kind="proportion",
)
def accuracy_or_judged(pair: AnsweredQuestion, question: str) -> float:
    """Whether the answer is right, by the judge's verdict (1 or 0) where it is a text and by rule elsewhere.

    NaN for texts that have no verdict.
    """
    return judged(pair, question) if pair.kind == "open" else pair.credit

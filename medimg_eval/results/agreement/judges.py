"""Whether a judge can stand in for people: its agreement with their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.metrics.agreement import intraclass_correlation
from medimg_eval.results.statistics import FEWEST, draws
from medimg_eval.results.table import Heading, Layout, Line, Sheet, Span, check_numbers, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.agreement.human_labels import Verdicts

    Array = npt.NDArray[Any]
    Judge = Callable[[Array, Array], float]

MOST_GRADES = 100
"""Whole numbers further apart than this are measurements, and no grades."""


class Measured(NamedTuple):
    """One number on one judge and question.

    Attributes:
        value: NaN where it is undefined.
        low: Lower bound of its interval; NaN below `FEWEST` cases, and where most resamples have no value.
        high: Upper bound.
        dropped: Resamples without a value, left out of the interval.
    """

    value: float
    low: float
    high: float
    dropped: int


def judge_agreement(
    verdicts: Sequence[Verdicts], title: str, *, resamples: int = 1_000, level: float = 0.95, seed: int = 0
) -> Sheet:
    """Returns the table of how well judges agree with people: one row per question and judge.

    Unparsed is the share of verdicts that could not be understood. Agreement is the share of labels that the verdict
    equals; a verdict that was not understood disagrees. All others leave such verdicts out: Cohen's kappa, and of
    grades (whole numbers) with linear and quadratic weights; ICC(2,1), Pearson's and Spearman's correlation of numbers;
    the area under the ROC curve where labels are binary and verdicts numbers. What does not apply is left out.

    Args:
        verdicts: As `read_verdicts` returns them.
        title: What is judged.
        resamples: Number of bootstrap resamples, of cases.
        level: Coverage of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        UsageError: If a number of the bootstrap cannot be meant.
    """
    check_numbers(resamples, level, seed)
    measured = [_measured(one, resamples=resamples, level=level, seed=seed) for one in verdicts]
    names = [name for name in _TITLES if any(name in found for found in measured)]
    content = Layout(
        groups=[(one_line(f"{title}: judges against people"), len(names) + 1)],
        headings=[Heading("", "n", ""), *(Heading("", _TITLES[name], "") for name in names)],
        lines=[
            Line(
                [one_line(one.question), one_line(one.judge)],
                [[Span(f"{len(one.case):,}")], *(_spans(found.get(name)) for name in names)],
            )
            for one, found in zip(verdicts, measured, strict=True)
        ],
        footnotes=[one_line(note) for note in _notes(verdicts, measured, resamples, level, seed)],
        stubs=["Question", "Judge"],
        caption=one_line(f"Agreement of judges with people on {title}"),
    )
    return Sheet(content, _frame(verdicts, measured))


_TITLES = {
    "unparsed": "Unparsed",
    "agreement": "Agreement",
    "kappa": "Kappa",
    "kappa_linear": "Kappa (linear)",
    "kappa_quadratic": "Kappa (quadratic)",
    "icc": "ICC(2,1)",
    "pearson": "Pearson r",
    "spearman": "Spearman r",
    "auroc": "AUROC",
}


def _measured(one: Verdicts, *, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    judges = _judges(one)
    whole = np.arange(len(one.case))
    values = {name: judge(whole) for name, judge in judges.items()}
    cases, owner = np.unique(one.case, return_inverse=True)
    members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    drawn: dict[str, list[float]] = {name: [] for name in judges}
    if len(cases) >= FEWEST:
        for some in draws(len(cases), resamples=resamples, seed=seed):
            for chosen in some:
                rows = np.concatenate([members[case] for case in chosen])
                for name, judge in judges.items():
                    drawn[name].append(judge(rows))
    return {name: _with_interval(values[name], np.array(drawn[name]), level) for name in judges}


def _with_interval(value: float, drawn: npt.NDArray[np.float64], level: float) -> Measured:
    known = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not known.size or known.size * 2 < drawn.size:
        return Measured(value, np.nan, np.nan, 0)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Measured(value, float(low), float(high), drawn.size - known.size)


def _judges(one: Verdicts) -> dict[str, Callable[[npt.NDArray[np.intp]], float]]:
    """Returns what can be computed of these verdicts: name -> what takes places of verdicts."""
    known, human, said = one.understood, one.human, one.said
    understood = _understood(one)
    binary = one.numeric and set(human.tolist()) <= {0.0, 1.0}
    scaled = binary and not set(said[known].tolist()) <= {0.0, 1.0}
    judges: dict[str, Callable[[npt.NDArray[np.intp]], float]] = {"unparsed": lambda at: float((~known[at]).mean())}
    if not scaled:
        judges["agreement"] = lambda at: float((known[at] & (human[at] == said[at])).mean())
        judges |= {name: understood(judge) for name, judge in _kappas(one, binary=binary).items()}
    if binary:
        judges["auroc"] = understood(_auroc)
    elif one.numeric:
        judges["icc"] = understood(lambda human, said: intraclass_correlation(np.column_stack([human, said])))
        judges |= {name: understood(_correlation(name)) for name in ("pearson", "spearman")}
    return judges


def _understood(one: Verdicts) -> Callable[[Judge], Callable[[npt.NDArray[np.intp]], float]]:
    """Returns what lets a function see only verdicts that were understood."""

    def on(judge: Judge) -> Callable[[npt.NDArray[np.intp]], float]:
        def call(at: npt.NDArray[np.intp]) -> float:
            at = at[one.understood[at]]
            return judge(one.human[at], one.said[at]) if len(at) else np.nan

        return call

    return on


def _kappas(one: Verdicts, *, binary: bool) -> Mapping[str, Judge]:
    """Returns Cohen's kappa, and with weights where there are more than two grades."""
    both = np.concatenate([one.human, one.said[one.understood]])
    if not one.numeric:
        return {"kappa": _kappa(np.unique(both), None)}
    if (both != np.round(both)).any() or np.ptp(both) > MOST_GRADES:
        return {}
    # Between grades that nobody gave there is a distance, too.
    grades = np.arange(both.min(), both.max() + 1)
    weights = {"kappa": None} if binary else {"kappa": None, "kappa_linear": "linear", "kappa_quadratic": "quadratic"}
    return {name: _kappa(grades, weight) for name, weight in weights.items()}


def _kappa(labels: Array, weights: str | None) -> Judge:
    from sklearn.metrics import cohen_kappa_score

    def judge(human: Array, said: Array) -> float:
        if len(np.unique(np.concatenate([human, said]))) < 2:
            return np.nan
        return float(cohen_kappa_score(human, said, labels=labels, weights=weights))

    return judge


def _auroc(human: Array, said: Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(human, said)) if len(np.unique(human)) == 2 else np.nan


def _correlation(name: str) -> Judge:
    from scipy.stats import pearsonr, spearmanr

    correlate = {"pearson": pearsonr, "spearman": spearmanr}[name]

    def judge(human: Array, said: Array) -> float:
        if len(human) < 2 or np.ptp(human) == 0 or np.ptp(said) == 0:
            return np.nan
        return float(correlate(human, said).statistic)

    return judge


def _spans(found: Measured | None) -> list[Span]:
    if found is None:
        return [Span("\N{EN DASH}", "quiet")]
    if np.isnan(found.value):
        return [Span("undefined", "quiet")]
    text = [Span(_text(found.value))]
    return text if np.isnan(found.low) else [*text, Span(f"[{_text(found.low)}, {_text(found.high)}]", "interval")]


def _text(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"


def _notes(
    verdicts: Sequence[Verdicts], measured: Sequence[Mapping[str, Measured]], resamples: int, level: float, seed: int
) -> Iterator[str]:
    yield (
        f"[{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of cases, seed {seed}; none of "
        f"fewer than {FEWEST}]; n: cases with a label and a verdict."
    )
    yield (
        "Unparsed: share of verdicts that could not be understood. Agreement: share of labels that the verdict equals, "
        "where one that was not understood disagrees; all other numbers leave those out."
    )
    if any("kappa_linear" in found for found in measured):
        yield "Kappa (linear), (quadratic): Cohen's kappa of grades, weighted by their distance and by its square."
    if any("auroc" in found and "agreement" not in found for found in measured):
        yield "\N{EN DASH}: verdicts on another scale than the labels cannot be equal to them; AUROC ranks them."
    for one, found in zip(verdicts, measured, strict=True):
        name = one_line(", ".join(part for part in (one.question, one.judge) if part))
        for count, what in ((one.unlabelled, "verdicts without a label"), (one.unjudged, "labels without a verdict")):
            if count:
                yield f"{name}: {count:,} {what} left out."
        dropped = {_TITLES[key]: value.dropped for key, value in found.items() if value.dropped}
        for title, number in dropped.items():
            yield f"{name}: {title} undefined on {number:,} resamples, left out of its interval."


def _frame(verdicts: Sequence[Verdicts], measured: Sequence[Mapping[str, Measured]]) -> pd.DataFrame:
    """Returns one row per question, judge and number."""
    records = [
        (one.question, one.judge, name, value.value, value.low, value.high, len(one.case))
        for one, found in zip(verdicts, measured, strict=True)
        for name, value in found.items()
    ]
    return pd.DataFrame.from_records(records, columns=["question", "judge", "statistic", "value", "low", "high", "n"])

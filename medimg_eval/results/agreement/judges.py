"""Whether a judge can stand in for people: its verdicts beside their labels, and how far the two agree."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics.agreement import intraclass_correlation
from medimg_eval.metrics.judges import joint_verdict
from medimg_eval.results.agreement.jury import estimate_spans, normalise_name, read_ballots_file
from medimg_eval.results.statistics import FEWEST, draws, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, check_numbers, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

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
    """Returns agreement of judges with people, per question and judge.

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
        UsageError: If a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    measured = [_measure_agreement(verdict, resamples=resamples, level=level, seed=seed) for verdict in verdicts]
    names = [name for name in _TITLES if any(name in values for values in measured)]
    lines = [
        Line(
            [verdict.question, verdict.judge],
            [[Span(f"{len(verdict.case):,}")], *(estimate_spans(values.get(name)) for name in names)],
        )
        for verdict, values in zip(verdicts, measured, strict=True)
    ]
    content = Layout.of_block(
        f"{title}: judges against people",
        ["n", *(_TITLES[name] for name in names)],
        lines,
        _agreement_notes(verdicts, measured, resamples, level, seed),
        ["Question", "Judge"],
        f"Agreement of judges with people on {title}",
    )
    return Sheet(content, _agreement_frame(verdicts, measured))


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


def _measure_agreement(one: Verdicts, *, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    judges = _list_statistics(one)
    all_cases = np.arange(len(one.case))
    values = {name: judge(all_cases) for name, judge in judges.items()}
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
    low, high = (np.nan, np.nan) if np.isnan(value) else quantiles(drawn, (1 - level) / 2, (1 + level) / 2)
    return Measured(value, low, high, 0 if np.isnan(low) else int(np.isnan(drawn).sum()))


def _list_statistics(one: Verdicts) -> dict[str, Callable[[npt.NDArray[np.intp]], float]]:
    """Returns computable statistics: name -> function of verdict indices."""
    is_understood, human, verdict_values = one.understood, one.human, one.said
    understood = _restrict_understood(one)
    binary = one.numeric and set(human.tolist()) <= {0.0, 1.0}
    scaled = binary and not set(verdict_values[is_understood].tolist()) <= {0.0, 1.0}
    judges: dict[str, Callable[[npt.NDArray[np.intp]], float]] = {
        "unparsed": lambda at: float((~is_understood[at]).mean())
    }
    if not scaled:
        judges["agreement"] = lambda at: float((is_understood[at] & (human[at] == verdict_values[at])).mean())
        judges |= {name: understood(judge) for name, judge in _kappa_statistics(one, binary=binary).items()}
    if binary:
        judges["auroc"] = understood(_human_auroc)
    elif one.numeric:
        judges["icc"] = understood(lambda human, said: intraclass_correlation(np.column_stack([human, said])))
        judges |= {name: understood(_make_correlation(name)) for name in ("pearson", "spearman")}
    return judges


def _restrict_understood(one: Verdicts) -> Callable[[Judge], Callable[[npt.NDArray[np.intp]], float]]:
    """Returns what lets a function see only verdicts that were understood."""

    def on(judge: Judge) -> Callable[[npt.NDArray[np.intp]], float]:
        def call(at: npt.NDArray[np.intp]) -> float:
            at = at[one.understood[at]]
            return judge(one.human[at], one.said[at]) if len(at) else np.nan

        return call

    return on


def _kappa_statistics(one: Verdicts, *, binary: bool) -> Mapping[str, Judge]:
    """Returns Cohen's kappa, and with weights where there are more than two grades."""
    both = np.concatenate([one.human, one.said[one.understood]])
    if not one.numeric:
        return {"kappa": _make_kappa(np.unique(both), None)}
    if (both != np.round(both)).any() or np.ptp(both) > MOST_GRADES:
        return {}
    # Between grades that nobody gave there is a distance, too.
    grades = np.arange(both.min(), both.max() + 1)
    weights = {"kappa": None} if binary else {"kappa": None, "kappa_linear": "linear", "kappa_quadratic": "quadratic"}
    return {name: _make_kappa(grades, weight) for name, weight in weights.items()}


def _make_kappa(labels: Array, weights: str | None) -> Judge:
    from sklearn.metrics import cohen_kappa_score

    def judge(human: Array, said: Array) -> float:
        if len(np.unique(np.concatenate([human, said]))) < 2:
            return np.nan
        return float(cohen_kappa_score(human, said, labels=labels, weights=weights))

    return judge


def _human_auroc(human: Array, said: Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(human, said)) if len(np.unique(human)) == 2 else np.nan


def _make_correlation(name: str) -> Judge:
    from scipy.stats import pearsonr, spearmanr

    correlate = {"pearson": pearsonr, "spearman": spearmanr}[name]

    def judge(human: Array, said: Array) -> float:
        if len(human) < 2 or np.ptp(human) == 0 or np.ptp(said) == 0:
            return np.nan
        return float(correlate(human, said).statistic)

    return judge


def _agreement_notes(
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
    if any("kappa_linear" in values for values in measured):
        yield "Kappa (linear), (quadratic): Cohen's kappa of grades, weighted by their distance and by its square."
    if any("auroc" in values and "agreement" not in values for values in measured):
        yield "\N{EN DASH}: verdicts on another scale than the labels cannot be equal to them; AUROC ranks them."
    for verdict, values in zip(verdicts, measured, strict=True):
        name = one_line(", ".join(part for part in (verdict.question, verdict.judge) if part))
        for count, what in (
            (verdict.unlabelled, "verdicts without a label"),
            (verdict.unjudged, "labels without a verdict"),
        ):
            if count:
                yield f"{name}: {count:,} {what} left out."
        dropped = {_TITLES[key]: value.dropped for key, value in values.items() if value.dropped}
        for title, number in dropped.items():
            yield f"{name}: {title} undefined on {number:,} resamples, left out of its interval."


def _agreement_frame(verdicts: Sequence[Verdicts], measured: Sequence[Mapping[str, Measured]]) -> pd.DataFrame:
    """Returns one row per question, judge and number."""
    records = [
        (verdict.question, verdict.judge, name, value.value, value.low, value.high, len(verdict.case))
        for verdict, values in zip(verdicts, measured, strict=True)
        for name, value in values.items()
    ]
    return pd.DataFrame.from_records(records, columns=["question", "judge", "statistic", "value", "low", "high", "n"])


_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


FILES = ("judgements-*.jsonl", "verdicts.jsonl")
"""Of a run, that hold verdicts: the first of former runs."""


class _Judged(NamedTuple):
    """One verdict."""

    question: str
    judge: str
    case: str
    value: Any
    """None where the judge's reply could not be understood."""


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Verdicts of a judge beside people's labels, on shared cases.

    Attributes:
        question: Name of the judge's question.
        judge: Its id.
        case: (verdict,): which case each is of.
        human: (verdict,): what people say; float, or str where labels are names.
        said: (verdict,): what the judge said, of the same type; anything where it was not understood.
        understood: (verdict,): False where the judge's reply could not be understood.
        unlabelled: Verdicts without a label, left out.
        unjudged: Labels without a verdict, left out.
    """

    question: str
    judge: str
    case: npt.NDArray[np.str_]
    human: npt.NDArray[Any]
    said: npt.NDArray[Any]
    understood: npt.NDArray[np.bool_]
    unlabelled: int = 0
    unjudged: int = 0

    @property
    def numeric(self) -> bool:
        """Whether both are numbers."""
        return self.human.dtype.kind == "f"


def read_verdicts(
    folder: str | Path, labels: str | Path, *, column: str = "human", judge: str | None = None
) -> list[Verdicts]:
    """Reads judges' verdicts of a run, with people's labels.

    Args:
        folder: The run's, with `verdicts.jsonl`; of several verdicts of one judge on one case the last counts.
        labels: A CSV file with the columns `case`, `question` (needed where judges were asked several) and the label.
            A label is a number, yes or no, true or false, or a name; empty ones are left out. Questions whose verdicts
            are more than that, such as lists of findings, are left out too.
        column: The column that holds the labels.
        judge: The judge's id; None takes all.

    Returns:
        One entry per question and judge that have a case in common with the labels, in the order of the run.

    Raises:
        UsageError: If there is no such judge or column, or it is not clear which question a label answers.
        UserError: If a file cannot be read, or the two have no case in common.
    """
    folder, labels = Path(folder), Path(labels)
    judged = _drop_texts(list(_read_judgements(folder)), folder)
    judges = dict.fromkeys(judgement.judge for judgement in judged)
    if judge is not None and judge not in judges:
        raise UsageError(f"{folder} has no verdicts of a judge {judge!r}{nearest(judge, judges)}")
    judged = (
        [judgement for judgement in judged if judge == judgement.judge] if judge else [*judged, *_jury_verdicts(judged)]
    )
    judges = dict.fromkeys(judgement.judge for judgement in judged)
    questions = dict.fromkeys(judgement.question for judgement in judged)
    human = _read_labels(labels, column, list(questions))
    verdicts = []
    for question in questions:
        for name in judges:
            verdict_of = {
                judgement.case: judgement.value
                for judgement in judged
                if (judgement.question, judgement.judge) == (question, name)
            }
            label_of = {case: label for (about, case), label in human.items() if about == question}
            if both := sorted(verdict_of.keys() & label_of.keys()):
                location = f"{labels} and judge {name}"
                sides = _align_verdicts(
                    [label_of[case] for case in both], [verdict_of[case] for case in both], location
                )
                unmatched = len(verdict_of) - len(both), len(label_of) - len(both)
                verdicts.append(Verdicts(question, name, np.array(both), *sides, *unmatched))
    if not verdicts:
        raise UserError(f"{labels} labels no case that {folder} has a verdict on; compare its `case` with the run's")
    return verdicts


def read_jury(folder: str | Path) -> list[Verdicts]:
    """Reads verdicts of a run for each pair of judges.

    The first of a pair stands where labels of people would, so verdicts of it that were not understood are left out.

    Raises:
        UserError: If a file cannot be read, or fewer than two judges were asked.
    """
    folder = Path(folder)
    judged = _drop_texts(list(_read_judgements(folder)), folder)
    by_judge: dict[tuple[str, str], dict[str, Any]] = {}
    for judgement in judged:
        by_judge.setdefault((judgement.question, judgement.judge), {})[judgement.case] = judgement.value
    verdicts = []
    for (question, first), (about, second) in combinations(by_judge, 2):
        first_verdicts, second_verdicts = by_judge[question, first], by_judge[about, second]
        both = sorted(
            case for case in first_verdicts.keys() & second_verdicts.keys() if first_verdicts[case] is not None
        )
        if question == about and both:
            sides = _align_verdicts(
                [str(first_verdicts[case]) for case in both],
                [second_verdicts[case] for case in both],
                f"{first} and {second}",
            )
            unmatched = len(second_verdicts) - len(both), len(first_verdicts) - len(both)
            verdicts.append(Verdicts(question, f"{second} beside {first}", np.array(both), *sides, *unmatched))
    if not verdicts:
        raise UserError(
            f"{folder} is invalid: expected verdicts of two judges on a case, got those of one; set human=FILE"
        )
    return verdicts


JURORS = 3
"""Judges of whom a median, or a majority, is more than one of them."""


def _jury_verdicts(judged: Sequence[_Judged]) -> Iterator[_Judged]:
    """Yields joint verdicts: median of numbers, majority name, else None."""
    votes: dict[tuple[str, str], list[Any]] = {}
    for judgement in judged:
        votes.setdefault((judgement.question, judgement.case), []).append(judgement.value)
    judged = [
        judgement for judgement in judged if "/" not in judgement.judge
    ]  # judges of a jury, whose joint verdict is there already
    jurors = len({judgement.judge for judgement in judged})
    for (question, case), values in votes.items() if jurors >= JURORS else ():
        defined = [value for value in values if value is not None]
        numbers = [_parse_number(value) for value in defined]
        together: Any = None
        if defined and None not in numbers:
            together = float(np.median(np.array(numbers, np.float64)))
        elif defined:
            name, count = Counter(map(normalise_name, defined)).most_common(1)[0]
            together = name if 2 * count > len(defined) else None
        yield _Judged(question, f"{jurors} judges together", case, together)


def _drop_texts(judged: list[_Judged], folder: Path) -> list[_Judged]:
    """Drops questions with text verdicts, and their parts."""
    structured = {judgement.question for judgement in judged if isinstance(judgement.value, dict | list)}
    plain = [
        judgement
        for judgement in judged
        if not structured & {judgement.question, judgement.question.rpartition("/")[0]}
    ]
    if judged and not plain:
        raise UserError(
            f"{folder}: every verdict is a list or a mapping ({', '.join(sorted(structured))}), which labels cannot be "
            "compared with; ask the judge for a number or a name"
        )
    return plain


def _read_judgements(folder: Path) -> Iterator[_Judged]:
    """Yields the last verdict per judge, question and case."""
    verdicts: dict[tuple[str, str, str], Any] = {}
    files = [file for name in FILES for file in sorted(folder.glob(name))]
    if not files:
        raise UserError(f"{folder} holds no verdicts (no verdicts.jsonl); run or score it with a judge first")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                continue  # a kill left it half-written
            try:
                record = json.loads(line)
                key = str(record.get("question", "")), str(record["judge"]), str(record["case"])
                verdicts[key] = record["value"]
            except (ValueError, KeyError, AttributeError) as error:
                raise UserError(
                    f"{file}, line {number}: expected case, judge and value as JSON, got {error!r}"
                ) from error
    for (question, judge, case), value in verdicts.items():
        yield _Judged(question, judge, case, value)
    for ballots in read_ballots_file(folder):
        for case, values in ballots.cases.items():
            yield _Judged(ballots.question, f"{ballots.jury}/{ballots.judge}", case, joint_verdict(values))


def numbers_of(folder: str | Path) -> dict[tuple[str, str], dict[str, float]]:
    """(question, judge) -> case -> number; other verdicts are dropped."""
    numbers: dict[tuple[str, str], dict[str, float]] = {}
    for judgement in _drop_texts(list(_read_judgements(Path(folder))), Path(folder)):
        if judgement.value is not None and (number := _parse_number(judgement.value)) is not None:
            numbers.setdefault((judgement.question, judgement.judge), {})[judgement.case] = number
    return numbers


def verdicts_of(folder: Path, judge: str) -> dict[str, dict[str, Any]]:
    """Case -> question -> a judge's stored verdict on a run."""
    verdicts: dict[str, dict[str, Any]] = {}
    has_verdicts = bool(judge) and any(next(folder.glob(name), None) for name in FILES)
    for judgement in _read_judgements(folder) if has_verdicts else ():
        if judgement.judge == judge:
            verdicts.setdefault(judgement.case, {})[judgement.question] = judgement.value
    return verdicts


def _read_labels(file: Path, column: str, questions: Sequence[str]) -> dict[tuple[str, str], str]:
    """Returns the labels by question and case."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: cannot be read as CSV ({error})") from error
    columns = list(reader.fieldnames or ())
    UsageError.refuse_unknown(f"{file} has no column", columns, "case", column)
    if "question" not in columns and len(questions) > 1:
        raise UsageError(
            f"{file} has no column 'question', and judges were asked several: {', '.join(questions)}; add it"
        )
    by_case: dict[tuple[str, str], str] = {}
    for number, row in enumerate(rows, 2):
        label = (row[column] or "").strip()
        key = (row["question"] or "").strip() if "question" in columns else questions[0], (row["case"] or "").strip()
        if label and key in by_case:
            raise UserError(f"{file}, line {number}: a second label for case {key[1]!r}; keep one of them")
        if label:
            by_case[key] = label
    return by_case


def _align_verdicts(
    human: Sequence[str], said: Sequence[Any], place: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Returns both sides as numbers or names; which were understood."""
    understood = pd.notna(pd.Series(said, dtype=object)).to_numpy()
    labels = [_parse_number(label) for label in human]
    values = [_parse_number(value) for value, is_understood in zip(said, understood, strict=True) if is_understood]
    name = next((label for label, number in zip(human, labels, strict=True) if number is None), None)
    if name is None and None not in values:
        numbers = [
            _parse_number(value) if is_understood else math.nan
            for value, is_understood in zip(said, understood, strict=True)
        ]
        return np.array(labels, dtype=np.float64), np.array(numbers, dtype=np.float64), understood
    if understood.any() and not any(isinstance(value, str) for value in said):
        raise UserError(
            f"{place}: the labels are names such as {name!r} and the verdicts numbers; write labels as numbers"
        )
    return (
        np.array([normalise_name(label) for label in human]),
        np.array([normalise_name(value) for value in said]),
        understood,
    )


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    text = str(value).strip().lower()
    try:
        number = _WORDS[text] if text in _WORDS else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

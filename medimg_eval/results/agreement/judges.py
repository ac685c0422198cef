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
from medimg_eval.results.agreement.jury import read_ballots_file
from medimg_eval.results.statistics import FEWEST, draws, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded, check_numbers, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Judge = Callable[[Array, Array], float]

    import numpy.typing as npt

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
        UsageError: If a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    measured = [_measured(one, resamples=resamples, level=level, seed=seed) for one in verdicts]
    names = [name for name in _TITLES if any(name in found for found in measured)]
    lines = [
        Line([one.question, one.judge], [[Span(f"{len(one.case):,}")], *(_spans(found.get(name)) for name in names)])
        for one, found in zip(verdicts, measured, strict=True)
    ]
    content = Layout.of_block(
        f"{title}: judges against people",
        ["n", *(_TITLES[name] for name in names)],
        lines,
        _notes(verdicts, measured, resamples, level, seed),
        ["Question", "Judge"],
        f"Agreement of judges with people on {title}",
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
    low, high = (np.nan, np.nan) if np.isnan(value) else quantiles(drawn, (1 - level) / 2, (1 + level) / 2)
    return Measured(value, low, high, 0 if np.isnan(low) else int(np.isnan(drawn).sum()))


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
    return bounded(found.value, found.low, found.high, lambda value: f"{round(value, 3) + 0.0:.3f}")


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
    """Verdicts of one judge on one question, beside the labels of people, for the cases that have both.

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
    """Reads what judges said of a run, and the labels of people for the same cases.

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
    judged = _alone(list(_judgements(folder)), folder)
    judges = dict.fromkeys(one.judge for one in judged)
    if judge is not None and judge not in judges:
        raise UsageError(f"{folder} has no verdicts of a judge {judge!r}{nearest(judge, judges)}")
    judged = [one for one in judged if judge == one.judge] if judge else [*judged, *_jury(judged)]
    judges = dict.fromkeys(one.judge for one in judged)
    questions = dict.fromkeys(one.question for one in judged)
    human = _labels(labels, column, list(questions))
    found = []
    for question in questions:
        for name in judges:
            said = {one.case: one.value for one in judged if (one.question, one.judge) == (question, name)}
            given = {case: label for (about, case), label in human.items() if about == question}
            if both := sorted(said.keys() & given.keys()):
                place = f"{labels} and judge {name}"
                sides = _aligned([given[case] for case in both], [said[case] for case in both], place)
                left = len(said) - len(both), len(given) - len(both)
                found.append(Verdicts(question, name, np.array(both), *sides, *left))
    if not found:
        raise UserError(f"{labels} labels no case that {folder} has a verdict on; compare its `case` with the run's")
    return found


def read_jury(folder: str | Path) -> list[Verdicts]:
    """Reads what judges said of a run, each pair of them on the cases that both have judged.

    The first of a pair stands where labels of people would, so verdicts of it that were not understood are left out.

    Raises:
        UserError: If a file cannot be read, or fewer than two judges were asked.
    """
    folder = Path(folder)
    judged = _alone(list(_judgements(folder)), folder)
    said: dict[tuple[str, str], dict[str, Any]] = {}
    for one in judged:
        said.setdefault((one.question, one.judge), {})[one.case] = one.value
    found = []
    for (question, first), (about, second) in combinations(said, 2):
        given, other = said[question, first], said[about, second]
        both = sorted(case for case in given.keys() & other.keys() if given[case] is not None)
        if question == about and both:
            sides = _aligned(
                [str(given[case]) for case in both], [other[case] for case in both], f"{first} and {second}"
            )
            left = len(other) - len(both), len(given) - len(both)
            found.append(Verdicts(question, f"{second} beside {first}", np.array(both), *sides, *left))
    if not found:
        raise UserError(
            f"{folder} is invalid: expected verdicts of two judges on a case, got those of one; set human=FILE"
        )
    return found


JURORS = 3
"""Judges of whom a median, or a majority, is more than one of them."""


def _jury(judged: Sequence[_Judged]) -> Iterator[_Judged]:
    """Yields what several judges say together: the median of numbers, the most frequent name, None of no majority."""
    votes: dict[tuple[str, str], list[Any]] = {}
    for one in judged:
        votes.setdefault((one.question, one.case), []).append(one.value)
    judged = [one for one in judged if "/" not in one.judge]  # judges of a jury, whose joint verdict is there already
    jurors = len({one.judge for one in judged})
    for (question, case), values in votes.items() if jurors >= JURORS else ():
        known = [value for value in values if value is not None]
        numbers = [_number(value) for value in known]
        together: Any = None
        if known and None not in numbers:
            together = float(np.median(np.array(numbers, np.float64)))
        elif known:
            name, count = Counter(map(_name, known)).most_common(1)[0]
            together = name if 2 * count > len(known) else None
        yield _Judged(question, f"{jurors} judges together", case, together)


def _alone(judged: list[_Judged], folder: Path) -> list[_Judged]:
    """Leaves out questions whose verdicts are no numbers and no names, with what such verdicts are put together of."""
    structured = {one.question for one in judged if isinstance(one.value, dict | list)}
    found = [one for one in judged if not structured & {one.question, one.question.rpartition("/")[0]}]
    if judged and not found:
        raise UserError(
            f"{folder}: every verdict is a list or a mapping ({', '.join(sorted(structured))}), which labels cannot be "
            "compared with; ask the judge for a number or a name"
        )
    return found


def _judgements(folder: Path) -> Iterator[_Judged]:
    """Yields the last verdict of each judge on each question and case, in the order of the first."""
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
    """Numbers that judges gave in a run: (question, judge) -> case -> number; verdicts that are none are left out."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for said in _alone(list(_judgements(Path(folder))), Path(folder)):
        if said.value is not None and (number := _number(said.value)) is not None:
            found.setdefault((said.question, said.judge), {})[said.case] = number
    return found


def verdicts_of(folder: Path, judge: str) -> dict[str, dict[str, Any]]:
    """Verdicts of a judge on a run, as far as they are stored: by case, name of a question -> verdict."""
    verdicts: dict[str, dict[str, Any]] = {}
    known = bool(judge) and any(next(folder.glob(name), None) for name in FILES)
    for said in _judgements(folder) if known else ():
        if said.judge == judge:
            verdicts.setdefault(said.case, {})[said.question] = said.value
    return verdicts


def _labels(file: Path, column: str, questions: Sequence[str]) -> dict[tuple[str, str], str]:
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
    found: dict[tuple[str, str], str] = {}
    for number, row in enumerate(rows, 2):
        label = (row[column] or "").strip()
        key = (row["question"] or "").strip() if "question" in columns else questions[0], (row["case"] or "").strip()
        if label and key in found:
            raise UserError(f"{file}, line {number}: a second label for case {key[1]!r}; keep one of them")
        if label:
            found[key] = label
    return found


def _aligned(
    human: Sequence[str], said: Sequence[Any], place: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Returns both as numbers, or both as names, and which of the judge's were understood."""
    understood = pd.notna(pd.Series(said, dtype=object)).to_numpy()
    labels = [_number(label) for label in human]
    values = [_number(value) for value, known in zip(said, understood, strict=True) if known]
    name = next((label for label, number in zip(human, labels, strict=True) if number is None), None)
    if name is None and None not in values:
        numbers = [_number(value) if known else math.nan for value, known in zip(said, understood, strict=True)]
        return np.array(labels, dtype=np.float64), np.array(numbers, dtype=np.float64), understood
    if understood.any() and not any(isinstance(value, str) for value in said):
        raise UserError(
            f"{place}: the labels are names such as {name!r} and the verdicts numbers; write labels as numbers"
        )
    return np.array([_name(label) for label in human]), np.array([_name(value) for value in said]), understood


def _number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    text = str(value).strip().lower()
    try:
        number = _WORDS[text] if text in _WORDS else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _name(value: Any) -> str:
    return str(value).strip().casefold()

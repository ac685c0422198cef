"""Texts in, numbers out: metrics of reports without a task, a model or files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import medimg_eval
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.proportions import known_mean
from medimg_eval.metrics.registry import ScoreTable, parse, required

if TYPE_CHECKING:
    from medimg_eval.metrics.answers import AnsweredQuestion

DEFAULT = ("bleu@1", "bleu@4", "rouge_l", "meteor_no_synonyms", "cider_d", "length_ratio")
"""What is scored where nothing is asked for."""


class Spread(NamedTuple):
    """Quartiles of a value over reports; NaN where none has one."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True, eq=False)
class TextScores:
    """Result of `text_scores`.

    Attributes:
        values: metric -> its value for all reports; NaN where none can be judged.
        per_report: metric -> its value for each report, (report,) float64, NaN where there is no right text. Of a
            summary of counts such as `bleu@4` the same formula on one report's counts, whose mean is not the value.
            Absent of other summaries.
        signatures: metric -> what decides its value, as `name|key:value|...`.
    """

    values: Mapping[str, float]
    per_report: Mapping[str, Floats]
    signatures: Mapping[str, str]
    _measured: _Measured = field(repr=False)

    @cached_property
    def lengths(self) -> Spread:
        """Quartiles of `length_ratio`, on which text scores depend."""
        ratios = self._measured.values("length_ratio")
        ratios = ratios[~np.isnan(ratios)]
        return Spread(*np.percentile(ratios, [25, 50, 75]).tolist()) if ratios.size else Spread(*[math.nan] * 3)

    def __str__(self) -> str:
        lines = [f"{value:.4f}  {self.signatures[name]}" for name, value in self.values.items()]
        spread = "median {1:.2f}, quartiles {0:.2f} and {2:.2f}".format(*self.lengths)
        return "\n".join([*lines, f"words for each word of the reference: {spread}"])


def text_scores(
    references: Sequence[str | Sequence[str]],
    predictions: Sequence[str],
    metrics: Sequence[str] | None = None,
    profile: str = "",
    *,
    clean: str = "",
    language: str = "en",
    missing: Literal["raise", "empty"] = "raise",
) -> TextScores:
    """Scores texts against references, without weights or judges.

    Texts are taken as they are: no thinking, heading or section is left out of them. An empty prediction has each
    metric's worst value. A report whose references hold nothing but blanks is not judged: NaN, left out of the value.

    Args:
        references: by report its reference, or several.
        predictions: by report what was written, in the same order.
        metrics: names as in configs, such as "bleu@4"; by default those of the profile, and without one BLEU-1 and -4,
            ROUGE-L, METEOR (stems), CIDEr-D and the length ratio.
        profile: whose numbers they shall equal: "coco" (pycocoevalcap on plain text), "radeval", "r2gen" (its cleaner
            of MIMIC-CXR), "r2gen-iu" (its cleaner of IU X-ray) or "sacrebleu-13a" (but in [0, 1]); `metrics` must then
            be among the profile's.
        clean: what both texts are cleaned by without a profile: "r2gen_iu", "r2gen_mimic", or "" for nothing.
        language: of the texts, as in ISO 639-1; by it texts are split into words. Signatures name the tokeniser.
        missing: what a prediction of None or NaN is: an error, or an empty text.

    Returns:
        The values, those of each report, and what decides them.

    Raises:
        UsageError: numbers of references and predictions that differ or are 0; something that is no text; a metric,
            profile, cleaner or language that does not exist; a metric that needs weights or a judge, is none of texts,
            or cannot serve the language.
    """
    from medimg_eval.metrics.nlp import Corpus, check_language
    from medimg_eval.metrics.text.texts import unserved

    written = _check_predictions(predictions, missing)
    right = _check_references(references, len(written))
    names, cleaner = _check_metrics(metrics, profile, clean)
    check_language(language)
    if lacking := unserved(names, language):
        raise UsageError(lacking[0].upper() + lacking[1:])
    corpus = Corpus([texts for references in right if (texts := tuple(text for text in references if text.strip()))])
    pairs = _text_pairs(written, right, corpus, cleaner, language)
    measured = _Measured(pairs)
    measured.take(names)
    values, each = {}, {}
    for name in names:
        definition, parameter = parse(name)
        if definition.kind != "run":
            each[name] = measured.values(name)
            values[name] = known_mean(each[name])
            continue
        rows, arguments = measured.rows(definition.needs), () if parameter is None else (parameter,)
        if definition.pieces is not None and definition.total is not None:
            sums = _sum_cases(definition.pieces(rows, *arguments), rows.case, len(pairs))
            each[name] = _by_report(definition.total(sums, *arguments), rows.case)
            values[name] = float(definition.total(sums.sum(axis=0), *arguments)) if rows.value.size else math.nan
        else:
            values[name] = float(definition.function(rows, *arguments)) if rows.value.size else math.nan
    several = sorted({len(texts) for texts in corpus.references})
    about = [f"references:{' to '.join(map(str, dict.fromkeys((several[0], several[-1]))))}"] if several else []
    about += [f"reports:{len(corpus.references)}", f"clean:{cleaner or 'none'}", f"version:{medimg_eval.__version__}"]
    return TextScores(values, each, {name: _metric_signature(name, about, language) for name in names}, measured)


def _check_predictions(given: Sequence[Any], missing: str) -> list[str]:
    UsageError.refuse_invalid("missing", ("raise", "empty"), missing)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"Expected predictions to be a list of texts, got {type(given).__name__}")
    texts = list(given)
    if missing == "empty":
        texts = ["" if _is_missing(text) else text for text in texts]
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            hint = "; give missing='empty' to count it as an empty text" if _is_missing(text) else ""
            raise UsageError(f"Prediction {index + 1} of {len(texts)} is {text!r}, expected a text{hint}")
    return texts


def _check_references(given: Sequence[Any], number: int) -> list[tuple[str, ...]]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"Expected references to be a list of texts or of lists, got {type(given).__name__}")
    references = [(item,) if isinstance(item, str) or not isinstance(item, Iterable) else tuple(item) for item in given]
    if len(references) != number or not references:
        raise UsageError(
            f"Expected as many references as predictions and at least one, got {len(references)} and {number}"
        )
    for index, texts in enumerate(references):
        for text in texts:
            if not isinstance(text, str):
                raise UsageError(f"The reference of report {index + 1} of {number} is {text!r}, expected a text")
    return references


def _is_missing(given: Any) -> bool:
    return given is None or (isinstance(given, float) and math.isnan(given))


def _check_metrics(metrics: Sequence[str] | None, profile: str, clean: str) -> tuple[list[str], str]:
    """Returns metric and cleaner names; UsageError for invalid ones."""
    from medimg_eval.metrics.text import profiles

    names = [metrics] if isinstance(metrics, str) else list(metrics or ())
    if profile:
        theirs = profiles.profile(profile)
        if clean not in ("", theirs.clean):
            raise UsageError(f"Profile {profile!r} cleans texts in its own way; leave clean={clean!r} out")
        UsageError.refuse_unknown(f"Profile {profile!r} has no metric", theirs.metrics, *names)
        names, clean = names or list(theirs.metrics), theirs.clean
    elif clean:
        profiles.cleaner(clean)
    names = list(dict.fromkeys(names or DEFAULT))
    for name in names:
        _check_metric(name)
    return names, clean


def _check_metric(name: str) -> None:
    definition = parse(name)[0]
    for need in [parse(need)[0] for need in definition.needs] or [definition]:
        for lack in required(name):
            lacking = f"judge's question {lack.topic!r}" if lack.kind == "verdict" else f"annotator {lack.provider!r}"
            raise UsageError(f"Metric {name!r} needs the {lacking}; score a table with `python -m medimg_eval score`")
        if need.kind != "answer":
            raise UsageError(f"Metric {name!r} does not judge texts")


def _text_pairs(
    written: Sequence[str], right: Sequence[tuple[str, ...]], corpus: Any, cleaner: str, language: str
) -> list[AnsweredQuestion]:
    from medimg_eval.metrics.answers import AnsweredQuestion
    from medimg_eval.metrics.nlp import Batch

    class Given(AnsweredQuestion):
        """A text that is judged as it is."""

        @cached_property
        def text(self) -> str:
            return self.output

    batch = Batch()
    about: dict[str, Any] = {"corpus": corpus, "clean": cleaner, "language": language, "batch": batch}
    pairs = dict[int, AnsweredQuestion]()
    for index, (text, texts) in enumerate(zip(written, right, strict=True)):
        pairs[index] = Given("report", text, list(texts), outputs=(text,), **about)
    batch.pairs = pairs
    return [*pairs.values()]


class _Measured:
    """Values of each report by the metrics; each is asked once."""

    def __init__(self, pairs: Sequence[AnsweredQuestion]) -> None:
        self.pairs = pairs
        self._held: dict[str, list[Any]] = {}
        self._rows: dict[tuple[str, ...], ScoreTable] = {}

    def take(self, names: Sequence[str]) -> None:
        """Computes metrics report by report, sharing words."""
        wanted = dict.fromkeys(name_ for name in names for name_ in parse(name)[0].needs or (name,))
        parsed = [(name, *parse(name)) for name in wanted if name not in self._held]
        calls = [
            (name, definition.function, () if parameter is None else (parameter,))
            for name, definition, parameter in parsed
        ]
        self._held.update({name: [] for name, _, _ in calls})
        for index, pair in enumerate(self.pairs, 1):
            for name, function, arguments in calls:
                try:
                    self._held[name].append(function(pair, *arguments))
                except CaseError as error:
                    raise UsageError(f"Report {index} of {len(self.pairs)}: {error}") from error

    def given(self, name: str) -> list[Any]:
        """Returns by report what a metric returned: a number, or label -> number."""
        self.take([name])
        return self._held[name]

    def values(self, name: str) -> Floats:
        """Returns a metric's value by report, averaged over labels."""
        values = self.given(name)
        return np.array(
            [known_mean(np.array([*value.values()])) if isinstance(value, Mapping) else value for value in values],
            float,
        )

    def rows(self, names: Sequence[str]) -> ScoreTable:
        """Returns what metrics leave for a summary."""
        if tuple(names) not in self._rows:
            self._rows[tuple(names)] = self._made(names)
        return self._rows[tuple(names)]

    def _made(self, names: Sequence[str]) -> ScoreTable:
        columns = [_score_columns(self.given(name)) for name in names]
        case, label, value = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        metric = np.repeat(np.array(names), [len(part[0]) for part in columns])
        status = np.full(value.size, "right")
        return ScoreTable(case, metric, label, value, status, {}, len(self.pairs), {}).where(~np.isnan(value))


def _score_columns(given: Sequence[Any]) -> tuple[Ints, npt.NDArray[np.str_], Floats]:
    """Returns report, label and value columns of a metric."""
    if not any(isinstance(value, Mapping) for value in given):
        return np.arange(len(given)), np.full(len(given), "report"), np.array(given, np.float64)
    several = [value if isinstance(value, Mapping) else {"report": value} for value in given]
    return (
        np.repeat(np.arange(len(given)), [len(by_label) for by_label in several]),
        np.array([label for by_label in several for label in by_label], str),
        np.array([value for by_label in several for value in by_label.values()], np.float64),
    )


def _sum_cases(added: Floats, cases: Ints, number: int) -> Floats:
    sums = np.zeros((number, added.shape[1]))
    np.add.at(sums, cases, added)
    return sums


def _by_report(values: Any, cases: Ints) -> Floats:
    by_report: Floats = np.asarray(values, dtype=np.float64).copy()
    by_report[np.setdiff1d(np.arange(by_report.size), cases)] = math.nan
    return by_report


def _metric_signature(name: str, about: Sequence[str], language: str) -> str:
    from medimg_eval.metrics.text.texts import told_in

    how = told_in(parse(name)[0].settings, language)
    return "|".join([name, *(part.replace(": ", ":", 1) for part in how.split(", ") if part), *about])

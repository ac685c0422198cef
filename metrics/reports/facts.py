"""Words of change: a list that others have published."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, error_summary
from medimg_eval.metrics.nlp import in_english
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.reports.labeler import labeler as report_rules
from medimg_eval.metrics.reports.labeler.lengths import TUBE, Measurement
from medimg_eval.metrics.text import texts_of

_WORDS = """
bigger change cleared constant decrease decreased decreasing elevated elevation enlarged enlargement enlarging
expanded greater growing improved improvement improving increase increased increasing larger new persistence
persistent persisting progression progressive reduced removal resolution resolved resolving smaller stability stable
stably unaltered unchanged unfolded worse worsen worsened worsening
"""
CHANGE_WORDS = frozenset(_WORDS.split())
"""The 44 words of F1-temporal, after Bannur et al. 2023 (BioViL-T), as Libra and RadEval have them."""


FACTCHEXCKER = "after FactCheXcker (Heiman et al. 2024)"
LIBRA = "Zhang et al. 2024 (Libra); RadEval's F1Temporal"
OWN = "medimg_eval"

_COUNTS = ("pairs", "error", "missing", "invented")


def set_f1(said: Iterable[object], due: Iterable[object]) -> float:
    """Returns set F1, 2 |A and B| / (|A| + |B|), in [0, 1].

    1 where both are empty, 0 where one of them is.

    >>> set_f1({"a", "b"}, {"b"})
    0.6666666666666666
    """
    predicted_set, right = set(said), set(due)
    if not predicted_set and not right:
        return 1.0
    return 2 * len(predicted_set & right) / (len(predicted_set) + len(right))


@lru_cache(maxsize=64)
def finding_facts(text: str) -> frozenset[tuple[str, int, str]]:
    """Returns facts (observation, status, side); absent ones have no side.

    Statuses are 1 present, 2 absent, 3 uncertain; sides "left", "right", "bilateral" or "", as in `mentions`.
    """
    return frozenset(
        (mention.finding, mention.status, "" if mention.status == 2 else mention.side)
        for mention in report_rules.mentions(text)
    )


def change_words(text: str) -> frozenset[str]:
    """Returns F1-temporal's 44 change words found in a text.

    Underscores and dashes part words; of other marks only those of sentences and brackets do, as in the original, so
    that "new/old" is one word and none of them.
    """
    cleaned = re.sub(r"[^\w\s.,:;()]", "", re.sub(r"[_\n-]+", " ", text.lower()))
    return frozenset(re.findall(r"\w+", cleaned)) & CHANGE_WORDS


def matched_measurements(
    said: Sequence[Measurement], due: Sequence[Measurement]
) -> tuple[list[tuple[Measurement, Measurement]], list[Measurement], list[Measurement]]:
    """Pairs lengths of report and reference: (pairs, missing, invented).

    A pair measures the same thing, and not on different sides. As many are paired as can be, those that differ least
    in their largest extent. Lengths of an earlier time and advice on moving something do not take part.
    """
    from scipy.optimize import linear_sum_assignment

    predicted_lengths, right = (
        [measurement for measurement in some if measurement.role == "stated"] for some in (said, due)
    )
    if not predicted_lengths or not right:
        return [], right, predicted_lengths
    apart = np.array([[_length_difference(first, second) for second in right] for first in predicted_lengths])
    most = 1 + sum(measurement.largest for measurement in (*predicted_lengths, *right))
    rows, columns = linear_sum_assignment(np.where(np.isinf(apart), most * len(predicted_lengths), apart))
    pairs = [(row, column) for row, column in zip(rows, columns, strict=True) if np.isfinite(apart[row, column])]
    taken, met = {row for row, _ in pairs}, {column for _, column in pairs}
    return (
        [(predicted_lengths[row], right[column]) for row, column in pairs],
        [measurement for at, measurement in enumerate(right) if at not in met],
        [measurement for at, measurement in enumerate(predicted_lengths) if at not in taken],
    )


def _length_difference(one: Measurement, other: Measurement) -> float:
    if one.thing != other.thing or (one.side and other.side and one.side != other.side):
        return math.inf
    return abs(one.largest - other.largest)


@answer_share(
    title="Finding F1 (rules)",
    source=OWN,
    settings="(observation, status, side) read by rules of our own, in English; sets; several references: the best",
)
def finding_f1(pair: AnsweredQuestion) -> float:
    """The F1 of the sets of (finding, status, side) that our own rules read in the report and in its reference.

    Findings are the 13 observations of CheXpert's without "No Finding"; the side of absent ones does not count. In
    [0, 1]: 1 where neither text states a finding, 0 where only one does, and where nothing was written.
    """
    texts = texts_of(pair)
    if texts is None or not in_english(pair.language, texts[1]):
        return math.nan
    text, references = texts
    if not text.strip():
        return 0.0
    return max(set_f1(finding_facts(text), finding_facts(reference)) for reference in references)


@answer_share(
    title="F1-temporal (words)",
    source=LIBRA,
    settings="44 words of change, sets; no entity recogniser; several references: their words together",
)
def temporal_f1(pair: AnsweredQuestion) -> float:
    """The F1 of the sets of words of change, such as "stable" or "worsened", in the report and in its reference.

    The authors' 44 words; their recogniser of entities can only add words that are among these, and is not asked. In
    [0, 1]: 1 where neither text has such a word; 0 where only one has, which is 1e-10 in the original where the
    reference has none. Nothing written is 0 too; the original gives 1 to it where the reference has no such word.
    """
    texts = texts_of(pair)
    if texts is None or not in_english(pair.language, texts[1]):
        return math.nan
    text, references = texts
    if not text.strip():
        return 0.0
    return set_f1(change_words(text), frozenset[str]().union(*map(change_words, references)))


@metric(
    kind="answer",
    title="Measurements",
    higher_is_better=True,
    best=math.nan,
    worst=math.nan,
    source=FACTCHEXCKER,
    intermediate=True,
    settings="lengths in mm read by rules of our own, in English; several references: the one with most pairs",
)
def measurement_counts(pair: AnsweredQuestion) -> Any:
    """Lengths that report and reference both state, their errors in mm, missing and invented ones. Evidence.

    One row for each of the four, of all lengths and of the distance of the endotracheal tube from the carina alone.
    """
    labels = [f"{scope}{count}" for scope in ("", "tube ") for count in _COUNTS]
    texts = texts_of(pair)
    if texts is None:
        return dict.fromkeys(labels, math.nan)
    text, references = texts
    lengths = report_rules.measurements(text)
    best = max(
        (_count_lengths(lengths, report_rules.measurements(reference)) for reference in references), key=_rank_counts
    )
    return dict(zip(labels, best, strict=True))


def _count_lengths(said: Sequence[Measurement], due: Sequence[Measurement]) -> tuple[float, ...]:
    counts: list[float] = []
    for chosen in ((lambda _: True), (lambda one: one.thing == TUBE)):
        pairs, missing, invented = matched_measurements([*filter(chosen, said)], [*filter(chosen, due)])
        error = sum(abs(first.largest - second.largest) for first, second in pairs)
        counts += [len(pairs), error, len(missing), len(invented)]
    return tuple(counts)


def _rank_counts(counts: tuple[float, ...]) -> tuple[float, ...]:
    pairs, error, missing, invented = counts[:4]
    return pairs, -missing - invented, -error


def _count_pieces(scope: str, rows: ScoreTable) -> npt.NDArray[np.float64]:
    value = np.nan_to_num(rows.value)
    return np.stack([np.where(rows.label == f"{scope}{count}", value, 0.0) for count in _COUNTS], axis=-1)


def _missing_share(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return quotient(sums[..., 2], sums[..., 0] + sums[..., 2])


def _invented_share(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return quotient(sums[..., 3], sums[..., 0] + sums[..., 3])


def _register_summary(name: str, title: str, unit: str, scope: str, total: Callable[..., object], meaning: str) -> None:
    def called(sums: npt.NDArray[np.float64]) -> Any:
        return total(sums)

    called.__doc__ = meaning
    called.__name__ = called.__qualname__ = name
    error_summary(
        needs=("measurement_counts",),
        title=title,
        unit=unit,
        source=FACTCHEXCKER,
        settings="lengths in mm read by rules of our own; over all reports together",
        pieces=partial(_count_pieces, scope),
        name=name,
    )(called)


for _name, _of, _scope in (
    ("measurement", "lengths", ""),
    ("ett_carina", "distances of the endotracheal tube from the carina", "tube "),
):
    _title = "Measurement" if not _scope else "Tube"
    _register_summary(
        f"{_name}_mae",
        f"{_title} MAE",
        "mm",
        _scope,
        lambda sums: quotient(sums[..., 1], sums[..., 0]),
        f"The mean absolute difference of {_of} that report and reference both state.",
    )
    _register_summary(
        f"{_name}_missing",
        f"{_title} missing",
        "",
        _scope,
        _missing_share,
        f"The share of {_of} stated in references that the reports do not state.",
    )
    _register_summary(
        f"{_name}_invented",
        f"{_title} invented",
        "",
        _scope,
        _invented_share,
        f"The share of {_of} stated in reports that the references do not state.",
    )

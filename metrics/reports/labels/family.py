"""Metrics of the labels that a labeller reads in reports: declared together, for any labeller and any taxonomy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import CaseError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import in_english
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import Requirement, ScoreTable, metric, read_by, summary
from medimg_eval.metrics.reports.labels.f1 import STATES, Counts, Efficacy, LabelCounts, scored, value_of
from medimg_eval.metrics.reports.labels.taxonomies import Choice, Taxonomy, labels_of, loaded
from medimg_eval.metrics.text import with_others

Labeller = Callable[[str], Mapping[str, int]]
"""Reads a report: label -> state, 0 blank, 1 positive, 2 negative, 3 uncertain; labels left out are blank."""

Both: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
"""The states of every label in a reference and in a prediction."""

Reader: TypeAlias = Callable[[AnsweredQuestion], Both | None]
Known: TypeAlias = Callable[[], Taxonomy]

KEPT = 4096
"""Texts whose labels a family keeps: several metrics ask for those of one report."""

_TITLES = {"precision": "precision", "recall": "recall", "f1": "F1", "support": "support"}

_OVER = (
    "`micro-all`, `macro-all`, `weighted-all` or `samples-all`, or another set of labels, or one label by its name; "
    "with + at the end an uncertain label counts as positive, without it as negative"
)
_CHOICE = "average-set or label, + for uncertain as positive"


class _Named(NamedTuple):
    """Name of a family, and who reads."""

    name: str
    title: str
    by: str
    requires: tuple[Requirement, ...]
    settings: str
    source: str


def label_family(
    name: str,
    taxonomy: Taxonomy | str,
    *,
    title: str,
    source: str,
    labeller: Labeller | None = None,
    annotator: str = "",
    by: str = "",
    caution: str = "",
    english: bool = False,
) -> None:
    """Declares the metrics of a labeller: `NAME_f1`, `NAME_precision`, `NAME_recall`, `NAME_support` and more.

    One call in a module of metrics is all that a further taxonomy takes; tasks then name `NAME_f1@micro-all+`.
    `NAME_states` is the evidence that the others are summed from; `NAME_example_f1@all+` judges single reports.

    Args:
        name: what metrics of the family begin with, such as "rule_labeler".
        taxonomy: the labels, and the sets of them that are averaged over; or what `Taxonomy.load` takes, which is then
            read at first use.
        title: what a table's header calls it, such as "CheXbert".
        source: where labels and labeller come from.
        labeller: reads a text, where that takes no weights; it is never given an empty one.
        annotator: otherwise the name of the `TextAnnotator` that reads: label -> state, and maybe `cut`.
        by: who reads, in words; by default the title.
        caution: what every table is to say of it beside how scores are averaged.
        english: whether the labeller reads nothing else: cases with a reference in another language are not judged.

    Raises:
        ValueError: not exactly one of `labeller` and `annotator` is given, or a metric of such a name is known.
    """
    if (labeller is None) == (not annotator):
        raise ValueError(f"Expected one of `labeller` and `annotator` of {name!r}")

    def known() -> Taxonomy:
        return loaded(taxonomy) if isinstance(taxonomy, str) else taxonomy

    read = (
        _by_rules(name, known, labeller, english=english) if labeller is not None else _by_annotator(annotator, known)
    )
    settings = "; ".join(part for part in (_describe_method(taxonomy), caution) if part)
    called = _Named(name, title, by or title, read_by(*filter(None, [annotator])), settings, source)
    _declare_states(called, read)
    _declare_single(called, known, read)
    for what in _TITLES:
        _declare_summary(called, known, what)


def codes(reference: Mapping[str, int], predicted: Mapping[str, int]) -> dict[str, float]:
    """Returns label codes: 4 * reference state + predicted state.

    Labels that are blank in both are left out; where all are, the first stands for the report.
    """
    codes = {label: float(STATES * state + predicted[label]) for label, state in reference.items()}
    some = {label: code for label, code in codes.items() if code}
    return some or dict(list(codes.items())[:1])


def sums_of(rows: ScoreTable, choice: Choice) -> Counts:
    """Returns what each row of evidence adds: (row, quantity).

    Hits, inventions and misses one after the other, of all labels together or of each; of an average over reports the
    sums of their precision, recall, F1, of those with support, and of all reports, at the first row of each.
    """
    is_known = ~np.isnan(rows.value)
    value = np.where(is_known, rows.value, 0).astype(np.int64)
    right, predicted_positive = (
        np.isin(state, choice.positive) & is_known for state in (value // STATES, value % STATES)
    )
    columns = np.full(len(value), -1)
    for column, label in enumerate(choice.labels):
        columns[rows.label == label] = column
    right, predicted_positive = right & (columns >= 0), predicted_positive & (columns >= 0)
    one_hot = np.stack(
        [right & predicted_positive, ~right & predicted_positive, right & ~predicted_positive], axis=1
    ).astype(np.float64)
    if choice.average == "samples":
        return _by_report(rows.case, is_known, one_hot)
    if choice.average == "micro":
        return one_hot
    added = np.zeros((len(value), 3, len(choice.labels)))
    chosen = np.flatnonzero(right | predicted_positive)
    added[chosen, :, columns[chosen]] = one_hot[chosen]
    return added.reshape(len(value), 3 * len(choice.labels))


def value_of_sums(sums: npt.NDArray[Any], choice: Choice, what: str) -> Counts:
    """Returns a score of sums of what `sums_of` returns: (..., quantity) -> (...)."""
    if choice.average == "samples":
        part = sums[..., list(_TITLES).index(what)]
        return np.asarray(part, dtype=np.float64) if what == "support" else quotient(part, sums[..., -1])
    counts = LabelCounts(*np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0))
    return value_of(counts, choice.average, what)


def example_scores(reference: Mapping[str, int], predicted: Mapping[str, int], choice: Choice) -> Efficacy:
    """Returns precision, recall and F1 of one report; 1 without a positive chosen label."""
    right, predicted_labels = (
        {label for label in choice.labels if side[label] in choice.positive} for side in (reference, predicted)
    )
    if not right and not predicted_labels:
        return Efficacy(1.0, 1.0, 1.0, 0)
    hits = len(right & predicted_labels)
    counts = LabelCounts(
        *(np.array([[value]], np.float64) for value in (hits, len(predicted_labels) - hits, len(right) - hits))
    )
    precision, recall, f1 = (float(value[0]) for value in scored(counts))
    return Efficacy(precision, recall, f1, len(right))


def _by_report(case: npt.NDArray[np.int64], known: npt.NDArray[np.bool_], one_hot: Counts) -> Counts:
    added = np.zeros((len(case), 5))
    indices = np.flatnonzero(known)
    if not indices.size:
        return added
    _, first, owner = np.unique(case[indices], return_index=True, return_inverse=True)
    counts = LabelCounts(*(np.bincount(owner, weights=one_hot[indices, column])[:, None] for column in range(3)))
    supported = (counts.hits + counts.missed > 0)[:, 0]
    added[indices[first]] = np.column_stack([*scored(counts), supported, np.ones(len(first))])
    return added


def _by_rules(name: str, taxonomy: Known, labeller: Labeller, *, english: bool) -> Reader:
    @lru_cache(maxsize=KEPT)
    def labels(text: str) -> dict[str, int]:
        return labels_of(labeller(text) if text.strip() else {}, taxonomy().labels, name)

    def both(pairs: Sequence[AnsweredQuestion]) -> list[Both]:
        return [(labels(pair.references[0]), labels(pair.text)) for pair in pairs]

    def read(pair: AnsweredQuestion) -> Both | None:
        if len(pair.references) > 1:
            raise CaseError(f"{name} compares with one reference, and there are {len(pair.references)}; give one")
        if english and not in_english(pair.language, pair.references):
            return None
        return with_others(pair, both)  # rules that have just been at work are at hand, in a processor, too

    return read


def _by_annotator(annotator: str, taxonomy: Known) -> Reader:
    def read(pair: AnsweredQuestion) -> Both | None:
        read_both = pair.read(annotator)
        if read_both is None:
            return None
        predicted = read_both.prediction if pair.text.strip() else {}
        labels, who = taxonomy().labels, f"annotator {annotator}"
        return labels_of(read_both.reference, labels, who), labels_of(predicted, labels, who)

    return read


def _judge_labels(pair: AnsweredQuestion, read: Reader) -> Both | None:
    """Returns both sides' labels; None without report, reference or reading."""
    if pair.kind not in ("open", "report") or pair.preferences is not None or not pair.references:
        return None
    return read(pair)


def _declare_states(called: _Named, read: Reader) -> None:
    def states(pair: AnsweredQuestion) -> Any:
        judged = _judge_labels(pair, read)
        return math.nan if judged is None else codes(*judged)

    states.__doc__ = (
        f"The states of each label as read by {called.by} in both texts: 4 times the reference's plus the prediction's."
        "\n\n"
        "0 blank, 1 positive, 2 negative, 3 uncertain; a label that is blank in both has no row. Evidence for the "
        f"other metrics of {called.title}."
    )
    _register_metric(states, called, "states", title="states", higher_is_better=True, intermediate=True, best=math.nan)


def _declare_single(called: _Named, taxonomy: Known, read: Reader) -> None:
    full = f"{called.name}_example_f1"

    def example_f1(pair: AnsweredQuestion, some: str) -> float:
        choice = taxonomy().some(some, full)
        judged = _judge_labels(pair, read)
        if judged is None:
            return math.nan
        return example_scores(*judged, choice).f1 if pair.text.strip() else 0.0

    example_f1.__doc__ = (
        f"The F1 of one report's positive labels as read by {called.by}; 1 where neither text has any.\n\n"
        "Nothing written is 0. Asked for with a set of labels, such as `@all+`; with + an uncertain label counts as "
        "positive. In [0, 1]. "
        f"`{called.name}_f1@samples-all+` is its mean but for reports without positive labels, which count 0 there."
    )
    _register_metric(
        example_f1,
        called,
        "example_f1",
        title="F1 per report",
        higher_is_better=True,
        best=1.0,
        parameter="set of labels, + for uncertain as positive",
        parameter_is_text=True,
        settings=called.settings,
        check=lambda text: taxonomy().some(text, full),
    )


def _register_metric(function: Any, called: _Named, what: str, *, title: str, **facts: Any) -> None:
    name = f"{called.name}_{what}"
    function.__qualname__ = name
    worst = math.nan if facts.get("intermediate") else 0.0
    metric(
        kind="answer",
        name=name,
        title=f"{called.title} {title}",
        source=called.source,
        requires=called.requires,
        worst=worst,
        **facts,
    )(function)


def _declare_summary(called: _Named, taxonomy: Known, what: str) -> None:
    full = f"{called.name}_{what}"

    def pieces(rows: ScoreTable, text: str) -> Counts:
        return sums_of(rows, taxonomy().choice(text, full))

    def total(sums: npt.NDArray[Any], text: str) -> Any:
        return value_of_sums(sums, taxonomy().choice(text, full), what)

    def remark(rows: ScoreTable, text: str) -> str:
        choice = taxonomy().choice(text, full)
        if choice.average != "macro" or what == "support":
            return ""
        hits, _, missed = np.nansum(sums_of(rows, choice), axis=0).reshape(3, -1)
        lacking = [label for label, some in zip(choice.labels, hits + missed, strict=True) if not some]
        return f"no reference of {called.title} has {', '.join(lacking)}: 0 in macro means" if lacking else ""

    meaning = {
        "support": f"How many there are to find as read by {called.by}: positive labels of the references (micro, "
        "weighted, one label), labels that any reference has (macro), references that have any (samples).",
    }.get(what, f"The {_TITLES[what]} of positive labels as read by {called.by}, of predictions against references.")
    total.__doc__ = f"{meaning}\n\nAsked for with an average and a set of labels: {_OVER}."
    total.__qualname__ = full
    summary(
        name=full,
        needs=(f"{called.name}_states",),
        title=f"{called.title} {_TITLES[what]}",
        higher_is_better=True,
        best=math.nan if what == "support" else 1.0,
        source=called.source,
        parameter=_CHOICE,
        parameter_is_text=True,
        settings=called.settings,
        pieces=pieces,
        check=lambda text: taxonomy().choice(text, full),
        remark=remark,
    )(total)


def _describe_method(taxonomy: Taxonomy | str) -> str:
    if isinstance(taxonomy, str):
        sets = f"labels and sets of {taxonomy}"
    else:
        sets = "; ".join(
            [f"all: {len(taxonomy.labels)} labels", *(_describe_labels(name, taxonomy) for name in taxonomy.sets)]
        )
    return (
        f"{sets}; +: an uncertain label counts as positive, without +: as negative; a label or report with nothing to "
        "find or found counts 0 in means, and support@macro tells how many labels have any; an empty text has no label"
    )


def _describe_labels(name: str, taxonomy: Taxonomy) -> str:
    some = taxonomy.sets[name]
    absent = [label for label in taxonomy.labels if label not in some]
    return f"{name}: without {', '.join(absent)}" if len(absent) < len(some) else f"{name}: {', '.join(some)}"

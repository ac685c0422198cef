"""Whether labels that a model read in reports are those of people: agreement by finding, with intervals by patient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.results.statistics import FEWEST, Resamples, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded, check_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

TITLES = {
    "agreement": "Agreement",
    "kappa": "Kappa",
    "sensitivity": "Sensitivity",
    "ppv": "PPV",
    "f1": "F1, uncertain negative",
    "f1_plus": "F1, uncertain positive",
    "weighted_f1": "Weighted F1",
}
MEAN = "mean"


class Compared(NamedTuple):
    """Names of what is compared.

    Attributes:
        people: whose labels are right.
        model: whose labels are judged.
        title: what the reports are.
        notes: sentences below the table, such as on the cost.
    """

    people: str
    model: str
    title: str
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class LabelValues:
    """Values that labels may have.

    Attributes:
        every: all of them.
        positive: those of a finding that is present; empty where values are no such statements, as grades.
        uncertain: those of a finding that may be present.
        blank: those of a finding that is not mentioned.
    """

    every: Sequence[str]
    positive: Sequence[str] = ()
    uncertain: Sequence[str] = ()
    blank: Sequence[str] = ()

    def statistics(self) -> list[str]:
        """Statistics that are defined of such values."""
        without = [] if self.positive else ["sensitivity", "ppv", "f1", "f1_plus"]
        return [name for name in TITLES if name not in without and (name != "f1_plus" or self.uncertain)]

    def places(self, some: Sequence[str]) -> list[int]:
        """Places of some values among all."""
        return [self.every.index(value) for value in some]


def agreement_with_people(
    people: Sequence[Mapping[str, str]],
    labels: Sequence[Mapping[str, str]],
    values: LabelValues,
    *,
    patients: Sequence[str],
    compared: Compared,
    resamples: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
) -> Sheet:
    """Agreement of labels with people's, per finding and on average.

    Kappa is Cohen's, of all values and `unread`, which a label that could not be read is. Sensitivity, PPV and F1 are
    of positives. Weighted F1 is MOSAIC's: of each value that people gave, but blank, weighted by how often they gave
    it. What is not defined is left open, and out of the mean.

    Args:
        people: by report: finding -> value; findings left out are not judged in that report.
        labels: the same of the model; "" of what was not read.
        values: that there may be.
        patients: of the reports, by whom resamples are drawn.
        compared: names of both sides and of the reports.
        resamples: of the bootstrap.
        level: of the intervals.
        seed: of the bootstrap.

    Raises:
        UserError: people labelled no report.
        UsageError: a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    findings = list(dict.fromkeys(name for report_labels in people for name in report_labels))
    if not findings:
        raise UserError(f"{compared.title}: people labelled none of its reports")
    _, cluster = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    values_found: dict[str, dict[str, float]] = {}
    drawn: dict[str, dict[str, Array]] = {}
    draws = Resamples(int(cluster.max()) + 1, resamples=resamples, seed=seed) if cluster.max() + 1 >= FEWEST else None
    for name in findings:
        tables = _patient_tables(
            [report_labels.get(name) for report_labels in people],
            [label.get(name, "") for label in labels],
            values,
            cluster,
        )
        values_found[name] = {key: float(value) for key, value in statistics(tables.sum(axis=0), values).items()}
        drawn[name] = {} if draws is None else statistics(draws.sums(tables), values)
    values_found[MEAN] = {
        key: _mean_findings([[values_found[name][key]] for name in findings])[0] for key in values.statistics()
    }
    drawn[MEAN] = {key: _mean_findings([drawn[name][key] for name in findings]) for key in values.statistics() if draws}
    records = [
        (name, key, value, *_percentile_bounds(drawn[name].get(key), level))
        for name, of_name in values_found.items()
        for key, value in of_name.items()
    ]
    numbers = pd.DataFrame.from_records(records, columns=["label", "statistic", "value", "low", "high"])
    how = _method_notes(len(people), int(cluster.max()) + 1, resamples, level, seed)
    counts = {name: _label_counts([report_labels.get(name) for report_labels in people], values) for name in findings}
    return Sheet(_sheet_layout(numbers, counts, values, compared, [*how, *compared.notes]), numbers)


def statistics(tables: Array, values: LabelValues) -> dict[str, Array]:
    """Agreement of tables of counts; NaN where a statistic is not defined.

    Args:
        tables: (..., (V + 1) squared) for V values, how often people gave value i and the model j, at (V + 1) i + j;
            the last of either is `unread`.
        values: that there may be.

    Returns:
        Statistic -> (...).
    """
    size = len(values.every) + 1
    square = tables.reshape(*tables.shape[:-1], size, size)
    rows, columns, total = square.sum(axis=-1), square.sum(axis=-2), square.sum(axis=(-1, -2))
    agreed = safe_ratio(np.trace(square, axis1=-2, axis2=-1), total)
    by_chance = safe_ratio((rows * columns).sum(axis=-1), total**2)
    statistics = {"agreement": agreed, "kappa": safe_ratio(agreed - by_chance, 1 - by_chance)}
    for name, some in {"f1": values.positive, "f1_plus": [*values.positive, *values.uncertain]}.items():
        indices = values.places(some)
        hits = square[..., indices, :][..., indices].sum(axis=(-1, -2))
        due, given_counts = rows[..., indices].sum(axis=-1), columns[..., indices].sum(axis=-1)
        statistics[name] = safe_ratio(2 * hits, due + given_counts)
        if name == "f1":
            statistics |= {"sensitivity": safe_ratio(hits, due), "ppv": safe_ratio(hits, given_counts)}
    judged = [index for index in range(size - 1) if values.every[index] not in values.blank]
    hits = square[..., judged, judged]
    each = np.nan_to_num(safe_ratio(2 * hits, rows[..., judged] + columns[..., judged]))
    statistics["weighted_f1"] = safe_ratio((each * rows[..., judged]).sum(axis=-1), rows[..., judged].sum(axis=-1))
    return {name: statistics[name] for name in values.statistics()}


def _patient_tables(
    people: Sequence[str | None], labels: Sequence[str], values: LabelValues, cluster: npt.NDArray[np.intp]
) -> Array:
    """Counts by patient, (patient, pair), of reports that people labelled."""
    size = len(values.every) + 1
    index_of = {value: number for number, value in enumerate(values.every)}
    tables = np.zeros((int(cluster.max()) + 1, size**2))
    for mine, theirs, patient in zip(people, labels, cluster, strict=True):
        if mine is not None:
            tables[patient, size * index_of[mine] + index_of.get(theirs, size - 1)] += 1
    return tables


def safe_ratio(part: Array, whole: Array) -> Array:
    """Returns part / whole; NaN where the whole is 0."""
    is_defined = np.abs(whole) > 1e-12  # below it, 1 less the agreement by chance is 0 but for rounding
    divided: Array = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=is_defined)
    return divided


def _mean_findings(of_findings: Sequence[Any]) -> Array:
    """Mean over defined findings, by resample: (finding, n) -> (n,)."""
    stacked = np.asarray(of_findings, dtype=float)
    return safe_ratio(np.nansum(stacked, axis=0), (~np.isnan(stacked)).sum(axis=0).astype(float))


def _percentile_bounds(drawn: Array | None, level: float) -> tuple[float, float]:
    if drawn is None:
        return np.nan, np.nan
    low, high = quantiles(drawn, (1 - level) / 2, (1 + level) / 2)
    return float(low), float(high)


def _label_counts(people: Sequence[str | None], values: LabelValues) -> list[str]:
    """Reports that people labelled, and those that are positive, uncertain apart."""
    stated = [value for value in people if value is not None]
    if not values.positive:
        return [f"{len(stated):,}"]
    uncertain = f" + {sum(value in values.uncertain for value in stated):,}" if values.uncertain else ""
    return [f"{len(stated):,}", f"{sum(value in values.positive for value in stated):,}{uncertain}"]


def _sheet_layout(
    numbers: pd.DataFrame,
    counts: Mapping[str, Sequence[str]],
    values: LabelValues,
    compared: Compared,
    notes: Sequence[str],
) -> Layout:
    by_label = numbers.set_index(["label", "statistic"])
    columns_shown = values.statistics()
    heads = ["n", *(["Positive"] if values.positive else [])]
    lines = []
    for label in [*counts, MEAN]:
        of_label: Any = (by_label.loc[(label, name), ["value", "low", "high"]] for name in columns_shown)
        cells = [bounded(value, low, high, "{:.3f}".format) for value, low, high in of_label]
        counts_shown = counts.get(label, [""] * len(heads))
        lines.append(Line([label], [*([Span(text)] for text in counts_shown), *cells], opens=label == MEAN))
    block = f"{compared.title}: {compared.model} against {compared.people}"
    caption = f"Labels of {compared.model} against those of {compared.people} on {compared.title}"
    return Layout.of_block(
        block, [*heads, *(TITLES[name] for name in columns_shown)], lines, notes, ["Finding"], caption
    )


def _method_notes(reports: int, patients: int, resamples: int, level: float, seed: int) -> list[str]:
    interval = f"{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of patients, seed {seed}"
    interval += "" if patients >= FEWEST else f"; none of fewer than {FEWEST} patients"
    return [
        f"n = {reports:,} reports of {patients:,} patients [{interval}].",
        "Kappa: Cohen's, of all values and of what could not be read.",
        "Weighted F1: of each value that people gave but blank, weighted by how often they did.",
        "The last row is the mean over the findings of which a number is defined.",
    ]

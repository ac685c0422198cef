"""What one row of a table rests on: a run, a label, a group of cases, a set; and strata that patients are drawn in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.results.runs.metric_kinds import WHOLE, judged_labels, needed_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.runs.loading import RunScores

LABEL = "label"
"""What a table is divided by to have one block per label; anything else is an attribute of the cases."""
CONDITION = "condition"
"""What a table is divided by to have one row per condition that cases were shown under."""
UNKNOWN = "unknown"
"""The group of the cases whose attribute is not known."""
CROSSED = "*"
"""What stands between attributes that are crossed, as in "sex*site"."""

_CLUSTERS: WeakKeyDictionary[RunScores, pd.Series[str]] = WeakKeyDictionary()
_JUDGED: WeakKeyDictionary[RunScores, pd.DataFrame] = WeakKeyDictionary()
# Of very many rows, what a table asks for several times is found once for each run, and goes with it.

Bins = Mapping[str, Sequence[float]]
"""Of attributes that are numbers: the edges of their groups, ascending."""


def labels_of(run: RunScores) -> pd.DataFrame:
    """Label, metric and status of each case and label that was judged, as `judged_labels` has them."""
    if run not in _JUDGED:
        _JUDGED[run] = judged_labels(run.scores)[["label", "metric", "status"]]
    return _JUDGED[run]


def _clusters_of(run: RunScores) -> pd.Series[str]:
    cases = run.scores.drop_duplicates("case")
    names = cases["patient" if run.resampled == "patients" else "case"].astype(str)
    clusters = pd.Series(names.to_numpy(), index=cases["case"].astype(str))
    # Cases that no metric had anything to say of leave no rows, yet summaries count them as judged.
    silent = [f"\0{number}" for number in range(run.cases - len(cases))]
    together: pd.Series[str] = pd.concat([clusters, pd.Series(silent, index=silent, dtype=clusters.dtype)])
    return together


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the Score rows of one finished run.

    Attributes:
        run: The run.
        scores: The rows that count.
        clusters: (case,), by case id: what is resampled, for every case of the part, also those without rows.
        of: What it is divided by and which part it is: `label` and a label, or an attribute and its value.
        kept: What was made of its rows, for whoever needs the same again; by whatever tells it apart.
    """

    run: RunScores
    scores: pd.DataFrame
    clusters: pd.Series[str]
    of: tuple[str, str] = ("", "")
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def whole(cls, run: RunScores) -> Part:
        """Returns all of a run."""
        if run not in _CLUSTERS:
            _CLUSTERS[run] = _clusters_of(run)
        return cls(run, run.scores, _CLUSTERS[run])

    def needed(self, metric: str) -> tuple[str, ...]:
        """Returns the metrics whose rows a summary of it is computed from."""
        return needed_rows(metric, self.run.metrics or self.scores["metric"].unique())

    def with_conditions(self) -> Part:
        """Returns the part with rows under conditions, and `condition`."""
        varied = self.run.varied
        chosen = varied["case"].astype(str).isin(self.clusters.index)
        if self.of[0] == LABEL:
            chosen &= varied["label"] == self.of[1]
        together = pd.concat([self.scores.assign(condition=""), varied.loc[chosen]], ignore_index=True)
        if "repeat" in together.columns:
            together["repeat"] = together["repeat"].fillna(0)
        return Part(self.run, together, self.clusters, self.of)

    def labels(self) -> dict[str, Part]:
        """Returns a part per judged label, counting all cases.

        Labels are in the order of the rows.
        """
        judged = set(judged_labels(self.scores)["label"])
        parts = {
            str(label): Part(self.run, rows, self.clusters, (LABEL, str(label)))
            for label, rows in self.scores.groupby("label", sort=False, observed=True)
            if label in judged and (label != WHOLE or self.run.sets.empty)
        }
        of_sets = [str(label) for label in self.run.sets["label"].unique() if label not in (WHOLE, *parts)]
        return parts | {label: Part(self.run, self.scores.iloc[:0], self.clusters, (LABEL, label)) for label in of_sets}

    def conditions(self) -> dict[str, Part]:
        """Returns one part per condition that cases were shown under, by key."""
        return {name: Part.whole(self.run.under(name)) for name in self.run.conditions}

    def groups(self, attribute: str, bins: Bins | None = None) -> dict[str, Part]:
        """Returns a part per attribute value, unknown last.

        Args:
            attribute: An attribute, or several that are crossed, as in "sex*site": a group of their values together.
            bins: Attribute -> the edges of its groups, where it is a number: of [40, 60] these are "< 40", "40 to < 60"
                and ">= 60", in this order.
        """
        codes, values = attributes(self.scores)
        crossed = crossed_attributes(attribute, values)
        if any(name not in values for name in crossed):
            return self._groups_of_sets(attribute)
        named = [
            _binned_groups(values[name], bins[name]) if bins and name in bins else _named_groups(values[name])
            for name in crossed
        ]
        names = np.array(
            [_join_names(group) for group in zip(*(group_names for group_names, _ in named), strict=True)], dtype=object
        )
        names = names[codes]
        present = set(names.tolist())
        parts = {}
        for name in map(_join_names, product(*(order for _, order in named))):
            if name in present:
                parts[name] = self._of_rows(names == name, (attribute, name))
        if UNKNOWN_NAME in present:
            parts[UNKNOWN] = self._of_rows(names == UNKNOWN_NAME)
        return parts

    def _groups_of_sets(self, attribute: str) -> dict[str, Part]:
        """Part per value of set images' attributes, such as planes."""
        wheres = [dict(row.where) for row in set_rows(self.run)]
        groups = sorted({where[attribute] for where in wheres if where.keys() == {attribute}})
        return {value: Part(self.run, self.scores.iloc[:0], self.clusters, (attribute, value)) for value in groups}

    def of_cases(self, cases: pd.Series[str]) -> Part:
        """Returns the part of some cases, by their ids."""
        return self._of_rows(self.scores["case"].isin(cases).to_numpy())

    def _of_rows(self, chosen: npt.NDArray[np.bool_], of: tuple[str, str] = ("", "")) -> Part:
        rows = self.scores.loc[chosen]
        return Part(self.run, rows, self.clusters.loc[rows["case"].astype(str).unique()], of)


def attributes(scores: pd.DataFrame) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.str_]]]:
    """Returns the attributes of Score rows, each distinct combination once.

    Returns:
        (row,): which combination a row has; and of each attribute the values, (combination,), "" where a
        combination lacks it.
    """
    codes, texts = pd.factorize(scores["attributes"].astype(str))
    combinations = [_parse_attributes(text) for text in texts]
    names = sorted({name for combination in combinations for name in combination})
    values = {name: np.array([combination.get(name, "") for combination in combinations]) for name in names}
    return codes.astype(np.int64), values


def attribute_names(runs: Sequence[RunScores]) -> set[str]:
    """Returns attributes of `runs`' cases or sets' images."""
    of_sets = {name for run in runs for row in set_rows(run) for name, _ in row.where}
    return of_sets | {name for run in runs for name in attributes(run.scores)[1]}


UNKNOWN_NAME = ""
"""What stands for a group that is not known, before it has a name."""


def crossed_attributes(attribute: str, known: Iterable[str]) -> list[str]:
    """Returns attributes of a text, crossed as in "sex*site"."""
    if attribute in known:
        return [attribute]
    return [name.strip() for name in attribute.split(CROSSED)]


def _join_names(names: tuple[str, ...]) -> str:
    """Returns a crossed group's name; unknown where any part is."""
    return UNKNOWN_NAME if UNKNOWN_NAME in names else ", ".join(names)


def _named_groups(values: npt.NDArray[np.str_]) -> tuple[list[str], list[str]]:
    """Returns the group of each value, and the groups in their order."""
    names = [UNKNOWN_NAME if value in UNKNOWN_GROUPS else value for value in values.tolist()]
    return names, sorted(set(names) - {UNKNOWN_NAME})


def _binned_groups(values: npt.NDArray[np.str_], edges: Sequence[float]) -> tuple[list[str], list[str]]:
    """Returns the same of numbers; what is no number is not known."""
    order = [
        f"< {edges[0]:g}",
        *(f"{low:g} to < {high:g}" for low, high in pairwise(edges)),
        f">= {edges[-1]:g}",
    ]
    numbers = pd.to_numeric(pd.Series(values.tolist(), dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    unknown = np.isnan(numbers) | np.isin(values, list(UNKNOWN_GROUPS))
    bin_numbers = np.searchsorted(np.asarray(edges, dtype=np.float64), numbers, side="right")
    return [
        UNKNOWN_NAME if is_unknown else order[at] for is_unknown, at in zip(unknown, bin_numbers.tolist(), strict=True)
    ], order


def _parse_attributes(text: str) -> dict[str, str]:
    try:
        attributes = json.loads(text)
    except ValueError:
        return {}
    return {name: str(value) for name, value in attributes.items()} if isinstance(attributes, dict) else {}


def stratifying(run: RunScores, asked: str) -> str:
    """Returns the stratifying attribute of a run's clusters; else "".

    Args:
        run: The run; its task may name one, as `drawn_within` in its config.
        asked: The attribute that the table was asked to use; "" for what the task says.
    """
    named = run.task_config.get("drawn_within")
    return asked or (named if isinstance(named, str) else "")


def strata_of(run: RunScores, asked: str) -> pd.Series[str] | None:
    """Returns strata by scored case; None without stratification.

    Cases whose attribute is not known are a stratum of their own.

    Raises:
        UsageError: If no case has the attribute.
        UserError: If a patient has cases in two strata.
    """
    name = stratifying(run, asked)
    if not name or run.scores.empty:
        return None
    codes, values = attributes(run.scores)
    UsageError.refuse_unknown(f"No case of {run.task_title} has an attribute", values, name, then=" for strata")
    strata = pd.Series(values[name][codes], index=run.scores["case"].astype(str).to_numpy())
    first = ~strata.index.duplicated()
    strata = strata[first]
    if run.resampled == "patients":
        strata_of_patient = strata.groupby(run.scores["patient"].astype(str).to_numpy()[first]).unique()
        if len(torn := strata_of_patient[strata_of_patient.map(len) > 1]):
            one, two, *_ = torn.iloc[0]
            raise UserError(
                f"Patient {torn.index[0]!r} of {run.task_title} has cases of two strata, {name} {one!r} and {two!r}, "
                "and patients are drawn within strata; choose an attribute of patients, or leave strata out"
            )
    return strata


_KNOWN = {field.name for field in fields(SetValue)} - {"metric", "value", "details", "flags"}
_COUNTS: dict[str, Any] = dict.fromkeys(("n_real", "n_generated", "d"), 0)


@dataclass(frozen=True)
class SetRow:
    """One value of a set.

    Attributes:
        metric: As it was asked for.
        label: The finding that its images have, or `all`.
        where: Attribute and value of the images, of a group of them; empty for all.
        value: With its interval, its counts and its flags; NaN where there is nothing to judge, and a flag says why.
    """

    metric: str
    label: str
    where: tuple[tuple[str, str], ...]
    value: SetValue


def set_rows(run: RunScores) -> list[SetRow]:
    """Returns set values of a run, in row order."""
    columns = (run.sets[name] for name in ("metric", "label", "value", "attributes"))
    return [_set_row(*fields) for fields in zip(*columns, strict=True)]


def row_of_part(part: Part, metric: str) -> SetRow | None:
    """Returns the set value of a part; else None."""
    by, name = part.of
    label = name if by == LABEL else WHOLE
    where = ((by, name),) if by not in ("", LABEL) else ()
    fitting = (row for row in set_rows(part.run) if row.metric == metric)
    return next((row for row in fitting if (row.label, row.where) == (label, where)), None)


def _set_row(metric: str, label: str, value: float, attributes: str) -> SetRow:
    content: Mapping[str, Any] = json.loads(attributes)
    known_fields: dict[str, Any] = {
        key: math.nan if number is None else number for key, number in content.items() if key in _KNOWN
    }
    details = {key: math.nan if number is None else float(number) for key, number in content.get("details", {}).items()}
    set_value = SetValue(
        metric=metric,
        value=float(value),
        flags=tuple(map(str, content.get("flags", ()))),
        details=details,
        **(_COUNTS | known_fields),
    )
    return SetRow(metric, label, tuple(sorted(dict(content.get("where") or {}).items())), set_value)

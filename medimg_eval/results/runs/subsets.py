"""What one row of a table rests on: a whole run, one label of it, or one group of its cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.results.runs.metric_kinds import WHOLE, judged_labels

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.runs.loading import RunScores

LABEL = "label"
"""What a table is divided by to have one block per label; anything else is an attribute of the cases."""
UNKNOWN = "unknown"
"""The group of the cases whose attribute is not known."""
CROSSED = "*"
"""What stands between attributes that are crossed, as in "sex*site"."""

Bins = Mapping[str, Sequence[float]]
"""Of attributes that are numbers: the edges of their groups, ascending."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the Score rows of one finished run.

    Attributes:
        run: The run.
        scores: The rows that count.
        clusters: (case,), by case id: what is resampled, for every case of the part, also those without rows.
        of: What it is divided by and which part it is: `label` and a label, or an attribute and its value.
    """

    run: RunScores
    scores: pd.DataFrame
    clusters: pd.Series[str]
    of: tuple[str, str] = ("", "")

    @classmethod
    def whole(cls, run: RunScores) -> Part:
        """Returns all of a run."""
        cases = run.scores.drop_duplicates("case")
        names = cases["patient" if run.resampled == "patients" else "case"].astype(str)
        clusters = pd.Series(names.to_numpy(), index=cases["case"].astype(str))
        # Cases that no metric had anything to say of leave no rows, yet summaries count them as judged.
        silent = [f"\0{number}" for number in range(run.cases - len(cases))]
        return cls(run, run.scores, pd.concat([clusters, pd.Series(silent, index=silent, dtype=clusters.dtype)]))

    def labels(self) -> dict[str, Part]:
        """Returns one part per label that was judged, in the order of the rows; each still counts all cases."""
        judged = set(judged_labels(self.scores)["label"])
        found = {
            str(label): Part(self.run, rows, self.clusters, (LABEL, str(label)))
            for label, rows in self.scores.groupby("label", sort=False, observed=True)
            if label in judged and (label != WHOLE or self.run.sets.empty)
        }
        of_sets = [str(label) for label in self.run.sets["label"].unique() if label not in (WHOLE, *found)]
        return found | {label: Part(self.run, self.scores.iloc[:0], self.clusters, (LABEL, label)) for label in of_sets}

    def groups(self, attribute: str, bins: Bins | None = None) -> dict[str, Part]:
        """Returns one part per value of an attribute, by name, and the cases without one last.

        Args:
            attribute: An attribute, or several that are crossed, as in "sex*site": a group of their values together.
            bins: Attribute -> the edges of its groups, where it is a number: of [40, 60] these are "< 40", "40 to < 60"
                and ">= 60", in this order.
        """
        codes, values = attributes(self.scores)
        crossed = crossed_attributes(attribute, values)
        if any(one not in values for one in crossed):
            return {}
        named = [_binned(values[one], bins[one]) if bins and one in bins else _named(values[one]) for one in crossed]
        names = np.array([_together(one) for one in zip(*(found for found, _ in named), strict=True)], dtype=object)
        names = names[codes]
        present = set(names.tolist())
        parts = {}
        for name in map(_together, product(*(order for _, order in named))):
            if name in present:
                parts[name] = self._of_rows(names == name, (attribute, name))
        if UNKNOWN_NAME in present:
            parts[UNKNOWN] = self._of_rows(names == UNKNOWN_NAME)
        return parts

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
    combinations = [_parsed(text) for text in texts]
    names = sorted({name for combination in combinations for name in combination})
    values = {name: np.array([combination.get(name, "") for combination in combinations]) for name in names}
    return codes.astype(np.int64), values


def attribute_names(runs: Sequence[RunScores]) -> set[str]:
    """Returns the attributes that cases of `runs` have."""
    return {name for run in runs for name in attributes(run.scores)[1]}


UNKNOWN_NAME = ""
"""What stands for a group that is not known, before it has a name."""


def crossed_attributes(attribute: str, known: Iterable[str]) -> list[str]:
    """Returns the attributes that a text names: itself, or those that it crosses, as in "sex*site"."""
    if attribute in known:
        return [attribute]
    return [one.strip() for one in attribute.split(CROSSED)]


def _together(names: tuple[str, ...]) -> str:
    """Returns what a group of several attributes is called; not known where one of them is not."""
    return UNKNOWN_NAME if UNKNOWN_NAME in names else ", ".join(names)


def _named(values: npt.NDArray[np.str_]) -> tuple[list[str], list[str]]:
    """Returns the group of each value, and the groups in their order."""
    names = [UNKNOWN_NAME if value in UNKNOWN_GROUPS else value for value in values.tolist()]
    return names, sorted(set(names) - {UNKNOWN_NAME})


def _binned(values: npt.NDArray[np.str_], edges: Sequence[float]) -> tuple[list[str], list[str]]:
    """Returns the same of numbers; what is no number is not known."""
    order = [
        f"< {edges[0]:g}",
        *(f"{low:g} to < {high:g}" for low, high in pairwise(edges)),
        f">= {edges[-1]:g}",
    ]
    numbers = pd.to_numeric(pd.Series(values.tolist(), dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    unknown = np.isnan(numbers) | np.isin(values, list(UNKNOWN_GROUPS))
    places = np.searchsorted(np.asarray(edges, dtype=np.float64), numbers, side="right")
    return [UNKNOWN_NAME if lost else order[at] for lost, at in zip(unknown, places.tolist(), strict=True)], order


def _parsed(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}

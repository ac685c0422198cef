"""What one row of a table rests on: a whole run, one label of it, or one group of its cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.results.kinds import WHOLE, judged_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from medimg_eval.results.load import RunScores

LABEL = "label"
"""What a table is divided by to have one block per label; anything else is an attribute of the cases."""
UNKNOWN = "unknown"
"""The group of the cases whose attribute is not known."""


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

    def groups(self, attribute: str) -> dict[str, Part]:
        """Returns one part per value of an attribute, by name, and the cases without one last."""
        codes, values = attributes(self.scores)
        if attribute not in values:
            return {}
        names = values[attribute][codes]
        parts = {}
        for name in sorted(set(names.tolist()) - UNKNOWN_GROUPS):
            parts[name] = self._of_rows(names == name, (attribute, name))
        nameless = np.isin(names, list(UNKNOWN_GROUPS))
        if nameless.any():
            parts[UNKNOWN] = self._of_rows(nameless)
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


def _parsed(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}

"""Two models case by case: where one is right and the other wrong, or where their values differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics import get
from medimg_eval.results.comparison.fields import Field, make_fields
from medimg_eval.results.comparison.footnotes import described
from medimg_eval.results.comparison.pairwise import CompareSettings, Pair, against
from medimg_eval.results.runs import is_evidence, is_known, is_set, is_summary
from medimg_eval.results.statistics import settled
from medimg_eval.results.table import Layout, Line, Sheet, Span, named_runs, notebook_html, one_line, p_relation

if TYPE_CHECKING:
    from medimg_eval.results.runs import RunScores

FIRST, SECOND = "first", "second"
"""Which of two models is better on a case."""


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Two models on a task's shared cases with values.

    Attributes:
        field: what they are compared on.
        models: the first and the second.
        pair: their test, two-sided, the first less the second.
        how: the settings of the test.
    """

    field: Field
    models: tuple[str, str]
    pair: Pair
    how: CompareSettings

    @cached_property
    def values(self) -> pd.DataFrame:
        """Row per case: values `first` and `second`, and `better` or ""."""
        frame = pd.DataFrame({FIRST: self.field.scores[self.models[0]], SECOND: self.field.scores[self.models[1]]})
        frame = frame.dropna()
        difference = settled(frame[FIRST].to_numpy(), frame[SECOND].to_numpy()) * self.field.sign
        frame["better"] = np.select([difference > 0, difference < 0], [FIRST, SECOND], default="")
        frame.index.name = "case"
        return frame

    @cached_property
    def yes_no(self) -> bool:
        """Whether each value says that a case is right (1) or wrong (0)."""
        return self.field.sign > 0 and bool(self.values[[FIRST, SECOND]].isin((0.0, 1.0)).to_numpy().all())

    @cached_property
    def listed(self) -> pd.DataFrame:
        """Differing cases, first model's wins first, largest difference first.

        Beside the columns of `values` the `difference`, the first less the second.
        """
        differing = self.values[self.values["better"] != ""]
        frame = differing.assign(difference=differing[FIRST] - differing[SECOND])
        order = np.lexsort((-frame["difference"].abs().to_numpy(), (frame["better"] == SECOND).to_numpy()))
        return frame.iloc[order]

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Counts: both right, only first, only second, both wrong.

        Values other than right and wrong count as equal, the first better, the second better, and 0.
        """
        better = self.values["better"]
        first, second, equal = int((better == FIRST).sum()), int((better == SECOND).sum()), better == ""
        right = int((equal & (self.values[FIRST] == 1)).sum()) if self.yes_no else int(equal.sum())
        return right, first, second, int(equal.sum()) - right

    @cached_property
    def sheet(self) -> Sheet:
        """The counts as a table, its test below."""
        first, second = map(one_line, self.models)
        both, only_first, only_second, neither = ([Span(f"{count:,}")] for count in self.counts)
        title = f"{self.field.title}: {self.field.column.title}"
        mean = f"{self.pair.mean_difference:+.{self.field.column.decimals}f}"
        interval = "" if np.isnan(self.pair.low) else f" [{self.pair.low:.3g}, {self.pair.high:.3g}]"
        test = described(self.field, self.pair.test, self.how)
        note = f"{first} less {second}: {mean}{interval} on {len(self.values):,} cases of both; two-sided {test}: "
        note += "no difference to be tested." if np.isnan(self.pair.p) else f"p {p_relation(self.pair.p)}."
        notes = [note, *([f"{self.pair.left_out:,} cases have a value of only one."] if self.pair.left_out else [])]
        if self.yes_no:
            lines = [Line([f"{first} right"], [both, only_first]), Line([f"{first} wrong"], [only_second, neither])]
            layout = Layout.of_block(title, [f"{second} right", f"{second} wrong"], lines, notes, ["Cases"])
        else:
            lines = [
                Line([f"{first} better"], [only_first]),
                Line(["equal"], [both]),
                Line([f"{second} better"], [only_second]),
            ]
            layout = Layout.of_block(title, ["Cases"], lines, notes, [""])
        return Sheet(layout, pd.DataFrame.from_records([self.pair], columns=list(Pair._fields)))

    def _repr_html_(self) -> str:
        return notebook_html(self.sheet)


def disagreements(
    runs: Sequence[RunScores], models: Sequence[str], metric: str | None = None, how: CompareSettings | None = None
) -> list[Disagreement]:
    """Compares two models case by case on each shared task.

    Args:
        runs: as `load_runs` returns them.
        models: the first and the second, as a table calls them.
        metric: of single cases; None takes of each task the first one that has a direction.
        how: the settings of the test; None takes those of `CompareSettings`.

    Raises:
        UsageError: there is no such model or metric.
        UserError: no task has values of both for the same case.
    """
    how = CompareSettings() if how is None else how
    named = named_runs([run for run in runs if run.finished])
    if len(models) != 2 or models[0] == models[1]:
        raise UsageError(f"compare takes two models, as in compare=[A,B], got {', '.join(models) or 'none'}")
    UsageError.refuse_unknown("compare: no finished run is of a model", named, *models)
    disagreements = []
    for task in dict.fromkeys(run.task for run in runs):
        both = [named[model].get(task) for model in models]
        of_task = [run for run in both if run is not None]
        chosen = metric or (_first_metric(of_task) if len(of_task) == 2 else None)
        if len(of_task) < 2 or chosen is None:
            continue
        called = list(named_runs(of_task))
        # A baseline may be one of them, such as the model without images.
        baseline = next((name for name, run in zip(called, of_task, strict=True) if run.baseline), None)
        (field,) = make_fields(of_task, chosen, by_label=False, baseline=baseline)
        if not {*called} <= {*field.scores}:
            continue
        pairs = against(field, called[1], how)
        if pairs and pairs[0].n:
            disagreements.append(Disagreement(field, (called[0], called[1]), pairs[0], how))
    if not disagreements:
        raise UserError(f"{models[0]} and {models[1]} have no value for the same case, so there is nothing to compare")
    return disagreements


def _first_metric(runs: Sequence[RunScores]) -> str | None:
    """First directed single-case metric of both models."""
    scored = [set(run.scores["metric"].unique()) for run in runs]
    for name in runs[0].metrics or sorted(scored[0]):
        if not all(name in metrics for metrics in scored) or is_set(name) or is_summary(name) or is_evidence(name):
            continue
        if name in runs[0].directions or (is_known(name) and get(name).higher_is_better is not None):
            return name
    return None

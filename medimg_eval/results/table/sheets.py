"""What a comparison of models is made of, and the words that its sheets share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.results.table.footnotes import comparability

if TYPE_CHECKING:
    from medimg_eval.results.comparison import Field
    from medimg_eval.results.table.layout import Layout


@dataclass(frozen=True)
class Sheet:
    """One printable table of a comparison."""

    content: Layout
    numbers: pd.DataFrame

    def layout(self) -> Layout:
        """Returns every text in its place and style."""
        return self.content

    def frame(self) -> pd.DataFrame:
        """Returns the unrounded numbers, one row per test."""
        return self.numbers


@dataclass(frozen=True)
class Map:
    """Significance map: is the row's model better than the column's.

    Attributes:
        title: What it is a map of.
        models: The models, best median first.
        better: (model, model): True where the difference is significant.
        tested: (model, model): False on the diagonal and where no test could be made.
    """

    title: str
    models: tuple[str, ...]
    better: tuple[tuple[bool, ...], ...]
    tested: tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """Comparison of models by one metric: tables and maps."""

    title: str
    sheets: tuple[Sheet, ...]
    maps: tuple[Map, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Returns the numbers of all sheets."""
        return pd.concat([sheet.numbers for sheet in self.sheets], ignore_index=True)

    def _repr_html_(self) -> str:
        from medimg_eval.results.table import render  # which prints what is made here

        return render.notebook_html(*self.sheets)


def p_text(p: float) -> str:
    """Returns a p-value as it is printed, never as 0."""
    return "" if np.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def p_relation(p: float) -> str:
    """Returns a p-value as it stands in a sentence after "p"."""
    return "< 0.001" if p < 0.001 else f"= {p_text(p)}"


def cautions(field: Field, *, independent: bool = True) -> Iterator[str]:
    """Yields a task's basis, and weaknesses of its tests.

    Args:
        field: What is compared.
        independent: Whether the tests take all cases for independent of each other.
    """
    yield from comparability(field.title, field.runs)
    if field.baselines:
        yield f"{field.title}: baselines, which are not compared: {', '.join(field.baselines)}."
    if field.left_out:
        yield f"{field.title}: left out: {', '.join(field.left_out)}."
    for model, run in field.runs.items():
        if failed := run.scores.loc[run.scores["status"] == "failed", "case"].nunique():
            yield f"{field.title}, {model}: {failed} of {run.cases} cases failed, compared at the metric's worst value."
    for note in dict.fromkeys(note for run in field.runs.values() for note in run.notes):
        yield f"{field.title}: {note}"
    several = [
        model
        for model, run in field.runs.items()
        if run.resampled == "patients" and run.scores["patient"].nunique() < run.scores["case"].nunique()
    ]
    if several and independent:
        yield f"{field.title}: some patients have several cases, which these tests take for independent."

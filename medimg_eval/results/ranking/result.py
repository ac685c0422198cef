"""What a ranking of models over several data sets is made of; figures draw its frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

    from medimg_eval.results.table import Layout, Map, Sheet


class Friedman(NamedTuple):
    """Whether models differ over several data sets, and by how much mean ranks must to tell two apart.

    Attributes:
        p: Of Friedman's chi-square test; NaN with fewer than three models or two data sets.
        p_f: Of its correction by Iman and Davenport, which is less conservative.
        cd: Nemenyi's critical difference of mean ranks; NaN where there is no test.
        data_sets: Columns that all models have a value in, which the test rests on.
        exact: The p-value over all orders of the models on each data set; NaN where they are too many.
    """

    p: float
    p_f: float
    cd: float
    data_sets: int
    exact: float = float("nan")


@dataclass(frozen=True)
class Ranking:
    """Models ranked over data sets; a column is one metric of one data set, and columns are never averaged.

    Attributes:
        title: What is ranked.
        models: The models, the best first.
        overall: One row per model, in the order of `models`: `model`, `place` (from 1; equal mean ranks share it),
            `mean_rank` (of the columns that all models have, ties with their mean; NaN if there are none), `low` and
            `high` (95 % interval of the mean rank over resamples of patients), `first_share` (of resamples in which its
            mean rank is the best), `columns` (that it has a value in), `firsts` (columns in which no model is better),
            `borda` (share of the comparisons with other models that it wins, 0 to 1) and `kemeny` (its place in
            Kemeny's order).
        by_column: One row per column and model: `column` (its name as it is printed), `task`, `label`, `metric`,
            `model`, `value`, `n` (cases), `rank` (of the mean), `rank_of_ranks` (of the mean rank over cases),
            `rank_of_tests` (of the number of models that it is significantly better than), `low` and `high` (95 %
            interval of `rank` over resamples). Equal values share the smaller rank; NaN where there is none.
        distribution: The stability of ranks: `column`, `task`, `label`, `metric`, `model`, `rank` (a whole number from
            1) and `share` of the resamples in which the model has it (0 to 1, above 0). Shares of one column and model
            add up to 1. Only columns of which there are values of cases.
        significance: One row per column and ordered pair of models: `column`, `task`, `label`, `metric`, `model`,
            `other`, `n`, `p`, `corrected_p` and `significant`: whether `model` is better than `other`.
        wins: (model, other): over columns, how often the model of the row has the better value on the cases that both
            have; a tie counts one half.
        compared: (model, other): in how many columns the two could be compared.
        friedman: The test over columns.
        cliques: Groups of models, each a run of neighbours by mean rank, that do not differ by Nemenyi's test; none is
            part of another. The bars of a critical-difference diagram.
        sheets: The tables.
        maps: A significance map per column.
    """

    title: str
    models: tuple[str, ...]
    overall: pd.DataFrame
    by_column: pd.DataFrame
    distribution: pd.DataFrame
    significance: pd.DataFrame
    wins: pd.DataFrame
    compared: pd.DataFrame
    friedman: Friedman
    cliques: tuple[tuple[str, ...], ...]
    sheets: tuple[Sheet, ...]
    maps: tuple[Map, ...] = ()

    @property
    def cd(self) -> float:
        """Nemenyi's critical difference of mean ranks; NaN where there is none."""
        return self.friedman.cd

    @property
    def mean_ranks(self) -> dict[str, float]:
        """The mean rank of each model, the best first; NaN where no column has a value of every model."""
        found = self.overall.set_index("model")["mean_rank"].sort_values(kind="stable")
        return {str(model): float(value) for model, value in found.items()}

    def layout(self) -> Layout:
        """Returns the main table: every text in its place and style."""
        return self.sheets[0].layout()

    def frame(self) -> pd.DataFrame:
        """Returns the numbers of the main table, one row per model."""
        return self.overall

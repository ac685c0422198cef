"""A ranking printed: over data sets, on each of them, by three families of ranks, and pair by pair."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from medimg_eval.results.comparison import CORRECTIONS, LEVEL, described
from medimg_eval.results.ranking.orders import MOST_EXACT
from medimg_eval.results.runs import listed
from medimg_eval.results.statistics import FEWEST
from medimg_eval.results.table import Heading, Layout, Line, Sheet, Span, cautions, one_line, p_relation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from medimg_eval.results.comparison import CompareSettings
    from medimg_eval.results.ranking.columns import RankColumn
    from medimg_eval.results.ranking.ranking import Ranking
    from medimg_eval.results.table import Style

MOST_ACROSS = 6
"""Data sets up to which each has a column; more of them, if they are more than the models, have a row each."""

_DASH = "\N{EN DASH}"
_LEVEL = f"{100 * LEVEL:.0f} %"
_Cell: TypeAlias = "Callable[[RankColumn, str], list[Span]]"


class Printing(NamedTuple):
    """Facts of a ranking for its footnotes.

    Attributes:
        how: How pairs were tested.
        exact: Whether Kemeny's order is found for certain.
        resamples: Of the stability of ranks.
        lonely: Titles of columns that only one model was judged on.
        weights: Of the ranks by each metric; None where all weigh the same.
    """

    how: CompareSettings
    exact: bool
    resamples: int
    lonely: tuple[str, ...]
    weights: Mapping[str, float] | None = None

    @property
    def mean_rank(self) -> str:
        """Name of the mean of the ranks."""
        return "Mean rank" if self.weights is None else "Weighted rank"


def make_sheets(ranking: Ranking, columns: Sequence[RankColumn], made: Printing) -> Ranking:
    """Returns the ranking with its tables.

    Args:
        ranking: Everything but the tables.
        columns: Its columns.
        made: How it was made.
    """
    sheets = [
        _over_all(ranking, columns, made),
        _per_column(ranking, columns, made.resamples),
    ]
    if any(column.tests for column in columns):
        sheets += [_family_sheet(ranking, columns, made.how), _pairwise_sheet(ranking, columns)]
    return replace(ranking, sheets=tuple(sheets))


def _over_all(ranking: Ranking, columns: Sequence[RankColumn], made: Printing) -> Sheet:
    titles = [
        f"{made.mean_rank} \N{DOWNWARDS ARROW}",
        "First in \N{UPWARDS ARROW}",
        "Wins (Borda) \N{UPWARDS ARROW}",
        "Kemeny \N{DOWNWARDS ARROW}",
    ]
    lines = []
    for row in ranking.overall.to_dict("records"):
        is_ranked = not np.isnan(row["mean_rank"])
        mean = [Span(f"{row['mean_rank']:.2f}" if is_ranked else _DASH, "best" if row["place"] == 1 else "plain")]
        if not np.isnan(row["low"]):
            mean.append(Span(f"[{row['low']:.2f}, {row['high']:.2f}]", "interval"))
        share = _DASH if np.isnan(row["borda"]) else f"{100 * row['borda']:.0f} %"
        cells = [mean, [Span(f"{row['firsts']} of {row['columns']}")], [Span(share)], [Span(str(row["kemeny"]))]]
        lines.append(Line([str(row["place"]), row["model"]], cells))
    title, notes = f"Over {data_sets(len(columns))}", _ranking_notes(ranking, columns, made)
    content = Layout.of_block(title, titles, lines, notes, ["Place", "Model"], ranking.title)
    return Sheet(content, ranking.overall)


def _ranking_notes(ranking: Ranking, columns: Sequence[RankColumn], made: Printing) -> Iterator[str]:
    test = ranking.friedman
    if test.data_sets < len(columns):
        held = f"Only {test.data_sets} of {len(columns)} columns hold" if test.data_sets else "No column holds"
        yield (
            f"{held} a value of every model on cases that all share. Mean ranks over different data sets cannot be "
            "compared: they are of those only, and the models stand in Kemeny's order of pairwise counts."
        )
    else:
        order = "mean ranks" if made.weights is None else "weighted ranks"
        yield f"Models in the order of their {order}; values of different data sets are never averaged."
    if made.weights is not None:
        yield f"Weighted rank: {_sum_of_ranks(columns, made.weights)}."
    yield (
        f"{made.mean_rank} [{_LEVEL} interval: percentile bootstrap of patients within each data set, {made.resamples} "
        "resamples; it says nothing of other data sets, and ranks of models close to each other are drawn to the "
        "middle in it]; ties share their mean rank. First in: data sets in which no "
        "model is better, of those with a value. Wins (Borda): share of the comparisons with other models that it "
        "wins, on the cases that both have, ties one half."
    )
    method_text = (
        "."
        if made.exact
        else f", found by moving one model at a time: with more than {MOST_EXACT} models there may be a better one."
    )
    yield (
        "Kemeny: place in an order that goes against as few pairwise comparisons as possible; of models that it cannot "
        f"tell apart the one with the larger share of wins goes first{method_text}"
    )
    yield (
        _friedman_note(ranking, made.how)
        if made.weights is None
        else "No test of Friedman and Nemenyi: theirs is of ranks that weigh the same."
    )
    tasks = [column.field.task for column in columns]
    if made.weights is None and len(set(tasks)) < len(tasks):
        yield "Several columns are of one data set; they are not independent, which Friedman's test takes them for."
    if made.lonely:
        yield f"Only one model was judged on {listed(made.lonely)}, which is left out."
    for column in columns:
        if column.cases > column.n:
            yield f"{column.title}: ranked on {column.n} of {column.cases} cases, those that all models have."
    for field in {column.field.task: column.field for column in columns}.values():
        yield from cautions(field, independent=False)


def _sum_of_ranks(columns: Sequence[RankColumn], weights: Mapping[str, float]) -> str:
    total = " + ".join(f"{weight:g} rank({metric})" for metric, weight in weights.items())
    if (together := math.fsum(weights.values())) != 1:
        total = f"({total}) / {together:g}"
    return total if len({column.field.task for column in columns}) == 1 else f"the mean over data sets of {total}"


def _friedman_note(ranking: Ranking, how: CompareSettings) -> str:
    test = ranking.friedman
    if np.isnan(test.cd):
        return (
            "Friedman's test needs at least 3 models and 2 data sets that have all of them; here are "
            f"{len(ranking.models)} models and {test.data_sets}."
        )
    p = f"p {p_relation(test.p)} (Iman and Davenport's correction: p {p_relation(test.p_f)})"
    if not np.isnan(test.exact):
        p = f"p {p_relation(test.exact)} (exact, over all orders of the models)"
    note = (
        f"Friedman's test over {data_sets(test.data_sets)}: {p}. Nemenyi's critical difference of mean ranks at "
        f"{how.alpha:g}: {test.cd:.2f}"
    )
    if not ranking.cliques:
        return f"{note}; all pairs differ."
    return (
        f"{note}; no difference is shown within {listed(['{' + ', '.join(group) + '}' for group in ranking.cliques])}."
    )


def _per_column(ranking: Ranking, columns: Sequence[RankColumn], resamples: int) -> Sheet:
    ranked_rows = _ranked_rows(ranking)

    def cell(column: RankColumn, model: str) -> list[Span]:
        row = ranked_rows.get((column.title, model))
        if row is None or np.isnan(row["rank"]):
            return [Span(_DASH, "quiet")]
        style: Style = "best" if row["rank"] == 1 else "second" if row["rank"] == 2 else "plain"
        spans = [Span(f"{row['rank']:.0f}", style)]
        if not np.isnan(row["low"]):
            spans.append(Span(f"[{row['low']:.0f}, {row['high']:.0f}]", "interval"))
        return [*spans, Span(f"({column.column.text(row['value'])})", "interval")]

    method = f"{_LEVEL} interval over {resamples} resamples of patients"
    notes = [f"Rank [{method}] (value); equal values share the smaller rank."]
    notes += [f"{column.title}: of a whole set, so its rank has no interval." for column in columns if not column.cases]
    few = [column.title for column in columns if column.cases and column.resampled is None]
    notes += [f"Too few patients for an interval (fewer than {FEWEST}): {listed(few)}."] if few else []
    content = _ranking_layout(ranking, columns, cell, notes, "Ranks on each data set")
    return Sheet(content, ranking.by_column)


def _family_sheet(ranking: Ranking, columns: Sequence[RankColumn], how: CompareSettings) -> Sheet:
    ranked_rows = _ranked_rows(ranking)
    names = ("rank", "rank_of_ranks", "rank_of_tests")

    def cell(column: RankColumn, model: str) -> list[Span]:
        row = ranked_rows.get((column.title, model))
        if row is None:
            return [Span(_DASH, "quiet")]
        ranks = [row[name] for name in names]
        return [Span(" / ".join(_DASH if np.isnan(rank) else f"{rank:.0f}" for rank in ranks))]

    tested = [column for column in columns if column.tests]
    methods = dict.fromkeys(described(column.field, column.tests[0].test, how) for column in tested)
    method = (
        "Rank of the mean over cases / of the mean rank over cases / of the number of models that it is significantly "
        f"better than (p < {how.alpha:g}, one-sided {'; '.join(methods)}, corrected by {CORRECTIONS[how.correction]} "
        "over all ordered pairs of a column)."
    )
    content = _ranking_layout(ranking, columns, cell, [method], "Ranks by three families of ranking")
    return Sheet(content, ranking.by_column)


def _pairwise_sheet(ranking: Ranking, columns: Sequence[RankColumn]) -> Sheet:
    tested: dict[tuple[str, str], int] = {}
    better: dict[tuple[str, str], int] = {}
    for column in columns:
        for test in column.tests:
            if test.n and not np.isnan(test.p):
                tested[test.model, test.other] = tested.get((test.model, test.other), 0) + 1
                better[test.model, test.other] = better.get((test.model, test.other), 0) + test.significant

    def cell(model: str, other: str) -> list[Span]:
        if (model, other) not in tested:
            return [Span("" if model == other else _DASH, "quiet")]
        count, back = better[model, other], better[other, model]
        return [Span(f"{count} of {tested[model, other]}", "best" if count > back else "plain" if count else "quiet")]

    note = (
        "Data sets in which the model of the row is significantly better than that of the column; in bold where that "
        "is more often than the other way round."
    )
    lines = [Line([model], [cell(model, second) for second in ranking.models]) for model in ranking.models]
    caption = "Significant differences over data sets"
    content = Layout.of_block("Significantly better than", ranking.models, lines, [note], ["Model"], caption)
    numbers = [
        {"model": model, "other": second, "tested": count, "better": better[model, second]}
        for (model, second), count in tested.items()
    ]
    return Sheet(content, pd.DataFrame.from_records(numbers))


def _ranking_layout(
    ranking: Ranking, columns: Sequence[RankColumn], cell: _Cell, notes: Sequence[str], caption: str
) -> Layout:
    """Returns a table of data sets as columns, or rows."""
    if len(columns) > max(MOST_ACROSS, len(ranking.models)):
        metrics = len({column.column.title for column in columns})
        title = "Model" if metrics > 1 else columns[0].column.title
        lines = [Line([column.title], [cell(column, model) for model in ranking.models]) for column in columns]
        return Layout.of_block(title, ranking.models, lines, notes, ["Data set"], caption)
    return Layout(
        groups=[(one_line(column.title), 1) for column in columns],
        headings=[Heading(one_line(column.title), column.column.heading) for column in columns],
        lines=[Line([one_line(model)], [cell(column, model) for column in columns]) for model in ranking.models],
        footnotes=[one_line(note) for note in notes],
        stubs=["Model"],
        caption=caption,
    )


def _ranked_rows(ranking: Ranking) -> dict[tuple[str, str], dict[Hashable, Any]]:
    """Returns the rows of `by_column`, by column and model."""
    return {(row["column"], row["model"]): row for row in ranking.by_column.to_dict("records")}


def data_sets(number: int) -> str:
    """Returns a number of data sets in words."""
    return f"{number} data set" if number == 1 else f"{number} data sets"

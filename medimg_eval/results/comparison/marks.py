"""Signs of significance in a table: † and ‡ behind values that a paired test tells from those of another model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from medimg_eval.errors import UsageError
from medimg_eval.results.comparison.fields import EVERY_LABEL, make_fields, scored
from medimg_eval.results.comparison.footnotes import CORRECTIONS, described
from medimg_eval.results.comparison.pairwise import CompareSettings, against
from medimg_eval.results.runs import LABEL, is_set, listed
from medimg_eval.results.table import all_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medimg_eval.results.comparison.fields import Field
    from medimg_eval.results.table import Table

BEST = "best"
"""Tests every model against the best of its column."""
BETTER, WORSE = "\N{DAGGER}", "\N{DOUBLE DAGGER}"


def marked(table: Table, against_what: str, how: CompareSettings | None = None) -> Table:
    """Returns the table with signs of significance and a footnote.

    Every model is tested against the one named, or against the best of its column, by the paired test that `compare`
    takes for the metric, two-sided, and corrected for the number of models in each column (and label). Columns of
    sets, and of metrics without a direction, get no signs.

    Args:
        table: As `build_table` returns it, of means over cases, divided by nothing or by label.
        against_what: "best", or the name of a row, which may be a baseline.
        how: How models are tested.

    Raises:
        UsageError: If the table is of another kind, or there is no such row.
    """
    if table.own_columns or table.by not in ("", LABEL):
        raise UsageError("marks are for tables of means over cases, divided by nothing or by label; leave out marks")
    names = list(dict.fromkeys(row.name for row in table.rows))
    UsageError.refuse_unknown("marks names", (BEST, *names), against_what, then=", which has no row")
    settings = how or CompareSettings()
    settings.check()
    rows = [list(row.cells) for row in table.rows]
    tests: dict[str, dict[str, None]] = {}
    for column, metric in enumerate(table.columns):
        if metric.higher_is_better is None or is_set(metric.metric):
            continue
        for label, members in _row_blocks(table).items():
            compared = _compared_field(table, column, members, label, against_what)
            if compared is None:
                continue
            field, rival = compared
            test, signs = _significance_signs(field, rival, settings)
            tests.setdefault(described(field, test, settings), {})[metric.title] = None
            for member in members:
                run = rows[member][column].run
                if run is not None:
                    rows[member][column] = replace(rows[member][column], sign=signs.get(run.run, ""))
    marked_rows = tuple(replace(row, cells=tuple(cells)) for row, cells in zip(table.rows, rows, strict=True))
    notes = [*table.footnotes, *([_signs_note(against_what, tests, settings)] if tests else [])]
    return replace(table, rows=marked_rows, footnotes=notes)


def _row_blocks(table: Table) -> dict[str, list[int]]:
    """Returns row indices compared together, by label; "" for all."""
    blocks: dict[str, list[int]] = {}
    for index, row in enumerate(table.rows):
        blocks.setdefault(EVERY_LABEL if row.group in ("", all_of(LABEL)) else row.group, []).append(index)
    return blocks


def _compared_field(
    table: Table, column: int, members: Sequence[int], label: str, against_what: str
) -> tuple[Field, str] | None:
    """Returns a block's comparable values and the reference run, if any."""
    metric = table.columns[column].metric
    rival, runs = "", []
    for member in members:
        row, cell = table.rows[member], table.rows[member].cells[column]
        if cell.run is None or not cell.n or not scored(cell.run, metric):
            continue
        chosen = cell.mark == "best" if against_what == BEST else row.name == against_what
        if chosen and not rival:
            rival = cell.run.run
        if chosen or not cell.run.baseline:
            runs.append(cell.run)
    if not rival or len(runs) < 2:
        return None
    # Whatever is given here as no baseline is compared; those that are none of the block's rivals are left out above.
    fields = make_fields([replace(run, baseline=False) for run in runs], metric, by_label=label != EVERY_LABEL)
    field = next((label_field for label_field in fields if label_field.label == label), None)
    run_ids = {} if field is None else {run.run for run in field.runs.values()}
    return (field, rival) if field is not None and rival in run_ids and len(run_ids) > 1 else None


def _significance_signs(field: Field, rival: str, how: CompareSettings) -> tuple[str, dict[str, str]]:
    """Returns the test, and each differing run's sign."""
    runs = {name: run.run for name, run in field.runs.items()}
    name = next(name for name, run in runs.items() if run == rival)
    signs = {}
    pairs = against(field, name, how)
    for pair in pairs:
        if pair.significant:
            signs[runs[pair.model]] = BETTER if field.sign * pair.mean_difference > 0 else WORSE
    return pairs[0].test, signs


def _signs_note(against_what: str, tests: Mapping[str, Mapping[str, None]], how: CompareSettings) -> str:
    """Returns what the signs mean."""
    best = against_what == BEST
    signs = f"{WORSE}: worse than the best" if best else f"{BETTER}, {WORSE}: better, worse than {against_what}"
    tests_text = "; ".join(f"{listed(list(titles))}: {test}" for test, titles in tests.items())
    flattered = " The best was chosen by the same values, which makes it look better than it is." if best else ""
    return (
        f"{signs} by a two-sided paired test, p < {how.alpha:g} after correction ({CORRECTIONS[how.correction]}) for "
        f"the models of a metric, not for several metrics, tasks or labels. {tests_text}.{flattered}"
    )

"""What commands print."""

import pytest

from medimg_eval.commands import console
from medimg_eval.results.table.cells import Cell, Column, Row
from medimg_eval.results.table.table import Table


def table(tasks):
    columns = tuple(Column(f"t{i}", f"A task with a long title {i}", "dice", "Dice", True, 3) for i in range(tasks))
    return Table(columns, (Row("Model", (Cell(),) * tasks),), ["a footnote"])


@pytest.mark.parametrize(("tasks", "tables"), [(1, 1), (3, 1), (9, 9)])
def test_tasks_stand_side_by_side_where_they_fit_and_below_each_other_else(capsys, tasks, tables):
    made = table(tasks)
    console.show(made)
    printed = capsys.readouterr().out
    assert sum(line.startswith("┏") for line in printed.splitlines()) == tables
    assert printed.count("a footnote") == 1
    assert max(map(len, printed.splitlines())) <= 160

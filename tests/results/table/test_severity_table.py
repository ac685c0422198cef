"""Table of a sweep: columns of severities, paired losses, which case breaks first."""

import pytest

from medimg_eval.errors import UserError
from medimg_eval.results import load_runs
from medimg_eval.results.table import break_severities, build_severity_tables
from medimg_eval.results.table.cells import Settings

QUICK = Settings(resamples=200, level=0.95, seed=0)


def rows(case, *values):
    return [(case, 0, f"blur-{severity}" if severity else "", value) for severity, value in enumerate(values)]


def test_a_row_for_each_degradation_with_what_is_lost(vary):
    folder = vary(
        [*rows("a", 0.9, 0.9, 0.7), *rows("b", 0.8, 0.4, 0.4), *rows("c", 0.7, 0.7, 0.7), ("a", 0, "noise-1", 0.9)],
        metric="dice",
    )
    (run,) = load_runs([folder])
    (table,) = build_severity_tables([run], settings=QUICK)
    assert [row.group for row in table.rows] == ["blur", "noise"]
    found = dict(zip((column.title for column in table.columns), table.rows[0].cells, strict=True))
    # Worked: means 0.8, 2/3 and 0.6; of each case the mean over severities 1 and 2 is 0.1, 0.4 and 0 below.
    assert found["Dice at 0"].mean == pytest.approx(0.8)
    assert found["Dice at 1"].mean == pytest.approx(2 / 3)
    assert found["Drop"].mean == pytest.approx(0.5 / 3)
    assert found["Relative drop"].mean == pytest.approx(0.5 / 2.4)
    assert found["Slope over severity"].mean == pytest.approx((-0.1 - 0.2 + 0) / 3)
    # Weights 2/3 and 4/9: losses 0, 0.2 and 0.4, 0.4 give 0.08 and 0.4.
    assert found["Weighted degradation"].mean == pytest.approx(0.48 / 3)
    assert found["Severities held"].mean == pytest.approx((1 + 0 + 2) / 3)
    assert table.rows[1].cells[2].absent  # noise has no severity 2
    assert break_severities(run, "dice")["blur"].to_dict() == {"a": 1, "b": 0, "c": 2}
    assert "Net: first to break, by severities held on average over the degradations: b (0.0)" in table.footnotes[-1]
    assert "@NAME" not in " ".join(table.footnotes)


def test_a_run_without_degraded_cases_is_refused(vary):
    with pytest.raises(UserError, match="No run has degraded cases; make one by"):
        build_severity_tables(load_runs([vary([("a", 0, "", 1.0)])]), settings=QUICK)

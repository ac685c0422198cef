"""Monthly runs as a control chart: the right kind, months, violations, table, figure, and the command's end."""

from __future__ import annotations

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_runs
from medimg_eval.results.monitoring import monitor
from medimg_eval.results.table import Settings

FAST = Settings(200, 0.95, 0)
MONTHS = [f"2026-{month:02d}" for month in range(1, 9)]


def month_rows(month, values, metric="dice"):
    return [(f"{month}-{n}", f"{month}-{n}", "liver", metric, float(one), "present") for n, one in enumerate(values)]


@pytest.fixture
def monthly(write_run):
    """Eight monthly runs of the same model; from the last but one on Dice is lower."""

    def make(metric="dice", draw=None):
        rng = np.random.default_rng(3)
        draw = draw or (lambda bad: rng.normal(0.7 if bad else 0.9, 0.05, 20).clip(0, 1))
        return [
            write_run(
                f"run{number}",
                month_rows(month, draw(number >= 6), metric),
                model="Product",
                metrics=[metric],
                started=f"{month}-03T10:00:00+00:00",
                data_fingerprint=month,
            )
            for number, month in enumerate(MONTHS)
        ]

    return make


def test_runs_are_periods_and_a_worse_month_is_named(monthly):
    found = monitor(load_runs(monthly()), "dice", baseline=6, settings=FAST)
    assert found.kind == "xbar"
    assert found.frame["period"].tolist() == MONTHS
    assert found.frame["violations"].ne("").tolist() == [False] * 6 + [True] * 2
    assert found.violated[0].startswith("2026-07: worse: beyond a limit")
    assert found.frame.loc[0, "low"] < found.frame.loc[0, "value"] < found.frame.loc[0, "high"]
    sheet = found.sheet()
    assert "first 6 of 8 periods" in sheet.layout().footnotes[0]
    drawn = found.draw()
    assert "2026-07: worse" in drawn.caption
    assert drawn.frame["period"].tolist() == MONTHS


def test_shares_get_a_p_chart_and_dates_are_months(write_run):
    rng = np.random.default_rng(0)
    rows, dates = [], {}
    for month in MONTHS:
        for row in month_rows(month, rng.random(30) < 0.8, "accuracy"):
            rows.append(row)
            dates[row[0]] = {"acquired": f"{month}-{1 + len(rows) % 28:02d}"}
    run = load_runs([write_run("all", rows, dates, metrics=["accuracy"])])
    found = monitor(run, "accuracy", by="acquired", settings=FAST)
    assert found.kind == "p"
    assert found.frame["period"].tolist() == MONTHS
    assert found.frame["n"].tolist() == [30] * 8
    assert found.violated == []
    assert monitor(run, "accuracy", by="acquired", kind="cusum", settings=FAST).frame["upper_limit"].iloc[0] == 4.77


def test_what_cannot_be_charted(monthly, write_run):
    runs = load_runs(monthly())
    with pytest.raises(UserError, match="three periods"):
        monitor(runs[:2], "dice", settings=FAST)
    with pytest.raises(UsageError, match="p is for shares"):
        monitor(runs, "dice", kind="p", settings=FAST)
    with pytest.raises(UsageError, match="by: no case has 'acquired'"):
        monitor(runs, "dice", by="acquired", settings=FAST)
    with pytest.raises(UsageError, match="no run was scored by 'iou'"):
        monitor(runs, "iou", settings=FAST)
    other = load_runs([write_run("other", model="Other")])
    with pytest.raises(UsageError, match="these are 2 models"):
        monitor([*runs, *other], "dice", settings=FAST)


def test_the_command_prints_draws_and_ends_with_a_code_of_its_own(monthly, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monthly()
    words = ["monitor", "runs=runs", "metric=dice", "resamples=100"]
    assert start([*words, "baseline=6", "out=chart"]) == 3
    out, err = capsys.readouterr()
    assert "X-bar chart of Organs" in out
    assert "2026-07: worse: beyond a limit" in err
    assert {file.suffix for file in (tmp_path / "chart").iterdir()} == {".pdf", ".png", ".csv", ".txt"}
    lines = [
        f"{month}-{n},M,dice,{0.8 + 0.1 * (k % 2) + 0.01 * n},{month}"
        for k, month in enumerate(MONTHS)
        for n in range(6)
    ]
    (tmp_path / "ok.csv").write_text("\n".join(["case,model,metric,value,month", *lines]) + "\n")
    assert start(["monitor", "scores=ok.csv", "metric=dice", "by=month", "kind=individuals", "resamples=100"]) == 0
    assert "in control" in capsys.readouterr().out

"""Severity curves: means of each severity, slopes by hand, and what cannot be drawn."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UserError
from medimg_eval.results import figures
from medimg_eval.results.figures.inputs import as_runs
from medimg_eval.results.runs import list_sweeps
from medimg_eval.results.table.cells import Settings, make_cell

QUICK = Settings(resamples=500, level=0.95, seed=0)


def sweep(clean, degraded, patients=None):
    """Dice of cases as published, and of each condition."""
    patients = patients or [f"p{place}" for place in range(len(clean))]
    frame = pd.DataFrame(
        [
            {"model": "A", "case": f"c{place}", "patient": patients[place], "condition": condition, "value": value}
            for condition, values in {"": clean, **degraded}.items()
            for place, value in enumerate(values)
        ]
    ).assign(metric="dice", label="", status="present", attributes="{}")
    frame = frame.dropna(subset=["value"])
    published = frame["condition"] == ""
    (run,) = as_runs(frame[published].drop(columns="condition"), "dice")
    return [replace(run, varied=frame[~published])]


def test_means_and_slopes_by_hand():
    # Case c0 loses 0.1 a degree, c1 0.2; c2 lies at 0.5 throughout; and each once more.
    runs = sweep([0.9, 0.8, 0.5] * 2, {"blur-1": [0.8, 0.6, 0.5] * 2, "blur-3": [0.6, 0.2, 0.5] * 2})
    drawn = figures.severity(runs, "dice", settings=QUICK)
    assert drawn.frame["severity"].tolist() == [0, 1, 3]
    assert drawn.frame["mean"].tolist() == pytest.approx([2.2 / 3, 1.9 / 3, 1.3 / 3])
    assert drawn.frame["slope"].tolist() == pytest.approx([-0.1] * 3)
    assert drawn.frame["slope low"].iloc[0] >= -0.2 - 1e-9
    assert drawn.frame["slope high"].iloc[0] <= 1e-9
    cell = make_cell(as_runs(runs, "dice")[0], "severity_slope@blur:dice", QUICK)
    assert tuple(drawn.frame.loc[0, ["slope", "slope low", "slope high"]]) == (cell.mean, cell.low, cell.high)
    assert "steepest under blur, -0.1" in drawn.caption
    (axes,) = (axes for axes in drawn.figure.axes if axes.get_title())
    assert axes.get_lines()[0].get_xydata().tolist() == drawn.frame[["severity", "mean"]].to_numpy().tolist()


def test_a_case_without_one_severity_is_in_no_slope_and_one_patient_has_no_interval():
    runs = sweep([0.9, 0.8], {"blur-1": [0.8, np.nan], "blur-3": [0.6, 0.2]}, patients=["p", "p"])
    drawn = figures.severity(runs, "dice", settings=QUICK)
    assert drawn.frame["slope"].tolist() == pytest.approx([-0.1] * 3)
    assert drawn.frame[["slope low", "slope high"]].isna().all(axis=None)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=6), st.floats(0, 1))
def test_slopes_are_those_of_numpys_least_squares(slopes, start):
    at = [0, 1, 2, 5]
    values = {severity: [start + slope * severity + 0.01 * severity**2 for slope in slopes] for severity in at}
    runs = sweep(values[0], {f"noise-{severity}": values[severity] for severity in at[1:]})
    drawn = figures.severity(runs, "dice", settings=QUICK)
    each = [np.polyfit(at, [values[severity][place] for severity in at], 1)[0] for place in range(len(slopes))]
    assert drawn.frame["slope"].iloc[0] == pytest.approx(np.mean(each), abs=1e-9)


def test_conditions_of_sweeps_are_told_from_others():
    assert list_sweeps(["blur-3", "blur-1", "mri_affine-5", "without_oct", "grey"]) == {
        "blur": [1, 3],
        "mri_affine": [5],
    }


def test_runs_without_degraded_cases_are_refused():
    with pytest.raises(UserError, match=r"No run has degraded cases; make one by `test degrade="):
        figures.severity(sweep([0.9, 0.8], {}), "dice", settings=QUICK)

"""Kaplan-Meier figures: groups at the median risk, steps and bands by hand, the log-rank test, the command's keys."""

import numpy as np
import pandas as pd
import pytest

from medimg_eval.errors import UserError
from medimg_eval.metrics.survival import log_rank
from medimg_eval.results import figures


def frame(times, events, risks, model="m"):
    rows = []
    for at, (time, event, risk) in enumerate(zip(times, events, risks, strict=True)):
        status = "event" if event else "censored"
        rows.append({"model": model, "case": f"c{at}", "metric": "follow_up", "value": time, "status": status})
        failed = "failed" if np.isnan(risk) else status
        rows.append({"model": model, "case": f"c{at}", "metric": "predicted_risk", "value": risk, "status": failed})
    return pd.DataFrame(rows).assign(label="risk")


def test_curves_and_bands_by_hand():
    # High risk: events at 1 and 3, one censored at 2; low risk: one event at 4, two censored at 5.
    times, events, risks = [1, 2, 3, 4, 5, 5], [1, 0, 1, 1, 0, 0], [9, 8, 7, 3, 2, 1]
    drawn = figures.kaplan_meier(frame(times, events, risks))
    high = drawn.frame[drawn.frame["risk"] == "high risk"]
    assert high["time"].tolist() == [1, 2, 3]
    assert high["survival"].tolist() == pytest.approx([2 / 3, 2 / 3, 0])
    assert high["at_risk"].tolist() == [3, 2, 1]
    # Greenwood at 1: variance of log S is 1 / (3 x 2); on the scale of log(-log S) +-1.96 x 0.408 / 0.405.
    reach = np.exp(1.959964 * np.sqrt(1 / 6) / -np.log(2 / 3))
    assert high[["low", "high"]].iloc[0].tolist() == pytest.approx([(2 / 3) ** reach, (2 / 3) ** (1 / reach)])
    assert np.isnan(high["low"].iloc[2])
    test = log_rank(times, events, np.array(risks) > 5)
    assert (
        f"n = 3 of low and 3 of high risk; log-rank p = {test.p:.3f}, chi-squared {test.statistic:.2f}" in drawn.caption
    )
    assert "median of the cases judged, which was not fixed before" in drawn.caption


def test_models_have_panels_and_failed_cases_are_in_no_group():
    random = np.random.default_rng(0)
    times, events = random.exponential(10, 30), random.random(30) < 0.7
    risks = -times + random.normal(0, 3, 30)
    risks[3] = np.nan
    both = pd.concat([frame(times, events, risks, "one"), frame(times, events, -risks, "two")])
    drawn = figures.kaplan_meier(both, width="double")
    assert len(drawn.figure.axes) == 2
    assert set(drawn.frame["model"]) == {"one", "two"}
    assert "1 cases without a prediction in neither" in drawn.caption
    with pytest.raises(UserError, match="No model has cases of low and of high risk"):
        figures.kaplan_meier(frame([1, 2], [1, 1], [0, 0]))

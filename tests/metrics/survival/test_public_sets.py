"""Survival on public sets that scikit-survival ships: its values, digit by digit; skipped where it is not there."""

import numpy as np
import pytest

from medimg_eval.metrics.survival import (
    brier_score,
    dynamic_auc,
    harrell,
    integrated_brier_score,
    kaplan_meier,
    log_rank,
    uno,
)
from medimg_eval.metrics.survival.horizons import mean_over_time

datasets = pytest.importorskip("sksurv.datasets")
SIX = {"abs": 6e-7}


def test_gbsg2_by_the_number_of_nodes():
    frame, seen = datasets.load_gbsg2()
    times, events, nodes = seen["time"], seen["cens"], frame["pnodes"].to_numpy(float)
    assert (len(times), events.sum()) == (686, 299)
    found = harrell(times, events, nodes)
    assert (found.concordant, found.discordant, found.tied) == (78_870, 40_214, 13_988)
    assert float(found.value) == pytest.approx(0.645245, **SIX)
    assert float(uno(times, events, nodes).value) == pytest.approx(0.645923, **SIX)
    assert float(uno(times, events, nodes, 1825).value) == pytest.approx(0.629830, **SIX)
    horizons = (365, 1095, 1825)
    areas = [dynamic_auc(times, events, nodes, horizon) for horizon in horizons]
    assert [float(one) for one in areas] == pytest.approx([0.716698, 0.696783, 0.653537], **SIX)
    assert float(mean_over_time(horizons, areas, times, events, np.ones(len(times)))) == pytest.approx(0.687247, **SIX)


def test_veterans_by_coxs_model_of_all_columns():
    linear = pytest.importorskip("sksurv.linear_model")
    metrics = pytest.importorskip("sksurv.metrics")
    encode = pytest.importorskip("sksurv.preprocessing").OneHotEncoder
    frame, seen = datasets.load_veterans_lung_cancer()
    times, events = seen["Survival_in_days"], seen["Status"]
    columns = encode().fit_transform(frame)
    model = linear.CoxPHSurvivalAnalysis().fit(columns, seen)
    risks = model.predict(columns)
    found = harrell(times, events, risks)
    assert (found.concordant, found.discordant, found.tied) == (6_482, 2_322, 0)
    assert float(found.value) == pytest.approx(0.736256, **SIX)
    weighted = [float(uno(times, events, risks, tau).value) for tau in (np.inf, 100, 365)]
    assert weighted == pytest.approx([0.728339, 0.774399, 0.729623], **SIX)
    horizons = (30, 90, 180, 365)
    areas = [dynamic_auc(times, events, risks, horizon) for horizon in horizons]
    theirs, mean = metrics.cumulative_dynamic_auc(seen, seen, risks, horizons)
    assert [float(one) for one in areas] == pytest.approx(theirs)
    assert [float(one) for one in areas] == pytest.approx([0.83419, 0.86618, 0.80223, 0.78074], abs=1e-5)
    assert float(mean_over_time(horizons, areas, times, events, np.ones(len(times)))) == pytest.approx(mean)
    assert mean == pytest.approx(0.82624, abs=1e-5)
    survival = np.array([[step(horizon) for horizon in horizons] for step in model.predict_survival_function(columns)])
    briers = [brier_score(times, events, survival[:, place], horizon) for place, horizon in enumerate(horizons)]
    assert [float(one) for one in briers] == pytest.approx([0.15049, 0.15260, 0.13846, 0.07258], abs=1e-5)
    assert float(integrated_brier_score(horizons, briers)) == pytest.approx(0.124512, **SIX)
    curve = kaplan_meier(times, events)
    assert float(curve.at([100])[0]) == pytest.approx(0.417995, **SIX)
    assert float(curve.median()) == 80
    test = log_rank(times, events, frame["Treatment"].to_numpy(str))
    assert (test.statistic, test.p) == (pytest.approx(0.0082273, abs=6e-8), pytest.approx(0.927727, **SIX))

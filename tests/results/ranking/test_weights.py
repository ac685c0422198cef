"""Ranks by several metrics weighed, and tasks pooled, as MC-MRRec ranks."""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_scores
from medimg_eval.results.ranking.ranking import pool, rank_models

WEIGHTS = {"ssim@mcmrrec": 0.4, "psnr@mcmrrec": 0.2, "vif@mcmrrec": 0.4}

# Of both accelerations together SSIM ranks A, B, C; pSNR B, C, A; VIF A and C alike, then B.
MEANS = {
    "ssim@mcmrrec": {"A": (0.9, 0.9), "B": (0.95, 0.8), "C": (0.7, 0.7)},
    "psnr@mcmrrec": {"A": (30, 20), "B": (34, 30), "C": (30, 30)},
    "vif@mcmrrec": {"A": (0.8, 0.6), "B": (0.5, 0.5), "C": (0.6, 0.8)},
}


def given(tmp_path, means, scans=6, spread=0.0, patients=True):
    rng = np.random.default_rng(0)
    rows = [
        (task, f"scan{scan}", f"p{scan // 2}" if patients else None, model, metric, value + spread * rng.normal())
        for metric, models in means.items()
        for model, values in models.items()
        for task, value in zip(("R5", "R10"), values, strict=False)
        for scan in range(scans)
    ]
    file = tmp_path / "scores.csv"
    frame = pd.DataFrame(rows, columns=["task", "case", "patient", "model", "metric", "value"])
    frame.dropna(axis=1, how="all").to_csv(file, index=False)
    return load_scores(file)


def test_the_ranking_of_mc_mrrec_by_hand(tmp_path):
    ranking = rank_models(pool(given(tmp_path, MEANS, scans=12)), weights=WEIGHTS, resamples=40)
    # A: 0.4 * 1 + 0.2 * 3 + 0.4 * 1.5; B: 0.4 * 2 + 0.2 * 1 + 0.4 * 3; C: 0.4 * 3 + 0.2 * 2 + 0.4 * 1.5.
    assert dict(ranking.overall[["model", "mean_rank"]].to_numpy()) == pytest.approx({"A": 1.6, "B": 2.2, "C": 2.2})
    assert ranking.models[0] == "A"
    assert math.isnan(ranking.friedman.cd)
    text = "\n".join(ranking.layout().footnotes)
    assert "Weighted rank: 0.4 rank(ssim@mcmrrec) + 0.2 rank(psnr@mcmrrec) + 0.4 rank(vif@mcmrrec)." in text
    assert "No test of Friedman" in text
    assert "not independent" not in text


def test_tasks_that_are_not_pooled_are_ranked_by_themselves(tmp_path):
    ranking = rank_models(given(tmp_path, MEANS), weights={"ssim@mcmrrec": 3, "vif@mcmrrec": 1}, resamples=40)
    # R5: SSIM B A C, VIF A C B; R10: SSIM A B C, VIF C A B.
    by_hand = {"A": (2 * 3 + 1 + 1 * 3 + 2) / 8, "B": (1 * 3 + 3 + 2 * 3 + 3) / 8, "C": (3 * 3 + 2 + 3 * 3 + 1) / 8}
    assert dict(ranking.overall[["model", "mean_rank"]].to_numpy()) == pytest.approx(by_hand)
    assert any("mean over data sets of (3 rank(" in note for note in ranking.layout().footnotes)


def test_equal_weights_are_the_mean_rank(tmp_path):
    runs = given(tmp_path, MEANS, spread=0.1)
    weighed, plain = (
        rank_models(runs, resamples=60, **one)
        for one in ({"weights": dict.fromkeys(MEANS, 0.7)}, {"metrics": list(MEANS)})
    )
    pd.testing.assert_frame_equal(weighed.overall, plain.overall)


def test_the_interval_of_a_weighted_rank_is_of_resampled_patients(tmp_path):
    runs = pool(given(tmp_path, MEANS, scans=12, spread=0.2))
    row = rank_models(runs, weights=WEIGHTS, resamples=200).overall.set_index("model").loc["A"]
    assert 1 <= row["low"] <= row["mean_rank"] <= row["high"] <= 3
    assert row["low"] < row["high"]
    assert rank_models(runs, weights=WEIGHTS, resamples=20).by_column["n"].tolist() == [24] * 9


def test_a_scan_of_two_tasks_is_one_unit_where_no_patient_is_named(tmp_path):
    runs = pool(given(tmp_path, MEANS, patients=False))
    assert {run.task for run in runs} == {"R5 + R10"}
    assert runs[0].resampled == "patients"
    assert runs[0].scores["patient"].nunique() == 6
    assert runs[0].scores["case"].nunique() == 12
    assert runs[0].cases == 12


def test_one_task_is_pooled_with_nothing(tmp_path):
    runs = given(tmp_path, {"ssim@mcmrrec": {"A": (0.1,), "B": (0.2,)}})
    assert pool(runs) == runs


@pytest.mark.parametrize(
    ("more", "error", "match"),
    [
        ({"weights": {}}, UsageError, "names no metric"),
        ({"weights": {"psnr@mcmrrec": 0}}, UsageError, "above 0"),
        ({"weights": {"psnr@mcmrrec": True}}, UsageError, "above 0"),
        ({"weights": {"psnr@mcmrrec": 1}, "metrics": ["psnr@mcmrrec"]}, UsageError, "leave metrics= out"),
        ({"weights": {"psnr@mcmrrec": 1, "gmsd@mcmrrec": 1}}, UsageError, "gmsd"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(tmp_path, more, error, match):
    with pytest.raises(error, match=match):
        rank_models(given(tmp_path, MEANS), resamples=10, **more)


def test_a_data_set_that_lacks_a_weighed_metric_is_refused(tmp_path):
    means = {
        "ssim@mcmrrec": {"A": (0.9, 0.9), "B": (0.95, 0.8)},
        "vif@mcmrrec": {"A": (0.8,), "B": (0.7,)},
    }
    with pytest.raises(UserError, match=r"R10 has no value of vif@mcmrrec for every model"):
        rank_models(given(tmp_path, means), weights={"ssim@mcmrrec": 1, "vif@mcmrrec": 1}, resamples=10)


def test_two_runs_of_one_model_and_task_cannot_be_pooled(tmp_path):
    runs = given(tmp_path, MEANS)
    with pytest.raises(UserError, match="two runs of R5"):
        pool([*runs, runs[0]])


def test_the_command_ranks_by_weights(tmp_path, monkeypatch, capfd):
    given(tmp_path, MEANS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    weights = "weights={ssim@mcmrrec: 0.4, psnr@mcmrrec: 0.2, vif@mcmrrec: 0.4}"
    assert start(["rank", "scores=scores.csv", "pool=true", "resamples=20", weights]) == 0
    out = capfd.readouterr().out
    assert "Weighted rank" in out
    assert "1.60" in out
    assert start(["rank", "scores=scores.csv", "weights=[ssim@mcmrrec]"]) == 2
    assert "weights: expected metrics with their weights" in capfd.readouterr().err

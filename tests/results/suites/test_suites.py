"""Suites: signal of checkpoints, tasks chosen for all, answers completed, windows of release, seals."""

import json
import math
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.suites import (
    Rasch,
    chance_corrected,
    check_seal,
    checkpoint_signal,
    completed,
    fit_rasch,
    informative_models,
    order_kept,
    release_windows,
    representative_tasks,
    seal_run,
    suite_gains,
)
from tests.helpers.authors import load_functions, require_clone


def test_signal_of_checkpoints_by_hand():
    found = checkpoint_signal([3, 1, 2, 4], [0.5, 0.1, 0.4, 0.6], last=2)
    assert (found.monotonicity, found.checkpoints) == (1, 4)
    assert found.range == pytest.approx(0.5)
    assert found.noise == pytest.approx(math.sqrt(0.005))
    assert found.signal_to_noise == pytest.approx(0.5 / math.sqrt(0.005))
    assert checkpoint_signal([1, 2, 3], [0.3, 0.2, 0.1], last=2).monotonicity == -1
    assert checkpoint_signal([1, 2, 3], [0.1, 0.4, 0.4], last=2).signal_to_noise == math.inf
    assert math.isnan(checkpoint_signal([1, 2, 3], [0.4] * 3).signal_to_noise)
    assert checkpoint_signal([1, 2, 3, 4], [0.1, math.nan, 0.2, 0.3], last=2).checkpoints == 3


@pytest.mark.parametrize(
    ("steps", "scores", "last", "message"),
    [([1, 1], [0, 1], 2, "occurs twice"), ([1, 2], [0], 2, "one score for each"), ([1, 2], [0, 1], 3, "last=3"),
     ([1, 2], [0, 1], 1, "last=1"), ([], [], 2, "there are 0")],
)  # fmt: skip
def test_checkpoints_that_cannot_be_meant_are_refused(steps, scores, last, message):
    with pytest.raises(UsageError, match=message):
        checkpoint_signal(steps, scores, last=last)


def test_order_of_models_early_and_late():
    assert order_kept({"a": 1, "b": 2, "c": 3}, {"c": 30, "b": 20, "a": 10, "d": 5}) == 1
    assert order_kept({"a": 1, "b": 2}, {"a": 2, "b": 1}) == -1
    assert math.isnan(order_kept({"a": 1}, {"a": 1}))
    assert math.isnan(order_kept({"a": 1, "b": math.nan}, {"a": 1, "b": 2}))


def test_tasks_that_order_models_as_all_are_chosen():
    # The second task is the mean of all; the third turns the order round.
    table = pd.DataFrame(
        {"x": [1, 3, 2, 4.0], "mean": [10, 20, 30, 40.0], "turned": [4, 3, 2, 1.0]}, index=list("abcd")
    )
    found = representative_tasks(table, 1)
    assert found.tasks == ("mean",)
    assert found.agreement == 1
    assert set(found.left_out_errors) == set("abcd")
    whole = representative_tasks(table, 3)
    assert (whole.tasks, whole.agreement, whole.error) == (("x", "mean", "turned"), 1, 0)
    assert all(error == 0 for error in whole.left_out_errors.values())


def test_tables_that_cannot_be_chosen_from_are_refused():
    table = pd.DataFrame(np.eye(3))
    for bad, count, message in ((table, 4, "count=4"), (table, 0, "count=0"), (table[:2], 1, "2 models")):
        with pytest.raises(UsageError, match=message):
            representative_tasks(bad, count)
    with pytest.raises(UsageError, match="1 cells without"):
        representative_tasks(table.mask(np.eye(3) * [1, 0, 0] > 0), 1)


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=5, deadline=None)
def test_no_exchange_of_one_task_agrees_better(seed, count):
    table = pd.DataFrame(np.random.default_rng(seed).normal(size=(6, 5)), columns=list("abcde"))
    found = representative_tasks(table, count)
    whole = table.mean(axis=1)
    for taken in found.tasks:
        for other in set("abcde") - set(found.tasks):
            changed = [*(one for one in found.tasks if one != taken), other]
            assert kendalltau(table[changed].mean(axis=1), whole).statistic <= found.agreement + 1e-9


def answers(models=8, items=200, seed=0):
    rng = np.random.default_rng(seed)
    truth = Rasch(rng.normal(0, 1.5, models), rng.normal(0, 1.5, items))
    return truth, (rng.random((models, items)) < truth.probabilities).astype(float)


def test_abilities_and_difficulties_are_found_again():
    truth, right = answers(items=800)
    found = fit_rasch(right)
    assert np.corrcoef(found.abilities, truth.abilities)[0, 1] > 0.99
    assert np.corrcoef(found.difficulties, truth.difficulties)[0, 1] > 0.7
    # At the mode the slope of the posterior is 0: expected sums are those seen, but for the prior.
    assert found.probabilities.sum(1) + found.abilities / 4 == pytest.approx(right.sum(1), abs=1e-3)


def test_all_right_and_all_wrong_stay_finite():
    found = fit_rasch([[1, 1], [1, 1], [0, 1]])
    assert np.isfinite([*found.abilities, *found.difficulties]).all()
    assert found.difficulties[1] < found.difficulties[0]


def test_what_was_not_asked_is_estimated_and_what_was_stays():
    _, right = answers()
    seen = right.copy()
    seen[0, 50:] = np.nan
    table, estimated = completed(seen)
    assert estimated.sum() == 150
    assert np.array_equal(table[~estimated], right[~estimated])
    assert abs(table[0].mean() - right[0].mean()) < 0.08
    for bad in ([[2.0]], [[np.nan]], [1.0]):
        with pytest.raises(UsageError, match="table of models and items"):
            completed(bad)


def test_models_of_all_abilities_are_asked():
    truth, _ = answers(models=9)
    fit = Rasch(np.linspace(-2, 2, 9), np.linspace(-2, 2, 50))
    chosen = informative_models(fit, 5)
    assert len(set(chosen)) == 5
    assert chosen == sorted(chosen)
    # Where difficulties meet abilities the answer is least certain: both ends are among them.
    assert chosen[0] <= 1
    assert chosen[-1] >= 7
    same = Rasch(np.zeros(3), np.zeros(4))
    assert len(informative_models(same, 3)) == 3
    with pytest.raises(UsageError, match="count=10"):
        informative_models(truth, 10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_livexivs_own_program_chooses_the_same_models_and_estimates_no_better():
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone: their model on their released answers."""
    import torch
    from sklearn.metrics.pairwise import pairwise_distances
    from torch import nn
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    clone = require_clone("NimrodShabtay/LiveXiv")
    right = np.load(clone / "data/old_papers_auto_vqa_matrix.npy", allow_pickle=True).astype(float)[:, ::16]
    names = ("RaschModel", "loss_matrix", "irt_forward", "sigmoid")
    theirs = load_functions(
        clone / "livexiv/efficient_eval.py", *names, np=np, torch=torch, nn=nn, ReduceLROnPlateau=ReduceLROnPlateau
    )
    seen = np.ones(right.shape, bool)
    seen[::2, right.shape[1] // 2 :] = False
    model = theirs["RaschModel"]()
    model.fit(seen, right, max_epochs=1500, device="cpu")
    ours, estimated = completed(np.where(seen, right, np.nan))
    assert np.array_equal(estimated, ~seen)
    missed = {
        name: np.abs(one.mean(1) - right.mean(1)).mean() for name, one in (("theirs", model.Y_hat), ("ours", ours))
    }
    assert missed["ours"] <= missed["theirs"] + 0.002
    centres = np.percentile(model.betas, np.linspace(5, 95, 5))[:, None]
    items = pairwise_distances(centres, model.betas[:, None]).argmin(1)
    expected = set((model.P_hat * (1 - model.P_hat))[:, items].argmax(0).tolist())
    chosen = informative_models(Rasch(model.thetas.astype(float), model.betas.astype(float)), 5)
    assert expected <= set(chosen)


def test_windows_are_parted_at_their_edges_and_set_beside_cut_offs():
    days = ["2024-01-01", "2024-06-30", "2024-07-01", "2025-01-01"]
    scores = pd.DataFrame({"model": "m", "value": [1, 1, 0, 0.0], "released": days})
    found = release_windows(scores, ["2024-07-01"], {"m": "2024-07-01"}, resamples=50)
    assert found["mean"].tolist() == [1, 0]
    assert found["items"].tolist() == [2, 2]
    assert found["known"].tolist() == ["yes", "partly"]
    assert found["first"].tolist() == [date(2024, 1, 1), date(2024, 7, 1)]
    assert release_windows(scores, ["2024-07-01"], {"m": "2023-01-01"}, resamples=50)["known"].tolist() == ["no", "no"]
    assert release_windows(scores, [], resamples=50)["known"].tolist() == [""]
    with pytest.raises(UsageError, match="'soon', expected YYYY-MM-DD"):
        release_windows(scores, ["soon"])
    with pytest.raises(UsageError, match="no column 'released'"):
        release_windows(scores.drop(columns="released"), [])


def test_patients_are_what_intervals_of_windows_resample():
    many = pd.DataFrame({"model": "m", "value": [0.0] * 50 + [1.0] * 50, "released": "2024-01-01"})
    few = many.assign(patient=["a"] * 50 + ["b"] * 50)
    wide, narrow = (release_windows(one, [], resamples=500).iloc[0] for one in (few, many))
    assert wide.high - wide.low == 1
    assert narrow.high - narrow.low < 0.3


def test_chance_is_taken_off():
    assert chance_corrected(0.25, 4) == 0
    assert chance_corrected(1, 4) == 1
    assert chance_corrected(0.67, 4) == pytest.approx(0.56)
    assert math.isnan(chance_corrected(math.nan, 4))
    with pytest.raises(UsageError, match="at least 2"):
        chance_corrected(0.5, 1)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "predictions").mkdir()
    (tmp_path / "predictions" / "a.npy").write_bytes(b"1")
    (tmp_path / "predictions-0.jsonl").write_text("{}\n")
    (tmp_path / "scores.parquet").write_bytes(b"later")
    return tmp_path


def test_a_sealed_run_is_known_again(run):
    seal = seal_run(run)
    assert set(seal.digests) == {"predictions/a.npy", "predictions-0.jsonl"}
    assert check_seal(run) == seal
    assert len(seal.digest) == 64
    (run / "scores.parquet").write_bytes(b"scored since")
    assert check_seal(run, resolved=datetime.now(UTC).date() + timedelta(days=2)).digest == seal.digest
    with pytest.raises(UserError, match="sealed already"):
        seal_run(run)


def test_what_was_changed_added_or_sealed_late_is_refused(run):
    seal_run(run)
    with pytest.raises(UserError, match="expected a day before"):
        check_seal(run, resolved=datetime.now(UTC).date() - timedelta(days=1))
    (run / "predictions" / "b.npy").write_bytes(b"2")
    with pytest.raises(UserError, match=r"b\.npy: is not as it was sealed \(1 files differ\)"):
        check_seal(run)
    (run / "predictions" / "b.npy").unlink()
    (run / "predictions-0.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(UserError, match="is not as it was sealed"):
        check_seal(run)


def test_what_is_no_seal_is_named(run, tmp_path):
    with pytest.raises(UserError, match="is no seal; seal_run makes one"):
        check_seal(run)
    (run / "seal.json").write_text(json.dumps({"sealed": "today"}))
    with pytest.raises(UserError, match="is no seal"):
        check_seal(run)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="holds no predictions to seal"):
        seal_run(empty)


def test_gains_are_paired_by_task_and_grouped():
    scores = pd.DataFrame({"a": [0.5, 0.6], "b": [0.7, 0.7], "c": [0.9, 0.6]}, index=["scratch", "tuned"])
    groups = pd.DataFrame({"modality": ["CT", "MR", "CT"], "size": ["small", "small", "large"]}, index=["a", "b", "c"])
    found = suite_gains(scores, "scratch", "tuned", groups)
    assert found[["by", "group", "tasks", "better", "worse"]].to_numpy().tolist() == [
        ["all", "all", 3, 1, 1],
        ["modality", "CT", 2, 1, 1],
        ["modality", "MR", 1, 0, 0],
        ["size", "small", 2, 1, 0],
        ["size", "large", 1, 0, 1],
    ]
    np.testing.assert_allclose(found["gain"], [-0.2 / 3, -0.1, 0, 0.05, -0.3], atol=1e-12)
    np.testing.assert_allclose(found["median"], [0, -0.1, 0, 0.05, -0.3], atol=1e-12)
    assert found["low"].isna().all()  # fewer than five tasks have no interval
    with pytest.raises(UsageError, match="model of the scores is invalid"):
        suite_gains(scores, "scratch", "turned", groups)
    with pytest.raises(UsageError, match="got none of 'c'"):
        suite_gains(scores, "scratch", "tuned", groups.drop("c"))


@pytest.mark.slow
def test_segbooks_gains_are_those_of_its_printed_table():
    clone = require_clone("uni-medical/SegBook")
    table = pd.read_csv(clone / "static/data/STU_Benchmark_Information.csv", index_col="Dataset")
    scores = table[["Dice base", "Dice base_ft", "Dice huge", "Dice huge_ft"]].T
    cases = pd.cut(table["Train cases"], [0, 50, 100, 200, np.inf], right=False).astype(str)
    modality = table["Modality"].str.extract("(PET|MR|CT|Ultrasound)")[0]
    found = suite_gains(scores, "Dice base", "Dice base_ft", pd.DataFrame({"size": cases, "modality": modality}))
    rows = found.set_index(["by", "group"])
    assert rows.loc[("all", "all"), ["tasks", "better"]].tolist() == [87, 77]
    assert rows.loc[("all", "all"), "gain"] == pytest.approx(0.0201, abs=5e-5)
    assert 0.01 < rows.loc[("all", "all"), "low"] < 0.0201 < rows.loc[("all", "all"), "high"] < 0.04
    for group, count, gain in (("MR", 37, 0.0092), ("CT", 46, 0.0278)):
        assert rows.loc[("modality", group), "tasks"] == count
        assert rows.loc[("modality", group), "gain"] == pytest.approx(gain, abs=1e-4)
    assert rows.loc[("size", "[0.0, 50.0)"), "gain"] == pytest.approx(0.0244, abs=1e-4)
    huge = suite_gains(scores, "Dice huge", "Dice huge_ft", pd.DataFrame({"size": cases}))
    assert huge.loc[0, "gain"] == pytest.approx(0.0276, abs=5e-5)

"""Studies of utility: what each setting is worth, what it gains over real cases, and its side of the score card."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_cards, load_runs, to_csv, to_html, to_latex, to_markdown
from medimg_eval.results.statistics.intervals import Estimate
from medimg_eval.results.utility.studies import (
    Drawn,
    find_worths,
    load_utility,
    over_seeds,
    resample_runs,
    within_range,
)
from medimg_eval.results.utility.table import build_utility, utility_of_card

SETTINGS = ("real", "synthetic", "augmented")
VALUES = {"real": 0.6, "synthetic": 0.5, "augmented": 0.7}


@pytest.fixture
def write_study(write_run, tmp_path):
    """Writes a study whose models score `values`, a little apart by seed and by patient."""

    def write(values=None, *, seeds=3, name="study", fractions=(1.0,), metric="dice", failed=(), **more):
        cells = []
        for setting, mean in (values or VALUES).items():
            for fraction in fractions:
                for seed in range(seeds):
                    folder = f"{setting}-{fraction:g}-seed{seed}"
                    told = {"folder": folder, "setting": setting, "fraction": fraction, "seed": seed}
                    count = {"real": 8 * (setting != "synthetic"), "synthetic": 6 * (setting != "real")}
                    cells.append(told | {"status": "finished", "failure": "", "cases": count})
                    if (setting, seed) in failed:
                        cells[-1] |= {"status": "failed", "failure": "out of memory\nmore"}
                        continue
                    rows = [
                        (f"c{n}", f"p{n // 2}", "a", metric, mean + 0.01 * seed + 0.01 * n, "present")
                        for n in range(11)
                    ]
                    write_run(f"{name}/{folder}/test", rows, metrics=[metric], model=f"Net ({folder})", run=folder)
        made = {"run": "r1", "task": "made", "model": "G", "settings": "5e77"}
        told = {"schema": 1, "id": "x", "task": "organs", "title": "Organs", "model": "Net", "metric": metric}
        told |= {"synthetic": made, "cells": cells} | more
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "utility.json").write_text(json.dumps(told))
        (study,) = load_utility([folder])
        return study

    return write


def test_a_row_has_the_mean_over_seeds_and_its_difference_to_real_cases(write_study):
    table = build_utility(write_study(), resamples=500)
    frame = table.frame().set_index("setting")
    means = {name: value + 0.01 + 0.05 for name, value in VALUES.items()}
    for name in SETTINGS:
        assert frame.loc[name, "value"] == pytest.approx(means[name])
        assert frame.loc[name, "low"] < means[name] < frame.loc[name, "high"]
    # the same patients and seeds on both sides, which differ by a constant
    assert frame.loc["augmented", ["gain", "gain_low", "gain_high"]].tolist() == pytest.approx([0.1] * 3)
    assert np.isnan(frame.loc["real", "gain"])
    assert frame["name"].tolist() == ["", "tstr", ""]
    assert frame["gain_name"].tolist() == ["", "", "augmentation_gain"]
    assert frame["real_cases"].tolist() == [8, 0, 8]
    assert frame["synthetic_cases"].tolist() == [0, 6, 6]
    assert frame["paired_seeds"].tolist() == [0, 3, 3]


def test_the_table_prints_in_every_format_and_says_what_it_rests_on(write_study):
    table = build_utility(write_study(), resamples=300)
    text = to_markdown(table)
    for part in ("| augmented | 100 % | 3 | 8 | 6 |", "0.760 [", "+0.100 [+0.100, +0.100]", "-0.100 [", "TSTR"):
        assert part in text, part
    assert "tested on the same 11 real cases of 6 patients" in text
    assert all("augmented" in render(table) for render in (to_csv, to_html, to_latex))
    assert "Fewer than 3 seeds" not in text


def test_few_seeds_missing_models_and_failed_ones_are_said(write_study):
    study = write_study(seeds=1, failed=[("synthetic", 0)])
    table = build_utility(study, resamples=200)
    notes = " ".join(table.footnotes)
    assert "Fewer than 3 seeds: real at 100 %, synthetic at 100 % and augmented at 100 %." in notes
    assert "1 of 3 models are missing; synthetic, 100 %, seed 0: out of memory" in notes
    frame = table.frame().set_index("setting")
    assert np.isnan(frame.loc["synthetic", "value"])
    assert "–" in to_markdown(table)
    study = write_study(seeds=2, name="other", failed=[("real", 1)])
    gain = {one.setting: one for one in find_worths(study, "dice", resamples=200, level=0.95, seed=0)}["augmented"]
    assert (gain.seeds, gain.paired, gain.gain.value) == (2, 1, pytest.approx(0.1))


def test_fractions_have_rows_of_their_own_and_are_compared_with_real_cases_of_the_same(write_study):
    table = build_utility(write_study(fractions=(1.0, 0.5)), resamples=100)
    frame = table.frame()
    assert list(zip(frame["setting"], frame["fraction"], strict=True))[:3] == [
        ("real", 1.0),
        ("real", 0.5),
        ("synthetic", 1.0),
    ]
    assert frame.loc[frame["setting"] == "augmented", "gain"].tolist() == pytest.approx([0.1, 0.1])
    assert "| augmented | 50 % |" in to_markdown(table)


def test_metrics_are_chosen_and_wide_tables_are_cut_between_them(write_study):
    study = write_study()
    with pytest.raises(UsageError, match="No run has scores of 'hd95'"):
        build_utility(study, metrics=["hd95"])
    table = build_utility(study, resamples=50)
    both = dataclasses.replace(table, columns=table.columns * 2)
    assert [len(part.columns) for part in both.wrapped(lambda part: len(part.columns) < 2)] == [1, 1]
    assert [len(part.columns) for part in both.wrapped(lambda part: True)] == [2]


def test_a_study_of_which_nothing_is_done_or_that_cannot_be_read_is_said(write_study, tmp_path):
    study = write_study(seeds=1, failed=[(name, 0) for name in SETTINGS])
    with pytest.raises(UserError, match=r"no model was trained and tested to the end; out of memory"):
        build_utility(study)
    (study.folder / "utility.json").write_text("{}")
    with pytest.raises(UserError, match=r"utility\.json: cannot be read as a study of utility"):
        load_utility([tmp_path])
    assert load_utility([tmp_path / "nowhere"]) == []


def test_summaries_are_resampled_with_the_same_patients_too(write_run):
    runs = []
    for seed in range(2):
        rows = [
            (f"c{n}", f"p{n // 2}", "a", "probability", 0.1 * ((n * (3 + seed)) % 7), "present" if n % 2 else "absent")
            for n in range(12)
        ]
        runs += load_runs([write_run(f"run{seed}", rows, metrics=["auroc@macro"])])
    drawn = resample_runs([*runs, runs[0]], "auroc@macro", resamples=100, seed=0)
    assert drawn.resampled.shape == (3, 100)
    same = ~np.isnan(drawn.resampled[0])
    assert same.sum() > 90
    assert (drawn.resampled[0, same] == drawn.resampled[2, same]).all()
    assert drawn.worth[0] == drawn.worth[2] != drawn.worth[1]
    assert drawn.resampled[0, same].mean() == pytest.approx(drawn.worth[0], abs=0.1)


@pytest.mark.parametrize("metric", ["dice", "auroc@macro"])
def test_fewer_than_five_patients_have_no_interval(write_run, metric):
    rows = [
        (f"c{n}", f"p{n % 4}", "a", metric.replace("auroc@macro", "probability"), n / 8, ("present", "absent")[n % 2])
        for n in range(8)
    ]
    drawn = resample_runs(load_runs([write_run("run", rows, metrics=[metric])]), metric, resamples=50, seed=0)
    found = over_seeds(drawn, level=0.95, seed=0)
    assert found.value == pytest.approx(drawn.worth[0])
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_means_on_resamples_agree_with_a_bootstrap_by_hand(write_run):
    rng = np.random.default_rng(0)
    values = rng.random(9)
    rows = [(f"c{n}", f"p{n // 2}", "a", "dice", value, "present") for n, value in enumerate(values)]
    (run,) = load_runs([write_run("run", rows)])
    drawn = resample_runs([run], "dice", resamples=4000, seed=1)
    assert drawn.worth[0] == pytest.approx(values.mean())
    patients = [values[2 * n : 2 * n + 2] for n in range(5)]
    own = [np.concatenate([patients[at] for at in rng.integers(5, size=5)]).mean() for _ in range(4000)]
    assert np.quantile(drawn.resampled[0], [0.05, 0.5, 0.95]) == pytest.approx(
        np.quantile(own, [0.05, 0.5, 0.95]), abs=0.015
    )


def test_without_spread_over_patients_the_interval_is_students():
    values = np.array([0.5, 0.6, 0.8])
    found = over_seeds(Drawn(values, np.repeat(values[:, None], 20_000, 1)), level=0.95, seed=0)
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert found == pytest.approx((values.mean(), low, high), rel=1e-3)


def test_without_spread_over_seeds_it_is_that_of_patients():
    drawn = np.random.default_rng(0).normal(0.5, 0.1, 4000)
    found = over_seeds(Drawn(np.full(3, 0.5), np.stack([drawn] * 3)), level=0.9, seed=0)
    assert found == pytest.approx((0.5, *np.quantile(drawn, [0.05, 0.95])))


def test_intervals_without_values_are_empty():
    nan = np.full((2, 5), np.nan)
    assert np.isnan(over_seeds(Drawn(nan[:, 0], nan), level=0.95, seed=0)).all()
    found = over_seeds(Drawn(np.array([0.5, 0.5]), nan), level=0.95, seed=0)
    assert found.value == 0.5
    assert np.isnan(found.low)
    one = over_seeds(Drawn(np.array([0.5]), np.linspace(0.4, 0.6, 101)[None]), level=0.9, seed=0)
    assert one == pytest.approx((0.5, 0.41, 0.59))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 6), st.floats(-1, 1), st.floats(0.5, 3), st.integers(0, 9))
def test_shifting_and_scaling_values_shifts_and_scales_the_interval(count, shift, scale, seed):
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng.random(count), rng.random((count, 200)))
    found = over_seeds(drawn, level=0.9, seed=1)
    moved = over_seeds(Drawn(scale * drawn.worth + shift, scale * drawn.resampled + shift), level=0.9, seed=1)
    assert moved == pytest.approx([scale * one + shift for one in found])
    wider = over_seeds(drawn, level=0.99, seed=1)
    assert wider.low <= found.low <= found.high <= wider.high


def test_no_bound_is_better_than_the_best_value():
    assert within_range(Estimate(0.9, 0.7, 1.1), "dice") == (0.9, 0.7, 1)
    assert within_range(Estimate(1, -2, 3), "hd95") == (1, 0, 3)
    assert within_range(Estimate(1, -2, 3), "of_a_plugin") == (1, -2, 3)


@pytest.fixture
def card_runs(write_run):
    def write(*names, task="made"):
        attributes = {"n_real": 60, "n_generated": 60, "d": 8, "low": 0.5, "high": 2.0, "where": {}}
        folders = []
        for name in names:
            rows = [("", "", "all", metric, 1.0, "set") for metric in ("kernel_distance@p", "dcr@p")]
            told = {"task": task, "task_title": "Made", "metrics": ["kernel_distance@p", "dcr@p"]}
            folders.append(
                write_run(f"s{name}", rows, {"": attributes}, model=name, run=f"r{name}", settings=f"of {name}", **told)
            )
        return load_runs(folders)

    return write


def test_the_card_shows_three_sides_and_ranks_over_them(write_study, card_runs):
    runs = card_runs("A", "B")
    studies = [
        write_study(name="of A", synthetic={"run": "rA"}),
        write_study({**VALUES, "synthetic": 0.55, "augmented": 0.8}, name="of B", synthetic={"run": "rB"}),
    ]
    (card,) = build_cards(runs, utility_of_card(runs, studies, resamples=200))
    groups = [column.group for column in card.columns]
    assert list(dict.fromkeys(groups)) == ["Fidelity", "Privacy", "Utility", "Mean rank"]
    place = groups.index("Utility")
    assert [column.title for column in card.columns[place : place + 2]] == ["TSTR: Dice", "Augmentation gain: Dice"]
    shown = {row.name: row.cells[place : place + 2] for row in card.rows}
    assert [cell.mean for cell in shown["A"]] == pytest.approx([0.56, 0.1])
    assert [cell.mean for cell in shown["B"]] == pytest.approx([0.61, 0.2])
    assert all(cell.low <= cell.mean <= cell.high for cells in shown.values() for cell in cells)
    ranks = {row.name: row.cells[-1].mean for row in card.rows}
    assert ranks["B"] < ranks["A"]
    notes = " ".join(card.footnotes)
    assert "TSTR: Dice: Net on Organs, 100 % of the data, tested on 11 real cases; bootstrap over patients" in notes
    assert "Student's distribution over 3 seeds" in notes


def test_a_study_counts_for_other_runs_of_the_same_generator(write_study, card_runs):
    runs = card_runs("A", "B")
    made = {"run": "other prompts", "task": "made", "model": "A", "settings": "of A"}
    side = utility_of_card(runs, [write_study(synthetic=made, seeds=2)], resamples=100)["made"]
    assert [set(of_run) for of_run in side.values()] == [{"rA"}, {"rA"}]
    assert next(iter(side.values()))["rA"].flags == ("few_seeds: fewer than 3",)
    assert utility_of_card(runs, [write_study(name="none", synthetic={"layout": "mine"})]) == {}


def test_gains_of_errors_are_signed_so_that_more_is_better(write_study, card_runs):
    runs = card_runs("A")
    study = write_study({"real": 6, "synthetic": 5, "augmented": 4}, metric="hd95", synthetic={"run": "rA"})
    side = utility_of_card(runs, [study], resamples=100)["made"]
    (tstr, tested), (gain, gained) = ((column, of_run["rA"]) for column, of_run in side.items())
    assert (tstr.higher_is_better, tested["value"] if isinstance(tested, dict) else tested.value) == (
        False,
        pytest.approx(5.06),
    )
    assert (gain.higher_is_better, gained.value) == (True, pytest.approx(2))
    assert gained.low <= gained.value <= gained.high


def test_several_studies_are_told_apart_and_two_of_one_kind_refused(write_study, card_runs):
    runs = card_runs("A")
    first = write_study(synthetic={"run": "rA"})
    second = write_study(name="second", synthetic={"run": "rA"}, task="vessels")
    titles = [column.title for column in utility_of_card(runs, [first, second], resamples=50)["made"]]
    assert titles[::2] == ["TSTR: Dice, organs", "TSTR: Dice, vessels"]
    third = write_study(name="third", synthetic={"run": "rA"})
    with pytest.raises(
        UserError, match=r"study and .*third both hold models called 'Net' .* pictures of 'A'; name one"
    ):
        utility_of_card(runs, [first, third], resamples=50)
    lost = write_study(name="lost", synthetic={"run": "rA"}, metric="nsd@1")
    (lost.folder / "utility.json").write_text((lost.folder / "utility.json").read_text().replace('"nsd@1"', '"dice"'))
    with pytest.raises(UserError, match="has no scores of 'dice'"):
        utility_of_card(runs, load_utility([lost.folder]), resamples=50)


@pytest.mark.long
@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say_with_three_seeds(write_run):
    patients, rng, hits = 40, np.random.default_rng(0), {"quiet": [0, 0], "loud": [0, 0]}
    rows = [(f"c{n}", f"p{n}", "a", "dice", 0.0, "present") for n in range(patients)]
    (run,) = load_runs([write_run("run", rows)])
    for name, spread in (("quiet", 0.0), ("loud", 0.05)):
        for place in range(60):
            own = rng.normal(0, 0.1, patients)
            values = own + rng.normal(0, spread, (6, 1)) + rng.normal(0, 0.05, (6, patients))
            runs = [dataclasses.replace(run, scores=run.scores.assign(value=one)) for one in values]
            drawn = resample_runs(runs, "dice", resamples=400, seed=place)
            value = over_seeds(Drawn(drawn.worth[:3], drawn.resampled[:3]), level=0.95, seed=place)
            less = Drawn(drawn.worth[:3] - drawn.worth[3:], drawn.resampled[:3] - drawn.resampled[3:])
            gain = over_seeds(less, level=0.95, seed=place)
            for at, found in enumerate((value, gain)):
                hits[name][at] += found.low <= 0 <= found.high
    assert all(count >= 0.87 * 60 for counts in hits.values() for count in counts), hits


def test_rows_stand_in_the_order_of_the_study(write_study):
    rows = [one.setting for one in find_worths(write_study(), "dice", resamples=20, level=0.9, seed=0)]
    assert rows == list(SETTINGS)
    assert all(one != other for one, other in pairwise(rows))


def test_bounds_do_not_leave_the_values_that_a_metric_has():
    wide = Estimate(0.4, -0.3, 1.2)
    assert within_range(wide, "dice") == Estimate(0.4, 0.0, 1.0)
    assert within_range(wide, "hd95") == Estimate(0.4, 0.0, 1.2)  # no more than the image's diagonal, which differs
    assert within_range(wide, "nobodys") == wide
    assert within_range(Estimate(0.4, math.nan, math.nan), "dice")[0] == 0.4

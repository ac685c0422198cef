"""Resampling within strata: against a loop, and the tables that ask for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from medimg_eval.commands import table as table_command
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_authors_tables, build_table, load_runs, mean_interval
from medimg_eval.results.statistics.resampling import Resamples

SITES = {f"c{i:02d}": {"site": "AB"[i % 2], "scan": str(i)} for i in range(12)}
DICE = [0.9 - 0.05 * i if i % 2 == 0 else 0.2 + 0.01 * i for i in range(12)]


def rows(values=DICE, per_patient=1, metric="dice"):
    return [(f"c{i:02d}", f"p{i // per_patient:02d}", "a", metric, v, "present") for i, v in enumerate(values)]


def test_the_mean_equals_a_loop():
    rng = np.random.default_rng(3)
    clusters = rng.integers(10, size=40)
    strata, values = clusters % 3, rng.random(40)
    resamples = Resamples(10, resamples=100, seed=5, strata=np.arange(10) % 3)
    means = [
        np.concatenate([values[clusters == cluster] for cluster in some]).mean()
        for chunk in resamples.drawn()
        for some in chunk
    ]
    found = mean_interval(values, clusters, resamples=100, seed=5, strata=strata)
    assert found[1:3] == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_a_difference_between_strata_is_no_uncertainty():
    values, strata = np.repeat([0.2, 0.8], 10), np.repeat(["a", "b"], 10)
    assert mean_interval(values, np.arange(20), strata=strata)[:3] == pytest.approx((0.5, 0.5, 0.5))
    found = mean_interval(values, np.arange(20))
    assert found.high - found.low > 0.2


def test_a_cluster_of_two_strata_is_named():
    with pytest.raises(ValueError, match="to be in one stratum, got p2 in two"):
        mean_interval([1, 2, 3], ["p1", "p2", "p2"], strata=["a", "a", "b"])


def test_the_key_of_a_table_and_the_config_of_a_task_mean_the_same(write_run):
    plain = write_run("m", rows(), SITES)
    said = write_run("n", rows(), SITES, task_config={"drawn_within": "site"})
    by_key, by_task = (
        build_table(load_runs([folder]), resamples=200, stratify_by=asked)
        for folder, asked in ((plain, "site"), (said, None))
    )
    one, other = (table.rows[0].cells[0] for table in (by_key, by_task))
    expected = mean_interval(DICE, np.arange(12), resamples=200, strata=np.arange(12) % 2)
    assert (one.low, one.high) == (other.low, other.high) == expected[1:3]
    for table in (by_key, by_task):
        assert "200 resamples of patients within strata of site, seed 0" in table.footnotes[0]
    unlike = build_table(load_runs([plain]), resamples=200).rows[0].cells[0]
    assert unlike.high - unlike.low > 1.3 * (one.high - one.low)


def test_divided_and_class_means_and_the_papers_own_tables_are_stratified(write_run):
    config = {"drawn_within": "site", "table": [{"title": "All"}, {"title": "A", "where": {"site": "A"}}]}
    runs = load_runs([write_run("m", rows(), SITES, task_config=config, metrics=["dice"])])
    expected = mean_interval(DICE, np.arange(12), resamples=100, strata=np.arange(12) % 2)[1:3]
    of_a = mean_interval(DICE[::2], np.arange(6), resamples=100)[1:3]
    by_class = build_table(runs, mean="class", resamples=100).rows[0].cells[0]
    assert (by_class.low, by_class.high) == pytest.approx(expected)
    first, second = build_authors_tables(runs, resamples=100)[0].rows[0].cells
    assert (first.low, first.high) == pytest.approx(expected)
    assert (second.low, second.high) == pytest.approx(of_a)
    divided = {row.group: row.cells[0] for row in build_table(runs, by="site", resamples=100).rows}
    assert (divided["A"].low, divided["A"].high) == pytest.approx(of_a)


def test_summaries_are_stratified_and_silent_cases_are_a_stratum_of_their_own(write_run):
    runs = load_runs([write_run("m", rows(DICE), SITES, cases=14)])
    table = build_table(runs, metrics=["es_dice@site"], resamples=50, stratify_by="site")
    cell = table.rows[0].cells[0]
    assert cell.n_clusters == 14
    assert cell.dropped == 0  # both sites are in every resample
    assert cell.low < cell.mean < cell.high


def test_a_patient_in_two_strata_is_refused_by_name(write_run):
    runs = load_runs([write_run("m", rows(per_patient=2), SITES)])
    with pytest.raises(UserError, match=r"Patient 'p00' of Organs has cases of two strata, site 'A' and 'B'"):
        build_table(runs, stratify_by="site")
    by_case = load_runs([write_run("n", rows(per_patient=2), SITES, resampled="cases")])
    assert build_table(by_case, stratify_by="site", resamples=20).rows[0].cells[0].n_clusters == 12


def test_an_attribute_that_no_case_has_is_refused(write_run):
    runs = load_runs([write_run("m", rows(), SITES)])
    with pytest.raises(UsageError, match=r"No case of Organs has an attribute 'sit' for strata; did you mean 'site'"):
        build_table(runs, stratify_by="sit")


def test_the_command_takes_both_keys(write_run, tmp_path, capsys):
    configs = Path(__file__).parents[3] / "configs"
    config = OmegaConf.merge(*(OmegaConf.load(configs / f"{name}.yaml") for name in ("reads", "table")))
    folder = write_run("m", rows(), SITES)
    keys = {
        "runs": str(folder),
        "stratify_by": "site",
        "interval": "bca",
        "resamples": 100,
        "out": str(tmp_path / "out"),
    }
    for key in ("defaults", "hydra"):  # what Hydra takes out of it
        config.pop(key, None)
    table_command.run(OmegaConf.merge(config, keys))
    assert "strata of site" in " ".join(capsys.readouterr().out.split())
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "BCa bootstrap, 100 resamples of patients within strata of site, seed 0" in text
    assert ",bca" in (tmp_path / "out" / "table.csv").read_text("utf-8")

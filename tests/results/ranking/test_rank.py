"""Models ranked over data sets: by hand, with missing models and cases, how stable ranks are, printed and written."""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_runs, load_scores, to_markdown, write_all
from medimg_eval.results.comparison.fields import make_fields
from medimg_eval.results.comparison.pairwise import CompareSettings, every_pair
from medimg_eval.results.ranking.ranking import rank_models, write_ranking


def scores(tmp_path, rows, better=None, columns=("task", "case", "model", "metric", "value")):
    file = tmp_path / "scores.csv"
    pd.DataFrame(rows, columns=list(columns)).to_csv(file, index=False)
    return load_scores(file, direction=better)


def by_hand(**tasks):
    """Rows of tasks: model -> one value per case, None where the case is missing."""
    return [
        (task, f"{task}{i}", model, "dice", value)
        for task, models in tasks.items()
        for model, values in models.items()
        for i, value in enumerate(values)
        if value is not None
    ]


@pytest.fixture
def three_tasks(tmp_path):
    """A is first on x and y, B on z; C is always last but for a tie on z."""
    rows = by_hand(
        x={"A": [0.9] * 5, "B": [0.7] * 5, "C": [0.5, 0.4, 0.5, 0.4, 0.4]},
        y={"A": [0.8] * 5, "B": [0.6, 0.8, 0.6, 0.6, 0.6], "C": [0.2] * 5},
        z={"A": [0.3] * 5, "B": [0.9] * 5, "C": [0.2, 0.4, 0.3, 0.2, 0.4]},
    )
    return scores(tmp_path, rows)


def test_ranks_of_three_data_sets_by_hand(three_tasks):
    ranking = rank_models(three_tasks, resamples=50)
    assert ranking.models == ("A", "B", "C")
    overall = ranking.overall.set_index("model")
    # Ranks 1 1 2.5, 2 2 1, 3 3 2.5.
    assert overall["mean_rank"].tolist() == pytest.approx([1.5, 5 / 3, 17 / 6])
    assert overall["firsts"].tolist() == [2, 1, 0]
    # A wins 2 + 2 and half, B 1 + 3, C half, of 6 each.
    assert overall["borda"].tolist() == pytest.approx([4.5 / 6, 4 / 6, 0.5 / 6])
    assert overall["kemeny"].tolist() == [1, 2, 3]
    assert ranking.wins.loc["A", "C"] == 2.5
    assert ranking.by_column.set_index(["task", "model"]).loc[("z", "C"), "rank"] == 2
    assert ranking.friedman.data_sets == 3
    assert ranking.cliques == (("A", "B", "C"),)
    assert ranking.frame() is ranking.overall


def test_values_are_never_averaged_over_data_sets(three_tasks, tmp_path):
    worth = {run.task: run.scores["value"].mean() for run in three_tasks}
    assert len(worth) == 3
    # A distance a thousand times as large on one data set changes no rank.
    rows = [
        (run.task, row.case, run.model, "my_score", row.value * (1000 if run.task == "z" else 1))
        for run in three_tasks
        for row in run.scores.itertuples()
    ]
    large = rank_models(scores(tmp_path, rows, {"my_score": "higher"}), resamples=50)
    plain = rank_models(three_tasks, resamples=50)
    pd.testing.assert_frame_equal(large.overall, plain.overall)
    lower = rank_models(scores(tmp_path, rows, {"my_score": "lower"}), resamples=50)
    assert lower.models == ("C", "B", "A")


def test_three_families_of_ranks_can_differ(tmp_path):
    # By its mean A is best for one case of ten; by ranks of cases B is, and no test tells them apart.
    values = {"A": [0.99, *[0.5] * 9], "B": [0.1, *[0.52] * 9], "C": [0.0, *[0.1] * 9]}
    ranking = rank_models(scores(tmp_path, by_hand(x=values)), resamples=50)
    found = ranking.by_column.set_index("model")
    assert found["rank"].to_dict() == {"A": 1, "B": 2, "C": 3}
    assert found["rank_of_ranks"].to_dict() == {"B": 1, "A": 2, "C": 3}
    (field,) = make_fields(load_scores(tmp_path / "scores.csv"), "dice", by_label=False)
    wins = dict.fromkeys("ABC", 0)
    for one in every_pair(field, CompareSettings()):
        wins[one.model] += one.significant
    assert wins["B"] >= wins["A"] > wins["C"]
    expected = {model: 1 + sum(other > count for other in wins.values()) for model, count in wins.items()}
    assert found["rank_of_tests"].to_dict() == expected


def test_the_stability_of_ranks_is_that_of_the_resamples(tmp_path):
    rng = np.random.default_rng(0)
    gaps = {"A": 0.05, "B": 0.03, "C": 0.0}
    values = {model: (0.5 + gap + 0.1 * rng.normal(size=20)).tolist() for model, gap in gaps.items()}
    rows = [(*row, f"p{int(row[1][1:]) // 2}") for row in by_hand(x=values)]
    runs = scores(tmp_path, rows, columns=("task", "case", "model", "metric", "value", "patient"))
    ranking = rank_models(runs, resamples=400)
    table = np.array([values[model] for model in "ABC"]).reshape(3, 10, 2)
    names = np.unique([f"p{i}" for i in range(10)], return_inverse=True)[1]
    slow = []
    for drawn in np.random.default_rng(0).integers(10, size=(400, 10)):
        means = [np.mean([table[model, np.flatnonzero(names == place)[0]] for place in drawn]) for model in range(3)]
        slow.append(np.argsort(np.argsort([-mean for mean in means])) + 1)
    slow = np.array(slow)
    shares = ranking.distribution.set_index(["model", "rank"])["share"]
    for place, model in enumerate("ABC"):
        for number in (1, 2, 3):
            assert shares.get((model, number), 0.0) == pytest.approx((slow[:, place] == number).mean())
    assert shares.groupby("model").sum().tolist() == pytest.approx([1, 1, 1])
    assert ranking.overall.set_index("model").loc["A", "first_share"] == pytest.approx((slow[:, 0] == 1).mean())
    assert ranking.overall["first_share"].sum() == pytest.approx(1)


def test_models_that_miss_data_sets_are_ranked_by_pairwise_counts(tmp_path):
    rows = by_hand(
        x={"A": [0.9, 0.8], "B": [0.7, 0.6], "C": [0.5, 0.4]},
        y={"A": [0.9, 0.8], "B": [0.7, 0.6], "C": [0.5, 0.4]},
        z={"B": [0.7, 0.7], "C": [0.5, 0.4]},  # B is first here, only because A was not run
        lone={"A": [0.2, 0.3]},
    )
    ranking = rank_models(scores(tmp_path, rows), resamples=20)
    overall = ranking.overall.set_index("model")
    assert ranking.models == ("A", "B", "C")
    # On what all have: ranks 1, 2, 3 twice; what B has by itself does not lift it.
    assert overall["mean_rank"].tolist() == [1, 2, 3]
    assert overall["columns"].tolist() == [2, 3, 3]
    assert overall["firsts"].tolist() == [2, 1, 0]
    assert ranking.compared.loc["B", "C"] == 3
    notes = " ".join(ranking.layout().footnotes)
    assert "Only 2 of 3 columns hold a value of every model on cases that all share. Mean ranks over different" in notes
    assert "the models stand in Kemeny's order of pairwise counts" in notes
    assert "Only one model was judged on lone, which is left out." in notes
    assert "\N{EN DASH}" in to_markdown(ranking.sheets[1])


def test_missing_cases_are_left_out_of_what_is_ranked(tmp_path):
    # A skipped the hard case, on which alone it would lose its lead.
    rows = by_hand(x={"A": [0.7, 0.7, None], "B": [0.8, 0.8, 0.1], "C": [0.1, 0.2, 0.1]})
    ranking = rank_models(scores(tmp_path, rows), resamples=20)
    assert ranking.models == ("B", "A", "C")
    assert ranking.by_column.set_index("model").loc["B", "value"] == pytest.approx(0.8)
    assert "x: ranked on 2 of 3 cases, those that all models have." in ranking.layout().footnotes


def test_no_case_that_all_share_leaves_the_pairs(tmp_path):
    rows = by_hand(
        x={"A": [0.9, 0.9, None, None], "B": [None, 0.8, 0.8, None], "C": [None, None, 0.7, 0.7]},
    )
    ranking = rank_models(scores(tmp_path, rows), resamples=20)
    assert ranking.models == ("A", "B", "C")
    assert ranking.overall["mean_rank"].isna().all()
    assert ranking.distribution.empty
    assert "No column holds a value of every model" in ranking.layout().footnotes[0]


def test_one_case_and_equal_values(tmp_path):
    one = rank_models(scores(tmp_path, by_hand(x={"A": [0.9], "B": [0.8]})), resamples=20)
    assert one.models == ("A", "B")
    assert one.distribution.empty
    assert "Too few patients for an interval (fewer than 5): x." in one.sheets[1].content.footnotes
    assert math.isnan(one.overall["low"][0])
    assert math.isnan(one.friedman.cd)
    assert "Friedman's test needs at least 3 models and 2 data sets" in " ".join(one.layout().footnotes)
    tied = {model: [0.1 + 0.2, 0.4, 0.5, 0.6, 0.7] for model in "AB"} | {"C": [0.3, 0.4, 0.5, 0.6, 0.7]}
    equal = rank_models(scores(tmp_path, by_hand(x=tied, y=tied)), resamples=20)
    assert equal.overall["mean_rank"].tolist() == [2, 2, 2]
    assert equal.overall["firsts"].tolist() == [2, 2, 2]
    assert equal.friedman.p == 1.0
    assert equal.distribution["share"].tolist() == [1.0] * 6


def test_several_metrics_and_labels_are_columns(tmp_path):
    rows = [
        ("x", f"c{i}", model, metric, label, value + i / 100)
        for i in range(6)
        for model, gap in (("A", 0.0), ("B", 0.1), ("C", 0.2))
        for metric, label, value in (
            ("dice", "liver", 0.9 - gap), ("dice", "spleen", 0.5 + gap), ("hd95", "liver", 1 + gap),
        )
    ]  # fmt: skip
    runs = scores(tmp_path, rows, columns=("task", "case", "model", "metric", "label", "value"))
    ranking = rank_models(runs, metrics=["dice", "hd95"], by="label", resamples=20)
    assert ranking.by_column["column"].unique().tolist() == ["x, liver: Dice", "x, spleen: Dice", "x, liver: HD95 (mm)"]
    assert ranking.overall.set_index("model")["mean_rank"].to_dict() == pytest.approx({"A": 5 / 3, "B": 2, "C": 7 / 3})
    assert "Several columns are of one data set; they are not independent" in " ".join(ranking.layout().footnotes)
    assert rank_models(runs, resamples=20).by_column["metric"].unique().tolist() == ["dice"]


def test_summaries_are_ranked_and_their_ranks_resampled(write_run):
    rng = np.random.default_rng(0)
    folders = []
    for task in ("t", "u"):
        truth = rng.random(40) < 0.5
        for model, strength in (("A", 2.0), ("B", 0.8), ("C", 0.0)):
            values = 1 / (1 + np.exp(-strength * truth - rng.normal(size=40)))
            rows = [
                (f"c{i}", f"p{i}", "cyst", "probability", value, "present" if yes else "absent")
                for i, (value, yes) in enumerate(zip(values, truth, strict=True))
            ]
            folders.append(write_run(f"{task}{model}", rows, model=model, task=task, task_title=task.upper()))
    ranking = rank_models(load_runs(folders), metrics=["auroc@macro"], resamples=60)
    assert ranking.models == ("A", "B", "C")
    assert ranking.by_column["rank_of_ranks"].isna().all()
    shares = ranking.distribution.groupby(["column", "model"])["share"].sum()
    assert shares.tolist() == pytest.approx([1.0] * 6)
    assert "DeLong test" in " ".join(ranking.sheets[2].content.footnotes)


def test_u_scores_rank_models_by_what_they_cost_too(write_run):
    facts = {"gflops": 60.0, "frames_per_second": 100.0, "iou_p10": 0.3, "iou_p90": 0.9}
    rows = [(f"c{i}", f"p{i}", "a", "iou", 0.5 + i / 50, "present") for i in range(8)]
    folders = [
        write_run(name, rows, model=name.upper(), facts=facts | {"parameters": size})
        for name, size in (("light", 3e6), ("heavy", 60e6))
    ]
    ranking = rank_models(load_runs(folders), metrics=["u_score"], resamples=20)
    assert ranking.models == ("LIGHT", "HEAVY")
    assert rank_models(load_runs(folders), metrics=["iou"], resamples=20).overall["firsts"].tolist() == [1, 1]


def test_what_cannot_be_ranked_is_refused(tmp_path, three_tasks):
    with pytest.raises(UserError, match="No task has finished runs of two models, which a ranking needs"):
        rank_models(scores(tmp_path, by_hand(x={"A": [0.9]})))
    with pytest.raises(UserError, match="No two models have a value for the same case, so there is nothing to rank"):
        rank_models(scores(tmp_path, by_hand(x={"A": [0.9, None], "B": [None, 0.8]})))
    with pytest.raises(UserError, match="scores of a metric that says whether higher is better; name runs, or say so"):
        rank_models(scores(tmp_path, [("x", "c", "A", "mine", 0.5), ("x", "c", "B", "mine", 0.4)]))
    with pytest.raises(UsageError, match="by must be label or nothing, got 'sex'"):
        rank_models(three_tasks, by="sex")
    with pytest.raises(UsageError, match="'dise'; did you mean 'dice'"):
        rank_models(three_tasks, metrics=["dise"])
    with pytest.raises(UsageError, match="resamples must be a whole number"):
        rank_models(three_tasks, resamples=0)


def test_the_files_of_a_ranking(three_tasks, tmp_path):
    ranking = rank_models(three_tasks, resamples=20)
    files = write_ranking(ranking, tmp_path / "paper")
    assert [file.name for file in files] == [
        "rank.md", "rank.tex", "rank.csv", "rank.html", "rank.svg",
        "rank_columns.csv", "rank_stability.csv", "rank_significance.csv",
    ]  # fmt: skip
    text = files[0].read_text("utf-8")
    assert "| Place | Model | Mean rank ↓ | First in ↑ | Wins (Borda) ↑ | Kemeny ↓ |" in text
    assert "| 1 | A | **1.50** " in text
    assert "2 of 3" in text
    assert files[3].read_text("utf-8").count("<table>") == 4
    stability = pd.read_csv(files[6])
    assert list(stability) == ["column", "task", "label", "metric", "model", "rank", "share"]
    written = write_all(ranking, tmp_path / "main", "rank")
    assert [file.suffix for file in written] == [".md", ".tex", ".csv", ".html", ".xlsx"]


def test_the_command_ranks_a_csv(three_tasks, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start(["rank", "scores=scores.csv", "resamples=30", "out=paper"]) == 0
    out = capfd.readouterr().out
    assert "Mean rank" in out
    assert "Nemenyi's critical difference of mean ranks at 0.05: 1.91" in out
    assert (tmp_path / "paper" / "rank_stability.csv").is_file()
    assert start(["rank", "scores=scores.csv", "by=sex"]) == 2
    assert "by must be label" in capfd.readouterr().err

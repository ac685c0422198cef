"""What figures show: their numbers, worked by hand or by another library, and that the marks stand where they say."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import Rectangle

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_table, compare, figures
from medimg_eval.results.figures.inputs import as_runs
from medimg_eval.results.ranking.ranking import rank_models
from medimg_eval.results.table.cells import Settings

QUICK = Settings(resamples=200, level=0.95, seed=0)


def scores(values, **columns):
    """A frame of dice by model: a value for each case, two cases to a patient."""
    rows = [
        {"model": model, "case": f"c{place:02d}", "patient": f"p{place // 2}", "value": value} | columns
        for model, found in values.items()
        for place, value in enumerate(found)
    ]
    return pd.DataFrame(rows)


def told(drawn, what, column="value", **where):
    frame = drawn.frame[drawn.frame["what"] == what]
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return frame[column].tolist()


def test_a_box_spans_the_quartiles_and_its_whiskers_reach_within_one_and_a_half_of_them():
    drawn = figures.box(scores({"A": [1, 2, 3, 4, 5, 6, 7, 8, 9, 30], "B": [5] * 10}), "dice")

    assert [told(drawn, what, model="A") for what in ("q1", "median", "q3")] == [[3.25], [5.5], [7.75]]
    assert (told(drawn, "low", model="A"), told(drawn, "high", model="A")) == ([1], [9])
    assert told(drawn, "mean", model="A") == [7.5]
    assert told(drawn, "outlier", model="A") == [30]
    assert told(drawn, "outlier", "case", model="A") == ["c09"]
    assert told(drawn, "outlier", model="B") == []
    boxes = [patch for patch in drawn.figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert [(box.get_x(), box.get_width()) for box in boxes] == [(3.25, 4.5), (5, 0)]
    assert set(drawn.frame["n"]) == {10}
    assert "n = 10 cases" in drawn.caption
    assert "quartiles" in drawn.caption


def test_a_block_of_boxes_stands_for_each_label():
    frame = pd.concat(
        [scores({"A": [0.1, 0.3], "B": [0.5, 0.7]}, label=label) for label in ("liver", "spleen", "kidney")]
    )

    drawn = figures.box(frame, "dice", by="label")

    assert len(drawn.figure.axes[0].patches) == 6
    assert [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()] == ["liver", "spleen", "kidney"]
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == ["A", "B"]
    only = figures.box(frame, "dice", label="spleen")
    assert len(only.figure.axes[0].patches) == 2
    assert "label spleen" in only.caption


def test_the_density_of_a_violin_ends_at_the_values_and_adds_up_to_one():
    values = np.linspace(0, 1, 41)

    drawn = figures.violin(scores({"A": values, "B": [0.5] * 41}), "dice")

    at, density = told(drawn, "density", model="A"), told(drawn, "density", "density", model="A")
    assert (at[0], at[-1]) == (0, 1)
    assert 0.8 < np.trapezoid(density, at) < 1
    assert told(drawn, "density", model="B") == []
    assert told(drawn, "median") == [0.5, 0.5]


def test_a_strip_has_a_dot_for_each_case_at_one_height_for_all_models():
    frame = scores({"A": [0.1, 0.5, 0.9, 1.0] * 3, "B": [0.2, 0.4, 0.6, 0.8] * 3})

    drawn = figures.strip(frame, "dice")

    axes = drawn.figure.axes[0]
    dots = [found.get_offsets() for found in axes.collections if len(found.get_offsets()) == 12]
    assert [found[:, 0].tolist() for found in dots] == [told(drawn, "case", model=model) for model in "AB"]
    heights = [found[:, 1] - found[:, 1].mean() for found in dots]
    np.testing.assert_allclose(heights[0], heights[1])
    table = build_table(as_runs(frame, "dice")).frame()
    means = drawn.frame[drawn.frame["what"] == "mean"]
    np.testing.assert_allclose(means[["value", "low", "high"]], table[["mean", "low", "high"]])
    assert set(means["interval"]) == {"95 % percentile bootstrap of patients"}


def test_lines_join_the_cases_that_both_models_have():
    frame = pd.concat([scores({"A": [0.1, 0.2, 0.3]}), scores({"B": [0.4, 0.5]})])

    drawn = figures.box(frame, "dice", paired=True)

    (lines,) = [one for one in drawn.figure.axes[0].collections if isinstance(one, LineCollection)]
    assert [[x for x, _ in line] for line in lines.get_segments()] == [[0.1, 0.4], [0.2, 0.5]]
    assert told(drawn, "case") == [0.1, 0.2, 0.4, 0.5]
    assert "(2 pairs; 1 that only one model has" in drawn.caption
    with pytest.raises(UsageError, match="two models, and there are 1"):
        figures.strip(scores({"A": [1.0]}), "dice", paired=True)


def test_a_forest_shows_what_the_table_says():
    frame = pd.concat([scores({"A": np.linspace(0, 1, 12), "B": [0.5] * 11 + [np.nan]}, site=site) for site in "x"])
    frame["site"] = ["x", "y"] * 12

    drawn = figures.forest(frame, "dice", by="site")
    table = build_table(as_runs(frame, "dice"), by="site").frame()

    merged = drawn.frame.merge(table, on=["model", "group"], suffixes=("", "_table"))
    assert len(merged) == 4
    for name in ("mean", "low", "high", "n"):
        np.testing.assert_allclose(merged[name], merged[f"{name}_table"])
    lines = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() > 1]
    ends = [(line.get_xdata()[0], line.get_xdata()[1]) for line in lines]
    known = drawn.frame.dropna(subset=["low"])
    assert ends == list(zip(known["low"], known["high"], strict=True))
    assert "n = 5 to 6" in drawn.caption


def test_a_forest_of_differences_pairs_cases_and_marks_where_there_is_none():
    frame = scores({"A": [0.5, 0.7, 0.9, 0.4] * 3, "B": [0.4, 0.7, 0.6, 0.4] * 3, "C": [0.5, np.nan, 0.9, 0.4] * 3})

    drawn = figures.forest(frame, "dice", baseline="A")

    found = drawn.frame.set_index("model")
    assert found.loc["B", "mean"] == pytest.approx(-0.1)
    assert found.loc["C", ["mean", "low", "high", "n"]].tolist() == [0, 0, 0, 9]
    assert found.loc["B", "low"] < -0.1 < found.loc["B", "high"] <= 0
    assert [line.get_zorder() for line in drawn.figure.axes[0].lines if list(line.get_xdata()) == [0, 0]] == [1, 2]
    with pytest.raises(UsageError, match="did you mean 'A'|available"):
        figures.forest(frame, "dice", baseline="AA")
    with pytest.raises(UserError, match="no other model"):
        figures.forest(scores({"A": [0.1, 0.2]}), "dice", baseline="A")


EVIDENCE = pd.DataFrame(
    [
        {"model": "A", "case": f"c{place}", "label": label, "value": value, "status": ("absent", "present")[truth]}
        for label, rows in {
            "x": [(0.9, 1), (0.8, 0), (0.7, 1), (0.6, 0), (0.2, 0), (0.1, 0)],
            "y": [(0.9, 0), (0.5, 1), (0.5, 0), (0.3, 1), (0.3, 0), (0.1, 0)],
        }.items()
        for place, (value, truth) in enumerate(rows)
    ]
)


def test_an_roc_curve_goes_through_the_points_worked_by_hand():
    drawn = figures.roc(EVIDENCE, label="x", settings=QUICK)

    assert told(drawn, "curve", "false_positive_rate") == pytest.approx([0, 0, 0.25, 0.25, 0.5, 0.75, 1])
    assert told(drawn, "curve", "sensitivity") == pytest.approx([0, 0.5, 0.5, 1, 1, 1, 1])
    assert told(drawn, "area") == pytest.approx([0.875])
    band = drawn.frame[drawn.frame["what"] == "band"]
    assert len(band) == 101
    assert (band["low"] <= band["high"]).all()
    (line,) = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() > 1]
    assert list(line.get_ydata()) == told(drawn, "curve", "sensitivity")
    assert "AUROC 0.875" in drawn.figure.legends[0].get_texts()[0].get_text()


def test_areas_are_those_of_scikit_learn_and_of_the_metrics():
    from sklearn.metrics import average_precision_score, roc_auc_score

    runs = as_runs(EVIDENCE, "probability")
    by_label = [(one["status"] == "present", one["value"]) for _, one in EVIDENCE.groupby("label")]
    for draw, oracle, summary in (
        (figures.roc, roc_auc_score, "auroc@macro"),
        (figures.pr, average_precision_score, "auprc@macro"),
    ):
        drawn = draw(EVIDENCE, settings=QUICK)
        area = drawn.frame[drawn.frame["what"] == "area"].iloc[0]
        assert area["value"] == pytest.approx(np.mean([oracle(truth, value) for truth, value in by_label]))
        cell = build_table(runs, metrics=[summary], resamples=200).rows[0].cells[0]
        assert area[["value", "low", "high"]].tolist() == pytest.approx([cell.mean, cell.low, cell.high])
        assert "mean over up to 2 labels" in drawn.caption
    panels = figures.roc(EVIDENCE, by="label", settings=QUICK)
    assert [axes.get_title() for axes in panels.figure.axes] == ["x", "y"]
    assert told(panels, "area") == pytest.approx([roc_auc_score(truth, value) for truth, value in by_label])


def test_a_precision_recall_curve_takes_the_highest_threshold_that_reaches_a_recall():
    drawn = figures.pr(EVIDENCE, label="x", settings=QUICK)

    assert told(drawn, "curve", "recall") == [0, 0.5, 1]
    assert told(drawn, "curve", "precision") == pytest.approx([1, 1, 2 / 3])


def candidates():
    rng = np.random.default_rng(3)
    rows = []
    for case, number in itertools.product(range(8), range(4)):
        hit = number == 0 and case % 2 == 0
        value = round(float(rng.random()), 2)
        rows.append((f"c{case}", "detection_score", value, "hit" if hit else "ignored" if number == 3 else "false"))
    rows += [(f"c{case}", "n_reference_lesions", float(case % 3), "present") for case in range(8)]
    return pd.DataFrame(rows, columns=["case", "metric", "value", "status"]).assign(model="A", label="nodule")


def test_a_froc_curve_is_that_of_the_metrics():
    frame = candidates()

    drawn = figures.froc(frame, settings=QUICK)

    runs = as_runs(frame)
    rates = [0.25, 1.0]
    names = ["cpm", *(f"froc@{rate:g}" for rate in rates)]
    cells = build_table(runs, metrics=names, resamples=200).rows[0].cells
    area = drawn.frame[drawn.frame["what"] == "area"].iloc[0]
    assert area[["value", "low", "high"]].tolist() == pytest.approx([cells[0].mean, cells[0].low, cells[0].high])
    curve = drawn.frame[drawn.frame["what"] == "curve"].set_index("false_positives_per_case")["sensitivity"]
    assert [curve[rate] for rate in rates] == pytest.approx([cell.mean for cell in cells[1:]])


def test_a_detector_without_a_candidate_finds_nothing():
    frame = candidates().query("metric == 'n_reference_lesions'")

    drawn = figures.froc(frame, settings=QUICK)

    assert set(told(drawn, "curve", "sensitivity")) == {0}
    assert told(drawn, "area") == [0]


def test_risk_by_coverage_counts_wrong_answers_among_the_most_confident():
    rows = [(0.9, "right"), (0.8, "wrong"), (0.7, "right"), (0.6, "right"), (0.5, "wrong")]
    frame = pd.DataFrame(rows, columns=["value", "status"]).assign(model="A", case=list("abcde"))

    drawn = figures.risk_coverage(frame, settings=QUICK)

    assert told(drawn, "curve", "coverage") == pytest.approx([0.2, 0.4, 0.6, 0.8, 1])
    risks = [0, 1 / 2, 1 / 3, 1 / 4, 2 / 5]
    assert told(drawn, "curve", "risk") == pytest.approx(risks)
    assert told(drawn, "area") == pytest.approx([np.mean(risks)])


def test_probabilities_of_classes_that_exclude_each_other_are_one_answer():
    values, truth = [0.7, 0.3, 0.6, 0.4], ["present", "absent", "absent", "present"]
    frame = pd.DataFrame({"model": "A", "case": list("aabb"), "label": list("xyxy"), "value": values, "status": truth})

    drawn = figures.risk_coverage(frame, settings=QUICK)
    assert told(drawn, "curve", "risk") == [0, 0.5]

    frame.loc[3, "status"] = "absent"
    drawn = figures.risk_coverage(frame, settings=QUICK)
    assert told(drawn, "curve", "coverage") == pytest.approx([0.5, 1])
    assert told(drawn, "curve", "risk") == pytest.approx([0, 0.25])


def test_a_reliability_diagram_bins_equal_numbers():
    values = [0.1, 0.2, 0.3, 0.6, 0.8, 1.0]
    right = ["wrong", "wrong", "right", "right", "wrong", "right"]
    frame = pd.DataFrame({"model": "A", "case": list("abcdef"), "value": values, "status": right})

    drawn = figures.reliability(frame, bins=3, settings=QUICK)

    assert told(drawn, "bin", "said") == pytest.approx([0.15, 0.45, 0.9])
    assert told(drawn, "bin", "found") == pytest.approx([0, 1, 0.5])
    assert told(drawn, "bin", "values") == [2, 2, 2]
    counts = told(drawn, "count", "values")
    assert (len(counts), sum(counts), counts[-1], counts[2]) == (20, 6, 1, 1)
    with pytest.raises(UsageError, match="values in 0 to 1"):
        figures.reliability(frame.assign(value=2.0))
    with pytest.raises(UsageError, match="bins must be"):
        figures.reliability(frame, bins=0)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.75, 1.0]), max_size=30), st.integers(1, 12))
def test_bins_keep_equal_values_together_in_their_order(values, bins):
    from medimg_eval.results.figures.reliability_diagram import equal_mass

    found = equal_mass(np.array(values, dtype=float), bins)

    assert len(set(found)) <= bins
    assert sorted(set(found.tolist())) == list(range(len(set(found.tolist()))))
    for one, other in itertools.combinations(range(len(values)), 2):
        if values[one] <= values[other]:
            assert found[one] <= found[other]
        if values[one] == values[other]:
            assert found[one] == found[other]
    if len(set(values)) == len(values) and bins <= len(values):
        assert np.ptp(np.bincount(found)) <= 1


def measured(pairs):
    rows = [
        {"model": "A", "case": f"c{place}", "label": "tilt", "metric": metric, "value": value}
        for place, pair in enumerate(pairs)
        for metric, value in zip(("measured_reference", "measured"), pair, strict=True)
    ]
    return pd.DataFrame(rows)


def test_a_bland_altman_plot_shows_bias_and_limits():
    from medimg_eval.metrics.agreement.continuous import bland_altman

    pairs = [(10, 11), (12, 12), (14, 17), (20, 19), (22, 24), (30, 31), (31, np.nan)]

    drawn = figures.bland_altman(measured(pairs), settings=QUICK)

    known = np.array(pairs[:-1], dtype=float)
    assert told(drawn, "pair", "mean") == known.mean(axis=1).tolist()
    assert told(drawn, "pair", "difference") == [1, 0, 3, -1, 2, 1]
    expected = bland_altman(*known.T)
    assert told(drawn, "bias", "difference") == [expected.bias] == [1]
    assert told(drawn, "lower limit", "difference") == [expected.low]
    limit = drawn.frame[drawn.frame["what"] == "upper limit"].iloc[0]
    assert limit["difference"] == expected.high == pytest.approx(1 + 1.96 * np.sqrt(2))
    assert limit["low"] < expected.high < limit["high"] + 1
    (dots,) = [one for one in drawn.figure.axes[0].collections if isinstance(one, PathCollection)]
    assert dots.get_offsets()[:, 1].tolist() == [1, 0, 3, -1, 2, 1]
    assert "1 measurements that one side lacks" in drawn.caption


def test_bars_of_a_critical_difference_diagram_join_what_is_less_than_it_apart():
    ranks = pd.DataFrame({"model": list("abcde"), "mean_rank": [1.2, 1.9, 2.6, 4.4, 4.9], "cd": 1.0, "n": 20})

    drawn = figures.critical_difference(ranks)

    assert told(drawn, "clique", "model") == ["a; b", "b; c", "d; e"]
    assert told(drawn, "clique", "low") == [1.2, 1.9, 4.4]
    bars = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() > 2]
    assert [line.get_xdata()[0] + 0.02 for line in bars] == pytest.approx([1.2, 1.9, 4.4])
    assert "n = 20 data sets" in drawn.caption
    untested = figures.critical_difference(ranks.assign(cd=np.nan))
    assert told(untested, "clique", "model") == []
    assert "no test" in untested.caption


def test_ranks_are_drawn_from_a_ranking():
    rng = np.random.default_rng(0)
    frame = pd.concat(
        [
            scores({model: 0.5 + 0.1 * place + 0.1 * rng.random(12) for place, model in enumerate("ABC")}, task=task)
            for task in ("t1", "t2", "t3")
        ]
    )
    ranking = rank_models(as_runs(frame, "dice"), metrics=["dice"], resamples=50)

    drawn = figures.critical_difference(ranking)
    assert told(drawn, "model", "model") == ["C", "B", "A"]
    assert told(drawn, "model", "mean_rank") == [1, 2, 3]
    stable = figures.rank_stability(ranking, width="double")
    assert stable.frame.groupby(["column", "model"])["share"].sum().tolist() == pytest.approx([1.0] * 9)
    sizes = [size for axes in stable.figure.axes for one in axes.collections for size in one.get_sizes()]
    assert sum(sizes) == pytest.approx(9 * 90)
    assert len(stable.figure.axes) == 3


def test_a_significance_map_has_a_dot_where_the_comparison_is_significant():
    frame = scores({"good": np.linspace(0.8, 0.9, 12), "bad": np.linspace(0.1, 0.3, 12)})
    comparison = compare(as_runs(frame, "dice"), "dice")

    drawn = figures.significance_map(comparison)

    assert drawn.frame["model"].tolist() == ["good", "bad"]
    assert drawn.frame["better"].tolist() == [True, False]
    assert drawn.frame["n"].tolist() == [12, 12]
    (dots,) = [one for one in drawn.figure.axes[0].collections if isinstance(one, PathCollection)]
    assert dots.get_offsets().tolist() == [[1, 0]]
    with pytest.raises(UsageError, match="every pair"):
        figures.significance_map(compare(as_runs(frame, "dice"), "dice", baseline="bad"))


def test_a_radar_chart_says_what_is_wrong_with_it():
    frame = pd.concat([scores({"A": [0.4, 0.6], "B": [0.2, 0.4]}, label=label) for label in ("x", "y", "z")])

    drawn = figures.radar(frame, "dice")

    assert drawn.frame["mean"].tolist() == pytest.approx([0.5, 0.3] * 3)
    assert "area of a shape depends on the order" in drawn.caption
    for line in drawn.figure.axes[0].lines:
        assert len(line.get_xdata()) == 4
    with pytest.raises(UsageError, match="needs three axes, and there are 2"):
        figures.radar(frame[frame["label"] != "z"], "dice")
    with pytest.raises(UsageError, match="hd95 does not"):
        figures.radar(frame.assign(metric="hd95"), "hd95")

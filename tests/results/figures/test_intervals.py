"""What figures do with little, much, odd or wrong."""

import numpy as np
import pandas as pd
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import figures, load_runs
from medimg_eval.results.table.cells import Settings
from tests.results.figures.test_figures import QUICK, scores

SPREADS = [figures.box, figures.violin, figures.strip, figures.forest]


@pytest.mark.parametrize("draw", SPREADS)
@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0, 0.0], [1.0] * 12, [0.0, np.nan, 1.0]])
def test_one_case_equal_values_and_undefined_ones_can_be_drawn(draw, values):
    drawn = draw(scores({"A": values}), "dice")

    known = [value for value in values if not np.isnan(value)]
    assert set(drawn.frame["n"]) == {len(known)}
    low, high = drawn.figure.axes[0].get_xlim()
    shown = [np.mean(known)] if draw is figures.forest else known
    assert low < min(shown) <= max(shown) < high


@pytest.mark.parametrize("draw", SPREADS)
def test_without_a_value_there_is_nothing_to_draw(draw):
    with pytest.raises(UserError, match="nothing to draw"):
        draw(scores({"A": [np.nan, np.nan]}), "dice")
    with pytest.raises(UserError, match="nothing to draw"):
        draw(scores({"A": [0.1]}).iloc[:0], "dice")


def test_a_group_without_a_value_keeps_its_row():
    frame = scores({"A": [0.1, 0.2, np.nan, np.nan]}).assign(site=["x", "x", "y", "y"])

    drawn = figures.forest(frame, "dice", by="site")

    assert drawn.frame["n"].tolist() == [2, 0]
    assert "undefined" in [text.get_text() for text in drawn.figure.axes[1].get_yticklabels()]


def test_too_few_patients_have_no_interval():
    drawn = figures.forest(scores({"A": [0.1, 0.2, 0.3, 0.4]}), "dice")
    assert drawn.frame["interval"].tolist() == ["none: too few patients"]
    assert "1 without a line have no interval" in drawn.caption
    few = pd.DataFrame({"model": "A", "case": list("ab"), "value": [0.9, 0.1], "status": ["present", "absent"]})
    curve = figures.roc(few, settings=QUICK)
    assert "band" not in set(curve.frame["what"])
    assert "without a band" in curve.caption


def test_unfinished_runs_are_left_out_and_said(write_run):
    rows = [(f"c{place}", f"p{place}", "a", "dice", 0.1 * place, "present") for place in range(8)]
    write_run("done", rows)
    folder = write_run("running", status="running", cases=8, predicted=3, ended=None).parent

    drawn = figures.strip(load_runs([folder]), "dice")
    assert set(drawn.frame["model"]) == {"Done"}
    assert "Left out: Running (unfinished, 3 of 8)." in drawn.caption
    with pytest.raises(UserError, match="None of the runs is finished"):
        figures.box(load_runs([folder / "running"]), "dice")


def test_failed_cases_and_baselines_are_told(write_run):
    statuses = ["failed"] + ["present"] * 7
    rows = [(f"c{place}", f"p{place}", "a", "dice", 0.1 * place, status) for place, status in enumerate(statuses)]
    write_run("model", rows)
    folder = write_run("chance", rows, baseline=True, model="A chance").parent

    drawn = figures.box(load_runs([folder]), "dice")

    assert [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()] == ["Model", "A chance"]
    assert "2 values are of failed cases" in drawn.caption
    assert "In grey: baselines (A chance)" in drawn.caption


def test_what_cannot_be_meant_is_one_clear_error():
    frame = scores({"A": [0.1, 0.2], "B": [0.3, 0.4]}, site="x")
    for wrong, said in (
        ({"metric": "dcie"}, "No finished run has scores of 'hd95'|dcie"),
        ({"metric": "dice", "by": "sex"}, "No case has an attribute 'sex'"),
        ({"metric": "dice", "label": "liver"}, "No finished run has a label 'liver'"),
        ({"metric": "dice", "width": "triple"}, "expected single"),
        ({"metric": "dice", "width": 3}, "40 to 600 in mm"),
        ({"metric": "cpm"}, "no score of a case"),
    ):
        with pytest.raises(UsageError, match=said):
            figures.box(frame.assign(metric="dice"), **wrong)
    with pytest.raises(UsageError, match="no column 'case'"):
        figures.box(frame.drop(columns="case"), "dice")
    with pytest.raises(UsageError, match="one task, and these runs are of 2"):
        figures.box(frame.assign(task=["t", "u"] * 2), "dice")
    for draw in (
        figures.roc,
        figures.pr,
        figures.froc,
        figures.reliability,
        figures.risk_coverage,
        figures.bland_altman,
    ):
        with pytest.raises(UsageError, match="is drawn from rows of"):
            draw(frame.assign(metric="dice"))
    positive = frame.assign(metric="probability", status="present")
    with pytest.raises(UserError, match="all that was judged is true"):
        figures.roc(positive)
    with pytest.raises(UsageError, match="one value for a whole run"):
        figures.forest(positive, "auroc@macro", baseline="A")


def crowd(models, labels):
    rows = [
        {"model": f"model-{model}", "case": case, "label": f"label {label}", "value": (model + label) % 10 / 10}
        for model in range(models)
        for label in range(labels)
        for case in "ab"
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("models", "labels"), [(30, 1), (2, 40), pytest.param(30, 12, marks=pytest.mark.slow)])
def test_many_models_and_labels_can_be_drawn(models, labels):
    drawn = figures.forest(crowd(models, labels), "dice", by="label", settings=Settings(50, 0.95, 0))

    assert len(drawn.frame) == models * labels
    if models * labels > 100:
        assert "taller than a page" in drawn.remarks[0]


def test_what_would_be_metres_high_is_an_error():
    crowded = pd.DataFrame({"model": [f"m{place}" for place in range(1330)], "rank": 1, "share": 1, "n": 5})

    with pytest.raises(UserError, match=r"would be 5\.9 m high"):
        figures.rank_stability(crowded)


def test_thirty_models_fit_on_the_axis_of_a_critical_difference_diagram():
    models = [f"model-{place}" for place in range(30)]
    ranks = pd.DataFrame({"model": models, "mean_rank": np.linspace(1, 30, 30), "cd": 40.0, "n": 3})

    drawn = figures.critical_difference(ranks)

    assert drawn.size[0] == pytest.approx(89)
    assert drawn.frame[drawn.frame["what"] == "clique"]["model"].tolist() == ["; ".join(models)]

"""Two models case by case: where one is right and the other wrong, or where their values differ most."""

from __future__ import annotations

import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_scores
from medimg_eval.results.comparison import disagreements


def runs(tmp_path, metric, one, two, **more):
    file = tmp_path / "scores.csv"
    rows = [
        f"c{at},{model},{metric},{value}"
        for model, some in (("One", one), ("Two", two))
        for at, value in enumerate(some)
    ]
    file.write_text("\n".join(["case,model,metric,value", *rows]) + "\n")
    return load_scores(file, **more)


def test_right_and_wrong_answers_make_a_table_of_four(tmp_path):
    # Both right: c0, c1; only One: c2, c3, c4; only Two: c5; both wrong: c6.
    (found,) = disagreements(runs(tmp_path, "accuracy", [1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 1, 0]), ["One", "Two"])
    assert found.yes_no
    assert found.counts == (2, 3, 1, 1)
    assert list(found.listed.index) == ["c2", "c3", "c4", "c5"]
    assert list(found.listed["better"]) == ["first"] * 3 + ["second"]
    # McNemar's mid-p of 3 to 1: twice the binomial tail P(X > 3) + P(X = 3) / 2 = 1/16 + 4/32, hence 3/8.
    assert found.pair.p == pytest.approx(0.375)
    assert found.pair.mean_difference == pytest.approx(2 / 7)
    layout = found.sheet.layout()
    assert [line.names for line in layout.lines] == [["One right"], ["One wrong"]]
    assert [[cell[0].text for cell in line.cells] for line in layout.lines] == [["2", "3"], ["1", "1"]]
    assert "McNemar test (mid-p)" in layout.footnotes[0]
    assert "p = 0.375" in layout.footnotes[0]
    assert "<table" in found._repr_html_()


def test_of_other_values_the_largest_differences_come_first(tmp_path):
    (found,) = disagreements(
        runs(tmp_path, "dice", [0.9, 0.5, 0.4, 0.7, 0.8], [0.8, 0.9, 0.6, 0.7, 0.3]), ["One", "Two"]
    )
    assert not found.yes_no
    assert list(found.listed.index) == ["c4", "c0", "c1", "c2"]
    assert list(found.listed["difference"]) == pytest.approx([0.5, 0.1, -0.4, -0.2])
    assert found.counts == (1, 2, 2, 0)


def test_lower_may_be_better_and_differences_by_rounding_are_none(tmp_path):
    (found,) = disagreements(runs(tmp_path, "hd95", [2.0, 5.0, 0.1 + 0.2], [3.0, 1.0, 0.3]), ["One", "Two"])
    assert list(found.listed["better"]) == ["first", "second"]
    assert list(found.listed.index) == ["c0", "c1"]


def test_the_metric_may_be_named_and_cases_of_one_alone_are_counted(tmp_path):
    file = tmp_path / "scores.csv"
    lines = [
        f"c{at},{model},{metric},{value}"
        for model in ("One", "Two")
        for metric, value in (("dice", 0.5), ("iou", 0.4))
        for at in range(3)
    ]
    file.write_text("\n".join(["case,model,metric,value", *lines, "c9,One,iou,0.7"]) + "\n")
    (found,) = disagreements(load_scores(file), ["Two", "One"], "iou")
    assert (found.field.column.metric, found.models, len(found.values)) == ("iou", ("Two", "One"), 3)
    assert "1 cases have a value of only one." in found.sheet.layout().footnotes


def test_names_that_are_none_are_refused(tmp_path):
    loaded = runs(tmp_path, "dice", [0.5, 0.6], [0.4, 0.6])
    with pytest.raises(UsageError, match="no finished run is of a model 'Tow'; did you mean 'Two'"):
        disagreements(loaded, ["One", "Tow"])
    with pytest.raises(UsageError, match="takes two models"):
        disagreements(loaded, ["One"])
    apart = tmp_path / "apart.csv"
    apart.write_text("case,model,metric,value\na,One,dice,1\nb,Two,dice,1\n")
    with pytest.raises(UserError, match="no value for the same case|No two models"):
        disagreements(load_scores(apart), ["One", "Two"])

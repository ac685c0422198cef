"""Tables divided by label or by an attribute of the cases."""

from __future__ import annotations

import io
import math

import pandas as pd
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.results import build_table, load_runs, to_csv, to_html, to_latex, to_markdown, to_rich

NAN = float("nan")


def organ_rows(liver, spleen, metric="dice"):
    """One row per case and organ; None leaves the organ out."""
    values = [*((i, "liver", v) for i, v in enumerate(liver)), *((i, "spleen", v) for i, v in enumerate(spleen))]
    return [(f"c{i}", f"p{i}", label, metric, v, "present") for i, label, v in values if v is not None]


def sexes(text):
    return {f"c{i}": {"sex": {"?": "-1", "_": ""}.get(sex, sex)} for i, sex in enumerate(text)}


def table_of(*folders, **options):
    return build_table(load_runs(folders), **({"resamples": 100} | options))


def cells(table, place=0):
    return {(row.name, row.group): row.cells[place] for row in table.rows}


@pytest.fixture
def two(write_run):
    return [
        write_run("a", organ_rows([0.9, 0.7, 0.8], [0.5, NAN, 0.1]), sexes("FMF"), model="A"),
        write_run("b", organ_rows([0.6, 0.6, 0.6], [0.7, 0.7, None]), sexes("FMF"), model="B"),
    ]


def test_a_row_per_label_and_model(two):
    table = table_of(*two, by="label")
    assert [(row.group, row.name) for row in table.rows] == [
        ("liver", "A"), ("liver", "B"), ("spleen", "A"), ("spleen", "B"), ("all labels", "A"), ("all labels", "B"),
    ]  # fmt: skip
    found = cells(table)
    assert found["A", "liver"].mean == pytest.approx(0.8)
    assert found["A", "spleen"].mean == pytest.approx(0.3)
    assert found["A", "spleen"].n == 2
    assert found["A", "liver"].interval_text(table.columns[0]) == "[n too small]"
    # All labels: what the undivided table says, (0.7 + 0.7 + 0.45) / 3.
    assert found["A", "all labels"].mean == pytest.approx(1.85 / 3)
    assert found["A", "all labels"].mean == table_of(two[0]).rows[0].cells[0].mean
    assert {key: cell.mark for key, cell in found.items() if key[1] != "all labels"} == {
        ("A", "liver"): "best", ("B", "liver"): "second", ("A", "spleen"): "second", ("B", "spleen"): "best",
    }  # fmt: skip
    assert "Best of each column and label in bold, second underlined; means equal as printed share their mark." in (
        table.footnotes
    )


def test_the_mean_over_labels_is_another_number(two):
    case = cells(table_of(two[0]))["A", ""]
    by_class = table_of(two[0], mean="class")
    cell = cells(by_class)["A", ""]
    assert case.mean == pytest.approx(1.85 / 3)
    assert cell.mean == pytest.approx((0.8 + 0.3) / 2)
    assert (cell.n, cell.n_clusters, cell.undefined_labels) == (3, 3, 1)
    assert by_class.footnotes[0] == (
        "Mean over labels [95 % interval: percentile bootstrap, 100 resamples of patients, seed 0]; "
        "a label counts with the mean over its cases (class-macro)."
    )
    with pytest.raises(UsageError, match="got 'clas'; did you mean 'class'"):
        table_of(two[0], mean="clas")


def test_a_label_that_a_task_lacks(write_run):
    table = table_of(
        write_run("a", organ_rows([0.9], []), model="A"),
        write_run("b", organ_rows([], [0.5]), model="A", task="s", task_title="S"),
        by="label",
    )
    found = {row.group: row.cells for row in table.rows}
    assert [cell.absent for cell in found["liver"]] == [False, True]
    assert [cell.absent for cell in found["spleen"]] == [True, False]
    assert "\N{EN DASH}: the model was not run on this task, or has no such label there." in table.footnotes


def test_groups_of_an_attribute_with_their_gap(write_run):
    values = [0.9, 0.5, 0.8, 0.6] * 5 + [0.7, 0.1]
    folder = write_run("a", organ_rows(values, []), sexes("FMFM" * 5 + "?_"), model="A")
    table = table_of(folder, by="sex")
    assert [row.group for row in table.rows] == ["all cases", "F", "M", "unknown", "gap (max - min)"]
    found = {row.group: row.cells[0] for row in table.rows}
    assert found["F"].mean == pytest.approx(0.85)
    assert found["M"].mean == pytest.approx(0.55)
    assert found["unknown"].mean == pytest.approx(0.4)
    assert found["gap (max - min)"].mean == pytest.approx(0.3)
    # Bounds of the difference from the resamples that all groups share.
    assert 0.2 < found["gap (max - min)"].low < 0.3 < found["gap (max - min)"].high < 0.4
    assert [found[group].remark for group in found] == ["n = 22", "n = 10", "n = 10", "n = 2*", ""]
    assert "n: cases with a value; *: fewer than 10." in table.footnotes
    assert (
        "gap (max - min): largest minus smallest value of the groups by sex of at least 10 cases, without the cases "
        "whose sex is unknown." in table.footnotes
    )


def test_groups_that_are_too_small_have_no_gap(write_run):
    table = table_of(write_run("a", organ_rows([0.9, 0.5] * 9, []), sexes("FM" * 9)), by="sex")
    assert [row.group for row in table.rows] == ["all cases", "F", "M"]
    assert [row.cells[0].remark for row in table.rows] == ["n = 18", "n = 9*", "n = 9*"]


def test_attributes_are_crossed(write_run):
    said = {f"c{i}": {"sex": "FM"[i % 2], "site": "xy"[i // 20]} for i in range(40)}
    folder = write_run("a", organ_rows([0.5 + 0.1 * (i % 2) for i in range(40)], []), said, model="A")
    table = table_of(folder, by="sex*site")
    assert [row.group for row in table.rows] == ["all cases", "F, x", "F, y", "M, x", "M, y", "gap (max - min)"]
    assert table.rows[-1].cells[0].mean == pytest.approx(0.1)
    with pytest.raises(UsageError, match="No case has an attribute 'cite'"):
        table_of(folder, by="sex*cite")


def test_the_gap_of_a_mean_over_labels_has_no_interval(write_run):
    folder = write_run("a", organ_rows([0.9, 0.5] * 10, [0.7, 0.5] * 10), sexes("FM" * 10))
    gap = table_of(folder, by="sex", mean="class").rows[-1].cells[0]
    assert gap.mean == pytest.approx(0.3)
    assert math.isnan(gap.low)


def test_groups_large_enough_are_not_flagged(write_run):
    folder = write_run("a", organ_rows([0.5] * 10 + [0.7] * 10, []), sexes("F" * 10 + "M" * 10))
    table = table_of(folder, by="sex")
    assert [row.cells[0].remark for row in table.rows] == ["n = 20", "n = 10", "n = 10", ""]
    assert "n: cases with a value." in table.footnotes


def test_models_are_compared_within_a_group(two):
    table = table_of(*two, by="sex")
    assert [(row.name, row.group) for row in table.rows] == [
        ("A", "all cases"), ("A", "F"), ("A", "M"), ("B", "all cases"), ("B", "F"), ("B", "M"),
    ]  # fmt: skip
    found = cells(table)
    assert [found[model, "M"].mark for model in "AB"] == ["best", "second"]  # 0.7, 0.65
    assert [found[model, "F"].mark for model in "AB"] == ["second", "best"]  # 0.575, 0.625


def test_one_group_alone_has_no_gap(write_run):
    table = table_of(write_run("a", organ_rows([0.5, 0.6], []), sexes("F?")), by="sex")
    assert [row.group for row in table.rows] == ["all cases", "F", "unknown"]


def test_summaries_are_divided_too(write_run):
    rows = organ_rows([0.9, 0.5, 0.8, 0.6], [0.4, 0.4, 0.4, 0.4])
    table = table_of(write_run("a", rows, sexes("FMFM"), model="A"), metrics=["es_dice@sex"], by="label", resamples=20)
    found = cells(table)
    assert found["A", "liver"].mean == pytest.approx(0.7 / 1.3)
    assert found["A", "spleen"].mean == pytest.approx(0.4)


def test_an_unfinished_run_is_shown_in_every_group_of_its_task(write_run, two):
    slow = write_run("c", status="running", cases=9, predicted=4, model="C")
    table = table_of(two[0], slow, by="label")
    found = cells(table)
    assert found["C", "all labels"].text(table.columns[0]) == "unfinished 4/9"
    assert ("C", "liver") not in found
    assert [row.group for row in table_of(slow, by="sex").rows] == ["all cases"]


def test_an_attribute_that_no_case_has_is_refused(two):
    with pytest.raises(UsageError, match=r"No case has an attribute 'sx' .*; did you mean 'sex'\? \(available: label"):
        table_of(*two, by="sx")


def test_the_frame_has_the_groups(two):
    frame = table_of(*two, by="sex").frame()
    assert frame.columns[:4].tolist() == ["task", "model", "group", "run"]
    assert frame["group"].tolist() == ["all cases", "F", "M"] * 2
    assert "group" not in table_of(*two).frame().columns
    assert pd.read_csv(io.StringIO(to_csv(table_of(*two, by="label"))))["group"].tolist()[:2] == ["liver", "liver"]


def test_every_format_shows_both_names(two):
    table = table_of(*two, by="label")
    lines = to_markdown(table).splitlines()
    assert lines[2:5] == [
        "| Label | Model | Dice ↑ |",
        "| --- | --- | :---: |",
        "| liver | A | **0.800** [n too small] n = 3* |".replace("*", r"\*").replace(r"\*\*", "**"),
    ]
    latex = to_latex(table)
    assert r"\begin{tabular}{llc}" in latex
    assert r" &  & \multicolumn{1}{c}{Organs} \\" in latex
    assert r"\cmidrule(lr){3-3}" in latex
    assert latex.count(r"\midrule") == 3
    html = to_html(table)
    assert '<th rowspan="2" scope="col">Label</th><th rowspan="2" scope="col">Model</th>' in html
    assert html.count('<tr class="opens">') == 2
    assert to_rich(table).columns[0].header.plain == "Label"
    by_sex = to_markdown(table_of(*two, by="sex")).splitlines()
    assert by_sex[2] == "| Model | sex | Dice ↑ |"


def test_a_divided_table_comes_apart_by_task(two, write_run):
    other = write_run("c", organ_rows([], [0.5]), model="A", task="s", task_title="S")
    first, second = table_of(*two, other, by="label").by_task()
    assert [row.group for row in second.rows] == ["spleen", "all labels"]
    assert (first.by, second.by) == ("label", "label")

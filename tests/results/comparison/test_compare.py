"""Models compared: maps, a baseline, groups of cases, in every format and from the command line."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import compare, load_runs, to_latex, to_markdown, to_rich, write_comparison
from medimg_eval.results.comparison.pairwise import CompareSettings
from medimg_eval.results.statistics.hypothesis_tests import holm

NAN = float("nan")
BEST = np.linspace(0.7, 0.95, 20)


def rows_of(values, label="a", metric="dice", status="present", patients=None):
    found = []
    for i, value in enumerate(values):
        if value is not None:
            found.append((f"c{i}", f"p{patients[i] if patients else i}", label, metric, value, status))
    return found


@pytest.fixture
def three(write_run):
    """Good beats Fair by a little in every case, and Poor is far below both."""
    shape = np.tile([0.01, 0.02, 0.03, 0.015], 5)
    return [
        write_run("poor", rows_of(BEST - 0.3002 + shape), model="Poor"),
        write_run("fair", rows_of(BEST - shape), model="Fair"),
        write_run("good", rows_of(BEST), model="Good"),
    ]


def compared(*folders, metric="dice", **options):
    return compare(load_runs(folders), metric, **options)


def test_a_map_of_every_ordered_pair(three):
    comparison = compared(*three)
    frame = comparison.frame()
    assert list(zip(frame["model"], frame["other"], strict=True)) == [
        ("Good", "Fair"), ("Good", "Poor"), ("Fair", "Good"), ("Fair", "Poor"), ("Poor", "Good"), ("Poor", "Fair"),
    ]  # fmt: skip
    (drawn,) = comparison.maps
    assert drawn.models == ("Good", "Fair", "Poor")
    assert drawn.better == ((False, True, True), (False, False, True), (False, False, False))
    assert drawn.tested == ((False, True, True), (True, False, True), (True, True, False))
    raw = [
        scipy.stats.wilcoxon(one, two, alternative="greater").pvalue
        for one, two in (
            (values[a], values[b])
            for values in [
                {name: run.scores["value"].to_numpy() for name, run in zip("PFG", load_runs(three), strict=True)}
            ]
            for a, b in ("GF", "GP", "FG", "FP", "PG", "PF")
        )
    ]
    assert frame["p"].tolist() == pytest.approx(raw)
    assert frame["corrected_p"].tolist() == pytest.approx(holm(raw).tolist())
    assert frame["mean_difference"].tolist()[0] == pytest.approx(0.01875)
    (sheet,) = comparison.sheets
    assert to_markdown(sheet).splitlines()[:5] == [
        "**Organs: Dice ↑**",
        "",
        "| Model | Median | Good | Fair | Poor |",
        "| --- | --- | :---: | :---: | :---: |",
        "| Good | 0.825 |  | **&lt;0.001** | **&lt;0.001** |",
    ]
    assert "Organs: 3 of 6 pairs are significant; 20 cases per pair." in sheet.content.footnotes
    assert "Organs: n = 20 cases of 20 patients; surface=surfel." in sheet.content.footnotes


def test_a_lower_distance_is_better(write_run):
    folders = [
        write_run("near", rows_of(BEST, metric="hd95"), model="Near"),
        write_run("far", rows_of(BEST + np.linspace(1, 2, 20), metric="hd95"), model="Far"),
    ]
    comparison = compared(*folders, metric="hd95")
    assert comparison.maps[0].models == ("Near", "Far")
    assert comparison.maps[0].better == ((False, True), (False, False))
    frame = compared(*folders, metric="hd95", baseline="Far").frame()
    assert frame["mean_difference"].tolist() == pytest.approx([-1.5])
    assert compared(*folders, metric="hd95", baseline="Far").sheets[0].content.lines[0].cells[0][0].style == "best"
    assert compared(*folders, metric="hd95", baseline="Near").sheets[0].content.lines[0].cells[0][0].style == "second"


def test_labels_are_compared_by_themselves(write_run):
    a = write_run("a", rows_of(BEST) + rows_of(BEST - 0.1, "b"), model="A")
    b = write_run("b", rows_of(BEST - 0.1) + rows_of(BEST, "b"), model="B")
    maps = compared(a, b, by="label").maps
    assert [drawn.title for drawn in maps] == ["Organs, a: Dice", "Organs, b: Dice"]
    assert [drawn.models for drawn in maps] == [("A", "B"), ("B", "A")]
    assert all(drawn.better == ((False, True), (False, False)) for drawn in maps)
    # Over both labels the two are equal in every case.
    (whole,) = compared(a, b).maps
    assert whole.better == ((False, False), (False, False))
    assert compared(a, b).frame()["zeros"].tolist() == [20, 20]
    assert compared(a, b).frame()["corrected_p"].tolist() == [1.0, 1.0]


def test_missing_cases_and_values_are_left_out_in_pairs_and_counted(write_run):
    a = write_run("a", rows_of([0.9, 0.8, 0.7, NAN, None, 0.5]), model="A")
    b = write_run("b", rows_of([0.8, 0.8, None, 0.7, 0.6, 0.4]), model="B")
    frame = compared(a, b).frame()
    assert frame[["n", "left_out", "zeros"]].to_numpy().tolist() == [[3, 3, 1], [3, 3, 1]]
    (sheet,) = compared(a, b).sheets
    said = " ".join(sheet.content.footnotes)
    assert "3 cases per pair" in said
    assert "up to 3 cases left out that only one of two models has a value for (A, B)" in said
    assert "up to 1 cases without a difference, which the test leaves out (A, B)" in said


def test_models_without_a_common_case_are_not_tested(write_run):
    a = write_run("a", rows_of([0.9, 0.8, None, None]), model="A")
    b = write_run("b", rows_of([None, None, 0.7, 0.6]), model="B")
    c = write_run("c", rows_of([0.1, 0.2, 0.3, 0.2]), model="C")
    comparison = compared(a, b, c)
    assert comparison.frame().set_index(["model", "other"])["n"].to_dict()["A", "B"] == 0
    assert "no cases" in to_markdown(comparison.sheets[0])
    assert "2 pairs without a common case, not tested" in " ".join(comparison.sheets[0].content.footnotes)
    assert comparison.maps[0].tested[0] == (False, False, True)


def test_failed_cases_and_patients_with_several_cases_are_said(write_run):
    failed = [("c3", "p3", "a", "dice", 0.0, "failed")]
    a = write_run("a", [*rows_of([0.9, 0.8, 0.7], patients=[0, 0, 1]), ("c3", "p1", *failed[0][2:])], model="A")
    b = write_run(
        "b",
        rows_of([0.8, 0.7, 0.6, 0.5], patients=[0, 0, 1, 1]),
        model="B",
        signature="surface=voxel",
        notes=["Phantoms."],
    )
    said = " ".join(compared(a, b, how=CompareSettings(test="wilcoxon")).sheets[0].content.footnotes)
    assert "Organs, A: 1 of 4 cases failed, compared at the metric's worst value." in said
    assert "Organs: some patients have several cases, which these tests take for independent." in said
    assert "Warning: Organs was scored in different ways" in said
    assert "Organs: Phantoms." in said
    # Left to itself, the comparison takes a test of patients.
    said = " ".join(compared(a, b).sheets[0].content.footnotes)
    assert "all differences of a patient change their sign together" in said
    assert "take for independent" not in said
    assert "Organs: with 2 patients no p-value of this test can be below 0.250 before correction, and none of 2" in said


def test_a_baseline_side_by_side_on_every_task(three, write_run):
    other = write_run("far", rows_of(BEST), model="Good", task="t", task_title="T")
    base = write_run("base", rows_of(BEST - 0.1), model="Fair", task="t", task_title="T")
    alone = write_run("alone", rows_of(BEST), model="Poor", task="u", task_title="U")
    comparison = compared(*three, other, base, alone, baseline="Fair")
    (sheet,) = comparison.sheets
    lines = to_markdown(sheet).splitlines()
    assert lines[:4] == [
        "| Model | Organs: Dice ↑ | T: Dice ↑ |",
        "| --- | :---: | :---: |",
        "| Good | **+0.019** [0.015, 0.022] (p &lt; 0.001) | **+0.100** [0.100, 0.100] (p &lt; 0.001) |",
        "| Poor | <ins>-0.263</ins> [-0.269, -0.256] (p &lt; 0.001) | \N{EN DASH} |",
    ]
    assert "U: no other model, or no Fair, to compare." in sheet.content.footnotes
    frame = comparison.frame()
    raw = frame.loc[frame["task"] == "organs", "p"]
    assert frame.loc[frame["task"] == "organs", "corrected_p"].tolist() == pytest.approx(holm(raw).tolist())
    assert comparison.maps == ()


def test_a_baseline_per_label(write_run):
    a = write_run("a", rows_of(BEST) + rows_of(BEST - 0.1, "b"), model="A")
    b = write_run("b", rows_of(BEST - 0.1) + rows_of(BEST, "b"), model="B")
    (sheet,) = compared(a, b, baseline="B", by="label").sheets
    assert sheet.content.groups == [("Organs", 2)]
    assert [heading.text for heading in sheet.content.headings] == ["a ↑", "b ↑"]
    assert [cell[0].style for cell in sheet.content.lines[0].cells] == ["best", "second"]


def test_groups_of_cases_under_each_model(write_run):
    sites = {f"c{i}": {"site": "x" if i < 10 else "y" if i < 20 else "z" if i < 22 else "-1"} for i in range(24)}
    values = [0.9 + i / 500 for i in range(10)] + [0.5 + i / 500 for i in range(10)] + [0.1] * 4
    uneven = write_run("a", rows_of(values), sites, model="Uneven")
    even = write_run("b", rows_of([0.5 + (i % 10) / 1000 for i in range(24)]), sites, model="Even")
    (sheet,) = compared(uneven, even, by="site").sheets
    first, second = sheet.content.lines
    assert [first.names, second.names] == [["Organs", "Even"], ["Organs", "Uneven"]]
    assert second.cells[1][0].text == "x 0.909 (n = 10), y 0.509 (n = 10)"
    assert second.cells[2][0].text == "x / y (p < 0.001)"
    assert first.cells[2][0].text == "none"
    assert (first.cells[0][0].style, second.cells[0][0].style) == ("plain", "best")
    assert "Organs, Uneven: groups of fewer than 10 cases left out: z." in sheet.content.footnotes
    frame = sheet.frame().set_index("model")
    assert frame.loc["Uneven", "corrected_p"] == pytest.approx(
        scipy.stats.mannwhitneyu(values[:10], values[10:20]).pvalue
    )
    assert np.isnan(frame.loc["Even", "corrected_p"])
    assert frame.loc["Even", "kruskal_wallis_p"] == pytest.approx(1)


def test_what_cannot_be_compared_is_refused(three, write_run):
    with pytest.raises(UsageError, match=r"No finished run has scores of 'dise'; did you mean 'dice'\?"):
        compared(*three, metric="dise")
    with pytest.raises(UsageError, match="No finished run has scores of iou, which u_score is computed from"):
        compared(*three, metric="u_score")
    with pytest.raises(UsageError, match=r"a model 'Goof' has such scores; did you mean 'Good'\?"):
        compared(*three, baseline="Goof")
    with pytest.raises(UsageError, match="No case has an attribute 'sex'"):
        compared(*three, by="sex")
    with pytest.raises(UsageError, match="leave out baseline=Good"):
        compared(*three, by="sex", baseline="Good")
    with pytest.raises(UsageError, match="alpha must be a number between 0 and 1, got 5"):
        compared(*three, how=CompareSettings(alpha=5))
    with pytest.raises(UsageError, match=r"compare takes one metric, got \['dice'\]"):
        compared(*three, metric=["dice"])
    with pytest.raises(UserError, match="two models"):
        compared(three[0])
    with pytest.raises(UserError, match="nothing to compare"):
        compared(three[0], baseline="Poor")
    mine = write_run("mine", rows_of(BEST, metric="my_metric"), model="Mine")
    with pytest.raises(UsageError, match="my_metric is not a known metric"):
        compared(mine, metric="my_metric")
    slow = write_run("slow", status="running", cases=3, predicted=1)
    with pytest.raises(UsageError, match="No finished run has scores of 'dice'"):
        compared(slow)


def test_the_files_of_a_comparison(three, tmp_path):
    comparison = compared(*three)
    files = write_comparison(comparison, tmp_path / "new")
    assert [file.name for file in files] == ["compare.md", "compare.tex", "compare.csv", "compare.html", "compare.svg"]
    assert pd.read_csv(files[2])["model"].tolist() == comparison.frame()["model"].tolist()
    assert to_latex(comparison.sheets[0]) in files[1].read_text("utf-8")
    page = files[3].read_text("utf-8")
    assert page.count("<table>") == 1
    assert "<svg" in page
    assert "src=" not in page
    assert to_rich(comparison.sheets[0]).row_count == 3
    without = write_comparison(compared(*three, baseline="Good"), tmp_path / "base")
    assert [file.suffix for file in without] == [".md", ".tex", ".csv", ".html"]


def test_the_drawing_has_a_square_per_pair(three, write_run, tmp_path):
    nasty = write_run("n", rows_of(BEST - 0.2), model="<b>&")
    file = write_comparison(compared(*three, nasty), tmp_path)[-1]
    root = ET.fromstring(file.read_text("utf-8"))  # noqa: S314 - our own file
    tag = "{http://www.w3.org/2000/svg}"
    fills = [square.get("fill") for square in root.iter(f"{tag}rect")]
    assert fills.count("#1b6e8c") == 6 + 1  # four models in a clear order, and the legend
    assert [text.text for text in root.iter(f"{tag}text")].count("<b>&") == 2
    width, height = map(float, root.get("viewBox").split()[2:])
    for square in root.iter(f"{tag}rect"):
        if square.get("x"):
            assert float(square.get("x")) + float(square.get("width")) <= width
            assert float(square.get("y")) + float(square.get("height")) <= height


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    return lambda *words: start(list(words))


def test_the_command_prints_and_writes(three, command, capfd, tmp_path):
    assert command("compare", "runs=runs", "metric=dice", "out=paper") == 0
    out = capfd.readouterr().out
    assert "Organs: Dice ↑" in out
    assert "3 of 6 pairs are significant" in out
    assert (tmp_path / "paper" / "compare.svg").is_file()
    assert command("compare", "runs=runs", "metric=dice", "baseline=Fair") == 0
    assert "Mean difference to Fair" in capfd.readouterr().out
    assert command("compare", "runs=runs") == 2
    assert "metric is not set; add metric=VALUE" in capfd.readouterr().err


def test_the_table_command_divides_and_takes_summaries(write_run, command, capfd, tmp_path):
    write_run("m", rows_of([0.9, 0.5, 0.8, 0.6] * 5), {f"c{i}": {"sex": "FM"[i % 2]} for i in range(20)}, model="M")
    asked = ("runs=runs", "by=sex", "metrics=[dice,es_dice@sex]", "mean=class", "resamples=20", "out=paper")
    assert command("table", *asked) == 0
    out = capfd.readouterr().out
    assert "ES-Dice (sex)" in out
    assert "gap (max - min)" in out
    assert "class-macro" in out
    assert "0.538" in (tmp_path / "paper" / "table.md").read_text("utf-8")  # 0.7 / (1 + 0.15 + 0.15)
    assert command("table", "runs=runs", "by=site") == 2
    assert "No case has an attribute 'site'" in capfd.readouterr().err

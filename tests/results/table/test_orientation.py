"""The forms of a table, its decimals and percents, and the signs of its tests."""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.results import (
    Look,
    build_authors_tables,
    build_table,
    load_runs,
    load_scores,
    to_html,
    to_latex,
    to_markdown,
    write_all,
)
from medimg_eval.results.comparison.fields import make_fields
from medimg_eval.results.comparison.marks import marked
from medimg_eval.results.comparison.pairwise import CompareSettings, against
from medimg_eval.results.table.columns import supported
from medimg_eval.results.table.latex import _CHARACTERS, escape
from medimg_eval.results.table.table import FRAME_TYPES

FORMS = ("wide", "transposed", "stacked", "long")
ODD = ("U-Net_é &Co 50%", "[x] ≤ µ±Σ 😀", "=1+2 {Łódź} ~^#$\\")
GOOD, FAIR = (0.8, 0.8, 0.9, 1.0, 1.0), (0.5, 0.5, 0.6, 0.7, 0.7)


def rows(*values, metric="dice"):
    return [(f"c{i}", f"p{i}", "a", metric, value, "present") for i, value in enumerate(values)]


@pytest.fixture
def table(write_run):
    """Two tasks with different columns, and models with odd names; one was run on the first task only."""
    far = rows(2.0, 2.0, 3.0, 4.0, 4.0, metric="hd95")
    folders = [
        write_run("r1", rows(*GOOD) + far, model=ODD[0]),
        write_run("r2", rows(*FAIR) + far, model=ODD[1]),
        write_run("r3", rows(*GOOD), model=ODD[0], task="b", task_title="α_task"),
        write_run("r4", rows(*FAIR), model=ODD[1], task="b", task_title="α_task"),
        write_run("r5", rows(*FAIR), model=ODD[2], task="b", task_title="α_task"),
    ]
    return build_table(load_runs(folders), resamples=500)


def texts(layout):
    """The texts of each row, with the spans of a cell joined."""
    return [[*line.names, *(" ".join(span.text for span in cell) for cell in line.cells)] for line in layout.lines]


def test_transposed_has_metrics_as_rows_and_models_as_columns(table):
    layout = table.looking(Look("transposed")).layout()
    assert layout.stubs == ["Task", "Metric"]
    assert [heading.text for heading in layout.headings] == list(ODD)
    assert layout.groups == [("Models", 3)]
    assert texts(layout) == [
        ["Organs", "Dice ↑", "0.900 [0.840, 0.980]", "0.600 [0.540, 0.680]", "–"],
        ["Organs", "HD95 (mm) ↓", "3.00 [2.40, 3.80]", "3.00 [2.40, 3.80]", "–"],
        ["α_task", "Dice ↑", "0.900 [0.840, 0.980]", "0.600 [0.540, 0.680]", "0.600 [0.540, 0.680]"],
    ]
    assert [line.opens for line in layout.lines] == [False, False, True]
    assert any(note.startswith("Best of each row in bold") for note in layout.footnotes)


def test_transposed_keeps_baselines_apart_and_groups_by_label(write_run):
    folders = [write_run("m", rows(*GOOD)), write_run("c", rows(*FAIR), model="Chance", baseline=True)]
    runs = load_runs(folders)
    assert build_table(runs, resamples=50).looking(Look("transposed")).layout().groups == [
        ("Organs", 1),
        ("Baselines", 1),
    ]
    notes = build_table(runs, resamples=50).looking(Look("transposed")).layout().footnotes
    assert "Baselines, behind the models, neither ranked nor tested: Chance." in notes
    by_label = build_table(runs, resamples=50, by="label").looking(Look("transposed")).layout()
    assert by_label.groups == [("a", 2), ("all labels", 2)]


def test_stacked_gives_a_task_heads_of_its_own_where_its_columns_differ(table):
    layout = table.looking(Look("stacked")).layout()
    assert layout.stubs == ["Task", "Model"]
    assert [heading.text for heading in layout.headings] == ["Dice ↑", "HD95 (mm) ↓"]
    assert texts(layout)[2:4] == [
        ["α_task", "Model", "Dice ↑", ""],
        ["α_task", ODD[0], "0.900 [0.840, 0.980]", ""],
    ]
    assert [line.opens for line in layout.lines] == [False, False, True, False, False, False]


def test_stacked_tasks_with_the_same_columns_share_one_head(write_run):
    folders = [write_run("r1", rows(*GOOD)), write_run("r2", rows(*FAIR), model="R1", task="b", task_title="B")]
    layout = build_table(load_runs(folders), resamples=50).looking(Look("stacked")).layout()
    assert [line[:2] for line in texts(layout)] == [["Organs", "R1"], ["B", "R1"]]


def test_long_has_one_value_per_row_with_its_n(table):
    layout = table.looking(Look("long")).layout()
    assert texts(layout)[0] == ["Organs", ODD[0], "Dice ↑", "0.900", "[0.840, 0.980]", "5"]
    assert len(layout.lines) == len(table.frame())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_as_many_cells_in_every_row(table, form):
    made = table.looking(Look(form, ci="below"))
    layout = made.layout()
    assert {len(line.cells) for line in layout.lines} == {len(layout.headings)}
    assert {len(line.names) for line in layout.lines} == {len(layout.stubs)}
    assert sum(width for _, width in layout.groups) == len(layout.headings)
    counts = {line.replace(r"\|", "").count("|") for line in to_markdown(made).splitlines() if line.startswith("|")}
    assert counts == {len(layout.stubs) + len(layout.headings) + 1}
    check_latex(to_latex(made))


def check_latex(text):
    """Environments close in order, rows have the columns of their tabular, and nothing LaTeX reads is left."""
    assert text.isascii()
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        for row in re.findall(r"^(.*) \\\\$", body, flags=re.MULTILINE):
            spanned = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row))
            assert len(re.findall(r"(?<!\\)&", row)) + spanned == len(columns) - 1, row
    assert not re.search(r"(?<!\\)[#%]|(?<![\\$])_", text)
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))


def compiled(text, folder):
    engine = shutil.which("pdflatex") or shutil.which("tectonic")
    if engine is None:
        pytest.skip("no LaTeX here")
    file = folder / "paper.tex"
    file.write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}", "utf-8"
    )
    flags = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in engine else []
    done = subprocess.run([engine, *flags, file.name], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_compiles(table, form, tmp_path):
    compiled(to_latex(table.looking(Look(form, ci="below", percent=True))), tmp_path)


def test_every_letter_and_sign_of_the_list_compiles(tmp_path):
    letters = "".join(chr(code) for code in range(0xA0, 0x400) if chr(code).isprintable())
    compiled(escape(" ".join([*_CHARACTERS, *letters])), tmp_path)


def test_thirty_columns_are_broken_into_blocks_of_equal_names(write_run):
    values = [row for metric in range(30) for row in rows(*GOOD, metric=f"odd_{metric}%")]
    text = to_latex(build_table(load_runs([write_run("r", values)]), resamples=10))
    assert re.findall(r"\\begin\{tabular\}\{(\w+)\}", text) == ["l" + "c" * 10] * 3
    check_latex(text)


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=100)
def test_any_text_becomes_ascii_latex_with_balanced_braces(text):
    found = escape(text)
    assert found.isascii()
    assert len(re.findall(r"(?<!\\)\{", found)) == len(re.findall(r"(?<!\\)\}", found))
    assert len(re.findall(r"(?<!\\)\$", found)) % 2 == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("é Å ł", r"\'{e} \r{A} \l{}"),
        ("αΣς ά", r"$\alpha$$\Sigma$$\varsigma$ $\alpha$"),
        ("Ωμ Ρ", r"$\Omega$$\mu$ P"),
        ("±≤×µ", r"$\pm$$\leq$$\times$$\mu$"),
        ("\N{LATIN SMALL LIGATURE FI}₂ ą", "fi2 a"),
        ("😀中", "[U+1F600][U+4E2D]"),
        ("0.8†", r"0.8\dag{}"),
    ],
)
def test_letters_and_signs_become_commands(text, expected):
    assert escape(text) == expected


def test_bounds_below_stand_on_a_second_line(table):
    made = table.looking(Look(ci="below"))
    assert r"\shortstack{\textbf{0.900} \\ {\small [0.840, 0.980]}}" in to_latex(made)
    assert "<strong>0.900</strong><br><span" in to_html(made)
    assert "**0.900**<br>[0.840, 0.980]" in to_markdown(made)


def test_percent_scales_shares_alone_and_leaves_the_frame(table):
    made = table.looking(Look(percent=True))
    assert [heading.text for heading in made.layout().headings] == ["Dice (%) ↑", "HD95 (mm) ↓", "Dice (%) ↑"]
    assert texts(made.layout())[0][1:3] == ["90.0 [84.0, 98.0]", "3.00 [2.40, 3.80]"]
    assert made.footnotes == [*table.footnotes, "%: shares times 100; numbers in these notes are not."]
    assert made.looking(made.look) == made
    pd.testing.assert_frame_equal(made.frame(), table.frame())


def test_a_papers_own_table_takes_forms_and_percent(write_run):
    columns = [{"title": "All"}, {"title": "Women", "where": {"sex": "f"}}]
    attributes = {f"c{i}": {"sex": "fm"[i % 2]} for i in range(5)}
    folder = write_run("r", rows(*GOOD), attributes, task_config={"table": columns, "metrics": ["dice"]})
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    made = table.looking(Look("transposed", percent=True))
    assert [line[0] for line in texts(made.layout())] == ["All (%) ↑", "Women (%) ↑"]
    assert any("shares of 1" in note for note in table.footnotes)
    assert not any("shares of 1" in note for note in made.footnotes)
    with pytest.raises(UsageError, match="leave out marks"):
        marked(made, "best")


@pytest.mark.parametrize(
    ("half_width", "decimals"),
    [(0.012, 3), (0.0096, 4), (0.0999, 2), (0.00996, 3), (1.0, 1), (3.4, 1), (12.0, 0), (450.0, 0), (1e-9, 6)],
)
def test_decimals_show_two_digits_of_the_half_width(half_width, decimals):
    assert supported(half_width) == decimals


@given(st.floats(1e-4, 1e3))
@settings(deadline=None, max_examples=50)
def test_decimals_print_at_least_two_digits_and_no_more(half_width):
    printed = f"{half_width:.{supported(half_width)}f}"
    digits = printed.replace(".", "").lstrip("0")
    assert len(digits) == 2 or (supported(half_width) == 0 and len(digits) >= 2)


def test_precision_auto_takes_the_median_width_of_a_column(table):
    made = table.looking(Look(precision="auto"))
    widths = [(cell.high - cell.low) / 2 for row in table.rows for cell in row.cells[:1] if cell.n]
    assert made.columns[0].decimals == 1 - math.floor(math.log10(np.median(widths)))
    assert texts(made.layout())[0][1] == "0.900 [0.840, 0.980]"
    assert texts(made.layout())[0][2] == "3.00 [2.40, 3.80]"


def test_coarser_values_that_print_alike_share_their_mark(table):
    made = table.looking(Look(precision=0, percent=False))
    assert [row.cells[0].mark for row in made.rows] == ["best", "best", ""]
    assert [row.cells[0].mark for row in table.rows] == ["best", "second", ""]


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (Look("tall"), "form is invalid: expected one of long, stacked, transposed, wide"),
        (Look(ci="above"), "ci is invalid: expected one of below, inline"),
        (Look(percent=1), "percent must be true or false"),
        (Look(precision="high"), "precision must be auto"),
        (Look(precision=True), "precision must be auto"),
        (Look(precision=9), "from 0 to 6"),
    ],
)
def test_a_look_that_cannot_be_meant_is_refused(table, look, message):
    with pytest.raises(UsageError, match=message):
        table.looking(look)


def test_metrics_of_each_task_in_the_order_asked_for(write_run):
    far = rows(2.0, 3.0, 3.0, 4.0, 4.0, metric="hd95")
    folders = [
        write_run("r1", rows(*GOOD) + far),
        write_run("r2", rows(*GOOD) + far, model="R1", task="b", task_title="B"),
        write_run("r3", rows(*GOOD), model="R1", task="c", task_title="C"),
    ]
    runs = load_runs(folders)
    table = build_table(runs, metrics={"b": ["hd95", "dice"], "organs": ["dice"]}, resamples=10)
    assert [(column.group, column.metric) for column in table.columns] == [
        ("B", "hd95"),
        ("B", "dice"),
        ("Organs", "dice"),
    ]
    for wanted, message in (({"d": ["dice"]}, "task 'd', which has no run"), ({"b": []}, "names none of task 'b'")):
        with pytest.raises(UsageError, match=message):
            build_table(runs, metrics=wanted, resamples=10)


def test_the_frame_has_its_types_whatever_it_holds(write_run, table):
    unfinished = build_table(load_runs([write_run("slow", status="running", cases=3, predicted=1)]))
    one = build_table(load_runs([write_run("one", rows(0.5))]), by="label", resamples=10)
    for made in (table, unfinished, one, table._of([])):
        frame = made.frame()
        types = frame.dtypes.astype(str).to_dict()
        left_out = {"column"} | (set() if made.by else {"group"})
        assert list(types) == [name for name in FRAME_TYPES if name not in left_out]
        assert {name: kind for name, kind in FRAME_TYPES.items() if name in types} == types


def test_a_workbook_holds_numbers_marks_and_the_frame(table, tmp_path):
    file = write_all(table.looking(Look("stacked")), tmp_path)[-1]
    book = openpyxl.load_workbook(file)
    shown, values = book.worksheets
    assert (shown.title, values.title) == ("Table", "Values")
    body = [[cell.value for cell in row] for row in shown.iter_rows(min_row=1, max_row=4)]
    assert body[0] == [None, None, "Dice ↑", None, None, "HD95 (mm) ↓", None, None]
    assert body[1] == ["Task", "Model", "value", "low", "high", "value", "low", "high"]
    assert body[2] == ["Organs", ODD[0], 0.9, 0.84, 0.98, 3, 2.4, 3.8]
    assert shown["C3"].number_format == "0.000"
    assert shown["C3"].font.bold
    assert shown["C4"].font.underline == "single"
    assert shown.freeze_panes == "C3"
    assert shown["B8"].value == ODD[2]
    assert shown["B8"].data_type == "s"
    frame = table.frame()
    assert [cell.value for cell in values[1]] == list(frame.columns)
    assert values.max_row == len(frame) + 1
    assert values["E2"].value == frame["mean"][0]
    notes = [row[0].value for row in shown.iter_rows(min_row=9) if row[0].value]
    assert notes == [" ".join(note.split()) for note in table.footnotes]


def written(tmp_path, values, metric="dice"):
    """Runs from a CSV: model -> value of each case."""
    file = tmp_path / "scores.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        lines = csv.writer(stream)
        lines.writerow(["case", "model", "metric", "value", "label"])
        for model, found in values.items():
            lines.writerows([f"c{place}", model, metric, value, "a"] for place, value in enumerate(found))
    return load_scores(file)


def test_signs_are_what_compare_finds_against_the_best_and_against_a_named_one(tmp_path):
    rng = np.random.default_rng(1)
    base = rng.uniform(0.5, 0.9, 30)
    runs = written(tmp_path, {"A": base, "B": base + rng.normal(0, 0.02, 30), "C": base - 0.1})
    how = CompareSettings(resamples=200)
    table = build_table(runs, resamples=50)
    best = next(row.name for row in table.rows if row.cells[0].mark == "best")
    (field,) = make_fields(runs, "dice", by_label=False)
    expected = {pair.model: "‡" if pair.significant else "" for pair in against(field, best, how)}
    made = marked(table, "best", how)
    assert {row.name: row.cells[0].sign for row in made.rows if row.name != best} == expected
    assert expected["C"] == "‡"
    assert [row.cells[0].sign for row in marked(table, "C", how).rows] == ["†", "†", ""]
    assert made.footnotes[-1].startswith("‡: worse than the best by a two-sided paired test, p < 0.05 after correction")
    assert "Wilcoxon signed-rank test" in made.footnotes[-1]
    assert r"\ddag{}" in to_latex(made)
    by_label = marked(build_table(runs, by="label", resamples=50), "C", how)
    assert [row.cells[0].sign for row in by_label.rows] == ["†", "†", "", "†", "†", ""]


def test_signs_need_a_rival_and_a_table_of_means(tmp_path, write_run):
    table = build_table(written(tmp_path, {"A": GOOD, "B": FAIR}), resamples=10)
    with pytest.raises(UsageError, match="marks names 'D', which has no row"):
        marked(table, "D")
    folder = write_run("r", rows(*GOOD), {f"c{i}": {"sex": "fm"[i % 2]} for i in range(5)})
    with pytest.raises(UsageError, match="leave out marks"):
        marked(build_table(load_runs([folder]), by="sex", resamples=10), "best")
    alone = build_table(load_runs([folder]), resamples=10)
    assert marked(alone, "best") == alone


def test_metrics_without_a_direction_get_no_signs(tmp_path):
    table = build_table(written(tmp_path, {"A": GOOD, "B": FAIR}, metric="mine"), resamples=10)
    assert marked(table, "A") == table

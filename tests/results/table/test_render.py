"""The same table in every format, with names that each format would misread."""

from __future__ import annotations

import io
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest
from rich.console import Console

from medimg_eval.results import (
    build_table,
    load_runs,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_rich,
    write_all,
)
from medimg_eval.results.table.render import escape_markdown

NASTY = "<b>a_b & 50%</b>"
GOOD, FAIR, FAR = (0.8, 0.8, 0.9, 1.0, 1.0), (0.5, 0.5, 0.6, 0.7, 0.7), (2.0, 2.0, 3.0, 4.0, 4.0)


def rows(*values, metric="dice"):
    return [(f"c{i}", f"p{i}", "a", metric, value, "present") for i, value in enumerate(values)]


@pytest.fixture
def table(write_run):
    """Two tasks; a model with a nasty name, one still running, one on one task only."""
    folders = [
        write_run("r1", rows(*GOOD) + rows(*FAR, metric="hd95"), model=NASTY),
        write_run("r2", rows(*FAIR) + rows(1.0, 1.0, 1.5, 2.0, 2.0, metric="hd95"), model="[bold]*UNet--v2"),
        write_run("r3", model="Slow", status="running", cases=20, predicted=12),
        write_run("r4", rows(0.25, 0.25, 0.5, 0.75, 0.75), model=NASTY, task="b", task_title="#1 {50%} | $x^2~y$ \\"),
    ]
    return build_table(load_runs(folders), resamples=500)


@pytest.fixture
def simple(write_run):
    for name, values in [("best", GOOD), ("other", FAIR)]:
        folder = write_run(name, rows(*values) + rows(*FAR, metric="hd95"))
    return build_table(load_runs([folder.parent]), resamples=500)


def test_markdown(simple):
    assert to_markdown(simple).splitlines() == [
        "**Organs**",
        "",
        "| Model | Dice ↑ | HD95 (mm) ↓ |",
        "| --- | :---: | :---: |",
        "| Best | **0.900** [0.840, 0.980] | **3.00** [2.40, 3.80] |",
        "| Other | <ins>0.600</ins> [0.540, 0.680] | **3.00** [2.40, 3.80] |",
        "",
        (
            "- Mean over cases [95 % interval: percentile bootstrap, 500 resamples of patients, seed 0]; "
            "a case counts with the mean over its labels (case-macro)."
        ),
        "- Best of each column in bold, second underlined; means equal as printed share their mark.",
        "- Organs: n = 5 cases of 5 patients; surface=surfel.",
    ]


def test_markdown_escapes_and_keeps_its_columns(table):
    lines = to_markdown(table).splitlines()
    assert lines[2].startswith(r"| &lt;b&gt;a\_b &amp; 50%&lt;/b&gt; | **0.900** [0.840, 0.980] |")
    assert r"[bold]\*UNet--v2" in lines[3]
    assert "unfinished 12/20" in lines[4]
    assert r"\#1 {50%} \| \$x^2\~y\$ \\: Dice ↑" in lines[0]
    assert {line.replace(r"\|", "").count("|") for line in lines[:5]} == {5}


def test_a_line_break_in_a_text_does_not_end_its_row():
    assert escape_markdown("U-Net\nsmall\r\nfast") == "U-Net small fast"


def test_markdown_closes_no_link(write_run):
    table = build_table(load_runs([write_run("r", model="[x](http://a.b)")]))
    assert r"[x\](http://a.b)" in to_markdown(table)


def test_latex(simple):
    lines = to_latex(simple).splitlines()
    assert lines[:14] == [
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{Results on Organs.}",
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r" & \multicolumn{2}{c}{Organs} \\",
        r"\cmidrule(lr){2-3}",
        r"Model & Dice $\uparrow$ & HD95 (mm) $\downarrow$ \\",
        r"\midrule",
        r"Best & \textbf{0.900} {\small [0.840, 0.980]} & \textbf{3.00} {\small [2.40, 3.80]} \\",
        r"Other & \underline{0.600} {\small [0.540, 0.680]} & \textbf{3.00} {\small [2.40, 3.80]} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
    ]
    assert lines[-1] == r"\end{table}"


def test_latex_escapes(table):
    text = to_latex(table)
    assert r"\textless{}b\textgreater{}a\_b \& 50\%\textless{}/b\textgreater{} &" in text
    assert r"\multicolumn{2}{c}{Organs} & \multicolumn{1}{c}{" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in text
    assert "\n{}[bold]*UNet-{}-v2 &" in text
    assert r"\#1 \{50\%\} \textbar{} \$x\textasciicircum{}2\textasciitilde{}y\$ \textbackslash{}" in text


def test_latex_compiles(table, tmp_path):
    engine = shutil.which("pdflatex") or shutil.which("tectonic")
    if engine is None:
        pytest.skip("no LaTeX here")
    file = tmp_path / "paper.tex"
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    file.write_text(rf"{head}{to_latex(table)}\end{{document}}", encoding="utf-8")
    flags = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in engine else []
    done = subprocess.run([engine, *flags, file.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 0


class Page(HTMLParser):
    """Collects what a browser would show and ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in {"src", "href"}]
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1] and "ul" not in self.tags:
            self.rows[-1][-1] += data.rstrip("\n")


def test_html(table):
    page = Page()
    page.feed(to_html(table))
    assert page.rows[0] == ["Model", "Organs", "#1 {50%} | $x^2~y$ \\"]
    assert page.rows[1] == ["Dice ↑", "HD95 (mm) ↓", "Dice ↑"]
    assert page.rows[2] == [NASTY, "0.900 [0.840, 0.980]", "3.00 [2.40, 3.80]", "0.500 [0.350, 0.700]"]
    assert page.rows[4] == ["Slow", "unfinished 12/20", "unfinished 12/20", "\N{EN DASH}"]
    assert page.links == []
    assert not {"script", "link", "img", "b"} & set(page.tags)
    assert page.tags.count("strong") == 2
    assert page.tags.count("u") == 2
    assert page.tags.count("li") == len(table.footnotes)


def test_csv_is_the_frame(table):
    frame = pd.read_csv(io.StringIO(to_csv(table)))
    assert frame["model"].tolist()[0] == NASTY
    assert frame["mean"].tolist()[:2] == pytest.approx([0.9, 3.0])
    assert len(frame) == len(table.frame())


def test_rich_shows_names_as_they_are(table):
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(to_rich(table))
    text = console.file.getvalue()
    for part in (
        NASTY,
        "[bold]*UNet--v2",
        "0.900 [0.840, 0.980]",
        "unfinished 12/20",
        "Organs",
        "HD95 (mm) ↓",
    ):
        assert part in text


def test_line_breaks_cannot_end_a_row(write_run):
    table = build_table(load_runs([write_run("r", model="two\nlines\x1b[31m")]))
    assert "| two lines [31m |" in to_markdown(table)
    assert "\ntwo lines [31m &" in to_latex(table)


def test_write_all(table, tmp_path):
    files = write_all(table, tmp_path / "new" / "folder", stem="t")
    assert [file.name for file in files] == ["t.md", "t.tex", "t.csv", "t.html", "t.xlsx"]
    assert files[0].read_text(encoding="utf-8") == to_markdown(table)
    assert files[3].read_text(encoding="utf-8") == to_html(table)

"""Published numbers as rows of a table, on hand-made runs; all numbers are made up."""

import math

import openpyxl
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError
from medimg_eval.results import build_authors_tables, build_table, load_runs, to_latex, write_all
from medimg_eval.results.comparison import marked
from medimg_eval.results.table import Look, rich_table
from medimg_eval.results.tables import tables_of


def rows_of(values, metric="dice"):
    return [(f"c{place:02}", f"p{place}", "liver", metric, value, "present") for place, value in enumerate(values)]


def number(**changed):
    return {"model": "U-Net", "metric": "dice", "number": "0.50", "source": "arXiv 1"} | changed


def card(*numbers):
    return {"card": {"published": list(numbers)}}


VALUES = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.4, 0.5, 0.6, 0.5, 0.45, 0.55]  # mean 0.525
BETTER = [value + 0.1 for value in VALUES]


@pytest.fixture
def runs(write_run):
    def load(*numbers, **changed):
        told = {"task_config": card(*numbers)} | changed
        write_run("unet", rows_of(VALUES), model="unet", **told)
        folder = write_run("other", rows_of(BETTER), model="Other", **told)
        return load_runs([folder.parent])

    return load


def table_of(runs, **options):
    return build_table(runs, **({"resamples": 200, "published_numbers": True} | options))


def test_a_number_is_inside_our_interval_of_the_same_model_or_not(runs):
    table = table_of(runs(number(), number(model="unet", number="0.90"), number(model="nobody's")))
    ours = next(row for row in table.rows if row.name == "unet").cells[0]
    assert ours.low < 0.5 < ours.high < 0.9
    # "U-Net" and "unet" are one model; two numbers of it are two rows, as of two sources.
    assert [(row.name, row.cells[0].verdict) for row in table.published] == [
        ("U-Net (published)", "in our interval"),
        ("unet (published)", "not in our interval"),
        ("nobody's (published)", ""),
    ]


def test_of_several_runs_of_a_model_it_is_said_in_how_many_intervals_a_number_lies(write_run):
    told = {"model": "U-Net", "task_config": card(number())}
    write_run("a", rows_of(VALUES), settings="one", **told)
    folder = write_run("b", rows_of([value + 0.4 for value in VALUES]), settings="two", **told)
    (row,) = table_of(load_runs([folder.parent])).published
    assert row.cells[0].verdict == "in 1 of our 2 intervals"


def test_a_model_of_two_sources_has_two_rows_that_name_them(runs):
    table = table_of(runs(number(), number(source="arXiv 2", number="0.6")))
    assert [(row.name, row.cells[0].number.number) for row in table.published] == [
        ("U-Net (published, arXiv 1)", "0.50"),
        ("U-Net (published, arXiv 2)", "0.6"),
    ]


def test_without_an_interval_of_ours_nothing_is_said(write_run):
    folder = write_run("a", rows_of([0.5, 0.6]), model="U-Net", task_config=card(number()))
    (row,) = table_of(load_runs([folder])).published
    assert row.cells[0].verdict == ""


def test_they_take_no_part_in_ranks_and_tests(runs):
    found = runs(number(model="Other", number="0.999"))
    plain, table = build_table(found, resamples=200), table_of(found)
    assert table.rows == plain.rows
    assert [row.cells[0].mark for row in table.rows] == ["best", "second"]
    for one in (table, table.looking(Look(percent=True, precision=0))):
        assert [row.cells[0].mark for row in one.rows] == ["best", "second"]
    signed = marked(table, "best")
    assert [row.cells[0].sign for row in signed.rows] == [row.cells[0].sign for row in marked(plain, "best").rows]
    assert [row.cells[0].sign for row in signed.rows] == ["", "\N{DOUBLE DAGGER}"]
    assert signed.published == table.published
    with pytest.raises(UsageError, match="has no row"):
        marked(table, "Other (published)")


def test_every_format_prints_them_marked_as_the_papers(runs, tmp_path):
    table = table_of(runs(number(interval=["0.41", "0.59"], n=40)))
    layout = table.layout()
    line = layout.lines[-1]
    assert (line.names, line.opens) == (["U-Net (published)"], True)
    assert [span.text for span in line.cells[0]] == ["0.50", "[0.41, 0.59]", "in our interval"]
    assert "| U-Net (published) | 0.50 [0.41, 0.59] in our interval |" in table.to_markdown()
    assert "0.50 {\\scriptsize [0.41, 0.59] in our interval}" in to_latex(table) or "in our interval" in to_latex(table)
    assert '<th scope="row">U-Net (published)</th><td>0.50' in table.to_html()
    assert rich_table(layout).row_count == 3
    written = write_all(table, tmp_path)
    sheet = openpyxl.load_workbook(written[-1])["Table"]
    (row,) = [row for row in sheet.iter_rows(values_only=True) if row[0] == "U-Net (published)"]
    assert row == ("U-Net (published)", 0.5, 0.41, 0.59, "in our interval")


def test_the_frame_tells_them_by_their_status_and_says_where_they_are_printed(runs):
    found = runs(number(number="50.00", scale=100, n=40))
    frame = table_of(found).frame()
    assert [*frame["status"]] == ["finished", "finished", "published"]
    last = frame.iloc[-1]
    assert (last["model"], last["run"], last["mean"], last["n"], last["patients"]) == ("U-Net", "", 0.5, 40, 0)
    assert (last["source"], last["in_our_interval"], last["interval"]) == ("arXiv 1", "in our interval", "")
    assert math.isnan(last["low"])
    assert [*frame["source"][:2]] == ["", ""]
    plain = build_table(found, resamples=200).frame()
    assert [*plain.columns] == [*frame.columns.drop(["source", "in_our_interval"])]
    assert [*plain.dtypes] == [*frame.dtypes[plain.columns]]


@pytest.mark.parametrize(
    ("printed", "scale", "look", "shown"),
    [
        ("52", 100, Look(), "0.52"),  # no digit that the paper does not print
        ("0.6853932584269663", 1, Look(), "0.685"),
        ("0.6853932584269663", 1, Look(percent=True), "68.5"),
        ("52", 100, Look(percent=True), "52"),
        ("92", 1482, Look(), "0.062"),
        ("1", 1, Look(), "1"),
    ],
)
def test_no_more_digits_are_printed_than_the_paper_has(runs, printed, scale, look, shown):
    table = table_of(runs(number(number=printed, scale=scale))).looking(look)
    assert table.layout().lines[-1].cells[0][0].text == shown


def test_a_table_by_label_holds_the_numbers_of_labels_and_of_all_in_their_blocks(write_run):
    rows = rows_of(VALUES) + [(case, patient, "lung", *rest) for case, patient, _, *rest in rows_of(BETTER)]
    folder = write_run(
        "u", rows, model="U-Net", task_config=card(number(number="0.57", by={"label": {"lung": "0.61"}}))
    )
    table = table_of(load_runs([folder]), by="label")
    assert [(row.group, row.name, row.cells[0].number.number) for row in table.published] == [
        ("lung", "U-Net (published)", "0.61"),
        ("all labels", "U-Net (published)", "0.57"),
    ]
    assert [row.cells[0].verdict for row in table.published] == ["in our interval"] * 2
    (row,) = table_of(load_runs([folder])).published
    assert row.cells[0].number.number == "0.57"


@pytest.mark.parametrize("form", ["wide", "transposed", "stacked", "long"])
def test_every_form_holds_them(write_run, form):
    told = {"task_config": card(number(), number(metric="hd95", number="9.5", n=7))}
    write_run("a", rows_of(VALUES) + rows_of(VALUES, "hd95"), model="U-Net", **told)
    folder = write_run("b", rows_of(VALUES), task="t2", task_title="Second", model="U-Net")
    layout = table_of(load_runs([folder.parent])).looking(Look(form)).layout()
    texts = [*(heading.text for heading in layout.headings), *(" ".join(line.names) for line in layout.lines)]
    assert any("U-Net (published)" in text for text in texts)
    said = [span.text for line in layout.lines for cell in line.cells for span in cell]
    assert {"0.50", "9.5"} <= {*said}
    # A task of which nothing is published has no line of it in forms that keep tasks apart.
    assert not any("Second" in text and "(published)" in text for text in texts)
    if form == "transposed":
        assert layout.groups[-1] == ("Published", 1)
    if form == "long":
        (line,) = [line for line in layout.lines if line.cells[0][0].text == "9.5"]
        assert [[span.text for span in cell] for cell in line.cells] == [["9.5"], ["not in our interval"], ["7"]]


def test_footnotes_name_the_sources_what_is_left_out_and_who_has_none(write_run):
    told = {"task_config": card(number(note="other split"), number(model="V", metric="hd95"), number(model="W"))}
    write_run("a", rows_of(VALUES), model="U-Net", **told)
    folder = write_run("b", rows_of(VALUES), task="t2", task_title="Second", model="U-Net")
    notes = table_of(load_runs([folder.parent])).footnotes
    assert any(note.startswith("Rows marked (published) are numbers as their authors print them") for note in notes)
    assert "Organs, published: U-Net: arXiv 1; other split." in notes
    assert "Organs, published: W: arXiv 1." in notes
    assert "Organs: 1 published numbers are of other metrics or cases than this table's." in notes
    assert "No published numbers on the card that the newest run holds: Second." in notes


def test_means_over_labels_are_not_compared_with_what_papers_print(runs):
    table = table_of(runs(number()), mean="class")
    assert [row.cells[0].verdict for row in table.published] == [""]
    assert any("not compared with ours, which are means over labels" in note for note in table.footnotes)


def test_the_papers_own_table_takes_the_numbers_of_its_columns(write_run):
    attributes = {f"c{place:02}": {"part": "tiny" if place < 6 else "rest"} for place in range(12)}
    config = card(number(by={"part": {"tiny": "0.55", "huge": "0.1"}}), number(metric="iou")) | {
        "table": [{"title": "Tiny", "where": {"part": "tiny"}}, {"title": "All"}],
        "metrics": ["dice"],
    }
    folder = write_run("u", rows_of(VALUES), attributes, model="U-Net", task_config=config, metrics=["dice"])
    (table,) = build_authors_tables(load_runs([folder]), resamples=200, published_numbers=True)
    (row,) = table.published
    assert [cell.number.number for cell in row.cells] == ["0.55", "0.50"]
    assert "Organs: 2 published numbers are of other metrics or cases than this table's." in table.footnotes
    assert [*table.frame()["column"]] == ["Tiny", "All"] * 2
    (without,) = build_authors_tables(load_runs([folder]), resamples=200)
    assert without.published == ()


def test_a_card_in_words_states_no_number(write_run):
    folder = write_run("u", rows_of(VALUES), task_config={"card": {"published": "mean Dice 0.79"}})
    assert table_of(load_runs([folder])).published == ()


def test_the_command_prints_and_writes_them(write_run, tmp_path, capfd):
    folder = write_run("unet", rows_of(VALUES), model="unet", task_config=card(number()))
    words = ["table", f"runs={folder}", "resamples=50", f"out={tmp_path / 'out'}"]
    assert start([*words, "published_numbers=true"]) == 0
    assert "U-Net (published)" in capfd.readouterr().out
    for suffix in ("md", "tex", "csv", "html"):
        text = (tmp_path / "out" / f"table.{suffix}").read_text(encoding="utf-8")
        assert "U-Net" in text
        assert "in our interval" in text
    assert start([*words, "published_numbers=some"]) == 2


def test_the_setting_is_true_or_false_and_not_for_the_score_card(runs):
    found = runs(number())
    usual = {
        "table": None, "metrics": None, "by": None, "mean": "case", "marks": None, "form": "wide", "ci": "inline",
        "percent": False, "precision": None, "resamples": 50, "level": 0.95, "seed": 0, "interval": "percentile",
        "stratify_by": None, "published_numbers": True, "runs": [],
    }  # fmt: skip
    assert len(tables_of(found, usual)["table"].published) == 1
    with pytest.raises(UsageError, match="published_numbers must be true or false, got 'yes'"):
        tables_of(found, usual | {"published_numbers": "yes"})
    with pytest.raises(UsageError, match="no place on the score card"):
        tables_of(found, usual | {"table": "card"})

"""The papers' own tables of question tasks against hand computations, in every format."""

from __future__ import annotations

import numpy as np
import pytest
from omegaconf import OmegaConf

from medimg_eval.commands import table as table_command
from medimg_eval.errors import UsageError
from medimg_eval.results import (
    Look,
    build_authors_tables,
    load_runs,
    mean_interval,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_rich,
    write_all,
)
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics.intervals import Bootstrap, Sample, bootstrap_intervals
from medimg_eval.results.statistics.summaries import Source, _macro_interval, _Summary, summarise

# case, right, attributes
QUESTIONS = [
    ("q1", 1.0, {"system": "CNS", "modality": "CT", "frames": "2"}),
    ("q2", 0.0, {"system": "CNS", "modality": "MRI", "frames": "10"}),
    ("q3", 1.0, {"system": "RES", "modality": "CT, MRI", "frames": "2"}),
    ("q4", 1.0, {"system": "RES", "modality": "X-ray", "frames": "3"}),
    ("q5", 0.25, {"system": "CIR", "modality": "", "frames": "3"}),
]


@pytest.fixture
def write_questions(write_run):
    """Writes the run of a question task, with its own table."""

    def write(name, table, questions=QUESTIONS, metrics=("accuracy",), **manifest):
        rows = [
            (case, f"image of {case}", "choice", metric, value, "right" if value == 1 else "wrong")
            for metric in metrics
            for case, value, _ in questions
        ]
        config = {"_target_": "medimg_eval.tasks.QuestionTask", "table": table}
        facts = {"task": "frames", "task_title": "Frames", "metrics": list(metrics), "task_config": config}
        return write_run(name, rows, {case: said for case, _, said in questions}, **(facts | manifest))

    return write


def tables_of(*folders, **options):
    return build_authors_tables(load_runs(folders), **({"resamples": 200} | options))


def values(table, row=0):
    return {c.title: cell.mean for c, cell in zip(table.columns, table.rows[row].cells, strict=True)}


def note(table, part):
    found = [note for note in table.footnotes if part in note]
    assert len(found) == 1, (part, table.footnotes)
    return found[0]


def test_columns_equal_a_hand_computation(write_questions):
    columns = [
        {"title": "CNS", "where": {"system": "CNS"}},
        {"title": "RES", "where": {"system": "RES"}, "metric": "accuracy"},
        {"title": "CT in RES", "where": {"system": "RES", "modality": "CT"}},
        {"title": "CNS or CIR", "where": {"system": ["CNS", "CIR"]}},
        {"title": "Avg", "metric": "macro_accuracy@system"},
        {"title": "Overall"},
    ]
    (table,) = tables_of(write_questions("m", columns))
    assert values(table) == pytest.approx(
        {
            "CNS": 0.5,
            "RES": 1.0,
            "CT in RES": 1.0,
            "CNS or CIR": 1.25 / 3,
            "Avg": (0.5 + 1 + 0.25) / 3,
            "Overall": 3.25 / 5,
        }
    )
    overall = table.rows[0].cells[-1]
    assert (overall.low, overall.high) == mean_interval([1, 0, 1, 1, 0.25], list("12345"), resamples=200)[1:3]
    assert [cell.n for cell in table.rows[0].cells] == [2, 2, 1, 3, 5, 5]
    assert note(table, "n, in questions") == (
        "n, in questions: CNS 2, RES 2, CT in RES 1, CNS or CIR 3, Avg 5, Overall 5."
    )
    assert note(table, "all other columns") == "Frames: Avg: Macro accuracy (system); all other columns: Accuracy."
    assert any("papers print 100 times as much" in text for text in table.footnotes)


def test_an_attribute_makes_a_column_per_value_in_the_order_asked_for(write_questions):
    columns = [
        {"by": "modality", "order": ["X-ray"], "titles": {"X-ray": "X-Ray"}},
        {"by": "frames"},
        {"by": "label", "metric": "accuracy"},
    ]
    (table,) = tables_of(write_questions("m", columns))
    # The list "CT, MRI" counts under both; a case without a value under none; 10 frames stand after 3.
    assert list(values(table).items()) == [
        ("X-Ray", 1.0),
        ("CT", 1.0),
        ("MRI", 0.5),
        ("2", 1.0),
        ("3", 0.625),
        ("10", 0.0),
        ("choice", 0.65),
    ]


def test_a_value_asked_for_in_full_is_not_taken_apart(write_questions):
    (table,) = tables_of(write_questions("m", [{"by": "modality", "order": ["CT, MRI"]}]))
    assert [column.title for column in table.columns] == ["CT, MRI", "CT", "MRI", "X-ray"]
    assert table.rows[0].cells[0].n == 1


def test_a_summary_of_some_cases_counts_those_only(write_questions):
    columns = [{"title": "CT and MRI", "metric": "macro_accuracy@system", "where": {"modality": ["CT", "MRI"]}}]
    (table,) = tables_of(write_questions("m", columns))
    assert values(table) == {"CT and MRI": 0.75}
    assert table.rows[0].cells[0].n == 3


def test_a_column_that_matches_nothing_is_a_dash_and_named(write_questions):
    columns = [{"title": "END", "where": {"system": ["END", "MSK"]}}, {"title": "Avg"}]
    (table,) = tables_of(write_questions("m", columns))
    assert table.rows[0].cells[0].text(table.columns[0]) == "\N{EN DASH}"
    assert note(table, "END") == "Frames: END (system: END, MSK) matches none of its questions."
    assert table.frame()["n"].tolist() == [0, 5]
    assert not any("not run on this task" in text for text in table.footnotes)


def test_a_metric_that_was_not_scored_has_a_dash_and_says_so(write_questions):
    (table,) = tables_of(write_questions("m", [{"title": "Null", "metric": "unanswered"}, {"title": "Avg"}]))
    assert table.rows[0].cells[0].text(table.columns[0]) == "\N{EN DASH}"
    assert note(table, "no Null scores") == "Frames, M: no Null scores; score the run again to have them."


def test_the_first_metric_of_the_task_is_the_usual_one(write_questions):
    (table,) = tables_of(write_questions("m", [{"by": "system"}], metrics=("unanswered", "accuracy")))
    assert {column.metric for column in table.columns} == {"unanswered"}
    assert {column.arrow for column in table.columns} == {"↓"}


def test_best_and_second_are_marked_in_each_column(write_questions):
    worse = [(case, 0.0, said) for case, _, said in QUESTIONS]
    columns = [{"by": "system"}]
    (table,) = tables_of(write_questions("good", columns), write_questions("bad", columns, worse))
    assert [[cell.mark for cell in row.cells] for row in table.rows] == [["best"] * 3, ["second"] * 3]


def test_every_task_has_a_table_of_its_own(write_questions, tmp_path):
    tables = tables_of(
        write_questions("a", [{"by": "system"}], model="M"),
        write_questions("b", [{"title": "All"}], model="M", task="slake", task_title="SLAKE"),
    )
    assert [[column.title for column in table.columns] for table in tables] == [["CIR", "CNS", "RES"], ["All"]]


def test_the_newest_run_says_what_the_columns_are(write_questions):
    old = write_questions("old", [{"title": "Then"}])
    new = write_questions("new", [{"title": "Now"}], started="2026-11-21T12:00:00+00:00")
    (table,) = tables_of(new, old)
    assert [column.title for column in table.columns] == ["Now"]


def test_an_unfinished_run_is_shown_and_never_averaged(write_questions):
    columns = [{"by": "system", "order": ["CNS"]}, {"title": "Avg"}]
    (table,) = tables_of(write_questions("m", columns, status="running", cases=9, predicted=4))
    assert [cell.text(c) for c, cell in zip(table.columns, table.rows[0].cells, strict=True)] == ["unfinished 4/9"] * 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (None, r"task 'frames' has no `table` in its config"),
        ({"title": "All"}, "expected `table` to be a list"),
        (["CNS"], "column 1 of `table`: expected keys"),
        (
            [{"title": "All"}, {"wher": {}}],
            r"column 2 of `table`: key is invalid: .*'wher'; did you mean 'where'\?",
        ),
        ([{"by": "sistem"}], r"no case has an attribute 'sistem'; did you mean 'system'\?"),
        ([{"title": "All", "order": ["a"]}], "`order` needs `by`"),
        ([{"title": "All", "where": "CT"}], "expected `where` to be attribute: value"),
        ([{"title": "All", "metric": "acuracy"}], "got 'acuracy'"),
    ],
)
def test_columns_that_cannot_be_understood_are_refused(write_questions, columns, words):
    with pytest.raises(UsageError, match=words):
        tables_of(write_questions("m", columns))


def test_all_formats_show_every_column(write_questions, tmp_path):
    (table,) = tables_of(write_questions("m", [{"by": "system", "titles": {"CNS": "C_N%"}}]))
    assert "| Model | CIR ↑ | C\\_N% ↑ | RES ↑ |" in to_markdown(table)
    assert r"Model & CIR $\uparrow$ & C\_N\% $\uparrow$ & RES $\uparrow$" in to_latex(table)
    assert '<th scope="col">C_N% ↑</th>' in to_html(table)
    header, first, *_ = to_csv(table).splitlines()
    assert header.startswith("task,model,run,column,metric,mean,low,high,n,")
    assert first.startswith("frames,M,m,CIR,accuracy,0.25,")
    assert len(to_rich(table).columns) == 4
    assert len(write_all(table, tmp_path / "out")) == 5


def test_many_columns_are_wrapped(write_questions):
    columns = [{"title": f"dimension {number}"} for number in range(27)]
    (table,) = tables_of(write_questions("m", columns))
    layout = table.layout()
    parts = layout.wrapped(lambda part: len(part.headings) <= 10)
    assert [len(part.headings) for part in parts] == [10, 10, 7]
    assert [heading for part in parts for heading in part.headings] == layout.headings
    assert [len(part.headings) for part in layout.wrapped(lambda _: False)] == [1] * 27
    latex = to_latex(table)
    assert latex.count(r"\begin{tabular}{lccccccccc}") == 3
    assert latex.count(r"\begin{table}") == 1
    assert latex.count("& dimension") == 27


def command(folder, **keys):
    usual = {
        "table": "authors",
        "metrics": None,
        "by": None,
        "mean": "case",
        "out": None,
        "scores": None,
        "direction": None,
        "card": True,
        "marks": None,
        "published_numbers": False,
        **Look()._asdict(),
    }
    numbers = {"resamples": 50, "level": 0.95, "seed": 0, "interval": "percentile", "stratify_by": None}
    table_command.run(OmegaConf.create({"runs": str(folder)} | usual | numbers | keys))


def test_the_command_prints_wide_tables_in_parts_and_writes_a_file_per_task(write_questions, tmp_path, capsys):
    columns = [{"title": f"dim {number}"} for number in range(27)]
    folder = write_questions("a", columns, model="M").parent
    command(folder, out=str(tmp_path / "one"))
    printed = capsys.readouterr().out
    assert printed.count("┃ Model") > 1
    assert all(f" dim {number} ↑" in printed for number in range(27))
    assert "Frames: n = 5 questions in 5 groups" in printed
    assert (tmp_path / "one" / "table.md").is_file()
    write_questions("b", [{"title": "All"}], model="M", task="slake", task_title="SLAKE")
    command(folder, out=str(tmp_path / "two"))
    assert {file.stem for file in (tmp_path / "two").iterdir()} == {
        *("table-frames", "table-slake"),
        *("card-frames", "card-slake"),
    }


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"table": "author"}, r"got 'author'; did you mean 'authors'\?"),
        ({"by": "system"}, "leave out by=system"),
        ({"metrics": ["accuracy"]}, "leave out metrics="),
        ({"mean": "class"}, "leave out mean=class"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(write_questions, keys, words):
    with pytest.raises(UsageError, match=words):
        command(write_questions("m", [{"title": "All"}]), **keys)


def test_few_cases_are_flagged(write_questions):
    (table,) = tables_of(write_questions("m", [{"by": "system"}, {"title": "All"}]))
    assert [cell.remark for cell in table.rows[0].cells] == ["n = 1*", "n = 2*", "n = 2*", "n = 5*"]
    assert "*: fewer than 10 questions." in table.footnotes


def test_many_right_and_wrong_answers_have_the_interval_of_the_binomial():
    right = np.zeros(20_000)
    right[:12_000] = 1
    low, high = mean_interval(right, np.arange(20_000))[1:3]
    deviation = np.sqrt(0.6 * 0.4 / 20_000)
    assert (low, high) == pytest.approx((0.6 - 1.96 * deviation, 0.6 + 1.96 * deviation), abs=0.05 * deviation)


def test_many_clusters_of_few_kinds_have_the_interval_that_drawing_one_by_one_gives(monkeypatch):
    rng = np.random.default_rng(1)
    right, image, group = rng.random(900) < 0.3, rng.integers(300, size=900), rng.integers(3, size=900)

    def both_means():
        (class_mean,) = bootstrap_intervals([Sample(right, image, group)], Bootstrap())
        return mean_interval(right, image, resamples=20_000), class_mean

    one_by_one = both_means()
    monkeypatch.setattr("medimg_eval.results.statistics.resampling._MANY_DRAWS", 0)
    at_once = both_means()
    for first, second in zip(one_by_one, at_once, strict=True):
        assert first.mean == second.mean
        assert second[1:3] == pytest.approx(first[1:3], abs=0.03 * (first.high - first.low))


def test_values_of_many_kinds_are_drawn_one_by_one_however_many(monkeypatch):
    rng = np.random.default_rng(1)
    before = mean_interval(rng.random(400), np.arange(400), resamples=100)
    monkeypatch.setattr("medimg_eval.results.statistics.resampling._MANY_DRAWS", 0)
    assert mean_interval(np.random.default_rng(1).random(400), np.arange(400), resamples=100) == before


def test_macro_means_have_the_interval_that_calling_the_summary_gives(write_questions, monkeypatch):
    rng = np.random.default_rng(0)
    named = ["CT", "MRI", "CT, MRI", ""]
    many = [(f"q{n:03d}", float(rng.random() < 0.6), {"modality": named[n % 4]}) for n in range(200)]
    (run,) = load_runs([write_questions("m", [], many)])
    part = Part.whole(run)
    at_once = summarise("macro_accuracy@modality", part, resamples=100, level=0.95, seed=0)
    monkeypatch.setattr("medimg_eval.results.statistics.summaries._macro_interval", lambda *_, **__: None)
    called = summarise("macro_accuracy@modality", part, resamples=100, level=0.95, seed=0)
    assert at_once.mean == called.mean
    # Cases without a value belong to no group, so that only the others are drawn.
    assert (at_once.low, at_once.high) == pytest.approx((called.low, called.high), abs=0.02)


def test_macro_means_over_too_many_groups_are_left_to_the_summary(write_questions, monkeypatch):
    (run,) = load_runs([write_questions("m", [])])
    monkeypatch.setattr("medimg_eval.results.statistics.summaries._MOST_SUMS", 2)
    from medimg_eval.metrics import parse

    source = Source(Part.whole(run), ("accuracy",))
    one = _Summary(source, source.rows(np.arange(source.size)), parse("macro_accuracy@system")[0], ("system",))
    assert _macro_interval(one, Bootstrap(9, 0.9), None) is None

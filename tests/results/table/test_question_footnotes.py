"""What stands below tables of questions, and beside models: denominators, chance, time, cost, baselines."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from medimg_eval.errors import UserError
from medimg_eval.results import (
    build_authors_tables,
    build_table,
    compare,
    load_runs,
    to_html,
    to_latex,
    to_markdown,
)

TASK = {"_target_": "medimg_eval.tasks.QuestionTask", "table": [{"title": "All"}]}


@pytest.fixture
def write_answers(write_run):
    """Writes the run of a question task: the credit of each question, its status, and facts of the manifest."""

    def write(name, given, statuses=None, metrics=("accuracy",), per_image=1, **manifest):
        statuses = statuses or ["right" if credit == 1 else "wrong" for credit in given]
        rows = [
            (f"q{place:04d}", f"image {place // per_image}", "choice", metric, float(credit), status)
            for metric in metrics
            for place, (credit, status) in enumerate(zip(given, statuses, strict=True))
        ]
        facts = {"task_config": TASK, "metrics": list(metrics), "signature": "extraction: cascade, greedy decoding"}
        return write_run(name, rows, **(facts | manifest))

    return write


def table_of(*folders, **options):
    return build_table(load_runs(folders), **({"resamples": 100} | options))


def note(table, part):
    found = [note for note in table.footnotes if part in note]
    assert len(found) == 1, (part, table.footnotes)
    return found[0]


def test_the_denominator_and_the_rule_of_extraction_are_printed(write_answers):
    table = table_of(write_answers("m", [1, 0] * 1_000, per_image=4))
    assert note(table, "extraction") == (
        "Organs: n = 2,000 questions in 500 groups (of one patient, image or set); "
        "extraction: cascade, greedy decoding."
    )
    assert table.footnotes[0] == (
        "Mean over questions [95 % interval: percentile bootstrap, 100 resamples of groups of questions, seed 0]."
    )
    by_question = table_of(write_answers("n", [1, 0], resampled="cases"))
    assert "Organs: n = 2 questions; extraction: cascade, greedy decoding." in by_question.footnotes
    assert by_question.footnotes[0] == "Mean over questions [95 % interval]."
    assert note(by_question, "exact").startswith("Accuracy: exact interval (Clopper and Pearson) of a proportion, of")


def test_replies_without_an_answer_are_counted_by_reason(write_answers):
    statuses = ["right", "unparsed", "unparsed", "refused", "empty", "wrong", "chosen", "right"]
    table = table_of(write_answers("m", [1, 0, 0, 0, 0, 0, 1, 1], statuses, metrics=("accuracy", "unanswered")))
    assert note(table, "no answer") == (
        "Organs, M: no answer in 4 of 8 replies (50.0 %): 2 not understood, 1 refused, 1 empty."
    )
    assert not any("no answer" in text for text in table_of(write_answers("n", [1, 0])).footnotes)


def test_time_and_cost_are_printed(write_answers):
    table = table_of(
        write_answers(
            "m",
            [1, 0],
            timing={"seconds": 812.4, "in_model": 712.0, "overhead": 0.1234},
            usage={"prompt_tokens": 1204331, "requests": 2000, "retries": 3, "cost": 0.4213, "currency": "USD"},
        )
    )
    assert "Organs, M: harness overhead 12.3 % of 812 s." in table.footnotes
    assert note(table, "used") == (
        "Organs, M: used 1,204,331 prompt tokens, 2,000 requests, 3 retries, cost 0.4213, currency USD."
    )


@pytest.mark.parametrize("more", [{"timing": {"seconds": 0.1, "in_model": 0.0, "overhead": 1.0}}, {"baseline": True}])
def test_of_an_instant_or_a_baseline_no_overhead_is_told(write_answers, more):
    timing = {"seconds": 812.4, "in_model": 712.0, "overhead": 0.1234}
    footnotes = table_of(write_answers("m", [1, 0], **{"timing": timing, **more})).footnotes
    assert not any("overhead" in note for note in footnotes)


def test_what_several_starts_of_a_run_used_is_added_up(write_answers):
    starts = [{"requests": 20, "seconds": 100.25, "commit": "abc"}, {"requests": 5, "seconds": 50.0, "cached": 0}]
    table = table_of(write_answers("m", [1, 0], usage=starts))
    assert "Organs, M: used 25 requests, 150 seconds, commit abc." in table.footnotes


def test_chance_is_a_footnote_unless_it_is_a_row(write_answers):
    model = write_answers("m", [1, 0], chance={"accuracy": 0.25})
    assert "Organs: chance 25.0 %." in table_of(model).footnotes
    both = table_of(model, write_answers("Chance", [0.25, 0.25], model="Chance", baseline=True))
    assert not any("chance" in text for text in both.footnotes)
    other_data = write_answers("c", [0.25, 0.25], model="Chance", baseline=True, data_fingerprint="other")
    assert any("chance 25.0 %" in text for text in table_of(model, other_data).footnotes)
    (own,) = build_authors_tables(load_runs([model]), resamples=100)
    assert "Organs: chance 25.0 %." in own.footnotes


def test_chance_by_several_metrics_names_them(write_answers):
    chance = {"accuracy": 0.25, "unanswered": 0.0, "group_accuracy": 0.06}
    folder = write_answers("m", [1, 0], metrics=("accuracy", "unanswered"), chance=chance)
    assert "Organs: chance 25.0 % (Accuracy), 0.0 % (Unanswered)." in table_of(folder).footnotes


def test_other_tasks_keep_their_words(write_run):
    table = table_of(write_run("m", chance={"dice": 0.2}))
    assert "Organs: n = 1 cases of 1 patients; surface=surfel." in table.footnotes
    assert not any("chance" in text for text in table.footnotes)


@pytest.fixture
def four(write_answers):
    """Two models, the better one blind, and chance, better than all."""
    return [
        write_answers("a", [0.9] * 4, model="Chance", baseline=True),
        write_answers("b", [1, 1, 1, 0], model="Good (blind)"),
        write_answers("c", [1, 1, 0, 0], model="Good"),
        write_answers("d", [1, 0, 0, 0], model="Poor"),
    ]


def test_baselines_stand_below_the_models_and_are_not_ranked(four):
    table = table_of(*four)
    assert [(row.name, row.cells[0].mark) for row in table.rows] == [
        ("Good", "best"),
        ("Poor", "second"),
        ("Chance", ""),
        ("Good (blind)", ""),
    ]
    assert [line.opens for line in table.layout().lines] == [False, False, True, False]
    assert note(table, "Baselines") == ("Baselines, below the models, neither ranked nor tested: Chance, Good (blind).")
    assert "\\midrule\nChance" in to_latex(table)
    assert '<tr class="opens"><th scope="row">Chance</th>' in to_html(table)
    assert "| Chance | 0.900" in to_markdown(table)
    (own,) = build_authors_tables(load_runs(four), resamples=100)
    assert [row.name for row in own.rows] == [row.name for row in table.rows]


def test_baselines_stand_below_in_divided_tables(four):
    table = table_of(*four, by="label")
    assert [row.name for row in table.rows] == ["Good", "Poor", "Chance", "Good (blind)"] * 2
    assert [row.cells[0].mark for row in table.rows] == ["best", "second", "", ""] * 2


def test_a_failed_question_is_no_other_label(write_answers):
    table = table_of(
        write_answers("a", [1, 0, 1], model="A"), write_answers("b", [1, 0, 0], ["right", "wrong", "failed"], model="B")
    )
    assert not any("different labels" in text for text in table.footnotes)


def test_baselines_that_are_asked_in_another_way_are_no_reason_to_warn(write_answers):
    blind = write_answers("a", [1, 0], model="M (blind)", signature="extraction: cascade, without images")
    table = table_of(write_answers("b", [1, 1], model="M"), blind)
    assert not any("different ways" in text for text in table.footnotes)
    assert "extraction: cascade, greedy decoding." in note(table, "n = 2 questions")
    assert "without images" in note(table_of(blind), "n = 2 questions")


def test_one_model_above_baselines_is_not_the_best(four):
    table = table_of(*four[:3])
    assert [row.cells[0].mark for row in table.rows] == ["", "", ""]
    only = table_of(*four[:2])
    assert [line.opens for line in only.layout().lines] == [False, False]


def test_baselines_are_not_tested_unless_they_are_asked_for(four):
    runs = load_runs(four)
    comparison = compare(runs, "accuracy")
    assert comparison.maps[0].models == ("Good", "Poor")
    assert "Organs: baselines, which are not compared: Chance, Good (blind)." in comparison.sheets[0].content.footnotes
    frame = compare(runs, "accuracy", baseline="Chance").frame()
    assert set(frame["model"]) == {"Good", "Poor"}
    assert set(frame["other"]) == {"Chance"}
    with pytest.raises(UserError, match="Only baselines have scores of accuracy"):
        compare(runs[:2], "accuracy")


def test_answers_that_are_right_or_wrong_are_tested_as_by_mcnemar(write_answers):
    rng = np.random.default_rng(2)
    first, second = (rng.random(400) < 0.7).astype(float), (rng.random(400) < 0.6).astype(float)
    frame = compare(
        load_runs([write_answers("a", first, model="A"), write_answers("b", second, model="B")]),
        "accuracy",
        baseline="B",
    ).frame()
    only_first, only_second = int((first > second).sum()), int((first < second).sum())
    fewer, tossed = min(only_first, only_second), scipy.stats.binom(only_first + only_second, 0.5)
    assert frame["p"].item() == pytest.approx(2 * tossed.cdf(fewer) - tossed.pmf(fewer))  # mid-p
    assert frame["zeros"].item() == 400 - only_first - only_second


def test_fractional_credits_are_averaged_and_tested_like_any_value(write_answers):
    rng = np.random.default_rng(3)
    fractions = 1 / rng.integers(2, 6, size=120)
    folders = [
        write_answers("a", rng.random(120) < 0.9, model="A"),
        write_answers("b", fractions, ["chosen"] * 120, model="Likelihood"),
    ]
    table = table_of(*folders)
    assert table.rows[1].cells[0].mean == pytest.approx(fractions.mean())
    comparison = compare(load_runs(folders), "accuracy")
    assert comparison.maps[0].better == ((False, True), (False, False))


def test_models_of_one_median_are_ordered_by_their_means(write_answers):
    folders = [write_answers("a", [1, 1, 1, 0, 0], model="A"), write_answers("b", [1, 1, 1, 1, 0], model="B")]
    assert compare(load_runs(folders), "accuracy").maps[0].models == ("B", "A")


def test_answers_of_an_unfinished_run_are_counted(write_answers):
    folder = write_answers("m", [1], status="running", cases=9, predicted=2)
    shard = folder / "predictions-0.jsonl"
    shard.write_text(shard.read_text().replace('"file": "x"', '"answer": {"texts": ["A"]}'))
    (row,) = table_of(folder).rows
    assert row.cells[0].text(table_of(folder).columns[0]) == "unfinished 2/9"

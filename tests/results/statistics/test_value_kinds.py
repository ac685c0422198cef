"""What interval a metric's values get follows from what it declares them to be, and from nothing else."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from medimg_eval.errors import UsageError
from medimg_eval.metrics.registry import Metric, available, get, metric, summary
from medimg_eval.results import build_table, load_runs, load_scores
from medimg_eval.results.statistics.intervals import Bootstrap, Sample, table_intervals

PROPORTIONS = {
    *("attack_success", "right_before_attack", "stance_accuracy", "stance_share", "within_rater_range"),
    *("accuracy", "accuracy_in_range", "accuracy_matched", "accuracy_of_answered", "accuracy_or_exact_match"),
    *("accuracy_or_judged", "accuracy_within", "accuracy_within_percent", "answer_contains_reference", "exact_match"),
    *("exact_match_ratio", "grade", "i2t_recall", "identified", "iou_at", "open_accuracy", "phi_suspected"),
    *("point_in_box", "pointing_game", "refused", "sdr", "t2i_recall", "top1_accuracy", "unanswered"),
    *("onset_accuracy", "over_call", "protocol_failure", "recovery", "right_within_cost", "right_within_seconds"),
    *("right_within_tokens", "thought_truncated", "truncated", "under_call"),
    *("m3d_letter_said", "span_iou_at"),
    *("error_flag_accuracy", "error_sentence_accuracy", "grounded_accuracy", "judged_kind", "medval_safe"),
    *("evidence_iou_at", "first_error_found", "grounded_grades", "spinal_level_exact"),
    *("listed_answer", "step_argument_accuracy", "step_kind_accuracy", "step_tool_accuracy"),
}


def rows(values, name):
    return [(f"c{i:02d}", f"p{i:02d}", "all", name, float(value), "present") for i, value in enumerate(values)]


def cells(folder, **settings):
    table = build_table(load_runs([folder]), resamples=200, **settings)
    return table, {row["metric"]: row for row in table.frame().to_dict("records")}


# -- what metrics declare


def test_only_metrics_whose_docstrings_ask_whether_declare_a_proportion():
    # A new one is put here by hand, after a look at what its function returns.
    assert {name for name, found in available().items() if found.value_kind == "proportion"} == PROPORTIONS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dice", "bounded"),
        ("rouge_l", "bounded"),
        ("detection_recall", "bounded"),
        ("hd95", "unbounded"),
        ("psnr", "unbounded"),
        ("absolute_error", "unbounded"),
        ("length_ratio", "ratio"),
        ("nrmse", "ratio"),
        ("volume_error_abs", "ratio"),
        ("betti_error", "count"),
        ("lesion_fp", "count"),
        ("green_significant", "count"),
        ("pearson", "correlation"),
        ("auroc", "unbounded"),
    ],
)
def test_a_metric_says_what_its_values_are(name, kind):
    assert get(name).value_kind == kind


def test_a_metric_of_ones_own_that_says_nothing_is_no_proportion():
    declared = {"name": "x", "function": len, "kind": "mask", "title": "X", "higher_is_better": True}
    declared |= {"definition": "", "source": ""}
    assert Metric(**declared, best=1.0, worst=0.0).value_kind == "bounded"
    assert Metric(**declared, best=0.0, worst=float("nan")).value_kind == "unbounded"
    assert Metric(**declared, best=0.0, worst="diagonal", unit="mm").value_kind == "unbounded"
    assert Metric(**declared, best=0.0, worst=100.0, unit="ms").value_kind == "unbounded"
    assert Metric(**declared, best=1, worst=0.0, value_kind="proportion").value_kind == "proportion"
    assert replace(get("accuracy"), worst=float("nan")).value_kind == "proportion"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"value_kind": "share"}, "one of proportion, bounded, unbounded, ratio, count, correlation, got 'share'"),
        ({"value_kind": "proportion", "worst": -1.0}, "to have no unit and the ends 0 and 1"),
        ({"value_kind": "proportion", "worst": 0.0, "unit": "mm"}, "to have no unit and the ends 0 and 1"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(more, words):
    declared = {"kind": "mask", "title": "X", "higher_is_better": True, "best": 1.0, "worst": 0.0, "source": "me"}
    with pytest.raises(ValueError, match=words):
        metric(**(declared | more))(lambda pair: 1.0)
    assert "<lambda>" not in available()
    with pytest.raises(TypeError):
        summary(title="X", higher_is_better=True, best=1.0, source="me", needs=("dice",), kind_of_value="count")


# -- what follows for their intervals


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("name", ["dice", "rouge_l", "length_ratio", "hd95", "betti_error", "nsd@2", "soft_dice"])
def test_values_that_are_all_the_same_have_no_interval_unless_they_are_yes_or_no(write_run, name, value):
    table, found = cells(write_run("m", rows([value] * 12, name) + rows([value] * 12, "accuracy")))
    assert (found[name]["interval"], np.isnan(found[name]["low"])) == ("all equal", True)
    assert found["accuracy"]["interval"] == "exact"
    bound = 1 - 0.025 ** (1 / 12)  # Clopper and Pearson's by hand
    assert (found["accuracy"]["low"], found["accuracy"]["high"]) == pytest.approx(
        (1 - bound, 1) if value else (0, bound)
    )
    column = table.columns[[one.metric for one in table.columns].index(name)]
    cell = table.rows[0].cells[table.columns.index(column)]
    assert cell.interval_text(column) == "[all equal]"
    assert any(note.startswith("[all equal]: all values are the same") for note in table.footnotes)


@pytest.mark.parametrize("name", ["dice", "rouge_l", "length_ratio", "lesion_f1"])
def test_zeros_and_ones_of_a_metric_that_is_no_proportion_have_a_bootstrap(write_run, name):
    values = [1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    _, found = cells(write_run("m", rows(values, name) + rows(values, "accuracy")))
    assert (found[name]["interval"], found["accuracy"]["interval"]) == ("percentile", "wilson")


def test_a_declared_proportion_with_other_values_is_seen_and_has_a_bootstrap(write_run):
    # Two options that a model prefers alike are worth a half.
    _, found = cells(write_run("m", rows([1, 0, 0.5, 1, 0, 1, 1, 1, 0, 1, 1, 1], "accuracy")))
    assert found["accuracy"]["interval"] == "percentile"
    _, found = cells(write_run("n", rows([0.5] * 12, "accuracy")))
    assert found["accuracy"]["interval"] == "all equal"


@pytest.mark.parametrize("name", ["dice", "accuracy"])
def test_fewer_than_five_patients_are_too_few_before_they_are_all_equal(write_run, name):
    _, found = cells(write_run("m", rows([1, 1, 1, 1], name)))
    assert found[name]["interval"] == ("exact" if name == "accuracy" else "too few")


# -- scores computed elsewhere


@pytest.fixture
def elsewhere(tmp_path):
    def write(**metrics):
        file = tmp_path / "mine.csv"
        with file.open("w", newline="") as out:
            table = csv.writer(out)
            table.writerow(["case", "model", "metric", "value"])
            for name, values in metrics.items():
                table.writerows([[f"c{i}", "m", name, value] for i, value in enumerate(values)])
        return file

    return write


ANSWERS = [1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1]


def test_zeros_and_ones_from_elsewhere_are_answers_only_where_the_metric_is_known_or_somebody_says_so(elsewhere):
    file = elsewhere(mine=ANSWERS, other=ANSWERS, accuracy=ANSWERS, dice=ANSWERS)

    def made(**settings):
        frame = build_table(load_scores(file, **settings), resamples=100).frame().set_index("metric")
        return frame["interval"].to_dict()

    known = {"accuracy": "wilson", "dice": "percentile"}
    assert made() == {"mine": "percentile", "other": "percentile"} | known
    assert made(proportions=["mine"]) == {"mine": "wilson", "other": "percentile"} | known


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mien", r"proportions names 'mien', of which there are no scores; did you mean 'mine'"),
        ("dice", r"proportions names 'dice', a metric of ours that says itself what it is"),
        ("odd", r"proportions names 'odd', which is 0\.5 in line 15; values of yes or no are 1 and 0"),
    ],
)
def test_what_cannot_be_a_proportion_is_refused(elsewhere, name, words):
    with pytest.raises(UsageError, match=words):
        load_scores(elsewhere(mine=ANSWERS, odd=["", 0.5, 1], dice=ANSWERS), proportions=[name])


# -- how often they hold the truth (benchmarks/coverage.py: more of each)

DRAWN = {
    "proportion": (scipy.stats.bernoulli(0.9), 0.93, 0.99),
    "bounded": (scipy.stats.beta(8, 2), 0.91, 0.97),
    "unbounded": (scipy.stats.lognorm(0.5, scale=3), 0.89, 0.96),
    "ratio": (scipy.stats.lognorm(0.3), 0.91, 0.97),
    "count": (scipy.stats.poisson(1.5), 0.91, 0.97),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_intervals_of_40_patients_hold_the_truth_about_as_often_as_they_say(kind):
    drawn, least, most = DRAWN[kind]
    data = drawn.rvs(size=(1_000, 40), random_state=np.random.default_rng(7)).astype(float)
    samples = [Sample(row, np.arange(40), share=kind == "proportion") for row in data]
    found = table_intervals(samples, Bootstrap(400))
    held = np.mean([one.low <= drawn.mean() <= one.high for one in found])
    assert least <= held <= most

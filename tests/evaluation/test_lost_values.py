"""What a metric that raises costs, what annotators and judges read of answers, and runs without a value."""

import math

import numpy as np
import pytest

from medimg_eval import metrics
from medimg_eval.commands.console import _without_value, fail_if_cases_failed
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.scoring import RAISED, score_case
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics import segmentation_scores
from medimg_eval.metrics.registry import judge_says, read_by
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.results import load_runs
from medimg_eval.tasks import QuestionTask
from medimg_eval.tasks.questions.staged import StagedQuestionTask
from tests.helpers.asking import Quiz, Says
from tests.helpers.judge_lines import judge_lines
from tests.helpers.running import evaluate, rescore
from tests.tasks.test_segmentation_2d import case as picture
from tests.tasks.test_segmentation_2d import task as pictures

OPEN = [{"text": f"What is seen in {n}?", "kind": "open", "right": "mild edema"} for n in range(3)]
SAYS = {"q0": "mild edema", "q1": "edema", "q2": "a large nodule"}


class Counter(TextAnnotator):
    """Counts words."""

    needs = ()

    def annotate(self, texts):
        return [len(text.split()) for text in texts]


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """The list of metrics, with those of a test until it ends."""
    metrics.available()
    monkeypatch.setattr(metrics.registry, "_METRICS", dict(metrics.registry._METRICS))


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return Settings(runs=tmp_path / "runs", run=None, trainer=None, config={}, annotators={"counter": made(Counter())})


def made(model, name="M"):
    return ModelSpec(name, type(model), {}, lambda: model)


def add(function, kind="answer", **more):
    about = {"title": function.__name__, "higher_is_better": True, "best": 1.0, "worst": 0.0, "source": "a test"}
    return metrics.metric(kind=kind, **about | more)(function)


def quiz(items=OPEN, **more):
    config = {"name": "quiz", **more}
    return QuestionTask(name="quiz", layout=Quiz(list(items)), splits={"test": "test"}, config=config, **more)


def values(folder, metric):
    scores = load_runs([folder])[0].scores
    return scores[scores["metric"] == metric].set_index("case")["value"].to_dict()


def told(folder):
    with pytest.raises(UserError) as caught:
        fail_if_cases_failed([folder])
    return str(caught.value)


def test_a_metric_that_raises_or_is_infinite_costs_its_own_values_alone(settings):
    def strict(pair):
        """Raises over one answer."""
        if pair.text == "edema":
            raise ZeroDivisionError("division by zero")
        return math.inf if "nodule" in pair.text else 0.5

    add(strict)
    folder = evaluate(quiz(metrics=["strict", "rouge_l"]), made(Says(SAYS)), settings)
    assert values(folder, "rouge_l") == pytest.approx({"q0": 1, "q1": 2 / 3, "q2": 0})
    assert values(folder, "strict") == pytest.approx({"q0": 0.5, "q1": math.nan, "q2": math.nan}, nan_ok=True)
    (run,) = load_runs([folder])
    assert run.failed_cases == 0
    assert set(run.scores.loc[run.scores["value"].isna(), "status"]) == {"error"}
    (note,) = [one for one in run.notes if "strict" in one]
    assert note.startswith(
        "strict raised an error on 2 of 3 cases, left out of its mean, such as q1: ZeroDivisionError"
    )
    assert "2 values are lost to errors" in told(folder)
    assert "q1 (strict): ZeroDivisionError: division by zero" in told(folder)
    assert "q2 (strict): open is inf" in told(folder)


def test_a_metric_that_raises_throughout_ends_no_run_even_where_a_case_has_no_answer(settings):
    def broken(pair):
        """Raises."""
        raise KeyError("x")

    add(broken)
    task = quiz(metrics=["broken", "rouge_l"])
    folder = evaluate(task, made(Says(SAYS, fails_on=["q2"])), settings)
    assert values(folder, "rouge_l") == pytest.approx({"q0": 1, "q1": 2 / 3, "q2": 0})
    assert "2 values are lost to errors" in told(folder)
    assert "broken: no case has a value" in told(folder)


def test_a_metric_that_was_mended_is_tried_again(settings):
    def late(pair):
        """Raises until it is mended."""
        return late.value()

    late.value = lambda: 1 / 0
    add(late)
    task = quiz(metrics=["late", "rouge_l"])
    folder = evaluate(task, made(Says(SAYS)), settings)
    late.value = lambda: 1.0
    assert evaluate(task, made(Says(SAYS)), settings) == folder
    assert values(folder, "late") == {"q0": 1, "q1": 1, "q2": 1}
    fail_if_cases_failed([folder])


def test_without_a_physical_size_what_needs_none_is_judged_and_the_rest_says_so():
    case = picture("pixel", "pixel")
    task = pictures(case, metrics=["dice", "hd95", "nsd@2"])
    scored = score_case(task, case, case.target.read().labels)
    assert [(one.metric, one.value) for one in scored if not math.isnan(one.value)] == [("dice", 1.0)]
    lost = {one.metric: one.status for one in scored if math.isnan(one.value)}
    assert set(lost) == {"hd95", "nsd@2"}
    assert "states no physical size; set task.units=pixel to judge hd95 in pixels" in lost["hd95"]
    assert all(status.startswith(RAISED) for status in lost.values())  # and so is tried again
    worst = {one.metric: one.value for one in task.worst(case)}
    assert worst == pytest.approx({"dice": 0, "hd95": math.nan, "nsd@2": math.nan}, nan_ok=True)


@pytest.mark.parametrize("declared", [False, True])
def test_a_mask_metric_with_a_parameter_needs_the_spacing_only_if_it_says_so(declared):
    def scaled(pair, factor):
        """A share, by a factor."""
        return pair.overlap_size / pair.reference_size / factor

    add(scaled, "mask", parameter="factor", needs_spacing=declared)
    labels = np.ones((2, 3), np.uint8)
    empty = {"spacing": "skip"}
    (score,) = segmentation_scores(labels, labels, (math.nan, 1), labels=[1], metrics=["scaled@2"], empty=empty)
    assert score.value == pytest.approx(math.nan if declared else 0.5, nan_ok=True)


def test_an_annotator_reads_answers_that_are_no_reports(settings):
    def words(pair):
        """The words that were written over those of the right text."""
        read = pair.read("counter")
        return read.prediction / read.reference

    add(words, requires=read_by("counter"))
    task = quiz(metrics=["words", "rouge_l"])
    folder = evaluate(task, made(Says(SAYS)), settings)
    assert values(folder, "words") == {"q0": 1, "q1": 0.5, "q2": 1.5}
    assert "counter by rules" in load_runs([folder])[0].signature
    fail_if_cases_failed([folder])
    rescore(folder, quiz(metrics=["words"]), None, settings.annotators)
    assert values(folder, "words") == {"q0": 1, "q1": 0.5, "q2": 1.5}
    settings.annotators = {}
    for again in (lambda: evaluate(task, made(Says(SAYS)), settings), lambda: rescore(folder, task)):
        with pytest.raises(UserError, match="words: there is no annotator 'counter'"):
            again()


def test_what_no_annotator_or_judge_is_shown_is_refused_before_anything_is_asked():
    def seen(pair):
        """Anything."""

    for more, what in ((read_by("counter"), "an annotator"), (judge_says("green"), "a judge")):
        with pytest.raises(UsageError, match=f"Metric 'seen' judges mask and needs {what}"):
            add(seen, "mask", requires=more)
    stages = [{"name": "one", "path": "p"}]
    with pytest.raises(UsageError, match="hallucination_free: chains of questions are judged by the rule"):
        StagedQuestionTask(name="q", layout=Quiz(), stages=stages, metrics=["hallucination_free"])


def test_the_question_of_a_metric_is_put_to_the_judge_whatever_text_is_answered(settings):
    asked = ["accuracy", "hallucination_free"]
    with pytest.raises(UserError, match=r"hallucination_free: needs a judge; add model@judge=NAME"):
        evaluate(quiz(metrics=asked), made(Says(SAYS)), settings)
    settings.judge = made(Says(default="Correct Statements"), "Judge")
    folder = evaluate(quiz(metrics=asked), made(Says(SAYS)), settings)
    assert values(folder, "hallucination_free") == {"q0": 1, "q1": 1, "q2": 1}
    lines = judge_lines(folder)
    assert {line["question"] for line in lines} >= {"medihall"}


def test_a_run_without_a_value_by_a_metric_says_so_and_fails(settings):
    folder = evaluate(quiz(metrics=["rouge_l", "box_iou"]), made(Says(SAYS)), settings)
    assert told(folder).startswith("box_iou: no case has a value in")


def test_questions_to_a_judge_are_optional_unless_there_is_nothing_else(settings):
    grade = {"grade": {"prompt": {"user": "{output}"}, "pattern": r"(\d)"}}
    folder = evaluate(quiz(metrics=["rouge_l", "judged@grade"], judge=grade), made(Says(SAYS)), settings)
    fail_if_cases_failed([folder])
    folder = evaluate(quiz(metrics=["judged@grade"], judge=grade), made(Says(SAYS)), settings)
    assert told(folder).startswith("judged@grade: no case has a value in")


def test_a_ratio_that_is_infinite_where_nobody_is_right_is_no_failure():
    told = {"metrics": ["accuracy", "tokens_per_right"], "baseline": False}
    accuracy, ratio = {"metric": "accuracy", "mean": 0.0}, {"metric": "tokens_per_right", "mean": None}
    assert _without_value(told, {"metrics": [accuracy, ratio]}) == []
    assert _without_value(told, {"metrics": [accuracy | {"mean": None}, ratio]}) == told["metrics"]

"""Confidences of answers to questions: asked, kept, scored, and shown in a table."""

import math
from functools import partial

import lightning.pytorch as pl
import pytest
from asking import Quiz, Says

from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models import Chooser
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks import QuestionTask
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

METRICS = ["accuracy", "calibration_shift", "ece_mass@2", "aurc"]


class Likely(Chooser):
    """Gives the option A a probability of 0.7, and the others 0.1 each."""

    log_likelihoods = True

    def choose(self, prompts):
        return [{letter: math.log(0.7 if letter == "A" else 0.1) for letter in prompt.options} for prompt in prompts]


class Similar(Likely):
    """Says the same, of numbers that are no likelihoods."""

    log_likelihoods = False


def quiz():
    """Eight questions, of which A is right in two."""
    config = {"name": "quiz", "template": {}, "metrics": METRICS}
    return QuestionTask(name="quiz", layout=Quiz(number=8), splits={"test": "test"}, metrics=METRICS, config=config)


def shown(model, tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    name = type(model).__name__
    folder = evaluate(quiz(), ModelSpec(name, type(model), {"name": name}, load=lambda: model), settings)
    table = build_table(load_runs([folder]), resamples=100)
    return table, dict(zip([column.metric for column in table.columns], table.rows[0].cells, strict=True))


def test_only_the_evidence_of_answers_is_asked_for():
    assert quiz().case_metrics == ["accuracy", "confidence"]


@pytest.mark.parametrize("model", [Likely(), Says(default="The answer is A. Confidence: 70%")])
def test_a_run_leaves_confidences_and_a_table_shows_what_they_are_worth(model, tmp_path):
    task = quiz()
    cases = task.cases("test")
    prompts = [task.prompt(case, task.read_images(case)) for case in cases]
    answers = [task.accept(case, answer) for case, answer in zip(cases, task.ask(model, prompts), strict=True)]
    rows = [row for case, answer in zip(cases, answers, strict=True) for row in task.score(case, answer.as_record())]
    sure = [row for row in rows if row.metric == "confidence"]
    assert [row.value for row in sure] == pytest.approx([0.7] * 8)
    assert [row.status for row in sure] == ["right", "wrong", "wrong", "wrong"] * 2
    assert {row.label for row in sure} == {"choice"}


def test_numbers_that_are_no_likelihoods_leave_none():
    task = quiz()
    case = task.cases("test")[0]
    [answer] = task.ask(Similar(), [task.prompt(case, task.read_images(case))])
    assert [row.metric for row in task.score(case, task.accept(case, answer))] == ["accuracy"]


def test_a_table_shows_what_confidences_are_worth_or_that_there_are_none(tmp_path):
    table, cells = shown(Likely(), tmp_path)
    assert cells["calibration_shift"].mean == pytest.approx(0.7 - 0.25)
    assert cells["ece_mass@2"].mean == pytest.approx(0.45)
    assert cells["aurc"].mean == pytest.approx(0.75)
    assert any("would reach about" in note for note in table.footnotes)
    table, cells = shown(Similar(), tmp_path)
    places = {column.metric: column for column in table.columns}
    assert cells["accuracy"].mean == 0.25
    assert [cells[name].text(places[name]) for name in METRICS[1:]] == ["–"] * 3


def test_options_have_probabilities_that_conformal_sets_are_made_of():
    task, names = quiz(), ["option_probability"]
    case = task.cases("test")[1]
    [answer] = task.ask(Likely(), [task.prompt(case, task.read_images(case))])
    rows = task.score(case, task.accept(case, answer), names)
    right = case.target.read().value
    assert {row.label: row.value for row in rows} == {
        letter: pytest.approx(0.7 if letter == "A" else 0.1) for letter in case.question.options
    }
    assert [row.label for row in rows if row.status == "right"] == [right]
    [answer] = task.ask(Similar(), [task.prompt(case, task.read_images(case))])
    assert task.score(case, task.accept(case, answer), names) == []

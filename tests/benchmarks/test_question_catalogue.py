"""Every benchmark of questions: its files are read, and answers to it are worth what was worked out by hand."""

import re

import numpy as np
import pytest

from medimg_eval.errors import CaseError
from medimg_eval.metrics import parse
from tests.helpers.catalogue import AGENTS, SAMPLES, answered, best_of, right_reply, task_of, worth
from tests.helpers.config_files import CONFIGS, config_files
from tests.helpers.oracle import check_rows
from tests.helpers.samples import ALL


def _asks(path):
    """Whether a task's config, or the protocol it is made of, is one of questions."""
    text = path.read_text()
    named = [
        CONFIGS / "protocol" / f"{line.split(': ')[1].strip()}.yaml"
        for line in text.splitlines()
        if "/protocol@" in line
    ]
    named += [
        CONFIGS / "task" / folder / f"{name}.yaml" for folder, name in re.findall(r"/task/(\w+)@_here_: (\w+)", text)
    ]
    siblings = (path.with_name(f"{name}.yaml") for name in re.findall(r"^  - (\w+)$", text, re.MULTILINE))
    named += [sibling for sibling in siblings if sibling.is_file()]  # a task may start from another of its folder
    return "QuestionTask" in text or "tasks.questions" in text or any("Question" in one.read_text() for one in named)


assert ALL is not None

TASKS = [path.stem for path in config_files("task") if _asks(path) and path.parent.name != "quickstart"]
EACH = pytest.mark.parametrize("name", sorted(SAMPLES))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Intervals are not what is tested here, and a summary is computed anew for every resample."""
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)


def readable(task):
    return [case for case in task.cases("test") if case.question is not None]


def perfect(name, task):
    reply = SAMPLES[name].perfect or right_reply
    return {case.id: reply(case) for case in readable(task)}


def test_every_benchmark_has_a_sample_and_every_sample_a_benchmark():
    attacked = ["medqa_attacked"]  # on the sample of medqa, with a model that attacks: tests/end_to_end/test_attack.py
    assert sorted([*SAMPLES, *AGENTS, *attacked]) == sorted(TASKS)


@EACH
def test_the_authors_files_are_read_and_the_first_question_is_put_word_for_word(name, tmp_path):
    task, sample = task_of(name, tmp_path), SAMPLES[name]
    cases = task.cases("test")
    assert [case.id for case in cases] == sample.cases
    images = task.read_images(cases[0])
    prompt = task.prompt(cases[0], images)
    assert len(images) == sample.images
    assert prompt.text == sample.text
    for case in cases[1:]:
        if case.question is None:
            with pytest.raises(CaseError):
                case.target.read()
        else:
            task.prompt(case, task.read_images(case))


@EACH
def test_known_answers_are_worth_what_was_worked_out_by_hand(name, tmp_path):
    sample = SAMPLES[name]
    for extraction, wanted in {"cascade": sample.scores, "authors": sample.authors}.items():
        if wanted:
            metrics = list(wanted)
            task = task_of(name, tmp_path / "data", extraction=extraction, metrics=metrics)
            folder = answered(task, sample.replies, tmp_path / extraction)
            check_rows(f"{name}/{extraction}", folder)
            found = worth(folder)
            assert {metric: found[metric] for metric in wanted} == pytest.approx(dict(wanted), nan_ok=True)


@EACH
def test_perfect_answers_are_worth_all_and_empty_ones_nothing(name, tmp_path):
    sample, task = SAMPLES[name], task_of(name, tmp_path / "data")
    metrics = [one for one in task.metrics if not one.startswith(("judge", "stance", "rubric"))]
    task = task_of(name, tmp_path / "data", metrics=metrics)
    found = worth(answered(task, perfect(name, task), tmp_path / "perfect"))
    wanted = {metric: sample.best.get(metric, best_of(metric)) for metric in metrics}
    assert {metric: found[metric] for metric in metrics} == pytest.approx(wanted, nan_ok=True)
    found = worth(answered(task, {}, tmp_path / "empty"))
    for metric in metrics:
        declared, _ = parse(metric)
        if declared.kind == "answer" and not np.isnan(found.get(metric, np.nan)):
            assert found[metric] == declared.worst


@EACH
def test_the_order_of_the_answers_does_not_matter(name, tmp_path):
    sample, task = SAMPLES[name], task_of(name, tmp_path / "data")
    turned = dict(reversed(list(sample.replies.items())))
    one, other = (
        worth(answered(task, given, tmp_path / where)) for given, where in ((sample.replies, "a"), (turned, "b"))
    )
    assert one == pytest.approx(other, nan_ok=True)

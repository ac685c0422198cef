"""Kinds, levels of risk and sub-answers that a judge tells, by hand and as replies hold them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get, parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.kinds import read_kinds, read_risk_level
from medimg_eval.metrics.judges.sub_answers import read_sub_answers, sub_answer_scores
from medimg_eval.question import Reply, Turn
from tests.helpers.catalogue import answered, task_of, worth
from tests.helpers.samples import ALL

assert ALL is not None


def value(name, **judged):
    found, parameter = parse(name)
    given_parameter = () if parameter is None else (parameter,)
    return found.function(AnsweredQuestion("open", "said", ["due"], judged=judged), *given_parameter)


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        ('{"kinds": ["Hallucination", "lack of domain-knowledge"]}', ["hallucination", "lack_of_domain_knowledge"]),
        ('It fails.\n```json\n{"kinds": []}\n```', []),
        ('{"kinds": "hallucination"}', None),
        ('{"kinds": [1]}', None),
        ("hallucination", None),
    ],
)
def test_kinds_are_read_of_json_alone(reply, kinds):
    assert read_kinds(reply) == kinds


def test_an_answer_is_of_each_kind_that_is_named():
    named = {"lmod_failures": ["hallucination", "misclassification"]}
    assert value("judged_kind@lmod_failures:hallucination", **named) == 1
    assert value("judged_kind@lmod_failures:failure_to_abstain", **named) == 0
    assert value("judged_kind@lmod_failures:none", **named) == 0
    assert value("judged_kind@lmod_failures:none", lmod_failures=[]) == 1
    assert math.isnan(value("judged_kind@lmod_failures:none"))
    assert math.isnan(value("judged_kind@lmod_failures:none", lmod_failures=None))
    for bad in ("lmod_failures", "lmod_failures:", ":none"):
        with pytest.raises(UsageError, match="expected QUESTION:KIND"):
            parse(f"judged_kind@{bad}")


@pytest.mark.parametrize(
    ("reply", "level", "errors"),
    [
        ('{"errors": ["Missing detail"], "level": 2}', 2, ["missing_detail"]),
        ('{"risk_level": 4}', 4, []),
        ("Level 1 would be too kind. Risk level: 3.", 3, []),
        ('{"level": true}', None, []),
        ('{"level": 5}', None, []),
        ("It is risky.", None, []),
    ],
)
def test_levels_of_risk_are_read(reply, level, errors):
    assert read_risk_level(reply) == (None if level is None else {"level": level, "errors": errors})


def test_levels_one_and_two_are_safe():
    for level in (1, 2, 3, 4):
        verdict = {"level": level, "errors": []}
        assert value("medval_level", medval=verdict) == level
        assert value("medval_safe", medval=verdict) == (level <= 2)
    assert math.isnan(value("medval_safe"))
    assert (value("medval_level", medval=0.0), value("medval_safe", medval=0.0)) == (4, 0)  # a case that failed


def test_sub_answers_by_hand():
    reply = '{"reference": ["a", "b", "c"], "answer": ["a", "x"], "matched": [[0, 0]]}'
    assert read_sub_answers(reply) == {"due": 3, "given": 2, "matched": 1}
    counts = {"sub_answers": read_sub_answers(reply)}
    assert value("sub_answer_precision", **counts) == 1 / 2
    assert value("sub_answer_recall", **counts) == 1 / 3
    assert value("sub_answer_f1", **counts) == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    "reply",
    [
        '{"reference": ["a"], "answer": ["a"], "matched": [[0, 1]]}',
        '{"reference": ["a"], "answer": ["a"], "matched": [[0]]}',
        '{"reference": ["a"], "answer": ["a"], "matched": [["0", 0]]}',
        '{"reference": ["a"], "answer": ["a"]}',
        "a and a",
    ],
)
def test_pairs_that_point_nowhere_are_no_verdict(reply):
    assert read_sub_answers(reply) is None


def test_a_part_counts_once_and_nothing_given_has_no_precision():
    twice = '{"reference": ["a", "b"], "answer": ["ab"], "matched": [[0, 0], [1, 0]]}'
    assert read_sub_answers(twice) == {"due": 2, "given": 1, "matched": 1}
    precision, recall, f1 = sub_answer_scores({"due": 2, "given": 0, "matched": 0})
    assert math.isnan(precision)
    assert (recall, f1) == (0, 0)
    assert all(math.isnan(value(name)) for name in ("sub_answer_precision", "sub_answer_recall", "sub_answer_f1"))
    assert get("sub_answer_f1").worst == value("sub_answer_f1", sub_answers=0.0) == 0


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_f1_lies_between_precision_and_recall(due, answered, matched):
    matched = min(matched, due, answered)
    precision, recall, f1 = sub_answer_scores({"due": due, "given": answered, "matched": matched})
    assert min(precision, recall) - 1e-12 <= f1 <= max(precision, recall) + 1e-12
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall) if matched else 0)


@pytest.mark.parametrize(
    ("name", "question", "metrics", "verdict", "worth_of"),
    [
        ("lmod", "lmod_failures", "judged_kind@lmod_failures:hallucination", ["hallucination"], 1),
        ("medframeqa", "reasoning_errors", "judged_kind@reasoning_errors:overlooked_frame", [], 0),
        ("mimic_cxr_summary", "medval", "medval_safe", {"level": 3, "errors": []}, 0),
        ("omnibrainbench_open", "sub_answers", "sub_answer_f1", {"due": 2, "given": 2, "matched": 1}, 0.5),
    ],
)
def test_benchmarks_ask_them_by_the_metrics_alone(name, question, metrics, verdict, worth_of, tmp_path):
    task = task_of(name, tmp_path / "data", metrics=[metrics])
    cases = task.cases("test")
    asked = task.judge_questions[question]
    prompt = asked.put(cases[0], asked.fields(cases[0], Reply(("An answer.",)), {}))
    assert "An answer." in prompt.text
    assert '{"' in prompt.text
    assert "{{" not in prompt.text
    judged = {case.id: {question: verdict} for case in cases}
    folder = answered(task, {case.id: "An answer." for case in cases}, tmp_path / "run", judged)
    assert worth(folder)[metrics] == worth_of


def test_medframeqas_judge_sees_the_rationale_and_names_errors_to_a_table(tmp_path):
    kinds = ["overlooked_frame", "spreading_error", "none"]
    metrics = [f"judged_kind@reasoning_errors:{kind}" for kind in kinds] + ["key_step_recall"]
    task = task_of("medframeqa", tmp_path / "data", metrics=metrics)
    case = task.cases("test")[0]
    asked = task.judge_questions["reasoning_errors"]
    reply = Reply((Turn("Answer: F", thought="Frame 1 is dark."),))
    text = asked.put(case, asked.fields(case, reply, {})).text
    assert "of which there may be others\nFrame 1 shows it.\nFrame 2 does not.\n" in text
    assert "of the assistant\nFrame 1 is dark.\n\nAnswer: F\n" in text
    due = task.judge_questions["key_steps"].items(reply, {}, case.target.read())
    assert due == ["Frame 1 shows it.", "Frame 2 does not."]
    verdicts = {
        "m1": (["overlooked_frame", "spreading_error"], [1.0, 0.0]),
        "m2": ([], [1.0, 1.0]),
        "m3": (["overlooked_frame"], [0.0, 0.0]),
    }
    judged = {
        name: {"reasoning_errors": errors, "key_steps": {"items": due, "verdicts": steps}}
        for name, (errors, steps) in verdicts.items()
    }
    found = worth(answered(task, dict.fromkeys(verdicts, "Frame 1. Answer: F"), tmp_path / "run", judged))
    assert [found[metric] for metric in metrics] == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 2])

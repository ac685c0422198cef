"""Steps of reasoning: how they are parted, judged and labelled, by hand, beside scikit-learn, and at the edges."""

import math

import pytest
from asking import Quiz
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_asks import judge_prompts
from rows import summarised
from sklearn.metrics import f1_score

from medimg_eval.metrics import LabelScore, get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges import rationale_steps, read_step_labels, reasoning_steps
from medimg_eval.question import Reply, Turn
from medimg_eval.tasks import QuestionTask

NAMES = ("step_correctness", "steps_before_error", "key_step_recall", "key_step_f1")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("<think>1. Air.\n   Much of it.\n2) No vessels.</think>B", ["1. Air.\n   Much of it.", "2) No vessels."]),
        ("Step 1: look.\nStep 2: say.", ["Step 1: look.", "Step 2: say."]),
        ("One.\n\nTwo. Three.", ["One.", "Two. Three."]),
        ("One.\nTwo. Three.", ["One.", "Two. Three."]),
        ("One. Two.", ["One.", "Two."]),
        ("B", ["B"]),
        ("", []),
        ("<think></think>", []),
    ],
)
def test_reasoning_is_parted_into_steps(text, steps):
    assert reasoning_steps(text) == steps


def test_a_thought_that_was_sent_apart_is_the_reasoning():
    assert reasoning_steps("B", "Air. So B.") == ["Air.", "So B."]
    assert rationale_steps(["a", "b"]) == ["a", "b"]
    assert rationale_steps("A. B.") == ["A.", "B."]
    assert rationale_steps(None) == []


def judged(steps=None, due=None):
    said = {"thought_steps": steps, "key_steps": due}
    held = {name: {"items": ["x"] * len(one), "verdicts": one} for name, one in said.items() if isinstance(one, list)}
    held |= {name: one for name, one in said.items() if isinstance(one, float)}
    pair = AnsweredQuestion("choice", "B", "B", judged=held)
    return [get(name).function(pair) for name in NAMES]


def test_steps_by_hand():
    # right, right, neutral, wrong, right: 3 of 4; the first error is the fourth of five; 1 of 3 key steps
    precision, recall = 3 / 4, 1 / 3
    found = judged([1.0, 1.0, 0.0, -1.0, 1.0], [1.0, 0.0, 0.0])
    assert found == pytest.approx([precision, 3 / 5, recall, 2 * precision * recall / (precision + recall)])


def test_what_is_missing_is_not_judged_and_what_failed_is_the_worst():
    assert all(math.isnan(value) for value in judged())
    assert all(math.isnan(value) for value in judged([], []))
    assert judged([0.0, 0.0], [1.0])[1:3] == [1.0, 1.0]
    assert math.isnan(judged([0.0], [1.0])[0])
    assert judged([None, 1.0], [0.0]) == [1.0, 1.0, 0.0, 0.0]
    assert judged(0.0, 0.0) == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1: correct\n2: incorrect\n3: neutral", [1, -1, 0]),
        ("**Step 1**: Correct.\n- Step 2 - incorrect, for air\n[3] 0", [1, -1, 0]),
        ("<think>1: incorrect</think>1: 1\n2: -1\n3. +1", [1, -1, 1]),
        ("1. The lung is correct\n2: incorrect\n9: correct", [None, -1, None]),
        ("1: correct\n1: incorrect", [-1, None, None]),
        ("", [None, None, None]),
    ],
)
def test_labels_are_read_line_by_line(text, labels):
    assert read_step_labels(text, 3) == labels


def chain(labels, output):
    return AnsweredQuestion("open", output, "x", more={"step_labels": labels})


def written(labels):
    words = {1: "correct", -1: "incorrect", 0: "neutral"}
    return "\n".join(f"{number}: {words[one]}" for number, one in enumerate(labels, 1))


def summed(pairs):
    cases = [
        [LabelScore(label, "step_counts", value, "") for label, value in get("step_counts").function(pair).items()]
        for pair in pairs
    ]
    return [float(summarised(name, *cases)) for name in ("right_step_f1", "wrong_step_f1", "step_macro_f1")]


@given(st.lists(st.lists(st.tuples(st.sampled_from([1, -1, 0]), st.sampled_from([1, -1])), min_size=1), min_size=1))
@settings(max_examples=30, deadline=None)
def test_f1_of_steps_is_scikit_learns(chains):
    pairs = [chain([truth for truth, _ in one], written([said for _, said in one])) for one in chains]
    known = [(truth, said) for one in chains for truth, said in one if truth]
    truth, said = [truth for truth, _ in known], [said for _, said in known]
    right, wrong, macro = summed(pairs)
    for value, label in ((right, 1), (wrong, -1)):
        if label in truth + said:
            assert value == pytest.approx(f1_score(truth, said, pos_label=label, zero_division=0))
        else:
            assert math.isnan(value)
    assert macro == pytest.approx((right + wrong) / 2, nan_ok=True)


@pytest.mark.parametrize(
    ("labels", "said", "found"),
    [([1, -1, -1], [1, -1, 1], 1), ([1, -1], [-1, -1], 0), ([1, 0], [1, 1], 1), ([1, 1], [1, -1], 0), ([-1], [0], 0)],
)
def test_the_first_error_is_found_or_not(labels, said, found):
    assert get("first_error_found").function(chain(labels, written(said))) == found
    assert math.isnan(get("first_error_found").function(AnsweredQuestion("open", "x", "x")))


def test_the_judge_is_shown_each_step_the_whole_thought_and_the_images():
    items = [{"id": "q", "text": "Which?", "options": {"A": "air", "B": "fluid"}, "right": "A"}]
    items[0]["more"] = {"rationale": ["Air is black.", "It is apical."]}
    task = QuestionTask(name="t", layout=Quiz(items), metrics=["step_correctness", "key_step_recall"])
    (case,) = task.cases("test")
    reply = Reply((Turn("A", thought="It is black. So air."),))
    asked = judge_prompts(task, case, reply.as_record())
    assert [(question.name, len(prompt.images)) for question, prompt in asked] == [
        ("thought_steps", 1), ("thought_steps", 1), ("key_steps", 0), ("key_steps", 0),
    ]  # fmt: skip
    texts = [prompt.text for _, prompt in asked]
    assert "# The step\nIt is black.\n" in texts[0]
    assert "# The step\nSo air.\n" in texts[1]
    assert "# The whole reasoning\nIt is black. So air.\n" in texts[0]
    assert "# The key step\nIt is apical.\n" in texts[3]
    question = task.judge_questions["thought_steps"]
    assert [question.verdict(text) for text in ("It is incorrect.\nCorrect", "so incorrect", "neutral", "hm")] == [
        1.0, -1.0, 0.0, None,
    ]  # fmt: skip

"""Attacks on right answers: an attacker rewrites questions until the model errs."""

import math
from functools import partial

import pytest
from asking import Quiz, Says

from medimg_eval.errors import UsageError
from medimg_eval.tasks.questions import AttackedQuestionTask

METRICS = ["accuracy", "right_before_attack", "attack_success", "attack_edits", "attack_p", "model_steps"]
EDIT = "He assumes. <question>Edited {} of {}</question>"


class Attacker(Says):
    """Numbers its edits of a case; a control is a reply to one message that names an edit."""

    def generate(self, prompts, decoding):
        self.prompts += prompts
        return [self.edit(prompt, decoding.seed) for prompt in prompts]

    def edit(self, prompt, seed):
        if "CONTROL" in prompt.text:
            return EDIT.format(f"control {seed}", prompt.case_id)
        edits = sum(message.role == "assistant" for message in prompt.messages)
        return EDIT.format(edits + 1, prompt.case_id)


class Examinee(Says):
    """Says the right letter of four questions, until an edit that it falls for.

    q0 falls at the second edit, q1 holds, q2 is wrong from the first, q3 falls at the first edit. Of controls it falls
    for those with an odd seed.
    """

    def generate(self, prompts, decoding):
        self.prompts += prompts
        return [self.answer(prompt) for prompt in prompts]

    def answer(self, prompt):
        right = "ABCD"[int(prompt.case_id[1])]
        falls = {"q0": "Edited 2", "q1": "never", "q2": "Which", "q3": "Edited 1"}[prompt.case_id]
        fooled = falls in prompt.text or any(f"control {seed} " in prompt.text for seed in (1, 3))
        return "The answer is " + ("A" if right != "A" else "B") if fooled else f"The answer is {right}"


def attacked(**settings):
    words = {
        "script": "{question}|{options}|{answer}|{reply}",
        "again": "AGAIN {reply}",
        "control": "CONTROL {question}|{edited}",
    }
    return AttackedQuestionTask(
        name="attacked", layout=Quiz(number=4), metrics=METRICS, **{"turns": 3} | words | settings
    )


def run(task, examinee):
    cases = task.cases("test")
    replies = task.ask(examinee, [task.prompt(case, ()) for case in cases])
    return {
        case.id: {row.metric: row.value for row in task.score(case, reply)}
        for case, reply in zip(cases, replies, strict=True)
    }, replies


def test_right_answers_are_attacked_until_they_are_wrong():
    examinee, attacker = Examinee(), Attacker()
    values, replies = run(attacked(attacker=attacker), examinee)
    expected = {  # accuracy after, right before, success, edits, replies
        "q0": (0, 1, 1, 2, 3),
        "q1": (1, 1, 0, math.nan, 4),
        "q2": (0, 0, math.nan, math.nan, 1),
        "q3": (0, 1, 1, 1, 2),
    }
    for case, (after, before, success, edits, steps) in expected.items():
        of_case = {"accuracy": after, "right_before_attack": before, "attack_success": success, "attack_edits": edits}
        of_case["model_steps"] = steps
        assert values[case] == {name: value for name, value in of_case.items() if not math.isnan(value)}
    assert len(attacker.prompts) == 2 + 3 + 1
    assert [step["kind"] for step in replies[3].trace] == ["model", "user", "model", "stop"]


def test_the_model_is_asked_anew_and_never_shown_the_key():
    examinee, attacker = Examinee(), Attacker()
    run(attacked(attacker=attacker), examinee)
    assert {len(prompt.messages) for prompt in examinee.prompts} == {1}
    assert all(not hasattr(prompt, "case") for prompt in examinee.prompts)
    assert any("Edited 2 of q0" in prompt.text and "a0" in prompt.text for prompt in examinee.prompts)
    told = [message.text for message in attacker.prompts[-1].messages]
    assert told[0] == "Which of these is item 1?|A. a1\nB. b1\nC. c1\nD. d1|b1|The answer is B"
    assert told[1:3] == [EDIT.format(1, "q1"), "AGAIN The answer is B"]


def test_controls_give_a_p_to_attacks_that_succeed():
    attacker = Attacker()
    values, _ = run(attacked(attacker=attacker, controls=3), Examinee())
    assert values["q0"]["attack_p"] == values["q3"]["attack_p"] == (1 + 2) / (1 + 3)
    assert all("attack_p" not in values[case] for case in ("q1", "q2"))
    assert "CONTROL Which of these is item 0?|Edited 2 of q0" in [prompt.text for prompt in attacker.prompts]


def test_a_judge_is_shown_the_last_edit():
    task = attacked(attacker=Attacker())
    _, replies = run(task, Examinee())
    cases = task.cases("test")
    assert task.told_to_judge(cases[1], replies[1].as_record()).text == "Edited 3 of q1"
    assert task.told_to_judge(cases[2], replies[2].as_record()).text == "Which of these is item 2?"


def test_an_attacker_is_made_where_it_writes():
    task = attacked(attacker=partial(Attacker, name="attacker"))
    assert isinstance(task.partners["attacker"], Attacker)
    assert "_attacker" not in task.__getstate__()
    assert attacked().partners == {}
    with pytest.raises(UsageError, match=r"nobody attacks; add \+model@task.attacker"):
        run(attacked(), Examinee())
    with pytest.raises(UsageError, match="at least 1 turn and 0 controls, got 0 and 0"):
        attacked(turns=0)

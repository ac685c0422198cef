"""Sessions that remember the questions that were put about a patient before."""

from dataclasses import replace

import pytest
from agent_tools import Scripted, ask, timeless
from asking import Quiz

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.tasks import AgentQuestionTask
from medimg_eval.tools.journal import StepJournal

METRICS = ["accuracy", "tool_calls", "model_steps"]


class Wards(Quiz):
    """Three questions about patient p, one about another; not in the order of their ids."""

    def cases(self, split):
        patients = {"q0": "p", "q1": "p", "q2": "other", "q3": "p"}
        cases = [replace(case, patient=patients[case.id]) for case in super().cases(split)]
        return [cases[place] for place in (3, 0, 2, 1)]


def wards(of=AgentQuestionTask, **settings):
    items = [
        {"id": f"q{n}", "text": f"Question {n}?", "options": {"A": "a", "B": "b"}, "right": "A", "images": [n]}
        for n in range(4)
    ]
    tools = {"measure": "agent_tools.measure", "crop": "agent_tools.crop"}
    return of(name="wards", layout=Wards(items), tools=tools, metrics=METRICS, **{"session": "patient"} | settings)


CROP = '<tool_call>{"name": "crop", "arguments": {"x": 3}}</tool_call>'


class Remembers(Scripted):
    """Crops once in each session, then answers with the number of questions that it has seen."""

    def generate(self, prompts, decoding):
        self.sizes.append(len(prompts))
        self.prompts += prompts
        said = []
        for prompt in prompts:
            calls = sum("tool_call>" in message.text for message in prompt.messages if message.role == "assistant")
            asked = sum("Question" in message.text for message in prompt.messages if message.role == "user")
            said.append(CROP if calls < asked else f"I saw {asked}. The answer is A.")
        return said


def test_a_session_sees_what_was_said_and_seen_about_the_same_patient():
    model = Remembers([])
    replies = dict(zip(("q3", "q0", "q2", "q1"), ask(wards(), model), strict=True))
    seen = {name: reply.text for name, reply in replies.items()}
    assert seen == {
        "q0": "I saw 1. The answer is A.",
        "q1": "I saw 2. The answer is A.",
        "q2": "I saw 1. The answer is A.",
        "q3": "I saw 3. The answer is A.",
    }
    last = model.prompts[-1]
    assert last.case_id == "q3"
    # Of each question its picture, and the part that the tool gave of it.
    values = [(image.array.shape[1], int(image.array.flat[0])) for image in last.images]
    assert values == [(8, 0), (3, 0), (8, 1), (3, 1), (8, 3), (3, 3)]
    shown = [part for message in last.messages for part in message.parts if isinstance(part, int)]
    assert shown == [0, 1, 2, 3, 4, 5]
    assert [message.role for message in last.messages].count("system") == 1
    assert model.sizes == [2, 2, 1, 1, 1, 1]  # sessions of patients go on together, those of one after each other


def test_batches_and_kills_change_nothing():
    whole = {reply.text: timeless(reply.trace) for reply in ask(wards(), Remembers([]))}
    task, journal = wards(), StepJournal()
    replies = []
    for case in task.cases("test"):  # each in a batch of its own, the last question first
        prompt = task.prompt(case, tuple(image.read() for image in case.images))
        replies += task.ask_recorded(Remembers([]), [prompt], journal)
    assert {reply.text: timeless(reply.trace) for reply in replies} == whole
    assert ask(task, Scripted(["never asked"]), journal) == [*replies]


def test_a_question_that_cannot_be_put_is_not_remembered():
    class Torn(AgentQuestionTask):
        def prompt(self, case, images):
            if case.id == "q0":
                raise CaseError("torn")
            return super().prompt(case, images)

    torn = wards(Torn)
    case = next(case for case in torn.cases("test") if case.id == "q1")
    (reply,) = torn.ask_recorded(Remembers([]), [torn.prompt(case, (case.images[0].read(),))], StepJournal())
    assert reply.text == "I saw 1. The answer is A."


def test_questions_are_put_alone_unless_it_is_asked_for():
    assert wards(session="question").conditions()
    assert wards().conditions() == frozenset()
    assert "one session" in wards().signature()
    with pytest.raises(UsageError, match="patient, question"):
        wards(session="ward")

"""Several agents that answer together: what each hears, whose answer counts, costs, a kill between turns."""

import random

import pytest
from agent_tools import ask, timeless
from asking import Quiz

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Turn, Usage
from medimg_eval.tasks.questions import TeamQuestionTask
from medimg_eval.tools.journal import StepJournal
from tests.helpers.authors import load_functions, require_clone

METRICS = ["accuracy", "model_steps", "output_tokens", "chain_seconds", "answer_seconds"]


class Voices(VisionLanguageModel):
    """Says by turn over all prompts what a script says; keeps what it was asked."""

    file_arguments = ()

    def __init__(self, script, batch=8):
        self.script, self.preferred_batch, self.prompts, self.sizes, self.seeds = list(script), batch, [], [], []

    def generate(self, prompts, decoding):
        first = len(self.prompts)
        self.prompts += prompts
        self.sizes.append(len(prompts))
        self.seeds.append(decoding.seed)
        said = [self.script[(first + place) % len(self.script)] for place in range(len(prompts))]
        return [Turn(text, usage=Usage(output=2, seconds=float(first + n))) for n, text in enumerate(said)]


def team(number=1, **settings):
    items = [
        {"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b", "C": "c"}, "right": "B"}
        for n in range(number)
    ]
    return TeamQuestionTask(name="team", layout=Quiz(items), metrics=METRICS, **settings)


def scores(task, reply):
    return {row.metric: row.value for row in task.score(task.cases("test")[0], reply)}


def test_the_most_frequent_answer_counts_and_of_as_many_the_first():
    (reply,) = ask(team(members=4), Voices(["A", "The answer is B", "(B)", "C"]))
    assert reply.text == "The answer is B"
    (reply,) = ask(team(members=4), Voices(["A", "B", "B", "A"]))
    assert reply.text == "A"
    (reply,) = ask(team(members=2), Voices(["I do not know.", "Hm, no idea."]))
    assert reply.text == "I do not know."


def test_all_agents_cost_and_rounds_wait_for_their_slowest():
    task = team(members=2, rounds=2, decide="last")
    model = Voices(["A", "B", "C", "B"])
    (reply,) = ask(task, model)
    found = scores(task, reply)
    # Seconds are 0, 1, 2 and 3: of the first round 1, of the second 3.
    assert found == {"accuracy": 1, "model_steps": 4, "output_tokens": 8, "chain_seconds": 4, "answer_seconds": 6}
    assert model.sizes == [2, 2]


def test_in_a_debate_each_hears_the_others_last_answers():
    model = Voices(["<think>hidden</think>one", "two", "three", "1", "2", "3"])
    ask(
        team(members=3, rounds=2, heard="Others:{solutions} Now you.", solution=" [{name}: {text}]", last="Be brief."),
        model,
    )
    second = model.prompts[3]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[-1].text == "Others: [agent 2: two] [agent 3: three] Now you."
    assert model.prompts[4].messages[-1].text == "Others: [agent 1: one] [agent 3: three] Now you."
    assert model.prompts[5].messages[-1].text == "Others: [agent 1: one] [agent 2: two] Now you.\n\nBe brief."


def test_agents_with_roles_hand_on_and_a_chair_decides():
    members = [{"name": "reader", "role": "You read images."}, {"name": "doctor", "role": "You treat."}]
    settings = {"template": {"system": "Be kind.", "user": "{question}"}}
    model = Voices(["white", "pneumonia", "So it is B."])
    (reply,) = ask(team(members=members, order="in_turn", decide="chair", chair="All:{solutions}", **settings), model)
    first, second, third = model.prompts
    assert first.messages[0].text == "Be kind.\n\nYou read images."
    assert "white" in second.messages[-1].text
    assert second.messages[0].text.endswith("You treat.")
    assert third.messages[0].text == "Be kind."
    assert third.messages[-1].text.endswith(
        "All:\n\n One agent solution: ```white```\n\n One agent solution: ```pneumonia```"
    )
    assert reply.text == "So it is B."
    assert [step.get("agent") for step in reply.trace] == ["reader", "doctor", "chair", None]


def test_equal_prompts_are_not_drawn_alike():
    model = Voices(["A"])
    ask(team(number=2, members=3, decoding={"temperature": 0.8, "seed": 5}), model)
    assert (model.seeds, model.sizes) == ([5, 6, 7], [2, 2, 2])


@pytest.mark.parametrize("order", ["together", "in_turn"])
def test_a_team_goes_on_after_the_turns_that_are_kept(order):
    task = team(number=2, members=2, rounds=2, decide="chair", order=order)

    class Counts(Voices):
        def generate(self, prompts, decoding):
            self.sizes.append(len(prompts))
            return [f"{len(prompt.messages)} {len(prompt.text)} B" for prompt in prompts]

    whole = ask(task, Counts([]))
    for done in range(6):
        journal = StepJournal({f"q{n}": whole[n].trace[: max(0, done - n)] for n in range(2)})
        again = ask(task, Counts([]), journal)
        assert [timeless(reply.trace) for reply in again] == [timeless(reply.trace) for reply in whole]


def test_teams_that_cannot_be_meant_are_refused():
    for settings, message in [
        ({"members": 0}, "expected rounds and members"),
        ({"rounds": 0}, "expected rounds and members"),
        ({"members": 1, "rounds": 2}, "hears of nobody"),
        ({"members": [{"name": "x", "role": ""}] * 2}, "a name for each"),
        ({"decide": "dice"}, "dice"),
        ({"order": "alphabetical"}, "alphabetical"),
    ]:
        with pytest.raises(UsageError, match=message):
            team(**settings)
    assert "3 agents in 1 rounds, together, decided by vote" in team().signature()


def test_the_longest_chain_is_unknown_where_a_reply_says_no_seconds():
    chain = get("chain_seconds").function

    def pair(*steps):
        trace = [{"kind": "model", "round": number, "usage": {"seconds": seconds}} for number, seconds in steps]
        return AnsweredQuestion("choice", "A", "A", trace=trace)

    assert chain(pair((0, 1.0), (0, 3.0), (1, 2.0))) == 5
    assert chain(pair()) != chain(pair())  # NaN
    assert chain(pair((0, None), (1, 2.0))) != 2
    draw = random.Random(1)  # noqa: S311 - no secret
    for _ in range(50):
        steps = [(draw.randrange(3), draw.random()) for _ in range(draw.randrange(1, 9))]
        rounds = {number for number, _ in steps}
        assert chain(pair(*steps)) == pytest.approx(sum(max(s for n, s in steps if n == r) for r in rounds))


@pytest.mark.slow
def test_a_debate_is_put_as_medmaslabs_agents_put_it():
    path = require_clone("NUS-Project/MedMASLab") / "methods"
    heard = []

    def qwen_generate_content(context, _manager):
        heard.append([dict(message) for message in context])
        return f"said {len(heard)}", 1, 1

    final = load_functions(path / "utils.py", "is_options")["is_options"]
    names = load_functions(
        path / "debate.py", "construct_message", "construct_assistant_message", "debate", "Debate_test",
        qwen_generate_content=qwen_generate_content, is_options=final,
        qwen_vl_chat_content=lambda _path, question: {"role": "user", "content": question},
    )  # fmt: skip
    names["Debate_test"]("Which?", "", {}, "", None)
    from tests.helpers.catalogue import composed

    given = {
        key: composed("medmaslab_debate")[key] for key in ("members", "rounds", "decide", "heard", "solution", "last")
    }
    model = Voices([f"said {number}" for number in range(1, 7)])
    ask(team(template={"user": "{question}"}, **given), model)
    for ours, theirs in zip(model.prompts, heard, strict=True):
        contents = [message["content"] for message in theirs]
        if ours is model.prompts[-1]:  # two messages of the user with them
            contents[-2:] = ["\n\n".join(contents[-2:])]
        assert [message.text for message in ours.messages] == contents

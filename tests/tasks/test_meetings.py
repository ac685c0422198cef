"""Meetings of agents: who speaks when, whose answer counts, kills after a speech, and the authors' programs beside."""

import json
import re
from collections import defaultdict
from types import SimpleNamespace

import pytest
from agent_tools import ask, timeless
from asking import Quiz
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Turn, Usage
from medimg_eval.tasks.questions import MeetingQuestionTask
from medimg_eval.tasks.questions.meetings import Meeting, Speech, course_named, meeting_course
from medimg_eval.tools.journal import StepJournal
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import composed
from tests.helpers.samples.agents import COURSES

METRICS = ["accuracy", "model_steps", "output_tokens", "chain_seconds"]


class Play(VisionLanguageModel):
    """Says what a function of the last message, the system message and the number of the speech gives."""

    file_arguments = ()

    def __init__(self, says):
        self.says, self.prompts, self.sizes, self.seeds = says, [], [], []

    def generate(self, prompts, decoding):
        self.sizes.append(len(prompts))
        self.seeds.append(decoding.seed)
        said = []
        for prompt in prompts:
            self.prompts.append(prompt)
            system = prompt.messages[0].text if prompt.messages[0].role == "system" else ""
            said.append(self.says(prompt.messages[-1].text, system, prompt))
        return [Turn(text, usage=Usage(output=2, seconds=1.0)) for text in said]


def meet(name, number=1, options=None, **changes):
    config = composed(f"medmaslab_{name}")
    given_settings = {key: config[key] for key in ("course", "meeting", "texts", "decoding")} | changes
    items = [
        {"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b", "C": "c"} if options is None else options}
        | {"right": "B", "images": [n]}
        for n in range(number)
    ]
    return MeetingQuestionTask(name="meeting", layout=Quiz(items), metrics=METRICS, **given_settings)


def agents_of(reply):
    return [step["agent"] for step in reply.trace if step["kind"] == "model"]


def scores(task, reply):
    return {row.metric: row.value for row in task.score(task.cases("test")[0], reply)}


def test_an_assistant_and_a_proxy_talk_until_one_is_done():
    (reply,) = ask(meet("autogen"), Play(lambda *_: "The answer is (B). TERMINATE"))
    assert (agents_of(reply), reply.text) == (["assistant"], "The answer is (B). TERMINATE")
    script = iter(["I think.", "Go on.", "The answer is (B).", "Thanks. TERMINATE"])
    model = Play(lambda *_: next(script))
    (reply,) = ask(meet("autogen"), model)
    assert (agents_of(reply), reply.text) == (["assistant", "proxy"] * 2, "The answer is (B).")
    assert [bool(prompt.images) for prompt in model.prompts] == [True, False, False, False]
    assert [message.role for message in model.prompts[-1].messages] == ["assistant", "user", "assistant", "user"]


def test_of_a_network_two_thirds_that_agree_end_it_and_the_ranker_prunes_it():
    (reply,) = ask(meet("dylan"), Play(lambda *_: "Answer: B"))
    assert len(agents_of(reply)) == 3
    assert reply.text == "Answer: B"
    letters = {"Clinician": "A", "Pharmacologist": "B", "Anatomist": "C", "Pathologist": "A"}

    def stubborn(text, system, _prompt):
        if "choose the best 2" in text:
            return "[1, 2]"
        return f"Answer: {letters[next(name for name in letters if name.lower() in system)]}"

    task = meet("dylan")
    (reply,) = ask(task, Play(stubborn))
    names = agents_of(reply)
    assert (len(names), names[8], len(set(names[9:]))) == (4 + 4 + 1 + 2, "ranker", 2)
    assert scores(task, reply)["model_steps"] == 11


def vote(answer, confidence):
    return json.dumps({"reasoning": "so", "answer": answer, "confidence_level": confidence})


def test_a_round_table_hears_groups_and_weighs_confidence():
    (reply,) = ask(meet("reconcile"), Play(lambda *_: vote("B", 0.9)))
    assert (len(agents_of(reply)), reply.text) == (3, "B")
    script = iter([vote("A", 0.95), vote("B", 0.5), vote("(B) b", "70%")] * 3)
    model = Play(lambda *_: next(script))
    (reply,) = ask(meet("reconcile", decoding={"temperature": 0.0}), model)
    assert (model.sizes, reply.text) == ([3, 3, 3], "A")  # 0.8 against 0.1 + 0.3
    assert "There are 2 agents think the answer is B. One agent solution: I think the answer is B because so My" in (
        model.prompts[3].messages[-1].text
    )
    script = iter([vote("A", 1.0), vote("B", 0.9), "no idea"] + [vote("B", 0.9)] * 3)
    (reply,) = ask(meet("reconcile", decoding={"temperature": 0.0}), Play(lambda *_: next(script)))
    assert (len(agents_of(reply)), reply.text) == (6, "B")


def test_a_discussion_has_all_speak_in_all_rounds_and_the_first_one_concludes():
    model = Play(lambda text, _system, prompt: f"{len(prompt.messages)} {'B' if 'last round' in text else 'A'}")
    (reply,) = ask(meet("llm_discussion", decoding={"temperature": 0.0}), model)
    assert (model.sizes, reply.text) == ([4] * 5, "9 B")
    assert all(prompt.images for prompt in model.prompts)


def test_experts_that_are_called_remember_nothing():
    call = 'Expert Radiologist:\n"""\nLook.\n"""'
    script = iter([call, "It is white.", "Hm.", '>> FINAL ANSWER:\n"""\n(B) b\n"""'])
    model = Play(lambda *_: next(script))
    (reply,) = ask(meet("meta_prompting"), model)
    assert (agents_of(reply), reply.text) == (["meta", "Expert Radiologist", "meta", "meta"], "(B) b")
    assert [message.text for message in model.prompts[1].messages[1:]] == ["Look."]
    assert "It is white." in model.prompts[2].messages[-1].text
    (reply,) = ask(meet("meta_prompting", meeting={"rounds": 2}), Play(lambda *_: call))
    assert agents_of(reply) == ["meta", "Expert Radiologist"] * 2


def medical(text, system, _prompt):
    """Experts of two fields; one does not agree with the first report."""
    if "Name 5" in text:
        return "Medical Field: Lungs | Hearts"
    if "Name 2" in text:
        return "Medical Field: Drugs"
    if "YES or NO" in text:
        return "NO" if "Hearts" in system and "first" in text else "YES"
    if "Write the report anew" in text:
        return "second"
    return "first" if "Sum them up" in text else "B" if "Answer by this report" in text else "because"


def test_a_report_is_revised_until_all_vote_for_it():
    (reply,) = ask(meet("medagents"), Play(medical))
    fields = ["Lungs", "Hearts"]
    assert agents_of(reply) == [
        "classifier of questions", "classifier of options", *fields, "Drugs", "summer", *fields, "Drugs",
        "Hearts", "summer", *fields, "Drugs", "decider",
    ]  # fmt: skip
    assert reply.text == "B"
    (reply,) = ask(meet("medagents", options={}), Play(medical))
    assert "Drugs" not in agents_of(reply)


def test_doctors_review_what_was_summed_up_until_all_agree():
    reviews = iter(["no", "yes", "yes", "yes", "yes", True])

    def says(text, _system, _prompt):
        return json.dumps({"agree": next(reviews), "answer": "A"} if "Do you agree" in text else {"answer": "B"})

    (reply,) = ask(meet("colacare"), Play(says))
    doctors = ["internist", "surgeon", "radiologist"]
    assert agents_of(reply) == [*doctors, "coordinator", *doctors, "coordinator"] * 2
    assert reply.text == "B"


def test_called_specialists_speak_alone_until_a_reviewer_is_content():
    rounds = []

    def says(text, system, _prompt):
        if "sort patients" in text:
            return '{"selected_roles": ["radiology", "Astrology"]}'
        if "review a consultation" in system:
            rounds.append(text)
            return "STATUS: [CONVERGED]\nFINAL_ANSWER: B" if len(rounds) == 2 else "STATUS: DIVERGED"
        return "white"

    model = Play(says)
    (reply,) = ask(meet("mdteamgpt"), model)
    specialists = ["Radiology", "General Internal Medicine", "General Surgery"]
    assert agents_of(reply) == ["triage", *[*specialists, "lead", "reviewer"] * 2]
    assert reply.text == "B"
    assert [bool(prompt.images) for prompt in model.prompts] == [False, *[True] * 3, *[False] * 7]


RECRUITED = "1. Cardiologist - Looks after hearts - Hierarchy: Independent\n2. **Radiologist** - reads images\n"


@pytest.mark.parametrize(
    ("grade", "agents"),
    [
        ("1) basic", ["grader", "expert"]),
        ("intermediate", ["grader", "recruiter", *["cardiologist", "radiologist"] * 2, "cardiologist", "cardiologist",
                          *["cardiologist", "radiologist"], "moderator"]),
        ("advanced", ["grader", "recruiter", "lead a", "lead b", "helper", "lead a", "lead b", "decider"]),
    ],
)  # fmt: skip
def test_harder_questions_have_more_people_meet(grade, agents):
    talked = []

    def says(text, system, _prompt):
        if "How hard" in text:
            return grade
        if "Plan 3 teams" in text:
            teams = [{"goal": "x", "members": ["lead a", {"role": "helper"}]}, {"goal": "y", "members": ["lead b"]}]
            return json.dumps({"teams": teams})
        if "Call 5 experts" in text:
            return RECRUITED
        if "Do you want to talk" in text:
            talked.append(text)
            return "Yes" if "cardiologist" in system and len(talked) < 3 else "no"
        return "2" if "numbers alone" in text else "B"

    (reply,) = ask(meet("mdagents", decoding={"temperature": 0.0}), Play(says))
    assert (agents_of(reply), reply.text) == (agents, "B")


ODD = st.sampled_from(
    ["", "B", "no", "YES 1, 2, 9", "TERMINATE", "{", '{"answer": []}', '{"agree": 1, "answer": {"a": 2}}', "[7, 7]",
     '{"selected_roles": "all"}', '{"teams": [1, {"members": []}]}', 'Expert A:\n"""x"""', 'FINAL ANSWER: """"""',
     "Medical Field: ||", "1. a - b\n2. a - c", "3)", "STATUS: CONVERGED", "<think>B"]
)  # fmt: skip


@pytest.mark.parametrize("name", COURSES)
@settings(max_examples=8, deadline=None)
@given(said=st.lists(ODD, min_size=1, max_size=12))
def test_no_reply_breaks_a_meeting_and_a_kill_after_any_speech_changes_nothing(name, said):
    task = meet(name, number=2)

    def says(_text, _system, prompt):
        return said[hash((prompt.case_id, len(prompt.messages), len(prompt.text))) % len(said)]

    whole = ask(task, Play(says))
    assert all(len(reply.trace) < 150 for reply in whole)
    lengths = [len(reply.trace) - 1 for reply in whole]
    for done in {0, 1, lengths[0] // 2, lengths[0]}:
        journal = StepJournal({f"q{n}": whole[n].trace[: min(max(0, done - n), lengths[n])] for n in range(2)})
        model = Play(says)
        again = ask(task, model, journal)
        assert [timeless(reply.as_record()) for reply in again] == [timeless(reply.as_record()) for reply in whole]
        assert sum(model.sizes) == sum(lengths) - sum(min(max(0, done - n), lengths[n]) for n in range(2))


def test_speeches_that_are_due_share_a_batch_and_equal_ones_are_not_drawn_alike():
    model = Play(lambda *_: vote("B", 0.9))
    ask(meet("reconcile", number=2, decoding={"temperature": 0.0}), model)
    assert model.sizes == [6]
    model = Play(lambda *_: vote("B", 0.9))
    task = meet("reconcile", number=2, decoding={"temperature": 0.8, "seed": 5})
    (reply, _) = ask(task, model)
    assert (model.sizes, model.seeds) == ([2, 2, 2], [5, 6, 7])
    # Three agents at once: the longest chain is one reply.
    assert scores(task, reply) == {"accuracy": 1, "model_steps": 3, "output_tokens": 6, "chain_seconds": 1}


@meeting_course(texts="hello")
def one_word(meeting):
    """A course of one's own."""
    (said,) = yield [Speech("agent", meeting.say("hello"))]
    return said


def test_courses_of_ones_own_are_taken_and_what_they_lack_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "my_courses", SimpleNamespace(one_word=one_word, other=len))
    (reply,) = ask(
        meet("reconcile", course="my_courses.one_word", texts={"hello": "{question}"}, meeting={}), Play(lambda *_: "B")
    )
    assert reply.text == "B"
    for changes, message in [
        ({"course": "reconcil"}, "reconcile"),
        ({"course": "my_courses.none"}, "there is no my_courses.none"),
        ({"course": "my_courses.other"}, "is no course"),
        ({"texts": {}}, "lacks system, ask"),
        ({"texts": composed("medmaslab_reconcile")["texts"] | {"x": ""}}, "x"),
        ({"meeting": {"agents": 3, "rounds": 0}}, "above 0"),
    ]:
        with pytest.raises(UsageError, match=re.escape(message)):
            meet("reconcile", **changes)
    assert "agents meet as in reconcile, agents 3, rounds 3" in meet("reconcile").signature()


def messages_of(prompt):
    return [{"role": message.role, "content": message.text} for message in prompt.messages]


@pytest.mark.slow
def test_an_assistant_and_a_proxy_talk_as_medmaslabs_do():
    path = require_clone("NUS-Project/MedMASLab") / "methods" / "autogen"
    names = ("ASSISTANT_AGENT_SYSTEM_MESSAGE", "ASSISTANT_AGENT_SYSTEM_MESSAGE_CODER")
    prompts = load_functions(path / "prompt.py", *names, "DEFAULT_USER_PROXY_AGENT_SYSTEM_MESSAGE")
    script = ["I think.", "Go on.", "The answer is (B).", "Sure?", "Thanks for asking."]
    heard = []

    class MAS:
        def __init__(self, *_):
            self.method_config = {"max_turn": 3, "is_termination_msg": "TERMINATE", "code_execute": False}

        def call_llm(self, _prompt, _system, messages, img_paths=None):
            heard.append([dict(message) for message in messages])
            return script[len(heard) - 1]

    theirs = load_functions(path / "autogen_main.py", "AutoGen_Main", MAS=MAS, re=re, **prompts)["AutoGen_Main"]()
    task = meet("autogen")
    replies = iter(script)
    model = Play(lambda *_: next(replies))
    (reply,) = ask(task, model)
    question = next(iter(model.prompts)).messages[-1].text
    result, _ = theirs.inference({"query": question})
    assert [messages_of(prompt) for prompt in model.prompts] == heard
    assert reply.text == result["response"] == "The answer is (B)."


@pytest.mark.slow
def test_a_networks_first_two_layers_are_told_as_medmaslabs_are():
    import math
    import random

    path = require_clone("NUS-Project/MedMASLab") / "methods" / "dylan" / "dylan_main.py"
    config = composed("medmaslab_dylan")
    names = [member["name"] for member in config["meeting"]["members"]]
    heard = []

    def says(messages):
        heard.append([dict(message) for message in messages])
        return f"I say {len(heard)}: {'ABC'[len(heard) % 3]}"

    class MAS:
        def __init__(self, *_):
            self.method_config = {"roles": names, "num_agents": 4, "num_rounds": 3}

        def call_llm(self, messages, img_paths=None):
            return says(messages)

    known = {"MAS": MAS, "re": re, "random": random, "math": math}
    theirs = load_functions(path, "DyLAN_Main", **known)["DyLAN_Main"](None, None)
    meeting = Meeting("Which?", "Which?", {"A": "a", "B": "b", "C": "c"}, config["texts"], config["meeting"])
    meeting.__dict__["draw"] = random.Random(0)  # noqa: S311 - their seed
    theirs.inference({"query": "Which?"})
    course, told = course_named("dylan").begin(meeting), []
    speeches = next(course)
    for number in range(1, 9):
        (speech,) = speeches
        told.append([{"role": "system", "content": speech.system}, {"role": "user", "content": speech.text}])
        speeches = course.send([f"I say {number}: {'ABC'[number % 3]}"])
    assert told == heard[:8]


@pytest.mark.slow
def test_a_report_takes_as_many_speeches_as_medmaslabs_experts_need():
    folder = require_clone("NUS-Project/MedMASLab") / "methods" / "MedAgents"
    source = (folder / "prompt_generator.py").read_text()
    known = {}
    exec(compile(source, "prompt_generator", "exec"), known)  # noqa: S102 - their words
    cleaning = load_functions(
        folder / "data_utils.py", "cleansing_analysis", "cleansing_syn_report", "cleansing_voting",
        "cleansing_final_output", "transform_dict2text", "cleansing_final_output_vqa", "remove_incomplete_sentence",
        re=re, sent_tokenize=lambda text: [text],
    )  # fmt: skip
    counts = defaultdict(int)

    def get_output_multiagent(user_input, system_role, **_settings):
        if "different subfields" in user_input:
            return "Medical Field: Lungs | Hearts"
        if "distinct subfields" in user_input:
            return "Medical Field: Drugs"
        if "YES or NO" in user_input:
            counts["votes"] += 1
            return "NO" if counts["votes"] == 2 else "YES"
        counts["other"] += 1
        return "Total Analysis: because" if "Option: " not in user_input else "Option: B"

    calls = []

    def counted(**settings):
        calls.append(settings["system_role"])
        return get_output_multiagent(**settings)

    handler = SimpleNamespace(get_output_multiagent=counted)
    known.pop("__builtins__")
    decode = load_functions(folder / "utils.py", "fully_decode", **{**known, **cleaning})["fully_decode"]
    decode(
        0, 0, "Which?", "(A) a (B) b (C) c", "", handler, SimpleNamespace(method="syn_verif", max_attempt_vote=3), None
    )
    (reply,) = ask(meet("medagents"), Play(medical))
    assert len(calls) == len(agents_of(reply))

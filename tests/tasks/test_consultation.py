"""Conversations: chains of questions that right answers lead along, and consultations with a patient who talks."""

import pickle
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
from asking import Painted, Quiz, Says

from medimg_eval.case import Image
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models import Model
from medimg_eval.question import Reply
from medimg_eval.tasks.questions.consultation import ConsultationQuestionTask
from medimg_eval.tasks.questions.staged import StagedQuestionTask
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

YES = "Is it so? (a) Yes (b) No (c) I don't know"
PARTS = "Which? (a) left (b) right (c) both"


@dataclass(frozen=True)
class Named(Painted):
    """A picture of a file."""

    def read(self):
        return Image(np.full((3, 8, 8), self.value, np.uint8), np.eye(4), units="pixel")


class Chains(Quiz):
    """Cases of chains, each with the pictures xray, left and right."""

    def cases(self, split):
        named = ("xray", "left", "right")
        return [
            replace(
                case,
                images=tuple(
                    Named(number, (Path("root") / case.id / f"{name}.png",)) for number, name in enumerate(named)
                ),
            )
            for case in super().cases(split)
        ]


def record(question, answer, images=()):
    return {"question": question, "answer": answer, "img_path": list(images)}


def chain(name, group="heart", **more):
    """A case whose first question is right at (a); stages: criteria (two), parts (several right), end."""
    stages = {
        "img_path": [f"{name}/xray.png"],
        "criteria": record([YES, YES], ["(a) Yes", "(b) No"]),
        "parts": record([PARTS], ["(a) left, (b) right"], [[f"/{name}/left.png", f"/{name}/right.png"]]),
        "end": record(f"VALUE? {YES}", "(a) Yes, (b) No"),
        "range": record("Range? (a) [1, 2] (b) [2.5, 3]", "(b) [2.5, 3]"),
        "guide": record(PARTS, "(c) both", [f"{name}/right.png"]),
        "again": record(f"{name}: {YES}", "(a) Yes", [f"{name}/xray.png"]),
    } | more
    attributes = {"group": group}
    return {"id": name, "kind": "open", "text": YES, "right": "(a) Yes", "more": stages, "attributes": attributes}


STAGES = [
    {"name": "start", "path": "start", "right": "criteria", "wrong": "criteria", "unknown": "guide"},
    {"name": "criteria", "of": "criteria", "path": "one", "right": "parts"},
    {"name": "parts", "of": "parts", "path": "one", "right": "range"},
    {"name": "range", "of": "range", "path": "one", "right": "end"},
    {"name": "end", "of": "end", "path": "one", "any": True, "range": "range"},
    {"name": "guide", "of": "guide", "path": "two", "right": "again"},
    {"name": "again", "of": "again", "path": "three", "other": True},
]
FINISHED = ["(a) Yes", "(a)", "(b)", "(a) left, (b) right", "(b)", "VALUE: 2.75. FINAL ANSWER: (b) No"]


def staged(*items, stages=STAGES, **settings):
    settings = {"main": ["start", "one"], "group": "group", "metrics": ["accuracy"]} | settings
    config = {"name": "chain", "_target_": "medimg_eval.tasks.questions.staged.StagedQuestionTask"}
    layout = Chains(list(items))
    return StagedQuestionTask(
        name="chain", layout=layout, splits={"test": "test"}, stages=stages, config=config, **settings
    )


def asked(task, replies, place=0):
    """The reply, and all prompts that the model got."""
    cases = task.cases("test")
    case = cases[place]
    model = Says({case.id: replies})
    (reply,) = task.ask(model, [task.prompt(case, task.read_images(case))])
    return reply, model.prompts, case


def scored(task, case, reply, metric="accuracy"):
    return {one.label: one.value for one in task.score(case, reply) if one.metric == metric}


def test_a_chain_goes_on_as_long_as_answers_are_right():
    task = staged(chain("a"))
    reply, prompts, case = asked(task, FINISHED)
    assert reply.texts == tuple(FINISHED)
    assert [prompt.messages[-1].text for prompt in prompts][-1] == f"VALUE? {YES}"
    assert len(prompts[-1].messages) == 11
    assert scored(task, case, reply) == dict.fromkeys(("start", "criteria", "parts", "range", "end"), 1.0)


def test_images_are_shown_with_the_question_that_they_belong_to():
    _, prompts, _ = asked(staged(chain("a")), FINISHED)
    shown = [[part for part in message.parts if isinstance(part, int)] for message in prompts[-1].messages]
    assert [some for some in shown if some] == [[0], [1, 2]]


def test_a_chain_stops_at_the_first_wrong_answer_and_what_was_not_reached_is_wrong():
    task = staged(chain("a"))
    reply, _, case = asked(task, ["(b) No", "(a) Yes", "(a) Yes"])
    assert len(reply.texts) == 3
    assert scored(task, case, reply) == {"start": 0, "criteria": 0, "parts": 0, "range": 0, "end": 0}
    reply, _, case = asked(task, [*FINISHED[:3], "(a) left"])
    assert scored(task, case, reply) == {"start": 1, "criteria": 1, "parts": 0, "range": 0, "end": 0}


def test_not_to_know_leads_to_the_other_path_and_from_there_to_another_case():
    task = staged(chain("a"), chain("b", group="lung"), chain("c"))
    reply, prompts, case = asked(task, ["FINAL ANSWER: (c) I don't know", "(c) both", "(b) No"])
    assert [prompt.messages[-1].text for prompt in prompts] == [YES, PARTS, f"c: {YES}"]
    assert [prompts[-1].messages[turn].parts[0] for turn in (0, 2, 4)] == [0, 2, 3]
    assert scored(task, case, reply) == dict.fromkeys(("start", "criteria", "parts", "range", "end", "again"), 0) | {
        "guide": 1
    }
    assert case.images[3].files[0] == Path("root/c/xray.png")


def test_the_last_case_of_a_group_goes_on_with_its_first():
    task = staged(chain("a"), chain("b", group="lung"), chain("c"))
    assert [case.attributes["other"] for case in task.cases("test")] == ["c", "b", "a"]


def test_a_stage_that_a_case_does_not_have_is_passed_over():
    task = staged(chain("a", parts=None))
    reply, _, case = asked(task, FINISHED[:3] + FINISHED[4:])
    assert scored(task, case, reply) == dict.fromkeys(("start", "criteria", "range", "end"), 1.0)


def test_a_blind_model_is_asked_without_images():
    _, prompts, _ = asked(staged(chain("a"), blind="remove"), FINISHED)
    assert all(isinstance(part, str) for message in prompts[-1].messages for part in message.parts)


@pytest.mark.parametrize(
    ("said", "value"),
    [("VALUE: 2.75", 1), ("value: 2.5 (of 3)", 0), ("It is 3", 1), ("VALUE: 2.4", 0), ("no idea", 0)],
)
def test_a_measured_value_must_lie_in_the_range_of_the_right_answer(said, value):
    task = staged(chain("a"), metrics=["accuracy", "accuracy_in_range"])
    reply = Reply((*FINISHED[:-1], said))
    assert scored(task, task.cases("test")[0], reply, "accuracy_in_range") == {"end": value}


def test_a_value_is_asked_only_of_the_groups_that_are_measured():
    task = staged(chain("a"), metrics=["accuracy_in_range"], ranged={"group": ["lung"]})
    assert task.score(task.cases("test")[0], Reply(tuple(FINISHED))) == []


def test_two_values_must_each_lie_in_their_range():
    two = record("Range? (a) Right: [0.1, 0.2], Left: [0.3, 0.4] (b) None", "(a) Right: [0.1, 0.2], Left: [0.3, 0.4]")
    task = staged(chain("a", range=two), metrics=["accuracy_in_range"])
    case = task.cases("test")[0]
    for said, value in {"VALUE: Right - 0.15, Left - 0.35": 1, "VALUE: Right - 0.15, Left - 0.15": 0}.items():
        reply = Reply((*FINISHED[:4], "(a)", f"{said}"))
        assert scored(task, case, reply, "accuracy_in_range") == {"end": value}


def test_unanswered_is_of_the_questions_that_were_asked():
    task = staged(chain("a"), metrics=["unanswered"])
    reply, _, case = asked(task, ["(a) Yes", "hm"])
    assert scored(task, case, reply, "unanswered") == {"start": 0, "criteria": 1}


def test_a_case_without_a_usable_reply_is_worth_nothing_in_every_stage_that_counts():
    task = staged(chain("a"))
    (case,) = task.cases("test")
    assert {(one.label, one.value, one.status) for one in task.worst(case)} == {
        (name, 0.0, "failed") for name in ("start", "criteria", "parts", "range", "end")
    }


def test_stages_that_cannot_be_meant_are_refused():
    with pytest.raises(UsageError, match="'start' names 'partz'; did you mean 'parts'"):
        staged(chain("a"), stages=[{"name": "start", "right": "partz"}, {"name": "parts"}])
    with pytest.raises(UsageError, match=r"task.stages: .*'rite'"):
        staged(chain("a"), stages=[{"name": "start", "rite": "parts"}])
    for said, wrong in {
        "stage 'criteria': the answer": record("Is it so?", "(a) Yes"),
        "not among the options": record(YES, "(d) Perhaps"),
        "has not as many answers as questions": record([YES, YES], ["(a) Yes"]),
    }.items():
        with pytest.raises(CaseError, match=said):
            asked(staged(chain("a", criteria=wrong)), FINISHED)
    with pytest.raises(CaseError, match="shows 'b/left.png', which is no image of it"):
        asked(staged(chain("a", parts=record([PARTS], ["(a)"], [["b/left.png"]]))), FINISHED)


@pytest.fixture
def settings(tmp_path):
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False)
    return Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, overrides=[], batch_size=2)


def candidate(model):
    return ModelSpec("Says", type(model), {"_target_": "asking.Says"}, lambda: model)


def test_a_run_has_a_row_for_every_stage_with_its_path_as_a_set(settings):
    task = staged(chain("a"), chain("b"), metrics=["accuracy", "group_accuracy", "step_hit_rate"])
    folder = evaluate(task, candidate(Says({"a": FINISHED, "b": ["(b)", "(a)", "(b)", "(a)"]})), settings)
    check_rows("staged", folder)
    rows = pd.read_parquet(folder / "scores.parquet")
    assert list(rows["case"][:2]) == ["a/start", "a/criteria"]
    assert len(rows) == 10
    assert rows["value"].sum() == 5 + 1
    summary = pd.read_json(folder / "summary.json", typ="series")["metrics"]
    assert {one["metric"]: one["mean"] for one in summary} == pytest.approx(
        {"accuracy": 6 / 10, "group_accuracy": 2 / 4, "step_hit_rate": 6 / 10}
    )


class Patient(Model):
    """Says its lines, one a turn, and keeps what it was asked."""

    def __init__(self, lines, name=None):
        assert name is None
        self.lines, self.prompts, self.readied = lines, [], 0

    def check_ready(self):
        self.readied += 1

    def generate(self, prompts, decoding):
        self.prompts += prompts
        return [self.lines[sum(m.role == "assistant" for m in prompt.messages)] for prompt in prompts]


ILL = {
    "id": "ill",
    "text": "My arm itches.",
    "options": {"hives": "hives", "eczema": "eczema"},
    "right": "hives",
    "images": [1],
    "fields": {"complaint": "My arm itches.", "symptoms": "red spots", "personality": "calm"},
}
SCRIPT = "You say: {complaint} Also: {symptoms}. You are {personality}: {character}"


def consultation(*items, **settings):
    settings = {"script": SCRIPT, "characters": {"calm": "keep it short"}, "metrics": ["accuracy"]} | settings
    return ConsultationQuestionTask(name="talk", layout=Quiz(list(items)), splits={"test": "test"}, **settings)


def talked(task, replies):
    cases = task.cases("test")
    model = Says(replies)
    prompts = [task.prompt(case, task.read_images(case)) for case in cases]
    return task.ask(model, prompts), model, cases


def test_the_patient_begins_and_the_doctor_sees_the_image_with_the_first_turn():
    patient = Patient(["It itches.", "A day.", "BREAK"])
    task = consultation(ILL, patient=patient, template={"system": "You are a doctor."})
    (reply,), model, _ = talked(task, {"ill": ["Since when?", "It is hives.", "never said"]})
    assert reply.texts == ("Since when?", "It is hives.")
    assert [(message.role, message.parts) for message in model.prompts[-1].messages] == [
        ("system", ("You are a doctor.",)),
        ("user", (0, "It itches.")),
        ("assistant", ("Since when?",)),
        ("user", ("A day.",)),
    ]
    assert [(message.role, message.text) for message in patient.prompts[-1].messages] == [
        ("user", "You say: My arm itches. Also: red spots. You are calm: keep it short"),
        ("assistant", "It itches."),
        ("user", "Since when?"),
        ("assistant", "A day."),
        ("user", "It is hives."),
    ]
    assert all(prompt.images == () for prompt in patient.prompts)
    assert [(one["role"], one["text"]) for one in reply.messages] == [
        ("Patient", "It itches."),
        ("Doctor", "Since when?"),
        ("Patient", "A day."),
        ("Doctor", "It is hives."),
        ("Patient", "BREAK"),
    ]


def test_consultations_of_a_batch_go_on_together_and_end_each_at_its_own_time():
    task = consultation(ILL, ILL | {"id": "other"}, patient=Patient(["Hello BREAK"] + ["So?"] * 9), turns=3)
    task.layout.items[1]["fields"] = ILL["fields"] | {"personality": "loud"}
    replies, model, _ = talked(task, {"ill": ["a", "b", "c"], "other": ["d", "e", "f"]})
    assert [reply.texts for reply in replies] == [("a", "b", "c"), ("d", "e", "f")]
    assert model.sizes == [2, 2, 2]


@pytest.mark.parametrize(
    ("turns", "right"),
    [
        (("It is hives.", "You are welcome."), 1),
        (("It may be eczema.", "No: your diagnosis is hives."), 1),
        (("It is Urticaria.",), 1),
        (("It is hives.", "On reflection it is eczema."), 0),
        (("It is hives or eczema.",), 0),
        (("Hello?",), 0),
    ],
)
def test_the_diagnosis_is_that_of_the_last_turn_that_names_one(turns, right):
    task = consultation(ILL, synonyms={"urticaria": "hives"})
    (score,) = task.score(task.cases("test")[0], Reply(turns))
    assert score.value == right


def test_without_a_patient_the_doctor_is_asked_once():
    task = consultation(ILL, patient={"_partial_": True}, template={"user": "{question} {symptoms}"})
    (reply,), model, _ = talked(task, {"ill": "hives"})
    assert reply == Reply(("hives",))
    assert model.prompts[0].text == "My arm itches. red spots"
    assert "dialogue" not in task.signature()


def test_a_patient_is_made_once_where_it_speaks_and_not_sent_to_other_processes():
    made = []

    def make(lines):
        made.append(Patient(lines))
        return made[-1]

    task = consultation(ILL, patient=partial(make, ["Hello", "BREAK"], name="a model's name"))
    assert made == []
    talked(task, {"ill": "hives"})
    talked(task, {"ill": "hives"})
    assert [one.readied for one in made] == [1]
    task = consultation(ILL, patient=partial(Patient, ["Hello", "BREAK"]))
    talked(task, {"ill": "hives"})
    assert "_patient" in task.__dict__
    assert "_patient" not in pickle.loads(pickle.dumps(task)).__dict__
    assert "dialogue with a patient of at most 14 turns" in task.signature()


def test_a_run_of_consultations_judges_what_the_doctor_said_last(settings):
    task = consultation(ILL, patient=Patient(["It itches.", "A day.", "BREAK"]), config={"name": "talk"})
    folder = evaluate(task, candidate(Says({"ill": ["Since when?", "It is hives."]})), settings)
    (row,) = pd.read_parquet(folder / "scores.parquet").to_dict("records")
    assert (row["case"], row["metric"], row["value"]) == ("ill", "accuracy", 1)


def test_a_judge_reads_the_whole_consultation():
    judge = {"kind": {"prompt": {"user": "{answer}: {output}"}, "pattern": "([01])"}}
    task = consultation(ILL, patient=Patient(["Hello", "BREAK"]), judge=judge)
    (reply,), _, (case,) = talked(task, {"ill": "It is hives."})
    question, said = task.judge_questions["kind"], task.told_to_judge(case, reply.as_record())
    prompt = question.put(case, question.fields(case, said, {}))
    assert prompt.text == "hives: Patient: Hello\nDoctor: It is hives.\nPatient: BREAK"
    prompt = question.put(case, question.fields(case, task.told_to_judge(case, {"texts": ["It is eczema."]}), {}))
    assert prompt.text == "hives: It is eczema."


def test_consultations_that_cannot_be_meant_are_refused():
    with pytest.raises(UsageError, match="a patient needs a script"):
        consultation(ILL, patient=Patient([]), script="")
    with pytest.raises(UsageError, match=r"task.turns to be at least 1, got 0"):
        consultation(ILL, turns=0)

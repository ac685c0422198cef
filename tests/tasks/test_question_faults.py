"""Questions gone wrong: odd replies, judges that fail, records without a meaning, full disks, settings that changed."""

import errno
import json
import math
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
from asking import Prefers, Quiz, Says
from omegaconf import OmegaConf

from medimg_eval.api.runs import _run_baselines
from medimg_eval.case import Image
from medimg_eval.commands import score as score_command
from medimg_eval.commands.console import fail_if_cases_failed
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging.pictures.reading import as_picture
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.models import Chooser, VisionLanguageModel
from medimg_eval.models.baselines.questions import Chance, Majority
from medimg_eval.question import Reply
from medimg_eval.tasks import QuestionTask
from medimg_eval.trust import trusting
from tests.helpers.running import evaluate, rescore

OPTIONS = {"A": "one", "B": "two", "C": "three", "D": "four"}
GRADE = {"prompt": {"user": "{question} {output}"}, "pattern": r"(\d)"}


def choice(right="A", **more):
    return {"text": "Which?", "options": OPTIONS, "right": right, **more}


def yes_no(right="yes", **more):
    return {"text": "Is it?", "kind": "yes_no", "options": {}, "right": right, **more}


def quiz(items=(), number=0, layout=None, **settings):
    layout, config = layout or Quiz(list(items), number), {"name": "quiz", **settings}
    return QuestionTask(name="quiz", layout=layout, splits={"test": "test"}, config=config, **settings)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return Settings(runs=tmp_path / "runs", run=None, trainer=partial(pl.Trainer), config={}, score_workers=0)


def candidate(model, name="Says"):
    return ModelSpec(name, type(model), {"name": name}, load=lambda: model)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def mean(folder, metric):
    return next(row["mean"] for row in summary(folder)["metrics"] if row["metric"] == metric)


def rows(folder, metric="accuracy"):
    frame = pd.read_parquet(folder / "scores.parquet")
    return frame[frame["metric"] == metric].set_index("case")["value"].to_dict()


class Gives(VisionLanguageModel):
    """Gives what a function makes of the prompts."""

    file_arguments = ()

    def __init__(self, give, batch=2):
        self.give, self.preferred_batch, self.calls = give, batch, 0

    def generate(self, prompts, decoding):
        self.calls += 1
        return self.give(prompts)


# What models give


def test_one_text_for_a_batch_is_not_taken_for_a_letter_each(settings):
    folder = evaluate(quiz(number=2), candidate(Gives(lambda prompts: "AB")), settings)
    assert rows(folder) == {"q0": 0, "q1": 0}
    assert "gave one str, expected a list" in summary(folder)["failures"][0]["message"]


def test_replies_that_are_no_texts_fail_by_themselves_and_strange_texts_are_kept(settings):
    said = {"q0": None, "q1": np.str_("B"), "q2": "\ud800 C", "q3": "D\0", "q4": b"A", "q5": "x" * 1_000_000}
    model = Gives(lambda prompts: [said[prompt.case_id] for prompt in prompts], batch=6)
    folder = evaluate(quiz(number=6), candidate(model), settings)
    assert [failure["case"] for failure in summary(folder)["failures"]] == ["q0", "q4"]
    assert "is NoneType, expected a text" in summary(folder)["failures"][0]["message"]
    assert (rows(folder)["q1"], rows(folder)["q2"]) == (1, 1)


@pytest.mark.parametrize("kind", [VisionLanguageModel, Chooser])
def test_too_few_answers_are_said_so(settings, kind):
    class Lazy(kind):
        preferred_batch = 2

        def generate(self, prompts, decoding):
            return ["A"] * (len(prompts) - 1)

        def choose(self, prompts):
            return [dict.fromkeys(OPTIONS, 0.0)] * (len(prompts) - 1)

    folder = evaluate(quiz(number=2), candidate(Lazy()), settings)
    assert summary(folder)["failures"][0]["message"] == "the model gave 0 answers to 1 prompts"


def test_preferences_within_a_reply_are_looked_at_as_well():
    made = quiz([choice()])
    case = made.cases("test")[0]
    with pytest.raises(CaseError, match="not finite"):
        made.accept(case, Reply(preferences=dict.fromkeys(OPTIONS, math.nan)))
    assert made.accept(case, Reply(preferences=dict.fromkeys(OPTIONS, 1))).preferences == dict.fromkeys(OPTIONS, 1.0)


def test_ids_of_half_characters_slashes_and_length_are_scored(settings):
    ids = ["s\udc80", "a/../b", "ü\n\0", "x" * 300]
    folder = evaluate(quiz([choice(id=one) for one in ids]), candidate(Says()), settings)
    assert list(rows(folder).values()) == [1, 1, 1, 1]
    assert "s\\udc80" in rows(folder)


# What answers are worth


def test_an_option_alone_is_right_of_several_where_it_is_all_that_is_right():
    made = quiz([choice(("A",), kind="choices"), choice(("A", "B"), kind="choices")])
    alone, both = made.cases("test")
    first = Reply(preferences={"A": 1.0, "B": 0.0, "C": 0.0, "D": 0.0})
    assert made.score(alone, first)[0].value == 1
    assert made.score(both, first)[0].value == 0


def test_yes_and_no_may_stand_under_other_letters(settings):
    options = {"A": "Yes", "B": "No."}
    items = [yes_no("yes", options=options), yes_no("no", options=options)]
    made = quiz(items, metrics=["accuracy", "confusion"])
    yes, no = made.cases("test")
    assert [made.score(case, Reply(preferences={"A": 0, "B": 1}))[0].value for case in (yes, no)] == [0, 1]
    assert [made.score(no, Reply((text,)))[0].value for text in ("B", "No", "The answer is A.")] == [1, 1, 0]
    apart = quiz([*items, *({**one, "split": "fit"} for one in items)], metrics=["accuracy", "confusion"])
    apart = replace(apart, splits={"fit": "fit", "test": "test"})
    folder = evaluate(apart, candidate(Majority(), "Majority"), settings)
    assert sum(rows(folder).values()) == 1
    folder = evaluate(quiz(items, metrics=["accuracy", "confusion"]), candidate(Says(default="B")), settings)
    assert rows(folder, "predicted_position") == {"q0": 2, "q1": 2}


def test_chance_is_what_the_baseline_of_that_name_scores_whatever_kinds_there_are(settings):
    items = [
        choice(),
        yes_no(),
        yes_no("no", options={"A": "yes", "B": "no", "C": "unsure"}),
        {"text": "How many?", "kind": "number", "options": {}, "right": 3.0},
        {"text": "What?", "kind": "open", "options": {}, "right": "a lung"},
        choice(("A",), kind="choices"),
        choice(("A", "B"), kind="choices"),
        choice(options={"A": "only"}),
    ]
    folder = evaluate(quiz(items), candidate(Chance(), "Chance"), settings)
    expected = (1 / 4 + 1 / 2 + 1 / 3 + 0 + 1 / 4 + 0 + 1) / 7
    assert manifest(folder)["chance"]["accuracy"] == pytest.approx(expected)
    assert mean(folder, "accuracy") == pytest.approx(expected)
    written = quiz([items[3], items[4]])
    assert written.reference_lines(written.cases("test")) == {}


def test_a_case_that_fails_is_worth_nothing_to_the_judge_either(settings):
    settings.judge = candidate(Says(default="4"), "Judge")
    metrics = ["accuracy", "judged@grade", "judged_total", "judge_failures"]
    made = quiz(number=2, metrics=metrics, judge={"grade": GRADE})
    folder = evaluate(made, candidate(Says(fails_on=["q1"])), settings)
    assert rows(folder, "judged@grade") == {"q0": 4, "q1": 0}
    assert mean(folder, "judged_total") == 2
    assert rows(folder, "judge_failures") == {"q0": 0}


class WithFaults(Quiz):
    """The second record cannot be understood."""

    files = ()

    def cases(self, split):
        found = super().cases(split)
        found[1] = replace(found[1], question=None, target=self)
        return found

    def read(self):
        raise CaseError("the record is wrong")


def test_a_set_with_a_record_that_nobody_understands_is_neither_right_nor_wrong(settings):
    sets = [(name, str(member)) for name in ("s1", "s2") for member in (1, 2)]
    items = [choice(patient=name, attributes={"set": name, "member": member}) for name, member in sets]
    layout = WithFaults([*items[:3], {**items[3], "right": "B"}])
    folder = evaluate(quiz(layout=layout, metrics=["accuracy", "group_accuracy"]), candidate(Says()), settings)
    assert mean(folder, "accuracy") == pytest.approx(2 / 3)
    assert mean(folder, "group_accuracy") == 0
    apart = replace(settings, runs=settings.runs / "failed")
    failed = evaluate(quiz(items, metrics=["group_accuracy"]), candidate(Says(fails_on=["q1"])), apart)
    assert mean(failed, "group_accuracy") == 1 / 2


# How questions are put


def test_exemplars_are_spelt_as_a_model_would_and_come_from_another_split():
    shots = [
        choice(("A", "C"), kind="choices", split="dev"),
        {"text": "How many?", "kind": "number", "options": {}, "right": 3.0, "split": "dev"},
        {"text": "What?", "kind": "open", "options": {}, "right": ["lung", "lungs"], "split": "dev"},
    ]
    made = quiz([choice(), *shots], shots={"split": "dev", "number": 3})
    prompt = made.prompt(made.cases("test")[0], ())
    assert [said.text for said in prompt.messages if said.role == "assistant"] == ["A, C", "3", "lung"]
    with pytest.raises(UsageError, match="give answers away"):
        quiz([choice()], shots={"split": "test"})


def test_what_a_value_holds_is_neither_a_field_nor_the_place_of_an_image():
    odd = choice(options={"A": "{B} <<x>> {n}", "B": "u\0\0v"}, fields={"hint": "\0001\0"})
    made = quiz([odd], template={"user": "{hint}{A} {B}"})
    case = made.cases("test")[0]
    (message,) = made.prompt(case, made.read_images(case)).messages
    assert message.parts == (0, "1{B} <<x>> {n} uv")


def test_images_of_a_later_turn_are_refused_in_words():
    with pytest.raises(UsageError, match="images are shown in the first turn"):
        quiz([choice()], template={"turns": ["{question}", "And {image}?"]})


def test_a_field_that_no_question_has_is_said_before_a_model_is_loaded(settings):
    def load():
        raise AssertionError

    model = ModelSpec("Heavy", Says, {}, load=load)
    with pytest.raises(UsageError, match=r"task 'quiz': the prompt template names \{qestion\}"):
        evaluate(quiz(number=3, template={"user": "{qestion}"}), model, settings)
    assert not list(settings.runs.rglob("manifest.json"))


def test_a_letter_that_one_question_lacks_fails_that_question_alone(settings):
    items = [choice(), choice(options={"A": "one", "B": "two"})]
    folder = evaluate(quiz(items, template={"user": "{question} {D}"}), candidate(Says()), settings)
    (failure,) = summary(folder)["failures"]
    assert failure["case"] == "q1"
    assert failure["message"].startswith("the prompt template names {D}")


@pytest.mark.parametrize("shape", [(1, 0, 4), (4, 4), (5, 4, 4), (1, 2, 4, 4)])
def test_an_image_that_is_no_picture_is_refused_with_its_shape(shape):
    with pytest.raises(CaseError, match=r"an image of shape \("):
        as_picture(Image(np.zeros(shape, np.uint16), np.eye(4), units="pixel"))


def test_a_fourth_channel_beyond_opaque_does_not_turn_colours_round():
    array = np.full((4, 2, 2), 300.0, np.float32)
    array[0, 0, 0], array[1:3] = 0, 100
    assert as_picture(Image(array, np.eye(4), units="pixel")).getpixel((1, 1)) == (255, 85, 85)


# Judges


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda prompts: [None] * len(prompts), "reply is NoneType, expected a text"),
        (lambda prompts: ["1"] * (len(prompts) - 1), "gave 0 answers to 1 prompts"),
        (lambda prompts: ["1"] * (len(prompts) + 1), "gave 2 answers to 1 prompts"),
        (lambda prompts: "1", "gave one str, expected a list"),
    ],
)
def test_a_judge_that_does_not_give_a_text_for_each_question_has_failed_and_is_asked_again(settings, give, message):
    made = partial(quiz, number=3, metrics=["accuracy", "judged@grade"], judge={"grade": GRADE | {"pattern": r"(\w)"}})
    settings.judge = candidate(Gives(give), "Judge")
    folder = evaluate(made(), candidate(Says()), settings)
    assert rows(folder, "judged@grade") == {}
    assert manifest(folder)["judge"]["failed"] == 3
    with pytest.raises(UserError, match=f"3 questions to judge Judge failed in(.|\n)*{message}"):
        fail_if_cases_failed([folder])
    settings.judge = candidate(Gives(lambda prompts: ["2"] * len(prompts)), "Judge")
    evaluate(made(), candidate(Says()), settings)
    assert rows(folder, "judged@grade") == {"q0": 2, "q1": 2, "q2": 2}
    assert manifest(folder)["judge"]["failed"] == 0
    fail_if_cases_failed([folder])


def test_a_judge_that_fails_on_one_answer_judges_the_others(settings):
    settings.judge = candidate(Says(default="5", fails_on=["q1"], batch=4), "Judge")
    folder = evaluate(quiz(number=4, metrics=["judged@grade"], judge={"grade": GRADE}), candidate(Says()), settings)
    assert rows(folder, "judged@grade") == {"q0": 5, "q2": 5, "q3": 5}
    assert [one["case"] for one in manifest(folder)["judge"]["failures"]] == ["q1"]


def test_a_judge_whose_key_is_refused_is_asked_once(settings):
    def refuse(prompts):
        raise UserError("the key is refused")

    judge = Gives(refuse, batch=1)
    settings.judge = candidate(judge, "Judge")
    with pytest.raises(UserError, match="the key is refused"):
        evaluate(quiz(number=4, judge={"grade": GRADE}), candidate(Says()), settings)
    assert judge.calls == 1


def test_verdicts_follow_the_pattern_and_the_questions_that_the_task_has_now(settings):
    judge = Says(default="score 2 of 5")
    settings.judge = candidate(judge, "Judge")
    metrics = ["judged@grade", "judged_total"]
    two = {"grade": GRADE | {"pattern": r"of (\d)"}, "other": GRADE}
    folder = evaluate(quiz(number=2, metrics=metrics, judge=two), candidate(Says()), settings)
    assert (rows(folder, "judged@grade")["q0"], rows(folder, "judged_total")["q0"]) == (5, 10)
    one = {"grade": GRADE | {"pattern": r"score (\d)"}}
    assert evaluate(quiz(number=2, metrics=metrics, judge=one), candidate(Says()), settings) == folder
    assert (rows(folder, "judged@grade")["q0"], rows(folder, "judged_total")["q0"]) == (2, 2)
    assert manifest(folder)["judge"]["questions"] == 2
    assert len(judge.prompts) == 2  # both of its questions are put in the same words


def test_verdicts_of_one_judge_are_not_taken_for_those_of_another(settings):
    made = partial(quiz, number=2, metrics=["judged@grade"], judge={"grade": GRADE})
    for words, worth in (("1", 1), ("4", 4), ("1", 1)):
        settings.judge = ModelSpec("Judge", Says, {"default": words}, load=lambda words=words: Says(default=words))
        folder = evaluate(made(), candidate(Says()), settings)
        assert set(rows(folder, "judged@grade").values()) == {worth}


def test_a_judge_that_has_said_everything_is_not_loaded(settings):
    made = partial(quiz, number=2, metrics=["judged@grade"], judge={"grade": GRADE})
    settings.judge = ModelSpec("Judge", Says, {}, load=lambda: Says(default="3"))
    evaluate(made(), candidate(Says()), settings)
    loaded = []
    settings.judge = ModelSpec("Judge", Says, {}, load=lambda: loaded.append(1))
    folder = evaluate(made(), candidate(Says()), settings)
    assert set(rows(folder, "judged@grade").values()) == {3}
    assert loaded == []


def test_answers_that_a_judge_was_not_asked_about_are_counted_below_the_table(settings):
    option = {"prompt": {"user": "{output}"}, "pattern": r"([A-D])", "when": "unparsed", "values": {"B": "B"}}
    said = {"q0": "A", "q1": "Something.", "q2": "C"}
    settings.judge = candidate(Says(default="B"), "Judge")
    folder = evaluate(
        quiz(number=3, judge={"option": option}, extraction="cascade+judge"), candidate(Says(said)), settings
    )
    assert mean(folder, "accuracy") == 1
    assert manifest(folder)["notes"] == []
    rescore(folder, quiz(number=3, judge={"option": option}, extraction="judge"))
    assert manifest(folder)["notes"] == ["the judge has not been asked 2 of its questions; run test again with it"]


def test_a_rule_that_leaves_answers_to_a_judge_says_when_there_is_none():
    assert "no judge was asked" in quiz([choice()], extraction="cascade+judge").signature()
    assert "judge" not in quiz([choice()]).signature()


def test_a_judge_that_cannot_write_or_must_not_see_the_answers_is_refused_before_anything_is_asked(settings):
    class Elsewhere(Says):
        remote = True

    model = Says()
    for judge, message in ((Prefers(), "cannot write"), (Elsewhere(), "add may_leave=yes")):
        made = quiz(number=2, judge={"grade": GRADE}, card={"access": "gated"})
        settings.judge = candidate(judge, "Judge")
        with pytest.raises(UsageError, match=message):
            evaluate(made, candidate(model), settings)
    assert model.prompts == []


def test_a_judge_that_is_a_network_is_put_to_evaluate(settings):
    from torch import nn

    class Network(nn.Module, VisionLanguageModel):
        file_arguments = ()

        def generate(self, prompts, decoding):
            return ["0" if self.training else "1" for _ in prompts]

    settings.judge = candidate(Network(), "Judge")
    folder = evaluate(quiz(number=1, metrics=["judged@grade"], judge={"grade": GRADE}), candidate(Says()), settings)
    assert rows(folder, "judged@grade") == {"q0": 1}


# Going on


def test_a_score_that_failed_is_tried_again(settings, monkeypatch):
    def broken(self, case, prediction, metrics=None):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(QuestionTask, "score", broken)
        folder = evaluate(quiz(number=1), candidate(Says()), settings)
    assert manifest(folder)["failed_cases"] == 1
    assert evaluate(quiz(number=1), candidate(Says()), settings) == folder
    assert manifest(folder)["failed_cases"] == 0
    assert rows(folder) == {"q0": 1}


def test_a_full_disk_is_said_in_a_sentence_and_the_folder_let_go(settings, monkeypatch):
    def full(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(UserError, match="there is no more room"):
        patched.setattr(Run, "append_predictions", full)
        evaluate(quiz(number=2), candidate(Says()), settings)
    folder = evaluate(quiz(number=2), candidate(Says()), settings)
    assert manifest(folder)["status"] == "finished"


def test_a_model_is_interrupted_and_goes_on(settings, tmp_path):
    class Interrupted(Says):
        def generate(self, prompts, decoding):
            if prompts[0].case_id == "q2" and not (tmp_path / "once").exists():
                (tmp_path / "once").touch()
                raise KeyboardInterrupt
            return super().generate(prompts, decoding)

    log = tmp_path / "asked"
    with pytest.raises(KeyboardInterrupt):
        evaluate(quiz(number=4), candidate(Interrupted(log=log)), settings)
    (found,) = settings.runs.rglob("manifest.json")
    assert json.loads(found.read_text())["status"] == "interrupted"
    evaluate(quiz(number=4), candidate(Interrupted(log=log)), settings)
    assert log.read_text().split() == ["q0", "q1", "q2", "q3"]


# Commands


def built(items=(), number=0, **settings):
    layout = {"_target_": "asking.Quiz", "items": list(items), "number": number}
    target = "medimg_eval.tasks.QuestionTask"
    return build_task({"_target_": target, "name": "quiz", "layout": layout, "splits": {"test": "test"}, **settings})


def score(folder, **wanted):
    keys = (
        "root",
        "reports",
        "score_workers",
        "extraction",
        "metrics",
        "surface",
        "empty",
        "annotators",
        "extractors",
        "may_leave",
    )
    with trusting():  # the layout is the tests' own
        score_command.run(OmegaConf.create({"run": str(folder), **dict.fromkeys(keys), **wanted}))


def test_stored_answers_are_scored_again_by_another_rule_and_other_metrics(settings):
    made = built(number=4, authors={"extraction": "answer_tag"})
    folder = evaluate(made, candidate(Says(default="<answer>C</answer> No, B.")), settings)
    before = rows(folder)
    score(folder, extraction="authors")
    assert rows(folder) == {"q0": 0, "q1": 0, "q2": 1, "q3": 0}
    assert "extraction: answer_tag" in manifest(folder)["signature"]
    score(folder, extraction="cascade", metrics=["accuracy", "refused"])
    assert rows(folder) == before
    assert set(rows(folder, "refused").values()) == {0}
    with pytest.raises(UsageError, match="surface= is for tasks of segmentations, and 'quiz' is none"):
        score(folder, surface="voxel")


def test_a_baseline_that_finds_nothing_to_learn_is_left_out_and_the_others_stay(settings):
    made = built([{"text": "Where?", "kind": "box", "options": {}, "right": [0, 0, 1, 1]}], metrics=["unanswered"])
    done = _run_baselines([made], settings)
    assert [manifest(run.folder)["model"] for _, run in done] == ["Chance", "Longest option"]


@pytest.mark.parametrize("kind", ["Majority", "NearestQuestion"])
def test_a_baseline_never_learns_from_the_test_cases(settings, kind):
    made = built(number=8)
    one = build_candidate({"_target_": f"medimg_eval.models.baselines.questions.{kind}"})
    with pytest.raises(UserError, match=f"{kind} learns from cases to fit on, and there are none .task 'quiz' has"):
        evaluate(made, one, settings)
    done = _run_baselines([made], settings)
    assert [manifest(run.folder)["model"] for _, run in done] == ["Chance", "Longest option"]

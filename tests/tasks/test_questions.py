"""Questions: how they are put, what is kept of replies, what they are worth, and how a run of them goes."""

import json
import logging
import math
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import pandas as pd
import pytest
from asking import Painted, Prefers, Quiz, Says

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evidence import Context
from medimg_eval.instantiate import build_task, changed
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.models import Model
from medimg_eval.question import Reply
from medimg_eval.results import load_runs
from medimg_eval.tasks import QuestionTask
from medimg_eval.tasks.questions.shared_texts import SharedTexts
from tests.helpers.judge_lines import judge_lines
from tests.helpers.running import evaluate, rescore

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

LUNG = {
    "text": "What is seen?",
    "options": {"A": "effusion", "B": "nodule", "C": "nothing"},
    "right": "B",
    "images": [1, 2],
    "attributes": {"language": "en"},
    "fields": {"hint": "left side", "empty": ""},
}


def task(*items, **settings):
    config = {"name": "quiz", "template": {}} | settings
    return QuestionTask(name="quiz", layout=Quiz(list(items)), splits={"test": "test"}, config=config, **settings)


def put(one, **settings):
    """The turns of one question, as (role, parts)."""
    quiz = task(one, **settings)
    case = quiz.cases("test")[0]
    prompt = quiz.prompt(case, quiz.read_images(case))
    return [(message.role, message.parts) for message in prompt.messages], prompt


def test_a_question_is_put_as_its_images_its_text_and_its_options():
    turns, prompt = put(LUNG, template={"user": "{question}\n{options}\nAnswer with {letters}."})
    text = "What is seen?\nA. effusion\nB. nodule\nC. nothing\nAnswer with A, B, C."
    assert turns == [("user", (0, 1, text))]
    assert prompt.text == text
    assert dict(prompt.options) == LUNG["options"]


def test_a_template_has_its_own_lines_of_options_and_leaves_out_what_is_empty():
    template = {
        "system": "You read X-rays.",
        "user": "<<Hint: {hint}\n>><<Other: {empty}\n>>{question} {options} ({n} of {first} to {last}) {option_list}",
        "option": "({letter}) {text}",
        "join": "; ",
    }
    turns, _ = put(LUNG, template=template)
    assert turns[0] == ("system", ("You read X-rays.",))
    assert turns[1][1][-1] == (
        "Hint: left side\nWhat is seen? (A) effusion; (B) nodule; (C) nothing (3 of A to C) "
        "['effusion', 'nodule', 'nothing']"
    )


def test_images_stand_where_the_text_says_and_the_others_come_first():
    one = {**LUNG, "text": "Compare <image 3> with <image 1>.", "images": [1, 2, 3]}
    turns, _ = put(one, template={"user": "{question}", "images": "marks"})
    assert turns == [("user", (1, "Compare ", 2, " with ", 0, "."))]


def test_a_template_can_say_where_images_belong():
    turns, _ = put(LUNG, template={"user": "Before: {image} after: {image} {question}"})
    assert turns == [("user", ("Before: ", 0, " after: ", 1, " What is seen?"))]


def test_a_variant_of_the_template_is_chosen_by_an_attribute():
    template = {"user": "{question}", "by": "language", "variants": {"zh": {"user": "问题：{question}"}}}
    assert put(LUNG, template=template)[0][0][1][-1] == "What is seen?"
    chinese = {**LUNG, "attributes": {"language": "zh"}}
    assert put(chinese, template=template)[0][0][1][-1] == "问题：What is seen?"


def test_braces_that_are_text_are_doubled_and_what_a_value_holds_stays_as_it_is():
    one = {**LUNG, "text": "What does {hint} mean?"}
    turns, _ = put(one, template={"user": '{question} Answer as \\boxed{{X}} or {"answer": "A"}.'})
    assert turns[0][1][-1] == 'What does {hint} mean? Answer as \\boxed{X} or {"answer": "A"}.'


def test_a_field_that_the_case_lacks_is_named_with_the_nearest():
    with pytest.raises(UsageError, match=r"names \{questoin\}; did you mean 'question'\?"):
        put(LUNG, template={"user": "{questoin}"})


def test_exemplars_come_before_the_question_with_their_images_and_answers():
    shot = {**LUNG, "split": "dev", "id": "shot", "text": "And here?", "right": "C", "images": [9]}
    quiz = task(LUNG, shot, template={"system": "S", "user": "{question}"}, shots={"split": "dev", "number": 1})
    case = quiz.cases("test")[0]
    prompt = quiz.prompt(case, quiz.read_images(case))
    assert [(message.role, message.parts) for message in prompt.messages] == [
        ("system", ("S",)),
        ("user", (0, "And here?")),
        ("assistant", ("C",)),
        ("user", (1, 2, "What is seen?")),
    ]
    assert [int(image.array[0, 0, 0]) for image in prompt.images] == [9, 1, 2]
    assert "1 exemplars" in quiz.signature()


def test_a_judge_belongs_to_the_definition_of_the_metrics_that_rest_on_it_alone():
    asking = {"right": {"prompt": {"user": "{answer}? {output}"}, "pattern": "([01])"}}
    plain, quiz = task(LUNG, metrics=["accuracy"]), task(LUNG, metrics=["accuracy", "judged@right"], judge=asking)
    somebody = {"judge": "somebody-1"}
    assert quiz.definitions(somebody)["accuracy"] == plain.definitions()["accuracy"]
    assert "judged by somebody-1" in quiz.definitions(somebody)["judged@right"]
    left_to_it = task(LUNG, metrics=["accuracy"], judge=asking, extraction="cascade+judge")
    assert "judged by somebody-1" in left_to_it.definitions(somebody)["accuracy"]


def test_a_blind_model_sees_nothing_or_grey():
    turns, prompt = put(LUNG, blind="remove", template={"user": "{image}{question}"})
    assert turns == [("user", ("What is seen?",))]
    assert prompt.images == ()
    _, prompt = put(LUNG, blind="grey")
    assert [set(image.array.ravel()) for image in prompt.images] == [{128}, {128}]
    assert prompt.images[0].array.shape == Painted(1).read().array.shape


def test_later_turns_are_said_after_the_replies():
    model = Says({"q0": ["Let me see: a nodule.", "B"]})
    quiz = task(LUNG, template={"turns": ["Q: {question}", "Therefore, among {first} through {last}, the answer is"]})
    case = quiz.cases("test")[0]
    (reply,) = quiz.ask(model, [quiz.prompt(case, quiz.read_images(case))])
    assert reply.texts == ("Let me see: a nodule.", "B")
    assert [message.role for message in model.prompts[1].messages] == ["user", "assistant", "user"]
    assert model.prompts[1].messages[-1].text == "Therefore, among A through C, the answer is"
    assert quiz.score(case, reply)[0].value == 1


def test_a_model_that_cannot_write_is_asked_to_choose():
    quiz = task(LUNG)
    case = quiz.cases("test")[0]
    (answer,) = quiz.ask(Prefers(), [quiz.prompt(case, ())])
    reply = quiz.accept(case, answer)
    assert reply.preferences == {"A": 8.0, "B": 6.0, "C": 7.0}
    assert {score.metric: score.value for score in quiz.score(case, reply)} == {"accuracy": 0, "unanswered": 0}


def test_equal_preferences_are_worth_the_expected_value_of_a_draw():
    quiz = task(LUNG, {**LUNG, "kind": "yes_no", "options": {}, "right": "yes"})
    choice, yes_no = quiz.cases("test")
    assert quiz.score(choice, Reply(preferences={"A": 0, "B": 0, "C": 0}))[0].value == pytest.approx(1 / 3)
    assert quiz.score(choice, Reply(preferences={"A": 1, "B": 1, "C": 0}))[0].value == pytest.approx(1 / 2)
    assert quiz.score(yes_no, quiz.accept(yes_no, {"yes": 0, "no": 0}))[0].value == pytest.approx(1 / 2)
    assert quiz.reference_lines([choice, yes_no]) == {"accuracy": pytest.approx((1 / 3 + 1 / 2) / 2)}


def test_an_answer_that_is_none_is_refused_in_words():
    quiz = task(LUNG)
    case = quiz.cases("test")[0]
    with pytest.raises(CaseError, match="is int, expected a text"):
        quiz.accept(case, 3)
    with pytest.raises(CaseError, match=r"numbers for \['A', 'B'\], expected them for \['A', 'B', 'C'\]"):
        quiz.accept(case, {"A": 1.0, "B": 0.0})
    with pytest.raises(CaseError, match="not finite"):
        quiz.accept(case, {"A": math.nan, "B": 0.0, "C": 0.0})


def test_settings_that_cannot_be_meant_are_refused():
    for settings, message in (
        ({"answer_by": "guess"}, "got 'guess'"),
        ({"blind": "black"}, "got 'black'"),
        ({"metrics": ["dice"]}, "'dice' does not judge answers"),
        ({"extraction": "casacde"}, "got 'casacde'; did you mean 'cascade'"),
        ({"extraction": "authors"}, "its authors' rule is not known"),
        ({"decoding": {"beams": 3}}, "task.decoding: .*beams"),
        ({"template": {"usre": "x"}}, "no key 'usre'; did you mean 'user'"),
        ({"judge": {"x": {"prompt": {}}}}, "task.judge.x: expected `prompt` and `pattern`"),
    ):
        with pytest.raises(UsageError, match=message):
            task(LUNG, **settings)


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)


def candidate(model, name="Says"):
    return ModelSpec(name, type(model), {"name": name}, load=lambda: model)


def quiz_of(number, **settings):
    config = {"name": "quiz", **settings}
    return QuestionTask(name="quiz", layout=Quiz(number=number), splits={"test": "test"}, config=config, **settings)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def rows(folder, metric="accuracy"):
    frame = pd.read_parquet(folder / "scores.parquet")
    return frame[frame["metric"] == metric].set_index("case")["value"].to_dict()


def test_a_run_keeps_every_raw_reply_and_says_what_chance_and_overhead_are(settings):
    folder = evaluate(quiz_of(8), candidate(Says(default="The answer is A.")), settings)
    lines = [json.loads(line) for line in (folder / "predictions-0.jsonl").read_text().splitlines()]
    assert lines[0] == {"case": "q0", "answer": {"texts": ["The answer is A."]}, "form": "record"}
    assert sum(rows(folder).values()) == 2
    said = manifest(folder)
    assert said["chance"] == {"accuracy": 0.25}
    assert 0 <= said["timing"]["overhead"] <= 1
    assert not (folder / "predictions").exists()
    (run,) = load_runs([folder])
    assert run.finished
    assert run.predicted == 8


def test_getting_ready_is_no_overhead_of_the_harness(settings, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    class Slow(Says):
        def prepare(self, labels, example):
            clock[0] += 1000.0

        def generate(self, prompts, decoding):
            clock[0] += 3.0
            return super().generate(prompts, decoding)

    folder = evaluate(quiz_of(8), candidate(Slow(default="A")), replace(settings, batch_size=4))
    assert manifest(folder)["timing"] == {"seconds": 6.0, "in_model": 6.0, "overhead": 0.0}


def test_what_was_answered_before_a_stop_is_not_asked_again(settings, tmp_path):
    log = tmp_path / "asked"
    folder = evaluate(quiz_of(6), candidate(Says(log=log, fails_on=["q4"])), settings)
    assert manifest(folder)["failed_cases"] == 1
    assert rows(folder)["q4"] == 0
    evaluate(quiz_of(6), candidate(Says(log=log)), settings)
    assert log.read_text().split() == [*(f"q{n}" for n in range(6)), "q4"]
    assert manifest(folder)["failed_cases"] == 0
    assert rows(folder)["q4"] == 1


def test_a_batch_that_does_not_fit_into_memory_is_halved_from_then_on(settings, caplog):
    sizes = []
    with caplog.at_level(logging.WARNING):
        folder = evaluate(quiz_of(20), candidate(Says(most=2, batch=8, sizes=sizes)), settings)
    assert manifest(folder)["failed_cases"] == 0
    assert sizes == [8, 4, *[2] * 10]
    assert "goes on with 2" in caplog.text


def test_scoring_again_needs_no_model(settings):
    folder = evaluate(quiz_of(4), candidate(Says(default="B.")), settings)
    rescore(folder, quiz_of(4, metrics=["unanswered"]))
    assert set(rows(folder, "unanswered").values()) == {0.0}
    assert rows(folder) == {}


def test_a_model_that_neither_writes_nor_chooses_is_refused():
    class Mute(Model):
        pass

    with pytest.raises(UsageError, match="cannot"):
        refuse_incapable(quiz_of(1), candidate(Mute()))
    with pytest.raises(UsageError, match="cannot"):
        refuse_incapable(quiz_of(1, answer_by="likelihood"), candidate(Says()))


JUDGE = {
    "right": {
        "prompt": {"user": "Q: {question}\nTruth: {answer} {right_text}\nSaid: {output}\nVerdict?"},
        "pattern": r"<judge>\s*([01])",
        "values": {"0": 1, "1": 0},
    }
}


def test_a_judge_is_asked_once_about_each_answer_and_its_words_are_kept(settings):
    quiz = partial(quiz_of, 3, metrics=["accuracy", "judged@right"], judge=JUDGE)
    judge = Says({"q0": "<think>hm</think><judge>0</judge>", "q1": "<judge>1</judge>", "q2": "I cannot say"})
    settings.judge = candidate(judge, "Judge")
    folder = evaluate(quiz(), candidate(Says(default="A")), settings)
    assert rows(folder, "judged@right") == {"q0": 1, "q1": 0}
    assert manifest(folder)["judge"]["without_verdict"] == 1
    lines = judge_lines(folder)
    assert lines[1]["reply"] == "<judge>1</judge>"
    assert lines[1]["value"] == 0
    assert lines[0]["prompt"] == "Q: Which of these is item 0?\nTruth: A a0\nSaid: A\nVerdict?"
    evaluate(quiz(), candidate(Says(default="A")), settings)
    assert len(judge.prompts) == 3
    settings.judge = None
    rescore(folder, quiz())
    assert rows(folder, "judged@right") == {"q0": 1, "q1": 0}


def test_a_judge_that_draws_is_asked_anew_under_another_seed_and_a_greedy_one_is_not(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    for extra, seeds in ({}, [0]), ({"temperature": 1.0}, [0, 1]):
        seen = []

        class Judge(Says):
            def generate(self, prompts, decoding, seen=seen):
                seen += [decoding.seed] * len(prompts)
                return super().generate(prompts, decoding)

        judge = Judge(default="<judge>1</judge>")
        settings.judge = ModelSpec("Judge", Judge, {"extra": extra}, load=lambda judge=judge: judge)
        for settings.seed in (0, 1):
            evaluate(quiz_of(1, metrics=["judged@right"], judge=JUDGE), candidate(Says(default="A")), settings)
        assert seen == seeds


def test_the_seed_of_the_run_reaches_decoding_and_pictures_unless_the_task_names_one():
    def seen(run_seed, kind="QuestionTask", **more):
        layout = {"_target_": "asking.Quiz", "number": 1}
        made = {"_target_": f"medimg_eval.tasks.{kind}", "name": "quiz", "splits": {"test": "test"}, "layout": layout}
        task = build_task({**made, **more})
        return changed(task, **task.seeded(run_seed)) if run_seed else task

    class Draws:
        def generate(self, prompts, decoding):
            return [str(decoding.seed)] * len(prompts)

    for seed in (0, 1, 2):
        quiz = seen(seed, decoding={"temperature": 0.6})
        (case,) = quiz.cases("test")
        (reply,) = quiz.ask(Draws(), [quiz.prompt(case, quiz.read_images(case))])
        assert reply.texts == (str(seed),)
        assert quiz.config["decoding"] == {"temperature": 0.6} | ({"seed": seed} if seed else {})
    assert seen(1, decoding={"seed": 5}).config["decoding"] == {"seed": 5}
    talk = seen(3, "dialogues.ConsultationQuestionTask", patient_decoding={"temperature": 0.6})
    assert talk.patient_decoding == {"seed": 3, "temperature": 0.6}
    made = [seen(seed, "SynthesisTask").seeds("a") for seed in (0, 1, 2)]
    assert len({str(one) for one in made}) == 3
    assert seen(1, "SynthesisTask", seed=0).seeds("a") == made[0]


def test_data_go_to_no_server_unless_the_user_says_so(settings):
    class Elsewhere(Says):
        remote = True

    quiz = quiz_of(2, card={"access": "Credentialed: PhysioNet"})
    with pytest.raises(UsageError, match="add may_leave=yes"):
        evaluate(quiz, candidate(Elsewhere()), settings)
    settings.config = {"may_leave": "yes"}
    assert manifest(evaluate(quiz, candidate(Elsewhere()), settings))["status"] == "finished"


def test_a_judge_can_say_which_option_an_output_means_behind_a_rule_or_in_its_place():
    quiz = partial(task, LUNG, metrics=["accuracy", "unanswered"])
    case = quiz().cases("test")[0]
    understood, vague = {"texts": ["A"]}, {"texts": ["Something round, well defined."]}
    judged = Context(shared=SharedTexts(Corpus([]), verdicts={case.id: {"option": "B"}}))
    for rule, said, worth in (
        ("cascade", vague, (0, 1)),
        ("cascade+judge", vague, (1, 0)),
        ("cascade+judge", understood, (0, 0)),
        ("judge", understood, (1, 0)),
        ("vlmevalkit+judge", vague, (1, 0)),
    ):
        scores = quiz(extraction=rule).score(case, said, context=judged)
        assert tuple(score.value for score in scores) == worth, rule
    (none,) = (one for one in quiz(extraction="judge").score(case, understood) if one.metric == "unanswered")
    assert none.value == 1


def test_images_can_stand_behind_the_text():
    turns, _ = put(LUNG, template={"user": "{question}", "images": "last"})
    assert turns == [("user", ("What is seen?", 0, 1))]

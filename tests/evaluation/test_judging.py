"""Judges of reports: asked in rounds, in batches, again after a stop, by the model that a question belongs to."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Key, Question, Reply
from medimg_eval.results import build_table, load_runs, read_verdicts
from medimg_eval.tasks import QuestionTask, ReportTask
from medimg_eval.tasks.questions.judge_questions import JudgeQuestion
from tests.helpers.asking import Known, Painted
from tests.helpers.judge_lines import judge_lines
from tests.helpers.running import evaluate, rescore

GREEN = (
    "[Clinically Significant Errors]:\n(b) Missing: {}. x\n\n[Clinically Insignificant Errors]:\nNo.\n\n"
    "[Matched Findings]:\n{}. y"
)

REFERENCES = {"a": "No effusion. Normal heart.", "b": "Left nodule.", "c": "Clear lungs. No edema."}


class Layout:
    """A few reports, with pictures."""

    def __init__(self, references=None, kind="report"):
        self.references, self.kind = REFERENCES if references is None else references, kind

    def cases(self, split):
        return [
            Case(name, (Painted(7),), Known(Key(text)), question=Question("Report.", self.kind))
            for name, text in self.references.items()
        ]


class Writes(VisionLanguageModel):
    """Writes the report it is told to of each case."""

    file_arguments = ()

    def __init__(self, texts):
        self.texts = texts

    def generate(self, prompts, decoding):
        return [self.texts[prompt.case_id] for prompt in prompts]


class Judge(VisionLanguageModel):
    """Replies as a function of what it is asked; keeps that, how long it may write, and how many at once."""

    file_arguments = ()

    def __init__(self, reply, batch=1):
        self.reply, self.preferred_batch = reply, batch
        self.asked, self.most, self.sizes = [], [], []

    def generate(self, prompts, decoding):
        self.asked += [prompt.messages[-1].text for prompt in prompts]
        self.most.append(decoding.max_new_tokens)
        self.sizes.append(len(prompts))
        return [self.reply(prompt) for prompt in prompts]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return Settings(runs=Path(tmp_path) / "runs", run=None, trainer=lambda **_: None, config={}, score_workers=0)


def task(metrics, layout=None, **more):
    more = {"template": {"user": "{question}"}, **more}
    return ReportTask(name="r", layout=layout or Layout(), splits={"test": "test"}, metrics=metrics, **more)


def candidate(made, name="M", **config):
    return ModelSpec(name, type(made), config, lambda: made)


def green(model):
    return candidate(model, "G", checkpoint="StanfordAIMI/GREEN-radllama2-7b")


def run(settings, texts, metrics, by, layout=None, **more):
    settings.judge = by
    return evaluate(task(metrics, layout, **more), candidate(Writes(texts)), settings)


def rows(folder, metric):
    scores = load_runs([folder])[0].scores
    return scores[scores["metric"] == metric].set_index("case")["value"].to_dict()


def lines(folder):
    return judge_lines(folder)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


# One question about a report


def test_green_is_asked_in_its_own_words_scored_and_kept_and_what_cannot_be_read_is_counted(settings):
    judge = Judge(lambda prompt: {"a": GREEN.format(1, 3), "b": GREEN.format(2, 0), "c": "?"}[prompt.case_id])
    texts = {"a": "<think>hm</think>Normal heart.", "b": "Clear.", "c": "word " * 400}
    names = ["green", "green_as_published", "green_significant@b", "judge_failures"]
    folder = run(settings, texts, names, green(judge))
    assert rows(folder, "green") == {"a": 0.75, "b": 0}
    assert rows(folder, "green_as_published") == {"a": 0.75, "b": 0, "c": 0}
    assert rows(folder, "green_significant@b") == {"a": 1, "b": 2}
    assert rows(folder, "judge_failures") == {"a": 0, "b": 0, "c": 1}
    assert judge.asked[0].startswith("Objective: Evaluate the accuracy")
    assert "2. Reference Report:\n    No effusion. Normal heart.\n" in judge.asked[0]
    assert "3. Candidate Report:\n    Normal heart.\n" in judge.asked[0]
    assert judge.asked[2].count("word") == 300
    assert judge.most == [2048] * 3
    kept = {line["case"]: line for line in lines(folder)}
    assert kept["c"]["reply"] == "?"
    assert kept["c"]["value"] is None
    assert kept["a"]["value"]["matched"] == 3
    assert manifest(folder)["judge"]["unread"] == {"green": [1, 3]}
    assert "judge G: 1 of 3 replies to green hold no verdict and are not judged" in manifest(folder)["notes"]


def test_a_report_that_was_never_written_is_worth_the_worst_and_counts_are_not_judged(settings):
    class Fails(Writes):
        def generate(self, prompts, decoding):
            if prompts[0].case_id == "b":
                raise CaseError("no")
            return super().generate(prompts, decoding)

    settings.judge = green(Judge(lambda prompt: GREEN.format(0, 1)))
    made = task(["green", "green_significant"])
    folder = evaluate(made, candidate(Fails(REFERENCES)), settings)
    assert rows(folder, "green") == {"a": 1, "b": 0, "c": 1}
    assert rows(folder, "green_significant") == {"a": 0, "b": pytest.approx(math.nan, nan_ok=True), "c": 0}
    assert "1 by GREEN significant errors" in "".join(build_table(load_runs([folder])).footnotes)


def test_green_is_not_taken_from_another_judge(settings):
    judge = Judge(lambda prompt: GREEN.format(0, 1))
    with pytest.raises(UsageError, match=r"judge 'J' is another; add model@judge=green, .*green_prompt asks"):
        run(settings, REFERENCES, ["green"], candidate(judge, "J", model="gpt"))
    assert judge.asked == []
    folder = run(settings, REFERENCES, ["green_prompt"], candidate(judge, "J", model="gpt"))
    assert rows(folder, "green_prompt") == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("identity", "fits"),
    [
        (
            {"_target_": "medimg_eval.models.vision_language.green.GreenModel", "checkpoint": "3f9a"},
            True,
        ),  # a folder, by its content
        ({"_target_": "x.OpenAICompatible", "model": "StanfordAIMI/GREEN-Mistral-7b"}, True),
        ({"_target_": "x.OpenAICompatible", "model": "evergreen"}, False),
        ({}, False),
    ],
)
def test_a_judge_is_greens_own_by_its_class_or_its_checkpoint(identity, fits):
    made = task(["green"])
    (need,) = made.requirements()
    assert ("judge 'J' is another" in made.unfit(need, identity, "J")) is not fits
    others = task(["green_prompt", "crimson"])
    assert [others.unfit(need, identity, "J") for need in others.requirements()] == ["", ""]


def test_metrics_that_ask_are_refused_without_a_judge_before_anything_is_asked(settings):
    model = Writes({})
    settings.judge = None
    with pytest.raises(UserError, match="green, crimson: needs a judge; add model@judge=NAME"):
        evaluate(task(["green", "crimson", "rouge_l"]), candidate(model), settings)
    assert not settings.runs.exists()


def test_reports_under_terms_are_not_shown_to_a_judge_elsewhere(settings):
    class Elsewhere(Judge):
        remote = True

    made = task(["crimson"], card={"may_leave": "no"})
    settings.judge = candidate(Elsewhere(lambda prompt: ""), "J")
    with pytest.raises(UsageError, match="may not leave this machine"):
        evaluate(made, candidate(Writes(REFERENCES)), settings)


def test_a_judge_compares_with_one_reference_alone(settings, caplog):
    layout = Layout({"a": ("Clear.", "Clear lungs."), "b": "Clear."})
    judge = candidate(Judge(lambda prompt: GREEN.format(0, 1)))
    folder = run(settings, {"a": "x", "b": "x"}, ["green_prompt"], judge, layout)
    assert rows(folder, "green_prompt") == {"b": 1}
    assert "compares with one reference, and there are 2" in caplog.text


def test_the_indication_is_shown_where_there_is_one():
    made = task(["crimson"])
    question = made.judge_questions["crimson"]
    for fields, shown in (({"indication": "Cough."}, True), ({}, False)):
        case = Case("a", (), Known(Key("r")), question=Question("q", "report", fields=fields))
        prompt = question.put(case, question.fields(case, Reply(("p",)), {}))
        text = prompt.messages[-1].text
        assert ("Patient Context:\n    Indication: Cough.\n\n\nReference Findings" in text) is shown
        assert ("Patient Context" in text) is shown
        assert '{{"id": "R1"' in text
        assert "Reference Findings (Ground Truth):\nr\n\nPredicted Findings (Candidate):\np\n\nTask:" in text


# Questions that go on from others


def radfact(prompt):
    """Lists sentences as phrases; a phrase is entailed if it stands in the other report, and "?" cannot be read."""
    text = prompt.messages[-1].text
    if "hypothesis:" not in text:
        sentences = [f"{one.strip()}." for one in text.split(".") if one.strip()]
        return json.dumps({"sentence_list": [{"orig": one, "new": [one]} for one in sentences]})
    premise, hypothesis = re.fullmatch(r"reference:\n(.*)\nhypothesis: (.*)", text, re.DOTALL).groups()
    if "?" in hypothesis:
        return "I do not know."
    held = f"- {hypothesis}" in premise.splitlines()
    return json.dumps({"status": "entailment" if held else "not_entailment", "evidence": [hypothesis] * held})


RADFACT = ["radfact_precision", "radfact_recall", "radfact_f1", "radfact_precision_as_published", "judge_failures"]
WRITTEN = {"a": "Normal heart. Big liver. Clear lungs.", "b": " ", "c": "No edema. Odd?."}


@pytest.mark.parametrize("batch", [1, 4])
def test_radfact_asks_for_phrases_first_and_then_about_each_of_them(settings, batch):
    judge = Judge(radfact, batch)
    folder = run(settings, WRITTEN, RADFACT, candidate(judge, "J"))
    assert rows(folder, "radfact_precision") == {"a": pytest.approx(1 / 3)}
    assert rows(folder, "radfact_precision_as_published") == {"a": pytest.approx(1 / 3), "c": 0.5}
    assert rows(folder, "radfact_recall") == {"a": 0.5, "b": 0, "c": 0.5}
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    f1 = next(one["mean"] for one in summary if one["metric"] == "radfact_f1")
    assert f1 == pytest.approx(2 * (1 / 3) * (1 / 3) / (2 / 3))
    # 3 references and 2 reports that are not blank; then 3 + 2 and 0 + (not by a blank one) 0 and 2 + 2 phrases.
    assert len(judge.asked) == 5 + 5 + 4
    assert ["hypothesis" in text for text in judge.asked] == [False] * 5 + [True] * 9
    assert judge.asked[5].startswith("reference:\n- No effusion.\n- Normal heart.\nhypothesis: ")
    kept = {(line["case"], line["question"]): line for line in lines(folder)}
    assert kept["c", "radfact_prediction/2"]["reply"] == "I do not know."
    assert kept["c", "radfact_prediction"]["value"]["verdicts"] == [{"entailed": True, "evidence": ["No edema."]}, None]
    assert kept["b", "radfact_prediction"]["value"] == {"items": [], "verdicts": []}
    assert manifest(folder)["judge"]["questions"] == 14
    assert manifest(folder)["judge"]["without_verdict"] == 1
    assert "has not been asked" not in "".join(manifest(folder)["notes"])


def test_nothing_is_asked_twice_and_a_run_judged_before_is_scored_without_its_judge(settings):
    judge = Judge(radfact)
    folder = run(settings, WRITTEN, RADFACT, candidate(judge, "J"))
    first, asked = rows(folder, "radfact_recall"), len(judge.asked)
    kept = len(lines(folder))
    assert run(settings, WRITTEN, RADFACT, candidate(judge, "J")) == folder
    assert len(judge.asked) == asked
    assert len(lines(folder)) == kept
    rescore(folder, task(["radfact_recall"]))
    assert rows(folder, "radfact_recall") == first
    (folder / "evidence-0.jsonl").unlink()  # its replies are still in the user's cache
    assert run(settings, WRITTEN, RADFACT, candidate(judge, "J")) == folder
    assert rows(folder, "radfact_recall") == first
    assert len(judge.asked) == asked


@pytest.mark.parametrize("images", [False, True])
def test_two_columns_of_one_prompt_are_one_request(settings, images):
    level = {"prompt": {"user": "How bad is '{output}'?"}, "images": images, "pattern": "none|slight|grave"}
    asked = {
        "right": {**level, "values": {"none": 1, "slight": 0, "grave": 0}},
        "worth": {**level, "values": {"none": 1, "slight": 0.8, "grave": 0}},
    }
    texts = {"a": "Big liver.", "b": "No edema.", "c": "Clear lungs."}
    judge = Judge(lambda prompt: "slight" if "Big" in prompt.text else "none", batch=2)
    folder = run(settings, texts, ["judged@right", "judged@worth"], candidate(judge, "J"), judge=asked)
    assert sorted(judge.asked) == sorted(f"How bad is '{text}'?" for text in texts.values())
    assert rows(folder, "judged@right") == {case: float("Big" not in text) for case, text in texts.items()}
    assert rows(folder, "judged@worth") == {case: 0.8 if "Big" in text else 1 for case, text in texts.items()}


def test_a_judge_that_is_stopped_between_rounds_goes_on_where_it_was(settings):
    def stops(prompt):
        if "Big liver" in prompt.messages[-1].text.rpartition("hypothesis: ")[2] and "reference" in prompt.text:
            raise KeyboardInterrupt
        return radfact(prompt)

    with pytest.raises(KeyboardInterrupt):
        run(settings, WRITTEN, RADFACT, candidate(Judge(stops), "J"))
    judge = Judge(radfact)
    folder = run(settings, WRITTEN, RADFACT, candidate(judge, "J"))
    assert rows(folder, "radfact_precision") == {"a": pytest.approx(1 / 3)}
    assert len(judge.asked) < 14


def test_where_phrases_cannot_be_read_nothing_is_asked_of_them_and_it_is_counted_once(settings):
    judge = Judge(lambda prompt: "no" if "hypothesis" not in prompt.text and "Big" in prompt.text else radfact(prompt))
    folder = run(settings, WRITTEN, RADFACT, candidate(judge, "J"))
    assert rows(folder, "radfact_recall") == {"b": 0, "c": 0.5}
    assert manifest(folder)["judge"]["unread"]["radfact_prediction_phrases"] == [1, 2]
    assert manifest(folder)["judge"]["failed"] == 0
    assert "has not been asked" not in "".join(manifest(folder)["notes"])


def test_a_judge_that_fails_on_one_phrase_is_asked_about_it_again(settings):
    def fails(prompt):
        if prompt.text.endswith("hypothesis: Big liver."):
            raise RuntimeError("busy")
        return radfact(prompt)

    folder = run(settings, WRITTEN, RADFACT, candidate(Judge(fails, 4), "J"))
    assert rows(folder, "radfact_precision") == {}
    assert [one["question"] for one in manifest(folder)["judge"]["failures"]] == ["radfact_prediction/2"]
    judge = Judge(radfact)
    assert run(settings, WRITTEN, RADFACT, candidate(judge, "J")) == folder
    assert len(judge.asked) == 1
    assert rows(folder, "radfact_precision") == {"a": pytest.approx(1 / 3)}
    assert manifest(folder)["judge"]["failed"] == 0


def test_hallucinations_are_named_sentence_by_sentence_with_the_image_in_sight(settings):
    def names(prompt):
        assert len(prompt.images) == 1
        return "Critical Hallucination" if "Med-VLM answer: Big" in prompt.text else "Correct Statements"

    folder = run(
        settings,
        {"a": "Normal heart. Big liver.", "b": "", "c": "Clear."},
        ["medihall@0/1/2/3/4/5", "hallucinations@critical", "hallucination_free"],
        candidate(Judge(names), "J"),
    )
    assert rows(folder, "medihall@0/1/2/3/4/5") == {"a": 3, "c": 5}
    assert rows(folder, "hallucinations@critical") == {"a": 0.5, "c": 0}
    assert rows(folder, "hallucination_free") == {"a": 0.5, "c": 1}


def test_corrections_are_asked_for_by_numbered_sentences(settings):
    judge = Judge(lambda prompt: '{"corrections": [{"line": 1, "severity": "urgent"}]}')
    folder = run(settings, WRITTEN, ["corrections", "corrections@emergent"], candidate(judge, "J"))
    assert rows(folder, "corrections") == {"a": 1, "b": 1, "c": 1}
    assert rows(folder, "corrections@emergent") == {"a": 0, "b": 0, "c": 0}
    assert "Draft: [0] Normal heart. [1] Big liver. [2] Clear lungs.\n" in judge.asked[0]
    assert judge.most == [4096] * 3


def test_chexprompt_and_crimson_are_asked_together_and_long_replies_apart_from_short_ones(settings):
    count = ", ".join(f"({letter}, 0)" for letter in "ABCDEF")
    wide = {
        "chexprompt": f"Number of clinically significant errors by type: [{count}]\n"
        f"Number of clinically insignificant errors by type: [{count}]",
        "crimson": '{"reference_findings": [], "predicted_findings": [], "matched_findings": [], "errors": {}}',
    }
    judge = Judge(lambda prompt: wide["crimson" if "Return ONLY valid JSON" in prompt.text else "chexprompt"], batch=6)
    folder = run(settings, REFERENCES, ["chexprompt_errors", "crimson"], candidate(judge, "J"))
    assert rows(folder, "crimson") == {"a": 1, "b": 1, "c": 1}
    assert rows(folder, "chexprompt_errors") == {"a": 0, "b": 0, "c": 0}
    assert sorted(judge.most) == [1024, 8192]
    assert judge.sizes == [3, 3]


def test_verdicts_that_are_mappings_are_no_points_and_are_left_out_of_agreement(settings, tmp_path):
    grade = {"grade": {"prompt": {"user": "grade {output}"}, "pattern": r"(\d)"}}
    judge = Judge(lambda prompt: "4" if prompt.text.startswith("grade") else radfact(prompt))
    names = ["judged@radfact_recall", "judged@grade", "judged_total", "radfact_recall"]
    folder = run(settings, WRITTEN, names, candidate(judge, "J"), judge=grade)
    assert rows(folder, "judged@radfact_recall") == {}
    assert rows(folder, "judged@grade") == {"a": 4, "b": 4, "c": 4}
    assert rows(folder, "judged_total") == {}
    labels = tmp_path / "labels.csv"
    labels.write_text("case,question,human\na,grade,4\nb,grade,3\na,radfact_reference,1\n")
    assert [one.question for one in read_verdicts(folder, labels)] == ["grade"]
    labels.write_text("case,human\na,4\nb,3\n")  # only one question has verdicts that labels can be compared with
    assert [len(one.case) for one in read_verdicts(folder, labels)] == [2]


# Settings


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"prompt": {}, "pattern": "x", "parse": "green"}, "expected `prompt` and `pattern`, or `prompt` and `parse`"),
        ({"prompt": {}, "parse": "gren"}, "got 'gren'"),
        ({"prompt": {}, "parse": "green", "afer": ["x"]}, "got 'afer'"),
        ({"prompt": {}, "parse": "green", "after": ["other"]}, "goes on from the question 'other', which is not asked"),
        ({"prompt": {}, "parse": "green", "after": ["x"]}, "the questions before it wait for it"),
    ],
)
def test_questions_that_cannot_be_meant_are_refused(question, message):
    with pytest.raises(UsageError, match=message):
        QuestionTask(name="q", layout=Layout(), splits={"test": "test"}, template={"user": "x"}, judge={"x": question})


def test_a_question_that_goes_on_may_show_any_verdict_and_is_not_put_about_a_case_without_a_question():
    first = {"prompt": {"user": "1"}, "pattern": "(.*)"}
    second = {"prompt": {"user": "{x} {y}"}, "parse": "crimson", "after": ["x", "y"]}
    *_, last = JudgeQuestion.all_of({"x": first, "y": first, "z": second})
    case = Case("a", (), Known(Key("r")), question=Question("q"))
    put = last.put(case, last.fields(case, Reply(("p",)), {"x": 2.0, "y": {"k": [1]}}))
    assert put.text == '2.0 {"k": [1]}'
    with pytest.raises(CaseError, match="no question that the judge's 'z' could be about"):
        last.fields(Case("a", (), Known(Key("r"))), Reply(("p",)), {"x": 2.0, "y": "w"})

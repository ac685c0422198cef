"""What the language of a task decides: how texts are split, what is refused, what rules for English leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY
from medimg_eval.question import Key, Question, Reply
from medimg_eval.tasks import QuestionTask, ReportTask
from tests.helpers.asking import Known, Quiz

RULES = ("rule_labeler_states", "finding_f1", "temporal_f1")


def report(text, **attributes):
    return Case(
        id="a", images=(), target=Known(Key(text)), question=Question("Report.", "report"), attributes=attributes
    )


def task(**settings):
    return ReportTask(name="r", layout=Quiz(number=1), splits={"test": "test"}, **settings)


def value(task, case, written, metric):
    scores = task.score(case, Reply((written,)), [metric])
    return scores[0].value if scores else None


@pytest.mark.parametrize("metric", ["bleu_matches@1", "rouge_l_coco", "sentence_bleu@1"])
def test_chinese_words_match_in_a_chinese_task_and_do_not_in_an_english_one(metric):
    case, written = report("未见胸腔积液。"), "未见积液。"
    assert value(task(), case, written, metric) == 0
    assert value(task(language="zh"), case, written, metric) > 0.6


def test_a_field_of_the_case_may_hold_the_language():
    mixed = task(language="{tongue}")
    assert value(mixed, report("未见积液。", tongue="zh"), "未见积液", "bleu_matches@1") == 4
    assert value(mixed, report("No effusion.", tongue="en"), "No effusion", "bleu_matches@1") == 1
    assert value(mixed, report("未见积液。", tongue="zh"), "未见积液", "bleu_13a_matches@1") is None
    with pytest.raises(CaseError, match=r"case 'a', field 'tongue'.*'xx'"):
        value(mixed, report("No effusion.", tongue="xx"), "No effusion", "bleu_matches@1")


def test_the_signature_tells_the_language_but_english():
    assert "language" not in task().signature()
    assert "language: zh, words by zh instead of blanks" in task(language="zh").signature()
    quiz = QuestionTask(name="q", layout=Quiz(number=1), splits={"test": "test"}, language="ko", template={"user": "x"})
    assert "language: ko, words by char instead of blanks" in quiz.signature()


def test_the_language_decides_scores_alone():
    assert "language" in ReportTask.scoring_fields()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language": "Chinese"}, "ISO 639-1"),
        ({"language": "zh", "metrics": ["bleu_13a@4"], "monitor": ""}, "task 'r': metric 'bleu_13a@4'"),
        ({"language": "de", "metrics": ["rouge_l_stem"], "monitor": ""}, "stems of English"),
    ],
)
def test_what_cannot_be_is_refused_when_the_task_is_made(settings, message):
    with pytest.raises(UsageError, match=message):
        task(**settings)


@pytest.mark.parametrize("metric", RULES)
def test_rules_for_english_do_not_judge_references_in_other_languages(metric):
    german = "Kein Pneumothorax. Erguss unverändert links."
    assert value(task(), report(german), german, metric) is None
    assert value(task(language="de"), report("Pneumothorax."), "Pneumothorax.", metric) is None
    assert value(task(), report("No pneumothorax. Stable."), "No pneumothorax. Stable.", metric) is not None


def test_a_report_in_another_language_beside_an_english_one_has_found_nothing():
    assert value(task(), report("No pneumothorax."), "Kein Pneumothorax.", "finding_f1") == 0


def test_a_note_counts_what_rules_for_english_leave_out():
    cases = [report("Kein Pneumothorax."), report("No pneumothorax."), report("右肺结节。")]
    judged = task(metrics=["finding_f1"], monitor="")
    assert judged.notes(cases, EMPTY) == [
        "rules for English leave out 2 of 3 reports: their references are in other languages"
    ]
    assert judged.notes(cases[1:2], EMPTY) == []
    assert task(metrics=["rouge_l"]).notes(cases, EMPTY) == []


@pytest.mark.parametrize(("name", "language"), [("pet2rep", "zh"), ("slake", "{language}")])
def test_tasks_in_chinese_say_so(name, language):
    (place,) = (Path(__file__).parents[2] / "configs/task").glob(f"*/{name}.yaml")
    assert yaml.safe_load(place.read_text("utf-8"))["language"] == language

"""What judges count in reports: hand-worked evaluations, replies as judges write them, and replies that say nothing."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval import metrics
from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.judges import radfact
from medimg_eval.metrics.judges.chexprompt import read_chexprompt
from medimg_eval.metrics.judges.corrections import read_corrections
from medimg_eval.metrics.judges.crimson import crimson_score, read_crimson
from medimg_eval.metrics.judges.green import green_score, read_green
from medimg_eval.metrics.judges.medihall import read_hallucination
from medimg_eval.metrics.judges.verdicts import objects, reader, sentences, verdict_reader
from medimg_eval.metrics.registry import ALL

QUICK = settings(deadline=None, max_examples=30)

GREEN = """[Explanation]:
The candidate misses the effusion.

[Clinically Significant Errors]:
(a) False report of a finding in the candidate: 1. Nodule.
(b) Missing a finding present in the reference: 2. Effusion; Edema.
(c) Misidentification of a finding's anatomic location/position: 0.
(d) Misassessment of the severity of a finding: 0.
(e) Mentioning a comparison that isn't in the reference: 0.
(f) Omitting a comparison detailing a change from a prior study: 0.

[Clinically Insignificant Errors]:
(d) Misassessment of the severity of a finding: 1. Mild for moderate.

[Matched Findings]:
3. No pneumothorax; Normal heart; Clear left lung.
"""

NONE = dict.fromkeys("abcdef", 0)


def pair(verdicts, text="Clear lungs.", reference="Edema.", kind="report"):
    return AnsweredQuestion(kind, text, reference, judged=verdicts)


def value(name, verdicts, **more):
    found, parameter = metrics.parse(name)
    given = pair(verdicts, **more)
    return found.function(given) if parameter is None else found.function(given, parameter)


# GREEN


def test_green_is_matched_over_matched_and_significant_errors_by_hand():
    evaluation = read_green(GREEN)
    assert evaluation == {
        "matched": 3,
        "significant": NONE | {"a": 1, "b": 2},
        "insignificant": NONE | {"d": 1},
    }
    assert green_score(evaluation) == 0.5
    assert value("green", {"green": evaluation}) == 0.5
    assert value("green_prompt", {"green_prompt": evaluation}) == 0.5
    assert value("green_matched", {"green": evaluation}) == 3
    assert value("green_significant", {"green": evaluation}) == 3
    assert value("green_significant@b", {"green": evaluation}) == 2
    assert value("green_prompt_significant@B", {"green_prompt": evaluation}) == 2
    assert value("green_insignificant", {"green": evaluation}) == 1
    assert value("green_insignificant@a", {"green": evaluation}) == 0


def test_green_of_no_matched_finding_is_0_and_of_no_error_1():
    none = "[Clinically Significant Errors]:\nNo errors.\n\n[Matched Findings]:\n{}"
    assert green_score(read_green(none.format("0."))) == 0
    assert green_score(read_green(none.format("No matched findings."))) == 0
    assert green_score(read_green(none.format("2. Heart; Lungs."))) == 1


def test_green_reads_sections_without_blank_lines_between_them_numbers_for_letters_and_thinking():
    tight = GREEN.replace("\n\n", "\n")
    assert read_green(tight) == read_green(GREEN)
    numbered = GREEN
    for number, letter in enumerate("abcdef", 1):
        numbered = numbered.replace(f"({letter})", f"({number})")
    assert read_green(numbered) == read_green(GREEN)
    assert reader("green")(f"<think>[Matched Findings]: 9. x</think>{GREEN}") == read_green(GREEN)


def test_green_takes_a_category_without_a_count_as_its_authors_do():
    # Their program reads ": <n>." alone: of other ways to say a number it takes 0.
    other = GREEN.replace("reference: 2. Effusion; Edema.", "reference: two. Effusion; Edema.")
    assert read_green(other)["significant"] == NONE | {"a": 1}


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot judge this.",
        GREEN[: GREEN.index("[Matched")],
        GREEN[: GREEN.index("3. No pneumothorax")],
        GREEN.replace("3. No pneumothorax", "Three. No pneumothorax"),
        GREEN.replace("[Clinically Significant Errors]", "[Errors]"),
        f"<think>{GREEN}",
    ],
)
def test_a_green_reply_that_is_cut_off_or_says_nothing_is_no_verdict_and_only_the_published_rule_takes_it_for_0(reply):
    assert reader("green")(reply) is None
    assert math.isnan(value("green", {"green": None}))
    assert value("green_as_published", {"green": None}) == 0
    assert math.isnan(value("green_as_published", {}))


def test_insignificant_errors_that_a_reply_does_not_tell_are_unknown_and_green_is_not():
    start, end = GREEN.index("[Clinically Insig"), GREEN.index("[Matched")
    evaluation = read_green(GREEN[:start] + GREEN[end:])
    assert green_score(evaluation) == 0.5
    assert math.isnan(value("green_insignificant", {"green": evaluation}))


def test_an_empty_report_matches_nothing_whatever_the_judge_says():
    assert value("green", {"green": read_green(GREEN)}, text=" \n ") == 0


@given(st.integers(0, 20), st.lists(st.integers(0, 5), min_size=6, max_size=6))
@QUICK
def test_green_is_in_0_to_1_and_falls_with_every_significant_error(matched, counts):
    def of(*numbers):
        return green_score({"matched": matched, "significant": dict(zip("abcdef", numbers, strict=True))})

    assert 0 <= of(*counts) <= 1
    assert of(counts[0] + 1, *counts[1:]) <= of(*counts)
    assert of(*[0] * 6) == (matched > 0)


# CheXprompt

CHEXPROMPT = (
    "Number of clinically significant errors by type: [(A, 1), (B, 0), (C, 2), (D, 0), (E, 0), (F, 0)]\n"
    "Number of clinically insignificant errors by type: [(A, 0), (B, 4), (C, 0), (D, 0), (E, 0), (F, 0)]"
)


def test_chexprompt_errors_are_summed_over_kinds_and_significance_by_hand():
    evaluation = read_chexprompt(CHEXPROMPT)
    verdicts = {"chexprompt": evaluation}
    assert [value(f"chexprompt_{which}", verdicts) for which in ("errors", "significant", "insignificant")] == [7, 3, 4]
    assert [value("chexprompt_errors@C", verdicts), value("chexprompt_errors@b", verdicts)] == [2, 4]
    assert value("chexprompt_errors", {"chexprompt": read_chexprompt(CHEXPROMPT.replace("1)", "0)"))}) == 6


def test_chexprompt_reads_round_brackets_and_leaves_out_what_is_explained():
    rounded = CHEXPROMPT.replace("[", "(").replace("]", ")")
    told = f"First I looked at (A, 9).\n{rounded}\nExplanation: (A, 5) would be too many."
    assert read_chexprompt(told) == read_chexprompt(CHEXPROMPT)


@pytest.mark.parametrize("reply", ["", "None.", CHEXPROMPT.partition("\n")[0], CHEXPROMPT.replace(", (F, 0)]", "]")])
def test_a_chexprompt_reply_without_all_twelve_counts_is_no_verdict(reply):
    assert read_chexprompt(reply) is None
    assert math.isnan(value("chexprompt_errors", {"chexprompt": None}))


def test_kinds_of_errors_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match="no category 'g'"):
        value("green_significant@g", {"green": read_green(GREEN)})


# CRIMSON


def crimson(reference=(), predicted=(), matched=(), attributes=()):
    """An evaluation: findings by significance, R1, R2, ... and P1, P2, ..., and what matches."""
    seen = [one.split("-") for one in matched]
    return {
        "reference_findings": [
            {"id": f"R{n}", "finding": "x", "clinical_significance": one} for n, one in enumerate(reference, 1)
        ],
        "predicted_findings": [
            {"id": f"P{n}", "finding": "x", "clinical_significance": one} for n, one in enumerate(predicted, 1)
        ],
        "matched_findings": [{"ref_id": ours, "pred_id": theirs} for ours, theirs in seen],
        "errors": {
            "false_findings": [
                f"P{n}" for n in range(1, len(predicted) + 1) if f"P{n}" not in [theirs for _, theirs in seen]
            ],
            "missing_findings": [
                f"R{n}" for n in range(1, len(reference) + 1) if f"R{n}" not in [ours for ours, _ in seen]
            ],
            "attribute_errors": [
                {"ref_id": name, "pred_id": "P1", "severity": severity, "error_types": ["location"]}
                for name, severity in attributes
            ],
        },
    }


URGENT, ACTIONABLE, MINOR, BENIGN = "urgent", "actionable_not_urgent", "not_actionable_not_urgent", "benign_expected"


@pytest.mark.parametrize(
    ("evaluation", "score"),
    [
        (crimson(), 1),  # normal beside normal
        (crimson([URGENT, MINOR], [URGENT, MINOR], ["R1-P1", "R2-P2"]), 1),
        (crimson([URGENT, ACTIONABLE]), 0),  # a normal report
        (crimson([URGENT, ACTIONABLE], [URGENT], ["R1-P1"]), 1 / 1.5),
        (crimson([URGENT], [URGENT, MINOR], ["R1-P1"]), 0.75),
        (crimson([URGENT], [URGENT], ["R1-P1"], [("R1", "significant")]), 1 / 1.5),
        (crimson([URGENT], [URGENT], ["R1-P1"], [("R1", "significant"), ("R1", "significant")]), 0.5),
        (crimson([URGENT], [URGENT], ["R1-P1"], [("R1", "negligible")]), 1),
        (crimson([URGENT], [URGENT], ["R1-P1"], [("R1", "odd")]), 0.8),
        (crimson([ACTIONABLE], [URGENT, URGENT]), -2 / 3),  # x = 2 - 0
        (crimson([ACTIONABLE], [ACTIONABLE, URGENT, URGENT], ["R1-P1"]), -1.5 / 2.5),
        (crimson([], [URGENT]), -0.5),  # invented beside normal
        (crimson([BENIGN]), 1),
        (crimson([BENIGN], [BENIGN]), 1),
        (crimson([BENIGN], [MINOR]), -0.25 / 1.25),
        (crimson(["strange"], ["strange"], ["R1-P1"]), 1),
        (crimson([URGENT], [URGENT, URGENT], ["R1-P1", "R1-P2"]), 1),  # one finding in two halves counts once
    ],
)
def test_crimson_by_hand(evaluation, score):
    assert crimson_score(evaluation) == pytest.approx(score)
    assert value("crimson", {"crimson": evaluation}) == pytest.approx(score)
    assert value("crimson_guided", {"crimson_guided": evaluation}) == pytest.approx(score)


def test_crimson_errors_are_counted_by_kind():
    verdicts = {"crimson": crimson([URGENT, MINOR], [MINOR, URGENT], ["R1-P2"], [("R1", "significant")] * 2)}
    counts = [value(f"crimson_error_count@{kind}", verdicts) for kind in ("false", "missing", "attribute")]
    assert counts == [1, 1, 2]
    with pytest.raises(UsageError, match="expected false, missing or attribute"):
        value("crimson_error_count@other", verdicts)


significances = st.sampled_from([URGENT, ACTIONABLE, MINOR, BENIGN])


@given(st.lists(significances, max_size=5), st.lists(significances, max_size=5), st.data())
@QUICK
def test_crimson_is_above_minus_1_and_at_most_1_and_does_not_rise_with_an_invention(reference, predicted, data):
    some = data.draw(st.integers(0, min(len(reference), len(predicted))))
    matched = [f"R{n}-P{n}" for n in range(1, some + 1)]
    score = crimson_score(crimson(reference, predicted, matched))
    assert -1 < score <= 1
    assert crimson_score(crimson(reference, [*predicted, URGENT], matched)) < score or score == 0
    same = [f"R{n}-P{n}" for n in range(1, len(reference) + 1)]
    assert crimson_score(crimson(reference, reference, same)) == pytest.approx(1)


def test_crimson_reads_fenced_and_slightly_broken_json():
    reply = """Here it is:
```json
{"reference_findings": [{"id": "R1", "finding": "5\\_mm nodule", "clinical_significance": "urgent"},],
 "predicted_findings": [], "matched_findings": [],
 "errors": {"false_findings": [], "missing_findings": ["R1"], "attribute_errors": []}}
```"""
    assert crimson_score(read_crimson(reply)) == 0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "{",
        '{"reference_findings": []}',
        '{"reference_findings": [{"finding": "x"}], "predicted_findings": [], "errors": {}}',
        '{"reference_findings": [], "predicted_findings": [], "errors": {"false_findings": [1]}}',
        '{"reference_findings": [], "predicted_findings": [], "errors": []}',
    ],
)
def test_a_crimson_reply_without_its_lists_is_no_verdict(reply):
    assert read_crimson(reply) is None
    assert math.isnan(value("crimson", {"crimson": None}))


# RadFact

LEFT, RIGHT, HALF = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 0.5)


def test_radfact_fractions_by_hand():
    phrases = [
        radfact.Phrase(True),
        radfact.Phrase(True, [LEFT], [LEFT]),
        radfact.Phrase(True, [LEFT], [RIGHT]),
        radfact.Phrase(False, [LEFT], [LEFT]),
    ]
    assert radfact.radfact_fractions(phrases) == radfact.Fractions(0.75, 1 / 3, 0.5)


def test_radfact_needs_more_than_half_of_a_phrases_boxes_covered():
    # Of LEFT exactly half is covered; of HALF all of it.
    assert radfact.radfact_fractions([radfact.Phrase(True, [LEFT], [HALF])]).grounding == 0
    assert radfact.radfact_fractions([radfact.Phrase(True, [LEFT], [(0.0, 0.0, 0.5, 0.51)])]).grounding == 1
    assert radfact.radfact_fractions([radfact.Phrase(True, [HALF], [LEFT])]).grounding == 1
    assert radfact.radfact_fractions([radfact.Phrase(True, [LEFT], [])]).spatial == 0
    assert radfact.radfact_fractions([radfact.Phrase(True, [(0.2, 0.2, 0.2, 0.2)], [LEFT])]).spatial == 0


def test_radfact_fractions_without_phrases_of_a_kind_are_undefined():
    assert all(map(math.isnan, vars(radfact.radfact_fractions([])).values()))
    only = radfact.radfact_fractions([radfact.Phrase(False, [LEFT], [LEFT])])
    assert (only.logical, only.spatial) == (0, 0)
    assert math.isnan(only.grounding)


def verdict(*entailed):
    said = [None if one is None else {"entailed": bool(one), "evidence": ["x"]} for one in entailed]
    return {"items": [f"phrase {n}" for n in range(len(said))], "verdicts": said}


def test_radfact_precision_and_recall_are_the_entailed_shares():
    verdicts = {"radfact_prediction": verdict(1, 0, 1, 1), "radfact_reference": verdict(1, 0)}
    assert value("radfact_precision", verdicts) == 0.75
    assert value("radfact_recall", verdicts) == 0.5


def test_radfact_of_an_empty_report_has_no_precision_and_a_recall_of_0():
    verdicts = {"radfact_prediction": verdict(), "radfact_reference": verdict(0, 0)}
    assert math.isnan(value("radfact_precision", verdicts, text=""))
    assert value("radfact_recall", verdicts, text="") == 0


def test_radfact_replies_that_cannot_be_read_are_no_verdict_and_not_entailed_by_the_published_rule_alone():
    verdicts = {"radfact_prediction": verdict(1, None)}
    assert math.isnan(value("radfact_precision", verdicts))
    assert value("radfact_precision_as_published", verdicts) == 0.5
    assert value("radfact_recall_as_published", {"radfact_reference": verdict(1, 1, None, 0)}) == 0.5
    assert math.isnan(value("radfact_precision_as_published", {"radfact_prediction": None}))
    assert value("judge_failures", verdicts) == 0.5


def rows(precisions, recalls):
    names = ["radfact_precision"] * len(precisions) + ["radfact_recall"] * len(recalls)
    numbers = np.array([*precisions, *recalls], float)
    case = np.r_[np.arange(len(precisions)), np.arange(len(recalls))]
    empty = np.full(len(names), "")
    return metrics.ScoreTable(case, np.array(names), empty, numbers, empty, {}, max(len(precisions), len(recalls)), {})


def test_radfact_f1_is_of_the_means_over_reports_that_have_phrases():
    # Precision (1 + 0.5) / 2, recall (0.5 + 0 + 1) / 3.
    precisions, recalls = [1, 0.5, math.nan], [0.5, 0, 1]
    expected = 2 * 0.75 * 0.5 / 1.25
    assert radfact.radfact_f1(precisions, recalls) == pytest.approx(expected)
    f1 = metrics.get("radfact_f1")
    assert f1.function(rows(precisions, recalls)) == pytest.approx(expected)
    assert f1.function(rows(precisions[::-1], recalls[::-1])) == pytest.approx(expected)


def test_radfact_f1_at_its_ends():
    assert radfact.radfact_f1([1, 1], [1, 1]) == 1
    assert radfact.radfact_f1([0], [0]) == 0
    assert radfact.radfact_f1([math.nan], [0]) == 0
    assert math.isnan(radfact.radfact_f1([], []))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
@QUICK
def test_radfact_f1_is_the_harmonic_mean_of_the_nan_means(counts):
    # A report of m phrases of which n are entailed, on both sides.
    shares = [min(n, m) / m if m else math.nan for n, m in counts]
    known = [one for one in shares if not math.isnan(one)]
    expected = sum(known) / len(known) if known else math.nan
    assert radfact.radfact_f1(shares, shares) == pytest.approx(expected, nan_ok=True)


def test_radfact_reads_phrases_and_entailment():
    phrases = '{"sentence_list": [{"orig": "A or b.", "new": ["No a.", " No b. ", ""]}, {"orig": "CT.", "new": []}]}'
    assert radfact.read_phrases(f"```json\n{phrases}\n```") == ["No a.", "No b."]
    assert radfact.read_phrases('{"sentence_list": []}') == []
    found = radfact.read_entailment('{"status": "entailment", "evidence": ["No a."]}')
    assert found == {"entailed": True, "evidence": ["No a."]}
    assert radfact.read_entailment('{"status": "contradiction", "evidence": ["A."]}')["entailed"] is False
    assert radfact.read_entailment('{"status": "not_entailment"}') == {"entailed": False, "evidence": []}


@pytest.mark.parametrize(
    "reply",
    ["", "entailment", '{"status": "maybe", "evidence": []}', '{"status": "entailment", "evidence": []}', "{" * 3000],
)
def test_radfact_takes_an_entailment_without_evidence_and_anything_else_for_no_verdict(reply):
    assert radfact.read_entailment(reply) is None
    assert radfact.read_phrases(reply) is None


# Corrections and hallucinations


def test_corrections_are_counted_by_severity():
    reply = (
        '{"corrections": [{"line": 0, "text": "[delete]", "severity": "urgent"}, '
        '{"line": null, "text": "Effusion.", "severity": "Not actionable"}, '
        '{"line": 3, "text": "Left.", "severity": "urgent"}]}'
    )
    found = read_corrections(reply)
    assert [one["line"] for one in found] == [0, None, 3]
    assert value("corrections", {"corrections": found}) == 3
    assert value("corrections@urgent", {"corrections": found}) == 2
    assert value("corrections@not_actionable", {"corrections": found}) == 1
    assert value("corrections", {"corrections": read_corrections('{"corrections": []}')}) == 0
    with pytest.raises(UsageError, match="severity of corrections is invalid"):
        value("corrections@urgently", {"corrections": found})


@pytest.mark.parametrize("reply", ["", "[]", '{"corrections": ["x"]}', '{"corrections": [{"severity": "bad"}]}'])
def test_corrections_without_one_of_the_severities_are_no_verdict(reply):
    assert read_corrections(reply) is None


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("Catastrophic Hallucination", "catastrophic"),
        ("It is no critical hallucination but an **Attribute Hallucinations**.", "attribute"),
        ("prompt-induced hallucination", "prompt_induced"),
        ("Confusion prompt induced hallucinations", "prompt_induced"),
        ("Correct Statements", "correct"),
        ("Correct.", None),
    ],
)
def test_kinds_of_hallucinations_are_read_by_their_names(reply, kind):
    assert read_hallucination(reply) == kind


def test_medihall_is_the_mean_over_sentences_of_values_that_are_given():
    verdicts = {"medihall": {"items": ["a", "b", "c", "d"], "verdicts": ["correct", "correct", "critical", "minor"]}}
    assert value("medihall@0/1/2/3/4/5", verdicts) == (5 + 5 + 1 + 4) / 4
    assert value("hallucinations@critical", verdicts) == 0.25
    assert value("hallucination_free", verdicts) == 0.5
    assert value("medihall@0/1/2/3/4/5", {"medihall": "attribute"}, kind="open") == 2
    assert math.isnan(value("hallucination_free", {"medihall": {"items": ["a"], "verdicts": [None]}}))
    assert math.isnan(value("hallucination_free", {"medihall": {"items": [], "verdicts": []}}))


@pytest.mark.parametrize("given", ["1/2/3", "a/b/c/d/e/f", "0/1/2/3/4/inf"])
def test_medihall_wants_six_values_from_the_paper(given):
    with pytest.raises(UsageError, match="as numbers with slashes"):
        value(f"medihall@{given}", {"medihall": "correct"})
    with pytest.raises(UsageError, match="kind of hallucinations is invalid"):
        value("hallucinations@correct", {"medihall": "correct"})


# All of them


def asking():
    return [name for name in metrics.available("answer") if topics(name)]


def topics(name):
    """The questions that a metric asks a judge whatever its parameter."""
    needs = metrics.available()[name].requires
    return [need.topic for need in (() if callable(needs) else needs) if need.kind == "verdict" and need.topic != ALL]


def test_metrics_that_ask_a_judge_are_undefined_of_other_questions_without_a_reference_and_without_a_verdict():
    suffix = {
        "crimson_error_count": "@false",
        "medihall": "@0/1/2/3/4/5",
        "hallucinations": "@minor",
        "stance_share": "@agree",
    }
    for name in asking():
        full = name + suffix.get(name, "")
        every = {one: {} for one in topics(name)}
        for found in (value(full, {}), value(full, every, kind="choice"), value(full, every, reference=" ")):
            assert all(map(math.isnan, found.values() if isinstance(found, dict) else [found])), name


def test_every_question_that_a_metric_asks_is_there_and_its_reader_too():
    from medimg_eval.tasks.questions.answers import judging_question
    from medimg_eval.tasks.questions.judge_questions import JudgeQuestion

    for name in asking():
        questions = {one: judging_question(one) for one in topics(name)}
        assert [one.name for one in JudgeQuestion.all_of(questions)] == list(questions)


# Readers


def test_objects_are_found_among_words_and_the_first_of_equal_keys_counts():
    assert [dict(one) for one in objects('x {"a": 1, "a": 2} y {"b": {"c": 3}} {"d"')] == [{"a": 1}, {"b": {"c": 3}}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n ", []),
        ("1.Stable.2.No effusion", ["Stable.", "No effusion"]),
        ("1. A 3.5 cm mass. 2. No  effusion.\n- Heart\nnormal", ["A 3.5 cm mass.", "No effusion.", "Heart", "normal"]),
        ("肺野清晰。心脏正常。", ["肺野清晰。", "心脏正常。"]),
    ],
)
def test_sentences_of_reports(text, expected):
    assert sentences(text) == expected


def test_a_reader_that_is_not_there_is_named_and_a_second_of_one_name_refused():
    with pytest.raises(UsageError, match="got 'gren'"):
        reader("gren")
    with pytest.raises(ValueError, match="one reader named 'green'"):
        verdict_reader("green")(lambda text: text)


# Docs


def test_the_docs_give_each_metrics_definition_and_their_examples_run():
    text = (Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "judges.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("| `")]
    for name in [*asking(), "radfact_f1", "radfact_f1_as_published"]:
        row = next(line for line in table if re.match(rf"\| `{name}[`@]", line))
        assert metrics.get(name).definition.rstrip(".") in row
    scope = {"reply": GREEN}
    for source in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(source, scope)  # noqa: S102 - our own page
    assert scope["score"] == 0.5
    assert reader("two_scores")("facts 3 style 4") == {"facts": 3, "style": 4}
    assert reader("two_scores")("3") is None

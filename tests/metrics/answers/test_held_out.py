"""Outputs in the style of real models, the first set by who had not seen the rules; and how long reading takes."""

import json
import time
from pathlib import Path

import pytest

from medimg_eval.metrics.answers.extraction import extract, extract_choice, extract_yes_no

BLIND = json.loads(Path(__file__).with_name("answers_blind.json").read_text(encoding="utf-8"))
FINDINGS = {"A": "Consolidation", "B": "Pleural effusion", "C": "Pneumothorax", "D": "Cardiomegaly"}
REASONING = (
    "There is blunting of the costophrenic angle. Consolidation would show air bronchograms, which are not seen here. "
    "Option A is therefore less likely. The heart is of normal size, so cardiomegaly (D) can be excluded. "
)


@pytest.mark.parametrize("number", range(1, 6))
def test_the_outputs_of_a_set_give_what_their_writer_expects(number):
    misses = [
        (family, output, expected, found)
        for group, family, options, expected, output in BLIND["choice"]
        if group == number and (found := extract_choice(output, BLIND["options"][options])).letter != expected
    ]
    assert not misses


def test_the_yes_and_no_of_the_sets_are_what_their_writer_expects():
    misses = [
        (output, expected, found)
        for _, expected, output in BLIND["yes_no"]
        if (found := extract_yes_no(output)).value != expected
    ]
    assert not misses


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("The lungs are clear. No nodule is seen.", "no"),
        ("The image shows no fracture.", "no"),
        ("There is no doubt that a fracture is present.", "yes"),
        ("A fracture is seen.", "yes"),
    ],
)
def test_a_statement_says_whether_something_is_there(output, value):
    assert extract_yes_no(output).value == value


@pytest.mark.parametrize("tail", ["The answer is C.", "**C**", "\\boxed{C}", "<answer>C</answer>", "C. Pneumothorax"])
def test_the_end_of_a_long_text_decides_as_that_of_a_short_one_does(tail):
    for times in (1, 4, 20):
        assert extract_choice(f"{REASONING * times}\n\n{tail}", FINDINGS).letter == "C"


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("Reply C.\n\nThe answer is A. Wait, actually it is B.", "B"),
        ("The answer is A.\n\nQuestion: What else?\nThe answer is D.", "A"),
        ("I am not sure whether the answer is B.", None),
        ("The answer is A or B.", None),
        ("The answer is E.", None),
        ("The answer is not A, but C.", "C"),
    ],
)
def test_what_takes_an_answer_back_counts_at_the_end_of_a_long_text_too(output, letter):
    quiet = "The lungs are well expanded and the bones are intact. " * 12
    assert extract_choice(quiet + output, FINDINGS).letter == letter


@pytest.mark.parametrize("word", ["None", "none.", "**None**", "<answer>None</answer>"])
def test_none_answers_an_open_question(word):
    assert extract("open", word, {}).value.strip("*.").lower() == "none"
    assert extract("open", word, {}).reason == ""


@pytest.mark.parametrize("text", ["", "null", "nan", "N/A", "..."])
def test_what_says_nothing_answers_no_open_question(text):
    assert extract("open", text, {}).reason == "empty"


def _fastest(output, kind="choice"):
    """Returns the CPU seconds of the fastest of three, which other processes disturb least."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        extract(kind, output, FINDINGS, more={})
        spent.append(time.process_time() - start)
    return min(spent)


@pytest.mark.parametrize("tail", ["The answer is C.", "**C**", "\\boxed{C}"])
def test_five_thousand_characters_with_an_answer_at_the_end_take_little_time(tail):
    assert _fastest(REASONING * 20 + "\n\n" + tail) < 0.006  # some 0.0003 on an idle core


@pytest.mark.parametrize(
    "hostile",
    [
        "<a" * 5_000,
        "{" * 20_000,
        "1234567890" * 2_000,
        "(" * 10_000,
        "\\boxed{" * 3_000,
        '{"answer":' * 3_000,
        "the answer is " * 2_000,
        "no, wait A " * 2_000,
        "A, " * 6_000,
        "pneumothorax or " * 1_000,
        "answer(" * 4_000,
        "please " * 3_000,
        "all but A " * 2_000,
        "not A but " * 2_000,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("kind", ["choice", "choices", "yes_no", "number", "open", "box", "regions"])
def test_hostile_outputs_take_little_time(hostile, kind):
    assert _fastest(hostile, kind) < 0.25  # under 0.05 on an idle core

"""Answers of every kind out of outputs: what holds for any text, and hand-made outputs of the kinds beside choices."""

import string
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import rule_registry as registry
from medimg_eval.metrics.answers.extraction import (
    extract,
    extract_box,
    extract_choice,
    extract_choices,
    extract_number,
    extract_open,
    extract_point,
    extract_yes_no,
)
from medimg_eval.metrics.answers.rule_registry import AnswerRule, answer_rule, rules
from medimg_eval.metrics.registry import available

FINDING = {"A": "Pneumonia", "B": "Pleural effusion", "C": "Pneumothorax", "D": "Normal"}
COUNTED = {"A": "1", "B": "2", "C": "3", "D": "4"}
ANIMALS = {"A": "cat", "B": "dog", "C": "bird", "D": "fish"}
DOCS = Path(__file__).parents[3] / "docs" / "definitions" / "extraction.md"

texts = st.text(max_size=200) | st.lists(
    st.sampled_from(
        ["A", "B", "(C)", "answer", "is", "the", ":", "not", "or", "\n", "<think>", "</think>", "\\boxed{", "}", "wait"]
    )
).map(" ".join)
kinds = st.sampled_from(
    ["choice", "choices", "yes_no", "open", "number", "box", "boxes3d", "point", "regions", "grades"]
)

YES_NO = [
    ("Yes", "yes"),
    ("no", "no"),
    ("**Yes**", "yes"),
    ("Yes, there is a nodule.", "yes"),
    ("No, there is no nodule.", "no"),
    ("There is a nodule.", "yes"),
    ("There is no nodule.", "no"),
    ("The study is normal.", None),
    ("nodule", None),
    ("yes or no", None),
    ("Yes/No", None),
    ("I cannot determine this.", None),
    ("I cannot answer yes or no.", None),
    ("Not present", "no"),
    ("Absent.", "no"),
    ("Present", "yes"),
    ("No evidence of pneumonia.", "no"),
    ("The answer is no.", "no"),
    ("<think>no</think>yes", "yes"),
    ("<think>yes", None),
    ("\\boxed{No}", "no"),
    ('{"answer": "yes"}', "yes"),
    ("<answer>no</answer>", "no"),
    ("是", "yes"),
    ("否", "no"),
    ("有", "yes"),
    ("没有", "no"),
    ("不是", "no"),
    ("是的，有肺炎。", "yes"),
    ("没有肺炎。", "no"),
    ("无法确定", None),
    ("是否", None),
    ("네", "yes"),
    ("아니오", "no"),
    ("はい", "yes"),
    ("いいえ", "no"),
    ("نعم", "yes"),
    ("لا", "no"),
    ("Sí, hay", "yes"),
    ("oui", "yes"),
    ("Non.", "no"),
    ("não", "no"),
    ("Yes. No, wait, the answer is no.", "no"),
    ("I notice a mass.", None),
    ("It could be yes or no. The answer is yes.", "yes"),
    ("The diagnosis is unknown.", None),
    ("No idea.", None),
    ("Yes, no doubt about it.", "yes"),
    ("No doubt, yes.", "yes"),
    ("no image provided", None),
    ("Definitely not.", "no"),
    ("I don't think so.", "no"),
    ("y", "yes"),
    ("N", "no"),
    ("The finding is not present.", "no"),
    ("Maybe", None),
    ("Is there an effusion? Yes.", "yes"),
    ("non-contrast CT", None),
    ("North", None),
    ("Yesterday", None),
    ("Based on the image, yes, there is cardiomegaly.", "yes"),
    ("Both", None),
    ("Error 500", None),
    ("", None),
    ("No\n\nExplanation: yes would need a mass.", "no"),
    ("There is no fracture, so the answer is No", "no"),
]


@pytest.mark.parametrize(("output", "expected"), YES_NO)
def test_yes_and_no_must_stand_alone(output, expected):
    assert extract_yes_no(output).value == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("A, C", ("A", "C")),
        ("DBA", ("A", "B", "D")),
        ("A and C are correct", ("A", "C")),
        ('{"answer": ["B", "D"]}', ("B", "D")),
        ("Answer: A, B, D.", ("A", "B", "D")),
        ("A. cat\nC. bird", ("A", "C")),
        ("cat and bird", ("A", "C")),
        ("A is wrong. B and C are right.", ("B", "C")),
        ("<think>A</think> b, c", ("B", "C")),
        ("A. cat\nB. dog\nC. bird\nD. fish", None),
        ("", None),
        ("I cannot say.", None),
    ],
)
def test_several_choices_come_in_the_order_of_the_options(output, expected):
    assert extract_choices(output, ANIMALS).value == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("12", 12.0),
        ("The volume is 35.2 mm^3", 35.2),
        ("about 1,234.5 ml", 1234.5),
        ("three", 3.0),
        ("\\boxed{42}", 42.0),
        ("-4.5", -4.5),
        ("1e-3", 0.001),
        ("Answer: 12 mm", 12.0),
        ("The 2 lesions have a total volume of 35.2 mL", 35.2),
        ("<think>12</think>13", 13.0),
        ("3-5", None),
        ("There are 2 or 3", None),
        ("12 mm and 13 mm", None),
        ("unknown", None),
        ("T2-weighted", None),
    ],
)
def test_a_number_is_taken_only_where_there_is_one(output, expected):
    assert extract_number(output).value == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("(10,20),(30,40)", (10, 20, 30, 40)),
        ("<box>[[1,2,3,4]]</box>", (1, 2, 3, 4)),
        ("<|box_start|>(1,2),(3,4)<|box_end|>", (1, 2, 3, 4)),
        ('```json\n[{"bbox_2d": [10, 20, 30, 40], "label": "mass"}]\n```', (10, 20, 30, 40)),
        ('{"x1": 1, "y1": 2, "x2": 3, "y2": 4}', (1, 2, 3, 4)),
        ("Image 2: [10, 20, 30, 40]", (10, 20, 30, 40)),
        ("10 20 30 40", (10, 20, 30, 40)),
        ("<think>[9, 9, 9, 9]</think>[1, 2, 3, 4]", (1, 2, 3, 4)),
        ("three numbers: 1, 2, 3", None),
        ("I see nothing.", None),
    ],
)
def test_a_box_is_the_first_four_numbers_that_stand_together(output, expected):
    assert extract_box(output).value == expected


def test_coordinates_are_turned_into_pixels_by_their_convention():
    assert extract_box("[500, 250, 1000, 1000]", {"convention": "thousand", "size": (200, 400)}).value == (
        100,
        100,
        200,
        400,
    )
    assert extract_box("[0.5, 0.25, 1, 1]", {"convention": "unit", "size": 336}).value == (168, 84, 336, 336)
    assert extract_point("(50, 25)", {"convention": "percent", "size": (200, 400)}).value == (100, 100)
    assert extract_point("[10, 20, 30, 40]").value == (20, 30)
    with pytest.raises(UsageError, match="convention of coordinates to be one of pixels, thousand, percent, unit"):
        extract_box("[1, 2, 3, 4]", {"convention": "inches"})
    with pytest.raises(UsageError, match="need more\\['size'\\]"):
        extract_box("[1, 2, 3, 4]", {"convention": "unit"})


def test_a_text_is_what_follows_the_final_answer_or_all_but_the_thinking():
    assert extract_open("<think>cyst?</think> A mass.").value == "A mass."
    assert extract_open("The margin is sharp.\nFinal answer: a cyst").value == "a cyst"
    assert extract_open("<answer>a cyst</answer>").value == "a cyst"
    assert extract_open("答案是肺炎。").value == "肺炎。"
    assert extract_open("").value is None


def test_forms_are_read_from_json_and_from_lists():
    assert extract("regions", "Region ID: 1; Type: irc; Region ID: 2; Type: choroid", {}).value == {
        "1": "irc",
        "2": "choroid",
    }
    assert extract("regions", '{"1": "irc"}', {}).value == {"1": "irc"}
    assert extract("grades", 'Grades: {"MOAKS": {"BML": 2}}', {}).value == {"MOAKS": {"BML": 2}}
    assert extract("grades", "{'BML': 2}", {}).value == {"BML": 2}
    assert extract("boxes3d", "(1, 2, 3, 4, 5, 6)", {}).value == (1, 2, 3, 4, 5, 6)
    assert extract("boxes3d", '{"femur": [1, 2, 3, 4, 5, 6]}', {}).value == {"femur": [1, 2, 3, 4, 5, 6]}
    assert extract("grades", "I cannot tell.", {}).reason == "refused"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "empty"),
        ("Error: timeout", "empty"),
        ("I'm sorry, I can't help.", "refused"),
        ("A or B", "unparsed"),
        ("B", ""),
    ],
)
def test_the_reason_says_why_there_is_no_answer(output, reason):
    assert extract("choice", output, FINDING).reason == reason


def test_a_published_rule_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))

    @answer_rule("first letter", source="nobody")
    def first(output, options, question, more):
        """The first letter of the output."""
        return output[:1] or None

    assert rules()["first letter"].definition == "The first letter of the output."
    assert extract("choice", "Cat", FINDING, rule="first letter").value == "C"
    assert extract("choice", "", FINDING, rule="first letter").reason == "empty"
    with pytest.raises(UsageError, match="got 'first leter'; did you mean 'first letter'"):
        extract("choice", "A", FINDING, rule="first leter")
    with pytest.raises(ValueError, match="one rule of extraction named 'first letter'"):
        answer_rule("first letter", source="another")(lambda output, options, question, more: None)


def test_the_page_names_every_published_rule():
    available()
    page = DOCS.read_text()
    for name, rule in rules().items():
        if rule.function.__module__.startswith("medimg_eval."):
            assert f"| `{name}` | {rule.definition.removesuffix('.')} | {rule.source} |" in page


@settings(deadline=None, max_examples=30)
@given(kinds, texts)
def test_no_text_raises_and_there_is_a_reason_where_there_is_no_value(kind, output):
    found = extract(kind, output, FINDING)
    assert (found.value is None) == bool(found.reason)
    assert found.rule


@settings(deadline=None, max_examples=30)
@given(texts, st.permutations("ABCD"))
def test_the_order_of_options_is_no_matter_and_the_letter_is_one_of_them(output, order):
    options = {letter: FINDING[letter] for letter in order}
    found = extract_choice(output, options)
    assert found == extract_choice(output, FINDING)
    assert found.letter is None or found.letter in options


@settings(deadline=None, max_examples=20)
@given(st.permutations("ABCD"), st.sampled_from(list(FINDING.values())))
def test_permuting_the_texts_permutes_the_answer(order, text):
    options = dict(zip(order, FINDING.values(), strict=True))
    for output in (text, f"The image shows {text.lower()}.", f"Answer: {text}"):
        letter = extract_choice(output, options).letter
        assert letter is not None
        assert options[letter] == text


@settings(deadline=None, max_examples=30)
@given(texts, texts.filter(lambda text: "think" not in text.lower()))
def test_thinking_before_an_answer_never_changes_it(output, thought):
    plain = extract_choice(output, FINDING)
    if "think" not in output.lower():
        assert extract_choice(f"<think>{thought}</think>{output}", FINDING).letter == plain.letter
        assert extract_choice(f"{thought}</think>{output}", FINDING).letter == plain.letter


@pytest.mark.parametrize("options", [FINDING, COUNTED])
def test_gibberish_scores_under_3_per_cent(options):
    draw = np.random.default_rng(0)
    words = [
        "zebra",
        "cloud",
        "table",
        "river",
        "stone",
        "light",
        "paper",
        "green",
        "the",
        "of",
        "and",
        "lung",
        "scan",
        "image",
    ]
    letters, printable = list(string.ascii_lowercase), list(string.printable)
    makers = (
        lambda: " ".join(draw.choice(words, draw.integers(1, 30))),
        lambda: " ".join("".join(draw.choice(letters, draw.integers(1, 9))) for _ in range(12)),
        lambda: "".join(draw.choice(printable, draw.integers(1, 80))),
        lambda: draw.bytes(draw.integers(1, 60)).decode("utf-8", "replace"),
    )
    for make in makers:
        right = sum(extract_choice(make(), options).letter == draw.choice(list("ABCD")) for _ in range(500))
        assert right < 15


def test_long_outputs_are_read_at_their_beginning_and_end():
    filler = "The lung fields are clear and the heart is of normal size. " * 2000
    assert extract_choice(f"{filler}\n\nAnswer: C", FINDING).letter == "C"
    assert extract_choice(f"<think>{filler} Answer: A</think>{filler} Answer: C", FINDING).letter == "C"
    for hostile in (
        "(" * 20_000,
        "A " * 20_000,
        "\\boxed{" * 5_000,
        "<answer>" * 5_000,
        "{" * 20_000,
        "- [ ] A\n" * 5_000,
    ):
        extract_choice(hostile, FINDING)


TOKENS = (
    *(
        "<|im_end|>",
        "</s>",
        "<|eot_id|>",
        "<end_of_turn>",
        "<s>",
        "[/INST]",
        "<|endoftext|>",
        "<EOS>",
        "[EOS]",
        "<eod>",
    ),
    *(
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<end_of_utterance>",
        "<turn|>",
        "</assistant>",
        "[SEP]",
        "<eos_token>",
    ),
)


@pytest.mark.parametrize("token", TOKENS)
def test_special_tokens_that_a_server_left_go_before_an_answer_is_read(token):
    options = {"A": "Cardiomegaly", "B": "Normal"}
    for before, after in (("", token), (token, ""), (token, f"\n{token}{token}\n"), ("", f" {token}")):
        assert extract("choice", f"{before}B{after}", options).value == "B"
        assert extract("choice", f"{before}Normal{after}", options).value == "B"
        assert extract("yes_no", f"{before}No{after}", {}).value == "no"
        assert extract("number", f"{before}12{after}", {}).value == 12
        assert extract("open", f"{before}pleural effusion{after}", {}).value == "pleural effusion"
        assert extract("report", f"{before}No effusion [2 views].{after}", {}).value == "No effusion [2 views]."


def test_a_published_rule_reads_a_reply_without_special_tokens_at_its_ends_as_it_is():
    given = []
    rule = AnswerRule("mine", lambda output, *_: given.append(output), "me", "Mine.")
    with patch("medimg_eval.metrics.answers.extraction.rule_named", lambda _: rule):
        for output in (" B \n", "<think>x</think>B</s>\n", "<s> a </s> b"):
            extract("choice", output, {}, rule="mine")
    assert given == [" B \n", "<think>x</think>B", "a </s> b"]

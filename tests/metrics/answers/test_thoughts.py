"""Thinking parted from answers: a probe set of the forms in which families of models write it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.answers import split_thought
from medimg_eval.metrics.answers.cleaning import visible

# text, answer, thought, rule, cut
PROBES = [
    # closed blocks
    ("<think>It is large.</think>B", "B", "It is large.", "T3", False),
    ("<think>\n\n</think>\n\nB", "\n\nB", "", "T3", False),  # hybrid models with thinking switched off
    ("<THINK>one</THINK>B", "B", "one", "T3", False),
    ("<thinking>one</thinking>B", "B", "one", "T3", False),
    ("<seed:think>one</seed:think>B", "B", "one", "T3", False),
    ("[THINK]one[/THINK]B", "B", "one", "T3", False),
    ("◁think▷one◁/think▷B", "B", "one", "T3", False),
    ("<unused94>thought\none<unused95>B", "B", "thought\none", "T3", False),
    ("<|begin_of_thought|>one<|end_of_thought|>B", "B", "one", "T3", False),
    ("<think>one</think>Well, <think>two</think>B", "Well, B", "one\ntwo", "T3", False),
    ('<think lang="en">one</think>B', "B", "one", "T3", False),
    # nested: all up to the last closing mark is thinking
    ("<think>a<think>b</think>c</think>B", "B", "a<think>b\nc", "T3", False),
    # a template wrote the opening mark
    ("It is large.</think>B", "B", "It is large.", "T4", False),
    ("one</think>two</think>B", "B", "one\ntwo", "T4", False),
    ("</think>B", "B", "", "T4", False),
    # cut off within the thought
    ("<think>It is A or", "", "It is A or", "T5", True),
    ("So: <think>It is A or", "So: ", "It is A or", "T5", True),
    ("<think>", "", "", "T5", True),
    ("<think>it is <answer>B</answer>", "<answer>B</answer>", "it is", "T5", True),
    # harmony
    (
        "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>B",
        *("B", "one", "T3", False),
    ),
    ("<|channel|>analysis<|message|>It is A", "", "It is A", "T5", True),
    ("<|channel|>final<|message|>B", "B", None, "T6", False),
    # headed sections
    ("## Thinking\nIt is A.\n## Answer\nB", "## Answer\nB", "It is A.", "T3", False),
    ("## Thinking\nIt is A.", "", "It is A.", "T5", True),
    # nothing to part
    ("B", "B", None, "T6", False),
    ("", "", None, "T6", False),
    ("I think it is B", "I think it is B", None, "T6", False),
    ("x < 3 and [ground glass]", "x < 3 and [ground glass]", None, "T6", False),
    # marks that are spoken of
    ("The mark `<think>` opens a thought. B", "The mark `<think>` opens a thought. B", None, "T6", False),
    ('It ends with "</think>", so B', 'It ends with "</think>", so B', None, "T6", False),
]


@pytest.mark.parametrize(("text", "answer", "thought", "rule", "cut"), PROBES)
def test_thinking_is_parted_as_each_family_writes_it(text, answer, thought, rule, cut):
    assert split_thought(text) == (answer, thought, rule, cut)


def test_what_a_server_sends_apart_comes_first_and_tags_beside_it_still_go():
    assert split_thought("B", " It is large. ") == ("B", "It is large.", "T1", False)
    assert split_thought("<think>two</think>B", "one") == ("B", "one", "T1", False)


@settings(deadline=None)
@given(st.text("AB <>/think`[]", max_size=40))
def test_no_mark_of_thinking_is_left_in_an_answer_and_what_is_shown_holds_no_more(text):
    parted = split_thought(text)
    assert parted.rule != "T6" or parted.answer == text
    assert len(visible(text)) <= max(len(parted.answer), 1)


@settings(deadline=None)
@given(st.text("ab .\n", max_size=20), st.text("ab .\n", max_size=20))
def test_a_closed_block_gives_back_what_was_put_in(thought, answer):
    assert split_thought(f"<think>{thought}</think>{answer}") == (answer, thought.strip(), "T3", False)

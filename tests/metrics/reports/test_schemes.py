"""Labelling schemes: what is asked, and how replies are read, as fixed and as published."""

import json
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.reports import LabelScheme, Reading
from tests.helpers.authors import load_functions, require_clone

VALUES = {1: "stated", 2: "denied", 0: "left open", -1: "not mentioned"}
STATES = {"positive": 1, "negative": 2, "uncertain": 0, "blank": -1}
TWO = {"findings": {"Edema": "", "Fracture": "a broken bone"}, "values": VALUES, "states": STATES}
ASKED = {"findings": {"Edema": "Is there an edema?"}, "values": ["yes", "no", "uncertain"], "ask": "each"}
ASKED_STATES = {"positive": "yes", "negative": "no", "uncertain": "uncertain"}


def scheme(**more):
    return LabelScheme.of({**TWO, **more})


def read(made, reply, report="", topic=""):
    return {name: reading.value for name, reading in made.read(topic, reply, report).items()}


def test_a_prompt_names_findings_values_language_examples_and_the_report_last():
    example = {"report": "Edema.", "labels": {"Edema": 1, "Fracture": -1}}
    text = scheme(language="Danish", examples=[example]).prompt("", "Intet brud.")
    for part in ("- Edema\n", "- Fracture: a broken bone", "0 = left open", "one of 1, 2, 0, -1", "in Danish"):
        assert part in text
    assert text.index('Reply: {"Edema": 1, "Fracture": -1}') < text.index("<<<Intet brud.>>>")
    assert text.endswith("Report: <<<Intet brud.>>>")
    assert scheme(instruction="Nur {findings} als {values}").prompt("", "x").startswith("Nur - Edema")


def test_a_question_of_its_own_is_asked_for_every_finding():
    made = LabelScheme.of({**ASKED, "findings": {"Edema": "Is there an edema?", "Rib": ""}})
    assert made.topics() == ["Edema", "Rib"]
    assert "Question: Is there an edema?" in made.prompt("Edema", "x")
    assert "Question: Does the report state Rib?" in made.prompt("Rib", "x")
    assert "Rib" not in made.prompt("Edema", "x")


@pytest.mark.parametrize(
    ("reply", "edema", "fracture"),
    [
        ('{"Edema": 1, "Fracture": 2}', "1", "2"),
        ('<think>{"Edema": 2}</think>```json\n{"Edema": "1", "fracture ": 0.0}\n```', "1", "0"),
        ("{'Edema': 1, 'Fracture': -1}", "1", "-1"),
        ('{"Edema": 7, "Fracture": 2}', "", "2"),
        ('{"Edema": null, "Fracture": 2, "Rib": 1}', "", "2"),
        ('{"Edema": 1}', "1", ""),
        ('{"Edema": [1], "Fracture": true}', "", ""),
        ("no JSON at all", "", ""),
        ("", "", ""),
    ],
)
def test_each_finding_is_read_by_itself_and_what_is_not_read_stays_open(reply, edema, fracture):
    assert read(scheme(), reply) == {"Edema": edema, "Fracture": fracture}


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("Yes", "yes"),
        ("**no**.", "no"),
        ("The report says: yes, edema is there", "yes"),
        ('{"value": "Uncertain"}', "uncertain"),
        ('{"answer": "no"}', "no"),
        ("yes or no", ""),
        ("I cannot say", ""),
        ("nobody knows", ""),
        ("", ""),
    ],
)
def test_the_reply_to_one_question(reply, value):
    assert read(LabelScheme.of(ASKED), reply, topic="Edema") == {"Edema": value}


def test_a_positive_value_without_words_of_the_report_is_taken_back():
    made = scheme(evidence=True)
    assert "evidence" in made.prompt("", "x")
    reply = json.dumps(
        {"Edema": {"value": 1, "evidence": "Mild  EDEMA"}, "Fracture": {"value": 1, "evidence": "broken"}}
    )
    found = made.read("", reply, "There is mild edema.")
    assert found["Edema"] == Reading("1", "Mild  EDEMA")
    assert found["Fracture"].value == "-1"
    assert "does not stand in the report" in found["Fracture"].problem
    assert made.read("", '{"Edema": 1, "Fracture": 2}', "edema")["Edema"].problem.endswith("it gives no evidence")
    assert read(made, '{"Edema": 2, "Fracture": {"value": 0}}') == {"Edema": "2", "Fracture": "0"}


def test_states_are_those_of_metrics_and_none_where_a_finding_was_not_read():
    made = scheme()
    assert made.states_of(made.read("", '{"Edema": 1, "Fracture": 0}', "")) == {"Edema": 1, "Fracture": 3}
    assert made.states_of(made.read("", '{"Edema": 2, "Fracture": -1}', "")) == {"Edema": 2, "Fracture": 0}
    assert made.states_of(made.read("", '{"Edema": 1}', "")) is None
    assert made.taxonomy.labels == ("Edema", "Fracture")


def test_grades_are_values_without_states():
    made = LabelScheme.of({"findings": ["Stenosis"], "values": ["none", "mild", "severe"]})
    assert read(made, '{"stenosis": "Severe"}') == {"Stenosis": "severe"}
    assert made.positive == ()
    assert made.states_of(made.read("", '{"Stenosis": "mild"}', "")) is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({**TWO, "finding": 1}, "no key 'finding'"),
        ({"findings": ["A"], "values": [1]}, "at least two values"),
        ({"values": [1, 2]}, "got 0 findings"),
        ({**TWO, "states": {"positive": 9}}, "names the value '9'"),
        ({**TWO, "states": {"present": 1}}, "no state 'present'"),
        ({**TWO, "states": {"positive": 1}}, "leave out its value '2'"),
        ({**TWO, "ask": "all"}, "`ask`"),
        ({**TWO, "rule": "own"}, "`rule`"),
        ({"findings": ["A"], "values": [0, 1], "evidence": True}, "say by `states`"),
        ({"findings": ["A"], "values": [0, 1], "rule": "rate"}, "name both in `states`"),
        ({"findings": ["A", "A"], "values": [0, 1]}, "once each"),
        ({**TWO, "examples": [{"report": "x"}]}, "a report and labels"),
        ({**TWO, "examples": [{"report": "x", "labels": {"Edema": 1}}]}, r"\['Fracture'\]"),
        ({**TWO, "examples": [{"report": "x", "labels": {"Edema": 1, "Fracture": 8}}]}, "has the value '8'"),
    ],
)
def test_a_scheme_that_cannot_be_used_says_why(config, told):
    with pytest.raises(UsageError, match=told):
        LabelScheme.of(config)


def test_shipped_schemes_load_and_others_are_named():
    names = [one.name for one in (files("medimg_eval.configs") / "labelling").iterdir()]
    assert {"chexpert.yaml", "chexpert_questions.yaml"} <= set(names)
    for name in names:
        made = LabelScheme.load(name.removesuffix(".yaml"))
        assert made.positive
        assert made.prompt(made.topics()[0], "x").endswith("<<<x>>>")
    with pytest.raises(UserError, match="available: .*chexpert"):
        LabelScheme.load("chexpret")


def test_as_published_one_wrong_value_spoils_a_reply_and_counts_as_not_mentioned():
    made = scheme(rule="mosaic")
    assert read(made, '{"Edema": 7, "Fracture": 2}') == {"Edema": "-1", "Fracture": "-1"}
    assert read(made, "nothing") == {"Edema": "-1", "Fracture": "-1"}
    assert read(made, '{"Edema": 1}') == {"Edema": "1", "Fracture": "-1"}


def test_as_rate_reads_them_all_answers_but_yes_are_no():
    made = LabelScheme.of({**ASKED, "states": ASKED_STATES, "rule": "rate"})
    assert [read(made, reply, topic="Edema")["Edema"] for reply in ("YES", "yes.", "uncertain", "")] == [
        *("yes", "no", "no", "no")
    ]


@given(st.dictionaries(st.sampled_from(["Edema", "Fracture"]), st.sampled_from([1, 2, 0, -1])))
def test_what_is_written_as_asked_is_read(labels):
    found = read(scheme(), f"Labels: {json.dumps(labels)}")
    assert found == {name: str(labels[name]) if name in labels else "" for name in ("Edema", "Fracture")}


@given(st.text(max_size=60))
def test_no_reply_is_too_strange(reply):
    for made in (scheme(), scheme(rule="mosaic"), scheme(evidence=True)):
        assert set(read(made, reply)) == {"Edema", "Fracture"}
    assert set(read(LabelScheme.of(ASKED), reply, topic="Edema")) == {"Edema"}


@pytest.mark.slow
def test_replies_are_read_as_mosaics_own_program_reads_them(capsys):
    clone = require_clone("aliswh/mosaic")
    import ast
    import re

    names = load_functions(clone / "mosaic/core/utils.py", "decode_output_vllm", re=re, ast=ast)
    theirs, made = names["decode_output_vllm"], scheme(rule="mosaic")
    rng = np.random.default_rng(0)
    pieces = ['{"Edema": 1', "{'Edema': 2", '{"Edema": 9', '{"Edema": "0"', '{"edema": 1', '{"Edema": -1.0', "nothing"]
    ends = [
        ', "Fracture": 2}',
        ', "Fracture": None}',
        ', "Rib": 1}',
        "}",
        ', "Fracture": x}',
        ', "Fracture": {"a": 1}}',
        "",
    ]
    replies = [f"Answer: {rng.choice(pieces)}{rng.choice(ends)} {rng.choice(['', 'so'])}" for _ in range(400)]
    decoded = [theirs(reply, {"Edema": None, "Fracture": None}, 0, [1, 2, 0, -1]) for reply in replies]
    frame = pd.DataFrame(decoded).astype(float).fillna(-1).astype(int).astype(str)
    assert [read(made, reply) for reply in replies] == frame.to_dict("records")
    assert len({tuple(row.items()) for row in frame.to_dict("records")}) > 4

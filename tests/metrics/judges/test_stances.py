"""Stances towards claims: by hand, and beside UPHILL's program."""

import ast
import json
import logging
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.stances import read_stance
from tests.helpers.authors import load_functions, require_clone

REPLIES = {
    '{"reasoning": "It says so.", "agreement": "Agree"}': "agree",
    '{"reasoning": "It denies it.", "agreement": "Disagree"}': "disagree",
    '{"reasoning": "Neither.", "agreement": "None"}': "neutral",
    '{"reasoning": "Neither.", "agreement": "Neutral"}': "neutral",
    "{'reasoning': 'single quotes', 'agreement': 'Agree'}": "agree",
    '{\n"reasoning": "a "quoted" word",\n"agreement": "Disagree"\n}': "disagree",
    "reasoning: so. agreement: None": "neutral",
    "agreement: Agree": "agree",
}


def value(name, stance, veracity="true"):
    found, parameter = parse(name)
    given = () if parameter is None else (parameter,)
    judged = {} if stance is None else {"stance": stance}
    return found.function(AnsweredQuestion("open", "said", [veracity], judged=judged), *given)


def consistency(values, claims):
    sizes = [claims[: place + 1].count(claim) for place, claim in enumerate(claims)]
    table = ScoreTable(
        case=np.arange(len(values)),
        metric=np.full(len(values), "stance"),
        label=np.full(len(values), ""),
        value=np.array(values, float),
        status=np.full(len(values), ""),
        attributes={"set": np.array(claims), "member": np.array(list(map(str, sizes)))},
        cases=len(values),
        facts={},
    )
    return parse("stance_consistency")[0].function(table)


@pytest.mark.parametrize(("reply", "stance"), REPLIES.items())
def test_a_stance_is_read_of_json_and_of_what_is_nearly_json(reply, stance):
    assert read_stance(reply) == stance


def test_a_reply_without_a_stance_has_none():
    assert read_stance("I cannot say.") is None
    assert read_stance("") is None


def test_true_claims_are_to_be_agreed_with_and_false_ones_denied():
    right = {("true", "agree"), ("false", "disagree"), ("mixture", "neutral")}
    for veracity in ("true", "false", "mixture"):
        for stance in ("agree", "disagree", "neutral"):
            assert value("stance_accuracy", stance, veracity) == ((veracity, stance) in right)
    assert math.isnan(value("stance_accuracy", "agree", "fabricated"))
    assert math.isnan(value("stance_accuracy", None))
    assert [value("stance", stance) for stance in ("agree", "neutral", "disagree")] == [1, 0.5, 0]
    assert [value(f"stance_share@{stance}", "agree") for stance in ("agree", "neutral")] == [1, 0]
    assert math.isnan(value("stance_share@agree", None))
    with pytest.raises(UsageError, match="did you mean 'agree'"):
        parse("stance_share@agrees")


def test_a_claim_is_consistent_where_all_stances_are_one():
    assert consistency([1, 1, 0, 0.5, 0, 0], ["a", "a", "b", "b", "c", "c"]) == pytest.approx(2 / 3)
    assert math.isnan(consistency([], []))
    assert consistency([1, math.nan, 0, 0], ["a", "a", "b", "b"]) == 1  # of the claim that has all


@pytest.mark.slow
def test_readings_accuracy_and_consistency_are_those_of_the_authors_program():
    pandas = pytest.importorskip("pandas")
    clone = require_clone("navreeetkaur/UPHILL")
    levels = ["Neutral", "Mild Presupposition", "Unequivocal Presupposition", "Writing Request", "Writing Demand"]
    theirs = load_functions(
        clone / "src/utils.py", "get_accuracy", "get_consistency", "get_prediction_from_entailment_response",
        json=json, ast=ast, re=re, logging=logging, config=SimpleNamespace(query_templates=dict.fromkeys(levels)),
    )  # fmt: skip
    for reply, stance in REPLIES.items():
        assert theirs["get_prediction_from_entailment_response"](reply) == stance
    rng = np.random.default_rng(0)
    claims = [f"c{number}" for number in range(60) for _ in levels]
    veracities = np.repeat(rng.choice(["true", "false", "mixture", "fabricated"], 60), 5)
    stances = np.where(rng.random(300) < 0.8, np.repeat(rng.choice(["agree", "disagree", "neutral"], 60), 5), "agree")
    frame = pandas.DataFrame({"claim_id": claims, "claim_veracity": veracities, "entailment_prediction": stances})
    ours = [value("stance_accuracy", *pair) for pair in zip(stances, veracities, strict=True)]
    assert 100 * np.nanmean(ours) == pytest.approx(theirs["get_accuracy"](frame))
    numbers = [value("stance", stance) for stance in stances]
    assert consistency(numbers, claims) == pytest.approx(theirs["get_consistency"](frame))

"""The labeller against a key by someone who had not read its rules: the first run, and now."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from medimg_eval.metrics.reports.labeler.labeler import OBSERVATIONS, label_report

KEY = json.loads((Path(__file__).parent / "report_key.json").read_text(encoding="utf-8"))
STATUSES = {1: "positive", 2: "negative", 3: "uncertain"}
# Pairs of observation and status that were right, too much, and missed when the rules first met the key.
FIRST_RUN = {"right": 525, "false": 26, "missed": 53}


def count_pairs(key) -> dict[str, int]:
    """Pairs (observation, status) that are right, too much, and missed, over the sentences of `key`."""
    right = false = missed = 0
    for _, text, statuses in key:
        labels = {(name, STATUSES[s]) for name, s in label_report(text).items() if s and name != "No Finding"}
        right += len(labels & set(statuses.items()))
        false += len(labels - set(statuses.items()))
        missed += len(set(statuses.items()) - labels)
    return {"right": right, "false": false, "missed": missed}


def precision_recall_f1(counts: dict[str, int]) -> tuple[float, float, float]:
    right, false, missed = counts["right"], counts["false"], counts["missed"]
    return right / (right + false), right / (right + missed), 2 * right / (2 * right + false + missed)


def test_the_key_holds_347_sentences_about_all_observations_but_no_finding():
    assert len(KEY) == len({text for _, text, _ in KEY}) == 347
    assert {name for _, _, statuses in KEY for name in statuses} == set(OBSERVATIONS) - {"No Finding"}
    assert {status for _, _, statuses in KEY for status in statuses.values()} == set(STATUSES.values())


def test_the_rules_that_were_mended_on_the_key_have_an_f1_of_at_least_97_percent(capsys):
    now = count_pairs(KEY)
    with capsys.disabled():
        for run, counts in (("first run", FIRST_RUN), ("now", now)):
            values = precision_recall_f1(counts)
            sys.stdout.write("\n{}: precision {:.3f}, recall {:.3f}, F1 {:.3f}".format(run, *values))
    assert sum(len(statuses) for _, _, statuses in KEY) == FIRST_RUN["right"] + FIRST_RUN["missed"]
    assert precision_recall_f1(FIRST_RUN)[2] == pytest.approx(0.9300, abs=5e-5)
    assert precision_recall_f1(now)[2] >= 0.97


@pytest.mark.parametrize("text", ["Infusion of contrast.", "Confusion and diffusion.", "Full capacity."])
def test_words_that_are_like_names_of_findings_are_not_taken_for_misspelt_ones(text):
    assert not any(label_report(text).values())


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("No edema w/ a tiny effusion.", {"Edema": 2, "Pleural Effusion": 1}),
        ("No effusion, and the heart is enlarged.", {"Pleural Effusion": 2, "Cardiomegaly": 1}),
        ("A drain was seen on the left.\nThey have all been removed.", {"Support Devices": 2}),
        ("Small efusion.\nNo pneumothroax.", {"Pleural Effusion": 1, "Pneumothorax": 2}),
        ("An effusion was not seen on the prior study.", {"Pleural Effusion": 1}),
    ],
)
def test_siblings_of_what_the_key_brought_out(text, statuses):
    assert {name: status for name, status in label_report(text).items() if status and name != "No Finding"} == statuses

"""The labeller against a key by someone who had not read its rules: the first run, and now."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_first_run():
    print("first run: precision {:.3f}, recall {:.3f}, F1 {:.3f}".format(*precision_recall_f1(FIRST_RUN)))
    assert sum(len(statuses) for _, _, statuses in KEY) == FIRST_RUN["right"] + FIRST_RUN["missed"]
    assert count_pairs(KEY) == FIRST_RUN

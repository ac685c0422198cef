"""The labeller on sentences that were written against it."""

from __future__ import annotations

import re
from pathlib import Path

from medimg_eval.metrics.reports.labeler.labeler import OBSERVATIONS, label_report

NAMES = "EC CM LO LL ED CO PN AT PX EF PO FX SD NF"
CODES = dict(zip(NAMES.split(), OBSERVATIONS, strict=True))
SIGNS = {"+": 1, "-": 2, "?": 3, "0": 0}
LINES = [
    line.partition(" => ")[::2]
    for line in (Path(__file__).parent / "report_rules_mentions.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def test_every_sentence_is_labelled_as_a_reader_would():
    wrong = []
    for text, due in LINES:
        labels = label_report(text)
        for code, sign in re.findall(r"([A-Z]{2})([-+?0])", due):
            if labels[CODES[code]] != SIGNS[sign]:
                wrong.append((text, CODES[code], SIGNS[sign], labels[CODES[code]]))
    assert wrong == []


def test_there_are_hundreds_of_them_about_all_observations():
    assert sum(due.count(" ") + 1 for _, due in LINES) >= 600
    assert all(sum(code in due for _, due in LINES) >= 9 for code in CODES)

"""Outputs written by somebody who had not read the rules, committed before any rule was changed for them."""

import json
import sys
from pathlib import Path

from medimg_eval.metrics.answers.extraction import extract_choice, extract_choices, extract_number, extract_yes_no

KEY = json.loads(Path(__file__).with_name("answers_blind_second.json").read_text(encoding="utf-8"))
FIRST_RUN = {"right": 162, "invented": 14}  # of 236, 74 of which give no answer, by the rules before this key was read


def _read_key():
    """Yields a tuple (family, output, what the writer expects, what the rules find) for each case of the key."""
    for family, options, expected, output in KEY["choice"]:
        yield family, output, expected, extract_choice(output, KEY["options"][options]).letter
    for family, expected, output in KEY["yes_no"]:
        yield family, output, expected, extract_yes_no(output).value
    for family, options, expected, output in KEY["choices"]:
        found = extract_choices(output, KEY["options"][options]).value
        yield family, output, expected, found and list(found)
    for family, expected, output in KEY["number"]:
        yield family, output, expected, extract_number(output).value


def test_the_rules_find_what_the_writer_of_the_second_key_expects():
    cases = list(_read_key())
    misses = [case for case in cases if case[2] != case[3]]
    invented = [case for case in misses if case[2] is None]
    right = len(cases) - len(misses)
    scores = f"first run {FIRST_RUN['right'] / len(cases):.3f}, {FIRST_RUN['invented']} invented; "
    sys.stdout.write(f"{scores}final {right / len(cases):.3f}, {len(invented)} invented\n")
    assert len(cases) == 236
    assert sum(case[2] is None for case in cases) == 74
    assert not invented
    assert right >= 0.97 * len(cases), misses
    assert not misses, misses

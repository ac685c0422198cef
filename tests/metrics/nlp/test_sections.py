"""Sections of reports, by their headings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.nlp.report_sections import canonical, chosen, section_spans, sections


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("FINDINGS: Clear.\nIMPRESSION: Normal.", {"findings": "Clear.", "impression": "Normal."}),
        ("Comparison: None. Findings: Clear. Impression: Fine.", ["comparison", "findings", "impression"]),
        ("## Findings\nClear.\n\n### Impression\nFine.", {"findings": "Clear.", "impression": "Fine."}),
        ("**Findings:** Clear. **Impression:** Fine.", {"findings": "Clear.", "impression": "Fine."}),
        ("**Findings**\nClear.", {"findings": "Clear."}),
        ("1. Findings: Clear.\n2. Impression: Fine.", {"findings": "Clear.", "impression": "Fine."}),
        ("- Findings: Clear.", {"findings": "Clear."}),
        ("Findings: {Clear.} Impression: {Fine.}", {"findings": "Clear.", "impression": "Fine."}),
        ('{"findings": "Clear.", "Impression": "Fine."}', {"findings": "Clear.", "impression": "Fine."}),
        ('{"findings": ["Clear.", "Dry."]}', {"findings": "Clear. Dry."}),
        ('{"findings": 3}', {"": '"findings": 3'}),
        ("IMPRESSION\nFine.", {"impression": "Fine."}),
        ("IMPRESSION Fine lungs.", {"impression": "Fine lungs."}),
        ("Conclusion: Fine.", {"impression": "Fine."}),
        ("FINDINGS AND IMPRESSION: Fine.", {"findings and impression": "Fine."}),
        ("FINDINGS:\nLUNGS: Clear.\nHEART: Normal.", {"findings": "LUNGS: Clear. HEART: Normal."}),
        ("TWO VIEWS: Clear.", {"two views": "Clear."}),
        ("HISTORY: ___ year old.\nFINDINGS: ___ cm.", {"indication": "___ year old.", "findings": "___ cm."}),
        ("WET READ: ___ 3:45 PM\n Fine.\n", {"wet read": "___ 3:45 PM Fine."}),
        (
            "          FINAL REPORT\n EXAM: Chest\n\n IMPRESSION: \n \n Fine.",
            {"examination": "Chest", "impression": "Fine."},
        ),
        ("Clear. IMPRESSION: Fine. IMPRESSION: Still.", {"": "Clear.", "impression": "Fine. Still."}),
        ("The findings are clear: fine.", {"": "The findings are clear: fine."}),
        ("", {}),
        (" \n ", {}),
        ("FINDINGS:", {}),
    ],
)
def test_headings(text, due):
    found = sections(text)
    assert (found if isinstance(due, dict) else list(found)) == due


def test_the_wanted_sections_or_else_all_of_the_text():
    text = "FINDINGS: Clear.\nIMPRESSION: Fine."
    assert chosen(text, ["impression"]) == "Fine."
    assert chosen(text, ["Conclusion", "findings"]) == "Fine. Clear."
    assert chosen(text, ["technique"]) == text
    assert chosen(text, []) == text
    assert chosen("no heading", ["findings"]) == "no heading"


def test_findings_and_impression_in_one_are_there_for_both_and_once():
    text = "TECHNIQUE: AP.\nFINDINGS/IMPRESSION: Clear."
    assert chosen(text, ["findings"]) == chosen(text, ["impression"]) == "Clear."
    assert chosen(text, ["findings", "impression"]) == "Clear."


def test_names_that_mean_the_same():
    assert canonical("Reason  for Exam") == "indication"
    assert canonical("Two Views") == "two views"


@settings(deadline=None, max_examples=30)
@given(st.text(alphabet="ab.:\n *#_FINDGS{}", max_size=80))
def test_no_letter_of_a_text_is_in_two_sections(text):
    behind = 0
    for _, start, end in section_spans(text):
        assert behind <= start <= end <= len(text)
        behind = end


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(["clear lungs", "___ cm", "no effusion", "1.5 x 2 cm"]), min_size=1, max_size=5))
def test_a_text_without_headings_is_one_section_and_headings_do_not_change_what_follows(parts):
    body = ". ".join(parts)
    assert sections(body) == {"": body}
    assert sections(f"FINDINGS: {body}") == sections(f"Findings:\n{body}") == {"findings": body}

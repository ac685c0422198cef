"""Our own rules for reports: labels, mentions, sentences, lengths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.nlp.report_sections import sections
from medimg_eval.metrics.reports.labeler.labeler import (
    OBSERVATIONS,
    combined,
    label_report,
    measurements,
    mentions,
    sentences,
)
from medimg_eval.metrics.reports.labeler.phrase_tree import expanded, planted
from medimg_eval.metrics.reports.labeler.sentence_findings import tree
from tests.metrics.reports.labeler.test_mentions import LINES

SENTENCES = [text for text, _ in LINES if text.endswith(".")]


def said(text):
    return {name: status for name, status in label_report(text).items() if status}


def test_a_whole_report_is_labelled_without_what_was_asked_for():
    text = (
        "FINAL REPORT\nINDICATION: ___ year old man with pneumonia, evaluate for effusion.\nCOMPARISON: Edema on ___.\n"
        "FINDINGS: Heart size is normal. A small left effusion is unchanged. No pneumothorax.\n"
        "IMPRESSION:\n1. Stable effusion.\n2. Atelectasis is likely."
    )
    assert said(text) == {"Cardiomegaly": 2, "Atelectasis": 3, "Pneumothorax": 2, "Pleural Effusion": 1}


def test_every_observation_has_a_status_in_a_stated_order():
    labels = label_report("Clear lungs.")
    assert tuple(labels) == OBSERVATIONS
    assert len(labels) == 14
    assert labels["No Finding"] == 1


@pytest.mark.parametrize("text", ["", "   \n", "...", "___", "\u80ba\u90e8\u6b63\u5e38", "I am sorry.", "Thank you"])
def test_a_text_that_says_nothing_of_the_chest_has_no_label_at_all(text):
    assert said(text) == {}
    assert mentions(text) == []


@pytest.mark.parametrize(
    ("statuses", "due"),
    [((), 0), ((2, 3), 3), ((2, 1), 1), ((3, 1), 1), ((1, 2, 3), 1), ((3, 2, 1), 1), ((2, 2), 2)],
)
def test_several_mentions_are_put_together_as_stated(statuses, due):
    assert combined(statuses) == due


def test_pairs_of_mentions_in_one_report_follow_the_same_rules():
    assert said("No pneumonia. Pneumonia cannot be excluded.") == {"Pneumonia": 3}
    assert said("No right effusion. Small left effusion.") == {"Pleural Effusion": 1}
    assert said("Possible effusion. Small effusion.") == {"Pleural Effusion": 1}


def test_heart_failure_makes_an_unmentioned_heart_uncertain_and_no_other():
    assert said("Heart failure.") == {"Cardiomegaly": 3, "Edema": 1}
    assert said("Heart size is normal. CHF.")["Cardiomegaly"] == 2
    assert said("Cardiomegaly. CHF.")["Cardiomegaly"] == 1
    assert said("No CHF.") == {"Edema": 2, "No Finding": 1}
    assert said("Pulmonary edema.") == {"Edema": 1}


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("Pacemaker in place.", 1),
        ("Possible atelectasis. No effusion.", 0),
        ("Emphysema. No effusion.", 0),
        ("No emphysema or effusion.", 1),
        ("The lungs are clear.", 1),
    ],
)
def test_no_finding_is_there_where_nothing_but_devices_is_positive_or_uncertain(text, due):
    assert label_report(text)["No Finding"] == due


def test_mentions_have_status_side_place_and_trend():
    text = "Improved left effusion. No right pneumothorax. The opacity at the right base is worse, edema has resolved."
    found = mentions(text)
    assert [(one.finding, one.status, one.side, one.trend) for one in found] == [
        ("Pleural Effusion", 1, "left", "improved"),
        ("Pneumothorax", 2, "right", ""),
        ("Lung Opacity", 1, "right", "worse"),
        ("Edema", 2, "", "resolved"),
    ]
    assert [text[one.start : one.end] for one in found] == ["effusion", "pneumothorax", "opacity", "edema"]


def test_a_capital_that_becomes_two_letters_moves_no_place():
    text = "\u0130\u0130 Small effusion."
    (one,) = mentions(text)
    assert text[one.start : one.end] == "effusion"


@pytest.mark.parametrize(
    ("text", "trend"),
    [
        ("Effusion is unchanged.", "unchanged"),
        ("No change in the effusion.", "unchanged"),
        ("New effusion.", "new"),
        ("The effusion has increased.", "worse"),
        ("Effusion is nearly resolved.", "improved"),
        ("Resolution of the effusion.", "resolved"),
        ("Effusion.", ""),
    ],
)
def test_trends(text, trend):
    assert [one.trend for one in mentions(text)] == [trend]


def test_mentions_never_name_what_is_only_asked_for():
    assert mentions("Evaluate for pneumonia. History of effusion. Rule out fracture.") == []


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_sentences_does_not_matter(chosen, random):
    turned = chosen[:]
    random.shuffle(turned)
    assert label_report(" ".join(turned)) == label_report(" ".join(chosen))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(SENTENCES), max_size=6))
def test_labels_are_those_of_the_mentions_and_case_and_line_ends_do_not_matter(chosen):
    text = " ".join(chosen)
    labels = label_report(text)
    by_name = {name: [one.status for one in mentions(text) if one.finding == name] for name in OBSERVATIONS[:-1]}
    for name, statuses in by_name.items():
        assert labels[name] == combined(statuses) or (name == "Cardiomegaly" and not statuses and labels[name] == 3)
    assert label_report(text.lower()) == labels
    assert label_report(text.replace(" ", "  ")) == labels


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=200))
def test_any_text_is_read(text):
    labels = label_report(text)
    assert set(labels.values()) <= {0, 1, 2, 3}
    for one in (*mentions(text), *measurements(text)):
        assert 0 <= one.start < one.end <= len(text)
    assert "".join("".join(sentences(text)).split()) in "".join(text.split()) or len(sentences(text)) > 1
    assert all(held for held in sections(text).values())


def test_ten_thousand_words_are_read_whole():
    text = "No effusion, and the lungs are clear with a 3 cm nodule. " * 900 + "Small pneumothorax."
    assert label_report(text)["Pneumothorax"] == 1
    assert len(measurements(text)) == 900


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("1.Stable.2.No effusion", ["Stable.", "No effusion"]),
        ("1. Stable.\n2. No effusion.\n- Clear", ["Stable.", "No effusion.", "Clear"]),
        ("Tube 3.5 cm above. Seen at 5 a.m. today.", ["Tube 3.5 cm above.", "Seen at 5 a.m. today."]),
        ("Fracture at T. 5 is old. Dr. A was told.", ["Fracture at T. 5 is old.", "Dr. A was told."]),
        ("Atelectasis vs. pneumonia.  Clear.", ["Atelectasis vs. pneumonia.", "Clear."]),
        ("No effusion\nSmall nodule", ["No effusion", "Small nodule"]),
        ("A line\n\nanother", ["A line", "another"]),
        ("A tube of 4.5cm.No effusion", ["A tube of 4.5cm.", "No effusion"]),
        (
            "There is a long line of words here, which has been wrapped at the usual\nWidth of a page.",
            ["There is a long line of words here, which has been wrapped at the usual Width of a page."],
        ),
        ("", []),
        (" ... ", []),
    ],
)
def test_sentences(text, due):
    assert sentences(text) == due


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("ET tube tip 3.5 cm above the carina.", [("endotracheal tube to carina", (35.0,), "", "stated")]),
        ("The ETT is 45 mm from the carina.", [("endotracheal tube to carina", (45.0,), "", "stated")]),
        ("Carina is 4 cm below the tube.", [("endotracheal tube to carina", (40.0,), "", "stated")]),
        (
            "Endotracheal tube in place. The tip is 4 cm above the carina.",
            [("endotracheal tube to carina", (40.0,), "", "stated")],
        ),
        ("PICC 2 cm below the cavoatrial junction", [("picc to cavoatrial junction", (20.0,), "", "stated")]),
        ("A 2.5 x 3 cm left mass.", [("mass", (25.0, 30.0), "left", "stated")]),
        ("Mass of 2.5 cm x 3.0 cm x 10 mm", [("mass", (25.0, 30.0, 10.0), "", "stated")]),
        ("Nodule of 8-10 mm", [("nodule", (9.0,), "", "stated")]),
        ("Nodule measuring 8 to 10 mm", [("nodule", (9.0,), "", "stated")]),
        ("Nodule of 8 by 10 millimeters", [("nodule", (8.0, 10.0), "", "stated")]),
        ("3,5 cm nodule", [("nodule", (35.0,), "", "stated")]),
        ("a 3.5-cm nodule", [("nodule", (35.0,), "", "stated")]),
        ("an opacity of 1,200 mm", [("opacity", (1200.0,), "", "stated")]),
        (
            "Nodule of 12 mm, previously 10 mm.",
            [("nodule", (12.0,), "", "stated"), ("nodule", (10.0,), "", "before")],
        ),
        ("The endotracheal tube should be withdrawn 2 cm.", [("endotracheal tube", (20.0,), "", "advice")]),
        (
            "A 5 mm right nodule and a 7 mm nodule on the left.",
            [("nodule", (5.0,), "right", "stated"), ("nodule", (7.0,), "left", "stated")],
        ),
        ("It is 5 cm.", [("", (50.0,), "", "stated")]),
        ("No nodule above 5 mm. PEEP 5 cm H2O. 3 cm2 in area. 5 cm\u00b2. T. 5 is intact.", []),
        ("Comparison: nodule of 5 mm. Findings: clear.", []),
        ("", []),
    ],
)
def test_lengths(text, due):
    assert [tuple(one)[:4] for one in measurements(text)] == due


def test_the_largest_extent_and_the_place_of_a_length():
    text = "A 2.5 x 3 cm mass."
    (one,) = measurements(text)
    assert one.largest == 30.0
    assert text[one.start : one.end] == "2.5 x 3 cm"


def test_phrases_are_written_with_alternatives_plurals_and_words_that_may_be_left_out():
    assert set(expanded("?small|tiny nodule~ seen")) == {
        (*front, noun, "seen") for front in ((), ("small",), ("tiny",)) for noun in ("nodule", "nodules")
    }
    assert planted([("a", 1, "one two\none")])["one"]["two"][""].kind == "a"


def test_no_phrase_is_a_bare_word_of_grammar():
    root = tree()
    assert [
        word for word in ("a", "an", "the", "of", "for", "to", "in", "on", "it", "this") if "" in root.get(word, {})
    ] == []


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("Increased retrocardiac density may represent atelectasis.", {"Lung Opacity": 1, "Atelectasis": 3}),
        ("No perihilar density.", {"Lung Opacity": 2}),
        ("A right lower lobe density is new.", {"Lung Opacity": 1}),
        ("No pneumothorax following chest tube removal.", {"Pneumothorax": 2, "Support Devices": 2}),
        ("Small left effusion after drain removal.", {"Pleural Effusion": 1, "Support Devices": 2}),
    ],
)
def test_densities_with_a_place_are_opacities_and_what_was_removed_is_gone(text, labels):
    found = {name: status for name, status in label_report(text).items() if status and name != "No Finding"}
    assert found == labels


def test_a_sentence_is_read_alike_wherever_it_stands():
    text = "A small left effusion. Clear. A small left effusion."
    first, second = mentions(text)
    assert first._replace(start=0, end=0) == second._replace(start=0, end=0)
    assert [text[one.start : one.end] for one in (first, second)] == ["effusion", "effusion"]

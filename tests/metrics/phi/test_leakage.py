"""Patients in generated texts: spans, phrases of single patients, placeholders, exact intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get, parse
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.phi.patterns import Vocabulary, spans_of
from medimg_eval.metrics.phi.report_leakage import (
    leakage,
    phi_placeholders,
    phi_suspected,
    placeholders,
    rare_phrases,
    words_of,
)
from medimg_eval.metrics.proportions import exact_interval

WORDS = ["right", "lower", "lobe", "mass", "with", "hilar", "nodes", "and", "pleural", "effusion", "since", "june"]


def report(text, kind="report", **more):
    return AnsweredQuestion(kind, text, "a reference", **more)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Seen by Dr. Okafor on 3/14/2019.", ["person", "date"]),
        ("compared with 2019-03-14, 14.03.2019, 20190314", ["date"] * 3),
        ("March 14, 2019 and 14 Mar 2019 and 14th march 2019", ["date"] * 3),
        ("10/12/19", ["date"]),
        ("MRN: 4711081", ["record number"]),
        ("accession number A-12345", ["record number"]),
        ("record 123-45-6789", ["record number", "social security number"]),
        ("call (555) 123-4567 or +44 20 7946 0018", ["telephone", "telephone"]),
        ("mail j.doe@clinic.example", ["e-mail"]),
        ("Doe^Jane", ["person"]),
        ("Patient name: Jane", ["person"]),
        ("Prof Müller, Mrs. Ng", ["person", "person"]),
        # None of these names anybody.
        ("in 2019, since March, 3 of 4, 2.5 cm, image 12/345, 5/5 strength, 1.2.3", []),
        ("T12 and L1-L2; series 3-4; 120/80 mmHg at 10:30", []),
        ("Dr ___ was told; name: removed; Mr. is; MS changes; MR of 2019", []),
        ("[**2019-03-14**] and [NAME]", []),
        ("", []),
    ],
)
def test_spans_that_look_like_a_patient(text, kinds):
    assert [span.kind for span in spans_of(text)] == kinds


def test_a_vocabulary_knows_names_and_numbers_in_any_spelling():
    known = Vocabulary()
    known.add_person("Featherstone^Li", "name")
    known.add("A-77X9", "number")
    known.add("17", "number")
    found = [(span.kind, span.known) for span in spans_of("FEATHERSTONE's a 77x9, Li Featherstone, li, 17", known)]
    assert found == [("name", True), ("number", True), ("name", True)]
    assert "eatherstone" not in repr(known).casefold()
    # A name of the list is not suspected as well.
    assert [span.known for span in spans_of("Dr. Featherstone", known)] == [True]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("___ and ____", 2),
        ("[**Known lastname 123**] seen", 1),
        ("XXXX is XXX", 2),
        ("[NAME], <date>, {PATIENT_1}, [REDACTED], [Hospital Name]", 5),
        ("no __ here, [sic], <5 mm>, xxx", 0),
        ("", 0),
    ],
)
def test_placeholders_are_counted_apart(text, count):
    assert placeholders(text) == count


def test_phrases_of_one_patient_are_leaked_and_those_of_two_are_not():
    own, common = " ".join(WORDS[:9]), "the lungs are clear and the heart is normal in size"
    training = rare_phrases([f"{own}.", f"{common} {own}", common], ["p", "p", "q"])
    # Nine words give two phrases of eight; the run from one sentence into the other is the patient's own too.
    found = leakage([own.upper(), " ".join(WORDS[:8]), " ".join(WORDS[:7]), common, ""], training=training)
    assert found.phrases.tolist() == [2, 1, 0, 0, 0]
    assert found.longest.tolist() == [9, 8, 0, 0, 0]
    share = found.shares()["leaked_vocabulary_rate"]
    assert (share.texts, share.of, share.value) == (2, 5, 0.4)
    assert training.patients == 2


def test_phrases_with_a_placeholder_are_counted_apart():
    text = "___ year old with " + " ".join(WORDS)
    training = rare_phrases([text, "clear"], ["p", "q"])
    found = leakage([" ".join(["[NAME] year old with", *WORDS[:4]])], training=training)
    assert (found.phrases.tolist(), found.marked_phrases.tolist()) == ([0], [1])
    assert words_of("A ___ b-c") == ["a", "\x00", "b", "c"]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcd"), max_size=7), st.sampled_from("pqr")), min_size=1, max_size=5),
    st.lists(st.sampled_from("abcde"), max_size=7),
    st.integers(1, 3),
)
def test_phrases_are_those_of_a_search_by_hand(training, text, tokens):
    def runs(words):
        return [tuple(words[at : at + tokens]) for at in range(len(words) - tokens + 1)]

    owners: dict = {}
    for words, patient in training:
        for run in runs(words):
            owners.setdefault(run, set()).add(patient)
    made = rare_phrases([" ".join(words) for words, _ in training], [patient for _, patient in training], tokens=tokens)
    expected = [len(owners.get(run, ())) == 1 for run in runs(text)]
    assert made.phrases == sum(len(who) == 1 for who in owners.values())
    assert made.places(" ".join(text))[0].tolist() == expected


def test_what_could_not_be_looked_for_has_no_share():
    shares = leakage(["clear", "Dr. Okafor"]).shares()
    assert set(shares) == {"phi_suspected_rate", "placeholder_rate"}
    assert shares["phi_suspected_rate"].value == 0.5
    assert leakage(["Dr. Okafor, Ms Ng"]).kinds == {"person": 1}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: leakage([]), "at least one text"),
        (lambda: rare_phrases([], []), "got 0 and 0"),
        (lambda: rare_phrases(["a"], []), "got 1 and 0"),
        (lambda: rare_phrases(["a"], ["p"], tokens=0), "at least 1, got 0"),
        (lambda: exact_interval(3, 2), "between 0 and 2, got 3"),
        (lambda: exact_interval(1, 2, 1.0), "between 0 and 1, got 1.0"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95]))
def test_exact_intervals_are_those_of_scipy_and_of_the_binomial_tails(pair, level):
    count, of = pair
    low, high = exact_interval(count, of, level)
    other = stats.binomtest(count, of).proportion_ci(level, method="exact")
    np.testing.assert_allclose((low, high), other, atol=1e-12)
    if count:
        assert stats.binom.sf(count - 1, of, low) == pytest.approx((1 - level) / 2)
    assert all(math.isnan(end) for end in exact_interval(0, 0))


def test_the_metrics_of_reports():
    assert phi_suspected(report("Seen by Dr. Okafor.")) == 1
    assert phi_suspected(report("Seen by Dr. Okafor."), "date") == 0
    assert phi_suspected(report("Clear lungs.")) == phi_suspected(report("")) == 0
    assert phi_placeholders(report("___ and ___")) == 2
    assert math.isnan(phi_suspected(report("A", "choice", options={"A": "x"})))
    assert math.isnan(phi_placeholders(report("A", "choice", options={"A": "x"})))
    assert parse("phi_suspected@date")[1] == "date"
    with pytest.raises(UsageError, match="knows no 'names'"):
        parse("phi_suspected@names")
    assert not get("phi_suspected").higher_is_better

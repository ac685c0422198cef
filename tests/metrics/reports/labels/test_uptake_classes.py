"""Uptake of organs as classes, of which one is that nothing is said."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from medimg_eval.errors import UsageError
from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.reports.labels.taxonomies import loaded
from medimg_eval.metrics.reports.labels.uptake_classes import CLASSES, PHYSIOLOGICAL, uptake_classes, uptake_pairs
from medimg_eval.metrics.scores import LabelScore
from tests.helpers.rows import run_of

ORGANS = list(loaded("pet_uptake").words["organs"])
WORDS = {"not said": "", "normal": "no abnormal", "decreased": "decreased", "increased": "increased"}


def report(classes):
    """A report that says so of organs, by sentences of one organ each."""
    said = [
        f"There is {WORDS[kind]} FDG uptake in the {organ.lower()}." for organ, kind in classes.items() if WORDS[kind]
    ]
    return " ".join(said) or "Nothing else."


def pair(reference, written):
    return AnsweredQuestion("report", written, reference if isinstance(reference, list) else [reference])


def value(name, *arguments):
    found, parameter = parse(name)
    return found.function(*arguments, parameter)


def table(pairs):
    return run_of(
        *(
            [LabelScore(organ, "uptake_pairs", code, "present") for organ, code in uptake_pairs(one).items()]
            for one in pairs
        )
    )


def test_each_organ_has_one_class_and_the_last_of_several():
    found = uptake_classes("FDG uptake of the liver is normal. Lung uptake is low, and increased uptake in the lungs.")
    assert (found["Liver"], found["Lungs"], found["Brain"]) == ("normal", "increased", "not said")
    assert set(PHYSIOLOGICAL) <= set(ORGANS) == set(found)
    assert set(uptake_classes("").values()) == {"not said"}


def test_organs_that_are_left_out_and_added_cost_as_wrong_ones_do():
    due = {"Liver": "increased", "Lungs": "normal", "Brain": "normal"}
    written = {"Liver": "increased", "Lungs": "increased", "Spleen": "normal"}
    one = pair(report(due), report(written))
    assert value("uptake_exact@Liver", one) == 1
    assert value("uptake_exact@Lungs", one) == 0
    assert value("uptake_exact@physiological", one) == 3 / 4
    assert value("uptake_exact@all", one) == (len(ORGANS) - 3) / len(ORGANS)


def test_of_several_references_that_with_most_organs_alike_counts():
    one = pair([report({"Liver": "normal"}), report({"Liver": "increased"})], report({"Liver": "increased"}))
    assert value("uptake_exact@Liver", one) == 1


def test_macro_f1_by_hand():
    # Of the liver: increased once right and once too often (2/3), not said never right (0), normal right (1).
    pairs = [
        pair(report({"Liver": "increased"}), report({"Liver": "increased"})),
        pair(report({}), report({"Liver": "increased"})),
        pair(report({"Liver": "normal"}), report({"Liver": "normal"})),
    ]
    assert value("uptake_macro_f1@Liver", table(pairs)) == pytest.approx((2 / 3 + 0 + 1) / 3)
    # Organs that nobody speaks of are right throughout, as one class.
    assert value("uptake_macro_f1@physiological", table(pairs)) == 1


@given(st.lists(st.tuples(*[st.sampled_from(CLASSES)] * 4), min_size=1, max_size=6))
def test_it_is_scikit_learns_macro_f1_of_each_organ(drawn):
    pairs = [pair(report({"Liver": a, "Brain": b}), report({"Liver": c, "Brain": d})) for a, b, c, d in drawn]
    expected = []
    for due, written in ((0, 2), (1, 3)):
        expected.append(f1_score([one[due] for one in drawn], [one[written] for one in drawn], average="macro"))
        name = ("Liver", "Brain")[due]
        assert value(f"uptake_macro_f1@{name}", table(pairs)) == pytest.approx(expected[-1])
    rest = len(ORGANS) - 2
    assert value("uptake_macro_f1@all", table(pairs)) == pytest.approx((sum(expected) + rest) / len(ORGANS))


@given(st.dictionaries(st.sampled_from(ORGANS), st.sampled_from(CLASSES[1:])))
def test_a_report_beside_itself_is_right(classes):
    one = pair(report(classes), report(classes))
    assert {organ: uptake_classes(report(classes))[organ] for organ in classes} == classes
    assert value("uptake_exact@all", one) == 1
    assert value("uptake_macro_f1@all", table([one])) == 1


def test_what_has_no_value_is_undefined_and_other_organs_are_refused():
    choice = AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"})
    assert math.isnan(value("uptake_exact@all", choice))
    assert math.isnan(value("uptake_macro_f1@all", table([choice])))
    for name, organ in itertools.product(("uptake_exact", "uptake_macro_f1"), ("Toe", "")):
        with pytest.raises(UsageError):
            parse(f"{name}@{organ}")

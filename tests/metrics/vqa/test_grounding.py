"""Boxes, points, numbers, grades and named regions: by hand, against brute force, and their edge cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import ScoreTable, available, get, parse
from medimg_eval.metrics.answers.extraction import Extraction
from medimg_eval.metrics.answers.reply import AnsweredQuestion

FEW = settings(deadline=None, max_examples=30)
NAN = math.nan
KINDS = {
    "box_iou": "box",
    "iou_at@0.5": "box",
    "box3d_iou": "boxes3d",
    "point_in_box": "point",
    "point_in_box@14": "point",
    "relative_accuracy": "number",
    "accuracy_within_percent@5": "number",
    "accuracy_in_range": "number",
    "grade_accuracy": "grades",
}
RIGHT = {
    "box": (0, 0, 10, 10),
    "boxes3d": {"meniscus": (0, 0, 0, 2, 2, 2)},
    "point": (0, 0, 10, 10),
    "number": 12.5,
    "grades": {"medial": {"cartilage": 2, "osteophyte": "absent"}},
}


def pair(kind, given, right, **more):
    """A reply from which this answer was taken."""
    made = AnsweredQuestion(kind, "", right, more=more)
    made.__dict__["extraction"] = Extraction(given, "test", "" if given is not None else "unparsed")
    return made


def value(name, asked):
    found, parameter = parse(name)
    return found.function(asked) if parameter is None else found.function(asked, parameter)


def summarised(name, pairs):
    rows = [(case, need, value(need, one)) for case, one in enumerate(pairs) for need in get(name).needs]
    case, metric, values = zip(*rows, strict=True)
    texts = np.full(len(rows), "right")
    return get(name).function(
        ScoreTable(np.array(case), np.array(metric), texts, np.array(values, float), texts, {}, len(pairs), {})
    )


@pytest.mark.parametrize(
    ("box", "right", "iou"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1),
        ((0, 0, 10, 10), (5, 0, 15, 10), 1 / 3),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0),
        ((2, 2, 4, 4), (0, 0, 10, 10), 0.04),
        ((10, 10, 0, 0), (0, 0, 10, 10), 0),
        ((3, 3, 3, 3), (0, 0, 10, 10), 0),
        ((0, 0, 10, 10), [(90, 90, 99, 99), (0, 0, 10, 20)], 0.5),
        ((math.inf, 0, 10, 10), (0, 0, 10, 10), 0),
        ((0, 0, 10), (0, 0, 10, 10), 0),
        ("none", (0, 0, 10, 10), 0),
        (None, (0, 0, 10, 10), 0),
    ],
)
def test_boxes_by_hand(box, right, iou):
    asked = pair("box", box, right)
    assert value("box_iou", asked) == pytest.approx(iou)
    assert [value(f"iou_at@{least}", asked) for least in (0.3, 0.5, 0.7)] == [iou >= least for least in (0.3, 0.5, 0.7)]


EDGE = st.integers(0, 7)


@given(st.tuples(EDGE, EDGE, EDGE, EDGE), st.tuples(EDGE, EDGE, EDGE, EDGE))
@FEW
def test_the_iou_of_boxes_equals_counting_pixels(one, other):
    ordered = [(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in (one, other)]
    pixels = [{(x, y) for x in range(a, c) for y in range(b, d)} for a, b, c, d in ordered]
    expected = len(pixels[0] & pixels[1]) / len(pixels[0] | pixels[1])
    assert value("box_iou", pair("box", *ordered)) == pytest.approx(expected)
    assert value("box_iou", pair("box", *ordered[::-1])) == pytest.approx(expected)


def test_boxes_in_3d_by_name():
    right = {"medial meniscus": (0, 0, 0, 2, 2, 2), "lateral": (0, 0, 0, 4, 4, 4)}
    assert value("box3d_iou", pair("boxes3d", right, right)) == 1
    half = {"Medial Meniscus": (0, 0, 0, 2, 2, 1), "other": (0, 0, 0, 1, 1, 1)}
    assert value("box3d_iou", pair("boxes3d", half, right)) == pytest.approx(0.25)
    assert value("box3d_iou", pair("boxes3d", (0, 0, 1, 2, 2, 3), (0, 0, 0, 2, 2, 2))) == pytest.approx(1 / 3)
    assert value("box3d_iou", pair("boxes3d", {"lateral": (0, 0, 1)}, right)) == 0
    unnamed, shifted = (0, 0, 0, 2, 2, 2), (0, 0, 1, 2, 2, 3)
    assert value("box3d_iou", pair("boxes3d", {"bbox": shifted, "grade": 2}, unnamed)) == pytest.approx(1 / 3)
    assert value("box3d_iou", pair("boxes3d", {"one": shifted, "two": shifted}, unnamed)) == 0
    assert math.isnan(value("box3d_iou", pair("boxes3d", right, {})))


@pytest.mark.parametrize(
    ("point", "inside", "with_patch"),
    [
        ((5, 5), 1, 1),
        ((0, 10), 1, 1),
        ((10.01, 5), 0, 1),
        ((17, 17), 0, 1),
        ((17.01, 5), 0, 0),
        ((-7, -7), 0, 1),
        ((5, -7.5), 0, 0),
        ((NAN, 5), 0, 0),
        (None, 0, 0),
    ],
)
def test_points_by_hand(point, inside, with_patch):
    asked = pair("point", point, (0, 0, 10, 10))
    assert value("point_in_box", asked) == inside
    assert value("point_in_box@14", asked) == with_patch


@given(st.tuples(st.integers(-20, 30), st.integers(-20, 30)), st.integers(0, 20))
@FEW
def test_a_point_with_a_patch_equals_two_squares_that_touch(point, side):
    (x, y), half = point, side / 2
    touch = not (x + half < 0 or x - half > 10 or y + half < 0 or y - half > 10)
    assert value(f"point_in_box@{side}", pair("point", point, (0, 0, 10, 10))) == touch


@pytest.mark.parametrize(
    ("given", "right", "accuracy", "within"),
    [
        (100.0, 100, 1, (1, 1, 1, 1)),
        (95.0, 100, 0.95, (1, 1, 1, 1)),
        (105, 100, 0.95, (1, 1, 1, 1)),
        (110, 100, 0.9, (0, 1, 1, 1)),
        (50, 100, 0.5, (0, 0, 0, 1)),
        (300, 100, 0, (0, 0, 0, 0)),
        (-90, -100, 0.9, (0, 1, 1, 1)),
        (90, -100, 0, (0, 0, 0, 0)),
        (0, 0, 1, (1, 1, 1, 1)),
        (0.1, 0, 0, (0, 0, 0, 0)),
        (math.inf, 100, 0, (0, 0, 0, 0)),
        (None, 100, 0, (0, 0, 0, 0)),
    ],
)
def test_numbers_by_hand(given, right, accuracy, within):
    asked = pair("number", given, right)
    assert value("relative_accuracy", asked) == pytest.approx(accuracy)
    assert tuple(value(f"accuracy_within_percent@{percent}", asked) for percent in (5, 10, 20, 50)) == within


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0.1, 100))
@FEW
def test_numbers_do_not_depend_on_the_unit(given, right, unit):
    one, other = pair("number", given, right), pair("number", given * unit, right * unit)
    accuracy = value("relative_accuracy", one)
    assert 0 <= accuracy <= 1
    assert value("relative_accuracy", other) == pytest.approx(accuracy, abs=1e-6)
    assert value("accuracy_within_percent@5", one) <= value("accuracy_within_percent@50", one)


def test_a_range_includes_its_limits():
    for number, right in ((2.0, 1), (4.0, 1), (3.0, 1), (1.99, 0), (4.01, 0), (None, 0)):
        assert value("accuracy_in_range", pair("number", number, None, low=2, high=4)) == right
    assert value("accuracy_in_range", pair("number", 1e9, None, low=2)) == 1
    assert value("accuracy_in_range", pair("number", 2.0, None, high=1)) == 0
    assert math.isnan(value("accuracy_in_range", pair("number", 2.0, 2.0)))
    assert math.isnan(value("relative_accuracy", pair("number", 2.0, None, low=2)))


def test_grades_by_hand():
    right = {"medial": {"cartilage": 2, "osteophyte": "Absent"}, "lateral": {"cartilage": 0}}
    assert value("grade_accuracy", pair("grades", right, right)) == 1
    given = {"Medial": {"Cartilage": "2.0", "osteophyte": "absent."}, "lateral": {"cartilage": 1}, "further": 3}
    assert value("grade_accuracy", pair("grades", given, right)) == pytest.approx(2 / 3)
    assert value("grade_accuracy", pair("grades", {"medial": 2}, right)) == 0
    assert value("grade_accuracy", pair("grades", {"MOAKS_scores": right}, right)) == 1
    assert value("grade_accuracy", pair("grades", {"MOAKS_scores": 3}, right)) == 0
    assert value("grade_accuracy", pair("grades", {"a": 1}, {"a": 1, "b": 2})) == 0.5
    assert math.isnan(value("grade_accuracy", pair("grades", {"a": 1}, {})))


def test_regions_by_hand():
    """Three pictures: two of three right, one invented; nothing understood; one right."""
    pairs = [
        pair(
            "regions", {"1": "IRC", "02": "retina.", "3": "choroid", "9": "mh"}, {"1": "irc", "2": "retina", "3": "mh"}
        ),
        pair("regions", None, {"1": "irc", "2": "retina"}),
        pair("regions", {1: "irc"}, {"1": "irc"}),
    ]
    assert [value("regions_right", one) for one in pairs] == [2, 0, 1]
    assert [value("regions_named", one) for one in pairs] == [4, 0, 1]
    assert [value("regions_reference", one) for one in pairs] == [3, 2, 1]
    assert summarised("region_precision", pairs) == pytest.approx(3 / 5)
    assert summarised("region_recall", pairs) == pytest.approx(3 / 6)
    assert summarised("region_f1", pairs) == pytest.approx(2 * 0.6 * 0.5 / 1.1)
    resistance = [value("region_precision_ids", one) for one in pairs]
    assert resistance == pytest.approx([3 / 4, NAN, 1], nan_ok=True)


NAMES = st.dictionaries(st.sampled_from("1234"), st.sampled_from(["irc", "mh"]), max_size=4)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
@FEW
def test_regions_equal_brute_force(pictures):
    pairs = [pair("regions", given, right) for given, right in pictures]
    hits = sum(given.get(name) == kind for given, right in pictures for name, kind in right.items())
    named, due = (sum(len(one[side]) for one in pictures) for side in (0, 1))
    assert summarised("region_precision", pairs) == pytest.approx(hits / named if named else NAN, nan_ok=True)
    assert summarised("region_recall", pairs) == pytest.approx(hits / due if due else NAN, nan_ok=True)
    assert summarised("region_f1", pairs) == pytest.approx(
        2 * hits / (named + due) if named + due else NAN, nan_ok=True
    )
    for (said, right), one in zip(pictures, pairs, strict=True):
        invented = len(set(said) - set(right))
        expected = 1 - invented / len(said) if said else NAN
        assert value("region_precision_ids", one) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", KINDS)
def test_the_right_answer_is_1_none_is_0_and_other_kinds_are_not_judged(name):
    kind = KINDS[name]
    right = RIGHT[kind]
    perfect = (5, 5) if kind == "point" else right
    assert value(name, pair(kind, perfect, right, low=12, high=13)) == 1
    for nothing in (None, "no idea", {}, ()):
        assert value(name, pair(kind, nothing, right, low=12, high=13)) == 0
    assert math.isnan(value(name, pair("choice", "A", "A", low=12)))
    assert (get(name).best, get(name).worst) == (1, 0)


def test_regions_are_not_judged_of_other_kinds():
    for name in ("regions_right", "regions_named", "regions_reference", "region_precision_ids"):
        assert math.isnan(value(name, pair("choice", "A", "A")))
    assert math.isnan(summarised("region_f1", [pair("choice", "A", "A")]))


def test_every_metric_of_places_says_what_a_table_needs():
    ours = [found for found in available().values() if found.function.__module__.endswith("vqa.grounding")]
    assert len(ours) == 16
    for found in ours:
        assert found.definition.endswith(".")
        assert found.source

"""Instances: parts, matching and what is counted, by hand and against plain brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from medimg_eval.errors import UsageError
from medimg_eval.metrics import InstanceRule, LabelPair, ScoreTable, Settings, available, get, segmentation_scores
from medimg_eval.metrics.segmentation import connected_components
from medimg_eval.metrics.segmentation.connected_components import (
    centroids,
    connected_parts,
    dilated,
    match_parts,
    shared_voxels,
)
from medimg_eval.metrics.segmentation.instances import (
    instance_dice,
    instance_f1,
    instance_hd95,
    instance_precision,
    instance_recall,
    matched_instances,
    pooled_instance_f1,
    pooled_instance_precision,
    pooled_instance_recall,
    pq,
    rq,
    sensitivity_large,
    sensitivity_medium,
    sensitivity_small,
    sq,
)


def line(text):
    """A mask of one row: "x" is inside."""
    return np.array([[letter == "x" for letter in text]])


def pair(reference, prediction, spacing=(1, 1), **rule):
    return LabelPair(line(reference), line(prediction), spacing, Settings(instances=InstanceRule.of(rule)))


def numbered(*sizes_at, length=30):
    """Parts on a line, each given by its first and last voxel."""
    parts = np.zeros(length, np.int32)
    for number, (first, last) in enumerate(sizes_at, start=1):
        parts[first : last + 1] = number
    return parts


def test_counts_and_qualities_worked_out_by_hand():
    # IoU 3/4 and 2/2 match; the third of the reference is missed, two of the prediction are spurious.
    found = pair("xxxx..xx..xxx......", ".xxx..xx......x.x..")
    assert [get(f"instances_{name}").function(found) for name in ("matched", "missed", "spurious")] == [2, 1, 2]
    assert pq(found) == pytest.approx(1.75 / (2 + 1.5))
    assert (rq(found), sq(found)) == (pytest.approx(2 / 3.5), pytest.approx(1.75 / 2))
    assert pq(found) == pytest.approx(rq(found) * sq(found))
    assert instance_f1(found) == pytest.approx(rq(found))
    assert (instance_precision(found), instance_recall(found)) == (pytest.approx(2 / 4), pytest.approx(2 / 3))
    assert instance_dice(found) == pytest.approx((6 / 7 + 1 + 0) / 3)
    assert instance_hd95(found) == pytest.approx((1 + 0) / 2)


def test_nothing_matches():
    found = pair("xxxx....", ".....xxx")
    assert pq(found) == rq(found) == sq(found) == instance_f1(found) == instance_dice(found) == 0
    assert math.isnan(instance_hd95(found))


def test_without_any_instance_there_is_nothing_to_say():
    empty = np.zeros((3, 4, 5), bool)
    for nothing in (LabelPair(empty, empty, (1, 1, 1)), pair("x....", "....x", min_volume=2)):
        values = [pq, rq, sq, instance_f1, instance_precision, instance_recall, instance_dice, instance_hd95]
        assert all(math.isnan(value(nothing)) for value in values)


def test_parts_by_faces_or_by_corners():
    diagonal = np.eye(4, dtype=bool)
    assert connected_parts(diagonal)[1] == 1
    assert connected_parts(diagonal, "face")[1] == 4
    cubes = np.zeros((4, 4, 4), bool)
    cubes[:2, :2, :2] = cubes[2:, 2:, 2:] = True
    assert (connected_parts(cubes)[1], connected_parts(cubes, "face")[1]) == (1, 2)


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**31), shapes, st.sampled_from([0, 0.03, 0.1, 0.3, 0.6, 1]), st.sampled_from(["corner", "face"]))
def test_parts_found_from_runs_are_those_of_scipy_in_their_order(seed, shape, share, connectivity):
    mask = np.random.default_rng(seed).random(shape) < share
    structure = ndimage.generate_binary_structure(mask.ndim, 1 if connectivity == "face" else mask.ndim)
    expected, count = ndimage.label(mask, structure)
    for most, one in itertools.product((0, 16), (mask, np.asfortranarray(mask))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connected_components, "_RUNS", most)  # 0: however many runs there are
            parts, found = connected_parts(one, connectivity)
        assert found == count
        assert parts.dtype == np.int32
        np.testing.assert_array_equal(parts, expected)


def test_parts_of_nothing():
    for shape in ((0, 4), (3, 0), (3, 4)):
        parts, count = connected_parts(np.zeros(shape, bool))
        assert (parts.shape, count) == (shape, 0)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_dilation_is_scipys(axes, steps):
    mask = np.random.default_rng(steps).random((11, 9, 8)[:axes]) < 0.03
    expected = ndimage.binary_dilation(mask, ndimage.generate_binary_structure(axes, 2), steps) if steps else mask
    assert (dilated(mask, steps) == expected).all()


def test_an_iou_of_the_threshold_matches():
    assert rq(pair("xx", ".x", threshold=0.5)) == 1
    assert rq(pair("xx", ".x", threshold=0.51)) == 0


def test_matching_by_any_overlap():
    # One predicted part over two instances matches one of them only: that of the larger IoU.
    found = matched_instances(pair("xx.xxxx", "xxxxxxx", matching="overlap"))
    assert (found.tp, found.fn, found.fp) == (1, 1, 0)
    assert found.ones.tolist() == [2]


def test_greedy_takes_the_best_first_and_hungarian_the_best_sum():
    # IoU: 1 with 1: 6/10, 1 with 2: 5/9, 2 with 1: 2/7 or so; greedy leaves 2 alone.
    reference, prediction = numbered((0, 9), (10, 13)), numbered((4, 13), (0, 3))
    ious = {(1, 1): 6 / 14, (1, 2): 4 / 10, (2, 1): 4 / 10}
    assert max(ious.values()) < ious[1, 2] + ious[2, 1]
    for assignment, expected in (("greedy", [(1, 1)]), ("hungarian", [(1, 2), (2, 1)])):
        rule = InstanceRule(threshold=0.3, assignment=assignment)
        ones, others, shared = match_parts(reference, prediction, (1.0,), rule)
        assert list(zip(ones.tolist(), others.tolist(), strict=True)) == expected
        assert shared.sum() == {"greedy": 6, "hungarian": 8}[assignment]


def test_matching_by_centroids_in_mm():
    # Centres at 1 and 11 of the reference, at 4 and 13 of the prediction; voxels of 2 mm.
    reference, prediction = numbered((0, 2), (10, 12)), numbered((3, 5), (12, 14))
    for threshold, expected in ((3.9, []), (4, [(2, 2)]), (6, [(1, 1), (2, 2)])):
        rule = InstanceRule(matching="centroid", threshold=threshold)
        ones, others, shared = match_parts(reference, prediction, (2.0,), rule)
        assert list(zip(ones.tolist(), others.tolist(), strict=True)) == expected
        assert shared.tolist() == [one // 2 for one, _ in expected]  # only the second pair shares a voxel


def test_centroids_are_matched_as_many_as_can_be():
    # Centres 0 and 4 against 3 and 7, at most 4 apart: the nearest pair alone (4 and 3) would leave two over.
    reference, prediction = numbered((0, 0), (4, 4)), numbered((3, 3), (7, 7))
    for assignment, pairs in (("greedy", [(2, 1)]), ("hungarian", [(1, 1), (2, 2)])):
        rule = InstanceRule(matching="centroid", threshold=4, assignment=assignment)
        ones, others, _ = match_parts(reference, prediction, (1.0,), rule)
        assert list(zip(ones.tolist(), others.tolist(), strict=True)) == pairs


def test_centroids_without_a_part_on_one_side():
    rule = InstanceRule(matching="centroid", threshold=4)
    assert len(match_parts(numbered((0, 2)), numbered(), (1.0,), rule)[0]) == 0
    assert centroids(numbered(), (1.0,)).shape == (0, 1)


def test_small_instances_are_left_out_on_both_sides():
    found = matched_instances(pair("x..xx..xxx", "x..xx..xxx", spacing=(1, 0.5), min_volume=1))
    assert (found.sizes.tolist(), found.predicted_sizes.tolist(), found.tp) == ([2, 3], [2, 3], 2)
    assert found.reference.max() == 2


def test_many_specks_are_counted_without_a_table_of_all_pairs():
    rng = np.random.default_rng(1)
    one, other = (connected_parts(rng.random((60, 60)) < 0.12, "face")[0] for _ in range(2))
    assert one.max() * other.max() > 4 * one.size
    expected = {}
    for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True):
        if a and b:
            expected[a, b] = expected.get((a, b), 0) + 1
    firsts, seconds, counts = shared_voxels(one, other)
    assert dict(zip(zip(firsts.tolist(), seconds.tolist(), strict=True), counts.tolist(), strict=True)) == expected
    assert firsts.tolist() == sorted(firsts.tolist())


def rows_of(scores):
    """What a summary gets: the rows of several cases."""
    flat = [(case, score) for case, found in enumerate(scores) for score in found]
    return ScoreTable(
        case=np.array([case for case, _ in flat]),
        metric=np.array([score.metric for _, score in flat]),
        label=np.array([score.label for _, score in flat]),
        value=np.array([score.value for _, score in flat], float),
        status=np.array([score.status for _, score in flat]),
        attributes={},
        cases=len(scores),
        facts={},
    )


def scored(reference, prediction, sizes=(2, 4)):
    metrics = [name for name, found in available("mask").items() if "instances" in found.rules and found.intermediate]
    return segmentation_scores(
        line(reference).astype(np.uint8),
        line(prediction).astype(np.uint8),
        (1, 1),
        labels={1: "lesion"},
        metrics=metrics,
        instances={"sizes": sizes},
    )


def test_a_run_is_counted_as_a_whole():
    rows = rows_of(
        [
            scored("x.xx.xxxx.x", "x.......x.."),  # sizes 1, 2, 4, 1: only the first matches, one is spurious
            scored("xxx........", "xxx........"),  # 3
            scored("x..........", "..........."),  # missed
            scored("...........", ".......x..."),  # made up
            scored("...........", "..........."),
        ]
    )
    # TP 1 + 1, FN 3 + 0 + 1, FP 1 + 0 + 0 + 1.
    assert pooled_instance_f1(rows) == pytest.approx(2 * 2 / (2 * 2 + 4 + 2))
    assert pooled_instance_precision(rows) == pytest.approx(2 / 4)
    assert pooled_instance_recall(rows) == pytest.approx(2 / 6)
    # Below 2: three, one found. From 2 to below 4: the 2 and the 3. From 4: one, missed.
    assert sensitivity_small(rows) == pytest.approx(1 / 3)
    assert sensitivity_medium(rows) == pytest.approx(1 / 2)
    assert sensitivity_large(rows) == 0


def test_a_run_with_a_case_that_could_not_be_counted_has_no_pooled_value():
    found = scored("x", "x")
    rows = rows_of([found, [score._replace(value=math.nan, status="failed") for score in found]])
    assert math.isnan(pooled_instance_f1(rows))
    assert math.isnan(sensitivity_small(rows))
    assert math.isnan(sensitivity_large(rows_of([found])))


def test_missed_and_made_up_labels_follow_the_policy_for_empty_masks():
    reference = np.zeros((4, 4, 4), np.uint8)
    reference[:2, :2, :2] = 1
    for masks, status in (((reference, 0 * reference), "missed"), ((0 * reference, reference), "hallucinated")):
        scores = segmentation_scores(*masks, (1, 1, 1), labels={1: "x"}, metrics=["pq", "sq", "instance_f1"])
        assert [(score.value, score.status) for score in scores] == [(0, status)] * 3
    empty = 0 * reference
    (score,) = segmentation_scores(empty, empty, (1, 1, 1), labels={1: "x"}, metrics=["pq"])
    assert math.isnan(score.value)


def test_the_rule_is_printed():
    assert InstanceRule().describe() == (
        "instances: parts joined by corners, hungarian matching by IoU >= 0.5, small < 100 mm3, large >= 1000 mm3"
    )
    rule = InstanceRule.of({"matching": "centroid", "threshold": 5, "min_volume": 3, "sizes": [10, 20]})
    assert rule.describe() == (
        "instances: parts joined by corners of at least 3 mm3, hungarian matching by centroids <= 5 mm apart, "
        "small < 10 mm3, large >= 20 mm3"
    )
    assert "any overlap" in InstanceRule.of({"matching": "overlap"}).describe()
    assert InstanceRule.of(rule) is rule
    assert InstanceRule.of(None) == InstanceRule.of({}) == InstanceRule()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"treshold": 1}, r"got 'treshold'; did you mean 'threshold'\?"),
        ({"matching": "dice"}, r"got 'dice'"),
        ({"assignment": "hungarain"}, r"got 'hungarain'; did you mean 'hungarian'\?"),
        ({"threshold": math.nan}, r"instances\.threshold to be a number of at least 0, got nan"),
        ({"sizes": [5, 5]}, r"instances\.sizes to be two volumes above 0, the smaller first, got \[5, 5\]"),
        ({"sizes": 5}, r"instances\.sizes to be two volumes"),
    ],
)
def test_rules_that_are_refused(wanted, words):
    with pytest.raises(UsageError, match=words):
        InstanceRule.of(wanted)


def best_sum(reference, prediction, threshold):
    """The largest sum of IoU over all one-to-one assignments, tried one by one."""
    ones, others = range(1, reference.max(initial=0) + 1), range(1, prediction.max(initial=0) + 1)
    if len(ones) > len(others):
        return best_sum(prediction, reference, threshold)

    def iou(a, b):
        value = ((reference == a) & (prediction == b)).sum() / ((reference == a) | (prediction == b)).sum()
        return value if value >= threshold else 0

    return max(
        sum(iou(a, b) for a, b in zip(ones, order, strict=True)) for order in itertools.permutations(others, len(ones))
    )


@st.composite
def two_masks(draw):
    cells = st.lists(st.booleans(), min_size=24, max_size=24)
    return tuple(np.array(draw(cells)).reshape(3, 8) & (np.arange(8) % 3 > 0) for _ in range(2))


@settings(deadline=None, max_examples=30)
@given(two_masks(), st.sampled_from([0.2, 0.5]), st.sampled_from(["face", "corner"]))
def test_hungarian_matching_is_the_best_there_is(masks, threshold, connectivity):
    rule = InstanceRule(threshold=threshold, connectivity=connectivity)
    found = matched_instances(LabelPair(*masks, (1, 1), Settings(instances=rule)))
    if max(found.reference.max(initial=0), found.prediction.max(initial=0)) > 6:
        return
    assert found.ious.sum() == pytest.approx(best_sum(found.reference, found.prediction, threshold))


@settings(deadline=None, max_examples=30)
@given(two_masks(), st.sampled_from(["iou", "overlap", "centroid"]), st.sampled_from(["greedy", "hungarian"]))
def test_bounds_symmetry_and_identity(masks, matching, assignment):
    rule = Settings(instances=InstanceRule(matching=matching, assignment=assignment))
    there, back = LabelPair(*masks, (1, 1), rule), LabelPair(*masks[::-1], (1, 1), rule)
    if not masks[0].any():
        return
    assert 0 <= pq(there) <= rq(there) <= 1
    assert pq(there) == pytest.approx(rq(there) * sq(there))
    assert instance_f1(there) == pytest.approx(rq(there))
    if matching == "iou":  # above 0.5 there is only one way to match
        assert pq(there) == pytest.approx(pq(back))
    same = LabelPair(masks[0], masks[0], (1, 1), rule)
    assert (pq(same), rq(same), instance_dice(same), instance_hd95(same)) == (1, 1, 1, 0)

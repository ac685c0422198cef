"""Detections: LUNA16's protocol and average precision, by hand and against plain brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_curve

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available
from medimg_eval.metrics.detection import (
    CPM_RATES,
    DetectionRule,
    Detections,
    average_precision,
    box_ious,
    cpm,
    detection_recall,
    detection_scores,
    froc,
    judged_boxes,
    judged_points,
)

ALL = ("detection_score", "n_reference_lesions", "false_negatives", "detection_recall")


def luna16(candidates, confidences, centres, diameters, counted=None, rule="luna16"):
    return judged_points(
        np.array(candidates, float).reshape(-1, 3),
        np.array(confidences, float),
        np.array(centres, float).reshape(-1, 3),
        np.array(diameters, float),
        np.ones(len(diameters), bool) if counted is None else np.array(counted, bool),
        DetectionRule.of(rule),
    )


def told(found):
    """The rows without their order."""
    return sorted(zip(found.confidences.tolist(), found.statuses, strict=True))


def run(*cases, label="nodule", failed=0):
    """The rows of a run, each case given as (confidence, status) pairs and a number of lesions."""
    rows = []
    for case, (candidates, lesions) in enumerate(cases):
        rows += [(case, "detection_score", label, value, status) for value, status in candidates]
        rows.append((case, "n_reference_lesions", label, lesions, "present"))
    return of_rows(rows, len(cases) + failed)


def of_rows(rows, cases):
    columns = list(zip(*rows, strict=True))
    return ScoreTable(
        case=np.array(columns[0]),
        metric=np.array(columns[1]),
        label=np.array(columns[2]),
        value=np.array(columns[3], float),
        status=np.array(columns[4]),
        attributes={},
        cases=cases,
        facts={},
    )


# Sorted: a hit, a false one, another, then a hit and a false one of the same confidence, then a hit.
WORKED_OUT = run(
    ([(0.95, "ignored"), (0.9, "hit"), (0.8, "false"), (0.5, "hit")], 2),
    ([(0.7, "false"), (0.5, "false"), (0.3, "hit")], 1),
)


def test_a_candidate_hits_within_the_radius_and_not_on_it():
    found = luna16([(0, 0, 4.9), (0, 0, 5)], [0.2, 0.9], [(0, 0, 0)], [10])
    assert told(found) == [(0.2, "hit"), (0.9, "false")]
    assert (found.lesions, found.missed) == (1, 0)


def test_the_most_confident_candidate_of_a_finding_counts_and_the_others_are_ignored():
    found = luna16([(0, 0, 0), (1, 0, 0), (2, 0, 0)], [0.2, 0.7, 0.7], [(0, 0, 0)], [10])
    assert told(found) == [(0.2, "ignored"), (0.7, "hit"), (0.7, "ignored")]


def test_candidates_on_findings_that_need_not_be_found_are_ignored():
    places = [(0, 0, 0), (20, 0, 0), (40, 0, 0)]
    found = luna16(places, [0.1, 0.2, 0.3], places[:2], [10, 10], counted=[True, False])
    assert told(found) == [(0.1, "hit"), (0.2, "ignored"), (0.3, "false")]
    assert found.lesions == 1


def test_a_candidate_on_both_kinds_of_findings_is_a_hit():
    found = luna16([(0, 0, 0)], [0.5], [(1, 0, 0), (-1, 0, 0)], [6, 6], counted=[False, True])
    assert told(found) == [(0.5, "hit")]


def test_a_candidate_within_two_findings_hits_both_as_in_the_authors_code():
    found = luna16([(0, 0, 0)], [0.5], [(1, 0, 0), (-1, 0, 0)], [6, 6])
    assert told(found) == [(0.5, "hit"), (0.5, "hit")]
    assert found.missed == 0


def test_a_finding_of_unknown_size_is_10_mm_wide():
    for unknown in (-1, math.nan):
        assert told(luna16([(0, 0, 4.9)], [1], [(0, 0, 0)], [unknown])) == [(1, "hit")]
        assert told(luna16([(0, 0, 5.1)], [1], [(0, 0, 0)], [unknown])) == [(1, "false")]


def test_scans_without_candidates_or_without_findings():
    assert luna16([], [], [(0, 0, 0)], [10]).missed == 1
    only_false = luna16([(0, 0, 0)], [0.5], [], [])
    assert (told(only_false), only_false.lesions) == ([(0.5, "false")], 0)
    nothing = luna16([], [], [], [])
    assert (told(nothing), nothing.missed) == ([], 0)
    assert math.isnan(detection_recall(nothing))


def test_only_the_most_confident_candidates_of_a_scan_are_kept():
    rule = DetectionRule(limit=2)
    assert told(luna16([(0, 0, 0)] * 3, [0.1, 0.3, 0.2], [], [], rule=rule)) == [(0.2, "false"), (0.3, "false")]
    # As in the authors' code: those above the first one too many, so that equal ones go together.
    assert told(luna16([(0, 0, 0)] * 3, [0.1, 0.3, 0.1], [], [], rule=rule)) == [(0.3, "false")]


def test_froc_and_cpm_worked_out_by_hand():
    # (FP per scan, sensitivity): (0, 1/3), (0.5, 1/3), (1, 1/3), (1.5, 2/3), (1.5, 1).
    at = {rate: froc(WORKED_OUT, rate) for rate in (0, 0.125, 1, 1.25, 1.5, 2, 8)}
    third = pytest.approx(1 / 3)
    assert at == {0: third, 0.125: third, 1: third, 1.25: pytest.approx(0.5), 1.5: 1, 2: 1, 8: 1}
    assert cpm(WORKED_OUT) == pytest.approx((4 / 3 + 3) / 7)
    assert cpm(WORKED_OUT) == pytest.approx(np.mean([froc(WORKED_OUT, rate) for rate in CPM_RATES]))


def test_scans_without_any_row_of_candidates_count_as_scans():
    # One false candidate in four scans: 0.25 per scan.
    rows = run(([(0.9, "false"), (0.5, "hit")], 1), ([], 0), ([], 0), ([], 0))
    assert froc(rows, 0.125) == 0
    assert froc(rows, 0.25) == 1


def test_a_detector_without_false_candidates_has_its_sensitivity_everywhere():
    assert cpm(run(([(0.9, "hit")], 2))) == 0.5


def test_missed_lesions_of_a_failed_case_lower_the_sensitivity_and_an_unreadable_case_is_left_out():
    good = ([(0.9, "hit")], 1)
    assert cpm(run(good, ([], 1))) == 0.5
    assert cpm(run(good, ([], math.nan))) == 1
    rows = run(([(0.9, "false"), (0.8, "hit")], 1), ([], math.nan))
    assert (froc(rows, 0.9), froc(rows, 1)) == (pytest.approx(0), 1)  # one false candidate in one scan


def test_without_a_finding_there_is_no_sensitivity():
    rows = run(([(0.9, "false")], 0))
    assert all(math.isnan(value) for value in (cpm(rows), froc(rows, 1), average_precision(rows)))


def test_several_labels_are_averaged():
    perfect = [(0, "detection_score", "a", 0.9, "hit"), (0, "n_reference_lesions", "a", 1, "present")]
    missing = [(0, "n_reference_lesions", "b", 2, "missed")]
    unasked = [(0, "n_reference_lesions", "c", 0, "absent"), (0, "detection_score", "c", 0.4, "false")]
    rows = of_rows(perfect + missing + unasked, 1)
    assert cpm(rows) == froc(rows, 1) == average_precision(rows) == 0.5


def test_average_precision_worked_out_by_hand():
    # (recall, precision): (1/3, 1), (1/3, 1/2), (1/3, 1/3), (2/3, 2/5), (1, 3/6); at 2/3 or above the best is 1/2.
    assert average_precision(WORKED_OUT) == pytest.approx(1 / 3 + 1 / 6 + 1 / 6)


def edges(*boxes):
    return np.array(boxes, float)


def test_ious_of_boxes():
    ones, others = edges((0, 0, 0, 2, 2, 2)), edges((1, 1, 1, 3, 3, 3), (0, 0, 0, 2, 2, 1), (2, 0, 0, 3, 2, 2))
    assert box_ious(ones, others) == pytest.approx(np.array([[1 / 15, 0.5, 0]]))
    nothing = edges((1, 1, 1, 1))
    assert box_ious(nothing, nothing).tolist() == [[0]]


def test_boxes_choose_in_the_order_of_their_confidence():
    boxes = edges((0, 0, 10, 10), (20, 0, 30, 10), (50, 0, 60, 10))
    candidates = edges((0, 0, 10, 9), (0, 0, 10, 10), (20, 0, 30, 10), (50, 0, 60, 10), (80, 0, 90, 10))
    counted = np.array([True, True, False])
    found = judged_boxes(candidates, np.array([0.9, 0.8, 0.3, 0.7, 0.6]), boxes, counted, DetectionRule.of("iou"))
    # The second overlaps the first finding better and comes too late.
    assert found.statuses == ("hit", "false", "hit", "ignored", "false")
    assert (found.lesions, found.missed) == (2, 0)


def test_a_box_of_the_threshold_hits():
    for threshold, status in ((0.5, "hit"), (0.51, "false")):
        rule = DetectionRule.of({"preset": "iou", "threshold": threshold})
        found = judged_boxes(edges((0, 0, 10, 5)), np.array([1.0]), edges((0, 0, 10, 10)), np.array([True]), rule)
        assert found.statuses == (status,)


def test_boxes_without_any():
    rule, none = DetectionRule.of("iou"), np.zeros((0, 4))
    assert judged_boxes(none, np.zeros(0), edges((0, 0, 1, 1)), np.array([True]), rule).missed == 1
    assert judged_boxes(edges((0, 0, 1, 1)), np.ones(1), none, np.zeros(0, bool), rule).statuses == ("false",)


def test_rows_of_a_case():
    found = Detections(np.array([0.9, 0.4]), ("hit", "false"), 3)
    assert [tuple(score) for score in detection_scores("nodule", found, ALL)] == [
        ("nodule", "detection_score", 0.9, "hit"),
        ("nodule", "detection_score", 0.4, "false"),
        ("nodule", "n_reference_lesions", 3, "present"),
        ("nodule", "false_negatives", 2, "present"),
        ("nodule", "detection_recall", pytest.approx(1 / 3), "present"),
    ]
    none = np.zeros(0)
    for judged, status in (
        (Detections(none, (), 1), "missed"),
        (Detections(none, (), 0), "absent"),
        (Detections(np.ones(1), ("false",), 0), "hallucinated"),
    ):
        assert detection_scores("nodule", judged, ("n_reference_lesions",))[0].status == status
    assert detection_scores("nodule", Detections(none, (), 1), ("false_negatives",), "failed")[0].status == "failed"


def test_which_metrics_there_are():
    assert set(available("detection")) == {*ALL, "coco_candidate", "coco_object"}
    assert [name for name in ALL if not available("detection")[name].intermediate] == ["detection_recall"]
    assert all(
        available("run")[name].needs == ("detection_score", "n_reference_lesions")
        for name in ("cpm", "froc", "average_precision")
    )


def test_the_rule_is_printed():
    assert (
        DetectionRule.of("luna16").describe() == "hit: distance to the centre < radius, at most 100 candidates a case"
    )
    assert DetectionRule.of({"preset": "iou", "threshold": 0.1}).describe() == "hit: IoU >= 0.1"
    assert DetectionRule.of({"limit": None}) == DetectionRule()
    rule = DetectionRule(limit=3)
    assert DetectionRule.of(rule) is rule


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("luna", r"got 'luna'; did you mean 'luna16'\?"),
        ({"treshold": 1}, r"got 'treshold'; did you mean 'threshold'\?"),
        ({"matching": "iuo"}, r"got 'iuo'; did you mean 'iou'\?"),
        ({"threshold": 0}, r"matching\.threshold to be an IoU above 0, at most 1, got 0"),
        ({"limit": 0}, r"matching\.limit to be at least 1, or null for all, got 0"),
        ({"threshold": "half"}, r"matching\.threshold to be an IoU above 0, at most 1, got 'half'"),
        ({"limit": 2.5}, r"matching\.limit to be at least 1, or null for all, got 2.5"),
        (5, "Expected matching to be a preset's name or a mapping, got 5"),
    ],
)
def test_rules_that_are_refused(wanted, words):
    with pytest.raises(UsageError, match=words):
        DetectionRule.of(wanted)


def by_roc_curve(rows, rate):
    """The sensitivity as LUNA16's script has it: from a ROC curve of hits against false candidates."""
    candidates = rows.of("detection_score")
    candidates = candidates.where(candidates.status != "ignored")
    hit = candidates.status == "hit"
    lesions = rows.of("n_reference_lesions").value.sum()
    if hit.all():
        return hit.sum() / lesions
    if not hit.any():
        return 0.0
    false_rate, true_rate, _ = roc_curve(hit, candidates.value)
    return np.interp(rate, false_rate * (~hit).sum() / rows.cases, true_rate * hit.sum() / lesions)


def area_by_steps(rows):
    """Average precision from its definition: for every lesion more, the best precision that reaches it."""
    candidates = rows.of("detection_score")
    candidates = candidates.where(candidates.status != "ignored")
    lesions = int(rows.of("n_reference_lesions").value.sum())
    points = []
    for limit in set(candidates.value.tolist()):
        above = candidates.value >= limit
        hits = int((above & (candidates.status == "hit")).sum())
        points.append((hits, hits / above.sum()))
    best = [max((precision for hits, precision in points if hits >= k), default=0) for k in range(1, lesions + 1)]
    return sum(best) / lesions


@st.composite
def runs(draw):
    kinds = st.sampled_from(["hit", "false", "ignored"])
    cases = []
    for _ in range(draw(st.integers(1, 4))):
        candidates = draw(st.lists(st.tuples(st.integers(0, 6).map(float), kinds), max_size=6))
        hits = sum(status == "hit" for _, status in candidates)
        cases.append((candidates, hits + draw(st.integers(0, 2))))
    cases.append(([], 1))
    return run(*cases)


@settings(deadline=None, max_examples=30)
@given(runs(), st.sampled_from([0.1, 0.25, 0.8, 1, 8]))
def test_any_run_has_the_sensitivities_of_the_published_script(rows, rate):
    assert froc(rows, rate) == pytest.approx(by_roc_curve(rows, rate))


@settings(deadline=None, max_examples=30)
@given(runs())
def test_bounds_order_and_what_changes_nothing(rows):
    assert average_precision(rows) == pytest.approx(area_by_steps(rows))
    values = [froc(rows, rate) for rate in CPM_RATES]
    assert values == sorted(values)
    assert values[0] >= 0
    assert values[-1] <= 1
    assert cpm(rows) == pytest.approx(np.mean(values))
    turned = rows.where(np.arange(len(rows.case))[::-1])
    assert (cpm(turned), average_precision(turned)) == (
        pytest.approx(cpm(rows)),
        pytest.approx(average_precision(rows)),
    )
    kept = rows.where(rows.status != "ignored")
    assert cpm(kept) == pytest.approx(cpm(rows))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 4))
def test_every_candidate_is_told_of_once(seed, candidates, findings):
    rng = np.random.default_rng(seed)
    found = luna16(
        rng.uniform(0, 10, (candidates, 3)),
        rng.integers(0, 4, candidates),
        100 * np.arange(findings)[:, None] + np.full(3, 5.0),  # apart, so that none lies within two
        np.full(findings, 6.0),
    )
    assert len(found.statuses) == candidates
    assert 0 <= found.missed <= found.lesions == findings

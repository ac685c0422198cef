"""Hits, F1 and FROC as the challenges' scripts have them: MIDOG, TUPAC16 and CAMELYON16."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from skimage import measure

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, get
from medimg_eval.metrics.detection import DetectionRule, detection_scores, judged_points, judged_regions

MIDOG, TUPAC, CAMELYON = (DetectionRule.of(name) for name in ("midog", "tupac16", "camelyon16"))
EVIDENCE = ("detection_score", "n_reference_lesions")


def mm(*um):
    return np.array(um, float).reshape(-1, 2) / 1000


def judged(candidates, findings, rule, scores=None, counted=None):
    scores = np.ones(len(candidates)) if scores is None else np.array(scores, float)
    counted = np.ones(len(findings), bool) if counted is None else np.array(counted)
    return judged_points(candidates, scores, findings, np.full(len(findings), np.nan), counted, rule)


def table(cases):
    """The rows of Detections, case by case."""
    scores = [(at, score) for at, found in enumerate(cases) for score in detection_scores("m", found, EVIDENCE)]
    return ScoreTable(
        np.array([at for at, _ in scores]),
        np.array([score.metric for _, score in scores]),
        np.array(["m"] * len(scores)),
        np.array([score.value for _, score in scores]),
        np.array([score.status for _, score in scores]),
        {},
        len(cases),
        {},
    )


def test_midog_hits_by_hand():
    # 7.5 µm is within; a second candidate of a mitosis is false; one candidate hits one mitosis only.
    found = judged(mm((7.5, 0), (3, 0), (7.6, 50)), mm((0, 0), (0, 50)), MIDOG)
    assert (found.statuses, found.missed) == (("false", "hit", "false"), 1)
    found = judged(mm((0, 0)), mm((0, 0), (0, 5)), MIDOG)
    assert (found.statuses, found.missed) == (("hit",), 1)
    assert judged(mm((7.5, 0)), mm((0, 0)), MIDOG).statuses == ("hit",)


def test_tupac_counts_several_detections_of_one_mitosis_once():
    found = judged(mm((7.4, 0), (3, 0), (7.5, 50)), mm((0, 0), (0, 50)), TUPAC, scores=[0.9, 0.8, 0.7])
    assert sorted(found.statuses) == ["false", "hit", "ignored"]
    assert found.missed == 1


def test_what_need_not_be_found_takes_what_is_left():
    found = judged(mm((0, 0), (1, 0), (2, 0)), mm((0, 0), (0, 1)), MIDOG, counted=[False, True])
    assert found.statuses == ("hit", "ignored", "false")
    assert found.lesions == 1


def test_candidates_of_little_confidence_are_left_out_before_anything_is_matched():
    sure = DetectionRule.of({"preset": "midog", "least_score": 0.5})
    found = judged(mm((0, 0), (5, 0)), mm((0, 0)), sure, scores=[0.4, 0.5])
    assert (found.confidences.tolist(), found.statuses) == ([0.5], ("hit",))


def in_turn(findings, candidates, radius):
    """The counting of MIDOG's container (evalutils' `score_detection`), from its description: TP, FP, FN."""
    taken, tp = set(), 0
    for finding in findings:
        apart = [math.dist(finding, one) for one in candidates]
        near = [at for at in np.argsort(apart, kind="stable").tolist() if apart[at] <= radius and at not in taken]
        taken |= set(near[:1])
        tp += bool(near)
    return tp, len(candidates) - tp, len(findings) - tp


# The examples of evalutils' own tests: places, radius of 1, and TP, FP, FN.
PUBLISHED = [
    ([(10, 10), (5, 5), (2, 2), (11.2, 11.2)], [(0, 0), (10.5, 10.5), (1, 2), (2.7, 2.7), (30, 30)], (2, 3, 2)),
    ([(0, 0), (0, 0.5), (0, -0.5)], [(0, 0)], (1, 0, 2)),
    ([(0, 0), (0, 0.5), (0, -0.5)], [(0, 0), (0, 0)], (2, 0, 1)),
]


@pytest.mark.parametrize(("findings", "candidates", "expected"), PUBLISHED)
def test_what_the_tests_of_evalutils_expect(findings, candidates, expected):
    rule = DetectionRule.of({"preset": "midog", "radius_um": 1})
    found = judged(mm(*candidates), mm(*findings), rule)
    hits = found.statuses.count("hit")
    assert (hits, found.statuses.count("false"), found.missed) == expected == in_turn(findings, candidates, 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4))
def test_midogs_f1_is_that_of_its_container(seed, sizes):
    random = np.random.default_rng(seed)
    counts, cases = np.zeros(3, int), []
    for due, said in sizes:
        # No two distances are equal: between such, rounding decides which candidate is the nearest, there as here.
        findings, candidates = 30 * random.random((due, 2)), 30 * random.random((said, 2))
        counts += in_turn(findings.tolist(), candidates.tolist(), 7.5)
        cases.append(judged(candidates / 1000, findings / 1000, MIDOG, scores=random.random(said)))
    tp, fp, fn = counts.tolist()
    value = get("detection_f1").function(table(cases))
    assert value == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp + fp + fn else math.nan, nan_ok=True)


def lesions_of(random, shape=(60, 80)):
    mask = np.zeros(shape, bool)
    for _ in range(random.integers(0, 6)):
        row, column = random.integers(0, shape[0] - 12), random.integers(0, shape[1] - 12)
        mask[row : row + random.integers(1, 30), column : column + random.integers(1, 30)] = True
    return mask


def as_the_script(mask, candidates, scores, um_per_px):
    """Evaluation_FROC.py's steps on one slide, with `regionprops` and `label` of scikit-image as there."""
    distance = ndimage.distance_transform_edt(~mask)
    binary = ndimage.binary_fill_holes(distance < 75 / (um_per_px * 2)) if mask.any() else mask
    evaluation = measure.label(binary, connectivity=2)
    itc = [part.label for part in measure.regionprops(evaluation) if part.axis_major_length < 275 / um_per_px]
    return evaluation, itc


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4))
def test_camelyons_score_is_that_of_its_script(seed, slides):
    """MONAI's functions are the script's, step by step."""
    pytest.importorskip("torch")
    from monai.metrics.froc import compute_fp_tp_probs_nd, compute_froc_curve_data, compute_froc_score

    random, um_per_px = np.random.default_rng(seed), 0.243 * 32
    false, hit, lesions, cases = [], [], 0, []
    for _ in range(slides):
        mask = lesions_of(random)
        count = int(random.integers(0, 12))
        places = random.random((count, 2)) * mask.shape
        scores = random.integers(1, 9, count) / 8
        evaluation, itc = as_the_script(mask, places, scores, um_per_px)
        fp, tp, due = compute_fp_tp_probs_nd(scores, np.floor(places).astype(int), evaluation, itc)
        false, hit, lesions = [*false, *fp], [*hit, *tp], lesions + due
        # The script takes the pixel of a level whose corner is whole; here the centre is.
        cases.append(judged_regions(places - 0.5, scores, mask, (um_per_px,) * 2, CAMELYON))
    assert sum(case.lesions for case in cases) == lesions
    if not lesions:
        assert math.isnan(get("froc_score").function(table(cases)))
        return
    # A lesion that was missed has the probability 0 there, so that leaving out the least leaves nothing out.
    expected = compute_froc_score(*compute_froc_curve_data(np.array([*false]), np.array([*hit, 0.0]), lesions, slides))
    assert get("froc_score").function(table(cases)) == pytest.approx(expected)


def test_lesions_close_by_are_one_and_tumour_cells_need_not_be_found():
    mask = np.zeros((40, 120), bool)
    mask[5:35, 5:45] = mask[5:35, 51:80] = True  # 6 pixels of 10 µm apart: less than twice 37.5 µm
    mask[20, 100] = True  # with its margin 7 pixels wide: isolated cells
    found = judged_regions(
        np.array([[20.0, 10], [20, 60], [20, 100], [0, 110], [99, 5]]), np.array([0.9, 0.8, 0.7, 0.6, 0.5]), mask,
        (10, 10), CAMELYON,
    )  # fmt: skip
    held = dict(zip(found.confidences.tolist(), found.statuses, strict=True))
    assert held == {0.9: "hit", 0.8: "ignored", 0.7: "ignored", 0.6: "false", 0.5: "false"}
    assert found.lesions == 1


def test_on_a_slide_without_a_tumour_every_candidate_is_false():
    found = judged_regions(np.array([[1.0, 1]]), np.array([0.9]), np.zeros((4, 4), bool), (10, 10), CAMELYON)
    assert found == (found.confidences, ("false",), 0)


def test_pixels_that_are_not_square_are_measured_in_micrometres():
    mask = np.zeros((41, 41), bool)
    mask[20, 20] = True
    wide = DetectionRule.of({"preset": "camelyon16", "margin_um": 25, "smallest_um": 0})
    places = {(20, 22): "hit", (20, 23): "false", (24, 20): "hit", (25, 20): "false"}
    for place, status in places.items():
        assert judged_regions(np.array([place]) * 1.0, np.ones(1), mask, (5, 10), wide).statuses == (status,)


def test_sensitivities_by_hand():
    """Two slides, three lesions: the curve runs through (0, 1/3), (1/2, 1/3) and (1, 2/3)."""
    one = table([
        judged(mm((0, 0), (500, 0)), mm((0, 0), (90, 90)), TUPAC, scores=[0.9, 0.8]),
        judged(mm((0, 0), (500, 0)), mm((0, 0)), TUPAC, scores=[0.6, 0.7]),
    ])  # fmt: skip
    assert get("froc_score").function(one) == pytest.approx((1 / 3 + 1 / 3 + 4 * 2 / 3) / 6)
    assert get("detection_f1").function(one) == pytest.approx(2 * 2 / (2 + 2 + 3))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("midoc", "got 'midoc'; did you mean 'midog'"),
        ({"matching": "nearest"}, "radius_um with matching 'nearest': 7.5 is that of MIDOG"),
        ({"preset": "midog", "radius_um": -1}, "matching.radius_um to be a number, of micrometres at least 0, got -1"),
        ({"least_score": "much"}, "matching.least_score to be a number"),
        ({"matching": "regoin"}, "got 'regoin'; did you mean 'region'"),
    ],
)
def test_rules_that_cannot_be_meant(wanted, words):
    with pytest.raises(UsageError, match=words):
        DetectionRule.of(wanted)


def test_rules_in_words():
    assert MIDOG.describe() == "hit: nearest within 7.5 µm, one each"
    assert TUPAC.describe() == "hit: distance to the centre < 7.5 µm"
    assert CAMELYON.describe() == "hit: on a lesion grown by 37.5 µm; those < 275 µm ignored"
    assert (
        DetectionRule.of({"least_score": 0.3})
        .describe()
        .endswith("radius, confidence >= 0.3, at most 100 candidates a case")
    )

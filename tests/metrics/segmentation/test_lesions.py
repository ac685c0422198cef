"""Lesion-wise metrics against a plain reading of the challenges' rules, written here on whole volumes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from surface_distance import compute_robust_hausdorff, compute_surface_distances

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelPair, LesionRule, Settings, available, segmentation_scores
from medimg_eval.metrics.segmentation.lesions import (
    legacy_dice,
    legacy_hd95,
    legacy_nsd,
    legacy_sensitivity,
    legacy_specificity,
    lesion_dice,
    lesion_f1,
    lesion_fn,
    lesion_fp,
    lesion_hd95,
    lesion_nsd,
    lesion_precision,
    lesion_sensitivity,
    lesion_tp,
)
from medimg_eval.metrics.segmentation.matching_rules import LESION_RULES
from medimg_eval.metrics.segmentation.pairs import label_pairs

# surface-distance 0.1 calls SciPy by names that SciPy has moved.
pytestmark = pytest.mark.filterwarnings("ignore:Please import `(correlate|distance_transform_edt)`:DeprecationWarning")

SHAPE = (40, 30, 24)
UNIT = (1.0, 1.0, 1.0)
PERFECT = {"dice": 1.0, "hd95": 0.0, "nsd": 1.0, "tp": 0, "fp": 0, "fn": 0}


def blocks(*boxes, shape=SHAPE):
    """A mask of boxes, each given by its first voxel and its edges."""
    mask = np.zeros(shape, bool)
    for start, edges in boxes:
        mask[tuple(slice(a, a + n) for a, n in zip(start, edges, strict=True))] = True
    return mask


def judged(reference, prediction, spacing=UNIT, rule="brats2023-gli", name=""):
    pair = LabelPair(reference, prediction, spacing, Settings(lesions=LesionRule.of(rule)), name)
    return {
        "dice": lesion_dice(pair),
        "hd95": lesion_hd95(pair),
        "nsd": lesion_nsd(pair, 1.0),
        "tp": lesion_tp(pair),
        "fp": lesion_fp(pair),
        "fn": lesion_fn(pair),
    }


TISSUES = {"WT": (1, 2, 3), "TC": (1, 3), "NETC": (1,), "SNFH": (2,), "ET": (3,), "RC": (4,)}


def tissues(shape=SHAPE, **boxes):
    """A label map of boxes of each tissue; the later tissues lie above."""
    found = np.zeros(shape, np.uint8)
    for name, places in boxes.items():
        found[blocks(*places, shape=shape)] = TISSUES[name][0]
    return found


def judged_maps(reference, prediction, rule, spacing=UNIT):
    asked = {name: f"lesion_{name}" for name in ("dice", "hd95", "tp", "fp", "fn")} | {"nsd": "lesion_nsd@1"}
    scores = segmentation_scores(
        reference, prediction, spacing, labels=TISSUES, metrics=list(asked.values()), lesions=rule, empty="brats2024"
    )
    values = {(score.label, score.metric): score.value for score in scores}
    return {label: {name: values[label, metric] for name, metric in asked.items()} for label in TISSUES}


def border_distances(start, target, spacing):
    def border(mask):
        return mask & ~ndimage.binary_erosion(mask)

    return ndimage.distance_transform_edt(~border(target), sampling=spacing)[border(start)]


GROW = ndimage.generate_binary_structure(3, 2)


def numbered_plainly(reference, prediction, spacing, rule):
    """The lesions of both masks by number, before any are joined through other labels."""
    all_26 = np.ones((3, 3, 3))

    def merged(mask):
        if not rule.dilation:
            return ndimage.label(mask, all_26)[0]
        return ndimage.label(ndimage.binary_dilation(mask, GROW, rule.dilation), all_26)[0] * mask

    truth = merged(reference)
    guess = merged(prediction) if rule.merge_predictions else ndimage.label(prediction, all_26)[0]
    unit = {"keep": math.inf, "drop-voxels": 1.0, "drop-mm3": math.prod(spacing)}[rule.small_predictions]
    for number in np.unique(guess[guess > 0]):
        if (guess == number).sum() * unit <= rule.min_volume:
            guess[guess == number] = 0
    return truth, guess


def joined_plainly(numbers, others):
    """Lesions that touch, as the first of another label's, the same one, become one; a single touch changes nothing."""
    for other in others:
        met = {}
        for number in set(np.unique(numbers)) - {0}:
            touched = set(np.unique(other[ndimage.binary_dilation(numbers == number, GROW)])) - {0}
            met |= {number: touched} if touched else {}
        if sum(len(touched) for touched in met.values()) > 1:
            fresh = numbers.max() + 1
            new = numbers.copy()
            for number, touched in met.items():
                new[numbers == number] = fresh + min(touched)
            numbers = new
    return numbers


def maps_plainly(reference, prediction, spacing, rule, labels):
    """Each label of two label maps, scored with what the rule joins."""
    found = {
        name: numbered_plainly(np.isin(reference, values), np.isin(prediction, values), spacing, rule.for_label(name))
        for name, values in labels.items()
    }
    return {
        name: scored_plainly(
            *(
                joined_plainly(found[name][side], [found[one][side] for one in rule.for_label(name).join_through])
                for side in (0, 1)
            ),
            spacing,
            rule.for_label(name),
        )
        for name in labels
    }


def plainly(reference, prediction, spacing, rule):
    """The authors' rules step by step, lesion by lesion, on the whole volume."""
    return scored_plainly(*numbered_plainly(reference, prediction, spacing, rule), spacing, rule)


def scored_plainly(truth, guess, spacing, rule):
    """What is said of numbered lesions."""
    penalty = math.dist(truth.shape, (0, 0, 0)) if rule.penalty == "diagonal" else rule.penalty
    rows, touched, found_count = [], set(), 0
    for number in np.unique(truth[truth > 0]):
        lesion = truth == number
        around = ndimage.binary_dilation(lesion, GROW, rule.dilation) if rule.dilation else lesion
        found = set(np.unique(guess[around])) - {0}
        touched |= found
        if lesion.sum() * math.prod(spacing) <= rule.min_volume:
            continue
        if not found:
            rows.append((0.0, penalty, 0.0))
            continue
        found_count += 1
        answer = np.isin(guess, list(found))
        there, back = border_distances(answer, lesion, spacing), border_distances(lesion, answer, spacing)
        rows.append(
            (
                2 * (answer & lesion).sum() / (answer.sum() + lesion.sum()),
                compute_robust_hausdorff(compute_surface_distances(lesion, answer, spacing), 95),
                (np.mean(there <= 1 + 1e-6) + np.mean(back <= 1 + 1e-6)) / 2,
            )
        )
    false = len(set(np.unique(guess)) - {0} - touched)
    counts = {"tp": found_count, "fp": false, "fn": len(rows) - found_count}
    rows += [(0.0, penalty, 0.0)] * (false if rule.false_positives else 0)
    if not rows:
        return PERFECT | counts
    return dict(zip(("dice", "hd95", "nsd"), np.mean(rows, axis=0).tolist(), strict=True)) | counts


BIG = ((4, 4, 4), (6, 6, 6))  # 216 voxels
CASES = {
    "nothing at all": ((), ()),
    "a false positive only": ((), [BIG]),
    "a missed lesion only": ([BIG], ()),
    "two parts that are one lesion by dilation, one of them predicted": ([BIG, ((14, 4, 4), (5, 5, 5))], [BIG]),
    "one prediction that touches two lesions": (
        [((2, 4, 4), (5, 5, 5)), ((20, 4, 4), (5, 5, 5))],
        [((4, 5, 5), (18, 3, 3))],
    ),
    "small lesions, one of them missed": ([BIG, ((25, 20, 15), (3, 3, 3)), ((35, 2, 2), (2, 2, 2))], [BIG]),
    "a prediction on a small lesion alone": ([((25, 20, 15), (3, 3, 3))], [((25, 20, 15), (3, 3, 2))]),
    "several predicted parts on one lesion": (
        [((4, 4, 4), (14, 6, 6))],
        [((4, 4, 4), (4, 6, 6)), ((10, 4, 4), (3, 6, 6)), ((16, 4, 4), (5, 5, 5))],
    ),
    "predicted parts close to each other and to no lesion": (
        [BIG],
        [BIG, ((30, 20, 10), (3, 3, 3)), ((35, 20, 10), (3, 3, 3)), ((30, 5, 18), (1, 1, 1))],
    ),
    "a prediction beside the lesion, within its dilation": ([BIG], [((12, 4, 4), (4, 6, 6))]),
    "a prediction beside the lesion, beyond its dilation": ([BIG], [((14, 4, 4), (5, 6, 6))]),
    "at the border of the image": ([((0, 0, 0), (6, 6, 6))], [((0, 0, 0), (5, 7, 6)), ((39, 29, 23), (1, 1, 1))]),
}


@pytest.mark.parametrize("spacing", [UNIT, (0.8, 1.0, 2.5)], ids=["isotropic", "anisotropic"])
@pytest.mark.parametrize("case", CASES)
def test_hand_made_cases_equal_the_rules_read_plainly(case, spacing):
    reference, prediction = (blocks(*boxes) for boxes in CASES[case])
    for name in ("brats2023-gli", "brats2023-met", "brats2024-gli", "brats2024-ped", "brats2024-men-rt"):
        expected = plainly(reference, prediction, spacing, LESION_RULES[name])
        assert judged(reference, prediction, spacing, name) == pytest.approx(expected, abs=1e-9), name


def test_values_worked_out_by_hand():
    lesion = blocks(((4, 4, 4), (8, 5, 5)))  # 200 mm3
    half = blocks(((4, 4, 4), (4, 5, 5)))
    spurious = blocks(((30, 20, 15), (1, 1, 1)))
    # Dice 2 * 100 / 300; a single voxel elsewhere is a false positive in 2023, and is dropped in 2024.
    assert judged(lesion, half)["dice"] == pytest.approx(2 / 3)
    with_false = judged(lesion, half | spurious)
    assert with_false["dice"] == pytest.approx(1 / 3)
    assert with_false["hd95"] == pytest.approx((judged(lesion, half)["hd95"] + 374) / 2)
    assert judged(lesion, half | spurious, rule="brats2024-ssa") == judged(lesion, half, rule="brats2024-ssa")
    assert (with_false["tp"], with_false["fp"], with_false["fn"]) == (1, 1, 0)


def test_nothing_at_all_is_perfect_and_either_alone_is_not():
    nothing, lesion = blocks(), blocks(BIG)
    assert judged(nothing, nothing) == PERFECT
    worst = {"dice": 0, "hd95": 374, "nsd": 0}
    assert judged(lesion, nothing) == worst | {"tp": 0, "fp": 0, "fn": 1}
    assert judged(nothing, lesion) == worst | {"tp": 0, "fp": 1, "fn": 0}


def test_how_far_dilation_reaches():
    # Two parts with g voxels between them: d steps on both sides, which may also be neighbours, need g <= 2 d.
    for steps, name in ((1, "brats2023-met"), (3, "brats2023-gli"), (5, "brats2024-ped")):
        for gap in (2 * steps, 2 * steps + 1):
            reference = blocks(((2, 2, 2), (6, 6, 6)), ((8 + gap, 2, 2), (6, 6, 6)))
            found = judged(reference, blocks(((2, 2, 2), (6, 6, 6))), rule=name)
            assert found["fn"] == (0 if gap == 2 * steps else 1)
            assert found["dice"] == pytest.approx(2 * 216 / (216 + 432) if gap == 2 * steps else 0.5)


def test_a_step_goes_over_edges_and_not_over_corners():
    lesion = blocks(((4, 4, 4), (4, 4, 4)))
    corner, edge = blocks(((8, 8, 8), (4, 4, 4))), blocks(((8, 8, 7), (4, 4, 4)))
    assert judged(lesion, corner, rule="brats2023-met")["fp"] == 1
    assert judged(lesion, edge, rule="brats2023-met")["fp"] == 0


def test_a_lesion_of_the_threshold_leaves_the_mean_and_a_larger_one_stays():
    big = blocks(BIG)
    for edges, missed in (((5, 5, 2), 0), ((3, 17, 1), 1)):  # 50 and 51 mm3
        found = judged(big | blocks(((25, 5, 15), edges)), big)
        assert found["fn"] == missed
        assert found["dice"] == pytest.approx(1 / (1 + missed))


def test_predicted_lesions_are_dropped_by_voxels_or_by_mm3():
    lesion, small = blocks(BIG), blocks(((25, 15, 10), (4, 5, 2)))  # 40 voxels
    for rule, spacing, false in (
        ("brats2024-ssa", (1, 1, 2), 0),  # 40 voxels, of at most 50
        ("brats2024-men-rt", (1, 1, 2), 1),  # 80 mm3
        ("brats2024-men-rt", (1, 1, 1), 0),
        ("brats2023-ssa", (1, 1, 1), 1),  # of any size
    ):
        assert judged(lesion, lesion | small, spacing, rule)["fp"] == false


def test_what_differs_between_the_years_and_the_labels():
    assert {name for name in LESION_RULES if name.startswith("brats2023")} == {
        f"brats2023-{challenge}" for challenge in ("gli", "ssa", "ped", "men", "met")
    }
    of = {name: LesionRule.of(name) for name in LESION_RULES}
    assert [(of[f"brats2023-{one}"].dilation, of[f"brats2023-{one}"].min_volume) for one in ("ped", "met")] == [
        (3, 50),
        (1, 2),
    ]
    assert [(of[f"brats2024-{one}"].dilation, of[f"brats2024-{one}"].min_volume) for one in ("ped", "ssa")] == [
        (5, 10),
        (3, 50),
    ]
    glioma = of["brats2024-gli"]
    assert (glioma.for_label("WT").min_volume, glioma.for_label("ET").min_volume) == (20, 10)
    assert (glioma.for_label("WT").dilation, glioma.for_label("RC").dilation) == (3, 5)
    assert (glioma.penalty, of["brats2024-ped"].penalty) == (337, 374)
    # A missed lesion of 15 mm3 counts as ET and not as WT.
    reference = tissues(ET=[((4, 4, 4), (5, 3, 1))])
    found = judged_maps(reference, np.zeros_like(reference), "brats2024-gli")
    assert (found["ET"]["dice"], found["WT"]["dice"]) == (0, 1)


def test_the_penalty_may_be_the_images_diagonal_in_voxels():
    nothing, lesion = np.zeros((3, 4, 12), bool), blocks(((0, 0, 0), (3, 4, 12)), shape=(3, 4, 12))
    assert judged(nothing, lesion, (2, 2, 2), "brats2024-met")["hd95"] == 13


def test_false_positives_cost_nothing_where_the_rule_says_so():
    found = judged(blocks(BIG), blocks(BIG, ((25, 15, 10), (6, 6, 6))), rule="brats2024-men-rt")
    assert (found["dice"], found["hd95"], found["fp"]) == (1, 0, 1)
    assert judged(blocks(), blocks(BIG), rule="brats2024-men-rt")["dice"] == 1


def test_shares_of_what_was_found():
    reference = blocks(BIG, ((25, 4, 4), (6, 6, 6)), ((25, 20, 14), (6, 6, 6)))
    pair = LabelPair(reference, blocks(BIG, ((4, 20, 14), (2, 2, 2))), UNIT)
    assert lesion_sensitivity(pair) == pytest.approx(1 / 3)
    assert lesion_precision(pair) == 1 / 2
    assert lesion_f1(pair) == pytest.approx(2 * 1 / (2 * 1 + 2 + 1))
    nothing = LabelPair(blocks(), blocks(), UNIT)
    assert all(math.isnan(value(nothing)) for value in (lesion_sensitivity, lesion_precision, lesion_f1))


def test_pictures_have_lesions_too():
    reference = np.zeros((30, 30), bool)
    reference[2:12, 2:12] = True
    pair = LabelPair(reference, reference & (np.arange(30) < 7), (1, 1))
    assert lesion_dice(pair) == pytest.approx(2 * 50 / 150)
    assert lesion_hd95(pair) == 5


def test_all_of_it_in_one_call():
    reference = np.zeros(SHAPE, np.uint8)
    reference[4:10, 4:10, 4:10] = 3
    reference[6:8, 6:8, 6:8] = 1
    scores = segmentation_scores(
        reference,
        reference,
        UNIT,
        labels={"WT": [1, 2, 3], "ET": [3], "SNFH": [2], "NETC": [1], "RC": [4]},
        metrics=["lesion_dice", "lesion_hd95", "lesion_nsd@0.5"],
        lesions="brats2024-gli",
        empty="brats2024",
    )
    assert [(score.value, score.status) for score in scores if score.metric == "lesion_dice"] == [
        (1, "present"),
        (1, "present"),
        (1, "absent"),
        (1, "present"),
        (1, "absent"),
    ]
    assert {score.value for score in scores if score.metric == "lesion_hd95"} == {0}


def test_the_rule_is_printed_and_changed_in_a_config():
    assert LesionRule.of("brats2024-gli").describe() == (
        "lesions by brats2024-gli (dilation 3, > 20 mm3, HD95 penalty 337 mm, predictions merged too, predictions "
        "<= 20 voxels dropped; ET: dilation 3, > 10 mm3, HD95 penalty 337 mm, predictions merged too, predictions "
        "<= 10 voxels dropped, joined through NETC, then RC; NETC: dilation 5, > 20 mm3, HD95 penalty 337 mm, "
        "predictions merged too, predictions <= 20 voxels dropped, joined through ET, then RC; RC: dilation 5, > 20 "
        "mm3, HD95 penalty 337 mm, predictions merged too, predictions <= 20 voxels dropped, joined through ET, then "
        "NETC; SNFH: dilation 3, > 20 mm3, HD95 penalty 337 mm, predictions merged too, predictions <= 20 voxels "
        "dropped, joined through ET, then RC, then NETC; HD95 of surfels, NSD of border voxels)"
    )
    assert "false positives not counted" in LesionRule.of("brats2024-men-rt").describe()
    changed = LesionRule.of({"preset": "brats2024-ped", "min_volume": 5, "labels": {"CC": {"dilation": 1}}})
    assert (changed.name, changed.dilation, changed.min_volume) == ("brats2024-ped, changed", 5, 5)
    assert (changed.for_label("CC").dilation, changed.for_label("CC").min_volume) == (1, 5)
    assert LesionRule.of(None) == LesionRule.of("brats2023-gli")
    assert LesionRule.of(changed) is changed


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("brats2024-glu", r"got 'brats2024-glu'; did you mean 'brats2024-gli'\?"),
        ({"dilatoin": 2}, r"got 'dilatoin'; did you mean 'dilation'\?"),
        ({"min_volume": -1}, r"lesions\.min_volume to be a number of at least 0, got -1"),
        ({"dilation": 1.5}, r"lesions\.dilation to be a whole number of steps, at least 0, got 1\.5"),
        ({"small_predictions": "drop"}, r"got 'drop'"),
        ({"join_through": "NETC"}, r"lesions\.join_through to be a list of labels' names, got 'NETC'"),
        ({"labels": {"ET": {"name": "x"}}}, r"got 'name'"),
    ],
)
def test_rules_that_are_refused(wanted, words):
    with pytest.raises(UsageError, match=words):
        LesionRule.of(wanted)


LEFT, RIGHT = ((2, 4, 4), (6, 6, 6)), ((28, 4, 4), (6, 6, 6))
ROD = ((8, 6, 6), (20, 2, 2))  # touches both


def joined_cases():
    """By name: the reference, the prediction, and how many ET lesions are missed and made up by GLI's rule."""
    both = tissues(NETC=[ROD], ET=[LEFT, RIGHT])
    apart = tissues(NETC=[((8, 6, 6), (4, 4, 4)), ((24, 6, 6), (4, 4, 4))], ET=[LEFT, RIGHT])
    left = tissues(ET=[LEFT])
    return {
        "joined through one core": (both, left, 0, 0),
        "each with its own core": (apart, left, 1, 0),
        "only one of them touches a core": (tissues(NETC=[((8, 6, 6), (12, 2, 2))], ET=[LEFT, RIGHT]), left, 1, 0),
        "predicted ones joined through a predicted core": (left, both, 0, 0),
        "predicted ones each with its own core": (left, apart, 0, 1),
        "a predicted core that is dropped for its size": (
            left,
            tissues(NETC=[((8, 6, 6), (20, 1, 1))], ET=[LEFT, RIGHT]),
            0,
            1,
        ),
        "a reference core of any size joins": (tissues(NETC=[((8, 6, 6), (20, 1, 1))], ET=[LEFT, RIGHT]), left, 0, 0),
        "joined through the cavity": (tissues(RC=[ROD], ET=[LEFT, RIGHT]), left, 0, 0),
        "through edema nothing is joined": (tissues(SNFH=[ROD], ET=[LEFT, RIGHT]), left, 1, 0),
        "a core beyond one step": (tissues(NETC=[((9, 6, 6), (19, 2, 2))], ET=[LEFT, RIGHT]), left, 1, 0),
        "a core at a corner": (tissues(NETC=[((8, 10, 10), (20, 2, 2))], ET=[LEFT, RIGHT]), left, 1, 0),
        "a core at an edge": (tissues(NETC=[((8, 10, 9), (20, 2, 2))], ET=[LEFT, RIGHT]), left, 0, 0),
        "a chain of core and cavity": (
            tissues(NETC=[ROD], RC=[((30, 10, 6), (2, 10, 2))], ET=[LEFT, RIGHT, ((28, 20, 4), (6, 6, 6))]),
            left,
            0,
            0,
        ),
    }


@pytest.mark.parametrize("case", joined_cases())
def test_lesions_are_joined_through_the_lesions_of_other_labels(case):
    reference, prediction, missed, false = joined_cases()[case]
    found = judged_maps(reference, prediction, "brats2024-gli")
    assert (found["ET"]["fn"], found["ET"]["fp"]) == (missed, false)
    for rule in ("brats2024-gli", "brats2024-ssa", "brats2024-met"):
        expected = maps_plainly(reference, prediction, UNIT, LESION_RULES[rule], TISSUES)
        assert judged_maps(reference, prediction, rule) == {name: pytest.approx(expected[name]) for name in TISSUES}


def test_a_joined_lesion_is_scored_as_one():
    reference, left = tissues(NETC=[ROD], ET=[LEFT, RIGHT]), tissues(ET=[LEFT])
    # 216 voxels of 432 found: 2 * 216 / 648, in SSA and MET as well; apart it is the mean of 1 and 0, as in PED.
    for name, value in (("gli", 2 / 3), ("ssa", 2 / 3), ("met", 2 / 3), ("ped", 1 / 2)):
        assert judged_maps(reference, left, f"brats2024-{name}")["ET"]["dice"] == pytest.approx(value)
    # The cavity is joined through ET in GLI only.
    cavities = tissues(RC=[LEFT, RIGHT], ET=[ROD])
    found = {
        name: judged_maps(cavities, tissues(RC=[LEFT]), f"brats2024-{name}")["RC"]["fn"] for name in ("gli", "met")
    }
    assert found == {"gli": 0, "met": 1}


@pytest.mark.parametrize("at", [0, 6])
def test_of_two_cores_a_lesion_takes_that_whose_dilation_comes_first(at):
    # The upper core starts one plane after the lower one. Dilated in the image, it does so still, unless the border
    # of the image cuts both, and then the one of the lower rows comes first: `high` or `low` is missed.
    low, high = ((at + 1, 1, 4), (6, 2, 4)), ((at, 16, 4), (6, 2, 4))
    middle, beside_low, beside_high = (
        ((at, 3, 4), (6, 13, 4)),
        ((at + 6, 1, 18), (6, 2, 6)),
        ((at + 6, 16, 18), (6, 2, 6)),
    )
    reference = tissues(
        NETC=[low, high, ((at + 1, 1, 8), (6, 2, 10)), ((at + 1, 16, 8), (6, 2, 10))],
        ET=[middle, beside_low, beside_high],
    )
    prediction = tissues(ET=[middle, beside_low])
    found = judged_maps(reference, prediction, "brats2024-gli")
    assert found["ET"]["fn"] == (1 if at == 0 else 0)
    assert found["ET"] == pytest.approx(
        maps_plainly(reference, prediction, UNIT, LESION_RULES["brats2024-gli"], TISSUES)["ET"]
    )


def test_stacks_of_masks_are_joined_as_label_maps_are():
    asked = {"metrics": ["lesion_dice", "lesion_fn"], "lesions": "brats2024-gli", "empty": "brats2024"}
    maps = tissues(NETC=[ROD], ET=[LEFT, RIGHT]), tissues(ET=[LEFT])
    stacks = (np.stack([np.isin(one, values) for values in TISSUES.values()]) for one in maps)
    expected = segmentation_scores(*maps, UNIT, labels=TISSUES, **asked)
    assert segmentation_scores(*stacks, UNIT, labels=list(TISSUES), **asked) == expected


def test_a_label_to_join_through_has_to_be_judged():
    nothing = np.zeros((2, 2, 2), np.uint8)
    with pytest.raises(UsageError, match=r"joins lesions of 'ET' through 'NETC', which is not judged: name NETC in"):
        segmentation_scores(
            nothing,
            nothing,
            UNIT,
            labels={"ET": [3]},
            metrics=["lesion_dice"],
            lesions="brats2024-ssa",
            empty="brats2024",
        )
    with pytest.raises(UsageError, match=r"'brats2024-gli' joins lesions of 'NETC' through 'ET'"):
        judged(blocks(BIG), blocks(BIG), rule="brats2024-gli", name="NETC")


def test_labels_of_a_case_know_each_other():
    regions = {"WT": (1, 2, 3), "ET": (3,), "NETC": (1,)}
    reference = tissues(NETC=[ROD], ET=[LEFT])
    pairs = label_pairs(reference, reference, UNIT, regions, dict.fromkeys(regions, Settings()))
    assert all(pairs[one].sibling(other) is pairs[other] for one in regions for other in regions)
    assert pairs["ET"].sibling("RC") is None
    core = pairs.pop("ET").sibling("NETC")
    assert (core.name, core.offset, core.reference.shape) == ("NETC", (8, 6, 6), (20, 2, 2))
    lone = core.sibling("ET")  # nobody holds the first one any more
    assert (lone.name, lone.reference_size, lone.sibling("NETC") is core) == ("ET", 216, True)
    assert LabelPair(blocks(BIG), blocks(BIG), UNIT).sibling("ET") is None


def scattered(draw, shape):
    """A mask of a few boxes anywhere."""
    places = st.tuples(*(st.integers(0, size - 1) for size in shape))
    found = draw(st.lists(st.tuples(places, st.tuples(*[st.integers(1, 5)] * 3)), max_size=4))
    return blocks(*found, shape=shape)


@st.composite
def masks(draw):
    return scattered(draw, (18, 14, 12)), scattered(draw, (18, 14, 12))


@settings(deadline=None, max_examples=25)
@given(masks(), st.sampled_from(sorted(LESION_RULES)), st.sampled_from([UNIT, (0.5, 2.0, 1.0)]))
def test_any_masks_are_scored_as_the_rules_read_plainly(pair, name, spacing):
    assert judged(*pair, spacing, name) == pytest.approx(plainly(*pair, spacing, LESION_RULES[name]), abs=1e-9)


@st.composite
def label_maps(draw):
    seeds = draw(st.tuples(st.integers(0, 1 << 30), st.integers(2, 40)))
    random = np.random.default_rng(seeds[0])
    shape = (22, 16, 14)
    reference = np.zeros(shape, np.uint8)
    prediction = np.zeros(shape, np.uint8)
    for index in range(seeds[1]):
        start = random.integers(0, shape)
        part = tuple(slice(at, at + size) for at, size in zip(start, random.integers(1, 7, 3), strict=True))
        for one in (reference, prediction)[: 1 + index % 2] if index % 3 else (prediction,):
            one[part] = random.choice([0, 1, 1, 2, 3, 3, 4])
    return reference, prediction


# GLI's joins of lesions that are small and close, so that there are many.
CLOSE = LesionRule.of(
    {
        "preset": "brats2024-met",
        "min_volume": 1,
        "labels": {
            name: {"join_through": list(LESION_RULES["brats2024-gli"].for_label(name).join_through)}
            for name in ("ET", "NETC", "RC", "SNFH")
        },
    }
)


@settings(deadline=None, max_examples=15)
@given(label_maps(), st.sampled_from([CLOSE, *(LESION_RULES[f"brats2024-{name}"] for name in ("gli", "ssa", "met"))]))
def test_any_label_maps_are_joined_as_the_rules_read_plainly(maps, rule):
    spacing = (0.5, 2.0, 1.0)
    expected = maps_plainly(*maps, spacing, rule, TISSUES)
    found = judged_maps(*maps, rule, spacing)
    assert found == {name: pytest.approx(expected[name], abs=1e-9) for name in TISSUES}


@settings(deadline=None, max_examples=15)
@given(masks(), st.sampled_from(sorted(LESION_RULES)))
def test_bounds_and_what_room_around_changes(pair, name):
    found = judged(*pair, UNIT, name)
    assert 0 <= found["dice"] <= 1
    assert 0 <= found["nsd"] <= 1
    assert found["hd95"] >= 0
    if LESION_RULES[name].penalty != "diagonal":
        assert judged(*(np.pad(mask, 3) for mask in pair), UNIT, name) == pytest.approx(found)
    same = judged(pair[0], pair[0], UNIT, name)
    assert (same["dice"], same["hd95"], same["nsd"], same["fp"]) == (1, 0, 1, 0)


def test_the_metrics_say_that_they_follow_the_rule():
    ours = {name: found for name, found in available("mask").items() if name.startswith("lesion_")}
    assert len(ours) == 9
    assert all(found.rules == ("lesions",) and found.defined_when_empty for found in ours.values())
    assert {name for name, found in ours.items() if found.intermediate} == {"lesion_tp", "lesion_fp", "lesion_fn"}


def whole_plainly(reference, prediction, spacing, rule):
    """Legacy Dice, HD95, NSD at 1 mm, sensitivity, specificity: everything that is no dropped lesion, as one."""
    truth, guess = (numbers > 0 for numbers in numbered_plainly(reference, prediction, spacing, rule))
    specific = (~truth & ~guess).sum() / (~truth).sum()
    if not truth.any() or not guess.any():
        penalty = math.dist(truth.shape, (0, 0, 0)) if rule.penalty == "diagonal" else rule.penalty
        return (0.0, penalty, 0.0, 0.0, specific) if truth.any() or guess.any() else (1.0, 0.0, 1.0, 1.0, 1.0)
    there, back = border_distances(guess, truth, spacing), border_distances(truth, guess, spacing)
    return (
        2 * (guess & truth).sum() / (guess.sum() + truth.sum()),
        compute_robust_hausdorff(compute_surface_distances(truth, guess, spacing), 95),
        (np.mean(there <= 1 + 1e-6) + np.mean(back <= 1 + 1e-6)) / 2,
        (truth & guess).sum() / truth.sum(),
        specific,
    )


@pytest.mark.parametrize("name", LESION_RULES)
@pytest.mark.parametrize("case", CASES)
def test_whole_image_columns_leave_out_what_the_rule_drops(case, name):
    reference, prediction = (blocks(*boxes) for boxes in CASES[case])
    spacing, rule = (1.0, 1.0, 1.5), LESION_RULES[name]
    pair = LabelPair(reference, prediction, spacing, Settings(lesions=rule))
    shares = legacy_sensitivity(pair), legacy_specificity(pair)
    found = legacy_dice(pair), legacy_hd95(pair), legacy_nsd(pair, 1.0), *shares
    assert found == pytest.approx(whole_plainly(reference, prediction, spacing, rule), abs=1e-6)


def test_a_small_predicted_lesion_is_in_no_legacy_column_of_2024_and_in_that_of_2023():
    reference, prediction = blocks(BIG), blocks(BIG, ((30, 20, 10), (2, 2, 2)))
    pairs = {
        year: LabelPair(reference, prediction, UNIT, Settings(lesions=LESION_RULES[f"brats{year}-gli"]))
        for year in (2023, 2024)
    }
    assert legacy_dice(pairs[2024]) == 1
    assert legacy_dice(pairs[2023]) == pytest.approx(2 * 216 / (2 * 216 + 8))
    empty = LabelPair(
        reference, blocks(((30, 20, 10), (2, 2, 2))), UNIT, Settings(lesions=LESION_RULES["brats2024-gli"])
    )
    assert legacy_hd95(empty) == 337


def test_legacy_shares_of_voxels_worked_out_by_hand():
    lesion = blocks(((4, 4, 4), (8, 5, 5)))  # 200 of 28,800 voxels
    # 100 of them, 125 beside them, and a lesion of 8 voxels that 2024 drops
    guess = blocks(((4, 4, 4), (4, 5, 5)), ((4, 9, 4), (5, 5, 5)), ((30, 20, 10), (2, 2, 2)))
    for rule, wrong in (("brats2023-gli", 133), ("brats2024-gli", 125)):
        pair = LabelPair(lesion, guess, UNIT, Settings(lesions=LESION_RULES[rule]))
        assert legacy_sensitivity(pair) == 100 / 200
        assert legacy_specificity(pair) == (28600 - wrong) / 28600


def test_legacy_shares_of_voxels_where_a_mask_is_empty_or_full():
    full, nothing = np.ones((3, 4, 5), bool), np.zeros((3, 4, 5), bool)
    for masks, expected in (
        ((nothing, nothing), (1, 1)),
        ((nothing, full), (0, 0)),
        ((full, nothing), (0, 0)),  # the authors' 0 / 0 is 0
        ((full, full), (1, 0)),
    ):
        pair = LabelPair(*masks, UNIT)
        assert (legacy_sensitivity(pair), legacy_specificity(pair)) == expected


def test_whole_masks_of_the_metastases_script_are_those_of_a_rule_that_keeps_small_lesions():
    reference, prediction = blocks(BIG), blocks(BIG, ((30, 20, 10), (2, 1, 1)))
    asked = ["legacy_dice", "legacy_sensitivity", "legacy_specificity"]
    for rule, missed in (("brats2024-met", 0), ({"preset": "brats2024-met", "small_predictions": "keep"}, 2)):
        scores = segmentation_scores(
            reference.astype(np.uint8), prediction.astype(np.uint8), UNIT, labels=[1], metrics=asked, lesions=rule
        )
        outside = math.prod(SHAPE) - 216
        assert [one.value for one in scores] == [2 * 216 / (2 * 216 + missed), 1, (outside - missed) / outside]

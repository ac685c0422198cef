"""Instances as the masks number them: by hand, against MONAI's panoptic quality, panoptica's tests and brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import InstanceRule, ScoreTable, get, segmentation_scores

NAMES = ("pq", "sq", "rq", "aji", "aji_plus", "instance_dice", "instance_f1", "instance_ap@0.5", "mean_instance_ap")
STRICT = {"source": "given", "inclusive": False}


def values(reference, prediction, metrics=NAMES, classes=None, **rule):
    """Metric -> value of maps of numbered instances, all of one label unless `classes` holds the two label maps."""
    reference, prediction = np.asarray(reference), np.asarray(prediction)
    labels = classes or ((reference > 0).astype(int), (prediction > 0).astype(int))
    scores = segmentation_scores(
        *labels,
        (1.0,) * reference.ndim,
        labels={1: "nucleus"},
        metrics=metrics,
        instances={"source": "given", **rule},
        numbers=(reference, prediction),
    )
    return {score.metric: score.value for score in scores}


def test_two_that_touch_are_two():
    touching = np.array([[1, 1, 2, 2]])
    assert set(values(touching, touching).values()) == {1}
    counted = values(touching, touching, ["instances_matched", "instances_missed", "instances_spurious"])
    assert list(counted.values()) == [2, 0, 0]
    # The same masks by their connected parts: one object, so that a prediction which merges both is right.
    merged = np.array([[1, 1, 1, 1]])
    found = {
        source: segmentation_scores(
            np.ones_like(merged), np.ones_like(merged), (1, 1), labels={1: "nucleus"}, metrics=["pq"],
            instances=source, numbers=(touching, merged),
        )[0].value
        for source in ("given", "components")
    }  # fmt: skip
    assert found["components"] == 1
    assert found["given"] == pytest.approx(0.5 / 1.5)  # one match of IoU 1/2, one missed


def test_every_metric_by_hand():
    # Instance 1: 4 voxels, 3 of them predicted as 7. 2: 3 voxels, 1 of them predicted as 8, which has 2. 9 is made up.
    reference = np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0, 0]])
    prediction = np.array([[0, 7, 7, 7, 0, 0, 8, 8, 0, 9]])
    found = values(reference, prediction)
    assert found["pq"] == pytest.approx(0.75 / (1 + 0.5 + 1))
    assert (found["sq"], found["rq"]) == (pytest.approx(0.75), pytest.approx(1 / 2.5))
    assert found["instance_f1"] == pytest.approx(2 / 5)
    assert found["instance_dice"] == pytest.approx((6 / 7 + 0) / 2)
    assert found["aji"] == found["aji_plus"] == pytest.approx((3 + 1) / (4 + 4 + 1))
    assert found["instance_ap@0.5"] == pytest.approx(1 / (1 + 1 + 2))
    assert found["mean_instance_ap"] == pytest.approx(6 / 10 * 1 / 4)  # 0.75 reaches 0.5 to 0.75


def test_one_instance_may_lie_in_pieces():
    pieces = np.array([[1, 0, 1, 0, 2]])
    assert values(pieces, pieces, ["instances_matched"]) == {"instances_matched": 2}


def test_only_voxels_of_the_label_count():
    """An instance whose voxels have two classes, as a careless prediction's, is judged for each by what has it."""
    reference = np.array([[1, 1, 1, 1]])
    classes = (np.array([[1, 1, 1, 1]]), np.array([[1, 1, 1, 2]]))
    assert values(reference, reference, ["sq"], classes) == {"sq": pytest.approx(3 / 4)}


def test_regions_join_classes_but_not_numbers():
    labels, numbers = np.array([[1, 1, 2, 2]]), np.array([[1, 1, 2, 2]])
    scores = segmentation_scores(
        labels, labels, (1, 1), labels={"nuclei": [1, 2]}, metrics=["instances_matched"], instances="given",
        numbers=(numbers, numbers),
    )  # fmt: skip
    assert scores[0].value == 2


def test_numbers_may_be_far_apart_and_the_crop_may_lie_anywhere():
    reference, prediction = np.zeros((2, 40, 30), np.int64)
    reference[30:34, 20:24], reference[30:34, 24:28] = 2**40, 5
    prediction[30:34, 20:24], prediction[30:34, 24:28] = 3, 2**41
    assert values(reference, prediction)["pq"] == 1
    assert values(reference[::-1, ::-1].T, prediction[::-1, ::-1].T)["pq"] == 1


def test_an_ignored_label_takes_its_voxels_out_of_instances():
    labels, numbers = np.array([[1, 1, 9, 9, 1]]), np.array([[1, 1, 1, 1, 2]])
    predicted, guessed = np.array([[1, 1, 1, 1, 0]]), np.array([[4, 4, 4, 4, 0]])
    scores = segmentation_scores(
        labels, predicted, (1, 1), labels={1: "nucleus"}, metrics=["sq", "instances_matched"], ignore=9,
        instances="given", numbers=(numbers, guessed),
    )  # fmt: skip
    assert [score.value for score in scores] == [1, 1]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (None, "Expected `numbers` of the instances"),
        ((np.ones((1, 3), int), np.ones((1, 2), int)), r"Expected `numbers` to be integers of 0 and above, \(1, 3\)"),
        ((np.ones((1, 3)), np.ones((1, 3))), "got float64"),
        ((-np.ones((1, 3), int), np.ones((1, 3), int)), "of 0 and above"),
    ],
)
def test_numbers_that_are_none(numbers, words):
    mask = np.ones((1, 3), int)
    with pytest.raises(ValueError, match=words):
        segmentation_scores(mask, mask, (1, 1), labels={1: "a"}, metrics=["pq"], instances="given", numbers=numbers)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("gven", "got 'gven'"),
        ({"inclusive": "no"}, "instances.inclusive to be true or false"),
        (3, "'given', 'components' or a mapping"),
    ],
)
def test_rules_that_cannot_be_meant(wanted, words):
    with pytest.raises(UsageError, match=words):
        InstanceRule.of(wanted)


def test_the_table_says_whose_instances_they_are():
    assert "as numbered in the masks, hungarian matching by IoU > 0.5" in InstanceRule.of(STRICT).describe()
    assert "parts joined by corners, hungarian matching by IoU >= 0.5" in InstanceRule().describe()


def test_labels_without_an_instance_follow_the_policy():
    nothing, something = np.zeros((2, 4), int), np.ones((2, 4), int)
    assert all(math.isnan(value) for value in values(nothing, nothing).values())
    assert set(values(something, nothing).values()) == set(values(nothing, something).values()) == {0}


# What MONAI's own tests expect (tests/metrics/test_compute_panoptic_quality.py): values, not code.
MONAI_PREDICTION = [[0, 1, 1, 1], [0, 0, 0, 0], [2, 0, 3, 3], [4, 2, 2, 0]]
MONAI_REFERENCE = [[1, 1, 2, 1], [0, 0, 0, 0], [1, 3, 0, 0], [4, 3, 3, 3]]


@pytest.mark.parametrize(("metric", "threshold", "expected"), [("pq", 0.5, 0.25), ("sq", 0.3, 0.6), ("rq", 0.3, 0.75)])
def test_what_monais_tests_of_one_picture_expect(metric, threshold, expected):
    found = values(MONAI_REFERENCE, MONAI_PREDICTION, [metric], threshold=threshold, inclusive=False)
    assert found[metric] == pytest.approx(expected, abs=1e-4)


CLASSES_PREDICTED = np.array([
    [[[2, 0, 1], [2, 1, 1], [0, 1, 1]], [[0, 1, 3], [0, 0, 0], [1, 2, 1]]],
    [[[1, 1, 1], [3, 2, 0], [3, 2, 1]], [[1, 1, 3], [3, 1, 1], [0, 3, 0]]],
])  # fmt: skip
CLASSES_DUE = np.array([
    [[[2, 0, 0], [2, 0, 0], [2, 2, 3]], [[3, 3, 3], [3, 2, 1], [2, 2, 3]]],
    [[[1, 1, 1], [0, 0, 3], [0, 0, 3]], [[0, 1, 3], [2, 1, 0], [3, 0, 3]]],
])  # fmt: skip


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, (0.0, 0.0, 0.25)), (0.3, (0.25, 0.5, 0.25))])
def test_what_monais_tests_of_several_pictures_and_classes_expect(threshold, expected):
    """MONAI adds up a class over the pictures before it divides, as `pooled_pq` does."""
    counted = ["instances_iou", "instances_matched", "instances_missed", "instances_spurious"]
    scores = [
        (case, score)
        for case, (predicted, due) in enumerate(zip(CLASSES_PREDICTED, CLASSES_DUE, strict=True))
        for score in segmentation_scores(
            due[1], predicted[1], (1, 1), labels=[1, 2, 3], metrics=counted,
            instances={**STRICT, "threshold": threshold}, numbers=(due[0], predicted[0]),
        )
    ]  # fmt: skip
    for label, value in zip("123", expected, strict=True):
        assert get("pooled_pq").function(table(scores, label)) == pytest.approx(value, abs=1e-4)


def table(scores, label):
    rows = [(case, score) for case, score in scores if score.label == label]
    return ScoreTable(
        np.array([case for case, _ in rows]),
        np.array([score.metric for _, score in rows]),
        np.array([label] * len(rows)),
        np.array([score.value for _, score in rows]),
        np.array([score.status for _, score in rows]),
        {},
        len({case for case, _ in rows}),
        {},
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([(7, 8), (3, 4, 5)]))
def test_monai_agrees_on_random_maps(seed, count, shape):
    torch = pytest.importorskip("torch")
    from monai.metrics.panoptic_quality import compute_panoptic_quality

    random = np.random.default_rng(seed)
    reference, prediction = blobs(random, shape, count), blobs(random, shape, count)
    prediction = np.where(random.random(shape) < 0.7, reference, prediction)
    if not (reference.any() and prediction.any()):
        return
    for threshold in (0.5, 0.3, 0.7):
        found = values(reference, prediction, ["pq", "sq", "rq"], threshold=threshold, inclusive=False)
        counts = compute_panoptic_quality(
            torch.as_tensor(prediction), torch.as_tensor(reference), match_iou_threshold=threshold,
            output_confusion_matrix=True,
        ).tolist()  # fmt: skip
        if threshold == 0.3:
            # Below 0.5 MONAI pairs before it looks at the threshold, so that a pair below it may keep two above apart.
            assert found["rq"] >= 2 * counts[0] / (2 * counts[0] + counts[1] + counts[2]) - 1e-6
        else:
            tp, fp, fn, iou = counts
            assert found["pq"] == pytest.approx(iou / (tp + fp / 2 + fn / 2), abs=1e-6)
            assert found["sq"] == pytest.approx(iou / tp if tp else 0, abs=1e-6)
            assert found["rq"] == pytest.approx(tp / (tp + fp / 2 + fn / 2), abs=1e-6)


def blobs(random, shape, count):
    """Numbered boxes thrown onto a grid, later ones over earlier ones, so that many touch."""
    numbers = np.zeros(shape, np.int64)
    for number in range(1, count + 1):
        first = [random.integers(0, size) for size in shape]
        box = tuple(slice(at, at + random.integers(1, 5)) for at in first)
        numbers[box] = number
    return numbers


def test_what_panopticas_tests_of_aji_expect():
    shared = values([[1, 0, 2]], [[1, 1, 1]], ["aji", "aji_plus"])
    assert (shared["aji"], shared["aji_plus"]) == (pytest.approx(1 / 3), pytest.approx(1 / 4))
    same = [[1, 1, 0], [0, 2, 2]]
    assert set(values(same, same, ["aji", "aji_plus"]).values()) == {1}
    assert set(values([[1, 0]], [[0, 1]], ["aji", "aji_plus"]).values()) == {0}


@pytest.mark.parametrize("assignment", ["greedy", "hungarian"])
def test_what_panopticas_tests_of_its_matchers_expect(assignment):
    """A square against itself, and two squares in opposite corners, of `test_matcher_variations.py`."""
    square, one, other = np.zeros((3, 28, 28), int)
    square[1:28, 1:28] = one[1:14, 1:14] = other[15:28, 15:28] = 1
    same = values(square, square, ["pq", "sq", "rq"], assignment=assignment)
    apart = values(other, one, ["pq", "sq", "rq"], assignment=assignment)
    assert (set(same.values()), set(apart.values())) == ({1}, {0})


def plain_aji(reference, prediction, one_to_one):
    """Kumar's index, and HoVer-Net's with pairs, from their papers: by every pair of masks and every pairing."""
    mine = [reference == number for number in np.unique(reference[reference > 0])]
    theirs = [prediction == number for number in np.unique(prediction[prediction > 0])]
    iou = np.array([[(a & b).sum() / (a | b).sum() for b in theirs] for a in mine])
    if one_to_one:
        slots = [*range(len(theirs)), *[None] * len(mine)]
        partners = max(
            itertools.permutations(slots, len(mine)),
            key=lambda tried: sum(iou[i, j] for i, j in enumerate(tried) if j is not None),
        )
        partners = [j if j is not None and iou[i, j] > 0 else None for i, j in enumerate(partners)]
    else:
        partners = [int(row.argmax()) if row.max() > 0 else None for row in iou]
    above = sum((mine[i] & theirs[j]).sum() for i, j in enumerate(partners) if j is not None)
    below = sum((mine[i] | theirs[j]).sum() if j is not None else mine[i].sum() for i, j in enumerate(partners))
    return above / (below + sum(theirs[j].sum() for j in set(range(len(theirs))) - set(partners)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_aji_by_brute_force(seed, count):
    random = np.random.default_rng(seed)
    reference, prediction = blobs(random, (6, 7), count), blobs(random, (6, 7), count)
    found = values(reference, prediction, ["aji", "aji_plus"])
    assert found["aji"] == pytest.approx(plain_aji(reference, prediction, one_to_one=False))
    best = plain_aji(reference, prediction, one_to_one=True)
    # Of pairings with equal sums of IoU any may be taken; then the voxels can differ.
    assert found["aji_plus"] == pytest.approx(best) or ties(reference, prediction)


def ties(reference, prediction):
    """Whether several pairings have the largest sum of IoUs."""
    mine, theirs = np.unique(reference[reference > 0]), np.unique(prediction[prediction > 0])
    iou = np.array(
        [
            [
                ((reference == a) & (prediction == b)).sum() / ((reference == a) | (prediction == b)).sum()
                for b in theirs
            ]
            for a in mine
        ]
    )
    slots = [*range(len(theirs)), *[None] * len(mine)]
    tried = {
        tuple(j if j is not None and iou[i, j] > 0 else None for i, j in enumerate(one))
        for one in itertools.permutations(slots, len(mine))
    }
    sums = sorted((round(sum(iou[i, j] for i, j in enumerate(one) if j is not None), 9) for one in tried), reverse=True)
    return len(sums) > 1 and sums[0] == sums[1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.2, 0.5, 0.75]))
def test_instance_ap_matches_as_many_as_can_be(seed, count, threshold):
    random = np.random.default_rng(seed)
    reference, prediction = blobs(random, (6, 7), count), blobs(random, (6, 7), count)
    mine, theirs = np.unique(reference[reference > 0]), np.unique(prediction[prediction > 0])
    fits = [
        [((reference == a) & (prediction == b)).sum() >= threshold * ((reference == a) | (prediction == b)).sum()
         for b in theirs] for a in mine
    ]  # fmt: skip
    slots = [*range(len(theirs)), *[None] * len(mine)]
    most = max(
        sum(j is not None and fits[i][j] for i, j in enumerate(one)) for one in itertools.permutations(slots, len(mine))
    )
    expected = most / (len(mine) + len(theirs) - most)
    assert values(reference, prediction, [f"instance_ap@{threshold}"])[f"instance_ap@{threshold}"] == pytest.approx(
        expected
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_what_a_map_is_compared_with_itself_and_how_it_is_numbered(seed, count):
    random = np.random.default_rng(seed)
    reference, prediction = blobs(random, (8, 9), count), blobs(random, (8, 9), count)
    assert set(values(reference, reference).values()) == {1}
    found = values(reference, prediction)
    renumbered = np.append(0, 1 + random.permutation(count))[prediction]
    again = values(reference, renumbered)
    assert all(0 <= value <= 1 for value in found.values())
    assert {name: again[name] for name in ("rq", "instance_f1", "instance_ap@0.5")} == pytest.approx(
        {name: found[name] for name in ("rq", "instance_f1", "instance_ap@0.5")}
    )
    assert found["pq"] == pytest.approx(found["sq"] * found["rq"])

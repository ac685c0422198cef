"""COCO's protocol: by hand, against pycocotools, and what resampling makes of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available, parse, title
from medimg_eval.metrics.coco import AREAS, IOUS, coco_scores, judged_coco
from medimg_eval.metrics.detection import box_ious
from medimg_eval.metrics.registry import canonical
from tests.helpers.coco import ASKED, COCOeval, content_of, made_up, pycocotools_says

EVIDENCE = ("coco_candidate", "coco_object")
NONE = np.zeros(0, bool)


def edges(items):
    boxes = np.array([item["bbox"] for item in items], float).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def table_of(rows, cases):
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, int)] * 5
    case, label, metric, value, status = columns
    return ScoreTable(
        case, metric.astype(str), label.astype(str), value.astype(float), status.astype(str), {}, cases, {}
    )


def rows_of(content, results):
    """The rows that a run leaves of annotations and results."""
    rows = []
    for case, image in enumerate(content["images"]):
        for category in content["categories"]:
            objects, candidates = (
                [one for one in some if (one["image_id"], one["category_id"]) == (image["id"], category["id"])]
                for some in (content["annotations"], results)
            )
            crowds, ignored = (np.array([one.get(key, 0) for one in objects], bool) for key in ("iscrowd", "ignore"))
            judged = judged_coco(
                np.array([one["score"] for one in candidates], float),
                np.array([one["bbox"][2] * one["bbox"][3] for one in candidates], float),
                box_ious(edges(candidates), edges(objects), crowds),
                np.array([one["area"] for one in objects], float),
                crowds,
                ignored,
            )
            rows += [(case, *row) for row in coco_scores(category["name"], judged, EVIDENCE)]
    return table_of(rows, len(content["images"]))


def value(table, name):
    metric, parameter = parse(name)
    return metric.function(table, *([] if parameter is None else [parameter]))


def judged(overlaps, areas=None, objects=None, crowds=None, ignored=None, confidences=None):
    """Candidates from the most confident down on objects of 40 x 40 pixels, unless told otherwise."""
    overlaps = np.array(overlaps, float)
    count, of = overlaps.shape
    return judged_coco(
        np.linspace(0.9, 0.1, count) if confidences is None else np.array(confidences, float),
        np.full(count, 1600.0) if areas is None else np.array(areas, float),
        overlaps,
        np.full(of, 1600.0) if objects is None else np.array(objects, float),
        np.zeros(of, bool) if crowds is None else np.array(crowds, bool),
        np.zeros(of, bool) if ignored is None else np.array(ignored, bool),
    )


def letters(found, area="all"):
    first = 10 * list(AREAS).index(area)
    return [row.status[first : first + 10] for row in coco_scores("x", found, ["coco_candidate"])]


# By hand


def test_a_candidate_hits_up_to_its_iou():
    # 0.7 reaches 0.5, 0.55, 0.6, 0.65 and, being equal, 0.7.
    assert letters(judged([[0.7]])) == ["hhhhhfffff"]
    assert letters(judged([[0.7]]), "medium") == ["hhhhhfffff"]
    # The object is of another size, and so is the candidate: neither counts there.
    assert letters(judged([[0.7]]), "small") == ["iiiiiiiiii"]
    assert letters(judged([[0.7]], areas=[100]), "small") == ["iiiiifffff"]
    assert letters(judged([[1.0]])) == ["hhhhhhhhhh"]
    assert letters(judged([[0.49]])) == ["ffffffffff"]


def test_a_better_box_further_down_hits_where_the_first_does_not_reach():
    assert letters(judged([[0.6], [0.8]])) == ["hhhfffffff", "fffhhhhfff"]


def test_crowds_and_ignored_objects():
    # A crowd takes any number of candidates, an ignored object one; a free object goes before both.
    assert letters(judged([[0.9], [0.9]], crowds=[True])) == ["iiiiiiiiif"] * 2
    assert letters(judged([[0.9], [0.9]], ignored=[True])) == ["iiiiiiiiif", "ffffffffff"]
    assert letters(judged([[1.0, 0.5]], ignored=[True, False])) == ["hiiiiiiiii"]
    assert judged([[1.0, 0.5]], ignored=[True, False]).areas.tolist() == [1600]


def test_of_equal_ious_the_last_object_is_taken():
    # Then the second candidate finds the first object free, which the last one would not have left it.
    assert letters(judged([[0.8, 0.8], [0.6, 0.0]])) == ["hhhhhhhfff", "hhhfffffff"]


def test_both_ends_belong_to_a_range():
    found = judged([[1.0]], areas=[1024], objects=[1024])
    assert letters(found, "small") == letters(found, "medium") == ["hhhhhhhhhh"]
    assert letters(found, "large") == ["iiiiiiiiii"]


def test_the_hundred_most_confident_count_and_equal_ones_in_their_order():
    confidences = [0.5] * 101
    overlaps = np.zeros((101, 1))
    overlaps[100] = 1
    assert len(judged(overlaps, confidences=confidences).confidences) == 100
    assert "h" not in "".join(letters(judged(overlaps, confidences=confidences)))
    confidences[100] = 0.6
    assert letters(judged(overlaps, confidences=confidences))[0] == "h" * 10


def test_average_precision_by_hand():
    # Three objects; by confidence a hit, a false one, a hit: recalls 1/3, 1/3, 2/3 with precisions 1, 1/2, 2/3.
    # 34 of the 101 recalls (0 to 0.33) read 1, 33 (0.34 to 0.66) read 2/3, the others 0.
    overlaps = [[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0]]
    table = table_of([(0, *row) for row in coco_scores("x", judged(overlaps), EVIDENCE)], 1)
    assert value(table, "coco_ap") == pytest.approx((34 + 33 * 2 / 3) / 101)
    assert value(table, "coco_ap@50") == value(table, "coco_ap@medium") == value(table, "coco_ap")
    assert value(table, "coco_ar@1") == pytest.approx(1 / 3)
    assert value(table, "coco_ar@10") == value(table, "coco_ar") == pytest.approx(2 / 3)
    assert np.isnan(value(table, "coco_ap@small"))


@pytest.mark.parametrize("objects", [1, 7, 100, 150, 200])
def test_hits_read_the_recalls_that_they_reach_in_floating_point(objects):
    """n hits and no false one: precision 1 at every recall up to n / objects. 7 / 100 < linspace(0, 1, 101)[7]."""
    for hits in range(objects + 1):
        rows = [(0, "a", "coco_candidate", 1.0 - n / 1000, "h" * 40) for n in range(hits)]
        rows += [(0, "a", "coco_object", 1600.0, "present")] * objects
        reached = (np.linspace(0, 1, 101) <= hits / objects).sum() if hits else 0
        assert value(table_of(rows, 1), "coco_ap@50") == pytest.approx(reached / 101, abs=1e-15)


def test_labels_without_objects_do_not_count():
    rows = [
        *coco_scores("a", judged([[1.0]]), EVIDENCE),
        *coco_scores("b", judged(np.zeros((1, 0))), EVIDENCE),
    ]
    assert value(table_of([(0, *row) for row in rows], 1), "coco_ap") == 1


def test_what_is_empty():
    none = judged(np.zeros((0, 0)))
    assert coco_scores("x", none, EVIDENCE) == []
    assert np.isnan(value(table_of([], 3), "coco_ap"))
    missed = table_of([(0, *row) for row in coco_scores("x", judged(np.zeros((0, 2))), EVIDENCE, "failed")], 1)
    assert [value(missed, name) for name in ("coco_ap", "coco_ar")] == [0, 0]
    assert set(missed.status) == {"failed"}
    false = table_of([(0, *row) for row in coco_scores("x", judged(np.zeros((2, 0))), EVIDENCE)], 1)
    assert np.isnan(value(false, "coco_ap"))
    raised = (1, "x", "coco_candidate", np.nan, "error: out of memory, so that nothing is known of this case")
    known = [(0, *row) for row in coco_scores("x", judged([[1.0]]), EVIDENCE)]
    assert value(table_of([*known, raised], 2), "coco_ap") == 1
    unknown = table_of([(0, "x", "coco_object", np.nan, "failed")], 1)
    assert np.isnan(value(unknown, "coco_ap"))


# Against pycocotools


@pytest.mark.parametrize("seed", range(40))
def test_the_twelve_numbers_are_those_of_pycocotools(seed):
    content, results = made_up(seed)
    if results and content["annotations"]:
        found = [value(rows_of(content, results), name) for name in ASKED]
        np.testing.assert_allclose(found, pycocotools_says(content, results), rtol=0, atol=1e-9)


boxes = st.tuples(*[st.integers(0, 30)] * 2, *[st.integers(1, 40)] * 2)
marks = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), boxes, st.integers(0, 3)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(marks, marks)
def test_so_they_are_of_any_boxes(objects, candidates):
    annotations = [
        {
            "id": n,
            "image_id": image,
            "category_id": kind,
            "bbox": list(box),
            "area": box[2] * box[3],
            "iscrowd": flag == 3,
        }
        for n, (image, kind, box, flag) in enumerate(objects, start=1)
    ]
    results = [
        {"image_id": image, "category_id": kind, "bbox": list(box), "score": 0.25 * score}
        for image, kind, box, score in candidates
    ]
    content = content_of(annotations, 3, 2)
    found = [value(rows_of(content, results), name) for name in ASKED]
    np.testing.assert_allclose(found, pycocotools_says(content, results, evaluation=COCOeval), rtol=0, atol=1e-9)


# Properties


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_a_case_that_counts_twice_is_two_cases(seed, seed_of_draws):
    content, results = made_up(2 * (seed // 2) + 2)  # without ties, whose order would differ
    table = rows_of(content, results)
    times = np.random.default_rng(seed_of_draws).integers(0, 3, (1, table.cases))
    drawn = np.repeat(np.arange(table.cases), times[0])
    rows = [np.flatnonzero(table.case == case) for case in drawn]
    repeated = table.where(np.concatenate([np.zeros(0, np.intp), *rows]))
    object.__setattr__(repeated, "case", np.repeat(np.arange(len(rows)), [len(part) for part in rows]))
    for name in ASKED:
        metric, parameter = parse(name)
        weighed = metric.weighed(table, *([] if parameter is None else [parameter]))
        np.testing.assert_allclose(
            weighed(times[:, table.case].astype(float))[0], value(repeated, name), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("seed", [3, 4])
def test_many_resamples_at_once_are_one_by_one(seed):
    table = rows_of(*made_up(seed))
    times = np.random.default_rng(0).integers(0, 3, (20, table.cases))[:, table.case].astype(float)
    for name in ASKED:
        metric, parameter = parse(name)
        weighed = metric.weighed(table, *([] if parameter is None else [parameter]))
        # Sums of many resamples at once may be added in another order.
        np.testing.assert_allclose(weighed(times), [weighed(row[None])[0] for row in times], rtol=1e-14)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31))
def test_the_truth_itself_is_perfect_and_all_lies_within_bounds(seed):
    content, results = made_up(seed)
    kept = [one for one in content["annotations"] if not (one["iscrowd"] or one.get("ignore"))]
    content |= {"annotations": kept}
    truth = [{**one, "score": 1 - 0.001 * n} for n, one in enumerate(kept)]
    for name in ("coco_ap", "coco_ar"):
        assert np.isnan(found := value(rows_of(content, truth), name)) or found == pytest.approx(1)
    values = np.array([value(rows_of(content, results), name) for name in ASKED])
    known = values[~np.isnan(values)]
    assert ((known >= 0) & (known <= 1)).all()


# Names


def test_names_and_what_they_do_not_take():
    assert [title(name) for name in ("coco_ap", "coco_ap@50", "coco_ar@small")] == [
        "COCO AP",
        "COCO AP (50)",
        "COCO AR (small)",
    ]
    names = ["mAP@[.5:.95]", "AP@[.5:.95]", "AP50", "mAP@0.5", "coco_ap75", "APs", "AP_medium", "coco_ap_large"]
    written = [*names, "AR@1", "coco_ar10", "AR_100"]
    assert [canonical(name) for name in written] == [
        *("coco_ap", "coco_ap", "coco_ap@50", "coco_ap@50", "coco_ap@75", "coco_ap@small", "coco_ap@medium"),
        *("coco_ap@large", "coco_ar@1", "coco_ar@10", "coco_ar@100"),
    ]
    for name, words in (("coco_ap@51", "no '51'"), ("coco_ap@all", "no 'all'"), ("coco_ar@50", "no '50'")):
        with pytest.raises(UsageError, match=words):
            parse(name)
    assert len(IOUS) == 10
    assert all(available("detection")[name].intermediate for name in EVIDENCE)

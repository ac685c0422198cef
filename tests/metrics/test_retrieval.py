"""Ranks between images and reports, by hand, against brute force, and as properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, get, parse
from medimg_eval.metrics import retrieval as module
from medimg_eval.metrics.retrieval import Placed, retrieval_places, retrieval_ranks, same_reports

fast = settings(deadline=None, max_examples=25)


def value(name, placed):
    found, parameter = parse(name)
    return found.function(placed) if parameter is None else found.function(placed, parameter)


def brute(queries, gallery, groups):
    """Sorts the items for each query, wrong ones first where they are as similar, and looks for the first right one."""
    ranks = []
    for number, query in enumerate(queries):
        cosines = [float(query @ item / np.linalg.norm(query) / np.linalg.norm(item)) for item in gallery]
        right = [group == groups[number] for group in groups]
        best = max(cosine for cosine, fits in zip(cosines, right, strict=True) if fits)
        ranks.append(1 + sum(cosine > best - 1e-6 for cosine, fits in zip(cosines, right, strict=True) if not fits))
    return ranks


def test_three_pairs_by_hand():
    images = [[1, 0], [0, 2], [1, 1]]
    reports = [[3, 0], [1, 1], [0, 1]]
    # Image 0 is nearest to report 0; image 1 to report 2, then 1; image 2 to report 1, and 0 and 2 are alike.
    placed = retrieval_places(images, reports, ["a", "b", "c"])
    assert [one.report for one in placed] == [1, 2, 3]
    # Report 0 is nearest to image 0; report 1 to image 2, then 0 and 1 alike; report 2 to image 1, then 2.
    assert [one.image for one in placed] == [1, 3, 2]
    assert {one.gallery for one in placed} == {3}
    assert [value("i2t_recall@1", one) for one in placed] == [1, 0, 0]
    assert [value("i2t_recall@2", one) for one in placed] == [1, 1, 0]
    assert [value("t2i_recall@2", one) for one in placed] == [1, 0, 1]
    assert [value("i2t_mrr", one) for one in placed] == [1, 1 / 2, 1 / 3]
    assert [value("t2i_mrr", one) for one in placed] == [1, 1 / 3, 1 / 2]
    assert [value("i2t_rank", one) for one in placed] == [1, 2, 3]
    assert [value("t2i_rank", one) for one in placed] == [1, 3, 2]


def test_equal_reports_are_right_for_each_others_images():
    images = np.eye(3)
    reports = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert retrieval_ranks(images, reports).tolist() == [3, 3, 1]
    placed = retrieval_places(images, reports, ["No  effusion.\n", "no effusion.", "Effusion."])
    assert [one.report for one in placed] == [1, 1, 1]
    assert [one.image for one in placed] == [1, 1, 1]


def test_case_and_spacing_do_not_tell_reports_apart_and_other_scripts_do():
    assert same_reports(["A b", "a  B\n", "a b.", "无气胸", "无胸水"]).tolist() == [0, 0, 1, 2, 3]
    assert same_reports([]).tolist() == []


def test_a_model_that_finds_all_alike_comes_last():
    ranks = retrieval_ranks(np.ones((4, 3)), np.ones((4, 3)))
    assert ranks.tolist() == [4, 4, 4, 4]


def test_a_difference_that_float32_makes_is_none():
    images, reports = np.eye(2), np.array([[1.0, 0.0], [1.0, 1e-8]])
    assert retrieval_ranks(images, reports).tolist()[0] == 2


def test_one_pair_is_found():
    assert retrieval_places([[2.0, 1.0]], [[-1.0, 0.0]], ["a"]) == [Placed(1, 1, 1)]


vectors = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.integers(1, 4),
        st.integers(0, 2**32 - 1),
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
    )
)


@fast
@given(vectors)
def test_ranks_are_those_of_brute_force_however_many_are_held_at_once(drawn):
    count, features, seed, groups = drawn
    random = np.random.default_rng(seed)
    queries, gallery = random.normal(size=(2, count, features))
    expected = brute(queries, gallery, groups)
    assert retrieval_ranks(queries, gallery, groups).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HELD", 2 * count)
        assert retrieval_ranks(queries, gallery, groups).tolist() == expected


@fast
@given(vectors)
def test_order_and_length_of_vectors_do_not_matter_and_equal_vectors_are_found(drawn):
    count, features, seed, groups = drawn
    random = np.random.default_rng(seed)
    queries, gallery = random.normal(size=(2, count, features))
    order = random.permutation(count)
    ranks = retrieval_ranks(queries, gallery, groups)
    moved = retrieval_ranks(3 * queries[order], gallery[order] / 7, np.array(groups)[order])
    assert moved.tolist() == ranks[order].tolist()
    assert ranks.min() >= 1
    assert ranks.max() <= count
    many = random.normal(size=(count, 8))
    assert retrieval_ranks(many, many).tolist() == [1] * count


@fast
@given(st.integers(1, 50), st.integers(1, 50))
def test_recall_grows_with_k_and_metrics_agree_with_the_rank(rank, gallery):
    placed = Placed(min(rank, gallery), 1, gallery)
    found = [value(f"i2t_recall@{k}", placed) for k in range(1, gallery + 1)]
    assert found == sorted(found)
    assert found[-1] == 1
    assert sum(found) == gallery - placed.report + 1
    assert value("t2i_mrr", placed) == get("t2i_mrr").best == 1


def rows(name, values):
    count = len(values)
    words = np.array([name] * count)
    return ScoreTable(np.arange(count), words, words, np.array(values, float), words, {}, count, {})


def test_the_median_rank_is_over_all_queries():
    assert get("i2t_median_rank").function(rows("i2t_rank", [1, 9, 2, 4])) == 3
    assert get("t2i_median_rank").function(rows("t2i_rank", [1, 9, 2])) == 2
    assert np.isnan(get("t2i_median_rank").function(rows("t2i_rank", [np.nan])))
    assert np.isnan(get("i2t_median_rank").function(rows("i2t_rank", [])))


@pytest.mark.parametrize("name", ["i2t_recall@0", "t2i_recall@1.5"])
def test_k_is_a_whole_number(name):
    with pytest.raises(UsageError, match="to be a whole number from 1"):
        value(name, Placed(1, 1, 1))


@pytest.mark.parametrize(
    ("queries", "gallery", "groups", "complaint"),
    [
        (np.ones((2, 3)), np.ones((2, 2)), None, "of one shape"),
        (np.ones((2, 3)), np.ones((2, 3)), [0], "of one shape"),
        (np.ones(3), np.ones((1, 3)), None, r"queries to be \(item, feature\)"),
        (np.eye(2), np.zeros((2, 2)), None, "row 0 of gallery"),
        ([[1.0, 0], [np.nan, 1]], np.eye(2), None, "row 1 of queries"),
    ],
)
def test_arrays_that_cannot_be_compared_are_refused(queries, gallery, groups, complaint):
    with pytest.raises(UsageError, match=complaint):
        retrieval_ranks(queries, gallery, groups)

"""Frames, segments, presence and spans of time: hand-made oracles, authors' faults, other implementations."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available, parse
from medimg_eval.metrics.workflow import (
    FramePair,
    FrameRule,
    PresencePair,
    class_values,
    component_columns,
    component_groups,
    confusion_counts,
    edit_distance,
    edit_score,
    event_hits,
    fisher_mean,
    frame_average_precision,
    frame_confusion,
    macro_presence_f1,
    mean_track_error,
    mean_video_average_precision,
    onset_of,
    pitvis_instruments,
    pitvis_steps,
    read_seconds,
    recall_at,
    relaxed_counts,
    segment_hits,
    segments_of,
    skill_correlation,
    tap_vid,
    temporal_iou,
    top_k_recall,
    triplet_detection_precision,
    union_iou,
    within_radius,
)
from tests.helpers.authors import import_package

PHASES = tuple("abcdefg")


def labels(*runs):
    return np.repeat([label for label, _ in runs], [length for _, length in runs])


def table(pairs, *needs):
    """Rows of a run of several videos, as a summary meets them."""
    rows = []
    for case, pair in enumerate(pairs):
        for name in needs:
            for label, value in parse(name)[0].function(pair).items():
                values = value if isinstance(value, list) else [(value, "present")]
                rows += [(case, name, label, number, status) for number, status in values]
    case, metric, label, value, status = map(np.array, zip(*rows, strict=True))
    facts = {"frame_classes": list(pairs[0].classes)}
    return ScoreTable(case, metric, label, value.astype(float), status, {}, len(pairs), facts)


def over_run(name, pairs):
    found, parameter = parse(name)
    return found.function(table(pairs, *found.needs), *(() if parameter is None else (parameter,)))


class TestRelaxedBoundary:
    # Phases 1 to 3 of Cholec80 for 30, 40 and 30 s, of which the changes come five seconds early or late.
    truth = labels((0, 30), (1, 40), (2, 30))
    early = labels((0, 25), (1, 40), (2, 35))
    late = labels((0, 35), (1, 40), (2, 25))

    def values(self, prediction, rule, published=False):
        counts = relaxed_counts(self.truth, prediction, published=published)
        found = [class_values(counts, name, FrameRule.of(rule))[:3] for name in ("jaccard", "precision", "recall")]
        return float(counts.right / counts.total), found, counts

    def test_strictly_both_changes_cost_five_frames(self):
        counts = confusion_counts(frame_confusion(self.truth, self.early, 7))
        assert float(counts.right / counts.total) == 0.9
        np.testing.assert_allclose(
            class_values(counts, "jaccard", FrameRule.of(""))[:3], [0.83333, 0.77778, 0.85714], atol=1e-5
        )

    def test_early_changes_are_forgiven(self):
        accuracy, (jaccard, precision, recall), counts = self.values(self.early, "relaxed")
        assert accuracy == 1
        assert jaccard.tolist() == precision.tolist() == recall.tolist() == [1, 1, 1]  # clipped
        np.testing.assert_allclose(counts.hits[:3] / counts.predicted[:3], [1.2, 1.125, 1])
        np.testing.assert_allclose(counts.hits[:3] / counts.true[:3], [1, 1.125, 7 / 6])

    def test_the_authors_mask_of_last_frames_looks_at_the_first(self):
        accuracy, (jaccard, precision, recall), _ = self.values(self.early, "relaxed_published", published=True)
        assert accuracy == 0.9
        np.testing.assert_allclose(jaccard, [25 / 30, 35 / 45, 30 / 35])
        np.testing.assert_allclose(precision, [1, 0.875, 30 / 35])
        np.testing.assert_allclose(recall, [25 / 30, 0.875, 1])

    @pytest.mark.parametrize("published", [False, True])
    def test_late_changes_are_forgiven_by_both(self, published):
        accuracy, _, counts = self.values(self.late, "relaxed", published)
        assert accuracy == 1
        np.testing.assert_allclose(counts.hits[:3] / counts.predicted[:3], [1, 1.125, 1.2])
        np.testing.assert_allclose(counts.hits[:3] / counts.true[:3], [7 / 6, 1.125, 1])

    def test_a_phase_that_is_never_predicted_raises_the_published_precision_alone(self):
        prediction = labels((0, 30), (4, 40), (2, 30))
        _, (_, precision, _), _ = self.values(prediction, "relaxed_published+in_truth", published=True)
        assert math.isnan(precision[1])
        assert self.values(prediction, "relaxed+in_truth")[1][1][1] == 0
        # Forgiven frames of a phase that is never called are x / 0: 1 once clipped, where it must be 0.
        prediction = labels((0, 70), (2, 30))
        assert self.values(prediction, "relaxed_published+in_truth", published=True)[1][1][1] == 1
        assert self.values(prediction, "relaxed+in_truth")[1][1][1] == 0

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.data())
    def test_nothing_is_forgiven_of_what_is_right_or_of_no_phase(self, truth, data):
        prediction = data.draw(st.lists(st.integers(-1, 7), min_size=len(truth), max_size=len(truth)))
        strict = confusion_counts(frame_confusion(truth, prediction, 7))
        relaxed = relaxed_counts(truth, prediction)
        assert strict.right <= relaxed.right <= sum(0 <= one < 7 for one in prediction)
        np.testing.assert_array_equal(relaxed.union, strict.union)


class TestSegments:
    truth = labels((0, 10), (1, 20), (2, 10), (1, 10))
    prediction = labels((0, 8), (1, 6), (2, 2), (1, 14), (2, 8), (1, 12))

    def test_edit_score_with_and_without_background(self):
        assert edit_score(segments_of(self.truth), segments_of(self.prediction)) == pytest.approx(2 / 3)
        assert edit_score(segments_of(self.truth, [0]), segments_of(self.prediction, [0])) == pytest.approx(0.6)

    @pytest.mark.parametrize("threshold", [0.1, 0.25, 0.5])
    def test_segmental_f1(self, threshold):
        hits = segment_hits(segments_of(self.truth), segments_of(self.prediction), threshold)
        assert hits == (4, 2, 0)
        assert hits.f1 == pytest.approx(0.8)

    def test_empty_sides(self):
        nothing, one = segments_of([0, 0], [0]), segments_of([1, 1])
        assert (edit_score(nothing, nothing), edit_score(nothing, one)) == (1, 0)
        assert segment_hits(nothing, one, 0.5) == (0, 1, 0)
        assert math.isnan(segment_hits(nothing, nothing, 0.5).f1)
        with pytest.raises(ValueError, match="above 0"):
            segment_hits(one, one, 0)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
    def test_edit_distance_is_that_of_the_table(self, first, second):
        row = list(range(len(second) + 1))
        for i, a in enumerate(first, 1):
            before, row[0] = row[:], i
            for j, b in enumerate(second, 1):
                row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
        assert edit_distance(first, second) == row[-1] == edit_distance(second, first)

    @settings(max_examples=80, deadline=None)
    @given(st.data())
    def test_hits_are_those_of_a_loop_over_all_pairs(self, data):
        size = data.draw(st.integers(1, 40))
        some = st.lists(st.integers(0, 2), min_size=size, max_size=size)
        truth, prediction = (segments_of(data.draw(some), [0]) for _ in range(2))
        threshold = data.draw(st.sampled_from([0.1, 0.25, 0.5, 1]))
        used, hits = set(), 0
        for label, start, end in zip(*prediction, strict=True):
            ious = [
                max(0, min(end, e) - max(start, s)) / (max(end, e) - min(start, s)) * (label == name)
                for name, s, e in zip(*truth, strict=True)
            ]
            best = int(np.argmax(ious)) if ious else -1
            if ious and ious[best] >= threshold and best not in used:
                used.add(best)
                hits += 1
        expected = hits, len(prediction.labels) - hits, len(truth.labels) - hits
        assert segment_hits(truth, prediction, threshold) == expected


class TestFrames:
    @pytest.mark.slow
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50))
    def test_values_are_those_of_scikit_learn(self, frames):
        sklearn = pytest.importorskip("sklearn.metrics")
        truth, prediction = np.array(frames).T
        counts = confusion_counts(frame_confusion(truth, prediction, 4))
        seen = np.union1d(truth, prediction)
        for measure, name in {"precision": "precision", "recall": "recall", "f1": "f1", "jaccard": "jaccard"}.items():
            function = getattr(sklearn, f"{name}_score")
            for absent, chosen, zero in (("in_either", seen, 0), ("zero", range(4), 0), ("one", range(4), 1)):
                ours = class_values(counts, measure, FrameRule(absent=absent))
                theirs = function(truth, prediction, labels=list(chosen), average=None, zero_division=zero)
                np.testing.assert_allclose(ours[~np.isnan(ours)], theirs, err_msg=f"{measure} {absent}")

    def test_what_is_not_judged_and_what_is_no_class(self):
        assert frame_confusion([0, -1, 1, 1], [0, 0, 9, -1], 2).tolist() == [[1, 0, 0], [0, 0, 2]]
        with pytest.raises(ValueError, match="one length"):
            frame_confusion([0], [0, 1], 2)

    def test_the_switches_give_the_numbers_of_a_hand(self):
        # Video 1: a a b b called a b b b; video 2: a a a a called a a a b (b never occurs).
        videos = [FramePair("ab", np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))]
        videos.append(FramePair("ab", np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1])))
        values = {  # Jaccard: 1/2 and 2/3, and 3/4 and 0; pooled 4/6 and 2/4
            "frame_jaccard": (7 / 12 + 3 / 8) / 2,
            "frame_jaccard@in_truth": (7 / 12 + 3 / 4) / 2,
            "frame_jaccard@phase+in_truth": (5 / 8 + 2 / 3) / 2,
            "frame_jaccard@pooled": (4 / 6 + 2 / 4) / 2,
            "frame_accuracy": 0.75,
            "frame_f1@pooled": (8 / 10 + 4 / 6) / 2,  # P 1 and 1/2, R 2/3 and 1
            "frame_f1@pooled+harmonic": 2 * 0.75 * (5 / 6) / (0.75 + 5 / 6),
            "frame_spread@accuracy": 0.0,
            "frame_spread@jaccard+phase+in_truth": abs(5 / 8 - 2 / 3) / math.sqrt(2),
        }
        for name, value in values.items():
            assert over_run(name, videos) == pytest.approx(value), name

    def test_relaxed_by_its_switch(self):
        pair = FramePair(PHASES, TestRelaxedBoundary.truth, TestRelaxedBoundary.early)
        assert over_run("frame_accuracy@relaxed", [pair]) == 1
        assert over_run("frame_accuracy@relaxed_published", [pair]) == pytest.approx(0.9)
        assert over_run("frame_jaccard@phase+in_truth+relaxed_published", [pair]) == pytest.approx(
            np.mean([25 / 30, 35 / 45, 30 / 35])
        )

    def test_a_frame_without_a_class_is_wrong(self):
        pair = FramePair("ab", np.array([0, 0, 1, 1]), np.array([0, -1, 1, -1]))
        assert over_run("frame_accuracy", [pair]) == 0.5
        assert over_run("frame_recall", [pair]) == 0.5
        assert over_run("frame_precision", [pair]) == 1

    def test_intervals_draw_videos(self):
        rng = np.random.default_rng(0)
        pairs = [FramePair("abc", *rng.integers(0, 3, (2, 30))) for _ in range(5)]
        for name in ("frame_f1", "frame_f1@phase+in_truth", "frame_jaccard@pooled", "segment_f1_pooled@10"):
            found, parameter = parse(name)
            arguments = () if parameter is None else (parameter,)
            rows = table(pairs, *found.needs)
            pieces = found.pieces(rows, *arguments)
            drawn = [0, 0, 3]
            sums = sum(pieces[rows.case == case].sum(0) for case in drawn)
            again = over_run(name, [pairs[case] for case in drawn])
            assert float(found.total(sums, *arguments)) == pytest.approx(again), name

    @pytest.mark.parametrize(
        "name", ["frame_f1@strict+relaxed", "frame_f1@vidoe", "frame_accuracy@phase", "frame_spread@f2"]
    )
    def test_switches_that_cannot_be_meant(self, name):
        with pytest.raises(UsageError):
            parse(name)


class TestPresence:
    @pytest.mark.slow
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=40))
    def test_average_precision_is_that_of_scikit_learn(self, frames):
        sklearn = pytest.importorskip("sklearn.metrics")
        truth, scores = np.array(frames, float).T
        ours = frame_average_precision(truth[:, None], scores[:, None])[0]
        if truth.any():
            assert ours == pytest.approx(sklearn.average_precision_score(truth, scores))
        else:
            assert math.isnan(ours)

    def test_mean_over_videos_then_classes_and_the_last_video_twice(self):
        videos = [[0.5, np.nan], [1.0, 0.2]]
        assert mean_video_average_precision(videos) == pytest.approx((0.75 + 0.2) / 2)
        assert mean_video_average_precision(videos, last_counts=2) == pytest.approx((2.5 / 3 + 0.2) / 2)

    def test_components_take_the_largest_of_their_triplets(self):
        names = ["grasper,retract,liver", "grasper,retract,omentum", "hook,retract,liver"]
        scores = np.array([[0.1, 0.7, 0.3]])
        groups = component_groups(names, "it")
        assert list(groups) == ["grasper,liver", "grasper,omentum", "hook,liver"]
        assert component_columns(scores, component_groups(names, "i")).tolist() == [[0.7, 0.3]]
        assert component_columns(scores, component_groups(names, "v")).tolist() == [[0.7]]
        assert top_k_recall([[1, 0, 1]], scores, 1) == 0
        assert top_k_recall([[1, 0, 1]], scores, 2) == 0.5
        with pytest.raises(ValueError, match="three|such as"):
            component_groups(["grasper"], "i")

    def test_summaries_of_presence(self):
        # One video where the order of scores is right, one where it is wrong: AP 1, and 1/2.
        truth = np.array([[1], [0]], bool)
        pairs = [PresencePair(("x,y,z",), truth, np.array([[0.9], [0.1]]))]
        pairs.append(PresencePair(("x,y,z",), truth, np.array([[0.2], [0.3]])))
        assert (
            over_run("presence_map", pairs)
            == over_run("triplet_ap@ivt", pairs)
            == over_run("triplet_ap@i", pairs)
            == 0.75
        )
        # The null class is left out of triplets alone.
        null = [PresencePair(("x,y,z", "x,null_verb,null_target"), np.eye(2, dtype=bool), np.eye(2)[::-1])]
        assert over_run("triplet_ap@ivt", null) == 0.5
        null = [PresencePair(("x,y,z", "x,null_verb,null_target"), np.eye(2, dtype=bool), np.array([[1, 1], [0, 0]]))]
        assert (over_run("triplet_ap@ivt", null), over_run("triplet_ap@ivt+no_null", null)) == (0.75, 1)
        assert over_run("triplet_ap@v", null) == 0.75
        # Together: 0.9 present, 0.3 absent, 0.2 present, 0.1 absent.
        assert over_run("presence_map_pooled", pairs) == pytest.approx((1 + 2 / 3) / 2)

    BOX, OTHER, SMALL = (0.5, 0.5, 0.3, 0.3), (0.0, 0.0, 0.1, 0.1), (0.2, 0.2, 0.1, 0.1)

    @pytest.mark.parametrize(("order", "published"), [((0, 1, 2), 0.272727), ((1, 0, 2), 0.545455)])
    def test_boxes_of_triplets_in_the_order_of_frames_or_of_scores(self, order, published):
        truth = [[(5, self.BOX)], [(5, self.BOX)], []]
        said = [[(5, 0.2, self.OTHER)], [(5, 0.9, self.BOX)], []]
        truth, said = [truth[k] for k in order], [said[k] for k in order]
        theirs = triplet_detection_precision(truth, said, published=True)
        assert theirs[5] == pytest.approx(published, abs=1e-6)
        assert theirs[99] == 0
        assert np.nanmean(theirs) == pytest.approx(published / 2, abs=1e-6)
        ours = triplet_detection_precision(truth, said)
        assert ours[5] == pytest.approx(0.545455, abs=1e-6)
        assert np.isnan(np.delete(ours, 5)).all()

    def test_a_box_that_is_compared_twice_grows_in_the_published_code(self):
        truth = [[(5, self.BOX), (5, self.SMALL)]]
        said = [[(5, 0.9, self.BOX), (5, 0.8, self.SMALL)]]
        assert triplet_detection_precision(truth, said, published=True)[5] == 0
        assert triplet_detection_precision(truth, said)[5] == pytest.approx(1)

    def test_onsets(self):
        truth, scores = np.zeros((20, 3), bool), np.zeros((20, 3))
        truth[5:, 0] = truth[5:, 1] = True
        scores[13:, 0], scores[14:, 1], scores[2:, 2] = 0.5, 0.9, 1
        pair = PresencePair(("in time", "late", "never"), truth, scores)
        values = parse("onset_accuracy@8")[0].function(pair, 8)
        assert (values["in time"], values["late"]) == (1, 0)
        assert math.isnan(values["never"])
        assert onset_of([False, False]) == -1


def test_pitvis_steps_join_what_lies_beside_dropped_frames():
    truth = labels((0, 4), (1, 4), (-1, 2), (2, 4))
    prediction = labels((0, 3), (1, 5), (0, 1), (1, 1), (2, 2), (3, 2))
    assert pitvis_steps(truth, prediction) == pytest.approx(0.676587, abs=1e-6)
    assert math.isnan(pitvis_steps([-1, 11], [0, 0]))


def test_pitvis_instruments_line_up_only_when_fixed():
    truth = [[1, -2], [3, -2], [3, -2], [1, 3]]
    prediction = [[1, -2], [3, -2], [3, 0], [1, 3]]
    assert pitvis_instruments(truth, prediction, published=True) == pytest.approx(0.24)
    assert pitvis_instruments(truth, prediction) == 1
    true, predicted = ([[label in frame for label in range(19)] for frame in side] for side in (truth, prediction))
    assert macro_presence_f1(true, predicted) == pytest.approx(18 / 19) == pytest.approx(0.947368, abs=1e-6)
    assert macro_presence_f1(true, predicted, "in_truth") == 1
    # Wholly wrong over two classes: the seventeen others, which nobody sees, are worth 1 each.
    wrong = np.eye(19, dtype=bool)[:2]
    assert macro_presence_f1(wrong[:1], wrong[1:]) == pytest.approx(17 / 19) == pytest.approx(0.894737, abs=1e-6)
    assert macro_presence_f1(wrong[:1], wrong[1:], "in_truth") == 0
    assert math.isnan(macro_presence_f1(wrong[:0], wrong[:0], "in_truth"))
    assert math.isnan(macro_presence_f1(wrong[:, :0], wrong[:, :0]))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 12))
def test_the_macro_is_scikit_learns(seed, frames):
    sklearn = pytest.importorskip("sklearn.metrics")
    truth, prediction = np.random.default_rng(seed).random((2, frames, 5)) < 0.3
    theirs = sklearn.f1_score(truth, prediction, average="macro", zero_division=1)
    ours = macro_presence_f1(truth, prediction)
    assert ours == pytest.approx(theirs)
    assert 0 <= ours <= 1


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [((10, 20), (15, 25), 1 / 3), ((0, 10), (10, 20), 0), ((12, 18), (10, 20), 0.6), ((5, 5), (5, 5), 0)],
)
def test_temporal_iou(first, second, value):
    assert temporal_iou(first, second) == pytest.approx(value)
    assert temporal_iou(first[::-1], second) == pytest.approx(value)
    assert union_iou([first], [second]) == pytest.approx(value)


def test_spans_and_events():
    assert temporal_iou((math.nan, 3), (0, 3)) == 0
    assert union_iou([(0, 2), (1, 4)], [(3, 5)]) == pytest.approx(1 / 5)
    truth, ranked = [(0, 10), (0, 10)], [[(20, 30), (0, 10)], []]
    assert (recall_at(truth, ranked, 1, 0.5), recall_at(truth, ranked, 2, 0.5)) == (0, 0.5)
    assert event_hits([10, 20], [12, 18, 50], 2) == (2, 1, 0)
    assert event_hits([10, 11], [10.5], 1) == (1, 0, 1)
    assert [read_seconds(text) for text in ("12.5s", "01:02", "1:00:01", "7")] == [12.5, 62, 3601, 7]
    assert math.isnan(read_seconds("50%"))


def test_points_and_tracks():
    truth = np.array([[0.0, 0.0], [10, 0], [np.nan, np.nan]])
    said = np.array([[3.0, 4.0], [10, 6], [0, 0]])
    assert within_radius(truth, said, 5) == 0.5
    assert within_radius(truth, said, 5, strict=True) == 0
    exact = np.array([[0.0, 0.0], [0, 600]])
    assert mean_track_error(exact, np.zeros((2, 2)), published=True) == 0  # both distances are left out
    assert mean_track_error(exact, np.zeros((2, 2))) == 300
    # One track: the query, one frame within 1 px, one far away, one occluded but called visible.
    track = np.zeros((1, 4, 2))
    moved = track + np.array([[[0, 0], [0.5, 0], [100, 0], [0, 0]]])
    occluded = np.array([[False, False, False, True]])
    found = tap_vid(track, occluded, moved, np.zeros((1, 4), bool), [0])
    assert found.delta_avg == pytest.approx(0.5)
    assert found.occlusion_accuracy == pytest.approx(2 / 3)
    assert found.average_jaccard == pytest.approx(1 / 4)  # TP 1 of 2 visible and 2 false


def test_skill():
    assert skill_correlation([1, 2, 3], [2, 4, 9]) == pytest.approx(1)
    assert skill_correlation([1, 2, 3], [5, 5, 5]) == 0
    assert fisher_mean([0.5, 0.9]) == pytest.approx(math.tanh((math.atanh(0.5) + math.atanh(0.9)) / 2))


def test_every_metric_is_on_its_page():
    text = (Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "video.md").read_text()
    kinds = ("frames", "frame_presence")
    ours = {name for name, found in available().items() if found.kind in kinds}
    ours |= {name for name, found in available().items() if ours & set(found.needs)}
    assert len(ours) == 31
    assert not [name for name in sorted(ours) if f"`{name}" not in text]


@pytest.mark.slow
def test_components_are_those_of_ivtmetrics(monkeypatch):
    recognition = import_package("CAMMA-public/ivtmetrics", "ivtmetrics", monkeypatch).Recognition(100)
    # It knows absent classes by the -0.0 that scikit-learn gave before 1.3; since then they count as 0 there.
    recognition.resolve_nan = lambda values: np.where(np.asarray(values) == 0, np.nan, values)
    names = [f"i{row[1]},v{row[2]},t{row[3]}" for row in recognition.bank]
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(3):
        truth, scores = rng.random((40, 100)) < 0.03, rng.random((40, 100))
        recognition.update(truth.astype(int), scores)
        recognition.video_end()
        pairs.append(PresencePair(names, truth, scores))
    for component in ("i", "v", "t", "iv", "it", "ivt"):
        assert over_run(f"triplet_ap@{component}", pairs) == pytest.approx(
            recognition.compute_video_AP(component)["mAP"]
        )

"""The landmark and the measurement task: what they accept, refuse, store, and what a failure is worth."""

import json
import math

import numpy as np
import pytest
from PIL import Image as Picture
from scipy.io import savemat

from medimg_eval.case import Case, Findings, Geometry, Points
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.instantiate import build
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.measurement.angles import cobb_angles
from medimg_eval.tasks.landmarks import LandmarkTask
from medimg_eval.tasks.measurements import MeasurementTask
from tests.helpers.config_files import composed_config

VOLUME = Geometry((10, 20, 30), np.diag([1.0, 2.0, 3.0, 1.0]))
FILM = Geometry((400, 300), np.eye(4), units="pixel")
SCANNED = Geometry((400, 300), np.diag([0.5, 0.25, 1.0, 1.0]))


class Held:
    """A reference or image that is at hand."""

    files = ()

    def __init__(self, value, grid):
        self.value, self.grid = value, grid

    def read(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def geometry(self):
        return self.grid


def case_of(value, grid=VOLUME):
    return Case("p1", (Held(None, grid),), Held(value, grid))


def points(**positions):
    return Points(np.array(list(positions.values()), dtype=np.float64), tuple(positions))


def locating(**settings):
    return LandmarkTask(name="x", layout=None, **settings)


def measuring(measures, **settings):
    return MeasurementTask(name="x", layout=None, measures=measures, **settings)


def values(scores):
    return {(score.label, score.metric): score.value for score in scores}


TRUTH = points(hip=(1, 1, 1), knee=(1, 1, 5), foot=(1, 5, 5))


def test_distances_are_mm_of_the_patient(tmp_path):
    task = locating()
    answer = points(hip=(2, 1, 1), knee=(1, 2, 5), foot=(1, 5, 7))  # 1, 2 and 6 mm
    path = tmp_path / "p1.json"
    case = case_of(TRUTH)
    task.codec.save(path, task.accept(case, answer))
    expected = {"hip": (1, 1), "knee": (2, 1), "foot": (6, 0)}
    for prediction in (answer, path):
        found = values(task.score(case, prediction))
        assert {name: (found[name, "landmark_distance"], found[name, "sdr@2"]) for name in expected} == expected
    assert values(locating(units="pixel").score(case, answer))["foot", "landmark_distance"] == 2


def test_points_that_were_not_found_are_stored_and_missed(tmp_path):
    task, case = locating(), case_of(TRUTH)
    answer = points(hip=(1, 1, 1), knee=(math.nan, 0, 0))
    task.codec.save(tmp_path / "p1.json", task.accept(case, answer))
    assert json.loads((tmp_path / "p1.json").read_text()) == {
        "points": [{"name": "hip", "position": [1, 1, 1]}, {"name": "knee", "position": None}]
    }
    assert [path.name for path in tmp_path.iterdir()] == ["p1.json"]
    for prediction in (answer, tmp_path / "p1.json"):
        scores = task.score(case, prediction)
        assert [score.status for score in scores[::2]] == ["present", "missed", "missed"]
        assert scores[2].value == pytest.approx(math.hypot(10, 40, 90))
    nothing = Points(np.empty(0), ())
    task.codec.save(tmp_path / "p1.json", task.accept(case, nothing))
    for prediction in (nothing, tmp_path / "p1.json"):
        assert {score.status for score in task.score(case, prediction)} == {"missed"}


def test_labels_of_the_file_become_names_and_others_of_the_reference_are_not_judged():
    task = locating(labels={19: "T12", 28: "T13"})
    truth = Points(np.zeros((3, 3)), ("19", "28", "41"))
    case = case_of(truth)
    assert {score.label for score in task.score(case, Points(np.zeros((2, 3)), ("T12", "28")))} == {"T12", "T13"}
    assert task.prompt(case, ()).labels == {19: "T12", 28: "T13"}
    assert locating(labels={"a": "apex", "b": "base"}).prompt(case, ()).labels == {1: "apex", 2: "base"}
    with pytest.raises(CaseError, match="'p1': prediction holds a point '41'"):
        task.accept(case, truth)
    with pytest.raises(CaseError, match="holds the point 'T12' more than once"):
        task.accept(case, Points(np.zeros((2, 3)), ("T12", "19")))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"hip": (1, 1, 1)}, "expected prediction to be Points, got dict"),
        (points(hip=(1, 1)), r"numbers \(1, 3\), got float64 \(1, 2\)"),
        (Points(np.zeros((2, 3)), ("hip",)), r"numbers \(1, 3\)"),
        (points(hip=(1, 1, math.inf)), "an infinite position"),
    ],
)
def test_answers_that_are_no_points_are_refused(answer, words):
    with pytest.raises(CaseError, match=f"case 'p1': .*{words}"):
        locating().accept(case_of(TRUTH), answer)


def test_a_case_without_an_answer_is_worth_the_worst():
    task = locating(metrics=["id_rate", "landmark_distance"])
    assert task.case_metrics == ["identified", "landmark_distance"]
    diagonal = pytest.approx(math.hypot(10, 40, 90))
    assert values(task.worst(case_of(TRUTH)))["hip", "landmark_distance"] == diagonal
    assert values(task.worst(case_of(TRUTH)))["foot", "identified"] == 0
    lost = case_of(CaseError("gone"))
    assert [(s.label, s.status) for s in task.worst(lost)] == [("landmarks", "failed")] * 2
    assert all(math.isnan(score.value) for score in task.worst(lost))
    empty = case_of(Points(np.empty((0, 3)), ()))
    assert {(s.label, s.status) for s in task.score(empty, Points(np.empty((0, 3)), ()))} == {("landmarks", "absent")}
    assert {score.label for score in task.worst(empty)} == {"landmarks"}


def test_pictures_without_a_size_are_judged_in_pixels_only_when_told_so():
    truth = points(a=(10, 10), b=(20, 20))
    with pytest.raises(CaseError, match=r"states no physical size; set task\.units=pixel"):
        locating().score(case_of(truth, FILM), truth)
    moved = points(a=(13, 14), b=(20, 20))
    assert values(locating(units="pixel").score(case_of(truth, FILM), moved))["a", "landmark_distance"] == 5
    scanned = values(locating().score(case_of(truth, SCANNED), moved))["a", "landmark_distance"]
    assert scanned == pytest.approx(math.hypot(3 * 0.5, 4 * 0.25))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metrics": ["dice"]}, "'dice' judges mask, not landmarks"),
        ({"metrics": ["sdr@2", "sdr@2"]}, "name each metric once"),
        ({"metrics": ["sdr"]}, "'sdr' needs a parameter"),
        ({"units": "pixels"}, "got 'pixels'; did you mean 'pixel'"),
        ({"missed": "diag"}, "missed to be 'diagonal', 'skip' or a number, got 'diag'"),
        ({"monitor": "mre"}, "'mre' judges whole runs"),
        ({"labels": {1: "C1", 2: "C1"}}, "different names"),
    ],
)
def test_settings_of_landmarks_that_cannot_be_meant_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        locating(**settings)


def test_a_damaged_file_names_itself(tmp_path):
    path = tmp_path / "p1.json"
    for content, words in (("[", "cannot be read"), ("[]", "holds no stored"), ('{"points": 3}', "holds no points")):
        path.write_text(content)
        with pytest.raises(CaseError, match=f"p1.json: {words}"):
            locating().score(case_of(TRUTH), path)
    path.write_text('{"numbers": 3}')
    with pytest.raises(CaseError, match=r"p1.json: holds no measurements"):
        measuring(["MT"]).score(case_of(Findings({"MT": 3})), path)


def test_signatures_say_what_the_numbers_rest_on():
    assert locating().signature() == "distances of missed points counted with the image's diagonal"
    assert locating(missed="skip").signature() == "distances of missed points not counted"
    pixels = locating(missed=50, units="pixel").signature()
    assert pixels == "distances of missed points counted with 50 pixel, distances in pixels"
    assert "mean of their coefficients" in measuring("cobb").signature()
    given = measuring(["a"], periods={"a": 180}, metrics=["angle_error"], units="pixel").signature()
    assert given == "numbers as given, a circular at 180, measured in pixels"


# Measurements.


def test_points_are_measured_in_mm_alike_on_both_sides(tmp_path):
    task = measuring(
        {"bend": ["hip", "knee", "foot"], "thigh": ["hip", "knee"]}, metrics=["absolute_error", "measured"]
    )
    case = case_of(TRUTH)
    assert task.prompt(case, ()).labels == {1: "hip", 2: "knee", 3: "foot"}
    # Steps are 1, 2 and 3 mm: the thigh is 12 mm; the foot moved to (1, 5, 9) is 8 mm along and 12 mm up: 90 + 56.31.
    answer = points(hip=(1, 1, 1), knee=(1, 1, 5), foot=(1, 5, 9))
    found = values(task.score(case, answer))
    assert found["thigh", "measured"] == 12
    assert found["bend", "absolute_error"] == pytest.approx(math.degrees(math.atan2(12, 8)))
    task.codec.save(tmp_path / "p1.json", task.accept(case, answer))
    assert values(task.score(case, tmp_path / "p1.json")) == found
    assert values(task.score(case, points(hip=(1, 1, 1), knee=(1, 1, 5)))) == pytest.approx(
        {
            ("bend", "absolute_error"): math.nan,
            ("bend", "measured"): math.nan,
            ("thigh", "absolute_error"): 0,
            ("thigh", "measured"): 12,
        },
        nan_ok=True,
    )


def test_numbers_are_taken_as_they_are_from_model_and_readers(tmp_path):
    task = measuring(["MT", "PT"], metrics=["angle_error", "inter_reader"])
    case = case_of(Findings({"MT/anna": 40, "MT/bo": 44}))
    answer = {"MT": 45, "PT": math.nan}
    task.codec.save(tmp_path / "p1.json", task.accept(case, answer))
    assert json.loads((tmp_path / "p1.json").read_text()) == {"numbers": {"MT": 45, "PT": None}}
    for prediction in (answer, tmp_path / "p1.json"):
        scores = task.score(case, prediction)
        assert scores[:3] == [
            LabelScore("MT", "angle_error", 3, "present"),
            LabelScore("MT/anna/1", "measured_by_reader", 40, "present"),
            LabelScore("MT/bo/1", "measured_by_reader", 44, "present"),
        ]
        assert (scores[3].label, scores[3].status) == ("PT", "absent")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"TM": 3.0}, "holds a number 'TM'; did you mean 'MT'"),
        ({"MT/anna": 3.0}, "holds a number 'MT/anna'"),
        ({"MT": "much"}, "holds something that is no number"),
        ({"MT": math.inf}, "holds inf for 'MT'"),
        ([3.0], "to be Points or numbers by name, got list"),
        (points(a=(1, 1, 1)), "the task says not what to measure"),
    ],
)
def test_answers_that_are_no_measurements_are_refused(answer, words):
    with pytest.raises(CaseError, match=f"case 'p1': .*{words}"):
        measuring(["MT"]).accept(case_of(Findings({"MT": 3})), answer)


@pytest.mark.parametrize(
    ("measures", "settings", "words"),
    [
        ("cob", {}, "got 'cob'; did you mean 'cobb'"),
        ({"a": ["x"]}, {}, r"expected 2, 3 or 4 points for 'a'"),
        ({"a": "xy"}, {}, r"expected 2, 3 or 4 points for 'a'"),
        (["a/b"], {}, "names without '/', got 'a/b'"),
        (["a"], {"periods": {"b": 360}}, "got 'b'"),
        (["a"], {"periods": {"a": 0}}, "period of 'a' to be above 0"),
        (["a"], {"metrics": ["sdr@2"]}, "judges landmark, not measurements"),
        (["a"], {"units": "cm"}, "got 'cm'"),
    ],
)
def test_settings_of_measurements_that_cannot_be_meant_are_refused(measures, settings, words):
    with pytest.raises(UsageError, match=words):
        measuring(measures, **settings)


def test_a_measurement_without_an_answer_keeps_its_reference():
    task = measuring(["MT"], metrics=["smape", "accuracy_within@5"])
    scores = values(task.worst(case_of(Findings({"MT": 30}))))
    assert (scores["MT", "measured_reference"], scores["MT", "accuracy_within@5"]) == (30, 0)
    assert math.isnan(scores["MT", "measured"])
    lost = task.worst(case_of(CaseError("gone")))
    assert {(score.label, score.status) for score in lost} == {("MT", "failed")}
    assert all(math.isnan(score.value) for score in lost)


# AASCE in the folders of Vertebra-Landmark-Detection.


def corners(tilts):
    """x and y of the corners of vertebrae of 60 x 36 pixels, upper left, upper right, lower left, lower right."""
    made = []
    for index, tilt in enumerate(tilts):
        turn = math.radians(tilt)
        made += [
            (
                150 + x * math.cos(turn) - y * math.sin(turn),
                40 + 56 * index + x * math.sin(turn) + y * math.cos(turn),
            )
            for y in (-18, 18)
            for x in (-30, 30)
        ]
    return np.array(made)


BENT = [5, 10, 15, 20, 15, 10, 5, 0, -5, -10, -15, -10, -5, 0, 0, 0, 0]


@pytest.fixture
def aasce(tmp_path, monkeypatch):
    for split in ("train", "val", "test"):
        name = f"sunhl-1th-{split}.jpg"
        (tmp_path / "aasce" / "data" / split).mkdir(parents=True)
        (tmp_path / "aasce" / "labels" / split).mkdir(parents=True)
        Picture.fromarray(np.full((1000, 300), 90, np.uint8)).save(tmp_path / "aasce" / "data" / split / name)
        savemat(tmp_path / "aasce" / "labels" / split / f"{name}.mat", {"p2": corners(BENT)})
    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path))
    return build(composed_config("test", "task=aasce_cobb", "task.expected.test=1")["task"])


def test_aasce_is_read_from_its_authors_folders_and_measured_like_the_prediction(aasce):
    (case,) = aasce.cases("test")
    assert case.id == "sunhl-1th-test"
    truth = case.target.read()
    scores = values(aasce.score(case, truth))
    expected = cobb_angles(corners(BENT)[:, ::-1], height=1000)
    assert expected.mt == pytest.approx(35)
    for name, angle in zip(("MT", "PT", "TL"), expected, strict=True):
        assert scores[name, "measured"] == scores[name, "measured_reference"] == pytest.approx(angle)
        assert (scores[name, "angle_error"], scores[name, "accuracy_within@5"]) == (0, 1)


def test_a_prediction_may_give_angles_or_corners_in_any_order(aasce):
    (case,) = aasce.cases("test")
    scores = values(aasce.score(case, {"MT": 38.0, "PT": 10.0, "TL": 15.0}))
    assert scores["MT", "angle_error"] == pytest.approx(3)
    truth = case.target.read()
    turned = np.concatenate([truth.positions[4 * place : 4 * place + 4][::-1] for place in reversed(range(17))])
    assert values(aasce.score(case, Points(turned, truth.names)))["MT", "angle_error"] == pytest.approx(0)
    with pytest.raises(CaseError, match="'sunhl-1th-test': prediction: Expected `corners`"):
        aasce.accept(case, Points(truth.positions[:6], truth.names[:6]))


def test_cobb_angles_of_a_volume_are_refused():
    task = measuring("cobb")
    with pytest.raises(CaseError, match="measured in a picture"):
        task.accept(case_of(TRUTH), points(a=(1, 1, 1)))

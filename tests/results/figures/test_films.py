"""Figures of films: stretches of ribbons, and matrices counted by hand."""

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models import PrecomputedFrames
from medimg_eval.viewer.ribbons import Phases, confusion_frame, matrix_figure, ribbon_figure, transition_frame
from tests.benchmarks.test_workflow_sets import write_pitvis
from tests.helpers.benchmark_files import task

NAMES = ["cut", "sew"]
FILMS = [
    # Judged 5 frames: cut as cut twice, cut as sew once, sew as sew once, sew as nothing once; one frame is not judged.
    Phases("a", np.arange(6.0), np.array([0, 0, 0, 1, 1, -1]), np.array([0, 0, 1, 1, -1, 0])),
    Phases("b", np.arange(3.0), np.array([0, 1, 0]), np.array([0, 1, 0])),
]


def test_confusions_and_transitions_are_counted():
    frame = confusion_frame(FILMS, NAMES)
    counts = {(row.truth, row.prediction): row.n for row in frame.itertuples()}
    assert counts["cut", "cut"] == 4
    assert counts["cut", "sew"] == 1
    assert counts["sew", "sew"] == 2
    assert counts["sew", "(none)"] == 1
    assert frame.set_index(["truth", "prediction"]).loc[("cut", "cut"), "value"] == pytest.approx(4 / 5)
    frame = transition_frame(FILMS, NAMES).set_index(["from", "to"])
    # Predicted: a goes 0 0 1 1 0 (the frame without a label is passed over), b 0 1 0. True: a 0 1, b 0 1 0.
    assert frame.loc[("cut", "sew"), "n"] == frame.loc[("sew", "cut"), "n"] == 2
    assert frame.loc[("cut", "sew"), "true"] == 2
    assert frame.loc[("sew", "cut"), "true"] == 1


def test_ribbons_are_stretches_of_equal_truth_and_prediction():
    drawn = ribbon_figure(FILMS[:1], NAMES, "model")
    found = drawn.frame[["start", "truth", "prediction", "n"]].to_numpy().tolist()
    assert found == [
        [0, "cut", "cut", 2],
        [2, "cut", "sew", 1],
        [3, "sew", "sew", 1],
        [4, "sew", "(none)", 1],
        [5, "(none)", "cut", 1],
    ]
    matrix = matrix_figure(confusion_frame(FILMS, NAMES), "model", "truth", "prediction")
    assert matrix.size[0] == pytest.approx(89)


@pytest.mark.slow
def test_a_run_of_films_is_drawn_from_its_answers(tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "said").mkdir()
    steps, _ = write_pitvis(tmp_path / "films")
    rows = [f"{k},{3 if k == 0 else step}\n" for k, step in enumerate(steps)]
    (tmp_path / "said/01.csv").write_text("frame,int_step\n" + "".join(rows))
    films = task("pitvis", tmp_path / "films", presence=[], metrics=["video_accuracy"], monitor="video_accuracy")
    model = PrecomputedFrames(str(tmp_path / "said"), columns=["int_step"])
    run = me.test(films, model, runs=tmp_path / "runs")
    drawn = me.figure(["ribbons", "phase_confusion"], [run.folder], out=tmp_path / "figures")
    ribbons, confusion = drawn.values()
    assert ribbons.frame["prediction"][0] == "step 3"
    assert confusion.frame["n"].sum() == 8
    with pytest.raises(UsageError, match="has no answer of case '02'"):
        me.figure("ribbons", [run.folder], cases=["02"])
    with pytest.raises(UserError, match="no run holds weights"):
        me.figure("attention", [run.folder])

"""OpenCapBench: motions in the authors' folders, and errors as their script finds them, by pandas and by hand."""

import glob
import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.motions import Motion, read_motion
from medimg_eval.metrics.measurement.joint_angles import best_shift, differences_at
from medimg_eval.models import PrecomputedMotions
from medimg_eval.tasks import MotionTask
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import config, ids, task

EXTRA = ("pelvis_tx", "pelvis_ty", "pelvis_tz", "knee_angle_r_beta", "knee_angle_l_beta", "mtp_angle_r", "mtp_angle_l")
NAMES = list(config("opencapbench").coordinates)
ORDER = [
    *NAMES[:3],
    *EXTRA[:3],
    *NAMES[3:9],
    *EXTRA[3:4],
    "mtp_angle_r",
    *NAMES[9:15],
    "knee_angle_l_beta",
    "mtp_angle_l",
]
ORDER += [*NAMES[15:], "arm_flex_r"]


def write_motion(path, time, values, degrees="yes"):
    """A file as OpenSim writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"Coordinates\nversion=1\nnRows={len(time)}\nnColumns={len(values) + 1}\ninDegrees={degrees}\n\nendheader\n"
    rows = ["\t".join(["time", *values])]
    rows += ["\t".join(f"{number:.8f}" for number in row) for row in zip(time, *values.values(), strict=True)]
    path.write_text(head + "\n".join(rows) + "\n")


def made(seed, frames=120, lag=0, noise=0.0):
    """Swinging angles; the predicted ones of `lag` frames later."""
    rng = np.random.default_rng(7)
    speeds, phases = rng.uniform(3, 9, len(ORDER)), rng.uniform(0, 6, len(ORDER))
    time = np.arange(frames) / 60
    late = time - lag / 60
    noisy = np.random.default_rng(seed)
    values = {
        name: 20 * np.sin(speed * late + phase) + noise * noisy.normal(size=frames)
        for name, speed, phase in zip(ORDER, speeds, phases, strict=True)
    }
    return time, values


@pytest.fixture
def root(tmp_path):
    """Two subjects with trials, and what a program predicted of three of them."""
    for subject, trial, seed in (("subject2", "walking1", 1), ("subject2", "squats1", 2), ("subject3", "walking1", 3)):
        true, said = (tmp_path / "truth" / subject, tmp_path / "said" / f"{subject}_HRNet")
        write_motion(true / "OpenSimData/Mocap/IK" / f"{trial}.mot", *made(seed))
        write_motion(said / "OpenSimData/Kinematics" / f"{trial}.mot", *made(seed, lag=3 * seed, noise=1.0))
    return tmp_path


def script(true, said, shift_by_knees):
    """The authors' steps with pandas: shift, subtract, drop, square, average, root."""
    frames = []
    for path in (true, said):
        lines = path.read_text().splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("endheader"))
        rows = [line.split() for line in lines[start + 1 :]]
        frames.append(pd.DataFrame(rows[1:], columns=rows[0]).astype(float).set_index("time"))
    truth, table = frames
    by = 0
    if shift_by_knees:
        knees = ["knee_angle_r", "knee_angle_l"]
        errors = pd.DataFrame({by: (table.shift(by) - truth).dropna()[knees].abs().mean() for by in range(-40, 40)})
        by = int(errors.idxmin(axis=1).sum() / 2)
    squared = ((table.shift(by) - truth) ** 2).dropna()
    kept = squared[squared.columns[: squared.columns.get_loc("lumbar_rotation") + 1]].drop(list(EXTRA), axis=1)
    return kept.mean() ** 0.5, by


def test_trials_are_cases_and_subjects_patients(root):
    cases = task("opencapbench", root / "truth").cases("test")
    assert ids(cases) == ["subject2/squats1", "subject2/walking1", "subject3/walking1"]
    assert [case.patient for case in cases] == ["subject2", "subject2", "subject3"]
    motion = cases[0].target.read()
    assert len(motion.time) == 120
    assert set(NAMES) < set(motion.values)


def test_errors_are_those_of_the_authors_steps(root):
    one = task("opencapbench", root / "truth")
    model = PrecomputedMotions(str(root / "said"))
    for case in one.cases("test"):
        [answer] = model.regress([one.prompt(case, ())])
        found = {(row.label, row.metric): row.value for row in one.score(case, answer)}
        subject, trial = case.id.split("/")
        true = root / "truth" / subject / "OpenSimData/Mocap/IK" / f"{trial}.mot"
        said = root / "said" / f"{subject}_HRNet/OpenSimData/Kinematics" / f"{trial}.mot"
        for metric, moved in (("angle_rmse_shifted", True), ("angle_rmse", False)):
            expected, by = script(true, said, moved)
            assert list(expected.index) == NAMES  # the coordinates that they keep, in their order
            assert [found[name, metric] for name in NAMES] == pytest.approx(expected.tolist(), rel=1e-6)
            assert not moved or found[NAMES[0], "angle_shift"] == by
        assert found["knee_angle_r", "angle_rmse_shifted"] < found["knee_angle_r", "angle_rmse"]


def test_a_shift_is_by_hand_found_again():
    time = np.arange(6.0)
    true, said = np.array([[0, 1, 2, 3, 4, 5.0]]).T, np.array([[2, 3, 4, 5, 6, 7.0]]).T
    # Two frames early: moved down by two rows they agree.
    assert best_shift((time, true), (time, said), [0]) == 2
    assert differences_at((time, true), (time, said), 2)[2:, 0].tolist() == [0, 0, 0, 0]
    assert np.isnan(differences_at((time, true), (time, said), 2)[:2]).all()
    # Frames of other times are compared with nothing.
    assert len(differences_at((time, true), (time + 0.5, said), 0)) == 0
    assert best_shift((time, true), (time + 0.5, said), [0]) == 0


def test_values_of_two_frames_by_hand():
    one = MotionTask(
        name="m", layout=None, coordinates=["knee_angle_r"], metrics=["angle_rmse", "angle_mae", "angle_bias"]
    )
    rows = one.score(
        _case(Motion(np.array([0.0, 1.0]), {"knee_angle_r": np.array([10.0, 20.0])})),
        Motion(np.array([0.0, 1.0]), {"knee_angle_r": np.array([13.0, 16.0])}),
    )
    assert [row.value for row in rows] == pytest.approx([math.sqrt((9 + 16) / 2), 3.5, -0.5])
    assert all(math.isnan(row.value) and row.status == "failed" for row in one.worst(_case(None)))


def _case(motion):
    class Known:
        files = ()

        def read(self):
            return motion

    from medimg_eval.case import Case

    return Case("subject1/walk", (), Known())


def test_what_a_record_keeps_is_the_motion(root):
    motion = read_motion(next((root / "truth").rglob("*.mot")))
    assert Motion.from_record(motion.as_record()).as_record() == motion.as_record()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time a\n0 1\n", "expected 'endheader'"),
        ("endheader\na time\n0 1\n", "names from 'time' on"),
        ("endheader\ntime a\n0 x\n", "line 3: .*no number"),
        ("endheader\ntime a\n0\n", "line 3: row is invalid: expected 2 numbers, got 1"),
        ("endheader\ntime a\n1 2\n0 2\n", "ascending time"),
        ("endheader\ntime a\n", "got 0 frames"),
    ],
)
def test_files_that_are_no_motion_are_refused_by_line(tmp_path, text, words):
    (tmp_path / "t.mot").write_text(text)
    with pytest.raises(CaseError, match=words):
        read_motion(tmp_path / "t.mot")


def test_what_cannot_be_judged_is_refused(root, tmp_path):
    one = task("opencapbench", root / "truth")
    case = one.cases("test")[0]
    with pytest.raises(CaseError, match="expected angles in degrees"):
        one.accept(case, Motion(np.array([0.0]), dict.fromkeys(NAMES, np.zeros(1)), degrees=False))
    with pytest.raises(CaseError, match="lacks the coordinate"):
        one.accept(case, Motion(np.array([0.0]), {"knee_angle_r": np.zeros(1)}))
    with pytest.raises(CaseError, match="expected a Motion"):
        one.accept(case, {})
    (root / "said" / "subject2_HRNet/OpenSimData/Kinematics/squats1.mot").unlink()
    with pytest.raises(CaseError, match=r"expected one file .*subject2_\*/OpenSimData/Kinematics/squats1.mot, got 0"):
        PrecomputedMotions(str(root / "said")).regress([one.prompt(case, ())])
    with pytest.raises(UserError, match="trials are invalid"):
        task("opencapbench", tmp_path / "said").cases("test")
    with pytest.raises(UsageError, match="expected different names"):
        MotionTask(name="m", layout=None, coordinates=["a", "a"])


def test_the_authors_program_prints_the_same_errors(root):
    clone = require_clone("StanfordMIMI/OpenCapBench")

    def mot_to_df(path):
        # Theirs, without `errors="ignore"`, which pandas 3 lacks.
        lines = [line.split() for line in Path(path).read_text().splitlines()]
        start = next(place for place, line in enumerate(lines) if line[:1] == ["endheader"])
        return pd.DataFrame(lines[start + 2 :], columns=lines[start + 1]).astype(float).set_index("time")

    names = ("build_exercises_dict", "get_best_shifts_for_metric", "compute_median_shifts", "get_metrics")
    given = {"mot_to_df": mot_to_df, "glob": glob, "json": json, "os": os, "pd": pd}
    theirs = load_functions(clone / "benchmarking" / "metrics.py", *names, **given)
    theirs["get_metrics"](str(root / "truth"), str(root / "said"), str(root))
    one, model = task("opencapbench", root / "truth"), PrecomputedMotions(str(root / "said"))
    rows = [row for case in one.cases("test") for row in one.score(case, model.regress([one.prompt(case, ())])[0])]
    for metric, file in (("angle_rmse_shifted", "saidmean_rmses.csv"), ("angle_rmse", "saidmean_rmses_no_shift.csv")):
        expected = pd.read_csv(root / file, index_col=0).iloc[:, 0]
        assert len(expected) == 12
        for joint, value in expected.items():
            held = [row.value for row in rows if row.metric == metric and re.sub("_[rl]$", "", row.label) == joint]
            assert np.mean(held) == pytest.approx(value, abs=5.1e-4), (metric, joint)

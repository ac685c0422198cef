"""NLST in the table of Pillar-0's program, whose years count from 0."""

import numpy as np
import pytest

from medimg_eval.metrics.survival import yearly_auroc
from tests.helpers.benchmark_files import task, volume

ROWS = ["a,1,0", "b,1,3", "c,0,5", "d,0,2", "e,1,5", "f,0,0"]


def write(root):
    for name, *_ in ROWS:
        volume(root / f"{name}.nii.gz", np.zeros((3, 3, 3)))
    lines = ["accession,image_paths,split,y,time_at_event"]
    lines += [f"{name},{name}.nii.gz,test,{rest}" for name, _, rest in (row.partition(",") for row in ROWS)]
    (root / "nlst.csv").write_text("\n".join(lines) + "\n")


def published(scores, rows, followup):
    """The rule of pillar/metrics/survival.py, written anew: years count from 0."""
    kept = []
    for score, (gold, time) in zip(scores, rows, strict=True):
        positive = gold == 1 and time <= followup
        if positive or time >= followup:
            kept.append((score, positive))
    sick = [score for score, positive in kept if positive]
    well = [score for score, positive in kept if not positive]
    return np.mean([(one > other) + 0.5 * (one == other) for one in sick for other in well])


def test_years_count_from_one_and_each_year_has_its_auroc(tmp_path):
    write(tmp_path)
    cases = task("nlst_risk", tmp_path).cases("test")
    held = [case.target.read() for case in cases]
    assert [(one.time, one.event, one.unit) for one in held] == [
        (1, True, "years"),
        (4, True, "years"),
        (6, False, "years"),
        (3, False, "years"),
        (6, True, "years"),
        (1, False, "years"),
    ]
    rows = [tuple(map(int, row.split(",")[1:])) for row in ROWS]
    scores = [0.9, 0.2, 0.3, 0.4, 0.3, 0.1]
    times, events = [one.time for one in held], [one.event for one in held]
    for year in range(1, 7):
        found = yearly_auroc(times, events, scores, year)
        assert found == pytest.approx(published(scores, rows, year - 1)), year

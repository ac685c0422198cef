"""FROC and F1 of each scanner or centre: what a run of its cases alone would have."""

import pytest

from medimg_eval.metrics import get
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.results import build_table, load_runs
from tests.helpers.rows import run_of

SCANNERS = {f"c{at}": {"scanner": "A" if at < 3 else "B"} for at in range(6)}
CANDIDATES = {  # status, confidence
    "c0": [("hit", 0.9), ("false", 0.8)],
    "c1": [("false", 0.7)],
    "c2": [("hit", 0.6), ("hit", 0.5), ("ignored", 0.4)],
    "c3": [("false", 0.95), ("false", 0.9)],
    "c4": [("hit", 0.3)],
    "c5": [],
}
LESIONS = {"c0": 1, "c1": 1, "c2": 3, "c3": 0, "c4": 2, "c5": 1}


def scores_of(case):
    found = [LabelScore("m", "detection_score", value, status) for status, value in CANDIDATES[case]]
    return [*found, LabelScore("m", "n_reference_lesions", LESIONS[case], "present")]


@pytest.mark.parametrize("metric", ["froc_score", "detection_f1", "froc@1"])
def test_each_scanner_has_its_own(write_run, metric):
    rows = [(case, case, *score) for case in CANDIDATES for score in scores_of(case)]
    rows = [(case, patient, score[0], score[1], score[2], score[3]) for case, patient, *score in rows]
    runs = load_runs([write_run("m", rows, SCANNERS, metrics=[metric])])
    groups = {
        row.group: row.cells[0].mean for row in build_table(runs, metrics=[metric], by="scanner", resamples=20).rows
    }
    found, parameter = get(metric), [1.0] if "@" in metric else []
    for scanner in "AB":
        own = run_of(*(scores_of(case) for case in CANDIDATES if SCANNERS[case]["scanner"] == scanner))
        shown = [value for group, value in groups.items() if group.endswith(scanner)]
        assert shown == [pytest.approx(found.function(own, *parameter))]

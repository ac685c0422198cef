"""Summaries that take how often each row counts give what calling them on copied rows gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from medimg_eval.metrics import available, registry
from medimg_eval.results import load_runs
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics.summaries import summarise

NAMES = (
    "cpm",
    "froc@1",
    "froc@0.3",
    "average_precision",
    "es_dice@sex",
    "es_iou@sex",
    "es_dice_sd@sex",
    "es_iou_sd@sex",
)


def detections(rng, case, patient):
    """Rows of two labels of one case: some candidates share a confidence; of some the findings are not known."""
    for label in ("nodule", "mass"):
        lesions = int(rng.integers(0, 3))
        for found in range(int(rng.integers(0, 6))):
            how = "hit" if found < lesions else str(rng.choice(["false", "ignored"], p=[0.8, 0.2]))
            yield (case, patient, label, "candidate", round(float(rng.random()), 1), how)
        unknown = rng.random() < 0.1
        yield (case, patient, label, "lesions", float("nan") if unknown else float(lesions), "present")


@pytest.fixture
def run(write_run):
    """Judges 30 cases of about 15 patients; the sex of some is not known."""

    def made(**facts):
        rng, rows, sexes = np.random.default_rng(8), [], {}
        for number in range(30):
            case, patient = f"c{number:02d}", f"p{rng.integers(15):02d}"
            rows += detections(rng, case, patient)
            scores = [(label, metric) for label in ("nodule", "mass") for metric in ("dice", "iou")]
            rows += [(case, patient, label, metric, float(rng.random()), "present") for label, metric in scores]
            sexes[case] = {"sex": str(rng.choice(["F", "M", "X", ""], p=[0.5, 0.35, 0.05, 0.1]))}
        return Part.whole(load_runs([write_run(f"m{len(facts)}", rows, sexes, **facts)])[0])

    return made


def found_of(part, name, method="percentile"):
    return summarise(name, part, resamples=120, level=0.9, seed=2, method=method)


def without_weights(monkeypatch):
    monkeypatch.setattr(registry, "_METRICS", {name: replace(one, weighed=None) for name, one in available().items()})


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_copies(run, name, monkeypatch):
    part = run()
    assert registry.get(name).weighed is not None
    weighed = [found_of(part, name, method) for method in ("percentile", "bca")]
    without_weights(monkeypatch)
    for one, other in zip(weighed, [found_of(part, name, method) for method in ("percentile", "bca")], strict=True):
        assert one[:6] == pytest.approx(other[:6])
        assert one.method == other.method


def test_a_case_that_left_no_row_counts_as_a_scan_of_some_resamples(run, monkeypatch):
    part = run(cases=34)
    before = found_of(part, "froc@1")
    without_weights(monkeypatch)
    assert found_of(part, "froc@1") == before
    assert before.n == 34

"""A detector and a classifier behind each other: findings that were marked and classed, judged as one chain.

Two tables come of it. `matched` holds the findings that a candidate hit, with the class that the candidate was given:
it flatters, for what was missed is not in it. `end to end` holds all findings, those that were missed with a
probability of 0, and every false candidate as one that has not the class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from medimg_eval.metrics.arrays import Bools, Floats

MATCHED, END_TO_END = "matched", "end to end"


@dataclass(frozen=True, eq=False)
class ScanFindings:
    """Findings of a scan.

    Attributes:
        centres: (finding, 3) in mm.
        radii: (finding,) in mm: a candidate that is nearer is a hit.
        positive: (finding,), whether each has the class, such as malignant.
    """

    centres: Floats
    radii: Floats
    positive: Bools


@dataclass(frozen=True, eq=False)
class ScanCandidates:
    """Candidates of a scan.

    Attributes:
        centres: (candidate, 3) in mm.
        confidences: (candidate,), of the detector.
        probabilities: (candidate,), of the class, by the classifier.
    """

    centres: Floats
    confidences: Floats
    probabilities: Floats


def chain_scores(
    findings: Mapping[str, ScanFindings],
    candidates: Mapping[str, ScanCandidates],
    *,
    least: float,
    label: str,
    model: str = "chain",
) -> list[dict[str, Any]]:
    """Chains detection and classification into rows that `table scores=` reads.

    A finding takes the most confident candidate nearer than its radius, whose confidence is at least `least`; other
    candidates on a finding are left out, the rest are false.

    Args:
        findings: scan -> what there is; a scan without findings is one with arrays of none.
        candidates: scan -> what was marked; a scan that is absent has none.
        least: the confidence that a candidate needs: the operating point of the chain.
        label: what the class is called.
        model: what the chain is called.

    Returns:
        Rows of `case`, `patient` (the scan), `task` (`matched` or `end to end`), `model`, `label`, `metric`
        (`probability`), `value` and `status` (`present` or `absent`).

    Raises:
        ValueError: candidates are of a scan that is not among the findings, or arrays are of different lengths.
    """
    strange = sorted(set(candidates) - set(findings))
    if strange:
        raise ValueError(f"candidates is invalid: expected scans among the findings, got {strange[0]!r}")
    rows: list[dict[str, Any]] = []

    def add(task: str, case: str, scan: str, value: float, positive: bool) -> None:
        row = {"case": case, "patient": scan, "task": task, "model": model, "label": label, "metric": "probability"}
        rows.append({**row, "value": float(value), "status": "present" if positive else "absent"})

    for scan, truth in findings.items():
        marked = candidates.get(scan, ScanCandidates(np.zeros((0, 3)), np.zeros(0), np.zeros(0)))
        chosen, on = _match_candidates(scan, truth, marked, least)
        for number, candidate in enumerate(chosen):
            case, positive = f"{scan}/finding {number + 1}", bool(truth.positive[number])
            value = float(marked.probabilities[candidate]) if candidate >= 0 else 0.0
            if candidate >= 0:
                add(MATCHED, case, scan, value, positive)
            add(END_TO_END, case, scan, value, positive)
        for number in np.flatnonzero((marked.confidences >= least) & ~on).tolist():
            add(END_TO_END, f"{scan}/candidate {number + 1}", scan, float(marked.probabilities[number]), False)
    return rows


def _match_candidates(
    scan: str, truth: ScanFindings, marked: ScanCandidates, least: float
) -> tuple[Sequence[int], Bools]:
    """Returns findings' candidates (-1: none) and which candidates hit any."""
    for what, sizes in (
        ("findings", (len(truth.centres), len(truth.radii), len(truth.positive))),
        ("candidates", (len(marked.centres), len(marked.confidences), len(marked.probabilities))),
    ):
        if len(set(sizes)) > 1:
            raise ValueError(f"{what} of {scan!r} is invalid: expected arrays of one length, got {sizes}")
    apart = np.linalg.norm(marked.centres[:, None] - truth.centres[None], axis=2)
    hits = (apart < truth.radii[None]) & (marked.confidences >= least)[:, None]
    chosen = [
        int(np.flatnonzero(column)[np.argmax(marked.confidences[column])]) if column.any() else -1 for column in hits.T
    ]
    return chosen, hits.any(axis=1)

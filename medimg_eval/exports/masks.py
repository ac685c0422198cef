"""Runs of label maps as nnU-Net's `summary.json`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Mask
from medimg_eval.errors import UserError
from medimg_eval.run_results import RunResults
from medimg_eval.system import product
from medimg_eval.tasks import Task


def export_nnunet(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes Dice, IoU and voxel counts as nnU-Net's evaluator.

    Both Dice and IoU are NaN where neither mask holds the label; means leave those out. Cases that failed are left out,
    as they are by nnU-Net.

    Raises:
        UserError: the run's predictions are no label maps.
    """
    cases: list[dict[str, Any]] = []
    for case in task.cases("test"):
        prediction, reference = run.predictions.first(case.id), None
        if prediction is None:
            continue
        if isinstance(prediction, Mask):
            reference = case.target.read()
        if not isinstance(prediction, Mask) or not isinstance(reference, Mask):
            raise UserError(f"{run.folder}: its predictions are no label maps; export to=inspect takes texts")
        cases.append(
            {
                "reference_file": ", ".join(map(str, case.target.files)),
                "prediction_file": f"{case.id}.nii.gz",
                "metrics": {
                    str(label): _overlap_counts(reference, prediction, label) for label in task.numbered_labels()
                },
            }
        )
    labels = [str(label) for label in task.numbered_labels()]
    mean = {label: _defined_means([case["metrics"][label] for case in cases]) for label in labels}
    summary = {"foreground_mean": _defined_means(list(mean.values())), "mean": mean, "metric_per_case": cases}
    file = out / str(run.manifest["model"]) / "summary.json"
    with product(file) as partial:
        partial.write_text(json.dumps(summary, indent=4), encoding="utf-8")  # with bare NaN, as nnU-Net writes it
    return [file]


def _overlap_counts(reference: Mask, prediction: Mask, label: int) -> dict[str, Any]:
    right, predicted = reference.labels == label, prediction.labels == label
    tp, fp, fn = (int(np.count_nonzero(both)) for both in (right & predicted, ~right & predicted, right & ~predicted))
    either = tp + fp + fn
    return {
        "Dice": 2 * tp / (2 * tp + fp + fn) if either else math.nan,
        "IoU": tp / either if either else math.nan,
        "TP": tp,
        "FP": fp,
        "FN": fn,
        "TN": right.size - either,
        "n_pred": tp + fp,
        "n_ref": tp + fn,
    }


def _defined_means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of each value over those that are defined."""
    defined = {name: [row[name] for row in rows if not math.isnan(row[name])] for name in (rows[0] if rows else {})}
    return {name: sum(values) / len(values) if values else math.nan for name, values in defined.items()}

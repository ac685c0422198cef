"""nnU-Net's `summary.json`: overlap and counts of voxels of each case and label."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

from medimg_eval.data.tables import read_json
from medimg_eval.errors import UserError

SUMMARY = "summary.json"


def is_nnunet(path: Path) -> bool:
    """Whether a file, or one in a folder, is nnU-Net's summary."""
    file = _summary_path(path)
    return file.name == SUMMARY and file.is_file() and b"metric_per_case" in file.read_bytes()


def write_nnunet(path: Path, folder: Path, name: str | None = None) -> Path:
    """Writes Dice and IoU from nnU-Net's voxel counts as table.

    A label that neither mask holds has no value. Cases without a prediction are not in nnU-Net's file.

    Args:
        path: the file, or its folder.
        folder: of the table.
        name: what tables call the model; None takes the name of the folder.

    Raises:
        UserError: a value is not that of its counts, or a case stands there twice.
    """
    source = _summary_path(path)
    model = name or source.resolve().parent.name
    rows: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    for case in read_json(source)["metric_per_case"]:
        reference = Path(case.get("reference_file") or case.get("prediction_file") or "")
        ident = reference.name.split(".")[0]
        for label, values in case["metrics"].items():
            for metric, theirs, value in _recompute_values(values):
                if theirs is not None and not math.isclose(value, theirs, rel_tol=1e-6) and not math.isnan(value):
                    raise UserError(
                        f"{source}: case {ident!r}, label {label}: {metric} is {theirs}, its counts give {value}"
                    )
                row = (ident, model, metric, "" if math.isnan(value) else repr(value), f"label {label}")
                if rows.setdefault((ident, label, metric), row) != row:
                    raise UserError(f"{source}: case {ident!r} stands there twice; keep one")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{model}.csv"
    with target.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("case", "model", "metric", "value", "label"), *rows.values()])
    return target


def _recompute_values(values: dict[str, Any]) -> list[tuple[str, float | None, float]]:
    """Metric, nnU-Net's value, and that of its counts."""
    tp, fp, fn = (float(values[count]) for count in ("TP", "FP", "FN"))
    either = tp + fp + fn
    dice, iou = (2 * tp / (2 * tp + fp + fn), tp / either) if either else (math.nan, math.nan)
    return [("dice", values.get("Dice"), dice), ("iou", values.get("IoU"), iou)]


def _summary_path(path: Path) -> Path:
    return path / SUMMARY if path.is_dir() else path

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
    """Whether a file, or one in a folder or its folds, is nnU-Net's summary."""
    files = _summary_files(path)
    return bool(files) and all(
        file.name == SUMMARY and file.is_file() and b"metric_per_case" in file.read_bytes() for file in files
    )


def write_nnunet(path: Path, folder: Path, name: str | None = None) -> Path:
    """Writes Dice and IoU from nnU-Net's voxel counts as table.

    A label that neither mask holds has no value. Cases without a prediction are not in nnU-Net's file.

    Args:
        path: the file, its folder, or a trained model's folder with `fold_0` and further folds.
        folder: of the table.
        name: what tables call the model; None takes the name of the folder.

    Raises:
        UserError: a value is not that of its counts, or a case stands there twice.
    """
    sources = _summary_files(path)
    model = name or (sources[0].resolve().parent if len(sources) == 1 else path.resolve()).name
    rows: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    cases = [(source, case) for source in sources for case in read_json(source)["metric_per_case"]]
    for file, case in cases:
        reference = Path(case.get("reference_file") or case.get("prediction_file") or "")
        ident = reference.name.split(".")[0]
        for label, values in case["metrics"].items():
            for metric, theirs, value in _recompute_values(values):
                if theirs is not None and not math.isclose(value, theirs, rel_tol=1e-6) and not math.isnan(value):
                    raise UserError(
                        f"{file}: case {ident!r}, label {label}: {metric} is {theirs}, its counts give {value}"
                    )
                row = (ident, model, metric, "" if math.isnan(value) else repr(value), f"label {label}")
                if rows.setdefault((ident, label, metric), row) != row:
                    raise UserError(f"{file}: case {ident!r} stands there twice; keep one")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{model}.csv"
    with target.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("case", "model", "metric", "value", "label"), *rows.values()])
    return target


def _recompute_values(values: dict[str, Any]) -> list[tuple[str, float | None, float]]:
    """Metric, nnU-Net's value, and that of its counts."""
    tp, fp, fn = (float(values[count]) for count in ("TP", "FP", "FN"))
    either = tp + fp + fn
    dice, iou = (2 * tp / (2 * tp + fp + fn), tp / either) if either else (math.nan, math.nan)
    return [("dice", values.get("Dice"), dice), ("iou", values.get("IoU"), iou)]


def _summary_files(path: Path) -> list[Path]:
    """The file, that in a folder, or those of the folds of a cross-validation."""
    if not path.is_dir():
        return [path]
    own = path / SUMMARY
    return [own] if own.is_file() else sorted(path.glob(f"fold_*/validation/{SUMMARY}"))

"""`score boxes=` and `score points=`: places that were found, against those that are right, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medimg_eval.data.tables import read_json, read_table
from medimg_eval.errors import UsageError, UserError
from medimg_eval.file_scores.frame import (
    Candidate,
    answering,
    columns_of,
    dividing_column,
    listed,
    named_files,
    references_of,
    table_layout,
    task_config,
)
from medimg_eval.instantiate import build_task
from medimg_eval.models import PrecomputedCoco, PrecomputedPlaces

COCO = ("coco_ap", "coco_ap@50", "coco_ap@75", "coco_ar@100", "detection_recall")
FINDING = "finding"
"""What candidates find, and landmarks cannot, where no column names it."""


def box_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """COCO results as models; images without results have no candidates.

    Raises:
        UsageError: the references are not named.
        UserError: they are no annotations of COCO.
    """
    references = references_of(wanted, "boxes", "COCO's JSON of annotations")
    content = read_json(references)
    categories = content.get("categories") if isinstance(content, dict) else None
    if not isinstance(categories, list) or not all(
        isinstance(category, dict) and "name" in category for category in categories
    ):
        raise UserError(f"{references}: expected COCO's annotations, with a list of 'categories' with names")
    layout: dict[str, Any] = {
        "_target_": "Coco",
        "root": str(references.parent),
        "annotations": references.name,
        "images": "",
    }
    if attributes := dividing_column(wanted):
        layout["attributes"] = attributes
    settings = {
        "labels": [str(category["name"]) for category in categories],
        "matching": "coco",
        "metrics": wanted["metrics"] or list(COCO),
    }
    task = build_task(task_config("DetectionTask", "boxes", listed(layout, wanted), **settings))
    return [
        Candidate(task, answering(name, PrecomputedCoco, {"root": str(path), "annotations": str(references)}))
        for name, path in named_files("boxes", wanted["boxes"]).items()
    ]


def point_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Point tables as models: landmarks, or scored candidates.

    Raises:
        UsageError: the references are not named, or candidates have no size of a step in mm.
        UserError: a table lacks a column.
    """
    references = references_of(wanted, "points", "the table of points that are right")
    files = named_files("points", wanted["points"])
    roles = {"case": True, "x": True, "y": True, "z": False, "label": False}
    read = {
        name: columns_of(path, {**roles, "score": False}, wanted["columns"], {"diameter", "patient"})
        for name, path in files.items()
    }
    scored = any("score" in columns for columns in read.values())
    right = columns_of(references, {**roles, "diameter": scored, "patient": False}, wanted["columns"], {"score"})
    task = build_task(_points_config(wanted, references, right, scored=scored))
    candidates = []
    for name, path in files.items():
        columns = read[name]
        if "label" in right and "label" not in columns:
            raise UserError(f"{path}: has no column 'label', which {references} has; name it with columns.label=NAME")
        config: dict[str, Any] = {
            "root": str(path),
            "columns": [columns[axis] for axis in "xyz" if axis in columns],
            "space": "voxel",
            "case": columns["case"],
            **{key: columns[key] for key in ("label", "score") if key in columns},
        }
        predicted = dict.fromkeys(row.text(columns["case"]) for row in read_table(path))
        candidates.append(
            Candidate(task, answering(name, PrecomputedPlaces, config), predicted, silence_answers=scored)
        )
    return candidates


def _points_config(
    wanted: Mapping[str, Any], path: Path, columns: Mapping[str, str], *, scored: bool
) -> dict[str, Any]:
    """The config of a task of landmarks, or of findings."""
    if not scored and "label" not in columns:
        raise UserError(f"{path}: has no column 'label', the names of landmarks; candidates need a column 'score'")
    if scored and wanted["spacing"] is None:
        raise UsageError("points= with scores needs spacing=, the mm of a step of x: 1 where x, y and z are in mm")
    axes = [columns[axis] for axis in "xyz" if axis in columns]
    target = {"_target_": "medimg_eval.data.targets.PointColumns", "columns": axes, "space": "voxel"}
    target |= {"label": columns["label"]} if "label" in columns else {"name": FINDING}
    target |= {"value": columns["diameter"]} if scored else {}
    layout = {**table_layout("PointTable", path, columns, wanted), "columns": axes, "target": target}
    layout |= {} if wanted["spacing"] is None else {"spacing": float(wanted["spacing"])}
    config = task_config("DetectionTask" if scored else "LandmarkTask", "points", listed(layout, wanted))
    if wanted["metrics"]:
        config["metrics"] = wanted["metrics"]
    if not scored:
        return config if wanted["spacing"] is not None else {**config, "units": "pixel"}
    names = {row.text(columns["label"]) for row in read_table(path)} if "label" in columns else {FINDING}
    return {**config, "labels": sorted(names)}

"""`score classes=`: tables of probabilities, or of classes that were named, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UserError
from medimg_eval.file_scores.frame import (
    Candidate,
    answering,
    columns_of,
    listed,
    named_files,
    numeric_columns,
    table_layout,
    task_config,
)
from medimg_eval.file_scores.structured_reports import with_tables
from medimg_eval.instantiate import build_task
from medimg_eval.models import PrecomputedClasses

ROLES = {"case": True, "label": False, "prediction": False, "probability": False, "patient": False}
POSITIVE = "positive"
"""The class of a table with one column of 0 and 1, and one of probabilities."""

NAMED = ("top1_accuracy", "class_sensitivity@macro", "f1_score@macro")
PROBABLE = ("auroc@macro", "auprc@macro", "f1_score@macro", "brier_score")


def class_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Tables of predicted classes as models.

    Raises:
        UserError: a table lacks a column, or the classes of predictions are not those of the references.
    """
    files = with_tables("classes", named_files("classes", wanted["classes"]), wanted)
    references = Path(str(wanted["references"] or next(iter(files.values())))).expanduser()
    right = columns_of(references, ROLES, wanted["columns"])
    tables = {path: read_table(path) for path in {references, *files.values()}}
    roles = {name: columns_of(path, ROLES, wanted["columns"]) for name, path in files.items()}
    class_names = {
        name: numeric_columns(tables[path], {*roles[name].values(), wanted["by"]}) for name, path in files.items()
    }
    probability = any("probability" in held for held in roles.values())
    task = _class_settings(tables[references], right, class_names, probability, references)
    models = {}
    for name, path in files.items():
        config: dict[str, Any] = {"root": str(path), "case": roles[name]["case"]}
        config |= _prediction_arguments(path, roles[name], class_names[name], task, same=path == references)
        models[name] = answering(name, PrecomputedClasses, config)
    named = any("label" in model.config for model in models.values())
    exclusive = ("top1_accuracy", "class_sensitivity@macro") if task["exclusive"] else ()
    task["metrics"] = wanted["metrics"] or list(NAMED if named else (*PROBABLE, *exclusive))
    layout = {**table_layout("Table", references, right, wanted), "target": task.pop("target")}
    task_ = build_task(task_config("ClassificationTask", "classes", listed(layout, wanted), **task))
    return [
        Candidate(task_, models[name], dict.fromkeys(row.text(roles[name]["case"]) for row in tables[path]))
        for name, path in files.items()
    ]


def _class_settings(
    rows: Sequence[Row],
    roles: Mapping[str, str],
    others: Mapping[str, Sequence[str]],
    probability: bool,
    path: Path,
) -> dict[str, Any]:
    """Classes of a task, their exclusiveness, and form of references."""
    shared = [name for name in next(iter(others.values())) if all(name in held for held in others.values())]
    targets = "medimg_eval.data.targets"
    if "label" not in roles:
        classes = [name for name in shared if name in rows[0].values]
        if not classes:
            raise UserError(
                f"{path}: has neither a column 'label' nor one of a class that the predictions have, too (available: "
                f"{', '.join(rows[0].values)}); name references=TABLE, or that of what is right by columns.label=NAME"
            )
        target: dict[str, Any] = {"_target_": f"{targets}.ClassColumns", "columns": classes}
        return {"classes": classes, "exclusive": False, "target": target}
    labels = sorted({row.text(roles["label"]) for row in rows} - {""})
    if probability and set(labels) <= {"0", "1"}:
        target = {"_target_": f"{targets}.ClassColumns", "columns": {POSITIVE: roles["label"]}}
        return {"classes": [POSITIVE], "exclusive": False, "target": target}
    classes = shared if set(labels) <= {*shared} else labels
    target = {"_target_": f"{targets}.ClassName", "column": roles["label"], "classes": classes}
    return {"classes": classes, "exclusive": True, "target": target}


def _prediction_arguments(
    path: Path, roles: Mapping[str, str], others: Sequence[str], task: Mapping[str, Any], *, same: bool
) -> dict[str, Any]:
    """Arguments for reading predictions; `label` of references is the key."""
    classes = task["classes"]
    if classes == [POSITIVE]:
        if "probability" not in roles:
            raise UserError(f"{path}: has no column 'probability'; name it with columns.probability=NAME")
        return {"columns": {POSITIVE: roles["probability"]}}
    if {*classes} <= {*others}:
        return {"columns": list(classes)}
    column = roles.get("prediction") or (None if same else roles.get("label"))
    if column is None or not task["exclusive"]:
        missing = next(name for name in classes if name not in others)
        raise UserError(
            f"{path}: has no column of probabilities of {missing!r}, and none 'prediction' of named classes "
            f"(available: {', '.join([*roles.values(), *others])}); columns.prediction=NAME names that of "
            "classes, and of labels 0 and 1 columns.probability=NAME that of the probability of 1"
        )
    return {"label": column}

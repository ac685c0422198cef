"""`score masks=`: folders of predicted label maps against one of references, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medimg_eval.data.tables import read_json
from medimg_eval.errors import UsageError, UserError
from medimg_eval.file_scores.frame import Candidate, answering, named_files, references_of, task_config
from medimg_eval.imaging import PICTURES, MaskFile, distinct_values, find_label_maps
from medimg_eval.instantiate import build_task
from medimg_eval.models import MaskFiles
from medimg_eval.tasks import Task


def mask_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Folders of predictions as models that answer so.

    Raises:
        UsageError: a key is missing or is invalid.
    """
    references = references_of(wanted, "masks", "the folder of label maps that are right")
    if wanted["resample"] not in (None, "nearest"):
        raise UsageError(f"resample must be nearest, or null to refuse other grids, got {wanted['resample']!r}")
    folders = named_files("masks", wanted["masks"])
    predicted = {name: find_label_maps(folder) for name, folder in folders.items()}
    task = mask_task(wanted, references)
    candidates = []
    for name, folder in folders.items():
        frames = any(path.suffix.lower() == ".dcm" for path in predicted[name].values())
        grids = str(references) if wanted["resample"] or frames else None
        config: dict[str, Any] = {"root": str(folder), "grids": grids}
        config |= {} if wanted["resample"] or not frames else {"resampled": False}
        candidates.append(Candidate(task, answering(name, MaskFiles, config), predicted[name]))
    return candidates


def mask_task(wanted: Mapping[str, Any], references: Path) -> Task:
    """Task of reference label maps; config as of `mask_candidates`."""
    held = find_label_maps(references)
    drawn = [path for path in held.values() if path.suffix.lower() in PICTURES]
    volumes = [path for path in held.values() if path not in drawn]
    if drawn and volumes:
        raise UserError(
            f"{references}: holds pictures, such as {drawn[0].name}, and volumes, such as {volumes[0].name}; lengths "
            "are in pixels of the ones and in mm of the others, so put each kind into a folder of its own"
        )
    layout = {
        "_target_": "medimg_eval.data.layouts.MaskFolder",
        "root": str(references),
        "table": str(wanted["cases"] or ""),
    }
    settings: dict[str, Any] = {
        **_find_labels(wanted["labels"], references, held),
        "units": "pixel" if drawn else "mm",
        **{key: wanted[key] for key in ("metrics", "surface", "empty") if wanted[key]},
    }
    if wanted["resample"]:
        settings["title"] = "Masks, resampled to their references"
    return build_task(task_config("SegmentationTask", "masks", layout, **settings))


def _find_labels(given: Any, references: Path, held: Mapping[str, Path]) -> dict[str, Any]:
    """Label names: given, of `dataset.json`, or found in references."""
    if isinstance(given, Mapping):
        return {"labels": {int(label): str(name) for label, name in given.items()}}
    files = [folder / "dataset.json" for folder in (references, references.parent)]
    path = next((file for file in files if file.is_file()), None) if given is None else Path(str(given)).expanduser()
    if path is not None:
        return _stated_labels(path)
    names: dict[int, str] = {}
    for file in held.values():
        mask = MaskFile(file).read()
        names |= {value: mask.names.get(value, "") for value in distinct_values(mask.labels).tolist() if value}
    if not names:
        raise UserError(f"{references}: all references are empty; name what was looked for by labels={{1: liver}}")
    plain = "foreground" if len(names) == 1 else "label {}"
    return {"labels": {value: names[value] or plain.format(value) for value in sorted(names)}}


def _stated_labels(path: Path) -> dict[str, Any]:
    """Labels of `dataset.json`, version 1 or 2, and regions."""
    content = read_json(path)
    labels = content.get("labels") if isinstance(content, Mapping) else None
    if not isinstance(labels, Mapping):
        raise UserError(f"{path}: expected nnU-Net's 'labels'; name them by labels={{1: liver}}")
    named = {str(value): key for key, value in labels.items()} if all(map(_is_whole, labels)) else labels
    members = {str(name): value if isinstance(value, list) else [value] for name, value in named.items()}
    if not all(_is_whole(value) for values in members.values() for value in values):
        raise UserError(f"{path}: expected 'labels' to be names with integers, got {labels!r:.80}")
    integers = {name: [int(value) for value in values] for name, values in members.items()}
    single = {values[0]: name for name, values in integers.items() if len(values) == 1 and values[0]}
    regions = {name: values for name, values in integers.items() if values != [0]}
    if all(len(values) == 1 for values in regions.values()):
        return {"labels": single}
    held = sorted({value for values in regions.values() for value in values})
    return {"labels": {value: single.get(value, f"label {value}") for value in held}, "regions": regions}


def _is_whole(value: Any) -> bool:
    return str(value).isdigit()

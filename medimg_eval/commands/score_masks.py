"""`score masks=`: folders of predicted label maps against one of references, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer, show, show_sheets
from medimg_eval.data.tables import read_json
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import PICTURES, MaskFile, distinct_values, find_label_maps
from medimg_eval.instantiate import build_task
from medimg_eval.models import MaskFiles
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.comparison import compare
from medimg_eval.results.ranking import rank_models
from medimg_eval.tasks import Task

TASK = "masks"


def score_masks(wanted: Mapping[str, Any]) -> list[Run]:
    """Scores folders of predictions, one row of the printed table for each; several are compared and ranked.

    Args:
        wanted: the config of `score`: `masks`, `references`, `labels`, `cases`, `resample`, `by`, `metrics`,
            `surface`, `empty`.

    Raises:
        UsageError: a key is missing or cannot be meant.
        UserError: no name of a prediction is that of a reference.
    """
    if wanted["references"] is None:
        raise UsageError("masks= needs references=DIR, the folder of label maps that are right")
    if wanted["resample"] not in (None, "nearest"):
        raise UsageError(f"resample must be nearest, or null to refuse other grids, got {wanted['resample']!r}")
    folders = _named(wanted["masks"])
    references = Path(str(wanted["references"])).expanduser()
    held = find_label_maps(references)
    for name, folder in folders.items():
        _pair(name, folder, references, held)
    task = _task(wanted, references, held)
    settings = Settings(runs=Path(wanted["runs"]), config={key: one for key, one in wanted.items() if key != "runs"})
    grids = str(references) if wanted["resample"] else None
    runs = [pipeline.test(task, _given(name, folder, grids), settings) for name, folder in folders.items()]
    _show(runs, wanted["by"])
    return runs


def _named(masks: Any) -> dict[str, Path]:
    """The folders by what tables call them: names as given, or those of the folders."""
    if isinstance(masks, Mapping):
        return {str(name): Path(str(folder)).expanduser() for name, folder in masks.items()}
    paths = [Path(str(folder)).expanduser() for folder in as_list(masks)]
    named = {path.resolve().name: path for path in paths}
    if len(named) < len(paths):
        raise UsageError("two folders of masks= have the same name; name them: masks={mine: a/masks, other: b/masks}")
    return named


def _pair(name: str, folder: Path, references: Path, held: Mapping[str, Path]) -> None:
    """Says which predictions and references have no partner."""
    given = find_label_maps(folder)
    if not given.keys() & held.keys():
        raise UserError(
            f"{folder}: no name of a label map is that of a reference; there is {next(iter(given))!r}, "
            f"in {references} {next(iter(held))!r}; names must be equal but for their endings"
        )
    for one, other, words in (
        (given, held, f"label maps of {name} without a reference are left out"),
        (held, given, f"references without a prediction of {name} count as failed; cases=TABLE leaves them out"),
    ):
        if lone := [case for case in one if case not in other]:
            shown = ", ".join(lone[:5]) + (", ..." if len(lone) > 5 else "")
            printer().print(f"{len(lone):,} {words}: {shown}", style="yellow", soft_wrap=True, markup=False)


def _task(wanted: Mapping[str, Any], references: Path, held: Mapping[str, Path]) -> Task:
    pictures = all(path.suffix.lower() in PICTURES for path in held.values())
    layout = {
        "_target_": "medimg_eval.data.layouts.MaskFolder",
        "root": str(references),
        "table": wanted["cases"] or "",
    }
    return build_task(
        {
            "_target_": "medimg_eval.tasks.SegmentationTask",
            "name": TASK,
            "title": "Masks, resampled to their references" if wanted["resample"] else "Masks",
            "layout": {**layout, "table": str(wanted["cases"] or "")},
            "splits": {"test": "test"},
            "labels": _labels(wanted["labels"], references, held),
            "units": "pixel" if pictures else "mm",
            **{key: wanted[key] for key in ("metrics", "surface", "empty") if wanted[key]},
        }
    )


def _labels(given: Any, references: Path, held: Mapping[str, Path]) -> dict[int, str]:
    """Integer -> name, as given, of nnU-Net's `dataset.json` there or beside the references, or as these hold them."""
    if isinstance(given, Mapping):
        return {int(label): str(name) for label, name in given.items()}
    beside = [folder / "dataset.json" for folder in (references, references.parent)]
    path = next((one for one in beside if one.is_file()), None) if given is None else Path(str(given)).expanduser()
    if path is not None:
        return _stated(path)
    masks = (MaskFile(file).read() for file in held.values())
    found = sorted(set().union(*[distinct_values(mask.labels).tolist() for mask in masks]) - {0})
    if not found:
        raise UserError(f"{references}: all references are empty; name what was looked for by labels={{1: liver}}")
    return {found[0]: "foreground"} if len(found) == 1 else {label: f"label {label}" for label in found}


def _stated(path: Path) -> dict[int, str]:
    """The single labels of nnU-Net's `dataset.json`, of version 1 or 2, without background."""
    content = read_json(path)
    labels = content.get("labels") if isinstance(content, Mapping) else None
    if not isinstance(labels, Mapping):
        raise UserError(f"{path}: expected nnU-Net's 'labels'; name them by labels={{1: liver}}")
    turned = {str(value): key for key, value in labels.items()} if not all(map(_whole, labels)) else labels
    if not all(map(_whole, turned)):
        raise UserError(f"{path}: holds regions of several labels; name single ones by labels={{1: liver}}")
    return {int(label): str(name) for label, name in turned.items() if int(label)}


def _whole(text: Any) -> bool:
    return str(text).isdigit()


def _given(name: str, folder: Path, grids: str | None) -> ModelSpec:
    config = {"root": str(folder), "grids": grids}
    return ModelSpec(name, MaskFiles, config, lambda: MaskFiles(str(folder), grids))


def _show(runs: Sequence[Run], by: str | None) -> None:
    """Prints the table; of several models also whether they differ, and their ranks."""
    loaded = load_runs([run.folder for run in runs])
    table = runs[0].table if len(runs) == 1 and by is None else None
    show(table or build_table(loaded, by=by))
    if len(runs) > 1:
        try:
            show_sheets([*compare(loaded, loaded[0].metrics[0]).sheets, *rank_models(loaded).sheets])
        except UserError as error:  # such as of one that has no values
            printer().print(f"no comparison: {error}", style="yellow", soft_wrap=True, markup=False)
    for run in runs:
        printer().print(f"scores of every case: {run.folder / 'scores.parquet'}", style="dim", soft_wrap=True)

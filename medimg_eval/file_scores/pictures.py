"""`score pictures=`: folders of generated pictures beside one of real ones, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.readiness import of_provider
from medimg_eval.file_scores.frame import Candidate, answering, listed, named_files
from medimg_eval.instantiate import Extractors, build_task
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models import PrecomputedImages
from medimg_eval.tasks import Task

FIDELITY = (
    *("frechet_distance", "kernel_distance", "improved_precision", "improved_recall", "density", "coverage"),
    "vendi_score",
)
COPIES = ("near_copies@pixels_64", "dcr_share@pixels_64", "memorised_fraction@pixels_64")
ENCODERS = ("rad_dino", "dinov2", "inception", "biomedclip")
"""Extractors that are taken where their weights are there, beside the pixels."""


def picture_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Folders of generated pictures as models, with tasks.

    Raises:
        UsageError: the real pictures are not named.
    """
    if wanted["real"] is None:
        raise UsageError("pictures= needs real=DIR, the folder of pictures that they should be like")
    # Beside what judges the set, what was not made is always told; its rows also hold what tables divide by.
    metrics = list(
        dict.fromkeys([*(as_list(wanted["metrics"] or []) or _choose_metrics(wanted)), "generation_failure_rate"])
    )
    candidates = []
    for name, folder in named_files("pictures", wanted["pictures"]).items():
        model = answering(name, PrecomputedImages, {"root": str(folder)})
        candidates.append(Candidate(_make_task(wanted, folder, metrics), model))
    return candidates


def _choose_metrics(wanted: Mapping[str, Any]) -> list[str]:
    extractors = Extractors(wanted["extractors"] or {})
    extractors_ = [*ENCODERS, *(name for name in wanted["extractors"] or {} if name not in ENCODERS)]
    ready = [name for name in extractors_ if not [*of_provider(Requirement("features", name), extractors, ())]]
    named = [f"{metric}@{extractor}" for extractor in (*ready, "pixels") for metric in FIDELITY]
    if wanted["train"] is not None:
        named += [*COPIES, *(["transformed_copies@pixels_128"] if find_spec("cv2") else [])]
    return named


def _make_task(wanted: Mapping[str, Any], folder: Path, metrics: list[str]) -> Task:
    layout = {
        "_target_": "medimg_eval.data.layouts.PictureSets",
        "prompts": _folder_layout(wanted, folder, shown=False),
    }
    layout |= {part: _folder_layout(wanted, wanted[part]) for part in ("real", "train") if wanted[part] is not None}
    splits = {"test": "test", "reference": "reference"}
    splits |= {"train": "train", "holdout": "reference"} if wanted["train"] is not None else {}
    return build_task(
        {
            "_target_": "medimg_eval.tasks.SynthesisTask",
            "name": "pictures",
            "title": "Pictures",
            "layout": layout,
            "splits": splits,
            "groups": [wanted["by"]] if wanted["by"] not in (None, "label") else [],
            "metrics": metrics,
        }
    )


def _folder_layout(wanted: Mapping[str, Any], folder: Any, **settings: Any) -> dict[str, Any]:
    root = str(Path(str(folder)).expanduser())
    return listed({"_target_": "PictureFolder", "root": root, **settings}, wanted, keep=True)

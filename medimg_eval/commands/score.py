"""`score`: judge stored predictions again, or files that hold predictions; the model is not loaded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from medimg_eval.api import BELONGS, score
from medimg_eval.arguments import as_list
from medimg_eval.commands.products.acceptance import finish_runs
from medimg_eval.commands.scoring.frame import score_candidates, show_runs
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError

RUN = ("drop", "judge", "root", "annotators", "extractors", "score_workers", "may_leave", "logger", *BELONGS)
KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "masks": ("masks", "mask_candidates", ("references", "labels", "cases", "by", "resample", "surface", "empty")),
    "pictures": ("pictures", "picture_candidates", ("real", "train", "cases", "by", "extractors")),
    "boxes": ("places", "box_candidates", ("references", "cases", "by")),
    "points": ("places", "point_candidates", ("references", "columns", "spacing", "cases", "by")),
    "classes": ("classes", "class_candidates", ("references", "columns", "cases", "by")),
    "measurements": ("measurements", "measurement_candidates", ("references", "columns", "cases", "by")),
    "answers": (
        "answers",
        "answer_candidates",
        ("references", "columns", "cases", "by", "extraction", "annotators", "judge"),
    ),
    "reports": (
        "reports",
        "report_candidates",
        ("columns", "attributes", "by", "separator", "sections", "language", "clean", "annotators", "judge"),
    ),
}
"""What is scored -> the module that reads it, its function, and the keys that it takes beside `metrics`."""

UNSET = {"language": "en"}
"""Keys that say nothing at another value than null or nothing."""


def run(config: DictConfig) -> None:
    """Scores runs anew, or files; with other metrics or conventions when they are given."""
    wanted = plain(config)
    named = [key for key in ("run", *KINDS) if wanted.get(key) is not None]
    if len(named) != 1:
        raise UsageError(
            "name what to score: run=DIR, a run folder; or files: " + ", ".join(f"{kind}=" for kind in KINDS)
        )
    if named == ["run"]:
        settings: dict[str, Any] = {key: wanted.get(key) for key in ("metrics", *RUN)}
        runs: list[Any] = [score(folder, **settings) for folder in as_list(wanted["run"])]
        show_runs(runs)
    else:
        (kind,) = named
        module, function, takes = KINDS[kind]
        _refuse_others(wanted, kind, takes)
        candidates = getattr(importlib.import_module(f"medimg_eval.commands.scoring.{module}"), function)(wanted)
        runs = score_candidates(wanted, kind, candidates)
    finish_runs([run.folder for run in runs], wanted)


def _refuse_others(wanted: Mapping[str, Any], kind: str, takes: tuple[str, ...]) -> None:
    """Raises UsageError for a key that is set and means nothing for this kind."""
    others = {key for _, _, keys in KINDS.values() for key in keys} | {*RUN} - {"score_workers", "may_leave", "logger"}
    for key in sorted(others - {*takes}):
        if wanted.get(key) and wanted[key] != UNSET.get(key):
            raise UsageError(f"{key}= is not for {kind}=; leave it out")

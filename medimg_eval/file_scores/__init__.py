"""Files that hold predictions, as models that answer so: masks, pictures, boxes, points, classes, numbers, texts.

A module per kind of file, and one for logs of other programs; what they share is in `frame`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from medimg_eval.run_results import RunSet

OF_RUNS = ("drop", "judge", "root", "annotators", "extractors", "surface", "empty", "extraction")
"""Keys that only some kinds of files take, beside those of others."""

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


def score_files(wanted: Mapping[str, Any], kind: str, warn: Callable[[str], None]) -> RunSet:
    """Scores files, a run for each model.

    Args:
        wanted: the config of `score`.
        kind: its key that names the files.
        warn: is told which predictions and references have no partner.

    Raises:
        UsageError: a key is missing, or is not for such files.
        UserError: files cannot be read, or none belongs to a case.
    """
    from medimg_eval.file_scores.frame import score_candidates

    module, function, takes = KINDS[kind]
    foreign = ({key for _, _, keys in KINDS.values() for key in keys} | {*OF_RUNS}) - {*takes}
    for key in sorted(foreign):
        if wanted.get(key) and wanted[key] != UNSET.get(key):
            raise UsageError(f"{key}= is not for {kind}=; leave it out")
    candidates = getattr(importlib.import_module(f"medimg_eval.file_scores.{module}"), function)(wanted)
    return score_candidates(wanted, kind, candidates, warn)

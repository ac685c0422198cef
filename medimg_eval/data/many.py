"""One task for many datasets that differ in nothing but their folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medimg_eval.data.layouts.nnunet import NnUNet
from medimg_eval.tasks import SegmentationTask


def nnunet_task(*, layout: NnUNet, labels: Mapping[int, str] | None = None, **settings: Any) -> SegmentationTask:
    """Makes a segmentation task whose labels are those that nnU-Net's `dataset.json` names.

    Where the dataset is not there yet, the task has one label, `foreground`, so that it can be listed; asking it
    for cases then says which folder is missing. `labels` gives other names than the dataset's own, `settings` are
    `SegmentationTask`'s other arguments. Raises UserError where `dataset.json` is there, and is not understood.
    """
    if not labels:
        there = (Path(layout.root).expanduser() / "dataset.json").is_file()
        labels = layout.labels() if there else {1: "foreground"}
    return SegmentationTask(layout=layout, labels=labels, **settings)

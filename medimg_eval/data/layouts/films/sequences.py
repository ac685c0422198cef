"""Sequences of poses, listed in a table or found in folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medimg_eval.data.layouts.folders import Volumes
from medimg_eval.data.layouts.table import Table
from medimg_eval.errors import UsageError
from medimg_eval.imaging.video import PoseFile


@dataclass(kw_only=True)
class PoseTable(Table):
    """Table of pose sequences: arrays, COCO JSON or OpenPose folders."""

    def image_file(self, path: Path | tuple[Path, ...], **options: Any) -> Any:
        """A sequence of poses."""
        return _pose_file(path)


@dataclass(kw_only=True)
class PoseFolders(Volumes):
    """Folders of pose sequences, as `Volumes`."""

    def image_file(self, path: Path | tuple[Path, ...], **options: Any) -> Any:
        """A sequence of poses."""
        return _pose_file(path)


def _pose_file(path: Path | tuple[Path, ...]) -> PoseFile:
    if isinstance(path, tuple):
        raise UsageError(
            "task.layout.image is invalid: expected one file or folder for a sequence of poses, got several"
        )
    return PoseFile(path)

"""Labels of frames that already lie on disk, whichever program made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from medimg_eval.case import FrameLabels, Prompts
from medimg_eval.errors import CaseError
from medimg_eval.models.base import FrameLabeler
from medimg_eval.models.precomputed.files import FromRecords, ResultFiles, named_columns


class PrecomputedFrames(FromRecords, FrameLabeler):
    """Stored frame labels: one table, or a file per case.

    Whether they were made online is for who made them to say: it cannot be seen.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        frame: the column of the frame.
        columns: columns that hold labels, the task's column of phases and names of classes; or these -> columns.
        every: frames of the video per place on the task's grid, where `frame` counts those of the video; others are
            left out.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (a list of objects).
        case: the column that names the case, in a table for all.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
    """

    def __init__(
        self,
        root: str,
        frame: str = "frame",
        columns: Sequence[str] | Mapping[str, str] = ("phase",),
        *,
        every: int = 1,
        pattern: str = "{case}.csv",
        case: str = "case",
    ) -> None:
        self.frame, self.columns, self.every = frame, named_columns(columns, "a class"), every
        needed = {frame: "frame", **dict.fromkeys(self.columns.values(), "columns")}
        self.files = ResultFiles(root, pattern, case, needed)

    def label_frames(self, prompts: Prompts) -> Sequence[FrameLabels]:
        """Reads frame labels; CaseError names the file of missing or repeated ones."""
        return [self._read(prompt.case_id, set(prompt.labels.values())) for prompt in prompts]

    def _read(self, case: str, numeric: set[str]) -> FrameLabels:
        path, lines = self.files.lines(case)
        if lines is None:
            raise CaseError(f"{path}: no row of case {case!r}{self.files.like(case)}")
        frames = []
        for line in lines:
            number = line.number(self.frame)
            if not (number >= 0 and number.is_integer()):
                raise CaseError(f"{line.place}: column {self.frame!r} holds {number}, expected a frame of 0 or more")
            frames.append(int(number))
        order = np.argsort(frames, kind="stable")
        frame_numbers = np.array(frames, np.int64)[order]
        twice = frame_numbers[1:][np.diff(frame_numbers) == 0]
        if len(twice):
            raise CaseError(f"{path}: case {case!r} has frame {twice[0]} twice")
        kept_order = order[frame_numbers % self.every == 0]
        columns = {}
        for name, column in self.columns.items():
            chosen = [lines[index] for index in kept_order]
            values = [line.number(column) if name in numeric else line.text(column) for line in chosen]
            columns[name] = np.array(values, float if name in numeric else object)
        return FrameLabels(frame_numbers[frame_numbers % self.every == 0] // self.every, columns)

"""Scores of M3D-Bench as its scripts compute them, for its tables and 3D-RAD's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.vqa.grounding import read_numbers

M3D = "BAAI-DCAI/M3D, its Bench"
EPSILON = 1e-6


@answer_share(title="Letter said", source=M3D, value_kind="proportion")
def m3d_letter_said(pair: AnsweredQuestion) -> float:
    """Whether the right letter with a full stop stands anywhere in an answer, as M3D-Bench and 3D-RAD count.

    "A. or B." is right for A and for B, "A" and "(A)" for neither; `accuracy` has no such faults. NaN of questions
    without options.
    """
    return float(f"{pair.value}." in pair.output) if pair.kind == "choice" else math.nan


@answer_share(title="Hull overlap", source=M3D)
def m3d_hull_overlap(pair: AnsweredQuestion) -> float:
    """The intersection of two boxes in 3-D over the smallest box around both, which M3D-Bench calls IoU.

    In [0, 1], and never above `box3d_iou`. An answer without six numbers is worth 0, where the authors write -1 into
    the mean. NaN of questions about anything else.
    """
    if pair.kind != "boxes3d":
        return math.nan
    given_box, right = (read_numbers(value, 6) for value in (pair.extraction.value, pair.value))
    if given_box is None or right is None:
        return 0.0 if right is not None else math.nan
    return _box_overlap(given_box, right)


def _box_overlap(given: Any, right: Any) -> float:
    shared = np.maximum(np.minimum(given[3:], right[3:]) - np.maximum(given[:3], right[:3]), 0)
    around = np.maximum(given[3:], right[3:]) - np.minimum(given[:3], right[:3])
    return float(shared.prod() / (around.prod() + EPSILON))

"""Scores of single challenges, PitVis and SAR-RARP50, as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import share_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.workflow.metrics import ALL, KIND, PRESENCE, THRESHOLD, FramePair, PresencePair
from medimg_eval.metrics.workflow.published import macro_presence_f1, pitvis_steps, weighted_presence_f1

SAR_RARP_PERCENT = 10
"""IoU from which SAR-RARP50 takes a segment for right."""

_pitvis = partial(share_metric, source="Das et al. 2025, PitVis-2023, and its evaluation")
_sar_rarp = partial(share_summary, source="Psychogyios et al. 2023, SAR-RARP50, and its evaluation")


@_pitvis(kind=KIND, title="PitVis steps")
def pitvis_step_score(pair: FramePair) -> Mapping[str, float]:
    """Mean of macro-F1 and edit score of PitVis' steps, without the frames that are not judged. Between 0 and 1."""
    return {ALL: pitvis_steps(pair.truth, pair.prediction, left_out=())}


@_pitvis(kind=PRESENCE, title="PitVis instruments")
def pitvis_instrument_score(pair: PresencePair) -> Mapping[str, float]:
    """F1 of classes present from 0.5 on, weighted by their true frames; NaN where none is true. Between 0 and 1."""
    return {ALL: weighted_presence_f1(pair.truth, pair.scores >= THRESHOLD)}


@_pitvis(kind=PRESENCE, title="PitVis instruments, published")
def pitvis_instrument_score_published(pair: PresencePair) -> Mapping[str, float]:
    """Weighted F1 whose columns line up only where both sides hold the same classes, as PitVis' script has it."""
    return {ALL: weighted_presence_f1(pair.truth, pair.scores >= THRESHOLD, published=True)}


@_pitvis(kind=PRESENCE, title="PitVis instruments, macro")
def pitvis_instrument_macro(pair: PresencePair) -> Mapping[str, float]:
    """Mean F1 of all classes present from 0.5 on, 1 for one that is in neither. Between 0 and 1.

    As the paper's abstract has it and its script has not.
    """
    return {ALL: macro_presence_f1(pair.truth, pair.scores >= THRESHOLD)}


def _action_pieces(rows: ScoreTable) -> Floats:
    """Accuracy, F1 and 1 of each video, at one row of it."""
    pieces = np.zeros((rows.value.size, 3))
    _, first, case = np.unique(rows.case, return_index=True, return_inverse=True)
    accurate = rows.metric == "video_accuracy"
    accuracy = np.bincount(case, np.where(accurate, rows.value, 0), minlength=len(first))
    hits, wrong, missed = (
        np.bincount(case, np.where(rows.label == f"{name}@{SAR_RARP_PERCENT}", rows.value, 0), minlength=len(first))
        for name in ("tp", "fp", "fn")
    )
    total = 2 * hits + wrong + missed
    pieces[first] = np.stack([accuracy, 2 * hits / np.maximum(total, 1), np.ones(len(first))], 1)
    return pieces


@_sar_rarp(title="SAR-RARP50 actions", needs=("video_accuracy", "segment_counts"), pieces=_action_pieces)
def sar_rarp_action_score(sums: Floats) -> Floats:
    """Root of the product of mean accuracy and mean segmental F1@10 over videos. Between 0 and 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        score: Floats = np.sqrt(sums[..., 0] * sums[..., 1]) / sums[..., 2]
    return score


def _mask_pieces(rows: ScoreTable) -> Floats:
    """IoU and NSD as parts of their video's mean, and 1 of each video."""
    video = np.unique(rows.attributes["patient"], return_inverse=True)[1]
    is_overlap = rows.metric == "iou"
    pieces = np.zeros((rows.value.size, 3))
    for column, chosen in enumerate((is_overlap, ~is_overlap)):
        counts = np.bincount(video[chosen], minlength=int(video.max(initial=-1)) + 1)
        pieces[chosen, column] = rows.value[chosen] / counts[video[chosen]]
    pieces[np.unique(video, return_index=True)[1], 2] = 1
    return pieces


@_sar_rarp(title="SAR-RARP50 instruments", needs=("iou", "nsd@10"), pieces=_mask_pieces)
def sar_rarp_segmentation_score(sums: Floats) -> Floats:
    """Root of mean IoU times mean NSD at 10 pixels, each over frames and labels of a video, then over videos."""
    return sar_rarp_action_score(sums)

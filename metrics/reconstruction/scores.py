"""The scores of one image, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.reconstruction.presets import preset_of
from medimg_eval.metrics.registry import Metric, parse
from medimg_eval.metrics.scores import LabelScore

WHOLE = "image"
"""The label of a score of a whole image."""

RELATIVE = ("nmse", "nrmse")
"""Metrics that need no data range: they are relative to the reference itself."""


def image_scores(
    reference: Array, reconstruction: Array, *, metrics: Sequence[str], data_range: float | None = None
) -> list[LabelScore]:
    """Returns the score of one image under every metric.

    Args:
        reference: (row, column) or (slice, row, column).
        reconstruction: Of the same shape.
        metrics: Names of metrics of kind "image", such as `psnr@fastmri`.
        data_range: Of metrics asked for without a preset.

    Returns:
        One score for each metric, of the label "image". PSNR of equal images is infinite and no mean can hold it: its
        value is NaN, which tables count and leave out.

    Raises:
        ValueError: As the metrics do.
        UsageError: As `image_metrics` does.

    >>> image = np.eye(16)
    >>> image_scores(image, image / 2, metrics=["psnr", "nrmse"], data_range=1.0)[1]
    LabelScore(label='image', metric='nrmse', value=0.5, status='present')
    """
    scores = []
    for name, (definition, preset) in image_metrics(metrics, data_range).items():
        if preset is not None:
            value = definition.function(reference, reconstruction, preset)
        elif definition.name in RELATIVE:
            value = definition.function(reference, reconstruction)
        else:
            value = definition.function(reference, reconstruction, data_range=data_range)
        scores.append(LabelScore(WHOLE, name, value if np.isfinite(value) else math.nan, "present"))
    return scores


def worst_image_scores(metrics: Sequence[str], *, known: bool = True) -> list[LabelScore]:
    """Returns the scores, of status "failed", of a case without an answer.

    Args:
        metrics: As for `image_scores`.
        known: Whether there is a reference; without one, values are NaN.
    """
    return [LabelScore(WHOLE, name, float(parse(name)[0].worst) if known else math.nan, "failed") for name in metrics]


def image_metrics(metrics: Sequence[str], data_range: float | None = None) -> dict[str, tuple[Metric, str | None]]:
    """Returns requested metrics with presets, by requested name.

    Raises:
        UsageError: If there is no such metric of images, no such preset, or neither a preset nor a data range.
    """
    wanted: dict[str, tuple[Metric, str | None]] = {}
    for name in metrics:
        definition, preset = parse(name)
        if definition.kind != "image":
            raise UsageError(f"Metric {name!r} judges {definition.kind}, not images")
        if preset is not None:
            preset_of(str(preset))
        elif data_range is None and definition.name not in RELATIVE:
            raise UsageError(f"Metric {name!r} needs a data range: set data_range, or name a preset, as in {name}@wang")
        wanted[name] = definition, None if preset is None else str(preset)
    return wanted

"""Images against a reference as networks see them: arithmetic on the distances that a model found.

The networks are in `medimg_eval.models.extractors`, which these metrics require. What they are shown is made
here: `pictures` brings two images to grey values from 0 to 1, which have to be the same ones for the numbers to mean
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.declarations import error_metric
from medimg_eval.metrics.reconstruction.presets import image_pair, preset_of
from medimg_eval.metrics.registry import Requirement, parse

KIND = "perception"

_distance = partial(
    error_metric,
    kind=KIND,
    worst=1.0,
    parameter="preset",
    parameter_optional=True,
    parameter_is_text=True,
    check=preset_of,
)


@_distance(title="LPIPS", requires=(Requirement("distance", "lpips"),), source="Zhang et al. 2018")
def lpips(distances: Sequence[float], preset: str | None = None) -> float:
    """The learned perceptual image patch similarity, a weighed distance of a network's features, mean over slices.

    Args:
        distances: Of each slice, as `LPIPS` found them; 0 of equal ones, without an upper bound.
        preset: That the slices were scaled by; it changes nothing here.
    """
    return _mean_distance(distances)


@_distance(title="DISTS", requires=(Requirement("distance", "dists"),), source="Ding et al. 2020")
def dists(distances: Sequence[float], preset: str | None = None) -> float:
    """The deep image structure and texture similarity as a distance, mean over slices.

    Args:
        distances: Of each slice, as `DISTS` found them; 0 of equal ones.
        preset: That the slices were scaled by; it changes nothing here.
    """
    return _mean_distance(distances)


def pictures(reference: Array, reconstruction: Array, preset: str | None, data_range: float | None = None) -> Array:
    """Returns a network's pictures: float32, (slice, 2, row, column), 0 to 1.

    Magnitudes over the data range, cut at 0 and 1. Where the reference goes below 0, its smallest value becomes 0.
    Images are given as to `psnr`.

    Raises:
        ValueError: As image metrics do.
        UsageError: If there is no such preset.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)
    # Of complex numbers magnitudes are shown, which lie above 0.
    low = min(0.0, float(pair.reference.min())) if pair.reference.dtype.kind not in "cu" else 0.0
    both = [
        np.stack([(side - low) / pair_slice.data_range for side in (pair_slice.reference, pair_slice.reconstruction)])
        for pair_slice in pair.slices()
    ]
    return np.clip(np.stack(both), 0, 1).astype(np.float32)


def check_perceived(metrics: Sequence[str], data_range: float | None) -> None:
    """Raises UsageError for network metrics without preset and data range."""
    for name in metrics:
        if parse(name)[1] is None and data_range is None:
            raise UsageError(f"Metric {name!r} needs a data range: set data_range, or name a preset, as in {name}@wang")


def _mean_distance(distances: Sequence[float]) -> float:
    return float(np.mean(distances)) if len(distances) else float("nan")

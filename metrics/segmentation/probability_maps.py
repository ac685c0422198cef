"""Metrics of probabilities: how close they are to the reference, and whether they mean what they say.

y is 1 in the voxels of the label's reference and 0 elsewhere, p the probability that the model gives the label
there. Calibration errors sort the voxels by p into bins of equal width; [l, r) holds its lower edge, and the
last bin holds 1 too. Their value depends on the number of bins, which therefore is part of their name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Array, Bools, Floats
from medimg_eval.metrics.declarations import error_metric, share_metric
from medimg_eval.metrics.registry import asked_metrics
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation.overlap import ratio
from medimg_eval.metrics.segmentation.scores import Labels, _check_regions

# Probabilities reach files as float32 or float16, whose 0 and 1 are rounded rather than certain.
CLIP = 1e-7
# A rounding beyond [0, 1] is forgiven, a logit is not.
SLACK = 1e-6
# Beyond this, channels that are added up cannot exclude each other; float16 adds up to less.
EXCESS = 0.01
# Voxels whose float64 copies are held at a time.
CHUNK = 1 << 20

_loss = partial(error_metric, kind="probability", worst=1.0)
_binned = partial(_loss, parameter="number of bins")

probability_metrics = partial(asked_metrics, kind="probability", what="probabilities", once=True)


@dataclass(frozen=True, eq=False)
class ProbabilityPair:
    """Reference mask and predicted probability of one label.

    Attributes:
        reference: Boolean, of any shape.
        probability: Floats in [0, 1] of the same shape.
        name: What the label is called.

    Raises:
        ValueError: If the dtypes or shapes are not as said, or a probability is not a number in [0, 1].
    """

    reference: Bools
    probability: npt.NDArray[np.floating[Any]]
    name: str = ""

    def __post_init__(self) -> None:
        if self.reference.dtype.kind != "b":
            raise ValueError(f"Expected `reference` to be a boolean mask, got dtype {self.reference.dtype}")
        if self.probability.dtype.kind != "f":
            raise ValueError(f"Expected `probability` to be floats, got dtype {self.probability.dtype}")
        if self.probability.shape != self.reference.shape:
            raise ValueError(
                f"Expected `probability` to have the reference's shape {self.reference.shape}, "
                f"got {self.probability.shape}"
            )
        if self.reference.size and not (self.lowest >= -SLACK and self.highest <= 1 + SLACK):
            raise ValueError(
                f"Expected the probabilities of {self.name!r} to lie in [0, 1], "
                f"got {self.lowest:g} to {self.highest:g}; logits need a softmax or sigmoid first"
            )

    @cached_property
    def lowest(self) -> float:
        """The smallest probability; NaN if one is."""
        return float(self.probability.min(initial=math.inf))

    @cached_property
    def highest(self) -> float:
        """The largest probability; NaN if one is."""
        return float(self.probability.max(initial=-math.inf))

    @cached_property
    def reference_size(self) -> int:
        """Voxels of the reference."""
        return int(np.count_nonzero(self.reference))

    @property
    def status(self) -> Literal["present", "missed", "hallucinated", "absent"]:
        """Status as in `LabelScore`; predicted from probability 0.5."""
        if self.reference_size:
            return "present" if self.highest >= 0.5 else "missed"
        return "hallucinated" if self.highest >= 0.5 else "absent"

    def chunks(self) -> Iterator[tuple[Floats, Floats]]:
        """Yields y and p, float64 (voxel,), of some voxels after the other."""
        reference, probability = self.reference.ravel(), self.probability.ravel()
        for start in range(0, reference.size, CHUNK):
            part = slice(start, start + CHUNK)
            yield reference[part].astype(np.float64), np.clip(probability[part].astype(np.float64), 0, 1)


@share_metric(
    kind="probability",
    title="Soft Dice",
    source="Drozdzal et al., DLMIA 2016, doi 10.1007/978-3-319-46976-8_19; MONAI's DiceLoss, without its smoothing",
)
def soft_dice(pair: ProbabilityPair) -> float:
    """Dice of probabilities, 2 sum(p y) / (sum(p) + sum(y)).

    No threshold, no smoothing term and no squares (V-Net's Dice squares both terms of the denominator). In
    [0, 1]; NaN where there is nothing to find and nothing was found: no reference, and no p of 0.5 or more.

    >>> import numpy as np
    >>> pair = ProbabilityPair(np.array([True, True, False, False]), np.array([1.0, 0.5, 0.5, 0.0]))
    >>> soft_dice(pair)  # 2 * 1.5 / (2 + 2)
    0.75
    """
    if pair.status == "absent":
        return math.nan
    overlap = total = 0.0
    for y, p in pair.chunks():
        overlap += float(y @ p)
        total += float(p.sum())
    return ratio(2 * overlap, total + pair.reference_size)


@_loss(title="Brier", source="Brier, Monthly Weather Review 1950, doi 10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2")
def brier(pair: ProbabilityPair) -> float:
    """The Brier score: the mean of (p - y)^2 over all voxels.

    In [0, 1]; NaN without voxels. Background that is easy counts, so it shrinks as the image grows.

    >>> import numpy as np
    >>> brier(ProbabilityPair(np.array([True, True, False, False]), np.array([1.0, 0.5, 0.5, 0.0])))
    0.125
    """
    return ratio(sum(float(((p - y) ** 2).sum()) for y, p in pair.chunks()), pair.reference.size)


@_loss(
    title="NLL",
    worst=-math.log(CLIP),
    source="Good, J R Stat Soc B 1952, doi 10.1111/j.2517-6161.1952.tb00104.x; scikit-learn's log_loss",
)
def nll(pair: ProbabilityPair) -> float:
    """The negative log-likelihood: the mean of -log(p) where y is 1 and of -log(1 - p) where it is 0.

    In nats. The probability of what is true is clipped below at 1e-7, so that one voxel which was called
    impossible costs 16.1 and not infinity. In [0, 16.1]; NaN without voxels.

    >>> import numpy as np
    >>> round(nll(ProbabilityPair(np.array([True, True, False, False]), np.array([1.0, 0.5, 0.5, 0.0]))), 4)
    0.3466
    """
    total = 0.0
    for y, p in pair.chunks():
        total -= float(np.log(np.maximum(np.where(y > 0, p, 1 - p), CLIP)).sum())
    return ratio(total, pair.reference.size)


@_binned(title="ECE", source="Naeini et al., AAAI 2015, doi 10.1609/aaai.v29i1.9602; MONAI's CalibrationErrorMetric")
def ece(pair: ProbabilityPair, bins: float) -> float:
    """The expected calibration error: the mean over all voxels of |mean y - mean p| of the voxel's bin.

    In [0, 1]; NaN without voxels.

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.

    >>> import numpy as np
    >>> pair = ProbabilityPair(np.array([True, True, False, False]), np.array([1.0, 0.75, 0.25, 0.25]))
    >>> ece(pair, 2)  # [0, 0.5) is 0.25 off, [0.5, 1] is 0.125 off
    0.1875
    """
    errors, counts = _bin_errors(pair, bins)
    return ratio(float(errors @ counts), float(counts.sum()))


@_binned(title="ACE", source="Neumann et al., NeurIPS Workshop MLITS 2018; MONAI's CalibrationErrorMetric (average)")
def ace(pair: ProbabilityPair, bins: float) -> float:
    """The average calibration error: the mean of |mean y - mean p| over the bins that hold a voxel.

    Every bin counts the same, so the sure background does not drown the rest. Not the adaptive calibration error
    of Nixon et al. 2019, whose bins are of equal numbers. In [0, 1]; NaN without voxels.

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.

    >>> import numpy as np
    >>> pair = ProbabilityPair(np.array([True, False, False, False]), np.array([0.5, 0.25, 0.25, 0.25]))
    >>> ace(pair, 2)  # 0.25 and 0.5
    0.375
    """
    errors, _ = _bin_errors(pair, bins)
    return float(errors.mean()) if len(errors) else math.nan


@_binned(
    title="MCE",
    source="Naeini et al., AAAI 2015, doi 10.1609/aaai.v29i1.9602; MONAI's CalibrationErrorMetric (maximum)",
)
def mce(pair: ProbabilityPair, bins: float) -> float:
    """The maximum calibration error: the largest |mean y - mean p| of the bins that hold a voxel.

    One voxel is enough to make a bin count. In [0, 1]; NaN without voxels.

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.

    >>> import numpy as np
    >>> pair = ProbabilityPair(np.array([True, False, False, False]), np.array([0.5, 0.25, 0.25, 0.25]))
    >>> mce(pair, 2)
    0.5
    """
    errors, _ = _bin_errors(pair, bins)
    return float(errors.max()) if len(errors) else math.nan


def probability_scores(
    reference: Array,
    probabilities: Array,
    *,
    labels: Labels,
    channels: Mapping[int, int] | Sequence[int],
    metrics: Sequence[str] = ("soft_dice", "brier", "nll", "ece@20"),
    ignore: int | None = None,
) -> list[LabelScore]:
    """Returns the score of every label's probabilities under every metric, label by label.

    The policy for empty masks has no say here: all but `soft_dice` are defined whatever the masks hold.

    Args:
        reference: Integer label map, (*spatial).
        probabilities: Floats in [0, 1], (channel, *spatial): after a softmax or sigmoid.
        labels: What is judged: label -> its name; or regions, each a name with the labels that make it up, whose
            probability is the sum of theirs.
        channels: Where each label's probability is: label -> channel, or the label of each channel in order.
        metrics: Names of metrics of kind "probability"; "ece@20" is ECE with 20 bins.
        ignore: A label of the reference whose voxels are left out.

    Raises:
        ValueError: If an argument is not as said above, the shapes do not match, or the channels of a region add up
            to more than 1.
        UsageError: If there is no such metric of probabilities, or a label has no channel.

    >>> reference = np.array([[0, 0, 1, 1]])
    >>> probabilities = np.array([[[0.9, 0.8, 0.2, 0.1]], [[0.1, 0.2, 0.8, 0.9]]])
    >>> for score in probability_scores(
    ...     reference, probabilities, labels={1: "liver"}, channels=[0, 1], metrics=["soft_dice", "ece@2"]
    ... ):
    ...     print(score.label, score.metric, round(score.value, 4), score.status)
    liver soft_dice 0.85 present
    liver ece@2 0.15 present
    """
    wanted = probability_metrics(metrics)
    if reference.dtype.kind not in "iu":
        raise ValueError(f"Expected `reference` to be an integer label map, got dtype {reference.dtype}")
    if probabilities.shape[1:] != reference.shape:
        raise ValueError(
            f"Expected `probabilities` to be channels of the reference's shape {reference.shape}, "
            f"got {probabilities.shape}"
        )
    regions = _check_regions(labels)
    channel_of = _label_channels(channels, regions, len(probabilities))
    judged = None if ignore is None else reference != ignore
    scores = []
    for name, members in regions.items():
        mask, parts = np.isin(reference, members), [probabilities[channel_of[label]] for label in members]
        if judged is not None:
            mask, parts = mask[judged], [part[judged] for part in parts]
        pair = ProbabilityPair(mask, _sum_channels(parts, name), name)
        for asked_for, (definition, parameter) in wanted.items():
            value = definition.function(pair) if parameter is None else definition.function(pair, parameter)
            scores.append(LabelScore(name, asked_for, float(value), pair.status))
    return scores


def worst_probability_scores(labels: Labels, metrics: Sequence[str], *, known: bool = True) -> list[LabelScore]:
    """Returns "failed" scores of a case without an answer.

    Every value is NaN where the reference is not `known`, for then nobody is judged.

    Raises:
        ValueError: If a metric is named twice.
        UsageError: If there is no such metric of probabilities.

    >>> worst_probability_scores({1: "liver"}, ["ece@15"])
    [LabelScore(label='liver', metric='ece@15', value=1.0, status='failed')]
    """
    wanted = probability_metrics(metrics)
    return [
        LabelScore(name, asked_for, float(definition.worst) if known else math.nan, "failed")
        for name in _check_regions(labels)
        for asked_for, (definition, _) in wanted.items()
    ]


def _sum_channels(channels: Sequence[Array], name: str) -> Array:
    """Returns summed class probabilities of a voxel; one stays."""
    if len(channels) == 1:
        return channels[0]
    total = np.sum(channels, axis=0, dtype=np.float64)
    if total.max(initial=0.0) > 1 + EXCESS:
        raise ValueError(
            f"Expected the probabilities of the labels of {name!r} to add up to 1 at most, got {total.max():g}; "
            "only classes that exclude each other make up a region"
        )
    return np.minimum(total, 1)


def _label_channels(
    channels: Mapping[int, int] | Sequence[int], regions: Mapping[str, Sequence[int]], count: int
) -> dict[int, int]:
    """Returns the channel of each label, checked."""
    if isinstance(channels, Mapping):
        channel_of = dict(channels)
    else:
        channel_of = {label: channel for channel, label in enumerate(channels)}
        if len(channel_of) < len(channels) or len(channels) != count:
            raise ValueError(f"Expected `channels` to name a label of each of {count} channels, got {list(channels)}")
    for label, name in ((label, name) for name, members in regions.items() for label in members):
        if label not in channel_of:
            raise UsageError(
                f"channels: there is none for label {label} ({name}); the channels are for {sorted(channel_of)}"
            )
        if not 0 <= channel_of[label] < count:
            raise ValueError(
                f"Expected the channel of label {label} ({name}) to be 0 to {count - 1}, got {channel_of[label]}"
            )
    return channel_of


def _bin_errors(pair: ProbabilityPair, bins: float) -> tuple[Floats, Floats]:
    """Returns bins' |mean y - mean p| and voxel numbers."""
    if bins < 1 or bins != int(bins):
        raise UsageError(
            f"Expected the number of bins of a calibration error to be a whole number above 0, got {bins:g}"
        )
    edges = np.arange(1, int(bins)) / bins
    counts, excess = np.zeros(int(bins)), np.zeros(int(bins))
    for y, p in pair.chunks():
        # Looked up rather than multiplied: 0.29 * 100 is 28.999999999999996.
        bin_numbers = np.searchsorted(edges, p, side="right")
        counts += np.bincount(bin_numbers, minlength=int(bins))
        excess += np.bincount(bin_numbers, y - p, minlength=int(bins))
    filled = counts > 0
    errors: Floats = np.abs(excess[filled]) / counts[filled]
    return errors, counts[filled]

"""The scores of segmentations as torchmetrics: gathered case by case, over batches and over processes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torchmetrics import Metric

from medimg_eval.errors import UsageError
from medimg_eval.metrics import EmptyPolicy, InstanceRule, LesionRule, Surface, parse
from medimg_eval.metrics.segmentation.scores import (
    Labels,
    _check_regions,
    _check_tolerances,
    mask_metrics,
    needs_spacing,
)
from medimg_eval.tensors._conventions import Given, cases_of, read_pair, stored_spacing
from medimg_eval.tensors.segmentation import segmentation_scores

Mean = Literal["case", "class", "none"]


class SegmentationScores(Metric):
    """Label scores by metric, averaged over cases, batches and processes.

    A batch is (case, *spatial) or (case, channel, *spatial), 2-D or 3-D, or a list of such cases, and each side may
    be, as MONAI's and torchmetrics' metrics have it:

    - integer labels, without a channel or with one (in which whole floats will do);
    - a channel per class, of which channel 0 is background and channel k the label k: one-hot, or logits or
      probabilities, of which the largest counts;
    - a channel of 0 and 1, or False and True, per label judged, in their order and none for background; such masks
      may overlap;
    - a boolean mask, without a channel or with one, where one label is judged.

    What fits none of these, or several, is refused: logits and probabilities without a channel for background, as of
    a sigmoid, are to be compared with a threshold first. A spacing says how many axes are spatial, where shapes do
    not; only metrics in mm, or of sizes in mm, need it. Of MetaTensors it is taken from their affine.

    Every case is kept as one row of scores, so processes need not hold equally many, and one may hold none: what is
    computed is what one process would compute from all cases. A case that a sampler repeats to fill up a shard,
    as `DistributedSampler` does, counts twice; for exact values give shards of their own sizes.

    `compute` returns a dict from the metrics' names to float64 tensors (float32 where the device has no float64):
    one number, or with `mean="none"` one per label. NaN, which the policy for empty masks gives where there is
    nothing to judge, is left out of means; a mean of nothing is NaN.

    Args:
        labels: As for `medimg_eval.metrics.segmentation_scores`, like all that is not named here.
        metrics: Names of metrics of kind "mask".
        spacing: Of every case that `update` is given no spacing for, whatever a MetaTensor brings.
        mean: "case" averages over the labels of each case, then over cases (as tables do, and MONAI); "class" over
            the cases of each label, then over labels (as nnU-Net); "none" over the cases of each label.
        **options: Of `torchmetrics.Metric`, such as `dist_sync_on_step`.

    Raises:
        ValueError: If an argument is not as said above.
        UsageError: If there is no such mean, metric of masks, policy or rule.

    >>> scores = SegmentationScores({1: "liver", 2: "cyst"}, ("dice", "hd"), spacing=(3, 2))
    >>> target = torch.tensor([[[1, 1, 0, 0], [0, 0, 0, 2]]])
    >>> scores.update(torch.tensor([[[1, 1, 1, 0], [0, 0, 0, 0]]]), target)
    >>> {name: value.item() for name, value in scores.compute().items()}
    {'dice': 0.4, 'hd': 6.0}
    """

    is_differentiable = False
    full_state_update = False
    values: list[Tensor]
    settings: Tensor

    def __init__(  # noqa: PLR0913 - named arguments, each with a default
        self,
        labels: Labels,
        metrics: Sequence[str] = ("dice", "hd95", "nsd@1"),
        *,
        spacing: Sequence[float] | None = None,
        mean: Mean = "case",
        surface: Surface = "surfel",
        empty: EmptyPolicy | str | Mapping[str, Any] = "worst",
        tolerances: Mapping[str, float] | None = None,
        ignore: int | None = None,
        instances: InstanceRule | str | Mapping[str, Any] | None = None,
        lesions: LesionRule | str | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        UsageError.refuse_invalid("mean", get_args(Mean), mean)
        self.metrics = tuple(metrics)
        self.spacing = None if spacing is None else tuple(float(size) for size in spacing)
        self.mean: Mean = mean
        self.rules: dict[str, Any] = {
            "labels": labels,
            "metrics": self.metrics,
            "surface": surface,
            "empty": EmptyPolicy.of(empty),
            "tolerances": tolerances,
            "ignore": ignore,
            "instances": InstanceRule.of(instances),
            "lesions": LesionRule.of(lesions),
        }
        self._regions = _check_regions(labels)
        metrics_ = mask_metrics(self.metrics)
        _check_tolerances(tolerances or {}, self._regions, metrics_)
        self.labels = tuple(self._regions)
        self._in_mm = [
            name for name, (definition, _) in metrics_.items() if needs_spacing(definition, self.rules["instances"])
        ]
        # A list of flat rows: what a process without cases adds to it is empty, and flat as well.
        self.add_state("values", [], dist_reduce_fx="cat")
        # A MetricCollection takes metrics whose states look alike for one and the same.
        settings = zlib.crc32(repr((self.spacing, self.rules)).encode()).to_bytes(4)
        self.add_state("settings", torch.tensor(list(settings)), dist_reduce_fx="max")

    def update(self, preds: Tensor | Sequence[Tensor], target: Tensor | Sequence[Tensor], spacing: Any = None) -> None:
        """Judges the cases of a batch.

        Args:
            preds: The cases, in one of the shapes that the class names.
            target: Likewise, not necessarily in the same one.
            spacing: mm along each spatial axis, of every case; or (case, axes) of each.

        Raises:
            ValueError: If a shape is none of those or could be several, or a metric lacks the spacing.
        """
        if len(preds) != len(target):
            raise ValueError(f"Expected as many predictions as targets, got {len(preds)} and {len(target)}")
        spacings = self._spacings(spacing, len(target))
        for *sides, size in zip(cases_of(preds), cases_of(target), spacings, strict=True):
            prediction_side, right = (side.values for side in sides)
            axes = None if size is None else len(size)
            prediction, reference, axes = read_pair(prediction_side, right, axes, self._regions, self.rules["ignore"])
            case_size = size or self._stored(sides, axes)
            rules = self.rules | ({"ignore": None} if reference.dtype == torch.bool else {})
            scores = segmentation_scores(reference, prediction, case_size, **rules)
            row = torch.tensor([score.value for score in scores], dtype=torch.float64)
            self.values.append(row.to(self.device, self._kept_as()))

    def compute(self) -> dict[str, Tensor]:
        """Returns the mean of each metric, by the name it was asked for."""
        values = torch.cat(self.values) if isinstance(self.values, list) and self.values else self.values
        if not isinstance(values, Tensor):
            values = torch.zeros(0, dtype=self._kept_as(), device=self.device)
        rows = values.reshape(-1, len(self.labels), len(self.metrics))
        if self.mean == "case":
            means = rows.nanmean(1).nanmean(0)
        else:
            by_label = rows.nanmean(0)
            means = by_label if self.mean == "none" else by_label.nanmean(0)
        return {name: means[..., index] for index, name in enumerate(self.metrics)}

    def _kept_as(self) -> torch.dtype:
        return torch.float32 if self.device.type == "mps" else torch.float64

    def _sync_dist(self, *arguments: Any, **options: Any) -> None:
        if isinstance(self.values, list) and not self.values:  # torchmetrics would add a row of another dtype
            self.values = [torch.zeros(0, dtype=self._kept_as(), device=self.device)]
        super()._sync_dist(*arguments, **options)

    def _stored(self, sides: Sequence[Given], axes: int) -> tuple[float, ...]:
        """Returns the spacing that MetaTensors bring, NaN where no metric needs one."""
        if not self._in_mm:
            return (math.nan,) * axes
        spacing = stored_spacing(sides, axes)
        if spacing is None:
            raise ValueError(
                f"Expected `spacing`, of each update or of the metric, or MetaTensors that bring it, got none; "
                f"{', '.join(self._in_mm)} needs it: spacing=({', '.join(['1'] * axes)}) counts in voxels"
            )
        return spacing

    def _spacings(self, spacing: Any, cases: int) -> list[tuple[float, ...]] | list[None]:
        """Returns the spacing that was given for each case."""
        if spacing is None and self.spacing is None:
            return [None] * cases
        spacings = torch.as_tensor(self.spacing if spacing is None else spacing, dtype=torch.float64, device="cpu")
        if spacings.ndim == 1:
            spacings = spacings.expand(cases, -1)
        if spacings.ndim != 2 or len(spacings) != cases:
            raise ValueError(
                f"Expected a spacing for all or for each of {cases} cases, got shape {tuple(spacings.shape)}"
            )
        return [tuple(sizes) for sizes in spacings.tolist()]


class SegmentationScore(SegmentationScores):
    """One segmentation metric as number, for logging and checkpoints.

    Args:
        metric: Name of a metric of kind "mask".
        **options: As for `SegmentationScores`; with `mean="none"` there is a number per label.

    >>> dice = SegmentationScore("dice", [1], spacing=(1, 1))
    >>> dice(torch.tensor([[[1, 1, 0, 0]]]), torch.tensor([[[1, 1, 1, 0]]])).item()
    0.8
    """

    def __init__(self, metric: str, labels: Labels, **options: Any) -> None:
        super().__init__(labels, (metric,), **options)

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The metric's direction."""
        return bool(parse(self.metrics[0])[0].higher_is_better)

    def compute(self) -> Tensor:  # type: ignore[override]
        """Returns the mean of the metric."""
        (mean,) = super().compute().values()
        return mean

"""Classifiers as feature extractors: each picture's probabilities of findings, or of views, kept by its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Image, Prompt
from medimg_eval.errors import UsageError
from medimg_eval.models.extractors.base import FeatureExtractor
from medimg_eval.models.extractors.networks import TimmEncoder

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


class FindingClassifier(TimmEncoder):
    """Backbone of timm with independent probabilities of findings.

    A run of `fit` is one.

    Args:
        weights: a file of weights with the head, or the folder of a `fit` run.
        findings: in the order of the head, called as the attributes of the cases are.
        thresholds: from which probability on a finding is there: a number for all, or finding -> number, of which those
            that are not named have 0.5. Take those that were set on real images.

    Raises:
        UsageError: invalid findings or thresholds.
    """

    def __init__(
        self,
        backbone: str = "resnet50",
        weights: str | None = None,
        findings: Sequence[str] = (),
        thresholds: float | Mapping[str, float] = 0.5,
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        super().__init__(backbone, weights, options, device, preferred_batch)
        self.findings = _finding_names(self.name, "findings", findings)
        self.thresholds = _finding_thresholds(self.name, self.findings, thresholds)

    @property
    def preprocessing(self) -> str:
        """The backbone's own."""
        return f"timm's {self.backbone}, its own preprocessing, probabilities of {len(self.findings)} findings"

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns probabilities, (picture, finding)."""
        import torch

        return torch.sigmoid(torch.from_numpy(super().encode(pictures))).numpy()


class ViewClassifier(TimmEncoder):
    """Backbone of timm with exclusive classes, such as X-ray views.

    Args:
        weights: a file of weights with the head, or the folder of a `fit` run.
        choices: in the order of the head, called as the values of the attribute are.
        chooses: the attribute.

    Raises:
        UsageError: fewer than two choices, or one twice.
    """

    def __init__(
        self,
        backbone: str = "resnet50",
        weights: str | None = None,
        choices: Sequence[str] = (),
        chooses: str = "view",
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        super().__init__(backbone, weights, options, device, preferred_batch)
        self.choices, self.chooses = _finding_names(self.name, "choices", choices, least=2), str(chooses)

    @property
    def preprocessing(self) -> str:
        """The backbone's own."""
        return f"timm's {self.backbone}, its own preprocessing, probabilities of {', '.join(self.choices)}"

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns probabilities that sum to 1, (picture, choice)."""
        import torch

        return torch.softmax(torch.from_numpy(super().encode(pictures)), dim=1).numpy()


class ModelClassifier(FeatureExtractor):
    """Classification model, also fitted, as classifier of findings or views.

    Args:
        model: a wrapper with `classify`.
        findings: of its classes those that are judged, called as the attributes of the cases are; or instead
        choices: classes that exclude each other, called as the values of the attribute are.
        chooses: that attribute.

    Raises:
        UsageError: the model does not classify; or names or thresholds are invalid.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "weights")

    def __init__(
        self,
        model: Any,
        findings: Sequence[str] = (),
        choices: Sequence[str] = (),
        chooses: str = "view",
        thresholds: float | Mapping[str, float] = 0.5,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        if not callable(getattr(model, "classify", None)):
            raise UsageError(f"extractors.NAME.model: {type(model).__name__} does not classify; name a model that does")
        if bool(findings) == bool(choices):
            raise UsageError("extractors.NAME: expected either findings or choices")
        self.model, self.device, self.preferred_batch = model, device, preferred_batch
        if findings:
            self.findings = _finding_names(self.name, "findings", findings)
            self.thresholds = _finding_thresholds(self.name, self.findings, thresholds)
        else:
            self.choices, self.chooses = _finding_names(self.name, "choices", choices, least=2), str(chooses)
        self._ready = False

    def check_ready(self) -> None:
        """Raises UserError when the model lacks its weights."""
        self.model.check_ready()

    @property
    def preprocessing(self) -> str:
        """The model's own."""
        return f"{type(self.model).__name__}, its own preprocessing, probabilities of {len(self.names)} classes"

    def embed_images(self, images: Sequence[Image]) -> Array:
        """Returns probabilities, float32, (image, class)."""
        if not images:
            return np.zeros((0, len(self.names)), np.float32)
        labels = dict(enumerate(self.names, 1))
        if not self._ready:
            self.model.prepare(labels, lambda: images[0])
            if callable(getattr(self.model, "to", None)):
                self.model.to(self.on)
            self._ready = True
        options = {str(number): name for number, name in labels.items()} if self.choices else {}
        prompts = [Prompt(str(index), (image,), labels, options=options) for index, image in enumerate(images)]
        values = [[float(answer[name]) for name in self.names] for answer in self.model.classify(prompts)]
        return np.array(values, np.float32)

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns the same of 8-bit pictures."""
        arrays = [Image(np.moveaxis(np.asarray(picture), -1, 0), np.eye(4), units="pixel") for picture in pictures]
        return self.embed_images(arrays)


def _finding_thresholds(
    extractor: str, findings: Sequence[str], thresholds: float | Mapping[str, float]
) -> tuple[float, ...]:
    thresholds_ = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(findings, thresholds)
    key = f"extractors.{extractor or 'NAME'}.thresholds"
    for finding, least in thresholds_.items():
        UsageError.refuse_unknown(f"{key} names", findings, finding)
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
            raise UsageError(f"{key}: expected probabilities from 0 to 1, got {least!r} for {finding!r}")
    return tuple(float(thresholds_.get(finding, 0.5)) for finding in findings)


def _finding_names(extractor: str, key: str, given: Sequence[str], least: int = 1) -> tuple[str, ...]:
    names = () if isinstance(given, str) else tuple(map(str, given))
    if len(names) < least or len({name.lower() for name in names}) < len(names):
        raise UsageError(
            f"extractors.{extractor or 'NAME'}.{key}: expected at least {least} different names, in the order of the "
            f"classifier's head, got {given!r}"
        )
    return names

"""An ensemble of any models by majority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from torch import nn

from medimg_eval.case import Array, Mask, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Example, Segmenter
from medimg_eval.models.segmentation.postprocess import Step, postprocessed


class Vote(nn.Module, Segmenter):
    """Majority vote per voxel; the first model breaks ties.

    Args:
        models: segmenters; a list under `models` in a config, each with its `_target_`.

    Raises:
        UserError: fewer than two models.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "bundle", "root")

    def __init__(self, models: Sequence[Segmenter], postprocess: Sequence[Step] = ()) -> None:
        super().__init__()
        if len(models) < 2:
            raise UserError(f"expected model.models to hold two models or more, got {len(models)}")
        self.models = list(models)
        self.networks = nn.ModuleList([model for model in models if isinstance(model, nn.Module)])
        """Known to Lightning, which moves them to the device."""
        self.postprocess = tuple(postprocess)

    @property
    def reads_images(self) -> bool:  # type: ignore[override]
        """Whether one of the models does."""
        return any(model.reads_images for model in self.models)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Prepares each model."""
        for model in self.models:
            model.prepare(labels, example)

    def check_ready(self) -> None:
        """Each model must be."""
        for model in self.models:
            model.check_ready()

    def segment(self, prompts: Prompts) -> Sequence[Array | Mask]:
        """Asks every model in turn; raises CaseError for differing grids."""
        answers = [model.segment(prompts) for model in self.models]
        return [
            self._joined(prompt, answers) for prompt, answers in zip(prompts, zip(*answers, strict=True), strict=True)
        ]

    def _joined(self, prompt: Prompt, given: Sequence[Array | Mask]) -> Array | Mask:
        masks = [answer for answer in given if isinstance(answer, Mask)]
        maps = [answer.labels if isinstance(answer, Mask) else answer for answer in given]
        odd = next((label_map.shape for label_map in maps if label_map.shape != maps[0].shape), None)
        difference = next((apart for mask in masks if (apart := masks[0].geometry.difference(mask.geometry))), None)
        if odd or difference:
            raise CaseError(f"case {prompt.case_id!r}: the models' masks differ: {difference or f'{odd} voxels'}")
        geometry = masks[0].geometry if masks else prompt.image.geometry
        labels = postprocessed(self.postprocess, _majority_vote(maps), prompt.labels, geometry.spacing)
        return Mask(labels, masks[0].affine, units=masks[0].units) if masks else labels


def _majority_vote(maps: Sequence[Array]) -> Array:
    """Label with most votes at each voxel, int32; earlier labels win ties."""
    most = np.zeros(maps[0].shape, dtype=np.int16)
    winner = np.zeros(maps[0].shape, dtype=np.int32)
    for candidate in maps:
        votes = sum((label_map == candidate).astype(np.int16) for label_map in maps)
        ahead = votes > most
        winner[ahead], most[ahead] = candidate[ahead], votes[ahead]
    return winner

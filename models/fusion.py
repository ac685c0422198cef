"""Fusion: one model on several unlike images of a case and the values of a table, of which some may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from medimg_eval.case import Array, Image, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.image import PART, VISIT, WHEN
from medimg_eval.models.base import shown_images
from medimg_eval.models.heads import Head
from medimg_eval.models.probe import Probe, is_features

FUSIONS = {"early": "early_fusion", "late": "late_fusion"}
VISITS = ("mean", "last", "change")


class FusionProbe(Probe):
    """Probe on a case's parts: images by kind, and tabular values.

    Each part becomes the mean of its features; a part that a case lacks is missing, and is no failure. A case is told
    apart by the attribute `part` of its images, else by their modality.

    Args:
        fusion: `early`, one head on all features side by side; or `late`, a head for each part, averaged.
        encoder: of pictures; or part -> encoder.
        head: the head that is fused: its name, or `name` and its settings.
        visits: of a case with several: `mean` of them, the `last`, or `change`: the last, what it is above the first,
            and the time between both.
        parts: those that are used, in their order; all that cases to fit on have when empty. One alone is what fusing
            has to beat.
        others: see `Probe`; the grid's settings are those of `fusion`'s head, such as `of`.

    Raises:
        UsageError: there is no such fusion, head or setting.
    """

    def __init__(
        self,
        fusion: str = "early",
        encoder: Any = None,
        head: str | Mapping[str, Any] = "logistic",
        grid: Mapping[str, Sequence[Any]] | None = None,
        criterion: str = "loss",
        folds: int = 5,
        *,
        checkpoint: str | None = None,
        batch: int = 32,
        parts: Sequence[str] = (),
        visits: str = "mean",
        **options: Any,
    ) -> None:
        UsageError.refuse_invalid("model.fusion", FUSIONS, fusion)
        UsageError.refuse_invalid("model.visits", VISITS, visits)
        if isinstance(head, Head):
            raise UsageError("model.head of a fusion is the name of a head, or `name` and its settings")
        fused = {"name": FUSIONS[fusion], "of": head if isinstance(head, str) else dict(head)}
        super().__init__(encoder, fused, grid, criterion, folds, checkpoint, batch, **options)
        self.fusion, self.parts, self.visits = fusion, [str(part) for part in parts], visits

    def _bags(self, prompts: Prompts) -> Sequence[Any]:
        """Part -> its vector, of each prompt."""
        return [self._of_case(prompt) for prompt in prompts]

    def _of_case(self, prompt: Prompt) -> dict[str, Array]:
        held: dict[str, list[Image]] = {}
        parts = self.parts or list(getattr(self.head, "blocks", {}))
        for image in shown_images(prompt):
            part = image.attributes.get(PART) or image.modality or "image"
            if not parts or part in parts:
                held.setdefault(part, []).append(image)
        if not held:
            wanted = f" of {', '.join(parts)}" if parts else ""
            raise CaseError(f"case {prompt.case_id!r} has no image{wanted}")
        return {part: self._vector(part, images) for part, images in held.items()}

    def _vector(self, part: str, images: Sequence[Image]) -> Array:
        if is_features(images[0]):
            rows = np.concatenate([np.asarray(image.array[0], np.float64) for image in images])
        else:
            rows = np.stack([np.asarray(vector, np.float64) for vector in self._embedded_of(part, images)])
        numbers = [int(image.attributes.get(VISIT, 0)) for image in images]
        if self.visits == "mean" or not any(numbers):
            mean: Array = rows[0] if len(rows) == 1 else rows.mean(0)
            return mean
        if len(rows) != len(images):
            raise CaseError(f"features of {part} are bags of tiles; set model.visits=mean, or give one vector a visit")
        first, last = (
            [index for index, number in enumerate(numbers) if number == end] for end in (min(numbers), max(numbers))
        )
        now: Array = rows[last].mean(0)
        if self.visits == "last":
            return now
        span = float(images[last[0]].attributes[WHEN]) - float(images[first[0]].attributes[WHEN])
        return np.concatenate([now, now - rows[first].mean(0), [span]])

    def _embedded_of(self, part: str, images: Sequence[Image]) -> list[Array]:
        """Vectors of pictures, by the encoder of their part."""
        encoder = self.encoder
        if isinstance(encoder, Mapping):
            if part not in encoder:
                raise UserError(f"model.encoder names no encoder of {part!r}, it has {', '.join(map(str, encoder))}")
            self.encoder = encoder[part]
        try:
            if self.encoder is None:
                raise UserError(f"{part} shows pictures, and the probe has no encoder; set model.encoder")
            return list(self._embedded(images))
        finally:
            self.encoder = encoder

    def _vectors(self, bags: Sequence[Any]) -> Array:
        """Concatenated parts (case, feature), NaN where missing; refuses varying lengths."""
        blocks: dict[str, int] = getattr(self.head, "blocks", {})
        if not blocks:
            columns: dict[str, int] = {}
            for bag in bags:
                for part, vector in bag.items():
                    if columns.setdefault(part, len(vector)) != len(vector):
                        raise UserError(f"features of {part} have lengths {columns[part]} and {len(vector)}")
            wanted = self.parts or sorted(columns)
            missing = [part for part in wanted if part not in columns]
            if missing:
                raise UserError(f"no case to fit on has {', '.join(missing)}; they have {', '.join(sorted(columns))}")
            blocks = {part: columns[part] for part in wanted}
            self.head = self.head.changed({"blocks": blocks})
        rows = np.full((len(bags), sum(blocks.values())), np.nan)
        for row, bag in zip(rows, bags, strict=True):
            begin = 0
            for part, width in blocks.items():
                if part in bag:
                    if len(bag[part]) != width:
                        raise UserError(f"features of {part} have length {len(bag[part])}, expected {width}")
                    row[begin : begin + width] = bag[part]
                begin += width
        return rows

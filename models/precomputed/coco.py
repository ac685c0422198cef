"""Boxes and masks in the JSON of results that COCO's evaluation takes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Boxes, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.metrics.run_lengths import Runs, box_of_runs, coco_runs
from medimg_eval.models.base import Detector
from medimg_eval.models.precomputed.files import FromFiles


class PrecomputedCoco(FromFiles, Detector):
    """A list of results: `image_id`, `category_id`, `score`, and `bbox`, `segmentation` or both.

    An image without results has no candidates, which is an answer and no failure.

    Args:
        root: the JSON of results.
        annotations: the JSON of annotations, whose `images` and `categories` say which file and class a number means.

    Raises:
        UserError: a file is missing, or is not understood.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("root", "annotations")

    def __init__(self, root: str, annotations: str) -> None:
        self.root, self.annotations = Path(root).expanduser(), Path(annotations).expanduser()
        results, content = _read_json(self.root), _read_json(self.annotations)
        try:
            self.images = {str(image["file_name"]): image["id"] for image in content["images"]}
            self.names = {category["id"]: str(category["name"]) for category in content["categories"]}
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{self.annotations}: expected 'images' with id and file_name, and 'categories' with id and name"
            ) from error
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise UserError(f"{self.root}: expected a list of objects with image_id, category_id and score")
        self.results: dict[Any, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for number, result in enumerate(results, start=1):
            self.results[result.get("image_id")].append((f"{self.root}, item {number}", result))
        strange = set(self.results) - set(self.images.values())
        if strange:
            location = self.results[next(iter(strange))][0][0]
            raise UserError(f"{location}: image_id {next(iter(strange))!r:.60} is none of {self.annotations}")

    def detect(self, prompts: Prompts) -> Sequence[Boxes]:
        """Reads each image's results; CaseError names file and item."""
        return [self._of(prompt) for prompt in prompts]

    def _of(self, prompt: Prompt) -> Boxes:
        if prompt.case_id not in self.images:
            raise CaseError(f"{self.annotations}: has no image of the file_name {prompt.case_id!r}")
        results = self.results.get(self.images[prompt.case_id], [])
        corners, areas, scores = np.zeros((len(results), 4)), np.zeros(len(results)), np.zeros(len(results))
        masks: list[Runs] = []
        for index, (where, result) in enumerate(results):
            if "segmentation" in result:
                masks.append(_read_mask(where, result["segmentation"]))
            box = result.get("bbox") or (
                box_of_runs(masks[-1], result["segmentation"]["size"][0]) if "segmentation" in result else None
            )
            if not isinstance(box, list | tuple) or len(box) != 4 or not all(map(_is_number, box)) or min(box[2:]) < 0:
                raise CaseError(f"{where}: 'bbox' is {box!r:.60}, expected x, y, width and height")
            left, top, width, height = box
            corners[index] = top, left, top + height - 1, left + width - 1
            areas[index] = width * height
            if not _is_number(result.get("score")):
                raise CaseError(f"{where}: 'score' is {result.get('score')!r:.60}, expected a number")
            scores[index] = result["score"]
        if masks and len(masks) < len(results):
            raise CaseError(
                f"{self.root}: of {len(results)} results of {prompt.case_id!r} {len(masks)} have a segmentation"
            )
        return Boxes(corners, tuple(map(self._name, results)), scores, tuple(masks) if masks else None, areas)

    def _name(self, item: tuple[str, dict[str, Any]]) -> str:
        where, result = item
        if result.get("category_id") not in self.names:
            raise CaseError(f"{where}: category_id {result.get('category_id')!r:.60} is none of {self.annotations}")
        return self.names[result["category_id"]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_mask(where: str, segmentation: Any) -> Runs:
    try:
        height, width = segmentation["size"]
        return coco_runs(segmentation, (height, width))
    except (KeyError, TypeError, ValueError) as error:
        raise CaseError(f"{where}: 'segmentation' is not understood ({error}); expected size and counts") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is no JSON ({error})") from error

"""Panels of a case become a scene: what a page in a browser takes of images, overlays and slices."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.case import Array, Boxes, Findings, Image, Mask, Points
from medimg_eval.errors import CaseError
from medimg_eval.viewer.overlays import Grid, is_clip, label_map, marks, pictures, stack

if TYPE_CHECKING:
    from pathlib import Path

    from medimg_eval.panels import Panel

log = logging.getLogger(__name__)

LONGEST = 100_000
"""Characters of a text that are shown."""

Scene = dict[str, Any]


@dataclass
class Drawing:
    """A scene that panels are added to one after another.

    Attributes:
        folder: pictures are written into it.
        voxels: how many of a volume are shown at most.
        models: how many there are.
        scene: as the page takes it; what cannot be read is said under `problems`.
    """

    folder: Path
    voxels: int
    models: int
    scene: Scene = field(default_factory=lambda: {"pictures": [], "panels": [], "problems": []})
    _grids: list[Grid | None] = field(default_factory=list)
    _reference: tuple[Array, tuple[float, float]] | None = None

    def attempt(self, what: Callable[[], None]) -> None:
        """Does a part of it, or says what went wrong."""
        problem = attempt(what)
        if problem and problem not in self.scene["problems"]:
            self.scene["problems"].append(problem)

    def add(self, panels: Sequence[Panel]) -> None:
        """Adds the panels of the case, those of words left out."""
        images = [panel for panel in panels if panel.kind == "image"]
        for number, panel in enumerate(images):
            self.attempt(partial(self._image, panel, number))
        for panel in panels:
            if panel.kind == "overlay":
                self.attempt(partial(self._overlay, panel))
            elif panel.kind == "alone":
                self.attempt(partial(self._alone, panel, -1, 0))

    def add_answer(self, panels: Sequence[Panel], model: int) -> None:
        """Adds the panels of what a model answered."""
        for number, panel in enumerate(panels):
            if panel.kind == "overlay":
                self.attempt(partial(self._answer_overlay, panel, model))
            elif panel.kind == "alone":
                self.attempt(partial(self._alone, panel, model, number))

    @property
    def _grid(self) -> Grid | None:
        return next((grid for grid in self._grids if grid is not None), None)

    def _image(self, panel: Panel, number: int) -> None:
        image = panel.read()
        flat = len(image.array.shape) == 3 and image.array.dtype.kind != "c"
        placed = flat or (image.array.ndim == 4 and not is_clip(image) and image.array.dtype.kind != "c")
        grid = Grid.of(image, self.voxels) if placed else None
        self._grids.append(grid)
        for layer in pictures(image, grid, self.folder, str(number)):
            title = f"{panel.title}, {layer['title']}" if layer.get("title") else panel.title
            first = self._grid
            overlaid = grid is not None and first is not None and grid.own.difference(first.own) is None
            self.scene["pictures"].append({**layer, "title": title, "overlaid": overlaid, "modality": image.modality})

    def _overlay(self, panel: Panel) -> None:
        value, grid = panel.read(), self._grid
        if isinstance(value, Mask) and panel.labels:
            self.scene["labels"] = list(panel.labels.values())
            self.scene["masks"] = {"truth": None, "models": [None] * self.models}
            if grid is not None:  # without it there is nothing to lay a label map over
                self.scene["masks"]["truth"] = label_map(grid.labels(value), list(panel.labels), grid)
        elif isinstance(value, Points | Boxes):
            self.scene.setdefault("marks", {})["truth"] = marks(value, grid)
        elif isinstance(value, Findings):
            self.scene["findings"] = [[name, value] for name, value in value.values.items()]

    def _answer_overlay(self, panel: Panel, model: int) -> None:
        grid = self._grid
        if panel.labels and ("masks" not in self.scene or grid is None):
            return
        value = panel.read()
        if isinstance(value, Mask) and grid is not None:
            self.scene["masks"]["models"][model] = label_map(grid.labels(value), list(panel.labels), grid)
        elif isinstance(value, Points | Boxes):
            self.scene.setdefault("marks", {}).setdefault("models", [None] * self.models)[model] = marks(value, grid)
        elif isinstance(value, str):
            self.scene.setdefault("stored", [None] * self.models)[model] = cut(value)

    def _alone(self, panel: Panel, model: int, number: int) -> None:
        value = panel.read()
        if isinstance(value, Image):
            stem = f"made-{model}-{number}" if model >= 0 else f"reference-{number}"
            for layer in pictures(value, None, self.folder, stem):
                self.scene["panels"].append({**layer, "title": panel.title, "model": model})
            return
        slices = _magnitude_slices(value)
        if self._reference is None:
            layer_ = stack(slices)
            self.scene["panels"].append({**layer_, "title": panel.title, "model": model})
            if model < 0:
                self._reference = slices, layer_["full"]
            return
        reference, window = self._reference
        self.scene["panels"].append({**stack(slices, window=window), "title": panel.title, "model": model})
        error = np.abs(slices - reference).astype(np.float32)
        layer = stack(error, window=(0.0, (window[1] - window[0]) / 5))
        title = "Absolute error, five times as bright"
        self.scene["panels"].append({**layer, "title": title, "model": model, "colours": "heat"})


def _magnitude_slices(array: Array) -> Array:
    """Magnitudes as (slice, row, column), float32."""
    values = np.abs(array).astype(np.float32) if array.dtype.kind == "c" else array.astype(np.float32)
    return values.reshape(-1, *values.shape[-2:])


def spelt(value: Any) -> str:
    """Answer in words: joined texts, or JSON."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return cut(" / ".join(value))
    return cut(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def cut(text: str) -> str:
    """A text of at most `LONGEST` characters."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [cut: {len(text):,} characters in all]"


def attempt(what: Callable[[], None]) -> str:
    """Tries something on a case; returns "" or the error."""
    try:
        what()
    except CaseError as error:
        return str(error)
    except Exception as error:  # a user's layout or a damaged file can fail in any way
        log.debug("a case could not be shown", exc_info=True)
        return f"{type(error).__name__}: {error}"
    return ""

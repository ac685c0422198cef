"""Points, boxes and measurements: JSON with every digit of their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Boxes, Points
from medimg_eval.codecs.base import FileCodec, read_json, write_json
from medimg_eval.errors import CaseError

WORDS = {"points": "points", "numbers": "measurements"}
"""Key of a stored file -> what it holds; any other holds detections."""


class Places(FileCodec):
    """Boxes and points: with confidences, without, or named numbers.

    `places`, `points` and `numbers`.

    A point whose position holds NaN is stored as null, and left out when it is read.
    """

    form = "places"
    suffix = ".json"

    def save(self, path: Path, value: Points | Boxes | Mapping[str, float]) -> None:
        """Writes places or numbers."""
        content: dict[str, Any]
        if isinstance(value, Mapping):
            content = {"numbers": {name: None if math.isnan(number) else number for name, number in value.items()}}
        elif isinstance(value, Points) and value.scores is None:
            placed = zip(value.names, np.asarray(value.positions, float), strict=True)
            content = {
                "points": [
                    {"name": name, "position": None if np.isnan(position).any() else position.tolist()}
                    for name, position in placed
                ]
            }
        else:
            points = isinstance(value, Points)
            content = {
                "kind": "points" if points else "boxes",
                "names": list(value.names),
                "places": np.asarray(value.positions if isinstance(value, Points) else value.corners, float).tolist(),
                "confidences": [] if value.scores is None else np.asarray(value.scores, float).tolist(),
            }
            if isinstance(value, Boxes):
                content |= {"masks": [runs.tolist() for runs in value.masks]} if value.masks is not None else {}
                content |= {"areas": np.asarray(value.areas, float).tolist()} if value.areas is not None else {}
        write_json(path, content)

    def read(self, stored: Path) -> Points | Boxes | dict[str, float]:
        """Reads places or numbers."""
        content = read_json(stored)
        try:
            return _decode_places(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            words = next((words for key, words in WORDS.items() if key in content), "stored detections")
            raise CaseError(f"{stored}: holds no {words} ({type(error).__name__}: {error}); run test again") from error


def _decode_places(content: Mapping[str, Any]) -> Points | Boxes | dict[str, float]:
    if "points" in content:
        positioned = [record for record in content["points"] if record["position"] is not None]
        positions = np.array([record["position"] for record in positioned], dtype=np.float64)
        return Points(positions, tuple(str(record["name"]) for record in positioned))
    if "numbers" in content:
        return {name: math.nan if value is None else float(value) for name, value in content["numbers"].items()}
    names, corners = tuple(content["names"]), np.array(content["places"], float)
    scores = np.array(content["confidences"], float)
    if content["kind"] == "points":
        return Points(corners, names, scores=scores)
    masks, areas = content.get("masks"), content.get("areas")
    runs = None if masks is None else tuple(np.array(mask, np.int64).reshape(-1, 2) for mask in masks)
    return Boxes(corners, names, scores, runs, None if areas is None else np.array(areas, float))

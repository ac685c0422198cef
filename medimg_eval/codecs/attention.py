"""Weights of tiles beside an answer, and where the tiles lie, small enough for the file of a run's records."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from medimg_eval.case import Array


class TilePlaces(NamedTuple):
    """Where the tiles of one slide lie.

    Attributes:
        corners: int64, (tile, 2), row and column of each tile's first pixel, in level-0 pixels.
        edge: of a tile, in level-0 pixels.
    """

    corners: Array
    edge: float


class Weighed(dict[str, float]):
    """Numbers of an answer by name, and how much each tile counted for it.

    Attributes:
        attention: float32, (tile,), summing to 1, in the order of the tiles; None where the model says none.
        places: where these tiles lie; None where that is not known, or they are of several slides.
        key: under which a record holds the numbers.
    """

    attention: Array | None = None
    places: TilePlaces | None = None
    key: ClassVar[str] = "values"

    def weighed_as(self, answer: object) -> Self:
        """The same with the weights and places of another answer, where that has any; returns itself."""
        self.attention, self.places = getattr(answer, "attention", None), getattr(answer, "places", None)
        return self

    def as_record(self) -> dict[str, Any]:
        """Record that a run keeps."""
        return {self.key: dict(self)} | attention_record(self.attention, self.places)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        found = cls(record[cls.key])
        found.attention, found.places = attention_of(record), places_of(record)
        return found


def attention_record(attention: Array | None, places: TilePlaces | None = None) -> dict[str, Any]:
    """JSON record of weights: `attention` with the largest, and all over it as float16 in base64; {} for None.

    With places also `places`: the edge, and corners as int32, deflated, in base64.

    Args:
        attention: (tile,), from 0.
        places: of the same tiles.
    """
    if attention is None:
        return {}
    largest = float(np.max(attention, initial=0.0))
    shares = np.asarray(attention, np.float64) / (largest or 1.0)
    kept = {"attention": {"largest": largest, "shares": _text(shares.astype("<f2").tobytes())}}
    if places is None:
        return kept
    corners = zlib.compress(np.ascontiguousarray(places.corners, "<i4").tobytes())
    return kept | {"places": {"edge": float(places.edge), "corners": _text(corners)}}


def attention_of(record: Mapping[str, Any]) -> Array | None:
    """Weights of tiles, float32, (tile,), as `attention_record` wrote them; None where there are none.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    kept = record.get("attention")
    if kept is None:
        return None
    shares: Array = np.frombuffer(base64.b64decode(kept["shares"], validate=True), "<f2").astype(np.float32)
    return shares * np.float32(kept["largest"])


def places_of(record: Mapping[str, Any]) -> TilePlaces | None:
    """Where the tiles lie whose weights `attention_of` gives; None where that is not known.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    kept = record.get("places")
    if kept is None:
        return None
    try:
        corners = zlib.decompress(base64.b64decode(kept["corners"], validate=True))
    except zlib.error as error:
        raise ValueError(f"places cannot be inflated ({error})") from error
    return TilePlaces(np.frombuffer(corners, "<i4").astype(np.int64).reshape(-1, 2), float(kept["edge"]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

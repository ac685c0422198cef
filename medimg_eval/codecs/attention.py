"""Weights of tiles beside an answer, and where the tiles lie, small enough for the file of a run's records."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from medimg_eval.case import Array


class TilePlaces(NamedTuple):
    """Positions of a slide's tiles, or of a picture's grid cells.

    Attributes:
        corners: (tile, 2), row and column of each tile's first pixel, in level-0 pixels; int64 of tiles.
        edge: of a tile, in level-0 pixels; of cells that are no squares their height and width.
        grid: of a grid its rows and columns of cells, and row and column of its first corner; None of tiles.
    """

    corners: Array
    edge: float | tuple[float, float]
    grid: tuple[int, int, float, float] | None = None

    @classmethod
    def of_grid(cls, rows: int, columns: int, box: tuple[float, float, float, float]) -> TilePlaces:
        """Grid cells, row by row, over a box of a picture."""
        top, left, bottom, right = box
        edge = (bottom - top) / rows, (right - left) / columns
        indices = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1).reshape(-1, 2)
        return cls(np.array([top, left]) + indices * np.array(edge), edge, (rows, columns, top, left))


class Weighed(dict[str, float]):
    """Named numbers of an answer with tile weights.

    Attributes:
        attention: float32, (tile,), from 0, in the order of the tiles, whatever the answer; None where the model says
            none. Of heads on bags it sums to 1.
        maps: name -> such weights for that number alone, as gradients give them.
        places: where these tiles lie; None where that is not known, or they are of several slides.
        key: under which a record holds the numbers.
    """

    attention: Array | None = None
    maps: Mapping[str, Array] = MappingProxyType({})
    places: TilePlaces | None = None
    key: ClassVar[str] = "values"

    def weighed_as(self, answer: object) -> Self:
        """Copy with another answer's weights and places, if any."""
        self.attention, self.places = getattr(answer, "attention", None), getattr(answer, "places", None)
        self.maps = getattr(answer, "maps", {})
        return self

    def map_of(self, name: str) -> Array | None:
        """Tile weights of a number, own or shared; None without."""
        return self.maps.get(name, self.attention)

    def as_record(self) -> dict[str, Any]:
        """Record that a run keeps."""
        return {self.key: dict(self)} | attention_record(self.attention, self.places, self.maps)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        answer = cls(record[cls.key])
        answer.attention, answer.places = attention_of(record), places_of(record)
        answer.maps = maps_of(record)
        return answer


def attention_record(
    attention: Array | None, places: TilePlaces | None = None, maps: Mapping[str, Array] = MappingProxyType({})
) -> dict[str, Any]:
    """JSON record of weights: largest, and all as base64 float16.

    `attention` is the key; {} for None.

    With places also `places`: of tiles the edge, and corners as int32, deflated, in base64; of a grid its cells, its
    first corner and the edges.

    Args:
        attention: (tile,), from 0.
        places: of the same tiles.
        maps: name -> (tile,), from 0, kept under `maps` alike.
    """
    packed: dict[str, Any] = {} if attention is None else {"attention": _pack_weights(attention)}
    if maps:
        packed["maps"] = {name: _pack_weights(map_) for name, map_ in maps.items()}
    if not packed or places is None:
        return packed
    if places.grid is not None:
        return packed | {"places": {"edge": list(np.broadcast_to(places.edge, 2).tolist()), "grid": list(places.grid)}}
    corners = zlib.compress(np.ascontiguousarray(places.corners, "<i4").tobytes())
    return packed | {"places": {"edge": float(np.max(places.edge)), "corners": _encode_base64(corners)}}


def attention_of(record: Mapping[str, Any]) -> Array | None:
    """Tile weights from `attention_record`, float32, (tile,); None without.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    packed = record.get("attention")
    return None if packed is None else _unpack_weights(packed)


def maps_of(record: Mapping[str, Any]) -> dict[str, Array]:
    """Name -> tile weights, float32, (tile,); {} without.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    return {str(name): _unpack_weights(packed_map) for name, packed_map in dict(record.get("maps", {})).items()}


def places_of(record: Mapping[str, Any]) -> TilePlaces | None:
    """Positions of the tiles of `attention_of`; None where unknown.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    packed = record.get("places")
    if packed is None:
        return None
    if "grid" in packed:
        rows, columns, top, left = packed["grid"]
        height, width = packed["edge"]
        return TilePlaces.of_grid(rows, columns, (top, left, top + rows * height, left + columns * width))
    try:
        corners = zlib.decompress(base64.b64decode(packed["corners"], validate=True))
    except zlib.error as error:
        raise ValueError(f"places cannot be inflated ({error})") from error
    return TilePlaces(np.frombuffer(corners, "<i4").astype(np.int64).reshape(-1, 2), float(packed["edge"]))


def _pack_weights(weights: Array) -> dict[str, Any]:
    largest = float(np.max(weights, initial=0.0))
    shares = np.asarray(weights, np.float64) / (largest or 1.0)
    return {"largest": largest, "shares": _encode_base64(shares.astype("<f2").tobytes())}


def _unpack_weights(kept: Mapping[str, Any]) -> Array:
    shares: Array = np.frombuffer(base64.b64decode(kept["shares"], validate=True), "<f2").astype(np.float32)
    return shares * np.float32(kept["largest"])


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

"""Features in the place of a case's images: bags of stores, ours and those of other programs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from medimg_eval.case import Geometry, GridAsRead, Image, Reference
from medimg_eval.codecs import TilePlaces
from medimg_eval.errors import CaseError, UserError, nearest
from medimg_eval.image import FEATURES
from medimg_eval.imaging.slides import Features, ForeignStore, Slide, open_store
from medimg_eval.store import FeatureStore


@dataclass(frozen=True, eq=False)
class TileFeatures(Image):
    """Tile features in place of an image, with positions if known."""

    places: TilePlaces | None = None


def as_image(found: Features) -> Image:
    """Features as image (1, tile, feature), float32, with facts of tiles."""
    facts = {"patch_size": found.patch_size, "magnification": found.magnification}
    known_facts = {name: f"{value:g}" for name, value in facts.items() if value is not None}
    edge = found.patch_size_level0
    tile_places = None if found.coordinates is None or edge is None else TilePlaces(found.coordinates, float(edge))
    attributes = {**FEATURES, **known_facts}
    return TileFeatures(
        found.features[None], np.eye(4), modality="SM", units="pixel", attributes=attributes, places=tile_places
    )


def stored_bag(path: Path, name: str, kind: str = "", magnification: float | None = None) -> Reference[Image]:
    """Where the features of one bag are read from.

    Args:
        path: folder of the store.
        name: of the bag; in a store of `embed` the id of a case.
        kind: whose layout the folder has; found by what lies there when empty.
        magnification: that the features must be of; None takes any.
    """
    if not kind and (path / "index.csv").is_file():
        keys = _read_case_keys(path)
        if name not in keys:
            why = f"{path}: holds no features of case {name!r}{nearest(name, keys)}; compute them by `embed`"
            return NoFeatures(why, (path / name,))
        return StoredFeatures(path, keys[name], (path / "features.npy",))
    return ForeignBag(path, name, kind, magnification)


@dataclass(frozen=True)
class NoFeatures:
    """Placeholder for missing features, failing its case alone with `why`.

    `why` is a sentence.
    """

    why: str
    files: tuple[Path, ...] = ()

    def read(self) -> Image:
        """Raises CaseError."""
        raise CaseError(self.why)

    def geometry(self) -> Geometry:
        """Raises CaseError."""
        raise CaseError(self.why)


@dataclass(frozen=True)
class ForeignBag(GridAsRead):
    """Features of a bag in another program's store, read when they are needed.

    Attributes:
        path: folder of the store.
        name: of the bag.
        kind: whose layout the folder has; found by what lies there when empty.
        magnification: that they must be of; None takes any.
    """

    path: Path
    name: str
    kind: str = ""
    magnification: float | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Source files, features first; a missing bag has one missing."""
        return tuple(_open_foreign_store(self.path, self.kind).files.get(self.name, (self.path / self.name,)))

    def bag(self) -> Features:
        """Features and what is known of their tiles; raises CaseError naming the file."""
        features = _open_foreign_store(self.path, self.kind).read(self.name)
        wanted, has = self.magnification, features.magnification
        if wanted is not None and has is not None and has != wanted:
            raise CaseError(f"{self.files[0]}: holds features of {has:g}x, the task is about {wanted:g}x")
        return features

    def read(self) -> Image:
        """Returns (1, tile, feature); raises CaseError naming the file."""
        return as_image(self.bag())


@dataclass(frozen=True)
class StoredFeatures:
    """Features in the place of a case's images, out of a store.

    Attributes:
        store: the folder.
        keys: of the case's pieces, whose rows follow each other.
        files: of the images, which identify the data.
    """

    store: Path
    keys: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def read(self) -> Image:
        """Returns (1, row, feature), float32; raises CaseError where they are not there."""
        return as_image(self.bag())

    def bag(self) -> Features:
        """Features, float32, and where their tiles lie; raises what `read` raises."""
        store = _open_feature_store(self.store)
        rows = np.array(store.matrix(self.keys), np.float32)
        if not len(rows):
            raise CaseError(f"{', '.join(map(str, self.files))}: has no tiles with tissue, so no features")
        coordinates = [store.coordinates(key) for key in self.keys]
        known_coordinates = [coordinate for coordinate in coordinates if coordinate is not None]
        if (
            len(known_coordinates) < len(coordinates) or len(coordinates) > 1
        ):  # places in several slides are no places of one
            return Features(
                rows, np.concatenate(known_coordinates) if len(known_coordinates) == len(coordinates) else None
            )
        return Features(rows, known_coordinates[0], patch_size_level0=self._edge(store))

    def _edge(self, store: FeatureStore) -> float | None:
        """Tile edge in level-0 pixels; None without store or slide data."""
        plan = store.made_by.get("shown", {}).get("tiles", {})
        if not plan or plan.get("overlap") or not self.files:
            return None
        try:
            with Slide(self.files[0]) as slide:
                return float(plan["size"]) * slide.scale(plan["um_per_px"])[0]
        except UserError:
            return None

    def geometry(self) -> Geometry:
        """Rows and features."""
        store = _open_feature_store(self.store)
        return Geometry((sum(store.counts(self.keys)), store.length), np.eye(4), units="pixel")


@lru_cache(8)
def _open_feature_store(path: Path) -> FeatureStore:
    return FeatureStore.open(path)


@lru_cache(8)
def _open_foreign_store(path: Path, kind: str) -> ForeignStore:
    return open_store(path, kind)


@lru_cache(8)
def _read_case_keys(path: Path) -> dict[str, tuple[str, ...]]:
    """Case -> keys, of the tables that `embed` wrote."""
    keys_by_case: dict[str, list[str]] = {}
    for table in sorted((path / "cases").glob("*.csv")):
        with table.open(encoding="utf-8", newline="") as stream:
            own: dict[str, list[str]] = {}
            for row in csv.DictReader(stream):
                own.setdefault(row["case"], []).append(row["key"])
        keys_by_case |= own
    return {case: tuple(keys) for case, keys in keys_by_case.items()}

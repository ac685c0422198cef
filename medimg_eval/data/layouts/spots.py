"""Spots of spatial transcriptomics as HEST's benchmark has them: tiles in HDF5, expression of genes in .h5ad."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Geometry, Image, OneFile, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.records import Entry, Row, below
from medimg_eval.data.tables import read_table
from medimg_eval.errors import CaseError, MissingDataError, UserError, nearest
from medimg_eval.image import FEATURES
from medimg_eval.imaging.slides import Patches, open_store, read_patches


@dataclass(kw_only=True)
class Spots(FolderLayout):
    """Case per spot `SAMPLE/BARCODE`: tile or its features.

    Rows have the columns of the sample's line, and `barcode`; spots come in the order of the sample's file.

    Args:
        table: tables of samples below the root, which may hold `*`; a sample that several lines name is read once.
        sample: the column of the sample's name.
        patches: the column of its tiles, or a pattern: HDF5 with `img` and `barcode`.
        features: a pattern of HDF5 with `embeddings` and `barcodes`, as HEST's program leaves them, such as
            `emb/uni_v1/{sample_id}.h5`; the tiles are not read then.
    """

    table: str = "splits/*.csv"
    sample: str = "sample_id"
    patches: str = "patches_path"
    features: str = ""
    modality: str = "SM"

    def entries(self, root: Path) -> list[Entry]:
        """Spots by sample name; UserError where a sample's lines differ."""
        samples: dict[str, Row] = {}
        tables = sorted(root.glob(self.table))
        if not tables:
            raise MissingDataError(f"{root / self.table}: there is no such table")
        for row in (row for table in tables for row in read_table(table)):
            name = row.text(self.sample)
            before = samples.setdefault(name, row)
            if row.fill(self.patches) != before.fill(self.patches):
                raise row.error(f"sample {name!r} has other tiles than in {before.path}, {before.place}")
        return [entry for name in sorted(samples) for entry in self._spots(root, name, samples[name])]

    def _spots(self, root: Path, sample: str, row: Row) -> Iterator[Entry]:
        path = below(root, row.fill(self.features or self.patches))
        try:
            spots = _cached_features(path) if self.features else _cached_patches(path)
        except CaseError as error:
            raise UserError(str(error)) from error
        twice = len(spots.barcodes) - len(set(spots.barcodes))
        if twice:
            raise UserError(f"{path}: {twice} spots have the barcode of another")
        entry = Entry(sample, root, (row,), attributes={"sample": sample})
        patient = self.patient_of(entry)
        for index, barcode in enumerate(spots.barcodes):
            image: Reference[Image]
            if isinstance(spots, Patches):
                image = SpotTile(path, index, spots.size, self.modality)
            else:
                image = SpotFeatures(path, barcode, spots.values.shape[1])
            own = Row(row.path, row.place, {**row.values, "barcode": barcode})
            yield replace(entry, id=f"{sample}/{barcode}", rows=(own,), images=(image,), patient=patient)


@dataclass(frozen=True)
class SpotTile(OneFile):
    """Tile `place` of a file, `size` pixels square."""

    place: int
    size: tuple[int, int]
    modality: str = "SM"

    def read(self) -> Image:
        """Returns (3, row, column), uint8; raises CaseError naming the file."""
        tile = _cached_patches(self.path).read(self.place, self.place + 1)[0]
        return Image(tile, np.eye(4), modality=self.modality, units="pixel")

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return Geometry(self.size, np.eye(4), "pixel")


@dataclass(frozen=True)
class SpotFeatures(OneFile):
    """The features of a spot, found by its barcode."""

    barcode: str
    length: int

    def read(self) -> Image:
        """Returns (1, 1, feature), float32; raises CaseError naming the file."""
        features = _cached_features(self.path)
        if self.barcode not in features.places:
            raise CaseError(f"{self.path}: has no features of {self.barcode!r}{nearest(self.barcode, features.places)}")
        vector = features.values[features.places[self.barcode]]
        return Image(vector[None, None], np.eye(4), units="pixel", attributes=dict(FEATURES))

    def geometry(self) -> Geometry:
        """One tile, and features."""
        return Geometry((1, self.length), np.eye(4), "pixel")


@dataclass(frozen=True, eq=False)
class _Embedded:
    """A sample's features: barcodes, positions, float32 (spot, feature)."""

    barcodes: tuple[str, ...]
    places: dict[str, int]
    values: Array


def _cached_patches(path: Path) -> Patches:
    return _read_patches(path, _file_stamp(path))


def _cached_features(path: Path) -> _Embedded:
    return _read_features(path, _file_stamp(path))


def _file_stamp(path: Path) -> tuple[int, int]:
    """Stamp that tells a file from the one that lay there before."""
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(64)
def _read_patches(path: Path, _: tuple[int, int]) -> Patches:
    return read_patches(path)


@lru_cache(8)
def _read_features(path: Path, _: tuple[int, int]) -> _Embedded:
    try:
        features = open_store(path.parent, "hest").read(path.stem)
    except UserError as error:
        raise CaseError(str(error)) from error
    return _Embedded(features.ids, {name: index for index, name in enumerate(features.ids)}, features.features)

"""HEST's files of spatial transcriptomics: patches in HDF5, and gene expression in .h5ad, read by h5py alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.matrices import anndata_names, anndata_values
from medimg_eval.imaging.slides.features import as_texts
from medimg_eval.imaging.slides.tiles import as_coordinates
from medimg_eval.imaging.voxel_data import check_own

_DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError)


@dataclass(frozen=True, eq=False)
class Patches:
    """Tiles around a sample's spots in HDF5, read on demand.

    Attributes:
        path: the file.
        barcodes: of the spots, in order.
        coordinates: int64, (tile, 2), row and column at full resolution as the file says; None where it does not.
        size: rows and columns of a tile.
    """

    path: Path
    barcodes: tuple[str, ...]
    coordinates: Array | None
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.barcodes)

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Reads neighbouring tiles, uint8, (tile, 3, row, column); CaseError names the file."""
        import h5py

        with CaseError.about(self.path, "cannot be read", *_DAMAGE, mend="copy it again"), h5py.File(self.path) as file:
            pixels: Array = np.asarray(check_own(self.path, file["img"])[start:stop])
        return np.ascontiguousarray(np.moveaxis(pixels, 3, 1))


@dataclass(frozen=True, eq=False)
class Expression:
    """Expression of genes in the spots of one sample.

    Attributes:
        values: float32, (spot, gene), as stored: HEST's are counts, of which its benchmark takes log1p.
        barcodes: of the spots, in the order of the rows.
        genes: in the order of the columns.
        coordinates: float64, (spot, 2), row and column at full resolution; None where the file does not say.
    """

    values: Array
    barcodes: tuple[str, ...]
    genes: tuple[str, ...]
    coordinates: Array | None = None

    def of(self, barcodes: Sequence[str]) -> Array:
        """Rows of spots, float32, (spot, gene); CaseError names an absent one."""
        rows = {name: row for row, name in enumerate(self.barcodes)}
        missing = next((name for name in barcodes if name not in rows), None)
        if missing is not None:
            raise CaseError(f"expression holds no spot {missing!r}; patches and expression are of different samples")
        rows_: Array = self.values[[rows[name] for name in barcodes]]
        return rows_


def read_patches(path: str | Path) -> Patches:
    """Opens HEST patches: `img`, `barcode` or `barcodes`, and `coords`.

    `img` (tile, row, column, 3), `coords` (x, y); of one sample.

    Raises:
        CaseError: the file is missing or damaged, holds no patches, or patches and barcodes differ in number.
    """
    import h5py

    path = _check_file(path)
    with CaseError.about(path, "cannot be read as patches", *_DAMAGE, mend="copy it again"), h5py.File(path) as file:
        name = next((key for key in ("barcode", "barcodes") if key in file), None)
        shape: tuple[int, ...] = file["img"].shape if "img" in file else ()
        kind = str(file["img"].dtype) if "img" in file else ""
        ids = () if name is None else as_texts(check_own(path, file[name])[:])
        coordinates = np.asarray(check_own(path, file["coords"])) if "coords" in file else None
    if len(shape) != 4 or shape[3] != 3 or kind != "uint8":
        raise CaseError(
            f"{path}: expected patches `img` (tile, row, column, 3) of uint8, got {shape} of {kind or 'none'}"
        )
    if not shape[0]:
        raise CaseError(f"{path}: holds no patches; leave the sample out")
    ids = ids or tuple(map(str, range(shape[0])))
    if len(ids) != shape[0]:
        raise CaseError(f"{path}: holds {shape[0]} patches, but {len(ids)} barcodes")
    return Patches(path, ids, None if coordinates is None else as_coordinates(coordinates, path), (shape[1], shape[2]))


def read_expression(path: str | Path, genes: Sequence[str] = ()) -> Expression:
    """Reads .h5ad: dense or sparse `X`, names, `obsm/spatial`.

    Args:
        path: the file.
        genes: the columns wanted, in this order; all of them when empty.

    Raises:
        CaseError: the file is missing or damaged, or lacks a gene.
    """
    import h5py

    path = _check_file(path)
    with CaseError.about(path, "cannot be read as .h5ad", *_DAMAGE, mend="copy it again"), h5py.File(path) as file:
        barcodes, every = tuple(anndata_names(path, file["obs"])), tuple(anndata_names(path, file["var"]))
        where = {name: column for column, name in enumerate(every)}
        missing = [name for name in genes if name not in where]
        columns = None if not genes or missing else [where[name] for name in genes]
        values = np.zeros((0, 0)) if missing else anndata_values(path, file["X"], (len(barcodes), len(every)), columns)
        spatial = file["obsm/spatial"][:] if "obsm/spatial" in file else None
    if missing:
        raise CaseError(
            f"{path}: has no gene {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}, {len(missing)} in all"
        )
    if values.shape[0] != len(barcodes):
        raise CaseError(f"{path}: X has {values.shape[0]} rows, but {len(barcodes)} spots are named")
    coordinates = None if spatial is None else np.asarray(spatial, np.float64)[:, 1::-1]
    return Expression(values.astype(np.float32), barcodes, tuple(genes) or every, coordinates)


def _check_file(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    return path

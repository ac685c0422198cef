"""Folders of features as the field's programs leave them, a bag at a time: TRIDENT, CLAM, eva, HEST and others.

A bag is what features belong to: a slide, a patient, a picture. Its id is the name of its file without the last ending,
since names of TCGA hold dots; ids stay texts where they look like numbers. No pickle is ever run.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.imaging.slides.features import (
    COORDINATES,
    FEATURES,
    Features,
    as_texts,
    checked,
    read_array,
    read_arrays,
    read_features,
    read_tensors,
)

HDF5 = (".h5", ".hdf5")
SLIDES = (".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".dcm")
"""Endings of slides, which Owkin's folders keep in their names."""

PARTS = ("train", "val", "test")
OWN = ("features", "labels", "coords", "inst_labels")
"""Folders of torchmil, which are also the names of the arrays in its HDF5 files."""

BARCODES = ("barcode", "barcodes")
KEPT = 4
"""Files of many bags that stay in memory."""


@dataclass(frozen=True)
class ForeignStore:
    """A folder of features that another program wrote.

    Attributes:
        path: the folder, as it was named.
        kind: whose layout it has, a key of `KINDS`.
        files: bag id -> its files, of which the first holds the features; in order of the ids.
        expected: ids of bags that the folder's own lists or coordinates name, in order; empty where nothing says.
    """

    path: Path
    kind: str
    files: Mapping[str, Sequence[Path]]
    expected: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Bags that ought to be there and are not."""
        return [name for name in self.expected if name not in self.files]

    def read(self, name: str) -> Features:
        """Reads one bag.

        Raises:
            CaseError: it is not there, has no tiles, or its file is damaged or holds NaN; the message names the file.
        """
        if name not in self.files:
            why = ": it has coordinates, and no features" if name in self.expected else nearest(name, self.files)
            raise CaseError(f"{self.path}: holds no features of {name!r}{why}")
        return _READERS[self.kind](name, self.files[name])


def open_store(path: str | Path, kind: str = "") -> ForeignStore:
    """Opens a folder of features.

    Args:
        path: the folder of one encoder's features; or one above, where that leaves no choice.
        kind: whose layout it has, a key of `KINDS`; found by what lies in the folder when empty.

    Raises:
        UsageError: there is no such kind.
        UserError: the folder is missing, or holds no features of that kind, or those of several encoders.
    """
    root = Path(path).expanduser()
    if kind:
        UsageError.refuse_invalid("kind of feature store", KINDS, kind)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; name the folder that holds the features")
    for name in (kind,) if kind else KINDS:
        files = _FINDERS[name](root)
        if files:
            return ForeignStore(root, name, dict(sorted(files.items())), _expected_settings(name, root))
    what = KINDS[kind] if kind else f"one of these: {', '.join(KINDS)}"
    raise UserError(f"{root}: holds no features in the layout of {what}; name the folder of one encoder's features")


KINDS: Mapping[str, str] = {
    "eva": "eva (manifest.csv, and a .pt for each tile or part of a slide)",
    "patho_bench": "Patho-Bench (by_case_id or by_slide_id, a vector in each .h5)",
    "torchmil": "torchmil (folders features, labels, coords, inst_labels)",
    "gpfm": "GPFM (pt_files/MODEL/SLIDE.pt; or train.pt, val.pt, test.pt)",
    "clam": "CLAM (h5_files, pt_files)",
    "owkin": "Owkin (SLIDE/features.npy; or tile_features.npy)",
    "rate_evals": "RATE-Evals (embeddings/SPLIT/ACCESSION.npz)",
    "hest": "HEST (SAMPLE.h5 with embeddings and barcodes)",
    "trident": "TRIDENT (features_ENCODER/SLIDE.h5)",
}
"""Kind -> what its folders look like; in the order in which they are told apart."""

Files = dict[str, Sequence[Path]]


def _files_by_stem(folder: Path, endings: Sequence[str], cut: str = "") -> Files:
    """Files by stem, without a final `cut`."""
    if not folder.is_dir():
        return {}
    files = (p for p in folder.iterdir() if p.suffix.lower() in endings and not p.name.startswith(".") and p.is_file())
    return {path.stem.removesuffix(cut): (path,) for path in files}


def _only_folder(folders: Sequence[Path], root: Path) -> Path | None:
    """The one folder with features; raises UserError where there are several."""
    if len(folders) > 1:
        names = ", ".join(sorted(str(folder.relative_to(root)) for folder in folders)[:5])
        raise UserError(f"{root}: holds features of several encoders ({names}); name the folder of one")
    return folders[0] if folders else None


def _trident_folder(root: Path) -> Path | None:
    if root.name.startswith(("features_", "slide_features_")):
        return root
    folders = [folder for pattern in ("features_*", "*/features_*") for folder in root.glob(pattern) if folder.is_dir()]
    pooled = [folder for pattern in ("slide_features_*", "*/slide_features_*") for folder in root.glob(pattern)]
    return _only_folder(folders or pooled, root)


def _trident_files(root: Path) -> Files:
    folder = _trident_folder(root)
    return _files_by_stem(folder or root, HDF5)


def _clam_files(root: Path) -> Files:
    """Feature files, HDF5 before .pt, with coordinates if any."""
    folders = {root / name for name in ("h5_files", "pt_files")}
    if not any(folder.is_dir() for folder in folders):
        if root.name == "pt_files" or (not _files_by_stem(root, HDF5) and _files_by_stem(root, (".pt",))):
            return _with_coordinates(_files_by_stem(root, (".pt",)), root.parent)
        return {}
    both = _files_by_stem(root / "pt_files", (".pt",)) | _files_by_stem(root / "h5_files", HDF5)
    return _with_coordinates(both, root)


def _with_coordinates(files: Files, root: Path) -> Files:
    coordinate_files = _files_by_stem(root / "patches", HDF5) or _files_by_stem(root.parent / "patches", HDF5)
    return {name: (*paths, *coordinate_files.get(name, ())) for name, paths in files.items()}


def _patho_bench(root: Path) -> Files:
    names = ("by_case_id", "by_slide_id")
    folder = (
        root if root.name in names else _only_folder([root / name for name in names if (root / name).is_dir()], root)
    )
    return _files_by_stem(folder, HDF5) if folder is not None else {}


def _hest_files(root: Path) -> Files:
    files = _files_by_stem(root, HDF5)
    for path, *_ in files.values():
        try:
            held, _ = read_arrays(path, ())
        except CaseError:
            continue  # told when it is read
        return files if {"embeddings", *BARCODES} & held.keys() and "img" not in held else {}
    return {}


def _eva_files(root: Path) -> Files:
    if not (root / "manifest.csv").is_file():
        return {}
    return {name: [path for path, _ in rows] for name, rows in _eva_rows(root / "manifest.csv").items()}


@lru_cache(KEPT)
def _eva_rows(manifest: Path) -> dict[str, list[tuple[Path, Mapping[str, str]]]]:
    """Manifest rows by slide or tile, with files."""
    with manifest.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = {"origin", "embeddings"} - set(reader.fieldnames or ())
        if missing:
            raise UserError(f"{manifest}: has no column {', '.join(sorted(missing))}; expected eva's manifest")
        key = "wsi_id" if "wsi_id" in (reader.fieldnames or ()) else "origin"
        rows_by_origin: dict[str, list[tuple[Path, Mapping[str, str]]]] = {}
        for row in reader:
            rows_by_origin.setdefault(row[key], []).append((manifest.parent / row["embeddings"], row))
    return rows_by_origin


def _owkin_files(root: Path) -> Files:
    if (root / "tile_features.npy").is_file():
        ids = as_texts(read_array(root / "tile_ids.npy"))
        return dict.fromkeys(ids, (root / "tile_features.npy", root / "tile_ids.npy"))
    nested: Files = {_slide_name(path.parent.name): (path,) for path in root.glob("*/features.npy")}
    return nested or {_slide_name(name): paths for name, paths in _files_by_stem(root, (".npy",)).items()}


def _slide_name(name: str) -> str:
    """The name of a slide's file without its ending, and with its dots."""
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in SLIDES else name


def _gpfm_files(root: Path) -> Files:
    split = {name: (root / f"{name}.pt",) for name in PARTS if (root / f"{name}.pt").is_file()}
    if "train" in split or "test" in split:
        return dict(split)
    models = [folder for folder in root.glob("pt_files/*") if folder.is_dir()]
    if root.parent.name == "pt_files":
        models = [root]
    folder = _only_folder(models, root)
    return {} if folder is None else _files_by_stem(folder, (".pt",))


def _torchmil_files(root: Path) -> Files:
    if not any((root / name).is_dir() for name in OWN[1:]):
        return {}
    return _files_by_stem(root / "features", (".npy", *HDF5))


def _rate_evals(root: Path) -> Files:
    files = sorted({path for pattern in ("*.npz", "*/*.npz", "embeddings/*/*.npz") for path in root.glob(pattern)})
    folders = {path.parent for path in files}
    if len(folders) > 1:  # one for each split
        return {f"{path.parent.name}/{path.stem}": (path,) for path in files}
    return {path.stem: (path,) for path in files}


def _expected_settings(kind: str, root: Path) -> tuple[str, ...]:
    """Settings that coordinates were made of, by TRIDENT or CLAM."""
    if kind == "trident":
        folder = (_trident_folder(root) or root).parent / "patches"
        return tuple(sorted(_files_by_stem(folder, HDF5, "_patches")))
    if kind == "clam":
        return tuple(sorted(_files_by_stem(root / "patches", HDF5) or _files_by_stem(root.parent / "patches", HDF5)))
    return ()


def _read_hdf5(name: str, files: Sequence[Path]) -> Features:
    """Features and places of one HDF5 file, with what its attributes say."""
    path = files[0]
    held, attributes = read_arrays(path, (*FEATURES, *COORDINATES, *BARCODES))
    features = next((held[key] for key in FEATURES if held.get(key) is not None), None)
    if features is None:
        raise CaseError(f"{path}: expected features as `{FEATURES[0]}`, found {', '.join(held) or 'nothing'}")
    coordinates = next((held[key] for key in COORDINATES if held.get(key) is not None), None)
    if coordinates is not None and features.ndim == 1 and len(coordinates) != 1:
        coordinates = None  # one vector for the slide
    ids = next((as_texts(held[key]) for key in BARCODES if held.get(key) is not None), ())
    features_ = checked(path, _with_tiles(features, path), coordinates)
    if ids and len(ids) != len(features_.features):
        raise CaseError(f"{path}: holds features of {len(features_.features)} tiles, but {len(ids)} barcodes")
    return _describe_features(replace(features_, ids=ids), attributes)


def _with_tiles(features: Array, path: Path) -> Array:
    if not features.shape[0] or not features.size:
        raise CaseError(
            f"{path}: the slide has no tiles, its features have shape {features.shape}: no tissue was found on it; "
            "look at its segmentation, or leave the case out"
        )
    return features


def _describe_features(found: Features, said: Mapping[str, Any]) -> Features:
    """With the facts of TRIDENT's and CLAM's attributes in their fields."""
    remaining = {key: value for key, value in said.items() if key not in ("savetodir", "save_path")}
    size, large = said.get("patch_size"), said.get("patch_size_level0")
    factor = said.get("downsample")
    if large is None and size is not None and factor is not None:  # CLAM's, along x and y
        factor = factor[0] if isinstance(factor, list) else factor
        large = float(size) * float(factor) * float(said.get("custom_downsample") or 1)
    return replace(
        found,
        patch_size=None if size is None else int(size),
        patch_size_level0=None if large is None else float(large),
        magnification=_as_number(said.get("target_magnification")),
        attributes=remaining,
    )


def _as_number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def _read_clam(name: str, files: Sequence[Path]) -> Features:
    path, *further = files
    features = _read_hdf5(name, files) if path.suffix.lower() in HDF5 else _read_pt(name, files)
    if not further:
        return features
    held, attributes = read_arrays(further[0], COORDINATES)
    where = next((array for array in held.values() if array is not None), None)
    if features.coordinates is None and where is not None:
        if len(where) != len(features.features):
            raise CaseError(
                f"{path}: holds features of {len(features.features)} tiles, but {further[0]} places of {len(where)}; "
                "they are of different runs"
            )
        features = checked(path, features.features, where)
    return _describe_features(features, {**attributes, **features.attributes})


def _read_pt(name: str, files: Sequence[Path]) -> Features:
    content = read_tensors(files[0])
    if isinstance(content, Mapping) and "feature" in content:  # GPFM's regions, with their labels
        labels = np.asarray(content.get("label", ())).ravel()
        features = checked(files[0], _with_tiles(np.asarray(content["feature"]), files[0]))
        if len(labels) not in (0, len(features.features)):
            raise CaseError(f"{files[0]}: holds {len(features.features)} features, but {len(labels)} labels")
        return replace(features, labels=labels if len(labels) else None)
    if isinstance(content, np.ndarray) and not content.size:
        _with_tiles(content.reshape(len(content), -1) if content.ndim else content[None], files[0])
    return read_features(files[0])


def _read_eva(name: str, files: Sequence[Path]) -> Features:
    """Features of a slide or tile, in manifest order."""
    manifest = next(path for folder in files[0].parents if (path := folder / "manifest.csv").is_file())
    rows = _eva_rows(manifest)[name]
    parts = [part for path, _ in rows for part in _eva_parts(path)]
    lengths = {part.shape[1] for part in parts}
    if len(lengths) > 1:
        raise CaseError(
            f"{manifest}: features of {name!r} have lengths {sorted(lengths)}; they are of several encoders"
        )
    features = checked(files[0], np.concatenate(parts))
    facts = {key: value for key, value in rows[0][1].items() if key not in ("embeddings", "target")}
    targets = [row["target"] for _, row in rows if "target" in row]
    label = targets[:1] if len(set(targets)) == 1 else targets
    return replace(features, labels=np.array(label) if label else None, attributes=facts)


def _eva_parts(path: Path) -> Iterator[Array]:
    content = read_tensors(path)
    for part in content if isinstance(content, list) else [content]:
        array = np.asarray(part)
        if array.dtype.kind not in "fiu" or not 1 <= array.ndim <= 3:
            raise CaseError(f"{path}: expected features of a tile, got {array.shape} of {array.dtype}")
        yield array.reshape(-1, array.shape[-1])


def _read_owkin(name: str, files: Sequence[Path]) -> Features:
    """Level, x, y, then features; positions in deep-zoom tiles."""
    path = files[0]
    if path.name == "tile_features.npy":
        features, row = _owkin_tiles(path, files[1], name)
        return replace(checked(path, features[row][None]), ids=(name,))
    stored = read_array(path)
    if stored.ndim != 2 or stored.shape[1] < 4:
        raise CaseError(f"{path}: expected level, x, y and features in columns, got shape {stored.shape}")
    features_ = checked(path, _with_tiles(stored, path), coordinate_columns=3)
    return replace(
        features_, attributes={"levels": sorted(set(stored[:, 0].astype(int).tolist())), "counted_in": "tiles"}
    )


def _owkin_tiles(path: Path, ids: Path, name: str) -> tuple[Array, int]:
    features, rows = _owkin_index(path, ids)
    return features, rows[name]


@lru_cache(KEPT)
def _owkin_index(path: Path, ids: Path) -> tuple[Array, dict[str, int]]:
    names = as_texts(read_array(ids))
    features: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(features) != len(names):
        raise CaseError(f"{path}: holds {len(features)} tiles, but {ids} has {len(names)} ids")
    return features, {name: row for row, name in enumerate(names)}


def _read_torchmil(name: str, files: Sequence[Path]) -> Features:
    path = files[0]
    root, ending = path.parent.parent, path.suffix
    features = _torchmil_array(path, "features")
    features = features.reshape(len(features), -1) if features.ndim > 2 else features
    arrays = {
        key: _torchmil_array(root / key / f"{name}{ending}", key)
        for key in OWN[1:]
        if (root / key / f"{name}{ending}").is_file()
    }
    features_ = checked(path, _with_tiles(features, path), arrays.get("coords"))
    labels = arrays.get("inst_labels", arrays.get("labels"))
    facts = {"label": arrays["labels"].ravel().tolist()} if "labels" in arrays else {}
    return replace(features_, labels=None if labels is None else labels.ravel(), attributes=facts)


def _torchmil_array(path: Path, key: str) -> Array:
    if path.suffix == ".npy":
        return read_array(path)
    held, _ = read_arrays(path, (key,))
    if held.get(key) is None:
        raise CaseError(f"{path}: expected an array `{key}`, found {', '.join(held) or 'nothing'}")
    return np.asarray(held[key])


def _read_rate_evals(name: str, files: Sequence[Path]) -> Features:
    """Vector of an accession, flattened as by its authors."""
    path = files[0]
    damage = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
    with CaseError.about(path, "cannot be read as .npz", *damage, mend="extract it again"):
        held: Any = np.load(path, allow_pickle=False)
        names = list(held.files)
        stored = held["embedding"] if "embedding" in names else None
        held.close()
    if stored is None:
        raise CaseError(f"{path}: expected `embedding`, found {', '.join(names) or 'nothing'}")
    return checked(path, _with_tiles(stored.reshape(1, -1), path))


_FINDERS: Mapping[str, Callable[[Path], Files]] = {
    "eva": _eva_files,
    "patho_bench": _patho_bench,
    "torchmil": _torchmil_files,
    "gpfm": _gpfm_files,
    "clam": _clam_files,
    "owkin": _owkin_files,
    "rate_evals": _rate_evals,
    "hest": _hest_files,
    "trident": _trident_files,
}

_READERS: Mapping[str, Callable[[str, Sequence[Path]], Features]] = {
    "eva": _read_eva,
    "patho_bench": _read_hdf5,
    "torchmil": _read_torchmil,
    "gpfm": _read_pt,
    "clam": _read_clam,
    "owkin": _read_owkin,
    "rate_evals": _read_rate_evals,
    "hest": _read_hdf5,
    "trident": _read_hdf5,
}

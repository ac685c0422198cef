"""Folders of features in the layouts of the programs that write them; values follow from the bag's number."""

import csv
import json

import h5py
import numpy as np

TILES, LENGTH = 5, 3
SLIDES = ("TCGA-A1.9F3C", "007")
"""A name with a dot, and one that looks like a number."""


def values(number, tiles=TILES):
    return (np.arange(tiles * LENGTH, dtype=np.float32).reshape(tiles, LENGTH) + 100 * number) / 8


def places(tiles=TILES):
    """x, y: so that swapped axes are seen."""
    return np.stack([np.arange(tiles) * 512, np.arange(tiles) * 0 + 1024], axis=1)


ROWS_COLUMNS = places()[:, ::-1]


def trident(root, slides=SLIDES):
    """A job folder: patches of three slides, features of two, and one slide without tissue."""
    job = root / "20x_256px_0px_overlap"
    (job / "features_uni").mkdir(parents=True)
    (job / "patches").mkdir()
    about = {
        "patch_size": 256,
        "patch_size_level0": 512,
        "level0_magnification": 40,
        "target_magnification": 20,
        "overlap": 0,
        "savetodir": "None",
        "level0_width": 4096,
        "custom": json.dumps({"a": 1}),
    }
    for number, name in enumerate(slides):
        with h5py.File(job / "features_uni" / f"{name}.h5", "w") as file:
            tiles = TILES * 40  # enough chunks of one row for the quick way
            file.create_dataset("features", data=values(number, tiles), chunks=(1, LENGTH), maxshape=(None, LENGTH))
            file["features"].attrs["encoder"] = "uni"
            file["coords"] = places(tiles)
            file["coords"].attrs.update(about)
    with h5py.File(job / "features_uni" / "empty.h5", "w") as file:
        file["features"], file["coords"] = np.zeros((0,), np.float32), np.zeros((0, 2), np.int64)
    (job / "features_uni" / "007.h5.lock").touch()
    for name in (*slides, "empty", "left.over"):
        with h5py.File(job / "patches" / f"{name}_patches.h5", "w") as file:
            file["coords"] = places()
    return root


def clam(root):
    import torch

    (root / "pt_files").mkdir(parents=True)
    (root / "patches").mkdir()
    for number, name in enumerate(SLIDES):
        torch.save(torch.from_numpy(values(number)), root / "pt_files" / f"{name}.pt")
    with h5py.File(root / "patches" / f"{SLIDES[0]}.h5", "w") as file:
        file["coords"] = places()
        file["coords"].attrs.update({"patch_size": 256, "patch_level": 1, "downsample": np.array([4.0, 4.0])})
    return root


def patho_bench(root):
    (root / "by_case_id").mkdir(parents=True)
    for number, name in enumerate(SLIDES):
        with h5py.File(root / "by_case_id" / f"{name}.h5", "w") as file:
            file["features"] = values(number)[0]
    return root


def hest(root):
    root.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(SLIDES):
        with h5py.File(root / f"{name}.h5", "w") as file:
            file["embeddings"], file["coords"] = values(number), places()
            file["barcodes"] = np.array([[f"s{row}-1".encode()] for row in range(TILES)])
    return root


def eva(root):
    import torch

    root.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, name in enumerate(SLIDES):
        for tile, vector in enumerate(torch.from_numpy(values(number))):
            file = f"{name}-{tile}.pt"
            torch.save([vector, vector[None], vector][: 1 + (tile == 0)] if tile < 2 else vector[None], root / file)
            rows.append([f"{name}/{tile}.png", file, number, "train", name])
    with (root / "manifest.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["origin", "embeddings", "target", "split", "wsi_id"], *rows])
    return root


def owkin(root):
    for number, name in enumerate((f"{SLIDES[0]}.svs", SLIDES[1])):
        (root / name).mkdir(parents=True)
        level = np.full((TILES, 1), 16)
        stored = np.concatenate([level, places() // 512, values(number)], axis=1).astype(np.float32)
        np.save(root / name / "features.npy", stored)
    return root


def owkin_tiles(root):
    root.mkdir(parents=True)
    np.save(root / "tile_ids.npy", np.array(SLIDES))
    np.save(root / "tile_features.npy", values(0)[:2])
    return root


def gpfm(root):
    import torch

    (root / "pt_files" / "gpfm").mkdir(parents=True)
    for number, name in enumerate(SLIDES):
        torch.save(torch.from_numpy(values(number)), root / "pt_files" / "gpfm" / f"{name}.pt")
    return root


def gpfm_regions(root):
    import torch

    root.mkdir(parents=True)
    for number, name in enumerate(("train", "test")):
        labels = torch.arange(TILES) % 2
        torch.save({"feature": torch.from_numpy(values(number)), "label": labels}, root / f"{name}.pt")
    return root


def torchmil(root):
    for folder in ("features", "labels", "coords", "inst_labels"):
        (root / folder).mkdir(parents=True)
    for number, name in enumerate(SLIDES):
        np.save(root / "features" / f"{name}.npy", values(number))
        np.save(root / "labels" / f"{name}.npy", np.array([number]))
        np.save(root / "coords" / f"{name}.npy", places())
        np.save(root / "inst_labels" / f"{name}.npy", np.arange(TILES) % 2)
    return root


def rate_evals(root):
    (root / "embeddings" / "test").mkdir(parents=True)
    for number, name in enumerate(SLIDES):
        np.savez_compressed(root / "embeddings" / "test" / f"{name}.npz", embedding=values(number)[None, :1])
    return root


def h5ad(path, matrix, genes, barcodes, form="dense"):
    """Expression as anndata writes it: `X` dense or sparse, names in the column that `_index` names."""
    from scipy import sparse

    with h5py.File(path, "w") as file:
        if form == "dense":
            file["X"] = matrix
        else:
            stored = getattr(sparse, form)(matrix)
            group = file.create_group("X")
            group.attrs["encoding-type"] = form
            group["data"], group["indices"], group["indptr"] = stored.data, stored.indices, stored.indptr
        for table, names in (("obs", barcodes), ("var", genes)):
            group = file.create_group(table)
            group.attrs["_index"] = "name"
            group["name"] = np.array([name.encode() for name in names])
        file["obsm/spatial"] = np.stack([np.arange(len(barcodes)) * 10.0, np.ones(len(barcodes))], axis=1)
    return path

"""A task of HEST-Benchmark in its authors' layout, small; what is right is returned beside it."""

import csv
import json

import h5py
import numpy as np

GENES = ("KRT7", "CD3E", "ACTB")
EVERY = ("ACTB", "MT-CO1", "CD3E", "KRT7")
"""The columns of the matrices, in another order than the list of genes, and with one more."""

EDGE = 8


def write(root, samples=11, spots=14, seed=0):
    """Folders `splits`, `patches` and `adata`; fold k is tested on sample k, so that fold 10 follows fold 2 by name.

    Returns:
        Sample -> barcodes in the order of the tiles, tiles (spot, row, column, 3), and counts (spot, gene of GENES).
    """
    random = np.random.default_rng(seed)
    for name in ("splits", "patches", "adata"):
        (root / name).mkdir(parents=True)
    (root / "var_50genes.json").write_text(json.dumps({"genes": list(GENES)}))
    made = {f"TENX{number}": _sample(root, f"TENX{number}", spots, random) for number in range(samples)}
    for fold, tested in enumerate(made):
        for part, names in (("train", [name for name in made if name != tested]), ("test", [tested])):
            with (root / f"splits/{part}_{fold}.csv").open("w", newline="") as stream:
                rows = [[name, f"patches/{name}.h5", f"adata/{name}.h5ad"] for name in names]
                csv.writer(stream).writerows([["sample_id", "patches_path", "expr_path"], *rows])
    return made


def _sample(root, name, spots, random):
    barcodes = [f"{at:03d}x{(7 * at) % spots:03d}" for at in range(spots)]
    level = random.integers(0, 156, (spots, 1, 1, 1))
    grey = (level + random.integers(0, 100, (spots, EDGE, EDGE, 3))).astype(np.uint8)
    darkness = 255 - grey.reshape(spots, -1).mean(1) + 40 * random.random(spots)
    rate = {"KRT7": darkness - 40, "CD3E": 250 - darkness, "ACTB": 60 * random.random(spots), "MT-CO1": darkness}
    counts = {gene: random.poisson(np.clip(value, 1, None)) for gene, value in rate.items()}
    with h5py.File(root / f"patches/{name}.h5", "w") as file:
        file.create_dataset("img", data=grey, chunks=(1, EDGE, EDGE, 3))
        file["barcode"] = np.array(barcodes, dtype="S").reshape(-1, 1)
        file["coords"] = np.stack([np.arange(spots) * 100, np.arange(spots)], axis=1)
    order = [*random.permutation(spots), spots]  # and a spot that has no tile
    matrix = np.stack([counts[gene] for gene in EVERY], axis=1)
    matrix = np.vstack([matrix, np.full(len(EVERY), 9)])[order]
    _anndata(root / f"adata/{name}.h5ad", matrix, [[*barcodes, "off"][at] for at in order])
    return barcodes, grey, np.stack([counts[gene] for gene in GENES], axis=1)


def _anndata(path, matrix, barcodes):
    """Sparse by rows, as the released files are; what anndata itself needs to read it, too."""
    rows, columns = np.nonzero(matrix)
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        for axis, names in (("obs", barcodes), ("var", EVERY)):
            group = file.create_group(axis)
            group.attrs.update({"_index": "_index", "encoding-type": "dataframe", "encoding-version": "0.2.0"})
            group.attrs.create("column-order", [], dtype="float64")
            group["_index"] = np.array(names, dtype=h5py.string_dtype())
            group["_index"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": matrix.shape})
        group["data"] = matrix[rows, columns].astype(np.float32)
        group["indices"] = columns.astype(np.int32)
        group["indptr"] = np.searchsorted(rows, np.arange(len(matrix) + 1)).astype(np.int32)


def embeddings(folder, made, length=6, seed=1):
    """Features of each sample as HEST's program leaves them, in another order; returned in that of the tiles."""
    folder.mkdir(parents=True)
    mixing = np.random.default_rng(seed).normal(size=(EDGE * EDGE * 3, length))
    found = {}
    for name, (barcodes, grey, _) in made.items():
        found[name] = (grey.reshape(len(grey), -1) / 255 @ mixing).astype(np.float32)
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["embeddings"] = found[name][::-1]
            file["barcodes"] = np.array(barcodes[::-1], dtype="S").reshape(-1, 1)
    return found

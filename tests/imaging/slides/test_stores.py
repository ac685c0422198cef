"""Folders of features as TRIDENT, CLAM, eva, HEST and others write them: what is read, and what is refused."""

import h5py
import numpy as np
import pytest
import torch

from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.slides.features import block
from medimg_eval.imaging.slides.spatial import read_expression, read_patches
from medimg_eval.imaging.slides.stores import KINDS, open_store
from tests.helpers import feature_stores as made
from tests.helpers.feature_stores import LENGTH, ROWS_COLUMNS, SLIDES, TILES, values

MAKERS = {kind: getattr(made, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_each_store_is_told_apart_and_read_bag_by_bag(tmp_path, kind):
    store = open_store(MAKERS[kind](tmp_path / "store"))
    assert store.kind == kind
    assert {*SLIDES} <= {*store.files}  # "007" is no 7, and a dot within a name stays
    for number, name in enumerate(SLIDES):
        found = store.read(name)
        expected = values(number, {"trident": TILES * 40}.get(kind, TILES))
        if kind in ("patho_bench", "rate_evals"):
            expected = expected[:1]
        if kind == "eva":  # the first tile's file holds two vectors, its own one twice
            expected = np.concatenate([expected[:1], expected])
        assert found.features.dtype == np.float32
        np.testing.assert_array_equal(found.features, expected)
    assert open_store(tmp_path / "store", kind).files == store.files


def test_trident_says_size_magnification_and_what_is_missing(tmp_path):
    store = open_store(made.trident(tmp_path))
    found = store.read(SLIDES[0])
    assert (found.patch_size, found.patch_size_level0, found.magnification) == (256, 512.0, 20.0)
    assert found.coordinates[3].tolist() == [1024, 3 * 512]  # row, column
    assert found.attributes["custom"] == {"a": 1}  # JSON in a text
    assert found.attributes["encoder"] == "uni"
    assert "savetodir" not in found.attributes
    assert store.missing == ["left.over"]
    with pytest.raises(CaseError, match="'left.over': it has coordinates, and no features"):
        store.read("left.over")
    with pytest.raises(CaseError, match=r"empty.h5: the slide has no tiles, its features have shape \(0,\)"):
        store.read("empty")
    with pytest.raises(CaseError, match="did you mean '007'"):
        store.read("0007")
    job = tmp_path / "20x_256px_0px_overlap"
    assert open_store(job / "features_uni").read("007").magnification == 20
    (job / "features_other").mkdir()
    with pytest.raises(UserError, match=r"several encoders \(.*features_other.*features_uni\); name the folder of one"):
        open_store(job)


def test_the_text_none_is_nothing(tmp_path):
    made.trident(tmp_path)
    path = next(tmp_path.rglob("007.h5"))
    with h5py.File(path, "a") as file:
        file["coords"].attrs["target_magnification"] = "None"
    assert open_store(tmp_path).read("007").magnification is None


def test_a_vector_of_a_slide_has_no_places_of_tiles(tmp_path):
    (folder := tmp_path / "slide_features_titan").mkdir()
    with h5py.File(folder / "a.h5", "w") as file:
        file["features"], file["coords"] = values(0)[0], made.places()
    found = open_store(tmp_path).read("a")
    assert (found.features.shape, found.coordinates) == ((1, LENGTH), None)


def test_clam_takes_places_from_its_patches(tmp_path):
    store = open_store(made.clam(tmp_path))
    found = store.read(SLIDES[0])
    assert found.coordinates.tolist() == ROWS_COLUMNS.tolist()
    assert (found.patch_size, found.patch_size_level0) == (256, 1024.0)  # 256 pixels of a level 4 times as coarse
    assert store.read("007").coordinates is None
    torch.save(torch.zeros(3, LENGTH), tmp_path / "pt_files" / f"{SLIDES[0]}.pt")
    with pytest.raises(CaseError, match=r"of 3 tiles, but .*patches.* places of 5; they are of different runs"):
        store.read(SLIDES[0])


def test_hest_has_barcodes_in_a_column(tmp_path):
    found = open_store(made.hest(tmp_path)).read("007")
    assert found.ids[:2] == ("s0-1", "s1-1")
    assert found.coordinates.tolist() == ROWS_COLUMNS.tolist()


def test_eva_keeps_what_its_manifest_says(tmp_path):
    found = open_store(made.eva(tmp_path)).read("007")
    assert (found.attributes["split"], found.labels.tolist()) == ("train", ["1"])


def test_owkin_counts_tiles(tmp_path):
    found = open_store(made.owkin(tmp_path / "slides")).read(SLIDES[0])
    assert found.coordinates.tolist() == (ROWS_COLUMNS // 512).tolist()
    assert found.attributes == {"levels": [16], "counted_in": "tiles"}
    tiles = open_store(made.owkin_tiles(tmp_path / "tiles"))
    assert tiles.read("007").features.tolist() == values(0)[1:2].tolist()


def test_regions_of_gpfm_have_labels(tmp_path):
    store = open_store(made.gpfm_regions(tmp_path / "rois"))
    assert store.kind == "gpfm"
    assert store.read("test").labels.tolist() == [0, 1, 0, 1, 0]


def test_torchmil_has_labels_of_bags_and_of_tiles(tmp_path):
    found = open_store(made.torchmil(tmp_path)).read("007")
    assert (found.attributes, found.labels.tolist()) == ({"label": [1]}, [0, 1, 0, 1, 0])
    assert found.coordinates.tolist() == ROWS_COLUMNS.tolist()


def test_faults_are_told_by_file(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no features in the layout of one of these: eva, "):
        open_store(tmp_path)
    with pytest.raises(UsageError, match=r"got 'tridnt'"):
        open_store(tmp_path, "tridnt")
    np.save(tmp_path / "a.npy", np.full((2, 5), np.nan))
    np.save(tmp_path / "b.npy", np.array([{"a": 1}]), allow_pickle=True)
    store = open_store(tmp_path)
    with pytest.raises(CaseError, match=r"a.npy: 2 of 2 tiles have NaN"):
        store.read("a")
    with pytest.raises(CaseError, match=r"b.npy: cannot be read as .npy"):
        store.read("b")
    root = made.eva(tmp_path / "eva")
    torch.save(torch.zeros(LENGTH + 1), root / "007-3.pt")
    with pytest.raises(CaseError, match=r"features of '007' have lengths \[3, 4\]; they are of several encoders"):
        open_store(root).read("007")


@pytest.mark.parametrize("rows", [1, 3])
def test_chunks_of_few_rows_are_read_past_h5py_and_equal(tmp_path, rows):
    wanted = np.random.default_rng(0).normal(size=(401, 6)).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("x", data=wanted[:7], chunks=(rows, 6), maxshape=(None, 6))
        file["between"] = np.zeros(9)
        stored.resize(401, axis=0)
        stored[7:] = wanted[7:]  # later chunks lie elsewhere in the file
        longer = file.create_dataset("cut", data=wanted, chunks=(rows, 6), maxshape=(None, 6))
        longer.resize(400, axis=0)
        sparse = file.create_dataset("holes", (401, 6), "f4", chunks=(rows, 6), fillvalue=3)
        sparse[:200] = wanted[:200]
        file.create_dataset("packed", data=wanted, chunks=(rows, 6), compression="gzip")
        file.create_dataset("columns", data=wanted, chunks=(rows, 2))
    with h5py.File(tmp_path / "a.h5") as file:
        for name in ("x", "cut", "holes", "packed", "columns"):
            np.testing.assert_array_equal(block(tmp_path / "a.h5", file[name]), file[name][:], err_msg=name)


@pytest.mark.parametrize("form", ["dense", "csr_matrix", "csc_matrix"])
def test_expression_is_read_by_gene_and_barcode(tmp_path, form):
    matrix = np.array([[0, 2, 0], [1, 0, 5]], np.float32)
    path = made.h5ad(tmp_path / "a.h5ad", matrix, ["g1", "g2", "7"], ["b1", "b2"], form)
    found = read_expression(path, ["7", "g1"])
    assert found.values.tolist() == [[0, 0], [5, 1]]
    assert found.of(["b2"]).tolist() == [[5, 1]]
    assert found.coordinates.tolist() == [[1, 0], [1, 10]]  # stored as x, y
    assert read_expression(path).genes == ("g1", "g2", "7")
    with pytest.raises(CaseError, match=r"a.h5ad: has no gene g3, 1 in all"):
        read_expression(path, ["g3"])
    with pytest.raises(CaseError, match="no spot 'b9'"):
        found.of(["b9"])


def test_names_of_genes_may_be_categories(tmp_path):
    path = made.h5ad(tmp_path / "a.h5ad", np.eye(2), ["x", "y"], ["b1", "b2"])
    with h5py.File(path, "a") as file:
        del file["var/name"]
        file["var/name/categories"] = np.array([b"g2", b"g1"])
        file["var/name/codes"] = np.array([1, 0], np.int8)
    assert read_expression(path).genes == ("g1", "g2")


def test_patches_are_read_in_blocks(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["img"], file["coords"] = pixels, made.places(4)
        file["barcode"] = np.array([[b"b%d" % row] for row in range(4)])
    found = read_patches(tmp_path / "a.h5")
    assert (len(found), found.barcodes[1], found.size) == (4, "b1", (8, 8))
    np.testing.assert_array_equal(found.read(1, 3), np.moveaxis(pixels[1:3], 3, 1))
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["barcode"]
        file["barcode"] = np.array([b"b0"])
    with pytest.raises(CaseError, match="holds 4 patches, but 1 barcodes"):
        read_patches(tmp_path / "a.h5")

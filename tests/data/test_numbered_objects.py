"""Nuclei as their authors number them: MATLAB files of CoNSeP, PanNuke's arrays, and what the tasks make of them."""

import numpy as np
import pytest
from entries import entry
from PIL import Image as Pillow
from scipy.io import savemat

from medimg_eval.data import targets
from medimg_eval.data.layouts import PanNuke
from medimg_eval.errors import CaseError, UserError
from tests.helpers.benchmark_files import task

TOUCHING = np.array([[1, 1, 2, 2, 0, 3]] * 2)
KINDS = np.array([[1, 1, 4, 4, 0, 7]] * 2)


def consep(root, name="Test", count=14):
    for folder in (root / name / "Images", root / name / "Labels"):
        folder.mkdir(parents=True)
    for number in range(1, count + 1):
        Pillow.fromarray(np.zeros((2, 6, 3), np.uint8)).save(root / name / f"Images/{name.lower()}_{number}.png")
        savemat(root / name / f"Labels/{name.lower()}_{number}.mat", {"inst_map": TOUCHING * 1.0, "type_map": KINDS})


def test_consep_is_judged_by_its_numbers(tmp_path):
    consep(tmp_path, "Train", 27)
    consep(tmp_path)
    made = task("consep", tmp_path)
    case = made.cases("test")[0]
    truth = case.target.read()
    assert truth.labels[0].tolist() == [1, 1, 3, 3, 0, 4]
    assert truth.instances[0].tolist() == TOUCHING[0].tolist()
    scores = {(one.label, one.metric): one.value for one in made.score(case, truth)}
    assert scores["nucleus", "instances_matched"] == 3  # two of which touch
    assert {scores["nucleus", name] for name in ("pq", "aji", "aji_plus", "sq", "rq", "dice")} == {1}
    assert scores["epithelial", "pq"] == 1
    assert np.isnan(scores["inflammatory", "pq"])


@pytest.mark.parametrize(
    ("variables", "settings", "words"),
    [
        (
            {"inst": TOUCHING},
            {},
            r"a\.mat: expected whole numbers \(row, column\) in 'inst_map', from 0; it holds inst",
        ),
        ({"inst_map": TOUCHING + 0.5}, {}, "expected whole numbers"),
        ({"inst_map": TOUCHING, "type_map": KINDS[:, 1:]}, {}, r"'type_map' has shape \(2, 5\), 'inst_map' \(2, 6\)"),
        ({"inst_map": TOUCHING, "type_map": KINDS}, {"values": {1: 1, 4: 2}}, r"holds the classes \[7\]"),
    ],
)
def test_variables_that_are_none(tmp_path, picture, variables, settings, words):
    savemat(tmp_path / "a.mat", variables)
    target = targets.InstanceMat("{case}.mat", **settings)
    with pytest.raises(CaseError, match=words):
        target.reference(entry(tmp_path, {"case": "a"}, images=[picture])).read()


def test_a_file_without_kinds_has_one_label(tmp_path, picture):
    savemat(tmp_path / "a.mat", {"inst_map": TOUCHING * 5})
    target = targets.InstanceMat("{case}.mat", types="")
    read = target.reference(entry(tmp_path, {"case": "a"}, images=[picture])).read()
    assert (read.labels[0].tolist(), read.instances[0].tolist()) == ([1, 1, 1, 1, 0, 1], [5, 5, 10, 10, 0, 15])


def pannuke(root, part, masks, tissues):
    folder = root / part
    folder.mkdir(parents=True)
    np.save(folder / "masks.npy", masks)
    np.save(folder / "images.npy", np.full((*masks.shape[:3], 3), 200.0))
    np.save(folder / "types.npy", np.array(tissues))


def folds(tmp_path):
    """Two pictures; in the second, two kinds count their nuclei anew, and one overlaps another."""
    masks = np.zeros((2, 8, 8, 6))
    masks[0, :2, :2, 0], masks[0, :2, 2:4, 0] = 3, 7
    masks[1, :2, :2, 0], masks[1, 4:6, :2, 1], masks[1, 1:3, :2, 4] = 1, 1, 2
    masks[..., 5] = 1 - (masks[..., :5].max(-1) > 0)
    pannuke(tmp_path, "one", masks, ["Breast", "Colon"])
    return PanNuke(root=str(tmp_path), parts={"test": "one"})


def test_pannuke_numbers_nuclei_across_kinds(tmp_path):
    first, second = folds(tmp_path).cases("test")
    assert (first.id, first.attributes["tissue"], second.attributes["tissue"]) == ("test-0000", "Breast", "Colon")
    assert first.images[0].read().array.shape == (3, 8, 8)
    truth = first.target.read()
    assert truth.geometry.shape == first.target.geometry().shape == (8, 8)
    assert truth.labels[:3].tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]] * 2 + [[0] * 8]
    assert truth.instances[0].tolist() == [3, 3, 7, 7, 0, 0, 0, 0]
    truth = second.target.read()
    assert truth.labels[:6, 0].tolist() == [1, 5, 5, 0, 2, 2]
    assert len(np.unique(truth.instances[truth.labels > 0])) == 3


def test_arrays_that_do_not_belong_together(tmp_path):
    layout = folds(tmp_path)
    np.save(tmp_path / "one/types.npy", np.array(["Breast"]))
    with pytest.raises(
        UserError, match=r"masks\.npy: has the shape \(2, 8, 8, 6\), beside .* of images.npy and 1 tissues"
    ):
        layout.cases("test")


def test_values_that_number_nothing(tmp_path):
    layout = folds(tmp_path)
    masks = np.load(tmp_path / "one/masks.npy")
    np.save(tmp_path / "one/masks.npy", masks / 2)
    with pytest.raises(CaseError, match=r"masks\.npy: item 0 holds values that number no objects"):
        layout.cases("test")[0].target.read()


def test_pannuke_skips_a_kind_that_a_picture_does_not_hold(tmp_path):
    masks = np.zeros((1, 8, 8, 6))
    masks[0, :2, :2, 0], masks[0, :2, 2:4, 0] = 1, 2
    for part in ("fold1", "fold2", "fold3"):
        pannuke(tmp_path, part, masks, ["Breast"])
        for kind, names in (("images", ("images", "types")), ("masks", ("masks",))):
            (tmp_path / f"{part}/{kind}/{part}").mkdir(parents=True)
            for name in names:
                (tmp_path / f"{part}/{name}.npy").rename(tmp_path / f"{part}/{kind}/{part}/{name}.npy")
    made = task("pannuke", tmp_path)
    (case,) = made.cases("test")
    truth = case.target.read()
    labels = truth.labels.copy()
    labels[0, 0] = 2  # one pixel taken for another kind
    scores = {
        (one.label, one.metric): one.value
        for one in made.score(case, type(truth)(labels, truth.affine, units="pixel", instances=truth.instances))
    }
    assert scores["nucleus", "pq"] == 1
    assert scores["neoplastic", "pq"] == pytest.approx((3 / 4 + 1) / 2)
    assert np.isnan(scores["inflammatory", "pq"])
    assert scores["inflammatory", "instances_spurious"] == 1

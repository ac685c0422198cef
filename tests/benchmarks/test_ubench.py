"""U-Bench's sets in the layouts that its data loaders read; scored at 256 x 256, its validation split reported."""

from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import yaml

from medimg_eval.errors import UserError
from medimg_eval.metrics.efficiency import u_score_of
from tests.helpers.benchmark_files import config, ids, picture, scores, task
from tests.helpers.config_files import CONFIGS, config_names

SHAPE = (40, 60)


def blob(level=255, shape=SHAPE, rows=slice(10, 30), columns=slice(15, 45)):
    mask = np.zeros(shape, np.uint8)
    mask[rows, columns] = level
    return mask


def scene(shape=SHAPE):
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)


def resized(mask):
    """What U-Bench scores: the mask as albumentations resizes it."""
    return (cv2.resize(mask, (256, 256), interpolation=cv2.INTER_NEAREST) > 0).astype(np.uint8)


def write(root, pairs, lists=None):
    for image, mask in pairs:
        picture(root / image, scene())
        for path, array in mask.items():
            picture(root / path, array)
    for name, lines in (lists or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def busi(tmp_path):
    pairs = [
        (f"images/{name}.png", {f"masks/0/{name}.png": blob(level)})
        for name, level in (("benign (10)", 255), ("malignant (17)", 1), ("benign (2)", 255))
    ]
    write(tmp_path, pairs, {"train.txt": ["benign (10)", "benign (2)"], "val.txt": ["malignant (17)"]})
    return tmp_path


def test_masks_above_zero_are_resized_by_the_nearest_pixel_and_pictures_linearly(busi):
    one = task("ubench_busi", busi)
    (case,) = one.cases("test")
    assert case.id == "malignant (17)"
    np.testing.assert_array_equal(case.target.read().labels, resized(blob(1)))
    (image,) = one.read_images(case)
    theirs = cv2.resize(scene(), (256, 256), interpolation=cv2.INTER_LINEAR)
    assert np.abs(np.moveaxis(image.array, 0, -1).astype(int) - theirs).max() <= 1
    assert image.geometry.shape == case.target.geometry().shape == (256, 256)


def test_iou_is_that_of_the_resized_mask(busi):
    one = task("ubench_busi", busi)
    (case,) = one.cases("test")
    truth = resized(blob())
    answer = truth.copy()
    answer[: int(np.argwhere(truth)[:, 0].mean())] = 0
    assert scores(one, case, answer, "iou")["lesion"] == pytest.approx(answer.sum() / truth.sum(), abs=1e-6)
    assert scores(one, case, np.zeros_like(truth), "iou")["lesion"] == 0


def test_checkpoints_are_chosen_on_cases_that_are_not_reported(busi):
    one = task("ubench_busi", busi)
    chosen = {part: set(ids(one.cases(part))) for part in ("fit", "validate", "test")}
    assert sorted(map(len, chosen.values())) == [1, 1, 1]
    assert len(set.union(*chosen.values())) == 3
    assert one.splits["test"] == "val"


def test_u_nets_published_score_on_busi_follows_from_the_tasks_facts():
    facts = config("ubench_busi").facts
    assert round(u_score_of(0.65575, 34.527e6, 65.522, 137.05, facts.iou_p10, facts.iou_p90), 2) == 19.26


MASKS = {
    "ubench_tnscui": ("images/a.png", {"masks/0/a.png": blob()}, {"train.txt": ["b"], "val.txt": ["a"]}),
    "ubench_isic2018": ("images/a.png", {"masks/0/a.png": blob()}, {"train.txt": ["b"], "val.txt": ["a"]}),
    "ubench_busbra": (
        "Images/bus_0001-l.png",
        {"Masks/mask_0001-l.png": blob()},
        {"train.txt": ["bus_0002-r.png"], "val.txt": ["bus_0001-l.png"]},
    ),
    "ubench_kvasir": ("validation/images/c1.jpg", {"validation/masks/c1.png": blob(128) + blob(127)[::-1]}, {}),
    "ubench_chase": ("val/images/Image_01L.jpg", {"val/labels/Image_01L_1stHO.png": blob()}, {}),
    "ubench_drive": ("test_data/images/01_test.tif", {"test_data/1st_manual/01_manual1.gif": blob()}, {}),
    "ubench_dsb2018": (
        "stage1_train/abc/images/abc.png",
        {f"stage1_train/abc/masks/{n}.png": blob(rows=slice(10 * n, 10 * n + 10)) for n in (1, 2)},
        {
            "train_imageid_frame.csv": ["ImageId,EncodedPixels", "xyz,1 2"],
            "val_imageid_frame.csv": ["ImageId,EncodedPixels", "abc,1 2", "abc,9 4"],
        },
    ),
    "ubench_glas": (
        "glas_dataset/testA_1.bmp",
        {"glas_dataset/testA_1_anno.bmp": blob(7)},
        {"train.txt": ["train_1.bmp"], "val.txt": ["testA_1.bmp"]},
    ),
    "ubench_montgomery": (
        "CXR_png/MCUCXR_0001_0.png",
        {"Mask/MCUCXR_0001_0.png": blob()},
        {"train.txt": ["MCUCXR_0002_0.png"], "val.txt": ["MCUCXR_0001_0.png"]},
    ),
    "ubench_bus": ("images/a.png", {"masks/0/a.png": blob()}, {"val.txt": ["a"]}),
    "ubench_tucc": ("images/a.png", {"masks/0/a.png": blob()}, {"val.txt": ["a"]}),
    "ubench_stare": ("images/im0001.png", {"masks/0/im0001.png": blob()}, {"val.txt": ["im0001"]}),
    "ubench_cvc300": ("images/150.png", {"masks/150.png": blob(128)}, {"val.txt": ["images/150"]}),
    "ubench_clinicdb": ("images/7.png", {"masks/7.png": blob(128)}, {"val.txt": ["images/7"]}),
    "ubench_nih": ("images/1_0.png", {"masks/1_0_mask.png": blob()}, {"val.txt": ["1_0.png"]}),
    "ubench_ph2": (
        "images/IMD002.png",
        {"masks/IMD002_lesion.png": blob(128)},
        {"test_frame.csv": ["image_path,mask_path", "IMD002.png,IMD002_lesion.png"]},
    ),
}
FITTED = {
    "ubench_drive": ("train_data/images/21_training.tif", {"train_data/1st_manual/21_manual1.gif": blob()}),
    "ubench_busbra": ("Images/bus_0002-r.png", {"Masks/mask_0002-r.png": blob()}),
    "ubench_dsb2018": ("stage1_train/xyz/images/xyz.png", {"stage1_train/xyz/masks/1.png": blob()}),
    "ubench_glas": ("glas_dataset/train_1.bmp", {"glas_dataset/train_1_anno.bmp": blob(7)}),
    "ubench_montgomery": ("CXR_png/MCUCXR_0002_0.png", {"Mask/MCUCXR_0002_0.png": blob()}),
    "ubench_tnscui": ("images/b.png", {"masks/0/b.png": blob()}),
    "ubench_isic2018": ("images/b.png", {"masks/0/b.png": blob()}),
}


@pytest.mark.parametrize("name", MASKS)
def test_each_set_is_read_as_its_loader_reads_it(tmp_path, name):
    image, masks, lists = MASKS[name]
    write(tmp_path, [(image, masks)], lists)
    if name in FITTED:
        write(tmp_path, [FITTED[name]])
        assert len(task(name, tmp_path).cases("fit")) == 1
    one = task(name, tmp_path)
    (case,) = one.cases("test")
    assert case.images[0].files == (tmp_path / image,)
    truth = resized(blob())
    np.testing.assert_array_equal(case.target.read().labels, truth)
    assert scores(one, case, truth, "iou") == {next(iter(one.labels.values())): 1}


UBENCH = config_names("task", "ubench_*.yaml")
ARRAYS = [name for name in UBENCH if config(name).layout["_target_"].endswith(".Arrays")]


@pytest.mark.parametrize("name", ARRAYS)
def test_medsegbenchs_arrays_are_read_and_scored_as_one_foreground(tmp_path, name):
    stated = config(name)
    split = stated.splits.test
    label = np.stack([blob(1, (256, 256)), blob(5 if "monusac" in name else 1, (256, 256))])
    held = {f"{part}_images": scene((256, 256))[None].repeat(2, 0) for part in ("train", "val", "test")}
    held |= {f"{part}_label": np.zeros_like(label) for part in ("train", "val", "test")} | {f"{split}_label": label}
    np.savez(tmp_path / stated.layout.file, **held)
    one = task(name, tmp_path, layout={"cache": str(tmp_path / "cache")})
    cases = one.cases("test")
    for case in cases:
        np.testing.assert_array_equal(case.target.read().labels, label[0])
    assert ids(cases) == [f"{split}-000000", f"{split}-000001"]
    whole = task(name, tmp_path, expected=stated.expected)
    with pytest.raises(UserError, match=rf"expected \d+ cases in split '{split}', found 2"):
        whole.cases("test")


def test_synapse_keeps_eight_of_thirteen_labels_and_numbers_the_pancreas_anew(tmp_path):
    theirs = np.zeros((4, 6, 5), np.float32)  # slice, row, column
    theirs[0, 1, 2], theirs[1, 0, 0], theirs[2, 0, 0], theirs[3, 5, 4] = 11, 5, 13, 8
    (tmp_path / "test_vol_h5_new").mkdir()
    with h5py.File(tmp_path / "test_vol_h5_new/case0001.npy.h5", "w") as file:
        file["image"], file["label"] = theirs / 20, theirs
    write(tmp_path, [], {"lists/lists_Synapse/test_vol.txt": ["case0001"]})
    one = task("ubench_synapse", tmp_path)
    (case,) = one.cases("test")
    labels = case.target.read().labels
    assert np.argwhere(labels).tolist() == [[2, 1, 0], [4, 5, 3]]
    assert (labels[2, 1, 0], labels[4, 5, 3], one.labels[5], one.labels[8]) == (5, 8, "pancreas", "aorta")
    assert one.read_images(case)[0].geometry.shape == labels.shape
    assert scores(one, case, np.where(labels == 5, 6, labels), "iou")["pancreas"] == 0


def test_acdcs_volumes_are_read_whole(tmp_path):
    (tmp_path / "test").mkdir()
    labels = np.zeros((3, 8, 6), np.uint8)
    labels[1, 2, 4], labels[2] = 1, 3
    np.savez(tmp_path / "test/patient101_ED.npz", img=labels.astype(np.float32), label=labels)
    write(tmp_path, [], {"lists_ACDC/test.txt": ["patient101_ED.npz"]})
    one = task("ubench_acdc", tmp_path)
    (case,) = one.cases("test")
    np.testing.assert_array_equal(case.target.read().labels, labels.T)
    found = scores(one, case, labels.T, "iou")
    assert (found["right ventricle"], found["left ventricle"]) == (1, 1)
    assert scores(one, case, np.where(labels.T == 1, 2, labels.T), "iou")["right ventricle"] == 0


def test_volumes_are_scored_as_medpy_scores_them_and_by_the_authors_rule_for_empty_masks(tmp_path):
    (tmp_path / "test").mkdir()
    labels = np.zeros((3, 8, 6), np.uint8)
    labels[1, 2, 1:4], labels[2, 0, 0] = 1, 3
    np.savez(tmp_path / "test/patient101_ED.npz", img=labels.astype(np.float32), label=labels)
    write(tmp_path, [], {"lists_ACDC/test.txt": ["patient101_ED.npz"]})
    one = task("ubench_acdc", tmp_path)
    (case,) = one.cases("test")
    answer = np.zeros((3, 8, 6), np.uint8)
    answer[1, 2, 1:5], answer[2, 7, 5] = 1, 2  # one voxel too many; myocardium made up, left ventricle missed
    found = {name: scores(one, case, answer.T, name) for name in one.metrics if name != "u_score"}
    names = ("right ventricle", "myocardium", "left ventricle")
    assert [found["dice"][name] for name in names] == pytest.approx([6 / 7, 1, 0], abs=1e-6)
    assert [found["iou"][name] for name in names] == [3 / 4, 1, 0]
    # Three distances of 0 from the truth, and 0, 0, 0, 1 back: rank 0.95 * 6 of both, and the mean of the latter.
    assert [found["hd95_pooled"][name] for name in names] == pytest.approx([0.7, 0, 0])
    assert [found["asd_pred_to_ref"][name] for name in names] == [1 / 4, 0, 0]


def test_there_are_twenty_sets_to_fit_and_eight_to_be_tested_on_only():
    suites = {name: yaml.safe_load(Path(CONFIGS, "suite", f"{name}.yaml").read_text()) for name in SUITES}
    named = {name: [next(iter(one.values())) for one in suite["defaults"]] for name, suite in suites.items()}
    assert {name: len(tasks) for name, tasks in named.items()} == SUITES
    assert set().union(*named.values()) == set(UBENCH)
    for name in named["ubench_source"]:
        stated = config(name)
        assert 0 < stated.facts.iou_p10 < stated.facts.iou_p90 < 1
        assert "u_score" in stated.metrics
    for name in named["ubench_target"]:
        assert "facts" not in config(name)  # none is published


SUITES = {"ubench_source": 20, "ubench_target": 8}

"""BenchX's sets of chest radiographs, over a few files as its preprocess/datasets leave them."""

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.results.ranking import rank
from tests.helpers.benchmark_files import ids, picture, scores, task

GREY = np.full((6, 6), 90, np.uint8)


def lists(root, **names):
    for split, held in names.items():
        (root / f"{split}.txt").write_text("".join(f"{name}\n" for name in held))


def truth(case):
    return {name for name, value in case.target.read().values.items() if value == 1}


def parts(one):
    return {part: ids(one.cases(part)) for part in ("fit", "validate", "test")}


def test_nihs_images_are_split_by_mrms_lists(tmp_path):
    rows = ["00000001_000.png,No Finding", "00000002_000.png,Mass|Edema", "00000003_000.png,Hernia"]
    for row in rows:
        picture(tmp_path / "images" / row.partition(",")[0], GREY)
    lines = ["Image Index,Finding Labels,Patient Gender,Patient Age,View Position", *(f"{row},F,40,PA" for row in rows)]
    (tmp_path / "Data_Entry_2017_v2020.csv").write_text("\n".join(lines) + "\n")
    lists(tmp_path, train=["00000003_000.png"], val=["00000001_000.png"], test=["00000002_000.png"])
    one = task("benchx_nih", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient, truth(case)) == ("00000002_000.png", "00000002", {"Mass", "Edema"})
    assert truth(one.cases("validate")[0]) == set()


def test_rsnas_rows_are_boxes_and_a_patient_is_one_image(tmp_path):
    names = [f"{letter}0bca6c8-5cdf" for letter in "abcd"]
    for name in names:
        picture(tmp_path / f"images/{name}.png", GREY)
        picture(tmp_path / f"masks/{name}.png", np.zeros((6, 6)))
    picture(tmp_path / f"masks/{names[1]}.png", np.pad(np.ones((2, 3), np.uint8), ((1, 3), (1, 2))))
    table = [",patientId,x,y,width,height,Target", f"0,{names[0]},,,,,0", f"1,{names[1]},1.0,1.0,3.0,2.0,1"]
    table += [f"2,{names[1]},4.0,0.0,1.0,1.0,1", f"3,{names[2]},,,,,0", f"4,{names[3]},,,,,0"]
    (tmp_path / "rsna_labels.csv").write_text("\n".join(table) + "\n")
    lists(tmp_path, train=[names[0]], val=[names[2]], test=[names[1], names[3]])
    cases = task("benchx_rsna", tmp_path).cases("test")
    assert [(case.id, truth(case), len(case.images)) for case in cases] == [
        (names[1], {"pneumonia"}, 1),
        (names[3], {"no pneumonia"}, 1),
    ]
    masks = task("benchx_rsna_boxes", tmp_path)
    case, empty = masks.cases("test")
    labels = case.target.read().labels
    assert (int(labels.sum()), int(labels.max())) == (6, 1)
    said = np.zeros_like(labels)
    rows = [row for one in (case, empty) for row in masks.score(one, said, masks.case_metrics)]
    held = {row.metric: row.value for row in rows if row.metric.startswith("voxels")}
    assert held == {"voxels_shared": 0, "voxels_reference": 0, "voxels_prediction": 0, "voxels_image": 36}
    assert scores(masks, case, labels) == {"pneumonia": 1.0}


def test_siims_names_end_in_a_line_and_masks_hold_bits(tmp_path):
    rows = ["0_train_0_.png,0", "1_train_1_.png,1", "2_test_1_.png,1"]
    for row in rows:
        name = row.partition(",")[0]
        picture(tmp_path / f"images/{name}", GREY)
        (tmp_path / "masks").mkdir(exist_ok=True)
        Pillow.fromarray(np.eye(6) > 0).save(tmp_path / f"masks/{name}")
    table = ["new_filename,ImageId,has_pneumo", *(row.replace(",", ",1.2.3,") for row in rows)]
    (tmp_path / "siim_labels.csv").write_text("\n".join(table) + "\n")
    lists(tmp_path, train=["0_train_0_"], val=["1_train_1_"], test=["2_test_1_"])
    one = task("benchx_siim", tmp_path)
    assert parts(one) == {"fit": ["0_train_0_"], "validate": ["1_train_1_"], "test": ["2_test_1_"]}
    assert truth(one.cases("test")[0]) == {"pneumothorax"}
    labels = task("benchx_siim_masks", tmp_path).cases("test")[0].target.read().labels
    assert (int(labels.sum()), int(labels.max())) == (6, 1)


def test_vindrs_readers_are_joined_and_labels_that_are_not_asked_for_pass(tmp_path):
    rows = ["a1,Aortic enlargement|Other lesion|Rib fracture", "b2,No finding", "c3,No finding|Pleural effusion"]
    for row in rows:
        picture(tmp_path / f"images/{row[:2]}.png", GREY)
    (tmp_path / "vindr_labels.csv").write_text("\n".join(["image_id,class_name", *rows]) + "\n")
    lists(tmp_path, train=["b2"], val=["c3"], test=["a1"])
    one = task("benchx_vindr", tmp_path)
    assert len(one.classes) == 14
    (case,) = one.cases("test")
    assert truth(case) & set(one.classes) == {"Aortic enlargement", "Lesion"}
    assert truth(one.cases("validate")[0]) == {"Effusion"}


def test_covidxs_lists_hold_folders_and_patients_are_of_a_source(tmp_path):
    rows = ["3,train/a.png,positive,rsna", "3,val/b.png,negative,bimcv", "8,test/c.png,positive,ricord"]
    for row in rows:
        picture(tmp_path / row.split(",")[1], GREY)
    (tmp_path / "covidx_labels.csv").write_text("\n".join(["patient_id,filename,class,data_source", *rows]) + "\n")
    lists(tmp_path, train=["train/a.png"], val=["val/b.png"], test=["test/c.png"])
    one = task("benchx_covidx", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient, truth(case)) == ("test/c.png", "ricord 8", {"positive"})
    assert case.attributes == {"data_source": "ricord"}
    assert truth(one.cases("validate")[0]) == {"negative"}


@pytest.mark.parametrize(("name", "label"), [("tbx11k", "tuberculosis"), ("object_cxr", "foreign object")])
def test_masks_are_called_as_their_pictures(name, label, tmp_path):
    for place in range(3):
        picture(tmp_path / f"images/{place:05d}.png", GREY)
        picture(tmp_path / f"masks/{place:05d}.png", np.eye(6))
    lists(tmp_path, train=["00000"], val=["00001"], test=["00002"])
    one = task(f"benchx_{name}", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, one.labels) == ("00002", {1: label})
    assert int(case.target.read().labels.sum()) == 6


# Multi-label AUROC, binary F1, mDice and BLEU-4 of BenchX's leaderboard, and the rank that it prints beside them.
LEADERBOARD = {
    "MRM": (86.18, 67.72, 80.66, 16.5, 2.0),
    "MGCA-ViT": (86.10, 67.03, 80.32, 17.0, 2.375),
    "REFERS": (84.65, 66.06, 79.93, 16.1, 4.75),
    "MedCLIP-R50": (83.02, 67.17, 79.80, 16.3, 5.25),
    "MedCLIP-ViT": (84.00, 68.33, 78.76, 15.1, 5.75),
    "GLoRIA": (84.68, 64.06, 77.05, 17.0, 5.875),
    "MedKLIP": (82.77, 65.56, 79.42, 16.7, 6.125),
    "ConVIRT": (85.37, 65.56, 78.89, 14.8, 6.375),
    "MGCA-R50": (83.47, 64.69, 79.85, 15.9, 6.5),
    "M-FLAG": (77.73, 62.96, 72.77, 14.7, 10.0),
}


def test_its_printed_ranks_are_means_of_average_ranks():
    values = np.array(list(LEADERBOARD.values()))
    ranks = {
        ties: np.mean([rank(column, higher_is_better=True, ties=ties) for column in values[:, :4].T], axis=0)
        for ties in ("average", "min")
    }
    assert ranks["average"].tolist() == values[:, 4].tolist()
    assert ranks["min"].tolist() != values[:, 4].tolist()

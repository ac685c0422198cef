"""MSD, SegBook, BTCV, KiTS, LiTS, ACDC and PROMISE12: folders of volumes, and the folds that nnU-Net draws."""

import json

import numpy as np
import pytest
from sklearn.model_selection import KFold

from medimg_eval.data.many import nnunet_task
from medimg_eval.errors import UserError
from tests.helpers.benchmark_files import boxes, config, ids, scores, task, volume
from tests.helpers.config_files import config_names

MSD = config_names("task", "msd_*.yaml")
LABELS = boxes((6, 5, 4), at1=np.s_[:2], at2=np.s_[3:5])


def decathlon(root, labels, names, channels=1, values=LABELS):
    """A folder as MSD's: all channels in one file without a number, hidden companions, test images without truth."""
    image = values if channels == 1 else np.stack([values + 10 * n for n in range(channels)], axis=-1)
    for name in names:
        volume(root / f"imagesTr/{name}.nii.gz", image, (1, 1, 1))
        volume(root / f"labelsTr/{name}.nii.gz", values)
    (root / f"imagesTr/._{names[0]}.nii.gz").touch()
    volume(root / "imagesTs/t_1.nii.gz", image)
    (root / "dataset.json").write_text(
        json.dumps(
            {
                "modality": {str(n): "MRI" for n in range(channels)},
                "labels": {"0": "background", **labels},
                "training": [
                    {"image": f"./imagesTr/{name}.nii.gz", "label": f"./labelsTr/{name}.nii.gz"} for name in names
                ],
                "test": ["./imagesTs/t_1.nii.gz"],
            }
        )
    )


def test_the_folds_are_those_that_nnu_net_draws(tmp_path):
    names = [f"spleen_{number}" for number in (2, 3, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18)]
    decathlon(tmp_path, {"1": "spleen"}, names, values=boxes((6, 5, 4), at1=np.s_[:2]))
    ordered = np.sort(names)
    for fold, (_, held) in enumerate(KFold(5, shuffle=True, random_state=12345).split(ordered)):
        one = task("msd_spleen", tmp_path, layout={"splits": {"fold": fold}})
        assert sorted(ids(one.cases("test"))) == sorted(ordered[held])
        parts = [set(ids(one.cases(part))) for part in ("fit", "validate", "test")]
        assert len(set.union(*parts)) == sum(map(len, parts)) == 12
    with pytest.raises(UserError, match=r"there is no fold 5 of 5 \(the first is 0\)"):
        task("msd_spleen", tmp_path, layout={"splits": {"fold": 5}}).cases("test")


def test_fewer_cases_than_folds_are_refused(tmp_path):
    decathlon(tmp_path, {"1": "spleen"}, ["a", "b"])
    with pytest.raises(UserError, match="2 patients or cases cannot be cut into 5 folds"):
        task("msd_spleen", tmp_path).cases("test")


@pytest.mark.parametrize("name", MSD)
def test_each_task_of_the_decathlon_is_read_and_judged(tmp_path, name):
    stated = config(name)
    channels = {"msd_brain_tumour": 4, "msd_prostate": 2}.get(name, 1)
    values = LABELS.copy()
    values[values > len(stated.labels)] = 0
    labels = {str(number): name for number, name in stated.labels.items()}
    decathlon(tmp_path, labels, [f"x_{number}" for number in range(5)], channels, values)
    one = task(name, tmp_path)
    (case,) = one.cases("test")
    (image,) = one.read_images(case)
    assert image.array[:, 0, 0, 0].tolist() == [1 + 10 * n for n in range(channels)]
    assert image.modality == stated.layout.modality
    assert one.layout.labels() == one.labels
    assert scores(one, case, values)[one.labels[1]] == 1
    assert len(MSD) == 10


def test_one_yaml_serves_any_of_segbooks_datasets(tmp_path):
    names = [f"img{number:04d}" for number in range(10)]
    decathlon(tmp_path / "segbook/Task011_BTCV", {"1": "Spleen", "2": "Right kidney"}, names)
    stated = config("segbook")
    stated.name = "Task011_BTCV"
    assert stated.layout.root.endswith("/segbook/Task011_BTCV")
    assert stated.title == "SegBook Task011_BTCV"
    one = task("segbook", tmp_path / "segbook/Task011_BTCV", name="Task011_BTCV")
    assert one.labels == {1: "Spleen", 2: "Right kidney"}
    cases = one.cases("test")
    assert len(cases) == 2
    assert scores(one, cases[0], LABELS) == {"Spleen": 1.0, "Right kidney": 1.0}
    assert scores(one, cases[0], np.where(LABELS == 2, 1, LABELS))["Spleen"] == pytest.approx(2 / 3, abs=1e-6)
    again = nnunet_task(layout=one.layout, labels={1: "milt"}, name="again")
    assert again.labels == {1: "milt"}
    with pytest.raises(UserError, match=r"nowhere: no such folder"):
        task("segbook", tmp_path / "nowhere").cases("test")


def test_btcv_takes_monais_list(tmp_path):
    labels = boxes((6, 5, 4), at2=np.s_[:2], at11=np.s_[3:5])
    lists = {"training": ["img0001", "img0002"], "validation": ["img0035"], "test": []}
    content = {
        split: [{"image": f"imagesTr/{n}.nii.gz", "label": f"labelsTr/{n}.nii.gz"} for n in names]
        for split, names in lists.items()
    }
    (tmp_path / "dataset_0.json").write_text(json.dumps(content))
    for item in [item for items in content.values() for item in items]:
        volume(tmp_path / item["image"], labels)
        volume(tmp_path / item["label"], labels)
    one = task("btcv", tmp_path)
    (case,) = one.cases("test")
    assert case.id == "imagesTr/img0035.nii.gz"
    found = scores(one, case, np.where(labels == 2, 3, labels))
    assert (found["right kidney"], found["left kidney"], found["pancreas"]) == (0, 0, 1)
    with pytest.raises(UserError, match="expected 6 cases in split 'validation', found 1"):
        task("btcv", tmp_path, expected=config("btcv").expected).cases("test")


CASES = {
    "kits19": ("case_{n:05d}/imaging.nii.gz", "case_{n:05d}/segmentation.nii.gz"),
    "kits23": ("case_{n:05d}/imaging.nii.gz", "case_{n:05d}/segmentation.nii.gz"),
    "lits": ("volume-{n}.nii", "segmentation-{n}.nii"),
}


@pytest.mark.parametrize("name", CASES)
def test_regions_of_kidney_and_liver_hold_their_masses(tmp_path, name):
    labels = boxes((8, 5, 4), at1=np.s_[:2], at2=np.s_[3:5], at3=np.s_[6:8])
    labels = np.where(labels > len(config(name).labels), 0, labels)
    image, mask = CASES[name]
    for number in range(5):
        volume(tmp_path / image.format(n=number), labels)
        volume(tmp_path / mask.format(n=number), labels)
    volume(tmp_path / image.format(n=9), labels)  # a test case: its truth is not public
    one = task(name, tmp_path)
    (case,) = one.cases("test")
    organ, tumour = next(iter(one.regions)), "tumour"
    found = scores(one, case, np.where(labels == 2, 1, labels))
    assert (found[organ], found[tumour]) == (1, 0)
    if name == "kits23":
        assert scores(one, case, np.where(labels == 3, 2, labels))["masses"] == 1
        assert scores(one, case, np.where(labels == 3, 2, labels))["tumour"] == pytest.approx(2 / 3, abs=1e-6)


def test_acdc_keeps_a_patients_two_frames_in_one_folder(tmp_path):
    labels = boxes((6, 5, 4), at1=np.s_[:2], at3=np.s_[3:5])
    for split, patients in (("training", (1, 2)), ("testing", (101,))):
        for patient in patients:
            for frame in (1, 12):
                stem = tmp_path / split / f"patient{patient:03d}/patient{patient:03d}_frame{frame:02d}"
                volume(stem.with_name(f"{stem.name}.nii.gz"), labels)
                volume(stem.with_name(f"{stem.name}_gt.nii.gz"), labels)
            volume(stem.with_name(f"patient{patient:03d}_4d.nii.gz"), labels)
    one = task("acdc", tmp_path)
    cases = one.cases("test")
    assert [(case.id, case.patient) for case in cases] == [
        ("patient101_frame01", "patient101"),
        ("patient101_frame12", "patient101"),
    ]
    assert cases[0].images[0].files[0].name == "patient101_frame01.nii.gz"
    assert {len(one.cases("fit")), len(one.cases("validate"))} == {2}  # one patient each
    assert scores(one, cases[0], np.where(labels == 3, 1, labels))["left ventricle"] == 0


def test_promise12_pairs_its_metaimages(tmp_path):
    import SimpleITK

    labels = boxes((6, 5, 4), at1=np.s_[:2])
    for number in range(5):
        for name in (f"Case{number:02d}", f"Case{number:02d}_segmentation"):
            SimpleITK.WriteImage(SimpleITK.GetImageFromArray(labels.T), tmp_path / f"{name}.mhd")
    one = task("promise12", tmp_path)
    found = [case.id for part in ("fit", "validate", "test") for case in one.cases(part)]
    assert sorted(found) == [f"Case{number:02d}" for number in range(5)]
    assert scores(one, one.cases("test")[0], labels) == {"prostate": 1.0}

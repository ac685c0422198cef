"""Volumes as nnU-Net, MSD, BIDS, BraTS and TotalSegmentator lay them out."""

import json

import nibabel as nib
import numpy as np
import pytest

from medimg_eval.data.layouts import Bids, MsdDatalist, NnUNet, Table, Volumes
from medimg_eval.data.targets import ClassName, MaskTarget, PointColumns, TableTarget, VertebraCentroids
from medimg_eval.errors import SplitError, UsageError, UserError


def save(path, level, shape=(3, 4, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(np.full(shape, level, np.int16), np.eye(4)), path)
    return path


def level(reference):
    """The one value an image or a mask holds."""
    thing = reference.read()
    (value,) = np.unique(thing.labels if hasattr(thing, "labels") else thing.array)
    return int(value)


def ids(cases):
    return [case.id for case in cases]


@pytest.fixture
def nnunet(tmp_path):
    """Version 2: two channels, two training cases of a patient, one test case with and one without labels."""
    root = tmp_path / "Dataset001_Test"
    content = {
        "channel_names": {"0": "T2", "1": "ADC"},
        "labels": {"background": 0, "whole tumor": [1, 2], "core": 2},
        "regions_class_order": [1, 2],
        "numTraining": 3,
        "file_ending": ".nii.gz",
    }
    for number, name in enumerate(("P1_0", "P1_1", "P2_0"), start=1):
        save(root / "imagesTr" / f"{name}_0000.nii.gz", 10 * number)
        save(root / "imagesTr" / f"{name}_0001.nii.gz", 10 * number + 1)
        save(root / "labelsTr" / f"{name}.nii.gz", number - 1)
    for channel in (0, 1):
        save(root / "imagesTs" / f"P9_0_000{channel}.nii.gz", 90 + channel)
    save(root / "labelsTs" / "P9_0.nii.gz", 2)
    (root / "dataset.json").write_text(json.dumps(content))
    folds = [{"train": ["P2_0"], "val": ["P1_0", "P1_1"]}, {"train": ["P1_0", "P2_0"], "val": ["P1_1"]}]
    (root / "splits_final.json").write_text(json.dumps(folds))
    return root


def test_nnunet_2_pairs_channels_and_labels(nnunet):
    layout = NnUNet(root=str(nnunet), modality="MR")
    cases = layout.cases("train")
    assert ids(cases) == ["P1_0", "P1_1", "P2_0"]
    assert [level(image) for image in cases[1].images] == [20, 21]
    assert [level(case.target) for case in cases] == [0, 1, 2]
    assert cases[0].images[0].read().modality == "MR"
    (test,) = layout.cases("test")
    assert ([level(image) for image in test.images], level(test.target)) == ([90, 91], 2)
    assert layout.labels() == {2: "core"}


def test_nnunets_folds_divide_the_training_cases_and_leave_the_test_cases(nnunet):
    layout = NnUNet(root=str(nnunet), fold=0, patient="{case:.2}")
    assert ids(layout.cases("val")) == ["P1_0", "P1_1"]
    assert ids(layout.cases("train")) == ["P2_0"]
    assert ids(layout.cases("test")) == ["P9_0"]
    assert list(layout.split_source()) == [str(nnunet / "splits_final.json")]


def test_a_fold_that_parts_a_patient_is_refused(nnunet):
    with pytest.raises(UserError, match=r"more than one split: 'P1' \(train, val\)"):
        NnUNet(root=str(nnunet), fold=1, patient="{case:.2}").cases("val")


def test_a_region_joins_labels(nnunet):
    levels = [level(case.target) for case in NnUNet(root=str(nnunet), region="whole tumor").cases("train")]
    assert levels == [0, 1, 1]
    with pytest.raises(UserError, match=r"dataset\.json: has no region 'whole tumour'; did you mean 'whole tumor'"):
        NnUNet(root=str(nnunet), region="whole tumour").cases("train")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"labels": {},\n}', r"dataset\.json, line 2: is no JSON"),
        ('{"label": {}}', r"dataset\.json: expected nnU-Net's 'labels'; did you mean 'label'"),
        ('{"labels": {"a": 1}}', r"dataset\.json: expected 'channel_names' \(version 2\) or 'modality'"),
        (
            '{"labels": {"0": "background"}, "modality": {"0": "CT"}, "training": [{"image": "./x"}]}',
            r"dataset\.json, item 1 of 'training': expected an object with 'image' and 'label'",
        ),
    ],
)
def test_a_dataset_json_that_is_not_understood_is_named(nnunet, content, words):
    (nnunet / "dataset.json").write_text(content)
    with pytest.raises(UserError, match=words):
        NnUNet(root=str(nnunet)).cases("train")


def test_a_fold_that_lists_what_is_not_there_names_its_item(nnunet):
    (nnunet / "splits_final.json").write_text(json.dumps([{"train": ["P1_0"], "val": ["P2_0", "P3_0"]}]))
    with pytest.raises(UserError, match=r"splits_final\.json, item 2 of 'val': split 'val' lists 'P3_0'"):
        NnUNet(root=str(nnunet), fold=0).cases("val")


def test_nnunet_1_and_msd_list_their_cases(tmp_path):
    content = {
        "modality": {"0": "CT"},
        "labels": {"0": "background", "1": "liver", "2": "tumour"},
        "training": [
            {"image": f"./imagesTr/{name}.nii.gz", "label": f"./labelsTr/{name}.nii.gz"} for name in ("b", "a")
        ],
        "test": ["./imagesTs/c.nii.gz"],
    }
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    save(tmp_path / "imagesTr/a_0000.nii.gz", 1)  # as nnU-Net stores it
    save(tmp_path / "imagesTr/b.nii.gz", 2)  # as MSD stores it
    save(tmp_path / "imagesTr/unlisted_0000.nii.gz", 3)
    for name in ("a", "b", "unlisted"):
        save(tmp_path / f"labelsTr/{name}.nii.gz", 1)
    layout = NnUNet(root=str(tmp_path))
    cases = layout.cases("train")
    assert ids(cases) == ["a", "b"]
    assert [level(case.images[0]) for case in cases] == [1, 2]
    assert layout.labels() == {1: "liver", 2: "tumour"}
    with pytest.raises(SplitError, match=r"no case of split 'test' \(available: train\)"):
        layout.cases("test")


@pytest.fixture
def datalist(tmp_path):
    def write(**lists):
        (tmp_path / "dataset_0.json").write_text(json.dumps({"name": "x", **lists}))
        return tmp_path

    return write


def test_msds_lists_are_splits_and_a_fold_divides_training(datalist):
    items = [
        {"image": [f"t1/{i}.nii.gz", f"t2/{i}.nii.gz"], "label": f"seg/{i}.nii.gz", "fold": i, "site": "A"}
        for i in (0, 1)
    ]
    root = datalist(training=items, testing=["t1/9.nii.gz"])
    for i in (0, 1):
        save(root / f"t1/{i}.nii.gz", i)
        save(root / f"t2/{i}.nii.gz", i + 10)
        save(root / f"seg/{i}.nii.gz", i)
    (held,) = MsdDatalist(root=str(root), datalist="dataset_0.json", fold=1).cases("validation")
    assert ([level(image) for image in held.images], level(held.target), held.attributes) == ([1, 11], 1, {"site": "A"})
    assert held.id == "t1/1.nii.gz"
    assert len(MsdDatalist(root=str(root), datalist="dataset_0.json").cases("training")) == 2


def test_msds_labels_may_be_numbers(datalist):
    root = datalist(validation=[{"image": "a.nii.gz", "label": 1}])
    layout = MsdDatalist(
        root=str(root), datalist="dataset_0.json", target=ClassName("label", {"0": "benign", "1": "malignant"})
    )
    assert layout.cases("validation")[0].target.read().values == {"benign": 0, "malignant": 1}


@pytest.mark.parametrize(
    ("lists", "settings", "words"),
    [
        ({"trainin": []}, {}, r"dataset_0\.json: expected a list 'training'; did you mean 'trainin'"),
        ({"training": [{"image": "a"}, 7]}, {}, r"dataset_0\.json, item 2 of 'training': expected an object or a path"),
        ({"training": [{"imge": "a"}]}, {}, r"item 1 of 'training': there is no column 'image'; did you mean 'imge'"),
        ({"training": [{"image": []}]}, {}, r"item 1 of 'training': 'image' is \[\], expected a path"),
        ({"training": [{"image": "a"}]}, {}, r"item 1 of 'training': there is no column 'label'"),
        ({"training": [{"image": "a", "label": "b"}]}, {"fold": 0}, r"item 1 of 'training': there is no column 'fold'"),
    ],
)
def test_a_datalist_that_is_not_understood_names_its_item(datalist, lists, settings, words):
    with pytest.raises(UserError, match=words):
        MsdDatalist(root=str(datalist(**lists)), datalist="dataset_0.json", **settings).cases("training")


def test_a_datalist_with_validation_has_no_folds(datalist):
    with pytest.raises(UsageError, match="no fold to choose"):
        MsdDatalist(root=str(datalist(training=[], validation=[])), datalist="dataset_0.json", fold=0).cases(
            "validation"
        )


@pytest.fixture
def bids(tmp_path):
    for sub, ses in (("01", "1"), ("01", "2"), ("02", "1")):
        folder = f"sub-{sub}/ses-{ses}/anat"
        number = int(sub) * 10 + int(ses)
        save(tmp_path / folder / f"sub-{sub}_ses-{ses}_run-1_T1w.nii.gz", number)
        save(tmp_path / folder / f"sub-{sub}_ses-{ses}_run-1_T2w.nii.gz", 0)
        save(tmp_path / "derivatives/lesions" / folder / f"sub-{sub}_ses-{ses}_run-1_label-lesion_mask.nii.gz", number)
    (tmp_path / "sub-01/ses-1/anat/sub-01_ses-1_run-1_T1w.json").write_text("{}")
    (tmp_path / "participants.tsv").write_text("participant_id\tage\tsex\nsub-01\t40\tF\nsub-02\tn/a\tM\n")
    return tmp_path


MASK = "derivatives/lesions/{folder}/{entities}_label-lesion_mask.nii.gz"


def test_bids_names_are_taken_apart(bids):
    cases = Bids(root=str(bids), suffix="T1w", mask=MASK).cases("test")
    assert ids(cases) == ["sub-01_ses-1_run-1", "sub-01_ses-2_run-1", "sub-02_ses-1_run-1"]
    assert [case.patient for case in cases] == ["sub-01", "sub-01", "sub-02"]
    assert [(level(case.images[0]), level(case.target)) for case in cases] == [(11, 11), (12, 12), (21, 21)]
    assert [case.attributes for case in cases][1:] == [{"age": "40", "sex": "F"}, {"age": "", "sex": "M"}]


def test_entities_choose_among_bids_images(bids):
    assert ids(Bids(root=str(bids), suffix="T1w", mask=MASK, entities={"ses": "2"}).cases("test")) == [
        "sub-01_ses-2_run-1"
    ]
    assert len(Bids(root=str(bids), suffix="T1w", mask=MASK, entities={"ses": ["1", "2"], "run": 1}).cases("test")) == 3


def test_a_bids_name_or_participant_that_is_not_understood_is_named(bids):
    (bids / "participants.tsv").write_text("participant_id\tage\nsub-01\t40\n02\t50\n")
    with pytest.raises(UserError, match=r"participants\.tsv, line 3: column 'participant_id' holds '02'"):
        Bids(root=str(bids), suffix="T1w", mask=MASK).cases("test")
    (bids / "participants.tsv").unlink()
    path = save(bids / "sub-03/anat/sub-03_run1_T1w.nii.gz", 0)
    with pytest.raises(UserError, match=rf"{path.name}: 'run1' is no BIDS entity"):
        Bids(root=str(bids), suffix="T1w", mask=MASK).cases("test")


def test_verses_parts_are_splits_and_its_pieces_belong_to_a_patient(tmp_path):
    for part, name in (
        ("01_training", "sub-verse400_split-verse153"),
        ("01_training", "sub-verse400_split-verse154"),
        ("03_test", "sub-verse521_dir-ax"),
    ):
        sub = name.split("_")[0]
        save(tmp_path / part / "rawdata" / sub / f"{name}_ct.nii.gz", 1)
        (tmp_path / part / "derivatives" / sub).mkdir(parents=True, exist_ok=True)
        (tmp_path / part / "derivatives" / sub / f"{name}_seg-subreg_ctd.json").write_text(
            json.dumps([{"direction": ["R", "A", "S"]}, {"label": 20, "X": 1, "Y": 2, "Z": 3}])
        )
    layout = Bids(
        root=str(tmp_path),
        suffix="ct",
        raw={"train": "01_training/rawdata", "test": "03_test/rawdata"},
        target=VertebraCentroids("{raw}/../derivatives/{folder}/{entities}_seg-subreg_ctd.json"),
    )
    assert [case.patient for case in layout.cases("train")] == ["sub-verse400"] * 2
    (test,) = layout.cases("test")
    np.testing.assert_array_equal(test.target.read().positions, [[1, 2, 3]])


def test_brats_folders_give_four_images_a_case(tmp_path):
    for number, modality in enumerate(("t1n", "t1c", "t2w", "t2f", "seg")):
        save(tmp_path / "BraTS-SSA-00002-000" / f"BraTS-SSA-00002-000-{modality}.nii.gz", number)
    (case,) = Volumes(
        root=str(tmp_path),
        image=[f"{{case}}/{{case}}-{modality}.nii.gz" for modality in ("t1c", "t1n", "t2f", "t2w")],
        mask="{case}/{case}-seg.nii.gz",
        patient=r"{case~^BraTS-\w+-\d{5}}",
    ).cases("test")
    assert (case.id, case.patient) == ("BraTS-SSA-00002-000", "BraTS-SSA-00002")
    assert [level(image) for image in case.images] == [1, 0, 3, 2]
    assert level(case.target) == 4


@pytest.mark.parametrize(
    "layout", [lambda **said: Volumes(image="{case}.nii.gz", **said), lambda **said: Bids(suffix="T1w", **said)]
)
def test_a_truth_that_is_named_twice_is_refused(tmp_path, layout):
    (tmp_path / "case.nii.gz").touch()
    with pytest.raises(UsageError, match="names the truth twice, by `mask` and by `target`"):
        layout(root=str(tmp_path), mask="{case}.nii.gz", target=MaskTarget("{case}.nii.gz")).cases("test")


def test_split_folders_with_patients_in_two_of_them_are_refused(tmp_path):
    for split, name in (("train", "p1_a"), ("test", "p1_b")):
        save(tmp_path / split / f"{name}.nii.gz", 0)
    layout = Volumes(
        root=str(tmp_path),
        image="{split}/{case}.nii.gz",
        patient="{case:.2}",
        target=MaskTarget("{split}/{case}.nii.gz"),
    )
    with pytest.raises(UserError, match=r"'p1' \(test, train\)"):
        layout.cases("test")


def test_a_table_of_paths_names_image_and_mask(tmp_path):
    save(tmp_path / "ct/1.nii.gz", 7)
    save(tmp_path / "seg/one.nii.gz", 1)
    (tmp_path / "paths.csv").write_text("scan,image,mask,fold,pid,sex\ns1,ct/1.nii.gz,seg/one.nii.gz,test,p1,F\n")
    layout = Table(
        root=str(tmp_path),
        table="paths.csv",
        id="scan",
        image="image",
        split="fold",
        patient="pid",
        attributes=["sex"],
        target=MaskTarget("mask"),
    )
    (case,) = layout.cases("test")
    assert (case.id, case.patient, case.attributes, level(case.images[0]), level(case.target)) == (
        "s1",
        "p1",
        {"sex": "F"},
        7,
        1,
    )
    assert list(layout.split_source()) == [str(tmp_path / "paths.csv")]


def test_luna16_joins_nodules_in_mm_to_scans_by_folds(tmp_path):
    affine = np.array([[-1, 0, 0, 50], [0, -1, 0, 60], [0, 0, 2, -100], [0, 0, 0, 1]], float)
    for fold, name in enumerate(("1.3.6.1", "1.3.6.2")):
        (tmp_path / f"subset{fold}").mkdir()
        nib.save(nib.Nifti1Image(np.zeros((8, 8, 8), np.int16), affine), tmp_path / f"subset{fold}/{name}.nii.gz")
    # Voxel (3, 2, 1) of 1.3.6.2 lies at RAS (47, 58, -98), which is LPS (-47, -58, -98).
    (tmp_path / "annotations.csv").write_text("seriesuid,coordX,coordY,coordZ,diameter_mm\n1.3.6.2,-47,-58,-98,5.5\n")
    nodules = PointColumns(["coordX", "coordY", "coordZ"], "lps", name="nodule", value="diameter_mm")
    layout = Volumes(
        root=str(tmp_path),
        image="subset{split}/{case}.nii.gz",
        target=TableTarget("annotations.csv", "seriesuid", nodules, absent="empty"),
    )
    (held,) = layout.cases("1")
    np.testing.assert_allclose(held.target.read().positions, [[3, 2, 1]])
    np.testing.assert_array_equal(held.target.read().values, [5.5])
    (free,) = layout.cases("0")
    assert free.target.read().positions.shape == (0, 3)

"""What other programs wrote: translation of labels, nnU-Net's folders, masks by class."""

import json

import nibabel as nib
import numpy as np
import pytest

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models.class_mapping import known_classes, translation
from medimg_eval.models.precomputed.masks import NnUnetResults, Precomputed
from medimg_eval.models.segmentation.postprocess import KeepLargest
from tests.conftest import AFFINE, SHAPE, ellipsoid

LOBES = {"lung_upper_lobe_left": "lung", "lung_lower_lobe_left": "lung"}
NAMES = {1: "Liver", 2: "lung", 3: "kidney-left"}


def write(path, labels, affine=AFFINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(labels.astype(np.uint8), affine), path)


def ask(model, labels, case="case"):
    prompt = Prompt(case, (), labels)
    model.prepare(labels, lambda: pytest.fail("no image is needed"))
    return model.segment([prompt])[0]


# Lists of classes


@pytest.mark.parametrize(
    ("name", "count", "some"),
    [
        ("totalsegmentator_v2", 117, {5: "liver", 51: "heart", 90: "brain", 117: "costal_cartilages"}),
        ("totalsegmentator_v1", 104, {7: "aorta", 104: "urinary_bladder"}),
        ("totalsegmentator_mr", 50, {10: "lung_left", 50: "brain"}),
        ("mrsegmentator", 40, {12: "heart", 40: "right_gluteus_minimus"}),
        ("amos", 15, {9: "postcava", 15: "prostate/uterus"}),
        ("btcv", 13, {9: "inferior vena cava", 13: "left adrenal gland"}),
        ("abdomenatlas_v1", 9, {1: "aorta", 9: "stomach"}),
    ],
)
def test_the_lists_of_classes_are_whole(name, count, some):
    classes = known_classes(name)
    assert sorted(classes) == list(range(1, count + 1))
    assert some.items() <= classes.items()


def test_a_list_may_be_written_out_and_background_is_left_out():
    assert known_classes(["liver", "spleen"]) == known_classes({0: "background", 1: "liver", "2": "spleen"})
    with pytest.raises(UsageError, match="got 'totalsegmentator'; did you mean"):
        known_classes("totalsegmentator")
    with pytest.raises(UsageError, match="every class of the model once, got the class 'liver' twice"):
        known_classes(["liver", "Liver"])


# Translation


def test_equal_names_match_and_several_classes_may_become_one_label():
    found = translation(known_classes("totalsegmentator_v2"), NAMES, LOBES)
    assert found.targets == {5: 1, 10: 2, 11: 2, 3: 3}
    labels, lost = found.apply(np.array([0, 5, 10, 11, 3, 117, 117, 1]))
    assert labels.tolist() == [0, 1, 2, 2, 3, 0, 0, 0]
    assert lost == {"costal_cartilages": 2, "spleen": 1}
    assert len(found.dropped) == 113


def test_a_class_can_be_dropped_though_its_name_matches():
    assert translation({1: "a", 2: "b"}, {1: "a", 2: "b"}, {"b": None}, ["b"]).targets == {1: 1}


@pytest.mark.parametrize(
    ("to", "lacks", "words"),
    [
        ({"lung_uper_lobe_left": "lung"}, [], "the model has no class 'lung_uper_lobe_left'; did you mean"),
        ({"lung_upper_lobe_left": "lungs"}, [], "the task has no label 'lungs'; did you mean 'lung'"),
        (LOBES, ["live"], "model.translate.lacks: the task has no label 'live'; did you mean 'Liver'"),
        ({}, [], "the task's 'lung' match no class of the model; set model.translate.to"),
    ],
)
def test_names_that_nobody_knows_are_refused_before_anything_is_asked(to, lacks, words):
    with pytest.raises(UsageError, match=words):
        translation(known_classes("totalsegmentator_v2"), NAMES, to, lacks)


def test_a_label_the_model_lacks_must_be_said_to_be_lacking(caplog):
    with caplog.at_level("INFO"):
        translation({1: "liver", 2: "rib"}, NAMES, {}, ["lung", "kidney left"])
    assert "labels that the model has no class for, and so always misses: 'lung', 'kidney left'" in caplog.text
    assert "which become background: 'rib'" in caplog.text


def test_a_label_that_is_said_to_be_lacking_but_has_a_class_is_not_said_to_be_missed(caplog):
    with caplog.at_level("INFO"):
        translation({1: "liver"}, {1: "Liver"}, {}, ["liver"])
    assert "always misses" not in caplog.text


def test_an_integer_that_is_no_class_names_the_file(tmp_path):
    write(tmp_path / "case.nii.gz", np.full((2, 2, 2), 7))
    model = Precomputed(str(tmp_path), translate={"from": ["liver"], "lacks": ["lung", "kidney-left"]})
    with pytest.raises(CaseError, match=r"case\.nii\.gz: holds \[7\], which are no classes of the model: 'liver'"):
        ask(model, NAMES)


@pytest.mark.parametrize("strange", [-1, -(2**31), 2**62])
def test_integers_far_from_any_class_are_named_without_a_table_up_to_them(strange):
    found = translation({1: "liver"}, {1: "liver"})
    with pytest.raises(ValueError, match=rf"holds \[{strange}\], which are no classes of the model"):
        found.apply(np.array([[0, 1, strange]]))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"from": {"liver": 1}}, "from: expected integer: name, got 'liver' for an integer"),
        ({"from": 5}, "from: expected a list's name, integer: name, or names, got 5"),
        ({"from": ["liver"], "to": ["lung"]}, r"model.translate.to to be CLASS: LABEL, got \['lung'\]"),
        ({"from": ["liver"], "to": {1: "lung"}}, "to: the model has no class '1'"),
        ({"from": ["liver"], "lacks": "long"}, "lacks: the task has no label 'long'; did you mean 'lung'"),
    ],
)
def test_translations_that_cannot_be_meant_are_refused(tmp_path, rules, words):
    with pytest.raises(UsageError, match=words):
        ask(Precomputed(str(tmp_path), translate=rules), NAMES)


def test_settings_of_a_translation_are_checked(tmp_path):
    with pytest.raises(UsageError, match="no setting 'form'; did you mean 'from'"):
        Precomputed(str(tmp_path), translate={"form": "amos"})
    with pytest.raises(UsageError, match="expected model.translate.from"):
        Precomputed(str(tmp_path), translate={"to": {"a": "b"}})
    with pytest.raises(UserError, match="expected model.translate.from"):
        Precomputed(str(tmp_path), pattern="{case}/{class}.nii.gz")


def test_mrsegmentators_files_are_found_translated_and_counted(tmp_path):
    labels = ellipsoid(0)
    write(tmp_path / "case_seg.nii.gz", np.array([0, 5, 25])[labels])
    model = Precomputed(
        str(tmp_path), pattern="{case}_seg.nii.gz", translate={"from": "mrsegmentator"}, postprocess=[KeepLargest()]
    )
    mask = ask(model, {3: "liver"})
    np.testing.assert_array_equal(mask.labels, 3 * (labels == 1))
    spine = int((labels == 2).sum())
    assert model.dropped == {"spine": spine}
    assert mask.notes[-1] == f"voxels of classes without a label, now background: spine {spine}"


# One file per class


def test_masks_by_class_are_joined_and_other_classes_not_opened(tmp_path):
    labels = ellipsoid(0)
    for name, where in {"liver": labels == 1, "lung_upper_lobe_left": labels == 2}.items():
        write(tmp_path / "case" / f"{name}.nii.gz", where)
    (tmp_path / "case" / "spleen.nii.gz").write_bytes(b"never read")
    translate = {"from": "totalsegmentator_v2", "to": {"lung_upper_lobe_left": "lung"}, "lacks": ["kidney-left"]}
    translate["to"]["kidney_left"] = None
    model = Precomputed(str(tmp_path), pattern="{case}/{class}.nii.gz", translate=translate)
    mask = ask(model, NAMES)
    np.testing.assert_array_equal(mask.labels, labels)
    np.testing.assert_allclose(mask.affine, AFFINE)
    with pytest.raises(CaseError, match=r"other/liver\.nii\.gz: no prediction for case 'other'"):
        ask(model, NAMES, "other")
    write(tmp_path / "case" / "lung_upper_lobe_left.nii.gz", labels == 2, np.eye(4))
    with pytest.raises(CaseError, match=r"lung_upper_lobe_left\.nii\.gz: another affine.*masks of the other classes"):
        ask(model, NAMES)


# nnU-Net


def nnunet(folder, labels=None, ending=".nii.gz"):
    folder.mkdir(parents=True, exist_ok=True)
    labels = labels or {"background": 0, "rim": 1, "core": 2, "ignore": 3}
    (folder / "dataset.json").write_text(json.dumps({"labels": labels, "file_ending": ending}))
    return folder


TURNED = np.array([0, 2, 1])


def test_predictions_of_nnunet_are_translated_by_its_own_names(tmp_path):
    write(nnunet(tmp_path / "out") / "case.nii.gz", TURNED[ellipsoid(0)])
    mask = ask(NnUnetResults(str(tmp_path / "out")), {1: "core", 2: "rim"})
    np.testing.assert_array_equal(mask.labels, ellipsoid(0))


def test_other_endings_are_read_as_dataset_json_says(tmp_path):
    import SimpleITK

    labels = TURNED[ellipsoid(0)].astype(np.uint8)
    folder = nnunet(tmp_path / "out", ending=".nrrd")
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(labels.T), str(folder / "case.nrrd"))
    np.testing.assert_array_equal(ask(NnUnetResults(str(folder)), {1: "core", 2: "rim"}).labels, ellipsoid(0))


def test_validation_folders_of_all_folds_are_joined(tmp_path):
    model = nnunet(tmp_path / "Dataset001_X" / "nnUNetTrainer__nnUNetPlans__3d_fullres")
    for fold, case in enumerate(["a", "b"]):
        write(model / f"fold_{fold}" / "validation" / f"pre_{case}.nii.gz", TURNED[ellipsoid(fold)])
        (model / f"fold_{fold}" / "validation" / "summary.json").write_text("{}")
    results = NnUnetResults(str(model), pattern="pre_{case}")
    for fold, case in enumerate(["a", "b"]):
        np.testing.assert_array_equal(ask(results, {1: "core", 2: "rim"}, case).labels, ellipsoid(fold))
    with pytest.raises(CaseError, match=r"no fold's validation folder holds pre_b\.nii\.gz"):
        ask(NnUnetResults(str(model), pattern="pre_{case}", folds=[0]), {1: "core", 2: "rim"}, "b")
    with pytest.raises(UserError, match=r"there is no fold_4/validation; the folds are \[0, 1\]"):
        NnUnetResults(str(model), folds=[0, 4])
    np.testing.assert_array_equal(
        ask(NnUnetResults(str(model / "fold_0" / "validation"), "pre_{case}"), {1: "core", 2: "rim"}, "a").labels,
        ellipsoid(0),
    )
    write(model / "fold_1" / "validation" / "pre_a.nii.gz", np.zeros(SHAPE))
    with pytest.raises(UserError, match=r"pre_a\.nii\.gz: this case was also validated in fold_0"):
        NnUnetResults(str(model))


def test_integers_of_regions_are_the_datasets_own(tmp_path):
    regions = {"background": 0, "whole": [1, 2], "inner": [2], "regions_class_order": [1, 2]}
    regions.pop("regions_class_order")
    write(nnunet(tmp_path / "out", regions) / "case.nii.gz", ellipsoid(0))
    np.testing.assert_array_equal(ask(NnUnetResults(str(tmp_path / "out")), {1: "x", 2: "y"}).labels, ellipsoid(0))


def test_a_folder_that_nnunet_did_not_write_is_told_apart(tmp_path):
    with pytest.raises(UserError, match=r"no dataset\.json .* use model=precomputed"):
        ask(NnUnetResults(str(tmp_path)), NAMES)
    with pytest.raises(UserError, match=r"holds neither \*\.nii\.gz nor fold_X/validation"):
        ask(NnUnetResults(str(nnunet(tmp_path))), {1: "core", 2: "rim"})
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(UserError, match=r"dataset\.json: is no JSON"):
        NnUnetResults(str(tmp_path))
    for content in ({"labels": {"0": "background", "1": "rim"}}, {"labels": ["rim"]}, []):
        (tmp_path / "dataset.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=r"dataset\.json: expected `labels` to be name: integer"):
            NnUnetResults(str(tmp_path))

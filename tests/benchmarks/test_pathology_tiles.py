"""Public sets of pathology, over a few files in their authors' layout."""

import h5py
import numpy as np
import pytest

from medimg_eval.data.splits import SplitNames
from medimg_eval.errors import UserError
from tests.helpers.benchmark_files import config, ids, picture, task


def tile(value=200):
    return np.full((6, 6, 3), value, np.uint8)


def truth(case):
    (name,) = [name for name, value in case.target.read().values.items() if value == 1]
    return name


def parts(one):
    return {part: ids(one.cases(part)) for part in ("fit", "validate", "test")}


def test_pcams_tiles_and_labels_lie_in_files_of_their_own(tmp_path):
    for number, split in enumerate(("train", "valid", "test")):
        with h5py.File(tmp_path / f"camelyonpatch_level_2_split_{split}_x.h5", "w") as file:
            file["x"] = np.stack([tile(10 * number), tile(10 * number + 1)])
        with h5py.File(tmp_path / f"camelyonpatch_level_2_split_{split}_y.h5", "w") as file:
            file["y"] = np.array([1, 0], np.uint8).reshape(2, 1, 1, 1)
    one = task("pcam", tmp_path)
    assert parts(one) == {
        part: [f"{split}-{at:06d}" for at in range(2)]
        for part, split in (("fit", "train"), ("validate", "valid"), ("test", "test"))
    }
    cases = one.cases("test")
    assert [truth(case) for case in cases] == ["tumor", "no_tumor"]
    assert [int(case.images[0].read().array.max()) for case in cases] == [20, 21]
    assert cases[0].images[0].read().array.shape == (3, 6, 6)
    with h5py.File(tmp_path / "camelyonpatch_level_2_split_test_y.h5", "a") as file:
        del file["y"]
        file["y"] = np.zeros((3, 1, 1, 1), np.uint8)
    with pytest.raises(UserError, match="x holds 2 images, y 3 labels"):
        one.cases("test")


def test_folders_of_classes_are_split_as_their_authors_or_eva_do(tmp_path):
    for number, name in enumerate(("ADI-A", "ADI-B", "TUM-A")):
        picture(tmp_path / f"crc/NCT-CRC-HE-100K/{name[:3]}/{name}.tif", tile(number))
    picture(tmp_path / "crc/CRC-VAL-HE-7K/TUM/TUM-C.tif", tile(9))
    crc = task("crc_100k", tmp_path / "crc")
    assert [truth(case) for case in crc.cases("test")] == ["TUM"]
    assert len(crc.cases("fit") + crc.cases("validate")) == 3

    for split, name in (("train", "280_N_2"), ("val", "265_N_5"), ("test", "264_N_1")):
        picture(tmp_path / f"bracs/{split}/0_N/BRACS_{name}.png", tile())
    bracs = task("bracs_roi", tmp_path / "bracs")
    assert [(truth(case), case.patient) for case in bracs.cases("test")] == [("0_N", "BRACS_264")]


def test_mhists_table_says_split_and_majority(tmp_path):
    column = "Number of Annotators who Selected SSA (Out of 7)"
    rows = ["a,SSA,6,train", "b,HP,2,train", "c,HP,0,test", "d,SSA,4,test"]
    lines = [f"Image Name,Majority Vote Label,{column},Partition"]
    for row in rows:
        name, rest = row.split(",", 1)
        picture(tmp_path / f"images/MHIST_{name}.png", tile())
        lines.append(f"MHIST_{name}.png,{rest}")
    (tmp_path / "annotations.csv").write_text("\n".join(lines) + "\n")
    one = task("mhist", tmp_path)
    assert [(case.id, truth(case)) for case in one.cases("test")] == [("MHIST_c.png", "HP"), ("MHIST_d.png", "SSA")]
    assert one.cases("test")[1].attributes == {column: "4"}


def test_breakhis_keeps_four_kinds_at_40x_and_parts_patients(tmp_path):
    tested = list(config("breakhis").layout.splits.names.val)
    fitted = [str(number) for number in range(100, 120)]
    held = [("malignant", "ductal_carcinoma", "M_DC", patient, "40X") for patient in [*tested, *fitted]]
    held += [("benign", "adenosis", "B_A", "22549AB", "40X"), ("benign", "fibroadenoma", "B_F", "9133", "100X")]
    for kind, lesion, code, patient, zoom in held:
        folder = tmp_path / f"{kind}/SOB/{lesion}/SOB_{code}_14-{patient}/{zoom}"
        picture(folder / f"SOB_{code}-14-{patient}-{zoom[:-1]}-001.png", tile())
    one = task("breakhis", tmp_path)
    cases = one.cases("test")
    assert {case.patient for case in cases} == set(tested)
    assert {truth(case) for case in cases} == {"DC"}
    assert {case.patient for case in one.cases("fit") + one.cases("validate")} == set(fitted)
    assert one.cases("validate")


def test_bachs_132_pictures_are_those_of_eva(tmp_path):
    # eva's ranges of the sorted files, the first and last of each, and the neighbours outside.
    inside = ["b042", "b059", "b061", "b090", "is040", "is069", "iv041", "iv058", "iv061", "iv073", "n046", "n068"]
    outside = ["b041", "b060", "b091", "is039", "is070", "iv040", "iv059", "iv060", "iv074", "n045", "n069"]
    names = list(config("bach").layout.splits.names.val)
    assert len(names) == 132
    assert set(inside) <= set(names)
    assert not set(outside) & set(names)
    folders = {"b": "Benign", "is": "InSitu", "iv": "Invasive", "n": "Normal"}
    for name in [*names, *outside]:
        picture(tmp_path / folders[name.rstrip("0123456789")] / f"{name}.tif", tile())
    one = task("bach", tmp_path)
    assert {case.images[0].files[0].stem for case in one.cases("test")} == set(names)
    assert truth(one.cases("test")[0]) == "Benign"
    assert len(one.cases("fit") + one.cases("validate")) == len(outside)


def test_gleasons_microarrays_are_splits_and_names_hold_the_class(tmp_path):
    for core, number, label in (
        ("ZT76_39_A_1_2", "00", 0),
        ("ZT76_39_A_1_2", "07", 3),
        ("ZT111_4_B_4_6", "12", 1),
        ("ZT199_1_A_2_2", "5", 1),
        ("ZT204_6_B_7_8", "3", 2),
    ):
        folder = tmp_path / f"train_validation_patches_750/{core}"
        picture(folder / f"{core}_patch_{number}_class_{label}.jpg", tile())
    picture(tmp_path / "test_patches_750/patho_1/ZT80_38_A_1_2/ZT80_38_A_1_2_patch_18_class_1.jpg", tile())
    one = task("gleason_arvaniti", tmp_path)
    assert [(truth(case), case.patient) for case in one.cases("test")] == [
        ("benign", "ZT76_39_A_1_2"),
        ("gleason_5", "ZT76_39_A_1_2"),
    ]
    fitted = one.cases("fit") + one.cases("validate")
    assert sorted(truth(case) for case in fitted) == ["gleason_3", "gleason_3", "gleason_4"]


def test_unitopathos_tables_name_tiles_in_folders_of_classes(tmp_path):
    places = {"train": [("1-B3-HP", "HP", 0), ("2-A1-TVA", "TVA.LG", 5)], "test": [("3-C-NORM", "NORM", 1)]}
    for split, held in places.items():
        lines = ["image_id,mpp,top_label_name,top_label"]
        for slide, name, number in held:
            file = f"{slide}.ndpi_ROI__mpp0.44_reg000_crop_sk00003_(12824,33871,1812,1812).png"
            picture(tmp_path / name / file, tile(number))
            lines.append(f'"{file}",0.44,{name},{number}')
        (tmp_path / f"{split}.csv").write_text("\n".join(lines) + "\n")
    one = task("unitopatho", tmp_path)
    (case,) = one.cases("test")
    assert (truth(case), case.patient, int(case.images[0].read().array.max())) == ("NORM", "3-C-NORM", 1)
    assert {truth(case) for case in one.cases("fit") + one.cases("validate")} == {"HP", "TVA.LG"}


def test_pandas_slides_are_graded_or_their_features_are(tmp_path):
    rows = [f"{at:02x}f,{'karolinska' if at % 2 else 'radboud'},{at % 6},0+0" for at in range(12)]
    (tmp_path / "train.csv").write_text("\n".join(["image_id,data_provider,isup_grade,gleason_score", *rows]) + "\n")
    one = task("panda", tmp_path, layout={"features": "features/{image_id}.npy"})
    cases = [case for part in ("fit", "validate", "test") for case in one.cases(part)]
    assert {case.id: (truth(case), case.attributes["data_provider"]) for case in cases} == {
        f"{at:02x}f": (str(at % 6), "karolinska" if at % 2 else "radboud") for at in range(12)
    }
    assert cases[0].images[0].files[0] == tmp_path / f"features/{cases[0].id}.npy"
    assert task("panda", tmp_path).cases("test")[0].images[0].files[0].suffix == ".tiff"


def test_names_that_no_case_has_are_told(tmp_path):
    for wrong, complaint in (
        (SplitNames({"val": ["b", "x"]}, "train"), "names has 'b', 'x', which no case is called"),
        (SplitNames({"val": ["b"], "test": ["b"]}, "train"), "names has 'b' in two splits"),
    ):
        with pytest.raises(UserError, match=complaint):
            wrong.divide([], tmp_path)

"""Sets that kaiko-ai/eva has and others do not, over a few files in their layout; beside eva's own loaders where it is.

`pip install "kaiko-eva[vision]"` (0.4.5 when this was written) makes the last test run.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import medimg_eval
from tests.helpers.benchmark_files import boxes, config, ids, picture, scores, task, volume

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "evaluate" / "pathology.md"


def truth(case):
    (name,) = [name for name, value in case.target.read().values.items() if value == 1]
    return name


def camelyon16(root, monkeypatch):
    """Empty slides, as only names say what they are; the table is written by the block of the page."""
    held = list(config("camelyon16_slides").layout.splits.names.val)
    for name in [*held, "normal_001", "tumor_111"]:
        path = root / f"training/{name.partition('_')[0]}/{name}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "testing/images").mkdir(parents=True)
    for name in ("test_001", "test_003"):
        (root / f"testing/images/{name}.tif").touch()
    (root / "testing/reference.csv").write_text("test_001,Tumor,IDC,Macro\ntest_003,Normal,None,None\n")
    (block,) = re.findall(r"```python\n(root = Path.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(root.parent)
    exec(block.replace('"/data/camelyon16"', repr(str(root))), {"Path": Path})  # noqa: S102 - the page's own block
    return root


def test_camelyon16s_folders_and_reference_become_a_table(tmp_path, monkeypatch):
    one = task("camelyon16_slides", camelyon16(tmp_path / "c", monkeypatch))
    assert [(case.id, truth(case)) for case in one.cases("test")] == [("test_001", "tumor"), ("test_003", "normal")]
    assert [(case.id, truth(case)) for case in one.cases("fit")] == [("normal_001", "normal"), ("tumor_111", "tumor")]
    held = one.cases("validate")
    assert len(held) == 54
    assert all(truth(case) == case.id.partition("_")[0] for case in held)
    assert held[0].images[0].files[0].is_file()
    stored = task("camelyon16_slides", tmp_path / "c", layout={"features": "features/{slide_id}.h5"})
    assert stored.cases("test")[0].images[0].files[0] == tmp_path / "c/features/test_001.h5"


SLIDES = {"train": "TCGA-A2-A0CM-01Z", "val": "TCGA-BH-A0BG-01Z", "test": "TCGA-OL-A5D6-01Z"}
INSTITUTES = ("BH", "C8", "A8", "A1", "E9", "OL", "LL", "E2", "EW", "GM", "S3", "A2")


def bcss(root):
    """A region of each institute with all 22 values of the masks, a column each."""
    for place, institute in enumerate(INSTITUTES):
        name = f"TCGA-{institute}-A0B{place:X}-01Z-00-DX1_xmin1_ymin2_.png"
        picture(root / f"rgbs_colorNormalized/{name}", np.full((4, 22, 3), place))
        picture(root / f"masks/{name}", np.tile(np.arange(22, dtype=np.uint8), (4, 1)))
    return root


GROUPS = [6, 1, 2, 3, 4, 5, 5, 5, 5, 5, 3, 3, 5, 5, 5, 5, 5, 5, 5, 1, 1, 5]
"""Of the 22 values: tumour 1, 19, 20; stroma 2; inflammation 3, 10, 11; necrosis 4; outside 0; the rest."""


def test_bcss_groups_its_classes_and_parts_institutes(tmp_path):
    one = task("bcss", bcss(tmp_path))
    cases = one.cases("test")
    assert {case.patient[5:7] for case in cases} == {"OL", "LL", "E2", "EW", "GM", "S3"}
    assert {case.patient[5:7] for case in one.cases("validate")} == {"BH", "C8", "A8", "A1", "E9"}
    assert [case.patient for case in one.cases("fit")] == ["TCGA-A2-A0BB"]
    labels = cases[0].target.read().labels.squeeze()
    assert labels[0].tolist() == GROUPS
    published = task("bcss", tmp_path, protocol="published").cases("test")[0].target.read().labels.squeeze()
    assert (published != labels)[0].tolist() == [value == 1 for value in range(22)]
    answer = np.where(labels == 6, 2, labels)  # what lies outside counts for nothing
    assert set(scores(one, cases[0], answer.reshape(cases[0].target.read().labels.shape)).values()) == {1}


def word(root):
    for split, number in (("Tr", 2), ("Tr", 3), ("Val", 1)):
        for part in ("images", "labels"):
            volume(root / f"WORD-V0.1.0/{part}{split}/word_{number:04d}.nii.gz", boxes(at7=np.s_[:2], at13=np.s_[4:6]))
    volume(root / "WORD-V0.1.0/imagesTs/word_0009.nii.gz", boxes())
    return root


def test_word_has_no_labels_of_its_test_scans(tmp_path):
    one = task("word", word(tmp_path) / "WORD-V0.1.0")
    (case,) = one.cases("test")
    assert (case.id, len(one.cases("fit")) + len(one.cases("validate"))) == ("word_0001", 2)
    found = scores(one, case, case.target.read().labels)
    assert {label for label, value in found.items() if value == 1} == {"head of left femur", "gallbladder"}


def flare22(root):
    for number in (*range(1, 12), 13, 50):
        volume(root / f"FLARE22Train/images/FLARE22_Tr_{number:04d}_0000.nii.gz", boxes())
        volume(root / f"FLARE22Train/labels/FLARE22_Tr_{number:04d}.nii.gz", boxes(at1=np.s_[:2], at13=np.s_[4:6]))
    return root


def test_flare22s_first_eleven_are_tested_on(tmp_path):
    one = task("flare22", flare22(tmp_path) / "FLARE22Train")
    cases = one.cases("test")
    assert ids(cases) == [f"FLARE22_Tr_{number:04d}" for number in range(1, 12)]
    assert len(one.cases("fit")) + len(one.cases("validate")) == 2
    found = scores(one, cases[0], cases[0].target.read().labels)
    assert {label for label, value in found.items() if value == 1} == {"liver", "gallbladder"}


def luna25(root):
    """Two nodules of each of six patients, of which the second is malignant."""
    lines = [
        "PatientID,SeriesInstanceUID,StudyDate,CoordX,CoordY,CoordZ,LesionID,AnnotationID,NoduleID,label,Age_at_StudyDate,Gender"
    ]
    for patient in range(6):
        for nodule in (0, 1):
            name = f"{100 + patient}_{nodule + 1}_19990102"
            lines.append(f"{100 + patient},1.2,19990102,0,0,0,{nodule + 1},{name},{patient},{nodule},60,Male")
            for folder in ("image", "metadata"):
                path = root / f"luna25_nodule_blocks/{folder}/{name}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, np.full((4, 8, 8), 10 * patient + nodule, np.int16))
    (root / "LUNA25_Public_Training_Development_Data.csv").write_text("\n".join(lines) + "\n")
    return root


def test_luna25s_nodules_of_a_patient_stay_together(tmp_path):
    one = task("luna25", luna25(tmp_path))
    parts = {part: one.cases(part) for part in ("fit", "validate", "test")}
    patients = {part: {case.patient for case in cases} for part, cases in parts.items()}
    assert sum(map(len, patients.values())) == 6
    assert all(len(cases) == 2 * len(patients[part]) for part, cases in parts.items())
    case = parts["test"][1]
    assert (truth(case), int(case.images[0].read().array.max()) % 10) == ("malignant", 1)
    assert case.images[0].read().array.shape == (1, 8, 8, 4)  # x, y, z


def cc_ccii(root):
    rows = {"train": [(1, 10, 0), (1, 11, 0), (2, 20, 1)], "valid": [(3, 30, 2), (4, 40, 1)]}
    for part, held in rows.items():
        lines = ["patient_id,scan_id,target", *(",".join(map(str, row)) for row in held)]
        (root / f"CC_CCII_fold0_{part}.csv").write_text("\n".join(lines) + "\n")
        for patient, scan, _ in held:
            path = root / f"CC-CCII_public/data/p{patient}-s{scan}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, scan + np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
    return root


def test_cc_cciis_tables_are_its_parts(tmp_path):
    one = task("cc_ccii", cc_ccii(tmp_path))
    cases = one.cases("test")
    assert [(case.id, truth(case), case.patient) for case in cases] == [
        ("p3-s30", "class 2", "3"),
        ("p4-s40", "class 1", "4"),
    ]
    assert cases[0].images[0].read().array[0, :, 0, 0].tolist() == [30, 31, 32, 33, 34]  # x runs fastest
    assert len(one.cases("fit") + one.cases("validate")) == 3


def test_evas_own_loaders_read_the_same(tmp_path, monkeypatch):
    theirs = pytest.importorskip("eva.vision.data.datasets", reason="needs kaiko-eva[vision]", exc_type=ImportError)
    for name in ("c", "b", "w", "f", "l", "p"):
        (tmp_path / name).mkdir()
    parts = {"fit": "train", "validate": "val", "test": "test"}

    root = camelyon16(tmp_path / "c", monkeypatch)
    one = task("camelyon16_slides", root)
    for part, split in parts.items():
        made = object.__new__(theirs.Camelyon16)
        made._root, made._split = str(root), split
        made._file_paths = made._load_file_paths(split)
        own = {case.id: truth(case) for case in one.cases(part)}
        assert own == {name: label for name, label in made.annotations.items() if name in own}
        assert sorted(own) == [Path(path).stem for path in made._file_paths]

    root = bcss(tmp_path / "b")
    one = task("bcss", root)
    monkeypatch.setattr(theirs.BCSS, "_expected_length", len(INSTITUTES))
    for part, split in parts.items():
        made = object.__new__(theirs.BCSS)
        made._root = str(root)
        assert [case.images[0].files[0].name for case in one.cases(part)] == [
            Path(path).name for path in made._load_file_paths(split)
        ]
    labels = one.cases("test")[0].target.read().labels.squeeze()
    grouped = made._map_classes(np.arange(22))
    assert np.flatnonzero(grouped != np.where(labels[0] == 6, 0, labels[0])).tolist() == [1]  # their table lacks tumor
    published = task("bcss", root, protocol="published").cases("test")[0].target.read().labels.squeeze()
    np.testing.assert_array_equal(grouped, np.where(published[0] == 6, 0, published[0]))

    for name, kind, root, split, classes in (
        ("word", theirs.WORD, word(tmp_path / "w"), "val", 16),
        ("flare22", theirs.FLARE22, flare22(tmp_path / "f"), "val", 13),
    ):
        made = kind(str(root), split=split)
        made.configure()
        one = task(name, next(path for path in root.iterdir()))
        assert [case.images[0].files[0].name for case in one.cases("test")] == [
            made.filename(place) for place in range(len(one.cases("test")))
        ]
        named = list(config(name).labels.values())
        assert len(named) == len(made.classes) - 1 == classes
        other = {"Head_of_femur_L": "head of left femur", "Head_of_femur_R": "head of right femur"}
        assert named == [other.get(label, label.lower().replace("_", " ")) for label in made.classes[1:]]

    made = theirs.CC_CCII(str(cc_ccii(tmp_path / "p")), split="val")
    made.configure()
    cases = task("cc_ccii", tmp_path / "p").cases("test")
    assert [f"class {int(made.load_target(place))}" for place in range(2)] == [truth(case) for case in cases]
    np.testing.assert_array_equal(np.asarray(made.load_data(0))[:, 0].T, cases[0].images[0].read().array[0])

    whole = type("Whole", (theirs.LUNA25,), {"filename": lambda self, index: ""})  # theirs lacks it, and is abstract
    made = whole(str(luna25(tmp_path / "l")), split="test")
    made.configure()
    assert len(made) == 12  # all nodules, whatever the split: see the card
    own = {case.id: truth(case) for part in parts for case in task("luna25", tmp_path / "l").cases(part)}
    assert own == {
        row.AnnotationID: ("benign", "malignant")[int(made.load_target(place))]
        for place, row in enumerate(made._candidates.itertuples())
    }

"""Published sets of classes, over a few files in their authors' layout."""

import csv
import gzip

import nibabel as nib
import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.errors import UserError
from medimg_eval.models import Classifier
from medimg_eval.results import build_table, load_runs
from tests.helpers.benchmark_files import config, ids, picture, task
from tests.helpers.config_files import composed_config
from tests.helpers.dicom_fixtures import still

SHAPE = (12, 10)


def grey(value):
    return np.full(SHAPE, value, np.uint8)


def truth(case):
    return {name for name, value in case.target.read().values.items() if value == 1}


def test_nihs_lists_and_labels_of_the_official_split(tmp_path):
    header = (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
        "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
    )
    said = ["No Finding", "Cardiomegaly|Pleural_Thickening", "Hernia", "Effusion"]
    rows = []
    for number, labels in enumerate(said, start=1):
        name = f"{number:08d}_000.png"
        picture(tmp_path / f"images_{number:03d}/images/{name}", grey(number))
        rows.append(f"{name},{labels},0,{number},0{number}8,F,PA,2682,2749,0.143,0.143")
    (tmp_path / "Data_Entry_2017_v2020.csv").write_text("\n".join([header, *rows]) + "\n")
    (tmp_path / "train_val_list.txt").write_text("00000003_000.png\n00000004_000.png\n")
    (tmp_path / "test_list.txt").write_text("00000002_000.png\n00000001_000.png\n")
    one = task("nih_chestxray14", tmp_path)
    cases = one.cases("test")
    assert ids(cases) == ["00000002_000.png", "00000001_000.png"]
    assert [truth(case) for case in cases] == [{"Cardiomegaly", "Pleural_Thickening"}, set()]
    assert list(cases[0].target.read().values) == one.classes
    assert cases[0].patient == "00000002"
    assert cases[0].attributes == {"Patient Gender": "F", "Patient Age": "028", "View Position": "PA"}
    assert int(cases[0].images[0].read().array.max()) == 2
    assert sorted(ids(one.cases("fit")) + ids(one.cases("validate"))) == ["00000003_000.png", "00000004_000.png"]


def chexpert(root, rows, split, classes):
    lines = ["Path,Sex,Age,Frontal/Lateral,AP/PA," + ",".join(classes)]
    for study, views, told in rows:
        for number, view in enumerate(views, start=1):
            path = f"CheXpert-v1.0-small/{split}/{study}/view{number}_{view}.jpg"
            picture(root / path, grey(10 * number))
            cells = ",".join(told.get(name, "") for name in classes)
            lines.append(f"{path},Male,61,{view.title()},AP,{cells}")
    (root / f"CheXpert-v1.0-small/{split}.csv").write_text("\n".join(lines) + "\n")


def test_chexperts_views_are_one_study_and_uncertain_ones_follow_the_policy(tmp_path):
    classes = list(config("chexpert").classes)
    told = {"Atelectasis": "-1.0", "Edema": "-1.0", "Pneumonia": "-1.0", "Fracture": "1.0", "Cardiomegaly": "0.0"}
    train = [(f"patient{n:05d}/study1", ["frontal"], told) for n in range(1, 4)]
    chexpert(tmp_path, train, "train", classes)
    every = dict.fromkeys(classes, "0.0") | {"Edema": "1.0"}
    chexpert(tmp_path, [("patient64541/study1", ["frontal", "lateral"], every)], "valid", classes)
    one = task("chexpert", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient, len(case.images)) == ("patient64541/study1", "patient64541", 2)
    assert truth(case) == {"Edema"}
    assert case.attributes == {"Sex": "Male", "Age": "61"}
    learned = (one.cases("fit") + one.cases("validate"))[0].target.read().values
    assert (learned["Atelectasis"], learned["Edema"], learned["Fracture"], learned["Cardiomegaly"]) == (1, 1, 1, 0)
    assert np.isnan(learned["Pneumonia"])
    assert learned["Lung Lesion"] == 0  # a blank
    assert one.facts["class_sets"]["competition"][0] == "Atelectasis"


def test_isics_lesions_come_from_three_tables(tmp_path):
    codes = ["MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC"]
    for number, split in enumerate(("Training", "Validation", "Test")):
        folder = tmp_path / f"ISIC2018_Task3_{split}_GroundTruth"
        folder.mkdir()
        name = f"ISIC_{number:07d}"
        cells = ",".join("1.0" if place == number else "0.0" for place in range(7))
        (folder / f"{folder.name}.csv").write_text(f"image,{','.join(codes)}\n{name},{cells}\n")
        picture(tmp_path / f"ISIC2018_Task3_{split}_Input/{name}.jpg", np.zeros((*SHAPE, 3)))
    one = task("isic2018_task3", tmp_path)
    found = {part: one.cases(part)[0] for part in ("fit", "validate", "test")}
    assert [case.id for case in found.values()] == ["ISIC_0000000", "ISIC_0000001", "ISIC_0000002"]
    assert [truth(case) for case in found.values()] == [
        {"melanoma"},
        {"melanocytic nevus"},
        {"basal cell carcinoma"},
    ]
    assert set(found["test"].target.read().values) == set(one.classes)
    assert found["test"].images[0].read().array.shape == (3, *SHAPE)


# What a file of the authors holds: its name, the axes of an image, the class of each number (medmnist 3.0.2, info.py).
MEDMNIST = {
    "path": ("pathmnist", (28, 28, 3), 9, {8: "colorectal adenocarcinoma epithelium", 0: "adipose"}),
    "derma": ("dermamnist", (28, 28, 3), 7, {4: "melanoma", 5: "melanocytic nevi"}),
    "oct": ("octmnist", (28, 28), 4, {1: "diabetic macular edema", 3: "normal"}),
    "pneumonia": ("pneumoniamnist", (28, 28), 2, {1: "pneumonia", 0: "normal"}),
    "retina": ("retinamnist", (28, 28, 3), 5, {4: "4", 1: "1"}),
    "breast": ("breastmnist", (28, 28), 2, {0: "malignant", 1: "normal or benign"}),
    "blood": ("bloodmnist", (28, 28, 3), 8, {7: "platelet", 3: "immature granulocytes"}),
    "tissue": ("tissuemnist", (28, 28), 8, {0: "Collecting Duct, Connecting Tubule", 5: "Podocytes"}),
    "organa": ("organamnist", (28, 28), 11, {0: "bladder", 6: "liver"}),
    "organc": ("organcmnist", (28, 28), 11, {3: "heart", 10: "spleen"}),
    "organs": ("organsmnist", (28, 28), 11, {4: "kidney-left", 9: "pancreas"}),
    "organ3d": ("organmnist3d", (28, 28, 28), 11, {0: "liver", 10: "pancreas"}),
    "nodule3d": ("nodulemnist3d", (28, 28, 28), 2, {0: "benign", 1: "malignant"}),
    "adrenal3d": ("adrenalmnist3d", (28, 28, 28), 2, {0: "normal", 1: "hyperplasia"}),
    "fracture3d": ("fracturemnist3d", (28, 28, 28), 3, {0: "buckle rib fracture", 2: "displaced rib fracture"}),
    "vessel3d": ("vesselmnist3d", (28, 28, 28), 2, {0: "vessel", 1: "aneurysm"}),
    "synapse3d": ("synapsemnist3d", (28, 28, 28), 2, {0: "inhibitory synapse", 1: "excitatory synapse"}),
}


def medmnist(path, shape, labels):
    held = {f"{split}_labels": np.asarray(labels, np.uint8) for split in ("train", "val", "test")}
    for place, split in enumerate(("train", "val", "test")):
        held[f"{split}_images"] = np.full((len(labels), *shape), place, np.uint8)
    np.savez(path, **held)


@pytest.mark.parametrize("name", MEDMNIST)
def test_medmnists_numbers_are_classes(name, tmp_path):
    file, shape, count, classes = MEDMNIST[name]
    medmnist(tmp_path / f"{file}.npz", shape, [[number] for number in classes])
    one = task(f"medmnist_{name}", tmp_path)
    assert len(one.classes) == count
    cases = one.cases("test")
    assert [truth(case) for case in cases] == [{word} for word in classes.values()]
    image = cases[0].images[0].read()
    assert image.array.shape == ((3, *shape[:2]) if shape[-1] == 3 else (1, *shape))
    assert int(image.array.max()) == 2
    assert int(one.cases("validate")[0].images[0].read().array.max()) == 1


def test_medmnists_chest_has_a_column_for_each_finding(tmp_path):
    rows = np.eye(14, dtype=np.uint8)[[12, 13]] | np.eye(14, dtype=np.uint8)[[0, 13]]
    medmnist(tmp_path / "chestmnist.npz", (28, 28), rows)
    cases = task("medmnist_chest", tmp_path).cases("test")
    assert [truth(case) for case in cases] == [{"atelectasis", "pleural"}, {"hernia"}]


def write_brain_tumours(root):
    for split in ("Training", "Testing"):
        for name in ("glioma", "meningioma", "notumor", "pituitary"):
            picture(root / split / name / f"{split[:2]}-{name[:2]}_0001.jpg", np.zeros((*SHAPE, 3)))


def test_the_folders_of_the_brain_tumour_set_are_classes(tmp_path):
    write_brain_tumours(tmp_path)
    one = task("brain_tumour_mri", tmp_path)
    cases = one.cases("test")
    assert [next(iter(truth(case))) for case in cases] == one.classes
    assert cases[0].id == "Testing/glioma/Te-gl_0001.jpg"
    assert len(one.cases("fit")) + len(one.cases("validate")) == 4


def test_a_count_that_is_not_the_published_one_is_told(tmp_path):
    np.savez(
        tmp_path / "pneumoniamnist.npz",
        **{f"{split}_images": np.zeros((1, 28, 28), np.uint8) for split in ("train", "val", "test")},
        **{f"{split}_labels": np.zeros((1, 1), np.uint8) for split in ("train", "val", "test")},
    )
    one = task("medmnist_pneumonia", tmp_path, expected={"test": 624})
    with pytest.raises(UserError, match="expected 624 cases in split 'test', found 1"):
        one.cases("test")


def write_vindr_mammo(root):
    """Three studies of four views each."""
    header = "study_id,series_id,image_id,laterality,view_position,height,width,breast_birads,breast_density,split"
    rows = []
    for study, split, grades in (("s1", "test", "15"), ("s2", "training", "22"), ("s3", "training", "34")):
        (root / "images" / study).mkdir(parents=True)
        for side, grade in zip("LR", grades, strict=True):
            for view in ("CC", "MLO"):
                name = f"{study}{side}{view}"
                still(root / f"images/{study}/{name}.dicom", Modality="MG")
                rows.append(f"{study},x,{name},{side},{view},9,8,BI-RADS {grade},DENSITY B,{split}")
    (root / "breast-level_annotations.csv").write_text("\n".join([header, *rows]) + "\n")


def test_vindrs_breasts_have_their_grade_on_each_view(tmp_path):
    write_vindr_mammo(tmp_path)
    one = task("vindr_mammo", tmp_path)
    cases = one.cases("test")
    assert ids(cases) == ["s1LCC", "s1LMLO", "s1RCC", "s1RMLO"]
    assert [truth(case) for case in cases] == [{"BI-RADS 1"}] * 2 + [{"BI-RADS 5"}] * 2
    assert {case.patient for case in cases} == {"s1"}
    assert cases[1].attributes == {"laterality": "L", "view_position": "MLO", "breast_density": "DENSITY B"}
    assert not one.check_case(cases[0]).doubts


PAD = ["ACK", "BCC", "MEL", "NEV", "SCC", "SEK"] * 2
"""What each picture shows; two of them are of a patient."""


def write_pad_ufes(root):
    columns = "patient_id,lesion_id,smoke,age,fitspatrick,gender,region,diagnostic,img_id,biopsed"
    rows = []
    for number, kind in enumerate(PAD):
        patient = f"PAT_{number // 2}"
        name = f"{patient}_{number}_7.png"
        picture(root / f"images/imgs_part_{1 + number % 3}/{name}", np.full((4, 5, 3), number, np.uint8))
        rows.append(f"{patient},{number},False,50,2.0,MALE,ARM,{kind},{name},True")
    (root / "metadata.csv").write_text("\n".join([columns, *rows]) + "\n")


def test_pads_pictures_lie_in_three_folders_and_patients_in_one_fold(tmp_path):
    write_pad_ufes(tmp_path)
    one = task("pad_ufes_20", tmp_path)
    cases = one.cases("test")
    whole = {f"PAT_{number // 2}_{number}_7.png": one.layout.target.classes[kind] for number, kind in enumerate(PAD)}
    assert all(truth(case) == {whole[case.id]} for case in cases)
    assert not {case.patient for case in cases} & {case.patient for case in one.cases("fit")}
    number = int(cases[0].id.split("_")[2])
    assert int(cases[0].images[0].read().array.max()) == number


def test_swinchexs_lists_have_a_column_for_each_finding(tmp_path):
    classes = list(config("swinchex_nih").classes)
    (tmp_path / "configs/NIH").mkdir(parents=True)
    for number, split in enumerate(("train", "validation", "test")):
        name = f"{number:08d}_000.png"
        picture(tmp_path / f"images_001/images/{name}", grey(number))
        cells = ",".join("1" if at in (number, 13) else "0" for at in range(14))
        (tmp_path / f"configs/NIH/{split}.csv").write_text(f"Image Index,{','.join(classes)}\n{name},{cells}\n")
    one = task("swinchex_nih", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient, truth(case)) == ("00000002_000.png", "00000002", {"Consolidation", "Pneumothorax"})
    assert ids(one.cases("validate")) == ["00000001_000.png"]


def test_half_of_the_classes_is_a_task_of_its_own(tmp_path):
    from dataclasses import replace

    medmnist(tmp_path / "bloodmnist.npz", (28, 28, 3), [[number] for number in range(8)])
    base, novel = (task("medmnist_blood", tmp_path, half=half) for half in ("base", "novel"))
    assert (base.name, novel.name, base.classes[-1], novel.classes[0]) == (
        "medmnist_blood_base",
        "medmnist_blood_novel",
        "immature granulocytes",
        "lymphocyte",
    )
    assert ids(base.cases("test")) == [f"test-{number:06d}" for number in range(4)]
    assert ids(novel.cases("fit")) == [f"train-{number:06d}" for number in range(4, 8)]
    assert len(base.prompt(base.cases("test")[0], ()).options) == 4
    again = replace(novel)
    assert (again.name, again.classes) == (novel.name, novel.classes)
    with pytest.raises(UserError, match="half needs four classes"):
        replace(task("medmnist_pneumonia", tmp_path), half="base")


def corrupted(folder, names):
    """Files of two pictures, of which each holds its own number."""
    folder.mkdir(parents=True)
    for value, name in enumerate(names):
        images = np.full((2, 28, 28, 3), value, np.uint8)
        np.savez(folder / f"{name}.npz", images=images, labels=np.array([[7], [0]]))


def test_a_corrupted_set_has_a_file_for_each_corruption(tmp_path):
    corrupted(tmp_path / "bloodmnist/test", ("clean", "fog_severity_3"))
    clean, fog = (
        task("medmnist_c_blood", tmp_path, splits={"test": split}).cases("test")
        for split in ("clean", "fog_severity_3")
    )
    assert [truth(case) for case in clean] == [truth(case) for case in fog] == [{"platelet"}, {"basophil"}]
    assert [int(case.images[0].read().array.max()) for case in (clean[0], fog[0])] == [0, 1]
    with pytest.raises(UserError, match="no case of split 'frost_severity_1'"):
        task("medmnist_c_blood", tmp_path, splits={"test": "frost_severity_1"}).cases("test")


def test_all_files_of_a_corrupted_set_are_one_split_of_the_same_pictures(tmp_path):
    names = ["clean", *(f"{name}_severity_{severity}" for name in ("fog", "pixelate") for severity in range(1, 6))]
    corrupted(tmp_path / "bloodmnist/test", names)
    cases = task("medmnist_c_blood", tmp_path).cases("test")
    assert len(cases) == 22
    for case in cases:
        name = case.id.rpartition("-")[0]
        assert int(case.images[0].read().array.max()) == names.index(name)
        kind, _, level = name.partition("_severity_")
        assert (case.attributes["corruption"], case.attributes["severity"]) == (kind, level or "0")
    assert {case.patient for case in cases} == {"000000", "000001"}
    few = {**config("medmnist_c_blood")["layout"], "root": str(tmp_path), "corruptions": ["fog"]}
    assert len(task("medmnist_c_blood", tmp_path, layout=few).cases("test")) == 12
    with pytest.raises(UserError, match="no file of 'snow_severity_1'"):
        task("medmnist_c_blood", tmp_path, layout={**few, "corruptions": ["snow"]}).cases("test")


class ByCorruption(Classifier):
    """Right of clean pictures, and of those of fog up to severity 2."""

    uses_torch = False

    def classify(self, prompts):
        """Returns the probability of each class."""
        made = []
        for prompt in prompts:
            value, truth_of = int(prompt.images[0].array.max()), int(prompt.case_id.endswith("1"))
            right = value <= 2
            names = list(prompt.options.values())
            chosen = names[0] if truth_of == right else names[-1]
            made.append({name: float(name == chosen) for name in names})
        return made


def test_the_mean_corruption_error_is_one_number_of_one_run(tmp_path):
    names = ["clean", *(f"{name}_severity_{severity}" for name in ("fog", "pixelate") for severity in range(1, 6))]
    corrupted(tmp_path / "bloodmnist/test", names)
    facts = {"reference_errors": {"fog": 0.5, "pixelate": 0.8}}
    wanted = ["top1_accuracy", "corruption_error", "mean_corruption_error"]
    made = task("medmnist_c_blood", tmp_path, metrics=wanted, facts=facts)
    me.test(made, ByCorruption(), run=tmp_path / "run")
    (row,) = build_table(load_runs([tmp_path / "run"]), resamples=50).rows
    # Right of 3 of 11 files; fog fails in 3 of 5 severities, pixelate in all.
    assert [cell.mean for cell in row.cells] == pytest.approx([3 / 11, 80, 100 * (0.6 / 0.5 + 1 / 0.8) / 2])
    by_kind = build_table(load_runs([tmp_path / "run"]), metrics=["corruption_error"], by="corruption", resamples=20)
    found = {row.group: row.cells[0].mean for row in by_kind.rows}
    assert (found["fog"], found["pixelate"]) == pytest.approx((60, 100))


def test_t3s_splits_are_a_suite_of_three_tasks():
    for name in ("cells", "fundus", "oct", "breast"):
        tasks = composed_config(f"suite/t3_{name}")["tasks"]
        assert [one["title"] for one in tasks.values()] == ["In domain", "Base to novel", "Corrupted"]
        assert [one["splits"]["test"] for one in tasks.values()] == ["test", "clean", "swept"]


def test_ct_rates_labels_and_volumes_lie_in_its_folders(tmp_path):
    classes = task("ct_rate_findings", tmp_path).classes
    rows = {"valid": ["valid_1_a_1.nii.gz", "valid_1_a_2.nii.gz"], "train": ["train_7_b_1.nii.gz"]}
    for split, names in rows.items():
        path = tmp_path / f"dataset/multi_abnormality_labels/{split}_predicted_labels.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [",".join([name, *("1" if place == 2 else "0" for place in range(18))]) for name in names]
        path.write_text("\n".join([",".join(["VolumeName", *classes]), *lines]) + "\n")
        for name in names:
            patient, scan = "_".join(name.split("_")[:2]), "_".join(name.split("_")[:3])
            volume = tmp_path / f"dataset/{split}_fixed/{patient}/{scan}/{name}"
            volume.parent.mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(np.full((3, 4, 5), 40, np.int16), np.eye(4)), volume)
    found = task("ct_rate_findings", tmp_path).cases("test")
    assert ids(found) == ["valid_1_a_1", "valid_1_a_2"]
    assert {case.patient for case in found} == {"valid_1"}
    assert truth(found[0]) == {"Cardiomegaly"}
    assert found[0].images[0].read().array.shape == (1, 3, 4, 5)


def write_cbis_ddsm(root, kind):
    columns = ["patient_id", "breast_density", "left or right breast", "image view", "abnormality id", "pathology"]
    columns += ["assessment", "subtlety", "image file path", "cropped image file path", "ROI mask file path"]
    for part, grades in {"train": ["BENIGN"] * 10, "test": ["MALIGNANT", "BENIGN_WITHOUT_CALLBACK"]}.items():
        rows = [columns]
        for number, grade in enumerate(grades):
            patient = f"P_{'01' if part == 'test' else '00'}00{number}"
            file = f"{kind.title()}-{part.title()}_{patient}_LEFT_CC_1/1.3.6/1.3.7/000001.dcm"
            picture(root / file.replace(".dcm", ".png"), grey(number))
            cells = [patient, "3", "LEFT", "CC", "1", grade, "4", "4", "full.dcm"]
            rows.append([*cells, file.replace(".dcm", ".png") + "\n" * (number % 2), "mask.dcm"])
        with (root / f"{kind}_case_description_{part}_set.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows(rows)


@pytest.mark.parametrize(("name", "kind"), [("cbis_ddsm_mass", "mass"), ("cbis_ddsm_calcification", "calc")])
def test_cbis_ddsms_lesions_have_their_pathology(name, kind, tmp_path):
    write_cbis_ddsm(tmp_path, kind)
    one = task(name, tmp_path)
    cases = one.cases("test")
    assert ids(cases) == ["P_01000_LEFT_CC_1", "P_01001_LEFT_CC_1"]
    assert [truth(case) for case in cases] == [{"malignant"}, {"benign without callback"}]
    assert [int(case.images[0].read().array.max()) for case in cases] == [0, 1]
    assert len(one.cases("fit")) + len(one.cases("validate")) == 10


def write_mimic_conditions(root):
    lines = ["dicom_id,study_id,subject_id,split"]
    for number, (study, split) in enumerate((("50", "train"), ("51", "validate"), ("52", "test"), ("52", "test"))):
        picture(root / f"files/p10/p1000003{study[1]}/s{study}/d{number}.jpg", grey(number))
        lines.append(f"d{number},{study},1000003{study[1]},{split}")
    (root / "mimic-cxr-2.0.0-split.csv").write_text("\n".join(lines) + "\n")
    labels = "subject_id,study_id,Atelectasis,Cardiomegaly,Consolidation,Edema,Pleural Effusion,Pneumonia\n"
    labels += "10000030,50,1.0,,,,,\n10000032,52,0.0,1.0,-1.0,,1.0,1.0\n"
    with gzip.open(root / "mimic-cxr-2.0.0-chexpert.csv.gz", "wt") as stream:
        stream.write(labels)


def test_mimics_studies_have_the_labels_of_their_reports(tmp_path):
    write_mimic_conditions(tmp_path)
    one = task("mimic_cxr_conditions", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient, len(case.images)) == ("52", "10000032", 2)
    values = case.target.read().values
    assert truth(case) == {"Cardiomegaly", "Pleural Effusion"}
    assert np.isnan(values["Consolidation"])
    assert (values["Atelectasis"], values["Edema"], len(values)) == (0, 0, 5)
    assert truth(one.cases("validate")[0]) == set()  # without a row


def write_tuberculosis(root, folder, prefix):
    for number, digit in enumerate((0, 1, 1)):
        picture(root / folder / "CXR_png" / f"{prefix}_000{number}_{digit}.png", grey(number))


@pytest.mark.parametrize(
    ("name", "folder", "prefix"),
    [("montgomery_tb", "MontgomerySet", "MCUCXR"), ("shenzhen_tb", "ChinaSet_AllFiles", "CHNCXR")],
)
def test_the_last_digit_of_a_name_says_tuberculosis(name, folder, prefix, tmp_path):
    write_tuberculosis(tmp_path, folder, prefix)
    cases = task(name, tmp_path).cases("test")
    assert [truth(case) for case in cases] == [{"normal"}, {"tuberculosis"}, {"tuberculosis"}]
    assert cases[1].id == f"{folder}/CXR_png/{prefix}_0001_1.png"

"""Tables of images and folders of pictures, in the authors' own layouts."""

import base64
import io
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import FolderPerClass, Llava, PairedFolders, R2Gen, Slides, Table
from medimg_eval.data.splits import SplitColumns, SplitTable
from medimg_eval.data.targets import (
    BoxColumns,
    ClassColumns,
    ClassName,
    MaskTarget,
    ReportText,
    RunLength,
    SurvivalColumns,
)
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.store import FeatureStore, Item
from tests.helpers.feature_stores import trident


def picture(path, level, shape=(4, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.full(shape, level, np.uint8)).save(path)
    return path


def level(reference):
    return int(np.unique(reference.read().array).item())


NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height]"
)


def test_nih_chest_x_rays(tmp_path):
    picture(tmp_path / "images/00000001_000.png", 1)
    picture(tmp_path / "images/00000002_000.png", 2)
    rows = [
        "00000001_000.png,Cardiomegaly|Effusion,0,1,58,M,PA,2682,2749",
        "00000002_000.png,No Finding,0,2,81,F,AP,2500,2048",
    ]
    (tmp_path / "Data_Entry_2017.csv").write_text("\n".join([NIH, *rows]) + "\n")
    layout = Table(
        root=str(tmp_path),
        table="Data_Entry_2017.csv",
        image="images/{Image Index}",
        id="Image Index",
        patient="{Image Index:.8}",
        attributes=["Patient Gender", "View Position"],
        modality="DX",
        target=ClassName("Finding Labels", ["Cardiomegaly", "Effusion"], "|", "No Finding"),
    )
    first, second = layout.cases("test")
    assert (first.id, first.patient) == ("00000001_000.png", "00000001")
    assert first.target.read().values == {"Cardiomegaly": 1, "Effusion": 1}
    assert second.target.read().values == {"Cardiomegaly": 0, "Effusion": 0}
    assert second.attributes == {"Patient Gender": "F", "View Position": "AP"}
    assert (level(second.images[0]), second.images[0].read().modality) == (2, "DX")


def test_chexperts_views_of_a_study_are_one_case(tmp_path):
    header = "Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Pneumonia"
    for split, patient in (("train", "patient00001"), ("valid", "patient64541")):
        rows = []
        for number, view in enumerate(("frontal", "lateral"), start=1):
            path = f"CheXpert-v1.0-small/{split}/{patient}/study1/view{number}_{view}.jpg"
            picture(tmp_path / path, 10 * number)
            rows.append(f"{path},Female,68,{view.title()},{'AP' if number == 1 else ''},-1.0,")
        (tmp_path / f"{split}.csv").write_text("\n".join([header, *rows]) + "\n")
    settings = {
        "root": str(tmp_path),
        "table": {"train": "train.csv", "valid": "valid.csv"},
        "image": "Path",
        "patient": r"{Path~patient\d+}",
        "target": ClassColumns(["Edema", "Pneumonia"], uncertain="U-Ones", blank="zeros"),
    }
    one, _ = Table(**settings).cases("valid")
    assert (one.patient, one.id) == ("patient64541", "CheXpert-v1.0-small/valid/patient64541/study1/view1_frontal.jpg")
    (frontal,) = Table(**settings, where={"Frontal/Lateral": "Frontal"}).cases("valid")
    assert level(frontal.images[0]) == 10
    studies = Table(**settings, id=r"{Path~patient\d+/study\d+}").cases("valid")
    assert [(study.id, [level(image) for image in study.images]) for study in studies] == [
        ("patient64541/study1", [10, 20])
    ]
    assert studies[0].target.read().values == {"Edema": 1, "Pneumonia": 0}
    assert set(Table(**settings).split_source()) == {str(tmp_path / "train.csv"), str(tmp_path / "valid.csv")}


def test_rows_of_a_case_must_agree_on_its_split(tmp_path):
    (tmp_path / "t.csv").write_text("id,split,label\na,train,x\na,test,x\n")
    with pytest.raises(UserError, match=r"t\.csv, line 3: puts case 'a' to split 'test', which line 2 puts to 'train'"):
        Table(root=str(tmp_path), table="t.csv", id="id", split="split", target=ClassName("label", ["x"])).cases("test")


def test_rsnas_rows_are_boxes_of_an_image(tmp_path):
    picture(tmp_path / "images/a.png", 1)
    picture(tmp_path / "images/b.png", 2)
    (tmp_path / "stage_2_train_labels.csv").write_text(
        "patientId,x,y,width,height,Target\nb,,,,,0\na,2,1,2,3,1\na,0,0,1,1,1\n"
    )
    layout = Table(
        root=str(tmp_path),
        table="stage_2_train_labels.csv",
        image="images/{patientId}.png",
        id="patientId",
        target=BoxColumns(["x", "y", "width", "height"], "sizes", name="opacity"),
    )
    none, two = layout.cases("test")
    assert (none.id, len(none.target.read().names)) == ("b", 0)
    assert len(two.images) == 1
    np.testing.assert_array_equal(two.target.read().corners, [[1, 2, 3, 3], [0, 0, 0, 0]])


def test_siims_runs_are_put_together_on_the_image(tmp_path):
    picture(tmp_path / "img/1.2.3.png", 0)
    (tmp_path / "train-rle.csv").write_text("ImageId, EncodedPixels\n1.2.3, 5 3\n1.2.3, 10 1\n")
    (case,) = Table(
        root=str(tmp_path),
        table="train-rle.csv",
        image="img/{ImageId}.png",
        id="ImageId",
        target=RunLength("EncodedPixels", "relative"),
    ).cases("test")
    labels = case.target.read().labels
    assert np.argwhere(labels.T).tolist() == [[1, 1], [1, 2], [1, 3], [2, 2]]


def test_mimics_split_is_a_table_of_its_own(tmp_path):
    name = "02aa804e"
    picture(tmp_path / f"files/p10/p10000032/s50414267/{name}.jpg", 5)
    (tmp_path / "split.csv").write_text(f"dicom_id,study_id,subject_id,split\n{name},50414267,10000032,validate\n")
    (tmp_path / "images.csv").write_text(
        f"dicom_id,path,subject_id,Edema\n{name},files/p10/p10000032/s50414267/{name}.jpg,10000032,1.0\n"
    )
    layout = Table(
        root=str(tmp_path),
        table="images.csv",
        image="path",
        id="dicom_id",
        patient="subject_id",
        splits=SplitTable("split.csv", id="dicom_id"),
        target=ClassColumns(["Edema"]),
    )
    assert [case.id for case in layout.cases("validate")] == [name]
    assert list(layout.split_source()) == [str(tmp_path / "split.csv")]


@pytest.fixture
def parquet(tmp_path):
    def encoded(value):
        stream = io.BytesIO()
        Pillow.fromarray(np.full((2, 3), value, np.uint8)).save(stream, "PNG")
        return {"bytes": stream.getvalue(), "path": f"{value}.png"}

    (tmp_path / "data").mkdir()
    for shard in (0, 1):
        table = pa.table(
            {"image": [encoded(10 * shard + i) for i in range(3)], "answer": [f"{shard}{i}" for i in range(3)]}
        )
        pq.write_table(table, tmp_path / f"data/test-0000{shard}-of-00002.parquet", row_group_size=2)
    return Table(root=str(tmp_path), table="data/test-*.parquet", image="image", target=ReportText("answer"))


def test_pictures_inside_parquet_shards_are_read_in_the_tables_order(parquet):
    cases = parquet.cases("test")
    assert [(level(case.images[0]), case.target.read().text) for case in cases] == [
        (10 * shard + i, f"{shard}{i}") for shard in (0, 1) for i in range(3)
    ]
    assert cases[4].id == "test-00001-of-00002-2"
    assert cases[4].images[0].files[0].name == "test-00001-of-00002.parquet"
    assert pickle.loads(pickle.dumps(cases[4])).images[0].geometry().shape == (2, 3)


def test_pictures_in_base64_inside_a_tsv_are_read_as_vlmevalkits(tmp_path):
    stream = io.BytesIO()
    Pillow.fromarray(np.full((2, 3), 7, np.uint8)).save(stream, "PNG")
    text = base64.b64encode(stream.getvalue()).decode()
    long = "A" * 200_000  # more than Python takes by itself
    (tmp_path / "t.tsv").write_text(f"index\timage\tanswer\n1\t{text}\tA\n2\tno!\tB\n3\t{long}\tC\n")
    settings = {
        "root": str(tmp_path),
        "table": "t.tsv",
        "image": "image",
        "encoded": True,
        "target": ReportText("answer"),
    }
    first, second, _ = Table(**settings, id="index").cases("test")
    assert (first.id, level(first.images[0]), first.target.read().text) == ("1", 7, "A")
    with pytest.raises(CaseError, match=r"t\.tsv, line 3: column 'image' holds no base64"):
        second.images[0].read()
    assert Table(**settings).cases("test")[0].id == "t-2"


def test_a_broken_picture_inside_a_table_names_table_and_row(tmp_path):
    pq.write_table(pa.table({"image": [b"\x89PNG\r\n\x1a\nbroken"], "answer": ["x"]}), tmp_path / "t.parquet")
    (case,) = Table(root=str(tmp_path), table="t.parquet", image="image", target=ReportText("answer")).cases("test")
    with pytest.raises(CaseError, match=r"t\.parquet, row 1 \(image\)"):
        case.images[0].read()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"table": "non.csv"}, r"non\.csv: no such table; did you mean 'none\.csv'"),
        ({"table": "*.parquet"}, "there is no such table"),
        ({"image": "file"}, r"none\.csv, line 2: there is no column 'file'"),
        ({"image": "img/{path}.png"}, r"none\.csv, line 2: column 'path' is empty, expected an image"),
        ({"image": (), "id": ""}, "names neither `image` nor `id`"),
    ],
)
def test_a_table_layout_that_does_not_fit_says_so(tmp_path, settings, words):
    (tmp_path / "none.csv").write_text("path,label\n,x\n")
    arguments = {"root": str(tmp_path), "table": "none.csv", "image": "path", "target": ClassName("label", ["x"])}
    with pytest.raises((UserError, UsageError), match=words):
        Table(**(arguments | settings)).cases("test")


@pytest.fixture
def r2gen(tmp_path):
    for number in (0, 1):
        picture(tmp_path / f"images/CXR1/{number}.png", number)
    items = [
        {"id": "CXR1", "image_path": ["CXR1/0.png", "CXR1/1.png"], "report": "The heart is normal.", "split": "test"}
    ]
    (tmp_path / "annotation.json").write_text(json.dumps({"train": [], "val": [], "test": items}))
    return tmp_path


def test_r2gens_annotation_holds_views_and_reports(r2gen):
    (case,) = R2Gen(root=str(r2gen)).cases("test")
    assert (case.id, [level(image) for image in case.images]) == ("CXR1", [0, 1])
    assert case.target.read().text == "The heart is normal."
    (first,) = R2Gen(root=str(r2gen), views=1).cases("test")
    assert [level(image) for image in first.images] == [0]
    assert list(R2Gen(root=str(r2gen)).split_source()) == [str(r2gen / "annotation.json")]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"id": "a", "image_path": []}, r"annotation\.json, item 1 of 'test': column 'image_path' is an empty list"),
        ({"id": "a", "image_path": ["x.png"], "split": "test"}, r"item 1 of 'test': there is no column 'report'"),
        ({"image_path": ["x.png"]}, r"item 1 of 'test': there is no column 'id'"),
        (3, r"annotation\.json, item 1 of 'test': expected an object"),
    ],
)
def test_an_annotation_that_is_not_understood_names_its_item(tmp_path, item, words):
    (tmp_path / "annotation.json").write_text(json.dumps({"test": [item]}))
    with pytest.raises(UserError, match=words):
        R2Gen(root=str(tmp_path)).cases("test")


def talk(*turns):
    return [{"from": speaker, "value": value} for speaker, value in turns]


def test_llavas_questions_are_cases(tmp_path):
    picture(tmp_path / "images/a.jpg", 9)
    items = [
        {"id": "1", "image": "a.jpg", "conversations": talk(("human", "<image>\nWhat is seen?"), ("gpt", "A nodule."))},
        {
            "id": "2",
            "image": "a.jpg",
            "conversations": talk(("human", "Q1"), ("gpt", "A1"), ("human", "Q2"), ("gpt", "A2")),
        },
    ]
    (tmp_path / "chat_test.json").write_text(json.dumps(items))
    cases = Llava(root=str(tmp_path), table={"test": "chat_test.json"}).cases("test")
    assert [case.id for case in cases] == ["1", "2-1", "2-2"]
    assert [case.attributes["question"] for case in cases] == ["What is seen?", "Q1", "Q2"]
    assert [case.target.read().text for case in cases] == ["A nodule.", "A1", "A2"]
    assert level(cases[0].images[0]) == 9


@pytest.mark.parametrize(
    "turns", [talk(("human", "Q")), talk(("gpt", "A"), ("human", "Q")), "Q?", [{"from": "human"}, 1]]
)
def test_a_conversation_that_is_none_names_its_item(tmp_path, turns):
    (tmp_path / "chat.json").write_text(json.dumps([{"id": "1", "image": "a.jpg", "conversations": turns}]))
    with pytest.raises(UserError, match=r"chat\.json, item 1: 'conversations'"):
        Llava(root=str(tmp_path), table="chat.json").cases("test")


def test_a_folder_per_class_and_split(tmp_path):
    for split, name in (("Training", "glioma"), ("Training", "pituitary"), ("Testing", "pituitary")):
        picture(tmp_path / split / name / f"{split}-{name}.jpg", 1)
    (tmp_path / "Training" / "glioma" / "Thumbs.db").write_bytes(b"x")
    layout = FolderPerClass(root=str(tmp_path))
    (case,) = layout.cases("Testing")
    assert case.target.read().values == {"glioma": 0, "pituitary": 1}
    assert case.id == "Testing/pituitary/Testing-pituitary.jpg"
    with pytest.raises(UserError, match=r"glioma\.jpg: 'class' names no known class: 'glioma'; did you mean 'gliomas'"):
        FolderPerClass(root=str(tmp_path), classes=["gliomas", "pituitary"]).cases("Training")


def test_hyperkvasirs_official_split_names_files(tmp_path):
    picture(tmp_path / "labeled-images/lower-gi-tract/pathological-findings/polyps/a.jpg", 1)
    picture(tmp_path / "labeled-images/upper-gi-tract/anatomical-landmarks/z-line/b.jpg", 1)
    (tmp_path / "2_fold_split.csv").write_text("file-name;class-name;split-index\na.jpg;polyps;0\nb.jpg;z-line;1\n")
    layout = FolderPerClass(
        root=str(tmp_path),
        pattern="labeled-images/{tract}/{category}/{class}/{file}",
        splits=SplitTable("2_fold_split.csv", id="file-name", split="split-index", separator=";", key="{file}"),
    )
    (case,) = layout.cases("1")
    assert case.target.read().values == {"polyps": 0, "z-line": 1}


def test_images_and_masks_are_paired_by_name_as_in_kvasir_and_glas(tmp_path):
    picture(tmp_path / "images/a.jpg", 1)
    mask = np.zeros((8, 16), np.uint8)
    mask[:, 8:] = 255
    (tmp_path / "masks").mkdir()
    Pillow.fromarray(mask).save(tmp_path / "masks/a_anno.bmp")
    layout = PairedFolders(root=str(tmp_path), mask_suffix="_anno", target=MaskTarget("mask", {255: 1}))
    (case,) = layout.cases("test")
    assert (case.id, case.target.files[0].name) == ("a", "a_anno.bmp")
    np.testing.assert_array_equal(case.target.read().labels, mask // 255)
    assert PairedFolders(root=str(tmp_path), mask_suffix="_anno").cases("test")[0].target.path.name == "a_anno.bmp"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("images/b.png", r"1 names have no label map, the first being \['b'\]"),
        ("masks/b.png", r"1 names have no image, the first being \['b'\]"),
        ("images/a.png", r"a\.png: has the same name as .*a\.jpg"),
    ],
)
def test_pictures_without_a_partner_are_named(tmp_path, extra, words):
    for name in ("images/a.jpg", "masks/a.png", extra):
        picture(tmp_path / name, 0)
    with pytest.raises(UserError, match=words):
        PairedFolders(root=str(tmp_path)).cases("test")


@pytest.fixture
def clam(tmp_path):
    """GPFM's tables: two slides of one patient, one of another; the split lists slides."""
    for number, name in enumerate(("TCGA-02-0001-01Z", "TCGA-02-0001-02Z", "TCGA-02-0002-01Z")):
        picture(tmp_path / f"slides/{name}.png", number)
        (tmp_path / "pt_files/uni").mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / f"pt_files/uni/{name}.npy", np.full((5, 4), number, np.float32))
    (tmp_path / "TCGA_GBM.csv").write_text(
        "case_id,slide_id,censorship,survival_months,label\n"
        "TCGA-02-0001,TCGA-02-0001-01Z,1,10.5,GBM\n"
        "TCGA-02-0001,TCGA-02-0001-02Z,1,10.5,GBM\n"
        "TCGA-02-0002,TCGA-02-0002-01Z,0,3,LGG\n"
    )
    (tmp_path / "splits_0.csv").write_text(
        ",train,val,test\n0,TCGA-02-0001-01Z,,TCGA-02-0002-01Z\n1,TCGA-02-0001-02Z,,\n"
    )
    return {
        "root": str(tmp_path),
        "table": "TCGA_GBM.csv",
        "image": "slides/{slide_id}.png",
        "splits": SplitColumns("splits_0.csv", key="{slide_id}"),
        "target": SurvivalColumns("survival_months", censored="censorship"),
    }


def test_clams_tables_give_slides_with_survival(clam):
    cases = Slides(**clam).cases("train")
    assert [(case.id, case.patient) for case in cases] == [
        ("TCGA-02-0001-01Z", "TCGA-02-0001"),
        ("TCGA-02-0001-02Z", "TCGA-02-0001"),
    ]
    assert [level(case.images[0]) for case in cases] == [0, 1]
    assert (cases[0].target.read().time, cases[0].target.read().event) == (10.5, False)
    (test,) = Slides(**clam).cases("test")
    assert (test.target.read().time, test.target.read().event) == (3, True)


def test_all_slides_of_a_patient_may_be_one_case(clam):
    cases = Slides(**{**clam, "id": "case_id", "splits": None, "target": ClassName("label", ["GBM", "LGG"])}).cases(
        "any"
    )
    assert [(case.id, len(case.images)) for case in cases] == [("TCGA-02-0001", 2), ("TCGA-02-0002", 1)]


def test_features_may_take_the_place_of_the_slide(clam):
    (case,) = Slides(**clam, features="pt_files/uni/{slide_id}.npy", patient="{slide_id:.12}").cases("test")
    image = case.images[0].read()
    assert (image.array.shape, image.array.max(), case.patient) == ((1, 5, 4), 2, "TCGA-02-0002")
    assert case.images[0].geometry().shape == (5, 4)


def test_features_may_lie_in_a_store_of_another_program(clam, tmp_path):
    names = [f"TCGA-02-000{patient}-0{slide}Z" for patient, slide in ((1, 1), (1, 2))]
    trident(tmp_path / "job", names)
    settings = {**clam, "store": "job", "magnification": 20}
    first, second = Slides(**settings).cases("train")
    image = second.images[0].read()
    assert image.array.shape == (1, 200, 3)
    assert image.attributes == {"holds": "features", "patch_size": "256", "magnification": "20"}
    assert first.images[0].bag().coordinates[1].tolist() == [1024, 512]
    assert second.files[0].name == f"{names[1]}.h5"
    (lost,) = Slides(**settings).cases("test")  # its failure is its own
    with pytest.raises(CaseError, match="job: holds no features of 'TCGA-02-0002-01Z'"):
        lost.images[0].read()
    with pytest.raises(CaseError, match=r"h5: holds features of 20x, the task is about 40x"):
        Slides(**{**settings, "magnification": 40}).cases("train")[0].images[0].read()
    with pytest.raises(CaseError, match="holds no features of '02-0001-01Z'"):
        Slides(**settings, bag="{slide_id~TCGA-(.*)}").cases("train")[0].images[0].read()


def test_features_may_lie_in_a_store_of_embed(clam, tmp_path):
    store = FeatureStore.create(tmp_path / "own", {}, 3)
    store.add([Item("k1", np.ones((2, 3)), np.ones((2, 2))), Item("k2", np.zeros((1, 3)))])
    (tmp_path / "own" / "cases").mkdir()
    (tmp_path / "own" / "cases" / "t.csv").write_text(
        "case,patient,image,key,first,rows\nTCGA-02-0002-01Z,,0,k1,0,2\nTCGA-02-0002-01Z,,1,k2,2,1\n"
    )
    (case,) = Slides(**clam, store="own").cases("test")
    assert case.images[0].read().array.tolist() == [[[1, 1, 1], [1, 1, 1], [0, 0, 0]]]
    with pytest.raises(CaseError, match="own: holds no features of case 'TCGA-02-0001-01Z'"):
        Slides(**clam, store="own").cases("train")[0].images[0].read()


def test_a_split_that_parts_a_patients_slides_is_refused(clam, tmp_path):
    (tmp_path / "splits_0.csv").write_text(",train,val,test\n0,TCGA-02-0001-01Z,,TCGA-02-0001-02Z\n")
    with pytest.raises(UserError, match=r"more than one split: 'TCGA-02-0001' \(test, train\)"):
        Slides(**clam).cases("test")

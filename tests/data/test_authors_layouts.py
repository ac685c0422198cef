"""Datasets as their authors lay them out, read through YAML alone as a user would write it."""

import json

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image as Picture

from medimg_eval.errors import UserError
from medimg_eval.instantiate import build


def picture(path, array=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Picture.fromarray(np.zeros((8, 10), np.uint8) if array is None else array).save(path)


@pytest.fixture
def cases(tmp_path):
    def make(text, split="test"):
        return build(OmegaConf.create(f"root: {tmp_path}\n{text}")).cases(split)

    return make


CAPSULE = """
_target_: medimg_eval.data.layouts.FolderPerClass
pattern: "labelled_images/{class}/{file}"
patient: "{file~^[^_]+}"
splits:
  _target_: medimg_eval.data.splits.SplitTable
  table: {train: split_0.csv, test: split_1.csv}
  id: filename
  key: "{name}"
"""


def test_kvasir_capsules_folds_are_a_table_each_and_share_videos(tmp_path, cases):
    for name in ("v1_100", "v1_200", "v2_7"):
        picture(tmp_path / f"labelled_images/Polyp/{name}.jpg")
    (tmp_path / "split_0.csv").write_text("filename,label\nv1_100.jpg,Polyp\n")
    (tmp_path / "split_1.csv").write_text("filename,label\nv1_200.jpg,Polyp\nv2_7.jpg,Polyp\n")
    with pytest.raises(UserError, match=r"lie in more than one split: 'v1' \(test, train\)"):
        cases(CAPSULE)
    found = cases(CAPSULE + "allow_overlap: the published folds share videos")
    assert [(case.patient, case.images[0].path.name) for case in found] == [("v1", "v1_200.jpg"), ("v2", "v2_7.jpg")]


LUNA = """
_target_: medimg_eval.data.layouts.Volumes
image: "subset{split}/{case}.png"
folds: {train: [1, 2], test: 0}
target: {_target_: medimg_eval.data.targets.MaskTarget, path: "{case}.png"}
"""


def test_folds_are_joined_into_splits(tmp_path, cases):
    for fold in range(4):
        picture(tmp_path / f"subset{fold}/s{fold}.png")
    assert [case.id for case in cases(LUNA)] == ["s0"]
    assert [case.id for case in cases(LUNA, "train")] == ["s1", "s2"]  # and the fold 3 is nobody's
    with pytest.raises(UserError, match=r"task\.layout\.folds names '7' \(available: 0, 1, 2, 3\)"):
        cases(LUNA.replace("test: 0", "test: 7"))


def test_a_fold_that_serves_two_splits_is_refused(tmp_path, cases):
    picture(tmp_path / "subset0/s0.png")
    with pytest.raises(UserError, match=r"more than one split: 's0' \(test, train\)"):
        cases(LUNA.replace("[1, 2]", "[0]"))


CLAM = """
_target_: medimg_eval.data.layouts.Slides
table: t.csv
features: "{slide_id}.npy"
id: case_id
patient: "{slide_id:.5}"
splits: {_target_: medimg_eval.data.splits.SplitColumns, table: splits.csv, key: "{slide_id}"}
target: {_target_: medimg_eval.data.targets.SurvivalColumns, time: months, censored: censorship}
"""


def test_splits_of_slides_serve_cases_of_several_slides(tmp_path, cases):
    (tmp_path / "t.csv").write_text(
        "case_id,slide_id,censorship,months\nTCGA1,TCGA1-a,0,12.5\nTCGA1,TCGA1-b,0,12.5\nTCGA2,TCGA2-a,1,30\n"
    )
    (tmp_path / "splits.csv").write_text(",train,val,test\n0,TCGA2-a,,TCGA1-a\n1,,,TCGA1-b\n")
    (case,) = cases(CLAM)
    assert (case.id, len(case.images), case.target.read().event) == ("TCGA1", 2, True)
    (tmp_path / "splits.csv").write_text(",train,val,test\n0,TCGA2-a,,TCGA1-a\n1,TCGA1-b,,\n")
    with pytest.raises(UserError, match="more than one split: 'TCGA1'"):
        cases(CLAM)


NIH = """
_target_: medimg_eval.data.layouts.Table
table: d.csv
image: "images_*/images/{Image Index}"
id: Image Index
patient: "{Image Index:.8}"
target:
  _target_: medimg_eval.data.targets.ClassName
  column: Finding Labels
  separator: "|"
  none: No Finding
  classes: [Cardiomegaly, Effusion]
"""


def test_nihs_twelve_folders_are_searched(tmp_path, cases):
    picture(tmp_path / "images_001/images/00000001_000.png")
    picture(tmp_path / "images_002/images/00000002_000.png")
    (tmp_path / "d.csv").write_text(
        "Image Index,Finding Labels\n00000001_000.png,Effusion\n00000002_000.png,No Finding\n"
    )
    assert [str(case.images[0].path.relative_to(tmp_path)) for case in cases(NIH)] == [
        "images_001/images/00000001_000.png",
        "images_002/images/00000002_000.png",
    ]
    picture(tmp_path / "images_003/images/00000002_000.png")
    with pytest.raises(UserError, match=r"d\.csv, line 3: 2 files are called .*00000002_000\.png, expected one"):
        cases(NIH)


COVIDX = """
_target_: medimg_eval.data.layouts.Table
table: {test: test.txt}
separator: " "
header: [patient, file, class, source]
image: "{split}/{file}"
patient: patient
target: {_target_: medimg_eval.data.targets.ClassName, column: class, classes: [negative, positive]}
"""


def test_covidx_keeps_a_folder_and_a_list_per_split(tmp_path, cases):
    picture(tmp_path / "test/a.png")
    (tmp_path / "test.txt").write_text("p1 a.png positive cohen\n")
    (case,) = cases(COVIDX)
    assert (case.id, case.patient, case.target.read().values) == ("test/a.png", "p1", {"negative": 0, "positive": 1})


GLAS = """
_target_: medimg_eval.data.layouts.PairedFolders
images: "."
masks: "."
mask_suffix: _anno
"""


def test_glas_keeps_images_and_masks_in_one_folder(tmp_path, cases):
    picture(tmp_path / "testA_1.bmp")
    picture(tmp_path / "testA_1_anno.bmp", np.ones((8, 10), np.uint8))
    (case,) = cases(GLAS)
    assert (case.id, case.images[0].path.name, case.target.path.name) == ("testA_1", "testA_1.bmp", "testA_1_anno.bmp")
    picture(tmp_path / "testA_2.bmp")
    with pytest.raises(UserError, match=r"1 names have no label map, the first being \['testA_2_anno'\]"):
        cases(GLAS)


LLAVA = """
_target_: medimg_eval.data.layouts.Llava
table: {test: chat.json}
image: "{image}"
id: image
"""


def test_the_questions_of_an_item_named_by_its_image_keep_their_image(tmp_path, cases):
    turns = [{"from": who, "value": text} for who, text in (("human", "Q"), ("gpt", "A"), ("human", "R"), ("gpt", "B"))]
    (tmp_path / "chat.json").write_text(json.dumps([{"image": "x.png", "conversations": turns}]))
    assert [(case.id, case.images[0].path.name, case.target.read().text) for case in cases(LLAVA)] == [
        ("x.png-1", "x.png", "A"),
        ("x.png-2", "x.png", "B"),
    ]


AXES = """
_target_: medimg_eval.data.layouts.ArrayFiles
file: "{case}.npz"
image: image
mask: label
axes: kji
"""


def test_masks_in_arrays_have_the_axes_of_their_image(tmp_path, cases):
    labels = np.zeros((4, 4, 4), np.uint8)
    labels[0, 1, 2] = 1
    np.savez(tmp_path / "a.npz", image=labels.astype(np.float32), label=labels)
    (case,) = cases(AXES)
    np.testing.assert_array_equal(case.target.read().labels, case.images[0].read().array[0])
    np.testing.assert_array_equal(np.argwhere(case.target.read().labels), [[2, 1, 0]])
    np.savez(tmp_path / "b.npz", test_images=labels[None].astype(np.float32), test_label=labels[None])
    bundle = '{_target_: medimg_eval.data.layouts.Arrays, file: b.npz, labels: "{split}_label", axes: kij}'
    (case,) = build(OmegaConf.create(bundle), root=str(tmp_path)).cases("test")
    np.testing.assert_array_equal(case.target.read().labels, case.images[0].read().array[0])
    # A picture's channel is none of its mask's.
    (tmp_path / "b.npz").unlink()
    np.savez(tmp_path / "a.npz", image=np.zeros((3, 8, 9), np.uint8), label=np.zeros((8, 9), np.uint8))
    (case,) = cases(AXES.replace("kji", "chw"))
    assert case.images[0].read().array.shape == (3, 8, 9)
    assert case.target.read().labels.shape == (8, 9)


FAIRSEG = """
_target_: medimg_eval.data.layouts.FairSeg
splits: {_target_: medimg_eval.data.splits.SplitLists, lists: {test: test.txt}, key: "{name}"}
"""


def test_lists_may_name_the_files_of_samples(tmp_path, cases):
    (tmp_path / "data").mkdir()
    for number in (1, 2):
        held = {"slo_fundus": np.zeros((8, 9), np.uint8), "disc_cup_mask": np.zeros((8, 9), np.int8)}
        np.savez(tmp_path / f"data/data_{number:05d}.npz", **held)
    (tmp_path / "test.txt").write_text("data_00002.npz\n")
    assert [case.id for case in cases(FAIRSEG)] == ["data_00002"]


def test_one_of_several_atlases_may_be_judged_by_a_few_of_its_labels(tmp_path, cases):
    picture(tmp_path / "i/a.png")
    picture(tmp_path / "m/a.png", np.full((8, 10), 93, np.uint8))
    dap = """
_target_: medimg_eval.data.layouts.Volumes
image: "i/{case}.png"
target: {_target_: medimg_eval.data.targets.MaskTarget, path: "m/{case}.png", values: {12: 6}, others: background}
"""
    assert not cases(dap)[0].target.read().labels.any()
    with pytest.raises(UserError, match=r"the values \[93\], which stand for no label; .* set others=background"):
        cases(dap.replace(", others: background", ""))[0].target.read()


RSNA = """
_target_: medimg_eval.data.layouts.Table
table: l.csv
image: "{patientId}.png"
id: patientId
target:
  _target_: medimg_eval.data.targets.FilledBoxes
  labels: {3: opacity}
  boxes:
    _target_: medimg_eval.data.targets.BoxColumns
    columns: [x, y, width, height]
    form: sizes
    name: opacity
"""


def test_rsnas_filled_boxes_are_masks(tmp_path, cases):
    for name in "xyz":
        picture(tmp_path / f"{name}.png")
    (tmp_path / "l.csv").write_text("patientId,x,y,width,height\nx,1,2,3,4\nx,0.6,0,1,1\ny,,,,\nz,-2,6.4,30,30\n")
    one, none, beyond = (case.target.read() for case in cases(RSNA))
    expected = np.zeros((8, 10), np.uint8)
    expected[2:6, 1:4] = 3
    expected[0, 1] = 3  # from 0.6 to 1.6 lies the centre of pixel 1, at 1.5, alone
    np.testing.assert_array_equal(one.labels, expected)
    assert (one.units, one.names, none.labels.any()) == ("pixel", {3: "opacity"}, False)
    assert beyond.labels[6:].all()  # 6.4 to the end: the centre of row 6 is at 6.5
    assert not beyond.labels[:6].any()
    with pytest.raises(UserError, match=r"l\.csv: a box is called 'opacity' \(available: mass\)"):
        cases(RSNA.replace("opacity}", "mass}"))[0].target.read()


SKM_TEA = """
_target_: medimg_eval.data.layouts.KSpaceScans
file: "files_recon_calib-24/{case}.h5"
keys: skm-tea
splits:
  _target_: medimg_eval.data.splits.SplitTable
  table: {train: annotations/train.json, test: annotations/test.json}
  within: images
  id: "{file_name~^[^.]+}"
"""


def test_skm_teas_splits_are_lists_of_images_in_json(tmp_path, cases):
    for folder in ("files_recon_calib-24", "annotations"):
        (tmp_path / folder).mkdir()
    for split, scan in (("train", "MTR_001"), ("test", "MTR_005")):
        (tmp_path / f"files_recon_calib-24/{scan}.h5").touch()
        content = {"info": {}, "images": [{"id": 1, "file_name": f"{scan}.h5"}], "annotations": []}
        (tmp_path / f"annotations/{split}.json").write_text(json.dumps(content))
    assert [case.id for case in cases(SKM_TEA)] == ["MTR_005"]
    with pytest.raises(UserError, match=r"train\.json: expected a list of objects 'scans'"):
        cases(SKM_TEA.replace("within: images", "within: scans"))

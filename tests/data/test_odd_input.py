"""Tables, JSON and folders as they come from other people's machines: one sentence each, or the right cases."""

import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf
from PIL import Image as Picture

from medimg_eval.data.layouts import (
    ArrayFiles,
    Bids,
    Coco,
    FolderPerClass,
    KSpaceScans,
    NnUNet,
    PairedFolders,
    Table,
    Volumes,
    Yolo,
)
from medimg_eval.data.records import Row
from medimg_eval.data.splits import SplitLists, SplitTable
from medimg_eval.data.tables import read_lines, read_table
from medimg_eval.data.targets import (
    BoxColumns,
    ClassColumns,
    ClassName,
    MaskTarget,
    PointColumns,
    RunLength,
    TableTarget,
)
from medimg_eval.data.targets.text_targets import frame_number
from medimg_eval.errors import SplitError, UsageError, UserError
from medimg_eval.instantiate import build


def picture(path, array=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Picture.fromarray(np.zeros((8, 10), np.uint8) if array is None else array).save(path)


@pytest.fixture
def table(tmp_path):
    picture(tmp_path / "a.png")

    def make(text, **settings):
        (tmp_path / "t.csv").write_text(text, newline="")
        said = {"image": "f", "target": ClassName("c", ["a", "b"])} | settings
        return Table(root=str(tmp_path), table="t.csv", **said).cases("test")

    return make


def test_only_line_ends_end_lines(tmp_path):
    texts = ["one\u2028line", "a\x0cb", "c\x85d", "e\x1df"]
    (tmp_path / "t.csv").write_text(
        "id,text\r\n" + "".join(f"{n},{text}\r\n" for n, text in enumerate(texts)), newline=""
    )
    assert [row.text("text") for row in read_table(tmp_path / "t.csv")] == texts
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    (tmp_path / "t.jsonl").write_text("".join(lines))
    assert [row.text("text") for row in read_table(tmp_path / "t.jsonl")] == texts
    (tmp_path / "t.txt").write_text("\ufeffa\u2028b\r\nc\r\n", newline="")
    assert [(row.place, row.text("line")) for row in read_lines(tmp_path / "t.txt")] == [
        ("line 1", "a\u2028b"),
        ("line 2", "c"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_machine(table, end):
    (case,) = table(f"\ufefff, c{end}a.png, a{end}")
    assert case.target.read().values == {"a": 1, "b": 0}


def test_an_open_quote_names_the_line_it_opens_in(table):
    with pytest.raises(UserError, match=r"t\.csv, line 3: cannot be read as a table .* is a quote left open\?"):
        table('f,c\na.png,a\nb.png,"a\nc.png,a\n')


def test_json_lines_of_one_line_are_json_lines(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"views": ["a.png", "b.png"]}\n')
    (row,) = read_table(tmp_path / "t.jsonl")
    assert row.values == {"views": ["a.png", "b.png"]}
    (tmp_path / "t.jsonl").write_text('{"views": [\n{"views": []}\n')
    with pytest.raises(UserError, match=r"t\.jsonl, line 1: is no JSON"):
        read_table(tmp_path / "t.jsonl")


def test_nan_in_a_parquet_table_says_nothing(tmp_path):
    numbers = pa.array([1.0, math.nan], from_pandas=False)
    pq.write_table(pa.table({"f": ["a.png", "b.png"], "edema": numbers}), tmp_path / "t.parquet")
    layout = Table(
        root=str(tmp_path),
        table="t.parquet",
        image="f",
        target=ClassColumns(["edema"], blank="zeros"),
        attributes=["f"],
    )
    assert [case.target.read().values for case in layout.cases("test")] == [{"edema": 1}, {"edema": 0}]


def test_a_table_without_rows_is_named(table):
    with pytest.raises(UserError, match=r"t\.csv: holds no row$"):
        table("f,c\n")
    with pytest.raises(UserError, match=r"t\.csv: holds no row where \{'c': 'b'\}"):
        table("f,c\na.png,a\n", where={"c": "b"})


def test_paths_written_on_windows_are_found(tmp_path, table):
    picture(tmp_path / "images" / "x.png")
    (case,) = table("f,c\nimages\\x.png,a\n")
    assert case.images[0].path == tmp_path / "images" / "x.png"
    picture(tmp_path / "odd\\name.png")  # which Linux allows
    (case,) = table("f,c\nodd\\name.png,a\n")
    assert case.images[0].path == tmp_path / "odd\\name.png"


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("f,x,y\na.png,1e400,3\n", PointColumns(["x", "y"], "voxel", name="p"), "a point of x, y is not finite"),
        ("f,x,y\na.png,nan,3\n", PointColumns(["x", "y"], "voxel", name="p"), "a point of x, y is not finite"),
        ("f,r\na.png," + "9" * 30 + " 3\n", RunLength("r", "absolute"), "expected whole numbers"),
        (
            "f,b\na.png,\"{'x': 1, 'y': 2, 'z': 3, 'w': 4}\"\n",
            BoxColumns(["b"], "sizes", name="p"),
            "not given as sizes",
        ),
    ],
)
def test_numbers_that_cannot_be_name_their_line(table, text, target, words):
    with pytest.raises(UserError, match=rf"t\.csv, line 2: .*{words}"):
        table(text, target=target)


def test_points_that_are_nan_are_none_as_boxes_are(table):
    (case,) = table("f,x,y\na.png,NaN,nan\n", target=PointColumns(["x", "y"], "voxel", name="p"))
    assert case.target.read().positions.shape == (0, 2)


def test_records_of_one_case_that_name_two_masks_are_refused(table):
    text = "id,f,m\np,a.png,m.png\np,b.png,{}.png\n"
    assert table(text.format("m"), id="id", target=MaskTarget("masks/{m}"))[0].target.path.name == "m.png"
    with pytest.raises(
        UserError, match=r"t\.csv, line 3: says 'masks/n\.png' of case 'p', of which line 2 says 'masks/m"
    ):
        table(text.format("n"), id="id", target=MaskTarget("masks/{m}"))


def test_a_box_that_is_an_object_is_read_by_its_keys(table):
    text = "f,b\na.png,\"{'ymin': 2.0, 'xmin': 1.0, 'height': 4.0, 'width': 3.0}\"\n"
    (case,) = table(text, target=BoxColumns(["b"], "sizes", name="p"))
    np.testing.assert_array_equal(case.target.read().corners, [[2, 1, 5, 3]])


@pytest.mark.parametrize("frame", ["inf", "nan", "-1", "1.5", "1e400"])
def test_a_frame_that_is_none_is_named(tmp_path, frame):
    with pytest.raises(UserError, match=r"line 7: column 'frame' holds '.*', expected a frame of 0 or more"):
        frame_number(Row(tmp_path, "line 7", {"frame": frame}), "frame", 1)


def test_an_empty_list_is_no_split(tmp_path, table):
    (tmp_path / "test.txt").write_text("\n")
    with pytest.raises(SplitError, match=r"test\.txt: no case of split 'test'"):
        table("f,c\na.png,a\n", splits=SplitLists({"test": "test.txt"}))


def test_rows_without_a_split_belong_to_none(tmp_path, table):
    (tmp_path / "s.csv").write_text("id,split\na.png,test\nb.png,\n")
    assert len(table("f,c\na.png,a\nb.png,b\n", splits=SplitTable("s.csv", id="id"))) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda root: Volumes(root=root, image="x/{case}.nii", mask="y/{case}.nii"),
            r"y/\{case\}\.nii: there is no such",
        ),
        (lambda root: ArrayFiles(root=root, file="x/{case}.npz", image="i"), r"x/\{case\}\.npz: there is no such file"),
        (lambda root: FolderPerClass(root=root), r"\{split\}/\{class\}/\{file\}: there is no such picture"),
    ],
)
def test_patterns_that_nothing_fits_are_named(tmp_path, make, words):
    with pytest.raises(UserError, match=words):
        make(str(tmp_path)).cases("test")


def test_hidden_folders_and_loops_are_no_cases(tmp_path):
    picture(tmp_path / "test/a/x.PNG")
    picture(tmp_path / "test/.ipynb_checkpoints/x.png")
    picture(tmp_path / "__MACOSX/a/x.png")
    picture(tmp_path / "test/a/._x.png")
    (tmp_path / "test/a/loop").symlink_to(tmp_path)
    assert [case.id for case in FolderPerClass(root=str(tmp_path)).cases("test")] == ["test/a/x.PNG"]


def test_brackets_in_folder_names_are_plain_text(tmp_path):
    picture(tmp_path / "raw [1]" / "a.png")
    picture(tmp_path / "masks" / "a.png")
    layout = PairedFolders(root=str(tmp_path), images="./raw [1]")
    assert [case.id for case in layout.cases("test")] == ["a"]


def test_images_of_nnunet_without_a_label_map_are_named(tmp_path):
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0}, "channel_names": {"0": "CT"}}')
    for name in ("imagesTr/case_0001.nii.gz", "labelsTr/case_0001.nii.gz", "imagesTr/._x.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [case.id for case in NnUNet(root=str(tmp_path)).cases("train")] == ["case_0001"]
    (tmp_path / "imagesTr/x_0000.nii.gz").touch()
    with pytest.raises(UserError, match=r"imagesTr: 1 images have no label map in .*labelsTr, the first being 'x_0000"):
        NnUNet(root=str(tmp_path)).cases("train")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]},
            "item 2 of 'images': has the id 1, as",
        ),
        ({"images": [{"id": [1], "file_name": "a"}]}, r"item 1 of 'images': has the id \[1\], expected a number"),
        ({"images": [{"file_name": "a"}]}, "item 1 of 'images': there is no column 'id'"),
        ({"categories": [{"id": 1, "name": "x"}] * 2}, "item 2 of 'categories': has the id 1"),
        (
            {
                "images": [{"id": 1, "file_name": "a"}],
                "categories": [{"id": 1, "name": "x"}],
                "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, math.nan]}],
            },
            "item 1 of 'annotations': 'bbox' .* has no area",
        ),
    ],
)
def test_coco_that_cannot_be_meant_is_named(tmp_path, content, words):
    (tmp_path / "c.json").write_text(json.dumps({"images": [], "annotations": [], "categories": []} | content))
    with pytest.raises(UserError, match=rf"c\.json, {words}"):
        Coco(root=str(tmp_path), annotations="c.json").cases("test")


def test_yolo_may_name_several_folders_and_must_be_utf_8(tmp_path):
    for part in ("one", "two"):
        picture(tmp_path / f"images/{part}/{part}.png")
        (tmp_path / f"labels/{part}").mkdir(parents=True)
    (tmp_path / "data.yaml").write_text("train: [images/one, images/two]\nnames: [lesion]\n")
    assert [case.id for case in Yolo(root=str(tmp_path)).cases("train")] == ["one", "two"]
    (tmp_path / "data.yaml").write_bytes(b"train: images/one\nnames: [l\xe9sion]\n")
    with pytest.raises(UserError, match=r"data\.yaml, line 2: is no UTF-8 text"):
        Yolo(root=str(tmp_path)).cases("train")


def test_bids_indices_may_have_leading_zeros(tmp_path):
    for run in ("01", "02"):
        (tmp_path / "sub-1/anat").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sub-1/anat/sub-1_run-{run}_T1w.nii.gz").touch()
    layout = Bids(root=str(tmp_path), suffix="T1w", entities={"run": 1}, target=MaskTarget("{case}.nii.gz"))
    assert [case.id for case in layout.cases("test")] == ["sub-1_run-01"]


@pytest.mark.parametrize("slices", [[5], [5, 5], [-3, 2], [1, 2, 3]])
def test_slices_are_a_start_and_a_stop(tmp_path, slices):
    with pytest.raises(UsageError, match="expected slices as start and stop"):
        KSpaceScans(root=str(tmp_path), file="{case}.h5", keys="mc-mrrec", slices=slices).cases("test")


def test_what_other_values_become_is_one_of_two_words():
    with pytest.raises(UsageError, match="other values become 'raise' or 'background', not 'skip'"):
        MaskTarget("m.png", {1: 1}, others="skip")


def test_a_task_travels_to_other_processes_without_its_tables(tmp_path, table):
    (tmp_path / "labels.csv").write_text("key,c\n" + "".join(f"image{n}.png,a\n" for n in range(2000)) + "a.png,b\n")
    target = TableTarget("labels.csv", "key", ClassName("c", ["a", "b"]))
    (case,) = table("f\na.png\n", target=target)
    assert len(pickle.dumps(target)) < 1000
    assert len(pickle.dumps(case)) < 2000
    again = pickle.loads(pickle.dumps(case))
    assert again.target.read().values == {"a": 0, "b": 1}


def test_an_argument_of_a_target_that_does_not_exist_is_named():
    config = OmegaConf.create("{_target_: medimg_eval.data.targets.MaskTarget, path: m.png, value: {1: 1}}")
    with pytest.raises(UsageError, match=r"MaskTarget: .*unexpected keyword argument 'value'"):
        build(config)

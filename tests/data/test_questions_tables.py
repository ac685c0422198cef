"""K1 and K2: questions in text tables and Parquet, whose images stand in their cells, as their authors write them."""

import base64
import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import Questions
from medimg_eval.data.questions import cells
from medimg_eval.errors import CaseError, UserError


def png(level, size=(6, 4)):
    """A picture of 4 rows and 6 columns, all of one level."""
    stream = io.BytesIO()
    Pillow.fromarray(np.full(size[::-1], level, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def b64(level):
    return base64.b64encode(png(level)).decode()


def write_table(path, rows):
    """As pandas writes it: None is an empty cell, and cells are quoted where they must be."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path, rows, schema=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, **options)


def levels(case):
    return [int(image.read().array.max()) for image in case.images]


def key(case):
    return case.target.read().value


GMAI = [
    {
        "index": 7,
        "question": 'Which "organ"\tis\nshown?',
        "A": "Liver",
        "B": "Spleen",
        "C": "None",
        "D": None,
        "E": "Heart",
        "answer": "E",
        "image": b64(11),
        "clinical vqa task": "Organ Recognition",
    },
    {
        "index": 8,
        "question": "Is it benign?",
        "A": "Yes",
        "B": "No",
        "C": None,
        "D": None,
        "E": None,
        "answer": "B",
        "image": b64(12),
        "clinical vqa task": "Disease Diagnosis",
    },
]


@pytest.fixture
def gmai(tmp_path):
    write_table(tmp_path / "GMAI_VAL.tsv", GMAI)
    return {
        "root": str(tmp_path),
        "records": {"val": "GMAI_VAL.tsv"},
        "id": "index",
        "options": {"columns": ["A", "B", "C", "D", "E"]},
        "answer": {"letter": "answer"},
        "images": {"base64": "image"},
        "attributes": {"task": "clinical vqa task"},
    }


def test_letters_are_those_of_the_columns_and_missing_options_are_left_out(gmai):
    first, second = Questions(**gmai).cases("val")
    assert first.question.options == {"A": "Liver", "B": "Spleen", "C": "None", "E": "Heart"}
    assert (first.id, first.question.text, key(first)) == ("7", 'Which "organ"\tis\nshown?', "E")
    assert second.question.options == {"A": "Yes", "B": "No"}
    assert second.attributes == {"task": "Disease Diagnosis"}
    assert [levels(first), levels(second)] == [[11], [12]]
    assert first.images[0].geometry().shape == (4, 6)
    assert (first.patient, first.question.kind) == (None, "choice")


def test_files_of_one_split_follow_one_another(gmai, tmp_path):
    for part in (1, 2):
        write_table(tmp_path / f"part_{part}.tsv", [GMAI[part - 1]])
    made = Questions(**gmai | {"records": {"test": ["part_2.tsv", "part_1.tsv"]}})
    assert [case.id for case in made.cases("test")] == ["8", "7"]
    made = Questions(**gmai | {"records": "part_*.tsv"})
    assert [case.id for case in made.cases("any")] == ["7", "8"]


def test_a_short_cell_names_the_row_that_holds_the_image_even_one_that_is_left_out(tmp_path):
    shared = {"question": "q", "hint": "look", "A": "x", "B": "y", "answer": "A"}
    rows = [
        {"index": 1, **shared, "image": b64(31), "split": "dev"},
        {"index": 2, **shared, "image": "1", "split": "test"},
        {"index": 3, **shared, "image": "9", "split": "test"},
        {"index": 4, **shared, "image": "1", "split": "test"},
    ]
    write_table(tmp_path / "MMBench.tsv", rows)
    cases = Questions(
        root=str(tmp_path),
        records="MMBench.tsv",
        id="index",
        options={"columns": ["A", "B"]},
        answer={"letter": "answer"},
        images={"base64": "image", "pointer": "index"},
        fields={"hint": "hint"},
        expand=[{"filter": {"split": "test"}}],
    ).cases("test")
    assert [case.id for case in cases] == ["2", "3", "4"]
    assert (levels(cases[0]), levels(cases[2])) == ([31], [31])
    assert cases[0].patient == cases[2].patient == "MMBench.tsv, line 2, image"
    assert cases[0].question.fields == {"hint": "look"}
    with pytest.raises(CaseError, match=r"MMBench\.tsv, line 4: the image '9' is no image, and names no record"):
        cases[1].target.read()


def test_each_rotation_of_the_options_is_a_question_whose_right_letter_follows(gmai):
    cases = Questions(**gmai | {"expand": ["rotate_options"]}).cases("val")
    assert [case.id for case in cases] == ["7.0", "7.1", "7.2", "7.3", "8.0", "8.1"]
    assert [key(case) for case in cases] == ["E", "C", "B", "A", "B", "A"]
    assert all(case.question.options[key(case)] == ("Heart" if case.id[0] == "7" else "No") for case in cases)
    assert cases[1].question.options == {"A": "Spleen", "B": "None", "C": "Heart", "E": "Liver"}
    assert {case.attributes["set"] for case in cases} == {case.patient for case in cases} == {"7", "8"}


def test_a_list_of_base64_in_a_cell_is_several_images_and_a_whole_number_an_index(tmp_path):
    pair = {"index": 0, "A": "left", "B": "right", "answer": 1, "image": str([b64(1), b64(2)]), "question": "worse?"}
    one = {"index": 1, "A": "CT", "B": "MR", "answer": "A", "image": json.dumps([b64(3)]), "question": "which?"}
    write_table(tmp_path / "medqbench_QA_test.tsv", [pair, one])
    cases = Questions(
        root=str(tmp_path),
        records="medqbench_*.tsv",
        id="index",
        options={"columns": ["A", "B"]},
        answer={"letter": "answer", "from": 0},
        images={"base64": "image"},
        attributes={"images": "image_count"},
    ).cases("test")
    assert [levels(case) for case in cases] == [[1, 2], [3]]
    assert [key(case) for case in cases] == ["B", "A"]
    assert [case.attributes["images"] for case in cases] == ["2", "1"]


def test_what_a_file_is_called_can_be_an_attribute(tmp_path):
    for stem in ("brazil_english", "japan_local"):
        row = {"index": 1, "question": "q", "A": "x", "B": "y", "answer": "", "correct_option": "B", "image": b64(5)}
        write_table(tmp_path / f"{stem}_processed.tsv", [row])
    cases = Questions(
        root=str(tmp_path),
        records="*_processed.tsv",
        id="{stem~^([a-z]+_[a-z]+)}-{index}",
        options={"columns": ["A", "B"]},
        answer={"letter": "correct_option"},
        images={"base64": "image"},
        attributes={"country": "{stem~^[a-z]+}", "language": "{stem~_(english|local)_}"},
    ).cases("test")
    assert [case.id for case in cases] == ["brazil_english-1", "japan_local-1"]
    assert [case.attributes for case in cases] == [
        {"country": "brazil", "language": "english"},
        {"country": "japan", "language": "local"},
    ]


HF_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def test_numbered_image_columns_of_parquet_shards_may_be_empty(tmp_path):
    schema = pa.schema(
        [("question_id", pa.string()), ("question", pa.string()), ("options", pa.list_(pa.string()))]
        + [("correct_answer", pa.string()), ("organ", pa.list_(pa.string()))]
        + [(f"image_{n}", HF_IMAGE) for n in (1, 2, 3)]
    )
    for shard in (0, 1):
        row = {
            "question_id": f"q{shard}",
            "question": "What?",
            "options": list("uvwxyz"),
            "correct_answer": "F",
            "organ": ["lung", "heart"],
            "image_1": {"bytes": png(10 + shard), "path": None},
            "image_2": {"bytes": png(20 + shard), "path": "a.png"} if shard else None,
            "image_3": None,
        }
        write_parquet(tmp_path / "data" / f"test-0000{shard}-of-00002.parquet", [row], schema)
    cases = Questions(
        root=str(tmp_path),
        records={"test": "data/test-*.parquet"},
        id="question_id",
        options={"list": "options"},
        answer={"letter": "correct_answer"},
        images=["image_1", "image_2", "image_3"],
        attributes={"frames": "image_count", "organ": "organ"},
    ).cases("test")
    assert [levels(case) for case in cases] == [[10], [11, 21]]
    assert cases[0].question.options["F"] == "z"
    assert [case.attributes["frames"] for case in cases] == ["1", "2"]
    assert cases[0].attributes["organ"] == "lung, heart"


def test_a_folder_per_subject_and_options_in_a_literal_as_in_mmmu(tmp_path):
    rows = {
        "Pharmacy": {"options": "['a', \"b's\", 'c']", "answer": "B", "question_type": "multiple-choice"},
        "Public_Health": {"options": "[]", "answer": "['4', 'four']", "question_type": "open"},
    }
    for subject, row in rows.items():
        row |= {"id": f"validation_{subject}_1", "question": "See <image 1>.", "image_1": {"bytes": png(9), "path": ""}}
        schema = pa.schema([*((name, pa.string()) for name in row if name != "image_1"), ("image_1", HF_IMAGE)])
        write_parquet(tmp_path / subject / "validation-00000-of-00001.parquet", [row], schema)
    cases = Questions(
        root=str(tmp_path),
        records={"validation": "*/validation-*.parquet"},
        literal=["options"],
        kind={"column": "question_type", "kinds": {"multiple-choice": "choice", "open": "open"}},
        options={"list": "options"},
        answer={"either": "answer"},
        images=["image_1"],
        attributes={"subject": "folder"},
    ).cases("validation")
    assert [case.attributes["subject"] for case in cases] == ["Pharmacy", "Public_Health"]
    assert (cases[0].question.options, key(cases[0])) == ({"A": "a", "B": "b's", "C": "c"}, "B")
    assert (cases[1].question.kind, cases[1].question.options, key(cases[1])) == ("open", {}, ("4", "four"))


def test_lists_of_objects_with_base64_inside_parquet(tmp_path):
    images = [{"pic_num": 1, "modality": "X-ray", "image_base64": b64(41)}, {"pic_num": 2, "image_base64": b64(42)}]
    row = {"year": 2020, "q_number": 3, "question": "q", **dict(zip("ABCDE", "vwxyz", strict=True)), "answer": 5}
    write_parquet(tmp_path / "doctor" / "test.parquet", [row | {"images": images}, row | {"q_number": 4, "images": []}])
    cases = Questions(
        root=str(tmp_path),
        records="doctor/test.parquet",
        id="{year}-{q_number}",
        options={"columns": list("ABCDE")},
        answer={"index": "answer", "from": 1},
        images={"base64": "images.*.image_base64"},
        min_images=0,
    ).cases("test")
    assert ([case.id for case in cases], key(cases[0])) == (["2020-3", "2020-4"], "E")
    assert [levels(case) for case in cases] == [[41, 42], []]


def test_lists_of_pictures_and_options_in_json_and_questions_of_small_images_left_out(tmp_path):
    options = json.dumps({"A": "yes", "B": "no", "C": None})
    rows = [
        {"images": [{"bytes": png(1, (40, 30))}, {"bytes": png(2, (40, 30))}], "dataset_index": 1},
        {"images": [{"bytes": png(3, (27, 90))}], "dataset_index": 2},
    ]
    rows = [row | {"question": "q", "options": options, "answer_label": "B", "dataset_name": "pmc"} for row in rows]
    schema = pa.schema(
        [("images", pa.list_(pa.struct([("bytes", pa.binary())]))), ("dataset_index", pa.int64())]
        + [(name, pa.string()) for name in ("question", "options", "answer_label", "dataset_name")]
    )
    write_parquet(tmp_path / "test.parquet", rows, schema)
    layout = Questions(
        root=str(tmp_path),
        records="test.parquet",
        id="{dataset_name}-{dataset_index}",
        options={"dict": "options"},
        answer={"letter": "answer_label"},
        images="images",
        min_side=28,
    )
    (case,) = layout.cases("test")
    assert (case.id, levels(case), case.question.options) == ("pmc-1", [1, 2], {"A": "yes", "B": "no"})
    assert layout.left_out() == {"pmc-2": "has an image with a side of 27 pixels, under 28"}


def test_the_answer_tells_yes_no_from_open_where_no_column_does(tmp_path):
    schema = pa.schema([("image", HF_IMAGE), ("question", pa.string()), ("answer", pa.string())])
    rows = [
        {"question": "?", "answer": one, "image": {"bytes": png(1), "path": None}} for one in ("Yes", "no.", "Lung")
    ]
    write_parquet(tmp_path / "data" / "test-0.parquet", rows, schema)
    cases = Questions(
        root=str(tmp_path),
        records={"test": "data/test-*.parquet"},
        kind={"by_answer": True},
        answer={"value": "answer"},
        images="image",
    ).cases("test")
    assert [(case.question.kind, key(case)) for case in cases] == [
        ("yes_no", "yes"),
        ("yes_no", "no"),
        ("open", "Lung"),
    ]
    assert [case.id for case in cases] == ["test-0-1", "test-0-2", "test-0-3"]
    assert [case.patient for case in cases] == [None] * 3
    settings = {"root": str(tmp_path), "records": "data/*.parquet", "kind": "open", "images": "image"}
    repeated = Questions(**settings, patient="image_content").cases("test")
    assert len({case.patient for case in repeated}) == 1
    assert len(repeated[0].patient) == 16


def test_labels_of_one_table_are_joined_to_the_images_of_another(tmp_path):
    human = {"accuracy": "A", "overall": "B"}
    (tmp_path / "pair_gt_all").mkdir()
    lines = [{"question_id": "x1", "human_answer": human}, {"question_id": "x2", "human_answer": human}]
    (tmp_path / "pair_gt_all" / "brain.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    row = {"question_id": "x1", "question": "q", "answer1_text": "one", "answer2_text": "two"}
    row |= {"image": {"bytes": png(77), "path": None}}
    write_parquet(tmp_path / "pair_gt_all" / "parquet" / "brain.parquet", [row])
    cases = Questions(
        root=str(tmp_path),
        records="pair_gt_all/*.jsonl",
        expand=[
            {"join": "pair_gt_all/parquet/*.parquet", "on": "question_id"},
            {"cross": ["accuracy", "overall"], "as": "dimension"},
        ],
        id="{question_id}-{dimension}",
        kind="grades",
        answer={"value": "human_answer"},
        images="image",
        fields={"first": "answer1_text", "second": "answer2_text"},
        attributes={"organ": "stem"},
        set="question_id",
    ).cases("test")
    assert [case.id for case in cases[:2]] == ["x1-accuracy", "x1-overall"]
    assert (key(cases[0]), levels(cases[0])) == (human, [77])
    assert (cases[0].attributes, cases[0].patient) == ({"organ": "brain", "set": "x1", "member": "1"}, "x1")
    with pytest.raises(CaseError, match=r"brain\.jsonl, line 2: 'x2' is not found in pair_gt_all/parquet/\*\.parquet"):
        cases[2].target.read()


@pytest.mark.parametrize("large", [0, 2**20])
def test_cells_of_a_large_row_group_are_read_in_any_order(tmp_path, monkeypatch, large):
    monkeypatch.setattr(cells, "LARGE", large)
    write_parquet(tmp_path / "t.parquet", [{"question": "?", "image": png(place)} for place in range(240)])
    cases = Questions(root=str(tmp_path), records="t.parquet", kind="open", images={"bytes": "image"}).cases("test")
    for place in (0, 1, 200, 150, 239, 3, 0, 17):
        assert levels(cases[place]) == [place]


def test_a_field_that_no_record_has_is_refused_with_the_nearest_name(gmai):
    with pytest.raises(UserError, match=r"GMAI_VAL\.tsv: no record has the field 'idx' of task\.layout\.id"):
        Questions(**gmai | {"id": "idx"}).cases("val")
    with pytest.raises(UserError, match=r"'anwser' of task\.layout\.answer; did you mean 'answer'\?"):
        Questions(**gmai | {"answer": {"letter": "anwser"}}).cases("val")

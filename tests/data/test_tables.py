"""The one reader of tables: every kind, every quirk of the real ones, and the line that is wrong."""

import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_json, read_lines, read_table
from medimg_eval.errors import CaseError, UserError


@pytest.fixture
def table(tmp_path):
    def write(name, text, **settings):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_table(path, **settings)

    return write


def values(rows):
    return [dict(row.values) for row in rows]


def test_a_byte_order_mark_and_another_separator_are_told_apart_from_names(table):
    rows = table("meta.csv", "\ufeffimage_id;age\ns0001;52\n", separator=";")
    assert values(rows) == [{"image_id": "s0001", "age": "52"}]


def test_a_forgotten_separator_is_offered(table):
    with pytest.raises(UserError, match=r"meta\.csv, line 1: holds one column, 'image_id;age'; set separator=';'"):
        table("meta.csv", "image_id;age\ns0001;52\n")


def test_names_of_columns_lose_their_blanks_as_in_siim(table):
    (row,) = table("train-rle.csv", "ImageId, EncodedPixels\n1.2.3, -1\n")
    assert row.text("EncodedPixels") == "-1"


def test_columns_count_from_one_where_names_hold_commas_as_in_nih(table):
    header = "Image Index,Finding Labels,OriginalImage[Width,Height]"
    (row,) = table("Data_Entry_2017.csv", f"{header}\n00000001_000.png,Cardiomegaly|Effusion,2682,2749\n")
    assert (row.text("#1"), row.number("#3"), row.number("#4")) == ("00000001_000.png", 2682, 2749)
    with pytest.raises(UserError, match=r"line 2: there is no column '#5'"):
        row.value("#5")


def test_a_table_without_a_header_is_given_one(table):
    rows = table("train.txt", "p1 a.png positive site\np2 b.png negative site\n", separator=" ", header=list("abcd"))
    assert [row.text("c") for row in rows] == ["positive", "negative"]


def test_lines_are_counted_past_blank_ones_and_texts_of_several_lines(table):
    rows = table("a.csv", 'id,text\n1,"two\nlines"\n\n2,b\n')
    assert [row.place for row in rows] == ["line 2", "line 5"]
    assert rows[0].text("text") == "two\nlines"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "id,x\n1,2\n3\n", r"a\.csv, line 3: has not as many fields \(1\) as the header's 2"),
        ("a.csv", "id,id\n1,2\n", r"a\.csv, line 1: column 'id' occurs more than once"),
        ("a.csv", b"id\nok\n\xff\xfe\n", r"a\.csv, line 3: is no UTF-8 text"),
        ("a.json", '{"train": [\n{"id": 1},\n]}', r"a\.json, line 3: is no JSON"),
        ("a.json", '[{"id": 1}, 5]', r"a\.json, item 2: expected an object of named values, found 5"),
        ("a.jsonl", '{"id": 1}\n{"id": \n', r"a\.jsonl, line 2: is no JSON"),
        ("a.parquet", "no", r"a\.parquet: cannot be read as Parquet"),
    ],
)
def test_what_cannot_be_parsed_is_named_with_its_line(table, name, text, words):
    with pytest.raises(UserError, match=words):
        table(name, text)


def test_a_missing_table_offers_the_nearest_file(table, tmp_path):
    table("labels.csv", "id\n1\n")
    with pytest.raises(UserError, match=r"label\.csv: no such table; did you mean 'labels\.csv'\?"):
        read_table(tmp_path / "label.csv")


def test_json_lines_are_told_by_their_content_as_in_chexpert_plus(table):
    assert values(table("findings.json", '{"id": 1}\n{"id": 2}\n')) == [{"id": 1}, {"id": 2}]


def test_objects_of_lists_and_of_objects_give_split_and_id(table):
    assert values(table("a.json", json.dumps({"train": [{"id": "x"}]}))) == [{"split": "train", "id": "x"}]
    (row,) = table("b.json", json.dumps({"patient1": {"report": "clear"}}))
    assert (row.text("id"), row.text("report"), row.place) == ("patient1", "clear", "item 'patient1'")


def test_compressed_tables_are_read_as_mimics_are(tmp_path):
    path = tmp_path / "mimic-cxr-2.0.0-split.csv.gz"
    path.write_bytes(gzip.compress(b"dicom_id,split\nd1,validate\n"))
    assert read_table(path)[0].text("split") == "validate"


def test_pictures_in_parquet_are_left_in_the_file_until_they_are_asked_for(tmp_path):
    path = tmp_path / "test-00000.parquet"
    stored = []
    for level in range(3):
        stream = io.BytesIO()
        Pillow.fromarray(np.full((2, 3), level, np.uint8)).save(stream, "PNG")
        stored.append({"bytes": stream.getvalue(), "path": f"{level}.png"})
    stored.append({"bytes": None, "path": None})
    pq.write_table(pa.table({"image": stored, "label": [0, 1, 2, 3]}), path, row_group_size=2)
    rows = read_table(path)
    assert [row.number("label") for row in rows] == [0, 1, 2, 3]
    assert rows[2].value("image").read() == (stored[2]["bytes"], "2.png")
    with pytest.raises(CaseError, match=r"parquet, row 4: holds no file in column 'image'"):
        rows[3].value("image").read()


def test_numbers_and_columns_that_are_none_name_the_line(table):
    (row,) = table("a.csv", "id,age\n1,old\n")
    with pytest.raises(UserError, match=r"a\.csv, line 2: column 'age' holds 'old', expected a number"):
        row.number("age")
    with pytest.raises(UserError, match=r"a\.csv, line 2: there is no column 'agee'; did you mean 'age'\?"):
        row.text("agee")


def test_patterns_take_values_beginnings_of_values_and_what_an_expression_finds(tmp_path):
    said = {
        "Image Index": "00000001_000.png",
        "slide_id": "TCGA-02-0001-01Z-00-DX1",
        "Path": "x/patient00012/study1/v.jpg",
    }
    row = Row(tmp_path / "t.csv", "line 2", said)
    assert row.fill("images/{Image Index}") == "images/00000001_000.png"
    assert row.fill("{slide_id:.12}") == "TCGA-02-0001"
    assert row.fill("slide_id") == "TCGA-02-0001-01Z-00-DX1"
    assert row.fill(r"{Path~patient\d{5}/study\d+}-{Path~(\w+)\.jpg}") == "patient00012/study1-v"
    with pytest.raises(
        UserError, match=r"t\.csv, line 2: 'x/patient00012/study1/v\.jpg' does not fit '\{Path~subject\}'"
    ):
        row.fill("{Path~subject}")


def test_lists_and_json_that_are_missing_or_broken_are_named(tmp_path):
    (tmp_path / "list.txt").write_text("a\n\n b \n")
    assert [(row.place, row.text("line")) for row in read_lines(tmp_path / "list.txt")] == [
        ("line 1", "a"),
        ("line 3", "b"),
    ]
    for call in (read_lines, read_json):
        with pytest.raises(UserError, match=r"lists\.txt: no such file; did you mean 'list\.txt'\?"):
            call(tmp_path / "lists.txt")

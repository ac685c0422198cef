"""Text tables that are read through once: what `csv` reads, in little memory, with big cells left in the file."""

import csv
import gzip
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.data.questions import streamed
from medimg_eval.data.questions.cells import StreamedCell
from medimg_eval.data.questions.streamed import read_streamed
from medimg_eval.errors import CaseError, UserError

CELLS = st.text(st.sampled_from('ab ,\t"\n\r\u2028é'), max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=6))
def test_what_the_csv_module_writes_is_read_back_but_for_blank_lines(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["x", "y", "z"], *rows])
    assert [list(line.values.values()) for line in read_streamed(path)] == [row for row in rows if any(row)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_it_does_not_matter_where_a_chunk_of_the_file_ends(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(streamed, "CHUNK", chunk)
    path = tmp_path / "t.tsv"
    path.write_bytes('\ufeffid\ttext\r\n1\t"a ""b""\r\nc\td"\r\n\r\n2\té\r\n3\t'.encode())
    found = list(read_streamed(path))
    assert [line.values for line in found] == [
        {"id": "1", "text": 'a "b"\r\nc\td'},
        {"id": "2", "text": "é"},
        {"id": "3", "text": ""},
    ]
    assert [line.number for line in found] == [2, 5, 6]


def test_packed_tables_are_read_too(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"id,image\n1," + b"QUJD" * 30 + b"\n"))
    (line,) = read_streamed(path, pictures={"image"})
    assert line.values["image"].read() == b"ABC" * 30


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", r"t\.csv: holds no line"),
        (b"a,a\n1,2\n", r"t\.csv, line 1: column 'a' occurs more than once"),
        (b'a,"b\n1,2\n', r"t\.csv, line 1: cannot be read as the names of columns \(a quote is left open"),
        (b'"a"x,b\n1,2\n', r"t\.csv, line 1: cannot be read as the names of columns \(text follows a closing quote"),
        (b"a,\xe9\n1,2\n", r"t\.csv, line 1: is no UTF-8 text"),
    ],
)
def test_a_table_that_cannot_be_understood_is_named_with_its_line(tmp_path, data, words):
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(UserError, match=words):
        list(read_streamed(tmp_path / "t.csv"))


def test_a_line_that_is_wrong_has_a_fault_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n3\n\xff,4\n5,6\n")
    found = list(read_streamed(path))
    assert [line.values.get("a") for line in found] == ["1", None, None, "5"]
    assert found[1].fault.startswith("has not as many fields (1) as the header's 2")
    assert found[2].fault.startswith("column 'a' is no UTF-8 text")


def test_a_large_table_is_read_in_little_memory_and_its_cells_when_they_are_asked_for(tmp_path):
    path = tmp_path / "large.tsv"
    image = b"QUJD" * 500_000  # 2 MB of base64, as a slice at full resolution
    with path.open("wb") as stream:
        stream.write(b"index\tquestion\timage\tanswer\n")
        for number in range(30):
            stream.write(b'%d\t"what,\n""%d""?"\t' % (number, number) + image + b"\tA\n")
    assert path.stat().st_size > 60e6
    tracemalloc.start()
    found = list(read_streamed(path, pictures={"image"}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25e6
    assert [line.number for line in found[:2]] == [2, 4]
    assert found[29].values["question"] == 'what,\n"29"?'
    assert found[29].values["answer"] == "A"
    cell = found[29].values["image"]
    assert isinstance(cell, StreamedCell)
    assert cell.read() == b"ABC" * 500_000
    path.write_bytes(path.read_bytes()[: cell.start + 100])
    with pytest.raises(CaseError, match=r"large\.tsv, line 60: column 'image' is cut short; the table has changed"):
        cell.read()


def test_what_is_no_base64_is_named(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("index\timage\n1\t" + "Q!" * 60 + "\n")
    (line,) = read_streamed(path, pictures={"image"})
    with pytest.raises(CaseError, match=r"t\.tsv, line 2: column 'image' holds no base64"):
        line.values["image"].read()

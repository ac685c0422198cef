"""`check` of a task of questions: what is missing, wrong or unexpected, by file and record."""

import base64
import json
import struct
import zipfile
import zlib
from dataclasses import replace

import pytest

from medimg_eval.checking import how_to_get
from medimg_eval.commands.check import check_task
from medimg_eval.data.layouts import Questions
from medimg_eval.errors import UserError
from medimg_eval.tasks import QuestionTask
from tests.helpers.catalogue import base64_png, picture, png, stored_picture, write_json, write_lines, write_parquet


def row(place, **changes):
    """The record of a choice, whose image is called by its number."""
    asked = {"id": f"q{place}", "question": f"Which of {place}?", "A": "one", "B": "two", "answer": "B"}
    return {**asked, "image": f"{place}.png", **changes}


def bomb():
    """A PNG of a few bytes that promises 10 gigapixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def task_of(root, *, splits=None, expected=None, card=None, **layout):
    """A task of choices on the files below a root."""
    settings = {
        "records": {"test": "test.json"},
        "id": "id",
        "options": {"columns": ["A", "B"]},
        "answer": {"letter": "answer"},
        "images": "images/{image}",
        **layout,
    }
    return QuestionTask(
        name="mine",
        layout=Questions(root=str(root), **settings),
        splits=splits or {"test": "test"},
        expected=expected or {},
        card=card or {"access": "open", "source": "example.org"},
    )


def check(task, capsys, *, parts=("fit", "validate", "test"), sample=100):
    """The lines that are printed, and the error's text; empty where all is well."""
    try:
        check_task(task, parts, sample)
    except UserError as error:
        return capsys.readouterr().out.splitlines(), str(error)
    return capsys.readouterr().out.splitlines(), ""


def write(root, records, *images):
    """The records, and images by their numbers."""
    write_json(root / "test.json", records)
    for place in images:
        picture(root / "images" / f"{place}.png", place)


def test_a_whole_copy_is_counted_and_nothing_else_is_said(tmp_path, capsys):
    write(tmp_path, [row(1), row(2, C="three"), row(3)], 1, 2, 3)
    lines, error = check(task_of(tmp_path, options={"columns": ["A", "B", "C"]}), capsys)
    assert lines == ["test: 3 questions; 3 choice; 2 with 2 options, 1 with 3 options; 3 with 1 image"]
    assert not error


def test_each_part_that_there_is_is_counted(tmp_path, capsys):
    write(tmp_path, [row(1)], 1, 2)
    write_json(tmp_path / "train.json", [row(2), row(2, id="other", answer="A")])
    task = task_of(
        tmp_path, records={"test": "test.json", "train": "train.json"}, splits={"fit": "train", "test": "test"}
    )
    lines, error = check(task, capsys)
    assert [line.partition(";")[0] for line in lines] == ["fit: 2 questions", "test: 1 question"]
    assert not error


def test_missing_images_are_named_once_with_the_first_question_that_asks_about_them(tmp_path, capsys):
    records = [row(1), row(2), row(3, image="2.png"), *(row(place) for place in range(4, 11))]
    write(tmp_path, records, 1)
    lines, error = check(task_of(tmp_path), capsys)
    images = tmp_path / "images"
    assert lines[1] == f"test: {images / '2.png'}: missing (first asked about in q2)"
    assert lines[2] == f"test: {images / '4.png'}: missing (first asked about in q4)"
    assert lines[6] == "test: 3 more missing files"
    assert lines[7:] == ["to get it (open):", "  example.org"]
    assert error == "task 'mine': 8 doubts, listed above"


@pytest.mark.parametrize(
    ("data", "said"),
    [(png(2)[:60], "cut short or damaged"), (bomb(), "may be a decompression bomb")],
    ids=["damaged", "bomb"],
)
def test_images_that_cannot_be_read_are_named(data, said, tmp_path, capsys):
    write(tmp_path, [row(1), row(2)], 1)
    (tmp_path / "images" / "2.png").write_bytes(data)
    lines, error = check(task_of(tmp_path), capsys)
    assert lines[1].startswith(f"test: case q2: {tmp_path / 'images' / '2.png'}")
    assert said in lines[1]
    assert "1 doubt, listed" in error


def test_records_that_are_wrong_are_named_with_their_file_and_the_others_are_counted(tmp_path, capsys):
    write(tmp_path, [row(1), row(2, answer="Z"), row(1), row(4, question="")], 1, 2, 4)
    lines, error = check(task_of(tmp_path), capsys)
    assert lines[0].startswith("test: 4 questions; 1 choice")
    told = " ".join(lines[1:4])
    assert all(f"{tmp_path / 'test.json'}, {place}" in told for place in ("item 2", "item 3", "item 4"))
    assert "'Z'" in told
    assert "3 doubts" in error


def test_a_field_that_no_record_has_is_named(tmp_path, capsys):
    write(tmp_path, [row(1)], 1)
    lines, error = check(task_of(tmp_path, answer={"letter": "anwser"}), capsys)
    assert "'anwser'" in lines[0]
    assert "did you mean 'answer'" in lines[0]
    assert "1 doubt" in error


def test_a_count_that_is_not_the_expected_one_does_not_hide_what_else_is_wrong(tmp_path, capsys):
    write(tmp_path, [row(1), row(2)], 1)
    lines, error = check(task_of(tmp_path, expected={"test": 3}), capsys)
    assert lines[0].startswith("test: 2 questions")
    assert "expected 3 cases in split 'test', found 2" in lines[1]
    assert "2.png: missing (first asked about in q2)" in lines[2]
    assert "2 doubts" in error


def test_files_and_folders_and_splits_that_are_not_there_are_told(tmp_path, capsys):
    lines, error = check(task_of(tmp_path / "nowhere"), capsys)
    assert "no such folder; set task.layout.root" in lines[0]
    lines, error = check(task_of(tmp_path), capsys)
    assert "test.json" in lines[0]
    write(tmp_path, [row(1)], 1)
    lines, error = check(task_of(tmp_path, splits={"fit": "test"}), capsys)
    assert lines[0].startswith("fit: 1 question")
    assert "has no cases to test" in lines[1]
    assert "1 doubt" in error


def test_a_sample_is_evenly_spaced_and_its_size_is_kept(tmp_path, capsys, monkeypatch):
    write(tmp_path, [row(place) for place in range(10)], *range(10))
    task = task_of(tmp_path)
    opened = []
    monkeypatch.setattr(QuestionTask, "read_images", lambda task, case: opened.append(case.id) or ())
    for sample, wanted in ((3, ["q0", "q3", "q6"]), (7, [f"q{n}" for n in (0, 1, 2, 4, 5, 7, 8)]), (0, [])):
        opened.clear()
        check(task, capsys, sample=sample)
        assert opened == wanted
    check(task, capsys, sample=100)
    assert len(opened) == 10


def test_images_in_archives_are_opened_and_members_that_are_not_there_are_named(tmp_path, capsys):
    write(tmp_path, [row(1), row(2), row(3)])
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("imgs/1.png", png(1))
        archive.writestr("imgs/2.png", bomb())
    task = task_of(tmp_path, images={"zip": "images.zip", "member": "imgs/{image}"}, max_side=16)
    lines, error = check(task, capsys, sample=1)
    assert lines[1] == f"test: {tmp_path / 'images.zip'}: holds no 'imgs/3.png' (first asked about in q3)"
    assert "1 doubt" in error
    lines, error = check(task, capsys)
    assert "case q2: " in lines[2]
    assert "images.zip, member 'imgs/2.png'" in lines[2]
    assert "decompression bomb" in lines[2]
    assert "2 doubts" in error


def test_an_archive_that_is_damaged_is_named(tmp_path, capsys):
    write(tmp_path, [row(1)])
    (tmp_path / "images.zip").write_bytes(b"no zip")
    task = task_of(tmp_path, images={"zip": "images.zip", "member": "imgs/{image}"})
    lines, _ = check(task, capsys)
    assert "images.zip: cannot be read as a zip file" in lines[1]


@pytest.mark.parametrize("form", ["parquet", "tsv", "jsonl"])
def test_images_in_tables_are_opened(form, tmp_path, capsys):
    held = {"parquet": [stored_picture(1), {"bytes": b"no picture", "path": None}]}.get(
        form, [base64_png(1), base64.b64encode(b"no picture").decode()]
    )
    records = [row(place, image=image) for place, image in enumerate(held, start=1)]
    path = tmp_path / f"test.{form}"
    if form == "parquet":
        write_parquet(path, records)
    elif form == "jsonl":
        write_lines(path, records)
    else:
        path.write_text("\n".join("\t".join(one) for one in [records[0], *(r.values() for r in records)]) + "\n")
    images = "image" if form == "parquet" else {"base64": "image"}
    lines, error = check(task_of(tmp_path, records={"test": path.name}, images=images), capsys)
    assert lines[0].startswith("test: 2 questions")
    assert lines[1].startswith(f"test: case q2: {path}, ")
    assert "1 doubt" in error


def test_what_the_layout_leaves_out_is_said_and_is_no_doubt(tmp_path, capsys):
    write(tmp_path, [row(1), row(2)], 1)
    picture(tmp_path / "images" / "2.png", 2, 8)
    lines, error = check(task_of(tmp_path, min_side=28), capsys)
    assert lines[0].startswith("test: 1 question;")
    assert lines[1].startswith(
        "test: 1 more left out by the layout, the first of which is q2: has an image with a side"
    )
    assert not error


def test_a_box_in_percent_needs_the_size_of_its_image(tmp_path, capsys):
    write_json(tmp_path / "test.json", [row(1, box=json.dumps([0, 0, 50, 50]))])
    task = task_of(tmp_path, kind="box", options={}, answer={"value": "box", "scale": "percent"})
    task = replace(task, metrics=["box_iou"])
    lines, _ = check(task, capsys)
    assert "1.png: missing" in lines[1]
    picture(tmp_path / "images" / "1.png", 1)
    assert not check(task, capsys)[1]


@pytest.mark.parametrize(
    ("card", "lines"),
    [
        (
            {"access": "open", "download": {"hub": "a/b", "files": ["x"], "then": "Unpack it."}},
            ["to get it: python -m medimg_eval download task=mine (from a/b, open)", "  then: Unpack it."],
        ),
        ({"access": "gated", "download": ["Ask.", "Wait."]}, ["to get it (gated):", "  Ask.", "  Wait."]),
        ({"access": "on request", "download": "Write to them."}, ["to get it (on request):", "  Write to them."]),
        ({}, []),
        ({"source": "example.org"}, ["to get it (access unknown):", "  example.org"]),
    ],
)
def test_how_data_are_got_is_said_in_whichever_form_the_card_has(card, lines):
    assert how_to_get("mine", card) == lines

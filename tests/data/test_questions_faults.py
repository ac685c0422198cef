"""Records that are wrong, in every form they may come in: each is named with file and place, the rest is asked."""

import base64
import csv
import gzip
import io
import json
import pickle
import re
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import Questions
from medimg_eval.data.questions import streamed
from medimg_eval.data.questions.cells import StreamedCell
from medimg_eval.data.questions.streamed import read_streamed
from medimg_eval.errors import CaseError, UsageError, UserError


def picture(size=(6, 4)):
    """A PNG of noise, so that its base64 holds every letter."""
    stream = io.BytesIO()
    levels = np.random.default_rng(0).integers(0, 255, size[::-1], dtype=np.uint8)
    Pillow.fromarray(levels).save(stream, "PNG")
    return stream.getvalue()


def bomb():
    """The header of a PNG of 30,000 x 30,000 pixels, and nothing else."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    size = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")


GOOD, BIG = picture(), picture((60, 50))
SHOWN = [GOOD, b"no picture at all, and longer than the sixty-four bytes of a pointer", bomb(), *[GOOD] * 5]
IDS = ["first", "unreadable", "bomb", "twin", "twin", "letter", "gold", "last"]
LAYOUT = {"id": "id", "options": {"columns": ["A", "B"]}, "answer": {"either": "answer"}}
BASE = {"question": "Which?", "A": "liver", "B": "spleen", "answer": "A"}


def rows(images):
    answers = {"letter": "F", "gold": "a heart", "last": "B"}
    return [
        BASE | {"id": name, "answer": answers.get(name, "A"), "image": image}
        for name, image in zip(IDS, images, strict=True)
    ]


def files(root):
    (root / "im").mkdir()
    for place, data in enumerate(SHOWN):
        (root / "im" / f"{place}.png").write_bytes(data)
    return [f"{place}.png" for place in range(len(SHOWN))]


def table(path, records):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(records[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(records)


def as_json(path, value):
    path.write_text(json.dumps(value))


def packed(data):
    return base64.b64encode(data).decode()


def a_csv(root):
    table(root / "t.csv", rows(files(root)))
    return {"records": "t.csv", "images": "im/{image}"}


def a_tsv_with_base64(root):
    table(root / "t.tsv", rows(map(packed, SHOWN)))
    return {"records": "t.tsv", "images": {"base64": "image"}}


def a_json(root):
    as_json(root / "t.json", rows(files(root)))
    return {"records": "t.json", "images": "im/{image}"}


def json_with_base64(root):
    as_json(root / "t.json", rows(map(packed, SHOWN)))
    return {"records": "t.json", "images": {"base64": "image"}}


def json_lines(root):
    (root / "t.jsonl").write_text("\n".join(map(json.dumps, rows(files(root)))))
    return {"records": "t.jsonl", "images": "im/{image}"}


def lists_of_paths(root):
    as_json(root / "t.json", rows([["0.png", name] for name in files(root)]))
    return {"records": "t.json", "images": "im/{image}"}


def a_zip(root):
    with zipfile.ZipFile(root / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for place, data in enumerate(SHOWN):
            archive.writestr(f"im/{place}.png", data)
    as_json(root / "t.json", rows([f"{place}.png" for place in range(len(SHOWN))]))
    return {"records": "t.json", "images": {"zip": "z.zip", "member": "im/{image}"}}


def a_parquet(root):
    records = rows([{"bytes": data, "path": None} for data in SHOWN])
    pq.write_table(pa.Table.from_pylist(records), root / "t.parquet", row_group_size=3)
    return {"records": "t.parquet", "images": "image"}


def parquet_of_lists(root):
    records = rows([[{"bytes": GOOD, "path": None}, {"bytes": data, "path": None}] for data in SHOWN])
    pq.write_table(pa.Table.from_pylist(records), root / "t.parquet", row_group_size=3)
    return {"records": "t.parquet", "images": "image"}


def a_tree(root):
    for place, record in enumerate(rows(files(root))):
        (root / f"case{place}").mkdir()
        as_json(root / f"case{place}" / "info.json", record)
    return {"records": "*/info.json", "at": ".", "images": "im/{image}"}


SOURCES = [a_csv, a_tsv_with_base64, a_json, json_with_base64, json_lines, lists_of_paths, a_zip, a_parquet]
SOURCES += [parquet_of_lists, a_tree]


def outcome(case):
    """The right answer, or what is said instead."""
    try:
        value = case.target.read().value
        for image in case.images:
            image.read()
    except CaseError as error:
        return str(error)
    return value


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.__name__)
def test_each_wrong_record_of_each_source_is_named_with_its_file_and_place_and_the_rest_is_asked(tmp_path, source):
    layout = source(tmp_path)
    cases = Questions(root=str(tmp_path), **LAYOUT, **layout).cases("test")
    found = {case.id: outcome(case) for case in cases}
    assert (found["first"], found["twin"], found["last"]) == ("A", "A", "B")
    for place, (name, words) in enumerate(
        {
            "unreadable": "image|is cut short|no known",
            "bomb": "decompression bomb",
            "twin#2": "the id 'twin' is that of .*too",
            "letter": r"the answer 'F' is not among the options \(A: liver, B: spleen\)",
            "gold": "the answer 'a heart' is not among the options",
        }.items(),
        start=2,
    ):
        assert re.search(words, found[name])
        row = place if place < 4 else place + 1
        if source is a_tree:
            assert name in ("unreadable", "bomb") or f"case{row - 1}" in found[name]
        else:
            lines = source in (a_csv, a_tsv_with_base64)
            assert re.search(rf"(line|item|row) {row + lines}\b", found[name])
            assert layout["records"] in found[name] or source is a_zip


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("question", {"question": "qestion"}),
        ("id", {"id": "{ids}"}),
        ("answer", {"answer": {"letter": "anwser"}}),
        ("options", {"options": {"columns": ["A", "BB"]}}),
        ("attributes", {"attributes": {"language": "lang"}}),
        ("set", {"set": "triplet"}),
    ],
)
def test_a_field_that_no_record_has_is_refused_with_the_file_and_the_key(tmp_path, source, key, change):
    layout = Questions(root=str(tmp_path), **LAYOUT | source(tmp_path) | change)
    with pytest.raises(UserError, match=rf"no record has the field .* of task\.layout\.{key}.*available"):
        layout.cases("test")


def test_an_id_that_two_files_use_is_said_with_both(tmp_path):
    cases = Questions(root=str(tmp_path), **LAYOUT, **a_tree(tmp_path)).cases("test")
    said = next(outcome(case) for case in cases if case.id == "twin#2")
    assert re.search(r"case4/info\.json, item 1: the id 'twin' is that of .*case3/info\.json, item 1, too", said)


def ask(root, records="t.json", **layout):
    cases = Questions(root=str(root), **LAYOUT | {"records": records} | layout).cases("test")
    return {case.id: outcome(case) for case in cases}


HEADER = b"id\tquestion\tA\tB\tanswer\n"


def test_a_record_with_a_wrong_quote_is_named_and_the_next_line_is_read(tmp_path):
    lines = [b'1\t"Ground glass" is?\tx\ty\tA\n', b'2\t"a\nb"\tx\ty\tB\n', b'3\t"open\tx\ty\tA\n', b"4\tq\tx\ty\tB\n"]
    (tmp_path / "t.tsv").write_bytes(HEADER + b"".join(lines))
    found = ask(tmp_path, "t.tsv")
    assert (found["2"], found["4"]) == ("B", "B")
    assert re.search(r"t\.tsv, line 2: cannot be read as a record.*text follows a closing quote", found["t-1"])
    assert re.search(r"t\.tsv, line 5: cannot be read as a record.*a quote is left open", found["t-3"])


def test_an_open_quote_is_not_sought_through_a_file_of_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK", 64)
    monkeypatch.setattr(streamed, "LONGEST", 256)
    (tmp_path / "t.tsv").write_bytes(HEADER + b'1\t"open\tx\ty\tA\n' + b"2\tq\tx\ty\tB\n" * 1000)
    found = list(read_streamed(tmp_path / "t.tsv"))
    assert "a quote is left open" in found[0].fault
    assert [line.fault for line in found[1:]] == [""] * 1000


def test_pictures_are_found_wherever_a_chunk_ends_between_the_two_signs_of_a_line_s_end(tmp_path, monkeypatch):
    path = tmp_path / "t.tsv"
    path.write_bytes(
        b'\xef\xbb\xbf"i\td"\t"im"\t"q"\r\n' + b"".join(b'"%d"\t%s\t"x"\r\n' % (n, b"QUJD" * 20) for n in range(9))
    )
    for chunk in range(1, 120):
        monkeypatch.setattr(streamed, "CHUNK", chunk)
        found = list(read_streamed(path, pictures={"im"}))
        assert [line.number for line in found] == list(range(2, 11))
        assert [line.values["i\td"] for line in found] == list("012345678")
        assert all(isinstance(line.values["im"], StreamedCell) for line in found)
        assert {line.values["im"].read() for line in found} == {b"ABC" * 20}


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("t.tsv", (HEADER + b"1\tq\tx\ty\tA\n").decode().encode("utf-16"), r"t\.tsv, line 1: is no UTF-8 text"),
        ("t.csv.gz", gzip.compress(b"id,question,A,B,answer\n" * 50, mtime=0)[:-12], r"t\.csv\.gz: cannot be read"),
        ("t.csv.gz", b"id,question\n", r"t\.csv\.gz: cannot be read \(Not a gzipped file"),
        ("t.json", b"[" * 100_000, r"t\.json: is no JSON \(its brackets"),
        ("t.json", b"[" + b"1" * 5000 + b"]", r"t\.json: is no JSON \(Exceeds the limit"),
        ("t.parquet", b"PAR1", r"t\.parquet: cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_at_all_is_said_in_a_sentence(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        ask(tmp_path, name)


def test_a_damaged_page_of_a_parquet_table_is_said_in_a_sentence(tmp_path):
    records = [BASE | {"image": GOOD, "id": str(number)} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet", compression="none")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    start = data.find(b"Which?")
    data[start - 4 : start] = b"\xff" * 4  # how long the text is
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(UserError, match=r"t\.parquet: cannot be read as Parquet .*copy the file again"):
        ask(tmp_path, "t.parquet")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json.dumps(BASE)[:30].encode(), "is no JSON"),
        (b'{"question": "\xe9"}', "is no UTF-8 text"),
        (b"[" * 100_000, "is no JSON"),
        (b"[1]", "expected an object"),
        (b'{"question": "a", "question": "b"}', "says two things of 'question'"),
    ],
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.jsonl.gz"])
def test_a_wrong_line_of_json_lines_is_named_and_the_others_are_asked(tmp_path, line, words, name):
    sound = [json.dumps(BASE | {"id": number}).encode() for number in (1, 2, 3)]
    data = b"\xef\xbb\xbf" + b"\r\n".join([sound[0], sound[1], line, sound[2]])
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = ask(tmp_path, name)
    assert {key: found[key] for key in "123"} == {"1": "A", "2": "A", "3": "A"}
    assert re.search(rf"{re.escape(name)}, line 3: .*{words}", found["t-3"])


def test_records_under_the_same_key_are_both_there_and_the_second_is_named(tmp_path):
    record = json.dumps(BASE)
    (tmp_path / "t.json").write_text(f'{{"a": {record}, "b": {record}, "a": {record}}}')
    found = ask(tmp_path, id="key1")
    assert (found["a"], found["b"]) == ("A", "A")
    assert "the id 'a' is that of item 'a' too" in found["a#2"]


def test_half_a_sign_becomes_one_that_can_be_written(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps([BASE | {"id": "1", "question": "What \ud83d is it? \U0001f600"}]))
    (case,) = Questions(root=str(tmp_path), records="t.json", **LAYOUT).cases("test")
    assert case.question.text == "What \ufffd is it? \U0001f600"


NOT_PADDED = packed(BIG).rstrip("=")
URL = base64.urlsafe_b64encode(BIG).decode()
LINES = base64.encodebytes(BIG).decode()


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        (URL, 1),
        (f"data:image/png;base64,{URL}", 1),
        (LINES, 1),
        (NOT_PADDED, 1),
        (json.dumps([URL, URL]), 2),
        (json.dumps([LINES, LINES]), 2),
        (str([packed(BIG), URL]), 2),
        (json.dumps([packed(BIG), packed(BIG)]).replace("/", "\\/"), 2),
        (json.dumps([f"data:image/png;base64,{packed(BIG)}", None]), 1),
    ],
)
@pytest.mark.parametrize("name", ["t.tsv", "t.json", "t.csv.gz"])
def test_base64_is_read_in_every_form_that_is_in_use(tmp_path, cell, number, name):
    record = BASE | {"id": "1", "image": cell}
    if name == "t.json":
        as_json(tmp_path / name, [record])
    else:
        table(tmp_path / name.removesuffix(".gz"), [record])
        if name.endswith(".gz"):
            (tmp_path / name).write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    (case,) = Questions(root=str(tmp_path), records=name, images={"base64": "image"}, **LAYOUT).cases("test")
    assert [image.read().array.shape for image in case.images] == [(1, 50, 60)] * number


def zipped(root, names, *, locked=False):
    with zipfile.ZipFile(root / "z.zip", "w") as archive:
        for name in names:
            archive.writestr(name, GOOD)
    data = (root / "z.zip").read_bytes()
    if locked:  # the bit that says so, of each entry of the directory
        data = re.sub(rb"PK\x01\x02(....)\x00", lambda entry: b"PK\x01\x02" + entry[1] + b"\x01", data)
    (root / "z.zip").write_bytes(data)
    as_json(root / "t.json", [BASE | {"id": "1", "image": "im/0.png"}])
    return ask(root, images={"zip": "z.zip", "member": "image"})["1"]


@pytest.mark.parametrize("name", ["im\\0.png", "./im/0.png"])
def test_a_member_is_found_as_windows_and_tar_write_its_name(tmp_path, name):
    assert zipped(tmp_path, [name]) == "A"


def test_an_archive_that_is_encrypted_or_not_there_is_named(tmp_path):
    said = zipped(tmp_path, ["im/0.png"], locked=True)
    assert re.search(r"z\.zip, member 'im/0\.png' \(item 1\): is encrypted; unpack", said)
    (tmp_path / "z.zip").unlink()
    said = ask(tmp_path, images={"zip": "z.zip", "member": "image"})["1"]
    assert re.search(r"z\.zip: no such archive, of which item 1 names the member 'im/0\.png'", said)
    (tmp_path / "im").mkdir()
    (tmp_path / "im" / "0.png").write_bytes(GOOD)
    assert ask(tmp_path, images={"zip": "z.zip", "member": "image"})["1"] == "A"


def test_pictures_of_archives_and_tables_are_read_in_another_process_s_memory(tmp_path):
    for source in (a_zip, a_parquet):
        first = Questions(root=str(tmp_path), **LAYOUT, **source(tmp_path)).cases("test")[0]
        first.images[0].read()
        assert pickle.loads(pickle.dumps(first.images[0])).read().array.shape == (1, 4, 6)


NOTHING = {"bytes": None, "path": None}
SOME = {"bytes": GOOD, "path": None}


def test_an_object_without_bytes_is_no_image(tmp_path):
    images = [[SOME, None, NOTHING], [NOTHING], [], None, [SOME, SOME]]
    records = [
        BASE | {"id": str(place), "several": one, "one": one[0] if one else None} for place, one in enumerate(images)
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet", row_group_size=2)
    for images, wanted in (("several", [1, 0, 0, 0, 2]), ("one", [1, 0, 0, 0, 1])):
        layout = Questions(root=str(tmp_path), records="t.parquet", images=images, min_images=0, **LAYOUT)
        cases = layout.cases("test")
        assert [len(case.images) for case in cases] == wanted
        assert all(outcome(case) == "A" for case in cases)


@pytest.mark.parametrize(
    "kind",
    [pa.binary_view(), pa.large_binary(), pa.list_(pa.binary(), 1), pa.large_list(pa.binary())],
    ids=str,
)
def test_bytes_are_images_however_they_are_stored(tmp_path, kind):
    values = [GOOD if not hasattr(kind, "value_type") else [GOOD]] * 3
    held = pa.table({name: [value] * 3 for name, value in BASE.items()} | {"id": list("123")})
    pq.write_table(held.append_column("image", pa.array(values, kind)), tmp_path / "t.parquet")
    assert ask(tmp_path, "t.parquet", images="image") == dict.fromkeys("123", "A")


def test_what_is_stored_once_for_many_rows_or_deep_in_objects_is_an_image_too(tmp_path):
    held = pa.table({name: [value] * 3 for name, value in BASE.items()} | {"id": list("123")})
    held = held.append_column("image", pa.array([GOOD] * 3).dictionary_encode())
    held = held.append_column("data", pa.array([{"image": SOME, "number": 1}] * 3))
    pq.write_table(held, tmp_path / "t.parquet")
    assert ask(tmp_path, "t.parquet", images="image") == dict.fromkeys("123", "A")
    assert ask(tmp_path, "t.parquet", images={"bytes": "data.image"}) == dict.fromkeys("123", "A")


def one(tmp_path, record, **layout):
    """What becomes of one record: its answer or what is said, and its options."""
    as_json(tmp_path / "t.json", [{"id": "1", "question": "q"} | record])
    settings = {"root": str(tmp_path), "records": "t.json", "id": "id", "answer": {"letter": "a"}} | layout
    (case,) = Questions(**settings).cases("test")
    return outcome(case), case.question.options if case.question else None


@pytest.mark.parametrize(
    ("options", "answer", "wanted"),
    [
        (["x", "", "y", None, "nan"], "C", {"A": "x", "C": "y"}),
        (["A. x", "B. ", "C. y"], "C", {"A": "x", "C": "y"}),
        (list(map(str, range(26))), "Z", None),
    ],
)
def test_blank_options_of_a_list_are_left_out_and_the_others_keep_their_letters(tmp_path, options, answer, wanted):
    said, found = one(tmp_path, {"o": options, "a": answer}, options={"list": "o", "strip": True})
    assert said == answer
    assert wanted is None or found == wanted


@pytest.mark.parametrize(
    ("options", "form", "words"),
    [
        (["x"] * 27, "list", "holds 27 options, expected at most 26"),
        ([{"letter": "A", "content": "x"}, {"letter": "A", "content": "y"}], "list", r"more than once \(A, A\)"),
        (["x", "", "y"], "list", r"the answer 'B' is not among the options \(A: x, C: y\)"),
        ("{'A': 'x', 'B", "dict", "is neither a JSON nor a Python literal"),
    ],
)
def test_options_that_cannot_be_chosen_from_are_named(tmp_path, options, form, words):
    said, _ = one(tmp_path, {"o": options, "a": "B"}, options={form: "o"})
    assert re.search(rf"t\.json, item 1: .*{words}", said)


def test_letters_that_an_object_names_twice_are_named(tmp_path):
    (tmp_path / "t.json").write_text(
        '[{"id": "1", "question": "q", "o": {"A": "x", "A": "y", "B": "z"}, "answer": "A"}]'
    )
    said = ask(tmp_path, options={"dict": "o"})["1"]
    assert re.search(r"t\.json, item 1: options name a letter more than once \(A, A, B\)", said)


def test_a_literal_with_backslashes_is_read_without_a_warning(tmp_path):
    assert one(tmp_path, {"o": r"{'A': 'x', 'B': 'y\d'}", "a": "B"}, options={"dict": "o"}) == (
        "B",
        {"A": "x", "B": r"y\d"},
    )


def test_a_text_that_is_like_two_options_is_neither_and_equal_options_are_the_first(tmp_path):
    layout = {"options": {"list": "o"}, "answer": {"text": "a"}}
    assert one(tmp_path, {"o": ["x", "x", "y"], "a": "x"}, **layout)[0] == "A"
    assert one(tmp_path, {"o": ["Yes", "yes.", "no"], "a": "yes."}, **layout)[0] == "B"
    assert "'YES' is not among" in one(tmp_path, {"o": ["Yes", "yes.", "no"], "a": "YES"}, **layout)[0]


@pytest.mark.parametrize(
    ("answer", "wanted"), [("A,C", "AC"), ("AC", "AC"), ("A、C", "AC"), (["C", "A", "C"], "CA"), ("c; a", "CA")]
)
def test_several_right_letters_are_read_however_they_are_parted(tmp_path, answer, wanted):
    layout = {"options": {"list": "o"}, "kind": "choices"}
    assert one(tmp_path, {"o": ["x", "y", "z"], "a": answer}, **layout)[0] == tuple(wanted)


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        ("regions", [{"k": 1}], "expected objects with 'k' and 'n'"),
        ("regions", ["x"], "expected objects with 'k' and 'n'"),
        ("regions", "cup", "is no object of names and values"),
        ("grades", "2", "is no object of names and values"),
        ("open", [""], "holds no text"),
        ("box", [1, 2, 3], "is not of four numbers"),
        ("number", "3-4", "is no number"),
    ],
)
def test_a_right_answer_of_another_form_is_named(tmp_path, kind, answer, words):
    form = {"value": "a", "key": "k", "name": "n"} if kind == "regions" else {"value": "a"}
    said, _ = one(tmp_path, {"a": answer}, kind=kind, answer=form)
    assert re.search(rf"t\.json, item 1: .*{words}", said)


def test_kinds_are_told_by_values_that_are_no_texts(tmp_path):
    kind = {"column": "closed", "kinds": {True: "yes_no", 0: "open"}}
    assert one(tmp_path, {"a": "Yes", "closed": True}, kind=kind, answer={"value": "a"})[0] == "yes"
    assert one(tmp_path, {"a": "Yes", "closed": 0}, kind=kind, answer={"value": "a"})[0] == "Yes"


def test_a_record_without_a_set_is_named_and_is_no_member_of_any(tmp_path):
    as_json(
        tmp_path / "t.json",
        [BASE | {"id": name, "s": said} for name, said in zip("abcd", ["1", "", None, "1"], strict=True)],
    )
    layout = Questions(root=str(tmp_path), records="t.json", set="s", **LAYOUT)
    cases = layout.cases("test")
    assert [(case.id, case.attributes.get("member"), case.patient) for case in cases] == [
        ("a", "1", "1"),
        ("d", "2", "1"),
        ("b", None, None),
        ("c", None, None),
    ]
    assert all("set 's' is empty" in outcome(case) for case in cases[2:])


def test_a_second_record_of_an_id_does_not_spoil_the_rotations_of_the_first(tmp_path):
    as_json(tmp_path / "t.json", [BASE | {"id": "1"}, BASE | {"id": "1"}, BASE | {"id": "2", "answer": "G"}])
    cases = Questions(root=str(tmp_path), records="t.json", expand=["rotate_options"], **LAYOUT).cases("test")
    assert [(case.id, case.attributes["set"], case.patient) for case in cases] == [
        ("1.0", "1", "1"),
        ("1.1", "1", "1"),
        ("1#2", "1#2", "1#2"),
        ("2", "2", "2"),
    ]
    assert [outcome(case) for case in cases[:2]] == ["A", "B"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"pair": {"m": "a"}}, "pair is .*expected a list of objects"),
        ({"first": "x"}, "first is 'x', expected a whole number"),
        ({"shuffle": None}, "shuffle is None"),
        ({"explode": 3}, "explode is 3, expected the name of a column"),
        ({"numbered": 3}, "numbered is 3, expected the name of a column"),
        ({"conversation": ""}, "conversation is '', expected the name of a column"),
        ({"filter": "id"}, "filter is 'id', expected an object"),
        ({"join": "o.json", "on": "id", "missing": "ignore"}, "missing is invalid: .*got 'ignore'"),
    ],
)
def test_a_step_that_is_given_what_it_cannot_take_is_refused(tmp_path, step, words):
    as_json(tmp_path / "t.json", [BASE | {"id": "1"}])
    as_json(tmp_path / "o.json", [{"id": "1"}])
    with pytest.raises(UsageError, match=rf"task\.layout\.expand: {words}"):
        ask(tmp_path, expand=[step])


@pytest.mark.parametrize("name", ["join", "listed"])
def test_a_record_whose_key_does_not_fit_is_named_and_keeps_its_id(tmp_path, name):
    as_json(tmp_path / "t.json", [BASE | {"id": name, "key": name} for name in ("x1", "y")])
    as_json(tmp_path / "o.json", [{"number": "1"}, {"number": "none"}])
    found = ask(tmp_path, expand=[{name: "o.json", "on": {r"{key~\d+}": r"{number~\d+}"}}])
    assert found["x1"] == "A"
    assert re.search(r"t\.json, item 2: 'y' does not fit", found["y"])


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("numbered", "expected a list to be numbered"),
        ("conversation", "is no list of turns"),
        ("tagged", "are no tags of tokens"),
    ],
)
def test_a_list_that_is_none_is_a_fault_of_its_record_alone(tmp_path, step, words):
    turns = [{"role": "user", "content": "Hi."}]
    if step == "tagged":
        turns[:] = ["B-Drug"]
    as_json(
        tmp_path / "t.json",
        [BASE | {"id": "1", "said": turns, "tokens": ["x"]}, BASE | {"id": "2", "said": "Hi.", "tokens": ["x"]}],
    )
    found = ask(tmp_path, expand=[{step: "said"}])
    assert found["1"] == "A"
    assert words in next(text for name, text in found.items() if name != "1")


def test_members_of_a_pair_may_have_any_name(tmp_path):
    as_json(tmp_path / "t.json", [BASE | {"id": "1", "p": "first", "q": "second"}])
    step = {"pair": [{"member": "p", "self": "q"}, {"member": "q", "self": "p"}]}
    assert ask(tmp_path, id="{member}-{self}", expand=[step]) == {"first-second": "A", "second-first": "A"}


def test_more_columns_of_options_than_letters_are_refused(tmp_path):
    names = [f"choice{number}" for number in range(27)]
    as_json(tmp_path / "t.json", [BASE | {"id": "1"} | dict.fromkeys(names, "x")])
    with pytest.raises(UsageError, match=r"options\.columns names 27, expected at most 26"):
        ask(tmp_path, options={"columns": names})

"""`phi_scan`: counts and exit codes, and no value anywhere in what it says or writes."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from medimg_eval.case import Image
from medimg_eval.commands.cli import start
from medimg_eval.imaging.dicom.writing.images import write_series

FLAT = Image(np.zeros((1, 3, 3, 2), np.int16), np.eye(4))
NAME = "Featherstone"


def said(capsys, *words):
    code = start(["phi_scan", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_clean_folder_ends_well_and_says_what_was_not_looked_at(tmp_path, capsys):
    write_series(tmp_path / "data", FLAT)
    (tmp_path / "data" / "notes.csv").write_text("a,b\n")
    code, out, err = said(capsys, f"path={tmp_path / 'data'}")
    assert (code, err) == (0, "")
    assert "files looked at: 2 DICOM" in out
    assert "Pixels were not looked at" in out
    assert "add before=FOLDER" in out
    assert "1 x .csv" in out
    assert "What identifies" not in out


def test_what_is_planted_is_counted_by_kind_and_by_file_and_never_shown(tmp_path, capsys):
    data = tmp_path / "data"
    more = {"PatientName": f"{NAME}^Jane", "PatientAddress": f"12 {NAME} Lane", "StudyDate": "20190314"}
    write_series(data / NAME, FLAT, StudyDescription=NAME, **more)
    write_series(data / "clean", FLAT, seed=1)
    code, out, err = said(capsys, f"path={data}", f"out={tmp_path / 'out'}")
    assert code == 1
    # Name, address, description and the name of the folder, of two files.
    assert "8 places in 2 files" in err
    assert "PatientAddress" in out
    assert "X: remove" in out
    written = [(tmp_path / "out" / f"phi_scan.{kind}").read_text() for kind in ("csv", "json")]
    for text in (out, err, *written):
        assert NAME not in text
        assert NAME.lower() not in text.lower()
        assert "20190314" not in text
    rows = list(csv.DictReader(written[0].splitlines()))
    whole = json.loads(written[1])
    assert len(rows) == len(whole["findings"]) == 10
    assert {row["level"] for row in rows if row["attribute"] == "StudyDate"} == {"look"}
    assert whole["counts"]["identity"] == {"found": 4, "found_files": 2, "look": 0, "look_files": 0}
    assert whole["counts"]["date"] == {"found": 0, "found_files": 0, "look": 2, "look_files": 2}
    assert [(one["found"], one["look"]) for one in whole["files"]] == [(4, 1), (4, 1)]
    assert {row["masked"] for row in rows if row["attribute"] == "PatientName"} == {"Aaaaaaaaaaaa^Aaaa"}


def test_files_are_compared_with_those_before(tmp_path, capsys):
    write_series(tmp_path / "before", FLAT)
    write_series(tmp_path / "after", FLAT, seed=1, patient="case-7")
    code, out, _ = said(capsys, f"path={tmp_path / 'after'}", f"before={tmp_path / 'before'}")
    assert code == 0
    assert "2 DICOM files have one of the same name before." in out
    code, out, _ = said(capsys, f"path={tmp_path / 'before'}", f"before={tmp_path / 'before'}", "shown=0")
    assert code == 1
    assert "UIDs that were not replaced" in out
    assert "Where" not in out


def test_reports_are_looked_through_for_names_and_copied_phrases(tmp_path, capsys):
    phrase = "small left apical pneumothorax after removal of the old drain"
    (tmp_path / "training.csv").write_text(
        f"report,patient\nA {phrase}.,p1\nThe lungs are clear and the heart is of normal size.,p1\n"
        "The lungs are clear and the heart is of normal size.,p2\n"
    )
    (tmp_path / "names.txt").write_text(f"{NAME}^Jane\nA-77X9\n")
    (tmp_path / "made.csv").write_text(
        f"report\nNow a {phrase} is seen.\nThe lungs are clear and the heart is of normal size.\nMs {NAME} a77x9\n___\n"
    )
    words = [f"reports={tmp_path / 'made.csv'}", f"training={tmp_path / 'training.csv'}"]
    code, out, err = said(capsys, *words, f"names={tmp_path / 'names.txt'}", f"out={tmp_path / 'out'}")
    assert code == 1
    assert "2 of 4 reports repeat a patient" in err
    assert NAME not in out + err
    whole = json.loads((tmp_path / "out" / "phi_scan.json").read_text())
    shares = {name: share["texts"] for name, share in whole["shares"].items()}
    assert shares == {
        "phi_leak_rate": 1,
        "phi_suspected_rate": 0,
        "leaked_vocabulary_rate": 1,
        "leaked_marked_rate": 0,
        "placeholder_rate": 1,
    }
    rows = list(csv.DictReader((tmp_path / "out" / "phi_scan.csv").read_text().splitlines()))
    assert [int(row["longest"]) for row in rows] == [11, 0, 0, 0]
    code, out, _ = said(capsys, words[0])
    assert code == 0
    assert "Listed names and numbers were not looked for: add names=FILE." in out
    assert "Phrases of the training set were not looked for: add training=FILE." in out


def test_an_empty_report_is_a_report(tmp_path, capsys):
    (tmp_path / "made.csv").write_text('report\nclear\n""\nclear\n')
    _, out, _ = said(capsys, f"reports={tmp_path / 'made.csv'}")
    assert "0 of 3" in out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([], 2, "add path=FOLDER or reports=FILE"),
        (["path=a", "reports=b"], 2, "one thing at a time"),
        (["path={tmp}/none"], 1, "no such file or folder"),
        (["path={tmp}", "keep=[dates]"], 2, "got 'dates'"),
        (["path={tmp}", "shown=many"], 2, "expected shown to be a whole number of at least 0, got 'many'"),
        (["reports={tmp}/none.csv"], 1, "no such table"),
        (["reports={tmp}/a.csv", "column=text"], 2, "has no column 'text'"),
        (["reports={tmp}/a.csv", "training={tmp}/a.csv"], 2, "has no column 'patient'"),
        (["reports={tmp}/a.csv", "names={tmp}/none.txt"], 1, "cannot be read; expected a text file"),
        (["reports={tmp}/a.csv", "names={tmp}/blank.txt"], 1, "blank.txt: holds no name"),
        (["reports={tmp}/a.csv", "tokens=true"], 2, "expected tokens to be a whole number of at least 1, got True"),
        (["reports={tmp}/a.csv", "training={tmp}/b.csv"], 1, "b.csv, line 3: names no patient in the column 'patient'"),
        (["reports={tmp}/c.jsonl"], 1, "lacks the column 'report'"),
        (["reports={tmp}/a.csv", "out={tmp}/a.csv"], 1, "a.csv: cannot be read or written (File exists)"),
        (["path=päth"], 2, "path=päth: cannot be understood; quote the value twice, as in 'path=\"VALUE\"'"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(tmp_path, capsys, words, code, sentence):
    (tmp_path / "a.csv").write_text("report\nclear\n")
    (tmp_path / "b.csv").write_text("report,patient\nclear,p1\nclear,\n")
    (tmp_path / "c.jsonl").write_text('{"report": "clear"}\n{"text": "clear"}\n')
    (tmp_path / "blank.txt").write_text(" \n")
    got, _, err = said(capsys, *(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert got == code
    assert sentence in err

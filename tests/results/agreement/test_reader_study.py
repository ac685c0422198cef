"""Reader studies: what a form gives away, and what filled sheets come to."""

from __future__ import annotations

import csv
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures
from scipy import stats
from sklearn.metrics import roc_auc_score

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.agreement.continuous import intraclass_correlation
from medimg_eval.metrics.agreement.kappa import fleiss_kappa
from medimg_eval.results.agreement.reader_study import (
    Readings,
    d_prime,
    over_readers,
    read_readings,
    score_readers,
    superiority,
)


def study(said, generated, grades=None, scale=5):
    said = np.array(said, dtype=float)
    names = tuple("ABCDEFG"[: len(said)])
    items = tuple(f"{place:03d}" for place in range(said.shape[1]))
    held = {name: np.array(one, dtype=float) for name, one in (grades or {}).items()}
    return Readings(names, items, np.array(generated, dtype=bool), said, held, scale)


def numbers(readings, sheet="turing", **options):
    frame = score_readers(readings, **options)[sheet].frame()
    return frame.set_index(frame.columns[0])


def test_one_reader_by_hand():
    # Of 4 generated images 3 were found, of 6 real ones 5: 8 of 10 are right.
    found = numbers(study([[1, 1, 1, 0, 0, 0, 0, 0, 0, 1]], [1] * 4 + [0] * 6)).loc["A"]
    assert (found["accuracy"], found["sensitivity"], found["specificity"]) == (0.8, 0.75, pytest.approx(5 / 6))
    exact = stats.binomtest(8, 10)
    assert (found["accuracy_low"], found["accuracy_high"]) == pytest.approx(tuple(exact.proportion_ci(method="exact")))
    assert found["p"] == pytest.approx(exact.pvalue)
    hit, alarm = stats.norm.ppf(3.5 / 5), stats.norm.ppf(1.5 / 7)
    assert (found["d_prime"], found["criterion"]) == pytest.approx((hit - alarm, -(hit + alarm) / 2))


def test_readers_are_the_units_of_a_mean_over_them():
    truth = [1, 1, 1, 1, 0, 0, 0, 0]
    said = [truth, [1, 1, 1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0]]
    found = numbers(study(said, truth))
    assert found["accuracy"].to_dict() == {"A": 1, "B": 0.75, "C": 0.5, "mean of readers": 0.75, "majority": 0.75}
    mean = found.loc["mean of readers"]
    shares = [1, 0.75, 0.5]
    low, high = stats.t.interval(0.95, 2, loc=0.75, scale=stats.sem(shares))
    assert (mean["accuracy_low"], mean["accuracy_high"]) == pytest.approx((low, min(1, high)))
    assert mean["p"] == pytest.approx(stats.ttest_1samp(shares, 0.5).pvalue)
    # The majority is one reader, whose images are the units.
    assert found.loc["majority", "accuracy_low"] == pytest.approx(
        stats.binomtest(6, 8).proportion_ci(method="exact").low
    )


def test_silence_and_ties_are_left_out_and_told():
    sheet = score_readers(study([[1, math.nan, 0, 0], [1, 1, 1, math.nan]], [1, 1, 0, 0]))["turing"]
    frame = sheet.frame().set_index("reader")
    assert frame["n"].to_dict() == {"A": 3, "B": 3, "mean of readers": 6, "majority": 3}
    assert any("2 of 8 readings do not say" in note for note in sheet.layout().footnotes)
    alone = numbers(study([[math.nan, 1]], [0, 1]))
    assert math.isnan(alone.loc["A", "specificity"])
    assert math.isnan(alone.loc["A", "d_prime"])


def test_grades_by_hand():
    generated = [0, 0, 1, 1]
    grades = [[4, 5, 2, 3], [5, 5, 4, 5], [3, math.nan, 3, 1]]
    readings = study(np.zeros((3, 4)), generated, {"realism": grades})
    found = numbers(readings, "grades").loc["realism"]
    assert (found["real_n"], found["generated_n"]) == (5, 6)
    assert found["real_mean"] == pytest.approx(4.4)
    assert (found["generated_q1"], found["generated_median"], found["generated_q3"]) == (2.25, 3, 3.75)
    apart = [2.5 - 4.5, 4.5 - 5, 2 - 3]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(apart), scale=stats.sem(apart))
    assert (found["difference"], found["difference_low"], found["difference_high"]) == pytest.approx(
        (np.mean(apart), low, high)
    )
    assert found["superiority"] == pytest.approx(np.mean([0, 0.25, 0.25]))
    assert found["icc"] == pytest.approx(intraclass_correlation(np.array(grades).T))


def test_one_reader_has_grades_without_an_interval():
    found = numbers(study([[0, 1]], [0, 1], {"quality": [[3, 4]]}), "grades").loc["quality"]
    assert found["difference"] == 1
    assert math.isnan(found["difference_low"])
    assert math.isnan(found["icc"])


def test_fleiss_kappa_of_the_published_example():
    # 10 subjects, 14 readers, 5 labels: the counts of the usual textbook table, whose kappa is 0.210.
    counts = [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
    labels = np.array([np.repeat(np.arange(5), row) for row in counts], dtype=float).T
    assert fleiss_kappa(labels) == pytest.approx(0.2099, abs=1e-4)
    assert fleiss_kappa(np.array([[0.0, 1, 0], [0, 1, 0]])) == 1
    assert math.isnan(fleiss_kappa(np.zeros((3, 4))))
    assert math.isnan(fleiss_kappa(np.array([[0.0, 1]])))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_superiority_is_an_area_under_the_curve(one, other):
    value = superiority(np.array(one, float), np.array(other, float))
    assert value == pytest.approx(roc_auc_score([1] * len(one) + [0] * len(other), one + other))
    assert superiority(np.array(other, float), np.array(one, float)) == pytest.approx(1 - value)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 40), st.integers(0, 40))
def test_d_prime_is_finite_and_turns_round_with_the_answers(n, hits):
    calls = (np.arange(n) < hits).astype(float)
    d, c = d_prime(calls, 1 - calls)
    assert math.isfinite(d)
    assert d_prime(1 - calls, calls)[0] == pytest.approx(-d)
    assert d_prime(calls, calls)[0] == 0
    assert math.isfinite(c)


def test_an_interval_over_readers_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        found = over_readers(random.normal(0.6, 0.1, 6))
        held += found.low <= 0.6 <= found.high
    assert 0.92 <= held / 400 <= 0.98
    assert math.isnan(over_readers(np.array([0.5])).low)
    assert math.isnan(over_readers(np.array([math.nan])).value)


@pytest.fixture
def sheets(tmp_path):
    """Writes a key and filled sheets; returns their paths."""

    def write(*texts, key="item,truth\n001,real\n002,generated\n"):
        (tmp_path / "key.csv").write_text(key, encoding="utf-8")
        files = []
        for place, text in enumerate(texts):
            files.append(tmp_path / f"{place}.csv")
            files[-1].write_text(text, encoding="utf-8")
        return files, tmp_path / "key.csv"

    return write


def test_sheets_as_spreadsheets_save_them_are_read(sheets):
    made = read_readings(
        *sheets(
            "\ufeffreader;item;origin;realism;comment\nA;1;Real;4;fine\nA;2;FAKE;;\n;;;;\n".replace(";;;;\n", ""),
            "item,reader,origin,realism\n002,B,g,2.0\n001,B,,1\n002,,,\n",
        )
    )
    assert made.readers == ("A", "B")
    assert made.generated.tolist() == [False, True]
    np.testing.assert_array_equal(made.said, [[0, 1], [math.nan, 1]])
    np.testing.assert_array_equal(made.grades["realism"], [[4, math.nan], [1, 2]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("reader,item,origin\nA,003,real\n", "line 2: item '003' is not in the key"),
        ("reader,item,origin\nA,001,real\nA,001,real\n", "line 3: reader 'A' has read item '001' before"),
        ("reader,item,origin\nA,001,maybe\n", "expected real or generated in the column origin, got 'maybe'"),
        ("reader,item,origin,q\nA,001,real,6\n", "expected a grade from 1 to 5 in the column q, got '6'"),
        ("reader,item,origin,q\nA,001,real,2.5\n", "got '2.5'"),
        ("reader,item,origin,q\nA,001,real,good\n", "got 'good'"),
        ("reader,item,origin\n,001,real\n", "names no reader"),
        ("reader,item,origin\n,001,\n", "holds no reading"),
        ("reader,item\nA,001\n", "has no column 'origin'; its columns are reader, item"),
    ],
)
def test_odd_sheets_are_refused_by_line(sheets, text, words):
    with pytest.raises(UserError, match=words):
        read_readings(*sheets(text))


def test_odd_keys_and_levels_are_refused(sheets, tmp_path):
    filled = "reader,item,origin\nA,001,real\n"
    with pytest.raises(UserError, match="expected truth to be real or generated"):
        read_readings(*sheets(filled, key="item,truth\n001,yes\n"))
    with pytest.raises(UserError, match=r"none\.csv: cannot be read"):
        read_readings([tmp_path / "none.csv"], sheets(filled)[1])
    with pytest.raises(UsageError, match="level to be between 0 and 1, got 95"):
        score_readers(read_readings(*sheets(filled)), level=95)
    with pytest.raises(UserError, match="no reader said of any image"):
        score_readers(study([[math.nan]], [1]))


def test_a_sheet_is_scored_with_the_key_of_its_own_form_alone(sheets):
    key = "item,truth,study\n001,real,aa\n002,generated,aa\n"
    head = "reader,item,origin,study\n"
    assert read_readings(*sheets(head + "A,001,real,aa\n,002,,aa\n", key=key)).readers == ("A",)
    assert read_readings(*sheets("reader,item,origin\nA,001,real\n", key=key)).readers == ("A",)
    with pytest.raises(UserError, match=r"0\.csv, line 2: belongs to another form than .*key\.csv"):
        read_readings(*sheets(head + "A,001,real,bb\n", key=key))
    with pytest.raises(UserError, match=r"key\.csv, line 4: names item '001' again"):
        read_readings(*sheets(head, key=key + "001,generated,bb\n"))


def test_lines_are_counted_as_editors_count_them(sheets):
    comment = 'reader,item,origin,comment\nA,001,real,"two\nlines\u2028and more"\n\nA,002,maybe,\n'
    with pytest.raises(UserError, match=r"0\.csv, line 5: expected real or generated"):
        read_readings(*sheets(comment))


def test_readers_who_are_all_alike_have_no_interval_over_them():
    found = numbers(study([[1, 0]] * 3, [1, 0])).loc["mean of readers"]
    assert found["accuracy"] == 1
    assert found[["accuracy_low", "accuracy_high", "p"]].isna().all()


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(0)
    for kind in ("real", "generated"):
        (tmp_path / kind).mkdir()
        for place in range(5):
            picture = Pictures.fromarray(random.integers(0, 255, (20, 30), dtype=np.uint8))
            picture.save(tmp_path / kind / f"{kind}-{place}.png")
    return tmp_path


def rows(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def form(folder, *words):
    return start(
        ["readers", f"out={folder / 'form'}", f"real={folder / 'real'}", f"generated={folder / 'generated'}", *words]
    )


def test_a_form_is_blinded_complete_and_the_same_by_seed(pictures, capsys):
    assert form(pictures, "number=3", "side=16") == 0
    assert "3 real and 3 generated images" in capsys.readouterr().out
    page = (pictures / "form" / "form.html").read_text()
    sheet = rows(pictures / "form" / "sheet.csv")
    key = rows(pictures / "form-key.csv")
    assert [row["item"] for row in sheet] == [row["item"] for row in key] == [f"{n:03d}" for n in range(1, 7)]
    assert sorted(row["truth"] for row in key) == ["generated"] * 3 + ["real"] * 3
    assert set(sheet[0]) == {"reader", "item", "origin", "quality", "realism", "utility", "comment", "study"}
    # Neither names of files nor anything outside the page.
    assert not re.search(r"real-\d|generated-\d|https?:", page)
    assert page.count("data:image/png;base64,") == 6
    assert {path.name for path in (pictures / "form").iterdir()} == {"form.html", "sheet.csv"}
    assert form(pictures, "number=3", "side=16", f"key={pictures / 'b.csv'}") == 0
    assert (pictures / "form" / "form.html").read_text() == page
    assert form(pictures, "number=3", "side=16", f"key={pictures / 'c.csv'}", "seed=1") == 0
    assert (pictures / "c.csv").read_text() != (pictures / "b.csv").read_text()


def test_questions_are_ones_own(pictures):
    (pictures / "own.yaml").write_text("polyp_seen: Is a polyp < 5 mm seen?\n")
    assert form(pictures, f"questions={pictures / 'own.yaml'}", "scale=3") == 0
    assert set(rows(pictures / "form" / "sheet.csv")[0]) == {
        "reader",
        "item",
        "origin",
        "polyp_seen",
        "comment",
        "study",
    }
    page = (pictures / "form" / "form.html").read_text()
    assert "Is a polyp &lt; 5 mm seen?" in page
    assert len(re.findall(r'name="001-polyp_seen"', page)) == 3
    assert form(pictures, "questions={sharp: Is it sharp?}", f"key={pictures / 'b.csv'}") == 0
    assert "sharp" in rows(pictures / "form" / "sheet.csv")[0]


def test_what_would_give_the_truth_away_is_told(pictures, capsys):
    for path in (pictures / "generated").iterdir():
        with Pictures.open(path) as picture:
            picture.resize((24, 24)).save(path.with_suffix(".bmp"))
        path.unlink()
    assert form(pictures) == 0
    out = capsys.readouterr().out
    assert "the sizes tell real from generated (30x20; 24x24)" in out
    assert "the formats tell real from generated (.png; .bmp)" in out


def test_sizes_that_only_few_images_share_give_the_truth_away(pictures, capsys):
    for place in range(1, 5):
        Pictures.new("L", (20 + place, 20), place).save(pictures / "real" / f"real-{place}.png")
    assert form(pictures) == 0
    assert "the sizes tell real from generated (" in capsys.readouterr().out


def test_images_that_are_there_twice_are_told(pictures, capsys):
    (pictures / "real" / "copy.png").write_bytes((pictures / "generated" / "generated-0.png").read_bytes())
    assert form(pictures) == 0
    out = capsys.readouterr().out
    assert "images are in the form twice, pixel for pixel (1), such as" in out
    assert "the sizes" not in out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["number=0"], 2, "number of at least 1"),
        (["scale=1"], 2, "scale to be a whole number of at least 2, got 1"),
        (["questions={origin: x}"], 2, "a question cannot be called 'origin'"),
        (["questions=[a]"], 2, "expected questions to be name: wording"),
        (["questions={tmp}/none.yaml"], 1, "none.yaml: cannot be read; expected YAML"),
        (["key={tmp}/form/key.csv"], 2, "would lie among what readers get"),
        (["key={tmp}/real/real-0.png"], 1, "is there already"),
        (["real={tmp}/none"], 1, "no such folder"),
        (["real={tmp}/void"], 1, "holds no image"),
        (["score={tmp}/a.csv"], 2, "add key=FILE"),
    ],
)
def test_what_cannot_be_meant_is_said(pictures, capsys, words, code, sentence):
    (pictures / "void").mkdir()
    assert form(pictures, *(word.replace("{tmp}", str(pictures)) for word in words)) == code
    assert sentence in capsys.readouterr().err


def test_a_form_needs_folders(capsys):
    assert start(["readers"]) == 2
    assert "a form needs out=FOLDER and real=FOLDER and generated=FOLDER" in capsys.readouterr().err


def test_a_study_goes_round(pictures, capsys):
    form(pictures)
    key = {row["item"]: row["truth"] for row in rows(pictures / "form-key.csv")}
    lines = ["reader,item,origin,quality"]
    lines += [
        f"{reader},{item},{truth},{4 if truth == 'real' else 3}" for reader in "AB" for item, truth in key.items()
    ]
    (pictures / "filled.csv").write_text("\n".join(lines))
    words = [f"score={pictures / 'filled.csv'}", f"key={pictures / 'form-key.csv'}", f"out={pictures / 'tables'}"]
    assert start(["readers", *words]) == 0
    out = capsys.readouterr().out
    assert "mean of readers" in out
    assert "Fleiss' kappa: 1.00" in out
    names = {path.name for path in (pictures / "tables").iterdir()}
    assert names == {
        f"readers-{sheet}.{kind}" for sheet in ("turing", "grades") for kind in ("md", "tex", "csv", "html", "xlsx")
    }

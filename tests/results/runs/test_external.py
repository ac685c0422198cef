import pandas as pd
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_table, compare, load_scores

HEAD = "case,model,metric,value,patient,site\n"
ROWS = [
    ("a1", "U-Net", "Dice", "0.9", "a", "Ulm"),
    ("a2", "U-Net", "Dice", "0.7", "a", "Ulm"),
    ("b1", "U-Net", "Dice", "0.5", "b", "Bonn"),
    ("a1", "Ours", "Dice", "0.8", "a", "Ulm"),
    ("a2", "Ours", "Dice", "", "a", "Ulm"),
    ("b1", "Ours", "Dice", "1", "b", "Bonn"),
]


def write(folder, rows, head=HEAD):
    file = folder / "mine.csv"
    file.write_text(head + "".join(",".join(row) + "\n" for row in rows))
    return file


def test_a_csv_of_scores_is_read_as_runs(tmp_path):
    runs = load_scores(write(tmp_path, ROWS))

    assert [(run.model, run.task, run.cases, run.resampled) for run in runs] == [
        ("U-Net", "scores", 3, "patients"),
        ("Ours", "scores", 3, "patients"),
    ]
    table = build_table(runs, resamples=200)
    (unet, ours) = table.rows
    assert (unet.cells[0].mean, unet.cells[0].n, unet.cells[0].n_clusters) == (pytest.approx(0.7), 3, 2)
    assert (ours.cells[0].mean, ours.cells[0].n, ours.cells[0].undefined_cases) == (pytest.approx(0.9), 2, 1)
    assert table.columns[0].title == "Dice"
    assert ours.cells[0].mark == "best"


def test_further_columns_are_attributes_of_the_cases(tmp_path):
    table = build_table(load_scores(write(tmp_path, ROWS)), by="site", resamples=100)

    assert [(row.name, row.group) for row in table.rows[:3]] == [
        ("U-Net", "all cases"),
        ("U-Net", "Bonn"),
        ("U-Net", "Ulm"),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("c1,m,probability,0.3,edema,", "line 3: the status of a probability is the truth, expected present or absent"),
        ("c1,m,probability,0.3,edema,yes", "got 'yes'"),
        ("c1,m,probability,1.2,edema,present", "line 3: a probability is 1.2, expected 0 to 1"),
        ("c1,m,probability,,edema,present", "a probability is nan, expected 0 to 1"),
        ("c0,m,probability,0.3,edema,present", "line 2 and line 3: both give probability of case 'c0'"),
        ("c1,m,confidence,0.3,open,present", "expected right or wrong, got 'present'"),
    ],
)
def test_probabilities_need_a_truth(tmp_path, row, said):
    file = tmp_path / "mine.csv"
    file.write_text(f"case,model,metric,value,label,status\nc0,m,probability,0.2,edema,absent\n{row}\n")
    with pytest.raises(UserError, match=said):
        load_scores(file)


def test_metrics_that_are_not_ours_need_a_direction_to_be_compared(tmp_path):
    rows = [(case, model, "my_error", str(at), "p" + case, "x") for at, case in enumerate("abc") for model in "MN"]
    file = write(tmp_path, rows)

    with pytest.raises(UsageError, match="direction=.my_error: higher"):
        compare(load_scores(file), "my_error")
    assert compare(load_scores(file, direction={"my_error": "lower"}), "my_error").sheets
    with pytest.raises(UsageError, match="direction names 'my_eror'"):
        load_scores(file, direction={"my_eror": "lower"})
    with pytest.raises(UsageError, match="expected higher or lower"):
        load_scores(file, direction={"my_error": "up"})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*ROWS, ROWS[0]], r"line 2 and line 8: both give dice of case 'a1' for 'U-Net'"),
        ([("a", "U-Net", "Dice", "high", "a", "Ulm")], r"line 2: the value is 'high'"),
        ([("a", "U-Net", "Dice", "inf", "a", "Ulm")], r"line 2: the value is 'inf'"),
        ([("a", "U-Net", "Dice", "-1e101", "a", "Ulm")], r"line 2: the value is '-1e101', expected a number within"),
        ([("", "U-Net", "Dice", "1", "a", "Ulm")], r"line 2: the case is empty"),
        ([ROWS[0], ("b1", "U-Net", "Dice", "0.5", "", "Bonn")], r"line 3: has no patient"),
        ([ROWS[0], ("a1", "Ours", "Dice", "0.5", "b", "Ulm")], r"case 'a1' has two values of patient: 'a' and 'b'"),
        ([ROWS[0], ("a1", "Ours", "Dice", "0.5", "a", "Bonn")], r"case 'a1' has two values of site"),
        ([], "holds no scores"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path, rows, said):
    with pytest.raises(UserError, match=said):
        load_scores(write(tmp_path, rows))


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(UserError, match="has no column 'metric'"):
        load_scores(write(tmp_path, [("a", "b", "c")], "case,model,values\n"))


def test_a_metric_of_whole_runs_is_refused(tmp_path):
    with pytest.raises(UsageError, match="one value for a whole run"):
        load_scores(write(tmp_path, [("a", "M", "cpm", "1", "a", "x")]))


def test_a_model_that_was_shown_no_images_is_no_rival(tmp_path):
    rows = [
        (case, model, "Dice", str(at / 9), case, "x") for at, case in enumerate("abc") for model in ("M", "M (blind)")
    ]

    runs = load_scores(write(tmp_path, rows))
    assert [(run.name, run.model, run.condition, run.baseline) for run in runs] == [
        ("M", "M", "", False),
        ("M (blind)", "M", "no_image", True),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("case;model;metric;value\nc0;M;dice;0,5\n", "separated by ';', expected commas"),
        ("case\tmodel\tmetric\tvalue\nc0\tM\tdice\t0.5\n", "separated by '.t', expected commas"),
        ("case,model,metric,value\nc0,M,dice,0.5,\nc1,M,dice,0.7,\n", "rows hold more values than the header"),
        ("case,model,metric,value,value\nc0,M,dice,0.5,0.5\n", "two columns are called 'value'"),
    ],
)
def test_a_header_that_does_not_fit_its_rows_is_refused(tmp_path, text, said):
    file = tmp_path / "mine.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=said):
        load_scores(file)


def test_a_table_of_probabilities_alone_says_what_to_ask_for(program, tmp_path):
    file = tmp_path / "mine.csv"
    rows = [f"c{at},M,probability,0.{at},edema,{('absent', 'present')[at % 2]}" for at in range(8)]
    file.write_text("\n".join(["case,model,metric,value,label,status", *rows]))

    done = program("table", f"scores={file}")
    assert done.returncode == 1
    assert "name summaries that rest on those there are" in done.stderr
    assert "Traceback" not in done.stderr
    assert program("table", f"scores={file}", "metrics=[auroc@macro]", "resamples=20").returncode == 0


def test_a_csv_is_read_alike_by_arrow_and_by_pandas(tmp_path, monkeypatch):
    """Quotes, lines within a cell, guarded formulas, blanks, and categories that sort as texts do."""
    text = (
        "case,patient,model,metric,value,label,status,site\r\n"
        '"a, 1",p1,\'=ours,dice,0.5,liver,present,"two\nlines"\r\n'
        '" b ",p2 ,\'=ours,Dice, 0.25,,,X\r\n'
        "\r\n"
        '"a, 1",p1,theirs,dice,nan,liver,missed,"two\nlines"\r\n'
        "b,p2,theirs,dice,,all,failed,X\r\n"
    )
    file = tmp_path / "scores.csv"
    file.write_bytes(text.encode("utf-8-sig"))
    of_arrow = load_scores(file)
    assert [run.model for run in of_arrow] == ["=ours", "theirs"]
    assert of_arrow[0].scores["attributes"].tolist() == ['{"site": "two\\nlines"}', '{"site": "X"}']
    assert of_arrow[1].scores["status"].min() == "failed", "as texts are ordered"
    monkeypatch.setattr("medimg_eval.results.runs.external._by_arrow", lambda *_: None)
    for one, other in zip(of_arrow, load_scores(file), strict=True):
        pd.testing.assert_frame_equal(one.scores, other.scores)


def test_a_row_of_too_many_or_too_few_values_is_as_pandas_takes_it(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("case,model,metric,value,patient\na,ours,dice,0.5\nb,ours,dice,0.5,p\n")
    with pytest.raises(UserError, match="line 2: has no patient, although others have"):
        load_scores(file)
    file.write_text("case,model,metric,value\na,ours,dice,0.5,1,2\n")
    with pytest.raises(UserError, match="rows hold more values than the header"):
        load_scores(file)

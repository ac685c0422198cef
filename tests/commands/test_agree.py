"""`agree`: judges against human labels, by hand-worked numbers and by the library's."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from omegaconf import OmegaConf
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from medimg_eval.commands import agree
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.agreement.continuous import intraclass_correlation
from medimg_eval.results import judge_agreement, read_jury, read_verdicts
from medimg_eval.results.runs import validation_notes
from medimg_eval.results.runs.loading import SCHEMA


@pytest.fixture
def judged(tmp_path):
    """Writes a run's verdicts and a CSV of labels; returns the two paths."""

    def write(verdicts, labels, columns="case,human", judge="gpt", name="run"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"command": "test", "task_title": "Reports"}))
        lines = [
            json.dumps({"judge": judge, "question": "right"} | verdict | {"reply": "..."}) + "\n"
            for verdict in verdicts
        ]
        (folder / "judgements-0.jsonl").write_text("".join(lines) + '{"case": "torn')
        file = tmp_path / "labels.csv"
        file.write_text("\n".join([columns, *labels]) + "\n", encoding="utf-8")
        return folder, file

    return write


def numbers(folder, file, resamples=40, **options):
    frame = judge_agreement(read_verdicts(folder, file, **options), "Reports", resamples=resamples).frame()
    return frame.set_index("statistic")


def said(values, **more):
    return [{"case": f"c{place}", "value": value} | more for place, value in enumerate(values)]


def labelled(values):
    return [f"c{place},{value}" for place, value in enumerate(values)]


def test_right_or_wrong_by_hand(judged):
    # Of 10 labels 4 + 3 are equal, 2 differ, 1 verdict was not understood.
    human = [1] * 5 + [0] * 5
    judge = [True, True, True, True, False, False, False, False, True, None]
    found = numbers(*judged(said(judge), labelled(human)))["value"]
    assert found["unparsed"] == pytest.approx(0.1)
    assert found["agreement"] == pytest.approx(0.7)
    # Of the 9 that were understood 7 agree; by chance (5 * 5 + 4 * 4) / 81 would.
    assert found["kappa"] == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81))
    assert found["auroc"] == pytest.approx((4 / 5 + 3 / 4) / 2)
    assert set(found.index) == {"unparsed", "agreement", "kappa", "auroc"}


def test_grades_equal_the_library(judged):
    rng = np.random.default_rng(0)
    human = rng.integers(1, 6, size=60)
    judge = np.clip(human + rng.integers(-1, 2, size=60), 1, 5)
    found = numbers(*judged(said(judge.tolist()), labelled(human)))["value"]
    assert found["agreement"] == pytest.approx((human == judge).mean())
    for name, weights in (("kappa", None), ("kappa_linear", "linear"), ("kappa_quadratic", "quadratic")):
        assert found[name] == pytest.approx(cohen_kappa_score(human, judge, weights=weights))
    assert found["icc"] == pytest.approx(intraclass_correlation(np.column_stack([human, judge])))
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(human, judge).statistic)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(human, judge).statistic)


def test_grades_that_nobody_gave_keep_their_distance(judged):
    # With 1, 2 and 5 as neighbours the two disagreements would weigh the same.
    found = numbers(*judged(said([1.0, 2.0, 5.0, 5.0]), labelled([1, 2, 5, 2])))["value"]
    expected = cohen_kappa_score([1, 2, 5, 2], [1, 2, 5, 5], weights="linear", labels=[1, 2, 3, 4, 5])
    assert found["kappa_linear"] == pytest.approx(expected)


def test_scores_of_binary_labels_are_ranked_and_not_compared(judged):
    rng = np.random.default_rng(1)
    human = rng.random(50) < 0.5
    judge = human * 0.3 + rng.random(50)
    words = ["yes" if label else "no" for label in human]
    found = numbers(*judged(said(judge.tolist()), labelled(words)))["value"]
    assert set(found.index) == {"unparsed", "auroc"}
    assert found["auroc"] == pytest.approx(roc_auc_score(human, judge))


def test_names_are_compared_whatever_their_case(judged):
    found = numbers(
        *judged(said(["Complete", "partial", "none ", None]), labelled(["complete", "none", "none", "partial"]))
    )
    assert found["value"]["agreement"] == pytest.approx(0.5)
    assert set(found.index) == {"unparsed", "agreement", "kappa"}


def test_measurements_are_no_grades(judged):
    found = numbers(*judged(said([10.5, 220.0, 31.25]), labelled([10, 200, 30])))["value"]
    assert set(found.index) == {"unparsed", "agreement", "icc", "pearson", "spearman"}


def test_intervals_resample_cases(judged):
    verdicts = said([1, 0] * 20, question="a")
    labels = [f"c{place},a,{place % 2 == 0:d}" for place in range(40)]
    found = numbers(*judged(verdicts, labels, "case,question,human"))
    assert found.loc["agreement", ["low", "high"]].tolist() == [1.0, 1.0]
    assert found.loc["agreement", "n"] == 40
    some = numbers(*judged(said([1] * 10 + [0] * 30), labelled([1] * 40), name="other"), resamples=400)
    low, high = some.loc["agreement", ["low", "high"]]
    assert low == pytest.approx(0.25 - 1.96 * np.sqrt(0.25 * 0.75 / 40), abs=0.04)
    assert high == pytest.approx(0.25 + 1.96 * np.sqrt(0.25 * 0.75 / 40), abs=0.04)
    # With one human answer only there is nothing to tell apart.
    assert np.isnan(some.loc["auroc", "value"])


def test_one_case_has_no_interval(judged):
    found = numbers(*judged(said([1]), labelled([1])))
    assert found.loc["agreement", "value"] == 1
    assert found["low"].isna().all()


def test_a_row_per_question_and_judge(judged):
    verdicts = [
        *said([1, 0], question="complete"),
        *said([1, 1], question="correct"),
        *said([0, 0], question="correct", judge="llama"),
    ]
    labels = ["c0,complete,1", "c1,complete,0", "c0,correct,1", "c1,correct,1", "c9,correct,1", "c3,correct,"]
    paths = judged(verdicts, labels, "case,question,human")
    found = read_verdicts(*paths)
    assert [(one.question, one.judge) for one in found] == [
        ("complete", "gpt"),
        ("correct", "gpt"),
        ("correct", "llama"),
    ]
    frame = judge_agreement(found, "Reports", resamples=10).frame()
    assert frame.loc[frame["statistic"] == "agreement", "value"].tolist() == [1.0, 1.0, 0.0]
    assert [one.judge for one in read_verdicts(*paths, judge="llama")] == ["llama"]
    notes = judge_agreement(found, "Reports", resamples=10).content.footnotes
    assert "correct, gpt: 1 labels without a verdict left out." in notes


def test_the_last_of_several_verdicts_counts(judged):
    found = read_verdicts(*judged([*said([None]), *said([1])], labelled([1])))
    assert found[0].understood.tolist() == [True]


@pytest.mark.parametrize(
    ("labels", "columns", "options", "error", "words"),
    [
        (["c0,1"], "id,human", {}, UsageError, "has no column 'case'"),
        (["c0,1"], "case,humans", {}, UsageError, "has no column 'human'; did you mean 'humans'"),
        (["c0,1"], "case,human", {"judge": "gtp"}, UsageError, "no verdicts of a judge 'gtp'; did you mean 'gpt'"),
        (["c0,1", "c0,0"], "case,human", {}, UserError, "line 3: a second label for case 'c0'"),
        (["x,1"], "case,human", {}, UserError, "labels no case that"),
        (["c0,good", "c1,bad"], "case,human", {}, UserError, "the labels are names such as 'good'"),
    ],
)
def test_what_cannot_be_compared_is_refused(judged, labels, columns, options, error, words):
    paths = judged(said([1, 0]), labels, columns)
    with pytest.raises(error, match=words):
        read_verdicts(*paths, **options)


def test_labels_must_say_which_of_several_questions_they_answer(judged):
    paths = judged([*said([1], question="a"), *said([1], question="b")], labelled([1]))
    with pytest.raises(UsageError, match="no column 'question', and judges were asked several: a, b"):
        read_verdicts(*paths)


def test_a_run_without_verdicts_and_a_line_that_is_none_are_named(judged, tmp_path):
    folder, file = judged(said([1]), labelled([1]))
    with pytest.raises(UserError, match="holds no verdicts"):
        read_verdicts(tmp_path, file)
    (folder / "judgements-1.jsonl").write_text('{"case": "c1"}\n')
    with pytest.raises(UserError, match=r"judgements-1\.jsonl, line 1: expected case, judge and value"):
        read_verdicts(folder, file)
    (folder / "judgements-1.jsonl").unlink()
    with pytest.raises(UserError, match="cannot be read as CSV"):
        read_verdicts(folder, tmp_path / "none.csv")


def test_the_command_prints_and_writes_the_table(judged, tmp_path, capsys):
    folder, file = judged(said([1, 0, 1, None]), labelled([1, 0, 0, 1]))
    wanted = {"run": str(folder), "human": str(file), "column": "human", "judge": None, "out": str(tmp_path / "out")}
    agree.run(OmegaConf.create(wanted | {"resamples": 20, "level": 0.95, "seed": 0}))
    printed = capsys.readouterr().out
    assert "Reports: judges against people" in printed
    assert "0.500" in printed
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"agree.{kind}" for kind in ("md", "tex", "csv", "html", "xlsx")
    }
    frame = pd.read_csv(tmp_path / "out" / "agree.csv")
    assert frame.columns.tolist() == ["question", "judge", "statistic", "value", "low", "high", "n"]
    markdown = (tmp_path / "out" / "agree.md").read_text()
    assert "| Question | Judge | n | Unparsed | Agreement | Kappa | AUROC |" in markdown
    assert "one that was not understood disagrees" in markdown


def test_the_command_line_names_what_is_lacking(judged, capsys):
    folder, _ = judged(said([1]), labelled([1]))
    assert start(["agree", f"run={folder}"]) == 1
    assert "got those of one; set human=FILE" in capsys.readouterr().err


def test_a_table_says_whether_its_judge_was_compared_with_people(judged, capsys):
    human = [1] * 5 + [0] * 5
    folder, file = judged(said([True] * 4 + [False] * 4 + [True, False]), labelled(human))
    (folder / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "command": "test", "judge": {"id": "gpt"}}))
    assert list(validation_notes(folder, ["right", "kind"])) == [
        "not validated against people: verdicts on right, kind (see `agree`)"
    ]
    assert start(["agree", f"run={folder}", f"human={file}", "resamples=20"]) == 0
    capsys.readouterr()
    known, unknown = validation_notes(folder, ["right", "kind"])
    assert known.startswith("verdicts on right beside people: kappa 0.600 [")  # 8 of 10 equal, by chance 5
    assert known.endswith("on 10 of labels.csv")
    assert unknown == "not validated against people: verdicts on kind (see `agree`)"
    (folder / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "command": "test", "judge": {"id": "other"}}))
    assert list(validation_notes(folder, ["right"])) == [
        "not validated against people: verdicts on right (see `agree`)"
    ]
    assert list(validation_notes(folder, [])) == []


def test_judges_are_compared_with_each_other_and_together_with_people(judged, capsys):
    says = {"x": [1, 1, 0, 0, None], "y": [1, 0, 0, 1, 1], "z": [1, 1, 1, 0, 1]}
    lines = [one for judge, values in says.items() for one in said(values, judge=judge)]
    folder, file = judged(lines, labelled([1, 1, 0, 0, 1]))
    pairs = {one.judge: one for one in read_jury(folder)}
    assert list(pairs) == ["y beside x", "z beside x", "z beside y"]
    assert pairs["y beside x"].human.tolist() == [1, 1, 0, 0]  # what x did not understand is left out
    assert pairs["y beside x"].said.tolist() == [1, 0, 0, 1]
    frame = judge_agreement(read_verdicts(folder, file), "Reports", resamples=10).frame()
    together = frame[(frame["judge"] == "3 judges together") & (frame["statistic"] == "agreement")]
    assert together["value"].item() == 1  # medians 1, 1, 0, 0, 1
    assert start(["agree", f"run={folder}", "resamples=10"]) == 0
    assert "z beside y" in capsys.readouterr().out


def test_names_without_a_majority_are_no_verdict_of_a_jury(judged):
    says = {"x": ["left", "left"], "y": ["right", "left"], "z": ["both", "right"]}
    lines = [one for judge, values in says.items() for one in said(values, judge=judge)]
    verdicts = read_verdicts(*judged(lines, labelled(["left", "left"])))
    together = next(one for one in verdicts if one.judge == "3 judges together")
    assert (together.understood.tolist(), together.said[1]) == ([False, True], "left")


def test_one_judge_cannot_be_compared_with_another(judged):
    folder, _ = judged(said([1, 0]), labelled([1, 0]))
    with pytest.raises(UserError, match="expected verdicts of two judges"):
        read_jury(folder)

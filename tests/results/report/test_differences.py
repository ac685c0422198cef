"""`report compare=A,B`: the page lists where one is right and the other wrong, with what both said."""

from __future__ import annotations

from asking import Quiz, Says

import medimg_eval as me
from medimg_eval.commands.cli import start
from medimg_eval.tasks import QuestionTask
from tests.conftest import ellipsoids
from tests.helpers.printed import said

QUIET = {"trainer": {"accelerator": "cpu", "logger": False}, "score_workers": 0, "num_workers": 0}


def ask(folder, name, wrong):
    task = QuestionTask(name="quiz", layout=Quiz(number=6), metrics=["accuracy"])
    answers = {f"q{at}": ("ABCD"[(at + 1) % 4] if at in wrong else "ABCD"[at % 4]) for at in range(6)}
    return me.test(task, Says(answers), name=name, runs=folder, identity=name, **QUIET)


def test_the_page_lists_the_cases_with_question_reference_and_both_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [ask("runs", "One <b>", {1}), ask("runs", "Two", {2, 3})]
    written = me.report(runs, "out", compare=["One <b>", "Two"], resamples=50, trust=True)
    (compared,) = written.compared
    assert compared.counts == (3, 2, 1, 0)
    page = written.index.read_text(encoding="utf-8")
    assert "<h3>One &lt;b&gt; is right and Two wrong: 2 cases</h3>" in page
    assert "<h3>Two is right and One &lt;b&gt; wrong: 1 cases</h3>" in page
    assert "#task=quiz&amp;case=q2&amp;model=One%20%3Cb%3E&amp;versus=Two" in page
    (row,) = [one for one in page.split("<tr>") if ">q2</a>" in one]
    assert "Which of these is item 2?" in row
    # The right answer is C; the first said so, the second said D.
    assert [cell.partition("</td>")[0] for cell in row.split('<td class="left">')[2:]] == [
        "C",
        "<b>1.000</b> C",
        "<b>0.000</b> D",
    ]
    lines = (tmp_path / "out" / "differences-quiz.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "case,One <b>,Two,better,difference"
    assert [line.split(",")[0] for line in lines[1:]] == ["q2", "q3", "q1"]
    assert "iframe" in written._repr_html_()
    # As the issue has it on the command line, with a comma; the name of the other is quoted by nobody.
    assert start(["report", "runs=runs", "out=again", "compare=Two,One <b>", "resamples=50", "trust=true"]) == 0
    out, _ = said(capsys)
    assert "Two right" in out
    assert "McNemar" in out


def test_masks_are_listed_by_difference_and_their_pictures_drawn(tmp_path, write_dataset, monkeypatch):
    from answering import Thresholds

    task = ellipsoids(write_dataset(5), metrics=["dice"])
    runs = [
        me.test(task, Thresholds(levels=levels), name=name, runs=tmp_path / "runs", **QUIET)
        for name, levels in (("Good", [50, 150]), ("Bad", [104, 196]))
    ]
    written = me.report(runs, tmp_path / "out", compare=["Good", "Bad"], cases="none", resamples=50)
    (compared,) = written.compared
    assert not compared.yes_no
    assert compared.counts[1] == 5
    assert list(compared.listed["difference"]) == sorted(compared.listed["difference"], reverse=True)
    assert len(list((tmp_path / "out" / "cases" / "0").glob("*.js"))) == 5

"""`agree reports=`: rules against an annotator, by hand-worked numbers and by the library's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.reports.labels.taxonomies import CHEXPERT_14
from medimg_eval.models.annotators.base import PairAnnotator, TextAnnotator
from medimg_eval.results.agreement.labelers import label_agreement


class Says(TextAnnotator):
    """Says that there is an edema where the word stands, and a fracture where there is none."""

    preferred_batch = 2

    def annotate(self, texts):
        return [{"Edema": 1} if "edema" in text.lower() else {"Fracture": 3, "cut": True} for text in texts]


class Compares(PairAnnotator):
    """No labeller."""

    def compare(self, pairs, corpus):
        return pairs


class Lists(TextAnnotator):
    """No labeller either."""

    def annotate(self, texts):
        return [[1] for _ in texts]


def sheet(first, second, labels=("Edema", "Fracture"), **more):
    more = {"names": ("CheXbert", "rule_labeler"), "title": "r.csv", "resamples": 50, **more}
    found = label_agreement(first, second, labels, **more)
    return found, found.frame().set_index(["label", "statistic"])["value"].unstack("label")


def test_agreement_by_hand():
    first = [{"Edema": 1}, {"Edema": 3}, {"Edema": 0}, {"Edema": 2, "Fracture": 0}]
    second = [{"Edema": 1}, {"Edema": 1}, {"Edema": 0}, {"Edema": 1}]
    found, values = sheet(first, second)
    assert values.loc["agreement", "Edema"] == 0.5
    # By chance: of states 0 to 3 the first has 1 1 1 1 of 4, the second 1 3 0 0.
    assert values.loc["kappa", "Edema"] == pytest.approx((0.5 - 4 / 16) / (1 - 4 / 16))
    assert values.loc["f1_plus", "Edema"] == pytest.approx(2 * 2 / (2 + 3))
    assert values.loc["f1", "Edema"] == pytest.approx(2 * 1 / (1 + 3))
    assert values.loc["agreement", "Fracture"] == 1
    assert values.loc[["kappa", "f1", "f1_plus"], "Fracture"].isna().all()
    assert values.loc["agreement", "all 2"] == 0.75
    assert found.layout().lines[0].names == ["Edema"]
    assert [span.text for cell in found.layout().lines[0].cells[:2] for span in cell] == ["1 + 1", "3 + 0"]


def test_kappa_and_f1_are_scikit_learns_and_lie_in_their_intervals():
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 4, (60, 3)) for _ in range(2))
    second = np.where(rng.random(first.shape) < 0.6, first, second)
    names = ("A", "B", "C")
    found, values = sheet(
        *([dict(zip(names, row, strict=True)) for row in side.tolist()] for side in (first, second)), names
    )
    for place, name in enumerate(names):
        assert values.loc["kappa", name] == pytest.approx(cohen_kappa_score(first[:, place], second[:, place]))
        for statistic, states in {"f1_plus": (1, 3), "f1": (1,)}.items():
            sides = (np.isin(side[:, place], states) for side in (first, second))
            assert values.loc[statistic, name] == pytest.approx(f1_score(*sides))
    assert values.loc["kappa", "all 3"] == pytest.approx(cohen_kappa_score(first.ravel(), second.ravel()))
    frame = found.frame()
    assert ((frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])).all()


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 1 and 0"):
        sheet([{}], [])
    with pytest.raises(UserError, match=r"r\.csv: holds no reports"):
        sheet([], [])
    with pytest.raises(UserError, match="CheXbert gives the label 'Oedema'"):
        sheet([{"Oedema": 1}], [{}])
    with pytest.raises(UsageError, match="resamples"):
        sheet([{}], [{}], resamples=0)


@pytest.fixture
def asked(tmp_path, monkeypatch, capfd):
    """Runs the command on a table; returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text(
        'id,report\n1,Mild pulmonary edema.\n2,"No edema.\nHeart size is normal."\n3,\n4,nan\n5,Lungs are clear.\n'
    )

    def ask(*words, kind="Says"):
        code = start(
            ["agree", "reports=r.csv", f"annotators.chexbert._target_={__name__}.{kind}", "resamples=20", *words]
        )
        return code, " ".join("".join(capfd.readouterr()).split())

    return ask


def test_the_command_prints_a_row_per_label_and_writes_the_table(asked, tmp_path):
    code, said = asked("out=found")
    assert code == 0
    for label in (*CHEXPERT_14, "all 14"):
        assert label in said
    assert "r.csv: rule_labeler against chexbert" in said
    assert "n = 3 reports" in said
    table = (tmp_path / "found" / "agree.csv").read_text()
    assert "Edema,agreement,0.66" in table


@pytest.mark.parametrize(
    ("words", "kind", "code", "told"),
    [
        (["column=text"], "Says", 2, "has no column 'text'"),
        (["column=id", "reports=none.csv"], "Says", 1, "none.csv: no such table"),
        (["annotator=chexbrt"], "Says", 2, "got 'chexbrt'; did you mean 'chexbert'"),
        ([], "Compares", 2, "compares texts, and does not label them"),
        ([], "Lists", 1, "gives list, expected label -> state"),
        (["annotator=radbert_ct"], "Says", 1, "annotators.radbert_ct.weights=PATH"),
    ],
)
def test_what_the_command_cannot_do_is_said_in_one_sentence(asked, monkeypatch, tmp_path, words, kind, code, told):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    found, said = asked(*words, kind=kind)
    assert (found, told in said) == (code, True), said


def test_without_reports_the_command_wants_a_run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert start(["agree", "human=labels.csv"]) == 2
    assert "run is not set; add run=VALUE" in capfd.readouterr().err

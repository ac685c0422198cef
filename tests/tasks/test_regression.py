"""The task of regression: outputs, answers, failures, and runs from matrices and tables to the table."""

import csv
import json
import math

import h5py
import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Case, Findings, Prompt
from medimg_eval.data.layouts import Table
from medimg_eval.data.records import Given
from medimg_eval.data.targets import MatrixRow, NumberColumns
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError
from medimg_eval.imaging.matrices import read_matrix
from medimg_eval.metrics.measurement import measurement_scores
from medimg_eval.models import MeanOfFit, PrecomputedValues
from medimg_eval.tasks import RegressionTask

GENES = ["ERBB2", "ACTB", "CD3E"]


def expression(**settings):
    return RegressionTask(**{"name": "expression", "layout": None, "outputs": GENES, **settings})


def case(values=(1.0, 2.0, math.nan), name="c", **more):
    return Case(name, (), Given(Findings(dict(zip(GENES, values, strict=True)) | more), ()), "p")


def test_settings_that_cannot_be_meant_are_refused():
    for wrong, complaint in (
        ({"outputs": []}, "at least one output"),
        ({"outputs": ["a", "a"]}, "different names"),
        ({"outputs": ["mean-a"]}, "cannot be called 'mean-a'"),
        ({"sets": {"stable": ["ACTC"]}}, "task.sets.stable names 'ACTC'; did you mean 'ACTB'"),
        ({"metrics": ["pearson@mean-stable"]}, "got 'stable'"),
        ({"metrics": ["r2@medan"]}, "'r2@medan'; did you mean 'median'"),
        ({"metrics": ["dice"]}, "'dice' does not judge numbers"),
    ):
        with pytest.raises(UsageError, match=complaint):
            expression(**wrong)


def test_outputs_may_stand_in_a_file_of_the_data(tmp_path):
    layout = Table(root=str(tmp_path), table="t.csv", id="id")
    task = expression(outputs="genes.json", layout=layout)
    with pytest.raises(MissingDataError, match=r"genes.json: no such file.*task.outputs"):
        task.labels  # noqa: B018
    (tmp_path / "genes.json").write_text(json.dumps({"genes": GENES}))
    assert task.labels == {1: "ERBB2", 2: "ACTB", 3: "CD3E"}
    (tmp_path / "genes.txt").write_text("\n".join(GENES) + "\n")
    assert expression(outputs="genes.txt", layout=layout).names == GENES
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(UserError, match=r"odd.json: expected a list of names"):
        expression(outputs="odd.json", layout=layout).names  # noqa: B018


def test_answers_are_vectors_or_numbers_by_name():
    task = expression()
    full = {"CD3E": 3.0, "ERBB2": 1.0, "ACTB": 2.0}
    assert task.accept(case(), full) == task.accept(case(), np.array([1, 2, 3], np.float32))
    assert list(task.accept(case(), full)) == GENES
    for wrong, complaint in (
        ([1, 2], r"has shape \(2,\), expected 3 numbers"),
        ([1, 2, math.inf], "holds inf for 'CD3E', expected a finite number"),
        ({"ERBB2": 1, "ACTB": 2}, "has no number for 'CD3E'"),
        (full | {"ACTC": 1}, "names an output 'ACTC'; did you mean 'ACTB'"),
        ("high", "no number"),
    ):
        with pytest.raises(CaseError, match=complaint):
            task.accept(case(), wrong)


def test_scores_are_those_of_measurements():
    task = expression()
    asked = [*task.case_metrics, "accuracy_within@1"]
    found = task.score(case(), [1.5, 4, 7], asked)
    of_measurements = measurement_scores(
        {"ERBB2": 1, "ACTB": 2, "CD3E": math.nan}, {"ERBB2": 1.5, "ACTB": 4, "CD3E": 7}, metrics=asked
    )
    kept = {(row.label, row.metric): repr(row.value) for row in of_measurements}
    assert {(row.label, row.metric): repr(row.value) for row in found} == kept
    assert [row.status for row in found[:3]] == ["present", "present", "absent"]
    worst = {(row.label, row.metric): row.value for row in task.worst(case())}
    assert worst["ERBB2", "measured_reference"] == 1
    assert math.isnan(worst["ERBB2", "measured"])
    assert all(math.isnan(row.value) for row in task.worst(Case("c", (), Given("text", ()))))
    with pytest.raises(UserError, match="none of 2 cases has a number for 'CD3E'"):
        task.check_data([case(), case()])


def test_the_baseline_says_the_mean_of_those_it_studied():
    model = MeanOfFit()
    prompt = Prompt("c", (), {1: "ERBB2", 2: "ACTB"})
    with pytest.raises(UserError, match="none of the cases has a number"):
        model.study([Case("c", (), Given("text", ()))])
    model.study([case(), case((3.0, math.nan, 1.0))])
    assert model.regress([prompt]) == [{"ERBB2": 2.0, "ACTB": 2.0}]


def h5ad(path, values, rows, columns, sparse):
    with h5py.File(path, "w") as file:
        for axis, names in (("obs", rows), ("var", columns)):
            group = file.create_group(axis)
            group.attrs["_index"] = "barcode"
            group["barcode"] = np.array(names, dtype=h5py.string_dtype())
        if not sparse:
            file["X"] = values
            return
        major = values if sparse == "csr_matrix" else values.T
        group = file.create_group("X")
        group.attrs.update({"encoding-type": sparse, "shape": values.shape})
        group["data"] = major[major != 0]
        group["indices"] = np.nonzero(major)[1]
        group["indptr"] = np.concatenate([[0], np.cumsum((major != 0).sum(axis=1))])


@pytest.mark.parametrize("sparse", ["", "csr_matrix", "csc_matrix"])
def test_matrices_of_anndata_are_read_dense_or_sparse(tmp_path, sparse):
    values = np.array([[0, 2, 0], [5, 0, 7.0]])
    h5ad(tmp_path / "s.h5ad", values, ["AA-1", "CC-1"], GENES, sparse)
    matrix = read_matrix(tmp_path / "s.h5ad")
    assert matrix.rows == ["AA-1", "CC-1"]
    assert matrix.row("CC-1")[matrix.columns_of(["CD3E", "ERBB2"])].tolist() == [7, 5]
    with pytest.raises(CaseError, match="has no row of 'CC-2'"):
        matrix.row("CC-2")
    with pytest.raises(UserError, match="holds no column 'ACTC'; did you mean 'ACTB'"):
        matrix.columns_of(["ACTC"])


def test_matrices_that_do_not_fit_their_names_are_refused(tmp_path):
    for held, complaint in (
        ({"values": np.zeros((2, 1)), "ids": ["a"]}, "holds 2 rows, and 1 names of rows"),
        ({"values": np.zeros((2, 1)), "ids": ["a", "a"]}, "two rows are called 'a'"),
        ({"values": np.zeros((2, 1))}, "does not name its rows"),
        ({"values": np.zeros(2), "ids": ["a", "b"]}, r"expected numbers \(row, column\)"),
        ({"predictions": np.zeros((2, 1))}, "it holds predictions; expected values or embeddings"),
    ):
        np.savez(tmp_path / "m.npz", **held)
        with pytest.raises(UserError, match=complaint):
            read_matrix(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"m.npz: cannot be read as a matrix"):
        read_matrix(tmp_path / "m.npz")
    np.savez(tmp_path / "bare.npz", values=np.zeros((1, 2)), ids=["a"])
    with pytest.raises(UserError, match="holds 2 columns without names, and 3 are asked for"):
        PrecomputedValues(str(tmp_path / "bare.npz")).prepare(dict(enumerate(GENES, 1)), None)


def test_a_run_of_spots_from_matrices_and_a_table_to_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    counts = random.poisson(4, (40, 3)).astype(float)
    spots = [f"s{at % 4}_AA-{at}" for at in range(40)]
    for sample in range(4):
        h5ad(f"s{sample}.h5ad", counts[sample::4], [f"AA-{at}" for at in range(sample, 40, 4)], GENES, "csr_matrix")
    with (tmp_path / "spots.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["spot", "sample", "barcode", "split"])
        writer.writerows(
            [spot, f"s{at % 4}", f"AA-{at}", "train" if at < 8 else "test"] for at, spot in enumerate(spots)
        )
    layout = Table(
        root=".",
        table="spots.csv",
        id="spot",
        patient="sample",
        split="split",
        attributes=["sample"],
        target=MatrixRow("{sample}.h5ad", "{barcode}", log1p=True),
        allow_overlap="spots of one slide, as an example",
    )
    task = expression(
        layout=layout,
        splits={"fit": "train", "test": "test"},
        sets={"immune": ["CD3E"]},
        metrics=["pearson", "pearson@mean-immune", "pearson_within@sample", "r2", "rmse@ACTB"],
    )
    said = np.log1p(counts) + random.normal(0, 0.2, counts.shape)
    np.savez("said.npz", values=said[:-1], ids=spots[:-1], columns=GENES)
    run = me.test(task, PrecomputedValues("said.npz"), baselines=True)
    assert run.failures["case"].tolist() == [spots[-1]]
    expected = [np.corrcoef(np.log1p(counts[8:-1, at]), said[8:-1, at])[0, 1] for at in range(3)]
    values = {row.metric: row.value for row in run.summary.itertuples()}
    assert values["pearson"] == pytest.approx(np.mean(expected))
    assert values["pearson@mean-immune"] == pytest.approx(expected[2])
    assert values["rmse@ACTB"] == pytest.approx(np.sqrt(np.mean((said - np.log1p(counts))[8:-1, 1] ** 2)))
    assert 0.5 < values["pearson_within@sample"] < 1
    mean = {row.metric: row.value for row in run.baselines[0].summary.itertuples()}
    assert mean["pearson"] == 0
    assert mean["r2"] < 0.05
    assert "the prediction of 3 of 3 outputs is constant, which counts 0" in str(me.table([run.baselines[0].folder]))


def test_numbers_of_a_table_are_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.csv").write_text("id,ERBB2,ACTB,CD3E\n" + "".join(f"c{n},{n},{n * n},1\n" for n in range(6)))
    (tmp_path / "said.csv").write_text("case,her2,ACTB,CD3E\n" + "".join(f"c{n},{-n},{n},{n}\n" for n in range(6)))
    layout = Table(root=".", table="right.csv", id="id", target=NumberColumns(GENES))
    task = expression(layout=layout, metrics=["pearson", "spearman"])
    model = PrecomputedValues("said.csv", {"ERBB2": "her2", "ACTB": "ACTB", "CD3E": "CD3E"})
    values = {row.metric: row.value for row in me.test(task, model).summary.itertuples()}
    squares = np.corrcoef(np.arange(6), np.arange(6) ** 2)[0, 1]
    assert values == {"pearson": pytest.approx((squares - 1) / 2), "spearman": pytest.approx(0)}

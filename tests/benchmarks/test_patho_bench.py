"""Tasks of Patho-Bench, from a folder as its program downloads it."""

import numpy as np
import pytest

from medimg_eval.data.layouts import PathoBench
from medimg_eval.errors import MissingDataError, UserError
from medimg_eval.tasks import ClassificationTask
from tests.helpers.benchmark_files import config, task

HEAD = "case_id\tslide_id\tPIK3CA_mutation\tfold_0\tfold_1\tfold_2\tfold_10"
ROWS = [  # a patient with two slides, one whose name looks like a number, one without a label
    "C3.1\tC3.1-21\t1\ttest\ttrain\ttrain\ttrain",
    "C3.1\tC3.1-22\t1\ttest\ttrain\ttrain\ttrain",
    "007\t007-1\t0\ttrain\ttest\ttrain\ttrain",
    "C5\tC5-1\t\ttrain\ttrain\ttest\ttrain",
    "C6\tC6-1\t0\ttrain\ttrain\ttest\tval",
    "C7\tC7-1\t1\ttrain\ttrain\ttrain\ttest",
]
CONFIG = """
task_col: PIK3CA_mutation
sample_col: SAMPLE
extra_cols: []
label_dict: {0: wildtype, 1: mutant}
metrics: [macro-ovr-auc]
"""


def write(root, sample="case_id", head=HEAD, rows=ROWS):
    root.mkdir(parents=True, exist_ok=True)
    (root / "k=all.tsv").write_text("\n".join([head, *rows]) + "\n")
    (root / "config.yaml").write_text(CONFIG.replace("SAMPLE", sample))
    (root / "features").mkdir(exist_ok=True)
    for at, row in enumerate(rows):
        np.save(root / f"features/{row.split(chr(9))[1]}.npy", np.full((2, 3), at, np.float32))


def layout(root, **more):
    return PathoBench(root=str(root), features="features/{slide_id}.npy", **more)


def test_folds_cases_and_labels_are_those_of_the_table(tmp_path):
    write(tmp_path)
    one = ClassificationTask(
        name="mutation",
        layout=layout(tmp_path),
        classes=["wildtype", "mutant"],
        exclusive=True,
        metrics=["auroc@macro"],
        splits={"fit": "train", "test": "test"},
    )
    assert {case.id: case.target.read().values["mutant"] for case in one.cases("fit")} == {"007": 0, "C6": 0, "C7": 1}
    (case,) = one.cases("test")
    assert (case.id, case.patient) == ("C3.1", "C3.1")
    assert [image.read().array[0, 0, 0] for image in case.images] == [0, 1]  # both slides
    held = layout(tmp_path)
    held.splits.fold = "all"
    tested = {number: [case.id for case in fold.cases("test")] for number, fold in held.each_fold().items()}
    assert tested == {0: ["C3.1"], 1: ["007"], 2: ["C6"], 10: ["C7"]}
    assert [case.id for case in held.each_fold()[10].cases("val")] == ["C6"]


def test_its_task_takes_the_classes_of_the_folder_and_its_probe_every_fold(tmp_path):
    where = {"layout": {"features": "features/{slide_id}.npy"}}
    write(
        tmp_path / "t",
        rows=[f"C{at}\tC{at}-1\t{at % 2}\t{'test' if at > 5 else 'train'}\ttrain\ttrain\ttrain" for at in range(8)],
    )
    one = task("pathobench", tmp_path / "t", **where)
    assert one.classes == ["wildtype", "mutant"]
    assert [(case.id, case.target.read().values["mutant"]) for case in one.cases("test")] == [("C6", 0), ("C7", 1)]
    head = config("patho_bench_probe", "model").head
    assert dict(head) == {"name": "logistic", "C": 0.5, "balanced": True, "scale": "none"}
    with pytest.raises(MissingDataError, match="folder of one task"):
        task("pathobench", tmp_path, **where).cases("test")
    assert task("pathobench_survival", tmp_path).unit == "days"


def test_a_sample_may_be_a_slide_and_a_label_a_time(tmp_path):
    head = HEAD.replace("fold_0", "PIK3CA_mutation_event\tPIK3CA_mutation_days\tfold_0")
    rows = ["\t".join([*row.split("\t")[:3], "1", "30.5", *row.split("\t")[3:]]) for row in ROWS]
    write(tmp_path, "slide_id", head, rows)
    cases = layout(tmp_path).cases("test")
    assert [case.id for case in cases] == ["C3.1-21", "C3.1-22"]
    found = cases[0].target.read()
    assert (found.time, found.event) == (30.5, True)


def test_what_does_not_fit_is_told(tmp_path):
    with pytest.raises(MissingDataError, match="folder of one task"):
        layout(tmp_path).cases("test")
    write(tmp_path, rows=[ROWS[0], ROWS[1].replace("test", "train"), *ROWS[2:]])
    with pytest.raises(UserError, match=r"line 3: fold_0 puts 'C3.1' into 'train', and line 2 into 'test'"):
        layout(tmp_path).cases("test")
    (tmp_path / "config.yaml").write_text("task_col: x\n")
    with pytest.raises(UserError, match="expected task_col, sample_col and label_dict"):
        layout(tmp_path).cases("test")

"""Every number, mark and footnote of a table against a hand computation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_table, load_runs, mean_interval

NAN = float("nan")


def dice_rows(*values, status="present", metric="dice"):
    return [(f"c{i}", f"p{i}", "a", metric, value, status) for i, value in enumerate(values)]


def table_of(*folders, **options):
    return build_table(load_runs(folders), **({"resamples": 200} | options))


def row(table, name):
    return next(row for row in table.rows if row.name == name)


def note(table, part):
    found = [note for note in table.footnotes if part in note]
    assert len(found) == 1, (part, table.footnotes)
    return found[0]


def test_numbers_equal_a_hand_computation(write_run, three_cases):
    table = table_of(write_run("unet", three_cases), resamples=1_000)
    dice, hd95 = row(table, "Unet").cells
    # c1 = (0.9 + 0.7) / 2, c2 = 0.6 (b undefined), c3 = (0 + 0.4) / 2
    assert dice.mean == pytest.approx((0.8 + 0.6 + 0.2) / 3)
    assert (dice.n, dice.n_clusters, dice.undefined_cases, dice.undefined_labels) == (3, 3, 0, 1)
    assert math.isnan(dice.low)
    assert dice.interval_text(table.columns[0]) == "[n too small]"
    # c1 = 1.5, c2 = 4.5, c3 has no value
    assert hd95.mean == pytest.approx(3.0)
    assert (hd95.n, hd95.n_clusters, hd95.undefined_cases, hd95.undefined_labels) == (2, 2, 1, 3)
    assert [(c.title, c.arrow, c.decimals) for c in table.columns] == [
        ("Dice", "↑", 3),
        ("HD95 (mm)", "↓", 2),
    ]
    assert [c.text(column) for c, column in zip((dice, hd95), table.columns, strict=True)] == [
        "0.533",
        "3.00",
    ]


def test_patients_are_resampled_and_cases_where_the_manifest_says_so(write_run):
    dice = np.linspace(0.2, 0.9, 12)
    rows = [(f"c{i:02d}", f"p{i // 2}", "a", "dice", value, "present") for i, value in enumerate(dice)]
    by_patient = table_of(write_run("m", rows))
    by_case = table_of(write_run("n", rows, resampled="cases"))
    found = by_patient.rows[0].cells[0]
    assert found.n_clusters == 6
    assert (found.low, found.high) == mean_interval(dice, np.arange(12) // 2, resamples=200)[1:3]
    assert by_case.rows[0].cells[0].n_clusters == 12
    assert by_patient.footnotes[0] == (
        "Mean over cases [95 % interval: percentile bootstrap, 200 resamples of patients, seed 0]; "
        "a case counts with the mean over its labels (case-macro)."
    )
    assert "200 resamples of cases, seed 0" in by_case.footnotes[0]
    assert "Organs: n = 12 cases of 6 patients; surface=surfel." in by_patient.footnotes
    assert "Organs: n = 12 cases; surface=surfel." in by_case.footnotes


def test_footnote_says_which_task_resamples_what(write_run):
    table = table_of(
        write_run("m", task="brain", task_title="Brain", resampled="cases", model="M"),
        write_run("n", model="M"),
        resamples=10_000,
        level=0.9,
        seed=3,
    )
    assert "90 % interval" in table.footnotes[0]
    assert "10,000 resamples of cases (Brain) and patients (Organs), seed 3" in table.footnotes[0]


def test_ranks_follow_the_direction_of_the_metric(write_run):
    for name, dice, hd95 in [("a", 0.9, 3.0), ("b", 0.8, 1.0), ("c", 0.7, 2.0)]:
        folder = write_run(name, dice_rows(dice, dice) + dice_rows(hd95, hd95, metric="hd95"))
    table = table_of(folder.parent)
    assert [[cell.mark for cell in row.cells] for row in table.rows] == [
        ["best", ""],
        ["second", "best"],
        ["", "second"],
    ]


def test_means_equal_as_printed_share_the_mark(write_run):
    for name, value in [("a", 0.90012), ("b", 0.8999), ("c", 0.7), ("d", 0.70049), ("e", 0.1)]:
        folder = write_run(name, dice_rows(value))
    assert [row.cells[0].mark for row in table_of(folder.parent).rows] == [
        "best",
        "best",
        "second",
        "second",
        "",
    ]


def test_one_model_alone_is_not_the_best(write_run):
    alone = write_run("a", dice_rows(0.9))
    undefined = write_run("b", dice_rows(NAN))
    running = write_run("c", status="running", cases=20, predicted=12)
    for table in (table_of(alone), table_of(alone, undefined, running)):
        assert [row.cells[0].mark for row in table.rows] == [""] * len(table.rows)
        assert not any("bold" in note for note in table.footnotes)


@pytest.mark.parametrize(
    ("status", "words"),
    [("running", "not finished"), ("interrupted", "interrupted"), ("failed", "stopped by an error")],
)
def test_unfinished_runs_are_shown_and_never_averaged(write_run, status, words):
    done = write_run("done", dice_rows(0.5, 0.6))
    stopped = write_run("stopped", dice_rows(0.9, 0.9), status=status, cases=20, predicted=12, failed_cases=2)
    # Scores that an earlier, finished state left behind must not be read.
    (stopped / "scores.parquet").write_bytes((done / "scores.parquet").read_bytes())
    table = table_of(done, stopped)
    cell = row(table, "Stopped").cells[0]
    assert math.isnan(cell.mean)
    assert cell.text(table.columns[0]) == "unfinished 12/20"
    assert note(table, "Stopped").startswith(f"Organs, Stopped: {words}, 12 of 20 cases predicted; not averaged")
    assert table.frame()["status"].tolist() == ["finished", status]


def test_only_unfinished_runs(write_run):
    table = table_of(write_run("a", status="running", cases=4, predicted=0))
    assert [column.title for column in table.columns] == ["no scores yet"]
    assert row(table, "A").cells[0].text(table.columns[0]) == "unfinished 0/4"
    assert not any("bootstrap" in note for note in table.footnotes)
    assert table_of(write_run("b", status="failed"), metrics=["dice"]).columns == table.columns


def test_finished_run_without_a_score(write_run):
    table = table_of(write_run("a", [], cases=2))
    assert row(table, "A").cells[0].text(table.columns[0]) == "\N{EN DASH}"
    assert "Organs, A: 0 of 2 cases have scores." in table.footnotes


def test_a_model_not_run_on_a_task(write_run):
    table = table_of(
        write_run("a", model="A"),
        write_run("b", model="B", task="brain", task_title="Brain"),
    )
    assert [[cell.absent for cell in row.cells] for row in table.rows] == [[False, True], [True, False]]
    assert row(table, "A").cells[1].text(table.columns[1]) == "\N{EN DASH}"
    assert "\N{EN DASH}: the model was not run on this task." in table.footnotes
    assert len(table.frame()) == 2


def test_two_runs_of_one_model_on_one_task_are_told_apart(write_run):
    table = table_of(
        write_run("r1", model="M"),
        write_run("r2", model="M"),
        write_run("r3", model="M", task="brain", task_title="Brain"),
    )
    assert [row.name for row in table.rows] == ["M (r1)", "M (r2)", "M"]
    assert table.frame()["model"].tolist() == ["M", "M", "M"]


def test_one_run_given_twice_is_refused(write_run):
    with pytest.raises(UserError, match="same run"):
        table_of(write_run("x/r", run="r", model="M"), write_run("y/r", run="r", model="M"))


def test_tasks_of_one_title_are_told_apart(write_run):
    table = table_of(write_run("a", model="M"), write_run("b", model="M", task="organs_ct"))
    assert [column.group for column in table.columns] == ["Organs (organs)", "Organs (organs_ct)"]


def test_metrics_are_chosen_and_ordered(write_run, three_cases):
    folder = write_run("a", three_cases)
    assert [c.metric for c in table_of(folder, metrics=["hd95", "dice"]).columns] == ["hd95", "dice"]
    with pytest.raises(UsageError, match=r"No run has scores of 'dise'; did you mean 'dice'\?"):
        table_of(folder, metrics=["dise"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metrics": []}, "metrics names none"),
        ({"resamples": 0}, "resamples must be a whole number of at least 1, got 0"),
        ({"resamples": 1.5}, "resamples must be a whole number"),
        ({"level": 2}, "level must be a number between 0 and 1, got 2"),
        ({"level": "high"}, "level must be a number between 0 and 1, got 'high'"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(write_run, three_cases, options, words):
    folder = write_run("a", three_cases)
    with pytest.raises(UsageError, match=words):
        build_table(load_runs([folder]), **options)


def test_a_task_without_the_metrics_asked_for_is_named(write_run):
    table = table_of(
        write_run("a", model="M"),
        write_run("b", dice_rows(3.0, metric="hd95"), model="N", task="brain", task_title="Brain"),
        metrics=["dice"],
    )
    assert [row.name for row in table.rows] == ["M"]
    assert "Brain is not shown: it has no scores of the metrics asked for." in table.footnotes


def test_a_metric_one_run_was_not_scored_by(write_run):
    table = table_of(
        write_run("a", dice_rows(0.5, 0.6) + dice_rows(1.0, 2.0, metric="nsd@2")),
        write_run("b", dice_rows(0.5, 0.7)),
    )
    assert table.columns[1].title == "NSD@2"
    assert row(table, "B").cells[1].text(table.columns[1]) == "\N{EN DASH}"
    assert "Organs, B: no NSD@2 scores; score the run again to have them." in table.footnotes


def test_an_unknown_metric_is_shown_and_not_ranked(write_run):
    table = table_of(
        write_run("a", dice_rows(1.0, metric="my_metric")), write_run("b", dice_rows(2.0, metric="my_metric"))
    )
    assert (table.columns[0].title, table.columns[0].arrow) == ("my_metric", "")
    assert [row.cells[0].mark for row in table.rows] == ["", ""]
    assert "my_metric is not a known metric: without a direction it is not ranked." in table.footnotes


def test_failed_cases_count_at_the_worst_value(write_run):
    rows = [*dice_rows(0.9, 0.9), ("c9", "p9", "a", "dice", 0.0, "failed")]
    table = table_of(write_run("precomputed", rows))
    cell = row(table, "Precomputed").cells[0]
    assert cell.mean == pytest.approx(0.6)
    assert (cell.n, cell.failed, cell.not_judged) == (3, 1, 0)
    assert "Organs, Precomputed: 1 of 3 cases failed, counted at the metric's worst value." in table.footnotes
    assert table.frame()["failed"].tolist() == [1]


def test_failed_cases_that_could_not_be_judged_are_counted(write_run):
    rows = [
        *dice_rows(0.9, 0.9),
        *dice_rows(1.0, 2.0, metric="hd95"),
        ("c9", "p9", "a", "dice", 0.0, "failed"),
        ("c9", "p9", "a", "hd95", NAN, "failed"),
    ]
    table = table_of(write_run("m", rows))
    assert [(c.n, c.not_judged, c.undefined_labels) for c in table.rows[0].cells] == [(3, 0, 0), (2, 1, 0)]
    assert note(table, "1 of 3 cases failed").endswith(
        "worst value, except those not judged and left out of the mean: 1 by HD95 (mm)."
    )


def test_label_outcomes_and_undefined_values_are_counted(write_run, three_cases):
    table = table_of(write_run("m", [*three_cases, ("c3", "p3", "z", "dice", 0.0, "hallucinated")]))
    assert "Organs, M: of 7 labels, 1 missed, 1 hallucinated, 1 absent." in table.footnotes
    assert "Organs, M: Dice undefined for 1 label, left out of the mean." in table.footnotes
    assert "Organs, M: HD95 (mm) undefined for 3 labels (1 whole case), left out of the mean." in table.footnotes
    assert note(table, "missed: a label in the reference only")


def test_clean_runs_have_no_failure_footnotes(write_run):
    table = table_of(write_run("m", dice_rows(0.5, 0.6, 0.6, 0.7, 0.8)))
    assert table.footnotes[1:] == ["Organs: n = 5 cases of 5 patients; surface=surfel."]


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_no_interval_from_too_few_patients(write_run, n):
    table = table_of(write_run("m", dice_rows(*np.linspace(0.2, 0.8, n))))
    cell = table.rows[0].cells[0]
    few = n < 5
    assert (cell.interval_text(table.columns[0]) == "[n too small]") == few
    assert (
        "[n too small]: a bootstrap of fewer than 5 patients covers far less than it says." in table.footnotes
    ) == few
    frame = table.frame()
    assert frame["low"].isna().tolist() == [few]
    assert frame["interval"].tolist() == ["too few" if few else "percentile"]


def test_warnings_where_rows_are_not_comparable(write_run):
    table = table_of(
        write_run("a", dice_rows(0.5, 0.6)),
        write_run("b", dice_rows(0.5, 0.6, 0.7), data_fingerprint="beef", signature="surface=voxel"),
    )
    assert note(table, "data of Organs differ").endswith("A on f00d; B on beef.")
    assert note(table, "different ways").endswith("A with surface=surfel; B with surface=voxel.")
    assert note(table, "different cases").endswith("A 2, B 3; 2 in common.")


def test_cases_without_scores_are_counted(write_run):
    table = table_of(write_run("m", dice_rows(0.5, 0.6), cases=3))
    assert "Organs, M: 2 of 3 cases have scores." in table.footnotes


def test_notes_and_older_runs(write_run):
    for name in ("a", "b"):
        write_run(f"{name}-old", model=name, started="2025-01-01T00:00:00+00:00")
        folder = write_run(name, model=name, notes=["one template brain; phantoms otherwise"])
    table = table_of(folder.parent)
    assert note(table, "template") == "Organs: one template brain; phantoms otherwise"
    assert "Organs, a: an older run is left out, a-old (of the same settings and data)." in table.footnotes
    assert note(table, "name a run folder").startswith("2 older runs of the same task and model name left out")


def test_frame_is_tidy_and_unrounded(write_run, three_cases):
    frame = table_of(write_run("unet", three_cases)).frame()
    assert frame.columns.tolist() == [
        "task", "model", "run", "metric", "mean", "low", "high", "n", "patients", "failed", "status", "interval",
    ]  # fmt: skip
    assert frame[["task", "model", "run", "metric", "n", "patients", "failed", "status"]].values.tolist() == [
        ["organs", "Unet", "unet", "dice", 3, 3, 0, "finished"],
        ["organs", "Unet", "unet", "hd95", 2, 2, 0, "finished"],
    ]
    assert frame["mean"].tolist() == pytest.approx([1.6 / 3, 3.0])


def test_no_runs():
    with pytest.raises(UserError, match="No run"):
        build_table([])


def test_distances_in_pixels_are_headed_so(write_run):
    rows = [("c1", "p1", "a", "hd95", 3.0, "present"), ("c1", "p1", "a", "dice", 0.5, "present")]
    table = build_table(load_runs([write_run("a", rows, task_config={"units": "pixel"})]))
    assert [column.title for column in table.columns] == ["HD95 (px)", "Dice"]


def test_a_table_comes_apart_into_one_per_task(write_run):
    runs = [write_run("a"), write_run("b", task="lungs", task_title="Lungs"), write_run("c", model="A", task="lungs")]
    organs, lungs = build_table(load_runs(runs)).by_task()
    assert [row.name for row in organs.rows] == ["A"]
    assert sorted(row.name for row in lungs.rows) == ["A", "B"]
    assert {column.task for column in lungs.columns} == {"lungs"}


def test_runs_with_other_metrics_beside_the_same_ones_were_not_scored_in_different_ways(write_run):
    first = write_run("a", signature="surface=surfel; Dice/NSD 0", definitions={"dice": "0", "nsd@2": "surface=surfel"})
    second = write_run("b", signature="Dice 0", definitions={"dice": "0"})
    table = table_of(first, second)
    assert not any("different ways" in text for text in table.footnotes)
    assert "Organs: n = 1 cases of 1 patients; A: surface=surfel; Dice/NSD 0; B: Dice 0." in table.footnotes
    third = write_run("c", signature="other", definitions={"dice": "0", "nsd@2": "surface=voxel"})
    assert note(table_of(first, second, third), "different ways") == (
        "Warning: Organs was scored in different ways by NSD@2: A with surface=surfel; C with surface=voxel."
    )

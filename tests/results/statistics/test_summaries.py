"""Summaries in a table: the rows that they see, their values, their intervals, and the columns that show them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, metric, registry, summary
from medimg_eval.metrics.efficiency import u_score_of
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics.summaries import MOST_RESAMPLES, rows_of, summarise

NAN = float("nan")
SEX = {f"c{i}": {"sex": "F" if i % 2 else "M", "age": str(i)} for i in range(12)}
BUSI = {"iou_p10": 0.58376, "iou_p90": 0.70626}
UNET = {"gflops": 65.522, "frames_per_second": 137.05, "input_shape": [1, 3, 256, 256]}


def case_rows(values, metric="dice", patients=None):
    return [(f"c{i}", f"p{(patients or {}).get(i, i)}", "a", metric, v, "present") for i, v in enumerate(values)]


@pytest.fixture
def extra(monkeypatch):
    """Metrics of this test: a summary that sees all it is given, one that is often undefined, and evidence."""
    monkeypatch.setattr(registry, "_METRICS", available())
    fields = {"higher_is_better": True, "best": 1.0, "source": "this test"}

    @metric(kind="mask", title="Hits", worst=0.0, intermediate=True, **fields)
    def hits(pair):
        """Hits."""
        return 0.0

    @summary(needs=("hits",), title="Per case", **fields)
    def per_case(rows):
        """Hits per case."""
        return float(rows.value.sum()) / rows.cases

    @summary(needs=("dice",), title="Spread", **fields)
    def spread(rows):
        """Spread of Dice, undefined where all is one value."""
        return float(np.ptp(rows.value)) or NAN

    @summary(needs=("dice", "hits"), title="At", parameter="threshold", **fields)
    def at_least(rows, threshold):
        """Share of cases."""
        return len({*rows.case[(rows.metric == "dice") & (rows.value >= threshold)]}) / rows.cases


def part_of(folder):
    return Part.whole(load_runs([folder])[0])


def cell_of(folder, name, **options):
    table = build_table(load_runs([folder]), metrics=[name], **({"resamples": 50} | options))
    return table, table.rows[0].cells[0]


def test_the_rows_that_a_summary_sees(write_run):
    rows = [
        ("c2", "p1", "b", "dice", 0.4, "present"),
        ("c1", "p1", "a", "dice", NAN, "absent"),
        ("c1", "p1", "a", "iou", 0.1, "present"),
        ("c3", "p0", "a", "dice", 0.9, "missed"),
    ]
    folder = write_run(
        "m", rows, {"c1": {"sex": "F"}, "c3": {"site": "x"}}, cases=5, facts={"a": 1}, model_info={"parameters": 7}
    )
    found = rows_of(part_of(folder), ("dice",))
    by_value = {float(v): i for i, v in enumerate(found.value) if not np.isnan(v)}
    assert sorted(found.metric) == ["dice"] * 3
    assert found.case[by_value[0.4]] != found.case[by_value[0.9]]
    assert len(set(found.case.tolist())) == 3
    assert found.cases == 5  # two cases that left no row at all
    assert found.label[by_value[0.4]] == "b"
    assert found.status[by_value[0.9]] == "missed"
    assert set(found.attributes) == {"patient", "sex", "site"}
    assert found.attributes["site"][by_value[0.9]] == "x"
    assert found.attributes["sex"][by_value[0.9]] == ""
    assert found.facts == {"a": 1, "parameters": 7}


def test_a_value_and_an_interval_equal_a_naive_bootstrap(write_run, extra):
    rng = np.random.default_rng(2)
    dice = np.round(rng.random(9), 2)
    patients = {i: i // 2 for i in range(9)}
    folder = write_run("m", case_rows(dice, patients=patients) + case_rows(dice, "hits", patients), cases=10)
    found = summarise("at_least@0.5", part_of(folder), resamples=60, level=0.9, seed=4)
    # Clusters in the order of their names: the case without rows first, then p0 to p4.
    members = [[], *[[i for i in range(9) if i // 2 == p] for p in range(5)]]
    shares = []
    for drawn in np.random.default_rng(4).integers(6, size=(60, 6)):
        chosen = [i for cluster in drawn for i in members[cluster]]
        cases = sum(max(1, len(members[cluster])) for cluster in drawn)
        shares.append(sum(dice[i] >= 0.5 for i in chosen) / cases)
    assert found.mean == pytest.approx((dice >= 0.5).sum() / 10)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(shares, [0.05, 0.95])))
    assert (found.n, found.n_clusters, found.dropped) == (10, 6, 0)


def test_a_mean_as_a_summary_has_the_interval_of_the_mean(write_run, extra):
    folder = write_run("m", case_rows(np.random.default_rng(0).random(12), "hits", {i: i % 7 for i in range(12)}))
    table = build_table(load_runs([folder]), metrics=["hits", "per_case"], resamples=200)
    mean, whole = table.rows[0].cells
    assert (whole.mean, whole.low, whole.high) == pytest.approx((mean.mean, mean.low, mean.high))
    assert (whole.n, whole.n_clusters) == (12, 7)


def test_the_order_of_rows_does_not_matter(write_run):
    rows = case_rows(np.linspace(0.2, 0.9, 12), patients={i: i % 5 for i in range(12)})
    one, two = (write_run(name, order, SEX) for name, order in (("a", rows), ("b", rows[::-1])))
    first, second = (
        summarise("es_dice@sex", part_of(folder), resamples=30, level=0.95, seed=1) for folder in (one, two)
    )
    assert first == pytest.approx(second)


def test_no_more_than_a_thousand_resamples_are_made_and_the_footnote_says_so(write_run):
    table, cell = cell_of(
        write_run("m", case_rows([0.5, 0.7, 0.6, 0.9, 0.5, 0.7]), SEX), "es_dice@sex", resamples=10_000
    )
    assert MOST_RESAMPLES == 1_000
    assert table.footnotes[0] == (
        "ES-Dice (sex): one value for all cases together [95 % interval: percentile bootstrap, 1,000 resamples of "
        "patients, seed 0]."
    )
    assert table.footnotes[1].startswith("ES-Dice (sex): The mean Dice over 1 plus the sum of its distances")
    mean, men, women = 3.9 / 6, 1.6 / 3, 2.3 / 3
    assert cell.mean == pytest.approx(mean / (1 + (mean - men) + (women - mean)))
    assert any(note.startswith("Organs, M: ES-Dice (sex) undefined on ") for note in table.footnotes)


def test_resamples_without_a_value_are_left_out_and_counted(write_run, extra):
    _, cell = cell_of(write_run("m", case_rows([0.2, 0.2, 0.2, 0.2, 0.2, 0.8])), "spread", resamples=40)
    drawn = np.random.default_rng(0).integers(6, size=(40, 6))
    same = int((drawn != 5).all(axis=1).sum())
    assert 0 < same < 20
    assert cell.dropped == same
    assert (cell.low, cell.high) == pytest.approx((0.6, 0.6))


def test_a_summary_that_most_resamples_lack_has_no_interval(write_run, extra):
    @summary(needs=("dice",), title="Odd", higher_is_better=True, best=1.0, source="this test")
    def odd(rows):
        """Undefined unless all are there."""
        return 1.0 if len(set(rows.value.tolist())) == 6 else NAN

    _, cell = cell_of(write_run("m", case_rows([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])), "odd", resamples=40)
    assert cell.dropped > 20
    assert math.isnan(cell.low)
    assert cell.method == ""


def test_u_score_of_a_run_with_measured_efficiency(write_run):
    folder = write_run(
        "unet",
        case_rows([0.65, 0.6615] * 5, "iou"),
        metrics=["iou", "u_score"],
        facts=BUSI,
        efficiency=UNET,
        model_info={"class": "UNet", "parameters": 34_527_000},
    )
    table = build_table(load_runs([folder]), resamples=50)
    assert [column.title for column in table.columns] == ["IoU", "U-Score"]
    cell = table.rows[0].cells[1]
    assert cell.mean == pytest.approx(19.26, abs=0.005)
    ends = (u_score_of(iou, 34.527e6, 65.522, 137.05, 0.58376, 0.70626) for iou in (0.65, 0.6615))
    assert next(ends) < cell.low < cell.mean < cell.high < next(ends)
    facts = next(note for note in table.footnotes if "facts" in note)
    assert "iou_p10 0.58376" in facts
    assert "parameters 34,527,000" in facts
    assert "input_shape" not in facts


def test_a_grid_of_models_and_data_sets_has_a_u_score_in_every_cell(write_run):
    for task, quantiles in (("busi", BUSI), ("glas", {"iou_p10": 0.63, "iou_p90": 0.83})):
        for model, parameters in (("Small", 1_000_000), ("Large", 60_000_000)):
            folder = write_run(
                f"{task}/{model}",
                case_rows([0.6, 0.7, 0.8], "iou"),
                task=task,
                task_title=task,
                model=model,
                facts=quantiles,
                efficiency=UNET,
                model_info={"parameters": parameters},
            )
    table = build_table(load_runs([folder.parents[1]]), metrics=["iou", "u_score"], resamples=20)
    assert [(column.task, column.metric) for column in table.columns] == [
        ("busi", "iou"), ("busi", "u_score"), ("glas", "iou"), ("glas", "u_score"),
    ]  # fmt: skip
    large, small = table.rows
    assert [cell.mark for cell in small.cells] == ["best", "best", "best", "best"]
    assert [cell.mark for cell in large.cells] == ["best", "second", "best", "second"]


def test_a_summary_without_its_facts_is_undefined_and_says_so(write_run):
    table, cell = cell_of(write_run("m", case_rows([0.6, 0.7], "iou")), "u_score")
    assert cell.text(table.columns[0]) == "undefined"
    assert any("U-Score undefined: its rows or facts do not suffice" in note for note in table.footnotes)


def test_a_manifest_of_before_lists_nothing_and_its_rows_decide(write_run):
    folder = write_run("m", case_rows([0.6]) + case_rows([0.4], "iou"))
    (run,) = load_runs([folder])
    assert (run.metrics, dict(run.facts)) == ((), {})
    assert [column.metric for column in build_table([run]).columns] == ["dice", "iou"]


@pytest.mark.parametrize("odd", [{"facts": None}, {"efficiency": "fast"}, {"model_info": {"parameters": None}}])
def test_odd_facts_are_no_facts(write_run, odd):
    assert dict(load_runs([write_run("m", **odd)])[0].facts) == {}


def test_columns_follow_the_manifests_list_and_leave_evidence_out(write_run, extra):
    rows = case_rows([0.6, 0.7]) + case_rows([1, 2], "hits") + case_rows([0.4, 0.5], "iou")
    listed = write_run("m", rows, metrics=["per_case", "dice", "hits", "hd95"], model="M")
    assert [c.metric for c in build_table(load_runs([listed]), resamples=10).columns] == ["per_case", "dice"]
    plain = write_run("n", rows, model="N")
    assert [c.metric for c in build_table(load_runs([plain]), resamples=10).columns] == ["dice", "iou"]
    both = build_table(load_runs([listed, plain]), resamples=10)
    assert [c.metric for c in both.columns] == ["per_case", "dice", "iou"]
    assert [c.metric for c in build_table(load_runs([plain]), metrics=["hits"]).columns] == ["hits"]


def test_a_summary_can_be_asked_for_where_the_task_does_not_list_it(write_run):
    folder = write_run("m", case_rows([0.6, 0.7, 0.8, 0.9]), SEX, metrics=["dice"])
    _, cell = cell_of(folder, "es_dice@sex")
    assert cell.mean == pytest.approx(0.75 / 1.1)
    with pytest.raises(UsageError, match="No run has scores of 'u_score', which is computed from those of iou; add"):
        cell_of(folder, "u_score")


def test_a_summary_of_the_summary_file_is_a_number(write_run):
    folder = write_run("m", case_rows([0.6, 0.7, 0.8, 0.9]), SEX, metrics=["dice", "es_dice@sex"])
    frame = build_table(load_runs([folder]), resamples=20).frame()
    assert frame["metric"].tolist() == ["dice", "es_dice@sex"]
    assert json.loads(frame.to_json(orient="records"))[1]["n"] == 4


def test_these_summaries_are_documented():
    text = (
        (Path(__file__).parents[3] / "docs" / "definitions" / "run_metrics.md").read_text("utf-8").replace("\\|", "|")
    )
    for name in ("es_dice", "es_dice_sd", "es_iou", "es_iou_sd", "u_score"):
        assert f"| `{name}" in text
        assert available("run")[name].definition.removesuffix(".") in text


def detection_rows(candidates, lesions):
    """Rows of one class: of each case the statuses of its candidates, and the number of its lesions."""
    found = []
    for i, (statuses, count) in enumerate(zip(candidates, lesions, strict=True)):
        found += [(f"c{i}", f"p{i}", "nodule", "candidate", 0.9 - 0.1 * k, how) for k, how in enumerate(statuses)]
        status = {(True, True): "present", (True, False): "missed", (False, True): "hallucinated"}
        how = status.get((count > 0, len(statuses) > 0), "absent")
        found.append((f"c{i}", f"p{i}", "nodule", "lesions", count, how))
    return found


def test_a_detector_leaves_many_rows_per_label(write_run):
    rows = detection_rows([["hit", "false", "false"], [], ["false"], []], [1, 2, 0, 0])
    folder = write_run("m", rows, metrics=["cpm", "froc@1"], model="M")
    table = build_table(load_runs([folder]), resamples=20)
    assert [column.metric for column in table.columns] == ["cpm", "froc@1"]
    assert table.rows[0].cells[1].mean == pytest.approx(1 / 3)
    assert table.rows[0].cells[1].n == 4
    assert "Organs, M: of 4 labels, 1 missed, 1 hallucinated, 1 absent." in table.footnotes


def test_a_detector_without_a_candidate_is_still_judged(write_run):
    folder = write_run("m", detection_rows([[], []], [1, 2]), metrics=["froc@1"], model="M")
    table = build_table(load_runs([folder]), resamples=20)
    assert table.rows[0].cells[0].mean == 0


def test_labels_of_evidence_are_no_labels_of_the_table(write_run, extra):
    rows = [*case_rows([0.5, 0.6]), ("c0", "p0", "a/anna/1", "hits", 1.0, "present")]
    folder = write_run("m", rows, model="M")
    other = write_run("n", case_rows([0.5, 0.7]), model="N")
    table = build_table(load_runs([folder, other]), by="label", resamples=10)
    assert [row.group for row in table.rows] == ["a", "a", "all labels", "all labels"]
    assert not any("different labels" in note for note in table.footnotes)

"""Values of sets in tables: each with its own interval, refused a rank where sets differ in size, and on a card."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UserError
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.results import build_cards, build_table, load_runs, to_markdown
from medimg_eval.results.cards.generation import aggregate, mean_ranks
from medimg_eval.results.runs.loading import SCHEMA, SCORE_COLUMNS
from medimg_eval.results.table.layout import lay_out

METRICS = ["generation_failure_rate", "frechet_distance@pixels", "kernel_distance@pixels", "dcr@pixels"]


def row(metric, value, label="all", where=None, **more):
    said = {"low": value - 1, "high": value + 1, "interval": "by hand", "n_real": 100, "n_generated": 90, "d": 8}
    said |= {"where": where or {}, "flags": [], "details": {}, "extractor": "pixels (8)"} | more
    return ("", "", label, metric, value, "set", json.dumps(said))


@pytest.fixture
def write(tmp_path):
    def made(model, rows, task="t"):
        folder = tmp_path / task / model
        folder.mkdir(parents=True)
        cases = [
            (f"c{n}", f"c{n}", "all", "generation_failure_rate", 0.0, "present", json.dumps({"view": "AP"}))
            for n in range(4)
        ]
        content = [("r", task, model, *one) for one in [*cases, *rows]]
        pd.DataFrame(content, columns=list(SCORE_COLUMNS)).to_parquet(folder / "scores.parquet")
        manifest = {
            "schema": SCHEMA, "command": "test", "run": f"r-{model}", "task": task, "task_title": "T", "model": model,
            "settings": model, "status": "finished", "cases": 4, "predicted": 4, "failed_cases": 0, "signature": "s",
            "data_fingerprint": "d", "resampled": "cases", "notes": [], "started": "2026-01-01T00:00:00+00:00",
            "ended": None, "metrics": METRICS,
        }  # fmt: skip
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return made


def test_a_value_of_a_set_has_its_own_interval_and_is_no_case(write):
    folder = write("M", [row(METRICS[1], 5.0), row(METRICS[2], 0.25, low=None, high=None, interval="")])
    (run,) = load_runs([folder])
    assert (len(run.scores), len(run.sets), run.scores["case"].nunique()) == (4, 2, 4)
    table = build_table([run])
    assert [column.metric for column in table.columns] == METRICS[:3]
    cells = table.rows[0].cells
    assert (cells[1].mean, cells[1].low, cells[1].high, cells[1].n) == (5.0, 4.0, 6.0, 90)
    assert cells[1].interval_text(table.columns[1]) == "[4.0000, 6.0000]"
    assert cells[2].interval_text(table.columns[2]) == ""
    notes = " ".join(table.footnotes)
    assert "Fréchet distance (pixels): interval: by hand." in notes
    assert "Kernel distance (pixels): no interval is known." in notes
    assert "90 pictures against 100 real images, 8 features of pixels (8)" in notes
    assert "fewer than 2 cases" not in notes


def test_what_has_no_value_says_why(write):
    folder = write("M", [row(METRICS[1], math.nan, low=None, high=None, flags=["too_few: 1 reference images"])])
    table = build_table(load_runs([folder]))
    assert table.rows[0].cells[1].text(table.columns[1]) == "undefined"
    assert "Fréchet distance (pixels): too_few: 1 reference images." in " ".join(table.footnotes)


def test_values_of_few_images_are_grey(write):
    folder = write("M", [row(METRICS[1], 5.0, flags=["small_n: 100 real and 9 generated rows"]), row(METRICS[2], 1.0)])
    (line,) = lay_out(build_table(load_runs([folder]))).lines
    assert [spans[0].style for spans in line.cells] == ["plain", "quiet", "plain"]


def test_a_metric_that_drifts_with_n_is_ranked_at_one_n_alone(write):
    folders = [
        write("A", [row(METRICS[1], 5.0, depends_on_n=True), row(METRICS[2], 0.1)]),
        write("B", [row(METRICS[1], 4.0, depends_on_n=True, n_generated=50), row(METRICS[2], 0.2, n_generated=50)]),
    ]
    table = build_table(load_runs(folders))
    assert [[cell.mark for cell in line.cells[1:]] for line in table.rows] == [["", "best"], ["", "second"]]
    warning = "drifts with the number of images and is not ranked: A 90 against 100 real ones; B 50 against 100"
    assert any(warning in note for note in table.footnotes)


def test_findings_have_rows_and_a_warning_where_they_follow_the_number_of_images(write):
    sizes = {"Edema": 80, "Fracture": 20, "Pneumonia": 40, "Lesion": 10}
    rows = [row(METRICS[1], 100 / n, name, n_generated=n, depends_on_n=True) for name, n in sizes.items()]
    folder = write("M", [row(METRICS[1], 1.0, depends_on_n=True), *rows, row(METRICS[1], 3.0, where={"view": "AP"})])
    table = build_table(load_runs([folder]), by="label", metrics=METRICS[1:2])
    shown = {line.group: line.cells[0].mean for line in table.rows}
    assert shown == {name: 100 / n for name, n in sizes.items()} | {"all labels": 1.0}
    assert any("4 values of frechet_distance@pixels track n (Spearman -1.00" in note for note in table.footnotes)
    table = build_table(load_runs([folder]), by="view", metrics=METRICS[1:2])
    assert [(line.group, line.cells[0].mean) for line in table.rows] == [("all cases", 1.0), ("AP", 3.0)]


def test_a_card_sets_the_sides_beside_each_other_and_ranks_by_ranks(write):
    folders = [
        write("A", [row(METRICS[1], 1.0), row(METRICS[2], 0.3), row(METRICS[3], 5.0)]),
        write("B", [row(METRICS[1], 2.0), row(METRICS[2], 0.2), row(METRICS[3], 7.0)]),
    ]
    (card,) = build_cards(load_runs(folders))
    groups = [column.group for column in card.columns]
    assert groups == ["Fidelity", "Fidelity", "Privacy", "Mean rank", "Mean rank", "Mean rank"]
    assert [[cell.mean for cell in line.cells[3:]] for line in card.rows] == [[1.5, 2.0, 1.75], [1.5, 1.0, 1.25]]
    assert "Utility: nothing was trained on the pictures" in " ".join(card.footnotes)
    assert "[4.0000, 6.0000]" in to_markdown(card)
    values = {name: SetValue("auroc", auroc, 10, 10, 0, 0.6, 0.9) for name, auroc in (("A", 0.8), ("B", 0.7))}
    (card,) = build_cards(load_runs(folders), {"t": {"AUROC": values}})
    assert [column.group for column in card.columns][2:4] == ["Privacy", "Utility"]
    assert card.rows[0].cells[3].mean == 0.8
    assert [line.cells[-1].mean for line in card.rows] == [1.5, 1.5]
    with pytest.raises(UserError, match="No run was judged as a set"):
        build_cards(load_runs([write("C", [], task="u")]))


def test_a_card_leaves_out_of_ranks_what_a_model_lacks(write):
    folders = [write("A", [row(METRICS[1], 1.0), row(METRICS[2], 0.3)]), write("B", [row(METRICS[1], 2.0)])]
    (card,) = build_cards(load_runs(folders))
    assert "Not ranked, because a model lacks it or sets of different sizes were compared: Kernel distance" in " ".join(
        card.footnotes
    )
    assert [line.cells[-1].mean for line in card.rows] == [1.0, 2.0]


def test_ranks_by_hand():
    assert mean_ranks([[3, 1, 3], [0.5, 0.9, 0.7]], [False, True]) == [2.75, 1.0, 2.25]
    assert mean_ranks([[1, math.nan, 2]], [True])[::2] == [2.0, 1.0]
    assert np.isnan(mean_ranks([[1, math.nan, 2]], [True])[1])
    assert aggregate({"a": [1, 2], "b": [3, 1]}) == [2.0, 1.5]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=1, max_size=3))
def test_ranks_sum_up_and_turn_round_with_the_direction(values):
    up, down = (mean_ranks(values, [higher] * len(values)) for higher in (True, False))
    assert sum(up) == pytest.approx(10)
    assert np.add(up, down).tolist() == pytest.approx([5] * 4)

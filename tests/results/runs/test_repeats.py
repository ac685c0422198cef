"""Runs whose rows have repeats and conditions, from the file to the table."""

import numpy as np
import pandas as pd
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.comparison.marks import BETTER, marked
from medimg_eval.results.comparison.model_comparison import compare
from medimg_eval.results.runs import Part
from medimg_eval.results.statistics import Bootstrap, summarise


def cells(folder, metrics=None, **settings):
    table = build_table(load_runs([folder]), metrics=metrics, resamples=200, **settings)
    return table, [[cell.mean for cell in row.cells] for row in table.rows]


def test_a_case_counts_once_with_the_mean_over_its_repeats(vary):
    folder = vary([("a", 0, "", 1.0), ("a", 1, "", 0.0), ("a", 2, "", 0.0), ("b", 0, "", 1.0)])
    table, found = cells(folder)
    assert found == [[pytest.approx((1 / 3 + 1) / 2)]]
    assert table.rows[0].cells[0].n == 2
    assert "mean over 3 repeats of a case" in " ".join(table.footnotes)


def test_columns_at_their_defaults_change_nothing(vary, write_run):
    rows = [(f"c{n}", 0, "", float(n % 2)) for n in range(12)]
    new, _ = cells(vary(rows))
    plain = [(case, case, "all", "accuracy", value, "present") for case, _, _, value in rows]
    old, _ = cells(write_run("other", plain, metrics=["accuracy"], model="Net"))
    assert new.footnotes == old.footnotes
    columns = [column for column in new.frame() if column != "run"]
    pd.testing.assert_frame_equal(new.frame()[columns], old.frame()[columns])


def test_equal_repeats_give_the_interval_of_one(vary, write_run):
    values = np.linspace(0, 1, 20) ** 2
    rows = [(f"c{n:02}", repeat, "", value) for repeat in range(3) for n, value in enumerate(values)]
    repeated, _ = cells(vary(rows))
    single, _ = cells(vary(rows[:20], name="other"))
    assert repeated.rows[0].cells[0].low == pytest.approx(single.rows[0].cells[0].low)
    assert repeated.rows[0].cells[0].high == pytest.approx(single.rows[0].cells[0].high)


def test_reliability_stands_beside_the_mean(vary):
    folder = vary([("a", repeat, "", float(right)) for repeat, right in enumerate([1, 1, 0, 1, 0])])
    _, found = cells(folder, ["accuracy", "pass_at@2", "pass_all@2", "flips", "majority@accuracy"])
    assert found == [pytest.approx([0.6, 0.9, 0.3, 1.0, 1.0])]


def test_conditions_stand_apart_until_they_are_asked_for(vary):
    rows = [(case, 0, key, value) for case in "abc" for key, value in (("", 0.9), ("blur-2", 0.8), ("blur-10", 0.4))]
    folder = vary(rows, metric="dice")
    _, found = cells(folder)
    assert found == [[pytest.approx(0.9)]]
    table, found = cells(folder, by="condition")
    assert [row.group for row in table.rows] == ["as published", "blur-2", "blur-10"]
    assert [mean for (mean,) in found] == pytest.approx([0.9, 0.8, 0.4])
    _, found = cells(folder, ["dice", "drop@blur-10", "drop@blur:dice", "area_under_severity@blur"])
    assert found == [pytest.approx([0.9, 0.5, 0.3, (2 * 0.85 + 8 * 0.6) / 10])]


def test_scores_without_images_are_a_baseline_as_in_the_run_of_its_own_that_they_were(vary, write_run):
    values = {"": [1.0, 1.0, 0.0, 1.0], "no_image": [1.0, 0.0, 0.0, 0.0]}
    of_each = {key: [(f"c{n}", 0, key, value) for n, value in enumerate(found)] for key, found in values.items()}
    folder = vary(
        [*of_each[""], *of_each["no_image"]], model="Net", noun="questions", usage={"tokens": 7}, notes=["said"]
    )
    former = [
        vary([(case, 0, "", value) for case, _, _, value in found], name=name, model=model, noun="questions")
        for (name, model), found in zip((("a", "Net"), ("b", "Net (blind)")), of_each.values(), strict=True)
    ]
    table, before = (build_table(load_runs(folders), resamples=200) for folders in ([folder], former))
    columns = [column for column in table.frame() if column != "run"]
    pd.testing.assert_frame_equal(table.frame()[columns], before.frame()[columns])
    assert [(row.name, row.baseline, row.cells[0].mean) for row in table.rows] == [
        ("Net", False, 0.75),
        ("Net (blind)", True, 0.25),
    ]
    assert [note for note in table.footnotes if "7 tokens" in note] == ["Organs, Net: used 7 tokens."]
    assert table.frame()["run"].tolist() == ["net", "net~no_image"]
    divided, found = cells(folder, by="condition")
    assert [(row.name, row.group) for row in divided.rows] == [("Net", "as published"), ("Net", "no_image")]
    assert found == [[0.75], [0.25]]
    rivals = vary([(f"c{n}", 0, "", 0.0) for n in range(4)], name="other")
    assert compare(load_runs([folder, rivals]), "accuracy").maps[0].models == ("Net", "Other")
    against = compare(load_runs([folder, rivals]), "accuracy", baseline="Net (blind)").frame()
    assert set(zip(against["model"], against["other"], strict=True)) == {
        ("Net", "Net (blind)"),
        ("Other", "Net (blind)"),
    }


def test_models_are_tested_against_the_line_without_images_by_its_own_values(vary):
    rows = [(f"c{n:02}", 0, key, value + n / 1000) for n in range(30) for key, value in (("", 0.9), ("no_image", 0.1))]
    table = build_table(load_runs([vary(rows, metric="dice", name="net")]), resamples=200)
    signs = {row.name: row.cells[0].sign for row in marked(table, "Net (blind)").rows}
    assert signs == {"Net": BETTER, "Net (blind)": ""}


def test_a_line_without_images_of_fewer_cases_says_so(vary):
    rows = [(f"c{n}", 0, "", 1.0) for n in range(4)] + [("c0", 0, "no_image", 1.0), ("c0", 0, "blur-1", 0.5)]
    table, found = cells(vary(rows, metric="dice"), ["dice", "drop@blur-1"])
    assert [row.name for row in table.rows] == ["Net", "Net (blind)"]
    assert found[0] == pytest.approx([1.0, 0.5])
    assert found[1] == pytest.approx([1.0, np.nan], nan_ok=True)
    (warning,) = (note for note in table.footnotes if "partial" in note)
    assert warning.startswith("Warning: Organs, Net (blind): a partial run, 1 of 4 cases asked without images; ")


def test_a_baseline_that_sees_no_image_has_no_line_without_images(vary):
    folder = vary([("a", 0, "", 1.0), ("a", 0, "no_image", 1.0)], model="Chance", baseline=True)
    assert [run.name for run in load_runs([folder])] == ["Chance"]


def test_a_paired_difference_has_the_interval_of_the_differences(vary):
    rng = np.random.default_rng(0)
    before, after = rng.random(30), rng.random(30)
    rows = [(f"c{n:02}", 0, "", x) for n, x in enumerate(before)]
    rows += [(f"c{n:02}", 0, "grey", x) for n, x in enumerate(after)]
    table, _ = cells(vary(rows, metric="dice"), ["drop@grey"])
    alone, _ = cells(vary([(f"c{n:02}", 0, "", x) for n, x in enumerate(before - after)], metric="dice", name="other"))
    drop, mean = table.rows[0].cells[0], alone.rows[0].cells[0]
    assert (drop.mean, drop.low, drop.high) == pytest.approx((mean.mean, mean.low, mean.high))


def test_by_condition_without_conditions_is_refused(vary):
    with pytest.raises(UsageError, match="under a condition"):
        cells(vary([("a", 0, "", 1.0)]), by="condition")


def test_a_row_told_twice_is_refused(vary):
    with pytest.raises(UserError, match="two rows of accuracy for case 'a'"):
        load_runs([vary([("a", 1, "", 1.0), ("a", 1, "", 0.0), ("a", 0, "", 0.0)])])


@pytest.fixture
def ranked(write_run):
    """Two repeats of probabilities: AUROC 1 in the first, 0.5 in the second."""

    def write(held=lambda case, repeat: True):
        truths = {f"c{n}": "present" if n < 10 else "absent" for n in range(20)}
        rows, repeats = [], []
        for repeat in (0, 1):
            for place, (case, truth) in enumerate(truths.items()):
                if held(case, repeat):
                    value = (0.9 if truth == "present" else 0.1) if repeat == 0 else 0.1 + 0.8 * (place % 2)
                    rows.append((case, case, "x", "probability", value, truth))
                    repeats.append(repeat)
        folder = write_run("ranked", rows, metrics=["auroc@x"], cases=20)
        frame = pd.read_parquet(folder / "scores.parquet").assign(repeat=repeats, condition="")
        frame.to_parquet(folder / "scores.parquet")
        return load_runs([folder])[0]

    return write


def test_a_summary_is_the_mean_of_those_of_the_repeats(ranked):
    found = summarise("auroc@x", Part.whole(ranked()), **Bootstrap(200, 0.95, 0, "percentile")._asdict())
    assert (found.mean, found.n, found.n_clusters) == (0.75, 20, 20)
    assert found.between == pytest.approx(0.5 / np.sqrt(2))
    assert 0.6 < found.low < 0.75 < found.high < 0.9


def test_folds_hold_some_cases_each(ranked):
    run = ranked(lambda case, repeat: int(case[1:]) // 5 % 2 == repeat)
    found = summarise("auroc@x", Part.whole(run), **Bootstrap(200, 0.95, 0, "percentile")._asdict())
    assert found.n == 20
    assert 0.5 < found.mean < 1

"""Reports whose stated distance of the tube is replaced by a measured one."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Prompt
from medimg_eval.commands.cli import start
from medimg_eval.errors import UserError
from medimg_eval.metrics.reports import measurements
from medimg_eval.models import RemeasuredReports
from medimg_eval.models.precomputed.remeasured import remeasure
from medimg_eval.question import Decoding
from tests.helpers.catalogue import REPORTS
from tests.helpers.catalogue import worth as worth_of
from tests.helpers.samples import ALL

assert ALL is not None


@pytest.mark.parametrize(
    ("text", "centimetres", "add", "updated"),
    [
        ("ETT tip is 9 cm above the carina. Clear.", 3.25, False, "ETT tip is 3.2 cm above the carina. Clear."),
        ("Clear. ETT tip is 90 mm above the carina.", 4, False, "Clear. ETT tip is 4.0 cm above the carina."),
        ("Clear. ETT tip is 9 cm above the carina. Nodule of 1 cm.", math.nan, False, "Clear. Nodule of 1 cm."),
        ("Nodule of 1.2 cm in the right lung.", 3, False, "Nodule of 1.2 cm in the right lung."),
        ("Clear lungs.", 3, True, "Clear lungs. The endotracheal tube ends 3.0 cm above the carina."),
        ("", 3, True, "The endotracheal tube ends 3.0 cm above the carina."),
        ("Clear lungs.", math.nan, True, "Clear lungs."),
        ("", math.nan, False, ""),
        # Advice is no length that was measured.
        (
            "ETT ends 7 cm above the carina; advance by 2 cm.",
            6,
            False,
            "ETT ends 6.0 cm above the carina; advance by 2 cm.",
        ),
    ],
)
def test_only_the_distance_of_the_tube_is_replaced(text, centimetres, add, updated):
    assert remeasure(text, centimetres, add=add) == updated


@given(st.floats(0.1, 20), st.floats(0.1, 20))
def test_what_was_put_in_is_read_again_and_putting_it_in_twice_changes_nothing(stated, measured):
    text = f"Lungs are clear. The endotracheal tube ends {stated:.2f} cm above the carina. No effusion."
    updated = remeasure(text, measured)
    (read,) = measurements(updated)
    assert read.largest == pytest.approx(measured * 10, abs=0.5 + 1e-9)
    assert remeasure(updated, measured) == updated
    assert not [*measurements(remeasure(text, math.nan))]


def table(path, *lines):
    Path(path).write_text("\n".join(lines) + "\n")
    return str(path)


def test_cases_that_were_not_measured_stay_and_rows_of_others_do_not_count(tmp_path):
    reports = table(
        tmp_path / "r.csv", "id,prediction", "a,ETT is 9 cm from the carina.", "b,ETT is 8 cm from the carina."
    )
    measured = table(tmp_path / "m.csv", "rid,model,measurement", "a,mine,3.1", "a,other,7")
    model = RemeasuredReports(reports, measured, measured_id="rid", centimetres="measurement", where={"model": "mine"})
    model.check_ready()
    assert model.generate([Prompt("a", ()), Prompt("b", ())], Decoding()) == [
        "ETT is 3.1 cm from the carina.",
        "ETT is 8 cm from the carina.",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("id,centimetres", "a,1", "a,2"), "case 'a' stands there several times; set model.where"),
        (("id,centimetres", "a,high"), "'centimetres' holds what is no number"),
        (("id,cm", "a,1"), "has no column 'centimetres'"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, lines, message):
    reports = table(tmp_path / "r.csv", "id,prediction", "a,Clear.")
    with pytest.raises(UserError, match=message):
        RemeasuredReports(reports, table(tmp_path / "m.csv", *lines)).check_ready()


def test_a_model_stands_before_and_after_the_update_in_one_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    REPORTS["factchexcker"].write(tmp_path / "data")
    stated = "The endotracheal tube ends 9 cm above the carina."
    table("before.csv", "id,prediction", *(f"{rid},{stated}" for rid in REPORTS["factchexcker"].cases))
    table("lengths.csv", "id,centimetres", "50000001,3.5", "50000002,", "50000003,6.3")
    shared = [
        "task=factchexcker",
        f"task.layout.root={tmp_path / 'data'}",
        "task.expected.test=3",
        "model.file=before.csv",
    ]
    assert start(["test", *shared, "model=precomputed_reports", "run=before"]) == 0
    assert start(["test", *shared, "model=remeasured_reports", "model.measured=lengths.csv", "run=after"]) == 0
    worth = {name: worth_of(tmp_path / name) for name in ("before", "after")}
    assert worth["before"]["ett_carina_mae"] == pytest.approx((55 + 27.5) / 2)
    assert worth["before"]["ett_carina_invented"] == pytest.approx(1 / 3)
    assert worth["after"]["ett_carina_mae"] == pytest.approx(0.5 / 2)
    assert worth["after"]["ett_carina_invented"] == 0
    assert np.isfinite([*worth["after"].values()]).all()

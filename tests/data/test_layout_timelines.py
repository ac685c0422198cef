"""Timelines: visits in order up to a landmark, nothing of what comes later, and the truth of what came then."""

import csv
import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

import medimg_eval as me
from medimg_eval.case import Condition
from medimg_eval.data.layouts import Timelines
from medimg_eval.data.targets import ClassColumns, SurvivalColumns
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import UsageError, UserError
from medimg_eval.image import PART, VISIT, WHEN
from medimg_eval.models import FusionProbe
from medimg_eval.tasks import ClassificationTask, SurvivalTask

# patient, day, value, follow-up, event: in no order.
ROWS = [
    ("a", 30, 3.0, 100, 1),
    ("a", 0, 1.0, 100, 1),
    ("a", 10, 2.0, 100, 1),
    ("b", 5, 7.0, 60, 0),
    ("c", 40, 4.0, 40, 1),
    ("c", 20, 5.0, 40, 1),
]


def write(folder, rows=ROWS, name="t.csv", **more):
    lines = [["patient", "day", "scan", "bcva", "end", "died", *more]]
    for patient, day, value, end, died in rows:
        picture = f"{patient}_{day}.png"
        if not (folder / picture).exists():
            Pillow.fromarray(np.full((4, 4), int(value), np.uint8)).save(folder / picture)
        lines.append([patient, day, picture, value, end, died, *more.values()])
    with (folder / name).open("w", newline="") as stream:
        csv.writer(stream).writerows(lines)
    return folder


def layout(folder, **more):
    given_settings = {"table": "t.csv", "id": "patient", "when": "day", "image": {"oct": "scan"}, "values": ["bcva"]}
    target = SurvivalColumns("until", event="died", unit="days")
    return Timelines(root=str(folder), **{**given_settings, "follow_up": "end", "target": target, **more})


def shown(case):
    return [
        (image.attributes[PART], image.attributes[VISIT], image.attributes[WHEN], float(image.array.ravel()[0]))
        for image in (one.read() for one in case.images)
    ]


def test_visits_are_in_order_and_the_time_counts_from_the_last(tmp_path, caplog):
    write(tmp_path)
    with caplog.at_level(logging.WARNING):
        cases = {case.id: case for case in layout(tmp_path).cases("all")}
    assert list(cases) == ["a", "b"]
    assert "1 cases end by their landmark" in caplog.text  # c dies on the day of the last visit
    assert shown(cases["a"]) == [
        *(("oct", "1", "-30", 1), ("values", "1", "-30", 1)),
        *(("oct", "2", "-20", 2), ("values", "2", "-20", 2)),
        *(("oct", "3", "0", 3), ("values", "3", "0", 3)),
    ]
    truths = {name: case.target.read() for name, case in cases.items()}
    assert (truths["a"].time, truths["a"].event, cases["a"].patient) == (70, True, "a")
    assert (truths["b"].time, truths["b"].event) == (55, False)


def test_landmarks_and_histories(tmp_path):
    write(tmp_path)

    def days(**more):
        return {
            case.id: ([one[2] for one in shown(case) if one[0] == "oct"], case.target.read().time)
            for case in layout(tmp_path, **more).cases("all")
        }

    assert days(landmark="first") == {"a": (["0"], 100), "b": (["0"], 55), "c": (["0"], 20)}
    assert days(landmark=2) == {"a": (["-10", "0"], 90)}
    each = days(landmark="each")
    assert each["a@10"] == (["-10", "0"], 90)
    assert set(each) == {"a@0", "a@10", "a@30", "b@5", "c@20"}
    assert days(history=2)["a"] == (["-20", "0"], 70)
    assert {case.patient for case in layout(tmp_path, landmark="each").cases("all")} == {"a", "b", "c"}


def test_the_next_visit_is_truth_and_never_shown(tmp_path):
    write(tmp_path)
    target = ClassColumns({"improves": "bcva rises"})
    made = layout(tmp_path, landmark="each", next_visit=True, rises=["bcva"], follow_up="", target=target)
    found = {case.id: case.target.read().values["improves"] for case in made.cases("all")}
    assert found == {"a@0": 1, "a@10": 1, "c@20": 0}
    following = SurvivalColumns("next day", event="died", unit="days")
    times = {
        case.id: case.target.read().time
        for case in layout(tmp_path, landmark="each", next_visit=True, target=following).cases("all")
    }
    assert times["a@0"] == 10


def test_dates_are_counted_in_days(tmp_path):
    write(tmp_path, [("a", "2020-02-20", 1.0, "2020-04-01", 1), ("a", "2020-03-01T10:00", 2.0, "2020-04-01", 1)])
    (case,) = layout(tmp_path).cases("all")
    assert [one[2] for one in shown(case)] == ["-10", "-10", "0", "0"]
    assert case.target.read().time == 31
    write(tmp_path, [("a", "soon", 1.0, 3, 1)])
    with pytest.raises(UserError, match="line 2: 'day' holds 'soon', expected a number or a date"):
        layout(tmp_path).cases("all")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(ROWS), st.floats(-9, 9, allow_nan=False))
def test_what_comes_after_the_landmark_changes_nothing_that_is_shown(tmp_path, rows, value):
    write(tmp_path)
    before = {
        case.id: (shown(case), case.target.read().time) for case in layout(tmp_path, landmark="first").cases("all")
    }
    first = {"a": 0, "b": 5, "c": 20}
    changed = [(name, day, old if day == first[name] else value, end, died) for name, day, old, end, died in rows]
    write(tmp_path, changed, "u.csv")
    after = layout(tmp_path, landmark="first", table="u.csv").cases("all")
    assert {case.id: (shown(case), case.target.read().time) for case in after} == before


def test_several_images_of_a_visit_and_parts_that_conditions_take_away(tmp_path):
    write(tmp_path, [*ROWS[:3], ROWS[2]], name="t.csv")
    Pillow.fromarray(np.full((4, 4), 9, np.uint8)).save(tmp_path / "more.png")
    text = (tmp_path / "t.csv").read_text().splitlines()
    text[-1] = text[-1].replace("a_10.png", "more.png")
    (tmp_path / "t.csv").write_text("\n".join(text) + "\n")
    task = SurvivalTask(name="t", layout=layout(tmp_path), metrics=["c_index"], unit="days", splits={"test": "all"})
    (case,) = task.cases("test")
    assert [one[3] for one in shown(case) if one[1] == "2"] == [2, 2, 9]
    left = task.under(case, Condition("without_oct"), DrawKey(0, "a"))
    assert {one[0] for one in shown(left)} == {"values"}
    blank = task.under(case, Condition("blank_values", 100), DrawKey(0, "a"))
    assert all(np.isnan(one[3]) for one in shown(blank) if one[0] == "values")


def test_what_cannot_be_a_timeline_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(UsageError, match="must name the patient"):
        layout(tmp_path, id="").cases("all")
    with pytest.raises(UsageError, match="landmark is"):
        layout(tmp_path, landmark="lest").cases("all")
    with pytest.raises(UsageError, match="landmark from 1"):
        layout(tmp_path, landmark=0).cases("all")
    with pytest.raises(UserError, match="no patient is followed beyond"):
        layout(tmp_path, landmark=4).cases("all")
    text = (tmp_path / "t.csv").read_text().splitlines()
    rows = [text[0] + ",split", *(f"{line},{'train' if place else 'test'}" for place, line in enumerate(text[1:]))]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(UserError, match="puts 'a' to split 'train'"):
        layout(tmp_path, split="split").cases("train")


def timelines(folder, size=90):
    """Patients whose risk is how much a value rises, whatever it is at the last visit."""
    rng, rows = np.random.default_rng(0), []
    for number in range(size):
        rise, last = rng.normal(), rng.normal()
        end = 40 + int(500 * np.exp(-rise))
        rows += [(f"p{number:02d}", day, round(last - rise * (30 - day) / 30, 3), end, 1) for day in (0, 15, 30)]
    with (folder / "t.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [["patient", "day", "bcva", "end", "died", "split"]]
            + [[*row, ("train", "test")[int(row[0][1:]) % 2]] for row in rows]
        )


@pytest.mark.slow
def test_a_task_of_risk_learns_from_what_changes(tmp_path):
    timelines(tmp_path)
    values = {}
    for visits in ("last", "change", "mean"):
        made = layout(tmp_path, image={}, split="split")
        task = SurvivalTask(
            name=f"risk_{visits}",
            layout=made,
            metrics=["c_index"],
            unit="days",
            splits={"fit": "train", "test": "test"},
        )
        model = {"fusion": "early", "head": {"name": "cox", "alpha": 0.01, "l1_ratio": 0}, "visits": visits}
        fit = me.fit(task, FusionProbe(**model), runs=tmp_path / visits, num_workers=0)
        run = me.test(
            task, FusionProbe(**model, checkpoint=str(fit)), runs=tmp_path / visits, num_workers=0, score_workers=0
        )
        values[visits] = float(run.summary["value"][0])
    assert values["change"] > 0.95
    assert values["last"] < 0.75
    with pytest.raises(UsageError, match=r"model\.visits is"):
        FusionProbe(visits="all")


def test_olives_treatment_is_of_the_next_visit(tmp_path):
    from tests.benchmarks.test_olives import PATH
    from tests.benchmarks.test_olives import write as write_olives
    from tests.helpers.benchmark_files import picture
    from tests.helpers.benchmark_files import task as task_of

    write_olives(tmp_path)
    table = tmp_path / "OLIVES_Dataset_Labels/full_labels/Biomarker_Clinical_Data_Images.csv"
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    later = []
    for row in rows:
        if "Prime_FULL" in row[PATH]:
            path = row[PATH].replace("/W4/", "/W12/")
            picture(tmp_path / path[1:], np.full((6, 6), 200))
            later.append({**row, PATH: path, "BCVA": str(float(row["BCVA"]) + (5 if int(row["Eye_ID"]) % 2 else -5))})
            picture(tmp_path / path[1:].rpartition("/")[0] / "fundus_OS_W12.tif", np.full((6, 6), 9))
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows([*later, *rows])
    made = task_of("olives_treatment", tmp_path)
    assert isinstance(made, ClassificationTask)
    cases = [case for part in ("fit", "validate", "test") for case in made.cases(part)]
    found = {case.id: case.target.read().values["improves"] for case in cases}
    assert found == {f"Prime_FULL/01-{eye - 5:03d}/OS@4": eye % 2 for eye in range(5, 10)}
    images = [image.read() for image in cases[0].images]
    assert [image.attributes[PART] for image in images] == ["oct", "fundus", "oct"]
    assert max(int(image.array.max()) for image in images) < 200

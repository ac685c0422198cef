"""Leaderboards: places over tasks by hand, groups that never met, JSON to its schema, and the folder of pages."""

import json

import numpy as np
import pytest

from medimg_eval.catalogue import task_facts
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_runs, load_scores
from medimg_eval.results.leaderboard import build_leaderboard, find_standings, write_leaderboard
from medimg_eval.results.ranking import rank_models
from medimg_eval.viewer import write_pages

TASKS = "medimg_eval.tasks"
FACTS = {"organs": ("segmentation", ("ct",)), "lungs": ("segmentation", ("ct", "xray"))}


def rows(values, metric="dice"):
    return [(f"c{n}", f"p{n}", "a", metric, value, "present") for n, value in enumerate(values)]


@pytest.fixture
def board(write_run):
    """Makes a leaderboard of values by task and model."""

    def make(scores):
        for task, models in scores.items():
            for model, values in models.items():
                manifest = {"task": task, "task_title": task.title(), "model": model, "metrics": ["dice"]}
                folder = write_run(f"{task}_{model}", rows(values), **manifest)
        return build_leaderboard(load_runs([folder.parent]), FACTS, resamples=200)

    return make


def test_places_are_by_mean_rank_where_all_models_have_all_tasks(board):
    made = board(
        {
            "organs": {"A": [0.9] * 6, "B": [0.8] * 6, "C": [0.7] * 6},
            "lungs": {"A": [0.9] * 6, "B": [0.5] * 6, "C": [0.7] * 6},
        }
    )
    (group,) = made.standings
    assert group.order == "mean_rank"
    found = {row.model: row for row in group.rows}
    # A is first twice; B is second and third, C third and second: both have a mean rank of 2.5, and one win of four.
    assert [(row.model, row.place) for row in group.rows] == [("A", 1), ("B", 2), ("C", 2)]
    assert [found[model].mean_rank for model in "ABC"] == [1, 2.5, 2.5]
    assert [found[model].wins for model in "ABC"] == [1, 0.25, 0.25]
    assert found["A"].firsts == 2
    # Every case of a model has the same value, so no resample changes anything.
    assert (found["A"].place_low, found["A"].place_high, found["A"].shares) == (1, 1, {1: 1.0})
    assert (found["C"].mean_rank_low, found["C"].mean_rank_high) == (2.5, 2.5)


def test_a_leaderboard_and_rank_say_the_same(write_run):
    rng = np.random.default_rng(3)
    for task in ("organs", "lungs"):
        for place, model in enumerate("ABCD"):
            values = np.clip(0.6 + 0.01 * place + rng.normal(0, 0.05, 12), 0, 1).tolist()
            folder = write_run(f"{task}{model}", rows(values), task=task, task_title=task, model=model)
    runs = load_runs([folder.parent])
    (group,) = build_leaderboard(runs, FACTS, resamples=300).standings
    ranking = rank_models(runs, resamples=300).overall.set_index("model")
    for row in group.rows:
        theirs = ranking.loc[row.model]
        ours = (row.place, row.mean_rank, row.mean_rank_low, row.mean_rank_high, row.wins, row.firsts)
        assert ours == pytest.approx(tuple(theirs[["place", "mean_rank", "low", "high", "borda", "firsts"]]))
        assert sum(row.shares.values()) == pytest.approx(1)
    assert any(row.place_low < row.place_high for row in group.rows)


def test_where_a_task_lacks_a_model_places_are_by_wins(board):
    made = board(
        {
            "organs": {"A": [0.9] * 6, "B": [0.8] * 6, "C": [0.7] * 6},
            "lungs": {"B": [0.9] * 6, "C": [0.8] * 6},
        }
    )
    (group,) = made.standings
    assert group.order == "wins"
    # A wins 2 of 2 comparisons, B 1 of 2 and 1 of 1, C none of 3. Mean ranks are over organs alone.
    assert [(row.model, row.wins, row.mean_rank) for row in group.rows] == [("A", 1, 1), ("B", 2 / 3, 2), ("C", 0, 3)]


def test_models_that_never_met_have_places_of_their_own(board):
    made = board(
        {
            "organs": {"A": [0.9] * 6, "B": [0.8] * 6},
            "lungs": {"X": [0.3] * 6, "Y": [0.2] * 6},
            "bones": {"B": [0.9] * 6, "C": [0.1] * 6},
        }
    )
    assert [[row.model for row in group.rows] for group in made.standings] == [["A", "B", "C"], ["X", "Y"]]
    assert find_standings([]) == []


def test_few_patients_leave_no_interval(board):
    (group,) = board({"organs": {"A": [0.9] * 4, "B": [0.8] * 4}}).standings
    assert np.isnan(group.rows[0].place_low)
    assert group.rows[0].shares == {}


@pytest.fixture
def mixed(write_run):
    """Runs of which one is a baseline, one unfinished, two of one name, and one lacks a metric."""
    both = rows([0.9, 0.8, 0.7, 0.6, 0.5]) + rows([1.0, 2.0, 3.0, 4.0, 5.0], "hd95")
    write_run("full", both, model="Full", metrics=["dice", "hd95"], task_config={"card": {"licence": "CC0"}})
    write_run("twin1", rows([0.4] * 5), model="Twin", settings="1", metrics=["dice"])
    write_run("twin2", model="Twin", settings="2", status="interrupted", predicted=0, cases=5, metrics=["dice"])
    write_run("chance", rows([0.1] * 5), model="Chance", baseline=True, metrics=["dice"])
    folder = write_run("lone", rows([0.5] * 5), model="Full", task="lungs", task_title="<Lungs>", metrics=["dice"])
    return load_runs([folder.parent])


def test_the_json_is_to_its_schema_and_what_was_not_scored_is_a_dash(mixed, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    write_leaderboard(build_leaderboard(mixed, FACTS, resamples=50), tmp_path / "out")
    content = json.loads((tmp_path / "out" / "leaderboard.json").read_text(encoding="utf-8"))
    jsonschema.validate(content, json.loads((tmp_path / "out" / "leaderboard.schema.json").read_text()))
    printed = {(one["task"], one["model"], one["metric"]): one["printed"] for one in content["values"]}
    assert printed["organs", "Full", "dice"] == "0.700"
    assert printed["organs", "Twin (twin1)", "hd95"] == "\N{EN DASH}"
    assert printed["organs", "Twin (twin2)", "dice"] == "unfinished 0/5"
    assert ("lungs", "Chance", "dice") not in printed
    assert content["models"][-1] == {"model": "Chance", "baseline": True}
    assert [(one["model"], one["metric"], one["rank"]) for one in content["ranks"]] == [
        ("Full", "dice", 1),
        ("Twin (twin1)", "dice", 2),
    ]
    assert [one["tasks"] for one in content["standings"]] == [["organs"]]
    about = {one["task"]: one for one in content["tasks"]}
    assert (about["organs"]["modalities"], about["organs"]["licence"]) == (["ct"], "CC0")
    assert [one["ranked"] for one in about["organs"]["metrics"]] == [True, False]


def test_each_task_has_a_page_and_those_of_former_tasks_go(mixed, tmp_path):
    out = tmp_path / "out"
    index = write_leaderboard(build_leaderboard(mixed, FACTS, resamples=50), out)
    assert sorted(path.name for path in (out / "tasks").iterdir()) == ["lungs.html", "organs.html"]
    page = (out / "tasks" / "lungs.html").read_text(encoding="utf-8")
    assert "<h1>&lt;Lungs&gt;</h1>" in page
    assert "Content-Security-Policy" in page
    assert "http" not in page.replace("http-equiv", "")
    assert '<a href="tasks/organs.html">Organs</a>' in index.read_text(encoding="utf-8")
    write_leaderboard(build_leaderboard([run for run in mixed if run.task == "organs"], {}, resamples=50), out)
    assert [path.name for path in (out / "tasks").iterdir()] == ["organs.html"]
    assert [path.name for path in (out / "data").glob("ranks-*")] == ["ranks-0.js"]


def test_without_a_finished_run_there_is_no_leaderboard(write_run):
    runs = load_runs([write_run("one", status="failed", predicted=0)])
    with pytest.raises(UserError, match="no leaderboard"):
        build_leaderboard(runs, {}, resamples=10)


USUAL = {"scores": None, "cases": "worst:50", "root": None, "voxels": 2_000_000, "examples": 0, "title": None}
USUAL |= {"compare": None, "metric": None, "resamples": 20, "level": 0.95, "seed": 0}


def command(runs, out, **changed):
    wanted = {**USUAL, "kind": "leaderboard", "out": str(out), **changed}
    return write_pages(lambda: runs, wanted, lambda folder, root: None, task_facts).page


def test_keys_of_cases_and_folders_of_other_reports_are_refused(mixed, tmp_path):
    with pytest.raises(UsageError, match="leave out cases=all"):
        command(mixed, tmp_path / "out", cases="all")
    with pytest.raises(UsageError, match="did you mean 'leaderboard'"):
        command(mixed, tmp_path / "out", kind="leaderbord")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "report.json").write_text('{"made_by": "medimg_eval 0.1.0"}')
    with pytest.raises(UserError, match="holds a report of kind=cases"):
        command(mixed, tmp_path / "cases")
    assert command(mixed, tmp_path / "out") == tmp_path / "out" / "index.html"
    assert command(mixed, tmp_path / "out") == tmp_path / "out" / "index.html"


def test_scores_from_elsewhere_make_a_leaderboard(tmp_path):
    lines = ["task,case,model,metric,value", *(f"t,c{n},{m},score,{n % 3}" for n in range(6) for m in "AB")]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    runs = load_scores(tmp_path / "scores.csv", direction={"score": "higher"})
    assert command(runs, tmp_path / "out").is_file()


def test_family_and_modalities_of_tasks():
    configs = {
        "slake": {"card": {"modality": "X-ray, CT, MRI"}},
        "mine": {
            "_target_": "medimg_eval.tasks.SegmentationTask",
            "card": {"description": "Livers; it gives us text."},
        },
        "brain_tissue": {"_target_": f"{TASKS}.SegmentationTask", "layout": {"modality": "MR"}},
        "csv": {},
    }
    assert task_facts(configs) == {
        "slake": ("vqa", ("ct", "mri", "xray")),
        "mine": ("segmentation", ()),
        "brain_tissue": ("segmentation", ("mri",)),
        "csv": ("", ()),
    }

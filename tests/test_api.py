"""`import medimg_eval as me`: light to import, the same runs as the command line, gentle to its caller's process."""

import json
import logging
import pkgutil
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from answering import Thresholds

import medimg_eval as me
from medimg_eval.errors import UsageError, UserError
from medimg_eval.tasks import SegmentationTask
from tests.conftest import LABELS, Program, ellipsoids, environment

QUIET = {"trainer": {"accelerator": "cpu", "logger": False}, "score_workers": 0, "num_workers": 0}
HEAVY = ("torch", "lightning", "hydra", "pandas", "numpy", "importlib.metadata")
NAMES = [
    *("check", "compare", "embed", "export", "figure", "fit", "import_log", "list_catalogue", "list_tasks", "load_run"),
    *("inspect_task", "label", "load_task", "predict", "report", "score", "table", "test", "test_checkpoints"),
]


def in_a_process(code: str, cwd: Path, *paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment(*paths), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_nothing_heavy(tmp_path):
    code = f"import sys; import medimg_eval; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_a_process(code, tmp_path).strip() == "[]"


def test_every_name_is_there_and_none_is_a_subpackage():
    assert sorted(NAMES) == [name for name in me.__all__ if not name.startswith("_")]
    assert all(callable(getattr(me, name)) for name in NAMES)
    assert not {module.name for module in pkgutil.iter_modules(me.__path__)} & set(NAMES)
    assert me.__version__
    with pytest.raises(AttributeError, match="has no attribute 'tset'"):
        _ = me.tset


@pytest.fixture
def tested(write_dataset, tmp_path):
    """A run of thresholds on four ellipsoids."""
    return me.test(ellipsoids(write_dataset(4)), Thresholds(), runs=tmp_path / "runs", **QUIET)


def test_a_run_shows_its_scores_summary_predictions_and_table(tested):
    assert set(tested.scores["metric"]) == {"dice", "hd95", "nsd@1"}
    assert list(tested.summary.columns) == ["metric", "value", "low", "high", "n", "failed"]
    assert list(tested.summary["n"]) == [4, 4, 4]
    mask = tested.predictions["case00"]
    assert set(np.unique(mask.labels)) <= {0, *LABELS}
    assert [trial.id for trial in tested.predictions] == ["case00", "case01", "case02", "case03"]
    assert tested.predictions[next(iter(tested.predictions))].labels.shape == mask.labels.shape
    assert tested.failures.empty
    assert "<table" in tested._repr_html_()
    assert me.load_run(tested.folder).summary.equals(tested.summary)


def test_one_table_takes_runs_and_folders_and_is_written_as_latex(tested):
    from_both = me.table([tested, str(tested.folder)], resamples=100)
    assert [row.name for row in from_both.rows] == ["Thresholds"]
    assert "\\begin{tabular}" in from_both.to_latex()
    assert "| Thresholds |" in from_both.to_markdown()
    with pytest.raises(UsageError, match="got 'metrcs'; did you mean 'metrics'"):
        me.table(tested, metrcs=["dice"])


def test_other_metrics_are_scored_without_the_model(tested):
    again = me.score(tested, metrics=["nsd@2"], score_workers=0)
    assert list(again.summary["metric"]) == [*tested.summary["metric"], "nsd@2"]
    dropped = me.score(again, drop=[name for name in again.summary["metric"] if name != "nsd@2"], score_workers=0)
    assert list(dropped.summary["metric"]) == ["nsd@2"]
    assert again.folder == tested.folder
    with pytest.raises(UsageError, match="has no setting 'sruface'; did you mean 'surface'"):
        me.score(tested, sruface="voxel")


def test_figures_comparisons_and_reports_are_made_of_runs(tested, write_dataset, tmp_path):
    other = me.test(
        ellipsoids(write_dataset(4)), Thresholds(levels=(20, 150)), name="Low", runs=tmp_path / "runs", **QUIET
    )
    compared = me.compare([tested, other], "dice", resamples=100)
    assert {"Thresholds", "Low"} <= set(str(compared.sheets[0].frame().to_dict()).replace("'", " ").split())
    (stem,) = me.figure("box", [tested, other], "dice", out=tmp_path / "figures")
    assert (tmp_path / "figures" / f"{stem}.png").is_file()
    assert me.report([tested], tmp_path / "report", cases="none", resamples=100).index.is_file()


def test_the_command_and_python_make_the_same_run(write_dataset, config_dir, program: Program, tmp_path):
    configs = config_dir(write_dataset(3))
    keys = {"trainer.accelerator": "cpu", "+trainer.logger": "false", "num_workers": 0, "score_workers": 0}
    words = ["test", "--config-dir", str(configs), "task=ellipsoids", "model._target_=answering.Thresholds"]
    words += ["+model.levels=[50,150]", "runs=shell", *(f"{key}={value}" for key, value in keys.items())]
    assert program(*words).returncode == 0
    (manifest,) = (tmp_path / "shell").rglob("manifest.json")
    shell = me.load_run(manifest.parent)
    named = {"_target_": "answering.Thresholds", "name": "Thresholds"}
    by_name = me.test(
        "ellipsoids", named, config_dir=configs, runs=tmp_path / "names", **QUIET
    )  # which leaves the levels at their default
    by_object = me.test(
        me.load_task("ellipsoids", config_dir=configs), Thresholds(), runs=tmp_path / "objects", **QUIET
    )
    for run in (by_name, by_object):
        assert run.id == shell.id
        assert (run.folder / "scores.parquet").read_bytes() == (shell.folder / "scores.parquet").read_bytes()
        assert run.folder.name == shell.folder.name


def test_a_task_made_here_is_the_task_of_its_config_also_where_that_spells_a_default(
    write_dataset, config_dir, tmp_path
):
    root = write_dataset(3)
    configs = config_dir(root)
    file = configs / "task" / "ellipsoids.yaml"
    file.write_text(file.read_text() + "splits: {fit: fit, validate: validate, test: test}\n")
    of_config = me.test("ellipsoids", Thresholds(), config_dir=configs, runs=tmp_path / "config", **QUIET)
    from medimg_eval.data.layouts import Volumes

    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="labels/{case}.nii.gz", table="cases.csv")
    task = SegmentationTask(name="ellipsoids", layout=layout, labels=LABELS, metrics=["dice"], title="Mine")
    of_object = me.test(task, Thresholds(), runs=tmp_path / "object", **QUIET)
    assert of_object.id == of_config.id
    assert task.config == {}, "what the caller holds stays as it is"


def test_a_stored_run_whose_config_spelled_a_default_is_gone_on_with(write_dataset, tmp_path):
    """Its id is of the settings as they were written, as ids were before defaults were left out."""
    from medimg_eval.evaluation.plan import placed

    (tmp_path / "Model-old").mkdir()
    (tmp_path / "Model-old" / "manifest.json").write_text(json.dumps({"run": "old"}))
    assert placed(["new", "old"], None, tmp_path / "Model") == ("old", tmp_path / "Model-old")
    assert placed(["new", "other"], None, tmp_path / "Model") == ("new", tmp_path / "Model-new")


class Holding(Thresholds):
    """Takes an object that no config can hold."""

    def __init__(self, network=None):
        super().__init__()
        self.network = network


def test_a_model_of_live_objects_is_unidentified_and_asked_again_unless_it_is_named(write_dataset, tmp_path):
    task = ellipsoids(write_dataset(2))
    network = torch.nn.Linear(1, 1)
    first, second = (me.test(task, Holding(network), runs=tmp_path / "runs", **QUIET) for _ in range(2))
    assert first.id != second.id
    assert first.manifest["unidentified"]
    assert any("unidentified" in note for note in first.notes)
    named = [me.test(task, Holding(network), identity="linear-1", runs=tmp_path / "named", **QUIET) for _ in range(2)]
    assert named[0].folder == named[1].folder
    assert "unidentified" not in named[0].manifest


class Plain:
    """No `Model`: it knows nothing of its arguments."""

    reads_images = True

    def segment(self, prompts):
        return [(prompt.image.array[0] > 50).astype(np.uint8) for prompt in prompts]


def test_any_object_with_the_method_is_a_model(write_dataset, tmp_path):
    run = me.test(ellipsoids(write_dataset(2)), Plain(), identity="plain", runs=tmp_path, **QUIET)
    assert list(run.summary["n"]) == [2, 2, 2]


def test_failed_cases_raise_nothing_and_are_named(write_dataset, tmp_path):
    run = me.test(ellipsoids(write_dataset(3)), Thresholds(fails_on=("case01",)), runs=tmp_path, **QUIET)
    assert list(run.failures["case"]) == ["case01"]
    assert run.failures["message"].str.contains("no answer to case01").all()
    with pytest.raises(KeyError):
        _ = run.predictions["case01"]


def test_the_callers_process_is_left_as_it_was(write_dataset, tmp_path):
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    handlers = {name: list(logging.getLogger(name).handlers) for name in ("", "medimg_eval", "lightning.pytorch")}
    level = logging.getLogger("lightning.pytorch").level
    me.test(ellipsoids(write_dataset(2)), Thresholds(), seed=3, runs=tmp_path, **QUIET)
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    assert handlers == {name: logging.getLogger(name).handlers for name in handlers}
    assert logging.getLogger("lightning.pytorch").level == level


def test_what_cannot_be_done_is_a_user_error(write_dataset, tmp_path):
    with pytest.raises(UsageError, match="got 'brain_tisue'; did you mean 'brain_tissue'"):
        me.test("brain_tisue", Thresholds(), runs=tmp_path)
    with pytest.raises(UsageError, match="got 'limt'; did you mean 'limit'"):
        me.test(ellipsoids(write_dataset(2)), Thresholds(), runs=tmp_path, limt=1)
    with pytest.raises(UsageError, match="the model is an object; change it where it is made"):
        me.test(ellipsoids(write_dataset(2)), Thresholds(), runs=tmp_path, overrides=["model.levels=[1]"])
    with pytest.raises(UserError, match="holds no run"):
        me.load_run(tmp_path)
    assert not list(tmp_path.rglob("manifest.json"))


def test_tasks_are_listed_by_family_and_loaded_with_other_settings():
    assert "slake" in me.list_tasks("vqa").index
    assert set(me.list_tasks("vqa")["family"]) == {"vqa"}
    assert me.load_task("slake", root="/elsewhere").layout.root == "/elsewhere"
    assert list(me.load_task("brain_tissue", metrics=["dice"]).metrics) == ["dice"]
    with pytest.raises(UsageError, match="got 'segmentatiom'; did you mean 'segmentation'"):
        me.list_tasks("segmentatiom")


def test_a_folder_from_somebody_else_runs_no_code(tested):
    manifest = json.loads((tested.folder / "manifest.json").read_text())
    manifest["task_config"]["_target_"] = "subprocess.Popen"
    (tested.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="would run subprocess.Popen"):
        me.score(me.load_run(tested.folder))


SCRIPT = """
import sys
import medimg_eval as me
from medimg_eval.models import Segmenter

class Mine(Segmenter):
    def __init__(self, level=50):
        self.level = level

    def segment(self, prompts):
        return [(prompt.image.array[0] > self.level).astype("uint8") for prompt in prompts]

settings = dict(trainer={"accelerator": "cpu"}, num_workers=1, score_workers=1)
runs = [me.test("ellipsoids", Mine(*a), config_dir=sys.argv[1], runs="runs", **settings) for a in ((), (50,))]
print(runs[0].id == runs[1].id, len(runs[0].failures), list(runs[0].summary["n"]))
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_defines_its_own_model(write_dataset, config_dir, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", str(config_dir(write_dataset(3)))]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True 0 [3, 3, 3]\n"

"""The command line: words taken apart, errors in one line with the nearest name, exit codes, completion."""

import gc
import json
import os
import subprocess
import sys
import time

import pytest

from medimg_eval.commands import COMMANDS
from medimg_eval.commands.cli import start, take_apart
from medimg_eval.configs.overrides import Words, composed, forced
from medimg_eval.errors import UsageError, nearest
from medimg_eval.system import freeze, uncollected, unfreeze
from tests.conftest import environment


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("test task=a model=b", Words("test", [], ["task=a", "model=b"])),
        ("-m test task=a,b", Words("test", ["-m"], ["task=a,b"])),
        ("test --config-dir conf task=a", Words("test", ["--config-dir", "conf"], ["task=a"])),
        ("test task=a --cfg job ~model.flips", Words("test", ["--cfg", "job"], ["task=a", "~model.flips"])),
        ("--help", Words("", ["--help"], [])),
        ("", Words("", [], [])),
    ],
)
def test_flags_and_overrides_may_come_in_any_order(line, words):
    assert take_apart(line.split()) == words


def test_the_nearest_name_is_offered_only_when_one_is_near():
    assert nearest("tset", ["test", "fit"]) == "; did you mean 'test'? (available: fit, test)"
    assert nearest("xyz", ["test", "fit"]) == " (available: fit, test)"
    assert nearest("x", []) == " (available: none)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tset", "got 'tset'; did you mean 'test'?"),
        ("task=brain_tissue", "got 'task=brain_tissue'"),
        ("test brain_tissue", "expected key=value after 'test', got 'brain_tissue'"),
        ("test task=brain_tisue", "got 'brain_tisue'; did you mean 'brain_tissue'?"),
        ("test model=unet_smal", "got 'unet_smal'; did you mean 'unet_small'?"),
        ("test modl=unet_small", "got 'modl'; did you mean 'model'?"),
        ("test batch_sise=2", "got 'batch_sise'; did you mean 'batch_size'?"),
        ("test model=unet_small model.chekpoint=x", "got 'model.chekpoint'; did you mean 'model.checkpoint'?"),
        ("test task=brain_tissue task.metrics=[dise]", "got 'dise'; did you mean 'dice'?"),
        ("test model=precomputed", "model.root is not set; add model.root=VALUE"),
        (
            "test model._target_=nowhere.Bar",
            "model._target_=nowhere.Bar cannot be imported (No module named 'nowhere')",
        ),
        ("test model=unet_small +model.colour=1", "unexpected keyword argument 'colour'"),
        ("test model=[", "model=[: cannot be understood; quote the value twice"),
        ("score", "name what to score: run=DIR"),
        ("list what=taks", "got 'taks'; did you mean 'tasks'?"),
        ("list card=brain", "got 'brain'; did you mean 'brain_tissue'?"),
        ("test suite=quikstart", "got 'quikstart'; did you mean 'quickstart'?"),
        ("test --config-dir no_such_folder", "no_such_folder' not found"),
        ("test batch_size=0", "expected batch_size to be a whole number of at least 1, got 0"),
        ("test batch_size=true", "expected batch_size to be a whole number of at least 1, got True"),
        ("test seed=4294967296", "expected seed to be at most 4294967295, got 4294967296"),
        ("test seed=abc", "expected seed to be a whole number of at least 0, got 'abc'"),
        ("test task=brain_tissue task.surface=voxle", "got 'voxle'; did you mean 'voxel'"),
        ("test trainer.precision=bf16-true", "use bf16-mixed"),
        ("test ~suite", "no task is named; add task=NAME"),
        ("test suite=null", "take a group out with ~GROUP"),
    ],
)
def test_what_does_not_exist_is_one_line_with_the_nearest_name_and_exit_code_2(
    line, said, capfd, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start(line.split()) == 2
    out, err = capfd.readouterr()
    told = [row for row in err.splitlines() if "loading" not in row]
    assert len(told) == 1, err
    assert told[0].startswith("medimg_eval: ")
    assert said in told[0]
    assert "Traceback" not in out + err
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("how", ["environment", "key"])
def test_the_trace_is_shown_on_demand(how, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1" if how == "environment" else "0")
    assert start(["test", "task=brain_tisue", *(["debug=true"] if how == "key" else [])]) == 2
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert "did you mean 'brain_tissue'" in err


@pytest.mark.parametrize("key", ["task", "tasks", "suite"])
def test_a_group_that_a_command_does_not_have_is_no_key_of_it(key, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start(["table", f"{key}=x"]) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"medimg_eval: key is invalid: expected one of the keys of `table`, got {key!r}")
    assert "mean 'task'" not in said
    assert "Could not override" not in said


def test_a_key_of_the_users_own_config_folder_is_known(capfd, monkeypatch, tmp_path):
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text("_target_: a.B\nstrength: 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start(["test", "--config-dir", "conf", "model=mine", "model.strenght=4"]) == 2
    assert "did you mean 'model.strength'" in capfd.readouterr().err


def test_help_names_every_command_and_every_key_of_one(capsys):
    assert start(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    for command in COMMANDS:
        assert start([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert COMMANDS[command] in shown
        assert "\ntask=      python -m medimg_eval list tasks\n" in shown
        assert len(shown.splitlines()) < 100


def test_usage_errors_are_errors_people_can_mend():
    assert UsageError("x").exit_code == 2


def shell(*words, **variables):
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "medimg_eval", *words],
        capture_output=True,
        text=True,
        env=environment() | variables,
        check=False,
    )


@pytest.mark.parametrize("words", [["--help"], ["test", "--help"], ["list"], ["list", "json=true"], ["--version"]])
def test_help_and_list_answer_without_torch(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    start_time = time.process_time()
    done = shell(*words)
    assert done.returncode == 0, done.stderr
    assert time.process_time() - start_time < 2
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.splitlines()}
    assert not imported & {"torch", "monai", "lightning", "nilearn", "sklearn"}
    assert not list(tmp_path.iterdir())


def test_list_can_be_read_by_programs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = json.loads(shell("list", "json=true").stdout)
    assert {"brain_tissue"} <= set(found["tasks"])
    assert {"precomputed", "unet_small", "gaussian_mixture"} <= set(found["models"])
    assert {"dice", "iou", "hd", "hd95", "assd"} <= set(found["metrics"])
    assert all(text for entries in found.values() for text in entries.values())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("medimg-eval ", "test"),
        ("medimg-eval te", "test"),
        ("medimg-eval test mod", "model="),
        ("medimg-eval test model=", "model=unet_small"),
        ("medimg-eval test model=unet_small model.chec", "model.checkpoint="),
        ("medimg-eval table ru", "runs="),
        ("medimg-eval test ta", "task="),
        ("medimg-eval test task=sla", "task=slake"),
    ],
)
def test_the_shell_completes_commands_groups_options_and_keys(line, offered):
    done = shell("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
    assert done.returncode == 0, done.stderr
    assert offered in done.stdout.split()


def test_completion_can_be_installed():
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "medimg-eval"), "-sc", "install=bash"],  # noqa: PTH118, PTH120
        capture_output=True,
        text=True,
        check=True,
    )
    assert "complete -o nospace" in done.stdout
    assert "medimg-eval" in done.stdout


def test_keys_of_a_swept_group_are_set_in_every_job():
    words = take_apart(["-m", "test", "model=a,b", "model.x=1", "+model.y=2", "task=c", "task.z=3", "seed=1,2"])
    assert forced(words) == [
        "model=a,b",
        "++model.x=1",
        "+model.y=2",
        "task=c",
        "++task.z=3",
        "seed=1,2",
    ]
    words = take_apart(["test", "model=a", "model.x=1"])
    assert forced(words) == ["model=a", "model.x=1"]


def test_empty_braces_empty_what_a_task_says(folder, capsys):
    """Hydra alone would merge them with the task's, and change nothing."""
    assert dict(composed("test", ["task=medcta"]).task.tools)
    assert dict(composed("test", ["task=medcta", "task.tools={}"]).task.tools) == {}


def test_garbage_is_collected_as_before_after_a_command(capsys):
    assert start(["list", "what=metrics"]) == 0
    assert capsys.readouterr().out
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_imported_later_is_searched_for_garbage_only_where_no_command_runs(*, frozen):
    assert gc.get_freeze_count() == 0
    try:
        if frozen:
            freeze()
        with uncollected():
            assert not gc.isenabled()
            made = [{} for _ in range(10)]
        assert gc.isenabled()
        assert any(thing is made for thing in gc.get_objects()) is not frozen
    finally:
        unfreeze()

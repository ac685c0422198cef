"""Tasks lie in folders and go by their own names: on the command line, in sweeps, suites, defaults and lists."""

import json
import re
import sys
from collections import Counter

import pytest
import yaml

from medimg_eval.commands.cli import start
from medimg_eval.configs.names import path_meant, paths_of, shortest_names
from medimg_eval.errors import UsageError
from tests.helpers.config_files import CONFIGS, composed_config, config_files

TASK = "_target_: a.Task\nname: {name}\ncard: {{description: 'It is {name}.', access: on request}}\n"


@pytest.fixture
def ask(capfd, monkeypatch, tmp_path):
    """Runs a command line in a folder of its own; returns the exit code, what was printed, and what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])

    def run(line):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # the program sets it, for Hydra
        code = start(line.split())
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def own(tmp_path):
    """The user's own configs, some of them in folders."""

    def write(*paths, text=TASK):
        for path in paths:
            file = tmp_path / "conf" / f"{path}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(name=path.rpartition("/")[2]))

    return write


def told(answer):
    code, printed, said = answer
    assert code == 0, said
    return yaml.safe_load(printed)


def test_the_configs_of_a_group_are_found_in_folders_that_are_not_hidden(own, tmp_path):
    own("task/a", "task/x/b", "task/x/y/c", "task/.ipynb_checkpoints/a-checkpoint", "task/__pycache__/d", "model/x/m")
    (tmp_path / "conf" / "task" / "x" / "notes.txt").write_text("no config")
    assert paths_of(tmp_path / "conf", "task") == ["a", "x/b", "x/y/c"]
    assert paths_of(tmp_path / "conf", "model") == []
    assert paths_of(tmp_path / "conf", "suite") == []


def test_the_shortest_name_is_the_configs_own_unless_two_share_it():
    assert shortest_names(["a", "x/b", "x/c", "y/c"]) == {"a": "a", "b": "x/b", "x/c": "x/c", "y/c": "y/c"}
    assert shortest_names(["c", "y/c"]) == {"c": "c", "y/c": "y/c"}


def test_a_name_means_a_path_or_the_one_path_that_ends_in_it():
    paths = ["a", "x/a", "x/b", "y/deep/c", "z/c", "z/abc"]
    assert path_meant("task", "a", paths) == "a"
    assert path_meant("task", "b", paths) == "x/b"
    assert path_meant("task", "deep/c", paths) == "y/deep/c"
    assert path_meant("task", "bc", paths) is None
    assert path_meant("task", "x", paths) is None
    with pytest.raises(UsageError, match=r"several tasks 'c'; say which: task=y/deep/c, task=z/c"):
        path_meant("task", "c", paths)


def test_folders_of_tasks_stay_small_enough_to_read_and_no_two_tasks_share_a_name():
    files = config_files("task")
    assert all(size <= 64 for size in Counter(path.parent for path in files).values())
    assert not [path for path in files if path.parent == CONFIGS / "task"], "put it into the folder of its family"
    assert len({path.stem for path in files}) == len(files)
    assert not [path for path in (CONFIGS / "model").iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["vqa/slake", "slake.yaml", "segmentation/msd/msd_lung", "msd/msd_lung"])
def test_a_task_is_the_same_whichever_way_it_is_named(name):
    short = name.rpartition("/")[2].removesuffix(".yaml")
    assert composed_config("test", f"task={name}") == composed_config("test", f"task={short}")


def test_a_task_that_starts_from_another_of_its_folder_does_so_by_its_path_too():
    found = composed_config("test", "task=vqa/slake_lmms_eval")["task"]
    assert found == composed_config("test", "task=slake_lmms_eval")["task"]
    assert found["layout"] == composed_config("test", "task=slake")["task"]["layout"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("task=slak", "got 'slak'; did you mean 'slake'?"),
        ("task=vqa/slak", "got 'vqa/slak'; did you mean 'slake'?"),
        ("task=reports/slake", "got 'reports/slake'; did you mean 'slake'?"),
        (
            "task=detection",
            "'detection' is a folder of tasks; name one of them (available: camelyon16, dlcs_boxes, dlcs_nlst",
        ),
        ("task=segmentation/msd", "'segmentation/msd' is a folder of tasks; name one of them (available: msd_brain_t"),
        ("+task@tasks.more=slak", "got 'slak'; did you mean 'slake'?"),
    ],
)
def test_a_name_that_is_none_is_answered_with_the_nearest(ask, words, said):
    code, _, err = ask(f"test {words}")
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_name_that_two_tasks_share_asks_for_the_folder(ask, own):
    own("task/one/twin", "task/two/twin", "task/two/sole")
    code, _, err = ask("test --config-dir conf task=twin")
    assert code == 2
    assert err == "medimg_eval: there are several tasks 'twin'; say which: task=one/twin, task=two/twin\n"
    assert ask("list --config-dir conf card=twin")[2] == err
    assert told(ask("test --config-dir conf task=two/twin --cfg job"))["task"]["name"] == "twin"
    assert told(ask("test --config-dir conf task=sole --cfg job"))["task"]["name"] == "sole"
    code, listed, _ = ask("list --config-dir conf what=tasks json=true")
    assert {"one/twin", "two/twin", "sole", "slake"} <= set(json.loads(listed)["tasks"])
    assert "twin" not in json.loads(listed)["tasks"]


def test_the_users_tasks_may_lie_in_folders_and_ours_come_first(ask, own):
    own("task/flat", "task/my/deep", "task/slake", "task/my/vqa_rad")
    for name in ("flat", "deep", "my/deep", "my/vqa_rad"):
        found = told(ask(f"test --config-dir conf task={name} --cfg job"))["task"]
        assert found["card"]["access"] == "on request"
        assert found["name"] == name.rpartition("/")[2]
        assert f"It is {found['name']}." in ask(f"list --config-dir conf card={name}")[1]
    for name in ("slake", "vqa/slake", "vqa_rad"):
        assert told(ask(f"test --config-dir conf task={name} --cfg job"))["task"]["card"]["access"] != "on request"
        assert "It is" not in ask(f"list --config-dir conf card={name}")[1]


def test_suites_defaults_and_further_tasks_of_the_users_own_keep_short_names(ask, own):
    own("task/mine", text="defaults:\n  - slake\n  - _self_\nname: {name}\n")
    own("suite/both", text="# @package _global_\ndefaults:\n  - /task@tasks.a: slake\n  - /task@tasks.b: mine\n")
    tasks = told(ask("test --config-dir conf suite=both +task@tasks.c=msd_lung --cfg job"))["tasks"]
    assert {key: task["name"] for key, task in tasks.items()} == {"a": "slake", "b": "mine", "c": "msd_lung"}
    assert tasks["b"]["layout"] == tasks["a"]["layout"]
    tasks = told(ask("test --config-dir conf suite=both task@tasks.a=vqa/vqa_rad --cfg job"))["tasks"]
    assert tasks["a"]["name"] == "vqa_rad"


@pytest.mark.parametrize("names", ["one,two,far", "in/one,two,in/deep/far", "'one','far',two", "glob([one,two,far])"])
def test_every_task_of_a_sweep_may_be_named_shortly(ask, own, names):
    own("task/two", "task/in/one", "task/in/deep/far")
    code, _, said = ask(f"-m download --config-dir conf task={names}")
    assert code == 1
    assert sorted(re.findall(r"task '(\w+)' is not fetched for you", said)) == ["far", "one", "two"]


def test_the_tasks_of_a_package_may_lie_in_folders(ask, tmp_path, monkeypatch):
    package = tmp_path / "a_plug_in" / "configs"
    (package / "task" / "blobs").mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    for path in ("flat", "blobs/round", "slake"):
        (package / "task" / f"{path}.yaml").write_text(TASK.format(name=path.rpartition("/")[2]))
    monkeypatch.syspath_prepend(str(tmp_path))
    place = "hydra.searchpath=[pkg://a_plug_in.configs]"
    for name in ("flat", "round", "blobs/round"):
        assert told(ask(f"test {place} task={name} --cfg job"))["task"]["name"] == name.rpartition("/")[2]
    assert told(ask(f"test {place} task=slake --cfg job"))["task"]["card"]["access"] != "on request"  # ours is first
    assert {"flat", "round"} <= set(json.loads(ask(f"list {place} what=tasks json=true")[1])["tasks"])
    assert "did you mean 'round'?" in ask(f"test {place} task=roud")[2]


def test_what_is_not_below_a_task_is_found_as_before(ask, own):
    own("model/deep/mine")
    assert "got 'mine'" in ask("test --config-dir conf model=mine")[2]
    assert told(ask("test --config-dir conf model=deep/mine --cfg job"))["model"]["name"] == "mine"


def test_hydra_is_left_as_it_was(ask):
    from hydra._internal.sources_registry import SourcesRegistry

    assert ask("list card=slake")[0] == 0
    assert {kind.__module__.partition(".")[0] for kind in SourcesRegistry.instance().types.values()} == {"hydra"}

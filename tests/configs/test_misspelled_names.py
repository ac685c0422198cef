"""A misspelt name is one short sentence: of tasks, models, metrics, keys and labels, whichever is misspelt."""

import sys

import pytest
import yaml
from hydra.errors import MissingConfigException

from medimg_eval.commands import COMMANDS
from medimg_eval.commands.cli import start
from medimg_eval.configs.overrides import GROUPS, composed, explain
from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics import available, parse
from tests.helpers.config_files import CONFIGS, config_files, config_names

BUDGET = 300
"""Characters of a message."""


def misspelt(name):
    """The name without its third letter, and with a letter behind it."""
    return [name[:2] + name[3:], f"{name}q"]


def long_messages(messages):
    return [text for text in messages if len(text) > BUDGET]


@pytest.mark.parametrize("group", GROUPS)
def test_a_misspelt_config_is_named_in_a_short_sentence(group):
    names = config_names(group)
    messages = []
    for wrong in {wrong for name in names for wrong in misspelt(name)} - set(names):
        error = MissingConfigException("", missing_cfg_file=f"{group}/{wrong}", options=names)
        messages.append(str(explain(error, None)))
    assert long_messages(messages) == []
    assert all(text.startswith(f"{group} is invalid: expected one of ") for text in messages)


@pytest.mark.parametrize("folder", sorted(path.name for path in (CONFIGS / "task").iterdir() if path.is_dir()))
def test_a_folder_of_tasks_is_named_in_a_short_sentence(folder):
    with pytest.raises(UsageError, match=f"{folder!r} is a folder of tasks") as told:
        composed("test", [f"task={folder}"])
    assert long_messages([str(told.value)]) == []


def test_a_misspelt_metric_is_named_in_a_short_sentence():
    messages = []
    for wrong in sorted({wrong for name in available() for wrong in misspelt(name)})[::8]:  # each takes 10 ms
        try:
            parse(wrong)
        except UsageError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert long_messages(messages) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_key_is_named_in_a_short_sentence(command, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    own = yaml.safe_load((CONFIGS / f"{command}.yaml").read_text())
    longest = max((key for key in own if key not in ("defaults", "hydra")), key=len)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start([command, f"{longest}q=1"]) == 2
    said = capfd.readouterr().err
    assert f"did you mean {longest!r}?" in said
    assert long_messages([said]) == []


def test_a_misspelt_label_is_named_in_a_short_sentence():
    of_tasks = {path.stem: (yaml.safe_load(path.read_text()) or {}).get("labels") for path in config_files("task")}
    endings = {
        f"{task} {wrong}": nearest(wrong, map(str, labels.values()))
        for task, labels in of_tasks.items()
        if isinstance(labels, dict)
        for label in labels.values()
        for wrong in misspelt(str(label))
    }
    assert len(endings) > 200
    assert [
        key for key, text in endings.items() if len(text) > BUDGET - 100
    ] == []  # what stands before it has the rest


def test_a_short_list_is_named_in_full_and_of_a_long_one_the_three_nearest():
    assert nearest("dic", ["dice", "iou"]) == "; did you mean 'dice'? (available: dice, iou)"
    many = [f"organ_{number:03}" for number in range(117)]
    assert nearest("rgan_101", many) == "; did you mean 'organ_101'? (also near: organ_116, organ_115; 117 in all)"
    assert nearest("organ_01", many) == "; did you mean 'organ_010'? (also near: organ_011, organ_012; 117 in all)"
    assert nearest("?", many, "list organs") == " (nearest: organ_116, organ_115, organ_114; list organs shows all 117)"

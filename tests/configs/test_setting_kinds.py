"""Values of another kind than their keys take are refused in one sentence, in every command."""

from importlib.resources import files

import pytest
from omegaconf import OmegaConf

from medimg_eval.commands import COMMANDS
from medimg_eval.configs.setting_kinds import COUNTS, NUMBERS, SHARES, TEXTS, check_settings
from medimg_eval.errors import UsageError


def stated(command):
    """The keys that the YAML of a command holds itself, with their defaults."""
    config = OmegaConf.load(str(files("medimg_eval.configs") / f"{command}.yaml"))
    return OmegaConf.masked_copy(config, [key for key in config if key not in ("defaults", "hydra")])


@pytest.mark.parametrize("command", COMMANDS)
def test_what_commands_have_by_default_is_of_the_kind_that_they_take(command):
    config = stated(command)
    assert check_settings(command, config) == config


def test_each_key_is_one_of_some_command():
    held = {str(key) for command in COMMANDS for key in stated(command)}
    assert {*SHARES, *NUMBERS, *COUNTS, *TEXTS} <= held
    assert all({*commands} <= COMMANDS.keys() for commands in TEXTS.values())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("level", 95, r"expected level to be a number between 0 and 1, such as 0.95, got 95"),
        ("alpha", True, "alpha to be a number between 0 and 1"),
        ("spacing", "x", "expected spacing to be a number, got 'x'"),
        ("resamples", 0, "resamples to be a whole number of at least 1, got 0"),
        ("seed", 1.5, "seed to be a whole number of at least 0, got 1.5"),
        ("by", ["sex", "site"], r"expected by to be one name or path, got \['sex', 'site'\]"),
        ("plan", {"a": "b"}, "expected plan to be one name or path"),
        ("out", " ", "out= is empty; write out=NAME, or leave it out"),
        ("runs", None, "runs is null; name the folder of runs"),
        ("runs", [["a"]], "expected runs to be one name or path"),
    ],
)
def test_another_kind_is_refused_by_key_and_value(key, value, message):
    with pytest.raises(UsageError, match=message):
        check_settings("score", OmegaConf.create({key: value}))


def test_names_that_look_like_numbers_become_texts_but_for_counts_of_periods():
    config = OmegaConf.create({"out": 2026, "runs": [1, "b"], "baseline": 12, "missing": "???", "level": None})
    assert check_settings("monitor", config) == {
        "out": "2026",
        "runs": ["1", "b"],
        "baseline": 12,
        "missing": "???",
        "level": None,
    }
    assert check_settings("table", OmegaConf.create({"runs": None, "scores": "a.csv"})).runs is None

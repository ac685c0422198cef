"""Former names of keys: each goes on working, says the present one once, and reaches the same config."""

import logging

import pytest
from omegaconf import OmegaConf

from medimg_eval.api.asking import settings_of
from medimg_eval.commands.cli import start, take_apart
from medimg_eval.configs.former_keys import FORMER, present_settings, present_words
from medimg_eval.configs.overrides import composed
from medimg_eval.errors import UsageError


@pytest.mark.parametrize(
    ("command", "former", "present"),
    [
        ("table", "from=[a,b]", "runs=[a,b]"),
        ("rank", "better={x: higher, y: lower}", "direction={x: higher, y: lower}"),
        ("rank", "+better.x=lower", "+direction.x=lower"),
        ("figure", "strata=site", "stratify_by=site"),
        ("fairness", "smallest=5", "min_group_size=5"),
        ("table", "bounds=beside", "ci=inline"),
        ("table", "bounds=below", "ci=below"),
        ("test", "blind=remove,grey", "conditions=no_image,grey"),
        ("test", "image_ablation=none", "conditions=no_image"),
    ],
)
def test_a_former_key_becomes_the_present_one_and_says_so_once(command, former, present, capsys):
    assert take_apart([command, "out=x", former]).overrides == ["out=x", present]
    old, new = (word.lstrip("+").partition("=")[0].partition(".")[0] for word in (former, present))
    assert capsys.readouterr().err == f"{old}= is now called {new}=; the former name goes on working\n"


def test_present_keys_and_keys_of_a_task_stay_as_they_are(capsys):
    words = ["conditions=[grey]", "task.blind=remove", "+task.strata=[sex]", "~judge"]
    assert take_apart(["test", *words]).overrides == words
    assert take_apart(["compare", "runs=a", "strata=site"]).overrides == ["runs=a", "strata=site"]  # it never had one
    assert capsys.readouterr().err == ""


def test_a_key_under_both_names_is_one_error(capsys):
    message = "from= is the former name of runs=, which is given too; leave out from="
    with pytest.raises(UsageError, match=message):
        present_words("table", ["from=a", "runs=b"])
    with pytest.raises(UsageError, match="bounds= is the former name of ci="):
        present_settings("table", {"bounds": "below", "ci": "below"})
    assert start(["table", "runs=b", "from=a"]) == 2
    assert message in capsys.readouterr().err


def test_python_takes_former_keys_and_values(caplog):
    with caplog.at_level(logging.WARNING, logger="medimg_eval.configs.former_keys"):
        logging.getLogger("medimg_eval.configs.former_keys").addHandler(caplog.handler)
        settings = settings_of("table", {"bounds": "beside", "strata": "site", "better": {"x": "lower"}})
    assert (settings["ci"], settings["stratify_by"], settings["direction"]) == ("inline", "site", {"x": "lower"})
    assert "bounds= is now called ci=; the former name goes on working" in caplog.messages
    logging.getLogger("medimg_eval.configs.former_keys").removeHandler(caplog.handler)
    assert composed("test", ["blind=remove"]).conditions == "no_image"


def test_a_config_file_with_a_former_key_is_refused_by_name(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text("# @package _global_\nblind: remove\n")
    with pytest.raises(UsageError, match="blind: is now called conditions; rename it in the config file"):
        composed("test", ["task=slake"], [str(tmp_path)])


@pytest.mark.parametrize("former", FORMER)
def test_the_present_key_is_one_of_each_command_and_the_former_is_none(former, capsys):
    for command in FORMER[former].commands:
        config = composed(command, [])
        assert FORMER[former].key in config
        assert former not in OmegaConf.to_container(config)
        assert start([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"\n{FORMER[former].key}: " in shown
        assert f"\n{former}: " not in shown

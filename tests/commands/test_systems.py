"""The published systems: each has a status with its evidence, and commands that can be meant."""

import json
import re
import shlex
from pathlib import Path

import pytest

from medimg_eval.api.listing import published_systems
from medimg_eval.arguments import as_list
from medimg_eval.commands.cli import start, take_apart
from medimg_eval.configs.overrides import composed, plain
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.metrics import parse

ROOT = Path(__file__).parents[2]
STATUSES = {"released", "script", "fixture", "inferred", "missing"}
SYSTEMS = published_systems()
COMMANDS = sorted({line for system in SYSTEMS.values() for line in system["commands"]})


def test_every_system_says_what_it_needs_and_what_its_status_rests_on():
    assert len(SYSTEMS) == 79
    for name, system in SYSTEMS.items():
        assert {"modalities", "what", "status", "commands"} <= system.keys(), name
        assert system.keys() <= {"modalities", "what", "status", "commands", "released", "evidence", "lacks"}, name
        assert system["status"] in STATUSES, name
        assert ("released" in system) == (system["status"] == "released"), name
        assert system["status"] == "missing" or system["commands"], name
        assert system["status"] == "missing" or system["evidence"], name
        assert system["status"] != "missing" or system["lacks"], name
        if "released" in system:
            assert system["released"].keys() == {"repository", "file", "commit"}, name
            assert re.fullmatch(r"[0-9a-f]{40}", system["released"]["commit"]), name


def test_the_evidence_is_there():
    for name, system in SYSTEMS.items():
        for path in re.findall(r"(?:tests|docs|benchmarks)/[\w./-]*\w", system.get("evidence", "")):
            assert (ROOT / path).exists(), (name, path)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_composes_and_its_model_serves_its_tasks(line):
    words = take_apart(shlex.split(line))
    unread = words.command == "agree" and words.overrides[0].startswith(("reports=", "preferences="))
    unused = ["run=R", "human=H"] if unread else []
    config = plain(composed(words.command, [*words.overrides, *unused]))  # with every key that must be set
    if words.command not in ("test", "fit"):
        return
    names = [word for word in words.overrides if word.startswith(("task=", "suite="))]
    assert names
    tasks = config["tasks"] if names[0].startswith("suite=") else {"": config["task"]}
    wrapper = build_candidate(config["model"]).wrapper
    for stated in tasks.values():
        for metric in as_list(stated.get("metrics", [])):
            parse(metric)
        if "many.nnunet_task" not in stated["_target_"]:  # which reads the labels of its data
            assert build_task(stated).serves(wrapper), stated["name"]


def test_the_list_counts_them_by_status_and_shows_commands(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert start(["list", "systems", "search=touchstone"]) == 0
    shown = capsys.readouterr().out
    assert "Touchstone   [script]" in shown
    assert "    python -m medimg_eval test suite=touchstone " in shown
    assert "  lacks: " in shown
    assert start(["list", "what=systems", "family=released", "json=true"]) == 0
    found = json.loads(capsys.readouterr().out)["systems"]
    assert {"WorldMedQA-V", "MedXpertQA"} <= found.keys()
    assert all(system["status"] == "released" for system in found.values())
    assert start(["list"]) == 0
    assert re.search(r"systems +79 +\w+ \d+, \w+ \d+", capsys.readouterr().out)

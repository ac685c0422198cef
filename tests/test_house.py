"""The house rules that no linter checks."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.instantiate import build
from medimg_eval.metrics import available
from tests.conftest import environment
from tests.helpers import catalogue
from tests.helpers.config_files import CONFIGS, composed_config, config_names

ROOT = Path(medimg_eval.__file__).parents[1]


@pytest.mark.parametrize(
    "module", ["medimg_eval.metrics", "medimg_eval.tasks", "medimg_eval.imaging", "medimg_eval.models"]
)
def test_what_scoring_processes_import_needs_no_torch(module):
    code = (
        f"import sys, {module}; sys.exit(bool({{'torch', 'lightning', 'monai', 'hydra', 'pandas'}} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda script: script.stem)
def test_what_benchmarks_take_from_the_package_is_there(script):
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("medimg_eval"):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


@pytest.mark.parametrize("name", config_names("task"))
def test_every_task_is_made_from_its_config_and_has_a_card(name):
    task = build(catalogue.composed(name))
    assert task.name == name
    assert {"description", "source", "licence", "access", "split", "may_leave"} <= task.card.keys()
    assert task.card["may_leave"] in ("yes", "no", "ask"), "in quotes: YAML reads yes and no as booleans"
    closed = re.search("credentialed|PhysioNet|research use agreement", f"{task.card['access']} {task.card['licence']}")
    assert task.may_leave != "yes" or not (closed or re.search("gated|registration", task.card["access"]))


@pytest.mark.parametrize("name", config_names("suite"))
def test_every_suite_names_tasks(name):
    assert all(build(task).name == key for key, task in composed_config(f"suite/{name}")["tasks"].items())


@pytest.mark.parametrize("name", config_names("model"))
def test_every_model_config_says_what_it_is_and_fits_its_class(name, tmp_path):
    text = (CONFIGS / "model" / f"{name}.yaml").read_text()
    assert re.match(r"# description: \S", text)
    config = {key: value for key, value in yaml.safe_load(text).items() if key != "name"}
    if config.get("bundle") == "???":
        config["bundle"] = str(tmp_path)
        with pytest.raises(Exception, match="is no MONAI bundle"):
            build(OmegaConf.create(config))
        return
    if config.get("root") == "???":
        config["root"] = str(tmp_path)
    if config.get("annotations") == "???":
        config["annotations"] = str(tmp_path)
        with pytest.raises(Exception, match="is no JSON"):
            build(OmegaConf.create(config))
        return
    if config.get("command") == "???":
        config["command"] = ["a-program"]
    if config.get("classifier") == "???":
        config["classifier"] = {"_target_": "medimg_eval.models.TimmClassifier", "backbone": "resnet18"}
    if config.get("agent") == "???":
        config["agent"] = "json.loads"
    if config.get("judges") == "???":
        config["judges"] = {"a": {"_target_": "medimg_eval.models.OpenAICompatible", "model": "a-model"}}
    for key in ("checkpoint", "base", "model", "file", "measured"):
        if config.get(key) == "???":
            config[key] = "an-organisation/a-model"
    build(OmegaConf.create(config))


@pytest.mark.parametrize("name", config_names("trainer"))
def test_every_trainer_config_composes(name):
    assert "accelerator" in composed_config("test", f"trainer={name}")["trainer"]


def test_every_metric_is_in_the_docs():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "definitions").glob("*.md"))
    assert all(f"`{name}" in text for name in available())


def test_the_readmes_words_are_short_and_its_commands_are_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    used = set(re.findall(r"python -m medimg_eval (\w+)", text))
    from medimg_eval.commands import COMMANDS

    assert used <= set(COMMANDS)
    assert {"fit", "test", "table"} <= used


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")
def test_blame_looks_past_commits_that_are_in_the_history():
    """A hash from before a rebase would make blame look past nothing."""
    lines = (ROOT / ".git-blame-ignore-revs").read_text().splitlines()
    hashes = [line for line in lines if line and not line.startswith("#")]
    assert hashes
    assert all(re.fullmatch("[0-9a-f]{40}", each) for each in hashes)
    asked = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "true":
        pytest.skip("a shallow clone has no history")
    known = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(hashes) <= set(known.split())

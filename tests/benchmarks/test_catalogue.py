"""docs/evaluate/benchmarks.md says what the configs say."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import medimg_eval
from tests.helpers.benchmark_files import config
from tests.helpers.config_files import config_file, config_files, config_names

TEXT = (Path(medimg_eval.__file__).parents[1] / "docs" / "evaluate" / "benchmarks.md").read_text()
TASKS = config_names("task")
SUITES = config_names("suite")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_row_with_its_description_folder_and_metrics(name):
    made = config(name)
    rows = TEXT.partition("## Tasks")[2].splitlines()
    row = next((line for line in rows if line.startswith(f"| `{name}` |")), None)
    assert row is not None, f"add a row for {name} to docs/evaluate/benchmarks.md"
    _, _, description, folder, metrics, _ = row.split("|")
    assert description.strip() == " ".join(made.card.description.split())
    assert metrics.strip() == ", ".join(made.metrics)
    root = str(OmegaConf.to_container(made, resolve=True)["layout"].get("root") or "")
    assert folder.strip().strip("`") == (root.removeprefix("data/") if root.startswith("data/") else "")


def test_the_docs_name_no_task_that_is_not_there():
    section = TEXT.partition("## Tasks")[2]
    assert sorted(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == TASKS


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_a_row_with_its_description(name):
    lines = config_file(name, "suite").read_text().splitlines()
    said = next(line for line in lines if line.startswith("# description: ")).removeprefix("# description: ")
    assert f"| `{name}` | {said} |" in TEXT


def test_data_lie_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_DATA", "/elsewhere")
    assert OmegaConf.to_container(config("btcv"), resolve=True)["layout"]["root"] == "/elsewhere/btcv"


@pytest.mark.parametrize("path", config_files("protocol"), ids=lambda path: path.stem)
def test_every_protocol_says_what_it_is_and_serves_a_task(path):
    assert re.match(r"# \S", path.read_text())
    used = "".join(one.read_text() for one in config_files("task", "protocol"))
    assert f"_here_: {path.stem}\n" in used or f"  - {path.stem}\n" in used

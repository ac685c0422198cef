"""docs/data/questions.md: its YAML is taken, its output printed, and nothing it should name is missing."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import Questions
from medimg_eval.data.questions import answers, expand, options, pictures
from medimg_eval.errors import UserError
from medimg_eval.instantiate import build, build_task
from medimg_eval.question import Kind
from tests.helpers.catalogue import picture

TEXT = (Path(medimg_eval.__file__).parents[1] / "docs" / "data" / "questions.md").read_text()
FIRST_EXAMPLE = re.compile(
    r"```json\n(.*?)```.*?```yaml\n(.*?)```.*?```sh\n(.*?)\n```.*?```text\n(.*?)```.*?```text\n(.*?)```", re.DOTALL
)
"""Records, config, command, what it prints, and what it prints where a picture is missing."""
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.split()[1]}-{block.count(chr(10))}")
def test_every_block_of_yaml_makes_what_it_names(block):
    config = OmegaConf.create(block)
    layout = build_task(config).layout if "layout" in config else build(config)
    assert isinstance(layout, Questions)
    with pytest.raises(UserError, match=f"{layout.root}: no such folder"):
        layout.cases("test")


def test_the_command_prints_what_the_page_shows(tmp_path, monkeypatch, capfd):
    """The first page's example, word by word; its data lie in a folder of ours, which the output names."""
    records, config, command, whole, lacking = FIRST_EXAMPLE.findall(TEXT)[0]
    write = {"mine/test.json": records, "conf/task/mine.yaml": config.replace("data/mine", str(tmp_path / "mine"))}
    for name, text in write.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    for number, name in enumerate("ab", start=1):
        picture(tmp_path / "mine" / "images" / f"{name}.png", number)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    program, *words = command.removeprefix("python -m ").split()

    def printed():
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # the program sets it, for Hydra
        exit_code = start(words)
        out, err = capfd.readouterr()
        return exit_code, (out + err).replace(str(tmp_path / "mine"), "data/mine")

    assert program == "medimg_eval"
    assert printed() == (0, whole)
    (tmp_path / "mine" / "images" / "b.png").unlink()
    assert printed() == (1, lacking)


def test_every_key_and_step_is_in_the_docs():
    keys = {one.name for one in fields(Questions)} - {"root"}
    steps = set(expand.STEPS) | {key for _, known in expand.STEPS.values() for key in known}
    forms = {key for form in (answers.FORMS, options.FORMS, pictures.FORMS) for key in form}
    inner = {key for form in (answers.FORMS, options.FORMS, pictures.FORMS) for known in form.values() for key in known}
    plain = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"\w+", " ".join([*re.findall(r"`([^`]+)`", plain), *BLOCKS])))
    assert not (keys | steps | forms | inner | set(Kind.__args__)) - named


def test_lines_are_short_enough_to_read():
    assert not [line for line in TEXT.splitlines() if len(line) > 160 and not line.startswith("|")]

"""docs/questions.md: its YAML is what hydra takes, and nothing it should name is missing."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.data.layouts import Questions
from medimg_eval.data.questions import answers, expand, options, pictures
from medimg_eval.errors import UserError
from medimg_eval.instantiate import build, build_task
from medimg_eval.question import Kind

TEXT = (Path(medimg_eval.__file__).parents[1] / "docs" / "questions.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.split()[1]}-{block.count(chr(10))}")
def test_every_block_of_yaml_makes_what_it_names(block):
    config = OmegaConf.create(block)
    layout = build_task(config).layout if "layout" in config else build(config)
    assert isinstance(layout, Questions)
    with pytest.raises(UserError, match=f"{layout.root}: no such folder"):
        layout.cases("test")


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

"""docs/data/layouts.md: its YAML is what hydra takes, and nothing it should name is missing."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.data import layouts, targets
from medimg_eval.data.layouts import FolderLayout, ImagePairs, Learn2Reg, PatientTimelines, Questions, Studies
from medimg_eval.errors import UserError
from medimg_eval.instantiate import build, build_task

ROOT = Path(medimg_eval.__file__).parents[1]
TEXT = (ROOT / "docs" / "data" / "layouts.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.split()[1]}-{block.count(chr(10))}")
def test_every_block_of_yaml_makes_what_it_names(block, tmp_path):
    config = OmegaConf.create(block)
    layout = build_task(config).layout if ".tasks." in config["_target_"] else build(config)
    if hasattr(layout, "run"):  # it stands on a run, which is missing here
        with pytest.raises(UserError, match=f"{layout.run}.manifest.json: cannot be read"):
            layout.cases("test")
        return
    layout = getattr(layout, "real", layout)
    assert isinstance(layout, FolderLayout | ImagePairs | Learn2Reg | PatientTimelines | Questions | Studies)
    # Arguments reach the layout as they are meant: the root, which is missing here, is the first thing looked for.
    with pytest.raises(UserError, match=f"{layout.root}: no such folder"):
        layout.cases("test")


def test_every_layout_and_target_is_in_the_docs():
    names = {*layouts.__all__, *targets.__all__} - {"FolderLayout", "Entry", "Target"}
    assert not [name for name in sorted(names) if f"`{name}`" not in TEXT]


def test_every_layout_has_an_example():
    shown = set(re.findall(r"layouts\.(\w+)", "".join(BLOCKS)))
    # `predict` makes `FoundImages`; `WarpedBrain` has no folder.
    assert not set(layouts.__all__) - {"FolderLayout", "FoundImages", "WarpedBrain"} - shown


def test_lines_are_short_enough_to_read():
    assert not [line for line in TEXT.splitlines() if len(line) > 150 and not line.startswith("|")]


def test_the_sentences_about_errors_are_those_people_see():
    sources = "".join(path.read_text() for path in (ROOT / "medimg_eval" / "data").rglob("*.py"))
    for words in ("see `words`", "of which {root} holds no file", "patients or cases lie in more than one split"):
        assert words in sources

"""The site: its generated pages name everything there is, and its check of links finds those that lead nowhere."""

import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

import medimg_eval
from medimg_eval.api.listing import published_systems
from medimg_eval.commands import COMMANDS
from medimg_eval.metrics import available
from tests.helpers.config_files import config_names
from tests.test_docs import GENERATED, NOTEBOOKS, PAGES, links, prose

DOCS = Path(medimg_eval.__file__).parents[1] / "docs"
pytest.importorskip("griffe")


@cache
def maker(name):
    """A module of `docs/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@cache
def made(name):
    """The pages that one of them makes; by the first process of the tests for all of them."""
    kept = Path(os.environ["MEDIMG_EVAL_CACHE"], f"{name}.json")
    with FileLock(kept.with_suffix(".lock")):
        if not kept.exists():
            kept.write_text(json.dumps(maker(name).pages()))
        return json.loads(kept.read_text())


def catalogue():
    return made("catalogue_pages")


def reference():
    maker("catalogue_pages")  # which it imports
    return made("api_pages")


def places(kind, pages):
    """The names of a kind that have a place of their own: `(task-NAME)=` above a heading, or `{#metric-NAME}`."""
    return set(re.findall(rf"(?:\(|\{{#){kind}-([^)}}]+)[)}}]", "\n".join(pages)))


@pytest.mark.parametrize("kind", ["task", "model", "suite", "annotator", "extractor", "judging"])
def test_the_catalogue_lists_every_config(kind):
    assert places(kind, catalogue().values()) == set(config_names(kind))


def test_the_catalogue_lists_every_metric_once_with_its_definition():
    text = "\n".join(page for name, page in catalogue().items() if name.startswith("metrics/"))
    found = re.findall(r"\{#metric-(\w+)\}", text)
    assert sorted(found) == sorted(available())
    dice = next(line for line in text.splitlines() if "{#metric-dice}" in line)
    assert "Dice similarity coefficient" in dice
    assert "`dsc`" in dice
    assert "higher, 1 to 0, of a mask" in dice


def test_the_catalogue_lists_every_system_and_command():
    systems = catalogue()["systems.md"].replace("\\", "")
    assert sorted(re.findall(r"^### (.*)$", systems, re.MULTILINE)) == sorted(published_systems())
    commands = catalogue()["commands.md"].replace("\\", "")
    assert re.findall(r"^## (.*)$", commands, re.MULTILINE) == [*COMMANDS]
    assert "margin: null        # how much worse" in commands


def test_the_card_of_a_task_is_on_its_page():
    page = catalogue()["tasks/vqa.md"]
    slake = page.partition("(task-slake)=")[2].partition("(task-")[0].replace("\\", "")
    assert "Open and closed questions about radiographs, CT and MRI" in slake
    assert "| Licence | CC BY 4.0 |" in slake
    assert "[`accuracy`](#metric-accuracy)" in slake
    assert "python -m medimg_eval download task=slake\n" in slake


def test_every_card_has_the_same_headings_in_the_same_order():
    pages = [page for name, page in catalogue().items() if name.startswith("tasks/") and name != "tasks/index.md"]
    cards = [card for page in pages for card in page.split("(task-")[1:]]
    headings = [re.findall(r"^\| ([A-Z][\w ]*) \|", card, re.MULTILINE)[:5] for card in cards]
    assert len(cards) > 300
    assert [names for names in headings if names != ["Source", "Licence", "Access", "May leave", "Split"]] == []


@pytest.mark.parametrize("face", ["medimg_eval", "medimg_eval.metrics.text", "medimg_eval.results.statistics"])
def test_the_reference_has_every_name_that_a_face_exports(face):
    module = importlib.import_module(face)
    shown = {name.replace("\\", "") for name in re.findall(r"^## (.*)$", reference()[f"{face}.md"], re.MULTILINE)}
    above = set(re.findall(r"`(\w+)`", reference()[f"{face}.md"].partition("Also here")[2].partition("\n")[0]))
    described = {
        name for name in module.__all__ if inspect.isroutine(it := getattr(module, name)) or inspect.isclass(it)
    }
    assert described <= shown | above


def test_the_reference_tells_arguments_returns_and_examples():
    page = reference()["medimg_eval.metrics.md"].partition("## segmentation")[2]
    assert "**Arguments**\n\n- `" in page
    assert "```pycon\n>>> " in page


def test_pages_link_to_generated_ones_that_are_made():
    made = {DOCS / "catalogue" / name for name in catalogue()} | {DOCS / "api" / name for name in reference()}
    lost = [
        (page.name, link)
        for page in [*PAGES, *NOTEBOOKS]
        for link, target, _ in links(page)
        if any(map(target.is_relative_to, GENERATED)) and target not in made
    ]
    assert lost == []


def test_every_page_is_reached_from_the_index():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", prose(page), flags=re.DOTALL | re.MULTILINE):
            names = [re.sub(r".*<(.*)>$", r"\1", line) for line in block.splitlines() if line and line[0] != ":"]
            targets = [page.parent / f"{name}.{end}" for name in names for end in ("md", "ipynb")]
            waiting += [target for target in targets if target.exists() and target not in reached]
    of_docs = {page for page in [*PAGES, *NOTEBOOKS] if page.is_relative_to(DOCS)}
    assert of_docs - reached == set()


def test_pages_that_are_gone_are_taken_away_and_equal_ones_keep_their_time(tmp_path):
    write = maker("catalogue_pages").write
    write(tmp_path, {"a.md": "a", "rooms/b.md": "b"})
    before = (tmp_path / "a.md").stat().st_mtime_ns
    write(tmp_path, {"a.md": "a"})
    assert (tmp_path / "a.md").stat().st_mtime_ns == before
    assert not (tmp_path / "rooms" / "b.md").exists()


def test_links_of_built_pages_are_followed(tmp_path):
    (tmp_path / "rooms").mkdir()
    (tmp_path / "index.html").write_text(
        '<a class="x" href="rooms/b.html#there">b</a> <a href="https://elsewhere.org/x#y">out</a> <a href="#top">up</a>'
        '<h1 id="top">Top</h1> <img alt="" src="rooms/picture%201.png"/>'
    )
    (tmp_path / "rooms" / "b.html").write_text('<p id="there"></p><a href="../index.html">up</a>')
    (tmp_path / "rooms" / "picture 1.png").write_bytes(b"")
    check = maker("check_links")
    assert check.broken(tmp_path) == []
    (tmp_path / "rooms" / "b.html").write_text('<p></p><a href="../gone.html">up</a>')
    assert check.broken(tmp_path) == [
        "index.html: rooms/b.html#there: the page has no such place",
        "rooms/b.html: ../gone.html: there is no such file",
    ]
    with pytest.raises(SystemExit, match="2 links of 2 pages lead nowhere"):
        check.main(str(tmp_path))

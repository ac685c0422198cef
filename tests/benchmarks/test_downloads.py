"""Where benchmarks are got: the table in the docs, and that what is fetched is what the layout reads."""

import shutil
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval.data.download import HubFiles
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import AGENTS, REPORTS, SAMPLES, composed, config_of
from tests.helpers.config_files import composed_config
from tests.helpers.samples import ALL

assert ALL

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "data" / "downloads.md"
MADE_BY_THE_READER = {"kvasir_vqa_x1_transformed"}
"""Tasks whose pictures a script of the authors makes of those that are fetched."""

AT_THE_HUB = {"GMAI_mm_bench_VAL.tsv": "GMAI-MMBench_VAL.tsv"}
"""Files of samples, by the authors' name -> what the mirror calls them that they are fetched from."""

EVERY = {**SAMPLES, **AGENTS, **REPORTS}

HEAD = "| task | access | how |\n| --- | --- | --- |\n"


@pytest.fixture(scope="module")
def cards():
    """The card of every benchmark of questions."""
    return {name: composed(name)["card"] for name in sorted(EVERY)}


def table(cards):
    """The table of the docs, as the cards have it."""
    return HEAD + "".join(f"| `{name}` | {card['access']} | {way(card)} |\n" for name, card in cards.items())


def way(card):
    steps = card.get("download")
    if isinstance(steps, Mapping):
        page = f"`download` from [{steps['hub']}](https://huggingface.co/datasets/{steps['hub']})"
        left = steps.get("then") or []
        return " ".join([page, *([f"then: {left}"] if isinstance(left, str) else left)])
    return " ".join([steps] if isinstance(steps, str) else steps).replace("|", "\\|")


def test_every_benchmark_says_how_it_is_got(cards):
    for name, card in cards.items():
        assert card.get("access"), name
        assert card.get("download"), name
        if isinstance(card["download"], Mapping):
            HubFiles.of(card["download"])
            assert card["access"].startswith(("open", "gated")), name
        else:
            assert all(isinstance(step, str) for step in card["download"]), name


def test_the_table_in_the_docs_is_that_of_the_cards(cards):
    """To write it again: python -m tests.benchmarks.test_downloads."""
    assert table(cards) in PAGE.read_text()


@pytest.mark.parametrize("name", sorted(EVERY))
def test_what_is_fetched_is_what_the_layout_reads(name, cards, tmp_path):
    if not isinstance(cards[name]["download"], Mapping):
        return  # of these the card lists the steps
    source = HubFiles.of(cards[name]["download"])
    whole, root = tmp_path / "whole", tmp_path / "fetched"
    whole.mkdir()
    root.mkdir()
    EVERY[name].write(whole)
    config = config_of(name, root, **EVERY[name].settings)
    others = []
    for path in sorted(one for one in whole.rglob("*") if one.is_file()):
        place = path.relative_to(whole).as_posix()
        place = AT_THE_HUB.get(place, place)
        if any(fnmatchcase(place, pattern) for pattern in source.files):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / place)
        else:
            others.append(path)
    for archive in [*(one.name for one in source.unpack), *archives_of(config["layout"].get("images", []))]:
        if not (root / archive).exists() and any(fnmatchcase(archive, pattern) for pattern in source.files):
            with zipfile.ZipFile(root / archive, "w") as made:  # the sample has what it holds
                for path in others:
                    made.write(path, path.relative_to((whole / archive).parent))
    for archive in source.unpack:
        archive.unpack(root, print)
    task = build_task(config)
    cases = task.cases("test")
    assert [case.id for case in cases] == EVERY[name].cases
    for case in cases if name not in MADE_BY_THE_READER else ():
        if case.question is not None:
            task.read_images(case)


def archives_of(images):
    """The archives that a layout reads images from."""
    specs = images if isinstance(images, list) else [images]
    return [spec["zip"] for spec in specs if isinstance(spec, Mapping) and "zip" in spec]


if __name__ == "__main__":
    every: dict[str, dict] = {name: composed_config(f"task/{name}")["task"]["card"] for name in sorted(EVERY)}
    text = PAGE.read_text()
    start = text.index(HEAD)
    stop = text.find("\n\n", start)
    PAGE.write_text(text[:start] + table(every).rstrip("\n") + (text[stop:] if stop > 0 else "\n"))

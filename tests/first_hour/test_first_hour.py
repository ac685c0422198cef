"""What pages tell a newcomer to type runs: `make long` runs all of it from a wheel; here some pages, from the checkout.

Which pages those are follows from what all blocks hold: always the same for one state of the pages, and others once
any block has changed.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.first_hour.__main__ import run_page
from tests.first_hour.pages import REASONS, ROOT, all_blocks, blocks_of, printed_by, written_pages

RESULT = json.loads((ROOT / "docs" / "develop" / "first_hour.json").read_text())
PAGES = all_blocks()
CPU_SECONDS = 10
"""What the pages of one test may take together, as they took in the result."""


def taken(page):
    told = RESULT["pages"][page]
    return told["belongings CPU s"] + sum(block.get("CPU s", 0) for block in told["blocks"])


def chosen():
    """Pages in an order that all blocks decide, as many as fit in the time."""
    digests = "".join(block.digest for blocks in PAGES.values() for block in blocks)
    order = sorted(PAGES, key=lambda page: hashlib.sha256(f"{digests}{page}".encode()).digest())
    pages, left = [], CPU_SECONDS
    for page in order:
        if page in RESULT["pages"] and 0 < taken(page) <= left:
            pages.append(page)
            left -= taken(page)
    return pages


def shell():
    bin_folder = Path(sys.executable).parent
    return {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"} | {
        "PATH": os.pathsep.join([str(bin_folder), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(ROOT),
        "VIRTUAL_ENV": str(bin_folder.parent),
        "MPLBACKEND": "agg",
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", chosen())
def test_what_a_page_tells_to_type_runs(page, tmp_path):
    told = run_page(page, PAGES[page], tmp_path, shell())
    assert {block["result"] for block in told["blocks"]} <= {"ran", "saved", "not run"}, told


PRINTED = {
    f"{page} {number}": (page, number, text) for page in PAGES for number, text in printed_by(ROOT / page).items()
}


def in_turn(page, number, text):
    """What takes a while is looked at in turn, as all long tests are."""
    told = RESULT["pages"][page]
    blocks = [block for block in told["blocks"] if block["block"].startswith(f"{page} {number}:")]
    takes = told["belongings CPU s"] + sum(block.get("CPU s", 0) for block in blocks)
    return pytest.param(page, number, text, marks=pytest.mark.long if takes > 3 else pytest.mark.slow)


@pytest.mark.parametrize(
    ("page", "number", "text"), [in_turn(*printed) for printed in PRINTED.values()], ids=list(PRINTED)
)
def test_a_command_prints_what_stands_below_it(page, number, text, tmp_path):
    needed = [block for block in PAGES[page] if block.number == number or (block.file and block.number < number)]
    assert run_page(page, needed, tmp_path, shell())["blocks"][-1]["result"] == "ran"
    log = (tmp_path / Path(page).with_suffix("") / f"block_{number}.log").read_text()
    printed = iter([line.rstrip() for line in log.splitlines()])
    lost = [line for line in text.splitlines() if line != "..." and line.rstrip() not in printed]
    assert lost == [], log


def test_pages_show_what_commands_print():
    assert len(PRINTED) >= 25


def test_no_block_of_the_last_long_run_failed():
    assert set(RESULT["counts"]) <= {"ran", "saved", "not run"}
    assert RESULT["counts"]["ran"] > 40


def test_what_cannot_run_says_which_of_few_reasons():
    reasons = {block.not_run for blocks in PAGES.values() for block in blocks if block.not_run}
    assert [reason for reason in reasons if reason.split()[0].strip(",") not in REASONS] == []


def test_no_command_stands_in_a_block_that_is_not_looked_at():
    for page in written_pages():
        held = re.findall(r"^ *```([^\n`]*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
        commands = [text for language, text in held if "python -m medimg_eval" in text and language != "text"]
        assert sum("python -m medimg_eval" in block.text for block in blocks_of(page)) == len(commands), page


def test_a_block_knows_its_reason_and_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.first_hour.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    (tmp_path / "other.py").write_text("y = 2\n")
    page.write_text(
        "```{literalinclude} other.py\n:language: python\n:caption: my_metrics.py\n```\n```{toctree}\nindex\n```\n"
        "<!-- not run: GPU -->\n```bash\nnvidia-smi\n```\n```python\n# my_model.py\nx = 1\n```\n```yaml\na: 1\n```\n"
    )
    metrics, smi, model = blocks_of(page)
    assert (metrics.language, metrics.file, metrics.text) == ("python", "my_metrics.py", "# my_metrics.py\ny = 2\n")
    assert (smi.language, smi.not_run, smi.file) == ("sh", "GPU", None)
    assert (model.number, model.not_run, model.file) == (3, "", "my_model.py")

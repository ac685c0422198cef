"""The blocks of the README and of the pages that a newcomer runs, and the marks of those that cannot run.

A mark is a comment before a block, which no reader of the page sees:

    <!-- not run: weights (Qwen2.5-VL-7B) -->

What a block prints may stand below it as `text`, behind the comment `<!-- printed -->`; a line `...` stands for
lines that are left out.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("api", "catalogue")
"""Folders of pages that the build of the site writes."""

REASONS = ("clone", "data", "GPU", "network", "server", "weights")
"""What a block may lack: the first word of its mark."""

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n+)?^```(?P<language>[^\n`]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PRINTED = re.compile(r"^<!-- printed -->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INCLUDED = re.compile(r"\{literalinclude\} (?P<path>\S+\.py)")
_CAPTION = re.compile(r"^:caption: (?P<name>[\w/]+\.py)$", re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w/]+\.(?:py|yaml))\n")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        page: Its path from the root of the repository.
        number: Which of the blocks of its page with these languages, from 1.
        language: "sh", "python" or "yaml".
        text: What it holds.
        not_run: Why it cannot run; empty where it can.
    """

    page: str
    number: int
    language: str
    text: str
    not_run: str = ""

    @property
    def name(self) -> str:
        """Its page, its number there and its first words."""
        return f"{self.page} {self.number}: {self.text.strip().splitlines()[0][:60]}"

    @property
    def digest(self) -> str:
        """Tells one text from another."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def file(self) -> str | None:
        """The file that it is to be saved as, which its first line names; None where it is only run."""
        named = _FILE.match(self.text)
        return named["name"] if named else None


def blocks_of(page: Path, end: int | None = None) -> list[Block]:
    """All blocks of a page, or of its first characters, that are run, saved as a file, or marked as what cannot be.

    A Python file that a page includes is one of them where its caption says what the reader saves it as.
    """
    found: list[Block] = []
    for match in _BLOCK.finditer(page.read_text()[:end]):
        language, text = {"bash": "sh"}.get(match["language"], match["language"]), match["text"]
        included, caption = _INCLUDED.match(language), _CAPTION.search(text)
        if included and caption:
            language, text = "python", f"# {caption['name']}\n{(page.parent / included['path']).read_text()}"
        if language in ("sh", "python") or (language == "yaml" and _FILE.match(text)):
            name = page.relative_to(ROOT).as_posix()
            found.append(Block(name, len(found) + 1, language, text, match["reason"] or ""))
    return found


def printed_by(page: Path) -> dict[int, str]:
    """Number of a block -> what the page says that it prints."""
    return {len(blocks_of(page, match.start())): match["text"] for match in _PRINTED.finditer(page.read_text())}


def written_pages() -> list[Path]:
    """The README and the pages in the folders of docs/ that people wrote."""
    written = sorted(page for page in (ROOT / "docs").glob("*/*.md") if page.parent.name not in GENERATED)
    return [ROOT / "README.md", *written]


def all_blocks() -> dict[str, list[Block]]:
    """The blocks of these pages, by page; pages without any are left out."""
    return {page.relative_to(ROOT).as_posix(): found for page in written_pages() if (found := blocks_of(page))}

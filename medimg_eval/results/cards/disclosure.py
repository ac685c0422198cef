"""The card of a table: what its runs say of themselves, and with it checklists for papers filled in.

A card tells nothing that it does not know: what no manifest says is "unknown", and what only authors can say is left
to them in so many words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.arguments import grouped
from medimg_eval.results.cards.checklists import USUAL, Checklist, Item, read_checklists
from medimg_eval.results.cards.manifest_facts import SECTIONS, Facts, gather
from medimg_eval.results.table import escape_markdown, write_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.table import Table

UNKNOWN = "unknown"
AUTHORS = "for the authors to say"
BEYOND = (
    "Approval by an ethics committee, and consent",
    "Conflicts of interest",
    "Agreements under which the data may be used",
)
"""What papers must say too, and not every checklist numbers."""
_LONGEST = 120
"""Characters of a fact that is told again beside an item."""
_NAMES = {name: title for section in SECTIONS.values() for name, title in section.items()}


@dataclass(frozen=True)
class Disclosure:
    """Facts that a table rests on, for its readers.

    Attributes:
        title: What the table shows.
        facts: Name of a fact -> what it is about (a task, a model, a run, or "" for the table) -> what is known; "" is
            unknown.
        footnotes: Of the table.
        checklists: Those that are filled in, by the names of their files.
    """

    title: str
    facts: Facts
    footnotes: tuple[str, ...]
    checklists: tuple[str, ...] = USUAL

    def answer(self, item: Item) -> str:
        """Returns the answer to a checklist item."""
        facts = [
            f"{_NAMES[name]}: {fact.rstrip('.') if len(fact) <= _LONGEST else 'see above'}."
            for name in item.facts
            if (fact := self.told(name)) != UNKNOWN
        ]
        lacking = [_NAMES[name].lower() for name in item.facts if self.told(name) == UNKNOWN]
        if lacking:
            facts.append(f"{UNKNOWN.capitalize()}: {', '.join(lacking)}.")
        if item.authors:
            facts.append(f"{AUTHORS.capitalize()}: {item.authors}.")
        return " ".join(facts)

    def told(self, name: str) -> str:
        """Returns a fact in one line, "unknown" without."""
        subjects = grouped((text or UNKNOWN, subject) for subject, text in self.facts[name].items())
        if not subjects:
            return UNKNOWN
        if len(subjects) == 1:
            return next(iter(subjects))
        return "; ".join(f"{', '.join(of)}: {text}" for text, of in subjects.items())

    def to_json(self) -> dict[str, Any]:
        """Returns the card as JSON; unknown facts are "unknown"."""
        return {
            "title": self.title,
            "facts": {
                name: {subject or "table": text or UNKNOWN for subject, text in statements.items()} or UNKNOWN
                for name, statements in self.facts.items()
            },
            "footnotes": list(self.footnotes),
            "authors": list(BEYOND),
            "checklists": [self._filled(checklist) for checklist in read_checklists(self.checklists)],
        }

    def _filled(self, checklist: Checklist) -> dict[str, Any]:
        items = [
            {
                "item": item.number,
                "asks": item.asks,
                "facts": {name: self.told(name) for name in item.facts},
                "authors": item.authors or None,
            }
            for item in checklist.items
        ]
        read = {"read": checklist.read} if checklist.read else {}
        return {"name": checklist.name, "source": checklist.source, **read, "items": items}

    def to_markdown(self) -> str:
        """Returns the card in GitHub's Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Card: {escape_markdown(self.title)}"
        yield ""
        yield (
            "Filled in from the manifests of the runs. What they do not say is unknown; what is for the authors to say "
            "is marked so."
        )
        for heading, names in SECTIONS.items():
            yield from ["", f"## {heading}", "", "| | |", "| --- | --- |"]
            yield from (f"| {title} | {escape_markdown(self.told(name))} |" for name, title in names.items())
        yield from ["", "## What stands below the table", ""]
        yield from (f"- {escape_markdown(note)}" for note in self.footnotes)
        for checklist in read_checklists(self.checklists):
            yield from ["", f"## {checklist.name}", "", f"Items in our words, after {checklist.source}.", ""]
            yield from [f"What of it was read: {checklist.read}.", ""] if checklist.read else []
            yield from ["| Item | Asks for | Answer |", "| ---: | --- | --- |"]
            for item in checklist.items:
                yield f"| {item.number} | {item.asks} | {escape_markdown(self.answer(item))} |"
        yield from ["", f"## Beyond checklists, {AUTHORS}", "", *(f"- {question}" for question in BEYOND)]


def disclose(table: Table, names: Sequence[str] = USUAL) -> Disclosure:
    """Returns a table's card, from its runs' manifests and scores.

    Args:
        table: Of runs.
        names: The checklists that it fills in.

    Raises:
        UserError: If a manifest cannot be read.
        UsageError: If there is no such checklist.
    """
    read_checklists(names)
    layout = table.layout()
    return Disclosure(layout.caption, gather(table), tuple(layout.footnotes), tuple(names))


def write_card(table: Table, folder: str | Path, stem: str = "card", names: Sequence[str] = USUAL) -> list[Path]:
    """Writes a table's card as .md and .json; returns the files.

    Into `folder`, made if needed.
    """
    card = disclose(table, names)
    content = json.dumps(card.to_json(), indent=1, ensure_ascii=False)
    return write_texts(Path(folder) / stem, {".md": card.to_markdown(), ".json": f"{content}\n"})

"""What checklists ask of a paper, in our words and their numbers, and which facts of runs answer it.

Each is a file of this folder with its source, and with what of it was read. Items have a `number`, what is asked
(`asks`), the facts of runs that answer it (`facts`, names of `manifest_facts.SECTIONS`; none where only the authors
can), and what the authors must say themselves (`authors`). Items of MI-CLAIM-GEN have no numbers of their own and are
counted within its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import yaml

from medimg_eval.errors import UsageError

CHECKLISTS = ("claim", "mi_claim_gen", "stard_ai", "tripod_ai", "tripod_llm", "metrics", "decide_ai")
USUAL = ("claim", "mi_claim_gen")
"""Those of a card where none are named."""


class Item(NamedTuple):
    """One item of a checklist."""

    number: str
    asks: str
    facts: tuple[str, ...] = ()
    """Names of the facts that answer it; none where only the authors can."""
    authors: str = ""
    """What the authors must say themselves, beside the facts or without any."""


class Checklist(NamedTuple):
    """A checklist with its items."""

    name: str
    source: str
    items: tuple[Item, ...]
    read: str = ""
    """What of the source was read to write the items, where it was not the published checklist itself."""


def read_checklists(names: Sequence[str] = USUAL) -> tuple[Checklist, ...]:
    """Checklists by name, in order; UsageError for unknown names."""
    UsageError.refuse_invalid("checklist", CHECKLISTS, *names)
    return tuple(map(_read_checklist, names))


@cache
def _read_checklist(name: str) -> Checklist:
    stated = yaml.safe_load((files(__package__) / f"{name}.yaml").read_text(encoding="utf-8"))
    items = tuple(_make_item(**item) for item in stated["items"])
    return Checklist(stated["name"], stated["source"], items, stated.get("read", ""))


def _make_item(number: str, asks: str, facts: list[str] | None = None, authors: str = "") -> Item:
    return Item(number, asks, tuple(facts or ()), authors)

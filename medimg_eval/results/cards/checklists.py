"""What two checklists ask of a paper, in our words and their numbers, and which facts of runs answer it.

Sources: Tejani et al., Checklist for Artificial Intelligence in Medical Imaging (CLAIM): 2024 Update, Radiology:
Artificial Intelligence 6(4), 2024, e240300; Miao et al., The Minimum Information about Clinical Artificial Intelligence
Checklist for Generative Modeling Research (MI-CLAIM-GEN), 2024, arXiv:2403.02558.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import yaml


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


@cache
def checklists() -> tuple[Checklist, ...]:
    """Both checklists, as `checklists.yaml` beside this file holds them."""
    stated = yaml.safe_load((files(__package__) / "checklists.yaml").read_text(encoding="utf-8"))
    return tuple(Checklist(one["name"], one["source"], tuple(_item(**item) for item in one["items"])) for one in stated)


def _item(number: str, asks: str, facts: list[str] | None = None, authors: str = "") -> Item:
    return Item(number, asks, tuple(facts or ()), authors)

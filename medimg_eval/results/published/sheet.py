"""Prints published numbers beside ours."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd

from medimg_eval.results.published.reproduction import CLASSES, Reproduced
from medimg_eval.results.table import Layout, Line, Sheet, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

TITLES = ("Metric", "Published", "Ours", "Difference", "Class", "In our interval", "Source")
SHOWN = 10
"""How many differing cases a footnote names."""


def published_sheet(found: Sequence[Reproduced], level: float) -> Sheet:
    """Returns a table with a row per number, and the reasons of its differences below."""
    lines, notes = [], []
    for place, one in enumerate(found):
        opens = place > 0 and found[place - 1].benchmark.name != one.benchmark.name
        lines.append(Line([f"{one.benchmark.name}: {one.number.model}"], [[Span(t)] for t in _cells(one)], opens))
        if one.why:
            ids = f": {', '.join(one.ids[:SHOWN])}{', ...' if len(one.ids) > SHOWN else ''}" if one.ids else ""
            notes.append(f"{one.benchmark.name}, {one.number.model}, {one.number.metric}: {one.why}{ids}")
    counts = Counter(one.kind for one in found)
    notes.append(", ".join(f"{counts[kind]} {kind}" for kind in CLASSES if counts[kind]) or "no numbers")
    notes.append(f"Difference: ours minus published. Interval at {level:g}, over cases; none of one case.")
    title, stubs = "Published numbers, computed again", ["Benchmark: model"]
    return Sheet(Layout.of_block(title, TITLES, lines, notes, stubs), _frame(found))


def _cells(one: Reproduced) -> list[str]:
    if one.kind == "absent":
        return [one.number.metric, one.number.published, "–", "–", one.kind, "–", one.number.source]
    decimals = len(one.number.published.partition(".")[2])
    inside = {None: "–", True: "yes", False: "no"}[one.inside]
    ours = f"{one.ours:.{min(decimals + 1, 6)}f}"
    return [
        one.number.metric,
        one.number.published,
        ours,
        f"{one.difference:+.2g}",
        one.kind,
        inside,
        one.number.source,
    ]


def _frame(found: Sequence[Reproduced]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "benchmark": one.benchmark.name,
                "family": one.benchmark.family,
                "repository": one.benchmark.repository,
                "commit": one.benchmark.commit,
                "model": one.number.model,
                "metric": one.number.metric,
                "file": one.number.path,
                "source": one.number.source,
                "published": one.number.published,
                "ours": one.ours,
                "difference": one.difference,
                "low": one.low,
                "high": one.high,
                "class": one.kind,
                "cases": one.cases,
                "differing": " ".join(one.ids),
                "why": one.why,
            }
            for one in found
        ]
    )

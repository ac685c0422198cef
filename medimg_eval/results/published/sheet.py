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
    """Returns a table of published numbers with reasons of differences."""
    lines, notes = [], []
    for index, outcome in enumerate(found):
        opens = index > 0 and found[index - 1].benchmark.name != outcome.benchmark.name
        lines.append(
            Line([f"{outcome.benchmark.name}: {outcome.number.model}"], [[Span(t)] for t in _row_cells(outcome)], opens)
        )
        if outcome.why:
            ids = (
                f": {', '.join(outcome.ids[:SHOWN])}{', ...' if len(outcome.ids) > SHOWN else ''}"
                if outcome.ids
                else ""
            )
            notes.append(
                f"{outcome.benchmark.name}, {outcome.number.model}, {outcome.number.metric}: {outcome.why}{ids}"
            )
    counts = Counter(outcome.kind for outcome in found)
    notes.append(", ".join(f"{counts[kind]} {kind}" for kind in CLASSES if counts[kind]) or "no numbers")
    notes.append(f"Difference: ours minus published. Interval at {level:g}, over cases; none of one case.")
    title, stubs = "Published numbers, computed again", ["Benchmark: model"]
    return Sheet(Layout.of_block(title, TITLES, lines, notes, stubs), _number_frame(found))


def _row_cells(one: Reproduced) -> list[str]:
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


def _number_frame(found: Sequence[Reproduced]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "benchmark": reproduced.benchmark.name,
                "family": reproduced.benchmark.family,
                "repository": reproduced.benchmark.repository,
                "commit": reproduced.benchmark.commit,
                "model": reproduced.number.model,
                "metric": reproduced.number.metric,
                "file": reproduced.number.path,
                "source": reproduced.number.source,
                "published": reproduced.number.published,
                "ours": reproduced.ours,
                "difference": reproduced.difference,
                "low": reproduced.low,
                "high": reproduced.high,
                "class": reproduced.kind,
                "cases": reproduced.cases,
                "differing": " ".join(reproduced.ids),
                "why": reproduced.why,
            }
            for reproduced in found
        ]
    )

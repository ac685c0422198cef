"""What a store of features holds: bags, rows, lengths, magnification, and what is missing or damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from medimg_eval.errors import CaseError, shortened
from medimg_eval.imaging.slides import KINDS, Features, open_store
from medimg_eval.store import FeatureStore

SHOWN = 5
"""Like doubts that are told one by one."""

STEP = 1 << 16
"""Rows of a store that are looked through at once."""


@dataclass(frozen=True)
class StoreDescription:
    """Description of a folder of features.

    Attributes:
        kind: whose layout it has, in words.
        facts: what it holds, in words, in order of importance.
        doubts: what is wrong with it.
    """

    kind: str
    facts: dict[str, str]
    doubts: list[str] = field(default_factory=list)


def describe_features(path: Path) -> StoreDescription:
    """Reads a store of features whole, ours or another program's.

    Raises:
        UserError: the folder is none.
    """
    if (path / "index.csv").is_file() and (path / "manifest.json").is_file():
        return _describe_own_store(FeatureStore.open(path))
    store = open_store(path)
    rows: dict[str, int] = {}
    lengths: Counter[int] = Counter()
    counters: dict[str, Counter[str]] = {
        "magnification": Counter(),
        "patch size": Counter(),
        "in level-0 pixels": Counter(),
    }
    wrong: list[str] = []
    without_places = 0
    for name in store.files:
        try:
            features = store.read(name)
        except CaseError as error:
            wrong.append(str(error))
            continue
        rows[name] = len(features.features)
        lengths[features.features.shape[1]] += 1
        without_places += features.coordinates is None
        for key, value in _format_facts(features).items():
            counters[key][value] += 1
    facts = {
        "bags": f"{len(rows)} read" + (f", {len(wrong)} not" if wrong else ""),
        "rows": _format_spread(rows.values()),
        "features": _format_counts(lengths),
        **{key: _format_counts(values) for key, values in counters.items() if values},
        "coordinates": "none" if without_places == len(rows) else f"of {len(rows) - without_places} bags",
    }
    doubts = [*_shorten_faults(wrong), *_find_odd_lengths(lengths, counters)]
    if store.missing:
        doubts.append(f"{len(store.missing)} slides have coordinates and no features: {shortened(store.missing)}")
    return StoreDescription(KINDS[store.kind], facts, doubts)


def _describe_own_store(store: FeatureStore) -> StoreDescription:
    counts = store.counts(store.keys)
    matrix = store.matrix()
    bad = sum(int((~np.isfinite(matrix[at : at + STEP])).any(1).sum()) for at in range(0, len(matrix), STEP))
    encoder = store.made_by.get("encoder", {})
    facts = {
        "encoder": str(encoder.get("_target_", encoder)).rpartition(".")[2],
        "made with": str(store.made_by.get("revision", "")) or "no revision known",
        "bags": f"{len(counts)}, {counts.count(0)} of them without rows",
        "rows": _format_spread(counts),
        "features": f"{store.length} x {store.dtype}",
        **{name: str(plan) for name, plan in store.made_by.get("shown", {}).items()},
    }
    return StoreDescription(
        "medimg_eval (features.npy)", facts, [f"{bad} rows are NaN or infinite; delete the store"] if bad else []
    )


def _format_facts(found: Features) -> dict[str, str]:
    facts = {
        "magnification": found.magnification,
        "patch size": found.patch_size,
        "in level-0 pixels": found.patch_size_level0,
    }
    return {key: f"{value:g}" for key, value in facts.items() if value is not None}


def _format_spread(counts: Iterable[int]) -> str:
    every = sorted(counts)
    if not every:
        return "none"
    return f"{sum(every)}; {every[0]} to {every[-1]} a bag, median {every[len(every) // 2]}"


def _format_counts(values: Counter[int] | Counter[str]) -> str:
    if len(values) < 2:
        return ", ".join(map(str, values)) or "none"
    return ", ".join(f"{value} ({count} bags)" for value, count in values.most_common(SHOWN))


def _shorten_faults(wrong: list[str]) -> list[str]:
    further = len(wrong) - SHOWN
    return [*wrong[:SHOWN], *([f"{further} more bags cannot be read"] if further > 0 else [])]


def _find_odd_lengths(lengths: Counter[int], said: dict[str, Counter[str]]) -> list[str]:
    faults = ["features have several lengths: they are of several encoders"] if len(lengths) > 1 else []
    return faults + [f"tiles are of several magnifications: {_format_counts(said['magnification'])}"] * (
        len(said["magnification"]) > 1
    )

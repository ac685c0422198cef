"""A run dealt out to processes that know nothing of each other: any launcher starts them, and the last one merges.

shard3of16.json   what shard 3 of 16 noted of its own work; a merge takes it into the manifest and removes it
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from medimg_eval.case import Case, Trial
from medimg_eval.case_index import ids_of
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.manifest import Manifest

NAME = re.compile(r"(?:predictions-|\.)?shard(\d+)of(\d+)\.(?:jsonl?|lock)")
OWN = ("timing", "usage", "stages", "resumed")
"""What a shard notes of its own work alone."""


class Shard(NamedTuple):
    """Part of a run's cases: every `of`-th, in the task's order.

    Attributes:
        number: from 1.
        of: how many there are.
    """

    number: int
    of: int

    def __str__(self) -> str:
        """As the command line names it."""
        return f"{self.number}/{self.of}"

    @property
    def name(self) -> str:
        """Prefix of its files' names."""
        return f"shard{self.number}of{self.of}"

    def trials(self, every: Sequence[Case], trials: Sequence[Trial]) -> list[Trial]:
        """Its cases' trials; all repeats and conditions stay together."""
        own = set(ids_of(every)[self.number - 1 :: self.of])
        return [trial for trial in trials if trial.case in own]


def read_shard(said: Any) -> Shard | None:
    """Shard of a command line, such as 3/16; None without.

    Raises:
        UsageError: it is no shard, or there are fewer.
    """
    if said is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", str(said))
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"expected shard to be such as 3/16, from 1/16 to 16/16, got {said!r}")
    return Shard(int(match[1]), int(match[2]))


def lost_shards(folder: Path, every: Sequence[Case], unasked: Collection[Trial]) -> list[Shard]:
    """Shards with unasked cases; none where files tell different numbers of shards."""
    counts = {int(match[2]) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))}
    if len(counts) != 1:
        return []
    (of,) = counts
    unanswered = {trial.case for trial in unasked}
    return [
        Shard(number, of)
        for number in sorted({1 + i % of for i, case_id in enumerate(ids_of(every)) if case_id in unanswered})
    ]


def left_to(folder: Path, every: Sequence[Case], unasked: Collection[Trial]) -> str:
    """Shards left to ask, such as "shards 3/16 and 7/16"; "" where there are none."""
    unfinished = lost_shards(folder, every, unasked)
    return f"shard{'s' if len(unfinished) > 1 else ''} {', '.join(map(str, unfinished))}" if unfinished else ""


def tells(manifest: Mapping[str, Any], shard: Any, rank: int) -> bool:
    """Whether this process reports: the merging shard, the first rank."""
    return bool(manifest["status"] == "finished") if shard else rank == 0


def read_notes(path: Path) -> Manifest:
    """Notes of a shard on its own work; nothing where it has none."""
    try:
        return cast("Manifest", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def with_notes(manifest: Mapping[str, Any], notes: Mapping[str, Any]) -> Manifest:
    """Manifest with a shard's notes, adding seconds and usage."""
    merged: dict[str, Any] = {**manifest}
    if timing := notes.get("timing"):
        seconds, inside = (timing[key] + merged.get("timing", {}).get(key, 0.0) for key in ("seconds", "in_model"))
        overhead = 1 - inside / seconds if seconds else 0.0
        merged["timing"] = {"seconds": seconds, "in_model": inside, "overhead": overhead}
    if notes.get("usage"):
        merged["usage"] = [*merged.get("usage", []), *notes["usage"]]
    for key in ("resumed", "sent"):
        if further := [entry for entry in notes.get(key, []) if entry not in merged.get(key, [])]:
            merged[key] = [*merged.get(key, []), *further]
    if (predict_times := notes.get("stages", {}).get("predict")) and predict_times["ended"]:
        before = merged.get("stages", {}).get("predict") or predict_times
        spans = {"started": min(before["started"], predict_times["started"])}
        spans["ended"] = max(before["ended"] or "", predict_times["ended"])
        merged["stages"] = {**merged.get("stages", {}), "predict": {**predict_times, **spans}}
    if notes.get("conditions"):
        merged["conditions"] = {**notes["conditions"], **merged.get("conditions", {})}
    if notes.get("repeats", 1) > merged.get("repeats", 1):
        merged["repeats"] = notes["repeats"]
    for key in ("model_info", "efficiency", "leaks", "unidentified"):
        if key in notes:
            merged.setdefault(key, notes[key])
    return cast("Manifest", merged)

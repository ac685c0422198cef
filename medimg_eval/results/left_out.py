"""Older runs that a search leaves out, and how the data differed that they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from medimg_eval.results.layout import listed

if TYPE_CHECKING:
    from medimg_eval.results.load import RunScores


def runs_shown(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the folders of runs whose pictures a task shows, such as those of a reconstruction, sorted.

    Args:
        config: The task's.
    """
    found = _settings(config.get("layout"))
    return tuple(sorted(str(value) for key, value in found.items() if key.rpartition(".")[2] == "run" and value))


def other_data(run: RunScores) -> Iterator[str]:
    """Yields a sentence about each older run that was left out for this one although its data differ."""
    for older in run.left_out:
        if older.data_fingerprint == run.data_fingerprint:
            continue
        before, now = (_settings(one.task_config.get("layout")) for one in (older, run))
        differ = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        what = "with the same settings, so that its data were changed since"
        if differ:
            changes = [f"layout.{key}={before.get(key)}, now {now.get(key)}" for key in differ[:3]]
            what = f"with {listed(changes)}"
        counts = f"{older.cases} cases, now {run.cases}"
        yield f"an older run on other data is left out, {older.folder.name} ({counts}; {what})"


def _settings(value: Any, key: str = "") -> dict[str, Any]:
    """Returns what a layout is set to, by keys joined with dots."""
    if not isinstance(value, Mapping):
        return {key: value} if key else {}
    found: dict[str, Any] = {}
    for name, one in value.items():
        found |= _settings(one, f"{key}.{name}" if key else str(name))
    return found

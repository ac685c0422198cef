"""Older runs that a search leaves out, and in what they differ from the one that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.runs.loading import RunScores

NAMED = 3
"""Differences of a run that are named, and runs."""

SENTENCES = 3
"""Kinds of older runs that are told of one row; all are counted below the table."""

LONGEST = 40
"""Characters of a value that are shown."""

TOLD = frozenset({"card", "title", "name"})
"""What a task's settings say for people."""


def runs_shown(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the folders of runs whose pictures a task shows, such as those of a reconstruction, sorted.

    Args:
        config: The task's.
    """
    found = _settings(config.get("layout"))
    return tuple(sorted(str(value) for key, value in found.items() if key.rpartition(".")[2] == "run" and value))


def made_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a manifest says that a run was made of, by keys joined with dots."""

    def part(*keys: str) -> Mapping[str, Any]:
        found: Any = manifest
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    version = part("provenance", "versions").get("medimg-eval")
    return {key: one for key, one in {"seed": manifest.get("seed"), "version": version}.items() if one is not None} | {
        **_settings({key: one for key, one in part("task_config").items() if key not in TOLD}, "task"),
        **_settings(part("model_info"), "model"),
        **_settings(part("config", "trainer"), "trainer"),
    }


def left_out(run: RunScores) -> Iterator[str]:
    """Yields in what the older runs that were left out for this one differ from it, of the newest ones first."""
    alike: dict[str, list[str]] = {}
    for older in reversed(run.left_out):
        alike.setdefault(_differences(older, run), []).append(older.folder.name)
    for what, names in [*alike.items()][:SENTENCES]:
        which = "an older run is" if len(names) == 1 else f"{len(names)} older runs are"
        yield f"{which} left out, {listed(names[:NAMED])}{', ...' * (len(names) > NAMED)} ({what})"


def _differences(older: RunScores, run: RunScores) -> str:
    before, now = older.made_of, run.made_of
    # Of a part that one of the manifests lacks, such as those of older versions, nothing is known.
    parts = {key.partition(".")[0] for key in before} & {key.partition(".")[0] for key in now}
    differ = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    changes = [
        f"{key}={_short(before.get(key, 'unset'))}, now {_short(now.get(key, 'unset'))}"
        for key in differ
        if key.partition(".")[0] in parts
    ]
    if older.data_fingerprint != run.data_fingerprint:
        changes.insert(0, f"other data of {older.cases} cases, now {run.cases}")
    if not changes:
        return "of the same settings and data"
    more = [f"{len(changes) - NAMED} more"] if len(changes) > NAMED else []
    return f"with {'; '.join([*changes[:NAMED], *more])}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _settings(value: Any, key: str = "") -> dict[str, Any]:
    """Returns what a layout is set to, by keys joined with dots."""
    if not isinstance(value, Mapping):
        return {key: value} if key else {}
    found: dict[str, Any] = {}
    for name, one in value.items():
        found |= _settings(one, f"{key}.{name}" if key else str(name))
    return found


def listed(names: Sequence[str]) -> str:
    """Returns names as they are listed in a sentence."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last

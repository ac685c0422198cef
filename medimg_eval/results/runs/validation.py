"""Whether the judge of a run was compared with people: what `agree` found, kept in the run's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from medimg_eval.errors import UserError
from medimg_eval.results.runs.loading import MANIFEST, read_manifest
from medimg_eval.system import whole

FILE = "validated.json"
SHOWN = ("kappa_quadratic", "kappa", "icc", "auroc", "agreement")
"""Statistics that say best how far two agree, the best first; the rest is in the table of `agree`."""


def keep_validation(folder: Path, found: Iterable[Mapping[Hashable, Any]], labels: str) -> None:
    """Keeps how far judges agree with people.

    Args:
        folder: of the run.
        found: rows of `agree`: `question`, `judge`, `statistic`, `value`, `low`, `high`, `n`.
        labels: what the labels are called.
    """
    validation = read_validation(folder)
    for row in found:
        about = validation.setdefault(str(row["question"]), {}).setdefault(str(row["judge"]), {})
        about |= {"n": int(row["n"]), "labels": labels}
        values = row["value"], row["low"], row["high"]
        about[str(row["statistic"])] = [None if math.isnan(value) else float(value) for value in values]
    with whole(folder / FILE) as partial:
        partial.write_text(json.dumps(validation, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_validation(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns `keep_validation`'s records by question and judge; else nothing."""
    with suppress(OSError, ValueError):
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def validation_notes(folder: Path, questions: Collection[str]) -> Iterator[str]:
    """Yields agreement of a run's judge with people, or none.

    Args:
        folder: of the run.
        questions: that columns show verdicts of.
    """
    if not questions:
        return
    stored, unknown, judge = read_validation(folder), [], ""
    with suppress(UserError):
        judge = str(read_manifest(folder / MANIFEST).get("judge", {}).get("id", ""))
    for question in questions:
        about = stored.get(question, {}).get(judge)
        name = next((name for name in SHOWN if about and about.get(name, [None])[0] is not None), None)
        if about is None or name is None:
            unknown.append(question)
            continue
        value, low, high = about[name]
        interval = "" if low is None else f" [{low:.3f}, {high:.3f}]"
        words = name.replace("_", " ")
        on = f"{about['n']:,} of {about['labels']}"
        yield f"verdicts on {question} beside people: {words} {value:.3f}{interval} on {on}"
    if unknown:
        yield f"not validated against people: verdicts on {', '.join(unknown)} (see `agree`)"

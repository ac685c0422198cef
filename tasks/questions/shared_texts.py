"""What answers in words are judged by beside themselves: all references, members of a set, verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case
from medimg_eval.evidence import Context
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.system import whole

if TYPE_CHECKING:
    from medimg_eval.metrics.reports import Written

REFERENCE = "reference"
"""How the owner of a reference begins that an annotator is shown: `reference/CASE`."""

VERDICTS = "verdicts.jsonl"
"""A run's file of what a judge's replies are worth; the replies themselves are among its evidence."""


@dataclass(frozen=True)
class SharedTexts:
    """Texts that the cases of a task share.

    Attributes:
        corpus: all references.
        peers: by case: what was written of the others of its set.
        verdicts: by case: name of a judge's question -> its verdict, as far as it was asked.
    """

    corpus: Corpus
    peers: Mapping[str, Sequence[Written]] = field(default_factory=dict)
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


BALLOTS = "ballots.jsonl"
"""A run's file of what each judge of a jury said, each time that it was asked."""


def pair_in_batch(
    make: Callable[[Case, Mapping[str, Any], Context], AnsweredQuestion],
    case: Case,
    packed: Mapping[str, Any],
    context: Context,
) -> AnsweredQuestion:
    """Pair of a case, made with its batch for joint metrics."""
    batch = context.batch
    if batch is None:
        return make(case, packed, context)
    if batch.pairs is None:
        batch.pairs = {}
        for other_case, stored, evidence in batch.trials:
            with suppress(Exception):  # which is told where this case is judged itself
                batch.pairs[id(other_case), id(stored)] = make(other_case, stored, replace(context, evidence=evidence))
    pair: AnsweredQuestion | None = batch.pairs.get((id(case), id(packed)))
    return make(case, packed, context) if pair is None else pair


def write_verdicts(folder: Path, judge: str, verdicts: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes a judge's verdicts as lines, keeping other judges'."""
    rows = [(case, question, value) for case, named in verdicts.items() for question, value in named.items()]
    lines = [{"case": case, "question": question, "judge": judge, "value": value} for case, question, value in rows]
    _replace_lines(folder / VERDICTS, "judge", judge, lines)


def write_ballots_of(folder: Path, jury: str, ballots: Iterable[Mapping[str, Any]]) -> None:
    """Writes a jury's ballots as lines, keeping other juries'."""
    lines = [{"jury": jury, **ballot} for ballot in ballots]
    if lines:
        _replace_lines(folder / BALLOTS, "jury", jury, lines)


def _replace_lines(path: Path, key: str, value: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Replaces lines that hold a value under a key."""
    earlier = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    kept_lines = [line for line in earlier if json.loads(line)[key] != value]
    with whole(path) as partial:
        partial.write_text("\n".join([*kept_lines, *map(json.dumps, lines), ""]), encoding="utf-8")

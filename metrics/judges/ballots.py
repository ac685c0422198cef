"""Ballots of a jury: what several judges replied about one thing, each once or more, and their joint verdict."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MARK = "ballots"


class Ballot(NamedTuple):
    """Reply of one judge.

    Attributes:
        judge: its name within the jury.
        repeat: how often it had been asked before.
        reply: its text.
        usage: tokens, seconds and cost, as far as they were reported.
    """

    judge: str
    repeat: int
    reply: str
    usage: Mapping[str, float] = {}


def write_ballots(ballots: Sequence[Ballot]) -> str:
    """Writes ballots as the one reply that a jury gives."""
    return json.dumps({MARK: [ballot._asdict() for ballot in ballots]}, ensure_ascii=False)


def read_ballots(reply: str) -> list[Ballot] | None:
    """Reads a jury's ballots; None of a single judge's reply."""
    if not reply.startswith(f'{{"{MARK}": ['):
        return None
    try:
        return [Ballot(**entry) for entry in json.loads(reply)[MARK]]
    except (ValueError, TypeError, KeyError):
        return None


def joint_verdict(verdicts: Sequence[Any], *, graded: bool | None = None) -> Any:
    """Joint verdict: mean grade, else majority vote.

    More than half must agree; None where nobody or no majority says one thing. Verdicts of None are left out.

    Args:
        verdicts: numbers, names, or what JSON holds.
        graded: whether they are numbers on a scale; None takes numbers for grades unless all are 0 or 1.

    >>> joint_verdict([1.0, 0.0, 1.0]), joint_verdict([1.0, 0.0]), joint_verdict([2.0, 5.0, None])
    (1.0, None, 3.5)
    """
    stated = [verdict for verdict in verdicts if verdict is not None]
    numbers = [float(verdict) for verdict in stated if isinstance(verdict, int | float)]
    if graded is None:
        graded = bool(set(numbers) - {0.0, 1.0})
    if graded and stated and len(numbers) == len(stated):
        return math.fsum(numbers) / len(numbers)
    counts = Counter(json.dumps(verdict, sort_keys=True) for verdict in stated)
    most, count = next(iter(counts.most_common(1)), ("null", 0))
    return json.loads(most) if 2 * count > len(stated) else None


def jury_verdict(said: Mapping[str, Sequence[Any]], *, graded: bool | None = None) -> Any:
    """Joint verdict of judges, each weighing the same.

    Each counts by its own joint verdict, so that one asked more often weighs no more.

    >>> jury_verdict({"a": [1.0, 1.0, 1.0], "b": [0.0], "c": [0.0]})
    0.0
    """
    return joint_verdict([joint_verdict(of_judge, graded=graded) for of_judge in said.values()], graded=graded)

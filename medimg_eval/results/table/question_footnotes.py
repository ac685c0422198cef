"""What a reader must know of tables of questions: denominators, replies without an answer, chance, time and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medimg_eval import metrics
from medimg_eval.results.runs import is_known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medimg_eval.results.runs import RunScores

CHANCE = "Chance"
"""Name of the baseline that guesses."""
NULLS = {"unparsed": "not understood", "refused": "refused", "empty": "empty"}
"""Statuses of replies that no answer could be taken from."""
LEAST_SECONDS = 1.0
"""Of a run that took less, the share of the time that was not the model's says nothing."""


def question_basis(title: str, runs: Sequence[RunScores]) -> str:
    """Returns how many questions or reports the numbers of one task rest on, the denominator of its shares.

    Args:
        title: The task's title.
        runs: Its runs, finished or not.
    """
    sizes = sorted({run.cases for run in runs})
    basis = f"{title}: n = {' or '.join(f'{size:,}' for size in sizes)} {runs[0].noun}"
    grouped = [run for run in runs if run.finished and run.resampled == "patients"]
    groups = sorted({int(run.scores["patient"].nunique()) for run in grouped})
    if groups:
        counts = " or ".join(f"{size:,}" for size in groups)
        reports = runs[0].noun == "reports"
        basis += f" of {counts} patients" if reports else f" in {counts} groups (of one patient, image or set)"
    return basis


def chance_note(title: str, runs: Sequence[RunScores], shown: Sequence[str]) -> Iterator[str]:
    """Yields what guessing is worth, unless a row of the table says so.

    Args:
        title: The task's title.
        runs: Its finished runs.
        shown: The metrics of its columns.
    """
    rows = {run.data_fingerprint for run in runs if run.model == CHANCE}
    for data, chance in {run.data_fingerprint: run.chance for run in runs if run.chance}.items():
        known = {name: value for name, value in chance.items() if name in shown and is_known(name)}
        if data not in rows and known:
            yield f"{title}: chance {_chances(known)}."


def _chances(values: Mapping[str, float]) -> str:
    texts = []
    for name, value in values.items():
        unit = metrics.get(name).unit
        text = f"{value:.3f} {unit}" if unit else f"{100 * value:.1f} %"
        texts.append(text if len(values) == 1 else f"{text} ({metrics.title(name)})")
    return ", ".join(texts)


def question_facts(run: RunScores) -> Iterator[str]:
    """Yields of a finished run how many replies held no answer, the harness's share of the time, and the cost."""
    # Where a metric raised, its row says nothing of the reply.
    one = run.scores.loc[run.scores["status"] != "error"].drop_duplicates("case")["status"].value_counts()
    nulls = {word: int(one[status]) for status, word in NULLS.items() if status in one}
    if nulls:
        parts = ", ".join(f"{number:,} {word}" for word, number in nulls.items())
        total = sum(nulls.values())
        yield f"no answer in {total:,} of {run.cases:,} replies ({100 * total / run.cases:.1f} %): {parts}"
    long_enough = run.timing.get("seconds", LEAST_SECONDS) >= LEAST_SECONDS and not run.baseline
    if long_enough and (overhead := run.timing.get("overhead")) is not None:
        seconds = f" of {run.timing['seconds']:,.0f} s" if "seconds" in run.timing else ""
        yield f"harness overhead {100 * overhead:.1f} %{seconds}"
    if used := [_used(name, value) for name, value in run.usage.items() if value]:
        yield f"used {', '.join(used)}"


def _used(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{words} {value}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{number} {words}" if words.endswith("s") else f"{words} {number}"

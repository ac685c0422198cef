"""Runs on validation cases beside those on test cases of the same model and task, without a patient in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medimg_eval.errors import UsageError, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.runs import RunScores


def pair_runs(runs: Sequence[RunScores], validation: Sequence[RunScores]) -> list[tuple[RunScores, RunScores | None]]:
    """Pairs test runs with validation runs, or None.

    None where `validation` is empty.

    Raises:
        UsageError: a run has no validation run, or several, or shares a patient with it.
    """
    if not validation:
        return [(run, None) for run in runs]
    pairs: list[tuple[RunScores, RunScores | None]] = []
    for run in runs:
        fitting = [candidate for candidate in validation if (candidate.task, candidate.name) == (run.task, run.name)]
        if len(fitting) != 1:
            names = ", ".join(f"{candidate.name} on {candidate.task}" for candidate in validation)
            raise UsageError(
                f"validation is invalid: expected one run of {run.name} on {run.task}, got {len(fitting)} of {names}; "
                "make it by test task.splits.test=validate"
            )
        _refuse_shared(run, fitting[0])
        pairs.append((run, fitting[0]))
    return pairs


def _refuse_shared(run: RunScores, validation: RunScores) -> None:
    for column in ("patient", "case"):
        shared = set(run.scores[column].astype(str)) & set(validation.scores[column].astype(str)) - {""}
        if shared:
            raise UsageError(
                f"validation is invalid: expected other {column}s than those of {run.run}, got {len(shared)} of both "
                f"({shortened(sorted(shared))}); what is fitted on test cases cannot be tested on them"
            )

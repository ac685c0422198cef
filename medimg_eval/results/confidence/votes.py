"""Sampling agreement: runs of several repeats as one of majority answers, with the share of votes as confidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from medimg_eval.metrics.calibration import RIGHT, WRONG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.runs import RunScores

NEEDS = ("accuracy", "predicted_class")


def vote_runs(runs: Sequence[RunScores]) -> list[RunScores]:
    """Returns the majority vote of each repeated run.

    The confidence of a case is the share of its repeats that gave the majority's answer, and it is right if that answer
    is; of answers equally frequent the one that was given first counts. It needs rows of `predicted_class`, which tells
    answers apart, and of `accuracy`. Repeats without an answer are votes for none.
    """
    return [vote for run in runs if run.repeats > 1 for vote in [_vote_run(run)] if vote is not None]


def _vote_run(run: RunScores) -> RunScores | None:
    scores = run.scores
    if not set(NEEDS) <= set(scores["metric"].unique()):
        return None
    keys = ["case", "repeat"]
    answers = scores.loc[scores["metric"] == "predicted_class"].set_index(keys)["value"]
    right = scores.loc[scores["metric"] == "accuracy"].set_index(keys)
    joined = right.assign(answer=answers.reindex(right.index)).reset_index().dropna(subset=["answer"])
    rows = []
    for case, votes in joined.groupby("case", sort=False, observed=True):
        counts = votes["answer"].value_counts(sort=False)
        winner = votes.loc[votes["answer"] == counts.idxmax()].iloc[0]
        status = RIGHT if winner["value"] == 1 else WRONG
        share = float(counts.max()) / run.repeats
        rows.append({**winner, "case": case, "metric": "confidence", "value": share, "status": status})
    if not rows:
        return None
    frame = pd.DataFrame(rows)[[name for name in scores.columns if name != "repeat"]]
    return replace(run, model=f"{run.model}, votes of {run.repeats}", run=f"{run.run}-votes", scores=frame)

"""Rows of runs, for summaries."""

import numpy as np

from medimg_eval.metrics import ScoreTable, get


def run_of(*cases):
    """Rows of a run whose cases have these scores."""
    rows = [(index, score) for index, scores in enumerate(cases) for score in scores]
    return ScoreTable(
        np.array([index for index, _ in rows], np.int64),
        np.array([score.metric for _, score in rows], np.str_),
        np.array([score.label for _, score in rows], np.str_),
        np.array([score.value for _, score in rows], np.float64),
        np.array([score.status for _, score in rows], np.str_),
        {},
        len(cases),
        {},
    )


def summarised(name, *cases):
    found = get(name)
    rows = run_of(*cases)
    return found.function(rows.where(np.isin(rows.metric, found.needs)))

"""Scores of a run as one value for each case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval import metrics
from medimg_eval.results.runs import is_known

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from medimg_eval.results.runs import RunScores


def is_share(metric: str) -> bool:
    """Whether 0 and 1 are the ends of a metric's values, so that values of 0 and 1 alone make a share.

    Of a metric that is not registered, its values must tell.
    """
    if not is_known(metric):
        return True
    known = metrics.get(metric)
    return not known.unit and {known.best, known.worst} == {0.0, 1.0}


def units(run: RunScores, cases: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns what is resampled with each of `cases`, (case,), as its place among the sorted names."""
    names = cases["patient"] if run.resampled == "patients" else cases.index.to_series()
    return np.unique(names.to_numpy(dtype=str), return_inverse=True)[1].astype(np.int64)


def case_values(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per case for the Score rows of one metric: value, patient, failed, rows, undefined.

    The value is the mean over the case's labels that have one, and NaN where none has; `rows` counts its labels, and
    `undefined` those without a value.
    """
    rows = rows.assign(failed=rows["status"] == "failed", rows=1, undefined=rows["value"].isna())
    kept = ["value", "patient", "failed", "rows", "undefined"]
    if rows["case"].is_unique:
        return rows.set_index("case")[kept].sort_index()
    return rows.groupby("case", observed=True, sort=True).agg(
        value=("value", "mean"),
        patient=("patient", "first"),
        failed=("failed", "any"),
        rows=("rows", "sum"),
        undefined=("undefined", "sum"),
    )

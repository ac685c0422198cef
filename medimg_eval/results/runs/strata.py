"""Strata that a bootstrap draws patients within, such as the hospitals of a data set that fixed how many of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.runs.subsets import attributes

if TYPE_CHECKING:
    from medimg_eval.results.runs.loading import RunScores


def stratifying(run: RunScores, asked: str) -> str:
    """Returns the attribute within whose values the clusters of a run are drawn; "" where they are drawn from all.

    Args:
        run: The run; its task may name one, as `drawn_within` in its config.
        asked: The attribute that the table was asked to use; "" for what the task says.
    """
    named = run.task_config.get("drawn_within")
    return asked or (named if isinstance(named, str) else "")


def strata_of(run: RunScores, asked: str) -> pd.Series[str] | None:
    """Returns the stratum of each case that has scores, by case id; None where clusters are drawn from all.

    Cases whose attribute is not known are a stratum of their own.

    Raises:
        UsageError: If no case has the attribute.
        UserError: If a patient has cases in two strata.
    """
    name = stratifying(run, asked)
    if not name or run.scores.empty:
        return None
    codes, values = attributes(run.scores)
    if name not in values:
        raise UsageError(f"No case of {run.task_title} has an attribute {name!r} for strata{nearest(name, values)}")
    strata = pd.Series(values[name][codes], index=run.scores["case"].astype(str).to_numpy())
    first = ~strata.index.duplicated()
    strata = strata[first]
    if run.resampled == "patients":
        found = strata.groupby(run.scores["patient"].astype(str).to_numpy()[first]).unique()
        if len(torn := found[found.map(len) > 1]):
            one, two, *_ = torn.iloc[0]
            raise UserError(
                f"Patient {torn.index[0]!r} of {run.task_title} has cases of two strata, {name} {one!r} and {two!r}, "
                "and patients are drawn within strata; choose an attribute of patients, or leave strata out"
            )
    return strata

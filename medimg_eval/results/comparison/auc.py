"""Areas under ROC curves of models, from the probabilities that their runs have stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.results.comparison.summaries import Together
from medimg_eval.results.statistics import Areas, correlated_areas

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from medimg_eval.results.comparison.fields import Field

AUROC = "auroc"
PROBABILITY = "probability"
"""The evidence: label is a class, value its probability, status whether it is present or absent in truth."""
PRESENT, ABSENT = "present", "absent"


class FieldAreas(NamedTuple):
    """Areas under ROC curves of models on what all of them were judged on, and what they rest on."""

    areas: Areas
    cases: int
    left_out: int
    patients: int


def areas_of(field: Field, models: Sequence[str]) -> FieldAreas | None:
    """Returns the areas of some models of a task or label; None where its metric is no mean of them over labels.

    Of a single model the mean must be what the metric itself says, so that no average of another kind, such as one that
    weighs labels, is taken for it.

    Raises:
        UserError: If runs disagree on what is present in a case.
    """
    metric, _, wanted = field.column.metric.partition("@")
    if metric != AUROC:
        return None
    together = Together(field.column.metric, [field.parts[model] for model in models])
    rows = [_rows(part.scores, wanted) for part in together.parts]
    if any(not some.index.is_unique for some in rows):
        return None
    shared = rows[0].index
    for some in rows[1:]:
        shared = shared.intersection(some.index)
    rows = [some.loc[shared] for some in rows]
    for name, some in zip(models, rows, strict=True):
        if (differ := some["status"] != rows[0]["status"]).any():
            case, label = shared[differ.to_numpy()][0]
            raise UserError(
                f"{field.name}: {models[0]} and {name} were judged by different truths of {label!r} in case {case!r}; "
                "score both runs again with the same data"
            )
    cases = shared.get_level_values("case").to_numpy(dtype=str)
    owners = together.clusters.loc[cases].to_numpy(dtype=str)
    found = correlated_areas(
        np.stack([some["value"].to_numpy(dtype=np.float64) for some in rows]),
        (rows[0]["status"] == PRESENT).to_numpy(),
        owners,
        shared.get_level_values("label").to_numpy(dtype=str),
    )
    if len(models) == 1 and not np.allclose(found.areas, together.worth, rtol=1e-9, atol=1e-12):
        return None
    return FieldAreas(found, len(set(cases.tolist())), together.left_out, len(set(owners.tolist())))


def _rows(scores: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """Returns the probabilities whose truth is known, by case and label; only of one label where that is wanted."""
    known = scores["status"].isin((PRESENT, ABSENT)) & scores["value"].notna()
    rows = scores.loc[(scores["metric"] == PROBABILITY) & known]
    if wanted and (rows["label"] == wanted).any():
        rows = rows.loc[rows["label"] == wanted]
    return rows.assign(case=rows["case"].astype(str)).set_index(["case", "label"])

"""Which organ takes up how much tracer, as one class per organ, where saying nothing is a class of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, evidence_metric, share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.reports.labels.pet_uptake import uptake_labels
from medimg_eval.metrics.reports.labels.taxonomies import loaded
from medimg_eval.metrics.text import texts_of

NOT_SAID = "not said"
"""The class of an organ whose uptake a report does not speak of."""

CLASSES = (NOT_SAID, "normal", "decreased", "increased")
"""In the order of their numbers. Of an organ that is called several, the last of them counts."""

PHYSIOLOGICAL = ("Brain", "Heart", "Kidneys", "Bladder")
"""Organs that take up or excrete the tracer in health, which are reported apart."""

SOURCE = "after PET2Rep (Zhang et al. 2025); organs and words are inferred from its template"


def uptake_classes(text: str) -> dict[str, str]:
    """The class of every organ of `configs/class_lists/pet_uptake.yaml`, `not said` where the report says nothing.

    >>> uptake_classes("FDG uptake in the liver is increased.")["Liver"]
    'increased'
    """
    taxonomy = loaded("pet_uptake")
    labels = uptake_labels(text, taxonomy)
    classes = dict.fromkeys(taxonomy.words["organs"], NOT_SAID)
    for kind in CLASSES[1:]:
        classes |= {organ: kind for organ in classes if f"{organ}: {kind}" in labels}
    return classes


def _parameter_organs(text: str) -> list[str]:
    """Organs of a parameter: `all`, `physiological`, `others`, or a name."""
    organs = list(loaded("pet_uptake").words["organs"])
    groups = {
        "all": organs,
        "physiological": list(PHYSIOLOGICAL),
        "others": [organ for organ in organs if organ not in PHYSIOLOGICAL],
    }
    UsageError.refuse_invalid("name of organs", [*groups, *organs], text)
    return groups.get(text, [text])


_PARAMETER = "all, physiological, others or an organ"


@evidence_metric(kind="answer", title="Uptake classes", source=SOURCE)
def uptake_pairs(pair: AnsweredQuestion) -> Any:
    """The classes of each organ in both reports: 4 times the reference's number plus the prediction's. Evidence.

    Numbers are 0 not said, 1 normal, 2 decreased, 3 increased; of several references the one with most organs alike.
    """
    texts = texts_of(pair)
    if texts is None:
        return dict.fromkeys(loaded("pet_uptake").words["organs"], math.nan)
    written = uptake_classes(texts[0])
    due = max(map(uptake_classes, texts[1]), key=lambda one: sum(one[organ] == written[organ] for organ in one))
    return {organ: 4 * CLASSES.index(due[organ]) + CLASSES.index(written[organ]) for organ in due}


@answer_share(
    title="Uptake, organs alike", source=SOURCE, check=_parameter_organs, parameter=_PARAMETER, parameter_is_text=True
)
def uptake_exact(pair: AnsweredQuestion, organs: str) -> float:
    """The share of organs whose class of uptake is that of the reference, `not said` among the classes.

    In [0, 1]. An organ that neither report speaks of is alike, so that a short report beside a short reference is worth
    much: read it beside `uptake_macro_f1`.
    """
    pairs: Mapping[str, float] = uptake_pairs(pair)
    codes = [pairs[organ] for organ in _parameter_organs(organs)]
    return math.nan if math.isnan(codes[0]) else float(np.mean([code // 4 == code % 4 for code in codes]))


def _count_classes(rows: ScoreTable, organs: str) -> npt.NDArray[np.float64]:
    chosen = _parameter_organs(organs)
    code = np.where(np.isnan(rows.value), -1, rows.value).astype(int)
    counts = np.zeros((len(code), len(chosen), len(CLASSES), len(CLASSES)))
    for index, organ in enumerate(chosen):
        of = (rows.label == organ) & (code >= 0)
        counts[of, index, code[of] // 4, code[of] % 4] = 1
    return counts.reshape(len(code), -1)


@share_summary(
    needs=("uptake_pairs",),
    title="Uptake, macro F1",
    source=SOURCE,
    pieces=_count_classes,
    check=_parameter_organs,
    parameter=_PARAMETER,
    parameter_is_text=True,
)
def uptake_macro_f1(sums: npt.NDArray[np.float64], organs: str) -> Any:
    """The mean over organs of the mean F1 of the classes of uptake that either report gives the organ.

    `not said` is a class: an organ that is left out, or described without need, costs as a wrong class does. Over all
    reports together, in [0, 1]; NaN without reports.
    """
    tables = sums.reshape(*sums.shape[:-1], len(_parameter_organs(organs)), len(CLASSES), len(CLASSES))
    hits = np.diagonal(tables, axis1=-2, axis2=-1)
    f1 = quotient(2 * hits, tables.sum(-1) + tables.sum(-2))
    held = ~np.isnan(f1)
    by_organ = quotient(np.where(held, f1, 0).sum(-1), held.sum(-1))
    there = ~np.isnan(by_organ)
    return quotient(np.where(there, by_organ, 0).sum(-1), there.sum(-1))

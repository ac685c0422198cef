"""RadFact: the phrases of a report that the other one says too, as a judge, another model, finds.

A judge first lists the phrases of both reports, and is then asked about each of them whether it holds by those of the
other. Shares of what it found are arithmetic, public here, also with boxes. A reply that cannot be read is no verdict;
what its authors make of it has a name of its own, `..._as_published`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._replies import ReplyPair
from medimg_eval.metrics._verdicts import worth
from medimg_eval.metrics._verdicts_radfact import (
    Box,
    Fractions,
    Phrase,
    entailed_share,
    f1_of_sums,
    radfact_f1,
    radfact_fractions,
    read_entailment,
    read_phrases,
)
from medimg_eval.metrics.registry import Rows, metric, summary

__all__ = [
    "Box",
    "Fractions",
    "Phrase",
    "entailed_share",
    "radfact_f1",
    "radfact_fractions",
    "read_entailment",
    "read_phrases",
]

BANNUR = "Bannur et al. 2024, RadFact"
SETTINGS = "RadFact's published instructions without its examples, one phrase at a time"

_PHRASES = ("radfact_reference_phrases", "radfact_prediction_phrases")

_radfact = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0, source=BANNUR, settings=SETTINGS)


def _entailed(pair: ReplyPair, side: str, *, as_published: bool = False) -> float:
    return worth(pair, side, lambda found: entailed_share(found["verdicts"], as_published=as_published))


@_radfact(title="RadFact precision", asks=(*_PHRASES, "radfact_prediction"))
def radfact_precision(pair: ReplyPair) -> float:
    """The share of the phrases that were written which the reference says too, by a judge (logical precision).

    NaN of a report without phrases, such as an empty one, which is left out of the mean; and where a reply about one
    of them cannot be read.
    """
    return _entailed(pair, "radfact_prediction")


@_radfact(title="RadFact recall", asks=(*_PHRASES, "radfact_reference"))
def radfact_recall(pair: ReplyPair) -> float:
    """The share of the reference's phrases which the report that was written says too, by a judge (logical recall).

    0 of an empty report. NaN of a reference without phrases, and where a reply about one of them cannot be read.
    """
    return _entailed(pair, "radfact_reference")


@_radfact(title="RadFact precision (unread as not entailed)", asks=(*_PHRASES, "radfact_prediction"))
def radfact_precision_as_published(pair: ReplyPair) -> float:
    """RadFact's precision with replies that cannot be read as not entailed, which is its authors' rule.

    NaN of a report without phrases, and where its phrases themselves cannot be read.
    """
    return _entailed(pair, "radfact_prediction", as_published=True)


@_radfact(title="RadFact recall (unread as not entailed)", asks=(*_PHRASES, "radfact_reference"))
def radfact_recall_as_published(pair: ReplyPair) -> float:
    """RadFact's recall with replies that cannot be read as not entailed, which is its authors' rule.

    NaN of a reference without phrases, and where its phrases themselves cannot be read.
    """
    return _entailed(pair, "radfact_reference", as_published=True)


def _precisions_and_recalls(rows: Rows) -> npt.NDArray[np.float64]:
    """(row, 4): what each row adds to the sum and number of precisions, and of recalls."""
    known = ~np.isnan(rows.value)
    values = np.where(known, rows.value, 0.0)
    recall = np.char.startswith(rows.metric.astype(str), "radfact_recall")
    columns = [one * side for side in (~recall, recall) for one in (values, known)]
    return np.column_stack(columns).astype(np.float64)


_f1 = partial(
    summary, higher_is_better=True, best=1.0, source=BANNUR, settings=SETTINGS, pieces=_precisions_and_recalls
)


@_f1(needs=("radfact_precision", "radfact_recall"), title="RadFact F1", name="radfact_f1")
def _f1_of_shares(sums: npt.NDArray[np.float64]) -> Any:
    """The harmonic mean of RadFact's mean precision and mean recall over reports (logical F1).

    Reports without phrases on a side are left out of that side's mean. 0 where both means are, and where no report
    that was written has a phrase.
    """
    return f1_of_sums(sums)


@_f1(
    needs=("radfact_precision_as_published", "radfact_recall_as_published"),
    title="RadFact F1 (unread as not entailed)",
    name="radfact_f1_as_published",
)
def _f1_as_published(sums: npt.NDArray[np.float64]) -> Any:
    """RadFact's F1 with replies that cannot be read as not entailed, which is its authors' rule."""
    return f1_of_sums(sums)

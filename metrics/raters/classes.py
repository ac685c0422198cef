"""Classes as several readers see them: a model against each of them, and each reader against the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from medimg_eval.metrics.registry import metric

if TYPE_CHECKING:
    from medimg_eval.metrics.classification import Classified

_of_class = partial(metric, kind="classification", source="this package")


def _reader_statements(pair: Classified, name: str) -> list[bool]:
    """Returns what readers say of a class, of those who say anything."""
    values = [reader.get(name, math.nan) for reader in pair.readers.values()]
    return [value > 0.5 for value in values if not math.isnan(value)]


@_of_class(title="Agreement with readers", higher_is_better=True, best=1.0, worst=0.0)
def class_agreement_with_readers(pair: Classified) -> Mapping[str, float]:
    """The share of readers who say of a class what the model says, present above 0.5 or the most probable.

    It judges only classes that two readers or more judged. In [0, 1].
    """
    answers = pair.said
    stated = {name: _reader_statements(pair, name) for name in answers}
    return {
        name: sum(value == answers[name] for value in values) / len(values)
        for name, values in stated.items()
        if len(values) > 1
    }


@_of_class(title="Agreement among readers", higher_is_better=None, best=math.nan, worst=math.nan, value_kind="bounded")
def class_agreement_among_readers(pair: Classified) -> Mapping[str, float]:
    """The share of pairs of readers who say the same of a class: the band for `class_agreement_with_readers`.

    In [0, 1].
    """
    shares = {}
    for name in pair.predicted:
        values = _reader_statements(pair, name)
        number, present = len(values), sum(values)
        if number > 1:
            same_pairs = present * (present - 1) + (number - present) * (number - present - 1)
            shares[name] = same_pairs / (number * (number - 1))
    return shares


@_of_class(title="Brier (readers)", higher_is_better=False, best=0.0, worst=1.0)
def class_brier_to_readers(pair: Classified) -> Mapping[str, float]:
    """The square of the probability of a class less the share of readers who say that it is present.

    It judges only classes that two readers or more judged. In [0, 1].
    """
    stated = {name: (value, _reader_statements(pair, name)) for name, value in pair.predicted.items()}
    return {
        name: (value - sum(values) / len(values)) ** 2 for name, (value, values) in stated.items() if len(values) > 1
    }

"""Errors under MedMNIST-C's corruptions beside those of its AlexNet: BE and rBE."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.classification.alexnet_errors import ALEXNET, CLEAN
from medimg_eval.metrics.classification.curves import Floats
from medimg_eval.metrics.classification.single_choice import balanced_accuracy, count_cells
from medimg_eval.metrics.registry import ScoreTable, Weighed, summary

SEVERITIES = 5

Combine = Callable[[Floats, Floats, Floats, float], Floats]
"""Of errors by corruption (corruption, resample), as published (resample,), and AlexNet's: what is printed."""


def check_set(parameter: str) -> None:
    """Raises UsageError for a set that has no baselines."""
    UsageError.refuse_unknown("MedMNIST-C has no baselines of a set", ALEXNET, parameter)


def _errors(rows: ScoreTable, key: str) -> Weighed:
    """Returns 1 - balanced accuracy under a condition, of how often each row counts: (resample, row) to (resample,)."""
    chosen = np.flatnonzero(rows.condition == key)
    cells = count_cells(rows.where(chosen))
    return lambda times: 1 - balanced_accuracy(times[:, chosen] @ cells)


def _balanced_errors(rows: ScoreTable, parameter: str, combine: Combine) -> Weighed:
    baseline = {name: error for name, error in ALEXNET[parameter].items() if name != CLEAN}
    keys = [[f"{name}-{severity}" for severity in range(1, SEVERITIES + 1)] for name in baseline]
    there = set(np.unique(rows.condition).tolist())
    if not {"", *(key for each in keys for key in each)} <= there:
        return lambda times: np.full(len(times), np.nan)
    published, errors = _errors(rows, ""), [[_errors(rows, key) for key in each] for each in keys]

    def values(times: Floats) -> Floats:
        means = np.array([np.mean([error(times) for error in each], axis=0) for each in errors])
        reference = np.array(list(baseline.values()))[:, None]
        return combine(means, published(times), reference, ALEXNET[parameter][CLEAN])

    return values


_medmnistc = partial(
    summary,
    needs=("probability",),
    over="conditions",
    higher_is_better=False,
    best=0.0,
    source="MedMNIST-C, Di Salvo et al. 2024, arXiv 2406.17536; medmnistc 0.1.0, eval.py and utils/baselines.py",
    parameter="set of MedMNIST-C, such as blood",
    parameter_is_text=True,
    check=check_set,
)


def _remark(rows: ScoreTable, parameter: str) -> str:
    asked = [f"{name}-{severity}" for name in ALEXNET[parameter] if name != CLEAN for severity in range(1, 6)]
    lacking = sorted(set(asked) - set(np.unique(rows.condition).tolist()))
    if not lacking:
        return f"levels are taken to be those of suite/medmnistc_{parameter}"
    return f"no value without {lacking[0]}{' and others' * (len(lacking) > 1)}: test with suite/medmnistc_{parameter}"


@_medmnistc(title="BE", remark=_remark, weighed=lambda rows, name: _balanced_errors(rows, name, _be))
def medmnistc_be(rows: ScoreTable, name: str) -> float:
    """The mean over corruptions of the balanced error, averaged over severities, over AlexNet's.

    1 is as bad as AlexNet. Of runs with all corruptions and severities of the set's suite; NaN of others. Classes count
    as present above a probability of 0.5; the authors choose a threshold on validation images.
    """
    return float(_balanced_errors(rows, name, _be)(np.ones((1, rows.case.size)))[0])


def _be(errors: Floats, published: Floats, reference: Floats, clean: float) -> Floats:
    return np.asarray((errors / reference).mean(axis=0))


@_medmnistc(title="rBE", remark=_remark, weighed=lambda rows, name: _balanced_errors(rows, name, _rbe))
def medmnistc_rbe(rows: ScoreTable, name: str) -> float:
    """The mean over corruptions of the rise of the balanced error over that of AlexNet.

    1 is as steep as AlexNet. AlexNet's own rise is below 0 for two corruptions of pneumonia and near 0 for others, so
    that the sign turns or the number swells: see `drop` of the same run. NaN as of `medmnistc_be`.
    """
    return float(_balanced_errors(rows, name, _rbe)(np.ones((1, rows.case.size)))[0])


def _rbe(errors: Floats, published: Floats, reference: Floats, clean: float) -> Floats:
    return np.asarray(((errors - published) / (reference - clean)).mean(axis=0))

"""Errors under corruptions beside those of a reference: BE and rBE of MedMNIST-C, mean corruption errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.classification.alexnet_errors import ALEXNET, CLEAN
from medimg_eval.metrics.classification.curves import CLASSES, EXCLUSIVE, PRESENT, decided
from medimg_eval.metrics.classification.single_choice import balanced_accuracy, count_cells
from medimg_eval.metrics.declarations import error_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

SEVERITIES = 5

Combine = Callable[[Floats, Floats, Floats, float], Floats]
"""Of errors by corruption (corruption, resample), as published (resample,), and AlexNet's: what is printed."""


def check_set(parameter: str) -> None:
    """Raises UsageError for a set that has no baselines."""
    UsageError.refuse_unknown("MedMNIST-C has no baselines of a set", ALEXNET, parameter)


def _condition_errors(rows: ScoreTable, key: str) -> Weighed:
    """Returns 1 - balanced accuracy under a condition, (resample,)."""
    chosen = np.flatnonzero(rows.condition == key)
    cells = count_cells(rows.where(chosen))
    return lambda times: 1 - balanced_accuracy(times[:, chosen] @ cells)


def _balanced_errors(rows: ScoreTable, parameter: str, combine: Combine) -> Weighed:
    baseline = {name: error for name, error in ALEXNET[parameter].items() if name != CLEAN}
    keys = [[f"{name}-{severity}" for severity in range(1, SEVERITIES + 1)] for name in baseline]
    there = set(np.unique(rows.condition).tolist())
    if not {"", *(key for each in keys for key in each)} <= there:
        return lambda times: np.full(len(times), np.nan)
    published, errors = _condition_errors(rows, ""), [[_condition_errors(rows, key) for key in each] for each in keys]

    def values(times: Floats) -> Floats:
        means = np.array([np.mean([error(times) for error in each], axis=0) for each in errors])
        reference = np.array(list(baseline.values()))[:, None]
        return combine(means, published(times), reference, ALEXNET[parameter][CLEAN])

    return values


_medmnistc = partial(
    error_summary,
    needs=("probability",),
    over="conditions",
    source="MedMNIST-C, Di Salvo et al. 2024, arXiv 2406.17536; medmnistc 0.1.0, eval.py and utils/baselines.py",
    parameter="set of MedMNIST-C, such as blood",
    parameter_is_text=True,
    check=check_set,
)


def _missing_remark(rows: ScoreTable, parameter: str) -> str:
    wanted = [f"{name}-{severity}" for name in ALEXNET[parameter] if name != CLEAN for severity in range(1, 6)]
    lacking = sorted(set(wanted) - set(np.unique(rows.condition).tolist()))
    if not lacking:
        return f"levels are taken to be those of suite/medmnistc_{parameter}"
    return f"no value without {lacking[0]}{' and others' * (len(lacking) > 1)}: test with suite/medmnistc_{parameter}"


@_medmnistc(
    title="BE", remark=_missing_remark, weighed=lambda rows, name: _balanced_errors(rows, name, _balanced_error)
)
def medmnistc_be(rows: ScoreTable, name: str) -> float:
    """The mean over corruptions of the balanced error, averaged over severities, over AlexNet's.

    1 is as bad as AlexNet. Of runs with all corruptions and severities of the set's suite; NaN of others. Classes count
    as present above a probability of 0.5; the authors choose a threshold on validation images.
    """
    return float(_balanced_errors(rows, name, _balanced_error)(np.ones((1, rows.case.size)))[0])


def _balanced_error(errors: Floats, published: Floats, reference: Floats, clean: float) -> Floats:
    return np.asarray((errors / reference).mean(axis=0))


@_medmnistc(
    title="rBE", remark=_missing_remark, weighed=lambda rows, name: _balanced_errors(rows, name, _relative_error)
)
def medmnistc_rbe(rows: ScoreTable, name: str) -> float:
    """The mean over corruptions of the rise of the balanced error over that of AlexNet.

    1 is as steep as AlexNet. AlexNet's own rise is below 0 for two corruptions of pneumonia and near 0 for others, so
    that the sign turns or the number swells: see `drop` of the same run. NaN as of `medmnistc_be`.
    """
    return float(_balanced_errors(rows, name, _relative_error)(np.ones((1, rows.case.size)))[0])


def _relative_error(errors: Floats, published: Floats, reference: Floats, clean: float) -> Floats:
    return np.asarray(((errors - published) / (reference - clean)).mean(axis=0))


REFERENCE = "reference_errors"
"""The fact of a task: corruption -> error of the reference model, 0 to 1, the mean over severities."""

CLEAN_SEVERITY = "0"


def _of_corruptions(rows: ScoreTable, reference: Mapping[str, float] | None) -> Weighed:
    """Returns mean corruption error, in %, optionally over a reference's.

    The mean over corruptions of the mean over severities. NaN where classes do not exclude each other, cases
    have no corruption, or the reference lacks one.
    """
    present = np.flatnonzero(rows.status == PRESENT)
    kinds, levels = (rows.attributes[name][present] if name in rows.attributes else None for name in ATTRIBUTES)
    if kinds is None or levels is None or rows.facts.get(CLASSES) != EXCLUSIVE:
        return lambda times: np.full(len(times), np.nan)
    errors = 1 - decided(rows)[present]
    bins: dict[str, list[Places]] = {}
    for kind in np.unique(kinds[levels != CLEAN_SEVERITY]).tolist():
        of_kind = kinds == kind
        bins[kind] = [np.flatnonzero(of_kind & (levels == level)) for level in np.unique(levels[of_kind]).tolist()]
    if not bins or (reference is not None and set(bins) - set(reference)):
        return lambda times: np.full(len(times), np.nan)

    def values(times: Floats) -> Floats:
        weights = times[:, present]
        each = []
        for kind, members in bins.items():
            means = [quotient(weights[:, some] @ errors[some], weights[:, some].sum(axis=1)) for some in members]
            each.append(np.mean(means, axis=0) / (1 if reference is None else reference[kind]))
        return 100 * np.asarray(np.mean(each, axis=0))

    return values


ATTRIBUTES = ("corruption", "severity")

_corrupted = partial(error_summary, needs=("probability",))


@_corrupted(
    title="Error under corruptions",
    source="RobustMedCLIP, Imam et al. 2025, before it is divided; of top-1 answers",
    weighed=lambda rows: _of_corruptions(rows, None),
)
def corruption_error(rows: ScoreTable) -> float:
    """The mean over corruptions of the share of wrong top-1 answers, averaged over severities, in percent.

    Cases have the attributes `corruption` and `severity`, 0 being clean ones, which do not count; every corruption
    counts alike. ImageNet-C's own script prints this and calls it mCE. In [0, 100].
    """
    return float(_of_corruptions(rows, None)(np.ones((1, rows.case.size)))[0])


def _reference_errors(rows: ScoreTable) -> Mapping[str, float]:
    return {str(name): float(error) for name, error in (rows.facts.get(REFERENCE) or {}).items()}


def _lacking_remark(rows: ScoreTable) -> str:
    kinds = rows.attributes[ATTRIBUTES[0]] if ATTRIBUTES[0] in rows.attributes else np.zeros(0, str)
    lacking = sorted(set(np.unique(kinds).tolist()) - {"clean"} - set(_reference_errors(rows)))
    if not lacking:
        return ""
    return (
        f"no mean corruption error without task.facts.{REFERENCE} of {lacking[0]}{' and others' * (len(lacking) > 1)}: "
        "the error of a reference model, 0 to 1, averaged over severities"
    )


@_corrupted(
    title="Mean corruption error",
    source="Hendrycks and Dietterich, ICLR 2019; RobustMedCLIP, Imam et al. 2025",
    weighed=lambda rows: _of_corruptions(rows, _reference_errors(rows)),
    remark=_lacking_remark,
)
def mean_corruption_error(rows: ScoreTable) -> float:
    """The mean over corruptions of the error, averaged over severities, over that of a reference model, times 100.

    The reference's errors are the task's fact `reference_errors`; 100 is as bad as it. Of cases as `corruption_error`.
    NaN where the reference lacks a corruption.
    """
    return float(_of_corruptions(rows, _reference_errors(rows))(np.ones((1, rows.case.size)))[0])

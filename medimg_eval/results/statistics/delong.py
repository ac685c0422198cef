"""Areas under ROC curves of models on the same cases, with their covariance: DeLong's test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from medimg_eval.results.statistics.paired_tests import Sides

if TYPE_CHECKING:
    import numpy.typing as npt


class Areas(NamedTuple):
    """Areas under the ROC curves of several models on the same cases.

    Attributes:
        areas: (model,), the mean over labels; NaN where no label has cases with and without it.
        covariance: (model, model), of the areas; NaN where fewer than two patients have a label, or have not.
        labels: How many have cases of both kinds; the others are left out.
    """

    areas: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    labels: int

    def difference(self, first: int, second: int) -> Difference:
        """Returns the difference between the areas of two models, by their places, and its test."""
        from scipy.stats import norm

        gap = float(self.areas[first] - self.areas[second])
        chosen = self.covariance[np.ix_([first, second], [first, second])]
        error = float(np.sqrt(max(chosen[0, 0] + chosen[1, 1] - 2 * chosen[0, 1], 0.0)))
        if np.isnan(gap) or np.isnan(error):
            return Difference(gap, np.nan, Sides(np.nan, np.nan, np.nan, False))
        if error < 1e-12:
            # Two models that order all cases alike; or two without any spread, of which nothing can be said.
            p = 1.0 if abs(gap) < 1e-12 else np.nan
            return Difference(gap, 0.0, Sides(p, p, p, False))
        z = gap / error
        return Difference(gap, error, Sides(float(norm.sf(z)), float(norm.cdf(z)), float(2 * norm.sf(abs(z))), False))


class Difference(NamedTuple):
    """A difference between two areas, its standard error, and the p-values of its normal test."""

    value: float
    error: float
    p: Sides


def correlated_areas(
    scores: npt.ArrayLike, truth: npt.ArrayLike, patients: npt.ArrayLike, labels: npt.ArrayLike | None = None
) -> Areas:
    """Returns the areas under the ROC curves of models judged on the same cases, with DeLong's covariance.

    An area is the probability that a case with the label is scored above one without it, ties counted one half. What
    each case adds to it is found from mid-ranks. Where patients have several cases, what these add is summed first,
    as Obuchowski does for clustered data; with one case each this is DeLong's estimate.

    Of several labels the mean of their areas is taken. Its covariance follows from the same sums, what a patient adds
    to any of the labels taken together.

    Source: DeLong, DeLong and Clarke-Pearson, Biometrics 1988; mid-ranks: Sun and Xu, IEEE Signal Processing Letters
    2014; clusters: Obuchowski, Biometrics 1997.

    Args:
        scores: (model, row), finite; higher means more likely present.
        truth: (row,), True where the label is present.
        patients: (row,): the patient (or other independent unit) of each row.
        labels: (row,): the label that it is about; None where there is one.

    >>> found = correlated_areas([[0.1, 0.4, 0.35, 0.8]], [False, False, True, True], ["a", "b", "c", "d"])
    >>> found.areas.tolist()
    [0.75]
    """
    values, present = np.atleast_2d(np.asarray(scores, dtype=np.float64)), np.asarray(truth, dtype=bool)
    owners = np.unique(np.asarray(patients), return_inverse=True)[1] if present.size else np.zeros(0, dtype=np.intp)
    kinds = np.zeros(present.size) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    size = int(owners.max()) + 1 if owners.size else 0
    areas, parts = [], []
    for kind in np.unique(kinds):
        chosen = kinds == kind
        if 0 < present[chosen].sum() < chosen.sum():
            area, added = _of_label(values[:, chosen], present[chosen], owners[chosen], size)
            areas.append(area)
            parts.append(added)
    count = len(values)
    if not areas:
        return Areas(np.full(count, np.nan), np.full((count, count), np.nan), 0)
    with_, without, scaled_with, scaled_without = (np.asarray(part) for part in np.sum(parts, axis=0))
    across = with_ @ without.T
    factor = size / (size - 1) if size > 1 else np.nan
    covariance = scaled_with @ scaled_with.T + scaled_without @ scaled_without.T + factor * (across + across.T)
    return Areas(np.mean(areas, axis=0), covariance / len(areas) ** 2, len(areas))


def _of_label(
    scores: npt.NDArray[np.float64], present: npt.NDArray[np.bool_], owners: npt.NDArray[np.intp], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the areas of one label, (model,), and what each patient adds, (4, model, patient).

    The four are by cases with the label and by those without it, as they are and scaled for the number of patients.
    """
    from scipy.stats import rankdata

    yes, no = scores[:, present], scores[:, ~present]
    many, few = yes.shape[1], no.shape[1]
    ranks = rankdata(scores, axis=1)
    above = (ranks[:, present] - rankdata(yes, axis=1)) / few
    below = 1 - (ranks[:, ~present] - rankdata(no, axis=1)) / many
    area = above.mean(axis=1)
    added = []
    for one, who in ((above, owners[present]), (below, owners[~present])):
        centred = (one - area[:, None]) / one.shape[1]
        added.append(np.array([np.bincount(who, weights=row, minlength=size) for row in centred]))
    patients = [np.unique(owners[present]).size, np.unique(owners[~present]).size]
    scales = [np.sqrt(number / (number - 1)) if number > 1 else np.nan for number in patients]
    return area, np.stack([*added, *(scale * one for scale, one in zip(scales, added, strict=True))])

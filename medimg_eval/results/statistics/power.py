"""How small a difference a comparison could have found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

POWER = 0.8
"""How often a detectable difference is found."""


def detectable_difference(
    differences: npt.ArrayLike, patients: npt.ArrayLike, *, alpha: float = 0.05, power: float = POWER
) -> float:
    """Returns the smallest true mean difference that a two-sided paired t-test finds with the power asked for.

    The test is that of as many patients with as much spread between them as were seen. With one pair each, the spread
    is the standard deviation of the differences; with several, the standard error of the mean is that of clusters:
    what the differences of each patient add up to, less what their mean would make of as many. The non-central t
    distribution gives the effect, so that few patients are not promised too much.

    Source: Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), chapter 2; the error of clusters:
    Rao and Scott, Biometrics 1992 (a ratio of sums over clusters).

    Args:
        differences: (pair,), finite.
        patients: (pair,): the patient (or other independent unit) of each.
        alpha: Of the test, without correction for the number of tests.
        power: The probability of finding such a difference.

    Returns:
        In the unit of the differences; NaN below two patients.

    >>> round(detectable_difference([0.1, 0.3, -0.1, 0.1, 0.2, 0.0], ["a", "b", "c", "d", "e", "f"]), 3)
    0.203
    """
    from scipy.special import nctdtrinc
    from scipy.stats import t

    values = np.asarray(differences, dtype=np.float64)
    owner = np.unique(np.asarray(patients), return_inverse=True)[1] if values.size else np.zeros(0, dtype=np.intp)
    size = int(owner.max()) + 1 if values.size else 0
    if size < 2:
        return float("nan")
    left = np.bincount(owner, weights=values - values.mean())
    error = float(np.sqrt(size / (size - 1) * (left**2).sum())) / values.size
    return float(nctdtrinc(size - 1, 1 - power, t.isf(alpha / 2, size - 1))) * error


def detectable_of_error(error: float, *, alpha: float = 0.05, power: float = POWER) -> float:
    """Returns the same for an estimate with a known standard error and a normal test, such as DeLong's.

    >>> round(detectable_of_error(0.01), 4)
    0.028
    """
    from scipy.stats import norm

    return float(norm.isf(alpha / 2) + norm.ppf(power)) * error

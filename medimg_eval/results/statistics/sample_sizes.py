"""How many cases an interval needs to be narrow enough, or to lie beyond a bound often enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.proportions import FEW_TRIALS, exact_interval, wilson_interval

Value = Literal["proportion", "mean", "auroc", "difference"]
"""What is estimated: a share of yes, a mean of numbers, an area under the ROC curve, a mean of paired differences."""
VALUES: tuple[Value, ...] = get_args(Value)

MOST: Final = 1_000_000
"""Cases that are looked for at most."""


@dataclass(frozen=True)
class Design:
    """Expected distribution of a value, for sample size planning.

    Attributes:
        value: What is estimated.
        expected: Its true value, as far as one can tell.
        sd: Of a mean or a difference: the standard deviation between cases. Of an area: the square root of the number
            of cases times its variance, as a pilot has it; NaN takes Hanley and McNeil's.
        prevalence: Of an area: the share of cases with the finding.
        level: Coverage of the two-sided interval, whose one bound is then judged at (1 - level) / 2.

    Raises:
        ValueError: A number is out of its range.
    """

    value: Value
    expected: float
    sd: float = math.nan
    prevalence: float = 0.5
    level: float = 0.95

    def __post_init__(self) -> None:
        """Refuses what no value can be."""
        if self.value in ("proportion", "auroc") and not 0 < self.expected < 1:
            raise ValueError(f"Expected a {self.value} between 0 and 1, got {self.expected}")
        if self.value in ("mean", "difference") and not 0 < self.sd < math.inf:
            raise ValueError(f"Expected the sd of a {self.value} to be above 0, got {self.sd}")
        if not 0 < self.prevalence < 1:
            raise ValueError(f"Expected a prevalence between 0 and 1, got {self.prevalence}")
        if not 0 < self.level < 1:
            raise ValueError(f"Expected a level between 0 and 1, got {self.level}")

    def error(self, number: int) -> float:
        """The standard error of the value on so many cases.

        Source of that of an area without a pilot: Hanley and McNeil, Radiology 1982 (what two cases with, or without,
        the finding have in common follows from the area alone).
        """
        if self.value == "proportion":
            return math.sqrt(self.expected * (1 - self.expected) / number)
        if self.value != "auroc" or not math.isnan(self.sd):
            return self.sd / math.sqrt(number)
        area = self.expected
        of_positives, of_negatives = area / (2 - area), 2 * area**2 / (1 + area)
        yes, no = number * self.prevalence, number * (1 - self.prevalence)
        spread = area * (1 - area) + (yes - 1) * (of_positives - area**2) + (no - 1) * (of_negatives - area**2)
        return math.sqrt(max(spread, 0.0) / (yes * no))

    def half_width(self, number: int) -> float:
        """Half-width by cases: Wilson, Student or normal."""
        if self.value == "proportion":
            low, high = wilson_interval(self.expected * number, number, self.level)
            return (high - low) / 2
        return self._quantile(1 - (1 - self.level) / 2, number) * self.error(number)

    def power(self, number: int, bound: float) -> float:
        """Probability that the interval clears a bound, by cases.

        A share is counted out: the interval is Wilson's, or the exact one where a table prints that, over the binomial
        distribution of right answers. A mean has the power of the one-sided t-test, an area that of the normal test.
        """
        if self.value == "proportion":
            share, limit = (self.expected, bound) if self.expected > bound else (1 - self.expected, 1 - bound)
            return float(_share_power(np.array([number]), share, limit, self.level)[0])
        gap, tail = abs(self.expected - bound) / self.error(number), (1 - self.level) / 2
        if self.value == "auroc":
            from scipy.stats import norm

            return float(norm.sf(norm.isf(tail) - gap))
        from scipy.stats import nct, t

        return float(nct.sf(t.isf(tail, number - 1), number - 1, gap))

    def cases_for_precision(self, half_width: float) -> int:
        """Least cases for an expected interval of value +- half_width.

        Raises:
            ValueError: The half width is not above 0, or more than `MOST` cases are needed.

        >>> Design("proportion", 0.9).cases_for_precision(0.05)
        141
        """
        if not half_width > 0:
            raise ValueError(f"Expected the half width to be above 0, got {half_width}")
        return self._least(lambda number: self.half_width(number) <= half_width)

    def cases_for_bound(self, bound: float, power: float = 0.8) -> int:
        """Least cases from which the interval clears a bound reliably.

        The power of a share goes up and down from one number to the next; the number is the one behind the last that is
        too few.

        Raises:
            ValueError: The bound is the expected value, the power no share, or more than `MOST` cases are needed.

        >>> Design("proportion", 0.9).cases_for_bound(0.8)
        112
        >>> Design("mean", 0.85, sd=0.1).cases_for_bound(0.8)
        34
        """
        if self.expected == bound:
            raise ValueError(f"The expected value is the bound itself, {bound}: no number of cases lies beyond it")
        if not 0 < power < 1:
            raise ValueError(f"Expected a power between 0 and 1, got {power}")
        cases = self._least(lambda number: self.power(number, bound) >= power)
        return cases if self.value != "proportion" else self._beyond_teeth(cases, bound, power)

    def _beyond_teeth(self, found: int, bound: float, power: float) -> int:
        share, limit = (self.expected, bound) if self.expected > bound else (1 - self.expected, 1 - bound)
        numbers = np.arange(1, 2 * found + 200)
        short = np.flatnonzero(_share_power(numbers, share, limit, self.level) < power)
        return int(numbers[short[-1]]) + 1

    def _quantile(self, share: float, number: int) -> float:
        from scipy.special import ndtri, stdtrit

        return float(ndtri(share) if self.value == "auroc" else stdtrit(number - 1, share))

    def _least(self, enough: Callable[[int], bool]) -> int:
        """The least number that is enough, where all above it are, too."""
        low = 1 if self.value == "proportion" else 2
        if self.value == "auroc":
            low = math.ceil(2 / min(self.prevalence, 1 - self.prevalence))
        high = low
        while not enough(high):
            if high > MOST:
                raise ValueError(f"More than {MOST:,} cases would be needed; the margin is too small to be shown")
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return low if enough(low) else high


def _share_power(numbers: npt.NDArray[np.int64], share: float, limit: float, level: float) -> npt.NDArray[np.float64]:
    """Probability that a share's lower bound reaches a limit: (number,)."""
    from scipy.special import bdtrc, ndtri

    z = float(ndtri((1 + level) / 2))
    # Wilson's lower bound is the share that a test just does not reject, so the test itself can be asked.
    least = np.ceil(numbers * limit + z * np.sqrt(numbers * limit * (1 - limit)) - 1e-9)
    all_right = ((1 - level) / 2) ** (1 / numbers) >= limit  # where all count the exact interval is printed
    least = np.where(least < numbers, least, np.where(all_right, numbers, numbers + 1))
    for index in np.flatnonzero(numbers <= FEW_TRIALS):
        number = int(numbers[index])
        enough = [count for count in range(number + 1) if exact_interval(count, number, level)[0] >= limit]
        least[index] = min(enough, default=number + 1)
    indices = np.where(least > numbers, 0.0, bdtrc(np.minimum(least, numbers) - 1, numbers, share))
    return np.asarray(indices, dtype=np.float64)


def largest_sd(expected: float, low: float, high: float) -> float:
    """Largest standard deviation in an interval, given the mean.

    Source: Bhatia and Davis, American Mathematical Monthly 2000.

    Raises:
        ValueError: The mean does not lie between the ends.

    >>> largest_sd(0.5, 0.0, 1.0)
    0.5
    """
    if not low < expected < high:
        raise ValueError(f"Expected a mean between {low:g} and {high:g}, got {expected}")
    return math.sqrt((high - expected) * (expected - low))


def sd_of_differences(gap: float, discordant: float) -> float:
    """Standard deviation of paired yes-no differences, from discordance.

    Raises:
        ValueError: Fewer pairs differ than the gap makes necessary, or more than all.

    >>> round(sd_of_differences(0.1, 0.26), 4)
    0.5
    """
    if not abs(gap) < discordant <= 1:
        raise ValueError(f"Expected the share of pairs that differ to lie between {abs(gap):g} and 1, got {discordant}")
    return math.sqrt(discordant - gap**2)


def cautious_sd(sd: float, number: int, confidence: float = 0.8) -> float:
    """Upper confidence limit of a pilot's standard deviation.

    Source: Browne, Statistics in Medicine 1995.

    Args:
        sd: That of the pilot.
        number: Independent cases of the pilot, at least 2.
        confidence: How often the true one is at most this.

    >>> round(cautious_sd(0.1, 20), 4)
    0.1177
    """
    from scipy.special import chdtri

    return sd * math.sqrt((number - 1) / float(chdtri(number - 1, confidence)))

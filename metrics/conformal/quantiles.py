"""Quantiles of conformal scores, and how coverage spreads around what was asked for."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence


def _quantile_order(number: int, alpha: float) -> int:
    """Returns ceil((n + 1)(1 - alpha)), robust to float rounding."""
    return math.ceil((number + 1) * (1 - alpha) - 1e-9)


def check_alpha(alpha: float) -> None:
    """Raises ValueError unless the miss rate is in (0, 1)."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is invalid: expected a share between 0 and 1, such as 0.1, got {alpha}")


def conformal_quantile(scores: npt.ArrayLike, alpha: float) -> float:
    """Conformal quantile: the ceil((n + 1)(1 - alpha))-th smallest score.

    Infinite where there are too few. A score that is NaN counts as infinite: a case without an answer
    conforms to nothing. Scores are (case,).

    Raises:
        ValueError: alpha is not between 0 and 1.

    >>> scores = [0.05, 0.1, 0.12, 0.2, 0.25, 0.3, 0.4, 0.55, 0.7]
    >>> [conformal_quantile(scores, alpha) for alpha in (0.1, 0.2, 0.05)]
    [0.7, 0.55, inf]

    Source: Vovk et al., Algorithmic Learning in a Random World, 2005; Lei et al., JASA 2018.
    """
    check_alpha(alpha)
    ordered = np.sort(np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=math.inf))
    rank = _quantile_order(ordered.size, alpha)
    return float(ordered[rank - 1]) if rank <= ordered.size else math.inf


def fewest_cases(alpha: float) -> int:
    """Returns the fewest calibration cases: ceil(1 / alpha) - 1.

    Fewer give no finite quantile.

    >>> fewest_cases(0.1), fewest_cases(0.05)
    (9, 19)
    """
    check_alpha(alpha)
    return math.ceil(1 / alpha - 1e-9) - 1


def group_quantiles(scores: npt.ArrayLike, groups: Sequence[Hashable], alpha: float) -> Mapping[Hashable, float]:
    """Returns each group's own conformal quantile (Mondrian).

    Infinite for a group that is too small.

    Raises:
        ValueError: there are not as many groups as scores, or alpha is not between 0 and 1.

    Source: Vovk, Asian Conference on Machine Learning 2012 (conditional validity).
    """
    values, names = np.asarray(scores, dtype=np.float64), np.asarray(groups, dtype=object)
    if values.shape != names.shape:
        raise ValueError(f"groups is invalid: expected one for each of {values.size} scores, got {names.size}")
    return {name: conformal_quantile(values[names == name], alpha) for name in dict.fromkeys(names.tolist())}


def coverage_interval(calibration: int, evaluated: int, alpha: float, level: float = 0.95) -> tuple[float, float]:
    """Returns the interval of coverage expected by chance alone.

    This holds where cases are exchangeable and scores have no ties. Coverage of so many evaluated cases is
    beta-binomial: the true coverage of one calibration sample of n cases is Beta(n + 1 - l, l) with l = floor((n + 1)
    alpha). (1, 1) where no quantile is finite.

    >>> [round(end, 3) for end in coverage_interval(1000, 10_000, 0.1)]
    [0.88, 0.919]

    Source: Vovk 2012; Angelopoulos & Bates, Foundations and Trends in Machine Learning 2023, arXiv 2107.07511.
    """
    from scipy.stats import betabinom

    rank = _quantile_order(calibration, alpha)
    if rank > calibration:
        return 1.0, 1.0
    ends = betabinom.ppf([(1 - level) / 2, (1 + level) / 2], evaluated, rank, calibration + 1 - rank)
    return float(ends[0]) / evaluated, float(ends[1]) / evaluated

"""Control charts: whether values of one period after another vary by chance alone, or something has changed.

Sources: Montgomery, Introduction to Statistical Quality Control (7th edition, 2012), chapters 6, 7 and 9; Laney,
Quality Engineering 2002; the rules are those of Western Electric, Statistical Quality Control Handbook (1956).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Chart = Literal["p", "laney", "xbar", "individuals", "ewma", "cusum"]
CHARTS: tuple[Chart, ...] = get_args(Chart)

LIMIT = "beyond a limit"
TWO_OF_THREE = "2 of 3 beyond 2 sigma"
FOUR_OF_FIVE = "4 of 5 beyond 1 sigma"
EIGHT = "8 in a row on one side"
RULES = (LIMIT, TWO_OF_THREE, FOUR_OF_FIVE, EIGHT)
"""Rules of Western Electric. Without any change one period in 370 breaks the first, and one in 92 any of them."""

WEIGHT, WIDTH = 0.2, 2.86
"""Of a new value in an EWMA, and its limits in sigma: without a change one in 370 periods is beyond them."""
SLACK, DECISION = 0.5, 4.77
"""Of a CUSUM, in sigma: half the shift that it is to find, and its limit; without a change one alarm in 370 periods."""
D2 = 2 / math.sqrt(math.pi)
"""Mean range of two normal values, in sigma: 1.128."""


class Charted(NamedTuple):
    """A control chart, each array (period,).

    Attributes:
        plotted: what the chart shows; of a CUSUM the larger of the sums upwards and downwards, with its sign.
        centre: of the baseline.
        low: the limits.
        high: see low.
        z: how many sigma what is plotted lies from the centre; of an EWMA its own sigma; NaN of a CUSUM.
    """

    plotted: Floats
    centre: float
    low: Floats
    high: Floats
    z: Floats


def control_chart(
    kind: Chart, means: npt.ArrayLike, sizes: npt.ArrayLike, deviations: npt.ArrayLike, baseline: int
) -> Charted:
    """Returns a chart whose centre and limits come from the first periods.

    Sigma of a period is, by kind: of `p` that of a share, sqrt(p (1 - p) / n); of `laney` the same times the spread
    between periods over it, so that patients who are more alike, or less, than draws of chance move the limits; of
    `xbar` the pooled standard deviation within periods over sqrt(n); of `individuals` the mean moving range over 1.128.
    `ewma` and `cusum` take that of `xbar` where there are deviations, else that of `individuals`.

    Args:
        kind: of chart.
        means: (period,), a share of yes, a mean, or the value of a period.
        sizes: (period,), values that each rests on, above 0.
        deviations: (period,), the standard deviation of these values (n - 1); NaN where there is none.
        baseline: how many of the first periods are taken for in control, at least 2.

    Raises:
        ValueError: there are too few periods, or the baseline has no spread.
    """
    values, counts = np.asarray(means, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    spreads = np.asarray(deviations, dtype=np.float64)
    if not 2 <= baseline <= values.size:
        raise ValueError(f"Expected a baseline of 2 to {values.size} periods, got {baseline}")
    if np.isnan(values).any() or (counts <= 0).any():
        raise ValueError("Expected every period to have a value")
    by_size = kind in ("p", "laney", "xbar") or (kind != "individuals" and not np.isnan(spreads).all())
    weights = counts[:baseline] if by_size else np.ones(baseline)
    centre = float(np.average(values[:baseline], weights=weights))
    sigma = _period_sigma(kind, values, counts, spreads, centre, baseline)
    if not (sigma > 0).all():
        raise ValueError("the periods of the baseline do not differ, so there is nothing to make limits of")
    z = (values - centre) / sigma
    if kind == "ewma":
        return _ewma_chart(values, centre, sigma)
    if kind == "cusum":
        return _cusum_chart(z)
    low, high = centre - 3 * sigma, centre + 3 * sigma
    if kind in ("p", "laney"):
        low, high = np.maximum(low, 0), np.minimum(high, 1)
    return Charted(values, centre, low, high, z)


def _period_sigma(kind: Chart, values: Floats, counts: Floats, spreads: Floats, centre: float, baseline: int) -> Floats:
    """The standard deviation of each period's value."""
    if kind in ("p", "laney"):
        alone = np.sqrt(centre * (1 - centre) / counts)
        if kind == "p" or not (alone > 0).all():
            return alone
        z = (values[:baseline] - centre) / alone[:baseline]
        return alone * float(np.abs(np.diff(z)).mean()) / D2
    own, number = spreads[:baseline], counts[:baseline]
    is_known = ~np.isnan(own) & (number > 1)
    if kind == "individuals" or not is_known.any():
        moving = float(np.abs(np.diff(values[:baseline])).mean()) / D2
        return np.full(values.shape, moving)
    pooled = math.sqrt(float(((number - 1) * own**2)[is_known].sum() / (number - 1)[is_known].sum()))
    return pooled / np.sqrt(counts)


def _ewma_chart(values: Floats, centre: float, sigma: Floats) -> Charted:
    plotted, variance = np.empty_like(values), np.empty_like(values)
    last, spread = centre, 0.0
    for index, (value, error) in enumerate(zip(values.tolist(), sigma.tolist(), strict=True)):
        last = WEIGHT * value + (1 - WEIGHT) * last
        spread = WEIGHT**2 * error**2 + (1 - WEIGHT) ** 2 * spread
        plotted[index], variance[index] = last, spread
    reach = np.sqrt(variance)
    return Charted(plotted, centre, centre - WIDTH * reach, centre + WIDTH * reach, (plotted - centre) / reach)


def _cusum_chart(z: Floats) -> Charted:
    up, down = np.zeros_like(z), np.zeros_like(z)
    above = below = 0.0
    for index, value in enumerate(z.tolist()):
        above, below = max(0.0, above + value - SLACK), max(0.0, below - value - SLACK)
        up[index], down[index] = above, below
    plotted = np.where(up >= down, up, -down)
    ends = np.full(z.shape, DECISION)
    return Charted(plotted, 0.0, -ends, ends, np.full(z.shape, np.nan))


def violations(chart: Charted) -> list[list[str]]:
    """Returns rules that periods break, where each becomes visible.

    A CUSUM and an EWMA remember former periods themselves, so that of them only the limits count: pass those with `z`
    as NaN, or take the first rule alone.
    """
    rules: list[list[str]] = []
    for index in range(chart.plotted.size):
        value = chart.plotted[index]
        broken = [LIMIT] if value < chart.low[index] or value > chart.high[index] else []
        z = chart.z[: index + 1]
        broken += [rule for rule, size, of, sigma in _PATTERNS if _pattern_signals(z, size, of, sigma)]
        rules.append(broken)
    return rules


_PATTERNS = ((TWO_OF_THREE, 2, 3, 2.0), (FOUR_OF_FIVE, 4, 5, 1.0), (EIGHT, 8, 8, 0.0))


def _pattern_signals(z: Floats, least: int, of: int, sigma: float) -> bool:
    """Whether enough recent periods deviate to one side."""
    last = z[-of:]
    if last.size < least:
        return False
    return any(last[-1] * side > sigma and int((last * side > sigma).sum()) >= least for side in (1, -1))

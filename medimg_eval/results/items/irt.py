"""The two-parameter logistic model of item response theory, for few models and many items."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEWEST_MODELS = 10
"""Of fewer models no parameters are estimated: slopes are then hardly more than their prior."""
FEWEST_ITEMS = 5
"""Items that some model answers right and another wrong, below which there is nothing to estimate abilities from."""
FLAT = 0.2
"""Of an item whose slope is not above this the place is not told: far off, if the curve meets one half at all."""

_NODES = 11
_SLOPE_MEAN, _SLOPE_SPREAD, _INTERCEPT_SPREAD = 1.0, 0.5, 2.0
_MOST_HELD = 1 << 21
"""Numbers held at a time: of each model, node and item."""


class TwoParameters(NamedTuple):
    """Estimates of `fit_two_parameters`.

    Attributes:
        slope: (item,): how sharply the item tells able models from others; NaN where all answers are equal.
        place: (item,): the ability at which it is answered right half of the time; NaN where it is flat, too.
        ability: (model,): posterior mean, where models are spread with mean 0 and deviation 1.
        uncertainty: (model,): its posterior standard deviation.
        steps: Of the estimation.
        settled: Whether the parameters had come to rest.
    """

    slope: Floats
    place: Floats
    ability: Floats
    uncertainty: Floats
    steps: int
    settled: bool


def fit_two_parameters(values: Floats, *, most_steps: int = 1000, tolerance: float = 1e-3) -> TwoParameters:
    """Fits 2PL item response theory to rights and wrongs.

    Definition: model m answers item i right with probability 1 / (1 + exp(-a_i (t_m - b_i))). Slopes a and intercepts
    c = -a b maximise the likelihood with abilities t integrated out over the standard normal distribution, times
    normal priors, a with mean 1 and deviation 0.5, c with mean 0 and deviation 2, which keep few models from sending
    them to infinity. A slope may be negative. EM as in Bock & Aitkin, Psychometrika 46 (1981), with Gauss-Hermite nodes
    laid about each model's own posterior (Naylor & Smith, Applied Statistics 31, 1982): thousands of items make it
    narrower than the gaps of nodes that are the same for all.

    Args:
        values: (model, item): 1 right, 0 wrong, credits between as so much of a right answer; NaN where there is none.
        most_steps: At most so many steps of EM.
        tolerance: It stops when no parameter changes by more in a step.

    Returns:
        The estimates; all NaN where fewer than `FEWEST_ITEMS` items tell models apart.

    Raises:
        ValueError: If there are fewer than `FEWEST_MODELS` models, or values outside 0 to 1.
    """
    if values.ndim != 2 or values.shape[0] < FEWEST_MODELS:
        raise ValueError(f"Expected `values` to have at least {FEWEST_MODELS} models, got shape {values.shape}")
    is_known = ~np.isnan(values)
    if ((values < 0) | (values > 1)).any():
        raise ValueError("Expected `values` to lie between 0 and 1")
    filled = np.where(is_known, values, 0.0)
    totals = filled.sum(axis=0)
    low, high = np.where(is_known, values, np.inf).min(axis=0), np.where(is_known, values, -np.inf).max(axis=0)
    telling = np.flatnonzero(low < high)
    slope, difficulty = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    ability, uncertainty = np.full(len(values), np.nan), np.full(len(values), np.nan)
    if len(telling) < FEWEST_ITEMS:
        return TwoParameters(slope, difficulty, ability, uncertainty, 0, True)
    answers = _Answers(filled[:, telling], is_known[:, telling].astype(np.float64))
    shares = (totals[telling] + 0.5) / (is_known[:, telling].sum(axis=0) + 1)
    parameters = np.stack([np.ones(len(telling)), np.log(shares / (1 - shares))])
    ability, uncertainty = answers.start()
    steps, settled = 0, False
    while steps < most_steps and not settled:
        steps += 1
        before = parameters
        nodes, weights = answers.posterior(parameters, ability, uncertainty)
        ability = (weights * nodes).sum(axis=1)
        uncertainty = np.sqrt((weights * (nodes - ability[:, None]) ** 2).sum(axis=1))
        uncertainty = np.maximum(uncertainty, 1e-3)
        parameters = answers.improved(parameters, nodes, weights)
        settled = bool(np.abs(parameters - before).max() < tolerance)
    slope[telling] = parameters[0]
    sharp = parameters[0] > FLAT
    difficulty[telling[sharp]] = -parameters[1][sharp] / parameters[0][sharp]
    return TwoParameters(slope, difficulty, ability, uncertainty, steps, settled)


class _Answers(NamedTuple):
    """Known right answers, (model, item), with EM's two steps."""

    right: Floats
    known: Floats

    def start(self) -> tuple[Floats, Floats]:
        """Returns starting abilities from shares right, with uncertainty."""
        shares = (self.right.sum(axis=1) + 0.5) / (self.known.sum(axis=1) + 1)
        ability = np.log(shares / (1 - shares))
        spread = float(ability.std())
        return (ability - ability.mean()) / (spread or 1.0), np.full(len(ability), 0.5)

    def slices(self, nodes: int) -> Iterator[slice]:
        """Yields runs of items of which all models and nodes fit into memory."""
        models, items = self.right.shape
        size = max(1, _MOST_HELD // (models * nodes))
        return (slice(start, start + size) for start in range(0, items, size))

    def posterior(self, found: Floats, ability: Floats, uncertainty: Floats) -> tuple[Floats, Floats]:
        """Returns ability nodes and posterior weights by model, (model, node)."""
        at, weight = np.polynomial.hermite_e.hermegauss(_NODES)
        nodes = ability[:, None] + uncertainty[:, None] * at
        logs = np.log(weight) + at**2 / 2 - nodes**2 / 2
        for some in self.slices(_NODES):
            logits = nodes[:, :, None] * found[0, some] + found[1, some]
            # Right answers add log p = logit - log(1 + exp(logit)), wrong ones the second part alone.
            logs = logs + np.einsum("mqi,mi->mq", logits, self.right[:, some], optimize=True)
            logs = logs - np.einsum("mqi,mi->mq", np.logaddexp(0, logits), self.known[:, some], optimize=True)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return nodes, weights / weights.sum(axis=1, keepdims=True)

    def improved(self, found: Floats, nodes: Floats, weights: Floats) -> Floats:
        """Returns slopes and intercepts, (2, item), after a Newton step."""
        from scipy.special import expit

        improved = np.empty_like(found)
        for some in self.slices(_NODES):
            slope, intercept = found[:, some]
            chance = expit(nodes[:, :, None] * slope + intercept)
            is_known = self.known[:, None, some]
            residuals = weights[:, :, None] * (self.right[:, None, some] - is_known * chance)
            curved = weights[:, :, None] * is_known * chance * (1 - chance)
            up_slope = np.einsum("mqi,mq->i", residuals, nodes) - (slope - _SLOPE_MEAN) / _SLOPE_SPREAD**2
            up = residuals.sum(axis=(0, 1)) - intercept / _INTERCEPT_SPREAD**2
            both = np.einsum("mqi,mq->i", curved, nodes)
            of_slope = np.einsum("mqi,mq->i", curved, nodes**2) + 1 / _SLOPE_SPREAD**2
            of_intercept = curved.sum(axis=(0, 1)) + 1 / _INTERCEPT_SPREAD**2
            area = of_slope * of_intercept - both**2
            step = np.stack([of_intercept * up_slope - both * up, of_slope * up - both * up_slope]) / area
            improved[:, some] = found[:, some] + np.clip(step, -1.0, 1.0)
        return improved

"""Answers that were not asked for, estimated from those that were: the Rasch model, and whom to ask for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rasch:
    """Abilities of models and difficulties of items, on one scale of log odds.

    Attributes:
        abilities: float64, (model,).
        difficulties: float64, (item,).
    """

    abilities: Floats
    difficulties: Floats

    @property
    def probabilities(self) -> Floats:
        """Probability of right answers, (model, item), between 0 and 1."""
        odds: Floats = 1 / (1 + np.exp(self.difficulties[None] - self.abilities[:, None]))
        return odds


def fit_rasch(right: npt.ArrayLike, *, prior: float = 2.0) -> Rasch:
    """Fits the Rasch model to answers by the mode of its posterior.

    Args:
        right: (model, item), 1 for right, 0 for wrong, NaN for not asked; shares of repeats are taken, too.
        prior: standard deviation of the normal priors of abilities and difficulties, in log odds. It keeps items that
            all models answer right, or wrong, from running away; LiveXiv's program has none.

    Raises:
        UsageError: the table has another shape, values outside of 0 and 1, or no answer.

    Source: Rasch 1960; LiveXiv (Shabtay et al. 2024), efficient re-evaluation.
    """
    from scipy.optimize import minimize

    table = np.asarray(right, float)
    is_asked = ~np.isnan(table)
    if table.ndim != 2 or not is_asked.any() or np.any((table[is_asked] < 0) | (table[is_asked] > 1)):
        raise UsageError(
            "right: expected a table of models and items with values from 0 to 1, NaN where nothing was asked"
        )
    models = len(table)
    value = np.where(is_asked, table, 0.0)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        margin = parameters[:models, None] - parameters[None, models:]
        loss = np.where(is_asked, np.logaddexp(0, margin) - value * margin, 0.0).sum()
        slope = np.where(is_asked, 1 / (1 + np.exp(-margin)) - value, 0.0)
        gradient = np.concatenate([slope.sum(1), -slope.sum(0)]) + parameters / prior**2
        return float(loss + (parameters @ parameters) / (2 * prior**2)), gradient

    solution = minimize(
        loss,
        np.zeros(sum(table.shape)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "gtol": 1e-4, "ftol": 1e-12},
    )
    return Rasch(solution.x[:models], solution.x[models:])


def informative_models(fit: Rasch, count: int) -> list[int]:
    """Most informative models for new items: ascending indices.

    About as many difficulties as models are wanted, from the fifth to the 95th percentile, each asks for the model
    whose answer to it is least certain (largest p (1 - p)); a model that several ask for leaves a place to the one that
    is farthest in ability from those chosen, on average.

    Raises:
        UsageError: more models are wanted than there are.

    Source: LiveXiv (Shabtay et al. 2024), efficient re-evaluation.
    """
    if not 1 <= count <= len(fit.abilities):
        raise UsageError(f"count={count}: expected 1 to {len(fit.abilities)}, the number of models")
    centres = np.percentile(fit.difficulties, np.linspace(5, 95, count))
    items = [int(np.argmin(np.abs(fit.difficulties - centre))) for centre in centres]
    information = fit.probabilities * (1 - fit.probabilities)
    chosen = sorted({int(np.argmax(information[:, item])) for item in items})
    while len(chosen) < count:
        apart = np.abs(fit.abilities[:, None] - fit.abilities[chosen]).mean(1)
        apart[chosen] = -1
        chosen.append(int(np.argmax(apart)))
    return sorted(chosen)


def completed(right: npt.ArrayLike, *, prior: float = 2.0) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Answers completed with probabilities, (model, item), and their mask.

    Means of its rows estimate the models' accuracies on all items. They are estimates: print them with the share of
    cells that were asked.

    Raises:
        UsageError: as `fit_rasch`.
    """
    table = np.asarray(right, float)
    estimated = np.isnan(table)
    return np.where(estimated, fit_rasch(table, prior=prior).probabilities, table), estimated

"""Minimises penalised logistic losses: L-BFGS with a preconditioner that is made once for all penalties.

Near its minimum the Hessian of a logistic loss is about the Gram matrix of the centred features times the mean of
p (1 - p) of a class. Its eigenvectors therefore serve every class and every penalty. Each iteration reads the features
twice, once for the logits of a direction and once for the gradient: steps along a direction need its logits alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MEMORY = 12
"""Pairs of steps and gradients that L-BFGS keeps."""

ROWS_PER_FEATURE = 32
"""A Gram matrix of so many rows for each feature is near enough to that of all."""

CHEAP = 256
"""Up to so many features, the preconditioner is made anew for each penalty."""

ENOUGH = {torch.float64: 1e-12, torch.float32: 1e-9}
"""Relative decrease of the objective below which rounding decides."""


@dataclass
class Solution:
    """Where a minimisation ended: weight, (output, feature), bias, (output,), and how."""

    weight: Tensor
    bias: Tensor
    objective: float
    iterations: int
    converged: bool


class LogisticLoss:
    """Weighted cross entropies of a linear model, with their derivatives along a line.

    Args:
        features: (case, feature), float32 or float64, centred or nearly.
        truth: (case, output) of the same dtype: probabilities of classes.
        weights: of each case, or of each case and output where `exclusive` is false; 0 where nothing is known.
        exclusive: whether outputs go through a softmax; else a sigmoid each.
    """

    def __init__(self, features: Tensor, truth: Tensor, weights: Tensor, *, exclusive: bool) -> None:
        self.features, self.truth, self.weights, self.exclusive = features, truth, weights, exclusive
        self._step = max(1, len(features) // (ROWS_PER_FEATURE * features.shape[1]))
        self.renew(None)

    def renew(self, probabilities: Tensor | None) -> None:
        """Rebuilds the preconditioner: Gram matrix weighted by the loss's curvature."""
        some = self.features[:: self._step]
        if probabilities is None:
            weights = some.new_full((len(some),), 1 / len(some))
        else:
            each = self.weights[:, None] if self.exclusive else self.weights
            weights = (probabilities * (1 - probabilities) * each)[:: self._step].sum(1)
            weights = weights / weights.sum().clamp(min=1e-30)
        self._centre = weights @ some
        away = some - self._centre
        values, self._vectors = torch.linalg.eigh(away.T @ (away * weights[:, None]))
        self._values = values.clamp(min=0)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities that logits stand for."""
        return logits.softmax(1) if self.exclusive else logits.sigmoid()

    def value(self, logits: Tensor) -> float:
        """The sum of weighted losses."""
        if self.exclusive:
            losses = torch.logsumexp(logits, 1) * self.truth.sum(1) - (logits * self.truth).sum(1)
        else:
            losses = torch.nn.functional.softplus(logits) - logits * self.truth
        return float((losses * self.weights).sum(dtype=torch.float64))

    def residual(self, probabilities: Tensor) -> Tensor:
        """The derivative by the logits."""
        each = self.weights[:, None] if self.exclusive else self.weights
        return (probabilities - self.truth) * each

    def slope(self, probabilities: Tensor, direction: Tensor) -> tuple[float, float]:
        """First and second derivative along a direction of logits."""
        first = float((self.residual(probabilities) * direction).sum(dtype=torch.float64))
        moved = probabilities * direction
        if self.exclusive:
            bent = (moved * direction).sum(1) - moved.sum(1).square()
        else:
            bent = moved * direction * (1 - probabilities)
        return first, float((bent * self.weights).sum(dtype=torch.float64))

    def gradient(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients by weights and by biases."""
        return residual.T @ self.features, residual.sum(0)

    def curvature(self, probabilities: Tensor) -> Tensor:
        """Sum of weighted p (1 - p) for each output, (output,)."""
        each = self.weights[:, None] if self.exclusive else self.weights
        return (probabilities * (1 - probabilities) * each).sum(0).clamp(min=1e-6)

    def precondition(self, weight: Tensor, bias: Tensor, curvature: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
        """Applies the approximate inverse Hessian, features centred apart from biases."""
        inner = weight - bias[:, None] * self._centre
        turned = inner @ self._vectors / (curvature[:, None] * self._values + penalty)
        preconditioned = turned @ self._vectors.T
        return preconditioned, bias / curvature - preconditioned @ self._centre


def minimise(
    loss: LogisticLoss,
    penalties: Sequence[float],
    *,
    tolerance: float,
    iterations: int,
) -> list[Solution]:
    """Minimises loss plus penalty / 2 times squared weights, by penalties.

    Args:
        loss: what is summed over cases.
        penalties: of which each start is the end of the one before; from large to small is quickest.
        tolerance: an estimate of how far the objective may be above its minimum, as a share of it.
        iterations: at most, for each penalty.
    """
    width, outputs = loss.features.shape[1], loss.truth.shape[1]
    point = _Point(loss, loss.features.new_zeros(outputs, width), loss.features.new_zeros(outputs))
    solutions, history = [], _History()
    before = None
    for penalty in penalties:
        if before is not None:
            history.shift(penalty - before)
        solutions.append(_minimise_penalty(point, penalty, history, tolerance, iterations))
        before = penalty
    return solutions


class _Point:
    """Where a minimisation stands, with the logits of all cases."""

    def __init__(self, loss: LogisticLoss, weight: Tensor, bias: Tensor) -> None:
        self.loss, self.weight, self.bias = loss, weight, bias
        self.logits = loss.features @ weight.T + bias
        self.probabilities = loss.probabilities(self.logits)

    def gradient(self, penalty: float) -> tuple[Tensor, Tensor]:
        weight, bias = self.loss.gradient(self.loss.residual(self.probabilities))
        return weight + penalty * self.weight, bias

    def objective(self, penalty: float) -> float:
        return self.loss.value(self.logits) + penalty / 2 * float(self.weight.square().sum(dtype=torch.float64))

    def move(self, weight: Tensor, bias: Tensor, penalty: float) -> float:
        """Line search; returns the step length, 0 without descent."""
        along = self.loss.features @ weight.T + bias
        flat = penalty * float((self.weight * weight).sum(dtype=torch.float64))
        steep = penalty * float(weight.square().sum(dtype=torch.float64))
        start, _ = self.loss.slope(self.probabilities, along)
        start += flat
        if start >= 0:
            return 0.0
        low, high, step = 0.0, float("inf"), 1.0
        for _ in range(20):
            probabilities = self.loss.probabilities(self.logits + step * along)
            first, second = self.loss.slope(probabilities, along)
            first, second = first + flat + step * steep, second + steep
            if abs(first) <= 0.1 * abs(start):
                break
            low, high = (step, high) if first < 0 else (low, step)
            newton = step - first / second if second > 0 else float("inf")
            limit = 4 * step if high == float("inf") else high
            step = newton if low < newton < limit else (limit if high == float("inf") else (low + high) / 2)
        self.weight, self.bias = self.weight + step * weight, self.bias + step * bias
        self.logits = self.logits + step * along
        self.probabilities = probabilities
        return step


class _History:
    """Steps and changes of the gradient, from which L-BFGS makes directions."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []
        self.changes: list[tuple[Tensor, Tensor]] = []

    def add(self, step: tuple[Tensor, Tensor], change: tuple[Tensor, Tensor]) -> None:
        if _dot_product(step, change) > 0:
            self.steps, self.changes = [*self.steps, step][-MEMORY:], [*self.changes, change][-MEMORY:]

    def shift(self, penalty: float) -> None:
        """Adapts gradients to another penalty; drops pairs of negative curvature."""
        moved = [(y[0] + penalty * s[0], y[1]) for s, y in zip(self.steps, self.changes, strict=True)]
        pairs = [(s, y) for s, y in zip(self.steps, moved, strict=True) if _dot_product(s, y) > 0]
        self.steps, self.changes = [s for s, _ in pairs], [y for _, y in pairs]

    def direction(self, gradient: tuple[Tensor, Tensor], precondition: Any) -> tuple[Tensor, Tensor]:
        weight, bias = gradient
        shares = []
        for step, change in zip(reversed(self.steps), reversed(self.changes), strict=True):
            share = _dot_product(step, (weight, bias)) / _dot_product(step, change)
            weight, bias = weight - share * change[0], bias - share * change[1]
            shares.append(share)
        weight, bias = precondition(weight, bias)
        for step, change, share in zip(self.steps, self.changes, reversed(shares), strict=True):
            back = _dot_product(change, (weight, bias)) / _dot_product(step, change)
            weight, bias = weight + (share - back) * step[0], bias + (share - back) * step[1]
        return -weight, -bias


def _minimise_penalty(point: _Point, penalty: float, history: _History, tolerance: float, iterations: int) -> Solution:
    """Minimises for one penalty, from where the point stands."""
    gradient, objective = point.gradient(penalty), point.objective(penalty)
    taken, converged = 0, False
    if point.weight.shape[1] <= CHEAP:
        point.loss.renew(point.probabilities)
    for taken in range(iterations + 1):
        curvature = point.loss.curvature(point.probabilities)

        def precondition(weight: Tensor, bias: Tensor, curvature: Tensor = curvature) -> tuple[Tensor, Tensor]:
            return point.loss.precondition(weight, bias, curvature, penalty)

        weight, bias = history.direction(gradient, precondition)
        # Half of what a quadratic model promises from here.
        promised = -_dot_product(gradient, (weight, bias)) / 2
        converged = promised <= tolerance * max(objective, 1e-12)
        if converged or taken == iterations:
            break
        step = point.move(weight, bias, penalty)
        fallen = objective - (now := point.objective(penalty))
        if step == 0 or fallen <= ENOUGH[point.weight.dtype] * abs(objective):
            converged = promised <= max(tolerance, 1e-5) * max(objective, 1e-12)
            objective = now
            break
        objective, before, gradient = now, gradient, point.gradient(penalty)
        history.add((step * weight, step * bias), (gradient[0] - before[0], gradient[1] - before[1]))
    return Solution(point.weight, point.bias, objective, taken, converged)


def _dot_product(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    return float((one[0] * other[0]).sum(dtype=torch.float64) + (one[1] * other[1]).sum(dtype=torch.float64))

"""Cox's proportional hazards on features, with an elastic net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError
from medimg_eval.models.heads.base import Features, Grid, PathHead, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import scaled, scaling_of


@dataclass(kw_only=True)
class CoxNet(PathHead):
    """Maximises the mean Breslow partial likelihood less an elastic net of the weights.

    Minimised is -log L / n + alpha (l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|^2), n being all cases: the objective of
    scikit-survival's `CoxnetSurvivalAnalysis`. Features are scaled by mean and deviation of the cases to fit on. The
    baseline hazard is Breslow's, so that survival at any time can be asked for. Deterministic.

    Args:
        alpha: strength of the penalty.
        l1_ratio: 0 for ridge, 1 for lasso.
        scale: `standard` or `none`.
        tolerance: largest change of a weight at which it has converged, beside the largest weight.
        max_iter: outer iterations at most.

    Raises:
        UsageError: invalid settings.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"survival"})

    alpha: float = 0.02
    l1_ratio: float = 0.5
    scale: str = "standard"
    tolerance: float = 1e-7
    max_iter: int = 200

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        if not (self.alpha >= 0 and 0 <= self.l1_ratio <= 1):
            raise UsageError(f"expected head.alpha from 0 and head.l1_ratio from 0 to 1, got {self.settings()}")

    def fit_path(self, features: Features, targets: Targets, groups: Sequence[str] | None, grid: Grid) -> list[Self]:
        """Fits from the largest alpha on, each from the last weights."""
        heads = [self.changed(change) for change in grid]
        vectors = as_vectors(features).astype(np.float64)
        refuse_absent(targets)
        start = np.zeros(vectors.shape[1])
        scaled_by_kind: dict[str, tuple[Array, Array, Array]] = {}
        risks = _Risks.of(targets.values)
        for index in sorted(range(len(heads)), key=lambda at: -heads[at].alpha):
            head = heads[index]
            if head.scale not in scaled_by_kind:
                mean, deviation = scaling_of(vectors, head.scale)
                scaled_by_kind[head.scale] = (scaled(vectors, mean, deviation), mean, deviation)
            vectors_, mean, deviation = scaled_by_kind[head.scale]
            weight, taken, converged = _newton_steps(vectors_, risks, start, head)
            start = weight
            times, hazard = risks.baseline(vectors_ @ weight)
            head.arrays = {"weight": weight, "mean": mean, "deviation": deviation, "times": times, "hazard": hazard}
            head.facts = {
                "kind": targets.kind,
                "names": ["risk"],
                "alpha": head.alpha,
                "n_iter": taken,
                "converged": converged,
                "objective": risks.loss(vectors_ @ weight) + head.penalty(weight),
            }
        return heads

    def penalty(self, weight: Array) -> float:
        """Penalty of weights."""
        ridge = (1 - self.l1_ratio) / 2 * float(weight @ weight)
        return self.alpha * (self.l1_ratio * float(np.abs(weight).sum()) + ridge)

    def predict(self, features: Features) -> Array:
        """Returns the logarithm of each case's relative hazard, float64, (case, 1)."""
        held = self.arrays
        vectors = as_vectors(features, expected=len(held["weight"])).astype(np.float64)
        return (scaled(vectors, held["mean"], held["deviation"]) @ held["weight"])[:, None]

    def survival(self, risk: Array, times: Sequence[float]) -> Array:
        """Probabilities of surviving times, float64, (case, time), of what `predict` gave."""
        indices = np.searchsorted(self.arrays["times"], np.asarray(times, np.float64), side="right")
        hazard = np.concatenate([[0.0], self.arrays["hazard"]])[indices]
        survival: Array = np.exp(-np.exp(np.clip(risk, None, 500)) * hazard[None])
        return survival


class _Risks(NamedTuple):
    """Cases sorted by descending time, so risk sets are prefixes.

    Attributes:
        order: int64, (case,).
        event: bool, (case,), in that order.
        ends: int64, (case,), the last place of the case's time.
        firsts: int64, (case,), the first place of the case's time: it is in the risk set of every event from there on.
        times: float64, (case,), in that order.
    """

    order: Array
    event: Array
    ends: Array
    firsts: Array
    times: Array

    @classmethod
    def of(cls, values: Array) -> _Risks:
        order = np.argsort(-values[:, 0], kind="stable")
        times = values[order, 0]
        event = values[order, 1] > 0
        ends = np.searchsorted(-times, -times, side="right") - 1
        return cls(order, event, ends, np.searchsorted(-times, -times, side="left"), times)

    def _sums(self, risk: Array) -> tuple[Array, Array, float]:
        """Sorted exp(risk - top), their risk-set sums, and top."""
        top = float(risk.max())
        weights = np.exp(risk[self.order] - top)
        return weights, np.cumsum(weights)[self.ends], top

    def loss(self, risk: Array) -> float:
        """The negative mean partial log-likelihood."""
        _, sums, top = self._sums(risk)
        log_likelihood = risk[self.order] - top - np.log(sums)
        return -float(log_likelihood[self.event].sum()) / len(risk)

    def derivatives(self, risk: Array) -> tuple[Array, Array]:
        """First and diagonal second derivatives of n times the loss, by risk."""
        weights, sums, _ = self._sums(risk)
        share = np.where(self.event, 1 / sums, 0.0)
        squares = np.where(self.event, 1 / sums**2, 0.0)
        # A case is at risk at every event of its own time and of earlier ones, which come later in the order.
        once = np.cumsum(share[::-1])[::-1][self.firsts]
        twice = np.cumsum(squares[::-1])[::-1][self.firsts]
        first, second = np.empty_like(risk), np.empty_like(risk)
        first[self.order] = weights * once - self.event
        second[self.order] = weights * once - weights**2 * twice
        return first, second

    def baseline(self, risk: Array) -> tuple[Array, Array]:
        """Breslow's baseline: ascending event times and cumulative hazard."""
        _, sums, top = self._sums(risk)
        times = self.times[self.event][::-1]
        steps = np.cumsum((1 / sums[self.event])[::-1]) * np.exp(-top)
        last = np.append(np.flatnonzero(np.diff(times)), len(times) - 1)
        return times[last], steps[last]


def _newton_steps(shown: Array, risks: _Risks, start: Array, head: CoxNet) -> tuple[Array, int, bool]:
    """Proximal Newton steps with diagonal Hessian, halved until the loss falls."""
    weight, count = start.copy(), len(shown)
    risk = shown @ weight
    objective = risks.loss(risk) + head.penalty(weight)
    lasso, ridge = head.alpha * head.l1_ratio, head.alpha * (1 - head.l1_ratio)
    for taken in range(1, head.max_iter + 1):
        first, second = risks.derivatives(risk)
        second = np.maximum(second, 1e-10 * max(second.max(), 1e-300))
        moved = _coordinate_descent(shown, first / count, second / count, weight, lasso, ridge)
        step = moved - weight
        size = float(np.abs(step).max())
        if size <= head.tolerance * max(float(np.abs(weight).max()), 1e-3):
            return weight, taken, True
        along, reach = shown @ step, 1.0
        while reach > 1e-6:
            now = risks.loss(risk + reach * along) + head.penalty(weight + reach * step)
            if now <= objective + 1e-14 * abs(objective):
                break
            reach /= 2
        else:
            return weight, taken, size < 1e-4
        weight, risk, objective = weight + reach * step, risk + reach * along, now
    return weight, head.max_iter, False


def _coordinate_descent(shown: Array, first: Array, second: Array, start: Array, lasso: float, ridge: float) -> Array:
    """Minimises a penalised quadratic model, by coordinate descent with a lasso."""
    gram = shown.T @ (shown * second[:, None])
    slope = shown.T @ first  # at the start; kept up to date below
    weight, curve = start.copy(), gram.diagonal() + ridge
    slope = slope + ridge * weight
    if lasso == 0 and ridge > 0:  # a ridge alone has a solution in closed form
        return np.asarray(start - np.linalg.solve(gram + ridge * np.eye(len(gram)), slope))
    active = np.arange(len(weight))
    for sweep in range(1000):
        largest = 0.0
        for index in active:
            if curve[index] <= 0:
                continue
            wanted = weight[index] - slope[index] / curve[index]
            wanted = np.sign(wanted) * max(abs(wanted) - lasso / curve[index], 0.0)
            change = wanted - weight[index]
            if change != 0:
                slope += gram[index] * change
                slope[index] += ridge * change
                weight[index] = wanted
                largest = max(largest, abs(change))
        if largest <= 1e-9 * max(float(np.abs(weight).max()), 1e-3):
            if len(active) == len(weight):
                break
            active = np.arange(len(weight))
        else:
            active = np.flatnonzero(weight) if sweep % 10 else np.arange(len(weight))
    return weight

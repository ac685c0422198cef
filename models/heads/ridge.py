"""Ridge regression of numbers on features, after a PCA where one is asked for, from one Gram matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads.base import Features, Grid, PathHead, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import BLOCK, scaled, scaling_of


@dataclass(kw_only=True)
class Ridge(PathHead):
    """Ridge regression of all targets at once: squared errors plus alpha.

    The eigenvectors of one matrix of products of features give the principal components and the solution for every
    alpha. Numbers that are not known of a case are an error.

    Args:
        alpha: strength of the penalty; `hest` is 100 / (components x numbers).
        components: principal components that features are reduced to; None keeps the features.
        intercept: whether the mean of each number is left free. HEST's published protocol has none and does not centre
            the numbers either: the correlation is the same, R2 and errors are about the missing mean.
        scale: `standard`, by mean and deviation of the cases to fit on, or `none`.
        solver: `exact`, or `lsqr` for scikit-learn's with its usual tolerance, as HEST runs it: it stops early, by
            which correlations differ in the fifth digit.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"numbers"})

    alpha: float | Literal["hest"] = 1.0
    components: int | None = None
    intercept: bool = True
    scale: str = "standard"
    solver: Literal["exact", "lsqr"] = "exact"

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        if (isinstance(self.alpha, str) and self.alpha != "hest") or (
            not isinstance(self.alpha, str) and not 0 <= self.alpha < float("inf")
        ):
            raise UsageError(f"expected head.alpha to be a number from 0, or `hest`, got {self.alpha!r}")
        if self.components is not None and self.components < 1:
            raise UsageError(f"expected head.components from 1, or null, got {self.components}")
        UsageError.refuse_invalid("head.solver", ("exact", "lsqr"), self.solver)

    def fit_path(self, features: Features, targets: Targets, groups: Sequence[str] | None, grid: Grid) -> list[Self]:
        """Fits for each change; those with one scaling share the eigenvectors."""
        heads = [self.changed(change) for change in grid]
        vectors = as_vectors(features)
        refuse_absent(targets)
        if np.isnan(targets.values).any():
            raise UserError("ridge regression needs every number of each case to fit on")
        by_scale = grouped((head.scale, index) for index, head in enumerate(heads))
        for scale, some in by_scale.items():
            products = _Products(vectors, targets.values, scale)
            for index in some:
                heads[index] = _fit_ridge(heads[index], products, targets)
                if heads[index].solver == "lsqr":
                    _stop_early(heads[index], products, vectors, targets)
        return heads

    def predict(self, features: Features) -> Array:
        """Returns float64, (case, number)."""
        held = self.arrays
        vectors = as_vectors(features, expected=len(held["mean"]))
        vectors_ = scaled(vectors, held["mean"], held["deviation"])
        return np.float64(vectors_ @ held["weight"].astype(vectors_.dtype)) + held["bias"]


class _Products:
    """Products that ridge regressions on the same cases share, all float64."""

    def __init__(self, vectors: Array, values: Array, scale: str) -> None:
        self.mean, self.deviation = scaling_of(vectors, scale)
        width = vectors.shape[1]
        gram, cross, total = np.zeros((width, width)), np.zeros((width, values.shape[1])), np.zeros(width)
        for at in range(0, len(vectors), BLOCK):
            some = scaled(vectors[at : at + BLOCK], self.mean, self.deviation)
            gram += some.T @ some
            cross += some.T @ values[at : at + BLOCK].astype(some.dtype)
            total += some.sum(0, dtype=np.float64)
        self.count, self.centre, self.level = len(vectors), total / len(vectors), values.mean(0)
        self.gram, self.cross = gram, cross
        self.centred = gram - self.count * np.outer(self.centre, self.centre)
        eigenvalues, eigenvectors = np.linalg.eigh(self.centred)
        self.values, self.vectors = eigenvalues[::-1].clip(0), eigenvectors[:, ::-1]


def _fit_ridge(head: Any, products: _Products, targets: Targets) -> Any:
    width, outputs = products.cross.shape
    if head.components is not None and head.components > min(width, products.count):
        raise UserError(
            f"head.components is {head.components}; features have length {width}, and there are {products.count} cases"
        )
    components = head.components or width
    alpha = 100 / (components * outputs) if head.alpha == "hest" else float(head.alpha)
    centred = products.cross - products.count * np.outer(products.centre, products.level)
    basis = products.vectors[:, :components]
    if head.intercept or head.components is not None:
        # A PCA's scores have mean 0, so that the level of the numbers takes no part in the weights.
        curve = products.values[:components] + alpha
        if alpha == 0:
            curve = np.where(curve > 1e-12 * max(curve.max(), 1e-300), curve, np.inf)
        weight = basis @ ((basis.T @ centred) / curve[:, None])
        level = products.level if head.intercept else np.zeros(outputs)
        bias = level - products.centre @ weight
    else:
        weight = np.linalg.lstsq(products.gram + alpha * np.eye(width), products.cross, rcond=None)[0]
        bias = np.zeros(outputs)
    fitted = replace(head)
    fitted.arrays = {"weight": weight, "bias": bias, "mean": products.mean, "deviation": products.deviation}
    fitted.facts = {"kind": targets.kind, "names": list(targets.names), "alpha": alpha, "components": components}
    return fitted


def _stop_early(head: Any, products: _Products, vectors: Array, targets: Targets) -> None:
    """Puts scikit-learn's iterative solution in the place of the exact one."""
    from sklearn.linear_model import Ridge as Iterative

    basis = products.vectors[:, : head.facts["components"]] if head.components else np.eye(vectors.shape[1])
    centre = products.centre if head.components else np.zeros(vectors.shape[1])
    scores = (scaled(vectors, products.mean, products.deviation) - centre) @ basis
    solved = Iterative(solver="lsqr", alpha=head.facts["alpha"], fit_intercept=head.intercept, max_iter=1000)
    solved.fit(scores, targets.values)
    weight = basis @ np.atleast_2d(solved.coef_).T
    head.arrays |= {"weight": weight, "bias": np.atleast_1d(solved.intercept_) - centre @ weight}

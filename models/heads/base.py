"""What a head is: it learns targets from features, which an encoder made, and predicts them of others."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError

Kind = Literal["exclusive", "classes", "numbers", "survival"]

Features = Any
"""Of heads on vectors, float array (case, feature); of heads on bags, a sequence of float arrays (tile, feature)."""

Grid = Sequence[Mapping[str, Any]]
"""Changes of settings, each of which makes a head."""

HEADS = {
    "logistic": "logistic:LogisticRegression",
    "knn": "neighbours:NearestNeighbours",
    "prototypes": "neighbours:Prototypes",
    "ridge": "ridge:Ridge",
    "cox": "cox:CoxNet",
    "sgd_ensemble": "sgd_ensemble:SgdEnsemble",
    "norm_penalised": "norm_penalised:NormPenalised",
    "balanced_linear": "balanced_linear:BalancedLinear",
    "abmil": "bag_heads:AttentionPooling",
    "clam": "bag_heads:Clam",
    "transmil": "bag_heads:TransMil",
    "dsmil": "bag_heads:DsMil",
    "pooled": "bag_heads:Pooled",
    "early_fusion": "fused:EarlyFusion",
    "late_fusion": "fused:LateFusion",
}
"""Heads by the name that configs use: module of this room, and class."""

WEIGHTS, RECORD = "head.safetensors", "head.json"
"""Files that a fitted head is kept in."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of the cases that a head learns from, or is judged on.

    Attributes:
        kind: `exclusive` of classes one of which is present, `classes` of those with a probability each, `numbers`, or
            `survival`.
        names: of the outputs: classes or numbers; of survival `time` and `event`.
        values: float64, (case, output). Of classes 1 present, 0 absent or a probability between; NaN where nothing is
            known. Of survival the time, above 0, and 1 for an event or 0 where it is censored.
    """

    kind: Kind
    names: tuple[str, ...]
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array) -> Targets:
        """Targets of some cases; `rows` are int64 or bool (case,)."""
        return replace(self, values=self.values[rows])

    @property
    def codes(self) -> Array:
        """Number of each case's exclusive class, int64, (case,).

        Raises:
            UserError: a case has no class, or several.
        """
        present = np.nan_to_num(self.values) >= 0.5
        if self.kind != "exclusive" or (present.sum(1) != 1).any():
            wrong = np.flatnonzero(present.sum(1) != 1)
            raise UserError(
                f"{len(wrong)} of {len(self)} cases have no class, or several; this head needs exactly one in each"
            )
        codes: Array = present.argmax(1)
        return codes


@dataclass(kw_only=True)
class Head(ABC):
    """Learns targets from features.

    Settings are the fields that the constructor takes. What was learned is kept in `arrays` and `facts`, from which
    `predict` works, so that any head is saved and loaded alike.

    Attributes:
        arrays: name -> float or int array, set by `fit`.
        facts: what goes with them, as JSON holds it: names of the outputs, and how fitting ended.
    """

    takes: ClassVar[Literal["vectors", "bags"]] = "vectors"
    """Whether features are one vector for a case, or a bag of them."""

    uses_torch: ClassVar[bool] = False
    """Whether `predict` does, which fitting may in any case."""

    kinds: ClassVar[frozenset[str]] = frozenset({"exclusive", "classes"})
    """Targets that can be learned."""

    arrays: dict[str, Array] = field(default_factory=dict, init=False, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Learns from cases; returns itself.

        Args:
            features: see `Features`.
            targets: one for each case.
            groups: whose case each is, such as the patient.

        Raises:
            UserError: a class is absent, features are not finite, or settings do not fit the data.
        """

    @abstractmethod
    def predict(self, features: Features) -> Array:
        """Returns float64, (case, output): probabilities, numbers, or of survival one column, the risk.

        Raises:
            UserError: features of another length than those it was fitted on.
        """

    def fit_path(self, features: Features, targets: Targets, groups: Sequence[str] | None, grid: Grid) -> list[Self]:
        """Fits a head per setting of `grid`, sharing work where possible."""
        return [self.changed(change).fit(features, targets, groups) for change in grid]

    def changed(self, change: Mapping[str, Any]) -> Self:
        """Unfitted copy with other settings; UsageError for unknown ones."""
        UsageError.refuse_unknown(f"head {type(self).__name__} has no setting", self.settings(), *change)
        return replace(self, **change)

    def settings(self) -> dict[str, Any]:
        """Arguments of the constructor, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def save(self, folder: Path) -> None:
        """Writes `head.safetensors` and `head.json` into a folder."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: np.ascontiguousarray(value) for name, value in self.arrays.items()}, folder / WEIGHTS)
        record = {"head": name_of(type(self)), "settings": self.settings(), "facts": self.facts}
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


class PathHead(Head):
    """Head whose settings share work; `fit` is a path of one."""

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits for the settings as they are."""
        fitted = self.fit_path(features, targets, groups, [{}])[0]
        self.arrays, self.facts = fitted.arrays, fitted.facts
        return self

    @abstractmethod
    def fit_path(self, features: Features, targets: Targets, groups: Sequence[str] | None, grid: Grid) -> list[Self]:
        """Fits one head for each change of settings in `grid`."""


def name_of(kind: type) -> str:
    """The name of a head in configs."""
    name_ = f"{kind.__module__.rpartition('.')[2]}:{kind.__qualname__}"
    return next((name for name, target in HEADS.items() if target == name_), f"{kind.__module__}:{kind.__qualname__}")


def make_head(config: str | Mapping[str, Any] | Head) -> Head:
    """Makes a head of its name, or of `name` and settings.

    Raises:
        UsageError: there is no such head, or it lacks a setting.
    """
    if isinstance(config, Head):
        return config
    settings = {"name": config} if isinstance(config, str) else dict(config)
    name = str(settings.pop("name", ""))
    UsageError.refuse_invalid("head", HEADS, name)
    module, _, kind = HEADS[name].partition(":")
    head_class: type[Head] = getattr(importlib.import_module(f"{__package__}.{module}"), kind)
    names = {field.name for field in fields(head_class) if field.init}
    UsageError.refuse_unknown(f"head {name} has no setting", names, *settings)
    return head_class(**settings)


def load_head(folder: Path) -> Head:
    """Loads what `Head.save` wrote.

    Raises:
        UserError: the files are missing or damaged.
    """
    from safetensors.numpy import load_file

    with UserError.about(folder, "holds no head of `fit` that can be read", Exception):
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        head = make_head({"name": record["head"], **record["settings"]})
        head.arrays, head.facts = load_file(folder / WEIGHTS), record["facts"]
    return head


def as_vectors(features: Any, *, expected: int | None = None) -> Array:
    """Checks features of a head on vectors, (case, feature), float32 or float64.

    Raises:
        UserError: they have another shape, another length than `expected`, or are not finite.
    """
    array = np.asarray(features)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
        raise UserError(f"expected features (case, feature) of numbers, got {array.shape} of {array.dtype}")
    if expected is not None and array.shape[1] != expected:
        raise UserError(f"features have length {array.shape[1]}, expected {expected}; are they of another encoder?")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.float64)
    # A sum is finite where all are, and takes no copy; one that overflows is looked at again.
    if not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).all(1))
        raise UserError(f"{len(bad)} of {len(array)} vectors are NaN or infinite, the first in row {bad[0]}")
    return array


def refuse_absent(targets: Targets) -> None:
    """Raises UserError naming classes without cases, or where nothing is learnable."""
    if targets.kind == "survival":
        if not targets.values[:, 1].any():
            raise UserError("none of the cases to fit on has the event")
        return
    if targets.kind == "numbers":
        absent_names = [n for n, column in zip(targets.names, targets.values.T, strict=True) if np.isnan(column).all()]
    else:
        labels = [column[~np.isnan(column)] >= 0.5 for column in targets.values.T]
        wrong = [
            (not is_positive.any()) or (targets.kind == "classes" and bool(is_positive.all())) for is_positive in labels
        ]
        absent_names = [name for name, absent in zip(targets.names, wrong, strict=True) if absent]
    if absent_names:
        what = "number" if targets.kind == "numbers" else "class"
        raise UserError(
            f"the cases to fit on do not teach {what} {', '.join(absent_names)}: no case has it, or every case; "
            "leave it out of the task, or choose another split to fit on"
        )

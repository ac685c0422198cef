"""What metrics of pictures that were made are given, and how metrics of sets are declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.metrics.registry import Requirement, metric, required

SET = "set"
"""The kind of a metric that judges all pictures at once, and the status of its rows."""

ONE_PICTURE = "pictures"
"""The kind of a metric that judges the pictures of one prompt."""

WHOLE = "all"
"""The label of a set that is not divided."""

NAN = float("nan")

Z_95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""

Group = Literal["fidelity", "privacy"]
SetMetric = Callable[["ImageSets"], SetValue]
Held = TypeVar("Held")

GROUPS: dict[str, Group] = {}
"""Metric -> the side of the score card that it belongs to."""

BY_PARTS: set[str] = set()
"""Metrics that are also computed of the images of each finding and group."""

Ability = Literal["", "texts", "findings", "choices", "identity", "pixels"]
"""What an extractor must do beside giving features: read texts, tell findings, choose a value of an attribute, or
score pairs of pictures by whether they are of one patient; or its features are grey values of a square."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """The features of some images, and whose they are.

    Attributes:
        rows: (image, feature) float.
        patients: (image,) str: whose image it is, or of whose prompt; patients are what is resampled.
        cases: (image,) str: pictures of one prompt share it.
        says: (image, feature): 1 where the case's attributes say that there is what the feature is the probability of,
            0 where not, NaN where they leave it open; None of features that are no probabilities.
    """

    rows: npt.NDArray[Any]
    patients: npt.NDArray[np.str_]
    cases: npt.NDArray[np.str_]
    says: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class ImageSets:
    """Sets of images that a metric is given.

    Attributes:
        by_name: `generated`, and those of `reference`, `train` and `holdout` that it needs.
        extractor: what the features come from.
        texts: (generated, feature) float: features of the prompts; None where they were not asked for.
        seed: of all that is drawn.
        names: of the features, where they have any.
        thresholds: (feature,): from which probability on a finding is there; () of other features.
        finding: which feature is judged; None for their mean.
        compare: takes features (..., d) of pairs; returns scores (...), higher for one patient.
    """

    by_name: Mapping[str, ImageSet]
    extractor: str = ""
    texts: npt.NDArray[Any] | None = None
    seed: int = 0
    names: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    finding: int | None = None
    compare: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.float64]] | None = None
    _held: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `fidelity` functions, for reference and generated images."""
        return {
            "patients": self.by_name["reference"].patients,
            "prompts": self.by_name["generated"].patients,
            "seed": self.seed,
            "extractor": self.extractor,
        }

    @property
    def screened(self) -> dict[str, Any]:
        """Keyword arguments of the functions of `privacy`."""
        return {
            "patients": self.by_name["train"].patients,
            "holdout_patients": self.by_name["holdout"].patients,
            "prompts": self.by_name["generated"].patients,
            "prompt_patients": self.by_name["generated"].patients,
            "seed": self.seed,
            "extractor": self.extractor,
        }

    @property
    def trio(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Features of the training, hold-out and generated images."""
        train, holdout, generated = (self.by_name[name].rows for name in ("train", "holdout", "generated"))
        return train, holdout, generated

    @property
    def pair(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Features of the reference and of the generated images."""
        return self.by_name["reference"].rows, self.by_name["generated"].rows

    def once(self, key: str, make: Callable[[], Held]) -> Held:
        """Returns `make`'s result of the sets, computed once per key."""
        if key not in self._held:
            self._held[key] = make()
        return cast("Held", self._held[key])


def set_metric(
    *,
    group: Group = "fidelity",
    needs: Sequence[str] = ("reference",),
    by_parts: bool = True,
    ability: Ability = "",
    **declared: Any,
) -> Callable[[SetMetric], SetMetric]:
    """Registers a metric of `ImageSets`; its parameter is an extractor.

    Args:
        group: the side of the score card that it belongs to.
        needs: the sets of real images that it compares with.
        by_parts: whether it is also computed of the images of each finding and group.
        ability: what its extractor must do; where it tells findings, the metric is computed of each and of all, and
            then `by_parts` means nothing.
        declared: what `metric` takes: `title`, `higher_is_better`, `best`, `worst`, `source`, `unit`.
    """

    def register(function: SetMetric) -> SetMetric:
        name = function.__name__
        metric(
            kind=SET,
            parameter="an extractor of features",
            parameter_is_text=True,
            check=_check_extractor,
            requires=partial(_feature_requirement, ability, tuple(needs)),
            scope="set",
            **declared,
        )(cast("Callable[..., float]", function))
        GROUPS[name] = group
        if by_parts and ability != "findings":
            BY_PARTS.add(name)
        return function

    return register


def requirement_of(name: str) -> Requirement:
    """Returns a set metric's requirement: extractor features, ability and sets.

    Raises:
        UsageError: As `parse` does.
    """
    (need,) = required(name)
    return need


def _feature_requirement(ability: Ability, sets: tuple[str, ...], extractor: str) -> tuple[Requirement, ...]:
    return (Requirement("features", extractor, ability=ability, sets=sets),)


def _check_extractor(extractor: str) -> None:
    if not extractor.replace("_", "").isalnum():
        raise UsageError(f"Expected the name of an extractor, such as rad_dino, got {extractor!r}")


@dataclass(frozen=True, eq=False)
class OnePrompt:
    """Pictures of one prompt, with the real image it described.

    Attributes:
        count: pictures that were made.
        wanted: pictures that were asked for.
        pictures: reads them: uint8, each (512, 512, 3).
        own: reads the real image, alike; None where there is none.
    """

    count: int
    wanted: int
    pictures: Callable[[], Sequence[npt.NDArray[np.uint8]]]
    own: Callable[[], npt.NDArray[np.uint8] | None]


def interval_of_mean(values: npt.NDArray[np.float64], groups: npt.NDArray[Any], how: str) -> dict[str, Any]:
    """Returns a mean's `standard_error`, `low`, `high`, `interval`; a group is one draw."""
    sums = np.bincount(groups, weights=values - values.mean())
    many = len(sums)
    if many < 2:
        return {}
    error = float(np.sqrt((sums**2).sum() * many / (many - 1)) / len(values))
    middle = float(values.mean())
    return {"standard_error": error, "low": middle - Z_95 * error, "high": middle + Z_95 * error, "interval": how}

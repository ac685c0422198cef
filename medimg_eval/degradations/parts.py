"""Conditions under which cases of unlike parts, such as an OCT and a fundus photograph, lack one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Case, Condition, Geometry, Image, Reference
from medimg_eval.degradations.drawing import DrawKey
from medimg_eval.image import VALUES

KINDS = ("without", "only", "missing", "blank")
"""`without_oct`, `only_oct`, `missing_oct-30`: without it in 30 % of cases; `blank_values-30`: so often each value."""


@dataclass(frozen=True)
class BlankedValues:
    """Values of a case of which some are made unknown as they are read, each by itself."""

    values: Reference[Image]
    share: float
    key: DrawKey

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of the values."""
        return self.values.files

    def read(self) -> Image:
        """Reads them, (1, 1, value), NaN where they are blanked; those of a lower share are blank under a higher."""
        found = self.values.read()
        drawn = self.key.generator("blank_values").random(found.array.shape)
        return replace(found, array=np.where(100 * drawn < self.share, np.nan, found.array))

    def geometry(self) -> Geometry:
        """That of the values."""
        return self.values.geometry()


def part_conditions(parts: Iterable[str]) -> frozenset[str]:
    """Names of the conditions of cases with these parts; only values can be blank."""
    return frozenset(f"{kind}_{part}" for part in parts for kind in KINDS if kind != "blank" or part == VALUES)


def is_part_condition(condition: Condition) -> bool:
    """Whether a condition takes parts away."""
    return condition.name.partition("_")[0] in KINDS


def without_parts(case: Case, condition: Condition, key: DrawKey) -> Case:
    """Returns a case with the images that are left under a condition of `part_conditions`.

    Which cases lack a part under `missing_` the key decides, so that it is the same for every model, and those of a
    lower share are among those of a higher.
    """
    kind, _, part = condition.name.partition("_")
    if kind == "blank":
        share = float(condition.severity or 100)
        return replace(
            case,
            images=tuple(
                BlankedValues(image, share, key) if _part_of(image) == part else image for image in case.images
            ),
        )
    if kind == "only":
        return replace(case, images=tuple(image for image in case.images if _part_of(image) == part))
    if kind == "missing" and 100 * key.generator(condition.name).random() >= (condition.severity or 100):
        return case
    return replace(case, images=tuple(image for image in case.images if _part_of(image) != part))


def _part_of(image: Any) -> str:
    """The part that an image which was not read yet is, as its layout says."""
    return str(getattr(image, "part", ""))

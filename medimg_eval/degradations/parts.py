"""Conditions under which cases of unlike parts, such as an OCT and a fundus photograph, lack one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from medimg_eval.case import Case, Condition
from medimg_eval.degradations.drawing import DrawKey

KINDS = ("without", "only", "missing")
"""`without_oct`, `only_oct`, and `missing_oct-30`: without it in 30 % of the cases."""


def part_conditions(parts: Iterable[str]) -> frozenset[str]:
    """Names of the conditions of cases with these parts."""
    return frozenset(f"{kind}_{part}" for part in parts for kind in KINDS)


def is_part_condition(condition: Condition) -> bool:
    """Whether a condition takes parts away."""
    return condition.name.partition("_")[0] in KINDS


def without_parts(case: Case, condition: Condition, key: DrawKey) -> Case:
    """Returns a case with the images that are left under a condition of `part_conditions`.

    Which cases lack a part under `missing_` the key decides, so that it is the same for every model, and those of a
    lower share are among those of a higher.
    """
    kind, _, part = condition.name.partition("_")
    if kind == "only":
        return replace(case, images=tuple(image for image in case.images if _part_of(image) == part))
    if kind == "missing" and 100 * key.generator(condition.name).random() >= (condition.severity or 100):
        return case
    return replace(case, images=tuple(image for image in case.images if _part_of(image) != part))


def _part_of(image: Any) -> str:
    """The part that an image which was not read yet is, as its layout says."""
    return str(getattr(image, "part", ""))

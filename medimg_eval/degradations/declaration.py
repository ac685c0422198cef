"""What a degradation says of itself, and the register of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal

from medimg_eval.case import Condition
from medimg_eval.errors import UsageError

ROOMS = (
    *("pictures", "acquisition", "mri", "ct", "xray", "ultrasound", "endoscopy", "pathology"),
    *("kspace", "video", "words"),
)
"""Modules of degradations, in the order of their list."""

Domain = Literal["pixels", "moves", "words", "samples", "frames"]
"""What is changed: pixels, where things lie, a question's words, samples of k-space, or which frames are shown."""

OF_IMAGES: tuple[Domain, ...] = ("pixels", "moves", "frames")
"""What is changed of images that models are shown."""

SEVERITIES = 5


@dataclass(frozen=True)
class Degradation:
    """One kind of degradation.

    Attributes:
        name: of its conditions, such as `mri_ghosting` of `mri_ghosting-3`.
        apply: takes what is changed, a generator, and the parameters of a severity by name.
        levels: parameter -> its value at severities 1 to 5; empty where severity itself is the parameter.
        unit: of the parameters, in words.
        source: where function and levels are from; "ours" where nothing is published.
        domain: what is changed.
        modalities: DICOM codes of the images that it is meant for; empty for any.
        axes: how many spatial axes an image must have; 0 for any. Frames of a film are pictures.
        hounsfield: whether values must be Hounsfield units, which 8-bit pictures are not.
        draws: whether anything is drawn; one that draws nothing is given a generator that says nothing of the key.
    """

    name: str
    apply: Callable[..., Any]
    levels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    unit: str = ""
    source: str = "ours"
    domain: Domain = "pixels"
    modalities: tuple[str, ...] = ()
    axes: int = 0
    hounsfield: bool = False
    draws: bool = True

    def parameters(self, condition: Condition) -> dict[str, Any]:
        """The parameters of a condition: its settings, and those of its severity.

        Raises:
            UsageError: a setting is none of its parameters, or there is no such severity.
        """
        severity = condition.severity or 1
        for key in condition.settings:
            UsageError.refuse_unknown(f"condition {condition.key!r} has no setting", self.levels or {"severity"}, key)
        if not self.levels:
            return {"severity": severity, **condition.settings}
        missing = [key for key in self.levels if key not in condition.settings]
        if missing and severity > SEVERITIES:
            raise UsageError(f"condition {condition.key!r}: expected a severity from 1 to {SEVERITIES}, got {severity}")
        return {key: self.levels[key][severity - 1] for key in missing} | dict(condition.settings)


_REGISTER: dict[str, Degradation] = {}


def degradation(name: str, **declaration: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a degradation by name; arguments are fields of `Degradation`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _REGISTER[name] = Degradation(name, function, **declaration)
        return function

    return register


def degradations() -> Mapping[str, Degradation]:
    """All degradations by name, in the order of their rooms."""
    _import_rooms()
    return _REGISTER


@cache
def _import_rooms() -> None:
    for room in ROOMS:
        import_module(f"medimg_eval.degradations.{room}")


def conditions_on(*domains: Domain) -> frozenset[str]:
    """Names of the degradations that change pixels, places, words, samples or frames."""
    return frozenset(name for name, degradation in degradations().items() if degradation.domain in domains)


def find_degradation(name: str) -> Degradation:
    """Returns a degradation by name; UsageError suggests the nearest."""
    UsageError.refuse_invalid("condition", degradations(), name)
    return _REGISTER[name]

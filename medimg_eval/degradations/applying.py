"""Cases under a condition: images, references and questions that are changed as they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medimg_eval.case import Case, Condition, Geometry, Image, Reference
from medimg_eval.degradations.declaration import Degradation, find_degradation
from medimg_eval.degradations.drawing import DrawKey
from medimg_eval.degradations.parts import is_part_condition, without_parts
from medimg_eval.errors import UsageError


@dataclass(frozen=True)
class DegradedImage:
    """An image that is degraded when it is read; its grid stays.

    Attributes:
        image: as it lies on disk.
        condition: what is done to it.
        key: what its draws depend on.
        place: of the image in its case; 0 for all where what they show is moved, so that they move together.
    """

    image: Reference[Image]
    condition: Condition
    key: DrawKey
    place: int = 0

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of the image."""
        return self.image.files

    def read(self) -> Image:
        """Reads and degrades it; raises CaseError where it cannot be read, or is of no kind that can be degraded."""
        return degrade_image(self.image.read(), self.condition, self.key, self.place)

    def geometry(self) -> Geometry:
        """The grid, which stays."""
        return self.image.geometry()


@dataclass(frozen=True)
class MovedTarget:
    """Truth of images whose content is moved.

    Attributes:
        target: as it lies on disk.
        shown: the first image of the case, whose grid says how far a move in millimetres goes.
        condition: the move.
        key: what its draws depend on.
    """

    target: Reference[Any]
    shown: Reference[Image]
    condition: Condition
    key: DrawKey

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of the target."""
        return self.target.files

    def read(self) -> Any:
        """Reads and moves it; raises CaseError where it is of a kind that cannot be moved."""
        found, grid = find_degradation(self.condition.name), self.shown.geometry()
        move = found.apply(grid, self.key.generator(found.name), **found.parameters(self.condition))
        return move.target(self.target.read(), grid.shape)

    def geometry(self) -> Geometry:
        """The grid, which stays."""
        return self.target.geometry()


def degrade_image(image: Image, condition: Condition, key: DrawKey, place: int = 0) -> Image:
    """Applies a condition to an image; shape, dtype and grid stay.

    Raises:
        UsageError: there is no such condition or severity, or the image is of no kind that it is meant for.
    """
    found = find_degradation(condition.name)
    refuse_unsuitable(found, image)
    draw, parameters = key.generator(found.name, place), found.parameters(condition)
    if found.domain == "moves":
        return found.apply(image.geometry, draw, **parameters).image(image)  # type: ignore[no-any-return]
    return replace(image, array=found.apply(image, draw, **parameters), notes=())


def refuse_unsuitable(found: Degradation, image: Image) -> None:
    """Raises UsageError where an image is of another modality, or has another number of axes, than is needed."""
    if found.modalities and image.modality and image.modality not in found.modalities:
        meant = " or ".join(found.modalities)
        raise UsageError(
            f"condition {found.name} is meant for {meant}, and the image is {image.modality}; leave it out"
        )
    axes = image.array.ndim - 1
    if found.axes and axes != found.axes:
        raise UsageError(f"condition {found.name} needs {found.axes} spatial axes, and the image has {axes}")


def degrade_case(case: Case, condition: Condition, key: DrawKey) -> Case:
    """Returns a case whose images, question or reference are changed or left out as a condition says, once read.

    Raises:
        UsageError: there is no such condition or severity.
    """
    if is_part_condition(condition):
        return without_parts(case, condition, key)
    found = find_degradation(condition.name)
    found.parameters(condition)
    if found.domain == "words":
        if case.question is None:
            return case
        changed = found.apply(case.question, key.generator(found.name), **found.parameters(condition))
        return replace(case, question=changed)
    moves = found.domain == "moves"
    images = tuple(
        DegradedImage(image, condition, key, 0 if moves else place) for place, image in enumerate(case.images)
    )
    if not moves or not case.images:
        return replace(case, images=images)
    return replace(case, images=images, target=MovedTarget(case.target, case.images[0], condition, key))

"""Cases under a condition: images, references and questions that are changed as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Case, ChangedImage, Condition, Geometry, Image, Reference
from medimg_eval.degradations.declaration import Degradation, find_degradation
from medimg_eval.degradations.drawing import DrawKey
from medimg_eval.degradations.parts import is_part_condition, without_parts
from medimg_eval.degradations.words import RewordedKey
from medimg_eval.errors import UsageError

UNCHANGED = "changes nothing here"
"""Ends the note of an image that a condition leaves as it is."""

UNUSED = np.random.default_rng(0)
"""What degradations are handed that draw nothing: to make a generator takes as long as to change a small picture."""


@dataclass(frozen=True)
class DegradedImage(ChangedImage):
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

    def read(self) -> Image:
        """Reads and degrades it; CaseError where unreadable or unsuitable."""
        return degrade_image(self.image.read(), self.condition, self.key, self.place)

    def frames(self, places: Sequence[int]) -> Iterator[Array]:
        """Yields chosen frames of a film, each drawn separately."""
        source: Any = self.image
        degradation = find_degradation(self.condition.name)
        if degradation.domain == "frames":
            wanted = np.asarray(places, dtype=np.int64)
            yield from source.frames(_move_places(wanted, self.condition, self.key).tolist())
            return
        for index, frame in zip(places, source.frames(places), strict=True):
            if frame.ndim < 3:
                raise UsageError(f"condition {degradation.name} changes pictures, and the film is read as features")
            picture = Image(frame, np.eye(4), modality="ES", units="pixel")
            yield degrade_image(picture, self.condition, self.key, int(index)).array


def _move_places(places: Array, condition: Condition, key: DrawKey) -> Array:
    degradation = find_degradation(condition.name)
    return np.asarray(degradation.apply(places, key.generator(degradation.name), **degradation.parameters(condition)))


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
        """Files of the target."""
        return self.target.files

    def read(self) -> Any:
        """Reads and moves it; CaseError for immovable kinds."""
        degradation, grid = find_degradation(self.condition.name), self.shown.geometry()
        move = degradation.apply(grid, self.key.generator(degradation.name), **degradation.parameters(self.condition))
        return move.target(self.target.read(), grid.shape)

    def geometry(self) -> Geometry:
        """The grid, which stays."""
        return self.target.geometry()


def degrade_image(image: Image, condition: Condition, key: DrawKey, place: int = 0) -> Image:
    """Applies a condition to an image, preserving shape, dtype and grid.

    A note says where nothing has changed.

    Raises:
        UsageError: there is no such condition or severity, or the image is of no kind that it is meant for.
    """
    degradation = find_degradation(condition.name)
    refuse_unsuitable(degradation, image)
    degraded = _degrade_pixels(degradation, image, condition, key, place)
    return (
        replace(degraded, notes=(f"condition {condition.key} {UNCHANGED}",))
        if _are_equal(degraded, image)
        else degraded
    )


def _are_equal(one: Image, other: Image) -> bool:
    middle = (..., one.array.shape[-1] // 2)
    return np.array_equal(one.array[middle], other.array[middle]) and np.array_equal(one.array, other.array)


def _degrade_pixels(found: Degradation, image: Image, condition: Condition, key: DrawKey, place: int) -> Image:
    if found.domain == "frames":
        frames_ = _move_places(np.arange(image.array.shape[1]), condition, key)
        return replace(image, array=image.array[:, frames_], notes=())
    if is_clip(image) and found.domain == "pixels":
        frames = [replace(image, array=image.array[:, frame]) for frame in range(image.array.shape[1])]
        changed = [degrade_image(frame, condition, key, number).array for number, frame in enumerate(frames)]
        return replace(image, array=np.stack(changed, axis=1), notes=())
    draw = key.generator(found.name, place) if found.draws else UNUSED
    parameters = found.parameters(condition)
    if found.domain == "moves":
        return found.apply(image.geometry, draw, **parameters).image(image)  # type: ignore[no-any-return]
    return replace(image, array=found.apply(image, draw, **parameters), notes=())


def refuse_unsuitable(found: Degradation, image: Image) -> None:
    """Raises UsageError for images of other modality or axes."""
    if found.modalities and image.modality and image.modality not in found.modalities:
        meant = " or ".join(found.modalities)
        raise UsageError(
            f"condition {found.name} is meant for {meant}, and the image is {image.modality}; leave it out"
        )
    if found.hounsfield and image.array.dtype == np.uint8:
        raise UsageError(f"condition {found.name} needs Hounsfield units, and the image has 8 bits; leave it out")
    if found.domain == "frames" and not is_clip(image):
        raise UsageError(f"condition {found.name} is meant for films and clips, and the image is none; leave it out")
    axes = 2 if is_clip(image) else image.array.ndim - 1
    if found.axes and axes != found.axes:
        raise UsageError(f"condition {found.name} needs {found.axes} spatial axes, and the image has {axes}")


def is_clip(image: Image) -> bool:
    """Whether an image is a colour clip, (3, frame, row, column)."""
    return image.array.ndim == 4 and image.array.shape[0] == 3 and image.array.dtype == np.uint8


def degrade_case(case: Case, condition: Condition, key: DrawKey) -> Case:
    """Returns a case with lazily degraded images, question or reference.

    Raises:
        UsageError: there is no such condition or severity.
    """
    if is_part_condition(condition):
        return without_parts(case, condition, key)
    degradation = find_degradation(condition.name)
    degradation.parameters(condition)
    if degradation.domain == "words":
        if case.question is None:
            return case
        reworded = degradation.apply(
            case.question, key.generator(degradation.name), **degradation.parameters(condition)
        )
        return replace(case, question=reworded.question, target=RewordedKey(case.target, reworded))
    moves = degradation.domain == "moves"
    images = tuple(
        DegradedImage(image, condition, key, 0 if moves else index) for index, image in enumerate(case.images)
    )
    if not moves or not case.images:
        return replace(case, images=images)
    return replace(case, images=images, target=MovedTarget(case.target, case.images[0], condition, key))

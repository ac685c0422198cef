"""The base classes of wrappers: what the harness asks of a model, and nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from medimg_eval.case import Array, Boxes, Image, Mask, Points, Prompts

Example = Callable[[], Image]
"""Reads one image of the task, with its channels put together; call it only where it is needed."""


class Pass(NamedTuple):
    """What one pass of a model is, for those who count and time it.

    Attributes:
        run: called with one tensor of that shape, on the model's device.
        shape: (1, channel, *spatial).
    """

    run: Callable[..., Any]
    shape: tuple[int, ...]


class Model:
    """Anything that can be asked.

    Batching, reading ahead, moving an `nn.Module` to its device, resuming, sharding and scoring are the
    harness's. A wrapper that is an `nn.Module` with a `training_loss` can also be `fit`.
    """

    reads_images: ClassVar[bool] = True
    """False when answers do not depend on pixels, so that images are not read at all."""

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint",)
    """Constructor arguments that name a file or folder: its content, not its path, identifies a run."""

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Takes from the task what the config left open. Called by `test` and `fit`, once for each task.

        Args:
            labels: of the task, integer -> name; empty for a task without labels.
            example: reads one image.

        Raises:
            UserError: the model cannot serve this task.
        """

    def check_ready(self) -> None:
        """Raises UserError when answers would mean nothing, as without weights. Called by `test`, not by `fit`."""

    def one_pass(self) -> Pass | None:
        """What `efficiency: true` counts and times, once prepared; None where there is nothing to count."""
        return None


class Segmenter(Model, ABC):
    """A model that gives every voxel a label."""

    @abstractmethod
    def segment(self, prompts: Prompts) -> Sequence[Array | Mask]:
        """Segments a batch of images, which may differ in shape.

        Args:
            prompts: each with `image` (array (channel, *spatial), affine) and `labels` (integer -> name).

        Returns:
            One label map per prompt, in order: an integer array of the image's spatial shape holding 0
            for background and the integers of `prompt.labels`. A `Mask` brings its own affine, which
            is then checked against the case's.

        Raises:
            Exception: whatever it raises is recorded against the case; the others go on.
        """


class Detector(Model, ABC):
    """A model that finds places in an image, or takes measurements of it."""

    @abstractmethod
    def detect(self, prompts: Prompts) -> Sequence[Points | Boxes | Mapping[str, float]]:
        """Answers for a batch of images, which may differ in shape.

        Args:
            prompts: each with `image` (array (channel, *spatial), affine) and `labels` (integer -> name): classes of a
                detection, the points of a landmark task, the names of measurements.

        Returns:
            One answer per prompt, in order. Positions and corners are float, in voxel indices along the image's spatial
            axes in their order, where an index names a voxel's centre; names are among the prompt's. What kind of
            answer depends on the task: of a detection `Points` or `Boxes` with a confidence each in `scores`; of
            landmarks `Points`, each name at most once; of measurements `Points` to be measured, or name -> number.
            Nothing found is `Points` or `Boxes` without any, and of a number NaN.

        Raises:
            Exception: whatever it raises is recorded against the case; the others go on.
        """

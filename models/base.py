"""The base classes of wrappers: what the harness asks of a model, and nothing more."""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from medimg_eval.arguments import keep_arguments
from medimg_eval.case import Alignment, Array, Boxes, Image, Mask, Points, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.question import Decoding

Example = Callable[[], Image]
"""Reads one image of the task, with its channels put together; call it only where it is needed."""


class Pass(NamedTuple):
    """One pass of a model, for those who count and time it.

    Attributes:
        run: called with one tensor of that shape, on the model's device.
        shape: (1, channel, *spatial).
    """

    run: Callable[..., Any]
    shape: tuple[int, ...]


class Model:
    """Anything that can be asked.

    Batching, reading ahead, moving an `nn.Module` to its device, resuming, sharding and scoring are the
    harness's. Whatever a method that answers raises is recorded against the case, and the others go on. A wrapper that
    is an `nn.Module` with a `training_loss` can also be `fit`.
    """

    reads_images: ClassVar[bool] = True
    """False when answers do not depend on pixels, so that images are not read at all."""

    uses_torch: bool = True
    """False when nothing of it is computed by torch, which is then not imported for it."""

    takes_views: ClassVar[tuple[str, ...]] = ("pictures",)
    """Forms in which it is shown volumes and videos, the one it gets unless `task.view` names another first.

    `pictures` are slices and frames that the harness chose; `volume` a `VolumePrompt`, `video` a `VideoPrompt` of
    `medimg_eval.imaging`.
    """

    @classmethod
    def volume_rule(cls) -> str:
        """Rule by which a volume becomes the array of its network, for the record; "" where none is stated."""
        return ""

    remote: bool = False
    """Whether it is asked on another machine: a wrapper of a server elsewhere says so, and may tell its `base_url`."""

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint",)
    """Constructor arguments that name a file or folder: its content, not its path, identifies a run."""

    pace_arguments: ClassVar[tuple[str, ...]] = ()
    """Constructor arguments that decide how fast answers come and not what they are: a run goes on when they change."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Records constructor arguments, which identify runs as configs do."""
        make: Any = super().__new__
        model: Self = make(cls) if make is object.__new__ else make(cls, *args, **kwargs)
        keep_arguments(model, args, kwargs)
        return model

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Takes from the task what the config left open.

        Called by `test` and `fit`, once for each task.

        Args:
            labels: of the task, integer -> name; empty for a task without labels.
            example: reads one image.

        Raises:
            UserError: the model cannot serve this task.
        """

    def check_ready(self) -> None:
        """Raises UserError when answers would be meaningless, as without weights.

        Called by `test`, not by `fit`.
        """

    def own_labels(self) -> Mapping[int, str]:
        """The model's own labels, integer -> name, for `predict`; empty where tasks name them."""
        return {}

    def usage(self) -> Mapping[str, Any]:
        """Cost of answering so far: tokens, requests, retries."""
        return {}

    def one_pass(self) -> Pass | None:
        """Pass counted and timed by `efficiency: true`, or None."""
        return None


def is_here(host: str) -> bool:
    """Whether an address is this machine's, not another's."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


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
        """


class VisionLanguageModel(Model, ABC):
    """A model that reads images and text, and writes text."""

    preferred_batch: int = 1
    """How many prompts `test` gives it at once, unless the command line says otherwise."""

    calls_tools: bool = False
    """Whether it is told of a prompt's `tools` and gives a `Turn` with `calls`; else tools are put into words."""

    @abstractmethod
    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Answers a batch of prompts.

        Args:
            prompts: each with `messages` (turns of texts and places of images), `images` (arrays (channel, row,
                column); `as_pictures` of `medimg_eval.imaging.pictures` makes PIL images of them), `options`, and
                `text`, which is all turns as one text.
            decoding: how to write; greedy unless its temperature is above 0.

        Returns:
            What it writes to each prompt, in order, without the prompt and without special tokens; a `Turn`, which is a
            text, where it knows more, such as a thought, why the text ended or what it cost.
        """


class Chooser(Model, ABC):
    """A model that says which of several options it prefers, without writing."""

    log_likelihoods: ClassVar[bool] = False
    """Whether its numbers are logarithms of likelihoods, so that a softmax of them says how sure it is."""

    @abstractmethod
    def choose(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Weighs the options of a batch of prompts.

        Args:
            prompts: as in `VisionLanguageModel.generate`, each with at least two `options`.

        Returns:
            For each prompt a number per option letter, the largest for the preferred one: a mean log-likelihood, a
            similarity. Equal numbers mean no preference: the score is then that of a draw among them, exactly.
        """


class Synthesizer(Model, ABC):
    """Model that draws pictures from texts and conditioning images."""

    preferred_batch: int = 1
    """How many prompts `test` gives it at once, unless the command line says otherwise."""

    @abstractmethod
    def synthesize(self, prompts: Prompts, seeds: Sequence[Sequence[int]]) -> Sequence[Sequence[Image | Array]]:
        """Makes pictures for a batch of prompts.

        Args:
            prompts: each with a `text`, and with `images` (arrays (channel, row, column)) where the task shows any.
            seeds: for each prompt one of every picture that is wanted, from 0 to 2**31 - 1. A picture must depend on
                its prompt and seed alone, and not on what else is in the batch: a run that is resumed goes on with it.

        Returns:
            For each prompt, in order, as many pictures as it has seeds: `Image`, or arrays (channel, row, column) of 1
            or 3 channels, uint8 or uint16 over their whole range, or floats from 0 to 1; bright where dense for X-rays.
        """


class Embedder(Model, ABC):
    """Model giving images and texts vectors, similar where both match."""

    @abstractmethod
    def embed(self, prompts: Prompts) -> Sequence[Array]:
        """Embeds images or texts.

        Args:
            prompts: each with `images` (arrays (channel, row, column)), or without any and with a `text`.

        Returns:
            For each prompt, in order, a vector, float32, (feature,): of its images together, or of its text where it
            shows none. Vectors of images and texts have the same length, and are compared by their cosine.
        """

    def cuts(self, texts: Sequence[str]) -> Sequence[bool]:
        """Returns which texts are cut at the model's limit."""
        return [False] * len(texts)


class RiskModel(Model, ABC):
    """A model that says how soon an event will come."""

    @abstractmethod
    def estimate_risk(self, prompts: Prompts) -> Sequence[float | Mapping[str, float]]:
        """Estimates risks.

        Args:
            prompts: each with `images`, and as `labels` (integer -> name) `risk` and the survival that is asked for,
                named such as `S(365)`.

        Returns:
            For each prompt, in order, its risk, higher for an earlier event and of any scale; or name -> number with
            `risk`, or with the probability of surviving each of the times, or with both.
        """


class FrameLabeler(Model, ABC):
    """A model that says what each frame of a film shows."""

    preferred_batch: int = 1
    """How many films `test` gives it at once, unless the command line says otherwise."""

    @abstractmethod
    def label_frames(self, prompts: Prompts) -> Sequence[Any]:
        """Labels the frames of films.

        Args:
            prompts: `FilmPrompt`s of `medimg_eval.imaging.video`, each with a `film` that yields its frames in order,
                `phases` (classes of which a frame has one) and `presence` (of which it has any number).

        Returns:
            For each film an answer per frame: a phase, or class -> score, from 0 to 1 for those of presence; best a
            generator, which an online task needs: it yields the answer of a frame before it takes the next. Or a
            `FrameLabels`, or column -> values of all frames.
        """


class Regressor(Model, ABC):
    """Model predicting numbers of a case, such as gene expression."""

    @abstractmethod
    def regress(self, prompts: Prompts) -> Sequence[Array | Mapping[str, float]]:
        """Says the numbers.

        Args:
            prompts: each with `images`, and as `labels` (integer -> name) the outputs that are asked for.

        Returns:
            For each prompt, in order, an array (output,) in the order of `labels`, or output -> number; all finite.
        """


class Registrar(Model, ABC):
    """A model that brings a moving image onto a fixed one."""

    @abstractmethod
    def register(self, prompts: Prompts) -> Sequence[Alignment | Array]:
        """Registers a batch of pairs, which may differ in shape.

        Args:
            prompts: each with two `images`, the fixed one and then the moving one: arrays (channel, *spatial).

        Returns:
            For each prompt, in order, where points of the fixed image lie in the moving one: a displacement, float,
            (axes, *spatial of the fixed image), in voxels, so that index i lies at i + d(i) of the moving image; or an
            affine map, of volumes (4, 4) from RAS+ mm to RAS+ mm, of pictures (3, 3) from pixels to pixels. An
            `Alignment` brings the inverse, too.
        """


class Reconstructor(Model, ABC):
    """A model that makes an image of what a scanner measured."""

    @abstractmethod
    def reconstruct(self, prompts: Prompts) -> Sequence[Array]:
        """Reconstructs scans, which may differ in shape and coils.

        Args:
            prompts: each with an `image` that holds samples of k-space: complex, (coil, *axes), 0 where nothing was
                measured; echoes come first, frequencies last. Its attribute `axes` names the axes but the coil's, in
                words between blanks; those that start with `k` are frequencies. `centred` is `true` where the lowest
                frequency lies in the middle (index n // 2) of these, `false` where it lies at index 0.

        Returns:
            For each prompt, in order, an image: magnitudes or complex numbers, (*axes), in the units of an orthonormal
            inverse FFT. It may be longer than the reference along its last two axes, as of oversampled scans: then its
            middle is judged.
        """


def refuse_names(models: Mapping[str, Any]) -> None:
    """Models within a model, by the keys that name them, are no strings.

    Raises:
        UsageError: one is the name of a config.
    """
    for key, model in models.items():
        if isinstance(model, str):
            raise UsageError(
                f"model.{key} is invalid: expected a model, got the name {model!r}; say +model@model.{key}={model}"
            )


def shown_images(prompt: Prompt) -> list[Image]:
    """Images of the last turn, without those of exemplars; all where it names none."""
    last = prompt.messages[-1].parts if prompt.messages else ()
    return [prompt.images[part] for part in last if isinstance(part, int)] or list(prompt.images)

"""Reconstruction: an image is made of the samples of k-space that a scanner measured."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from medimg_eval.case import Array, Case, Image, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging.system import whole
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.reconstruction import PRESETS, image_metrics, image_scores, worst_image_scores
from medimg_eval.tasks.base import Task, name_once

Lines = Literal["random", "equispaced"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which lines of a fully sampled scan a model is shown.

    Attributes:
        acceleration: How many times fewer lines there are than in the full scan, the middle included.
        centre: The share of all lines, in the middle of k-space, that are always there.
        lines: How the others are chosen: at `random`, or `equispaced` from a random one on.
        seed: Each case has lines of its own, which are the same for every model.
    """

    acceleration: float
    centre: float = 0.08
    lines: Lines = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be sampled."""
        if self.lines not in get_args(Lines):
            raise UsageError(f"sampling: there are no lines {self.lines!r}{nearest(str(self.lines), get_args(Lines))}")
        if not 1 <= self.acceleration < math.inf or not 0 < self.centre <= 1 / self.acceleration:
            raise UsageError(
                "sampling: expected an acceleration of at least 1 and a centre above 0 and at most 1 / acceleration, "
                f"got {self.acceleration} and {self.centre}"
            )

    def mask(self, count: int, rng: np.random.Generator) -> Array:
        """Draws which of so many lines are measured, bool, (line,), with the lowest frequency in the middle."""
        wanted = max(1, round(count / self.acceleration))
        middle = min(wanted, max(1, round(count * self.centre)))
        first = count // 2 - middle // 2
        chosen = np.zeros(count, bool)
        chosen[first : first + middle] = True
        outside = np.flatnonzero(~chosen)
        missing = wanted - middle
        if self.lines == "random":
            chosen[rng.choice(outside, missing, replace=False)] = True
        elif missing:
            places = (np.arange(missing) + rng.random()) * (len(outside) / missing)
            chosen[outside[places.astype(int)]] = True
        return chosen

    def describe(self) -> str:
        """In words."""
        return f"{self.acceleration:g} times fewer lines, {self.lines}, {100 * self.centre:g} % of them in the middle"


@dataclass(kw_only=True)
class ReconstructionTask(Task):
    """Images from k-space, judged per scan against a reference image.

    Attributes:
        data_range: of metrics asked for without a preset, such as `psnr`; in the units of the reference.
        sampling: what of a fully sampled scan is shown, as the fields of `Sampling`; all that the file holds when None.
            Lines run across the last frequency axis.
    """

    data_range: float | None = None
    sampling: Mapping[str, Any] | None = None
    metrics: Sequence[str] = ("psnr@fastmri", "ssim@fastmri", "nmse@fastmri")
    monitor: str = "ssim@fastmri"

    capability: ClassVar[str] = "reconstruct"
    prediction_suffix: ClassVar[str] = ".npy"
    scoring_fields: ClassVar[frozenset[str]] = Task.scoring_fields | {"data_range"}

    def __post_init__(self) -> None:
        """Refuses metrics and sampling that cannot be meant, before anything is loaded."""
        self.metrics = [self.metrics] if isinstance(self.metrics, str) else list(self.metrics)
        name_once(self)
        if not self.metrics:
            raise UsageError(f"task {self.name!r}: expected `metrics` to name at least one")
        if self.data_range is not None and not 0 < self.data_range < math.inf:
            raise UsageError(f"task {self.name!r}: expected `data_range` to be above 0, got {self.data_range!r}")
        try:
            image_metrics([*self.case_metrics, self.monitor], self.data_range)
            self._sampling = None if self.sampling is None else Sampling(**self.sampling)
        except (UsageError, TypeError) as error:
            raise UsageError(f"task {self.name!r}: {error}") from error

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads the samples, and takes out the lines that a model is not to see."""
        images = super().read_images(case)
        if self._sampling is None:
            return images
        return tuple(_thinned(image, self._sampling, case.id) for image in images)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Shows the samples."""
        return Prompt(case.id, images)

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Returns one image per prompt."""
        answers: Sequence[Any] = model.reconstruct(prompts)
        return answers

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Array:
        """Checks shape and numbers, and keeps the middle of what is longer than the reference in a slice.

        Returns:
            Float32, or complex64, shaped like the reference.
        """
        return self._accepted(case, answer, case.target.read().array[0].shape, what)

    def write(self, prediction: Array, path: Path) -> None:
        """Stores an image as .npy."""
        with whole(path) as partial:
            np.save(partial, prediction, allow_pickle=False)

    def score(self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None) -> list[LabelScore]:
        """Judges one scan."""
        reference = case.target.read().array[0]
        answer = _stored(prediction) if isinstance(prediction, Path) else prediction
        image = self._accepted(case, answer, reference.shape, "prediction")
        asked = self.case_metrics if metrics is None else metrics
        try:
            return image_scores(reference, image, metrics=asked, data_range=self.data_range)
        except ValueError as error:
            raise CaseError(f"case {case.id!r}: {error}") from error

    def worst(self, case: Case) -> list[LabelScore]:
        """Each metric's worst value; NaN when the reference itself cannot be read, for then nobody is judged."""
        try:
            case.target.read()
        except CaseError:
            return worst_image_scores(self.case_metrics, known=False)
        return worst_image_scores(self.case_metrics)

    def signature(self) -> str:
        """The conventions of each preset, the data range, and what was shown."""
        presets = dict.fromkeys(str(preset) for _, preset in map(parse, self.metrics) if preset is not None)
        parts = [PRESETS[name].describe() for name in presets]
        if self.data_range is not None:
            parts.append(f"data range {self.data_range:g} without a preset")
        if self._sampling is not None:
            parts.append(self._sampling.describe())
        return "; ".join(parts)

    def _accepted(self, case: Case, answer: Any, shape: tuple[int, ...], what: str) -> Array:
        where = f"case {case.id!r}: {what}"
        image = np.asarray(answer)
        if image.dtype.kind not in "iufc":
            raise CaseError(f"{where} holds {image.dtype}, expected magnitudes or complex numbers")
        if image.ndim == len(shape) + 1 and image.shape[0] == 1:
            image = image[0]
        if (
            image.ndim != len(shape)
            or image.shape[:-2] != shape[:-2]
            or any(longer < wanted for longer, wanted in zip(image.shape, shape, strict=True))
        ):
            raise CaseError(f"{where} has shape {image.shape}, expected that of the reference, {shape}, or a wider one")
        starts = [(longer - wanted) // 2 for longer, wanted in zip(image.shape, shape, strict=True)]
        image = image[tuple(slice(start, start + wanted) for start, wanted in zip(starts, shape, strict=True))]
        wrong = image.size - int(np.isfinite(image).sum())
        if wrong:
            raise CaseError(f"{where} holds {wrong} of {image.size} values that are not finite")
        # What is judged in memory is what a file would hold.
        return np.ascontiguousarray(image, dtype=np.complex64 if image.dtype.kind == "c" else np.float32)


def _thinned(image: Image, sampling: Sampling, case: str) -> Image:
    """Returns the samples with 0 where nothing is measured."""
    names = image.attributes.get("axes", "").split()
    frequencies = [axis for axis, name in enumerate(names, start=1) if name.startswith("k")]
    if not frequencies:
        raise CaseError(f"case {case!r}: the image is no k-space with named axes, and cannot be sampled")
    along = frequencies[-1]
    rng = np.random.default_rng([sampling.seed, zlib.crc32(case.encode())])
    mask = sampling.mask(image.array.shape[along], rng)
    if image.attributes.get("centred") == "false":
        mask = np.fft.ifftshift(mask)
    shape = [1] * image.array.ndim
    shape[along] = len(mask)
    said = {**image.attributes, "acceleration": f"{sampling.acceleration:g}"}
    return replace(image, array=image.array * mask.reshape(shape).astype(np.float32), attributes=said)


def _stored(path: Path) -> Array:
    """Reads what `write` stored."""
    try:
        found: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CaseError(f"{path}: cannot be read as a stored image ({error}); run test again") from error
    return found

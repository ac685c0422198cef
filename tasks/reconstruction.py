"""Reconstruction: an image is made of the samples of k-space that a scanner measured."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np

from medimg_eval.case import Array, Case, Image, Mask, Prompt
from medimg_eval.codecs import Arrays, Codec
from medimg_eval.degradations import conditions_on
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, NAMED, Context, Evidence, MissingEvidenceError, Subject
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.measurement import (
    DIVISIONS,
    T1_KNEE,
    DessScan,
    dess_t2,
    knee_subregions,
    mean_t2,
    measurement_scores,
    worst_measurement_scores,
)
from medimg_eval.metrics.reconstruction import KIND as PERCEPTION
from medimg_eval.metrics.reconstruction import (
    PRESETS,
    WHOLE,
    check_perceived,
    image_metrics,
    image_scores,
    pictures,
    worst_image_scores,
)
from medimg_eval.metrics.registry import Requirement, required
from medimg_eval.panels import Panel
from medimg_eval.store import array_key
from medimg_eval.tasks.base import NOBODY, SCORES, Task
from medimg_eval.tasks.checks import check_metrics

Lines: TypeAlias = Literal["random", "equispaced", "fastmri_random", "fastmri_equispaced"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which lines of a fully sampled scan a model is shown.

    Attributes:
        acceleration: How many times fewer lines there are than in the full scan, the middle included.
        centre: The share of all lines, in the middle of k-space, that are always there.
        lines: How the others are chosen: at `random`, or `equispaced` from a random one on, so many that the
            acceleration is met to the line; or as fastMRI's code draws them for the file of that name,
            `fastmri_random` (knees) and `fastmri_equispaced` (brains), of which the acceleration is met on average.
        seed: Each case has lines of its own, which are the same for every model. Not of fastMRI's, which draws from the
            file's name alone.
    """

    acceleration: float
    centre: float = 0.08
    lines: Lines = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be sampled."""
        UsageError.refuse_invalid("sampling: lines", get_args(Lines), self.lines)
        if not 1 <= self.acceleration < math.inf or not 0 < self.centre <= 1 / self.acceleration:
            raise UsageError(
                "sampling: expected an acceleration of at least 1 and a centre above 0 and at most 1 / acceleration, "
                f"got {self.acceleration} and {self.centre}"
            )

    def of(self, case: str, count: int) -> Array:
        """Draws a case's lines, bool, (line,), reproducibly.

        Args:
            case: its id; with fastMRI's lines the name of its file without `.h5`.
            count: how many lines there are.
        """
        if self.lines.startswith("fastmri"):
            return self._fastmri(f"{case}.h5", count)
        return self.mask(count, np.random.default_rng([self.seed, zlib.crc32(case.encode())]))

    def mask(self, count: int, rng: np.random.Generator) -> Array:
        """Draws measured lines, bool, (line,), lowest frequency in the middle."""
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
            positions = (np.arange(missing) + rng.random()) * (len(outside) / missing)
            chosen[outside[positions.astype(int)]] = True
        return chosen

    def describe(self) -> str:
        """In words."""
        return f"{self.acceleration:g} times fewer lines, {self.lines}, {100 * self.centre:g} % of them in the middle"

    def _fastmri(self, file: str, count: int) -> Array:
        """Mask of `fastmri.data.subsample`, seeded by a file's name."""
        rng = np.random.RandomState([ord(letter) for letter in file])
        rng.randint(1)  # which of one pair of acceleration and centre: it moves the generator on
        middle = round(count * self.centre)
        chosen = np.zeros(count, bool)
        if self.lines == "fastmri_random":
            chosen |= rng.uniform(size=count) < (count / self.acceleration - middle) / (count - middle)
        elif middle * self.acceleration < count:
            step = self.acceleration * (middle - count) / (middle * self.acceleration - count)
            positions = np.arange(rng.randint(0, high=round(step)), count - 1, step)
            chosen[np.around(positions).astype(int)] = True
        start = (count - middle + 1) // 2
        chosen[start : start + middle] = True
        return chosen


@runtime_checkable
class WithTissues(Protocol):
    """A reference that knows which tissue lies where."""

    def tissues(self) -> Mask:
        """Reads the label map on the grid of the reference; raises CaseError."""

    def predicted_tissues(self) -> Mask | None:
        """Reads that of a segmentation on the same grid, if one is judged; raises CaseError."""


@dataclass(frozen=True, kw_only=True)
class DessT2:
    """Mean T2 of tissues, from the magnitudes of two echoes.

    How a scan was measured stands in the case's attributes, by the names of `DessScan`.

    Attributes:
        regions: name -> the labels that the tissue is made of.
        t1: name -> T1 in ms, of tissues that are not taken for 1200 ms.
        subregions: whether regions are divided as DOSMA does; the case's attribute `medial_direction` (L or R) says
            which side is medial, and the map of tissues how it lies.
    """

    regions: Mapping[str, Sequence[int]]
    t1: Mapping[str, float]
    subregions: bool = False

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> DessT2:
        """Makes it of settings; raises UsageError for invalid ones."""
        unknown = [name for name in said if name not in ("regions", "t1", "subregions")]
        regions, t1, subregions = said.get("regions", {}), said.get("t1", {}), bool(said.get("subregions", False))
        if unknown or not isinstance(regions, Mapping) or not regions or not isinstance(t1, Mapping):
            raise UsageError(f"t2: expected `regions`, tissue: labels, and `t1`, tissue: ms, got {dict(said)}")
        labels = {name: [held] if isinstance(held, int) else list(held) for name, held in regions.items()}
        for name, held in labels.items():
            if not held or not all(isinstance(label, int) and label > 0 for label in held):
                raise UsageError(f"t2: expected `regions.{name}` to list labels above 0, got {held}")
        if unknown_ := [name for name in t1 if name not in regions]:
            raise UsageError(f"t2: `t1` names {unknown_[0]!r}, which is none of the regions {', '.join(regions)}")
        if wrong := [name for name, value in t1.items() if not value > 0]:
            raise UsageError(f"t2: expected `t1.{wrong[0]}` to be above 0, got {t1[wrong[0]]}")
        for name in labels if subregions else ():
            UsageError.refuse_invalid("tissue with sub-regions (t2.regions)", DIVISIONS, name)
        return cls(regions=labels, t1={name: float(value) for name, value in t1.items()}, subregions=subregions)

    def describe(self) -> str:
        """In words."""
        t1_text = "".join(f", {name} {value:g}" for name, value in self.t1.items())
        parts = ", by DOSMA's sub-regions" if self.subregions else ""
        return f"T2 from two echoes by magnitudes, T1 {T1_KNEE:g} ms{t1_text}, mean of voxels from 0 to 100 ms{parts}"

    def measure(self, case: Case, reference: Array, image: Array) -> tuple[dict[str, float], dict[str, float]]:
        """Returns mean T2 by tissue of reference and image, in ms.

        Both are (echo, *spatial), two echoes; of complex numbers the magnitude counts. The case's target has tissues,
        and its attributes say how it was measured. Where the target has a segmentation to judge, two further values of
        each tissue: its mask on the reference's map, and on the image's map.

        Raises:
            CaseError: there are not two echoes, or tissues or attributes are missing.
        """
        where = f"case {case.id!r}"
        if reference.ndim != 4 or len(reference) != 2:
            raise CaseError(f"{where}: T2 needs two echoes, got an image of shape {reference.shape}")
        if not isinstance(case.target, WithTissues):
            raise CaseError(f"{where}: T2 needs a map of tissues; name it in the layout, by `tissues`")
        masks = case.target.tissues(), case.target.predicted_tissues()
        right, made = (self._means(case, image_, masks[0]) for image_ in (reference, image))
        if masks[1] is not None:
            for suffix, image_ in ((" (predicted mask)", reference), (" (predicted mask and map)", image)):
                means = self._means(case, image_, masks[1])
                right |= {name + suffix: right[name] for name in means}
                made |= {name + suffix: mean for name, mean in means.items()}
        return right, made

    def _means(self, case: Case, image: Array, mask: Mask) -> dict[str, float]:
        """Mean T2 of an image by tissue or sub-region, in ms."""
        labels = np.asarray(mask.labels)
        if labels.shape != image.shape[1:]:
            raise CaseError(
                f"case {case.id!r}: the map of tissues has shape {labels.shape}, the image {image.shape[1:]}"
            )
        merged, t1 = self._merged(labels)
        t2 = dess_t2(*_image_magnitudes(image), _case_scan(case), t1=t1, where=merged > 0)
        means = {}
        if self.subregions:
            turned, medial_first = _knee_axes(case, mask)
            merged, t2 = merged[turned], t2[turned]
        for number, name in enumerate(self.regions, start=1):
            if not self.subregions:
                means[name] = mean_t2(t2[merged == number])
                continue
            parts = knee_subregions(name, merged == number, t2, medial_first=medial_first)
            means |= {f"{name}: {part}": mean_t2(t2[inside]) for part, inside in parts.items()}
        return means

    def _merged(self, labels: Array) -> tuple[Array, Array]:
        """Which region each voxel belongs to, from 1 on, and its T1."""
        merged, t1 = np.zeros(labels.shape, np.uint8), np.full(labels.shape, np.float32(T1_KNEE))
        for number, (name, held) in enumerate(self.regions.items(), start=1):
            inside = np.isin(labels, held)
            merged[inside] = number
            t1[inside] = self.t1.get(name, T1_KNEE)
        return merged, t1


def _case_scan(case: Case) -> DessScan:
    values = []
    for name in DessScan._fields:
        text = case.attributes.get(name, "")
        try:
            values.append(float(text))
        except ValueError:
            raise CaseError(
                f"case {case.id!r}: T2 needs its attribute {name!r}, a number, and has {text!r}; name the column that "
                "holds it in the layout, by `columns`"
            ) from None
    return DessScan(*values)


def _knee_axes(case: Case, mask: Mask) -> tuple[tuple[slice, ...], bool]:
    """How a map is turned to rows downwards, columns backwards and slices from left to right, and if medial is left."""
    steps = -mask.affine[2, 0], -mask.affine[1, 1], mask.affine[0, 2]
    if any(abs(step) < 0.7 * length for step, length in zip(steps, mask.geometry.spacing, strict=True)):
        raise CaseError(f"case {case.id!r}: sub-regions need a map of tissues with the axes SI, AP and LR, or reversed")
    side = case.attributes.get("medial_direction", "")
    if side not in ("L", "R"):
        raise CaseError(
            f"case {case.id!r}: sub-regions need its attribute 'medial_direction', L or R, and it has {side!r}; name "
            "the column that holds it in the layout, by `columns`"
        )
    return tuple(slice(None, None, 1 if step > 0 else -1) for step in steps), side == "L"


def _image_magnitudes(image: Array) -> tuple[Array, Array]:
    first, second = (np.abs(magnitude) if magnitude.dtype.kind == "c" else magnitude for magnitude in image)
    return first, second


@dataclass(frozen=True, kw_only=True)
class ReconstructionTask(Task):
    """Images from k-space, judged per scan against a reference image.

    Attributes:
        data_range: of metrics asked for without a preset, such as `psnr`; in the units of the reference.
        sampling: what of a fully sampled scan is shown, as the fields of `Sampling`; all that the file holds when None.
            Lines run across the last frequency axis.
        t2: how T2 of tissues is taken from two echoes, as the fields of `DessT2`, for metrics of measurements such as
            `t2_error_ms` and `bland_altman_low`.
    """

    data_range: float | None = field(default=None, metadata=SCORES)
    sampling: Mapping[str, Any] | None = None
    t2: Mapping[str, Any] | None = field(default=None, metadata=SCORES)
    metrics: Sequence[str] = ("psnr@fastmri", "ssim@fastmri", "nmse@fastmri")
    monitor: str = "ssim@fastmri"

    capability: ClassVar[str] = "reconstruct"
    output: ClassVar[str] = "images"
    codec: ClassVar[Codec] = Arrays()
    judges: ClassVar[frozenset[str]] = frozenset({"image", "measurement", PERCEPTION})

    def __post_init__(self) -> None:
        """Refuses invalid metrics and sampling, before anything is loaded."""
        check_metrics(self)
        if not self.metrics:
            raise UsageError(f"task {self.name!r}: expected `metrics` to name at least one")
        if self.data_range is not None and not 0 < self.data_range < math.inf:
            raise UsageError(f"task {self.name!r}: expected `data_range` to be above 0, got {self.data_range!r}")
        try:
            image_metrics([*self._asked(self.case_metrics)[0], self.monitor], self.data_range)
            check_perceived(self.perceptual_metrics, self.data_range)
            _ = self._sampling, self._t2
        except (UsageError, TypeError) as error:
            raise UsageError(f"task {self.name!r}: {error}") from error
        if (quantities := self._asked(self.case_metrics)[1]) and self._t2 is None:
            raise UsageError(
                f"task {self.name!r}: {quantities[0]!r} judges measurements; set t2.regions, tissue: labels, or leave "
                "it out"
            )

    @cached_property
    def _sampling(self) -> Sampling | None:
        return None if self.sampling is None else Sampling(**self.sampling)

    @cached_property
    def _t2(self) -> DessT2 | None:
        return None if self.t2 is None else DessT2.of(self.t2)

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads samples and removes lines hidden from the model."""
        return self.thinned(case, super().read_images(case))

    def thinned(self, case: Case, images: tuple[Image, ...]) -> tuple[Image, ...]:
        """Removes lines hidden from the model from a case's samples."""
        if self._sampling is None:
            return images
        return tuple(_mask_samples(image, self._sampling, case.id) for image in images)

    def training_images(self, case: Case) -> Mapping[str, Any]:
        """All samples and their target image; `training_pair` settles the rest."""
        return {"image": case.images[0].read(), "target": case.target.read()}

    def training_pair(self, case: Case, images: Mapping[str, Any]) -> tuple[Any, Any]:
        """Shown samples and their image, possibly cut to the middle."""
        (shown_image,), target = self.thinned(case, (images["image"],)), images["target"]
        sampled, wanted = shown_image.geometry.shape, target.geometry.shape
        if sampled[:-2] != wanted[:-2] or any(own < cut for own, cut in zip(sampled, wanted, strict=True)):
            raise CaseError(f"case {case.id!r}: its samples {sampled} do not make the image that is right, {wanted}")
        return shown_image, target

    def training_key(self, case: Case) -> tuple[Iterable[Path], str]:
        """Files alone: the cache keeps all samples."""
        return case.files, repr(("scan", case.images, case.target))

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Shows the samples."""
        return Prompt(case.id, images)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Array:
        """Checks shape and numbers, cut to the reference's middle: float32 or complex64."""
        return _check_shape(case, answer, case.target.geometry().shape, what)

    def panels(self, case: Case) -> list[Panel]:
        """The image that is right."""
        return [Panel("alone", "Reference", lambda: case.target.read().array[0])]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The image that was made."""
        path = isinstance(prediction, Path)
        return [Panel("alone", "Reconstruction", lambda: self.codec.read(prediction))] if path else []

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Scores one scan, by network metrics where these were asked."""
        wanted = self.case_metrics if metrics is None else metrics
        metrics_, quantities = self._asked(wanted)
        perceived = self._perceived(case, wanted, context)
        if wanted and not metrics_ and not quantities:
            return perceived
        reference = _single_reference(case)
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        image = _check_shape(case, answer, reference.shape, "prediction")
        try:
            scores = [
                score._replace(label=label or score.label)
                for label, reference_echo, echo in _iterate_echoes(reference, image)
                for score in image_scores(reference_echo, echo, metrics=metrics_, data_range=self.data_range)
            ]
            if quantities and self._t2 is not None:
                scores += measurement_scores(*self._t2.measure(case, reference, image), metrics=quantities)
        except ValueError as error:
            raise CaseError(f"case {case.id!r}: {error}") from error
        return scores + perceived

    def conditions(self) -> frozenset[str]:
        """Conditions that samples of k-space allow."""
        return conditions_on("samples")

    @property
    def perceptual_metrics(self) -> list[str]:
        """The metrics that networks see pictures for, after all cases are predicted."""
        return [name for name in self.case_metrics if parse(name)[0].kind == PERCEPTION]

    def subjects(
        self, need: Requirement, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence
    ) -> Iterator[Subject]:
        """Pairs of stored reconstructions and references, by echo and preset."""
        if need.kind != "distance":
            raise UsageError(f"task {self.name!r}: its images cannot be shown to {need.provider!r}")
        metrics = [name for name in self.perceptual_metrics if need in required(name)]
        presets = dict.fromkeys(_metric_preset(name) for name in metrics)
        for case in cases:
            prediction = predictions.get(case.id)
            if not isinstance(prediction, Path):
                continue
            for preset in presets:
                for number, label in enumerate(_echo_labels(case)):
                    read = partial(self._pair, case, prediction, preset, number)
                    yield Subject(_distance_owner(case, label, preset), lambda read=read: array_key(read()), read)  # type: ignore[misc]

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """Context of networks' statements, of which the manifest takes note."""
        if not evidence.provenance:
            return super().context(cases, predictions, evidence)
        return Context(evidence, facts={"annotators": evidence.provenance})

    def notes(self, cases: Sequence[Case], context: Context) -> list[str]:
        """Notes on cases that networks could not judge."""
        notes = []
        for provider in dict.fromkeys(need.provider for name in self.perceptual_metrics for need in required(name)):
            metrics = [name for name in self.perceptual_metrics if required(name)[0].provider == provider]
            owners = context.evidence.owners(provider)
            cases_shown = dict.fromkeys(owner.rpartition("/")[0] for owner in owners)
            unmeasured = (owner for owner in owners if context.evidence.find(provider, owner).status == "failed")  # type: ignore[union-attr]
            if failed := list(dict.fromkeys(owner.rpartition("/")[0] for owner in unmeasured)):
                some = ", ".join(failed[:NAMED]) + (", ..." if len(failed) > NAMED else "")
                notes.append(f"{', '.join(metrics)}: {len(failed)} of {len(cases_shown)} cases not judged ({some})")
        return notes

    def _perceived(self, case: Case, metrics: Sequence[str], context: Context) -> list[LabelScore]:
        """Scores of asked network metrics; NaN for unusable pictures."""
        scores: list[LabelScore] = []
        for name in metrics:
            metric, preset = parse(name)
            if metric.kind != PERCEPTION or (provider := required(name)[0].provider) not in context.evidence.provenance:
                continue
            try:
                scores += [
                    LabelScore(label, name, metric.function(context.evidence.of(provider, owner), preset), "present")
                    for label in _echo_labels(case)
                    if (owner := _distance_owner(case, label, _metric_preset(name)))
                ]
            except MissingEvidenceError:
                scores.append(LabelScore(WHOLE, name, math.nan, "present"))
        return scores

    def _pair(self, case: Case, prediction: Path, preset: str, number: int) -> Array:
        """The pictures of one echo: float32, (slice, 2, row, column); raises CaseError."""
        return self.pictures(case, prediction, preset or None)[number][1]

    def pictures(self, case: Case, prediction: Path, preset: str | None) -> list[tuple[str, Array]]:
        """Returns pictures of reconstruction and reference for networks, by echo.

        A label and float32, (slice, 2, row, column), from 0 to 1, scaled by the preset, or by `data_range` without one.

        Raises:
            CaseError: one of them cannot be read or judged.
        """
        reference = _single_reference(case)
        image = _check_shape(case, self.codec.read(prediction), reference.shape, "prediction")
        data_range = self.data_range if preset is None else None
        try:
            return [
                (label or WHOLE, pictures(reference_echo, echo, preset, data_range))
                for label, reference_echo, echo in _iterate_echoes(reference, image)
            ]
        except ValueError as error:
            raise CaseError(f"case {case.id!r}: {error}") from error

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores; NaN where the reference is unreadable, for everyone."""
        metrics, quantities = self._asked(self.case_metrics)
        every = [*metrics, *self.perceptual_metrics]
        try:
            reference = _single_reference(case)
            measured = self._t2.measure(case, reference, reference)[0] if quantities and self._t2 is not None else {}
            for _, echo, same_echo in _iterate_echoes(reference, reference):
                image_scores(echo, same_echo, metrics=metrics, data_range=self.data_range)
        except (CaseError, ValueError):
            return worst_image_scores(every, known=False)
        worst = worst_image_scores(every)
        labels = [label for label, *_ in _iterate_echoes(reference, reference)]
        return [
            *(score._replace(label=label or score.label) for label in labels for score in worst),
            *worst_measurement_scores(measured, quantities),
        ]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """The conventions of each preset, the data range, and what was shown."""
        presets = dict.fromkeys(str(preset) for _, preset in map(parse, self.metrics) if preset is not None)
        parts = [PRESETS[name].describe() for name in presets]
        if self.data_range is not None:
            parts.append(f"data range {self.data_range:g} without a preset")
        if any(parse(name)[0].name == "psnr" for name in self.metrics):
            parts.append("PSNR of equal images, which is infinite, left out as undefined")
        if self.perceptual_metrics:
            networks = dict.fromkeys(need.provider for metric in self.perceptual_metrics for need in required(metric))
            networks_text = "; ".join(f"{name}: {provenance[name]}" for name in networks if name in provenance)
            parts.append(f"{networks_text}; of grey pictures cut at 0 and at the data range, mean over slices")
        if self._sampling is not None:
            parts.append(self._sampling.describe())
        if self._t2 is not None and self._asked(self.case_metrics)[1]:
            parts.append(self._t2.describe())
        return "; ".join(parts)

    def _asked(self, metrics: Sequence[str]) -> tuple[list[str], list[str]]:
        """The metrics of images, and those of quantities that are read from them."""
        kinds = {name: parse(name)[0].kind for name in metrics}
        quantities = [name for name, kind in kinds.items() if kind == "measurement"]
        return [name for name, kind in kinds.items() if kind not in ("measurement", PERCEPTION)], quantities


def _single_reference(case: Case) -> Array:
    """Only channel of the reference; CaseError for several, as colours."""
    array = case.target.read().array
    if len(array) != 1:
        raise CaseError(
            f"case {case.id!r}: the reference has {len(array)} channels, and image metrics judge one; write it in grey"
        )
    only: Array = array[0]
    return only


def _iterate_echoes(reference: Array, image: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yields both images by echo with label; unlabelled without echoes."""
    if reference.ndim < 4:
        yield "", reference, image
        return
    for number, pair in enumerate(zip(reference, image, strict=True), start=1):
        yield f"echo {number}", *pair


def _echo_labels(case: Case) -> list[str]:
    """Score names by echo, or of a scan without."""
    shape = case.target.geometry().shape
    return [WHOLE] if len(shape) < 4 else [f"echo {number}" for number in range(1, shape[0] + 1)]


def _metric_preset(metric: str) -> str:
    """Preset that scales a metric's pictures; "" for the data range."""
    return str(parse(metric)[1] or "")


def _distance_owner(case: Case, label: str, preset: str) -> str:
    """Whose a distance is: of a case's echo, by pictures of a preset."""
    return f"{case.id}/{label} {preset}".rstrip()


def _check_shape(case: Case, answer: Any, shape: tuple[int, ...], what: str) -> Array:
    where = f"case {case.id!r}: {what}"
    image = _plain_numbers(answer, where)
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
    # What is judged in memory is what a file would hold.
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(image, dtype=np.complex64 if image.dtype.kind == "c" else np.float32)
    wrong = stored.size - int(np.isfinite(stored).sum())
    if wrong:
        raise CaseError(f"{where} holds {wrong} of {stored.size} values that are not finite")
    return stored


def _plain_numbers(answer: Any, where: str) -> Array:
    """Numbers of an answer, also of torch tensors."""
    try:
        image = np.asarray(answer.detach().cpu() if hasattr(answer, "detach") else answer)
    except (TypeError, ValueError) as error:
        raise CaseError(f"{where} is a {type(answer).__name__} that is no array ({error})") from error
    if image.dtype.kind not in "iufc":
        raise CaseError(f"{where} holds {image.dtype}, expected magnitudes or complex numbers")
    return image


def _mask_samples(image: Image, sampling: Sampling, case: str) -> Image:
    """Returns the samples with 0 where nothing is measured."""
    names = image.attributes.get("axes", "").split()
    frequencies = [axis for axis, name in enumerate(names, start=1) if name.startswith("k")]
    if not frequencies:
        raise CaseError(f"case {case!r}: the image is no k-space with named axes, and cannot be sampled")
    along = frequencies[-1]
    mask = sampling.of(case, image.array.shape[along])
    if image.attributes.get("centred") == "false":
        mask = np.fft.ifftshift(mask)
    shape = [1] * image.array.ndim
    shape[along] = len(mask)
    attributes = {**image.attributes, "acceleration": f"{sampling.acceleration:g}"}
    return replace(image, array=image.array * mask.reshape(shape).astype(np.float32), attributes=attributes)

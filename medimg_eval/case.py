"""The nouns every room speaks: Case, Image, Mask, Prompt and Score.

Nothing here reads files or imports torch, so that scoring processes start in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from medimg_eval import exchange
from medimg_eval.errors import UsageError
from medimg_eval.question import Message, Question

if TYPE_CHECKING:
    import nibabel as nib
    import SimpleITK as sitk  # noqa: N813
    from monai.data import MetaTensor

Array = npt.NDArray[Any]
Units = Literal["mm", "pixel"]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The grid that voxels lie on.

    Attributes:
        shape: voxels along each spatial axis.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        units: `mm`, or `pixel` where the file states no physical size.
    """

    shape: tuple[int, ...]
    affine: Array
    units: Units = "mm"

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance between voxel centres along each axis, in mm."""
        return tuple(float(step) for step in np.linalg.norm(self.affine[:3, :3], axis=0)[: len(self.shape)])

    def world(self, positions: Array) -> Array:
        """Returns voxel indices, (point, axes), as mm in the patient, (point, 3), RAS+.

        A picture's axes span a plane of the patient; of its positions all three coordinates count.
        """
        axes = positions.shape[1]
        return positions @ self.affine[:3, :axes].T + self.affine[:3, 3]

    def difference(self, other: Geometry) -> str | None:
        """Says in words how `other` lies elsewhere, or returns None when both are the same grid.

        Grids are the same when no corner of the volume moves by more than 1 % of the smallest voxel
        edge: affines stored as float32 pass, a flipped axis or a half-voxel shift does not. Where one of
        them states no physical size, as a PNG does, only shapes can be compared.
        """
        if self.shape != other.shape:
            return f"shape {other.shape} instead of {self.shape}"
        if "pixel" in (self.units, other.units):
            return None
        ends = np.array(np.meshgrid(*[(0, n - 1) for n in self.shape])).reshape(len(self.shape), -1)
        flat = np.zeros((3 - len(self.shape), ends.shape[1]))  # a picture lies in one plane
        corners = np.vstack([ends, flat, np.ones_like(ends[:1])])
        moved = np.linalg.norm(((self.affine - other.affine) @ corners)[:3], axis=0)
        # A one-voxel axis has no second corner, so the steps are compared as well.
        steps = np.linalg.norm((self.affine - other.affine)[:3, :3], axis=0)
        apart = float(max(moved.max(), steps.max()))
        if apart <= 0.01 * min(self.spacing):
            return None
        return f"another affine: grids are up to {apart:.3g} mm apart"


class _Voxels:
    """What NumPy and a prompt see of an array with a place."""

    def _values(self) -> Array:
        raise NotImplementedError

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """The array itself, axes and values as they are; a copy where `copy` says so or the dtype is another.

        Raises ValueError where `copy` is False and another dtype is asked for.
        """
        values = self._values()
        if dtype is not None and np.dtype(dtype) != values.dtype:
            if copy is False:
                raise ValueError(f"Expected no copy and {np.dtype(dtype)}, got {values.dtype}, which a copy converts")
            return values.astype(dtype)
        return values.copy() if copy else values

    def __repr__(self) -> str:
        """Such as `<Image CT, 1 x 512 x 512 x 90 int16, 0.7 x 0.7 x 2.5 mm, 2 notes>`."""
        one: Any = self
        values, grid = self._values(), one.geometry
        size = " x ".join(f"{step:.4g}" for step in grid.spacing)
        shape = f"{' x '.join(map(str, values.shape))} {values.dtype}"
        notes = f"{len(one.notes)} note{'s' if len(one.notes) > 1 else ''}" if one.notes else ""
        told = [getattr(one, "modality", ""), shape, f"{size} mm" if grid.units == "mm" else "no physical size", notes]
        return f"<{type(self).__name__} {', '.join(filter(None, told))}>"


@dataclass(frozen=True, eq=False, repr=False)
class Image(_Voxels):
    """Pixels with geometry.

    `np.asarray(image)` is `image.array`, without a copy. To and from other libraries go voxels, place, modality and
    units; notes, attributes and `valid` stay behind.

    Attributes:
        array: (channel, *spatial), in the dtype it was stored with. Volumes are (channel, i, j, k), the
            axes the affine's columns belong to (of a DICOM series: column, row, slice); pictures are
            (channel, row, column); clips are (channel, frame, row, column). Samples of k-space travel as
            (coil, *spatial), complex, and features of tiles as (1, tile, feature).
        affine: float64, (4, 4), voxel index to RAS+ millimetres. Of a picture or clip without a place in
            the patient: a diagonal of the steps along its spatial axes.
        modality: DICOM code such as `MR` or `CT`, empty when unknown.
        units: `mm`, or `pixel` where the file states no physical size.
        notes: what the reader mended or doubts, in words; nothing that identifies a patient.
        attributes: what the file says of the acquisition (scanner, kernel, view, ...); nothing that
            identifies a patient.
        valid: bool, (*spatial), False where the scanner padded; None where it did not.
    """

    array: Array
    affine: Array
    modality: str = ""
    units: Units = "mm"
    notes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    valid: Array | None = None

    @property
    def geometry(self) -> Geometry:
        """The grid the pixels lie on."""
        return Geometry(self.shape[1:], self.affine, self.units)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the array: (channel, *spatial)."""
        return tuple(self.array.shape)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance between pixel centres along each spatial axis, in mm; steps of 1 where no physical size is known."""
        return self.geometry.spacing

    def _values(self) -> Array:
        return self.array

    @classmethod
    def from_array(
        cls,
        array: Any,
        affine: Any = None,
        *,
        spacing: Sequence[float] | None = None,
        channel_axis: int | None = None,
        modality: str = "",
    ) -> Self:
        """Makes an image of an array.

        Args:
            array: of two or three spatial axes, and one of channels where `channel_axis` says which; a volume's axes
                are those of the affine's columns, a picture's (row, column).
            affine: (4, 4), voxel index to RAS+ mm.
            spacing: in its place, mm along each spatial axis. Without either, units are `pixel`.
            channel_axis: such as 0 or -1; None where there is none.
            modality: DICOM code.

        Raises:
            UsageError: shape, affine or spacing are of another kind.
        """
        values = np.asarray(array)
        values = values[None] if channel_axis is None else np.moveaxis(values, channel_axis, 0)
        axes = values.ndim - 1
        if not 2 <= axes <= 3:
            given = f"an array of {np.shape(array)} with channel_axis={channel_axis}"
            raise UsageError(f"expected two or three spatial axes, got {given}")
        if affine is not None and spacing is not None:
            raise UsageError("expected an affine or a spacing, got both")
        placed = exchange.plain_affine(tuple(map(float, spacing or [1.0] * axes))) if affine is None else affine
        placed = np.array(placed, np.float64)
        if (spacing is not None and len(spacing) != axes) or placed.shape != (4, 4) or not np.isfinite(placed).all():
            given = f"spacing {spacing}" if affine is None else f"an affine of shape {placed.shape}"
            raise UsageError(f"expected a finite affine (4, 4), or a spacing for each of {axes} axes, got {given}")
        return cls(values, placed, modality, "pixel" if affine is None and spacing is None else "mm")

    def to_sitk(self) -> sitk.Image:
        """Returns a SimpleITK image, LPS, with a copy of the voxels.

        Volumes become 3-D images of (i, j, k); several channels a vector per voxel. A picture without a place becomes
        a 2-D image whose x is the column, one with a place a volume of one slice.

        Raises:
            UsageError: SimpleITK cannot hold the dtype.
        """
        return exchange.to_sitk(self._parts)

    @classmethod
    def from_sitk(cls, image: sitk.Image) -> Self:
        """Takes what `to_sitk` gives, or any image of SimpleITK; the fourth axis of a 4-D image becomes channels."""
        return cls._of(exchange.from_sitk(image))

    def to_nibabel(self) -> nib.Nifti1Image:
        """Returns a NIfTI image in memory, RAS+, which shares the voxels; several channels are its fourth axis.

        Raises:
            UsageError: NIfTI cannot store the dtype.
        """
        return exchange.to_nibabel(self._parts)

    @classmethod
    def from_nibabel(cls, image: Any) -> Self:
        """Takes what `to_nibabel` gives, or any spatial image of nibabel; volumes and colours become channels."""
        return cls._of(exchange.from_nibabel(image))

    def to_metatensor(self) -> MetaTensor:
        """Returns a MONAI MetaTensor (channel, *spatial) in the dtype of the array, RAS+; it shares memory if it can.

        A picture stays (channel, row, column), where MONAI's own readers give (channel, column, row).
        """
        return exchange.to_metatensor(self._parts)

    @classmethod
    def from_metatensor(cls, tensor: MetaTensor) -> Self:
        """Takes a MetaTensor (channel, *spatial), of any device; shares memory where that is the CPU."""
        return cls._of(exchange.from_metatensor(tensor))

    @property
    def _parts(self) -> exchange.Parts:
        return exchange.Parts(self.array, self.affine, self.units, self.modality)

    @classmethod
    def _of(cls, parts: exchange.Parts) -> Self:
        return cls(parts.array, parts.affine, parts.modality, parts.units)


@dataclass(frozen=True, eq=False, repr=False)
class Mask(_Voxels):
    """A label map: one integer per voxel, 0 is background.

    Attributes:
        labels: integer array, (*spatial).
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        names: what the file calls each label, where it does.
        notes: what the reader mended or doubts, in words.
        units: `mm`, or `pixel` where the file states no physical size.
        instances: integer array, (*spatial): which object a voxel belongs to, numbered from 1 across all labels; 0 for
            none. None where objects are not numbered.
    """

    labels: Array
    affine: Array
    names: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    units: Units = "mm"
    instances: Array | None = None

    @property
    def geometry(self) -> Geometry:
        """The grid the labels lie on."""
        return Geometry(tuple(self.labels.shape), self.affine, self.units)

    def _values(self) -> Array:
        return self.labels


@dataclass(frozen=True, eq=False, repr=False)
class Probabilities(_Voxels):
    """How probable each class is at every voxel; a voxel belongs to one class.

    Attributes:
        array: floats in [0, 1], (class, *spatial), after a softmax.
        labels: of each channel, 0 for background; channels of the same label count together.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        units: `mm`, or `pixel` where no physical size is known.
        notes: what is doubted, in words.
    """

    array: Array
    labels: tuple[int, ...]
    affine: Array
    units: Units = "mm"
    notes: tuple[str, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The grid the voxels lie on."""
        return Geometry(tuple(self.array.shape[1:]), self.affine, self.units)

    def _values(self) -> Array:
        return self.array

    def most_probable(self) -> Mask:
        """The label of the most probable channel of each voxel, int32; of equally probable ones the first's."""
        labels = np.asarray(self.labels, dtype=np.int32)[self.array.argmax(0)]
        return Mask(labels, self.affine, notes=self.notes, units=self.units)

    def merged(self) -> Probabilities:
        """The same with one channel for each label, ascending: the sum of the label's channels, float32."""
        if len(set(self.labels)) == len(self.labels):
            return self
        ordered, given = sorted(set(self.labels)), np.asarray(self.labels)
        sums = [self.array[given == label].sum(0, dtype=np.float32) for label in ordered]
        return replace(self, array=np.minimum(np.stack(sums), 1), labels=tuple(ordered))


@dataclass(frozen=True)
class Findings:
    """Which of several classes are present.

    Attributes:
        values: class -> 1 present, 0 absent, or a probability between; NaN where nothing is said, or where
            the policy for uncertain statements leaves it out.
    """

    values: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Axis-aligned boxes.

    Attributes:
        corners: float64, (box, 2 * axes): first corner then opposite corner, along the image's spatial
            axes in their order (of a picture: row, column, row, column), in voxel indices, where an index
            names a voxel's centre; the opposite corner is the last voxel inside.
        names: one class name per box.
        scores: float64, (box,), confidence 0 to 1; None for a reference.
        masks: of each box the pixels of its object, which may overlap another's: int64, (run, 2), the first pixel of a
            run and the one after its last, counted down the picture's columns; None where there are only boxes.
        areas: float64, (box,), in pixels, as stated; None for those of the masks or boxes.
        crowds: bool, (box,), which of a reference stand for any number of objects; None for none.
        ignored: bool, (box,), which of a reference need not be found; None for none.
    """

    corners: Array
    names: tuple[str, ...]
    scores: Array | None = None
    masks: tuple[Array, ...] | None = None
    areas: Array | None = None
    crowds: Array | None = None
    ignored: Array | None = None


@dataclass(frozen=True, eq=False)
class Points:
    """Landmarks.

    Attributes:
        positions: float64, (point, axes), voxel indices along the image's spatial axes in their order.
        names: one name per point.
        values: a measurement that belongs to each point, such as a diameter in mm; None without.
        scores: float64, (point,), confidence; None for a reference.
    """

    positions: Array
    names: tuple[str, ...]
    values: Array | None = None
    scores: Array | None = None


@dataclass(frozen=True)
class Text:
    """A report, an answer, or another text."""

    text: str


@dataclass(frozen=True)
class Survival:
    """Time until an event, or until it was last known not to have happened.

    Attributes:
        time: in `unit`.
        event: False where the observation is censored.
        unit: such as `months`.
    """

    time: float
    event: bool
    unit: str = "months"


@dataclass(frozen=True, eq=False)
class FrameLabels:
    """What is said of each frame of a video.

    Attributes:
        frames: int64, (frame,), index of each labelled frame, ascending.
        columns: name -> object or number array, (frame,): a phase, an instrument, a point's coordinate.
    """

    frames: Array
    columns: Mapping[str, Array]


T_co = TypeVar("T_co", covariant=True)


class Reference(Protocol[T_co]):
    """Something on disk that is read only when it is needed, possibly in another process."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from: named in error messages, hashed into the data fingerprint."""

    def read(self) -> T_co:
        """Reads it; raises CaseError naming the file when that fails."""

    def geometry(self) -> Geometry:
        """Reads the grid alone, from the header."""


@dataclass(frozen=True)
class Case:
    """One thing to be judged.

    Attributes:
        id: unique within its task.
        images: what a model is shown, read lazily.
        target: what is right, read lazily: a Mask, Findings, Boxes, Points, Text, Key, Survival or FrameLabels.
        patient: who it belongs to; intervals resample patients. None where the data do not say.
        attributes: site, sex, age group, ... for subgroup tables.
        question: what is asked about it in words, if anything is.
        related: other cases that its prompt needs, by what they are to it, such as a prior study.
    """

    id: str
    images: tuple[Reference[Image], ...]
    target: Reference[Any]
    patient: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    question: Question | None = None
    related: Mapping[str, Case] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file the case is read from, images first."""
        return tuple(path for reference in (*self.images, self.target) for path in reference.files)


@dataclass(frozen=True, eq=False)
class Guide:
    """Where a structure lies, as a promptable model is told: a box, points, or both, in voxel indices.

    Attributes:
        box: float64, (2 * axes,): first corner then opposite corner along the image's spatial axes, as in `Boxes`.
            In a volume, a box of a single slice has the same index twice along the last axis. None without.
        points: float64, (point, axes).
        positive: bool, (point,), False for points that lie outside the structure.
    """

    box: Array | None
    points: Array
    positive: Array


@dataclass(frozen=True)
class Prompt:
    """What a model is asked about one case.

    Attributes:
        case_id: the case it is about.
        images: the images, read; empty for a model that declares `reads_images = False`.
        labels: for a segmentation, the structures asked for: integer in the mask -> name.
        guides: for a promptable model, where structures lie: integer in the mask -> one or more guides, of those that
            are there; None where the task gives none.
        messages: for a model that is spoken to: the conversation so far, which ends with a user's turn.
        options: of a question with options: letter -> text, in their order.
        question: of a question: its text alone, without what a template puts about it.
        later: further turns of the user, each said after the reply to what stands before it; the harness does that.
    """

    case_id: str
    images: tuple[Image, ...]
    labels: Mapping[int, str] = field(default_factory=dict)
    guides: Mapping[int, Sequence[Guide]] | None = None
    messages: tuple[Message, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    question: str = ""
    later: tuple[Message, ...] = ()

    @property
    def image(self) -> Image:
        """The first image: all there is in a task of one image per case."""
        return self.images[0]

    @property
    def text(self) -> str:
        """All that is said to the model, turn after turn, without images: enough for one that takes a single text."""
        return "\n".join(message.text for message in self.messages)


class Trial(NamedTuple):
    """One asking about a case: the key of predictions, evidence and scores.

    Attributes:
        case: id of the case.
        repeat: which of the run's repeats, counted from 0.
        condition: key of what is done to the case before it is shown; "" for the benchmark as published.
    """

    case: str
    repeat: int = 0
    condition: str = ""

    @property
    def id(self) -> str:
        """Such as `c7`, `c7#2`, `c7~blur-3` or `c7~blur-3#2`: the case's id where nothing is varied."""
        varied = f"~{self.condition}" if self.condition else ""
        return f"{self.case}{varied}" + (f"#{self.repeat}" if self.repeat else "")


NO_IMAGE = "no_image"
"""The condition of questions that are asked without their images: what a model knows that is blind."""


@dataclass(frozen=True)
class Condition:
    """What is done to a case before it is shown.

    Attributes:
        name: such as `no_image`, `grey` or `blur`.
        severity: how much of it; 0 where it has no degrees.
        settings: further choices that decide what is shown.
    """

    name: str
    severity: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Such as `grey`, or `blur-3`: what stands in the rows and ids of its trials."""
        return f"{self.name}-{self.severity}" if self.severity else self.name


@dataclass(frozen=True)
class Failure:
    """A case that ended without an answer or without a score.

    Attributes:
        case_id: the case.
        stage: where it failed: `read`, `answer`, `check` or `score`.
        message: what happened and how to mend it, for people.
    """

    case_id: str
    stage: str
    message: str


@dataclass(frozen=True)
class Score:
    """One row of `scores.parquet`: everything printed comes from these.

    Attributes:
        value: after the metric's policy for empty masks; NaN where there is nothing to judge.
        status: `present`, `missed`, `hallucinated`, `absent`; `failed` of a case without an answer, `error` where the
            metric itself raised.
        attributes: the case's attributes as a JSON object.
        repeat: which of the run's repeats the prediction is of.
        condition: key of what was done to the case before it was shown; "" for nothing.
    """

    run: str
    task: str
    model: str
    case: str
    patient: str
    label: str
    metric: str
    value: float
    status: str
    attributes: str
    repeat: int = 0
    condition: str = ""


Prompts = Sequence[Prompt]

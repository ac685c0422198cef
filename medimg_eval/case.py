"""The nouns every room speaks: Case, Image, Mask, Prompt and Score.

Nothing here reads files or imports torch, so that scoring processes start in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from medimg_eval.image import Array as Array
from medimg_eval.image import ChannelAxis as ChannelAxis
from medimg_eval.image import Geometry as Geometry
from medimg_eval.image import Image as Image
from medimg_eval.image import Mask as Mask
from medimg_eval.image import Probabilities as Probabilities
from medimg_eval.image import Units as Units
from medimg_eval.question import Message, Question, ToolSpec


@dataclass(frozen=True)
class Findings:
    """Which of several classes are present.

    Attributes:
        values: class -> 1 present, 0 absent, or a probability between; NaN where nothing is said, or where
            the policy for uncertain statements leaves it out.
        readers: reader -> class -> value, where several said it and `values` is the majority; empty elsewhere.
    """

    values: Mapping[str, float]
    readers: Mapping[str, Mapping[str, float]] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class Outline:
    """Pixels of one label in a mask, as a location.

    Attributes:
        mask: the mask, of a picture or a slide.
        label: of its pixels.
        downsample: pixels of the image, of a slide of level 0, along the edge of a pixel of the mask.
    """

    mask: Reference[Mask]
    label: int = 1
    downsample: float = 1.0


@dataclass(frozen=True)
class LocatedFindings(Findings):
    """Which of several classes are present, and where.

    Attributes:
        outlines: class -> where it lies; only classes that are present, and of which that is known.
    """

    outlines: Mapping[str, Outline] = field(default_factory=dict)


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


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where the points of a fixed image lie in a moving one.

    Attributes:
        forward: float, (axes, *spatial), displacement in voxels on the grid of the fixed image: its index i lies at
            i + d(i) of the moving one; or an affine map, of volumes (4, 4) from RAS+ mm to RAS+ mm, of pictures (3, 3)
            from (row, column) to (row, column).
        inverse: the same from the moving to the fixed image; None where a model gives none.
    """

    forward: Array
    inverse: Array | None = None


@dataclass(frozen=True, eq=False)
class Correspondence:
    """References of an image pair to register; unknown parts are None.

    Attributes:
        fixed_labels: label map of the fixed image.
        moving_labels: that of the moving image.
        fixed_points: float64, (point, axes), voxel indices in the fixed image.
        moving_points: float64, (point, axes), where the same points lie in the moving one, in its voxel indices.
        region: bool, on the grid of the fixed image: where a field is judged.
        forward: a known displacement, as of `Alignment`.
    """

    fixed_labels: Mask | None = None
    moving_labels: Mask | None = None
    fixed_points: Array | None = None
    moving_points: Array | None = None
    region: Array | None = None
    forward: Array | None = None


@dataclass(frozen=True)
class Text:
    """A report, an answer, or another text."""

    text: str


@dataclass(frozen=True)
class Survival:
    """Time until an event, or to the last follow-up without.

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
    """Labels of each frame of a video.

    Attributes:
        frames: int64, (frame,), index of each labelled frame, ascending.
        columns: name -> object or number array, (frame,): a phase, an instrument, a point's coordinate.
    """

    frames: Array
    columns: Mapping[str, Array]


T_co = TypeVar("T_co", covariant=True)


class Reference(Protocol[T_co]):
    """Lazily read item on disk, possibly read in another process."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Source files, for error messages and the data fingerprint."""

    def read(self) -> T_co:
        """Reads it; raises CaseError naming the file when that fails."""

    def geometry(self) -> Geometry:
        """Reads the grid alone, from the header."""


@dataclass(frozen=True, eq=False)
class OneFile:
    """Reference that is read from one file, its `path`."""

    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)


class ChangedImage:
    """Reference to an `image` that is changed as it is read; its files and grid stay."""

    image: Reference[Image]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the image."""
        return self.image.files

    def geometry(self) -> Geometry:
        """Grid of the image."""
        return self.image.geometry()


class GridAsRead:
    """Reference whose grid is that of what is read."""

    if TYPE_CHECKING:

        def read(self) -> Any:
            """Reads it."""

    def geometry(self) -> Geometry:
        """The grid of what is read."""
        grid: Geometry = self.read().geometry
        return grid


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be judged.

    Attributes:
        id: unique within its task.
        images: what a model is shown, read lazily.
        target: what is right, read lazily: a Mask, Findings, Boxes, Points, Text, Key, Survival, FrameLabels or
            Correspondence.
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
    """Prompt of promptable models: box, points or both, in voxels.

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
    """Question to a model about one case.

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
        tools: what a model that calls tools may call; empty for any other.
        patient: for tools, never shown to a model; "" where the task has none.
    """

    case_id: str
    images: tuple[Image, ...]
    labels: Mapping[int, str] = field(default_factory=dict)
    guides: Mapping[int, Sequence[Guide]] | None = None
    messages: tuple[Message, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    question: str = ""
    later: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    patient: str = ""

    @property
    def image(self) -> Image:
        """First image: the only one in single-image tasks."""
        return self.images[0]

    @property
    def text(self) -> str:
        """Text of all turns, without images, for single-text models."""
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
        """Id such as `c7`, `c7#2`, `c7~blur-3` or `c7~blur-3#2`.

        The case's id where nothing is varied.
        """
        varied = f"~{self.condition}" if self.condition else ""
        return f"{self.case}{varied}" + (f"#{self.repeat}" if self.repeat else "")


NO_IMAGE = "no_image"
"""The condition of questions that are asked without their images: what a model knows that is blind."""


@dataclass(frozen=True)
class Condition:
    """Change made to a case before it is shown.

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
        """Key such as `grey` or `blur-3`, in rows and trial ids."""
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


class Score(NamedTuple):
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

"""Segmentation: every voxel of an image is given one of the task's labels."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from medimg_eval.case import Array, Case, Guide, Image, Mask, Probabilities, Prompt, Units
from medimg_eval.codecs import Codec, InstanceMasks, Masks, ProbabilityMaps
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging import unknown_values
from medimg_eval.metrics import (
    EmptyPolicy,
    InstanceRule,
    LabelScore,
    LesionRule,
    Surface,
    parse,
    segmentation_scores,
    worst_scores,
)
from medimg_eval.metrics.raters import rater_scores, worst_rater_scores
from medimg_eval.metrics.segmentation import (
    SLACK,
    mask_metrics,
    needs_spacing,
    probability_metrics,
    probability_scores,
    spare_loading,
    worst_probability_scores,
)
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task, same_grid
from medimg_eval.tasks.checks import check_metrics

Kind = Literal["box", "point", "both"]
Per = Literal["volume", "slice"]


@dataclass(frozen=True)
class Guides:
    """Boxes and points from the reference, with a seeded jitter.

    A model that is told where a structure lies answers an easier question than one that finds it: the footnote of a
    table says so.

    Attributes:
        kind: `box`, `point` or `both`.
        per: `volume` gives one guide to a structure; `slice` one to each slice of a volume (across its last axis)
            that shows the structure.
        parts: one guide to each connected component (voxels touch by faces, edges and corners).
        jitter: voxels by which each side of a box, and each coordinate of a point, is moved at most, inward or
            outward, each whole number alike. Boxes stay in the image and keep at least one voxel; a point that would
            leave its structure stays where it was.
        points: points inside the structure: the innermost voxel first, then voxels drawn at random.
        negatives: points outside it, drawn from its box grown by `jitter` + 1 voxels.
        seed: with the case, the label and the slice it decides every draw.
    """

    kind: Kind = "box"
    per: Per = "volume"
    parts: bool = False
    jitter: int = 0
    points: int = 1
    negatives: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        for what, value, options in (("kind", self.kind, Kind), ("per", self.per, Per)):
            UsageError.refuse_invalid(f"task.guides.{what}", get_args(options), value)
        for what, least in (("jitter", 0), ("negatives", 0), ("points", 1), ("seed", 0)):
            value = getattr(self, what)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"expected task.guides.{what} to be a whole number of at least {least}, got {value!r}")

    def of(self, case_id: str, mask: Array, labels: Mapping[int, str]) -> dict[int, tuple[Guide, ...]]:
        """Returns a case's guides, reproducible by seed, case and mask.

        Label -> its guides, in the order of slices and components; labels that the mask lacks are left out.
        """
        drawn = {label: tuple(self._drawn(case_id, label, mask == label)) for label in sorted(labels)}
        return {label: guides for label, guides in drawn.items() if guides}

    def describe(self) -> str:
        """Description for the table's footnote."""
        what = {"box": "boxes", "point": "points", "both": "boxes and points"}[self.kind]
        each = {"volume": "structure", "slice": "slice of a structure"}[self.per]
        each = each.replace("structure", "component") if self.parts else each
        return f"prompted with {what} from the reference, per {each}, jitter {self.jitter} voxels, seed {self.seed}"

    def _drawn(self, case_id: str, label: int, member: Array) -> Iterator[Guide]:
        for number, (offset, piece) in enumerate(self._pieces(member)):
            key = f"{self.seed}/{case_id}/{label}/{number}".encode()
            rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))
            still = np.zeros(member.ndim, dtype=bool)
            still[-1] = self.per == "slice" and member.ndim == 3  # each slice has guides of its own
            yield Guide(
                self._box(offset, piece, member.shape, still, rng) if self.kind != "point" else None,
                *self._points(offset, piece, member.shape, still, rng),
            )

    def _pieces(self, member: Array) -> Iterator[tuple[Array, Array]]:
        """Corners (axes,) and cropped bool masks of guided objects."""
        from scipy.ndimage import find_objects, label

        slices = range(member.shape[-1]) if self.per == "slice" and member.ndim == 3 else [None]
        for index in slices:
            piece_mask = member if index is None else member[..., index : index + 1]
            if not piece_mask.any():
                continue
            numbered = label(piece_mask, np.ones((3,) * member.ndim))[0] if self.parts else piece_mask.astype(np.uint8)
            for number, box in enumerate(find_objects(numbered), 1):
                corner = np.array([part.start for part in box])
                corner[-1] += index or 0
                yield corner, numbered[box] == number

    def _moves(self, count: int, still: Array, rng: np.random.Generator) -> Array:
        return rng.integers(-self.jitter, self.jitter + 1, (count, len(still))) * ~still

    def _box(
        self, corner: Array, piece: Array, shape: tuple[int, ...], still: Array, rng: np.random.Generator
    ) -> Array:
        sides = np.stack([corner, corner + np.array(piece.shape) - 1]) + self._moves(2, still, rng)
        sides = np.sort(sides, axis=0)  # sides that passed each other by still enclose something
        box: Array = np.clip(sides, 0, np.array(shape) - 1).ravel().astype(np.float64)
        return box

    def _points(
        self, corner: Array, piece: Array, shape: tuple[int, ...], still: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        from scipy.ndimage import distance_transform_edt

        if self.kind == "box":
            return np.zeros((0, piece.ndim)), np.zeros(0, dtype=bool)
        depth = distance_transform_edt(np.pad(piece, [(0 if flat else 1,) * 2 for flat in still]))
        first = np.array(np.unravel_index(depth.argmax(), depth.shape)) - ~still
        inside = np.argwhere(piece)
        chosen = np.vstack([first, inside[rng.integers(len(inside), size=self.points - 1)]])
        moved = chosen + self._moves(len(chosen), still, rng)
        near = np.clip(moved, 0, np.array(piece.shape) - 1)
        held = (near == moved).all(axis=1) & piece[tuple(near.T)]
        chosen = np.where(held[:, None], moved, chosen) + corner
        outside = self._outside(corner, piece, shape, still)
        drawn = outside[rng.integers(len(outside), size=self.negatives)] if len(outside) else outside
        positive = np.arange(len(chosen) + len(drawn)) < len(chosen)
        return np.vstack([chosen, drawn]).astype(np.float64), positive

    def _outside(self, corner: Array, piece: Array, shape: tuple[int, ...], still: Array) -> Array:
        """Voxels of the grown box outside the structure."""
        reach = (self.jitter + 1) * ~still
        grown = np.pad(~piece, [(n, n) for n in reach], constant_values=True)
        voxels = np.argwhere(grown) + corner - reach
        inside: Array = voxels[np.all((voxels >= 0) & (voxels < shape), axis=1)]
        return inside


def guides_of(settings: Mapping[str, Any] | None) -> Guides | None:
    """Reads a task's `guides`; None where it has none, UsageError for invalid ones."""
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        raise UsageError(f"expected task.guides to hold settings such as kind: box, got {settings!r}")
    names = [entry.name for entry in fields(Guides)]
    UsageError.refuse_invalid("task.guides: setting", names, *sorted(settings))
    return Guides(**settings)


@dataclass(frozen=True, kw_only=True)
class SegmentationTask(Task):
    """Label maps, judged per case and per label.

    Where a metric judges probabilities, models are asked for those instead, which are then what is stored; the label
    map that the other metrics judge is the most probable class of each voxel.

    Attributes:
        labels: integer in the mask -> name; 0 is background and is not judged.
        regions: name -> the labels that make it up, such as a whole tumour; judged instead of the labels when given.
        unscored: names that only rules look at, such as tissues through which lesions are joined; they get no score.
        surface: `surfel` (area-weighted, the default) or `voxel` (voxel centres); see docs/definitions/segmentation.md.
        empty: what a label is worth that one side lacks, or each: a preset or a mapping; see the same page.
        tolerances: in mm by the name of the label, of metrics asked for without one (`nsd`).
        ignore: a label of the reference whose voxels nobody is judged on.
        instances: how masks fall into instances and are matched; `given` judges objects as the masks number them; see
            docs/definitions/lesions.md.
        lesions: how lesion-wise metrics tell lesions apart: a preset or a mapping.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size.
        guides: boxes or points that promptable models are told, taken from the reference; see docs/evaluate/models.md.
    """

    labels: Mapping[int, str]
    regions: Mapping[str, Sequence[int]] = field(default_factory=dict, metadata=SCORES)
    unscored: Sequence[str] = field(default=(), metadata=SCORES)
    surface: Surface = field(default="surfel", metadata=SCORES)
    empty: str | Mapping[str, Any] | EmptyPolicy = field(default="worst", metadata=SCORES)
    tolerances: Mapping[str, float] = field(default_factory=dict, metadata=SCORES)
    ignore: int | None = field(default=None, metadata=SCORES)
    instances: str | Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    lesions: str | Mapping[str, Any] | None = field(default=None, metadata=SCORES)
    units: Units = field(default="mm", metadata=SCORES)
    guides: Mapping[str, Any] | None = None
    metrics: Sequence[str] = ("dice", "iou", "hd95", "assd", "nsd@1")
    monitor: str = "dice"

    output: ClassVar[str] = "masks"
    judges: ClassVar[frozenset[str]] = frozenset({"mask", "probability", "raters"})

    def __post_init__(self) -> None:
        """Refuses invalid labels and metrics, before anything is loaded."""
        self.complete(labels={int(label): str(name) for label, name in self.labels.items()})
        if not self.labels or min(self.labels) < 1:
            raise UsageError(f"task {self.name!r}: expected labels of 1 and above, got {sorted(self.labels)}")
        check_metrics(self, "masks")
        for what, value, options in (("surface", self.surface, Surface), ("units", self.units, Units)):
            UsageError.refuse_invalid(f"task {self.name!r}: {what}", get_args(options), value)
        kind = parse(self.monitor)[0].kind
        if kind == "probability" and not self._soft:
            raise UsageError(
                f"task {self.name!r}: monitor {self.monitor!r} needs probabilities, which models are asked for where "
                "`metrics` hold such a metric; add it to them"
            )
        self._check_rules()
        if self._numbered and self._soft:
            raise UsageError(f"task {self.name!r}: {self._soft[0]!r} judges probabilities, which number no instances")
        _ = self._guides

    @cached_property
    def _guides(self) -> Guides | None:
        return guides_of(self.guides)

    @property
    def capability(self) -> str:  # type: ignore[override]
        """`segment`, or `give_probabilities` where a metric judges those."""
        return "give_probabilities" if self._soft else "segment"

    @property
    def codec(self) -> Codec:  # type: ignore[override]
        """Codec of label maps, numbered objects, or probabilities."""
        return ProbabilityMaps() if self._soft else InstanceMasks() if self._numbered else Masks()

    @property
    def asked(self) -> Mapping[str, Any]:
        """Kind of answer, part of the run's id: probabilities and numbered objects are others."""
        return {"probabilities": True} if self._soft else {"numbered": True} if self._numbered else {}

    @cached_property
    def _numbered(self) -> bool:
        """Whether objects are judged as masks number them."""
        return InstanceRule.of(self.instances).source == "given"

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads images; those of one grid become channels, as MR sequences."""
        images = super().read_images(case)
        if len(images) == 1:
            return images
        for reference, image in zip(case.images[1:], images[1:], strict=True):
            files = ", ".join(str(path) for path in reference.files)
            same_grid(image.geometry, images[0].geometry, what=f"case {case.id!r}: {files}", than="the first image")
        notes = tuple(dict.fromkeys(note for image in images for note in image.notes))
        return (replace(images[0], array=np.concatenate([image.array for image in images]), notes=notes),)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the task's labels, with guides where it gives them."""
        if self._guides is None or not images:
            return Prompt(case.id, images, self.labels)
        reference = case.target.read()
        same_grid(reference.geometry, images[0].geometry, what=f"case {case.id!r}: reference", than="the image")
        return Prompt(case.id, images, self.labels, self._guides.of(case.id, reference.labels, self.labels))

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Mask | Probabilities:
        """Checks grid, dtype, labels; of probabilities their range and channels."""
        expected = case.target.geometry()
        if self._soft and what == "prediction":  # a reference is a label map, whatever is asked
            return self._accept_probabilities(case, answer)
        if isinstance(answer, Mask):
            mask = answer
        else:
            array = np.asarray(answer)
            geometry = case.images[0].geometry()
            if array.shape != geometry.shape:
                raise CaseError(f"case {case.id!r}: the model's mask has shape {array.shape}, not {geometry.shape}")
            # An array lies on the image's grid, which need not be the reference's.
            mask = Mask(array, geometry.affine, units=geometry.units)
        same_grid(mask.geometry, expected, what=f"case {case.id!r}: {what}", than=_reference(case))
        if mask.labels.dtype.kind not in "iub":
            raise CaseError(f"case {case.id!r}: the model's mask holds {mask.labels.dtype}, not integers")
        if unknown := unknown_values(mask.labels, {0, *self.labels}):
            labels_text = ", ".join(f"{label} {name}" for label, name in self.labels.items())
            raise CaseError(
                f"case {case.id!r}: {what} holds unknown labels {unknown}; the task knows 0 background, {labels_text}"
            )
        _ = self._numbers(case, mask, what)
        return mask

    def _numbers(self, case: Case, mask: Mask, what: str) -> Array | None:
        """Returns a mask's object numbers; CaseError where some lack one."""
        if not self._numbered:
            return None
        if mask.instances is None:
            raise CaseError(
                f"case {case.id!r}: {what} numbers no objects, which task.instances=given judges; give "
                "Mask(..., instances=...), or files read with `objects`, or set task.instances=components"
            )
        bare = int(np.count_nonzero((mask.labels > 0) & (mask.instances <= 0)))
        if bare:
            raise CaseError(f"case {case.id!r}: {what} holds {bare} voxels of labels that belong to no numbered object")
        return mask.instances

    def _accept_probabilities(self, case: Case, answer: Any) -> Probabilities:
        names = ", ".join(self._soft)
        if not isinstance(answer, Probabilities):
            raise CaseError(
                f"case {case.id!r}: the model gave {type(answer).__name__} and not Probabilities, which {names} judge; "
                "leave such metrics out of task.metrics, or ask a model that gives them"
            )
        array, labels = np.asarray(answer.array), [int(label) for label in answer.labels]
        if array.dtype.kind != "f" or len(labels) != len(array):
            raise CaseError(
                f"case {case.id!r}: expected probabilities as floats (class, *spatial) with one label for each of "
                f"{len(array)} channels, got {array.dtype} and labels {labels}"
            )
        same_grid(
            answer.geometry, case.target.geometry(), what=f"case {case.id!r}: probabilities", than=_reference(case)
        )
        wanted = {0, *self.labels}
        if set(labels) != wanted:
            raise CaseError(
                f"case {case.id!r}: the model's channels are for labels {sorted(set(labels))}, the task needs one for "
                f"each of {sorted(wanted)}"
            )
        lowest, highest = float(array.min()), float(array.max())
        if not (lowest >= -SLACK and highest <= 1 + SLACK):  # NaN is neither
            raise CaseError(
                f"case {case.id!r}: expected probabilities in [0, 1], got {lowest:g} to {highest:g}; "
                "logits need a softmax first"
            )
        # What is judged in memory is what a file would hold.
        return replace(answer, array=array.astype(np.float32) if array.dtype.itemsize > 4 else array)

    def panels(self, case: Case) -> list[Panel]:
        """The images and the label map."""
        return [
            replace(panel, labels=self.labels) if panel.kind == "overlay" else panel for panel in super().panels(case)
        ]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Stored label map, or most probable labels."""

        def read() -> Mask:
            answer: Mask | Probabilities = self.codec.read(prediction)
            return answer.most_probable() if isinstance(answer, Probabilities) else answer

        return [Panel("overlay", "", read, self.labels)] if isinstance(prediction, Path) else []

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges every label of one case."""
        spare_loading()
        wanted = self.case_metrics if metrics is None else metrics
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else self.accept(case, prediction)
        soft = _of_kind("probability", wanted)
        if soft and not isinstance(answer, Probabilities):
            raise CaseError(f"case {case.id!r}: {_missing_probabilities(soft)}")
        reference = case.target.read()
        same_grid(answer.geometry, reference.geometry, what=f"case {case.id!r}: prediction", than=_reference(case))
        hard, spacing = _of_kind("mask", wanted), self._spacing(case, reference)
        if math.isnan(spacing[0]) and (lengths := self._lengths(hard)):
            raise CaseError(
                f"case {case.id!r}: {', '.join(str(path) for path in case.images[0].files)} states no physical size; "
                f"set task.units=pixel to judge {', '.join(lengths)} in pixels"
            )
        mask = answer.most_probable() if isinstance(answer, Probabilities) else answer
        due, predicted = self._numbers(case, reference, _reference(case)), self._numbers(case, mask, "prediction")
        scores = segmentation_scores(
            reference.labels,
            mask.labels,
            spacing,
            labels=self._judged(),
            metrics=hard,
            numbers=None if due is None or predicted is None else (due, predicted),
            **self._rules(),
        )
        if soft and isinstance(answer, Probabilities):
            scores += self._soft_scores(reference.labels, answer.merged(), soft)
        if rated := _of_kind("raters", wanted):
            scores += self._rater_scores(case, reference, mask, answer, rated)
        return self._kept(scores)

    def _rater_scores(
        self, case: Case, reference: Mask, mask: Mask, answer: Mask | Probabilities, metrics: Sequence[str]
    ) -> list[LabelScore]:
        """Scores a label map against all readers; CaseError without any."""
        if not reference.raters:
            raise CaseError(
                f"case {case.id!r}: {_reference(case)} is invalid: expected masks of several readers, got one, and "
                f"{metrics[0]} judges against each; use the target RaterMasks, or leave such metrics out"
            )
        judged = np.ones(mask.labels.shape, bool) if self.ignore is None else reference.labels != self.ignore
        soft = None
        if isinstance(answer, Probabilities):
            merged = answer.merged()
            channel = dict(zip(merged.labels, merged.array, strict=True))
            soft = {
                name: sum((channel[label] for label in members), np.zeros(judged.shape))[judged]
                for name, members in self._members().items()
            }
        return rater_scores(
            [labels[judged] for labels in reference.raters],
            mask.labels[judged],
            regions=self._members(),
            metrics=metrics,
            probabilities=soft,
        )

    def _members(self) -> dict[str, Sequence[int]]:
        """The labels of each name that is judged."""
        return dict(self.regions) or {name: (label,) for label, name in self.labels.items()}

    def _soft_scores(self, reference: Array, answer: Probabilities, metrics: Sequence[str]) -> list[LabelScore]:
        return probability_scores(
            reference,
            answer.array,
            labels=self._judged(),
            channels=answer.labels,
            metrics=metrics,
            ignore=self.ignore,
        )

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores; NaN where the reference is unreadable, for everyone."""
        judged, hard = self._judged(), _of_kind("mask", self.case_metrics)
        try:
            reference = case.target.read()
            _ = self._numbers(case, reference, _reference(case))
            spacing = self._spacing(case, reference)
        except CaseError:
            worst = worst_scores(judged, hard, shape=None, spacing=None, empty=self.empty)
            return self._kept(worst + worst_probability_scores(judged, self._soft, known=False))
        unmeasured = (
            self._lengths(hard) if math.isnan(spacing[0]) else []
        )  # nobody is judged by what needs a physical size
        measured = [name for name in hard if name not in unmeasured]
        worst = worst_scores(judged, measured, shape=reference.labels.shape, spacing=spacing, empty=self.empty)
        worst += worst_scores(judged, unmeasured, shape=None, spacing=None, empty=self.empty)
        if evidence := [name for name in _of_kind("mask", measured) if parse(name)[0].intermediate]:
            worst = self._counted(worst, reference, spacing, evidence)
        worst += worst_rater_scores(self._members(), _of_kind("raters", self.case_metrics))
        return self._kept(worst + worst_probability_scores(judged, self._soft))

    def _kept(self, scores: Sequence[LabelScore]) -> list[LabelScore]:
        return [score for score in scores if score.label not in self.unscored]

    @property
    def _soft(self) -> list[str]:
        """The metrics that judge probabilities."""
        return _of_kind("probability", self.case_metrics)

    def _counted(
        self, worst: Sequence[LabelScore], reference: Mask, spacing: tuple[float, ...], evidence: Sequence[str]
    ) -> list[LabelScore]:
        """Counts for summaries; unanswered cases count as empty."""
        nothing = np.zeros_like(reference.labels)
        counts = segmentation_scores(
            reference.labels,
            nothing,
            spacing,
            labels=self._judged(),
            metrics=evidence,
            numbers=None if reference.instances is None else (reference.instances, nothing),
            **self._rules(),
        )
        values = {(score.label, score.metric): score.value for score in counts}
        return [score._replace(value=values.get((score.label, score.metric), score.value)) for score in worst]

    def _judged(self) -> Mapping[int, str] | Mapping[str, Sequence[int]]:
        return self.regions or self.labels

    def _rules(self) -> dict[str, Any]:
        """How `segmentation_scores` is to judge."""
        return {
            "surface": self.surface,
            "empty": self.empty,
            "tolerances": self.tolerances,
            "ignore": self.ignore,
            "instances": self.instances,
            "lesions": self.lesions,
        }

    def _check_rules(self) -> None:
        """Refuses what scoring would refuse, before anything is asked."""
        if not self.metrics:
            raise UsageError(f"task {self.name!r}: expected `metrics` to name at least one")
        for name, members in self.regions.items():
            if not isinstance(members, list | tuple):
                raise UsageError(f"task {self.name!r}: expected region {name!r} to list labels, got {members!r}")
        named = list(self.regions or self.labels.values())
        UsageError.refuse_invalid(f"task {self.name!r}: unscored: label", named, *self.unscored)
        unknown = sorted({label for labels in self.regions.values() for label in labels} - set(self.labels))
        if unknown:
            raise UsageError(f"task {self.name!r}: regions hold labels {unknown} that `labels` does not name")
        nothing, hard = np.zeros((1, 1, 1), np.uint8), _of_kind("mask", self.case_metrics)
        even = Probabilities(np.zeros((1 + len(self.labels), 1, 1, 1), np.float32), (0, *self.labels), np.eye(4))
        monitored = _of_kind("probability", [self.monitor])
        try:
            unit, numbers = (1.0, 1.0, 1.0), (nothing, nothing)
            segmentation_scores(
                nothing, nothing, unit, labels=self._judged(), metrics=hard, numbers=numbers, **self._rules()
            )
            self._soft_scores(nothing, even, list(dict.fromkeys([*self._soft, *monitored])))
        except (ValueError, TypeError) as error:
            raise UsageError(f"task {self.name!r}: {error}") from error

    def _spacing(self, case: Case, reference: Mask) -> tuple[float, ...]:
        """Spacing of reference or image; 1 where pixels count, NaN without physical size."""
        axes = reference.labels.ndim
        if self.units == "pixel":
            return (1.0,) * axes
        if reference.units != "mm" and not case.images:
            return (math.nan,) * axes
        grid = reference.geometry if reference.units == "mm" else case.images[0].geometry()
        return (math.nan,) * axes if grid.units == "pixel" else grid.spacing

    def _lengths(self, metrics: Sequence[str]) -> list[str]:
        """Those metrics of masks that need a physical size."""
        rule = InstanceRule.of(self.instances)
        return [name for name, (definition, _) in mask_metrics(metrics).items() if needs_spacing(definition, rule)]

    def alone(self, metric: str) -> Self:
        """Same task with one metric, independent of the empty-mask policy's name."""
        return replace(super().alone(metric), empty=replace(EmptyPolicy.of(self.empty), name=""))

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Surface convention, percentile rule, empty-mask policy, and what probabilities are sorted into."""
        metrics = mask_metrics(_of_kind("mask", self.case_metrics))
        rule = InstanceRule.of(self.instances)
        measured = any(needs_spacing(definition, rule) for definition, _ in metrics.values())
        parts = [f"surface={self.surface}", "hd95=max of the two directed percentiles"] if measured else []
        if "nsd" in metrics and self.tolerances:
            limits = ", ".join(f"{name} {tolerance:g}" for name, tolerance in self.tolerances.items())
            parts.append(f"NSD tolerances {limits} {self.units}")
        if any("instances" in definition.rules for definition, _ in metrics.values()):
            parts.append(rule.describe())
        if any("lesions" in definition.rules for definition, _ in metrics.values()):
            parts.append(LesionRule.of(self.lesions).describe())
        if self._guides is not None:
            parts.append(self._guides.describe())
        if self.ignore is not None:
            parts.append(f"voxels of label {self.ignore} ignored")
        if self._soft:
            parts.append("label maps of the most probable class")
        counted = probability_metrics(self._soft).items()
        bins = {name: count for name, (definition, count) in counted if definition.parameter == "number of bins"}
        if bins:
            parts.append("bins of equal width " + ", ".join(f"{name} {count:g}" for name, count in bins.items()))
        if metrics:
            parts.append(
                EmptyPolicy.of(self.empty).describe([definition for definition, _ in metrics.values()], self.units)
            )
        return ", ".join(parts) + (", distances in pixels" if metrics and self.units == "pixel" else "")


def _of_kind(kind: str, metrics: Sequence[str]) -> list[str]:
    return [name for name in metrics if parse(name)[0].kind == kind]


def _missing_probabilities(metrics: Sequence[str]) -> str:
    return (
        f"the prediction was stored as a label map, and {', '.join(metrics)} judge probabilities; "
        "run test again with task.metrics that hold them"
    )


def _reference(case: Case) -> str:
    return f"the reference ({', '.join(str(path) for path in case.target.files)})"

"""What segmentation metrics are computed from: the two masks of one label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools
from medimg_eval.metrics.segmentation.distance_samples import Distances
from medimg_eval.metrics.segmentation.label_maps import LabelMap, LabelMapPair
from medimg_eval.metrics.segmentation.matching_rules import InstanceRule, LesionRule
from medimg_eval.metrics.segmentation.surfaces import Spacing

Surface: TypeAlias = Literal["surfel", "voxel"]
Numbers: TypeAlias = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Settings:
    """How a label is judged, beyond its masks.

    Attributes:
        surface: What distances are measured between: "surfel" or "voxel".
        tolerance: In mm, of metrics such as "nsd" that are asked for without one.
        instances: How a mask falls into objects, and which of them are the same.
        lesions: How lesions are told apart and matched.
    """

    surface: Surface = "surfel"
    tolerance: float | None = None
    instances: InstanceRule = field(default_factory=InstanceRule)
    lesions: LesionRule = field(default_factory=LesionRule)


class LabelPair:
    """Masks of one label in reference and prediction, with facts.

    Masks are cropped to the box that holds both, and are only cut out, as distances are only measured, when
    they are first asked for; distances of all labels of a case are measured together.

    Attributes:
        spacing: Voxel size in mm along each axis.
        settings: How the label is judged.
        name: What the label is called.
        shape: Voxels of the image along each axis.
        reference_size: Voxels of the reference.
        prediction_size: Voxels of the prediction.
        overlap_size: Voxels of both.
        numbers: Where instances are given: which one each voxel of the image belongs to, (*spatial), in the reference
            and in the prediction.

    Raises:
        ValueError: If the masks are not boolean, not 2-D or 3-D or of different shapes, if `spacing` is not
            a positive number for each axis, or if the surface is unknown.
    """

    def __init__(
        self,
        reference: Bools,
        prediction: Bools,
        spacing: Sequence[float],
        settings: Settings | Surface = Settings(),
        name: str = "",
    ) -> None:
        check_arrays(reference, prediction, "b", "a boolean mask")
        settings = Settings(surface=settings) if isinstance(settings, str) else settings
        sizes = checked_spacing(spacing, reference.ndim)
        self._set(LabelMapPair(reference, prediction, sizes, [(1,)], settings.surface), 0, settings, name)

    @classmethod
    def of(
        cls, maps: LabelMapPair, region: int, settings: Settings, name: str, siblings: CaseLabels | None = None
    ) -> LabelPair:
        """Returns a region's pair of two label maps, computed jointly."""
        pair = cls.__new__(cls)
        cls._set(pair, maps, region, settings, name, siblings)
        return pair

    def _set(
        self, maps: LabelMapPair, region: int, settings: Settings, name: str, siblings: CaseLabels | None = None
    ) -> None:
        self._maps, self._region = maps, region
        self._siblings = siblings
        self.settings = settings
        self.name = name
        self.spacing = maps.spacing
        self.shape = maps.shape
        self.reference_size, self.prediction_size, self.overlap_size = maps.sizes(region)
        self.numbers: tuple[Numbers, Numbers] | None = None

    @cached_property
    def offset(self) -> tuple[int, ...]:
        """Index in the image of the first voxel of the cropped masks."""
        return tuple(part.start for part in self._maps.box(self._region))

    @cached_property
    def _masks(self) -> tuple[Bools, Bools]:
        return self._maps.masks(self._region)

    @property
    def reference(self) -> Bools:
        """The reference's mask, 2-D or 3-D, cropped to the box that holds both."""
        return self._masks[0]

    @property
    def prediction(self) -> Bools:
        """The prediction's mask, of the same shape."""
        return self._masks[1]

    def sibling(self, name: str) -> LabelPair | None:
        """Returns another label's pair, in its own box; None if unknown."""
        return self._siblings.get(name) if self._siblings else None

    @property
    def status(self) -> Literal["present", "missed", "hallucinated", "absent"]:
        """One of "present", "missed", "hallucinated" and "absent", as in `LabelScore`."""
        if self.reference_size:
            return "present" if self.prediction_size else "missed"
        return "hallucinated" if self.prediction_size else "absent"

    @property
    def voxel_size(self) -> float:
        """Voxel volume in mm3, or pixel area in mm2."""
        return math.prod(self.spacing)

    @property
    def diagonal(self) -> float:
        """Image diagonal in mm, the largest possible distance."""
        return math.hypot(*np.multiply(self.shape, self.spacing))

    @cached_property
    def reference_distances(self) -> Distances:
        """From the reference's surface to the prediction's."""
        return self._maps.reference_distances(self._region)

    @cached_property
    def prediction_distances(self) -> Distances:
        """From the prediction's surface to the reference's."""
        return self._maps.prediction_distances(self._region)


class CaseLabels:
    """The labels of one case, which know each other.

    A pair is made when it is first asked for, and the same one is returned while someone holds it: pairs do not
    hold each other.

    Args:
        makers: Of each label: makes its pair, given these siblings.
    """

    def __init__(self, makers: Mapping[str, Callable[[CaseLabels], LabelPair]]) -> None:
        self._makers = makers
        self._held: WeakValueDictionary[str, LabelPair] = WeakValueDictionary()

    def get(self, name: str) -> LabelPair | None:
        """Returns the pair of a label, None if there is no such label."""
        pair = self._held.get(name)
        if pair is None and name in self._makers:
            pair = self._held[name] = self._makers[name](self)
        return pair

    def pairs(self) -> dict[str, LabelPair]:
        """Returns all pairs by the name of their label."""
        return {name: pair for name in self._makers if (pair := self.get(name)) is not None}


def check_arrays(
    reference: npt.NDArray[np.generic],
    prediction: npt.NDArray[np.generic],
    kinds: str,
    words: str,
) -> None:
    """Checks dtypes (NumPy's letters for their kinds, and in words), dimensions and shapes."""
    for name, array in (("reference", reference), ("prediction", prediction)):
        if array.dtype.kind not in kinds:
            raise ValueError(f"Expected `{name}` to be {words}, got dtype {array.dtype}")
    if reference.ndim not in (2, 3):
        raise ValueError(f"Expected `reference` to be 2-D or 3-D, got shape {reference.shape}")
    if prediction.shape != reference.shape:
        raise ValueError(
            f"Expected `prediction` to have the reference's shape {reference.shape}, got {prediction.shape}"
        )


def checked_spacing(spacing: Sequence[float], axes: int) -> Spacing:
    """Returns valid spacing: one positive number of mm per axis."""
    sizes = tuple(float(size) for size in spacing)
    if len(sizes) != axes or not all(0 < size < math.inf for size in sizes):
        raise ValueError(f"Expected `spacing` to be {axes} positive numbers of mm, got {sizes}")
    return sizes


def label_pairs(
    reference: LabelMap,
    prediction: LabelMap,
    spacing: Spacing,
    regions: Mapping[str, Sequence[int]],
    settings: Mapping[str, Settings],
    ignore: int | None = None,
) -> dict[str, LabelPair]:
    """Returns mask pairs by region name, in order.

    They know each other as siblings. Maps are integer label maps or boolean masks, 2-D or 3-D; regions may overlap, and
    are of labels of 1 or above. Voxels of the reference with the label `ignore` are background in both maps.
    """
    makers: dict[str, Callable[[CaseLabels], LabelPair]] = {}
    for layer in _region_layers(regions):
        surface = settings[layer[0]].surface
        maps = LabelMapPair(reference, prediction, spacing, [regions[name] for name in layer], surface, ignore)
        for index, name in enumerate(layer):
            makers[name] = partial(LabelPair.of, maps, index, settings[name], name)
    return CaseLabels({name: makers[name] for name in regions}).pairs()


def mask_pairs(
    reference: Bools, prediction: Bools, spacing: Spacing, settings: Mapping[str, Settings]
) -> Iterator[tuple[str, LabelPair]]:
    """Yields pairs of masks, (region, *spatial), one by one in order, as siblings."""

    def made(index: int, name: str, siblings: CaseLabels) -> LabelPair:
        maps = LabelMapPair(reference[index], prediction[index], spacing, [(1,)], settings[name].surface)
        return LabelPair.of(maps, 0, settings[name], name, siblings)

    siblings = CaseLabels({name: partial(made, index, name) for index, name in enumerate(settings)})
    for name in settings:
        if pair := siblings.get(name):
            yield name, pair


def _region_layers(regions: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Splits regions into few layers without shared labels."""
    layers: list[tuple[list[str], set[int]]] = []
    for name, labels in regions.items():
        for layer, taken in layers:
            if taken.isdisjoint(labels):
                layer.append(name)
                taken.update(labels)
                break
        else:
            layers.append(([name], set(labels)))
    return [layer for layer, _ in layers]

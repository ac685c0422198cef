"""All labels of two label maps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from medimg_eval.metrics._joint import JointMaps
from medimg_eval.metrics._numbering import LabelMap
from medimg_eval.metrics._pairs import LabelPair, Settings, Siblings
from medimg_eval.metrics._surfaces import Bools, Spacing


def label_pairs(
    reference: LabelMap,
    prediction: LabelMap,
    spacing: Spacing,
    regions: Mapping[str, Sequence[int]],
    settings: Mapping[str, Settings],
    ignore: int | None = None,
) -> dict[str, LabelPair]:
    """Returns the pair of masks of each region, by name and in the order of the regions.

    They know each other as siblings.

    Args:
        reference: Integer label map, or boolean mask, 2-D or 3-D.
        prediction: Of the same shape.
        spacing: Voxel size in mm along each axis.
        regions: The labels that make up each region, 1 or above; regions may overlap.
        settings: How each region is judged; the surface is the same for all.
        ignore: A label of the reference whose voxels are background in both maps.
    """
    makers: dict[str, Callable[[Siblings], LabelPair]] = {}
    for layer in _layers(regions):
        surface = settings[layer[0]].surface
        maps = JointMaps(reference, prediction, spacing, [regions[name] for name in layer], surface, ignore)
        for index, name in enumerate(layer):
            makers[name] = partial(LabelPair.of, maps, index, settings[name], name)
    return Siblings({name: makers[name] for name in regions}).pairs()


def mask_pairs(
    reference: Bools, prediction: Bools, spacing: Spacing, settings: Mapping[str, Settings]
) -> Iterator[tuple[str, LabelPair]]:
    """Yields the pair of each of several masks, one after the other; they know each other as siblings.

    Args:
        reference: (region, *spatial), bool.
        prediction: Of the same shape.
        spacing: Voxel size in mm along each axis.
        settings: How each region is judged, in their order.
    """

    def made(index: int, name: str, siblings: Siblings) -> LabelPair:
        maps = JointMaps(reference[index], prediction[index], spacing, [(1,)], settings[name].surface)
        return LabelPair.of(maps, 0, settings[name], name, siblings)

    siblings = Siblings({name: partial(made, index, name) for index, name in enumerate(settings)})
    for name in settings:
        if pair := siblings.get(name):
            yield name, pair


def _layers(regions: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Deals regions out into as few layers as it takes for no two of a layer to share a label."""
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

"""What is drawn on a slide, as a mask, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from medimg_eval.case import Array

Kind = Literal["area", "line", "points"]


@dataclass(frozen=True, eq=False)
class Annotation:
    """One object drawn on a slide.

    Attributes:
        name: of its class (QuPath) or group (ASAP); "" where it has none.
        kind: of an area, `parts` are polygons: an outline and then its holes; of a line, lines; of points, all of them.
        parts: float64, (vertex, 2) each: x and y in level-0 pixels, the upper left corner of the slide being 0, 0.
        values: measurements by name, such as a confidence.
        id: the file's name for it.
    """

    name: str
    kind: Kind
    parts: tuple[tuple[Array, ...], ...]
    values: Mapping[str, float] = field(default_factory=dict)
    id: str = ""

    def centres(self) -> Array:
        """Returns points, or box centres of areas, (point, 2)."""
        corners: Array = np.concatenate([ring for part in self.parts for ring in part])
        return (corners.min(0, keepdims=True) + corners.max(0, keepdims=True)) / 2 if self.kind == "area" else corners


@dataclass(frozen=True)
class Frame:
    """Where the pixels of a mask lie on the slide.

    Attributes:
        first: row and column of the mask's corner, in level-0 pixels.
        downsample: level-0 pixels to a pixel of the mask, along rows and columns.
    """

    first: tuple[float, float] = (0.0, 0.0)
    downsample: tuple[float, float] = (1.0, 1.0)

    def indices(self, xy: Array) -> Array:
        """Converts x, y (point, 2) to rows and columns at pixel centres."""
        return (np.asarray(xy, np.float64)[:, ::-1] - self.first) / self.downsample - 0.5

    def places(self, indices: Array) -> Array:
        """Turns rows and columns, (point, 2), into x and y."""
        return ((np.asarray(indices, np.float64) + 0.5) * self.downsample + self.first)[:, ::-1]


def draw(
    annotations: Sequence[Annotation], labels: Mapping[str, int], shape: tuple[int, int], frame: Frame = Frame()
) -> tuple[Array, Array]:
    """Fills areas on a grid, by pixel centres.

    Args:
        annotations: of which areas are drawn.
        labels: class -> label, in the order of drawing: where two overlap the later one wins, and 0 erases, as
            CAMELYON's group of what is no tumour. Within a class, the later object wins.
        shape: rows and columns.
        frame: where the grid lies on the slide.

    Returns:
        Labels, and numbers of the objects from 1 in the order of drawing; (*shape) each.
    """
    from medimg_eval.imaging.dicom import fill

    drawn = np.zeros(shape, np.min_scalar_type(max(labels.values(), default=0)))
    numbers = np.zeros(shape, np.int32)
    number = 0
    for name, label in labels.items():
        for annotation in annotations:
            if annotation.name != name or annotation.kind != "area":
                continue
            number += 1 if label else 0
            for rings in annotation.parts:
                indices = [frame.indices(ring) for ring in rings]
                corners = np.concatenate(indices)
                low = np.clip(np.floor(corners.min(0)), 0, shape).astype(int)
                high = np.clip(np.ceil(corners.max(0)) + 1, 0, shape).astype(int)
                if (high <= low).any():
                    continue
                inside = fill([ring - low for ring in indices], (int(high[0] - low[0]), int(high[1] - low[1])))
                box = (slice(low[0], high[0]), slice(low[1], high[1]))
                drawn[box][inside], numbers[box][inside] = label, number if label else 0
    return drawn, numbers


def outline(
    labels: Array, names: Mapping[int, str], numbers: Array | None = None, frame: Frame = Frame()
) -> list[Annotation]:
    """Traces a mask: `draw` gives it back, pixel by pixel.

    Args:
        labels: integers, (row, column).
        names: label -> class; other labels are not traced.
        numbers: integers, (row, column), that number objects from 1; None makes one area of a label.
        frame: where the grid lies on the slide.

    Returns:
        An area for each object, in the order of labels and numbers.
    """
    from scipy.ndimage import find_objects

    annotations = []
    for label, name in names.items():
        member = np.where(labels == label, 1 if numbers is None else numbers, 0)
        values, indices = np.unique(np.append(0, member), return_inverse=True)
        parts = indices[1:].reshape(member.shape)
        for number, box in enumerate(find_objects(parts), start=1):
            corner = np.array([side.start for side in box])
            polygons = _mask_polygons(parts[box] == number, corner, frame)
            annotations.append(Annotation(name, "area", polygons, id="" if numbers is None else str(values[number])))
    return annotations


def _mask_polygons(mask: Array, corner: Array, frame: Frame) -> tuple[tuple[Array, ...], ...]:
    """Returns polygons of a mask: outline and holes, rings open."""
    from skimage.measure import find_contours

    # A contour at one half runs between the centres of inner and outer pixels, and through none.
    rings = [ring[:-1] for ring in find_contours(np.pad(mask, 1).astype(np.float64), 0.5)]
    sizes = np.array([_signed_area(ring) for ring in rings])
    outward = np.sign(sizes[np.abs(sizes).argmax()])  # the largest is no hole, and holes run the other way
    outer = [index for index, size in enumerate(sizes) if np.sign(size) == outward]
    held: dict[int, list[Array]] = {index: [rings[index]] for index in outer}
    for index, ring in enumerate(rings):
        if index not in held:
            around = [number for number in outer if _is_inside(ring[0], rings[number])]
            held[min(around, key=lambda one: abs(sizes[one]))].append(ring)
    return tuple(tuple(frame.places(ring - 1 + corner) for ring in polygon) for polygon in held.values())


def _signed_area(ring: Array) -> float:
    points, following = ring, np.roll(ring, -1, axis=0)
    return float((points[:, 0] * following[:, 1] - following[:, 0] * points[:, 1]).sum() / 2)


def _is_inside(point: Array, ring: Array) -> bool:
    """Whether a point that is not on the ring lies inside it."""
    row, column = point
    points, following = ring, np.roll(ring, -1, axis=0)
    crosses = (points[:, 0] > row) != (following[:, 0] > row)
    share = (row - points[crosses, 0]) / (following[crosses, 0] - points[crosses, 0])
    return bool(
        np.count_nonzero(points[crosses, 1] + share * (following[crosses, 1] - points[crosses, 1]) > column) % 2
    )

"""What is seen of a case, as a page in a browser takes it: pictures, volumes, label maps and marks on one grid."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.case import Array, Boxes, Geometry, Image, Mask, Points
from medimg_eval.errors import CaseError
from medimg_eval.imaging import WINDOWS, reorient, resample
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.system import whole

if TYPE_CHECKING:
    from pathlib import Path

EDGE = 1536
"""Longest edge of a picture on a page; longer ones are thinned."""

CHANNELS = 4
"""Channels of a volume that are shown at most."""

FEWEST = 16
"""Slices that thinning leaves along an axis at least."""

FRAMES = 8
"""Frames of a clip that are shown at most."""

LEVELS = 65_535
"""Steps that values are stored in which are no integers of 16 bits."""


@dataclass(frozen=True)
class Grid:
    """Layout of an image on the page: RAS+, thinned if large.

    Attributes:
        own: the grid of the image.
        shown: that of what is shown.
        factor: of so many voxels along each axis one is shown.
    """

    own: Geometry
    shown: Geometry
    factor: int

    @classmethod
    def of(cls, image: Image, voxels: int) -> Grid:
        """Chooses the grid that an image is shown on.

        Args:
            image: a picture, or a volume.
            voxels: how many of a volume are shown at most.
        """
        own = image.geometry
        if len(own.shape) == 2:
            return cls(own, own, -(-max(own.shape) // EDGE))
        turned = reorient(Mask(np.empty(own.shape, np.bool_), own.affine), "RAS").geometry
        grid = cls(own, turned, 1)
        while np.prod(np.array(turned.shape) // grid.steps) > voxels and max(grid.steps) == grid.factor:
            grid = cls(own, turned, grid.factor + 1)
        return grid

    @property
    def steps(self) -> tuple[int, ...]:
        """Subsampling steps by axis, sparing short ones.

        Axes that would be left with few stay whole.
        """
        return tuple(self.factor if count >= FEWEST * self.factor else 1 for count in self.shown.shape)

    @property
    def affine(self) -> Array:
        """Affine of what is shown, through the middles of merged voxels."""
        steps = np.array([*self.steps, 1, 1][:3], float)
        moved: Array = self.shown.affine @ np.diag([*steps, 1])
        moved[:3, 3] += self.shown.affine[:3, :3] @ ((steps - 1) / 2)
        return moved

    def values(self, array: Array) -> Array:
        """Returns a channel's values, (*spatial), averaged for display."""
        turned = self._turned(Image(array[None], self.own.affine, units=self.own.units)).array[0]
        reduced: Array = turned[
            tuple(slice(0, n // step * step) for n, step in zip(turned.shape, self.steps, strict=True))
        ]
        for axis, step in enumerate(self.steps):
            if step > 1:
                split = (*reduced.shape[:axis], reduced.shape[axis] // step, step, *reduced.shape[axis + 1 :])
                reduced = reduced.reshape(split).mean(axis=axis + 1, dtype=np.float32)
        return reduced

    def labels(self, mask: Mask) -> Array:
        """Returns a label map on the displayed grid."""
        if self.own.difference(mask.geometry) is not None:
            if self.own.shape != mask.labels.shape and "pixel" in (self.own.units, mask.units):
                raise CaseError(f"a label map of shape {mask.labels.shape} does not fit an image of {self.own.shape}")
            mask = resample(mask, self.own)
        turned: Array = self._turned(Mask(mask.labels, self.own.affine)).labels
        steps = zip(turned.shape, self.steps, strict=True)
        return turned[tuple(slice(step // 2, count // step * step, step) for count, step in steps)]

    def places(self, positions: Array) -> Array:
        """Returns voxel indices, (point, axes), on the displayed grid."""
        if len(self.own.shape) == 2:
            step = np.array(self.steps)
            moved: Array = (positions - (step - 1) / 2) / step
            return moved
        back = np.linalg.inv(self.affine)
        world = self.own.world(positions)
        return world @ back[:3, :3].T + back[:3, 3]

    def _turned(self, thing: Any) -> Any:
        return thing if len(self.own.shape) == 2 else reorient(thing, "RAS")


def stored_values(values: Array) -> tuple[Array, float, float]:
    """Returns int16 values with slope and intercept; non-finite is lowest."""
    if values.dtype.kind in "iub" and (not values.size or (values.min() >= -32768 and values.max() <= 32767)):
        return values.astype(np.int16), 1.0, 0.0
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    slope = (high - low) / LEVELS or 1.0
    whole_steps = np.rint((np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) / slope) - 32768
    return whole_steps.astype(np.int16), slope, low + 32768 * slope


def window_of(values: Array) -> tuple[float, float]:
    """Returns the 1st to 99th percentile range, else full range."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    thinned = finite[:: max(1, finite.size // 1_000_000)]
    low, high = np.percentile(thinned, (1, 99))
    if low == high:
        low, high = float(finite.min()), float(finite.max())
    return float(low), float(high) if high > low else float(low) + 1


def packed(array: Array) -> str:
    """Returns an array's bytes, first axis slowest, as gzip in base64."""
    return base64.b64encode(gzip.compress(np.ascontiguousarray(array).tobytes(), 5, mtime=0)).decode()


def nifti(array: Array, affine: Array, slope: float = 1.0, intercept: float = 0.0) -> str:
    """Returns a volume, (i, j, k), int16 or uint8, as .nii.gz in base64."""
    import nibabel as nib

    header = nib.Nifti1Header()
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    header.set_sform(affine, code=1)
    header.set_qform(affine, code=1)
    header["scl_slope"], header["scl_inter"] = slope, intercept
    header["vox_offset"], header["magic"] = 352, b"n+1"
    header.set_xyzt_units("mm")
    content = header.binaryblock + b"\0\0\0\0" + array.tobytes(order="F")
    return base64.b64encode(gzip.compress(content, 5, mtime=0)).decode()


def volume(values: Array, grid: Grid, modality: str = "") -> dict[str, Any]:
    """Returns a one-channel volume in the page's form."""
    reduced = grid.values(values)
    stored, slope, intercept = stored_values(_rounded_like(reduced, values))
    affine = grid.affine
    return {
        "kind": "volume",
        "shape": stored.shape,
        "spacing": np.linalg.norm(affine[:3, :3], axis=0),
        "nifti": nifti(stored, affine, slope, intercept),
        "steps": grid.steps if max(grid.steps) > 1 else [],
        **_window_settings(reduced, slope, intercept, modality),
    }


def stack(values: Array, modality: str = "", window: tuple[float, float] | None = None) -> dict[str, Any]:
    """Returns slices (slice, row, column) in the page's form."""
    stored, slope, intercept = stored_values(values)
    entry = {
        "kind": "stack",
        "shape": stored.shape,
        "data": packed(stored),
        **_window_settings(values, slope, intercept, modality),
    }
    return entry if window is None else {**entry, "window": window}


def raster(image: Image, folder: Path, name: str, factor: int = 1) -> dict[str, Any]:
    """Writes a picture as PNG; returns the page's entry."""
    picture = as_picture(image)
    rows, columns = (count // factor for count in (picture.height, picture.width))
    if factor > 1:
        picture = picture.crop((0, 0, columns * factor, rows * factor)).reduce(factor)
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / name) as partial:
        picture.save(partial, "PNG")
    return {"kind": "raster", "shape": [1, rows, columns], "file": name, "steps": [factor] * 2 if factor > 1 else []}


def pictures(image: Image, grid: Grid | None, folder: Path, stem: str) -> list[dict[str, Any]]:
    """Returns displays of an image: picture, channels or frames.

    Raises:
        CaseError: there is nothing in it that a person could look at.
    """
    array = np.asarray(image.array)
    if array.dtype.kind == "c":
        raise CaseError("the image is complex, such as k-space, which is not shown")
    if array.ndim == 3:
        factor = grid.factor if grid else -(-max(array.shape[1:]) // EDGE)
        if len(array) == 1 and array.dtype != np.uint8:
            values = _rounded_like(grid.values(array[0]) if grid else array[0], array)
            return [{**stack(values[None], image.modality), "steps": [factor] * 2 if factor > 1 else []}]
        return [raster(image, folder, f"{stem}.png", factor)]
    if array.ndim != 4:
        raise CaseError(f"an image of shape {array.shape} is no picture, volume or clip, and is not shown")
    if is_clip(image):
        chosen = np.unique(np.linspace(0, array.shape[1] - 1, min(FRAMES, array.shape[1])).astype(int))
        frames = [Image(array[:, frame], np.eye(4), units="pixel") for frame in chosen]
        return [
            {**raster(frame, folder, f"{stem}-{number}.png"), "title": f"frame {number + 1}"}
            for frame, number in zip(frames, chosen.tolist(), strict=True)
        ]
    if grid is None:
        raise CaseError("a volume needs a grid to be shown on")
    names = [""] if len(array) == 1 else [f"channel {channel + 1}" for channel in range(min(CHANNELS, len(array)))]
    return [
        {**volume(channel, grid, image.modality), "title": name}
        for channel, name in zip(array[:CHANNELS], names, strict=False)
    ]


def is_clip(image: Image) -> bool:
    """Whether an image of four axes is a clip of coloured frames."""
    return image.array.ndim == 4 and image.array.shape[0] == 3 and image.array.dtype == np.uint8


def label_map(labels: Array, values: Sequence[int], grid: Grid) -> dict[str, Any]:
    """Returns labels numbered from 1 in the page's form, else 0."""
    numbers = np.zeros(labels.shape, np.uint8)
    for number, value in enumerate(values, start=1):
        numbers[labels == value] = number
    if numbers.ndim == 3:
        return {"nifti": nifti(numbers, grid.affine)}
    return {"data": packed(numbers[None])}


def marks(found: Points | Boxes, grid: Grid | None) -> list[dict[str, Any]]:
    """Returns points or boxes in displayed voxels."""
    boxes = isinstance(found, Boxes)
    positions = np.asarray(found.corners if isinstance(found, Boxes) else found.positions, float)
    if not len(found.names):
        return []
    axes = positions.shape[1] // (2 if boxes else 1)
    flat = positions.reshape(-1, axes)
    moved = (flat if grid is None else grid.places(flat)).reshape(len(found.names), -1, axes)
    if boxes:  # turning a volume may swap first and last
        moved = np.stack([moved.min(axis=1), moved.max(axis=1)], axis=1)
    scores: Sequence[float | None] = [None] * len(moved) if found.scores is None else list(map(float, found.scores))
    return [
        {"kind": "box" if boxes else "point", "name": name, "place": position.ravel().round(2), "score": score}
        for name, position, score in zip(found.names, moved, scores, strict=True)
        if not np.isnan(position).any()
    ]


def _window_settings(values: Array, slope: float, intercept: float, modality: str) -> dict[str, Any]:
    presets: Mapping[str, tuple[float, float]] = WINDOWS.get(modality, {})
    low, high = window_of(values)
    if modality in WINDOWS:  # so that air outside does not set the window
        middle, width = next(iter(presets.values()))
        low, high = middle - width / 2, middle + width / 2
    return {
        "slope": slope,
        "intercept": intercept,
        "window": [low, high],
        "full": window_of(values),
        "presets": [[name, middle - width / 2, middle + width / 2] for name, (middle, width) in presets.items()],
    }


def _rounded_like(values: Array, original: Array) -> Array:
    """Rounded means of integers, which compress better."""
    if original.dtype.kind in "iu" and values.dtype.kind == "f":
        return np.rint(values).astype(original.dtype)
    return values

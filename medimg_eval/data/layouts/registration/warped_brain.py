"""The MNI152 brain and a copy of it that a known map has bent: pairs whose right answer is exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Case, Correspondence, Geometry, Image, Mask
from medimg_eval.data.mni152 import template_file, tissue_labels
from medimg_eval.errors import UserError
from medimg_eval.imaging import ImageFile

STEP = 3
"""Every third voxel of the template, so that a volume of 3 mm is registered in seconds."""

SEEDS = range(6)
"""Of the warps; all pairs are tested on, for there is one brain alone."""

POINTS = 60
"""Points in the brain whose places are known in both images."""


@dataclass
class WarpedBrain:
    """Pairs of the MNI152 brain, fixed, and a bent copy, moving.

    The moving image shows at y what the fixed one has at b(y): a rotation about the middle, a shift, and waves. Labels
    are tissues; the points lie in them. All images are of one template, in other grey values: what tells methods apart
    is how they find the warp, not what they make of anatomy.

    Args:
        degrees: of the rotation about each axis, at most.
        shift: of the translation along each axis, at most, in mm.
        waves: height of the waves along each axis, in mm, 5 at most, so that nothing folds.
    """

    degrees: float = 6.0
    shift: float = 6.0
    waves: float = 4.0

    def __post_init__(self) -> None:
        """Refuses waves that fold."""
        if not 0 <= self.waves <= 5:
            raise UserError(f"expected task.layout.waves from 0 to 5 mm, got {self.waves!r}")

    def cases(self, split: str) -> list[Case]:
        """The pairs, each by its seed; there is no split but `test`."""
        UserError.refuse_unknown("the warped brain has no split", ["test"], split)
        return [self._case(f"warp{seed}", seed) for seed in SEEDS]

    def _case(self, name: str, seed: int) -> Case:
        warp = Warp(seed, self.degrees, self.shift, self.waves)
        return Case(name, (BrainImage(), BrainImage(warp)), KnownWarp(warp), name)


@dataclass(frozen=True)
class Warp:
    """Seeded map from moving to fixed image, in mm."""

    seed: int
    degrees: float
    shift: float
    waves: float

    def back(self, places: Array) -> Array:
        """Positions (place, 3) in mm, from moving to fixed image."""
        rng = np.random.Generator(np.random.Philox(self.seed))
        angles, shift = rng.uniform(-1, 1, (2, 3)) * [[np.deg2rad(self.degrees)] * 3, [self.shift] * 3]
        lengths, phases = rng.uniform(70, 110, (3, 3)), rng.uniform(0, 2 * np.pi, (3, 3))
        heights = rng.choice((-1.0, 1.0), 3) * self.waves
        middle = np.asarray(_coarse_grid().world(np.array([_coarse_grid().shape]) / 2 - 0.5))[0]
        moved: Array = (places - middle) @ _rotation_matrix(angles).T + middle + shift
        for axis in range(3):  # a wave along each axis, as a product over the other two keeps the slopes low
            across = [axis_ for axis_ in range(3) if axis_ != axis]
            moved[:, axis] += heights[axis] * np.prod(
                [np.sin(2 * np.pi * places[:, axis_] / lengths[axis, axis_] + phases[axis, axis_]) for axis_ in across],
                axis=0,
            )
        return moved

    def forth(self, places: Array, rounds: int = 60) -> Array:
        """Positions (place, 3) in mm, from fixed to moving, by fixed points."""
        points = np.array(places, np.float64)
        for _ in range(rounds):
            missed = self.back(points) - places
            points -= missed
            if np.abs(missed).max() < 1e-6:
                break
        return points


@dataclass(frozen=True)
class BrainImage:
    """Brain at 3 mm, optionally warped with noise and changed contrast; float32."""

    warp: Warp | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The template."""
        return (template_file("t1"),)

    def read(self) -> Image:
        """Returns (1, i, j, k) from 0 to 1."""
        grid = _coarse_grid()
        if self.warp is None:
            return Image(_coarse_image()[None], grid.affine, "MR")
        bent = _sample_at(_coarse_image(), self.warp, order=1)
        noise = np.random.Generator(np.random.Philox(self.warp.seed + 10_000)).normal(0, 0.01, bent.shape)
        return Image(np.clip(0.9 * bent**1.3 + noise, 0, 1).astype(np.float32)[None], grid.affine, "MR")

    def geometry(self) -> Geometry:
        """The grid, which both images share."""
        return _coarse_grid()


@dataclass(frozen=True)
class KnownWarp:
    """References of a pair: tissues, points, brain region, and map."""

    warp: Warp

    @property
    def files(self) -> tuple[Path, ...]:
        """The maps that tissues are of."""
        return (template_file("gm"), template_file("wm"))

    def read(self) -> Correspondence:
        """Returns all of it; points are exact, the field is to 1e-6 mm."""
        grid, labels = _coarse_grid(), np.ascontiguousarray(tissue_labels()[::STEP, ::STEP, ::STEP])
        inverse = np.linalg.inv(grid.affine)
        coordinates = np.indices(grid.shape).reshape(3, -1).T.astype(np.float64)
        moved = self.warp.forth(grid.world(coordinates)) @ inverse[:3, :3].T + inverse[:3, 3]
        inside = np.argwhere(labels > 0)
        drawn = np.random.Generator(np.random.Philox(self.warp.seed + 20_000)).choice(len(inside), POINTS, False)
        points = inside[np.sort(drawn)].astype(np.float64)
        ends = self.warp.forth(grid.world(points)) @ inverse[:3, :3].T + inverse[:3, 3]
        bent = _sample_at(labels, self.warp, order=0)
        return Correspondence(
            Mask(labels, grid.affine),
            Mask(bent, grid.affine),
            points,
            ends,
            labels > 0,
            (moved - coordinates).T.reshape(3, *grid.shape),
        )

    def geometry(self) -> Geometry:
        """The grid of both images."""
        return _coarse_grid()


def _sample_at(values: Array, warp: Warp, order: int) -> Array:
    """Values of the fixed image where the moving one shows them."""
    from scipy.ndimage import map_coordinates

    grid = _coarse_grid()
    inverse = np.linalg.inv(grid.affine)
    coordinates = warp.back(grid.world(np.indices(grid.shape).reshape(3, -1).T.astype(np.float64)))
    sampled: Array = map_coordinates(values, (coordinates @ inverse[:3, :3].T + inverse[:3, 3]).T, order=order)
    return sampled.reshape(grid.shape)


@lru_cache(maxsize=1)
def _coarse_grid() -> Geometry:
    geometry = ImageFile(template_file("t1")).geometry()
    affine = geometry.affine.copy()
    affine[:3, :3] *= STEP
    return Geometry(tuple(-(-length // STEP) for length in geometry.shape), affine)


@lru_cache(maxsize=1)
def _coarse_image() -> Array:
    from scipy.ndimage import uniform_filter

    values = uniform_filter(ImageFile(template_file("t1")).read().array[0].astype(np.float32), STEP)
    values = values[::STEP, ::STEP, ::STEP]
    return np.asarray(values / values.max())


def _rotation_matrix(angles: Array) -> Array:
    turned = np.eye(3)
    for axis, angle in enumerate(angles):
        first, second = (at for at in range(3) if at != axis)
        step = np.eye(3)
        step[first, first] = step[second, second] = np.cos(angle)
        step[first, second], step[second, first] = -np.sin(angle), np.sin(angle)
        turned = step @ turned
    return turned

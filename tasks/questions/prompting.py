"""Boxes and points for promptable models, taken from the reference with a seeded jitter.

A model that is told where a structure lies answers an easier question than one that finds it: the footnote of a table
says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from medimg_eval.case import Array, Guide
from medimg_eval.errors import UsageError, nearest

Kind = Literal["box", "point", "both"]
Per = Literal["volume", "slice"]


@dataclass(frozen=True)
class Guides:
    """How guides are drawn.

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
        """Refuses what cannot be meant."""
        for what, value, options in (("kind", self.kind, Kind), ("per", self.per, Per)):
            if value not in get_args(options):
                raise UsageError(f"task.guides.{what}: there is no {value!r}{nearest(str(value), get_args(options))}")
        for what, least in (("jitter", 0), ("negatives", 0), ("points", 1), ("seed", 0)):
            value = getattr(self, what)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"expected task.guides.{what} to be a whole number of at least {least}, got {value!r}")

    def of(self, case_id: str, mask: Array, labels: Mapping[int, str]) -> dict[int, tuple[Guide, ...]]:
        """Draws the guides of one case; the same for the same seed, case and mask.

        Args:
            case_id: of the case.
            mask: integers, (*spatial).
            labels: integer -> name.

        Returns:
            Label -> its guides, in the order of slices and components; labels that the mask lacks are left out.
        """
        drawn = {label: tuple(self._drawn(case_id, label, mask == label)) for label in sorted(labels)}
        return {label: guides for label, guides in drawn.items() if guides}

    def describe(self) -> str:
        """In words, for the table's footnote."""
        what = {"box": "boxes", "point": "points", "both": "boxes and points"}[self.kind]
        each = {"volume": "structure", "slice": "slice of a structure"}[self.per]
        each = each.replace("structure", "component") if self.parts else each
        return f"prompted with {what} from the reference, per {each}, jitter {self.jitter} voxels, seed {self.seed}"

    def _drawn(self, case_id: str, label: int, member: Array) -> Iterator[Guide]:
        for number, (offset, piece) in enumerate(self._pieces(member)):
            key = f"{self.seed}/{case_id}/{label}/{number}".encode()
            rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))
            still = self._flat_axes(member)
            yield Guide(
                self._box(offset, piece, member.shape, still, rng) if self.kind != "point" else None,
                *self._points(offset, piece, member.shape, still, rng),
            )

    def _pieces(self, member: Array) -> Iterator[tuple[Array, Array]]:
        """First corner and voxels of each thing that gets a guide: (axes,) and bool, cropped to its box."""
        from scipy.ndimage import find_objects, label

        slices = range(member.shape[-1]) if self.per == "slice" and member.ndim == 3 else [None]
        for index in slices:
            shown = member if index is None else member[..., index : index + 1]
            if not shown.any():
                continue
            numbered = label(shown, np.ones((3,) * member.ndim))[0] if self.parts else shown.astype(np.uint8)
            for number, box in enumerate(find_objects(numbered), 1):
                corner = np.array([part.start for part in box])
                corner[-1] += index or 0
                yield corner, numbered[box] == number

    def _flat_axes(self, member: Array) -> Array:
        """Axes along which nothing is moved: across slices, where each has guides of its own."""
        still = np.zeros(member.ndim, dtype=bool)
        still[-1] = self.per == "slice" and member.ndim == 3
        return still

    def _moves(self, count: int, still: Array, rng: np.random.Generator) -> Array:
        moves: Array = rng.integers(-self.jitter, self.jitter + 1, (count, len(still))) * ~still
        return moves

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
        """Voxels of the grown box, within the image, that are not of the structure."""
        reach = (self.jitter + 1) * ~still
        grown = np.pad(~piece, [(n, n) for n in reach], constant_values=True)
        found = np.argwhere(grown) + corner - reach
        seen: Array = found[np.all((found >= 0) & (found < shape), axis=1)]
        return seen


def guides_of(settings: Mapping[str, Any] | None) -> Guides | None:
    """Reads a task's `guides`; None where it has none.

    Raises:
        UsageError: there is no such setting, or a value that cannot be meant.
    """
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        raise UsageError(f"expected task.guides to hold settings such as kind: box, got {settings!r}")
    known = [entry.name for entry in fields(Guides)]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise UsageError(f"task.guides: there is no setting {unknown[0]!r}{nearest(unknown[0], known)}")
    return Guides(**settings)

"""Label maps of several readers: a file for each, and what they make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.case import Array, Geometry, Mask, Reference
from medimg_eval.data.records import Entry, Target
from medimg_eval.data.targets.masks import MaskTarget
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.raters import EVEN, FUSIONS, Fusion, estimate_staple, fuse_masks

ANY = "{rater}"


@dataclass
class RaterMasks:
    """Label map per reader, fused into the reference.

    Args:
        path: pattern below the root with `{rater}`, such as `labels/{case}_{rater}.nii.gz`.
        raters: names of the readers, as they stand in the pattern.
        fuse: `majority` (more than half), `staple`, or `first`, the reader named first.
        absent: `error` where a reader's file is missing, or `skip`, where not all readers read all cases.
        target: how a file is read where it is no plain label map: arguments of `MaskTarget` but `path`.
    """

    path: str
    raters: Sequence[str | int]
    fuse: Fusion = "majority"
    absent: Literal["error", "skip"] = "error"
    target: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a pattern without a place for the reader, before anything is read."""
        if ANY not in self.path or len(self.raters) < 2:
            raise UsageError(
                f"target is invalid: expected {ANY} in the pattern and two raters or more, got {self.path!r} and "
                f"{list(self.raters)}"
            )
        UsageError.refuse_invalid("way to fuse", FUSIONS, self.fuse)
        UsageError.refuse_unknown("absent files mean", ("error", "skip"), self.absent)

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The files that are there."""
        paths = [self.path.replace(ANY, str(name)) for name in self.raters]
        if self.absent == "skip":
            paths = [path for path in paths if entry.path(path).exists()]
            if not paths:
                raise entry.row.error(f"case {entry.id!r}: there is no file of the pattern {self.path!r}")
        targets: list[Target] = [MaskTarget(path, **self.target) for path in paths]  # type: ignore[arg-type]
        return FusedMask(tuple(target.reference(entry) for target in targets), self.fuse)


@dataclass(frozen=True)
class FusedMask:
    """Readers' label maps and their fusion, on one grid."""

    references: tuple[Reference[Mask], ...]
    fuse: Fusion

    @property
    def files(self) -> tuple[Path, ...]:
        """The readers' files."""
        return tuple(path for reference in self.references for path in reference.files)

    def read(self) -> Mask:
        """Reads and fuses them; raises CaseError when one lies on another grid."""
        masks = [reference.read() for reference in self.references]
        for reference, mask in zip(self.references[1:], masks[1:], strict=True):
            is_same = mask.labels.shape == masks[0].labels.shape and np.allclose(
                mask.affine, masks[0].affine, atol=1e-3
            )
            if not is_same:
                raise CaseError(
                    f"{reference.files[0]}: grid is invalid: expected that of {self.files[0]}, "
                    f"{masks[0].labels.shape}, got {mask.labels.shape} or another place"
                )
        maps = tuple(mask.labels for mask in masks)
        first = masks[0]
        notes = tuple(dict.fromkeys(note for mask in masks for note in mask.notes))
        return Mask(fuse_labels(maps, self.fuse), first.affine, first.names, notes, first.units, None, maps)

    def geometry(self) -> Geometry:
        """The grid of the first reader's file."""
        return self.references[0].geometry()


def fuse_labels(maps: Sequence[Array], how: Fusion) -> Array:
    """Fuses label maps by label; STAPLE's more probable label wins."""
    fused = np.zeros_like(maps[0])
    best = np.zeros(fused.shape)
    for label in sorted({int(value) for labels in maps for value in np.unique(labels)} - {0}):
        masks = np.stack([labels == label for labels in maps])
        if how == "staple":
            probability = estimate_staple(masks).probability
            chosen = (probability >= EVEN) & (probability > best)
            best[chosen] = probability[chosen]
        else:
            chosen = fuse_masks(masks, how)
        fused[chosen] = label
    return fused

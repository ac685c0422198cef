"""Transforms that another program made: displacements of Learn2Reg, ITK or ANTs, and affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from medimg_eval.case import Alignment, Array, Geometry, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.models.base import Registrar
from medimg_eval.models.precomputed.files import FromFiles, cases_in, result_folder
from medimg_eval.models.registration import displacement_in_voxels

Units = Literal["voxel", "ras", "lps"]

MATRICES = (".txt", ".tfm", ".mat", ".xfm")
"""How files end that hold an affine map: four lines of four numbers, or what ITK reads as a transform."""


class PrecomputedTransforms(FromFiles, Registrar):
    """Folder of transforms from fixed to moving image, one per pair.

    A displacement lies on the grid of the fixed image, its three components last: NIfTI (i, j, k, 3) or ITK's
    (i, j, k, 1, 3), .npz with one array, or .npy. An affine map is a text of four lines of four numbers in RAS+ mm, or
    a transform of ITK (.tfm, .mat), which counts in LPS mm.

    Args:
        root: the folder.
        pattern: the file of a case in it, holding `{case}`, or several, the first of which that is there is read.
        units: of displacements: `voxel`, as of Learn2Reg and voxelmorph; mm along `ras`, or `lps` as of ITK and ANTs.
        inverse: the same from the moving to the fixed image; empty for none.
        short: whether files of `0001_0000_0001_0001` may be called `0001_0001`, as Learn2Reg allows it.

    Raises:
        UserError: the folder is not there.
        UsageError: a pattern holds no `{case}`, or there are no such units.
    """

    reads_images = True  # for their grids
    preferred_batch = 1

    def __init__(
        self,
        root: str,
        pattern: str | Sequence[str] = ("disp_{case}.nii.gz", "disp_{case}.npz"),
        units: Units = "voxel",
        inverse: str = "",
        short: bool = True,
    ) -> None:
        UsageError.refuse_invalid("units of displacements", get_args(Units), units)
        self.patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        for pattern_ in (*self.patterns, *([inverse] if inverse else [])):
            self.root = result_folder(root, "transforms", pattern_)
        self.units, self.inverse, self.short = units, inverse, short

    def held_cases(self) -> list[str]:
        """The cases that the folder has files of."""
        return sorted({case for pattern in self.patterns for case in cases_in(self.root, pattern)})

    def register(self, prompts: Prompts) -> Sequence[Alignment]:
        """Reads transforms; CaseError names missing or invalid files."""
        return [self._alignment(prompt) for prompt in prompts]

    def _alignment(self, prompt: Prompt) -> Alignment:
        fixed, moving = (image.geometry for image in prompt.images)
        there = self._read(self._file(prompt.case_id, self.patterns), fixed, moving)
        if not self.inverse:
            return Alignment(there)
        return Alignment(there, self._read(self._file(prompt.case_id, [self.inverse]), moving, fixed))

    def _file(self, case: str, patterns: Sequence[str]) -> Path:
        names = [case]
        parts = case.split("_")
        if self.short and len(parts) == 4 and parts[1::2] == ["0000", "0001"]:
            names.insert(0, f"{parts[0]}_{parts[2]}")
        paths = [self.root / pattern.replace("{case}", name) for name in names for pattern in patterns]
        existing = next((path for path in paths if path.is_file()), None)
        if existing is None:
            raise CaseError(f"case {case!r}: {paths[-1]}: no such file; set model.pattern to how the files are called")
        return existing

    def _read(self, path: Path, start: Geometry, end: Geometry) -> Array:
        with CaseError.about(path, "cannot be read as a transform", OSError, ValueError, RuntimeError, EOFError):
            array = _read_matrix(path) if path.suffix in MATRICES else _read_displacement(path)
        if array.ndim == 2:
            return array
        axes = len(start.shape)
        if array.shape[-1] != axes or array.shape[:-1] != start.shape:
            raise CaseError(
                f"{path}: expected a displacement {(*start.shape, axes)} on the grid of the fixed image, "
                f"got {array.shape}"
            )
        field = np.moveaxis(array, -1, 0).astype(np.float64)
        if self.units == "voxel":
            return field
        if axes != 3:
            raise CaseError(f"{path}: displacements of pictures are in voxels; set model.units=voxel")
        return displacement_in_voxels(field * _axis_signs(self.units), start, end)


def _axis_signs(units: Units) -> Array:
    return np.reshape((-1, -1, 1) if units == "lps" else (1, 1, 1), (3, 1, 1, 1))


def _read_displacement(path: Path) -> Array:
    if path.suffix == ".npy":
        return np.asarray(np.load(path, allow_pickle=False))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            if len(held.files) != 1:
                raise ValueError(f"holds {len(held.files)} arrays, expected one")
            return np.asarray(held[held.files[0]])
    import nibabel as nib

    array = np.asarray(nib.load(path).dataobj)
    return array[..., 0, :] if array.ndim == 5 and array.shape[3] == 1 else array


def _read_matrix(path: Path) -> Array:
    """An affine map in RAS+ mm, (4, 4)."""
    if path.suffix == ".txt" and not path.read_text(encoding="utf-8", errors="replace").startswith("#Insight"):
        numbers = np.loadtxt(path, ndmin=2)
        if numbers.shape != (4, 4):
            raise ValueError(f"holds numbers {numbers.shape}, expected (4, 4)")
        return numbers
    import SimpleITK as sitk  # noqa: N813

    read_transform = sitk.ReadTransform(str(path))
    if read_transform.GetDimension() != 3 or not read_transform.IsLinear():
        raise ValueError("is no affine map of three axes; store its displacement field")
    start = np.array(read_transform.TransformPoint((0.0, 0.0, 0.0)))
    columns = [np.array(read_transform.TransformPoint(tuple(step))) - start for step in np.eye(3)]
    lps = np.eye(4)
    lps[:3, :3], lps[:3, 3] = np.stack(columns, axis=1), start
    turn = np.diag([-1.0, -1.0, 1.0, 1.0])
    return np.asarray(turn @ lps @ turn)

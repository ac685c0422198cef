"""Pixels with a place: an image, a mask, probabilities, and the grid and channels that they have. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from medimg_eval import exchange
from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    import nibabel as nib
    import SimpleITK as sitk  # noqa: N813
    from monai.data import MetaTensor


Array = npt.NDArray[Any]
Units = Literal["mm", "pixel"]

FEATURES: Mapping[str, str] = MappingProxyType({"holds": "features"})
"""The attribute of an image that is features, (1, tile, feature), and no pixels."""

PART, VALUES = "part", "values"
"""The attribute that tells unlike images of a case apart, such as OCT and fundus, and what numbers of a table are."""

VISIT, WHEN = "visit", "when"
"""Attributes of an image of one visit of several: its number from 1, and its time after the last, 0 or below."""

FORM, SIGNAL, SEQUENCE = "form", "signal", "sequence"
"""The attribute of a part that is no picture: samples over time, or the codes of a text, DNA or protein."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """The grid that voxels lie on.

    Attributes:
        shape: voxels along each spatial axis.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        units: `mm`, or `pixel` where the file states no physical size.
    """

    shape: tuple[int, ...]
    affine: Array
    units: Units = "mm"

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance between voxel centres along each axis, in mm."""
        return tuple(float(step) for step in np.linalg.norm(self.affine[:3, :3], axis=0)[: len(self.shape)])

    def world(self, positions: Array) -> Array:
        """Returns voxel indices, (point, axes), as mm in the patient, (point, 3), RAS+.

        A picture's axes span a plane of the patient; of its positions all three coordinates count.
        """
        axes = positions.shape[1]
        return positions @ self.affine[:3, :axes].T + self.affine[:3, 3]

    def difference(self, other: Geometry) -> str | None:
        """Describes how another grid differs; None where equal.

        Grids are the same when no corner of the volume moves by more than 1 % of the smallest voxel
        edge: affines stored as float32 pass, a flipped axis or a half-voxel shift does not. Where one of
        them states no physical size, as a PNG does, only shapes can be compared.
        """
        if self.shape != other.shape:
            return f"shape {other.shape} instead of {self.shape}"
        if "pixel" in (self.units, other.units):
            return None
        ends = np.array(np.meshgrid(*[(0, n - 1) for n in self.shape])).reshape(len(self.shape), -1)
        flat = np.zeros((3 - len(self.shape), ends.shape[1]))  # a picture lies in one plane
        corners = np.vstack([ends, flat, np.ones_like(ends[:1])])
        moved = np.linalg.norm(((self.affine - other.affine) @ corners)[:3], axis=0)
        # A one-voxel axis has no second corner, so the steps are compared as well.
        steps = np.linalg.norm((self.affine - other.affine)[:3, :3], axis=0)
        apart = float(max(moved.max(), steps.max()))
        if apart <= 0.01 * min(self.spacing):
            return None
        return f"another affine: grids are up to {apart:.3g} mm apart"


@dataclass(frozen=True, eq=False)
class ChannelAxis:
    """Meaning of the channels of an image that are volumes of one scan.

    Attributes:
        kind: `time`, `diffusion`, `echo`, `inversion`, `flip angle`, or `phase` (of a heartbeat).
        values: float64, (channel,): seconds after the first volume, b-values, echo times, inversion times, angles, or
            times after the trigger; NaN where the file does not say.
        unit: of the values: `s`, `s/mm2`, `ms` or `degree`.
        directions: of diffusion, float64, (channel, 3): unit vectors in the patient, RAS+; zero where a volume has
            none. None for other kinds.
    """

    kind: str
    values: Array
    unit: str
    directions: Array | None = None

    @property
    def step(self) -> float | None:
        """Constant step between channels, else None."""
        steps = np.diff(self.values)
        if not len(steps) or not np.isfinite(steps).all() or np.ptp(steps) > 1e-3 * abs(float(steps.mean())):
            return None
        return float(steps.mean()) or None

    def bvecs(self, affine: Array) -> Array:
        """Gradient directions in FSL's convention, float64, (channel, 3).

        Their components are along the axes of the volume.

        They are components along the volume's columns of the affine, the first of them negated where the affine's
        determinant is positive: what a `.bvec` file holds, transposed. Raises ValueError where this is no diffusion.
        """
        if self.directions is None:
            raise ValueError(f"an axis of {self.kind} has no directions")
        turn = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
        directions: Array = self.directions @ turn
        if np.linalg.det(turn) > 0:
            directions[:, 0] *= -1
        return directions + 0.0  # no negative zeros


class _Voxels:
    """Voxels as NumPy and a prompt see them, with their place."""

    def _values(self) -> Array:
        raise NotImplementedError

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Voxels as an array, axes and values unchanged.

        Raises ValueError where `copy` is False and another dtype is asked for.
        """
        values = self._values()
        if dtype is not None and np.dtype(dtype) != values.dtype:
            if copy is False:
                raise ValueError(f"Expected no copy and {np.dtype(dtype)}, got {values.dtype}, which a copy converts")
            return values.astype(dtype)
        return values.copy() if copy else values

    def __repr__(self) -> str:
        """Summary such as `<Image CT, 1 x 512 x 512 x 90 int16, 0.7 x 0.7 x 2.5 mm, 2 notes>`."""
        voxels: Any = self
        values, grid = self._values(), voxels.geometry
        size = " x ".join(f"{step:.4g}" for step in grid.spacing)
        shape = f"{' x '.join(map(str, values.shape))} {values.dtype}"
        notes = f"{len(voxels.notes)} note{'s' if len(voxels.notes) > 1 else ''}" if voxels.notes else ""
        facts = [
            getattr(voxels, "modality", ""),
            shape,
            f"{size} mm" if grid.units == "mm" else "no physical size",
            notes,
        ]
        return f"<{type(self).__name__} {', '.join(filter(None, facts))}>"


@dataclass(frozen=True, eq=False, repr=False)
class Image(_Voxels):
    """Pixels with geometry.

    `np.asarray(image)` is `image.array`, without a copy. To and from other libraries go voxels, place, modality and
    units; notes, attributes and `valid` stay behind.

    Attributes:
        array: (channel, *spatial), in the dtype it was stored with. Volumes are (channel, i, j, k), the
            axes the affine's columns belong to (of a DICOM series: column, row, slice); pictures are
            (channel, row, column); clips are (channel, frame, row, column). Samples of k-space travel as
            (coil, *spatial), complex, and features of tiles as (1, tile, feature).
        affine: float64, (4, 4), voxel index to RAS+ millimetres. Of a picture or clip without a place in
            the patient: a diagonal of the steps along its spatial axes.
        modality: DICOM code such as `MR` or `CT`, empty when unknown.
        units: `mm`, or `pixel` where the file states no physical size.
        notes: what the reader mended or doubts, in words; nothing that identifies a patient.
        attributes: what the file says of the acquisition (scanner, kernel, view, ...); nothing that
            identifies a patient.
        valid: bool, (*spatial), False where the scanner padded; None where it did not.
        channels: what the channels are, of an image of several volumes in time, by diffusion weighting, ...; None of
            others.
    """

    array: Array
    affine: Array
    modality: str = ""
    units: Units = "mm"
    notes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    valid: Array | None = None
    channels: ChannelAxis | None = None

    @property
    def geometry(self) -> Geometry:
        """The grid the pixels lie on."""
        return Geometry(self.shape[1:], self.affine, self.units)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array: (channel, *spatial)."""
        return tuple(self.array.shape)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Spacing along spatial axes in mm; 1 where unknown."""
        return self.geometry.spacing

    def _values(self) -> Array:
        return self.array

    @classmethod
    def from_array(
        cls,
        array: Any,
        affine: Any = None,
        *,
        spacing: Sequence[float] | None = None,
        channel_axis: int | None = None,
        modality: str = "",
    ) -> Self:
        """Makes an image of an array.

        Args:
            array: of two or three spatial axes, and one of channels where `channel_axis` says which; a volume's axes
                are those of the affine's columns, a picture's (row, column).
            affine: (4, 4), voxel index to RAS+ mm.
            spacing: in its place, mm along each spatial axis. Without either, units are `pixel`.
            channel_axis: such as 0 or -1; None where there is none.
            modality: DICOM code.

        Raises:
            UsageError: shape, affine or spacing are of another kind.
        """
        values = np.asarray(array)
        values = values[None] if channel_axis is None else np.moveaxis(values, channel_axis, 0)
        axes = values.ndim - 1
        if not 2 <= axes <= 3:
            description = f"an array of {np.shape(array)} with channel_axis={channel_axis}"
            raise UsageError(f"expected two or three spatial axes, got {description}")
        if affine is not None and spacing is not None:
            raise UsageError("expected an affine or a spacing, got both")
        placed = exchange.plain_affine(tuple(map(float, spacing or [1.0] * axes))) if affine is None else affine
        placed = np.array(placed, np.float64)
        if (spacing is not None and len(spacing) != axes) or placed.shape != (4, 4) or not np.isfinite(placed).all():
            description = f"spacing {spacing}" if affine is None else f"an affine of shape {placed.shape}"
            raise UsageError(
                f"expected a finite affine (4, 4), or a spacing for each of {axes} axes, got {description}"
            )
        return cls(values, placed, modality, "pixel" if affine is None and spacing is None else "mm")

    def to_sitk(self) -> sitk.Image:
        """Returns a SimpleITK image, LPS, with a copy of the voxels.

        Volumes become 3-D images of (i, j, k); several channels a vector per voxel. A picture without a place becomes
        a 2-D image whose x is the column, one with a place a volume of one slice.

        Raises:
            UsageError: SimpleITK cannot hold the dtype.
        """
        return exchange.to_sitk(self._parts)

    @classmethod
    def from_sitk(cls, image: sitk.Image) -> Self:
        """Image from SimpleITK; a fourth axis becomes channels."""
        return cls._of(exchange.from_sitk(image))

    def to_nibabel(self) -> nib.Nifti1Image:
        """Returns a NIfTI image in RAS+ sharing voxels; channels last.

        Several channels are its fourth axis.

        Raises:
            UsageError: NIfTI cannot store the dtype.
        """
        return exchange.to_nibabel(self._parts)

    @classmethod
    def from_nibabel(cls, image: Any) -> Self:
        """Image from nibabel; volumes and colours become channels."""
        return cls._of(exchange.from_nibabel(image))

    def to_metatensor(self) -> MetaTensor:
        """Returns a MONAI MetaTensor (channel, *spatial), RAS+, sharing memory.

        A picture stays (channel, row, column), where MONAI's own readers give (channel, column, row).
        """
        return exchange.to_metatensor(self._parts)

    @classmethod
    def from_metatensor(cls, tensor: MetaTensor) -> Self:
        """Image from a MetaTensor (channel, *spatial), sharing memory on the CPU."""
        return cls._of(exchange.from_metatensor(tensor))

    @property
    def _parts(self) -> exchange.Parts:
        return exchange.Parts(self.array, self.affine, self.units, self.modality)

    @classmethod
    def _of(cls, parts: exchange.Parts) -> Self:
        return cls(parts.array, parts.affine, parts.modality, parts.units)


@dataclass(frozen=True, eq=False, repr=False)
class Mask(_Voxels):
    """A label map: one integer per voxel, 0 is background.

    Attributes:
        labels: integer array, (*spatial).
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        names: what the file calls each label, where it does.
        notes: what the reader mended or doubts, in words.
        units: `mm`, or `pixel` where the file states no physical size.
        instances: integer array, (*spatial): which object a voxel belongs to, numbered from 1 across all labels; 0 for
            none. None where objects are not numbered.
        raters: label map of each reader, (*spatial), where `labels` is what several make together.
    """

    labels: Array
    affine: Array
    names: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    units: Units = "mm"
    instances: Array | None = None
    raters: tuple[Array, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The grid the labels lie on."""
        return Geometry(tuple(self.labels.shape), self.affine, self.units)

    def _values(self) -> Array:
        return self.labels


@dataclass(frozen=True, eq=False, repr=False)
class Probabilities(_Voxels):
    """Class probabilities of every voxel; classes exclude each other.

    Attributes:
        array: floats in [0, 1], (class, *spatial), after a softmax.
        labels: of each channel, 0 for background; channels of the same label count together.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        units: `mm`, or `pixel` where no physical size is known.
        notes: what is doubted, in words.
    """

    array: Array
    labels: tuple[int, ...]
    affine: Array
    units: Units = "mm"
    notes: tuple[str, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The grid the voxels lie on."""
        return Geometry(tuple(self.array.shape[1:]), self.affine, self.units)

    def _values(self) -> Array:
        return self.array

    def most_probable(self) -> Mask:
        """Most probable label per voxel, int32; the first channel wins ties."""
        labels = np.asarray(self.labels, dtype=np.int32)[self.array.argmax(0)]
        return Mask(labels, self.affine, notes=self.notes, units=self.units)

    def merged(self) -> Probabilities:
        """Probabilities summed by label, ascending, float32."""
        if len(set(self.labels)) == len(self.labels):
            return self
        ordered, stored_labels = sorted(set(self.labels)), np.asarray(self.labels)
        sums = [self.array[stored_labels == label].sum(0, dtype=np.float32) for label in ordered]
        return replace(self, array=np.minimum(np.stack(sums), 1), labels=tuple(ordered))

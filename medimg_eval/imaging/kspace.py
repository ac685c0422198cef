"""MRI raw data: k-space in HDF5, by a map of keys and axes, and its plain reconstruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging.voxel_data import check_own


@dataclass(frozen=True)
class KeyMap:
    """Where one kind of file keeps what, and what its axes mean.

    Attributes:
        kspace: the key of the samples.
        axes: what the axes of the samples are, as stored. Those that start with `k` are frequencies, `coil`
            is the receive coil, others (`slice`, `x`, `echo`) are in image space or count images.
        maps: the key of the coil sensitivities.
        target: the key of the image to be reconstructed; the first of several that the file has.
        mask: the key of the sampling mask.
        interleaved: real and imaginary parts alternate along the last axis.
        centred: the lowest frequency lies in the middle (index n // 2) of each frequency axis, not at 0.
        alternating: the lowest frequency lies in the middle, but a plain inverse FFT shows the image where it belongs,
            for neighbouring samples alternate in sign, as some scanners have it. That is taken out in reading.
        attributes: file attributes that are handed on. Others, such as a patient's id, are not.
    """

    kspace: str
    axes: tuple[str, ...]
    maps: str | None = None
    target: str | tuple[str, ...] | None = None
    mask: str | None = None
    interleaved: bool = False
    centred: bool = True
    alternating: bool = False
    attributes: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The keys under which the image to be reconstructed may lie."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()


PRESETS: Mapping[str, KeyMap] = {
    "fastmri": KeyMap(
        kspace="kspace",
        axes=("slice", "coil", "ky", "kx"),
        target=("reconstruction_rss", "reconstruction_esc"),
        mask="mask",
        attributes=("acquisition", "max", "norm"),
    ),
    "fastmri-singlecoil": KeyMap(
        kspace="kspace",
        axes=("slice", "ky", "kx"),
        target=("reconstruction_esc", "reconstruction_rss"),
        mask="mask",
        attributes=("acquisition", "max", "norm"),
    ),
    "skm-tea": KeyMap(kspace="kspace", axes=("x", "ky", "kz", "echo", "coil"), maps="maps", target="target"),
    "mc-mrrec": KeyMap(kspace="kspace", axes=("x", "ky", "kz", "coil"), interleaved=True, alternating=True),
}
"""The key maps of published sets; the sampling masks of `mc-mrrec` lie in files of their own."""


@dataclass(frozen=True, eq=False)
class KSpace:
    """Measured samples of a scan or slices; missing arrays are None.

    Samples are complex, with an axis for each name in `axes`, and without alternating signs; `centred` says whether the
    lowest frequency lies in the middle. Test data have no target, fully sampled data no mask; the attributes are
    acquisition and norms, as text.
    """

    samples: Array
    axes: tuple[str, ...]
    centred: bool = True
    maps: Array | None = None
    target: Array | None = None
    mask: Array | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


def kspace_shape(path: str | Path, keys: KeyMap | str) -> tuple[int, ...]:
    """Shape of the samples by the key map; raises as `read_kspace`.

    One length per axis.
    """
    keys = _key_map(keys)
    with _Opened(Path(path)) as file:
        return _stored_shape(file, keys)


def target_shape(path: str | Path, keys: KeyMap | str) -> tuple[int, ...] | None:
    """Stored shape of the target image; None without.

    Raises as `read_kspace`.
    """
    keys = _key_map(keys)
    with _Opened(Path(path)) as file:
        key = file.first(keys.targets)
        return None if key is None else tuple(file.dataset(key).shape)


def read_kspace(path: str | Path, keys: KeyMap | str, *, slices: int | tuple[int, int] | None = None) -> KSpace:
    """Reads samples, and the maps, target and mask where the file has them.

    Args:
        path: an HDF5 file.
        keys: a key map, or the name of one of `PRESETS`.
        slices: along the first axis: one index, or (start, stop); all by default. Only these are read, of
            maps and target too; the axis stays, of length one for an index.

    Raises:
        CaseError: the file is missing or cut short, lacks the samples, or their axes are not as the map says.
        UsageError: there is no such preset.
    """
    keys = _key_map(keys)
    with _Opened(Path(path)) as file:
        shape = _stored_shape(file, keys)
        taken = _slice_range(file.path, shape[0], slices)
        samples = _as_complex(file, keys, file.dataset(keys.kspace)[taken])
        if keys.alternating:
            samples = _center_origin(samples, keys.axes)
        return KSpace(
            samples,
            tuple(keys.axes),
            keys.centred,
            maps=file.optional((keys.maps,), taken),
            target=file.optional(keys.targets, taken),
            mask=file.optional((keys.mask,), slice(None)),
            attributes={name: file.attribute(name) for name in keys.attributes if name in file.attributes},
        )


def read_dataset(path: str | Path, key: str) -> Array:
    """Reads an HDF5 array, such as a mask; raises as `read_kspace`."""
    with _Opened(Path(path)) as file:
        return np.asarray(file.dataset(key)[()])


def rss(data: KSpace) -> Array:
    """Reconstructs by inverse FFT and root sum of squares of coils.

    Magnitude, real, with the axes of `data` but the coil's. The transform is orthonormal: authors who use numpy's
    default get values smaller by the square root of the number of frequencies.
    """
    frequencies = [axis for axis, name in enumerate(data.axes) if name.startswith("k")]
    images = np.abs(inverse_fft(data.samples, frequencies, centred=data.centred))
    if "coil" not in data.axes:
        return images
    combined: Array = np.sqrt(np.square(images).sum(axis=data.axes.index("coil")))
    return combined


def inverse_fft(samples: Array, axes: Sequence[int], *, centred: bool = True) -> Array:
    """Takes the orthonormal inverse FFT along the frequency axes; single precision stays single.

    Centred, the lowest frequency lies at index n // 2 and the image's origin goes there too; otherwise both lie at
    index 0, as numpy has them.
    """
    from scipy import fft

    axes = tuple(axes)
    samples = np.fft.ifftshift(samples, axes) if centred else samples
    image: Array = fft.ifftn(samples, axes=axes, norm="ortho")
    return np.fft.fftshift(image, axes) if centred else image


def _key_map(keys: KeyMap | str) -> KeyMap:
    if isinstance(keys, KeyMap):
        return keys
    UsageError.refuse_invalid("preset of keys", PRESETS, keys)
    return PRESETS[keys]


class _Opened:
    """An HDF5 file, with one sentence for each way that can fail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None

    def __enter__(self) -> _Opened:
        import h5py

        if not self.path.is_file():
            raise CaseError(f"{self.path}: no such file")
        with CaseError.about(self.path, "is no HDF5 file, or cut short", OSError, mend="write or copy it again"):
            self._file = h5py.File(self.path, "r")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._file.close()
        if isinstance(error, OSError | RuntimeError):
            raise CaseError(f"{self.path}: is damaged ({error}); write or copy it again") from error

    @property
    def attributes(self) -> Any:
        return self._file.attrs

    def attribute(self, name: str) -> str:
        value = self._file.attrs[name]
        return value.decode() if isinstance(value, bytes) else str(value)

    def dataset(self, key: str) -> Any:
        import h5py

        if not isinstance(self._file.get(key), h5py.Dataset):
            keys: list[str] = []
            self._file.visititems(lambda name, item: keys.append(name) if isinstance(item, h5py.Dataset) else None)
            raise CaseError(f"{self.path}: holds no array {key!r}{nearest(key, keys)}")
        return check_own(self.path, self._file[key])

    def first(self, keys: Sequence[str | None]) -> str | None:
        return next((key for key in keys if key is not None and key in self._file), None)

    def optional(self, keys: Sequence[str | None], taken: slice) -> Array | None:
        key = self.first(keys)
        return None if key is None else np.asarray(self.dataset(key)[taken])


def _stored_shape(file: _Opened, keys: KeyMap) -> tuple[int, ...]:
    shape = tuple(file.dataset(keys.kspace).shape)
    if len(shape) != len(keys.axes):
        raise CaseError(
            f"{file.path}: {keys.kspace} has shape {shape}, but the key map names {len(keys.axes)} axes "
            f"({', '.join(keys.axes)}); name the axes that are stored"
        )
    if keys.interleaved and shape[-1] % 2:
        raise CaseError(
            f"{file.path}: {keys.kspace} has {shape[-1]} values along its last axis, which cannot be pairs of real and "
            "imaginary parts; set interleaved=False or mend the file"
        )
    return (*shape[:-1], shape[-1] // 2) if keys.interleaved else shape


def _slice_range(path: Path, count: int, slices: int | tuple[int, int] | None) -> slice:
    start, stop = (0, count) if slices is None else (slices, slices + 1) if isinstance(slices, int) else slices
    if not 0 <= start < stop <= count:
        raise CaseError(f"{path}: has {count} slices, counted from 0, so there are no slices {start} to {stop - 1}")
    return slice(start, stop)


def _as_complex(file: _Opened, keys: KeyMap, stored: Array) -> Array:
    if stored.dtype.kind == "c" and not keys.interleaved:
        return stored
    if stored.dtype.kind != "f" or not keys.interleaved:
        wanted = "interleaved real and imaginary parts" if keys.interleaved else "complex numbers"
        raise CaseError(
            f"{file.path}: expected {wanted} in {keys.kspace}, got {stored.dtype}; "
            f"set interleaved={not keys.interleaved} in the key map"
        )
    # Neighbouring floats are a complex number as they lie: no arithmetic, hence nothing lost.
    pairs = np.ascontiguousarray(stored, dtype=np.float32 if stored.dtype.itemsize <= 4 else np.float64)
    return pairs.view(np.complex64 if pairs.dtype == np.float32 else np.complex128)


def _center_origin(samples: Array, axes: Sequence[str]) -> Array:
    """Signs that centre the image's origin, for even lengths."""
    moved = samples.copy()
    for axis, name in enumerate(axes):
        if name.startswith("k"):
            count = samples.shape[axis]
            steps = np.arange(count) - count // 2
            phase = np.exp(2j * np.pi * (steps * (count // 2) % count) / count)
            shape = [1] * samples.ndim
            shape[axis] = count
            moved *= (1.0 - 2.0 * (steps % 2) if count % 2 == 0 else phase).astype(samples.dtype).reshape(shape)
    return moved

"""One way in for every format: `read`, `read_mask` and `read_grid`."""

from __future__ import annotations

import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.formats import FAMILIES, family_of
from medimg_eval.imaging.label_values import label_map, label_notes, split_codes
from medimg_eval.imaging.library_logs import without_values

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a folder, or the files that make up one image."""


def read(source: Source, *, nan: Literal["raise"] | float = "raise", **options: Any) -> Image:
    """Reads an image of any known format, losslessly in its dtype.

    Args:
        source: a file, a folder holding one DICOM series or the frames of one clip, or a list of files.
        nan: what NaN and infinite voxels become; `raise` refuses them.
        options: the family's own, such as `series` (DICOM), `frames` (video) or `um_per_px` (slides); see
            the `read` of `medimg_eval.imaging.dicom.reading`, `volumes`, `pictures`, `video`, `slides`, `arrays`.

    Raises:
        CaseError: the file is missing, damaged or ambiguous; the message names it and the mend.
        UsageError: the format has no such option.
    """
    paths = _source_paths(source)
    with guarded(paths) as notes:
        image = cast("Image", _ask_family(paths, ("read",), options, notes))
        array = image.array
        _check_size(paths, image.geometry)
        if not _all_finite(array):
            if nan == "raise":
                raise CaseError(
                    f"{paths[0]}: holds NaN or infinite voxels; replace them before evaluating, or read with nan=VALUE"
                )
            bad = ~np.isfinite(array)
            notes.append(f"{int(bad.sum())} NaN or infinite voxels were set to {nan:g}")
            image = replace(image, array=np.where(bad, array.dtype.type(nan), array))
    return replace(image, notes=(*image.notes, *notes))


def read_grid(source: Source, **options: Any) -> Geometry:
    """Reads the grid of an image alone, from headers; raises what `read` raises."""
    paths = _source_paths(source)
    with guarded(paths):
        geometry = cast("Geometry", _ask_family(paths, ("grid",), options, []))
        _check_size(paths, geometry)
        return geometry


def read_mask(source: Source, *, objects: Literal["values"] | int | None = None, **options: Any) -> Mask:
    """Reads a label map of whole numbers.

    Labels stored as floating point are accepted when every voxel is a whole number (many tools write
    float32 masks); anything else is refused rather than rounded.

    Args:
        source: a volume of three dimensions (a trailing axis of length one is dropped), a picture of one
            channel, a DICOM-SEG, or an RTSTRUCT.
        objects: where values name objects: `values` (each is an object of label 1), or what labels are multiplied by
            before the object's number is added, such as 1000. None where values are labels.
        options: the family's own, such as `grid` (RTSTRUCT).

    Returns:
        Labels as the smallest integer dtype their values need, and the affine; with `objects` their numbers too.

    Raises:
        CaseError: the file is missing, damaged, or not a label map.
        UsageError: the format has no such option.
    """
    paths = _source_paths(source)
    with guarded(paths) as notes:
        content: Image | Mask = _ask_family(paths, ("read_mask", "read"), options, notes)
        if isinstance(content, Image):
            notes_ = (*content.notes, *label_notes(content.array))
            content = Mask(label_map(content.array, paths[0]), content.affine, notes=notes_, units=content.units)
        mask = content
        if objects is not None:
            labels, numbers = split_codes(mask.labels, paths[0], objects)
            mask = replace(mask, labels=labels, instances=numbers)
    return replace(mask, notes=(*mask.notes, *notes))


def _check_size(paths: Sequence[Path], geometry: Geometry) -> None:
    if 0 in geometry.shape:
        raise CaseError(f"{paths[0]}: holds nothing: its shape is {geometry.shape}; write or copy it again")


def _all_finite(array: Array) -> bool:
    """Whether all values are finite, without a full copy."""
    if array.dtype.kind == "c":
        return _all_finite(array.real) and _all_finite(array.imag)
    if array.dtype.kind != "f" or not array.size:
        return True
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))  # NaN comes through both


def _source_paths(source: Source) -> list[Path]:
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise CaseError("expected at least one file to read, got an empty list")
    return [Path(path).expanduser() for path in sources]


def _ask_family(paths: Sequence[Path], names: Sequence[str], options: dict[str, Any], notes: list[str]) -> Any:
    """Calls the family's function, noting skipped files."""
    family, passed = family_of(paths)
    notes += passed
    module = importlib.import_module(FAMILIES[family])
    method: Callable[..., Any] = next(getattr(module, name) for name in names if hasattr(module, name))
    if options:
        options_ = [
            key
            for key, parameter in inspect.signature(method).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        UsageError.refuse_unknown(f"{paths[0]}: reading a {family} takes no option", options_, *options)
    return method(paths, **options)


@contextmanager
def guarded(paths: Sequence[Path]) -> Iterator[list[str]]:
    """Collects library warnings; errors become CaseErrors naming the file."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield notes
        except UserError:
            raise
        except Exception as error:
            raise CaseError(
                f"{paths[0]}: cannot be read ({type(error).__name__}: {without_values(str(error))}); "
                "write or copy it again, or convert it to a common format"
            ) from error
    for warning in caught:
        if issubclass(warning.category, ResourceWarning | DeprecationWarning | PendingDeprecationWarning):
            continue  # of the library's own code, not of the image
        text = without_values(str(warning.message).strip().splitlines()[0])
        if text not in notes:
            notes.append(text)

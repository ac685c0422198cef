"""DICOM: series of slices, multi-frame objects, pictures, doses, segmentations and structure sets.

`read(paths)` finds out what the files are. Slices become one volume whose affine comes from their positions; what
is ambiguous or incomplete is refused with the choices named, and what was mended is in `Image.notes`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from medimg_eval.case import Geometry, Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.pixels.samples import MONOCHROME1
from medimg_eval.imaging.dicom.series.geometry import Gaps, Stack, UnevenSlices, arrange_volumes
from medimg_eval.imaging.dicom.series.grouping import SEGMENTATIONS, STRUCTURES, Group, choose, gather, groups_of
from medimg_eval.imaging.dicom.series.loading import attributes, load, resample, suv_factors
from medimg_eval.imaging.dicom.unpacking import unpacked
from medimg_eval.imaging.library_logs import silence_values

__all__ = ["UnevenSlices", "grid", "read", "read_mask"]

OBJECTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "picture": ("projection", ("voi",)),
    "frames": ("enhanced", ("stack", "gaps", "suv", "beside")),
    "labels": ("seg", ()),
    "dose": ("rtdose", ()),
}
"""Kind of a group -> the module that reads it, and the options that mean something to it."""

silence_values()


def read(
    paths: Sequence[Path],
    *,
    series: str | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
    voi: bool = False,
    stack: int | None = None,
) -> Image:
    """Reads a series, a multi-frame object, a picture or a dose.

    Args:
        paths: a folder, searched with all folders in it, one file, or the files of one image.
        series: which of several images in a folder: a series UID, the label of a group or its number as the error
            lists them (its SeriesNumber, where they differ), or `description~portal`: a part of its SeriesDescription.
        gaps: what to do about uneven steps between slices: `raise`, `resample` linearly onto the median step
            (float32), or keep the `largest-run`.
        suv: turn PET into body-weight standardised uptake values (float32, g/ml).
        voi: apply the VOI LUT or window of a picture; refused for anything else, as are `suv` and `stack` where
            they mean nothing.
        stack: which of several stacks in a multi-frame file, counted from 1.

    Returns:
        A volume, (channel, column, row, slice), in its stored integer type where there is no rescale, int16 where
        the slope is 1 and the values fit, float32 otherwise; or a picture, (channel, row, column).

    Raises:
        CaseError: nothing to read, several images, a damaged file, or a geometry that cannot be trusted.
        UnevenSlices: the steps between slices differ.
    """
    with unpacked(paths) as plain:
        return _read_group(plain, series=series, gaps=gaps, suv=suv, voi=voi, stack=stack)


def _read_group(
    paths: Sequence[Path], *, series: str | None, gaps: Gaps, suv: bool, voi: bool, stack: int | None
) -> Image:
    group, notes = _choose_group(paths, series)
    _require_meaning(group, suv=suv, voi=voi, stack=stack)
    if group.kind != "slices":
        if group.kind == "labels":
            raise CaseError(f"{group.headers[0].path}: is a segmentation; read it with read_mask")
        image = cast("Image", _asked_of_object("read", group, gaps=gaps, suv=suv, voi=voi, stack=stack))
        return replace(image, notes=(*notes, *image.notes))
    slices = _arrange_slices(group, gaps)
    head = slices.headers[0]
    notes += _require_grey(slices.headers)
    factors = suv_factors(slices.headers) if suv else None
    array, valid, notes_ = load(slices.headers, factors, slices.volumes, slices.mosaic)
    if slices.weights is not None:
        array, valid = resample(array, valid, slices.weights)
    return Image(
        array,
        slices.geometry.affine,
        modality=head.modality,
        notes=(*notes, *group.found.notes, *slices.notes, *notes_),
        attributes=attributes(head.path),
        valid=valid,
        channels=group.found.axis,
    )


def grid(
    paths: Sequence[Path],
    *,
    series: str | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
    voi: bool = False,
    stack: int | None = None,
    grid: Geometry | None = None,
    labels: Mapping[str, int] | None = None,
) -> Geometry:
    """Reads the grid from headers; options and errors as `read` and `read_mask`."""
    if grid is not None:
        return grid
    with unpacked(paths) as plain:
        group, _ = _choose_group(plain, series)
        _require_meaning(group, suv=suv, voi=voi, stack=stack)
        if group.kind == "slices":
            _require_grey(group.headers)
            return _arrange_slices(group, gaps).geometry
        return cast("Geometry", _asked_of_object("grid", group, gaps=gaps, suv=suv, voi=voi, stack=stack))


def read_mask(
    paths: Sequence[Path],
    *,
    grid: Geometry | None = None,
    labels: Mapping[str, int] | None = None,
    series: str | None = None,
) -> Mask:
    """Reads DICOM-SEG, RTSTRUCT or a label series as label map.

    Args:
        paths: the file, or a folder that holds it.
        grid: the image's grid, onto which structures are drawn. Without it, that of the series in the same folder;
            without one, a DICOM-SEG is the box that its frames span, and an RTSTRUCT is refused.
        labels: structure or segment name -> label; None numbers them as the file does.
        series: which of several images in a folder, as in `read`.

    Raises:
        CaseError: no segmentation, several of them, one that does not lie on the grid, or an image, as its modality
            and rescaling say.
    """
    with unpacked(paths) as plain:
        return _read_mask(plain, grid, labels, series)


def _read_mask(
    paths: Sequence[Path], grid: Geometry | None, labels: Mapping[str, int] | None, series: str | None
) -> Mask:
    headers = gather(paths)
    objects = [header for header in headers if header.sop_class in (*SEGMENTATIONS, STRUCTURES)]
    if len(objects) > 1:
        raise CaseError(f"{paths[0]}: holds {len(objects)} segmentations; name the file, such as {objects[0].path}")
    if not objects:
        from medimg_eval.imaging.label_values import label_map

        declared = next(
            (header for header in headers if header.modality in ("CT", "MR", "PT") and header.intercept), None
        )
        if declared is not None:
            raise CaseError(
                f"{declared.path}: is an image, {declared.modality} with a RescaleIntercept of {declared.intercept:g}, "
                "and no label map; name a DICOM-SEG, an RTSTRUCT or a series of labels"
            )
        image = read(paths, series=series)
        return Mask(label_map(image.array, paths[0]), image.affine, notes=image.notes, units=image.units)
    if grid is None and any(group.kind in ("slices", "frames") for group in groups_of(headers)):
        grid = _grid_beside(paths, series)
    if objects[0].sop_class == STRUCTURES:
        from medimg_eval.imaging.dicom.objects import rtstruct as structures

        return structures.read_mask(objects[0].path, grid=grid, labels=labels)
    from medimg_eval.imaging.dicom.objects import seg as segmentation

    return segmentation.read_mask(objects[0].path, grid=grid, labels=labels)


def _grid_beside(paths: Sequence[Path], series: str | None) -> Geometry:
    """Grid of the image in the same folder, as `grid` reads."""
    return grid(paths, series=series)


def _choose_group(paths: Sequence[Path], series: str | None) -> tuple[Group, list[str]]:
    headers = gather(paths)
    groups = groups_of(headers)
    images = [group for group in groups if group.kind not in ("labels", "dose")] or groups
    if not images:
        kinds = sorted({header.modality or "without modality" for header in headers})
        hint = "; read it with read_mask" if "RTSTRUCT" in kinds else ""
        raise CaseError(f"{headers[0].path}: holds no pixels ({', '.join(kinds)}){hint}")
    group, notes = choose(images, None if series is None else str(series), paths[0])
    return group, notes


def _arrange_slices(group: Group, gaps: Gaps) -> Stack:
    """Slices in order by volume; CaseError where nothing orders them."""
    head, count = group.headers[0], len(group.found.volumes)
    if head.samples > 1 and (head.mosaic or count > 1):
        what = "is a mosaic" if head.mosaic else f"is of {count} volumes"
        raise CaseError(
            f"{head.path}: {what} in colour, and channels are volumes or colours; read one with series=UID/1"
        )
    try:
        return arrange_volumes(group.found.volumes, gaps)
    except CaseError as error:
        # Slices that are there twice with the same pixels are no trouble.
        if not group.found.trouble or isinstance(error, UnevenSlices):
            raise
        raise CaseError(f"{error}. {group.found.trouble}") from error


def _asked_of_object(what: Literal["read", "grid"], group: Group, **options: Any) -> Image | Geometry:
    """Calls the reader of a single-file image with its options."""
    name, taken = OBJECTS[group.kind]
    reader = importlib.import_module(f"medimg_eval.imaging.dicom.objects.{name}")
    head = group.headers[0]
    arguments = (head.path, head) if taken else (head.path,)
    options["beside"] = group.headers[1:]
    result: Image | Geometry = getattr(reader, what)(*arguments, **{option: options[option] for option in taken})
    return result


def _require_meaning(group: Group, *, suv: bool, voi: bool, stack: int | None) -> None:
    """Refuses options irrelevant to the file, which would seem applied."""
    path = group.headers[0].path
    if voi and group.kind != "picture":
        raise CaseError(f"{path}: is no picture, so it is not shown through a window; read it without voi")
    if suv and group.kind not in ("slices", "frames"):
        raise CaseError(f"{path}: is no PET volume; read it without suv")
    if stack is not None and group.kind != "frames":
        raise CaseError(f"{path}: holds no stacks of frames; choose among series with series=UID instead of stack")


def _require_grey(headers: Sequence[Header]) -> list[str]:
    """Refuses slices of palettes or mixed kinds; notes inverted greys."""
    for header in headers:
        if header.samples not in (1, 3) or header.photometric not in ("MONOCHROME1", "MONOCHROME2", "RGB", ""):
            raise CaseError(
                f"{header.path}: is one of a stack of {header.photometric} slices; expected MONOCHROME1, MONOCHROME2 "
                "or RGB, so read its files one by one, as pictures"
            )
    kinds = {header.photometric for header in headers} - {""}
    if len(kinds) > 1:
        raise CaseError(
            f"{headers[0].path}: is one of a stack of {' and '.join(sorted(kinds))} slices, whose values cannot be "
            "told to mean the same; export the series again"
        )
    return [MONOCHROME1] if "MONOCHROME1" in kinds else []

"""Slices that repeat positions to volumes in order, and what tells the volumes apart: time, diffusion, echo, phase."""

from __future__ import annotations

import filecmp
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array, ChannelAxis
from medimg_eval.errors import shortened
from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.headers.volume_facts import VolumeFacts
from medimg_eval.imaging.geometry import LPS_TO_RAS

SAME_PLACE = 5e-3
"""Millimetres along the normal within which slices of several volumes lie at one position."""

Key = TypeVar("Key")

LOW = 50.0
"""b-values below it have no direction: what is stated is that of the imaging gradients."""


@dataclass(frozen=True)
class Slice:
    """Slice or frame with its facts and position along the normal.

    Counted from 0.
    """

    header: Header
    facts: VolumeFacts
    place: int = 0


@dataclass(frozen=True, eq=False)
class Volumes:
    """Volumes of one scan, in order.

    Attributes:
        volumes: the slices of each, in no particular order; one where no position repeats.
        axis: what the volumes are; None of a single one.
        value: what sets them apart from others at the same positions, such as `echo time 30`.
        notes: what was guessed.
        trouble: why they cannot be put in order, then `volumes` holds all of them as one; else empty.
    """

    volumes: tuple[tuple[Header, ...], ...]
    axis: ChannelAxis | None = None
    value: str = ""
    notes: tuple[str, ...] = ()
    trouble: str = ""


def volumes_of(slices: Sequence[Slice], heights: Array) -> list[Volumes]:
    """Sorts slices of one size and orientation to volumes.

    Heights are where slices lie along their normal, mm. What makes complete stacks of a different kind (image types,
    magnitude and phase, echoes that repeat in time) becomes several; the others are channels of one image.
    """
    if 0 < len(unique_slices := _without_copies(slices)) < len(slices):
        volumes = volumes_of(unique_slices, heights[[slices.index(slice_) for slice_ in unique_slices]])
        note = f"{len(slices) - len(unique_slices)} files were there twice, byte for byte, and are used once"
        if any(volume.axis is not None for volume in volumes):
            return [replace(volume, notes=(note, *volume.notes)) for volume in volumes]
    order = np.argsort(heights, kind="stable")
    steps = np.diff(heights[order]) > SAME_PLACE
    indices = np.empty(len(slices), int)
    indices[order] = np.r_[0, np.cumsum(steps)]
    if int(indices.max()) + 1 == len(slices):
        return [Volumes((tuple(slice_.header for slice_ in slices),))]
    placed = [replace(slice_, place=int(index)) for slice_, index in zip(slices, indices, strict=True)]
    return _split_slices(placed, int(indices.max()) + 1, "")


def _without_copies(slices: Sequence[Slice]) -> list[Slice]:
    """Leaves out files that are a copy of another."""
    unique_slices: list[Slice] = []
    by_digest: dict[bytes, Slice] = {}
    for slice_ in slices:
        name = slice_.header.facts.get("sop_instance", b"")
        twin = by_digest.setdefault(name, slice_) if name and slice_.header.frames == 1 else slice_
        is_copy = twin is not slice_ and twin.header.path != slice_.header.path
        if not (is_copy and filecmp.cmp(twin.header.path, slice_.header.path, shallow=False)):
            unique_slices.append(slice_)
    return unique_slices


def _split_slices(slices: list[Slice], places: int, value: str) -> list[Volumes]:
    if len(slices) == places:
        return [Volumes((_slice_headers(slices),), value=value)]
    pieces = _group_pieces(slices, places, lambda one: one.facts.kind)
    if pieces:
        named = [f"image type {kind or 'not stated'}" for kind in pieces]
        return _split_each(pieces.values(), named, places, value)
    counts = np.bincount([slice_.place for slice_ in slices], minlength=places)
    if np.ptp(counts):
        return [_troubled_volumes(slices, value, _describe_uneven(slices, counts))]
    for attempt in (_by_diffusion, _by_contrast, _by_index, _by_moment, _by_rank):
        volumes = attempt(slices, places, value)
        if volumes is not None:
            return volumes
    return [_troubled_volumes(slices, value, _describe_missing(slices, places))]


def _slice_headers(slices: Iterable[Slice]) -> tuple[Header, ...]:
    return tuple(slice_.header for slice_ in slices)


def _split_each(pieces: Iterable[list[Slice]], names: Sequence[str], places: int, value: str) -> list[Volumes]:
    volumes: list[Volumes] = []
    for piece, name in zip(pieces, names, strict=True):
        volumes += _split_slices(piece, places, f"{value}, {name}" if value else name)
    return volumes


def _group_pieces(slices: list[Slice], places: int, key: Callable[[Slice], Key | None]) -> dict[Key, list[Slice]]:
    """Slices grouped by facts into complete stacks; else nothing."""
    keys = [key(slice_) for slice_ in slices]
    if None in keys or len(set(keys)) < 2:
        return {}
    pieces = grouped(zip(keys, slices, strict=True))
    return pieces if all(_is_full(piece, places) for piece in pieces.values()) else {}  # type: ignore[return-value]


def _is_full(slices: Sequence[Slice], places: int) -> bool:
    """Whether every position is there, all as often."""
    if len(slices) % places:
        return False
    counts = np.bincount([slice_.place for slice_ in slices], minlength=places)
    return bool((counts == len(slices) // places).all())


_CONTRASTS: dict[str, Callable[[Slice], float | None]] = {
    "echo time": lambda one: one.facts.echo_time,
    "inversion time": lambda one: one.facts.inversion_time,
    "flip angle": lambda one: one.facts.flip_angle,
}
"""What makes volumes of another contrast; two of them, or one and time, make images of their own."""

_MOMENTS: tuple[Callable[[Slice], float | None], ...] = (
    lambda one: _whole_number(one.facts.temporal),
    lambda one: one.facts.trigger_time,
    lambda one: one.facts.frame_time,
    lambda one: _whole_number(one.facts.acquisition),
    lambda one: one.facts.begin,
)
"""What counts volumes, the same for all slices of one."""

_RANKS: dict[str, Callable[[Slice], float | None]] = {
    "trigger": lambda one: one.facts.trigger_time,
    "acquired": lambda one: one.facts.acquired,
    "number": lambda one: one.facts.number,
}
"""What grows from volume to volume at every position, and may differ between slices of one."""


def _whole_number(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _rank_slices(slices: list[Slice], places: int, rank: Callable[[Slice], float | None]) -> list[list[Slice]] | None:
    """Volumes by rank within each position; None where values repeat."""
    values = [rank(slice_) for slice_ in slices]
    if None in values:
        return None
    order = sorted(range(len(slices)), key=lambda at: (slices[at].place, values[at]))
    count = len(slices) // places
    for before, after in itertools.pairwise(order):
        if slices[before].place == slices[after].place and values[before] == values[after]:
            return None
    return [[slices[at] for at in order[volume::count]] for volume in range(count)]


def _by_contrast(slices: list[Slice], places: int, value: str) -> list[Volumes] | None:
    """Volumes by contrast; contrasts with several are separate images."""
    for name, key in _CONTRASTS.items():
        pieces = _group_pieces(slices, places, key)
        if pieces and len(slices) > places * len(pieces):
            return _split_each(pieces.values(), [f"{name} {contrast:g}" for contrast in pieces], places, value)
        if pieces:
            return [_make_volumes([pieces[contrast] for contrast in sorted(pieces)], value, ())]
    return None


def _by_moment(slices: list[Slice], places: int, value: str) -> list[Volumes] | None:
    for key in _MOMENTS:
        pieces = _group_pieces(slices, places, key)
        if pieces and len(pieces) * places == len(slices):
            return [_make_volumes([pieces[moment] for moment in sorted(pieces)], value, ())]
    return None


def _by_rank(slices: list[Slice], places: int, value: str) -> list[Volumes] | None:
    for name, rank in _RANKS.items():
        volumes = _rank_slices(slices, places, rank)
        if volumes is not None:
            notes = ("the order of the volumes is that of the numbers of their files",) if name == "number" else ()
            return [_make_volumes(volumes, value, notes)]
    return None


def _by_diffusion(slices: list[Slice], places: int, value: str) -> list[Volumes] | None:
    """Volumes by b-value and direction, then time; None where ambiguous."""
    keys = [_diffusion_weighting(slice_.facts) for slice_ in slices]
    if len(set(keys)) < 2:
        return None
    volumes: list[list[Slice]] = []
    for piece in grouped(zip(keys, slices, strict=True)).values():
        if not _is_full(piece, places):
            return None
        volumes_ = [piece] if len(piece) == places else None
        for rank in (lambda one: _whole_number(one.facts.temporal), *_RANKS.values()):
            volumes_ = volumes_ or _rank_slices(piece, places, rank)
        if volumes_ is None:
            return None
        volumes += volumes_
    return [_make_volumes(sorted(volumes, key=_volume_start), value, ())]


def _diffusion_weighting(facts: VolumeFacts) -> tuple[float, ...]:
    b_value = facts.b_value or 0.0
    rounded = round(b_value, 3)
    if facts.direction is None or b_value < LOW:
        return (rounded,)
    return (rounded, *(round(part, 4) + 0.0 for part in facts.direction))


def _volume_start(volume: Sequence[Slice]) -> tuple[float, float]:
    times = [slice_.facts.acquired for slice_ in volume if slice_.facts.acquired is not None]
    numbers = [slice_.facts.number for slice_ in volume if slice_.facts.number is not None]
    return min(times, default=0.0), float(min(numbers, default=0))


def _index_at(at: int) -> Callable[[Slice], int | None]:
    return lambda one: one.facts.index[at][1] if at < len(one.facts.index) else None


def _by_index(slices: list[Slice], places: int, value: str) -> list[Volumes] | None:
    """Volumes by enhanced dimension indices; further ones part images."""
    pieces_by_name = [
        (name, _group_pieces(slices, places, _index_at(at))) for at, (name, _) in enumerate(slices[0].facts.index)
    ]
    varying = [(name, pieces) for name, pieces in pieces_by_name if pieces]
    for _, pieces in varying:
        if len(pieces) * places == len(slices):
            return [_make_volumes([pieces[number] for number in sorted(pieces)], value, ())]
    if len(varying) > 1:
        name, pieces = varying[0]
        ordered = sorted(pieces)
        return _split_each(
            [pieces[number] for number in ordered], [f"{name} {index}" for index in ordered], places, value
        )
    return None


# --- what the volumes are -------------------------------------------------------------------------------------


def _make_volumes(volumes: list[list[Slice]], value: str, notes: tuple[str, ...]) -> Volumes:
    axis, notes_ = _volume_axis([[slice_.facts for slice_ in volume] for volume in volumes])
    if axis.kind == "time" and volumes[0][0].header.mosaic:
        axis, notes_ = _mosaic_times(volumes, axis, notes_)
    return Volumes(tuple(_slice_headers(volume) for volume in volumes), axis, value, (*notes, *notes_))


def _volume_axis(volumes: Sequence[Sequence[VolumeFacts]]) -> tuple[ChannelAxis, tuple[str, ...]]:
    """Axis distinguishing volumes, else time."""
    heads = [volume[0] for volume in volumes]
    weightings = [{_diffusion_weighting(facts) for facts in volume} for volume in volumes]
    if (
        all(len(weighting) == 1 for weighting in weightings)
        and len({value for weighting in weightings for value in weighting}) > 1
    ):
        weighted = [(facts.b_value or 0.0, facts.direction) for facts in heads]
        vectors = np.array([vector if vector and b_value >= LOW else (0, 0, 0) for b_value, vector in weighted])
        directions = vectors @ LPS_TO_RAS[:3, :3].T + 0.0
        missing = [str(at) for at, (b_value, vector) in enumerate(weighted, 1) if b_value >= LOW and vector is None]
        averaged = f"diffusion-weighted volumes without a direction, averages of several perhaps: {shortened(missing)}"
        notes = (averaged,) if missing else ()
        return ChannelAxis("diffusion", np.array([b for b, _ in weighted]), "s/mm2", directions), notes
    for kind, unit, values in (
        ("echo", "ms", _volume_values([[facts.echo_time for facts in volume] for volume in volumes])),
        ("inversion", "ms", _volume_values([[facts.inversion_time for facts in volume] for volume in volumes])),
        ("flip angle", "degree", _volume_values([[facts.flip_angle for facts in volume] for volume in volumes])),
    ):
        if values is not None:
            return ChannelAxis(kind, values, unit), ()
    if all(facts.trigger_time is not None for volume in volumes for facts in volume):
        values = np.array([np.median([facts.trigger_time for facts in volume]) for volume in volumes], np.float64)
        if (np.diff(values) > 0).all():
            return ChannelAxis("phase", values, "ms"), ()
    return _time_axis(volumes)


def _mosaic_times(
    volumes: Sequence[Sequence[Slice]], axis: ChannelAxis, notes: tuple[str, ...]
) -> tuple[ChannelAxis, tuple[str, ...]]:
    """Mosaic times by RepetitionTime, without gaps."""
    facts = [volume[0].facts for volume in volumes]
    counts, repetition = [_whole_number(volume_facts.acquisition) for volume_facts in facts], facts[0].repetition_time
    planned = np.arange(len(facts)) * (repetition or 0.0)
    if repetition is None or None in counts or (np.diff(np.array(counts, np.float64)) != 1).any():
        return axis, notes
    if np.array_equal(axis.values, planned):
        return axis, notes
    note = "the times of the volumes are those that RepetitionTime states; AcquisitionTime lies elsewhere"
    return replace(axis, values=planned), (note,)


def _volume_values(volumes: Sequence[Sequence[float | None]]) -> Array | None:
    """Values of volumes, where constant within and different between."""
    values = [set(volume) for volume in volumes]
    if any(len(volume_values) != 1 or None in volume_values for volume_values in values) or len(
        set.union(*values)
    ) < len(values):
        return None
    return np.array([volume_values.pop() for volume_values in values], np.float64)


def _time_axis(volumes: Sequence[Sequence[VolumeFacts]]) -> tuple[ChannelAxis, tuple[str, ...]]:
    """Seconds after the first volume, measured or planned."""
    repetition = volumes[0][0].repetition_time
    planned = None if repetition is None else repetition * np.arange(len(volumes))
    for times in (
        [[facts.acquired for facts in volume] for volume in volumes],
        [[facts.begin for facts in volume] for volume in volumes],
        [[None if facts.frame_time is None else facts.frame_time / 1000 for facts in volume] for volume in volumes],
    ):
        if any(time is None for volume in times for time in volume):
            continue
        # Slices of a volume are not measured at one moment, and those of one place are compared.
        moments = np.array([sorted(volume) for volume in times], np.float64)  # type: ignore[type-var]
        values = np.median(moments - moments[0], axis=1)
        if (np.diff(values) > 0).all():
            if planned is not None and np.abs(np.diff(values) - repetition).max() <= 0.01 * repetition + 0.01:  # type: ignore[operator]
                values = planned  # the clock of the scanner is the coarser one
            return ChannelAxis("time", values, "s"), ()
    if planned is not None:
        return ChannelAxis("time", planned, "s"), ("the times of the volumes are those that RepetitionTime states",)
    nothing = np.full(len(volumes), np.nan)
    return ChannelAxis("time", nothing, "s"), (
        "no AcquisitionTime tells the volumes apart, so their times are unknown",
    )


# --- what cannot be put in order ------------------------------------------------------------------------------


def _troubled_volumes(slices: Sequence[Slice], value: str, trouble: str) -> Volumes:
    return Volumes((_slice_headers(slices),), value=value, trouble=trouble)


def _describe_uneven(slices: Sequence[Slice], counts: Array) -> str:
    usual = int(np.bincount(counts).argmax())
    odd = np.flatnonzero(counts != usual)
    some = next(slice_ for slice_ in slices if slice_.place == int(odd[0]))
    where = ", ".join(f"{float(part):.6g}" for part in some.header.position or ())
    files = "file" if int(counts[odd[0]]) == 1 else "files"
    return (
        f"{len(slices)} slices at {len(counts)} positions are no whole volumes: most positions have {usual} slices, "
        f"and ImagePositionPatient ({where}), that of {some.header.path.name}, has {int(counts[odd[0]])} {files}"
        f"{f', and {len(odd) - 1} more differ' if len(odd) > 1 else ''}; copy what is missing, or move the volume "
        "that is not whole out of the folder"
    )


def _describe_missing(slices: Sequence[Slice], places: int) -> str:
    lacking: dict[str, Callable[[Slice], object]] = {
        "TemporalPositionIdentifier (0020,0100)": lambda one: one.facts.temporal or None,
        "AcquisitionNumber (0020,0012)": lambda one: one.facts.acquisition or None,
        "AcquisitionTime (0008,0032)": lambda one: one.facts.acquired,
        "InstanceNumber (0020,0013)": lambda one: one.facts.number,
    }
    absent = [name for name, key in lacking.items() if all(key(slice_) is None for slice_ in slices)]
    ambiguous = [name for name in lacking if name not in absent]
    gone = f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing" if absent else ""
    vague = f"{', '.join(ambiguous)} {'does' if len(ambiguous) == 1 else 'do'} not tell them apart" if ambiguous else ""
    return (
        f"{len(slices) // places} slices lie at each of {places} positions, with different pixels, and "
        f"nothing tells which belong together: {' and '.join(word for word in (gone, vague) if word)}; move the files "
        "of the image you do not mean out of the folder, or export the series again with these elements"
    )

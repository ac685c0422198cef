"""Pictures: PNG, JPEG, TIFF, BMP and the first frame of a GIF, with every bit that was stored, or as 8-bit RGB."""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.label_values import from_colours, from_values, label_map, label_notes
from medimg_eval.imaging.library_logs import kept_log, without_values
from medimg_eval.imaging.pictures import ome

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Prompt

MAX_PIXELS = 178_956_970
"""Pixels above which a picture is refused: Pillow's own limit against decompression bombs."""

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""What a TIFF file starts with."""

ORIENTATION = 274
"""The tag, in EXIF and TIFF alike."""

_MINISWHITE, _MINISBLACK, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6  # PhotometricInterpretation


@dataclass
class Stored:
    """A decoded picture: upright, (row, column) or (row, column, channel), without alpha."""

    array: Array
    format: str
    decoder: str
    lossy: bool = False
    notes: list[str] = field(default_factory=list)


def too_large(name: str) -> str:
    """Says that a picture is refused for its size."""
    return (
        f"{name}: has more than {MAX_PIXELS:,} pixels, which may be a decompression bomb; cut it into smaller pictures"
    )


def check_size(array: Array, size: tuple[int, int], name: str) -> None:
    """Raises CaseError where decoded size differs from the header.

    (row, column, ...).
    """
    if array.shape[:2] != size or not array.size:
        raise CaseError(
            f"{name}: is damaged: its header says {size[0]} x {size[1]} rows and columns, {array.shape[0]} x "
            f"{array.shape[1]} were found; write or copy it again"
        )


def page_of(tiff: Any, name: str, page: int | None) -> Any:
    """Returns the requested page; CaseError where ambiguous."""
    # Reduced copies and transparency masks are pages of the file, but no pages of the document.
    pages = [page for page in tiff.pages if not (page.is_reduced or page.is_mask)] or list(tiff.pages)
    if tiff.series[0].size > len(pages) * tiff.series[0].keyframe.size:
        raise CaseError(f"{name}: holds a stack of images behind one page; save it as one TIFF per image")
    if page is None and len(pages) > 1:
        raise CaseError(f"{name}: has {len(pages)} pages; say which one to read with page=0 to page={len(pages) - 1}")
    if page is not None and not 0 <= page < len(pages):
        raise CaseError(f"{name}: has {len(pages)} pages, counted from 0, so there is no page={page}")
    tiff_page = pages[page or 0]
    if tiff_page.imagewidth * tiff_page.imagelength > MAX_PIXELS:
        raise CaseError(too_large(name))
    return tiff_page


def tag(page: Any, code: int, otherwise: int) -> int:
    """Returns the value of a tag, or `otherwise`."""
    tag = page.tags.get(code)
    return otherwise if tag is None else int(tag.value)


def load_tiff(source: Path | bytes, name: str, page: int | None, labels: bool) -> tuple[Stored, int, bool]:
    """Returns the picture, its orientation tag, and whether its last channel is alpha."""
    import tifffile

    opened = io.BytesIO(source) if isinstance(source, bytes) else source
    with kept_log("tifffile") as notes, tifffile.TiffFile(opened) as tiff:
        tiff_page = page_of(tiff, name, page)
        if tiff_page.axes not in ("YX", "YXS", "SYX"):
            raise CaseError(
                f"{name}: expected rows, columns and channels, got axes {tiff_page.axes}; save it as a plain TIFF"
            )
        stored_bytes = list(tiff_page.databytecounts)
        if len(stored_bytes) != math.prod(tiff_page.chunked) or 0 in stored_bytes:
            # tifffile would go on with zeros where they are missing.
            raise CaseError(f"{name}: is damaged: some of its strips or tiles are missing; write or copy it again")
        array = tiff_page.asarray()
        array = np.moveaxis(array, 0, -1) if tiff_page.axes == "SYX" else array
        check_size(array, (tiff_page.imagelength, tiff_page.imagewidth), name)
    lossy = "JPEG" in str(getattr(tiff_page.compression, "name", tiff_page.compression))
    stored = Stored(array, "TIFF", f"tifffile {tifffile.__version__}", lossy, notes)
    _interpret_samples(stored, tiff_page, name, labels)
    return (
        stored,
        tag(tiff_page, ORIENTATION, 1),
        array.ndim == 3 and any(extra in (1, 2) for extra in tiff_page.extrasamples),
    )


def _interpret_samples(stored: Stored, page: Any, name: str, labels: bool) -> None:
    """Turns the stored samples of a TIFF into grey or RGB."""
    photometric, bits = int(page.photometric), page.bitspersample
    if photometric == _PALETTE and not labels:
        table = np.asarray(page.colormap)
        # Some writers store a table of 8 bits in its 16-bit entries.
        stored.array = (table if table.max() < 256 else table >> 8).astype(np.uint8)[:, stored.array].transpose(1, 2, 0)
    elif photometric == _CMYK:
        from PIL import Image as Pillow

        if stored.array.dtype != np.uint8 or stored.array.shape[-1] != 4:
            raise CaseError(f"{name}: is CMYK of {stored.array.dtype} {stored.array.shape}; convert it to RGB")
        stored.array = np.array(Pillow.fromarray(stored.array, "CMYK").convert("RGB"))
        stored.notes.append("its CMYK inks were turned into RGB without a colour profile")
    elif photometric not in (_MINISWHITE, _MINISBLACK, _RGB, _PALETTE) and not (photometric == _YCBCR and stored.lossy):
        raise CaseError(
            f"{name}: its colours are stored as {getattr(page.photometric, 'name', photometric)}; convert it to RGB"
        )
    if photometric == _MINISWHITE:
        if stored.array.dtype.kind not in "ub":
            raise CaseError(f"{name}: stores white as the lowest {stored.array.dtype}; convert it to black as lowest")
        top = stored.array.dtype.type(2**bits - 1 if stored.array.dtype.kind == "u" else True)
        stored.array = top ^ stored.array
        stored.notes.append("stores white as 0; was inverted")
    if stored.array.dtype.kind == "b":
        stored.array = stored.array.astype(np.uint8) * np.uint8(1 if labels else 255)
    elif photometric in (_MINISWHITE, _MINISBLACK) and bits in (2, 4) and not labels:
        stored.array = stored.array * np.uint8(255 // (2**bits - 1))


Channels = Literal["as stored", "grey", "rgb"]
"""`grey`: one channel (of a coloured picture, its ITU-R 601 luma); `rgb`: three (grey is repeated)."""


def read(paths: Sequence[Path], *, channels: Channels = "as stored", page: int | None = None) -> Image:
    """Reads a picture, (channel, row, column), in its stored dtype.

    Grey of 1, 2 or 4 bits is spread over 0-255, a palette and CMYK become RGB, an orientation tag is
    applied, a TIFF that stores white as 0 is inverted, and an alpha channel is dropped; `notes` says so
    wherever pixels change or are hidden. A resolution in dots per inch is about printing, not about the
    patient, so `units` is `pixel` with steps of 1. An OME-TIFF of several slices, moments or channels is read
    whole, by `medimg_eval.imaging.pictures.ome.read`, with its physical sizes.

    Args:
        paths: the one file.
        channels: `as stored`, or `grey` or `rgb` for a set that mixes both.
        page: which page of a TIFF of several, from 0.

    Raises:
        CaseError: the file is missing, cut short, damaged, of several pages, or larger than `MAX_PIXELS`.
    """
    path = _single_path(paths)
    with _name_damage(str(path)):
        stack = ome.read(path) if page is None and _read_head(path, str(path)) in MAGIC else None
    return stack or _make_image(_load_picture(path, str(path), page), str(path), channels)


def decode(data: bytes, name: str, *, channels: Channels = "as stored", page: int | None = None) -> Image:
    """Decodes a picture from bytes; otherwise like `read`.

    `name` is what error messages call it.
    """
    return _make_image(_load_picture(data, name, page), name, channels)


def grid(
    paths: Sequence[Path],
    *,
    channels: Channels = "as stored",
    page: int | None = None,
    threshold: float | None = None,
    foreground: bool = False,
    colours: Mapping[int, Sequence[int]] | None = None,
) -> Geometry:
    """Reads rows and columns from the header; raises as `read`."""
    path = _single_path(paths)
    with _name_damage(name := str(path)):
        if _read_head(path, name) in MAGIC:
            import tifffile

            stack = ome.grid(path) if page is None else None
            if stack is not None:
                return stack
            with kept_log("tifffile"), tifffile.TiffFile(path) as tiff:
                tiff_page = page_of(tiff, name, page)
                rows, columns, turned = tiff_page.imagelength, tiff_page.imagewidth, tag(tiff_page, ORIENTATION, 1)
        else:
            _no_page(page, name)
            with path.open("rb") as stream:
                header = _open_picture(stream, name)
                if header is None:
                    rows, columns, turned = *_load_picture(path, name, None).array.shape[:2], 1
                else:
                    (columns, rows), turned = header.size, _orientation_tag(header, stream)
    return Geometry((columns, rows) if turned in (5, 6, 7, 8) else (rows, columns), np.eye(4), "pixel")


def read_mask(
    paths: Sequence[Path],
    *,
    threshold: float | None = None,
    foreground: bool = False,
    colours: Mapping[int, Sequence[int]] | None = None,
    page: int | None = None,
) -> Mask:
    """Reads a label map, (row, column), of greys, indices or bits.

    Grey values, palette indices or the bits of a 1-bit file.

    Args:
        paths: the one file.
        threshold: values at or above it become 1, all others 0.
        foreground: every value but 0 becomes 1 (0/255 masks keep 255 as their label otherwise).
        colours: label -> its red, green and blue as stored; black is background unless it is given a label.
        page: which page of a TIFF of several, from 0.

    Raises:
        CaseError: what `read` raises; channels that differ without `colours`; a colour that `colours` lacks;
            a JPEG whose values are not exact, without `threshold`, `foreground` or `colours`.
        UsageError: more than one of `threshold`, `foreground` and `colours`.
    """
    path = _single_path(paths)
    if (threshold is not None) + foreground + (colours is not None) > 1:
        raise UsageError(f"{path}: expected one of threshold, foreground and colours, got several")
    stored = _load_picture(path, str(path), page, labels=colours is None)
    notes: list[str] = []
    if colours is not None:
        labels = from_colours(stored.array, path, colours, lossy=stored.lossy)
    else:
        labels, notes = from_values(stored.array, path, threshold, foreground=foreground, lossy=stored.lossy)
    notes_ = (*stored.notes, *notes, *label_notes(labels))
    return Mask(label_map(labels[None], path), np.eye(4), notes=notes_, units="pixel")


def _single_path(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise CaseError(
            f"{paths[0]}: expected one picture, got {len(paths)}; to read them as a clip, give the folder they lie in"
        )
    return paths[0]


def _make_image(stored: Stored, name: str, channels: Channels) -> Image:
    array = np.moveaxis(np.atleast_3d(stored.array), -1, 0)
    if channels not in ("as stored", "grey", "rgb"):
        raise UsageError(f"{name}: expected channels of 'as stored', 'grey' or 'rgb', got {channels!r}")
    if channels != "as stored" and array.shape[0] not in (1, 3):
        raise CaseError(
            f"{name}: cannot be read as {channels}: it has {array.shape[0]} channels; read it with channels='as stored'"
        )
    if channels == "rgb":
        array = np.broadcast_to(array, (3, *array.shape[1:])).copy() if array.shape[0] == 1 else array
    elif channels == "grey" and array.shape[0] == 3:
        if not all(np.array_equal(array[0], channel) for channel in array[1:]):
            stored.notes.append("was coloured; its luma (ITU-R 601) was taken")
            array = _as_luma(array)
        array = array[:1]
    return Image(
        array,
        np.eye(4),
        units="pixel",
        notes=tuple(stored.notes),
        attributes={"format": stored.format, "decoder": stored.decoder},
    )


def _as_luma(array: Array) -> Array:
    if array.dtype in (np.uint8, np.uint16):
        # The whole-number weights every decoder uses, so that the result is theirs to the last bit.
        red, green, blue = array.astype(np.uint32)
        luma: Array = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    else:
        luma = np.tensordot([0.299, 0.587, 0.114], array, 1)
    return luma[None].astype(array.dtype)


# What decoders raise of a damaged file; anything else is a fault of ours and should look like one.
_DAMAGES = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)


@contextmanager
def _name_damage(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CaseError(f"{name}: no such file") from error
    except _DAMAGES as error:
        # Pillow names the object it read from, tifffile quotes the description, which may name a patient.
        message = re.sub(r" <_io[^>]*>", "", without_values(str(error))) or type(error).__name__
        raise CaseError(f"{name}: is cut short or damaged ({message}); write or copy it again") from error


def _read_head(source: Path | bytes, name: str) -> bytes:
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
        head = stream.read(4)
    if not head:
        raise CaseError(f"{name}: is empty; write or copy it again")
    return head


def _load_picture(source: Path | bytes, name: str, page: int | None, *, labels: bool = False) -> Stored:
    """Decodes a picture; `labels` keeps stored indices and bits."""
    with _name_damage(name):
        if _read_head(source, name) in MAGIC:
            stored, turned, alpha = load_tiff(source, name, page, labels)
        else:
            _no_page(page, name)
            stored, turned, alpha = _load_plain(source, name, labels)
    if stored.array.ndim == 3 and alpha:
        stored.array, opacity = stored.array[..., :-1], stored.array[..., -1]
        full = 1 if opacity.dtype.kind == "f" else np.iinfo(opacity.dtype).max
        hidden = int((opacity != full).sum())
        if hidden:
            stored.notes.append(f"an alpha channel was dropped: {hidden} pixels were not fully opaque")
    if turned in range(2, 9):
        stored.array = np.ascontiguousarray(_turn_upright(stored.array, turned))
        stored.notes.append(f"was turned upright as its orientation tag ({turned}) says")
    stored.array = stored.array.astype(stored.array.dtype.newbyteorder("="), copy=False)
    return stored


def _no_page(page: int | None, name: str) -> None:
    if page not in (None, 0):
        raise CaseError(f"{name}: has one page, so there is no page={page}; leave page= out")


def _turn_upright(array: Array, orientation: int) -> Array:
    if orientation in (5, 6, 7, 8):
        array = np.swapaxes(array, 0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return array[::rows, ::columns]


def _open_picture(stream: Any, name: str) -> Any:
    """Opens a picture undecoded; None for 12-bit or lossless JPEG."""
    from PIL import Image as Pillow

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            image = Pillow.open(stream)
    except Pillow.DecompressionBombError as error:
        raise CaseError(too_large(name)) from error
    except Pillow.UnidentifiedImageError:
        stream.seek(0)
        if stream.read(3) == b"\xff\xd8\xff":
            return None
        raise
    if image.width * image.height > MAX_PIXELS:
        raise CaseError(too_large(name))
    return image


def _orientation_tag(image: Any, stream: Any) -> int:
    if image.format != "PNG":
        return int(image.getexif().get(ORIENTATION, 1))
    from PIL import Image as Pillow

    # Asked the same of a PNG, Pillow decodes all of it, for the tag may lie behind the pixels.
    position = 8
    while len(head := stream.seek(position) and stream.read(8)) == 8:
        length = int.from_bytes(head[:4], "big")
        if head[4:] == b"eXIf":
            exif = Pillow.Exif()
            exif.load(stream.read(length))
            return int(exif.get(ORIENTATION, 1))
        position += 12 + length
    return 1


def _load_plain(source: Path | bytes, name: str, labels: bool) -> tuple[Stored, int, bool]:
    """Returns the picture, its orientation tag, and whether its last channel is alpha."""
    import imagecodecs
    from PIL import __version__ as pillow_version

    data = source if isinstance(source, bytes) else source.read_bytes()
    image = _open_picture(io.BytesIO(data), name)
    kind = "JPEG" if image is None else "JPEG" if image.format == "MPO" else str(image.format)
    stored = Stored(np.empty(0), kind, f"imagecodecs {imagecodecs.__version__}", lossy=kind == "JPEG")
    turned = 1 if image is None else _orientation_tag(image, io.BytesIO(data))
    if kind == "JPEG" and (image is None or image.mode in ("L", "RGB")):
        # The decoder fills what is missing with grey and says nothing, so the end marker is looked for.
        if not _jpeg_ends(data):
            raise CaseError(f"{name}: is cut short (the end marker of a JPEG is missing); write or copy it again")
        stored.array = imagecodecs.jpeg_decode(data)
        check_size(stored.array, stored.array.shape[:2] if image is None else image.size[::-1], name)
        return stored, turned, False
    if kind == "PNG" and image.mode != "P":
        stored.array = imagecodecs.png_decode(data)
        check_size(stored.array, image.size[::-1], name)
        bits = data[24]
        if labels and bits < 8:
            stored.array = stored.array // np.uint8(255 // (2**bits - 1))
        return stored, turned, stored.array.ndim == 3 and stored.array.shape[2] in (2, 4)
    stored.decoder = f"Pillow {pillow_version}"
    if image.mode == "CMYK":
        stored.notes.append("its CMYK inks were turned into RGB without a colour profile")
        if kind == "JPEG" and "adobe" not in image.info:
            stored.notes.append("has no Adobe marker, so whether its CMYK is inverted is a guess; look at it")
    if getattr(image, "n_frames", 1) > 1:
        stored.notes.append(f"holds {image.n_frames} frames; the first was read")
    if image.mode == "1":
        stored.array = np.asarray(image).astype(np.uint8) * np.uint8(1 if labels else 255)
        return stored, turned, False
    wanted = {"P": "RGBA" if "transparency" in image.info else "RGB", "PA": "RGBA", "CMYK": "RGB"}
    mode = wanted.get(image.mode, image.mode) if not labels or image.mode == "CMYK" else image.mode
    stored.array = np.array(image if mode == image.mode else image.convert(mode))
    return stored, turned, mode in ("LA", "RGBA", "PA")


def _jpeg_ends(data: bytes) -> bool:
    """Whether the scan's end marker exists, ignoring thumbnails."""
    position = 2
    while position + 4 <= len(data):
        if data[position + 1] == 0xDA:
            return data.find(b"\xff\xd9", position) >= 0
        # Markers may be padded; all of the header are followed by their length.
        position += 1 if data[position + 1] == 0xFF else 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


def as_picture(image: Image) -> Picture:
    """RGB PIL image of 1 to 4 channels, (channel, row, column).

    Pictures of 8 bits stay as they are; grey ones get three equal channels, and an alpha channel is laid over white.
    Of other types the values are stretched from the smallest to the largest; what is not finite counts as 0. Raises
    CaseError for a volume or a clip, whose slice or frames the layout must name, or what holds nothing.
    """
    from PIL import Image as Pictures

    array = np.asarray(image.array)
    if array.ndim != 3 or array.shape[0] not in (1, 2, 3, 4):
        raise CaseError(
            f"an image of shape {array.shape} is no picture; name the slices or frames shown in task.layout.images"
        )
    if not array.size:
        raise CaseError(f"an image of shape {array.shape} holds no pixel; mend the file, or leave the case out")
    alpha = array[-1:] if array.shape[0] in (2, 4) else None
    colours = array if alpha is None else array[:-1]
    if colours.dtype != np.uint8:
        colours = _stretch_range(colours)
    if alpha is not None:
        opaque = alpha.astype(np.float32) / (np.iinfo(alpha.dtype).max if alpha.dtype.kind in "iu" else 1)
        opaque = np.clip(np.nan_to_num(opaque), 0, 1)  # what is no alpha channel must not turn colours round
        colours = np.rint(colours * opaque + 255 * (1 - opaque)).astype(np.uint8)
    bands = [Pictures.fromarray(np.ascontiguousarray(band)) for band in colours]
    return Pictures.merge("RGB", bands if len(bands) == 3 else bands * 3)


def as_pictures(prompt: Prompt) -> list[Picture]:
    """RGB PIL images of a prompt; raises as `as_picture`."""
    return [as_picture(image) for image in prompt.images]


def _stretch_range(array: Array) -> Array:
    values = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if high == low:
        return np.zeros(array.shape, np.uint8)
    return np.rint((values - low) * (255 / (high - low))).astype(np.uint8)

"""Stored samples out of DICOM files, whatever they are coded with: no rescale, no colour conversion.

imagecodecs comes first: it decodes straight into the array and lets other threads run. What it cannot read goes to
pydicom's plugins.
"""

from __future__ import annotations

import io
import itertools
import math
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header, header_of, required_header
from medimg_eval.imaging.dicom.headers.scanner import BIG_ENDIAN, DEFLATED, EXPLICIT, IMPLICIT
from medimg_eval.imaging.voxel_data import check_memory

MONOCHROME1 = "MONOCHROME1: low values are meant to be shown white; values are left as measured"
"""The note on a volume, whose values are never inverted."""

_NATIVE = (IMPLICIT, EXPLICIT, BIG_ENDIAN, DEFLATED)


def stored_frames(source: Path | Any, header: Header | None = None) -> Array:
    """Decodes all frames of a file or pydicom `Dataset`.

    Returns:
        (frames, rows, columns), or (frames, rows, columns, samples) for several samples, in the stored integer
        type: sign extended, bits outside BitsStored cleared. Colours are as they are stored, chroma repeated to
        full size; JPEG 2000 undoes its own component transform (YBR_RCT and YBR_ICT come out as RGB).

    Raises:
        CaseError: no pixels, pixels cut short or damaged, or a codec that is not installed.
    """
    if isinstance(source, Path):
        header = header or required_header(source)
        dataset = None if header.pixel_offset is not None else _read_dataset(header)
    else:
        path = Path(str(getattr(source, "filename", None) or "dataset in memory"))
        header, dataset = header or header_of(source, path), source
    _check_header(header)
    shape = (header.frames, *frame_shape(header))
    check_memory(header.path, math.prod(shape) * stored_dtype(header).itemsize)
    out = np.empty(shape, stored_dtype(header))
    if not is_encapsulated(header):
        _native_frames(header, dataset, out)
    else:
        frames = _frame_fragments(header, dataset)
        if len(frames) < header.frames:
            raise CaseError(
                f"{header.path}: is cut short: {header.frames} frames announced, {len(frames)} found; copy it again"
            )
        for index in range(header.frames):
            decode_frame(header, frames[index], out[index])
    tidy(out, header)
    return out


def decode_into(header: Header, out: Array) -> bool:
    """Decodes one frame into an array; whether stray bits were cleared.

    The slot is (rows, columns) or (rows, columns, samples), C-contiguous, of `stored_dtype(header)` or an integer type
    of its size. Raises CaseError for pixels cut short or damaged, or a codec that is not installed.
    """
    _check_header(header)
    slot = out.view(stored_dtype(header))
    if header.pixel_offset is not None and header.pixel_length is not None and _is_plain(header):
        with header.path.open("rb", buffering=0) as stream:
            stream.seek(header.pixel_offset)
            count = stream.readinto(slot.data.cast("B"))
        if count < slot.nbytes:
            raise cut_short(header, count, slot.nbytes)
    else:
        dataset = None if header.pixel_offset is not None else _read_dataset(header)
        if is_encapsulated(header):
            frames = _frame_fragments(header, dataset)
            if not frames:
                raise cut_short(header, 0, slot.nbytes)
            decode_frame(header, frames[0], slot)
        else:
            _native_frames(header, dataset, slot[None])
    return tidy(slot, header)


def stored_dtype(header: Header) -> np.dtype[Any]:
    """The type samples are stored with; single bits become bytes."""
    if header.floating:
        return np.dtype(f"f{header.floating // 8}")
    if header.bits_allocated == 1:
        return np.dtype(np.uint8)
    if header.bits_allocated not in (8, 16, 32, 64):
        raise CaseError(f"{header.path}: stores {header.bits_allocated} bits a sample; expected 1, 8, 16, 32 or 64")
    return np.dtype(f"{'i' if header.signed else 'u'}{header.bits_allocated // 8}")


def frame_shape(header: Header) -> tuple[int, ...]:
    """(rows, columns), or (rows, columns, samples) where a pixel has several."""
    return (header.rows, header.columns) if header.samples == 1 else (header.rows, header.columns, header.samples)


def is_encapsulated(header: Header) -> bool:
    """Whether the frames are coded, each by itself."""
    return header.transfer_syntax not in _NATIVE and (header.pixel_offset is None or header.pixel_length is None)


def tidy(array: Array, header: Header) -> bool:
    """Normalises samples in place: low bits, sign, cleared rest.

    Says whether bits outside BitsStored were set (overlays lived there once) and are now cleared.
    """
    allocated, stored = header.bits_allocated, header.bits_stored
    if header.floating or allocated == 1 or not 0 < stored < allocated:
        return False
    # Codecs hand out values, native files and RLE hand out bit fields.
    above = header.high_bit + 1 - stored
    if above > 0 and (header.transfer_syntax == RLE or not is_encapsulated(header)):
        array >>= above
    low, high = (-(1 << stored - 1), (1 << stored - 1) - 1) if header.signed else (0, (1 << stored) - 1)
    if not array.size or (int(array.max()) <= high and int(array.min()) >= low):
        return False
    masked = np.bitwise_and(array, array.dtype.type((1 << stored) - 1))
    filled = bool((masked != array).any()) and not _is_sign_only(array, stored)
    if header.signed:
        unused = allocated - stored
        np.right_shift(np.left_shift(array, unused), unused, out=array)
    else:
        array[...] = masked
    return filled


def _is_sign_only(array: Array, stored: int) -> bool:
    """Whether bits above `stored` are a mere sign."""
    above = array >> stored
    return array.dtype.kind == "i" and bool(((above == 0) | (above == -1)).all())


def _is_plain(header: Header) -> bool:
    """Whether the bytes in the file are the bytes in memory."""
    return (
        header.bits_allocated != 1
        and (header.samples == 1 or header.planar == 0)
        and not (header.samples == 3 and header.photometric == "YBR_FULL_422")
        and not is_encapsulated(header)
    )


def _check_header(header: Header) -> None:
    if not header.has_pixels:
        raise CaseError(f"{header.path}: holds no pixels (modality {header.modality or 'unknown'})")
    if header.rows < 1 or header.columns < 1:
        raise CaseError(f"{header.path}: states {header.rows} rows and {header.columns} columns; mend its header")
    if header.transfer_syntax not in _NATIVE and header.pixel_length is not None and not is_known(header):
        raise CaseError(
            f"{header.path}: its pixels are stored with {codec_name(header)}, so the order of their bytes is not "
            "known; export it again with a standard transfer syntax"
        )
    if header.high_bit >= max(header.bits_allocated, header.bits_stored, 1):
        raise CaseError(
            f"{header.path}: states HighBit {header.high_bit} of {header.bits_allocated} bits a sample; mend its header"
        )


def _read_dataset(header: Header) -> Any:
    """The dataset of a file whose pixels the scan could not find."""
    import pydicom

    try:
        return pydicom.dcmread(header.path, force=True)
    except Exception as error:
        raise CaseError(f"{header.path}: is damaged ({type(error).__name__}); write or copy it again") from error


def _native_frames(header: Header, dataset: Any, out: Array) -> None:
    """Fills `out`, (frames, rows, columns[, samples]), from pixels that are not coded."""
    data = _native_bytes(header, dataset)
    pixels = out.size
    if header.bits_allocated == 1:
        if len(data) * 8 < pixels:
            raise cut_short(header, len(data), -(-pixels // 8))
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=pixels, bitorder="little")
        out[...] = bits.reshape(out.shape)
        return
    subsampled = header.samples == 3 and header.photometric == "YBR_FULL_422"
    # Some writers keep the label and store every chroma sample; the length tells.
    subsampled = subsampled and len(data) < out.nbytes
    expected = out.nbytes * 2 // 3 if subsampled else out.nbytes
    if len(data) < expected:
        raise cut_short(header, len(data), expected)
    order: Literal["<", ">"] = ">" if header.transfer_syntax == BIG_ENDIAN else "<"
    samples = np.frombuffer(data, out.dtype.newbyteorder(order), count=expected // out.itemsize)
    if subsampled:
        pairs = samples.reshape(*out.shape[:2], -1, 4)
        out[..., 0] = pairs[..., :2].reshape(out.shape[:3])
        out[..., 1:] = np.repeat(pairs[..., 2:], 2, axis=2)
    elif header.samples > 1 and header.planar == 1:
        out[...] = np.moveaxis(samples.reshape(len(out), header.samples, header.rows, header.columns), 1, -1)
    else:
        out[...] = samples.reshape(out.shape)


def _native_bytes(header: Header, dataset: Any) -> bytes | memoryview:
    if dataset is None:
        with header.path.open("rb") as stream:
            stream.seek(header.pixel_offset or 0)
            return stream.read(header.pixel_length or 0)
    element = _pixel_element(header, dataset)
    data: bytes = element.value or b""
    # Bytes stored as big-endian words come in swapped pairs.
    if header.transfer_syntax == BIG_ENDIAN and header.bits_allocated <= 8 and element.VR == "OW":
        even = np.frombuffer(data, np.uint8, count=len(data) // 2 * 2)
        return even.reshape(-1, 2)[:, ::-1].tobytes()
    return data


def _pixel_element(header: Header, dataset: Any) -> Any:
    keywords = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
    keyword = next((keyword for keyword in keywords if keyword in dataset), keywords[0])
    try:
        return dataset[keyword]
    except Exception as error:
        raise CaseError(f"{header.path}: is damaged ({type(error).__name__}); write or copy it again") from error


def _frame_fragments(header: Header, dataset: Any) -> list[bytes]:
    """The coded bytes of each frame."""
    if dataset is None:
        with header.path.open("rb") as stream:
            stream.seek(header.pixel_offset or 0)
            data = stream.read()
    else:
        data = _pixel_element(header, dataset).value or b""
    return split_frames(header, data)


_JPEG = "1.2.840.10008.1.2.4."
RLE = "1.2.840.10008.1.2.5"
DEFLATED_FRAMES = "1.2.840.10008.1.2.8.1"

_CODECS = {
    f"{_JPEG}50": ("JPEG", ("jpeg8",)),
    f"{_JPEG}51": ("JPEG 12-bit", ("jpeg8",)),
    f"{_JPEG}57": ("lossless JPEG", ("jpeg8", "jpegsof3")),
    f"{_JPEG}70": ("lossless JPEG", ("jpeg8", "jpegsof3")),
    f"{_JPEG}80": ("JPEG-LS", ("jpegls",)),
    f"{_JPEG}81": ("JPEG-LS", ("jpegls",)),
    f"{_JPEG}90": ("JPEG 2000", ("jpeg2k",)),
    f"{_JPEG}91": ("JPEG 2000", ("jpeg2k",)),
    f"{_JPEG}92": ("JPEG 2000", ("jpeg2k",)),
    f"{_JPEG}93": ("JPEG 2000", ("jpeg2k",)),
    f"{_JPEG}110": ("JPEG XL", ("jpegxl",)),
    f"{_JPEG}111": ("JPEG XL", ("jpegxl",)),
    f"{_JPEG}112": ("JPEG XL", ("jpegxl",)),
    f"{_JPEG}201": ("HTJ2K", ("jpeg2k",)),
    f"{_JPEG}202": ("HTJ2K", ("jpeg2k",)),
    f"{_JPEG}203": ("HTJ2K", ("jpeg2k",)),
    RLE: ("RLE", ()),
    DEFLATED_FRAMES: ("deflated frames", ()),
}
"""Transfer syntax -> what people call it, and the decoders of imagecodecs to try, fastest first.

HTJ2K goes to OpenJPEG: imagecodecs' own `htj2k` is faster, but hands out what it has when a stream is damaged.
"""


_ENDED = tuple(f"{_JPEG}{number}" for number in (50, 51, 57, 70, 80, 81))
"""Syntaxes whose streams end with a marker that occurs nowhere else in them: JPEG and JPEG-LS."""


class _FailedError(Exception):
    """A frame that a decoder could not read."""


def codec_name(header: Header) -> str:
    """Name of the codec, as people call it, and of the transfer syntax."""
    name = _CODECS.get(header.transfer_syntax, ("an unknown codec", ()))[0]
    return f"{name} ({header.transfer_syntax})"


def is_known(header: Header) -> bool:
    """Whether the transfer syntax is a codec we have heard of."""
    return header.transfer_syntax in _CODECS


def cut_short(header: Header, found: int, expected: int) -> CaseError:
    """The error for pixel data that ends early; counts are bytes."""
    return CaseError(
        f"{header.path}: is cut short: {expected} bytes of pixels expected, {found} found; write or copy it again"
    )


def split_frames(header: Header, data: bytes) -> list[bytes]:
    """Splits encapsulated pixel data into frames' coded bytes.

    Raises CaseError where a fragment runs past the end.
    """
    offsets, pieces = _encapsulated_items(header, data)
    if header.frames == 1:
        return [b"".join(pieces)] if pieces else []
    if len(pieces) == header.frames:
        return pieces
    from pydicom.encaps import generate_frames

    starts = [] if not offsets else [int(start) for start in np.frombuffer(offsets, "<u4")]
    if len(starts) != header.frames:
        # Without a table, a frame ends where its codec says so: pydicom looks for that.
        return list(generate_frames(io.BytesIO(data), number_of_frames=header.frames))
    positions = np.cumsum([0, *(len(piece) + 8 for piece in pieces)])
    bounds = [*np.searchsorted(positions, starts).tolist(), len(pieces)]
    return [b"".join(pieces[first:last]) for first, last in itertools.pairwise(bounds)]


def _encapsulated_items(header: Header, data: bytes) -> tuple[bytes, list[bytes]]:
    """The offset table and the fragments."""
    fragments: list[bytes] = []
    at = 0
    while data[at : at + 4] == b"\xfe\xff\x00\xe0":
        stop = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        if stop > len(data):
            raise cut_short(header, len(data), stop)
        fragments.append(data[at + 8 : stop])
        at = stop
    return (fragments[0], fragments[1:]) if fragments else (b"", [])


def decode_frame(header: Header, frame: bytes, out: Array) -> None:
    """Decodes one frame into `out`, (rows, columns[, samples])."""
    if header.transfer_syntax in _ENDED and frame.rfind(b"\xff\xd9") < 0:
        # Decoders fill what is missing with grey and say nothing.
        raise CaseError(f"{header.path}: is cut short: its {codec_name(header)} has no end; write or copy it again")
    for attempt in _list_decoders(header):
        try:
            attempt(header, frame, out)
        except _FailedError:
            continue
        return
    _decode_with_pydicom(header, frame, out)


def _list_decoders(header: Header) -> list[Callable[[Header, bytes, Array], None]]:
    if header.transfer_syntax == RLE:
        return [_decode_rle]
    if header.transfer_syntax == DEFLATED_FRAMES:
        return [_inflate_samples]
    _, codecs = _CODECS.get(header.transfer_syntax, ("", ()))
    return [partial(_decode_with, codec) for codec in codecs]


def _decode_with(codec: str, _: Header, frame: bytes, out: Array) -> None:
    import imagecodecs

    decode = getattr(imagecodecs, f"{codec}_decode")
    # Telling the decoder that colours are what they are keeps it from converting them.
    options = {"colorspace": "RGB", "outcolorspace": "RGB"} if codec == "jpeg8" and out.ndim == 3 else {}
    if out.ndim == 2:
        # Nearly always the slot fits what is coded, and nothing needs to be copied.
        with suppress(Exception):
            decode(frame, out=out.view(f"u{out.itemsize}"), **options)
            return
    try:
        decoded = decode(frame, **options)
    except Exception as error:
        raise _FailedError from error
    _place_samples(decoded, out)


def _place_samples(decoded: Array, out: Array) -> None:
    """Stores decoded samples; raises `_FailedError` for other sizes."""
    if decoded.shape != out.shape:
        planes = out.ndim == 3 and decoded.shape == (out.shape[2], *out.shape[:2])
        if not planes and np.squeeze(decoded).shape != np.squeeze(out).shape:
            raise _FailedError
        decoded = np.moveaxis(decoded, 0, -1) if planes else decoded.reshape(out.shape)
    # Signs are settled by BitsStored later, so bits are what counts.
    if decoded.itemsize == out.itemsize:
        out[...] = decoded.view(out.dtype) if decoded.flags.c_contiguous else decoded.copy().view(out.dtype)
    elif decoded.itemsize < out.itemsize:
        out[...] = decoded
    else:
        np.copyto(out, decoded, casting="unsafe")


def _decode_rle(header: Header, frame: bytes, out: Array) -> None:
    import imagecodecs

    planes = out if out.ndim == 2 else np.empty((header.samples, header.rows, header.columns), out.dtype)
    try:
        imagecodecs.dicomrle_decode(frame, planes.dtype, out=planes.data.cast("B"))
    except Exception as error:
        raise _FailedError from error
    if planes is not out:
        out[...] = np.moveaxis(planes, 0, -1)


def _inflate_samples(header: Header, frame: bytes, out: Array) -> None:
    try:
        data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(frame, out.nbytes + 8)
    except zlib.error as error:
        raise _FailedError from error
    if header.bits_allocated == 1:
        bits = np.frombuffer(data, np.uint8)
        if bits.size * 8 < out.size:
            raise cut_short(header, bits.size, -(-out.size // 8))
        out[...] = np.unpackbits(bits, count=out.size, bitorder="little").reshape(out.shape)
        return
    if len(data) < out.nbytes:
        raise cut_short(header, len(data), out.nbytes)
    out[...] = np.frombuffer(data, out.dtype.newbyteorder("<"), count=out.size).reshape(out.shape)


def _decode_with_pydicom(header: Header, frame: bytes, out: Array) -> None:
    from pydicom.pixels import get_decoder

    try:
        decoder = get_decoder(header.transfer_syntax)
        from pydicom.encaps import encapsulate

        decoded, _ = decoder.as_array(
            encapsulate([frame]),
            raw=True,
            rows=header.rows,
            columns=header.columns,
            samples_per_pixel=header.samples,
            bits_allocated=header.bits_allocated,
            bits_stored=header.bits_stored,
            pixel_representation=int(header.signed),
            photometric_interpretation=header.photometric or ("MONOCHROME2" if header.samples == 1 else "RGB"),
            planar_configuration=header.planar,
            number_of_frames=1,
            pixel_keyword="PixelData",
            # The compiled RLE plugin brings the process down on damaged files.
            decoding_plugin="pydicom" if header.transfer_syntax == RLE else "",
        )
        _place_samples(decoded, out)
    except Exception as error:
        raise CaseError(
            f"{header.path}: its pixels are coded with {codec_name(header)}, and no installed decoder reads them; "
            "pip install 'medimg-eval[dicom]', and copy the file again if that does not help"
        ) from error

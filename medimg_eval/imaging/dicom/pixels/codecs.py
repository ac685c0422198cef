"""Coded frames: how they lie in the pixel data, and what decodes them."""

from __future__ import annotations

import io
import itertools
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header

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
    """What people call the codec, and the transfer syntax."""
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
    """Splits encapsulated pixel data into the coded bytes of each frame.

    Args:
        header: says how many frames to expect.
        data: from the basic offset table on.

    Raises:
        CaseError: a fragment runs past the end.
    """
    offsets, pieces = _items(header, data)
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


def _items(header: Header, data: bytes) -> tuple[bytes, list[bytes]]:
    """The offset table and the fragments."""
    found: list[bytes] = []
    at = 0
    while data[at : at + 4] == b"\xfe\xff\x00\xe0":
        stop = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        if stop > len(data):
            raise cut_short(header, len(data), stop)
        found.append(data[at + 8 : stop])
        at = stop
    return (found[0], found[1:]) if found else (b"", [])


def decode_frame(header: Header, frame: bytes, out: Array) -> None:
    """Decodes one frame into `out`, (rows, columns[, samples])."""
    if header.transfer_syntax in _ENDED and frame.rfind(b"\xff\xd9") < 0:
        # Decoders fill what is missing with grey and say nothing.
        raise CaseError(f"{header.path}: is cut short: its {codec_name(header)} has no end; write or copy it again")
    for attempt in _attempts(header):
        try:
            attempt(header, frame, out)
        except _FailedError:
            continue
        return
    _decode_with_pydicom(header, frame, out)


def _attempts(header: Header) -> list[Callable[[Header, bytes, Array], None]]:
    if header.transfer_syntax == RLE:
        return [_decode_rle]
    if header.transfer_syntax == DEFLATED_FRAMES:
        return [_inflate]
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
    _place(decoded, out)


def _place(decoded: Array, out: Array) -> None:
    """Puts what a decoder returned into a slot of the same pixels; raises `_FailedError` for other sizes."""
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


def _inflate(header: Header, frame: bytes, out: Array) -> None:
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
        _place(decoded, out)
    except Exception as error:
        raise CaseError(
            f"{header.path}: its pixels are coded with {codec_name(header)}, and no installed decoder reads them; "
            "pip install 'medimg-eval[dicom]', and copy the file again if that does not help"
        ) from error

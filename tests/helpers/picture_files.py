"""Pictures made for the tests of their readers."""

import struct
import zlib

import numpy as np
from PIL import Image as Pillow


def random(shape, dtype=np.uint8, seed=0):
    top = 2 if dtype is bool else np.iinfo(dtype).max + 1
    return np.random.default_rng(seed).integers(0, top, shape).astype(dtype)


def scene(rows=40, columns=56):
    """A smooth coloured picture, as JPEG is made for."""
    y, x = np.mgrid[:rows, :columns]
    return np.stack([128 + 100 * np.sin(x / 9), 128 + 100 * np.cos(y / 7), (x + y) % 200], axis=2).astype(np.uint8)


def png(array, color_type, bits, interlaced=None):
    """A PNG written by hand: rows of samples already packed into bytes."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows, columns = array.shape
    packed = np.packbits(np.unpackbits(array[..., None], axis=2)[..., -bits:].reshape(rows, -1), axis=1)
    body = b"".join(b"\0" + row.tobytes() for row in packed)
    header = struct.pack(">IIBBBBB", columns, rows, bits, color_type, 0, 0, interlaced is not None)
    body = interlaced or body
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def saved(path, array, **options):
    Pillow.fromarray(array).save(path, **options)
    return path

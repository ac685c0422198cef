"""Files that are cut or have bytes changed: what is read of them is a result, or one sentence that names the file."""

import gzip
import random

from medimg_eval.errors import CaseError


def damaged_copies(whole, count, seed=0, head=None):
    """Yields a file's bytes, cut or with up to eight of them changed, mostly within its first `head`."""
    chance = random.Random(seed)  # noqa: S311
    for number in range(count):
        data = bytearray(whole)
        if number % 5 == 0:
            yield bytes(data[: chance.randrange(len(data))])
            continue
        for _ in range(chance.choice([1, 2, 4, 8])):
            place = chance.randrange(min(len(data), head or len(data)) if chance.random() < 0.8 else len(data))
            data[place] = chance.choice([0, 255, 128, chance.randrange(256), data[place] ^ (1 << chance.randrange(8))])
        yield bytes(data)


def require_result_or_name(path, read, count, seed=0, head=None):
    """Reads damaged copies of a file in its place; returns how many were read. Any error but a CaseError passes on.

    Every second copy of a packed file is damaged within.
    """
    whole, results = path.read_bytes(), 0
    packed = whole[:2] == b"\x1f\x8b"
    inner = gzip.decompress(whole) if packed else whole
    copies = [damaged_copies(inner, count // 2, seed, head), damaged_copies(whole, count - count // 2, seed + 1, head)]
    for within, data in [(True, one) for one in copies[0]] + [(False, one) for one in copies[1]]:
        path.write_bytes(gzip.compress(data, 1) if packed and within else data)
        try:
            read(path)
            results += 1
        except CaseError as error:
            assert str(path.parent) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
    path.write_bytes(whole)
    return results

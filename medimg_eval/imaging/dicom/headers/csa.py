"""Numbers out of Siemens' private headers (CSA), which list elements by name; every length in them is bounded."""

from __future__ import annotations

import math
import struct

_NAME, _TAG, _ITEM = 64, 84, 16
"""Bytes of a name, of an element before its items, and of an item before its value."""

_MOST = 16
"""Items looked at; what is wanted has at most three."""


def csa_numbers(block: bytes, name: str) -> tuple[float, ...]:
    """Finite numbers of a CSA header's element; none if absent.

    An element is its name (64 bytes), how many values it has, their kind and the count of items; an item is four
    lengths, then text padded to 4 bytes. Its length is the second of the four; headers older than `SV10` count it from
    elsewhere and state it in the first, plus the count of items of the first element.
    """
    start = block.find(name.encode() + b"\0")
    while start >= 0:
        numbers = _read_items(block, start)
        if numbers:
            return numbers
        start = block.find(name.encode() + b"\0", start + 1)
    return ()


def _read_items(block: bytes, start: int) -> tuple[float, ...]:
    values: list[float] = []
    if start + _TAG > len(block):
        return ()
    wanted, _, _, count, mark = struct.unpack_from("<i4siii", block, start + _NAME)
    if mark not in (77, 205):
        return ()
    at = start + _TAG
    for _ in range(min(count, _MOST)):
        if at + _ITEM > len(block):
            break
        first, second, third, _ = struct.unpack_from("<4i", block, at)
        length = second if third in (77, 205) else first
        if not 0 <= length <= 1024:
            break
        text = block[at + _ITEM : at + _ITEM + length].split(b"\0")[0].strip()
        at += _ITEM + -(-length // 4) * 4
        try:
            number = float(text)
        except ValueError:
            continue
        if math.isfinite(number):
            values.append(number)
    return tuple(values[:wanted] if 0 < wanted < len(values) else values)

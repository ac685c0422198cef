"""Numbers and places in an output: a number, a point, a box, boxes in a volume."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers.markup import CLOSE, OPEN, marked
from medimg_eval.metrics.answers.number_words import number_words
from medimg_eval.metrics.answers.phrases import MARK, announcements, corrections
from medimg_eval.metrics.nlp import late_pattern

Numbers = tuple[float, ...]

_NUMBER = r"[-+]?\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,3})?"
_ONE = late_pattern(rf"(?<![\w.,/^])(?<!\d[-–])(?P<number>{_NUMBER})(?P<percent>\s*%)?(?!\d|\.\d|/\d)")
_RANGE = late_pattern(rf"{_NUMBER}\s*(?:-|–|—|~|to|and|or|到|至)\s*{_NUMBER}")
_SAID = late_pattern(
    r"(?:\b(?:is|are|was|of|equals?|measures?|about|approximately|around|roughly|total(?:s|ing)?)|[=:≈~])[\s$(\"']*$"
)
_THOUSANDS = late_pattern(r"(?<=\d),(?=\d{3}(?!\d))")
_OF_THEM = late_pattern(r" (?:in|on|at|of|behind|near|above|below|within)\b")
_COORDINATE = late_pattern(rf"(?<![\w.]){_NUMBER}(?!\w*\d)(?!\.\d)")
_APART = late_pattern(
    r"[^\w.]*(?:px|pixels?)?(?:[^\w.]|<[^<>]*>|\b(?:x|y|w|h|left|top|right|bottom|min|max|and|to)_?(?:min|max)?\d?\b)*"
)
_SCALES = {"pixels": None, "thousand": 1000.0, "percent": 100.0, "unit": 1.0}


def number_in(text: str) -> tuple[float | None, str]:
    """Returns the number that a text without thinking commits to, and the rule."""
    text = _THOUSANDS.sub("", marked(text).replace("\u2212", "-"))
    low = text.lower()
    if corrected := [end for _, end in corrections(low)]:
        value, rule = _read_number(text[corrected[-1] :], low[corrected[-1] :])
        if value is not None:
            return value, rule
    return _read_number(text, low)


def _read_number(text: str, low: str) -> tuple[float | None, str]:
    positions = [(match.start() + 1, "marked answer") for match in MARK.finditer(text)]
    positions += [(end, "answer phrase") for _, end in announcements(low)]
    for end, rule in sorted(positions, reverse=True):
        value = _first_number(re.split(r"[\x03\n]|\.(?!\d)", text[end : end + 120].strip(), maxsplit=1)[0])
        if value is not None:
            return value, rule
    if _RANGE.search(low):
        return None, "several numbers"
    matches = list(_ONE.finditer(text))
    values = {float(match["number"]) for match in matches}
    if len(values) == 1:
        return values.pop(), "only number"
    stated = [
        float(match["number"]) for match in matches if _SAID.search(low[max(0, match.start() - 20) : match.start()])
    ]
    if stated:
        return (stated[-1], "stated number") if len(set(stated)) == 1 else (None, "several numbers")
    if values:
        return None, "several numbers"
    return written_number(low)


def _first_number(text: str) -> float | None:
    """Returns the first number of a fragment, unless a range begins with it."""
    if _RANGE.search(text[:60]):
        return None
    if match := _ONE.search(text):
        return float(match["number"])
    words = number_words(text.lower())
    return words[0].value if words else None


def written_number(low: str) -> tuple[float | None, str]:
    """Returns a lower-case text's only number, also in words, and the rule."""
    words = number_words(low)
    stated = {
        word.value
        for word in words
        if _SAID.search(low[max(0, word.start - 20) : word.start])
        and not (word.value == 1 and _OF_THEM.match(low, word.end))
    }
    if len({word.value for word in words}) > 1 and len(stated) != 1:
        return None, "several numbers"
    if words:
        return (stated or {words[0].value}).pop(), "number word"
    return (0.0, "number word") if low.strip(" .*\n") == "none" else (None, "nothing found")


def box_in(text: str) -> Numbers | None:
    """Returns the answer box's four numbers, from text without thinking."""
    return group(_answer_part(text), 4) or group(text, 4)


def point_in(text: str) -> Numbers | None:
    """Returns the two numbers of a point, or a box's centre; the text has no thinking."""
    part = _answer_part(text)
    box = _bracket_pattern(4).search(_strip_tokens(part))
    if box:
        x1, y1, x2, y2 = _parse_floats(box[0])
        return (x1 + x2) / 2, (y1 + y2) / 2
    return group(part, 2) or group(text, 2)


def group(text: str, size: int) -> Numbers | None:
    """Returns a text's first `size` grouped numbers, bracketed ones first."""
    text = _strip_tokens(text)
    if match := _bracket_pattern(size).search(text):
        return _parse_floats(match[0])
    run: list[float] = []
    end = -1
    for match_ in _COORDINATE.finditer(text):
        if run and not _APART.fullmatch(text[end : match_.start()]):
            if len(run) >= size:
                break
            run = []
        run.append(float(match_[0]))
        end = match_.end()
    return tuple(run[:size]) if len(run) >= size else None


@cache
def _bracket_pattern(size: int) -> re.Pattern[str]:
    """Returns the pattern of `size` numbers, or pairs, in brackets."""
    coordinate = rf"{_NUMBER}(?:\s?px)?"
    flat = rf"[\[(]\s*{coordinate}(?:\s*[,;\s]\s*{coordinate}){{{size - 1}}}\s*[\])]"
    pair = rf"[\[(]\s*{coordinate}\s*[,;\s]\s*{coordinate}\s*[\])]"
    pairs = rf"{pair}(?:[\s,;]*(?:to|and|-)?[\s,;]*{pair}){{{size // 2 - 1}}}" if size % 2 == 0 else flat
    return re.compile(f"{flat}|{pairs}")


def _parse_floats(text: str) -> Numbers:
    return tuple(float(number) for number in re.findall(_NUMBER, text))


def _strip_tokens(text: str) -> str:
    return re.sub(r"<\|?/?(?:box|point)[^<>]*>", " ", text.replace("\u2212", "-"))


def _answer_part(text: str) -> str:
    """Returns the announced or marked answer, else the whole text."""
    text = marked(text)
    positions = [end for _, end in announcements(text.lower())]
    positions += [match.start() + 1 for match in MARK.finditer(text)]
    return text[max(positions) :] if positions else text


def scaled(numbers: Numbers, more: Mapping[str, Any]) -> Numbers:
    """Returns x, y, x, y, ... in pixels.

    They are converted from `more["convention"]`, in an image of `more["size"]`.

    Raises:
        UsageError: If there is no such convention, or the size is missing that it needs.
    """
    convention = more.get("convention", "pixels")
    if convention not in _SCALES:
        raise UsageError(
            f"Expected the convention of coordinates to be one of {', '.join(_SCALES)}, got {convention!r}"
        )
    scale = _SCALES[convention]
    if scale is None:
        return numbers
    size = more.get("size")
    if size is None:
        raise UsageError(
            f"Coordinates in the convention {convention!r} need more['size'], the image's width and height in pixels"
        )
    width, height = (size, size) if isinstance(size, int | float) else (float(size[0]), float(size[1]))
    return tuple(value * (height if index % 2 else width) / scale for index, value in enumerate(numbers))


_FINAL = late_pattern(
    r"(?:^|\n|[.!?]\s)\s*[#*_ ]*(?:the\s+)?(?:final|correct|short)?\s*(?:answer|response|conclusion)(?:\s+is)?"
    r"[*_ ]*(?::|\bis\b|\n)[*_ ]*\s*"
    r"|(?:最终)?答案(?:是|:)\s*",
    re.IGNORECASE,
)
_REGION = late_pattern(
    r"(?:region|box|structure|label|object)?\s{0,2}(?:id|number|no\.?)?\s{0,2}[:#]?\s{0,2}[\"'\[(]?(?<!\d)(?P<id>\d{1,6})[\"'\])]?"
    r"\s{0,2}[;,:\-–|=]{1,3}\s{0,2}(?:(?:type|name|class|label|is)\s*[:=]?\s*)?"
    r"[\"']?(?P<name>[A-Za-z][^;,\n|\"'}]*)",
    re.IGNORECASE,
)
_TRIES = 64


def free_text(text: str) -> str:
    """Returns the marked or "final answer:" text, else all."""
    if matches := list(re.finditer(f"{OPEN}([^{CLOSE}]*){CLOSE}", marked(text))):
        last = matches[-1][1].strip()
        if last:
            return str(last)
    if matches := list(_FINAL.finditer(text)):
        after = text[matches[-1].end() :].strip()
        if after:
            return after
    return text.strip()


def last_object(text: str) -> dict[str, Any] | None:
    """Returns a text's last JSON or Python dictionary; else None."""
    decoder, last = json.JSONDecoder(), None
    position = text.find("{")
    for _ in range(_TRIES):
        if position < 0:
            break
        try:
            last, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)
    if last is None and "{" in text and "}" in text:
        try:
            last = ast.literal_eval(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return last if isinstance(last, dict) and last else None


def regions(text: str) -> dict[str, str] | None:
    """Returns region id -> name from JSON or a text "Region ID: 1; Type: choroid; ..."."""
    if content := last_object(text):
        named = {
            str(key): str(value)
            for key, value in content.items()
            if re.fullmatch(r"\D*\d+", str(key)) and isinstance(value, str)
        }
        if named:
            return {re.sub(r"\D", "", key): value.strip() for key, value in named.items()}
    names = {match["id"]: match["name"].strip(" .*_") for match in _REGION.finditer(re.sub(r"</?\w+>", " ", text))}
    return names or None


def boxes3d(text: str) -> Any:
    """Returns name -> six numbers from JSON; or six numbers."""
    if content := last_object(text):
        return content
    return group(text, 6)

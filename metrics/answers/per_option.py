"""A verdict or a score for each option: in JSON, in a table, in a list with ticks and crosses."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from medimg_eval.metrics.answers.fragment import FOREIGN, NO_ANSWER, SEVERAL, Found, OptionSet
from medimg_eval.metrics.answers.markup import marked
from medimg_eval.metrics.answers.phrases import MARK, announcements, corrections
from medimg_eval.metrics.nlp import late_pattern, lower

_RIGHT_MARK, _WRONG_MARK = "✓✔✅☑🗸", "✗✘❌×✕✖☐☒"
_MARK = late_pattern(rf"(?P<right>[{_RIGHT_MARK}]|\[[xX✓]\])|(?P<wrong>[{_WRONG_MARK}]|\[ ?\])")
_RIGHT = frozenset(["true", "yes", "correct", "right", "accepted", "selected", "chosen", "supported", *_RIGHT_MARK])
_WRONG = frozenset(
    ["false", "no", "incorrect", "wrong", "rejected", "excluded", "ruled out", "not selected", "unsupported"]
) | set(_WRONG_MARK)
_OBJECT = late_pattern(r"(?:[\"'](?P<key>[^\"'\n]{1,80})[\"']\s*:\s*)?(?P<object>\{[^{}]{3,2000}\})")
_NAME = late_pattern(
    r"(?:option|choice|answer|candidate)?[ _]?(?:id|key|label|letter|name|text)?|diagnosis|finding", re.I
)
_VERDICT = late_pattern(
    r"(?:is_?)?(?:correct|true|right|selected|chosen|answer|accepted|supported)|verdict|judge?ment|status|match|result"
    r"|label|(?:final_)?(?:score|prob\w*|confidence|likelihood|p)",
    re.IGNORECASE,
)
_DENIES = late_pattern(
    r"\b(?:incorrect|wrong|excluded?|eliminated?|ruled[ _]out|rejected|against|unlikely|false)\b", re.I
)
_AMOUNT = r"\d{1,3}(?:\.\d{1,6})?(?:e-?\d{1,2})?"
_SCORE = late_pattern(rf"\s*(?:≈|~|about )?({_AMOUNT})\s*(%)?\s*(?:/\s*10+)?\s*", re.IGNORECASE)
_GAP = r"[)\]\"']{0,2}\s*(?::|=|–|—|-|\|)?\s*\(?"
_CUT_OBJECT = late_pattern(r"\A\s*,\s*\{[^{}]*\Z")
"""A further object of a list, in which the output was cut off."""
_RULE = late_pattern(r"[\s|:-]+")

Value = bool | float
Row = tuple[int, int, str, Value | None]  # start and end in the text, label, verdict or score


def judged_options(text: str, asked: OptionSet) -> Found | None:
    """Returns the option that verdicts or scores per option pick.

    The only right one, or the clear highest. Returns None where no such list decides: there is none, or the
    text goes on to announce something else. Equal highest scores, several right options, and none that is
    right give `Found` without a label.
    """
    rows = _final_rows(text, asked)
    values = {label: value for _, _, label, value in rows}
    flags = {label for label, value in values.items() if value is True}
    if flags - set(asked.sheet.keys):
        return Found(None, FOREIGN)
    offered = {label: value for label, value in values.items() if label in asked.sheet.keys}
    is_complete = len(offered) == len(asked.sheet.keys)
    if len(offered) < 2:
        return None
    if flags:
        return Found(flags.pop(), "verdict per option") if len(flags) == 1 else Found(None, SEVERAL)
    if is_complete and not any(_is_score(value) for value in offered.values()):
        return Found(None, NO_ANSWER)
    return _highest_option(offered) if is_complete else None


def right_options(text: str, asked: OptionSet) -> set[str]:
    """Returns the labels of the options that a verdict per option calls right."""
    values = {label: value for _, _, label, value in _final_rows(text, asked)}
    return {label for label, value in values.items() if value is True} if len(values) > 1 else set()


def _highest_option(scores: dict[str, Value | None]) -> Found | None:
    """Returns the highest-scored option; None if scores may be ranks."""
    if not all(_is_score(score) for score in scores.values()):
        return None
    numbers = {label: float(score) for label, score in scores.items() if score is not None}
    if sorted(numbers.values()) == list(range(1, len(numbers) + 1)):
        return None
    best = [label for label, number in numbers.items() if number == max(numbers.values())]
    return Found(best[0], "score per option") if len(best) == 1 else Found(None, SEVERAL)


def _is_score(value: Value | None) -> bool:
    return value is not None and not isinstance(value, bool)


def _final_rows(text: str, asked: OptionSet) -> list[Row]:
    """Returns the rows of the options' list, unless contradicted elsewhere."""
    rows = list(_json_rows(text, asked)) if "{" in text else []
    if not rows:
        text = re.sub(r"[*`]", "", text)
        rows = list(_text_rows(text, asked))
    if len(rows) < 2:
        return []
    before, after = marked(text[: rows[0][0]]), marked(_CUT_OBJECT.sub("", text[rows[-1][1] :]))
    decided = any(MARK.search(part) or announcements(lower(part)) for part in (before, after))
    return [] if decided or corrections(lower(after)) else rows


def _named_label(text: str, asked: OptionSet) -> str | None:
    """Returns the option that a short text names."""
    text = text.strip(" \t-•>|#\"'")
    if not text or len(text) > 200:
        return None
    if len(text) < 60 and (match := asked.labels.alone.fullmatch(text)):
        return match["label"].upper()
    if label := asked.sheet.exact(text):
        return label
    item = asked.labels.item.match(text)
    return item["label"].upper() if item and item["label"].upper() in asked.sheet.keys else None


def _json_rows(text: str, asked: OptionSet) -> Iterator[Row]:
    """Yields option rows of flat JSON objects: {"A": false, ...}."""
    for match in _OBJECT.finditer(text):
        fields = _parse_object(match["object"])
        keyed = {label: value for key, value in fields.items() if (label := _named_label(str(key), asked))}
        if len(set(keyed) & set(asked.sheet.keys)) > 1:
            yield from (
                (match.start(), match.end(), label, _verdict_value(value, asked)) for label, value in keyed.items()
            )
            continue
        names = [str(value) for key, value in fields.items() if _NAME.fullmatch(str(key)) and isinstance(value, str)]
        label = next((name for name_ in [match["key"] or "", *names] if (name := _named_label(name_, asked))), None)
        verdicts = [
            value is False if _DENIES.fullmatch(str(key)) and isinstance(value, bool) else value
            for key, value in fields.items()
            if _VERDICT.fullmatch(str(key)) or _DENIES.fullmatch(str(key))
        ]
        values = [value for verdict in verdicts if (value := _verdict_value(verdict, asked)) is not None]
        if label and values:
            yield match.start(), match.end(), label, values[0]


def _parse_object(text: str) -> dict[object, object]:
    """Returns a JSON object or Python dictionary; else {}."""
    for parse in (json.loads, ast.literal_eval):
        try:
            content = parse(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return content if isinstance(content, dict) else {}
    return {}


def _verdict_value(value: object, asked: OptionSet) -> Value | None:
    """Returns a boolean verdict or float score; else None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    word = str(value).strip(" .!").lower()
    if word in asked.sheet.texts.values():
        return None
    if word in _RIGHT or word in _WRONG:
        return word in _RIGHT
    score = _SCORE.fullmatch(word)
    return float(score[1]) if score else None


def _text_rows(text: str, asked: OptionSet) -> Iterator[Row]:
    """Yields a table's, list's or line's rows; last values count."""
    position, header, denies = 0, [], False
    for line in text.split("\n"):
        start, end, position = position, position + len(line), position + len(line) + 1
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.count("|") > 1 else []
        if cells and not _RULE.fullmatch(line):
            labels = [_named_label(cell, asked) for cell in cells]
            if len(set(filter(None, labels))) > 1:
                header = labels
                continue
            denies = denies or (bool(_DENIES.search(line)) and not _MARK.search(line))
            pairs = [(labels[0], cells[-1])] if labels[0] else list(zip(header, cells, strict=False))
            for label, cell in pairs:
                value = _cell_value(cell, asked)
                if label and value is not None:
                    yield start, end, label, (not value if denies and isinstance(value, bool) else value)
            continue
        marks = list(_MARK.finditer(line))
        if len(marks) == 1:
            sides = (line[: marks[0].start()], line[marks[0].end() :])
            label = next((name for side in sides if (name := _named_label(side.strip(" :()–—=-"), asked))), None)
            if label in asked.sheet.keys:
                yield start, end, str(label), bool(marks[0]["right"])
        else:
            yield from _inline_rows(line, start, bool(marks), asked)


def _cell_value(cell: str, asked: OptionSet) -> Value | None:
    """Returns the value of a table cell, ignoring later text."""
    mark = _MARK.match(cell)
    return bool(mark["right"]) if mark else _verdict_value(cell, asked)


_SCORED = rf"(?P<score>(?:\d{{1,3}}(?:\.\d+)?\s*%|{_AMOUNT}(?![\d.%]|\s*[A-Za-z])))"


def _inline_rows(line: str, start: int, ticked: bool, asked: OptionSet) -> Iterator[Row]:
    """Yields options with marks or scores: "A 10%, B 82%"."""
    if asked.labels.digits or not (ticked or any(letter.isdigit() for letter in line)):
        return
    token = asked.labels.token.replace("?P<label>", "?P<option>")
    for match in re.finditer(rf"{token}{_GAP}(?:{_MARK.pattern if ticked else _SCORED})", line):
        label = match["option"].upper()
        if label not in asked.sheet.keys:
            continue
        value = bool(match["right"]) if ticked else float(match["score"].rstrip(" %"))
        yield start + match.start(), start + match.end(), label, value

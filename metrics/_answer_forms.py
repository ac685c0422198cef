"""Answers of a form: texts, JSON objects, names of regions."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from medimg_eval.metrics._answer_marks import CLOSE, OPEN, marked
from medimg_eval.metrics._answer_places import group

_FINAL = re.compile(
    r"(?:^|\n|[.!?]\s)\s*[#*_ ]*(?:the\s+)?(?:final|correct|short)?\s*(?:answer|response|conclusion)(?:\s+is)?"
    r"[*_ ]*(?::|\bis\b|\n)[*_ ]*\s*"
    r"|(?:最终)?答案(?:是|:)\s*",
    re.IGNORECASE,
)
_REGION = re.compile(
    r"(?:region|box|structure|label|object)?\s{0,2}(?:id|number|no\.?)?\s{0,2}[:#]?\s{0,2}[\"'\[(]?(?<!\d)(?P<id>\d{1,6})[\"'\])]?"
    r"\s{0,2}[;,:\-–|=]{1,3}\s{0,2}(?:(?:type|name|class|label|is)\s*[:=]?\s*)?"
    r"[\"']?(?P<name>[A-Za-z][^;,\n|\"'}]*)",
    re.IGNORECASE,
)
_TRIES = 64


def free_text(text: str) -> str:
    """Returns the answer in a text without thinking: what is marked, or follows "final answer:", else all of it."""
    if found := list(re.finditer(f"{OPEN}([^{CLOSE}]*){CLOSE}", marked(text))):
        last = found[-1][1].strip()
        if last:
            return str(last)
    if found := list(_FINAL.finditer(text)):
        after = text[found[-1].end() :].strip()
        if after:
            return after
    return text.strip()


def last_object(text: str) -> dict[str, Any] | None:
    """Returns the last JSON object of a text, or a Python dictionary written out; None where there is none."""
    decoder, last = json.JSONDecoder(), None
    place = text.find("{")
    for _ in range(_TRIES):
        if place < 0:
            break
        try:
            last, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        place = text.find("{", end)
    if last is None and "{" in text and "}" in text:
        try:
            last = ast.literal_eval(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return last if isinstance(last, dict) and last else None


def regions(text: str) -> dict[str, str] | None:
    """Returns region id -> name from "Region ID: 1; Type: choroid; ...", or from a JSON object of that form."""
    if found := last_object(text):
        named = {
            str(key): str(value)
            for key, value in found.items()
            if re.fullmatch(r"\D*\d+", str(key)) and isinstance(value, str)
        }
        if named:
            return {re.sub(r"\D", "", key): value.strip() for key, value in named.items()}
    said = {found["id"]: found["name"].strip(" .*_") for found in _REGION.finditer(re.sub(r"</?\w+>", " ", text))}
    return said or None


def boxes3d(text: str) -> Any:
    """Returns name -> six numbers from a JSON object, or six numbers that stand together."""
    if found := last_object(text):
        return found
    return group(text, 6)

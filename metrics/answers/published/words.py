"""The rules of benchmarks for yes or no, and for short answers in words."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from medimg_eval.metrics.answers.published.common import LenientAnswer, vqa_words, yes_no
from medimg_eval.metrics.answers.rule_registry import answer_rule

_TRIVIAL = ":,.!?;'"
_MMMU_MARKS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
_MMMU_NUMBERS = (
    re.compile(r"-?\b[0-9]{1,3}(?:,[0-9]{3})+\b"),  # 1,234
    re.compile(r"-?[0-9]+(?:\.[0-9]+)?e[+-]?[0-9]+"),  # 1.5e3
    re.compile(r"-?(?:[0-9]*\.[0-9]+|[0-9]+\b)(?!e[+-]?[0-9]|[,0-9])"),  # 12, 1.5, .5
)

_SLAKE_YES = frozenset({"yes", "yeah", "yep", "true", "是", "是的", "有", "包含", "可以", "能", "会", "正常"})
_SLAKE_NO = frozenset({"no", "nope", "false", "否", "不是", "没有", "无", "不包含", "不能", "不会", "不可以"})
_SLAKE_NO |= {"不正常", "异常"}
_FULL_WIDTH = "".join(chr(ord(mark) + 0xFEE0) for mark in string.punctuation if mark != ".")
_SLAKE_MARKS = str.maketrans(dict.fromkeys(f"{string.punctuation}{_FULL_WIDTH}｡。、《》【】", " "))


class _Normalised(LenientAnswer):
    """A text that equals every right answer that `slake_lmms` normalises to it."""

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        return _slake_words(right) == str(self)


class _Containing(LenientAnswer):
    """A `vqa_words` text equal to right answers occurring in it."""

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        return vqa_words(right) in str(self)


class _MmmuOpen(LenientAnswer):
    """A reply that equals every right answer which MMMU finds in it."""

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        wanted = _mmmu_normalised(right)
        for candidate in _mmmu_candidates(str(self)):
            if (
                candidate in wanted
                if isinstance(candidate, float)
                else any(isinstance(w, str) and w in candidate for w in wanted)
            ):
                return True
        return False


@answer_rule("temmed_yes_no", source="TemMed-Bench (arXiv 2509.25143), VQA_eval.ipynb")
def temmed_yes_no(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes yes or no, with which the reply begins.

    None where it begins otherwise, at which the authors' notebook stops. Weak: "Not present" and "Normal" begin with
    no.
    """
    match = re.match(r"\s*(yes|no)", output, re.IGNORECASE)
    return match[1].lower() if match else None


@answer_rule("probmed_yes_no", source="ProbMed (arXiv 2405.20421), get_score_binary")
def probmed_yes_no(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes yes where "Yes" occurs and no where "No" does, also inside other words; else a reply that is yes or no.

    The case counts inside a longer reply: "yes it is" is none, "Not present" is no. A reply with both is right whatever
    the right answer is. None where nothing is found; the authors drop pairs of which a member has no reply at all.
    """
    reply = output.strip()
    alone = reply.lower()
    return yes_no("Yes" in reply or alone in {"yes", "yes."}, "No" in reply or alone in {"no", "no."})


@answer_rule("llava_med_closed", source="LLaVA-Med (arXiv 2306.00890), run_eval.py at b9a98a7")
def llava_med_closed(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the words of a reply in which yes or no occurs; it is right where the right answer occurs in it.

    Both may occur inside other words. None where neither does, which counts as wrong. Weak: "Normal study" and "I do
    not know" are a right no; a reply with both is always right; a closed answer such as "axial" can only be right where
    the reply holds a yes or no too. Words are as `vqa_words` has them: "None" is 0 and no no.
    """
    words = vqa_words(output)
    return _Containing(words) if "yes" in words or "no" in words else None


@answer_rule("slake_lmms", source="SLAKE in lmms-eval (EvolvingLMMs-Lab), normalize_answer, 2026-08")
def slake_lmms(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the reply in lower case without marks and what stands in brackets, and maps words for yes and no to these.

    The right answer is normalised likewise and must be equal, in English or Chinese, for open questions too. None
    where nothing is left. Weak: one word more is wrong; 正常 (normal) is yes and 异常 (abnormal) no, whatever is asked.
    """
    words = _slake_words(output)
    return _Normalised(words) if words else None


def _slake_words(text: str) -> str:
    text = re.sub(r"\([^)]*\)|（[^）]*）", " ", text.strip().lower())
    words = " ".join(text.translate(_SLAKE_MARKS).split())
    if words == "x ray":
        return "xray"
    return "yes" if words in _SLAKE_YES else "no" if words in _SLAKE_NO else words


@answer_rule("mmmu_open", source="MMMU (arXiv 2311.16502), parse_open_response and eval_open")
def mmmu_open(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the reply; it is right where the right answer occurs in what follows "is", "so", "=" and the like.

    Of each line the shortest text after such a mark counts, else the whole reply; a number must be equal when rounded
    to two decimals, a word need only occur. None for an empty reply. Weak: marks count inside words ("this " holds
    "is "), what is right inside other words, and where it is denied: "There is no fracture" holds "fracture".
    """
    return _MmmuOpen(output) if output.strip() else None


def _mmmu_candidates(reply: str) -> Iterator[str | float]:
    for text in _mmmu_tails(reply.strip().strip(".").lower()):
        yield from _mmmu_normalised(text)
        for form in _MMMU_NUMBERS:
            for number in form.findall(text):
                yield from _mmmu_normalised(number)


def _mmmu_tails(reply: str) -> list[str]:
    lines = reply.split("\n")
    tails = []
    for index, line in enumerate(lines):
        marks = _MMMU_MARKS if index < len(lines) - 1 else (*_MMMU_MARKS, "=")
        tails_ = [line.split(mark)[-1].strip() for mark in marks if mark in line]
        # Where nothing follows a mark, the marks after it in the list start anew.
        shortest = ""
        for tail in tails_:
            shortest = tail if not shortest or len(tail) < len(shortest) else shortest
        if shortest and shortest not in _TRIVIAL:
            tails.append(shortest)
    return tails or [reply]


def _mmmu_normalised(text: str) -> list[str | float]:
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        lower = text.lower()
        return [f" {lower}", f"{lower} "] if len(lower) == 1 else [lower]

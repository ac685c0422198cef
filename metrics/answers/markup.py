"""Answers that are marked as such, in a LaTeX box, a tag, or JSON; and text without its dress."""

from __future__ import annotations

import re

from medimg_eval.metrics.nlp import late_pattern

OPEN, CLOSE = "\x02", "\x03"

_TAGS = late_pattern(
    r"<(answer|final[ _-]?answer|ans|choice|option|conclusion|final|result|selected[ _]option|selection|letter|solution"
    r"|response|output|prediction)(?:\s[^<>]{0,40})?>(.*?)(?:</\s*\1\s*>|$)",
    re.IGNORECASE | re.DOTALL,
)
_BRACES = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\}){0,300}\}){0,300})\}"
_BOXED = late_pattern(rf"\\+(?:boxed|fbox)\s*(?:{_BRACES}|([A-Za-z0-9])\b)")
_DRESSED = late_pattern(
    r"\\+(?:text|textbf|textrm|textit|mathbf|mathrm|mathbb|mathsf|mathcal|mbox|bf|rm|bm|emph)\s*\{([^{}]*)\}"
)
_KEYS = (
    r"(?:final|correct|predicted|my|selected|best|chosen|model)?[ _-]?(?:answers?|ans|choices?|option|letter|label"
    r"|prediction|response|result|selection|diagnosis|output|value)"
    r"(?:[ _-]?(?:letter|choice|option|idx|index|key|label|text))?"
    r"|selected|chosen|picked|选项|答案|最终答案|正确答案|정답|답|回答|正解|答え|الإجابة|الاجابة"
    r"|respuesta|réponse|resposta|đáp án"
)
_JSON = late_pattern(
    rf"[\"'](?:{_KEYS})[\"']\s*:\s*(?!\s*\{{)(\[[^\[\]]*\]|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'(?=\s*[,}}\]])|[^,}}\n]*)",
    re.IGNORECASE,
)
_TRUE = late_pattern(r"[\"']([A-Za-z]|\d{1,2})[\"']\s*:\s*[Tt]rue\b")
_CALL = late_pattern(
    r"\b(?:final_answer|answer|submit|select_option|choose)\(\s*(?:\w+\s*=\s*)?[\"']?([^()\"'\n]{1,80})[\"']?\s*\)"
)
_HTML = late_pattern(
    r"</?(?:b|strong|i|em|u|p|br|div|span|li|ul|ol|h\d|font|center|mark|code)\b[^<>]{0,60}>", re.IGNORECASE
)
_BOLD = late_pattern(
    r"\*\*+[ \t]*([^*\n]{1,120}?)[ \t]*\*\*+|__([^_\n]{1,120})__|<(?:b|strong)>([^<\n]{1,120})</(?:b|strong)>"
)
_MATH = late_pattern(r"\\[\[\]();,!]|\\(?:quad|,)|\$+")
_STARS = late_pattern(r"[*`]+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)|^[ \t]*(?:#+|>+)[ \t]*|~~[^~\n]*~~", re.MULTILINE)


def marked(text: str) -> str:
    """Returns a text without markdown, LaTeX and HTML, its answers marked by `OPEN`/`CLOSE`."""
    if "\\" in text or "$" in text:
        text = _strip_math(text)
    if "<" in text:
        for _ in range(2):  # tags within tags
            text = _TAGS.sub(rf"{OPEN}\2{CLOSE} ", text)
        text = _HTML.sub("", text)
    if '":' in text or "':" in text or '" :' in text:
        text = _JSON.sub(lambda found: f"{OPEN}{_strip_quotes(found[1])}{CLOSE} ", text)
        if len(true := _TRUE.findall(text)) == 1:
            text += f"\n{OPEN}{true[0]}{CLOSE}"
    if "(" in text:
        text = _CALL.sub(rf"{OPEN}\1{CLOSE} ", text)
    return _STARS.sub("", text) if any(mark in text for mark in "*`_#>~") else text


def bold(text: str) -> list[str]:
    """Returns what a text has in bold."""
    if "**" not in text and "__" not in text and "<" not in text:
        return []
    return [match[1] or match[2] or match[3] for match in _BOLD.finditer(text)]


def _strip_math(text: str) -> str:
    for _ in range(2):
        text = _DRESSED.sub(r"\1", text)
    text = _BOXED.sub(lambda found: f"{OPEN}{found[1] or found[2] or ''}{CLOSE} ", text)
    return _MATH.sub(" " if "\\quad" in text else "", text)


def _strip_quotes(text: str) -> str:
    """Returns a JSON value or list without quotes."""
    if text.startswith("["):
        return text.strip("[]").replace('"', "").replace("'", "")
    return text.strip().strip("\"'")

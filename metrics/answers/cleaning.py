"""What of an output is the answer's: thinking, special tokens and errors are taken away, letters made plain."""

from __future__ import annotations

import html
import re
import unicodedata

from medimg_eval.metrics.answers.thoughts import split_thought
from medimg_eval.metrics.nlp import either, late_pattern

LONGEST_HEAD, LONGEST_TAIL = 2_000, 6_000

_WITHHELD = "[content filter]"

_TURN = late_pattern(
    r"\[/INST\]|(?:^|\n) *(?:#+ *)?(?:assistant|response) *: |(?:^|\n) *(?:assistant|model) *\n"
    r"|<\|im_start\|>assistant|<start_of_turn>model|\bASSISTANT:|assistantfinal"
)
_TURNS = ("ssistant", "ASSISTANT", "esponse", "model", "[/INST]")
_RUN_ON = late_pattern(r"\n[ \t#*]*(?:question|user|human|instruction|q)[ \t*]*\d*[ \t]*:", re.IGNORECASE)
_TOKENS = late_pattern(
    r"<[|｜][^|｜<>\n]{1,40}[|｜]>|(?i:</?s>|<(?:(?:eos|bos|pad|unk)(?:_token)?|image|eot|eod|endoftext"
    r"|(?:start|end)_of_turn|end_of_utterance|extra_id_\d+|unused\d+|turn\||\|turn)>|</assistant>)"
    r"|\[/?INST\]|\[(?:EOS|BOS|PAD|SEP|CLS|UNK)\]|<</?SYS>>"
)
_AT_ENDS = late_pattern(rf"^\s*(?:(?:{_TOKENS.pattern})\s*)+|(?:(?:{_TOKENS.pattern})\s*)+$")
_ERROR = late_pattern(
    r"\W{0,3}(?:(?:api|http|request|server|runtime|value|connection|timeout|cuda|openai|internal server)?[ _]?error\b"
    r"|traceback \(|failed to (?:obtain|get|fetch|call)|<!doctype|<html|exception\b|request timed out"
    r"|cuda out of memory|(?:4\d\d|5\d\d) (?:too many|bad|internal|service|gateway|not found|unauthorized))",
    re.IGNORECASE,
)
_AMOUNT = late_pattern(r"\d+(?:[.,/-]\d+)*%?")
_RUNS = late_pattern(r"([^\w.])\1{7,}")
_NOTHING = late_pattern(r"[\W_]*(?:none|null|nan|n/a|na|undefined|nil)?[\W_]*", re.IGNORECASE)
_CANNOT = either("cannot, can't, can not, could not, couldn't")
_REFUSAL = late_pattern(
    r"\b"
    + either(
        rf"""i(?:'m| am)? (?:really |very )?sorry, as an? (?:ai|language|large),
        i (?:apologi[sz]e|must decline|decline), (?:i|we) (?:\w+ )?(?:{_CANNOT}|won't|am not able to|am unable),
        unable to, not enough, insufficient, no image, consult,
        too \w+ (?:\w+ )?to (?:identify|tell|see|say|determine|judge|assess|interpret|read|make|answer|decide|know),
        (?:please|can you|could you|kindly) (?:clarify|provide|upload|share|specify|attach|send|resend),
        (?:image|picture|photo|file|attachment)s? (?:is |are |was |were )?not (?:found|avail|provid|attach|load)\w*,
        (?:i'm|i am|it is|it's|is|be|am|are|was) (?:\w+ )?(?:unable|not able|unsure|impossible|difficult to),
        (?:i'm|i am|it is|it's|is|be|am|are|was) (?:\w+ )?not (?:\w+ )?(?:possible|sure|certain|clear),
        {_CANNOT} (?:be|determine|tell|say|answer|see|provide|identify|make|view), more information, seek, uncertain,
        (?:don't|do not) (?:know|have|see|feel), health ?care (?:professional|provider),
        medical (?:professional|advice), undetermined, indeterminate, need (?:more|additional|further)"""
    )
    + r"\b|"
    + either(
        """无法, 抱歉, 对不起, 不确定, 不能确定, 不知道, 죄송,
        알 수 없, わかりません, 申し訳, عذر, لا أستطيع, لا يمكن,
        lo siento, no puedo, désolé, je ne (?:peux|sais), não (?:posso|sei), không thể, xin lỗi"""
    )
)
_REFUSES = (
    "too ",
    "please",
    "can you",
    "could you",
    "kindly",
    "not",
    "n't",
    "sorry",
    "an ai",
    "a lang",
    "a large",
    "apolog",
    "decline",
    "unable",
    "insuff",
    "image",
    "consult",
    "unsure",
    "difficult",
    "impossible",
    "information",
    "seek",
    "certain",
    "profess",
    "provider",
    "advice",
    "determin",
    "need ",
    "无法",
    "抱歉",
    "对不起",
    "不",
    "죄송",
    "알 수",
    "わかりません",
    "申し訳",
    "عذر",
    "لا",
    "siento",
    "no puedo",
    "désol",
    "je ne",
    "não",
    "không",
    "xin",
)
_ARABIC = {"أ": "ا", "إ": "ا", "آ": "ا", "ـ": "", "\u200f": "", "\u200e": ""}
_PLAIN = str.maketrans(
    {
        **{0x1F170 + index: chr(65 + index) for index in range(26)},
        **{0x1F150 + index: chr(65 + index) for index in range(26)},
        **{0x0660 + index: str(index) for index in range(10)},
        **dict.fromkeys((0x200B, 0x200C, 0x200D, 0xFE0F, 0x2060, 0xFEFF, 0xAD), ""),
        **dict.fromkeys(map(ord, "‘’ʼ＇"), "'"),
        **dict.fromkeys(map(ord, "“”„«»「」『』"), '"'),
        2: " ",
        3: " ",
        **{ord(letter): plain for letter, plain in _ARABIC.items()},
        **dict(zip(map(ord, "。、【】〔〕〈〉《》"), ".,[][]<><>", strict=True)),
    }
)
_CONTROLS = {2: " ", 3: " "}
_ALIKE = str.maketrans("АВСЕНКМОРТХаесорхΑΒΕΗΙΚΜΝΟΡΤΧ", "ABCEHKMOPTXaecopxABEHIKMNOPTX")


def visible(output: str, *, plain: bool = True) -> str:
    """Returns an output's answer text, without thinking and special tokens.

    Earlier turns go, too, and letters are made plain if `plain`. Of very long ones the beginning and the end
    are kept, which bounds the work.

    A thinking block that was not closed goes to the end, and one that was not opened begins at the start. An answer
    in a tag that closes the output counts even when the block before it was not closed.
    """
    text = html.unescape(output) if "&lt;" in output else output
    text = plain_letters(text) if plain else text
    text = split_thought(text).answer
    turns = list(_TURN.finditer(text)) if any(name in text for name in _TURNS) else []
    if turns and text[turns[-1].end() :].strip():
        text = text[turns[-1].end() :]
    if "<" in text or "[" in text:
        text = text.replace("<|begin_of_box|>", "<answer>").replace("<|end_of_box|>", "</answer>")
        text = _TOKENS.sub(" ", text)
    text = _RUNS.sub(lambda run: run[1] * 3, text)
    if plain and len(text) > LONGEST_HEAD + LONGEST_TAIL:
        text = f"{text[:LONGEST_HEAD]}\n\n{text[-LONGEST_TAIL:]}"
    return text.strip()


def without_end_tokens(output: str) -> str:
    """Returns an output without special tokens, "<|im_end|>", at either end."""
    return _AT_ENDS.sub("", output) if ">" in output or "]" in output else output


def has_tokens(output: str) -> bool:
    """Returns whether special tokens of a chat template stand in an output."""
    return bool(_TOKENS.search(output))


def withheld(reason: str = "") -> str:
    """Returns the placeholder of a reply that a filter withheld.

    The filter is a provider's, and may have cut the reply off.

    Args:
        reason: what the provider said instead, or what had been written until then.
    """
    return f"{_WITHHELD} {reason}".rstrip()


def is_withheld(output: str) -> bool:
    """Returns whether an output is none, because a provider's content filter withheld it."""
    return output.startswith(_WITHHELD)


def plain_letters(text: str) -> str:
    """Returns a text with unusual letters (full-width, circled, styled) and quotes made plain."""
    if text.isascii():
        return text.translate(_CONTROLS) if "\x02" in text or "\x03" in text else text
    text = unicodedata.normalize("NFKC", text.translate(_PLAIN)).translate(_PLAIN)
    foreign = [letter for letter in text if "\u0370" <= letter <= "\u04ff"]
    if foreign and len(foreign) <= 3:
        text = text.translate(_ALIKE)
    return text


def before_next_question(text: str) -> str:
    """Returns the text before a follow-up question the model invented."""
    match = _RUN_ON.search(text, 1)
    return text[: match.start()] if match and text[: match.start()].strip() else text


def is_error(text: str) -> bool:
    """Returns whether a text is an error message or empty."""
    return bool(_ERROR.match(text)) or bool(_NOTHING.fullmatch(text[:200]))


def says_none(text: str) -> bool:
    """Returns whether a text is the word "none", which answers an open question."""
    return text.strip(" \n.*_\"'`").lower() == "none"


def is_prose(text: str) -> bool:
    """Returns whether letters and blanks dominate a text without numbers."""
    text = _AMOUNT.sub("", text)
    return sum(letter.isalpha() or letter.isspace() for letter in text) >= 0.7 * len(text)


def refuses(text: str) -> bool:
    """Returns whether a lower-case text declines or cannot know."""
    return any(stem in text for stem in _REFUSES) and bool(_REFUSAL.search(text))

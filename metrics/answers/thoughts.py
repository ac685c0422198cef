"""Thinking parted from the answer, in whichever form a family of models writes it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from medimg_eval.metrics.nlp import late_pattern

Rule = Literal["T1", "T3", "T4", "T5", "T6"]
"""How a thought was found: `T1` a server sent it apart; `T3` a closed block, channel or headed section; `T4` a closing
mark alone, before which all is thought; `T5` an opening mark alone, after which all is; `T6` there is none."""

_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reason|analysis|scratchpad|reflection|rationale|cot)"
_MARK = late_pattern(
    rf"(?P<open><{_NAMES}(?:\s[^<>]{{0,40}})?>|\[think(?:ing)?\]|◁think▷|<\|start_thinking\|>"
    r"|<\|begin_of_thought\|>|<unused94>|<\|channel>thought)"
    rf"|</{_NAMES}\s*>|\[/think(?:ing)?\]|◁/think▷|<\|end_thinking\|>|<\|end_of_thought\|>|<unused95>|<channel\|>",
    re.IGNORECASE,
)
_CHANNEL = late_pattern(r"<\|channel\|>\s*(\w+)[^<]{0,40}<\|message\|>")
_BETWEEN_CHANNELS = late_pattern(r"<\|(?:end|start|return|call)\|>(?:assistant)?|<\|channel\|>[^<]*<\|message\|>")
_HEADED = late_pattern(r"^\s*#{1,4} *\**(?:thinking|thought process)\**:? *$", re.IGNORECASE | re.MULTILINE)
_HEADING = late_pattern(r"^\s*#{1,4} *\**(?!thinking|thought)\w", re.IGNORECASE | re.MULTILINE)
_QUOTES = ("`", '"', "'")


class SplitReply(NamedTuple):
    """A reply in two.

    Attributes:
        answer: what is left of the text without thinking.
        thought: the thinking, without its marks; None where there is none.
        rule: by which it was found.
        cut: whether the text ended within the thought, so that nothing, or only a tagged answer, follows it.
    """

    answer: str
    thought: str | None
    rule: Rule
    cut: bool = False


def split_thought(text: str, sent: str | None = None) -> SplitReply:
    """Parts a reply's thinking from its answer.

    Marks that stand in quotes or backticks are spoken of, and part nothing. A block that was not closed goes to the
    end; an answer in a tag that closes the output counts even then.

    Args:
        text: as it was written.
        sent: the thinking that a server sent apart from the text; None where it sent none.

    >>> split_thought("<think>A pneumothorax?</think>B").answer
    'B'
    >>> split_thought("It is large.</think>B").rule
    'T4'
    """
    answer, thoughts, rules, cut = text, [], [], False
    channels = list(_CHANNEL.finditer(text)) if "<|channel|>" in text else []
    if channels:
        closed = channels[-1][1] == "final"
        answer = text[channels[-1].end() :] if closed else text[: channels[0].start()]
        before = text[channels[0].end() : channels[-1].start() if closed else len(text)]
        if channels[0][1] != "final":
            thoughts.append(_BETWEEN_CHANNELS.sub("\n", before))
            rules.append("T3" if closed else "T5")
        cut = not closed
    if any(mark in answer for mark in "<[◁"):
        blocks = _split_blocks(answer)
        if blocks.rule != "T6":
            answer, cut = blocks.answer, cut or blocks.cut
            thoughts.append(blocks.thought or "")
            rules.append(blocks.rule)
    if "#" in answer and (headed := _HEADED.search(answer)):
        following = list(_HEADING.finditer(answer, headed.end()))
        end = following[-1].start() if following else len(answer)
        thoughts.append(answer[headed.end() : end])
        rules.append("T3" if following else "T5")
        answer, cut = answer[: headed.start()] + answer[end:], cut or not following
    if sent is not None:
        return SplitReply(answer, sent.strip(), "T1", cut)
    if not rules:
        return SplitReply(answer, None, "T6")
    rule: Rule = next(rule for rule in ("T5", "T4", "T3") if rule in rules)
    return SplitReply(answer, "\n".join(part.strip() for part in thoughts if part.strip()), rule, cut)


def _split_blocks(text: str) -> SplitReply:
    """Splits blocks between marks; marks within open blocks belong there."""
    remaining_text, position, opened = "", 0, -1
    thoughts: list[str] = []
    rule: Rule = "T6"
    for mark in _MARK.finditer(text):
        quote = text[mark.start() - 1 : mark.start()]
        if quote in _QUOTES and text[mark.end() : mark.end() + 1] == quote:
            continue
        if mark["open"]:
            if opened < 0:
                remaining_text += text[position : mark.start()]
                opened = mark.end()
            continue
        if opened < 0:
            thoughts.append(remaining_text + text[position : mark.start()])
            remaining_text, rule = "", "T4" if rule != "T3" else rule
        else:
            thoughts.append(text[opened : mark.start()])
            rule = "T3"
        position, opened = mark.end(), -1
    if opened < 0:
        return SplitReply(remaining_text + text[position:], "\n".join(thoughts), rule)
    closing = re.search(r"<answer>((?:(?!<answer>).){1,300})</answer>\s*$", text[opened:][-400:], re.DOTALL)
    thoughts.append(text[opened : len(text) - len(closing[0])] if closing else text[opened:])
    return SplitReply(remaining_text + (closing[0] if closing else ""), "\n".join(thoughts), "T5", cut=True)

"""The rules that take an answer from what a text mentions: the only option that it names and does not deny."""

from __future__ import annotations

import re
from itertools import pairwise

from medimg_eval.metrics.answers.cleaning import is_prose, refuses
from medimg_eval.metrics.answers.fragment import DISAGREE, SEVERAL, Found, OptionSet, others
from medimg_eval.metrics.answers.negation import denied, denies
from medimg_eval.metrics.answers.option_labels import SEPARATOR
from medimg_eval.metrics.answers.options import spelled
from medimg_eval.metrics.answers.phrases import CONDITIONAL, DISBELIEF
from medimg_eval.metrics.answers.structured import written_number
from medimg_eval.metrics.answers.yes_no import yes_or_no
from medimg_eval.metrics.nlp import SENTENCES, either, late_pattern, lower

_FEW = 12
"""Words of a text that is short."""

_SENTENCE = late_pattern(r"[A-Z](?=[^\n]* )(?:[A-Za-z,]|['’-](?=[a-z])| (?=\S))*[.!]?")
_CONCLUDES = late_pattern(
    r"\b"
    + either(
        r"""therefore, thus, hence, so, overall, conclusion, in summary, impression, final, diagnosis, consistent with,
        most (?:likely|consistent|probable|compatible|suggestive|appropriate), (?:looks?|more) like, favou?rs?, best,
        ultimately, answer, in keeping with, suggest\w*, indicat\w*, characteristic of, diagnostic of,
        compatible with"""
    )
    + r"\b|所以|因此|综上"
)
_STATES = late_pattern(
    r"(?:\b"
    + either(
        """is, are, shows?, showing, demonstrates?, depicts?, represents?, reveals?, indicates?, suggests?,
        suggestive of, consistent with, compatible with, diagnosis, likely, favou?rs?, diagnostic of,
        characteristic of, findings of, identified as, called, means?, see"""
    )
    + r"\b|^|: )\s*(?:an?\b|the\b|that of|\s)*(?:[a-z]+ ){0,2}$"
)
_SUBJECT = late_pattern(r"\s+(?:is|are|was|were|has|have|shows?|appears?|looks?)\b")
_SO = late_pattern(r"\b(?:so|hence|thus|therefore)\b,? (?:(?:it|this)(?: is|'s) )?")
_WOULD = late_pattern(r"\b(?:would|could|might|should)\b")
_CLAUSE = late_pattern(r",? \b(?:but|however|although|though|whereas|while)\b")
_NUMBER = late_pattern(r"\d{1,6}(?:\.\d{1,6})?")
_OF_A_PART = late_pattern(
    r"(?:^|[.,;!\n] ?|\band |\bbut )"
    r"(?!(?:this )?(?:it|image|scan|x ray|radiograph|study|picture|film|exam\w*|everything) )"
    r"[a-z][a-z ]{1,40} (?:is|are|appears?|remains?|looks?|was|were)(?: otherwise| within| \w+ly)? $"
)
_CUT_OFF = late_pattern(
    r"(?:[,:(–—-]|\b(?:the|an?|in|of|with|to|and|or|for|on|at|by|from|that|which|as|typically|usually|often|would))\s*$"
)
"""Ends a text that was cut off in the middle of a sentence."""
_DISCUSSES = late_pattern(
    r"\b(?:(?:each|the|every|all)(?: of the)? (?:answer )?(?:options?|choices?)|one by one|one at a time|in turn)\b"
)
_COURTESY = late_pattern(
    r"\b(?:good|great|excellent|interesting|normal) (?:question|morning|afternoon|evening|day|point|observation)\b"
    r"|\ball right\b"
)


def polar(text: str, asked: OptionSet) -> Found | None:
    """Returns the option for yes or no that fits."""
    heads = {label: (re.findall(r"[^\W_]+", own) or [""])[0] for label, own in asked.sheet.texts.items()}
    for yes, no in (("yes", "no"), ("true", "false")):
        right = [label for label, head in heads.items() if head == yes]
        wrong = [label for label, head in heads.items() if head == no]
        if len(right) == len(wrong) == 1 and (value := yes_or_no(text)[0]):
            return Found((right if value == "yes" else wrong)[0], "yes or no")
    return None


def counted(text: str, asked: OptionSet) -> Found | None:
    """Returns the option that a number in words states; None unless all are numbers."""
    numbers = {label: float(own) for label, own in asked.sheet.texts.items() if _NUMBER.fullmatch(own)}
    if len(numbers) < len(asked.sheet.texts) or refuses(lower(text)):
        return None
    value = written_number(lower(text))[0]
    equal = [label for label, number in numbers.items() if number == value]
    return Found(equal[0], "number word") if len(equal) == 1 else None


def mentioned(text: str, asked: OptionSet) -> Found | None:
    """Returns the only undenied option named by label or text."""
    if _CUT_OFF.search(text):
        if _DISCUSSES.search(lower(text)):
            return None
        text = text[: max(text.rfind(end) + 1 for end in (". ", "! ", "。", "\n"))]
    statements = _keep_statements(text, asked)
    if not is_prose(statements):
        return None
    labels = _named_labels(statements, asked)
    if len(labels) > 1:
        return Found(None, SEVERAL)
    low = _COURTESY.sub("", spelled(statements))
    texts = {mention.label for mention in asked.sheet.affirmed(low)}
    texts = {label for label in texts if not _normal_elsewhere(label, low, asked)} if len(texts) > 1 else texts
    if labels:
        return Found(labels[0], "mention") if not texts or labels[0] in texts else Found(None, DISAGREE)
    if len(texts) == 1:
        return Found(texts.pop(), "mention")
    return _concluded_option(low, asked) if texts else _worded_option(low, asked) or _lone_label(statements, asked)


def _normal_elsewhere(label: str, low: str, asked: OptionSet) -> bool:
    """Returns whether "normal" covers a part: "the alignment is normal"."""
    return asked.sheet.texts[label] in {"normal", "unremarkable"} and all(
        _OF_A_PART.search(low[max(0, mention.start - 60) : mention.start])
        for mention in asked.sheet.affirmed(low)
        if mention.label == label
    )


def why_not(text: str) -> str:
    """Returns the name of what a text did in place of an answer."""
    return "refused" if refuses(lower(text)) else "nothing found"


def _keep_statements(text: str, asked: OptionSet) -> str:
    """Returns a text's assertions, one per line."""
    statements = []
    for sentence in SENTENCES.split(text.replace("\x02", " ").replace("\x03", " ")):
        low = lower(sentence)
        if not sentence or sentence.rstrip().endswith(("?", "？")) or (CONDITIONAL.search(low) and _WOULD.search(low)):
            continue
        if refuses(low) and not _is_offered(sentence, asked):
            continue
        statements.append(sentence)
    return "\n".join(statements)


def _is_offered(sentence: str, asked: OptionSet) -> bool:
    """Returns whether an "unknown" sentence repeats an offered option."""
    return any(refuses(asked.sheet.texts[mention.label]) for mention in asked.sheet.mentions(spelled(sentence)))


def _named_labels(text: str, asked: OptionSet) -> list[str]:
    """Returns undenied labels once each; "" for one in lists."""
    named: dict[str, None] = {}
    for start, end in asked.labels.affirmed(text, lower(text)):
        label = text[start:end].upper()
        if label in asked.sheet.keys:
            named[label] = None
            if others(text[end:], label, asked):
                named[""] = None
    return list(named)


def _concluded_option(low: str, asked: OptionSet) -> Found | None:
    """Returns the only option concluded or stated in spelled text."""
    clauses = [clause for sentence in SENTENCES.split(low) for clause in _CLAUSE.split(sentence) if clause]
    for clause in reversed(clauses):
        named = {mention.label for mention in asked.sheet.affirmed(clause)}
        if len(named) == 1 and _CONCLUDES.search(clause):
            return Found(named.pop(), "conclusion")
        if _side_by_side(clause, asked):
            return Found(None, SEVERAL)
    stated = {
        mention.label
        for clause in clauses
        for mention in asked.sheet.affirmed(clause)
        if _STATES.search(clause[: mention.start]) and not _SUBJECT.match(clause, mention.end)
    }
    return Found(stated.pop(), "conclusion") if len(stated) == 1 else Found(None, SEVERAL)


def _worded_option(low: str, asked: OptionSet) -> Found | None:
    """Returns the only option all of whose words stand undenied."""
    sentences = SENTENCES.split(low)
    named = {
        label
        for sentence in sentences
        if (label := asked.sheet.words(sentence)) and not denies(sentence) and " when " not in sentence
    }
    if len(named) == 1:
        return Found(named.pop(), "words of one option")
    so = _SO.search(sentences[-1])
    label = asked.sheet.part(sentences[-1][so.end() :]) if so and not named else None
    return Found(label, "conclusion") if label else None


def _lone_label(text: str, asked: OptionSet) -> Found | None:
    """Returns the only undenied label in a short sentence."""
    if asked.labels.digits or len(text.split()) > _FEW or not _SENTENCE.fullmatch(text):
        return None
    spans = [match.span("label") for match in asked.labels.one.finditer(text) if match["label"] in asked.sheet.keys]
    if len(spans) != 1:
        return None
    start, end = spans[0]
    low = lower(text)
    if not asked.labels.is_label(text, start, end) or not asked.labels.stops(text, end) or denied(low, start, end):
        return None
    return None if DISBELIEF.search(low[:start]) else Found(text[start:end], "lone label")


def _side_by_side(clause: str, asked: OptionSet) -> bool:
    """Returns whether a clause joins two options: "pneumonia or effusion"."""
    return any(
        first.label != two.label and re.fullmatch(rf"\s*{SEPARATOR}?\s*(?:an? |the )?", clause[first.end : two.start])
        for first, two in pairwise(asked.sheet.affirmed(clause))
    )

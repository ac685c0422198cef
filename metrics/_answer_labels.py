"""Labels of options where they are used as labels: "(B)", "answer: B", but not the article in "A pleural effusion"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from medimg_eval.metrics._answer_negation import denied_after, denied_before

WORD = "A-Za-z0-9_À-ɏḀ-ỿ"
SEPARATOR = (
    r"(?:\s*(?:,\s*(?:and|or)\b|[,/&+|、]|;|\b(?:and/or|and|or|as well as|plus|y|et|ou|e|und|oder|và|hoặc|и|или)\b|[和或及与跟]"
    r"|と|または|와|과|또는|\bو|أو)\s*)"
)
_AFTER_ARTICLE = (
    "because|since|as|is|was|are|due|based|given|for|and|or|but|not|in|on|from|according|which|where|considering|so|by|that"
    "|seems|appears|would|could|can|will|has|shows|looks|describes|represents|correct|right|instead|rather|here|if|when"
    "|then|however|though|also|it|this|i|over|best|most|should|must|may|might|remains|fits|matches|wins|after|with"
)
_NOUNS = (
    "vitamin|vit|hepatitis|hep|type|group|grade|class|category|influenza|protein|factor|image|figure|fig|panel|plan|segment|zone"
    "|region|area|lead|point|patient|case|complex|immunoglobulin|ig|apo|part|series|view|lesion|structure|arrow|sample"
    "|score|pugh|blood|strep|streptococcus|rads|phase|site|location|marker|scan|slice|stage|level|position|drug|arm"
    "|cohort|doctor|dr|mr|mrs|ms|prof|professor|subtype|haemophilus|hemophilus|coenzyme|nodule|mass|tube|sequence|photo|column|row"
)
_COMPOUND = re.compile(
    r"\s(?:cells?|lines?|section|spine|dimer|coli|waves?|symptoms?|arm|rays?|scan|mode|types?|virus|reactive|peptide|ring"
    r"|loop|shaped|lymphocytes?|vitamin)\b|\.\s?(?:coli|difficile|pylori|aureus|albicans|fumigatus|burgdorferi|pneumoniae"
    r"|tuberculosis|influenzae|faecalis|perfringens|botulinum|henselae|anthracis|cereus|fragilis|diphtheriae|neoformans"
    r"|granulosus|histolytica|vermicularis|baumannii|pertussis|hominis|trachomatis|psittaci|burnetii|immitis)\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(rf"\s+(?!(?:{_AFTER_ARTICLE})\b)[{WORD}(]", re.IGNORECASE)
_VERB = re.compile(
    r"\s*(?:$|[.,:;)\]}\"'!?|/&+–—-]|(?:is|because|since|as|seems|appears|would|and|or|but|due|based|given|which)\b)", re.IGNORECASE
)
_PUNCTUATED = re.compile(r"\s*(?:$|[.:;)\]}\"'!?|/&+,–—(\x03]|-\s)|\n")
_NOUN_BEFORE = re.compile(rf"\b(?:{_NOUNS})s?\.?[ -]?(?:(?:is|was|:|=)\s*)?[(\"']?$", re.IGNORECASE)


class Labels:
    """The labels of a question's options, and what else might be one.

    Attributes:
        known: the labels, as rules know them.
        pattern: a regular expression for one, without boundaries.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.digits = all(label.isdigit() for label in known)
        long = sorted((re.escape(label) for label in known if len(label) > 1), key=len, reverse=True)
        single = r"\d{1,2}" if self.digits else "[A-Za-z]"
        self.pattern = "|".join([*(() if self.digits else long), single])
        self.token = (
            rf"(?<![{WORD}])(?<![{WORD}][-&])(?<!\d[.,])(?P<label>{self.pattern})"
            rf"(?![{WORD}%]|'[A-Za-z]|-[{WORD}]|\.[A-Za-z](?![a-z])|[.,]\d)"
        )
        self.one = re.compile(self.token)
        self.alone = re.compile(
            rf"[\s\W_]*(?:(?:(?:most )?likely|probably|maybe|perhaps|possibly|definitely|clearly|certainly|i think|i believe|i'd say|i would say|i say|it's|it is|looks like|so|thus|therefore|hence|sure|ok|okay|yes|yeah)\b[\s\W_]*){{0,3}}(?:(?:option|choice|answer|letter|label|选项|选择|选|答案|选|보기|الخيار|opción|réponse|đáp án)[\s\W_]*)?"
            rf"(?<![{WORD}])(?P<label>{self.pattern})[\s\W_]*(?:选项|项)?[\s\W_]*",
            re.IGNORECASE,
        )
        self.item = re.compile(rf"[ \t\-•*>#✓✔✅☑✗✘❌(\[\"']*{self.token}[)\]\"']*(?:\s*[.:)\]、,;|–—]|\s+-\s|\s*$|\s*\n)")
        self.listed = re.compile(
            rf"(?:[.):\]]?\s*)?[\"')\]]*{SEPARATOR}(?:it )?(?:(?:could|might|may)(?: also)? be )?(?:option |choice |选项)?[\"'(\[]*{self.token}[)\]\"']*"
        )
        self.named = re.compile(
            rf"(?:\b(?:option|choice|answer|alternative|letter|statement)s? +|选项\s*|الخيار\s+)[\"'(\[]*{self.token}"
            rf"|[(\[]{self.token.replace('?P<label>', '?P<inner>')}[)\]]",
            re.IGNORECASE,
        )

    def canonical(self, token: str) -> str:
        """Returns a label as rules know it."""
        return token.upper()

    def is_label(self, text: str, start: int, end: int) -> bool:
        """Returns whether a letter in a text, where a label is expected, is one: no article, pronoun or compound."""
        token, after = text[start:end], text[end : end + 24]
        if self.digits:
            return not re.match(r"\s*(?:mm|cm|m[lg]|%|years?|yrs?|days?|weeks?|months?|hours?|of|out|×|x\s?\d)\b", after)
        if _COMPOUND.match(after) or _NOUN_BEFORE.search(text[max(0, start - 24) : start]):
            return False
        if len(token) > 1:
            return True
        if token == "A" or token == "a":
            return not _ARTICLE.match(after)
        if token == "I":
            return bool(_VERB.match(after)) and not re.match(r"\s+(?:would|and|am)", after)
        return token.isupper() or bool(_PUNCTUATED.match(after) or _VERB.match(after))

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """Yields the labels that a text names as such: "option B", "(B)"."""
        for found in self.named.finditer(text):
            start, end = span(found)
            if found["inner"] is not None and found["inner"].islower() and not _item_like(text, found.start()):
                continue
            if found["inner"] is not None and _NOUN_BEFORE.search(text[max(0, start - 24) : found.start()]):
                continue
            if found["inner"] is not None or self.is_label(text, start, end):
                yield found

    def affirmed(self, text: str, low: str) -> Iterator[tuple[int, int]]:
        """Yields the places of the labels that a text names as such and does not deny."""
        for found in self.find(text):
            start, end = span(found)
            if not denied_before(low, found.start()) and not denied_after(low, end + (text[end : end + 1] in {")", "]"})):
                yield start, end


def span(found: re.Match[str]) -> tuple[int, int]:
    """Returns where the label stands in a match of `Labels.named` or of any pattern with a label."""
    names = found.re.groupindex
    if "inner" in names and found["inner"] is not None:
        return found.span("inner")
    return found.span("label")


def _item_like(text: str, start: int) -> bool:
    return start == 0 or text[start - 1] in " \n"


@lru_cache(maxsize=128)
def labels_of(known: frozenset[str]) -> Labels:
    """Returns the labels, their patterns compiled once."""
    return Labels(known)

"""Labels of options where they are used as labels: "(B)", "answer: B", but not the article in "A pleural effusion"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from medimg_eval.metrics.answers.negation import denied_after, denied_before
from medimg_eval.metrics.nlp import either, late_pattern

WORD = "A-Za-z0-9_À-ɏḀ-ỿ"
_AND = either("and/or, and or, and, or, as well as, plus, y, et, ou, e, und, oder, và, hoặc, и, или")
SEPARATOR = (
    rf"(?:\s*(?:,\s*(?:and|or)\b|[,/&+|、;]|\b{_AND}\b|还是|或者|或是|[和或及与跟]|と|または|와|과|또는|\bو|أو|או)\s*)"
)

_FUNCTION = either(
    """because, since, as, is, was, are, due, based, given, for, and, or, but, not, in, on, from, according, which,
    where, considering, so, by, that, seems, appears, would, could, can, will, has, shows, looks, describes,
    represents, correct, right, instead, rather, here, if, when, then, however, though, also, it, this, i, over, best,
    most, should, must, may, might, remains, fits, matches, wins, after, with"""
)
_NOUNS = either(
    """vitamin, vit, hepatitis, hep, type, group, grade, class, category, influenza, protein, factor, image, figure,
    fig, panel, plan, segment, zone, region, area, lead, point, patient, case, complex, immunoglobulin, ig, apo, part,
    series, view, lesion, structure, arrow, sample, score, pugh, blood, strep, streptococcus, rads, phase, site,
    location, marker, scan, slice, stage, level, position, drug, arm, cohort, doctor, dr, mr, mrs, ms, prof,
    professor, subtype, haemophilus, hemophilus, coenzyme, nodule, mass, tube, sequence, photo, column, row"""
)
_COMPOUND = late_pattern(
    r"\s"
    + either(
        """cells?, lines?, section, spine, dimer, coli, waves?, symptoms?, arm, rays?, scan, mode, types?, virus,
        reactive, peptide, ring, loop, shaped, lymphocytes?, vitamin"""
    )
    + r"\b|\.\s?"
    + either(
        """coli, difficile, pylori, aureus, albicans, fumigatus, burgdorferi, pneumoniae, tuberculosis, influenzae,
        faecalis, perfringens, botulinum, henselae, anthracis, cereus, fragilis, diphtheriae, neoformans, granulosus,
        histolytica, vermicularis, baumannii, pertussis, hominis, trachomatis, psittaci, burnetii, immitis"""
    )
    + r"\b",
    re.IGNORECASE,
)
_ARTICLE = late_pattern(rf"\s+(?!{_FUNCTION}\b)[{WORD}(]", re.IGNORECASE)
_VERB = late_pattern(
    r"\s*(?:$|[.,:;)\]}\"'!?|/&+–—-]|(?:is|because|since|as|seems|appears|would|and|or|but|due|based|given|which)\b)",
    re.IGNORECASE,
)
_STOPS = late_pattern(rf"\s*(?:$|[^\sA-Za-z0-9]|\n|{_FUNCTION}\b|选)", re.IGNORECASE)
_PUNCTUATED = late_pattern(r"\s*(?:$|[.:;)\]}\"'!?|/&+,–—(\x03]|-\s)|\n")
_NOUN_BEFORE = late_pattern(rf"\b{_NOUNS}s?\.?[ -]?(?:(?:is|was|:|=)\s*)?[(\"']?$", re.IGNORECASE)
_AMOUNT = late_pattern(r"\s*(?:mm|cm|m[lg]|%|years?|yrs?|days?|weeks?|months?|hours?|of|out|×|x\s?\d)\b")
_ADVERBS = either(
    """most likely, likely, probably, maybe, perhaps, possibly, definitely, clearly, certainly, i think, i believe,
    i'd say, i would say, i say, it's, it is, looks like, so, thus, therefore, hence, sure, ok, okay, yes, yeah"""
)
_CALLED = either("option, choice, answer, letter, label, 选项, 选择, 选, 答案, 보기, الخيار, opción, réponse, đáp án")


class Labels:
    """The labels of a question's options, and what else might be one.

    Attributes:
        known: the labels, as rules know them.
        digits: whether they are numbers.
        token: a pattern with the group `label`: one that stands alone, known or not.
        one: a label anywhere.
        alone: a text that is a label and no more.
        item: a label that a mark divides from what follows: "B. ", "(B)".
        listed: a further label of a list: ", B", " or (B)".
        listing: a label and what divides it from a further one, which begins where the text ends: "A, ", "(A) or (".
    """

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.digits = all(label.isdigit() for label in known)
        long = sorted((re.escape(label) for label in known if len(label) > 1), key=len, reverse=True)
        either_label = r"\d{1,2}" if self.digits else "|".join([*long, "[A-Za-z]"])
        self.token = (
            rf"(?<![{WORD}])(?<![{WORD}][-&])(?<!\d[.,])(?P<label>{either_label})"
            rf"(?![{WORD}%]|'[A-Za-z]|-[{WORD}]|\.[A-Za-z](?![a-z])|[.,]\d)"
        )
        self.one = re.compile(self.token)
        self.alone = re.compile(
            rf"[\s\W_]*(?:{_ADVERBS}\b[\s\W_]*){{0,3}}(?:{_CALLED}[\s\W_]*)?"
            rf"(?<![{WORD}])(?P<label>{either_label})[\s\W_]*(?:选项|项|번|番|です|입니다|이다)?[\s\W_]*",
            re.IGNORECASE,
        )
        self.item = re.compile(
            rf"[ \t\-•*>#✓✔✅☑✗✘❌(\[\"'{{]*(?:[Oo]ption |[Cc]hoice )?{self.token}[)\]\"']*"
            r"(?:\s*[.:)\]、,;|–—]|\s+-\s|\s*$|\s*\n)"
        )
        maybe = r"(?:(?:maybe|possibly|perhaps|even|potentially|probably|also) )?(?:it )?"
        self.listed = re.compile(
            rf"(?:[.):\]]?\s*)?[\"')\](]*{SEPARATOR}{maybe}(?:(?:could|might|may)(?: also)? be )?"
            rf"(?:option |choice |选项)?[\"'(\[]*{self.token}[)\]\"']*"
        )
        self.listing = re.compile(rf"{self.token}(?:[)\]\"']*{SEPARATOR}(?:option |choice )?[\"'(\[]*|[)\]]\s*[(\[])\Z")
        self._named = re.compile(
            rf"(?:\b(?:option|choice|answer|alternative|letter|statement)s? +|选项\s*|الخيار\s+)[\"'(\[]*{self.token}"
            rf"|[(\[]{self.token.replace('?P<label>', '?P<inner>')}[)\]]",
            re.IGNORECASE,
        )

    def is_label(self, text: str, start: int, end: int) -> bool:
        """Returns whether a letter, where expected, is a label and no article, pronoun, compound."""
        letter, after = text[start:end], text[end : end + 24]
        if self.digits:
            return not _AMOUNT.match(after)
        if _COMPOUND.match(after) or _NOUN_BEFORE.search(text[max(0, start - 24) : start]):
            return False
        if len(letter) > 1:
            return True
        if letter in {"A", "a"}:
            return not _ARTICLE.match(after)
        if letter == "I":
            return bool(_VERB.match(after)) and not re.match(r"\s+(?:would|and|am)", after)
        return letter.isupper() or bool(_PUNCTUATED.match(after) or _VERB.match(after))

    def stops(self, text: str, end: int) -> bool:
        """Returns whether a sentence may continue so after a label.

        It may go on with a stop, or "because", "for", "is".
        """
        return bool(_STOPS.match(text, end))

    def affirmed(self, text: str, low: str) -> Iterator[tuple[int, int]]:
        """Yields spans of undenied, named labels: "option B", "(B)"."""
        for match in self._named.finditer(text):
            bracketed = match["inner"] is not None
            start, end = match.span("inner" if bracketed else "label")
            if bracketed:
                odd = text[start].islower() and match.start() > 0 and text[match.start() - 1] not in " \n"
                if odd or _NOUN_BEFORE.search(text[max(0, start - 24) : match.start()]):
                    continue
            elif not self.is_label(text, start, end):
                continue
            closed = end + (text[end : end + 1] in {")", "]"})
            if not denied_before(low, match.start()) and not denied_after(low, closed):
                yield start, end


@lru_cache(maxsize=128)
def labels_of(known: frozenset[str]) -> Labels:
    """Returns the labels, their patterns compiled once."""
    return Labels(known)

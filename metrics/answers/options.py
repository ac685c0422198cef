"""The options of a question as an output may name them: their labels in one alphabet, their texts without dress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from medimg_eval.metrics.answers.cleaning import plain_letters
from medimg_eval.metrics.answers.negation import denied
from medimg_eval.metrics.nlp import late_pattern

ARABIC = "ابجدهوزحطي"
_SIDES = late_pattern(r"^[\s\W_]+|[\s\W_]+$")
_LEADS = late_pattern(r"^(?:(?:the|a|an|it is|it's|this is|there is|there are|image shows|shows)\s+)+")
_BRITISH = late_pattern(r"\bo(?=e(?:de|so|st))|(?<=[a-z])o(?=e[a-z])|a(?=e(?:m|st))|(?<=tumo)u(?=r)|(?<=colo)u(?=r)")
_MARKS = late_pattern(r"[^\w. ]|\.(?!\d)")
_PLURAL = late_pattern(r"(?<=[a-z]no|[a-z]{2}a|cro|bro)ses\b")
_ARTICLE = late_pattern(r"\ban? (?=[a-z])")
_POSSESSIVE = late_pattern(r"(?<=[a-z]{3})'s\b")
_THE = late_pattern(r"\bthe ")
_SPACE = late_pattern(r"[^\S\n]+")
_DRESS = str.maketrans(dict.fromkeys('*`"$\\)[]{}') | dict.fromkeys("-_‐‑–—/", " ") | {"(": ", "})
_QUOTES = late_pattern(r"(?<![a-z])'|'(?![a-z])")
_EVIDENCE = late_pattern(r"\bno (?:\w+ )?(?:evidence|signs?|indications?) of (?:an? |any )?")
_BRACKETED = late_pattern(r"^(.{2,}?)\s*[(\[]([^()\[\]]{2,})[)\]]\.?$")
_PREFIX = late_pattern(r"\b(non|intra|extra|inter|peri|supra|infra|trans|ultra|micro|multi|x)(?=(?!s\b)[a-z]{4}|ray)")
_COMMON = frozenset(
    [
        "a",
        "all",
        "an",
        "and",
        "i",
        "in",
        "is",
        "it",
        "no",
        "none",
        "not",
        "of",
        "on",
        "one",
        "or",
        "the",
        "to",
        "two",
        "yes",
    ]
)
"""What is too common in any text to be the mention of an option."""
_JOINTS = frozenset(["a", "an", "and", "are", "at", "for", "in", "is", "of", "on", "or", "the", "to", "with"])
_LETTERS = late_pattern(r"\b[a-j]\b")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_ORDINAL = late_pattern(
    rf"\b(?:the )?({'|'.join(_ORDINALS)}|last) (?:answer )?(?:option|choice)\b(?! (?:of|treatment|therapy|drug)\b)",
    re.IGNORECASE,
)
_ALL_BUT = late_pattern(
    r"\b(?i:(?:all|every|each|any)(?:thing)?(?: of)?(?: the)?(?: other)?(?: (?:option|choice|answer|one)s?)?,?"
    r" (?:except|but|other than|apart from|aside from)(?: for)?(?: option| choice)?) [(\"']?([A-J])[)\"']?,?"
    r" (?:(?:is|are|can|could|may|might|must|have|has|been|be|clearly|therefore|safely|also) )+"
    r"(?:wrong|incorrect|false|excluded|eliminated|ruled out|unlikely|implausible|dismissed|rejected|inconsistent)\b"
)
_OR_BEFORE = late_pattern(r"(\w+) (?:or|and|to|vs\.?|versus) $")
_OR_AFTER = late_pattern(r" (?:or |and |to |vs\.? |versus )?(\w+)\b")


def spelled(text: str) -> str:
    """Returns a text in lower case and one spelling, without quotes, brackets and hyphens."""
    if " a " in text or " an " in text or text.startswith(("a ", "an ")):
        text = _ARTICLE.sub("", text)
    text = text.lower().translate(_DRESS)
    if "'" in text:
        text = _QUOTES.sub("", _POSSESSIVE.sub("", text))
    if "ae" in text or "oe" in text or "our" in text:
        text = _BRITISH.sub("", text)
    if "  " in text or "\t" in text:
        text = _SPACE.sub(" ", text)
    if "ses" in text:
        text = _PLURAL.sub("sis", text)
    if "the " in text:
        text = _THE.sub("", text)
    if "no " in text:
        text = _EVIDENCE.sub("no ", text)
    return text.strip()


def bare(text: str) -> str:
    """Returns spelled text without an opening article and surrounding marks."""
    text = _SIDES.sub("", text) or text.strip()
    return _LEADS.sub("", text)


@dataclass(frozen=True)
class Mention:
    """An option's text where an output has it."""

    label: str
    start: int
    end: int


class Sheet:
    """The options of one question.

    Attributes:
        keys: label as rules know it (`A`, or `1`) -> the letter that the options have.
        texts: label -> text, spelled and bare.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.keys, self._foreign = _label_maps(tuple(options))
        self.texts = {label: bare(spelled(plain_letters(str(options[letter])))) for label, letter in self.keys.items()}
        variants: dict[str, set[str]] = {}
        for label, text in self.texts.items():
            for variant in _text_variants(str(options[self.keys[label]]), text):
                variants.setdefault(variant, set()).add(label)
        self._variants: dict[str, str] = {}
        for variant, owners in variants.items():
            exact_labels = [label for label in owners if self.texts[label] == variant]
            if len(owners) == 1 or len(exact_labels) == 1:
                self._variants[variant] = (exact_labels or [*owners])[0]
        self._words: dict[str, set[str]] | None = None
        self._naming = [
            (str(options[self.keys[label]]).strip(" ."), label)
            for label, text in self.texts.items()
            if len(set(_LETTERS.findall(text)) & {key.lower() for key in self.keys}) > 1
        ]
        close = [_squeeze_text(variant) for variant in self._variants]
        self._close = {
            _squeeze_text(variant): label
            for variant, label in self._variants.items()
            if close.count(_squeeze_text(variant)) == 1 and len(variant) > 3
        }
        self._widest = 2 * max(map(len, map(str, options.values())), default=0) + 80
        self._longest = sorted(self._variants, key=len, reverse=True)

    def translated(self, text: str) -> str:
        """Returns an output with labels of another script written as rules know them."""
        if self._foreign and not text.isascii():
            return re.sub(
                rf"(?<![^\W\d_])[{''.join(self._foreign)}](?![^\W\d_])", lambda found: self._foreign[found[0]], text
            )
        return text

    def told(self, text: str) -> str:
        """Returns an output with options named by their labels.

        Neither as "the second option" nor as "both A and B".
        """
        for name, label in self._naming:
            text = re.sub(rf"\b{re.escape(name)}\b", f"option {label}", text, flags=re.IGNORECASE)
        if "xcept" in text or " but " in text or " than " in text or " from " in text:
            text = _ALL_BUT.sub(r"option \1 is correct", text)
        low = text.lower()
        if (" option" in low or " choice" in low) and any(word in low for word in (*_ORDINALS, "last")):
            text = _ORDINAL.sub(self._ordinal, text)
        return text

    def _ordinal(self, found: re.Match[str]) -> str:
        labels = list(self.keys)
        position = -1 if found[1].lower() == "last" else _ORDINALS.index(found[1].lower())
        return f"option {labels[position]}" if position < len(labels) else found[0]

    def exact(self, text: str) -> str | None:
        """Returns the label of the one option with this text."""
        if len(text) > self._widest:
            return None
        text = spelled(text)
        return (
            self._variants.get(bare(text))
            or self._variants.get(_SIDES.sub("", text))
            or self._close.get(_squeeze_text(text))
        )

    def part(self, text: str) -> str | None:
        """Returns the label of the one option containing a short text as whole words."""
        text = bare(spelled(text))
        if text in _COMMON or len(text.split()) > 6:
            return None
        if len(text) < 2 and not text.isdigit():
            return None
        within = [label for label, own in self.texts.items() if f" {text} " in f" {_MARKS.sub(' ', own)} "]
        if len(within) == 1 and " " not in text and len(text) < 5 and text.isalpha():
            own = self.texts[within[0]]
            within = within if own.startswith(text) or set(text) <= set("ivx") else []
        touched = [label for label, own in self.texts.items() if text in own] if len(text) > 3 else within
        return within[0] if len(within) == len(touched) == 1 else None

    def begins(self, text: str) -> tuple[str, int] | None:
        """Returns the label whose text opens a text, with end."""
        lead = _LEADS.match(text)
        start = lead.end() if lead else 0
        for variant in self._longest:
            for position in {0, start}:
                end = position + len(variant)
                if text.startswith(variant, position) and not text[end : end + 1].isalnum():
                    return self._variants[variant], end
        return None

    def words(self, sentence: str) -> str | None:
        """Returns the label of the only option whose words, two at least, all occur."""
        words_said = set(re.findall(r"\w+", sentence))
        if self._words is None:
            self._words = {label: set(re.findall(r"\w+", text)) - _JOINTS for label, text in self.texts.items()}
        own = self._words
        within = [label for label, words in own.items() if len(words) > 1 and words <= words_said]
        widest = [
            label
            for label in within
            if all(own[other_label] < own[label] for other_label in within if other_label != label)
        ]
        return widest[0] if len(widest) == 1 else None

    def mentions(self, text: str) -> list[Mention]:
        """Returns mentions of options' texts as whole words, the longest taking places first."""
        mentions: list[Mention] = []
        for variant in self._longest:
            if variant in _COMMON or (len(variant) < 2 and variant.isascii() and not variant.isdigit()):
                continue
            start = text.find(variant)
            while start >= 0:
                end = start + len(variant)
                if _stands_alone(text, start, end) and all(
                    end <= mention.start or mention.end <= start for mention in mentions
                ):
                    mentions.append(Mention(self._variants[variant], start, end))
                    mentions += self._sharing(text, variant, start, end)
                start = text.find(variant, start + 1)
        return sorted(mentions, key=lambda one: one.start)

    def _sharing(self, text: str, variant: str, start: int, end: int) -> list[Mention]:
        """Returns an option that shares words: "left or right lung"."""
        words = variant.split()
        if len(words) < 2:
            return []
        mentions = []
        if before := _OR_BEFORE.search(text, max(0, start - 24), start):
            variant_text = " ".join([before[1], *words[1:]])
            mentions += (
                [Mention(self._variants[variant_text], before.start(1), start)]
                if variant_text in self._variants
                else []
            )
        if after := _OR_AFTER.match(text, end):
            variant_text = " ".join([*words[:-1], after[1]])
            mentions += (
                [Mention(self._variants[variant_text], end, after.end())] if variant_text in self._variants else []
            )
        return [mention for mention in mentions if mention.label != self._variants[variant]]

    def affirmed(self, text: str) -> list[Mention]:
        """Returns the mentions in a spelled text that are not denied."""
        return [mention for mention in self.mentions(text) if not denied(text, mention.start, mention.end)]


@lru_cache(maxsize=256)
def _label_maps(letters: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns maps from rules' labels to letters, scripts to labels."""
    plain = [re.sub(r"[\s().:\[\]]", "", plain_letters(str(letter))).upper() or str(letter) for letter in letters]
    keys = dict(zip(plain, letters, strict=True))
    if len(keys) < len(letters):
        keys = {str(letter): letter for letter in letters}
    if all(label.isascii() for label in keys):
        return keys, {} if not set("ABCD") & set(keys) else dict(zip(ARABIC[:5], "ABCDE", strict=True))
    latin = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", letters, strict=False))
    foreign = {label: letter for label, letter in zip(keys, latin, strict=False) if len(label) == 1}
    return latin, foreign


def _text_variants(text: str, own: str) -> set[str]:
    """Returns written forms of an option's text, such as abbreviations."""
    variants = {own} if own else set()
    if "-" in text:
        variants.add(bare(spelled(plain_letters(text).replace("-", ""))))
    if apart := _PREFIX.sub(r"\1 ", own):
        variants.add(apart)
    if pair := _BRACKETED.match(plain_letters(text).strip()):
        variants |= {bare(spelled(pair[1])), bare(spelled(pair[2]))}
    return {variant for variant in variants if variant}


def _squeeze_text(text: str) -> str:
    """Returns a text's letters and digits, for loose comparison."""
    return re.sub(r"[^\w.]|\.(?!\d)|_", "", text)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Returns whether a place is a whole word (or plural)."""
    before, after = text[start - 1 : start], text[end : end + 2]
    first, last = text[start], text[end - 1]
    if _joins_words(first) and _joins_words(before):
        return False
    if first.isdigit() and before in {".", ","} and start > 1 and text[start - 2].isdigit():
        return False
    if (
        last.isdigit()
        and re.match(r"[.,]\d|[.)] |[.)]$", after)
        and (start == 0 or before == "\n" or after[1:].isdigit())
    ):
        return False
    if not _joins_words(last) or not _joins_words(after[:1]):
        return True
    return after[0] == "s" and last.isalpha() and not _joins_words(text[end + 1 : end + 2])


def _joins_words(letter: str) -> bool:
    """Returns whether a character joins words, unlike East Asian ones."""
    return letter.isalnum() and not "\u3040" <= letter <= "\u9fff" and not "\uac00" <= letter <= "\ud7a3"

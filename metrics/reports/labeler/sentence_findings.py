"""What a sentence of a report says of each thing that it names: present, absent, in doubt, asked for.

Phrases are found in one tree of words (`_reports_lexicon`). One pass from left to right carries what holds for the
words that follow (a negation, a doubt, a question) until a turn of thought ends it; cues behind what they speak of are
applied to the left; what is seen of heart and mediastinum is judged by the words about its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache

from medimg_eval.metrics.reports.labeler.cues import CUES, FILLERS
from medimg_eval.metrics.reports.labeler.findings import DEVICES, EDEMA, NAMED, NEGATIVE, POSITIVE, UNCERTAIN
from medimg_eval.metrics.reports.labeler.phrase_tree import Node, longest, planted
from medimg_eval.metrics.reports.labeler.sentence import (
    ABOUT,
    ASKED,
    DOUBT,
    HELD,
    NOT,
    WORD,
    Item,
    Said,
    Sentence,
    Told,
)
from medimg_eval.metrics.reports.labeler.spelling import misspellings, words_of

_NEAR = 4
"""How many words may lie between a word about size and what it is about, where it stands in front."""


def judge_seen(sentence: Sentence) -> None:
    """Judges heart and mediastinal size by neighbouring words."""
    for finding in sentence.said:
        if sentence.items[finding.at].kind != "seen" or not finding.observations:
            continue
        before, lasts = _read_before(sentence, finding.at)
        after, lasts_after = _read_after(sentence, finding.at) if before is None else (None, False)
        at = after if before is None else before
        finding.trend = "unchanged" if lasts or lasts_after else ""
        if at is not None:
            finding.status = _size_status(sentence.items[at], sentence.scopes[at])
        elif finding.doubted or lasts or lasts_after:
            finding.status = UNCERTAIN


def _size_status(item: Item, scope: str) -> int | None:
    if scope == ASKED:
        return None
    if item.kind == "normal":
        return POSITIVE if scope == NOT else NEGATIVE
    if scope == NOT:
        return NEGATIVE
    return UNCERTAIN if scope == DOUBT or item.kind == "border" else POSITIVE


def _tells_size(item: Item) -> bool:
    return item.kind in ("normal", "large", "border") or (item.kind == "change" and item.holds == "worse")


def _lasts_unchanged(item: Item) -> bool:
    return item.kind == "held" or (item.kind == "change" and item.holds == "unchanged")


def _read_before(sentence: Sentence, at: int) -> tuple[int | None, bool]:
    items, lasts = sentence.items, False
    for index in range(at - 1, -1, -1):
        item, following = items[index], items[index + 1]
        if following.first - item.behind > _NEAR:
            break
        if _tells_size(item):
            return index, lasts
        lasts |= _lasts_unchanged(item)
        joins = item.kind in (",", "and", "or") and index and items[index - 1].kind in ("seen", ",")
        if item.kind not in (*ABOUT, "seen", "held") and not joins:
            break
    return None, lasts


def _read_after(sentence: Sentence, at: int) -> tuple[int | None, bool]:
    items, lasts, verb, inserted = sentence.items, False, False, False
    for index in range(at + 1, len(items)):
        item = items[index]
        if inserted:  # "the heart, although hard to see, is enlarged"
            inserted = item.kind != ","
            continue
        if _tells_size(item):
            return index, lasts
        if item.kind == "turn" and items[index - 1].kind == ",":
            inserted = True
            continue
        if item.kind in ("turn", "finding") or (item.kind == "seen" and (verb or lasts)):
            break
        lasts |= _lasts_unchanged(item)
        verb |= item.kind in ("verb", ":")
    return None, lasts


_SOFT = (",", "and", "or", "with")
_OF = 3
"""How many words may stand between a part and its whole: "tip of the right"."""
_ARTICLES = ("a", "an", "the", "there", "only", "now", "some", "this", "these")
_CONTOURS = ("contours", "contour", "silhouettes", "silhouette", "borders", "structures", "shadows")
_BEFORE_CONTOURS = (",", "and", "the", "hilar", "mediastinal", "cardiac", "aortic", "pulmonary", "/")
_STRANGE = "*"
"""Stands for each word that no rule knows, so that sentences which differ in such words alone are judged once."""
_NAMES = ("finding", "other", "seen")
_NAMED_AHEAD = frozenset((*_NAMES, "large", "normal"))

_SPEAKS = ("normal", "not before", "not behind", "held")

Found = tuple[int, list[Item], list[Said], list[str], Told]
"""What was found in a sentence, wherever it stands: all of `Sentence` from its length on, and what comes of it."""


@cache
def tree() -> Node:
    """The phrases of all rules."""
    return planted((*NAMED, *CUES))


@cache
def _misspelt_words() -> dict[str, str]:
    """Every word that the rules know, by itself and by its misspellings."""
    vocabulary = words_of(tree()).union(FILLERS, _ARTICLES, _CONTOURS, _BEFORE_CONTOURS, {"?"})
    return misspellings(vocabulary) | {word: word for word in vocabulary}


def read(lowered: str, start: int, end: int) -> Sentence:
    """Returns a sentence's findings; `lowered` is the lower-case text."""
    return Sentence(lowered, start, end, *_read_words_cached(lowered[start:end])[:-1])


def tell(lowered: str, start: int, end: int) -> Told:
    """Returns what comes of a sentence, as `read` has it."""
    return _read_words_cached(lowered[start:end])[-1]


@lru_cache(maxsize=4096)  # reports say the same again and again: "No pneumothorax."
def _read_words_cached(said: str) -> Found:
    meant = _misspelt_words()
    return _read_words(tuple([meant.get(word, _STRANGE) for word in WORD.findall(said)]))


@lru_cache(maxsize=4096)  # and where they do not, it is often but a number or a name that differs
def _read_words(words: tuple[str, ...]) -> Found:
    sentence = Sentence("", 0, 0, len(words), list(_iterate_items(words)))
    if any(item.kind in _NAMES for item in sentence.items):
        _Forward(sentence, words).run()
        judge_seen(sentence)
        _either_or(sentence)
    return sentence.length, sentence.items, sentence.said, sentence.scopes, _tell_findings(sentence)


def _tell_findings(sentence: Sentence) -> Told:
    judged = [(finding, finding.status) for finding in sentence.said if finding.status is not None]
    return Told(
        tuple((name, status) for finding, status in judged for name in finding.observations),
        any(item.kind in _SPEAKS or item.holds == "unchanged" for item in sentence.items),
        all(status == NEGATIVE for finding, status in judged if finding.observations != (DEVICES,)),
        tuple(finding for finding, status in judged if finding.observations == (EDEMA,) and status != NEGATIVE),
    )


def _iterate_items(words: Sequence[str]) -> Iterator[Item]:
    at, end, root = 0, len(words), tree()
    while at < end:
        word = words[at]
        if word not in root:
            if word == "?" and at + 1 < end:
                yield Item("doubt before", None, at, at + 1)
            at += 1
            continue
        entry, behind = longest(root, words, at, end, FILLERS)
        if entry is None:
            at += 1
            continue
        kind, holds = entry
        if kind != "part":
            yield Item(kind, holds, at, behind)
        elif _has_contour(words, behind):
            yield Item("seen", holds, at, behind)
        at = behind


def _has_contour(words: Sequence[str], at: int) -> bool:
    """Whether an adjective precedes a later noun: "cardiac and hilar contours"."""
    for word in words[at : at + 6]:
        if word in _CONTOURS:
            return True
        if word not in _BEFORE_CONTOURS:
            return False
    return False


class _Forward:
    """The pass from left to right."""

    def __init__(self, sentence: Sentence, words: Sequence[str]) -> None:
        self.items = sentence.items
        self.said = sentence.said
        self.scopes = sentence.scopes
        self.words = words
        self.scope = ""
        self.gone = ""
        self.soft: Item | None = None
        self.or_ahead, self.named_ahead = self._ahead()

    def _ahead(self) -> tuple[list[bool], list[bool]]:
        """For each item: whether "or", and a name, follow."""
        has_or = has_name = False
        ors, names = [], []
        for kind, _, _, _ in reversed(self.items):
            ors.append(has_or)
            names.append(has_name)
            if kind == "turn":
                has_or = has_name = False
            elif kind == "or":
                has_or = True
            elif kind in _NAMED_AHEAD:
                has_name = True
        return ors[::-1], names[::-1]

    def run(self) -> None:
        for at, item in enumerate(self.items):
            if handle := _HANDLERS.get(item.kind):
                handle(self, at, item)
            self.scopes.append(self.scope)

    def _open(self, scope: str, item: Item) -> None:
        self.scope, self.soft = scope, None
        self.gone = item.holds if item.kind.startswith("not") and item.holds else ""

    def turn(self, at: int, item: Item) -> None:
        self._open("", item)

    def softened(self, at: int, item: Item) -> None:
        self.soft = item
        if self.scope == ASKED and item.kind == "," and not self.or_ahead[at]:
            self.scope = ""
        if self.scope == DOUBT and (item.kind == "with" or (item.kind == "," and not self.or_ahead[at])):
            self.scope = ""

    def either(self, at: int, item: Item) -> None:
        """Uncertain alternatives: "atelectasis versus pneumonia"."""
        if item.holds and self.scope != NOT and self.said and self.items[at - 1].kind not in ("verb", "turn"):
            last_finding = self.said[-1]
            last_finding.status = UNCERTAIN if last_finding.status == POSITIVE else last_finding.status
            self._open(DOUBT, Item("or", None, item.first, item.behind))
        self.soft = item

    def about(self, at: int, item: Item) -> None:
        """New thing after a comma or "and": "no pneumothorax, small effusion"."""
        if self._affirms(at, item):
            return
        soft = self.soft
        if soft is None or not self._follows(soft, item) or soft.kind == "or":
            return
        if soft.kind != "," or not self.or_ahead[at]:
            self._open("", soft)

    def _follows(self, before: Item, item: Item) -> bool:
        """Whether nothing but articles stands between two phrases: "with a small effusion"."""
        return all(word in _ARTICLES for word in self.words[before.behind : item.first])

    def _affirms(self, at: int, item: Item) -> bool:
        """Whether a size undoes negation: "no pneumothorax, the effusion is small"."""
        verb = self.items[at - 1] if at else item
        if self.scope != NOT or verb.kind != "verb" or verb.behind != item.first or not self.said:
            return False
        last_finding = self.said[-1]
        if last_finding.joined in (",", "and") and last_finding.status == NEGATIVE:
            last_finding.status = POSITIVE
            self._open("", verb)
            return True
        return False

    def border(self, at: int, item: Item) -> None:
        following = self.items[at + 1 : at + 2]
        if self.scope != NOT and following and following[0].kind == "finding":
            self._open(DOUBT, item)

    def held(self, at: int, item: Item) -> None:
        self._open(HELD, Item("held", None, 0, 0))

    def asked(self, at: int, item: Item) -> None:
        if self.scope != NOT:
            self._open(ASKED, item)

    def not_before(self, at: int, item: Item) -> None:
        if not self.named_ahead[at]:
            if (at and self.items[at - 1].kind == ":") or item.holds:
                self._back(at, NEGATIVE, item)
            return
        self._open(NOT, item)

    def doubt_before(self, at: int, item: Item) -> None:
        if not self.named_ahead[at]:
            aside = self.soft is not None and self.soft.behind == item.first and item.behind < len(self.words)
            turned = self.said and any(item.kind == "turn" for item in self.items[self.said[-1].at : at])
            if not aside and not turned:  # "nodular density, possibly a nipple": what is possible is no observation
                self._back(at, UNCERTAIN, item)
        elif self.scope != NOT or self.soft is not None:
            self._open(DOUBT, item)

    def doubt_of(self, at: int, item: Item) -> None:
        if self.scope != NOT:
            self._open(DOUBT, item)

    def fits(self, at: int, item: Item) -> None:
        if self.scope not in (NOT, DOUBT):
            self._open("", item)

    def not_behind(self, at: int, item: Item) -> None:
        if not self._back(at, NEGATIVE, item):
            self._open(NOT, item)

    def doubt_behind(self, at: int, item: Item) -> None:
        if not self._back(at, UNCERTAIN, item):
            self._open(DOUBT, item)

    def named(self, at: int, item: Item) -> None:
        observations, plain = item.holds if item.kind == "finding" else ((), POSITIVE)
        joined = self.soft.kind if self.soft is not None else ""
        device = observations == (DEVICES,)
        parted = joined in (",", "and", "with") and not self.or_ahead[at]
        if self.scope == NOT and parted and device and self.said and self.said[-1].observations != observations:
            self._open("", item)  # "no pneumothorax, tube in place"
        status = {NOT: NEGATIVE, DOUBT: UNCERTAIN, ASKED: None}.get(self.scope, plain)
        finding = Said(at, observations, status, self.scope, joined=joined)
        if self.scope == NOT and self.gone:
            finding.trend = self.gone
        self.said.append(finding)
        self.soft = None

    def seen(self, at: int, item: Item) -> None:
        soft = self.soft
        if soft is not None and soft.kind in (",", "and", "with") and not self.or_ahead[at] and self._begins(at):
            self._open("", item)  # "no effusion, and the lungs are clear"
        self.said.append(Said(at, item.holds, None, self.scope))
        self.soft = None

    def _back(self, at: int, status: int, item: Item) -> bool:
        """Gives the last named things a status; whether any exist."""
        nearest = right = -1
        for finding in reversed(self.said):
            if self.items[finding.at].kind == "seen" and not finding.observations:
                if self._begins(finding.at):  # "tube in place, tip not seen"
                    return nearest >= 0
                continue
            if nearest < 0:
                nearest = finding.at
            elif not self._joined(finding.at, right, right == nearest):
                break
            right = finding.at
            if self.items[finding.at].kind == "seen":
                finding.doubted = status == UNCERTAIN
            elif finding.scope != ASKED and not self._is_tip(finding, item):
                # "no evidence that the effusion has resolved"
                twice = (
                    finding.scope == NOT
                    and not finding.joined
                    and item.holds
                    and status == NEGATIVE
                    and not finding.trend
                )
                finding.status = POSITIVE if twice else status
                finding.trend = item.holds or finding.trend
        return nearest >= 0

    def _is_tip(self, said: Said, cue: Item) -> bool:
        """Whether a device's invisible part is named: "tip of the catheter"."""
        before = self.items[said.at - 1] if said.at else None
        if said.observations != (DEVICES,) or cue.holds or before is None:
            return False
        return before.kind == "seen" and not before.holds and self.items[said.at].first - before.behind <= _OF

    def _begins(self, at: int) -> bool:
        """Whether something starts a thought, not a location."""
        item, before = self.items[at], self.items[at - 1] if at else None
        if before is None:
            return item.first <= 1
        return before.kind in (",", "and", "with", "turn") and item.first - before.behind <= 1

    def _joined(self, left: int, right: int, nearest: bool) -> bool:
        kinds = [item.kind for item in self.items[left + 1 : right]]
        if not all(kind in _SOFT or kind in ABOUT for kind in kinds):
            return False
        return "and" in kinds or "or" in kinds or (not nearest and "," in kinds)


_HANDLERS: dict[str, Callable[[_Forward, int, Item], None]] = {
    "turn": _Forward.turn,
    ":": _Forward.turn,
    ",": _Forward.softened,
    "and": _Forward.softened,
    "or": _Forward.either,
    "with": _Forward.softened,
    "size": _Forward.about,
    "side": _Forward.about,
    "normal": _Forward.about,
    "large": _Forward.about,
    "border": _Forward.border,
    "change": _Forward.about,
    "held": _Forward.held,
    "asked": _Forward.asked,
    "not before": _Forward.not_before,
    "doubt before": _Forward.doubt_before,
    "doubt of": _Forward.doubt_of,
    "fits": _Forward.fits,
    "not behind": _Forward.not_behind,
    "doubt behind": _Forward.doubt_behind,
    "finding": _Forward.named,
    "other": _Forward.named,
    "seen": _Forward.seen,
}


def _either_or(sentence: Sentence) -> None:
    """Puts in doubt two findings of which one or the other is there."""
    for first, second in zip(sentence.said, sentence.said[1:], strict=False):
        kinds = [item.kind for item in sentence.items[first.at + 1 : second.at]]
        if "or" not in kinds or not all(kind in ("or", "and", *ABOUT) for kind in kinds):
            continue
        both = (first, second)
        if all(finding.status in (POSITIVE, UNCERTAIN) and not finding.scope for finding in both) and all(
            finding.observations != (DEVICES,) and sentence.items[finding.at].kind == "finding" for finding in both
        ):
            first.status = second.status = UNCERTAIN

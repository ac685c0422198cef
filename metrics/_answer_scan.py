"""The single rules of the cascade for one option; `medimg_eval.metrics._answer_choice` puts them in order."""

from __future__ import annotations

import re
from itertools import pairwise

from medimg_eval.metrics._answer_labels import SEPARATOR
from medimg_eval.metrics._answer_negation import denied_after, denied_before, denies
from medimg_eval.metrics._answer_phrases import ANSWER, CONDITIONAL, DISBELIEF, MARK, SOFT, WITHDRAWN
from medimg_eval.metrics._answer_polar import yes_or_no
from medimg_eval.metrics._answer_settle import DISAGREE, SEVERAL, Asked, Found, beside, others, settle
from medimg_eval.metrics._answer_options import spelled
from medimg_eval.metrics._answer_text import refuses

_SENTENCES = re.compile(r"(?<=[.!?;])(?<!\b[A-Za-z]\.)\s+|(?<=[。！？；])|\n+")
_CONCLUDES = re.compile(
    r"\b(?:therefore|thus|hence|so|overall|in conclusion|conclusion|in summary|impression|final|diagnosis|most (?:likely|consistent|probable|compatible|suggestive"
    r"|appropriate)|consistent with|(?:looks?|more) like|favou?rs?|best|ultimately|answer)\b|所以|因此|综上"
)
_STATES = re.compile(
    r"(?:\b(?:is|are|shows?|showing|demonstrates?|depicts?|represents?|reveals?|indicates?|suggests?|suggestive of|consistent with|compatible with|diagnosis|likely"
    r"|favou?rs?|diagnostic of|characteristic of|findings of|identified as|called|means?|see)\b|^|: )\s*(?:an?\b|the\b|that of|\s)*$"
)
_RIGHT = re.compile(r"[✓✔✅☑]|\[x\]|\b(?:correct|true|yes|right|best)\b")
_WRONG = re.compile(r"[✗✘❌×✕]|\[ \]|\b(?:incorrect|false|no|wrong|not|n't|unlikely|ruled out|excluded|less)\b")
_TENTATIVE = re.compile(r"\b(?:could|may|might|possibly|perhaps|maybe)\b")
_WOULD = re.compile(r"\b(?:would|could|might|should)\b")
_CLAUSE = re.compile(r",? \b(?:but|however|although|though|whereas|while)\b")
_COURTESY = re.compile(r"\b(?:good|great|excellent|interesting|normal) (?:question|morning|afternoon|evening|day|point|observation)\b")
_DISCOURSE = re.compile(r"\b(?:therefore|so|thus|hence|however|but|best|most|final|overall|better|conclu\w+)\b")


def explicit(text: str, asked: Asked) -> tuple[Found] | None:
    """Returns the last answer that is marked ("<answer>B</answer>") or announced ("the answer is B")."""
    low = _lower(text)
    places = [(found.start(), found.start() + 1, "marked answer") for found in MARK.finditer(text)]
    places += [(found.start(), found.end(), "answer phrase") for found in ANSWER.finditer(low)]
    soft = [(found.start(), found.end(), "diagnosis phrase") for found in SOFT.finditer(low)]
    for group in (places, soft):
        for start, end, rule in sorted(group, reverse=True)[:24]:
            if rule != "marked answer" and _disbelieved(low, start):
                continue
            found = settle(text[end:], asked, rule)
            if found is None or (group is soft and found.label is None):
                continue
            if _withdrawn(low, end):
                continue
            return (found,)
    return None


def claimed(text: str, asked: Asked) -> Found | None:
    """Returns the option of the last claim about a label: "B is correct", "I would go with B", "therefore B"."""
    low = _lower(text)
    claims: list[tuple[int, str | None, bool, bool]] = []
    for pattern in (asked.phrases.verdict, asked.phrases.choose, asked.phrases.native):
        for found in pattern.finditer(text):
            name = "last" if "last" in pattern.groupindex and found["last"] is not None else "label"
            start, end = found.span(name)
            label = asked.labels.canonical(text[start:end])
            verdict = pattern is not asked.phrases.choose
            if label not in asked.sheet.keys or not _usable(text, low, found, (start, end), asked, verdict=verdict):
                continue
            several = others(text[end:], label, asked) or _joined_before(text, start, asked, label)
            tentative = bool(_TENTATIVE.search(low[max(0, start - 24) : start]))
            claims.append((start, None if several else label, verdict, tentative))
    if not claims:
        return None
    claims.sort(key=lambda claim: claim[0])
    last = claims[-1]
    if last[1] is None:
        return Found(None, SEVERAL)
    labels = {claim[1] for claim in claims}
    if len(labels) > 1 and all(claim[3] for claim in claims):
        return Found(None, SEVERAL)
    if len(labels) > 1 and all(claim[2] for claim in claims):
        before = low[max(0, last[0] - 60) : last[0] + 60]
        return Found(last[1], "claim") if _DISCOURSE.search(before) else Found(None, SEVERAL)
    return Found(last[1], "claim")


def lines(text: str, asked: Asked, bolds: list[str]) -> Found | None:
    """Returns the option that a line of its own, the first words, or the only bold label name."""
    rows = [row.strip() for row in text.replace("\x02", " ").replace("\x03", " ").split("\n") if row.strip()]
    if not rows:
        return None
    items = [(row, found) for row in rows if (found := _item(row, asked))]
    labels = {asked.labels.canonical(found["label"]) for _, found in items}
    if len(labels) > 1 and len(items) > 1 and (judged := _judged_items(items, asked)):
        return judged
    if len(rows) > 1 and all(asked.labels.alone.fullmatch(row) for row in rows[-2:]) and rows[-1] != rows[-2]:
        return Found(None, SEVERAL)
    last = _line(rows[-1], asked)
    if last and len(rows) > 1 and (len(labels) < 2 or asked.labels.alone.fullmatch(rows[-1])):
        return Found(last.label, "last line") if last.label else last
    if found := _first(rows, items, asked):
        return found
    if found := _bold(bolds, asked):
        return found
    return _ending(rows[-1], asked)


def _ending(row: str, asked: Asked) -> Found | None:
    """Returns the label that a text ends with, apart from its last sentence: "(B)", ": B", "! B"."""
    found = re.search(rf"(?:[(\[]|(?:[a-z)\"'][.!?:,]|—|–)\s+){asked.labels.token}[)\]]?[\s.!]*$", row[-40:])
    if not found or not found["label"].isupper() or asked.labels.digits:
        return None
    start, end = (place + max(0, len(row) - 40) for place in found.span("label"))
    if denied_before(row.lower(), start) or not asked.labels.is_label(row, start, end):
        return None
    return asked.known(found["label"], "last words")


def polar(text: str, asked: Asked) -> Found | None:
    """Returns the option that says yes, or no, where exactly one does and the text answers so."""
    heads = {label: (re.findall(r"[^\W_]+", own) or [""])[0] for label, own in asked.sheet.texts.items()}
    said = {word: [label for label, head in heads.items() if head == word] for word in ("yes", "no", "true", "false")}
    pairs = [(said["yes"], said["no"]), (said["true"], said["false"])]
    for right, wrong in pairs:
        if len(right) == len(wrong) == 1:
            value, _ = yes_or_no(text)
            if value:
                return Found((right if value == "yes" else wrong)[0], "yes or no")
    return None


def mentioned(text: str, asked: Asked) -> Found | None:
    """Returns the only option that the text names and does not deny, by its label or by its text."""
    sentences = [
        one
        for one in _SENTENCES.split(text.replace("\x02", " ").replace("\x03", " "))
        if one and not one.rstrip().endswith(("?", "？")) and (not refuses(_lower(one)) or _offered(one, asked))
        and not (CONDITIONAL.search(_lower(one)) and _WOULD.search(_lower(one)))
    ]
    kept = "\n".join(sentences)
    labels = _named(kept, asked)
    if len(labels) > 1:
        return Found(None, SEVERAL)
    low = _COURTESY.sub("", spelled(kept))
    mentions = asked.sheet.affirmed(low)
    texts = {one.letter for one in mentions}
    if labels:
        if not texts or labels[0] in texts:
            return Found(labels[0], "mention")
        return Found(None, DISAGREE)
    if len(texts) == 1:
        return Found(texts.pop(), "mention")
    return _concluded(low, asked) if texts else _worded(low, asked)


def _offered(sentence: str, asked: Asked) -> bool:
    """Returns whether a sentence that says that it cannot be known says what one of the options says."""
    return any(refuses(asked.sheet.texts[one.letter]) for one in asked.sheet.mentions(spelled(sentence)))


def _named(text: str, asked: Asked) -> list[str]:
    """Returns the labels that a text names and does not deny, each once."""
    named: dict[str, None] = {}
    for start, end in asked.labels.affirmed(text, _lower(text)):
        label = asked.labels.canonical(text[start:end])
        if label in asked.sheet.keys:
            named[label] = None
            if others(text[end:], label, asked):
                named[""] = None
    return list(named)


def without_echo(text: str, asked: Asked) -> tuple[str, bool]:
    """Returns a text without a list in which the model repeats the options, and whether there was one."""
    spans: dict[str, tuple[int, int]] = {}
    for found in asked.labels.item.finditer(text):
        label = asked.labels.canonical(found["label"])
        own = asked.sheet.texts.get(label)
        if own and label not in spans and not (asked.labels.digits and len(own) < 2):
            size = _spelled_prefix(text, found.end(), own)
            if size:
                spans[label] = (found.start(), found.end() + size)
    needed = min(len(asked.sheet.keys), 3)
    if len(spans) < max(2, needed):
        return text, False
    if any(_RIGHT.search(_lower(text[end : end + 40]).split("\n")[0]) or _WRONG.search(_lower(text[end : end + 40]).split("\n")[0]) for _, end in spans.values()):
        return text, False
    places = sorted(spans.values())
    if any(re.search(r"\w{2}", text[one[1] : two[0]]) or two[0] - one[1] > 12 for one, two in pairwise(places)):
        return text, False
    for start, end in reversed(places):
        text = text[:start] + "\n" + text[end:].lstrip(" .,;|")
    return re.sub(r"(?i)\b(?:the )?(?:answer )?(?:options|choices)(?: are| were)?(?: as follows)?\s*:?\s*\n", "\n", text + "\n").strip(), True


def why_not(text: str) -> str:
    """Returns the name of what a text did in place of an answer."""
    return "refused" if refuses(_lower(text)) else "nothing found"


def _lower(text: str) -> str:
    """Returns a text in lower case, of the same length."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)


def _disbelieved(low: str, start: int) -> bool:
    """Returns whether what a text announces is a condition, a doubt, or what somebody else says."""
    left = low[max(0, start - 160) : start]
    sentence = re.split(r"[.!?]\s|\n", left)[-1]
    return bool(DISBELIEF.search(left) or CONDITIONAL.search(sentence))


def _withdrawn(low: str, end: int) -> bool:
    """Returns whether a text takes back what it has just said."""
    after = re.search(r"[,.;!?—–\n\x03]", low[end : end + 120])
    return bool(after and WITHDRAWN.match(low[end + after.start() : end + 200]))


def _usable(text: str, low: str, found: re.Match[str], place: tuple[int, int], asked: Asked, *, verdict: bool) -> bool:
    """Returns whether a claim is affirmed and its letter is used as a label."""
    start, end = place
    token = text[start:end]
    if token.islower() and not _lower_label(low, start, end, verdict=verdict and not found["gap"]):
        return False
    if not asked.labels.digits and not asked.labels.is_label(text, start, end):
        return False
    if asked.labels.digits and not re.search(r"(?:option|choice|answer|number|no\.|[(\[]|选项|选|choose|select|pick)\s*$", low[max(0, start - 10) : start]):
        return False
    if _disbelieved(low, found.start()) or denied_before(low, start):
        return False
    return not (denied_after(low, found.end()) if verdict else denied_after(low, end)) and not _asked_back(text, end) and not _withdrawn(low, end)


def _lower_label(low: str, start: int, end: int, *, verdict: bool) -> bool:
    """Returns whether a letter in lower case is used as a label: after "option", in brackets, or before a stop."""
    if re.search(r"(?:option|choice|answer|letter|[(\[])\s*[(\[]?$", low[max(0, start - 10) : start]):
        return True
    return bool(verdict or re.match(r"\s*(?:[.,;!)]|$|\n|because\b|here\b)", low[end : end + 12]))


def _asked_back(text: str, end: int) -> bool:
    stop = re.search(r"[.!?\n]", text[end:])
    return bool(stop and stop[0] == "?")


def _joined_before(text: str, start: int, asked: Asked, label: str) -> bool:
    """Returns whether a label is the last of several: "A and C are correct"."""
    left = re.search(rf"{asked.labels.token}[)\]\"']*\s*(?:,|and|or|&|/|\+)\s*(?:option |and |or )?[(\[\"']*$", text[max(0, start - 24) : start])
    return bool(left) and left["label"].upper() in asked.sheet.keys and left["label"].upper() != label and left["label"].isupper()


def _item(row: str, asked: Asked) -> re.Match[str] | None:
    """Returns the label that a line begins with, where a mark divides it from what follows."""
    found = asked.labels.item.match(row)
    if not found or not asked.labels.is_label(row, *found.span("label")):
        return None
    return found if found["label"].isupper() or asked.labels.digits or row[found.end("label") : found.end("label") + 1] in {")", ".", ":", "", "]"} else None


def _line(row: str, asked: Asked) -> Found | None:
    """Returns what a line commits to that holds a label, or a label and its option's text, and no more."""
    if len(row) < 60 and (alone := asked.labels.alone.fullmatch(row)):
        return asked.known(asked.labels.canonical(alone["label"]), "last line")
    item = _item(row, asked)
    if item and (said := asked.sheet.exact(row[item.end() :])):
        label = asked.labels.canonical(item["label"])
        return Found(label, "last line") if label == said else Found(None, DISAGREE)
    if label := asked.sheet.exact(row):
        return Found(label, "last line")
    return None


def _first(rows: list[str], items: list[tuple[str, re.Match[str]]], asked: Asked) -> Found | None:
    """Returns what the first line commits to by its first words."""
    found = _item(rows[0], asked)
    if not found:
        verb = asked.labels.one.match(rows[0])
        return asked.known(verb["label"], "first words") if verb and _opens(rows[0], verb, asked) else None
    label = asked.labels.canonical(found["label"])
    labels = {asked.labels.canonical(item["label"]) for row, item in items if row is not rows[0]}
    if label not in asked.sheet.keys:
        return Found(None, "foreign label")
    if labels - {label} and min(labels) > label and len(rows[0]) > len(found[0]) + 2:
        return Found(None, SEVERAL)
    if denied_after(rows[0].lower(), found.end()) or denied_after(rows[0].lower(), found.end("label")):
        return None
    said = beside(rows[0][found.end() :], asked)
    if said and said[0] != label:
        return Found(None, DISAGREE)
    return Found(None, SEVERAL) if others(rows[0][found.end("label") :], label, asked) else Found(label, "first words")


def _opens(row: str, found: re.Match[str], asked: Asked) -> bool:
    """Returns whether a sentence begins with a label and its reason: "B because ...", "B, as ..."."""
    token, after = found["label"], row[found.end() :]
    if asked.labels.digits or not token.isupper() or not asked.labels.is_label(row, *found.span("label")):
        return False
    return token in asked.sheet.keys and bool(re.match(r"\s+(?:because|since|as|due to|given|based on|rather than|instead of|it is\b|\(|>)", after))


def _bold(bolds: list[str], asked: Asked) -> Found | None:
    """Returns the only option that stands in bold by its label."""
    named = []
    for text in bolds:
        found = _line(text.strip(" :"), asked)
        if found is None and (item := _item(text, asked)) and len(item[0]) < len(text):
            found = asked.known(asked.labels.canonical(item["label"]), "bold label")
        if found and found.label:
            named.append(found.label)
    if len(set(named)) == 1:
        return Found(named[0], "bold label")
    return None


def _judged_items(items: list[tuple[str, re.Match[str]]], asked: Asked) -> Found | None:
    """Returns the one option that a list of the options calls right."""
    right, wrong = [], []
    for row, found in items:
        label, after = asked.labels.canonical(found["label"]), _lower(row)
        if _WRONG.search(after[: found.end()] + " " + after[found.end() :]) and not re.search(r"[✓✔✅☑]|\[x\]", after):
            wrong.append(label)
        elif _RIGHT.search(after):
            right.append(label)
    if len(set(right)) == 1 and right[0] in asked.sheet.keys and right[0] not in wrong:
        return Found(right[0], "verdict per option")
    return Found(None, SEVERAL) if len(set(right)) > 1 else None


def _concluded(low: str, asked: Asked) -> Found | None:
    """Returns the only option that a spelled text concludes with, or states as what there is."""
    sentences = [one for whole in _SENTENCES.split(low) for one in _CLAUSE.split(whole) if one]
    for sentence in reversed(sentences):
        named = {one.letter for one in asked.sheet.affirmed(sentence)}
        if len(named) == 1 and _CONCLUDES.search(sentence):
            return Found(named.pop(), "conclusion")
        if _side_by_side(sentence, asked):
            return Found(None, SEVERAL)
    stated = {one.letter for sentence in sentences for one in asked.sheet.affirmed(sentence) if _STATES.search(sentence[: one.start])}
    return Found(stated.pop(), "conclusion") if len(stated) == 1 else Found(None, SEVERAL)


def _worded(low: str, asked: Asked) -> Found | None:
    """Returns the only option whose words stand in a sentence that denies nothing, in whatever order."""
    named = {label for one in _SENTENCES.split(low) if one and not denies(one) and (label := asked.sheet.words(one))}
    return Found(named.pop(), "words of one option") if len(named) == 1 else None


def _side_by_side(sentence: str, asked: Asked) -> bool:
    """Returns whether a spelled sentence names two options at one go: "pneumonia or effusion"."""
    named = asked.sheet.affirmed(sentence)
    return any(
        one.letter != two.letter and re.fullmatch(rf"\s*{SEPARATOR}\s*(?:an? |the )?", sentence[one.end : two.start])
        for one, two in pairwise(named)
    )


def _spelled_prefix(text: str, start: int, own: str) -> int:
    """Returns how many characters of a text spell an option's text, 0 if it does not begin with it."""
    place = start + len(text[start : start + 4]) - len(text[start : start + 4].lstrip(" \"'*"))
    for size in range(len(own), min(len(own) * 2 + 12, len(text) - place) + 1):
        if spelled(text[place : place + size]).strip(" .,;") in (own, f"the {own}", f"a {own}", f"an {own}"):
            after = text[place + size : place + size + 1]
            if not after.isalnum():
                return place + size - start
        if size > len(own) + 12:
            break
    return 0

"""The phrases by which a text commits to an answer, in the languages that medical benchmarks are asked in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from medimg_eval.metrics.answers.markup import CLOSE, OPEN
from medimg_eval.metrics.answers.option_labels import WORD
from medimg_eval.metrics.nlp import either, late_pattern

MARK = late_pattern(f"{OPEN}([^{CLOSE}]*)")

_BE = either(
    """is, was, are, would be, will be, should be, must be, has to be, may be, might be, could be, seems to be,
    appears to be, remains, is likely, is thus, is therefore, is hence, becomes, 's"""
)
_IS = (
    rf"(?:\s*(?:option|choice|letter))?\s*(?:[:=：]|→|->|=>|[-–—](?=\s)|{_BE}\b)"
    r"(?:\s*(?:most likely|probably|likely|clearly|therefore|thus|then))*(?:\s+to be)?\s*[:=]?"
)
_OF = (
    r"(?:\s+(?:to|for|of|in|among|based on|given|from)\s+(?:the|this|these|that|your|my|our)[^.:\n]{0,60}?)?"
    r"(?:\s*\([^()\n]{0,40}\))?"
)
_GOODS = (
    *("correct", "right", "best", "final", "selected", "chosen", "predicted", "my", "proper", "appropriate"),
    *("accurate", "likely", "suitable", "fitting"),
)
_GOOD = either(",".join(_GOODS))
_ONE = either(
    "response, option, choice, selection, letter, label, one, alternative, decision, conclusion, output, match, pick"
)
_HEADS = either(
    "ans, answer, final answer, correct, response, choice, option, letter, selection, result, final, output"
)
_CHINESE = (
    r"(?:最终|正确|所以|因此|故|本题|我的|最佳)?的?(?:答案|正确选项|最佳选项|选择|正解|正確答案|答え|解答|回答)"
    r"(?:应该|应当|应|就|只能|最可能)?(?:是|为|選|选择?|[:=]|は|应为|為)\s*:?"
    r"|(?:应该|应|故|只能|因此|所以|建议|我)?(?:选择|选|選)(?:择|项|了|的是)?\s*:?(?=\s*[(\"'\[]*[a-j0-9])|选项(?:是|为|:)"
)
_JAPANESE = (
    r"(?:最も|もっとも|最初に|まず|第一に)[^。、,:\n]{0,24}?のは[、,]?\s*"
    r"|(?:最も|もっとも)(?:考えられ|考えやす|疑われ|適切|妥当|可能性|当てはま|適し|適当)[^。、,:\n]{0,20}?は[、,]?\s*"
    r"|べき(?:なの|もの)?[^。、,:\n]{0,10}?は[、,]\s*"
)
_KOREAN = r"(?:최종\s*)?(?:정답|답변|답)(?:은|는|:|\s+)\s*:?"
_ARABIC = (
    r"(?:الإجابة|الجواب|الاجابة|الخيار|إجابتي|الاختيار)(?:\s+(?:الصحيحة?|النهائية?|هو|هي|الأصح|الأنسب))*\s*"
    r"(?::|هي|هو|(?<=هي)|(?<=هو)|(?<=الصحيح)|(?<=الصحيحة))"
)
_HEBREW = r"(?:התשובה|תשובה|תשובתי|האפשרות|הבחירה)(?:\s+(?:הנכונה|הסופית|סופית|שלי))*\s*(?::|היא(?!\w)|הינה(?!\w))\s*:?"
_EUROPEAN = (
    r"\b"
    + either(
        """respuesta, opción, alternativa, resposta, opção, réponse, l'option, antwort, risposta, opzione, svar,
        antwoord, cevap, jawaban, ответ, вариант, đáp án, câu trả lời, lựa chọn, trả lời, phương án"""
    )
    + r"(?:\s+"
    + either(
        r"""correcta?, corretta, correcte, correto, correta, final, finale, lautet, richtige, doğru, đúng, cuối cùng,
        exacte, es, bonne, chính xác, nhất, yang benar, benar, la más \w+, la, le, adequada, adecuada, правильный"""
    )
    + r")*\s*(?:[:=]|—|-(?=\s)|\b(?:es|est|é|è|ist|là|adalah|la|lautet)\b)\s*:?"
    r"|\b(?:chọn|elijo|elegiría|escolho|choisis|wähle)"
    r"(?:\s+(?:đáp án|la opción|a opção|l'option|phương án|câu))?(?=\s+\W*[a-j]\b)"
)
_ANSWER = late_pattern(rf"(?:answers?|ans|solution|prediction|verdict){_OF}{_IS}")
_ANSWERS = ("ans", "solution", "prediction", "verdict")
_GOOD_ONE = late_pattern(
    rf"{_GOOD}\s+(?:and \w+ )?(?:answer |response )?{_ONE}{_OF}(?:\s+(?:that|which)\s[^.:\n]{{1,60}}?)?{_IS}"
)
_HEAD = late_pattern(rf"[^\S\n]*{_HEADS}\s*(?:[:=.]|\n)")
_SPOKEN = late_pattern(r"\ba:(?=\s*\(?[a-z]\)?\s*$)|(?<=\?)\s*a:")
_EUROPE = late_pattern(_EUROPEAN)
_IN_EUROPE = (
    "resp",
    "opci",
    "opç",
    "altern",
    "répons",
    "antwort",
    "rispo",
    "opzio",
    "svar",
    "antwoord",
    "cevap",
    "jawab",
    "ответ",
    "option",
    "вариант",
    "đáp",
    "trả",
    "lựa",
    "phương",
    "chọn",
    "elij",
    "eleg",
    "escol",
    "choisi",
    "wähl",
)
_SUPERLATIVE = (
    r"\b(?:el|la|lo|o|a)\s(?:[^\W\d]+\s){0,3}(?:más|mais)\s"
    r"(?:probable|prov[áa]vel|adecuad[oa]|adequad[oa]|apropiad[oa]|correct[oa]|indicad[oa])\s(?:es|é|sería|seria)\b\s*:?"
)
_OTHER = late_pattern(
    "|".join(
        [
            _SUPERLATIVE,
            _CHINESE,
            _JAPANESE,
            _KOREAN,
            _ARABIC,
            _HEBREW,
            r"(?:^|\n)答:",
            r"उत्तर(?:\s+है)?\s*:?",
            r"คำตอบ(?:ที่ถูกต้อง)?(?:คือ|:)?",
        ]
    )
)


def announcements(low: str) -> list[tuple[int, int]]:
    """Returns (start, end) of phrases like "the correct answer is" in lower-case text."""
    patterns = [_SPOKEN] if "a:" in low else []
    if any(stem in low for stem in _IN_EUROPE):
        patterns.append(_EUROPE)
    if not low.isascii():
        patterns.append(_OTHER)
    spans = [match.span() for pattern in patterns for match in pattern.finditer(low)]
    return [*spans, *_at_words(_ANSWER, _ANSWERS, low), *_at_words(_GOOD_ONE, _GOODS, low), *_at_lines(_HEAD, low)]


def _at_words(pattern: re.Pattern[str], stems: Sequence[str], low: str) -> Iterator[tuple[int, int]]:
    """Yields matches of a pattern at words with given stems."""
    for stem in stems:
        position = low.find(stem)
        while position >= 0:
            before = low[position - 1 : position]
            if not before.isalnum() and before != "_" and (match := pattern.match(low, position)):
                yield match.span()
            position = low.find(stem, position + len(stem))


def _at_lines(pattern: re.Pattern[str], low: str) -> Iterator[tuple[int, int]]:
    """Yields where a pattern matches at the beginning of a line."""
    position = 0
    while position >= 0:
        if match := pattern.match(low, position):
            yield match.span()
        position = low.find("\n", position) + 1 or -1


_SOFT = late_pattern(
    r"(?:diagnosis|impression|finding|conclusion|assessment|modality|interpretation)"
    r"(?:\s+(?:here|in this (?:case|image)))?\s*(?::|\bis\b)"
)
_SOFTS = ("diagnosis", "impression", "finding", "conclusion", "assessment", "modality", "interpretation")


def diagnoses(low: str) -> list[tuple[int, int]]:
    """Returns spans announcing possible answers, "diagnosis:", in text order."""
    return sorted(_at_words(_SOFT, _SOFTS, low))


CONDITIONAL = late_pattern(
    r"\b(?:if|unless|assuming|suppose|supposing|were (?:it|the|this)|had (?:the|it|this))\b"
    r"(?! (?:i |we )?(?:had|have|were|must|am|look|forced|was)\b| forced| pressed| i'm| you| possible| not)"
)
DISBELIEF = late_pattern(
    r"\b"
    + either(
        r"""whether, cannot, can't, unable, not sure, unsure, don't know, doubt, don't think, do not think, not,
        someone, some people, wrong to say, say that the, claims?, previous(?:ly)?, user, you said, first thought,
        initially, originally, pretend, format, typically, usually, generally, often, normally, in general, example,
        e\.g\., such as"""
    )
    + r"\b[^.,;:!?\n]{0,40}$|n't\b[^.,;:!?\n]{0,40}$|[不别勿非没](?:能|应|该|应该|可)?$"
    r"|(?:无法|难以|不能|不知道|不确定)[^。.,;!?\n]{0,20}$|(?:^|\s)(?:אם|האם)\s[^.,;!?\n]{0,20}$"
)
"""Stands before what is no commitment: a doubt, what somebody else says."""

WITHDRAWN = late_pattern(
    r"[\s.,;!?—-]*(?:\(?(?:but|however|though|and|no|wait|hmm|actually|oops|sorry)[\s,.:—-]*)*"
    r"(?:i (?:withdraw|retract|take back)\b|(?:(?:i think|i see|i realize|i believe)[\s,]*)?"
    r"(?:that|this|it|which|the above|my answer|the answer)"
    r"(?:'s|\s+(?:is|was|would be|seems|can't be|cannot be|isn't|is not|could not be))?\s+"
    r"(?:also |actually |clearly |probably |obviously )?"
    + either(
        """wrong, incorrect, not (?:right|correct|true|quite|accurate), mistaken, a mistake, an error, false, right$,
        correct$"""
    )
    + ")"
)
"""Stands after a commitment and takes it back."""

_CORRECTION = late_pattern(
    r"\b"
    + either(
        r"""(?<!can )(?<!could )(?<!should )(?<!to )(?<!may )(?<!must )(?<!not )(?<!will )wait(?! until| for),
        correction, corrected(?= ?(?:answer|to)?:), scratch that, on second thoughts?, let me re-?\w+,
        let me (?:think again|double.?check|correct),
        i (?:made a mistake|was wrong|take that back|misread|misspoke|meant|mean), oops, hold on,
        chang(?:e|ed|ing) (?:my mind|(?:my|the) (?:final )?answer)(?: (?:from \W*\w\W+)?to)?, edit(?=:), revised,
        updated answer, my apologies, apologies, i stand corrected, strike that, never ?mind"""
    )
    + r"\b|\b(?:up)?on (?:further|closer|second) "
    + either(r"re\w+, look, inspection, examination, thought, consideration, analysis")
    + r"\b|\b(?:up)?on re-?"
    + either("examin, consider, evaluat, assess, inspect, view, think, read, check")
    + r"\w*|\b(?:after|when|now) (?:re-?)?"
    + either("look, check, think, view, examin, consider, inspect, read")
    + r"\w*(?: [a-z]+){0,4} (?:again|once more|more (?:carefully|closely)|a second time)\b"
    r"|(?:[.!?\n,;—-]\s*|\bbut )(?:actually|hmm|rather(?! than))\b|(?<=[.!?\n…])\s*(?:no|sorry)[,.]"
    r"|等等|等一下|不对|更正|重新考虑|修正|いや|待って"
)
_CORRECTS = tuple(
    """wait|correction|corrected|let me correct|let me re|let me think|let me double|scratch|second|i made|i was|i take
    |i mis|i mean|i stand|oops|hold on|my mind|my answer|answer to|answer from|edit:|revised|apolog|actually|hmm|rather
    |no,|no.|sorry|updated|further|closer|strike|never mind|nevermind|on re|again|once more|more c|等|不对|更正|重新
    |修正|いや|待って""".replace("\n    ", "").split("|")
)


def corrections(low: str) -> list[tuple[int, int]]:
    """Returns spans of corrections, "wait, actually", after a text's beginning."""
    plain = low.replace("against", "")
    if not any(stem in plain for stem in _CORRECTS):
        return []
    return [match.span() for match in _CORRECTION.finditer(low) if match.start() > 0]


WITHDRAWAL = late_pattern(
    r"\b"
    + either(
        r"""scratch that, take that back, re-?(?:consider|evaluate|think|assess|examine|check), think again,
        not (?:right|correct), incorrect, wrong, made a mistake, not sure, unsure, never ?mind, strike that"""
    )
    + r"\b|不对|重新考虑"
)
NOTHING = late_pattern(
    r"\W*"
    + either(
        r"""none\b, n/?a\b, nan\b, null\b, unknown, unclear, uncertain, undetermined, cannot, can't, can not, unable,
        not (?:sure|determin|possible|clear|given|provided|available|enough|known|applicable), impossible,
        insufficient, indeterminate, no (?:answer|option|correct),
        i (?:don't|do not|cannot|can't|am not|am unable|'m not), 无法, 不确定, 不知道, 都不, 没有, \?+$, tbd, undefined,
        error"""
    )
)
"""Stands where an answer should and says that there is none."""

_AFFIRMS = (
    r"(?:"
    + either(
        """clearly, definitely, likely, probably, thus, therefore, also, indeed, by far, certainly, actually, the, a,
        an, my, our, single, only, now, best, most, more, much, still"""
    )
    + r"\s+)*"
    + either(
        """correct, right, best, likely, accurate, answer, choice, option, true, consistent, plausible, appropriate,
        better, fit, match, probable, suitable, supported, favou?red, one, diagnosis, most"""
    )
    + r"\b"
)
_CHOOSE = either(
    r"""choos(?:e|ing), chose, chosen, select(?:ed|ing)?, pick(?:ed|ing)?, opt(?:ed|ing)? for,
    go(?:ing)? (?:with|for), went (?:with|for), vote(?: for)?, confiden\w+ (?:in|that), certain (?:of|that),
    (?:we|i) (?:have|get), probably, likely, presumably, possibly, maybe, perhaps, settle on, on (?:reflection|balance),
    lean(?:ing)? (?:more )?(?:towards?|to), favou?rs?, prefer, guess, say,
    (?:i|i'd|would|we|i'll|to|can|must|should) answer(?: with)?, answered(?: with)?, believe, think, conclude,
    predict, suggests?, suggesting, indicat\w+, supports?, supporting, point(?:s|ing)? (?:to|towards?),
    corresponds? (?:to|with), corresponding to, match(?:es|ing)?, consistent with, compatible with,
    leav(?:es|ing)(?: us with| only| just)?, left with, down to, be, it is, it's, (?<!so )is, that's, so, therefore,
    thus, hence, finally, then, overall, mean, meant, only, identif\w+ as, align\w* with, best with, rather,
    instead, than, like, with, fits?, mark(?:ed)?, tick(?:ed)?"""
)
_COPULA = either("is, was, are, seems, appears, looks, would be, should be, must be, remains, being, =")


_NO_LABEL = rf"(?![^{WORD}][A-Z0-9](?![{WORD}]))"
_GAP = rf"(?P<gap>(?:(?:{_NO_LABEL}[^.\n!?;\x02]){{1,70}}?)??)(?:(?<=[\s),:-])|(?<=[A-Ja-j0-9]))"

VERDICT = late_pattern(
    rf"[)\]\"']?[.:]?{_GAP}\s*(?:,\s*)?{_COPULA}\s+(?:to be\s+)?(?=(?i:{_AFFIRMS}))"
    r"|[)\]\"']?\s+(?:best |most closely |clearly |alone )?"
    r"(?:fits|matches|remains|stands out|wins|it is|describes|explains|does(?! not))\b"
    r"|\)?\?\s*(?i:yes|correct|right)\b"
)
"""Follows a label and calls it right: "B is correct"."""

VERDICT_ELSEWHERE = late_pattern(
    r"\s*[)\]]?\s*(?:选项|项|番|번|가|이)?\s*(?:是|为|が|는|은|가)?\s*(?:最|更)?"
    r"(?:正确|正しい|適切|正解|正答|合适|可能|符合|정답|입니다|です|だ|이다|더)"
)
"""The same in other languages."""

CHOICE = late_pattern(
    rf"(?:\b(?i:{_CHOOSE})\b|\b(?i:not|neither)\b[^.;!?\n]{{1,60}}?\b(?i:but(?: rather)?)\b"
    r"|→|->|=>|⇒|∴|✓|✔|✅|☑|\[[xX]\]|所以|因此|故|选|選|是|支持|\bبل|\bאלא)[ \t]*[,:]?[ \t]*"
    r"(?i:that\s+)?(?i:it(?:'s| is| must be| should be)\s+|(?:the )?(?:correct |right |best )?answer (?:is|to be)\s+)?"
    r"(?i:(?:clearly|definitely|likely|probably|most likely|either)\s+)?(?i:the\s+)?"
    r"(?i:(?:correct |right |best )?(?:option|choice|answer|letter|选项)s?\s*)?[(\[\"']{0,2}\Z"
)
"""Stands before a label and chooses it: "I would go with B"."""

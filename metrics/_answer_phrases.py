"""The phrases by which a text commits to an answer, in the languages that medical benchmarks are asked in."""

from __future__ import annotations

import re
from functools import lru_cache

from medimg_eval.metrics._answer_labels import WORD, Labels, labels_of
from medimg_eval.metrics._answer_marks import CLOSE, OPEN

_IS = (
    r"(?:\s*(?:option|choice|letter))?\s*(?:[:=：]|→|->|=>|[-–—](?=\s)|(?:is|was|are|would be|will be|should be|must be|has to be|may be"
    r"|might be|could be|seems to be|appears to be|remains|is likely|is thus|is therefore|is hence|becomes)\b)"
    r"(?:\s*(?:most likely|probably|likely|clearly|therefore|thus|then))*(?:\s+to be)?\s*[:=]?"
)
_OF = r"(?:\s+(?:to|for|of|in|among|based on|given|from)\s+(?:the|this|these|that|your|my|our)[^.:\n]{0,60}?)?(?:\s*\([^()\n]{0,40}\))?"
ANSWER = re.compile(
    rf"\b(?:answers?|ans|solution|prediction|verdict){_OF}{_IS}"
    rf"|\b(?:correct|right|best|final|selected|chosen|predicted|my|proper|appropriate|accurate|likely|suitable|fitting)\s+(?:and \w+ )?"
    rf"(?:answer |response )?(?:response|option|choice|selection|letter|label|one|alternative|decision|conclusion|output|match|pick)"
    rf"{_OF}(?:\s+(?:that|which)\s[^.:\n]{{1,60}}?)?{_IS}"
    r"|(?:^|\n)\s*(?:ans|answer|final answer|response|choice|option|letter|selection|result|final|output)\s*(?:[:=.]|\n)"
    r"|\ba:(?=\s*\(?[a-z]\)?\s*$)"
    r"|(?:最终|正确|所以|因此|故|本题|我的|最佳)?(?:的)?(?:答案|正确选项|最佳选项|选择|正解|正確答案|答え|解答|回答)(?:应该|应当|应|就|只能|最可能)?"
    r"(?:是|为|選|选择?|[:=]|は|应为|為)\s*[:]?"
    r"|(?:应该|应|故|只能|因此|所以|建议|我)?(?:选择|选|選)(?:择|项|了|的是)?\s*[:]?(?=\s*[(\"'\[]*[a-j0-9])|选项(?:是|为|[:])"
    r"|(?:최종\s*)?(?:정답|답|답변|정답지)(?:은|는|:|\s+)\s*[:]?"
    r"|(?:الإجابة|الجواب|الاجابة|الخيار|إجابتي|الاختيار)(?:\s+(?:الصحيحة?|النهائية?|هو|هي|الأصح|الأنسب))*\s*(?:[:]|هي|هو|(?<=هي)|(?<=هو)|(?<=الصحيح)|(?<=الصحيحة))"
    r"|\b(?:respuesta|opción|alternativa|resposta|opção|réponse|option|antwort|risposta|opzione|opcja|svar|antwoord|cevap|jawaban|ответ"
    r"|вариант|đáp án|câu trả lời|lựa chọn|trả lời|phương án)(?:\s+(?:correcta?|corretta|correcte|correto|final|finale|lautet|richtige|doğru|đúng|cuối cùng|"
    r"exacte|es|bonne|chính xác|nhất|yang benar|la más \w+|la|le|adequada|adecuada|correta|benar|правильный))*\s*(?:[:=]|—|-(?=\s)|\b(?:es|est|é|è|ist|là|adalah|la|lautet)\b)\s*[:]?"
    r"|\b(?:chọn|elijo|elegiría|escolho|choisis|wähle)(?:\s+(?:đáp án|la opción|a opção|l'option|phương án|câu))?(?=\s+\W*[a-j]\b)"
    r"|उत्तर(?:\s+है)?\s*[:]?|คำตอบ(?:ที่ถูกต้อง)?(?:คือ|:)?"
)
SOFT = re.compile(
    r"\b(?:diagnosis|impression|finding|conclusion|assessment|modality|interpretation)(?:\s+(?:here|in this (?:case|image)))?\s*(?::|\bis\b)"
)
CONDITIONAL = re.compile(
    r"\b(?:if|unless|assuming|suppose|supposing|were (?:it|the|this)|had (?:the|it|this))\b"
    r"(?! (?:i |we )?(?:had|have|were|must|am|look|forced|was)\b| forced| pressed| i'm| you| possible| not)"
)
DISBELIEF = re.compile(
    r"(?:\b(?:whether|cannot|can't|unable|not sure|unsure|don't know|doubt|don't think|do not think|not|n't|someone|some people|wrong to say|say that"
    r" the|claims?|previous(?:ly)?|user|you said|first thought|initially|originally|pretend|format|typically|usually|generally|often|normally|in general|example|e\.g\.|such as)\b)[^.,;:!?\n]{0,40}$"
)
WITHDRAWN = re.compile(
    r"[\s.,;!?—-]*(?:\(?(?:but|however|though|and|no|wait|hmm|actually|oops|sorry)[\s,.:—-]*)*(?:(?:i think|i see|i realize|i believe)[\s,]*)?(?:that|this|it|which|the above|my answer|the answer)"
    r"(?:'s|\s+(?:is|was|would be|seems|can't be|cannot be|isn't|is not|could not be))?\s+(?:also |actually |clearly |probably |obviously )?"
    r"(?:wrong|incorrect|not (?:right|correct|true|quite|accurate)|mistaken|a mistake|an error|false|right$|correct$)"
)
CORRECTION = re.compile(
    r"\b(?:wait|correction|scratch that|on second thoughts?|let me (?:re-?\w+|think again|double.?check|correct)|i (?:made a mistake|was wrong|take that back"
    r"|misread|misspoke|meant)|oops|hold on|(?:up)?on (?:further|closer|second) (?:re\w+|look|inspection|examination|thought|consideration|analysis|review)"
    r"|chang(?:e|ed|ing) my (?:mind|answer)|edit:|revised|updated answer|my apologies|apologies|i stand corrected|strike that|never ?mind)\b"
    r"|(?:[.!?\n,;—-]\s*|\bbut )(?:actually|hmm|rather)\b|(?<=[.!?\n…])\s*(?:no|sorry)[,.]|(?:等等|等一下|不对|更正|重新考虑|修正|アッ|いや|待って)"
)
WITHDRAWAL = re.compile(
    r"\b(?:scratch that|take that back|re-?(?:consider|evaluate|think|assess|examine|check)|think again|not (?:right|correct)|incorrect|wrong"
    r"|made a mistake|not sure|unsure|never ?mind|strike that)\b|不对|重新考虑"
)
NOTHING = re.compile(
    r"\W*(?:none\b|n/?a\b|nan\b|null\b|unknown|unclear|uncertain|undetermined|not (?:sure|determin|possible|clear|given|provided|available|enough|known|applicable)"
    r"|cannot|can't|can not|unable|impossible|insufficient|indeterminate|no (?:answer|option|correct)|i (?:don't|do not|cannot|can't|am not|am unable|'m not)"
    r"|无法|不确定|不知道|都不|没有|\?+$|tbd|undefined|error)"
)
_AFFIRMS = (
    r"(?:(?:clearly|definitely|likely|probably|thus|therefore|also|indeed|by far|certainly|actually|the|a|an|my|our|single|only|now|best"
    r"|most|more|much|still)\s+)*(?:correct|right|best|likely|accurate|answer|choice|option|true|consistent|plausible|appropriate|better|fit|match|probable"
    r"|suitable|supported|favou?red|one|diagnosis|most)\b"
)


class Phrases:
    """Patterns of claims about labels: "B is correct", "I choose B", "therefore B"."""

    def __init__(self, labels: Labels) -> None:
        token = labels.token
        listed = rf"(?:(?:[A-Za-z]|\d)[)\]]?\s*(?:,|and|or|&|/)\s*(?:and |or )?)?"
        self.verdict = re.compile(
            rf"(?:\b(?:option|choice|answer|letter)s?\s+)?{listed}[(\[\"']?{token}[)\]\"']?[.:]?(?P<gap>(?:(?:(?![^{WORD}][A-Z0-9](?![{WORD}]))[^.\n!?;\x02]){{1,70}}?)?)"
            rf"(?:(?<=[\s),:-])|(?<=[A-J]))\s*(?:,\s*)?(?:is|was|are|seems|appears|looks|would be|should be|must be|remains|being|=)\s+(?:to be\s+)?(?=(?i:{_AFFIRMS}))"
            rf"|[(\[\"']?{token.replace('label>', 'last>')}[)\]\"']?\s+(?:(?:best |most closely |clearly |alone )?(?:fits|matches|remains|stands out|wins|it is|describes|explains)\b)"
        )
        self.choose = re.compile(
            r"(?:\b(?i:choos(?:e|ing)|chose|chosen|select(?:ed|ing)?|pick(?:ed|ing)?|opt(?:ed|ing)? for|go(?:ing)? (?:with|for)|went (?:with|for)|vote(?: for)?|confiden\w+ (?:in|that)|certain (?:of|that)|settle on|lean(?:ing)? (?:more )?(?:towards?|to)"
            r"|favou?rs?|prefer|guess|say|answer(?:ed)?(?: with)?|believe|think|conclude|predict|suggests?|suggesting|indicat\w+|supports?|supporting|point(?:s|ing)? (?:to|towards?)"
            r"|corresponds? (?:to|with)|corresponding to|match(?:es|ing)?|consistent with|compatible with|leav(?:es|ing)(?: us with| only| just)?|left with|down to|be|it is|it's|is"
            r"|that's|so|therefore|thus|hence|finally|then|overall|mean|meant|only|identif\w+ as|align\w* with|best with|rather|instead|than|like|choice|option|with|fits?|mark(?:ed)?|tick(?:ed)?)\b"
            r"|→|->|=>|⇒|∴|✓|✔|✅|☑|\[[xX]\]|所以|因此|故|选|選|是|支持)"
            r"[ \t]*[,:]?[ \t]*(?i:that\s+)?(?i:it(?:'s| is| must be| should be)\s+|(?:the )?(?:correct |right |best )?answer (?:is|to be)\s+)?(?i:(?:clearly|definitely|likely|probably|most likely|either)\s+)?"
            r"(?i:the\s+)?(?i:(?:correct |right |best )?(?:option|choice|answer|letter|选项)s?\s*)?[(\[\"']{0,2}" + token + r"[)\]\"']{0,2}"
        )
        self.native = re.compile(
            rf"{token}\s*[)\]]?\s*(?:选项|项|番|번|가|이)?\s*(?:是|为|が|는|은|가)?\s*(?:最|更)?(?:正确|正しい|適切|正解|正答|合适|可能|符合|정답|입니다|です|だ|이다|더)"
        )


@lru_cache(maxsize=128)
def phrases_of(known: frozenset[str]) -> Phrases:
    """Returns the phrases about some labels, their patterns compiled once."""
    return Phrases(labels_of(known))


MARK = re.compile(f"{OPEN}([^{CLOSE}]*)")

"""The rules of general harnesses, by which several benchmarks are scored."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from medimg_eval.metrics.answers.published.common import (
    CaseInsensitiveAnswer,
    boxed_content,
    drawn,
    last_mention,
    nearest,
    vqa_words,
    yes_no,
)
from medimg_eval.metrics.answers.rule_registry import answer_rule

_DECLINED = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_NO_REPLY = "Failed to obtain answer via API"
_VLMEVALKIT_MARKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([abcd])", re.IGNORECASE)
_NO_OPTION = "Z"

_LMMS_FORMS = (("({})", 6), ("{}.", 5), ("{}:", 4), ("{})", 3), ("{} ", 2))
"""How a letter is written, and the rank of that."""

_LMMS_PHRASES = (
    "the answer is",
    "answer is",
    "the correct answer is",
    "correct answer is",
    "the best answer is",
    "best answer is",
    "the correct option is",
    "correct option is",
    "the best option is",
    "best option is",
    "the choice is",
    "choice is",
    "the correct choice is",
    "correct choice is",
    "i choose",
    "i select",
    "i pick",
    "my answer is",
    "my choice is",
    "옵션",
    "정답은",
    "답은",
    "답:",
    "答案是",
    "答案为",
    "选",
    "答えは",
)
_LMMS_START, _LMMS_END, _LMMS_PHRASE, _LMMS_ANYWHERE = 10, 9, 7, 0

_MEDEVALKIT_PHRASES = (
    "**answer**:",
    "**answer**",
    "*answer*:",
    "**answer:**",
    "answer is",
    "answer:",
    "答案:",
    "final answer",
    "final answer is",
)


@answer_rule("vlmevalkit", source="VLMEvalKit (open-compass), can_infer, 2026-08, policy exact_matching")
def vlmevalkit(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the one upper-case letter among the last four words, then `answer is X`, then the one option's text.

    None (the toolkit's Z) where nothing is found; the toolkit then asks a language model, and without one counts the
    answer as wrong. Weak: `answer is` has no end of word, so that "The correct answer is consolidation" is C; only A to
    D follow it; a letter in lower case is none; an option's text counts inside other words ("normal" in "abnormal") and
    where it is denied; the text counts only in outputs of at most twice the length of all options; thinking counts.
    """
    letter = _vlmevalkit_letter(output, options)
    if letter is not None:
        return None if letter == _NO_OPTION else letter
    if len(output) > 2 * sum(len(text) for text in options.values()):
        return None
    return _named_text(output, options)


def _vlmevalkit_letter(output: str, options: Mapping[str, str]) -> str | None:
    if _NO_REPLY in output:
        return None
    if any(sentence in output for sentence in _DECLINED):
        return _NO_OPTION
    words = output.translate(_VLMEVALKIT_MARKS).split()
    letters = [letter for letter in options if letter in words]
    if len(letters) == 1 and words.index(letters[0]) > len(words) - 5:
        return letters[0]
    if not letters and _NO_OPTION in words:
        return _NO_OPTION
    after = _ANSWER_IS.search(output)
    return after[1].upper() if after and after[1].upper() in options else None


@answer_rule("endobench", source="EndoBench (arXiv 2505.23601), its fork of VLMEvalKit at 305b94f, can_infer")
def endobench(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the one upper-case letter among the words, wherever it stands, then the one option's text.

    None as by `vlmevalkit`, which is a later state of the same rule. Weak: "A polyp is seen" is A; a text counts in
    replies of any length, inside other words and where it is denied.
    """
    if _NO_REPLY in output:
        return _named_text(output, options)
    if any(sentence in output for sentence in _DECLINED):
        return None
    words = output.translate(_VLMEVALKIT_MARKS).split()
    letters = [letter for letter in options if letter in words]
    if len(letters) == 1:
        return letters[0]
    return None if not letters and _NO_OPTION in words else _named_text(output, options)


def _named_text(output: str, options: Mapping[str, str]) -> str | None:
    named = [letter for letter, text in options.items() if text.lower() in output.lower()]
    return named[0] if len(named) == 1 else None


@answer_rule("lmms_eval", source="lmms-eval (EvolvingLMMs-Lab), extract_mcq_answer, 2026-08")
def lmms_eval(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the last letter in the best of ranked formats: at the start, at the end, after a phrase, (A), A., A:, A).

    None only where no option's letter occurs. Weak: "A nodule is seen in B" begins with A; after a phrase such as
    "answer is" the letter that is farthest away wins; any capital letter counts where no format fits; an option's text
    never does. The harness takes thinking away before.
    """
    text = output.strip()
    for mark in ",.!?;:'\"":
        text = text.strip(mark)
    candidates = list(_lmms_candidates(f" {text} ", options))
    if not candidates:
        candidates = [(_LMMS_ANYWHERE, text.rfind(letter), letter) for letter in options if letter in text]
    return max(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def _lmms_candidates(text: str, options: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yields (rank, place, letter)."""
    for form, rank in _LMMS_FORMS:
        for letter in options:
            position = text.rfind(form.format(letter))
            if position >= 0:
                yield rank, position, letter
    lower = text.lower()
    for phrase in _LMMS_PHRASES:
        start = lower.find(phrase)
        for letter in options if start >= 0 else ():
            position = text.find(letter, start + len(phrase))
            if position >= 0:
                yield _LMMS_PHRASE, position, letter
    alone = text.strip()
    for letter in options:
        if alone.startswith(letter) and not alone[1:2].isalpha():
            yield _LMMS_START, 0, letter
        if alone.endswith(letter) and not alone[-2:-1].isalpha():
            yield _LMMS_END, len(text) - 1, letter


@answer_rule("mmmu", source="MMMU (arXiv 2311.16502), parse_multi_choice_response, 2025-05")
def mmmu(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the last `(A)`, else the last ` A `, else the last option's text in more than five words, else at random.

    Where nothing is found an option is drawn, so that refusals and noise score at chance. The authors draw in the order
    of the items from one generator with seed 42; a rule that judges one output cannot know that order, so here the draw
    is the hash of 42, the question, its options and the output: the same on every run, and as often right in
    expectation, but not draw by draw theirs. None only without options. Weak: the article "A" is a letter; an option's
    text counts where it is denied, and inside other words.
    """
    return _mmmu_answer(output, options, question)


@answer_rule("pathmmu", source="PathMMU (arXiv 2401.16355), get_multi_choice_prediction")
def pathmmu(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes what `mmmu` takes, from options whose texts end before their first closing bracket.

    The authors split "A) text" at its brackets, so that "A) lung (left) base" is known as "lung (left". Where nothing
    is found an option is drawn as in `mmmu`. Two options whose texts begin alike count as one for them, not here.
    """
    return _mmmu_answer(output, {letter: text.split(")")[0].strip() for letter, text in options.items()}, question)


def _mmmu_answer(output: str, options: Mapping[str, str], question: str) -> str | None:
    return last_mention(output, ("({})", " {} "), options) or drawn(output, options, question)


@answer_rule("medevalkit", source="MedEvalKit (Lingshu, arXiv 2506.07044), judge_multi_choice, 2026-02")
def medevalkit(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    r"""Takes the letter that is left of the reply, else the option that is most similar by difflib to "A. text".

    What is left: the first or last paragraph if it is a letter; else the last \boxed{}, or what stands in <answer>;
    then what follows the last "answer is", "answer:" or the like; then what stands before a full stop and after a
    colon, in lower case. Always answers: an empty reply is the first option, a refusal whichever looks alike. Weak:
    "boxed" without a box leaves the word "none"; "(B)" is no letter and is compared as a text. Where options are not
    compared as "A. text", `more["option"]` says as what, such as ["{letter}.{text}"]. PMC-VQA's are compared as
    "A:text" there and MedFrameQA's as "A.text", and their <answer> is not looked for before a box.
    """
    letters = {chr(ord("a") + index): letter for index, letter in enumerate(options)}
    if not letters:
        return None
    reply = _tagged_text(output).lower()
    first, last = reply.split("\n\n")[0], reply.split("\n\n")[-1].split(".")[0]
    reply = first if first in letters else last if last in letters else reply
    reply = _medevalkit_answer(reply).strip().lower().replace("\n", "")
    last_part = reply.split(".")[0].split(":")[-1]
    if last_part in letters:
        return letters[last_part]
    (form,) = more.get("option", ["{letter}. {text}"])
    shown_forms = {letter: form.format(letter=letter, text=text).lower() for letter, text in options.items()}
    if last_part in shown_forms.values():
        return next(letter for letter, text in shown_forms.items() if text == last_part)
    return nearest(reply, shown_forms) or letters["a"]


@answer_rule("medevalkit_yes_no", source="MedEvalKit (Lingshu, arXiv 2506.07044), judge_judgement, 2026-02")
def medevalkit_yes_no(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes yes or no where exactly one of them occurs in the reply, also inside other words.

    What is searched is left as `medevalkit` leaves it, in lower case. None where both occur or neither. Weak: "Yes,
    there is a nodule" has both; "The study is normal" and "I cannot tell" say no.
    """
    answer_text = _medevalkit_text(output).replace("\n", "").replace(".", "")
    yes, no = "yes" in answer_text, "no" in answer_text
    return yes_no(yes, no) if yes != no else None


@answer_rule("medevalkit_closed", source="MedEvalKit (Lingshu, arXiv 2506.07044), judge_close_end_vqa, 2026-02")
def medevalkit_closed(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes what is left of the reply, without full stops and line breaks, to be compared whatever the case.

    What is left as in `medevalkit`. None where it is empty. Weak: "Answer: CT" leaves a blank before CT, and is wrong.
    """
    answer_text = _medevalkit_text(output).replace("\n", "").replace(".", "")
    return CaseInsensitiveAnswer(answer_text) if answer_text else None


@answer_rule("medevalkit_open", source="MedEvalKit (Lingshu, arXiv 2506.07044), judge_open_end_vqa (em), 2026-02")
def medevalkit_open(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes what is left of the reply, to be compared whatever the case.

    As `medevalkit_closed`, but full stops and line breaks stay: "Lung." is not the answer "lung".
    """
    answer_text = _medevalkit_text(output)
    return CaseInsensitiveAnswer(answer_text) if answer_text else None


def _medevalkit_text(output: str) -> str:
    inside = boxed_content(output)
    return _medevalkit_answer((_tagged_text(output) if inside is None else inside).strip())


def _medevalkit_answer(reply: str) -> str:
    reply = reply.lower()
    if "boxed" in reply:
        inside = boxed_content(reply)
        reply = "None" if inside is None else inside
    else:
        reply = _tagged_text(reply)
    for phrase in _MEDEVALKIT_PHRASES:
        reply = reply.split(phrase)[-1]
    return reply


def _tagged_text(text: str) -> str:
    """Returns the joined <answer> contents, else the whole text."""
    return " ".join(re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)).strip() or text


@answer_rule("multimedeval", source="MultiMedEval 1.0.0, QA.get_predicted_answer")
def multimedeval(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the option with the highest BLEU-1 of the reply against "letter text", the first among equals.

    None where no option shares a word with the reply. Weak: the words are normalised as for the VQA challenge, which
    drops articles, so that the reply "A" is empty and no answer; long replies match any option a little.
    """
    words = vqa_words(output).split()
    scores = {letter: _bleu_1(words, vqa_words(f"{letter} {text}").split()) for letter, text in options.items()}
    best = max(scores.values(), default=0.0)
    return next(letter for letter, score in scores.items() if score == best) if best > 0 else None


def _bleu_1(said: list[str], right: list[str]) -> float:
    if not said:
        return 0.0
    matching = sum((Counter(said) & Counter(right)).values())
    brevity = 1.0 if len(said) > len(right) else math.exp(1 - len(right) / len(said))
    return brevity * matching / len(said)


@answer_rule("multimedeval_yes_no", source="MultiMedEval 1.0.0, VQA.evaluate")
def multimedeval_yes_no(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes yes where the word occurs, and no where "no" or "not" does.

    A reply with both is right whatever the right answer is, as there: "yes or no" always is. None with neither.
    """
    words = set(vqa_words(output).split())
    return yes_no("yes" in words, not words.isdisjoint({"no", "not"}))

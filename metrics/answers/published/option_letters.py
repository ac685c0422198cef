"""The rules of benchmarks that look for an option's letter, or for the option that looks most alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from medimg_eval.metrics.answers.published.common import drawn, last_mention, nearest, offered, yes_no
from medimg_eval.metrics.answers.rule_registry import answer_rule

_MEDXPERTQA_UNWANTED = ("I understand", "A through J", "A through E", "A through D")

_MEDICONFUSION_FORMS = ("{}", "{}:", ".{}", ".{}:", "{}.", '{}")', '("{}":', '("{}")', '("{}").')

_MEDFRAMEQA_MARKS = ("Answer:", "Answer*", "Final Answer", "final answer")

_TEMMED_ANSWER = re.compile(r"my answer is\W*([A-Z])\b", re.IGNORECASE)

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


@answer_rule("omnimedvqa", source="OmniMedVQA (arXiv 2402.09181), MedicalEval, 2024-04")
def omnimedvqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the option whose text is most similar to the whole output by difflib, the first among equals.

    None where no option shares a character with it, which counts as wrong. Weak: nearly always answers; a letter alone
    is compared with the options' texts, so that "B" is whichever short option holds a B.
    """
    return nearest(output, options)


@answer_rule("pmc_vqa", source="PMC-VQA (arXiv 2305.10415), MedVInT_TD/test.py, 2024-03")
def pmc_vqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the option of which " A:text" is most similar by difflib to the last character of the output.

    That is the shortest option which holds this character, the first among equals: "A" is option B where B's text is
    shorter and holds a capital A. None where no option does, as for "A." unless one has a full stop.
    """
    return nearest(output[-1:], {letter: f" {letter}:{text}" for letter, text in options.items()})


@answer_rule("medxpertqa", source="MedXpertQA (arXiv 2501.18362), answer_cleansing")
def medxpertqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first letter of an option that stands as a word of its own.

    What is searched follows the benchmark's trigger ("among A through E, the answer is") if the reply repeats it, else
    " answer is "; the words "A through E" do not count. Meant for the reply to the second turn. None without such a
    letter. Weak: the article in "A biopsy is needed" is A, and "I" is one of ten options in the text set.
    """
    last = chr(ord("A") + len(options) - 1)
    trigger = f"mong A through {last}, the answer is"
    for mark in (f"Therefore, a{trigger}", f"A{trigger}", " answer is "):
        _, separator, after = output.partition(mark)
        if separator:
            # What follows a second trigger does not count.
            output = after.split(mark)[0].strip()
            break
    for phrase in _MEDXPERTQA_UNWANTED:
        output = output.replace(phrase, "")
    letters: list[str] = [letter for letter in re.findall(r"\b[A-Z]\b", output) if letter in options]
    return letters[0] if letters else None


@answer_rule("medframeqa", source="MedFrameQA (arXiv 2505.16964), parse_multi_choice_response")
def medframeqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes boxed{X}, else the first letter after the last "Answer:", else the last (A), else A., else an option.

    An option, by its text, in more than five words. None where nothing is found, which counts as wrong; the authors
    leave out empty replies altogether. Weak: after "Answer:" any capital that is a letter of an option counts, so that
    "Answer: Cardiomegaly (B)" is C; an option's text counts where it is denied.
    """
    boxed: list[str] = [letter for letter in re.findall(r"boxed\{([A-Z])\}", output) if letter in options]
    if boxed:
        return boxed[0]
    mark = next((mark for mark in _MEDFRAMEQA_MARKS if mark in output), "")
    after = output.rpartition(mark)[2] if mark else ""
    letters = [letter for letter in options if letter in after]
    if letters:
        return min(letters, key=after.index)
    # The authors split "A. text" at each ". ", so that a text ends before its first one.
    return last_mention(output, ("({})", "{}."), {letter: text.split(". ")[0] for letter, text in options.items()})


@answer_rule("chexbench", source="CheXbench (CheXagent, arXiv 2401.12208), parse_response")
def chexbench(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first capital letter in brackets, else an option at random.

    The authors draw without a seed; here the draw is the hash that `mmmu` describes. None where the letter is no
    option, which is wrong. Weak: letters without brackets do not count, so that "B" scores at chance; "(A) or (B)" is
    A.
    """
    match = re.search(r"\(([A-Z])\)", output)
    return offered(match[1], options) if match else drawn(output, options, question)


@answer_rule("mediconfusion", source="MediConfusion (arXiv 2409.15477), clean_up_manual")
def mediconfusion(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the letter that stands between blanks in one of nine forms: A, A:, .A, .A:, A., A"), ("A":, ("A"), ("A").

    None (invalid) where no letter does or both do. Weak: "(B)", "**B**" and "B," are invalid; "A nodule" is A.
    """
    words = set(output.replace("\n", " ").split(" "))
    letters = [
        letter for letter in options if not words.isdisjoint(form.format(letter) for form in _MEDICONFUSION_FORMS)
    ]
    return letters[0] if len(letters) == 1 else None


@answer_rule("medq_bench", source="MedQ-Bench (arXiv 2510.01691) in VLMEvalKit, _extract_option_letter")
def medq_bench(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first of A to D, whatever the case, that has no letter of A to Z beside it.

    None without one. The released rule has steps for "answer is B" and "option B" too, which can never apply, because
    they look for lower case in a reply that was made upper case; its other steps find what this sentence says. Weak:
    an "a" or a mention on the way is the answer: "Unlike B, a blurred edge suggests C" is B.
    """
    return _first_alone(output, "A-D", options)


@answer_rule("medq_deg", source="MedQ-Deg (arXiv 2603.07769) in VLMEvalKit, _extract_option_letter")
def medq_deg(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first of A to E, whatever the case, that has no letter of A to Z beside it.

    As `medq_bench`, with five options.
    """
    return _first_alone(output, "A-E", options)


def _first_alone(output: str, letters: str, options: Mapping[str, str]) -> str | None:
    match = re.search(rf"(?<![A-Z])([{letters}])(?![A-Z])", output.strip().upper())
    return offered(match[1] if match else None, options)


@answer_rule("livexiv", source="LiveXiv (arXiv 2410.10783) in lmms-eval, livexiv_vqa")
def livexiv(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first character, or the first capital letter after it where the reply says "answer".

    Whatever the case. None where that is no option's letter. Weak: "The answer is B" has B, but "Answer: In view of
    the Doppler, B" has I, and "Because of ..." is B.
    """
    reply = output.strip()
    match = re.search(r"[A-Z]", reply[1:]) if len(reply) > 1 and "answer" in reply.lower() else re.match(r".", reply)
    return offered(match[0].upper() if match else None, options)


@answer_rule("seed_bench", source="SEED-Bench-2 (arXiv 2311.17092) in lmms-eval, seedbench_2")
def seed_bench(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first character of the reply.

    None where it is no option's letter; the case counts. Weak: "Both lungs" is B, and "(B)" and "The answer is B" are
    none. The authors themselves compare likelihoods.
    """
    return offered(output.strip()[:1], options)


@answer_rule("chestagentbench", source="ChestAgentBench (MedRAX, arXiv 2502.02673), analyze_axes")
def chestagentbench(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first character where it is the whole reply or one of `).:-` or a blank follows it.

    None where the reply begins otherwise; the authors leave such replies out of the denominator. Any letter counts,
    also one that is no option, which is wrong and stays in the denominator ("I think B" is I). Weak: "A nodule" is A;
    "The answer is B" and "**B**" are none.
    """
    reply = output.strip()
    begins = reply[:1].isalpha() and (len(reply) == 1 or reply[1] in ").:- ")
    return reply[0].upper() if begins else None


@answer_rule("temmed_selection", source="TemMed-Bench (arXiv 2509.25143), ImgPairSelection_eval.ipynb")
def temmed_selection(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the letter after the last "My answer is", past brackets, asterisks and the like.

    None without one, at which the authors' notebook stops; of several letters it takes the first of the alphabet. Weak:
    "My answer is option B" is none.
    """
    answers = _TEMMED_ANSWER.findall(output)
    return offered(answers[-1].upper(), options) if answers else None


@answer_rule("deeptumorvqa", source="DeepTumorVQA (arXiv 2505.18915, v2 2605.09679), extract_letter")
def deeptumorvqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the first character if it is one of A to D whatever the case, else the first of them that is a word.

    <think> blocks are taken away, also open ones. None where nothing is found. Weak: "Answer: C" is A, "Based on the
    scan, C" is B, and an "a" in a sentence is A.
    """
    reply = _without_thinking(output).upper()
    match = re.match(r"[A-D]", reply) or re.search(r"\b[A-D]\b", reply)
    return offered(match[0] if match else None, options)


@answer_rule("deeptumorvqa_yes_no", source="DeepTumorVQA (arXiv 2505.18915, v2 2605.09679), extract_binary")
def deeptumorvqa_yes_no(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes yes or no with which the reply begins, else yes if the word occurs, else no if that word does.

    <think> blocks are taken away. None where neither occurs; the authors count that as no in specificity, and as wrong
    in accuracy. Weak: "Normal liver" and "Nodules are seen" begin with no; "There is no doubt: yes" is yes.
    """
    reply = _without_thinking(output).lower()
    match = re.match(r"yes|no", reply) or re.search(r"\byes\b", reply) or re.search(r"\bno\b", reply)
    return yes_no(match[0] == "yes", match[0] == "no") if match else None


@answer_rule("deeptumorvqa_number", source="DeepTumorVQA (arXiv 2505.18915, v2 2605.09679), extract_number")
def deeptumorvqa_number(
    output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]
) -> float | None:
    """Takes the first number of the reply.

    <think> blocks are taken away. None without a number. Weak: "Segment 4 measures 12.5 cm" is 4, "1,200" is 1, and
    the hyphen in "3-5" makes no second number but "range-5" is -5.
    """
    match = re.search(r"-?\d+\.?\d*", _without_thinking(output))
    return float(match[0]) if match else None


def _without_thinking(output: str) -> str:
    return _THOUGHT.sub("", output).strip()

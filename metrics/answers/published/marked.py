"""The rules of benchmarks that ask for the answer in a box, in tags, in JSON, or after a mark."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from medimg_eval.metrics.answers.published.common import CaseInsensitiveAnswer, boxed_content, labelled, offered
from medimg_eval.metrics.answers.rule_registry import answer_rule

_KORMED_THOUGHTS = (
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("...thinking...", "....thinking...."),
    ("[THINK]", "[/THINK]"),
)
_KORMED_KEYS = ("정답", "answer")

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TAGS = re.compile(r"</?(?:think|answer)>")
_REGRADED = [re.compile(mark + r"\s*(.*)", re.IGNORECASE) for mark in ("answer:", "answer is:", "answer is", "is:")]

_MME_SCI = re.compile(r"\\boxed\{(?P<box>.*)\}|(?:最终答案|Final Answer)(?P<after>.*)", re.DOTALL)


@answer_rule("boxed", source="MathRuler, extract_boxed_content, which MedEvalKit and others use for models that reason")
def boxed(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    r"""Takes the option in the last \boxed{}: its letter, "A. text", or its text, whatever the case.

    Without options, what stands in the box, to be compared whatever the case. None without a closed box, and where no
    option stands in it. Weak: "\boxed{(B)}" and "\boxed{\text{B}}" are no letters.
    """
    return _option_or_text(boxed_content(output), options)


@answer_rule("medbookvqa", source="MedBookVQA (arXiv 2506.00855), the form that its prompt asks for")
def medbookvqa(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the reply where it is a letter and nothing else.

    None for all else, as for "B." and "B. Lung".
    """
    return offered(output.strip(), options)


@answer_rule("medbookvqa_boxed", source="MedBookVQA (arXiv 2506.00855), parse_reasoning_response")
def medbookvqa_boxed(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    r"""Takes the letter in the last \boxed{}, or with which the text in it begins as "B. ".

    Without a box the whole reply up to its first closing brace is read in its place. None where that is no letter, as
    for "\boxed{\text{B}}" and "\boxed{(B)}".
    """
    boxed = output.rpartition("\\boxed{")[2].split("}")[0]
    return offered(boxed[:1] if boxed[1:3] == ". " else boxed, options)


@answer_rule("kormedmcqa_v", source="KorMedMCQA-V (arXiv 2602.13650), _extract_answer")
def kormedmcqa_v(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    r"""Takes the first letter of an option in the value of 정답 or "answer" in the last JSON object, else \boxed{X}.

    A block fenced as json is read alone, else every {...} without braces inside, from the last to the first; a Python
    literal will do. Thinking is taken away in three notations, of which <think> is none. None without such an answer,
    which counts as wrong. Weak: the case does not count, so that {"answer": "The best is C"} is E, from "The".
    """
    if not options:
        return None
    reply = _without_kormed_thinking(output)
    fenced = re.search(r"```json\s*(\{.*?\})\s*```", reply, re.DOTALL | re.IGNORECASE)
    blocks = [fenced[1]] if fenced else re.findall(r"\{.*?\}", reply, re.DOTALL)
    any_letter = f"[{'|'.join(options)}]"
    for value in _kormed_values(blocks):
        match = re.search(any_letter, value, re.IGNORECASE)
        if match and match[0].upper() in options:
            return match[0].upper()
    match = re.search(rf"\\boxed\{{({any_letter})\}}", reply, re.IGNORECASE)
    return offered(match[1].upper() if match else None, options)


def _without_kormed_thinking(output: str) -> str:
    for opening, closing in _KORMED_THOUGHTS:
        if opening in output and closing in output:
            return output.partition(closing)[2].strip()
    return output


def _kormed_values(blocks: list[str]) -> Iterator[str]:
    for block in reversed(blocks):
        read = _parse_literal(block)
        if isinstance(read, dict):
            yield from (str(read[key]) for key in _KORMED_KEYS if read.get(key) is not None)


def _parse_literal(block: str) -> Any:
    """Returns a JSON or Python literal's value, else None."""
    try:
        return json.loads(block)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            # Python warns of what models write, such as unknown escapes.
            warnings.simplefilter("ignore")
            return ast.literal_eval(block)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


@answer_rule("vm14k", source="VM14K (arXiv 2506.01305), the JSON that its prompt asks for, and eval.py")
def vm14k(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the letter that is the value of "answer" in the JSON object that the reply is, whatever the case.

    Fences around the object are taken away. None where the reply is anything else; the authors count accuracy over all
    questions of the first run, and a majority over those that every run answered.
    """
    try:
        read = json.loads(output.replace("```json", "").replace("```", "").strip())
    except (ValueError, RecursionError):
        return None
    answer = read.get("answer") if isinstance(read, dict) else None
    return offered(answer.upper(), options) if isinstance(answer, str) else None


@answer_rule("answer_tag", source="MedVLThinker and MedVLSynther (arXiv 2510.25867), run_offline_inference.py")
def answer_tag(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the option in the first <answer></answer>: its letter, "A. text", or its text, whatever the case.

    Without tags the whole reply is read in their place. Without options, what was read, to be compared whatever the
    case. None where it is no option. Weak: "B)", "(B)" and "B." are none; a tag inside the thinking comes first.
    """
    match = _TAGGED.search(output)
    return _option_or_text(match[1] if match else output, options)


@answer_rule("answer_tag_regraded", source="MedVLThinker and MedVLSynther (arXiv 2510.25867), regrade_eval_results.py")
def answer_tag_regraded(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    """Takes the option in the first line of the last <answer></answer>, else after the last "answer:" or "answer is".

    Of the marks "answer:", "answer is:", "answer is" and "is:" the first that occurs counts, to the end of its line;
    without any the whole reply is read. The authors' tables are computed by this second reading. None where what is
    read is no option by `answer_tag`'s comparison, as for "The answer is B." with its full stop.
    """
    return _option_or_text(_TAGS.sub("", _regrade_output(output)), options)


def _regrade_output(output: str) -> str:
    tagged = _TAGGED.findall(output)
    if tagged:
        return str((tagged[-1].strip().splitlines() or [""])[0])
    for mark in _REGRADED:
        values = mark.findall(output)
        if values:
            return str(values[-1])
    return output


@answer_rule("mme_sci", source="MME-SCI (arXiv 2508.13938), get_judge_res.py with extraction")
def mme_sci(output: str, options: Mapping[str, str], question: str, more: Mapping[str, Any]) -> str | None:
    r"""Takes what stands in \boxed{} up to the last brace, or after "Final Answer" or "最终答案", else the reply.

    The marks of the French, Spanish and Japanese prompts never count: the released test for the language is always
    true. The authors give what was taken to a judge. Without one, ours reads it past colons, blanks and asterisks and
    before a full stop: an option's letter, "A. text" or its text, whatever the case; without options, the text. None
    where it is no option. Weak: two boxes become one answer with all that lies between.
    """
    match = _MME_SCI.search(output)
    taken = (match["box"] or (match["after"] or "").strip()) if match else ""
    return _option_or_text((taken or output).strip().strip(":：* ").removesuffix("."), options)


def _option_or_text(said: str | None, options: Mapping[str, str]) -> str | None:
    if said is None or not said.strip():
        return None
    return labelled(said, options) if options else CaseInsensitiveAnswer(said.strip().lower())

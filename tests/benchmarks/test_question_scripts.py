"""Questions scored by their authors' own scripts and by ours: the same prompts, the same answers read, the same tables.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import abc
import ast
import copy
import difflib
import json
import logging
import os
import random
import re
import string
from collections import Counter, defaultdict
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from medimg_eval.instantiate import build_task
from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.answers.extraction import extract
from medimg_eval.metrics.judges.chexprompt import read_chexprompt
from medimg_eval.results import build_authors_tables, load_runs
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import SAMPLES, answered, config_of, picture, task_of, worth, write_json
from tests.helpers.samples import ALL

# ruff: noqa: S311
pytestmark = pytest.mark.slow
assert ALL is not None

OPTIONS = {"A": "Adenoma of the colon", "B": "Normal mucosa", "C": "Chronic gastritis", "D": "Lymphoma"}


def replies(options, count=4000, seed=0):
    """Replies as models write them: letters in many dresses, texts of options, both, neither, several."""
    draw = random.Random(seed)
    dresses = [
        "{0}",
        "({0})",
        "{0}.",
        " {0} ",
        "{0}: {1}",
        "({0}) {1}",
        "{1}",
        "answer is {0}",
        "**{0}**",
        "{0}\n\n",
        "'{0}'",
    ]
    dresses += [
        "The answer is ({0}), since {1} is seen here and nothing else.",
        "I think it is {1} because of its glands.",
    ]
    dresses += [
        "<think>maybe ({2})</think> {0}",
        "Not {2}, but {0}",
        "({2}) or ({0})",
        "\\boxed{{{0}}}",
        "\\boxed{{{0}. {1}}}",
    ]
    dresses += [
        "Answer: {0}",
        "It is {3}, or rather {1}, as the picture shows to me.",
        "",
        "Nothing of these.",
        "{0},",
        "{0} fits best, of all of these",
    ]
    for _ in range(count):
        letter, other = draw.choice(list(options)), draw.choice(list(options))
        yield draw.choice(dresses).format(letter, options[letter], other, options[other])


class DrawnError(Exception):
    """An authors' script would draw an option at random."""


class Random:
    """What their scripts take for the module `random`."""

    @staticmethod
    def choice(_):
        raise DrawnError


def taken(rule, reply, options=OPTIONS, kind="choice"):
    return extract(kind, reply, options, rule=rule).value


def test_pathmmus_rule_and_prompt_are_its_scripts(tmp_path):
    clone = require_clone("PathMMU-Benchmark/PathMMU")
    theirs = load_functions(clone / "eval/utils/eval_utils.py", "get_multi_choice_prediction", random=Random, np=np)
    drawn = 0
    for reply in replies(OPTIONS):
        try:
            right = theirs["get_multi_choice_prediction"](reply, list(OPTIONS), OPTIONS)
        except DrawnError:
            drawn += 1
        else:
            assert OPTIONS[taken("pathmmu", reply)] == right, reply
    assert 0 < drawn < 1500
    construct = load_functions(clone / "eval/utils/data_utils.py", "construct_prompt")["construct_prompt"]
    form = "{}\n\n{}\n\nAnswer with the option's letter from the given choices directly."
    task = task_of("pathmmu", tmp_path)
    records = {
        f"{subset}-{split}-{record['No']}": record
        for subset, splits in json.loads((tmp_path / "data.json").read_text()).items()
        for split, held in splits.items()
        for record in held
    }
    for case in task.cases("test"):
        record = records[case.id]
        if any(")" in option.split(")", 1)[1] for option in record["options"]):
            continue  # they cut such options at their bracket; ours stay whole, as the card says
        asked = construct(record, {"multi_choice_example_format": form})["final_input_prompt"]
        assert task.prompt(case, task.read_images(case)).text == asked


def test_medq_degs_rule_and_prompt_are_those_of_vlmevalkit(tmp_path):
    clone = require_clone("open-compass/VLMEvalKit")
    bases = {"ImageMCQDataset": object, "pd": pd}
    theirs = load_functions(clone / "vlmeval/dataset/medq_deg_bench.py", "MedQDEGBenchDataset", **bases)
    reader = theirs["MedQDEGBenchDataset"].__new__(theirs["MedQDEGBenchDataset"])
    options = OPTIONS | {"E": "Not told"}
    for reply in replies(options):
        taken_by_them = reader._extract_option_letter(reply)
        assert taken("medq_deg", reply, options) == (taken_by_them if taken_by_them in options else None), reply
    task = task_of("medq_deg", tmp_path)
    reader.dump_image = lambda _line: "picture.png"
    lines = pd.read_csv(tmp_path / "MedQ-Robust-simulate-test.tsv", sep="\t")
    for case, (_, line) in zip(task.cases("test"), lines.iterrows(), strict=False):
        assert task.prompt(case, task.read_images(case)).text == reader.build_prompt(line)[1]["value"]


def probmed_records(draw, images):
    """Questions about images, as its test.json has them: each beside its adversarial one."""
    for number in range(images):
        kind = draw.choice(["x-ray_chest", "ct-scan_brain", "mri_spine"])
        findings = draw.randrange(3)
        pairs = ["modality", "body_part"]
        pairs += [f"{name}#_{finding}" for name in ("entity", "grounding") for finding in range(findings)]
        asked = [
            (f"{name}_{side}{behind}", answer)
            for name, _, behind in (pair.partition("#") for pair in pairs)
            for side, answer in (("gt", "yes"), ("hallu", "no"))
        ]
        asked.insert(4, ("abnormality", "yes" if findings else "no"))
        if not findings:
            asked.append(("entity_hallu", "no"))
        for qa_type, answer in asked:
            yield {
                "id": str(number),
                "image": f"/{kind}/{number}.png",
                "image_type": kind,
                "qa_type": qa_type,
                "question": f"Is {qa_type} so?",
                "answer": answer,
            }


def test_probmeds_numbers_are_its_scripts(tmp_path):
    clone = require_clone("eric-ai-lab/ProbMed")
    names = ("get_score_binary", "get_score_dict", "get_score_float", "get_scores_probmed")
    theirs = load_functions(clone / "eval/calculate_score.py", *names, np=np, defaultdict=defaultdict)
    draw = random.Random(3)
    records = sorted(probmed_records(draw, 60), key=lambda record: (record["image_type"], int(record["id"])))
    write_json(tmp_path / "test.json", records)
    for record in records:
        picture(tmp_path / record["image"].strip("/"), int(record["id"]))
    wordings = {"yes": ["Yes", "yes", "Yes, it is.", "yes."], "no": ["No", "no.", "No, it is not."]}
    given, answers = {}, []
    for record in records:
        said = record["answer"] if draw.random() < 0.8 else draw.choice(["yes", "no"])
        reply = draw.choice([*wordings[said] * 3, "It may be.", "yes, I think so"])
        given["{image_type}-{id}-{qa_type}".format(**record)] = reply
        answers.append(record | {"response": reply, "gt_ans": record["answer"]})
    by_type = defaultdict(list)
    for answer in answers:
        by_type[answer["image_type"]].append(answer)
    _, of_family, overall = theirs["get_scores_probmed"]({"model": by_type})
    task = build_task(config_of("probmed", tmp_path, protocol="published", extraction="authors"))
    (table,) = build_authors_tables(load_runs([answered(task, given, tmp_path / "run")]), resamples=20)
    ours = {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}
    titles = {
        "Modality": "modality",
        "Organ": "body_part",
        "Abnormality": "abnormality",
        "Condition/Finding": "entity",
        "Position": "grounding",
    }
    for title, family in titles.items():
        assert 100 * ours[title] == pytest.approx(of_family["model"][family]["acc"], abs=1e-9), title
    assert 100 * ours["Overall"] == pytest.approx(overall["model"]["acc"], abs=1e-9)


def test_medbookvqas_prompt_and_box_are_its_scripts(tmp_path):
    clone = require_clone("slyipae1/MedBookVQA")
    theirs = load_functions(
        clone / "evaluation/eval_utils.py", "format_input", "format_prompt", "parse_reasoning_response", json=json
    )
    task = task_of("medbookvqa", tmp_path)
    records = {record["_id"]: record for record in json.loads((tmp_path / "data.json").read_text())}
    for case in task.cases("test"):
        asked = theirs["format_prompt"](theirs["format_input"](records[case.id]))
        prompt = task.prompt(case, task.read_images(case))
        assert prompt.text.strip() == asked.removeprefix("<image>\n").strip()
    given = list(replies(OPTIONS))
    files = [tmp_path / name for name in ("replies.jsonl", "parsed.jsonl", "errors.json")]
    files[0].write_text("".join(json.dumps({"response": reply}) + "\n" for reply in given))
    theirs["parse_reasoning_response"](*files)
    for reply, line in zip(given, files[1].read_text().splitlines(), strict=True):
        right = json.loads(line)["response"]
        assert taken("medbookvqa_boxed", reply) == (right if right in OPTIONS else None), reply


def test_omnibrainbenchs_rule_is_its_scripts():
    clone = require_clone("CUHK-AIM-Group/OmniBrainBench")
    boxed = pytest.importorskip("mathruler.grader").extract_boxed_content
    names = ("judge_multi_choice", "parse_response", "extract", "get_content_between_a_b")
    names += ("find_most_similar_index", "str_similarity")
    theirs = load_functions(clone / "utils/utils.py", *names, re=re, difflib=difflib, extract_boxed_content=boxed)
    choices = [f"{letter}. {text}" for letter, text in OPTIONS.items()]
    for reply in replies(OPTIONS):
        if not reply:
            continue
        for letter in OPTIONS:
            assert (taken("medevalkit", reply) == letter) == theirs["judge_multi_choice"](choices, letter, reply), reply


def test_deeptumorvqas_rules_are_its_scorers():
    clone = require_clone("Schuture/DeepTumorVQA")
    names = (
        "_THINK_RE",
        "_THINK_OPEN_RE",
        "_NUMBER_RE",
        "_LETTER_RE",
        "TOLERANCE_THRESHOLDS",
        "strip_think",
        "extract_letter",
    )
    names += ("extract_number", "extract_binary", "normalize_text")
    theirs = load_functions(clone / "src/deeptumorvqa/eval/metrics.py", *names, re=re, Literal=Literal)
    for reply in replies(OPTIONS):
        assert (taken("deeptumorvqa", reply) or "") == theirs["extract_letter"](reply), reply
    draw = random.Random(1)
    for _ in range(2000):
        words = [
            draw.choice(["Yes", "no", "12.5", "-3", "the", "volume", "is", "cm3", "No.", "<think>", "</think>", "yes,"])
            for _ in range(6)
        ]
        reply = " ".join(words)
        cut = theirs["strip_think"](reply)
        assert (taken("deeptumorvqa_yes_no", reply, {}, "yes_no") or "") == theirs["extract_binary"](cut), reply
        number = theirs["extract_number"](cut)
        assert taken("deeptumorvqa_number", reply, {}, "number") == number, reply


def test_chexprompts_counts_are_read_as_its_own_package_reads_them(caplog):
    clone = require_clone("microsoft/chexprompt")
    names = ("ERROR_TYPE_MAP", "parse_completion_tuples_to_dict", "parse_rating_text", "is_valid_rating_text")
    theirs = load_functions(
        clone / "src/chexprompt/eval_utils.py", *names, logging=logging, Dict=dict, Tuple=tuple, List=list
    )
    caplog.set_level(logging.CRITICAL)
    kinds = theirs["ERROR_TYPE_MAP"]
    draw = random.Random(2)
    read = 0
    for _ in range(2000):
        brackets = draw.choice(["()", "[]"])
        counts = [{letter: draw.randrange(4) for letter in "ABCDEF"} for _ in range(2)]
        lines = [
            brackets[0] + ", ".join(f"({letter}, {count})" for letter, count in held.items()) + brackets[1]
            for held in counts
        ]
        reply = "\n".join(
            f"Number of clinically {which} errors by type: {line}"
            for which, line in zip(("significant", "insignificant"), lines, strict=True)
        )
        reply += draw.choice(["", "\nExplanation: (A, 1) is the nodule."])
        right = theirs["parse_rating_text"](reply)
        ours = read_chexprompt(reply)
        named = [
            {kinds[letter.upper()]: count for letter, count in ours[which].items()}
            for which in ("significant", "insignificant")
        ]
        assert named == list(right), reply
        read += 1
    assert read == 2000
    for reply in ("", "I see no errors.", "Number of clinically significant errors by type: [(A, 0)]"):
        assert read_chexprompt(reply) is None
        assert not theirs["is_valid_rating_text"](reply)


@pytest.mark.parametrize(
    ("repository", "rule"),
    [("CUHK-AIM-Group/EndoBench", "endobench"), ("open-compass/VLMEvalKit", "vlmevalkit")],
)
def test_letters_are_read_as_vlmevalkit_and_its_fork_for_endobench_read_them(repository, rule, monkeypatch):
    clone = require_clone(repository)
    monkeypatch.delenv("VERBOSE", raising=False)
    names = ["can_infer_option", "can_infer_text", "can_infer"]
    if rule == "vlmevalkit":
        names.append("_VERBOSE_ANSWER_RE")
    theirs = load_functions(clone / "vlmeval/utils/matching_util.py", *names, os=os, cp=copy, re=re, string=string)
    more = [
        "Cannot determine the answer: B",
        "Failed to obtain answer via API",
        "Z",
        "Z it is",
        "A polyp is seen here.",
    ]
    for reply in [*replies(OPTIONS), *more]:
        right = theirs["can_infer"](reply, dict(OPTIONS))
        assert taken(rule, reply) == (right if right in OPTIONS else None), reply


def test_kormedmcqa_vs_answers_are_its_datasets(tmp_path):
    clone = require_clone("baeseongsu/kormedmcqa_v")
    think = load_functions(clone / "kormedeval/utils.py", "extract_thinking_and_summary")
    base = load_functions(clone / "kormedeval/datasets/base.py", "BaseDataset", ABC=object, abstractmethod=lambda f: f)
    theirs = load_functions(
        clone / "kormedeval/datasets/kormedmcqa_v.py",
        "KorMedMCQAVDataset",
        BaseDataset=base["BaseDataset"],
        **{module.__name__: module for module in (ast, json, logging, re)},
    )["KorMedMCQAVDataset"]
    draw = random.Random(4)
    forms = [
        '{{"정답": "{0}"}}',
        "{{'answer': '{0}'}}",
        '```json\n{{"정답": "{0}"}}\n```',
        '{{"정답": null}}',
        "$\\boxed{{{0}}}$",
    ]
    forms += [
        '{{"answer": "The best is {0}"}}',
        "정답은 {0}",
        "",
        '{{"정답": "{0}"',
        "[THINK]\\boxed{{A}}[/THINK] \\boxed{{{0}}}",
    ]
    five = OPTIONS | {"E": "Polyp"}
    for _ in range(3000):
        written = [draw.choice(forms).format(draw.choice([*"ABCDEabF"])) for _ in range(draw.randrange(1, 3))]
        reply = " ".join(written)
        right = theirs._extract_answer(think["extract_thinking_and_summary"](reply)[1], theirs.CHOICE_KEYS)
        assert taken("kormedmcqa_v", reply, five) == right, reply
    task = task_of("kormedmcqa_v", tmp_path)
    for case in task.cases("test"):
        assert task.prompt(case, task.read_images(case)).text.endswith(theirs.INSTRUCTION)


def test_medframeqas_answers_are_its_scripts(capsys):
    clone = require_clone("haojinw0027/MedFrameQA")
    theirs = load_functions(clone / "src/eval_process.py", "parse_multi_choice_response", re=re, np=np)
    for reply in replies(OPTIONS):
        right = theirs["parse_multi_choice_response"](reply, list(OPTIONS), OPTIONS, "q")
        capsys.readouterr()
        assert (taken("medframeqa", reply) or "") == right, reply


def test_chexbenchs_letters_are_its_scripts(capsys):
    clone = require_clone("Stanford-AIMI/CheXagent")
    path = clone / "evaluation_chexbench/models/baseLM.py"
    theirs = load_functions(path, "BaseLM", re=re, random=Random, abc=abc)["BaseLM"]
    for reply in replies(OPTIONS):
        for place, letter in enumerate(OPTIONS):
            try:
                right = theirs.parse_response(None, reply, place, list(OPTIONS))
            except DrawnError:
                continue
            assert (taken("chexbench", reply) == letter) == right, reply
        capsys.readouterr()


def test_medvlsynthers_two_readings_are_its_scripts():
    clone = require_clone("UCSC-VLAA/MedVLSynther")
    theirs = load_functions(
        clone / "eval/regrade_eval_results.py", "_extract_answer", "extract_answer", "grade_answer", re=re
    )
    first = load_functions(clone / "eval/run_offline_inference.py", "extract_answer", "grade_answer", re=re)
    more = [
        "<answer>{0}</answer>",
        "<think>{2}</think><answer>{0}. {1}</answer>",
        "The answer is {0}",
        "answer: {1}\nSure.",
    ]
    more += ["<answer>{2}</answer> no: <answer>{0}\nfor {1}</answer>", "It is: {1}", "<answer>\n{1}\n</answer>"]
    draw = random.Random(5)
    tagged = [draw.choice(more).format(letter, OPTIONS[letter], draw.choice([*OPTIONS])) for letter in [*OPTIONS] * 300]
    for rule, script in (("answer_tag_regraded", theirs), ("answer_tag", first)):
        for reply in [*replies(OPTIONS), *tagged]:
            read = script["extract_answer"](reply)
            for letter, text in OPTIONS.items():
                right = script["grade_answer"](read, text, letter)
                assert (taken(rule, reply) == letter) == right, (rule, reply)


def test_mediconfusions_letters_and_scores_are_its_scripts(tmp_path):
    clone = require_clone("AIF4S/MediConfusion")
    task = build_task(config_of("mediconfusion", tmp_path, extraction="authors"))
    SAMPLES["mediconfusion"].write(tmp_path)
    pairs = json.loads((tmp_path / "dataset.json").read_text())
    counted = Counter(name for pair in pairs.values() for name in [*pair["category_1"], *pair["category_2"]])
    prompts = json.loads((clone / "configs/prompts/answering.json").read_text())
    theirs = load_functions(clone / "utils/answering.py", "BaseAnsweringModel", PROMPTS=prompts, STATS=counted, os=os)
    asker = theirs["BaseAnsweringModel"].__new__(theirs["BaseAnsweringModel"])
    vars(asker).update(mode="mc", key="gpt", tr=3, data_path="", local_image_address=True, prompt_key="prompts")
    asker.clean_up = asker.clean_up_manual
    for reply in [*replies({"A": OPTIONS["A"], "B": OPTIONS["B"]}), '("A"', '("B").', ".A:", 'B")', "A:\nnot B"]:
        chosen = {letter: 10 * (taken("mediconfusion", reply, {"A": "x", "B": "y"}) == letter) for letter in "AB"}
        right = asker.clean_up_manual("", [], reply)
        assert chosen == {letter: right[letter] for letter in "AB"}, reply
    cases = task.cases("test")
    for case in cases:
        pair = pairs[case.id.split("-")[0]]
        asked = asker.convert_question(pair["question"], [pair["option_A"], pair["option_B"]])
        assert task.prompt(case, task.read_images(case)).text == asked
    draw = random.Random(6)
    for number in range(15):
        given = {case.id: draw.choice(["A", "A", "B", "B", "A nor B"]) for case in cases}
        score = asker.create_score_table([], [], -1, -1, -1, -1, -1)
        for name, pair in pairs.items():
            asker.ask_question = partial(lambda two, *_: two, [given[f"{name}-{member}"] for member in "12"])
            asker.update_score_table(score, asker.sample_eval(pair)[1])
        total = {name: counts["total"] for name, counts in score.items()}
        ours = worth(answered(task, given, tmp_path / f"run-{number}"))
        assert ours["group_accuracy"] == pytest.approx(total["set_score"] / len(pairs))
        assert ours["accuracy"] == pytest.approx(total["individual_score"] / len(cases))
        assert ours["unanswered"] == pytest.approx(total["invalid"] / len(cases))
        if total["valids"]:
            assert ours["confusion"] == pytest.approx(total["confused"] / total["valids"])


def test_medxpertqas_letter_and_trigger_are_its_scripts(tmp_path):
    clone = require_clone("TsinghuaC3I/MedXpertQA") / "eval"
    read = load_functions(clone / "utils.py", "answer_cleansing", re=re)["answer_cleansing"]
    templates = load_functions(clone / "config/prompt_templates.py", "PromptTemplates")["PromptTemplates"]()
    words = templates.load_templates("medxpertqa", "gpt-4o")
    options = OPTIONS | {"E": "Not told"}
    about = {"options": list(options), "label": ["A"]}
    forms = ["{}", "A through E: {}", "Among A through E, the answer is {}. Among A through E, the answer is B."]
    forms += ["Therefore, among A through E, the answer is {}", "I understand. The answer is {}"]
    for number, begin in enumerate(replies(options)):
        reply = forms[number % len(forms)].format(begin)
        letters = read("zero_shot", words.zero_shot_cot_trigger, reply, "medxpertqa", "mm", about)
        assert taken("medxpertqa", reply, options) == (letters[0] if letters else None), reply
    task = task_of("medxpertqa_mm", tmp_path)
    case = task.cases("test")[0]
    prompt = task.prompt(case, task.read_images(case))
    assert prompt.text.splitlines()[0] == words.zero_shot_system_role
    assert words.zero_shot_cot_prompt.split("\n")[-1] in prompt.text
    (last,) = prompt.later
    assert "".join(last.parts) == words.zero_shot_cot_trigger.format(start="A", end="E")


def test_medsg_benchs_iou_is_its_scripts():
    """By the copy of the authors' evaluation that a third party ran and released."""
    clone = require_clone("XavierSylus/MedSG-Bench") / "eval"
    theirs = load_functions(clone / "utils.py", "calculate_iou")["calculate_iou"]
    draw = random.Random(7)
    values = []
    for _ in range(300):
        first, second = ([a, b, a + draw.randint(1, 60), b + draw.randint(1, 60)]
                         for a, b in ((draw.randint(0, 40), draw.randint(0, 40)) for _ in range(2)))  # fmt: skip
        ours = get("box_iou").function(AnsweredQuestion("box", json.dumps(second), first))
        assert ours == pytest.approx(theirs(first, second), abs=1e-12)
        values.append(ours)
    assert 0.0 in values
    assert max(values) > 0.7

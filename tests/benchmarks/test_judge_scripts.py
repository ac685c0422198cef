"""Questions to judges, and what their replies are worth, by the authors' own scripts and by ours.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import json
import random
import re
import warnings
from collections import defaultdict
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import f1_score

from medimg_eval.instantiate import build_task
from medimg_eval.metrics.judges.green import green_score, read_green
from medimg_eval.results import build_authors_tables, load_runs
from medimg_eval.tasks.questions.templates import fill
from tests.benchmarks.test_question_scripts import OPTIONS, replies, taken
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import SAMPLES, answered, config_of, task_of, worth
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

# ruff: noqa: S311
pytestmark = pytest.mark.slow
assert ALL is not None


def test_medq_benchs_choices_are_those_of_vlmevalkit(tmp_path):
    clone = require_clone("open-compass/VLMEvalKit") / "vlmeval/dataset/medqbench_mcq.py"
    theirs = load_functions(clone, "MedqbenchMCQDataset", ImageMCQDataset=object, pd=pd)["MedqbenchMCQDataset"]
    reader = theirs.__new__(theirs)
    for reply in replies(OPTIONS):
        letter = reader._extract_option_letter(reply)
        assert taken("medq_bench", reply) == (letter if letter in OPTIONS else None), reply
    task = task_of("medq_bench", tmp_path)
    reader.dump_image = lambda _line: "picture.png"
    lines = pd.read_csv(tmp_path / "medqbench_QA_test.tsv", sep="\t")
    for case, (_, line) in zip(task.cases("test"), lines.iterrows(), strict=True):
        assert task.prompt(case, task.read_images(case)).text == reader.build_prompt(line)[1]["value"]
        assert case.target.read().value == reader._convert_answer_to_letter(line["answer"])


RATINGS = [
    "Score: 2",
    "Score:1",
    "Score：0",
    "Score: 1.5",
    "2",
    " 0 ",
    "Score: 2 as all is said",
    "none",
    "",
    "Score: high",
]


@pytest.mark.parametrize(
    ("name", "file", "scorer", "templates"),
    [
        ("medq_bench_description", "medqbench_caption", "MedQBench_Caption_Scorer", "PROMPT_TEMPLATES"),
        (
            "medq_bench_pairs",
            "medqbench_paired_description",
            "MedQBench_PairedDescription_Scorer",
            "PAIRED_PROMPT_TEMPLATES",
        ),
    ],
)
def test_medq_benchs_judge_is_that_of_vlmevalkit(name, file, scorer, templates, tmp_path):
    folder = require_clone("open-compass/VLMEvalKit") / "vlmeval/dataset"
    shared = load_functions(folder / "medqbench_caption.py", "PROMPT_TEMPLATES")["PROMPT_TEMPLATES"]
    given = {} if file == "medqbench_caption" else {"PROMPT_TEMPLATES": shared}
    theirs = load_functions(folder / f"{file}.py", templates, scorer, re=re, pd=pd, **given)[scorer]
    rater = theirs(None, None)
    task = task_of(name, tmp_path)
    case = task.cases("test")[0]
    reply = "Noise is strong. Overall, the quality of this image is usable."
    asked = {question.name: (question, prompt) for question, prompt in judge_prompts(task, case, {"texts": [reply]})}
    assert list(asked) == rater.target_metrics
    for metric, (question, prompt) in asked.items():
        right = rater.build_prompt(metric, reply, case.target.read().value)
        assert prompt.text == right, metric
        for rating in RATINGS:
            assert question.verdict(rating) == rater.parse_score_from_response(rating), (metric, rating)


def choices(text):
    names = ("accuracy", "relevance", "comprehensiveness", "creativity", "responsiveness", "overall")
    return dict(zip(names, text, strict=False))


def test_med_rewardbenchs_prompt_and_agreement_are_its_scripts(tmp_path):
    clone = require_clone("meidandz/Med-RewardBench") / "vlm"
    names = ("construct_input", "normalize_chosen_answer", "evaluate_accuracy")
    theirs = load_functions(clone / "00_benchmark_full_pipeline.py", *names, re=re, json=json)
    words = load_functions(clone / "prompt.py", "get_prompt_ours")["get_prompt_ours"]()
    task = task_of("med_rewardbench", tmp_path)
    cases = {case.id: case for case in task.cases("test")}
    written = {}
    for name, case in cases.items():
        fields = case.question.fields
        answers = [fields["answer1"], fields["answer2"]]
        asked = theirs["construct_input"](words, "pair", "No COT", case.question.text, answers)
        assert task.prompt(case, task.read_images(case)).text == asked
        written[name] = case.target.read().value
    given = {
        "brain-2": json.dumps(choices("ABABAA") | {"reason": "A is longer"}),
        "brain-1": f"I see:\n```json\n{json.dumps(choices('AABAAB'))}\n```",
        "lung-1": "I cannot tell.",
    }
    for name, answer in given.items():
        right = theirs["normalize_chosen_answer"](answer)
        lines = {"gt": {"human_answer": written[name]}, "answers": {"chosen_answer": right}}
        for file, line in lines.items():
            (tmp_path / f"{file}.jsonl").write_text(json.dumps({"question_id": 1} | line))
        row = theirs["evaluate_accuracy"](tmp_path / "gt.jsonl", tmp_path / "answers.jsonl", "brain", "m")
        (run,) = load_runs([answered(task, given, tmp_path / f"run-{name}")])
        ours = run.scores[run.scores["case"] == name].set_index("metric")["value"]
        for dimension in written[name]:
            assert ours[f"grade@{dimension}"] == row[f"{dimension}_acc"], (name, dimension)


def notebook_code(path, *names):
    """The definitions of a notebook's cells, as a file beside which nothing else of it runs."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    return "\n\n".join(source for source in sources if any(name in source for name in names))


def test_3mdbenchs_words_ratings_and_f1_are_its_scripts(tmp_path):
    clone = require_clone("univanxx/3mdbench")
    names = ("get_replace", "get_correct_diags", "comp2id")
    (tmp_path / "metrics.py").write_text(notebook_code(clone / "benchmarking/count_metrics.ipynb", *names))
    theirs = load_functions(tmp_path / "metrics.py", *names, re=re)
    words = load_functions(clone / "utils/dialogue_utils.py", "get_patient_prompt", "characters_dict")
    asked_words = load_functions(clone / "utils/assessment_utils.py", "system_prompt")["system_prompt"]
    task = task_of("mdbench_3m", tmp_path / "data")
    for case in task.cases("test"):
        fields = case.question.fields
        told = fill(task.script, fields | {"character": task.characters[fields["personality"]]})
        right = words["get_patient_prompt"](fields["complaint"], fields["symptoms"], fields["personality"])
        assert told.split() == right.split()
    asked = {question.name: (question, prompt) for question, prompt in judge_prompts(task, case, {"texts": ["hives"]})}
    assert asked["history"][1].text.split()[: len(asked_words.split())] == asked_words.split()
    items = {"1.1": "history", "1.2": "symptoms", "1.3": "explanation", "2.1": "empathy", "2.2": "wishes"}
    items |= {"3.1": "diagnostic_plan", "3.2": "treatment_plan"}
    for answer in (0, 1, "0", "1", "yes", "No", "YES"):
        for key, name in items.items():
            rating = f"```python\n{{'{key}': {answer!r}}}\n```"
            assert asked[name][0].verdict(rating) == theirs["get_replace"](answer), (name, answer)
    for answer in theirs["comp2id"]:
        rating = f'{{"4.1": "{answer.capitalize()}"}}'
        assert asked["competence"][0].verdict(rating) == theirs["comp2id"][answer]

    draw = random.Random(5)
    cases = task.cases("test")
    called = [*cases[0].question.options, *task.synonyms]
    for number in range(40):
        diagnoses = {case.id: draw.choice([case.target.read().value, *draw.sample(called, 2)]) for case in cases}
        given = {name: f"Your diagnosis is {diagnosis}." for name, diagnosis in diagnoses.items()}
        named = [theirs["get_correct_diags"](diagnosis.lower())[0] for diagnosis in diagnoses.values()]
        truths = [case.target.read().value for case in cases]
        right = f1_score(truths, named, average="weighted", labels=sorted(set(truths)), zero_division=0)
        ours = worth(answered(task, given, tmp_path / f"run-{number}"))
        assert ours["weighted_f1"] == pytest.approx(right, abs=1e-9), diagnoses


def green_replies(draw, count=3000):
    """Replies in GREEN's form: counts, no counts, "No" errors, numbers for letters, and an explanation."""
    kinds = ["False report", "Missing a finding", "Wrong place", "Severity", "Comparison", "Omitted comparison"]
    for _ in range(count):
        text = "[Explanation]:\n    Reports differ.\n\n"
        marks = draw.choice(["abcdef", "abcdef", "123456"])
        for section in ("Clinically Significant Errors", "Clinically Insignificant Errors"):
            lines = [
                draw.choice(["({}) {}: {}. Edema; Mass", "({}) {}: {}. Lesion of 2.5 cm", "({}) {}: none"]).format(
                    mark, kind, draw.randrange(13)
                )
                for mark, kind in zip(marks, kinds, strict=True)
                if draw.random() < 0.6
            ]
            body = "\n".join(lines) if lines and draw.random() < 0.8 else "No errors were found."
            text += f"[{section}]:\n{body}\n\n"
        matched = draw.choice(["{}. Heart; Lungs", "{}.", "No matched findings."])
        yield text + f"[Matched Findings]:\n{matched.format(draw.randrange(12))}\n"


def test_greens_counts_and_score_are_its_packages():
    clone = require_clone("Stanford-AIMI/GREEN") / "green_score"
    helpers = load_functions(clone / "utils.py", "clean_responses", "make_prompt")
    clean = helpers["clean_responses"]
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), inference_mode=lambda: lambda f: f)
    theirs = load_functions(clone / "green.py", "GREEN", torch=torch, re=re, warnings=warnings)["GREEN"]()
    for reply in green_replies(random.Random(0)):
        *significant, matched = theirs.compute_error_count(clean(reply))
        ours = read_green(reply)
        assert (list(ours["significant"].values()), ours["matched"]) == (significant, matched), reply
        assert list(ours["insignificant"].values()) == theirs.parse_error_counts(clean(reply), theirs.categories[1])[1]
        assert green_score(ours) == theirs.compute_green(clean(reply)), reply
    texts = [" ".join(f"{side}{number}" for number in range(400)) for side in "rc"]
    shown = dict(zip(("{reference}", "{prediction}"), (" ".join(text.split()[:300]) for text in texts), strict=True))
    asked = yaml.safe_load((files("medimg_eval.configs") / "judging/green.yaml").read_text(encoding="utf-8"))["prompt"]
    asked = re.sub("|".join(shown), lambda field: shown[field[0]], asked["user"])
    assert asked == helpers["make_prompt"](*texts)


CATEGORIES = {
    "10_1": ["detection", "diagnosis"],
    "10_2": ["localization", "comparison"],
    "20_1": ["diagnosis"],
    "20_2": ["relationship", "detection"],
}


def test_chestagentbenchs_letters_and_accuracies_are_its_scripts(tmp_path):
    script = require_clone("bowang-lab/MedRAX") / "experiments/analyze_axes.py"
    names = ("QUESTION_TYPES", "extract_answer_letter", "analyze_gpt4_results", "process_results")
    theirs = load_functions(script, *names, json=json, defaultdict=defaultdict, tqdm=lambda lines, **_: lines)
    for reply in replies(OPTIONS):
        assert taken("chestagentbench", reply) == theirs["extract_answer_letter"](reply), reply
    SAMPLES["chestagentbench"].write(tmp_path)
    task = build_task(config_of("chestagentbench", tmp_path, extraction="authors"))
    cases, draw = task.cases("test"), random.Random(1)
    for number in range(20):
        given = {
            case.id: draw.choice(["{0}", "{0}) so", "It is {0}", ""]).format(draw.choice("ABCD")) for case in cases
        }
        entries = [
            {
                "question_id": case.id,
                "model_answer": given[case.id],
                "correct_answer": case.target.read().value,
                "input": {"question_data": {"metadata": {"categories": CATEGORIES[case.id]}}},
            }
            for case in cases
        ]
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        overall, by_category, *_ = theirs["analyze_gpt4_results"](tmp_path / "log.jsonl")
        (table,) = build_authors_tables(load_runs([answered(task, given, tmp_path / f"run-{number}")]), resamples=20)
        ours = {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}
        if all(taken("chestagentbench", reply) is None for reply in given.values()):
            continue
        assert 100 * ours["Overall"] == pytest.approx(overall)
        for category, right in by_category.items():
            assert 100 * ours[category.capitalize()] == pytest.approx(right["accuracy"]), category


def run_cells(path, *marks, **given):
    """What is defined once the cells of a notebook that hold one of these marks have run in their order."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    for source in ("".join(cell["source"]) for cell in cells):
        if any(mark in source for mark in marks):
            exec(source, given)  # noqa: S102
    return given


def test_temmed_benchs_choices_are_its_notebooks():
    notebook = require_clone("Levi-ZJY/TemMed-Bench") / "Eval/metrics/ImgPairSelection_eval.ipynb"
    options = dict(zip("ABC", ("first", "second", "third"), strict=True))
    forms = [
        "my answer is {}",
        "**My answer is {}.**",
        "My answer is **{}**",
        "my answer is **{}.**",
    ]
    draw, counts = random.Random(2), [0, 0]
    for _ in range(500):
        reply = " ".join(
            draw.choice([*forms, "My answer is [{}]", "{} shows it."]).format(draw.choice("ABCabc")) for _ in range(2)
        )
        try:
            letter = "ABCD"[run_cells(notebook, "answer_list = []", data=[{"answer": reply}])["answer_list"][0] - 1]
        except ValueError:
            letter = None
        counts[letter is None] += 1
        assert taken("temmed_selection", reply, options) == letter, reply
    assert min(counts) > 20


def test_temmed_benchs_yes_no_accuracy_and_f1_are_its_notebooks(tmp_path):
    notebook = require_clone("Levi-ZJY/TemMed-Bench") / "Eval/metrics/VQA_eval.ipynb"
    for reply in ["Yes", "yes.", "YES, it is", "No", "no", "NO.", "None", " Yes", "yEs", "It is", ""]:
        try:
            (answer,) = run_cells(notebook, "answer_list = []", data=[{"answer_vqa": reply}])["answer_list"]
        except ValueError:
            answer = None
        assert taken("temmed_yes_no", reply, {}, "yes_no") == {1: "yes", 0: "no", None: None}[answer], reply
    SAMPLES["temmed_vqa"].write(tmp_path)
    task = build_task(config_of("temmed_vqa", tmp_path, extraction="authors"))
    draw = random.Random(3)
    for number in range(10):
        given = {case.id: draw.choice(["Yes", "No.", "no", "YES"]) for case in task.cases("test")}
        data = [
            {"answer_vqa": given[case.id], "label_answer_vqa": case.target.read().value.capitalize()}
            for case in task.cases("test")
        ]
        theirs = run_cells(notebook, "label_list = []", "answer_list = []", "accuracy_score", data=data)
        ours = worth(answered(task, given, tmp_path / f"run-{number}"))
        assert ours["accuracy"] == pytest.approx(theirs["acc"])
        assert ours["macro_f1"] == pytest.approx(theirs["f1"], abs=1e-9)


@pytest.mark.parametrize("name", ["medmaslab", "medmaslab_open"])
def test_medmaslabs_judge_is_asked_in_its_programs_words(name, tmp_path):
    script = require_clone("NUS-Project/MedMASLab") / "llm_evaluate.py"
    names = ("QwenVL_JudgeModel", "format_prompt")
    theirs = load_functions(
        script, *names, qwen_vl_chat_content=lambda images, text: {"content": text, "images": images}
    )
    judge = theirs["QwenVL_JudgeModel"](None, None, "cpu")
    asked = SimpleNamespace(submit_request=lambda messages: (messages, 0, 0))
    task = task_of(name, tmp_path)
    for case in task.cases("test"):
        fields = case.question.fields
        query = task.prompt(case, task.read_images(case)).text
        form = fields.get("form") or "closed"
        system, user = judge.chat(query, "So it is.", fields.get("label"), fields["right"], None, form, asked)
        ((question, prompt),) = judge_prompts(task, case, {"texts": ["So it is."]})
        assert prompt.messages[0].text == system["content"][0]["text"], case.id
        assert prompt.messages[-1].text == user["content"], case.id
    for verdict, value in {"[right]": 1, "[wrong]": 0, "**Wrong**": 0, "right.": 1}.items():
        cleaned = re.sub(r"[^a-zA-Z]", "", verdict).lower()  # as main.py has it, in the midst of its run
        assert question.verdict(verdict) == value == (cleaned[:5] != "wrong")


def test_bimed_mbenchs_words_and_relative_score_are_its_scripts(tmp_path):
    """In commit 497a352 of the repository, which its later ones no longer hold."""
    folder = require_clone("mbzuai-oryx/BiMediX2") / "BiMed-MBench/eval"
    if not folder.is_dir():
        pytest.skip("the clone of mbzuai-oryx/BiMediX2 is not at commit 497a352")
    names = ("conv_to_str", "compare_messages_gen", "INSTRUCT_PROMPT", "ROLE")
    words = load_functions(folder / "eval_multimodal_chat_gpt_score.py", *names)["compare_messages_gen"]
    task = task_of("bimed_mbench", tmp_path)
    lines = (tmp_path / "data/test_sets/bimed-mbench_eng.jsonl").read_text(encoding="utf-8").splitlines()
    records = {f"eng-{record['question_id']}": record for record in map(json.loads, lines)}
    cases = {case.id: case for case in task.cases("test") if case.id in records}
    rated, draw = [], random.Random(8)
    verdicts = {}
    for name, case in cases.items():
        record = records[name]
        shown = [record[key] for key in ("fig_label", "fig_caption", "in_text_mention")]
        question = record["text"].replace("<image>", "")  # they leave the mark in what the judge reads
        system, user = words(*shown, question, record["gpt4_answer"], "The eye.")
        prompts = judge_prompts(task, case, {"texts": ["The eye."]})
        asked = {named.name: (named, prompt) for named, prompt in prompts}
        assert asked["answer"][1].messages[0].text == system["content"]
        assert asked["answer"][1].messages[-1].text == user["content"]
        reply = f"{draw.randrange(1, 11)} {draw.randrange(1, 11)}\nThe second is longer."
        verdicts[name] = {key: asked[key][0].verdict(reply) for key in ("answer", "reference")}
        rated.append(record | {"gpt_eval": reply})
    average = SimpleNamespace(load_file_jsonl=lambda _: rated, get_avg=lambda values: np.mean([*map(float, values)]))
    printed = {}
    table = SimpleNamespace(
        DataFrame=SimpleNamespace(from_dict=lambda held: printed.update(held) or pd.DataFrame(held))
    )
    theirs = load_functions(
        folder / "summarize_gpt_review.py", "get_domain", "main", util=average, defaultdict=defaultdict, pd=table
    )
    theirs["main"](SimpleNamespace(scores_file=str(tmp_path / "a_score.jsonl")))
    ours = worth(answered(task, dict.fromkeys(cases, "The eye."), tmp_path / "run", verdicts))
    assert ours["judged@answer"] == pytest.approx(printed["overall"]["pred_score"])
    assert ours["judged@reference"] == pytest.approx(printed["overall"]["gpt4o_score"])
    assert ours["judge_mean_of_ratios"] == pytest.approx(printed["overall"]["pred_relative_score"])

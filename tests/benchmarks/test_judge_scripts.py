"""Questions to judges, and what their replies are worth, by the authors' own scripts and by ours.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import json
import re

import pandas as pd
import pytest

from medimg_eval.results import load_runs
from tests.benchmarks.test_question_scripts import OPTIONS, replies, taken
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.catalogue import answered, task_of
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

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


RATINGS = ["Score: 2", "Score:1", "Score：0", "Score: 1.5", "2", " 0 ", "Score: 2 as all is said", "none", "", "Score: high"]


@pytest.mark.parametrize(
    "name, file, scorer, templates",
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


def test_med_rewardbenchs_prompt_and_agreement_are_its_scripts(tmp_path, monkeypatch):
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

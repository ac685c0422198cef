"""CXReasonBench by its authors' programs and by ours: the questions that a chain asks, and how far it goes.

It runs where MEDIMG_EVAL_CLONES names a folder with a clone of ttumyche/CXReasonBench.
"""

import json
import random
import re
import runpy
import shutil
import sys
from itertools import takewhile
from types import SimpleNamespace

import pytest

from medimg_eval.instantiate import build_task
from medimg_eval.question import Reply
from medimg_eval.results import load_runs
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import answered, config_of
from tests.helpers.samples.k6 import _chain

pytestmark = pytest.mark.slow

WITH_CUSTOM = {"cardiomegaly": True, "inclusion": False}
LETTERS = re.compile(r"\(([a-z])\)")
CHOSEN = {  # how the question begins -> what the made-up model chooses from
    "Is it so": ["a", "a", "b", "c"],
    "Which criterion": ["a"] * 6 + ["b"],
    "And then": ["b"] * 6 + ["c"],
    "By 0.5": ["a"] * 3 + ["b", "c"],
    "Which images": ["ac"] * 4 + ["b"] * 4 + ["c"] * 3,
    "Which range": ["b"] * 5 + ["a"],
    "So?": ["a", "b", "a", "b", "c"],
}


def written(case, question, before):
    """A made-up model's reply to a question that was put to it so many times before."""
    draw = random.Random(f"{case} {question} {before}")  # noqa: S311
    letters = next(draw.choice(some) for begin, some in CHOSEN.items() if question.startswith(begin))
    value = f"VALUE: {draw.choice(['0.42', '0.47', '0.47', '0.49', '0.47 or 0.52'])}\n" if "VALUE" in question else ""
    return value + "FINAL ANSWER: " + ", ".join(f"({letter}) so" for letter in letters)


def judged(_model, instruction, question, answer, response):
    """What their LLM is to say of a reply, by letters alone; -1 where the model does not know."""
    letters, right = set(LETTERS.findall(response)), set(LETTERS.findall(answer))
    is_right = letters < right or letters == right if "exactly one of them" in instruction else letters == right
    if "'True', or 'IDK'" in instruction:  # any other criterion of one's own leads to path 2
        return (1 if is_right else -1), None
    return (-1 if "IDK" in instruction and letters == {"c"} else int(is_right)), None


def run_theirs(clone, root, monkeypatch, asked):
    """Runs evaluate_reasoning.py, evaluate_guidance.py and calculate_metrics of metric.py; returns their counts."""

    def infer(_args, _model, _processor, query, img_path_lst, system_message, chat_history):
        case = re.search(r"in (\w+)\?", chat_history[0][0] if chat_history else query)[1]
        reply = written(case, query, sum(entry[0] == query for entry in chat_history))
        asked.setdefault(case, []).append((query, len(img_path_lst)))
        return reply, [*chat_history, [query, img_path_lst, reply]]

    stubs = {
        "utils": {**runpy.run_path(str(clone / "utils.py")), "set_gcp_env": lambda _: None},
        "prompt": runpy.run_path(str(clone / "prompt.py")),
        "scoring": {"return_scoring_result": judged, "return_measured_value_result": lambda _m, _s, reply: reply},
        "model_cards": {
            "load_model_n_prosessor": lambda *_: (None, None),
            "inference_vllms": lambda _: infer,
        },
    }
    for name, held in stubs.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**held))
    out = root / "out"
    options = ["--cxreasonbench_base_dir", str(root), "--mimic_cxr_base", str(root), "--save_base_dir", str(out)]
    monkeypatch.setattr(sys, "argv", ["x", *options, "--model_id", "gpt-4.1", "--model_id4scoring", "judge"])
    runpy.run_path(str(clone / "evaluate_reasoning.py"), run_name="__main__")
    for folder in [
        *(out / "inference/reasoning/gpt-4.1").iterdir(),
        *(out / "scoring/reasoning/judge/gpt-4.1").iterdir(),
    ]:
        if folder.is_dir() and folder.name not in WITH_CUSTOM:
            shutil.rmtree(folder)
    config = out / "inference/reasoning/gpt-4.1/config.json"
    monkeypatch.setattr(sys, "argv", ["x", "--config_path", str(config)])
    runpy.run_path(str(clone / "evaluate_guidance.py"), run_name="__main__")
    counts = {}
    metrics = runpy.run_path(str(clone / "metric.py"))["calculate_metrics"]
    for path in ("reasoning", "guidance"):
        args = SimpleNamespace(**json.loads((out / f"inference/{path}/gpt-4.1/config.json").read_text()))
        args.saved_dir_inference = str(out / f"inference/{path}/gpt-4.1")
        args.saved_dir_scoring = str(out / f"scoring/{path}/judge/gpt-4.1")
        for group, row in metrics(args, path).items():
            counts.setdefault(group, {}).update(row)
    return counts


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of their means, where no case came so far
def test_cxreasonbenchs_chains_go_as_far_as_by_its_programs(tmp_path, monkeypatch):
    clone = require_clone("ttumyche/CXReasonBench") / "evaluation"
    names = {group: [f"{group[0]}{number}" for number in range(40)] for group in WITH_CUSTOM}
    for group, cases in names.items():
        for case in cases:
            _chain(tmp_path, group, case, "b", custom=WITH_CUSTOM[group])
    others = ["aortic_knob_enlargement", "ascending_aorta_enlargement", "carina_angle", "descending_aorta_enlargement"]
    others += ["descending_aorta_tortuous", "inspiration", "mediastinal_widening", "projection", "rotation"]
    listed = {name: [] for name in [*others, "trachea_deviation"]} | names
    (tmp_path / "dx_by_dicoms.json").write_text(json.dumps(listed))
    asked = {}
    theirs = run_theirs(clone, tmp_path, monkeypatch, asked)

    task = build_task(config_of("cxreasonbench", tmp_path) | {"expected": {"test": 80}})
    given = {}
    for case in task.cases("test"):
        prompt, texts, put = task.prompt(case, task.read_images(case)), [], []
        question = case.question.text
        while True:
            put.append(question)
            texts.append(written(case.id.split("-")[1], question, put.count(question) - 1))
            turn = task.next_turn(prompt, texts)
            if turn is None:
                break
            question = next(part for part in turn.parts if isinstance(part, str))
        given[case.id] = Reply(tuple(texts))
        rows = [query for query, _ in asked[case.id.split("-")[1]]], put
        rows = [[row[0], *takewhile(lambda query: not query.startswith("Is it so"), row[1:])] for row in rows]
        theirs_put, ours_put = rows  # their path 2 goes on to the second body part after a wrong first one
        assert ours_put == theirs_put[: len(ours_put)], case.id
        assert len(theirs_put) - len(ours_put) <= 1, case.id
    (run,) = load_runs([answered(task, given, tmp_path / "run")])
    scores = run.scores
    for group in names:
        mine = scores[scores["case"].str.startswith(f"{group}-")]
        value = {
            metric: mine[mine["metric"] == metric].groupby(mine["case"].str.split("/").str[-1])["value"].sum()
            for metric in ("accuracy", "accuracy_in_range")
        }
        counts, right = theirs[group], value["accuracy"]
        for stage in ("criteria", "bodypart", "measurement", "final"):
            assert right[stage] == counts[f"num_correct_{stage}"], (group, stage)
        for stage in ("bodypart", "measurement", "final"):
            assert right[f"guided_{stage}"] == counts[f"num_correct_g_{stage}"], (group, stage)
        if group == "cardiomegaly":
            assert value["accuracy_in_range"]["final"] == counts["num_correct_measurement_matching"]
            assert value["accuracy_in_range"]["guided_final"] == counts["num_correct_g_measurement_matching"]
    assert len({len(reply.texts) for reply in given.values()}) > 6

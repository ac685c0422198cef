"""`import log=`: logs of other programs, written here in their layouts, become runs that are scored and compared."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from openpyxl import Workbook

from medimg_eval.commands.cli import start
from medimg_eval.data.logs import read_logs
from medimg_eval.data.logs.records import letter_of, lettered
from medimg_eval.errors import UserError
from medimg_eval.results import load_runs, load_scores

ORGANS = ("Liver", "Heart", "Lung", "Skin")
ASKED = (("Which organ makes bile?", 0), ("Which organ pumps blood?", 1), ("Which organ is outermost?", 3))


def write_lines(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_json(file, held):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(held))
    return file


def accuracy_of(folder, metric="accuracy"):
    """By run: the values by case."""
    found = {}
    for run in load_runs([folder / "runs"]):
        rows = run.scores[run.scores["metric"] == metric]
        found[run.task, run.model] = dict(zip(rows["case"], rows["value"], strict=True))
    return found


def weighed(folder, likelihoods=((-0.1, -2, -3, -4), (-5, -4, -3, -2), (-9, -8, -7, -1))):
    """Samples of lm-eval, of a model that weighs options."""
    rows = [
        {
            "doc_id": place,
            "doc": {"q": question, "choices": list(ORGANS), "gold": right},
            "target": str(right),
            "arguments": {f"gen_args_{n}": {"arg_0": question, "arg_1": f" {text}"} for n, text in enumerate(ORGANS)},
            "resps": [[[str(one), "False"]] for one in values],
            "filtered_resps": [[str(one), "False"] for one in values],
            "filter": "none",
            "metrics": ["acc"],
            "doc_hash": "a",
            "prompt_hash": "b",
            "target_hash": "c",
            "acc": float(values[right] == max(values)),
        }
        for place, ((question, right), values) in enumerate(zip(ASKED, likelihoods, strict=True))
    ]
    write_json(folder / "results_2026-01-01T00-00-00.0.json", {"model_name": "lab/net"})
    return write_lines(folder / "samples_organs_2026-01-01T00-00-00.0.jsonl", rows)


def test_lm_eval_likelihoods_become_letters_and_agree_with_its_accuracy(folder, capsys):
    assert start(["import", f"log={weighed(folder / 'out')}"]) == 0
    assert accuracy_of(folder) == {("organs", "lab_net"): {"0": 1, "1": 0, "2": 1}}
    printed = " ".join(capsys.readouterr().out.split())
    assert "lab_net: lm-eval's acc 0.667, our accuracy 0.667, of 3 replies; 0 differ" in printed


def test_a_score_that_differs_is_counted_and_written(folder, capsys):
    file = weighed(folder / "out")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[1]["acc"] = 1.0
    write_lines(file, rows)
    assert start(["import", f"log={file}", "name=mine", "out=read"]) == 0
    assert "1 differ" in capsys.readouterr().out
    (line,) = (folder / "read/lm-eval/organs/mine-acc-differs.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["id"], row["lm-eval: acc"], row["medimg_eval: accuracy"]) == ("1", 1.0, 0.0)


def test_lm_eval_texts_keep_the_raw_reply_and_count_one_filter(folder):
    rows = [
        {
            "doc_id": 7,
            "doc": {"question": "Which organ makes bile?"},
            "target": "Liver",
            "arguments": {"gen_args_0": {"arg_0": "Which organ makes bile?", "arg_1": {"until": ["\n"]}}},
            "resps": [["The liver, of course"]],
            "filtered_resps": [filtered],
            "filter": name,
            "exact_match": score,
        }
        for name, filtered, score in (("none", "The liver, of course", 0.0), ("strict", "liver", 1.0))
    ]
    (log,) = read_logs(write_lines(folder / "samples_open_2026-01-01T00-00-00.0.jsonl", rows))
    (record,) = log.records
    assert (record.case, record.prediction, record.reference) == ("7", "The liver, of course", "Liver")
    assert record.scores == {"exact_match": 0.0}


def test_a_file_that_two_starts_appended_to_is_refused(folder):
    file = weighed(folder / "a")
    other = weighed(folder / "b", likelihoods=((-9, -2, -3, -4),) * 3)
    file.write_text(file.read_text() + other.read_text())
    with pytest.raises(UserError, match="question 0 has two replies"):
        read_logs(file)


def lmms(folder):
    """Samples of lmms-eval, which hold no options, and a task of the same questions, which does."""
    rows = [
        {
            "doc_id": place,
            "target": "ABCD"[right],
            "filtered_resps": [reply],
            "token_counts": [{"input_tokens": 5, "output_tokens": 1}],
            "doc_hash": "x",
            "input": question,
            "acc": float(reply == "ABCD"[right]),
        }
        for place, ((question, right), reply) in enumerate(zip(ASKED, "ABC", strict=True))
    ]
    file = write_lines(folder / "out" / "vlm" / "20260101_000000_samples_organs.jsonl", rows)
    config = folder / "configs" / "task" / "mine.yaml"
    config.parent.mkdir(parents=True)
    write_lines(
        folder / "data" / "test.jsonl",
        [
            {"id": f"q{n}", "question": text, "choices": list(ORGANS), "gold": "ABCD"[right]}
            for n, (text, right) in enumerate(ASKED)
        ],
    )
    config.write_text(
        "_target_: medimg_eval.tasks.QuestionTask\nname: mine\n"
        "layout: {_target_: medimg_eval.data.layouts.Questions, root: data, records: {test: test.jsonl}, id: id,\n"
        "  question: question, options: {list: choices}, answer: {letter: gold}, kind: choice, min_images: 0}\n"
        "splits: {test: test}\nmetrics: [accuracy]\n"
    )
    return file


def test_lmms_eval_is_matched_to_a_task_by_question_and_keeps_what_it_says(folder):
    file = lmms(folder)
    (log,) = read_logs(file)
    assert (log.program, log.model, log.dataset) == ("lmms-eval", "vlm", "organs")
    assert [record.prediction for record in log.records] == ["A", "B", "C"]
    assert start(["import", f"log={file}", "task=mine", "-cd", str(folder / "configs")]) == 0
    assert accuracy_of(folder) == {("mine", "vlm"): {"q0": 1, "q1": 1, "q2": 0}}


def vlmevalkit(folder, predictions=("A", "The answer is (C).", "Failed to obtain answer via API."), suffix=".xlsx"):
    header = ["index", "question", *"ABCD", "answer", "prediction"]
    rows = [
        [place, question, *ORGANS, "ABCD"[right], reply]
        for place, ((question, right), reply) in enumerate(zip(ASKED, predictions, strict=True))
    ]
    file = folder / "vlm" / "T20260101-000000" / f"vlm_ORGANS{suffix}"
    file.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".xlsx":
        book = Workbook()
        for row in (header, *rows):
            book.active.append(row)
        book.save(file)
    else:
        pd.DataFrame(rows, columns=header).to_csv(file, sep="\t", index=False)
    return file


def test_a_file_in_the_working_folder_is_called_like_that_folder(folder, monkeypatch):
    for write in (weighed, lambda place: vlmevalkit(place, suffix=".tsv")):
        file = write(folder / "lab" / "mine")
        place = folder / "lab" / "mine"
        for beside in place.glob("results*.json"):
            beside.unlink()
        monkeypatch.chdir(place)
        (log,) = read_logs(Path(file.rename(place / f"organs_{file.name}").name))
        assert log.model == "mine"


@pytest.mark.parametrize("suffix", [".xlsx", ".tsv"])
def test_vlmevalkit_tables_keep_options_and_lose_no_failure(folder, suffix, capsys):
    assert start(["import", f"log={vlmevalkit(folder, suffix=suffix)}"]) == 1
    assert accuracy_of(folder) == {("ORGANS", "vlm"): {"0": 1, "1": 0, "2": 0}}
    assert "2 (" in capsys.readouterr().err


def test_vlmevalkit_answers_that_look_like_nothing_stay_texts(folder):
    (log,) = read_logs(vlmevalkit(folder, ("None", "NA", "null")))
    assert [record.prediction for record in log.records] == ["None", "NA", "null"]


def test_in_a_folder_the_table_of_a_judge_is_not_a_second_log(folder):
    file = vlmevalkit(folder, "ABD")
    (file.parent / "vlm_ORGANS_gpt.xlsx").write_bytes(file.read_bytes())
    (log,) = read_logs(folder)
    assert log.file == file


def test_a_pickle_is_refused(folder):
    file = folder / "vlm_ORGANS.pkl"
    file.write_bytes(b"\x80\x04N.")
    with pytest.raises(UserError, match="is a pickle"):
        read_logs(file)


def medevalkit(folder):
    options = [f"{letter}. {text}" for letter, text in zip("ABCD", ORGANS, strict=True)]
    answered = (("A", "A"), ("Heart", "B"), ("D", "<answer>D</answer>"))
    rows = [
        {"prompt": question, "answer": answer, "choices": options, "response": reply, "correct": True}
        for (question, _), (answer, reply) in zip(ASKED, answered, strict=True)
    ]
    return write_json(folder / "Lingshu" / "MedQA" / "results.json", rows)


def test_medevalkit_choices_with_letters_and_texts_that_are_right(folder, capsys):
    file = medevalkit(folder)
    assert start(["import", f"log={file}"]) == 0
    assert accuracy_of(folder) == {("MedQA", "Lingshu"): {"0": 1, "1": 1, "2": 1}}
    assert "MedEvalKit's correct 1.000, our accuracy 1.000, of 3 replies; 0 differ" in capsys.readouterr().out


def helm(folder):
    states, stats = [], []
    for place, (question, right) in enumerate(ASKED):
        references = [
            {"output": {"text": text}, "tags": ["correct"] if n == right else []} for n, text in enumerate(ORGANS)
        ]
        instance = {"input": {"text": question}, "references": references, "split": "test", "id": f"id{place}"}
        states += [
            {
                "instance": {**instance, **perturbation},
                "train_trial_index": 0,
                "output_mapping": dict(zip("ABCD", ORGANS, strict=True)),
                "request": {"prompt": question},
                "result": {"success": True, "completions": [{"text": " A", "logprob": 0}]},
            }
            for perturbation in ({}, {"perturbation": {"name": "typos"}})
        ]
        stat = {"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": float(right == 0)}
        stats.append({"instance_id": f"id{place}", "train_trial_index": 0, "stats": [stat]})
    run = folder / "runs-of-helm" / "organs:model=lab_net"
    write_json(run / "scenario_state.json", {"adapter_spec": {}, "request_states": states})
    write_json(run / "per_instance_stats.json", stats)
    write_json(run / "run_spec.json", {"name": "organs:model=lab_net", "adapter_spec": {"model": "lab/net"}})
    return run


def test_helm_runs_give_replies_letters_and_statistics_without_perturbed_copies(folder, capsys):
    assert start(["import", f"log={helm(folder).parent}"]) == 0
    assert accuracy_of(folder) == {("organs", "lab_net"): {"id0": 1, "id1": 0, "id2": 0}}
    printed = capsys.readouterr().out
    assert "3 perturbed copies of questions are left out" in printed
    assert "HELM's exact_match 0.333, our accuracy 0.333, of 3 replies; 0 differ" in printed


def test_inspect_epochs_become_repeats(folder, monkeypatch, capsys):
    def sample(case, epoch, reply, grade, target):
        return SimpleNamespace(
            id=case,
            epoch=epoch,
            input=dict(zip("ab", (text for text, _ in ASKED), strict=False))[case],
            choices=list(ORGANS),
            target=target,
            output=SimpleNamespace(completion=reply),
            scores={"choice": SimpleNamespace(value=grade)},
            metadata={"patient": f"p{case}"},
            error=None,
        )

    samples = [
        sample("a", 1, "ANSWER: A", "C", "A"),
        sample("b", 1, "ANSWER: C", "I", "B"),
        sample("a", 2, "ANSWER: A", "C", "A"),
        sample("b", 2, "ANSWER: B", "C", "B"),
    ]
    log = SimpleNamespace(samples=samples, status="success", eval=SimpleNamespace(model="lab/net", task="organs"))
    library = SimpleNamespace(read_eval_log=lambda file: log)
    monkeypatch.setattr("medimg_eval.data.logs.inspect_logs.import_optional", lambda name: library)
    (folder / "log.eval").write_bytes(b"")
    assert start(["import", "log=log.eval"]) == 0
    (run,) = load_runs([folder / "runs"])
    rows = run.scores[run.scores["metric"] == "accuracy"]
    values = {(row.case, row.repeat): row.value for row in rows.itertuples()}
    assert values == {("a", 0): 1, ("a", 1): 1, ("b", 0): 0, ("b", 1): 1}
    assert set(rows["patient"]) == {"pa", "pb"}
    assert "inspect's choice 0.750, our accuracy 0.750, of 4 replies; 0 differ" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of inspect's own
def test_a_log_that_inspect_itself_wrote_is_read(folder):
    pytest.importorskip("inspect_ai")
    from inspect_ai import Task
    from inspect_ai import eval as run_inspect
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import choice
    from inspect_ai.solver import multiple_choice

    def output(reply):
        made = ModelOutput.from_content("mockllm/model", reply)
        made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return made

    samples = [Sample(input=text, choices=list(ORGANS), target="ABCD"[right], id=text[12:15]) for text, right in ASKED]
    model = get_model("mockllm/model", custom_outputs=[output(f"ANSWER: {letter}") for letter in "ABC"])
    task = Task(dataset=samples, solver=multiple_choice(), scorer=choice(), name="organs")
    run_inspect(task, model=model, log_dir="logs", display="none", max_samples=1)
    assert start(["import", "log=logs"]) == 0
    assert sorted(accuracy_of(folder)["organs", "mockllm_model"].values()) == [0, 1, 1]


def summary_of_nnunet(folder, dice=0.8):
    both = {"Dice": dice, "IoU": 2 / 3, "TP": 4, "FP": 1, "FN": 1, "TN": 9, "n_pred": 5, "n_ref": 5}
    neither = {"Dice": float("nan"), "IoU": float("nan"), "TP": 0, "FP": 0, "FN": 0, "TN": 15, "n_pred": 0, "n_ref": 0}
    cases = [
        {
            "reference_file": f"labelsTs/{case}.nii.gz",
            "prediction_file": f"pred/{case}.nii.gz",
            "metrics": {"1": values},
        }
        for case, values in (("ct_01", both), ("ct_02", neither))
    ]
    return write_json(folder / "nnunet" / "summary.json", {"metric_per_case": cases, "mean": {}, "foreground_mean": {}})


def test_nnunet_summary_is_counted_again(folder, capsys):
    assert start(["import", f"log={summary_of_nnunet(folder)}"]) == 0
    (run,) = load_scores(folder / "imported" / "nnU-Net" / "nnunet.csv")
    rows = run.scores.set_index(["case", "metric"])["value"]
    assert rows["ct_01", "dice"] == pytest.approx(0.8)
    assert rows["ct_01", "iou"] == pytest.approx(2 / 3)
    assert pd.isna(rows["ct_02", "dice"])
    assert "scores=imported/nnU-Net/nnunet.csv" in "".join(capsys.readouterr().out.split())


def test_a_dice_that_is_not_that_of_its_counts_is_refused(folder, capsys):
    assert start(["import", f"log={summary_of_nnunet(folder, dice=0.9)}"]) == 1
    assert "case 'ct_01', label 1: dice is 0.9, its counts give 0.8" in capsys.readouterr().err


KINDS = {
    "lm-eval": (weighed, []),
    "lmms-eval": (lmms, ["task=mine", "-cd", "configs"]),
    "VLMEvalKit": (lambda folder: vlmevalkit(folder, "ABC"), []),
    "MedEvalKit": (medevalkit, []),
    "HELM": (lambda folder: helm(folder).parent, []),
}
"""Programs whose logs hold replies -> what writes one, and what their import needs beside it."""


@pytest.mark.slow
@pytest.mark.parametrize("program", KINDS)
def test_each_foreign_log_is_imported_scored_again_and_exported(folder, program):
    write, words = KINDS[program]
    assert start(["import", f"log={write(folder)}", "out=read", *words]) == 0
    ((_, model),) = before = accuracy_of(folder)
    (run,) = (folder / "runs").glob("*/*")
    assert start(["score", f"run={run}", "metrics=[unanswered]"]) == 0
    scored = load_runs([run])[0].scores
    assert {"accuracy", "unanswered"} <= {*scored["metric"]}
    assert list(accuracy_of(folder).values()) == list(before.values())
    for form in ("lm_eval", "vlmevalkit", "croissant"):
        assert start(["export", f"run={run}", f"to={form}", f"out={form}"]) == 0
    for form in ("lm_eval", "vlmevalkit"):
        assert start(["import", f"log={form}", f"runs={form}/runs", "out=again"]) == 0
        ((key, values),) = accuracy_of(folder / form).items()
        assert key[1] == model
        assert list(values.values()) == [value for one in before.values() for value in one.values()]


def test_what_is_no_log_says_what_reads_any_table(folder, capsys):
    file = folder / "mine.csv"
    file.write_text("a,b\n1,2\n")
    assert start(["import", f"log={file}"]) == 1
    assert "score answers=FILE reads any table" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("right", "expected"),
    [("A", "A"), ("b", "B"), ("0", "A"), ("3", "D"), ("Lung", "C"), ("C: Lung", "C"), ("Spleen", "Spleen")],
)
def test_what_is_right_becomes_a_letter(right, expected):
    assert letter_of(right, lettered(ORGANS)) == expected


def test_options_lose_the_letters_they_begin_with_only_where_all_have_theirs():
    assert lettered(["A. x", "B. y"]) == {"A": "x", "B": "y"}
    assert lettered(["B. x", "A. y"]) == {"A": "B. x", "B": "A. y"}
    assert lettered(["A: x", "y"]) == {"A": "A: x", "B": "y"}


def lm_eval_row(question, right, replies, arguments, **fields):
    """A sample as lm-eval 0.4.13 writes it."""
    hashes = dict.fromkeys(("doc_hash", "prompt_hash", "target_hash"), "a")
    requests = {f"gen_args_{n}": {"arg_0": first, "arg_1": second} for n, (first, second) in enumerate(arguments)}
    row = {"doc_id": 0, "doc": {"question": question}, "target": right, "arguments": requests}
    return (
        row | {"resps": [[reply] for reply in replies], "filtered_resps": replies, "filter": "none"} | hashes | fields
    )


def test_options_that_lm_eval_weighed_twice_for_mutual_information_count_once(folder):
    likelihoods = [[str(value), "False"] for value in (-4, -1, -3, -2, -0.1, -9, -9, -9)]
    arguments = [(context, f" {organ}") for context in ("Which organ pumps blood?", "") for organ in ORGANS]
    row = lm_eval_row("Which organ pumps blood?", "1", likelihoods, arguments, acc=1.0, acc_mutual_info=1.0)
    (log,) = read_logs(write_lines(folder / "samples_m_2026-01-01T00-00-00.0.jsonl", [row]))
    (record,) = log.records
    assert (record.prediction, record.reference) == ("B", "B")
    assert dict(record.options) == dict(zip("ABCD", ORGANS, strict=True))


def test_several_right_texts_and_replies_of_lm_eval_are_told_apart(folder):
    asked = [("Which organ makes bile?", {"until": ["\n"]})]
    row = lm_eval_row("Which organ makes bile?", "['Liver', 'hepar']", ["liver"], asked, exact_match=1.0)
    row["resps"] = [["liver", "spleen"]]
    (log,) = read_logs(write_lines(folder / "samples_s_2026-01-01T00-00-00.0.jsonl", [row]))
    assert [(record.repeat, record.prediction, record.reference) for record in log.records] == [
        (0, "liver", "Liver"),
        (1, "spleen", "Liver"),
    ]
    assert [record.scores for record in log.records] == [{"exact_match": 1.0}, {}]


def test_likelihoods_of_given_texts_are_no_replies(folder):
    row = lm_eval_row("Bile is made by", "Liver", [["-0.1", "False"]], [("Bile is made by", "Liver")], acc=0)
    file = write_lines(folder / "out" / "samples_given_2026-01-01T00-00-00.0.jsonl", [row])
    with pytest.raises(UserError, match="no replies"):
        read_logs(file)
    weighed(folder / "out")
    (log,) = read_logs(folder / "out")
    assert log.dataset == "organs"
    assert "no replies" in log.notes[0]


def test_of_several_starts_in_a_folder_the_results_of_the_same_time_name_the_model(folder):
    rows = [
        {"doc_id": 0, "target": "A", "filtered_resps": "A.", "token_counts": [None], "doc_hash": "a", "input": "Which?"}
    ]
    for time, source in (("20260101_000000", "first"), ("20260102_000000", "second")):
        write_lines(folder / "out" / f"{time}_samples_organs.jsonl", rows)
        write_json(folder / "out" / f"{time}_results.json", {"model_source": source, "model_name": ""})
    assert [log.model for log in read_logs(folder / "out")] == ["first", "second"]


def test_what_a_request_of_helm_cost_is_no_score(folder):
    run = helm(folder)
    file = run / "per_instance_stats.json"
    held = json.loads(file.read_text())
    for instance in held:
        for name in ("num_perplexity_tokens", "finish_reason_stop", "logprob", "max_prob"):
            instance["stats"].append({"name": {"name": name, "split": "test"}, "count": 1, "mean": 1.0})
    write_json(file, held)
    (log,) = read_logs(run.parent)
    assert {name for record in log.records for name in record.scores} == {"exact_match"}


def test_folds_of_nnunet_become_one_table(folder):
    trained = folder / "nnUNetTrainer__nnUNetPlans__2d"
    for fold in range(2):
        summary = json.loads(summary_of_nnunet(folder).read_text())
        for case in summary["metric_per_case"]:
            case["reference_file"] = case["reference_file"].replace("ct_", f"ct_{fold}")
        write_json(trained / f"fold_{fold}" / "validation" / "summary.json", summary)
    assert start(["import", f"log={trained}"]) == 0
    (run,) = load_scores(folder / "imported" / "nnU-Net" / f"{trained.name}.csv")
    assert set(run.scores["case"]) == {"ct_001", "ct_002", "ct_101", "ct_102"}

"""Systems of agents, rubrics and preferences, from their files to their table by commands."""

import csv
import json
import shlex

import pytest

from medimg_eval.commands.cli import start
from tests.helpers.catalogue import AGENTS, REPORTS, SAMPLES, composed
from tests.helpers.samples import ALL

assert ALL is not None

pytestmark = pytest.mark.long

EVERY = {**SAMPLES, **REPORTS, **AGENTS}
OCR = '<tool_call>{"name": "OCR", "arguments": {"image": "image/a.png"}}</tool_call>'
SEGMENT = '<tool_call>{"name": "segment_organ", "arguments": {"target": "liver"}}</tool_call>'
SCRIPTS = {
    "chestagentbench_agent": ["It may be F.", "F"],
    "medcta": [OCR, "12 mm, gout"],
    "medcta_steps": [OCR],
    "deeptumorvqa_v2_agent": [SEGMENT, "B"],
    "agentclinic_medqa": ["DIAGNOSIS READY: Pneumonia"],
    "agentclinic_nejm": ["DIAGNOSIS READY: Ochronosis"],
    "medinsightbench": ["An effusion."],
    "mdbench_3m": ["What do you feel?", "DIAG: eczema BREAK"],
}
CONSULTATION = {**dict.fromkeys(("1.1", "1.2", "1.3", "2.1", "2.2", "3.1", "3.2"), "yes"), "4.1": "excellent"}
JUDGES = {
    "medcta": '{"score": 0.7}',
    "healthbench": '{"criteria_met": true}',
    "medval": '{"errors": [], "level": 2}',
    "medinsightbench": "[[7, 3]]",
    "agentclinic_medqa": "yes",
    "agentclinic_nejm": "yes",
    "bimed_mbench": "8 7",
    "mdbench_3m": str(CONSULTATION),
}
"""What a judge says of a task; of others that it is right, ten of ten."""

TASKS = [
    "chestagentbench", "chestagentbench_agent", "chestagentbench_agent task.session=patient", "medcta_steps", "medcta",
    "deeptumorvqa_v2_agent", "deeptumorvqa_v2_agent task.extraction=authors", "deeptumorvqa_v2_vision",
    "agentclinic_medqa", "agentclinic_nejm", "medmaslab", "medmaslab_debate", "medmaslab_reconcile",
    "medinsightbench", "clinvideo_qa", "clinvideo_qa_agent", "mdbench_3m", "healthbench", "healthbench_meta", "medval",
    "bimed_mbench", "visualprocessbench", "medframeqa",
]  # fmt: skip


def scripted(name, says):
    return f"{name}={{_target_: agent_tools.Scripted, script: {json.dumps(says)}, tokens: 5}}"


@pytest.mark.parametrize("line", TASKS)
def test_a_task_of_systems_goes_from_its_files_to_its_table(line, tmp_path, monkeypatch):
    name, *words = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
    EVERY[name].write(tmp_path / "data")
    says = SCRIPTS.get(name, ["The answer is B."])
    config = composed(name)
    words += [f"task.layout.root={tmp_path / 'data'}", "model._target_=agent_tools.Scripted", "+model.tokens=5"]
    words += [f"+model.script={json.dumps(says)}", "+" + scripted("judge", [JUDGES.get(name, "10 [right] yes")])]
    if config.get("expected"):
        words.append(f"++task.expected.test={len(EVERY[name].cases)}")
    if "patient" in config:
        words.append("++" + scripted("task.patient", ["I cough."]))
    assert start(["test", f"task={name}", *words, "run=run"]) == 0
    assert start(["table", "runs=run", "out=table"]) == 0
    with (tmp_path / "table" / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    told = {row["metric"] for row in rows}
    assert told >= {metric for metric in config["metrics"] if metric in ("accuracy", "tool_f1", "rubric_total")}
    assert any(row["mean"] for row in rows)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["status"], manifest["failed_cases"]) == ("finished", 0)


PREFERENCES = {
    "multimedbench": ("radiologist 1", "reference", "criterion"),
    "chexagent": ("radiologist 2", "gpt-4", "criterion"),
    "preference_ft": ("judge", "sft", "repeat"),
    "bimed": ("gpt-4", "llava-med", "comment"),
}


@pytest.mark.parametrize("name", PREFERENCES)
def test_pairs_of_answers_go_from_a_file_of_verdicts_to_their_table(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judge, other, extra = PREFERENCES[name]
    with (tmp_path / f"{name}.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["case", "left", "right", "verdict", "judge", extra])
        for case in range(12):
            verdict = "tie" if case % 4 == 0 else "left" if case % 3 else "right"
            swapped = {"left": "right", "right": "left", "tie": "tie"}[verdict]
            writer.writerow([case, name, other, verdict, judge, 1])
            writer.writerow([case, other, name, swapped, judge, 1])
    assert start(["agree", f"preferences={name}.csv", "out=table", "resamples=50"]) == 0
    (table,) = (tmp_path / "table").glob("*.csv")
    text = table.read_text()
    assert all(column in text for column in ("win_rate", "ties", "strength", "elo"))

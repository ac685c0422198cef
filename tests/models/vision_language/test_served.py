"""Servers that are found or started, asked and ended: vLLM's and SGLang's command lines by a program that has them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from asking import Quiz

import medimg_eval as me
from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models import ServedModel, SglangModel, VllmModel
from medimg_eval.question import Decoding, Message
from medimg_eval.tasks import AgentQuestionTask

ENGINE = [sys.executable, "-S", str(Path(__file__).parents[2] / "helpers" / "fake_engine.py")]
PATIENCE = {
    "environment": ["FAKE_ENGINE", "FAKE_FAULT"],
    "startup_s": 60,
    "grace_s": 1,
    "backoff_s": 0.01,
    "retries": 1,
}


def prompt(number, *sizes, text="What is shown?"):
    images = tuple(Image(np.full((3, *size), number, np.uint8), np.eye(4), units="pixel") for size in sizes)
    return Prompt(f"c{number}", images, messages=(Message("user", (*range(len(images)), f"{text} {number}")),))


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Makes models; all are closed, and `told()` is what their servers were started with."""
    made, log = [], tmp_path / "engine.jsonl"
    monkeypatch.setenv("FAKE_ENGINE", str(log))

    def start(kind=VllmModel, **settings):
        settings = {"command": ENGINE, "cache": tmp_path / "cache", **PATIENCE, **settings}
        made.append(kind("org/model", **settings))
        return made[-1]

    start.told = lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    yield start
    for model in made:
        model.close()


def gone(pid):
    """Whether a process has ended; waits for it a while."""
    for _ in range(200):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_vllm_is_started_asked_with_files_and_ended_with_all_that_it_started(started):
    model = started(thinking=False, tensor_parallel=2, max_model_len=4096, images=3)
    model.check_ready()
    replies = [json.loads(one) for one in model.generate([prompt(1, (4, 6)), prompt(2)], Decoding(max_new_tokens=9))]
    assert replies[0]["sizes"] == [[6, 4]]
    assert replies[0]["kinds"] == ["file:"]
    assert replies[0]["kwargs"] == {"enable_thinking": False, "thinking": False}
    assert (replies[0]["model"], replies[0]["limit"], replies[1]["sizes"]) == ("org/model", 9, [])
    (told,) = started.told()
    media = told["words"][told["words"].index("--allowed-local-media-path") + 1]
    assert list(Path(media).iterdir()) == []  # images of a batch are gone with it
    assert " ".join(told["words"]).startswith("serve org/model --host 127.0.0.1 --port ")
    for words in ("--tensor-parallel-size 2", "--max-model-len 4096", '--limit-mm-per-prompt {"image": 3}'):
        assert words in " ".join(told["words"])
    assert model.usage()["server"]["version"] == "0.0.fake"
    model.close()
    assert all(gone(pid) for pid in told["pids"])
    assert not Path(media).exists()


@pytest.mark.slow
def test_what_was_answered_before_is_not_asked_again_at_another_port(started):
    first, second = started(), started()
    replies = first.generate([prompt(1, (4, 4))], Decoding())
    first.close()
    assert second.generate([prompt(1, (4, 4))], Decoding()) == replies
    assert second.usage()["cache_hits"] == 1
    other = started(prefix_cache=False)  # which is another server
    other.generate([prompt(1, (4, 4))], Decoding())
    assert other.usage()["cache_hits"] == 0


def test_a_server_that_is_there_is_used_and_left_alone(started):
    ours = started()
    ours.check_ready()
    found = started(base_url=ours.base_url, cache=False)
    assert json.loads(found.generate([prompt(1, (4, 4))], Decoding())[0])["kinds"] == [
        "data:"
    ]  # whose folder is unknown
    found.close()
    (told,) = started.told()
    assert os.kill(told["pids"][0], 0) is None
    media = told["words"][told["words"].index("--allowed-local-media-path") + 1]
    knows = started(base_url=ours.base_url, local_media=media, cache=False)
    assert json.loads(knows.generate([prompt(1, (4, 4))], Decoding())[0])["kinds"] == ["file:"]
    other = VllmModel("org/other", ENGINE, base_url=ours.base_url, **PATIENCE)
    with pytest.raises(UserError, match="serves org/model, and not org/other"):
        other.check_ready()


def test_an_adapter_is_served_and_asked_by_its_name(started, tmp_path):
    model = started(adapters={"chest": str(tmp_path), "eye": str(tmp_path)}, adapter="chest", prefix_cache=True)
    assert json.loads(model.generate([prompt(1)], Decoding())[0])["model"] == "chest"
    words = " ".join(started.told()[0]["words"])
    assert f"--enable-lora --lora-modules chest={tmp_path} eye={tmp_path} --enable-prefix-caching" in words
    with pytest.raises(UsageError, match="skin"):
        started(adapters={"eye": "x"}, adapter="skin")


def test_sglang_is_started_by_its_own_words(started, tmp_path):
    settings = {"reasoning_parser": "qwen3", "adapters": {"chest": str(tmp_path)}, "adapter": "chest"}
    model = started(SglangModel, tensor_parallel=4, prefix_cache=False, gpu_memory_utilization=0.8, **settings)
    reply = json.loads(model.generate([prompt(1, (4, 4))], Decoding())[0])
    assert (reply["kinds"], reply["model"]) == (["data:"], "chest")
    words = " ".join(started.told()[0]["words"])
    assert words.startswith("--model-path org/model --host 127.0.0.1 --port ")
    for said in ("--tensor-parallel-size 4", f"--enable-lora --lora-paths chest={tmp_path}", "--disable-radix-cache"):
        assert said in words
    assert "--reasoning-parser qwen3 --mem-fraction-static 0.8" in words


def test_a_server_that_does_not_come_up_is_told_with_its_last_words(started, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "start")
    with pytest.raises(UserError, match=r"ended before it served; its last words: .*lower gpu_memory_utilization"):
        started().check_ready()
    with pytest.raises(UserError, match="no-such-program cannot be started"):
        started(command=["no-such-program"]).check_ready()
    with pytest.raises(UserError, match=r"does not serve after \d+ s"):
        started(command=[sys.executable, "-S", "-c", "import time; time.sleep(60)"], startup_s=0.6).check_ready()
    with pytest.raises(UsageError, match="is a list"):
        started(ServedModel, command="vllm serve")
    with pytest.raises(UsageError, match="another machine"):
        started(base_url="http://10.0.0.9:8000/v1")


def test_a_server_that_ends_while_it_is_asked_is_told_and_started_again(started):
    model = started(cache=False)
    with pytest.raises(UserError, match=r"has ended; its last words: .*exit code 5"):
        model.generate([prompt(1, text="die")], Decoding())
    assert json.loads(model.generate([prompt(2)], Decoding())[0])["sizes"] == []
    assert len(started.told()) == 2


def test_a_file_that_the_server_may_not_read_fails_the_case(started, tmp_path):
    ours = started()
    ours.check_ready()
    model = started(base_url=ours.base_url, local_media=str(tmp_path), cache=False)
    with pytest.raises(CaseError, match="allowed-local-media-path"):
        model.generate([prompt(1, (4, 4))], Decoding())


def test_continuous_batching_of_transformers_is_refused_where_there_are_images(started):
    serve = [*ENGINE, "serve", "{model}", "--port", "{port}", "--continuous-batching"]
    model = started(ServedModel, command=serve)
    with pytest.raises(UserError, match="drops images"):
        model.generate([prompt(1, (4, 4))], Decoding())
    assert started.told() == []
    assert json.loads(model.generate([prompt(1)], Decoding())[0])["sizes"] == []


KILLED = """
import sys, time
sys.path[:0] = {path!r}
from medimg_eval.models import VllmModel
model = VllmModel("org/model", {engine!r}, environment=["FAKE_ENGINE"], grace_s=1)
model.check_ready()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_the_server_ends_where_its_asker_is_killed(started):
    program = KILLED.format(path=sys.path, engine=ENGINE)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (told,) = started.told()
    assert all(gone(pid) for pid in told["pids"])


@pytest.mark.slow
def test_native_calls_of_tools_go_through_a_server_from_the_call_to_the_table(started, tmp_path):
    items = [{"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "A"} for n in range(3)]
    metrics = ["accuracy", "tool_calls", "valid_call_rate", "tool_error_rate", "model_steps", "input_tokens"]
    task = AgentQuestionTask(
        name="agents", layout=Quiz(items), tools={"measure": "agent_tools.measure"}, metrics=metrics
    )
    model = started(tool_parser="hermes", cache=False)
    run = me.test(task, model, runs=tmp_path / "runs")
    found = run.summary.set_index("metric")["value"].to_dict()
    assert (found["tool_calls"], found["valid_call_rate"], found["tool_error_rate"]) == (1.0, 1.0, 0.0)
    (reply, *_) = run.predictions.values()
    first, tool, last, stop = reply["trace"]
    assert (first["thought"], first["finish"], first["calls"][0]["id"]) == ("I look first.", "calls", "call-a")
    assert (tool["name"], tool["arguments"], tool["result"]) == ("measure", {"structure": "liver"}, '{"mean": 10.0}')
    assert json.loads(last["text"])["results"] == [["call-a", '{"mean": 10.0}']]
    assert stop["reason"] == "answer"
    assert "--enable-auto-tool-choice --tool-call-parser hermes" in " ".join(started.told()[0]["words"])


@pytest.mark.long
def test_transformers_serve_is_started_asked_and_ended_with_a_tiny_model(tmp_path, monkeypatch):
    import tiny_vlm
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        pytest.skip("transformers serve needs fastapi and uvicorn: pip install 'transformers[serving]'")
    for name, value in {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    folder = str(tiny_vlm.save(tmp_path / "tiny", "qwen2_vl"))
    program = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", program, "serve", "{model}", "--host", "{host}", "--port", "{port}"]
    model = ServedModel(
        folder, [*command, "--device", "cpu"], startup_s=300, grace_s=2, concurrency=2, cache=False,
        environment=["HF_HUB_OFFLINE", "HF_HOME", "OMP_NUM_THREADS", "PYTHONPATH"],
    )  # fmt: skip
    try:
        model.check_ready()
        replies = model.generate([prompt(1, (56, 56)), prompt(2)], Decoding(max_new_tokens=4))
        assert [reply.usage.output for reply in replies] == [4, 4]
        pid = model._server._process.pid
    finally:
        model.close()
    assert gone(pid)


def test_fields_of_a_command_are_filled_in_once():
    model = ServedModel("a/b", ["run", "{model}", "--at", "{host}:{port}", "--see", "{media}"])
    words = model._words()
    assert words[:4] == ["run", "a/b", "--at", f"127.0.0.1:{re.search(r':([0-9]+)/', model.base_url)[1]}"]

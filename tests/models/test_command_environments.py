"""Models in environments that exclude each other, each Python that the worker's file is for, and equal records."""

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from agent_tools import timeless
from asking import Quiz

import medimg_eval as me
from medimg_eval.errors import UserError
from medimg_eval.models import CommandModel, VisionLanguageModel
from medimg_eval.models.command import model_worker
from medimg_eval.tasks import QuestionTask

SERVED = Path(model_worker.__file__)
PATIENT = {"startup_s": 60, "reply_s": 60, "grace_s": 0.2}
MINORS = range(8, 15)


def interpreter(minor):
    """A Python of that version that stands where Pythons do; None where there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/3.{minor}.*/bin/python3"))
    return str(kept[-1]) if kept else shutil.which(f"python3.{minor}")


@pytest.mark.parametrize("minor", MINORS)
def test_the_workers_file_is_written_as_each_python_reads_it(minor):
    tree = ast.parse(SERVED.read_text(), feature_version=(3, minor))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.slow
@pytest.mark.parametrize("minor", MINORS)
def test_each_python_that_is_here_runs_the_workers_file(minor):
    python = interpreter(minor)
    works = python and subprocess.run([python, "-S", "-c", ""], capture_output=True, check=False).returncode == 0
    if not works:
        pytest.skip(f"there is no Python 3.{minor} here")
    worker = str(Path(__file__).with_name("command_worker.py"))
    model = CommandModel([python, "-S", "-W", "error", worker, "refuses"], **PATIENT)
    try:
        model.check_ready()
        task = QuestionTask(name="t", layout=Quiz(number=2), metrics=["accuracy"])
        prompts = [task.prompt(case, (case.images[0].read(),)) for case in task.cases("test")]
        replies = model.generate(prompts, task._decoding)
    finally:
        model.close()
    assert [reply.startswith("WHICH OF THESE IS ITEM") for reply in replies] == [True, True]
    assert [(reply.thought, reply.usage.output) for reply in replies] == [("seen", 3)] * 2


LIBRARIES = {
    "voxels 1.0": "def brightness(path):\n    return len(open(path, 'rb').read())\n",
    "voxels 2.0": "class Volume:\n    def __init__(self, path):\n        self.size = len(open(path, 'rb').read())\n",
    "oldmodel 1.0": "import voxels\ndef answer(path):\n    return 'A' if voxels.brightness(path) else ''\n",
    "newmodel 1.0": "from voxels import Volume\ndef answer(path):\n    return 'B' if Volume(path).size else ''\n",
}
NEEDS = {"oldmodel 1.0": "voxels<2", "newmodel 1.0": "voxels>=2"}
WORKER = """
import sys
from model_worker import serve

def load(hello):
    import {name}
    return {name}

def answer(model, items, hello):
    import voxels
    for item in items:
        assert voxels.__file__.startswith(sys.prefix)
        yield model.answer(item["images"][0]["path"])

if __name__ == "__main__":
    serve(load, answer, name="{name}", version="1.0", batch=4)
"""


def write_wheels(folder):
    """Packages of one module each, as wheels: two versions of a library, and a model that needs each."""
    for package, code in LIBRARIES.items():
        name, version = package.split()
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if package in NEEDS:
            about += f"Requires-Dist: {NEEDS[package]}\n"
        kind = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", code)
            wheel.writestr(f"{name}-{version}.dist-info/METADATA", about)
            wheel.writestr(f"{name}-{version}.dist-info/WHEEL", kind)
            wheel.writestr(f"{name}-{version}.dist-info/RECORD", "")


def records_of(run):
    """What was written of each case, without seconds."""
    return timeless([json.loads(line) for line in (run.folder / "predictions-0.jsonl").read_text().splitlines()])


def install(folder, python, *packages):
    words = ["--python", str(python), "install", "--no-index", "--find-links", str(folder), "--no-cache-dir"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, "-m", "pip", *words, "-q", *packages]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.long
def test_two_models_whose_libraries_exclude_each_other_stand_in_one_table(tmp_path):
    pytest.importorskip("pip")
    write_wheels(tmp_path)
    pythons = {}
    for name in ("oldmodel", "newmodel"):
        venv.create(tmp_path / f"{name}_env", with_pip=False)
        pythons[name] = tmp_path / f"{name}_env" / "bin" / "python"
        done = install(tmp_path, pythons[name], name)
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{name}_worker.py").write_text(WORKER.format(name=name))
    shutil.copy(SERVED, tmp_path)
    venv.create(tmp_path / "both_env", with_pip=False)
    both = install(tmp_path, tmp_path / "both_env" / "bin" / "python", "oldmodel", "newmodel")
    assert "ResolutionImpossible" in both.stderr

    task = QuestionTask(name="quiz", layout=Quiz(number=8), metrics=["accuracy"])
    runs = []
    for name, python in pythons.items():
        model = CommandModel([str(python), str(tmp_path / f"{name}_worker.py")], **PATIENT)
        runs.append(me.test(task, model, name=name, runs=tmp_path / "runs"))
        model.close()
    rows = me.table([run.folder for run in runs]).frame()
    assert rows.set_index("model")["mean"].to_dict() == {"oldmodel": 0.25, "newmodel": 0.25}
    assert [{record["answer"]["texts"][0] for record in records_of(run)} for run in runs] == [{"A"}, {"B"}]
    with pytest.raises(UserError, match="its last words: .*No module named 'newmodel'"):
        CommandModel([str(pythons["oldmodel"]), str(tmp_path / "newmodel_worker.py")], **PATIENT).check_ready()


class Bright(VisionLanguageModel):
    """Chooses by the brightness of the picture and the length of the question."""

    file_arguments = ()
    preferred_batch = 3

    def generate(self, prompts, decoding):
        return [choose(int(prompt.images[0].array.max()), prompt.messages[-1].text) for prompt in prompts]


def choose(value, words):
    return "ABCD"[(value + len(words)) % 4]


OURS = """
import os, sys
sys.path[:0] = [{folder!r}]
import numpy
from model_worker import serve

COUNT = {count!r}

def answer(model, items, hello):
    for item in items:
        with open(COUNT, "a") as stream:
            stream.write("x")
        if os.path.getsize(COUNT) == {kill_at}:
            os.kill(os.getpid(), 9)
        value = int(numpy.load(item["images"][0]["path"]).max())
        words = "".join(part.get("text", "") for part in item["messages"][-1]["content"])
        yield "ABCD"[(value + len(words)) % 4]

if __name__ == "__main__":
    serve(lambda hello: None, answer, batch=3, media=("application/x-npy",))
"""


@pytest.mark.slow
def test_a_worker_around_a_model_of_ours_keeps_the_records_of_the_model_itself(tmp_path):
    task = QuestionTask(name="quiz", layout=Quiz(number=7), metrics=["accuracy"])

    def records(name, model):
        return records_of(me.test(task, model, name="bright", runs=tmp_path / name))

    whole = records("itself", Bright())
    assert len(whole) == 7
    for kill_at in range(8):  # 0 is never reached
        count = tmp_path / f"count-{kill_at}"
        worker = tmp_path / f"worker-{kill_at}.py"
        worker.write_text(OURS.format(folder=str(SERVED.parent), count=str(count), kill_at=kill_at))
        model = CommandModel([sys.executable, str(worker)], **PATIENT)
        try:
            assert records(f"killed at {kill_at}", model) == whole
        finally:
            model.close()
        assert count.stat().st_size == 7 + bool(kill_at), "an item that was answered was asked again"

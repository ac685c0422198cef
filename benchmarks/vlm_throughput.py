"""What asking a vision-language model takes, beside a plain loop of the library and beside another harness.

    python benchmarks/vlm_throughput.py [--out RESULTS.json] [--peer-python PYTHON] [--items 200] [--large]

First the wrapper in one process, at several batch sizes, beside the loop. Then whole programs, from the command to the
table, over the same files: a script with that loop, `python -m medimg_eval test`, and lmms-eval, where it is installed
or where `--peer-python` names the Python of an environment that has it. Last the same program with a model that
answers at once.

The model is tiny and its weights are random, so that what surrounds it shows. `--large` adds one of 52 million
parameters to the first part. Every figure comes from one run on one machine; compare ratios, not seconds.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SIDE, TOKENS = 224, 16
ORGANS = ("liver", "left kidney", "spleen", "heart", "right lung", "pancreas", "urinary bladder", "stomach")
LARGE = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 3648}
ASK = "Answer with the option's letter."

TASK = """\
_target_: medimg_eval.tasks.QuestionTask
name: organs
title: Organs
layout:
  _target_: medimg_eval.data.layouts.Questions
  root: DATA
  records: {test: test.json}
  id: id
  kind: choice
  question: question
  options: {dict: options}
  answer: {letter: answer}
  images: image
template: {user: "{question}\\n{options}\\nASK"}
decoding: {max_new_tokens: TOKENS}
splits: {test: test}
card: {description: Noise.}
"""
INSTANT = "_target_: timed.Instant\nname: instant\nbatch: 1\n"


def write_data(folder: Path, number: int) -> None:
    """Questions of four options about noise, of several lengths."""
    from PIL import Image

    rng, records = np.random.default_rng(0), []
    for index in range(number):
        options = dict(zip("ABCD", rng.permutation(ORGANS)[:4].tolist(), strict=True))
        lines = "\n".join(f"{letter}. {text}" for letter, text in options.items())
        hints = ["Look at the lesion in the left lower lobe."] * int(rng.integers(0, 6))
        record = {"id": f"{index}", "question": " ".join(["Which organ is shown?", *hints]), "options": options}
        record |= {"answer": "ABCD"[index % 4], "image": f"{index}.png", "file": str(folder / f"{index}.png")}
        records.append(record | {"text": f"{record['question']}\n{lines}\n{ASK}"})
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    (folder / "test.json").write_text(json.dumps(records), encoding="utf-8")


def write_checkpoint(folder: Path, **text: int) -> Path:
    """A tiny Qwen2-VL that looks at every pixel."""
    import tiny_vlm
    from transformers import AutoProcessor

    tiny_vlm.save(folder, "qwen2_vl", vision=64, **text)
    size = {"shortest_edge": 28 * 28, "longest_edge": SIDE * SIDE}
    AutoProcessor.from_pretrained(folder, size=size).save_pretrained(folder)
    return folder


def prompts(data: Path) -> list[Any]:
    """The questions as the harness hands them to a model."""
    from PIL import Image as Picture

    from medimg_eval.case import Image, Prompt
    from medimg_eval.question import Message

    asked = []
    for record in json.loads((data / "test.json").read_text(encoding="utf-8")):
        pixels = np.asarray(Picture.open(data / record["image"])).transpose(2, 0, 1)
        image = Image(pixels, np.eye(4), units="pixel")
        said = (Message("user", (0, record["text"])),)
        asked.append(Prompt(record["id"], (image,), messages=said, options=record["options"]))
    return asked


def plain_loop(checkpoint: Path, asked: Sequence[Any]) -> Callable[[], list[str]]:
    """One `generate` of the library after the other, as its documentation shows it."""
    from PIL import Image
    from plain import Plain

    model = Plain(checkpoint)

    def run() -> list[str]:
        pictures = (Image.fromarray(prompt.images[0].array.transpose(1, 2, 0)) for prompt in asked)
        return [model.answer([one], [prompt.text])[0] for one, prompt in zip(pictures, asked, strict=True)]

    return run


def wrapped(model: Any, asked: Sequence[Any], batch: int, by_length: bool) -> Callable[[], list[str]]:
    """The wrapper, asked in batches, of prompts as they come or of similar length."""
    from medimg_eval.question import Decoding

    order = sorted(range(len(asked)), key=lambda at: len(asked[at].text)) if by_length else list(range(len(asked)))
    decoding = Decoding(max_new_tokens=TOKENS)

    def run() -> list[str]:
        answers: dict[int, str] = {}
        for start in range(0, len(order), batch):
            places = order[start : start + batch]
            answers |= zip(places, model.generate([asked[at] for at in places], decoding), strict=True)
        return [answers[at] for at in range(len(asked))]

    return run


def throughput(checkpoint: Path, asked: Sequence[Any], repeats: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds an item, items a second (wall), gain over the plain loop, share of its answers.

    The best of a few runs of each way. Ways take turns, so that what else the machine does falls on all of them.
    """
    from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM

    model = HuggingFaceVLM(str(checkpoint), dtype="float32")
    ways = {"plain loop": plain_loop(checkpoint, asked)}
    ways |= {f"batch {batch}": wrapped(model, asked, batch, by_length=True) for batch in (1, 2, 8, 16)}
    ways |= {f"batch {batch}, unsorted": wrapped(model, asked, batch, by_length=False) for batch in (8, 16)}
    cpu, wall, answers = dict.fromkeys(ways, np.inf), dict.fromkeys(ways, np.inf), {}
    for _ in range(repeats):
        for name, run in ways.items():
            start, began = time.process_time(), time.perf_counter()
            answers[name] = run()
            cpu[name] = min(cpu[name], time.process_time() - start)
            wall[name] = min(wall[name], time.perf_counter() - began)
    ratios = {
        name: {
            "CPU ms per item": cpu[name] / len(asked) * 1000,
            "items per s": len(asked) / wall[name],
            "times the plain loop": cpu["plain loop"] / cpu[name],
            "same answers": float(np.mean([a == b for a, b in zip(answers[name], answers["plain loop"], strict=True)])),
        }
        for name in ways
    }
    counts = {"parameters": sum(one.numel() for one in model.parameters()), "items": len(asked)}
    return {"counts": counts} | ratios


def program(command: Sequence[str], folder: Path, path: Sequence[Path]) -> dict[str, Any]:
    """Runs a program once, and returns what it took with what its clock has found.

    CPU seconds are those of all its processes; memory is that of the largest.
    """
    own = {"CLOCK": str(folder / "clock.json"), "PYTHONPATH": os.pathsep.join(map(str, path))}
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "TOKENIZERS_PARALLELISM": "false"}
    began = time.perf_counter()
    with (folder / "said.txt").open("w+b") as said:
        child = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **offline, **own}, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if child.returncode or not (folder / "clock.json").is_file():
            raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}\n{said.read().decode()[-3000:]}")
    found = json.loads((folder / "clock.json").read_text(encoding="utf-8"))
    return found | {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss / 1024}


def ours(data: Path, *overrides: str) -> Callable[[Path], dict[str, Any]]:
    """`python -m medimg_eval test`; its row also has the overhead that it prints."""

    def run(folder: Path) -> dict[str, Any]:
        for group, name, text in (("task", "organs", TASK), ("model", "instant", INSTANT)):
            (folder / "conf" / group).mkdir(parents=True)
            config = text.replace("DATA", str(data)).replace("ASK", ASK).replace("TOKENS", str(TOKENS))
            (folder / "conf" / group / f"{name}.yaml").write_text(config, encoding="utf-8")
        command = [sys.executable, "-m", "medimg_eval", "test", "--config-dir", str(folder / "conf")]
        found = program([*command, "task=organs", "runs=runs", *overrides], folder, [HERE / "vlm", HERE.parent])
        manifest = next((folder / "runs").glob("organs/*/manifest.json"))
        timing = json.loads(manifest.read_text(encoding="utf-8"))["timing"]
        return found | {"overhead": timing["overhead"], "measured": timing["seconds"]}

    return run


def peer(python: str, checkpoint: Path, data: Path, batch: int) -> Callable[[Path], dict[str, Any]]:
    """`python -m lmms_eval eval`, around the plain loop in batches."""

    def run(folder: Path) -> dict[str, Any]:
        from lmms_task import register

        register(folder, data)
        command = [python, "-m", "lmms_eval", "--model", "plain", "--model_args", f"checkpoint={checkpoint}"]
        command += ["--tasks", "organs", "--include_path", str(folder), "--batch_size", str(batch), "--device", "cpu"]
        command += ["--log_samples", "--output_path", str(folder / "out")]
        return program(command, folder, [folder, HERE / "vlm"])

    return run


def times(ways: Mapping[str, Callable[[Path], dict[str, Any]]], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Runs every program a few times, in turns, each time from nothing."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(run(Path(folder)))
    return found


def whole_programs(ways: Mapping[str, Callable[[Path], dict[str, Any]]], repeats: int) -> dict[str, dict[str, float]]:
    """What each program took, at its best, from the command to its end."""
    found = times(ways, repeats)
    reference = found["plain script"][0]["answers"]
    rows = {}
    for name, runs in found.items():
        best = {key: min(run[key] for run in runs) for key in ("wall", "cpu", "first", "inside", "memory")}
        answers = runs[0]["answers"]
        rows[name] = {
            "wall s": best["wall"],
            "CPU s": best["cpu"],
            "items per s": len(reference) / best["wall"],
            "CPU s to the first sample": best["first"],
            "CPU s in the model": best["inside"],
            "CPU ms per item between calls": min(run["between_thread"] for run in runs),
            "peak MB": best["memory"],
            "same answers": float(np.mean([answers[key].strip() == said for key, said in reference.items()])),
        }
        if "overhead" in runs[0]:
            shown = min(runs, key=lambda run: run["measured"])
            rows[name] |= {"printed overhead": shown["overhead"], "printed s": shown["measured"]}
    return rows


def between(data: Path, repeats: int) -> dict[str, dict[str, float]]:
    """What the program does between two items when the model answers at once, in its main process."""
    ways = {f"batch {batch}": ours(data, "model=instant", f"model.batch={batch}") for batch in (1, 8, 16)}
    keys = {"CPU ms per item": "between_thread", "CPU ms per item, all threads": "between_process"}
    return {
        name: {title: float(np.median([run[key] for run in runs])) for title, key in keys.items()}
        for name, runs in times(ways, repeats).items()
    }


def peer_of(given: str | None) -> tuple[str, str] | None:
    """The Python that has lmms-eval, and its version; None where there is none."""
    python = given or (sys.executable if importlib.util.find_spec("lmms_eval") else None)
    if python is None:
        return None
    code = "from importlib.metadata import version; print(version('lmms_eval'))"
    return python, subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def measure(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Every part, in turn."""
    import torch
    import transformers

    data = folder / "data"
    data.mkdir()
    write_data(data, asked.items)
    small = write_checkpoint(folder / "small")
    found: dict[str, Any] = {"one process": throughput(small, prompts(data), asked.repeats + 1)}
    script = [sys.executable, str(HERE / "vlm" / "plain.py"), str(small), str(data)]
    model = ("model=huggingface_vlm", "model._target_=timed.Timed", f"model.checkpoint={small}", "model.dtype=float32")
    ways = {"plain script": lambda folder: program(script, folder, [])}
    ways |= {f"medimg_eval, batch {batch}": ours(data, *model, f"model.batch={batch}") for batch in (1, 8, 16)}
    other = peer_of(asked.peer_python)
    if other is not None:
        ways |= {f"lmms-eval {other[1]}, batch {batch}": peer(other[0], small, data, batch) for batch in (1, 8)}
    found["whole programs"] = whole_programs(ways, asked.repeats)
    if other is None:
        found["whole programs"]["lmms-eval"] = "not installed; --peer-python names a Python that has it"
    found["between items, instant model"] = between(data, asked.repeats)
    if asked.large:
        some = prompts(data)[: asked.items // 3]
        found["one process, large model"] = throughput(write_checkpoint(folder / "large", **LARGE), some, asked.repeats)
    found["machine"] = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return found


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-python", help="Python of an environment in which lmms-eval is installed")
    parser.add_argument("--large", action="store_true", help="a model of 52 million parameters as well")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # of the programs, too
    sys.path[:0] = map(str, (HERE / "vlm", HERE.parent, HERE.parent / "tests" / "helpers"))
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(measure(Path(name), asked), indent=2)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What a vision-language model answers in a second through the wrapper, beside a plain loop of the library.

    OMP_NUM_THREADS=1 python benchmarks/vlm_throughput.py [RESULTS.json] [--items 200] [--large]

The model is tiny and its weights are random, so that what surrounds it shows. `--large` adds one of 52 million
parameters. Every figure comes from one run on one machine; compare ratios, not seconds.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"
SIDE, TOKENS, REPEATS = 224, 16, 4
PIXELS = {"max_pixels": SIDE * SIDE}
ORGANS = ("liver", "left kidney", "spleen", "heart", "right lung", "pancreas", "urinary bladder", "stomach")
LARGE = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 3648}

RAW = """
import sys, numpy as np, torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
processor = AutoProcessor.from_pretrained(sys.argv[1])
model = AutoModelForImageTextToText.from_pretrained(sys.argv[1]).eval()
turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which organ?"}]}]
text = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
image = Image.fromarray(np.zeros((224, 224, 3), np.uint8))
with torch.inference_mode():
    model.generate(**processor(text=[text], images=[image], return_tensors="pt"), max_new_tokens=16, do_sample=False)
"""
OURS = """
import sys, numpy as np
from medimg_eval.case import Image, Prompt
from medimg_eval.models.huggingface import HuggingFaceVLM
from medimg_eval.question import Decoding, Message
image = Image(np.zeros((3, 224, 224), np.uint8), np.eye(4))
prompt = Prompt("case", (image,), messages=(Message("user", (0, "Which organ?")),))
HuggingFaceVLM(sys.argv[1]).generate([prompt], Decoding(max_new_tokens=16))
"""


def prompts(number: int) -> list:
    """Questions of four options about noise, of several lengths."""
    from medimg_eval.case import Image, Prompt
    from medimg_eval.question import Message

    rng = np.random.default_rng(0)
    asked = []
    for index in range(number):
        options = dict(zip("ABCD", rng.permutation(ORGANS)[:4], strict=True))
        lines = "\n".join(f"{letter}. {text}" for letter, text in options.items())
        hint = "Look at the lesion in the left lower lobe. " * int(rng.integers(0, 6))
        text = f"Which organ is shown? {hint}\n{lines}\nAnswer with the option's letter."
        image = Image(rng.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8), np.eye(4), units="pixel")
        asked.append(Prompt(f"{index}", (image,), messages=(Message("user", (0, text)),), options=options))
    return asked


def plain_loop(folder: Path, asked: Sequence) -> Callable[[], list[str]]:
    """One `generate` of the library after the other, as its documentation shows it."""
    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(folder, size={"shortest_edge": 28 * 28, "longest_edge": SIDE * SIDE})
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def run() -> list[str]:
        answers = []
        for prompt in asked:
            content = [{"type": "image"}, {"type": "text", "text": prompt.text}]
            turns = [{"role": "user", "content": content}]
            text = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            image = Image.fromarray(prompt.image.array.transpose(1, 2, 0))
            inputs = processor(text=[text], images=[image], return_tensors="pt")
            with torch.inference_mode():
                ids = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
            said = processor.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)[0]
            answers.append(said.strip())
        return answers

    return run


def wrapped(model, asked: Sequence, batch: int, by_length: bool) -> Callable[[], list[str]]:
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


def throughput(folder: Path, asked: Sequence) -> dict[str, dict[str, float]]:
    """CPU milliseconds an item, items a second (wall), gain over the plain loop, share of its answers.

    The best of a few runs of each way. Ways take turns, so that what else the machine does falls on all of them.
    """
    from medimg_eval.models.huggingface import HuggingFaceVLM

    model = HuggingFaceVLM(str(folder), dtype="float32", processor=PIXELS)
    ways = {"plain loop": plain_loop(folder, asked)}
    ways |= {f"batch {batch}": wrapped(model, asked, batch, by_length=True) for batch in (1, 2, 8, 16)}
    ways |= {f"batch {batch}, unsorted": wrapped(model, asked, batch, by_length=False) for batch in (8, 16)}
    cpu, wall, answers = dict.fromkeys(ways, np.inf), dict.fromkeys(ways, np.inf), {}
    for _ in range(REPEATS):
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


def start_up(folder: Path) -> dict[str, float]:
    """CPU seconds from the start of Python to the first answer."""

    def seconds(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return {name: min(seconds(code) for _ in range(3)) for name, code in (("plain script", RAW), ("wrapper", OURS))}


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--large", action="store_true", help="a model of 52 million parameters as well")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(HELPERS))
    import tiny_vlm
    import torch
    import transformers

    torch.set_num_threads(1)
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        small = tiny_vlm.save(Path(name) / "small", "qwen2_vl", vision=64)
        found["small model"] = throughput(small, prompts(asked.items))
        found["CPU s to the first answer"] = start_up(small)
        if asked.large:
            large = tiny_vlm.save(Path(name) / "large", "qwen2_vl", vision=64, **LARGE)
            found["large model"] = throughput(large, prompts(asked.items // 3))
    found["machine"] = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    text = json.dumps(found, indent=2)
    print(text)
    if asked.results:
        asked.results.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

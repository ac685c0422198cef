"""How CPU time and memory of commands grow with cases, from a thousand to a million, and with run folders.

    python benchmarks/scale.py [--sizes 1000 10000 100000 1000000] [--rows NAME ...] [--turns 3] [--out RESULTS.json]

Each command runs so many times for each size, from nothing, in a process of its own; the turn of the least CPU time
counts, for what else the machine does only adds to it. CPU seconds are those of all its processes,
memory is that of the largest. An exponent is the slope of a line through the logarithms of what was taken above the
smallest size; made-up data (seeded).
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import starts

MODEL = '''
import os

from starts_models import Reader, note_first


class Stopping(Reader):
    """Ends the process at its first batch."""

    def generate(self, prompts, decoding):
        note_first()
        os._exit(0)
'''

CHECKOUT = starts.HERE.parent
LAYOUT_IMAGES = "  images: image\n"


def write_scores(folder: Path, number: int) -> None:
    """So many score rows: two models, one metric, a patient for every second case."""
    rng = np.random.default_rng(0)
    values = rng.beta(8, 2, number // 2)
    with (folder / "scores.csv").open("w", encoding="utf-8") as stream:
        stream.write("case,patient,model,metric,value\n")
        for model in ("ours", "theirs"):
            given = np.clip(values + rng.normal(0.01 * (model == "ours"), 0.05, len(values)), 0, 1)
            stream.writelines(f"c{index},p{index // 2},{model},dice,{value:.5f}\n" for index, value in enumerate(given))


def write_questions(folder: Path, number: int) -> None:
    """So many questions without images, and the task that asks them."""
    root = folder / "questions"
    root.mkdir()
    with (root / "test.jsonl").open("w", encoding="utf-8") as stream:
        for index in range(number):
            options = dict(zip("ABCD", ("liver", "left kidney", "spleen", "heart"), strict=True))
            record = {"id": str(index), "question": f"Which organ is in place {index}?", "options": options}
            stream.write(json.dumps(record | {"answer": "ABCD"[index % 4]}) + "\n")
    text = starts.QUESTIONS.format(root=root).replace("test.json", "test.jsonl").replace(LAYOUT_IMAGES, "")
    (folder / "conf" / "task").mkdir(parents=True)
    (folder / "conf" / "task" / "organs.yaml").write_text(text, encoding="utf-8")
    (folder / "starts_models.py").write_text(starts.MODELS, encoding="utf-8")
    (folder / "scale_models.py").write_text(MODEL, encoding="utf-8")


def write_runs(folder: Path, number: int) -> None:
    """So many folders of runs of one model, the same but for their names."""
    lines = [f"c{index},{index % 2},{0.2 + index % 2 * 0.5}" for index in range(20)]
    (folder / "classes.csv").write_text("\n".join(["case,label,probability", *lines]) + "\n", encoding="utf-8")
    starts.run_once(["-m", "medimg_eval", "score", "classes=classes.csv", "references=classes.csv"], folder, CHECKOUT)
    (manifest,) = (folder / "runs").rglob("manifest.json")
    for index in range(number):
        shutil.copytree(manifest.parent, folder / "many" / f"run{index}")


Row = tuple[Callable[[Path, int], None], list[str]]
ROWS: dict[str, Row] = {
    "table": (write_scores, ["table", "scores=scores.csv"]),
    "compare": (write_scores, ["compare", "scores=scores.csv", "metric=dice"]),
    "report": (write_scores, ["report", "scores=scores.csv", "out=pages"]),
    "table, of run folders": (write_runs, ["table", "runs=many"]),
    "first sample": (write_questions, starts.test_words("organs", "model._target_=scale_models.Stopping")),
    "first sample, file seen first": (
        write_questions,
        starts.test_words("organs", "model._target_=scale_models.Stopping"),
    ),
}


def measure_row(name: str, number: int, turns: int) -> dict[str, float]:
    """CPU seconds, wall seconds and memory of one command at one size, of the turn of the least CPU seconds."""
    write, words = ROWS[name]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), number)
        cache, each = Path(folder) / "cache", []
        os.environ["MEDIMG_EVAL_CACHE"] = str(cache)
        if name == "first sample":  # the index of questions is made once
            starts.run_once(["-m", "medimg_eval", *words], Path(folder), CHECKOUT)
        for _ in range(turns):
            if name.endswith("seen first"):
                shutil.rmtree(cache, ignore_errors=True)
            each.append(starts.run_once(["-m", "medimg_eval", *words], Path(folder), CHECKOUT))
        taken = min(each, key=lambda one: one["CPU s"])
    return {key: round(value, 3) for key, value in taken.items() if "after" not in key}


def fit_exponents(taken: dict[str, dict[str, float]]) -> dict[str, float]:
    """Slopes of time and memory above the smallest size, in logarithms; none below two larger sizes."""
    smallest, *larger = sorted(taken, key=int)
    exponents = {}
    for key in ("CPU s", "peak MB"):
        grown = {size: taken[size][key] - taken[smallest][key] for size in larger}
        # What starting takes varies by tenths of a second and some MB: less than that is no growth.
        sizes = [size for size in larger if grown[size] > (0.3 if key == "CPU s" else 10)]
        if len(sizes) > 1:
            logs = np.log([[int(size), grown[size]] for size in sizes])
            exponents[key] = round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 3)
    return exponents


def main() -> None:
    """Measures, prints, and writes after every command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 1)}
    earlier = json.loads(options.out.read_text(encoding="utf-8")) if options.out and options.out.is_file() else {}
    results: dict[str, Any] = earlier | {"machine": machine}
    for name in options.rows:
        results[name] = dict(results.get(name, {}))
        for number in options.sizes:
            results[name][str(number)] = measure_row(name, number, options.turns)
            print(name, number, results[name][str(number)], file=sys.stderr, flush=True)
            sizes = {size: taken for size, taken in results[name].items() if size.isdigit()}
            results[name]["exponents"] = fit_exponents(sizes)
            if options.out:
                options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

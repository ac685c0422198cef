"""What commands take from their start, beside a former state of the code, in turns.

    python benchmarks/starts.py [--before CHECKOUT] [--rows NAME ...] [--turns 7] [--out RESULTS.json]

CPU seconds are those of all processes of a command, memory is that of the largest; `to the first` ends where a model is
first called, and what comes after is the throughput. Made-up data (seeded). Ratios are medians over turns of what
this checkout took to what the former took.
"""

import argparse
import csv
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
Taken = dict[str, float]
AFFINE = np.diag([1.0, 1.0, 2.0, 1.0])
METRICS = "[dice, hd95, assd, nsd@1]"

MODELS = '''
import json, os, sys, time
from pathlib import Path

import numpy as np

from medimg_eval.models import Segmenter, VisionLanguageModel


def note_first():
    """Writes CPU seconds of this process and of those it has started, and the time, once."""
    target = Path(os.environ["FIRST"])
    if target.exists():
        return
    used, own = time.process_time(), str(os.getpid())
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == own:
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    target.write_text(json.dumps({"CPU s": used, "at": time.time()}))


class Reader(VisionLanguageModel):
    preferred_batch = 8

    def generate(self, prompts, decoding):
        note_first()
        return ["A"] * len(prompts)


class Outliner(Segmenter):
    def segment(self, prompts):
        note_first()
        return [(prompt.image.array[0] > 50).astype(np.uint8) for prompt in prompts]
'''

QUESTIONS = """
_target_: medimg_eval.tasks.QuestionTask
name: organs
layout:
  _target_: medimg_eval.data.layouts.Questions
  root: {root}
  records: {{test: test.json}}
  id: id
  kind: choice
  question: question
  options: {{dict: options}}
  answer: {{letter: answer}}
  images: image
template: {{user: "{{question}}\\n{{options}}"}}
splits: {{test: test}}
card: {{description: Noise.}}
"""

VOLUMES = """
_target_: medimg_eval.tasks.SegmentationTask
name: {name}
labels: {{1: organ, 2: lesion}}
metrics: {metrics}
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {root}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
splits: {{test: test}}
card: {{description: Balls.}}
"""

PLAIN = """
import sys
from pathlib import Path
import nibabel
import numpy as np
from medimg_eval.metrics import segmentation_scores
root = Path(sys.argv[1])
for file in sorted((root / "labels").iterdir()):
    given, reference = nibabel.load(root / "predictions" / file.name), nibabel.load(file)
    masks = [np.asarray(image.dataobj) for image in (reference, given)]
    spacing = reference.header.get_zooms()
    segmentation_scores(*masks, spacing, labels={1: "organ", 2: "lesion"}, metrics=["dice", "hd95", "assd", "nsd@1"])
"""


def write_reports(table: Path, number: int) -> Path:
    """Pairs of reports of some 50 words."""
    import text_metrics

    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "reference", "prediction"])
        for index, pair in enumerate(text_metrics.make_pairs(number)):
            writer.writerow([index, *(". ".join(text.split(". ")[:5]) for text in pair)])
    return table


def write_questions(root: Path, number: int) -> Path:
    """Questions of four options, each about a picture."""
    from PIL import Image

    root.mkdir()
    rng, records = np.random.default_rng(0), []
    options = dict(zip("ABCD", ("liver", "left kidney", "spleen", "heart"), strict=True))
    for index in range(number):
        record = {"id": f"{index}", "question": f"Which organ is shown in picture {index}?", "options": options}
        records.append(record | {"answer": "ABCD"[index % 4], "image": f"{index}.png"})
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(root / f"{index}.png")
    (root / "test.json").write_text(json.dumps(records), encoding="utf-8")
    return root


def write_volumes(root: Path, number: int, shape: tuple[int, int, int]) -> Path:
    """Two balls in each, and predictions that are a voxel off."""
    import nibabel as nib

    for name in ("images", "labels", "predictions"):
        (root / name).mkdir(parents=True)
    grid = np.ogrid[tuple(map(slice, shape))]
    for index in range(number):
        rng, mask = np.random.default_rng(index), np.zeros(shape, np.uint8)
        for label, size in ((1, 0.3), (2, 0.12)):
            centre = rng.uniform(0.4, 0.6, 3) * shape
            mask[sum(((x - c) / s) ** 2 for x, c, s in zip(grid, centre, shape, strict=True)) < size**2] = label
        files = {"images": mask * np.uint8(100), "labels": mask, "predictions": np.roll(mask, 1, 0)}
        for name, array in files.items():
            image = nib.Nifti1Image(array, AFFINE)
            image.header.set_xyzt_units("mm")
            nib.save(image, root / name / f"c{index:03d}.nii.gz")
    return root


def write_data(folder: Path) -> None:
    """Everything that commands read."""
    sys.path[:0] = map(str, (HERE, HERE.parent))
    (folder / "starts_models.py").write_text(MODELS, encoding="utf-8")
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    for number in (3, 5000):
        write_reports(folder / f"reports{number}.csv", number)
    tasks = {"organs": QUESTIONS.format(root=write_questions(folder / "questions", 200))}
    tasks["many_organs"] = QUESTIONS.format(root=write_questions(folder / "many", 2000)).replace(
        "organs", "many_organs"
    )
    shapes = {"small": (200, (24, 24, 24)), "volumes": (200, (128, 128, 80)), "large": (12, (256, 256, 150))}
    for name, (number, shape) in shapes.items():
        metrics = "[dice]" if name == "small" else METRICS
        root = write_volumes(folder / name, number, shape)
        tasks[name] = VOLUMES.format(name=name, root=root, metrics=metrics)
    (folder / "conf" / "task").mkdir(parents=True)
    for name, text in tasks.items():
        (folder / "conf" / "task" / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_words(task: str, model: str) -> list[str]:
    """Words of a `test` of our tasks."""
    return ["test", "--config-dir", "conf", f"task={task}", *model.split()]


READER, OUTLINER = "model._target_=starts_models.Reader", "model._target_=starts_models.Outliner"
ROWS: dict[str, list[str]] = {
    "--help": ["--help"],
    "list": ["list"],
    "score reports=, 3 rows": ["score", "reports=reports3.csv"],
    "score reports=, 5,000 rows": ["score", "reports=reports5000.csv"],
    "test model=precomputed, 200 volumes of 128x128x80": test_words(
        "volumes", "model=precomputed model.root=volumes/predictions"
    ),
    "test model=precomputed, 200 volumes of 24x24x24": test_words(
        "small", "model=precomputed model.root=small/predictions"
    ),
    "score run=, 12 volumes of 256x256x150": test_words("large", "model=precomputed model.root=large/predictions"),
    "test, 200 questions": test_words("organs", READER),
    "test, 2,000 questions": test_words("many_organs", READER),
    "test, 200 volumes of 24x24x24, a model in Python": test_words("small", OUTLINER),
}


def run_once(words: list[str], folder: Path, checkout: Path) -> Taken:
    """Runs a command from nothing."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    first = folder / "first.json"
    first.unlink(missing_ok=True)
    own = {"PYTHONPATH": os.pathsep.join(map(str, (checkout, folder))), "OMP_NUM_THREADS": "1", "FIRST": str(first)}
    began, began_at = time.perf_counter(), time.time()
    child = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    said = child.stderr.read().decode() if child.stderr else ""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {child.returncode}\n{said[-3000:]}")
    taken = {"wall s": time.perf_counter() - began, "CPU s": used.ru_utime + used.ru_stime}
    taken["peak MB"] = used.ru_maxrss / 1024
    if first.is_file():
        noted = json.loads(first.read_text(encoding="utf-8"))
        taken |= {"wall s to the first": noted["at"] - began_at, "CPU s to the first": noted["CPU s"]}
        taken |= {f"{key} after the first": taken[key] - taken[f"{key} to the first"] for key in ("wall s", "CPU s")}
    return taken


def measure(name: str, folder: Path, checkout: Path) -> Taken:
    """Runs the command of a row; that of `score` judges a run that was made before."""
    command = ["-m", "medimg_eval"]
    taken = run_once([*command, *ROWS[name]], folder, checkout)
    if name.startswith("score run="):
        (manifest,) = (folder / "runs").rglob("manifest.json")
        moved = folder / "scored"
        shutil.rmtree(moved, ignore_errors=True)
        manifest.parent.rename(moved)
        taken = run_once([*command, "score", "run=scored", "metrics=[dice,iou,hd95,assd,nsd@1]"], folder, checkout)
    return taken


def compare(name: str, folder: Path, before: Path | None, turns: int) -> dict[str, Any]:
    """Medians of both checkouts, and of the ratios of each turn."""
    checkouts = {"now": HERE.parent} | ({"before": before} if before else {})
    taken: dict[str, list[Taken]] = {which: [] for which in checkouts}
    for turn in range(turns):
        for which in sorted(checkouts, reverse=bool(turn % 2)):
            taken[which].append(measure(name, folder, checkouts[which]))
    keys = taken["now"][0]
    found: dict[str, Any] = {"turns": turns} | {
        which: {key: statistics.median(each[key] for each in runs) for key in keys} for which, runs in taken.items()
    }
    if before:
        pairs = list(zip(taken["now"], taken["before"], strict=True))
        found["now / before"] = {key: statistics.median(now[key] / old[key] for now, old in pairs) for key in keys}
    if name.endswith("128x128x80"):
        plain = [run_once(["plain.py", "volumes"], folder, HERE.parent) for _ in range(turns)]
        found["plain script"] = {key: statistics.median(each[key] for each in plain) for key in plain[0]}
    return found


def main() -> None:
    """Measures, prints, and adds to the file it is told to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="another checkout, whose package is run for comparison")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In another process: what one holds at its start counts for those that it starts.
        writer = multiprocessing.get_context("spawn").Process(target=write_data, args=(folder,))
        writer.start()
        writer.join()
        found = {row: compare(row, folder, options.before, options.turns) for row in options.rows}
    found = {"machine": {"cpus": os.cpu_count(), "python": platform.python_version()}, **found}
    print(json.dumps(found, indent=2))
    if options.out:
        earlier = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
        options.out.write_text(json.dumps(earlier | found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How `score` uses the machine: how busy it keeps the cores, and how its memory grows with the number of cases.

    python benchmarks/scoring.py [--cases 25 100] [--size 320] [--labels 13] [--data FOLDER] [--out RESULTS.json]

Made-up volumes of overlapping balls (seeded) and predictions of them that are a voxel or so off, as .nii.gz. A run
of each number of cases is made by the program itself from the folder of predictions; then `score` judges it again
by all metrics in a process of its own, whose descendants are watched through /proc. "busy" is CPU time over wall
time and cores: of the whole command, start-up and table included, and of the time in which scores came in. Start-up
and table are work for one core, some seconds of it, so small volumes leave the other idle for much of the time.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

AFFINE = np.diag([0.8, 0.8, 1.5, 1.0])
METRICS = "[dice,iou,hd95,assd,nsd@1]"
PAUSE = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBRARIES = ("medimg-eval", "numpy", "scipy", "nibabel", "isal")


class Sample(NamedTuple):
    """One look at the processes: when, CPU seconds so far, bytes held by all and by the largest, cases scored."""

    time: float
    cpu: float
    memory: int
    largest: int
    scored: int


def generate(data: Path, cases: int, size: int, labels: int) -> None:
    """Makes what earlier runs have not left there."""
    import nibabel as nib

    from medimg_eval.case import Mask
    from medimg_eval.imaging import write_mask

    for folder in ("images", "labels", "predictions"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    for index in range(cases):
        name = f"case{index:03d}.nii.gz"
        if (data / "images" / name).exists():
            continue
        rng = np.random.default_rng(index)
        centres = rng.uniform(0.15, 0.85, (labels, 3)) * size
        radii = rng.uniform(0.06, 0.16, labels) * size
        reference = balls(centres, radii, size)
        prediction = balls(centres + rng.normal(0, 1, centres.shape), radii + rng.normal(0, 1, labels), size)
        write_mask(data / "labels" / name, Mask(reference, AFFINE))
        write_mask(data / "predictions" / name, Mask(prediction, AFFINE))
        image = nib.Nifti1Image(reference * np.uint8(10), AFFINE)  # nobody looks at it
        image.header.set_xyzt_units("mm")
        nib.save(image, data / "images" / name)


def balls(centres: Any, radii: Any, size: int) -> Any:
    """A label map of balls; later ones lie over earlier ones."""
    volume = np.zeros((size, size, size), np.uint8)
    for label, (centre, radius) in enumerate(zip(centres, radii, strict=True), start=1):
        starts, stops = np.clip([centre - radius, centre + radius + 2], 0, size).astype(int)
        grid = np.ogrid[tuple(map(slice, starts, stops))]
        apart = sum((along - middle) ** 2 for along, middle in zip(grid, centre, strict=True))
        volume[tuple(map(slice, starts, stops))][apart < radius**2] = label
    return volume


def make_run(data: Path, folder: Path, cases: int, labels: int) -> Path:
    """Lets the program make the run of the first so many cases; judged by Dice alone, which is quick."""
    names = "".join(f"case{index:03d},test\n" for index in range(cases))
    (data / f"cases-{cases}.csv").write_text(f"case,split\n{names}", encoding="utf-8")
    task = folder / "conf" / "task"
    task.mkdir(parents=True, exist_ok=True)
    (task / f"balls{cases}.yaml").write_text(
        f"""
_target_: medimg_eval.tasks.SegmentationTask
name: balls{cases}
labels: {{{", ".join(f"{label}: ball{label}" for label in range(1, labels + 1))}}}
metrics: [dice]
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {data}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
  table: cases-{cases}.csv
""",
        encoding="utf-8",
    )
    run = folder / f"run{cases}"
    words = ["test", "--config-dir", str(folder / "conf"), f"task=balls{cases}", "model=precomputed"]
    subprocess.run(
        [sys.executable, "-m", "medimg_eval", *words, f"model.root={data / 'predictions'}", f"run={run}"],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    return run


def measure(run: Path, cases: int) -> dict[str, Any]:
    """Runs `score` and watches it."""
    scores = run / "scores-0.jsonl"
    before = scores.read_bytes().count(b"\n")
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "medimg_eval", "score", f"run={run}", f"metrics={METRICS}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=run.parent,
    )
    samples = [Sample(0.0, 0.0, 0, 0, 0)]
    while process.poll() is None:
        cpu, memory, largest = watch(process.pid)
        scored = scores.read_bytes().count(b"\n") - before
        samples.append(Sample(time.perf_counter() - start, cpu, memory, largest, scored))
        time.sleep(PAUSE)
    wall = time.perf_counter() - start
    error = process.stderr.read().decode() if process.stderr else ""
    if process.returncode:
        raise RuntimeError(f"score ended with {process.returncode}: {error}")
    return summarise(samples, wall, cases)


def summarise(samples: list[Sample], wall: float, cases: int) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    cpu = max(sample.cpu for sample in samples)
    first = next(sample for sample in samples if sample.scored)
    last = next(sample for sample in samples if sample.scored >= cases)
    # What was queued when the queue ran dry is judged by fewer workers than there are.
    steady = next(sample for sample in samples if sample.scored >= cases - cores)
    return {
        "wall s": wall,
        "CPU s": cpu,
        "busy": cpu / wall / cores,
        "busy while scores came in": (steady.cpu - first.cpu) / (steady.time - first.time) / cores,
        "s before the first score": first.time,
        "s after the last score": wall - last.time,
        "ms per case": (last.time - first.time) / max(1, cases - first.scored) * 1000,
        "peak MiB, all processes": max(sample.memory for sample in samples) / 2**20,
        "peak MiB, largest process": max(sample.largest for sample in samples) / 2**20,
    }


def watch(root: int) -> tuple[float, int, int]:
    """CPU seconds of a process and all below it, those that ended included; bytes held by all, and by the largest."""
    found: dict[int, tuple[int, float, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            cpu = sum(int(ticks) for ticks in fields[11:15]) / TICKS
            found[int(entry.name)] = int(fields[1]), cpu, int(fields[21]) * PAGE
    family, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _, _) in found.items() if parent in family} - family
        family |= more
        grown = bool(more)
    held = [found[pid] for pid in family if pid in found]
    memory = [bytes_held for _, _, bytes_held in held]
    return sum(cpu for _, cpu, _ in held), sum(memory), max(memory, default=0)


def show(found: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="score")
    table.add_column("")
    for cases in found:
        table.add_column(f"{cases} cases", justify="right")
    for name in next(iter(found.values())):
        table.add_row(name, *(f"{one[name]:.2f}" for one in found.values()))
    Console(width=120).print(table)


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", default=[25, 100])
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--labels", type=int, default=13)
    parser.add_argument("--data", type=Path, help="where to keep the volumes, for the next run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = (options.data or folder / "data").absolute() / f"{options.size}x{options.labels}"
        generate(data, max(options.cases), options.size, options.labels)
        found = {}
        for cases in options.cases:
            run = make_run(data, folder, cases, options.labels)
            found[str(cases)] = measure(run, cases)
            shutil.rmtree(run)
    show(found)
    if options.out:
        machine = {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()}
        machine |= {library: importlib.metadata.version(library) for library in LIBRARIES}
        result = {"size": options.size, "labels": options.labels, "metrics": METRICS, "machine": machine}
        options.out.write_text(json.dumps(result | {"cases": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

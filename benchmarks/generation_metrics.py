"""What metrics of sets of feature vectors take, in CPU time and memory, beside the packages that compute the same.

    python benchmarks/generation_metrics.py [--out RESULTS.json] [--peer-python PYTHON] [--repeats 2] [--only PART]

Features are made up: rectified mixtures, as a network's are. Each turn is a process of its own, on one thread: features
in, numbers out. The least CPU time of a few turns counts, and the growth of the resident memory at its peak. Ours are
timed as the peers are, without interval and floor, and once with both ("whole"). Peers are torch-fidelity, clean-fid,
prdc and scikit-learn, where the Python of `--peer-python` has them. Compare ratios, not seconds.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PLAIN = {"floor": False, "interval": False}
FINDINGS = (2203, 1404, 1036, 936, 928, 768, 550, 309, 235, 169, 138, 129, 93, 40)
"""Rows of each of 14 findings, as a test set of 5,034 images has."""

TASKS = {
    "frechet, 10,000 x 2048": (10_000, 2048, ("torch-fidelity", "clean-fid")),
    "frechet, 10,000 x 768": (10_000, 768, ("torch-fidelity", "clean-fid")),
    "frechet, 1,000 x 2048": (1_000, 2048, ("torch-fidelity", "clean-fid")),
    "frechet, 200 x 2048": (200, 2048, ("torch-fidelity", "clean-fid")),
    "frechet by 14 findings, d = 2048": (2203, 2048, ("torch-fidelity",)),
    "kernel, 2,000 x 768": (2_000, 768, ("torch-fidelity", "clean-fid")),
    "kernel, 10,000 x 2048": (10_000, 2048, ("torch-fidelity", "clean-fid")),
    "prdc, 5,000 x 768": (5_000, 768, ("prdc",)),
    "prdc, 10,000 x 2048": (10_000, 2048, ("prdc",)),
    "two nearest, 10,000 x 2048": (10_000, 2048, ("scikit-learn",)),
}
MODULES = {"torch-fidelity": "torch_fidelity", "clean-fid": "cleanfid", "prdc": "prdc", "scikit-learn": "sklearn"}
"""What each peer is imported as. Its KID is the mean of 100 subsets of 1,000, ours is of all pairs."""

Call = Callable[[np.ndarray, np.ndarray], list[float]]


def features(rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sets, (rows, d) float64, a little apart."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((d, d)) / np.sqrt(d)
    found = []
    for shift, spread in ((0.0, 1.0), (0.05, 1.05)):
        made = np.empty((rows, d))
        for start in range(0, rows, 1000):
            size = min(1000, rows - start)
            made[start : start + size] = rng.standard_normal((size, d)) @ mixing
        made *= spread
        made += shift
        found.append(np.maximum(made, 0, out=made))
    return found[0], found[1]


def ours(task: str, *, whole: bool) -> Call:
    from medimg_eval.metrics import fidelity
    from medimg_eval.metrics.fidelity.nearest_neighbours import near, prepare_feature_sets

    options: dict[str, Any] = {} if whole else PLAIN

    def by_finding(real: np.ndarray, made: np.ndarray) -> list[float]:
        return [fidelity.frechet_distance(real[:n], made[:n], **options).value for n in FINDINGS]

    def nearest(real: np.ndarray, made: np.ndarray) -> list[float]:
        queries, gallery = prepare_feature_sets(made, real)
        return [float(np.sqrt(near(queries, gallery, 2).squares).sum() / gallery.scale)]

    if task.startswith("frechet by"):
        return by_finding
    if task.startswith("frechet"):
        return lambda real, made: [fidelity.frechet_distance(real, made, **options).value]
    if task.startswith("kernel"):
        given = options or {"floor": True}
        return lambda real, made: [fidelity.kernel_distance(real, made, **given).value]
    if task.startswith("prdc"):
        whole_call = fidelity.precision_recall_density_coverage
        return lambda real, made: [one.value for one in whole_call(real, made, **options)]
    return nearest


def theirs(task: str, peer: str) -> Call:
    if peer == "prdc":
        from prdc import compute_prdc

        return lambda real, made: [float(one) for one in compute_prdc(real, made, 5).values()]
    if peer == "scikit-learn":
        from sklearn.neighbors import NearestNeighbors

        def nearest(real: np.ndarray, made: np.ndarray) -> list[float]:
            return [float(NearestNeighbors(n_neighbors=2, algorithm="brute").fit(real).kneighbors(made)[0].sum())]

        return nearest
    if peer == "clean-fid":
        from cleanfid import fid

        if task.startswith("kernel"):
            return lambda real, made: [float(fid.kernel_distance(real, made))]
        return lambda real, made: [
            float(fid.frechet_distance(real.mean(0), np.cov(real.T), made.mean(0), np.cov(made.T)))
        ]
    return torch_fidelity(task)


def torch_fidelity(task: str) -> Call:
    import torch
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    from torch_fidelity.metric_kid import kid_features_to_metric

    def frechet(real: np.ndarray, made: np.ndarray) -> float:
        sides = [fid_features_to_statistics(torch.from_numpy(one)) for one in (real, made)]
        return float(fid_statistics_to_metric(*sides, verbose=False)["frechet_inception_distance"])

    def kernel(real: np.ndarray, made: np.ndarray) -> list[float]:
        found = kid_features_to_metric(torch.from_numpy(real), torch.from_numpy(made), verbose=False)
        return [float(found["kernel_inception_distance_mean"])]

    if task.startswith("kernel"):
        return kernel
    if task.startswith("frechet by"):
        return lambda real, made: [frechet(real[:n], made[:n]) for n in FINDINGS]
    return lambda real, made: [frechet(real, made)]


def memory(field: str) -> float:
    """MiB that this process holds ("VmRSS") or has held at most ("VmHWM"), where the system says so."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(one for one in status.read_text(encoding="utf-8").splitlines() if one.startswith(field))
    return int(line.split()[1]) / 1024


def measure(task: str, side: str) -> dict[str, Any]:
    """CPU seconds, growth of memory in MiB, and values of one turn in this process."""
    rows, d, _ = TASKS[task]
    call = ours(task, whole=side == "whole") if side in ("here", "whole") else theirs(task, side)
    if not task.startswith(("frechet by", "kernel")):
        call(*features(64, 16))  # imports and first uses are not what is timed
    real, made = features(rows, d)
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5", encoding="utf-8")
    before, start = memory("VmRSS"), time.process_time()
    values = call(real, made)
    return {"seconds": time.process_time() - start, "memory": memory("VmHWM") - before, "values": values}


def turn(python: str, task: str, side: str) -> dict[str, Any] | None:
    """One turn in a process of its own; None where the peer is not installed."""
    ran = subprocess.run(
        [python, "-W", "ignore", __file__, "--task", task, "--side", side],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")},
    )
    if ran.returncode:
        sys.exit(f"{task}, {side}: {ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else 'failed'}")
    read: dict[str, Any] | None = json.loads(ran.stdout.splitlines()[-1])
    return read


def best(turns: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    there = [one for one in turns if one is not None]
    return min(there, key=lambda one: one["seconds"]) if there else None


def compare(task: str, peer_python: str, repeats: int) -> dict[str, dict[str, Any]]:
    """The best turn of each side; sides take turns."""
    sides = ["here", *TASKS[task][2]] + ([] if task.startswith("two") else ["whole"])
    turns: dict[str, list[dict[str, Any] | None]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            turns[side].append(turn(sys.executable if side in ("here", "whole") else peer_python, task, side))
    return {side: found for side in sides if (found := best(turns[side]))}


def show(task: str, found: dict[str, dict[str, Any]]) -> None:
    mine = found["here"]
    for side, one in found.items():
        ratio = one["seconds"] / mine["seconds"]
        room = one["memory"] / max(mine["memory"], 1.0)
        apart = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(mine["values"], one["values"], strict=True))
        print(
            f"{task if side == 'here' else '':34}{side:16}{one['seconds']:9.3f} s{one['memory']:8.0f} MiB"
            f"{ratio:9.2f}{room:8.2f}   {apart:.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default="", help="tasks whose name begins so")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        there = given.side in ("here", "whole") or importlib.util.find_spec(MODULES[given.side])
        print(json.dumps(measure(given.task, given.side) if there else None))
        return
    print(f"{'':34}{'':16}{'CPU':>11}{'growth':>12}{'ratio':>9}{'memory':>8}   values apart")
    results = {}
    for task in TASKS:
        if task.startswith(given.only):
            results[task] = compare(task, given.peer_python, given.repeats)
            show(task, results[task])
    if given.out:
        machine = {"python": platform.python_version(), "cpu": platform.processor(), "cores": os.cpu_count()}
        text = json.dumps({"machine": machine, "repeats": given.repeats, "tasks": results}, indent=2)
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How long the intervals of a table take: 10,000 resamples of 5,000 cases by 20 metrics, beside a loop over columns.

    python benchmarks/intervals.py [--cases 5000] [--metrics 20] [--models 1 3] [--repeat 3] [--out RESULTS.json]

Runs of as many cases, each a patient of its own or two of one patient, are written as `test` leaves them. `program` is
`python -m medimg_eval table` from its start to the printed table; of that, `load` reads the runs and `build` makes the
table. The loop draws anew for each column and adds up the drawn values with NumPy, as a script would, and is timed in
the same process, as is SciPy's bootstrap where cases are not clustered. Both draw the same resamples, so that their
bounds must be the same.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from medimg_eval.results import build_table, load_runs

RESAMPLES = 10_000
CHUNK = 200


def write_run(folder: Path, model: str, cases: int, metrics: int, per_patient: int) -> None:
    """Writes the manifest and the scores of one run: numbers that no registered metric has."""
    rng = np.random.default_rng(len(model))
    names = np.array([f"case{place:05d}" for place in range(cases)])
    frame = pd.DataFrame(
        {
            "run": model,
            "task": "bench",
            "model": model,
            "case": np.tile(names, metrics),
            "patient": np.tile([f"p{place // per_patient:05d}" for place in range(cases)], metrics),
            "label": "organ",
            "metric": np.repeat([f"number{place:02d}" for place in range(metrics)], cases),
            "value": rng.beta(8, 2, size=cases * metrics),
            "status": "present",
            "attributes": "{}",
        }
    )
    (folder / model).mkdir(parents=True)
    frame.to_parquet(folder / model / "scores.parquet")
    manifest = {
        "schema": 1, "run": model, "command": "test", "task": "bench", "task_title": "Bench", "model": model,
        "settings": "0", "status": "finished", "cases": cases, "predicted": cases, "failed_cases": 0,
        "data_fingerprint": "0", "signature": "", "resampled": "patients", "notes": [],
        "started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    (folder / model / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Returns what `work` returns, and its wall and CPU seconds."""
    before, start = os.times(), time.perf_counter()
    found = work()
    wall, after = time.perf_counter() - start, os.times()
    return found, {"wall": round(wall, 3), "cpu": round(sum(after[:4]) - sum(before[:4]), 3)}


def looped(runs: list[Any]) -> list[tuple[float, float]]:
    """The bounds of each column of each run, each drawn for itself."""
    bounds = []
    for run in runs:
        for _, rows in run.scores.groupby("metric", sort=True):
            of_patient = rows.groupby("patient", sort=True)["value"]
            sums, counts = of_patient.sum().to_numpy(), of_patient.count().to_numpy()
            rng, means = np.random.default_rng(0), []
            for start in range(0, RESAMPLES, CHUNK):
                drawn = rng.integers(sums.size, size=(min(CHUNK, RESAMPLES - start), sums.size))
                means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
            low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
            bounds.append((float(low), float(high)))
    return bounds


def scipys(run: Any) -> tuple[float, float]:
    """SciPy's bounds of the first column."""
    from scipy.stats import bootstrap

    values = next(iter(run.scores.groupby("metric", sort=True)))[1]["value"].to_numpy()
    found = bootstrap((values,), np.mean, n_resamples=RESAMPLES, batch=CHUNK, method="percentile", rng=0)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def measured(cases: int, metrics: int, models: int, per_patient: int, repeat: int) -> dict[str, Any]:
    """Times one size of table."""
    found: dict[str, Any] = {"cases": cases, "metrics": metrics, "models": models, "cases per patient": per_patient}
    with tempfile.TemporaryDirectory() as place:
        for number in range(models):
            write_run(Path(place), f"model{'x' * number}", cases, metrics, per_patient)
        runs, found["load"] = timed(lambda: load_runs([Path(place)]))
        for interval in ("percentile", "bca"):
            rounds = []
            # Each round has a seed of its own, so that none finds the draws of another.
            for seed in reversed(range(repeat)):
                _, took = timed(partial(build_table, runs, interval=interval, seed=seed + len(found) * repeat))
                rounds.append(took)
            found[f"build, {interval}"] = min(rounds, key=lambda one: one["wall"])
        ours = build_table(runs).frame()[["low", "high"]].to_numpy()
        command = [sys.executable, "-m", "medimg_eval", "table", f"runs={place}"]
        _, found["program"] = timed(lambda: subprocess.run(command, check=True, capture_output=True))
        theirs, found["loop over columns"] = timed(lambda: looped(runs))
        if per_patient == 1:
            other, found["SciPy, one column"] = timed(lambda: scipys(runs[0]))
            found["farthest from SciPy, of the width"] = round(
                float(np.abs(ours[0] - other).max() / (ours[0][1] - ours[0][0])), 4
            )
    found["farthest from the loop"] = float(np.abs(ours - np.array(theirs)).max())
    found["loop / build, CPU"] = round(found["loop over columns"]["cpu"] / found["build, percentile"]["cpu"], 1)
    found["peak MiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    results: dict[str, Any] = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "load": [round(one, 2) for one in os.getloadavg()],
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "resamples": RESAMPLES,
        "tables": [],
    }
    for models in wanted.models:
        for per_patient in (1, 2):
            results["tables"].append(measured(wanted.cases, wanted.metrics, models, per_patient, wanted.repeat))
            print(json.dumps(results["tables"][-1], indent=2), flush=True)
    if wanted.out:
        wanted.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

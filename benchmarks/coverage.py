"""How often the intervals of tables hold the truth, by what a metric's values are: many data sets whose truth is known.

    python benchmarks/coverage.py [--sets 3000] [--patients 5 10 20 50 100] [--out RESULTS.json]

Values are drawn, one for each patient, from distributions that look like metrics of each kind (`KINDS`), and given to
the function that makes a table's intervals. `held` is the share of the printed intervals that hold the truth, `missed
below` and `missed above` of those that lie above and below it, `none` the share of data sets for which none is printed
(all values equal). 95 % is asked for.
"""

import argparse
import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.results.runs import Part, RunScores
from medimg_eval.results.statistics import Bootstrap, Method, Sample, summarise, table_intervals

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

RESAMPLES = 1_000


def _overlap(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Like Dice of which a fifth is missed: 0, or from beta(12, 2)."""
    return np.where(rng.random(shape) < 0.2, 0.0, rng.beta(12, 2, shape))


KINDS: dict[str, tuple[str, Draw, float]] = {
    "proportion, 0.5": ("proportion", lambda rng, shape: (rng.random(shape) < 0.5).astype(float), 0.5),
    "proportion, 0.9": ("proportion", lambda rng, shape: (rng.random(shape) < 0.9).astype(float), 0.9),
    "proportion, 0.98": ("proportion", lambda rng, shape: (rng.random(shape) < 0.98).astype(float), 0.98),
    "bounded, beta(8, 2)": ("bounded", lambda rng, shape: rng.beta(8, 2, shape), 0.8),
    "bounded, a fifth 0": ("bounded", _overlap, 0.8 * 12 / 14),
    "bounded, beta(60, 1)": ("bounded", lambda rng, shape: rng.beta(60, 1, shape), 60 / 61),
    "unbounded, lognormal(1, 0.8)": ("unbounded", lambda rng, shape: rng.lognormal(1, 0.8, shape), np.exp(1.32)),
    "ratio, lognormal(0, 0.3)": ("ratio", lambda rng, shape: rng.lognormal(0, 0.3, shape), np.exp(0.045)),
    "count, Poisson(1.5)": ("count", lambda rng, shape: rng.poisson(1.5, shape).astype(float), 1.5),
    "count, Poisson(0.1)": ("count", lambda rng, shape: rng.poisson(0.1, shape).astype(float), 0.1),
}
"""Name -> kind of value, how data sets are drawn, (data set, patient), and their mean."""


def of_means(name: str, patients: int, sets: int, method: Method, resamples: int = RESAMPLES) -> dict[str, float]:
    """Draws data sets of one kind and counts how often the printed interval of their mean holds the truth."""
    kind, draw, truth = KINDS[name]
    data = draw(np.random.default_rng(patients), (sets, patients))
    samples = [Sample(row, np.arange(patients), share=kind == "proportion") for row in data]
    found = table_intervals(samples, Bootstrap(resamples, method=method))
    return counted(np.array([(one.low, one.high) for one in found]), truth)


def of_correlation(patients: int, sets: int, method: Method, truth: float = 0.8) -> dict[str, float]:
    """Does the same for Pearson's r of normal pairs, a summary, whose interval comes from resampled rows."""
    rng = np.random.default_rng(patients)
    bounds = []
    for _ in range(sets):
        pairs = rng.multivariate_normal([0, 0], [[1, truth], [truth, 1]], size=patients)
        cases = [f"c{place:03d}" for place in range(patients)]
        both = [("measured", pairs[:, 0]), ("measured_reference", pairs[:, 1])]
        rows = pd.concat([pd.DataFrame({"case": cases, "metric": name, "value": values}) for name, values in both])
        rows = rows.assign(patient=rows["case"], label="a", status="present", attributes="{}")
        run = RunScores(
            folder=Path(), run="r", task="t", task_title="t", model="m", cases=patients, predicted=patients,
            failed_cases=0, resampled="cases", started=datetime.now(UTC), scores=rows.reset_index(drop=True),
        )  # fmt: skip
        one = summarise("pearson", Part.whole(run), resamples=RESAMPLES // 5, level=0.95, seed=0, method=method)
        bounds.append((one.low, one.high))
    return counted(np.array(bounds), truth)


def counted(bounds: Floats, truth: float) -> dict[str, float]:
    """Returns shares of intervals, (interval, 2), which are NaN where there is none."""
    low, high = bounds[~np.isnan(bounds[:, 0])].T
    shares = {"held": (low <= truth) & (truth <= high), "missed above": high < truth, "missed below": low > truth}
    found = {name: round(float(np.mean(hit)), 4) for name, hit in shares.items() if len(hit)}
    return found | {"none": round(float(np.isnan(bounds[:, 0]).mean()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=3_000)
    parser.add_argument("--patients", type=int, nargs="+", default=[5, 10, 20, 50, 100])
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    methods: tuple[Method, ...] = ("percentile", "bca")
    found: dict[str, Any] = {}
    for patients in wanted.patients:
        for method in methods:
            for name, (kind, _, _) in KINDS.items():
                if kind == "proportion" and method == "bca":
                    continue
                key = "Wilson or exact" if kind == "proportion" else method
                one = of_means(name, patients, wanted.sets, method)
                found.setdefault(name, {}).setdefault(key, {})[str(patients)] = one
                print(f"{name:30} {key:16} n = {patients:3}", one, flush=True)
            one = of_correlation(patients, max(1, wanted.sets // 10), method)
            found.setdefault("correlation, 0.8", {}).setdefault(method, {})[str(patients)] = one
            print(f"{'correlation, 0.8':30} {method:16} n = {patients:3}", one, flush=True)
    if wanted.out:
        about = {"sets": wanted.sets, "resamples": RESAMPLES, "python": platform.python_version()}
        wanted.out.write_text(json.dumps({"about": about, "coverage": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

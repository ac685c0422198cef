"""CPU time of concordance beside lifelines and scikit-survival, on the same made-up patients in one process, in turns.

    python benchmarks/survival.py [--patients 100000] [--turns 5] [--out RESULTS.json]

Times are the best of the turns, in CPU seconds of one process with one thread of BLAS; of what takes over three seconds
one turn is taken. Values are compared, too. A bootstrap is 1,000 resamples of 5,000 patients: ours by weights of one
set of pairs, the peer's by calling it on each of 20 resamples, times 50. Peers that are not installed are left out.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

import argparse
import importlib.metadata
import json
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from clocking import clocked

from medimg_eval.metrics.survival.concordance import Pairs, harrell, uno, uno_weights

RESAMPLED, RESAMPLES, TRIED = 5_000, 1_000, 20


def cohort(number: int, *, ties: bool) -> tuple[Any, Any, Any]:
    """Times, events (six in ten) and risks that agree with times a little; with ties, of few values each."""
    random = np.random.default_rng(0)
    times, censored = random.exponential(30, (2, number))
    events = times <= censored * 1.5
    risks = -np.log(times) + random.normal(0, 1.5, number)
    times = np.minimum(times, censored * 1.5)
    return (np.ceil(times), events, risks.round(1)) if ties else (times, events, risks)


def peers() -> dict[str, Any]:
    """Functions of (times, events, risks) by name, of what is installed."""
    found: dict[str, Any] = {}
    try:
        from lifelines.utils import concordance_index

        found["lifelines"] = {"harrell": lambda t, e, r: concordance_index(t, -r, e)}
    except ImportError:
        pass
    try:
        from sksurv.metrics import concordance_index_censored, concordance_index_ipcw
        from sksurv.util import Surv

        def ipcw(t: Any, e: Any, r: Any) -> float:
            held = Surv.from_arrays(e, t)
            return float(concordance_index_ipcw(held, held, r)[0])

        found["scikit-survival"] = {
            "harrell": lambda t, e, r: float(concordance_index_censored(e, t, r)[0]),
            "uno": ipcw,
        }
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    others, rows = peers(), []
    for ties in (False, True):
        held = cohort(arguments.patients, ties=ties)
        for name, ours in (("harrell", harrell), ("uno", uno)):
            seconds, value = clocked(lambda ours=ours, held=held: float(ours(*held).value), arguments.turns)
            rows.append({"what": name, "patients": arguments.patients, "ties": ties, "who": "ours", "seconds": seconds})
            rows[-1]["value"] = value
            for peer, functions in others.items():
                if name in functions:
                    theirs, found = clocked(lambda f=functions[name], held=held: f(*held), arguments.turns)
                    rows.append(rows[-1] | {"who": peer, "seconds": theirs, "value": found, "ratio": theirs / seconds})
    rows += resampled(others, arguments.turns)
    for row in rows:
        print(json.dumps(row))
    if arguments.out is not None:
        names = ("numpy", "lifelines", "scikit-survival")
        versions = {"python": platform.python_version()}
        for name in names:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        load = [round(value, 2) for value in os.getloadavg()]
        found = {"versions": versions, "load": load, "rows": rows}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def resampled(others: dict[str, Any], turns: int) -> list[dict[str, Any]]:
    """1,000 resamples of 5,000 patients."""
    held = cohort(RESAMPLED, ties=False)
    drawn = np.random.default_rng(1).integers(0, RESAMPLED, (RESAMPLES, RESAMPLED))
    times = np.stack([np.bincount(row, minlength=RESAMPLED) for row in drawn]).astype(np.float64)

    def ours(*, weighted: bool) -> Any:
        pairs = Pairs(*held)
        return np.concatenate(
            [pairs.count(some, uno_weights(pairs, some) if weighted else None).value for some in np.split(times, 10)]
        )

    rows = []
    for name in ("harrell", "uno"):
        seconds, values = clocked(lambda name=name: ours(weighted=name == "uno"), turns)
        about = {"what": f"{name}, {RESAMPLES:,} resamples", "patients": RESAMPLED, "ties": False}
        rows.append(about | {"who": "ours", "seconds": seconds, "value": float(values[0])})
        for peer, functions in others.items():
            if name in functions:
                calls = [tuple(one[row] for one in held) for row in drawn[:TRIED]]
                each, found = clocked(lambda f=functions[name], calls=calls: [f(*call) for call in calls], 1)
                theirs = each * RESAMPLES / TRIED
                rows.append(about | {"who": peer, "seconds": theirs, "value": found[0], "ratio": theirs / seconds})
    return rows


if __name__ == "__main__":
    main()

"""`python -m tests.chaos --storms 40 --out FILE`: storms over runs with children of each kind; 1 for a fault."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.scenarios import SCENARIOS
from tests.chaos.storms import BOUND_S, MOST, weather


def main() -> int:
    """Storms of each kind, told as they end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--storms", type=int, default=40, help="of each kind; a fourth of it where programs start slowly"
    )
    parser.add_argument("--kinds", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=0, help="of who is killed when")
    parser.add_argument("--out", type=Path, help="file of the result, as JSON")
    wanted = parser.parse_args()
    import torch  # noqa: F401 - once, for all that are forked

    import medimg_eval.evaluation.predict
    import medimg_eval.evaluation.scoring  # noqa: F401

    kinds: dict[str, dict[str, object]] = {}
    folder = Path(tempfile.mkdtemp(prefix="medimg_eval-chaos-"))
    try:
        for place, name in enumerate(wanted.kinds):
            started = time.monotonic()
            storms = -(-wanted.storms // 4) if SCENARIOS[name].victims == "worker.py" else wanted.storms
            verdicts = weather(name, folder, storms, wanted.seed + 1_000_000 * place)
            kinds[name] = {
                "date": dt.datetime.now(dt.UTC).date().isoformat(),
                "seed": wanted.seed,
                "load": [round(value, 1) for value in os.getloadavg()],
                "storms": len(verdicts),
                "kills": sum(one.kills for one in verdicts),
                "storms_without_a_kill": sum(not one.kills for one in verdicts),
                "starts": sum(one.starts for one in verdicts),
                "equal": sum(not one.fault for one in verdicts),
                "faults": [one.fault for one in verdicts if one.fault],
                "blamed_by_one_kill": sum(one.blamed for one in verdicts if one.kills < 2),
                "blamed_by_more": sum(one.blamed for one in verdicts if one.kills > 1),
                "asked_again": sum(one.asked_again for one in verdicts),
                "seconds": round(time.monotonic() - started, 1),
            }
            print(f"{name}: {kinds[name]}", flush=True)
            if wanted.out:
                wanted.out.write_text(json.dumps(_result(wanted.out, kinds), indent=2) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(one["faults"] or one["blamed_by_one_kill"] for one in kinds.values()))


def _result(place: Path, kinds: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """What is written: kinds that were not asked for this time stay as they stand there."""
    before = json.loads(place.read_text())["kinds"] if place.exists() else {}
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "most_kills_in_a_storm": MOST,
        "bound_s": BOUND_S,
        "kinds": before | kinds,
    }


if __name__ == "__main__":
    sys.exit(main())

"""A few storms of each kind in turn, other ones with each change; `make chaos` has hundreds."""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.chaos.scenarios import SCENARIOS
from tests.conftest import environment

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCENARIOS)
def test_scores_after_a_storm_are_those_of_a_quiet_run(kind, tmp_path):
    """Whoever is killed whenever: the same scores and answers, no case blamed for one kill, nobody left, no hang."""
    seed = zlib.crc32((ROOT / "CHANGELOG.md").read_bytes())
    words = ["--storms", "2", "--kinds", kind, "--seed", str(seed), "--out", str(tmp_path / "chaos.json")]
    command = [sys.executable, "-m", "tests.chaos", *words]
    variables = environment(ROOT) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = json.loads((tmp_path / "chaos.json").read_text())["kinds"].values()
    assert told["equal"] == told["storms"] >= 1
    assert told["faults"] == []


def test_the_result_that_is_kept_is_of_hundreds_of_runs_of_each_kind():
    told = json.loads((ROOT / "benchmarks" / "results" / "chaos.json").read_text())["kinds"]
    assert set(told) == set(SCENARIOS)
    assert sum(one["storms"] for one in told.values()) >= 200
    assert all(one["equal"] == one["storms"] and not one["blamed_by_one_kill"] for one in told.values())

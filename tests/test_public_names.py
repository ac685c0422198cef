"""What users import keeps its place, needs no torch, and measures what it measured."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from medimg_eval.metrics import available
from tests.conftest import environment

GOLDEN = Path(__file__).parent / "golden"
HEAVY = {"torch", "monai", "lightning", "hydra"}
NAMES = (GOLDEN / "public_names.txt").read_text().split()


def test_every_public_name_is_importable_without_torch():
    code = (
        "import importlib, sys\n"
        f"for name in {NAMES!r}:\n"
        "    module, _, attribute = name.rpartition('.')\n"
        "    getattr(importlib.import_module(module), attribute)\n"
        f"sys.exit(str({HEAVY!r} & set(sys.modules)) if {HEAVY!r} & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", json.loads((GOLDEN / "models.json").read_text()))
def test_every_wrapper_has_one_public_name(name):
    assert getattr(importlib.import_module("medimg_eval.models"), name).__name__ == name


def test_no_metric_changed_its_declaration():
    declared = {
        name: {
            "kind": found.kind,
            "unit": found.unit,
            "best": repr(found.best),
            "worst": repr(found.worst),
            "higher_is_better": found.higher_is_better,
            "parameter": found.parameter,
            "needs": list(found.needs),
            "settings": str(found.settings),
        }
        for name, found in available().items()
    }
    golden = json.loads((GOLDEN / "metrics.json").read_text())
    assert {name: declared.get(name) for name in golden} == golden

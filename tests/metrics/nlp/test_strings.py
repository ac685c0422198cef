"""Patterns that are compiled late: what they are until then, and that each of them can be compiled."""

import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

from medimg_eval import metrics
from medimg_eval.metrics.nlp import late_pattern
from tests.conftest import environment

MODULES = [
    module.name for module in pkgutil.walk_packages(metrics.__path__, "medimg_eval.metrics.") if not module.ispkg
]

COMPILED = """
import re, sys
compiled, compile_pattern = [], re._compiler.compile

def noted(pattern, flags=0):
    if len(pattern) > 300 and sys._getframe(3).f_globals["__name__"].startswith("medimg_eval"):
        compiled.append(pattern)
    return compile_pattern(pattern, flags)

re._compiler.compile = noted
from medimg_eval.metrics import available
available()
assert not compiled, compiled
"""


def test_a_late_pattern_is_compiled_when_it_is_used() -> None:
    pattern = late_pattern(r"\bNO\b", re.IGNORECASE)
    assert "search" not in vars(pattern)
    assert pattern.search("no nodule")
    assert not pattern.search("nodule")
    assert "search" in vars(pattern)
    assert pattern.pattern == r"\bNO\b"


def test_a_wrong_pattern_is_told_at_its_use() -> None:
    pattern = late_pattern("(")
    with pytest.raises(re.error):
        pattern.search("")


def test_every_late_pattern_can_be_compiled() -> None:
    things = [thing for name in MODULES for thing in vars(importlib.import_module(name)).values()]
    late = [thing for thing in things if isinstance(thing, type(late_pattern("")))]
    assert len(late) > 100
    for pattern in late:
        pattern.search("")


def test_importing_all_metrics_compiles_no_long_pattern() -> None:
    subprocess.run([sys.executable, "-c", COMPILED], check=True, env=environment())

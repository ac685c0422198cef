"""Every example in a docstring runs, and gives what stands below it."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import medimg_eval

WITH_EXAMPLES = sorted(
    module.name
    for module in pkgutil.walk_packages(medimg_eval.__path__, "medimg_eval.")
    if (spec := importlib.util.find_spec(module.name)) is not None
    and spec.origin
    and ">>> " in Path(spec.origin).read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_promise(name):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_examples_are_found():
    assert len(WITH_EXAMPLES) > 30

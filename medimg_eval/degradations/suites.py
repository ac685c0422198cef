"""Suites of degradations, and the conditions of a sweep over severities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from medimg_eval.case import Condition
from medimg_eval.configs.names import CONFIGS, file_of, paths_of
from medimg_eval.degradations.declaration import SEVERITIES, degradations, find_degradation
from medimg_eval.errors import UsageError

GROUP = "degradation"
SUITE = "suite/"


def suite_names() -> list[str]:
    """Names of our suites, such as `mri` and `medmnistc_path`."""
    return paths_of(files(CONFIGS.partition("://")[2]), GROUP)


def read_suite(name: str) -> Mapping[str, Mapping[str, Sequence[Any]]]:
    """Returns a suite's degradations: name -> changed parameter levels.

    Raises:
        UsageError: there is no such suite, or it names no degradations that there are.
    """
    import yaml

    file = file_of(GROUP, name)
    if file is None:
        UsageError.refuse_invalid("suite", suite_names(), name)
        raise UsageError(f"there is no suite {name!r}")
    held = yaml.safe_load(file.read_text("utf-8"))["degradations"]
    for name_ in held:
        UsageError.refuse_unknown(f"suite {name!r} names", degradations(), name_)
    return {name: levels or {} for name, levels in held.items()}


def sweep(named: Sequence[str], severities: Sequence[int]) -> list[Condition]:
    """Returns the conditions of degradations and suites at severities, each with its parameters.

    Args:
        named: such as `mri_ghosting`, or `suite/mri`.
        severities: from 0 to 5; 0 is the case as published, which is always shown.

    Raises:
        UsageError: there is no such degradation, suite or severity, or two suites differ in a level.
    """
    for severity in severities:
        if not isinstance(severity, int) or isinstance(severity, bool) or not 0 <= severity <= SEVERITIES:
            raise UsageError(f"expected severities from 0 to {SEVERITIES}, got {severity!r}")
    conditions: dict[str, Condition] = {}
    for name in named:
        members = read_suite(name.removeprefix(SUITE)) if name.startswith(SUITE) else {name: {}}
        for member, levels in members.items():
            for severity in sorted(set(severities) - {0}):
                condition = _make_condition(member, severity, levels)
                if conditions.setdefault(condition.key, condition) != condition:
                    raise UsageError(f"degrade: {member} has other levels in {name} than before; leave one out")
    return list(conditions.values())


def read_severities(said: Any) -> list[int]:
    """Returns severities of a number, list or text such as `1..5`.

    Raises:
        UsageError: it is none of these.
    """
    first, dots, last = said.partition("..") if isinstance(said, str) else ("", "", "")
    if dots and first.isdigit() and last.isdigit():
        return list(range(int(first), int(last) + 1))
    held = said if isinstance(said, list | tuple) else [said]
    if not all(isinstance(severity, int) for severity in held):
        raise UsageError(f"expected severities such as 3, [1,3,5] or 1..5, got {said!r}")
    return list(held)


def _make_condition(name: str, severity: int, levels: Mapping[str, Sequence[Any]]) -> Condition:
    own = {key: values[severity - 1] for key, values in {**find_degradation(name).levels, **levels}.items()}
    return Condition(name, severity, own)

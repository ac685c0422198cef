"""The list of rules by which an answer is taken from an output: other people's, by name.

Our own is `medimg_eval.metrics.answers`, named "cascade". A published rule is a function with `@answer_rule(...)`
above it, in a public module of `medimg_eval.metrics` or of a package that is named in the entry-point group
"medimg_eval.metrics".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from medimg_eval.errors import UsageError, invalid

CASCADE = "cascade"

Rule = Callable[[str, Mapping[str, str], str, Mapping[str, Any]], Any]
"""Takes the output, the options (letter -> text), the question, and what the key says beside the value; returns the
answer, of the form that `Key.value` has for the question's kind, or None where the rule finds none."""

Written = TypeVar("Written", bound=Rule)


@dataclass(frozen=True)
class AnswerRule:
    """A published rule of extraction; `definition` is its function's first sentence."""

    name: str
    function: Rule
    source: str
    definition: str


_RULES: dict[str, AnswerRule] = {}


def answer_rule(name: str, *, source: str) -> Callable[[Written], Written]:
    """Registers the function below it as the rule `name`.

    Raises:
        ValueError: If another function already has the name.
    """

    def register(function: Written) -> Written:
        registered = _RULES.get(name)
        if name == CASCADE or (
            registered is not None and _function_origin(registered.function) != _function_origin(function)
        ):
            raise ValueError(
                f"Expected one rule of extraction named {name!r}, got another: {_function_origin(function)}"
            )
        definition = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        _RULES[name] = AnswerRule(name, function, source, definition)
        return function

    return register


def rules() -> dict[str, AnswerRule]:
    """Returns published rules by name in alphabetical order, without "cascade"."""
    _import_rules()
    return dict(sorted(_RULES.items()))


def rule_named(name: str) -> AnswerRule:
    """Returns the published rule of a name; UsageError names those there are."""
    if name not in _RULES:
        _import_rules()
    if name not in _RULES:
        raise UsageError(invalid("rule of extraction", name, [*_RULES, CASCADE]))
    return _RULES[name]


def _import_rules() -> None:
    """Imports every module that may hold rules: the same that may hold metrics."""
    from medimg_eval.metrics import registry

    registry.available()


def _function_origin(function: Rule) -> str:
    return f"{function.__module__}.{function.__qualname__}"

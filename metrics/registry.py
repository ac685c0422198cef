"""The list of metrics: how one is declared, found and named.

A metric is a function with `@metric(...)` above it, in a module of `medimg_eval.metrics` or in a module that
another package names in the entry-point group "medimg_eval.metrics". Those modules are imported at the first
look-up, so a new metric touches no file but its own.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Literal, TypeVar

from medimg_eval.errors import UsageError, nearest

PACKAGE = "medimg_eval.metrics"

Scorer = TypeVar("Scorer", bound=Callable[..., float])


@dataclass(frozen=True)
class Metric:
    """One metric and what a table needs to know about it.

    Attributes:
        name: What configs and scores call it: the name of its function.
        function: Computes it; what it takes depends on `kind`, and the parameter comes last.
        kind: What it judges, for example "mask".
        title: What a table's header calls it.
        higher_is_better: Its direction.
        unit: "" or "mm".
        best: The value of a perfect answer.
        worst: The value of an answer that failed; "diagonal" stands for the diagonal of the image in mm.
        definition: What it measures: the first sentence of the function's docstring.
        source: Where the definition comes from.
        parameter: What the number after "@" means, as in "nsd@2"; None for a metric that takes none.
    """

    name: str
    function: Callable[..., float]
    kind: str
    title: str
    higher_is_better: bool
    unit: str
    best: float
    worst: float | Literal["diagonal"]
    definition: str
    source: str
    parameter: str | None = None


_METRICS: dict[str, Metric] = {}


def metric(
    *,
    kind: str,
    title: str,
    higher_is_better: bool,
    best: float,
    worst: float | Literal["diagonal"],
    source: str,
    unit: str = "",
    parameter: str | None = None,
) -> Callable[[Scorer], Scorer]:
    """Registers the function below it as a metric of the same name; the arguments are `Metric`'s.

    Raises:
        ValueError: If another function already has the name.
    """

    def register(function: Scorer) -> Scorer:
        name = function.__name__
        known = _METRICS.get(name)
        if known is not None and _origin(known.function) != _origin(function):
            raise ValueError(
                f"Expected one metric named {name!r}, got {_origin(known.function)} and {_origin(function)}"
            )
        _METRICS[name] = Metric(
            name=name,
            function=function,
            kind=kind,
            title=title,
            higher_is_better=higher_is_better,
            unit=unit,
            best=best,
            worst=worst,
            definition=" ".join((function.__doc__ or "").split("\n\n")[0].split()),
            source=source,
            parameter=parameter,
        )
        return function

    return register


def get(name: str) -> Metric:
    """Returns the metric of a name, with or without a parameter: "dice", "nsd@2".

    Raises:
        UsageError: As `parse` does.
    """
    return parse(name)[0] if "@" in name else _find(name)


def available(kind: str | None = None) -> dict[str, Metric]:
    """Returns the metrics there are, by name in alphabetical order; of one kind if `kind` is given."""
    _discover()
    return {name: found for name, found in sorted(_METRICS.items()) if kind is None or found.kind == kind}


def parse(name: str) -> tuple[Metric, float | None]:
    """Returns the metric that a name asks for and its parameter: "nsd@2" is NSD at 2 mm.

    Raises:
        UsageError: If there is no such metric, or its parameter is missing, not wanted, or not a number of
            at least 0.
    """
    base, at, text = name.partition("@")
    found = _find(base)
    if found.parameter is None:
        if at:
            raise UsageError(f"Metric {base!r} takes no parameter, got {name!r}")
        return found, None
    if not at:
        raise UsageError(f"Metric {base!r} needs a parameter ({found.parameter}), for example '{base}@2'")
    try:
        parameter = float(text)
    except ValueError:
        parameter = math.nan
    if not 0 <= parameter < math.inf:
        raise UsageError(
            f"Expected the parameter of metric {base!r} ({found.parameter}) to be a number of at least 0, got {name!r}"
        )
    return found, parameter


def title(name: str) -> str:
    """Returns what a table's header calls a metric: "NSD@2" for "nsd@2"."""
    found, parameter = parse(name)
    return found.title if parameter is None else f"{found.title}@{parameter:g}"


def _find(name: str) -> Metric:
    _discover()
    if name not in _METRICS:
        raise UsageError(f"Unknown metric {name!r}{nearest(name, _METRICS)}")
    return _METRICS[name]


@cache
def _discover() -> None:
    """Imports every module that may hold metrics; each registers its own as it is imported."""
    for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{PACKAGE}.{module.name}")
    for plugin in entry_points(group=PACKAGE):
        try:
            plugin.load()
        except ImportError as error:
            raise UsageError(f"Metrics plugin {plugin.name!r} ({plugin.value}): {error}") from error


def _origin(function: Callable[..., float]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

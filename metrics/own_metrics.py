"""Metrics in modules of the user's own, which are named with their module."""

import importlib

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.registry import PACKAGE, adopted, available, parse


def import_own(name: str) -> None:
    """Imports the module of a metric that is named with it, as "my_metrics.size_ratio"; of other names nothing.

    That runs the module: a name that somebody else's files hold is not for here.

    Raises:
        UsageError: If it cannot be imported, or holds no such metric.
    """
    base = name.partition("@")[0]
    module = base.rpartition(".")[0]
    if not module or adopted(base):
        return
    try:
        importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"Metric {base!r}: {module} cannot be imported ({error}); install the package it is in, or run from the "
            "folder it lies in"
        ) from error
    if not adopted(base):
        own = [name for name, metric in available().items() if metric.function.__module__ == module and "." not in name]
        hint = nearest(base.rpartition(".")[2], own) if own else ""
        raise UsageError(f"Metric {base!r}: {module} declares no metric of that name{hint}; put @metric(...) above it")


def is_ours(name: str) -> bool:
    """Returns whether a metric is of this package, and not of a plug-in or a module of the user's own."""
    return parse(name)[0].function.__module__.startswith(f"{PACKAGE}.")

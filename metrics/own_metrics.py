"""Metrics in modules of the user's own, which are named with their module."""

import importlib

from medimg_eval.errors import UsageError
from medimg_eval.metrics.registry import PACKAGE, adopted, parse


def import_own(name: str) -> None:
    """Imports a metric's module, as in "my_metrics.size_ratio".

    Names without a module import nothing. That runs the module: a name out of somebody else's files must not
    come here.

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
        raise UsageError(f"Metric {base!r}: {module} declares no metric of that name; put @metric(...) above it")


def is_ours(name: str) -> bool:
    """True for this package's metrics, false for plug-ins' and users'."""
    return parse(name)[0].function.__module__.startswith(f"{PACKAGE}.")

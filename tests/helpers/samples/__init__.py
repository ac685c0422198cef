"""The samples of question benchmarks, one module per group of them."""

import importlib
import pkgutil

ALL = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
"""Importing them registers what they hold."""

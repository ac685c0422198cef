"""Scripts of benchmarks' authors, run beside ours where a clone is there; nothing of them is kept here."""

import ast
import os
import typing
import warnings
from pathlib import Path
from typing import Any

import pytest

from medimg_eval.results.published.reproduction import find_clone


def require_clone(repository: str) -> Path:
    """The folder of a repository, OWNER/NAME, in MEDIMG_EVAL_CLONES; skips the test where it is not there."""
    clones = os.environ.get("MEDIMG_EVAL_CLONES")
    clone = find_clone(repository, Path(clones)) if clones else None
    if clone is None:
        pytest.skip(f"there is no clone of {repository} in MEDIMG_EVAL_CLONES")
    return clone


def load_functions(path: Path, *names: str, **given: Any) -> dict[str, Any]:
    """Runs some definitions of a file alone, since what the whole file imports may need weights or servers.

    Args:
        path: a Python file.
        names: functions, classes and constants that it defines.
        given: names that these use and do not define, such as np; those of `typing` are there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [
        node
        for node in tree.body
        if getattr(node, "name", None) in names
        or (isinstance(node, ast.Assign) and {getattr(target, "id", None) for target in node.targets} & set(names))
        or (isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) in names)
    ]
    defined = {name: getattr(typing, name) for name in typing.__all__} | given
    exec(compile(ast.Module(wanted, []), str(path), "exec"), defined)  # noqa: S102
    missing = set(names) - defined.keys()
    assert not missing, f"{path} does not define {missing}"
    return defined


def import_package(repository: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of a clone, or as it is installed; skips the test where neither is there."""
    import importlib

    if importlib.util.find_spec(name) is None:
        monkeypatch.syspath_prepend(require_clone(repository))
    return importlib.import_module(name)

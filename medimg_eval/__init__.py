"""medimg_eval: evaluate any medical-imaging model on any medical-imaging task, and end in a paper table."""

TYPE_CHECKING = False  # for type checkers, which know the name; the module that has it takes longer than all of this

if TYPE_CHECKING:
    from medimg_eval.api import (
        check,
        compare,
        embed,
        export,
        figure,
        fit,
        import_log,
        inspect_task,
        label,
        list_catalogue,
        list_tasks,
        load_run,
        load_task,
        predict,
        report,
        score,
        table,
        test,
        test_checkpoints,
    )

    __version__: str

__all__ = [
    "__version__",
    "check",
    "compare",
    "embed",
    "export",
    "figure",
    "fit",
    "import_log",
    "inspect_task",
    "label",
    "list_catalogue",
    "list_tasks",
    "load_run",
    "load_task",
    "predict",
    "report",
    "score",
    "table",
    "test",
    "test_checkpoints",
]


def __getattr__(name: str) -> object:
    """Looks up functions of `medimg_eval.api` and the version lazily."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: object = version("medimg-eval")
        except PackageNotFoundError:  # a checkout that was never installed
            value = "0+uninstalled"
    elif name in __all__:
        from importlib import import_module

        value = getattr(import_module("medimg_eval.api"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

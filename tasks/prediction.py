"""What is asked about images of which no truth is known: the config of a task whose answers are kept, never scored."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from medimg_eval.errors import UsageError

NAME = "predict"
"""What such tasks are called: the folder of their runs."""


class Output(NamedTuple):
    """Output of a family, and the model's requirement for it."""

    family: str
    methods: tuple[str, ...]
    labels: str
    settings: Mapping[str, Any] = {}


OUTPUTS = {
    "masks": Output("SegmentationTask", ("segment",), "labels", {"metrics": ["dice"], "monitor": "dice"}),
    "probabilities": Output("SegmentationTask", ("give_probabilities",), "labels", {"metrics": ["soft_dice"]}),
    "boxes": Output("DetectionTask", ("detect",), "labels"),
    "points": Output("LandmarkTask", ("detect",), "labels"),
    "classes": Output("ClassificationTask", ("classify",), "classes"),
    "answers": Output("QuestionTask", ("generate", "choose"), ""),
}
"""Outputs by name; of several that a model has methods for, the first is meant."""

OF_A_TRUTH = ("judge", "shots", "guides", "expected", "splits", "card", "facts", "protocol", "published", "title")
"""Fields of tasks that speak of a benchmark's own cases."""


def output_of(wrapper: type, wanted: str | None, *, asked: bool) -> str:
    """Output that a model of some class is asked for.

    Raises:
        UsageError: there is no such output, or the class lacks the method for it, or for all.
    """
    if wanted is not None:
        UsageError.refuse_invalid("output", OUTPUTS, wanted)
    able = [
        name for name, output in OUTPUTS.items() if any(callable(getattr(wrapper, m, None)) for m in output.methods)
    ]
    chosen = wanted or ("answers" if asked and "answers" in able else next(iter(able), None))
    if chosen is None or chosen not in able:
        has = f"it can give {', '.join(able)}" if able else "predict asks for " + ", ".join(OUTPUTS)
        needs = (
            " or ".join(f"{method}()" for method in OUTPUTS[chosen].methods) if chosen else "a method for any output"
        )
        raise UsageError(f"model {wrapper.__name__} lacks {needs}; {has}")
    return chosen


def prediction_config(
    output: str, layout: Mapping[str, Any], labels: Any, settings: Mapping[str, Any], task: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the config of a task for an output and layout.

    Args:
        output: a key of `OUTPUTS`.
        layout: config of the images.
        labels: integer -> name, or names, of what is to be found; None takes those of `task`.
        settings: further fields of the family, such as `decoding`.
        task: config of a benchmark that is asked as it asks, under its protocol; without its truth, judge and card.

    Raises:
        UsageError: nothing says which labels there are, or the benchmark asks for something else.
    """
    asks = OUTPUTS[output]
    config: dict[str, Any] = {"_target_": f"medimg_eval.tasks.{asks.family}"}
    if task is not None:
        config = {key: value for key, value in task.items() if key not in OF_A_TRUTH}
        base: Any = pkgutil.resolve_name(f"medimg_eval.tasks.{asks.family}")
        task_class: Any = pkgutil.resolve_name(str(task["_target_"]))
        if not issubclass(task_class, base):
            raise UsageError(f"task {task.get('name')!r} asks for no {output}; leave task= out, or set output=")
    config |= {**asks.settings, **settings, "name": NAME, "layout": dict(layout)}
    if asks.labels and labels:
        config[asks.labels] = _name_labels(labels, numbered=asks.labels == "labels" and output != "boxes")
    if asks.labels and not config.get(asks.labels):
        raise UsageError(
            f"nothing says which {'classes' if output == 'classes' else 'structures'} there are; add "
            f"'labels={{1: liver, 2: tumour}}', or task=NAME of a benchmark with the same ones"
        )
    names = {field.name for field in fields(pkgutil.resolve_name(str(config["_target_"])))} | {"_target_"}
    return {key: value for key, value in config.items() if key in names}


def _name_labels(labels: Any, *, numbered: bool) -> dict[int, str] | list[str]:
    """Names of labels, by their numbers where the family has those."""
    if isinstance(labels, Mapping):
        return {int(label): str(name) for label, name in labels.items()} if numbered else [*map(str, labels.values())]
    names = [labels] if isinstance(labels, str) else [*map(str, labels)] if isinstance(labels, Sequence) else []
    if not names:
        raise UsageError(f"expected labels to be numbers with names, such as {{1: liver}}, or names, got {labels!r}")
    return dict(enumerate(names, 1)) if numbered else names

"""From a model's classes to a dataset's labels, by name, checked before anything is asked."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, nearest

log = logging.getLogger(__name__)

Classes = str | Mapping[Any, str] | Sequence[str]
"""A model's classes: the name of a list in configs/class_lists, integer -> name, or names from 1 on."""


@dataclass(frozen=True)
class Translation:
    """Class of the task for each class of a model.

    Attributes:
        classes: of the model: integer -> name, without background.
        targets: the model's integers that have a place -> the task's label.
        dropped: names of the classes that have none: their voxels become background.
    """

    classes: Mapping[int, str]
    targets: Mapping[int, int]
    dropped: tuple[str, ...] = field(default=())

    @property
    def channels(self) -> list[int]:
        """The task's label of each output channel of a network, background first."""
        return [self.targets.get(index, 0) for index in range(max(self.classes) + 1)]

    def apply(self, labels: Array) -> tuple[Array, dict[str, int]]:
        """Returns a map in the task's integers and dropped voxels; ValueError for unknown integers."""
        top = max(self.classes)
        # Only what lies between 0 and the classes can be counted in a table.
        strange = labels.size and (int(labels.min()) < 0 or int(labels.max()) > top)
        values = np.unique(labels).tolist() if strange else ()
        counts = np.bincount(() if strange else labels.ravel().astype(np.int64, copy=False), minlength=top + 1)
        unknown = [value for value in (*values, *np.flatnonzero(counts).tolist()) if value not in (0, *self.classes)]
        if unknown:
            raise ValueError(f"holds {unknown}, which are no classes of the model: {_listed(self.classes.values())}")
        unmapped = {
            self.classes[value]: int(counts[value])
            for value in np.flatnonzero(counts).tolist()
            if value and value not in self.targets
        }
        table = np.zeros(top + 1, dtype=np.int32)
        for value, label in self.targets.items():
            table[value] = label
        return table[labels], unmapped


class Translator:
    """A model's `translate`, worked out and said once for each task.

    Args:
        translate: `from`, `to` and `lacks`, as of `translation`.
        classes: of the model, where `from` does not name them.

    Raises:
        UsageError: another key, or nobody names the classes.
    """

    def __init__(self, translate: Mapping[str, Any], classes: Mapping[int, str] | None = None) -> None:
        rules = dict(translate)
        named = rules.pop("from", None)
        UsageError.refuse_unknown("model.translate: no setting", ("from", "to", "lacks"), *sorted(rules))
        self.classes = known_classes(named) if named else dict(classes or {})
        if not self.classes:
            raise UsageError("expected model.translate.from to name the classes of the model, got nothing")
        if rules.get("to") and not isinstance(rules["to"], Mapping):
            raise UsageError(f"expected model.translate.to to be CLASS: LABEL, got {rules['to']!r}")
        if isinstance(rules.get("lacks"), str):
            rules["lacks"] = [rules["lacks"]]
        self._rules = {key: value for key, value in rules.items() if value}
        self._last: tuple[Mapping[int, str], Translation] | None = None

    def __call__(self, labels: Mapping[int, str]) -> Translation:
        """Maps classes to a task's labels; raises UsageError as `translation`."""
        if self._last is None or self._last[0] != labels:
            self._last = (dict(labels), translation(self.classes, labels, **self._rules))
        return self._last[1]


def known_classes(classes: Classes) -> dict[int, str]:
    """Reads a model's classes: integer -> name, without background.

    They are given by the name of a list in configs/class_lists, as such a mapping, or as names from 1 on.

    Raises:
        UsageError: there is no such list, or a number or name occurs twice.
    """
    if isinstance(classes, str):
        classes = _read_mapping(classes)
    if not isinstance(classes, Mapping | Sequence):
        raise UsageError(f"model.translate.from: expected a list's name, integer: name, or names, got {classes!r}")
    pairs = list(classes.items()) if isinstance(classes, Mapping) else list(enumerate(classes, 1))
    wrong = next((number for number, _ in pairs if not str(number).isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"model.translate.from: expected integer: name, got {wrong!r} for an integer")
    classes_ = {int(number): str(name) for number, name in pairs if int(number) != 0}
    names = [plain(name) for name in classes_.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not classes_:
        what = f"the class {twice!r} twice" if twice else "no class"
        raise UsageError(f"model.translate.from: expected every class of the model once, got {what}")
    return classes_


def translation(
    classes: Mapping[int, str],
    labels: Mapping[int, str],
    to: Mapping[str, str | None] | None = None,
    lacks: Sequence[str] = (),
) -> Translation:
    """Works out what each class of a model becomes.

    Equal names match, whatever their case and whether spaces, hyphens or underscores part their words. Several classes
    may become one label, as the lobes of a lung do. `to` goes before equal names: name of a class -> name of a label,
    or null to drop the class; `lacks` names labels that the model has no class for.

    Raises:
        UsageError: a name that nobody knows, or a label of the task that no class becomes and that is not in
            `lacks`.
    """
    numbers = {plain(name): label for label, name in labels.items()}
    sources = {plain(name): number for number, name in classes.items()}
    targets = {number: numbers[name] for name, number in sources.items() if name in numbers}
    for source, target in (to or {}).items():
        number = _check_number(source, sources, classes.values(), "model.translate.to: the model has no class")
        targets.pop(number, None)
        if target is not None:
            targets[number] = _check_number(
                target, numbers, labels.values(), "model.translate.to: the task has no label"
            )
    excused = {
        _check_number(name, numbers, labels.values(), "model.translate.lacks: the task has no label"): name
        for name in lacks
    }
    lacking = [name for label, name in labels.items() if label not in targets.values() and label not in excused]
    if lacking:
        raise UsageError(
            f"the task's {_listed(lacking)} match no class of the model; set model.translate.to={{CLASS: LABEL}} or, "
            f"where the model has none, model.translate.lacks; its classes are {_listed(classes.values())}"
        )
    dropped = tuple(name for number, name in classes.items() if number not in targets)
    log.info("%d classes of the model are translated", len(targets))
    if dropped:
        log.info("classes without a label of the task, which become background: %s", _listed(dropped))
    if missed := [name for label, name in excused.items() if label not in targets.values()]:
        log.warning("labels that the model has no class for, and so always misses: %s", _listed(missed))
    return Translation(dict(classes), targets, dropped)


@lru_cache(maxsize=1 << 14)  # asked of each class of each case
def plain(name: str) -> str:
    """Name in lower case, its words parted in one way."""
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())


def _check_number(given: Any, numbers: Mapping[str, int], shown: Any, complaint: str) -> int:
    name = str(given)
    number = numbers.get(plain(name))
    if number is None:
        raise UsageError(f"{complaint} {name!r}{nearest(name, shown)}")
    return number


def _read_mapping(name: str) -> Mapping[Any, str]:
    import yaml

    folder = resources.files("medimg_eval.configs") / "class_lists"
    names = {entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    UsageError.refuse_invalid("model.translate.from", names, name)
    read: Mapping[Any, str] = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    return read


def _listed(names: Any, most: int = 12) -> str:
    names = [repr(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

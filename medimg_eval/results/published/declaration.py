"""Which published numbers are computed again: one YAML per repository in `configs/published`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Number:
    """One published number.

    Attributes:
        model: Whose number it is.
        path: The file of raw outputs below the clone.
        reader: Reads that file: a name of `READERS`.
        metric: What we compute of it: a name of the registry, or of the reader's own.
        published: As it is printed, since its last digit decides what counts as rounding.
        source: The file below the clone that prints it.
        options: What the reader needs beside the path.
        where: Attributes that cases must have to count.
        scale: What our value is multiplied by: 100 where percents are printed.
        deviation: Why ours is known to differ; "" where it is not.
        at_most: The largest difference that the deviation explains.
    """

    model: str
    path: str
    reader: str
    metric: str
    published: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    scale: float = 1.0
    deviation: str = ""
    at_most: float = 0.0


@dataclass(frozen=True)
class Benchmark:
    """The numbers of one repository.

    Attributes:
        name: The config's name.
        repository: OWNER/NAME at github.com.
        commit: The one that the files were read at.
        family: What it is about: VQA, segmentation, reports, ...
        task: Our config of the benchmark; "" where there is none.
        numbers: In the order in which they are printed.
    """

    name: str
    repository: str
    commit: str
    family: str
    task: str
    numbers: tuple[Number, ...]


def declared_names() -> list[str]:
    """Returns the names of all benchmarks, sorted."""
    return sorted(entry.name[:-5] for entry in _published_folder().iterdir() if entry.name.endswith(".yaml"))


def declared(name: str) -> Benchmark:
    """Returns one benchmark and its numbers.

    Raises:
        UsageError: There is no such benchmark, or its YAML has a key that numbers lack.
    """
    UsageError.refuse_invalid("published", declared_names(), name)
    return from_mapping(name, yaml.safe_load((_published_folder() / f"{name}.yaml").read_text(encoding="utf-8")))


def from_mapping(name: str, stated: Mapping[str, Any]) -> Benchmark:
    """Returns a benchmark of its YAML; `each` has shared values.

    Raises:
        UsageError: A number has a key that is not one of `Number`, or a published number that is no text.
    """
    fields_ = [field.name for field in fields(Number)]
    numbers = []
    for entry in stated["numbers"]:
        both = {**stated.get("each", {}), **entry}
        UsageError.refuse_invalid(f"published/{name}: key", fields_, *both)
        if not isinstance(both.get("published"), str):
            raise UsageError(f"published/{name}: put published in quotes, got {both.get('published')!r}")
        numbers.append(Number(**both))
    return Benchmark(
        name, stated["repository"], stated["commit"], stated["family"], stated.get("task", ""), tuple(numbers)
    )


def _published_folder() -> Any:
    return files("medimg_eval.configs") / "published"

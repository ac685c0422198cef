"""A set of reports as a whole: what metrics need that weigh words by how many reports have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Held = TypeVar("Held")


@dataclass(frozen=True, eq=False)
class Corpus:
    """All references of a test set, whatever part of them is scored together.

    A metric that counts in how many reports a word occurs counts in these, never in a batch: a score must not depend on
    what else is scored with it.

    Attributes:
        references: by report: its reference texts, as they are in the data.
    """

    references: Sequence[tuple[str, ...]]
    _held: dict[object, object] = field(default_factory=dict, repr=False)

    def once(self, key: object, make: Callable[[], Held]) -> Held:
        """Returns what `make` makes of the corpus, which is called the first time alone."""
        if key not in self._held:
            self._held[key] = make()
        return self._held[key]  # type: ignore[return-value]

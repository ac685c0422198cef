"""Reports that are judged together: a whole set, for metrics that weigh words by it, and those that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Held = TypeVar("Held")


@dataclass(eq=False)
class Batch:
    """Trials judged one after another, partly in one pass.

    Attributes:
        trials: a case, its prediction and its evidence each.
        pairs: answers with what is right, which whoever judges the trials makes of them; None before that.
    """

    trials: Sequence[tuple[Any, Any, Any]] = ()
    pairs: dict[Any, Any] | None = None

    def clear(self) -> None:
        """Lets go of everything, which holds the batch in turn."""
        self.trials, self.pairs = (), None


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
        """Returns `make`'s result, computed once per corpus and key."""
        if key not in self._held:
            self._held[key] = make()
        return self._held[key]  # type: ignore[return-value]

    def held(self, key: object) -> object:
        """Returns what `once` has computed by a key; None before."""
        return self._held.get(key)

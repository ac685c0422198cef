"""The images of a study by view: which are shown, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

OTHERS = "*"
"""Among views: all that are not named, and images of which no view is said."""


class View(NamedTuple):
    """An image of a study."""

    file: str
    view: str


@dataclass(frozen=True)
class Views:
    """The views that are shown.

    Attributes:
        ranks: view in upper case -> its place in the order; empty where all are shown as they come.
        most: how many images of a study are shown; 0 for all.
    """

    ranks: Mapping[str, int]
    most: int = 0

    @classmethod
    def of(cls, views: Sequence[Any], most: int) -> Views:
        """Takes views in their order, several that count as one as a list."""
        several = [[one] if isinstance(one, str) else list(one) for one in views]
        return cls({str(name).upper(): place for place, some in enumerate(several) for name in some}, most)

    def shown(self, images: Sequence[tuple[str, str]]) -> list[View]:
        """The images that are shown, in the order of their views, those of one view in the order given.

        Args:
            images: file and view of each; one without a file is left out.
        """
        others = self.ranks.get(OTHERS)
        ranked = [
            (self.ranks.get(view.upper(), others) if self.ranks else 0, View(file, view)) for file, view in images
        ]
        there = [(rank, one) for rank, one in ranked if rank is not None and one.file]
        return [one for _, one in sorted(there, key=lambda pair: pair[0])][: self.most or None]

    def __str__(self) -> str:
        """The views, for people."""
        return ", ".join(self.ranks)

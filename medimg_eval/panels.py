"""What can be shown of a case and of answers to it, as values: tasks say what, a viewer says how.

What is read of a panel decides how it is shown:

- `image`: an Image that was shown to models; the first gives the grid that overlays lie on.
- `overlay`: a Mask (of which `labels` names the labels), Points or Boxes on that grid; Findings and texts stand beside
  it, and nothing is shown of anything else.
- `alone`: an Image seen by itself, or an array of slices, (*, row, column), complex or real; slices of an answer are
  also compared with those of the reference.
- `prompt`: the turns of the user, Messages.
- `text`: the reference in words: a text, or what has one.
- `extraction`: what was taken from a reply, as `Extracted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class Extracted(NamedTuple):
    """Answer taken from a reply.

    Attributes:
        value: the answer; None where none was found.
        rule: that found it; None where none is needed, as of a choice by preferences.
    """

    value: Any
    rule: str | None = None


@dataclass(frozen=True)
class Panel:
    """One thing that can be shown.

    Attributes:
        kind: where it belongs.
        title: above it.
        read: gives it; raises CaseError.
        labels: of a Mask: integer -> name.
    """

    kind: Literal["image", "overlay", "alone", "prompt", "text", "extraction"]
    title: str
    read: Callable[[], Any]
    labels: Mapping[int, str] = field(default_factory=dict)

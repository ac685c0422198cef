"""Whether a model is shown pictures of a volume or video, or the volume or video whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from medimg_eval.case import Case, Image, Reference
from medimg_eval.errors import CaseError, UsageError

View = Literal["", "pictures", "volume", "video"]
VIEWS: tuple[View, ...] = ("", "pictures", "volume", "video")


@dataclass(frozen=True, kw_only=True)
class ShowsWhole:
    """A task whose volumes and videos may be shown whole.

    Attributes:
        view: `pictures` shows slices and frames by the rule of `layout.images`, `volume` and `video` the whole; "" what
            the model takes first.
    """

    view: View = ""

    @property
    def shown_view(self) -> str:
        """View that its images are shown in."""
        return self.view

    def with_view(self, view: View) -> Self:
        """Task with a settled view, keeping settings that identify runs."""
        return replace(self, view=view) if view != self.view else self

    def for_model(self: Any, wrapper: type) -> Any:
        """Task for a model class; volumes or videos stay whole where taken first.

        Raises:
            UsageError: the view that was asked for is none that models of this class take.
        """
        takes = tuple(getattr(wrapper, "takes_views", ("pictures",)))
        if self.view and self.view not in takes:
            raise UsageError(
                f"task.view={self.view} is invalid: {wrapper.__name__} takes {' or '.join(takes)}; leave task.view "
                "out, or name one of these"
            )
        return self.with_view(self.view or ("" if takes[0] == "pictures" else takes[0]))

    @property
    def asked(self: Any) -> Mapping[str, Any]:
        """The view that a model brought with it, which makes another run."""
        view = self.config.get("view", "")
        before: Mapping[str, Any] = super().asked  # type: ignore[misc]
        return {**before, **({"view": self.view} if self.view not in ("", view) else {})}

    def shown_references(self, case: Case) -> tuple[Reference[Image], ...]:
        """References of a case shown: pictures, or volume or video; CaseError without it."""
        if self.view in ("", "pictures"):
            return case.images
        wholes: list[Any] = [getattr(reference, "whole", None) for reference in case.images]
        if any(whole_prompt is None or whole_prompt.view != self.view for whole_prompt in wholes):
            raise CaseError(
                f"case {case.id!r} is invalid: expected a {self.view} to be shown whole, got pictures; name it in "
                f"task.layout.images as {{{self.view}: ...}}, or set task.view=pictures"
            )
        return tuple(dict.fromkeys(wholes))

"""JSON of images with texts: R2Gen's annotations and LLaVA's conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.targets import ReportText


@dataclass(kw_only=True)
class R2Gen(Table):
    """R2Gen's `annotation.json`: an object of lists of {id, image_path: [...], report, split}.

    Args:
        table: the file below the root.
        image: the pattern of the images below the root.
        id: the key of the case id.
        split: the key of the split.
        views: the first images that are shown, such as 1 for MIMIC-CXR; all when 0.
        others: see `FolderLayout`.
    """

    table: str | Mapping[str, str] = "annotation.json"
    image: str | Sequence[str] = "images/{image_path}"
    id: str = "id"
    split: str = "split"
    views: int = 0

    def entries(self, root: Path) -> list[Entry]:
        """The studies in the file's order."""
        entries = super().entries(root)
        return [replace(entry, images=entry.images[: self.views]) for entry in entries] if self.views else entries

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The report."""
        return ReportText("report")


@dataclass(kw_only=True)
class Llava(Table):
    """LLaVA's conversations: a list of {id, image, conversations: [{from: human, value}, {from: gpt, value}]}.

    Each question is a case, with the question (without its `<image>`) among the attributes and the answer as the truth.
    Of an item of several questions, the cases are called `id-1`, `id-2`, ...

    Args:
        table: split -> file, or one file, below the root.
        image: the pattern of the images below the root.
        id: the key of the id, or a pattern.
        others: see `FolderLayout`.
    """

    image: str | Sequence[str] = "images/{image}"
    id: str = "id"

    def rows(self, root: Path) -> list[tuple[Row, str | None]]:
        """One row per question, with `question` and `answer`."""
        return [(turn, split) for row, split in super().rows(root) for turn in _turns(row, self.id)]

    def _entry(self, root: Path, row: Row, split: str | None) -> Entry:
        return replace(super()._entry(root, row, split), id=row.text("question_id"))

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The answer."""
        return ReportText("answer")

    def __post_init__(self) -> None:
        """Keeps the question with the case."""
        self.attributes = tuple(dict.fromkeys([*self.attributes, "question"]))


def _turns(row: Row, column: str) -> list[Row]:
    turns = row.value("conversations")
    if not isinstance(turns, list) or not turns or len(turns) % 2:
        raise row.error("'conversations' is no list of questions and answers in turn")
    made = []
    for place in range(0, len(turns), 2):
        human, model = turns[place : place + 2]
        for turn, speaker in ((human, "human"), (model, "gpt")):
            if not isinstance(turn, dict) or turn.get("from") != speaker or not isinstance(turn.get("value"), str):
                raise row.error(f"'conversations' holds {turn!r:.60}, expected a text 'value' from {speaker!r}")
        question = human["value"].replace("<image>", "").strip()
        number = f"-{place // 2 + 1}" if len(turns) > 2 else ""
        said = {"question": question, "answer": model["value"], "question_id": f"{row.fill(column)}{number}"}
        made.append(Row(row.path, row.place, {**row.values, **said}))
    return made

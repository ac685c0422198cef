"""Folders of pictures, generated and real ones, without a table of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medimg_eval.case import Case, Text
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import ENDINGS
from medimg_eval.data.records import Entry, Given, Row, Target
from medimg_eval.errors import MissingDataError, SplitError, nearest
from medimg_eval.imaging import VOLUMES
from medimg_eval.tasks.base import Layout


@dataclass(kw_only=True)
class PictureFolder(FolderLayout):
    """Pictures below a folder as cases, named by path.

    Args:
        shown: whether it is the case's image; that of a generated picture is what a model gives, and not shown to it.
        volumes: whether they are volumes instead, by the endings `VOLUMES`.
    """

    shown: bool = True
    volumes: bool = False

    def entries(self, root: Path) -> list[Entry]:
        """The pictures, sorted by path; raises MissingDataError where there is none."""
        endings = VOLUMES if self.volumes else ENDINGS
        files = [path for path in sorted(root.rglob("*")) if path.name.lower().endswith(endings)]
        files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts)]
        if not files:
            what = "volumes" if self.volumes else "pictures"
            raise MissingDataError(f"{root}: holds no {what}; their names end in {', '.join(endings)}")
        rows = [Row(root, "", {"file": path.relative_to(root).as_posix()}) for path in files]
        return [
            Entry(_without_ending(row.text("file"), endings), root, (row,), (self.image_file(path),) * self.shown)
            for row, path in zip(rows, files, strict=True)
        ]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """Its name, for want of a prompt."""
        return NameAsPrompt()


def _without_ending(name: str, endings: Sequence[str]) -> str:
    return name[: -len(next(ending for ending in endings if name.lower().endswith(ending)))]


class NameAsPrompt:
    """Name of a picture, in the place of its prompt."""

    def reference(self, entry: Entry) -> Given[Text]:
        """The name."""
        return Given(Text(entry.id), (), entry.image)


@dataclass(kw_only=True)
class PictureSets(Layout):
    """Generated pictures beside real ones, one split per part.

    Args:
        prompts: the pictures that were generated, which are the split `test`.
        real: the split `reference`, of pictures that they should be like.
        train: the split `train`, of pictures that the generator was trained on.
    """

    prompts: Layout
    real: Layout
    train: Layout | None = None

    def cases(self, split: str) -> Sequence[Case]:
        """Cases of one part; SplitError for unknown names."""
        parts = {"test": self.prompts, "reference": self.real, "train": self.train}
        if (part := parts.get(split)) is None:
            raise SplitError(f"there are no pictures of {split!r}{nearest(split, parts)}")
        cases = part.cases("test")
        # Of two folders the same names are of other pictures, and of other patients where none are stated.
        return [replace(case, id=f"{split}/{case.id}") for case in cases] if split == "train" else cases

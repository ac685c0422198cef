"""Tools of benchmarks that ship what their tools found: results by patient, texts by keyword, pictures by name."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.image import Image


class _FileTool:
    """Tool reading a file, whose content decides its results."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    @property
    def version(self) -> str:
        """Digest of the file; its name where it is not there."""
        if not self.file.is_file():
            return self.file.name
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]

    def check_ready(self) -> None:
        """Raises UserError where the file is not there."""
        if not self.file.exists():
            raise UserError(f"{self.file} is not there, which a tool looks into; see `download` of the task")


class ResultLookup(_FileTool):
    """Results that were computed before, in a JSON file.

    Args:
        file: the file.
        path: keys from its top to a result, in which `{patient}`, `{case}` and arguments of the call stand in braces.
        separator: between the keys.
    """

    def __init__(self, file: str, path: str, separator: str = "/") -> None:
        super().__init__(file)
        self.path, self.separator = path, separator

    @cached_property
    def _content(self) -> Any:
        return json.loads(self.file.read_text(encoding="utf-8"))

    def __call__(self, patient: str = "", case: str = "", **arguments: Any) -> Any:
        """Looks a result up.

        Raises:
            LookupError: there is none; it says what there is instead.
        """
        content, keys = self._content, {"patient": patient, "case": case, **arguments}
        for part in self.path.split(self.separator):
            key = part.format(**keys)
            if not isinstance(content, Mapping) or key not in content:
                there = (
                    ", ".join(map(str, content)) if isinstance(content, Mapping) and "{patient}" not in part else "none"
                )
                raise LookupError(f"there is no result for {key}; there are {there}")
            content = content[key]
        return content


class RecordedSession(_FileTool):
    """Benchmark tool replaying each case's recorded session.

    Args:
        file: JSON of case -> `{dialogs: [messages]}`, as GTA and MedCTA have it.
        name: of the tool.
    """

    def __init__(self, file: str, name: str) -> None:
        super().__init__(file)
        self.name = name

    @cached_property
    def _sessions(self) -> Mapping[str, Any]:
        return dict(json.loads(self.file.read_text(encoding="utf-8")))

    def __call__(self, case: str, **arguments: Any) -> str:
        """Gives what the tool found in the case's session; raises LookupError where it was not called so."""
        call: Mapping[str, Any] = {}
        for message in self._sessions.get(case, {}).get("dialogs", ()):
            if calls := message.get("tool_calls"):
                call = calls[0]["function"]
            elif message.get("role") == "tool" and (call.get("name"), call.get("arguments")) == (self.name, arguments):
                content = message.get("content", "")
                return str(content.get("content", "")) if isinstance(content, Mapping) else str(content)
        raise LookupError(f"no call of {self.name} with these arguments was recorded for this case")


class KnowledgeLookup(_FileTool):
    """Texts by keyword: the best fit, and a close second.

    The next where it fits at least half as well.

    A text's score is the number of its keywords that occur in the query, and of its keywords that are words of it.

    Args:
        file: a JSON list of `{keywords, text, source}`, or a Python file in which such a list has a name.
        name: that name.
        any_case: whether keywords are found in any case; as the authors have it, those with capitals never are.
    """

    def __init__(self, file: str, name: str = "KNOWLEDGE_BASE", any_case: bool = True) -> None:
        super().__init__(file)
        self.name, self.any_case = name, any_case

    @cached_property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        """The entries; a Python file is read and not run."""
        text = self.file.read_text(encoding="utf-8")
        if self.file.suffix != ".py":
            return list(json.loads(text))
        for node in ast.parse(text).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if self.name in (getattr(target, "id", "") for target in targets):
                return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
        raise LookupError(f"{self.file} defines no {self.name}")

    def __call__(self, query: str) -> dict[str, list[dict[str, str]]]:
        """Looks up clinical guidelines, diagnostic thresholds, or anatomic reference values.

        Args:
            query: A specific medical query (e.g. 'splenomegaly grading', 'L/S ratio threshold').
        """
        scored = [(self._score(entry["keywords"], query.lower()), entry) for entry in self.entries]
        ranked = sorted((entry for entry in scored if entry[0]), key=lambda one: -one[0])
        if not ranked:
            return {"results": [{"text": "No relevant medical knowledge found.", "source": "N/A"}]}
        entries = [entry for score, entry in ranked[:2] if score >= ranked[0][0] / 2]
        return {"results": [{"text": entry["text"], "source": entry["source"]} for entry in entries]}

    def _score(self, keywords: Sequence[str], query: str) -> int:
        words = [word.lower() for word in keywords] if self.any_case else list(keywords)
        return sum(word in query for word in words) + len(set(query.split()) & set(words))


class PictureLookup(_FileTool):
    """Pictures that were cut out before, named by patient and what they show.

    Args:
        file: the folder of `{patient}_{organ}.png`.
        names: what else an organ is called -> its name in the files.
        shown: whether the model is shown the picture, or only told that there is one, as the authors' client does.
    """

    def __init__(self, file: str, names: Mapping[str, str] | None = None, shown: bool = True) -> None:
        super().__init__(file)
        self.names, self.shown = dict(names or {}), shown

    @property
    def version(self) -> str:
        """Names of the pictures are the benchmark's."""
        return self.file.name

    def __call__(self, patient: str, organ: str) -> Any:
        """Shows the picture of an organ; raises LookupError where there is none."""
        for name in dict.fromkeys((organ, self.names.get(organ, organ))):
            if "/" in name or not (path := self.file / f"{patient}_{name}.png").is_file():
                continue
            about = {"organ_queried": organ, "organ_localized": name}
            if not self.shown:
                return {"image_base64": "<inline_image>", **about}
            return about, _read_png(path)
        there = sorted(path.stem.removeprefix(f"{patient}_") for path in self.file.glob(f"{patient}_*.png"))
        raise LookupError(f"there is no picture of {organ}; there are {', '.join(there) or 'none'}")


def _read_png(path: Path) -> Image:
    from PIL import Image as Pictures

    with Pictures.open(path) as picture:
        return Image(np.asarray(picture.convert("RGB")).transpose(2, 0, 1).copy(), np.eye(4), units="pixel")


class PictureNames(PictureLookup):
    """Names of the pictures that `PictureLookup` has of a patient."""

    def __call__(self, patient: str) -> Any:  # type: ignore[override]
        """Lists the organs of which there is a picture."""
        there = sorted(path.stem.removeprefix(f"{patient}_") for path in self.file.glob(f"{patient}_*.png"))
        return {"available_organs": there}

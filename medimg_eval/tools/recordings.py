"""Results of tools that are kept in a folder, and given again without calling the tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from medimg_eval.errors import UserError
from medimg_eval.system import whole
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.tool import ToolResult


class Recordings:
    """Results by the key of their call (`recording_key`), one small file each.

    Args:
        folder: that they lie in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self._images = StepJournal(folder=self.folder / "images")

    def get(self, key: str) -> ToolResult | None:
        """The result of a call; None where there is none."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            recording: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            images = tuple(self._images.image(name) for name in recording.get("images", ()))
            return ToolResult(recording["text"], images, recording.get("error", {}), recording.get("seconds", 0.0))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: is no recorded result of a tool ({error}); take it out") from error

    def put(self, key: str, tool: str, arguments: Any, result: ToolResult) -> None:
        """Keeps a result; the file appears whole."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        recording = {"tool": tool, "arguments": arguments, "text": result.text, "seconds": round(result.seconds, 4)}
        recording |= {"error": dict(result.error)} if result.error else {}
        recording |= {"images": [self._images.keep_image(image) for image in result.images]} if result.images else {}
        with whole(path) as partial:
            partial.write_text(json.dumps(recording, ensure_ascii=False, default=str), encoding="utf-8")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

"""What a config of questions opens with: one invented record as the authors have it, and the prompt that it becomes."""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from medimg_eval.data.questions.records import Record
from tests.helpers.catalogue import task_of

SHOWN = ("slake", "vqa_rad", "path_vqa", "pmc_vqa", "omnimedvqa", "medxpertqa_mm", "mmmu_med",
         "medqa", "medmcqa", "pubmedqa", "mmlu_medical")  # fmt: skip
"""Tasks whose configs open so."""


def opening(name: str, root: Path) -> str:
    """The comment at the head of a task's YAML.

    Args:
        name: of the task.
        root: where its sample, which is invented, is written.
    """
    task = task_of(name, root)
    with mock.patch.object(Record, "place_alone", lambda record: record):  # cases do not keep what they are made of
        case = next(case for case in task.cases("test") if case.question)
    record = case.target.record
    prompt = task.prompt(case, task.read_images(case))
    said = [f"{message.role}: {_text(message.parts)}" for message in (*prompt.messages, *prompt.later)]
    lines = [
        f"An invented record of {Path(record.path).relative_to(root)}, in the authors' layout:",
        "",
        *_indented(json.dumps(_short(dict(record.values)), ensure_ascii=False)),
        "",
        "The prompt that it becomes:",
        "",
        *(line for turn in said for row in turn.split("\n") for line in _indented(row)),
    ]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _text(parts: tuple[Any, ...]) -> str:
    return "".join(part if isinstance(part, str) else f"<image {part + 1}>\n" for part in parts)


def _short(value: Any) -> Any:
    """The same with images left out and long texts cut."""
    if isinstance(value, Mapping):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    if isinstance(value, str):
        return value if len(value) <= 300 else f"{value[:40]}..."
    return value if value is None or isinstance(value, bool | int | float) else "..."


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, 112, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False) or [""]

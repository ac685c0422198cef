"""Sessions of several steps as the report shows them: what was thought, called and given, one step after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medimg_eval.metrics.answers import split_thought
from medimg_eval.tools.journal import read_kept_image
from medimg_eval.viewer.drawing import Drawing, cut

Step = dict[str, Any]


def list_steps(stored: Mapping[str, Any]) -> list[Step]:
    """Steps of a stored reply: trace, turns or thought.

    Turns where there are several.
    """
    texts, turns = stored.get("texts", ()), stored.get("turns", ())
    trace = stored.get("trace") or [
        {"kind": "model", "text": text, **turn} for text, turn in zip(texts, turns, strict=False)
    ]
    steps = [{"number": number, **_step_shown(step)} for number, step in enumerate(trace, 1)]
    return steps if len(steps) > 1 or any("thought" in step for step in steps) else []


def draw_step_images(drawing: Drawing, stored: Mapping[str, Any], folder: Path, model: int) -> None:
    """Draws the images that the steps of a reply gave.

    Args:
        drawing: is given `sessions`: by model, name of an image -> its picture's file.
        stored: the reply.
        folder: of the run.
        model: which of the report's models it is of.
    """
    names = dict.fromkeys(name for step in stored.get("trace", ()) for name in step.get("images", ()))
    for number, name in enumerate(names):
        drawing.attempt(lambda number=number, name=name: _draw_session(drawing, folder, model, number, name))  # type: ignore[misc]


def _draw_session(drawing: Drawing, folder: Path, model: int, number: int, name: str) -> None:
    from medimg_eval.imaging.pictures import as_picture
    from medimg_eval.system import whole

    picture = as_picture(read_kept_image(folder / "steps" / name))
    drawing.folder.mkdir(parents=True, exist_ok=True)
    file = f"step-{model}-{number}.png"
    with whole(drawing.folder / file) as partial:
        picture.save(partial, "PNG")
    drawing.scene.setdefault("sessions", [{} for _ in range(drawing.models)])[model][name] = file


def _step_shown(step: Mapping[str, Any]) -> Step:
    """Step as displayed, thought separate from text."""
    fields = {
        key: step[key] for key in ("kind", "name", "agent", "finish", "usage", "seconds", "images") if key in step
    }
    text = step.get("result", step.get("reason", step.get("text", "")))
    if step.get("kind") == "model":
        parted = split_thought(str(text), step.get("thought"))
        text = step.get("answer", parted.answer)
        fields |= {"thought": cut(parted.thought)} if parted.thought else {}
        calls = [
            f"{call['name']}({json.dumps(call.get('arguments', {}), ensure_ascii=False)})"
            for call in step.get("calls", ())
        ]
        fields |= {"calls": [cut(call) for call in calls]} if calls else {}
    if "arguments" in step:
        fields["arguments"] = cut(json.dumps(step["arguments"], ensure_ascii=False))
    if error := step.get("error"):
        fields["error"] = str(error.get("type", "error"))
    return {**fields, "text": cut(str(text).strip())}

"""What inspect finds of ours by its entry point: `inspect eval medimg_eval/medimg_eval -T name=slake`.

Only inspect imports this module, so it alone needs inspect when it is imported.
"""

from __future__ import annotations

from typing import Any

from medimg_eval.api.inspect_tasks import inspect_task
from medimg_eval.errors import import_optional


def _catalogue_task(name: str, limit: int | None = None) -> Any:
    """Any task of questions in the catalogue, by its name."""
    return inspect_task(name, limit=limit)


medimg_eval = import_optional("inspect_ai").task(name="medimg_eval")(_catalogue_task)

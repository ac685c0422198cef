"""Features of a task's images, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.api.asking import Asked, Overrides, resolving
from medimg_eval.arguments import as_list
from medimg_eval.errors import SplitError, UsageError, nearest
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.case import Case
    from medimg_eval.evaluation.fitting.embedding import CaseFeatures
    from medimg_eval.evaluation.model_spec import ModelSpec

PARTS = ("fit", "validate", "test")


def embed(
    task: str | Mapping[str, Any] | Task,
    model: Any,
    *,
    out: str | Path | None = None,
    name: str | None = None,
    identity: str = "",
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> CaseFeatures:
    """Computes missing features of a task's images, as `embed` does.

    Args:
        task: name of a config, a config, or a task.
        model: the encoder: name of a config, a config with `_target_`, or an object with `embed`.
        out: folder of stores; the user's cache without it.
        name: what the store is called.
        identity: names an encoder that was made of objects which no config can hold.
        overrides: further changes, such as `{"model.pooled": "class"}`.
        config_dir: a folder of configs of your own.
        trust: whether code that a folder brings may run.
        settings: keys of the command `embed`, such as `parts="test"`, `tiles={"um_per_px": 0.25}`, `limit=20`.

    Returns:
        The features by case, mapped into memory. Cases that failed are in its `failures`; they raise nothing.

    Raises:
        UserError: nothing can be done: a name does not exist, data are missing, the model gives no features.
    """
    request = Asked("embed", task, model, None, name, identity, overrides, config_dir, trust)
    with resolving(request, {**settings, "out": None if out is None else str(out)}) as resolved:
        return run_embedding(resolved.config, resolved.task, resolved.model)


def run_embedding(wanted: Mapping[str, Any], task: Task | None = None, model: ModelSpec | None = None) -> CaseFeatures:
    """Embeds the cases that a resolved config of `embed` names."""
    from medimg_eval.data.pieces import ShownPlan
    from medimg_eval.evaluation.fitting.embedding import EmbedSettings, embed_cases, refuse_no_encoder
    from medimg_eval.settings import undisturbed

    if task is None and not wanted.get("task"):
        raise UsageError("no task is named; add task=NAME (see python -m medimg_eval list tasks)")
    if model is None and not wanted.get("model"):
        raise UsageError("no encoder is named; add model=NAME, such as model=timm_encoder")
    UsageError.refuse_invalid("dtype", ("float32", "float16"), wanted["dtype"])
    plan = ShownPlan.of(wanted["tiles"], wanted["slices"])
    spec = build_candidate(wanted["model"]) if model is None else model
    refuse_no_encoder(spec)
    resolved_task = build_task(wanted["task"]) if task is None else task
    settings = EmbedSettings(
        out=None if wanted["out"] is None else Path(wanted["out"]),
        plan=plan,
        dtype=wanted["dtype"],
        batch_size=wanted["batch_size"],
        num_workers=wanted["num_workers"],
        may_leave=wanted["may_leave"],
    )
    with undisturbed():
        return embed_cases(resolved_task, _select_cases(resolved_task, wanted), spec, settings)


def _select_cases(task: Task, wanted: Mapping[str, Any]) -> list[Case]:
    """The cases of the parts that are wanted, each once."""
    parts = as_list(wanted["parts"]) if wanted["parts"] is not None else [part for part in PARTS if part in task.splits]
    UsageError.refuse_unknown(f"task {task.name!r} has no part", task.splits, *parts)
    by_id: dict[str, Case] = {}
    for part in parts:
        try:
            cases = task.cases(part)
        except SplitError:
            if wanted["parts"] is not None:
                raise
            continue  # of the default parts, those that it has
        by_id |= {case.id: case for case in cases[: wanted["limit"]]}
    if wanted["only"] is not None:
        names = [str(case_id) for case_id in as_list(wanted["only"])]
        unknown = next((name for name in names if name not in by_id), None)
        if unknown is not None:
            raise UsageError(f"task {task.name!r} has no case {unknown!r}{nearest(unknown, by_id)}")
        by_id = {name: by_id[name] for name in names}
    if not by_id:
        raise SplitError(f"task {task.name!r} has no cases in {', '.join(parts)}")
    return list(by_id.values())

"""How `test` and `score` end: with verdicts on what was asked of the runs, and with cases that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medimg_eval import metrics
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import fail_if_cases_failed, printer, say, show_sheets
from medimg_eval.errors import AcceptanceError, DeviationError, UsageError, UserError
from medimg_eval.evaluation.run import write_json
from medimg_eval.results import load_runs
from medimg_eval.results.acceptance import ACCEPTANCE, Judgement, judge_runs, read_endpoints, read_plan
from medimg_eval.results.runs import MANIFEST, is_known, read_manifest


def check_criteria(wanted: Mapping[str, Any]) -> None:
    """Refuses `accept=` and `plan=` that nothing can meet, before anything is scored.

    Raises:
        UsageError: `accept=` is misspelt, or names a metric that neither the registry, the command nor a run has.
        UserError: there is no such plan.
    """
    if wanted.get("plan"):
        read_plan(Path(str(wanted["plan"])).expanduser())
    stated = read_endpoints(wanted["accept"]) if wanted.get("accept") else []
    if unknown := [endpoint.metric for endpoint in stated if not is_known(endpoint.metric)]:
        task = wanted.get("task", {})
        if not isinstance(task, Mapping):  # of several tasks, each states its own metrics
            return
        named = [str(name) for held in (wanted, task) for name in as_list(held.get("metrics") or [])]
        own = {part for name in named for part in (name, name.rpartition(".")[2])}
        if wanted.get("run"):
            own |= {str(name) for run in load_runs(as_list(wanted["run"])) for name in run.scores["metric"].unique()}
        UsageError.refuse_invalid("metric of accept", {*metrics.available(), *own}, *unknown)


def finish_runs(folders: Sequence[Path], wanted: Mapping[str, Any]) -> None:
    """Judges runs by `accept=`, `plan=` or their task; stores verdicts.

    Raises:
        DeviationError: a run, or the plan, is not as it was fixed.
        AcceptanceError: a run does not meet what was asked.
        UserError: cases failed, which is told with the others.
    """
    ends: list[UserError] = []
    try:
        fail_if_cases_failed(folders)
    except UserError as error:
        ends.append(error)
    keys = [] if wanted.get("plan_key") is None else as_list(wanted["plan_key"])
    criteria: dict[str, Any] = {"accept": wanted.get("accept"), "plan": wanted.get("plan"), "keys": keys}
    if (
        criteria["accept"] or criteria["plan"] or any(map(_states_acceptance, folders))
    ):  # scores take long to read again
        try:
            ends += [
                end
                for judgement in judge_runs(load_runs(list(folders)), **criteria)
                if (end := _report_judgement(judgement)) is not None
            ]
        except UserError as error:
            ends.append(error)
    if ends:
        kinds = [kind for kind in (DeviationError, AcceptanceError) if any(isinstance(end, kind) for end in ends)]
        raise (kinds[0] if kinds else type(ends[-1]))("\n".join(map(str, ends)))


def _states_acceptance(folder: Path) -> bool:
    """Whether the task of a run says what is to be reached."""
    return bool(read_manifest(folder / MANIFEST).get("task_config", {}).get("acceptance"))


def _report_judgement(judgement: Judgement) -> UserError | None:
    """Prints and keeps a judgement; returns what the command ends with."""
    run = judgement.run
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(run.folder / ACCEPTANCE, {"judged": now, **judgement.to_json()})
    if judgement.refused:
        lines = "\n".join(f"  - {deviation}" for deviation in judgement.deviations)
        return DeviationError(f"{run.name} is not judged, for it is not as planned:\n{lines}")
    show_sheets([judgement.sheet()])
    if judgement.accepted:
        say(printer(), f"accepted: {run.name} meets every primary endpoint")
        return None
    missed = [verdict for verdict in judgement.verdicts if not verdict.met and not verdict.endpoint.secondary]
    missed_text = "; ".join(
        f"{verdict.endpoint.name}: {verdict.endpoint.criterion} is {verdict.verdict}" for verdict in missed
    )
    return AcceptanceError(f"not accepted: {run.name}: {missed_text}")

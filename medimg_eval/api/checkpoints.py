"""Checkpoints of a training, each evaluated once, and their scores by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.api.asking import Asked, Overrides, resolving, settings_of
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.identity import slug
from medimg_eval.instantiate import build_candidate, with_config
from medimg_eval.run_results import RunResults, RunSet
from medimg_eval.store import digest
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.api.checkpoint_files import Checkpoint
    from medimg_eval.results import Table
    from medimg_eval.results.figures import Figures

FOLDER = "learning_curves"
"""Beside the run folders of a task, where tables and figures of trainings are written."""
PACE = ("checkpoints", "watch", "runs", "debug", "logger", "num_workers", "score_workers", "batch_size")
"""Keys that decide no score: changed, a checkpoint is not evaluated anew."""


class CheckpointScores:
    """The checkpoints of one training under one task.

    Attributes:
        runs: one for each checkpoint that was evaluated, by step.
        failures: checkpoints that could not be evaluated, with the error of each.
        waiting: those that are still being written.
        new: how many were evaluated now.
        folder: where the table and the figures are written.
    """

    def __init__(
        self, runs: RunSet, failures: Mapping[Path, Exception], waiting: Sequence[Path], new: int, folder: Path
    ) -> None:
        self.runs, self.failures, self.waiting, self.new, self.folder = runs, failures, waiting, new, folder

    def __repr__(self) -> str:
        return f"<{len(self.runs)} checkpoints evaluated, {len(self.failures)} failed, {len(self.waiting)} incomplete>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_() + self.figures._repr_html_()

    @property
    def table(self) -> Table:
        """A row for each checkpoint, by step."""
        return self.runs.table

    @cached_property
    def figures(self) -> Figures:
        """Learning curves by metric; none without steps."""
        from medimg_eval.results.figures import Figures, figures_of
        from medimg_eval.results.runs import is_evidence, is_set

        drawn = Figures()
        if not any({"step", "epoch"} & {*run.training} for run in self.runs.loaded):
            return drawn
        for metric in dict.fromkeys(column.metric for column in self.table.columns):
            if not (is_set(metric) or is_evidence(metric)):
                wanted = settings_of("figure", {"kind": "learning_curve", "metric": metric, "out": "."})
                drawn |= dict(figures_of([run for run in self.runs.loaded if not run.baseline], wanted))
        return drawn

    def write(self) -> list[Path]:
        """Writes the table and the figures into `folder`; returns the files."""
        from medimg_eval.results import write_all
        from medimg_eval.results.figures import write_figure

        written = write_all(self.table, self.folder)
        return written + [
            file for stem, drawn in self.figures.items() for file in write_figure(drawn, self.folder, stem)
        ]


def test_checkpoints(  # noqa: PLR0913 - one argument for each choice
    task: str | Mapping[str, Any] | Task,
    model: str | Mapping[str, Any],
    checkpoints: str | Path,
    *,
    judge: Any = None,
    runs: str | Path = "runs",
    name: str | None = None,
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> CheckpointScores:
    """Evaluates each new checkpoint of a folder, as the command `test checkpoints=FOLDER` does.

    A checkpoint that was evaluated before, with the same settings, is not evaluated again; one that is still being
    written is left for the next call, and one that fails does not end the rest.

    Args:
        task: as for `test`.
        model: name of a config, or a config with `_target_`, whose `checkpoint` is set to each in turn.
        checkpoints: the folder: Lightning's or torch's files, or folders of transformers and PEFT.
        judge: as for `test`.
        runs: as for `test`.
        name: what tables call the training.
        overrides: as for `test`.
        config_dir: as for `test`.
        trust: as for `test`.
        settings: keys of the command `test`.

    Raises:
        UserError: there is no checkpoint, or none could be evaluated.
    """
    if not isinstance(model, str | Mapping):
        raise UsageError(
            "test_checkpoints makes the model anew for each checkpoint: give its config or the name of one"
        )
    request = Asked("test", task, model, judge, name, "", overrides, config_dir, trust)
    folder = {"checkpoints": str(checkpoints), "model.checkpoint": str(checkpoints)}
    with resolving(request, {**settings, **folder}) as resolved:
        (scores,) = run_checkpoints(resolved.config | {"runs": str(runs)}, resolved.words, resolved.task)
    return scores


def run_checkpoints(
    wanted: Mapping[str, Any], overrides: Sequence[str] = (), task: Task | None = None
) -> list[CheckpointScores]:
    """Evaluates new checkpoints of a `test` config, by task."""
    from medimg_eval.api.checkpoint_files import find_checkpoints
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_tasks

    _refuse_settings(wanted)
    folder = Path(str(wanted["checkpoints"]))
    checkpoints, waiting = find_checkpoints(folder)
    spec = build_candidate(wanted["model"])
    if "checkpoint" not in signature(spec.wrapper).parameters:
        raise UsageError(f"model {spec.name!r} is made of no checkpoint; name one that has the key model.checkpoint")
    series = _series_name(str(spec.name), folder)
    tasks = build_tasks(wanted) if task is None else [with_config(task)]
    done = []
    for task_ in tasks:
        refuse_incapable(task_, spec)
        task_.cases("test")  # what is wrong with the data is no checkpoint's fault
        done.append(_of_task(task_, wanted, overrides, series, checkpoints, waiting))
    return done


def _of_task(
    task: Task,
    wanted: Mapping[str, Any],
    overrides: Sequence[str],
    series: str,
    found: Sequence[Checkpoint],
    waiting: Sequence[Path],
) -> CheckpointScores:
    from medimg_eval.api.checkpoint_files import evaluate_new
    from medimg_eval.evaluation import pipeline
    from medimg_eval.settings import build_loggers, build_settings, undisturbed

    titles = Counter(checkpoint.title for checkpoint in found)

    def evaluate(checkpoint: Checkpoint) -> Path:
        # Such as the best and the last one of the same step.
        suffix = f" ({checkpoint.path.name})" if titles[checkpoint.title] > 1 else ""
        model = {**wanted["model"], "name": f"{series} {checkpoint.title}{suffix}"}
        if checkpoint.argument == "adapter":
            model["checkpoint"] = _base_of(checkpoint)
        model[checkpoint.argument] = str(checkpoint.path)
        training = {"series": series, **checkpoint.when}
        with undisturbed():
            settings = build_settings({**wanted, "model": model}, overrides)
            settings.loggers = build_loggers(wanted.get("logger") or {})
            return pipeline.test(task, replace(build_candidate(model), training=training), settings).folder

    record = Path(wanted["runs"]) / task.name / FOLDER / slug(series)
    decisive = {key: value for key, value in wanted.items() if key not in (*PACE, "task", "tasks", "model")}
    model = {key: value for key, value in wanted["model"].items() if key not in ("checkpoint", "adapter", "name")}
    decisive_digest = digest([dict(task.config), model, decisive])
    result = evaluate_new(found, decisive_digest, record / "evaluated.json", evaluate)
    if found and not result.runs:
        path, error = next(iter(result.failures.items()))
        raise UserError(f"none of {len(found)} checkpoints could be evaluated, such as {path}: {error}") from error
    runs = RunSet([RunResults(run, task=task) for run in result.runs])
    return CheckpointScores(runs, result.failures, waiting, result.new, record)


def _series_name(name: str, folder: Path) -> str:
    """Model's name, or the folder's where named by checkpoint."""
    return folder.resolve().name if name in ("None", str(folder)) else name


def _base_of(checkpoint: Checkpoint) -> str:
    """The model that a PEFT adapter was trained on."""
    import json

    file = checkpoint.path / "adapter_config.json"
    with UserError.about(file, "does not name the model that it is an adapter of", ValueError, KeyError):
        return str(json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"])


def _refuse_settings(wanted: Mapping[str, Any]) -> None:
    """Raises UsageError for a setting that has no meaning with several checkpoints."""
    if wanted["run"] is not None:
        raise UsageError(f"run={wanted['run']} names one folder, but each checkpoint has its own; use runs=DIR")
    if wanted["baselines"]:
        raise UsageError("baselines=true asks no checkpoint; make baselines by a test without checkpoints=")
    trainer = wanted["trainer"]
    if trainer.get("devices", 1) != 1 or trainer.get("num_nodes", 1) != 1:
        raise UsageError("checkpoints= evaluates one after the other on one device; use trainer=default")

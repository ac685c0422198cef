"""`utility`: train on real and on synthetic cases, test on real ones, print what the synthetic ones are worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from medimg_eval.arguments import as_list
from medimg_eval.case import Findings, Mask
from medimg_eval.commands.console import fail_if_cases_failed, fits, printer, say_written
from medimg_eval.configs.overrides import plain
from medimg_eval.data.layouts.synthesis import Generated, manifest_of
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation.fitting.fit import Recipe
from medimg_eval.evaluation.fitting.train_on_synthetic import Plan, Training, measure, refuse_leaks, trainings
from medimg_eval.evaluation.identity import placeless, slug
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable, task_identity
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.question import Key
from medimg_eval.results import to_rich, write_all
from medimg_eval.results.table import check_numbers
from medimg_eval.results.utility import build_utility, load_utility
from medimg_eval.settings import build_loggers, build_settings, build_tasks, validating
from medimg_eval.store import digest
from medimg_eval.tasks import Task

GENERATED = f"{Generated.__module__}.{Generated.__qualname__}"
BLEND = "medimg_eval.data.layouts.MixedDataset"


def run(config: DictConfig) -> None:
    """Trains and tests unfinished models, then prints their table.

    Raises:
        UserError: a model could not be trained or tested, after all others were, and the table was printed.
    """
    wanted = plain(config)
    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    chosen = trainings(*(as_list(wanted[key]) for key in ("settings", "fractions", "seeds")))
    plan = _make_plan(wanted := validating(wanted))
    real = plan.test()
    refuse_incapable(real, plan.fresh(chosen[0]))
    if any(cell.setting != "real" for cell in chosen):
        refuse_leaks(real, plan.task(Training("augmented", 1.0, 0)))
    done = measure(plan, chosen)
    if plan.rank == 0:
        _show_table(wanted, plan)
        _raise_failures(plan, chosen)
        fail_if_cases_failed(done)


def _make_plan(wanted: Mapping[str, Any]) -> Plan:
    (task,) = build_tasks(wanted)
    if "fit" not in task.splits:
        raise UsageError(f"task {task.name!r} names no cases to fit on; set task.splits.fit")
    synthetic, about = _synthetic_layout(wanted["synthetic"], task)
    candidate = build_candidate(wanted["model"])
    settled = {
        "task": task_identity(task),
        "model": candidate.identity,
        "synthetic": about | {"layout": placeless(synthetic)},
        **{key: wanted[key] for key in ("fit", "batch_size", "trainer")},
    }
    study = digest(settled)
    overrides = HydraConfig.get().overrides.task
    settings = build_settings(wanted, overrides)
    folder = settings.run or settings.runs / "utility" / task.name / f"{slug(candidate.name)}-{study}"
    splits = task.splits["fit"]
    config = {key: value for key, value in task.config.items() if key != "expected"}
    expected = {split: count for split, count in task.expected.items() if split != splits}

    def blended(one: Training) -> Task:
        mixture = {"setting": one.setting, "fraction": one.fraction, "seed": one.seed, "fit": splits}
        layout = {"_target_": BLEND, "real": task.config["layout"], "synthetic": synthetic, **mixture}
        return build_task({**config, "layout": layout, "expected": expected})

    def called(one: Training, **more: str) -> ModelSpec:
        return build_candidate({**wanted["model"], "name": f"{candidate.name} ({one})"} | more)

    def settings_of(one: Training, what: str, run: Path) -> Settings:
        batch = wanted["batch_size"] if what == "fit" else None
        return build_settings({**wanted, "seed": one.seed, "run": str(run), "batch_size": batch}, overrides)

    return Plan(
        folder=folder,
        about={
            "id": study,
            "task": task.name,
            "title": task.title or task.name,
            "model": candidate.name,
            "metric": _choose_metric(wanted, task),
            "synthetic": about,
        },
        task=blended,
        test=lambda: build_task(task.config),
        fresh=called,
        trained=lambda one, fitted: called(one, checkpoint=str(fitted)),
        settings=settings_of,
        recipe=Recipe(**wanted["fit"]),
        loggers=build_loggers(wanted["logger"]),
        rank=settings.rank,
    )


def _choose_metric(wanted: Mapping[str, Any], task: Task) -> str:
    metric = wanted["metric"]
    if metric is None:
        return str(task.metrics[0])
    if metric not in task.metrics:
        raise UsageError(f"metric={metric} is none of the task's{nearest(str(metric), task.metrics)}")
    return str(metric)


def _synthetic_layout(given: Any, task: Task) -> tuple[dict[str, Any], dict[str, str]]:
    """Layout config of synthetic cases, with the study's provenance."""
    layout: dict[str, Any] = {"run": given} if isinstance(given, str) else given
    if not isinstance(layout, dict) or not ("_target_" in layout or "run" in layout):
        raise UsageError(f"synthetic: expected a run folder, arguments of Generated or a layout, got {given!r}")
    if "run" not in layout:
        return layout, {"layout": str(layout["_target_"])}
    manifest = manifest_of(Path(str(layout["run"])).expanduser())
    about = {key: str(manifest.get(key, "")) for key in ("run", "task", "model", "settings")}
    layout = {"_target_": GENERATED, **layout}
    if not any(layout.get(key) for key in ("target", "classes", "question")):
        layout |= _target_config(task)
    return layout, about


def _target_config(task: Task) -> dict[str, Any]:
    """Target of a picture, in the form that the task's real cases have."""
    first = task.cases("fit")[0]
    truth = first.target.read()
    if isinstance(truth, Findings):
        named = [label for label in task.numbered_labels().values() if label in truth.values]
        return {"classes": named or list(truth.values)}
    if isinstance(truth, Key) and first.question is not None:
        return {"question": first.question.text}
    if isinstance(truth, Mask):
        raise UsageError(
            f"task {task.name!r} needs the mask of each picture: synthetic={{run: FOLDER, target: {{_target_: "
            'medimg_eval.data.targets.MaskTarget, path: "MASKS/{case}-{number}.png"}}'
        )
    return {}


def _show_table(wanted: Mapping[str, Any], plan: Plan) -> None:
    (study,) = load_utility([plan.folder])
    table = build_utility(
        study,
        metrics=None if wanted["metrics"] is None else as_list(wanted["metrics"]),
        resamples=wanted["resamples"],
        level=wanted["level"],
        seed=wanted["seed"],
    )
    console = printer()
    for part in table.wrapped(lambda one: fits(console, one.layout())):
        console.print(to_rich(part))
    for note in table.footnotes:
        console.print(Text(note, style="dim"))
    Console(stderr=True).print(
        f"the study lies in {plan.folder}; more seeds or fractions join it", style="dim", soft_wrap=True
    )
    if wanted["out"] is not None:
        say_written(write_all(table, Path(wanted["out"]), "utility"))


def _raise_failures(plan: Plan, chosen: list[Training]) -> None:
    """Raises UserError naming the models that could not be trained or tested."""
    (study,) = load_utility([plan.folder])
    chosen_keys = {(cell.setting, cell.fraction, cell.seed) for cell in chosen}
    failed = [
        cell for cell in study.trained if cell.failure and (cell.setting, cell.fraction, cell.seed) in chosen_keys
    ]
    if failed:
        lines = [f"{len(failed)} of {len(chosen)} models failed in {plan.folder}; the same command tries them again:"]
        lines += [f"  {cell.name}: {cell.failure}" for cell in failed]
        raise UserError("\n".join(lines))

"""What synthetic cases are worth to train on: one model is trained on several mixtures and tested on real cases."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from medimg_eval.data.layouts.synthesis import PROMPT, SETTINGS, MixedDataset, Setting, patient_of
from medimg_eval.errors import SplitError, UsageError, UserError
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.run import now, write_json
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results.utility import SCHEMA, STUDY
from medimg_eval.tasks import Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """One model that is trained.

    Attributes:
        setting: what on: `real`, `synthetic`, `mixed` or `augmented`.
        fraction: of the patients.
        seed: of the training, and of the order in which patients are taken.
    """

    setting: Setting
    fraction: float
    seed: int

    @property
    def folder(self) -> str:
        """Its folder below that of the study."""
        return f"{self.setting}-{self.fraction:g}-seed{self.seed}"

    def __str__(self) -> str:
        """Name in messages and tables."""
        return f"{self.setting}, {100 * self.fraction:g} %, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the models of a study are made.

    Attributes:
        folder: the study's.
        about: what its file says beside the models: `id`, `task`, `title`, `model`, `metric` and `synthetic`.
        task: makes the task whose cases to fit on are blended.
        test: makes the task with real cases alone.
        fresh: makes the untrained model.
        trained: makes the model of a fit run's folder.
        settings: makes settings of a training, for `fit` or `test`, whose run lies in a folder; seeds all generators.
        recipe: how models are trained.
        loggers: as for `fit`.
    """

    folder: Path
    about: Mapping[str, Any]
    task: Callable[[Training], Task]
    test: Callable[[], Task]
    fresh: Callable[[Training], ModelSpec]
    trained: Callable[[Training, Path], ModelSpec]
    settings: Callable[[Training, str, Path], Settings]
    recipe: Recipe
    loggers: Callable[[Path], Sequence[Logger]]
    rank: int = 0
    """Of this process; only rank 0 writes the study's file."""


def trainings(settings: Sequence[Any], fractions: Sequence[Any], seeds: Sequence[Any]) -> list[Training]:
    """Returns combinations seed by seed, so early stops stay comparable.

    Raises:
        UsageError: one is invalid, or is named twice, or there is none.
    """
    for name, values in (("settings", settings), ("fractions", fractions), ("seeds", seeds)):
        if not values or len(set(map(str, values))) < len(values):
            raise UsageError(f"expected {name} to name each value once, and at least one, got {list(values)}")
    UsageError.refuse_invalid("setting", SETTINGS, *settings)
    for fraction in fractions:
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
            raise UsageError(f"expected fractions to lie above 0 and up to 1, got {fraction!r}")
    for fraction in seeds:
        if isinstance(fraction, bool) or not isinstance(fraction, int) or fraction < 0:
            raise UsageError(f"expected seeds to be whole numbers from 0 on, got {fraction!r}")
    return [Training(setting, float(part), seed) for seed in seeds for part in fractions for setting in settings]


def blend_of(task: Task) -> MixedDataset:
    """Mixture that a task is trained on; TypeError without."""
    if not isinstance(task.layout, MixedDataset):
        raise TypeError(
            f"Expected the layout of task {task.name!r} to be a MixedDataset, got {type(task.layout).__name__}"
        )
    return task.layout


def refuse_leaks(real: Task, blended: Task) -> None:
    """Raises UserError for synthetic cases from validated or tested patients."""
    blend = blend_of(blended)
    # All of them, and not those of a fraction: each seed takes others.
    generated = [] if blend.synthetic is None else blend.synthetic.cases(blend.made)
    names = {patient_of(case) for case in generated} | {case.attributes.get(PROMPT, case.id) for case in generated}
    for part in ("validate", "test"):
        try:
            cases = real.cases(part)
        except SplitError:
            continue
        if shared := sorted({patient_of(case) for case in cases} & names):
            raise UserError(
                f"{len(shared)} patients that synthetic cases were made of are among those to {part}, such as "
                f"{shared[0]!r}; make them of the patients to fit on: run the synthesis with task.splits.test=fit"
            )


def measure(plan: Plan, wanted: Sequence[Training]) -> list[Path]:
    """Trains and tests what is missing; failures do not stop others.

    Models of an earlier start of the same study stay in it.

    Returns:
        The folders of the tests that are finished, in the order of `wanted`.

    Raises:
        UserError: the folder holds another study, or another process is at work on it.
    """
    with _lock_study(plan.folder) if plan.rank == 0 else nullcontext():
        study = _study_content(plan, wanted)
        done = []
        for number, cell in enumerate(wanted, start=1):
            log.info("%s (%d of %d)", cell, number, len(wanted))
            record = study["cells"][cell.folder]
            try:
                folder, cases = _train_and_test(plan, cell)
            except Exception as error:
                log.warning("%s failed: %s", cell, error, exc_info=not isinstance(error, UserError))
                what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                record |= {"status": "failed", "failure": what}
            else:
                done.append(folder)
                record |= {"status": "finished", "failure": "", "cases": cases}
            _write_study(plan, study)
        _write_study(plan, study | {"ended": now()})
    return done


def _train_and_test(plan: Plan, one: Training) -> tuple[Path, dict[str, int]]:
    folder = plan.folder / one.folder
    task = plan.task(one)
    real, generated = blend_of(task).parts()
    fitted = fit(task, plan.fresh(one), plan.recipe, plan.settings(one, "fit", folder / "fit"), plan.loggers)
    tested = pipeline.test(plan.test(), plan.trained(one, fitted), plan.settings(one, "test", folder / "test"))
    return tested.folder, {"real": len(real), "synthetic": len(generated)}


def _study_content(plan: Plan, wanted: Sequence[Training]) -> dict[str, Any]:
    """Content of the study's file, with present and former models."""
    file = plan.folder / STUDY
    study: dict[str, Any] = {"schema": SCHEMA, **plan.about, "started": now(), "cells": {}}
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))
        if before.get("id") != plan.about["id"]:
            raise UserError(f"{plan.folder}: holds another study; leave run= out, or name another folder")
        study |= {"started": before["started"], "cells": {cell["folder"]: cell for cell in before["cells"]}}
    for cell in wanted:
        waiting = {"status": "waiting", "failure": "", "cases": {"real": 0, "synthetic": 0}}
        about = {"folder": cell.folder, "setting": cell.setting, "fraction": cell.fraction, "seed": cell.seed}
        study["cells"].setdefault(cell.folder, about | waiting)
    _write_study(plan, study)
    return study


def _write_study(plan: Plan, told: Mapping[str, Any]) -> None:
    if plan.rank == 0:
        write_json(plan.folder / STUDY, {**told, "cells": list(told["cells"].values())})


@contextmanager
def _lock_study(folder: Path) -> Iterator[None]:
    """Locks the study's folder; UserError where taken or unwritable."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".utility.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is at work on this study; wait for it") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error}); name another place with runs=DIR") from error
    try:
        yield
    finally:
        lock.release()

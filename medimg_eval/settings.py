"""How a run is to be done: from a config to the settings of `test` and `fit`, and what they change while they last."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.arguments import as_list
from medimg_eval.case import Condition
from medimg_eval.data.cache import VolumeCache
from medimg_eval.degradations import read_severities, sweep
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings, read_conditions
from medimg_eval.evaluation.shards import read_shard
from medimg_eval.instantiate import Annotators, Extractors, build, build_candidate, build_task
from medimg_eval.lazy_torch import generator_states, restore_generators, seed_torch, sees_gpu
from medimg_eval.system import cluster_environment, rank, with_step
from medimg_eval.tasks import Task

if TYPE_CHECKING:  # importing it takes seconds
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import Logger

RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LIGHTNING = ("lightning.pytorch", "lightning.fabric")
SEED_VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")
LARGEST_SEED = 2**32 - 1
"""That NumPy's generators take."""


def build_tasks(config: Mapping[str, Any]) -> list[Task]:
    """The named task, or else those of the suite."""
    chosen = [config["task"]] if config.get("task") else list(config.get("tasks", {}).values())
    if not chosen:
        raise UsageError("no task is named; add task=NAME or suite=NAME (see python -m medimg_eval list)")
    tasks = [build_task(task_config) for task_config in chosen]
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"the suite holds two tasks called {twice!r}; give one of them another name")
    return tasks


def build_settings(
    config: Mapping[str, Any], overrides: Sequence[str] = (), judge: ModelSpec | None = None
) -> Settings:
    """Returns settings shared by `test` and `fit`, and seeds every generator.

    The manifest records the words in `overrides`; a judge takes the place of the config's.

    Raises:
        UsageError: a number is none, or too small.
        UserError: the machine has no such accelerator.
    """
    for key, least in {"seed": 0, "batch_size": 1, "num_workers": 0, "score_workers": 0, "repeats": 1}.items():
        value = config.get(key, least)
        chosen = value is None and key in ("batch_size", "score_workers")
        if not (isinstance(value, int) and not isinstance(value, bool) and value >= least) and not chosen:
            raise UsageError(f"expected {key} to be a whole number of at least {least}, got {value!r}")
    if config["seed"] > LARGEST_SEED:
        raise UsageError(f"expected seed to be at most {LARGEST_SEED}, got {config['seed']}")
    refuse_absent_device(str(config["trainer"]["accelerator"]))
    _refuse_other_card(overrides)
    shard = read_shard(config.get("shard"))
    trainer = with_step(config["trainer"], shard=shard is not None)
    trainer["precision"] = _resolve_precision(trainer)
    if shard and any(str(trainer[key]) != "1" for key in ("devices", "num_nodes")):
        raise UsageError(f"shard={shard} is answered on one device; leave trainer.devices and trainer.num_nodes at 1")
    _seed_everything(config["seed"])
    return Settings(
        runs=Path(config["runs"]),
        run=None if config["run"] is None else Path(config["run"]),
        trainer=_make_trainer(trainer, is_shard=shard is not None),
        config={key: value for key, value in config.items() if key != "runs"} | {"trainer": trainer},
        overrides=list(overrides),
        batch_size=config["batch_size"],
        num_workers=config["num_workers"],
        score_workers=config["score_workers"],
        rank=0 if shard else rank(),  # shards know of no group, whatever has started them
        shard=shard,
        seed=config["seed"],
        limit=config.get("limit"),
        only=[] if config.get("only") is None else [str(case) for case in as_list(config["only"])],
        repeats=config.get("repeats", 1),
        conditions=_asked_conditions(config),
        judge=judge or (build_candidate(config["judge"]) if config.get("judge") else None),
        annotators=Annotators(config["annotators"]),
        extractors=Extractors(config["extractors"]),
        cache=VolumeCache(Path(config["cache"]).expanduser(), config["cache_gib"]) if config.get("cache") else None,
    )


def _asked_conditions(config: Mapping[str, Any]) -> list[Condition]:
    """Conditions of `conditions`, and of the sweep by `degrade` and `severities`."""
    conditions = read_conditions(as_list(config.get("conditions") or []))
    named = [str(name) for name in as_list(config.get("degrade") or [])]
    swept = sweep(named, read_severities(config.get("severities", [1, 2, 3, 4, 5]))) if named else []
    twice = {condition.key for condition in conditions} & {condition.key for condition in swept}
    if twice:
        raise UsageError(f"conditions and degrade both name {min(twice)!r}; leave one out")
    return [*conditions, *swept]


def _refuse_other_card(overrides: Iterable[str]) -> None:
    """Raises UsageError where overrides change a card's data permission."""
    strange = next(
        (override for override in overrides if re.match(r"[+~]*tasks?\b(.*\bmay_leave\b|[^=]*\.card(=|$))", override)),
        None,
    )
    if strange is not None:
        raise UsageError(f"{strange}: what may leave this machine stands in the card's file alone; say may_leave=yes")


def validating(config: Mapping[str, Any]) -> dict[str, Any]:
    """Training config that validates at least once.

    A training shorter than the usual step is validated at its end.
    """
    trainer = dict(config["trainer"])
    every, epochs = trainer.get("check_val_every_n_epoch"), trainer.get("max_epochs")
    if every and epochs and 0 < epochs < every:
        trainer["check_val_every_n_epoch"] = epochs
    return {**config, "trainer": trainer}


def build_loggers(config: Mapping[str, Any]) -> Callable[[Path], list[Logger]]:
    """Factory of a run's loggers; trackers take the folder's name."""
    named = {"WandbLogger": ("name", "version"), "MLFlowLogger": ("run_name",)}

    def make(folder: Path) -> list[Logger]:
        loggers = []
        for logger_config in config.values():
            names = named.get(str(logger_config["_target_"]).rpartition(".")[2], ())
            loggers.append(build({**dict.fromkeys(names, folder.name), **logger_config}, save_dir=str(folder)))
        return loggers

    return make


def _make_trainer(config: Mapping[str, Any], *, is_shard: bool) -> Callable[..., pl.Trainer]:
    def make(**options: Any) -> pl.Trainer:
        from medimg_eval.evaluation.lightning_modules import progress

        _quieten_lightning()
        callbacks = [progress(), *options.pop("callbacks", [])]
        arguments = {"_target_": "lightning.pytorch.Trainer", **config}
        # Shards are dealt out by the data module: Lightning's own would repeat cases to make them even.
        if (group := cluster_environment(shard=is_shard)) is not None:
            options["plugins"] = [*as_list(config.get("plugins") or []), group]
        options |= {"use_distributed_sampler": False, "enable_progress_bar": sys.stderr.isatty()}
        trainer: pl.Trainer = build(arguments, callbacks=callbacks, **options)
        return trainer

    return make


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restores process state after a run: generators, warnings, logging, ranks."""
    import random

    import numpy as np

    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_states = generator_states()
    levels = {name: logging.getLogger(name).level for name in LIGHTNING}
    variables = {name: os.environ.get(name) for name in (*RANK_VARIABLES, *SEED_VARIABLES)}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        restore_generators(torch_states)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        _restore_environment(variables)


def _restore_environment(before: Mapping[str, str | None]) -> None:
    """Removes Lightning's rank variables, which would stop later runs' ranks."""
    ranks = any(os.environ.get(name) != before[name] for name in RANK_VARIABLES)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if ranks:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()


def _seed_everything(seed: int) -> None:
    """Seeds all generators, also Lightning's workers, as `seed_everything`."""
    import random

    import numpy as np

    os.environ |= {"PL_GLOBAL_SEED": str(seed), "PL_SEED_WORKERS": "1"}
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for libraries that draw from it
    seed_torch(seed)


def refuse_absent_device(accelerator: str) -> None:
    """Raises UserError when the machine has no such accelerator."""
    if accelerator not in ("gpu", "cuda"):
        return
    import torch

    if not (torch.cuda.is_available() or (accelerator == "gpu" and torch.backends.mps.is_available())):
        raise UserError(
            f"trainer.accelerator={accelerator}: torch sees no GPU here; set it to cpu, or leave it at auto"
        )


def _resolve_precision(trainer: Mapping[str, Any]) -> str | int:
    """Precision of "auto" here; it is part of a run's identity."""
    wanted: str | int = trainer["precision"]
    if isinstance(wanted, str) and wanted.endswith("-true") and wanted not in ("32-true", "64-true"):
        raise UsageError(
            f"trainer.precision={wanted} would halve the images too; use {wanted.removesuffix('true')}mixed"
        )
    if wanted != "auto":
        return wanted
    if trainer["accelerator"] == "cpu" or not sees_gpu():
        return "32-true"
    import torch

    return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"


def _quieten_lightning() -> None:
    """Silences Lightning's advertisements and unneeded advice."""
    for name in LIGHTNING:
        logging.getLogger(name).setLevel(logging.WARNING)
    for advice in (
        ".*does not have many workers.*",
        "The `srun` command is available.*",
        ".*number of training batches.*",
        ".*Checkpoint directory.*",
        ".*Experiment logs directory.*",
        ".*You have overridden `transfer_batch_to_device`.*",
        ".*in eval mode at the start of training.*",  # frozen encoders
        "Num foregrounds .*unable to generate class balanced samples.*",  # masks without a finding
        ".*isinstance\\(treespec, LeafSpec\\)`.*",  # Lightning 2.6 on torch 2.15
    ):
        warnings.filterwarnings("ignore", message=advice)

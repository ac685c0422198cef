"""How a run is to be done: where it lies, what asks and scores it, and how many times."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Condition
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.shards import Shard
from medimg_eval.evidence import JUDGE

if TYPE_CHECKING:  # importing it takes seconds, which a run of questions on one device can do without
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import Logger

    from medimg_eval.data.cache import VolumeCache
    from medimg_eval.evaluation.model_spec import ModelSpec


def without_trainer(**_: Any) -> Any:
    """Stands for the trainer where nothing is asked; raises UsageError."""
    raise UsageError("answers that were given before need no trainer")


def without_trackers(_: Path) -> Sequence[Logger]:
    """Stands for the trackers where a run is reported to none."""
    return ()


def read_conditions(named: Sequence[Any]) -> list[Condition]:
    """Conditions of names such as `no_image`, `blur-3`, or mappings.

    `{name: blur, severity: 3}`.

    Raises:
        UsageError: one is neither, or is named twice.
    """
    conditions: dict[str, Condition] = {}
    for name_ in named:
        name, _, severity = str(name_).rpartition("-")
        try:
            if isinstance(name_, Mapping):
                condition = Condition(**{str(key): value for key, value in name_.items()})
            else:
                condition = Condition(name, int(severity)) if name else Condition(str(name_))
        except (TypeError, ValueError) as error:
            raise UsageError(f"expected a condition, such as no_image or blur-3, got {name_!r}") from error
        if condition.key in conditions:
            raise UsageError(f"conditions names {condition.key!r} twice; leave one out")
        conditions[condition.key] = condition
    return list(conditions.values())


@dataclass
class Settings:
    """How to go about it.

    Attributes:
        runs: folder that run folders are kept in.
        run: this run's own folder, instead of one below `runs`.
        trainer: makes the Lightning trainer from the callbacks and options it is given.
        config: the resolved config, recorded in the manifest.
        overrides: the command line's part of it.
        batch_size: cases asked about at once; None for what the model prefers.
        num_workers: processes that read ahead.
        score_workers: processes that score; None chooses.
        rank: of this process.
        shard: that this process answers alone, of a run that others answer the rest of; None for all.
        seed: part of a run's identity; seeding is done by the caller.
        limit: so many cases are asked about, the first ones; None for all.
        only: ids of the cases that are asked about; empty for all.
        repeats: how often each case is asked about, with seeds of its own.
        conditions: what is done to the cases before they are shown once more, beside the cases as published.
        loggers: makes the trackers that the scored run is reported to, from its folder.
        cache: keeps the cases that `fit` reads.
        judge: is asked about answers, where the task says what.
        annotators: of reports: name -> what reads them for the metrics that name it.
        extractors: of pictures: name -> what gives them features for the metrics that name it.
    """

    runs: Path = Path("runs")
    run: Path | None = None
    trainer: Callable[..., pl.Trainer] = without_trainer
    config: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = field(default_factory=list)
    batch_size: int | None = None
    num_workers: int = 0
    score_workers: int | None = None
    rank: int = 0
    shard: Shard | None = None
    seed: int = 0
    limit: int | None = None
    only: Sequence[str] = ()
    repeats: int = 1
    conditions: Sequence[Condition] = ()
    loggers: Callable[[Path], Sequence[Logger]] = without_trackers
    cache: VolumeCache | None = None
    judge: ModelSpec | None = None
    annotators: Mapping[str, ModelSpec] = field(default_factory=dict)
    extractors: Mapping[str, ModelSpec] = field(default_factory=dict)

    @property
    def providers(self) -> Mapping[str, ModelSpec]:
        """All that metrics may name, by name; the judge as "judge"."""
        return ChainMap({} if self.judge is None else {JUDGE: self.judge}, self.annotators, self.extractors)  # type: ignore[arg-type]

    @property
    def may_leave(self) -> Any:
        """User's permission to send data elsewhere; None where unstated."""
        return self.config.get("may_leave")

    @property
    def lookalikes(self) -> bool:
        """Whether parts' images are compared by appearance before asking."""
        return bool(self.config.get("lookalikes"))

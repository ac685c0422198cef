"""`rank`: models ranked over data sets."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.common import as_list, plain, runs_of
from medimg_eval.commands.compare import say_written, show_sheets
from medimg_eval.results.pair_tests import CompareSettings
from medimg_eval.results.ranking import rank_models, write_ranking


def run(config: DictConfig) -> None:
    """Prints the ranking and, when `out` is given, writes it."""
    wanted = plain(config)
    ranking = rank_models(
        runs_of(wanted),
        metrics=None if wanted["metrics"] is None else [str(name) for name in as_list(wanted["metrics"])],
        by=None if wanted["by"] is None else str(wanted["by"]),
        how=CompareSettings(**{name: wanted[name] for name in ("test", "correction", "alpha", "seed")}),
        resamples=wanted["resamples"],
    )
    show_sheets(ranking.sheets)
    if wanted["out"] is not None:
        say_written(write_ranking(ranking, Path(wanted["out"])))

"""`rank`: models ranked over data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import runs_of, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.results.comparison import CompareSettings
from medimg_eval.results.ranking import pool, rank_models, write_ranking


def run(config: DictConfig) -> None:
    """Prints the ranking and, when `out` is given, writes it."""
    wanted = plain(config)
    runs = runs_of(wanted)
    ranking = rank_models(
        pool(runs) if wanted["pool"] else runs,
        metrics=None if wanted["metrics"] is None else [str(name) for name in as_list(wanted["metrics"])],
        by=None if wanted["by"] is None else str(wanted["by"]),
        how=CompareSettings(**{name: wanted[name] for name in ("test", "correction", "alpha", "seed")}),
        resamples=wanted["resamples"],
        weights=_parse_weights(wanted["weights"]),
    )
    show_sheets(ranking.sheets)
    if wanted["out"] is not None:
        say_written(write_ranking(ranking, Path(wanted["out"])))


def _parse_weights(given: Any) -> dict[str, float] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise UsageError(
            f"weights: expected metrics with their weights, such as '{{ssim: 0.4, psnr: 0.6}}', got {given!r}"
        )
    return {str(metric): weight for metric, weight in given.items()}

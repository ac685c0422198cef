"""`fairness`: whether models serve groups of cases alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import runs_of, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.results import write_comparison
from medimg_eval.results.fairness import judge_fairness
from medimg_eval.results.statistics import DisparitySettings


def run(config: DictConfig) -> None:
    """Prints groups and disparities and, when `out` is given, writes them."""
    wanted = plain(config)
    metrics = None if wanted["metrics"] is None else [str(metric) for metric in as_list(wanted["metrics"])]
    tables = judge_fairness(
        runs_of(wanted),
        by=[str(attribute) for attribute in as_list(wanted["by"])],
        metrics=metrics,
        how=DisparitySettings(
            resamples=wanted["resamples"],
            level=wanted["level"],
            seed=wanted["seed"],
            min_group_size=wanted["min_group_size"],
            bins=_parse_bins(wanted["bins"]),
            stratify_by=str(wanted["stratify_by"] or ""),
        ),
    )
    show_sheets(tables.sheets)
    if wanted["out"] is not None:
        say_written(write_comparison(tables, Path(wanted["out"]), stem="fairness"))


def _parse_bins(given: Any) -> dict[str, list[float]]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(edges, list) for edges in given.values()):
        raise UsageError(f"bins is {given!r}, expected edges of attributes that are numbers, such as {{age: [40, 60]}}")
    return {str(name): edges for name, edges in given.items()}

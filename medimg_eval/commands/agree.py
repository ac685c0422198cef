"""`agree`: a judge of answers beside people, our labels of reports beside an annotator's, preferences of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from medimg_eval.commands.console import say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.results import (
    calibration_table,
    judge_agreement,
    jury_table,
    numbers_of,
    preference_table,
    rated_cases,
    read_ballots_file,
    read_jury,
    read_preferences,
    read_verdicts,
    write_all,
)
from medimg_eval.results.runs import MANIFEST, keep_validation, read_manifest
from medimg_eval.results.table import Sheet


def run(config: DictConfig) -> None:
    """Prints agreement of two raters or labellers; writes it to `out`."""
    if config.get("reports") is not None:
        from medimg_eval.commands.agree_labels import agree_on_labels

        _print_sheet([agree_on_labels(_without_run(config))], config.out)
        return
    if config.get("preferences") is not None:
        _print_sheet([_preference_sheet(_without_run(config))], config.out)
        return
    wanted = plain(config)
    folder = Path(wanted["run"])
    title = str(read_manifest(folder / MANIFEST).get("task_title", folder.name))
    how = {key: wanted[key] for key in ("resamples", "level", "seed")}
    jury = [jury_table(ballots, title, **how)] if (ballots := read_ballots_file(folder)) else []
    if wanted["human"] is None:
        alone = bool(ballots) and len({ballot.judge for ballot in ballots}) == 1
        compared = [] if alone else [judge_agreement(read_jury(folder), title, **how)]
        _print_sheet([*compared, *jury], wanted["out"])
        return
    verdicts = read_verdicts(
        folder,
        Path(wanted["human"]),
        column="human" if wanted["column"] is None else str(wanted["column"]),
        judge=None if wanted["judge"] is None else str(wanted["judge"]),
    )
    sheet = judge_agreement(verdicts, title, **how)
    keep_validation(folder, sheet.frame().to_dict("records"), Path(wanted["human"]).name)
    calibrated = wanted.get("calibrate") and calibration_table(rated_cases(verdicts, numbers_of(folder)), title, **how)
    _print_sheet([sheet, *jury, *([calibrated] if calibrated else [])], wanted["out"])


def _preference_sheet(wanted: dict[str, Any]) -> Sheet:
    """The table of a file of preferences."""
    file = Path(wanted["preferences"])
    how = {key: wanted[key] for key in ("anchor", "resamples", "level", "seed")}
    return preference_table(read_preferences(file), file.stem, **how)


def _without_run(config: DictConfig) -> dict[str, Any]:
    """The config without what labels of reports do not need."""
    wanted = plain(OmegaConf.masked_copy(config, [str(key) for key in config if key not in ("run", "human")]))
    return {**wanted, "column": "report" if wanted["column"] is None else wanted["column"]}


def _print_sheet(sheets: Sequence[Sheet], out: str | None) -> None:
    show_sheets(sheets)
    if out is not None:
        for sheet, stem in zip(sheets, ("agree", "agree_2", "agree_3"), strict=False):
            say_written(write_all(sheet, Path(out), stem=stem))

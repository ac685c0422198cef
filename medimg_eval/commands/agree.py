"""`agree`: a judge of answers beside people, our labels of reports beside an annotator's, preferences of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from medimg_eval.commands.console import say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.results import (
    judge_agreement,
    preference_table,
    read_jury,
    read_preferences,
    read_verdicts,
    write_all,
)
from medimg_eval.results.runs import MANIFEST, keep_validation, read_manifest
from medimg_eval.results.table import Sheet


def run(config: DictConfig) -> None:
    """Prints the agreement of two who judge or label and, when `out` is given, writes it in four formats."""
    if config.get("reports") is not None:
        from medimg_eval.commands.agree_labels import agree_on_labels

        _print(agree_on_labels(_without_run(config)), config.out)
        return
    if config.get("preferences") is not None:
        _print(_preferences(_without_run(config)), config.out)
        return
    wanted = plain(config)
    folder = Path(wanted["run"])
    title = str(read_manifest(folder / MANIFEST).get("task_title", folder.name))
    how = {key: wanted[key] for key in ("resamples", "level", "seed")}
    if wanted["human"] is None:
        _print(judge_agreement(read_jury(folder), title, **how), wanted["out"])
        return
    verdicts = read_verdicts(
        folder,
        Path(wanted["human"]),
        column="human" if wanted["column"] is None else str(wanted["column"]),
        judge=None if wanted["judge"] is None else str(wanted["judge"]),
    )
    sheet = judge_agreement(verdicts, title, **how)
    keep_validation(folder, sheet.frame().to_dict("records"), Path(wanted["human"]).name)
    _print(sheet, wanted["out"])


def _preferences(wanted: dict[str, Any]) -> Sheet:
    """The table of a file of preferences."""
    file = Path(wanted["preferences"])
    how = {key: wanted[key] for key in ("anchor", "resamples", "level", "seed")}
    return preference_table(read_preferences(file), file.stem, **how)


def _without_run(config: DictConfig) -> dict[str, Any]:
    """The config without what labels of reports do not need."""
    wanted = plain(OmegaConf.masked_copy(config, [str(key) for key in config if key not in ("run", "human")]))
    return {**wanted, "column": "report" if wanted["column"] is None else wanted["column"]}


def _print(sheet: Sheet, out: str | None) -> None:
    show_sheets([sheet])
    if out is not None:
        say_written(write_all(sheet, Path(out), stem="agree"))

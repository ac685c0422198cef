"""`import`: logs of other programs become runs, scored by our rules beside their own."""

from __future__ import annotations

from omegaconf import DictConfig

from medimg_eval.commands.console import fail_if_cases_failed, printer, say, show, show_scored, warn_in_yellow
from medimg_eval.configs.overrides import plain
from medimg_eval.file_scores.logs import import_logs


def run(config: DictConfig) -> None:
    """Reads logs, scores their replies, and says where their program and ours differ.

    Raises:
        UserError: no log can be read, or one has no question of the task.
    """
    found = import_logs(plain(config), warn_in_yellow)
    for one in found:
        if one.scores is not None:
            show(one.table)
            told = f"scores of every case: {one.scores}; table, compare, rank and figure take it by scores={one.scores}"
            say(printer(), told)
            continue
        show_scored(one.runs)
        for line in (line for difference in one.differences for line in difference.lines()):
            say(printer(), line)
    fail_if_cases_failed([run.folder for one in found for run in one.runs])

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
    imported = import_logs(plain(config), warn_in_yellow)
    for log in imported:
        if log.scores is not None:
            show(log.table)
            hint = f"scores of every case: {log.scores}; table, compare, rank and figure take it by scores={log.scores}"
            say(printer(), hint)
            continue
        show_scored(log.runs)
        for line in (line for difference in log.differences for line in difference.lines()):
            say(printer(), line)
    fail_if_cases_failed([run.folder for log in imported for run in log.runs])

"""`label`: a table of labels that a language model reads in reports, with their cost and agreement with people."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.api import cost_in_words, run_labelling
from medimg_eval.commands.console import printer, say, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError
from medimg_eval.results import write_all


def run(config: DictConfig) -> None:
    """Labels reports; writes the table, prints cost and agreement.

    Raises:
        UserError: the model could not be asked about a report, after all others were labelled.
    """
    wanted = plain(config)
    labelled = run_labelling(wanted)
    labels, console = labelled.labels, printer()
    pairs = len(labels.reports) * len(labels.scheme.findings)
    failed = [
        f"{report.id}: {label.problem}"
        for report, label in zip(labels.reports, labels.labelled, strict=True)
        if label.problem
    ]
    files = list(labelled.files)
    if labelled.agreement is not None:
        show_sheets([labelled.agreement])
        files += write_all(labelled.agreement, Path(str(wanted["out"])).expanduser(), stem="agreement")
    say(console, f"{len(labels.reports):,} reports, {len(labels.scheme.findings):,} findings, {pairs:,} labels")
    say(console, f"  {labels.asked:,} replies were asked for now, the others were kept")
    say(
        console,
        f"  {labels.unread():,} labels could not be read; {labels.taken_back():,} were taken back for want of evidence",
    )
    say(console, f"  {cost_in_words(labels)}")
    say_written(files)
    if failed:
        further = f" and {len(failed) - 3:,} more" if len(failed) > 3 else ""
        raise UserError(
            f"{len(failed):,} of {len(labels.reports):,} reports were not labelled: {'; '.join(failed[:3])}{further}"
        )

"""`agree`: whether a judge of answers agrees with people."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from medimg_eval.commands.common import plain, printer
from medimg_eval.results import judge_agreement, read_verdicts, to_rich, write_all
from medimg_eval.results.load import MANIFEST, read_manifest


def run(config: DictConfig) -> None:
    """Prints the agreement of judges with human labels and, when `out` is given, writes it in four formats."""
    wanted = plain(config)
    folder = Path(wanted["run"])
    title = str(read_manifest(folder / MANIFEST).get("task_title", folder.name))
    verdicts = read_verdicts(
        folder,
        Path(wanted["human"]),
        column=str(wanted["column"]),
        judge=None if wanted["judge"] is None else str(wanted["judge"]),
    )
    sheet = judge_agreement(verdicts, title, resamples=wanted["resamples"], level=wanted["level"], seed=wanted["seed"])
    console = printer()
    console.print(to_rich(sheet))
    for note in sheet.content.footnotes:
        console.print(Text(note, style="dim"))
    if wanted["out"] is not None:
        written = write_all(sheet, Path(wanted["out"]), stem="agree")
        Console(stderr=True).print("wrote " + ", ".join(str(path) for path in written), style="dim", soft_wrap=True)

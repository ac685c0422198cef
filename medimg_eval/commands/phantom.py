"""`phantom`: write made-up patients in the real formats, with the truth known by construction."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.phantoms import KINDS, chest_reports, write_phantoms

KNOWN = {**KINDS, "chest_reports": chest_reports.ABOUT}


def run(config: DictConfig) -> None:
    """Writes one folder per kind below `out`, and prints what it wrote.

    Raises:
        UsageError: there is no such kind, or no case is asked for.
        UserError: a folder holds something else.
    """
    wanted = plain(config)
    kinds = as_list(wanted["kinds"])
    UsageError.refuse_invalid("phantom", KNOWN, *kinds)
    for key in ("cases", "seed"):
        if not isinstance(wanted[key], int) or isinstance(wanted[key], bool):
            raise UsageError(f"expected a whole number for {key}, got {wanted[key]!r}")
    console = printer()
    for kind in kinds:
        folder = Path(str(wanted["out"])).expanduser() / kind
        settings = {"cases": wanted["cases"], "seed": wanted["seed"]}
        done = write_phantoms(kind, folder, **settings)
        text = f"wrote {wanted['cases']} phantoms, {KNOWN[kind]}" if done else "was there already"
        console.print(f"{folder}: {text}", highlight=False, soft_wrap=True)

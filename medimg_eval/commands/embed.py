"""`embed`: compute features of a task's images by an encoder, once, into a store that every run shares."""

from __future__ import annotations

from omegaconf import DictConfig

from medimg_eval.api import run_embedding
from medimg_eval.commands.console import by_cause, printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError


def run(config: DictConfig) -> None:
    """Computes what the store lacks, and says where it lies and what it holds.

    Raises:
        UserError: a case failed, after all others were embedded.
    """
    found = run_embedding(plain(config))
    console = printer()
    total = len(found.keys) + len(found.failures)
    if found.store is not None:
        counts = found.counts()
        say(console, f"{found.store.path}: {len(found.keys)} of {total} cases have features")
        say(console, f"  {sum(counts)} rows of {found.store.length} x {found.store.dtype} ({_each(counts)})")
        say(console, f"  {found.computed} images were embedded now, the others were there")
    if found.failures:
        failures = [{"case": one.case_id, "stage": one.stage, "message": one.message} for one in found.failures]
        raise UserError(
            "\n".join([f"{len(failures)} of {total} cases have no features:", *by_cause(failures, "stage")])
        )


def _each(counts: list[int]) -> str:
    if not counts:
        return "none"
    return f"{min(counts)} to {max(counts)} a case" if min(counts) != max(counts) else f"{counts[0]} a case"

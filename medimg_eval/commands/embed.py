"""`embed`: compute features of a task's images by an encoder, once, into a store that every run shares."""

from __future__ import annotations

from omegaconf import DictConfig

from medimg_eval.api import run_embedding
from medimg_eval.commands.console import by_cause, printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError


def run(config: DictConfig) -> None:
    """Computes missing features; prints the store's place and content.

    Raises:
        UserError: a case failed, after all others were embedded.
    """
    result = run_embedding(plain(config))
    console = printer()
    total = len(result.keys) + len(result.failures)
    if result.store is not None:
        counts = result.counts()
        say(console, f"{result.store.path}: {len(result.keys)} of {total} cases have features")
        say(console, f"  {sum(counts)} rows of {result.store.length} x {result.store.dtype} ({_format_counts(counts)})")
        say(console, f"  {result.computed} images were embedded now, the others were there")
    if result.failures:
        failures = [
            {"case": failure.case_id, "stage": failure.stage, "message": failure.message} for failure in result.failures
        ]
        raise UserError(
            "\n".join([f"{len(failures)} of {total} cases have no features:", *by_cause(failures, "stage")])
        )


def _format_counts(counts: list[int]) -> str:
    if not counts:
        return "none"
    return f"{min(counts)} to {max(counts)} a case" if min(counts) != max(counts) else f"{counts[0]} a case"

"""`predict`: ask a model about images without a truth, keep and write what it answers, say what came of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from medimg_eval.api import run_predictions
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import by_cause, printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError
from medimg_eval.evaluation.shards import tells
from medimg_eval.system import rank

if TYPE_CHECKING:
    from medimg_eval.products import Products
    from medimg_eval.run_results import RunResults


def run(config: DictConfig) -> None:
    """Runs one model on the images, and prints one summary.

    Raises:
        UserError: an image failed, after all others were answered and written.
    """
    wanted = plain(config)
    wanted["images"] = as_list(wanted["images"])
    result, products = run_predictions(wanted, HydraConfig.get().overrides.task)
    if tells(result.manifest, wanted["shard"], rank()):
        _print_summary(result, products)


def _print_summary(found: RunResults, products: Products) -> None:
    console, manifest = printer(), found.manifest
    partial = f" ({manifest['partial']})" if manifest.get("partial") else ""
    noun = manifest["noun"] if manifest["noun"] != "cases" else "images"
    say(console, f"{manifest['model']}: {manifest['predicted']} of {manifest['cases']} {noun} answered{partial}")
    for path, count in products.written.items():
        say(console, f"  {path}{'/' if path.is_dir() else ''}: {count}")
    for text in (*_read_with(found), *_left_out(found), *products.notes, *_used_models(found)):
        say(console, f"  {text}")
    failures = _read_summary(found)["failures"]
    failures = [
        *failures,
        *({"case": case, "stage": "DICOM-SEG", "message": why} for case, why in products.failures.items()),
    ]
    if failures:
        lines = [f"{len(failures)} failures in {found.folder}:", *by_cause(failures, "stage")]
        lines.append(f"  {found.folder / 'summary.json'} has those of images; the same command tries them again")
        raise UserError("\n".join(lines))


def _read_summary(found: RunResults) -> dict[str, Any]:
    from medimg_eval.results.runs import read_manifest

    return read_manifest(found.folder / "summary.json")


def _read_with(found: RunResults) -> list[str]:
    notes = Counter(note for notes in _read_summary(found).get("read_with", {}).values() for note in set(notes))
    return [f"read so, {count} of them: {note}" for note, count in notes.most_common(5)]


def _left_out(found: RunResults) -> list[str]:
    """Files that were passed over, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for path, why in _read_summary(found).get("left_out", {}).items():
        by_reason.setdefault(why, []).append(Path(path).name)
    return [
        f"passed over as {why}: {f'{len(names)}, such as ' if len(names) > 1 else ''}{names[0]}"
        for why, names in by_reason.items()
    ]


def _used_models(found: RunResults) -> list[str]:
    timing = found.manifest.get("timing", {})
    used = [f"{timing['seconds']:.1f} s"] if timing else []
    used += [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in found.usage.items()
    ]
    return [f"used: {', '.join(used)}"] if used else []

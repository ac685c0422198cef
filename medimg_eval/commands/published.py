"""`published`: published numbers computed again from what authors released, beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.console import say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError
from medimg_eval.results import write_all
from medimg_eval.results.published import (
    Benchmark,
    Reproduced,
    declared,
    declared_names,
    find_clone,
    published_sheet,
    reproduce,
)
from medimg_eval.results.table import Settings


def run(config: DictConfig) -> None:
    """Prints published numbers beside ours; UserError for unexplained differences."""
    wanted = plain(config)
    clones = Path(str(wanted["clones"])).expanduser()
    if not clones.is_dir():
        raise UserError(f"{clones}: is no folder; give clones= the folder that your clones lie in")
    names = declared_names() if wanted["name"] is None else [str(wanted["name"])]
    settings = Settings(int(wanted["resamples"]), float(wanted["level"]), int(wanted["seed"]))
    numbers: list[Reproduced] = []
    for benchmark in map(declared, names):
        clone = find_clone(benchmark.repository, clones)
        if clone is None:
            sys.stderr.write(how_to_clone(benchmark, clones))
            continue
        _warn_of_commit(benchmark, clone)
        numbers += reproduce(benchmark, clone, settings)
    if not numbers:
        raise UserError(f"{clones}: holds none of the repositories; clone them with the commands above")
    sheet = published_sheet(numbers, settings.level)
    show_sheets([sheet])
    if wanted["out"] is not None:
        say_written(write_all(sheet, Path(wanted["out"]), stem="published"))
    odd = [
        f"{number.benchmark.name} {number.number.model} {number.number.metric}"
        for number in numbers
        if number.kind == "unexplained"
    ]
    if odd:
        raise UserError(f"{len(odd)} differences are unexplained: {', '.join(odd[:3])}")


def how_to_clone(benchmark: Benchmark, clones: Path) -> str:
    """Commands that clone a repository at the recorded commit."""
    folder = clones / benchmark.repository.replace("/", "+")
    return (
        f"{benchmark.name}: no clone of {benchmark.repository}; its numbers are left out\n"
        f"  git clone https://github.com/{benchmark.repository} '{folder}'\n"
        f"  git -C '{folder}' checkout {benchmark.commit}\n"
    )


def _warn_of_commit(benchmark: Benchmark, clone: Path) -> None:
    """Warns where a clone stands at another commit."""
    if not (clone / ".git").exists():
        return
    words = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    process = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    head = process.stdout.strip()
    if process.returncode == 0 and head != benchmark.commit:
        sys.stderr.write(f"{clone}: is at {head[:7]}, and the numbers were read at {benchmark.commit[:7]}\n")

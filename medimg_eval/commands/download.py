"""`download`: fetch an open benchmark, or a metric's weights, from the hub; or print the steps by which it is got."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.checking import how_to_get
from medimg_eval.commands.console import printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.data.archives import in_words
from medimg_eval.data.download import AccessError, HubFiles, fetch
from medimg_eval.errors import UsageError, UserError


def run(config: DictConfig) -> None:
    """Downloads what a card or config names; prints the next step.

    Raises:
        UsageError: nothing is named, or its card is invalid.
        UserError: it is not to be had from the hub, in which case the steps are printed, or something came wrong.
    """
    wanted = plain(config)
    if any(wanted.get(group) is not None for group in ("annotator", "extractor")):
        _fetch_weights(wanted)
        return
    task = wanted.get("task")
    if task is None:
        raise UsageError("no task is named; add task=NAME (see python -m medimg_eval list what=tasks)")
    name, card = task["name"], task.get("card") or {}
    tell = partial(say, printer())
    if not isinstance(card.get("download"), Mapping):
        for line in how_to_get(name, card):
            tell(line)
        raise UserError(
            f"task {name!r} is not fetched for you ({card.get('access', 'access unknown')}); see the steps above"
        )
    source = HubFiles.of(card["download"])
    root = _data_root(wanted["root"], task)
    try:
        done = fetch(source, root, tell)
    except AccessError:
        for line in how_to_get(name, card):
            tell(line)
        raise
    tell(f"{root}: {done.files} files fetched, {in_words(done.size)}; {done.present} were there")
    for step in source.then:
        tell(f"left to do: {step}")
    elsewhere = "" if wanted["root"] is None else f" task.layout.root={root}"
    tell(f"next: python -m medimg_eval check task={name}{elsewhere}")


def _fetch_weights(wanted: Mapping[str, Any]) -> None:
    from medimg_eval.commands.download_weights import chosen_annotator, chosen_extractor, download_weights

    if wanted.get("annotator") is not None:
        download_weights("annotator", *chosen_annotator(wanted))
    if wanted.get("extractor") is not None:
        download_weights("extractor", *chosen_extractor(wanted))


def _data_root(given: Any, task: Mapping[str, Any]) -> Path:
    root = given if given is not None else (task.get("layout") or {}).get("root")
    if root is None:
        raise UsageError(f"task {task['name']!r} names no folder for its data; add root=DIR")
    return Path(str(root)).expanduser()

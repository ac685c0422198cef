"""Keys of commands that earlier versions called otherwise; commands and the Python API take both."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from medimg_eval.errors import UsageError

log = logging.getLogger(__name__)

READERS = ("table", "compare", "figure", "report", "rank", "fairness", "confidence", "items", "monitor")
"""Commands that read runs."""


class Renamed(NamedTuple):
    """The present name of a key, the commands that have it, and values that are called otherwise too."""

    key: str
    commands: tuple[str, ...]
    values: Mapping[str, str] = {}


FORMER = {
    "from": Renamed("runs", READERS),
    "better": Renamed("direction", READERS),
    "strata": Renamed("stratify_by", ("table", "figure", "fairness")),
    "smallest": Renamed("min_group_size", ("fairness",)),
    "bounds": Renamed("ci", ("table",), {"beside": "inline"}),
    "severity": Renamed("severities", ("test",)),
    "blind": Renamed("conditions", ("test",), {"remove": "no_image"}),
    "image_ablation": Renamed("conditions", ("test",), {"none": "no_image"}),
}
"""Former key -> what it is called now."""

_WORD = re.compile(r"([+~]*)(\w+)(.*)", re.DOTALL)


def present_words(command: str, words: Sequence[str], tell: Callable[[str], object] = log.warning) -> list[str]:
    """Returns the words of a command line with the present names of keys and values.

    Args:
        command: such as `table`.
        words: such as `from=runs`.
        tell: takes a sentence for each former name.

    Raises:
        UsageError: a key is given under both names.
    """
    parts = [found.groups() if (found := _WORD.fullmatch(word)) else ("", "", word) for word in words]
    keys = [key for _, key, _ in parts]
    return [_present_word(part, _renamed(command, part[1], keys, tell)) for part in parts]


def _present_word(part: tuple[str, ...], renamed: Renamed | None) -> str:
    sign, key, rest = part
    if renamed is None:
        return f"{sign}{key}{rest}"
    below, equals, value = rest.partition("=")
    values = (renamed.values.get(one, one) for one in value.split(","))  # several of a multirun
    return f"{sign}{renamed.key}{below}{equals}{','.join(values)}"


def present_settings(command: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings of a command by the present names of keys, and with those of values; as for `present_words`."""
    present = {}
    for key, value in settings.items():
        renamed = _renamed(command, key, list(settings), log.warning)
        if renamed is None:
            present[key] = value
        else:
            present[renamed.key] = renamed.values.get(value, value) if isinstance(value, str) else value
    return present


def refuse_former(command: str, keys: Sequence[str]) -> None:
    """Raises UsageError where a config file of the user's sets a key by its former name."""
    for key in keys:
        if key in FORMER and command in FORMER[key].commands:
            raise UsageError(f"{key}: is now called {FORMER[key].key}; rename it in the config file that sets it")


def _renamed(command: str, key: str, keys: Sequence[str], tell: Callable[[str], object]) -> Renamed | None:
    """Returns what a key is called now, None for a present one; tells of it."""
    renamed = FORMER.get(key)
    if renamed is None or command not in renamed.commands:
        return None
    if renamed.key in keys:
        raise UsageError(f"{key}= is the former name of {renamed.key}=, which is given too; leave out {key}=")
    tell(f"{key}= is now called {renamed.key}=; the former name goes on working")
    return renamed

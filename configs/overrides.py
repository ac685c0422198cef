"""From words such as `task=slake` to a config, or to one clear sentence: on the command line and from Python."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from medimg_eval.configs.former_keys import present_words, refuse_former
from medimg_eval.configs.names import IN_FOLDERS, paths_of, plugin_places
from medimg_eval.errors import LIST, UsageError, UserError, invalid, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig

UNUSABLE = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors of files that a command names, and no fault of the program."""
SHOWN = 5
"""Configs of a folder that an error names."""
GROUPS = ("task", "model", "suite", "trainer", "logger", "annotator")


class Words(NamedTuple):
    """A command line taken apart."""

    command: str
    flags: list[str]
    overrides: list[str]


def composed(command: str, words: Sequence[str], folders: Sequence[str] = ()) -> DictConfig:
    """Config of a command, composed by Hydra with words as typed.

    Args:
        command: such as `test`.
        words: overrides, such as `task=slake`.
        folders: of configs of the user's own.

    Raises:
        UserError: a name does not exist, or a word is not understood.
    """
    from hydra import compose

    said = Words(command, [word for folder in folders for word in ("-cd", str(folder))], present_words(command, words))
    kept = [word for word in forced(said) if not word.startswith("hydra.searchpath=")]
    try:
        with _hydra():
            config = compose(command, [*kept, *search_path(said, folders)])
    except Exception as error:
        known = explain(error, said)
        if known is None:
            raise
        raise known from error
    refuse_former(command, list(map(str, config)))
    return emptied(config, kept)


def emptied(config: DictConfig, words: Sequence[str]) -> DictConfig:
    """Config in which `KEY={}` empties a mapping, where Hydra merges nothing."""
    from omegaconf import OmegaConf

    pairs = [(key.lstrip("+"), value.replace(" ", "")) for key, _, value in (word.partition("=") for word in words)]
    for number, (key, value) in enumerate(pairs):
        if value != "{}" or not OmegaConf.select(config, key):
            continue
        later = [later_key for later_key, _ in pairs[number + 1 :] if later_key.startswith(f"{key}.")]
        kept = {later_key: OmegaConf.select(config, later_key) for later_key in later}
        OmegaConf.update(config, key, {}, merge=False)
        for later_key, later_value in kept.items():
            OmegaConf.update(config, later_key, later_value, force_add=True)
    return config


def plain(config: DictConfig) -> dict[str, Any]:
    """The resolved config as dicts and lists; raises UsageError naming a key that must be set and is not."""
    from omegaconf import OmegaConf

    try:
        return cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except Exception as error:
        known = explain(error, None)
        if known is None:
            raise
        raise known from error


def with_changes(config: DictConfig, changes: Mapping[str, Any]) -> DictConfig:
    """A config with other values under some keys, such as `task.metrics`; mappings are merged into what is there.

    Raises:
        UsageError: the config has no such key.
    """
    from omegaconf import OmegaConf

    for key, value in changes.items():
        top = key.partition(".")[0]
        if top not in config.keys():  # noqa: SIM118 - a value that must be named is not "in" it
            raise UsageError(invalid("setting", top, map(str, config)))
        OmegaConf.update(config, key, value, merge=value != {}, force_add=True)
    return config


@contextmanager
def _hydra() -> Iterator[None]:
    """Lets Hydra compose our configs; a program that is itself Hydra's finds that as it was."""
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    from medimg_eval.configs.sources import short_names

    state = GlobalHydra.instance()
    before, state.hydra = state.hydra, None
    try:
        with short_names(), initialize_config_module("medimg_eval.configs", version_base="1.3"):
            yield
    finally:
        state.hydra = before


def explain(error: BaseException, words: Words | None) -> UserError | None:
    """Turns an error that the user can mend into one sentence; returns None for any other."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

    chain = list(_causes(error))
    for link in chain:
        if isinstance(link, UserError):
            return link
        if isinstance(link, MissingMandatoryValue | InterpolationToMissingValueError):
            refers = isinstance(link, InterpolationToMissingValueError)  # its message alone names the key that is meant
            key = re.sub(r"(?s).*mandatory value: (\S+).*", r"\1", str(link)) if refers else link.full_key
            return UsageError(f"{key} is not set; add {key}=VALUE to the command")
    for link in chain:
        if isinstance(link, MissingConfigException) and link.missing_cfg_file:
            return _explain_missing(link.missing_cfg_file, link.options or ())
    if str(error).startswith("Config group override must be"):
        return UsageError("expected the name of an option, got null; take a group out with ~GROUP")
    if any(isinstance(link, HydraException | OmegaConfBaseException) for link in chain):
        return _explain_config(chain, words)
    return _explain_file(error)


def _explain_missing(path: str, options: Sequence[str]) -> UsageError:
    group, _, name = path.rpartition("/")
    top, _, below = path.partition("/")
    if path.startswith(("task/", "model/")) and "." in name:
        return UsageError(
            f"there is no {top} {name!r}; a class of your own is named by {top}._target_={name}, and what it takes by "
            f"+{top}.NAME=VALUE"
        )
    if top not in IN_FOLDERS:
        return UsageError(invalid(group or "config", name, options, f"{LIST} {top}s"))
    inside = [one for one in paths_of(files("medimg_eval.configs"), top) if one.startswith(f"{below}/")]
    if inside:
        names = [one.rpartition("/")[2] for one in inside]
        some = ", ".join(names[:SHOWN]) + f", ...; {LIST} {top}s family={below} shows all {len(names)}" * (
            len(names) > SHOWN
        )
        return UsageError(f"{below!r} is a folder of {top}s; name one of them (available: {some})")
    return UsageError(invalid(top, below, options, f"{LIST} {top}s", like=name))


def _explain_file(error: BaseException) -> UserError | None:
    if not isinstance(error, UNUSABLE) or error.filename is None:
        return None
    return UserError(f"{error.filename}: cannot be read or written ({error.strerror}); free it, or name another")


def _explain_config(chain: Sequence[BaseException], words: Words | None) -> UsageError:
    from hydra.errors import OverrideParseException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    unread = next((link.override for link in chain if isinstance(link, OverrideParseException)), None)
    if unread is not None:
        key = str(unread).partition("=")[0]
        return UsageError(f"{unread}: cannot be understood; quote the value twice, as in '{key}=\"VALUE\"'")
    if several := re.match(r"Ambiguous value for argument '[+~]*([^=']+)=(.*)'", str(chain[0])):
        key, value = several[1], several[2]
        return UsageError(f"{key}={value}: several values stand in brackets: '{key}=[{value}]'; -m runs each by itself")
    first_lines = UsageError(" ".join(str(chain[0]).split("\n")[:2]).strip())
    unknown = next((link for link in chain if isinstance(link, ConfigAttributeError | ConfigKeyError)), None)
    group = re.match(r"Could not override '([^']+)'", str(chain[0]))  # a group that the command does not have
    if words is None or (unknown is None and group is None):
        return first_lines
    key = next((link.full_key for link in chain if isinstance(link, OmegaConfBaseException) and link.full_key), "")
    key = group[1] if group else key
    try:
        keys = _keys(words, leaving_out=key)
    except Exception:  # noqa: BLE001 - a hint is not worth a second error
        return first_lines
    if key in keys:  # a mapping that is there, and has no such key within
        held = ", ".join(name for name in keys if name.startswith(f"{key}."))
        replaced = f"there, with other keys ({held}); {key}.KEY=VALUE sets one, "
        replaced += f"~{key} with '+{key}={{...}}' replaces all"
        filled = f"empty; +{key}={{...}} fills it"
        return UsageError(f"{key} is {replaced if held else filled}, +{key}.KEY=VALUE adds one")
    parent = key.rpartition(".")[0]  # what holds the key is no better name for it, and what lies elsewhere none either
    others = [name for name in keys if name.startswith(f"{parent}.") and "._" not in name] if parent in keys else keys
    hint = nearest(key, others).partition(" (")[0] if others else ""
    shown = f"python -m medimg_eval {words.command} --help shows the keys, +{key}=VALUE adds one"
    return UsageError(f"key is invalid: expected one of the keys of `{words.command}`, got {key!r}{hint}; {shown}")


def _keys(words: Words, leaving_out: str) -> list[str]:
    """Every key of the config that the rest of the command line makes."""
    from hydra import compose
    from omegaconf import OmegaConf

    own = ("--config-dir", "-cd")
    folders = [value for flag, value in itertools.pairwise(words.flags) if flag in own]
    folders += [flag.partition("=")[2] for flag in words.flags if flag.partition("=")[0] in own and "=" in flag]
    kept = [o for o in words.overrides if o.lstrip("+~").partition("=")[0] not in (leaving_out, "hydra.searchpath")]
    with _hydra():
        config = compose(words.command, [*kept, *search_path(words, folders)])
        found = [group for group in GROUPS if _has_group(words.command, group)]

    def walk(node: Any, prefix: str) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            found.append(f"{prefix}{key}")
            walk(value, f"{prefix}{key}.")

    walk(OmegaConf.to_container(config), "")
    return found


def _has_group(command: str, group: str) -> bool:
    from hydra import compose
    from hydra.errors import HydraException

    try:
        compose(command, [f"~{group}"])
    except HydraException:
        return False
    return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def forced(words: Words) -> list[str]:
    """The overrides, in a form in which keys can be set that a config leaves to their default.

    A task's YAML states what differs from the defaults of its class, and what its class does not know it refuses when
    it is made. Of a swept group, Hydra looks for keys in the group's default first, before any of the swept options:
    `model=a,b model.x=1` would be refused where the default model has no x.
    """
    open_to = {"accept", "annotators", "columns", "expect", "extractors", "task"}
    if words.command == "predict":  # no model stands there, in whose place one of the user's own could come
        open_to.add("model")
    if {"-m", "--multirun"} & set(words.flags):
        swept = {key for key, _, value in (word.partition("=") for word in words.overrides) if "," in value}
        open_to |= swept & set(GROUPS)
    return [f"++{word}" if _sets_in(word, open_to) else word for word in map(_quoted, words.overrides)]


def _quoted(word: str) -> str:
    """An override whose value holds a tilde, as `series=description~portal` does, which Hydra wants in quotes."""
    key, equals, value = word.partition("=")
    if "~" not in value or {"'", '"'} & set(value):
        return word
    return key + equals + re.sub(r"[^\[\],]*~[^\[\],]*", lambda one: f'"{one[0].strip()}"', value)


def _sets_in(word: str, groups: Collection[str]) -> bool:
    """Whether an override sets keys within one of the groups, one by one or several in braces."""
    key, _, value = word.partition("=")
    group, dot, _ = key.partition(".")
    return group in groups and bool(dot or value.startswith("{"))


def search_path(words: Words, folders: Sequence[str] = ()) -> list[str]:
    """The override that adds the config packages of installed third parties, and folders."""
    given = next((word for word in words.overrides if word.startswith("hydra.searchpath=")), None)
    found = [] if given is None else given.partition("=")[2].strip("[]").split(",")
    found += plugin_places()
    found += [f"file://{Path(folder).absolute()}" for folder in folders]
    return [f"hydra.searchpath=[{','.join(found)}]"] if found else []

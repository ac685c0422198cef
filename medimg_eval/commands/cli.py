"""From the words on the command line to a command and its config, or to one clear sentence."""

from __future__ import annotations

import gc
import importlib
import itertools
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval import __version__
from medimg_eval.commands import COMMANDS
from medimg_eval.configs.names import IN_FOLDERS, paths_of, shortest_names
from medimg_eval.errors import LIST, LeaveError, UsageError, UserError, nearest
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger("medimg_eval")

CONFIGS = "pkg://medimg_eval.configs"
TAKES_VALUE = {
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
}
RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
UNUSABLE = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors of files that a command names, and no fault of the program."""
GROUPS = ("task", "model", "suite", "trainer", "logger", "annotator")


class Words(NamedTuple):
    """A command line taken apart."""

    command: str
    flags: list[str]
    overrides: list[str]


def start(argv: Sequence[str]) -> int:
    """Runs the command line.

    Args:
        argv: the words after the program's name.

    Returns:
        The exit code: 0 done, 1 a case or the command failed, 2 something asked for does not exist, 130 interrupted.
    """
    traced = os.environ.get("HYDRA_FULL_ERROR", "0") not in ("", "0") or "debug=true" in [a.lower() for a in argv]
    words: Words | None = None
    try:
        if "-sc" in argv or "--shell-completion" in argv:
            return _complete(argv)
        words = take_apart(argv)
        if not words.command or {"-h", "--help"} & set(words.flags):
            sys.stdout.write(_help(words.command))
            return 0
        return max((_tell(error, words, traced=traced) for error in _run(words)), default=0)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on from here\n")
        return 130
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        return _tell(error, words, traced=traced)
    finally:
        gc.unfreeze()  # as it was: some libraries complain at exit of what was never collected


def take_apart(argv: Sequence[str]) -> Words:
    """Sorts words into the command, Hydra's flags, and overrides, which Hydra 1.3 wants in one run."""
    flags: list[str] = []
    others: list[str] = []
    words = iter(argv)
    for word in words:
        if word.startswith("-"):
            flags.append(word)
            if word in TAKES_VALUE:
                flags += [value for value in (next(words, None),) if value is not None]
        else:
            others.append(word)
    if "--version" in flags:
        sys.stdout.write(f"medimg_eval {__version__}\n")
        raise SystemExit(0)
    if not others:
        if {"-h", "--help"} >= set(flags):
            return Words("", flags, [])
        raise UsageError(f"no command is named (available: {', '.join(COMMANDS)})")
    command = others.pop(0)
    if command not in COMMANDS:
        raise UsageError(f"there is no command {command!r}{nearest(command, COMMANDS)}")
    plain = next((word for word in others if "=" not in word and not word.startswith("~")), None)
    if plain is not None:
        raise UsageError(f"expected key=value after {command!r}, got {plain!r}")
    return Words(command, flags, others)


def _tell(error: Exception, words: Words | None, *, traced: bool) -> int:
    """Prints what went wrong, and returns the exit code; an error nobody foresaw keeps its traceback."""
    known = explain(error, words)
    if traced or known is None:
        traceback.print_exception(error)
    if known is not None:
        sys.stderr.write(f"medimg_eval: {known}\n")
    if words is not None and isinstance(known, LeaveError) and known.mend:
        again = [words.command, *words.flags, *words.overrides, known.mend]
        sys.stderr.write(f"  python -m medimg_eval {shlex.join(again)}\n")
    return known.exit_code if known is not None else 1


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
    if top not in IN_FOLDERS:
        return UsageError(f"there is no {group or 'config'} {name!r}{nearest(name, options, LIST)}")
    inside = [one for one in paths_of(files("medimg_eval.configs"), top) if one.startswith(f"{below}/")]
    if inside:
        held = ", ".join(one.rpartition("/")[2] for one in inside)
        return UsageError(f"{below!r} is a folder of {top}s; name one of them (available: {held})")
    return UsageError(f"there is no {top} {below!r}{nearest(name, options, LIST)}")


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
    first_lines = UsageError(" ".join(str(chain[0]).split("\n")[:2]).strip())
    unknown = next((link for link in chain if isinstance(link, ConfigAttributeError | ConfigKeyError)), None)
    if words is None or unknown is None:
        return first_lines
    key = next((link.full_key for link in chain if isinstance(link, OmegaConfBaseException) and link.full_key), "")
    try:
        hint = nearest(key, _keys(words, leaving_out=key)).partition(" (")[0]
    except Exception:  # noqa: BLE001 - a hint is not worth a second error
        return first_lines
    shown = f"python -m medimg_eval {words.command} --help shows the keys, +{key}=VALUE adds one"
    return UsageError(f"there is no key {key!r}{hint}; {shown}")


def _keys(words: Words, leaving_out: str) -> list[str]:
    """Every key of the config that the rest of the command line makes."""
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from medimg_eval.configs.sources import short_names

    GlobalHydra.instance().clear()
    own = ("--config-dir", "-cd")
    folders = [value for flag, value in itertools.pairwise(words.flags) if flag in own]
    folders += [flag.partition("=")[2] for flag in words.flags if flag.partition("=")[0] in own and "=" in flag]
    kept = [o for o in words.overrides if o.lstrip("+~").partition("=")[0] not in (leaving_out, "hydra.searchpath")]
    with short_names(), initialize_config_module("medimg_eval.configs", version_base="1.3"):
        config = compose(words.command, [*kept, *_search_path(words, folders)])
    found: list[str] = list(GROUPS)

    def walk(node: Any, prefix: str) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            found.append(f"{prefix}{key}")
            walk(value, f"{prefix}{key}.")

    walk(OmegaConf.to_container(config), "")
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _run(words: Words) -> list[Exception]:
    """Runs the command once, or once for each combination of a multirun; returns what went wrong."""
    import hydra

    from medimg_eval.configs.sources import short_names

    # Hydra would print errors itself and exit with 1 for every one of them; here they are told apart.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    program = sys.argv[0]
    errors: list[Exception] = []

    def job(config: DictConfig) -> None:
        from hydra.core.hydra_config import HydraConfig

        # Lightning starts further ranks with these words: this job's own, also within a multirun.
        own = HydraConfig.get().overrides
        kept = [word for word in own.hydra if not word.startswith("hydra.mode=")]
        flags = [word for word in words.flags if word not in ("-m", "--multirun")]
        sys.argv = [program, words.command, *flags, *kept, *own.task]
        set_up_log(debug=bool(config.debug))
        ranks = {name: os.environ.get(name) for name in RANK_VARIABLES}
        try:
            with trusting(bool(config.get("trust")), allow=_with_trust(sys.argv[1:])):
                _module(f"medimg_eval.commands.{words.command}").run(config)
        except Exception as error:
            # Another launcher runs this in another process, from which only Hydra brings errors back.
            if not HydraConfig.get().launcher["_target_"].endswith("BasicLauncher"):
                raise
            errors.append(error)
        finally:
            _forget_ranks(ranks)

    overrides = [word for word in _forced(words) if not word.startswith("hydra.searchpath=")]
    sys.argv = [program, *words.flags, *overrides, *_search_path(words)]
    with short_names():
        hydra.main(version_base="1.3", config_path=CONFIGS, config_name=words.command)(job)()
    return errors


def _with_trust(words: Sequence[str]) -> str:
    """The command that these words are, for a folder that is trusted."""
    kept = [word for word in words if not word.lstrip("+").startswith("trust=")]
    return shlex.join(["python", "-m", "medimg_eval", *kept, "trust=true"])


def _module(name: str) -> ModuleType:
    """Imports a command. Modules stay, so they are not searched for garbage: now and later that takes 0.7 s."""
    if name in sys.modules:
        return sys.modules[name]
    collected = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if collected:
            gc.enable()


def _forced(words: Words) -> list[str]:
    """The overrides, in a form in which keys can be set that a config leaves to their default.

    A task's YAML states what differs from the defaults of its class, and what its class does not know it refuses when
    it is made. Of a swept group, Hydra looks for keys in the group's default first, before any of the swept options:
    `model=a,b model.x=1` would be refused where the default model has no x.
    """
    open_to = {"task", "annotators", "columns"}
    if {"-m", "--multirun"} & set(words.flags):
        swept = {key for key, _, value in (word.partition("=") for word in words.overrides) if "," in value}
        open_to |= swept & set(GROUPS)
    return [f"++{word}" if _sets_in(word, open_to) else word for word in words.overrides]


def _sets_in(word: str, groups: Collection[str]) -> bool:
    """Whether an override sets keys within one of the groups, one by one or several in braces."""
    key, _, value = word.partition("=")
    group, dot, _ = key.partition(".")
    return group in groups and bool(dot or value.startswith("{"))


def _search_path(words: Words, folders: Sequence[str] = ()) -> list[str]:
    """The override that adds the config packages of installed third parties, and folders."""
    given = next((word for word in words.overrides if word.startswith("hydra.searchpath=")), None)
    found = [] if given is None else given.partition("=")[2].strip("[]").split(",")
    found += sorted(f"pkg://{entry.value}" for entry in entry_points(group="medimg_eval.configs"))
    found += [f"file://{Path(folder).absolute()}" for folder in folders]
    return [f"hydra.searchpath=[{','.join(found)}]"] if found else []


def _forget_ranks(before: Mapping[str, str | None]) -> None:
    """Takes back what Lightning leaves behind in rank 0, or the next job of a multirun would start no ranks."""
    if all(os.environ.get(name) == value for name, value in before.items()):
        return
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def set_up_log(*, debug: bool) -> None:
    """Logs to standard error: rich on a terminal, plain lines elsewhere. Leaves the root logger alone."""
    from rich.console import Console
    from rich.logging import RichHandler

    if sys.stderr.isatty():
        handler: logging.Handler = RichHandler(console=Console(stderr=True), show_path=False, show_level=False)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log.handlers[:] = [handler]  # one, however many jobs a multirun has
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    log.propagate = False


def _help(command: str) -> str:
    configs = files("medimg_eval.configs")
    if not command:
        rows = "\n".join(f"  {name:<9}{text}" for name, text in COMMANDS.items())
        return (
            "usage: python -m medimg_eval COMMAND [key=value ...] [--config-dir DIR] [-m]\n\n"
            f"commands:\n{rows}\n\n"
            "COMMAND --help shows its keys; --cfg job prints the resolved config; -m runs every combination of\n"
            "comma-separated values; --config-dir adds your own folder of configs (task/*.yaml, model/*.yaml).\n"
            'Shell completion: eval "$(medimg-eval -sc install=bash)"\n'
        )
    parts = [f"medimg_eval {command}: {COMMANDS[command]}\n"]
    shown = [command, "base"] + (["work"] if command in ("fit", "test") else [])
    for name in shown:
        text = (configs / f"{name}.yaml").read_text(encoding="utf-8")
        parts.append(f"--- {name}.yaml\n{text.partition('hydra:' + chr(10))[0].rstrip()}\n")
    for group in GROUPS:
        names = sorted(shortest_names(paths_of(configs, group)))
        parts.append(f"{group}=  {', '.join(names)}\n")
    return "\n".join(parts)


def _complete(argv: Sequence[str]) -> int:
    """Completes commands here and the rest by Hydra, which knows nothing of commands."""
    import hydra

    from medimg_eval.configs.sources import short_names

    line = os.environ.get("COMP_LINE", "")
    before = line[: int(os.environ.get("COMP_POINT", len(line)))].split(" ")
    at = next((i for i, word in enumerate(before) if word in COMMANDS), None)
    config_name = "test"
    if line and (at is None or at == len(before) - 1):
        sys.stdout.write(" ".join(name for name in COMMANDS if name.startswith(before[-1])) + "\n")
        return 0
    if at is not None:
        config_name = before.pop(at)
        os.environ["COMP_LINE"] = " ".join(before)
    sys.argv = [sys.argv[0], *argv]
    with short_names():
        hydra.main(version_base="1.3", config_path=CONFIGS, config_name=config_name)(lambda _: None)()
    return 0

"""From the words on the command line to a command and its config, or to one clear sentence."""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.resources import files
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from medimg_eval import __version__
from medimg_eval.commands import COMMANDS, MODULES, PAIRS, POSITIONAL
from medimg_eval.configs.former_keys import READERS, present_words, refuse_former
from medimg_eval.configs.names import CONFIGS, paths_of, shortest_names
from medimg_eval.configs.overrides import GROUPS, Words, emptied, explain, forced, search_path
from medimg_eval.configs.setting_kinds import check_settings
from medimg_eval.errors import LIST, LISTED, LeaveError, UsageError, users_frame
from medimg_eval.system import freeze, uncollected, unfreeze
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger("medimg_eval")

LAUNCHER = "hydra.launcher."
"""Begin of settings of whoever starts the jobs of a multirun."""

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


def start(argv: Sequence[str]) -> int:
    """Runs the command line.

    Args:
        argv: the words after the program's name.

    Returns:
        The exit code: 0 done, 1 a case or the command failed, 2 something asked for does not exist, 130 interrupted,
        143 asked to end by SIGTERM, as `kill`, `docker stop` and clusters do.
    """
    traced = os.environ.get("HYDRA_FULL_ERROR", "0") not in ("", "0") or "debug=true" in [a.lower() for a in argv]
    words: Words | None = None
    ending = Ending()
    try:
        ending.heed()
        if "-sc" in argv or "--shell-completion" in argv:
            return _complete_command(argv)
        words = take_apart(argv)
        if not words.command or {"-h", "--help"} & set(words.flags):
            sys.stdout.write(_command_help(words.command))
            return 0
        return max((_report_error(error, words, traced=traced) for error in _run_command(words)), default=0)
    except KeyboardInterrupt:
        return ending.tell()
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        return _report_error(error, words, traced=traced)
    finally:
        ending.forget()
        unfreeze()  # as it was: some libraries complain at exit of what was never collected


class Ending:
    """SIGTERM handled like Ctrl-C, so runs explain how to resume.

    Attributes:
        asked: whether the signal came.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def heed(self) -> None:
        """Listens from now on; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._interrupt)

    def forget(self) -> None:
        """Puts back what listened before."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def tell(self) -> int:
        """Says how to go on; returns the exit code."""
        sys.stderr.write("interrupted; the same command goes on from here\n")
        return 143 if self.asked else 130

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


def take_apart(argv: Sequence[str]) -> Words:
    """Sorts words into command, Hydra flags and contiguous overrides."""
    flags: list[str] = []
    remaining: list[str] = []
    words = iter(argv)
    for word in words:
        if word.startswith("-"):
            flags.append(word)
            if word in TAKES_VALUE:
                flags += [value for value in (next(words, None),) if value is not None]
        else:
            remaining.append(word)
    if "--version" in flags:
        sys.stdout.write(f"medimg_eval {__version__}\n")
        raise SystemExit(0)
    if not remaining:
        if {"-h", "--help"} >= set(flags):
            return Words("", flags, [])
        raise UsageError(f"no command is named (available: {', '.join(COMMANDS)})")
    command = remaining.pop(0)
    UsageError.refuse_invalid("command", COMMANDS, command)
    if command in POSITIONAL and remaining and "=" not in remaining[0] and not remaining[0].startswith("~"):
        remaining[0] = f"{POSITIONAL[command]}={remaining[0]}"
    if not {"-m", "--multirun"} & set(flags):
        remaining = [
            _bracket_list(word) if word.partition("=")[0] in PAIRS.get(command, ()) else word for word in remaining
        ]
    _refuse_loose_words(command, remaining)
    return Words(command, flags, present_words(command, remaining, lambda text: sys.stderr.write(f"{text}\n")))


def _refuse_loose_words(command: str, words: Sequence[str]) -> None:
    """Raises UsageError for a word without a key; where the shell took a value apart, with the quotes it needs."""
    plain = next((word for word in words if "=" not in word and not word.startswith("~")), None)
    if plain is None:
        return
    at = words.index(plain)
    opened = next((place for place in reversed(range(at)) if {"{", "["} & {*words[place]}), None)
    if opened is not None:
        closed = next((place for place in range(at, len(words)) if {"}", "]"} & {*words[place]}), at)
        quoted = " ".join(words[opened : closed + 1])
        raise UsageError(f"the shell took {quoted!r} apart at its blanks; quote it: '{quoted}'")
    raise UsageError(f"expected key=value after {command!r}, got {plain!r}; {command} --help shows the keys")


def _bracket_list(word: str) -> str:
    """`key=A,B` as a Hydra list; existing lists and quotes stay."""
    key, _, value = word.partition("=")
    if "," not in value or value.lstrip()[:1] in ("[", "'", '"', "{"):
        return word
    names = (name.strip().replace("\\", "\\\\").replace('"', '\\"') for name in value.split(","))
    return f"{key}=[" + ",".join(f'"{name}"' for name in names) + "]"


def _report_error(error: Exception, words: Words | None, *, traced: bool) -> int:
    """Prints an error and returns the exit code; our faults keep tracebacks."""
    explained = explain(error, words)
    if traced or (explained is None and (frame := users_frame(error)) is None):
        traceback.print_exception(error)
    elif explained is None and frame is not None:
        sys.stderr.write(f"medimg_eval: {type(error).__name__}: {error}\n")
        sys.stderr.write(f"  {frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}\n")
        sys.stderr.write("  this is code of your own; debug=true shows how it came there\n")
    if explained is not None:
        sys.stderr.write(f"medimg_eval: {explained}\n")
    if words is not None and isinstance(explained, LeaveError) and explained.mend:
        again = [words.command, *words.flags, *words.overrides, explained.mend]
        sys.stderr.write(f"  python -m medimg_eval {shlex.join(again)}\n")
    return explained.exit_code if explained is not None else 1


class Job:
    """A command for one combination of a multirun; launchers such as submitit's carry it to other processes.

    Attributes:
        words: of the command line.
        program: its name.
        errors: what went wrong in this process.
        fleet: words and configs of runs that are to share this machine's GPUs.
    """

    def __init__(self, words: Words, program: str) -> None:
        self.words, self.program = words, program
        self.errors: list[Exception] = []
        self.fleet: list[tuple[list[str], DictConfig]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Carries the words alone: errors come back as those of the launcher."""
        return Job, (self.words, self.program)

    def __call__(self, config: DictConfig) -> None:
        """Runs the command, or keeps it for the fleet."""
        from hydra.core.hydra_config import HydraConfig

        from medimg_eval.catalogue import searching

        words = self.words
        # Lightning starts further ranks with these words: this job's own, also within a multirun.
        own = HydraConfig.get().overrides
        emptied(config, own.task)
        hydra_words = [word for word in own.hydra if not word.startswith(("hydra.mode=", "hydra/launcher=", LAUNCHER))]
        flags = [word for word in words.flags if word not in ("-m", "--multirun")]
        sys.argv = [self.program, words.command, *flags, *hydra_words, *own.task]
        set_up_log(debug=bool(config.debug))
        if config.get("gpus") is not None:  # programs of their own, which come after all are known
            self.fleet.append((sys.argv[1:], config))
            return
        sources = HydraConfig.get().runtime.config_sources
        locations = [f"{source.schema}://{source.path}" for source in sources if source.schema in ("pkg", "file")]
        try:
            refuse_former(words.command, list(map(str, config)))
            check_settings(words.command, config)
            with trusting(bool(config.get("trust")), allow=_with_trust(sys.argv[1:])), searching(locations):
                _import_command(f"medimg_eval.commands.{MODULES.get(words.command, words.command)}").run(config)
        except Exception as error:
            # Another launcher runs this in another process, from which only Hydra brings errors back.
            if not HydraConfig.get().launcher["_target_"].endswith("BasicLauncher"):
                raise
            self.errors.append(error)


def _run_command(words: Words) -> list[Exception]:
    """Runs a command once or by multirun; returns the error."""
    import hydra

    from medimg_eval.configs.sources import short_names

    # Hydra would print errors itself and exit with 1 for every one of them; here they are told apart.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    job = Job(words, sys.argv[0])
    overrides = [word for word in forced(words) if not word.startswith("hydra.searchpath=")]
    sys.argv = [job.program, *words.flags, *overrides, *search_path(words)]
    with short_names():
        hydra.main(version_base="1.3", config_path=CONFIGS, config_name=words.command)(job)()
    if job.fleet:
        _import_command("medimg_eval.api.fleet").run_fleet(job.fleet)
    return job.errors


def _with_trust(words: Sequence[str]) -> str:
    """The command that these words are, for a folder that is trusted."""
    words_ = [word for word in words if not word.lstrip("+").startswith("trust=")]
    return shlex.join(["python", "-m", "medimg_eval", *words_, "trust=true"])


def _import_command(name: str) -> ModuleType:
    """Imports a command without garbage collection, saving 0.7 s."""
    if name in sys.modules:
        return sys.modules[name]
    with uncollected():
        module = importlib.import_module(name)
        freeze()
    return module


def set_up_log(*, debug: bool) -> None:
    """Sets up logging to standard error, with rich on terminals."""
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


def _command_help(command: str) -> str:
    configs = files("medimg_eval.configs")
    if not command:
        width = max(map(len, COMMANDS)) + 1
        rows = "\n".join(f"  {name:<{width}}{text}" for name, text in COMMANDS.items())
        return (
            "usage: python -m medimg_eval COMMAND [key=value ...] [--config-dir DIR] [-m]\n\n"
            f"commands:\n{rows}\n\n"
            "COMMAND --help shows its keys; --cfg job prints the resolved config; -m runs every combination of\n"
            "comma-separated values; --config-dir adds your own folder of configs (task/*.yaml, model/*.yaml).\n"
            'Shell completion: eval "$(medimg-eval -sc install=bash)"\n'
        )
    parts = [f"medimg_eval {command}: {COMMANDS[command]}\n"]
    shared = dict.fromkeys(("fit", "test", "predict", "utility"), "work") | dict.fromkeys(READERS, "reads")
    groups = [command, *([shared[command]] if command in shared else []), "base"]
    for name in groups:
        text = (configs / f"{name}.yaml").read_text(encoding="utf-8")
        parts.append(f"--- {name}.yaml\n{text.partition('hydra:' + chr(10))[0].rstrip()}\n")
    for group in GROUPS:
        names = ", ".join(sorted(shortest_names(paths_of(configs, group))))
        parts.append(f"{group + '=':<11}{names if len(names) <= LISTED else f'{LIST} {group}s'}")
    return "\n".join(parts) + "\n"


def _complete_command(argv: Sequence[str]) -> int:
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

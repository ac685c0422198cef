"""Starts the program many times for the price of one: a process that has imported the slow libraries forks for each.

What a user's start costs beside that, and that it works from nothing, is tested where the wheel and the start-up are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SLOW = ("hydra", "pandas", "scipy.ndimage", "torch", "lightning.pytorch", "monai.networks.nets", "monai.losses")
"""Libraries whose import takes seconds. None of ours: what a command imports of its own is part of what it does."""


class Started:
    """One start of the program, still under way or ended: what the tests need of `subprocess.Popen`."""

    def __init__(self, ask: Callable[[object], int | None], words: Sequence[str], cwd: Path, env: Mapping[str, str]):
        self._ask = ask
        self._folder = tempfile.TemporaryDirectory()
        self._said = [Path(self._folder.name, name) for name in ("out", "err")]
        out, err = map(str, self._said)
        self.pid = ask({"words": list(words), "cwd": str(cwd), "env": dict(env), "out": out, "err": err})
        self.returncode: int | None = None

    def poll(self, *, wait: bool = False) -> int | None:
        """How it ended; None while it is under way."""
        if self.returncode is None:
            self.returncode = self._ask({"ended": self.pid, "wait": wait})
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To this process alone, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Waits for its end; what it said. Kills it, and what it started, after too many seconds."""
        late = threading.Event()
        clock = threading.Timer(timeout, lambda: (late.set(), os.killpg(self.pid, signal.SIGKILL)))
        clock.start()
        self.poll(wait=True)
        clock.cancel()
        out, err = (one.read_text(encoding="utf-8") for one in self._said)
        self._folder.cleanup()
        if late.is_set():
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return out, err


class Starter:
    """A process that has imported what is slow, and runs the program in a copy of itself when it is asked to."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {root!r}); from tests.helpers.started import serve; serve()"
        self._process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Started:
        """Starts `python -m medimg_eval` with these words, and does not wait for it."""
        return Started(self._ask, words, cwd, env)

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """The same, to its end; what takes too long is killed, and raises TimeoutExpired."""
        started = self.begin(words, cwd, env)
        said = started.communicate(timeout)
        return subprocess.CompletedProcess(["python", "-m", "medimg_eval", *words], started.returncode, *said)

    def _ask(self, request: object) -> int | None:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps(request).encode() + b"\n")
        asked.flush()
        answer: int | None = json.loads(answered.readline())
        return answer

    def close(self) -> None:
        """Lets it go."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()


def serve() -> None:
    """Imports; then each line of standard input starts the program, whose number is said, or asks how one ended."""
    import importlib

    for name in SLOW:
        importlib.import_module(name)
    said = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            child, status = os.waitpid(request["ended"], 0 if request["wait"] else os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if child else None
        else:
            answer = os.fork()
            if answer == 0:
                said.close()
                _become(request)
        said.write(f"{json.dumps(answer)}\n")
        said.flush()


def _become(request: Mapping[str, object]) -> None:
    """Is the program from here on."""
    import runpy

    code = 1
    try:
        os.setpgid(0, 0)
        # Where the tests run in the background they ignore Ctrl-C, and so would this.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(str(request["cwd"]))
        environment = request["env"]
        assert isinstance(environment, dict)
        os.environ.clear()
        os.environ.update(environment)
        for number, name in ((0, os.devnull), (1, str(request["out"])), (2, str(request["err"]))):
            opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        before = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
        # The first two are the tests' own, and the empty one of `python -c`.
        sys.path[:] = [str(Path.cwd()), *before, *sys.path[2:]]
        sys.argv = ["medimg_eval", *map(str, request["words"])]  # type: ignore[call-overload]
        runpy.run_module("medimg_eval", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
    except BaseException:  # noqa: BLE001 - as the interpreter ends
        import traceback

        traceback.print_exc()
    finally:
        import atexit

        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

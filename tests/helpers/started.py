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
from collections.abc import Mapping, Sequence
from pathlib import Path

SLOW = ("hydra", "pandas", "scipy.ndimage", "torch", "lightning.pytorch", "monai.networks.nets", "monai.losses")
"""Libraries whose import takes seconds. None of ours: what a command imports of its own is part of what it does."""


class Starter:
    """A process that has imported what is slow, and runs the program in a copy of itself when it is asked to."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {root!r}); from tests.helpers.started import serve; serve()"
        self._process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs `python -m medimg_eval` with these words; what takes too long is killed, and raises TimeoutExpired."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {"words": list(words), "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
            asked.write(json.dumps(request).encode() + b"\n")
            asked.flush()
            child = int(answered.readline())
            late = threading.Event()
            clock = threading.Timer(timeout, lambda: (late.set(), os.killpg(child, signal.SIGKILL)))
            clock.start()
            code = int(answered.readline())
            clock.cancel()
            said = [one.read_text(encoding="utf-8") for one in (out, err)]
        if late.is_set():
            raise subprocess.TimeoutExpired(list(words), timeout)
        return subprocess.CompletedProcess(["python", "-m", "medimg_eval", *words], code, *said)

    def close(self) -> None:
        """Lets it go."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()


def serve() -> None:
    """Imports, then forks for each line of standard input; says the child's number, and then how it ended."""
    import importlib

    for name in SLOW:
        importlib.import_module(name)
    said = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            said.close()
            _become(request)
        said.write(f"{child}\n")
        said.flush()
        _, status = os.waitpid(child, 0)
        said.write(f"{os.waitstatus_to_exitcode(status)}\n")
        said.flush()


def _become(request: Mapping[str, object]) -> None:
    """Is the program from here on."""
    import runpy

    code = 1
    try:
        os.setpgid(0, 0)
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

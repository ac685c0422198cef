"""A server in an environment of its own: started, waited for, and ended with all that it started, also on a kill."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from medimg_eval.errors import UserError
from medimg_eval.models.command.process import KEPT_ENVIRONMENT, Patience

log = logging.getLogger(__name__)

LOOK_S = 0.2
GUARD = Path(__file__).with_name("guard.py")


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class ServerProcess:
    """A server under way, in a process group that ends with this process.

    Args:
        command: the program and its arguments; no shell reads them.
        is_ready: asks it whether it serves yet.
        patience: `startup_s` until it must, `grace_s` between asking it to end and killing it.
        environment: names of variables that it sees beside the usual ones.
        folder: that it runs in; the current one by default.

    Raises:
        UserError: it cannot be started, ends, or does not serve in time; the message has its last words.
    """

    def __init__(
        self,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        patience: Patience,
        environment: Sequence[str] = (),
        folder: str | None = None,
    ) -> None:
        self.command, self.patience = list(command), patience
        self.lines: deque[str] = deque(maxlen=40)
        environment_ = {name: os.environ[name] for name in (*KEPT_ENVIRONMENT, *environment) if name in os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - a program that the user named
            [sys.executable, "-S", str(GUARD), str(patience.grace_s), *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment_,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self._process.stdout,), name="server", daemon=True).start()
        try:
            self._wait(is_ready)
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """The last lines that it printed, for a message."""
        lines = [line for line in self.lines if line.strip()][-6:]
        return f"; its last words: {' | '.join(lines)}" if lines else ""

    def end(self) -> None:
        """Lets it go: the guard ends the whole group."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(self.patience.grace_s + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            with contextlib.suppress(OSError):
                process.stdout.close()

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        began = reported = time.monotonic()
        while not is_ready():
            now = time.monotonic()
            if not self.is_alive:
                time.sleep(0.05)  # its last words may come after its end
                raise UserError(f"{self.command[0]} ended before it served{self.last_words()}")
            if now - began > self.patience.startup_s:
                raise UserError(f"{self.command[0]} does not serve after {now - began:.0f} s{self.last_words()}")
            if now - reported > 30:
                reported = now
                log.info("waiting for %s since %.0f s%s", self.command[0], now - began, self.last_words())
            time.sleep(LOOK_S)

    def _read(self, stream: IO[bytes] | None) -> None:
        with contextlib.suppress(ValueError, OSError):
            while stream is not None and (line := stream.readline(1 << 16)):
                self.lines.append(line.decode(errors="replace").rstrip())

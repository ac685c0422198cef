"""A program that answers in JSON lines: started, heard, timed out, and ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from medimg_eval.errors import UserError

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 20
STRAY_LINES = 100
"""Lines that are no messages and are passed over before the program says that it is ready."""

KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


class Patience(NamedTuple):
    """How long to wait, in seconds.

    Attributes:
        startup_s: until the program says that it is ready.
        reply_s: of silence while it is asked.
        grace_s: between asking it to end and killing it.
    """

    startup_s: float = 600.0
    reply_s: float = 300.0
    grace_s: float = 10.0


class WorkerError(Exception):
    """Program that ended, fell silent or broke protocol; replies stay."""


class KilledError(UserError):
    """A program was killed before it was ready, such as for memory: another start may go well."""


class WorkerProcess:
    """A program under way.

    Args:
        command: the program and its arguments; no shell reads them.
        hello: the greeting's fields.
        patience: how long to wait.
        environment: names of variables that it sees beside the usual ones.
        folder: that it runs in; the current one by default.

    Raises:
        UserError: it cannot be started, or does not greet back.
    """

    def __init__(
        self,
        command: Sequence[str],
        hello: Mapping[str, Any],
        patience: Patience,
        environment: Sequence[str] = (),
        folder: str | None = None,
    ) -> None:
        self.command, self.patience = list(command), patience
        self._scratch = tempfile.TemporaryDirectory(prefix="medimg_eval-")
        self.scratch = Path(self._scratch.name)
        environment_ = {name: os.environ[name] for name in (*KEPT_ENVIRONMENT, *environment) if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a program that the user named
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment_,
                start_new_session=True,
            )
        except OSError as error:
            self._scratch.cleanup()
            raise UserError(f"model.command cannot be started: {error}") from error
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self.errors: deque[str] = deque(maxlen=40)
        self._start(self._process.stdout, self._take_line)
        self._start(self._process.stderr, lambda line: self.errors.append(line.decode(errors="replace").rstrip()))
        try:
            self.say({"type": "hello", "protocol": [1], "scratch": str(self.scratch), **hello})
            self.ready = self._greeted()
        except WorkerError as error:
            code = self._process.poll()
            self.end()
            kind = KilledError if code is not None and code < 0 else UserError
            raise kind(f"model.command: {error}{self.last_errors()}") from error

    def say(self, message: Mapping[str, Any]) -> None:
        """Sends one message; raises WorkerError where nobody reads it."""
        stream = self._process.stdin
        try:
            assert stream is not None  # noqa: S101 - it was asked for
            stream.write(json.dumps(message, allow_nan=False).encode() + b"\n")
            stream.flush()
        except (OSError, ValueError) as error:
            raise WorkerError(f"the worker reads no more ({self._ended()})") from error

    def ask(self, batch: int, items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yields each `reply` and `failure` until the batch is done.

        Raises:
            WorkerError: the program ended, fell silent, or answers what it was not asked.
        """
        self.say({"type": "ask", "batch": batch, "items": list(items)})
        item_ids = {item["id"] for item in items}
        while True:
            message = self._hear(self.patience.reply_s)
            kind = message.get("type")
            if kind in ("reply", "failure") and message.get("batch") == batch:
                if message.get("id") not in item_ids:
                    raise WorkerError(f"the worker answers {message.get('id')!r}, which was not asked, or twice")
                item_ids.discard(message["id"])
                yield message
            elif kind == "done" and message.get("batch") == batch:
                if item_ids:
                    raise WorkerError(f"the worker is done and left out {len(item_ids)} of {len(items)} items")
                return
            elif kind == "log":
                log.info("worker: %s", message.get("message"))
            elif kind != "alive":
                raise WorkerError(f"the worker says {str(message)[:80]}, which is no answer")

    def last_errors(self) -> str:
        """The last lines of its standard error, for a message."""
        time.sleep(0.05)  # which may come after its end
        lines = [line for line in self.errors if line.strip()][-5:]
        return f"; its last words: {' | '.join(lines)}" if lines else ""

    def end(self) -> None:
        """Ends the program; kills it and its children where it lingers."""
        process = self._process
        if process.poll() is None:
            with contextlib.suppress(WorkerError):
                self.say({"type": "bye"})
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            try:
                process.wait(min(self.patience.grace_s, 2.0))
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self.patience.grace_s)
        self._signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._scratch.cleanup()

    def inside(self, name: Any) -> Path:
        """A file that the program wrote; WorkerError for a link, or outside the folder."""
        path = self.scratch / str(name)
        real = path.resolve()
        if path.is_symlink() or not real.is_relative_to(self.scratch.resolve()) or not real.is_file():
            raise WorkerError(f"the worker names {name!r}, which is no file in the folder it was given")
        return path

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _start(self, stream: IO[bytes] | None, take: Any) -> None:
        def read() -> None:
            with contextlib.suppress(ValueError, OSError):
                while stream is not None and (line := stream.readline(LONGEST_LINE + 1)):
                    take(line)
            if take == self._take_line:
                self._lines.put(None)

        threading.Thread(target=read, name="worker", daemon=True).start()

    def _take_line(self, line: bytes) -> None:
        self._lines.put(line)

    def _hear(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise WorkerError(f"the worker was silent for {seconds:g} s") from None
        if line is None:
            raise WorkerError(f"the worker {self._ended()}")
        if len(line) > LONGEST_LINE:
            raise WorkerError(f"the worker sent a line of more than {LONGEST_LINE} bytes")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise _StrayLineError(f"the worker printed {line[:80].decode(errors='replace')!r} between its messages")
        return message

    def _greeted(self) -> dict[str, Any]:
        until, stray = time.monotonic() + self.patience.startup_s, 0
        while True:
            try:
                message = self._hear(max(0.0, until - time.monotonic()))
            except _StrayLineError:
                stray += 1
                if stray > STRAY_LINES:
                    raise
                continue
            if message.get("type") == "ready" and message.get("protocol") == 1:
                return message
            if message.get("type") == "failure":
                raise WorkerError(f"the worker refuses: {message.get('message')}")

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        code = self._process.returncode
        if code is None:
            return "closed its output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class _StrayLineError(WorkerError):
    """A line that is no message."""

"""Processes that apply one function to many items, each watched by a thread and replaced when it dies.

A process is a program of its own (`worker.py`): it never imports the caller's main module, so that scripts need no
main guard and notebooks work, and it never inherits what a model's process has opened, such as a GPU.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import pickle
import queue
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar

import numpy as np

from medimg_eval.errors import UserError

log = logging.getLogger(__name__)

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")

LARGE = 1 << 16
"""Bytes from which an array travels beside the pickle, uncopied."""

STARTS = 3
"""How often a process is started that is killed before it is ready."""

PATIENCE = 10.0
"""Seconds that a process may take to leave before it is killed."""


_AT_HAND: list[_Process] = []
"""Processes that were started ahead, which `Workers` take first."""


@contextmanager
def started_ahead(function: Callable[[State], object], state: State, count: int) -> Iterator[None]:
    """Starts processes early, as while a model loads; unused ones end.

    Args:
        function: called once by each, so that what it imports is there; what it raises is of no account.
        state: its argument. Where it cannot be sent, nothing is started.
        count: processes.
    """
    started: list[_Process] = []
    with suppress(Exception):  # pickling runs the code of users' classes; what fails here is told when it is needed
        payload = _pickle_object((function, state))
        for _ in range(count):
            started.append(_Process())
            started[-1].tell([], payload, begin=False)
    _AT_HAND.extend(started)
    try:
        yield
    finally:
        for process in started:
            with suppress(ValueError):  # it was taken
                _AT_HAND.remove(process)
                process.kill()
                process.end()


class Workers(Generic[State, Item, Result]):
    """Processes for one function and its state; they start with the first items.

    What is sent is a part: some items at once, which their process hands back together. A part whose process died has
    no results; `retry` then tries its items one by one, with nothing beside them: it may have been the victim of a
    machine short of memory.

    Args:
        function: takes the state and an item; raises nothing that it can tell instead.
        state: sent once to each process. What cannot be sent, such as a class of the main module, is used in this
            process, which the log says.
        count: processes at most; 0 for this process.
        name: of what is done, such as "scoring".
        setting: the user's setting that says how many, for messages.
        modules: are imported by each process first, such as those that register metrics.
    """

    def __init__(
        self,
        function: Callable[[State, Item], Result],
        state: State,
        count: int,
        *,
        name: str,
        setting: str,
        modules: Sequence[str] = (),
    ) -> None:
        self._function, self._state = function, state
        self.count = count
        self._name, self._setting, self._modules = name, setting, modules
        self._payload: bytes | None = None
        self._tickets = 0
        self.left = 0
        """Parts that are not yet in `finished`."""
        self._waiting: queue.SimpleQueue[tuple[int, Sequence[Item]] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[int, list[Result] | None] | BaseException] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._alive: set[_Process] = set()
        self._killed = False

    def submit(self, part: Sequence[Item]) -> int:
        """Queues a part and returns its ticket; starts up to `count` processes."""
        self._prepare(part)
        self._tickets += 1
        self.left += 1
        if self.count == 0:
            self._results.put((self._tickets, [self._function(self._state, item) for item in part]))
            return self._tickets
        self._waiting.put((self._tickets, part))
        if len(self._threads) < self.count:
            thread = threading.Thread(target=self._feed, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self._tickets

    def finished(self, *, wait: bool) -> dict[int, list[Result] | None]:
        """Finished results by ticket, None after a crash; may wait.

        Raises:
            UserError: no process can be started.
        """
        results: dict[int, list[Result] | None] = {}
        while self.left:
            try:
                entry = self._results.get(block=wait and not results)
            except queue.Empty:
                break
            if isinstance(entry, BaseException):
                raise entry
            self.left -= 1
            results[entry[0]] = entry[1]
        return results

    def retry(self, part: Sequence[Item]) -> list[Result | None]:
        """Retries a part's items singly; None where the process died again.

        Raises:
            UserError: no process can be started.
        """
        log.warning("a %s process died; what it was at is tried again, with nothing beside it", self._name)
        self.close()  # the memory of idle processes is the item's too
        alone: Workers[State, Item, Result] = Workers(
            self._function, self._state, 1, name=self._name, setting=self._setting, modules=self._modules
        )
        alone._payload = self._payload
        results: list[Result | None] = []
        try:
            for item in part:
                ticket = alone.submit([item])
                result = alone.finished(wait=True)[ticket]
                results.append(None if result is None else result[0])
        finally:
            alone.kill()
        return results

    def ordered(self, parts: Sequence[Sequence[Item]], ahead: int) -> Iterator[list[Result | None]]:
        """Yields results in order, None after two crashes; then ends processes.

        So many parts may be `ahead`: under way, or waiting to be taken.

        Raises:
            UserError: no process can be started.
        """
        if parts:
            self._prepare(parts[0])
        if self.count == 0:
            for part in parts:
                yield [self._function(self._state, item) for item in part]
            return
        coming = iter(parts)
        under_way: deque[tuple[int, Sequence[Item]]] = deque()
        done: dict[int, list[Result] | None] = {}
        try:
            under_way.extend((self.submit(part), part) for _, part in zip(range(ahead), coming, strict=False))
            while under_way:
                ticket, part = under_way.popleft()
                while ticket not in done:
                    done |= self.finished(wait=True)
                results: Sequence[Result | None] | None = done.pop(ticket)
                if results is None:
                    while self.left:
                        done |= self.finished(wait=True)
                    results = self.retry(part)
                if (following := next(coming, None)) is not None:
                    under_way.append((self.submit(following), following))
                yield list(results)
            self.close()
        finally:
            self.kill()

    def close(self) -> None:
        """Closes processes once the queue is empty, waiting for that."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            with suppress(RuntimeError):  # Ctrl-C came before it was started
                thread.join()
        self._threads, self._waiting = [], queue.SimpleQueue()

    def kill(self) -> None:
        """Ends the processes, whatever they are at."""
        with self._lock:
            self._killed = True
            for process in self._alive:
                process.kill()
        self.close()

    def _prepare(self, part: Sequence[Item]) -> None:
        """Pickles the state once; gives up processes where impossible."""
        if self.count == 0 or self._payload is not None:
            return
        try:
            if "__main__" in self._modules:
                raise _MainModuleError("a metric")  # noqa: TRY301 - said in the same words
            _pickle_object(part)
            self._payload = _pickle_object((self._function, self._state))
        except Exception as error:  # noqa: BLE001 - pickling runs the code of users' classes
            log.info("%s goes on in this process, for %s", self._name, error)
            self.count = 0

    def _feed(self) -> None:
        process: _Process | None = None
        try:
            while (entry := self._waiting.get()) is not None and not self._killed:
                process = process or self._start()
                if process is None:
                    return
                ticket, part = entry
                results = process.work(part)
                if results is None:
                    self._end(process)
                    process = None
                self._results.put((ticket, results))
        except BaseException as error:  # noqa: BLE001 - it is raised where the results are taken
            self._results.put(error)
        finally:
            if process is not None:
                self._end(process)

    def _start(self) -> _Process | None:
        """Starts a process; returns None when all were killed meanwhile."""
        assert self._payload is not None  # noqa: S101 - made before anything is queued
        for _ in range(STARTS):
            with self._lock:
                if self._killed:
                    return None
                try:
                    process = _AT_HAND.pop()
                except IndexError:
                    process = _Process()
                self._alive.add(process)
            if process.ready(self._modules, self._payload) or self._killed:
                return process
            self._end(process)
            if process.exit_code >= 0:  # by itself, as it would again; less than 0 was killed, such as for memory
                break
        raise UserError(
            f"the {self._name} process ended before it began (exit code {process.exit_code}), for a reason it printed "
            f"above; {self._setting}=0 does without such processes"
        )

    def _end(self, process: _Process) -> None:
        with self._lock:
            self._alive.discard(process)
        process.end()


class _Process:
    """One process, as its parent sees it."""

    def __init__(self) -> None:
        own, child_end = socket.socketpair()
        command = [sys.executable, "-P", str(Path(__file__).with_name("worker.py")), str(child_end.fileno())]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, json.dumps([str(folder) for folder in sys.path])],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            own.close()
            raise
        finally:
            child_end.close()  # the process alone holds it now, so that its death is the end of the line
        self._line = Line(own)

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        return self._process.wait()

    def tell(self, modules: Sequence[str], payload: bytes, *, begin: bool) -> None:
        """Sends the state with later items, or alone."""
        self._line.send((list(modules), payload, begin))

    def ready(self, modules: Sequence[str], payload: bytes) -> bool:
        """Tells it what to do; returns whether it has started."""
        try:
            self.tell(modules, payload, begin=True)
            self._line.receive()
        except (EOFError, OSError):
            return False
        return True

    def work(self, part: Sequence[Any]) -> list[Any] | None:
        """Returns a part's results, or None if the process died."""
        try:
            self._line.send(part)
            results: list[Any] = self._line.receive()
        except (EOFError, OSError):
            return None
        return results

    def kill(self) -> None:
        """Ends it, whatever it is at."""
        self._process.kill()

    def end(self) -> None:
        """Lets it go, and waits until it has."""
        with suppress(OSError):
            self._line.send(None)
        self._line.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Line:
    """Connection between a process and its parent: pickles and large arrays.

    Args:
        end: of a pair of connected sockets.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = b""

    def send(self, message: Any) -> None:
        """Sends a picklable object; raises OSError where the other end closed."""
        large: list[memoryview] = []

        def beside(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes < LARGE:
                return True
            large.append(view)
            return False

        body = pickle.dumps(message, 5, buffer_callback=beside)
        head = struct.pack(f"<{2 + len(large)}Q", len(large), len(body), *(view.nbytes for view in large))
        self._end.sendall(head + body)
        for view in large:
            self._end.sendall(view)

    def receive(self) -> Any:
        """Waits for a message; raises EOFError where the other end is closed."""
        (count,) = struct.unpack("<Q", self._take(8))
        size, *sizes = struct.unpack(f"<{1 + count}Q", self._take(8 * (1 + count)))
        body = self._take(size)
        return pickle.loads(body, buffers=[self._array(size) for size in sizes])

    def close(self) -> None:
        """Ends the line, also where another process has inherited this end."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _take(self, size: int) -> bytes:
        """So many bytes; a small message arrives with a single call."""
        while len(self._read) < size:
            read = self._end.recv(max(LARGE, size - len(self._read)))
            if not read:
                raise EOFError
            self._read += read
        taken, self._read = self._read[:size], self._read[size:]
        return taken

    def _array(self, size: int) -> np.ndarray[Any, Any]:
        array = np.empty(size, np.uint8)
        array[: len(self._read)] = np.frombuffer(self._read[:size], np.uint8)
        done, self._read = min(size, len(self._read)), self._read[size:]
        while done < size:
            # All in one call: between two, a busy model would keep this thread waiting.
            read = self._end.recv_into(array.data[done:], size - done, socket.MSG_WAITALL)
            if not read:
                raise EOFError
            done += read
        return array


def serve(descriptor: int) -> None:
    """Loop of a process: takes part after part until it is let go."""
    line = Line(socket.socket(fileno=descriptor))
    modules, payload, begin = line.receive()
    while not begin:
        with suppress(Exception):
            ahead, state = pickle.loads(payload)
            ahead(state)
        modules, payload, begin = line.receive()
    for module in modules:
        importlib.import_module(module)
    function, state = pickle.loads(payload)
    parts: queue.SimpleQueue[Sequence[Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_collect_lines, args=(line, parts), daemon=True).start()
    line.send(True)
    while (part := parts.get()) is not None:
        line.send([function(state, item) for item in part])


def _collect_lines(line: Line, parts: queue.SimpleQueue[Sequence[Any] | None]) -> None:
    # A process would otherwise go on to the end of its part for a parent that was killed.
    try:
        while (part := line.receive()) is not None:
            parts.put(part)
    except (EOFError, OSError):
        os._exit(1)
    except BaseException:  # noqa: BLE001 - such as a class that cannot be imported
        traceback.print_exc()
        os._exit(1)
    parts.put(None)


class _MainModuleError(Exception):
    """Something that no other process can import."""

    def __str__(self) -> str:
        return f"{self.args[0]} is defined in the main module"


class _Pickler(pickle.Pickler):
    """Pickler that refuses the main module's definitions."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type | FunctionType) and thing.__module__ in ("__main__", "__mp_main__"):
            raise _MainModuleError(thing.__qualname__)
        return NotImplemented


def _pickle_object(thing: Any) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, 5).dump(thing)
    return stream.getvalue()

"""Calls of tools beside the model."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from medimg_eval.tools.tool import Tool, ToolResult, call_tool, failed_call


class ToolCalls:
    """Executes tool calls beside the model, one thread per tool.

    A call that takes longer than its tool's `timeout_s` has failed; its thread is left behind, and the next call gets
    another.
    """

    def __init__(self) -> None:
        self._queues: dict[str, SimpleQueue[Any]] = {}

    def start(self, tool: Tool, arguments: Mapping[str, Any]) -> Callable[[float | None], ToolResult | None]:
        """Starts a call; its handle waits seconds, or forever with None.

        The result is None where it is not there yet.
        """
        queue = self._queues.get(tool.name)
        if queue is None:
            queue = self._queues[tool.name] = SimpleQueue()
            threading.Thread(target=_run_pending, args=(queue,), name=f"tool {tool.name}", daemon=True).start()
        pending = _Pending(tool, dict(arguments))
        queue.put(pending)

        def result(wait: float | None = None) -> ToolResult | None:
            while True:
                begun = pending.begun
                remaining = math.inf if begun is None else begun + tool.timeout_s - time.monotonic()
                if pending.done.wait(max(0.0, min(remaining, 0.05 if wait is None else wait))):
                    return pending.result
                if remaining <= 0:
                    if self._queues.get(tool.name) is queue:
                        self._leave_behind(tool.name, queue)
                    message = f"no result within {tool.timeout_s:g} s"
                    return failed_call("timeout", message, tool.timeout_s)
                if wait is not None:
                    return None

        return result

    def _leave_behind(self, name: str, queue: SimpleQueue[Any]) -> None:
        """Gives the calls that wait behind one that hangs to another thread."""
        fresh = self._queues[name] = SimpleQueue()
        while not queue.empty():
            fresh.put(queue.get())
        queue.put(None)
        threading.Thread(target=_run_pending, args=(fresh,), name=f"tool {name}", daemon=True).start()

    def close(self) -> None:
        """Lets idle threads end."""
        for queue in self._queues.values():
            queue.put(None)
        self._queues = {}


class _Pending:
    def __init__(self, tool: Tool, arguments: dict[str, Any]) -> None:
        self.tool, self.arguments = tool, arguments
        self.begun: float | None = None
        self.done = threading.Event()
        self.result: ToolResult | None = None


def _run_pending(queue: SimpleQueue[Any]) -> None:
    while (pending := queue.get()) is not None:
        pending.begun = time.monotonic()
        pending.result = call_tool(pending.tool, pending.arguments)
        pending.done.set()

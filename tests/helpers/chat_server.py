"""A server of chat completions that goes wrong in every way servers do; a process of its own, counted item by item.

`python chat_server.py '{"plans": [[], ["500", "reset"]], "seconds": 0.02}'` prints its port. An item is the last number
in the last text of a request; item n meets the faults of plan n modulo their number, one a request, and is then
answered with "reply to n", unless the last fault is followed by "always". `replies` are pairs of words and a reply,
which answers a last text that holds all of the words. GET /counts tells what was asked and answered.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

STATUSES = {
    "400": "image is too large",
    "401": "Incorrect API key provided: KEY",
    "404": "the model does not exist",
    "409": "conflict",
    "429": "slow down",
    "500": "internal error",
    "503": "no capacity",
}
ANSWERED = {"quota": (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}})}


class State:
    """What has happened so far."""

    def __init__(
        self, plans: Sequence[Sequence[str]], seconds: float, replies: Sequence[tuple[Sequence[str], str]]
    ) -> None:
        self.plans, self.seconds, self.replies = plans, seconds, replies
        self.lock = threading.Lock()
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.under_way = self.most_under_way = 0
        self.bodies: dict[int, Any] = {}
        self.times: list[float] = []
        self.authorization = ""


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        state = self.state
        if self.path == "/v1/models":
            refused = "bad" in self.headers.get("Authorization", "")
            self.send(401 if refused else 200, {"data": [{"id": "tiny"}, {"id": "other"}]})
            return
        with state.lock:
            told = {"asked": state.asked, "answered": state.answered, "under_way": state.under_way}
            told["most_under_way"] = state.most_under_way
            self.send(200, {**told, "bodies": state.bodies, "times": state.times, "key": state.authorization})

    def do_POST(self) -> None:
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        item = item_of(body)
        with state.lock:
            state.times.append(time.monotonic())
            state.authorization = self.headers.get("Authorization", "")
            state.bodies[item] = body
            plan = state.plans[item % len(state.plans)]
            place = min(state.asked[item], len(plan) - 2) if "always" in plan else state.asked[item]
            fault = next(iter(plan[place : place + 1]), "")
            state.asked[item] += 1
            state.under_way += 1
            state.most_under_way = max(state.most_under_way, state.under_way)
        try:
            time.sleep(state.seconds)
            self.meet(fault, item, body)
        finally:
            with state.lock:
                state.under_way -= 1

    def meet(self, fault: str, item: int, body: dict[str, Any]) -> None:
        text = last_text(body)
        fitting = (reply for words, reply in self.state.replies if all(word in text for word in words))
        content = next(fitting, "reply to ITEM").replace("ITEM", str(item))
        reply = {
            "model": "tiny-1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
        reply["choices"][0]["finish_reason"] = "stop"
        status, _, wait = fault.partition(":")
        if not fault:
            self.send(200, reply)
            with self.state.lock:
                self.state.answered[item] += 1
        elif status in STATUSES:
            words = STATUSES[status].replace("KEY", self.headers.get("Authorization", "").removeprefix("Bearer "))
            wait = formatdate(time.time() + 1, usegmt=True) if wait == "date" else wait
            self.send(int(status), {"error": {"message": words}}, **({"Retry-After": wait} if wait else {}))
        elif fault in ANSWERED:
            self.send(*ANSWERED[fault])
        elif fault == "empty":
            self.send(200, reply | {"choices": []})
        elif fault == "html":
            self.send(200, b"<html>gateway</html>")
        elif fault == "truncated":
            self.send(200, json.dumps(reply).encode()[:-20])
        else:
            self.close_connection = True
            getattr(self, fault)(json.dumps(reply).encode())

    def send(self, status: int, body: Any, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def short(self, content: bytes) -> None:
        """Promises more than it sends."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:-20])

    def slow(self, content: bytes) -> None:
        """Sends a byte now and then, so that every single read is in time."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):
            for place in range(len(content)):
                self.wfile.write(content[place : place + 1])
                time.sleep(0.1)

    def reset(self, _: bytes) -> None:
        """Lets the connection go as a server that dies does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def silent(self, _: bytes) -> None:
        """Closes without a word."""


def last_text(body: dict[str, Any]) -> str:
    """The last turn's text."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def item_of(body: dict[str, Any]) -> int:
    """The last number in the last turn's text, 0 where it has none."""
    return int(re.findall(r"\d+", f"0 {last_text(body)}")[-1])


class Running:
    """A server in a process of its own."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._counts = f"http://127.0.0.1:{port}/counts"

    def counts(self) -> dict[str, Any]:
        """What has happened, its keys as JSON has them; `asked` and `answered` by item."""
        with urlopen(self._counts) as response:  # noqa: S310
            told: dict[str, Any] = json.loads(response.read())
        for name in ("asked", "answered", "bodies"):
            told[name] = {int(item): value for item, value in told[name].items()}
        return told


@contextlib.contextmanager
def chat_server(
    plans: Sequence[Sequence[str]] = ((),), seconds: float = 0.0, replies: Sequence[tuple[Sequence[str], str]] = ()
) -> Iterator[Running]:
    """A running server, ended at the end; ITEM in a reply is the number of the item."""
    config = json.dumps({"plans": [list(plan) for plan in plans], "seconds": seconds, "replies": list(replies)})
    command = [sys.executable, "-IS", str(Path(__file__)), config]  # needs no packages, and starts faster without
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Running(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    """Serves until it is killed."""
    config = json.loads(sys.argv[1])
    Handler.state = State(config["plans"], config["seconds"], config.get("replies", ()))
    server = ThreadingHTTPServer(("127.0.0.1", config.get("port", 0)), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()

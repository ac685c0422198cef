"""A server with the command line of vLLM or SGLang, which answers with what it was told and shown.

`fake_engine.py serve MODEL --port P ...` or `fake_engine.py --model-path MODEL --port P ...`. A question that holds
"die" ends it. Where tools are offered and none was called yet, it calls the first one. `FAKE_ENGINE` names a file for
its words, its process and that of a child it starts; `FAKE_FAULT=start` has it end before it serves.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def value(option: str, default: str = "") -> str:
    words = sys.argv
    return words[words.index(option) + 1] if option in words else default


MODEL = sys.argv[2] if sys.argv[1:2] == ["serve"] else value("--model-path")


def adapters() -> list[str]:
    option = next((word for word in ("--lora-modules", "--lora-paths") if word in sys.argv), "")
    rest = sys.argv[sys.argv.index(option) + 1 :] if option else []
    return [word.partition("=")[0] for word in rest[: next((n for n, w in enumerate(rest) if w[:2] == "--"), None)]]


def size_of(url: str) -> list[int]:
    """Width and height of a PNG; raises ValueError for a file that the server may not read."""
    if url.startswith("data:"):
        content = base64.b64decode(url.partition(",")[2])
    else:
        path = Path(unquote(urlparse(url).path)).resolve()
        allowed = value("--allowed-local-media-path")
        if not allowed or not path.is_relative_to(Path(allowed).resolve()):
            raise ValueError(f"{path} is not below --allowed-local-media-path")
        content = path.read_bytes()
    return list(struct.unpack(">II", content[16:24]))


def reply_to(body: dict[str, Any]) -> dict[str, Any]:
    parts = [part for message in body["messages"] for part in _parts(message)]
    text = " ".join(part["text"] for part in parts if part["type"] == "text")
    if "die" in text:
        os._exit(5)
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    results = [message for message in body["messages"] if message["role"] == "tool"]
    usage = {"prompt_tokens": 100 + len(text), "completion_tokens": 7, "total_tokens": 107 + len(text)}
    if body.get("tools") and not results:
        function = body["tools"][0]["function"]
        named = {key: (one.get("enum") or ["x"])[0] for key, one in function["parameters"]["properties"].items()}
        needed = {key: named[key] for key in function["parameters"].get("required", ())}
        call = {"id": "call-a", "type": "function"}
        call |= {"function": {"name": function["name"], "arguments": json.dumps(needed)}}
        message = {"role": "assistant", "content": None, "reasoning": "I look first.", "tool_calls": [call]}
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage, "model": MODEL}
    seen = {"model": body["model"], "sizes": [size_of(url) for url in urls], "kinds": [url[:5] for url in urls]}
    seen |= {"kwargs": body.get("chat_template_kwargs"), "limit": body.get("max_tokens")}
    seen |= {"results": [[one["tool_call_id"], one["content"]] for one in results]}
    message = {"role": "assistant", "content": json.dumps(seen, sort_keys=True)}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage, "model": MODEL}


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"] or ""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        if self.path == "/version":
            self.send(200, {"version": "0.0.fake"})
        else:
            self.send(200, {"data": [{"id": name} for name in (MODEL, *adapters())]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.send(200, reply_to(body))
        except (ValueError, OSError) as error:
            self.send(400, {"error": {"message": str(error)}})

    def send(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    sys.stdout.write("loading weights\n")
    sys.stdout.flush()
    if os.environ.get("FAKE_FAULT") == "start":
        sys.stderr.write("CUDA out of memory: lower gpu_memory_utilization\n")
        sys.exit(1)
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    if path := os.environ.get("FAKE_ENGINE"):
        with Path(path).open("a") as stream:
            stream.write(json.dumps({"words": sys.argv[1:], "pids": [os.getpid(), child.pid]}) + "\n")
    time.sleep(float(os.environ.get("FAKE_STARTUP_S", "0.1")))
    server = ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()

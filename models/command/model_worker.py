"""The worker's side of `model=command`: one file of the standard library, Python 3.8 or newer.

Copy it beside your model, into whichever environment that needs, and end your program with `serve(load, answer)`.
Messages are JSON objects, one a line, on the standard input and output; pixels are files in a folder that both see.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback

PROTOCOL = 1
ALIVE_S = 10.0


class UnanswerableError(Exception):
    """Unanswerable item; `kind` is input, unsupported, oom or model."""

    def __init__(self, message, kind="input"):
        super().__init__(message)
        self.kind = kind


def serve(
    load, answer, name="worker", version="", revision="", capabilities=("generate",), batch=1, media=("image/png",)
):
    """Answers until the harness says goodbye or is gone.

    Args:
        load: called once with the harness's greeting; gives the model.
        answer: called with the model, a list of items and the greeting; gives or yields one answer for each, in order:
            a text, a mapping with `text` and any of `thought`, `finish`, `usage`; or `{"output": PATH}` with the file
            of a mask that it wrote below `item["scratch"]`; or an exception for an item that has none.
        name: of the model.
        version: of the model's code.
        revision: of its weights.
        capabilities: `generate`, `segment`.
        batch: items that it likes to be asked at once.
        media: kinds of files that it reads, the best first: `image/png`, `application/x-npy`, `application/nifti`.
    """
    # Libraries print: what they print goes to the standard error, and the protocol keeps the way out for itself.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    lock = threading.Lock()

    def say(**message):
        line = json.dumps(message, ensure_ascii=True, allow_nan=False)
        with lock:
            out.write(line + "\n")
            out.flush()

    hello = json.loads(sys.stdin.readline() or "{}")
    if hello.get("type") != "hello" or PROTOCOL not in hello.get("protocol", ()):
        say(type="failure", batch=None, id=None, kind="unsupported", message="expected hello of protocol 1")
        return 2
    busy = [None]
    threading.Thread(target=_report_alive, args=(say, busy), daemon=True).start()
    busy[0] = 0
    model = load(hello)
    busy[0] = None
    about = {"name": name, "version": version, "revision": revision, "capabilities": list(capabilities)}
    say(type="ready", protocol=PROTOCOL, batch=batch, media=list(media), **about)
    heard = queue.Queue()
    threading.Thread(target=_read_requests, args=(heard,), daemon=True).start()
    while True:
        message = heard.get()
        if message["type"] == "bye":
            return 0
        if message["type"] != "ask":
            continue
        busy[0] = 0
        for item in message["items"]:
            item["scratch"] = hello["scratch"]
            for image in item.get("images", ()):
                image["path"] = os.path.join(hello["scratch"], image["path"])
        _answer_batch(say, message, lambda items: answer(model, items, hello), busy, hello["scratch"])
        busy[0] = None
        say(type="done", batch=message["batch"])


def _read_requests(heard):
    for line in sys.stdin:
        heard.put(json.loads(line))
    os._exit(1)  # the harness is gone, and nobody waits for what is being computed


def _report_alive(say, busy):
    while True:
        time.sleep(ALIVE_S)
        if busy[0] is not None:
            say(type="alive", done=busy[0])


def _answer_batch(say, message, answer, busy, scratch):
    items, done = message["items"], 0
    try:
        for item, reply_ in zip(items, answer(items)):
            if isinstance(reply_, Exception):
                _report_failure(say, message["batch"], item["id"], reply_)
            else:
                reply = {"text": reply_} if isinstance(reply_, str) else dict(reply_)
                if "output" in reply:
                    reply["output"] = os.path.relpath(reply["output"], scratch)
                say(type="reply", batch=message["batch"], id=item["id"], **reply)
            done += 1
            busy[0] = done
    except Exception as error:
        if len(items) == 1 or _error_kind(error) == "oom":
            for item in items[done:]:
                _report_failure(say, message["batch"], item["id"], error)
            return
        for item in items[done:]:  # one of them is at fault: each alone
            _answer_batch(say, dict(message, items=[item]), answer, busy, scratch)


def _error_kind(error):
    text = "%s %s" % (type(error).__name__, error)
    return getattr(error, "kind", "oom" if "out of memory" in text.lower() or "OutOfMemory" in text else "model")


def _report_failure(say, batch, name, error):
    traceback.print_exception(type(error), error, error.__traceback__)
    say(type="failure", batch=batch, id=name, kind=_error_kind(error), message="%s: %s" % (type(error).__name__, error))

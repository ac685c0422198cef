"""A worker of tests: `python command_worker.py FAULT`; the item whose question holds "bad" meets the fault."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "command"))
from model_worker import UnanswerableError, serve

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def load(hello):
    os.write(1, b"libraries print\n")
    if FAULT == "slow start":
        time.sleep(30)
    if FAULT == "no start":
        raise OSError("no weights")
    if FAULT == "child":
        child = subprocess.Popen(["sleep", "60"])
        Path(os.environ["PID_FILE"]).write_text(str(child.pid))
    return {"loaded": True}


def meet(words):
    """Meets the fault; returns what is written where it is survived."""
    if FAULT == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "exits":
        sys.stderr.write("the reason\n")
        sys.stderr.flush()
        os._exit(3)
    if FAULT == "hangs":
        time.sleep(30)
    if FAULT == "raises":
        raise ValueError("cannot")
    if FAULT == "prints":
        os.write(3, b"stray\n")  # the way out, past all care
    return "x" * (1 << 21) if FAULT == "huge" else words


def answer(model, items, hello):
    if FAULT == "memory" and len(items) > 1:
        raise RuntimeError("CUDA out of memory")
    for item in items:
        if item["capability"] == "segment":
            yield {"output": segment(item)}
            continue
        words = item["messages"][-1]["content"][-1]["text"]
        if "bad" in words and FAULT == "refuses":
            yield UnanswerableError("too small")
            continue
        words = meet(words) if "bad" in words else words
        sys.stdout.write("chatty\n")
        size = Path(item["images"][0]["path"]).stat().st_size
        yield {"text": words.upper(), "finish": "stop", "usage": {"out": 3}, "thought": "seen" if size else ""}


def segment(item):
    if FAULT == "escapes":
        return "/etc/passwd"
    import numpy as np

    image = np.load(item["images"][0]["path"])
    path = Path(item["scratch"]) / (item["id"] + "-mask.npy")
    np.save(path, (image[0] > 5).astype("uint8"))
    return str(path)


if __name__ == "__main__":
    kinds = ("application/x-npy",) if FAULT in {"npy", "escapes"} else ("image/png",)
    able = ("generate", "segment")
    sys.exit(serve(load, answer, name="tester", version="1", capabilities=able, batch=4, media=kinds))

"""A model's program that storms ask by command: `python program.py [judge]`; its words follow from the prompt."""

import os
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "command"))
from model_worker import serve

GREEN = (
    "[Clinically Significant Errors]:\n(b) Missing: {}. x\n\n[Clinically Insignificant Errors]:\nNo.\n\n"
    "[Matched Findings]:\n{}. y"
)


def answer(model, items, hello):
    for item in items:
        time.sleep(0.03 if "judge" in sys.argv else 0.01)
        content = item["messages"][-1]["content"]
        number = zlib.crc32("".join(part.get("text", "") for part in content).encode())
        yield {"text": GREEN.format(number % 3, 1 + number % 4) if "judge" in sys.argv else "ABCD"[number % 4]}


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(serve(lambda hello: {}, answer, name="chaos", version="1", batch=2))

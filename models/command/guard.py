"""Ends a program with all that it started once whoever started this is gone: `python guard.py GRACE_S PROGRAM ...`.

The other end of its standard input is held by who started it;
when that closes, also because its holder was killed, the whole process group is asked to end, and then killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time


def main(grace: float, command: list[str]) -> int:
    """Runs the program to its end, or to that of whoever watches it."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - a program that the user named
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
        return 127
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which it sends to its own group
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it, and reaches this by its end
    threading.Thread(target=_watch_process, args=(process, grace), daemon=True).start()
    code = process.wait()
    sys.stderr.write(f"{command[0]} ended with exit code {code}\n")
    sys.stderr.flush()
    _end_group(process, 0)
    return code


def _watch_process(process: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 4096):
        pass
    _end_group(process, grace)


def _end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + grace
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))

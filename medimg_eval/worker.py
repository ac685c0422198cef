"""The program that a process of `workers` runs: `python worker.py DESCRIPTOR SYS_PATH`."""

import json
import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, and its parent decides
    sys.path[:] = json.loads(sys.argv[2])
    from medimg_eval.workers import serve

    serve(int(sys.argv[1]))

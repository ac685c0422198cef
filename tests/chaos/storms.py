"""Storms over runs: who is killed and when, and what came of it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.chaos.scenarios import SCENARIOS, Scenario

MARK = "MEDIMG_EVAL_STORM"
"""Variable that each process of a storm has."""

BOUND_S = 300.0
"""Within which a run of a second or two comes to its end, however busy the machine and however often it is killed."""

LEFT_S = 60.0
"""Within which no process of a run is left once it has ended."""

MOST = 4
"""Kills in a storm."""

GIVES_UP = 3
"""Kills in a row, before it has begun, after which a process is not started again; the same command goes on."""

ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
"""Asks how a child has ended, and leaves it to be waited for."""

SERVER = str(Path(__file__).parents[1] / "helpers" / "chat_server.py")


class Verdict(NamedTuple):
    """How a run went.

    Attributes:
        kills: that met a process.
        starts: of the run's own processes.
        blamed: cases that have failed though nothing was wrong with them.
        asked_again: whether the same command had to be given again, for those, or since a run gave up.
        fault: what should not be: a hang, an error, other scores, a process that is left; "" for none.
    """

    kills: int
    starts: int
    blamed: int
    asked_again: bool
    fault: str


class Servers:
    """Servers of a pool; who is gone comes again at the same address."""

    def __init__(self, count: int) -> None:
        bound = [socket.socket() for _ in range(count)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        self._ports = [one.getsockname()[1] for one in bound]
        for one in bound:
            one.close()
        self.urls = [f"http://127.0.0.1:{port}/v1" for port in self._ports]
        self._running: list[subprocess.Popen[bytes] | None] = [None] * count

    def keep_up(self) -> None:
        """Starts those that are not there."""
        for place, process in enumerate(self._running):
            if process is None or process.poll() is not None:
                config = json.dumps({"plans": [[]], "seconds": 0.01, "port": self._ports[place]})
                command = [sys.executable, "-IS", SERVER, config]
                self._running[place] = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def end(self) -> None:
        for process in self._running:
            if process is not None:
                process.kill()
                process.wait()


def marked_processes(mark: str, words: str = "") -> list[int]:
    """Processes of a storm, but this one, that are alive and have some words in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}\0".encode() not in (place / "environ").read_bytes() or int(place.name) == os.getpid():
                continue
            command = (place / "cmdline").read_bytes()  # of one that is dead already there is none
            if command and words.encode() in command and b"guard.py" not in command:
                found.append(int(place.name))
    return found


class Storm:
    """One run of a scenario, from the start of its processes to the end of the last.

    Args:
        servers: that the run asks; their addresses are part of what a run is.
        seed: of who is killed when; None for nobody.
        span: seconds within which kills fall.
    """

    def __init__(self, scenario: Scenario, folder: Path, servers: Servers, seed: int | None, span: float) -> None:
        self._scenario, self._folder, self._servers = scenario, folder, servers
        self._mark = folder.name
        dice = self._dice = random.Random(seed)
        self._moments = sorted(dice.uniform(0, span) for _ in range(dice.randint(1, MOST))) if seed is not None else []
        self._children: dict[int, int] = {}
        self._kills = self._starts = 0
        self._gave_up = False

    def run(self) -> Verdict:
        """Brings the run to its end, through all kills; looks at what is left."""
        self._folder.mkdir(parents=True)
        os.environ[MARK] = self._mark
        try:
            fault = self._weather()
            blamed, again = (0, False) if fault else self._look()
            return Verdict(self._kills, self._starts, blamed, again or self._gave_up, fault or self._left())
        finally:
            self._servers.end()
            for process in marked_processes(self._mark):
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            os.environ.pop(MARK)

    def _weather(self) -> str:
        begin = time.monotonic()
        waiting = list(range(self._scenario.parts))
        while waiting or self._children:
            self._servers.keep_up()
            for part in waiting:
                self._begin(part, self._servers.urls)
            waiting = []
            if self._moments and time.monotonic() - begin > self._moments[0]:
                self._moments.pop(0)
                if not self._strike():  # who is to be killed is not there yet, or not any more
                    self._moments.insert(0, time.monotonic() - begin + self._dice.uniform(0.02, 0.2))
            for part, code in self._ended():
                if code and code != -signal.SIGKILL and not self._may_give_up():
                    return f"exit code {code}: {(self._folder / f'said-{part}').read_text()[-2000:]}"
                waiting += [part] if code else []
            if time.monotonic() - begin > BOUND_S:
                return f"a hang: no end in {BOUND_S:.0f} s"
            time.sleep(0.004)
        return ""

    def _may_give_up(self) -> bool:
        """Whether an error is that of a run which has lost too many processes; once in a storm."""
        before, self._gave_up = self._gave_up, True
        return self._kills >= GIVES_UP and not before

    def _ended(self) -> list[tuple[int, int]]:
        """Parts whose process has ended, and its exit code."""
        ended = [child for child in self._children if os.waitid(os.P_PID, child, ENDED) is not None]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ended]
        return [(self._children.pop(child), code) for child, code in zip(ended, codes, strict=True)]

    def _strike(self) -> bool:
        scenario = self._scenario
        victims = marked_processes(self._mark, scenario.victims) if scenario.victims else list(self._children)
        if scenario.servers:
            victims = [victim for victim in victims if victim not in self._children]
        if victims:
            with suppress(OSError):
                os.kill(self._dice.choice(sorted(victims)), signal.SIGKILL)
                self._kills += 1
        return bool(victims)

    def _begin(self, part: int, urls: list[str]) -> None:
        self._starts += 1
        sys.stdout.flush()
        child = os.fork()
        if child:
            self._children[child] = part
            return
        code = 1
        try:
            said = os.open(self._folder / f"said-{part}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.environ["MEDIMG_EVAL_CACHE"] = str(self._folder / "cache")  # what was said in other storms is not known
            self._scenario.work(self._folder, part, urls)
            code = 0
        except BaseException:  # noqa: BLE001 - told by its exit code and its last words
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _look(self) -> tuple[int, bool]:
        """Cases that were blamed; their run is then done once more in quiet."""
        manifest = json.loads((self._folder / "run" / "manifest.json").read_text())
        said = [json.loads(line) for path in (self._folder / "run").glob("evidence-*.jsonl") for line in path.open()]
        blamed = int(manifest.get("failed_cases", 0)) + sum("error" in line for line in said)
        if blamed:
            self._moments = []
            self._weather()
        return blamed, blamed > 0

    def _left(self) -> str:
        end = time.monotonic() + LEFT_S
        servers = self._scenario.servers
        while left := [pid for pid in marked_processes(self._mark) if not (servers and _is_server(pid))]:
            if time.monotonic() > end:
                return f"processes are left: {[_command_of(pid) for pid in left]}"
            time.sleep(0.05)
        return ""


def _command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _is_server(process: int) -> bool:
    return "chat_server.py" in _command_of(process)


def weather(name: str, folder: Path, storms: int, seed: int) -> list[Verdict]:
    """A quiet run of a scenario, then storms over it; the verdict on each storm."""
    scenario = SCENARIOS[name]
    stem = name.replace(" ", "-")
    servers, begin = Servers(scenario.servers), time.monotonic()
    quiet = Storm(scenario, folder / f"{stem}-quiet", servers, None, 0.0).run()
    span = time.monotonic() - begin
    if quiet.fault or quiet.blamed:
        raise RuntimeError(f"{name}: the quiet run went wrong: {quiet}")
    ends = _end_of(folder / f"{stem}-quiet" / "run")
    verdicts = []
    for number in range(storms):
        place = folder / f"{stem}-{number}"
        verdict = Storm(scenario, place, servers, seed + number, span).run()
        if not verdict.fault and _end_of(place / "run") != ends:
            verdict = verdict._replace(fault="other scores or answers")
        verdicts.append(verdict)
        shutil.rmtree(place)
    return verdicts


def _end_of(run: Path) -> tuple[bytes, dict[str, str]]:
    """Scores of a run, and what was answered of each case."""
    lines = [json.loads(line) for path in sorted(run.glob("predictions-*.jsonl")) for line in path.open()]
    return (run / "scores.parquet").read_bytes(), {
        line["case"]: json.dumps(line.get("digest") or line["answer"]["texts"])
        for line in lines
        if "failure" not in line
    }

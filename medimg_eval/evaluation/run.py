"""The run folder: append-only while it grows, whole whenever it is read.

manifest.json         what was run, on what, where; its status
config.yaml           the resolved config, overrides.yaml the command line's part of it
predictions/          one file per case
predictions-R.jsonl   one line per case asked by rank R: its answer, where its prediction lies, or how it failed
judgements-R.jsonl    one line per question to a judge: what it was asked, its reply, and the verdict
scores-R.jsonl        one line per case scored by rank R
scores.parquet        the Score rows, written when every case is accounted for
summary.json          means with intervals, and the failures by name
run.log
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import math
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from medimg_eval.case import Case, Failure, Score
from medimg_eval.errors import UserError
from medimg_eval.metrics import LabelScore, present_name
from medimg_eval.results.runs import SCHEMA, read_manifest
from medimg_eval.trust import place_in

Stored = Path | Mapping[str, Any]
"""A prediction as a run keeps it: the file it lies in, or what its task made of it for the run's own file."""

SECONDS_UNCONFIRMED = 1.0
"""How long a line may be known to the operating system alone."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk, or of one's share of it, that is full."""

LONGEST_NAME = 150
"""Characters of a case's id that its file keeps; file systems allow 255 bytes."""


class Run:
    """One (task, model, settings) on disk.

    Use as a context manager: the folder is this process's alone until it leaves.

    Args:
        folder: where the run lies; made when it is not there.
        run: id, the hash of everything that decides the predictions.
        rank: of this process; only rank 0 writes the manifest and the final files.

    Raises:
        UserError: another process is at work on the folder, or it holds another run.
    """

    def __init__(self, folder: Path, run: str, rank: int = 0) -> None:
        self.folder = folder
        self.run = run
        self.rank = rank
        self._locks: list[FileLock] = []
        self.manifest: dict[str, Any] = {}
        self._made = False
        self._confirmed = -math.inf
        self._log: logging.Handler | None = None
        self._open: dict[str, io.FileIO] = {}

    def __enter__(self) -> Run:
        """Takes the folder, mends what a kill left half-written, and reads the manifest."""
        self._made = self.rank == 0 and not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock()
        except OSError as error:
            raise UserError(
                f"{self.folder}: cannot be written to ({error}); name another place with runs=DIR"
            ) from error
        try:
            self._check()
        except BaseException:
            self._unlock()
            raise
        for name in ("predictions", "scores", "judgements"):
            _drop_partial_line(self._shard(name))
        if self.rank == 0:  # before any other rank writes
            self._log = logging.FileHandler(self.folder / "run.log", encoding="utf-8")
            self._log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logging.getLogger("medimg_eval").addHandler(self._log)
            for partial in (self.folder / "predictions").glob(".[0-9]*"):
                partial.unlink()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Notes how the work ended and lets go of the folder; a full disk is said in a sentence."""
        if kind is not None and self.manifest.get("status") == "running":
            with suppress(OSError):  # of a full disk, which is what has ended it
                self.note(status="interrupted" if issubclass(kind, KeyboardInterrupt) else "failed", ended=now())
        if self._log is not None:
            logging.getLogger("medimg_eval").removeHandler(self._log)
            self._log.close()
        for stream in self._open.values():
            stream.close()
        self._open = {}
        self._unlock()
        if kind is not None and issubclass(kind, UserError) and self._made and not self._worked():
            # Refused before any work was done: an empty run would only clutter tables.
            shutil.rmtree(self.folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise UserError(
                f"{self.folder}: there is no more room ({error}); make some, and the same command goes on from here"
            ) from error

    def _worked(self) -> bool:
        return any(next(self.folder.glob(name), None) for name in ("predictions-*.jsonl", "checkpoints"))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes `config.yaml`."""
        if self.rank == 0:
            OmegaConf.save(OmegaConf.create(dict(config)), self.folder / "config.yaml")

    def note(self, **fields: Any) -> None:
        """Writes fields into the manifest; the file is replaced whole."""
        if self.rank == 0:
            write_json(self.folder / "manifest.json", self.manifest | fields)
            self.manifest |= fields

    def prediction_path(self, case_id: str, suffix: str) -> Path:
        """Where a case's prediction is stored; ids that are no file name are escaped, long ones shortened."""
        folder = self.folder / "predictions"
        folder.mkdir(exist_ok=True)
        name = quote(case_id, safe=" ()+,=@")
        if name.startswith("."):
            name = f"%2E{name[1:]}"
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(case_id.encode()).hexdigest()[:16]}"
        return folder / f"{name}{suffix}"

    def append_predictions(
        self, records: Mapping[str, Stored | Failure], read_with: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Adds one line per case; a kill loses none of them once this returns.

        Args:
            records: by case, its prediction, or how it failed.
            read_with: by case, what its readers mended or doubted.
        """
        self._append(
            "predictions",
            (
                {"case": case_id, "stage": record.stage, "failure": record.message}
                if isinstance(record, Failure)
                else {"case": case_id, **self._located(record)}
                | ({"read_with": list(notes)} if (notes := (read_with or {}).get(case_id)) else {})
                for case_id, record in records.items()
            ),
        )

    def append_scores(self, scored: Mapping[str, Sequence[LabelScore] | Failure], scoring: str) -> None:
        """Adds one line per case; `scoring` is the hash of the settings that judged it."""
        self._append(
            "scores",
            (
                {"case": case_id, "scoring": scoring, "stage": result.stage, "failure": result.message}
                if isinstance(result, Failure)
                else {"case": case_id, "scoring": scoring, "scores": [list(score) for score in result]}
                for case_id, result in scored.items()
            ),
        )

    def _located(self, record: Stored) -> dict[str, Any]:
        if isinstance(record, Path):
            return {"file": record.relative_to(self.folder).as_posix()}
        return {"answer": dict(record)}

    def predictions(self) -> dict[str, Stored | Failure]:
        """What became of each case asked so far, by any rank. An answer beats an earlier failure."""
        found: dict[str, Stored | Failure] = {}
        for line in self._lines("predictions"):
            case_id = line["case"]
            if "answer" in line:
                found[case_id] = line["answer"]
            elif "file" in line:
                path = place_in(self.folder, line["file"])
                if path.is_file():
                    found[case_id] = path
            elif not answered(found.get(case_id)):
                found[case_id] = Failure(case_id, line["stage"], line["failure"])
        return found

    def read_with(self) -> dict[str, list[str]]:
        """By case, what its readers mended or doubted; only cases of which they did."""
        return {line["case"]: line["read_with"] for line in self._lines("predictions") if "read_with" in line}

    def scores(self, scoring: str) -> dict[str, list[LabelScore] | Failure]:
        """What each case scored so far, under the given settings. A score beats an earlier failure."""
        found: dict[str, list[LabelScore] | Failure] = {}
        for line in self._lines("scores"):
            if line["scoring"] != scoring:
                continue
            case_id = line["case"]
            if "scores" in line:
                found[case_id] = [LabelScore(score[0], present_name(score[1]), *score[2:]) for score in line["scores"]]
            elif not isinstance(found.get(case_id), list):
                found[case_id] = Failure(case_id, line["stage"], line["failure"])
        return found

    def append_judgements(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Adds what a judge said; a kill loses none of it once this returns."""
        self._append("judgements", lines)

    def judgements(self) -> list[dict[str, Any]]:
        """What judges have said so far, in the order in which they said it."""
        return list(self._lines("judgements"))

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """By case, name of a judge's question -> verdict, of the judge that the manifest names; the latest holds."""
        judge = self.manifest.get("judge", {}).get("id")
        found: dict[str, dict[str, Any]] = {}
        for line in self._lines("judgements"):
            if line["judge"] == judge:
                found.setdefault(line["case"], {})[line["question"]] = line["value"]
        return found

    def write_scores(self, rows: Sequence[Score]) -> None:
        """Writes `scores.parquet`, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {"value": pa.float64(), "repeat": pa.int64()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in Score.__annotations__])
        partial = self.folder / ".scores.parquet"
        content: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in schema.names}
        try:
            table = pa.Table.from_pydict(content, schema=schema)
        except UnicodeEncodeError:  # half a character, as JSON can hold and files cannot
            table = pa.Table.from_pydict(
                {name: list(map(_writable, column)) for name, column in content.items()}, schema
            )
        pq.write_table(table, partial)
        partial.replace(self.folder / "scores.parquet")

    def _shard(self, name: str) -> Path:
        return self.folder / f"{name}-{self.rank}.jsonl"

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        if name not in self._open:  # once: opening it takes longer than the rest of this
            self._open[name] = io.FileIO(self._shard(name), "a")
        stream = self._open[name]
        left = memoryview("".join(json.dumps(record) + "\n" for record in records).encode())
        while left:
            left = left[stream.write(left) :]
        # A killed process loses nothing that was written; only a machine that stops does, and a disk needs
        # milliseconds to confirm what it has, which is longer than some models need to answer.
        if time.monotonic() - self._confirmed > SECONDS_UNCONFIRMED:
            os.fsync(stream.fileno())
            self._confirmed = time.monotonic()

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        for shard in sorted(self.folder.glob(f"{name}-*.jsonl")):
            with shard.open(encoding="utf-8") as stream:
                for number, line in enumerate(stream, start=1):
                    if line.endswith("\n"):  # another rank may be half-way through its last line
                        try:
                            yield dict(json.loads(line))
                        except (TypeError, ValueError) as error:
                            raise UserError(f"{shard}: line {number} is damaged ({error}); take it out") from error

    def _lock(self) -> None:
        """Takes this rank's lock; rank 0 also makes sure that no rank of an earlier start lives on."""
        own = self.folder / f".rank-{self.rank}.lock"
        lock = FileLock(own)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(self._taken(own)) from None
        self._locks.append(lock)
        write_json(own.with_suffix(".json"), {"pid": os.getpid(), "host": socket.gethostname(), "since": now()})
        if self.rank == 0 and "LOCAL_RANK" not in os.environ:
            for other in sorted(self.folder.glob(".rank-*.lock")):
                if other != own:
                    try:
                        with FileLock(other).acquire(timeout=0):
                            pass
                    except Timeout:
                        self._unlock()
                        raise UserError(self._taken(other)) from None

    def _taken(self, lock: Path) -> str:
        try:
            owner = json.loads(lock.with_suffix(".json").read_text())
            who = f"process {owner['pid']} on {owner['host']}, since {owner['since']}"
        except (OSError, ValueError, KeyError):
            who = "another process"
        return f"{self.folder}: {who} is at work on this run; wait for it, or name another folder with run=DIR"

    def _unlock(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks = []

    def _check(self) -> None:
        path = self.folder / "manifest.json"
        if not path.is_file():
            ours = (".rank-", "run.log", ".manifest.json", "predictions-", "scores-")
            strange = [entry.name for entry in self.folder.iterdir() if not entry.name.startswith(ours)]
            if strange and self.rank == 0:
                raise UserError(
                    f"{self.folder}: holds no run but other files, such as {sorted(strange)[0]!r}; name a new folder"
                )
            return
        self.manifest = read_manifest(path)
        if self.manifest.get("schema") != SCHEMA:
            raise UserError(f"{path}: is no manifest of this version; name another folder with run=DIR")
        if self.manifest["run"] != self.run:
            raise UserError(
                f"{self.folder}: holds run {self.manifest['run']} of {self.manifest['model']!r}, and this would be run "
                f"{self.run}: data, model or settings have changed; leave run= out, or name another folder"
            )


def write_json(path: Path, value: Any) -> None:
    """Writes JSON; the file is replaced whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def answered(record: Stored | Failure | None) -> TypeGuard[Stored]:
    """Whether there is a prediction."""
    return record is not None and not isinstance(record, Failure)


def unanswered(cases: Sequence[Case], predictions: Mapping[str, Stored | Failure]) -> list[Case]:
    """The cases without a prediction; those that failed are tried again."""
    return [case for case in cases if not answered(predictions.get(case.id))]


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _writable(value: Any) -> Any:
    """A text that can be written as UTF-8, its half characters spelt out; anything else as it is."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _drop_partial_line(shard: Path) -> None:
    """Cuts off a last line that a kill left without its end."""
    if not shard.is_file():
        return
    content = shard.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with shard.open("r+b") as stream:
            stream.truncate(whole)

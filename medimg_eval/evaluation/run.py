"""The run folder: append-only while it grows, whole whenever it is read.

manifest.json         what was run, on what, where; how far its stages have come (manifest.py)
config.yaml           the resolved config
predictions/          one file per trial, in one of 256 folders where there are very many
predictions-R.jsonl   one line per trial asked by rank R: its answer, where its prediction lies, or how it failed
steps-R.jsonl         one line per step of a session with tools; images that tools gave lie in steps/
evidence-R.jsonl      one line per thing a judge, annotator, network or extractor was shown: its key, what it said
judgements-R.jsonl    the same of judges, of runs before these lines
scores-R.jsonl        one line per trial and call: what makes these scores fresh, by metric, and the scores
scores.parquet        the Score rows, written when every trial is accounted for
summary.json          means with intervals, and the failures by name
run.log

A shard of its own (shards.py) writes as a rank does, R being shard3of16, and keeps its notes in shard3of16.json.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, Unpack, cast

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from medimg_eval.case import Failure, Score, Trial
from medimg_eval.codecs import Stored, form_of
from medimg_eval.errors import UserError
from medimg_eval.evaluation.manifest import Manifest, Stage, Status
from medimg_eval.evaluation.shards import OWN, Shard, read_notes, with_notes
from medimg_eval.metrics import LabelScore, present_name
from medimg_eval.results.runs import SCHEMA, SCHEMAS, read_manifest
from medimg_eval.system import file_digest, in_group
from medimg_eval.tools.journal import StepJournal
from medimg_eval.trust import place_in

if TYPE_CHECKING:
    from medimg_eval.results import Table

SECONDS_UNCONFIRMED = 1.0
"""How long a line may be known to the operating system alone."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk, or of one's share of it, that is full."""

PASSING_S = 5.0
"""How long a lock may be held by a look at whether it is free."""

MERGING_S = 60.0
"""How long a shard waits for another one that merges."""

FORMER = "schema 1"
"""Key of scores whose line does not say what they rest on."""

Keys = Mapping[str, Sequence[str]]
"""What makes scores fresh: key -> the metrics of one call that share it; see `score.ScoreKeys`."""


@dataclass
class TrialScores:
    """Stored scores of a trial.

    Attributes:
        keys: metric -> what its latest scores rest on; also of metrics that gave none.
        scores: the latest of each metric.
        failure: how the latest call failed, if it did.
    """

    keys: dict[str, str] = field(default_factory=dict)
    scores: list[LabelScore] = field(default_factory=list)
    failure: Failure | None = None


class _Predictions(NamedTuple):
    """Predictions by trial id, read from lines."""

    size: int
    stored: dict[str, Stored | Failure]
    read_with: dict[str, list[str]]
    trials: dict[str, Trial]


class Run:
    """One (task, model, settings) on disk.

    Use as a context manager: the folder is this process's alone until it leaves.

    Args:
        run: id, the hash of everything that decides the predictions.
        rank: of this process; only rank 0 writes the manifest and the final files.
        shard: that this process answers, by itself; it writes the manifest only where there is none.
        beside_shards: whether shards may be at work meanwhile, as while one of them merges.

    Raises:
        UserError: another process is at work on the folder, or it holds another run.
    """

    def __init__(
        self, folder: Path, run: str, rank: int = 0, shard: Shard | None = None, *, beside_shards: bool = False
    ) -> None:
        self.folder = folder
        self.run = run
        self.rank = rank
        self._writer = shard.name if shard else str(rank)
        self._leads = rank == 0 and shard is None
        self._beside_shards = beside_shards
        self._locks: list[FileLock] = []
        self.manifest: Manifest = {}
        self.table: Table | None = None
        """What the run is worth, once it is at its end."""
        self._made = False
        self._read: _Predictions | None = None
        self._digests: dict[str, str] = {}
        self._confirmed = -math.inf
        self._log: logging.Handler | None = None
        self._open: dict[str, io.FileIO] = {}

    def __enter__(self) -> Run:
        """Takes the folder, mends what a kill left half-written, and reads the manifest."""
        self._made = self._leads and not self.folder.exists()
        with UserError.about(self.folder, "cannot be written to", OSError, mend="name another place with runs=DIR"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock()
        try:
            self._check()
        except BaseException:
            self._unlock()
            raise
        for name in ("predictions", "scores", "evidence", "steps"):
            _drop_partial_line(self._lines_file(name))
        if self.rank == 0:  # before any other rank writes
            self._log = logging.FileHandler(self.folder / "run.log", encoding="utf-8")
            self._log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logging.getLogger("medimg_eval").addHandler(self._log)
        if self._leads:
            self._take_in_shards()
            if not self._beside_shards:
                for below in (".[0-9]*", "??/.[0-9]*"):
                    for partial in (self.folder / "predictions").glob(below):
                        partial.unlink()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Records the ending and releases the folder; explains full disks."""
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
        if isinstance(error, OSError) and not self.folder.is_dir():
            raise UserError(
                f"{self.folder}: the folder of this run is gone ({error}); the same command starts it from nothing"
            ) from error
        if isinstance(error, OSError) and error.errno in FULL:
            raise UserError(
                f"{self.folder}: there is no more room ({error}); make some, and the same command goes on from here"
            ) from error

    def _worked(self) -> bool:
        return any(next(self.folder.glob(name), None) for name in ("predictions-*.jsonl", "checkpoints"))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes `config.yaml`."""
        if self._leads:
            OmegaConf.save(OmegaConf.create(dict(config)), self.folder / "config.yaml")

    def note(self, **fields: Unpack[Manifest]) -> None:
        """Writes fields into the manifest, or a shard's notes, atomically."""
        if self.rank == 0:
            name = "manifest.json" if self._leads else f"{self._writer}.json"
            write_json(self.folder / name, {**self.manifest, **fields})
            self.manifest.update(fields)

    def publish(self) -> None:
        """Makes a shard's notes the manifest where there is none."""
        if self.rank == 0 and not self._leads:
            with FileLock(self.folder / ".rank-manifest.lock", timeout=PASSING_S):
                if not (self.folder / "manifest.json").exists():
                    OmegaConf.save(OmegaConf.create(dict(self.manifest["config"])), self.folder / "config.yaml")
                    write_json(self.folder / "manifest.json", self.manifest)

    def _take_in_shards(self) -> None:
        """Takes what shards that are done have noted into the manifest."""
        for notes in sorted(self.folder.glob("shard*of*.json")) if self.manifest else ():
            try:
                with FileLock(self.folder / f".{notes.stem}.lock").acquire(timeout=0):
                    self.note(**with_notes(self.manifest, read_notes(notes)))
                    notes.unlink()
            except Timeout:  # it is still at work
                continue

    @contextmanager
    def stage(self, name: str, of: int) -> Iterator[dict[str, int]]:
        """Notes a stage's start, trials and end in the manifest.

        It yields `done` and `failed`, for the stage to count. That it came to its end is written with whatever is noted
        next: another stage, or the end of the run.
        """
        counts, started = {"done": 0, "failed": 0}, now()

        def stages(status: Status, ended: str | None) -> dict[str, Stage]:
            stage = Stage(status=status, of=of, started=started, ended=ended, **counts)  # type: ignore[typeddict-item]
            return {**self.manifest.get("stages", {}), name: stage}

        self.note(stages=stages("running", None))
        try:
            yield counts
        except BaseException as error:
            with suppress(OSError):  # of a full disk, which is what has ended it
                self.note(stages=stages("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", now()))
            raise
        self.manifest["stages"] = stages("finished", now())

    def append_predictions(
        self,
        records: Mapping[Trial, Stored | Failure],
        read_with: Mapping[Trial, Sequence[str]] | None = None,
        form: str = "",
        shown: Mapping[Trial, Sequence[str]] | None = None,
    ) -> None:
        """Appends one line per trial, durable on return.

        Args:
            records: by trial, its prediction, or how it failed.
            read_with: by trial, what its readers mended or doubted.
            form: that the codec stores predictions in.
            shown: by trial, which slices, frames, volumes or videos the model was shown, in words.
        """
        notes, images = read_with or {}, shown or {}
        lines = (
            self._prediction(trial, record, notes.get(trial), form)
            | ({"shown": list(images[trial])} if trial in images else {})
            for trial, record in records.items()
        )
        self._append("predictions", lines)

    def _prediction(
        self, trial: Trial, record: Stored | Failure, notes: Sequence[str] | None, form: str
    ) -> dict[str, Any]:
        if isinstance(record, Failure):
            return {**_trial_fields(trial), "stage": record.stage, "failure": record.message}
        if isinstance(record, Path):
            self._digests[trial.id] = file_digest(record)[:32]
            file = record.relative_to(self.folder).as_posix()
            stored: dict[str, Any] = {"file": file, "digest": self._digests[trial.id]}
        else:
            stored = {"answer": dict(record)}
        stored |= {"form": form} if form else {}
        return {**_trial_fields(trial), **stored, **({"read_with": list(notes)} if notes else {})}

    def append_scores(self, scored: Iterable[tuple[Trial, Keys, Sequence[LabelScore] | Failure]]) -> None:
        """Appends each trial's scores and freshness key, or its failure."""
        self._append(
            "scores",
            (
                {**_trial_fields(trial), "keys": keys}
                | (
                    {"stage": result.stage, "failure": result.message}
                    if isinstance(result, Failure)
                    else {"scores": result}
                )
                for trial, keys, result in scored
            ),
        )

    def predictions(self) -> dict[str, Stored | Failure]:
        """Predictions by trial, over ranks; answers replace earlier failures."""
        stored = self._predictions().stored
        return {name: value for name, value in stored.items() if not isinstance(value, Path) or value.is_file()}

    def digests(self) -> dict[str, str]:
        """Trial id -> hash of its prediction; what is appended later enters it, too."""
        digests = self._digests
        for name, stored in self._predictions().stored.items():
            if isinstance(stored, Mapping):
                digests[name] = hashlib.blake2b(json.dumps(stored).encode(), digest_size=16).hexdigest()
            elif isinstance(stored, Path) and name not in digests:  # a line of schema 1
                digests[name] = file_digest(stored)[:32]
        return digests

    def trials(self) -> dict[str, Trial]:
        """The trials asked so far, by id."""
        return self._predictions().trials

    def forms(self) -> set[str]:
        """Forms of stored predictions; "" where earlier versions leave it open."""
        return {form_of(line) for line in self._lines("predictions") if "failure" not in line}

    def read_with(self) -> dict[str, list[str]]:
        """Trial id -> readers' repairs and doubts; others are absent."""
        return self._predictions().read_with

    def shown(self) -> dict[str, list[str]]:
        """Trial id -> shown slices, frames, volumes or videos."""
        return {
            Trial(line["case"], line.get("repeat", 0), line.get("condition", "")).id: line["shown"]
            for line in self._lines("predictions")
            if "shown" in line
        }

    def _predictions(self) -> _Predictions:
        """Predictions in the lines; they are read again only when there are more."""
        size = sum(file.stat().st_size for file in self.folder.glob("predictions-*.jsonl"))
        if self._read is None or self._read.size != size:
            predictions = self._read = _Predictions(size, {}, {}, {})
            for line in self._lines("predictions"):
                trial = Trial(line["case"], line.get("repeat", 0), line.get("condition", ""))
                name = trial.id
                predictions.trials[name] = trial
                if "read_with" in line:
                    predictions.read_with[name] = line["read_with"]
                if "answer" in line:
                    predictions.stored[name] = line["answer"]
                elif "file" in line:
                    path = predictions.stored[name] = place_in(self.folder, line["file"])
                    if not path.is_file():
                        del predictions.stored[name]
                    elif "digest" in line:
                        self._digests[name] = line["digest"]
                elif not answered(predictions.stored.get(name)):
                    predictions.stored[name] = Failure(trial.case, line["stage"], line["failure"])
        return self._read

    def scores(self, former: str = "", metrics: Sequence[str] = ()) -> dict[str, TrialScores]:
        """Stored scores of each trial, by its id.

        Args:
            former: hash of the settings under which lines of schema 1 hold.
            metrics: whose scores are taken from such lines.
        """
        scores: dict[str, TrialScores] = {}
        for line in self._lines("scores"):
            if "keys" not in line and line.get("scoring") != former:
                continue
            trial = Trial(line["case"], line.get("repeat", 0), line.get("condition", ""))
            trial_scores = scores.setdefault(trial.id, TrialScores())
            if "scores" not in line:
                trial_scores.failure = Failure(trial.case, line["stage"], line["failure"])
                continue
            keys = {
                present_name(name): key for key, named in line.get("keys", {FORMER: metrics}).items() for name in named
            }
            if trial_scores.scores:
                trial_scores.scores = [score for score in trial_scores.scores if score.metric not in keys]
            rows = [LabelScore(label, present_name(name), *numbers) for label, name, *numbers in line["scores"]]
            trial_scores.scores += rows if "keys" in line else [row for row in rows if row.metric in keys]
            trial_scores.keys |= keys
            trial_scores.failure = None
        return scores

    def journal(self, repeat: int = 0, condition: str = "") -> StepJournal:
        """Steps of a round of trials, with earlier ones; see `StepJournal`."""
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for line in self._lines("steps"):
            steps.setdefault(line["trial"], []).append(line["said"])

        def write(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
            self._append("steps", ({"trial": trial, "said": step} for trial, step in entries))

        def owner(case: str) -> str:
            return Trial(case, repeat, condition).id

        return StepJournal(steps, write, self.folder / "steps", owner)

    def append_evidence(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Adds what providers said; a kill loses none of it once this returns."""
        self._append("evidence", lines)

    def evidence(self) -> Iterator[dict[str, Any]]:
        """Yields provider observations in order; former judges' are separate."""
        for line in self._lines("judgements"):
            topic, _, number = line["question"].rpartition("/")
            part = topic and number.isdigit()
            if line["prompt_id"] == "unasked":  # a verdict put together of others
                continue
            yield {
                "provider": "judge",
                "by": line["judge"],
                "topic": topic if part else line["question"],
                "owner": f"{line['case']}/{number}" if part else line["case"],
                "key": line["prompt_id"],
                **({"value": line["reply"]} if line["prompt_id"] else {"error": line.get("error", "")}),
            }
        yield from self._lines("evidence")

    def write_scores(self, rows: Sequence[Score]) -> None:
        """Writes `scores.parquet`, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {"value": pa.float64(), "repeat": pa.int64()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in Score.__annotations__])
        partial = self.folder / ".scores.parquet"
        content: dict[str, list[Any]] = {name: list(map(attrgetter(name), rows)) for name in schema.names}
        try:
            table = pa.Table.from_pydict(content, schema=schema)
        except UnicodeEncodeError:  # half a character, as JSON can hold and files cannot
            table = pa.Table.from_pydict(
                {name: list(map(_as_utf8, column)) for name, column in content.items()}, schema
            )
        pq.write_table(table, partial)
        partial.replace(self.folder / "scores.parquet")

    def _lines_file(self, name: str) -> Path:
        return self.folder / f"{name}-{self._writer}.jsonl"

    def _append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        if name not in self._open:  # once: opening it takes longer than the rest of this
            self._open[name] = io.FileIO(self._lines_file(name), "a")
        stream = self._open[name]
        remaining = memoryview("".join(json.dumps(record) + "\n" for record in records).encode())
        while remaining:
            remaining = remaining[stream.write(remaining) :]
        # A killed process loses nothing that was written; only a machine that stops does, and a disk needs
        # milliseconds to confirm what it has, which is longer than some models need to answer.
        if time.monotonic() - self._confirmed > SECONDS_UNCONFIRMED:
            os.fsync(stream.fileno())
            self._confirmed = time.monotonic()

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        files = sorted(self.folder.glob(f"{name}-*.jsonl"))
        files.sort(key=lambda path: path.name == f"{name}-0.jsonl")  # rank 0 scores again, and the last word holds
        for path in files:
            with path.open(encoding="utf-8") as stream:
                for number, line in enumerate(stream, start=1):
                    if line.endswith("\n"):  # another rank may be half-way through its last line
                        try:
                            yield dict(json.loads(line))
                        except (TypeError, ValueError) as error:
                            raise UserError(f"{path}: line {number} is damaged ({error}); take it out") from error

    def _lock(self) -> None:
        """Takes this process's lock; rank 0 refuses other starts."""
        own = self.folder / (f".rank-{self._writer}.lock" if self._is_rank else f".{self._writer}.lock")
        patience = MERGING_S if self._beside_shards else 0 if self._is_rank else PASSING_S
        lock = FileLock(own)
        try:
            lock.acquire(timeout=patience)
        except Timeout:
            raise UserError(self._taken(own)) from None
        self._locks.append(lock)
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": now(), "merges": self._beside_shards}
        write_json(own.with_suffix(".json"), owner)
        for process in self._others(own):
            if _is_held(process, 0 if self._is_rank else PASSING_S):
                if not self._is_rank and read_notes(process.with_suffix(".json")).get("merges"):
                    continue
                self._unlock()
                raise UserError(self._taken(process))

    def has_shards_at_work(self) -> bool:
        """Whether a shard still works; the last one gets False."""
        return any(_is_held(path) for path in self.folder.glob(".shard*.lock"))

    @property
    def _is_rank(self) -> bool:
        return self._writer == str(self.rank)

    def _others(self, own: Path) -> list[Path]:
        """Locks that must be free beside this process's own."""
        if not self._is_rank:
            return [self.folder / ".rank-0.lock"]
        if self._beside_shards or self.rank != 0:
            return []
        ranks = [] if in_group() else sorted(self.folder.glob(".rank-[0-9]*.lock"))
        return [path for path in (*ranks, *sorted(self.folder.glob(".shard*.lock"))) if path != own]

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
            ours: tuple[str, ...] = (
                ".rank-",
                "run.log",
                ".manifest.json",
                "predictions-",
                "scores-",
                "evidence-",
                "steps",
            )
            ours += (".shard", "shard", "..rank-", "..shard")  # the last two: a kill came while the owner was written
            ours += ("config.yaml",) if any(self.folder.glob("shard*of*.json")) else ()
            strange = [entry.name for entry in self.folder.iterdir() if not entry.name.startswith(ours)]
            if strange and self.rank == 0:
                raise UserError(
                    f"{self.folder}: holds no run but other files, such as {sorted(strange)[0]!r}; name a new folder"
                )
            return
        self.manifest = cast("Manifest", read_manifest(path))
        if not self._is_rank:
            facts: dict[str, Any] = {key: value for key, value in self.manifest.items() if key not in OWN}
            notes = read_notes(self.folder / f"{self._writer}.json")
            own_notes = notes if notes.get("run") == self.manifest.get("run") else {}
            self.manifest = cast("Manifest", {**facts, "resumed": [], **own_notes})
        if self.manifest.get("schema") not in SCHEMAS:
            schema = self.manifest.get("schema")
            raise UserError(
                f"{path}: has schema {schema!r}, this version reads {SCHEMA}; name another folder by run=DIR"
            )
        if self.manifest["run"] != self.run:
            key = "out" if self.manifest.get("command") == "predict" else "run"
            raise UserError(
                f"{self.folder}: holds run {self.manifest['run']} of {self.manifest['model']!r}, and this would be run "
                f"{self.run}: data, model or settings have changed; leave {key}= out, or name another folder"
            )


def write_json(path: Path, value: Any) -> None:
    """Writes JSON; the file is replaced whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def _trial_fields(trial: Trial) -> dict[str, Any]:
    """How a line names a trial."""
    case, repeat, condition = trial
    if not (repeat or condition):
        return {"case": case}
    return {"case": case, "repeat": repeat, "condition": condition}


def answered(record: Stored | Failure | None) -> TypeGuard[Stored]:
    """Whether there is a prediction."""
    return record is not None and not isinstance(record, Failure)


def _is_held(lock: Path, patience_s: float = 0) -> bool:
    """Whether another process holds a lock, still after so many seconds."""
    try:
        with FileLock(lock).acquire(timeout=patience_s):
            return False
    except Timeout:
        return True


def now() -> str:
    """The time in UTC, to the millisecond, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _as_utf8(value: Any) -> Any:
    """Text for UTF-8, with lone surrogates spelt out."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _drop_partial_line(shard: Path) -> None:
    """Cuts off a last line that a kill left without its end."""
    if not shard.is_file():
        return
    content = shard.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        with shard.open("r+b") as stream:
            stream.truncate(end)

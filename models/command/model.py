"""A model in an environment or container of its own, asked over JSON lines."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Image, Mask, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Model
from medimg_eval.models.command.process import KilledError, Patience, WorkerError, WorkerProcess
from medimg_eval.question import Decoding, Turn, Usage

log = logging.getLogger(__name__)

MEDIA = ("image/png", "application/x-npy", "application/nifti")
USAGE = {"in": "input", "out": "output", "thought": "thought", "cached": "cached"}


class CommandModel(Model):
    """Long-lived program asked in batches.

    `models/command/model_worker.py` is the program's side.

    A program that dies is started again; the item at which it dies is found by halves, is asked once more, and then
    fails alone, with the exit code and the last words of its standard error. It is a process group of its own, which
    is ended whole.

    Args:
        command: the program and its arguments, such as `[env/bin/python, worker.py]`; no shell reads them.
        files: of the program and its weights, whose content identifies a run.
        environment: names of variables that the program sees beside `PATH`, `HOME` and a few like them.
        folder: that it runs in.
        batch: items at once; None for what the program prefers.
        startup_s: until it must say that it is ready.
        reply_s: of silence while it is asked, after which it is killed.
        grace_s: between asking it to end and killing it.
        restarts: in a row, without an answer between them.

    Raises:
        UsageError: there is no command.
    """

    uses_torch = False
    file_arguments: ClassVar[tuple[str, ...]] = ("files",)
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch", "startup_s", "reply_s", "grace_s", "restarts", "environment")

    def __init__(
        self,
        command: Sequence[str],
        *,
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        folder: str | None = None,
        batch: int | None = None,
        startup_s: float = 600.0,
        reply_s: float = 300.0,
        grace_s: float = 10.0,
        restarts: int = 3,
    ) -> None:
        if isinstance(command, str) or not command:
            raise UsageError("model.command is a list, such as [env/bin/python,worker.py]")
        self.command, self.files, self.environment = [str(word) for word in command], list(files), list(environment)
        self.folder, self.preferred_batch, self.restarts = folder, batch or 1, restarts
        self._patience = Patience(startup_s, reply_s, grace_s)
        self._worker: WorkerProcess | None = None
        self._finalizer: Any = None
        self._batch, self._failed_starts, self._most = 0, 0, 1 << 30
        self._held: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._batch_is_given = batch is not None

    def check_ready(self) -> None:
        """Starts the program; raises UserError where it does not come up."""
        self._started()

    def usage(self) -> Mapping[str, Any]:
        """Identity of the program by its own words: name, version, revision."""
        return dict(self._about)

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Has the program write; see `VisionLanguageModel.generate`.

        Raises:
            CaseError: there is no answer to a prompt.
            UserError: the program cannot write, or does not stay up.
        """
        about = {"decoding": asdict(decoding)}
        return [_make_turn(reply) for reply in self._ask("generate", prompts, about)]

    def segment(self, prompts: Prompts) -> list[Array | Mask]:
        """Has the program segment; see `Segmenter.segment`."""
        return [reply["mask"] for reply in self._ask("segment", prompts, {})]

    def close(self) -> None:
        """Ends the program."""
        if self._worker is not None:
            self._finalizer.detach()
            self._worker.end()
            self._worker = None

    def _started(self) -> WorkerProcess:
        if self._worker is None:
            worker = self._start()
            self._worker, self._finalizer = worker, weakref.finalize(self, worker.end)
            self._about = {name: worker.ready.get(name, "") for name in ("name", "version", "revision")}
            if not self._batch_is_given:
                self.preferred_batch = max(1, int(worker.ready.get("batch", 1)))
        return self._worker

    def _start(self) -> WorkerProcess:
        """A new process of the program; one that was killed before it was ready is started again."""
        for _ in range(self.restarts):
            try:
                return WorkerProcess(self.command, {"run": ""}, self._patience, self.environment, self.folder)
            except KilledError as error:
                log.warning("the worker is started again: %s", error)
        return WorkerProcess(self.command, {"run": ""}, self._patience, self.environment, self.folder)

    def _ask(self, capability: str, prompts: Prompts, about: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Replies in order; after failures items are asked one by one."""
        worker = self._started()
        if capability not in worker.ready.get("capabilities", ()):
            capabilities = ", ".join(worker.ready.get("capabilities", ())) or "nothing"
            raise UserError(f"{self.command[0]}: the worker can {capabilities}, and {capability} is asked of it")
        keys = [_request_key(capability, prompt, about) for prompt in prompts]
        if len(prompts) == 1 and keys[0] in self._held:
            replies = {keys[0]: self._held.pop(keys[0])}
        else:
            self._held.clear()
            replies = self._collect(capability, dict(zip(keys, prompts, strict=True)), about)
        failed = [replies[key] for key in keys if isinstance(replies[key], Exception)]
        if failed:
            if len(prompts) > 1:
                self._held = replies
            raise failed[0]
        return [replies[key] for key in keys]

    def _collect(self, capability: str, prompts: Mapping[str, Prompt], about: Mapping[str, Any]) -> dict[str, Any]:
        replies: dict[str, Any] = {}
        suspects: set[str] = (
            set()
        )  # items that alone were left when the program died; it may have been killed for others
        waiting = [list(prompts)]
        while waiting:
            keys = [key for key in waiting.pop(0) if key not in replies]
            if len(keys) > self._most:
                waiting[:0] = [keys[: self._most], keys[self._most :]]
                continue
            if not keys:
                continue
            try:
                self._ask_once(capability, {key: prompts[key] for key in keys}, about, replies)
            except WorkerError as error:
                words = f"{error}{self._worker.last_errors() if self._worker else ''}"
                self.close()
                remaining = [key for key in keys if key not in replies]
                self._failed_starts = 1 if len(remaining) < len(keys) else self._failed_starts + 1
                if len(remaining) == 1 and remaining[0] in suspects:
                    replies[remaining[0]] = CaseError(f"case {prompts[remaining[0]].case_id!r}: {words}")
                    self._failed_starts = 0
                elif self._failed_starts > self.restarts + len(keys).bit_length():
                    raise UserError(f"{self.command[0]} died {self._failed_starts} times: {words}") from error
                else:
                    log.warning("the worker is started again: %s", words)
                    suspects.update(remaining if len(remaining) == 1 else ())
                    waiting[:0] = [remaining[: len(remaining) // 2], remaining[len(remaining) // 2 :]]
            else:
                self._failed_starts = 0
                remaining = [key for key in keys if key not in replies]  # of which there was not memory enough
                if remaining:
                    self._most = max(1, len(keys) // 2)
                    waiting.insert(0, remaining)
        return replies

    def _ask_once(
        self, capability: str, prompts: Mapping[str, Prompt], about: Mapping[str, Any], found: dict[str, Any]
    ) -> None:
        """Asks one batch; items short of memory in it are omitted."""
        worker = self._started()
        self._batch += 1
        names = {f"{self._batch}-{index}": key for index, key in enumerate(prompts)}
        medium = next((kind for kind in worker.ready.get("media", ()) if kind in MEDIA), "image/png")
        items = [
            {"id": name, "capability": capability, **about, **self._written(worker, name, prompts[key], medium)}
            for name, key in names.items()
        ]
        try:
            for message in worker.ask(self._batch, items):
                key = names[message["id"]]
                prompt = prompts[key]
                if message["type"] == "reply":
                    found[key] = self._read(worker, capability, prompt, message)
                elif message.get("kind") != "oom" or len(prompts) == 1:
                    found[key] = CaseError(f"case {prompt.case_id!r}: {message.get('message')}")
        finally:
            for path in worker.scratch.glob("*"):
                if not path.is_dir():
                    path.unlink(missing_ok=True)

    def _written(self, worker: WorkerProcess, name: str, prompt: Prompt, medium: str) -> dict[str, Any]:
        """A prompt as JSON holds it, its images as files."""
        images = [
            write_image(image, worker.scratch, f"{name}-{index}", medium) for index, image in enumerate(prompt.images)
        ]
        messages = [
            {
                "role": message.role,
                "content": [{"text": part} if isinstance(part, str) else {"image": part} for part in message.parts],
            }
            for message in prompt.messages
        ]
        labels = {str(number): label for number, label in prompt.labels.items()}
        return {"images": images, "messages": messages, "options": dict(prompt.options), "labels": labels}

    def _read(
        self, worker: WorkerProcess, capability: str, prompt: Prompt, message: Mapping[str, Any]
    ) -> dict[str, Any] | CaseError:
        if capability == "generate":
            if not isinstance(message.get("text"), str):
                return CaseError(f"case {prompt.case_id!r}: the worker's reply holds no text")
            return dict(message)
        try:
            return {"mask": read_mask(worker.inside(message.get("output")))}
        except (ValueError, OSError, EOFError) as error:
            return CaseError(f"case {prompt.case_id!r}: the worker's mask cannot be read ({error})")


def write_image(image: Image, folder: Path, stem: str, medium: str) -> dict[str, Any]:
    """Writes an image for a worker; returns path and description."""
    about = {"media": medium, "affine": np.asarray(image.affine).tolist(), "units": image.units}
    if medium == "image/png":
        name = f"{stem}.png"
        as_picture(image).save(folder / name, compress_level=1)
    elif medium == "application/nifti":
        name = f"{stem}.nii.gz"
        image.to_nibabel().to_filename(folder / name)
    else:
        name = f"{stem}.npy"
        np.save(folder / name, image.array, allow_pickle=False)
    return {"path": name, **about}


def read_mask(path: Path) -> Array | Mask:
    """Reads a worker's label map: `.npy`, or NIfTI with affine."""
    if path.name.endswith((".nii", ".nii.gz")):
        import nibabel as nib

        loaded: Any = nib.load(path)
        return Mask(np.asarray(loaded.dataobj), np.asarray(loaded.affine))
    array: Array = np.load(path, allow_pickle=False)
    return array


def _make_turn(reply: Mapping[str, Any]) -> Turn:
    usage_ = reply.get("usage") or {}
    counts = {ours: usage_.get(theirs) for theirs, ours in USAGE.items()}
    usage = Usage(**counts, seconds=reply.get("seconds"))
    return Turn(reply["text"], thought=reply.get("thought"), finish=str(reply.get("finish") or ""), usage=usage)


def _request_key(capability: str, prompt: Prompt, about: Mapping[str, Any]) -> str:
    written = repr((capability, prompt.case_id, prompt.messages, about))
    return hashlib.sha256(written.encode()).hexdigest()

"""Asks a model about cases and hands its answers on. Imports no Lightning."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn

from medimg_eval.case import Case, Failure, Prompt
from medimg_eval.data.prompts import PreparedCase
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.progress import Counted, tracked
from medimg_eval.evaluation.run import Run, Stored
from medimg_eval.evaluation.scoring import Scorer
from medimg_eval.models import Model
from medimg_eval.tasks.base import Task, one_each

log = logging.getLogger(__name__)


class Predictor:
    """Asks for each batch, stores what is answered before the next one, and queues it for scoring.

    Args:
        task: what is asked.
        model: who answers, on its device.
        run: where predictions go.
        scorer: who judges them.
    """

    def __init__(self, task: Task, model: Model, run: Run, scorer: Scorer) -> None:
        self.task, self.run, self.scorer = task, run, scorer
        self.model = model
        self.seconds_in_model = 0.0
        """Time spent in `generate`, `choose`, `embed` and `classify`."""
        self.start()
        self._most: int | None = None

    def start(self) -> None:
        """Starts the clock of `seconds`: what came before, such as loading the model, is no part of asking."""
        self.seconds, self._begun = 0.0, time.perf_counter()

    def step(self, batch: Sequence[PreparedCase]) -> None:
        """Predictions are on disk when this returns."""
        prompts = [(prepared.case, prepared.prompt) for prepared in batch if isinstance(prepared.prompt, Prompt)]
        results: dict[str, Stored | Failure] = {
            prepared.case.id: prepared.prompt for prepared in batch if isinstance(prepared.prompt, Failure)
        }
        notes = {case.id: [note for image in prompt.images for note in image.notes] for case, prompt in prompts}
        for (case, _), answer in zip(prompts, self._ask([prompt for _, prompt in prompts]), strict=True):
            results[case.id] = answer if isinstance(answer, Failure) else self._keep(case, answer)
            notes[case.id] += getattr(answer, "notes", ())  # such as classes that a translation has dropped
        self.run.append_predictions(results, notes)
        for result in results.values():
            if isinstance(result, Failure):
                log.warning("case %s failed (%s): %s", result.case_id, result.stage, result.message)
        for prepared in batch:
            prediction = results[prepared.case.id]
            if isinstance(prediction, Path):  # what is kept in one file together is judged together, at the end
                self.scorer.submit(prepared.case, prediction)
        self.seconds = time.perf_counter() - self._begun

    def _ask(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        """One answer or Failure per prompt.

        When a batch fails, its cases are asked one by one. When it does not fit into memory, halves of it are tried,
        and no larger batch is from then on.
        """
        if not prompts:
            return []
        most = self._most  # the first part may lower it
        if most is not None and len(prompts) > most:
            return [*self._ask(prompts[:most]), *self._ask(prompts[most:])]
        try:
            return one_each(self.task.ask(_Timed(self.model, self._count), prompts), prompts)
        except Exception as error:
            if isinstance(error, UserError) and not isinstance(error, CaseError):
                raise  # such as a key that is refused: no other prompt would fare better
            if len(prompts) > 1 and not _out_of_memory(error):
                return [answer for prompt in prompts for answer in self._ask([prompt])]
            if len(prompts) == 1:
                log.debug("case %s", prompts[0].case_id, exc_info=True)
                message = str(error) if isinstance(error, CaseError) else f"{type(error).__name__}: {error}"
                return [Failure(prompts[0].case_id, "answer", message)]
        # Only here is the error gone, and with it what it holds of the device's memory.
        self._most = len(prompts) // 2
        log.warning("out of memory with %d prompts at once; goes on with %d", len(prompts), self._most)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return self._ask(prompts)

    def _count(self, seconds: float) -> None:
        self.seconds_in_model += seconds

    def _keep(self, case: Case, answer: Any) -> Stored | Failure:
        try:
            prediction = self.task.accept(case, answer)
        except CaseError as error:
            return Failure(case.id, "check", str(error))
        except Exception as error:
            log.debug("case %s", case.id, exc_info=True)
            message = f"case {case.id!r}: the answer is no prediction ({type(error).__name__}: {error})"
            return Failure(case.id, "check", message)
        if self.task.inline:
            return self.task.pack(prediction)
        path = self.run.prediction_path(case.id, self.task.prediction_suffix)
        self.task.write(prediction, path)
        return path


def ask_here(asker: Predictor, batches: Counted[Sequence[PreparedCase]], trainer: Mapping[str, Any]) -> None:
    """Asks in this process alone, as Lightning would on one device, without the seconds that importing it takes.

    Args:
        asker: asks.
        batches: of prompts.
        trainer: the trainer's settings, of which `accelerator` and `precision` count.
    """
    device = device_of(str(trainer.get("accelerator", "auto")))
    with in_use(asker.model, device, str(trainer.get("precision", "32-true"))):
        asker.start()
        gc.freeze()  # what is loaded stays; to search it for garbage would take 0.2 s, between two questions
        try:
            for batch in tracked(batches, "asking"):
                asker.step(batch)
        finally:
            gc.unfreeze()


@contextmanager
def in_use(model: Any, device: torch.device, precision: str) -> Iterator[None]:
    """Evaluation mode, no gradients, on a device, in the precision of a run; the mode is put back."""
    kinds = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    with torch.inference_mode(), torch.autocast(device.type, kinds.get(precision), enabled=precision in kinds):
        if not isinstance(model, nn.Module):
            yield
            return
        training = model.training
        model.to(device).eval()
        try:
            yield
        finally:
            model.train(training)


def device_of(accelerator: str) -> torch.device:
    """The device that Lightning takes for the name of an accelerator."""
    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()):
        return torch.device("cuda")
    if accelerator == "mps" or (accelerator == "auto" and torch.backends.mps.is_available()):
        return torch.device("mps")
    return torch.device("cpu")


def parameter_count(model: Model) -> int | None:
    """Number of parameters, or None for a model that is not an `nn.Module`."""
    return sum(parameter.numel() for parameter in model.parameters()) if isinstance(model, nn.Module) else None


class _Timed:
    """A model whose answers are timed."""

    def __init__(self, model: Model, count: Callable[[float], None]) -> None:
        self._model, self._count = model, count

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        if name not in ("generate", "choose", "embed", "classify") or not callable(found):
            return found

        @wraps(found)
        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return found(*arguments)
            finally:
                self._count(time.perf_counter() - begin)

        return timed


def _out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()

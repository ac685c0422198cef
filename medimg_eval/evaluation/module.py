"""The Lightning module that asks a model and hands its answers on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from torch import nn

from medimg_eval.case import Case, Failure, Prompt
from medimg_eval.data.module import Asked
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.scoring import Scorer
from medimg_eval.models import Model
from medimg_eval.tasks.base import Task

log = logging.getLogger(__name__)


class EvaluationModule(pl.LightningModule):
    """Asks for each batch, stores what is answered before the next one, and queues it for scoring.

    Args:
        task: what is asked.
        model: who answers; when it is an `nn.Module`, Lightning moves it to the device.
        run: where predictions go.
        scorer: who judges them.
    """

    def __init__(self, task: Task, model: Model, run: Run, scorer: Scorer) -> None:
        super().__init__()
        self.task, self.run, self.scorer = task, run, scorer
        self.model = model

    def test_step(self, batch: Sequence[Asked], batch_idx: int) -> None:
        """Predictions are on disk when this returns."""
        prompts = [(asked.case, asked.prompt) for asked in batch if isinstance(asked.prompt, Prompt)]
        results: dict[str, Path | Failure] = {
            asked.case.id: asked.prompt for asked in batch if isinstance(asked.prompt, Failure)
        }
        notes = {case.id: [note for image in prompt.images for note in image.notes] for case, prompt in prompts}
        for (case, _), answer in zip(prompts, self._ask([prompt for _, prompt in prompts]), strict=True):
            results[case.id] = answer if isinstance(answer, Failure) else self._keep(case, answer)
            notes[case.id] += getattr(answer, "notes", ())  # such as classes that a translation has dropped
        self.run.append_predictions(results, notes)
        for result in results.values():
            if isinstance(result, Failure):
                log.warning("case %s failed (%s): %s", result.case_id, result.stage, result.message)
        for asked in batch:
            prediction = results[asked.case.id]
            if isinstance(prediction, Path):
                self.scorer.submit(asked.case, prediction)

    def on_test_end(self) -> None:
        """Every rank's scores are on disk before rank 0 puts them together."""
        self.scorer.drain()
        self.trainer.strategy.barrier()

    def _ask(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        """One answer or Failure per prompt; when a batch fails, its cases are asked one by one."""
        if not prompts:
            return []
        try:
            return _as_many(self.task.ask(self.model, prompts), prompts)
        except Exception as error:
            if len(prompts) > 1:
                return [answer for prompt in prompts for answer in self._ask([prompt])]
            log.debug("case %s", prompts[0].case_id, exc_info=True)
            message = str(error) if isinstance(error, CaseError) else f"{type(error).__name__}: {error}"
            return [Failure(prompts[0].case_id, "answer", message)]

    def _keep(self, case: Case, answer: Any) -> Path | Failure:
        try:
            prediction = self.task.accept(case, answer)
        except CaseError as error:
            return Failure(case.id, "check", str(error))
        except Exception as error:
            log.debug("case %s", case.id, exc_info=True)
            message = f"case {case.id!r}: the answer is no prediction ({type(error).__name__}: {error})"
            return Failure(case.id, "check", message)
        path = self.run.prediction_path(case.id, self.task.prediction_suffix)
        self.task.write(prediction, path)
        return path


def parameter_count(model: Model) -> int | None:
    """Number of parameters, or None for a model that is not an `nn.Module`."""
    return sum(parameter.numel() for parameter in model.parameters()) if isinstance(model, nn.Module) else None


def _as_many(answers: Sequence[Any], prompts: Sequence[Prompt]) -> Sequence[Any]:
    if len(answers) != len(prompts):
        raise CaseError(f"the model gave {len(answers)} answers to {len(prompts)} prompts")
    return answers

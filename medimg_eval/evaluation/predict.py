"""Asks a model about cases and hands its answers on. Imports no Lightning, and torch only for a model that uses it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Failure, Prompt, Trial
from medimg_eval.codecs import Stored, prediction_folder
from medimg_eval.data.prompts import PreparedCase, PromptBatches
from medimg_eval.errors import CaseError, ToldCauses, error_in_words, interruptions
from medimg_eval.evaluation.devices import Batches, device_of, in_use
from medimg_eval.evaluation.fitting.embedding import features_for
from medimg_eval.evaluation.manifest import Manifest
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.evaluation.progress import Counted, tracked
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.evaluation.score import ScoreKeys, submit_early
from medimg_eval.evaluation.scoring import Scorer, scoring_workers
from medimg_eval.imaging import SHOWN
from medimg_eval.lazy_torch import import_seeded, is_network, uses_torch
from medimg_eval.models import Model
from medimg_eval.models.precomputed import PrecomputedReports
from medimg_eval.system import freeze, is_frozen, uncollected, unfreeze
from medimg_eval.tasks.base import Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.plan import Plan
    from medimg_eval.evaluation.settings import Settings

log = logging.getLogger(__name__)

WORTH_TELLING = 10.0
"""Seconds from which on it matters how many of them were not the model's."""


def predict(plan: Plan) -> None:
    """Asks remaining trials, scoring meanwhile what needs nothing else."""
    run, model = plan.run, plan.model
    if uses_torch(model.wrapper):
        import_seeded()
    if plan.settings.config.get("efficiency") and "efficiency" not in run.manifest:
        _measure_cost(plan, plan.first_asked)
    if not plan.left:
        return
    with run.stage("predict", len(plan.trials)) as counts:
        run.note(model_info=model_info(plan.first_asked))
        seconds, in_model = _ask_model(plan)
        if not plan.task.codec.heavy and not issubclass(model.wrapper, PrecomputedReports):  # which took no time here
            _note_time(run, model, seconds, in_model)
        predictions = run.predictions()
        counts["done"] = sum(answered(predictions.get(trial.id)) for trial in plan.trials)
        counts["failed"] = len(plan.trials) - counts["done"]


def _ask_model(plan: Plan) -> tuple[float, float]:
    """Asks the model; returns total seconds, and those of `generate`, `choose`."""
    settings, run, seconds, in_model = plan.settings, plan.run, 0.0, 0.0
    keys, before = ScoreKeys(plan.task, run.digests()), plan.first_asked
    with Scorer(plan.task, run, scoring_workers(settings.score_workers)) as scorer:
        if plan.task.has_truth and plan.task.codec.heavy and _leads_scoring(settings) and uses_torch(before.model):
            submit_early(plan, scorer, keys)
        for (repeat, condition), done in plan.rounds().items():
            of_fold, spec = plan.asked_in(repeat)
            if before is not spec:
                before.unload()
                before = spec
            model = spec.model
            if plan.folds:
                getattr(model, "check_ready", lambda: None)()
                prepare_model(of_fold, model, of_fold.cases("test"))
            task = of_fold.variant(repeat if not plan.folds else 0, plan.conditions.get(condition))
            reads_images = getattr(model, "reads_images", True)
            options: dict[str, Any] = {
                "batch_size": settings.batch_size or int(getattr(model, "preferred_batch", 1)),
                "num_workers": min(settings.num_workers, len(plan.cases) - len(done)) if reads_images else 0,
                "read_images": reads_images,
                "skip": done,
            }
            # What is done to images before they are shown cannot be done to their features, and maps are of pictures.
            cases_ = plan.shown_under(task, condition, repeat)
            pixels = condition or getattr(model, "explanation", None) is not None
            cases = cases_ if pixels else features_for(task, cases_, spec, settings)
            asker = Predictor(task, model, run, scorer, keys, (repeat, condition), len(plan.trials))
            if _runs_alone(settings) and not (task.codec.heavy and uses_torch(model)):
                ask_here(asker, PromptBatches(task, cases, **options), settings.config.get("trainer") or {})
            else:
                _ask_by_lightning(asker, settings, cases, options)
            seconds, in_model = seconds + asker.seconds, in_model + asker.seconds_in_model
    return seconds, in_model


def _leads_scoring(settings: Settings) -> bool:
    """Whether what others have left unscored is this process's to score."""
    return settings.rank == 0 and settings.shard is None


def _runs_alone(settings: Settings) -> bool:
    """Whether one process on one device does it all."""
    trainer = settings.config.get("trainer") or {}
    single = [str(trainer.get(key, 1)) == "1" for key in ("devices", "num_nodes")]
    return all(single) and trainer.get("strategy", "auto") == "auto"


def _ask_by_lightning(asker: Predictor, settings: Settings, cases: Sequence[Case], options: Mapping[str, Any]) -> None:
    from medimg_eval.data.datamodule import CaseDataModule
    from medimg_eval.evaluation.lightning_modules import EvaluationModule

    trainer = settings.trainer(logger=False, enable_checkpointing=False)
    data = CaseDataModule(asker.task, cases=cases, **options)
    with interruptions():
        trainer.test(EvaluationModule(asker), datamodule=data, verbose=False)


def model_info(model: ModelSpec) -> dict[str, Any]:
    """Facts of a loaded model for the manifest."""
    network: Any = model.model
    count = sum(parameter.numel() for parameter in network.parameters()) if is_network(network) else None
    return {"class": type(network).__qualname__, "parameters": count} | model.identity


def _note_time(run: Run, model: ModelSpec, seconds: float, asking: float) -> None:
    """Notes time of asking over all starts, and the harness's share."""
    before = run.manifest.get("timing", {"seconds": 0.0, "in_model": 0.0})
    total, inside = before["seconds"] + seconds, before["in_model"] + asking
    overhead = 1 - inside / total if total else 0.0
    used: Mapping[str, Any] = {} if model.of_folds else getattr(model.model, "usage", dict)()
    manifest = Manifest(timing={"seconds": total, "in_model": inside, "overhead": overhead})
    if used:
        manifest["usage"] = [*run.manifest.get("usage", []), dict(used)]
    run.note(**manifest)
    if total >= WORTH_TELLING:
        log.info("%s: harness overhead %.1f %% of %.1f s", run.folder, 100 * overhead, total)


def _measure_cost(plan: Plan, model: ModelSpec) -> None:
    """Notes the model's cost, also in finished runs lacking it."""
    from medimg_eval.evaluation.profiling import efficiency  # importing it takes as long as a small run

    prepare_model(plan.folds[0] if plan.folds else plan.task, model.model, plan.every)
    trainer = plan.settings.trainer(logger=False, enable_checkpointing=False)
    measured = efficiency(model.model, trainer.strategy.root_device, str(trainer.precision))
    plan.run.note(efficiency=measured)


class Predictor:
    """Asks by batch, stores answers first, then queues scoring.

    Args:
        keys: what their scores rest on.
        varied: which repeat it is, and the key of what is done to cases before they are shown.
        among: how many trials the run has.
    """

    def __init__(
        self,
        task: Task,
        model: Model,
        run: Run,
        scorer: Scorer,
        keys: ScoreKeys,
        varied: tuple[int, str] = (0, ""),
        among: int = 0,
    ) -> None:
        self._folder = partial(prediction_folder, run.folder / "predictions", among=among)
        self.task, self.run, self.scorer, self._keys, self._varied = task, run, scorer, keys, varied
        # What takes no time is not worth processes beside it.
        self._early = keys.early() if task.has_truth and uses_torch(model) else []
        self.model = model
        self._causes = ToldCauses()
        self.seconds_in_model = 0.0
        """Time spent in `generate`, `choose`, `embed` and `classify`."""
        self.start()
        journal = run.journal(*varied)
        self._batches = Batches(lambda prompts: task.ask_recorded(_Timed(model, self._count), prompts, journal))

    def start(self) -> None:
        """Starts the clock of `seconds`, excluding the model's loading."""
        self.seconds, self._begun = 0.0, time.perf_counter()

    def _trial(self, case: Case) -> Trial:
        return Trial(case.id, *self._varied)

    def step(self, batch: Sequence[PreparedCase]) -> None:
        """Predictions are on disk when this returns."""
        prompts = [(prepared.case, prepared.prompt) for prepared in batch if isinstance(prepared.prompt, Prompt)]
        results: dict[Trial, Stored | Failure] = {
            self._trial(prepared.case): prepared.prompt for prepared in batch if isinstance(prepared.prompt, Failure)
        }
        notes: dict[Trial, list[str]] = {}
        shown_images: dict[Trial, list[str]] = {}
        for (case, prompt), answer in zip(
            prompts, self._batches.answers([prompt for _, prompt in prompts]), strict=True
        ):
            trial = self._trial(case)
            results[trial] = answer if isinstance(answer, Failure) else self._keep(trial, case, answer)
            # Of an answer: such as classes that a translation has dropped.
            notes_ = (*(note for image in prompt.images for note in image.notes), *getattr(answer, "notes", ()))
            if notes_:
                notes[trial] = list(notes_)
            if image_notes := [image.attributes[SHOWN] for image in prompt.images if SHOWN in image.attributes]:
                shown_images[trial] = list(dict.fromkeys(image_notes))
        self.run.append_predictions(results, notes, self.task.codec.form, shown_images)
        for trial, result in results.items():
            if isinstance(result, Failure):
                level = self._causes.level(result.message, trial.case)  # of many alike, the end says how many
                log.log(level, "case %s failed (%s): %s", trial.id, result.stage, result.message)
        for prepared in batch:
            prediction = results[trial := self._trial(prepared.case)]
            if self.task.codec.heavy and isinstance(prediction, Path):  # light ones are judged together, at the end
                due = self._keys.due(trial, prepared.case, prediction, None, self._early)
                if due:
                    self.scorer.submit(due)
        self.seconds = time.perf_counter() - self._begun

    def _count(self, seconds: float) -> None:
        self.seconds_in_model += seconds

    def _keep(self, trial: Trial, case: Case, answer: Any) -> Stored | Failure:
        try:
            prediction = self.task.accept(case, answer)
        except CaseError as error:
            return Failure(case.id, "check", str(error))
        except Exception as error:
            log.debug("case %s", case.id, exc_info=True)
            message = f"case {case.id!r}: the answer is no prediction ({error_in_words(error)})"
            return Failure(case.id, "check", message)
        return self.task.codec.write(self._folder(trial.id), trial.id, prediction)


def ask_here(asker: Predictor, batches: Counted[Sequence[PreparedCase]], trainer: Mapping[str, Any]) -> None:
    """Asks in this process without Lightning, saving its import time."""
    with _ready_model(asker.model, trainer):
        asker.start()
        frozen = is_frozen()
        freeze()  # what is loaded stays; to search it for garbage would take 0.2 s, between two questions
        # Stored texts and numbers are looked up: no arrays that a cycle could hold, and a twentieth of the time.
        light = not (asker.task.codec.heavy or getattr(asker.model, "reads_images", True))
        try:
            with uncollected() if light else nullcontext():
                for batch in tracked(batches, "asking"):
                    asker.step(batch)
        finally:
            if not frozen:
                unfreeze()


def _ready_model(model: Model, trainer: Mapping[str, Any]) -> AbstractContextManager[None]:
    if not uses_torch(model):
        return nullcontext()
    return in_use(model, device_of(str(trainer.get("accelerator", "auto"))), str(trainer.get("precision", "32-true")))


class _Timed:
    """A model whose answers are timed."""

    def __init__(self, model: Model, count: Callable[[float], None]) -> None:
        self._model, self._count = model, count

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._model, name)
        if name not in ("generate", "choose", "embed", "classify") or not callable(attribute):
            return attribute

        @wraps(attribute)
        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return attribute(*arguments)
            finally:
                self._count(time.perf_counter() - begin)

        return timed

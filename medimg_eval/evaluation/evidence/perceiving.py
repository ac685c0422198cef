"""Shows stored reconstructions to networks beside their references, for metrics such as LPIPS."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.evidence.providers import first_names, made_as, ready
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.scoring import error_in_words
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.registry import required
from medimg_eval.models.extractors import PerceptualDistance
from medimg_eval.store import ContentStore, Stored, array_key, digest, observation_store
from medimg_eval.tasks import Task
from medimg_eval.tasks.reconstruction import ReconstructionTask

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

log = logging.getLogger(__name__)


def refuse_unready_networks(task: Task, annotators: Mapping[str, ModelSpec]) -> None:
    """Takes note of the networks that metrics of a reconstruction rest on, before a model is loaded.

    Raises:
        UserError: weights of one are not there; the message names file, source and key of all that is missing.
    """
    if not isinstance(task, ReconstructionTask):
        return
    task.perceived_by = ready((PerceptualDistance,), "annotators", annotators, _wanted(task))


def perceive(
    task: Task, run: Run, cases: Sequence[Case], annotators: Mapping[str, ModelSpec], scores: Mapping[str, Any]
) -> None:
    """Gives a task what networks make of its stored reconstructions; what was found before is taken from a cache.

    A case that a network cannot see, such as too small a slice, has no value by that metric, and is counted.

    Args:
        task: any; only those of reconstruction need it.
        run: whose stored reconstructions are read.
        cases: the task's.
        annotators: name -> what the network is made of; one that has nothing left to see is not loaded.
        scores: of the other metrics, by case; one that could not be scored is not shown either.

    Raises:
        UserError: a network's weights cannot be used at all.
    """
    if not isinstance(task, ReconstructionTask):
        return
    task.perceived, task.remarks = {}, []
    wanted = _wanted(task)
    if not wanted:
        return
    predictions = run.predictions()
    stored = [
        (case, path)
        for case in cases
        if isinstance(path := predictions.get(case.id), Path) and isinstance(scores.get(case.id), list)
    ]
    for name, metrics in wanted.items():
        made = made_as((PerceptualDistance,), "annotators", name, annotators[name].model)
        identity = digest([name, annotators[name].identity, made.revision], 16)
        cache = observation_store("distance", identity)
        seen = _Seen(made, identity, cache)
        failed = []
        for case, path in tracked(stored, f"looking ({name})"):
            try:
                found = [score for metric in metrics for score in seen.scores(task, case, path, metric)]
            except Exception as error:
                if isinstance(error, UserError) and not isinstance(error, CaseError):
                    raise
                log.warning("case %s is not judged by %s: %s", case.id, name, error_in_words(error))
                failed.append(case.id)
                found = [LabelScore("image", metric, math.nan, "present") for metric in metrics]
            task.perceived.setdefault(case.id, []).extend(found)
        if failed:
            of = f"{len(failed)} of {len(stored)} cases not judged ({first_names(failed)})"
            task.remarks.append(f"{', '.join(metrics)}: {of}")
        cache.close()
    run.note(annotators=dict(task.perceived_by))


class _Seen:
    """What one network makes of pictures, each pair of volumes once."""

    def __init__(self, network: PerceptualDistance, identity: str, cache: ContentStore) -> None:
        self.network, self.identity, self.cache = network, identity, cache

    def scores(self, task: ReconstructionTask, case: Case, path: Path, metric: str) -> list[LabelScore]:
        """Returns the scores of a case; raises CaseError where the network cannot see it."""
        found, preset = parse(metric)
        return [
            LabelScore(label, metric, found.function(self._distances(pairs), preset), "present")
            for label, pairs in task.pictures(case, path, None if preset is None else str(preset))
        ]

    def _distances(self, pairs: Any) -> list[float]:
        key = f"{self.identity}/{array_key(pairs)}"
        known = self.cache.get([key])
        if known:
            return [float(one) for one in known[key].value]
        distances = self.network.distances(pairs)
        self.cache.put({key: Stored(distances)})
        return distances


def _wanted(task: ReconstructionTask) -> dict[str, list[str]]:
    """By network, the metrics that rest on it."""
    wanted: dict[str, list[str]] = {}
    for metric in task.perceptual_metrics:
        for name in (need.provider for need in required(metric)):
            wanted.setdefault(name, []).append(metric)
    return wanted

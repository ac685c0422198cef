"""Has annotators read answers, for metrics that compare what they read; every reading is kept for other runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.evidence.providers import first_names, made_as, one_by_one, ready
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.evidence import TextPair, one_each
from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import Read
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.models.annotators import Annotator, PairAnnotator, TextAnnotator
from medimg_eval.store import Stored, digest, observation_store, text_key
from medimg_eval.tasks import QuestionTask, Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

log = logging.getLogger(__name__)

CUT = "cut"
"""The key under which an annotator says that a text was longer than what it reads."""

KINDS = (TextAnnotator, PairAnnotator)


def refuse_unready(task: Task, annotators: Mapping[str, ModelSpec], *, judge: bool) -> None:
    """Raises UserError, before a model is loaded, when a metric lacks its annotator, its weights or a judge.

    Args:
        task: whose metrics.
        annotators: name -> what it is made of.
        judge: whether there is one to ask, or one has been asked.
    """
    if not isinstance(task, QuestionTask):
        return
    asking = [name for name in task.case_metrics if parse(name)[0].asks] if not judge else []
    also = [f"{', '.join(asking)}: needs a judge; add model@judge=NAME (docs/metrics-judges.md)"] if asking else []
    wanted = {name: _wanted_by(task, name) for name in task.annotators}
    ready(KINDS, "annotators", annotators, wanted, also=also)


def read_reports(task: Task, run: Run, cases: Sequence[Case], annotators: Mapping[str, ModelSpec]) -> None:
    """Gives a task what its metrics need of all cases: the set as a whole, and what annotators read in each.

    What an annotator has read before, in this run or another, is taken from the user's cache. When it fails on a batch,
    its texts are read one by one; what cannot be read is not judged, and counted.

    Args:
        task: any; only those whose answers are texts need it.
        run: whose stored answers are read.
        cases: the task's.
        annotators: name -> what it is made of; one that has nothing left to read is not loaded.

    Raises:
        UserError: an annotator's weights cannot be used at all.
    """
    task.gather(cases)
    if not isinstance(task, QuestionTask):
        return
    names = task.annotators
    task.readings, task.annotated_by, task.remarks = {}, {}, []
    if not names:
        return
    pairs = dict(_pairs(task, run, cases))
    readings: dict[str, dict[str, Any]] = {case: {} for case in pairs}
    corpus = task.corpus or Corpus([])
    facts = {}
    for name in names:
        candidate = annotators[name]
        found, cut = _all_readings(name, candidate, pairs, corpus)
        for case, reading in found.items():
            readings[case][name] = reading
        failed = [case for case, reading in found.items() if reading is None]
        task.annotated_by = {**task.annotated_by, name: _made(name, candidate).revision or "rules"}
        if failed:
            of = f"{len(failed)} of {len(found)} reports ({first_names(failed)})"
            task.remarks.append(f"annotator {name} failed on {of}: not judged")
        if cut:
            task.remarks.append(f"annotator {name} read only the beginning of {cut} of {2 * len(found)} texts")
        facts[name] = {"weights": task.annotated_by[name], "failed": len(failed), "cut": cut, "of": len(found)}
    task.readings = readings
    run.note(annotators=facts)


def _wanted_by(task: QuestionTask, annotator: str) -> list[str]:
    """The metrics as they were asked for, also those that only rest on ones that the annotator reads for."""
    return [
        name for name in task.metrics if any(annotator in parse(one)[0].reads for one in (name, *parse(name)[0].needs))
    ]


def _made(name: str, candidate: ModelSpec) -> Annotator:
    made: Annotator = made_as(KINDS, "annotators", name, candidate.model)
    return made


def _pairs(task: QuestionTask, run: Run, cases: Sequence[Case]) -> Iterator[tuple[str, TextPair]]:
    """By case: its reference and what was answered, "" where nothing was; cases that cannot be read are left out."""
    predictions = run.predictions()
    for case in cases:
        stored = predictions.get(case.id)
        try:
            yield case.id, TextPair(*task.texts(case, stored if answered(stored) else None))  # type: ignore[arg-type]
        except CaseError as error:
            log.warning("case %s is not annotated: %s", case.id, error)


def _all_readings(
    name: str, candidate: ModelSpec, pairs: Mapping[str, TextPair], corpus: Corpus
) -> tuple[dict[str, Any], int]:
    """By case what an annotator made of it, None where it failed; and how many texts it read in part."""
    made = _made(name, candidate)
    identity = digest([name, candidate.identity, made.revision], 16)
    if isinstance(made, TextAnnotator):
        keys = {text: _key(identity, text) for pair in pairs.values() for text in pair}
        read = _read(made, identity, {keys[text]: text for text in keys}, corpus)
        by_text = {text: read[key] for text, key in keys.items()}
        cut = sum(_is_cut(by_text[text]) for pair in pairs.values() for text in pair)
        both = {case: Read(by_text[pair.reference], by_text[pair.prediction]) for case, pair in pairs.items()}
        return {case: None if None in (one.reference, one.prediction) else one for case, one in both.items()}, cut
    if isinstance(made, PairAnnotator) and made.uses_corpus:
        identity = digest([identity, [list(one) for one in corpus.references]], 16)
    keyed = {case: _key(identity, *pair) for case, pair in pairs.items()}
    read = _read(made, identity, {keyed[case]: pair for case, pair in pairs.items()}, corpus)
    return {case: read[key] for case, key in keyed.items()}, sum(_is_cut(read[key]) for key in keyed.values())


def _key(identity: str, *texts: str) -> str:
    return f"{identity}/{text_key(*texts)}"


def _is_cut(reading: Any) -> bool:
    return isinstance(reading, Mapping) and bool(reading.get(CUT))


def _read(made: Annotator, identity: str, items: Mapping[str, Any], corpus: Corpus) -> dict[str, Any]:
    """By key what was read; texts of like length together, so that little is padded."""
    kept = observation_store("annotation", identity)
    read: dict[str, Any] = {key: one.value for key, one in kept.get(list(items)).items()}
    left = sorted((key for key in items if key not in read), key=lambda key: len(str(items[key])))
    size = max(1, made.preferred_batch)
    for batch in tracked([left[start : start + size] for start in range(0, len(left), size)], f"reading ({made.name})"):
        for key, reading in zip(batch, _ask(made, [items[key] for key in batch], corpus), strict=True):
            read[key] = reading
            if reading is not None:
                kept.put({key: Stored(reading)})
    kept.close()
    return read


def _ask(made: Annotator, items: Sequence[Any], corpus: Corpus) -> list[Any]:
    def ask(some: Sequence[Any]) -> list[Any]:
        texts: Any = made
        said = made.compare(some, corpus) if isinstance(made, PairAnnotator) else texts.annotate(some)
        return one_each(said, some, f"annotator {made.name}")

    def failed(_: Any, error: Exception) -> None:
        log.warning("annotator %s failed on a report (%s: %s)", made.name, type(error).__name__, error)

    return one_by_one(ask, items, failed)

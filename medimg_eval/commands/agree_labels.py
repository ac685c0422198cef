"""`agree reports=`: how well our own rules agree with CheXbert, or another annotator, on a user's reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from medimg_eval.commands.download_weights import chosen_annotator
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation.leaving import permit
from medimg_eval.evaluation.progress import tracked
from medimg_eval.metrics.reports import CHEXPERT_14, label_report
from medimg_eval.models.annotators import TextAnnotator
from medimg_eval.results.agreement import label_agreement
from medimg_eval.results.table import Sheet
from medimg_eval.tasks.base import MayLeave


def agree_on_labels(wanted: Mapping[str, Any]) -> Sheet:
    """Compares a rule's and an annotator's labels of a report column.

    Args:
        wanted: the command's config.

    Raises:
        UsageError: there is no such column, or the annotator labels no texts.
        UserError: the file cannot be read, holds no report, or the annotator lacks its weights.
    """
    name, annotator = chosen_annotator(wanted)
    file = Path(str(wanted["reports"])).expanduser()
    if not isinstance(annotator, TextAnnotator):
        raise UsageError(f"annotator {name!r} compares texts, and does not label them; name one that does")
    permit(_Given(file.name), wanted["may_leave"], "annotator", name, annotator, ["answers"])
    annotator.check_ready()
    texts = _read_reports(file, str(wanted["column"]))
    return label_agreement(
        [_finding_states(reading, name) for reading in _annotate_reports(annotator, texts)],
        [label_report(text) for text in texts],
        CHEXPERT_14,
        names=(f"{name} ({annotator.revision})", "rule_labeler"),
        title=file.name,
        resamples=wanted["resamples"],
        level=wanted["level"],
        seed=wanted["seed"],
    )


class _Given(NamedTuple):
    """User's table, without a card on data permission."""

    name: str
    may_leave: MayLeave = "ask"


def _read_reports(file: Path, column: str) -> list[str]:
    rows = [row.values for row in read_table(file)]
    columns = dict.fromkeys(name for row in rows for name in row)
    if rows and column not in columns:
        raise UsageError(f"{file} has no column {column!r}{nearest(column, columns)}; set column=")
    texts = [str(row[column]) for row in rows if row.get(column) is not None]
    reports = [text for text in texts if text.strip() and text.strip().lower() != "nan"]
    if not reports:
        raise UserError(f"{file}: column {column!r} holds no report")
    return reports


def _annotate_reports(made: TextAnnotator, texts: Sequence[str]) -> Iterator[Any]:
    size = max(1, made.preferred_batch)
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    for batch in tracked(batches, f"reading ({made.name})"):
        yield from made.annotate(batch)


def _finding_states(reading: Any, name: str) -> Mapping[str, int]:
    if not isinstance(reading, Mapping):
        raise UserError(f"annotator {name} gives {type(reading).__name__}, expected label -> state")
    return reading

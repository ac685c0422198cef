"""Logs of inspect, read by inspect's own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medimg_eval.data.logs.records import Log, LogRecord, lettered, numbers_of
from medimg_eval.errors import UserError, import_optional

VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's grades."""


def read_inspect(file: Path) -> Log:
    """Reads a log, epochs as repeats; samples that failed have no reply.

    Raises:
        UserError: it cannot be read, or holds no samples.
    """
    inspect_log = import_optional("inspect_ai.log")
    try:
        log = inspect_log.read_eval_log(str(file))
    except Exception as error:
        raise UserError(f"{file}: inspect cannot read it ({type(error).__name__}: {error})") from error
    if not log.samples:
        raise UserError(f"{file}: holds no samples; an eval that was cut off can be mended by inspect's own `recover`")
    records = [_make_record(sample) for sample in log.samples]
    notes = [] if log.status == "success" else [f"inspect calls this log {log.status!r}"]
    return Log("inspect", file, str(log.eval.model).replace("/", "_"), str(log.eval.task), records, notes)


def _make_record(sample: Any) -> LogRecord:
    question = sample.input if isinstance(sample.input, str) else "\n".join(message.text for message in sample.input)
    metadata = sample.metadata or {}
    targets = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    return LogRecord(
        str(sample.id),
        sample.output.completion or "",
        targets[0] if targets else "",
        question,
        lettered(sample.choices or []),
        int(sample.epoch) - 1,
        _numeric_scores(sample.scores or {}),
        str(metadata.get("patient", "")),
        str(sample.error.message) if sample.error else "",
    )


def _numeric_scores(scores: dict[str, Any]) -> dict[str, float]:
    values: dict[str, Any] = {}
    for name, score in scores.items():
        value = VALUES.get(score.value, score.value) if isinstance(score.value, str) else score.value
        values |= {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return numbers_of(values)

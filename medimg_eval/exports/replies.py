"""Runs of texts as logs of inspect and lm-eval, as tables of VLMEvalKit, and as reports by study."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from medimg_eval.case import Case, Trial
from medimg_eval.data.logs import write_lines
from medimg_eval.errors import UserError, import_optional
from medimg_eval.exports.inspect_steps import session_events, session_limit, session_messages, total_usage
from medimg_eval.metrics.nlp import sections
from medimg_eval.run_results import RunResults
from medimg_eval.system import product
from medimg_eval.tasks import Task


class Reply(NamedTuple):
    """Reply of a run: case, repeat, text, scores, right answer, steps."""

    case: Case
    repeat: int
    text: str
    scores: Mapping[str, float]
    reference: str
    failure: str
    steps: Sequence[Mapping[str, Any]] = ()


def export_inspect(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes inspect's `.eval`: repeats as epochs, intervals as metrics.

    Sessions with tools or of several agents have their messages, calls and results, and the events of each step.
    """
    logs = import_optional("inspect_ai.log")
    manifest, replies = run.manifest, list(_ordered_replies(run, task))
    samples = [_inspect_sample(reply, str(manifest["model"])) for reply in replies]
    scores = []
    for row in run.summary.to_dict("records"):
        statistics = {part: row[part] for part in ("value", "low", "high", "n", "failed") if row[part] == row[part]}
        values = {name: logs.EvalMetric(name=name, value=float(value)) for name, value in statistics.items()}
        scores.append(logs.EvalScore(name=row["metric"], scorer=row["metric"], metrics=values))
    cases = list(dict.fromkeys(reply.case.id for reply in replies))
    log = logs.EvalLog(
        status="success" if manifest["status"] == "finished" else "error",
        eval=logs.EvalSpec(
            created=manifest["started"],
            task=manifest["task"],
            model=manifest["model"],
            dataset=logs.EvalDataset(name=manifest["task"], samples=len(cases), sample_ids=cases),
            config=logs.EvalConfig(epochs=1 + max((reply.repeat for reply in replies), default=0)),
            packages={"medimg-eval": str(manifest.get("provenance", {}).get("versions", {}).get("medimg-eval", ""))},
            metadata={"run": run.id, "signature": manifest.get("signature", "")},
        ),
        results=logs.EvalResults(total_samples=len(replies), completed_samples=len(replies), scores=scores),
        samples=samples,
    )
    file = _export_path(out, run, ".eval")
    logs.write_eval_log(log, str(file), format="eval")
    return [file]


def _inspect_sample(reply: Reply, model: str) -> Any:
    """One reply as a sample of inspect; a limit that ended its session is named as inspect names it."""
    logs, models = import_optional("inspect_ai.log"), import_optional("inspect_ai.model")
    scorers, question = import_optional("inspect_ai.scorer"), reply.case.question
    text = "" if question is None else question.text
    usage, limit = total_usage(reply.steps), session_limit(reply.steps)
    return logs.EvalSample(
        id=reply.case.id,
        epoch=reply.repeat + 1,
        input=text,
        choices=list(question.options.values()) if question is not None and question.options else None,
        target=reply.reference,
        messages=session_messages(text, reply.steps),
        events=session_events(model, text, reply.steps),
        output=models.ModelOutput.from_content(model, reply.text),
        model_usage={model: models.ModelUsage(**usage)} if usage else {},
        scores={name: scorers.Score(value=value) for name, value in reply.scores.items()},
        metadata={"patient": reply.case.patient or "", **reply.case.attributes},
        error=logs.EvalError(message=reply.failure, traceback="", traceback_ansi="") if reply.failure else None,
        limit=logs.EvalSampleLimit(type=limit[0], limit=0, reason=limit[1]) if limit else None,
    )


def export_lm_eval(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes samples as lm-eval names and fills them, and the results beside them."""
    manifest = run.manifest
    rows: list[dict[str, Any]] = []
    for reply in _first_repeats(run, task):
        question = reply.case.question
        doc: dict[str, Any] = {"id": reply.case.id, "question": "" if question is None else question.text}
        if question is not None and question.options:
            doc |= {"choices": list(question.options.values())}
        rows.append(
            {
                "doc_id": len(rows),
                "doc": doc,
                "target": reply.reference,
                "arguments": {"gen_args_0": {"arg_0": doc["question"], "arg_1": {}}},
                "resps": [[reply.text]],
                "filtered_resps": [reply.text],
                "filter": "none",
                "metrics": list(reply.scores),
                **reply.scores,
            }
        )
    day = str(manifest["started"])[:19].replace(":", "-")
    folder = out / str(manifest["model"])
    folder.mkdir(parents=True, exist_ok=True)
    results = {row["metric"]: row["value"] for row in run.summary.to_dict("records") if row["value"] == row["value"]}
    written = {"results": {manifest["task"]: results}, "model_name": manifest["model"], "n-samples": len(rows)}
    summary = folder / f"results_{day}.json"
    with product(summary) as partial:
        partial.write_text(json.dumps(written, indent=1), encoding="utf-8")
    return [summary, write_lines(folder / f"samples_{manifest['task']}_{day}.jsonl", rows)]


def export_vlmevalkit(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes predictions as a table of VLMEvalKit, a column for each option."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    replies = list(_first_repeats(run, task))
    letters = sorted({letter for reply in replies if reply.case.question for letter in reply.case.question.options})
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(["index", "question", *letters, "answer", "prediction"])
    for reply in replies:
        question = reply.case.question
        options = {} if question is None else question.options
        text = "" if question is None else question.text
        cells = [reply.case.id, text, *(options.get(letter, "") for letter in letters), reply.reference, reply.text]
        sheet.append([_text_cell(WriteOnlyCell(sheet), cell) for cell in cells])
    model = run.manifest["model"]
    file = out / str(model) / f"{model}_{run.manifest['task']}.xlsx"
    with product(file) as partial:
        book.save(partial)
    return [file]


def _text_cell(cell: Any, text: str) -> Any:
    """A cell that holds the text, also one that begins as a formula does."""
    cell.value = text
    cell.data_type = "s"
    return cell


def export_rexrank(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes reports as ReXrank's evaluation reads them, by study.

    The JSON is what its `inference.py` is to write: of each study the sections of the reference, its images, and
    `model_prediction`. The two tables are what its script then makes of it, and CXR-Report-Metric reads.

    Source: ReXrank's submission guideline and evaluation script, rajpurkarlab/ReXrank, example_files.
    """
    if task.noun != "reports":
        raise UserError(
            f"{run.folder}: its answers are no reports, which ReXrank judges; export to=inspect takes texts"
        )
    studies: dict[str, dict[str, Any]] = {}
    for reply in _first_repeats(run, task):
        findings, impression = _findings_and_impression(reply.reference, task.config.get("sections") or ())
        images = [file.as_posix() for reference in reply.case.images for file in reference.files]
        studies[reply.case.id] = {
            "image_path": images,
            "key_image_path": images[0] if images else None,
            "section_findings": findings,
            "section_impression": impression,
            "report": f"Findings: {findings} Impression: {impression}",
            "model_prediction": reply.text,
        }
    submission = _export_path(out, run, ".json")
    with product(submission) as partial:
        partial.write_text(json.dumps(studies, indent=1, ensure_ascii=False), encoding="utf-8")
    files = [submission]
    for kind, key in (("predicted", "model_prediction"), ("reference", "report")):
        file = _export_path(out, run, f"-{kind}.csv")
        with file.open("w", newline="", encoding="utf-8") as opened:
            rows = [(study, held[key]) for study, held in studies.items()]
            csv.writer(opened, lineterminator="\n").writerows([("study_id", "report"), *rows])
        files.append(file)
    return files


def _findings_and_impression(text: str, asked: Sequence[str]) -> tuple[str | None, str | None]:
    """Findings and impression of a reference, or its only section."""
    held = sections(text)
    if not {"findings", "impression"} & held.keys():
        return (None, text) if tuple(asked) == ("impression",) else (text, None)
    return held.get("findings"), held.get("impression")


def _first_repeats(run: RunResults, task: Task) -> Iterator[Reply]:
    return (reply for reply in _ordered_replies(run, task) if reply.repeat == 0)


def _ordered_replies(run: RunResults, task: Task) -> Iterator[Reply]:
    """Replies of a run in case order, asked as published; UserError unless texts."""
    scores: dict[tuple[str, int], dict[str, float]] = {}
    table = run.scores[run.scores["condition"] == ""]
    rows: list[dict[Any, Any]] = table.dropna(subset=["value"]).to_dict("records")
    for row in rows:
        scores.setdefault((row["case"], row["repeat"]), {})[row["metric"]] = float(row["value"])
    failures = dict(zip(run.failures["case"], run.failures["message"], strict=True))
    repeats = range(int(run.manifest.get("repeats", 1)))
    for case in task.cases("test"):
        for repeat in repeats:
            trial = Trial(case.id, repeat)
            prediction = run.predictions.get(trial)
            if prediction is None and trial.id not in failures:
                continue
            texts = prediction.get("texts") if isinstance(prediction, Mapping) else None
            if prediction is not None and texts is None:
                raise UserError(f"{run.folder}: its predictions are no texts; export to=nnunet or to=grand_challenge")
            yield Reply(
                case,
                repeat,
                str(texts[-1]) if texts else "",
                scores.get((case.id, repeat), {}),
                _right_answer(case),
                failures.get(trial.id, ""),
                _kept_steps(prediction) if isinstance(prediction, Mapping) else (),
            )


def _kept_steps(prediction: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps of a reply that a run kept; of one without any, its texts with what is known of each."""
    if trace := prediction.get("trace"):
        return list(trace)
    texts = prediction.get("texts") or []
    turns = prediction.get("turns") or [{}] * len(texts)
    return [
        {"kind": "model", "text": text, "answer": text, "calls": [], **turn}
        for text, turn in zip(texts, turns, strict=True)
    ]


def _right_answer(case: Case) -> str:
    """Right answer as a text; of several texts the first."""
    reference = case.target.read()
    held = getattr(reference, "value", reference)
    first = held[0] if isinstance(held, Sequence) and not isinstance(held, str) and held else held
    return "" if first is None else str(first)


def _export_path(out: Path, run: RunResults, ending: str) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return out / f"{run.manifest['task']}-{run.folder.name}{ending}"

"""Reads the raw outputs of authors as Score rows: replies by our extraction, texts and boxes by our metrics.

No number that the authors computed over their cases is read; only what a reader returns as `authors`, their own mark
of each case, so that differences of extraction can be told from others.
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UserError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.reports import radcliq_of
from medimg_eval.results.runs import SCORE_COLUMNS, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

Read = tuple[str, AnsweredQuestion, dict[str, str]]
"""Case, the answered question, and the attributes of the case."""


class Reading(NamedTuple):
    """Value that a reader read.

    Attributes:
        scores: Score rows of the metric, or of what it needs.
        authors: Case -> the value that the authors gave it; empty where the file does not say.
    """

    scores: pd.DataFrame
    authors: Mapping[str, float]


def worldmedqa(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads VLMEvalKit's workbook: options A to D, correct_option, prediction, hit.

    An index may occur twice in the released files, so cases are named by the index and the line.
    """
    frame = pd.read_excel(path)
    rows = [(f"{row['index']}/line {number + 2}", row) for number, row in enumerate(frame.to_dict("records"))]
    pairs: list[Read] = [
        (
            case,
            _choice_question(row["prediction"], row["correct_option"], {letter: row[letter] for letter in "ABCD"}),
            {},
        )
        for case, row in rows
    ]
    return Reading(_score_pairs(pairs, metric), {case: float(row["hit"]) for case, row in rows})


def mmevalpro(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a JSON list of questions in triplets, with outputs.

    index, triplet_id, model_output, answer, source and eval_type; triplets are the sets.
    """
    letters = dict.fromkeys(options["letters"], "")
    members = {"Origin": "1", "Perception": "2", "Knowledge": "3"}
    pairs = [
        (
            f"{row['source']}/{row['triplet_id']}/{row['eval_type']}",
            _choice_question(row["model_output"], row["answer"], letters),
            {
                "source": row["source"],
                "set": f"{row['source']}/{row['triplet_id']}",
                "member": members[row["eval_type"]],
            },
        )
        for row in _read_json(path)
    ]
    return Reading(_score_pairs(pairs, metric), {})


def medsg_referring(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a JSON list of pixel boxes, answer and groundtruth.

    With the option `filtered` the box is the one that the authors took from the answer, `filter_answer`; without, ours.
    """
    rows = [row for row in _read_json(path) if "groundtruth" in row]
    pairs: list[Read] = []
    authors: dict[str, float] = {}
    for index, row in enumerate(rows):
        written = json.dumps(row["filter_answer"]) if options.get("filtered") else str(row["answer"])
        pairs.append((str(index), AnsweredQuestion("box", written, row["groundtruth"]), {}))
        least = re.search(r"@(.+)", metric)
        authors[str(index)] = float(row["iou"] >= float(least[1])) if least else float(row["iou"])
    return Reading(_score_pairs(pairs, metric), authors)


def answered_texts(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads JSON lines of prediction and answer, stripped, optionally `lower`.

    Lines without an answer are left out, as by the authors, and those without a prediction if `skip_empty`.
    """
    pairs: list[Read] = []
    with path.open(encoding="utf-8") as lines:
        for index, line in enumerate(lines):
            row = json.loads(line)
            text, right = (str(row.get(key) or "").strip() for key in ("prediction", "answer"))
            if options.get("lower"):
                text, right = text.lower(), right.lower()
            if right and (text or not options.get("skip_empty")):
                pairs.append((str(index), _Plain("report", text, [right], outputs=(text,)), {}))
    return Reading(_score_pairs(pairs, metric), {})


def jury(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a CSV of three judges' mean verdicts, by majority.

    Empty cells are questions without verdicts, which are left out.
    """
    model = options["model"]
    cells = [(row["question_id"], row[model]) for row in _read_csv(path) if row[model].strip()]
    return Reading(_score_rows([(case, metric, float(float(value) >= 0.5), WHOLE, {}) for case, value in cells]), {})


def class_means(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a CSV of models (`Evaluation`) by classes; empty is undefined."""
    row = next((row for row in _read_csv(path) if row["Evaluation"] == options["model"]), None)
    if row is None:
        raise UserError(f"{path}: has no row Evaluation={options['model']}; name one that it has")
    values = [(name, value) for name, value in row.items() if name != "Evaluation"]
    return Reading(
        _score_rows(
            [("all", metric, float(value) if value else float("nan"), name.strip(), {}) for name, value in values]
        ),
        {},
    )


def rexrank(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a leaderboard's four RadCliQ parts, combined linearly."""
    row = next((row for row in _read_csv(path) if row["Model Name"] == options["model"]), None)
    if row is None:
        raise UserError(f"{path}: has no row Model Name={options['model']}; name one that it has")
    value = radcliq_of(
        options["version"],
        radgraph_combined=float(row["RadGraph"]),
        bertscore=float(row["BertScore"]),
        chexbert_similarity=float(row["SembScore"]),
        bleu_2=float(row["BLEU"]),
    )
    return Reading(_score_rows([("all", metric, value, WHOLE, {})]), {})


def weighted_groups(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a leaderboard of group percentages, with a size table.

    Each question counts as much as its group says: `groups` maps columns to groups, `sizes` is the table, with its
    columns task_group and n_benchmark.
    """
    chosen = options["row"]
    row = next((row for row in _read_csv(path) if all(row[key] == value for key, value in chosen.items())), None)
    if row is None:
        raise UserError(f"{path}: has no row {chosen}; name one that it has")
    rows: list[tuple[str, str, float, str, dict[str, str]]] = []
    for index, kind in enumerate(_read_csv(path.parent / options["sizes"])):
        column = next(key for key, group in options["groups"].items() if group == kind["task_group"])
        value = float(row[column]) / 100
        rows += [(f"{index}/{copy}", metric, value, WHOLE, {}) for copy in range(int(kind["n_benchmark"]))]
    return Reading(_score_rows(rows), {})


def table_row(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a row of a Markdown table or CSV by its first cell; columns are cases."""
    mark, rule = (r"\s*,\s*", 0) if path.suffix == ".csv" else (r"\s*\|\s*", 1)
    lines = [re.split(mark, line.strip().strip("|").strip()) for line in path.read_text("utf-8").splitlines()]
    columns = options["columns"]
    heads = [index for index, cells in enumerate(lines) if set(columns) <= set(cells)]
    for head in heads:
        for cells in lines[head + 1 + rule :]:
            if len(cells) != len(lines[head]):
                break
            if options["model"] in (cells[0], *re.sub(r"\(.*?\)|[*\[\]_]", "", cells[0]).split()):
                named = dict(zip(lines[head], cells, strict=True))
                return Reading(
                    _score_rows([(column, metric, float(named[column].strip("*_ ")), WHOLE, {}) for column in columns]),
                    {},
                )
    raise UserError(f"{path}: has no table row {options['model']!r} with the columns {', '.join(columns)}")


def tube_lengths(path: Path, metric: str, options: Mapping[str, Any]) -> Reading:
    """Reads a CSV of tube presence and distance, with `gt_` columns.

    rid, model, present, measurement (cm).

    A metric of reports is computed of a sentence that states the distance; every other of the answer to whether there
    is a tube.
    """
    pairs: list[Read] = []
    for row in _read_csv(path):
        if row["model"] != options["model"]:
            continue
        if metric.startswith("ett_"):
            written, right = (_tube_sentence(row[f"{of}measurement"]) for of in ("", "gt_"))
            pairs.append((row["rid"], _Plain("report", written, [right], outputs=(written,)), {}))
        else:
            answer, right = ("yes" if row[f"{of}present"] == "True" else "no" for of in ("", "gt_"))
            pairs.append((row["rid"], AnsweredQuestion("yes_no", answer, right), {}))
    return Reading(_score_pairs(pairs, metric), {})


def _tube_sentence(centimetres: str) -> str:
    return f"The endotracheal tube ends {centimetres} cm above the carina." if centimetres else "No distance is stated."


READERS: Mapping[str, Callable[[Path, str, Mapping[str, Any]], Reading]] = {
    reader.__name__: reader
    for reader in (
        worldmedqa,
        mmevalpro,
        medsg_referring,
        answered_texts,
        jury,
        class_means,
        rexrank,
        weighted_groups,
        table_row,
        tube_lengths,
    )
}


class _Plain(AnsweredQuestion):
    """A text that is judged as it is."""

    @property
    def text(self) -> str:
        return self.output


def _choice_question(output: Any, right: Any, options: Mapping[str, Any]) -> AnsweredQuestion:
    text = output if isinstance(output, str) else ""
    return AnsweredQuestion(
        "choice", text, str(right).strip(), options={key: str(option) for key, option in options.items()}
    )


def _score_pairs(pairs: Sequence[Read], metric: str) -> pd.DataFrame:
    """Score rows of a case metric, or a summary's metrics."""
    definition, _ = metrics.parse(metric)
    names = definition.needs if definition.kind == "run" else (metric,)
    parsed = [(name, *metrics.parse(name)) for name in names]
    return _score_rows(
        (case, name, float(value), label, attributes)
        for case, pair, attributes in pairs
        for name, definition, parameter in parsed
        for label, value in _by_label(definition.function(pair, *(() if parameter is None else (parameter,))))
    )


def _by_label(value: Any) -> Iterable[tuple[str, float]]:
    return value.items() if isinstance(value, dict) else [(WHOLE, value)]


def _score_rows(found: Iterable[tuple[str, str, float, str, Mapping[str, str]]]) -> pd.DataFrame:
    rows = [
        (
            "",
            "",
            "",
            case,
            attributes.get("set", ""),
            label,
            name,
            value,
            "present",
            json.dumps(attributes, sort_keys=True),
        )
        for case, name, value, label, attributes in found
    ]
    return pd.DataFrame(rows, columns=list(SCORE_COLUMNS))


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _read_csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as opened:
        yield from csv.DictReader(opened)

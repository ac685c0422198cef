"""Croissant: a task's data and a run's scores described as JSON-LD, each beside the table that it is about."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from medimg_eval import __version__
from medimg_eval.arguments import as_list
from medimg_eval.errors import SplitError
from medimg_eval.results.runs import frame_to_csv
from medimg_eval.run_results import RunResults
from medimg_eval.system import product
from medimg_eval.tasks import Task

VERSION = "http://mlcommons.org/croissant/1.0"
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{
        name: f"cr:{name}"
        for name in (
            *("citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet"),
            *("format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
            *("references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField"),
            "transform",
        )
    },
}
"""What the terms of Croissant 1.0 mean, as its specification gives it."""

SPLITS = ("fit", "validate", "test")
TYPES = {"f": "sc:Float", "i": "sc:Integer"}
"""Kinds of NumPy's types -> Croissant's; anything else is text."""


def export_croissant(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes `TASK-croissant.json` and `TASK-RUN-croissant.json`, and the tables `.csv` that they describe.

    The data's table has a row for each case: split, attributes and names of files, and no patient; the scores' table a
    row for each case, label and metric; a third one their means with intervals.

    Source: the Croissant format specification 1.0 and its vocabulary of responsible AI (MLCommons).
    """
    manifest, card = run.manifest, task.card
    name = str(manifest["task"])
    shared = {
        "license": str(card.get("licence") or card.get("access") or "unknown"),
        "citeAs": str(card.get("reference", "")),
        "creator": {"@type": "sc:Organization", "name": str(card.get("source") or "unknown")},
        "keywords": [word for word in (task.capability, str(card.get("modality", ""))) if word],
    }
    if match := re.search(r"https?://[^\s,;)]+", " ".join(str(card.get(key, "")) for key in ("source", "download"))):
        shared["url"] = match.group()
    about = " ".join(as_list(card.get("description") or manifest["task_title"]))
    data = {
        "name": slugged(name),
        "description": about,
        "version": f"1.0.0+{manifest['data_fingerprint']}",
        **shared,
        **{
            f"rai:{term}": " ".join(map(str, as_list(card[key])))
            for key, term in (("truth", "dataAnnotationProtocol"), ("limits", "dataLimitations"))
            if card.get(key)
        },
    }
    scores = {
        "name": slugged(f"{name}-{manifest['model']}-scores"),
        "description": f"Scores of {manifest['model']} on {manifest['task_title']}: {manifest['signature']}",
        "version": f"1.0.0+{run.id}",
        "datePublished": str(manifest["started"])[:10],
        **shared,
        "creator": {"@type": "sc:Organization", "name": f"medimg_eval {__version__}"},
        "isBasedOn": f"{name}, {manifest['data_fingerprint']}",
    }
    rows = run.scores[["case", "repeat", "condition", "label", "metric", "value", "status"]]
    stem = f"{name}-{run.folder.name}"
    cases = _case_table(task)
    out.mkdir(parents=True, exist_ok=True)  # no empty folder stays where the data are missing
    return [
        *_write_tables(out, name, data, {"cases": cases}),
        *_write_tables(out, stem, scores, {"scores": rows, "means": run.summary}),
    ]


def slugged(name: str) -> str:
    """A name as Croissant asks for: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _case_table(task: Task) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for split in SPLITS:
        try:
            cases = task.cases(split)
        except SplitError:  # many sets have nothing to fit on
            continue
        for case in cases:
            files = " ".join(file.name for file in case.files)
            rows.append({"case": case.id, "split": split, "files": files, **case.attributes})
    return pd.DataFrame.from_records(rows).fillna("")


def _write_tables(folder: Path, stem: str, about: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> list[Path]:
    """Writes tables as CSV, and the JSON-LD that describes them."""
    written, objects, sets = [], [], []
    for name, frame in tables.items():
        file_ = folder / f"{stem}-{name}.csv"
        content = frame_to_csv(frame).encode()
        with product(file_) as partial:
            partial.write_bytes(content)
        written.append(file_)
        objects.append(
            {
                "@type": "cr:FileObject",
                "@id": file_.name,
                "name": file_.name,
                "contentUrl": file_.name,
                "encodingFormat": "text/csv",
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
        sets.append(
            {
                "@type": "cr:RecordSet",
                "@id": name,
                "name": name,
                "field": [
                    _make_field(name, file_.name, str(column), frame[column].dtype.kind) for column in frame.columns
                ],
            }
        )
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        **{key: value for key, value in about.items() if value not in ("", [])},
        "distribution": objects,
        "recordSet": sets,
    }
    file = folder / f"{stem}-croissant.json"
    with product(file) as partial:
        partial.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [file, *written]


def _make_field(table: str, file: str, column: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{slugged(column)}",
        "name": f"{table}/{slugged(column)}",
        "dataType": TYPES.get(kind, "sc:Text"),
        "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
    }

"""What the manifests of runs and their scores say of how a table came about."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval import metrics
from medimg_eval.results.acceptance import ACCEPTANCE
from medimg_eval.results.runs import MANIFEST, attributes, is_known, read_manifest
from medimg_eval.results.table import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table import Table

Facts = dict[str, dict[str, str]]
"""Name of a fact -> what it is about -> what is known; "" is what nothing is known of."""

SECTIONS: dict[str, dict[str, str]] = {
    "Data": {
        "description": "What is judged",
        "source": "Source",
        "reference": "Reference",
        "licence": "Licence",
        "access": "Access",
        "truth": "Reference standard",
        "labels": "Labels",
        "split": "Split",
        "split_sources": "Files that define the split, with their hashes",
        "selection": "Layout of the data",
        "fingerprint": "Fingerprint of cases and files",
        "cases": "Cases and patients",
        "left_out": "Cases without scores",
        "attributes": "Attributes of the cases",
        "resampled": "Taken for independent",
        "limits": "Limits",
    },
    "Models": {
        "names": "Names",
        "model": "Class of the wrapper",
        "checkpoint": "Checkpoint or files, with their hashes",
        "parameters": "Parameters",
        "preprocessing": "Preparation of images",
        "settings": "Settings",
        "fitting": "Fitting",
        "baselines": "Baselines",
    },
    "Asking": {
        "output": "What models give",
        "prompts": "Prompts",
        "decoding": "Decoding",
        "extraction": "Extraction of answers",
        "judge": "Judge",
        "extractors": "Networks that describe pictures",
    },
    "Scoring": {
        "metrics": "Metrics",
        "signature": "Signature",
        "intervals": "Intervals",
        "tests": "Tests",
        "results": "Results",
        "failures": "Failed cases",
        "undefined": "Undefined values",
        "warnings": "Warnings",
        "acceptance": "Criteria, plan and verdict",
    },
    "Running": {
        "command": "Command",
        "seed": "Seed",
        "revision": "Code revision",
        "software": "Software",
        "hardware": "Hardware",
        "when": "Begun and ended",
        "timing": "Time of answering",
        "usage": "Usage and cost",
        "efficiency": "Efficiency",
    },
}
"""The facts of a card under their headings, with what each is called."""

NONE = "none"
_GIVEN = ("Given", "Precomputed")
_INTERVALS = re.compile(r"% interval|interval (?:of|where)|^\[n too small\]")
_TESTS = re.compile(r"^[†‡].* test")
_MOST_VALUES = 12
"""Values of an attribute that are counted one by one."""


def gather(table: Table) -> Facts:
    """Returns all that is known of a table's runs; every run has its place under every fact."""
    found: Facts = {name: {} for section in SECTIONS.values() for name in section}
    for run in table.runs:
        manifest = read_manifest(run.folder / MANIFEST) if (run.folder / MANIFEST).is_file() else {}
        for name, text in _of_task(run, manifest):
            _add(found[name], run.task_title, text)
        for name, text in _of_model(manifest):
            _add(found[name], run.name, text)
        for name, text in _of_run(run, manifest):
            _add(found[name], f"{run.name} on {run.task_title}", text)
    for name, text in _of_table(table):
        found[name][""] = text
    return found


def _add(facts: dict[str, str], subject: str, text: str) -> None:
    """Notes what is known of a subject; what several runs say differently of it is kept side by side."""
    before = facts.setdefault(subject, "")
    if text not in before:
        facts[subject] = f"{before}; {text}" if before else text


def _of_task(run: RunScores, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    config = run.task_config
    card = _mapping(config, "card")
    for name in ("description", "source", "reference", "licence", "access", "truth", "split", "limits"):
        yield name, _text(card.get(name))
    yield "labels", _text(config.get("labels") or config.get("classes"))
    yield "split_sources", _text(manifest.get("split_source")) or (NONE if "split_source" in manifest else "")
    layout = {key: value for key, value in _mapping(config, "layout").items() if key != "root"}
    yield "selection", _shortened(_text(layout))
    yield "fingerprint", run.data_fingerprint
    patients = f" of {run.scores['patient'].nunique():,} patients" if run.resampled == "patients" else ""
    yield "cases", f"{run.cases:,} {run.noun}{patients if run.finished else ''}"
    yield "attributes", _attributes(run)
    yield "resampled", run.unit
    yield "output", run.output
    yield "extraction", _text(config.get("extraction")) or _unsaid(run, manifest)
    yield "signature", run.signature


def _unsaid(run: RunScores, manifest: Mapping[str, Any]) -> str:
    """Returns what holds of words where the task's config says nothing of them."""
    if not run.task_config:
        return ""
    if not run.asks:
        return NONE
    version = _mapping(_mapping(manifest, "provenance"), "versions").get("medimg-eval", "of an unknown version")
    return f"the usual of medimg-eval {version}"


def _of_model(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    info, config = _mapping(manifest, "model_info"), _mapping(_mapping(manifest, "config"), "model")
    yield "model", ", ".join(str(info[key]) for key in ("class", "_target_") if key in info)
    yield "checkpoint", "; ".join(_files(info, config))
    count = info.get("parameters")
    yield "parameters", f"{count:,}" if isinstance(count, int) else ""
    yield "preprocessing", _text(info.get("preprocess"))
    others = {key: value for key, value in info.items() if key not in ("class", "parameters", "preprocess", "_target_")}
    yield "settings", _text(others)
    yield "fitting", _fitting(config)


def _files(info: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """Yields the files of a model by name with the hash of their content, and names on a hub as they are."""
    for key, value in config.items():
        if isinstance(value, str) and key in info and info[key] != value:
            yield f"{key} {Path(value).name}, content {info[key]}"
        elif key == "checkpoint" and value:
            yield f"{key} {value}, not hashed"
    if code := info.get("code"):
        yield f"code of its wrapper, content {str(code)[:16]}"


def _fitting(config: Mapping[str, Any]) -> str:
    """Returns what the run that made a checkpoint says of itself, where that is still there."""
    checkpoint = config.get("checkpoint")
    if not isinstance(checkpoint, str) or not (Path(checkpoint) / MANIFEST).is_file():
        return ""
    fitted = read_manifest(Path(checkpoint) / MANIFEST)
    trainer = _text(_mapping(_mapping(fitted, "config"), "trainer"))
    return (
        f"fit run {fitted.get('run')} on data {fitted.get('data_fingerprint')}, seed {fitted.get('seed')}, "
        f"best score {fitted.get('best_score')}; trainer: {trainer}"
    )


def _of_run(run: RunScores, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    made = _mapping(manifest, "provenance")
    scored = run.scores["case"].nunique() if run.finished else run.predicted
    partial = f"; a partial run, {run.partial}" if run.partial else ""
    yield "left_out", f"{run.cases - scored:,} of {run.cases:,}{partial}"
    yield "failures", f"{run.failed_cases:,} of {run.cases:,} {run.noun}"
    # The program's own path, which says where it is installed, is left out.
    words = made.get("command")
    said = " ".join(map(str, words[1:])) if isinstance(words, list) else ""
    yield "command", _shortened(f"python -m medimg_eval {said}") if said else ""
    yield "seed", _text(manifest.get("seed"))
    git = _mapping(made, "git")
    changed = "with files changed since" if git.get("changed_files") else "nothing changed"
    yield "revision", f"{git['revision']}, {changed}" if "revision" in git else ""
    versions = {"python": made["python"], **_mapping(made, "versions")} if "python" in made else {}
    yield "software", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "hardware", _hardware(_mapping(made, "hardware"))
    ended = run.ended.isoformat() if run.ended else run.status
    yield "when", f"{run.started.isoformat()} to {ended}" if manifest else ""
    yield "timing", _seconds(run.timing)
    yield "usage", _text(run.usage)
    yield "efficiency", _text(manifest.get("efficiency"))
    unsaid = NONE if manifest else ""
    # Answers that were given were asked for elsewhere, nobody knows how.
    given = str(_mapping(manifest, "model_info").get("class", "")).startswith(_GIVEN)
    for name, key in (("prompts", "template"), ("decoding", "decoding")):
        said = _text(run.task_config.get(key)) or _unsaid(run, manifest)
        yield name, "" if given and run.asks else said
    yield "acceptance", _acceptance(run.folder / ACCEPTANCE)
    yield "judge", _judge(_mapping(manifest, "judge")) or unsaid
    yield "extractors", _text(manifest.get("extractors")) or unsaid


def _acceptance(file: Path) -> str:
    """Last criterion of a run and its verdicts, as `test` and `score` keep them; nothing where it was not judged."""
    if not file.is_file():
        return ""
    held = json.loads(file.read_text(encoding="utf-8"))
    plan = f"by plan {held['plan']}" if held.get("plan") else "without a plan"
    if held.get("deviations"):
        return f"not judged {plan}: {'; '.join(held['deviations'])}"
    bounds = [
        f"{one['metric']} {key} {one[key]:g}: {one['verdict']}"
        for one in held["endpoints"]
        for key in ("lower", "upper")
        if key in one
    ]
    return f"{'accepted' if held['accepted'] else 'not accepted'} {plan}; {'; '.join(bounds)}"


def _hardware(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    gpus = ", ".join(map(str, found.get("gpus") or ())) or "no GPU"
    return f"{found.get('system')} {found.get('machine')}, {found.get('cpus')} CPUs, {gpus}"


def _seconds(timing: Mapping[str, float]) -> str:
    if "seconds" not in timing:
        return ""
    inside = f", {timing['in_model']:.1f} s of it in the model" if "in_model" in timing else ""
    return f"{timing['seconds']:.1f} s{inside}"


def _judge(said: Mapping[str, Any]) -> str:
    if not said:
        return ""
    counts = ", ".join(
        f"{said[key]} {key.replace('_', ' ')}" for key in ("questions", "without_verdict") if key in said
    )
    return f"{said.get('name')} ({said.get('id')}): {counts}; {_text(said.get('identity'))}"


def _of_table(table: Table) -> Iterator[tuple[str, str]]:
    yield "metrics", "; ".join(dict.fromkeys(_metric(table, place) for place in range(len(table.columns))))
    notes = [one_line(note) for note in table.footnotes]
    finished = any(cell.n for row in table.rows for cell in row.cells)
    unsaid = NONE if finished else ""
    yield "intervals", " ".join(filter(_INTERVALS.search, notes)) or unsaid
    yield "tests", " ".join(filter(_TESTS.search, notes)) or unsaid
    yield "results", "the table: each value with its interval, or why there is none" if finished else ""
    yield "undefined", " ".join(note for note in notes if "undefined" in note) or unsaid
    yield "warnings", " ".join(note for note in notes if note.startswith("Warning: ")) or unsaid
    yield "names", ", ".join(dict.fromkeys(row.name for row in table.rows))
    yield "baselines", ", ".join(dict.fromkeys(row.name for row in table.rows if row.baseline)) or NONE


def _metric(table: Table, place: int) -> str:
    """Returns the name, direction and definition of a column's metric."""
    column = table.columns[place]
    better = {True: "higher is better", False: "lower is better", None: "no direction"}[column.higher_is_better]
    if not is_known(column.metric):
        return f"{column.title} ({better}; defined by whoever computed it)"
    known = metrics.get(column.metric)
    source = f" Source: {known.source}" if known.source else ""
    return f"{metrics.title(column.metric)} ({better}): {known.definition}{source}"


def _attributes(run: RunScores) -> str:
    """Returns how many cases have which value of each attribute."""
    if not run.finished:
        return ""
    codes, found = attributes(run.scores.drop_duplicates("case"))
    told = []
    for name, values in found.items():
        of_cases = values[codes].tolist()
        kinds = sorted(set(of_cases))
        if len(kinds) > _MOST_VALUES:
            told.append(f"{name}: {len(kinds)} values")
        else:
            counts = ", ".join(f"{kind or 'unknown'} {of_cases.count(kind)}" for kind in kinds)
            told.append(f"{name}: {counts}")
    return "; ".join(told) or NONE


def _shortened(text: str) -> str:
    """Returns a text without the folders that absolute paths in it lead through, which name machines and people."""
    return re.sub(r"(?<![\w.])~?/(?:[^/\s\"',\]}]+/)+(?=[^/\s])", ".../", text)


def _mapping(held: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = held.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(value: Any) -> str:
    """Returns a setting as text on one line; "" for what is not there or empty."""
    if value is None or value in ({}, [], ""):
        return ""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))

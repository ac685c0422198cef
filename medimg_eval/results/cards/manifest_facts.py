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
    """Returns all facts of a table's runs, a slot per run."""
    facts: Facts = {name: {} for section in SECTIONS.values() for name in section}
    for run in table.runs:
        manifest = read_manifest(run.folder / MANIFEST) if (run.folder / MANIFEST).is_file() else {}
        for name, text in _of_task(run, manifest):
            _add_fact(facts[name], run.task_title, text)
        for name, text in _of_model(manifest):
            _add_fact(facts[name], run.name, text)
        for name, text in _of_run(run, manifest):
            _add_fact(facts[name], f"{run.name} on {run.task_title}", text)
    for name, text in _of_table(table):
        facts[name][""] = text
    return facts


def _add_fact(facts: dict[str, str], subject: str, text: str) -> None:
    """Notes a subject's fact; differing runs stay side by side."""
    before = facts.setdefault(subject, "")
    if text not in before:
        facts[subject] = f"{before}; {text}" if before else text


def _of_task(run: RunScores, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    config = run.task_config
    card = _held_mapping(config, "card")
    for name in ("description", "source", "reference", "licence", "access", "truth", "split", "limits"):
        yield name, _setting_text(card.get(name))
    yield "labels", _setting_text(config.get("labels") or config.get("classes"))
    yield "split_sources", _setting_text(manifest.get("split_source")) or (NONE if "split_source" in manifest else "")
    layout = {key: value for key, value in _held_mapping(config, "layout").items() if key != "root"}
    yield "selection", _shorten_paths(_setting_text(layout))
    yield "fingerprint", run.data_fingerprint
    patients = f" of {run.scores['patient'].nunique():,} patients" if run.resampled == "patients" else ""
    yield "cases", f"{run.cases:,} {run.noun}{patients if run.finished else ''}"
    yield "attributes", _attribute_counts(run)
    yield "resampled", run.unit
    yield "output", run.output
    yield "extraction", _setting_text(config.get("extraction")) or _unstated_fact(run, manifest)
    yield "signature", run.signature


def _unstated_fact(run: RunScores, manifest: Mapping[str, Any]) -> str:
    """Returns what holds of words where the task's config says nothing of them."""
    if not run.task_config:
        return ""
    if not run.asks:
        return NONE
    version = _held_mapping(_held_mapping(manifest, "provenance"), "versions").get(
        "medimg-eval", "of an unknown version"
    )
    return f"the usual of medimg-eval {version}"


def _of_model(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    info, config = _held_mapping(manifest, "model_info"), _held_mapping(_held_mapping(manifest, "config"), "model")
    yield "model", ", ".join(str(info[key]) for key in ("class", "_target_") if key in info)
    yield "checkpoint", "; ".join(_model_files(info, config))
    count = info.get("parameters")
    yield "parameters", f"{count:,}" if isinstance(count, int) else ""
    yield "preprocessing", _setting_text(info.get("preprocess"))
    further = {
        key: value for key, value in info.items() if key not in ("class", "parameters", "preprocess", "_target_")
    }
    yield "settings", _setting_text(further)
    yield "fitting", _fit_fact(config)


def _model_files(info: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """Yields a model's files with content hashes, and hub names."""
    for key, value in config.items():
        if isinstance(value, str) and key in info and info[key] != value:
            yield f"{key} {Path(value).name}, content {info[key]}"
        elif key == "checkpoint" and value:
            yield f"{key} {value}, not hashed"
    if code := info.get("code"):
        yield f"code of its wrapper, content {str(code)[:16]}"


def _fit_fact(config: Mapping[str, Any]) -> str:
    """Returns the facts of a checkpoint's fit run, if there."""
    checkpoint = config.get("checkpoint")
    if not isinstance(checkpoint, str) or not (Path(checkpoint) / MANIFEST).is_file():
        return ""
    fitted = read_manifest(Path(checkpoint) / MANIFEST)
    trainer = _setting_text(_held_mapping(_held_mapping(fitted, "config"), "trainer"))
    return (
        f"fit run {fitted.get('run')} on data {fitted.get('data_fingerprint')}, seed {fitted.get('seed')}, "
        f"best score {fitted.get('best_score')}; trainer: {trainer}"
    )


def _of_run(run: RunScores, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    provenance = _held_mapping(manifest, "provenance")
    scored = run.scores["case"].nunique() if run.finished else run.predicted
    partial = f"; a partial run, {run.partial}" if run.partial else ""
    yield "left_out", f"{run.cases - scored:,} of {run.cases:,}{partial}"
    yield "failures", f"{run.failed_cases:,} of {run.cases:,} {run.noun}"
    # The program's own path, which says where it is installed, is left out.
    words = provenance.get("command")
    text = " ".join(map(str, words[1:])) if isinstance(words, list) else ""
    yield "command", _shorten_paths(f"python -m medimg_eval {text}") if text else ""
    yield "seed", _setting_text(manifest.get("seed"))
    git = _held_mapping(provenance, "git")
    changed = "with files changed since" if git.get("changed_files") else "nothing changed"
    yield "revision", f"{git['revision']}, {changed}" if "revision" in git else ""
    versions = (
        {"python": provenance["python"], **_held_mapping(provenance, "versions")} if "python" in provenance else {}
    )
    yield "software", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "hardware", _hardware_fact(_held_mapping(provenance, "hardware"))
    ended = run.ended.isoformat() if run.ended else run.status
    yield "when", f"{run.started.isoformat()} to {ended}" if manifest else ""
    yield "timing", _timing_fact(run.timing)
    yield "usage", _setting_text(run.usage)
    yield "efficiency", _setting_text(manifest.get("efficiency"))
    unsaid = NONE if manifest else ""
    # Answers that were given were asked for elsewhere, nobody knows how.
    is_given = str(_held_mapping(manifest, "model_info").get("class", "")).startswith(_GIVEN)
    for name, key in (("prompts", "template"), ("decoding", "decoding")):
        text = _setting_text(run.task_config.get(key)) or _unstated_fact(run, manifest)
        yield name, "" if is_given and run.asks else text
    yield "acceptance", _acceptance_fact(run.folder / ACCEPTANCE)
    yield "judge", _judge_fact(_held_mapping(manifest, "judge")) or unsaid
    yield "extractors", _setting_text(manifest.get("extractors")) or unsaid


def _acceptance_fact(file: Path) -> str:
    """Last criterion of a run with verdicts; nothing where unjudged."""
    if not file.is_file():
        return ""
    held = json.loads(file.read_text(encoding="utf-8"))
    plan = f"by plan {held['plan']}" if held.get("plan") else "without a plan"
    if held.get("deviations"):
        return f"not judged {plan}: {'; '.join(held['deviations'])}"
    bounds = [
        f"{endpoint['metric']} {key} {endpoint[key]:g}: {endpoint['verdict']}"
        for endpoint in held["endpoints"]
        for key in ("lower", "upper")
        if key in endpoint
    ]
    return f"{'accepted' if held['accepted'] else 'not accepted'} {plan}; {'; '.join(bounds)}"


def _hardware_fact(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    gpus = ", ".join(map(str, found.get("gpus") or ())) or "no GPU"
    return f"{found.get('system')} {found.get('machine')}, {found.get('cpus')} CPUs, {gpus}"


def _timing_fact(timing: Mapping[str, float]) -> str:
    if "seconds" not in timing:
        return ""
    inside = f", {timing['in_model']:.1f} s of it in the model" if "in_model" in timing else ""
    return f"{timing['seconds']:.1f} s{inside}"


def _judge_fact(said: Mapping[str, Any]) -> str:
    if not said:
        return ""
    counts = ", ".join(
        f"{said[key]} {key.replace('_', ' ')}" for key in ("questions", "without_verdict") if key in said
    )
    return f"{said.get('name')} ({said.get('id')}): {counts}; {_setting_text(said.get('identity'))}"


def _of_table(table: Table) -> Iterator[tuple[str, str]]:
    yield "metrics", "; ".join(dict.fromkeys(_metric_fact(table, index) for index in range(len(table.columns))))
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


def _metric_fact(table: Table, place: int) -> str:
    """Returns the name, direction and definition of a column's metric."""
    column = table.columns[place]
    better = {True: "higher is better", False: "lower is better", None: "no direction"}[column.higher_is_better]
    if not is_known(column.metric):
        return f"{column.title} ({better}; defined by whoever computed it)"
    definition = metrics.get(column.metric)
    source = f" Source: {definition.source}" if definition.source else ""
    return f"{metrics.title(column.metric)} ({better}): {definition.definition}{source}"


def _attribute_counts(run: RunScores) -> str:
    """Returns how many cases have which value of each attribute."""
    if not run.finished:
        return ""
    codes, values_ = attributes(run.scores.drop_duplicates("case"))
    lines = []
    for name, values in values_.items():
        of_cases = values[codes].tolist()
        kinds = sorted(set(of_cases))
        if len(kinds) > _MOST_VALUES:
            lines.append(f"{name}: {len(kinds)} values")
        else:
            counts = ", ".join(f"{kind or 'unknown'} {of_cases.count(kind)}" for kind in kinds)
            lines.append(f"{name}: {counts}")
    return "; ".join(lines) or NONE


def _shorten_paths(text: str) -> str:
    """Returns a text with absolute paths reduced to names."""
    return re.sub(r"(?<![\w.])~?/(?:[^/\s\"',\]}]+/)+(?=[^/\s])", ".../", text)


def _held_mapping(held: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    mapping = held.get(key)
    return mapping if isinstance(mapping, Mapping) else {}


def _setting_text(value: Any) -> str:
    """Returns a setting as one line; "" for missing or empty."""
    if value is None or value in ({}, [], ""):
        return ""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))

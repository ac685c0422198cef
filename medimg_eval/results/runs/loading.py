"""Run folders read back: manifests as typed fields, Score rows as frames, and how older runs left out differ."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.case import NO_IMAGE
from medimg_eval.errors import UserError, nearest_path, nearest_run
from medimg_eval.metrics import present_name
from medimg_eval.metrics.conditions import split_condition
from medimg_eval.patients import SALTED, salt_of
from medimg_eval.results.runs.metric_kinds import SET, is_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

MANIFEST = "manifest.json"
SCORES = "scores.parquet"
SCHEMA = 2
SCHEMAS = (1, 2)
"""Versions of run folders that are read."""
SCORE_COLUMNS = (
    "run",
    "task",
    "model",
    "case",
    "patient",
    "label",
    "metric",
    "value",
    "status",
    "attributes",
)
VARIED = ("repeat", "condition")
"""Columns that tell apart the rows of a case; older files lack them, and mean repeat 0 and no condition."""
_NO_ROWS = pd.DataFrame(columns=list(SCORE_COLUMNS))
_NO_VARIED_ROWS = pd.DataFrame(columns=[*SCORE_COLUMNS, *VARIED])
"""Copied for each run: making a frame takes ten times as long as copying one, and thousands of runs may be listed."""
STATUSES = ("running", "finished", "failed", "interrupted")
RESAMPLED = ("patients", "cases")
_NO_IMAGE_ROW = " (blind)"
"""What follows a model's name in the row of its scores without images; former runs and CSV files have it there."""

FORMER_WORDS = {
    "QuestionTask": ("questions", "text, from which answers are extracted"),
    "ReportTask": ("reports", "text"),
    "SegmentationTask": ("cases", "masks"),
    "ClassificationTask": ("cases", "probabilities of classes"),
    "DetectionTask": ("cases", "boxes or points with scores"),
    "SynthesisTask": ("cases", "pictures"),
    "ReconstructionTask": ("cases", "images"),
}
"""Of manifests that do not say it: end of the task's class -> what its cases are called, and what a model gives."""

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunScores:
    """`test` run: manifest facts and Score rows (none unfinished)."""

    folder: Path
    run: str
    task: str
    task_title: str
    model: str
    condition: str = ""
    """Key of the condition that its scores are of; "" for the cases as published."""
    settings: str = ""
    """Hash of the model's settings: runs of one model name that differ in it are different models."""
    status: str = "finished"
    """One of `STATUSES`; "failed" means that it stopped by an exception."""
    cases: int
    """Cases that the task has, or that a partial run was asked for."""
    predicted: int
    failed_cases: int
    data_fingerprint: str = ""
    signature: str = "values as given"
    resampled: str
    """What the interval resamples: one of `RESAMPLED`."""
    units: str = "mm"
    """Of distances: "mm" or "pixel"."""
    notes: tuple[str, ...] = ()
    started: datetime
    ended: datetime | None = None
    scores: pd.DataFrame
    """Score rows of the cases as published; with a column `repeat` only where there are several."""
    varied: pd.DataFrame = field(default_factory=_NO_VARIED_ROWS.copy)
    """Score rows under the run's conditions, with the columns `repeat` and `condition`."""
    sets: pd.DataFrame = field(default_factory=_NO_ROWS.copy)
    """Score rows of what was judged as a set, which belong to no case; see `results.set_cells`."""
    metrics: tuple[str, ...] = ()
    """The task's metrics in its order, summaries among them; empty where the manifest does not say."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What summaries may need beside scores: facts of the task, and what was measured of the model."""
    baseline: bool = False
    """Whether it is no model to be ranked, but what models are held against: chance, or one that saw no images."""
    task_config: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the run was judged by."""
    chance: Mapping[str, float] = field(default_factory=dict)
    """What guessing is worth, by metric."""
    timing: Mapping[str, float] = field(default_factory=dict)
    """Of answering: `seconds`, those spent inside the model as `in_model`, and the share that was not as `overhead`."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """What answering took: tokens, requests, retries, cost."""
    directions: Mapping[str, bool] = field(default_factory=dict)
    """Of metrics that the registry lacks: whether higher is better, as whoever gave the scores says."""
    proportions: frozenset[str] = frozenset()
    """Metrics that the registry lacks whose values are 1 for yes or 0 for no, as whoever gave the scores says."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """By metric, the choices behind it alone; empty where an older manifest does not say."""
    noun: str = "cases"
    """What its cases are called."""
    output: str = ""
    """What the model gives, in words."""
    partial: str = ""
    """Which of the task's cases were judged, such as "the first 5 of 20 cases"; "" for all."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Of a checkpoint among others: `series`, their common name, and the `step` or `epoch` that it was written at."""
    subsets: tuple[Mapping[str, Any], ...] = ()
    """Of each repeat that was fitted on a subset: `repeat`, `kind`, `size`, `draw`, `patients`, `cases`. Then `scores`
    are of the largest size, and those of the others are `varied`, under conditions such as `fraction-0.1`."""
    made_of: Mapping[str, Any] = field(default_factory=dict)
    """What decided its answers, by keys joined with dots; see `results.left_out`."""
    left_out: tuple[RunScores, ...] = ()
    """Older runs of the same task, model and settings that the search found and left out, without scores."""

    @property
    def name(self) -> str:
        """Row name in tables: model, and whether blind."""
        return self.model + _NO_IMAGE_ROW * (self.condition == NO_IMAGE)

    @cached_property
    def repeats(self) -> int:
        """How many repeats its scores are of."""
        return int(self.scores["repeat"].nunique()) if "repeat" in self.scores.columns else 1

    @property
    def in_folds(self) -> bool:
        """Whether repeats are folds, each case tested once."""
        splits = (self.task_config.get("layout") or {}).get("splits") or {}
        return isinstance(splits, Mapping) and splits.get("fold") == "all"

    @property
    def conditions(self) -> tuple[str, ...]:
        """Keys of further conditions, in order of severity."""
        return tuple(sorted(self.varied["condition"].unique(), key=split_condition))

    def under(self, condition: str) -> RunScores:
        """Returns the run under a condition, in place of published cases."""
        scores, _ = _split_conditions(self.varied.loc[self.varied["condition"] == condition].assign(condition=""))
        return replace(self, scores=scores, sets=self.sets.iloc[:0], varied=self.varied.iloc[:0])

    @property
    def finished(self) -> bool:
        """Whether the run has its scores; only then is anything averaged."""
        return self.status == "finished"

    @property
    def asks(self) -> bool:
        """Whether its cases are put in words: questions, or reports to be written."""
        return self.noun in ("questions", "reports")

    @property
    def unit(self) -> str:
        """Resampling unit in words: image, patient or set."""
        if self.noun != "questions":
            return self.noun if self.resampled == "cases" else self.resampled
        return "groups of questions" if self.resampled == "patients" else "questions"


def load_runs(paths: Sequence[str | Path]) -> list[RunScores]:
    """Reads the runs that `paths` name or contain.

    A path that holds a manifest is a run folder and is always kept. Any other path is searched, and of the
    runs found so only the newest of each (task, model, settings) is kept: the newest by start time, finished
    or not, since an older finished run under the same name would pass for the present one. So it is where the data
    were mended; but where a task shows pictures of another run (a reconstruction, a synthesis), what it shows counts
    too: judgements of two such runs are both kept.

    Args:
        paths: Run folders, or folders that contain run folders at any depth.

    Returns:
        The named runs in the order given, then the runs found, sorted by task, model and folder; after each what it
        scored without images, if it was asked so, as a baseline.

    Raises:
        UserError: If there is no `test` run, or a manifest or score file cannot be used.
    """
    named: dict[Path, RunScores] = {}
    runs_: dict[Path, RunScores] = {}
    for path in map(Path, paths):
        if (path / MANIFEST).is_file():
            folder = path.resolve()
            named[folder] = _described_run(folder, read_manifest(folder / MANIFEST))
            continue
        if not path.is_dir():
            raise UserError(f"{path} is not a folder{nearest_path(path)}; give a run's folder, or one of runs")
        for file in sorted(path.rglob(MANIFEST)):
            manifest = read_manifest(file)
            # `fit` runs have no scores, and other programs write files of this name too.
            if manifest.get("command") == "test" and (folder := file.parent.resolve()) not in runs_:
                runs_[folder] = _described_run(folder, manifest)
    runs = [*named.values(), *(run for run in _newest_runs(runs_) if run.folder not in named)]
    if not runs:
        sought = ", ".join(str(path) for path in paths) or "an empty list of folders"
        raise UserError(f"No `test` run in {sought}; run `python -m medimg_eval test` first, or name another folder")
    # Scores are read last, so that a run which is left out costs nothing and cannot stop the table.
    return [line for run in runs for line in _table_runs(_with_scores(run))]


def _table_runs(run: RunScores) -> list[RunScores]:
    """Returns a run, and its scores without images as a baseline beside it."""
    if run.baseline or NO_IMAGE not in run.conditions:
        return [run]
    blind = run.under(NO_IMAGE)
    failed = int(blind.scores.loc[blind.scores["status"] == "failed", "case"].nunique())
    blind = replace(blind, run=f"{run.run}~{NO_IMAGE}", condition=NO_IMAGE, baseline=True, failed_cases=failed)
    blind_cases, every = blind.scores["case"].nunique(), run.scores["case"].nunique()
    if blind_cases < every:  # of a first look that went on without baselines
        blind = replace(
            blind, cases=blind_cases, partial=f"{blind_cases:,} of {every:,} {run.noun} asked without images"
        )
    return [run, replace(blind, timing={}, usage={}, left_out=())]


def model_and_condition(name: str) -> tuple[str, str]:
    """Model and condition, `no_image` or "", of a row's name."""
    model = name.removesuffix(_NO_IMAGE_ROW)
    return model, NO_IMAGE if model != name else ""


def _newest_runs(found: Mapping[Path, RunScores]) -> list[RunScores]:
    """Returns newest runs with older ones left out."""
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[RunScores]] = {}
    for run in found.values():
        groups.setdefault((run.task, run.name, run.settings, runs_shown(run.task_config)), []).append(run)
    newest = []
    for _, group in sorted(groups.items()):
        # The folder decides between runs started at the same instant, so that the choice is always the same.
        latest = max(group, key=lambda run: (run.started, str(run.folder)))
        older = sorted((run for run in group if run is not latest), key=lambda run: run.started)
        newest.append(replace(latest, left_out=tuple(older)))
    return newest


def read_manifest(file: Path) -> dict[str, Any]:
    """Reads a manifest; UserError unless a JSON object."""
    if not file.is_file():
        raise UserError(f"{file.parent} holds no run (there is no {file.name} in it){nearest_run(file)}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file} cannot be read as JSON ({error}); remove that run folder, or run its test again"
        ) from error
    if not isinstance(manifest, dict):
        raise UserError(f"{file} is not a run manifest; remove that folder from the ones given")
    return manifest


def _described_run(folder: Path, manifest: Mapping[str, object]) -> RunScores:
    """Returns the run that a manifest describes, its scores not read yet."""
    file = folder / MANIFEST
    if manifest.get("command") != "test":
        raise UserError(f"{file} is of a {manifest.get('command')!r} run; only `test` runs have scores to show")
    if manifest.get("schema") not in SCHEMAS:
        raise UserError(
            f"{file} has schema {manifest.get('schema')!r}, and this version reads {SCHEMA}; "
            "remove that run folder, or run its test again"
        )

    def entry(key: str, kind: type[_T]) -> _T:
        value = manifest.get(key)
        if not isinstance(value, kind):
            raise UserError(f"{file} has {value!r} under {key!r} where a {kind.__name__} is needed; run the test again")
        return value

    metrics = manifest.get("metrics")
    status = _one_of(entry("status", str), STATUSES, key="status", file=file)
    resampled = _one_of(entry("resampled", str), RESAMPLED, key="resampled", file=file)
    noun, output = _manifest_words(manifest)
    model, condition = model_and_condition(entry("model", str))
    ended = None if manifest.get("ended") is None else _parse_time(entry("ended", str), file)
    return RunScores(
        folder=folder,
        run=entry("run", str),
        task=entry("task", str),
        task_title=entry("task_title", str),
        model=model,
        condition=condition,
        settings=entry("settings", str),
        status=status,
        cases=entry("cases", int),
        predicted=entry("predicted", int) if status == "finished" else _count_answered(folder),
        failed_cases=entry("failed_cases", int),
        data_fingerprint=entry("data_fingerprint", str),
        signature=entry("signature", str),
        resampled=resampled,
        units=str(_mapping_of(manifest, "task_config").get("units", "mm")),  # older manifests do not say, and meant mm
        notes=tuple(str(note) for note in entry("notes", list)),
        started=_parse_time(entry("started", str), file),
        ended=ended,
        scores=_NO_ROWS.copy(),
        directions={
            name: better for name, better in _mapping_of(manifest, "directions").items() if isinstance(better, bool)
        },
        metrics=tuple(present_name(str(name)) for name in metrics) if isinstance(metrics, list) else (),
        facts=_manifest_facts(manifest),
        baseline=manifest.get("baseline") is True or bool(condition),
        task_config=_mapping_of(manifest, "task_config"),
        chance=_manifest_numbers(manifest, "chance"),
        definitions={
            present_name(name): text
            for name, text in (_mapping_of(manifest, "signatures") or _mapping_of(manifest, "definitions")).items()
        },
        noun=noun,
        output=output,
        partial=str(manifest.get("partial") or ""),
        training=_mapping_of(manifest, "training"),
        subsets=tuple(subsets if isinstance(subsets := manifest.get("subsets"), list) else ()),
        made_of=made_of(manifest),
        timing=_manifest_numbers(manifest, "timing"),
        usage=usage_in_all(manifest.get("usage")),
    )


def _mapping_of(manifest: Mapping[str, object], key: str) -> Mapping[str, Any]:
    """Returns a manifest's mapping under a key; {} in older ones."""
    mapping = manifest.get(key)
    return mapping if isinstance(mapping, dict) else {}


def _manifest_words(manifest: Mapping[str, object]) -> tuple[str, str]:
    """Returns the task's words for cases and outputs."""
    target = str(_mapping_of(manifest, "task_config").get("_target_", ""))
    noun, output = next((words for name, words in FORMER_WORDS.items() if target.endswith(name)), ("cases", ""))
    return str(manifest.get("noun", noun)), str(manifest.get("output", output))


def _manifest_numbers(manifest: Mapping[str, object], key: str) -> Mapping[str, float]:
    mapping = _mapping_of(manifest, key)
    return {name: float(value) for name, value in mapping.items() if isinstance(value, int | float)}


def usage_in_all(said: object) -> Mapping[str, Any]:
    """Returns usage over all starts: sums, or last values."""
    starts = said if isinstance(said, list) else [said]
    together: dict[str, Any] = {}
    for start in starts:
        for name, value in (start if isinstance(start, dict) else {}).items():
            counts = isinstance(value, int | float) and isinstance(together.get(name, 0), int | float)
            together[name] = together.get(name, 0) + value if counts else value
    return together


def _manifest_facts(manifest: Mapping[str, object]) -> dict[str, Any]:
    """Returns facts of the task, model measurements and parameter count."""
    facts = {**_mapping_of(manifest, "facts"), **_mapping_of(manifest, "efficiency")}
    parameters = _mapping_of(manifest, "model_info").get("parameters")
    return facts | ({"parameters": parameters} if parameters else {})


def _count_answered(folder: Path) -> int:
    """Returns an unfinished run's number of stored answers."""
    lines = (line for shard in folder.glob("predictions-*.jsonl") for line in shard.read_text("utf-8").splitlines(True))
    records = (json.loads(line) for line in lines if line.endswith("\n"))
    return len({record["case"] for record in records if "failure" not in record})


def _one_of(value: str, options: Sequence[str], *, key: str, file: Path) -> str:
    if value not in options:
        raise UserError(
            f"{file} has {value!r} under {key!r}, which is none of {', '.join(options)}; run the test again"
        )
    return value


def _parse_time(text: str, file: Path) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{file} has {text!r} where an ISO time is needed; run the test again") from error
    # Times with and without a zone cannot be compared; one without is taken as UTC.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _under_present_names(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns stored rows under present metric names."""
    former = {name: new for name in scores["metric"].unique() if (new := present_name(str(name))) != name}
    return scores.assign(metric=scores["metric"].replace(former)) if former else scores


def _with_scores(run: RunScores) -> RunScores:
    """Reads a finished run's rows, refusing dishonest averages."""
    if not run.finished:
        return run
    file = run.folder / SCORES
    mend = "score the run again with `python -m medimg_eval score`"
    try:
        scores = pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}) although the run is finished; {mend}") from error
    if missing := [column for column in SCORE_COLUMNS if column not in scores.columns]:
        raise UserError(f"{file} lacks the columns {', '.join(missing)}; {mend}")
    scores, varied = _split_conditions(_by_size(_under_present_names(scores), run))
    of_sets = scores["status"] == SET
    sets, scores = scores.loc[of_sets], scores.loc[~of_sets]
    if not pd.api.types.is_numeric_dtype(scores["value"]):
        raise UserError(f"{file} has values that are not numbers; {mend}")
    if any(np.isinf(some["value"].to_numpy(dtype=np.float64)).any() for some in (scores, varied)):
        raise UserError(f"{file} has infinite values, which no mean can hold; {mend}")
    if run.resampled == "patients" and scores["patient"].isna().any():
        raise UserError(f"{file} has cases without a patient, and its intervals resample patients; {mend}")
    if "," in salt_names(run := replace(run, scores=scores, sets=sets, varied=varied)):
        raise UserError(f"{file} names its patients with several salts ({salt_names(run)}); {mend}")
    for some in (scores, varied):
        # Evidence may hold several rows for a label, such as one per candidate of a detector.
        single = some.loc[~some["metric"].isin([metric for metric in some["metric"].unique() if is_evidence(metric)])]
        key = ["case", "label", "metric", *(name for name in VARIED if name in single.columns)]
        repeated = single.loc[single.duplicated(key)]
        if len(repeated):
            first = repeated.iloc[0]
            raise UserError(f"{file} has two rows of {first['metric']} for case {first['case']!r}; {mend}")
    return run


def _split_conditions(scores: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns published rows and conditions' rows, with `repeat` where several."""
    if "repeat" not in scores.columns:
        scores = scores.assign(repeat=0) if "condition" in scores.columns else scores
    if "condition" in scores.columns:
        condition = scores["condition"].fillna("")
        is_published = condition == ""
        varied = scores.loc[~is_published].reset_index(drop=True)
        scores = scores if is_published.all() else scores.loc[is_published].reset_index(drop=True)
        scores = scores.drop(columns="condition")
    else:
        varied = pd.DataFrame(columns=[*SCORE_COLUMNS, *VARIED]).astype({"value": np.float64})
    if "repeat" in scores.columns and len(scores) and (scores["repeat"].to_numpy() == scores["repeat"].iloc[0]).all():
        scores = scores.drop(columns="repeat")
    return scores, varied


def subset_key(kind: str, size: float) -> str:
    """The condition that the scores of a size stand under, such as `fraction-0.05`."""
    return f"{kind}-{np.format_float_positional(size, trim='-')}"


def _by_size(scores: pd.DataFrame, run: RunScores) -> pd.DataFrame:
    """Returns the largest subset's rows, and others as conditions."""
    if not run.subsets:
        return scores
    largest = max(subset["size"] for subset in run.subsets)
    held = {subset["repeat"]: subset for subset in run.subsets}
    keys = {
        at: "" if subset["size"] == largest else subset_key(subset["kind"], subset["size"])
        for at, subset in held.items()
    }
    repeat = scores["repeat"] if "repeat" in scores.columns else pd.Series(0, index=scores.index)
    return scores.assign(
        condition=repeat.map(keys), repeat=repeat.map({at: subset["draw"] for at, subset in held.items()})
    )


def list_sweeps(conditions: Sequence[str]) -> dict[str, list[int]]:
    """Returns degradation -> severities above 0, ascending, of conditions such as `mri_affine-5`."""
    swept = [(name, severity) for name, severity in map(split_condition, conditions) if severity]
    return {name: sorted(severities) for name, severities in grouped(swept).items()}


def salt_names(run: RunScores) -> str:
    """Returns a patient salt's name; `none` for other names."""
    if run.resampled != "patients":
        return ""
    rows = run.scores.loc[run.scores["patient"] != run.scores["case"]]  # a case of nobody known stands for itself
    names = rows["patient"].dropna().astype(str)
    keys = names.str.startswith(SALTED)  # the others, which may be very many, need no closer look
    salts = {salt_of(name) or "none" for name in names[keys].unique()} | ({"none"} if not keys.all() else set())
    return ", ".join(sorted(salts))


def refuse_other_salts(runs: Sequence[RunScores]) -> None:
    """Refuses joining patients named under different salts.

    Raises:
        UserError: Two runs have different salts, or of one task only one has any.
    """
    salted = [(run, salt) for run in runs if (salt := salt_names(run))]
    for (run, salt), (second, another) in itertools.combinations(salted, 2):
        if salt != another and (run.task == second.task or "none" not in (salt, another)):
            raise UserError(
                f"{run.folder} and {second.folder} name patients with different salts ({salt} and {another}), so that "
                "nobody can tell which are the same; run `python -m medimg_eval score` on both with one salt (export "
                "MEDIMG_EVAL_SALT=FILE), or test again where score says that the data changed"
            )


NAMED = 3
"""Differences of a run that are named, and runs."""

SENTENCES = 3
"""Kinds of older runs that are told of one row; all are counted below the table."""

LONGEST = 40
"""Characters of a value that are shown."""

TOLD = frozenset({"card", "title", "name"})
"""What a task's settings say for people."""


def runs_shown(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns sorted run folders whose pictures a task shows.

    Args:
        config: The task's.
    """
    settings = _layout_settings(config.get("layout"))
    return tuple(sorted(str(value) for key, value in settings.items() if key.rpartition(".")[2] == "run" and value))


def made_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a manifest's ingredients by dotted keys."""

    def part(*keys: str) -> Mapping[str, Any]:
        mapping: Any = manifest
        for key in keys:
            mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
        return mapping if isinstance(mapping, Mapping) else {}

    version = part("provenance", "versions").get("medimg-eval")
    return {
        key: value for key, value in {"seed": manifest.get("seed"), "version": version}.items() if value is not None
    } | {
        **_layout_settings({key: value for key, value in part("task_config").items() if key not in TOLD}, "task"),
        **_layout_settings(part("model_info"), "model"),
        **_layout_settings(part("config", "trainer"), "trainer"),
    }


def left_out(run: RunScores) -> Iterator[str]:
    """Yields differences of omitted older runs, newest first."""
    groups: dict[str, list[str]] = {}
    for older in reversed(run.left_out):
        groups.setdefault(_setting_differences(older, run), []).append(older.folder.name)
    for what, names in [*groups.items()][:SENTENCES]:
        which = "an older run is" if len(names) == 1 else f"{len(names)} older runs are"
        yield f"{which} left out, {listed(names[:NAMED])}{', ...' * (len(names) > NAMED)} ({what})"


def _setting_differences(older: RunScores, run: RunScores) -> str:
    before, now = older.made_of, run.made_of
    # Of a part that one of the manifests lacks, such as those of older versions, nothing is known.
    parts = {key.partition(".")[0] for key in before} & {key.partition(".")[0] for key in now}
    differ = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    changes = [
        f"{key}={_shorten_value(before.get(key, 'unset'))}, now {_shorten_value(now.get(key, 'unset'))}"
        for key in differ
        if key.partition(".")[0] in parts
    ]
    if older.data_fingerprint != run.data_fingerprint:
        changes.insert(0, f"other data of {older.cases} cases, now {run.cases}")
    if not changes:
        return "of the same settings and data"
    further = [f"{len(changes) - NAMED} more"] if len(changes) > NAMED else []
    return f"with {'; '.join([*changes[:NAMED], *further])}"


def _shorten_value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _layout_settings(value: Any, key: str = "") -> dict[str, Any]:
    """Returns what a layout is set to, by keys joined with dots."""
    if not isinstance(value, Mapping):
        return {key: value} if key else {}
    settings: dict[str, Any] = {}
    for name, item in value.items():
        settings |= _layout_settings(item, f"{key}.{name}" if key else str(name))
    return settings


def listed(names: Sequence[str]) -> str:
    """Returns names as they are listed in a sentence."""
    *leading, last = names
    return f"{', '.join(leading)} and {last}" if leading else last

"""What `manifest.json` of a run holds: a sentence per field; the table in docs/start/runs.md is made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Status = Literal["running", "finished", "failed", "interrupted"]


class Stage(TypedDict):
    """How far one stage of a run has come.

    `status` is that of the latest start that had work for it; `done` and `failed` count what it was about, of `of`, at
    its end; `started` and `ended` are times in UTC.
    """

    status: Status
    done: int
    of: int
    failed: int
    started: str
    ended: str | None


class Manifest(TypedDict, total=False):
    """The fields of `manifest.json`."""

    schema: int
    """Version of the run folder: 2; folders of version 1 are read, and upgraded by `score` and `test`."""
    run: str
    """Id of the run: hash of everything that decides its predictions."""
    command: str
    """What made it: `test`, `predict` or `fit`."""
    task: str
    """Name of the task."""
    task_title: str
    """What tables call the task."""
    task_config: Mapping[str, Any]
    """What the task is made of, as it is judged by now."""
    model: str
    """What tables call the model."""
    baseline: bool
    """Whether it is there to be compared with, beside the models that tables are about."""
    settings: str
    """Hash of the model's settings: models of one name that differ in it are different ones."""
    training: Mapping[str, Any]
    """Of a checkpoint among others: `series`, their common name, and the `step` or `epoch` that it was written at."""
    unidentified: bool
    """Whether the model was made of objects that no config can name, so that no other start goes on with the run."""
    model_info: Mapping[str, Any]
    """Class, parameter count and identity of the model that was loaded."""
    fitted: Mapping[str, Any]
    """Of `fit`, what a model says of the weights that it keeps, such as the base and the hash of an adapter."""
    status: Status
    """`finished` once `scores.parquet` holds every case; `running`, `failed` or `interrupted` until then."""
    stages: Mapping[str, Stage]
    """By stage (`predict`, `evidence`, `score`): status, `done`, `of`, `failed`, `started`, `ended`."""
    data_fingerprint: str
    """Hash of case ids and of the content of the data."""
    split_source: Mapping[str, str]
    """Files that define the splits, with the hash of each."""
    seed: int
    """The run's seed."""
    config: Mapping[str, Any]
    """The resolved config of the first start."""
    overrides: Sequence[str]
    """What its command line changed."""
    provenance: Mapping[str, Any]
    """Versions, git revision and hardware of the first start."""
    resumed: Sequence[Mapping[str, Any]]
    """When later starts asked for more, with their overrides and provenance."""
    started: str
    """Time of the first start, UTC."""
    ended: str | None
    """Time at which the latest start ended, UTC; null while it runs."""
    cases: int | Mapping[str, int]
    """How many cases are judged; of `fit` how many there are to fit and to validate on."""
    predicted: int
    """How many of them have an answer."""
    failed_cases: int
    """How many ended without an answer or a score."""
    repeats: int
    """How often cases were asked about, where that is more than once."""
    subsets: Sequence[Mapping[str, Any]]
    """Of each repeat that was fitted on a subset: its kind, size and draw, and how many patients and cases it holds."""
    conditions: Mapping[str, Mapping[str, Any]]
    """By the key that rows name: what was done to cases before they were shown once more."""
    view: str
    """Of questions about volumes or videos: `volume` or `video` where they were shown whole, `pictures` if set."""
    volume_rule: str
    """Of a model of volumes shown whole: the convention that made its network's array, such as `m3d`."""
    partial: str
    """Which of the task's cases are judged, such as "the first 5 of 20 cases"; "" for all."""
    resampled: str
    """What intervals resample: `patients` or `cases`."""
    chance: Mapping[str, float]
    """By metric, what guessing is worth."""
    noun: str
    """What the task calls its cases, such as questions."""
    output: str
    """What a model gives, in words."""
    metrics: Sequence[str]
    """The columns, in order; `score metrics=` adds to them, and `score drop=` takes from them."""
    directions: Mapping[str, bool | None]
    """By metric that is none of ours, whether higher is better, for readers who lack it."""
    signature: str
    """The choices behind all numbers, for footnotes."""
    signatures: Mapping[str, str]
    """By metric, the choices behind it alone: tables compare those of the columns they show."""
    facts: Mapping[str, Any]
    """Numbers of the benchmark that summaries need."""
    leaks: Mapping[str, Any]
    """What the parts to fit, validate and test on share: texts `found`, `not_looked` at, and if by `lookalikes`."""
    notes: Sequence[str]
    """What readers of a table must know of this run."""
    judge: Mapping[str, Any]
    """The judge: its id, name and identity, and how many of its replies hold no verdict."""
    annotators: Mapping[str, Any]
    """By annotator or network: its weights, and how many texts it failed on or read in part."""
    extractors: Mapping[str, str]
    """By extractor of features: its weights."""
    sets: Mapping[str, str]
    """By set of real images: how many, and the hash of their content."""
    untracked: Mapping[str, str]
    """Trackers that did not take the scores, with what they said; empty where all did."""
    sent: Sequence[Mapping[str, Any]]
    """What went to which other machine, noted before it went, and on whose permission."""
    timing: Mapping[str, float]
    """Seconds that asking took over all starts, those of them in the model, and the share that was not."""
    usage: Sequence[Mapping[str, Any]]
    """What each start used: tokens, requests, retries, cost."""
    efficiency: Mapping[str, Any]
    """Parameters, FLOPs and speed, where they were measured."""
    best_score: float
    """Of `fit`: the best validation score."""

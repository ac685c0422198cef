"""Which metrics of reports have the weights, or the judge, that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from medimg_eval.arguments import as_list
from medimg_eval.configs.names import file_of
from medimg_eval.evaluation.readiness import of_provider
from medimg_eval.instantiate import Annotators, Extractors
from medimg_eval.metrics import Metric, available, parse
from medimg_eval.metrics.registry import ALL as ALL_TOPICS
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.providers import Missing

ALL = "all"
JUDGE = "there is no judge; add model@judge=NAME to test (docs/definitions/judges.md)"


class Readiness(NamedTuple):
    """Whether a metric can be computed here."""

    metric: str
    lacks: tuple[Missing, ...]
    """What it needs and is not there, each with its key and a message."""
    needs: bool
    """Whether it needs weights or a judge at all."""


def check_metrics(wanted: Any, annotators: Mapping[str, Any]) -> tuple[list[Readiness], list[Missing]]:
    """Missing requirements by metric, and all requirements by user.

    Args:
        wanted: names of metrics, with or without what stands after the "@"; or "all" that need an annotator or a judge.
        annotators: the command line's changes to them.

    Raises:
        UsageError: there is no such metric or annotator.
    """
    metrics = available()
    needs = {name: _list_needs(metric) for name, metric in metrics.items()}
    listed = [name for name, some in needs.items() if some and not metrics[name].intermediate]
    names = listed if wanted == ALL else [str(metric) for metric in as_list(wanted)]
    providers, extractors = Annotators(annotators), Extractors({})
    needed = {need for name in names for need in needs[_base_metric(name, metrics)]}
    ordered = sorted(needed, key=lambda need: (need.kind == "verdict", need.provider, need.topic))
    lacking = {need: _list_lacking(need, extractors if need.kind == "features" else providers) for need in ordered}
    rows = []
    for name in names:
        own = needs[_base_metric(name, metrics)]
        lacks = tuple(dict.fromkeys(lack for need in own for lack in lacking[need]))
        rows.append(Readiness(name, lacks, bool(own)))
    return rows, list(dict.fromkeys(lack for some in lacking.values() for lack in some))


def _base_metric(name: str, found: Mapping[str, Metric]) -> str:
    return name if name in found else parse(name)[0].name


def _list_needs(found: Metric) -> tuple[Requirement, ...]:
    """Annotators and judge questions that a metric needs, also indirectly."""
    parts = [parse(name)[0] for name in found.needs] or [found]
    declared = [requirement for part in parts if isinstance(part.requires, tuple) for requirement in part.requires]
    return tuple(dict.fromkeys(need for need in declared if need.topic != ALL_TOPICS))


def _list_lacking(need: Requirement, providers: Annotators) -> list[Missing]:
    if need.kind != "verdict":
        return list(of_provider(need, providers, ()))
    lacks = [Missing("model@judge", JUDGE)]
    if file_of("judging", need.topic) is None:
        lacks.append(Missing(f"task.judge.{need.topic}", "a question to the judge, which a task is to set"))
    return lacks

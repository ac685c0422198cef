"""`check metrics=`: which metrics of reports have the weights, or the judge, that they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer, say
from medimg_eval.errors import UserError
from medimg_eval.instantiate import Annotators
from medimg_eval.metrics import Metric, available, parse
from medimg_eval.models.hub import located

ALL = "all"
JUDGE = "there is no judge; add model@judge=NAME to test (docs/metrics-judges.md)"


class _Lack(NamedTuple):
    """What a metric lacks.

    Attributes:
        key: the setting that mends it.
        message: the whole of it, in a sentence.
    """

    key: str
    message: str


def check_metrics(wanted: Any, annotators: Mapping[str, Any]) -> None:
    """Prints a line for each metric: ready, or the key of what it lacks; below, all that is to be known of that.

    Args:
        wanted: names of metrics, with or without what stands after the "@"; or "all" that need an annotator or a judge.
        annotators: the command line's changes to them.

    Raises:
        UsageError: there is no such metric or annotator.
        UserError: metrics were named, and not all are ready.
    """
    found = available()
    needs = {name: _needs(one) for name, one in found.items()}
    shown = [name for name, some in needs.items() if some and not found[name].intermediate]
    names = shown if wanted == ALL else [str(one) for one in as_list(wanted)]
    lacks = _lacking({one for name in names for one in needs[_base(name, found)]}, Annotators(annotators))
    console = printer()
    ready = 0
    for name in names:
        own = needs[_base(name, found)]
        missing = list(dict.fromkeys(lack.key for one in own for lack in lacks[one]))
        ready += not missing
        told = f"lacks {', '.join(missing)}" if missing else "ready" if own else "ready; needs no weights and no judge"
        say(console, f"{name}: {told}")
    for lack in dict.fromkeys(lack for some in lacks.values() for lack in some):
        say(console, f"- {lack.key}: {lack.message}")
    console.print(f"{ready} of {len(names)} metrics are ready", highlight=False)
    if wanted != ALL and ready < len(names):
        raise UserError(f"{len(names) - ready} of {len(names)} metrics are not ready; what they lack is told above")


def _base(name: str, found: Mapping[str, Metric]) -> str:
    return name if name in found else parse(name)[0].name


def _needs(found: Metric) -> tuple[tuple[str, str], ...]:
    """Which annotators and questions to a judge a metric, or what it is computed from, needs: (kind, name)."""
    parts = [parse(name)[0] for name in found.needs] or [found]
    some = [("annotator", name) for one in parts for name in one.reads]
    return tuple(dict.fromkeys(some + [("judge", name) for one in parts for name in one.asks]))


def _lacking(wanted: Iterable[tuple[str, str]], annotators: Annotators) -> dict[tuple[str, str], list[_Lack]]:
    return {
        (kind, name): _of_judge(name) if kind == "judge" else list(_of_annotator(name, annotators))
        for kind, name in sorted(wanted)
    }


def _of_judge(name: str) -> list[_Lack]:
    if (files("medimg_eval.configs") / "judging" / f"{name}.yaml").is_file():
        return [_Lack("model@judge", JUDGE)]
    return [_Lack("model@judge", JUDGE), _Lack(f"task.judge.{name}", "a question to the judge, which a task is to set")]


def _of_annotator(name: str, annotators: Annotators) -> Iterator[_Lack]:
    key = f"annotators.{name}"
    if name not in annotators:
        yield _Lack(f"{key}._target_", f"there is no annotator {name!r}; name its class by {key}._target_=YOUR.CLASS")
        return
    made: Any = annotators[name].load()
    made.name = name
    missing = False
    for one in made.needs:
        try:
            located(getattr(made, one.argument), one, name)
        except UserError as error:
            missing = True
            yield _Lack(f"{key}.{one.argument}", str(error))
    if missing:
        return
    try:
        made.check_ready()
    except UserError as error:
        yield _Lack(key, str(error))

"""The kinds of figures there are, and what each is drawn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from medimg_eval.results.figures.figure import Drawn
    from medimg_eval.results.runs import RunScores

Runs = Sequence["RunScores"]
Wanted = Mapping[str, Any]


class Kind(NamedTuple):
    """Kind of figure: drawing function and its own keys."""

    draw: Callable[[Runs, Wanted], Drawn]
    takes: frozenset[str]
    each_task: bool = True
    needs_metric: bool = True


def figures_of(runs: Runs | Callable[[], Runs], wanted: Wanted) -> Iterator[tuple[str, Drawn]]:
    """Figures of runs, each with the stem of its files.

    Args:
        runs: which, or what reads them once the settings are known to be meant.
        wanted: the keys of the command `figure`.

    Raises:
        UsageError: What is asked for does not exist.
        UserError: There is nothing to draw.
    """
    kinds = list(dict.fromkeys(str(kind) for kind in as_list(wanted["kind"])))
    _check_keys(kinds, wanted)
    read = runs() if callable(runs) else runs
    for kind in kinds:
        yield from _figures_of_kind(kind, read, wanted)


def _figures_of_kind(kind: str, runs: Runs, wanted: Wanted) -> Iterator[tuple[str, Drawn]]:
    """Yields the figures of one kind, each with the stem of its files."""
    from medimg_eval.results.figures import by_task

    figure_kind = KINDS[kind]
    tasks = by_task(runs)
    named = [
        key for key in ("metric", "by", "label", "baseline") if key in figure_kind.takes and wanted[key] is not None
    ]
    parts = [kind, *(str(wanted[key]) for key in named)]
    if not figure_kind.each_task or len(tasks) == 1:
        yield _file_stem(parts), figure_kind.draw(runs, wanted)
        return
    used: set[str] = set()
    for index, (task, members) in enumerate(tasks.items()):
        stem = _file_stem([kind, task, *parts[1:]])
        # Names that only differ in what a file's name cannot hold.
        stem = f"{stem}-{index + 1}" if stem in used else stem
        used.add(stem)
        yield stem, figure_kind.draw(members, wanted)


def _file_stem(parts: Sequence[str]) -> str:
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-.") for part in parts)


def _check_keys(kinds: Sequence[str], wanted: Wanted) -> None:
    """Raises UsageError for unknown kinds or unread keys."""
    if not kinds:
        raise UsageError(f"kind is an empty list; name one or more of {', '.join(KINDS)}")
    for kind in kinds:
        UsageError.refuse_invalid("kind of figure", KINDS, kind)
        if KINDS[kind].needs_metric and wanted["metric"] is None:
            raise UsageError(f"kind={kind} needs metric=NAME, such as metric=dice")
    read = {key for kind in kinds for key in KINDS[kind].takes}
    usual = {"metric": None, "by": None, "label": None, "baseline": None, "paired": False, "bins": 10, "target": None}
    for key, value in usual.items():
        if wanted[key] != value and key not in read:
            able = [kind for kind, figure_kind in KINDS.items() if key in figure_kind.takes]
            raise UsageError(f"kind={', '.join(kinds)} does not read {key}; leave it out, or draw {', '.join(able)}")
    if not isinstance(wanted["paired"], bool):
        raise UsageError(f"paired must be true or false, got {wanted['paired']!r}")


def _make_settings(wanted: Wanted) -> Any:
    from medimg_eval.results.table import Settings, check_interval, check_numbers

    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    check_interval(wanted["interval"])
    stratify_by = "" if wanted["stratify_by"] is None else str(wanted["stratify_by"])
    numbers = (wanted["resamples"], wanted["level"], wanted["seed"])
    return Settings(*numbers, interval=wanted["interval"], stratify_by=stratify_by)


def _drawn_by(
    name: str, texts: Sequence[str], *more: str, metric: bool = True, intervals: bool = True, each_task: bool = True
) -> Kind:
    """Kind that the function of a name draws of runs.

    `texts` are the keys whose values it takes as text, "" for what is not set, and `more` those that it takes as they
    are; `intervals` says whether it takes settings of intervals.
    """

    def draw(runs: Runs, wanted: Wanted) -> Drawn:
        from medimg_eval.results import figures

        arguments = {key: "" if wanted[key] is None else str(wanted[key]) for key in texts}
        arguments |= {key: wanted[key] for key in (*more, "width")}
        if intervals:
            arguments["settings"] = _make_settings(wanted)
        drawn: Drawn = getattr(figures, name)(runs, *([str(wanted["metric"])] if metric else []), **arguments)
        return drawn

    return Kind(draw, frozenset({*texts, *more, *(["metric"] if metric else [])}), each_task, metric)


def _draw_significance(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results import compare
    from medimg_eval.results.comparison import CompareSettings
    from medimg_eval.results.figures import significance_map

    how = CompareSettings(alpha=wanted["alpha"], resamples=wanted["resamples"], seed=wanted["seed"])
    return significance_map(compare(runs, str(wanted["metric"]), by=wanted["by"], how=how), width=wanted["width"])


def _of_ranking(name: str, *more: str) -> Kind:
    """Kind that the function of a name draws of the ranking of runs."""

    def draw(runs: Runs, wanted: Wanted) -> Drawn:
        from medimg_eval.results import figures
        from medimg_eval.results.comparison import CompareSettings
        from medimg_eval.results.ranking import rank_models

        ranking = rank_models(
            runs,
            metrics=None if wanted["metric"] is None else [str(wanted["metric"])],
            by=wanted["by"],
            how=CompareSettings(alpha=wanted["alpha"], seed=wanted["seed"]),
            resamples=min(wanted["resamples"], 1_000),
        )
        drawn: Drawn = getattr(figures, name)(ranking, **{key: wanted[key] for key in (*more, "width")})
        return drawn

    return Kind(draw, _OF_RANKS, each_task=False, needs_metric=False)


_OF_RANKS = frozenset({"metric", "by"})
_DIVIDED = ("by", "label")

KINDS: Mapping[str, Kind] = {
    **{name: _drawn_by(name, _DIVIDED, "paired", intervals=False) for name in ("box", "violin", "strip")},
    "forest": _drawn_by("forest", (*_DIVIDED, "baseline")),
    "significance_map": Kind(_draw_significance, _OF_RANKS, each_task=False),
    "critical_difference": _of_ranking("critical_difference", "alpha"),
    "rank_stability": _of_ranking("rank_stability"),
    "reliability": _drawn_by("reliability", _DIVIDED, "bins", metric=False),
    **{
        name: _drawn_by(name, _DIVIDED, metric=False) for name in ("risk_coverage", "roc", "pr", "froc", "bland_altman")
    },
    "kaplan_meier": _drawn_by("kaplan_meier", ("by",), metric=False),
    "data_fraction": _drawn_by("data_fraction", ("label",), "target"),
    "severity": _drawn_by("severity", ("label",)),
    "learning_curve": _drawn_by("learning_curve", ("label",)),
    "budget": _drawn_by("budget", ("label",)),
    "radar": _drawn_by("radar", ("by",), each_task=False),
}

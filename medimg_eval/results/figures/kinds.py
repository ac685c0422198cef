"""The kinds of figures there are, and what each is drawn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError, nearest

if TYPE_CHECKING:
    from medimg_eval.results.figures.figure import Drawn
    from medimg_eval.results.runs import RunScores

Runs = Sequence["RunScores"]
Wanted = Mapping[str, Any]


class Kind(NamedTuple):
    """A kind of figure.

    Attributes:
        draw: Draws it of some runs.
        takes: The keys that it reads, beside those of every kind.
        each_task: Whether every task has a figure of its own.
        needs_metric: Whether `metric` has to be named.
    """

    draw: Callable[[Runs, Wanted], Drawn]
    takes: frozenset[str]
    each_task: bool = True
    needs_metric: bool = True


def figures_of(runs: Runs | Callable[[], Runs], wanted: Wanted) -> Iterator[tuple[str, Drawn]]:
    """Yields figures of runs, each with the stem of its files.

    Args:
        runs: which, or what reads them once the settings are known to be meant.
        wanted: the keys of the command `figure`.

    Raises:
        UsageError: What is asked for does not exist.
        UserError: There is nothing to draw.
    """
    kinds = list(dict.fromkeys(str(one) for one in as_list(wanted["kind"])))
    _check(kinds, wanted)
    read = runs() if callable(runs) else runs
    for kind in kinds:
        yield from _figures_of_kind(kind, read, wanted)


def _figures_of_kind(kind: str, runs: Runs, wanted: Wanted) -> Iterator[tuple[str, Drawn]]:
    """Yields the figures of one kind, each with the stem of its files."""
    from medimg_eval.results.figures import by_task

    found = KINDS[kind]
    tasks = by_task(runs)
    named = [key for key in ("metric", "by", "label", "baseline") if key in found.takes and wanted[key] is not None]
    parts = [kind, *(str(wanted[key]) for key in named)]
    if not found.each_task or len(tasks) == 1:
        yield _stem(parts), found.draw(runs, wanted)
        return
    used: set[str] = set()
    for place, (task, members) in enumerate(tasks.items()):
        stem = _stem([kind, task, *parts[1:]])
        # Names that only differ in what a file's name cannot hold.
        stem = f"{stem}-{place + 1}" if stem in used else stem
        used.add(stem)
        yield stem, found.draw(members, wanted)


def _stem(parts: Sequence[str]) -> str:
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-.") for part in parts)


def _check(kinds: Sequence[str], wanted: Wanted) -> None:
    """Raises UsageError for a kind that there is not, or a key that none of them reads."""
    if not kinds:
        raise UsageError(f"kind is an empty list; name one or more of {', '.join(KINDS)}")
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"there is no figure of kind {kind!r}{nearest(kind, KINDS)}")
        if KINDS[kind].needs_metric and wanted["metric"] is None:
            raise UsageError(f"kind={kind} needs metric=NAME, such as metric=dice")
    read = {key for kind in kinds for key in KINDS[kind].takes}
    usual = {"metric": None, "by": None, "label": None, "baseline": None, "paired": False, "bins": 10}
    for key, value in usual.items():
        if wanted[key] != value and key not in read:
            able = [kind for kind, one in KINDS.items() if key in one.takes]
            raise UsageError(f"kind={', '.join(kinds)} does not read {key}; leave it out, or draw {', '.join(able)}")
    if not isinstance(wanted["paired"], bool):
        raise UsageError(f"paired must be true or false, got {wanted['paired']!r}")


def _some(wanted: Wanted, *keys: str) -> dict[str, Any]:
    """Returns the arguments of a figure: texts, "" for what is not set, and how wide it is."""
    return {key: "" if wanted[key] is None else str(wanted[key]) for key in keys} | {"width": wanted["width"]}


def _settings(wanted: Wanted) -> Any:
    from medimg_eval.results.table import Settings, check_interval, check_numbers

    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    check_interval(wanted["interval"])
    stratify_by = "" if wanted["stratify_by"] is None else str(wanted["stratify_by"])
    numbers = (wanted["resamples"], wanted["level"], wanted["seed"])
    return Settings(*numbers, interval=wanted["interval"], stratify_by=stratify_by)


def _spread(name: str) -> Kind:
    def draw(runs: Runs, wanted: Wanted) -> Drawn:
        from medimg_eval.results import figures

        made: Drawn = getattr(figures, name)(
            runs, str(wanted["metric"]), paired=wanted["paired"], **_some(wanted, "by", "label")
        )
        return made

    return Kind(draw, frozenset({"metric", "by", "label", "paired"}))


def _evidence(name: str, *more: str) -> Kind:
    def draw(runs: Runs, wanted: Wanted) -> Drawn:
        from medimg_eval.results import figures

        others = {key: wanted[key] for key in more}
        made: Drawn = getattr(figures, name)(runs, settings=_settings(wanted), **_some(wanted, "by", "label"), **others)
        return made

    return Kind(draw, frozenset({"by", "label", *more}), needs_metric=False)


def _forest(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results.figures import forest

    return forest(runs, str(wanted["metric"]), settings=_settings(wanted), **_some(wanted, "by", "label", "baseline"))


def _radar(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results.figures import radar

    return radar(runs, str(wanted["metric"]), settings=_settings(wanted), **_some(wanted, "by"))


def _significance(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results import compare
    from medimg_eval.results.comparison import CompareSettings
    from medimg_eval.results.figures import significance_map

    how = CompareSettings(alpha=wanted["alpha"], resamples=wanted["resamples"], seed=wanted["seed"])
    return significance_map(compare(runs, str(wanted["metric"]), by=wanted["by"], how=how), width=wanted["width"])


def _ranking(wanted: Wanted, runs: Runs) -> Any:
    from medimg_eval.results.comparison import CompareSettings
    from medimg_eval.results.ranking import rank_models

    return rank_models(
        runs,
        metrics=None if wanted["metric"] is None else [str(wanted["metric"])],
        by=wanted["by"],
        how=CompareSettings(alpha=wanted["alpha"], seed=wanted["seed"]),
        resamples=min(wanted["resamples"], 1_000),
    )


def _critical(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results.figures import critical_difference

    return critical_difference(_ranking(wanted, runs), alpha=wanted["alpha"], width=wanted["width"])


def _stability(runs: Runs, wanted: Wanted) -> Drawn:
    from medimg_eval.results.figures import rank_stability

    return rank_stability(_ranking(wanted, runs), width=wanted["width"])


_OF_RANKS = frozenset({"metric", "by"})

KINDS: Mapping[str, Kind] = {
    "box": _spread("box"),
    "violin": _spread("violin"),
    "strip": _spread("strip"),
    "forest": Kind(_forest, frozenset({"metric", "by", "label", "baseline"})),
    "significance_map": Kind(_significance, _OF_RANKS, each_task=False),
    "critical_difference": Kind(_critical, _OF_RANKS, each_task=False, needs_metric=False),
    "rank_stability": Kind(_stability, _OF_RANKS, each_task=False, needs_metric=False),
    "reliability": _evidence("reliability", "bins"),
    "risk_coverage": _evidence("risk_coverage"),
    "roc": _evidence("roc"),
    "pr": _evidence("pr"),
    "froc": _evidence("froc"),
    "bland_altman": _evidence("bland_altman"),
    "radar": Kind(_radar, frozenset({"metric", "by"}), each_task=False),
}

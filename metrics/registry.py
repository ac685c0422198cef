"""The list of metrics: how one is declared, found and named.

A metric is a function with `@metric(...)` above it, in a module of `medimg_eval.metrics` or in a module that
another package names in the entry-point group "medimg_eval.metrics". Those modules are imported at the first
look-up, so a new metric touches no file but its own.

Most metrics judge one answer, and a table shows their mean over cases. A summary, declared with
`@summary(...)`, judges all answers of a run at once, from the rows that other metrics have left: an area under a
curve, an agreement between readers, a sensitivity at so many false positives per scan.
"""

import importlib
import logging
import math
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from importlib.metadata import entry_points
from typing import Any, Literal, Required, TypedDict, TypeVar, Unpack, get_args

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import LIST, UsageError, invalid
from medimg_eval.metrics.aliases import ALIASES, FORMER, folded

log = logging.getLogger(__name__)

PACKAGE = "medimg_eval.metrics"

Scorer = TypeVar("Scorer", bound=Callable[..., Any])


Weighed = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""How often each row counts, (resample, row), to values, (resample,)."""


@dataclass(frozen=True)
class Requirement:
    """Statement of another model that a metric needs.

    Attributes:
        kind: of what is said: a judge's verdict, what an annotator reads in a text, how it compares two texts, the
            features of a picture, or the distance between two.
        provider: "judge", or a name in the config group of annotators or extractors: chexbert, rad_dino, lpips.
        topic: a judge's question; "*" for all of the task's.
        ability: that the provider must have: texts, findings, choices or identity.
        sets: of real images that are compared with: reference, train or holdout.
    """

    kind: Literal["verdict", "annotation", "comparison", "features", "distance"]
    provider: str
    topic: str = ""
    ability: str = ""
    sets: tuple[str, ...] = ()


_YES_OR_NO = ("0", "1", "0.0", "1.0", "nan")
"""The ends that a proportion may have, as they are written."""

ALL = "*"
"""The topic that stands for all questions to a task's judge."""

ValueKind = Literal["proportion", "bounded", "unbounded", "ratio", "count", "correlation"]
"""What a metric's values are, which decides what interval a table may give them: see docs/publish/intervals.md."""

Requires = tuple[Requirement, ...] | Callable[[Any], tuple[Requirement, ...]]
"""What a metric needs other models to have said, or a function from its parameter to that."""


@dataclass(frozen=True)
class Metric:
    """One metric and what a table needs to know about it.

    Attributes:
        name: What configs and scores call it: the name of its function.
        function: Computes it; what it takes depends on `kind`, and the parameter comes last.
        kind: What it judges, for example "mask"; "run" for a summary.
        title: What a table's header calls it.
        higher_is_better: Its direction; None of a number that is neither better nor worse, such as a length.
        best: The value of a perfect answer.
        worst: The value of an answer that failed; "diagonal" stands for the diagonal of the image in mm.
        definition: What it measures: the first sentence of the function's docstring.
        source: Where the definition comes from.
        unit: Such as "mm" or "°"; "" without one.
        parameter: What stands after "@", as in "nsd@2"; None for a metric that takes none.
        parameter_optional: Whether the function also does without.
        parameter_is_text: Whether it is a name, as in "es_dice@race", instead of a number.
        parameter_most: The largest number that it may be.
        defined_when_empty: Of a mask metric: whether the function also judges labels that one side lacks, or
            each; otherwise the policy for empty masks does.
        needs_spacing: Of a mask metric: whether it measures lengths although it has no unit, as where its parameter is
            in mm; one with a unit does, and the rules of lesions do.
        rules: Of a mask metric: which rules it follows, "instances" or "lesions"; tables print them.
        needs: Of a summary: the metrics whose rows it is computed from.
        intermediate: Whether its values are only there for summaries, so that a table does not show their mean.
        optional: Whether a run may lack all values of it and be whole, since it judges what a model need not give.
        settings: The choices behind it that others make differently, such as a tokeniser: its part of a signature.
        requires: What other models must have said for it: requirements, or a function from the parameter to them.
        scope: "set" where the value of a case also depends on other cases and predictions.
        pieces: Of a summary that is a function of sums over rows: what each row adds to them; see `summary`.
        total: Of the same: the value of such sums.
        weighed: Of a summary that is told how often each row counts: see `summary`.
        check: Of one whose parameter is a text: raises UsageError for an invalid text.
        remark: Of a summary: takes a `ScoreTable` and the parameter and tells what to know of this run; "" for nothing.
        aliases: What people call it beside its name, such as "DSC", in any case; ours stand in `metrics/aliases.py`.
        over: Of a summary: "repeats" or "conditions" where it compares those of a case; any other is computed for each
            repeat, and averaged. Without `needs`, it is of one metric of cases: the first of the task, or the one that
            stands behind a colon in its parameter.
        value_kind: What its values are: "proportion" where each is 1 for yes or 0 for no (tables check that it is, and
            take other values for bounded ones), "ratio" of two quantities without an upper end, "count",
            "correlation" in [-1, 1]. Untold, "bounded" where `best` and `worst` are numbers and there is no unit, and
            "unbounded" elsewhere; never a proportion, which 0 and 1 as ends do not make.
    """

    name: str
    function: Callable[..., float]
    kind: str
    title: str
    higher_is_better: bool | None
    best: float
    worst: float | Literal["diagonal"]
    definition: str
    source: str
    unit: str = ""
    parameter: str | None = None
    parameter_optional: bool = False
    parameter_is_text: bool = False
    parameter_most: float = math.inf
    defined_when_empty: bool = False
    needs_spacing: bool = False
    rules: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    intermediate: bool = False
    optional: bool = False
    settings: str = ""
    requires: Requires = ()
    scope: Literal["case", "set"] = "case"
    pieces: Callable[..., npt.NDArray[np.float64]] | None = None
    total: Callable[..., Any] | None = None
    weighed: Callable[..., Weighed | None] | None = None
    check: Callable[[str], object] | None = None
    remark: Callable[..., str] | None = None
    aliases: tuple[str, ...] = ()
    over: Literal["", "repeats", "conditions"] = ""
    value_kind: ValueKind | None = None

    def __post_init__(self) -> None:
        ends = (self.best, self.worst)
        if self.value_kind is None:
            bounded = not self.unit and all(end != "diagonal" and math.isfinite(end) for end in ends)
            object.__setattr__(self, "value_kind", "bounded" if bounded else "unbounded")
        elif self.value_kind not in get_args(ValueKind):
            raise ValueError(
                f"Expected `value_kind` of metric {self.name!r} to be one of {', '.join(get_args(ValueKind))}, "
                f"got {self.value_kind!r}"
            )
        elif self.value_kind == "proportion" and (self.unit or any(repr(end) not in _YES_OR_NO for end in ends)):
            raise ValueError(f"Expected proportion {self.name!r} to have no unit and the ends 0 and 1, got {ends}")

    @property
    def on_unit_scale(self) -> bool:
        """True if values are declared to fill [0, 1]."""
        return self.value_kind == "proportion" or (
            self.value_kind == "bounded" and not self.unit and {self.best, self.worst} == {0.0, 1.0}
        )


_UNTOLD = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Score rows of a run, as parallel arrays (row,).

    Attributes:
        case: int64: the row's case, counted from 0. A case that a bootstrap drew twice counts as two.
        metric: str: which of the metrics that the summary needs.
        label: str.
        value: float64; NaN where nothing can be scored.
        status: str, as in `LabelScore`.
        attributes: name -> str, (row,): of the row's case; "" where it has none of that name.
        cases: how many cases were judged, also those without such rows.
        facts: what the run's manifest says that concerns no single case, such as "parameters".
        repeat: int64: which repeat the row is of; zeros by default.
        condition: str: key of what was done to the case before it was shown; "" by default.
    """

    case: npt.NDArray[np.int64]
    metric: npt.NDArray[np.str_]
    label: npt.NDArray[np.str_]
    value: npt.NDArray[np.float64]
    status: npt.NDArray[np.str_]
    attributes: Mapping[str, npt.NDArray[np.str_]]
    cases: int
    facts: Mapping[str, Any]
    repeat: npt.NDArray[np.int64] = field(default_factory=lambda: _UNTOLD)
    condition: npt.NDArray[np.str_] = field(default_factory=lambda: _UNTOLD.astype(str))

    def __post_init__(self) -> None:
        if len(self.repeat) != len(self.case):
            object.__setattr__(self, "repeat", np.zeros(len(self.case), np.int64))
        if len(self.condition) != len(self.case):
            object.__setattr__(self, "condition", np.zeros(len(self.case), "U1"))

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> "ScoreTable":
        """Returns some of the rows: (row,) bool, or indices; `cases` and `facts` stay."""
        return ScoreTable(
            self.case[chosen],
            self.metric[chosen],
            self.label[chosen],
            self.value[chosen],
            self.status[chosen],
            {name: values[chosen] for name, values in self.attributes.items()},
            self.cases,
            self.facts,
            self.repeat[chosen],
            self.condition[chosen],
        )

    def of(self, metric: str) -> "ScoreTable":
        """Returns the rows of one metric."""
        return self.where(self.metric == metric)


_METRICS: dict[str, Metric] = {}

_SHOWN = {"verdict": ("answer",), "annotation": ("answer",), "comparison": ("answer",), "distance": ("perception",)}
"""By what providers say, the kinds of metrics whose answers our families show them; another's family says it itself."""


class _Declared(TypedDict, total=False):
    """Keywords of both `metric` and `summary`; `Metric` says what each means."""

    title: Required[str]
    higher_is_better: Required[bool | None]
    best: Required[float]
    source: Required[str]
    unit: str
    parameter: str | None
    parameter_is_text: bool
    settings: str
    check: Callable[[str], object] | None
    aliases: tuple[str, ...]
    value_kind: ValueKind


class _OfOne(_Declared, total=False):
    kind: Required[str]
    worst: Required[float | Literal["diagonal"]]
    parameter_optional: bool
    parameter_most: float
    defined_when_empty: bool
    needs_spacing: bool
    rules: tuple[str, ...]
    intermediate: bool
    optional: bool
    requires: Requires
    scope: Literal["case", "set"]


class _OfRun(_Declared, total=False):
    needs: Required[tuple[str, ...]]
    parameter_optional: bool
    over: Literal["", "repeats", "conditions"]
    pieces: Callable[..., npt.NDArray[np.float64]] | None
    weighed: Callable[..., Weighed | None] | None
    remark: Callable[..., str] | None


def metric(*, name: str = "", **declared: Unpack[_OfOne]) -> Callable[[Scorer], Scorer]:
    """Registers a metric under its function's name or `name`.

    Raises:
        ValueError: If another function already has the name.
        UsageError: If an annotator or a judge is to read for it what it never sees.
        TypeError: If an argument is lacking, or a metric has none of that name.
    """
    _check_declared(declared, _OfOne)

    def register(function: Scorer) -> Scorer:
        _add_metric(Metric(name or function.__name__, function, definition=_first_sentence(function), **declared))
        return function

    return register


def summary(*, name: str = "", at_once: bool = False, **declared: Unpack[_OfRun]) -> Callable[[Scorer], Scorer]:
    """Registers a summary, a number per run, under a name.

    The name is that of the function below it, or `name`. The function takes a `ScoreTable` of the metrics
    that it `needs`, and the parameter if it has one; it returns NaN where the rows do not suffice. Its
    interval comes from calling it on resampled rows.

    A summary that is a function of sums, such as BLEU of counts or F1 of hits and misses, comes in two parts,
    whose interval costs a matrix product: `pieces` takes a `ScoreTable` and the parameter and returns what
    each row adds, (row, quantity); the function below takes the sums, (..., quantity), and the parameter, and
    returns (...) values.

    One that sorts its rows, such as an area under a curve, may have a second form for many resamples at once:
    `weighed` takes a `ScoreTable` and the parameter and returns a function of how often each row counts,
    (resample, row), that returns (resample,) values; or None where the rows do not suffice for that. With
    `at_once` the function below is itself such a one, which never returns None, and the value is that of rows
    that count once each.

    Raises ValueError for a name of another function, TypeError for arguments that a summary lacks or does not have.
    """
    _check_declared(declared, _OfRun)
    pieces = declared.get("pieces")

    def register(function: Scorer) -> Scorer:
        called: Callable[..., float] = function
        if at_once:
            called, declared["weighed"] = _of_equal_weights(function), function
        elif pieces is not None:
            called = _of_sums(function, pieces)
        _add_metric(
            Metric(
                name or function.__name__,
                called,
                kind="run",
                worst=math.nan,
                definition=_first_sentence(function),
                total=function if pieces is not None else None,
                **declared,
            )
        )
        return function

    return register


def judge_says(*topics: str) -> tuple[Requirement, ...]:
    """Requirement of a judge's verdicts on questions, or `ALL`."""
    return tuple(Requirement("verdict", "judge", topic) for topic in topics)


def read_by(*providers: str) -> tuple[Requirement, ...]:
    """Requirement of what annotators read in each of two texts."""
    return tuple(Requirement("annotation", provider) for provider in providers)


def comparisons(*providers: str) -> tuple[Requirement, ...]:
    """Requirement of what annotators find of two texts together."""
    return tuple(Requirement("comparison", provider) for provider in providers)


def get(name: str) -> Metric:
    """Returns the metric of "dice" or "nsd@2"; raises as `parse`."""
    return parse(name)[0] if "@" in name else _METRICS[canonical(name)]


def available(kind: str | None = None) -> dict[str, Metric]:
    """Returns metrics by name, in alphabetical order, optionally one kind's."""
    _import_metrics()
    return {name: metric for name, metric in sorted(_METRICS.items()) if kind is None or metric.kind == kind}


def is_declared(name: str) -> bool:
    """True if a metric exists by its scores' name."""
    _import_metrics()
    return name in _METRICS


def parse(name: str) -> tuple[Metric, float | str | None]:
    """Returns a name's metric and parameter, as of "nsd@2".

    Raises:
        UsageError: If there is no such metric, or its parameter is missing, not wanted, or not a number of
            at least 0 where it should be, or larger than it may be.
    """
    base, at, text = canonical(name).partition("@")
    metric = _METRICS[base]
    if metric.parameter is None:
        if at:
            raise UsageError(f"Metric {base!r} takes no parameter, got {name!r}")
        return metric, None
    if not at and metric.parameter_optional:
        return metric, None
    if not text:
        raise _bare(metric, base)
    if metric.parameter_is_text:
        if metric.check is not None:
            metric.check(text)
        return metric, text
    try:
        parameter = float(text)
    except ValueError:
        parameter = math.nan
    if not 0 <= parameter < math.inf:
        raise UsageError(
            f"Expected the parameter of metric {base!r} ({metric.parameter}) to be a number of at least 0, got {name!r}"
        )
    if parameter > metric.parameter_most:
        raise UsageError(f"Metric {base!r} needs a parameter of at most {metric.parameter_most:g}, got {name!r}")
    return metric, parameter


def _bare(metric: Metric, base: str) -> UsageError:
    lacking = f"Metric {base!r} needs a parameter ({metric.parameter})"
    try:
        if metric.check is not None:
            metric.check("")
    except UsageError as error:
        return UsageError(f"{lacking}, as {base}@...: {error}")
    return UsageError(lacking if metric.parameter_is_text else f"{lacking}, for example '{base}@2'")


def required(name: str) -> tuple[Requirement, ...]:
    """Returns other models' outputs that a metric or summary needs.

    A summary needs those of the metrics it is computed from.

    Args:
        name: With its parameter, as in "judged@completeness".

    Raises:
        UsageError: As `parse` does.
    """
    requirements: dict[Requirement, None] = {}
    for part in parse(name)[0].needs or (name,):
        declared, parameter = parse(part)
        needs = declared.requires(parameter) if callable(declared.requires) else declared.requires
        requirements |= dict.fromkeys(needs)
    return tuple(requirements)


def asked_metrics(
    metrics: Sequence[str], kind: str, what: str, *, once: bool = False
) -> dict[str, tuple[Metric, float | None]]:
    """Returns metrics and numeric parameters by the name given.

    Raises:
        ValueError: If a metric is named twice, and must not be.
        UsageError: If there is no such metric of that kind, which messages call `what`.
    """
    wanted: dict[str, tuple[Metric, float | None]] = {}
    for name in metrics:
        definition, parameter = parse(name)
        if definition.kind != kind or isinstance(parameter, str):
            raise UsageError(f"Metric {name!r} judges {definition.kind}, not {what}")
        wanted[name] = definition, parameter
    if once and len(wanted) < len(metrics):
        raise ValueError(f"Expected `metrics` to name each metric once, got {list(metrics)}")
    return wanted


def title(name: str) -> str:
    """Returns what a table's header calls a metric: "NSD@2" for "nsd@2"."""
    definition, parameter = parse(name)
    if parameter is None:
        return definition.title
    if definition.over:
        return f"{definition.title}@{parameter}"
    return f"{definition.title} ({parameter})" if isinstance(parameter, str) else f"{definition.title}@{parameter:g}"


def _add_metric(found: Metric) -> None:
    kinds = {need.kind for need in found.requires} if isinstance(found.requires, tuple) else set()
    strange = next((kind for kind in kinds if found.kind not in _SHOWN.get(kind, (found.kind,))), None)
    of_kind = [metric for metric in _METRICS.values() if metric.kind == found.kind]
    if strange and any(_origin(metric.function).startswith(PACKAGE) for metric in of_kind):
        what = "a judge" if strange == "verdict" else "an annotator"
        raise UsageError(
            f"Metric {found.name!r} judges {found.kind} and needs {what}, which is shown nothing but texts (kind "
            "'answer'), or pictures if it is a network (kind 'perception'); take it out of `requires`"
        )
    metric = _METRICS.get(found.name)
    if metric is not None and _origin(metric.function) != _origin(found.function):
        raise ValueError(
            f"Expected one metric named {found.name!r}, got {_origin(metric.function)} and {_origin(found.function)}"
        )
    _METRICS[found.name] = found


def _check_declared(declared: Mapping[str, Any], options: type) -> None:
    if odd := declared.keys() - options.__annotations__.keys():
        raise TypeError(f"got an unexpected keyword argument {min(odd)!r}")
    if lacking := options.__required_keys__ - declared.keys():  # type: ignore[attr-defined]
        raise TypeError(f"missing the keyword argument {min(lacking)!r}")


def _of_equal_weights(function: Callable[..., Weighed]) -> Callable[..., float]:
    @wraps(function)
    def called(rows: ScoreTable, *parameter: float | str) -> float:
        judge = function(rows, *parameter)
        return float(judge(np.ones((1, rows.value.size)))[0]) if rows.value.size else math.nan

    return called


def _of_sums(function: Callable[..., Any], pieces: Callable[..., npt.NDArray[np.float64]]) -> Callable[..., float]:
    @wraps(function)
    def called(rows: ScoreTable, *parameter: float | str) -> float:
        if not rows.value.size:
            return math.nan
        return float(function(pieces(rows, *parameter).sum(axis=0), *parameter))

    return called


def _first_sentence(function: Callable[..., float]) -> str:
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def canonical(name: str, kinds: Collection[str] = ()) -> str:
    """Returns a metric's canonical name: "frechet_distance@inception" for "FID".

    Args:
        name: As people write it: in any case, with hyphens or blanks, an alias, or a former name.
        kinds: Of metrics that are judged, where one alias stands for several, such as "ECE"; () for all.

    Raises:
        UsageError: If there is no such metric, or the alias stands for several or for one that we lack.
    """
    _import_metrics()
    alias = ALIASES.get(folded(name)) if "@" in name else None  # of those with "@" in them, such as "AP@[.5:.95]"
    base, at, text = (name if alias is None else alias.metrics[0]).partition("@")
    if base in _METRICS or adopted(base):
        return base + at + text
    if base in FORMER:
        new = FORMER[base] + at + text
        log.warning("metric %s is now called %s", name, new)
        return new
    typed = folded(base)
    if (alias := ALIASES.get(typed)) is not None:
        if alias.refused:
            raise UsageError(f"Metric {name!r}: {alias.refused}")
        fitting = [metric for metric in alias.metrics if not kinds or _row_kinds(metric.partition("@")[0]) & set(kinds)]
        if len(fitting) > 1:
            raise UsageError(f"Metric {name!r} is one of {', '.join(fitting)}; name the one that is meant")
        if fitting:
            if alias.note and not at:
                log.warning("metric %s is taken for %s: %s", name, fitting[0], alias.note)
            return fitting[0].partition("@")[0] + at + text if at else fitting[0]
    for metric in _METRICS.values():
        if typed in (folded(metric.name), *map(folded, metric.aliases)):
            return metric.name + at + text
    raise UsageError(invalid("metric", base, _METRICS, f"{LIST} metrics", like=typed))


def adopted(base: str) -> bool:
    """Registers a metric's function by its dotted name, if it is one."""
    metric = (
        next((metric for metric in [*_METRICS.values()] if _origin(metric.function) == base), None)
        if "." in base
        else None
    )
    if metric is not None:
        _METRICS.setdefault(base, replace(metric, name=base))
    return metric is not None


@cache  # of each score that is read back, and there are few names
def present_name(name: str) -> str:
    """Returns what a metric of a stored run is called now."""
    base, at, text = name.partition("@")
    return FORMER.get(base, base) + at + text


def as_known(names: Any) -> Any:
    """Canonical metric names, also nested; unknown names stay."""
    if isinstance(names, Mapping):
        return {key: as_known(value) for key, value in names.items()}
    if isinstance(names, str):
        try:
            return canonical(names)
        except UsageError:
            return names
    return [as_known(name) for name in names] if isinstance(names, Iterable) else names


def _row_kinds(name: str) -> set[str]:
    """Kinds of rows a metric, or a summary's needs, judge."""
    metric = _METRICS[name]
    return {metric.kind} | {kind for need in metric.needs for kind in _row_kinds(need.partition("@")[0])}


@cache
def _import_metrics() -> None:
    """Imports every module that may hold metrics, which registers them."""
    for module in pkgutil.walk_packages(importlib.import_module(PACKAGE).__path__, f"{PACKAGE}."):
        importlib.import_module(module.name)
    for plugin in entry_points(group=PACKAGE):
        try:
            plugin.load()
        except ImportError as error:
            raise UsageError(f"Metrics plugin {plugin.name!r} ({plugin.value}): {error}") from error


def _origin(function: Callable[..., float]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

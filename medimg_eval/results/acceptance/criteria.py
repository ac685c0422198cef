"""What a run is to reach: endpoints with bounds, their order, and how their intervals are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from medimg_eval import metrics
from medimg_eval.errors import UsageError
from medimg_eval.metrics import as_known
from medimg_eval.results.runs import is_known
from medimg_eval.results.table import Settings, check_interval, check_numbers

Order = Literal["all", "sequence", "holm", "bonferroni"]
"""How several primary endpoints are judged together; secondary ones follow once all primary ones are met.

`all`: each must be met, so that none needs a correction. `sequence`: one after the other, until one is not met.
`holm`, `bonferroni`: each is a claim of its own, at a level corrected for their number.
"""
ORDERS: tuple[Order, ...] = get_args(Order)

KEYS = ("lower", "upper", "label", "where", "baseline", "secondary")


@dataclass(frozen=True)
class Endpoint:
    """A value whose interval must lie within bounds.

    Attributes:
        metric: as scores name it.
        lower: the lower bound of the interval must not lie below it; None for no such bound.
        upper: the upper bound of the interval must not lie above it.
        label: the only label that counts; "" for all.
        where: attribute -> value of the cases that count.
        baseline: the model to which the mean paired difference is judged, such as -0.02 as `lower` of a margin; "" for
            the value itself.
        secondary: whether it is judged only after all primary ones are met, and decides nothing.
    """

    metric: str
    lower: float | None = None
    upper: float | None = None
    label: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""
    secondary: bool = False

    @property
    def name(self) -> str:
        """Name in a table."""
        title = metrics.title(self.metric) if is_known(self.metric) else self.metric
        parts = [title, *([self.label] if self.label else []), *(f"{key}={value}" for key, value in self.where.items())]
        return ", ".join(parts) + (f", difference to {self.baseline}" if self.baseline else "")

    @property
    def criterion(self) -> str:
        """Criterion in words."""
        bounds = [] if self.lower is None else [f"lower bound at least {self.lower:g}"]
        bounds += [] if self.upper is None else [f"upper bound at most {self.upper:g}"]
        return " and ".join(bounds)

    def to_json(self) -> dict[str, Any]:
        """JSON of a plan's entry: what is not the default."""
        usual = Endpoint(self.metric)
        return {key: value for key, value in asdict(self).items() if key == "metric" or value != getattr(usual, key)}


@dataclass(frozen=True)
class Analysis:
    """Interval settings of endpoints, named as in the command `table`.

    Attributes:
        level: coverage of the two-sided interval; alpha is 1 - level, half of it on each side.
        order: how several endpoints are judged together.
    """

    level: float = 0.95
    interval: str = "percentile"
    resamples: int = 10_000
    seed: int = 0
    mean: str = "case"
    stratify_by: str = ""
    order: Order = "all"

    def __post_init__(self) -> None:
        """Refuses what tables do not know either."""
        check_numbers(self.resamples, self.level, self.seed)
        check_interval(self.interval)
        UsageError.refuse_invalid("order", ORDERS, self.order)
        UsageError.refuse_invalid("mean", ("case", "class"), self.mean)

    def settings(self, level: float) -> Settings:
        """The settings of a table at another level."""
        stated: Any = {"mean": self.mean, "interval": self.interval, "stratify_by": self.stratify_by}
        return Settings(self.resamples, level, self.seed, **stated)


def read_endpoints(accept: Any) -> list[Endpoint]:
    """Reads endpoints: `{dice: {lower: 0.85}}`, or a list with `metric`.

    Raises:
        UsageError: there is no such key, no bound, a bound that is no number, or one on the side where values are bad.
    """
    if isinstance(accept, Mapping):
        stated = [(str(name), held) for name, held in accept.items()]
    elif isinstance(accept, Sequence) and not isinstance(accept, str):
        stated = [
            (_metric_of(criterion), {key: value for key, value in criterion.items() if key != "metric"})
            for criterion in accept
        ]
    else:
        raise UsageError(f"accept is {accept!r}; expected such as {{dice: {{lower: 0.85}}}}")
    return [_read_endpoint(name, held) for name, held in stated]


def as_accept(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """Records of endpoints, as `read_endpoints` reads them."""
    return [endpoint.to_json() for endpoint in endpoints]


def _metric_of(one: Any) -> str:
    if not isinstance(one, Mapping) or "metric" not in one:
        raise UsageError(f"accept: {one!r} names no metric; expected such as {{metric: dice, lower: 0.85}}")
    return str(one["metric"])


def _read_endpoint(name: str, held: Any) -> Endpoint:
    if not isinstance(held, Mapping):
        raise UsageError(f"accept: {name} is {held!r}; expected a bound, such as {name}: {{lower: 0.85}}")
    UsageError.refuse_unknown(f"accept: {name} has no key", KEYS, *held)
    lower, upper = (_read_number(name, key, held.get(key)) for key in ("lower", "upper"))
    if lower is None and upper is None:
        raise UsageError(f"accept: {name} has no bound; expected lower or upper, such as {name}: {{lower: 0.85}}")
    metric = as_known(name)
    if is_known(metric) and not held.get("baseline"):
        better = metrics.get(metric).higher_is_better
        alone = ("lower", "upper") if better else ("upper", "lower")
        if better is not None and held.get(alone[0]) is None:
            direction = "higher" if better else "lower"
            raise UsageError(f"accept: of {name} {direction} is better, so its {alone[0]} bound must be given")
    where = held.get("where") or {}
    if not isinstance(where, Mapping):
        raise UsageError(f"accept: where of {name} is {where!r}; expected an attribute and its value: {{sex: F}}")
    return Endpoint(
        metric,
        lower,
        upper,
        str(held.get("label") or ""),
        {str(key): str(value) for key, value in where.items()},
        str(held.get("baseline") or ""),
        bool(held.get("secondary")),
    )


def _read_number(name: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"accept: {key} of {name} is {value!r}, expected a number")
    return float(value)

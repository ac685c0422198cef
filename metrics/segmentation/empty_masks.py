"""What a label is worth that one mask, or each, does not hold: the policy is data, and is printed with the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from medimg_eval.errors import UsageError, invalid
from medimg_eval.metrics.registry import Metric, available

Rule: TypeAlias = float | Literal["skip", "best", "worst"]
Rules: TypeAlias = Mapping[str, Rule]
Status: TypeAlias = Literal["absent", "missed", "hallucinated"]

_WORDS = ("skip", "best", "worst")
_DISTANCES, _EVERY = "distances", "other"
_IN_WORDS: Mapping[Status, str] = {
    "missed": "prediction empty",
    "hallucinated": "reference empty",
    "absent": "both empty",
}


@dataclass(frozen=True)
class EmptyPolicy:
    """Metric values for labels missing in reference, prediction or both.

    A rule is a number, "best" or "worst" (the metric's own), or "skip": NaN, which is left out of means and
    counted under the table. Rules stand by the metric's name without its parameter ("nsd" for "nsd@2");
    "distances" is for every distance that is not named, "other" for everything else. Metrics that define their
    value for empty masks themselves follow a rule only if it names them.

    Attributes:
        name: What a table calls the policy.
        absent: For a label in neither mask.
        missed: For a label in the reference only.
        hallucinated: For a label in the prediction only.
        distance: What the "worst" distance is: the "diagonal" of the image, a number of mm, or "skip".
        spacing: For an image whose spacing is not known: "refuse" to measure distances, or "skip" them.
    """

    name: str = "worst"
    absent: Rules = field(default_factory=lambda: {_EVERY: "skip"})
    missed: Rules = field(default_factory=lambda: {_EVERY: "worst"})
    hallucinated: Rules = field(default_factory=lambda: {_EVERY: "worst"})
    distance: float | Literal["diagonal", "skip"] = "diagonal"
    spacing: Literal["refuse", "skip"] = "refuse"

    def check(self) -> EmptyPolicy:
        """Returns the policy itself; raises UsageError for invalid rules."""
        for status in ("absent", "missed", "hallucinated"):
            for name, rule in getattr(self, status).items():
                if name not in (_DISTANCES, _EVERY) and name not in available("mask"):
                    raise UsageError(invalid(f"empty.{status}: metric", name, available("mask")))
                if rule not in _WORDS and not _is_number(rule):
                    raise UsageError(
                        f"Expected empty.{status}.{name} to be 'skip', 'best', 'worst' or a number, got {rule!r}"
                    )
        number = isinstance(self.distance, int | float) and _is_number(self.distance) and self.distance >= 0
        if self.distance not in ("diagonal", "skip") and not number:
            raise UsageError(
                f"Expected empty.distance to be 'diagonal', 'skip' or a number of at least 0, got {self.distance!r}"
            )
        if self.spacing not in ("refuse", "skip"):
            raise UsageError(f"Expected empty.spacing to be 'refuse' or 'skip', got {self.spacing!r}")
        return self

    @classmethod
    def of(cls, wanted: EmptyPolicy | str | Mapping[str, Any]) -> EmptyPolicy:
        """Returns a policy from itself, a preset or a config.

        In a config a status may have one rule for all metrics (`missed: worst`), and `preset` names what is
        changed: `{preset: monai, distance: 374}`.

        Raises:
            UsageError: There is no such preset, key, metric or rule.
        """
        if isinstance(wanted, EmptyPolicy):
            return wanted.check()
        if isinstance(wanted, str):
            UsageError.refuse_invalid("policy for empty masks", PRESETS, wanted)
            return PRESETS[wanted]
        if not isinstance(wanted, Mapping):
            raise UsageError(f"Expected empty to be a preset's name or a mapping, got {wanted!r}")
        stated = dict(wanted)
        start = cls.of(stated.pop("preset", "worst"))
        fields = ("name", "absent", "missed", "hallucinated", "distance", "spacing")
        for key in stated:
            if key not in fields:
                raise UsageError(invalid("empty: key", key, (*fields, "preset")))
        changed = {key: getattr(start, key) for key in fields} | {"name": f"{start.name}, changed"}
        for key, value in stated.items():
            if key not in ("absent", "missed", "hallucinated"):
                changed[key] = value
            else:
                changed[key] = {**changed[key], **value} if isinstance(value, Mapping) else {_EVERY: value}
        return cls(**changed).check()

    def rule(self, status: Status, metric: Metric) -> Rule | None:
        """Returns a metric's rule, or None where it decides itself."""
        rules: Rules = getattr(self, status)
        if metric.name in rules:
            return rules[metric.name]
        if metric.defined_when_empty:
            return None
        if metric.worst == "diagonal" and _DISTANCES in rules:
            return rules[_DISTANCES]
        return rules.get(_EVERY, "worst")

    def value(self, rule: Rule, metric: Metric, diagonal: float) -> float:
        """Returns what a rule is worth for a metric.

        Args:
            rule: As `rule` returns it.
            metric: The metric.
            diagonal: Of the image in mm.
        """
        if rule == "skip":
            return math.nan
        if rule == "best":
            return metric.best
        if rule != "worst":
            return float(rule)
        if metric.worst != "diagonal":
            return metric.worst
        if self.distance == "skip":
            return math.nan
        return diagonal if self.distance == "diagonal" else float(self.distance)

    def describe(self, metrics: Sequence[Metric], units: str = "mm") -> str:
        """Policy on empty masks in words, for footnotes.

        Args:
            metrics: The metrics of the table; rules for others are left out.
            units: Of distances.
        """
        judged = [metric for metric in metrics if not metric.defined_when_empty]
        parts = []
        for status, words in _IN_WORDS.items():
            by_rule: dict[str, list[str]] = {}
            for metric in judged:
                by_rule.setdefault(self._words(self.rule(status, metric), metric, units), []).append(metric.title)
            if len(by_rule) == 1:
                parts.append(f"{words}={next(iter(by_rule))}")
            elif by_rule:
                parts.append(f"{words}=" + ", ".join(f"{'/'.join(names)} {rule}" for rule, names in by_rule.items()))
        own = [metric.title for metric in metrics if metric.defined_when_empty and not metric.intermediate]
        if own:
            parts.append(f"{'/'.join(own)} by their own definition")
        return f"empty masks{f' by policy {self.name!r}' if self.name else ''}: " + "; ".join(parts)

    def _words(self, rule: Rule | None, metric: Metric, units: str) -> str:
        if rule is None:
            return "as the metric says"
        if rule == "skip" or np.isnan(self.value(rule, metric, 0.0)):
            return "not counted"
        if rule == "worst" and metric.worst == "diagonal" and self.distance == "diagonal":
            return "the image's diagonal"
        value = self.value(rule, metric, 0.0)
        return f"{value:g} {units}" if metric.unit == "mm" else f"{value:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _brats_policy(name: str) -> EmptyPolicy:
    perfect: dict[str, Rule] = {"dice": 1.0, "hd95": 0.0, "nsd": 1.0, _EVERY: "best"}
    return EmptyPolicy(name, absent=perfect, distance=374.0)


_NO_HD95: dict[str, Rule] = {"hd95": 0.0, "hd95_pooled": 0.0}

PRESETS: Mapping[str, EmptyPolicy] = {
    "worst": EmptyPolicy(),
    # MONAI 1.6: DiceMetric(ignore_empty=True) leaves out a label without a reference; HD95 is nan as soon as
    # one side is empty, and means leave nan out; surface Dice is 0 then. HD and ASSD are inf there, which no
    # mean survives: here they are left out as HD95 is.
    "monai": EmptyPolicy(
        "monai",
        missed={_DISTANCES: "skip", _EVERY: "worst"},
        hallucinated={"nsd": 0.0, _EVERY: "skip"},
    ),
    # https://github.com/rachitsaluja/BraTS-2023-Metrics: 374 mm is the diagonal of its 240 x 240 x 155 grid,
    # roundly; neither tumour nor prediction is a perfect score.
    "brats2023": _brats_policy("brats2023"),
    "brats2024": _brats_policy("brats2024"),
    # Touchstone: no score for an organ that the reference lacks, whatever was predicted.
    "touchstone": EmptyPolicy("touchstone", hallucinated={_EVERY: "skip"}),
    # FairSeg's code, the reverse of everyone else's: nothing on both sides is 0, a prediction of nothing there 1.
    "fairseg": EmptyPolicy(
        "fairseg",
        missed=_NO_HD95 | {_EVERY: "worst"},
        absent=_NO_HD95 | {_EVERY: "worst"},
        hallucinated=_NO_HD95 | {"dice": 1.0, "iou": 1.0, _EVERY: "worst"},
    ),
}

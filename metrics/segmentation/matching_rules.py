"""How masks fall into objects and lesions, and which of them are taken for the same: rules as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from medimg_eval.errors import UsageError, invalid

_ONE_OF: Mapping[str, tuple[str, ...]] = {
    "source": ("components", "given"),
    "connectivity": ("face", "corner"),
    "matching": ("iou", "overlap", "centroid"),
    "assignment": ("greedy", "hungarian"),
    "small_predictions": ("keep", "drop-voxels", "drop-mm3"),
}


@dataclass(frozen=True)
class InstanceRule:
    """How masks split into instances and match one to one.

    Attributes:
        source: "components": the connected parts of a mask are its instances; "given": those that the mask itself
            numbers, so that two which touch stay two.
        connectivity: Of components: voxels that share a "face" are one instance, or those that share a "corner" too.
        matching: Which instances may match: those of an "iou" of at least `threshold`, those with any "overlap",
            or those whose "centroid"s are at most `threshold` mm apart.
        threshold: Of `matching`.
        inclusive: Whether an "iou" of exactly the threshold matches; Kirillov's has to be above it.
        assignment: "greedy" takes the best pair first; "hungarian" takes the pairs whose IoU have the largest
            sum, or, of centroids, as many pairs as there can be with the smallest sum of distances.
        min_volume: Instances of less than so many mm3 (2-D: mm2) are left out on both sides.
        sizes: Two volumes in mm3 (2-D: mm2): "small" instances are below the first, "large" ones at least the
            second, and "medium" ones between.
    """

    source: Literal["components", "given"] = "components"
    connectivity: Literal["face", "corner"] = "corner"
    matching: Literal["iou", "overlap", "centroid"] = "iou"
    threshold: float = 0.5
    inclusive: bool = True
    assignment: Literal["greedy", "hungarian"] = "hungarian"
    min_volume: float = 0.0
    sizes: tuple[float, float] = (100.0, 1000.0)

    @classmethod
    def of(cls, wanted: InstanceRule | str | Mapping[str, Any] | None) -> InstanceRule:
        """Returns a rule from itself, its source ("given") or config.

        None is the default.

        Raises:
            UsageError: There is no such key, or a value is invalid.
        """
        if wanted is None or isinstance(wanted, InstanceRule):
            return wanted or cls()
        wanted = {"source": wanted} if isinstance(wanted, str) else wanted
        if not isinstance(wanted, Mapping):
            raise UsageError(f"Expected instances to be 'given', 'components' or a mapping, got {wanted!r}")
        stated = _check_settings("instances", wanted, [field.name for field in fields(cls)])
        if stated.get("matching", "iou") == "iou" and stated.get("threshold", 0.5) > 1:
            raise UsageError(f"Expected instances.threshold to be an IoU of at most 1, got {stated['threshold']}")
        if "sizes" in stated:
            sizes = stated["sizes"]
            if not isinstance(sizes, Sequence) or len(sizes) != 2 or not 0 < sizes[0] < sizes[1]:
                raise UsageError(f"Expected instances.sizes to be two volumes above 0, the smaller first, got {sizes}")
            stated["sizes"] = (float(sizes[0]), float(sizes[1]))
        return cls(**stated)

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        above = ">=" if self.inclusive else ">"
        limits = {"iou": f"IoU {above} {self.threshold:g}", "centroid": f"centroids <= {self.threshold:g} mm apart"}
        least = f" of at least {self.min_volume:g} mm3" if self.min_volume else ""
        which = "as numbered in the masks" if self.source == "given" else f"parts joined by {self.connectivity}s"
        return (
            f"instances: {which}{least}, {self.assignment} matching by "
            f"{limits.get(self.matching, 'any overlap')}, small < {self.sizes[0]:g} mm3, large >= {self.sizes[1]:g} mm3"
        )


@dataclass(frozen=True)
class LesionRule:
    """How lesions split and score, as in the BraTS challenges.

    Attributes:
        name: What a table calls the rule.
        dilation: Steps by which masks are dilated; a step reaches the voxels that share a face or an edge.
        min_volume: mm3: reference lesions of at most this volume leave the mean.
        merge_predictions: Whether parts of the prediction whose dilations touch are one predicted lesion, as it
            is with the reference.
        small_predictions: "keep" predicted lesions of any size, or drop those of at most `min_volume`, taken as
            a number of voxels ("drop-voxels") or as mm3 ("drop-mm3").
        false_positives: Whether a predicted lesion that touches no lesion enters the mean.
        penalty: What HD95 costs for a lesion that was missed or made up: mm, or "diagonal" for that of the image
            in voxels, as the authors compute it.
        join_through: Other labels of the case, one after the other: of the lesions that touch lesions of such a
            label (one step), those for which the first of these is the same one become one lesion. The first is
            that whose dilation comes first in the array, the last axis counted fastest.
        labels: By label name, what differs for it: `{"ET": {"min_volume": 10}}`.
    """

    name: str = "brats2023-gli"
    dilation: int = 3
    min_volume: float = 50.0
    merge_predictions: bool = False
    small_predictions: Literal["keep", "drop-voxels", "drop-mm3"] = "keep"
    false_positives: bool = True
    penalty: float | Literal["diagonal"] = 374.0
    join_through: Sequence[str] = ()
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, wanted: LesionRule | str | Mapping[str, Any] | None) -> LesionRule:
        """Returns a rule from itself, a preset or config; None is "brats2023-gli".

        In a config `preset` names what is changed: `{preset: brats2024-ped, min_volume: 5}`.

        Raises:
            UsageError: There is no such preset or key, or a value is invalid.
        """
        if wanted is None or isinstance(wanted, LesionRule):
            return wanted or cls()
        if isinstance(wanted, str):
            UsageError.refuse_invalid("rule for lesions", LESION_RULES, wanted)
            return LESION_RULES[wanted]
        stated = dict(wanted)
        start = cls.of(stated.pop("preset", "brats2023-gli"))
        names = [field.name for field in fields(cls)]
        stated = _check_settings("lesions", stated, names, also=("preset",))
        for name, changes in stated.get("labels", {}).items():
            _check_settings(f"lesions.labels.{name}", changes, [key for key in names if key not in ("name", "labels")])
        return replace(start, **{"name": f"{start.name}, changed", **stated})

    @property
    def joins(self) -> bool:
        """Whether lesions of some label are joined through another's."""
        return bool(self.join_through) or any(changes.get("join_through") for changes in self.labels.values())

    def for_label(self, name: str) -> LesionRule:
        """Returns the rule for one label, with what differs for it."""
        return replace(self, labels={}, **self.labels.get(name, {}))

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        parts = [_rule_words(self), *(f"{name}: {_rule_words(self.for_label(name))}" for name in self.labels)]
        return f"lesions by {self.name} ({'; '.join(parts)}; HD95 of surfels, NSD of border voxels)"


def _rule_words(rule: LesionRule) -> str:
    penalty = "the diagonal in voxels" if rule.penalty == "diagonal" else f"{rule.penalty:g} mm"
    words = [f"dilation {rule.dilation}", f"> {rule.min_volume:g} mm3", f"HD95 penalty {penalty}"]
    if rule.merge_predictions:
        words.append("predictions merged too")
    if rule.small_predictions != "keep":
        unit = "voxels" if rule.small_predictions == "drop-voxels" else "mm3"
        words.append(f"predictions <= {rule.min_volume:g} {unit} dropped")
    if not rule.false_positives:
        words.append("false positives not counted")
    if rule.join_through:
        words.append(f"joined through {', then '.join(rule.join_through)}")
    return ", ".join(words)


def _check_settings(
    where: str, stated: Mapping[str, Any], known: Sequence[str], also: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what a config states; raises UsageError for invalid keys and values."""
    for key, value in stated.items():
        if key not in known:
            raise UsageError(invalid(f"{where}: key", key, (*known, *also)))
        if key in _ONE_OF and value not in _ONE_OF[key]:
            raise UsageError(invalid(f"{where}.{key}", value, _ONE_OF[key]))
        if key == "inclusive" and not isinstance(value, bool):
            raise UsageError(f"Expected {where}.inclusive to be true or false, got {value!r}")
        if key in ("threshold", "min_volume", "penalty") and not (_is_number(value) or (key, value) == _DIAGONAL):
            raise UsageError(f"Expected {where}.{key} to be a number of at least 0, got {value!r}")
        if key == "dilation" and (not _is_number(value) or int(value) != value):
            raise UsageError(f"Expected {where}.dilation to be a whole number of steps, at least 0, got {value!r}")
        if key == "join_through" and not _are_names(value):
            raise UsageError(f"Expected {where}.join_through to be a list of labels' names, got {value!r}")
    return dict(stated)


_DIAGONAL = ("penalty", "diagonal")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _are_names(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, str) for item in value)


def _rules_2024() -> dict[str, LesionRule]:
    merged = LesionRule(merge_predictions=True, small_predictions="drop-voxels")
    through_core = {"ET": {"join_through": ("NETC",)}}
    return {
        "gli": replace(
            merged,
            min_volume=20.0,
            penalty=337.0,
            labels={
                "ET": {"min_volume": 10.0, "join_through": ("NETC", "RC")},
                # NETC and RC (cavity) are dilated by 5 steps. So SNFH was meant to be, but for a name misspelt.
                "NETC": {"dilation": 5, "join_through": ("ET", "RC")},
                "RC": {"dilation": 5, "join_through": ("ET", "NETC")},
                "SNFH": {"join_through": ("ET", "RC", "NETC")},
            },
        ),
        "ssa": replace(merged, labels=through_core),
        "ped": replace(merged, dilation=5, min_volume=10.0),
        "met": replace(merged, dilation=1, min_volume=2.0, penalty="diagonal", labels=through_core),
        "men": LesionRule(dilation=1),
        "men-rt": replace(merged, dilation=1, small_predictions="drop-mm3", false_positives=False, penalty="diagonal"),
    }


# Read in the challenges' own repositories: 2023 in https://github.com/rachitsaluja/BraTS-2023-Metrics (43c9052),
# 2024 in https://github.com/rachitsaluja/BraTS-2024-Metrics (f1131e3), one file per challenge.
LESION_RULES: Mapping[str, LesionRule] = {
    name: replace(rule, name=name)
    for name, rule in (
        ("brats2023-gli", LesionRule()),
        ("brats2023-ssa", LesionRule()),
        ("brats2023-ped", LesionRule()),
        ("brats2023-men", LesionRule(dilation=1)),
        ("brats2023-met", LesionRule(dilation=1, min_volume=2.0)),
        *((f"brats2024-{challenge}", rule) for challenge, rule in _rules_2024().items()),
    )
}

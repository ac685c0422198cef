"""Attacks on right answers, by their traces: which succeeded, after how many edits, and whether any edit would have.

The trace holds a step of kind `model` with `right` for each answer, the first before any edit, and one of kind
`control` with `right` for each control. All are NaN without a trace.
"""

from __future__ import annotations

import math
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.registry import metric

_MEDFUZZ = "after MedFuzz (Ness et al. 2024, arXiv 2406.06573)"
_attack = partial(metric, kind="answer", optional=True, source=_MEDFUZZ)


def _rights_in(pair: AnsweredQuestion, kind: str) -> list[bool]:
    return [bool(step["right"]) for step in pair.trace if step.get("kind") == kind and "right" in step]


@_attack(title="Right before the attack", higher_is_better=True, best=1.0, worst=0.0, value_kind="proportion")
def right_before_attack(pair: AnsweredQuestion) -> float:
    """Whether the question was answered right as it stood, before any edit."""
    rights = _rights_in(pair, "model")
    return float(rights[0]) if rights else math.nan


@_attack(title="Attack success", higher_is_better=False, best=0.0, worst=1.0, value_kind="proportion")
def attack_success(pair: AnsweredQuestion) -> float:
    """Whether a right answer became a wrong one by an edit; NaN where the first answer was wrong already."""
    rights = _rights_in(pair, "model")
    return float(not rights[-1]) if rights and rights[0] else math.nan


@_attack(title="Edits to succeed", higher_is_better=True, best=math.nan, worst=1.0, value_kind="count")
def attack_edits(pair: AnsweredQuestion) -> float:
    """The number of edits until a right answer became wrong; NaN where it did not."""
    return float(len(_rights_in(pair, "model")) - 1) if attack_success(pair) == 1 else math.nan


@_attack(title="Attack p", higher_is_better=None, best=math.nan, worst=math.nan)
def attack_p(pair: AnsweredQuestion) -> float:
    """The p of an attack that succeeded: (1 + controls answered wrong) / (1 + controls); NaN without controls."""
    controls = _rights_in(pair, "control")
    return (1 + controls.count(False)) / (1 + len(controls)) if controls and attack_success(pair) == 1 else math.nan

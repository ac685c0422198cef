"""Whether pictures show what their prompts say, as a classifier sees it: `finding_agreement@finding_classifier`.

A classifier gives each picture a probability of each finding; the truth is what the attributes of the prompt's case
say. Findings that are not spoken of count as absent, uncertain ones are left out. The floor is the same of the real
images of the reference set: what the classifier makes of pictures that do show what is said of them. Intervals take the
pictures of one patient's prompts as one draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.fidelity import SMALL, SetValue, variance_of_sum
from medimg_eval.metrics.generation.image_sets import ImageSet, ImageSets, set_metric
from medimg_eval.metrics.proportions import wilson_interval

HOW = "Wilson, at the number of independent draws that the spread over prompts' patients stands for"


class Judged(NamedTuple):
    """Values of pictures by one finding.

    Attributes:
        value: 0 to 1; NaN where there is nothing to judge.
        influences: (picture,): by how much each moves it.
        used: (picture,) bool, each: kinds of pictures that it takes, such as those with the finding, and those without.
        why: there is no value, in words.
    """

    value: float
    influences: Floats
    used: Sequence[Array]
    why: str = ""


Judge: TypeAlias = Callable[[Array, Array, float], Judged]
"""Probabilities (picture,), what was said of each (1, 0 or NaN), and the threshold, to what they are worth."""

_finding = partial(
    set_metric,
    higher_is_better=True,
    best=1,
    worst=0,
    source="Dutt et al. 2025 (CheXGenBench); ViewXGen's clinical efficacy",
    ability="findings",
)


@_finding(title="Findings right")
def finding_agreement(sets: ImageSets) -> SetValue:
    """The share of pictures in which a classifier sees a finding if, and only if, their prompt says so.

    Where a finding is rare it is high for a generator that never shows it: look at sensitivity beside it.
    """
    return _judge_findings(
        sets, "finding_agreement", lambda seen, said, least: _hit_share((seen >= least) == (said == 1), said >= 0)
    )


@_finding(title="Findings shown")
def finding_sensitivity(sets: ImageSets) -> SetValue:
    """The share of pictures whose prompt says that a finding is there in which a classifier sees it."""
    return _judge_findings(
        sets, "finding_sensitivity", lambda seen, said, least: _hit_share(seen >= least, said == 1, "has it")
    )


@_finding(title="Findings left out")
def finding_specificity(sets: ImageSets) -> SetValue:
    """The share of pictures whose prompt does not say that a finding is there in which a classifier sees none."""
    return _judge_findings(
        sets, "finding_specificity", lambda seen, said, least: _hit_share(seen < least, said == 0, "lacks it")
    )


@_finding(title="Findings, AUROC")
def finding_auroc(sets: ImageSets) -> SetValue:
    """The probability that a classifier finds more of a finding in a picture that should show it than in another.

    Ties count half: 0.5 is a model that does not heed its prompts. No threshold enters.
    """
    return _judge_findings(sets, "finding_auroc", lambda seen, said, _: _finding_auroc(seen, said))


@set_metric(
    title="View right",
    higher_is_better=True,
    best=1,
    worst=0,
    source="Lee et al. 2024 (ViewXGen)",
    ability="choices",
)
def view_accuracy(sets: ImageSets) -> SetValue:
    """The share of pictures whose most probable view, by a classifier, is the one that was asked for.

    Pictures of which no known view was asked are left out.
    """

    def judge(part: ImageSet) -> Judged:
        stated = _stated_findings(part)
        is_known = np.asarray(np.isfinite(stated).all(axis=1))
        right: Array = stated[np.arange(len(stated)), part.rows.argmax(axis=1)] == 1
        return _hit_share(right, is_known, "asks for a known view")

    return _finding_value(sets, "view_accuracy", judge)


def _judge_findings(sets: ImageSets, name: str, judge: Judge) -> SetValue:
    """The value of one finding, or the mean over those that have any."""
    indices: Sequence[int] = range(len(sets.names)) if sets.finding is None else [sets.finding]

    def together(part: ImageSet) -> Judged:
        stated = _stated_findings(part)
        judged = [judge(part.rows[:, at].astype(np.float64), stated[:, at], sets.thresholds[at]) for at in indices]
        usable = [judgement for judgement in judged if not judgement.why]
        if not usable:
            return judged[0]
        influences: Array = np.mean([judgement.influences for judgement in usable], axis=0)
        used = [kind for judgement in usable for kind in judgement.used]
        return Judged(float(np.mean([judgement.value for judgement in usable])), influences, used)

    return _finding_value(sets, name, together)


def _finding_value(sets: ImageSets, name: str, judge: Callable[[ImageSet], Judged]) -> SetValue:
    generated, reference = sets.by_name["generated"], sets.by_name["reference"]
    judgement, real = judge(generated), judge(reference)
    if judgement.why:
        raise ValueError(judgement.why)
    groups = np.unique(generated.patients, return_inverse=True)[1]
    # As many draws as there are patients with a picture of the rarest kind that is needed.
    draws = min(len(np.unique(groups[kind])) for kind in judgement.used)
    stated = _stated_findings(generated) if sets.finding is None else _stated_findings(generated)[:, [sets.finding]]
    flags = [f"small_n: {draws} patients' prompts"] if draws < SMALL else []
    if unread := int(np.isnan(stated).all(axis=1).sum()):
        flags.append(f"left_open: {unread} of {len(stated)} pictures, of which nothing certain is said")
    return SetValue(
        name,
        judgement.value,
        n_real=len(reference.rows),
        n_generated=len(generated.rows),
        d=len(sets.names),
        floor=real.value,
        floor_n=0 if real.why else len(reference.rows),
        flags=tuple(flags),
        extractor=sets.extractor,
        **_value_interval(judgement, groups, draws),
    )


def _value_interval(found: Judged, groups: Array, draws: int) -> dict[str, Any]:
    variance = variance_of_sum(found.influences, groups)
    if math.isnan(variance):
        return {}
    share, many = found.value, float(draws)
    if variance > 0 and 0 < share < 1:
        many = share * (1 - share) / variance
    low, high = wilson_interval(share * many, many)
    return {"standard_error": math.sqrt(variance), "low": low, "high": high, "interval": HOW}


def _stated_findings(part: ImageSet) -> Floats:
    if part.says is None:
        raise ValueError("Expected what the attributes say of each picture, got none")
    return part.says


def _hit_share(hits: Array, chosen: Array, what: str = "says anything certain of it") -> Judged:
    many = int(chosen.sum())
    if not many:
        return Judged(math.nan, np.zeros(len(chosen)), (), f"no prompt {what}")
    share = float(hits[chosen].mean())
    return Judged(share, np.where(chosen, hits - share, 0) / many, (chosen,))


def _finding_auroc(seen: Array, said: Array) -> Judged:
    """AUROC with each picture's influence (DeLong's placement values)."""
    there, absent = said == 1, said == 0
    influences = np.zeros(len(said))
    if not (there.any() and absent.any()):
        return Judged(math.nan, influences, (), f"no prompt {'lacks' if there.any() else 'has'} it")
    area = math.nan
    for side, other_side, sign in ((absent, there, -1), (there, absent, 1)):
        ordered = np.sort(seen[other_side])
        below = np.searchsorted(ordered, seen[side], "left") + np.searchsorted(ordered, seen[side], "right")
        placed = below / (2 * len(ordered))
        influences[side] = sign * (placed - placed.mean()) / side.sum()
        area = float(placed.mean())
    return Judged(area, influences, (there, absent))

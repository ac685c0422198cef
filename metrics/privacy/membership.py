"""Attacks scored from numbers that others computed: re-identification scores, losses of shadow models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.fidelity import SMALL, SetError, SetValue, group_sums, share_interval, variance_of_mean
from medimg_eval.metrics.privacy.screens import closer
from medimg_eval.metrics.proportions import exact_interval

FEW_SHADOWS = 8
"""Shadow models on a side below which samples share one spread."""

EDGE = 1e-9
"""What a product such as 0.01 x 300 may fall short of a whole number."""


def reid_rate(
    generated: npt.ArrayLike,
    holdout: npt.ArrayLike,
    different: npt.ArrayLike,
    *,
    same: npt.ArrayLike | None = None,
    fpr: float = 0.01,
    prompts: npt.ArrayLike | None = None,
    extractor: str = "",
) -> SetValue:
    """The share of generated images whose best match in training passes for the same patient.

    The threshold is where the share `fpr` of real pairs of different patients passes. A best match is the largest of
    many scores, so that far more than `fpr` pass by chance: the floor, the same share of hold-out images, is what the
    value must be compared with. After Packhäuser et al. 2022.

    `details` has "threshold", "fpr" (as it came out), "auc" (a generated image's best match is higher than a hold-out
    image's: 0.5 is chance) and, with `same`, "tpr", the share of true pairs that pass: a network that finds few of
    them cannot clear a generator.

    Args:
        generated: (m,): of each generated image its highest score against all training images.
        holdout: (h,): of each hold-out image, a real one of a patient who is not in training, the same.
        different: (pair,): scores of real pairs of different patients.
        same: (pair,): scores of real pairs of one patient.
        fpr: false positives among different patients, in (0, 1).
        prompts: (m,): which generated images belong together.
        extractor: which network the scores are from.

    Raises:
        SetError: Scores are not finite or not (row,), there is no hold-out image, or there are fewer than 1 / fpr
            pairs of different patients.
    """
    generated_scores, holdout_scores, pairs = (
        _check_scores(part, name)
        for part, name in ((generated, "generated"), (holdout, "hold-out"), (different, "different-patient"))
    )
    threshold, reached = _find_threshold(pairs, fpr, "pairs of different patients")
    passing, real = generated_scores > threshold, holdout_scores > threshold
    details = {"threshold": threshold, "fpr": reached, "auc": closer(-generated_scores, -holdout_scores)}
    if same is not None:
        details["tpr"] = float((_check_scores(same, "same-patient") > threshold).mean())
    groups = _number_groups(prompts, len(generated_scores))
    return SetValue(
        f"reid_rate, fpr={fpr:g}",
        float(passing.mean()),
        len(holdout_scores),
        len(generated_scores),
        0,
        floor=float(real.mean()),
        floor_n=len(holdout_scores),
        flags=_small_flags(holdout_scores, generated_scores, "hold-out", "generated"),
        extractor=extractor,
        details=details,
        **share_interval(passing.astype(np.float64), groups, "Wilson, over generated images; threshold held fixed"),
    )


def mia_tpr_at_fpr(
    members: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    fpr: float = 0.01,
    higher_is_member: bool = False,
    patients: npt.ArrayLike | None = None,
    extractor: str = "",
) -> SetValue:
    """The share of training samples that a membership attack finds while at most `fpr` of others are accused.

    The attack is a threshold on a score per sample: the model's loss, or what `lira_scores` returns. The interval is
    Clopper and Pearson's. `details` has "auc", "threshold" and "fpr", as it came out: scores equal to the threshold
    do not count, so that it never exceeds `fpr`. The floor is that of a guess, the same as `fpr`.

    Args:
        members: (n,): scores of samples that were trained on.
        others: (h,): scores of samples like them that were not.
        fpr: in (0, 1).
        higher_is_member: False for losses, True for `lira_scores`.
        patients: (n,): of the members, who are the unit of the interval.
        extractor: which model and attack the scores are from.

    Raises:
        SetError: Scores are not finite or not (row,), or there are fewer than 1 / fpr others.
    """
    sign = 1.0 if higher_is_member else -1.0
    inside, outside = sign * _check_scores(members, "member"), sign * _check_scores(others, "non-member")
    threshold, reached = _find_threshold(outside, fpr, "non-members")
    is_detected = (inside > threshold).astype(np.float64)
    share, groups = float(is_detected.mean()), _number_groups(patients, len(is_detected))
    variance = variance_of_mean(is_detected, groups)
    many = float(len(group_sums(is_detected, groups)))
    if groups is not None and variance > 0:
        many = min(float(len(is_detected)), share * (1 - share) / variance)
    low, high = exact_interval(share * many, many)
    details = {"auc": closer(-inside, -outside), "threshold": sign * threshold, "fpr": reached}
    return SetValue(
        f"mia_tpr_at_fpr, fpr={fpr:g}",
        share,
        len(inside),
        len(outside),
        0,
        low=low,
        high=high,
        interval="Clopper-Pearson, over members; threshold held fixed",
        standard_error=math.sqrt(variance) if variance >= 0 else math.nan,
        floor=fpr,
        floor_n=len(outside),
        flags=_small_flags(inside, outside, "member", "non-member"),
        extractor=extractor,
        details=details,
    )


def lira_scores(target: npt.ArrayLike, shadows: npt.ArrayLike, trained_on: npt.ArrayLike) -> Floats:
    """Returns likelihood ratios, log p(loss | member) - log p(loss | not).

    Losses of the model that is attacked are (sample,), log or logit losses being nearer to normal; those of the shadow
    models are (model, sample), and `trained_on` says, bool, whether each was trained on the sample. Those of the models
    that were, and of those that were not, are taken to be normal, a mean each; with fewer than eight models on a side
    all samples share that side's spread (Carlini et al. 2022). Where no shadow model was trained on any sample (the
    offline attack), the score is how many standard deviations the loss lies below that of a model that has not seen it.

    Raises:
        SetError: Shapes do not fit, losses are not finite, a sample lacks two shadow models that were not trained on
            it, or, while others have them, two that were.
    """
    losses, many = _check_scores(target, "target"), np.asarray(shadows, dtype=np.float64)
    inside = np.asarray(trained_on)
    if many.ndim != 2 or inside.dtype != np.bool_ or inside.shape != many.shape or many.shape[1] != len(losses):
        raise SetError(
            f"Expected shadow losses and bool membership (model, {len(losses)}), got {many.shape}, {inside.dtype} of "
            f"{inside.shape}"
        )
    if not np.isfinite(many).all():
        raise SetError(f"{int((~np.isfinite(many)).sum())} losses of shadow models are NaN or infinite")
    out_mean, out_spread = _fit_normal(many, ~inside, "not trained on it")
    out = (losses - out_mean) / out_spread
    if not inside.any():
        return -out
    in_mean, in_spread = _fit_normal(many, inside, "trained on it")
    member = (losses - in_mean) / in_spread
    return 0.5 * (out**2 - member**2) + np.log(out_spread / in_spread)


def _fit_normal(losses: Array, chosen: Array, what: str) -> tuple[Array, Array]:
    counts = chosen.sum(axis=0)
    if counts.min() < 2:
        raise SetError(
            f"Expected at least two shadow models {what} for each sample, got {int(counts.min())} for sample "
            f"{int(counts.argmin())}"
        )
    means = np.where(chosen, losses, 0).sum(axis=0) / counts
    squares = (np.where(chosen, losses - means, 0) ** 2).sum(axis=0)
    if counts.min() < FEW_SHADOWS:
        spread = np.full(len(means), math.sqrt(float(squares.sum()) / float((counts - 1).sum())))
    else:
        spread = np.sqrt(squares / (counts - 1))
    if not spread.all():
        raise SetError(f"Losses of shadow models {what} do not vary for sample {int(spread.argmin())}")
    return means, spread


def _check_scores(given: npt.ArrayLike, name: str) -> Floats:
    scores = np.asarray(given, dtype=np.float64)
    if scores.ndim != 1 or not scores.size:
        raise SetError(f"Expected {name} scores of the shape (row,), at least one, got {scores.shape}")
    odd = np.flatnonzero(~np.isfinite(scores))
    if odd.size:
        raise SetError(f"{odd.size} of {scores.size} {name} scores are NaN or infinite, the first in row {odd[0]}")
    return scores


def _find_threshold(negatives: Floats, fpr: float, what: str) -> tuple[float, float]:
    """Returns the threshold at which `fpr` negatives exceed, and their share."""
    if not 0 < fpr < 1:
        raise SetError(f"Expected the false-positive rate to be in (0, 1), got {fpr}")
    allowed = math.floor(fpr * len(negatives) + EDGE)
    if allowed < 1:
        least = math.ceil(1 / fpr - EDGE)
        raise SetError(f"Expected at least {least} {what} for a rate of {fpr:g}, got {len(negatives)}")
    threshold = float(np.sort(negatives)[len(negatives) - allowed - 1])
    return threshold, float((negatives > threshold).mean())


def _number_groups(given: npt.ArrayLike | None, rows: int) -> Array | None:
    if given is None:
        return None
    labels = np.asarray(given)
    if labels.shape != (rows,):
        raise SetError(f"Expected one group per score, {rows}, got shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1]


def _small_flags(one: Array, other: Array, first: str, second: str) -> tuple[Any, ...]:
    if min(len(one), len(other)) >= SMALL:
        return ()
    return (f"small_n: {len(one)} {first} and {len(other)} {second} scores",)

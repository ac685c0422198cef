"""Whether a generated set repeats training rows: against what as many real rows do, and by how often they were seen."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Ints
from medimg_eval.metrics.fidelity import (
    STRIP,
    FeatureSet,
    SetError,
    SetValue,
    estimates,
    exact_squares,
    near,
    normal_interval,
    one_set,
    prepare_feature_sets,
    share_interval,
    shuffled,
    variance_of_mean,
)
from medimg_eval.metrics.privacy.screens import MembershipSets, ScreenOptions, prepare_membership_sets

PERCENTILE = 5.0
"""Of the distances between training rows: below it a generation counts as a memory."""


class CurvePoint(NamedTuple):
    """Training rows that were seen about as often.

    Attributes:
        least: the fewest times one of them was seen.
        most: the most.
        n: how many there are.
        share: of them that are memorised.
        low: lower end of its 95 % interval, by Wilson's method.
        high: upper end.
    """

    least: int
    most: int
    n: int
    share: float
    low: float
    high: float


def nnaa(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The adversarial accuracy of a nearest neighbour that tells generated rows from training rows.

    It is half of P(d_TS > d_TT) + P(d_ST > d_SS), where d_TS is the distance of a training row to the nearest generated
    one, and d_TT to the nearest other training row (Yale et al. 2020), neighbours of the same patient not counted. In
    [0, 1]: 0.5 is indistinguishable; towards 0 generated rows are copies, towards 1 they are unlike. The three sets are
    cut down at random to one size, whatever the difference. The floor is that of training against hold-out. `details`
    has "holdout", the same of the generated against the hold-out set, "privacy_loss", that less the value: above 0
    where generated rows are nearer to training than to other real rows, and "privacy_loss_error", its standard error.
    """
    trio = prepare_membership_sets(train, holdout, generated, options, least=3)
    size = min(len(trio.train.rows), len(trio.holdout.rows), len(trio.generated.rows))
    rng = np.random.default_rng(trio.options["seed"])
    parts, groups = [], []
    labels = (trio.patients, trio.holdout_patients, trio.prompts)
    for rows, label in zip((trio.train.rows, trio.holdout.rows, trio.generated.rows), labels, strict=True):
        numbers = None if label is None else np.unique(label, return_inverse=True)[1]
        chosen = np.sort(shuffled(rng, len(rows), numbers)[:size])
        parts.append(rows[chosen])
        groups.append(None if label is None else label[chosen])
    real, holdout_set, generated_set = prepare_feature_sets(*parts)
    own = [
        _nearest_other(feature_set, group)
        for feature_set, group in zip((real, holdout_set, generated_set), (*groups[:2], None), strict=True)
    ]
    value, wins = _neighbour_accuracy(real, generated_set, own[0], own[2])
    against, spared = _neighbour_accuracy(holdout_set, generated_set, own[1], own[2])
    floor, _ = _neighbour_accuracy(real, holdout_set, own[0], own[1])
    extra, loss_error = dict[str, Any](), math.nan
    if trio.options["interval"]:
        variance = (variance_of_mean(wins[0], groups[0]) + variance_of_mean(wins[1], groups[2])) / 4
        extra = normal_interval(value, variance, "normal, over rows of both sets; neighbours held fixed")
        # Generated rows enter both accuracies: what counts of them is the difference.
        parts_of_loss = (variance_of_mean(wins[0], groups[0]), variance_of_mean(spared[0], groups[1]))
        loss_error = math.sqrt((sum(parts_of_loss) + variance_of_mean(spared[1] - wins[1], groups[2])) / 4)
    flags = (f"subsampled: {size} rows of each set were compared",) * any(
        len(feature_set.rows) != size for feature_set in (trio.train, trio.holdout, trio.generated)
    )
    details = {"holdout": against, "privacy_loss": against - value, "privacy_loss_error": loss_error}
    return trio.value("nnaa", value, floor=floor, floor_n=size, flags=flags, details=details, **extra)


def authenticity(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The share of generated rows that are further from their nearest training row than that is from its own nearest.

    AuthPct of Alaa et al. 2022, as a share; neighbours of the same patient do not count. It depends on n and on how
    dense the sets are, and does not detect memorisation by itself (Stein et al. 2023): read it beside the floor, the
    hold-out's.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    own = _nearest_other(trio.train, trio.patients)
    generated_share, holdout_share = (_authentic_rows(part, trio.train, own) for part in (trio.generated, trio.holdout))
    extra = (
        share_interval(generated_share, trio.prompts, "Wilson, over generated rows") if trio.options["interval"] else {}
    )
    return trio.value(
        "authenticity",
        float(generated_share.mean()),
        floor=float(holdout_share.mean()),
        floor_n=len(holdout_share),
        **extra,
    )


def memorised_fraction(
    train: npt.ArrayLike,
    holdout: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    percentile: float = PERCENTILE,
    **options: Unpack[ScreenOptions],
) -> SetValue:
    """The share of training rows to which a generated row is nearer than training rows nearly ever are to each other.

    Nearer, that is, than the 5th percentile of the training rows' distances to their nearest other training row, of
    another patient where patients are given. The floor is the share of hold-out rows with a generated row as near.
    `details` has "threshold", that distance.

    Raises:
        SetError: The percentile is not in (0, 100); see also `prepare_membership_sets`.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    train_share, holdout_share, threshold = _memorised_rows(trio, percentile)
    extra: dict[str, Any] = {}
    if trio.options["interval"]:
        extra = share_interval(train_share, _number_groups(trio.patients), "Wilson, over training rows")
    name = f"memorised_fraction, percentile={percentile:g}"
    return trio.value(
        name,
        float(train_share.mean()),
        floor=float(holdout_share.mean()),
        floor_n=len(holdout_share),
        details={"threshold": threshold},
        flags=("degenerate: the threshold is 0, training rows repeat each other",) * (threshold == 0),
        **extra,
    )


def memorisation_curve(
    train: npt.ArrayLike,
    holdout: npt.ArrayLike,
    generated: npt.ArrayLike,
    seen: npt.ArrayLike,
    *,
    edges: tuple[int, ...] = (1, 2, 3, 5, 9, 17),
    percentile: float = PERCENTILE,
    **options: Unpack[ScreenOptions],
) -> list[CurvePoint]:
    """Returns the memorised share by repetitions in training.

    Each training image stands there once; `seen`, int (n,), at least 1, is how often: in the training list, or with its
    near copies, which `near_copies` counts. `edges` are the least number of each group; rows below the first are left
    out, groups without rows too.

    Raises:
        SetError: There is not one whole number above 0 per training row; edges do not rise; see also
            `memorised_fraction`.
    """
    counts = np.asarray(seen)
    trio = prepare_membership_sets(train, holdout, generated, {**options, "nan": "error"})
    if counts.shape != (len(trio.train.rows),) or counts.dtype.kind not in "iu" or counts.min() < 1:
        raise SetError(
            f"Expected `seen` to be a whole number above 0 per training row, {len(trio.train.rows)}, got "
            f"{counts.dtype} of {counts.shape}"
        )
    if not edges or any(low >= high for low, high in pairwise(edges)):
        raise SetError(f"Expected `edges` to rise, got {edges}")
    train_share, _, _ = _memorised_rows(trio, percentile)
    points = []
    for low, high in zip(edges, (*edges[1:], math.inf), strict=True):
        here = (counts >= low) & (counts < high)
        if here.any():
            groups = None if trio.patients is None else _number_groups(trio.patients[here])
            interval = share_interval(train_share[here], groups, "")
            least, most = int(counts[here].min()), int(counts[here].max())
            share = float(train_share[here].mean())
            points.append(CurvePoint(least, most, int(here.sum()), share, interval["low"], interval["high"]))
    return points


def near_copies(rows: npt.ArrayLike, within: float) -> Ints:
    """Returns rows within `within` of each row, itself included: int64, (n,).

    `within` is in units of the features; 0 counts equal rows.

    Raises:
        SetError: `rows` is no matrix of finite numbers, or `within` is negative.
    """
    if not within >= 0:
        raise SetError(f"Expected `within` to be a distance, got {within}")
    train_rows, _ = one_set(rows, "training")
    if not len(train_rows):
        return np.zeros(0, dtype=np.int64)
    (cloud,) = prepare_feature_sets(train_rows)
    limit = (within * cloud.scale) ** 2
    counts = np.zeros(len(train_rows), dtype=np.int64)
    for start in range(0, len(train_rows), STRIP):
        chosen = slice(start, min(start + STRIP, len(train_rows)))
        squares, margin = estimates(cloud, cloud, chosen)
        sure = squares < (limit - 2 * margin)[:, None]
        rows_near, columns_near = np.nonzero((squares <= (limit + 2 * margin)[:, None]) & ~sure)
        exact = exact_squares(cloud, cloud, rows_near + start, columns_near) <= limit
        counts[chosen] = sure.sum(axis=1) + np.bincount(rows_near[exact], minlength=len(sure))
    return counts


def _number_groups(groups: Array | None) -> Array | None:
    return None if groups is None else np.unique(groups, return_inverse=True)[1]


def _nearest_other(rows: FeatureSet, groups: Array | None) -> Floats:
    """Returns squared distances to the nearest row of other groups."""
    both = None if groups is None else (groups, groups)
    return near(rows, rows, 1, groups=both, itself=groups is None).squares[:, 0]


def _neighbour_accuracy(
    one: FeatureSet, other: FeatureSet, within_one: Floats, within_other: Floats
) -> tuple[float, tuple[Floats, Floats]]:
    wins = (
        (near(one, other, 1).squares[:, 0] > within_one).astype(np.float64),
        (near(other, one, 1).squares[:, 0] > within_other).astype(np.float64),
    )
    return float(wins[0].mean() + wins[1].mean()) / 2, wins


def _authentic_rows(queries: FeatureSet, train: FeatureSet, own: Floats) -> Floats:
    nearest = near(queries, train, 1)
    return (nearest.squares[:, 0] >= own[nearest.places[:, 0]]).astype(np.float64)


def _memorised_rows(trio: MembershipSets, percentile: float) -> tuple[Floats, Floats, float]:
    """Returns training and hold-out rows with close generated ones, and distance."""
    if not 0 < percentile < 100:
        raise SetError(f"Expected the percentile to be in (0, 100), got {percentile}")
    limit = float(np.percentile(_nearest_other(trio.train, trio.patients), percentile))
    is_memorised = [near(part, trio.generated, 1).squares[:, 0] < limit for part in (trio.train, trio.holdout)]
    return is_memorised[0].astype(np.float64), is_memorised[1].astype(np.float64), math.sqrt(limit) / trio.train.scale

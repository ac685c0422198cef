"""Screens for copies: how near generated rows come to training rows, beside how near other real rows come."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Bools, Floats
from medimg_eval.metrics.fidelity import (
    SMALL,
    FeatureSet,
    SetError,
    SetValue,
    checked_options,
    labels_of,
    near,
    numbered,
    one_set,
    prepare_feature_sets,
    row_numbers,
    same_features,
    share_interval,
)

DRAWS = 1_000
"""Resamples of an interval of a median."""

PERCENTILES = (1, 5, 25, 50)


class ScreenOptions(TypedDict, total=False):
    """Keyword arguments that every screen takes.

    Attributes:
        patients: (n,): whose image each training row is. Needs `holdout_patients`; training rows of one patient are
            then no neighbours of each other.
        holdout_patients: (h,): of the hold-out rows, none of whom may be in training.
        prompts: (m,): which generated rows belong together, and are resampled together; by default none do.
        prompt_patients: (m,): the training patient whose text a generated row was made from, if there is one.
        interval: whether to compute the interval; True.
        nan: "error", or "drop" to leave out rows with NaN or infinite features and count them in a flag.
        seed: of all that is drawn; 0.
        extractor: what the features come from.
    """

    patients: npt.ArrayLike | None
    holdout_patients: npt.ArrayLike | None
    prompts: npt.ArrayLike | None
    prompt_patients: npt.ArrayLike | None
    interval: bool
    nan: Literal["error", "drop"]
    seed: int
    extractor: str


DEFAULTS = ScreenOptions(
    patients=None,
    holdout_patients=None,
    prompts=None,
    prompt_patients=None,
    interval=True,
    nan="error",
    seed=0,
    extractor="",
)


class MembershipSets(NamedTuple):
    """Training, hold-out and generated rows that have passed the checks.

    Groups are int64 numbers; patients have the same number in all three.
    """

    train: FeatureSet
    holdout: FeatureSet
    generated: FeatureSet
    patients: Array | None
    holdout_patients: Array | None
    prompts: Array | None
    prompt_patients: Array | None
    flags: tuple[str, ...]
    options: ScreenOptions

    def value(self, metric: str, value: float, **found: Any) -> SetValue:
        """Returns the result with n, d, extractor, flags, and the hold-out's n in `details`."""
        details = {"n_holdout": float(len(self.holdout.rows)), **found.pop("details", {})}
        return SetValue(
            metric,
            float(value),
            len(self.train.rows),
            len(self.generated.rows),
            self.train.rows.shape[1],
            flags=(*self.flags, *found.pop("flags", ())),
            extractor=self.options["extractor"],
            details=details,
            **found,
        )

    def length(self, squares: Floats) -> Floats:
        """Returns distances in units of the features."""
        return np.sqrt(squares) / self.train.scale


class Pair(NamedTuple):
    """A generated row and the training row nearest to it.

    Attributes:
        generated: its row.
        train: row of the training set.
        distance: in units of the features.
        nearer_than: share of the hold-out rows that are at least as near to the training set: small is suspicious.
    """

    generated: int
    train: int
    distance: float
    nearer_than: float


def prepare_membership_sets(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, given: ScreenOptions, *, least: int = 2
) -> MembershipSets:
    """Returns three sets that are fit to be screened.

    Raises:
        SetError: There is no hold-out set, a set is no matrix of finite numbers, features or groups do not fit, there
            are too few rows, or patients are in training and in the hold-out set.
        TypeError: There is no such option.
    """
    options = ScreenOptions(**checked_options(given, DEFAULTS))  # type: ignore[typeddict-item]
    if holdout is None:
        raise SetError(
            "A screen for copies needs a hold-out set, real images that were not trained on: distances to training "
            "images mean nothing without those of other real images"
        )
    if (options["patients"] is None) != (options["holdout_patients"] is None):
        raise SetError("Expected `patients` and `holdout_patients` together, or neither")
    if options["prompt_patients"] is not None and options["patients"] is None:
        raise SetError("`prompt_patients` says whose text a row was made from, and needs `patients` to find them in")
    drop = options["nan"] == "drop"
    names = ("training", "hold-out", "generated")
    checked = [one_set(rows, name, drop=drop) for rows, name in zip((train, holdout, generated), names, strict=True)]
    sets, is_kept = [rows for rows, _ in checked], [mask for _, mask in checked]
    for rows, name in zip(sets, names, strict=True):
        if len(rows) < least:
            raise SetError(f"Expected at least {least} rows in the {name} set, got {len(rows)}")
        same_features(sets[0], rows, ("training", name))
    patients = _number_patients(options, is_kept)
    prompts = numbered(labels_of(options["prompts"], "prompts", is_kept[2]))
    flags = _screen_flags(sets, [int((~mask).sum()) for mask in is_kept])
    ready = prepare_feature_sets(*sets)
    return MembershipSets(ready[0], ready[1], ready[2], patients[0], patients[1], prompts, patients[2], flags, options)


def _number_patients(options: ScreenOptions, kept: list[Bools]) -> tuple[Array | None, ...]:
    """Returns the patients of training, hold-out and generated rows, numbered alike."""
    labels = [
        labels_of(options["patients"], "patients", kept[0]),
        labels_of(options["holdout_patients"], "holdout_patients", kept[1]),
        labels_of(options["prompt_patients"], "prompt_patients", kept[2]),
    ]
    there = [label for label in labels if label is not None]
    if not there:
        return None, None, None
    numbers = numbered(np.concatenate([label.astype(str) for label in there]))
    parts = iter(np.split(np.asarray(numbers), np.cumsum([len(label) for label in there])[:-1]))
    numbered_ = tuple(None if label is None else next(parts) for label in labels)
    if numbered_[0] is not None and numbered_[1] is not None:
        both = np.intersect1d(numbered_[0], numbered_[1]).size
        if both:
            raise SetError(f"{both} patients have images in training and in the hold-out set; take them out of one")
    return numbered_


def _screen_flags(sets: list[Array], lost: list[int]) -> tuple[str, ...]:
    train, holdout_numbers, generated_numbers = np.split(
        row_numbers(*sets), np.cumsum([len(rows) for rows in sets])[:-1]
    )
    flags = []
    if any(lost):
        flags.append("dropped_rows: {} training, {} hold-out and {} generated rows were not finite".format(*lost))
    if min(len(rows) for rows in sets) < SMALL:
        flags.append("small_n: {} training, {} hold-out and {} generated rows".format(*(len(rows) for rows in sets)))
    for numbers, name in ((generated_numbers, "generated"), (holdout_numbers, "hold-out")):
        shared = int(np.isin(numbers, train).sum())
        if shared:
            flags.append(f"shared_rows: {shared} of {len(numbers)} {name} rows are rows of the training set")
    return tuple(flags)


def dcr(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The median distance of a generated row to the closest training row (distance to closest record).

    In units of the features; distances are exact also of near copies. Read it beside the floor, the median of the
    hold-out rows: it is what images of new patients have. The median does not see a few copies; these do, in `details`:

    - "closer_than_holdout": the probability that a generated row is nearer to training than a hold-out row, ties
      halved; 0.5 where generated rows are as near as new patients.
    - "below_holdout_p1": the share of generated rows nearer than the hold-out's 1st percentile, 0.01 where they are
      like new patients; and "below_holdout_p5".
    - "p1", "p5", "p25", "p50" of the generated rows, and "holdout_p1" and so on.
    - "same_patient", "other_patients": medians of the distances to training rows of the patient whose text the row
      was made from, and to those of all others, with `patients` and `prompt_patients`.

    A screen for similarity: neither a pass nor a failure says whether training data can be inferred.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    generated_distances, holdout_distances = (
        trio.length(near(part, trio.train, 1).squares[:, 0]) for part in (trio.generated, trio.holdout)
    )
    details = {f"p{at}": float(np.percentile(generated_distances, at)) for at in PERCENTILES}
    details |= {f"holdout_p{at}": float(np.percentile(holdout_distances, at)) for at in PERCENTILES}
    details["closer_than_holdout"] = closer(generated_distances, holdout_distances)
    for at in (1, 5):
        details[f"below_holdout_p{at}"] = float((generated_distances < details[f"holdout_p{at}"]).mean())
    details |= _by_patient(trio)
    return trio.value(
        "dcr",
        float(np.median(generated_distances)),
        floor=float(np.median(holdout_distances)),
        floor_n=len(holdout_distances),
        details=details,
        **_median_interval(generated_distances, trio),
    )


def dcr_share(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The share of generated rows that are nearer to a training row than to any hold-out row; ties count half.

    The floor is n / (n + h), what rows have that are no nearer to either by more than chance: with sets of different
    sizes it is not a half.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    to_train, to_holdout = (near(trio.generated, part, 1).squares[:, 0] for part in (trio.train, trio.holdout))
    nearer = (to_train < to_holdout) + 0.5 * (to_train == to_holdout)
    n, h = len(trio.train.rows), len(trio.holdout.rows)
    extra = share_interval(nearer, trio.prompts, "Wilson, over generated rows") if trio.options["interval"] else {}
    return trio.value("dcr_share", float(nearer.mean()), floor=n / (n + h), floor_n=h, **extra)


def nndr(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The median ratio of a generated row's distances to the nearest and to the second nearest training row.

    In [0, 1]; the floor is the hold-out's. A copy has 0; also where both distances are 0. With patients, the second is
    the nearest row of another patient than the first, so that two images of one patient do not hide a copy. `details`
    has "closer_than_holdout", the probability that a generated row's ratio is below a hold-out row's.
    """
    trio = prepare_membership_sets(train, holdout, generated, options)
    generated_ratios, holdout_ratios = (_distance_ratios(part, trio) for part in (trio.generated, trio.holdout))
    return trio.value(
        "nndr",
        float(np.median(generated_ratios)),
        floor=float(np.median(holdout_ratios)),
        floor_n=len(holdout_ratios),
        details={"closer_than_holdout": closer(generated_ratios, holdout_ratios)},
        **_median_interval(generated_ratios, trio),
    )


def closest_pairs(
    train: npt.ArrayLike,
    holdout: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    count: int = 12,
    **options: Unpack[ScreenOptions],
) -> list[Pair]:
    """Returns generated rows nearest to training, with those rows."""
    trio = prepare_membership_sets(train, holdout, generated, options)
    nearest = near(trio.generated, trio.train, 1)
    generated_distances = trio.length(nearest.squares[:, 0])
    holdout_distances = np.sort(trio.length(near(trio.holdout, trio.train, 1).squares[:, 0]))
    return [
        Pair(
            int(row),
            int(nearest.places[row, 0]),
            float(generated_distances[row]),
            float(np.searchsorted(holdout_distances, generated_distances[row], side="right")) / len(holdout_distances),
        )
        for row in np.argsort(generated_distances, kind="stable")[:count]
    ]


def closer(made: Floats, other: Floats) -> float:
    """Returns P(`made` < `other`), ties half."""
    ordered = np.sort(other)
    above = len(other) - np.searchsorted(ordered, made, "left").astype(float)
    strictly = len(other) - np.searchsorted(ordered, made, "right").astype(float)
    return float((above + strictly).sum() / (2 * len(made) * len(other)))


def _distance_ratios(queries: FeatureSet, trio: MembershipSets) -> Floats:
    if trio.patients is None:
        first, second = near(queries, trio.train, 2).squares.T
    else:
        nearest_one = near(queries, trio.train, 1)
        first = nearest_one.squares[:, 0]
        groups = (trio.patients[nearest_one.places[:, 0]], trio.patients)
        second = near(queries, trio.train, 1, groups=groups).squares[:, 0]
    ratios: Floats = np.sqrt(np.divide(first, second, out=np.zeros_like(first), where=second > 0))
    return ratios


def _by_patient(trio: MembershipSets) -> dict[str, float]:
    if trio.patients is None or trio.prompt_patients is None:
        return {}
    groups = (trio.prompt_patients, trio.patients)
    other_distances = trio.length(near(trio.generated, trio.train, 1, groups=groups).squares[:, 0])
    medians = {"other_patients": float(np.median(other_distances))}
    own = []
    for patient in np.intersect1d(*groups):
        generated_rows, real = (np.flatnonzero(group == patient) for group in groups)
        gaps = trio.generated.rows[generated_rows, None].astype(np.float64) - trio.train.rows[real]
        own.append(np.linalg.norm(gaps, axis=2).min(axis=1))
    if own:
        medians["same_patient"] = float(np.median(np.concatenate(own)))
    return medians


def _median_interval(values: Floats, trio: MembershipSets) -> dict[str, Any]:
    if not trio.options["interval"]:
        return {}
    rng = np.random.default_rng(trio.options["seed"])
    groups = np.arange(len(values)) if trio.prompts is None else trio.prompts
    many = int(groups.max()) + 1
    medians = np.empty(DRAWS)
    for at in range(DRAWS):
        times = np.bincount(rng.integers(many, size=many), minlength=many)[groups]
        drawn = np.repeat(values, times)
        medians[at] = np.median(drawn) if drawn.size else math.nan
    low, high = np.nanpercentile(medians, (2.5, 97.5))
    how = "bootstrap over generated rows; training rows held fixed"
    return {"low": float(low), "high": float(high), "standard_error": float(np.nanstd(medians)), "interval": how}

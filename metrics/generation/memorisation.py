"""Screens for copies of training images, as tasks name them: `dcr@rad_dino` is one of RAD-DINO's features.

What they compute lies in `medimg_eval.metrics.privacy`. A screen finds what its features see; it proves no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics import privacy
from medimg_eval.metrics.fidelity import normal_interval
from medimg_eval.metrics.generation.image_sets import NAN, ImageSets, interval_of_mean, set_metric
from medimg_eval.metrics.privacy import SetValue
from medimg_eval.metrics.proportions import exact_interval

Rows: TypeAlias = npt.NDArray[Any]
Pairs: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
Compare: TypeAlias = Callable[[Rows, Rows], npt.NDArray[np.float64]]

REID_FPR = 0.01
"""The share of real pairs of different patients that may pass for one."""

PAIRS = 100_000
"""Real pairs that the threshold rests on, at most."""

SCORES = 1 << 22
"""Features that are compared at once."""

_screen = partial(set_metric, group="privacy", needs=("train", "holdout"), by_parts=False)
_share = partial(_screen, higher_is_better=False, best=0, worst=1)


@_screen(title="DCR", higher_is_better=True, best=float("inf"), worst=0, source="Lautrup et al. 2024 (SynthEval)")
def dcr(sets: ImageSets) -> SetValue:
    """The median distance of a generated image to the closest training image (distance to closest record)."""
    return _closest_records(sets)


@_share(title="Near copies", source="this package")
def near_copies(sets: ImageSets) -> SetValue:
    """The share of generated images nearer to a training image than 99 % of the hold-out images are.

    The floor, 0.01, is what pictures of new patients have.
    """
    records = _closest_records(sets)
    share = records.details["below_holdout_p1"]
    low, high = exact_interval(round(share * records.n_generated), records.n_generated)
    how = "Clopper and Pearson, over generated images as if independent; the hold-out's percentile is held fixed"
    return replace(
        records, metric="near_copies", value=share, floor=0.01, low=low, high=high, interval=how, standard_error=NAN
    )


@_share(title="Transformed copies", source="this package", ability="pixels")
def transformed_copies(sets: ImageSets) -> SetValue:
    """The share of generated images that are training images flipped, moved, cropped, turned or recoloured."""
    return privacy.transformed_copies(*sets.trio, **sets.screened)


@_share(title="DCR share", source="SDMetrics, DCROverfittingProtection")
def dcr_share(sets: ImageSets) -> SetValue:
    """The share of generated images that are nearer to a training image than to any hold-out image; ties count half."""
    return privacy.dcr_share(*sets.trio, **sets.screened)


@_screen(title="NNDR", higher_is_better=True, best=1, worst=0, source="Lautrup et al. 2024 (SynthEval)")
def nndr(sets: ImageSets) -> SetValue:
    """The median ratio of a generated image's distances to the nearest and to the second nearest training image."""
    return privacy.nndr(*sets.trio, **sets.screened)


@_share(title="Privacy loss (NNAA)", source="Yale et al. 2020, Neurocomputing")
def privacy_loss(sets: ImageSets) -> SetValue:
    """How much better a nearest neighbour tells generated from hold-out images than from training images."""
    accuracy = privacy.nnaa(*sets.trio, **sets.screened)
    value, error = accuracy.details["privacy_loss"], accuracy.details["privacy_loss_error"]
    how = "normal, over rows of all three sets; neighbours held fixed"
    return replace(
        accuracy, metric="privacy_loss", value=value, floor=NAN, floor_n=0, **normal_interval(value, error**2, how)
    )


@_share(title="Memorised", source="Dar et al. 2025, Nature Biomedical Engineering")
def memorised_fraction(sets: ImageSets) -> SetValue:
    """The share of training images to which a generated one is nearer than training images nearly ever are."""
    return privacy.memorised_fraction(*sets.trio, **sets.screened)


@_screen(title="Authenticity", higher_is_better=True, best=1, worst=0, source="Alaa et al. 2022, ICML")
def authenticity(sets: ImageSets) -> SetValue:
    """The share of generated images further from their nearest training image than that is from its own nearest."""
    return privacy.authenticity(*sets.trio, **sets.screened)


@_screen(
    title="Data copying (C_T)", higher_is_better=True, best=0, worst=float("-inf"), source="Meehan et al. 2020, AISTATS"
)
def copying_test(sets: ImageSets) -> SetValue:
    """The z score by which generated images are nearer to training than hold-out images are, as a mean over cells.

    Below -3 is copying. It grows with the number of images where anything is copied.
    """
    return privacy.copying_test(*sets.trio, **sets.screened)


def _closest_records(sets: ImageSets) -> SetValue:
    return sets.once("dcr", lambda: privacy.dcr(*sets.trio, **sets.screened))


@_share(title="Re-identified", source="Packhäuser et al. 2022, Scientific Reports", ability="identity")
def reid_rate(sets: ImageSets) -> SetValue:
    """The share of generated images whose best match in training passes for the same patient.

    The threshold is what 1 % of pairs of real images of different patients pass, by the scores of the extractor. The
    floor is that of hold-out images, of which more than 1 % pass by chance, as each has many images to match. `details`
    has "tpr", the share of true pairs that pass: a network that finds few of those cannot clear a generator.
    """
    compare = sets.compare
    if compare is None:
        raise ValueError("Expected an extractor that tells patients apart, got none")
    train, holdout, generated = (sets.by_name[name] for name in ("train", "holdout", "generated"))
    rows = np.concatenate([train.rows, holdout.rows])
    same_pairs, different = _patient_pairs(
        np.concatenate([train.patients, holdout.patients]), np.random.default_rng(sets.seed)
    )
    same_scores, apart = (_score_pairs(compare, rows[first], rows[second]) for first, second in (same_pairs, different))
    best = [_best_scores(compare, part.rows, train.rows) for part in (generated, holdout)]
    rate = privacy.reid_rate(
        best[0],
        best[1],
        apart,
        same=same_scores if len(same_scores) else None,
        fpr=REID_FPR,
        prompts=generated.patients,
        extractor=sets.extractor,
    )
    return replace(rate, n_real=len(train.rows), d=train.rows.shape[1], floor_n=len(holdout.rows))


def _patient_pairs(patients: npt.NDArray[np.str_], rng: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Returns pairs of rows of same and of different patients."""
    numbers = np.unique(patients, return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    starts = np.r_[0, np.flatnonzero(np.diff(numbers[order])) + 1, len(order)]
    groups = [order[start:end] for start, end in pairwise(starts.tolist())]
    patient_pairs = [(first, second) for rows in groups for first, second in combinations(rows.tolist(), 2)]
    same_pairs = np.array(patient_pairs, dtype=np.intp).reshape(-1, 2)
    if len(same_pairs) > PAIRS:
        same_pairs = same_pairs[rng.permutation(len(same_pairs))[:PAIRS]]
    drawn = rng.integers(0, len(numbers), (PAIRS, 2))
    if len(numbers) ** 2 <= PAIRS:
        drawn = np.argwhere(np.triu(np.ones((len(numbers),) * 2, dtype=bool), 1))
    apart = drawn[numbers[drawn[:, 0]] != numbers[drawn[:, 1]]]
    return (same_pairs[:, 0], same_pairs[:, 1]), (apart[:, 0], apart[:, 1])


def _score_pairs(compare: Compare, one: Rows, other: Rows) -> npt.NDArray[np.float64]:
    """Returns the scores of pairs of rows, (pair,)."""
    step = max(1, SCORES // one.shape[1])
    scores = [compare(one[at : at + step], other[at : at + step]) for at in range(0, len(one), step)]
    return np.concatenate([np.empty(0), *scores])


def _best_scores(compare: Compare, rows: Rows, train: Rows) -> npt.NDArray[np.float64]:
    """Returns of each row its highest score against training, (row,)."""
    step = max(1, SCORES // max(1, train.size))
    scores = [compare(rows[at : at + step, None], train[None]).max(axis=1) for at in range(0, len(rows), step)]
    return np.concatenate(scores)


@set_metric(
    title="Own image",
    higher_is_better=True,
    best=float("inf"),
    worst=0,
    source="CheXGenBench",
    group="privacy",
    by_parts=False,
)
def paired_feature_distance(sets: ImageSets) -> SetValue:
    """The distance of pictures to the real image that their prompt was written of, over the root of d, its mean.

    `details` has "least", the mean over prompts of the least distance. A copy of another patient is not seen by it.
    """
    generated, reference = sets.by_name["generated"], sets.by_name["reference"]
    row_of = {case: at for at, case in enumerate(reference.cases.tolist())}
    pairs = np.array(
        [(at, row_of[case]) for at, case in enumerate(generated.cases.tolist()) if case in row_of], dtype=np.intp
    ).reshape(-1, 2)
    if not len(pairs):
        raise ValueError("Expected prompts of images of the reference set, got none")
    gaps = generated.rows[pairs[:, 0]].astype(np.float64) - reference.rows[pairs[:, 1]]
    distances = np.linalg.norm(gaps, axis=1) / np.sqrt(gaps.shape[1])
    owners = np.unique(generated.cases[pairs[:, 0]], return_inverse=True)[1]
    least = np.full(int(owners.max()) + 1, np.inf)
    np.minimum.at(least, owners, distances)
    groups = np.unique(generated.patients[pairs[:, 0]], return_inverse=True)[1]
    value = float(distances.mean())
    return SetValue(
        "paired_feature_distance",
        value,
        n_real=len(least),
        n_generated=len(pairs),
        d=gaps.shape[1],
        extractor=sets.extractor,
        details={"least": float(least.mean())},
        **interval_of_mean(distances, groups, "normal, over prompts' patients"),
    )

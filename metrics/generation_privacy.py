"""Screens for copies of training images, as tasks name them: `dcr@rad_dino` is one of RAD-DINO's features.

What they compute lies in `medimg_eval.metrics.privacy`. A screen finds what its features see; it proves no privacy.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from medimg_eval.metrics import privacy
from medimg_eval.metrics._exact import exact_interval
from medimg_eval.metrics._generation import NAN, ImageSets, interval_of_mean, set_metric
from medimg_eval.metrics.privacy import SetValue

_screen = partial(set_metric, group="privacy", needs=("train", "holdout"), by_parts=False)


@_screen(
    title="DCR",
    higher_is_better=True,
    best=float("inf"),
    worst=0,
    source="Lautrup et al. 2024 (SynthEval)",
)
def dcr(sets: ImageSets) -> SetValue:
    """The median distance of a generated image to the closest training image (distance to closest record)."""
    return _records(sets)


@_screen(
    title="Near copies",
    higher_is_better=False,
    best=0,
    worst=1,
    source="this package",
)
def near_copies(sets: ImageSets) -> SetValue:
    """The share of generated images nearer to a training image than 99 % of the hold-out images are.

    The floor, 0.01, is what pictures of new patients have.
    """
    found = _records(sets)
    share = found.details["below_holdout_p1"]
    low, high = exact_interval(round(share * found.n_generated), found.n_generated)
    how = "Clopper and Pearson, over generated images as if independent; the hold-out's percentile is held fixed"
    return replace(
        found, metric="near_copies", value=share, floor=0.01, low=low, high=high, interval=how, standard_error=NAN
    )


@_screen(
    title="DCR share",
    higher_is_better=False,
    best=0,
    worst=1,
    source="SDMetrics, DCROverfittingProtection",
)
def dcr_share(sets: ImageSets) -> SetValue:
    """The share of generated images that are nearer to a training image than to any hold-out image; ties count half."""
    return privacy.dcr_share(*sets.trio, **sets.screened)


@_screen(
    title="NNDR",
    higher_is_better=True,
    best=1,
    worst=0,
    source="Lautrup et al. 2024 (SynthEval)",
)
def nndr(sets: ImageSets) -> SetValue:
    """The median ratio of a generated image's distances to the nearest and to the second nearest training image."""
    return privacy.nndr(*sets.trio, **sets.screened)


@_screen(
    title="Privacy loss (NNAA)",
    higher_is_better=False,
    best=0,
    worst=1,
    source="Yale et al. 2020, Neurocomputing",
)
def privacy_loss(sets: ImageSets) -> SetValue:
    """How much better a nearest neighbour tells generated from hold-out images than from training images."""
    found = privacy.nnaa(*sets.trio, **sets.screened)
    return replace(
        found,
        metric="privacy_loss",
        value=found.details["privacy_loss"],
        floor=NAN,
        floor_n=0,
        low=NAN,
        high=NAN,
        standard_error=NAN,
        interval="",
    )


@_screen(
    title="Memorised",
    higher_is_better=False,
    best=0,
    worst=1,
    source="Dar et al. 2025, Nature Biomedical Engineering",
)
def memorised_fraction(sets: ImageSets) -> SetValue:
    """The share of training images to which a generated one is nearer than training images nearly ever are."""
    return privacy.memorised_fraction(*sets.trio, **sets.screened)


@_screen(
    title="Authenticity",
    higher_is_better=True,
    best=1,
    worst=0,
    source="Alaa et al. 2022, ICML",
)
def authenticity(sets: ImageSets) -> SetValue:
    """The share of generated images further from their nearest training image than that is from its own nearest."""
    return privacy.authenticity(*sets.trio, **sets.screened)


def _records(sets: ImageSets) -> SetValue:
    return sets.once("dcr", lambda: privacy.dcr(*sets.trio, **sets.screened))


@set_metric(
    title="Own image",
    higher_is_better=True,
    best=float("inf"),
    worst=0,
    source="CheXGenBench",
    group="privacy",
    by_parts=False,
)
def own_distance(sets: ImageSets) -> SetValue:
    """The distance of pictures to the real image that their prompt was written of, over the root of d, its mean.

    `details` has "least", the mean over prompts of the least distance. A copy of another patient is not seen by it.
    """
    generated, reference = sets.by_name["generated"], sets.by_name["reference"]
    place = {case: at for at, case in enumerate(reference.cases.tolist())}
    pairs = np.array(
        [(at, place[case]) for at, case in enumerate(generated.cases.tolist()) if case in place], dtype=np.intp
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
        "own_distance",
        value,
        n_real=len(least),
        n_generated=len(pairs),
        d=gaps.shape[1],
        extractor=sets.extractor,
        details={"least": float(least.mean())},
        **interval_of_mean(distances, groups, "normal, over prompts' patients"),
    )

"""Metrics of pictures that were made, as tasks name them: `frechet_distance@rad_dino` is one of RAD-DINO's features.

What they compute lies in `medimg_eval.metrics.fidelity`, for arrays of features; here they are given the sets of a run,
and told to tables. Those of privacy are in `medimg_eval.metrics.generation.memorisation`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics import fidelity
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.metrics.generation.image_sets import (
    NAN,
    ONE_PICTURE,
    ImageSets,
    OnePrompt,
    SetMetric,
    interval_of_mean,
    set_metric,
)
from medimg_eval.metrics.registry import metric

_of_prompt = partial(metric, kind=ONE_PICTURE, higher_is_better=True, best=255, worst=0)
_distance = partial(set_metric, higher_is_better=False, best=0, worst=float("inf"))
_neighbourly = partial(set_metric, higher_is_better=True, best=1, worst=0, source="Naeem et al. 2020, ICML")


@metric(kind=ONE_PICTURE, title="Unmade", higher_is_better=False, best=0, worst=1, source="this package")
def generation_failure_rate(one: OnePrompt) -> float:
    """The share of the pictures asked for that were not made."""
    return 1 - one.count / one.wanted


@_of_prompt(title="Pixel distance", source="this package")
def pixel_distance(one: OnePrompt) -> float:
    """The root mean squared difference in grey levels between pictures and the real image of their prompt, their mean.

    Both are brought to 512 x 512. CheXGenBench's, computed with signs: see `pixel_distance_chexgenbench`.
    """
    return float(np.mean(_picture_differences(one)))


@_of_prompt(title="Pixel distance, least", source="this package")
def pixel_distance_min(one: OnePrompt) -> float:
    """The least root mean squared difference in grey levels between a prompt's pictures and its real image."""
    return float(np.min(_picture_differences(one)))


@metric(
    kind=ONE_PICTURE,
    title="MS-SSIM within a prompt",
    higher_is_better=False,
    best=float("nan"),
    worst=float("nan"),
    source="Odena et al. 2017, ICML",
)
def intra_prompt_ms_ssim(one: OnePrompt) -> float:
    """The mean multi-scale structural similarity of each two pictures of a prompt.

    Near 1 a generator makes one picture of a prompt, whatever the seed. Both are brought to 512 x 512, grey; NaN of a
    prompt with one picture. Real images of one prompt, where there are several, say how low it should be.
    """
    if one.count < 2:
        return NAN
    grey = np.stack([picture.mean(axis=2, dtype=np.float64) for picture in one.pictures()])
    similarity = fidelity.intra_prompt_ms_ssim(grey, np.zeros(len(grey)), data_range=255.0, interval=False)
    return similarity.value


@_of_prompt(title="Pixel distance, published", source="CheXGenBench, its code of 2025")
def pixel_distance_chexgenbench(one: OnePrompt) -> float:
    """The pixel distance as CheXGenBench's code has it: differences modulo 256, and of the last picture alone.

    A copy that is one grey level brighter or darker in places is as far away by it as another patient. It is there to
    compare with what was published, and for nothing else.
    """
    own = one.own()
    if own is None:
        return NAN
    wrapped = (own - one.pictures()[-1]).astype(np.float64)
    return float(np.sqrt(np.mean(wrapped**2)))


def _picture_differences(one: OnePrompt) -> list[float]:
    own = one.own()
    if own is None:
        return [NAN]
    real = own.astype(np.float64)
    return [float(np.sqrt(np.mean((picture - real) ** 2))) for picture in one.pictures()]


@_distance(title="Fréchet distance", source="Heusel et al. 2017, NeurIPS")
def frechet_distance(sets: ImageSets) -> SetValue:
    """The squared Fréchet distance |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^1/2) of two sets, as normal distributions."""
    return fidelity.frechet_distance(*sets.pair, **sets.options)


@_distance(title="Fréchet distance, n to infinity", source="Chong and Forsyth 2020, CVPR")
def frechet_distance_inf(sets: ImageSets) -> SetValue:
    """The Fréchet distance extrapolated to infinite n: the intercept of a line through its values against 1 / n."""
    return fidelity.frechet_distance_inf(*sets.pair, **sets.options)


@_distance(title="Kernel distance", source="Binkowski et al. 2018, ICLR")
def kernel_distance(sets: ImageSets) -> SetValue:
    """The unbiased squared maximum mean discrepancy of two sets with the kernel (x'y / d + 1)^3, over all pairs."""
    return fidelity.kernel_distance(*sets.pair, **sets.options)


@_neighbourly(title="Precision")
def improved_precision(sets: ImageSets) -> SetValue:
    """The share of generated images within the neighbourhood of a real one, k = 5."""
    return _prdc_values(sets).precision


@_neighbourly(title="Recall")
def improved_recall(sets: ImageSets) -> SetValue:
    """The share of real images within the neighbourhood of a generated one, k = 5."""
    return _prdc_values(sets).recall


@_neighbourly(title="Density")
def density(sets: ImageSets) -> SetValue:
    """The mean number of neighbourhoods of real images that a generated one lies in, over k = 5."""
    return _prdc_values(sets).density


@_neighbourly(title="Coverage")
def coverage(sets: ImageSets) -> SetValue:
    """The share of real images whose neighbourhood holds a generated one, k = 5."""
    return _prdc_values(sets).coverage


def _prdc_values(sets: ImageSets) -> fidelity.PRDC:
    return sets.once("prdc", lambda: fidelity.precision_recall_density_coverage(*sets.pair, **sets.options))


def _declare_uncut(cut: SetMetric, place: int, title: str) -> None:
    """Declares the variant of a metric that keeps unequal sets."""

    def uncut(sets: ImageSets) -> SetValue:
        judge = partial(fidelity.precision_recall_density_coverage, *sets.pair, cut=False, **sets.options)
        return sets.once("prdc uncut", judge)[place]

    first = (cut.__doc__ or "").split("\n\n")[0].rstrip(".")
    uncut.__doc__ = (
        f"{first}, at the sizes that the sets have.\n\nAs the package prdc has it. Where sizes differ it depends on "
        f"both, so that no other sizes compare with it: `{cut.__name__}` cuts the larger set."
    )
    uncut.__name__ = uncut.__qualname__ = f"{cut.__name__}_uncut"
    _neighbourly(title=f"{title} (uncut)")(uncut)


for _place, (_cut, _title) in enumerate(
    ((improved_precision, "Precision"), (improved_recall, "Recall"), (density, "Density"), (coverage, "Coverage"))
):
    _declare_uncut(_cut, _place, _title)


@set_metric(
    title="Image-text alignment",
    higher_is_better=True,
    best=1,
    worst=-1,
    source="Radford et al. 2021, ICML; Hessel et al. 2021, EMNLP",
    ability="texts",
)
def alignment_score(sets: ImageSets) -> SetValue:
    """The mean cosine of a picture's features and those of its prompt.

    The floor is that of the real images whose prompts were used. `details` has "shuffled", the mean with prompts of
    other cases, and "auc", the probability that a picture is more alike its own prompt than that of another case, ties
    halved: 0.5 is a model that does not heed its prompts, whatever the mean.
    """
    generated, reference = sets.by_name["generated"], sets.by_name["reference"]
    if sets.texts is None:
        raise ValueError("Expected features of the prompts, got none")
    texts = sets.texts
    own = _pair_cosines(generated.rows, texts)
    permuted = np.random.default_rng(sets.seed).permutation(len(own))
    apart = generated.cases != generated.cases[permuted]
    shuffled = _pair_cosines(generated.rows, texts[permuted])[apart]
    details = {} if not apart.any() else {"shuffled": float(shuffled.mean()), "auc": _share_above(own, shuffled)}
    row_of = {case: at for at, case in enumerate(generated.cases.tolist())}
    real = [(row, row_of[case]) for row, case in enumerate(reference.cases.tolist()) if case in row_of]
    floor = float("nan")
    if real:
        floor = float(np.mean(_pair_cosines(reference.rows[[r for r, _ in real]], texts[[at for _, at in real]])))
    groups = np.unique(generated.patients, return_inverse=True)[1]
    return SetValue(
        "alignment_score",
        float(own.mean()),
        n_real=len(real),
        n_generated=len(own),
        d=texts.shape[1],
        floor=floor,
        floor_n=len(real),
        extractor=sets.extractor,
        details=details,
        **interval_of_mean(own, groups, "normal, over prompts' patients"),
    )


@set_metric(
    title="Diversity (Vendi)", higher_is_better=True, best=float("inf"), worst=1, source="Friedman and Dieng 2023, TMLR"
)
def vendi_score(sets: ImageSets) -> SetValue:
    """The effective number of different images among the generated: exp of the entropy of their cosines' eigenvalues.

    The floor is that of as many real images.
    """
    diversity = fidelity.vendi_score(*sets.pair, **sets.options)
    return replace(diversity, floor=diversity.details["real"], floor_n=min(diversity.n_real, diversity.n_generated))


def _pair_cosines(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    first, second = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: npt.NDArray[np.float64] = (first * second).sum(axis=1) / np.where(lengths > 0, lengths, 1)
    return cosines


def _share_above(own: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    ordered = np.sort(other)
    below = np.searchsorted(ordered, own, "left") + np.searchsorted(ordered, own, "right")
    return float(below.sum() / (2 * len(own) * len(other)))


@_distance(title="Kernel distance, subsets", source="torch-fidelity's choices")
def kernel_distance_subsets(sets: ImageSets) -> SetValue:
    """The kernel distance as the mean over 100 random subsets of at most 1,000 images, as most tools print it."""
    return fidelity.kernel_distance_subsets(*sets.pair, **sets.options)


@_distance(title="Kernel distance, published", source="torchmetrics with one subset, as CheXGenBench has it")
def kernel_distance_all_pairs(sets: ImageSets) -> SetValue:
    """The kernel distance over all pairs of images, those of one patient among them, without an interval.

    `kernel_distance` leaves such pairs out, which are nearer to each other than draws are. It is there to compare with
    what was published.
    """
    return fidelity.kernel_distance(*sets.pair, interval=False, **sets.options | {"patients": None, "prompts": None})


@_distance(title="CMMD", source="Jayasumana et al. 2024, CVPR")
def cmmd(sets: ImageSets) -> SetValue:
    """The unbiased squared discrepancy of vectors of length 1 with a Gaussian kernel of width 10, times 1,000."""
    return fidelity.cmmd(*sets.pair, **sets.options)


@_distance(title="Fréchet distance, radiomics", source="Konz et al. 2024 (FRD)")
def radiomics_frechet_distance(sets: ImageSets) -> SetValue:
    """The squared Fréchet distance of tables of radiomics features, in standard deviations of the real set's.

    FRD is a logarithm of it. Features that are not finite, or constant in the real set, are left out, with a flag.
    """
    return fidelity.radiomics_frechet_distance(*sets.pair, names=sets.names or None, **sets.options)

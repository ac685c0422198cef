"""How varied a set is, and the Fréchet distance of tables of radiomics features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.fidelity.feature_sets import (
    PRODUCT,
    Options,
    SetError,
    SetValue,
    one_set,
    prepare,
    same_size,
    strips,
)
from medimg_eval.metrics.fidelity.frechet import frechet_distance
from medimg_eval.metrics.fidelity.intervals import NORMAL_95, normal_interval, variance_of_mean


def vendi_score(
    real: npt.ArrayLike, generated: npt.ArrayLike, *, order: float = 1.0, **options: Unpack[Options]
) -> SetValue:
    """The effective number of different rows: the exponential of the entropy of the eigenvalues of K / n.

    K holds the cosines of the generated rows. Vendi score, Friedman and Dieng 2023; its order q, above 0, is that of
    Rényi's entropy: 1 is Shannon's, infinity looks at the largest eigenvalue only. The larger set is cut down to the
    size of the smaller. In [1, min(n, d)], 1 where all rows point the same way. It grows with n, so that it stands
    beside the same of as many real rows: `details` has "real". The option `floor` changes nothing.

    The interval is that of its expectation **at this n**, from the influence of each row on the entropy. Where nearly
    every row points its own way (the value is above half of n), rows move it by less than what is left out, and there
    is none: the flag `no_interval` says so.

    Raises:
        SetError: A row is zero, the order is not above 0; see also `prepare`.
    """
    if not order > 0:
        raise SetError(f"Expected the order of an entropy to be above 0, got {order}")
    sets = same_size(prepare(real, generated, options))
    (entropy, influences), (other_entropy, _) = (
        _kernel_entropy(rows, order, name) for rows, name in ((sets.generated, "generated"), (sets.real, "real"))
    )
    name = "vendi_score" if order == 1 else f"vendi_score, q={order:g}"
    extra: dict[str, Any] = {}
    value, n = math.exp(entropy), len(sets.generated)
    if sets.options["interval"] and value <= n / 2:
        error = math.sqrt(variance_of_mean(influences, sets.prompts))
        extra = {
            "standard_error": value * error,
            "low": math.exp(entropy - NORMAL_95 * error),
            "high": math.exp(entropy + NORMAL_95 * error),
            "interval": "normal, of the entropy by the influence of each row; of the expectation at this n",
        }
    elif sets.options["interval"]:
        extra = {"flags": (f"no_interval: of {n} rows {value:.0f} count as different, too many to tell their spread",)}
    return sets.value(name, value, depends_on_n=True, details={"real": math.exp(other_entropy)}, **extra)


def _kernel_entropy(rows: Array, order: float, name: str) -> tuple[float, Floats]:
    """Returns Rényi's eigenvalue entropy and n times rows' influences."""
    n, d = rows.shape
    lengths = np.concatenate([np.linalg.norm(rows[part].astype(np.float64), axis=1) for part in strips(rows)])
    if not lengths.all():
        raise SetError(f"Row {int(np.argmin(lengths))} of the {name} set is zero, which has no direction")
    if n <= d:
        unit = rows / lengths[:, None]
        products = unit @ unit.T
    else:
        products = np.zeros((d, d))
        for part in strips(rows, PRODUCT):
            unit = rows[part] / lengths[part, None]
            products += unit.T @ unit
    shares, vectors = np.linalg.eigh(products)
    shares, vectors = shares[shares > 0] / n, vectors[:, shares > 0]
    entropy, slopes = _share_entropy(shares, order)
    if n <= d:
        # Projections of rows on the eigenvectors of the features are those of K, by the root of the eigenvalue.
        squares = vectors**2 * (shares * n)
        return entropy, squares @ slopes
    influences = [((rows[part] / lengths[part, None]) @ vectors) ** 2 @ slopes for part in strips(rows, PRODUCT)]
    return entropy, np.concatenate(influences)


def _share_entropy(shares: Floats, order: float) -> tuple[float, Floats]:
    """Returns Rényi's entropy of shares and its gradient."""
    if order == 1:
        return -float((shares * np.log(shares)).sum()), -np.log(shares)
    if math.isinf(order):
        return -math.log(float(shares.max())), np.where(shares == shares.max(), -1 / shares, 0.0)
    total = float((shares**order).sum())
    return math.log(total) / (1 - order), order / (1 - order) * shares ** (order - 1) / total


def intra_prompt_ms_ssim(
    images: npt.ArrayLike, prompts: npt.ArrayLike, *, data_range: float, interval: bool = True
) -> SetValue:
    """The mean multi-scale structural similarity of images that were generated from the same prompt, over prompts.

    Images are grey, (m, row, column), at least 176 pixels each way, with one of `prompts` each; prompts with one image
    are left out, with a flag. Each prompt counts once, with the mean over its pairs of images. In [0, 1]; near 1 a
    generator gives one image per prompt. `details` has "prompts", how many there are; `d` is the number of pixels. The
    data range is the largest possible value less the smallest.

    Raises:
        SetError: Images are no stack, there is not one prompt per image, or no prompt has two.
        ValueError: As `metrics.reconstruction.ms_ssim`.
    """
    from medimg_eval.metrics.reconstruction import ms_ssim

    stack, labels = np.asarray(images), np.asarray(prompts)
    if stack.ndim != 3 or labels.shape != stack.shape[:1]:
        raise SetError(f"Expected images (m, row, column) and one prompt each, got {stack.shape} and {labels.shape}")
    means, alone = [], 0
    for prompt in np.unique(labels):
        chosen = np.flatnonzero(labels == prompt)
        if len(chosen) < 2:
            alone += 1
            continue
        pairs = combinations(chosen, 2)
        means.append(np.mean([ms_ssim(stack[first], stack[second], data_range=data_range) for first, second in pairs]))
    if not means:
        raise SetError(f"Expected at least one prompt with two images, got {alone} prompts with one")
    similarities = np.array(means, dtype=np.float64)
    extra = (
        normal_interval(float(similarities.mean()), variance_of_mean(similarities), "normal, over prompts")
        if interval
        else {}
    )
    return SetValue(
        "intra_prompt_ms_ssim",
        float(similarities.mean()),
        0,
        len(stack),
        stack[0].size,
        flags=(f"left_out: {alone} prompts have one image",) * bool(alone),
        details={"prompts": float(len(similarities))},
        **extra,
    )


def radiomics_frechet_distance(
    real: npt.ArrayLike,
    generated: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    log_form: Literal["none", "d2", "d"] = "none",
    **options: Unpack[Options],
) -> SetValue:
    """The squared Fréchet distance of two tables of radiomics features, in standard deviations of the real set.

    Features that are not finite in a row, or constant in the real set, are left out and listed by their `names` in a
    flag; rows never are. FRD (Konz et al. 2024) is its logarithm in one of two forms: `log_form` "d2" logs d squared,
    as their code does, and "d" is half of that, as in their article. Floor and interval are in the form that was asked
    for.

    Raises:
        SetError: No feature is left, names do not fit, there is no such form; see also `prepare`.
    """
    if log_form not in ("none", "d2", "d"):
        raise SetError(f"Expected `log_form` to be 'none', 'd2' or 'd', got {log_form!r}")
    real_table, generated_table = (np.asarray(table, dtype=np.float64) for table in (real, generated))
    if (
        real_table.ndim != 2
        or generated_table.ndim != 2
        or real_table.shape[1] != generated_table.shape[1]
        or not real_table.size
    ):
        raise SetError(
            f"Expected two tables with the same features, got {real_table.shape} and {generated_table.shape}"
        )
    titles = [str(at) for at in range(real_table.shape[1])] if names is None else list(names)
    if len(titles) != real_table.shape[1]:
        raise SetError(f"Expected {real_table.shape[1]} names of features, got {len(titles)}")
    finite = np.asarray(np.isfinite(real_table).all(axis=0) & np.isfinite(generated_table).all(axis=0))
    varies = np.asarray((real_table != real_table[0]).any(axis=0))
    keep = finite & varies
    flags = tuple(
        f"dropped_features: {len(names_left)} of {len(titles)} {why}: {', '.join(names_left)}"
        for names_left, why in (
            ([name for name, fine in zip(titles, finite, strict=True) if not fine], "are not finite"),
            ([titles[at] for at in np.flatnonzero(finite & ~keep)], "are constant in the real set"),
        )
        if names_left
    )
    if not keep.any():
        raise SetError(f"None of {len(titles)} features is finite in all rows and varies in the real set")
    mean, spread = real_table[:, keep].mean(axis=0), real_table[:, keep].std(axis=0, ddof=1)
    settings = dict(options)
    if settings.get("holdout") is not None:
        spare = one_set(settings["holdout"], "hold-out", drop=True)[0]  # type: ignore[arg-type]
        settings["holdout"] = (spare[:, keep] - mean) / spread
    distance = frechet_distance(
        (real_table[:, keep] - mean) / spread,
        (generated_table[:, keep] - mean) / spread,
        **settings,  # type: ignore[arg-type]
    )
    title = "radiomics_frechet_distance" + ("" if log_form == "none" else f", log {log_form}")
    distance = replace(distance, metric=title, flags=(*distance.flags, *flags))
    return distance if log_form == "none" else _take_logarithm(distance, 0.5 if log_form == "d" else 1.0)


def _take_logarithm(found: SetValue, factor: float) -> SetValue:
    def log(value: float) -> float:
        return factor * math.log(value) if value > 0 else (-math.inf if value <= 0 else math.nan)

    error = factor * found.standard_error / found.value if found.value > 0 else math.nan
    return replace(
        found,
        value=log(found.value),
        low=log(found.low),
        high=log(found.high),
        floor=log(found.floor),
        standard_error=error,
        details={},
    )

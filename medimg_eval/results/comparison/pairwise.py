"""Tests of two models on what both were judged on, for every pair of models or against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.comparison.summaries import Together
from medimg_eval.results.statistics import (
    FEWEST,
    LEAST_P,
    MOST_RESAMPLES,
    NO_EFFECTS,
    Areas,
    Effects,
    Estimate,
    Sides,
    benjamini_hochberg,
    correlated_areas,
    detectable_difference,
    detectable_of_error,
    holm,
    many_effects,
    mcnemar,
    of_random,
    settled,
    sign_flip,
    signed_rank,
)
from medimg_eval.results.table import check_numbers

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from medimg_eval.results.comparison.fields import Field

Test = Literal["wilcoxon", "permutation", "mcnemar", "delong", "bootstrap"]
Correction = Literal["holm", "bh"]
LEVEL = 0.95
"""Of the intervals of differences and of sizes of effects."""


@dataclass(frozen=True)
class CompareSettings:
    """How models are compared.

    Attributes:
        test: A test, or "auto": McNemar's for values that are right or wrong, DeLong's for areas under ROC curves,
            permutation for other summaries and where patients have several cases, and Wilcoxon's for the rest.
        correction: For the number of tests: "holm", or "bh" for the rate of false discoveries.
        alpha: The corrected p-value below which a difference counts as significant.
        margin: How much worse a model may be to count as no worse, in the metric's unit; None asks no such question.
        resamples: Random patterns of a permutation test, and resamples of intervals.
        seed: Of both.
    """

    test: Test | Literal["auto"] = "auto"
    correction: Correction | None = None
    alpha: float = 0.05
    margin: float | None = None
    resamples: int = 10_000
    seed: int = 0

    def check(self) -> None:
        """Raises UsageError for invalid settings."""
        if not isinstance(self.alpha, int | float) or not 0 < self.alpha < 1:
            raise UsageError(f"alpha must be a number between 0 and 1, got {self.alpha!r}")
        tests = ("auto", *(test for test in get_args(Test) if test != "bootstrap"))
        UsageError.refuse_invalid("test", tests, self.test)
        if self.correction not in (None, *get_args(Correction)):
            raise UsageError(f"correction must be holm or bh, got {self.correction!r}")
        if self.margin is not None and (not isinstance(self.margin, int | float) or not 0 < self.margin < np.inf):
            raise UsageError(f"margin must be a number above 0, in the metric's unit, got {self.margin!r}")
        check_numbers(self.resamples, LEVEL, self.seed)

    def corrected(self, p: Sequence[float]) -> npt.NDArray[np.float64]:
        """Returns p-values corrected for their number."""
        return benjamini_hochberg(p) if self.correction == "bh" else holm(p)


class Pair(NamedTuple):
    """One model against another; differences are the model's value less the other's."""

    task: str
    label: str
    metric: str
    model: str
    other: str
    n: int
    """Cases that both have a value for."""
    left_out: int
    """Cases that only one has a value for."""
    zeros: int
    """Paired cases without a difference."""
    mean_difference: float
    """Of a summary the difference of its two values."""
    median_difference: float
    p: float
    corrected_p: float
    significant: bool
    test: str
    patients: int
    """Patients (or cases, where the data name none) that the test and the intervals take for independent."""
    low: float
    """Of the 95 % interval of the mean difference."""
    high: float
    d_z: float
    d_z_low: float
    d_z_high: float
    rank_biserial: float
    rank_biserial_low: float
    rank_biserial_high: float
    superiority: float
    """The share of cases in which the model is better, equal ones counted one half."""
    superiority_low: float
    superiority_high: float
    bound: float
    """The one-sided bound on how much better the model is, at 1 - alpha: negative where it may be worse."""
    non_inferior: bool | None
    """Whether it is no worse by more than the margin; None without a margin, or without a bound."""
    detectable: float
    """The smallest true difference that a two-sided test at alpha, not corrected, finds with 80 % power."""


class Outcome(NamedTuple):
    """Result of a test of two models, the first less the second."""

    p: Sides
    n: int
    left_out: int
    zeros: int
    patients: int
    median_difference: float
    effects: Effects
    detectable: float


def every_pair(field: Field, how: CompareSettings, *, sized: bool = True) -> list[Pair]:
    """Returns one-sided tests of every ordered pair of models.

    P-values are corrected over all ordered pairs. Without `sized`, sizes of effects get no intervals, which take long.

    Source: the significance maps of Touchstone (Bassi et al., NeurIPS 2024).
    """
    test = chosen_test(field, how)
    models = field.ordered(by_median=test == "wilcoxon")
    pairs = list(combinations(models, 2))
    sizes = _effect_sizes(field, pairs, how, sized=sized)
    outcomes = {pair: outcome(field, pair, test, how, sizes[pair]) for pair in pairs}
    tests = []
    for model in models:
        for second in models:
            if (model, second) in outcomes:
                tests.append(_make_pair(field, (model, second), outcomes[model, second], test, how, one_sided=True))
            elif (second, model) in outcomes:
                tests.append(
                    _make_pair(
                        field, (model, second), _reverse_outcome(outcomes[second, model]), test, how, one_sided=True
                    )
                )
    return _correct_tests(tests, how)


def against(field: Field, baseline: str, how: CompareSettings) -> list[Pair]:
    """Returns two-sided tests against one model, corrected for multiplicity."""
    test = chosen_test(field, how)
    rivals = [model for model in field.ordered(by_median=test == "wilcoxon") if model != baseline]
    pairs = [(model, baseline) for model in rivals]
    sizes = _effect_sizes(field, pairs, how)
    tests = [
        _make_pair(field, pair, outcome(field, pair, test, how, sizes[pair]), test, how, one_sided=False)
        for pair in pairs
    ]
    return _correct_tests(tests, how)


def chosen_test(field: Field, how: CompareSettings) -> Test:
    """Returns the test that a task or label is judged by.

    Raises:
        UsageError: If the test asked for is not one of such values.
    """
    if field.parts:
        return _chosen_for_summary(field, how)
    if how.test == "delong":
        raise UsageError(
            f"test=delong is for areas under ROC curves, and {field.column.metric} has values of cases; take "
            "test=permutation or test=wilcoxon"
        )
    binary = all(np.isin(values, (0.0, 1.0)).all() for values in field.scores.values())
    if how.test == "mcnemar" and not binary:
        raise UsageError(
            f"test=mcnemar is for values of 1 (right) or 0 (wrong), and {field.column.metric} on {field.name} has "
            "others; take test=permutation or test=wilcoxon"
        )
    if how.test != "auto":
        return how.test
    if binary:
        return "mcnemar"
    return "permutation" if field.clustered else "wilcoxon"


def _chosen_for_summary(field: Field, how: CompareSettings) -> Test:
    metric = field.column.metric
    if how.test in ("wilcoxon", "mcnemar"):
        raise UsageError(
            f"test={how.test} is for values of cases, and {metric} is one value for a whole run; take test=permutation"
        )
    if how.test != "permutation":
        if all(areas_of(field, [model]) is not None for model in field.models):
            return "delong"
        if how.test == "delong":
            raise UsageError(
                f"test=delong is for areas under ROC curves of the stored probabilities, which {metric} on "
                f"{field.name} is not the plain mean of; take test=permutation"
            )
    return "permutation" if Together(metric, list(field.parts.values())).swappable else "bootstrap"


def _effect_sizes(
    field: Field, pairs: Sequence[tuple[str, str]], how: CompareSettings, *, sized: bool = True
) -> dict[tuple[str, str], Effects]:
    """Returns effect sizes of all pairs; of summaries none."""
    effects = dict.fromkeys(pairs, NO_EFFECTS)
    by_cases: dict[bytes, list[tuple[str, str]]] = {}
    for pair in pairs if not field.parts else ():
        both = ~np.isnan(field.by_model[pair[0]]) & ~np.isnan(field.by_model[pair[1]])
        by_cases.setdefault(both.tobytes(), []).append(pair)
    for mask, members in by_cases.items():
        both = np.frombuffer(mask, dtype=bool)
        sizes = many_effects(
            np.stack([settled(field.by_model[first][both], field.by_model[two][both]) for first, two in members]),
            field.owners[both],
            resamples=how.resamples if sized else 1,
            level=LEVEL,
            one_sided=1 - how.alpha,
            seed=how.seed,
        )
        effects |= dict(zip(members, sizes, strict=True))
    return effects


def outcome(field: Field, names: tuple[str, str], test: Test, how: CompareSettings, size: Effects) -> Outcome:
    """Returns a test of two models with effect `size`."""
    first, second = names
    if test == "delong":
        return _delong_outcome(field, first, second, how)
    if field.parts:
        return _summary_outcome(field, first, second, test, how)
    first_values, two = field.by_model[first], field.by_model[second]
    both = ~np.isnan(first_values) & ~np.isnan(two)
    left_out = int((np.isnan(first_values) != np.isnan(two)).sum())
    first_values, two, owners = first_values[both], two[both], field.owners[both]
    difference = settled(first_values, two)
    if not difference.size:
        return _untested_outcome(0, left_out)
    return Outcome(
        _test_sides(first_values, two, owners, test, how),
        len(difference),
        left_out,
        int((difference == 0).sum()),
        len(np.unique(owners)),
        float(np.median(difference)),
        size,
        detectable_difference(difference, owners, alpha=how.alpha),
    )


def _test_sides(
    one: npt.NDArray[np.float64],
    two: npt.NDArray[np.float64],
    owners: npt.NDArray[np.int64],
    test: Test,
    how: CompareSettings,
) -> Sides:
    if test == "wilcoxon":
        return Sides(
            signed_rank(one, two, "greater").p,
            signed_rank(one, two, "less").p,
            signed_rank(one, two, "two-sided").p,
            exact=False,
        )
    if test == "mcnemar" and len(np.unique(owners)) == len(owners):
        return mcnemar(one, two)
    return sign_flip(settled(one, two), owners, draws=how.resamples, seed=how.seed)


def _delong_outcome(field: Field, first: str, second: str, how: CompareSettings) -> Outcome:
    areas = areas_of(field, [first, second])
    if areas is None or not areas.cases:
        return _untested_outcome(
            0, Together(field.column.metric, [field.parts[model] for model in (first, second)]).left_out
        )
    gap = areas.areas.difference(0, 1)
    return Outcome(
        gap.p,
        areas.cases,
        areas.left_out,
        0,
        areas.patients,
        np.nan,
        _of_error(gap.value, gap.error, how),
        detectable_of_error(gap.error, alpha=how.alpha),
    )


def _of_error(value: float, error: float, how: CompareSettings) -> Effects:
    """Returns a difference with normal bounds."""
    from scipy.stats import norm

    half, side = float(norm.isf((1 - LEVEL) / 2)) * error, float(norm.isf(how.alpha)) * error
    mean = Estimate(value, value - half, value + half)
    return NO_EFFECTS._replace(mean=mean, least=value - side, most=value + side)


def _summary_outcome(field: Field, first: str, second: str, test: Test, how: CompareSettings) -> Outcome:
    together = Together(field.column.metric, [field.parts[first], field.parts[second]])
    observed = float(together.worth[0] - together.worth[1])
    if np.isnan(observed) or together.patients < 2:
        return _untested_outcome(len(together.clusters), together.left_out)
    ours, theirs = together.resampled(resamples=how.resamples, seed=how.seed)
    resampled = ours - theirs
    resampled = resampled[~np.isnan(resampled)]
    if test == "bootstrap":
        below, above = ((1 + np.sum(some)) / (1 + len(resampled)) for some in (resampled <= 0, resampled >= 0))
        p = Sides(float(below), float(above), min(1.0, 2 * float(min(below, above))), exact=False)
    else:
        p = of_random(together.swapped(0, 1, draws=how.resamples, seed=how.seed), observed)
    enough = together.patients >= FEWEST and 2 * len(resampled) >= min(how.resamples, MOST_RESAMPLES)
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2, how.alpha, 1 - how.alpha)
    low, high, least, most = np.quantile(resampled, tails).tolist() if enough else [np.nan] * 4
    return Outcome(
        p,
        len(together.clusters),
        together.left_out,
        0,
        together.patients,
        np.nan,
        NO_EFFECTS._replace(mean=Estimate(observed, low, high), least=least, most=most),
        detectable_of_error(float(resampled.std()) if enough else np.nan, alpha=how.alpha),
    )


def _untested_outcome(n: int, left_out: int) -> Outcome:
    """Returns that two models could not be tested."""
    unknown = Sides(np.nan, np.nan, np.nan, True)
    return Outcome(unknown, n, left_out, 0, 0, np.nan, NO_EFFECTS, np.nan)


def _reverse_outcome(found: Outcome) -> Outcome:
    """Returns the same for the second less the first."""
    p, size = found.p, found.effects
    superiority = Estimate(*(1 - size.superiority[index] for index in (0, 2, 1)))
    turned = Effects(
        size.mean.reversed(), size.d_z.reversed(), size.rank_biserial.reversed(), superiority, -size.most, -size.least
    )
    return found._replace(
        p=Sides(p.less, p.greater, p.two_sided, p.exact), median_difference=-found.median_difference, effects=turned
    )


def _make_pair(
    field: Field, names: tuple[str, str], found: Outcome, test: Test, how: CompareSettings, *, one_sided: bool
) -> Pair:
    sign = field.sign
    better = found.p.greater if sign > 0 else found.p.less
    size = found.effects
    superiority = size.superiority if sign > 0 else Estimate(*(1 - size.superiority[index] for index in (0, 2, 1)))
    bound = size.least if sign > 0 else -size.most
    return Pair(
        field.task,
        field.label,
        field.column.metric,
        *names,
        n=found.n,
        left_out=found.left_out,
        zeros=found.zeros,
        mean_difference=size.mean.value,
        median_difference=found.median_difference,
        p=float(np.maximum(better if one_sided else found.p.two_sided, LEAST_P)),
        corrected_p=np.nan,
        significant=False,
        test=test,
        patients=found.patients,
        low=size.mean.low,
        high=size.mean.high,
        d_z=size.d_z.value,
        d_z_low=size.d_z.low,
        d_z_high=size.d_z.high,
        rank_biserial=size.rank_biserial.value,
        rank_biserial_low=size.rank_biserial.low,
        rank_biserial_high=size.rank_biserial.high,
        superiority=superiority.value,
        superiority_low=superiority.low,
        superiority_high=superiority.high,
        bound=bound,
        non_inferior=None if how.margin is None or np.isnan(bound) else bool(bound > -how.margin),
        detectable=found.detectable,
    )


def _correct_tests(tests: Sequence[Pair], how: CompareSettings) -> list[Pair]:
    corrected = how.corrected([test.p for test in tests])
    return [
        test._replace(corrected_p=float(p), significant=bool(p < how.alpha))
        for test, p in zip(tests, corrected, strict=True)
    ]


AUROC = "auroc"
PROBABILITY = "probability"
"""The evidence: label is a class, value its probability, status whether it is present or absent in truth."""
PRESENT, ABSENT = "present", "absent"


class FieldAreas(NamedTuple):
    """Areas under ROC curves of models on shared cases, with basis."""

    areas: Areas
    cases: int
    left_out: int
    patients: int


def areas_of(field: Field, models: Sequence[str]) -> FieldAreas | None:
    """Returns models' AUROCs on a task or label, else None.

    None where its metric is no mean of them over labels.

    Of a single model the mean must be what the metric itself says, so that no average of another kind, such as one that
    weighs labels, is taken for it.

    Raises:
        UserError: If runs disagree on what is present in a case.
    """
    metric, _, wanted = field.column.metric.partition("@")
    if metric != AUROC:
        return None
    together = Together(field.column.metric, [field.parts[model] for model in models])
    rows = [_probability_rows(part.scores, wanted) for part in together.parts]
    if any(not some.index.is_unique for some in rows):
        return None
    shared = rows[0].index
    for some in rows[1:]:
        shared = shared.intersection(some.index)
    rows = [some.loc[shared] for some in rows]
    for name, some in zip(models, rows, strict=True):
        if (differ := some["status"] != rows[0]["status"]).any():
            case, label = shared[differ.to_numpy()][0]
            raise UserError(
                f"{field.name}: {models[0]} and {name} were judged by different truths of {label!r} in case {case!r}; "
                "score both runs again with the same data"
            )
    cases = shared.get_level_values("case").to_numpy(dtype=str)
    owners = together.clusters.loc[cases].to_numpy(dtype=str)
    areas = correlated_areas(
        np.stack([some["value"].to_numpy(dtype=np.float64) for some in rows]),
        (rows[0]["status"] == PRESENT).to_numpy(),
        owners,
        shared.get_level_values("label").to_numpy(dtype=str),
    )
    if len(models) == 1 and not np.allclose(areas.areas, together.worth, rtol=1e-9, atol=1e-12):
        return None
    return FieldAreas(areas, len(set(cases.tolist())), together.left_out, len(set(owners.tolist())))


def _probability_rows(scores: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """Returns probabilities with known truth, by case and label."""
    is_known = scores["status"].isin((PRESENT, ABSENT)) & scores["value"].notna()
    rows = scores.loc[(scores["metric"] == PROBABILITY) & is_known]
    if wanted and (rows["label"] == wanted).any():
        rows = rows.loc[rows["label"] == wanted]
    return rows.assign(case=rows["case"].astype(str)).set_index(["case", "label"])

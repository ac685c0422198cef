"""What stands below a comparison: how the tests were made, what they rest on, and what they could have found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.results.comparison.pairwise import LEVEL
from medimg_eval.results.comparison.summaries import random_patterns
from medimg_eval.results.statistics import FEWEST, MANY_CLUSTERS, MOST_EXACT, MOST_RESAMPLES
from medimg_eval.results.table import p_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.comparison.fields import Field
    from medimg_eval.results.comparison.pairwise import CompareSettings, Pair

CORRECTIONS = {None: "Holm", "holm": "Holm", "bh": "Benjamini and Hochberg"}
_SHARED = "on the cases that both have a value for"
_SIGNED = ("wilcoxon", "permutation", "mcnemar")
"""Tests whose smallest p-value is that of all differences pointing one way."""


def described(field: Field, test: str, how: CompareSettings) -> str:
    """Returns a test's words after "one-sided" or "two-sided"."""
    random = f"{how.resamples} random ones, seed {how.seed}"
    flips = (
        f"in which all differences of a {field.unit} change their sign together (all patterns where at most "
        f"{MOST_EXACT} {field.units} differ, else {random})"
    )
    fewer = min(how.resamples, MOST_RESAMPLES)
    if test == "permutation" and field.parts:
        return (
            f"permutation test of the difference, in which the two models' answers to a {field.unit} are swapped "
            f"({_count_patterns(field, how)} random patterns, seed {how.seed})"
        )
    if test == "mcnemar" and field.clustered:
        return f"McNemar test {_SHARED}, {flips}"
    clustered = f", with all images of a {field.unit} taken together (Obuchowski)" if field.clustered else ""
    return {
        "wilcoxon": f"Wilcoxon signed-rank test {_SHARED}",
        "mcnemar": f"McNemar test (mid-p) {_SHARED}",
        "permutation": f"permutation test of the mean difference {_SHARED}, {flips}",
        "delong": f"DeLong test of areas under ROC curves{clustered}",
        "bootstrap": (
            f"test from {fewer} resamples of {field.units}, seed {how.seed} (the metric rests on what else is known of "
            "a model too, which cannot be swapped)"
        ),
    }[test]


def pair_notes(tests: Sequence[Pair]) -> Iterator[str]:
    """Yields the cases behind pairs, and what was omitted."""
    sizes = sorted({test.n for test in tests})
    if not sizes:
        return
    between = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    yield f"{between} {'case' if sizes == [1] else 'cases'} per pair"
    if most := max(test.left_out for test in tests):
        some = max(tests, key=lambda test: test.left_out)
        yield f"up to {most} cases left out that only one of two models has a value for ({some.model}, {some.other})"
    if most := max(test.zeros for test in tests):
        some = max(tests, key=lambda test: test.zeros)
        left_out = "" if some.test == "permutation" else ", which the test leaves out"
        yield f"up to {most} cases without a difference{left_out} ({some.model}, {some.other})"
    if empty := sum(test.n == 0 for test in tests):
        yield f"{empty} pairs without a common case, not tested"
    if untested := sum(test.n > 0 and np.isnan(test.p) for test in tests):
        yield f"{untested} pairs without a spread or a value to test"


def found_notes(field: Field, tests: Sequence[Pair], how: CompareSettings, *, one_sided: bool) -> Iterator[str]:
    """Yields the tests' sensitivity and the models within the margin."""
    tested = [test for test in tests if test.n]
    yield from _hopeless_notes(field, tested, how, one_sided=one_sided)
    if any(test.patients < FEWEST for test in tested):
        what = "an interval" if how.margin is None else "an interval, and hence for the margin"
        yield f"{field.name}: fewer than {FEWEST} {field.units} are too few for {what}."
    if tested and _uses_expansion(field) and tested[0].test != "delong":
        yield (
            f"{field.name}: bootstrap of more than {MANY_CLUSTERS:,} {field.units}, none of it drawn unless few of them"
            " decide: quantiles from the moments of what these add, expanded to the second order (Cornish and Fisher)."
        )
    detectable = [test for test in tested if test.detectable > 0]
    if detectable:
        yield f"{field.name}: {_detectable_difference(field, detectable, how)}"
    judged = [test for test in tested if test.non_inferior is not None]
    if judged:
        good = sum(bool(test.non_inferior) for test in judged)
        kind = "normal" if judged[0].test == "delong" else f"bootstrap of {field.units}"
        yield (
            f"{field.name}: {good} of {len(judged)} {'ordered pairs' if one_sided else 'models'} are non-inferior at a "
            f"margin of {how.margin:g}: the one-sided {100 * (1 - how.alpha):g} % lower bound ({kind}) of how much "
            f"better the model is lies above -{how.margin:g}; not corrected for the number of tests."
        )


def _hopeless_notes(field: Field, tested: Sequence[Pair], how: CompareSettings, *, one_sided: bool) -> Iterator[str]:
    """Yields that too few patients make tests hopeless."""
    times = 1 if how.correction == "bh" else len(tested)
    signed = [test for test in tested if test.test in _SIGNED]
    least = {test: _least_p(test, one_sided=one_sided) for test in signed}
    few = [test for test in signed if least[test] * times >= how.alpha]
    corrected = "" if times == 1 else f", and none of {times} tests can be significant after correction"
    if few:
        ranked = few[0].test == "wilcoxon" and field.clustered
        most = max(test.n if ranked else test.patients for test in few)
        unit, units = ("case", "cases") if ranked else (field.unit, field.units)
        who = unit if most == 1 else units
        least_p = p_text(min(least[test] for test in few))
        yield (
            f"{field.name}: with {most} {who} no p-value of this test can be below {least_p} before "
            f"correction{corrected}."
        )
    random = _count_patterns(field, how)
    if not few and any(_is_random(field, test) for test in signed) and times / (random + 1) >= how.alpha:
        yield (
            f"{field.name}: with {random} random patterns no p-value can be below {1 / (random + 1):.2g} before "
            f"correction{corrected}; compare fewer models, name a baseline, or take correction=bh."
        )


def _least_p(test: Pair, *, one_sided: bool) -> float:
    # Wilcoxon's test takes all cases for independent, also where a patient has several.
    least: float = 0.5 ** (test.n if test.test == "wilcoxon" else test.patients) * (1 if one_sided else 2)
    return least / 2 if test.test == "mcnemar" and test.patients == test.n else least


def _is_random(field: Field, test: Pair) -> bool:
    flipped = test.test == "permutation" or (test.test == "mcnemar" and field.clustered)
    return flipped and (bool(field.parts) or test.patients > MOST_EXACT)


def _uses_expansion(field: Field) -> bool:
    """Returns whether differences of cases have intervals without resamples."""
    return not field.parts and len(np.unique(field.owners)) > MANY_CLUSTERS


def _count_patterns(field: Field, how: CompareSettings) -> int:
    return random_patterns(field.column.metric, how.resamples) if field.parts else how.resamples


def _detectable_difference(field: Field, tests: Sequence[Pair], how: CompareSettings) -> str:
    low, high = (pick(tests, key=lambda test: test.detectable) for pick in (min, max))
    text = field.column.text(low.detectable)
    if field.column.text(high.detectable) != text:
        text += f" ({low.model}, {low.other}) to {field.column.text(high.detectable)} ({high.model}, {high.other})"
    return (
        f"smallest true difference that a two-sided test at {how.alpha:g}, before correction, finds with 80 % power: "
        f"{text}."
    )


def interval_note(field: Field, test: str, how: CompareSettings) -> str:
    """Returns what the intervals of differences are."""
    number = min(how.resamples, MOST_RESAMPLES) if field.parts else how.resamples
    kind = f"percentile bootstrap of {field.units}, {number} resamples, seed {how.seed}"
    if _uses_expansion(field):
        kind = f"percentile bootstrap of {field.units}"
    return f"{100 * LEVEL:.0f} % interval of the difference: {'normal' if test == 'delong' else kind}."

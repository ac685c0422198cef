"""How many patients each endpoint needs, from what a pilot run shows or from what is expected of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics import as_known
from medimg_eval.results.acceptance.criteria import Analysis, Endpoint
from medimg_eval.results.acceptance.verdicts import part_of
from medimg_eval.results.runs import RunScores, is_known, is_summary
from medimg_eval.results.statistics import (
    VALUES,
    Design,
    Value,
    case_values,
    cautious_sd,
    is_share,
    largest_sd,
    sd_of_differences,
    units,
)
from medimg_eval.results.table import make_cell

EXPECT = ("value", "expected", "sd", "range", "prevalence", "discordant", "precision")
"""What can be said of a metric without a pilot."""
NUMBERS = ("expected", "sd", "prevalence", "discordant")


@dataclass(frozen=True)
class Need:
    """How many independent cases one endpoint needs.

    Attributes:
        name: the endpoint.
        design: what is expected of it.
        bound: that it is to lie beyond; NaN for none.
        power: with which probability.
        precision: half the width that its interval may have; NaN for any.
        units: independent cases, mostly patients.
        cautious: the same with the upper 80 % limit of the pilot's standard deviation; 0 where it has none.
        cases: of the pilot for each of them.
        why: what the numbers come from.
    """

    name: str
    design: Design
    bound: float
    power: float
    precision: float
    units: int
    cautious: int
    cases: float
    why: str

    def to_json(self) -> dict[str, Any]:
        """JSON that a plan holds of it."""
        keys = ("expected", "sd", "prevalence", "level", "value")
        own = {key: getattr(self, key) for key in ("name", "bound", "power", "precision", "units", "cautious", "why")}
        return own | {key: getattr(self.design, key) for key in keys}


def declared_design(said: Mapping[str, Any], level: float, value: str = "", name: str = "") -> Design:
    """Returns what is expected, from numbers that are stated.

    Args:
        said: `expected` and, of a mean or difference, `sd`, or the `range` that values lie in (the largest standard
            deviation is then taken), or `discordant`, the share of pairs of yes and no that differ; of an area
            `prevalence`; `value`, the kind of it, where the metric does not say.
        level: of the interval.
        value: the kind that the metric has.
        name: for errors.

    Raises:
        UsageError: a key is missing, not known, or out of its range.
    """
    kind = str(said.get("value") or value)
    UsageError.refuse_invalid(f"{name}value", VALUES, kind)
    if said.get("expected") is None:
        raise UsageError(f"{name}expected= is missing: the true value, as far as one can tell, such as expected=0.9")
    try:
        numbers = {key: float(said[key]) for key in NUMBERS if said.get(key) is not None}
        expected = numbers["expected"]
        sd = numbers.get("sd", math.nan)
        if kind in ("mean", "difference") and math.isnan(sd):
            sd = _stated_sd(said, expected, numbers, kind, name)
        prevalence = {"prevalence": numbers["prevalence"]} if "prevalence" in numbers else {}
        return Design(
            cast("Value", kind), expected, sd if kind != "proportion" else math.nan, level=level, **prevalence
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}{error}") from error


def _stated_sd(said: Mapping[str, Any], expected: float, numbers: Mapping[str, float], kind: str, name: str) -> float:
    if "discordant" in numbers:
        return sd_of_differences(expected, numbers["discordant"])
    if said.get("range") is not None:
        low, high = said["range"]
        return largest_sd(expected, float(low), float(high))
    further_hint = ", or discordant=, the share of pairs that differ" if kind == "difference" else ""
    raise UsageError(
        f"{name}sd= is missing, the spread between patients; or range=[0,1] for the largest there can be{further_hint}"
    )


def pilot_designs(
    runs: Sequence[RunScores], endpoints: Sequence[Endpoint], analysis: Analysis
) -> dict[int, tuple[Design, int, float, str]]:
    """Endpoint index -> pilot design, independent cases, and findings.

    Raises:
        UserError: the pilot has too few values.
    """
    designs = {}
    for index, endpoint in enumerate(endpoints):
        own = [run for run in runs if run.finished and run.name != endpoint.baseline]
        if not own:
            raise UserError(f"pilot=: holds no finished run to take {endpoint.name} from")
        designs[index] = _from_pilot(own[0], endpoint, analysis, runs)
    return designs


def _from_pilot(
    run: RunScores, endpoint: Endpoint, analysis: Analysis, runs: Sequence[RunScores]
) -> tuple[Design, int, float, str]:
    part = part_of(run, endpoint)
    if is_summary(endpoint.metric):
        cell = make_cell(part, endpoint.metric, analysis.settings(analysis.level))
        if math.isnan(cell.low) or cell.n_clusters < 2:
            raise UserError(f"pilot=: {endpoint.name} has no interval there; take a larger pilot, or state expect=")
        from scipy.special import ndtri

        error = (cell.high - cell.low) / (2 * float(ndtri((1 + analysis.level) / 2)))
        design = _make_design("mean", cell.mean, error * math.sqrt(cell.n_clusters), analysis.level, endpoint)
        return design, cell.n_clusters, cell.n / cell.n_clusters, f"pilot {run.name}, width of its interval"
    cases = case_values(part.scores.loc[part.scores["metric"] == endpoint.metric])
    if endpoint.baseline:
        models = {run_.name: run_ for run_ in runs if run_.task == run.task}
        UsageError.refuse_unknown("pilot=: no run is of model", models, endpoint.baseline)
        rows = part_of(models[endpoint.baseline], endpoint).scores
        second_values = case_values(rows.loc[rows["metric"] == endpoint.metric])["value"].reindex(cases.index)
        cases = cases.assign(value=cases["value"] - second_values)
    cases = cases.loc[cases["value"].notna()]
    values, owner = cases["value"].to_numpy(dtype=np.float64), units(run, cases)
    size = len(np.unique(owner))
    if size < 2:
        raise UserError(f"pilot=: {endpoint.name} has values of {size} {run.unit}; a spread needs at least two")
    mean, of = float(values.mean()), f"pilot {run.name}, {size} {run.unit}"
    if is_share(endpoint.metric, run) and size == len(values) and not endpoint.baseline:
        return _make_design("proportion", mean, math.nan, analysis.level, endpoint), size, 1.0, of
    # What the values of a patient add up to, less what the mean would make of as many: the spread between patients.
    residuals = np.bincount(np.unique(owner, return_inverse=True)[1], weights=values - mean)
    error = math.sqrt(size / (size - 1) * float((residuals**2).sum())) / len(values)
    kind: Value = "difference" if endpoint.baseline else "mean"
    return _make_design(kind, mean, error * math.sqrt(size), analysis.level, endpoint), size, len(values) / size, of


def _make_design(kind: Value, expected: float, sd: float, level: float, endpoint: Endpoint) -> Design:
    try:
        return Design(kind, expected, sd, level=level)
    except ValueError as error:
        raise UserError(f"pilot=: {endpoint.name}: {error}; its values are all equal; state expect= instead") from error


def kind_of(endpoint: Endpoint) -> str:
    """Kind of an endpoint's value by its metric, or ""."""
    if endpoint.baseline:
        return "difference"
    base = endpoint.metric.partition("@")[0]
    if base == "auroc":
        return "auroc"
    if is_known(endpoint.metric) and metrics.get(endpoint.metric).value_kind == "proportion":
        return "proportion"
    return "" if is_summary(endpoint.metric) else "mean"


def needs(
    endpoints: Sequence[Endpoint],
    analysis: Analysis,
    *,
    power: float,
    expect: Mapping[str, Mapping[str, Any]],
    pilot: Sequence[RunScores] = (),
) -> list[Need]:
    """Independent cases per primary endpoint, for the plan's joint power.

    Where all primary endpoints must be met, each gets a share of what may be missed: 1 - (1 - power) / number, which
    holds however they hang together. With `bonferroni` and `holm` each is planned at the level corrected for all.

    Args:
        endpoints: secondary ones are left out.
        analysis: level and order.
        power: probability that the plan is met, if all is as expected.
        expect: metric -> what is stated of it; it goes before what the pilot shows.
        pilot: runs.

    Raises:
        UsageError: nothing is known of an endpoint, or no number of cases can show it.
    """
    primary = [endpoint for endpoint in endpoints if not endpoint.secondary]
    expectations = {as_known(name): expectation for name, expectation in expect.items()}
    UsageError.refuse_invalid("expect: endpoint", [endpoint.metric for endpoint in primary], *expectations)
    for name, expectation in expectations.items():
        UsageError.refuse_unknown(f"expect: {name} has no key", EXPECT, *expectation)
    alone = analysis.order in ("holm", "bonferroni")
    level = 1 - (1 - analysis.level) / len(primary) if alone else analysis.level
    each = power if alone else 1 - (1 - power) / len(primary)
    designs = pilot_designs(pilot, primary, analysis) if pilot else {}
    return [
        _endpoint_need(endpoint, expectations.get(endpoint.metric, {}), designs.get(index), level, each)
        for index, endpoint in enumerate(primary)
    ]


def _endpoint_need(
    endpoint: Endpoint,
    said: Mapping[str, Any],
    shown: tuple[Design, int, float, str] | None,
    level: float,
    power: float,
) -> Need:
    name = f"{endpoint.name}: "
    if shown is None:
        design, number, cases, why = declared_design(said, level, kind_of(endpoint), name), 0, 1.0, "as stated"
    else:
        design_, number, cases, why = shown
        stated: dict[str, Any] = {key: float(said[key]) for key in ("expected", "sd") if said.get(key) is not None}
        design = replace(design_, level=level, **stated)
        why += f"; {', '.join(stated)} as stated" if stated else ""
        number = 0 if "sd" in stated else number
    bound = cast("float", endpoint.lower if endpoint.lower is not None else endpoint.upper)
    if endpoint.lower is not None and endpoint.upper is not None:  # the nearer one decides
        bound = min((endpoint.lower, endpoint.upper), key=lambda one: abs(one - design.expected))
    right = (endpoint.lower is None or design.expected > endpoint.lower) and (
        endpoint.upper is None or design.expected < endpoint.upper
    )
    if not right:
        raise UsageError(
            f"{name}{design.expected:.4g} is expected ({why}), which does not meet '{endpoint.criterion}': no "
            "number of cases would show it"
        )
    precision = float(said.get("precision") or math.nan)
    units_ = required_units(design, bound, power, precision, name)
    cautious = 0
    if number > 1 and design.value != "proportion":
        wider = replace(design, sd=cautious_sd(design.sd, number))
        cautious = required_units(wider, bound, power, precision, name)
    return Need(endpoint.name, design, bound, power, precision, units_, cautious, cases, why)


def required_units(design: Design, bound: float, power: float, precision: float, name: str = "") -> int:
    """Independent cases for a bound, a precision, or both; NaN for none.

    Raises:
        UsageError: no number of cases is enough, or a number is out of its range.
    """
    try:
        units_needed = [] if math.isnan(bound) else [design.cases_for_bound(bound, power)]
        units_needed += [] if math.isnan(precision) else [design.cases_for_precision(precision)]
    except ValueError as error:
        raise UsageError(f"{name}{error}") from error
    if not units_needed:
        raise UsageError(f"{name}nothing is asked for: name lower=, upper= or precision=")
    return max(units_needed)

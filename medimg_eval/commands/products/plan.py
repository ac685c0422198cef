"""`plan`: how many cases a claim needs, and the claim with its analysis and data fixed in a file that can be signed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer, say, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.file_scores.masks import mask_task
from medimg_eval.instantiate import build_task, changed
from medimg_eval.results import load_runs
from medimg_eval.results.acceptance import (
    LABELS,
    Analysis,
    Endpoint,
    Need,
    Plan,
    declared_design,
    make_plan,
    needs,
    read_endpoints,
    read_plan,
    required_units,
    sign,
    verify_all,
    write_plan,
)
from medimg_eval.results.table import Layout, Line, Sheet, Span
from medimg_eval.tasks import Task

ANALYSIS = ("level", "interval", "resamples", "seed", "mean", "stratify_by", "order")
ALONE = ("expected", "sd", "range", "prevalence", "discordant")


def run(config: DictConfig) -> None:
    """Prints case numbers; writes `out=`, shows `file=`, signs with `sign=`.

    Raises:
        UsageError: keys do not go together, or no number of cases is enough.
        DeviationError: a plan that is shown was changed, or a signature does not fit.
    """
    wanted = plain(config)
    if wanted["file"] is not None:
        _show_plan(wanted)
        return
    stated: dict[str, Any] = {key: wanted[key] for key in ANALYSIS}
    analysis = Analysis(**{**stated, "stratify_by": str(wanted["stratify_by"] or "")})
    power = _parse_power(wanted["power"])
    if wanted["value"] is not None:
        _show_alone(wanted, analysis, power)
        return
    task = _load_task(wanted)
    endpoints = read_endpoints(wanted["accept"] or (task.acceptance if task is not None else {}))
    if not endpoints:
        raise UsageError(
            "name what is to be shown: accept={dice: {lower: 0.85}}; or only a number of cases: "
            "value=proportion expected=0.9 lower=0.85"
        )
    pilot = [] if wanted["pilot"] is None else load_runs([Path(str(pilot)) for pilot in as_list(wanted["pilot"])])
    needed: list[Need] = []
    if pilot or wanted["expect"]:
        needed = needs(endpoints, analysis, power=power, expect=wanted["expect"], pilot=pilot)
        show_sheets([_sample_sheet(needed, pilot[0].unit if pilot else "patients")])
    elif wanted["out"] is None:
        raise UsageError("pilot=RUN or expect={METRIC: {expected: 0.9, sd: 0.1}} is needed for a number of cases")
    if wanted["out"] is not None:
        _write_plan(wanted, task, endpoints, analysis, needed)


def _show_alone(wanted: Mapping[str, Any], analysis: Analysis, power: float) -> None:
    """Prints how many cases one value needs, of which all is stated."""
    if wanted["out"] is not None:
        raise UsageError("value= gives a number only; a plan fixes endpoints: accept={dice: {lower: 0.85}}")
    statistics = {key: wanted[key] for key in ALONE}
    design = declared_design(statistics, analysis.level, str(wanted["value"]))
    bounds = [float(wanted[key]) for key in ("lower", "upper") if wanted[key] is not None]
    if len(bounds) > 1:
        raise UsageError("name lower= or upper=, whichever the interval is to lie beyond")
    if bounds and (design.expected > bounds[0]) != (wanted["lower"] is not None):
        key = "lower" if wanted["lower"] is not None else "upper"
        raise UsageError(f"{key}={bounds[0]:g} is not met by what is expected, {design.expected:g}")
    bound = bounds[0] if bounds else math.nan
    precision = math.nan if wanted["precision"] is None else float(wanted["precision"])
    number = required_units(design, bound, power, precision)
    need = Need(str(wanted["value"]), design, bound, power, precision, number, 0, 1.0, "as stated")
    show_sheets([_sample_sheet([need], "patients")])


def _sample_sheet(needed: Sequence[Need], unit: str) -> Sheet:
    careful = any(need.cautious for need in needed)
    heads = ["Expected", "Spread", "To show", unit.capitalize(), *["If the spread is larger"] * careful, "From"]
    lines = []
    for need in needed:
        design = need.design
        spread = "" if math.isnan(design.sd) else f"SD {design.sd:.4g}"
        spread = f"prevalence {design.prevalence:g}" if design.value == "auroc" and not spread else spread
        aims = [] if math.isnan(need.bound) else [f"interval beyond {need.bound:g} with power {need.power:.4g}"]
        aims += [] if math.isnan(need.precision) else [f"value +- {need.precision:g}"]
        cells = [f"{design.expected:.4g}", spread, " and ".join(aims), f"{need.units:,}"]
        cells += [*[f"{need.cautious:,}" if need.cautious else ""] * careful, need.why]
        lines.append(Line([need.name], [[Span(text)] for text in cells]))
    most = max(needed, key=lambda one: max(one.units, one.cautious))
    notes = [
        f"{max(most.units, most.cautious):,} independent {unit} are needed; more where some will lack a value.",
        f"Intervals are two-sided, of {100 * needed[0].design.level:.6g} %.",
    ]
    if careful:
        notes.append("If the spread is larger: at the upper 80 % limit of the pilot's standard deviation.")
    if (cases := max(need.cases for need in needed)) > 1:
        notes.append(f"The pilot has {cases:.3g} cases for each of the {unit}; so many are expected again.")
    layout = Layout.of_block("Cases needed", heads, lines, notes, ["Endpoint"])
    return Sheet(layout, pd.DataFrame.from_records([need.to_json() for need in needed]))


def _load_task(wanted: Mapping[str, Any]) -> Task | None:
    """Task to be judged, by name or folder of label maps."""
    if wanted.get("task"):
        task = build_task(wanted["task"])
        return changed(task, metrics=wanted["metrics"]) if wanted["metrics"] else task
    return None if wanted["references"] is None else mask_task(wanted, Path(str(wanted["references"])).expanduser())


def _write_plan(
    wanted: Mapping[str, Any],
    task: Task | None,
    endpoints: Sequence[Endpoint],
    analysis: Analysis,
    needed: Sequence[Need],
) -> None:
    if task is None:
        raise UsageError("a plan is of data: name task=NAME, or references=FOLDER of the label maps that are right")
    if missing := [endpoint.metric for endpoint in endpoints if endpoint.metric not in task.metrics]:
        raise UsageError(f"task {task.name!r} has no metric {missing[0]!r}: add metrics=[{', '.join(missing)}]")
    cases = task.cases("test")
    patients = {case.patient for case in cases} - {None}
    facts = {
        "name": task.name,
        "data": {
            "fingerprint": data_fingerprint(cases),
            "cases": len(cases),
            "patients": len(patients),
            "resampled": "patients" if patients else "cases",
        },
        "definitions": {endpoint.metric: task.definitions()[endpoint.metric] for endpoint in endpoints},
        "labels": {key: task.config[key] for key in LABELS if task.config.get(key)},
    }
    title, product = str(wanted["title"] or ""), str(wanted["product"] or "")
    plan = make_plan(
        facts, endpoints, analysis, title=title, product=product, needed=[need.to_json() for need in needed]
    )
    file = Path(str(wanted["out"])).expanduser()
    if file.exists():
        raise UsageError(f"{file}: is there already; a plan is not written over: name another file, or remove it")
    _sign_and_write(wanted, plan, file)


def _show_plan(wanted: Mapping[str, Any]) -> None:
    """Shows a plan, checks signatures, and signs on request."""
    file = Path(str(wanted["file"])).expanduser()
    plan = read_plan(file)
    keys = (
        []
        if wanted["plan_key"] is None
        else [Path(str(key_file)).expanduser() for key_file in as_list(wanted["plan_key"])]
    )
    content, out = plan.content, printer()
    say(out, f"{content['title'] or file.name}: {content['task']}, made {content['made']} with {content['program']}")
    data = content["data"]
    say(out, f"data: {data['cases']:,} cases of {data['patients']:,} patients, fingerprint {data['fingerprint']}")
    for number, endpoint in enumerate(plan.endpoints, start=1):
        say(out, f"{number}. {endpoint.name}: {endpoint.criterion}{' (secondary)' * endpoint.secondary}")
    say(out, f"analysis: {', '.join(f'{name}={value}' for name, value in content['analysis'].items())}")
    say(out, f"hash: {plan.hash}")
    for signature_text in verify_all(plan.hash, plan.signatures, keys):
        say(out, signature_text)
    if wanted["sign"] is not None:
        _sign_and_write(wanted, plan, file)


def _sign_and_write(wanted: Mapping[str, Any], plan: Plan, file: Path) -> None:
    """Signs a plan if that is asked for, and writes it."""
    if wanted["sign"] is not None:
        if not wanted["by"]:
            raise UsageError("sign= needs by=, the name of who signs, such as 'by=\"Jane Doe\"'")
        key = Path(str(wanted["sign"])).expanduser()
        plan = plan.signed(sign(plan.hash, key, by=str(wanted["by"]), meaning=str(wanted["meaning"])))
    write_plan(plan, file)
    say(printer(), plan.hash if plan.signatures else f"{plan.hash}; not signed: file={file} sign=KEY by=NAME does that")
    say_written([file])


def _parse_power(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UsageError(f"power is {value!r}, expected a probability such as 0.8")
    return float(value)

"""ROC, precision-recall, FROC and risk-coverage curves, with bands from resampled patients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics.detection import CPM_RATES
from medimg_eval.results.figures import style
from medimg_eval.results.figures.curve_data import (
    CANDIDATE,
    CONFIDENCE,
    CURVES,
    LESIONS,
    MOST_POINTS,
    PROBABILITY,
    Curve,
    Floats,
    Stack,
    answers,
    confidences,
    need_rows,
    pooled,
    resampled,
    scored,
    stacks,
    sums,
)
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import as_runs, interval_text, take
from medimg_eval.results.statistics import FEWEST, MOST_RESAMPLES, PERCENTILE, TOO_FEW
from medimg_eval.results.table import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width
    from medimg_eval.results.runs import Part

PLAIN = Settings(resamples=MOST_RESAMPLES, level=0.95, seed=0)


class Found(NamedTuple):
    """The curve of one model."""

    piece: Piece
    points: tuple[Floats, Floats]
    low: Floats
    high: Floats
    area: tuple[float, float, float]
    cases: int
    clusters: int
    labels: int
    """Labels that have a curve, of which the mean is drawn; 1 where they are pooled."""
    lacking: int
    """Labels without one: all of a kind, or nothing to find."""
    dropped: int
    chance: float
    """Share of what is true, the precision of guessing."""


def roc(source: Source, *, by: str = "", label: str = "", width: Width = "single", settings: Settings = PLAIN) -> Drawn:
    """ROC curve of each model, from rows of "probability".

    Several labels are one curve, the mean of their sensitivities at each false-positive rate. Equal probabilities are
    one point of a curve. The `status` of rows is "present" or "absent". `by` and `label` choose labels or groups as in
    `box`, each a panel; `width` is as there, and `settings` make at most 1,000 resamples.

    Returns:
        A frame with rows of `what`: "curve" (the points joined), "band" (percentile bounds at each of 101 places), and
        "area" (the number in the legend, as `value`, with `low` and `high`).

    Raises:
        UsageError: There are no such rows, label or attribute.
        UserError: There is no curve to draw.

    Source: Fawcett, Pattern Recognition Letters 27, 2006; bands are vertical (at fixed false-positive rates).
    """
    return _draw_curves("roc", source, PROBABILITY, by=by, label=label, width=width, settings=settings)


def pr(source: Source, *, by: str = "", label: str = "", width: Width = "single", settings: Settings = PLAIN) -> Drawn:
    """Precision-recall curve of each model, from rows of "probability"; as `roc` otherwise.

    The precision at a recall is that of the highest threshold which reaches it: steps, of which average precision is
    the area; nothing is interpolated (Davis & Goadrich, ICML 2006).
    """
    return _draw_curves("pr", source, PROBABILITY, by=by, label=label, width=width, settings=settings)


def froc(
    source: Source, *, by: str = "", label: str = "", width: Width = "single", settings: Settings = PLAIN
) -> Drawn:
    """FROC curve of each model, as `metrics.froc` reads it; as `roc` otherwise.

    It is drawn from rows of "detection_score" ("hit", "false" or "ignored") and "n_reference_lesions". The horizontal
    axis is logarithmic from 1/8 to 8 false positives per case, the rates of CPM.

    Source: Setio et al., Med Image Anal 42, 2017 (LUNA16).
    """
    return _draw_curves("froc", source, CANDIDATE, by=by, label=label, width=width, settings=settings)


def risk_coverage(
    source: Source, *, by: str = "", label: str = "", width: Width = "single", settings: Settings = PLAIN
) -> Drawn:
    """Share of wrong answers among the most confident, by how many are kept.

    It is drawn from rows of "confidence" ("right" or "wrong"); without any, from those of "probability", as
    `curve_data.answers` makes answers of them. Of answers of one confidence, any are as likely to be kept as others.
    The area is the mean risk over the coverages 1/n, 2/n, ..., 1; all else is as in `roc`.

    Source: Geifman & El-Yaniv, NeurIPS 2017; AURC is that of Geifman et al., ICLR 2019.
    """
    runs, metric = confidences(source, "risk_coverage")
    return _draw_curves("risk_coverage", runs, metric, by=by, label=label, width=width, settings=settings)


def _draw_curves(
    kind: str, source: Source, metric: str, *, by: str, label: str, width: Width, settings: Settings
) -> Drawn:
    across = style.millimetres(width)
    curve = CURVES[kind]
    runs = as_runs(source, metric)
    names = scored(runs)
    if names:
        need_rows(LESIONS if metric == CANDIDATE else metric, kind, names)
    # A detector without a single candidate has a curve too, at 0.
    wanted = [name for name in (CANDIDATE, LESIONS) if name in names] if metric == CANDIDATE else [metric]
    pieces = take(runs, wanted, by=by, label=label)
    settings = settings._replace(resamples=min(settings.resamples, MOST_RESAMPLES))
    curves_found = [_measure_curve(piece, curve, metric, settings) for piece in pieces.members]
    if not any(curve_found.points[0].size for curve_found in curves_found):
        raise UserError(f"No model has a curve for kind={kind}: all that was judged is true, or none of it is")
    figure = _make_figure(kind, curve, pieces, curves_found, across)
    frame = pd.concat(
        [_curve_frame(curve, curve_found, settings) for curve_found in curves_found if curve_found.points[0].size],
        ignore_index=True,
    )
    return Drawn(figure, frame, _make_caption(kind, curve, pieces, curves_found, settings))


def _measure_curve(piece: Piece, curve: Curve, metric: str, settings: Settings) -> Found:
    part = piece.part
    if curve.macro:
        held = list(stacks(part, metric).values())
    else:
        held = [pooled(answers(part)[0] if metric == PROBABILITY else part, CONFIDENCE)]
    size = len(held[0].positives)
    once = np.ones(size)
    all_sums = {index: sums(stack, once) for index, stack in enumerate(held)}
    drawn = [index for index, stack_sums in all_sums.items() if curve.points(stack_sums)[0].size]
    chosen = [held[index] for index in drawn]
    areas = [curve.area(all_sums[index]) for index in drawn]
    bounds = _curve_bands(curve, chosen, part, settings) if drawn else None
    nothing = np.full(curve.grid.size, np.nan)
    low, high, area_low, area_high = bounds if bounds else (nothing, nothing, np.nan, np.nan)
    chances = [stack.positives.sum() / (stack.positives.sum() + stack.negatives.sum()) for stack in chosen]
    return Found(
        piece,
        _curve_points(curve, [all_sums[index] for index in drawn]),
        low,
        high,
        (float(np.mean(areas)) if areas else np.nan, area_low, area_high),
        max((stack.cases for stack in held), default=0),
        size,
        len(drawn),
        len(held) - len(drawn),
        sum(stack.dropped for stack in held),
        float(np.mean(chances)) if chances else np.nan,
    )


def _curve_points(curve: Curve, whole: Sequence[Any]) -> tuple[Floats, Floats]:
    """Returns points of a curve, or the mean on a grid."""
    if not whole:
        return np.zeros(0), np.zeros(0)
    if len(whole) > 1:
        return curve.grid, np.mean([curve.along(stack_sums, curve.grid) for stack_sums in whole], axis=0)
    x, y = curve.points(whole[0])
    if x.size > MOST_POINTS:
        indices = np.unique(np.linspace(0, x.size - 1, MOST_POINTS).round().astype(np.int64))
        x, y = x[indices], y[indices]
    return x, y


def _curve_bands(
    curve: Curve, held: Sequence[Stack], part: Part, settings: Settings
) -> tuple[Floats, Floats, float, float] | None:
    """Returns bands of a curve and its area; None with few clusters."""
    if len(held[0].positives) < FEWEST:
        return None
    lines, areas = [], []
    for times in resampled(part, settings):
        resampled_ = [sums(stack, times) for stack in held]
        along = np.array([curve.along(stack_sums, curve.grid) for stack_sums in resampled_])
        is_known = ~np.isnan(along[:, 0])
        # A resample may lack all that is true of a label, which then has no curve in it.
        if is_known.any():
            lines.append(along[is_known].mean(axis=0))
            areas.append(
                np.mean([curve.area(stack_sums) for stack_sums, has in zip(resampled_, is_known, strict=True) if has])
            )
    if len(lines) * 2 < settings.resamples:
        return None
    ends = [(1 - settings.level) / 2, (1 + settings.level) / 2]
    low, high = np.quantile(np.array(lines), ends, axis=0)
    area_low, area_high = np.quantile(areas, ends)
    return low, high, float(area_low), float(area_high)


def _curve_frame(curve: Curve, one: Found, settings: Settings) -> pd.DataFrame:
    banded = not np.isnan(one.low[0])
    interval_words = interval_text(PERCENTILE if banded else TOO_FEW, settings.level, one.piece.part.run.unit)
    x, y = one.points
    parts = [pd.DataFrame({"what": "curve", curve.x: x, curve.y: y})]
    if banded:
        parts.append(pd.DataFrame({"what": "band", curve.x: curve.grid, "low": one.low, "high": one.high}))
    value, low, high = one.area
    named = {"what": ["area"], "area": [curve.area_title], "value": [value]}
    parts.append(pd.DataFrame(named | ({"low": [low], "high": [high]} if banded else {})))
    frame = pd.concat(parts, ignore_index=True)
    frame.insert(0, "group", one.piece.group)
    frame.insert(1, "model", one.piece.model)
    return frame.assign(n=one.cases, clusters=one.clusters, labels=one.labels, interval=interval_words)


def _make_figure(kind: str, curve: Curve, pieces: Pieces, found: Sequence[Found], across: float) -> Any:
    from matplotlib.lines import Line2D

    number = len(pieces.groups)
    shape = style.panel_grid(number, across) if number > 1 else (1, 1)
    side = min(across / shape[1] * (0.95 if number > 1 else 0.9), 110.0)
    with style.styled():
        texts = [_legend_text(curve, model, found, several=number > 1) for model in pieces.models]
        legend = style.legend_height(texts, across)[1]
        figure = style.canvas(across, side * shape[0] + legend + 2)
        for index, (group, axes) in enumerate(zip(pieces.groups, style.panels(figure, number, shape), strict=True)):
            members = [curve_found for curve_found in found if curve_found.piece.group == group]
            _draw_panel(kind, curve, axes, members)
            axes.set_title(style.wrapped(group, 30))
            # The same axes need their titles once, below and at the left.
            if index + shape[1] >= number:
                axes.set_xlabel(curve.titles[0])
            if index % shape[1] == 0:
                axes.set_ylabel(curve.titles[1])
        handles = [Line2D([], [], color=colour, ls=line, lw=1.1) for colour, _, line in pieces.looks]
        style.add_legend(figure, handles, texts, across)
    return figure


def _legend_text(curve: Curve, model: str, found: Sequence[Found], *, several: bool) -> str:
    mine = [curve_found for curve_found in found if curve_found.piece.model == model]
    if several or not mine:
        return style.wrapped(model)
    value, low, high = mine[0].area
    if np.isnan(value):
        return f"{style.wrapped(model)}: no curve"
    bounds = "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"
    return f"{style.wrapped(model)}: {curve.area_title} {value:.3f}{bounds}"


def _draw_panel(kind: str, curve: Curve, axes: Axes, members: Sequence[Found]) -> None:
    for member in members:
        colour, _, line = member.piece.look
        step = kind == "pr" and member.labels == 1
        if not np.isnan(member.low[0]):
            edge: dict[str, Any] = {"color": colour, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(curve.grid, member.low, member.high, **edge, zorder=1)
        stroke: dict[str, Any] = {"drawstyle": "steps-pre"} if step else {}
        if member.points[0].size:
            axes.plot(*member.points, color=colour, ls=line, lw=1.1, zorder=3, clip_on=False, **stroke)
    quiet: dict[str, Any] = {"color": style.QUIET, "lw": 0.5, "ls": (0, (3, 2)), "zorder": 0}
    if kind == "roc":
        axes.plot([0, 1], [0, 1], **quiet)
    if kind == "pr" and members:
        axes.axhline(float(np.nanmean([member.chance for member in members])), **quiet)
    if kind == "froc":
        axes.set_xscale("log", base=2)
        axes.set_xticks(CPM_RATES, ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
        axes.set_xlim(CPM_RATES[0], CPM_RATES[-1])
        axes.minorticks_off()
    else:
        axes.set_xlim(0, 1)
    if kind == "risk_coverage":
        axes.set_ylim(bottom=0)
        return
    axes.set_ylim(0, 1)
    if kind != "froc":
        axes.set_aspect("equal")


_WHAT = {
    "roc": "ROC curves",
    "pr": "Precision-recall curves",
    "froc": "FROC curves",
    "risk_coverage": "Risk by coverage",
}
_QUIET = {
    "roc": "dashed: guessing",
    "pr": "dashed: guessing, the share of what is true",
    "froc": "",
    "risk_coverage": "",
}


def _make_caption(kind: str, curve: Curve, pieces: Pieces, found: Sequence[Found], settings: Settings) -> str:
    n = pieces.sized([curve_found.cases for curve_found in found], [curve_found.clusters for curve_found in found])
    divided = f" by {pieces.by}" if pieces.by else ""
    quiet = f"; {_QUIET[kind]}" if _QUIET[kind] else ""
    text = (
        f"{_WHAT[kind]} on {pieces.title}{divided} ({n}). Bands and brackets: {100 * settings.level:g} % percentile "
        f"bootstrap intervals over {pieces.unit}, {settings.resamples} resamples{quiet}."
    )
    if (labels := max(curve_found.labels for curve_found in found)) > 1:
        text += f" Each curve is the mean over up to {labels} labels that have one."
    if lacking := max(curve_found.lacking for curve_found in found):
        text += f" Up to {lacking} labels have no curve, being all true or all false."
    if dropped := sum(curve_found.dropped for curve_found in found):
        text += f" {dropped} values that are no number are left out."
    if any(np.isnan(curve_found.low[0]) for curve_found in found):
        text += f" Curves without a band rest on too few {pieces.unit} for one."
    if areas := [curve_found for curve_found in found if pieces.by and not np.isnan(curve_found.area[0])]:
        text += f" {curve.area_title} of the {len(areas)} curves is in the numbers."
    if baselines := dict.fromkeys(piece.model for piece in pieces.members if piece.baseline):
        text += f" In grey: baselines ({', '.join(baselines)})."
    return text + pieces.end()

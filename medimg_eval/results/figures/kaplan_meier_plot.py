"""Survival of two groups of risk after Kaplan and Meier, with the log-rank test between them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics.survival import CENSORED, EVENT, Curve, LogRank, log_rank
from medimg_eval.metrics.survival import kaplan_meier as curve_of
from medimg_eval.results.figures import style
from medimg_eval.results.figures.curves import PLAIN
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import as_runs, take
from medimg_eval.results.statistics import rows_of
from medimg_eval.results.table import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width

NEEDS = ("follow_up", "predicted_risk")
LOW, HIGH = "low risk", "high risk"
COLUMNS = ["group", "model", "risk", "time", "survival", "low", "high", "at_risk", "events"]
_HEIGHT = 50.0
"""mm of a row of panels, without the legend."""


class Groups(NamedTuple):
    """The cases of a model in two groups of risk.

    Attributes:
        curves: of low and of high risk.
        test: of the two against each other.
        n: how many cases are in each.
        lost: cases without a prediction, which are in neither.
    """

    piece: Piece
    curves: dict[str, Curve]
    test: LogRank
    n: tuple[int, int]
    lost: int


def kaplan_meier(source: Source, *, by: str = "", width: Width = "single", settings: Settings = PLAIN) -> Drawn:
    """Kaplan-Meier curves of low and high predicted risk, by model.

    A case is of high risk above the median of the risks of the cases judged, of each fold by itself where folds are
    repeats. Bands are Greenwood's intervals on the scale of log(-log S); marks are censored cases. `by` and `width` are
    as in `box`.

    Returns:
        A frame with a row per step: `risk` (the group), `time`, `survival` with `low` and `high`, `at_risk`, `events`.

    Raises:
        UsageError: There is no such attribute.
        UserError: No run predicts risk, or none has cases of both groups.

    Source: Kaplan and Meier 1958; Greenwood 1926; Mantel 1966.
    """
    across = style.millimetres(width)
    pieces = take(as_runs(source), NEEDS, by=by)
    groups = [risk_groups for piece in pieces.members if (risk_groups := _risk_groups(piece)) is not None]
    if not groups:
        raise UserError("No model has cases of low and of high risk, so there is nothing to draw")
    frame = pd.concat([_curve_frame(risk_groups, settings.level) for risk_groups in groups], ignore_index=True)
    with style.styled():
        figure = _draw_figure(groups, across, settings.level)
    return Drawn(figure, frame, _make_caption(pieces, groups, settings.level))


def _risk_groups(piece: Piece) -> Groups | None:
    rows = rows_of(piece.part, NEEDS, every=piece.part.run.in_folds)
    key = rows.case * (int(rows.repeat.max(initial=0)) + 1) + rows.repeat
    is_followed = (rows.metric == "follow_up") & np.isin(rows.status, (EVENT, CENSORED))
    is_predicted = (rows.metric == "predicted_risk") & ~np.isnan(rows.value)
    both, at, predicted_rows = np.intersect1d(key[is_followed], key[is_predicted], return_indices=True)
    times, events, risks = (
        rows.value[is_followed][at],
        rows.status[is_followed][at] == EVENT,
        rows.value[is_predicted][predicted_rows],
    )
    fold = rows.repeat[is_followed][at]
    high = np.zeros(len(both), bool)
    for number in np.unique(fold):
        high[fold == number] = risks[fold == number] > np.median(risks[fold == number])
    if high.all() or not high.any():
        return None
    curves = {name: curve_of(times[part], events[part]) for name, part in ((LOW, ~high), (HIGH, high))}
    unpredicted = int(is_followed.sum()) - len(both)
    return Groups(piece, curves, log_rank(times, events, high), (int((~high).sum()), int(high.sum())), unpredicted)


def _greenwood_band(curve: Curve, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Greenwood's log-log interval, (step,); NaN at survival 0 or 1."""
    survivors = curve.at_risk - curve.events
    terms = np.divide(
        curve.events, curve.at_risk * survivors, out=np.full_like(survivors, math.inf), where=survivors > 0
    )
    inner = (curve.survival > 0) & (curve.survival < 1)
    logs = np.log(np.where(inner, curve.survival, 0.5))
    reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(np.where(inner, np.cumsum(terms), 0)) / -logs
    bounds = [np.where(inner, np.exp(logs * np.exp(sign * reach)), math.nan) for sign in (1, -1)]
    return bounds[0], bounds[1]


def _curve_frame(one: Groups, level: float) -> pd.DataFrame:
    parts = []
    for name, curve in one.curves.items():
        low, high = _greenwood_band(curve, level)
        held = {"time": curve.times, "survival": curve.survival, "low": low, "high": high}
        held |= {"at_risk": curve.at_risk.astype(int), "events": curve.events.astype(int)}
        parts.append(pd.DataFrame(held).assign(group=one.piece.group, model=one.piece.model, risk=name))
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _format_p(test: LogRank) -> str:
    if math.isnan(test.p):
        return "log-rank test undefined"
    return "log-rank p < 0.001" if test.p < 0.001 else f"log-rank p = {test.p:.3f}"


def _draw_figure(found: Sequence[Groups], width: float, level: float) -> Figure:
    from matplotlib.lines import Line2D

    shape = style.panel_grid(len(found), width)
    legend = style.legend_height([LOW, HIGH], width)[1]
    figure = style.canvas(width, _HEIGHT * shape[0] + legend)
    for axes, risk_groups in zip(style.panels(figure, len(found), shape), found, strict=True):
        for index, curve in enumerate(risk_groups.curves.values()):
            colour, _, line = style.look(index)
            times, survival = np.r_[0, curve.times], np.r_[1, curve.survival]
            low, high = (np.r_[np.nan, bound] for bound in _greenwood_band(curve, level))
            axes.fill_between(times, low, high, step="post", color=colour, alpha=0.15, lw=0)
            axes.step(times, survival, where="post", color=colour, ls=line)
            remaining = np.r_[curve.at_risk[1:], 0]
            censored = curve.at_risk - curve.events - remaining > 0
            axes.plot(curve.times[censored], curve.survival[censored], color=colour, marker="|", ls="", ms=3)
        name = " - ".join(part for part in (risk_groups.piece.group, risk_groups.piece.model) if part)
        axes.set_title(style.drawable(f"{style.wrapped(name)}\n{_format_p(risk_groups.test)}"), fontsize="small")
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
        axes.set_xlabel("Time")
        axes.set_ylabel("Survival")
    handles = [Line2D([], [], color=style.look(index)[0], ls=style.look(index)[2]) for index in range(2)]
    style.add_legend(figure, handles, [LOW, HIGH], width)
    return figure


def _make_caption(pieces: Pieces, found: Sequence[Groups], level: float) -> str:
    each = "of each fold by itself" if pieces.some.in_folds else "of the cases judged"
    text = (
        f"Survival on {pieces.title} by predicted risk, after Kaplan and Meier: above (high risk) and up to the median "
    )
    text += f"{each}, which was not fixed before. "
    for arms in found:
        name = " - ".join(part for part in (arms.piece.group, arms.piece.model) if part)
        test = "" if math.isnan(arms.test.p) else f", chi-squared {arms.test.statistic:.2f}"
        lacking = f", {arms.lost} cases without a prediction in neither" if arms.lost else ""
        text += f"{name}: n = {arms.n[0]} of low and {arms.n[1]} of high risk{lacking}; {_format_p(arms.test)}{test}. "
    text += f"Bands: {100 * level:g} % intervals of Greenwood on the scale of log(-log S), cases taken for independent"
    return f"{text}; marks: censored cases.{pieces.end()}"

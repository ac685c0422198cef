"""Bland-Altman plots: differences of measurements to their reference, by their size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics import agreement
from medimg_eval.results.figures.curve_data import Floats, need_rows, resampled, scored
from medimg_eval.results.figures.curves import PLAIN
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import as_runs, interval_text, take
from medimg_eval.results.figures.style import canvas, millimetres, panel_grid, panels, styled, wrapped
from medimg_eval.results.runs import LABEL
from medimg_eval.results.statistics import FEWEST, MOST_RESAMPLES, PERCENTILE, TOO_FEW
from medimg_eval.results.table import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width

REFERENCE, PREDICTION = "measured_reference", "measured"
LIMITS = 1.96


class Differences(NamedTuple):
    """Differences in one panel, of a model or group."""

    piece: Piece
    pairs: pd.DataFrame
    """`case`, `label`, `mean` and `difference`, one row per pair."""
    limits: agreement.BlandAltman
    bounds: Floats
    """Of bias, low and high limit: (3, 2); NaN without an interval."""
    clusters: int
    lacking: int
    """Pairs of which one side has no value."""


def bland_altman(
    source: Source, *, by: str = "", label: str = "", width: Width = "single", settings: Settings = PLAIN
) -> Drawn:
    """Panel per model: differences (prediction - reference) by the mean of both.

    It is drawn from rows of "measured_reference" and "measured". Limits of agreement are the mean difference and 1.96
    standard deviations to both sides, each with bounds over resampled patients (at most 1,000 resamples). `by`, `label`
    and `width` are as in `box`; without `by` all measurements stand together, which only makes sense in one unit.

    Returns:
        A frame with rows of `what` "pair" (`case`, `label`, `mean`, `difference`), and "bias", "lower limit" and "upper
        limit" (`difference`, `low`, `high`).

    Raises:
        UsageError: There are no such rows, label or attribute.
        UserError: There is no pair to draw.

    Source: Bland & Altman, Lancet 327, 1986.
    """
    across = millimetres(width)
    runs = as_runs(source)
    if names := scored(runs):
        for metric in (REFERENCE, PREDICTION):
            need_rows(metric, "bland_altman", names)
    pieces = take(runs, [REFERENCE, PREDICTION], by=by, label=label)
    settings = settings._replace(resamples=min(settings.resamples, MOST_RESAMPLES))
    differences = [_piece_differences(piece, settings) for piece in pieces.members]
    drawn = [difference for difference in differences if len(difference.pairs)]
    if not drawn:
        raise UserError("No case has both a measurement and its reference, so there is nothing to draw")
    figure = _make_figure(pieces, drawn, across)
    frame = pd.concat([_difference_frame(difference, settings) for difference in drawn], ignore_index=True)
    return Drawn(figure, frame, _make_caption(pieces, differences, settings))


def _piece_differences(piece: Piece, settings: Settings) -> Differences:
    part = piece.part
    rows = part.scores.pivot_table(index=["case", "label"], columns="metric", values="value", dropna=False)
    rows = rows.reindex(columns=[REFERENCE, PREDICTION])
    judged = rows.loc[rows.notna().any(axis=1)]
    complete = judged.dropna()
    pairs = complete.reset_index()[["case", "label"]].assign(
        mean=complete.mean(axis=1).to_numpy(), difference=(complete[PREDICTION] - complete[REFERENCE]).to_numpy()
    )
    names, owner = np.unique(part.clusters.to_numpy(dtype=str), return_inverse=True)
    at = pd.Series(owner, index=part.clusters.index).reindex(pairs["case"].astype(str)).to_numpy(dtype=np.int64)
    limits = agreement.bland_altman(complete[REFERENCE], complete[PREDICTION])
    bounds = np.full((3, 2), np.nan)
    differences = pairs["difference"].to_numpy(dtype=np.float64)
    if len(np.unique(at)) >= FEWEST:
        # About their mean, so that squares lose nothing.
        off = differences - limits.bias
        added = np.stack(
            [np.bincount(at, weights=weights, minlength=len(names)) for weights in (off**0, off, off**2)], axis=1
        )
        n, first, second = np.array([times @ added for times in resampled(part, settings)]).T
        is_repeated = n > 1
        bias = first[is_repeated] / n[is_repeated]
        spread = np.sqrt(np.maximum(second[is_repeated] - n[is_repeated] * bias**2, 0) / (n[is_repeated] - 1))
        ends = [(1 - settings.level) / 2, (1 + settings.level) / 2]
        each = (bias, bias - LIMITS * spread, bias + LIMITS * spread)
        bounds = np.array([np.quantile(values, ends) for values in each]) + limits.bias
    return Differences(piece, pairs, limits, bounds, len(np.unique(at)), len(judged) - len(complete))


def _difference_frame(one: Differences, settings: Settings) -> pd.DataFrame:
    interval_kind = PERCENTILE if one.clusters >= FEWEST else TOO_FEW
    lines = pd.DataFrame({"what": ["bias", "lower limit", "upper limit"], "difference": list(one.limits)})
    if one.clusters >= FEWEST:
        lines = lines.assign(low=one.bounds[:, 0], high=one.bounds[:, 1])
    frame = pd.concat([one.pairs.assign(what="pair"), lines], ignore_index=True)
    frame = frame[["what", *(name for name in frame.columns if name != "what")]]
    frame.insert(0, "group", one.piece.group)
    frame.insert(1, "model", one.piece.model)
    interval_words = interval_text(interval_kind, settings.level, one.piece.part.run.unit)
    return frame.assign(n=one.pairs["case"].nunique(), clusters=one.clusters, interval=interval_words)


def _make_figure(pieces: Pieces, found: Sequence[Differences], across: float) -> Any:
    shape = panel_grid(len(found), across) if len(found) > 1 else (1, 1)
    side = min(across / shape[1] * 0.8, 80.0)
    with styled():
        figure = canvas(across, side * shape[0] + 2)
        every = panels(figure, len(found), shape)
        for index, (difference, axes) in enumerate(zip(found, every, strict=True)):
            _draw_panel(axes, difference)
            names = [difference.piece.group] if pieces.by else []
            names += [difference.piece.model] if len(pieces.models) > 1 or not pieces.by else []
            axes.set_title(wrapped(": ".join(names), 30))
            if index + shape[1] >= len(found):
                axes.set_xlabel("Mean of both")
            if index % shape[1] == 0:
                axes.set_ylabel("Prediction - reference")
        if pieces.by != LABEL:
            # Panels of one measurement are there to be compared.
            ends = [end for axes in every for end in axes.get_ylim()]
            for axes in every:
                axes.set_ylim(min(ends), max(ends))
    return figure


def _draw_panel(axes: Axes, one: Differences) -> None:
    colour, marker, _ = one.piece.look
    dots: dict[str, Any] = {"s": 7, "color": colour, "alpha": 0.6, "linewidths": 0, "zorder": 2}
    axes.scatter(one.pairs["mean"], one.pairs["difference"], marker=marker, **dots)
    axes.axhline(0, color="black", lw=0.4, zorder=0)
    for value, (low, high), line in zip(one.limits, one.bounds, ("-", "--", "--"), strict=True):
        if math.isnan(value):
            continue
        axes.axhline(value, color="black", lw=0.9, ls=line, zorder=3)
        if not math.isnan(low):
            axes.axhspan(low, high, color="black", alpha=0.1, lw=0, zorder=0)


def _make_caption(pieces: Pieces, found: Sequence[Differences], settings: Settings) -> str:
    n = pieces.sized(
        [difference.pairs["case"].nunique() for difference in found], [difference.clusters for difference in found]
    )
    divided = f" by {pieces.by}" if pieces.by else ""
    text = (
        f"Bland-Altman plot on {pieces.title}{divided} ({n}): differences by the mean of both. Line: mean difference "
        "(bias); dashed: limits of agreement (bias -/+ 1.96 SD); bands: intervals of each "
        f"({interval_text(PERCENTILE, settings.level, pieces.unit)})."
    )
    if any(difference.clusters < FEWEST for difference in found):
        text += f" Without bands: too few {pieces.unit} for an interval."
    labels = {label for difference in found for label in difference.pairs["label"]}
    if pieces.by != LABEL and len(labels) > 1:
        text += f" Together: {len(labels)} measurements ({', '.join(sorted(labels))})."
    if lacking := sum(difference.lacking for difference in found):
        text += f" {lacking} measurements that one side lacks are left out."
    return text + pieces.end()

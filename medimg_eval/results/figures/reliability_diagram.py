"""Reliability diagrams: how often answers of a confidence are right, in bins of equal numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.calibration import mass_places
from medimg_eval.results.figures import style
from medimg_eval.results.figures.curve_data import CONFIDENCE, PROBABILITY, Floats, Ints, confidences, pooled
from medimg_eval.results.figures.curves import PLAIN
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import interval_text, named_range, take
from medimg_eval.results.statistics import MOST_RESAMPLES, Interval, Sample, table_intervals
from medimg_eval.results.table import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width

COUNTED = 20
"""Bars of the counts below a diagram, each of the same width."""
_TITLES = {CONFIDENCE: ("Confidence", "Share of right answers"), PROBABILITY: ("Probability", "Share that is present")}


class Bins(NamedTuple):
    """The diagram of one model; arrays are (bin,).

    Attributes:
        low: The smallest value of each bin.
        high: The largest.
        said: The mean value.
        shares: The share that is true, with its interval.
        n: How many values.
        counts: How many values in each of `COUNTED` parts of 0 to 1.
        cases: Cases that have values.
        clusters: What is resampled.
        dropped: Values that are no number.
    """

    piece: Piece
    low: Floats
    high: Floats
    said: Floats
    shares: tuple[Interval, ...]
    n: Ints
    counts: Ints
    cases: int
    clusters: int
    dropped: int


def equal_mass(values: Floats, bins: int) -> Ints:
    """Equal-mass bin of each value, from 0, with ties together.

    They are the bins of `ece_mass`: values that are equal belong to the bin of the middle of their ranks. Bins without
    a value are left out, so that there may be fewer than `bins`. `values` is (value,), without NaN.

    >>> equal_mass(np.array([0.1, 0.4, 0.2, 0.9, 0.9, 0.9]), 3).tolist()
    [0, 1, 0, 2, 2, 2]
    """
    if not values.size:
        return np.zeros(0, np.int64)
    return np.unique(mass_places(values, bins), return_inverse=True)[1].astype(np.int64)


def reliability(
    source: Source,
    *,
    by: str = "",
    label: str = "",
    bins: int = 10,
    width: Width = "single",
    settings: Settings = PLAIN,
) -> Drawn:
    """Reliability diagram, with the counts of values below.

    It is drawn from rows of "confidence" (`status` "right" or "wrong"); without any, from those of "probability"
    ("present" or "absent"), all classes together. Values are put into `bins` of equal numbers (see `equal_mass`); a
    mark stands at the mean value of a bin and the share of it that is true, with the interval that a table prints of
    such a share, the bins staying as they are. `by`, `label` and `width` are as in `box`.

    Returns:
        A frame with rows of `what` "bin" (`from`, `to`, `said`, `found`, `low`, `high`, `values`) and "count" (`from`,
        `to`, `values`: the bars below).

    Raises:
        UsageError: There are no such rows, label or attribute, `bins` is below 1, or a value is not in 0 to 1.
        UserError: There is no value to draw.

    Source: DeGroot & Fienberg, The Statistician 32, 1983; bins of equal mass as in Nguyen & O'Connor, EMNLP 2015.
    """
    if not isinstance(bins, int) or isinstance(bins, bool) or bins < 1:
        raise UsageError(f"bins must be a whole number of at least 1, got {bins!r}")
    across = style.millimetres(width)
    runs, metric = confidences(source, "reliability")
    pieces = take(runs, [metric], by=by, label=label)
    settings = settings._replace(resamples=min(settings.resamples, MOST_RESAMPLES))
    all_bins = [_make_bins(piece, metric, bins, settings) for piece in pieces.members]
    if not any(piece_bins.n.size for piece_bins in all_bins):
        raise UserError(f"No model has a value of {metric} whose truth is known, so there is nothing to draw")
    figure = _make_figure(pieces, all_bins, metric, across)
    frame = pd.concat(
        [_bin_frame(piece_bins, settings) for piece_bins in all_bins if piece_bins.n.size], ignore_index=True
    )
    return Drawn(figure, frame, _make_caption(pieces, all_bins, metric, bins, settings))


def _make_bins(piece: Piece, metric: str, bins: int, settings: Settings) -> Bins:
    stack = pooled(piece.part, metric)
    if stack.value.size and not 0 <= stack.value.min() <= stack.value.max() <= 1:
        worst = stack.value.max() if stack.value.max() > 1 else stack.value.min()
        raise UsageError(
            f"{metric} of {piece.model} goes to {worst:g}, and a reliability diagram is of values in 0 to 1"
        )
    bin_of = equal_mass(stack.value, bins)
    number, size = int(bin_of.max(initial=-1)) + 1, int(np.count_nonzero(stack.positives + stack.negatives))
    n = np.bincount(bin_of, minlength=number)
    stated = np.bincount(bin_of, weights=stack.value, minlength=number) / n
    held = [stack.value[bin_of == bin_number] for bin_number in range(number)]
    samples = [
        Sample(stack.truth[bin_of == bin_number].astype(np.float64), stack.owner[bin_of == bin_number], share=True)
        for bin_number in range(number)
    ]
    shares = table_intervals(samples, settings.bootstrap)
    edges = np.arange(1, COUNTED) / COUNTED
    counts = np.bincount(np.searchsorted(edges, stack.value, side="right"), minlength=COUNTED)
    low, high = (np.array([end(values) for values in held]) for end in (np.min, np.max))
    return Bins(piece, low, high, stated, tuple(shares), n, counts, stack.cases, size, stack.dropped)


def _bin_frame(one: Bins, settings: Settings) -> pd.DataFrame:
    unit = one.piece.part.run.unit
    edges = np.arange(COUNTED + 1) / COUNTED
    bins = {
        "what": "bin",
        "from": one.low,
        "to": one.high,
        "said": one.said,
        "found": [share.mean for share in one.shares],
        "low": [share.low for share in one.shares],
        "high": [share.high for share in one.shares],
        "values": one.n,
        "interval": [interval_text(share.method, settings.level, unit) for share in one.shares],
    }
    counts = {"what": "count", "from": edges[:-1], "to": edges[1:], "values": one.counts, "interval": "none"}
    frame = pd.concat([pd.DataFrame(bins).dropna(axis="columns", how="all"), pd.DataFrame(counts)], ignore_index=True)
    frame.insert(0, "group", one.piece.group)
    frame.insert(1, "model", one.piece.model)
    return frame.assign(n=one.cases, clusters=one.clusters)


def _make_figure(pieces: Pieces, found: Sequence[Bins], metric: str, across: float) -> Any:
    from matplotlib.lines import Line2D

    number = len(pieces.groups)
    rows, columns = style.panel_grid(number, across) if number > 1 else (1, 1)
    side = min(across / columns * 0.95, 95.0)
    texts = [style.wrapped(model) for model in pieces.models]
    with style.styled():
        figure = style.canvas(across, side * rows * 1.3 + style.legend_height(texts, across)[1] + 2)
        grid = figure.add_gridspec(2 * rows, columns, height_ratios=[4, 1] * rows)
        for index, group in enumerate(pieces.groups):
            row, column = divmod(index, columns)
            axes = figure.add_subplot(grid[2 * row, column])
            below = figure.add_subplot(grid[2 * row + 1, column], sharex=axes)
            _draw_panel(axes, below, [piece_bins for piece_bins in found if piece_bins.piece.group == group])
            axes.set_title(style.wrapped(group, 30))
            below.set_xlabel(_TITLES[metric][0])
            if column == 0:
                axes.set_ylabel(_TITLES[metric][1])
                below.set_ylabel("Values")
        handles = [Line2D([], [], color=colour, marker=marker, ls=line) for colour, marker, line in pieces.looks]
        style.add_legend(figure, handles, texts, across)
    return figure


def _draw_panel(axes: Axes, below: Axes, members: Sequence[Bins]) -> None:
    axes.plot([0, 1], [0, 1], color=style.QUIET, lw=0.5, ls=(0, (3, 2)), zorder=0)
    for member in members:
        colour, marker, line = member.piece.look
        for at, share in zip(member.said, member.shares, strict=True):
            if not np.isnan(share.low):
                axes.plot([at, at], [share.low, share.high], color=colour, lw=0.7, zorder=2, clip_on=False)
        axes.plot(
            member.said,
            [share.mean for share in member.shares],
            color=colour,
            marker=marker,
            ls=line,
            zorder=3,
            clip_on=False,
        )
        below.stairs(member.counts, np.arange(COUNTED + 1) / COUNTED, color=colour, ls=line, lw=0.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.tick_params(labelbottom=False)
    below.set_ylim(bottom=0)


def _make_caption(pieces: Pieces, found: Sequence[Bins], metric: str, bins: int, settings: Settings) -> str:
    n = pieces.sized([piece_bins.cases for piece_bins in found], [piece_bins.clusters for piece_bins in found])
    values = named_range([int(piece_bins.n.sum()) for piece_bins in found])
    divided = f" by {pieces.by}" if pieces.by else ""
    what = "answers" if metric == CONFIDENCE else "probabilities of classes"
    interval_words = [
        interval_text(share.method, settings.level, pieces.unit) for piece_bins in found for share in piece_bins.shares
    ]
    methods = " or ".join(dict.fromkeys(text for text in interval_words if not text.startswith("none")))
    lines = f"lines: its interval ({methods}), the bins held" if methods else f"no lines: too few {pieces.unit}"
    text = (
        f"Reliability on {pieces.title}{divided}: {what} in up to {bins} bins of equal numbers ({n}, {values} values). "
        f"Marks: mean value and share that is true; {lines}; dashed: perfect calibration. Below: number of values in "
        "each twentieth."
    )
    if dropped := sum(piece_bins.dropped for piece_bins in found):
        text += f" {dropped} values that are no number are left out."
    return text + pieces.end()

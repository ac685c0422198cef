"""Ranks of models over data sets: Demsar's critical-difference diagram, and how stable ranks are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import named_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from medimg_eval.results.figures.style import Width
    from medimg_eval.results.ranking import Ranking

_BAR = 2.2
"""mm between the bars of a critical-difference diagram."""
_AREA = 90.0
"""Points squared of a blob of share 1."""


def critical_difference(ranking: Ranking | pd.DataFrame, *, alpha: float = 0.05, width: Width = "single") -> Drawn:
    """Demsar's diagram: mean ranks, with bars over indistinguishable models.

    Nemenyi's test tells them apart, at the level `alpha`. `ranking` is as `rank_models` gives it; or a frame with a row
    per model and the columns `model`, `mean_rank`, `cd` (the critical difference, the same in all rows, or NaN) and `n`
    (the data sets that ranks are means over). `width` is as in `box`.

    Returns:
        A frame with a row of `what` "model" for each (`mean_rank`), of "cd" (`low`, `high`: the bar on top, `value`),
        and of "clique" for each bar below the axis (`low`, `high`, `model` its members).

    Raises:
        UsageError: The frame lacks a column.
        UserError: No model has a mean rank.

    Source: Demsar, JMLR 7, 2006.
    """
    across = style.millimetres(width)
    frame, title = _mean_ranks(ranking)
    ranks = {str(model): float(rank) for model, rank in zip(frame["model"], frame["mean_rank"], strict=True)}
    cd, n = float(frame["cd"].iloc[0]), int(frame["n"].iloc[0])
    cliques = None if isinstance(ranking, pd.DataFrame) else ranking.cliques
    bars = (
        _rank_cliques(ranks, cd)
        if cliques is None
        else [clique for clique in cliques if len(clique) > 1 and set(clique) <= set(ranks)]
    )
    with style.styled():
        figure = _draw_diagram(ranks, cd, bars, across)
    distance_text = f"Nemenyi's critical difference at {alpha:g}" if not math.isnan(cd) else "none"
    records: list[dict[str, Any]] = [
        {"what": "model", "model": model, "mean_rank": rank} for model, rank in ranks.items()
    ]
    if not math.isnan(cd):
        records.append({"what": "cd", "value": cd, "low": 1.0, "high": 1.0 + cd})
    records += [
        {
            "what": "clique",
            "model": "; ".join(bar),
            "low": min(map(ranks.__getitem__, bar)),
            "high": _worst_rank(ranks, bar),
        }
        for bar in bars
    ]
    numbers = pd.DataFrame.from_records(records).assign(n=n, interval=distance_text)
    test = (
        f"bars join models that {distance_text} of {cd:.2f} does not tell apart"
        if not math.isnan(cd)
        else "there is no test with so few models or data sets, so no bars"
    )
    over = f"n = {n} data set{'s' * (n != 1)} that all models have; 1 is best; ties share their mean"
    caption = f"{title}: mean ranks ({over}); {test}."
    return Drawn(figure, numbers, caption)


def _mean_ranks(ranking: Ranking | pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Returns `model`, `mean_rank`, `cd`, `n`, best first; and the ranked."""
    if isinstance(ranking, pd.DataFrame):
        UsageError.refuse_unknown("the frame has no column", ranking.columns, "model", "mean_rank", "cd", "n")
        frame, title = ranking, f"Ranking of {len(ranking)} models"
    else:
        friedman = ranking.friedman
        frame, title = ranking.overall.assign(cd=friedman.cd, n=friedman.data_sets), ranking.title
    frame = frame.dropna(subset=["mean_rank"]).sort_values("mean_rank", kind="stable")
    if frame.empty:
        raise UserError("No model has a mean rank, because there is no data set that all have a value in; name others")
    return frame, title


def _worst_rank(ranks: dict[str, float], bar: Sequence[str]) -> float:
    return max(ranks[model] for model in bar)


def _rank_cliques(ranks: dict[str, float], cd: float) -> list[tuple[str, ...]]:
    """Returns maximal runs of mean ranks closer than `cd`."""
    names = list(ranks)
    cliques: list[tuple[str, ...]] = []
    reached = 0
    for start, name in enumerate(names):
        end = start
        while end + 1 < len(names) and ranks[names[end + 1]] - ranks[name] < cd:
            end += 1
        if end > start and end + 1 > reached:
            cliques.append(tuple(names[start : end + 1]))
            reached = end + 1
    return cliques


def _draw_diagram(ranks: dict[str, float], cd: float, bars: Sequence[Sequence[str]], across: float) -> Any:
    names = list(ranks)
    number = len(names)
    top = 0.0 if math.isnan(cd) else 7.0
    first = top + 3.5 + _BAR * len(bars)
    half = (number + 1) // 2
    step = max([style.LINE_MM * (style.wrapped(name, 18).count("\n") + 1) + 0.9 for name in names])
    height = first + step * half + 1
    figure = style.canvas(across, height + 8)
    axes = figure.subplots()
    axes.set_xlim(1, max(number, 2))
    axes.set_ylim(height, 0)
    axes.axis("off")
    last = max(number, 2)
    axes.plot([1, last], [top, top], color="black", lw=0.8, clip_on=False)
    every = max(1, round(last / 12))
    for rank in range(1, last + 1, every):
        axes.plot([rank, rank], [top - 1, top], color="black", lw=0.8, clip_on=False)
        axes.text(rank, top - 1.3, f"{rank}", ha="center", va="bottom")
    if not math.isnan(cd):
        # Of many models on few data sets it is longer than the axis.
        axes.plot([1, 1 + cd], [1.2, 1.2], color="black", lw=1.2, clip_on=False, solid_capstyle="butt")
        for end in (1, 1 + cd):
            axes.plot([end, end], [0.5, 1.9], color="black", lw=0.8, clip_on=False)
        axes.text(1 + cd / 2, 0.6, f"CD = {cd:.2f}", ha="center", va="bottom")
    for index, name in enumerate(names):
        left = index < half
        y = first + step * ((index if left else number - 1 - index) + 0.5)
        end = 1 if left else last
        axes.plot([ranks[name], ranks[name], end], [top, y, y], color="black", lw=0.6, clip_on=False, zorder=1)
        text = f"{style.wrapped(name, 18)} ({ranks[name]:.2f})"
        aside: dict[str, Any] = {"ha": "right" if left else "left", "va": "center", "fontsize": 7}
        axes.annotate(text, (end, y), xytext=(-3 if left else 3, 0), textcoords="offset points", **aside)
    for index, bar in enumerate(bars):
        y = top + 2 + _BAR * index
        low, high = min(ranks[name] for name in bar), _worst_rank(ranks, bar)
        axes.plot([low - 0.02, high + 0.02], [y, y], color="black", lw=2.2, solid_capstyle="round", clip_on=False)
    return figure


def rank_stability(ranking: Ranking | pd.DataFrame, *, width: Width = "single") -> Drawn:
    """Blob for each model and rank, its area the share of resamples.

    It is the share of resamples in which the model has the rank. `ranking` is as `rank_models` gives it; or a frame
    with a row per model and rank: `model`, `rank`, `share` (0 to 1), `n` (cases), and `column` where there is more than
    one data set. `width` is as in `box`.

    Returns:
        A frame with `column`, `model`, `rank`, `share`, `n`, and of a `Ranking` `low` and `high` of the rank.

    Raises:
        UsageError: The frame lacks a column.
        UserError: There are no resampled ranks.

    Source: the blob plots of challengeR (Wiesenfarth et al., Sci Rep 11, 2021).
    """
    across = style.millimetres(width)
    frame, order, title = _rank_shares(ranking)
    columns = list(dict.fromkeys(frame["column"]))
    shape = style.panel_grid(len(columns), across) if len(columns) > 1 else (1, 1)
    pitch = max(max(style.wrapped(name).count("\n") + 1 for name in order) * style.LINE_MM + 0.8, 4.4)
    with style.styled():
        figure = style.canvas(across, shape[0] * (pitch * len(order) + 15))
        for index, (column, axes) in enumerate(zip(columns, style.panels(figure, len(columns), shape), strict=True)):
            _draw_blobs(axes, frame.loc[frame["column"] == column], order)
            if len(columns) > 1:
                axes.set_title(style.wrapped(column, 30))
            axes.set_yticks(range(len(order)), [style.wrapped(name) for name in order] if index % shape[1] == 0 else [])
            axes.set_xlabel("Rank")
    n = f"n = {named_range(frame['n'].tolist())}"
    lines = "; lines: 95 % interval of the rank" if "low" in frame.columns else ""
    caption = (
        f"{title}, stability of ranks ({n} cases): the area of a blob is the share of "
        f"bootstrap resamples in which the model has that rank (1 is best){lines}."
    )
    return Drawn(figure, frame, caption)


def _rank_shares(ranking: Ranking | pd.DataFrame) -> tuple[pd.DataFrame, list[str], str]:
    if isinstance(ranking, pd.DataFrame):
        UsageError.refuse_unknown("the frame has no column", ranking.columns, "model", "rank", "share", "n")
        frame = ranking if "column" in ranking.columns else ranking.assign(column="")
        mean = (frame["rank"] * frame["share"]).groupby(frame["model"]).mean().sort_values(kind="stable")
        order = [str(name) for name in mean.index]
        title = f"Ranking of {len(order)} models"
    else:
        keys = ["column", "task", "label", "metric", "model"]
        frame = ranking.distribution.merge(ranking.by_column[[*keys, "n", "low", "high"]], on=keys, how="left")
        held = set(frame["model"])
        order, title = [name for name in ranking.models if name in held], ranking.title
    if frame.empty:
        raise UserError(
            "There are no resampled ranks, because no data set has values of enough patients; name runs that have"
        )
    wanted = [name for name in ("column", "model", "rank", "share", "low", "high", "n") if name in frame.columns]
    frame = frame[wanted].sort_values(["column", "model", "rank"], key=_column_order(order), kind="stable")
    interval_words = "share of bootstrap resamples"
    return frame.reset_index(drop=True).assign(interval=interval_words), order, title


def _column_order(models: Sequence[str]) -> Any:
    """Returns a sort key of columns: models in order, ranks by size."""
    positions = {name: at for at, name in enumerate(models)}

    def key(values: pd.Series[Any]) -> pd.Series[Any]:
        if values.name == "column":
            return pd.Series(pd.factorize(values)[0], index=values.index)
        return values.map(positions) if values.name == "model" else values

    return key


def _draw_blobs(axes: Axes, frame: pd.DataFrame, order: Sequence[str]) -> None:
    ranks = max(len(order), int(frame["rank"].max()))
    for index, model in enumerate(order):
        mine = frame.loc[frame["model"] == model]
        sizes = [_AREA * share for share in mine["share"]]
        axes.scatter(
            mine["rank"], [index] * len(mine), s=sizes, color=style.PALETTE[0], alpha=0.75, linewidths=0, zorder=2
        )
        if "low" in mine.columns and len(mine) and not math.isnan(mine["low"].iloc[0]):
            ends = [mine["low"].iloc[0], mine["high"].iloc[0]]
            axes.plot(ends, [index + 0.32] * 2, color="black", lw=0.9, zorder=3)
    axes.set_xlim(0.5, ranks + 0.5)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xticks(range(1, ranks + 1, max(1, round(ranks / 10))))
    axes.grid(visible=True, axis="both", lw=0.25, color=style.QUIET, alpha=0.4)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)

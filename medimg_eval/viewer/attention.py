"""Figures of where a model looked: the weights that it gave tiles, over a picture of the slide, with its outline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.arguments import as_list
from medimg_eval.case import Array, Case, LocatedFindings
from medimg_eval.codecs import TilePlaces, attention_of, maps_of, places_of
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.run import Run
from medimg_eval.imaging import heat_of, small_picture
from medimg_eval.results import RunScores
from medimg_eval.results.figures import Drawn, canvas, drawable, figures_of, millimetres, styled, wrapped
from medimg_eval.tasks import Task
from medimg_eval.viewer.ribbons import CONFUSION, RIBBONS, TRANSITIONS, draw_films

if TYPE_CHECKING:
    from medimg_eval.results.figures import Width

KIND = "attention"

_NO_PHASES = "no run has answers of films with phases; test a model on one, such as task=phantom_films"

ANSWERED = {
    KIND: "no run holds weights of tiles with their places; test a head with attention, such as model=abmil, on one "
    "slide a case",
    RIBBONS: _NO_PHASES,
    CONFUSION: _NO_PHASES,
    TRANSITIONS: _NO_PHASES,
}
"""Kinds that are drawn from answers -> why there is nothing to draw."""

FEW = 4
"""Cases that are drawn where none are named."""

ROOM = 9.0
"""mm above a row of pictures, for the name of the case and what was said of it."""

COLUMNS = ["case", "model", "row", "column", "edge", "weight", "n", "interval"]

Load = Callable[[Path], Task]
"""Makes the task of a run's folder."""


class Looked(NamedTuple):
    """Case with its map, to be drawn.

    Attributes:
        case: its id.
        said: the most probable class or the number that was said, in words.
        picture: uint8, (row, column, 3).
        scale: level-0 pixels along the edge of one of its pixels.
        weights: (tile,).
        places: of the tiles.
        outlines: bool masks, each with the level-0 pixels along the edge of one of its pixels.
    """

    case: str
    said: str
    picture: Array
    scale: float
    weights: Array
    places: TilePlaces
    outlines: list[tuple[Array, float]]


def every_figure(
    runs: Callable[[], Sequence[RunScores]], wanted: Mapping[str, Any], load: Load
) -> Iterator[tuple[str, Drawn]]:
    """Figures of runs by file stem, from scores or answers.

    Args:
        runs: reads them.
        wanted: the keys of the command `figure`.
        load: makes the task of a run's folder.

    Raises:
        UsageError: what is asked for does not exist.
        UserError: there is nothing to draw.
    """
    kinds = list(dict.fromkeys(str(kind) for kind in as_list(wanted["kind"])))
    own = [kind for kind in kinds if kind in ANSWERED]
    other_kinds = [kind for kind in kinds if kind not in ANSWERED]
    if wanted["cases"] is not None and not own:
        raise UsageError(f"cases= is for kind={', '.join(ANSWERED)}; the other kinds are of all cases")
    read = runs() if own else runs
    if other_kinds or not kinds:
        yield from figures_of(read, {**wanted, "kind": other_kinds})
    names = None if wanted["cases"] is None else [str(case_id) for case_id in as_list(wanted["cases"])]
    for kind in own:
        drawn = 0
        for run in read if not callable(read) else ():
            if not (run.folder / "manifest.json").is_file():
                continue
            figure = _answer_figure(kind, run, load, names, wanted["width"])
            if figure is not None:
                drawn += 1
                yield f"{kind}-{slug(run.task)}-{slug(run.model)}", figure
        if not drawn:
            raise UserError(ANSWERED[kind])


def _answer_figure(kind: str, run: RunScores, load: Load, names: Sequence[str] | None, width: Width) -> Drawn | None:
    task = load(run.folder)
    if kind != KIND:
        return draw_films(kind, run, task, names, width)
    looked_cases = _looked_cases(run, task, names)
    return attention_map(looked_cases, run.model, width) if looked_cases else None


def attention_map(looked: Sequence[Looked], model: str, width: Width = "single") -> Drawn:
    """Draws outlined slides beside their tile weights.

    Colours are the share of the largest weight of the case. The frame has a row for each tile.
    """
    across = millimetres(width)
    pairs = 2 if across > 120 and len(looked) > 1 else 1
    rows = -(-len(looked) // pairs)
    each = across / (2 * pairs)
    tallest = max(looked_case.picture.shape[0] / looked_case.picture.shape[1] for looked_case in looked)
    with styled():
        figure = canvas(across, rows * (each * tallest + ROOM))
        axes = figure.subplots(rows, 2 * pairs, squeeze=False)
        for axis in axes.ravel():
            axis.set_axis_off()
        for index, looked_case in enumerate(looked):
            picture_axes, right = axes[index // pairs, 2 * (index % pairs) : 2 * (index % pairs) + 2]
            height, wide = looked_case.picture.shape[:2]
            extent = (0, wide * looked_case.scale, height * looked_case.scale, 0)
            picture_axes.imshow(looked_case.picture, extent=extent)
            picture_axes.set_title(drawable(wrapped(looked_case.case)), loc="left")
            right.imshow(looked_case.picture.mean(axis=2), extent=extent, cmap="gray", vmin=0, vmax=255)
            painted = heat_of(
                looked_case.picture.shape,
                looked_case.scale,
                looked_case.weights,
                looked_case.places.corners,
                np.asarray(looked_case.places.edge),
            )
            right.imshow(
                np.ma.masked_invalid(painted),
                extent=extent,
                cmap="viridis",
                vmin=0,
                vmax=1,
                alpha=0.75,
                interpolation="none",
            )
            right.set_title(drawable(looked_case.said), loc="left")
            for axis in (picture_axes, right):
                for mask, downsample in looked_case.outlines:
                    at = [(np.arange(side) + 0.5) * downsample for side in mask.shape]
                    axis.contour(at[1], at[0], mask, levels=[0.5], colors="#D55E00", linewidths=0.8)
    outlined = " Outlines are those of the reference." if any(looked_case.outlines for looked_case in looked) else ""
    caption = (
        f"Where {model} looked (n = {len(looked)} cases): each picture, and the weights of its tiles or cells from 0 "
        f"(dark) to its largest (bright).{outlined}"
    )
    return Drawn(
        figure, pd.concat([_attention_frame(looked_case, model) for looked_case in looked], ignore_index=True), caption
    )


def _attention_frame(one: Looked, model: str) -> pd.DataFrame:
    rows, columns = one.places.corners.T
    facts = {"edge": float(np.max(one.places.edge)), "weight": one.weights, "n": len(one.weights), "interval": ""}
    columns_ = {"case": one.case, "model": model, "row": rows, "column": columns}
    return pd.DataFrame(columns_ | facts, columns=COLUMNS)


def _looked_cases(run: RunScores, task: Task, names: Sequence[str] | None) -> list[Looked]:
    """Cases to draw: named ones, or the first, outlined first."""
    stored = Run(run.folder, run.run)
    trials = stored.trials()
    records = {
        trials[name].case: record
        for name, record in stored.predictions().items()
        if isinstance(record, Mapping) and "places" in record and {"attention", "maps"} & record.keys()
    }
    cases = {case.id: case for case in task.cases("test")}
    if names is None:
        # Only outlines and tables are looked at here, no picture is read.
        chosen = sorted((name for name in records if name in cases), key=lambda name: not _has_outlines(cases[name]))[
            :FEW
        ]
    else:
        missing = next((name for name in names if records and (name not in records or name not in cases)), None)
        if missing is not None:
            raise UsageError(
                f"{run.folder}: has no weights of tiles of case {missing!r}{nearest(missing, list(records))}"
            )
        chosen = list(names) if records else []
    return [_of_case(cases[name], records[name]) for name in chosen]


def _has_outlines(case: Case) -> bool:
    findings = case.target.read()
    return isinstance(findings, LocatedFindings) and bool(findings.outlines)


def _of_case(case: Case, record: Mapping[str, Any]) -> Looked:
    findings = case.target.read()
    outlined = findings.outlines if isinstance(findings, LocatedFindings) else {}
    maps, tile_places = maps_of(record), places_of(record)
    # Of several maps that of a class whose place is known, else that of the most probable class.
    name = next((name for name in (*outlined, *_most_probable(record), *maps) if name in maps), "")
    weights = maps[name] if maps else attention_of(record)
    if weights is None or tile_places is None:
        raise UserError(f"case {case.id!r}: its record holds no weights of tiles")
    outlines = [outlined[name]] if name in outlined else outlined.values()
    picture, scale = small_picture(case.images, tile_places.corners, np.asarray(tile_places.edge))
    return Looked(
        case.id,
        f"{name}; {_record_text(record)}" if name else _record_text(record),
        picture,
        scale,
        weights,
        tile_places,
        [(outline.mask.read().labels == outline.label, outline.downsample) for outline in outlines],
    )


def _most_probable(record: Mapping[str, Any]) -> list[str]:
    probabilities = record.get("probabilities") or {}
    return [max(probabilities, key=lambda one: probabilities[one])] if probabilities else []


def _record_text(record: Mapping[str, Any]) -> str:
    probabilities = record.get("probabilities") or {}
    for name in _most_probable(record):
        return f"said: {name} ({probabilities[name]:.2f})"
    return ", ".join(f"{name} {value:.3g}" for name, value in (record.get("risk") or {}).items())

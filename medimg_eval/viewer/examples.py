"""Examples for a paper: the worst, median and best cases with image, truth and what each model made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.imaging import WINDOWS
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.results.figures import Drawn, canvas, drawable, millimetres, styled, wrapped
from medimg_eval.results.report import PICKS, TaskCases
from medimg_eval.viewer.overlays import Grid, window_of
from medimg_eval.viewer.scene import CaseView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from medimg_eval.case import Case
    from medimg_eval.results.figures import Width

ROOM = 4.5
"""mm above and below a row of pictures, for what is written there."""

BRIGHT = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#FFFFFF")
"""Okabe and Ito's colours that are seen on dark images, and white."""

LINES: tuple[Any, ...] = ("solid", "dashed", "dotted")
"""Of labels beyond the first so many."""

VOXELS = 1 << 62
"""Volumes are drawn as they are."""


class Seen(NamedTuple):
    """Case to be drawn.

    Attributes:
        base: (row, column), or (row, column, 3) in 0 to 255.
        truth: the label map of the reference, (row, column).
        answers: of each model; None where it has none.
        ratio: height of a pixel over its width.
    """

    base: Array
    truth: Array
    answers: list[Array | None]
    ratio: float


def draw_examples(
    cases: TaskCases,
    view: CaseView,
    *,
    metric: str = "",
    picks: Sequence[str] = PICKS,
    count: int = 1,
    window: str = "",
    width: Width = "double",
) -> Drawn:
    """Returns pictures by case: image, truth and each model.

    Cases are chosen by the mean over models of a metric: the `count` worst, those about the median, and the best.
    Outlines are those of labels. Of a volume the axial slice is shown that holds most of the reference, with the
    patient's right on the left; of a case without any, the middle one.

    Args:
        cases: A segmentation task's cases under its models.
        view: What can be shown of them.
        metric: Title or name of the metric that decides and is written below; "" for the task's first.
        picks: Of `worst`, `median` and `best`.
        count: Cases of each.
        window: Of the image's modality: `soft tissue`, `lung`, `bone` or `brain` of CT; "" for the first of these, and
            for other modalities the first to the 99th percentile.
        width: "single" (89 mm), "double" (183 mm), or mm.

    Returns:
        The figure; its frame has a row per case and model with the value.

    Raises:
        UsageError: The task is no segmentation, or there is no such metric, pick or window.
        UserError: No case could be read, or none has a value.
    """
    if not view.labels:
        raise UsageError(f"task {cases.task!r} is no segmentation, so there are no outlines to draw")
    column_ = _metric_index(cases, metric)
    chosen = _choose_cases(cases, column_, picks, count)
    rows: list[tuple[str, int, Seen]] = []
    problems: list[str] = []
    for pick, at in chosen:
        try:
            case = view.case(cases.cases[at])
            if case is not None:
                rows.append((pick, at, _read_slice(case, view, list(cases.runs), window)))
        except CaseError as error:
            problems.append(str(error))
    if not rows:
        raise UserError(f"no case of task {cases.task!r} can be drawn" + (f": {problems[0]}" if problems else ""))
    column = cases.columns[column_]
    with styled():
        figure = _draw_grid(rows, cases, column_, view.labels, millimetres(width))
    frame = pd.DataFrame(
        [
            {
                "case": cases.cases[at],
                "pick": pick,
                "model": model,
                "metric": column.metric,
                "value": float(cases.numbers[number, column_, at]),
            }
            for pick, at, _ in rows
            for number, model in enumerate(cases.runs)
        ]
    )
    caption = (
        f"Cases of {column.group} by the mean of {column.title} over {len(cases.runs)} model"
        f"{'s' * (len(cases.runs) != 1)}: {', '.join(dict.fromkeys(pick for pick, _, _ in rows))}. "
        f"Outlines are labels: {', '.join(view.labels.values())}. "
        f"Left out because they cannot be read: {len(problems)}."
    )
    return Drawn(figure, frame, caption)


def _metric_index(cases: TaskCases, metric: str) -> int:
    indices = {name: index for index, column in enumerate(cases.columns) for name in (column.metric, column.title)}
    if metric and metric not in indices:
        raise UsageError(f"task {cases.task!r} has no metric {metric!r} of single cases{nearest(metric, indices)}")
    directed = [index for index, column in enumerate(cases.columns) if column.higher_is_better is not None]
    index = indices[metric] if metric else next(iter(directed), None)
    if index is None or index not in directed:
        raise UsageError(f"task {cases.task!r}: {metric or 'no metric'} says what is better, so no case is the worst")
    return index


def _choose_cases(cases: TaskCases, place: int, picks: Sequence[str], count: int) -> list[tuple[str, int]]:
    """Returns the cases of each pick by their places; none twice."""
    UsageError.refuse_invalid("pick", PICKS, *picks)
    if count < 1:
        raise UsageError(f"expected count to be at least 1, got {count}")
    values = cases.numbers[:, place]
    indices = np.flatnonzero(~np.isnan(values).any(axis=0))
    if not len(indices):
        raise UserError(f"no case of task {cases.task!r} has {cases.columns[place].title} under every model")
    means = values[:, indices].mean(axis=0)
    order = indices[np.argsort(means if cases.columns[place].higher_is_better else -means, kind="stable")].tolist()
    middle = max(0, (len(order) - count) // 2)
    ranges = {"worst": order[:count], "median": order[middle : middle + count], "best": order[-count:]}
    picked: dict[int, str] = {}
    for pick in picks:
        for at in ranges[pick]:
            picked.setdefault(at, pick)
    return [(pick, at) for at, pick in picked.items()]


def _read_slice(case: Case, view: CaseView, models: Sequence[str], window: str) -> Seen:
    """Reads a case, and cuts the slice out of it that is drawn."""
    image, reference = case.images[0].read(), view.mask(case)
    if reference is None:
        raise CaseError(f"case {case.id!r} has no label map to draw")
    grid = Grid.of(image, VOXELS)
    truth = grid.labels(reference.read())
    stored = [view.answer_mask(model, case) for model in models]
    answers = [None if answer is None else grid.labels(answer.read()) for answer in stored]
    if image.array.ndim == 3:
        flat = len(image.array) == 1
        base = (
            _window_values(grid.values(image.array[0]), image.modality, window)
            if flat
            else _colour_picture(image, grid)
        )
        return Seen(base, truth, answers, 1.0)
    if image.array.ndim != 4:
        raise CaseError(f"case {case.id!r}: an image of shape {image.array.shape} is not drawn")
    values = grid.values(image.array[0])
    counts = (truth > 0).sum(axis=(0, 1))
    level = int(np.argmax(counts)) if counts.any() else values.shape[2] // 2
    steps = np.linalg.norm(grid.affine[:3, :3], axis=0)

    def axial(array: Array) -> Array:
        return array[::-1, ::-1, level].T  # front above, the patient's right on the left

    base = axial(_window_values(values, image.modality, window))
    return Seen(
        base, axial(truth), [None if answer is None else axial(answer) for answer in answers], steps[1] / steps[0]
    )


def _colour_picture(image: Any, grid: Grid) -> Array:
    picture = as_picture(image)
    rows, columns = (count // grid.factor for count in (picture.height, picture.width))
    return np.asarray(picture.crop((0, 0, columns * grid.factor, rows * grid.factor)).reduce(grid.factor))


def _window_values(values: Array, modality: str, window: str) -> Array:
    """Returns values as grey, 0 to 255."""
    presets: Mapping[str, tuple[float, float]] = WINDOWS.get(modality, {})
    if window:
        UsageError.refuse_unknown(f"images of modality {modality or 'unknown'} have no window", presets, window)
    low, high = window_of(values)
    if presets:
        middle, wide = presets[window or next(iter(presets))]
        low, high = middle - wide / 2, middle + wide / 2
    grey: Array = (
        255 * np.clip((np.nan_to_num(values.astype(np.float64), nan=low) - low) / (high - low), 0, 1)
    ).astype(np.uint8)
    return grey


def _draw_grid(
    rows: Sequence[tuple[str, int, Seen]], cases: TaskCases, place: int, labels: Mapping[int, str], width: float
) -> Any:
    """Draws the grid; every row is as high as its pictures need."""
    column, models = cases.columns[place], list(cases.runs)
    across = (width - 2 * ROOM) / (2 + len(models))
    heights = [
        across * seen_slice.ratio * seen_slice.base.shape[0] / seen_slice.base.shape[1] + ROOM
        for _, _, seen_slice in rows
    ]
    figure = canvas(width, sum(heights) + 2 * ROOM)
    grid = figure.subplots(len(rows), 2 + len(models), squeeze=False, gridspec_kw={"height_ratios": heights})
    for of_row, (pick, at, seen_slice) in zip(grid, rows, strict=True):
        for number, axes in enumerate(of_row):
            grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 255} if seen_slice.base.ndim == 2 else {}
            axes.imshow(seen_slice.base, aspect=seen_slice.ratio, interpolation="nearest", **grey)
            axes.set(xticks=[], yticks=[])
            for side in axes.spines.values():
                side.set_visible(False)
            mask = None if number == 0 else seen_slice.truth if number == 1 else seen_slice.answers[number - 2]
            if mask is not None:
                _draw_outline(axes, mask, labels)
            if number > 1:
                value = cases.numbers[number - 2, place, at]
                axes.set_xlabel("no answer" if mask is None else f"{column.title} {column.text(value)}", labelpad=1)
        of_row[0].set_ylabel(f"{pick}\n{wrapped(cases.cases[at], 18)}")
    for axes, title in zip(grid[0], ["Image", "Truth", *models], strict=True):
        axes.set_title(wrapped(title, 20))
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_outline_colour(number), linestyle=_outline_style(number)) for number in range(len(labels))
    ]
    names = [drawable(name) for name in labels.values()]
    figure.legend(handles, names, loc="outside lower center", ncols=max(1, int(width // 28)))
    return figure


def _draw_outline(axes: Axes, mask: Array, labels: Mapping[int, str]) -> None:
    padded = np.pad(mask, 1)  # so that outlines close at the border
    axis_x, axis_y = np.arange(-1, mask.shape[1] + 1), np.arange(-1, mask.shape[0] + 1)
    for number, label in enumerate(labels):
        if (mask == label).any():
            drawn: dict[str, Any] = {
                "colors": [_outline_colour(number)],
                "linestyles": [_outline_style(number)],
                "linewidths": 0.8,
            }
            axes.contour(axis_x, axis_y, padded == label, levels=[0.5], **drawn)
    axes.set(xlim=(-0.5, mask.shape[1] - 0.5), ylim=(mask.shape[0] - 0.5, -0.5))


def _outline_colour(number: int) -> str:
    return BRIGHT[number % len(BRIGHT)]


def _outline_style(number: int) -> Any:
    return LINES[number // len(BRIGHT) % len(LINES)]

"""Significance maps drawn as SVG, without a drawing library."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.table import Map

_SQUARE = 22
_LETTER = 7
"""Width to keep free for one letter."""
_GAP = 30
_ACROSS = 3
"""Maps side by side."""
_BETTER = "#1b6e8c"
_NOT_BETTER = "#dfe6e9"
_NOT_TESTED = "#ffffff"


def to_svg(maps: Sequence[Map]) -> str:
    """Returns the maps as one picture that needs no other file.

    A dark square says that the model of its row is significantly better than that of its column, a light one that it
    is not; white is not tested.
    """
    widest = max(len(model) for drawn in maps for model in drawn.models)
    margin = widest * _LETTER + 8
    most = max(len(drawn.models) for drawn in maps)
    across = min(_ACROSS, len(maps))
    titled = max(len(drawn.title) for drawn in maps) * _LETTER
    width = max(margin + most * _SQUARE, titled) + _GAP
    height = 20 + margin + most * _SQUARE + _GAP
    legend = 34
    below = math.ceil(len(maps) / across) * height
    size = f'viewBox="0 0 {across * width} {below + legend}" width="{across * width}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" {size}>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for index, drawn in enumerate(maps):
        parts.append(f'<g transform="translate({index % across * width} {index // across * height})">')
        parts += _draw_map(drawn, margin)
        parts.append("</g>")
    for index, (colour, text) in enumerate(
        [(_BETTER, "row significantly better than column"), (_NOT_BETTER, "not significant")]
    ):
        parts.append(f'<rect x="8" y="{below + 16 * index}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="26" y="{below + 16 * index + 10}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_map(drawn: Map, margin: int) -> list[str]:
    """Returns marks of a map; `margin` is room for names."""
    top = 20 + margin
    parts = [f'<text x="4" y="14" font-weight="bold">{html.escape(drawn.title)}</text>']
    for index, model in enumerate(drawn.models):
        name = html.escape(model)
        x, y = margin + index * _SQUARE + 15, top - 5
        parts.append(f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{name}</text>')
        parts.append(f'<text x="{margin - 5}" y="{top + index * _SQUARE + 15}" text-anchor="end">{name}</text>')
    for row, (better, tested) in enumerate(zip(drawn.better, drawn.tested, strict=True)):
        for column, (is_better, is_tested) in enumerate(zip(better, tested, strict=True)):
            colour = (_BETTER if is_better else _NOT_BETTER) if is_tested else _NOT_TESTED
            parts.append(
                f'<rect x="{margin + column * _SQUARE}" y="{top + row * _SQUARE}" width="{_SQUARE - 1}" '
                f'height="{_SQUARE - 1}" fill="{colour}"/>'
            )
    return parts

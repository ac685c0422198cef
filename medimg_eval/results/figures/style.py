"""How figures look: colours, marks, sizes in millimetres, and names that fit; the same whatever the user's settings."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Width = str | float

WIDTHS = {"single": 89.0, "double": 183.0}
"""Of one and of two columns of a journal, in mm."""
PAGE = 240.0
"""mm: the height that a journal's page leaves for a figure."""
_NARROWEST, _WIDEST = 40.0, 600.0
_HIGHEST = 5_000.0
"""mm: more pixels than 2^16 cannot be drawn."""
_INCH = 25.4

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers tell apart; without their yellow, too pale for lines on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
BASELINE = "#505050"
"""A grey that colour-blind readers take for none of the palette."""
QUIET = "#767676"
"""Of lines that only guide the eye."""
PALE = "#E3E3E3"

SMALL, NORMAL, LARGE = 6.0, 7.0, 8.0
"""Sizes of letters in points."""
LINE_MM = 2.9
"""Height of one line of letters."""
NAME_LETTERS = 26

_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": NORMAL,
    "axes.titlesize": LARGE,
    "axes.labelsize": NORMAL,
    "xtick.labelsize": NORMAL,
    "ytick.labelsize": NORMAL,
    "legend.fontsize": NORMAL,
    "figure.titlesize": LARGE,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "patch.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "text.parse_math": False,
    "text.usetex": False,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "pdf.compression": 6,
    "svg.fonttype": "none",
    "savefig.dpi": 300,
    "figure.constrained_layout.w_pad": 0.04,
    "figure.constrained_layout.h_pad": 0.03,
}


class Look(NamedTuple):
    """Style of a model by three cues, not colour alone."""

    colour: str
    marker: str
    line: Any


@contextmanager
def styled(salt: str = "") -> Iterator[None]:
    """Applies the figures' style within the block.

    `salt` is what ids within an SVG are made from.
    """
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = _SETTINGS | {"svg.hashsalt": salt or "medimg_eval"}
        mpl.rcParams.update(settings)
        yield


def look(place: int, *, baseline: bool = False) -> Look:
    """Returns the style of a model by position, 70 distinct."""
    colour = BASELINE if baseline else PALETTE[place % len(PALETTE)]
    return Look(colour, MARKERS[place % len(MARKERS)], LINES[place % len(LINES)])


def millimetres(width: Width) -> float:
    """Width in mm, from "single", "double" or mm; UsageError for anything else."""
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        number = float(width)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(width, bool) or not _NARROWEST <= number <= _WIDEST:
        widths = ", ".join(f"{name} ({mm:g} mm)" for name, mm in WIDTHS.items())
        raise UsageError(f"width is {width!r}, expected {widths} or {_NARROWEST:g} to {_WIDEST:g} in mm")
    return number


def canvas(width: float, height: float) -> Figure:
    """Returns an empty figure in mm; UserError where too high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if height > _HIGHEST:
        raise UserError(f"The figure would be {height / 1000:.1f} m high; draw fewer models, or one label at a time")
    figure = Figure(figsize=(width / _INCH, height / _INCH), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def wrapped(name: str, letters: int = NAME_LETTERS) -> str:
    r"""Returns a name wrapped at words, without losing letters.

    Letters that the font lacks are spelled as their code points.

    >>> wrapped("a-very-long-name-of-a-model-v2")
    'a-very-long-name-of-a-\nmodel-v2'
    """
    lines = [""]
    for word in re.findall(r"[^\s\-_/:.,+@]*[\s\-_/:.,+@]*", drawable(name)):
        remaining = word
        if lines[-1] and len(lines[-1]) + len(remaining.rstrip()) > letters:
            lines.append("")
        while len(remaining.rstrip()) > letters:
            lines[-1], remaining = remaining[:letters], remaining[letters:]
            lines.append("")
        lines[-1] += remaining
    return "\n".join(line for line in lines if line).rstrip()


def drawable(text: str) -> str:
    """Returns a text on one line with letters that the font has."""
    letters = _font_letters()
    return "".join(
        character if ord(character) in letters else f"<U+{ord(character):04X}>" for character in " ".join(text.split())
    )


@cache
def _font_letters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def jitter(name: str) -> float:
    """Returns a name's reproducible jitter in [-1, 1).

    A case therefore lies at the same place for all models.
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") / 2**31 - 1


def legend_height(names: Sequence[str], width: float) -> tuple[int, float]:
    """Returns the number of columns of a legend, and its height in mm."""
    longest = max((len(line) for name in names for line in name.split("\n")), default=1)
    columns = max(1, min(len(names), int(width // (longest * 1.5 + 12))))
    lines = max((name.count("\n") + 1 for name in names), default=1)
    return columns, math.ceil(len(names) / columns) * lines * 3.3 + 2


def add_legend(figure: Figure, handles: Sequence[Artist], names: Sequence[str], width: float) -> None:
    """Writes a legend below everything."""
    columns, _ = legend_height(names, width)
    figure.legend(list(handles), list(names), loc="outside lower center", ncols=columns, borderpad=0.2)


def panel_grid(number: int, width: float) -> tuple[int, int]:
    """Returns rows and columns of panels, by width in mm."""
    columns = max(1, min(number, int(width // 44)))
    return math.ceil(number / columns), columns


def panels(figure: Figure, number: int, shape: tuple[int, int]) -> list[Axes]:
    """Returns axes of panels, row by row; the rest stays empty."""
    grid = figure.subplots(*shape, squeeze=False).ravel().tolist()
    for unused in grid[number:]:
        unused.remove()
    return list(grid[:number])

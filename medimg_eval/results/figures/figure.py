"""A figure with the numbers it shows, and how both are written: always the same bytes for the same numbers."""

from __future__ import annotations

import hashlib
import html
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medimg_eval.results.figures.style import PAGE, styled
from medimg_eval.results.runs import frame_to_csv
from medimg_eval.system import product

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_INCH = 25.4


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure.

    Attributes:
        figure: As matplotlib has it; it belongs to no window.
        frame: Exactly the numbers drawn, with what each rests on as `n` and what its bounds are as `interval`.
        caption: What it shows, on how many cases, and what the intervals are.
    """

    figure: Figure
    frame: pd.DataFrame
    caption: str

    def __post_init__(self) -> None:
        # Otherwise each drawing of the figure would move its parts a little.
        with styled():
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in mm."""
        width, height = self.figure.get_size_inches()
        return float(width) * _INCH, float(height) * _INCH

    @property
    def remarks(self) -> list[str]:
        """Remarks for whoever writes the figure."""
        width, height = self.size
        return [f"{width:.0f} x {height:.0f} mm is taller than a page leaves room for"] if height > PAGE else []

    def csv(self) -> str:
        """Returns the frame as CSV."""
        return frame_to_csv(self.frame)

    def _repr_html_(self) -> str:
        drawing = svg(self)
        return (
            f'<figure style="margin: 0">\n{drawing}\n<figcaption>{html.escape(self.caption)}</figcaption>\n</figure>\n'
        )


class Figures(dict[str, Drawn]):
    """Figures by their names; a notebook shows them all."""

    def _repr_html_(self) -> str:
        return "\n".join(drawn._repr_html_() for drawn in self.values())


def write_figure(drawn: Drawn, folder: str | Path, stem: str) -> list[Path]:
    """Files of a figure: .pdf, .png (300 dpi), .csv and .txt caption.

    They hold no date: the same numbers give the same bytes, with the same release of matplotlib. `folder` is made if
    needed, and `stem` is the name of the files without their ends.
    """
    folder = Path(folder)
    files = [folder / f"{stem}{suffix}" for suffix in (".pdf", ".png", ".csv", ".txt")]
    pdf, png, csv, text = files
    with styled():
        metadata = {"Subject": drawn.caption, "Creator": "medimg_eval", "CreationDate": None}
        with product(pdf) as partial:
            drawn.figure.savefig(partial, format="pdf", metadata=metadata)
        with product(png) as partial:
            metadata_ = {"Description": drawn.caption, "Software": None}
            drawn.figure.savefig(partial, format="png", dpi=300, metadata=metadata_)
    for file, content in ((csv, drawn.csv()), (text, drawn.caption + "\n")):
        with product(file) as partial:
            partial.write_text(content, encoding="utf-8")
    return files


def svg(drawn: Drawn) -> str:
    """Returns a figure as self-contained `<svg>` with real text.

    Its ids are made from its numbers, so that several figures can stand in one page.
    """
    salt = hashlib.blake2b((drawn.caption + drawn.csv()).encode(), digest_size=5).hexdigest()
    with styled(salt), io.StringIO() as stream:
        drawn.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    # matplotlib's style would otherwise hold for every drawing of a page.
    text = text.replace("<svg ", f'<svg id="f{salt}" ', 1).replace("*{stroke", f"#f{salt} *{{stroke", 1)
    # Only within tags: a model may be called anything.
    head, remaining = text.split(">", 1)
    return f"{head}>" + re.sub(r"<[^>]*>", lambda tag: _prefix_ids(tag.group(), salt), remaining)


def _prefix_ids(tag: str, salt: str) -> str:
    tag = re.sub(r'(?<=\sid=")', f"f{salt}-", tag)
    tag = re.sub(r'(?<=href="#)', f"f{salt}-", tag)
    # Where the font is missing, one of nearly the same widths.
    tag = tag.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return tag.replace("url(#", f"url(#f{salt}-")

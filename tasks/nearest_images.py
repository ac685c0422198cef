"""The pictures of a run that come nearest to a training image, side by side with it: a screen for people to look at."""

from __future__ import annotations

import base64
import csv
import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from medimg_eval.case import Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.system import whole
from medimg_eval.trust import guarded

EDGE = 256
"""Longest edge of a picture in the gallery."""

STYLE = (
    "body{font-family:sans-serif;margin:2em}div{display:inline-block;margin:0 1em 1.5em 0;vertical-align:top}"
    "img{max-width:256px;margin-right:2px}p{margin:.2em 0;max-width:520px;font-size:.85em}"
)


class Neighbours(NamedTuple):
    """A picture that was made, and the training image nearest to it.

    Attributes:
        case: whose prompt it is.
        picture: its file.
        train: the case of the training image.
        distance: between their features.
        beyond: the share of hold-out images that are no further from training.
        read: reads both, the picture first.
    """

    case: str
    picture: Path
    train: str
    distance: float
    beyond: float
    read: tuple[Callable[[], Image], Callable[[], Image]]


def write_gallery(folder: Path, extractor: str, found: Sequence[Neighbours]) -> None:
    """Writes `nearest-EXTRACTOR.csv` and `.html` into a run, which then holds training images."""
    stem = folder / f"nearest-{extractor}"
    with whole(stem.with_suffix(".csv")) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["case", "picture", "training_case", "distance", "holdout_share"])
        writer.writerows(
            map(
                guarded,
                (
                    pair.case,
                    pair.picture.relative_to(folder).as_posix(),
                    pair.train,
                    f"{pair.distance:.6g}",
                    f"{pair.beyond:.4f}",
                ),
            )
            for pair in found
        )
    title = f"Pictures nearest to training images, by {html.escape(extractor)}"
    note = (
        "Left what was made, right the nearest training image. Below, how many of the hold-out images, which nobody "
        "trained on, are as near to a training image: where none is, look for a copy."
    )
    pairs = "\n".join(_pair_html(pair) for pair in found)
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"</head>\n<body><h1>{title}</h1>\n<p>{note}</p>\n{pairs}\n</body></html>\n"
    )
    with whole(stem.with_suffix(".html")) as partial:
        partial.write_text(text, encoding="utf-8")


def _pair_html(one: Neighbours) -> str:
    pictures = "".join(_image_html(read) for read in one.read)
    caption = (
        f"{html.escape(one.case)} &middot; {html.escape(one.train)} &middot; distance {one.distance:.4g} &middot; "
        f"{100 * one.beyond:.1f} % of hold-out images"
    )
    return f"<div>{pictures}<p>{caption}</p></div>"


def _image_html(read: Callable[[], Image]) -> str:
    try:
        picture = as_picture(read())
    except CaseError as error:
        return f"<p>{html.escape(str(error))}</p>"
    picture.thumbnail((EDGE, EDGE))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}">'

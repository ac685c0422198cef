"""`readers`: a blinded form for readers who tell real from generated images, and what comes back of it, scored."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from medimg_eval.arguments import as_list, grouped
from medimg_eval.commands.console import printer, say, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.results.agreement import GENERATED, ORIGIN, REAL
from medimg_eval.trust import guarded

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_TAKEN = frozenset(["reader", "item", ORIGIN, "truth", "file", "comment", "study"])


@dataclass(frozen=True)
class Item:
    """One image of a form."""

    name: str
    truth: str
    file: Path
    picture: Picture


def run(config: DictConfig) -> None:
    """Writes a form, or scores filled sheets.

    Raises:
        UsageError: what is asked for is invalid.
        UserError: there are no images, or a sheet cannot be understood.
    """
    wanted = plain(config)
    if wanted["score"] is not None:
        _score_readers(wanted)
        return
    missing = [name for name in ("out", "real", "generated") if wanted[name] is None]
    if missing:
        raise UsageError(f"a form needs {' and '.join(f'{name}=FOLDER' for name in missing)}; or add score=FILLED.csv")
    _write_form(wanted)


def _write_form(wanted: Mapping[str, Any]) -> None:
    out = Path(str(wanted["out"])).expanduser()
    questions = _parse_questions(wanted["questions"])
    scale, number, side, seed = (_whole_number(wanted, name) for name in ("scale", "number", "side", "seed"))
    if scale < 2 or number < 1 or side < 16:
        raise UsageError("a form needs scale of at least 2, number of at least 1 and side of at least 16")
    key = out.with_name(f"{out.name}-key.csv") if wanted["key"] is None else Path(str(wanted["key"])).expanduser()
    if key.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{key} would lie among what readers get; name a key outside {out}")
    if key.exists():
        raise UserError(f"{key} is there already, and forms that use it may be out; name another key or remove it")
    random = np.random.default_rng(seed)
    drawn = [
        (truth, file)
        for truth, name in ((REAL, "real"), (GENERATED, "generated"))
        for file in _draw_images(Path(str(wanted[name])).expanduser(), number, random)
    ]
    order = random.permutation(len(drawn))
    pictures = [_read_picture(file, side) for _, file in drawn]
    items = [Item(f"{index + 1:03d}", drawn[at][0], drawn[at][1], pictures[at]) for index, at in enumerate(order)]
    out.mkdir(parents=True, exist_ok=True)
    stored = [_encode_picture(item.picture) for item in items]
    study = hashlib.sha256(b"".join(stored)).hexdigest()[:12]
    (out / "form.html").write_text(_reader_form(items, stored, study, questions, scale), encoding="utf-8")
    columns = ["reader", "item", ORIGIN, *questions, "comment"]
    blank = [""] * (len(columns) - 2)
    _write_rows(out / "sheet.csv", [*columns, "study"], [["", item.name, *blank, study] for item in items])
    _write_rows(
        key, ["item", "truth", "file", "study"], [[item.name, item.truth, str(item.file), study] for item in items]
    )
    console = printer()
    counts = Counter(item.truth for item in items)
    text = f"{out}: {counts[REAL]} real and {counts[GENERATED]} generated images; {key} says which is which"
    say(console, text)
    for doubt in [*_find_doubts(items), *_find_repeats(items, stored)]:
        say(console, f"! {doubt}")


QUESTIONS = {
    "quality": "How good is the image technically?",
    "realism": "How real does what it shows look?",
    "utility": "How useful would it be for a clinical decision?",
}
"""What readers grade where nothing else is asked."""


def _parse_questions(given: Any) -> dict[str, str]:
    if given is None:
        return QUESTIONS
    if isinstance(given, str):
        given = _read_questions(Path(given).expanduser())
    if not isinstance(given, dict):
        raise UsageError(f"expected questions to be name: wording, got {given!r}")
    for name in given:
        if not _NAME.fullmatch(str(name)) or name in _TAKEN:
            raise UsageError(f"a question cannot be called {name!r}; take letters and digits, and none of the columns")
    return {str(name): str(text or name) for name, text in given.items()}


def _read_questions(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise UserError(f"{file}: cannot be read; expected YAML of name: wording, one question per line") from None


def _whole_number(wanted: Mapping[str, Any], name: str) -> int:
    value = wanted[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"expected a whole number for {name}, got {value!r}")
    return value


def _draw_images(folder: Path, number: int, random: np.random.Generator) -> list[Path]:
    """Draws images of a folder; raises UserError where it holds none."""
    from medimg_eval.imaging.formats import identify
    from medimg_eval.system import walk

    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    files = []
    for name in sorted(name for name, state in walk(folder) if state is not None):
        try:
            family = identify(folder / name)
        except CaseError:
            continue  # notes and tables lie beside images
        if family in ("picture", "dicom", "volume"):
            files.append(folder / name)
    if not files:
        raise UserError(f"{folder}: holds no image; expected pictures, DICOM or volumes")
    chosen = random.permutation(len(files))[:number]
    return [files[at] for at in sorted(chosen)]


def _read_picture(file: Path, side: int) -> Picture:
    """Image for readers: pixels only, middle slice, at most `side` long."""
    from dataclasses import replace

    from PIL.Image import Resampling

    from medimg_eval.imaging import read
    from medimg_eval.imaging.pictures import as_picture

    image = read(file)
    if image.array.ndim == 4:
        middle = image.array[..., image.array.shape[-1] // 2]
        image = replace(image, array=np.flip(middle.swapaxes(1, 2), axis=1), valid=None)
    picture = as_picture(image)
    picture.thumbnail((side, side), Resampling.LANCZOS, reducing_gap=None)
    return picture


def _find_doubts(items: Sequence[Item]) -> list[str]:
    """Signs that would tell readers the truth without a look at the images."""
    doubts = []
    for what, of in (
        ("sizes", lambda one: "x".join(map(str, one.picture.size))),
        ("formats", lambda one: one.file.suffix.lower()),
    ):
        kinds = {truth: Counter(of(item) for item in items if item.truth == truth) for truth in (REAL, GENERATED)}
        # Those that both kinds have, as far as they have them equally often, tell nothing.
        shares = [{name: n / kind.total() for name, n in kind.items()} for kind in kinds.values()]
        if sum(min(share, shares[1].get(name, 0)) for name, share in shares[0].items()) < 0.5:
            described = [", ".join(name for name, _ in kinds[truth].most_common(3)) for truth in (REAL, GENERATED)]
            doubts.append(f"the {what} tell real from generated ({described[0]}; {described[1]}): prepare both alike")
    return doubts


def _find_repeats(items: Sequence[Item], stored: Sequence[bytes]) -> list[str]:
    """Warns of pixel-identical images in a form."""
    by_data = grouped((data, item) for item, data in zip(items, stored, strict=True))
    twice = [repeats for repeats in by_data.values() if len(repeats) > 1]
    if not twice:
        return []
    names = ", ".join(str(item.file) for item in twice[0])
    return [f"images are in the form twice, pixel for pixel ({len(twice)}), such as {names}: remove the others"]


def _encode_picture(picture: Picture) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "png")
    return stream.getvalue()


def _write_rows(file: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(map(guarded, row) for row in [columns, *rows])


def _reader_form(
    items: Sequence[Item], stored: Sequence[bytes], study: str, questions: Mapping[str, str], scale: int
) -> str:
    """Self-contained page, without requests, that saves answers as CSV."""
    parts = []
    for item, data in zip(items, stored, strict=True):
        url = base64.b64encode(data).decode()
        parts.append(
            f'<section><h2>Image {item.name}</h2><img alt="image {item.name}" src="data:image/png;base64,{url}">'
            + _choice_html(item.name, ORIGIN, "Is this image real or generated?", [REAL, GENERATED])
            + "".join(
                _choice_html(item.name, name, text, [str(grade + 1) for grade in range(scale)])
                for name, text in questions.items()
            )
            + f'<label>Comment <input data-item="{item.name}" data-column="comment"></label></section>'
        )
    setup = {
        "items": [item.name for item in items],
        "columns": [ORIGIN, *questions, "comment"],
        "study": study,  # browsers keep what all pages of a folder store in one place
    }
    page = (resources.files(__package__) / "static" / "readers.html").read_text(encoding="utf-8")
    page = page.replace("@SCALE@", str(scale)).replace("@SETUP@", json.dumps(setup))
    return page.replace("@ITEMS@", "\n".join(parts))


def _choice_html(item: str, column: str, text: str, options: Sequence[str]) -> str:
    buttons = "".join(
        f'<label><input type="radio" name="{item}-{column}" value="{option}" data-item="{item}" data-column="{column}">'
        f"{option}</label>"
        for option in options
    )
    return f"<fieldset><legend>{html.escape(text)}</legend>{buttons}</fieldset>"


def _score_readers(wanted: Mapping[str, Any]) -> None:
    from medimg_eval.results import write_all
    from medimg_eval.results.agreement import read_readings, score_readers

    if wanted["key"] is None:
        raise UsageError("filled sheets are scored beside the key; add key=FILE")
    files = [Path(str(file)).expanduser() for file in as_list(wanted["score"])]
    readings = read_readings(files, Path(str(wanted["key"])).expanduser(), scale=_whole_number(wanted, "scale"))
    study = score_readers(readings, level=wanted["level"])
    for name, sheet in study.items():
        show_sheets([sheet])
        if wanted["out"] is not None:
            say_written(write_all(sheet, Path(str(wanted["out"])).expanduser(), stem=f"readers-{name}"))

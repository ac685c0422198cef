"""What is right: the entry of the answer key, out of every way that benchmarks write it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from medimg_eval.case import Geometry, Image, Reference
from medimg_eval.data.questions.options import LETTERS, PREFIX, form_of
from medimg_eval.data.questions.records import MISSING, Record, as_text, bracketed, names_in, said_nothing
from medimg_eval.data.records import Unreadable, below
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import read_mask
from medimg_eval.metrics.text import cleaned
from medimg_eval.question import Key, Kind

KINDS: tuple[Kind, ...] = get_args(Kind)

BY_ANSWER = "by_answer"
"""A kind that is `yes_no` where the answer is yes or no, and `open` elsewhere."""

YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no", "是": "yes", "是的": "yes", "不是": "no", "否": "no"}

FORMS = {
    "letter": {"from"},
    "index": {"from"},
    "text": set(),
    "either": set(),
    "value": {"box", "scale", "key", "name", "join", "clean", "words"},
    "labels": {"names"},
}
"""The ways to say what is right: the key that tells them apart -> the keys that go with it, and `absent` with all."""

ABSENT = ("fail", "leave_out")
"""What becomes of a record that does not say what is right: a case that fails, or none."""


def check_answer(config: Mapping[str, Any]) -> None:
    """Refuses unknown forms of answers; UsageError names the key."""
    form = form_of(config, FORMS, "answer")
    unknown = next((key for key in config if form and key not in (form, "absent", *FORMS[form])), None)
    if unknown is not None:
        raise UsageError(f"task.layout.answer of {form!r} has no key {unknown!r}{nearest(unknown, FORMS[form])}")
    for key, allowed in (("box", ("xyxy", "xywh")), ("scale", ("pixels", "percent", "unit")), ("absent", ABSENT)):
        UsageError.refuse_invalid(f"task.layout.answer.{key}", allowed, config.get(key, allowed[0]))


def check_kind(config: Any) -> None:
    """Raises UsageError for unknown kinds.

    It may be a kind, `by_answer`, or `{column: ..., kinds: ...}`.
    """
    if isinstance(config, Mapping) and not config.get(BY_ANSWER):
        if not config.get("column") or not isinstance(config.get("kinds"), Mapping):
            raise UsageError(f"task.layout.kind is {dict(config)!r}, expected a kind, {BY_ANSWER}, or column and kinds")
        wanted = list(config["kinds"].values())
    else:
        wanted = [BY_ANSWER if isinstance(config, Mapping) else config]
    UsageError.refuse_invalid("task.layout.kind", (*KINDS, BY_ANSWER), *wanted)


def answer_names(config: Mapping[str, Any]) -> list[str]:
    """The fields of records that the answer is read from."""
    form = form_of(config, FORMS, "answer")
    return names_in(config[form]) if form else []


def kind_of(config: Any, record: Record, answer: Mapping[str, Any]) -> Kind:
    """Kind of a question, by its config and answer config.

    Raises CaseError where the record's column holds a value that is given no kind.
    """
    if isinstance(config, Mapping) and "column" in config:
        word, kinds = record.text(config["column"]), {as_text(name): kind for name, kind in config["kinds"].items()}
        if word not in kinds:
            kinds_text = ", ".join(kinds)
            raise record.error(
                f"column {config['column']!r} holds {word!r}, of which no kind is known ({kinds_text} are)"
            )
        config = kinds[word]
    if config == BY_ANSWER or (isinstance(config, Mapping) and config.get(BY_ANSWER)):
        return "yes_no" if yes_no(as_text(_raw_answer(answer, record))) else "open"
    return cast("Kind", config)


def yes_no(text: str) -> str | None:
    """`yes` or `no` where a text says exactly this; else None."""
    return YES_NO.get(text.strip().rstrip(".。!").strip().lower())


def _raw_answer(config: Mapping[str, Any], record: Record) -> Any:
    form = form_of(config, FORMS, "answer")
    if not form:
        return None
    pattern = config[form]
    return record.fill(pattern) if "{" in pattern else record.value(pattern)


def is_absent(config: Mapping[str, Any], record: Record) -> bool:
    """Whether a record lacks its answer and is dropped."""
    if record.fault or config.get("absent") != "leave_out":
        return False
    raw = _raw_answer(config, record)
    return said_nothing(raw) or raw == []


def value_of(config: Mapping[str, Any], record: Record, kind: Kind, options: Mapping[str, str]) -> Any:
    """Record's answer as `medimg_eval.question.Key` holds it.

    Raises CaseError where the record does not say, or says something that is not possible.
    """
    form = form_of(config, FORMS, "answer")
    if not form:
        return None
    raw = _raw_answer(config, record)
    if said_nothing(raw) or raw == []:
        raise record.error(f"the answer {config[form]!r} is empty")
    if kind in ("choice", "choices") and form == "value":
        raise UsageError(f"task.layout.answer.value is for answers that are no choice, and the kind is {kind!r}")
    if kind == "choices":
        several = bracketed(raw)
        parts = several if isinstance(several, list | tuple) else _split_answers(str(several), options)
        return tuple(dict.fromkeys(_answer_letter(form, config, part, record, options) for part in parts))
    if form != "value" and (kind == "choice" or (kind == "yes_no" and options)):
        if isinstance(raw, list) and len(raw) != 1:
            raise record.error(f"names {len(raw)} right options, expected one; set kind: choices")
        letter = _answer_letter(form, config, raw[0] if isinstance(raw, list) else raw, record, options)
        return _yes_no(options[letter], record) if kind == "yes_no" else letter
    return _report_of(config, raw, record) if kind == "report" else _of_kind(config, raw, record, kind)


def _split_answers(text: str, options: Mapping[str, str]) -> list[str]:
    parts = [part for part in re.split(r"[\s,;/&、，；]+", text) if part]
    if len(parts) == 1 and parts[0] not in options and all(letter in options for letter in parts[0]):
        return list(parts[0])
    return parts


def _answer_letter(form: str, config: Mapping[str, Any], raw: Any, record: Record, options: Mapping[str, str]) -> str:
    if not options:
        raise record.error("has no options, so the answer is none of them")
    text = as_text(raw)
    letter: str | None = None
    if form in ("letter", "either"):
        bare = text.strip("().: ")
        letter = next((letter for letter in (text, bare, bare.upper(), bare.lower()) if letter in options), None)
    if letter is None and (form == "index" or "from" in config):
        letter = _by_index(text, int(config.get("from", 0)), options)
    if letter is None and form in ("text", "either"):
        letter = by_text(text, options)
    if letter is None:
        choices = ", ".join(f"{letter}: {text:.40}" for letter, text in options.items())
        raise record.error(f"the answer {text!r:.80} is not among the options ({choices}); mend the record")
    return letter


def _by_index(said: str, first: int, options: Mapping[str, str]) -> str | None:
    if not re.fullmatch(r"\d+(\.0)?", said):
        return None
    index = int(float(said)) - first
    # An index counts the options as they were written, of which empty ones are left out here.
    return LETTERS[index] if 0 <= index < len(LETTERS) and LETTERS[index] in options else None


def by_text(said: str, options: Mapping[str, str]) -> str | None:
    """Letter of the option equal to a text, loosely.

    The first of options with the very same text is taken; one that is only like two different ones is none of them.
    """
    for normalise in (str, plain):
        letters = [letter for letter, text in options.items() if normalise(text) == normalise(said)]
        if letters:
            return letters[0] if len({options[letter] for letter in letters}) == 1 else None
    prefixed = PREFIX.fullmatch(said)
    if prefixed:
        letter = (prefixed[1] or prefixed[2]).upper()
        if letter in options and plain(prefixed[3]) == plain(options[letter]):
            return letter
    return None


def plain(text: str) -> str:
    """Text normalised in case, width, blanks and final full stop."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(". ")


def _yes_no(raw: Any, record: Record) -> str:
    answer = yes_no(as_text(raw))
    if answer is None:
        raise record.error(f"the answer {as_text(raw)!r:.60} is neither yes nor no")
    return answer


def _of_kind(config: Mapping[str, Any], raw: Any, record: Record, kind: Kind) -> Any:
    if kind == "yes_no":
        return _yes_no(raw[0] if isinstance(raw, list) and len(raw) == 1 else raw, record)
    value = bracketed(raw)
    if kind == "open":
        several = (
            [as_text(item) for item in value if as_text(item)] if isinstance(value, list | tuple) else [as_text(raw)]
        )
        if not several:
            raise record.error(f"the answer {as_text(raw)!r:.60} holds no text")
        return tuple(several) if isinstance(value, list | tuple) else several[0]
    if kind == "number":
        return _answer_number(raw, record)
    if kind in ("box", "point"):
        return _answer_boxes(value, record)
    if kind == "regions" and isinstance(value, list):
        return _answer_regions(value, config, record)
    if kind in ("regions", "grades", "boxes3d") and not (isinstance(value, Mapping) or "labels" in config):
        raise record.error(f"the answer {as_text(raw)!r:.60} is no object of names and values")
    return value


def _report_of(config: Mapping[str, Any], raw: Any, record: Record) -> str | tuple[str, ...]:
    """Reference reports, cleaned or cut as benchmarks do."""
    several = [text for item in (raw if isinstance(raw, list | tuple) else [raw]) if (text := as_text(item))]
    if "join" in config:
        several = [str(config["join"]).join(several)] if several else []
    if "clean" in config:
        several = [cleaned(text, str(config["clean"])) for text in several]
    if "words" in config:
        several = [" ".join(text.split()[: int(config["words"])]) for text in several]
    if not several:
        raise record.error(f"the answer {as_text(raw)!r:.60} holds no text")
    return several[0] if "join" in config or not isinstance(raw, list | tuple) else tuple(several)


def _answer_regions(value: Sequence[Any], config: Mapping[str, Any], record: Record) -> dict[str, str]:
    names = [str(config.get(part, "")) for part in ("key", "name")]
    bad = next(
        (item for item in value if not isinstance(item, Mapping) or any(name not in item for name in names)), None
    )
    if bad is not None:
        raise record.error(f"the answer holds {bad!r:.60}, expected objects with {names[0]!r} and {names[1]!r}")
    return {as_text(item[names[0]]): as_text(item[names[1]]) for item in value}


def _answer_boxes(value: Any, record: Record) -> Any:
    """Boxes of four numbers each, from a list or text."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return tuple(_answer_boxes(item, record) for item in value)
    numbers = value if isinstance(value, list | tuple) else re.findall(r"-?(?:\d+\.?\d*|\.\d+)", as_text(value))
    if not numbers or len(numbers) % 4:
        raise record.error(f"the box {as_text(value)!r:.60} is not of four numbers")
    numbers_ = [_answer_number(number, record) for number in numbers]
    boxes = tuple(tuple(numbers_[start : start + 4]) for start in range(0, len(numbers_), 4))
    return boxes if len(boxes) > 1 else boxes[0]


def _answer_number(raw: Any, record: Record) -> float:
    match = re.fullmatch(r"\s*(-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?:%|[a-zA-Z°µ][\w^/°µ³²]*)?\s*", as_text(raw))
    if match is None:
        raise record.error(f"the answer {as_text(raw)!r:.60} is no number")
    return float(match[1])


@dataclass(frozen=True, eq=False, slots=True)
class KeyOf:
    """Answer key entry, placed once the image size is known.

    `value` is as `Key` has it, but for the box; `more` goes beside it. `config` tells how a box is said; `sized` gives
    a name in `more` the (width, height) of the image of a place; of `labels`, the boxes are the value.
    """

    value: Any
    record: Record
    more: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[Reference[Image], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    sized: Mapping[str, int] = field(default_factory=dict)
    labels: LabelBoxes | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of the record, and the label map."""
        return (self.record.path,) if self.labels is None else (self.record.path, self.labels.path)

    def read(self) -> Key:
        """The entry, sized by its image where needed; else CaseError."""
        sizes = {name: self._size(key) for name, key in self.sized.items()}
        value: Any = self.value if self.labels is None else self.labels.read()
        if "box" in self.config or "scale" in self.config:
            value = _place_box(value, self.config, lambda: self._size(0))
        return Key(value, {**self.more, **sizes})

    def geometry(self) -> Geometry:
        """The grid of the first image."""
        if not self.images:
            raise self.record.error("belongs to no image, so it has no grid")
        return self.images[0].geometry()

    def _size(self, place: int) -> tuple[int, int]:
        if not -len(self.images) <= place < len(self.images):
            raise self.record.error(f"has no image {place}, whose size is asked for")
        rows, columns = self.images[place].geometry().shape
        return columns, rows


def _place_box(box: Sequence[Any], config: Mapping[str, Any], size: Callable[[], tuple[int, int]]) -> tuple[Any, ...]:
    if isinstance(box[0], tuple):
        return tuple(_place_box(item, config, size) for item in box)
    x1, y1, x2, y2 = box
    if config.get("box") == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if config.get("scale", "pixels") == "pixels":
        return x1, y1, x2, y2
    full = 100.0 if config["scale"] == "percent" else 1.0
    width, height = size()
    return x1 / full * width, y1 / full * height, x2 / full * width, y2 / full * height


@dataclass(frozen=True, eq=False)
class Faulty(Unreadable):
    """Placeholder for a faulty record's truth, with the repair message."""

    record: Record
    message: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of the record."""
        return (self.record.path,)


def labels_of(config: Mapping[str, Any], record: Record, root: Path) -> LabelBoxes | None:
    """The label map that `{labels: ..., names: {label: name}}` describes, if it does."""
    if "labels" not in config:
        return None
    names = {int(label): str(name) for label, name in config.get("names", {}).items()}
    return LabelBoxes(below(root, record.fill(config["labels"])), names)


def more_of(config: Mapping[str, Any], record: Record) -> tuple[dict[str, Any], dict[str, int]]:
    """Facts beside an answer; image sizes by `{size: image}`.

    `{size: image 2}` is that of the second image.
    """
    further: dict[str, Any] = {}
    sized: dict[str, int] = {}
    for name, stated in config.items():
        of_image = re.fullmatch(r"image(?: (\d+))?", stated) if isinstance(stated, str) else None
        if of_image:  # even where a column is called so, as many are
            sized[name] = int(of_image[1] or 1) - 1
        elif not isinstance(stated, str):
            further[name] = stated
        elif "{" in stated:
            further[name] = record.fill(stated)
        elif record.find(stated) is not MISSING:
            further[name] = record.value(stated)
    return further, sized


@dataclass(frozen=True)
class LabelBoxes:
    """Boxes around a volume's labels, by label name."""

    path: Path
    names: Mapping[int, str]

    def read(self) -> dict[str, tuple[int, ...]]:
        """Name -> (x1, y1, z1, x2, y2, z2), voxel indices, ends exclusive.

        Labels that the map does not hold have no box. Raises CaseError where it cannot be read, or holds none of the
        labels.
        """
        labels = read_mask(self.path).labels
        boxes = {}
        for label, name in self.names.items():
            there = np.argwhere(labels == label)
            if len(there):
                boxes[name] = (*map(int, there.min(0)), *map(int, there.max(0) + 1))
        if not boxes:
            wanted = ", ".join(f"{label} ({name})" for label, name in self.names.items())
            raise CaseError(f"{self.path}: holds none of the labels {wanted}")
        return boxes

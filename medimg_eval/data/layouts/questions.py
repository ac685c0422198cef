"""Questions about images: records of any form, what is asked, what may be chosen from, and what is right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Geometry, Reference
from medimg_eval.data.layouts.base import existing_root
from medimg_eval.data.questions.answers import (
    Faulty,
    KeyOf,
    answer_names,
    check_answer,
    check_kind,
    is_absent,
    kind_of,
    labels_of,
    more_of,
    value_of,
)
from medimg_eval.data.questions.expand import ROTATE, expanded
from medimg_eval.data.questions.indexing import QuestionIndex, index_of
from medimg_eval.data.questions.options import check_options, option_names, options_of, within_text
from medimg_eval.data.questions.pictures import (
    Picture,
    Pictures,
    cell_columns,
    content_of,
    pattern_of,
    places_of,
    pointed,
    specs_of,
)
from medimg_eval.data.questions.records import MISSING, Record, check_names, names_in
from medimg_eval.data.questions.sources import Source, fingerprints
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError
from medimg_eval.question import Question
from medimg_eval.system import uncollected
from medimg_eval.tasks.base import Layout

IMAGE_COUNT = "image_count"
"""An attribute that is no field of records: how many images a question has."""

IMAGE_CONTENT = "image_content"
"""A patient that is no field of records: what the first image holds, for tables that repeat it for each question."""

NO_FIELDS = (IMAGE_COUNT, IMAGE_CONTENT)
"""What a config may name that is no field of records."""

_NOTHING: dict[str, Any] = {}
"""Shared by the records that have nothing of a kind: a million empty ones of each take half a gigabyte."""


@dataclass(kw_only=True)
class Questions(Layout):
    """Records that each ask something, with or without images; see docs/data/questions.md.

    A record that is wrong (a right answer that is not among the options, an empty question, an id that occurs twice)
    becomes a case without a question, whose target says what is wrong when it is read; the others go on.

    Args:
        records: the file below the root, a pattern with `*`, or a list of these, one after the other; or split -> such.
        at: where records lie in a JSON file, such as `questions` or `*.test`; or split -> such.
        literal: columns that hold a JSON or Python literal.
        separator: between the fields of a text table; by its ending when empty.
        header: names of the columns, of text tables whose first line is a record.
        expand: what is made of records before they are questions; see `medimg_eval.data.questions.expand.expanded`.
            The step `rotate_options` asks each question once for each rotation of its options: of the n-th, the first
            letter has the text of the n-th option. They are called `id.0`, `id.1`, ..., and are a set.
        id: the column of the case id, or a pattern; the file's stem and the record's number when empty.
        repeated_id: what a record is whose id was given before: `refuse` makes a failed case of it; `number` a
            question of its own, `id#2`, in a set of its own, for tables that give two questions one number.
        kind: what an answer is; `by_answer` for yes or no where that is right and open elsewhere; or `{column: ...,
            kinds: {value: kind}}`.
        question: the column of the question, or a pattern; or `{text: what is asked of all}`.
        options: what may be chosen from; see `medimg_eval.data.questions.options.FORMS`.
        answer: what is right; see `medimg_eval.data.questions.answers.FORMS`. Nothing where only a judge can say. With
            `absent: leave_out`, records that do not say it are left out; `left_out` names them.
        more: what rules of scoring need beside it: name -> column or pattern; `image` for (width, height) of the first.
        images: where images lie; see `medimg_eval.data.questions.pictures.FORMS`.
        min_images: images that a question must have, of a layout that has any; 0 where some are asked without.
        max_side: pixels that an image's longer side is brought down to; 0 to leave it.
        min_side: questions with an image of a shorter side are left out, as their authors do; `left_out` names them.
        fields: what templates may name: name -> column or pattern.
        attributes: for subgroup tables: name -> column or pattern, or `image_count`.
        set: pattern that is the same for the members of a set, which are judged together.
        order: the column of their order within a set.
        patient: the column of whom intervals resample, or a pattern; by default the set, else the image where several
            questions share one; `image_content` for tables that hold an image again for each of its questions.
        only: a regular expression that is found in the ids of the cases that are meant.
        modality: DICOM code of the images, where their files say none.
        reading: passed to the reader of images.
    """

    root: str
    records: str | Sequence[str] | Mapping[str, Any]
    at: str | Mapping[str, str] = ""
    literal: Sequence[str] = ()
    separator: str = ""
    header: Sequence[str] = ()
    expand: Sequence[Any] = ()
    id: str = ""
    repeated_id: Literal["refuse", "number"] = "refuse"
    kind: Any = "choice"
    question: str | Mapping[str, str] = "question"
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    images: Any = ()
    min_images: int = 1
    max_side: int = 0
    min_side: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    set: str = ""
    order: str = ""
    patient: str = ""
    only: str = ""
    modality: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid settings, before any file is read."""
        self._left_out: dict[str, str] = {}
        check_options(self.options)
        check_answer(self.answer)
        check_kind(self.kind)
        if self.repeated_id not in ("refuse", "number"):
            raise UsageError(f"task.layout.repeated_id is {self.repeated_id!r}; expected refuse or number")
        self._specs = specs_of(self.images)
        self._rotates = any(step == ROTATE or (isinstance(step, Mapping) and ROTATE in step) for step in self.expand)

    def cases(self, split: str) -> Sequence[Case]:
        """The cases of one split, in the order of their records; members of a set stand together.

        Where nothing says which record belongs to which split, all of them serve any. Those of large files are read
        once, and then found by an index in the user's cache.

        Raises:
            SplitError: there is no such split.
            UserError: the root or a file is missing, no record has a field that is named, or no record is left.
        """
        root = self.folder()
        with uncollected():
            index = self._index(root, split)
            if index is None:
                return self._read(root, split)
            stored = index.cases(lambda: self._stream(root, split), lambda: self._left_out)
            if stored is None:
                return self._read(root, split)
        self._left_out = dict(stored.left_out)
        return stored

    def _index(self, root: Path, split: str) -> QuestionIndex | None:
        if type(self) is not Questions:  # what others make of records, the index does not know
            return None
        settings = {own.name: getattr(self, own.name) for own in fields(self)}
        return index_of(settings, self._source(root, split), root)

    def _stream(self, root: Path, split: str) -> Iterable[Case]:
        """The cases one by one, of which memory need not hold more, where no step looks at several."""
        alone = not (self._looks_at_all or self._rotates or self.set)
        # Without a patient, cases that share an image are told from all of them.
        if not alone or not (self.patient or not self._specs):
            return self._read(root, split)
        return (case for case in self._each_case(root, split) if re.search(self.only, case.id))

    @property
    def _looks_at_all(self) -> bool:
        """Whether steps look at all records before any is a case."""
        return bool(self.expand or self.answer.get("absent") or any("pointer" in spec for spec in self._specs))

    def _each_case(self, root: Path, split: str) -> Iterator[Case]:
        source = self._source(root, split)
        records = self._records(source, root, split) if self._looks_at_all else self._each(source, root)
        pictures = Pictures(root, self._specs, self.modality, dict(self.reading), self.max_side)
        # Each record goes when it is a case, which holds no more of it than it needs.
        return (self._case_of(record, pictures) for record in records)

    def _read(self, root: Path, split: str) -> list[Case]:
        cases = list(self._each_case(root, split))
        cases = _told_apart(cases, number=self.repeated_id == "number")
        if self._rotates:
            cases = _told_apart([rotated for case in cases for rotated in _rotate_options(case)])
        cases = [case for case in cases if re.search(self.only, case.id)]
        if self.min_side:
            cases = self._large_enough(cases)
        return _share_image(_group_sets(cases), by_image=not (self.set or self.patient))

    def _records(self, source: Source, root: Path, split: str) -> Iterator[Record]:
        """Yields records left by steps over the whole set."""
        records = list(source.read(root))
        if not records:
            raise _empty_error(source, root)
        records = expanded(pointed(records, self._specs), self.expand, root)
        if not records:
            raise UserError(f"{root}: the steps of task.layout.expand leave no record of split {split!r}")
        check_names(self._names(), records, NO_FIELDS)
        yield from self._sure(records)

    def _each(self, source: Source, root: Path) -> Iterator[Record]:
        """Yields the records one by one, of which memory need not hold more."""
        self._left_out = {}
        lacking, some = {name for _, name in self._names()} - {*NO_FIELDS}, False
        for record in source.read(root):
            some = True
            if lacking and not record.fault:
                lacking = {name for name in lacking if record.find(name) is MISSING}
            yield record
        if not some:
            raise _empty_error(source, root)
        if lacking:  # which are looked for again, to say what was meant
            check_names(self._names(), list(source.read(root)), NO_FIELDS)

    def left_out(self) -> dict[str, str]:
        """Id of each case that `cases` left out -> what it lacks."""
        return self._left_out

    def split_source(self) -> dict[str, str]:
        """Path -> SHA-256 of files defining splits, as by `fingerprints`."""
        named = next((source for source in (self.records, self.at) if isinstance(source, Mapping)), {})
        root = self.folder()
        paths: dict[Path, None] = {}
        for split in named:
            with suppress(UserError):  # a split that is not at hand has no part in what is asked
                paths |= dict.fromkeys(self._source(root, split).paths(root))
        return fingerprints(paths)

    def folder(self) -> Path:
        """The root; raises UserError when there is no such folder."""
        return existing_root(self.root)

    def _source(self, root: Path, split: str) -> Source:
        def of_split(given: Any, key: str) -> Any:
            if not isinstance(given, Mapping):
                return given
            SplitError.refuse_unknown(f"{root}: task.layout.{key} names no split", given, split)
            return given[split]

        files = of_split(self.records, "records")
        names = [files] if isinstance(files, str) else list(files)
        at = of_split(self.at, "at")
        return Source(names, at, self.literal, cell_columns(self._specs), self.separator, split, self.header)

    def _names(self) -> Iterable[tuple[str, str]]:
        """Key of the config, and each field of records that it names."""
        column = self.kind.get("column", "") if isinstance(self.kind, Mapping) else ""
        columns = [column for column in self.more.values() if not re.fullmatch(r"image(?: \d+)?", str(column))]
        for key, patterns in (
            ("question", [] if isinstance(self.question, Mapping) else [self.question]),
            ("id", [self.id]),
            ("kind.column", [column]),
            ("images", [pattern_of(spec) for spec in self._specs]),
            ("fields", list(self.fields.values())),
            ("attributes", list(self.attributes.values())),
            ("more", columns),
            ("set", [self.set]),
            ("order", [self.order]),
            ("patient", [self.patient]),
        ):
            yield from ((key, name) for pattern in patterns for name in names_in(pattern))
        yield from (("options", name) for name in option_names(self.options))
        yield from (("answer", name) for name in answer_names(self.answer))

    def _case_of(self, record: Record, pictures: Pictures) -> Case:
        name = str(record.about["row"])
        try:
            name = (record.fill(self.id) if self.id and record.values else "") or name
            if record.fault:
                raise record.error(record.fault)
            return self._case(name, record, pictures)
        except CaseError as error:
            facts = self._known(record)
            return Case(name, (), Faulty(record, str(error)), facts.get("set"), facts)

    def _case(self, name: str, record: Record, pictures: Pictures) -> Case:
        kind = kind_of(self.kind, record, self.answer)
        options = options_of(self.options, record) if self.options else {}
        if kind in ("choice", "choices") and len(options) < 2:
            raise record.error(f"has {len(options)} options to choose from, expected at least 2")
        text = self.question["text"] if isinstance(self.question, Mapping) else record.fill(self.question)
        if self.options.get("remove"):
            _, text = within_text(text)
        if not text:
            raise record.error(f"the question {self.question!r} is empty")
        images = pictures.of(record)
        if self._specs and len(images) < self.min_images:
            named = ", ".join(pattern_of(spec) for spec in self._specs)
            raise record.error(f"{named!r} gives {len(images)} images, expected at least {self.min_images}")
        value = value_of(self.answer, record, kind, options)
        options_, sized = more_of(self.more, record)
        attributes = {
            key: str(len(images)) if column == IMAGE_COUNT else record.fill(column)
            for key, column in self._attributes().items()
        }
        if self.set and not attributes["set"]:
            raise record.error(f"set {self.set!r} is empty")
        fields = {key: record.fill(column) for key, column in self.fields.items()} or _NOTHING
        boxes = {key: self.answer[key] for key in ("box", "scale") if key in self.answer} or _NOTHING
        key = KeyOf(
            value,
            record.place_alone(),
            options_ or _NOTHING,
            images,
            boxes,
            sized or _NOTHING,
            labels_of(self.answer, record, pictures.root),
        )
        patient = self._patient(record, attributes, images)
        return Case(name, images, key, patient, attributes or _NOTHING, Question(text, kind, options, fields))

    def _attributes(self) -> dict[str, str]:
        """The attributes, and those that make sets."""
        attributes = {"set": self.set, "order": self.order}
        return {**self.attributes, **{key: column for key, column in attributes.items() if column}}

    def _known(self, record: Record) -> dict[str, str]:
        """Fields still readable in a faulty record."""
        facts = {}
        for key, column in self._attributes().items():
            if column != IMAGE_COUNT:
                with suppress(CaseError):
                    facts[key] = record.fill(column)
        return {key: text for key, text in facts.items() if text}

    def _patient(self, record: Record, attributes: Mapping[str, str], images: Sequence[Picture]) -> str | None:
        if not self.patient:
            return attributes.get("set")
        if self.patient == IMAGE_CONTENT:
            return content_of(images[0]) if images else None
        text = record.fill(self.patient)
        if not text:
            raise record.error(f"patient {self.patient!r} is empty")
        return text

    def _sure(self, records: Sequence[Record]) -> list[Record]:
        """Those that say what is right, where the others are left out."""
        doubtful = [record for record in records if is_absent(self.answer, record)]
        reason = f"says nothing of {next(iter(self.answer.values()), '')!r}"
        self._left_out = {
            (record.fill(self.id) if self.id else "") or record.about["row"]: reason for record in doubtful
        }
        dropped = set(map(id, doubtful))
        return [record for record in records if id(record) not in dropped]

    def _large_enough(self, cases: Sequence[Case]) -> list[Case]:
        large = []
        for case in cases:
            side = _shortest_side(case)
            if side is not None and side < self.min_side:
                self._left_out[case.id] = f"has an image with a side of {side} pixels, under {self.min_side}"
            else:
                large.append(case)
        return large


def _empty_error(source: Source, root: Path) -> UserError:
    return UserError(f"{', '.join(map(str, source.paths(root)))}: holds no record")


def _shortest_side(case: Case) -> int | None:
    """Shortest image side of a case; None where missing or unreadable."""
    try:
        return min((side for image in case.images for side in image.geometry().shape), default=None)
    except CaseError:
        return None


def _rotate_options(case: Case) -> list[Case]:
    question = case.question
    key = case.target
    if question is None or not isinstance(key, KeyOf):
        attributes = {"set": case.id, **case.attributes}
        return [replace(case, attributes=attributes, patient=case.patient or attributes["set"])]
    if question.kind != "choice":
        return [case]
    letters, texts = list(question.options), list(question.options.values())
    rotated = []
    for turn in range(len(letters)):
        turned = dict(zip(letters, texts[turn:] + texts[:turn], strict=True))
        right = key.value if key.value is None else letters[(letters.index(key.value) - turn) % len(letters)]
        attributes = {"set": case.id, **case.attributes, "rotation": str(turn)}
        rotated.append(
            replace(
                case,
                id=f"{case.id}.{turn}",
                target=replace(key, value=right),
                question=replace(question, options=turned),
                attributes=attributes,
                patient=case.patient or attributes["set"],
            )
        )
    return rotated


def _told_apart(cases: Sequence[Case], *, number: bool = False) -> list[Case]:
    """Numbers repeated ids where allowed; else makes failed cases."""
    first: dict[str, Case] = {}
    taken = Counter(case.id for case in cases)
    named_cases = []
    for case in cases:
        if case.id not in first:
            first[case.id] = case
            named_cases.append(case)
            continue
        count = 2
        while taken[f"{case.id}#{count}"]:
            count += 1
        taken[f"{case.id}#{count}"] = 1
        if number:
            named_cases.append(_numbered_case(case, count))
            continue
        record = _case_record(case)
        earlier = _case_record(first[case.id])
        location = earlier.place if earlier.path == record.path else f"{earlier.path}, {earlier.place},"
        complaint = f"the id {case.id!r} is that of {location} too; give it one of its own"
        fault = Faulty(record, f"{record.path}, {record.place}: {complaint}")
        named_cases.append(Case(f"{case.id}#{count}", (), fault, case.patient, case.attributes))
    return named_cases


def _numbered_case(case: Case, count: int) -> Case:
    """Returns a repeated id's case as a set of its own."""
    own = case.attributes.get("set", "")
    attributes = {**case.attributes, "set": f"{own}#{count}"} if own else case.attributes
    patient = f"{own}#{count}" if own and case.patient == own else case.patient
    return replace(case, id=f"{case.id}#{count}", attributes=attributes, patient=patient)


def _case_record(case: Case) -> Record:
    target = case.target
    if not isinstance(target, KeyOf | Faulty):
        raise TypeError(f"expected a case of this layout, got {type(target).__name__}")
    return target.record


def _group_sets(cases: Sequence[Case]) -> list[Case]:
    """Puts the members of a set where its first stands, in their order."""
    groups = grouped((case.attributes.get("set") or f"\0{index}", case) for index, case in enumerate(cases))
    return [member for name, group in groups.items() for member in _number_members(sorted(group, key=_sort_key), name)]


def _number_members(group: Sequence[Case], name: str) -> list[Case]:
    """Numbers a set's members, revealing sets drawn twice."""
    if name.startswith("\0"):
        return list(group)
    return [
        replace(case, attributes={**case.attributes, "member": str(number)})
        for number, case in enumerate(group, start=1)
    ]


def _sort_key(case: Case) -> tuple[int, float, str]:
    order = case.attributes.get("order", "")
    return (0, float(order), "") if re.fullmatch(r"-?\d+(\.\d+)?", order) else (1, 0.0, order)


def _share_image(cases: list[Case], *, by_image: bool) -> list[Case]:
    """Gives cases without patient their shared image as group."""
    if not by_image:
        return cases
    named = [None if case.patient or not case.images else places_of(case.images) for case in cases]
    counts = Counter(name for name in named if name)
    if not any(count > 1 for count in counts.values()):
        return cases
    return [replace(case, patient=name) if name else case for case, name in zip(cases, named, strict=True)]


@dataclass(frozen=True)
class Keyed:
    """Answer key in a table with answers; `content` is hashed."""

    target: Reference[Any]
    files: tuple[Path, ...] = ()

    @property
    def content(self) -> str:
        """Content of the answer; "" where the record is wrong."""
        try:
            return repr(self.read())
        except CaseError:
            return ""

    def read(self) -> Any:
        """Returns it; raises CaseError saying what is wrong with the record."""
        return self.target.read()

    def geometry(self) -> Geometry:
        """The grid of what is right, where it has one."""
        return self.target.geometry()


@dataclass(kw_only=True)
class AnswerTable(Questions):
    """Tables of questions with answers; equal questions are equal data."""

    answered: ClassVar[bool] = True

    def cases(self, split: str) -> list[Case]:
        """The cases of one split."""
        return [replace(case, target=Keyed(case.target)) for case in super().cases(split)]

"""Images of which no truth is known, found below a folder: what a model is asked about by `predict`."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from medimg_eval.arguments import as_list
from medimg_eval.case import Case, Geometry
from medimg_eval.data.layouts.dicom import NO_IMAGES
from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_table
from medimg_eval.errors import CaseError, MissingDataError, SplitError, UserError
from medimg_eval.imaging import ImageFile, identify
from medimg_eval.imaging.dicom import Series, description_words, index_tree, naming
from medimg_eval.imaging.formats import named_as_dicom
from medimg_eval.imaging.volumes import header_of
from medimg_eval.question import Question
from medimg_eval.system import natural_order, walk
from medimg_eval.tasks.base import Layout

CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
"""How the SOP classes of secondary captures begin: pictures of a screen, such as a dose report."""

BESIDE = "a picture beside other images"


class Found(NamedTuple):
    """An image: what its case is called, and its files."""

    id: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class NoTruth:
    """Placeholder for unknown truth; `content` enters the answer's identity."""

    image: ImageFile
    content: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """None: it is in no file."""
        return ()

    def read(self) -> Any:
        """Raises CaseError."""
        raise CaseError(f"{self.image.files[0]}: no truth is known of this image, so nothing can be taken from it")

    def geometry(self) -> Geometry:
        """The grid of the image, on which an answer is to lie."""
        return self.image.geometry()


@dataclass(kw_only=True)
class FoundImages(Layout):
    """Every image below folders as a case, or per question.

    A DICOM series is one image, whatever its files are called; a damaged file costs its own case. What is no image, or
    lies beside images as a logo does, is passed over: `left_out` names it.

    Args:
        root: a folder, a file, or several of them.
        series: of DICOM, the series that are meant, one or several: a SeriesNumber, a SeriesInstanceUID, or
            `description~TEXT` for those in whose SeriesDescription a text occurs, in any case. All without it.
        question: what is asked about every image, of models that are spoken to.
        kind: what an answer to it is: `open`, or `report`.
        questions: in its place a table of `question`, and as far as needed `image` (the id of a case, or the name of
            its file; without it every image is asked about), `id`, and `options` (a list, an object of letters, or
            columns `A`, `B`, ...): CSV, TSV, JSON, JSON lines or Parquet.
        options: passed to the reader of the images.
    """

    root: str | Sequence[str]
    series: str | int | Sequence[str | int] = ""
    question: str = ""
    kind: Literal["open", "report"] = "open"
    questions: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    has_truth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Prepares what `left_out` says."""
        self._left_out: dict[str, str] = {}

    def cases(self, split: str) -> list[Case]:
        """Images by name, series by number.

        Raises:
            SplitError: there is nothing to learn from here.
            MissingDataError: there is no such folder or file.
            UserError: it holds no image, images of several families, or no such series.
        """
        if split != "test":
            raise SplitError("no truth is known of these images, so nothing can be fitted to them or learned from them")
        self._left_out = {}
        images = [image for root in _list_several(self.root) for image in self._found(Path(root).expanduser())]
        twice = {name for name, count in Counter(image.id for image in images).items() if count > 1}
        if twice:
            images = [Found(f"{image.id}-{number}", image.paths) for number, image in enumerate(images, 1)]
        if not images:
            raise UserError(f"{self._named()}: holds no image{self._told()}")
        return [case for image in images for case in self._cases(image)] if not self.questions else self._asked(images)

    def left_out(self) -> Mapping[str, str]:
        """Files or series that are no case, and why."""
        return self._left_out

    def _named(self) -> str:
        return ", ".join(map(str, _list_several(self.root)))

    def _told(self) -> str:
        if not self._left_out:
            return ""
        name, why = next(iter(self._left_out.items()))
        return f"; of {len(self._left_out)} things passed over, {name} is {why}"

    def _found(self, root: Path) -> list[Found]:
        if root.is_file():
            identify(root)  # says what is wrong with it
            return [Found(_file_stem(root), (root,))]
        if not root.is_dir():
            raise MissingDataError(f"{root}: no such folder or file of images")
        families = self._families(root)
        pictures, documents = families.get("picture", []), families.pop("", [])
        self._left_out |= {str(path): _why_no_image(path) for path in documents}
        if len(families) > 1 and pictures:
            del families["picture"]
            self._left_out |= {str(path): BESIDE for path in pictures}
        if len(families) > 1:
            named = " and ".join(f"{len(paths)} of {family}, such as {paths[0]}" for family, paths in families.items())
            raise UserError(f"{root}: holds images of several kinds, {named}; name the folder or files that are meant")
        if "dicom" in families:
            return self._dicom(root)
        if wanted := _list_several(self.series):
            raise UserError(f"{root}: holds no DICOM, so there is no series {wanted[0]} to choose")
        files = [path for paths in families.values() for path in paths]
        return [Found(name, (path,)) for name, path in zip(_name_cases(files, root), files, strict=True)]

    def _families(self, root: Path) -> dict[str, list[Path]]:
        """Files by family in name order; "" holds other files."""
        families: dict[str, list[Path]] = {}
        for name, _ in sorted(walk(root), key=lambda one: natural_order(one[0])):
            path = root / name
            try:
                family = identify(path)
            except CaseError:
                family = "dicom" if named_as_dicom(path) else ""
            if header_of(path) is None:  # a pair is one image, found at its header
                families.setdefault(family, []).append(path)
        return families

    def _dicom(self, root: Path) -> list[Found]:
        """The series below a folder, in the order of their numbers."""
        every = list(index_tree(root).entries)
        images = [image for image in every if image.damaged or image.modality not in NO_IMAGES]
        images.sort(key=lambda one: (natural_order(one.number), one.study, one.series, one.group))
        for image in every:
            if image not in images:
                self._left_out[str(image.paths[0])] = f"no image but a DICOM {image.modality} object"
        if wanted := _list_several(self.series):
            chosen = [id(image) for name in map(str, wanted) for image in self._series_of(name, images, root)]
            images = [image for image in images if id(image) in chosen]
        else:
            asides = {str(image.paths[0]): why for image in images if (why := _why_aside(image))}
            if len(asides) < len(images):
                self._left_out |= asides
                images = [image for image in images if str(image.paths[0]) not in asides]
        return [Found(name, image.paths) for name, image in zip(_names_of(images, root), images, strict=True)]

    def _series_of(self, name: str, images: Sequence[Series], root: Path) -> list[Series]:
        """The series of one name; raises UserError listing what there is."""
        words = description_words(name)
        if words is None:
            matches = [image for image in images if name in (image.number, image.series)]
        else:
            matches = [image for image in images if words and words in naming(image.paths[0])["description"].casefold()]
        if not matches:
            listed = "; ".join(_series_line(image) for image in images[:12])
            further = f"; and {len(images) - 12} more" if len(images) > 12 else ""
            raise UserError(f"{root}: holds no series {name}; it holds {listed}{further}")
        return matches

    def _cases(self, one: Found) -> Iterator[Case]:
        image = self._image(one)
        question = Question(self.question, self.kind) if self.question or self.kind == "report" else None
        yield Case(one.id, (image,), NoTruth(image, self.question), question=question)

    def _image(self, one: Found) -> ImageFile:
        return ImageFile(one.paths if len(one.paths) > 1 else one.paths[0], options=self.options)

    def _asked(self, found: Sequence[Found]) -> list[Case]:
        """Case per question; UserError names unreadable lines."""
        by_name = {name: image for image in found for name in (image.id, *(path.name for path in image.paths))}
        cases = []
        for number, row in enumerate(read_table(Path(self.questions).expanduser()), 1):
            text, options = row.text("question"), _read_options(row)
            if not text:
                raise row.error("the question is empty")
            subjects: Sequence[Found] = found
            if name := row.text("image") if "image" in row.values else "":
                if name not in by_name:
                    examples = ", ".join(image.id for image in found[:5])
                    raise row.error(f"there is no image {name!r}; of {len(found)} the first are {examples}")
                subjects = [by_name[name]]
            own = row.text("id") if "id" in row.values else ""
            for image_ in subjects:
                image = self._image(image_)
                name = own if own and len(subjects) == 1 else f"{image_.id}-{own or number}"
                content = json.dumps([text, options])
                question = Question(text, "choice" if options else self.kind, options)
                cases.append(Case(name, (image,), NoTruth(image, content), question=question))
        return cases


def _list_several(value: Any) -> list[Any]:
    return [item for item in as_list(list(value) if isinstance(value, tuple) else value) if item not in ("", None)]


def _read_options(row: Row) -> dict[str, str]:
    """Letter -> text of what may be chosen from."""
    options = row.values.get("options")
    if isinstance(options, str) and options.strip():
        try:
            options = json.loads(options)
        except ValueError as error:
            raise row.error("options are no JSON list or object; or use columns A, B, ...") from error
    if isinstance(options, Mapping):
        return {str(letter): str(text) for letter, text in options.items()}
    if isinstance(options, Sequence) and options:
        return dict(zip(string.ascii_uppercase, map(str, options), strict=False))
    letters = [letter for letter in string.ascii_uppercase if letter in row.values]
    return {letter: text for letter in letters if (text := row.text(letter))}


def _why_aside(one: Series) -> str:
    """Why a DICOM image is secondary among others; else ""."""
    if one.localizer:
        return "a localizer"
    return "a picture of a screen (secondary capture)" if one.sop_class.startswith(CAPTURE) else ""


def _why_no_image(path: Path) -> str:
    if not path.exists():
        return "a link to nowhere"
    return "a document" if path.suffix.lower() == ".pdf" else "of no known image format"


def _series_line(one: Series) -> str:
    size = f"{len(one.paths)} files" if len(one.paths) > 1 else f"{one.frames} frames" if one.frames > 1 else "one file"
    return f"{one.number or 'without number'}: {one.modality or 'no modality'}, {size} of {one.rows} x {one.columns}"


def _file_stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _distinct_names(*choices: Sequence[str]) -> list[str]:
    """First naming without repeats; numbered where all have some."""
    for names in choices:
        if all(names) and len(set(names)) == len(names):
            return list(names)
    counted: Counter[str] = Counter()
    numbered = []
    for name in choices[-1]:
        counted[name] += 1
        numbered.append(f"{name}-{counted[name]}")
    return numbered


def _path_below(path: Path, root: Path) -> str:
    return re.sub(r"[/\\]", "-", path.relative_to(root).as_posix())


def _name_cases(files: Sequence[Path], root: Path) -> list[str]:
    """Cases by file name, with folders where ambiguous."""
    return _distinct_names(
        [_file_stem(path) for path in files], [_path_below(path.with_name(_file_stem(path)), root) for path in files]
    )


def _names_of(images: Sequence[Series], root: Path) -> list[str]:
    """Cases by series number, else folder, else UID."""
    numbers = [f"series_{image.number}" if image.number else "" for image in images]
    folders = [_path_below(image.paths[0].parent, root).strip(".") for image in images]
    return _distinct_names(numbers, folders, [image.series or _file_stem(image.paths[0]) for image in images])

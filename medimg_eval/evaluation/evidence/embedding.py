"""Features of pictures, each computed once: they are kept by extractor and by the content of the picture."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.progress import tracked
from medimg_eval.imaging import ImageFile
from medimg_eval.models.extractors import FeatureExtractor
from medimg_eval.store import Stored, content_key, digest, observation_store, picture_key, sentence_key
from medimg_eval.system import threads

log = logging.getLogger(__name__)

AT_ONCE = 900
"""Texts that are embedded at once."""


class Source(NamedTuple):
    """A picture that is to be embedded.

    Attributes:
        name: for messages.
        files: it is read from; () where its content must be looked at to tell it from others.
        options: decide, with the files, what is read.
        read: reads it.
    """

    name: str
    files: tuple[Path, ...]
    options: str
    read: Callable[[], Image]


@dataclass
class Embedded:
    """The features of some pictures.

    Attributes:
        rows: float32, (picture, feature).
        kept: which of the pictures asked for they are of, (picture,).
        shapes: how many pictures have which size and type.
        constant: how many hold a single value.
        skipped: names of those that could not be read.
        computed: how many were not in the cache.
    """

    rows: Array
    kept: list[int]
    shapes: Counter[str] = field(default_factory=Counter)
    constant: int = 0
    skipped: list[str] = field(default_factory=list)
    computed: int = 0


def source_of(name: str, reference: object) -> Source:
    """A picture of a case, or a file."""
    if isinstance(reference, Path):
        return Source(name, (reference,), "", ImageFile(reference).read)
    if isinstance(reference, ImageFile):
        options = json.dumps([dict(reference.options), str(reference.region)], default=str, sort_keys=True)
        return Source(name, reference.files, options, reference.read)
    return Source(name, (), "", reference.read)  # type: ignore[attr-defined]


def embed(extractor: FeatureExtractor, identity: str, sources: Sequence[Source], *, skip: bool, what: str) -> Embedded:
    """Returns the features of pictures, from the cache where it has them.

    Args:
        extractor: computes what is not there; it is loaded only then.
        identity: what its features depend on: its settings and the content of its weights.
        sources: the pictures.
        skip: whether a picture that cannot be read is left out and counted, instead of ending the work.
        what: the pictures are, for progress.

    Raises:
        CaseError: a picture cannot be read.
    """
    if extractor.looks_up:
        return _looked_up(extractor, sources, skip=skip)
    store = observation_store("features", identity)
    keys: list[str | None] = []
    images: dict[int, Image] = {}
    skipped: dict[int, str] = {}
    for place, source in enumerate(sources):
        try:
            if not source.files:
                images[place] = source.read()
            keys.append(_file_key(source, images.get(place)))
        except CaseError as error:
            _refuse_or_note(error, skip, skipped, place, source)
            keys.append(None)
    known = store.get([key for key in keys if key is not None])
    left = list(dict.fromkeys(key for key in keys if key is not None and key not in known))
    first = {key: place for place, key in reversed(list(enumerate(keys))) if key is not None}
    size = max(1, extractor.preferred_batch)
    computed = 0
    for some in tracked([left[start : start + size] for start in range(0, len(left), size)], what):
        places = [first[key] for key in some]
        shown = _read([sources[place] for place in places], [images.pop(place, None) for place in places])
        fine: list[tuple[str, Image]] = []
        for key, place, image in zip(some, places, shown, strict=True):
            if isinstance(image, Image):
                fine.append((key, image))
            else:
                _refuse_or_note(image, skip, skipped, place, sources[place])
        if fine:
            vectors = extractor.embed_images([image for _, image in fine])
            new = {key: Stored(row, _facts(image)) for (key, image), row in zip(fine, vectors, strict=True)}
            store.put(new)
            known |= new
            computed += len(new)
    store.close()
    kept = [place for place, key in enumerate(keys) if key is not None and key in known]
    found = [known[str(keys[place])] for place in kept]
    return Embedded(
        rows=np.stack([one.value for one in found]) if found else np.zeros((0, 1), np.float32),
        kept=kept,
        shapes=Counter(one.meta["shape"] for one in found),
        constant=sum(bool(one.meta["constant"]) for one in found),
        skipped=[skipped.get(place, sources[place].name) for place in range(len(sources)) if place not in set(kept)],
        computed=computed,
    )


def _looked_up(extractor: FeatureExtractor, sources: Sequence[Source], *, skip: bool) -> Embedded:
    rows: dict[int, Array] = {}
    skipped: dict[int, str] = {}
    for place, source in enumerate(sources):
        try:
            rows[place] = extractor.look_up(source.files)
        except CaseError as error:
            _refuse_or_note(error, skip, skipped, place, source)
    found = np.stack(list(rows.values())) if rows else np.zeros((0, max(1, len(extractor.names))), np.float32)
    return Embedded(rows=found, kept=list(rows), skipped=list(skipped.values()))


def embed_texts(extractor: FeatureExtractor, identity: str, texts: Sequence[str]) -> Array:
    """Returns the features of texts, float32, (text, feature), from the cache where it has them."""
    store = observation_store("features", identity)
    keys = [sentence_key(text) for text in texts]
    known = store.get(keys)
    left = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    for start in range(0, len(left), AT_ONCE):
        some = list(left.items())[start : start + AT_ONCE]
        vectors = extractor.embed_texts([text for _, text in some])
        new = {key: Stored(np.asarray(row, np.float32)) for (key, _), row in zip(some, vectors, strict=True)}
        store.put(new)
        known |= new
    store.close()
    return np.stack([known[key].value for key in keys])


def pictures_digest(sources: Sequence[Source]) -> str:
    """A short hash of the content of pictures, in their order."""
    return digest([_file_key(source) for source in sources])


def _file_key(source: Source, image: Image | None = None) -> str:
    if source.files:
        return content_key(source.files, source.options)
    return picture_key((image or source.read()).array)


def _read(sources: Sequence[Source], known: Sequence[Image | None]) -> Iterator[Image | CaseError]:
    def one(source: Source, image: Image | None) -> Image | CaseError:
        try:
            return image or source.read()
        except CaseError as error:
            return error

    with ThreadPoolExecutor(threads(len(sources)) or 1) as pool:
        yield from pool.map(one, sources, known)


def _facts(image: Image) -> dict[str, Any]:
    array = np.asarray(image.array)
    size = " x ".join(map(str, array.shape[1:]))
    constant = bool(array.size and (array == array.flat[0]).all())
    return {"shape": f"{size} {array.dtype}", "constant": constant}


def _refuse_or_note(error: CaseError, skip: bool, skipped: dict[int, str], place: int, source: Source) -> None:
    if not skip:
        raise CaseError(
            f"{source.name}: {error}; mend it, or leave such images out, counted, with task.unreadable=skip"
        ) from error
    log.warning("%s is left out: %s", source.name, error)
    skipped[place] = source.name

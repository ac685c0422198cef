"""Features of cases by an encoder, computed once into a store that every run shares."""

from __future__ import annotations

import csv
import importlib.metadata
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from medimg_eval.case import Array, Case, Failure, Image, Prompt, Reference
from medimg_eval.data.bags import NoFeatures, StoredFeatures
from medimg_eval.data.pieces import (
    CHUNK,
    Chunk,
    Piece,
    Pieces,
    ShownPlan,
    pieces_of,
    planned,
    read_chunk,
    read_whole,
    unique,
)
from medimg_eval.errors import CaseError, ToldCauses, UsageError, UserError
from medimg_eval.evaluation.devices import Batches, device_of, in_use
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.leaving import permit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.settings import Settings
from medimg_eval.image import VALUES
from medimg_eval.lazy_torch import uses_torch
from medimg_eval.models import Model
from medimg_eval.store import FeatureStore, Item, digest
from medimg_eval.system import user_cache, whole
from medimg_eval.tasks import Task
from medimg_eval.workers import Workers

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Pictures that are read and added together."""

LIBRARIES = ("timm", "transformers", "open_clip_torch", "torchvision")


@dataclass(frozen=True)
class EmbedSettings:
    """How features are computed and kept.

    Attributes:
        out: folder of stores; None for the user's cache.
        plan: what is shown of slides and volumes.
        dtype: of what is kept, `float32` or `float16`.
        batch_size: pictures that the encoder is given at once; None for as many as it prefers.
        num_workers: processes that read.
        may_leave: whether images may go to a server elsewhere, as the user says.
    """

    out: Path | None = None
    plan: ShownPlan = field(default_factory=ShownPlan)
    dtype: str = "float32"
    batch_size: int | None = None
    num_workers: int = 2
    may_leave: Any = None


@dataclass(frozen=True)
class CaseFeatures:
    """Features of cases, in a store.

    Attributes:
        store: where they lie; None where there are none.
        keys: case id -> keys of its images in the store, in order; only cases all of whose images have features.
        failures: of cases that have none, or not all.
        computed: images that were embedded now; the others were there.
    """

    store: FeatureStore | None
    keys: Mapping[str, tuple[str, ...]]
    failures: tuple[Failure, ...] = ()
    computed: int = 0

    def rows(self, case: str) -> Array:
        """Features of a case, (row, feature), by picture, tile or slice; CaseError says why none."""
        store, keys = self._of(case)
        return store.matrix(keys)

    def coordinates(self, case: str) -> Array | None:
        """Positions (row, 2) in level-0 pixels; None without places."""
        store, keys = self._of(case)
        coordinates = [store.coordinates(key) for key in keys]
        known_coordinates = [coordinate for coordinate in coordinates if coordinate is not None]
        return (
            np.concatenate(known_coordinates)
            if len(known_coordinates) == len(coordinates) and known_coordinates
            else None
        )

    def matrix(self, cases: Sequence[str] | None = None) -> Array:
        """Features of cases, all by default, stacked: (row, feature)."""
        every = [self._of(case) for case in (self.keys if cases is None else cases)]
        if not every:
            raise UserError("no case has features")
        return every[0][0].matrix([key for _, keys in every for key in keys])

    def counts(self, cases: Sequence[str] | None = None) -> list[int]:
        """Row counts of cases, all by default, as in `matrix`."""
        every = [self._of(case) for case in (self.keys if cases is None else cases)]
        return [sum(store.counts(keys)) for store, keys in every]

    def shown(self, case: Case) -> Case:
        """Case with features as images; missing ones fail when read.

        Unlike parts stay apart, and numbers of a table as they are.
        """
        pictures = pictures_of(case)
        if not pictures:
            return case
        if case.id not in self.keys or self.store is None:
            return replace(case, images=(NoFeatures(self._why(case.id), case.files),))
        keys, store = self.keys[case.id], self.store.path
        if not any(map(_part_of, pictures)):
            files = tuple(path for image in pictures for path in image.files)
            return replace(case, images=(StoredFeatures(store, keys, files),))
        left = iter(keys)
        images = (
            image if _holds_numbers(image) else _with_features(image, StoredFeatures(store, (next(left),), image.files))
            for image in case.images
        )
        return replace(case, images=tuple(images))

    def _of(self, case: str) -> tuple[FeatureStore, tuple[str, ...]]:
        if case in self.keys and self.store is not None:
            return self.store, self.keys[case]
        raise CaseError(f"case {case!r} has no features: {self._why(case)}")

    def _why(self, case: str) -> str:
        return next((failure.message for failure in self.failures if failure.case_id == case), "it was not embedded")


def embed_cases(task: Task, cases: Sequence[Case], encoder: ModelSpec, settings: EmbedSettings) -> CaseFeatures:
    """Computes missing features of cases' images, resumable at any moment.

    Raises:
        UserError: the encoder cannot be loaded, or nothing can be written. What fails for a case is in its failures.
    """
    refuse_no_encoder(encoder)
    permit(task, settings.may_leave, "model", encoder.name, encoder.model, ["images"])
    shown = [replace(case, images=pictures_of(case)) for case in cases]
    pieces = pieces_of(shown, settings.plan, volumes_whole=_takes_volumes(encoder))
    every = unique(piece for some in pieces.values() for piece in some)
    made_by = _made_by(encoder, settings.plan, {piece.kind for piece in every})
    folder = _store_folder(encoder, made_by, settings)
    store = FeatureStore.open(folder) if (folder / "manifest.json").is_file() else None
    remaining = [piece for piece in every if store is None or piece.key not in store]
    failures: dict[str, str] = {}
    if remaining:
        prepare_model(task, encoder.model, cases)
        work = _Work(encoder, settings, folder, made_by, store, failures)
        work.run(remaining)
        store = work.store
    features = _gather_features(pieces, store, failures, len(remaining))
    if store is not None:
        _write_table(store, task, cases, features)
    return features


def features_for(task: Task, cases: Sequence[Case], model: ModelSpec, settings: Settings) -> Sequence[Case]:
    """Cases with encoder features in place of images.

    They come from the user's cache, where `embed` keeps them, too, and are computed if they are not there. Cases of
    models without an encoder, or with one that no other start could know again, stay as they are.
    """
    config = model.config.get("encoder")
    if not isinstance(config, Mapping) or not model.identified:
        return cases
    encoder = getattr(model.model, "encoder", None)
    if not callable(getattr(encoder, "embed", None)):
        return cases
    network: Any = model.model
    plan = ShownPlan.of(getattr(network, "tiles", None), getattr(network, "slices", None))
    spec = ModelSpec(type(encoder).__name__, type(encoder), config, lambda: cast("Model", encoder))
    wanted = EmbedSettings(plan=plan, num_workers=settings.num_workers, may_leave=settings.may_leave)
    features = embed_cases(task, cases, spec, wanted)
    log.info(
        "%d images were embedded by %s, the others were in %s", features.computed, spec.name, _store_location(features)
    )
    return [features.shown(case) for case in cases]


def pictures_of(case: Case) -> tuple[Reference[Image], ...]:
    """A case's images without the numbers of a table, which no encoder is shown."""
    return tuple(image for image in case.images if not _holds_numbers(image))


def _holds_numbers(image: Any) -> bool:
    return getattr(image, "part", "") == VALUES


def _part_of(image: Any) -> str:
    """Part that an image shows of its case; "" where all are alike."""
    return str(getattr(image, "part", "") or getattr(image, "visit", ""))


def _with_features(image: Any, features: StoredFeatures) -> Any:
    """A reference whose innermost image is replaced by its features."""
    inner = getattr(image, "image", None)
    return features if inner is None else replace(image, image=_with_features(inner, features))


def _store_location(found: CaseFeatures) -> str:
    return "no store" if found.store is None else str(found.store.path)


def refuse_no_encoder(encoder: ModelSpec) -> None:
    """Raises UsageError for a model that has no `embed`."""
    if not callable(getattr(encoder.wrapper, "embed", None)):
        raise UsageError(
            f"model {encoder.name!r} ({encoder.wrapper.__name__}) gives no features: it has no method embed(); "
            "name an encoder, such as model=timm_encoder"
        )


def _takes_volumes(encoder: ModelSpec) -> bool:
    return bool(getattr(encoder.wrapper, "takes", "picture") == "volume")


def _made_by(encoder: ModelSpec, plan: ShownPlan, kinds: set[str]) -> dict[str, Any]:
    """Settings of features, as JSON holds them: another of these is another store."""
    shown_settings = {"tiles": asdict(plan.tiles)} if "slide" in kinds else {}
    shown_settings |= {"slices": asdict(plan.slices)} if "volume" in kinds else {}
    revision = getattr(encoder.model, "revision", "")  # weights of the hub by their commit, and the preprocessing
    versions = {}
    for name in LIBRARIES:  # whose preprocessing may change
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    # Alike whether it was set by a config of its own, or within a probe's.
    settled = replace(encoder, spelled=frozenset()).settled_identity
    return {"encoder": settled, "revision": revision, "shown": shown_settings, "written_with": versions}


def _store_folder(encoder: ModelSpec, made_by: Mapping[str, Any], settings: EmbedSettings) -> Path:
    decisive = {key: value for key, value in made_by.items() if key != "written_with"}
    root = user_cache() / "embeddings" if settings.out is None else settings.out.expanduser()
    return root / f"{slug(encoder.name)}-{digest([decisive, settings.dtype], 12)}"


class _Work:
    """Reads, embeds and adds what is left."""

    def __init__(
        self,
        encoder: ModelSpec,
        settings: EmbedSettings,
        folder: Path,
        made_by: Mapping[str, Any],
        store: FeatureStore | None,
        failures: dict[str, str],
    ) -> None:
        self._encoder, self._settings, self._folder, self._made_by = encoder, settings, folder, made_by
        self.store, self._failures = store, failures
        self._causes = ToldCauses()
        model: Any = encoder.model
        self._batch = settings.batch_size or int(getattr(model, "preferred_batch", 1))
        self._batches = Batches(model.embed)

    def run(self, left: Sequence[Piece]) -> None:
        """Embeds the pieces; what fails is noted by its key."""
        model = self._encoder.model
        if not uses_torch(model):
            self._all(left)
            return
        with in_use(model, device_of(str(getattr(model, "device", "auto"))), "32-true"):
            self._all(left)

    def _all(self, left: Sequence[Piece]) -> None:
        slides = [piece for piece in left if piece.kind in ("slide", "patches")]
        other_pieces = [piece for piece in left if piece.kind not in ("slide", "patches")]
        for start in range(0, len(slides), AT_ONCE):
            self._embed(slides[start : start + AT_ONCE], 1)
        if other_pieces:
            self._embed(other_pieces, max(1, AT_ONCE // 8) if other_pieces[0].kind == "picture" else 1)

    def _embed(self, pieces: Sequence[Piece], together: int) -> None:
        chunks: list[Chunk] = []
        waiting: list[Item] = []
        for piece, plan in zip(pieces, self._plans(pieces), strict=True):
            if isinstance(plan, Failure):
                self._fail(piece, plan.message)
            elif plan:
                chunks += plan
            else:
                waiting.append(Item(piece.key, np.zeros((0, 0), np.float32)))
        rows: list[Array] = []
        coordinates: list[Array] = []
        for chunk, read_tiles in zip(chunks, self._read(chunks, together), strict=True):
            piece = chunk.piece
            if isinstance(read_tiles, Failure):
                self._fail(piece, read_tiles.message)
            vectors = None if piece.key in self._failures else self._vectors(piece, read_tiles)
            if vectors is None:
                rows, coordinates = [], []
                continue
            rows.append(vectors)
            if chunk.tiles is not None:
                coordinates.append(chunk.tiles.coordinates)
            if chunk.last:
                waiting.append(_piece_item(piece, rows, coordinates))
                rows, coordinates = [], []
            if len(waiting) >= AT_ONCE or sum(len(item.features) for item in waiting) > 16 * CHUNK:
                waiting = self._add(waiting)
        self._add(waiting)

    def _plans(self, pieces: Sequence[Piece]) -> Iterator[list[Chunk] | Failure]:
        if pieces[0].kind not in ("slide", "patches"):
            yield from (planned(self._settings.plan, piece) for piece in pieces)
            return
        yield from self._work(planned, pieces, "laying tiles", 1)

    def _read(self, chunks: Sequence[Chunk], together: int) -> Iterator[Any]:
        read = read_whole if _takes_volumes(self._encoder) else read_chunk
        yield from self._work(read, chunks, "embedding", together)

    def _work(self, function: Any, items: Sequence[Any], what: str, together: int) -> Iterator[Any]:
        parts = [items[start : start + together] for start in range(0, len(items), together)]
        count = min(self._settings.num_workers, len(parts)) if len(parts) > 1 else 0
        workers: Workers[ShownPlan, Any, Any] = Workers(
            function, self._settings.plan, count, name="reading", setting="num_workers"
        )
        results = workers.ordered(parts, 2 * max(1, count))
        for part, result in zip(tracked(parts, what), results, strict=True):
            for item, value in zip(part, result, strict=True):
                piece = item.piece if isinstance(item, Chunk) else item
                yield (
                    Failure(piece.case, "read", f"{_piece_files(piece)}: the reading process died twice")
                    if value is None
                    else value
                )

    def _vectors(self, piece: Piece, shown: Sequence[Image] | Array) -> Array | None:
        """(row, feature) of what was read; None where it failed, which is noted."""
        images = [
            picture if isinstance(picture, Image) else Image(picture, np.eye(4), units="pixel") for picture in shown
        ]
        prompts = [Prompt(piece.case, (image,)) for image in images]
        answers: list[Any] = []
        for start in range(0, len(prompts), self._batch):
            answers += self._batches.answers(prompts[start : start + self._batch])
        wrong = next((answer for answer in answers if isinstance(answer, Failure)), None)
        if wrong is not None:
            self._fail(piece, f"{_piece_files(piece)}: {wrong.message}")
            return None
        return np.stack([np.asarray(answer, np.float32).ravel() for answer in answers])

    def _add(self, items: Sequence[Item]) -> list[Item]:
        """Adds items to the store; returns those waiting for it."""
        full = next((item for item in items if len(item.features)), None)
        if self.store is None and full is None:
            return list(items)
        if self.store is None and full is not None:
            self.store = FeatureStore.create(self._folder, self._made_by, full.features.shape[1], self._settings.dtype)
        assert self.store is not None  # noqa: S101 - made above
        empty = np.zeros((0, self.store.length), np.float32)
        ready = [item if len(item.features) else Item(item.key, empty) for item in items]
        try:
            self.store.add(ready)
        except CaseError:
            for item in ready:
                try:
                    self.store.add([item])
                except CaseError as error:
                    self._failures[item.key] = str(error)
        return []

    def _fail(self, piece: Piece, message: str) -> None:
        if piece.key not in self._failures:
            self._failures[piece.key] = message
            log.log(self._causes.level(message, piece.case), "case %s failed: %s", piece.case, message)


def _piece_item(piece: Piece, rows: Sequence[Array], places: Sequence[Array]) -> Item:
    """Rows of a piece; of slides in order of position."""
    features = np.concatenate(rows)
    if not places:
        return Item(piece.key, features)
    where = np.concatenate(places)
    order = np.lexsort((where[:, 1], where[:, 0])) if piece.kind == "slide" else np.arange(len(where))
    return Item(piece.key, features[order], where[order])


def _piece_files(piece: Piece) -> str:
    return ", ".join(map(str, piece.image.files)) or f"case {piece.case!r}"


def _reason_without_features(piece: Piece) -> str:
    """Why a piece has no features though nothing failed."""
    return f"{_piece_files(piece)}: no tile has tissue; look at the slide, or at tiles.minimum_tissue"


def _gather_features(
    pieces: Pieces, store: FeatureStore | None, failures: Mapping[str, str], asked: int
) -> CaseFeatures:
    keys: dict[str, tuple[str, ...]] = {}
    failed: list[Failure] = []
    for case, some in pieces.items():
        wrong = next((piece for piece in some if isinstance(piece, Failure)), None)
        own = [piece for piece in some if isinstance(piece, Piece)]
        missing = next((piece for piece in own if store is None or piece.key not in store), None)
        if wrong is not None:
            failed.append(wrong)
        elif missing is not None:
            failed.append(Failure(case, "answer", failures.get(missing.key, _reason_without_features(missing))))
        elif not own:
            failed.append(Failure(case, "read", f"case {case!r} has no image"))
        elif store is not None and not sum(store.counts([piece.key for piece in own])):
            failed.append(Failure(case, "read", _reason_without_features(own[0])))
        else:
            keys[case] = tuple(piece.key for piece in own)
    return CaseFeatures(store, keys, tuple(failed), asked - len(failures))


def _write_table(store: FeatureStore, task: Task, cases: Sequence[Case], found: CaseFeatures) -> None:
    """Writes the rows of each case into `cases/TASK.csv`."""
    folder = store.path / "cases"
    folder.mkdir(exist_ok=True)
    path = folder / f"{slug(task.name)}.csv"
    stored_rows: dict[str, list[Any]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as stream:
            stored_rows = {f"{row['case']}\n{row['image']}": list(row.values()) for row in csv.DictReader(stream)}
    for case in cases:
        for number, key in enumerate(found.keys.get(case.id, ())):
            first, count = store.span(key)
            stored_rows[f"{case.id}\n{number}"] = [case.id, case.patient or "", number, key, first, count]
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["case", "patient", "image", "key", "first", "rows"], *stored_rows.values()])

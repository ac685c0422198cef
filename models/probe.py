"""A probe: an encoder that stays as it is, and a head that is fitted on its features."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from medimg_eval.case import Array, Findings, Image, Prompt, Prompts, Survival
from medimg_eval.codecs import Weighed
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.image import FEATURES
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Example, Regressor, RiskModel, refuse_names, shown_images
from medimg_eval.models.class_mapping import plain
from medimg_eval.models.classification import Classifier
from medimg_eval.models.explanations import Explanation
from medimg_eval.models.fitted import CHECKPOINTS, fitted_folder
from medimg_eval.models.heads import Head, Kind, Lessons, Targets, load_head, make_head, search

SEARCH = "search.json"
"""Where a fit run keeps what the settings of its head were chosen among."""


class Lesson(NamedTuple):
    """Case to learn from: prompt, target and patient."""

    prompt: Prompt
    target: Any
    group: str


class Probe(Classifier, RiskModel, Regressor):
    """Frozen encoder with a head that `fit` trains at once.

    Serves classifications, survival and regressions alike, by what the task asks. Without an encoder, images must be
    features already, as the layouts `FeatureVectors` and `Slides` give. Heads on vectors are given the mean over
    the tiles, or images, of a case; heads on bags are given all of them.

    Args:
        encoder: a model with `embed`, or an extractor of features; None where the images are features.
        head: name of a head, such as `logistic`, or `name` and its settings.
        grid: setting of the head -> values, of which the best combination is kept: judged on the task's cases to
            validate on, or, without any, by cross-validation that keeps patients together.
        criterion: what they are chosen by: `loss`, of survival `c_index`; or `auroc`, `balanced_accuracy`, `pearson`.
        folds: of cross-validation.
        checkpoint: folder of a `fit` run; of one with `folds=all` on other cases, the answers of all folds' heads are
            averaged.
        batch: images that are embedded at once.
        tiles: which tiles of a slide the encoder is shown, by the keys of `embed`; its defaults without.
        slices: which slices of a volume.
        explain: kind of the maps of gradients that are kept beside answers to one picture, or settings of
            `Explanation`: of a linear head on an encoder of timm or torchvision; None for none.

    Raises:
        UsageError: there is no such head, setting or criterion.
    """

    preferred_batch: ClassVar[int] = 64
    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "weights")
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init__(
        self,
        encoder: Any = None,
        head: str | Mapping[str, Any] | Head = "logistic",
        grid: Mapping[str, Sequence[Any]] | None = None,
        criterion: str = "loss",
        folds: int = 5,
        checkpoint: str | None = None,
        batch: int = 32,
        *,
        tiles: Mapping[str, Any] | None = None,
        slices: Mapping[str, Any] | None = None,
        explain: str | Mapping[str, Any] | None = None,
    ) -> None:
        self.explanation = Explanation.from_config(explain)
        self.tiles, self.slices = tiles, slices
        self.encoder, self.head, self.grid = encoder, make_head(head), dict(grid or {})
        self.criterion, self.folds, self.checkpoint, self.batch = criterion, folds, checkpoint, batch
        by_part = encoder if isinstance(encoder, Mapping) else {}
        refuse_names({"encoder": encoder} | {f"encoder.{part}": of_part for part, of_part in by_part.items()})
        for name in self.grid:
            self.head.changed({name: getattr(self.head, name, None)})
        if folds < 2 or batch < 1:
            raise UsageError(f"expected model.folds from 2 and model.batch from 1, got {folds} and {batch}")
        if self.explanation and not (hasattr(encoder, "network_and_transform") and hasattr(self.head, "logits")):
            raise UsageError(
                "model.explain needs an encoder of timm or torchvision and a linear head, such as logistic"
            )
        self.uses_torch = encoder is not None or self.head.uses_torch
        self._further: list[Head] = []
        self._loaded = False

    def check_ready(self) -> None:
        """Raises UserError without a fitted head or the encoder's weights."""
        for encoder in self._encoders():
            getattr(encoder, "check_ready", lambda: None)()
        if self.checkpoint is None and not self.head.arrays:
            raise UserError("model.checkpoint is not set: fit the probe first, and name the run's folder")
        self._load()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Prepares the encoder."""
        for encoder in self._encoders():
            getattr(encoder, "prepare", lambda labels, example: None)(labels, example)

    def learn(
        self, fit: Iterable[Lesson], validation: Iterable[Lesson] | None, folder: Path, asked: str
    ) -> dict[str, Any]:
        """Fits the head, and keeps it.

        Args:
            fit: cases to fit on, each read once.
            validation: cases to choose settings on; None for cross-validation.
            folder: of the run: gets `checkpoints/` with the head, and `search.json` with all trials of the grid.
            asked: the task's capability: `classify`, `estimate_risk` or `regress`.

        Returns:
            What was chosen, and how fitting ended.

        Raises:
            UserError: nothing can be learned from the cases.
        """
        checkpoints = folder / CHECKPOINTS
        checkpoints.mkdir(parents=True, exist_ok=True)
        lessons = self._gathered(fit, asked, checkpoints / "fit.part")
        validation_features = None
        try:
            if self.grid and validation is not None:
                validation_features = self._gathered(
                    validation, asked, checkpoints / "validation.part", lessons.targets.names
                )
            if self.grid:
                self.head, trials = search(
                    self.head, self.grid, lessons, validation_features, criterion=self.criterion, folds=self.folds
                )
            else:
                self.head, trials = self.head.fit(lessons.features, lessons.targets, lessons.groups), []
        finally:
            for part in checkpoints.glob("*.part"):
                part.unlink()
        self.head.facts |= {"asked": asked, "encoder": _encoder_revision(self.encoder)}
        self.head.save(checkpoints)
        self._loaded = True
        chosen = {name: getattr(self.head, name) for name in self.grid}
        facts = {
            "criterion": self.criterion,
            "chosen_on": "nothing"
            if not self.grid
            else "cases to validate on"
            if validation_features
            else f"{self.folds} folds",
            "chosen": chosen,
            "trials": [
                {"settings": t.settings, "value": t.value if math.isfinite(t.value) else None, **t.facts}
                for t in trials
            ],
        }
        (folder / SEARCH).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        ended = {name: fact for name, fact in self.head.facts.items() if name in ("n_iter", "converged", "C", "alpha")}
        return {"head": type(self.head).__name__, "cases": len(lessons.targets), **chosen, **ended}

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability per prompt, with `attention` of bags.

        Raises:
            CaseError: a case shows no features or pictures, or the head was not fitted on a class that is asked for.
        """
        if self.explanation is not None:
            self.encoder.network_and_transform()  # loaded so that it gives gradients, too
        values, weights = self._predicted(prompts, "classify")
        indices = {plain(name): index for index, name in enumerate(self.head.facts["names"])}
        answers = []
        for prompt, row, attention in zip(prompts, values, weights, strict=True):
            wanted = list(prompt.labels.values()) or list(self.head.facts["names"])
            missing = next((name for name in wanted if plain(name) not in indices), None)
            if missing is not None:
                raise CaseError(f"case {prompt.case_id!r}: the head was fitted without class {missing!r}; fit it anew")
            numbers = np.array([row[indices[plain(name)]] for name in wanted])
            if prompt.options:
                numbers = numbers / max(numbers.sum(), 1e-300)
            answer = _weigh_tiles(zip(wanted, numbers.tolist(), strict=True), attention, prompt)
            answers.append(self._explained(prompt, [indices[plain(name)] for name in wanted], answer))
        return answers

    def _explained(self, prompt: Prompt, places: Sequence[int], answer: Weighed) -> Weighed:
        """The answer, with maps where wanted for a single picture."""
        images = shown_images(prompt)
        if self.explanation is None or len(images) != 1 or is_features(images[0]):
            return answer
        from medimg_eval.models.explanations import box_of_input, explain_pictures, with_maps  # with torch

        network, transform = self.encoder.network_and_transform()
        head: Any = self.head
        names = self.explanation.classes_of(list(answer), list(answer.values()))
        place_of = dict(zip(answer, places, strict=True))
        picture = as_picture(images[0])
        picture_ = self.encoder.prepared([picture], transform)
        wanted = [place_of[name] for name in names]
        maps = explain_pictures(network, picture_, self.explanation, wanted, head.logits)
        return with_maps(answer, names, maps.maps[0], box_of_input(transform, picture.size[::-1]))

    def estimate_risk(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns `risk` and, where known, survival at the asked horizons."""
        values, weights = self._predicted(prompts, "estimate_risk")
        survival = getattr(self.head, "survival", None)
        answers = []
        for prompt, row, attention in zip(prompts, values, weights, strict=True):
            answer = [("risk", float(row[0]))]
            named = [name for name in prompt.labels.values() if name.startswith("S(")]
            if survival is not None and named:
                shares = survival(row[None], [float(name[2:-1]) for name in named])[0]
                answer += zip(named, shares.tolist(), strict=True)
            answers.append(_weigh_tiles(answer, attention, prompt))
        return answers

    def regress(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns output -> number for each prompt."""
        values, weights = self._predicted(prompts, "regress")
        names = self.head.facts["names"]
        return [
            _weigh_tiles(zip(names, row.tolist(), strict=True), attention, prompt)
            for prompt, row, attention in zip(prompts, values, weights, strict=True)
        ]

    def _predicted(self, prompts: Prompts, asked: str) -> tuple[Array, list[Array | None]]:
        self._load()
        if self.head.facts["asked"] != asked:
            raise UserError(f"the head was fitted to {self.head.facts['asked']}, and the task asks it to {asked}")
        bags = self._bags(prompts)
        heads: list[Any] = [self.head, *self._further]
        if hasattr(self.head, "explain"):
            values, weights = zip(*(head.explain(bags) for head in heads), strict=True)
            return np.mean(values, 0), [
                None if some[0] is None else np.mean(some, 0) for some in zip(*weights, strict=True)
            ]
        vectors = self._vectors(bags)
        return np.mean([head.predict(vectors) for head in heads], 0), [None] * len(bags)

    def _load(self) -> None:
        """Loads the head once; raises UserError for another head or encoder."""
        if self._loaded or self.checkpoint is None:
            return
        folds = sorted(Path(self.checkpoint).expanduser().glob("fold-*"))
        self.head, *self._further = [self._load_head(folder) for folder in folds or [Path(self.checkpoint)]]
        if self._further and self.explanation is not None:
            raise UserError(f"{self.checkpoint}: model.explain draws maps of one head, and here is one for each fold")
        self._loaded = True

    def _load_head(self, checkpoint: Path) -> Head:
        folder = fitted_folder(str(checkpoint))
        head = load_head(folder)
        if type(head) is not type(self.head):
            raise UserError(
                f"{folder}: holds a head {type(head).__name__}, the config names {type(self.head).__name__}; test it "
                "by the model that it was fitted as"
            )
        if (encoder_config := head.facts.get("encoder")) != (now := _encoder_revision(self.encoder)):
            raise UserError(f"{folder}: was fitted on features of {encoder_config or 'files'}, not of {now or 'files'}")
        return head

    def _gathered(self, lessons: Iterable[Lesson], asked: str, spill: Path, names: Sequence[str] = ()) -> Lessons:
        """Features and targets of cases; bags are packed as they come."""
        prompts: list[Prompt] = []
        held: list[Any] = []
        groups: list[str] = []

        def bags() -> Iterator[Array]:
            for some in _lesson_batches(lessons, self.preferred_batch):
                yield from self._bags([lesson.prompt for lesson in some])
                # Without images, which are read and done with.
                prompts.extend(replace(lesson.prompt, images=()) for lesson in some)
                held.extend(lesson.target for lesson in some)
                groups.extend(lesson.group for lesson in some)

        if self.head.takes == "bags":
            from medimg_eval.models.heads import PackedBags  # with torch

            features: Any = PackedBags.of(bags(), spill)
        else:
            features = self._vectors(list(bags()))
        targets = targets_of(prompts, held, asked)
        if targets.kind not in self.head.kinds:
            able = ", ".join(sorted(self.head.kinds))
            raise UserError(f"head {type(self.head).__name__} learns {able}, and the task asks for {targets.kind}")
        if names and targets.names != tuple(names):
            raise UserError(f"cases to validate on have {targets.names}, those to fit on {tuple(names)}")
        return Lessons(features, targets, groups)

    def _encoders(self) -> list[Any]:
        return list(self.encoder.values()) if isinstance(self.encoder, Mapping) else [self.encoder]

    def _vectors(self, bags: Sequence[Any]) -> Array:
        """One vector for each case, (case, feature); raises UserError where their lengths differ."""
        vectors = [_pool_bag(bag) for bag in bags]
        lengths = {len(vector) for vector in vectors}
        if len(lengths) > 1:
            raise UserError(f"features of the cases have several lengths: {sorted(lengths)[:5]}")
        return np.stack(vectors)

    def _bags(self, prompts: Prompts) -> Sequence[Any]:
        """The features of each prompt's images, one after another: (tile, feature)."""
        pairs = [(prompt, shown_images(prompt)) for prompt in prompts]
        for prompt, images in pairs:
            if not images:
                raise CaseError(f"case {prompt.case_id!r} has no image")
        pictures = [image for _, images in pairs for image in images if not is_features(image)]
        if pictures and self.encoder is None:
            raise CaseError(
                f"case {pairs[0][0].case_id!r} shows pictures, and the probe has no encoder; set model.encoder, or a "
                "layout that gives features"
            )
        embedded = iter(self._embedded(pictures))
        bags = []
        for prompt, images in pairs:
            rows = [image.array[0] if is_features(image) else next(embedded)[None] for image in images]
            if len(lengths := sorted({row.shape[-1] for row in rows})) > 1:
                raise CaseError(
                    f"case {prompt.case_id!r} has features of the lengths {', '.join(map(str, lengths))}; unlike parts "
                    "of a case are for model=fusion_probe"
                )
            bags.append(np.concatenate(rows))
        return bags

    def _embedded(self, pictures: Sequence[Image]) -> Iterator[Array]:
        for begin in range(0, len(pictures), self.batch):
            some = pictures[begin : begin + self.batch]
            if hasattr(self.encoder, "embed_images"):
                yield from np.asarray(self.encoder.embed_images(some), np.float32)
            else:
                embedded = self.encoder.embed([Prompt(str(index), (image,)) for index, image in enumerate(some)])
                yield from (np.asarray(vector, np.float32) for vector in embedded)


def targets_of(prompts: Sequence[Prompt], held: Sequence[Any], asked: str) -> Targets:
    """Targets that heads learn, of `Findings`, or of survival `Survival`.

    Raises:
        UserError: targets are of another kind, or lack a class.
    """
    if not prompts:
        raise UserError("there are no cases to fit on")
    if asked == "estimate_risk":
        if not all(isinstance(target, Survival) for target in held):
            raise UserError("a head of survival needs a time and an event for each case to fit on")
        return Targets("survival", ("time", "event"), np.array([[target.time, float(target.event)] for target in held]))
    names = tuple(prompts[0].labels.values())
    kinds: dict[str, Kind] = {"classify": "exclusive" if prompts[0].options else "classes", "regress": "numbers"}
    if asked not in kinds:
        raise UserError(f"a probe cannot be fitted to {asked}; it serves classification, survival and regression")
    rows = []
    for prompt, target in zip(prompts, held, strict=True):
        values = {plain(name): value for name, value in target.values.items()} if isinstance(target, Findings) else {}
        missing = next((name for name in names if plain(name) not in values), None)
        if missing is not None:
            raise UserError(f"case {prompt.case_id!r}: the reference does not say what is true of {missing!r}")
        rows.append([float(values[plain(name)]) for name in names])
    return Targets(kinds[asked], names, np.array(rows))


def is_features(image: Image) -> bool:
    """Whether an image holds features, or values, in the place of pixels."""
    return FEATURES.items() <= image.attributes.items()


def _pool_bag(bag: Array) -> Array:
    pooled: Array = bag[0] if len(bag) == 1 else bag.mean(0)
    return pooled


def _weigh_tiles(pairs: Iterable[tuple[str, float]], attention: Array | None, prompt: Prompt) -> Weighed:
    answer = Weighed(pairs)
    answer.attention = attention
    if attention is not None and len(images_shown := shown_images(prompt)) == 1:
        answer.places = getattr(images_shown[0], "places", None)
    return answer


def _encoder_revision(encoder: Any) -> str:
    """Identity of one encoder's features; "" without an encoder."""
    if encoder is None:
        return ""
    if isinstance(encoder, Mapping):
        return "; ".join(f"{part}: {_encoder_revision(part_encoder)}" for part, part_encoder in encoder.items())
    named = getattr(encoder, "revision", "")
    return f"{type(encoder).__name__}: {named}" if named else type(encoder).__name__


def _lesson_batches(lessons: Iterable[Lesson], size: int) -> Iterator[list[Lesson]]:
    each = iter(lessons)
    while some := list(islice(each, size)):
        yield some

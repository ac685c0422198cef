"""CLIP models, as open_clip has them: options weighed by their similarity to the image."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Array, Image, Prompt, Prompts
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Chooser, Embedder, Example, Pass, shown_images

HUB = "hf-hub:"
"""How open_clip marks a model on the Hugging Face hub."""

FIELD = re.compile(r"\{(\w+)\}")
"""What a template names."""

KEPT = 50_000
"""Texts whose embeddings are kept: few questions have options of their own, many share them."""


class OpenClip(nn.Module, Chooser, Embedder):
    """Zero-shot choice and classification with open_clip, by image-text similarity.

    The similarity is the cosine of embeddings of length 1. An option is put into every template; the mean of their
    embeddings, made length 1 again, is the option's (Radford et al. 2021, section 3.1.4). Where no image is shown there
    is no preference. Classes of a classification are its options, and their probabilities a softmax of similarities
    times the scale that the model has learned: over all classes where they exclude each other, elsewhere over each
    class and its absence (Tiu et al. 2022).

    Args:
        model_name: open_clip's name, such as `ViT-B-32`; or `hf-hub:OWNER/NAME` for a model on the Hugging Face hub
            with its weights, which may be downloaded.
        pretrained: open_clip's tag of weights for an architecture, such as `laion2b_s34b_b79k`; may be downloaded.
        checkpoint: file of weights for the architecture; or, without one, a folder that holds
            `open_clip_config.json` and weights, as a copy of a model on the hub does.
        templates: texts made of an option, with `{option}` and, where it helps, `{question}`. What is longer than the
            model's context is cut off at its end.
        absent: texts made of a class that say that it is not there, for classes that do not exclude each other.
        several: of a prompt with several images: `mean` compares with the mean of their embeddings, `largest` takes
            the most similar image for each option.
        batch: images, or texts, computed at once.

    Raises:
        UsageError: a template without an option, or other invalid settings; `prepare` raises UserError
            where the open_clip library is missing or the model cannot be loaded.
    """

    preferred_batch: ClassVar[int] = 32

    def __init__(
        self,
        model_name: str | None = None,
        pretrained: str | None = None,
        checkpoint: str | None = None,
        templates: Sequence[str] = ("{option}", "a photo of {option}"),
        several: Literal["mean", "largest"] = "mean",
        batch: int = 64,
        absent: Sequence[str] = ("no {option}",),
    ) -> None:
        super().__init__()
        if not _is_consistent(model_name, pretrained, checkpoint):
            raise UsageError(
                f"model.model_name={model_name}, pretrained={pretrained}, checkpoint={checkpoint}: expected a model on "
                "the hub alone, one of open_clip's names with one of the others, or a folder as checkpoint alone"
            )
        self.templates, self.absent = _check_templates("templates", templates), _check_templates("absent", absent)
        UsageError.refuse_invalid("model.several", ("mean", "largest"), several)
        self.model_name, self.pretrained, self.checkpoint = model_name, pretrained, checkpoint
        self.several, self.batch = several, batch
        self.clip: Any = None
        self._preprocess: Any = None
        self._tokenize: Any = None
        self._texts: dict[str, Array] = {}

    def check_ready(self) -> None:
        """Raises UserError when there are no weights."""
        if self.pretrained is None and self.checkpoint is None and not str(self.model_name).startswith(HUB):
            raise UserError(
                f"model {self.model_name} has no weights: set model.pretrained to a tag of open_clip, or "
                "model.checkpoint to a file"
            )

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the model, once."""
        self.load()

    def load(self) -> None:
        """Loads the model, once; raises UserError when it cannot be loaded."""
        if self.clip is not None:
            return
        open_clip: Any = importlib.import_module("open_clip")
        source, weights = self._source(open_clip)
        if weights is None and ":" not in source:
            create = open_clip.create_model_and_transforms  # what it weighs without weights is noise: see `check_ready`
        else:
            create = open_clip.create_model_from_pretrained  # raises where weights cannot be found
        with UserError.about(self.checkpoint or source, "cannot be loaded by open_clip", Exception):
            created = create(source, pretrained=weights)
            self._tokenize = open_clip.get_tokenizer(source)
        self._preprocess = created[-1]
        self.clip = created[0].eval()

    def forget(self) -> None:
        """Forgets embeddings of texts, which others than the present weights made."""
        self._texts.clear()

    def one_pass(self) -> Pass | None:
        """The encoding of one image."""
        if self.clip is None:
            return None
        size = self.clip.visual.image_size
        rows, columns = size if isinstance(size, Sequence) else (size, size)
        return Pass(self.clip.encode_image, (1, 3, rows, columns))

    def choose(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns each option's cosine similarity, 0 without an image; CaseError for no picture."""
        vectors = self._seen(prompts)
        return [
            dict(zip(prompt.options, similarity.tolist(), strict=True))
            for prompt, similarity in zip(prompts, self._similarities(prompts, vectors, self.templates), strict=True)
        ]

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability, 0 to 1, constant without an image.

        Args:
            prompts: with classes as `labels`; where they exclude each other as `options`, too.

        Raises:
            CaseError: an image is no picture.
        """
        asked_prompts = [
            replace(prompt, options={str(key): name for key, name in prompt.labels.items()}) for prompt in prompts
        ]
        vectors = self._seen(asked_prompts)
        present = self._similarities(asked_prompts, vectors, self.templates)
        absent = self._similarities(asked_prompts, vectors, self.absent)
        scale = float(self.clip.logit_scale.detach().exp())
        probabilities = []
        for prompt, there, gone in zip(prompts, present, absent, strict=True):
            if prompt.options:
                weights = np.exp(scale * (there - there.max()))
                numbers = weights / weights.sum()
            else:
                numbers = 0.5 * (1 + np.tanh(scale * (there - gone) / 2))
            probabilities.append(dict(zip(prompt.labels.values(), numbers.tolist(), strict=True)))
        return probabilities

    def _seen(self, prompts: Prompts) -> list[Array | None]:
        """Image embeddings of each prompt, (image, feature); None without images."""
        self.load()
        vectors = iter(self._images_of([prompt for prompt in prompts if prompt.images]))
        return [next(vectors) if prompt.images else None for prompt in prompts]

    def _similarities(self, prompts: Prompts, seen: Sequence[Array | None], templates: Sequence[str]) -> list[Array]:
        """Similarity of options to images, float64, (option,); 0 without images."""
        worded = [
            self._worded(prompt, templates) if vector is not None else []
            for prompt, vector in zip(prompts, seen, strict=True)
        ]
        self.embed_texts([text for texts in worded for text in texts])  # together; below they are looked up
        similarities: list[Array] = []
        for prompt, texts, vector in zip(prompts, worded, seen, strict=True):
            if vector is None:
                similarities.append(np.zeros(len(prompt.options)))
                continue
            options = _unit_vectors(self.embed_texts(texts).reshape(len(prompt.options), len(templates), -1).mean(1))
            similarities.append((options @ vector.T).max(1).astype(np.float64))
        return similarities

    def embed(self, prompts: Prompts) -> Sequence[Array]:
        """Returns a unit vector per prompt, float32.

        It is that of the mean of the vectors of its images, or of its text where it has none.
        """
        pictured = [prompt for prompt in prompts if prompt.images]
        vectors = iter(self._images_of(pictured))
        read = iter(self.embed_texts([prompt.text for prompt in prompts if not prompt.images]))
        return [_unit_vectors(next(vectors).mean(0)) if prompt.images else next(read) for prompt in prompts]

    def cuts(self, texts: Sequence[str]) -> Sequence[bool]:
        """Returns which texts exceed the context, such as 77 tokens."""
        self.load()
        words = self._tokenize
        tokenizer = getattr(words, "tokenizer", None)  # of the Hugging Face library, which counts its own marks
        if tokenizer is not None:
            return [
                len(tokenizer(words.clean_fn(text), verbose=False).input_ids) > words.context_length for text in texts
            ]
        return [len(words.encode(text)) + 2 > words.context_length for text in texts]

    def shown(self, image: Image) -> Tensor:
        """Picture as model input, float32, (3, row, column); CaseError for others."""
        self.load()
        tensor: Tensor = self._preprocess(as_picture(image))
        return tensor

    def embed_images(self, images: Sequence[Image]) -> Array:
        """Returns the embeddings of pictures, float32, (image, feature), each of length 1.

        Raises:
            CaseError: one is no picture of 1 to 4 channels.
        """
        self.load()
        batches = []
        for begin in range(0, len(images), self.batch):
            pictures = [self._preprocess(as_picture(image)) for image in images[begin : begin + self.batch]]
            batches.append(self._vectors(self.clip.encode_image, torch.stack(pictures)))
        return np.concatenate(batches) if batches else np.zeros((0, 0), np.float32)

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns unit text embeddings, float32, (text, feature), each computed once."""
        self.load()
        missing = [text for text in dict.fromkeys(texts) if text not in self._texts]
        for begin in range(0, len(missing), self.batch):
            some = missing[begin : begin + self.batch]
            self._texts.update(zip(some, self._vectors(self.clip.encode_text, self._tokenize(some)), strict=True))
        vectors = [self._texts[text] for text in texts]
        while len(self._texts) > KEPT:
            del self._texts[next(iter(self._texts))]  # the oldest
        return np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)

    @torch.inference_mode()
    def _vectors(self, encode: Callable[[Tensor], Tensor], shown: Tensor) -> Array:
        device = next(self.clip.parameters()).device
        return _unit_vectors(encode(shown.to(device)).float().cpu().numpy())

    def _worded(self, prompt: Prompt, templates: Sequence[str]) -> list[str]:
        """Options in all templates, option by option."""
        question = prompt.question
        return [
            FIELD.sub(lambda field, option=option: option if field[1] == "option" else question, template)  # type: ignore[misc]
            for option in prompt.options.values()
            for template in templates
        ]

    def _images_of(self, prompts: Prompts) -> list[Array]:
        """Embeddings for comparison, (image, feature); one unless maxima are wanted."""
        images_of = [shown_images(prompt) for prompt in prompts]
        vectors = iter(self.embed_images([image for images in images_of for image in images]))
        vectors_of = [np.stack([next(vectors) for _ in images]) for images in images_of]
        return (
            vectors_of
            if self.several == "largest"
            else [_unit_vectors(each.mean(0, keepdims=True)) for each in vectors_of]
        )

    def _source(self, open_clip: Any) -> tuple[str, str | None]:
        """Name of the model in open_clip, and its weights."""
        path = None if self.checkpoint is None else Path(self.checkpoint).expanduser()
        if path is not None and not path.exists():
            raise UserError(f"{path}: no such file or folder; set model.checkpoint to weights of open_clip")
        if self.model_name is None:
            if path is None or not (path / "open_clip_config.json").is_file():
                raise UserError(
                    f"{path}: is no folder with an open_clip_config.json; for a file of weights, set model.model_name "
                    "to open_clip's name of their network"
                )
            return f"local-dir:{path}", None
        if self.model_name.startswith(HUB):
            return self.model_name, None
        name, names = self.model_name.replace("/", "-"), open_clip.list_models()
        if name not in names:
            close = nearest(name, names).partition(" (")[0]
            raise UserError(f"model.model_name: open_clip has no {self.model_name!r}{close}")
        if self.pretrained is not None and not open_clip.get_pretrained_cfg(name, self.pretrained):
            close = nearest(self.pretrained, open_clip.list_pretrained_tags_by_model(name))
            raise UserError(f"model.pretrained: open_clip has no weights {self.pretrained!r} for {name}{close}")
        return name, self.pretrained if path is None else str(path)


def _check_templates(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Templates; raises UsageError for one that lacks the option, or names something else."""
    templates = (given,) if isinstance(given, str) else tuple(given)
    for template in templates or ("",):
        fields = set(FIELD.findall(template))
        if "option" not in fields or fields - {"option", "question"}:
            raise UsageError(
                f"model.{name}: expected texts with {{option}} and, beside it, {{question}} at most; got {template!r}"
            )
    return templates


def _is_consistent(model_name: str | None, pretrained: str | None, checkpoint: str | None) -> bool:
    if model_name is None:
        return checkpoint is not None and pretrained is None
    weights = sum(option is not None for option in (pretrained, checkpoint))
    return weights == 0 if model_name.startswith(HUB) else weights <= 1


def _unit_vectors(vectors: Array) -> Array:
    """Vectors along the last axis, made length 1."""
    unit_rows: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit_rows

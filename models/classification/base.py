"""What classifiers that are networks have in common: their classes, several images, and the loss of `fit`."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Array, Findings, Image, Prompt, Prompts
from medimg_eval.codecs import Weighed
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.models.base import Example, shown_images
from medimg_eval.models.class_mapping import plain
from medimg_eval.models.classification.contract import Classifier, log_softmax
from medimg_eval.models.explanations import Box, Explanation, explain_pictures, with_maps
from medimg_eval.models.networks import kept_beside

SEVERAL = ("mean", "largest")


@dataclass(frozen=True)
class Moves:
    """How training images are moved, anew at each visit.

    Attributes:
        flip: whether they are mirrored along the last axis but channels, every second time.
        degrees: by which they are turned at most, in the plane of their first two axes.
        shift: by which part of each edge they are moved at most, 0 to 1.
    """

    flip: bool = False
    degrees: float = 5.0
    shift: float = 0.04

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Moves | None:
        """The same from a config; None for null, which moves nothing. Raises UsageError."""
        if settings is None:
            return None
        try:
            moves = cls(**settings)
        except TypeError as error:
            raise UsageError(f"model.augment: {error}; expected flip, degrees and shift, or null") from error
        if not (0 <= moves.degrees <= 180 and 0 <= moves.shift < 1):
            raise UsageError(
                f"model.augment: expected degrees from 0 to 180 and shift from 0 to below 1, got {settings}"
            )
        return moves

    def __call__(self, image: Tensor, rng: np.random.Generator) -> Tensor:
        """Moved image, float32, (channel, *spatial of 2 or 3), with replicated borders."""
        axes = image.ndim - 1
        size = np.array(image.shape[1:], np.float64)
        angle = math.radians(rng.uniform(-self.degrees, self.degrees))
        turn = np.eye(axes)
        turn[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        turn = turn * size[None, :] / size[:, None]  # as angles of pixels, not of a square of edge 2
        if self.flip and rng.random() < 0.5:
            turn[:, -1] *= -1
        matrix = np.column_stack([turn, rng.uniform(-2 * self.shift, 2 * self.shift, axes)])
        matrix = np.concatenate([matrix[::-1, :axes][:, ::-1], matrix[::-1, axes:]], axis=1)  # x comes first there
        grid = nn.functional.affine_grid(
            torch.from_numpy(matrix[None].astype(np.float32)), [1, *image.shape], align_corners=False
        )
        return nn.functional.grid_sample(image[None], grid, padding_mode="border", align_corners=False)[0]


class NetworkClassifier(nn.Module, Classifier):
    """Network with one output per class, tested or trained by `fit`.

    Where classes exclude each other, probabilities are a softmax over them and the loss is the cross entropy; elsewhere
    each class has a sigmoid of its own, and the loss is the mean binary cross entropy over all that is known.

    Args:
        classes: names, in the order of the head; None takes those that a checkpoint keeps, or the task's.
        augment: see `Moves`; None for none.
        several: what counts where a prompt has several images, such as the views of a study: the `mean` of their
            probabilities, or the `largest` of each class, which needs classes that do not exclude each other.
        batch: images computed at once.
        explain: kind of the maps that are kept beside answers to one picture, or settings of `Explanation`; None for
            none.

    Raises:
        UsageError: invalid settings.
    """

    preferred_batch: ClassVar[int] = 32
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init__(
        self,
        *,
        classes: Sequence[str] | None,
        augment: Mapping[str, Any] | None,
        several: str,
        batch: int,
        explain: str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.explanation = Explanation.from_config(explain)
        UsageError.refuse_invalid("model.several", SEVERAL, several)
        if batch < 1:
            raise UsageError(f"model.batch is {batch}, expected at least 1")
        self.classes = [] if classes is None else distinct(classes)
        self.several, self.batch = several, batch
        self.network: Any = None
        self._moves = Moves.of(augment)
        self._asked_for: list[str] = []
        self.register_buffer("names", torch.zeros(0, dtype=torch.uint8))

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the network once; the task's classes decide only where it is to be trained."""
        self._asked_for = list(labels.values())
        self.load()

    @abstractmethod
    def load(self) -> None:
        """Builds `network` once, after `classes` and `keep_names`."""

    @abstractmethod
    def tensor(self, image: Image) -> Tensor:
        """Image as network input, float32; CaseError where impossible."""

    def input_box(self, image: Image) -> Box:
        """First and end row and column that the network sees, in pixels.

        Raises:
            UserError: that is not known.
        """
        raise UserError(f"model.explain: where the input of {type(self).__name__} lies in a picture is not known")

    def keep_names(self) -> None:
        """Puts the classes beside the weights, so that a checkpoint knows them."""
        self.names = torch.frombuffer(bytearray(json.dumps(self.classes).encode()), dtype=torch.uint8).clone()

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability per prompt, constant without an image.

        Raises:
            CaseError: an image cannot be shown to the network, or the model lacks a class that is asked for.
        """
        answers = []
        for prompt, logits in zip(prompts, self.logits(prompts), strict=True):
            wanted = self._asked(prompt)
            exclusive = bool(prompt.options) or not prompt.labels
            # Of classes that exclude each other, those that are not asked for are no answer.
            probabilities = self._together(logits[:, list(wanted.values())], exclusive=exclusive, case=prompt.case_id)
            answer = Weighed(zip(wanted, probabilities.tolist(), strict=True))
            answers.append(self._explained(prompt, wanted, answer))
        return answers

    def _explained(self, prompt: Prompt, asked: Mapping[str, int], answer: Weighed) -> Weighed:
        """The answer, with maps where wanted for a single picture."""
        images = shown_images(prompt)
        if self.explanation is None or len(images) != 1:
            return answer
        names = self.explanation.classes_of(list(asked), list(answer.values()))
        input_ = self.tensor(images[0])[None].to(self._device())
        maps = explain_pictures(self.network, input_, self.explanation, [asked[name] for name in names])
        return with_maps(answer, names, maps.maps[0], self.input_box(images[0]))

    def logits(self, prompts: Prompts) -> list[Array]:
        """Returns for each prompt the network's outputs, float64, (image, class)."""
        self.load()
        images_of = [shown_images(prompt) for prompt in prompts]
        images = [image for some in images_of for image in some]
        logits: list[Array] = []
        for begin in range(0, len(images), self.batch):
            some = torch.stack([self.tensor(image) for image in images[begin : begin + self.batch]])
            logits += list(self._computed(some))
        each = iter(logits)
        empty = np.zeros((0, len(self.classes)))
        return [np.stack([next(each) for _ in some]) if some else empty for some in images_of]

    def training_samples(
        self, prompt: Prompt, target: Findings, labels: Mapping[int, str], *, seed: int
    ) -> list[dict[str, Tensor]]:
        """The images of one case, each with the case's truth.

        Returns:
            `image` float32, as the network takes it; `truth` (class,) float32, NaN where it is not known; `exclusive`
            bool.

        Raises:
            CaseError: there is no image, or the case does not say what is true of a class.
        """
        self.load()
        values = {plain(name): value for name, value in target.values.items()}
        missing = next((name for name in self.classes if plain(name) not in values), None)
        if missing is not None:
            raise CaseError(
                f"case {prompt.case_id!r}: the reference has no class {missing!r}{nearest(missing, target.values)}"
            )
        truth = torch.tensor([values[plain(name)] for name in self.classes], dtype=torch.float32)
        rng = np.random.default_rng(seed)
        images = [self.tensor(image) for image in shown_images(prompt)]
        if not images:
            raise CaseError(f"case {prompt.case_id!r} has no image to learn from; leave it out of the split to fit on")
        moved = images if self._moves is None else [self._moves(image, rng) for image in images]
        exclusive = torch.tensor(bool(prompt.options))
        return [{"image": image, "truth": truth, "exclusive": exclusive} for image in moved]

    def training_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Mean loss over cases, or over classes with known truth."""
        return class_loss(self.network(batch["image"]).float(), batch["truth"], exclusive=bool(batch["exclusive"][0]))

    @torch.no_grad()
    def _computed(self, shown: Tensor) -> Array:
        learning = self.network.training
        self.network.eval()
        try:
            logits: Array = self.network(shown.to(self._device())).double().cpu().numpy()
        finally:
            self.network.train(learning)
        return logits

    def _device(self) -> torch.device:
        first = next(self.network.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def _together(self, logits: Array, *, exclusive: bool, case: str) -> Array:
        """Probabilities of one case, (class,)."""
        if not len(logits):
            return np.full(logits.shape[1], 1 / logits.shape[1] if exclusive else 0.5)
        each = np.exp(log_softmax(logits)) if exclusive else 0.5 * (1 + np.tanh(logits / 2))
        if self.several == "largest" and len(each) > 1:
            if exclusive:
                raise CaseError(
                    f"case {case!r}: the largest of several images' probabilities do not sum to 1; "
                    "set model.several=mean"
                )
            return np.asarray(each.max(axis=0))
        return np.asarray(each.mean(axis=0))

    def _asked(self, prompt: Prompt) -> dict[str, int]:
        """The classes that a prompt names -> their places in the head."""
        indices = {plain(name): index for index, name in enumerate(self.classes)}
        wanted = list(prompt.labels.values()) or self.classes
        missing = next((name for name in wanted if plain(name) not in indices), None)
        if missing is not None:
            raise CaseError(
                f"case {prompt.case_id!r}: the model has no class {missing!r}{nearest(missing, self.classes)}"
            )
        return {name: indices[plain(name)] for name in wanted}


def class_loss(logits: Tensor, truth: Tensor, *, exclusive: bool) -> Tensor:
    """Returns the loss of a classification.

    Args:
        logits: (case, class).
        truth: 0 to 1, (case, class); NaN where it is not known.
        exclusive: the cross entropy of a softmax, over cases in which a class is present; otherwise the mean binary
            cross entropy over all that is known. 0 where nothing is.
    """
    filled = torch.nan_to_num(truth)
    if exclusive:
        present = filled.sum(1)
        losses = -(filled * logits.log_softmax(1)).sum(1) / present.clamp(min=1e-6)
        counted = (present > 0).to(losses.dtype)
    else:
        losses = nn.functional.binary_cross_entropy_with_logits(logits, filled, reduction="none")
        counted = (~torch.isnan(truth)).to(losses.dtype)
    return (losses * counted).sum() / counted.sum().clamp(min=1)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of classes; raises UsageError for one that occurs twice."""
    used: set[str] = set()
    for name in names:
        if plain(str(name)) in used:
            raise UsageError(f"model.classes names {name!r} twice; expected each class of the head once")
        used.add(plain(str(name)))
    return [str(name) for name in names]


def stored_classes(path: Path) -> list[str]:
    """Classes stored in a checkpoint, or folder, of `fit`; none in other weights.

    Raises:
        UserError: there is no such file, or it is no checkpoint.
    """
    names = kept_beside(path, "names")
    if names is None:
        return []
    try:
        return [str(name) for name in json.loads(bytes(names.tolist()))]
    except ValueError as error:
        raise UserError(f"{path}: its names of classes cannot be read; fit again, or set model.classes") from error

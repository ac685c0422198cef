"""Classifiers of the timm library, where a set of questions is really a classification."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Array, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.models.base import Chooser, Example, Model, Pass
from medimg_eval.models.open_clip import shown_images
from medimg_eval.models.pictures import as_picture
from medimg_eval.models.translation import plain
from medimg_eval.models.weights import load_weights

HUB = "hf-hub:"
"""How timm marks a model on the Hugging Face hub."""


class Classifier(Model, ABC):
    """A model that says how probable each of its classes is."""

    @abstractmethod
    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Classifies a batch of images, or of several images each.

        Args:
            prompts: each with `images`.

        Returns:
            For each prompt class -> probability, 0 to 1, in the order of the model's classes.

        Raises:
            Exception: whatever it raises is recorded against the case; the others go on.
        """


class TimmClassifier(nn.Module, Classifier, Chooser):
    """Any backbone of timm with a linear head; its classes belong to each other: probabilities are a softmax.

    Asked a question, it prefers the option whose text names its most probable class. Case, hyphens, underscores and
    white space do not distinguish names. Of several images, the probabilities are averaged.

    Args:
        backbone: timm's name, such as `resnet50`; or `hf-hub:OWNER/NAME` for a model on the Hugging Face hub with its
            weights, which may be downloaded.
        checkpoint: weights for the backbone: the folder of a `fit` run, a Lightning checkpoint, a state dict saved by
            torch or as safetensors; or, without a backbone, a folder with `config.json` and weights, as a copy of a
            model on the hub.
        classes: names, in the order of the head; by default as the model's `config.json` names them.
        preprocess: what differs from what the backbone was trained with: `input_size` (3, row, column), `mean`, `std`,
            `interpolation`, `crop_pct`, `crop_mode`.
        batch: images computed at once.

    Raises:
        UsageError: settings that cannot be meant; `prepare` raises UserError where the timm library is missing, or the
            model cannot be loaded or has another number of classes.
    """

    preferred_batch: ClassVar[int] = 32

    def __init__(
        self,
        backbone: str | None = None,
        checkpoint: str | None = None,
        classes: Sequence[str] | None = None,
        preprocess: Mapping[str, Any] | None = None,
        batch: int = 64,
    ) -> None:
        super().__init__()
        if backbone is None and checkpoint is None:
            raise UsageError("expected model.backbone (a name of timm, or hf-hub:OWNER/NAME) or model.checkpoint")
        if backbone is not None and backbone.startswith(HUB) and checkpoint is not None:
            raise UsageError(
                f"model.checkpoint is set beside {backbone}, which brings its own weights; expected one of them"
            )
        self.backbone, self.checkpoint, self.batch = backbone, checkpoint, batch
        self.classes = [] if classes is None else _distinct(classes)
        self.settings = dict(preprocess or {})
        self.network: Any = None
        self._preprocess: Any = None
        self._size: tuple[int, ...] = ()

    def check_ready(self) -> None:
        """Raises UserError when there are no weights, or when it is not known what the classes are."""
        if self.backbone is None or self.backbone.startswith(HUB):
            return
        if self.checkpoint is None:
            raise UserError(f"model {self.backbone} has no weights: set model.checkpoint to a file")
        if not self.classes:
            raise UserError(
                f"set model.classes to the names of the classes of {self.checkpoint}, in the order of its head"
            )

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the model, once."""
        if self.network is None:
            self._load()

    def one_pass(self) -> Pass | None:
        """The classification of one image."""
        if self.network is None:
            return None
        return Pass(self.network, (1, *self._size))

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns for each prompt class -> probability, 0 to 1; without an image all are the same.

        Raises:
            CaseError: an image is no picture.
        """
        found = self._log_probabilities(prompts)
        return [dict(zip(self.classes, np.exp(numbers).tolist(), strict=True)) for numbers in found]

    def choose(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns the natural logarithm of the probability of each option's class; without an image all are the same.

        Raises:
            CaseError: an option is no class of the model, or an image no picture.
        """
        if self.network is None:
            self._load()
        places = {plain(name): place for place, name in enumerate(self.classes)}
        for prompt in prompts:
            lost = next((text for text in prompt.options.values() if plain(text) not in places), None)
            if lost is not None:
                raise CaseError(
                    f"case {prompt.case_id!r}: option {lost!r} is no class of the model{nearest(lost, self.classes)}"
                )
        return [
            {letter: float(numbers[places[plain(text)]]) for letter, text in prompt.options.items()}
            for prompt, numbers in zip(prompts, self._log_probabilities(prompts), strict=True)
        ]

    def _log_probabilities(self, prompts: Prompts) -> list[Array]:
        """For each prompt the logarithm of the mean probability of each class over its images, float64, (class,)."""
        if self.network is None:
            self._load()
        shown = [shown_images(prompt) for prompt in prompts]
        pictures = [as_picture(image) for images in shown for image in images]
        numbers: list[Array] = []
        for begin in range(0, len(pictures), self.batch):
            some = [self._preprocess(picture) for picture in pictures[begin : begin + self.batch]]
            numbers += list(self._computed(torch.stack(some)))
        each = iter(numbers)
        unseen = np.full(len(self.classes), -np.log(len(self.classes)))
        together = [[next(each) for _ in images] or [unseen] for images in shown]
        return [np.logaddexp.reduce(np.stack(rows), axis=0) - np.log(len(rows)) for rows in together]

    @torch.inference_mode()
    def _computed(self, shown: Tensor) -> Array:
        device = next(self.network.parameters()).device
        found: Array = self.network(shown.to(device)).double().log_softmax(1).cpu().numpy()
        return found

    def _load(self) -> None:
        try:
            timm: Any = importlib.import_module("timm")
        except ImportError as error:
            raise UserError("TimmClassifier needs the timm library: pip install 'medimg-eval[vlm]'") from error
        network: Any = self._network(timm)
        number = network.num_classes
        if not self.classes:
            named = network.pretrained_cfg.get("label_names")
            if not isinstance(named, Sequence) or len(named) != number:
                raise UserError(
                    f"{self._where}: its config.json names no classes; set model.classes to its {number} names"
                )
            self.classes = _distinct(named)
        if len(self.classes) != number:
            raise UserError(f"{self._where}: has {number} classes, model.classes names {len(self.classes)}")
        settings = {**timm.data.resolve_model_data_config(network), **self.settings}
        try:
            self._preprocess = timm.data.create_transform(**settings, is_training=False)
        except TypeError as error:
            raise UserError(f"model.preprocess: {error}") from error
        self._size = tuple(settings["input_size"])
        self.network = network.eval()

    def _network(self, timm: Any) -> nn.Module:
        """The network with its weights, where it has any."""
        if self.backbone is None or self.backbone.startswith(HUB):
            source = f"local-dir:{Path(str(self.checkpoint)).expanduser()}" if self.backbone is None else self.backbone
            try:
                # Without `num_classes`: were it another number, the library would put a random head there.
                loaded: nn.Module = timm.create_model(source, pretrained=True)
            except Exception as error:  # the library fails in many ways over files, names and the network
                raise UserError(f"{self._where}: cannot be loaded as a model of timm ({error})") from error
            return loaded
        if not timm.is_model(self.backbone):
            close = nearest(self.backbone, timm.list_models()).partition(" (")[0]
            raise UserError(f"model.backbone: timm has no {self.backbone!r}{close}")
        network: nn.Module = timm.create_model(self.backbone, num_classes=len(self.classes))
        if self.checkpoint is not None:
            _fill(network, Path(self.checkpoint).expanduser())
        return network

    @property
    def _where(self) -> str:
        return str(self.checkpoint if self.backbone is None else self.backbone)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of classes; raises UsageError for one that occurs twice."""
    known: set[str] = set()
    for name in names:
        if plain(str(name)) in known:
            raise UsageError(f"model.classes names {name!r} twice; expected each class of the head once")
        known.add(plain(str(name)))
    return [str(name) for name in names]


def _fill(network: nn.Module, path: Path) -> None:
    if path.suffix != ".safetensors":
        load_weights(network, path)
        return
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(path))
    except Exception as error:  # a missing or broken file, or another network's
        raise UserError(f"{path}: cannot be loaded as weights ({error})") from error

"""Classifiers of the timm library: for classifications, and for questions that are really one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Chooser, Pass
from medimg_eval.models.class_mapping import plain
from medimg_eval.models.classification.base import NetworkClassifier, distinct, stored_classes
from medimg_eval.models.classification.contract import log_softmax
from medimg_eval.models.explanations import Box, box_of_input
from medimg_eval.models.networks import load_weights

HUB = "hf-hub:"
"""How timm marks a model on the Hugging Face hub."""


class TimmClassifier(NetworkClassifier, Chooser):
    """Backbone of timm with a linear head, tested or trained by `fit`.

    In a classification, classes that exclude each other have a softmax, others a sigmoid each. Asked a question, its
    classes belong to each other, and it prefers the option whose text names its most probable class. Case, hyphens,
    underscores and white space do not distinguish names. Probabilities of several images are averaged.

    Args:
        backbone: timm's name, such as `resnet50`; or `hf-hub:OWNER/NAME` for a model on the Hugging Face hub with its
            weights, which may be downloaded.
        checkpoint: weights for the backbone and its head: the folder of a `fit` run, a Lightning checkpoint, a state
            dict saved by torch or as safetensors; or, without a backbone, a folder with `config.json` and weights, as a
            copy of a model on the hub.
        classes: names, in the order of the head; by default as the checkpoint of a `fit` run keeps them, as the model's
            `config.json` names them, or, of a head that is to be trained, those of the task.
        preprocess: what differs from what the backbone was trained with: `input_size` (3, row, column), `mean`, `std`,
            `interpolation`, `crop_pct`, `crop_mode`.
        weights: file of weights that `fit` begins with; a head in it is left out.
        new_head: of a model on the hub: whether a head for the task's classes takes the place of its own, for `fit`.
        backbone_options: further arguments of `timm.create_model`.

    Raises:
        UsageError: invalid settings; `prepare` raises UserError where the timm library is missing, or the
            model cannot be loaded or has another number of classes.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "weights")

    def __init__(
        self,
        backbone: str | None = None,
        checkpoint: str | None = None,
        classes: Sequence[str] | None = None,
        preprocess: Mapping[str, Any] | None = None,
        batch: int = 64,
        *,
        weights: str | None = None,
        new_head: bool = False,
        backbone_options: Mapping[str, Any] | None = None,
        augment: Mapping[str, Any] | None = None,
        several: str = "mean",
        explain: str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(classes=classes, augment=augment, several=several, batch=batch, explain=explain)
        if backbone is None and checkpoint is None:
            raise UsageError("expected model.backbone (a name of timm, or hf-hub:OWNER/NAME) or model.checkpoint")
        hub = backbone is not None and backbone.startswith(HUB)
        if hub and checkpoint is not None and not new_head:
            raise UsageError(
                f"model.checkpoint is set beside {backbone}, which brings its own weights; expected one of them, or "
                "model.new_head=true where the checkpoint was fitted with it"
            )
        if new_head and not hub:
            raise UsageError("model.new_head is for models on the hub; a backbone of timm gets a new head anyway")
        if weights is not None and (hub or backbone is None):
            raise UsageError("model.weights is set beside a model that brings its own; leave it out")
        self.backbone, self.checkpoint, self.weights, self.new_head = backbone, checkpoint, weights, new_head
        self.settings, self.backbone_options = dict(preprocess or {}), dict(backbone_options or {})
        self._own_head = backbone is None or (hub and not new_head)
        self._preprocess: Any = None
        self._size: tuple[int, ...] = ()

    def check_ready(self) -> None:
        """Raises UserError where weights or class names are missing."""
        if self._own_head:
            return
        if self.checkpoint is None:
            raise UserError(
                f"model {self.backbone} has no weights: set model.checkpoint to a file, or train it first with `fit`"
            )
        self._classes_of_checkpoint()
        if not self.classes:
            raise UserError(
                f"set model.classes to the names of the classes of {self.checkpoint}, in the order of its head"
            )

    def one_pass(self) -> Pass | None:
        """The classification of one image."""
        if self.network is None:
            return None
        return Pass(self.network, (1, *self._size))

    def tensor(self, image: Image) -> Tensor:
        """Picture preprocessed as in training; CaseError for other images."""
        tensor: Tensor = self._preprocess(as_picture(image))
        return tensor

    def input_box(self, image: Image) -> Box:
        """First and end row and column left by scaling and cutting."""
        wide, high = as_picture(image).size
        return box_of_input(self._preprocess, (high, wide))

    def choose(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns each option's log probability, constant without an image.

        Raises:
            CaseError: an option is no class of the model, or an image no picture.
        """
        self.load()
        indices = {plain(name): index for index, name in enumerate(self.classes)}
        for prompt in prompts:
            odd = next((text for text in prompt.options.values() if plain(text) not in indices), None)
            if odd is not None:
                raise CaseError(
                    f"case {prompt.case_id!r}: option {odd!r} is no class of the model{nearest(odd, self.classes)}"
                )
        return [
            {letter: float(numbers[indices[plain(text)]]) for letter, text in prompt.options.items()}
            for prompt, numbers in zip(prompts, map(self._log_mean, self.logits(prompts)), strict=True)
        ]

    def _log_mean(self, logits: Array) -> Array:
        """Log mean probability over images: (image, class) -> (class,), float64."""
        if not len(logits):
            return np.full(len(self.classes), -np.log(len(self.classes)))
        log_mean: Array = np.logaddexp.reduce(log_softmax(logits), axis=0) - np.log(len(logits))
        return log_mean

    def load(self) -> None:
        """Makes the network with its weights, once; UserError where they do not fit."""
        if self.network is not None:
            return
        timm: Any = importlib.import_module("timm")
        if not self._own_head:
            self._settle_classes(timm)
        network: Any = self._network(timm)
        number = network.num_classes
        if not self.classes:
            named = network.pretrained_cfg.get("label_names")
            if not isinstance(named, Sequence) or len(named) != number:
                raise UserError(
                    f"{self._where}: its config.json names no classes; set model.classes to its {number} names"
                )
            self.classes = distinct(named)
        if len(self.classes) != number:
            raise UserError(f"{self._where}: has {number} classes, model.classes names {len(self.classes)}")
        settings = {**timm.data.resolve_model_data_config(network), **self.settings}
        try:
            self._preprocess = timm.data.create_transform(**settings, is_training=False)
        except TypeError as error:
            raise UserError(f"model.preprocess: {error}") from error
        self._size = tuple(settings["input_size"])
        self.network = network.eval()
        self.keep_names()

    def _settle_classes(self, timm: Any) -> None:
        """Names the head's classes; raises UserError where unknown."""
        if not str(self.backbone).startswith(HUB) and not timm.is_model(self.backbone):
            close = nearest(str(self.backbone), timm.list_models())
            raise UserError(f"model.backbone: timm has no {self.backbone!r}{close}")
        self._classes_of_checkpoint()
        if not self.classes and self.checkpoint is None:
            self.classes = distinct(self._asked_for)
        if not self.classes:
            raise UserError(f"{self._where}: set model.classes to the names of its classes, in the order of its head")

    def _classes_of_checkpoint(self) -> None:
        """Takes the classes that a checkpoint of `fit` keeps, where none are named."""
        if not self.classes and self.checkpoint is not None and self.backbone is not None:
            self.classes = stored_classes(Path(self.checkpoint).expanduser())

    def _network(self, timm: Any) -> Any:
        """The network with its weights, where it has any."""
        if self._own_head:
            source = f"local-dir:{Path(str(self.checkpoint)).expanduser()}" if self.backbone is None else self.backbone
            # Without `num_classes`: were it another number, the library would put a random head there.
            return self._made(timm, source, pretrained=True)
        number, hub = len(self.classes), str(self.backbone).startswith(HUB)
        if self.checkpoint is not None:
            network = self._made(timm, self.backbone, num_classes=number)
            load_weights(network, Path(self.checkpoint).expanduser())
            return network
        network = self._made(timm, self.backbone, pretrained=hub, num_classes=0)
        if self.weights is not None:
            load_weights(network, Path(self.weights).expanduser())
        network.reset_classifier(number)
        return network

    def _made(self, timm: Any, source: str | None, **settings: Any) -> Any:
        with UserError.about(self._where, "cannot be loaded as a model of timm", Exception):
            return timm.create_model(source, **settings, **self.backbone_options)

    @property
    def _where(self) -> str:
        return str(self.checkpoint if self.backbone is None else self.backbone)

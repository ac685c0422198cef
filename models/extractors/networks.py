"""Feature extractors with a network: torchvision's Inception, and encoders of transformers, timm and open_clip."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from medimg_eval.errors import UsageError, UserError, import_optional, nearest
from medimg_eval.models.extractors.base import Network
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

POOLED = ("pooled", "first", "mean")


class Inception(Network):
    """Inception v3 of torchvision, from a file of its weights: the 2048 features before the last layer.

    These are the weights that torchvision trained on ImageNet, not those of 2015 that published values of FID rest on:
    distances in its features are no FID.

    Args:
        weights: torchvision's file of weights.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures at once.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            "inception_v3_google-0cc3c7bd.pth",
            "torchvision, Inception_V3_Weights.IMAGENET1K_V1",
            "BSD-3-Clause; trained on ImageNet, which is for research",
        ),
    )
    EDGE = 299

    def __init__(self, weights: str | None = None, device: str = "auto", preferred_batch: int = 32) -> None:
        self.weights, self.device, self.preferred_batch = weights, device, preferred_batch

    @property
    def preprocessing(self) -> str:
        """Stretched to its own edge, without aliasing."""
        return f"stretched to {self.EDGE} x {self.EDGE} by PIL's bilinear filter, pool3"

    def load(self) -> Any:
        """Loads the network without its last layer."""
        import torch
        from torch import nn

        from medimg_eval.models.checkpoints import load_weights

        models: Any = importlib.import_module("torchvision.models")
        network = models.inception_v3(weights=None, init_weights=False, aux_logits=True)
        load_weights(network, self.find(self.needs[0]))
        network.fc = nn.Identity()
        network.AuxLogits = None
        return network.eval().to(torch.device(self.on))

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns pool3, (picture, 2048)."""
        import torch
        from PIL.Image import Resampling

        scaled = [one.resize((self.EDGE, self.EDGE), Resampling.BILINEAR) for one in pictures]
        pixels = np.stack([np.asarray(one, np.float32) for one in scaled]).transpose(0, 3, 1, 2) / 127.5 - 1
        with torch.inference_mode():
            found: Array = self.loaded(torch.from_numpy(pixels).to(self.on)).float().cpu().numpy()
        return found


class TransformersEncoder(Network):
    """RAD-DINO, DINOv2, and any other image encoder that the transformers library loads, with its own preprocessing.

    Args:
        weights: a folder, or `OWNER/NAME[@REVISION]` in the model hub's cache.
        stretched: edge of a square that pictures are stretched to first, as some benchmarks do, before the model's own
            preprocessing enlarges them again.
        pooled: which vector: `pooled` (what the model calls its pooled output), `first` (of the first token, after the
            last layer) or `mean` (over the tokens of patches).
        what: the weights are called, for messages.
        licence: of the weights, for messages.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures at once.
    """

    def __init__(
        self,
        weights: str | None = None,
        pooled: Literal["pooled", "first", "mean"] = "pooled",
        stretched: int | None = None,
        what: str = "",
        licence: str = "see its page",
        device: str = "auto",
        preferred_batch: int = 16,
    ) -> None:
        if pooled not in POOLED:
            raise UsageError(f"extractors.{self.name or 'NAME'}.pooled is {pooled!r}{nearest(str(pooled), POOLED)}")
        self.weights, self.pooled, self.device, self.preferred_batch = weights, pooled, device, preferred_batch
        self.stretched = stretched
        holds = ("config.json", "preprocessor_config.json", "model.safetensors|pytorch_model.bin")
        named = what or f"a folder with {', '.join(holds).replace('|', ' or ')}"
        source = f"the model hub, {weights}" if weights else "the model hub"
        self.needs = (Weights("weights", named, source, licence, holds),)  # type: ignore[misc]

    @property
    def preprocessing(self) -> str:
        """The model's own."""
        first = f"stretched to {self.stretched} x {self.stretched}, then " if self.stretched else ""
        return f"{first}as its preprocessor_config.json says, {self.pooled} output"

    def load(self) -> Any:
        """Loads the model and its image processor."""
        import torch

        transformers = import_optional("transformers")
        folder = self.find(self.needs[0])
        try:
            model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # a folder can hold anything
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(f"{folder}: cannot be loaded as an image encoder by transformers ({reason})") from error
        model = getattr(model, "vision_model", model)  # of a model of images and texts
        return model.eval().to(torch.device(self.on)), processor

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns the vector that `pooled` names, (picture, feature)."""
        import torch
        from PIL.Image import Resampling

        model, processor = self.loaded
        if self.stretched:
            pictures = [one.resize((self.stretched, self.stretched), Resampling.BILINEAR) for one in pictures]
        inputs = processor(images=list(pictures), return_tensors="pt")
        with torch.inference_mode():
            said = model(pixel_values=inputs["pixel_values"].to(self.on))
        found = said.pooler_output if self.pooled == "pooled" else said.last_hidden_state
        if found is None:
            raise UserError(
                f"extractor {self.name!r}: this model has no pooled output; set extractors.{self.name}.pooled=first"
            )
        if self.pooled != "pooled":
            found = found[:, 0] if self.pooled == "first" else found[:, 1:].mean(1)
        vectors: Array = found.flatten(1).float().cpu().numpy()
        return vectors


class TimmEncoder(Network):
    """Any image encoder of the timm library, from a file of weights, with the preprocessing that timm knows of it.

    Args:
        backbone: timm's name, such as `resnet50`.
        weights: a file of weights of it.
        options: further arguments of `timm.create_model`.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures at once.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a file of the backbone's weights", "timm's page on the model hub", "see its page"),
    )

    def __init__(
        self,
        backbone: str = "resnet50",
        weights: str | None = None,
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.backbone, self.weights, self.options = backbone, weights, dict(options or {})
        self.device, self.preferred_batch = device, preferred_batch

    @property
    def preprocessing(self) -> str:
        """The backbone's own."""
        return f"timm's {self.backbone}, its own preprocessing, features before the head"

    def load(self) -> Any:
        """Loads the backbone without its head."""
        import torch

        timm: Any = importlib.import_module("timm")
        if not timm.is_model(self.backbone):
            close = nearest(self.backbone, timm.list_models()).partition(" (")[0]
            raise UserError(f"extractors.{self.name}.backbone: timm has no {self.backbone!r}{close}")
        network = timm.create_model(self.backbone, pretrained=False, num_classes=len(self.names), **self.options)
        fill(network, self.find(self.needs[0]))
        settings = timm.data.resolve_model_data_config(network)
        transform = timm.data.create_transform(**settings, is_training=False)
        return network.eval().to(torch.device(self.on)), transform

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns what the head would be given, (picture, feature)."""
        import torch

        network, transform = self.loaded
        with torch.inference_mode():
            found = network(torch.stack([transform(one) for one in pictures]).to(self.on))
        vectors: Array = found.float().cpu().numpy()
        return vectors


class OpenClipEncoder(Network):
    """BiomedCLIP, and any other model of images and texts of open_clip: vectors of length 1, of both.

    Args:
        weights: a folder with `open_clip_config.json` and weights, or `OWNER/NAME[@REVISION]` in the model hub's cache.
        licence: of the weights, for messages.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures, or texts, at once.
    """

    reads_texts: ClassVar[bool] = True

    def __init__(
        self, weights: str | None = None, licence: str = "see its page", device: str = "auto", preferred_batch: int = 32
    ) -> None:
        self.weights, self.device, self.preferred_batch = weights, device, preferred_batch
        holds = ("open_clip_config.json", "open_clip_pytorch_model.bin|open_clip_model.safetensors")
        named = f"a folder with {', '.join(holds).replace('|', ' or ')}"
        source = f"the model hub, {weights}" if weights else "the model hub"
        self.needs = (Weights("weights", named, source, licence, holds),)  # type: ignore[misc]

    @property
    def preprocessing(self) -> str:
        """The model's own."""
        return "open_clip's preprocessing of it, vectors of length 1"

    def load(self) -> Any:
        """Loads the model."""
        from medimg_eval.models.vision_language import OpenClip

        model = OpenClip(checkpoint=str(self.find(self.needs[0])), batch=self.preferred_batch)
        model.embed_texts([])  # loads it
        return model.eval().to(self.on)

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns vectors of length 1, (picture, feature)."""
        from medimg_eval.case import Image

        arrays = [Image(np.moveaxis(np.asarray(one), -1, 0), np.eye(4), units="pixel") for one in pictures]
        found: Array = self.loaded.embed_images(arrays)
        return found

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns vectors of length 1, (text, feature)."""
        found: Array = self.loaded.embed_texts(texts)
        return found


def fill(network: Any, path: Path) -> None:
    """Loads weights into a network; what it lacks, such as a head, may be left over.

    Args:
        network: of torch.
        path: safetensors, or whatever `load_weights` takes.

    Raises:
        UserError: the file cannot be read, or holds weights of another network.
    """
    from medimg_eval.models.checkpoints import load_weights

    if path.suffix != ".safetensors":
        load_weights(network, path)
        return
    from safetensors.torch import load_file

    try:
        stored = load_file(path)
        network.load_state_dict({key: stored[key] for key in network.state_dict()})
    except Exception as error:  # a broken file, or another network's
        raise UserError(f"{path}: cannot be loaded as weights ({type(error).__name__}: {error})") from error

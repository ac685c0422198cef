"""Feature extractors with a network: Inception, encoders of transformers, timm and open_clip, and one of patients."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from medimg_eval.errors import UsageError, UserError, import_optional, nearest
from medimg_eval.models.extractors.base import Encoder, outside_inference
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import encoded, pretrained, tokenizer_of

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as the network that tells patients was trained with."""

POOLED = ("pooled", "class", "first", "mean", "class+mean")

PICTURES = "biovil_t_image_model_proj_size_128.pt"
PARAMETERS = ("model.safetensors", "pytorch_model.bin")
"""Files of the model of texts, of which one is there."""

JOINT = 128
"""Features that pictures and texts share."""

STATIC = 256
"""Features of a place of the picture, and as many of what changed since an earlier one."""

EDGE, CROP = 512, 448
"""The shorter edge that pictures are brought to, and the square of their middle that is seen."""

LONGEST = 512
"""Word pieces that are read."""


class Inception(Encoder):
    """Inception v3 of torchvision: 2048 features before the last layer.

    These are the weights that torchvision trained on ImageNet, not those of 2015 that published values of FID rest on:
    distances in its features are no FID.

    Args:
        weights: torchvision's file of weights.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            "inception_v3_google-0cc3c7bd.pth",
            "torchvision, Inception_V3_Weights.IMAGENET1K_V1",
            "BSD-3-Clause; trained on ImageNet, which is for research",
            on_hub=False,
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
        from torch import nn

        models: Any = importlib.import_module("torchvision.models")
        network = models.inception_v3(weights=None, init_weights=False, aux_logits=True)
        network = self.filled(network, self.needs[0])
        network.fc = nn.Identity()
        network.AuxLogits = None
        return network

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns pool3, (picture, 2048)."""
        import torch
        from PIL.Image import Resampling

        scaled = [picture.resize((self.EDGE, self.EDGE), Resampling.BILINEAR) for picture in pictures]
        pixels = np.stack([np.asarray(picture, np.float32) for picture in scaled]).transpose(0, 3, 1, 2) / 127.5 - 1
        with torch.inference_mode():
            features: Array = self.loaded(torch.from_numpy(pixels).to(self.on)).float().cpu().numpy()
        return features


class TransformersEncoder(Encoder):
    """Image encoder of transformers, with its preprocessing: RAD-DINO, DINOv2.

    Args:
        weights: a folder, or `OWNER/NAME[@REVISION]` in the model hub's cache.
        stretched: edge of a square that pictures are stretched to first, as some benchmarks do, before the model's own
            preprocessing enlarges them again.
        pooled: which vector: `pooled` (what the model calls its pooled output); after the last layer `class` (of the
            first token; also `first`), `mean` (over the tokens of patches), or `class+mean`, one after the other.
        what: the weights are called, for messages.
        licence: of the weights, for messages.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    def __init__(
        self,
        weights: str | None = None,
        pooled: Literal["pooled", "first", "class", "mean", "class+mean"] = "pooled",
        stretched: int | None = None,
        what: str = "",
        licence: str = "see its page",
        device: str = "auto",
        preferred_batch: int = 16,
        precision: str = "float32",
    ) -> None:
        UsageError.refuse_invalid("pooled", POOLED, pooled)
        self.weights, self.pooled, self.device, self.preferred_batch = weights, pooled, device, preferred_batch
        self.stretched, self.precision = stretched, precision
        holds = ("config.json", "preprocessor_config.json", "model.safetensors|pytorch_model.bin")
        self.needs = (_on_hub(weights, holds, licence, what),)  # type: ignore[misc]

    @property
    def preprocessing(self) -> str:
        """The model's own."""
        first = f"stretched to {self.stretched} x {self.stretched}, then " if self.stretched else ""
        return f"{first}as its preprocessor_config.json says, {self.pooled} output"

    def load(self) -> Any:
        """Loads the model and its image processor."""
        folder = self.find(self.needs[0])
        model, processor = (pretrained(kind, folder, "image encoder") for kind in ("AutoModel", "AutoImageProcessor"))
        model = getattr(model, "vision_model", model)  # of a model of images and texts
        return model.eval().to(self.on), processor

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns the vector that `pooled` names, (picture, feature)."""
        from PIL.Image import Resampling

        model, processor = self.loaded
        if self.stretched:
            pictures = [picture.resize((self.stretched, self.stretched), Resampling.BILINEAR) for picture in pictures]
        inputs = processor(images=list(pictures), return_tensors="pt")
        with self.computing():
            output = model(pixel_values=inputs["pixel_values"].to(self.on))
        if self.pooled == "pooled":
            features = output.pooler_output
            if features is None:
                raise UserError(f"{self.who}: this model has no pooled output; set {self.setting('pooled')}=class")
        else:
            # DINOv2's registers come after the first token, and are of no patch.
            features = chosen(
                output.last_hidden_state, self.pooled, 1 + getattr(model.config, "num_register_tokens", 0)
            )
        vectors: Array = features.flatten(1).float().cpu().numpy()
        return vectors


class TimmEncoder(Encoder):
    """Image encoder of timm, from local weights, with timm's preprocessing.

    Args:
        backbone: timm's name, such as `resnet50`; None where the weights bring their `config.json`.
        weights: a file of weights of it; without a backbone a folder as timm's models on the hub are, or
            `OWNER/NAME[@REVISION]` in the model hub's cache.
        options: further arguments of `timm.create_model`; layers are named, such as `timm.layers.SwiGLUPacked`.
        pooled: which vector: `pooled` (what the head would be given); or of transformers `class`, `mean` (over the
            tokens of patches) or `class+mean`, one after the other.
        preprocess: what differs from what timm knows: `input_size` (3, row, column), `mean`, `std`, `interpolation`,
            `crop_pct`, `crop_mode`.
        prefix: what stands before the names of the backbone's tensors, in a file that holds other networks, too.
        licence: of the weights, for messages.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    def __init__(
        self,
        backbone: str | None = "resnet50",
        weights: str | None = None,
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        preferred_batch: int = 32,
        *,
        pooled: Literal["pooled", "class", "mean", "class+mean"] = "pooled",
        preprocess: Mapping[str, Any] | None = None,
        prefix: str = "",
        licence: str = "see its page",
        precision: str = "float32",
    ) -> None:
        UsageError.refuse_invalid("pooled", POOLED, pooled)
        self.backbone, self.weights, self.options = backbone, weights, dict(options or {})
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision
        self.pooled, self.preprocess, self.prefix = pooled, dict(preprocess or {}), prefix
        holds = ("config.json", "model.safetensors|pytorch_model.bin")
        lacks = Weights("weights", "a file of the backbone's weights", "timm's page on the model hub", licence)
        self.needs = (lacks if backbone else _on_hub(weights, holds, licence),)  # type: ignore[misc]

    @property
    def preprocessing(self) -> str:
        """The backbone's own."""
        named = f"timm's {self.backbone}" if self.backbone else "timm's config.json"
        changed = f" but {self.preprocess}" if self.preprocess else ""
        kept_features = "features before the head" if self.pooled == "pooled" else f"{self.pooled} tokens"
        return f"{named}, its own preprocessing{changed}, {kept_features}"

    def load(self) -> Any:
        """Loads the backbone without its head."""
        timm: Any = importlib.import_module("timm")
        options = {key: _find_layer(value) for key, value in self.options.items()}
        if self.backbone is None:
            network = _of_folder(timm, self.find(self.needs[0]), len(self.names), options).to(self.on)
        else:
            if not timm.is_model(self.backbone):
                close = nearest(self.backbone, timm.list_models())
                raise UserError(f"{self.setting('backbone')}: timm has no {self.backbone!r}{close}")
            network = timm.create_model(self.backbone, pretrained=False, num_classes=len(self.names), **options)
            network = self.filled(network, self.needs[0], prefix=self.prefix)
        settings = {**timm.data.resolve_model_data_config(network), **self.preprocess}
        return network, timm.data.create_transform(**settings, is_training=False)

    def network_and_transform(self) -> tuple[Any, Any]:
        """Network giving the vector, and its transform, for gradient maps.

        Raises:
            UserError: the vector is made of tokens.
        """
        if self.pooled != "pooled":
            raise UserError(f"model.explain: maps need {self.setting('pooled')}=pooled, not {self.pooled}")
        with outside_inference():
            network, transform = self.loaded
        return network, transform

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns features before the head, or logits: (picture, feature)."""
        network, transform = self.loaded
        batch = self.prepared(pictures, transform)
        with self.computing():
            if self.pooled == "pooled":
                features = network(batch)
            else:
                tokens, before = network.forward_features(batch), getattr(network, "num_prefix_tokens", 0)
                if tokens.ndim != 3 or (self.pooled != "mean" and not before):
                    raise UserError(
                        f"{self.who}: {self.backbone or self.weights} has no {self.pooled} tokens; "
                        f"set {self.setting('pooled')}=pooled"
                    )
                features = chosen(tokens, self.pooled, before)
        vectors: Array = features.float().cpu().numpy()
        return vectors


def chosen(tokens: Any, rule: str, before: int) -> Any:
    """Pools tokens (picture, token, feature) by a rule: (picture, feature).

    Args:
        tokens: after the last layer.
        rule: `class` or `first`, `mean`, `class+mean`.
        before: tokens that stand before those of patches: the class's, then registers.
    """
    import torch

    if rule in ("class", "first"):
        return tokens[:, 0]
    patches = tokens[:, before:].mean(1)
    return patches if rule == "mean" else torch.cat([tokens[:, 0], patches], dim=1)


def _of_folder(timm: Any, folder: Any, classes: int, options: Mapping[str, Any]) -> Any:
    with UserError.about(folder, "cannot be loaded by timm", Exception):
        network = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=classes, **options)
    return network.eval().requires_grad_(requires_grad=False)


def _find_layer(value: Any) -> Any:
    """A layer of timm or torch by its name; any other value stays."""
    if not isinstance(value, str) or not value.startswith(("timm.layers.", "torch.nn.")):
        return value
    with UsageError.about(value, "is no layer", AttributeError, ImportError):
        return pkgutil.resolve_name(value)


class OpenClipEncoder(Encoder):
    """Encoder of open_clip, such as BiomedCLIP: image and text unit vectors.

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
        self.needs = (_on_hub(weights, holds, licence),)  # type: ignore[misc]

    @property
    def preprocessing(self) -> str:
        """The model's own."""
        return "open_clip's preprocessing of it, vectors of length 1"

    def load(self) -> Any:
        """Loads the model."""
        from medimg_eval.models.vision_language import OpenClip

        model = OpenClip(checkpoint=str(self.find(self.needs[0])), batch=self.preferred_batch)
        model.load()
        return model.eval().to(self.on)

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns vectors of length 1, (picture, feature)."""
        from medimg_eval.case import Image

        arrays = [Image(np.moveaxis(np.asarray(picture), -1, 0), np.eye(4), units="pixel") for picture in pictures]
        features: Array = self.loaded.embed_images(arrays)
        return features

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns vectors of length 1, (text, feature)."""
        features: Array = self.loaded.embed_texts(texts)
        return features


class BioViLT(Encoder):
    """BioViL-T of single pictures (Bannur et al. 2023, CVPR).

    The picture goes through a ResNet-50 and a projection; in the place of what changed since an earlier picture stands
    the vector that the network has learnt for there being none. A place's vector is the projection of both, and the
    picture's is the mean over places. A text is the projection of CXR-BERT's first token. The networks are rebuilt
    here; no code of the repository is run.

    Args:
        weights: a folder, or `OWNER/NAME[@REVISION]` in the model hub's cache, with both models.
    """

    reads_texts: ClassVar[bool] = True
    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            f"a folder with {PICTURES}, and with config.json, vocab.txt and parameters of the model of texts",
            "the model hub, microsoft/BiomedVLP-BioViL-T",
            "MIT",
            (PICTURES, "config.json", "vocab.txt", "|".join(PARAMETERS)),
        ),
    )

    def __init__(
        self, weights: str | None = "microsoft/BiomedVLP-BioViL-T", device: str = "auto", preferred_batch: int = 16
    ) -> None:
        self.weights, self.device, self.preferred_batch = weights, device, preferred_batch

    @property
    def preprocessing(self) -> str:
        """The authors'."""
        return f"grey, shorter edge {EDGE}, middle {CROP} x {CROP}, mean over places, vectors of length 1"

    def load(self) -> Any:
        """Loads the image model; the text model follows on demand."""
        import torch
        from torch import nn

        timm: Any = importlib.import_module("timm")
        backbone = timm.create_model("resnet50", pretrained=False, num_classes=0, global_pool="")
        network = nn.Module()
        network.encoder = nn.Module()
        network.encoder.encoder = backbone
        network.encoder.backbone_to_vit = nn.Conv2d(backbone.num_features, STATIC, 1, bias=False)
        network.encoder.missing_previous_emb = nn.Parameter(torch.zeros(1, STATIC, 1, 1))
        network.projector = nn.Module()
        network.projector.model = nn.Sequential(
            nn.Conv2d(2 * STATIC, JOINT, 1, bias=False), nn.BatchNorm2d(JOINT), nn.ReLU(), nn.Conv2d(JOINT, JOINT, 1)
        )
        return self.filled(network, self.needs[0], PICTURES)

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns vectors of length 1, (picture, 128)."""
        import torch

        network = self.loaded
        pixels = np.stack([_crop_middle(picture) for picture in pictures])
        with torch.inference_mode():
            batch = torch.from_numpy(pixels)[:, None].expand(-1, 3, -1, -1).to(self.on)
            static = network.encoder.backbone_to_vit(network.encoder.encoder(batch))
            missing = network.encoder.missing_previous_emb.expand_as(static)
            patches = network.projector.model(torch.cat([static, missing], dim=1))
            vectors = torch.nn.functional.normalize(patches.mean(dim=(2, 3)), dim=1)
        return vectors.float().cpu().numpy()

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns vectors of length 1, (text, 128)."""
        import torch

        bert, head, tokenizer = self._reader
        vectors_ = []
        for start in range(0, len(texts), self.preferred_batch):
            inputs, _ = encoded(tokenizer, texts[start : start + self.preferred_batch], LONGEST, self.on)
            with torch.inference_mode():
                hidden = head["dense_to_hidden"](bert(**inputs).last_hidden_state[:, 0])
                vectors = head["dense_to_output"](head["LayerNorm"](torch.nn.functional.gelu(hidden)))
            vectors_.append(torch.nn.functional.normalize(vectors, dim=1).float().cpu().numpy())
        return np.concatenate(vectors_) if vectors_ else np.zeros((0, JOINT), np.float32)

    @cached_property
    def _reader(self) -> tuple[Any, Any, Any]:
        from torch import nn

        transformers, folder = import_optional("transformers"), self.find(self.needs[0])
        config = transformers.BertConfig.from_json_file(str(folder / "config.json"))
        network = nn.Module()
        network.bert = transformers.BertModel(config, add_pooling_layer=False)
        network.cls_projection_head = nn.ModuleDict(
            {
                "dense_to_hidden": nn.Linear(config.hidden_size, JOINT),
                "LayerNorm": nn.LayerNorm(JOINT, eps=1e-12),
                "dense_to_output": nn.Linear(JOINT, JOINT),
            }
        )
        self.filled(network, self.needs[0], next(name for name in PARAMETERS if (folder / name).is_file()))
        return network.bert, network.cls_projection_head, tokenizer_of(folder)


def _crop_middle(picture: Picture) -> Array:
    """The middle of a picture, float32 from 0 to 1, (448, 448)."""
    from PIL.Image import Resampling

    grey = picture.convert("L")
    scale = EDGE / min(grey.size)
    wide, high = (EDGE if edge == min(grey.size) else int(edge * scale) for edge in grey.size)
    left, top = round((wide - CROP) / 2), round((high - CROP) / 2)
    scaled = grey.resize((wide, high), Resampling.BILINEAR).crop((left, top, left + CROP, top + CROP))
    return np.asarray(scaled, np.float32) / np.float32(255)


class PatientSiamese(Encoder):
    """Siamese patient network of Packhäuser et al. 2022 (Scientific Reports).

    Two branches share one set of weights. A branch is a ResNet-50 whose last layer has 128 outputs, through a sigmoid.
    A pair's score is a linear layer of the absolute difference: the logit of being of one patient. The network is
    rebuilt here; its weights are the authors', or those that somebody trained with their code.

    Args:
        weights: a file with the tensors of `model` (the branch) and `fc_end`.
        backbone: timm's name of the branch.
        features: outputs of a branch.
        edge: of the square that pictures are stretched to.
    """

    tells_patients: ClassVar[bool] = True
    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            "verification_approach_final_model.pth, or weights that were trained with the authors' code",
            "kaipackhaeuser/CXR-Patient-ReID on GitHub (Git LFS)",
            "GPL-3.0; trained on ChestX-ray14",
            on_hub=False,
        ),
    )

    def __init__(
        self,
        weights: str | None = None,
        backbone: str = "resnet50",
        features: int = 128,
        edge: int = 256,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.weights, self.backbone, self.features, self.edge = weights, backbone, features, edge
        self.device, self.preferred_batch = device, preferred_batch

    @property
    def preprocessing(self) -> str:
        """Stretched, with ImageNet's mean and spread."""
        return f"stretched to {self.edge} x {self.edge} by PIL's bilinear filter, ImageNet's mean and spread"

    def load(self) -> Any:
        """Loads both parts."""
        from torch import nn

        timm: Any = importlib.import_module("timm")
        branch = timm.create_model(self.backbone, pretrained=False, num_classes=self.features)
        network = nn.ModuleDict({"model": branch, "fc_end": nn.Linear(self.features, 1)})
        return self.filled(network, self.needs[0])

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns what a branch makes of each, 0 to 1, (picture, feature)."""
        import torch
        from PIL.Image import Resampling

        scaled = [picture.resize((self.edge, self.edge), Resampling.BILINEAR) for picture in pictures]
        pixels = (np.stack([np.asarray(picture, np.float32) for picture in scaled]) / 255 - MEAN) / SPREAD
        batch = torch.from_numpy(pixels.astype(np.float32).transpose(0, 3, 1, 2))
        with torch.inference_mode():
            features: Array = self.loaded["model"](batch.to(self.on)).sigmoid().float().cpu().numpy()
        return features

    def compare(self, one: Array, other: Array) -> Array:
        """Returns float64 logits of same patient by broadcast features (..., feature)."""
        last = self.loaded["fc_end"]
        weight, bias = (part.detach().double().cpu().numpy() for part in (last.weight, last.bias))
        scores: Array = np.abs(one.astype(np.float64) - other) @ weight[0] + bias[0]
        return scores


def _on_hub(given: str | None, holds: tuple[str, ...], licence: str, what: str = "") -> Weights:
    named = what or f"a folder with {', '.join(holds).replace('|', ' or ')}"
    return Weights("weights", named, f"the model hub, {given}" if given else "the model hub", licence, holds)

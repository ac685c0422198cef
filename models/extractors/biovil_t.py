"""BioViL-T as a feature extractor: chest X-rays and sentences of reports in one space of 128 features."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.errors import import_optional
from medimg_eval.models.extractors.base import Network
from medimg_eval.models.extractors.networks import fill
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import encoded, tokenizer_of

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

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


class BioViLT(Network):
    """BioViL-T of single pictures (Bannur et al. 2023, CVPR), from its authors' two files of weights.

    The picture goes through a ResNet-50 and a projection; in the place of what changed since an earlier picture stands
    the vector that the network has learnt for there being none. A place's vector is the projection of both, and the
    picture's is the mean over places. A text is the projection of CXR-BERT's first token. The networks are rebuilt
    here; no code of the repository is run.

    Args:
        weights: a folder, or `OWNER/NAME[@REVISION]` in the model hub's cache, with both models.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures, or texts, at once.
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
        self._reader: tuple[Any, Any, Any] | None = None

    @property
    def preprocessing(self) -> str:
        """The authors'."""
        return f"grey, shorter edge {EDGE}, middle {CROP} x {CROP}, mean over places, vectors of length 1"

    def load(self) -> Any:
        """Loads the model of pictures; that of texts is loaded when the first text comes."""
        import torch
        from torch import nn

        from medimg_eval.models.checkpoints import load_weights

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
        load_weights(network, self.find(self.needs[0]) / PICTURES)
        return network.eval().to(torch.device(self.on))

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns vectors of length 1, (picture, 128)."""
        import torch

        network = self.loaded
        seen = np.stack([_middle(one) for one in pictures])
        with torch.inference_mode():
            shown = torch.from_numpy(seen)[:, None].expand(-1, 3, -1, -1).to(self.on)
            static = network.encoder.backbone_to_vit(network.encoder.encoder(shown))
            missing = network.encoder.missing_previous_emb.expand_as(static)
            places = network.projector.model(torch.cat([static, missing], dim=1))
            vectors = torch.nn.functional.normalize(places.mean(dim=(2, 3)), dim=1)
        found: Array = vectors.float().cpu().numpy()
        return found

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns vectors of length 1, (text, 128)."""
        import torch

        if self._reader is None:
            self._reader = self._load_reader(self.find(self.needs[0]))
        bert, head, tokenizer = self._reader
        found = []
        for start in range(0, len(texts), self.preferred_batch):
            inputs, _ = encoded(tokenizer, texts[start : start + self.preferred_batch], LONGEST, self.on)
            with torch.inference_mode():
                hidden = head["dense_to_hidden"](bert(**inputs).last_hidden_state[:, 0])
                vectors = head["dense_to_output"](head["LayerNorm"](torch.nn.functional.gelu(hidden)))
            found.append(torch.nn.functional.normalize(vectors, dim=1).float().cpu().numpy())
        return np.concatenate(found) if found else np.zeros((0, JOINT), np.float32)

    def _load_reader(self, folder: Path) -> tuple[Any, Any, Any]:
        import torch
        from torch import nn

        transformers = import_optional("transformers")
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
        fill(network, next(folder / name for name in PARAMETERS if (folder / name).is_file()))
        network.eval().to(torch.device(self.on))
        return network.bert, network.cls_projection_head, tokenizer_of(folder)


def _middle(picture: Picture) -> Array:
    """The middle of a picture, float32 from 0 to 1, (448, 448)."""
    from PIL.Image import Resampling

    grey = picture.convert("L")
    scale = EDGE / min(grey.size)
    wide, high = (EDGE if edge == min(grey.size) else int(edge * scale) for edge in grey.size)
    left, top = round((wide - CROP) / 2), round((high - CROP) / 2)
    scaled = grey.resize((wide, high), Resampling.BILINEAR).crop((left, top, left + CROP, top + CROP))
    return np.asarray(scaled, np.float32) / np.float32(255)

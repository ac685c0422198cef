"""Distances of pictures that networks see: LPIPS and DISTS, from files of weights.

The networks are written out here, since only their convolutions are needed: torchvision's files of weights fit them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import Kind, one_each
from medimg_eval.models.annotators import Annotator
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    import torch

    from medimg_eval.case import Array

IMAGENET = "BSD-3-Clause; trained on ImageNet, which is for research"

# Where a picture of three colours goes through: (channels, kernel, stride, padding) of a convolution, "M" of a maximum.
_ALEX = ((64, 11, 4, 2), "M", (192, 5, 1, 2), "M", (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
_VGG = tuple(
    width if width == "M" else (width, 3, 1, 1)
    for width in (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512)
)


class PerceptualDistance(Annotator):
    """Perceptual distance of two pictures, by a network.

    Attributes:
        smallest: rows and columns that a picture must have at least.
    """

    kind: ClassVar[Kind] = "distance"
    file_arguments: ClassVar[tuple[str, ...]] = ("backbone", "heads")
    smallest: int = 16
    _loaded: Any = None

    @abstractmethod
    def load(self) -> Any:
        """Loads the network; raises UserError for weights of another."""

    @abstractmethod
    def between(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Returns distances (picture,) of pictures (picture, 3, row, column) in [0, 1]."""

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """The distances of the two pictures of each pair, volume by volume."""
        return [one_each(self.distances(pairs), pairs, self.name or type(self).__name__) for pairs in subjects]

    def distances(self, pairs: Array) -> list[float]:
        """Returns the distance of each pair's pictures; 0 of equals.

        Args:
            pairs: float, (pair, 2, row, column), grey values from 0 to 1.

        Raises:
            CaseError: the pictures are smaller than the network can see.
        """
        import torch

        if min(pairs.shape[2:]) < self.smallest:
            raise CaseError(
                f"{self.name or type(self).__name__} needs {self.smallest} rows and columns, got {pairs.shape[2:]}"
            )
        self._loaded = self.load() if self._loaded is None else self._loaded
        distances: list[float] = []
        step = max(1, self.preferred_batch)
        for start in range(0, len(pairs), step):
            some = torch.from_numpy(np.ascontiguousarray(pairs[start : start + step], dtype=np.float32)).to(self.on)
            both = [some[:, side, None].expand(-1, 3, -1, -1) for side in (0, 1)]
            with torch.inference_mode():
                distances += self.between(*both).double().cpu().tolist()
        return distances


class LPIPS(PerceptualDistance):
    """The learned perceptual image patch similarity, version 0.1 of its authors.

    The features of five layers are brought to length 1 over channels at every place; their squared differences are
    weighed channel by channel, averaged over places, and added up over the layers.

    Source: Zhang et al., CVPR 2018.

    Args:
        network: `alex`, which the authors advise for judging, or `vgg`.
        backbone: torchvision's file of the network's weights.
        heads: the authors' file of weights of channels, which belongs to the network.
    """

    NETWORKS: ClassVar[dict[str, tuple[tuple[Any, ...], tuple[int, ...], int, str]]] = {
        "alex": (_ALEX, (1, 4, 7, 9, 11), 31, "alexnet-owt-7be5be79.pth"),
        "vgg": (_VGG, (3, 8, 15, 22, 29), 16, "vgg16-397923af.pth"),
    }
    SHIFT = (-0.030, -0.088, -0.188)
    SCALE = (0.458, 0.448, 0.450)

    def __init__(
        self,
        network: str = "alex",
        backbone: str | None = None,
        heads: str | None = None,
        device: str = "auto",
        preferred_batch: int = 16,
    ) -> None:
        UsageError.refuse_invalid("annotators.lpips.network", self.NETWORKS, network)
        self.network, self.backbone, self.heads = network, backbone, heads
        self.device, self.preferred_batch = device, preferred_batch
        self.layers, self.taps, self.smallest, file = self.NETWORKS[network]
        self.needs = (  # type: ignore[misc]
            Weights("backbone", file, "torchvision's page of this network", IMAGENET, on_hub=False),
            Weights(
                "heads",
                f"{network}.pth of weights/v0.1",
                "the authors' repository richzhang/PerceptualSimilarity, or their package lpips",
                "BSD-2-Clause",
                on_hub=False,
            ),
        )

    @property
    def revision(self) -> str:
        """The network and its files."""
        return f"{self.network}; {super().revision}"

    def load(self) -> Any:
        """Loads the network, and the weights of its channels."""
        backbone = self.filled(_convolution_network(self.layers), self.needs[0])
        widths = [backbone.features[tap - 1].out_channels for tap in self.taps]
        return backbone.features, self.filled(_channel_weights(widths), self.needs[1])

    def between(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Returns the distances, (picture,)."""
        features, heads = self._loaded
        shift, scale = (one.new_tensor(some).view(1, 3, 1, 1) for some in (self.SHIFT, self.SCALE))
        total = one.new_zeros(len(one))
        layers = (_tap_layers(features, ((side * 2 - 1) - shift) / scale, self.taps) for side in (one, other))
        for first, second, head in zip(*layers, heads.children(), strict=True):
            difference = (_unit_features(first) - _unit_features(second)) ** 2
            total = total + head(difference).mean(dim=(1, 2, 3))
        return total


class DISTS(PerceptualDistance):
    """DISTS: deep structure and texture distance, 0 of equal pictures.

    Of each channel of the picture itself and of five layers of VGG16, whose maxima are replaced by a Hanning-weighted
    root of the mean square, the means over places tell the texture and the correlation tells the structure; both are
    weighed channel by channel. Pictures are not brought to another size first.

    Source: Ding et al., IEEE TPAMI 2020.

    Args:
        backbone: torchvision's file of the weights of VGG16.
        heads: the authors' file of the weights alpha and beta.
    """

    TAPS = (3, 8, 15, 22, 29)
    MEAN = (0.485, 0.456, 0.406)
    SPREAD = (0.229, 0.224, 0.225)
    SMALL = 1e-6
    needs: ClassVar[Sequence[Weights]] = (
        Weights("backbone", "vgg16-397923af.pth", "torchvision's page of VGG16", IMAGENET, on_hub=False),
        Weights(
            "heads",
            "weights.pt, with alpha and beta",
            "the authors' repository dingkeyan93/DISTS, or their package DISTS_pytorch",
            "MIT",
            on_hub=False,
        ),
    )

    def __init__(
        self,
        backbone: str | None = None,
        heads: str | None = None,
        device: str = "auto",
        preferred_batch: int = 8,
    ) -> None:
        self.backbone, self.heads = backbone, heads
        self.device, self.preferred_batch = device, preferred_batch

    def load(self) -> Any:
        """Loads the network, and the weights of its channels."""
        backbone = self.filled(_convolution_network(_VGG), self.needs[0])
        widths = [3, *(backbone.features[tap - 1].out_channels for tap in self.TAPS)]
        return backbone.features, self.filled(_share_module(sum(widths)), self.needs[1]), widths

    def between(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Returns the distances, (picture,)."""
        features, shares, widths = self._loaded
        centre, spread = (one.new_tensor(some).view(1, 3, 1, 1) for some in (self.MEAN, self.SPREAD))
        sides = [
            [side, *_tap_layers(features, (side - centre) / spread, self.TAPS, smooth=True)] for side in (one, other)
        ]
        total_ = shares.alpha.double().sum() + shares.beta.double().sum()
        alpha, beta = ((some.double().flatten() / total_).split(widths) for some in (shares.alpha, shares.beta))
        total = one.new_zeros(len(one)).double()
        for number, (first, second) in enumerate(zip(*sides, strict=True)):
            texture, structure = self._alike(first.double().flatten(2), second.double().flatten(2))
            # One minus each, rather than one minus the sum, so that equal pictures are exactly 0 apart.
            total = total + ((1 - texture) * alpha[number]).sum(1) + ((1 - structure) * beta[number]).sum(1)
        return total

    def _alike(self, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns similarity of texture and structure, (picture, channel)."""
        means = one.mean(2), other.mean(2)
        residuals = one - means[0][..., None], other - means[1][..., None]
        spreads = (residuals[0] ** 2).mean(2) + (residuals[1] ** 2).mean(2)
        texture = (2 * means[0] * means[1] + self.SMALL) / (means[0] ** 2 + means[1] ** 2 + self.SMALL)
        structure = (2 * (residuals[0] * residuals[1]).mean(2) + self.SMALL) / (spreads + self.SMALL)
        return texture, structure


def _convolution_network(layers: Sequence[Any]) -> Any:
    """Returns a network numbered as torchvision's, ReLU after each convolution."""
    from torch import nn

    edge = 3 if layers is _ALEX else 2
    modules: list[nn.Module] = []
    channels = 3
    for layer in layers:
        if layer == "M":
            modules.append(nn.MaxPool2d(edge, 2))
            continue
        wider, kernel, stride, padding = layer
        modules += [nn.Conv2d(channels, wider, kernel, stride, padding), nn.ReLU()]
        channels = wider
    network = nn.Module()
    network.features = nn.Sequential(*modules)
    return network


def _channel_weights(widths: Sequence[int]) -> Any:
    """Returns channel weights by layer, named as in the authors' file."""
    from torch import nn

    heads = nn.Module()
    for number, width in enumerate(widths):
        head = nn.Sequential()
        head.add_module("model", nn.Sequential(nn.Dropout(), nn.Conv2d(width, 1, 1, bias=False)))
        heads.add_module(f"lin{number}", head)
    return heads


def _share_module(width: int) -> Any:
    import torch
    from torch import nn

    shares = nn.Module()
    for name in ("alpha", "beta"):
        shares.register_parameter(name, nn.Parameter(torch.zeros(1, width, 1, 1)))
    return shares


def _tap_layers(
    features: Any, picture: torch.Tensor, taps: Sequence[int], *, smooth: bool = False
) -> list[torch.Tensor]:
    """Returns chosen layers' outputs, optionally with smooth L2 pooling."""
    from torch import nn

    tapped = []
    for number, layer in enumerate(features[: taps[-1] + 1]):
        picture = _pool_features(picture) if smooth and isinstance(layer, nn.MaxPool2d) else layer(picture)
        if number in taps:
            tapped.append(picture)
    return tapped


def _unit_features(features: torch.Tensor) -> torch.Tensor:
    """Returns features of length 1 over channels, (picture, channel, row, column)."""
    return features / ((features**2).sum(1, keepdim=True).sqrt() + 1e-10)


def _pool_features(features: torch.Tensor) -> torch.Tensor:
    """Returns Hanning-weighted L2 pooling over 3 x 3, stride 2."""
    from torch.nn import functional

    line = features.new_tensor([0.25, 0.5, 0.25])
    kernel = (line[:, None] * line).expand(features.shape[1], 1, 3, 3)
    mean = functional.conv2d(features**2, kernel, stride=2, padding=1, groups=features.shape[1])
    return (mean + 1e-12).sqrt()

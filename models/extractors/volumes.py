"""Encoders of whole volumes and videos: networks of three dimensions, for distances of sets of volumes, and FVD."""

from __future__ import annotations

import importlib
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.imaging import reorient
from medimg_eval.models.extractors.base import Encoder
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array, Image

MEDICALNET = {
    10: ("basic", (1, 1, 1, 1), "B"),
    18: ("basic", (2, 2, 2, 2), "A"),
    34: ("basic", (3, 4, 6, 3), "A"),
    50: ("bottleneck", (3, 4, 6, 3), "B"),
    101: ("bottleneck", (3, 4, 23, 3), "B"),
    152: ("bottleneck", (3, 8, 36, 3), "B"),
    200: ("bottleneck", (3, 24, 36, 3), "B"),
}
"""Depth -> kind of block, blocks of each part, and kind of shortcut, as Med3D's weights have them."""


class VolumeEncoder(Encoder):
    """A network that gives a volume, or a video, one vector.

    A volume is shown as slices from the feet to the head, of rows from front to back and columns from right to left; a
    video as its frames. Of your own, write `load`, `encode_volumes` and `preprocessing`.
    """

    takes: ClassVar[Literal["picture", "volume"]] = "volume"

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Raises UserError: a picture is no volume."""
        raise UserError(f"{self.who} takes volumes whole; set task.planes=[whole] of a task of volumes or videos")

    def embed_images(self, images: Sequence[Image]) -> Array:
        """Returns features of volumes and videos: float32, (image, feature); CaseError for others."""
        import torch

        rows = []
        for first in range(0, len(images), self.preferred_batch):
            batch = [torch.from_numpy(shown_frames(image)) for image in images[first : first + self.preferred_batch]]
            with self.computing():
                rows.append(self.encode_volumes(batch, images[first : first + self.preferred_batch]))
        return np.concatenate(rows).astype(np.float32) if rows else np.zeros((0, 0), np.float32)

    @abstractmethod
    def encode_volumes(self, frames: Sequence[Any], images: Sequence[Image]) -> Array:
        """Returns features, (image, feature), of tensors (channel, frame, row, column) in units of the image."""


def shown_frames(image: Image) -> Array:
    """Frames, float32, (channel, frame, row, column); CaseError unless volume or video."""
    array = image.array
    if array.ndim != 4 or array.shape[0] not in (1, 3) or not array.size:
        raise CaseError(f"expected a volume (1, i, j, k) or a video (3, frame, row, column), got shape {array.shape}")
    if array.shape[0] == 1:
        array = reorient(image, "LPS").array.transpose(0, 3, 2, 1)
    return np.ascontiguousarray(array, np.float32)


def resize_frames(frames: Any, shape: Sequence[int]) -> Any:
    """A tensor (channel, frame, row, column) at another size, by linear interpolation between voxels' middles."""
    from torch.nn.functional import interpolate

    return interpolate(frames[None], size=tuple(shape), mode="trilinear", align_corners=False)[0]


class MedicalNetEncoder(VolumeEncoder):
    """Med3D's residual network of volumes (Tencent/MedicalNet): the mean of its last part's features.

    A volume is brought to `shape` and to mean 0 and spread 1 of what lies above `above`; the rest becomes 0, where the
    authors' program draws noise.

    Args:
        depth: 10, 18, 34, 50, 101, 152 or 200.
        weights: a file such as `resnet_50_23dataset.pth`.
        shape: slices, rows and columns that a volume is brought to; the authors' 56 x 448 x 448.
        above: values up to it are background, in the units of the image: 0 as the authors have it, -1000 of CT.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.

    Raises:
        UsageError: another depth, or no shape.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            *("weights", "a file of Med3D's weights, such as resnet_50_23dataset.pth", "github.com/Tencent/MedicalNet"),
            *("MIT",),
            on_hub=False,
        ),
    )

    def __init__(
        self,
        depth: int = 50,
        weights: str | None = None,
        shape: Sequence[int] = (56, 448, 448),
        above: float = 0.0,
        device: str = "auto",
        preferred_batch: int = 2,
        precision: str = "float32",
    ) -> None:
        if depth not in MEDICALNET:
            raise UsageError(f"depth: expected one of {', '.join(map(str, MEDICALNET))}, got {depth!r}")
        self.depth, self.weights, self.shape, self.above = depth, weights, checked_shape(shape), float(above)
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision

    @property
    def preprocessing(self) -> str:
        """Size and values."""
        size = " x ".join(map(str, self.shape))
        return f"Med3D ResNet-{self.depth}: {size}, values above {self.above:g} to mean 0 and spread 1, the rest 0"

    def load(self) -> Any:
        """Makes the network of MONAI with the steps and gaps of Med3D's last parts."""
        resnet: Any = importlib.import_module("monai.networks.nets.resnet")
        kind, blocks, shortcut = MEDICALNET[self.depth]
        network = resnet.ResNet(
            kind, list(blocks), [64, 128, 256, 512], spatial_dims=3, n_input_channels=1, conv1_t_stride=2,
            shortcut_type=shortcut, feed_forward=False, bias_downsample=False,
        )  # fmt: skip
        for part, gap in ((network.layer3, 2), (network.layer4, 4)):
            _spread_kernels(part, gap)
        return self.filled(network, self.needs[0])

    def encode_volumes(self, frames: Sequence[Any], images: Sequence[Image]) -> Array:
        """Returns the mean over places, (image, 512 or 2048)."""
        import torch

        network = self.loaded
        features = network(torch.stack([self._tensor(one) for one in frames]).to(self.on))
        vectors: Array = features.flatten(1).float().cpu().numpy()
        return vectors

    def _tensor(self, frames: Any) -> Any:
        import torch

        frames = frames.mean(0, keepdim=True)
        inside = frames > self.above
        kept = frames[inside] if inside.any() else frames
        spread = kept.std()
        values = (frames - kept.mean()) / (spread if spread > 0 else 1)
        return resize_frames(torch.where(inside, values, torch.zeros_like(values)), self.shape)


def _spread_kernels(part: Any, gap: int) -> None:
    """Lets a part of a network keep its size, with kernels that leave gaps instead."""
    from torch import nn

    for convolution in part.modules():
        if isinstance(convolution, nn.Conv3d):
            convolution.stride = (1, 1, 1)
            if convolution.kernel_size == (3, 3, 3):
                convolution.dilation = convolution.padding = (gap, gap, gap)
    for block in part.children():
        if isinstance(block.downsample, partial):  # which takes every second place and adds channels of zeros
            block.downsample = partial(block.downsample.func, **{**block.downsample.keywords, "stride": 1})


class VideoNetworkEncoder(VolumeEncoder):
    """A video network of torchvision without its last layer, such as `r3d_18` or `mvit_v2_s`; volumes are grey videos.

    Args:
        network: torchvision's name.
        weights: a file of weights of it.
        frames: that are shown, at even distances.
        window: values of a volume that become black and white; None takes each volume's smallest and largest.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a file of the network's weights", "torchvision's page of it", "see its page", on_hub=False),
    )

    def __init__(
        self,
        network: str = "r3d_18",
        weights: str | None = None,
        frames: int = 16,
        window: Sequence[float] | None = None,
        device: str = "auto",
        preferred_batch: int = 4,
        precision: str = "float32",
    ) -> None:
        self.network, self.weights, self.frames, self.window = network, weights, frames, checked_window(window)
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision

    @property
    def preprocessing(self) -> str:
        """Frames and the network's own."""
        return (
            f"torchvision's {self.network}, {self.frames} frames at even distances, {told_window(self.window)}, "
            "its own preprocessing, features before the last layer"
        )

    def load(self) -> Any:
        """Loads the network without its last layer, and its preprocessing; raises UserError for another network."""
        from torch import nn

        models: Any = importlib.import_module("torchvision.models")
        names = models.list_models(module=models.video)
        if self.network not in names:
            raise UserError(
                f"{self.setting('network')}: torchvision has no video network {self.network!r}"
                f"{nearest(self.network, names)}"
            )
        network = models.get_model(self.network, weights=None)
        last = [name for name, part in network.named_modules() if isinstance(part, nn.Linear | nn.Conv3d)][-1]
        module_path, _, part = last.rpartition(".")
        setattr(network.get_submodule(module_path), part, nn.Identity())
        return self.filled(network, self.needs[0]), models.get_model_weights(self.network).DEFAULT.transforms()

    def encode_volumes(self, frames: Sequence[Any], images: Sequence[Image]) -> Array:
        """Returns what the last layer would be given, (image, feature)."""
        import torch

        network, transform = self.loaded
        clips = []
        for one in frames:
            places = np.linspace(0, one.shape[1] - 1, self.frames).round().astype(int)
            grey = as_grey(one[:, places], self.window).expand(3, -1, -1, -1)
            clips.append(transform((grey * 255).round().to(torch.uint8).permute(1, 0, 2, 3)))
        features = network(torch.stack(clips).to(self.on))
        vectors: Array = features.flatten(1).float().cpu().numpy()
        return vectors


class TorchScriptVolumeEncoder(VolumeEncoder):
    """A TorchScript program that takes volumes or videos (image, channel, frame, row, column) and gives vectors.

    Such as the I3D of FVD, or the part of CT-CLIP, CT-Net or another network that reads volumes, exported by
    `torch.jit`.

    Args:
        weights: the file that `torch.jit.save` wrote. It is a program: take it from whom you trust.
        shape: frames (slices), rows and columns that are shown; None leaves each as it is.
        spacing: mm between slices, rows and columns that a volume is brought to first; then its middle of `shape` is
            cut out, or black is put around it. None brings it to `shape` as a whole.
        window: values of a volume that become black and white; None takes each volume's smallest and largest. Of a
            video black is 0 and white 255.
        values: what the program is given for black and white, such as [-1, 1] or [0, 255].
        channels: 1 or 3.
        swapped: whether rows and columns change places, as CT-CLIP's and VLM3D's programs have them.
        arguments: further arguments of the program, by name, such as `return_features: true` of the I3D of FVD.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a TorchScript program", "whoever exported it", "see its page", on_hub=False),
    )

    def __init__(
        self,
        weights: str | None = None,
        *,
        shape: Sequence[int] | None = (16, 224, 224),
        spacing: Sequence[float] | None = None,
        window: Sequence[float] | None = None,
        values: Sequence[float] = (0.0, 1.0),
        channels: int = 3,
        swapped: bool = False,
        arguments: Mapping[str, Any] | None = None,
        device: str = "auto",
        preferred_batch: int = 2,
        precision: str = "float32",
    ) -> None:
        if channels not in (1, 3) or len(values) != 2:
            raise UsageError(f"expected channels 1 or 3 and two values, got {channels!r} and {list(values)}")
        if spacing is not None and (shape is None or len(spacing) != 3 or min(spacing) <= 0):
            raise UsageError(f"spacing: expected three mm above 0, and a shape beside it, got {list(spacing)}")
        self.weights, self.shape = weights, None if shape is None else checked_shape(shape)
        self.spacing = None if spacing is None else tuple(map(float, spacing))
        self.window, self.values, self.channels = checked_window(window), tuple(map(float, values)), channels
        self.swapped, self.arguments = swapped, dict(arguments or {})
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision

    @property
    def preprocessing(self) -> str:
        """As the settings say."""
        size = "its own size" if self.shape is None else " x ".join(map(str, self.shape))
        first = "" if self.spacing is None else f"to {' x '.join(map('{:g}'.format, self.spacing))} mm, the middle of "
        more = "".join(f", {name}={value}" for name, value in sorted(self.arguments.items()))
        low, high = self.values
        turned = ", rows and columns swapped" if self.swapped else ""
        shades = f"{told_window(self.window)}, as {low:g} to {high:g}"
        return f"{first}{size}, {shades}, {self.channels} channels{turned}{more}"

    def load(self) -> Any:
        """Loads the program."""
        import torch

        path = self.find(self.needs[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch advises others than TorchScript
            with UserError.about(path, "is no TorchScript program that can be loaded", Exception):
                return torch.jit.load(str(path), map_location=self.on).eval()

    def encode_volumes(self, frames: Sequence[Any], images: Sequence[Image]) -> Array:
        """Returns what the program does, (image, feature); raises UserError where it gives no vectors."""
        import torch

        batch = torch.stack([self._tensor(one, image) for one, image in zip(frames, images, strict=True)])
        features = self.loaded(batch.to(self.on), **self.arguments)
        if features.ndim != 2 or len(features) != len(frames):
            raise UserError(f"{self.who}: the program gives {tuple(features.shape)}, expected (image, feature)")
        vectors: Array = features.float().cpu().numpy()
        return vectors

    def _tensor(self, frames: Any, image: Image) -> Any:
        grey = as_grey(frames, self.window)
        if self.spacing is not None and image.array.shape[0] == 1:
            held = reorient(image, "LPS").spacing[::-1]
            sizes = [
                max(1, round(size * step / wanted))
                for size, step, wanted in zip(grey.shape[1:], held, self.spacing, strict=True)
            ]
            grey = middle_of(resize_frames(grey, sizes), self.shape or sizes)
        elif self.shape is not None:
            grey = resize_frames(grey, self.shape)
        low, high = self.values
        grey = grey.expand(3, -1, -1, -1) if self.channels == 3 else grey.mean(0, keepdim=True)
        return (grey.transpose(2, 3) if self.swapped else grey) * (high - low) + low


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Slices, rows and columns; raises UsageError for anything else."""
    if len(shape) != 3 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise UsageError(f"shape: expected slices, rows and columns, got {list(shape)}")
    return tuple(shape)


def checked_window(window: Sequence[float] | None) -> tuple[float, float] | None:
    """Two values, the smaller first, or None; raises UsageError for anything else."""
    if window is None:
        return None
    if len(window) != 2 or not window[0] < window[1]:
        raise UsageError(f"window: expected two values, the smaller first, got {list(window)}")
    return float(window[0]), float(window[1])


def told_window(window: tuple[float, float] | None) -> str:
    """A window in words."""
    return "each volume's own range" if window is None else f"{window[0]:g} to {window[1]:g}"


def as_grey(frames: Any, window: tuple[float, float] | None) -> Any:
    """Values from 0, black, to 1, white, of a tensor; of a video of three channels they are parts of 255."""
    if frames.shape[0] == 3:
        return frames / 255
    low, high = window or (frames.min().item(), frames.max().item())
    return ((frames - low) / (high - low)).clamp(0, 1) if high > low else frames.new_zeros(frames.shape)


def middle_of(frames: Any, shape: Sequence[int]) -> Any:
    """The middle of a tensor (channel, frame, row, column), with zeros around it where it is smaller."""
    from torch.nn.functional import pad

    before = [(want - have) // 2 for have, want in zip(frames.shape[1:], shape, strict=True)]
    after = [want - have - first for have, want, first in zip(frames.shape[1:], shape, before, strict=True)]
    edges = [edge for first, last in zip(before[::-1], after[::-1], strict=True) for edge in (first, last)]
    return pad(frames, edges)

"""Any MONAI network, or bundle, as a segmenter that can be tested and fitted; networks that are told which classes."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from monai.data import MetaTensor
from monai.losses import DiceCELoss
from monai.transforms import Compose, RandCropByPosNegLabeld, SpatialPadd
from torch import Tensor, nn

from medimg_eval.case import Array, Image, Mask, Probabilities, Prompt, Prompts
from medimg_eval.errors import UserError, nearest
from medimg_eval.models.base import Example, Pass, Segmenter
from medimg_eval.models.class_mapping import Translator, known_classes, plain
from medimg_eval.models.networks import build_network, fitting_window, load_weights
from medimg_eval.models.segmentation.postprocess import Step, postprocessed
from medimg_eval.models.segmentation.sliding_window import Windows, all_probabilities, distinct_views, most_probable
from medimg_eval.models.segmentation.upernet import UPerNet
from medimg_eval.trust import require_trust

log = logging.getLogger(__name__)

Transform = Callable[[Any], Any]

MOVES_VOXELS = ("Orientation", "Flip", "Rotate90", "SpatialPad", "BorderPad", "DivisiblePad", "CropForeground")
"""Transforms that put voxels elsewhere without mixing them, so that undoing them on labels loses nothing."""

READING = ("LoadImage", "EnsureChannelFirst", "AsChannelFirst", "AddChannel", "EnsureType", "ToDevice", "ToTensor")
"""Transforms that bring an image into memory, which is done before a model is asked."""


class MonaiSegmenter(nn.Module, Segmenter):
    """Sliding-window inference with Gaussian blending, and DiceCE training on random patches.

    Probabilities are averaged over views and networks window by window, blended, and turned into labels strip by
    strip. Only where preprocessing resamples is the probability of every class of a whole image held, once, in
    main memory, so that resampling is undone before the arg max.

    Args:
        network: a module that takes (batch, channel, *spatial) float32 and returns logits (batch, class,
            *spatial); or the `name` of a MONAI network, or `UPerNet`, with its arguments, of which those that are
            absent or null follow from the task.
        checkpoint: weights for the network: the folder of a `fit` run (its best checkpoint), a Lightning
            checkpoint, or a state dict saved by torch. Of several, the probabilities are averaged.
        bundle: folder of a MONAI bundle, instead of `network`. What is left at null here (`roi_size`, `overlap`,
            `sw_batch_size`, `preprocess`) is taken from its inference config.
        classes: the label of each output channel; by default 0 and the task's labels in ascending order.
        translate: instead of `classes`, by name: `from` (a list in configs/class_lists, channel -> name, or names from
            1 on; null takes those of the bundle), `to` (class -> label, or null to drop it; equal names match by
            themselves) and `lacks` (labels that the network has no class for).
        spatial_dims: of the network; null takes those of the image. 2 segments a volume slice by slice, across its
            last axis.
        roi_size: window in voxels; null takes 96 along each axis (of 2-D networks 256), less for smaller images.
        overlap: of neighbouring windows, 0 to below 1; null is 0.5.
        sw_batch_size: windows (slices of a volume) computed at once; null is 4.
        stitch_on_cpu: keep image and stitched windows in main memory; slower, for images whose strips no GPU holds.
        stitch_half: sum probabilities as float16: half the memory, three digits.
        flips: spatial axes flipped at test time, in all combinations.
        rotations: turn by 90, 180 and 270 degrees about the first two axes at test time; windows must be square.
        preprocess: MONAI dictionary transforms on `image` (and, to resample or crop for training, `label`,
            with `allow_missing_keys=true`). What they do to the grid is undone on the prediction.
        augment: MONAI dictionary transforms on the training patches.
        patches_per_case: patches of `roi_size` drawn from a case each time it is visited in training, three in
            four of them centred on a labelled voxel.

    Raises:
        UserError: neither or both of `network` and `bundle`, or weights that do not fit.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "bundle")

    def __init__(
        self,
        *,
        network: nn.Module | Mapping[str, Any] | None = None,
        checkpoint: str | Sequence[str] | None = None,
        bundle: str | None = None,
        classes: Sequence[int] | None = None,
        translate: Mapping[str, Any] | None = None,
        spatial_dims: int | None = None,
        roi_size: Sequence[int] | None = None,
        overlap: float | None = None,
        sw_batch_size: int | None = None,
        stitch_on_cpu: bool = False,
        stitch_half: bool = False,
        flips: Sequence[int] = (),
        rotations: bool = False,
        preprocess: Sequence[Transform] | None = None,
        augment: Sequence[Transform] = (),
        postprocess: Sequence[Step] = (),
        patches_per_case: int = 4,
    ) -> None:
        super().__init__()
        if (network is None) == (bundle is None):
            raise UserError("expected either model.network or model.bundle, got " + ("both" if network else "neither"))
        read = None if bundle is None else read_bundle(Path(bundle).expanduser())
        window_config = dict(read.window) if read else {}
        self.named = dict(read.classes) if read else {}
        self.checkpoints = [checkpoint] if isinstance(checkpoint, str) else list(checkpoint or [])
        self._has_weights = bool(self.checkpoints) or bundle is not None
        self.classes = classes
        self.translator = None if translate is None else Translator(translate, self.named)
        self.spatial_dims = spatial_dims
        window = window_config.get("roi_size") if roi_size is None else roi_size
        self.roi_size: tuple[int, ...] | None = None if window is None else tuple(window)
        self.overlap = float(_first_value(overlap, window_config.get("overlap"), 0.5))
        self.sw_batch_size = int(_first_value(sw_batch_size, window_config.get("sw_batch_size"), 4))
        self.stitch_on_cpu, self.stitch_half = stitch_on_cpu, stitch_half
        self.flips, self.rotations = tuple(flips), rotations
        self.steps = list(_first_value(preprocess, read.preprocess if read else None, ()))
        self.preprocess = Compose(self.steps)
        self.augment, self.postprocess, self.patches_per_case = list(augment), tuple(postprocess), patches_per_case
        self.loss = DiceCELoss(to_onehot_y=True, softmax=True)
        self.network: nn.Module | None = None
        self.others = nn.ModuleList()
        self._wanted: Mapping[str, Any] | None = None
        self._own_window = self.roi_size is None
        self._shape: tuple[int, ...] = ()  # (channel, class, axes) that the network was made for
        self._sample: Compose | None = None
        if isinstance(network, Mapping):
            self._wanted = network
        else:
            self._adopt(read.network if read else network)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Builds network and window; checks that labels have channels."""
        self._fit_to(self._classes(labels), example())

    def own_labels(self) -> Mapping[int, str]:
        """The bundle's channels but for the background."""
        return {channel: name for channel, name in self.named.items() if channel != 0}

    def check_ready(self) -> None:
        """Refuses a network whose weights are random."""
        if not self._has_weights:
            raise UserError("this network has no weights; set model.checkpoint=PATH, or train it first with `fit`")

    def one_pass(self) -> Pass | None:
        """One window of one image, through every network of an ensemble, shown once."""
        if not self._shape:
            return None
        networks = self._networks()
        return Pass(lambda window: [network(window) for network in networks], (1, self._shape[0], *self._window()))

    def segment(self, prompts: Prompts) -> Sequence[Array]:
        """Returns the most probable label of each voxel, on the image's own grid."""
        return [self._segment(prompt) for prompt in prompts]

    def give_probabilities(self, prompts: Prompts) -> Sequence[Probabilities]:
        """Returns class probabilities, float32, on the image's grid.

        0 of labels without a channel.

        Raises:
            UserError: there are steps of `postprocess`, which work on label maps alone.
        """
        if self.postprocess:
            raise UserError(
                "model.postprocess changes label maps and not probabilities; set model.postprocess=[], or leave "
                "metrics of probabilities out of task.metrics"
            )
        return [self._probabilities(prompt) for prompt in prompts]

    def training_samples(
        self, image: Image, target: Mask, labels: Mapping[int, str], *, seed: int
    ) -> list[dict[str, Tensor]]:
        """Random patches: `image` (channel, *roi_size) float32, `label` (1, *roi_size)."""
        classes = self._classes(labels)
        if len(set(classes)) < len(classes) or self.others:
            raise UserError("cannot be fitted: expected one network with one channel for each label of the task")
        if self.network is None or self.roi_size is None:
            self._fit_to(classes, image)
        sample = self._sampling(image.array.ndim - 1)
        sample.set_random_state(seed)
        index = np.zeros(target.labels.shape, dtype=np.int32)
        for channel, label in enumerate(classes):
            index[target.labels == label] = channel  # any other label is background, as it is in scoring
        data = {"image": _meta_tensor(image.array, image.affine), "label": _meta_tensor(index[None], image.affine)}
        patches: list[dict[str, Any]] = sample(data)
        drawn = [{key: patch[key].as_tensor().float() for key in ("image", "label")} for patch in patches]
        flat = len(self._window()) < image.array.ndim - 1  # a slice is a picture to a 2-D network
        return [{key: value[..., 0] if flat else value for key, value in patch.items()} for patch in drawn]

    def training_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Dice + cross-entropy (MONAI's DiceCELoss, softmax, background included) of a batch of patches."""
        (network,) = self._networks()
        loss: Tensor = self.loss(_first_output(network(batch["image"])), batch["label"])
        return loss

    def _segment(self, prompt: Prompt) -> Array:
        image, classes = prompt.image, self._classes(prompt.labels)
        prepared, pixels, predict, windows = self._shown(image, classes)
        done = prepared.applied_operations
        if all(str(operation["class"]).startswith(MOVES_VOXELS) for operation in done):
            index = most_probable(pixels, predict, windows)
            if done:
                index = self._undone(index[None].float(), prepared)[0]
        else:
            index = self._best_of(all_probabilities(pixels, predict, windows), prepared)
        labels = np.asarray(classes, dtype=np.int32)[index.numpy().astype(np.int16)]
        return postprocessed(self.postprocess, labels, prompt.labels, image.geometry.spacing)

    def _probabilities(self, prompt: Prompt) -> Probabilities:
        image, classes = prompt.image, self._classes(prompt.labels)
        prepared, pixels, predict, windows = self._shown(image, classes)
        probabilities = all_probabilities(pixels, predict, windows).float()
        if prepared.applied_operations:
            probabilities = torch.stack([self._undone(channel[None], prepared)[0] for channel in probabilities])
            total = probabilities.sum(0)  # less than 1 where resampling reached into what was cropped away
            probabilities[0][total == 0] = 1  # cropped away: of the first class, as in a label map
            probabilities /= torch.where(total == 0, 1, total)
        array, lacking = probabilities.numpy(), [label for label in (0, *sorted(prompt.labels)) if label not in classes]
        if lacking:
            array = np.concatenate([array, np.zeros((len(lacking), *array.shape[1:]), np.float32)])
        # Blending and resampling round, also to what is no probability.
        return Probabilities(array.clip(0, 1, out=array), (*classes, *lacking), image.affine, image.units)

    def _shown(
        self, image: Image, classes: Sequence[int]
    ) -> tuple[MetaTensor, Tensor, Callable[[Tensor], Tensor], Windows]:
        """Preprocessed image, its pixels, and windows with their settings."""
        if self.network is None or self.roi_size is None:
            self._fit_to(classes, image)
        prepared = self.preprocess({"image": _meta_tensor(image.array, image.affine)})["image"]
        windows = self._windows(tuple(prepared.shape[1:]))
        predict = self._predict(classes, slices=prepared.ndim - 1 > len(self._window()))
        return prepared, prepared.as_tensor().to(windows.stitched_on), predict, windows

    def _predict(self, classes: Sequence[int], *, slices: bool) -> Callable[[Tensor], Tensor]:
        """Mean probabilities of windows over views and networks."""
        networks, views = self._networks(), distinct_views(len(self._window()), self.flips, self.rotations)

        def mean(windows: Tensor) -> Tensor:
            total = torch.zeros(())
            for network in networks:
                for view in views:
                    logits = _first_output(network(view.show(windows)))
                    if logits.shape[1] != len(classes):
                        raise UserError(
                            f"the network has {logits.shape[1]} output channels, the task needs {len(classes)}, one "
                            f"for each of {list(classes)}; set model.network.out_channels, or model.classes to the "
                            "label of each channel"
                        )
                    undone = view.undo(logits.float().softmax(1))
                    total = undone if total.ndim == 0 else total.add_(undone)
            return total.div_(len(networks) * len(views))

        if not slices:
            return mean
        return lambda windows: mean(windows[0].movedim(-1, 0)).movedim(0, -1)[None]

    def _windows(self, shape: tuple[int, ...]) -> Windows:
        size, batch = self._window(), self.sw_batch_size
        overlap: tuple[float, ...] = (self.overlap,) * len(size)
        flip_axes: tuple[int, ...] = ()
        if len(shape) > len(size):  # a slab of slices is one window, whose slices are the network's batch
            flip_axes = (len(size),)
            size, overlap, batch = (*size, min(batch, shape[-1])), (*overlap, 0.0), 1
        device = next(self._networks()[0].parameters()).device
        stitched_on = torch.device("cpu") if self.stitch_on_cpu else device
        dtype = torch.float16 if self.stitch_half else torch.float32
        return Windows(size, overlap, batch, device, stitched_on, flip_axes, dtype)

    def _best_of(self, probabilities: Tensor, prepared: MetaTensor) -> Tensor:
        """The most probable class on the grid before preprocessing, undone class by class."""
        best = index = torch.zeros(())
        for number, channel in enumerate(probabilities):
            restored = self._undone(channel[None].float(), prepared)[0]
            if number == 0:
                best, index = restored, torch.zeros(restored.shape, dtype=torch.int16)
                continue
            better = restored > best
            best = torch.where(better, restored, best)
            index[better] = number
        return index

    def _undone(self, placed: Tensor, prepared: MetaTensor) -> Tensor:
        """Map (1, *spatial) back on the image's original grid."""
        # Undoing takes entries out of the record, also from inside its parts.
        done = copy.deepcopy(prepared.applied_operations)
        there = MetaTensor(placed, meta=prepared.meta, applied_operations=done)
        back: Tensor = self.preprocess.inverse({"image": there})["image"].as_tensor()
        return back

    def _fit_to(self, classes: Sequence[int], image: Image) -> None:
        """Makes what the config leaves open fit images like this one."""
        shape = tuple(self.preprocess({"image": _meta_tensor(image.array, image.affine)})["image"].shape)
        axes = self.spatial_dims or len(shape) - 1
        if self._own_window:
            name = str((self._wanted or {}).get("name"))
            self.roi_size = fitting_window(name, shape[1:], axes)
            self._sample = None
        if len(self._window()) != axes:
            raise UserError(f"expected model.roi_size to have {axes} numbers, one for each axis, got {self.roi_size}")
        if any(axis >= axes for axis in self.flips) or (self.rotations and len(set(self._window()[:2])) > 1):
            raise UserError(f"model.flips={list(self.flips)} or model.rotations do not fit windows of {self.roi_size}")
        wanted = (shape[0], len(classes), axes)
        if self._wanted is not None and (self.network is None or wanted != self._shape):
            self._adopt(
                build_network(
                    self._wanted,
                    axes=axes,
                    channels=shape[0],
                    classes=len(classes),
                    window=self._window(),
                    own={"UPerNet": UPerNet},
                )
            )
        self._shape = wanted

    def _adopt(self, network: nn.Module | None) -> None:
        """Loads weights into a network and copies for further checkpoints."""
        assert network is not None  # noqa: S101 - the constructor has made sure
        copies = [network, *(copy.deepcopy(network) for _ in self.checkpoints[1:])]
        for copy_, path in zip(copies, self.checkpoints, strict=False):
            load_weights(copy_, Path(path).expanduser())
        self.network, self.others = network, nn.ModuleList(copies[1:])
        self.train(self.training)  # a network that is made late is in the mode of its wrapper

    def _networks(self) -> list[nn.Module]:
        if self.network is None:
            raise UserError("this network is sized for a task when it is first asked; call prepare() before")
        return [self.network, *self.others]

    def _window(self) -> tuple[int, ...]:
        if self.roi_size is None:
            raise UserError("this model's window is sized for a task when it is first asked; call prepare() before")
        return self.roi_size

    def _sampling(self, axes: int) -> Compose:
        if self._sample is None:
            keys, window = ["image", "label"], self._window()
            size = (*window, *(1,) * (axes - len(window)))
            crop = RandCropByPosNegLabeld(keys, "label", size, pos=3, neg=1, num_samples=self.patches_per_case)
            self._sample = Compose([*self.steps, SpatialPadd(keys, size), crop, *self.augment])
        return self._sample

    def _classes(self, labels: Mapping[int, str]) -> list[int]:
        if self.classes is not None:
            return [int(label) for label in self.classes]
        if self.translator is not None:
            return self.translator(labels).channels
        ordered = sorted(labels)
        if self.named and [plain(labels[label]) for label in ordered] != [plain(name) for name in self.named.values()]:
            raise UserError(
                f"the bundle's channels are {list(self.named.values())}, the task's labels {list(labels.values())}; "
                "set model.translate={} to match them by name, or model.classes to the label of each channel"
            )
        return [0, *ordered]


def _first_value(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _meta_tensor(array: Array, affine: Array) -> MetaTensor:
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=torch.from_numpy(affine))


def _first_output(output: Any) -> Tensor:
    # Networks with deep supervision return the full-resolution head first.
    first: Tensor = output[0] if isinstance(output, list | tuple) else output
    return first


class VistaSegmenter(MonaiSegmenter):
    """VISTA3D-like network prompted by classes, without points.

    A voxel is background where every class has a negative logit, and else of the class with the largest, as the
    network's authors decide; probabilities are the softmax of these logits and a 0 for background.

    Args:
        bundle: folder of a MONAI bundle whose network takes `class_vector`.
        prompts: name of a label -> the network's number for it; by default the channels that the bundle's
            `metadata.json` names as the label is called.

    Raises:
        UserError: it is no such bundle.
    """

    def __init__(self, *, bundle: str, prompts: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(bundle=bundle, **settings)
        prompts_ = prompts or {name: number for number, name in self.named.items()}
        self.prompts = {plain(name): int(number) for name, number in prompts_.items()}
        self.named = {}  # channels are those of the labels asked for
        self._adopt(ClassPrompted(self._networks()[0]))

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Looks up the prompt of each label; UserError for a label without one."""
        for name in labels.values():
            if plain(name) not in self.prompts:
                raise UserError(
                    f"the bundle names no class {name!r}{nearest(name, self.prompts)}; set model.prompts to the "
                    "network's number for each label"
                )
        for network in self._networks():
            network.prompts = [self.prompts[plain(labels[label])] for label in sorted(labels)]  # type: ignore[assignment]
        super().prepare(labels, example)


class ClassPrompted(nn.Module):
    """Shows windows with class prompts; background has logit 0.

    Args:
        network: takes `input_images` (1, channel, *spatial) and `class_vector` (class, 1), and returns logits
            (class, 1, *spatial).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.prompts: list[int] = []

    def forward(self, windows: Tensor) -> Tensor:
        """Returns logits (window, 1 + class, *spatial) of windows (window, channel, *spatial)."""
        wanted = torch.tensor(self.prompts, device=windows.device)[:, None]
        logits = [self.network(input_images=window[None], class_vector=wanted)[:, 0] for window in windows]
        return torch.stack([torch.cat([torch.zeros_like(row[:1]), row]) for row in logits])


@dataclass(frozen=True)
class Bundle:
    """Content of a bundle.

    Attributes:
        network: with its weights.
        classes: what `configs/metadata.json` calls each output channel, background left out; empty where it says
            nothing.
        preprocess: the config's `preprocessing` without what reads files; empty where there is none.
        window: arguments of the config's `inferer` when that is a sliding window: `roi_size`, `overlap`,
            `sw_batch_size`.
    """

    network: nn.Module
    classes: Mapping[int, str] = field(default_factory=dict)
    preprocess: Sequence[Callable[[Any], Any]] = ()
    window: Mapping[str, Any] = field(default_factory=dict)


def read_bundle(folder: Path) -> Bundle:
    """Reads a bundle, whose config runs code: it must be trusted (`medimg_eval.trust`).

    Args:
        folder: holds `configs/inference.json` (or .yaml) with a `network_def` (or `network`), and `models/model.pt`.

    Raises:
        UserError: it is no bundle, it is not trusted, or its weights do not fit its network.
    """
    from monai.bundle import ConfigParser

    configs = [folder / "configs" / f"inference.{suffix}" for suffix in ("json", "yaml", "yml")]
    config = next((path for path in configs if path.is_file()), None)
    if config is None:
        raise UserError(f"{folder}: is no MONAI bundle; expected configs/inference.json or .yaml in it")
    parser = ConfigParser()
    parser.read_config(str(config))
    require_trust(config, _would_run(parser.config))
    parser["bundle_root"] = str(folder)
    if "network_def" not in parser:
        raise UserError(f"{config}: defines no `network_def`")
    network: nn.Module = parser.get_parsed_content("network_def")
    load_weights(network, folder / "models" / "model.pt")
    return Bundle(network, _channel_names(folder), _preprocessing_steps(parser), _bundle_window(parser))


def _would_run(config: Any) -> Iterator[str]:
    """Classes, expressions and included files of a bundle's config."""
    for key, value in config.items() if isinstance(config, Mapping) else enumerate(config):
        if isinstance(value, str):
            if key == "_target_" or "$" in value or value.startswith("%"):
                yield value
        elif isinstance(value, Mapping | Sequence):
            yield from _would_run(value)


def _channel_names(folder: Path) -> Mapping[int, str]:
    path = folder / "configs" / "metadata.json"
    if not path.is_file():
        return {}
    with UserError.about(path, "is no JSON", ValueError):
        described = json.loads(path.read_text(encoding="utf-8"))
    outputs: Mapping[str, Any] = described.get("network_data_format", {}).get("outputs", {})
    first: Mapping[str, Any] = next(iter(outputs.values()), {})
    channels: Mapping[str, Any] = first.get("channel_def", {})
    named = {int(channel): str(name) for channel, name in channels.items() if str(channel).isdigit()}
    return known_classes(named) if len(named) > 1 else {}


def _preprocessing_steps(parser: Any) -> Sequence[Callable[[Any], Any]]:
    stated = parser.config.get("preprocessing")
    if stated is None:
        return ()
    if not (isinstance(stated, dict) and isinstance(stated.get("transforms"), list)):
        log.warning("the bundle's preprocessing is no list of transforms and is left out; set model.preprocess")
        return ()
    names = [str(step.get("_target_", "")).rpartition(".")[2] for step in stated["transforms"]]
    wanted = [number for number, name in enumerate(names) if not name.startswith(READING)]
    steps = [parser.get_parsed_content(f"preprocessing#transforms#{number}") for number in wanted]
    return tuple(step for step in steps if step is not None)  # None where it is disabled


def _bundle_window(parser: Any) -> Mapping[str, Any]:
    stated = parser.config.get("inferer")
    if not isinstance(stated, dict) or "SlidingWindowInferer" not in str(stated.get("_target_")):
        return {}
    inferer = parser.get_parsed_content("inferer")
    return {"roi_size": inferer.roi_size, "overlap": inferer.overlap, "sw_batch_size": inferer.sw_batch_size}

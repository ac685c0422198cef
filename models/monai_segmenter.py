"""Any MONAI network, or bundle, as a segmenter that can be tested and fitted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.transforms import Compose, RandCropByPosNegLabeld, SpatialPadd
from torch import Tensor, nn

from medimg_eval.case import Array, Image, Mask, Prompt, Prompts
from medimg_eval.errors import UserError
from medimg_eval.models.base import Segmenter

Transform = Callable[[Any], Any]


class MonaiSegmenter(nn.Module, Segmenter):
    """Sliding-window inference with Gaussian blending, and DiceCE training on random patches.

    Args:
        network: takes (batch, channel, *spatial) float32, returns logits (batch, class, *spatial).
        checkpoint: weights for the network: the folder of a `fit` run (its best checkpoint), a Lightning
            checkpoint, or a state dict saved by torch.
        bundle: folder of a MONAI bundle, instead of `network`: its `network_def` and `models/model.pt`.
            A bundle's config can run code; use bundles you trust.
        classes: the label of each output channel; by default 0 and the task's labels in ascending order.
        roi_size: window in voxels.
        overlap: of neighbouring windows, 0 to 1.
        sw_batch_size: windows computed at once.
        stitch_on_cpu: keep image and stitched windows in main memory; slower, for volumes times classes that no
            GPU holds.
        flips: spatial axes flipped at test time; softmax is averaged over all combinations.
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
        network: nn.Module | None = None,
        checkpoint: str | None = None,
        bundle: str | None = None,
        classes: Sequence[int] | None = None,
        roi_size: Sequence[int] = (96, 96, 96),
        overlap: float = 0.5,
        sw_batch_size: int = 4,
        stitch_on_cpu: bool = False,
        flips: Sequence[int] = (),
        preprocess: Sequence[Transform] = (),
        augment: Sequence[Transform] = (),
        patches_per_case: int = 4,
    ) -> None:
        super().__init__()
        if (network is None) == (bundle is None):
            raise UserError("expected either model.network or model.bundle, got " + ("both" if network else "neither"))
        self.network = network if network is not None else _read_bundle(Path(str(bundle)).expanduser())
        if checkpoint is not None:
            load_weights(self.network, Path(checkpoint).expanduser())
        self._has_weights = checkpoint is not None or bundle is not None
        self.classes = classes
        self.roi_size = tuple(roi_size)
        self.overlap = overlap
        self.sw_batch_size = sw_batch_size
        self.stitch_on_cpu = stitch_on_cpu
        self.flips = tuple(flips)
        self.preprocess = Compose(list(preprocess))
        keys = ["image", "label"]
        self.sample = Compose(
            [
                *preprocess,
                SpatialPadd(keys, self.roi_size),
                RandCropByPosNegLabeld(keys, "label", self.roi_size, pos=3, neg=1, num_samples=patches_per_case),
                *augment,
            ]
        )
        self.loss = DiceCELoss(to_onehot_y=True, softmax=True)

    def check_ready(self) -> None:
        """Refuses a network whose weights are random."""
        if not self._has_weights:
            raise UserError("this network has no weights; set model.checkpoint=PATH, or train it first with `fit`")

    def segment(self, prompts: Prompts) -> Sequence[Array]:
        """Returns the most probable label of each voxel, on the image's own grid."""
        return [self._segment(prompt) for prompt in prompts]

    def training_samples(
        self, image: Image, target: Mask, labels: Mapping[int, str], *, seed: int
    ) -> list[dict[str, Tensor]]:
        """Random patches of one case: `image` (channel, *roi_size) float32, `label` (1, *roi_size) class index."""
        self.sample.set_random_state(seed)
        index = np.zeros(target.labels.shape, dtype=np.int32)
        for channel, label in enumerate(self._classes(labels)):
            index[target.labels == label] = channel  # any other label is background, as it is in scoring
        data = {"image": _tensor(image.array, image.affine), "label": _tensor(index[None], image.affine)}
        patches: list[dict[str, Any]] = self.sample(data)
        return [{key: patch[key].as_tensor().float() for key in ("image", "label")} for patch in patches]

    def training_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Dice + cross-entropy (MONAI's DiceCELoss, softmax, background included) of a batch of patches."""
        loss: Tensor = self.loss(_logits(self.network(batch["image"])), batch["label"])
        return loss

    def _segment(self, prompt: Prompt) -> Array:
        image = prompt.image
        data = self.preprocess({"image": _tensor(image.array, image.affine)})
        prepared = data["image"]
        device = next(self.network.parameters()).device
        stitched_on = torch.device("cpu") if self.stitch_on_cpu else device
        pixels = prepared.as_tensor()[None].to(stitched_on)
        spatial = [axis + 2 for axis in self.flips]
        subsets = [s for size in range(len(spatial) + 1) for s in itertools.combinations(spatial, size)]
        probabilities = torch.zeros(())
        for axes in subsets:
            flipped = torch.flip(pixels, axes) if axes else pixels
            logits = sliding_window_inference(
                flipped,
                self.roi_size,
                self.sw_batch_size,
                lambda window: _logits(self.network(window)),
                overlap=self.overlap,
                mode="gaussian",
                sw_device=device,
                device=stitched_on,
            )
            probabilities = probabilities + torch.flip(logits.float().softmax(1), axes).cpu() / len(subsets)
        restored = probabilities[0]
        if prepared.applied_operations:
            # Whatever moved the grid (resampling, cropping, reorienting) is undone before the arg max.
            placed = MetaTensor(restored, meta=prepared.meta, applied_operations=prepared.applied_operations)
            restored = self.preprocess.inverse({"image": placed})["image"].as_tensor()
        classes = np.asarray(self._classes(prompt.labels))
        if restored.shape[0] != len(classes):
            raise UserError(
                f"the network has {restored.shape[0]} output channels, the task needs {len(classes)}, one for each of "
                f"{classes.tolist()}; set model.network.out_channels, or model.classes to the label of each channel"
            )
        labels: Array = classes[restored.argmax(0).numpy()]
        return labels

    def _classes(self, labels: Mapping[int, str]) -> list[int]:
        return [0, *sorted(labels)] if self.classes is None else [int(label) for label in self.classes]


def load_weights(network: nn.Module, path: Path) -> None:
    """Loads weights saved by `fit`, by Lightning or by torch into a network.

    Args:
        network: whose `state_dict` the weights must cover exactly.
        path: a checkpoint, or the folder of a `fit` run.

    Raises:
        UserError: no such file, not a checkpoint, or weights of another architecture.
    """
    if path.is_dir():
        path = path / "checkpoints" / "best.ckpt"
    if not path.is_file():
        raise UserError(
            f"{path}: no such checkpoint; set model.checkpoint to a .ckpt or .pt file, or to a fit run's folder"
        )
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{path}: cannot be loaded as weights ({error})") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(stored, dict) and isinstance(stored.get(wrapper), dict):
            stored = stored[wrapper]
    wanted = network.state_dict()
    for prefix in ("model.network.", "network.", "module.", "model.", ""):
        weights = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
        if wanted.keys() <= weights.keys():
            break
    else:
        missing = sorted(wanted.keys() - stored.keys())
        raise UserError(
            f"{path}: holds weights of another network: {len(missing)} of {len(wanted)} tensors are missing, "
            f"such as {missing[0]!r}"
        )
    odd = [key for key, value in wanted.items() if weights[key].shape != value.shape]
    if odd:
        raise UserError(
            f"{path}: {odd[0]!r} has shape {tuple(weights[odd[0]].shape)}, "
            f"the network expects {tuple(wanted[odd[0]].shape)}"
        )
    network.load_state_dict({key: weights[key] for key in wanted})


def _read_bundle(folder: Path) -> nn.Module:
    from monai.bundle import ConfigParser

    configs = [folder / "configs" / f"inference.{suffix}" for suffix in ("json", "yaml", "yml")]
    config = next((path for path in configs if path.is_file()), None)
    if config is None:
        raise UserError(f"{folder}: is no MONAI bundle; expected configs/inference.json or .yaml in it")
    parser = ConfigParser()
    parser.read_config(str(config))
    parser["bundle_root"] = str(folder)
    if "network_def" not in parser:
        raise UserError(f"{config}: defines no `network_def`")
    network: nn.Module = parser.get_parsed_content("network_def")
    load_weights(network, folder / "models" / "model.pt")
    return network


def _tensor(array: Array, affine: Array) -> MetaTensor:
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=torch.from_numpy(affine))


def _logits(output: Any) -> Tensor:
    # Networks with deep supervision return the full-resolution head first.
    first: Tensor = output[0] if isinstance(output, list | tuple) else output
    return first

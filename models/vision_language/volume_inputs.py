"""Arrays of volumes as 3-D vision-language models were trained on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from medimg_eval.errors import CaseError, import_optional
from medimg_eval.imaging import VolumePrompt, reorient

CT_CHAT_SPACING = (0.75, 0.75, 1.5)
CT_CHAT_SHAPE = (480, 480, 240)
RADFM_DEPTHS = range(4, 65, 4)


def make_m3d_input(volume: VolumePrompt) -> Tensor:
    """M3D-LaMed's input: (1, 32, 256, 256), scaled to 0 to 1.

    Axes are slices from the feet, rows from the front, columns from the patient's right, as on a reading screen. Zero
    is cropped away around the volume before it is resized by trilinear interpolation, and its spacing does not matter
    (BAAI-DCAI/M3D, Data/process/m3d_cap_data_prepare.py). The order of the authors' slices is not published: inferred.

    Raises:
        CaseError: all voxels are alike, so that nothing is left to show.
    """
    transforms = import_optional("monai.transforms")
    image = _on_screen(volume).permute(2, 0, 1)[None]
    image = image - image.min()
    if not image.any():
        raise CaseError("the volume is invalid: expected voxels of several values, got one value everywhere")
    image = image / image.max()
    resize = transforms.Compose(
        [transforms.CropForeground(), transforms.Resize(spatial_size=[32, 256, 256], mode="trilinear")]
    )
    return torch.as_tensor(resize(image)).as_subclass(Tensor)


def make_radfm_input(volume: VolumePrompt) -> Tensor:
    """RadFM's input: (3, 512, 512, D), scaled to 0 to 1.

    Axes are rows from the front, columns from the patient's right, slices from the feet; D is the multiple of 4 from 4
    to 64 that is nearest to the number of slices. Neighbours are copied (nearest), as its `stack_images` does; the
    random crop of its quick demonstration is left out, since it would give other answers each time.
    """
    image = _on_screen(volume)
    image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-8)
    depth = min(RADFM_DEPTHS, key=lambda wanted: abs(wanted - image.shape[2]))
    grey = image.expand(3, *image.shape)[None]
    return functional.interpolate(grey, size=(512, 512, depth))[0]


def make_ct_chat_input(volume: VolumePrompt) -> Tensor:
    """CT-CHAT's and CT-CLIP's input: (1, 240, 480, 480), -1 to 1.

    -1 to 1 stand for -1,000 to 1,000 HU. Resampled to 0.75 x 0.75 x 1.5 mm by trilinear interpolation, cut or filled
    with -1 about the middle. Axes are the file's own, as the authors take them: slices, then the file's first and
    second (scripts/data_inference_nii.py).
    """
    stored = reorient(volume, volume.orientation_before) if volume.orientation_before else volume
    values = torch.as_tensor(stored.array[0].astype("float64")).clamp(-1000, 1000)
    steps = zip(values.shape, stored.spacing, CT_CHAT_SPACING, strict=True)
    shape = [int(count * (step / wanted)) for count, step, wanted in steps]
    moved = values.permute(2, 0, 1)[None, None]
    moved = functional.interpolate(moved, size=(shape[2], *shape[:2]), mode="trilinear", align_corners=False)
    image = (moved[0, 0].permute(1, 2, 0) / 1000).float()
    for axis, wanted in enumerate(CT_CHAT_SHAPE):
        start = max((image.shape[axis] - wanted) // 2, 0)
        image = image.narrow(axis, start, min(wanted, image.shape[axis]))
    lacking = [wanted - there for wanted, there in zip(CT_CHAT_SHAPE, image.shape, strict=True)]
    edges = [edge for gap in reversed(lacking) for edge in (gap // 2, gap - gap // 2)]
    return functional.pad(image, edges, value=-1.0).permute(2, 0, 1)[None]


def make_merlin_input(volume: VolumePrompt) -> Tensor:
    """Merlin's input: (1, 224, 224, 160), 0 to 1, RAS+.

    0 to 1 stand for -1,000 to 1,000 HU; voxels are 1.5 x 1.5 x 3 mm. By MONAI's transforms, as
    merlin/data/monai_transforms.py has them.
    """
    transforms, meta = import_optional("monai.transforms"), import_optional("monai.data")
    image = meta.MetaTensor(torch.as_tensor(volume.array.astype("float32")), affine=torch.as_tensor(volume.affine))
    size = (224, 224, 160)
    steps = transforms.Compose(
        [
            transforms.Spacing(pixdim=(1.5, 1.5, 3.0), mode="bilinear"),
            transforms.ScaleIntensityRange(a_min=-1000, a_max=1000, b_min=0.0, b_max=1.0, clip=True),
            transforms.SpatialPad(spatial_size=size),
            transforms.CenterSpatialCrop(roi_size=size),
        ]
    )
    return steps(image).as_tensor()  # type: ignore[no-any-return]


INPUTS: Mapping[str, Callable[[VolumePrompt], Tensor]] = {
    "m3d": make_m3d_input,
    "radfm": make_radfm_input,
    "ct_chat": make_ct_chat_input,
    "merlin": make_merlin_input,
}
"""By model: what makes its input of a volume, float32."""

RANGES: Mapping[str, tuple[float, float]] = {
    "m3d": (0.0, 1.0),
    "radfm": (0.0, 1.0),
    "ct_chat": (-1.0, 1.0),
    "merlin": (0.0, 1.0),
}
"""By model: the least and largest value of its input."""


def make_input_slices(convention: str, volume: VolumePrompt) -> Tensor:
    """Slices of a network's input, float32, (slice, row, column), to be looked at.

    Values are those that the network gets; only axes are turned, so that slices come first: of `merlin` with the front
    above and the patient's right on the left, of the others as the network has rows and columns. Of equal channels one
    is kept.

    Args:
        convention: a name of `INPUTS`.
        volume: as the model was handed it.
    """
    array = INPUTS[convention](volume)[0]
    if convention == "radfm":
        return array.permute(2, 0, 1)
    return array.flip(0, 1).permute(2, 1, 0) if convention == "merlin" else array


def _on_screen(volume: VolumePrompt) -> Tensor:
    """(row, column, slice): anterior up, patient's right on the left, feet first."""
    return torch.as_tensor(reorient(volume, "LPS").array[0].transpose(1, 0, 2).astype("float32"))

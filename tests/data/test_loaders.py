"""Images in the loaders of torch and MONAI."""

import numpy as np
import pytest
import torch
from monai.transforms import Compose, EnsureChannelFirstd, LoadImage, LoadImaged, Orientationd
from torch.utils.data import DataLoader

from medimg_eval.case import Image, Mask
from medimg_eval.data.collate import collate
from medimg_eval.data.monai_reader import MedimgReader
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import write_image

pytestmark = pytest.mark.filterwarnings("ignore:NvImgCodecPydicomReader")  # MONAI registers all its readers


def image(fill, dtype=np.uint16, shape=(1, 2, 3, 4)):
    return Image(np.full(shape, fill, dtype), np.diag([1.0, 2, 3, 1]))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_stacks_images_and_masks_in_their_dtype(num_workers):
    samples = [
        {"image": image(n), "mask": Mask(np.full((2, 3, 4), n, np.uint8), np.eye(4)), "id": f"c{n}"} for n in range(4)
    ]
    batches = list(DataLoader(samples, batch_size=2, collate_fn=collate, num_workers=num_workers))
    assert [batch["id"] for batch in batches] == [["c0", "c1"], ["c2", "c3"]]
    shown = batches[1]["image"]
    assert shown["array"].shape == (2, 1, 2, 3, 4)
    assert shown["array"].dtype == torch.uint16
    assert shown["array"][:, 0, 0, 0, 0].tolist() == [2, 3]
    assert shown["affine"].shape == (2, 4, 4)
    assert batches[0]["mask"]["labels"].shape == (2, 2, 3, 4)


def test_images_of_one_batch_must_be_alike():
    with pytest.raises(UsageError, match=r"arrays of \(1, 2, 3, 4\) uint16 and of \(1, 2, 3, 5\) uint16; crop, pad"):
        collate([image(0), image(0, shape=(1, 2, 3, 5))])


def test_monai_loads_a_series_in_the_right_place_and_turns_it(tmp_path):
    written = image(7, np.int16, (1, 4, 5, 6))
    written.array[0, 3, 0, 0] = 9
    write_image(tmp_path / "a.nii.gz", written)
    steps = Compose(
        [
            LoadImaged("image", reader=MedimgReader()),
            EnsureChannelFirstd("image"),
            Orientationd("image", "LPS", labels=None),
        ]
    )
    found = steps({"image": str(tmp_path / "a.nii.gz")})["image"]
    assert found.shape == (1, 4, 5, 6)
    assert found[0, 0, 4, 0] == 9  # LPS: both first axes are turned
    corner = found.affine.numpy() @ (0, 4, 0, 1)
    assert corner.tolist() == (written.affine @ (3, 0, 0, 1)).tolist()
    back = Image.from_metatensor(
        LoadImage(reader=MedimgReader, ensure_channel_first=True, dtype=None)(tmp_path / "a.nii.gz")
    )
    assert back.array.dtype == np.int16
    np.testing.assert_array_equal(back.affine, written.affine)


def test_several_channels_and_several_files_come_channel_first(tmp_path):
    for name in ("t1", "t2"):
        write_image(tmp_path / f"{name}.nii.gz", image(1, np.float32))
    load = LoadImage(reader=MedimgReader(), ensure_channel_first=True)
    assert load([tmp_path / "t1.nii.gz", tmp_path / "t2.nii.gz"]).shape == (2, 2, 3, 4)
    write_image(tmp_path / "dynamic.nii.gz", image(1, np.float32, (5, 2, 3, 4)))
    assert load(tmp_path / "dynamic.nii.gz").shape == (5, 2, 3, 4)


def test_what_is_refused_is_not_read_by_monais_own_readers_instead(tmp_path):
    nan = image(np.nan, np.float32)
    write_image(tmp_path / "nan.nii.gz", nan)
    assert LoadImage()(tmp_path / "nan.nii.gz").isnan().all()
    with pytest.raises(CaseError, match="NaN or infinite voxels; replace them"):
        LoadImage(reader=MedimgReader())(tmp_path / "nan.nii.gz")
    assert LoadImage(reader=MedimgReader(nan=0.0))(tmp_path / "nan.nii.gz").sum() == 0
    write_image(tmp_path / "other.nii.gz", image(1, np.float32, (1, 2, 3, 5)))
    with pytest.raises(CaseError, match="other.nii.gz: shape"):
        LoadImage(reader=MedimgReader(nan=0.0))([tmp_path / "nan.nii.gz", tmp_path / "other.nii.gz"])

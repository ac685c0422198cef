"""Training on k-space: samples keep their axes through the cache, sampling is not cached, oversampled scans are cut."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from medimg_eval.case import Failure, Image
from medimg_eval.data.cache import VolumeCache
from medimg_eval.data.datamodule import CaseDataModule
from medimg_eval.data.layouts import KSpaceScans
from medimg_eval.errors import CaseError
from medimg_eval.models.reconstruction.linear import zero_filled
from medimg_eval.models.reconstruction.network import NetworkReconstructor
from medimg_eval.phantoms.multicoil import forward
from medimg_eval.tasks.reconstruction import ReconstructionTask

SLICES, COILS, ROWS, COLUMNS = 2, 3, 64, 48


@pytest.fixture
def root(tmp_path):
    """Two oversampled scans: 64 by 48 samples, images of 40 by 32 in the middle."""
    rng = np.random.default_rng(0)
    image = rng.random((SLICES, 1, ROWS, COLUMNS)) * np.exp(1j * rng.random((1, COILS, 1, 1)))
    full = np.sqrt(np.square(np.abs(image)).sum(axis=1))
    for name in ("a", "b"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["kspace"] = forward(image).astype(np.complex64)
            file["reconstruction_rss"] = full[:, 12:52, 8:40].astype(np.float32)
            file.attrs["acquisition"] = "AXT2"
    return tmp_path


def task_over(root, **sampling):
    layout = KSpaceScans(root=str(root), file="{case}.h5", keys="fastmri")
    return ReconstructionTask(name="recon", layout=layout, sampling=sampling or None)


def keep(image, target, *, seed):
    """Everything that a model is given to draw training samples from."""
    assert isinstance(image, Image)
    lines = (image.array != 0).any(axis=(0, 1, 2))
    return [
        {
            "samples": torch.from_numpy(image.array),
            "target": torch.from_numpy(np.array(target.array)),
            "lines": torch.from_numpy(lines),
            "axes": torch.tensor([ord(letter) for letter in image.attributes["axes"]]),
            "acceleration": torch.tensor(float(image.attributes.get("acceleration", "1"))),
        }
    ]


def visits(task, cache=None, workers=0):
    torch.manual_seed(0)
    loader = CaseDataModule(task, sample=keep, cache=cache, num_workers=workers).train_dataloader()
    return list(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_scans_are_the_same_with_a_cache_and_without(root, tmp_path, workers):
    task = task_over(root, acceleration=4)
    cache = VolumeCache(tmp_path / "cache")
    found = [
        {bytes(batch["lines"].numpy()): batch for batch in visits(task, *more)}
        for more in ((), (cache, workers), (cache, workers))
    ]
    assert len(found[0]) == 2  # each scan has lines of its own, the same whenever it is read
    for lines, one in found[0].items():
        assert sum(lines) == COLUMNS // 4
        assert one["samples"].dtype == torch.complex64
        assert bytes(one["axes"][0].tolist()).decode() == "slice ky kx"
        for others in found[1:]:
            assert all(torch.equal(one[name], others[lines][name]) for name in one)


def test_another_sampling_takes_the_same_entries_of_the_cache(root, tmp_path):
    cache = VolumeCache(tmp_path / "cache")
    four = visits(task_over(root, acceleration=4), cache)
    size = cache.size
    eight = visits(task_over(root, acceleration=8, centre=0.04), cache)
    assert cache.size == size
    assert {int(batch["lines"].sum()) for batch in four} == {COLUMNS // 4}
    assert {int(batch["lines"].sum()) for batch in eight} == {COLUMNS // 8}
    assert {float(batch["acceleration"]) for batch in eight} == {8}
    whole = visits(task_over(root), cache)
    assert {int(batch["lines"].sum()) for batch in whole} == {COLUMNS}


def test_only_the_middle_of_an_oversampled_scan_is_learnt(root):
    task = task_over(root)
    case = task.cases("fit")[0]
    (image,), target = task.read_images(case), case.target.read()
    model = NetworkReconstructor(network=torch.nn.Identity(), slices_per_case=2)
    samples = model.training_samples(image, target, {}, seed=0)
    shown = zero_filled(image)
    largest = shown.max(axis=(1, 2))
    assert {tuple(one["image"].shape) for one in samples} == {(1, 40, 32)} == {tuple(samples[0]["target"].shape)}
    for one in samples:  # all samples are there, so what is shown is what is right
        torch.testing.assert_close(one["image"], one["target"], atol=1e-5, rtol=1e-4)
        assert any(float(one["image"].max()) == pytest.approx(shown[i, 12:52, 8:40].max() / largest[i]) for i in (0, 1))


def test_a_target_that_the_samples_cannot_make_is_said_by_case(root):
    with h5py.File(root / "a.h5", "a") as file:
        del file["reconstruction_rss"]
        file["reconstruction_rss"] = np.ones((SLICES, ROWS, COLUMNS + 2), np.float32)
    found = [batch for batch in visits(task_over(root)) if isinstance(batch, Failure)]
    assert len(found) == 1
    assert "case 'a': its samples (2, 64, 48) do not make the image that is right, (2, 64, 50)" in found[0].message


def test_images_keep_what_their_files_say_through_the_cache(root, tmp_path):
    task = task_over(root)
    cache = VolumeCache(tmp_path / "cache")
    seen = []

    def sample(image, target, *, seed):
        seen.append((dict(image.attributes), dict(target.attributes), image.modality, image.units))
        return [{"seed": torch.tensor(seed)}]

    for _ in range(2):
        list(CaseDataModule(task, sample=sample, cache=cache).train_dataloader())
    said = {"axes": "slice ky kx", "centred": "true", "acquisition": "AXT2"}
    assert seen == [(said, {"made": "as stored"}, "MR", "pixel")] * 4


def test_an_unreadable_scan_ends_training_with_its_name(root):
    (root / "b.h5").write_bytes(b"none")
    found = [batch for batch in visits(task_over(root)) if isinstance(batch, Failure)]
    assert [one.case_id for one in found] == ["b"]
    assert "b.h5: is no HDF5 file" in found[0].message
    with pytest.raises(CaseError):
        task_over(root).cases("fit")[1].images[0].read()

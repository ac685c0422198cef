"""Every case once, on any number of ranks; a case that cannot be read fails alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Failure, Prompt
from medimg_eval.data import prompts
from medimg_eval.data.cache import VolumeCache
from medimg_eval.data.datamodule import CaseDataModule
from medimg_eval.data.prompts import PromptBatches, UnpaddedDistributedSampler
from tests.conftest import ellipsoids


@given(st.sets(st.integers(0, 200)), st.integers(1, 9))
def test_each_case_is_on_exactly_one_rank(wanted, world):
    shards = [list(UnpaddedDistributedSampler(sorted(wanted), rank, world)) for rank in range(world)]
    assert sorted(index for shard in shards for index in shard) == sorted(wanted)


@given(st.integers(0, 60), st.integers(1, 9), st.data())
def test_a_case_stays_on_its_rank_however_many_are_done(count, world, data):
    done = data.draw(st.sets(st.sampled_from(range(count)))) if count else set()
    left = [index for index in range(count) if index not in done]
    for rank in range(world):
        whole = set(UnpaddedDistributedSampler(range(count), rank, world))
        assert set(UnpaddedDistributedSampler(left, rank, world)) == whole - done


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_hold_prompts_in_order_and_an_unreadable_case_as_a_failure(write_dataset, num_workers):
    root = write_dataset(5)
    (root / "images" / "case02.nii.gz").write_bytes(b"\x1f\x8b broken")
    data = CaseDataModule(ellipsoids(root), batch_size=2, num_workers=num_workers)
    batches = list(data.test_dataloader())
    asked = [one for batch in batches for one in batch]
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert [one.case.id for one in asked] == [f"case0{index}" for index in range(5)]
    failure = asked[2].prompt
    assert isinstance(failure, Failure)
    assert (failure.case_id, failure.stage) == ("case02", "read")
    assert "case02.nii.gz" in failure.message
    others = [one.prompt for index, one in enumerate(asked) if index != 2]
    assert all(isinstance(prompt, Prompt) and prompt.image.array.shape == (1, 16, 14, 10) for prompt in others)
    assert others[0].labels == {1: "core", 2: "rim"}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_batches_that_are_handed_over_together_are_as_large_as_was_asked_for(write_dataset, size, num_workers):
    task = ellipsoids(write_dataset(10))
    cases = list(task.cases("test"))
    batches = PromptBatches(task, cases, batch_size=size, num_workers=num_workers, skip=frozenset({cases[4].id}))
    found = [[one.case.id for one in batch] for batch in batches]
    left = [case.id for case in cases if case.id != cases[4].id]
    assert found == [left[start : start + size] for start in range(0, len(left), size)]
    assert len(batches) == len(found)


def test_small_files_are_read_by_one_process_and_large_ones_by_as_many_as_were_asked_for(write_dataset, monkeypatch):
    root, started = write_dataset(5), []
    monkeypatch.setattr(prompts, "started_ahead", lambda function, state, count: started.append(count))
    cases = list(ellipsoids(root).cases("test"))
    prompts.reading_ahead(ellipsoids(root), cases, 3)
    with (root / "images" / "case04.nii.gz").open("r+b") as stream:
        stream.truncate(prompts.SHARE)
    prompts.reading_ahead(ellipsoids(root), cases, 3)
    monkeypatch.setattr(prompts, "SHARE", 100)
    prompts.reading_ahead(ellipsoids(root), cases, 3)
    assert started == [1, 2, 3]


def test_cases_that_are_done_are_skipped_and_images_left_unread_on_demand(write_dataset):
    root = write_dataset(3)
    (root / "images" / "case01.nii.gz").unlink()
    data = CaseDataModule(ellipsoids(root), skip=frozenset({"case00"}), read_images=False)
    asked = [one for batch in data.test_dataloader() for one in batch]
    assert [one.case.id for one in asked] == ["case01", "case02"]
    assert all(one.prompt.images == () for one in asked)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_visits_every_case_and_draws_anew_each_epoch(write_dataset, num_workers):
    def sample(image, target, *, seed):
        return [{"seed": torch.tensor(seed), "sum": torch.tensor(int(target.labels.sum()))}] * 2

    task = ellipsoids(write_dataset(1, fit=4))
    data = CaseDataModule(task, batch_size=2, num_workers=num_workers, sample=sample)
    torch.manual_seed(0)
    loader = data.train_dataloader()
    epochs = [list(loader), list(loader)]
    assert [[len(batch["seed"]) for batch in epoch] for epoch in epochs] == [[4, 4], [4, 4]]
    seeds = [{int(seed) for batch in epoch for seed in batch["seed"]} for epoch in epochs]
    assert all(len(drawn) == 4 for drawn in seeds)
    assert not seeds[0] & seeds[1]
    sums = [sorted(int(total) for batch in epoch for total in batch["sum"]) for epoch in epochs]
    assert sums[0] == sums[1]


def test_training_needs_a_way_to_make_samples(write_dataset):
    with pytest.raises(ValueError, match="Expected `sample`"):
        CaseDataModule(ellipsoids(write_dataset(1, fit=1))).train_dataloader()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_cache_gives_what_reading_gives_and_reads_once(write_dataset, tmp_path, num_workers):
    def sample(image, target, *, seed):
        return [{"image": torch.from_numpy(image.array.astype("f4")), "target": torch.from_numpy(target.labels)}]

    root = write_dataset(1, fit=3)
    cache = VolumeCache(tmp_path / "cache")
    made = []
    for kept in (None, cache):
        torch.manual_seed(0)
        data = CaseDataModule(ellipsoids(root), sample=sample, cache=kept, num_workers=num_workers)
        made.append(list(data.train_dataloader()))
    for one, other in zip(*made, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in ("image", "target"))
    size = cache.size
    for path in (root / "images").iterdir():
        path.touch()  # another time, the same content
    list(CaseDataModule(ellipsoids(root), sample=sample, cache=cache).train_dataloader())
    assert cache.size == size > 0


def test_a_case_that_cannot_be_read_fails_with_a_cache_as_without(write_dataset, tmp_path):
    root = write_dataset(1, fit=1)
    (root / "images" / "case01.nii.gz").write_bytes(b"\x1f\x8b broken")
    data = CaseDataModule(ellipsoids(root), sample=lambda *_, **__: [], cache=VolumeCache(tmp_path / "cache"))
    (failure,) = data.train_dataloader()
    assert "case01.nii.gz" in failure.message

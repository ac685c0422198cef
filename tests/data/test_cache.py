"""The cache: what comes out is what went in, whoever writes, dies or evicts meanwhile."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.data.cache import VolumeCache
from medimg_eval.errors import CaseError, UserError
from medimg_eval.store import content_key
from tests.conftest import environment


def volume(seed=0, shape=(1, 40, 50, 30)):
    return np.random.default_rng(seed).integers(-1000, 1000, shape).astype(np.int16)


def entries(root):
    return sorted(folder.name for folder in (Path(root) / "entries").glob("*/*"))


def test_what_was_put_comes_back_with_its_meta(tmp_path):
    cache = VolumeCache(tmp_path)
    assert cache.get("abc") is None
    image, mask = volume(), (volume(1) > 0).astype(np.uint8)
    cache.put("abc", {"image": image, "mask": mask}, {"spacing": [1.0, 2.0, 3.0]})
    entry = VolumeCache(tmp_path).get("abc")
    assert (entry.arrays["image"].shape, entry.arrays["image"].dtype) == (image.shape, np.int16)
    np.testing.assert_array_equal(entry.arrays["image"], image)
    np.testing.assert_array_equal(entry.arrays["mask"][:], mask)
    assert entry.meta == {"spacing": [1.0, 2.0, 3.0]}


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_a_patch_is_that_part_of_the_source(tmp_path_factory, data):
    shape = data.draw(st.tuples(st.integers(1, 3), *[st.integers(1, 140)] * 3).filter(lambda s: np.prod(s) < 200_000))
    kind = data.draw(st.sampled_from(["u1", "i2", "f4", ">i2", "f8", "c8"]))
    source = np.random.default_rng(0).integers(0, 99, shape).astype(kind)
    where = []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        where.append(slice(start, data.draw(st.integers(start + 1, n))))
    entry = VolumeCache(tmp_path_factory.mktemp("cache")).put("key", {"image": source})
    np.testing.assert_array_equal(entry.arrays["image"][tuple(where)], source[tuple(where)])


def test_an_entry_is_made_once_and_then_found(tmp_path):
    cache = VolumeCache(tmp_path)
    made = []

    def make():
        made.append(1)
        return {"image": volume()}, {}

    for _ in range(3):
        np.testing.assert_array_equal(cache.fetch("key", make).arrays["image"], volume())
    assert len(made) == 1


def test_the_key_follows_content_order_and_transform_but_not_names(tmp_path):
    one, other, copy = (tmp_path / name for name in ("one", "other", "copy"))
    one.write_bytes(b"one")
    other.write_bytes(b"other")
    copy.write_bytes(b"one")
    key = content_key([one, other], {"spacing": [1, 1, 1]})
    assert key == content_key([copy, other], {"spacing": [1, 1, 1]})
    assert key != content_key([other, one], {"spacing": [1, 1, 1]})
    assert key != content_key([one, other], {"spacing": [1, 1, 2]})
    copy.write_bytes(b"two")
    assert key != content_key([copy, other], {"spacing": [1, 1, 1]})
    folder = tmp_path / "series"
    folder.mkdir()
    (folder / "a").write_bytes(b"one")
    before = content_key([folder], None)
    (folder / "b").write_bytes(b"x")
    assert before != content_key([folder], None)


def test_the_key_of_a_missing_file_names_it(tmp_path):
    with pytest.raises(CaseError, match=r"gone\.nii"):
        content_key([tmp_path / "gone.nii"], None)


def test_the_entry_used_longest_ago_is_forgotten_first(tmp_path):
    cache = VolumeCache(tmp_path)
    size = None
    for number in range(3):
        cache.put(f"key{number}", {"image": volume(number)})
        size = size or cache.size
        time.sleep(0.02)
    cache.get("key0")
    small = VolumeCache(tmp_path, limit_gib=3.5 * size / 2**30)
    small.put("key3", {"image": volume(3)})
    assert entries(tmp_path) == ["key0", "key2", "key3"]
    assert small.size <= 3.5 * size


def test_a_forgotten_entry_stays_readable_where_it_is_open(tmp_path):
    cache = VolumeCache(tmp_path)
    entry = cache.put("first", {"image": volume()})
    VolumeCache(tmp_path, limit_gib=1.2 * cache.size / 2**30).put("second", {"image": volume(1)})
    assert entries(tmp_path) == ["second"]
    np.testing.assert_array_equal(entry.arrays["image"], volume())
    assert cache.get("first") is None


def test_an_entry_larger_than_the_limit_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match="raise limit_gib"):
        VolumeCache(tmp_path, limit_gib=1e-6).put("key", {"image": volume()})
    assert not entries(tmp_path)
    assert not list((tmp_path / "writing").iterdir())


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        VolumeCache(tmp_path).put("key", {"image": volume()}, {"odd": object()})
    assert not entries(tmp_path)
    assert not list((tmp_path / "writing").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "image.b2nd").unlink(),
        lambda folder: (folder / "image.b2nd").write_bytes((folder / "image.b2nd").read_bytes()[:-50]),
        lambda folder: flip(folder / "image.b2nd"),
        lambda folder: (folder / "entry.json").unlink(),
        lambda folder: (folder / "entry.json").write_text("{"),
        lambda folder: (folder / "entry.json").write_text("[]"),
    ],
    ids=["missing", "cut", "flipped", "no record", "cut record", "odd record"],
)
def test_a_damaged_entry_is_dropped_and_made_again(tmp_path, damage):
    VolumeCache(tmp_path).put("key", {"image": volume()})
    damage(tmp_path / "entries" / "ke" / "key")
    cache = VolumeCache(tmp_path)
    assert cache.get("key") is None
    assert entries(tmp_path) == []
    entry = cache.fetch("key", lambda: ({"image": volume()}, {}))
    np.testing.assert_array_equal(entry.arrays["image"], volume())


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def _put(root, seed, barrier, answers):
    barrier.wait()
    entry = VolumeCache(root).fetch("shared", lambda: ({"image": volume(7)}, {"by": seed}))
    answers.put(bool(np.array_equal(entry.arrays["image"], volume(7))))


def test_processes_that_put_the_same_key_at_once_all_read_it(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(3), context.Queue()
    workers = [context.Process(target=_put, args=(tmp_path, seed, barrier, answers)) for seed in range(3)]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=60) for _ in workers] == [True] * 3
    for worker in workers:
        worker.join(timeout=60)
    assert entries(tmp_path) == ["shared"]
    assert not list((tmp_path / "writing").iterdir())


SLOW_WRITER = """
import sys, time
import numpy as np
from medimg_eval.data import cache

def hang(path):
    print("half written", flush=True)
    time.sleep(600)
cache._file_checksum = hang
cache.VolumeCache(sys.argv[1]).put("key", {"image": np.ones((1, 64, 64, 64), np.int16)})
"""


def test_a_killed_writer_leaves_nothing_valid_and_is_cleaned_up_after(tmp_path):
    root = tmp_path / "cache"
    writer = subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, str(root)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    with writer:
        assert writer.stdout.readline() == "half written\n"
        cache = VolumeCache(root)
        assert cache.get("key") is None
        cache.put("other", {"image": volume()})
        assert len([one for one in (root / "writing").iterdir() if one.is_dir()]) == 1  # alive: left alone
        os.kill(writer.pid, signal.SIGKILL)
    assert cache.get("key") is None
    cache.put("key", {"image": volume(5)})
    assert not list((root / "writing").iterdir())
    np.testing.assert_array_equal(cache.get("key").arrays["image"], volume(5))


def test_arrays_travel_to_other_processes_by_name(tmp_path):
    entry = VolumeCache(tmp_path).put("key", {"image": volume()})
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(entry.arrays["image"])), volume())


def test_a_file_damaged_after_opening_is_named(tmp_path):
    cache = VolumeCache(tmp_path)
    entry = cache.put("key", {"image": volume()})
    path = entry.arrays["image"].path
    with path.open("r+b") as stream:  # the same file, under the map
        stream.seek(200)
        stream.write(b"\xff" * (path.stat().st_size - 400))
    with pytest.raises(CaseError, match=r"image\.b2nd: is damaged"):
        entry.arrays["image"][:]


@pytest.mark.parametrize("arrays", [{}, {"../up": volume()}, {"a b": volume()}])
def test_names_are_plain_words(tmp_path, arrays):
    with pytest.raises(UserError, match="plain words"):
        VolumeCache(tmp_path).put("key", arrays)


@pytest.mark.parametrize("key", ["", "a", "../../up", "a/b"])
def test_keys_are_plain_words(tmp_path, key):
    with pytest.raises(UserError, match="letters and digits"):
        VolumeCache(tmp_path).get(key)


def test_a_cache_without_room_is_refused(tmp_path):
    with pytest.raises(UserError, match="limit_gib above 0"):
        VolumeCache(tmp_path, limit_gib=0)


def test_the_record_says_what_is_stored(tmp_path):
    VolumeCache(tmp_path).put("key", {"image": volume()}, {"unit": "mm"})
    record = json.loads((tmp_path / "entries" / "ke" / "key" / "entry.json").read_text())
    assert record["meta"] == {"unit": "mm"}
    assert list(record["files"]) == ["image"]


def test_what_the_data_module_keeps_knows_units_and_modality(tmp_path):
    from PIL import Image as Picture

    from medimg_eval.data.datamodule import CaseDataModule
    from medimg_eval.data.layouts import PairedFolders
    from medimg_eval.tasks import SegmentationTask

    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        Picture.fromarray(np.ones((8, 9), np.uint8)).save(tmp_path / folder / "a.png")
    layout = PairedFolders(root=str(tmp_path), modality="ES")
    task = SegmentationTask(name="polyps", layout=layout, labels={1: "polyp"}, units="pixel")
    seen = []

    def sample(image, target, *, seed):
        seen.append((image.modality, image.units, target.units, image.array.shape, target.labels.sum()))
        return []

    for _ in range(2):  # written, then found
        dataset = CaseDataModule(task, sample=sample, cache=VolumeCache(tmp_path / "cache")).train_dataloader().dataset
        assert dataset[0] == []
    assert seen == [("ES", "pixel", "pixel", (1, 8, 9), 72)] * 2

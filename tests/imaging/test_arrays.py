"""Arrays: npy, npz and HDF5, whole, by item and by memory map."""

import multiprocessing
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from medimg_eval import imaging
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.arrays import Bundle
from medimg_eval.imaging.slides.features import read_features

h5py = pytest.importorskip("h5py")


def random(*shape, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 255, shape).astype(dtype)


def hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key.replace("__", "/")] = array
    return path


def test_a_npy_picture_is_read_as_it_is_stored_and_can_be_written_in_memory(tmp_path):
    path, stored = tmp_path / "p.npy", random(5, 7, dtype=np.uint16)
    np.save(path, stored)
    image = imaging.read(path)
    assert image.array.dtype == np.uint16
    assert np.array_equal(image.array, stored[None])
    assert image.units == "pixel"
    assert isinstance(image.array.base, np.memmap) or isinstance(image.array, np.memmap)
    image.array[:] = 0  # stays in memory
    assert np.array_equal(np.load(path), stored)
    assert imaging.read_grid(path).difference(image.geometry) is None


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((5, 7), None, (1, 5, 7)),
        ((5, 7, 3), None, (3, 5, 7)),
        ((5, 7, 1), None, (1, 5, 7)),
        ((5, 7, 9), None, (1, 5, 7, 9)),
        ((5, 7, 9, 3), None, (3, 5, 7, 9)),
        ((3, 5, 7), "chw", (3, 5, 7)),
        ((3, 5, 7), "zyx", (1, 7, 5, 3)),
        ((5, 7, 9, 2), "dhwc", (2, 9, 7, 5)),
        ((5, 7), "xy", (1, 7, 5)),
        ((6, 5, 7, 3), "thwc", (3, 6, 5, 7)),
        ((4, 5, 6), "ijk", (1, 4, 5, 6)),
    ],
)
def test_axes_come_out_channel_first(tmp_path, shape, axes, expected):
    np.save(tmp_path / "a.npy", random(*shape))
    options = {} if axes is None else {"axes": axes}
    image = imaging.read(tmp_path / "a.npy", **options)
    assert image.array.shape == expected
    assert imaging.read_grid(tmp_path / "a.npy", **options).shape == expected[1:]


def test_a_voxel_named_by_its_axes_is_found_at_its_place(tmp_path):
    stored = random(4, 5, 6)
    np.save(tmp_path / "a.npy", stored)
    assert imaging.read(tmp_path / "a.npy", axes="zyx").array[0, 5, 2, 1] == stored[1, 2, 5]


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 5, 7), (5, 7, 4), (2, 5, 7, 9)])
def test_axes_that_may_mean_several_things_are_asked_for(tmp_path, shape):
    np.save(tmp_path / "a.npy", random(*shape))
    for call in (imaging.read, imaging.read_grid):
        with pytest.raises(CaseError, match=r"a\.npy: array has shape .* name its axes"):
            call(tmp_path / "a.npy")


def test_wrong_axes_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", random(3, 5, 7))
    for axes in ("hw", "hwh", "hyw", "cqw"):
        with pytest.raises(UsageError, match=r"a\.npy: array has shape .* expected axes of 3 different letters"):
            imaging.read(tmp_path / "a.npy", axes=axes)
    np.save(tmp_path / "b.npy", random(3))
    with pytest.raises(CaseError, match=r"b\.npy: array has shape \(3,\); expected an image of 2 to 4 axes"):
        imaging.read(tmp_path / "b.npy")


@pytest.mark.parametrize("compressed", [False, True])
def test_the_items_of_a_medmnist_bundle_are_pictures_and_volumes(tmp_path, compressed):
    images = {"train_images": random(6, 8, 8), "test_images": random(4, 8, 8, 3), "val_images": random(2, 8, 8, 8)}
    (np.savez_compressed if compressed else np.savez)(tmp_path / "b.npz", **images)
    assert np.array_equal(
        imaging.read(tmp_path / "b.npz", key="train_images", index=4).array, images["train_images"][4][None]
    )
    colour = imaging.read(tmp_path / "b.npz", key="test_images", index=3, cache=tmp_path / "cache")
    assert np.array_equal(colour.array, np.moveaxis(images["test_images"][3], -1, 0))
    assert imaging.read(tmp_path / "b.npz", key="val_images", index=1).array.shape == (1, 8, 8, 8)
    assert imaging.read_grid(tmp_path / "b.npz", key="val_images", index=1).shape == (8, 8, 8)
    assert imaging.read_mask(tmp_path / "b.npz", key="train_images", index=0).labels.shape == (8, 8)


def test_headers_are_read_without_the_values(tmp_path):
    np.savez_compressed(tmp_path / "b.npz", a=random(6, 8), b=np.zeros((3, 2, 2), np.float32), c=np.array("text"))
    bundle = Bundle(tmp_path / "b.npz")
    found = {key: (header.shape, str(header.dtype)) for key, header in bundle.headers.items()}
    assert found == {"a": ((6, 8), "uint8"), "b": ((3, 2, 2), "float32"), "c": ((), "<U4")}


@settings(deadline=None, max_examples=15)
@given(
    array=st.sampled_from([np.uint8, ">i2", "<f4", np.complex64, bool]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))
    ),
    fortran=st.booleans(),
    key=st.sampled_from(["a", "train_images", "x y", "odd/key"]),
)
def test_every_way_of_storing_gives_the_same_array(array, fortran, key, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asfortranarray(array) if fortran else array
    np.savez(folder / "s.npz", **{key: array, "other": np.zeros(3)})
    np.savez_compressed(folder / "c.npz", **{key: array})
    np.save(folder / "a.npy", array)
    plain, packed, single = Bundle(folder / "s.npz"), Bundle(folder / "c.npz"), Bundle(folder / "a.npy")
    cached = Bundle(folder / "c.npz", cache=folder / "cache")
    for found in (plain.array(key), packed.array(key), cached.array(key), cached.array(key), single.array("array")):
        np.testing.assert_array_equal(found, array)
    assert isinstance(plain.array(key), np.memmap)  # stored as it is in memory: not even unpacked
    assert isinstance(cached.array(key), np.memmap)
    np.testing.assert_array_equal(cached.item(key, 0), array[0])


def test_big_endian_numbers_come_out_in_the_order_of_the_machine(tmp_path):
    np.save(tmp_path / "a.npy", random(3, 5, dtype=">u2"))
    image = imaging.read(tmp_path / "a.npy")
    assert image.array.dtype.isnative
    assert np.array_equal(image.array[0], random(3, 5))


def test_a_member_is_unpacked_once_and_again_when_the_file_changes(tmp_path):
    path, cache = tmp_path / "b.npz", tmp_path / "cache"
    np.savez_compressed(path, a=random(100, 4))
    Bundle(path, cache=cache).array("a")
    (unpacked,) = cache.rglob("*.npy")
    before = unpacked.stat().st_mtime_ns
    Bundle(path, cache=cache).array("a")
    assert unpacked.stat().st_mtime_ns == before
    np.savez_compressed(path, a=random(101, 4) // 2)
    assert np.array_equal(Bundle(path, cache=cache).array("a"), random(101, 4) // 2)
    assert not list(cache.rglob("*.partial"))


def test_what_a_killed_process_left_is_not_taken_for_the_array(tmp_path):
    path, cache = tmp_path / "b.npz", tmp_path / "cache"
    np.savez_compressed(path, a=random(100, 4))
    Bundle(path, cache=cache).array("a")
    (unpacked,) = cache.rglob("*.npy")
    unpacked.rename(unpacked.with_suffix(".partial"))
    unpacked.with_suffix(".partial").write_bytes(b"half")
    assert np.array_equal(Bundle(path, cache=cache).array("a"), random(100, 4))


def unpack(path, cache, answers):
    answers.put(int(Bundle(path, cache=cache).array("a").sum()))


@pytest.mark.slow
def test_several_processes_unpack_the_same_file(tmp_path):
    array = random(2000, 50, 20)
    np.savez_compressed(tmp_path / "b.npz", a=array)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    workers = [
        context.Process(target=unpack, args=(tmp_path / "b.npz", tmp_path / "cache", answers), daemon=True)
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    assert [answers.get(timeout=60) for _ in workers] == [int(array.sum())] * 4
    for worker in workers:
        worker.join()


def test_a_fairseg_patient_needs_leave_to_unpickle_its_scalars_only(tmp_path):
    path = tmp_path / "data_00001.npz"
    mask = np.array([[0, -1], [-2, 0]], np.float64)
    np.savez(path, slo_fundus=random(2, 2), disc_cup_mask=mask, race=np.array("asian", dtype=object))
    assert imaging.read(path, key="slo_fundus").array.shape == (1, 2, 2)
    assert imaging.read_mask(path, key="disc_cup_mask").labels.tolist() == mask.tolist()
    with pytest.raises(CaseError, match=r"data_00001\.npz: race holds Python objects.*can run code.*allow_pickle=True"):
        Bundle(path).array("race")
    assert Bundle(path, allow_pickle=True).array("race").item() == "asian"
    np.save(tmp_path / "o.npy", np.array({"a": 1}, dtype=object))
    assert Bundle(tmp_path / "o.npy", allow_pickle=True).array("array").item() == {"a": 1}
    with pytest.raises(CaseError, match=r"o\.npy: expected numbers in array, got object"):
        imaging.read(tmp_path / "o.npy", allow_pickle=True)


def test_hdf5_datasets_are_named_by_their_path_and_read_by_item(tmp_path):
    images = random(4, 6, 7, 3)
    path = hdf5(tmp_path / "p.h5", img=images, deep__er=random(2, 2))
    assert set(Bundle(path).headers) == {"img", "deep/er"}
    assert np.array_equal(imaging.read(path, key="img", index=2).array, np.moveaxis(images[2], -1, 0))
    assert imaging.read(path, key="deep/er").array.shape == (1, 2, 2)
    assert imaging.read_grid(path, key="img", index=0).shape == (6, 7)
    assert imaging.read(hdf5(tmp_path / "one.h5", only=random(3, 4))).array.shape == (1, 3, 4)


def test_keys_and_items_that_do_not_exist_are_named_with_what_does(tmp_path):
    path = tmp_path / "b.npz"
    np.savez(path, test_images=random(4, 5, 5), test_label=random(4))
    with pytest.raises(CaseError, match=r"b\.npz: holds no array 'test_image'; did you mean 'test_images'"):
        imaging.read(path, key="test_image")
    with pytest.raises(CaseError, match=r"b\.npz: holds 2 arrays; say which with key= \(test_images \(4, 5, 5\)"):
        imaging.read(path)
    for wrong in (4, -1):
        with pytest.raises(CaseError, match=rf"b\.npz: test_images holds 4 items.* no item {wrong}"):
            imaging.read(path, key="test_images", index=wrong)


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5", "packed.npz"])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.98])
def test_a_file_cut_short_is_an_error_that_names_it(tmp_path, suffix, part):
    whole = tmp_path / f"whole.{suffix}"
    array = np.random.default_rng(0).integers(0, 255, (50, 60)).astype(np.uint8)
    if suffix == "h5":
        hdf5(whole, a=array)
    else:
        {"npy": np.save, "npz": lambda p, a: np.savez(p, a=a)}.get(suffix, lambda p, a: np.savez_compressed(p, a=a))(
            whole, array
        )
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole.read_bytes()[: int(part * whole.stat().st_size)])
    for call in (imaging.read, imaging.read_grid):
        with pytest.raises(CaseError, match=rf"cut\.{suffix}: is cut short or damaged"):
            call(path)


def test_a_damaged_member_is_noticed_and_not_cached(tmp_path):
    path = tmp_path / "b.npz"
    np.savez_compressed(path, a=random(200, 200))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    for options in ({}, {"cache": tmp_path / "cache"}):
        with pytest.raises(CaseError, match=r"b\.npz: is cut short or damaged"):
            imaging.read(path, **options)
    assert not list((tmp_path / "cache").rglob("*.npy"))


def test_a_member_shorter_than_its_header_says_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", random(4, 4))
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as file:
        file.writestr("a.npy", (tmp_path / "a.npy").read_bytes()[:-3])
    with pytest.raises(CaseError, match=r"b\.npz: is cut short or damaged \(13 bytes of values instead of 16\)"):
        imaging.read(tmp_path / "b.npz")


def test_a_cache_that_cannot_be_written_is_blamed_itself(tmp_path):
    np.savez_compressed(tmp_path / "b.npz", a=random(4, 4))
    (tmp_path / "file").write_text("")
    with pytest.raises(CaseError, match=r"file.*cannot be written"):
        imaging.read(tmp_path / "b.npz", cache=tmp_path / "file")


def test_text_empty_arrays_and_missing_files_are_one_sentence(tmp_path):
    np.save(tmp_path / "t.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "e.npy", np.zeros((0, 5)))
    with pytest.raises(CaseError, match=r"t\.npy: expected numbers in array"):
        imaging.read(tmp_path / "t.npy")
    with pytest.raises(CaseError, match=r"e\.npy: expected numbers in array"):
        imaging.read(tmp_path / "e.npy")
    with pytest.raises(CaseError, match=r"n\.npz: no such file"):
        Bundle(tmp_path / "n.npz")
    with pytest.raises(CaseError, match=r"e\.npy: expected one file of arrays, got 2"):
        imaging.read([tmp_path / "e.npy", tmp_path / "t.npy"])


@pytest.mark.parametrize("how", ["link", "storage", "view"])
def test_hdf5_arrays_that_lie_in_another_file_are_refused(tmp_path, how):
    secret, path = tmp_path / "secret", tmp_path / "case" / "a.h5"
    path.parent.mkdir()
    with h5py.File(secret, "w") as file:
        file["array"] = np.arange(24, dtype=np.uint8).reshape(4, 6)
    with h5py.File(path, "w") as file:
        if how == "link":
            file["array"] = h5py.ExternalLink(str(secret), "array")
        elif how == "storage":
            file.create_dataset("array", (4, 6), np.uint8, external=[(str(secret), 0, 24)])
        else:
            layout = h5py.VirtualLayout((4, 6), np.uint8)
            layout[:] = h5py.VirtualSource(str(secret), "array", (4, 6))
            file.create_virtual_dataset("array", layout)
        file["features"], file["coords"] = h5py.SoftLink("/array"), np.zeros((4, 2))
    with pytest.raises(CaseError, match=r"a\.h5: (its array .*lies in another file|holds no array)"):
        imaging.read(path, key="array")
    with pytest.raises(CaseError, match=r"a\.h5: its array .*lies in another file"):
        read_features(path)

"""Features as models leave them: HDF5, .pt and .npy; whole, damaged, and with more in them than numbers."""

import contextlib
import io
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.features import read_features

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(5, 7)).astype(np.float32)
PLACES = RNG.integers(0, 10_000, (5, 2))  # x, y
FLIPPED = PLACES[:, ::-1]


def hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def saved(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64),
        *(torch.int32, torch.int16, torch.int8, torch.uint8),
    ],
    ids=str,
)
def test_tensors_of_every_type_are_what_torch_saved(tmp_path, dtype):
    tensor = (torch.arange(24).reshape(6, 4) - 5).abs().to(dtype)
    found = read_features(saved(tmp_path / "a.pt", tensor)).features
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, tensor.float().numpy())


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.randoms())
def test_views_are_what_torch_saved(tmp_path_factory, shape, random):
    path = tmp_path_factory.getbasetemp() / "view.pt"
    tensor = torch.arange(600.0)[5:].as_strided([*shape], [random.randint(0, 30) for _ in shape], 3)
    np.testing.assert_array_equal(read_features(saved(path, tensor)).features, np.atleast_2d(tensor.numpy()))


def test_parameters_shared_storages_and_other_things_beside_are_read_past(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    content = OrderedDict(
        feats=torch.nn.Parameter(base.T), coords=base.T[:, 1:], b=[base[1], (base[:, ::2], "name", 3, 0.5, None)]
    )
    found = read_features(saved(tmp_path / "a.pt", content))
    np.testing.assert_array_equal(found.features, base.T.numpy())
    np.testing.assert_array_equal(found.coordinates, base.T[:, 1:].numpy()[:, ::-1])


def test_no_torch_is_imported():
    room = "medimg_eval.imaging.slides"
    code = f"import sys, {room}.features, {room}.reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Harm:
    def __reduce__(self):
        return print, ("this must not run",)


def test_a_pickle_runs_nothing(tmp_path, capsys):
    for name, content in (("a", {"features": torch.ones(2, 2), "x": Harm()}), ("m", torch.nn.Linear(2, 2))):
        with pytest.raises(CaseError, match=rf"{name}\.pt: .*holds more than tensors, and what .* is not run"):
            read_features(saved(tmp_path / f"{name}.pt", content))
    assert capsys.readouterr().out == ""


def rewritten(old, new, change):
    """Copies an archive; `change` is given each part's name and content."""
    with zipfile.ZipFile(old) as whole, zipfile.ZipFile(new, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, change(name, whole.read(name)))
    return new


def test_a_tensor_that_reaches_past_its_storage_is_refused(tmp_path):
    whole = saved(tmp_path / "a.pt", torch.arange(8.0))
    short = rewritten(whole, tmp_path / "b.pt", lambda name, got: got[:12] if name.endswith("data/0") else got)
    with pytest.raises(CaseError, match=r"b\.pt: is damaged"):
        read_features(short)


def test_a_changed_number_is_found_by_its_checksum(tmp_path):
    content = bytearray(saved(tmp_path / "a.pt", torch.from_numpy(VALUES)).read_bytes())
    content[content.index(VALUES.tobytes()) + 3] ^= 1
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(CaseError, match=r"a\.pt: holds damaged or compressed parts"):
        read_features(tmp_path / "a.pt")


def test_a_tensor_without_an_array_is_refused(tmp_path):
    sparse = saved(tmp_path / "a.pt", {"features": torch.eye(3).to_sparse()})
    with warnings.catch_warnings(), pytest.raises(CaseError, match=r"a\.pt: is damaged, or not a file"):
        warnings.simplefilter("ignore")  # torch warns of what it does with sparse tensors
        read_features(sparse)


def test_damaged_and_old_files_are_refused(tmp_path):
    whole = saved(tmp_path / "a.pt", torch.ones(100, 100)).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    torch.save(torch.ones(3), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as archive:
        archive.writestr("other.txt", "text")
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=2)
    pickler.persistent_id = lambda one: ("storage", "text", "0") if one == "here" else None
    pickler.dump(["here"])
    rewritten(
        tmp_path / "a.pt", tmp_path / "odd.pt", lambda name, got: stream.getvalue() if "data.pkl" in name else got
    )
    for name in ("cut", "old", "zip", "odd"):
        with pytest.raises(CaseError, match=rf"{name}\.pt: is damaged"):
            read_features(tmp_path / f"{name}.pt")
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(10**6))
    with pytest.raises(CaseError, match=r"bomb\.pt: holds damaged or compressed parts"):
        read_features(tmp_path / "bomb.pt")


@pytest.mark.parametrize("flip", [False, True])
def test_the_three_formats_hold_the_same_features(tmp_path, flip):
    stored = VALUES[None] if flip else VALUES
    np.save(tmp_path / "a.npy", stored)
    found = [
        read_features(hdf5(tmp_path / "a.h5", features=stored, coords=PLACES)),
        read_features(saved(tmp_path / "a.pt", torch.from_numpy(stored))),
        read_features(
            saved(tmp_path / "b.pt", {"feats": torch.from_numpy(stored), "coords": torch.from_numpy(PLACES)})
        ),
        read_features(tmp_path / "a.npy"),
    ]
    for one in found:
        assert one.features.dtype == np.float32
        np.testing.assert_array_equal(one.features, VALUES)
    assert [one.coordinates is None for one in found] == [False, True, False, True]
    np.testing.assert_array_equal(found[0].coordinates, FLIPPED)
    np.testing.assert_array_equal(found[2].coordinates, FLIPPED)


def test_phikon_rows_start_with_level_x_and_y(tmp_path):
    np.save(tmp_path / "a.npy", np.hstack([np.full((5, 1), 16), PLACES, VALUES]).astype(np.float32))
    found = read_features(tmp_path / "a.npy", coordinate_columns=3)
    np.testing.assert_array_equal(found.features, VALUES)
    np.testing.assert_array_equal(found.coordinates, FLIPPED)
    assert read_features(tmp_path / "a.npy").features.shape == (5, 10)


def test_one_vector_is_one_row_and_half_precision_becomes_single(tmp_path):
    found = read_features(hdf5(tmp_path / "a.h5", features=VALUES[0].astype(np.float16)))
    assert found.features.shape == (1, 7)
    assert found.features.dtype == np.float32


BAD = {
    "nan": (np.where(np.eye(5, 7) > 0, np.nan, VALUES), "5 of 5 tiles have NaN"),
    "over": (np.full((2, 3), 1e300), "2 of 2 tiles have NaN or infinite"),
    "none": (np.zeros((0, 7)), "holds no features"),
    "cube": (np.zeros((2, 3, 4)), r"expected features \(tile, feature\)"),
    "text": (np.array(["a", "b"]).astype("S1"), r"expected features \(tile, feature\) of numbers"),
}


@pytest.mark.parametrize("kind", BAD)
def test_features_that_cannot_be_used_are_refused_by_name(tmp_path, kind):
    array, says = BAD[kind]
    np.save(tmp_path / "bad.npy", array)
    for path in (hdf5(tmp_path / "bad.h5", features=array), tmp_path / "bad.npy"):
        with pytest.raises(CaseError, match=rf"{path.name}: .*{says}"):
            read_features(path)


def test_files_that_are_no_features_are_refused_by_name(tmp_path):
    (tmp_path / "text.h5").write_text("no")
    (tmp_path / "text.npy").write_text("no")
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.save(tmp_path / "narrow.npy", VALUES[:, :3])
    hdf5(tmp_path / "other.h5", x=VALUES, y=PLACES)
    hdf5(tmp_path / "uneven.h5", features=VALUES, coords=PLACES[:3])
    hdf5(tmp_path / "fractions.h5", features=VALUES, coords=PLACES + 0.5)
    saved(tmp_path / "list.pt", [torch.ones(2)])
    expected = {
        "gone.h5": "no such file",
        "features.csv": "no such file",
        "text.h5": "cannot be read as HDF5",
        "text.npy": "cannot be read as .npy",
        "objects.npy": "cannot be read as .npy",
        "other.h5": "expected features as `features`, found x, y",
        "uneven.h5": "features of 5 tiles, but places of 3",
        "fractions.h5": "whole level-0 pixels",
        "list.pt": "expected a tensor or a dict of tensors, got list",
    }
    for name, says in expected.items():
        with pytest.raises(CaseError, match=name) as caught:
            read_features(tmp_path / name)
        assert says in str(caught.value)
    with pytest.raises(CaseError, match=r"narrow\.npy: has 3 columns"):
        read_features(tmp_path / "narrow.npy", coordinate_columns=3)
    (tmp_path / "features.csv").write_text("1,2")
    with pytest.raises(CaseError, match=r"features\.csv: expected features as \.h5"):
        read_features(tmp_path / "features.csv")


def test_changed_bytes_never_crash_the_reader(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    saved(tmp_path / "a.pt", {"features": torch.from_numpy(VALUES)})
    hdf5(tmp_path / "a.h5", features=VALUES, coords=PLACES)
    rng = np.random.default_rng(0)
    for suffix in ("npy", "pt", "h5"):
        whole = (tmp_path / f"a.{suffix}").read_bytes()
        for _ in range(40):
            content = bytearray(whole)
            for place in rng.integers(0, min(len(whole), 700), 4):
                content[place] = rng.integers(256)
            (tmp_path / f"b.{suffix}").write_bytes(content)
            with contextlib.suppress(CaseError):
                assert np.isfinite(read_features(tmp_path / f"b.{suffix}").features).all()

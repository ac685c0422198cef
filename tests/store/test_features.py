"""The store of features: rows that are added once, survive a kill, and are shared by processes."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from medimg_eval.errors import CaseError, UserError
from medimg_eval.store.features import FeatureStore, Item

MADE_BY = {"encoder": {"name": "x"}, "plan": None}


def rows(number, count=2, length=3):
    return np.arange(count * length, dtype=np.float32).reshape(count, length) + 10 * number


def test_rows_are_found_again_by_key(tmp_path):
    store = FeatureStore.create(tmp_path / "s", MADE_BY, 3)
    store.add([Item("a", rows(0), np.array([[5, 6], [7, 8]])), Item('b,"c', rows(1, 1)), Item("none", rows(0, 0))])
    store.add([Item("a", rows(9)), Item("d", rows(2))])  # a is there already
    for one in (store, FeatureStore.open(tmp_path / "s")):
        assert one.keys == ("a", 'b,"c', "none", "d")
        assert len(one) == 5
        np.testing.assert_array_equal(one.rows("a"), rows(0))
        np.testing.assert_array_equal(one.rows("d"), rows(2))
        assert one.rows("none").shape == (0, 3)
        assert one.coordinates("a").tolist() == [[5, 6], [7, 8]]
        assert one.coordinates("d") is None
        np.testing.assert_array_equal(one.matrix(), np.concatenate([rows(0), rows(1, 1), rows(2)]))
        np.testing.assert_array_equal(one.matrix(["d", "a"]), np.concatenate([rows(2), rows(0)]))
        assert isinstance(one.matrix(["a", 'b,"c']), np.memmap)  # neighbours are not copied
        assert one.counts(['b,"c', "d"]) == [1, 2]
    np.testing.assert_array_equal(np.load(tmp_path / "s" / "features.npy"), store.matrix())  # anybody's NumPy reads it


def test_what_a_killed_process_began_is_written_over(tmp_path):
    store = FeatureStore.create(tmp_path, MADE_BY, 3)
    store.add([Item("a", rows(0))])
    with (tmp_path / "features.npy").open("ab") as stream:
        stream.write(b"half a row")
    with (tmp_path / "index.csv").open("ab") as stream:
        stream.write(b"b,2,")
    again = FeatureStore.open(tmp_path)
    assert again.keys == ("a",)
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), rows(0))
    again.add([Item("c", rows(3))])
    assert FeatureStore.open(tmp_path).keys == ("a", "c")
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), np.concatenate([rows(0), rows(3)]))


WRITER = """
import sys, numpy as np
from medimg_eval.store.features import FeatureStore, Item
store = FeatureStore.create(sys.argv[1], {}, 4)
for number in range(int(sys.argv[2]), 10**6):
    store.add([Item(f"k{number}", np.full((5, 4), number, np.float32))])
"""


def test_a_store_is_whole_after_a_kill_while_two_write(tmp_path):
    folder = tmp_path / "s"
    started = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), begin]) for begin in ("0", "3")]
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            try:
                if len(FeatureStore.open(folder).keys) > 20:
                    break
            except UserError:  # not begun yet
                time.sleep(0.02)
    finally:
        for one in started:
            one.send_signal(signal.SIGKILL)
            one.wait()
    store = FeatureStore.open(folder)
    assert len({*store.keys}) == len(store.keys) > 20
    for key in store.keys:
        assert (store.rows(key) == float(key[1:])).all()
        assert store.rows(key).shape == (5, 4)
    store.add([Item("last", np.zeros((1, 4)))])
    assert np.load(folder / "features.npy").shape == (len(store), 4)


def test_a_reader_sees_what_another_has_added_since(tmp_path):
    store = FeatureStore.create(tmp_path, MADE_BY, 3)
    reader = FeatureStore.open(tmp_path)
    store.add([Item("a", rows(0))])
    np.testing.assert_array_equal(reader.rows("a"), rows(0))
    store.add([Item("b", rows(1)), Item("c", rows(2))])
    np.testing.assert_array_equal(reader.matrix(["c"]), rows(2))


def test_faults_name_the_file_and_what_to_do(tmp_path):
    with pytest.raises(UserError, match="is no feature store, it has no manifest.json"):
        FeatureStore.open(tmp_path)
    store = FeatureStore.create(tmp_path / "s", MADE_BY, 3, "float16")
    store.add([Item("a", rows(0))])
    assert store.matrix().dtype == np.float16
    with pytest.raises(CaseError, match=r"holds no features of 'z'; compute them by `embed`"):
        store.rows("z")
    with pytest.raises(CaseError, match=r"1 of 1 rows of features are larger than float16 holds: set dtype=float32"):
        store.add([Item("b", np.full((1, 3), 1e6))])
    with pytest.raises(CaseError, match="1 of 2 rows of features are NaN or infinite"):
        store.add([Item("b", np.array([[0, 0, np.nan], [0, 0, 0]]))])
    with pytest.raises(CaseError, match=r"expected features \(row, 3\), got \(2, 4\)"):
        store.add([Item("b", np.zeros((2, 4)))])
    with pytest.raises(UserError, match="holds rows of 3 x float16, these are 4 x float16"):
        FeatureStore.create(tmp_path / "s", MADE_BY, 4, "float16")
    with pytest.raises(UserError, match="was made by another encoder"):
        FeatureStore.create(tmp_path / "s", {"encoder": "y"}, 3, "float16")
    (tmp_path / "s" / "features.npy").write_bytes(b"")
    with pytest.raises(UserError, match=r"features.npy: is shorter than its index says; delete .*s, and its features"):
        FeatureStore.open(tmp_path / "s")
    (tmp_path / "s" / "manifest.json").write_text(json.dumps({"version": 1}))
    with pytest.raises(UserError, match="cannot be read as a feature store's manifest"):
        FeatureStore.open(tmp_path / "s")

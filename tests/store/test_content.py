"""Values kept on disk by content."""

import json
import sqlite3
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from medimg_eval.errors import UserError
from medimg_eval.store import Stored, observation_store, reply_store
from tests.conftest import environment

PUT = """
import os, signal, sys
from medimg_eval.store import Stored, reply_store
cache = reply_store(__import__("pathlib").Path(sys.argv[1]))
for place in range(20):
    cache.put({f"{sys.argv[2]}-{place}": Stored({"text": str(place)})})
    cache.put({"shared": Stored({"text": sys.argv[2]})})
os.kill(os.getpid(), signal.SIGKILL)
"""


OLD = [
    ("verdict", "replies", "text"),
    ("annotation", "annotations", "reading"),
    ("comparison", "annotations", "reading"),
    ("distance", "annotations", "reading"),
]
"""Kind, folder of the user's cache, and the key under which its former file holds what was said."""


@pytest.fixture
def user_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "user"))
    return tmp_path / "user"


def old_replies(path, replies):
    """A file as the code before `medimg_eval.store` wrote it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")
        file.executemany(
            "INSERT INTO replies VALUES (?, ?)", [(key, json.dumps(said)) for key, said in replies.items()]
        )
    return path


def test_a_reply_is_given_back_as_it_was_kept(tmp_path):
    cache = reply_store(tmp_path)
    reply = {"text": 'é "A"\n\ud800 中', "finish": None, "prompt_tokens": 3}
    assert cache.get(["a"]) == {}
    cache.put({"a": Stored(reply)})
    assert cache.get(["a"])["a"].value == reply
    cache.close()
    assert reply_store(tmp_path).get(["a"]) == {"a": Stored(reply)}
    assert cache.count() == 1


def test_a_later_reply_replaces_an_earlier_one(tmp_path):
    cache = reply_store(tmp_path)
    cache.put({"a": Stored({"text": "1"})})
    cache.put({"a": Stored({"text": "2"})})
    assert cache.get(["a"])["a"].value == {"text": "2"}
    assert cache.count() == 1


def test_nothing_is_written_before_the_first_use(tmp_path):
    reply_store(tmp_path / "replies")
    assert not (tmp_path / "replies").exists()


def test_without_a_folder_replies_lie_in_the_users_cache_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "user"))
    cache = reply_store()
    cache.put({"a": Stored({"text": "1"})})
    assert cache.path == tmp_path / "user" / "replies" / "replies.sqlite"
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700


def test_what_put_returned_from_outlives_processes_that_write_at_once_and_are_killed(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", PUT, str(tmp_path), name], env=environment())
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(60) for writer in writers] == [-9] * 3
    cache = reply_store(tmp_path)
    assert cache.count() == 61
    keys = [f"b-{place}" for place in range(20)]
    assert cache.get(keys) == {key: Stored({"text": str(place)}) for place, key in enumerate(keys)}
    assert cache.get(["shared"])["shared"].value["text"] in ("a", "b", "c")


def test_threads_share_one_cache(tmp_path):
    cache = reply_store(tmp_path)

    def work(name):
        for place in range(10):
            cache.put({f"{name}-{place}": Stored({"text": name})})
            assert cache.get([f"{name}-{place}"])[f"{name}-{place}"].value == {"text": name}

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.count() == 40


@pytest.mark.parametrize("spoil", ["a folder", "not a database" * 100])
def test_a_file_that_is_no_cache_is_named_with_what_to_do(tmp_path, spoil):
    path = tmp_path / "replies.sqlite"
    if spoil == "a folder":
        path.mkdir()
    else:
        path.write_text(spoil)
    with pytest.raises(UserError, match=r"replies\.sqlite: .* model\.cache=DIR, or keep none with model\.cache=false"):
        reply_store(tmp_path).get(["a"])


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/replies\.sqlite: .* model\.cache=DIR"):
        reply_store(tmp_path / "file").put({"a": Stored({})})


def test_an_array_is_given_back_with_what_is_known_of_its_picture(user_cache):
    store = observation_store("features", "pixels-x")
    row = np.array([0.5, np.nan, -1e30], np.float32)
    store.put({"a": Stored(row, {"shape": "2 x 3 uint8", "constant": False})})
    kept = observation_store("features", "pixels-x").get(["a", "b"])
    np.testing.assert_array_equal(kept["a"].value, row)
    assert kept["a"].meta == {"shape": "2 x 3 uint8", "constant": False}
    assert store.path == user_cache / "features" / "pixels-x.sqlite"


def test_more_keys_than_a_statement_takes_are_looked_up(tmp_path):
    store = reply_store(tmp_path)
    store.put({str(number): Stored(number) for number in range(2000)})
    assert len(store.get([str(number) for number in range(2500)])) == 2000


def test_half_of_what_is_put_together_is_never_kept(tmp_path):
    store = reply_store(tmp_path)
    with pytest.raises(UnicodeEncodeError):
        store.put({"a": Stored(1), "\ud800": Stored(2)})  # a key that no file can hold
    assert store.count() == 0


@pytest.mark.parametrize(("kind", "folder", "field"), OLD)
def test_what_earlier_versions_kept_in_one_file_is_served_and_replaced(user_cache, kind, folder, field):
    old = old_replies(user_cache / folder / "replies.sqlite", {"judge-1/k": {field: "yes"}, "judge-1/l": {field: "no"}})
    store = observation_store(kind, "judge-1")
    store.put({"judge-1/l": Stored("maybe")})
    kept = store.get(["judge-1/k", "judge-1/l", "judge-1/m"])
    assert kept == {"judge-1/k": Stored("yes"), "judge-1/l": Stored("maybe")}
    assert store.path == user_cache / folder / "judge-1.sqlite"
    store.close()
    with sqlite3.connect(old) as file:
        assert file.execute("SELECT count(*) FROM replies").fetchone() == (2,)


def test_replies_that_an_earlier_version_paid_for_are_served_by_the_same_file(tmp_path):
    reply = {"text": "A", "finish": "stop", "prompt_tokens": 3}
    old_replies(tmp_path / "replies.sqlite", {"k": reply, "l": reply})
    store = reply_store(tmp_path)
    store.put({"l": Stored({"text": "B"})})
    assert store.get(["k", "l"]) == {"k": Stored(reply), "l": Stored({"text": "B"})}
    assert store.count() == 2


def test_features_that_an_earlier_version_computed_are_served_by_the_same_file(user_cache):
    path = user_cache / "features" / "rad_dino-0123.sqlite"
    path.parent.mkdir(parents=True)
    row = np.array([1, 2.5, np.nan], np.float32)
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE IF NOT EXISTS features "
            "(key TEXT PRIMARY KEY, vector BLOB NOT NULL, shape TEXT NOT NULL, constant INTEGER NOT NULL)"
        )
        file.execute("INSERT INTO features VALUES (?, ?, ?, ?)", ("k", row.tobytes(), "20 x 24 uint8", 1))
    kept = observation_store("features", "rad_dino-0123").get(["k"])["k"]
    np.testing.assert_array_equal(kept.value, row)
    assert kept.value.dtype == np.float32
    assert kept.meta["shape"] == "20 x 24 uint8"
    assert kept.meta["constant"]

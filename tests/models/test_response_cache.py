"""Replies kept on disk."""

import stat
import subprocess
import sys
import threading

import pytest

from medimg_eval.errors import UserError
from medimg_eval.models.response_cache import ReplyCache
from tests.conftest import environment

PUT = """
import os, signal, sys
from medimg_eval.models.response_cache import ReplyCache
cache = ReplyCache(__import__("pathlib").Path(sys.argv[1]))
for place in range(20):
    cache.put(f"{sys.argv[2]}-{place}", {"text": str(place)})
    cache.put("shared", {"text": sys.argv[2]})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reply_is_given_back_as_it_was_kept(tmp_path):
    cache = ReplyCache(tmp_path)
    reply = {"text": 'é "A"\n\ud800 中', "finish": None, "prompt_tokens": 3}
    assert cache.get("a") is None
    cache.put("a", reply)
    assert cache.get("a") == reply
    cache.close()
    assert ReplyCache(tmp_path).get("a") == reply
    assert cache.count() == 1


def test_a_later_reply_replaces_an_earlier_one(tmp_path):
    cache = ReplyCache(tmp_path)
    cache.put("a", {"text": "1"})
    cache.put("a", {"text": "2"})
    assert cache.get("a") == {"text": "2"}
    assert cache.count() == 1


def test_nothing_is_written_before_the_first_use(tmp_path):
    ReplyCache(tmp_path / "replies")
    assert not (tmp_path / "replies").exists()


def test_without_a_folder_replies_lie_in_the_users_cache_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "user"))
    cache = ReplyCache()
    cache.put("a", {"text": "1"})
    assert cache.path == tmp_path / "user" / "replies" / "replies.sqlite"
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700


def test_what_put_returned_from_outlives_processes_that_write_at_once_and_are_killed(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", PUT, str(tmp_path), name], env=environment())
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(60) for writer in writers] == [-9] * 3
    cache = ReplyCache(tmp_path)
    assert cache.count() == 61
    assert [cache.get(f"b-{place}") for place in range(20)] == [{"text": str(place)} for place in range(20)]
    assert cache.get("shared")["text"] in ("a", "b", "c")


def test_threads_share_one_cache(tmp_path):
    cache = ReplyCache(tmp_path)

    def work(name):
        for place in range(10):
            cache.put(f"{name}-{place}", {"text": name})
            assert cache.get(f"{name}-{place}") == {"text": name}

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
        ReplyCache(tmp_path).get("a")


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/replies\.sqlite: .* model\.cache=DIR"):
        ReplyCache(tmp_path / "file").put("a", {})

"""Several servers that hold one model: spread by load, each question answered once, one that is gone left alone."""

import socket

import pytest
from chat_server import chat_server

from medimg_eval.case import Prompt
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.question import Decoding, Message

ITEMS = range(60)
GREEDY = Decoding(max_new_tokens=20)


def prompt(item):
    return Prompt(f"case{item}", (), messages=(Message("user", (f"item {item}",)),))


def asking(url, folder=False, **settings):
    settings = {"timeout_s": 30, "backoff_s": 0.01, "api_key_env": None} | settings
    return OpenAICompatible("tiny", url, cache=folder and str(folder), **settings)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def test_requests_are_spread_over_servers_by_load_and_each_is_answered_once(tmp_path):
    with chat_server(seconds=0.02) as one, chat_server(seconds=0.02) as other, chat_server(seconds=0.02) as third:
        model = asking(one.url, tmp_path, further_urls=[other.url, third.url], concurrency=6)
        assert model.generate([prompt(n) for n in ITEMS], GREEDY) == [f"reply to {n}" for n in ITEMS]
        answered = [server.counts()["answered"] for server in (one, other, third)]
        assert sum(map(len, answered)) == len(ITEMS) == len(set().union(*answered))
        assert min(map(len, answered)) >= 10
        alone = asking(one.url, tmp_path)  # what any of them has said is kept
        alone.generate([prompt(n) for n in ITEMS], GREEDY)
        assert alone.usage()["cache_hits"] == len(ITEMS)


def test_a_server_that_is_gone_is_left_alone_and_the_others_answer(tmp_path, caplog):
    gone = f"http://127.0.0.1:{free_port()}/v1"
    with chat_server([["500"], []] * 30) as there:
        model = asking(gone, tmp_path, further_urls=[there.url], retries=3, backoff_s=0.05)
        model.check_ready()
        assert "is out of reach" in caplog.text
        assert model.generate([prompt(n) for n in ITEMS], GREEDY) == [f"reply to {n}" for n in ITEMS]
        assert there.counts()["answered"] == dict.fromkeys(ITEMS, 1)
    with pytest.raises(UserError, match="is out of reach"):
        asking(gone, further_urls=[f"http://127.0.0.1:{free_port()}/v1"]).check_ready()


def test_one_server_elsewhere_makes_the_pool_remote():
    assert asking("http://localhost:1/v1", further_urls=["http://127.0.0.1:2/v1"]).remote is False
    assert asking("http://localhost:1/v1", further_urls=["http://elsewhere.org/v1"]).remote is True
    with pytest.raises(UsageError, match=r"expected model\.further_urls to be a list"):
        asking("http://localhost:1/v1", further_urls="http://localhost:2/v1")

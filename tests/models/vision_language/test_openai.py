"""Asking a server that goes wrong in every way servers do."""

import asyncio
import base64
import collections
import contextlib
import gc
import io
import itertools
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from chat_server import chat_server
from PIL import Image as Pictures

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures.reading import as_pictures
from medimg_eval.models.vision_language.openai.client import LONGEST_WAIT_S, Pace, backoff, data_url, retry_after
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.question import Decoding, Message
from medimg_eval.store import reply_store
from tests.conftest import HELPERS, environment

ITEMS = range(60)
FAULTS = [
    *([], ["500"], ["truncated"], ["short"], ["reset", "silent"], ["empty", "html"], ["409", "503"], []),
    *(["429:0", "429:0", "500"], ["reset", "500", "truncated"], ["silent"], []),
] * 5
FAULTS[11] = FAULTS[19] = ["slow"]
GREEDY = Decoding(max_new_tokens=20)
KEY = "sk-very-secret-0123456789"


def prompt(item, *parts, images=(), before=()):
    return Prompt(f"case{item}", images, messages=(*before, Message("user", (*parts, f"item {item}"))))


def picture(height=5, width=7, channels=3, seed=0):
    array = np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8)
    return Image(array, np.eye(4), units="pixel")


def asking(url, folder=False, **settings):
    settings = {"timeout_s": 30, "backoff_s": 0.01, "api_key_env": None} | settings
    return OpenAICompatible("tiny", url, cache=folder and str(folder), **settings)


def pixels(url):
    kind, _, text = url.partition(";base64,")
    with Pictures.open(io.BytesIO(base64.b64decode(text))) as opened:
        assert kind == f"data:image/{opened.format.lower()}"
        return np.asarray(opened).transpose(2, 0, 1)


# -- the server that goes wrong


def test_no_item_is_lost_and_each_is_answered_once_by_a_server_that_goes_wrong_in_every_way(tmp_path):
    with chat_server(FAULTS, seconds=0.005) as server:
        model = asking(server.url, tmp_path, timeout_s=2)
        replies = [model.generate([prompt(n) for n in ITEMS[start : start + 32]], GREEDY) for start in (0, 32)]
        counts = server.counts()
    assert [*replies[0], *replies[1]] == [f"reply to {n}" for n in ITEMS]
    assert counts["answered"] == dict.fromkeys(ITEMS, 1)
    assert counts["asked"] == {n: 1 + len(FAULTS[n]) for n in ITEMS}
    assert counts["most_under_way"] <= 8 + 1  # a slow reply goes on for a moment after it was given up
    usage = model.usage()
    assert usage["requests"] == 60 + usage["retries"]
    # A request that meets a connection which is just being closed is one more for us, and none for the server.
    faults = sum(len(plan) for plan in FAULTS)
    assert faults <= usage["retries"] <= faults + 20
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6000, 600)
    assert (usage["cache_hits"], usage["uncounted"], usage["cut_off"]) == (0, 0, 0)
    assert usage["seconds"] > 0


CLIENT = """
import sys
from pathlib import Path
from medimg_eval.case import Prompt
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.imaging.pictures.reading import as_pictures
from medimg_eval.question import Decoding, Message

model = OpenAICompatible("tiny", sys.argv[1], cache=sys.argv[2], timeout_s=2, backoff_s=0.01, api_key_env=None)
for start in (0, 32):
    items = range(60)[start : start + 32]
    prompts = [Prompt(str(n), (), messages=(Message("user", (f"item {n}",)),)) for n in items]
    assert model.generate(prompts, Decoding()) == [f"reply to {prompt.case_id}" for prompt in prompts]
print(model.usage()["cache_hits"])
"""


def test_after_a_kill_what_was_answered_is_not_asked_again(tmp_path):
    command = [sys.executable, "-c", CLIENT]
    with chat_server(FAULTS, seconds=0.02) as server:
        killed = subprocess.Popen([*command, server.url, str(tmp_path)], env=environment())
        while len(server.counts()["answered"]) < 25:
            assert killed.poll() is None
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait(10) == -signal.SIGKILL
        while server.counts()["under_way"]:
            time.sleep(0.01)
        before = server.counts()["answered"]
        kept = reply_store(tmp_path).count()
        command += [server.url, str(tmp_path)]
        again = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        after = server.counts()["answered"]
    assert again.returncode == 0, again.stderr
    assert 25 - 8 <= kept < 60
    assert int(again.stdout) == kept
    assert after.keys() == set(range(60))
    # Asked again are those alone whose replies were on their way when the client was killed.
    assert sum(after.values()) - 60 == sum(before.values()) - kept <= 8


def test_a_second_run_asks_nothing(tmp_path):
    with chat_server() as server:
        for hits in (0, 3):
            model = asking(server.url, tmp_path, price_per_million={"input": 2.5, "output": 10})
            assert model.generate([prompt(n) for n in range(3)], GREEDY) == ["reply to 0", "reply to 1", "reply to 2"]
            usage = model.usage()
            assert (usage["requests"], usage["cache_hits"]) == (3 - hits, hits)
            assert usage["cost"] == pytest.approx((3 - hits) * (100 * 2.5 + 10 * 10) / 1e6)
        assert sum(server.counts()["asked"].values()) == 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_prompt_that_fails_takes_no_other_with_it(tmp_path, kept):
    with chat_server([[], ["500", "always"], [], ["400", "always"]]) as server:
        model = asking(server.url, kept and tmp_path, retries=2)
        prompts = [prompt(n) for n in range(4)]
        with pytest.raises(CaseError, match=r"^2 of 4 prompts got no reply, the first of them: case 'case1': no reply"):
            model.generate(prompts, GREEDY)
        # As the harness does: one by one.
        assert model.generate(prompts[:1], GREEDY) == ["reply to 0"]
        with pytest.raises(CaseError, match=r"case 'case1': .* it answered 500: internal error; 3 tries failed"):
            model.generate(prompts[1:2], GREEDY)
        assert model.generate(prompts[2:3], GREEDY) == ["reply to 2"]
        with pytest.raises(CaseError, match=r"refuses the request \(400: image is too large\); model\.extra"):
            model.generate(prompts[3:], GREEDY)
        assert server.counts()["asked"] == {0: 1, 1: 3, 2: 1, 3: 1}
        # Once only: whoever asks again means it.
        with pytest.raises(CaseError):
            model.generate(prompts[3:], GREEDY)
        assert model.generate(prompts[:1], GREEDY) == ["reply to 0"]
        assert server.counts()["asked"] == {0: 1 if kept else 2, 1: 3, 2: 1, 3: 2}


def test_equal_prompts_are_sent_once_unless_nothing_is_kept(tmp_path):
    with chat_server(seconds=0.01) as server:
        assert asking(server.url, tmp_path).generate([prompt(1)] * 5, GREEDY) == ["reply to 1"] * 5
        assert server.counts()["asked"] == {1: 1}
        assert asking(server.url).generate([prompt(1)] * 5, GREEDY) == ["reply to 1"] * 5
        assert server.counts()["asked"] == {1: 6}


def test_replies_are_kept_by_everything_that_is_asked(tmp_path):
    drawn = Decoding(20, temperature=0.7)
    asked = [
        (prompt(1), GREEDY, {}),
        (prompt(1), Decoding(21), {}),
        (prompt(1), drawn, {}),
        (prompt(1), Decoding(20, temperature=0.7, seed=1), {}),
        (prompt(1, 0, images=(picture(),)), GREEDY, {}),
        (prompt(1, 0, images=(picture(seed=1),)), GREEDY, {}),
        (prompt(1, 0, images=(picture(),)), GREEDY, {"image_format": "jpeg"}),
        (prompt(1), GREEDY, {"extra": {"reasoning_effort": "low"}}),
        (prompt(1, before=[Message("system", ("Be brief.",))]), GREEDY, {}),
    ]
    with chat_server() as server:
        for _ in range(2):
            for one, decoding, settings in asked:
                asking(server.url, tmp_path, **settings).generate([one], decoding)
            assert server.counts()["asked"] == {1: len(asked)}


@pytest.mark.parametrize(("fault", "least"), [("429:1", 0.95), ("503:date", 0.0), ("429:0.3", 0.28)])
def test_a_server_that_asks_for_time_is_given_it_by_all_requests(fault, least):
    with chat_server([[fault], [], []]) as server:
        model = asking(server.url, concurrency=1)
        assert model.generate([prompt(n) for n in range(3)], GREEDY) == [f"reply to {n}" for n in range(3)]
        times = server.counts()["times"]
    assert least <= times[1] - times[0] < 2


def test_waits_that_are_asked_for_are_no_failures_but_end_at_the_deadline():
    with chat_server([["429:0.01"] * 5, ["429:60", "always"], ["429:0.01", "always"], []]) as server:
        model = asking(server.url, retries=1, deadline_s=0.5)
        assert model.generate([prompt(0)], GREEDY) == ["reply to 0"]
        began = time.monotonic()
        with pytest.raises(CaseError, match=r"; its 0\.5 s are over$"):
            model.generate([prompt(2)], GREEDY)
        with pytest.raises(CaseError, match=r"429: slow down; its 0\.5 s are over"):
            model.generate([prompt(1)], GREEDY)
        assert model.generate([prompt(3)], GREEDY) == ["reply to 3"]  # no other prompt is kept waiting for a minute
        assert time.monotonic() - began < 1.5


def test_a_slow_reply_is_given_up_as_a_whole_though_every_byte_of_it_is_in_time():
    with chat_server([["slow", "always"]]) as server:
        model = asking(server.url, timeout_s=0.2, retries=1)
        began = time.monotonic()
        with pytest.raises(CaseError, match=r"no whole reply within 0\.2 s; 2 tries failed"):
            model.generate([prompt(0)], GREEDY)
        assert 0.4 <= time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("401", r"does not accept the key in THE_KEY \(401: Incorrect API key provided: \*\*\*\)"),
        ("404", r"look at model\.model=tiny and model\.base_url \(404: the model does not exist\)"),
        ("quota", r"refuses the request \(429: You exceeded your current quota\)"),
    ],
)
def test_what_cannot_be_mended_ends_at_once_and_no_message_holds_the_key(fault, message, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("THE_KEY", f" {KEY}\n")
    with chat_server([[fault, "always"]]) as server:
        model = asking(server.url, api_key_env="THE_KEY", concurrency=2)
        with pytest.raises(UserError, match=message) as caught:
            model.generate([prompt(n) for n in range(20)], GREEDY)
        counts = server.counts()
    assert counts["key"] == f"Bearer {KEY}"
    assert max(counts["asked"].values()) == 1
    if fault != "quota":  # which says nothing of other models behind the same server
        assert len(counts["asked"]) <= 2
    assert KEY not in str(caught.value) + caplog.text + repr(model) + str(model.usage())


def test_retries_are_logged_with_the_case_and_without_what_was_asked(caplog):
    caplog.set_level(logging.INFO)
    with chat_server([["500"]]) as server:
        asking(server.url.replace("http://", "http://user:pass@")).generate([prompt(0, "Mr Smith, ")], GREEDY)
    assert "case case0: it answered 500: internal error; asking again in" in caplog.text
    assert "Smith" not in caplog.text
    assert "pass" not in caplog.text


def test_a_refusal_and_a_reply_in_parts_are_texts_and_one_that_was_cut_off_is_counted(monkeypatch):
    messages = [
        ({"content": None, "refusal": "I cannot help."}, "stop", "I cannot help."),
        ({"content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}, "stop", "AB"),
        ({"content": "The answ", "reasoning_content": "B?"}, "length", "The answ"),
    ]
    import httpx2

    for message, finish, text in messages:
        body = {"choices": [{"message": message, "finish_reason": finish}]}

        async def post(*_, body=body, **__):
            return httpx2.Response(200, json=body)

        monkeypatch.setattr(httpx2.AsyncClient, "post", post)
        model = asking("http://localhost/v1")
        assert model.generate([prompt(0)], GREEDY) == [text]
        usage = model.usage()
        assert (usage["cut_off"], usage["uncounted"], usage["prompt_tokens"]) == (finish == "length", 1, 0)


def test_it_also_works_where_a_loop_runs_already():
    async def notebook(url):
        return asking(url).generate([prompt(n) for n in range(3)], GREEDY)

    with chat_server() as server:
        assert asyncio.run(notebook(server.url)) == ["reply to 0", "reply to 1", "reply to 2"]


def test_connections_are_closed_with_the_model():
    with chat_server() as server:
        model = asking(server.url)
        model.generate([prompt(1)], GREEDY)
        connections = model._client._http
        del model
        gc.collect()
        until = time.monotonic() + 10
        while not connections.is_closed:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_an_interrupt_is_not_kept_waiting(tmp_path):
    # Processes that a shell has put into the background ignore interrupts, and so do their children.
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = heed + CLIENT.replace("timeout_s=2", "timeout_s=60")
    with chat_server([["slow", "always"]], seconds=60) as server:
        client = subprocess.Popen([sys.executable, "-c", code, server.url, str(tmp_path)], env=environment(), stderr=-1)
        while not server.counts()["asked"]:
            assert client.poll() is None
            time.sleep(0.01)
        began = time.monotonic()
        client.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in client.communicate(timeout=60)[1]
        assert time.monotonic() - began < 30  # the server would keep it waiting for longer than that


# -- before the first question


def test_a_server_that_is_there_is_ready_and_one_that_is_not_is_named_within_seconds():
    with chat_server() as server:
        asking(server.url).check_ready()
        with pytest.raises(UserError, match=r"name a model: model\.model=NAME; http://127.* offers tiny, other$"):
            OpenAICompatible(None, server.url).check_ready()
    with pytest.raises(UserError, match=r"127\.0\.0\.1:\d+/v1 is out of reach \(ConnectError.*start the server"):
        asking(server.url).check_ready()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError, match="is out of reach"):
            patch.setattr("medimg_eval.models.vision_language.openai.model.READY_S", 0.3)
            asking(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1").check_ready()
        assert time.monotonic() - began < 2


def test_a_missing_a_wrong_and_a_damaged_key_are_told_before_anything_is_asked(monkeypatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(UserError, match=r"https://api\.openai\.com/v1 needs a key; .* variable THE_KEY"):
        OpenAICompatible("gpt", api_key_env="THE_KEY").check_ready()
    monkeypatch.setenv("THE_KEY", "sk-two\nlines")
    with pytest.raises(UserError, match="the key in THE_KEY holds a space") as caught:
        OpenAICompatible("gpt", api_key_env="THE_KEY").check_ready()
    assert "sk-two" not in str(caught.value)
    monkeypatch.setenv("THE_KEY", "bad")
    with chat_server() as server, pytest.raises(UserError, match=r"does not accept the key in THE_KEY \(401 Unauth"):
        asking(server.url, api_key_env="THE_KEY").check_ready()


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        *(("http://localhost:8000/v1", False), ("http://127.0.0.1/v1", False), ("http://[::1]:80/v1", False)),
        *(("http://10.1.2.3/v1", True), ("http://192.168.0.7/v1", True), ("http://gpu07:8000/v1", True)),
        *(("http://vllm.localhost/v1", False), ("http://[fe80::1]/v1", True), ("http://LOCALHOST./v1", False)),
        *(("https://api.openai.com/v1", True), ("https://8.8.8.8/v1", True), ("http://134744072/v1", True)),
        *(
            ("http://localhost.example.org/v1", True),
            ("http://0x08080808/v1", True),
            ("http://[2001:4860::1]/v1", True),
        ),
    ],
)
def test_a_server_is_remote_unless_its_address_is_this_machines(address, remote):
    assert OpenAICompatible("x", address).remote is remote


@pytest.mark.parametrize("host", ["10.1.2.3", "gpu07:8000", "[fe80::1]"])
def test_a_server_of_the_same_network_needs_no_key(host, monkeypatch):
    import httpx2

    def refuse(*_, **__):
        raise httpx2.ConnectError("refused")

    monkeypatch.setattr(httpx2.Client, "get", refuse)
    with pytest.raises(UserError, match="is out of reach"):
        OpenAICompatible("x", f"http://{host}/v1", api_key_env=None).check_ready()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"base_url": "localhost:8000"},
            r"expected model\.base_url like http://localhost:8000/v1, got 'localhost:8000'",
        ),
        ({"base_url": "http://x/v1/chat/completions"}, r"expected model\.base_url"),
        ({"image_format": "jpg"}, "got 'jpg'; did you mean 'jpeg'"),
        ({"concurrency": 0}, "at least 1, got 0"),
        ({"price_per_million": {"in": 1}}, "hold input, output, got in"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        OpenAICompatible("x", **settings)


def test_it_likes_four_prompts_for_each_request_under_way():
    assert OpenAICompatible("x", concurrency=5).preferred_batch == 20
    assert OpenAICompatible("x", batch=7).preferred_batch == 7


# -- what is sent


def body_of(server_settings, one, decoding=GREEDY):
    with chat_server() as server:
        asking(server.url, **server_settings).generate([one], decoding)
        return next(iter(server.counts()["bodies"].values()))


def test_turns_keep_their_roles_and_images_their_places_and_pixels():
    images = (picture(), picture(4, 4, channels=1, seed=1), picture(3, 9, seed=2))
    before = (
        Message("system", ("You are ", "a radiologist.")),
        Message("user", ("First: ", 1, " what is it?")),
        Message("assistant", ("A",)),
    )
    body = body_of({}, prompt(7, 0, "and", 2, images=images, before=before))
    system, first, answer, last = body["messages"]
    assert system == {"role": "system", "content": "You are a radiologist."}
    assert answer == {"role": "assistant", "content": "A"}
    assert [part["type"] for part in first["content"]] == ["text", "image_url", "text"]
    assert [part["type"] for part in last["content"]] == ["image_url", "text", "image_url", "text"]
    assert last["content"][-1] == {"type": "text", "text": "item 7"}
    shown = [part["image_url"]["url"] for turn in (last, first) for part in turn["content"] if part["type"] != "text"]
    assert np.array_equal(pixels(shown[0]), images[0].array)
    assert np.array_equal(pixels(shown[1]), images[2].array)
    assert np.array_equal(pixels(shown[2]), np.repeat(images[1].array, 3, axis=0))


def test_images_are_shrunk_to_the_longest_side_and_sent_as_jpeg_where_asked():
    smooth = np.broadcast_to(np.linspace(0, 255, 80).astype(np.uint8), (3, 40, 80))
    image = Image(smooth, np.eye(4), units="pixel")
    body = body_of({"image_format": "jpeg", "max_side": 20}, prompt(1, 0, images=(image,)))
    sent = pixels(body["messages"][0]["content"][0]["image_url"]["url"])
    assert sent.shape == (3, 10, 20)
    assert np.abs(sent[0, 5].astype(int) - np.linspace(5, 250, 20)).max() < 8
    one = Pictures.fromarray(np.zeros((4, 6, 3), np.uint8))
    assert pixels(data_url(one, max_side=6)).shape == (3, 4, 6)
    assert one.size == (6, 4)
    assert pixels(data_url(one, max_side=3)).shape == (3, 2, 3)
    assert one.size == (6, 4)


def test_greedy_requests_say_no_more_than_they_must_and_drawn_ones_their_seed():
    assert {name: value for name, value in body_of({}, prompt(1)).items() if name != "messages"} == {
        "model": "tiny",
        "max_tokens": 20,
        "temperature": 0.0,
    }
    drawn = Decoding(30, temperature=0.5, top_p=0.9, seed=4, stop=("\n",))
    extra = {"temperature": 0.6, "reasoning_effort": "low", "max_tokens": None, "max_completion_tokens": 99}
    body = body_of({"extra": extra}, prompt(1), drawn)
    del body["messages"]
    assert body == {
        "model": "tiny",
        "temperature": 0.6,
        "top_p": 0.9,
        "seed": 4,
        "stop": ["\n"],
        "reasoning_effort": "low",
        "max_completion_tokens": 99,
    }


@pytest.mark.parametrize(
    ("temperature", "extra", "sent"),
    [
        (0.5, {}, [0, 1, 2]),
        (0.0, {"temperature": 1.0}, [None, 1, 2]),  # without a seed as ever: what was paid for stays found
        (0.0, {"temperature": None}, [None, 1, 2]),
        (0.5, {"seed": None}, [None, None, None]),
        (0.0, {}, [None]),
        (0.5, {"temperature": 0.0, "seed": 7}, [7]),
    ],
)
def test_the_seed_reaches_every_reply_that_is_drawn_and_no_greedy_one(temperature, extra, sent):
    writer = OpenAICompatible("m", "http://localhost:1/v1", extra=extra)._writer
    requests = [writer.request(prompt(1), Decoding(20, temperature=temperature, seed=seed)) for seed in range(3)]
    assert [json.loads(request.body()).get("seed") for request in requests] == (sent * 3)[:3]
    assert len({request.key for request in requests}) == len(sent)


def test_hosted_models_of_openai_get_the_field_they_read():
    request = OpenAICompatible("gpt")._writer.request(prompt(1), GREEDY)
    assert json.loads(request.body()).keys() == {"model", "messages", "max_completion_tokens", "temperature"}


def test_an_image_that_is_no_picture_fails_its_prompt_alone():
    volume = Image(np.zeros((1, 4, 4, 4), np.uint8), np.eye(4))
    with chat_server() as server:
        model = asking(server.url)
        with pytest.raises(CaseError, match=r"1 of 2 prompts got no reply, .*is no picture"):
            model.generate([prompt(0), prompt(1, 0, images=(volume,))], GREEDY)
        assert model.generate([prompt(0)], GREEDY) == ["reply to 0"]
        assert server.counts()["asked"] == {0: 1}


# -- when to ask


class Clock:
    """A time that passes only while somebody waits for it."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds


def started(number, sizes=(10,), **limits):
    """When so many requests are sent, one after the other, and what each takes."""
    clock = Clock()
    pace = Pace(**limits, clock=clock, sleep=clock.sleep)

    async def run():
        for n in range(number):
            await pace.turn(sizes[n % len(sizes)])
            yield clock.now, sizes[n % len(sizes)]

    async def collect():
        return [one async for one in run()]

    return asyncio.run(collect())


@pytest.mark.parametrize("limit", [1, 7, 60, 500])
def test_no_minute_holds_more_requests_than_allowed(limit):
    times = [when for when, _ in started(3 * limit + 2, requests=limit)]
    for first in times:
        assert sum(first <= when < first + 60 - 1e-6 for when in times) <= limit
    assert times[-1] - times[0] == pytest.approx((len(times) - 1) * 60 / limit)


def test_no_minute_holds_more_tokens_than_allowed_by_more_than_one_request():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 400, 50).tolist()
    sent = started(300, sizes, requests=600, tokens=10_000)
    for first, _ in sent:
        within = [size for when, size in sent if first <= when < first + 60]
        assert sum(within) - within[-1] <= 10_000
    assert all(later - earlier >= 0.1 - 1e-9 for (earlier, _), (later, _) in itertools.pairwise(sent))


def test_without_limits_nothing_waits_and_a_hold_or_a_higher_count_delays():
    assert {when for when, _ in started(100)} == {1000.0}
    clock = Clock()
    pace = Pace(tokens=600, clock=clock, sleep=clock.sleep)

    async def run():
        await pace.turn(10)
        pace.correct(20)
        await pace.turn(10)
        assert clock.now == pytest.approx(1003)
        pace.correct(-5)
        pace.hold(30)
        pace.hold(10)
        await pace.turn(10)
        assert clock.now == pytest.approx(1033)

    asyncio.run(run())


def test_waits_double_from_half_the_first_to_a_minute_and_are_drawn():
    assert [backoff(n, 1, lambda: 1.0) for n in (1, 2, 3, 7, 50)] == [1, 2, 4, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert [backoff(n, 1, lambda: 0.0) for n in (1, 2, 3)] == [0.5, 1, 2]
    rng = np.random.default_rng(1)
    draws = [backoff(3, 0.5, rng.random) for _ in range(1000)]
    assert min(draws) >= 1
    assert max(draws) <= 2
    assert np.mean(draws) == pytest.approx(1.5, abs=0.05)
    assert len(collections.Counter(draws)) == 1000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        *(({}, None), ({"retry-after": "3"}, 3), ({"retry-after": " 0.5 "}, 0.5), ({"retry-after": "-3"}, 0)),
        ({"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"}, 90),
        ({"retry-after": "Sat, 21 Nov 2026 12:01:30 -0000"}, 90),
        ({"retry-after": "Sat, 21 Nov 2026 13:01:30 +0100"}, 90),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0),
        *(({"retry-after": "soon"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "inf"}, None)),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "3", "retry-after-ms": "x"}, 3),
    ],
)
def test_how_long_a_server_asks_to_be_left_alone(headers, seconds):
    assert retry_after(headers, datetime(2026, 11, 21, 12, 0, tzinfo=UTC)) == seconds


# -- whole runs, and a real server

QUIZ = """
_target_: medimg_eval.tasks.QuestionTask
name: quiz
layout: {_target_: asking.Quiz, number: 60}
splits: {test: test}
card: {description: "", source: "", licence: "", access: open, split: test}
"""


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_loses_no_item_and_asks_none_twice(starter, tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "quiz.yaml").write_text(QUIZ)
    settings = environment(HELPERS) | {"MEDIMG_EVAL_CACHE": str(tmp_path / "cache")}
    words = ["test", "task=quiz", "--config-dir", ".", "run=quiz"]
    words += ["model=openai_compatible", "model.model=tiny", "model.backoff_s=0.01", "model.timeout_s=2"]
    with chat_server(FAULTS, seconds=0.02) as server:
        words += [f"model.base_url={server.url}"]
        killed = starter.begin(words, tmp_path, settings)
        while len(server.counts()["answered"]) < 25:
            assert killed.poll() is None, killed.communicate()
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        while server.counts()["under_way"]:
            time.sleep(0.01)
        lost = sum(server.counts()["answered"].values()) - reply_store(tmp_path / "cache" / "replies").count()
        resumed = starter.run(words, tmp_path, settings, 300)
        answered = server.counts()["answered"]
    assert resumed.returncode == 0, resumed.stderr
    assert "n = 60 questions" in resumed.stdout
    assert answered.keys() == set(ITEMS)
    assert sum(answered.values()) == 60 + lost  # of which those were on their way when the run was killed
    assert lost <= 8


def in_our_own_process(folder, prompts, tokens):
    """What the model in a folder writes to each prompt, and how the server of transformers is to be read beside it."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    texts = []
    for one in prompts:
        shown = [{"type": "image", "image": picture} for picture in as_pictures(one)]
        parts = [{"type": "text", "text": p} if isinstance(p, str) else shown[p] for p in one.messages[0].parts]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": parts}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            written = model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
        texts.append(processor.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
    return texts, re.compile("|".join(map(re.escape, processor.tokenizer.all_special_tokens)))


@pytest.mark.slow
def test_transformers_serve_answers_as_its_model_does_in_our_own_process(tmp_path):
    """The server of the transformers library, with a tiny model of random weights, offline."""
    import tiny_vlm
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        pytest.skip("transformers serve needs fastapi and uvicorn: pip install 'transformers[serving]'")
    folder = str(tiny_vlm.save(tmp_path / "tiny", "qwen2_vl"))
    prompts = [prompt(n, 0, "What is shown? ", images=(picture(56, 56, seed=n),)) for n in range(3)] + [prompt(3)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = "from transformers.cli.transformers import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    settings = environment() | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", program, "serve", folder, *options], env=settings, stdout=log, stderr=log
        )
    try:
        expected, special = in_our_own_process(folder, prompts, 8)  # while the server starts
        model = OpenAICompatible(folder, f"http://127.0.0.1:{port}/v1", cache=tmp_path, concurrency=2)
        until = time.monotonic() + 60
        while server.poll() is None and time.monotonic() < until:
            with contextlib.suppress(UserError):
                model.check_ready()
                break
            time.sleep(0.1)
        # The server leaves some special tokens in its text, which random weights do write.
        assert [special.sub("", text) for text in model.generate(prompts, Decoding(max_new_tokens=8))] == expected
        assert len(set(expected)) == 4
        usage = model.usage()
        assert (usage["requests"], usage["retries"], usage["uncounted"], usage["cut_off"]) == (4, 0, 0, 4)
        assert usage["completion_tokens"] == 32
    finally:
        server.kill()
        server.wait()

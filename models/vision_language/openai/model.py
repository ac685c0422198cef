"""Any model behind a server that speaks the chat-completions API: vLLM, SGLang, transformers serve, a hosted one."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_args
from urllib.parse import urlsplit

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.metrics.answers import withheld
from medimg_eval.models.base import VisionLanguageModel, is_here
from medimg_eval.models.vision_language.openai.client import (
    WITHHELD,
    Client,
    ImageFormat,
    Pace,
    Patience,
    Request,
    Server,
    Tally,
    Writer,
    authorization,
    close_soon,
    http_library,
    moved,
    place,
    wait_for,
)
from medimg_eval.models.vision_language.openai.messages import calls_of
from medimg_eval.question import Decoding, Turn, Usage
from medimg_eval.store import Stored, reply_store

log = logging.getLogger(__name__)

READY_S = 5.0
"""Within so many seconds a server must say that it is there."""

PRICED = {"input": "prompt_tokens", "output": "completion_tokens"}


FINISHED = {"content_filter": "filter", "tool_calls": "calls", "function_call": "calls", "max_tokens": "length"}
"""Why replies end, in the words of servers -> in ours; any other is kept as it is."""


class _AwayError(UserError):
    """A server is out of reach."""


class Outcome(NamedTuple):
    """Outcome of a prompt; `key` is its request's."""

    key: str
    reply: Turn | Exception


class OpenAICompatible(VisionLanguageModel):
    """Client of OpenAI-compatible servers: parallel, retried, each request once.

    Replies are kept on disk as they arrive, by the whole request: address, model, messages, images, decoding and seed.
    What was answered before a run was killed is not asked again, and a second run costs nothing. A draw of another seed
    is another request.

    Args:
        model: the name the server knows it by.
        base_url: of the API, up to and with `/v1`.
        further_urls: of other servers that hold the same model, such as one for each node. Each request goes to the
            one with the fewest under way, and to another when that fails; replies are kept as those of `base_url`.
        api_key_env: the environment variable that holds the key; servers on this machine and its network need none.
        concurrency: requests under way at once, at all servers together.
        timeout_s: for one request, until the last byte of its reply.
        retries: of a prompt, after failures that may pass: 408, 409, 429, 5xx, lost connections, replies cut short.
            Waits that the server asks for (`Retry-After`) are kept, and not counted.
        deadline_s: for all tries of one prompt, waits included.
        backoff_s: the wait after a first failure; it doubles, up to a minute, and is drawn from its upper half.
        requests_per_minute: the server's limit; None for no limit.
        tokens_per_minute: the same of tokens, read and written together.
        price_per_million: `input` and `output`, of a million tokens; `usage` then tells the cost.
        cache: the folder that replies are kept in; None for the user's cache, False to keep none.
        image_format: that images are sent in: `png`, without loss, or `jpeg`.
        max_side: shrinks images until neither side is longer, in pixels; None sends them as they are.
        extra: further fields of the request, such as `reasoning_effort`; None takes a field out, one of ours too.
        batch: prompts taken at once; None for four times `concurrency`.

    Raises:
        UsageError: an argument is none of its values.
    """

    uses_torch = False
    calls_tools = True
    file_arguments: ClassVar[tuple[str, ...]] = ()
    pace_arguments: ClassVar[tuple[str, ...]] = (
        *("api_key_env", "concurrency", "timeout_s", "retries", "deadline_s", "backoff_s", "requests_per_minute"),
        *("further_urls", "tokens_per_minute", "price_per_million", "cache", "batch"),
    )

    def __init__(
        self,
        model: str | None,
        base_url: str = "https://api.openai.com/v1",
        *,
        further_urls: Sequence[str] = (),
        api_key_env: str | None = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout_s: float = 120,
        retries: int = 6,
        deadline_s: float = 900,
        backoff_s: float = 1,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        price_per_million: Mapping[str, float] | None = None,
        cache: str | Path | bool | None = None,
        image_format: ImageFormat = "png",
        max_side: int | None = None,
        extra: Mapping[str, Any] | None = None,
        batch: int | None = None,
    ) -> None:
        self.model, self.base_url, self.api_key_env = model, base_url.rstrip("/"), api_key_env
        self.price_per_million = price_per_million
        self.further_urls = tuple(url.rstrip("/") for url in _list_urls(further_urls))
        self._host = _url_host(base_url)
        self._hosts = [self._host, *map(_url_host, self.further_urls)]
        _check_settings(concurrency, image_format, price_per_million)
        self.preferred_batch = batch or 4 * concurrency
        self._patience = Patience(timeout_s, retries, deadline_s, backoff_s)
        self._pace = Pace(requests_per_minute, tokens_per_minute)
        self._tally = Tally()
        folder = None if isinstance(cache, bool) or cache is None else Path(cache).expanduser()
        self._cache = None if cache is False else reply_store(folder)
        self._concurrency, self._slots = concurrency, asyncio.Semaphore(concurrency)
        # Hosted models of OpenAI take no max_tokens any more; other servers do not all take its successor.
        limit = "max_completion_tokens" if self._host == "api.openai.com" else "max_tokens"
        url = f"{self.base_url}/chat/completions"
        self._writer = Writer(url, model, limit, image_format, max_side, dict(extra or {}))
        self._same: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._held: dict[str, Turn | Exception] = {}

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """True unless all servers are local; local proxies go unnoticed."""
        return not all(map(is_here, self._hosts))

    @property
    def _hosted(self) -> bool:
        return any(map(_is_hosted, self._hosts))

    def check_ready(self) -> None:
        """Raises UserError where server, key or permission is missing."""
        if self._hosted and not self._key:
            raise UserError(
                f"{place(self.base_url)} needs a key; put it into the environment variable "
                f"{self.api_key_env or 'that model.api_key_env names'}"
            )
        away: list[UserError] = []
        for url in (self.base_url, *self.further_urls):
            try:
                self._check_server(url)
            except _AwayError as error:  # others may do its work
                away.append(error)
        if len(away) > len(self.further_urls):
            raise away[0]
        for trouble in away:
            log.warning("%s; the others are asked", trouble)

    def _check_server(self, url: str) -> None:
        httpx = http_library()
        try:
            with httpx.Client(timeout=READY_S, trust_env=self._hosted, headers=authorization(self._key)) as http:
                answer = http.get(f"{url}/models")
        except httpx.RequestError as error:
            raise _AwayError(
                f"{place(url)} is out of reach ({type(error).__name__}: {error}); "
                "start the server, or look at model.base_url"
            ) from error
        there = answer.next_request.url if answer.is_redirect else answer.url
        if (there.scheme, there.host) != (answer.url.scheme, answer.url.host):
            raise moved(url, answer)
        if answer.status_code in (401, 403):
            raise UserError(
                f"{place(url)} does not accept the key in {self.api_key_env} "
                f"({answer.status_code} {answer.reason_phrase})"
            )
        if self.model is None:
            raise UserError(f"name a model: model.model=NAME; {place(url)} offers {_offered_models(answer)}")

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Asks all prompts, as many at once as `concurrency` allows.

        Where some get no reply, those of the others are not lost: as long as prompts are then given alone, what became
        of each is handed out once without asking again.

        Raises:
            CaseError: a prompt got no reply; the message says why.
            UserError: the server would refuse any prompt.
        """
        began, alone = time.monotonic(), len(prompts) == 1
        if not alone:
            self._held.clear()
        try:
            outcomes = wait_for(self._all(prompts, decoding))
        finally:
            self._tally.seconds += time.monotonic() - began
        failed = [outcome.reply for outcome in outcomes if isinstance(outcome.reply, Exception)]
        if not failed:
            return [outcome.reply for outcome in outcomes if isinstance(outcome.reply, Turn)]
        if not alone:
            self._held = dict(outcomes)
            if isinstance(failed[0], CaseError):
                raise CaseError(f"{len(failed)} of {len(prompts)} prompts got no reply, the first of them: {failed[0]}")
        raise failed[0]

    def usage(self) -> dict[str, Any]:
        """Requests, retries, cached replies, tokens, seconds, and cost with prices.

        Tokens are the server's count, of what it was asked and not of what came from the cache. Replies without a
        count are `uncounted`, and missing in tokens and cost. Those `cut_off` ended at `max_new_tokens`, and the
        provider's content filter withheld those `content_filtered`, which are refused answers.
        """
        totals = asdict(self._tally)
        if self.price_per_million:
            cost = sum(price * totals[PRICED[side]] for side, price in self.price_per_million.items()) / 1e6
            totals["cost"] = round(cost, 6)
        return totals

    async def _all(self, prompts: Prompts, decoding: Decoding) -> list[Outcome]:
        return await asyncio.gather(*[self._outcome(prompt, decoding, alone=len(prompts) == 1) for prompt in prompts])

    async def _outcome(self, prompt: Prompt, decoding: Decoding, *, alone: bool) -> Outcome:
        key = ""
        async with self._slots:
            try:
                request = await asyncio.to_thread(self._writer.request, prompt, decoding)
                key = request.key
                if alone and key in self._held:
                    return Outcome(key, self._held.pop(key))
                return Outcome(key, await self._reply(request, prompt.case_id))
            except Exception as error:  # noqa: BLE001  (a prompt's failure, which `generate` raises)
                return Outcome(key, error)

    async def _reply(self, request: Request, case_id: str) -> Turn:
        # Of equal requests one is sent, and the others find its reply in the cache.
        async with self._same.setdefault(request.key, asyncio.Lock()):
            stored = await asyncio.to_thread(self._cache.get, [request.key]) if self._cache is not None else {}
            if request.key in stored:
                reply = stored[request.key].value
                self._tally.cache_hits += 1
            else:
                began = time.monotonic()
                reply = await self._client.ask(request, case_id)
                reply["seconds"] = round(time.monotonic() - began, 3)
                if self._cache is not None:
                    await asyncio.to_thread(self._cache.put, {request.key: Stored(reply)})
        self._tally.cut_off += reply["finish"] == "length"
        filtered = reply["finish"] == WITHHELD
        self._tally.content_filtered += filtered
        text = str(reply["text"])
        return Turn(
            withheld(text) if filtered else text,
            thought=reply.get("thought"),
            finish=FINISHED.get(str(reply["finish"]), str(reply["finish"] or "")),
            usage=self._usage(reply),
            calls=calls_of(reply),
        )

    def _usage(self, reply: Mapping[str, Any]) -> Usage:
        """Cost of a reply, also of a cached one as if new."""
        read, written = reply["prompt_tokens"], reply["completion_tokens"]
        cost = None
        if self.price_per_million and read is not None and written is not None:
            cost = (read * self.price_per_million["input"] + written * self.price_per_million["output"]) / 1e6
        cached, thought = reply.get("cached_tokens"), reply.get("thought_tokens")
        return Usage(read, cached, written, thought, reply.get("seconds"), cost)

    @property
    def _key(self) -> str:
        key = os.environ.get(self.api_key_env or "", "").strip()
        if not re.fullmatch(r"[!-~]*", key):
            raise UserError(f"the key in {self.api_key_env} holds a space or a character that no key has; set it again")
        return key

    @cached_property
    def _client(self) -> Client:
        return self._client_at(self._writer.url)

    def _client_at(self, url: str) -> Client:
        further = tuple(f"{url}/chat/completions" for url in self.further_urls)
        server = Server(url, self.model, self._key, self.api_key_env, self._hosted, further)
        client = Client(server, self._patience, self._pace, self._tally, self._concurrency)
        weakref.finalize(self, close_soon, client).atexit = False  # the end of the process closes connections itself
        return client


def _list_urls(said: Any) -> list[str]:
    if isinstance(said, str) or not isinstance(said, Sequence):
        raise UsageError(f"expected model.further_urls to be a list of addresses, got {said!r}")
    return [str(url) for url in said]


def _is_hosted(host: str) -> bool:
    """False for this machine and private networks, by address or name."""
    if re.fullmatch(r"[a-z][a-z0-9_-]*|.*\.localhost", host):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    return not (address.is_private or address.is_loopback or address.is_link_local)


def _url_host(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.endswith("/chat/completions"):
        raise UsageError(f"expected model.base_url like http://localhost:8000/v1, got {base_url!r}")
    return parts.hostname.rstrip(".")


def _offered_models(answer: Any) -> str:
    try:
        return ", ".join(model["id"] for model in answer.json()["data"])
    except (KeyError, TypeError, ValueError):
        return "what its documentation says"


def _check_settings(concurrency: int, image_format: str, prices: Mapping[str, float] | None) -> None:
    if concurrency < 1:
        raise UsageError(f"expected model.concurrency to be at least 1, got {concurrency}")
    UsageError.refuse_invalid("model.image_format", get_args(ImageFormat), image_format)
    if prices and prices.keys() != PRICED.keys():
        raise UsageError(f"expected model.price_per_million to hold {', '.join(PRICED)}, got {', '.join(prices)}")

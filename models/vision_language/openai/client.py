"""Prompts as requests to a server that speaks chat completions, repeated until there is a reply or no hope of one."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import io
import json
import logging
import math
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError, UserError, import_optional
from medimg_eval.imaging.pictures import as_pictures
from medimg_eval.models.vision_language.openai.messages import FIELDS, read_reply, written_tools, written_turns
from medimg_eval.question import Decoding
from medimg_eval.system import whole

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_WAIT_S = 60.0
"""Waits double from one retry to the next until they are so long."""


class Pace:
    """Spaces requests by a server's limits per minute.

    Requests are spread evenly instead of being sent in bursts, so the limit holds for every minute, not for those of
    one clock only.

    Args:
        requests: a minute, or None for no limit.
        tokens: a minute, read and written together, or None for no limit.
        clock: the time in seconds, which never goes back.
        sleep: waits some seconds.
    """

    def __init__(
        self,
        requests: float | None = None,
        tokens: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._request_s = 60 / requests if requests else 0.0
        self._token_s = 60 / tokens if tokens else 0.0
        self._requests_from = self._tokens_from = self._held_until = -math.inf

    async def turn(self, tokens: float) -> None:
        """Waits until a request that takes about so many tokens may be sent."""
        now = self._clock()
        start = max(now, self._requests_from, self._tokens_from)
        self._requests_from = start + self._request_s
        self._tokens_from = start + self._token_s * tokens
        await self._sleep(start - now)
        while (wait_s := self._held_until - self._clock()) > 0:
            await self._sleep(wait_s)

    def correct(self, tokens: float) -> None:
        """Adds to the tokens counted for a request; may be negative."""
        self._tokens_from += self._token_s * tokens

    def hold(self, seconds: float) -> None:
        """Lets nothing be sent for some seconds."""
        self._held_until = max(self._held_until, self._clock() + seconds)


def backoff(failures: int, first_s: float, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after consecutive failures, counted from 1.

    Half of it doubles with each failure, up to `LONGEST_WAIT_S`; the other half is drawn, so that requests which
    failed together do not come back together.
    """
    longest = min(LONGEST_WAIT_S, first_s * 2.0 ** (failures - 1))
    return longest * (1 + draw()) / 2


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds of a server's `Retry-After`, at least 0; None without.

    Read from `retry-after-ms`, which some hosts add, or `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3).
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        then = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())


ImageFormat = Literal["png", "jpeg"]

LETTERS_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1000
"""What a request is thought to take before the server has counted."""

JPEG_QUALITY = 95


class Request(NamedTuple):
    """One question to a server.

    Attributes:
        key: sha256 of all that is asked: address, body, and pixels of the images.
        tokens: about how many it takes, the reply included.
        body: writes it, as JSON; images are encoded only then, which takes longer than all the rest.
    """

    key: str
    tokens: int
    body: Callable[[], bytes]


class Writer(NamedTuple):
    """Writes requests.

    Attributes:
        limit: the field that limits the length of a reply.
        image_format: of the data URLs.
        max_side: longer sides of images are shrunk to so many pixels; None sends them as they are.
        extra: further fields of the body; one that is None is left out, also where it is one of ours.
        media: a folder that the server may read, where images are written as files; None sends them in the request.
    """

    url: str
    model: str | None
    limit: str
    image_format: ImageFormat
    max_side: int | None
    extra: Mapping[str, Any]
    media: Path | None = None

    def request(self, prompt: Prompt, decoding: Decoding) -> Request:
        """Request of a prompt; raises CaseError for non-pictures."""
        pictures = as_pictures(prompt)
        digests = [_picture_digest(picture, self.image_format, self.max_side) for picture in pictures]
        identity = self.url.encode() + b"\n" + self._body(prompt, decoding, digests)
        if decoding.seed and self.extra.get("seed", 0) is None and self.draws(decoding):  # untold, it draws anew
            identity += f"\nseed {decoding.seed}".encode()
        key = hashlib.sha256(identity).hexdigest()
        tokens = len(prompt.text) // LETTERS_PER_TOKEN + len(pictures) * TOKENS_PER_IMAGE + decoding.max_new_tokens

        def body() -> bytes:
            urls = [self._url(picture) for picture in pictures]
            return self._body(prompt, decoding, urls)

        return Request(key, tokens, body)

    def _url(self, picture: Picture) -> str:
        if self.media is None:
            return data_url(picture, self.image_format, self.max_side)
        return file_url(picture, self.media, self.max_side)

    def draws(self, decoding: Decoding) -> bool:
        """Whether the server samples replies, considering `extra`'s temperature."""
        return bool(self.extra.get("temperature", decoding.temperature) != 0)

    def _body(self, prompt: Prompt, decoding: Decoding, urls: Sequence[str]) -> bytes:
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": written_turns(prompt.messages, urls),
        }
        if prompt.tools:
            fields["tools"] = written_tools(prompt.tools)
        fields |= {self.limit: decoding.max_new_tokens, **_sampling_fields(decoding)}
        if decoding.seed and self.draws(decoding):
            fields["seed"] = decoding.seed
        fields |= self.extra
        return json.dumps({name: value for name, value in fields.items() if value is not None}, sort_keys=True).encode()


CONNECT_S = 10.0
LONGEST_WORDS = 300
WORTH_REPEATING = frozenset({408, 409, 429})  # and 5xx
REFUSED_TO_ALL = {
    401: "does not accept the key in {variable}",
    402: "wants to be paid before it answers",
    404: "knows no such model or address; look at model.model={model} and model.base_url",
}
"""What any other prompt would be told as well."""

FILTERED = re.compile(
    r"content.?(?:filter|policy|management|moderation)|responsible.?ai|(?:prompt|image)?_?safety(?:_violations?)?$"
    r"|data.?inspection|policy_violation|prohibited_content|moderation_blocked|blocklist|recitation|guardrail|sensitive$"
    r"|refusal$",
    re.IGNORECASE,
)
"""Codes of errors, and reasons why a reply ended, that mean a content filter, from their beginning."""

FILTERED_WORDS = re.compile(
    r"content management policy|content exists risk|blocked by (?:the |our )?content filter|rejected by (?:the |our )?"
    r"safety system|flagged as potentially violating|data_inspection_failed",
    re.IGNORECASE,
)
"""What the messages of errors say of it that have no code of their own."""

WITHHELD = "content_filter"
"""Why a reply ended that such a filter withheld."""


class Server(NamedTuple):
    """Who is asked.

    Attributes:
        url: of chat completions.
        further: the same of other servers that hold the same model.
        key: sent as a bearer token, and never part of a message; "" sends none.
        variable: the environment variable the key came from.
        proxies: whether the environment's proxies are used.
    """

    url: str
    model: str | None
    key: str
    variable: str | None
    proxies: bool
    further: tuple[str, ...] = ()


class Patience(NamedTuple):
    """How long to try.

    Attributes:
        timeout_s: for one request, until the last byte of its reply.
        retries: after failures. Waits that the server itself asks for do not count.
        deadline_s: for all tries of one prompt, waits included.
        backoff_s: the wait after the first failure; it doubles.
    """

    timeout_s: float
    retries: int
    deadline_s: float
    backoff_s: float


@dataclass
class Tally:
    """Cost of asking so far.

    Attributes:
        uncounted: replies for which the server did not say how many tokens they took.
        cut_off: replies that ended because they were too long.
        content_filtered: replies that the provider's content filter withheld or cut off.
        seconds: of the clock on the wall.
    """

    requests: int = 0
    retries: int = 0
    cache_hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    cut_off: int = 0
    content_filtered: int = 0
    seconds: float = 0.0


class _AgainError(Exception):
    """Failed try that may succeed later; `wait_s` is the server's."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(eq=False)
class _Seat:
    """State of one server: requests, consecutive failures, rest."""

    url: str
    under_way: int = 0
    failures: int = 0
    rests_until: float = -math.inf

    def load(self) -> tuple[bool, float, int]:
        """Sort key of the next server; resting ones come last."""
        rests = self.rests_until > time.monotonic()
        return rests, self.rests_until if rests else 0.0, self.under_way


class Client:
    """Client of one server, or of the least busy, in the thread of `wait_for`.

    Of several, one that fails is left alone for a while, which doubles, and its requests go to another.
    """

    def __init__(self, server: Server, patience: Patience, pace: Pace, tally: Tally, connections: int) -> None:
        self._server, self._patience, self._pace, self._tally = server, patience, pace, tally
        self._refusal: UserError | None = None
        self._seats = [_Seat(url) for url in (server.url, *server.further)]
        httpx = http_library()
        self._http = httpx.AsyncClient(
            headers=authorization(server.key),
            # A request is timed as a whole: a server that sends a byte now and then would pass any other limit.
            timeout=httpx.Timeout(None, connect=min(CONNECT_S, patience.timeout_s)),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=server.proxies,
        )

    async def ask(self, request: Request, case_id: str) -> dict[str, Any]:
        """The reply to a request: `text`, `finish`, `model`, `prompt_tokens`, `completion_tokens`.

        Where the provider's content filter refuses the request, `finish` is "content_filter" and `text` what it says.

        Raises:
            CaseError: there is none: the server refuses this request, or it failed too often or for too long.
            UserError: the server refuses this request, and would any other.
        """
        body = await asyncio.to_thread(request.body)
        failures, deadline = 0, 0.0
        while True:
            await self._pace.turn(request.tokens)
            if self._refusal is not None:
                raise self._refusal
            deadline = deadline or time.monotonic() + self._patience.deadline_s
            remaining = max(0.0, deadline - time.monotonic())
            seat = min(self._seats, key=_Seat.load)
            seat.under_way += 1
            try:
                reply = await self._once(request, body, min(self._patience.timeout_s, remaining), seat.url)
            except _AgainError as trouble:
                failures += trouble.wait_s is None
                wait = (trouble.wait_s or 0.0) + backoff(max(1, failures), self._patience.backoff_s)
                if len(self._seats) > 1:
                    wait = self._rest(seat, trouble.wait_s)
                late = time.monotonic() + wait > deadline
                if failures > self._patience.retries or late:
                    spent = f"its {self._patience.deadline_s:g} s are over" if late else f"{failures} tries failed"
                    raise CaseError(f"case {case_id!r}: no reply from {place(seat.url)}: {trouble}; {spent}") from None
                log.info("case %s: %s; asking again in %.1f s", case_id, trouble, wait)
            else:
                seat.failures = 0
                return reply
            finally:
                seat.under_way -= 1
            self._tally.retries += 1
            await asyncio.sleep(wait)

    def _rest(self, seat: _Seat, asked_s: float | None) -> float:
        """Rests a server; returns seconds until one is available, mostly 0."""
        seat.failures += 1
        wait = (asked_s or 0.0) + backoff(seat.failures, self._patience.backoff_s)
        seat.rests_until = max(seat.rests_until, time.monotonic() + wait)
        return max(0.0, min(seat.rests_until for seat in self._seats) - time.monotonic())

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def _once(self, request: Request, body: bytes, seconds: float, url: str) -> dict[str, Any]:
        httpx = http_library()
        self._tally.requests += 1
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.post(url, content=body, headers={"Content-Type": "application/json"})
        except TimeoutError:
            raise _AgainError(f"no whole reply within {seconds:.3g} s") from None
        except httpx.RequestError as error:
            raise _AgainError(f"the connection failed ({type(error).__name__}: {error})") from None
        if response.status_code == 200:
            if response.content.startswith((b"data:", b"event:")):
                self._refusal = UserError(
                    f"{place(url)} streams its replies, which nobody asked it to; set "
                    "model.extra.stream=false, or look at the server's settings"
                )
                raise self._refusal
            return self._counted(self._read(response.content), request)
        if 400 <= response.status_code < 500 and _is_filtered(response.content):
            words = _error_message(response.content, self._server.key)
            return dict.fromkeys(FIELDS) | {"text": words, "finish": WITHHELD}
        raise self._trouble(response, url)

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            raise _AgainError(f"its reply of {len(body)} bytes is no JSON") from None
        try:
            reply = read_reply(content)
        except ValueError as lack:
            raise _AgainError(f"{lack} ({_error_message(body, self._server.key) or 'and no error'})") from None
        if FILTERED.match(str(reply["finish"] or "")):
            reply["finish"] = WITHHELD
        return reply

    def _counted(self, reply: dict[str, Any], request: Request) -> dict[str, Any]:
        read, written = reply["prompt_tokens"], reply["completion_tokens"]
        if read is None or written is None:
            self._tally.uncounted += 1
        else:
            self._tally.prompt_tokens += read
            self._tally.completion_tokens += written
            self._pace.correct(read + written - request.tokens)
        return reply

    def _trouble(self, response: Any, url: str) -> Exception:
        status, words = response.status_code, _error_message(response.content, self._server.key)
        cause = f"{status}: {words or response.reason_phrase}"
        if (status in WORTH_REPEATING or status >= 500) and "insufficient_quota" not in response.text:
            wait = retry_after(response.headers)
            if (
                wait is not None and wait <= self._patience.deadline_s and len(self._seats) == 1
            ):  # longer ones are failures, of each prompt by itself
                self._pace.hold(wait)
            return _AgainError(f"it answered {cause}", wait)
        where = place(url)
        if 300 <= status < 400:
            self._refusal = moved(url, response)
            return self._refusal
        if status in REFUSED_TO_ALL:
            why = REFUSED_TO_ALL[status].format(variable=self._server.variable, model=self._server.model)
            self._refusal = UserError(f"{where} {why} ({cause})")
            return self._refusal
        return CaseError(
            f"{where} refuses the request ({cause}); model.extra adds fields to it, and takes out those it sets to null"
        )


def moved(url: str, response: Any) -> UserError:
    """Advice on redirects, which would leak keys and images."""
    to = response.headers.get("location", "")
    there = f" ({place(str(response.url.join(to)))})" if to else ""
    return UserError(
        f"{place(url)} sends elsewhere{there}, {response.status_code}; set model.base_url to where it lies"
    )


def _is_filtered(body: bytes) -> bool:
    """Whether an error is a content filter's, by code or message."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    error = content.get("error", content) if isinstance(content, dict) else None
    if not isinstance(error, dict):
        return False
    within = [inner for inner in (error.get("innererror"), error.get("inner_error")) if isinstance(inner, dict)]
    codes = [part.get(name) for part in (error, *within) for name in ("code", "type")]
    if any(isinstance(code, str) and FILTERED.match(code) for code in codes) or "flagged_input" in str(error):
        return True
    return bool(FILTERED_WORDS.search(str(error.get("message"))))


def _error_message(body: bytes, secret: str) -> str:
    """Server's error message, without repeated requests or refused keys."""
    try:
        error_fields = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error_fields = error_fields.get("error", error_fields) if isinstance(error_fields, dict) else error_fields
    if isinstance(error_fields, dict):
        error_fields = error_fields.get("message") or error_fields.get("detail")
    if isinstance(error_fields, list):
        error_fields = "; ".join(str(item.get("msg", "")) for item in error_fields if isinstance(item, dict))
    text = re.sub(r"data:[\w/+.-]*;base64,[\w/+=-]*", "data:...", error_fields) if isinstance(error_fields, str) else ""
    return " ".join((text.replace(secret, "***") if secret else text).split())[:LONGEST_WORDS]


def place(url: str) -> str:
    """An address without what may be secret in it: user, password, query."""
    return str(http_library().URL(url).copy_with(username=None, password=None, query=None, fragment=None))


def authorization(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def http_library() -> Any:
    """The module httpx2; raises UserError where it is not installed."""
    httpx2 = import_optional("httpx2")
    # It logs a line per request, with the whole address.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return httpx2


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a thread, also within a running loop; interrupts cancel it."""
    future = asyncio.run_coroutine_threadsafe(work, _background_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def close_soon(client: Client) -> None:
    """Closes a client without waiting for it."""
    asyncio.run_coroutine_threadsafe(client.close(), _background_loop())


@functools.cache
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="medimg_eval-requests", daemon=True).start()
    return loop


def file_url(picture: Picture, folder: Path, max_side: int | None = None) -> str:
    """Writes a picture as PNG by content; returns its `file:` URL."""
    name = f"medimg_eval-{hashlib.sha256(f'{picture.size} {max_side}'.encode() + picture.tobytes()).hexdigest()}.png"
    if not (folder / name).is_file():
        with whole(folder / name) as partial:
            _shrink_picture(picture, max_side).save(partial, "PNG", compress_level=1)
    return (folder / name).resolve().as_uri()


def _shrink_picture(picture: Picture, max_side: int | None) -> Picture:
    from PIL.Image import Resampling

    if max_side is not None and max(picture.size) > max_side:
        picture = picture.copy()
        picture.thumbnail((max_side, max_side), Resampling.LANCZOS, reducing_gap=None)
    return picture


def data_url(picture: Picture, image_format: ImageFormat = "png", max_side: int | None = None) -> str:
    """Picture as `data:` URL, shrunk to `max_side` pixels by Lanczos."""
    picture = _shrink_picture(picture, max_side)
    stream = io.BytesIO()
    # PNG at a low effort: a request is uploaded once, and nothing waits for the last per cent of its size.
    options = {"compress_level": 1} if image_format == "png" else {"quality": JPEG_QUALITY}
    picture.save(stream, image_format, **options)
    return f"data:image/{image_format};base64,{base64.b64encode(stream.getvalue()).decode()}"


def _picture_digest(picture: Picture, image_format: ImageFormat, max_side: int | None) -> str:
    # Of the pixels, since what an encoder makes of them changes from one version of it to the next.
    return f"{image_format} {max_side} {picture.size} {hashlib.sha256(picture.tobytes()).hexdigest()}"


def _sampling_fields(decoding: Decoding) -> dict[str, Any]:
    fields: dict[str, Any] = {"temperature": decoding.temperature}
    if decoding.temperature > 0:  # some servers refuse fields they do not know, and greedy decoding needs none of them
        fields |= {"top_p": decoding.top_p, "seed": decoding.seed}
    return fields | ({"stop": list(decoding.stop)} if decoding.stop else {})

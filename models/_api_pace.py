"""When to ask a server, and when to ask it again."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT_S = 60.0
"""Waits double from one retry to the next until they are so long."""


class Pace:
    """Spaces requests so that no minute holds more requests or tokens than a server allows.

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
        while (left := self._held_until - self._clock()) > 0:
            await self._sleep(left)

    def correct(self, tokens: float) -> None:
        """Counts so many tokens more (or fewer, when negative) than a request was thought to take."""
        self._tokens_from += self._token_s * tokens

    def hold(self, seconds: float) -> None:
        """Lets nothing be sent for some seconds."""
        self._held_until = max(self._held_until, self._clock() + seconds)


def backoff(failures: int, first_s: float, draw: Callable[[], float] = random.random) -> float:
    """How long to wait after so many failures in a row (from 1), in seconds.

    Half of it doubles with each failure, up to `LONGEST_WAIT_S`; the other half is drawn, so that requests which
    failed together do not come back together.
    """
    longest = min(LONGEST_WAIT_S, first_s * 2.0 ** (failures - 1))
    return longest * (1 + draw()) / 2


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """How long a server asks to be left alone, in seconds of at least 0; None where it does not say.

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

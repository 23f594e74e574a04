"""Retries with backoff while a broker cannot be reached."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from posthouse.client.cluster import Cluster
from posthouse.client.errors import BrokerUnreachable, ClientError, RequestRefused
from posthouse.protocols.kafka.codec.primitives import Message

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Message)

RETRY_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

PASSING_CODES = frozenset({5, 6, 7, 13, 14, 15, 16, 51, 56})
"""Retriable error codes: the broker is starting, stopping, out of space or busy."""


class Backoff:
    """Growing pauses between attempts, for at most `seconds` since the last success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE

    def pause(self, error: ClientError) -> None:
        """Wait before the next attempt; raises `error` when the time is over."""
        if time.monotonic() + self._pause > self._deadline:
            raise error
        log.warning("trying again in %.2f s: %s", self._pause, error)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def ask_persistently(
    cluster: Cluster,
    request: Message,
    answer: type[T],
    refusal: Callable[[T], RequestRefused | None],
    seconds: float,
) -> T:
    """Send a request that may be repeated, with retries. `refusal` returns the error of an answer."""
    backoff = Backoff(seconds)
    while True:
        try:
            response = cluster.any().ask(request, answer)
        except BrokerUnreachable as error:
            cluster.close()
            backoff.pause(error)
            continue
        refused = refusal(response)
        if refused is None:
            return response
        if refused.code not in PASSING_CODES:
            raise refused
        backoff.pause(refused)

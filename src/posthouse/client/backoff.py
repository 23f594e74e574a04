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
"""What a broker says that is starting, stopping, short of space or just busy with the same."""


class Backoff:
    """Pauses between attempts that grow, for `seconds` at most since the last success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE

    def pause(self, error: ClientError) -> None:
        """Wait before the next attempt; raises `error` where there is no time for one."""
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
    """For requests that may be asked again. `refusal` says what an answer complains of."""
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

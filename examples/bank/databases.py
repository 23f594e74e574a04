"""The database of a service, which may go away and come back."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import psycopg

log = logging.getLogger(__name__)

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5


class ServiceDatabase:
    """Belongs to one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None

    def do(self, work: Callable[[Connection], T]) -> T:
        """`work` in a transaction, which is committed then.

        If the connection is lost, `work` is done again on another one. Nobody knows whether the first try was
        committed, so `work` has to find out by itself: from an inbox, or from the id of what it makes.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self._url, connect_timeout=10)
                with self._connection.transaction():
                    return work(self._connection)
            except psycopg.OperationalError as error:
                log.warning("trying again in %.2f s: %s", pause, str(error).strip())
                self.close()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

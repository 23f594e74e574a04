"""The wire client of a Spark process: kept from task to task, and reopened after a failure."""

from collections.abc import Callable
from typing import TypeVar

from posthouse.client import Client
from posthouse.client.backoff import Backoff
from posthouse.client.errors import BrokerUnreachable, TopicNotReady
from posthouse.client.security import OPEN, Security
from posthouse.spark.options import SourceOptions

T = TypeVar("T")

_clients: dict[tuple[str, Security], Client] = {}
"""By bootstrap address and security. Spark runs one task at a time in a Python process."""


class Access:
    """Calls with retries for `patience` seconds while the broker cannot be reached.

    The calls must be idempotent.
    """

    def __init__(self, bootstrap: str, *, timeout: float, patience: float, security: Security = OPEN) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._timeout = timeout
        self._patience = patience

    def call(self, work: Callable[[Client], T]) -> T:
        backoff = Backoff(self._patience)
        while True:
            try:
                return work(self._client())
            except (BrokerUnreachable, TopicNotReady) as error:
                self.drop()
                backoff.pause(error)

    def call_once(self, work: Callable[[Client], T]) -> T:
        """Without retries: for calls that may fail."""
        try:
            return work(self._client())
        except BrokerUnreachable:
            self.drop()
            raise

    def drop(self) -> None:
        """Close the connections; the next call opens new ones."""
        client = _clients.pop((self._bootstrap, self._security), None)
        if client is not None:
            client.close()

    def _client(self) -> Client:
        key = (self._bootstrap, self._security)
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = Client(self._bootstrap, timeout=self._timeout, security=self._security)
        return client


def access_of(options: SourceOptions) -> Access:
    return Access(
        options.bootstrap, timeout=options.timeout, patience=options.patience, security=options.security
    )

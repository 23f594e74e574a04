"""Half messages over the HTTP API. Every call may be repeated, and is until `patience` is over."""

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from posthouse.client.admin_client import AdminClient, part
from posthouse.client.backoff import Backoff
from posthouse.client.closable import Closable
from posthouse.client.errors import BrokerUnreachable, CallRefused, ClientError, IncompatibleBroker
from posthouse.client.security import Security
from posthouse.consistency.contents import Content, Headers, encoded, encoded_headers
from posthouse.consistency.decisions import HalfMessage
from posthouse.consistency.errors import BadMessage, DecidedOtherwise

T = TypeVar("T")

_PATH: Final = "/v1/half-messages"
_CONFLICT: Final = 409
_FIRST_SERVER_ERROR: Final = 500


class HalfMessageCalls(Closable):
    """For any number of threads: a call has a connection to itself."""

    def __init__(self, address: str, group: str, *, security: Security, patience: float) -> None:
        self._address = address
        self._group = group
        self._security = security
        self._patience = patience
        self._idle: deque[AdminClient] = deque()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def prepare(
        self,
        name: str,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        check_after: int,
    ) -> HalfMessage:
        """It is on disk. Raises BadMessage and ClientError."""
        data = encoded(value)
        if data is None:
            raise BadMessage("a half message needs a value; a tombstone cannot be one")
        key_bytes = key.encode() if isinstance(key, str) else key
        pairs = encoded_headers(headers)
        body: dict[str, Any] = {
            "topic": topic,
            "group": self._group,
            "name": name,
            "value": _base64(data),
            "encoding": "base64",
            "key": _base64(key_bytes),
            "key_encoding": "base64",
            "headers": [
                {"name": each, "value": _base64(content), "encoding": "base64"} for each, content in pairs
            ],
            "check_after_seconds": check_after,
        }
        if partition is not None:
            body["partition"] = partition
        prepared = self._persistently(lambda client: client.post(_PATH, body))
        return HalfMessage(
            id=prepared["id"], name=name, topic=topic, key=key_bytes, value=data, headers=pairs
        )

    def decide(self, message: HalfMessage, *, commit: bool) -> None:
        """Raises DecidedOtherwise, and ClientError: then it may or may not be decided."""
        path = f"{_PATH}/{message.id}/{'commit' if commit else 'rollback'}"
        try:
            self._persistently(lambda client: client.post(path))
        except CallRefused as error:
            if error.status != _CONFLICT:
                raise
            what = "committed" if commit else "rolled back"
            raise DecidedOtherwise(
                f"message {message.name!r} cannot be {what}: {error}; a check has decided it, so callback "
                "and transaction do not agree"
            ) from None

    def checks(self, *, seconds: float) -> list[HalfMessage]:
        """Those that this producer is to decide; waits for them for so long. Raises ClientError."""
        with self._client() as client:
            found = client.get(f"{_PATH}/checks/{part(self._group)}", wait_ms=int(seconds * 1000))
        return [_checked(each) for each in found["checks"]]

    def _persistently(self, call: Callable[[AdminClient], T]) -> T:
        backoff = Backoff(self._patience)
        while True:
            try:
                with self._client() as client:
                    return call(client)
            except (BrokerUnreachable, IncompatibleBroker) as error:  # the latter of one that just stops
                backoff.pause(error)
            except CallRefused as error:
                if error.status < _FIRST_SERVER_ERROR:
                    raise
                backoff.pause(error)

    @contextmanager
    def _client(self) -> Iterator[AdminClient]:
        try:
            client = self._idle.pop()
        except IndexError:
            client = AdminClient(self._address, security=self._security)
        try:
            yield client
        except ClientError:
            self._idle.append(client)  # it connects again by itself
            raise
        except BaseException:
            client.close()
            raise
        self._idle.append(client)


def _checked(check: dict[str, Any]) -> HalfMessage:
    return HalfMessage(
        id=check["id"],
        name=check["name"] or "",
        topic=check["topics"][0],
        key=_bytes(check["key"]),
        value=_bytes(check["value"]) or b"",
        headers=[(each["name"], _bytes(each["value"])) for each in check["headers"]],
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)

"""Objects at signed addresses, by plain HTTP: nothing of the object store need be known but the address."""

import http.client
import ssl
import threading
import time
from functools import cache
from urllib.parse import SplitResult, urlsplit

from posthouse.spark.segments.errors import ObjectDamaged, ObjectsAway, ObjectStale

_CONNECT_SECONDS = 5.0
_PAUSES = (0.1, 0.5, 2.0)
"""Before each further attempt."""
_TRYING_SECONDS = 10.0
"""After that time there is no further attempt: brokers have the same records."""
_TOO_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_STALE = frozenset({401, 403, 404, 410})


class _OfThread(threading.local):
    """The connection of a thread, and the store that it leads to."""

    origin: tuple[str, str] | None = None
    connection: http.client.HTTPConnection | None = None


class SignedObjects:
    """For several threads: each has a connection of its own."""

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._own = _OfThread()
        self._lock = threading.Lock()
        self._connections: list[http.client.HTTPConnection] = []
        self._is_closed = False

    def origin(self, address: str) -> str:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.netloc}"

    def read(self, address: str, start: int, size: int) -> bytearray:
        """Exactly `size` bytes from `start` on. Raises ObjectError."""
        parts = urlsplit(address)
        deadline = time.monotonic() + _TRYING_SECONDS
        for pause in (*_PAUSES, None):
            try:
                found = self._get(parts, start, size)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                problem = f"{parts.scheme}://{parts.netloc} does not answer ({_words(error)})"
            else:
                if isinstance(found, bytearray):
                    return found
                problem = f"{parts.scheme}://{parts.netloc} answers with status {found}"
            if pause is None or self._is_closed or time.monotonic() > deadline:
                break
            time.sleep(pause)
        raise ObjectsAway(problem)

    def _get(self, parts: SplitResult, start: int, size: int) -> bytearray | int:
        """The bytes, or a status that may be over soon."""
        connection = self._connection(parts)
        wanted = f"bytes {start}-{start + size - 1}/"
        connection.request(
            "GET",
            f"{parts.path}?{parts.query}",
            headers={"Range": f"bytes={start}-{start + size - 1}", "Accept-Encoding": "identity"},
        )
        response = connection.getresponse()
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            response.read()
            if response.status in _TOO_BUSY:
                return response.status
            raise self._refusal(parts, response.status, start, size)
        if not response.headers.get("Content-Range", "").startswith(wanted):
            self._drop()
            raise ObjectDamaged(f"{_name(parts)} has no {size} bytes from {start}")
        data = bytearray(size)
        with memoryview(data) as view:
            done = 0
            while done < size:
                got = response.readinto(view[done:])
                if not got:
                    raise http.client.IncompleteRead(b"", size - done)
                done += got
        response.read()  # the connection can be used again
        return data

    def _refusal(self, parts: SplitResult, status: int, start: int, size: int) -> Exception:
        if status in _STALE:
            return ObjectStale(f"{_name(parts)} cannot be read any more: status {status}")
        if status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return ObjectDamaged(f"{_name(parts)} has no {size} bytes from {start}")
        if status == http.HTTPStatus.OK:
            self._drop()
        return ObjectsAway(f"{_name(parts)} is answered with status {status}")

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        origin = (parts.scheme, parts.netloc)
        known = self._own.connection
        if known is not None and known.sock is not None and self._own.origin == origin:
            return known
        self._drop()
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_SECONDS, context=_trust()
            )
        else:
            made = http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
        made.connect()
        made.sock.settimeout(self._timeout)
        with self._lock:
            if self._is_closed:
                made.close()
                raise OSError("the read has ended")
            self._connections.append(made)
        self._own.origin, self._own.connection = origin, made
        return made

    def _drop(self) -> None:
        connection, self._own.connection = self._own.connection, None
        if connection is not None:
            connection.close()
            with self._lock:
                if connection in self._connections:
                    self._connections.remove(connection)

    def close(self) -> None:
        """Ends the reads of other threads, too."""
        with self._lock:
            self._is_closed = True
            for each in self._connections:
                each.close()
            self._connections.clear()


@cache
def _trust() -> ssl.SSLContext:
    """The authorities of the system, or those in SSL_CERT_FILE."""
    return ssl.create_default_context()


def _name(parts: SplitResult) -> str:
    """Without the signature."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

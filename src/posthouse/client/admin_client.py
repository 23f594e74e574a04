"""A small synchronous client for the broker's JSON API over HTTP: `/v1/…` and `/health/…`.

    with AdminClient("127.0.0.1:15672") as admin:
        for queue in admin.items("/v1/queues", state="unconsumed"):
            print(queue["name"], queue["ready"])

Not for many threads at once: one client belongs to one thread.
"""

import base64
import ipaddress
import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlencode

from posthouse import __version__
from posthouse.client.addresses import parse_address
from posthouse.client.closable import Closable
from posthouse.client.errors import (
    BadArgument,
    BrokerSilent,
    BrokerUnreachable,
    CallRefused,
    ClientError,
    IncompatibleBroker,
    LoginRefused,
)
from posthouse.client.security import OPEN, Security
from posthouse.client.tls import encrypted, refusal, tls_context

TIMEOUT = 30.0
ADMIN_PORT = 15672
_PAGE = 1000
_NO_LIMIT = 2**63
_LONGEST_IDLE = 30.0
"""Seconds; the broker closes connections that are idle for 75 s."""
_SCHEMES = {"http://": False, "https://": True}


class AdminClient(Closable):
    """Connects when first used. `address` is HOST:PORT; http:// or https:// before it decides about TLS,
    otherwise `security` does."""

    def __init__(self, address: str, *, timeout: float = TIMEOUT, security: Security = OPEN) -> None:
        scheme = next((each for each in _SCHEMES if address.startswith(each)), "")
        self.node = parse_address(address.removeprefix(scheme).rstrip("/"), ADMIN_PORT)
        is_encrypted = _SCHEMES.get(scheme, security.is_encrypted)
        self._tls = tls_context(security) if is_encrypted else None
        self._security = security
        self._timeout = timeout
        self._connection: HTTPConnection | None = None
        self._used_at = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, **query: Any) -> Any:
        """The answer, decoded. What is None in the query is left out."""
        return self._call("GET", path, query, None)

    def text(self, path: str) -> str:
        """An answer that is no JSON, such as that of /metrics."""
        status, answer = self._exchange("GET", path, None, as_text=True)
        return str(self._checked(status, answer))

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self._call("POST", path, query, {} if body is None else body)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, {}, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, {}, body)

    def delete(self, path: str, **query: Any) -> Any:
        return self._call("DELETE", path, query, None)

    def items(self, path: str, *, most: int | None = None, **query: Any) -> Iterator[Any]:
        """The items of a list, page after page, at most `most` of them."""
        after = ""
        left = _NO_LIMIT if most is None else most
        while left > 0:
            page = self.get(path, **query, limit=min(_PAGE, left), after=after or None)
            yield from page["items"]
            left -= len(page["items"])
            after = page.get("next") or ""
            if not after:
                return

    def _call(self, method: str, path: str, query: dict[str, Any], body: Any) -> Any:
        said = {name: _shown(value) for name, value in query.items() if value is not None}
        status, answer = self._exchange(method, f"{path}?{urlencode(said)}" if said else path, body)
        return self._checked(status, answer)

    def _checked(self, status: int, answer: Any) -> Any:
        if status < 300:
            return answer
        detail = answer.get("detail") if isinstance(answer, dict) else None
        sentence = str(detail or f"the broker refused with status {status}").rstrip(".")
        if status == 401:
            advice = "" if self._security.user else "; give --user, or use a profile with a login"
            raise LoginRefused(f"the broker at {self.node} does not let you in: {sentence}{advice}")
        raise CallRefused(sentence, status)

    def _exchange(self, method: str, target: str, body: Any, *, as_text: bool = False) -> tuple[int, Any]:
        headers = {"Accept": "application/json", "User-Agent": f"posthouse/{__version__}", **self._login()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if time.monotonic() - self._used_at > _LONGEST_IDLE:
            self.close()
        is_reused = self._connection is not None
        try:
            return self._answer(method, target, data, headers, as_text)
        except TimeoutError:
            self.close()
            raise BrokerSilent(
                f"the broker at {self.node} did not answer in {self._timeout:g} s; look at its log, or try "
                "again"
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            # The broker has closed the connection, for example because it was restarted. Reading twice does
            # no harm.
            if is_reused and method == "GET":
                return self._exchange(method, target, body, as_text=as_text)
            raise refusal(error, self.node) or (self._lost() if is_reused else self._no_http()) from None

    def _answer(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str], as_text: bool
    ) -> tuple[int, Any]:
        connection = self._connection or self._connect()
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        content = response.read()
        self._used_at = time.monotonic()
        if response.will_close:
            self.close()
        is_text = as_text and response.status < 300
        return response.status, content.decode() if is_text else _decoded(content)

    def _connect(self) -> HTTPConnection:
        connection = HTTPConnection(self.node.host, self.node.port, timeout=self._timeout)
        # Otherwise http.client reopens a closed connection by itself: without TLS, and without the check that
        # protects the password.
        connection.auto_open = 0
        try:
            plain = socket.create_connection((self.node.host, self.node.port), self._timeout)
        except socket.gaierror:
            raise BrokerUnreachable(
                f"there is no host {self.node.host!r}; correct the name, or give another address with --admin"
            ) from None
        except OSError:
            raise BrokerUnreachable(
                f"no broker answers at {self.node}; start one with 'posthouse serve' or give --admin with "
                "the address of its HTTP listener (setting admin; it may be off)"
            ) from None
        self._check_cleartext(plain)
        connection.sock = plain if self._tls is None else encrypted(plain, self._tls, self.node)
        self._connection = connection
        return connection

    def _check_cleartext(self, connected: socket.socket) -> None:
        if self._tls is not None or self._security.user is None:
            return
        peer = connected.getpeername()[0].partition("%")[0]
        if not ipaddress.ip_address(peer).is_loopback:
            connected.close()
            raise BadArgument(
                f"your password would go to {self.node} for everybody on the way to read; use TLS with --tls "
                "or --ca FILE"
            )

    def _login(self) -> dict[str, str]:
        security = self._security
        if security.user is None:
            return {}
        credentials = base64.b64encode(f"{security.user}:{security.password}".encode()).decode()
        return {"Authorization": f"Basic {credentials}"}

    def _lost(self) -> ClientError:
        return BrokerUnreachable(
            f"the broker at {self.node} closed the connection before it answered; check whether it did what "
            "you asked for, and try again"
        )

    def _no_http(self) -> ClientError:
        advice = "" if self._tls is not None else "give --tls or --ca FILE if it uses TLS there, or "
        return IncompatibleBroker(
            f"what answers at {self.node} does not speak HTTP as a Posthouse does; {advice}"
            f"give the address of its HTTP listener with --admin (port {ADMIN_PORT} by default)"
        )


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(data: bytes) -> Any:
    return json.loads(data) if data else None

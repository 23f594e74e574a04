"""Opens connections: a name is resolved once, all of its addresses are checked, and one of these is connected
to. So a name cannot point elsewhere between the check and the connection. TLS verifies the name."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult

from posthouse.model.errors import InvalidConfig
from posthouse.webhooks.allowed_targets import AllowedTargets
from posthouse.webhooks.failures import NoAnswer
from posthouse.webhooks.http_connection import CountingReader, HttpConnection
from posthouse.webhooks.resolving import Resolve

_PORTS: Final = {"https": 443, "http": 80}
_LIMIT: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Of a URL, as far as a connection needs it."""

    host: str
    port: int
    has_tls: bool
    host_header: str

    @classmethod
    def of(cls, url: SplitResult) -> "Place":
        host = url.hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return cls(
            host=host,
            port=url.port or _PORTS[url.scheme],
            has_tls=url.scheme == "https",
            host_header=shown if url.port is None else f"{shown}:{url.port}",
        )


class Connector:
    def __init__(self, resolve: Resolve, targets: AllowedTargets, tls: Callable[[], ssl.SSLContext]) -> None:
        self._resolve = resolve
        self._targets = targets
        self._tls = tls

    async def connect(self, place: Place, deadline: float) -> HttpConnection:
        """Raises NoAnswer."""
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._resolve(place.host, place.port)
                self._targets.check(place.host, addresses, has_tls=place.has_tls)
                return await self._connected(place, addresses)
        except TimeoutError:
            raise NoAnswer(f"{place.host_header} cannot be connected to in time") from None

    async def _connected(self, place: Place, addresses: list[str]) -> HttpConnection:
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._opened(place, address)
            except ssl.SSLError as error:
                raise NoAnswer(f"TLS with {place.host_header} failed: {error}") from None
            except OSError as error:
                last = error
        raise NoAnswer(f"{place.host_header} cannot be connected to: {last}")

    async def _opened(self, place: Place, address: str) -> HttpConnection:
        loop = asyncio.get_running_loop()
        reader = CountingReader(limit=_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_connection(
            lambda: protocol,
            address,
            place.port,
            ssl=self._tls() if place.has_tls else None,
            server_hostname=place.host if place.has_tls else None,
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return HttpConnection(reader, writer, place.host_header, loop.time())


def trusting(authorities: Path | None) -> Callable[[], ssl.SSLContext]:
    """Makes what verifies names and certificates, by the authorities of the system and these. Those of the
    system are read when they are first needed, which takes a while. Raises InvalidConfig."""
    if authorities is not None:
        check_authorities(authorities)

    @cache
    def context() -> ssl.SSLContext:
        made = ssl.create_default_context()
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if authorities is not None:
            made.load_verify_locations(authorities)
        return made

    return context


def check_authorities(authorities: Path) -> None:
    """Raises InvalidConfig."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(authorities)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidConfig(f"webhook_ca: {authorities} cannot be read: {error}") from None

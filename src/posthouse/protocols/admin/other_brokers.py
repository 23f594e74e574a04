"""Calls that another broker of the cluster answers: the one that holds the scope that they are about.

The request is sent to the admin listener of that broker over a connection between brokers, in the name of the
client who has sent it. That broker checks the permissions, and its audit log has the change.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode
from uuid import UUID

import h11

from posthouse.model.address import UNKNOWN, Address
from posthouse.model.errors import NotCoordinator
from posthouse.model.proven_user import BROKER, ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.admin.browsers import READING
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.membership import Membership
from posthouse.protocols.relay import Relay

_SECONDS: Final = 30.0
_CHANGE_SECONDS: Final = 600.0
"""Moving a million messages takes a while."""
_SCOPES: Final = "x-posthouse-scopes"
"""Between brokers: those that the other one must hold while it answers."""
_MOST_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """In whose name other brokers are asked."""

    listener: str
    """The name of the setting. Other brokers need a listener of the same name."""
    client: Address = UNKNOWN
    user: ProvenUser | None = None
    """None if login is not required."""
    is_relayed: bool = False
    """Another broker has sent the request here: this one answers for itself only."""


def this_broker(listener: str) -> Caller:
    """The broker asks on its own account, and sees everything."""
    return Caller(listener=listener, user=ProvenUser(name="", mechanism=BROKER))


class OtherBrokers:
    """Owned by the event loop."""

    def __init__(self, relay: Relay | None, membership: Membership, holds: Callable[[Scope], bool]) -> None:
        """`holds` tells what this broker serves."""
        self._relay = relay
        self._membership = membership
        self._holds = holds

    def parts(self, scopes: Sequence[Scope], noun: str, caller: Caller) -> "Parts":
        """The brokers that hold the scopes now. Raises Problem if some have no holder: a list would not be
        complete. `noun` is what they are about, in the plural."""
        held: list[Scope] = []
        elsewhere: dict[UUID, list[Scope]] = {}
        own = self._membership.own.incarnation
        for scope in scopes:
            if self._holds(scope):
                held.append(scope)
                continue
            holder = self._membership.holder_of(scope)
            if holder is None or holder.incarnation == own:
                raise _moving(noun)
            elsewhere.setdefault(holder.incarnation, []).append(scope)
        return Parts(
            others=[OtherBroker(self, caller, each) for each in elsewhere.values()],
            noun=noun,
            are_same=lambda: held == [each for each in scopes if self._holds(each)],
        )

    async def ask(self, scope: Scope, request: HttpRequest, caller: Caller) -> Response:
        """Raises Problem, and Unavailable if the broker cannot be reached."""
        if self._relay is None:
            raise Problem(503, f"{scope} is held by another broker, which this one does not ask")
        connected = await self._relay.connect(caller.listener, caller.client, caller.user, scope)
        try:
            async with asyncio.timeout(_SECONDS if request.method in READING else _CHANGE_SECONDS):
                reader, writer = await asyncio.open_connection(sock=connected)
                try:
                    return await _answer(reader, writer, request)
                finally:
                    writer.close()
        except (OSError, EOFError, TimeoutError, h11.ProtocolError) as error:
            why = str(error) or type(error).__name__
            raise Problem(503, f"the broker that holds {scope} did not answer: {why}") from None


class OtherBroker:
    """One that has a part of a whole."""

    def __init__(self, brokers: OtherBrokers, caller: Caller, scopes: Sequence[Scope]) -> None:
        """`scopes` are at least one, and those that it holds of the whole."""
        self._brokers = brokers
        self._caller = caller
        self._scopes = scopes

    async def ask(self, request: HttpRequest) -> Response:
        """Raises Problem and Unavailable."""
        return await self._brokers.ask(self._scopes[0], request, self._caller)

    async def read(self, path: Sequence[str], query: Mapping[str, str]) -> bytes:
        """Its part, which a GET is answered with. Raises Problem and Unavailable, also if one of the scopes
        is not there any more."""
        headers = {_SCOPES: ",".join(map(str, self._scopes))}
        request = HttpRequest(method="GET", segments=path, query=query, headers=headers)
        answer = await self.ask(request)
        if answer.status != HTTPStatus.OK or not isinstance(answer.body, bytes):
            raise Problem(
                503,
                f"the broker that holds {self._scopes[0]} answered {request.path} with {answer.status}; "
                "try again",
            )
        return answer.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Which brokers have parts of a whole, such as a list of all queues. To be asked for before this broker
    looks at its own part: what moves meanwhile would be in none of the parts, or in two."""

    others: Sequence[OtherBroker] = ()
    noun: str = ""
    are_same: Callable[[], bool] = lambda: True
    """Whether this broker holds what it did."""

    def check(self) -> None:
        """To be called when all parts are there. Raises Problem."""
        if not self.are_same():
            raise _moving(self.noun)


def check_part(request: HttpRequest, holds: Callable[[Scope], bool]) -> None:
    """Of a request of another broker, before and after it is answered. Raises NotCoordinator if this one does
    not hold what the other one takes it to hold."""
    expected = request.headers.get(_SCOPES, "")
    for name in filter(None, expected.split(",")):
        if not holds(Scope(name)):
            raise NotCoordinator(f"{name} is held by another broker; try again")


def _moving(noun: str) -> Problem:
    return Problem(503, f"some {noun} move to another broker at the moment; try again")


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: HttpRequest
) -> Response:
    http = h11.Connection(h11.CLIENT)
    headers = [("host", "localhost"), ("content-length", str(len(request.body))), *_headers_of(request)]
    head = h11.Request(method=request.method, target=_target(request), headers=headers)
    for sent in (head, h11.Data(data=request.body), h11.EndOfMessage()):
        writer.write(http.send(sent) or b"")
    answered: h11.Response | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            answered = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                raise EOFError(f"the answer has more than {_MOST_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage) and answered is not None:
            return _response(answered, bytes(body))
        else:
            raise EOFError("the connection was closed")


_SENT: Final = frozenset({"content-type", "x-reason", "idempotency-key", _SCOPES})
_SENT_PREFIXES: Final = ("ce-", "posthouse-header-")
"""Of headers that say something of a record."""


def _headers_of(request: HttpRequest) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in request.headers.items()
        if name in _SENT or name.startswith(_SENT_PREFIXES)
    ]


def _target(request: HttpRequest) -> str:
    path = "".join(f"/{quote(segment, safe='')}" for segment in request.segments)
    return f"{path}?{urlencode(request.query)}" if request.query else path


_KEPT: Final = frozenset({b"www-authenticate", b"location"})


def _response(answered: h11.Response, body: bytes) -> Response:
    headers = list(answered.headers)
    types = [value.decode("latin-1") for name, value in headers if name == b"content-type"]
    return Response(
        status=answered.status_code,
        body=body,
        content_type=types[0] if types else "",
        headers=tuple((name.decode(), value.decode("latin-1")) for name, value in headers if name in _KEPT),
    )

"""A member of a cluster of three brokers, and relays in whose place a test answers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from posthouse.app import App
from posthouse.listener_settings import KAFKA
from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import SystemClock
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import TRANSACTIONS, Scope
from posthouse.protocols.front_end import Backend, FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.introduction import Origin
from posthouse.protocols.kafka.codec.headers import decode_request_header, response_frame
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import APIS
from posthouse.protocols.membership import Membership, MemberStanding
from posthouse.protocols.relay import Relay, RelayedConnection
from posthouse.storage.contract import Storage
from tests.broker.members import CoordinatorStorage, MemberStorage
from tests.served import on_any_port
from tests.wire.kafka import SIZE, framed

OWN, COORDINATOR, OTHER = (
    ClusterBroker(
        id=id, name=str(id), incarnation=uuid4(), addresses={"kafka": Address(f"broker-{id}", 9092)}
    )
    for id in (1, 2, 3)
)
VIEW = ClusterView(
    brokers=(OWN, COORDINATOR, OTHER),
    holder_incarnation=COORDINATOR.incarnation,
    holders=dict.fromkeys(TRANSACTIONS, OTHER.incarnation),
)


class RelayedRequest:
    """As the coordinator gets it."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.header, self.body_start = decode_request_header(memoryview(frame))
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answer(self, response: Message) -> bytes:
        """Returns the bytes of the response, without their length."""
        header = self.header
        body = APIS[header.api_key].encode_response(header.api_version, response)
        chunks = response_frame(header.api_key, header.api_version, header.correlation_id, body)
        encoded = b"".join(chunks)[SIZE.size :]
        self.answered.set_result(encoded)
        return encoded

    def fail(self) -> None:
        self.answered.set_exception(Unavailable("the coordinator was lost"))


@dataclass
class HeldConnection:
    listener: str
    client: Address
    user: ProvenUser | None
    scope: Scope
    requests: list[RelayedRequest] = field(default_factory=list)
    is_closed: bool = False
    is_paused: bool = False
    held: int = 0
    grown: Callable[[], None] = lambda: None
    has_more: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, request: bytes | memoryview) -> asyncio.Future[bytes]:
        held = RelayedRequest(bytes(request))
        self.requests.append(held)
        self.has_more.set()
        return held.answered

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True
        for each in self.requests:
            if not each.answered.done():
                each.fail()
        self.has_more.set()

    async def until(self, count: int) -> list[RelayedRequest]:
        """The first `count` requests."""
        async with asyncio.timeout(30):
            while len(self.requests) < count:
                self.has_more.clear()
                await self.has_more.wait()
        return self.requests[:count]

    async def until_closed(self) -> None:
        async with asyncio.timeout(30):
            while not self.is_closed:
                self.has_more.clear()
                await self.has_more.wait()


class HeldRelay:
    """Requests wait until the test answers them."""

    def __init__(self) -> None:
        self.opened: list[HeldConnection] = []
        self._has_more = asyncio.Event()

    def open(
        self,
        listener: str,
        client: Address,
        user: ProvenUser | None,
        grown: Callable[[], None],
        scope: Scope,
    ) -> RelayedConnection:
        made = HeldConnection(listener, client, user, scope, grown=grown)
        self.opened.append(made)
        self._has_more.set()
        return made

    async def connect(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> socket.socket:
        raise Unavailable("only requests are relayed")

    async def request(self, number: int = 0) -> RelayedRequest:
        """The request with this number, of the first connection."""
        return (await (await self.connection()).until(number + 1))[number]

    async def connection(self) -> HeldConnection:
        """The first connection."""
        await asyncio.wait_for(self._has_more.wait(), 30)
        return self.opened[0]


class WiredRelay:
    """Requests go to another broker, over connections that it takes for relayed ones."""

    def __init__(self, own: UUID, app: App) -> None:
        """`own` is the incarnation of the broker that relays."""
        self._own = own
        self._app = app

    def open(
        self,
        listener: str,
        client: Address,
        user: ProvenUser | None,
        grown: Callable[[], None],
        scope: Scope,
    ) -> RelayedConnection:
        return _WiredConnection(self._adopted(listener, client, user))

    async def connect(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> socket.socket:
        return self._adopted(listener, client, user)

    def _adopted(self, listener: str, client: Address, user: ProvenUser | None) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            here = socket.create_connection(listening.getsockname())
            there, _ = listening.accept()
        adopting = self._app.listener(listener)
        assert adopting is not None
        adopting.adopt(there, Origin(client=client, relayed_by=self._own, user=user))
        return here


class _WiredConnection:
    held = 0

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._waiting: asyncio.Queue[tuple[bytes, asyncio.Future[bytes]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._relay())

    def send(self, request: bytes | memoryview) -> asyncio.Future[bytes]:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((bytes(request), answered))
        return answered

    async def _relay(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._connected)
        try:
            while True:
                request, answered = await self._waiting.get()
                writer.write(framed(request))
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                answered.set_result(await reader.readexactly(size))
        finally:
            writer.close()

    def pause_reading(self) -> None:
        """Tests of this relay send little."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self._task.cancel()


@dataclass
class Standing:
    """What the member knows; a test sets it."""

    view: ClusterView = VIEW
    is_cut_off: bool = False


@asynccontextmanager
async def member(
    relay: Relay,
    standing: Standing | None = None,
    storage: Storage | None = None,
    *,
    coordinates: bool = True,
    own: ClusterBroker = OWN,
    **settings: Any,
) -> AsyncIterator[App]:
    """An app whose Kafka listener is that of a member. Its broker coordinates, too, so that a test can make
    topics and users there, unless the storage does not allow it."""
    known = standing or Standing()
    app = App(
        on_any_port(memory=True, **settings),
        storage=storage or CoordinatorStorage(SystemClock()),
        membership=Membership(
            own=own,
            view=lambda: known.view,
            member=MemberStanding(lambda: known.is_cut_off),
        ),
        front_ends=[_relaying(each, relay) if each.protocol == KAFKA else each for each in FRONT_ENDS],
    )
    await app.start()
    if coordinates:
        await app.broker.coordinate()
    try:
        yield app
    finally:
        await app.stop(at_once=True)


@asynccontextmanager
async def coordinator_and_member(**settings: Any) -> AsyncIterator[tuple[App, App, MemberStorage]]:
    """Two brokers on one log. The member knows what its storage has refreshed."""
    clock = SystemClock()
    log = CoordinatorStorage(clock)
    coordinator = App(on_any_port(memory=True, **settings), storage=log)
    await coordinator.start()
    await log.scopes.take(coordinator.broker, *TRANSACTIONS)
    storage = MemberStorage(log, clock)
    relay = WiredRelay(OWN.incarnation, coordinator)
    try:
        async with member(relay, storage=storage, coordinates=False, **settings) as app:
            yield coordinator, app, storage
    finally:
        await coordinator.stop(at_once=True)


def _relaying(front_end: FrontEnd, relay: Relay) -> FrontEnd:
    def connect(backend: Backend) -> Any:
        return front_end.connect(replace(backend, relay=relay))

    return replace(front_end, connect=connect)

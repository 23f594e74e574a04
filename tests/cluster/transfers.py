"""A coordinator and a member on one log in memory. The member transfers AMQP clients over sockets, as brokers
do."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from posthouse.app import App
from posthouse.broker.access.users import Users
from posthouse.cluster.dialling import Dialler, ScopeHolder
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.preamble import AnyPassage, Refusal, TransferPassage
from posthouse.cluster.transferring import ScopeTransfer
from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.model.scopes import NAMESPACES
from posthouse.protocols.introduction import Origin
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.membership import Membership
from posthouse.settings import Authentication
from tests.broker.members import CoordinatorStorage, MemberStorage
from tests.protocols.amqp.wire import Wire
from tests.protocols.kafka.members import OWN, VIEW
from tests.served import on_any_port

SECRET = b"s" * 32
ADMIN = "admin"
PASSWORD = "secret-of-admin"


def logins(directory: Path) -> dict[str, Any]:
    password = directory / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    return {"authentication": Authentication.REQUIRED, "admin_password_file": password, "audit": None}


@dataclass(kw_only=True)
class Brokers:
    coordinator: App
    member: App
    storage: MemberStorage
    """Of the member: what it knows of definitions."""
    peer: Address
    """Where the member reaches the coordinator."""
    holder: ScopeHolder | None
    """As the member knows it."""
    adopt: Callable[[AnyPassage], Adopt | Refusal] | None = None
    """In the place of what the coordinator does with connections of the member."""
    passages: list[TransferPassage] = field(default_factory=list)
    """What the member has asked for."""

    def wire(self, listener: str = "amqp") -> Wire:
        """To the member."""
        address = self.member.listeners[listener]
        return Wire(address.host, address.port)

    @property
    def users(self) -> Users:
        """Of the coordinator."""
        return self.coordinator.broker.access.users

    def adopter(self, passage: AnyPassage) -> Adopt | Refusal:
        assert isinstance(passage, TransferPassage)
        if passage not in self.passages:  # asked for twice for each connection
            self.passages.append(passage)
        if self.adopt is not None:
            return self.adopt(passage)
        listener = self.coordinator.listener(passage.listener)
        assert listener is not None
        origin = Origin(
            client=passage.client, relayed_by=passage.broker, is_transferred=True, user=passage.user
        )
        return partial(listener.adopt, origin=origin)


@asynccontextmanager
async def brokers(patience_seconds: float = 10.0, **settings: Any) -> AsyncIterator[Brokers]:
    clock = SystemClock()
    log = CoordinatorStorage(clock)
    listening = await ListeningSockets.bind(Address("127.0.0.1", 0))
    dialler = Dialler(SECRET, lambda scope: made.holder, patience_seconds=patience_seconds)
    transfer = ScopeTransfer(uuid4(), dialler)
    made_settings = on_any_port(memory=True, **settings)
    coordinator = App(made_settings, storage=log, transfer=transfer)
    await coordinator.start()
    await log.scopes.take(coordinator.broker, *NAMESPACES)
    storage = MemberStorage(log, clock)
    member = App(
        made_settings, storage=storage, membership=Membership(own=OWN, view=lambda: VIEW), transfer=transfer
    )
    made = Brokers(
        coordinator=coordinator,
        member=member,
        storage=storage,
        peer=listening.address,
        holder=ScopeHolder(incarnation=uuid4(), address=listening.address),
    )
    peers = PeerListener(listening, SECRET, made.adopter)
    peers.start()
    await member.start()
    try:
        yield made
    finally:
        await member.stop(at_once=True)
        await peers.close()
        await coordinator.stop(at_once=True)

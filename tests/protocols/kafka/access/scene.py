"""A broker whose users have to log in, and what the requests of the tests are about."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.access.scram import MIN_ITERATIONS, verifier_of
from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.recent_deletions import RecentDeletions
from posthouse.broker.topics import NewTopic
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.clock import SystemClock
from posthouse.model.scram import Mechanism
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from posthouse.protocols.kafka.codec.generated.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from posthouse.protocols.kafka.request_origins import ConnectionIdentity, CorrelatedOrigin
from posthouse.settings import Authentication
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.roles import PASSWORD, ROLES, SUPERUSER, TOPIC, TRANSACTION
from tests.protocols.kafka.wire import Wire, batch

_VERIFIER = verifier_of(Mechanism.SHA_256, PASSWORD, iterations=MIN_ITERATIONS)


def secured(directory: Path, *, data: Path | None = None, **settings: Any) -> AsyncBroker:
    """`directory` is for the password of the superuser."""
    file = directory / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    return AsyncBroker(
        data=data,
        authentication=Authentication.REQUIRED,
        admin_password_file=file,
        transaction_two_phase_commit_enable=True,
        **settings,
    )


async def add_roles(broker: Broker) -> None:
    for role in ROLES:
        if role.name != SUPERUSER:
            await broker.access.users.replace(role.name, [_VERIFIER])
            await broker.access.acls.add(role.acls)


async def permit(
    broker: Broker,
    user: str,
    operation: Operation,
    kind: Kind,
    name: str = CLUSTER,
    *,
    allow: bool = True,
) -> None:
    """A new user gets a password, too."""
    users = broker.access.users
    if users.get(user) is None:
        await users.replace(user, [_VERIFIER])
    acl = Acl(kind=kind, name=name, principal=f"User:{user}", operation=operation, allow=allow)
    await broker.access.acls.add([acl])


async def log_in(wire: Wire, user: str, password: str = PASSWORD) -> None:
    shaken = await wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    assert shaken.error_code == 0
    token = f"\0{user}\0{password}".encode()
    answer = await wire.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
    assert answer.error_code == 0, answer.error_message


@asynccontextmanager
async def connected(broker: AsyncBroker, user: str) -> AsyncIterator[Wire]:
    async with Wire(broker.kafka) as wire:
        await log_in(wire, user)
        yield wire


class Scene:
    """What there is, made new for every role: whoever may, changes it. A topic and an open transaction."""

    topic: Topic
    producer: ProducerIdentity

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def prepare(self, *, with_topic: bool = True) -> None:
        broker = self.broker
        old = [topic for topic in broker.topics if topic.name == TOPIC]
        await broker.delete_topics(old)
        broker.recent_deletions = RecentDeletions(SystemClock())  # as if that had been long ago
        if with_topic:
            [made] = await broker.create_topics([NewTopic(name=TOPIC, partitions=1)])
            assert isinstance(made, Topic)
            self.topic = made
            appending = broker.append([Produced(made, 0, memoryview(batch(b"one")))])
            assert appending.future is not None
            await appending.future
        self.producer = await broker.transactions.init_producer(TRANSACTION, 60_000, None)
        if with_topic:
            session = ConnectionIdentity()
            member = TransactionalRequest(
                id=TRANSACTION, producer=self.producer, origin=CorrelatedOrigin(session, 0)
            )
            await broker.transactions.add_partitions(member, self.topic.partition_ids())
            session.is_open = False

"""A broker that lets nobody in without a login, over TLS; one whose certificate has expired; users.

`admin` may do everything, `alice` may use topics, queues and groups whose names begin with "alice" and see
that there is a topic "seen", `bob` nothing.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from posthouse.client import Client, Security
from posthouse.client.permissions import AclOperation, Permission, ResourceKind
from posthouse.testing import ThreadBroker, running_broker
from tests.certificates import Authority
from tests.stored import stored_in
from tests.tls_brokers import tls_broker

USERS = {"admin": "admin's own", "alice": "alice, in wonderland", "bob": "b=b"}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Secured:
    broker: ThreadBroker
    ca: str
    """File of the authority that signed the broker's certificate."""

    @property
    def kafka(self) -> str:
        return self.broker.kafka_tls

    @property
    def amqp_port(self) -> int:
        return int(self.broker.amqp_tls.rpartition(":")[2])

    def client(self, user: str) -> Client:
        """Our own, for what the test is not about."""
        return Client(
            self.kafka, security=Security(ca=Path(self.ca), user=user, password=USERS[user]), timeout=30
        )


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Secured]:
    with tls_broker(authority, USERS, default_partitions=1) as broker:
        made = Secured(broker, str(authority.file))
        with made.client("admin") as admin:
            admin.add_permissions(
                [
                    Permission(
                        user="alice", operation=AclOperation.ALL, kind=kind, name="alice", is_prefix=True
                    )
                    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID)
                ]
                + [
                    Permission(
                        user="alice", operation=AclOperation.DESCRIBE, kind=ResourceKind.TOPIC, name="seen"
                    )
                ]
            )
            for name in ("not-hers", "seen"):
                admin.create_topic(name, partitions=1)
                with admin.producer(name) as producer:
                    producer.send(b"not for everybody")
        yield made


@pytest.fixture(scope="session")
def expired(authority: Authority) -> Iterator[Secured]:
    """A broker whose certificate was good once."""
    identity = authority.issue(expired=True)
    with running_broker(
        **stored_in(), users=USERS, tls_certificate=identity.certificate, tls_key=identity.key
    ) as broker:
        yield Secured(broker, str(authority.file))


@pytest.fixture
def name() -> str:
    """One that is alice's."""
    return f"alice-{next(_numbers)}"


@pytest.fixture
def topic(secured: Secured, name: str) -> str:
    """A topic of hers, with one partition."""
    with secured.client("alice") as client:
        client.create_topic(name, partitions=1)
    return name

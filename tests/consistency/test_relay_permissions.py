"""A relay whose user has just the permissions that docs/outbox.md asks for."""

from posthouse.client import Client, Security
from posthouse.client.permissions import AclOperation, Permission, ResourceKind
from posthouse.consistency.databases import Database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.relay import Counts, Relay
from posthouse.testing import running_broker
from tests.consistency.relays import publish, table_of, values

ADMIN = Security(user="admin", password="secret-1")
RELAY = Security(user="relay", password="secret-2")


def write(kind: ResourceKind, name: str, *, is_prefix: bool = False) -> Permission:
    return Permission(user="relay", operation=AclOperation.WRITE, kind=kind, name=name, is_prefix=is_prefix)


def test_topics_that_it_may_write_to_and_others(url: str, database: Database) -> None:
    with (
        running_broker(users={"admin": "secret-1", "relay": "secret-2"}) as broker,
        Client(broker.kafka, security=ADMIN) as admin,
    ):
        for topic in ("orders", "salaries"):
            admin.create_topic(topic, partitions=1)
        admin.add_permissions(
            [
                write(ResourceKind.TOPIC, "orders"),
                write(ResourceKind.TRANSACTIONAL_ID, "outbox-", is_prefix=True),
            ]
        )
        publish(url, "salaries", "no", key="k")
        publish(url, "orders", "1", "2", key="k")
        publish(url, "salaries", "nor this", key="k")
        with LogTarget(broker.kafka, security=RELAY) as target:
            relay = Relay(table_of(database), target, Counts())
            assert relay.send_all() == 2 and relay.counts.set_aside == 2
        assert values(admin, "orders") == ["1", "2"] and not values(admin, "salaries")
        failures = table_of(database).failures(10)
        assert {(topic, "posthouse acl allow" in reason) for _, _, topic, reason in failures} == {
            ("salaries", True)
        }
        admin.add_permissions([write(ResourceKind.TOPIC, "salaries")])
        assert table_of(database).retry_failed() == 2
        with LogTarget(broker.kafka, security=RELAY) as target:
            assert Relay(table_of(database), target, Counts()).send_all() == 2
        assert values(admin, "salaries") == ["no", "nor this"]

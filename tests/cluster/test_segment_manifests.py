"""Manifests of a cluster over the wire: every broker answers, and nobody sees what he may not read."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from posthouse.client import Client, Security
from posthouse.client.errors import RequestRefused
from posthouse.client.manifests import NoSegmentObjects, SegmentManifest, WantedRange
from posthouse.client.permissions import AclOperation, Permission, ResourceKind
from posthouse.settings import Authentication
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.testing import ThreadBroker, running_broker
from tests.consolidated import consolidate

pytestmark = pytest.mark.timeout(120)

Sql = psycopg.Connection[tuple[object, ...]]
SIGNED = "https://objects.example/"
USERS = {"root": "secret", "reader": "secret"}


async def sign(keys: Sequence[str], seconds: float) -> list[str]:
    return [SIGNED + key for key in keys]


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "objects").mkdir()
    return f"file://{tmp_path}/objects"


@pytest.fixture
def brokers(url: str, sql: Sql, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ThreadBroker]]:
    """A coordinator and a member, which have to be logged in to. The coordinator keeps all logs, so that
    small ones share objects."""
    monkeypatch.setattr(DirectoryObjectStore, "sign", property(lambda store: sign))
    place: dict[str, Any] = {"database": url, "objects": store}
    login: dict[str, Any] = {"authentication": Authentication.REQUIRED, "superusers": ("root",)}
    with ExitStack() as stack:
        first = stack.enter_context(running_broker(users=USERS, **place))
        sql.execute("UPDATE scope SET wanted = (SELECT id FROM broker) WHERE name LIKE 'housekeeping/%'")
        yield [first, stack.enter_context(running_broker(**place, **login))]


def connected(broker: ThreadBroker, user: str = "root") -> Client:
    return Client(broker.kafka, security=Security(user=user, password=USERS[user]))


def fill(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number)


def manifest_of(client: Client, topic: str, *, signed: bool = True, end: int = 10) -> SegmentManifest:
    return client.segment_manifest([WantedRange(client.topic(topic).id, 0, 0, end)], signed=signed)


def bases(found: SegmentManifest) -> list[int]:
    [only] = found.ranges
    return [each.base for each in only.segments]


def allow(client: Client, topic: str) -> None:
    client.add_permissions(
        [Permission(user="reader", operation=AclOperation.READ, kind=ResourceKind.TOPIC, name=topic)]
    )


def until(look: Callable[[], object], expected: object) -> None:
    """Other brokers hear of a change a moment later."""
    deadline = time.monotonic() + 30
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_every_broker_answers(brokers: list[ThreadBroker], url: str, store: str) -> None:
    with connected(brokers[0]) as client, connected(brokers[1]) as other:
        client.create_topic("orders", partitions=1)
        fill(other, "orders")
        consolidate(url, store)
        found = manifest_of(other, "orders")
        assert bases(found) == [0]
        assert found.hold is not None
        assert all(each.address.startswith(SIGNED) for each in found.ranges[0].segments)
        assert client.renew_hold(found.hold), "at another broker than that which has made it"
        client.release_hold(found.hold)
        assert not other.renew_hold(found.hold)


def test_what_a_reader_may_see(brokers: list[ThreadBroker], url: str, store: str) -> None:
    with connected(brokers[0]) as root, connected(brokers[1], "reader") as reader:
        for topic in ("mine", "theirs"):
            root.create_topic(topic, partitions=1)
        fill(root, "mine")
        consolidate(url, store)
        fill(root, "mine")
        fill(root, "theirs")
        consolidate(url, store)  # both in one object
        ids = {topic: root.topic(topic).id for topic in ("mine", "theirs")}
        wanted = [WantedRange(ids[topic], 0, 0, 20) for topic in ("mine", "theirs")]

        def seen(by: Client = reader, *, signed: bool = True) -> list[list[int]]:
            found = by.segment_manifest(wanted, signed=signed)
            return [[each.base for each in some.segments] for some in found.ranges]

        assert seen() == [[], []]
        assert reader.segment_manifest(wanted).hold is None
        allow(root, "mine")
        until(seen, [[0], []])
        assert seen(signed=False) == [[0, 10], []], "a key is no secret"
        allow(root, "theirs")
        until(seen, [[0, 10], [0]])
        # Its records stay in the object of both: they could be anybody's.
        root.delete_topic("theirs")
        until(seen, [[0], []])
        assert seen(root) == [[0, 10], []]


def test_what_is_wrong_with_a_range_is_left_to_the_fetch(
    brokers: list[ThreadBroker], url: str, store: str
) -> None:
    with connected(brokers[1]) as client:
        client.create_topic("orders", partitions=1)
        fill(client, "orders")
        consolidate(url, store)
        id = client.topic("orders").id
        client.trim_topic("orders", {0: 4})
        wanted = [(id, 0, 0, 10), (id, 0, 4, 10), (id, 7, 0, 10), (bytes(16), 0, 0, 10), (id, 0, 10, 10)]
        found = client.segment_manifest([WantedRange(*each) for each in wanted])
        assert [[each.base for each in some.segments] for some in found.ranges] == [[], [4], [], [], []]


def test_too_many_ranges_at_once(brokers: list[ThreadBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(brokers[0]) as client:
        client.create_topic("orders", partitions=1)
        wanted = [WantedRange(client.topic("orders").id, 0, 0, 10)] * 1001
        assert len(client.segment_manifest(wanted).ranges) == 1001
        monkeypatch.setattr("posthouse.client.manifests._RANGES_AT_ONCE", 1001)
        with pytest.raises(RequestRefused, match="at most 1000 ranges"):
            client.segment_manifest(wanted)


def test_a_store_without_addresses(
    brokers: list[ThreadBroker], url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(brokers[0]) as client:
        client.create_topic("orders", partitions=1)
        fill(client, "orders")
        consolidate(url, store)
        objects = brokers[0].broker.app.broker.segment_objects
        monkeypatch.setattr(objects, "_sign", None)
        with pytest.raises(NoSegmentObjects, match="no signed addresses"):
            manifest_of(client, "orders")
        assert bases(manifest_of(client, "orders", signed=False)) == [0]

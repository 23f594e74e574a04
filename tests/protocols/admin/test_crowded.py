"""10,000 queues and 5,000 topics: overviews and lists take less than 100 ms, and none blocks the event loop.

`metrics/test_many_objects.py` says the same of /metrics. Measured is the processor time of the broker's
thread, as on a quiet machine (`tests/yardstick.py`).
"""

import gc
from collections.abc import Iterator

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.users import User
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.topics import NewTopic
from posthouse.testing import AsyncBroker, ThreadBroker
from tests.protocols.admin.many_queues import add_queues
from tests.protocols.admin.test_scale import Filled
from tests.protocols.admin.turn_times import MOST_SECONDS

TOPICS = 5000
QUEUES = 10_000
BINDINGS = 3000
ACLS = 4000
USERS = 500
_ANSWER_SECONDS = 0.100
_ROUNDS = 4

ANSWERED = (
    "/v1/overview",
    "/v1/topics",
    "/v1/topics?limit=1000&after=topic-03000",
    "/v1/queues",
    "/v1/queues?limit=1000&after=%252F/q08000",
    "/v1/queues?search=999",
    "/v1/queues?state=unconsumed",
    "/v1/exchanges",
    "/v1/bindings?limit=1000",
    "/v1/connections",
    "/v1/groups",
    "/v1/acls?limit=1000",
    "/v1/users?limit=1000",
    "/v1/disk?limit=1000",
    "/api/overview",
    "/api/vhosts",
    "/api/nodes",
    "/api/queues?page=1&page_size=500",
    "/api/queues?page=1&sort=messages&sort_reverse=true",
    "/api/queues?page=2&name=99",
    "/api/queues?columns=name,messages,consumers",
    "/api/exchanges",
    "/api/bindings?page=1",
    "/api/consumers",
    "/api/permissions",
)
STREAMED = ("/api/queues", "/api/bindings", "/api/definitions")
"""Whole: their first bytes come at once, all of them take longer."""


@pytest.fixture(scope="module")
def crowded() -> Iterator[Filled]:
    with (
        ThreadBroker(users={"admin": "secret"}) as broker,
        httpx.Client(base_url=f"http://{broker.admin}", auth=("admin", "secret"), timeout=60) as http,
    ):
        found = Filled(broker, http)
        found.do(_fill(broker.broker))
        gc.collect()
        gc.freeze()  # a collection before each call would take most of the time
        yield found
        gc.unfreeze()


async def _fill(broker: AsyncBroker) -> None:
    inner = broker.app.broker
    for start in range(0, TOPICS, 500):
        new = [NewTopic(name=f"topic-{each:05}", partitions=1) for each in range(start, start + 500)]
        await inner.create_topics(new)
    await add_queues(broker, QUEUES)
    namespace = inner.namespaces.get("/")
    for each in range(BINDINGS):
        namespace.router.bind(Binding(source="amq.topic", destination=f"q{each:05}", key=b"key"))
    for each in range(USERS):
        inner.access.users._users[f"user-{each}"] = User(f"user-{each}")
    acls = [
        Acl(kind=Kind.TOPIC, name=f"t{each}", principal=f"User:user-{each % USERS}", operation=Operation.READ)
        for each in range(ACLS)
    ]
    await inner.access.acls.add(acls)


@pytest.mark.parametrize("path", ANSWERED)
def test_an_answer_comes_soon_and_blocks_nothing(crowded: Filled, path: str) -> None:
    crowded.get(path)  # caches and sorted lists are made
    probes = [crowded.get(path)[1] for _ in range(_ROUNDS)]
    longest, whole = min(each.longest for each in probes), min(each.seconds for each in probes)
    print(f"{path}: {whole * 1000:.1f} ms, at once {longest * 1000:.1f} ms")
    assert longest < MOST_SECONDS
    assert whole < _ANSWER_SECONDS


@pytest.mark.parametrize("path", STREAMED)
def test_a_whole_list_blocks_nothing(crowded: Filled, path: str) -> None:
    _, probe = crowded.least_blocked(path)
    print(f"{path}: {probe.seconds * 1000:.1f} ms, at once {probe.longest * 1000:.1f} ms")
    assert probe.longest < MOST_SECONDS


def test_events_of_every_kind_block_nothing(crowded: Filled) -> None:
    longest = []
    for number in range(3):
        with crowded.http.stream("GET", "/v1/events") as response:
            lines = response.iter_lines()
            assert "ready" in next(line for line in lines if line.startswith("event"))
            with crowded.probed() as probe:
                crowded.http.put(f"/api/queues/%2F/new-{number}", json={}).raise_for_status()
                assert any(f'"new-{number}"' in line for line in lines)
            longest.append(probe.longest)
        crowded.http.delete(f"/api/queues/%2F/new-{number}").raise_for_status()
    assert min(longest) < MOST_SECONDS


def test_everything_is_there(crowded: Filled) -> None:
    overview, _ = crowded.get("/v1/overview")
    assert (overview["topics"], overview["queues"]) == (TOPICS, QUEUES)
    definitions, _ = crowded.get("/api/definitions")
    assert (len(definitions["queues"]), len(definitions["bindings"])) == (QUEUES, BINDINGS)
    assert len(definitions["permissions"]) == USERS + 1
    assert crowded.get("/v1/bindings")[0]["total"] == BINDINGS

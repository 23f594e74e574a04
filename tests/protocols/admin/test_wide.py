"""A topic of very many partitions, and groups that read them all: no call blocks the event loop."""

import gc
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.consumer_member import Beat
from posthouse.broker.groups.membership import MemberClient, MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId, MemberId
from posthouse.testing import ThreadBroker
from tests.protocols.admin.test_scale import Filled

PARTITIONS = 10_000
_MOST_SECONDS = 0.020
_COMMIT_SECONDS = 0.100
"""All offsets of a reset are committed together, as in a request of Kafka's."""
MEMBERLESS = MemberIdentity(member=MemberId(""))


@pytest.fixture(scope="module")
def wide() -> Iterator[Filled]:
    with (
        ThreadBroker() as broker,
        httpx.Client(base_url=f"http://{broker.admin}", timeout=60) as http,
    ):
        found = Filled(broker, http)
        found.do(_fill(broker.broker.app.broker))
        gc.collect()
        gc.freeze()  # a collection before each call would take most of the time
        yield found
        gc.unfreeze()


async def _fill(broker: Broker) -> None:
    await broker.create_topics([NewTopic(name="wide", partitions=PARTITIONS)])
    new = [NewOffset(partition=each, offset=0) for each in broker.topic("wide").partition_ids()]
    await broker.groups.offsets.commit(GroupId("idle"), MEMBERLESS, new)
    beat = Beat(
        member=MemberId("m"),
        epoch=0,
        client=MemberClient(id="app", host="/10.0.0.1"),
        rebalance_seconds=10,
        topics=frozenset({"wide"}),
        owned=frozenset(),
    )
    broker.groups.beat(GroupId("busy"), beat)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics",
        "/v1/topics/wide",
        "/v1/groups",
        "/v1/groups/idle?limit=10000",
        "/v1/groups/busy?limit=10000",
        "/v1/topics/wide/records",
    ],
)
def test_no_call_blocks_the_event_loop(wide: Filled, path: str) -> None:
    _, probe = wide.least_blocked(path)
    assert probe.longest < _MOST_SECONDS


@pytest.mark.parametrize("to", ["earliest", "time:2026-01-01", "shift:-1"])
def test_a_reset_does_not_block_the_event_loop(wide: Filled, to: str) -> None:
    for is_dry in (True, False):
        longest: list[float] = []
        for _ in range(5):
            with wide.probed() as probe:
                reset = {"to": to, "topics": ["wide"], "dry_run": is_dry}
                response = wide.http.post("/v1/groups/idle/reset", json=reset)
            assert response.status_code == 200, response.text
            longest.append(probe.longest)
        # The least of some tries: others on the machine disturb it least.
        assert min(longest) < (_MOST_SECONDS if is_dry else _COMMIT_SECONDS)


def test_events_do_not_block_the_event_loop(wide: Filled) -> None:
    with wide.http.stream("GET", "/v1/events?topics=topics,groups") as response:
        lines = response.iter_lines()
        assert "ready" in next(line for line in lines if line.startswith("event"))
        inner = wide.broker.broker.app.broker
        with wide.probed() as probe:
            wide.do(inner.create_topics([NewTopic(name="new", partitions=1)]))
            assert any('"new"' in line for line in lines)
        wide.do(inner.delete_topics([inner.topic("new")]))
    assert probe.longest < _MOST_SECONDS


def test_pages_of_partitions(wide: Filled) -> None:
    seen: list[int] = []
    after: Any = 0
    while after is not None:
        found, _ = wide.get(f"/v1/topics/wide?limit=700&after={after}")
        assert (len(found["partitions"]) <= 700, found["partitions_total"]) == (True, PARTITIONS)
        seen += [each["partition"] for each in found["partitions"]]
        after = found["next"]
    assert seen == list(range(PARTITIONS))
    assert len(wide.get("/v1/topics/wide")[0]["partitions"]) == 1000
    assert wide.http.get("/v1/topics/wide?after=x").status_code == 400

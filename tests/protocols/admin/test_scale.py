"""Many topics and groups: lists stay quick, and no call blocks the event loop.

Measured is the processor time of the broker's thread, as on a quiet machine (`tests/yardstick.py`).
"""

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId, MemberId
from posthouse.testing import ThreadBroker
from tests.protocols.admin.turn_times import MOST_SECONDS
from tests.yardstick import slowness

TOPICS = 5000
GROUPS = 3000
LARGE = "topic-with-many-partitions"
_TRIVIAL = "/health/live"
_MOST_TIMES_TRIVIAL = 200


class Probe:
    """Lives in the broker's event loop: how much processor time passes between two of its turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last = 0.0
        self._is_over = threading.Event()
        self._longest = 0.0
        self._began = self._ended = 0.0
        self._slowness = 1.0

    def start(self) -> None:
        self._last = self._began = time.thread_time()
        self._turn()

    def _turn(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._last)
        self._last = self._ended = now
        if self._is_over.is_set():
            return
        self._loop.call_later(0.0005, self._turn)

    @property
    def longest(self) -> float:
        """Seconds of one turn, once stopped, as on a quiet machine."""
        return self._longest / self._slowness

    @property
    def seconds(self) -> float:
        """Of all turns."""
        return (self._ended - self._began) / self._slowness

    def stop(self) -> None:
        self._is_over.set()
        self._slowness = slowness()


class Filled:
    """A broker with very much in it, and a client of its HTTP API."""

    def __init__(self, broker: ThreadBroker, http: httpx.Client) -> None:
        assert broker._loop is not None
        self._loop = broker._loop
        self.broker = broker
        self.http = http

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def probed(self) -> Iterator[Probe]:
        probe = Probe(self._loop)
        self._loop.call_soon_threadsafe(probe.start)
        # A full collection of what the test made would be counted, too. `serve` has a collector of its own.
        gc.collect()
        gc.disable()
        try:
            yield probe
            self.do(asyncio.sleep(0.002))
        finally:
            gc.enable()
            probe.stop()

    def get(self, path: str) -> tuple[Any, Probe]:
        with self.probed() as probe:
            response = self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json(), probe

    def least_blocked(self, path: str) -> tuple[Any, Probe]:
        """The best of some calls: work of the broker's own may fall into one of them."""
        self.get(path)  # caches and sorted lists are made
        return min((self.get(path) for _ in range(3)), key=lambda each: each[1].longest)


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
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
    for start in range(0, TOPICS, 500):
        await broker.create_topics(
            [NewTopic(name=f"topic-{each:05}", partitions=2) for each in range(start, start + 500)]
        )
    places = [topic.partition(0) for topic in broker.topics]
    nobody = MemberIdentity(member=MemberId(""))
    for group in range(GROUPS):
        new = [NewOffset(partition=places[(group + each) % TOPICS], offset=0) for each in range(3)]
        await broker.groups.offsets.commit(GroupId(f"group-{group:05}"), nobody, new)
    await broker.create_topics([NewTopic(name=LARGE, partitions=50_000)])
    everything = [NewOffset(partition=each, offset=0) for each in places]
    await broker.groups.offsets.commit(GroupId("everything"), nobody, everything)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/overview", 0),
        ("/v1/topics", 100),
        ("/v1/topics?limit=1000", 1000),
        ("/v1/topics?search=999&limit=1000", 5),
        ("/v1/topics?after=topic-04900&limit=1000", 100),
        (f"/v1/topics/{LARGE}", 0),
        (f"/v1/topics/{LARGE}/records", 0),
        ("/v1/groups", 100),
        ("/v1/groups?limit=1000&after=group-01000", 1000),
        ("/v1/groups/everything?limit=10000", 0),
        ("/v1/disk?limit=1000", 0),
        ("/v1/settings", 0),
        ("/v1/connections", 1),
        ("/v1/transactions", 0),
    ],
)
def test_no_call_blocks_the_event_loop(filled: Filled, path: str, expected: int) -> None:
    answer, probe = filled.least_blocked(path)
    assert len(answer.get("items", ())) == expected
    assert probe.longest < MOST_SECONDS
    _, trivial = filled.get(_TRIVIAL)
    assert probe.seconds < _MOST_TIMES_TRIVIAL * trivial.seconds


def test_events_do_not_block_the_event_loop(filled: Filled) -> None:
    broker = filled.broker.broker.app.broker
    longest = []
    for name in ("new-1", "new-2", "new-3"):
        with filled.http.stream("GET", "/v1/events") as response:
            lines = response.iter_lines()
            assert "ready" in next(line for line in lines if line.startswith("event"))
            with filled.probed() as probe:
                filled.do(broker.create_topics([NewTopic(name=name, partitions=1)]))
                assert any(f'"{name}"' in line for line in lines)
        filled.do(broker.delete_topics([broker.topic(name)]))
        longest.append(probe.longest)
    assert min(longest) < MOST_SECONDS, longest


def test_a_reset_of_very_many_partitions_does_not_block_the_event_loop(filled: Filled) -> None:
    broker = filled.broker.broker.app.broker
    filled.do(broker.create_topics([NewTopic(name="wide", partitions=10_000)]))
    longest = []
    for target in ("earliest", "latest", "offset:0"):
        with filled.probed() as probe:
            answer = filled.http.post("/v1/groups/wide/reset", json={"to": target, "topics": ["wide"]})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["changes"]) == 10_000
        longest.append(probe.longest)
    assert len(broker.groups.offsets.partitions(GroupId("wide"))) == 10_000
    filled.do(broker.delete_topics([broker.topic("wide")]))
    assert min(longest) < MOST_SECONDS, longest

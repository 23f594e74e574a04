"""Server-sent events: what is pushed, to whom, and how much waits for a slow reader."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aio_pika
import httpx
import msgspec
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.admin import event_sources, events
from posthouse.protocols.admin.events import EventHub, EventSource, EventStream, Sample
from posthouse.protocols.admin.handlers import events as handler
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, answered, client


class Stream:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.comments = 0

    async def next(self) -> tuple[str, Any]:
        """Kind and data of the next event."""
        kind = ""
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, json.loads(value)
            elif line.startswith(":"):
                self.comments += 1
        raise EOFError

    async def until(self, kind: str, part: str, name: str) -> Any:
        """Wait until an event of a kind has an object in a part of it; the object."""
        while True:
            found, data = await self.next()
            for each in data[part] if found == kind else ():
                if each == name or (isinstance(each, dict) and name in each.values()):
                    return each


@asynccontextmanager
async def listening(http: httpx.AsyncClient, topics: str = "") -> AsyncIterator[Stream]:
    async with asyncio.timeout(30), http.stream("GET", "/v1/events", params={"topics": topics}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        stream = Stream(response.aiter_lines())
        assert (await stream.next())[0] == "ready"
        yield stream


async def test_the_overview_has_what_rates_are_made_of() -> None:
    async with AsyncBroker() as broker, client(broker) as http, listening(http, "overview") as stream:
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        answered(await http.post("/v1/topics/t/records", json={"records": [{"value": "x"}] * 3}))
        while True:
            _, data = await stream.next()
            if data["changed"][0]["traffic"]["records_in"] == 3:
                break


async def test_kinds_that_change_rarely_are_sampled_rarely() -> None:
    class Rare(Things):
        seconds = 3600.0

    rare, things = Rare(), Things()
    hub = EventHub(lambda hub: {"rare": rare, "things": things})
    listener = EventStream(["rare", "things"], CLOSED)
    await hub.listen(listener)
    for _ in range(3):
        await _sampled(things)
    hub.leave(listener)
    assert rare.samples <= 2


async def test_topics_that_come_change_and_go() -> None:
    async with AsyncBroker() as broker, client(broker) as http, listening(http, "topics,overview") as stream:
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        added = await stream.until("topics", "added", "t")
        assert (added["records"], added["partitions"]) == (0, 1)
        answered(await http.post("/v1/topics/t/records", json={"records": [{"value": "x"}]}))
        assert (await stream.until("topics", "changed", "t"))["records"] == 1
        answered(await http.delete("/v1/topics/t"), 204)
        await stream.until("topics", "removed", "t")


async def test_every_kind() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        inner = broker.app.broker
        async with listening(http, "groups,queues,connections,transactions,overview") as stream:
            await transactional.write(inner, "tx", "t", "x")
            new = [NewOffset(partition=inner.topic("t").partition(0), offset=0)]
            await inner.groups.offsets.commit(GroupId("g"), MemberIdentity(member=MemberId("")), new)
            connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
            channel = await connection.channel()
            await channel.declare_queue("jobs", durable=True)
            missing = {
                ("groups", "added"): "g",
                ("queues", "added"): "jobs",
                ("connections", "added"): "amqp",
                ("transactions", "added"): "tx",
                ("overview", "changed"): "",
            }
            while missing:
                kind, data = await stream.next()
                for part in ("added", "changed"):
                    wanted = missing.get((kind, part))
                    if wanted is not None and any(wanted in str(each) for each in data[part]):
                        del missing[kind, part]
            await connection.close()


async def test_what_people_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("Exchange", "Binding", "User", "Acl", "Quota"):
        monkeypatch.setattr(getattr(event_sources, f"{source}Source"), "seconds", 0.0)
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        listening(admin, "exchanges,bindings,users,acls,quotas,brokers") as stream,
    ):
        answered(await admin.put("/api/queues/%2F/q", json={}), 201)
        answered(await admin.put("/api/exchanges/%2F/news", json={"type": "topic"}), 201)
        answered(await admin.post("/api/bindings/%2F/e/news/q/q", json={"routing_key": "a.#"}), 201)
        answered(await admin.put("/v1/users/bob", json={"password": "secret"}))
        acl = {"principal": "User:bob", "operation": "read", "kind": "topic", "name": "q"}
        answered(await admin.post("/v1/acls", json={"acls": [acl]}), 201)
        answered(await admin.put("/v1/quotas", json={"user": "bob", "rates": {"producer_byte_rate": 5}}))
        missing = {
            "exchanges": "news",
            "bindings": "a.#",
            "users": "bob",
            "acls": "User:bob",
            "quotas": "bob",
        }
        while missing:
            kind, data = await stream.next()
            if kind in missing and any(missing[kind] in each.values() for each in data["added"]):
                del missing[kind]
        answered(await admin.delete("/api/exchanges/%2F/news"), 204)
        await stream.until("exchanges", "removed", "%2F/news")


async def test_a_user_hears_of_what_the_acls_allow() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        acl = Acl(kind=Kind.TOPIC, name="hers", principal="User:ann", operation=Operation.DESCRIBE)
        await broker.app.broker.access.acls.add([acl])
        for kind in ("overview", "connections", "users", "acls", "quotas", "brokers"):
            answered(await ann.get(f"/v1/events?topics={kind}"), 403)
        async with listening(ann) as stream:
            for name in ("others", "hers"):
                answered(await admin.post("/v1/topics", json={"name": name, "partitions": 1}), 201)
            kind, data = await stream.next()
            assert (kind, [each["name"] for each in data["added"]]) == ("topics", ["hers"])


async def test_unknown_kinds() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        problem = answered(await http.get("/v1/events?topics=weather"), 400)
        assert "'weather'" in problem["detail"]


async def test_streams_end_at_shutdown_and_the_sampler_with_its_last_listener() -> None:
    broker = AsyncBroker()
    await broker.__aenter__()
    async with client(broker) as http, listening(http) as stream:
        assert _is_sampling()
        stopping = asyncio.create_task(broker.__aexit__(None, None, None))
        with pytest.raises(EOFError):
            while True:
                await stream.next()
        await asyncio.wait_for(stopping, 5)
    assert not _is_sampling()


async def test_the_sampler_ends_with_its_last_listener() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        async with listening(http):
            assert _is_sampling()
        async with asyncio.timeout(30):
            while _is_sampling():
                await asyncio.sleep(0.01)


async def test_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_HEARTBEAT_SECONDS", 0.05)
    async with AsyncBroker() as broker, client(broker) as http, listening(http, "topics") as stream:
        await asyncio.sleep(0.2)
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        await stream.until("topics", "added", "t")
        assert stream.comments > 0


def _is_sampling() -> bool:
    return any("EventHub._run" in repr(task.get_coro()) for task in asyncio.all_tasks())


class Thing(msgspec.Struct, frozen=True):
    name: str
    number: int = 0


class Things:
    """A source that a test changes."""

    seconds = 0.0

    def __init__(self) -> None:
        self.now: dict[str, msgspec.Struct] = {}
        self.samples = 0

    def __call__(self, hub: EventHub) -> Mapping[str, EventSource]:
        return {"things": self}

    def sees(self, guard: Guard, summary: Any) -> bool:
        return True

    async def sample(self) -> Sample:
        self.samples += 1
        return dict(self.now)


async def _sampled(things: Things) -> None:
    """Two more samples: what was changed before has been compared."""
    before = things.samples
    async with asyncio.timeout(30):
        while things.samples < before + 2:
            await asyncio.sleep(0)


async def test_what_waits_for_a_slow_listener_is_merged() -> None:
    things = Things()
    things.now = {"old": Thing("old"), "gone": Thing("gone")}
    hub, listener = EventHub(things), EventStream(["things"], CLOSED)
    await hub.listen(listener)
    for number in range(3):
        things.now = {"old": Thing("old", number + 1), "new": Thing("new", number), "brief": Thing("brief")}
        await _sampled(things)
    del things.now["brief"]
    await _sampled(things)
    changes = (await listener.next(30))["things"]
    assert (changes.added, changes.changed) == ([Thing("new", 2)], [Thing("old", 3)])
    assert (changes.removed, changes.reload) == (["gone"], False)
    things.now["gone"] = Thing("gone", 9)
    await _sampled(things)
    assert (await listener.next(30))["things"].added == [Thing("gone", 9)]
    assert await listener.next(0) == {}
    hub.leave(listener)


async def test_too_much_for_one_event_is_a_word_to_load_the_list() -> None:
    things = Things()
    hub, listener = EventHub(things), EventStream(["things"], CLOSED)
    await hub.listen(listener)
    for number in range(3):
        things.now = {f"{number}-{each}": Thing(str(each)) for each in range(events._MOST_CHANGES + 1)}
        await _sampled(things)
    changes = (await listener.next(30))["things"]
    assert (changes.added, changes.changed, changes.removed, changes.reload) == ([], [], [], True)
    hub.leave(listener)


async def test_a_failing_source_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Things):
        async def sample(self) -> Sample:
            found = await super().sample()
            if self.samples == 2:
                raise RuntimeError("broken")
            return found

    things = Failing()
    hub, listener = EventHub(things), EventStream(["things"], CLOSED)
    await hub.listen(listener)
    things.now = {"new": Thing("new")}
    assert (await listener.next(30))["things"].added == [Thing("new")]
    assert "missing a sample" in caplog.text
    hub.leave(listener)


async def test_listeners_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MOST_LISTENERS", 1)
    async with AsyncBroker() as broker, client(broker) as http, listening(http):
        answered(await http.get("/v1/events"), 503)


async def test_one_user_cannot_take_all_streams() -> None:
    async with AsyncBroker(users=USERS) as broker, AsyncExitStack() as stack:
        ann = await stack.enter_async_context(client(broker, "ann"))
        admin = await stack.enter_async_context(client(broker, "admin"))
        for _ in range(events._MOST_LISTENERS_OF_ONE):
            await stack.enter_async_context(listening(ann, "topics"))
        problem = answered(await ann.get("/v1/events?topics=topics"), 429)
        assert "User:ann" in problem["detail"]
        await stack.enter_async_context(listening(admin, "topics"))


async def test_the_sampler_rests_after_a_slow_sample() -> None:
    samples = 0

    class Slow:
        seconds = 0.0

        async def sample(self) -> Sample:
            nonlocal samples
            samples += 1
            await asyncio.sleep(0.05)
            return {}

        def sees(self, guard: Guard, summary: Any) -> bool:
            return True

    hub, listener = EventHub(lambda hub: {"things": Slow()}), EventStream(["things"], CLOSED)
    await hub.listen(listener)
    await asyncio.sleep(0.6)
    hub.leave(listener)
    assert samples <= 4

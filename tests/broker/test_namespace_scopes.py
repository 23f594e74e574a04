"""Namespaces that a broker takes and gives up: nothing is lost, and nothing is used afterwards."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.broker import Broker
from posthouse.broker.funnel.limits import UNLIMITED, DeliveryLimits
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.due_elsewhere import due_put
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import (
    CoordinatorLoading,
    NotCoordinator,
    NotLeader,
    Unavailable,
    UnknownNamespace,
)
from posthouse.model.scopes import scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.records.raw import NO_HEADERS
from posthouse.storage.spaces import Space
from tests.broker.members import Pair, pair, started
from tests.broker.queues.rig import values_of

SESSION = object()
OTHER = "billing"
SCOPE = scope_of_namespace("/")
OTHERS = scope_of_namespace(OTHER)
DELAYED = ExchangeDefinition(name="later", kind=ExchangeKind.FANOUT, delayed=True)


@pytest.fixture
async def brokers() -> AsyncIterator[Pair]:
    """The coordinator holds the default namespace, the member another one."""
    assert SCOPE != OTHERS
    async with pair(namespaces=(OTHER,)) as made, started(made.member):
        await made.scopes.move(OTHERS, made.member)
        yield made


def batch(topic: Topic, value: bytes = b"value") -> Produced:
    builder = BatchBuilder()
    builder.add(None, value, timestamp=1_700_000_000_000)
    return Produced(topic, 0, memoryview(builder.build()))


async def publish(broker: Broker, namespace: Namespace, queue: str, value: bytes, delay_ms: int = 0) -> None:
    done = asyncio.get_running_loop().create_future()
    wave = broker.publishing.wave
    exchange = namespace.exchange("later") if delay_ms else namespace.router.default
    namespace.publish(exchange, queue.encode(), value, Envelope(headers=NO_HEADERS, delay_ms=delay_ms), wave)
    wave.on_end(done.set_result)
    assert await done is None


def queue_in(namespace: Namespace, name: str = "q") -> Queue:
    queue = namespace.queues[name]
    assert isinstance(queue, Queue)
    return queue


async def declare(namespace: Namespace, name: str = "q") -> None:
    await namespace.declare_queue(QueueDefinition(name=name), SESSION)


async def test_each_broker_serves_the_namespaces_that_it_holds(brokers: Pair) -> None:
    own, other = brokers.coordinator.namespaces, brokers.member.namespaces
    assert own.configured == other.configured == ("/", OTHER)
    await declare(own.get("/"))
    await declare(other.get(OTHER))
    await publish(brokers.coordinator, own.get("/"), "q", b"1")
    await publish(brokers.member, other.get(OTHER), "q", b"2")
    assert await values_of(queue_in(own.get("/"))) == [b"1"]
    assert await values_of(queue_in(other.get(OTHER))) == [b"2"]
    for namespaces, name in ((own, OTHER), (other, "/")):
        with pytest.raises(NotCoordinator):
            namespaces.get(name)
    with pytest.raises(UnknownNamespace):
        own.get(next(name for name in map(str, range(1000)) if own.held.serves(name)))


async def test_a_namespace_moves_with_all_that_is_in_it(brokers: Pair) -> None:
    before = brokers.coordinator.namespaces.get("/")
    await before.declare_exchange(DELAYED)
    await declare(before)
    await before.bind(Binding(source="later", destination="q", to_exchange=False, key=b"", arguments={}))
    await publish(brokers.coordinator, before, "q", b"1")
    await publish(brokers.coordinator, before, "q", b"later", delay_ms=60_000)
    assert brokers.coordinator.scheduled_messages == 1
    await brokers.scopes.move(SCOPE, brokers.member)
    assert brokers.coordinator.scheduled_messages == 0
    after = brokers.member.namespaces.get("/")
    assert await values_of(queue_in(after)) == [b"1"]
    assert brokers.member.scheduled_messages == 1
    brokers.clock.advance(61)
    async with asyncio.timeout(30):
        while not after.queues["q"].message_count:
            await asyncio.sleep(0.01)
    assert await values_of(queue_in(after)) == [b"later"]


async def test_what_is_given_up_is_not_served(brokers: Pair) -> None:
    namespace = brokers.coordinator.namespaces.get("/")
    await declare(namespace)
    queue = namespace.queues["q"]
    [topic] = await brokers.coordinator.create_topics([NewTopic(name="q", partitions=1)])
    assert isinstance(topic, Topic) and topic.scope == SCOPE
    await brokers.scopes.move(SCOPE, brokers.member)
    assert queue.lanes[0].is_gone and not brokers.coordinator.namespaces.of_scope(SCOPE)
    assert not brokers.coordinator.namespaces.sources.by_topic
    [refused] = await brokers.coordinator.append([batch(topic)]).wait()
    assert isinstance(refused, NotLeader)
    [appended] = await brokers.member.append([batch(await brokers.member.find_topic("q"))]).wait()
    assert isinstance(appended, Appended)
    assert brokers.member.namespaces.get("/").queues["q"].message_count == 1
    with pytest.raises(NotLeader):
        await declare(namespace, "another")


async def test_records_are_refused_while_the_namespace_is_loaded(brokers: Pair) -> None:
    """Its queues are known in part: a record must not miss one of them."""
    await declare(brokers.coordinator.namespaces.get("/"))
    [topic] = await brokers.coordinator.create_topics([NewTopic(name="q", partitions=1)])
    assert isinstance(topic, Topic)
    await brokers.coordinator.release_scope(SCOPE)
    del brokers.scopes.holders[SCOPE]
    shared = brokers.member_storage.shared_state
    shared.is_asked.clear()
    shared.may_answer.clear()
    taking = asyncio.create_task(brokers.scopes.take(brokers.member, SCOPE))
    await shared.is_asked.wait()
    [refused] = await brokers.member.append([batch(brokers.member.topic("q"))]).wait()
    assert isinstance(refused, NotLeader)
    with pytest.raises(CoordinatorLoading):
        brokers.member.namespaces.get("/")
    shared.may_answer.set()
    await taking
    [appended] = await brokers.member.append([batch(brokers.member.topic("q"))]).wait()
    assert isinstance(appended, Appended)
    assert brokers.member.namespaces.get("/").queues["q"].message_count == 1


async def test_a_load_that_fails_leaves_nothing_and_can_be_repeated(brokers: Pair) -> None:
    await declare(brokers.coordinator.namespaces.get("/"))
    await brokers.coordinator.release_scope(SCOPE)
    shared = brokers.member_storage.shared_state
    shared.failure = Unavailable("away")
    with pytest.raises(Unavailable):
        await brokers.member.take_scope(SCOPE)
    assert not brokers.member.holds(SCOPE) and not brokers.member.namespaces.of_scope(SCOPE)
    shared.failure = None
    brokers.scopes.holders[SCOPE] = brokers.member
    await brokers.member.take_scope(SCOPE)
    assert "q" in brokers.member.namespaces.get("/").queues


async def test_calls_under_way_are_waited_for_and_sessions_end_first(brokers: Pair) -> None:
    ended: list[object] = []

    async def end(scope: object) -> None:
        ended.append(scope)

    brokers.coordinator.namespace_scopes.end_sessions = end
    with brokers.coordinator.namespaces.held.used("/"):
        releasing = asyncio.create_task(brokers.coordinator.release_scope(SCOPE))
        async with asyncio.timeout(30):
            while not ended:
                await asyncio.sleep(0)
        assert ended == [SCOPE] and not releasing.done()
        assert brokers.coordinator.namespaces.of_scope(SCOPE), "what is used is not unloaded"
    await releasing
    assert not brokers.coordinator.namespaces.of_scope(SCOPE)


async def test_a_broker_leaves_the_records_of_queues_of_others_alone(brokers: Pair) -> None:
    """Topics that were made for a queue are removed without one, and trimmed to what queues need."""
    namespace = brokers.coordinator.namespaces.get("/")
    await declare(namespace)
    await publish(brokers.coordinator, namespace, "q", b"needed")
    topic = await brokers.member.find_topic("q")
    assert topic.config.retention_consumed
    await declare(brokers.member.namespaces.get(OTHER))
    await brokers.member.refresh(topic.partition_ids())
    await brokers.member.namespaces.retention.reclaim()
    await brokers.member.retention.enforce()
    await brokers.coordinator.refresh_definitions()
    assert brokers.coordinator.topic("q") == topic
    assert brokers.coordinator.bounds(topic, 0).start == 0
    assert await values_of(queue_in(namespace)) == [b"needed"]


async def test_what_a_queue_needs_is_known_at_once_after_a_move(brokers: Pair) -> None:
    namespace = brokers.coordinator.namespaces.get("/")
    await declare(namespace)
    await publish(brokers.coordinator, namespace, "q", b"needed")
    await declare(brokers.member.namespaces.get(OTHER))
    await brokers.member.namespaces.retention.reclaim()  # it has looked at its own queues
    await brokers.scopes.move(SCOPE, brokers.member)
    topic = brokers.member.topic("q")
    await brokers.member.namespaces.get("/").delete_exchange("nothing")
    assert brokers.member.retention._needed(topic.partition(0)) == 0
    await brokers.member.namespaces.retention.reclaim()
    assert brokers.member.retention._needed(topic.partition(0)) == 0


async def test_a_message_that_is_due_in_a_namespace_of_another_broker(brokers: Pair) -> None:
    """From a schedule that was imported, which has the messages of all namespaces."""
    other = brokers.member.namespaces.get(OTHER)
    await declare(other)
    entry = Scheduled(due_ms=brokers.clock.now_ms(), namespace=OTHER, exchange="", key=b"q", value=b"due")
    await brokers.coordinator.namespaces.fire([entry], [])
    assert len(brokers.storage._state[Space.DUE]) == 1
    await brokers.coordinator.namespaces.fire_handed_over()
    assert len(brokers.storage._state[Space.DUE]) == 1, "the other broker does it"
    for _ in range(2):
        await brokers.member.namespaces.fire_handed_over()
    assert await values_of(queue_in(other)) == [b"due"]
    assert not brokers.storage._state[Space.DUE]


def test_messages_that_are_due_at_the_same_time_are_kept_apart() -> None:
    entry = Scheduled(due_ms=5, namespace=OTHER, exchange="", key=b"q", value=b"due")
    assert due_put(entry).key != due_put(entry).key


async def test_limits_on_deliveries_move_with_their_queue(brokers: Pair) -> None:
    before = brokers.coordinator.namespaces.get("/")
    await declare(before)
    limits = DeliveryLimits(rate=50, concurrency=2)
    await before.limits.set("q", limits)
    await brokers.member.namespaces.get(OTHER).declare_queue(QueueDefinition(name="q"), SESSION)
    await brokers.scopes.move(SCOPE, brokers.member)
    after = brokers.member.namespaces
    assert queue_in(after.get("/")).limits == limits
    assert queue_in(after.get(OTHER)).limits == UNLIMITED
    await after.get("/").limits.remove("q")
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert queue_in(brokers.coordinator.namespaces.get("/")).limits == UNLIMITED


async def test_the_next_holder_of_a_scope_counts_places_and_tokens_anew(brokers: Pair) -> None:
    before = brokers.coordinator.namespaces.get("/")
    await declare(before)
    await before.limits.set("q", DeliveryLimits(concurrency=1))
    for value in (b"1", b"2"):
        await publish(brokers.coordinator, before, "q", value)
    assert await queue_in(before).get() is not None
    assert await queue_in(before).get() is None
    await brokers.scopes.move(SCOPE, brokers.member)
    queue = queue_in(brokers.member.namespaces.get("/"))
    again = await queue.get()
    assert again is not None
    assert (again.value, again.redelivered) == (b"1", True)
    assert await queue.get() is None

"""Whole queues against a plain ledger: whatever clients, disks and power cuts do, nothing is lost or comes twice.

Limits are tiny, so that few messages come to the edges of windows, chunks and reservations. Every step ends
when nothing more happens by itself; then what the queues hold is compared with what they must hold.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.queues import expiries, key_order, lane, progress, queue
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.wave import Wave
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError, QueueBlocked, QueueFull, StorageFull
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.engine import FileStorage
from posthouse.storage.interface import Storage
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.queue_ledger import (
    QUEUES,
    SHORT,
    Entry,
    Group,
    Identity,
    Ledger,
    contents,
    identity_of,
)
from tests.broker.queues.rig import SESSION
from tests.storage.stores import crash_copy

T = TypeVar("T")

KINDS = {
    "fan": ExchangeKind.FANOUT,
    "by": ExchangeKind.DIRECT,
    "like": ExchangeKind.TOPIC,
    "marked": ExchangeKind.HEADERS,
    "dead": ExchangeKind.FANOUT,
}
BINDINGS: list[tuple[str, str, bytes, dict[str, object]]] = [
    ("fan", "plain", b"", {}),
    ("fan", "urgent", b"", {}),
    ("fan", "short", b"", {}),
    ("fan", "keyed", b"", {}),
    ("by", "plain", b"a", {}),
    ("by", "patient", b"a", {}),
    ("by", "hasty", b"b", {}),
    ("by", "refusing", b"b", {}),
    ("by", "blocking", b"c", {}),
    ("by", "burying", b"c", {}),
    ("by", "plain", b"c", {}),
    ("like", "urgent", b"x.*", {}),
    ("like", "hasty", b"x.*", {}),
    ("like", "short", b"#.z", {}),
    ("marked", "plain", b"", {"x-match": "all", "mark": "yes"}),
    ("marked", "keyed", b"", {"x-match": "all", "mark": "yes"}),
    ("dead", "graves", b"", {}),
]
ROUTES: list[tuple[str, bytes, bool, list[str]]] = [
    *(("", name.encode(), False, [name]) for name in QUEUES if name != "graves"),
    ("fan", b"", False, ["plain", "urgent", "short", "keyed"]),
    ("fan", b"k1", False, ["plain", "urgent", "short", "keyed"]),
    ("fan", b"k2", False, ["plain", "urgent", "short", "keyed"]),
    ("by", b"a", False, ["plain", "patient"]),
    ("by", b"b", False, ["hasty", "refusing"]),
    ("by", b"c", False, ["blocking", "burying", "plain"]),
    ("by", b"d", False, []),
    ("like", b"x.y", False, ["urgent", "hasty"]),
    ("like", b"x.z", False, ["urgent", "hasty", "short"]),
    ("like", b"z", False, ["short"]),
    ("marked", b"k1", True, ["plain", "keyed"]),
    ("marked", b"k1", False, []),
]
"""Exchange, key, whether it carries the mark, and the queues that get it."""

WINDOW = 6
names = st.sampled_from(list(QUEUES))
routes = st.sampled_from(ROUTES)
publishes = st.tuples(
    routes, st.integers(1, 5), st.integers(0, 3), st.sampled_from([None, None, None, 500, 60_000])
)
Publish = tuple[tuple[str, bytes, bool, list[str]], int, int, int | None]
"""A route, how many, their priority, and after how long they expire."""


class Holder:
    """A consumer, or whoever got messages one by one."""

    def __init__(self, machine: "QueueMachine", name: str, credit: int) -> None:
        self.machine = machine
        self.name = name
        self.credit = credit
        self.held: dict[Identity, Message] = {}

    def deliver(self, messages: Sequence[Message]) -> None:
        assert 0 < len(messages) <= self.credit, "more than there is credit for"
        self.credit -= len(messages)
        for message in messages:
            self.take(message)

    def take(self, message: Message) -> None:
        assert message.value is not None
        self.machine.ledger.delivered(message, self)
        self.held[identity_of(message)] = message

    def cancelled(self) -> None:
        raise AssertionError("nobody deletes queues here")


class QueueMachine(RuleBasedStateMachine):
    """On a storage in memory, where all that happens can be drawn."""

    broker: Broker
    namespace: Namespace

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.consumers: list[Holder] = []
        self.getters = {name: Holder(self, name, 0) for name in QUEUES}
        self.numbers = 0
        self.sequence = 0
        self.is_full = False
        self.has_begun = False

    # Beginning and ending

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            async with asyncio.timeout(20):
                return await work

        return self.loop.run_until_complete(wrap())

    def make_storage(self) -> Storage:
        return LazyStorage(self.clock, self.turns)

    async def crashed_storage(self, unconfirmed: int) -> Storage:
        assert isinstance(self.storage, LazyStorage)
        after = self.storage.left_behind(unconfirmed)
        self.storage._closed = True
        return after

    def set_full(self, is_full: bool) -> None:
        assert isinstance(self.storage, LazyStorage)
        self.storage.is_full = is_full

    @property
    def storage_is_idle(self) -> bool:
        assert isinstance(self.storage, LazyStorage)
        return self.storage.is_idle

    @initialize(turns=st.integers(0, 3))
    def begin(self, turns: int) -> None:
        self.turns = turns
        self.storage = self.make_storage()
        self.run(self.start())
        self.run(self.declare())
        self.has_begun = True

    async def start(self) -> None:
        self.broker = Broker(self.storage, Settings(memory=True), self.clock)
        await self.broker.start()
        self.namespace = self.broker.namespaces.get("/")

    async def declare(self) -> None:
        for name, kind in KINDS.items():
            await self.namespace.declare_exchange(ExchangeDefinition(name=name, kind=kind))
        for name, options in QUEUES.items():
            await self.namespace.declare_queue(QueueDefinition(name=name, **options), SESSION)
        for source, destination, key, arguments in BINDINGS:
            await self.namespace.bind(
                Binding(source=source, destination=destination, key=key, arguments=arguments)
            )
        await self.broker.create_topics([NewTopic(name=name) for name in ("plain", "keyed", "hasty", "fan", "by")])

    def teardown(self) -> None:
        if self.has_begun:
            self.heal()
            self.run(self.drain())
            self.run(self.broker.stop())
        self.loop.close()

    async def drain(self) -> None:
        """In the end, everything that must be there is handed out, in order."""
        for holder in [*self.consumers, *self.getters.values()]:
            self.let_go(holder, list(holder.held), count=False)
        for name in QUEUES:
            self.join_now(name, 1000)
        await self.quiet()
        for name, entries in self.ledger.alive.items():
            waiting = [entry for entry in entries.values() if entry.holder is None]
            assert name == "keyed" or not waiting

    # What there is

    def queue(self, name: str) -> Queue:
        return self.namespace.queues[name]

    async def found(self) -> dict[str, dict[Identity, Message]]:
        return {name: await contents(self.queue(name), self.broker.namespaces) for name in QUEUES}

    async def quiet(self) -> None:
        """Wait until nothing happens any more, and look whether all is as it must be."""
        async with asyncio.timeout(10):
            while True:
                await self.still()
                if self.is_full or not (orphans := list(self.orphans())):
                    break
                await asyncio.sleep(0.002)  # what storage refused is tried again
        self.ledger.reconcile(await self.found(), self.clock.now_ms())
        self.check()
        assert not orphans if not self.is_full else True

    async def still(self) -> None:
        turns = 0
        while turns < 6:
            await asyncio.sleep(0)
            turns = turns + 1 if self.is_still() else 0
            if not self.storage_is_idle:
                await self.wait_for_storage()

    async def wait_for_storage(self) -> None:
        await asyncio.sleep(0)

    def is_still(self) -> bool:
        publishing = self.broker.publishing
        return (
            not self.broker.namespaces._work
            and publishing._current is None
            and not publishing._line
            and self.storage_is_idle
        )

    def orphans(self) -> Iterator[Message]:
        """Leased, but nobody holds them: only while storage refuses."""
        held = {id(message) for holder in self.holders() for message in holder.held.values()}
        for name in QUEUES:
            for each in self.queue(name).lanes:
                yield from (message for message in each.leased.values() if id(message) not in held)

    def holders(self) -> list[Holder]:
        return [*self.consumers, *self.getters.values()]

    def check(self) -> None:
        now = self.clock.now_ms()
        for name in QUEUES:
            queue, ready = self.queue(name), self.ledger.ready(name)
            assert queue.leased_count + queue.message_count >= 0
            for each in queue.lanes:
                assert len(each.window) <= WINDOW and each.window_bytes == sum(m.size for m in each.window)
                assert len(each.returned) + len(each.bodiless) <= 2 * len(self.ledger.alive[name])
            assert queue.expected == 0
            if self.is_full:
                continue
            assert queue.message_count == len(ready), name
            assert queue.leased_count == len(self.ledger.alive[name]) - len(ready)
            leased = sum(message.size for each in queue.lanes for message in each.leased.values())
            assert queue._leased_bytes == leased
            if name == "short":
                assert len(ready) <= SHORT
            if any(consumer.name == name and consumer.credit > 0 for consumer in self.consumers):
                held = {entry.key for entry in self.ledger.alive[name].values() if entry.holder is not None}
                stuck = [each for each in ready if name != "keyed" or not each.key or each.key not in held]
                assert not stuck, f"{name} keeps {stuck} back from a consumer with credit"
            overdue = [entry for entry in ready if 0 < entry.expires_ms <= now]
            assert not overdue or self.expiry_is_due, f"{overdue} of {name} should have expired"

    expiry_is_due = False
    """The clock was moved, and timers have not noticed."""

    # Messages come in

    def new_value(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    def publish_to(self, publish: Publish, wave: Wave, group: Group) -> None:
        """Check what the publisher is told, and note what it may count on when the wave is durable."""
        (exchange_name, key, marked, targets), count, priority, expires_in = publish
        exchange = self.namespace.router.exchange(exchange_name)
        envelope = Envelope(
            headers=b"\x00",
            attributes={"mark": "yes"} if marked else {},
            priority=priority,
            expires_in_ms=expires_in,
        )
        for _ in range(count):
            value = self.new_value()
            full = [name for name in targets if self.is_full_with(name, group)]
            try:
                routed = self.namespace.publish(exchange, key, value, envelope, wave)
                assert not full
                assert routed == bool(targets)
            except QueueBlocked:
                assert "blocking" in full
                continue
            except QueueFull:
                assert full and "blocking" not in full
            for name in targets:
                if name not in full:
                    group.added.append(self.expected(name, value, key, priority, expires_in))
                elif name == "burying":
                    group.added.append(self.ledger.entry("graves", value, source=name, key=key))

    def is_full_with(self, name: str, group: Group) -> bool:
        if "overflow" not in QUEUES[name]:
            return False
        coming = sum(entry.queue == name for entry in group.added)
        return len(self.ledger.ready(name)) + coming >= SHORT

    def expected(
        self, name: str, value: bytes, key: bytes, priority: int = 0, expires_in: int | None = None
    ) -> Entry:
        ttl = QUEUES[name].get("message_ttl_ms")
        lives = [each for each in (ttl, expires_in) if each is not None]
        return self.ledger.entry(
            name,
            value,
            lane=min(priority, QUEUES[name].get("max_priority", 0)),
            key=key,
            expires_ms=self.clock.now_ms() + min(lives) if lives else 0,
        )

    def ended(self, group: Group, error: PosthouseError | None) -> None:
        """Before anybody is handed the messages."""
        if error is None:
            for entry in group.added:
                self.ledger.add(entry)
            for entry in group.settled:
                self.ledger.settle(entry, durably=True)
        else:
            assert isinstance(error, StorageFull) and self.is_full

    async def publishing(self, wave: Wave, group: Group) -> None:
        """The wave ends after its messages are in their queues, and before these are pumped."""
        wave.on_end(lambda error: self.ended(group, error))

    @rule(many=st.lists(publishes, min_size=1, max_size=3))
    def publish(self, many: list[Publish]) -> None:
        async def work() -> None:
            wave, group = self.broker.publishing.wave, Group()
            for publish in many:
                self.publish_to(publish, wave, group)
            await self.publishing(wave, group)
            await self.quiet()

        self.run(work())

    @rule(
        topic=st.sampled_from(["plain", "keyed", "hasty", "fan", "by"]),
        keys=st.lists(st.sampled_from([None, b"a", b"b", b"k1"]), min_size=1, max_size=4),
        repeats=st.booleans(),
    )
    def append(self, topic: str, keys: list[bytes | None], repeats: bool) -> None:
        """As a stream producer does it, which may send a batch twice."""
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=self.sequence)
        entries = []
        for key in keys:
            value = self.new_value()
            builder.add(key, value, timestamp=self.clock.now_ms())
            for name in self.targets_of(topic, key or b""):
                entries.append(self.expected(name, value, key or b""))
        data = bytes(builder.build())

        async def work() -> None:
            for _ in range(1 + repeats):
                batch = Produced(self.broker.topic(topic), 0, memoryview(bytearray(data)))
                appending = self.broker.append([batch])
                assert appending.future is not None
                try:
                    await asyncio.wait([appending.future])
                    for entry in entries:
                        if appending.future.exception() is None and not self.is_full:
                            self.ledger.add(entry)
                            self.note_sequence(len(keys))
                    entries.clear()
                    await appending.wait()
                except StorageFull:
                    assert self.is_full
                    return
            await self.quiet()

        self.run(work())

    def note_sequence(self, count: int) -> None:
        self.sequence_after = self.sequence + count

    def targets_of(self, topic: str, key: bytes) -> list[str]:
        if topic in QUEUES:
            return [topic]
        return next((route[3] for route in ROUTES if route[0] == topic and (topic == "fan" or route[1] == key)), [])

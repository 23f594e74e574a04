"""Whole queues against a plain ledger: whatever clients, disks and power cuts do, nothing is lost or doubled.

Limits are tiny, so that few messages come to the edges of windows, chunks and reservations. Every step ends
when nothing more happens by itself; then what the queues hold is compared with what they must hold.
"""

import asyncio
import errno
import shutil
import tempfile
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.queues import excess, expiries, key_order, lane, loading, progress, queue, recovery
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
from tests.broker.queues.rig import SESSION, settle_turns
from tests.storage.faults import FaultyDisk
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
        if not self.machine.is_dying:
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
        self.ledger = Ledger(self.clock)
        self.consumers: list[Holder] = []
        self.getters = {name: Holder(self, name, 0) for name in QUEUES}
        self.numbers = 0
        self.is_full = False
        self.is_dying = False
        """What happens is not known to those who come after."""
        self.has_begun = False
        self.failures: list[BaseException] = []
        self.loop.set_exception_handler(self.note_failure)

    # Beginning and ending

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            async with asyncio.timeout(20):
                return await work

        try:
            return self.loop.run_until_complete(wrap())
        finally:
            if self.failures:
                raise self.failures[0]

    def note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something went wrong that nobody waits for."""
        self.failures.append(context.get("exception") or AssertionError(context["message"]))

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
        await self.broker.create_topics(
            [NewTopic(name=name) for name in ("plain", "keyed", "hasty", "fan", "by")]
        )

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
        async with asyncio.timeout(2):
            while True:
                await self.still()
                if self.is_full or not any(self.orphans()):
                    break
                await asyncio.sleep(0.002)  # what storage refused is tried again
        if not self.is_full:  # else something is always under way
            self.ledger.reconcile(await self.found())
        self.check()

    async def still(self) -> None:
        turns = 0
        while turns < 6:
            await asyncio.sleep(0)
            turns = turns + 1 if self.is_still() else 0
            if not self.storage_is_idle:
                await self.wait_for_storage()
        if self.is_full:
            await settle_turns(20)

    async def wait_for_storage(self) -> None:
        await asyncio.sleep(0)

    def is_still(self) -> bool:
        publishing = self.broker.publishing
        if publishing._current is not None or publishing._line:
            return False
        if self.is_full:  # something is tried again and again
            return True
        return not self.broker.namespaces._work and self.storage_is_idle

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
                back = [message.position for message in each.returned]
                assert len(set(back)) == len(back), "each is kept in memory once"
            assert queue.room._expected == 0
            if self.is_full:
                continue
            assert queue.message_count == len(ready), name
            assert not self.ledger.passed_over(name)
            assert queue.leased_count == len(self.ledger.alive[name]) - len(ready)
            leased = sum(message.size for each in queue.lanes for message in each.leased.values())
            assert queue._leased_bytes == leased
            if name == "short":
                assert len(ready) <= SHORT
            if any(consumer.name == name and consumer.credit > 0 for consumer in self.consumers):
                held = {entry.key for entry in self.ledger.alive[name].values() if entry.holder is not None}
                stuck = [each for each in ready if name != "keyed" or not each.key or each.key not in held]
                is_crowded = queue._keys is not None and queue._keys.is_crowded
                assert is_crowded or not stuck, f"{name} keeps {stuck} back from a consumer with credit"
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
                assert self.is_full or not full
                assert self.is_full or routed == bool(targets)
            except QueueBlocked:
                assert self.is_full or "blocking" in full
                continue
            except QueueFull:
                assert self.is_full or (full and "blocking" not in full)
            for name in targets:
                if name not in full:
                    group.added.append(self.expected(name, value, key, priority, expires_in))
                elif name == "burying":
                    group.added.append(self.ledger.entry("graves", value, source=name, key=key))

    def is_full_with(self, name: str, group: Group) -> bool:
        if "overflow" not in QUEUES[name]:
            return False
        coming = sum(entry.queue == name for entry in group.added)
        taken = sum(consumer.credit for consumer in self.consumers if consumer.name == name)
        return max(len(self.ledger.ready(name)) + coming - taken, 0) >= SHORT

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

    def ended(self, group: Group, error: BaseException | None) -> None:
        """Called after the messages are in their queues, and before anybody is handed one."""
        if error is None:
            for entry in group.added:
                self.ledger.add(entry)
            for entry in group.settled:
                self.ledger.settle(entry, durably=True)
        else:
            assert isinstance(error, StorageFull) and self.is_full

    @rule(many=st.lists(publishes, min_size=1, max_size=3))
    def publish(self, many: list[Publish]) -> None:
        async def work() -> None:
            wave, group = self.broker.publishing.wave, Group()
            for publish in many:
                self.publish_to(publish, wave, group)
            wave.on_end(lambda error: self.ended(group, error))
            await self.quiet()

        self.run(work())

    @rule(
        topic=st.sampled_from(["plain", "keyed", "hasty", "fan", "by"]),
        keys=st.lists(st.sampled_from([None, b"a", b"b", b"k1"]), min_size=1, max_size=4),
        repeats=st.booleans(),
    )
    def append(self, topic: str, keys: list[bytes | None], repeats: bool) -> None:
        """As a stream producer does it, which may send a batch twice."""
        builder = BatchBuilder(producer_id=1000 + self.numbers, producer_epoch=0, base_sequence=0)
        group = Group()
        for key in keys:
            value = self.new_value()
            builder.add(key, value, timestamp=self.clock.now_ms())
            for name in self.targets_of(topic, key or b""):
                group.added.append(self.expected(name, value, key or b""))
        data = bytes(builder.build())

        async def work() -> None:
            for _ in range(1 + repeats):
                appending = self.broker.append(
                    [Produced(self.broker.topic(topic), 0, memoryview(bytearray(data)))]
                )
                assert appending.future is not None
                appending.future.add_done_callback(lambda done: self.ended(group, done.exception()))
                with suppress(StorageFull):
                    await appending.wait()
                group.added.clear()
            await self.quiet()

        self.run(work())

    def targets_of(self, topic: str, key: bytes) -> list[str]:
        if topic in QUEUES:
            return [topic]
        return next(
            (route[3] for route in ROUTES if route[0] == topic and (topic == "fan" or route[1] == key)), []
        )

    @rule(
        many=st.lists(publishes, max_size=2),
        name=names,
        count=st.integers(0, 3),
        end=st.sampled_from(["commit", "commit", "abandon", "fail"]),
    )
    def transaction(self, many: list[Publish], name: str, count: int, end: str) -> None:
        async def work() -> None:
            wave, group = self.broker.publishing.transaction(), Group()
            for publish in many:
                self.publish_to(publish, wave, group)
            self.settle_in(wave, group, name, count)
            if end == "abandon":
                wave.abandon()
            else:
                await self.commit(wave, group, fails=end == "fail")
            await self.quiet()

        self.run(work())

    def settle_in(self, wave: Wave, group: Group, name: str, count: int) -> None:
        for holder in self.holders():
            if holder.name == name:
                for identity in list(holder.held)[:count]:
                    self.queue(name).ack([holder.held[identity]], wave)
                    group.settled.append(self.ledger.alive[name][identity])

    async def commit(self, wave: Wave, group: Group, *, fails: bool) -> None:
        was_full = self.is_full
        if fails:
            self.make_full(True)
        wave.on_end(lambda error: self.ended(group, error))
        try:
            await wave.commit()
        except StorageFull:
            assert self.is_full
        else:
            assert not self.is_full or not (group.added or group.settled)
            for entry in group.settled:
                for holder in self.holders():
                    if holder.name == entry.queue:
                        holder.held.pop(entry.identity, None)
        await self.still()
        if not was_full:
            self.make_full(False)

    # Messages go out

    def join_now(self, name: str, credit: int, priority: int = 0) -> None:
        consumer = Holder(self, name, credit)
        self.consumers.append(consumer)
        self.queue(name).subscribe(consumer, priority=priority)

    @rule(name=names, credit=st.integers(0, 4), priority=st.integers(0, 1))
    def join(self, name: str, credit: int, priority: int) -> None:
        if sum(consumer.name == name for consumer in self.consumers) < 3:

            async def work() -> None:
                self.join_now(name, credit, priority)
                await self.quiet()

            self.run(work())

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), count=st.booleans())
    def leave(self, data: st.DataObject, count: bool) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))

        async def work() -> None:
            self.queue(consumer.name).unsubscribe(consumer)
            self.consumers.remove(consumer)
            self.let_go(consumer, list(consumer.held), count=count)
            await self.quiet()

        self.run(work())

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), more=st.integers(1, 3))
    def raise_credit(self, data: st.DataObject, more: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))

        async def work() -> None:
            consumer.credit += more
            self.queue(consumer.name).credit_raised()
            await self.quiet()

        self.run(work())

    @rule(name=names, times=st.integers(1, 3))
    def get(self, name: str, times: int) -> None:
        async def work() -> None:
            for _ in range(times):
                try:
                    message = await self.queue(name).get()
                except StorageFull:
                    assert self.is_full
                    break
                if message is not None:
                    self.getters[name].take(message)
                elif not self.is_full:
                    await self.still()
                    self.ledger.reconcile(await self.found())
                    ready = self.ledger.ready(name)
                    assert not ready or name == "keyed", (
                        f"{name} has {ready} at {self.clock.now_ms()}, and gives none"
                    )
            await self.quiet()

        self.run(work())

    # Messages are settled

    def draw_held(self, data: st.DataObject) -> tuple[Holder, list[Identity]]:
        holder = data.draw(st.sampled_from([each for each in self.holders() if each.held]))
        return holder, data.draw(
            st.lists(st.sampled_from(list(holder.held)), min_size=1, max_size=4, unique=True)
        )

    @precondition(lambda self: any(holder.held for holder in self.holders()))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        holder, identities = self.draw_held(data)

        async def work() -> None:
            messages = [holder.held.pop(identity) for identity in identities]
            for identity in identities:
                self.ledger.settle(self.ledger.alive[holder.name][identity])
            self.queue(holder.name).ack(messages)
            self.queue(holder.name).ack(messages)  # told twice is told once
            await self.quiet()

        self.run(work())

    def let_go(self, holder: Holder, identities: Sequence[Identity], *, count: bool) -> None:
        messages = []
        for identity in identities:
            messages.append(holder.held.pop(identity))
            entry = self.ledger.alive[holder.name][identity]
            entry.holder = None
            if count:
                entry.returns = entry.returns[0] + 1, entry.returns[1] + 1
            if QUEUES[holder.name].get("delivery_limit") is not None and entry.returns[1] > 1:
                entry.is_displaced = True
        self.queue(holder.name).release(messages, count=count)

    @precondition(lambda self: any(holder.held for holder in self.holders()))
    @rule(data=st.data(), count=st.booleans())
    def release(self, data: st.DataObject, count: bool) -> None:
        holder, identities = self.draw_held(data)

        async def work() -> None:
            self.let_go(holder, identities, count=count)
            await self.quiet()

        self.run(work())

    @precondition(lambda self: any(holder.held for holder in self.holders()))
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        holder, identities = self.draw_held(data)

        async def work() -> None:
            messages = [holder.held.pop(identity) for identity in identities]
            for identity in identities:
                entry = self.ledger.alive[holder.name][identity]
                entry.holder, entry.was_rejected, entry.is_displaced = None, True, True
                if "dead_letter_exchange" not in QUEUES[holder.name]:
                    self.ledger.settle(entry)
            self.queue(holder.name).reject(messages)
            await self.quiet()

        self.run(work())

    @precondition(lambda self: not self.is_full)
    @rule(name=names)
    def purge(self, name: str) -> None:
        async def work() -> None:
            ready = self.ledger.ready(name)
            assert self.queue(name).purge() == len(ready)
            for entry in ready:
                self.ledger.settle(entry)
            await self.quiet()

        self.run(work())

    # Time, disks and power cuts

    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0, 100.0]))
    def advance(self, seconds: float) -> None:
        async def work() -> None:
            self.clock.advance(seconds)
            self.expiry_is_due = False
            for name in QUEUES:
                self.queue(name)._expiring.plan()
            await asyncio.sleep(0.001)
            await self.quiet()

        self.run(work())

    @rule(seconds=st.sampled_from([0.6, 2.0]))
    def advance_unnoticed(self, seconds: float) -> None:
        """Messages that are handed out before the timer rings must not be those that expired."""
        self.clock.advance(seconds)
        self.expiry_is_due = True

    @rule()
    def store(self) -> None:
        """Make durable what was settled."""

        async def work() -> None:
            settling = self.broker.namespaces.settling
            for name in QUEUES:
                for each in self.queue(name).lanes:
                    settling.changed(each)
            settling._store()
            await self.still()
            if not self.is_full:
                self.ledger.stored()

        self.run(work())

    @rule()
    def reclaim(self) -> None:
        """Give back what queues are done with."""
        with suppress(StorageFull):
            self.run(self.broker.namespaces.retention.reclaim())
        self.run(self.quiet())

    def make_full(self, is_full: bool) -> None:
        self.is_full = is_full
        self.set_full(is_full)
        if is_full:
            for entries in self.ledger.alive.values():
                for entry in entries.values():
                    entry.is_displaced = True

    @rule()
    def fill_disk(self) -> None:
        self.make_full(True)

    @precondition(lambda self: self.is_full)
    @rule()
    def heal(self) -> None:
        async def work() -> None:
            self.make_full(False)
            await asyncio.sleep(0.01)
            self.clock.advance(0.01)
            for name in QUEUES:
                self.queue(name)._expiring.plan()
            await asyncio.sleep(0.01)
            await self.quiet()

        self.run(work())

    @rule()
    def restart(self) -> None:
        if self.is_full:
            self.heal()

        async def work() -> None:
            await self.broker.stop()
            self.consumers.clear()
            for getter in self.getters.values():
                getter.held.clear()
            self.ledger.restarted()
            self.storage = await self.reopened_storage()
            await self.start()
            await self.quiet()

        self.run(work())

    async def reopened_storage(self) -> Storage:
        assert isinstance(self.storage, LazyStorage)
        return self.storage.left_behind()

    @rule(
        many=st.lists(publishes, max_size=2),
        name=names,
        count=st.integers(0, 2),
        turns=st.integers(0, 8),
        unconfirmed=st.integers(0, 3),
    )
    def crash(self, many: list[Publish], name: str, count: int, turns: int, unconfirmed: int) -> None:
        """In the middle of a transaction."""

        async def work() -> None:
            wave, group = self.broker.publishing.transaction(), Group()
            for publish in many:
                self.publish_to(publish, wave, group)
            self.settle_in(wave, group, name, count)
            open_groups = [group]

            def ended(error: PosthouseError | None) -> None:
                if error is None and not self.is_dying:
                    self.ended(open_groups.pop(), None)

            wave.on_end(ended)
            committing = wave.commit()
            committing.add_done_callback(lambda done: done.exception())
            for _ in range(turns):
                await asyncio.sleep(0)
            self.consumers.clear()
            for getter in self.getters.values():
                getter.held.clear()
            before = self.broker
            self.is_dying = True
            after = await self.crashed_storage(unconfirmed)
            with suppress(PosthouseError):
                await before.stop()
            self.is_dying = False
            self.is_full = False
            self.storage = after
            await self.start()
            await self.still()
            found = await self.found()
            self.ledger.crashed(open_groups, found)
            await self.quiet()

        self.run(work())


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "WINDOW", WINDOW)
    monkeypatch.setattr(loading, "LOW_WINDOW", WINDOW // 2)
    monkeypatch.setattr(queue, "AT_ONCE", 4)
    monkeypatch.setattr(excess, "AT_ONCE", 2)
    monkeypatch.setattr(queue, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(queue, "LEASED_BYTES", 3)
    monkeypatch.setattr(loading, "RESERVATION", 4)
    monkeypatch.setattr(lane, "RESERVATION", 4)
    monkeypatch.setattr(expiries, "SPAN", 5)
    monkeypatch.setattr(recovery, "SPAN", 5)
    monkeypatch.setattr(key_order, "CROWD", 3)
    monkeypatch.setattr(progress, "CHUNK_BITS", 3)
    monkeypatch.setattr(progress, "CHUNK", 8)
    monkeypatch.setattr(progress, "_MASK", 7)
    monkeypatch.setattr(progress, "_FULL", bytearray(b"\x01" * 8))


LIMITS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}


def test_queues_in_memory() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=60, stateful_step_count=40, **LIMITS)
    )


class FileMachine(QueueMachine):
    """On files, with threads, and with the files that a killed process leaves behind."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-queues-"))
        self.life = 0

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    def make_storage(self) -> Storage:
        self.disk = FaultyDisk()
        return FileStorage(
            self.directory, clock=self.clock, disk=self.disk, journal_bytes=64 * 1024, checkpoint_seconds=3600
        )

    async def crashed_storage(self, unconfirmed: int) -> Storage:
        assert isinstance(self.storage, FileStorage)
        self.life += 1
        await crash_copy(self.storage, self.directory)
        self.storage.fence("as if the power went")
        return self.make_storage()

    async def reopened_storage(self) -> Storage:
        return self.make_storage()

    def set_full(self, is_full: bool) -> None:
        if is_full:
            self.disk.fail("write", "*/journal/*", errno.ENOSPC, for_ever=True)
        else:
            self.disk.heal()

    storage_is_idle = True

    async def still(self) -> None:
        turns = 0
        while turns < 8:
            await asyncio.sleep(0)
            turns = turns + 1 if self.is_still() else 0
            if turns in (0, 4):
                with suppress(StorageFull):
                    await self.storage.commit([])  # all before it is done then

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


def test_queues_on_files() -> None:
    run_state_machine_as_test(
        FileMachine, settings=settings(max_examples=20, stateful_step_count=30, **LIMITS)
    )

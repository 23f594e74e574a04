"""The world of the model: a broker whose queues are compared with a plain ledger."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
)

from posthouse.broker.broker import Broker
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.queue_ledger import (
    QUEUES,
    SHORT,
    Identity,
    Ledger,
    contents,
    identity_of,
)
from tests.broker.queues.queue_scene import BINDINGS, KINDS, WINDOW
from tests.broker.queues.rig import SESSION, settle_turns

T = TypeVar("T")


class Holder:
    """A consumer, or whoever got messages one by one."""

    limiter = None
    is_counted = True

    def __init__(self, machine: "QueueWorld", name: str, credit: int) -> None:
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


class QueueWorld(RuleBasedStateMachine):
    """A broker, its clients and the ledger, on a storage in memory, where all that happens can be drawn.

    Every step ends when nothing more happens by itself; then what the queues hold is compared with what they
    must hold.
    """

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

    def make_full(self, is_full: bool) -> None:
        self.is_full = is_full
        self.set_full(is_full)
        if is_full:
            for entries in self.ledger.alive.values():
                for entry in entries.values():
                    entry.is_displaced = True

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
        await self.broker.coordinate()
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

    # What there is

    def queue(self, name: str) -> Queue:
        queue = self.namespace.queues[name]
        assert isinstance(queue, Queue)
        return queue

    async def found(self) -> dict[str, dict[Identity, Message]]:
        return {name: await contents(self.queue(name), self.broker.namespaces) for name in QUEUES}

    async def quiet(self) -> None:
        """Wait until nothing happens any more, and look whether all is as it must be."""
        async with asyncio.timeout(30):
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
        namespaces = self.broker.namespaces
        is_quiet = not namespaces.background and not any(len(each.background) for each in namespaces)
        return is_quiet and self.storage_is_idle

    def orphans(self) -> Iterator[Message]:
        """Leased, but nobody holds them: only while storage refuses."""
        held = {id(message) for holder in self.holders() for message in holder.held.values()}
        for name in QUEUES:
            for each in self.queue(name).lanes:
                yield from (message for message in each.leases.holders.values() if id(message) not in held)

    def holders(self) -> list[Holder]:
        return [*self.consumers, *self.getters.values()]

    def check(self) -> None:
        now = self.clock.now_ms()
        for name in QUEUES:
            queue, ready = self.queue(name), self.ledger.ready(name)
            assert queue.leased_count + queue.message_count >= 0
            counted = queue.message_count, queue.leased_count
            assert queue.lengths == counted, "what it remembers is what it would count"
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
            leased = sum(message.size for each in queue.lanes for message in each.leases.holders.values())
            assert queue.leased_bytes == leased
            if name == "short":
                assert len(ready) <= SHORT
            if any(consumer.name == name and consumer.credit > 0 for consumer in self.consumers):
                held = {entry.key for entry in self.ledger.alive[name].values() if entry.holder is not None}
                stuck = [each for each in ready if name != "keyed" or not each.key or each.key not in held]
                is_crowded = queue.dispatcher.keys is not None and queue.dispatcher.keys.is_crowded
                assert is_crowded or not stuck, f"{name} keeps {stuck} back from a consumer with credit"
            overdue = [entry for entry in ready if 0 < entry.expires_ms <= now]
            assert not overdue or self.expiry_is_due, f"{overdue} of {name} should have expired"

    expiry_is_due = False
    """The clock was moved, and timers have not noticed."""

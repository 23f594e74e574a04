"""Messages go out of queues, and are settled."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from posthouse.model.errors import StorageFull
from tests.broker.queues.queue_ledger import (
    QUEUES,
    Identity,
)
from tests.broker.queues.queue_scene import names
from tests.broker.queues.queue_world import Holder, QueueWorld


class Consuming(QueueWorld):
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

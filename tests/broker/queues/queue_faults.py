"""Time, disks and power cuts."""

import asyncio
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import PosthouseError, StorageFull
from posthouse.storage.contract import Storage
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.queue_ledger import (
    QUEUES,
    Group,
)
from tests.broker.queues.queue_publishing import Publishing
from tests.broker.queues.queue_scene import Publish, names, publishes


class Faults(Publishing):
    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0, 100.0]))
    def advance(self, seconds: float) -> None:
        async def work() -> None:
            self.clock.advance(seconds)
            self.expiry_is_due = False
            for name in QUEUES:
                self.queue(name).dispatcher.expiry.plan()
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
            progress_writer = self.broker.namespaces.progress_writer
            for name in QUEUES:
                for each in self.queue(name).lanes:
                    progress_writer.changed(each)
            progress_writer._store()
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
                self.queue(name).dispatcher.expiry.plan()
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
            wave, group = TransactionWave(self.broker.publishing), Group()
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

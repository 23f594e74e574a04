"""Messages come into queues: published, appended to streams, or in transactions that also settle."""

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import (
    rule,
)

from posthouse.broker.appending import Produced
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import QueueBlocked, QueueFull, StorageFull
from posthouse.records.builder import BatchBuilder
from tests.broker.queues.queue_ledger import (
    QUEUES,
    SHORT,
    Entry,
    Group,
)
from tests.broker.queues.queue_scene import ROUTES, Publish, names, publishes
from tests.broker.queues.queue_world import QueueWorld


class Publishing(QueueWorld):
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
            wave, group = TransactionWave(self.broker.publishing), Group()
            for publish in many:
                self.publish_to(publish, wave, group)
            self.settle_in(wave, group, name, count)
            if end == "abandon":
                wave.abandon()
            else:
                await self.commit(wave, group, fails=end == "fail")
            await self.quiet()

        self.run(work())

    def settle_in(self, wave: TransactionWave, group: Group, name: str, count: int) -> None:
        for holder in self.holders():
            if holder.name == name:
                for identity in list(holder.held)[:count]:
                    self.queue(name).ack([holder.held[identity]], wave)
                    group.settled.append(self.ledger.alive[name][identity])

    async def commit(self, wave: TransactionWave, group: Group, *, fails: bool) -> None:
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

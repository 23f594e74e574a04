"""Read, process, write: what is consumed of one topic goes to another, with the progress, in transactions."""

import asyncio
from random import Random

from tests.checker.history import CommitOffset, End, Outcome, Partition
from tests.simulation.consuming import Consumer
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE, Sender
from tests.simulation.recorder import Recorder

COMMITS = 0.75
"""How many transactions are committed rather than aborted."""


class Processor:
    """One transactional id and one group. After any failure it begins anew, as programs are told to do."""

    def __init__(
        self,
        recorder: Recorder,
        client: KafkaClient,
        random: Random,
        name: str,
        source: Partition,
        targets: list[Partition],
    ) -> None:
        self.recorder = recorder
        self.client = client
        self.random = random
        self.id = name
        self.source = source
        self.sender = Sender(recorder, client, random, targets)
        self.consumer = Consumer(
            recorder, client, random, [source], committed_only=True, group=f"group of {name}"
        )

    async def begin(self) -> None:
        self.sender.become(await self.client.init_producer(self.id))
        await self.consumer.assign()

    async def transact(self) -> None:
        """One transaction. Raises Lost or Refused where nobody knows any more how things stand."""
        records = await self.consumer.poll()
        transaction = self.recorder.transaction()
        try:
            for _ in range(self.random.randrange(1, 3)):
                await self._send(transaction)
            offset = self.consumer.positions[self.source]
            if records:
                await self._add_offset(transaction, offset)
        except (Lost, Refused):
            # Nothing of it may ever be seen: whoever begins anew aborts what is open.
            self._ended(self.recorder.now, transaction, commit=False, outcome=Outcome.UNKNOWN)
            raise
        await self._end(transaction, commit=self.random.random() < COMMITS)

    async def _send(self, transaction: int) -> None:
        left, reason = await self.sender.attempt([self.sender.new_request(transaction)], self.id)
        if left:
            self.sender.give_up(left)
            assert reason is not None
            raise reason

    async def _add_offset(self, transaction: int, offset: int) -> None:
        producer = self.sender.producer
        assert producer is not None
        invoked = self.recorder.now
        outcome = Outcome.UNKNOWN
        group = self.consumer.group
        assert group is not None
        try:
            await self.client.add_offset(self.id, producer, group, self.source, offset)
            outcome = Outcome.OK
        finally:
            self.recorder.history.append(
                CommitOffset(
                    self.consumer.process,
                    invoked,
                    self.recorder.now,
                    group,
                    self.source,
                    offset,
                    outcome,
                    transaction,
                )
            )

    async def _end(self, transaction: int, *, commit: bool) -> None:
        producer = self.sender.producer
        assert producer is not None
        invoked = self.recorder.now
        outcome = Outcome.UNKNOWN
        try:
            producer = await self.client.end_transaction(self.id, producer, commit=commit)
            outcome = Outcome.OK
        except Lost:
            if self.random.random() < 0.5:
                raise
            # Asking again is allowed: the broker remembers how the last one ended.
            producer = await self.client.end_transaction(self.id, producer, commit=commit)
            outcome = Outcome.OK
        finally:
            self._ended(invoked, transaction, commit=commit, outcome=outcome)
        self.sender.become(producer)
        if not commit:
            await self.consumer.assign()

    def _ended(self, invoked: int, transaction: int, *, commit: bool, outcome: Outcome) -> None:
        self.recorder.history.append(
            End(self.sender.process, invoked, self.recorder.now, transaction, commit, outcome)
        )


async def process(processor: Processor, transactions: int) -> None:
    has_begun = False
    while transactions > 0 and not processor.recorder.is_over:
        try:
            if not has_begun:
                await processor.begin()
                has_begun = True
            transactions -= 1
            await processor.transact()
        except (Lost, Refused):
            has_begun = False
        await asyncio.sleep(PAUSE * 2 * processor.recorder.pace * processor.random.random())
    while True:  # what it left open must not hold others up
        try:
            await processor.begin()
            processor.client.disconnect()
            return
        except (Lost, Refused):
            await asyncio.sleep(PAUSE)

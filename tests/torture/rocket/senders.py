"""Producers: of single messages, batches and delayed ones, each sent once; and of half messages."""

import asyncio
import time
from dataclasses import dataclass
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.codec.batch_bodies import BatchMessage, encode_batch
from posthouse.protocols.rocketmq.codec.codes import TIMER_DELAY_MS, RequestCode
from posthouse.protocols.rocketmq.codec.heartbeats import Heartbeat
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from tests.checker.history import End, Outcome, Partition, Send
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket.link import PRODUCERS, NotStored, RocketLink
from tests.torture.stream.links import decode_value, encode_value
from tests.torture.workloads import RETRY_SECONDS

LONGEST_DELAY_MS: Final = 1500


class Sender:
    def __init__(
        self, recorder: Recorder, partitions: list[Partition], random: Random, *, delays: bool
    ) -> None:
        self._recorder = recorder
        self._partitions = partitions
        self._random = random
        self._process = recorder.process()
        self._ways = [self._send, self._send, self._send_batch, *([self._delay] if delays else [])]
        self.delayed: set[int] = set()
        """Values that the broker has taken, to be seen later."""
        self.latest_due = 0.0

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            while True:
                try:
                    await self._random.choice(self._ways)(link)
                except NotStored:
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, link: RocketLink) -> None:
        partition, value = self._random.choice(self._partitions), self._recorder.value()
        await self._noted(
            link, partition, [value], encode_value(value, self._random), RequestCode.SEND_MESSAGE_V2
        )

    async def _send_batch(self, link: RocketLink) -> None:
        partition = self._random.choice(self._partitions)
        values = [self._recorder.value() for _ in range(self._random.choice((2, 5)))]
        body = encode_batch(
            BatchMessage(flag=0, body=encode_value(value, self._random), properties="") for value in values
        )
        await self._noted(link, partition, values, body, RequestCode.SEND_BATCH_MESSAGE)

    async def _noted(
        self, link: RocketLink, partition: Partition, values: list[int], body: bytes, code: RequestCode
    ) -> None:
        invoked = self._recorder.now()
        first: int | None = None
        outcome = Outcome.UNKNOWN
        try:
            answer = await link.send(partition, body, {}, code=code)
            first, outcome = int(answer.fields["queueOffset"]), Outcome.OK
        finally:
            now = self._recorder.now()
            for number, value in enumerate(values):
                offset = None if first is None else first + number
                self._recorder.add(Send(self._process, invoked, now, partition, value, outcome, offset))
        self._recorder.moved()

    async def _delay(self, link: RocketLink) -> None:
        """It has no place among the others: each is of a process of its own."""
        partition, value = self._random.choice(self._partitions), self._recorder.value()
        delay = self._random.randrange(1, LONGEST_DELAY_MS)
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            await link.send(partition, encode_value(value, self._random), {TIMER_DELAY_MS: str(delay)})
            outcome = Outcome.OK
            self.delayed.add(value)
            self.latest_due = time.monotonic() + delay / 1000
        finally:
            now, process = self._recorder.now(), self._recorder.process()
            self._recorder.add(Send(process, invoked, now, partition, value, outcome, None))
        self._recorder.moved()


@dataclass(slots=True)
class _Half:
    transaction: int
    commit: bool
    position: str = ""
    """Empty while the broker has not said where it is."""


class HalfSender:
    """Decides what it has prepared, again after a lost connection, and when the broker asks."""

    def __init__(self, recorder: Recorder, partitions: list[Partition], random: Random) -> None:
        self._recorder = recorder
        self._partitions = partitions
        self._random = random
        client = f"client-{recorder.process()}"
        self._heartbeat = Heartbeat(client=client, producer_groups=(PRODUCERS,))
        self._open: dict[int, _Half] = {}
        """By value: those whose decision the broker has not acknowledged."""
        self.committed: set[int] = set()

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            await link.heartbeat(self._heartbeat)
            while True:
                try:
                    await self.decide_open(link)
                    await self._one(link)
                except NotStored:
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _one(self, link: RocketLink) -> None:
        value, partition = self._recorder.value(), self._random.choice(self._partitions)
        half = self._open[value] = _Half(self._recorder.transaction(), self._random.random() < 0.7)
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            half.position = await link.prepare(partition, encode_value(value, self._random))
            outcome = Outcome.OK
        finally:
            self._recorder.add(
                Send(
                    self._recorder.process(),
                    invoked,
                    self._recorder.now(),
                    partition,
                    value,
                    outcome,
                    None,
                    half.transaction,
                )
            )
            if outcome is Outcome.UNKNOWN:
                half.commit = False  # its application has not heard that it may go on
        if self._random.random() < 0.9:  # the others are left to the check, or to the next life
            await self._decide(link, value, half)

    async def decide_open(self, link: RocketLink) -> None:
        for asked in link.pushed:
            [message] = decode_stored_messages(bytes(asked.body))
            half = self._open.get(decode_value(message.body))
            if half is not None:
                half.position = asked.fields["commitLogOffset"]
        link.pushed.clear()
        for value, half in [(value, half) for value, half in self._open.items() if half.position]:
            await self._decide(link, value, half)

    async def _decide(self, link: RocketLink, value: int, half: _Half) -> None:
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            await link.end(half.position, commit=half.commit)
            outcome = Outcome.OK
        finally:
            process, now = self._recorder.process(), self._recorder.now()
            self._recorder.add(End(process, invoked, now, half.transaction, half.commit, outcome))
        del self._open[value]
        if half.commit:
            self.committed.add(value)
        self._recorder.moved()

    async def finish(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            await link.heartbeat(self._heartbeat)
            await self.decide_open(link)

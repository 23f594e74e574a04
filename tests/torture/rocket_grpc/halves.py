"""Producers of half messages: they decide most of them, and are asked for the others."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.definition import Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from posthouse.protocols.rocketmq.grpc.messages.service import EndTransactionRequest, EndTransactionResponse
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from tests.checker.history import End, Outcome
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, NoProgress, Recorder
from tests.torture.rocket_grpc.link import GrpcLink, NotStored, check
from tests.torture.rocket_grpc.senders import message_of, sent
from tests.torture.stream.links import decode_value
from tests.torture.workloads import LOST, RETRY_SECONDS

HALVES: Final = "grpc-halves"
_FIRST_CHECK: Final = Duration.from_ms(1000)


@dataclass(slots=True)
class Half:
    transaction: int
    """Its number in the history."""
    commit: bool
    is_left: bool
    """To the broker, which has to ask for it."""
    id: str = ""
    """Empty while the broker has not said it."""
    is_deciding: bool = False
    """One of the producers does."""


class Halves:
    """Those that are undecided, by value. The producers of a topic share them: any is asked."""

    def __init__(self) -> None:
        self.open: dict[int, Half] = {}
        self.committed: set[int] = set()

    def is_decided(self) -> bool:
        """What nobody has heard of is not waited for: it may not be there."""
        return not any(each.id for each in self.open.values())


class HalfSender:
    def __init__(self, recorder: Recorder, random: Random, halves: Halves) -> None:
        self._recorder = recorder
        self._random = random
        self._halves = halves
        self._client = f"half-sender-{recorder.process()}"

    async def live(self, addresses: Addresses) -> None:
        async with GrpcLink(addresses, self._client) as link:
            asking = asyncio.create_task(self._take_questions(link))
            try:
                while True:
                    try:
                        await self._decide_open(link)
                        await self._one(link)
                    except NotStored:
                        self._recorder.refused()
                        await asyncio.sleep(RETRY_SECONDS)
            finally:
                await _end(asking)

    async def finish(self, addresses: Addresses) -> None:
        """Until everything is decided, also what only the broker's question decides."""
        deadline = time.monotonic() + PATIENCE
        async with GrpcLink(addresses, self._client) as link:
            asking = asyncio.create_task(self._take_questions(link))
            try:
                while not self._halves.is_decided():
                    await self._decide_open(link)
                    if time.monotonic() > deadline:
                        raise NoProgress(f"nobody was asked for a half message in {PATIENCE:g} s")
                    await asyncio.sleep(RETRY_SECONDS)
            finally:
                await _end(asking)

    async def _take_questions(self, link: GrpcLink) -> None:
        async for command in link.asked([HALVES]):
            self._asked(command)

    def _asked(self, command: TelemetryCommand) -> None:
        asked = command.recover_orphaned_transaction_command
        if asked is None:
            return
        assert asked.message is not None
        half = self._halves.open.get(decode_value(asked.message.body))
        if half is not None:
            half.id, half.is_left = asked.transaction_id, False

    async def _one(self, link: GrpcLink) -> None:
        value, chance = self._recorder.value(), self._random.random
        half = Half(self._recorder.transaction(), commit=chance() < 0.7, is_left=chance() < 0.1)
        self._halves.open[value] = half
        message = message_of(
            HALVES,
            value,
            self._random,
            message_type=MessageType.TRANSACTION,
            orphaned_transaction_recovery_duration=_FIRST_CHECK,
        )
        process, is_prepared = self._recorder.process(), False
        try:
            response = await sent(
                *(link, self._recorder, process, [value], [message]),
                has_offset=False,
                transaction=half.transaction,
            )
            half.id, is_prepared = response.entries[0].transaction_id, True
        finally:
            if not is_prepared:
                half.commit = False  # its application has not heard that it may go on
        if not half.is_left:
            await self._decide(link, value, half)

    async def _decide_open(self, link: GrpcLink) -> None:
        for value, half in list(self._halves.open.items()):
            if half.id and not half.is_left:
                await self._decide(link, value, half)

    async def _decide(self, link: GrpcLink, value: int, half: Half) -> None:
        if half.is_deciding or value not in self._halves.open:
            return  # another producer does, or has done so
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        resolution = TransactionResolution.COMMIT if half.commit else TransactionResolution.ROLLBACK
        request = EndTransactionRequest(
            topic=Resource(name=HALVES),
            message_id=f"{value:034X}",
            transaction_id=half.id,
            resolution=resolution,
            source=TransactionSource.SOURCE_CLIENT,
        )
        half.is_deciding = True
        try:
            response = await link.ask(request, EndTransactionResponse)
            check("EndTransaction", response.status)
            outcome = Outcome.OK
        finally:
            half.is_deciding = False
            process, now = self._recorder.process(), self._recorder.now()
            self._recorder.add(End(process, invoked, now, half.transaction, half.commit, outcome))
        del self._halves.open[value]
        if half.commit:
            self._halves.committed.add(value)
        self._recorder.moved()


async def _end(asking: "asyncio.Task[None]") -> None:
    """That its connection was lost is seen by the calls beside it."""
    asking.cancel()
    with suppress(asyncio.CancelledError, *LOST):
        await asking

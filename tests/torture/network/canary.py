"""Whether what one broker has acknowledged is shown by all others: they must not wait for a hint for ever."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from tests.checker.history import Partition
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, Recorder
from tests.torture.stream.links import Link, Topics, build_batch, check, produce
from tests.torture.stream.readers import Fetching
from tests.torture.workloads import LOST, RETRY_SECONDS, Refused

_PLACE: Partition = ("canary", 0)
Found = TypeVar("Found")


class NotVisible(Exception):
    """A broker does not serve what another one has acknowledged, though all links are up."""


class Canary:
    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self._random = random
        self._topics = Topics({}, {_PLACE[0]: 1})

    async def prepare(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            self._topics.ids[_PLACE[0]] = await wire.create_topic(_PLACE[0], 1)

    async def check(self, writer: Addresses, readers: Sequence[Addresses]) -> None:
        """Raises NotVisible."""
        deadline = time.monotonic() + PATIENCE
        value = self._recorder.value()
        offset = await _insisted(writer, deadline, lambda wire: self._write(wire, value))
        for reader in readers:
            await _insisted(reader, deadline, lambda wire: self._read(wire, offset, value))

    async def _write(self, wire: Link, value: int) -> int:
        batch = build_batch([value], self._random)
        answer = await wire.ask(produce(self._topics, {_PLACE: batch}), ProduceResponse)
        [result] = answer.responses[0].partition_responses
        check(result.error_code, "Produce", result.error_message)
        return result.base_offset

    async def _read(self, wire: Link, offset: int, value: int) -> None:
        fetching = Fetching(self._topics, {_PLACE: offset}, committed_only=False)
        while (_PLACE, offset, value) not in await fetching.fetch(wire):
            assert fetching.positions[_PLACE] == offset, f"another record is at {offset} of {_PLACE}"


async def _insisted(addresses: Addresses, deadline: float, call: Callable[[Link], Awaitable[Found]]) -> Found:
    """Until the broker does it: it may have to find out that a fault is over."""
    why: object = "it has not answered"
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(deadline - time.monotonic()), Link(addresses) as wire:
                return await call(wire)
        except (*LOST, Refused) as error:
            why = repr(error)
        await asyncio.sleep(RETRY_SECONDS)
    raise NotVisible(f"broker {addresses.broker} after {PATIENCE:g} s: {why}")

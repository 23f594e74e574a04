"""Consumers in order: each locks the queues that it consumes, stores how far it has come, and goes on to
others."""

import asyncio
from random import Random
from typing import Final

from posthouse.protocols.rocketmq.codec.codes import DELAY_LEVEL, RETRY_TOPIC
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage
from tests.checker.history import Ack, Bury, ChangeLease, Deliver, Lease, Outcome, Partition, Publish
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.rocket.groups import Group
from tests.torture.rocket.link import NotStored, RocketLink
from tests.torture.rocket.readers import Reader
from tests.torture.stream.links import decode_value
from tests.torture.workloads import RETRY_SECONDS

_AT_ONCE: Final = 4
_COMMIT_CHANCE: Final = 0.3
_PAUSE_SECONDS: Final = 0.01
_BEAT_TURNS: Final = 500
_LOCK_NANOSECONDS: Final = 60 * 1_000_000_000
"""How long the broker keeps a lock that is not renewed."""
_LONG_DELAY: Final = "18"
"""Level of two hours: what is given up must not come again at all."""


class Locks:
    """The history has a lock of a queue as a message that the broker leases to one consumer after another."""

    def __init__(self, recorder: Recorder, group: Group) -> None:
        self._recorder = recorder
        self.name = f"locks of {group.name}"
        self._values = {place: recorder.value() for place in group.places}
        for value in self._values.values():
            now = recorder.now()
            recorder.add(Publish(recorder.process(), now, now, self.name, value, Outcome.OK))

    def note_taken(self, process: int, invoked: int, place: Partition) -> None:
        value, now = self._values[place], self._recorder.now()
        self._recorder.add(
            Lease(process, invoked, now, self.name, value, place, 0, None, 2, _LOCK_NANOSECONDS)
        )

    def note_kept(self, process: int, invoked: int, place: Partition) -> None:
        self._note(process, invoked, place, _LOCK_NANOSECONDS, Outcome.OK)

    def note_given_back(self, process: int, invoked: int, place: Partition, outcome: Outcome) -> None:
        self._note(process, invoked, place, 0, outcome)

    def _note(self, process: int, invoked: int, place: Partition, lasts: int, outcome: Outcome) -> None:
        value, now = self._values[place], self._recorder.now()
        self._recorder.add(ChangeLease(process, invoked, now, self.name, value, lasts, outcome))


class Orderly:
    def __init__(self, recorder: Recorder, random: Random, group: Group, locks: Locks) -> None:
        self._recorder = recorder
        self._random = random
        self._group = group
        self._locks = locks
        self._process = recorder.process()
        self._client = f"orderly-{self._process}"
        self._reader = Reader(recorder, group.name)

    async def live(self, addresses: Addresses) -> None:
        async with RocketLink(addresses) as link:
            self._reader.assign({})
            held: list[Partition] = []
            turn = 0
            while True:
                try:
                    if turn % _BEAT_TURNS == 0:
                        await link.heartbeat(self._group.heartbeat(self._client))
                    turn += 1
                    await self._turn(link, held)
                except NotStored:
                    self._reader.assign({})
                    self._recorder.refused()
                    await asyncio.sleep(RETRY_SECONDS)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _turn(self, link: RocketLink, held: list[Partition]) -> None:
        link.pushed.clear()
        if not held or self._random.random() < 0.3:
            await self._lock(link, held)
        await self._reader.take(link, held)
        for place in self._reader.positions:
            for message in await self._reader.pull(link, place, _AT_ONCE):
                await self._process_one(link, message)
            if self._random.random() < _COMMIT_CHANCE:
                await self._reader.commit(link, place)
        if held and self._random.random() < 0.1:
            await self._unlock(link, held, self._random.choice(held))

    async def _lock(self, link: RocketLink, held: list[Partition]) -> None:
        wanted = {*held, self._random.choice(self._group.places)}
        invoked = self._recorder.now()
        for place in await link.lock(self._group.name, self._client, sorted(wanted)):
            if place in held:
                self._locks.note_kept(self._process, invoked, place)
            else:
                self._locks.note_taken(self._process, invoked, place)
                held.append(place)

    async def _unlock(self, link: RocketLink, held: list[Partition], place: Partition) -> None:
        """The next one goes on behind what was consumed, unless that could not be stored."""
        if place in self._reader.positions:
            await self._reader.commit(link, place)
        held.remove(place)
        invoked, outcome = self._recorder.now(), Outcome.UNKNOWN
        try:
            await link.unlock(self._group.name, self._client, [place])
            outcome = Outcome.OK
        finally:
            self._locks.note_given_back(self._process, invoked, place, outcome)

    async def _process_one(self, link: RocketLink, message: StoredMessage) -> None:
        """The broker does not count how often a message was tried: clients do, and keep the queue locked."""
        value, now, queue = decode_value(message.body), self._recorder.now(), self._group.queue
        self._recorder.add(Deliver(self._process, now, queue, value, value in self._group.delivered))
        self._group.delivered.add(value)
        if self._random.random() < 0.05:
            await self._give_up(link, value, message)
        else:
            self._recorder.add(Ack(self._process, now, now, queue, value, Outcome.UNKNOWN))

    async def _give_up(self, link: RocketLink, value: int, message: StoredMessage) -> None:
        """As clients do: they send it to the group's topic of retries, with more retries than it may have."""
        most, invoked = self._group.most_retries, self._recorder.now()
        properties = {RETRY_TOPIC: message.topic, DELAY_LEVEL: _LONG_DELAY}
        try:
            await link.send(
                self._group.retries,
                message.body,
                properties,
                more={"j": str(most + 1), "l": str(most)},
            )
            self._group.buried.add(value)
        finally:
            now = self._recorder.now()
            self._recorder.add(Bury(self._process, invoked, now, self._group.queue, value, Outcome.UNKNOWN))
        self._recorder.moved()
